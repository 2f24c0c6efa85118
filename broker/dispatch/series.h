#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Series of inline tasks that share a reading of the clock
 *
 * On a virtual machine reading the clock takes 12 ns, a quarter of the time of a tiny task. In a
 * batch of entries, one in SERIES_LENGTH of the ring's slots therefore reads it, where tasks of one
 * plan with one count follow each other. Each of the others counts as the mean of the series
 * before. The next task that reads gets the difference to what they really took, so the sum over a
 * batch is exact.
 *
 * The last entry of a batch reads the clock, so that a task that is alone is always measured. So do
 * tasks of SERIES_MOST_NS or more: a plan that begins to take long is noticed within a series.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/clock.h"

enum { SERIES_LENGTH = 8, SERIES_MOST_NS = 200 };

struct series {
	const void *plan; /* only compared; NULL: none yet */
	uint32_t count;
	uint32_t n_tasks;     /* since the clock was read */
	uint64_t begin_ticks; /* when the clock was read */
	uint64_t mean_ticks;  /* time of a task of the series before */
	uint64_t most_ticks;
	uint32_t end; /* index of the ring after the last entry of the batch */
};

static inline void series_init(struct series *series)
{
	*series = (struct series){.most_ticks = clock_ns_to_ticks(SERIES_MOST_NS)};
}

/* Begin a batch at @now_ticks, a reading of the clock; @end: the ring's index after it. */
static inline void series_begin(struct series *series, uint64_t now_ticks, uint32_t end)
{
	series->begin_ticks = now_ticks;
	series->n_tasks = 0;
	series->end = end;
}

/*
 * Return true if a task that begins now counts as mean_ticks, and does not read the clock. @next:
 * the ring's index after its entry.
 */
static inline bool series_goes_on(const struct series *series, const void *plan, uint32_t count,
				  uint32_t next)
{
	return next % SERIES_LENGTH != 0 && next != series->end && series->plan == plan &&
	       series->count == count && series->mean_ticks < series->most_ticks;
}

/* Note a task that counted from @start_ticks, and ended when the clock was read, at @now_ticks. */
static inline void series_measure(struct series *series, const void *plan, uint32_t count,
				  uint64_t start_ticks, uint64_t now_ticks)
{
	if (series->plan == plan && series->count == count)
		series->mean_ticks = (now_ticks - series->begin_ticks) / (series->n_tasks + 1);
	else
		series->mean_ticks = now_ticks - start_ticks;
	series->plan = plan;
	series->count = count;
	series->begin_ticks = now_ticks;
	series->n_tasks = 0;
}
