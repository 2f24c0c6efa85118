#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Percentiles of run-queue delays of the last ten seconds
 *
 * The probes count delays since they were loaded. So about once a second a copy of the counts is
 * saved; the difference between the oldest copy and now covers the last ten seconds. Memory is
 * bounded and part of the struct.
 */
#include <stdint.h>

#include "../../bpf/run-queue-layout.h"

enum { DELAY_WINDOW_COPIES = 11 };

/* Counts since the probes were loaded. */
struct delay_counts {
	uint64_t max_ns;
	uint32_t buckets[RUN_QUEUE_BUCKETS];
};

struct delay_window {
	uint64_t at_ns[DELAY_WINDOW_COPIES];
	struct delay_counts copies[DELAY_WINDOW_COPIES];
	uint32_t n_copies, last;
};

/* Sum over any number of windows. Zeroed: empty. */
struct delay_sum {
	uint64_t n, max_ns;
	uint64_t buckets[RUN_QUEUE_BUCKETS];
};

/* Begin with @counts; earlier delays do not count. */
void delay_window_init(struct delay_window *window, uint64_t now_ns,
		       const struct delay_counts *counts);
/* Save a copy if the last one is old enough. */
void delay_window_push(struct delay_window *window, uint64_t now_ns,
		       const struct delay_counts *counts);
/* Add the delays of the last ten seconds to @sum. */
void delay_window_add(const struct delay_window *window, uint64_t now_ns,
		      const struct delay_counts *counts, struct delay_sum *sum);

/* Return the @share quantile of the delays, to the precision of a bucket; 0: there are none. */
uint64_t delay_percentile_ns(const struct delay_sum *sum, double share);
