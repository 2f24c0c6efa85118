#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The time at a scheduler event
 *
 * Reading CLOCK_MONOTONIC takes longer than the rest of a wake-up's probe. The scheduler has read
 * its own clock, the run queue's, shortly before. Per processor, the probes keep the offset of
 * CLOCK_MONOTONIC from that clock. They measure the offset again after RUN_QUEUE_RECHECK_NS, since
 * CLOCK_MONOTONIC is slewed (by 500 ppm at most) and the scheduler's clock is not. So times are of
 * CLOCK_MONOTONIC; their error is mostly below a microsecond, plus the age of the scheduler's
 * reading: a tenth of one.
 *
 * A measured offset is too large by the age of the scheduler's reading, which an interrupt, or a
 * hypervisor, can make long. So a smaller offset is accepted at once, and a larger one only as far
 * as clocks are slewed.
 *
 * When a task is woken the clock was always updated. At a switch it was not updated if the running
 * task was preempted by a woken one, or the processor was idle. The clock is then as old as that
 * event, possibly the delay to be measured. So at a switch it is used only if the running task went
 * to sleep, and not if it still has the value of a watched task's wake-up.
 *
 * This file is compiled into the probes and into the tests.
 */
#include "run-queue-layout.h"

enum {
	RUN_QUEUE_RECHECK_NS = 1000000,
	RUN_QUEUE_LEAP_NS = 100000000, /* clocks are not slewed by more: one was set */
	RUN_QUEUE_SLEW_SHIFT = 10,     /* 977 ppm */
};

/*
 * Update the offset: the scheduler's clock of @processor was @clock_ns when CLOCK_MONOTONIC was
 * @now_ns.
 */
static inline void run_queue_check_clock(struct run_queue_processor *processor,
					 unsigned long long clock_ns, unsigned long long now_ns)
{
	unsigned long long slewed_ns =
		(clock_ns - processor->clock_checked_ns) >> RUN_QUEUE_SLEW_SHIFT;
	unsigned long long ahead_ns = now_ns - clock_ns;
	long long more_ns = (long long)(ahead_ns - processor->clock_ahead_ns);

	if (processor->clock_checked_ns && more_ns < RUN_QUEUE_LEAP_NS &&
	    more_ns > (long long)slewed_ns)
		ahead_ns = processor->clock_ahead_ns + slewed_ns;
	processor->clock_ahead_ns = ahead_ns;
	processor->clock_checked_ns = clock_ns;
}
