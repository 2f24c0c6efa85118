/* SPDX-License-Identifier: MIT */
/* The interval between two samples of a device */
#include "support/test.h"
#include "telemetry/sampling.h"

static const uint64_t second_ns = 1000000000u;

TEST(test_period)
{
	assert_int_equal(sampling_period_ns(TELEMETRY_BUSY, false), second_ns / 50);
	assert_int_equal(sampling_period_ns(TELEMETRY_BUSY, true), second_ns / 50);
	assert_int_equal(sampling_period_ns(TELEMETRY_SESSIONS, false), second_ns);
	assert_int_equal(sampling_period_ns(TELEMETRY_SESSIONS, true), second_ns / 50);
	assert_int_equal(sampling_period_ns(TELEMETRY_LEASES, false), second_ns);
	assert_int_equal(sampling_period_ns(TELEMETRY_IDLE, false), 10 * second_ns);
	assert_int_equal(sampling_period_ns(TELEMETRY_IDLE, true), 10 * second_ns);
	/* The share of leased programs is of about a second. */
	assert_int_equal(sampling_list_period_ns(TELEMETRY_LEASES, false), second_ns);
	assert_int_equal(sampling_list_period_ns(TELEMETRY_LEASES, true), second_ns / 5);
	assert_int_equal(sampling_list_period_ns(TELEMETRY_BUSY, false), second_ns / 5);
	assert_int_equal(sampling_list_period_ns(TELEMETRY_SESSIONS, false), 10 * second_ns);
}

static struct memory_reading memory(uint64_t total, uint64_t usable, uint64_t used)
{
	return (struct memory_reading){
		.total = {total, true}, .usable = {usable, true}, .used = {used, true}};
}

TEST(test_tight)
{
	struct memory_reading pool = memory(1000, 1000, 900);

	assert_false(sampling_is_tight(&pool));
	pool.used.value = 901;
	assert_true(sampling_is_tight(&pool));
	pool.used.value = 2000;
	assert_true(sampling_is_tight(&pool));
	pool = memory(1000, 900, 850);
	assert_true(sampling_is_tight(&pool));
	pool.usable.is_valid = false;
	assert_true(sampling_is_tight(&pool) == (1000 - 850 < 100));
	/* Memory of unknown size or use does not count as tight. */
	pool.total.is_valid = false;
	assert_false(sampling_is_tight(&pool));
	pool = memory(1000, 1000, 999);
	pool.used.is_valid = false;
	assert_false(sampling_is_tight(&pool));
	pool = memory(0, 0, 0);
	assert_false(sampling_is_tight(&pool));
}
