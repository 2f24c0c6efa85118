#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Percentiles of run-queue delays, of the last ten seconds
 *
 * The probes count delays since they were loaded. So about once a second a copy of the counts is
 * put aside; what is between the oldest copy and now is of the last ten seconds. Memory is bounded
 * and part of the struct.
 */
#include <stdint.h>

#include "../../bpf/run-queue-layout.h"

enum { DELAY_WINDOW_COPIES = 11 };

/* Counts since loading. */
struct delay_counts {
	uint64_t max_ns;
	uint32_t buckets[RUN_QUEUE_BUCKETS];
};

struct delay_window {
	uint64_t at_ns[DELAY_WINDOW_COPIES];
	struct delay_counts copies[DELAY_WINDOW_COPIES];
	uint32_t n_copies, last;
};

/* Of as many windows as one likes. Zeroed: none. */
struct delay_sum {
	uint64_t n, max_ns;
	uint64_t buckets[RUN_QUEUE_BUCKETS];
};

/* Begins with @counts, as what was before that is of no interest. */
void delay_window_init(struct delay_window *window, uint64_t now_ns,
		       const struct delay_counts *counts);
/* Puts a copy aside if the last one is old enough. */
void delay_window_push(struct delay_window *window, uint64_t now_ns,
		       const struct delay_counts *counts);
/* Adds the delays of the last ten seconds. */
void delay_window_add(const struct delay_window *window, uint64_t now_ns,
		      const struct delay_counts *counts, struct delay_sum *sum);

/* The delay that @share of all are not above, by which bucket it is in; 0: there is none. */
uint64_t delay_percentile_ns(const struct delay_sum *sum, double share);
