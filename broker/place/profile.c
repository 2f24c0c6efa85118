/* SPDX-License-Identifier: MIT */
/*
 * Device profiles
 *
 * Figures come from measurements that were disturbed, from files that were cut off, from people.
 * Every figure is checked here before use, so that later code needs no checks.
 */
#include "place/profile.h"

#include <math.h>

static bool is_between(float value, float min, float max)
{
	return isfinite(value) && value >= min && value <= max;
}

static bool is_rate(float value)
{
	return is_between(value, PLACE_MIN_RATE, PLACE_MAX_RATE);
}

static bool is_latency(float value)
{
	return is_between(value, 0, PLACE_MAX_LATENCY_NS);
}

const char *place_profile_refusal(const struct place_profile *profile)
{
	bool has_up = profile->up_bytes_per_ns != 0, has_down = profile->down_bytes_per_ns != 0;

	if (!profile->is_valid)
		return "the device has no measurements";
	if (profile->n_servers < 1 || profile->n_servers > PLACE_MAX_SERVERS)
		return "the number of servers is out of range";
	if (profile->n_servers_per_task < 1 || profile->n_servers_per_task > profile->n_servers)
		return "the number of servers per task is out of range";
	if (!is_latency(profile->share_min_ns))
		return "the time from which servers share a node is out of range";
	if (!is_latency(profile->task_ns))
		return "the time of a task is out of range";
	if (!is_latency(profile->node_ns))
		return "the time of a node is out of range";
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++) {
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++) {
			if (!is_rate(profile->rates[i][k].flops_per_ns))
				return "a rate of computing is out of range";
			if (!is_rate(profile->rates[i][k].bytes_per_ns))
				return "a memory rate is out of range";
		}
	}
	if (has_up != has_down || (has_up && (!is_rate(profile->up_bytes_per_ns) ||
					      !is_rate(profile->down_bytes_per_ns))))
		return "a link rate is out of range";
	if (!is_latency(profile->link_ns))
		return "the link latency is out of range";
	if (profile->memory_bytes > PLACE_MAX_MEMORY_BYTES)
		return "the memory size is out of range";
	if (!is_between(profile->active_watts, 0, PLACE_MAX_WATTS))
		return "the power is out of range";
	return NULL;
}
