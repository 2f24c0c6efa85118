/* SPDX-License-Identifier: MIT */
/*
 * Residency policy: see residency-policy.h.
 *
 * The value is an exponentially decaying count. With tasks at an even rate r it tends to r *
 * half-life / ln 2, however often it is computed. So it need not be computed more often than
 * decisions are made.
 */
#include "memory/residency-policy.h"

#include <math.h>

enum rank { RANK_ABOVE_HIGH, RANK_ABOVE_RESERVE, RANK_OWN };

/* Return true if the tenant stays within @limit with @more bytes. */
static bool is_within(uint64_t limit, const struct residency_claim *claim, uint64_t more)
{
	return claim->used <= limit && more <= limit - claim->used;
}

/* Return true if the tenant keeps its reserve without this plan. */
static bool leaves_reserve(const struct residency_claim *holder)
{
	return holder->used >= holder->bytes &&
	       holder->used - holder->bytes >= holder->share.reserve;
}

static bool is_wanted_more(const struct residency_claim *wish, const struct residency_claim *holder)
{
	return wish->value > holder->value * RESIDENCY_HYSTERESIS;
}

static int rank_own(enum residency_policy policy, const struct residency_claim *wish,
		    const struct residency_claim *holder)
{
	if (wish->is_lease)
		return RANK_OWN;
	if (policy == RESIDENCY_LRU)
		return wish->used_ns > holder->used_ns ? RANK_OWN : RESIDENCY_KEEP;
	return is_wanted_more(wish, holder) ? RANK_OWN : RESIDENCY_KEEP;
}

int residency_rank(enum residency_policy policy, const struct residency_claim *wish,
		   const struct residency_claim *holder)
{
	bool is_in_reserve = is_within(wish->share.reserve, wish, wish->bytes);
	bool is_below_high = is_within(wish->share.high, wish, wish->bytes);
	bool is_above_high = !is_within(holder->share.high, holder, 0);
	bool is_above_reserve = !is_within(holder->share.reserve, holder, 0);
	int rank;

	if (policy == RESIDENCY_STAY)
		return RESIDENCY_KEEP;
	if (wish->tenant == holder->tenant)
		return rank_own(policy, wish, holder);
	if (!is_above_reserve)
		return RESIDENCY_KEEP;
	rank = is_above_high ? RANK_ABOVE_HIGH : RANK_ABOVE_RESERVE;
	if (is_in_reserve)
		return rank;
	if (!leaves_reserve(holder))
		return RESIDENCY_KEEP;
	if (wish->is_lease)
		return is_above_high && is_below_high ? rank : RESIDENCY_KEEP;
	if (policy == RESIDENCY_LRU)
		return wish->used_ns > holder->used_ns ? rank : RESIDENCY_KEEP;
	if (is_above_high && is_below_high && wish->value > 0)
		return rank;
	return is_wanted_more(wish, holder) ? rank : RESIDENCY_KEEP;
}

int residency_rank_pressure(const struct residency_claim *holder)
{
	if (!leaves_reserve(holder))
		return RESIDENCY_KEEP;
	return is_within(holder->share.high, holder, 0) ? RANK_ABOVE_RESERVE : RANK_ABOVE_HIGH;
}

bool residency_goes_first(enum residency_policy policy, int rank_a, const struct residency_claim *a,
			  int rank_b, const struct residency_claim *b)
{
	if (rank_a != rank_b)
		return rank_a < rank_b;
	if (policy == RESIDENCY_LRU || a->value == b->value)
		return a->used_ns < b->used_ns;
	return a->value < b->value;
}

bool residency_comes_first(const struct residency_claim *a, const struct residency_claim *b)
{
	bool a_in_reserve = is_within(a->share.reserve, a, a->bytes);
	bool b_in_reserve = is_within(b->share.reserve, b, b->bytes);

	if (a_in_reserve != b_in_reserve)
		return a_in_reserve;
	if (a->value != b->value)
		return a->value > b->value;
	return a->used_ns > b->used_ns;
}

double residency_value(double value, uint32_t n_wanted, uint64_t elapsed_ns, uint64_t since_last_ns)
{
	const double half_life_ns = (double)RESIDENCY_HALF_LIFE_NS;
	double active_ns, decay;

	if (elapsed_ns == 0)
		return value + n_wanted;
	if (since_last_ns > elapsed_ns)
		since_last_ns = elapsed_ns;
	value *= exp2(-(double)elapsed_ns / half_life_ns);
	if (n_wanted == 0)
		return value;

	/*
	 * The tasks lie evenly in the active part, each decayed by its age at the end of that part.
	 */
	active_ns = (double)(elapsed_ns - since_last_ns) + 1;
	decay = exp2(-active_ns / half_life_ns);
	return value + n_wanted * ((1 - decay) * half_life_ns / (M_LN2 * active_ns)) *
			       exp2(-(double)since_last_ns / half_life_ns);
}

double residency_value_heard(double value, uint64_t idle_ns)
{
	double interval_ns = (double)RESIDENCY_HALF_LIFE_NS / (M_LN2 * value);

	if (value <= RESIDENCY_SILENT_VALUE || idle_ns < RESIDENCY_SILENCE_NS ||
	    (double)idle_ns < RESIDENCY_SILENT_INTERVALS * interval_ns)
		return value;
	return RESIDENCY_SILENT_VALUE;
}
