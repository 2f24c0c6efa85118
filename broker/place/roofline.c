/* SPDX-License-Identifier: MIT */
/*
 * The roofline of a device, with a ceiling per family and size
 *
 * Between two size classes the rates are interpolated by the logarithm of the size. An invalid rate
 * (0, negative, not a number: a profile that is not valid) counts as a modest device's, so that
 * every caller gets a usable number.
 */
#include <math.h>

#include "place/profile.h"

#define UNKNOWN_PER_NS 4.0 /* GFLOP/s, GB/s */
#define MIN_NS         1e-3
#define MAX_NS         1e15

static double usable(float rate)
{
	return rate > 0 && isfinite(rate) ? (double)rate : UNKNOWN_PER_NS;
}

static double between(float low, float high, double share)
{
	return usable(low) + (usable(high) - usable(low)) * share;
}

double place_profile_node_ns(const struct place_profile *profile, enum op_family family,
			     double flops, double bytes)
{
	const struct place_rate *rates, *low, *high;
	double at, share, ns, node_ns;
	unsigned int class;

	rates = profile->rates[(unsigned int)family < OP_FAMILY_COUNT ? family
								      : OP_FAMILY_ELEMENTWISE];
	if (!(flops >= 0))
		flops = 0;
	if (!(bytes >= 1))
		bytes = 1;
	at = (log2(bytes) - PLACE_SIZE_FIRST_LOG2) / PLACE_SIZE_STEP_LOG2;
	at = fmin(fmax(at, 0), PLACE_SIZE_CLASSES - 1);
	class = (unsigned int)at;
	share = at - class;
	low = &rates[class];
	high = class + 1 < PLACE_SIZE_CLASSES ? low + 1 : low;
	ns = fmax(flops / between(low->flops_per_ns, high->flops_per_ns, share),
		  bytes / between(low->bytes_per_ns, high->bytes_per_ns, share));
	node_ns = profile->node_ns;
	if (node_ns > 0)
		ns += node_ns;
	return fmin(fmax(ns, MIN_NS), MAX_NS);
}

double place_profile_cost_ns(const struct place_profile *profile, enum op_family family,
			     const struct cost *cost, double n, double count, double *ret_work_ns)
{
	const uint32_t n_sharing = profile->is_valid ? profile->n_servers_per_task : 1;
	const double share_ns = (double)profile->share_min_ns;
	double node_ns, shared_ns;

	node_ns = place_profile_node_ns(
		profile, family, ((double)cost->flops_fixed + (double)cost->flops_row * count) / n,
		((double)cost->bytes_fixed + (double)cost->bytes_row * count) / n);
	shared_ns = node_ns;
	if (n_sharing > 1 && node_ns > share_ns) {
		shared_ns = node_ns / n_sharing;
		if (shared_ns < share_ns)
			shared_ns = share_ns;
	}
	*ret_work_ns = n * node_ns;
	return n * shared_ns;
}
