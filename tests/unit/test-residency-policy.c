/* SPDX-License-Identifier: MIT */
/* Ranking of plans to evict: broker/memory/residency-policy.h */
#include <math.h>

#include "memory/residency-policy.h"
#include "support/test.h"

#define SECOND 1000000000ull

/* Return the claim of a tenant with a maximum of 100, a vram-high of 80 and a reserve of 20. */
static struct residency_claim claim(uint32_t tenant, uint64_t used, uint64_t bytes, double value)
{
	return (struct residency_claim){
		.share = {.max = 100, .high = 80, .reserve = 20},
		.tenant = tenant,
		.used = used,
		.bytes = bytes,
		.value = value,
	};
}

static int rank(struct residency_claim wish, struct residency_claim holder)
{
	return residency_rank(RESIDENCY_WANTED, &wish, &holder);
}

TEST(test_rank__reserve_is_never_refused)
{
	/*
	 * The claim is unwanted but within its tenant's reserve; the other tenant is above its own.
	 */
	assert_int_not_equal(rank(claim(1, 0, 20, 0), claim(2, 21, 21, 1000)), RESIDENCY_KEEP);
	assert_int_not_equal(rank(claim(1, 10, 10, 0), claim(2, 90, 10, 1000)), RESIDENCY_KEEP);
	/* One byte above the reserve, the claim is ranked by value. */
	assert_int_equal(rank(claim(1, 10, 11, 0), claim(2, 60, 10, 1000)), RESIDENCY_KEEP);
}

TEST(test_rank__reserve_is_never_taken)
{
	assert_int_equal(rank(claim(1, 0, 20, 1000), claim(2, 20, 20, 0)), RESIDENCY_KEEP);
	assert_int_equal(rank(claim(1, 20, 30, 1000), claim(2, 20, 5, 0)), RESIDENCY_KEEP);
	/*
	 * The victim's tenant would keep less than its reserve. Only a claim within a reserve may
	 * take that.
	 */
	assert_int_equal(rank(claim(1, 20, 30, 1000), claim(2, 30, 30, 0)), RESIDENCY_KEEP);
	assert_int_not_equal(rank(claim(1, 20, 30, 1000), claim(2, 50, 30, 0)), RESIDENCY_KEEP);
}

TEST(test_rank__above_high_goes_first)
{
	int above_high = rank(claim(1, 0, 20, 1), claim(2, 81, 10, 5));
	int above_reserve = rank(claim(1, 0, 20, 1), claim(3, 60, 10, 0));

	assert_true(above_high >= 0 && above_high < above_reserve);
	/*
	 * A wanted claim that stays below vram-high takes from a tenant above it, however wanted
	 * the victim is.
	 */
	assert_int_not_equal(rank(claim(1, 30, 10, 0.1), claim(2, 81, 10, 1000)), RESIDENCY_KEEP);
	assert_int_equal(rank(claim(1, 30, 10, 0), claim(2, 81, 10, 1000)), RESIDENCY_KEEP);
	assert_int_equal(rank(claim(1, 75, 10, 1), claim(2, 81, 10, 1000)), RESIDENCY_KEEP);
}

TEST(test_rank__must_be_wanted_more)
{
	assert_int_equal(rank(claim(1, 30, 10, 10), claim(2, 60, 10, 10)), RESIDENCY_KEEP);
	assert_int_equal(rank(claim(1, 30, 10, 12.5), claim(2, 60, 10, 10)), RESIDENCY_KEEP);
	assert_int_not_equal(rank(claim(1, 30, 10, 12.6), claim(2, 60, 10, 10)), RESIDENCY_KEEP);
	/* The same between plans of one tenant; there the reserve does not matter. */
	assert_int_equal(rank(claim(1, 10, 10, 10), claim(1, 10, 10, 10)), RESIDENCY_KEEP);
	assert_int_not_equal(rank(claim(1, 10, 10, 13), claim(1, 10, 10, 10)), RESIDENCY_KEEP);
}

TEST(test_rank__for_comparison)
{
	struct residency_claim wish = claim(1, 30, 10, 0), holder = claim(2, 60, 10, 1000);

	wish.used_ns = 2;
	holder.used_ns = 1;
	assert_int_not_equal(residency_rank(RESIDENCY_LRU, &wish, &holder), RESIDENCY_KEEP);
	assert_int_equal(residency_rank(RESIDENCY_STAY, &wish, &holder), RESIDENCY_KEEP);
	holder.used_ns = 3;
	assert_int_equal(residency_rank(RESIDENCY_LRU, &wish, &holder), RESIDENCY_KEEP);
}

