#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What time it is, where the scheduler just looked
 *
 * To ask for CLOCK_MONOTONIC takes longer than the rest of a wake-up's probe. The scheduler has
 * read its own clock, the run queue's, shortly before. Per processor it is known by how much
 * CLOCK_MONOTONIC is ahead of it; that is looked up again after RUN_QUEUE_RECHECK_NS, since the one
 * is slewed (by 500 ppm at most) and the other is not. So times are of CLOCK_MONOTONIC, mostly
 * wrong by less than a microsecond, and by how long ago the scheduler looked: a tenth of one.
 *
 * What is found is too much by how long ago the scheduler looked, which an interrupt, or a
 * hypervisor, can make long: so less is believed, and more only as far as clocks are slewed.
 *
 * When a task is woken the clock was always updated. At a switch it was not if the task that ran
 * was to be preempted by one that was woken, or the processor was idle: then it is as old as that,
 * which may be the very delay that is to be measured. So at a switch it is used only where the task
 * that ran went to sleep, and not if it says the same as when a watched one was woken.
 *
 * Compiled into the probes, and into the tests.
 */
#include "run-queue-layout.h"

enum {
	RUN_QUEUE_RECHECK_NS = 1000000,
	RUN_QUEUE_LEAP_NS = 100000000, /* by more clocks are not slewed: one was set */
	RUN_QUEUE_SLEW_SHIFT = 10,     /* 977 ppm */
};

/* The scheduler's clock of @processor said @clock_ns, and CLOCK_MONOTONIC says @now_ns. */
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
