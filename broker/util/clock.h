#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Time for the hot path
 *
 * Ticks of a counter that reads in a few nanoseconds: the time stamp counter if the processor
 * reports it as invariant, otherwise CLOCK_MONOTONIC in nanoseconds. Ticks of different threads are
 * comparable. clock_init() runs once before any other thread starts.
 */
#include <stdint.h>
#include <sys/types.h>

struct clock {
	uint64_t ns_mult;   /* nanoseconds = ticks * ns_mult >> 32 */
	uint64_t tick_mult; /* ticks = nanoseconds * tick_mult >> 32 */
	int use_tsc;
};

extern struct clock clock_state_;

/* Calibrate the counter against CLOCK_MONOTONIC for about 10 ms. */
void clock_init(void);

/* Return one of the kernel's clocks in nanoseconds. It must exist. */
uint64_t clock_read_ns(clockid_t clock);
/* Return CLOCK_MONOTONIC in nanoseconds: for timers and times shown to people. */
uint64_t clock_now_ns(void);

/* Return CLOCK_BOOTTIME in nanoseconds, the clock of the kernel's process start times. */
uint64_t clock_boot_ns(void);

static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
	/* <x86intrin.h> would take longer to compile than most files that include this header. */
	if (__builtin_expect(clock_state_.use_tsc, 1))
		return __builtin_ia32_rdtsc();
#endif
	return clock_now_ns();
}

static inline uint64_t clock_ticks_to_ns(uint64_t ticks)
{
	return (uint64_t)(((unsigned __int128)ticks * clock_state_.ns_mult) >> 32);
}

static inline uint64_t clock_ns_to_ticks(uint64_t ns)
{
	return (uint64_t)(((unsigned __int128)ns * clock_state_.tick_mult) >> 32);
}

/* Return the time between two readings, 0 if the counters of two processors differ a little. */
static inline uint64_t clock_elapsed_ns(uint64_t from_ticks, uint64_t to_ticks)
{
	return to_ticks > from_ticks ? clock_ticks_to_ns(to_ticks - from_ticks) : 0;
}
