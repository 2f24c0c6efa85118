/* SPDX-License-Identifier: MIT */
/*
 * Percentiles: see delay-window.h.
 *
 * Counts have 32 bits and wrap around, as do their differences. A copy that is far too old, because
 * no look came in between, is left out.
 */
#include "contention/delay-window.h"

#include <math.h>
#include <string.h>

static const uint64_t second_ns = 1000000000u;

/* The thread saves copies a little late. */
static const uint64_t longest_ns = 10500000000u;

void delay_window_init(struct delay_window *window, uint64_t now_ns,
		       const struct delay_counts *counts)
{
	window->n_copies = 1;
	window->last = 0;
	window->at_ns[0] = now_ns;
	window->copies[0] = *counts;
}

void delay_window_push(struct delay_window *window, uint64_t now_ns,
		       const struct delay_counts *counts)
{
	/* Looks once a second are not exactly a second apart. */
	if (now_ns - window->at_ns[window->last] < second_ns - second_ns / 8)
		return;
	window->last = (window->last + 1) % DELAY_WINDOW_COPIES;
	window->at_ns[window->last] = now_ns;
	window->copies[window->last] = *counts;
	if (window->n_copies < DELAY_WINDOW_COPIES)
		window->n_copies++;
}

void delay_window_add(const struct delay_window *window, uint64_t now_ns,
		      const struct delay_counts *counts, struct delay_sum *sum)
{
	const struct delay_counts *from;
	unsigned int top = 0;
	uint64_t max_ns;

	/* Use the oldest copy that is not too old, or else the last. */
	for (uint32_t i = window->n_copies;;) {
		uint32_t at = (window->last + DELAY_WINDOW_COPIES + 1 - i) % DELAY_WINDOW_COPIES;

		from = &window->copies[at];
		if (--i == 0 || now_ns - window->at_ns[at] <= longest_ns)
			break;
	}
	for (unsigned int i = 0; i < RUN_QUEUE_BUCKETS; i++) {
		uint32_t n = counts->buckets[i] - from->buckets[i];

		sum->buckets[i] += n;
		sum->n += n;
		if (n > 0)
			top = i + 1;
	}
	if (top == 0)
		return;
	/* A new overall maximum is known exactly; other maxima to their bucket. */
	max_ns = counts->max_ns;
	if (counts->max_ns <= from->max_ns && top < RUN_QUEUE_BUCKETS &&
	    run_queue_bucket_ns(top) - 1 < max_ns)
		max_ns = run_queue_bucket_ns(top) - 1;
	if (max_ns > sum->max_ns)
		sum->max_ns = max_ns;
}

uint64_t delay_percentile_ns(const struct delay_sum *sum, double share)
{
	uint64_t rank, before = 0, low_ns, high_ns, found_ns;

	if (sum->n == 0)
		return 0;
	rank = (uint64_t)ceil((double)sum->n * share);
	if (rank < 1)
		rank = 1;
	if (rank > sum->n)
		rank = sum->n;
	for (unsigned int i = 0; i < RUN_QUEUE_BUCKETS; i++) {
		if (before + sum->buckets[i] < rank) {
			before += sum->buckets[i];
			continue;
		}
		low_ns = run_queue_bucket_ns(i);
		high_ns = i + 1 < RUN_QUEUE_BUCKETS ? run_queue_bucket_ns(i + 1) : sum->max_ns;
		if (high_ns < low_ns)
			high_ns = low_ns;
		/* Assume that the delays of a bucket are spread evenly over it. */
		found_ns = low_ns +
			   (uint64_t)((double)(high_ns - low_ns) * ((double)(rank - before) - 0.5) /
				      (double)sum->buckets[i]);
		return sum->max_ns > 0 && found_ns > sum->max_ns ? sum->max_ns : found_ns;
	}
	return sum->max_ns;
}
