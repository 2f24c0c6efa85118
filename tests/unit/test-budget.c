/* SPDX-License-Identifier: MIT */
/* What all tenants together can have of a device: broker/memory/budget.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "memory/budget.h"

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

static void test_compute__others_and_the_driver(void **state)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB),
		.usable = known(8 * GIB - 256),
		.used = known(5 * GIB),
		.own = known(2 * GIB + 1000),
	};
	struct budget_figures figures = compute(&pool, GIB / 2, 2 * GIB);

	assert_int_equal(figures.outside_bytes, 3 * GIB - 1000);
	assert_int_equal(figures.overhead_bytes, 1000);
	assert_int_equal(figures.usable_bytes, 8 * GIB - 256 - (3 * GIB - 1000) - 1000 - GIB / 2);
}

static void test_compute__nothing_known(void **state)
{
	const struct memory_reading nothing = {{0}};
	struct budget_figures figures = compute(&nothing, 0, 3 * GIB);

	assert_int_equal(figures.outside_bytes, 0);
	assert_int_equal(figures.overhead_bytes, 0);
	assert_int_equal(figures.usable_bytes, 8 * GIB);
}

static void test_compute__more_used_than_there_is(void **state)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB), .used = known(20 * GIB), .own = known(GIB)};

	assert_int_equal(compute(&pool, GIB, GIB).usable_bytes, 0);
}

/* What programs use of their leases is not used by others. */
static void test_compute__leased(void **state)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB), .used = known(5 * GIB), .own = known(GIB)};
	struct budget_figures figures;

	budget_compute(&pool, 8 * GIB, 0, GIB, 3 * GIB, &figures);
	assert_int_equal(figures.outside_bytes, GIB);
	assert_int_equal(figures.usable_bytes, 7 * GIB);
	/* More than is seen in use at all. */
	budget_compute(&pool, 8 * GIB, 0, GIB, 6 * GIB, &figures);
	assert_int_equal(figures.outside_bytes, 0);
	assert_int_equal(figures.usable_bytes, 8 * GIB);
}

/* The driver has moved something of ours out: what is missing is nobody's overhead. */
static void test_compute__own_moved_out(void **state)
{
	const struct memory_reading pool = {
		.total = known(8 * GIB), .used = known(8 * GIB), .own = known(3 * GIB)};
	struct budget_figures figures = compute(&pool, 0, 4 * GIB);

	assert_int_equal(figures.outside_bytes, 5 * GIB);
	assert_int_equal(figures.overhead_bytes, 0);
	assert_int_equal(figures.usable_bytes, 3 * GIB);
}

/* What an administrator allows is less than the device has. */
static void test_compute__capped(void **state)
{
	const struct memory_reading pool = {
		.total = known(100 * GIB), .used = known(GIB), .own = known(0)};

	assert_int_equal(compute(&pool, 0, 0).usable_bytes, 8 * GIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compute__others_and_the_driver),
		cmocka_unit_test(test_compute__nothing_known),
		cmocka_unit_test(test_compute__more_used_than_there_is),
		cmocka_unit_test(test_compute__leased),
		cmocka_unit_test(test_compute__own_moved_out),
		cmocka_unit_test(test_compute__capped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
