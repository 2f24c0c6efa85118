/* SPDX-License-Identifier: MIT */
/* Sampling periods: devices are sampled more often if the broker may have to evict. */
#include "telemetry/sampling.h"

uint64_t sampling_period_ns(enum telemetry_pace pace, bool is_tight)
{
	const uint64_t fast_ns = 20000000u, slow_ns = 1000000000u, idle_ns = 10000000000u;

	switch (pace) {
	case TELEMETRY_BUSY:
		return fast_ns;
	case TELEMETRY_SESSIONS:
	case TELEMETRY_LEASES:
		return is_tight ? fast_ns : slow_ns;
	default:
		/* Ignore @is_tight: without sessions, no plan could be evicted. */
		return idle_ns;
	}
}

uint64_t sampling_list_period_ns(enum telemetry_pace pace, bool is_tight)
{
	const uint64_t period_ns = sampling_period_ns(pace, is_tight);

	return pace == TELEMETRY_LEASES && !is_tight ? period_ns
						     : period_ns * SAMPLING_PROCESSES_FACTOR;
}

bool sampling_is_tight(const struct memory_reading *pool)
{
	const struct reading *size = pool->usable.is_valid ? &pool->usable : &pool->total;

	if (!size->is_valid || !pool->used.is_valid || size->value == 0)
		return false;
	return pool->used.value >= size->value || size->value - pool->used.value < size->value / 10;
}