TEST(test_pressure__down_to_the_reserves)
{
	struct residency_claim high = claim(1, 81, 10, 1), middle = claim(2, 60, 10, 0);
	struct residency_claim reserve = claim(3, 25, 10, 0);

	assert_true(residency_rank_pressure(&high) >= 0);
	assert_true(residency_rank_pressure(&high) < residency_rank_pressure(&middle));
	assert_int_equal(residency_rank_pressure(&reserve), RESIDENCY_KEEP);
}

TEST(test_order__least_wanted_first)
{
	struct residency_claim a = claim(1, 60, 10, 1), b = claim(2, 60, 10, 2);

	a.used_ns = 9;
	b.used_ns = 8;
	assert_true(residency_goes_first(RESIDENCY_WANTED, 1, &a, 1, &b));
	assert_false(residency_goes_first(RESIDENCY_WANTED, 1, &b, 1, &a));
	assert_true(residency_goes_first(RESIDENCY_WANTED, 0, &b, 1, &a));
	assert_true(residency_goes_first(RESIDENCY_LRU, 1, &b, 1, &a));
	b.value = 1;
	assert_true(residency_goes_first(RESIDENCY_WANTED, 1, &b, 1, &a));
}

TEST(test_order__reserve_comes_first)
{
	struct residency_claim in = claim(1, 0, 20, 0), above = claim(2, 20, 10, 5);
	struct residency_claim more = claim(3, 20, 10, 6);

	assert_true(residency_comes_first(&in, &above));
	assert_false(residency_comes_first(&above, &in));
	assert_true(residency_comes_first(&more, &above));
}

/* At an even rate of use the value does not depend on the intervals of updates. */
TEST(test_value__independent_of_intervals)
{
	double often = 0, seldom = 0, expected;

	for (int i = 0; i < 6000; i++)
		often = residency_value(often, 1, SECOND / 100, 0);
	for (int i = 0; i < 3; i++)
		seldom = residency_value(seldom, 2000, 20 * SECOND, 0);
	expected = 100.0 * ((double)RESIDENCY_HALF_LIFE_NS / (double)SECOND) / M_LN2;
	assert_true(fabs(often / expected - 1) < 0.01);
	assert_true(fabs(seldom / expected - 1) < 0.01);
}

TEST(test_value__decays)
{
	double value = residency_value(0, 1000, 1, 0);

	assert_true(fabs(value - 1000) < 1);
	assert_true(fabs(residency_value(value, 0, RESIDENCY_HALF_LIFE_NS, 0) - 500) < 1);
	/* Use long ago has decayed. */
	assert_true(residency_value(0, 1000000, 3600 * SECOND, 600 * SECOND) < 1);
	/* Time that stands still, and a last use implausibly long ago. */
	assert_true(residency_value(5, 2, 0, 0) == 7);
	assert_true(isfinite(residency_value(5, 2, SECOND, 1000 * SECOND)));
	assert_true(isfinite(residency_value(1e300, UINT32_MAX, UINT64_MAX, 0)));
}

TEST(test_value__silent)
{
	/* 100 uses per second: eight intervals are shorter than the minimum silence. */
	double often = 100 * ((double)RESIDENCY_HALF_LIFE_NS / (double)SECOND) / M_LN2;
	/* Two uses per second: silent after four seconds. */
	double seldom = often / 50;

	assert_true(residency_value_heard(often, 0) == often);
	assert_true(residency_value_heard(often, RESIDENCY_SILENCE_NS - 1) == often);
	assert_true(residency_value_heard(often, RESIDENCY_SILENCE_NS) == RESIDENCY_SILENT_VALUE);
	assert_true(residency_value_heard(seldom, 39 * SECOND / 10) == seldom);
	assert_true(residency_value_heard(seldom, 41 * SECOND / 10) == RESIDENCY_SILENT_VALUE);
	/* Silence never raises a value. */
	assert_true(residency_value_heard(1, 3600 * SECOND) == 1);
	assert_true(residency_value_heard(0, UINT64_MAX) == 0);
}
