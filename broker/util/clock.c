/* SPDX-License-Identifier: MIT */
/* Choice and calibration of the hot path's counter. */
#include "util/clock.h"

#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct clock clock_state_ = {.ns_mult = 1ull << 32, .tick_mult = 1ull << 32, .use_tsc = 0};

uint64_t clock_read_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
	return clock_read_ns(CLOCK_BOOTTIME);
}

#if defined(__x86_64__)
/* CPUID 80000007h EDX bit 8: the counter runs at one rate in every power state (AMD APM 3). */
static int tsc_is_invariant(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
}

/*
 * Read both clocks at one moment. Of several pairs of readings the fastest is used: an interrupted
 * pair would belong to two moments, and the factors are permanent.
 */
static void read_both(uint64_t *ret_ns, uint64_t *ret_ticks)
{
	uint64_t best = UINT64_MAX, before, after, ns;

	for (int i = 0; i < 32; i++) {
		before = __builtin_ia32_rdtsc();
		ns = clock_now_ns();
		after = __builtin_ia32_rdtsc();
		if (after - before >= best)
			continue;
		best = after - before;
		*ret_ns = ns;
		*ret_ticks = before + best / 2;
	}
}

void clock_init(void)
{
	uint64_t start_ns = 0, end_ns = 0, start = 0, end = 0;

	if (!tsc_is_invariant())
		return;

	read_both(&start_ns, &start);
	while (clock_now_ns() - start_ns < 10000000u)
		;
	read_both(&end_ns, &end);

	if (end <= start || end_ns <= start_ns)
		return;
	clock_state_.ns_mult =
		(uint64_t)(((unsigned __int128)(end_ns - start_ns) << 32) / (end - start));
	clock_state_.tick_mult =
		(uint64_t)(((unsigned __int128)(end - start) << 32) / (end_ns - start_ns));
	clock_state_.use_tsc = clock_state_.ns_mult != 0;
}
#else
void clock_init(void)
{
}
#endif
