/* SPDX-License-Identifier: MIT */
/* Budgets: memory of a device that all tenants together may use; broker/memory/budget.h. */
#include "memory/budget.h"
#include "support/test.h"

#define GIB (1ull << 30)

static struct reading known(uint64_t value)
{
	return (struct reading){value, true};
}

static struct budget_figures compute(const struct memory_reading *pool, uint64_t headroom_bytes,
				     uint64_t allocated_bytes)
{
	struct budget_figures figures;

	budget_compute(pool, 8 * GIB, headroom_bytes, allocated_bytes, 0, &figures);
	return figures;
}

TEST(test_compute__others_and_the_driver)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB),
		.usable = known(8 * GIB - 256),
		.used = known(5 * GIB),
		.own = known(2 * GIB + 1000),
	};
	struct budget_figures figures = compute(&pool, GIB / 2, 2 * GIB);

	assert_fields(figures, (outside_bytes, 3 * GIB - 1000), (overhead_bytes, 1000),
		      (usable_bytes, 8 * GIB - 256 - (3 * GIB - 1000) - 1000 - GIB / 2));
}

TEST(test_compute__nothing_known)
{
	const struct memory_reading nothing = {{0}};
	struct budget_figures figures = compute(&nothing, 0, 3 * GIB);

	assert_fields(figures, (outside_bytes, 0), (overhead_bytes, 0), (usable_bytes, 8 * GIB));
}

TEST(test_compute__used_above_total)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB), .used = known(20 * GIB), .own = known(GIB)};

	assert_int_equal(compute(&pool, GIB, GIB).usable_bytes, 0);
}

/* Programs' use of their leases does not count as use from outside. */
TEST(test_compute__leased)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB), .used = known(5 * GIB), .own = known(GIB)};
	struct budget_figures figures;

	budget_compute(&pool, 8 * GIB, 0, GIB, 3 * GIB, &figures);
	assert_fields(figures, (outside_bytes, GIB), (usable_bytes, 7 * GIB));
	/* Leased use above all observed use. */
	budget_compute(&pool, 8 * GIB, 0, GIB, 6 * GIB, &figures);
	assert_fields(figures, (outside_bytes, 0), (usable_bytes, 8 * GIB));
}

/* The driver has moved some of the broker's memory out: the missing bytes are no overhead. */
TEST(test_compute__own_memory_evicted_by_driver)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB), .used = known(8 * GIB), .own = known(3 * GIB)};
	struct budget_figures figures = compute(&pool, 0, 4 * GIB);

	assert_fields(figures, (outside_bytes, 5 * GIB), (overhead_bytes, 0),
		      (usable_bytes, 3 * GIB));
}

/* An administrator allows less than the device has. */
TEST(test_compute__capped)
{
	const struct memory_reading pool = {
		.total = known(100 * GIB), .used = known(GIB), .own = known(0)};

	assert_int_equal(compute(&pool, 0, 0).usable_bytes, 8 * GIB);
}
