#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Overruns of the reactor by tasks that it runs itself
 *
 * They fill leaky buckets: an overrun adds OVERRUN_COST, each other run of these tasks removes 1,
 * and 1 more for each OVERRUN_FORGIVE_NS that it took, and once a bucket is full, at OVERRUN_LIMIT,
 * workers run the tasks. So 320 us of other runs forgive one overrun. The machine interrupts tasks
 * as well, the longer ones more often: virtual machines were measured to stand still for 50 to 100
 * us once in a millisecond or two.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/clock.h"

enum { OVERRUN_COST = 64, OVERRUN_LIMIT = 512, OVERRUN_FORGIVE_NS = 5000 };

/*
 * Time for which a full bucket keeps tasks off the reactor: after an inline run, which nothing
 * stops, and after a run that the reactor stops once it takes too long.
 */
enum { OVERRUN_INLINE_PAUSE_NS = 1000000000, OVERRUN_PAUSE_NS = 100000000 };

/* Add an overrun to the bucket with @fill. */
static inline void overrun_note(uint32_t *fill, uint64_t *again_ticks, uint64_t now_ticks,
				uint64_t pause_ns)
{
	const uint64_t again = now_ticks + clock_ns_to_ticks(pause_ns);

	*fill += OVERRUN_COST;
	if (*again_ticks < again)
		*again_ticks = again;
}

/* Remove @n from the bucket with @fill. */
static inline void overrun_forgive(uint32_t *fill, uint64_t n)
{
	*fill = n < *fill ? *fill - (uint32_t)n : 0;
}

/*
 * Return true if the bucket with @fill is not full, or if the pause since its last overrun has
 * passed; then one overrun leaves the bucket.
 */
static inline bool overrun_permits(uint32_t *fill, uint64_t again_ticks, uint64_t now_ticks)
{
	if (__builtin_expect(*fill < OVERRUN_LIMIT, 1))
		return true;
	if (now_ticks < again_ticks)
		return false;
	*fill = OVERRUN_LIMIT - OVERRUN_COST;
	return true;
}
