/* SPDX-License-Identifier: MIT */
/* How often to sample, waking a sleeper only where it would oversleep, and noticing a suspend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "telemetry/pace.h"
#include "util/clock.h"

static const uint64_t second_ns = 1000000000u;

static void test_period(void **state)
{
	assert_int_equal(pace_period_ns(TELEMETRY_BUSY, false), second_ns / 50);
	assert_int_equal(pace_period_ns(TELEMETRY_BUSY, true), second_ns / 50);
	assert_int_equal(pace_period_ns(TELEMETRY_SESSIONS, false), second_ns);
	assert_int_equal(pace_period_ns(TELEMETRY_SESSIONS, true), second_ns / 50);
	assert_int_equal(pace_period_ns(TELEMETRY_IDLE, false), 10 * second_ns);
	assert_int_equal(pace_period_ns(TELEMETRY_IDLE, true), 10 * second_ns);
}

static struct memory_reading memory(uint64_t total, uint64_t usable, uint64_t used)
{
	return (struct memory_reading){
		.total = {total, true}, .usable = {usable, true}, .used = {used, true}};
}

static void test_tight(void **state)
{
	struct memory_reading pool = memory(1000, 1000, 900);

	assert_false(pace_is_tight(&pool));
	pool.used.value = 901;
	assert_true(pace_is_tight(&pool));
	pool.used.value = 2000;
	assert_true(pace_is_tight(&pool));
	pool = memory(1000, 900, 850);
	assert_true(pace_is_tight(&pool));
	pool.usable.is_valid = false;
	assert_true(pace_is_tight(&pool) == (1000 - 850 < 100));
	/* What is not known is not tight. */
	pool.total.is_valid = false;
	assert_false(pace_is_tight(&pool));
	pool = memory(1000, 1000, 999);
	pool.used.is_valid = false;
	assert_false(pace_is_tight(&pool));
	pool = memory(0, 0, 0);
	assert_false(pace_is_tight(&pool));
}

static bool is_rung(const struct pace *pace)
{
	struct pollfd pollfd = {.fd = pace->fd, .events = POLLIN};

	return poll(&pollfd, 1, 0) == 1;
}

static void test_set__awake(void **state)
{
	struct pace pace;

	assert_int_equal(pace_init(&pace, TELEMETRY_BUSY), 0);
	assert_int_equal(pace_get(&pace), TELEMETRY_IDLE);
	/* It reads the pace before it sleeps: no need to tell it. */
	assert_false(pace_set(&pace, TELEMETRY_BUSY));
	assert_false(is_rung(&pace));
	assert_int_equal(pace_get(&pace), TELEMETRY_BUSY);
	/* And does not sleep by a slower one. */
	pace_sleep(&pace, TELEMETRY_IDLE, 1000 * second_ns);
	pace_deinit(&pace);
}

static void test_set__asleep(void **state)
{
	struct pace pace;

	assert_int_equal(pace_init(&pace, TELEMETRY_BUSY), 0);
	assert_false(pace_set(&pace, TELEMETRY_SESSIONS));
	/* As pace_sleep() does. */
	atomic_store(&pace.granted, TELEMETRY_SESSIONS);
	assert_false(pace_set(&pace, TELEMETRY_IDLE));
	assert_false(pace_set(&pace, TELEMETRY_SESSIONS));
	assert_false(is_rung(&pace));
	/* Woken once, however often it changes. */
	assert_true(pace_set(&pace, TELEMETRY_BUSY));
	assert_true(is_rung(&pace));
	for (int i = 0; i < 1000; i++) {
		assert_false(pace_set(&pace, TELEMETRY_IDLE));
		assert_false(pace_set(&pace, TELEMETRY_BUSY));
	}
	pace_deinit(&pace);
	assert_int_equal(pace.fd, -1);
}

struct sleeper {
	struct pace pace;
	enum telemetry_pace seen;
};

static void *sleep_until_busy(void *data)
{
	struct sleeper *sleeper = data;

	while ((sleeper->seen = pace_get(&sleeper->pace)) != TELEMETRY_BUSY)
		pace_sleep(&sleeper->pace, sleeper->seen, 1000 * second_ns);
	return NULL;
}

/* Whenever the pace rises, before, while or after the thread falls asleep, it wakes. */
static void test_sleep__never_overslept(void **state)
{
	struct sleeper sleeper;
	pthread_t thread;

	for (int i = 0; i < 300; i++) {
		assert_int_equal(pace_init(&sleeper.pace, TELEMETRY_BUSY), 0);
		assert_int_equal(pthread_create(&thread, NULL, sleep_until_busy, &sleeper), 0);
		for (int j = 0; j < i % 7; j++)
			sched_yield();
		pace_set(&sleeper.pace, TELEMETRY_SESSIONS);
		for (int j = 0; j < i % 5; j++)
			sched_yield();
		pace_set(&sleeper.pace, TELEMETRY_BUSY);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(sleeper.seen, TELEMETRY_BUSY);
		pace_deinit(&sleeper.pace);
	}
}

static void test_sleep__its_time(void **state)
{
	uint64_t start_ns = clock_now_ns();
	struct pace pace;

	assert_int_equal(pace_init(&pace, TELEMETRY_BUSY), 0);
	pace_sleep(&pace, TELEMETRY_IDLE, 2000000);
	assert_true(clock_now_ns() - start_ns >= 2000000);
	/* An interruption that came first ends it at once. */
	pace_interrupt(&pace);
	pace_sleep(&pace, TELEMETRY_IDLE, 1000 * second_ns);
	assert_false(is_rung(&pace));
	pace_deinit(&pace);
}

static void test_suspend(void **state)
{
	struct suspend suspend = {.has_looked = false};

	/* The difference is 500, read with 10 to 1,000,000 in between. */
	assert_false(suspend_step(&suspend, 1000, 1505, 1010));
	assert_false(suspend_step(&suspend, 2000, 2505, 1002000));
	assert_false(suspend_step(&suspend, 2000, 1002495, 1002000));
	assert_false(suspend_step(&suspend, 3000, 3505, 3010));
	/* Asleep for 100. */
	assert_true(suspend_step(&suspend, 4000, 4605, 4010));
	assert_false(suspend_step(&suspend, 5000, 5605, 5010));
	assert_false(suspend_step(&suspend, 6000, 6601, 6002));
	/* Even if it was interrupted just then: at the next look at the latest. */
	assert_false(suspend_step(&suspend, 7000, 7605, 100000));
	assert_true(suspend_step(&suspend, 200000, 205000, 200010));
}

static void test_suspend__this_machine(void **state)
{
	struct suspend suspend = {.has_looked = false};

	for (int i = 0; i < 100000; i++)
		assert_false(suspend_look(&suspend));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_period),
		cmocka_unit_test(test_tight),
		cmocka_unit_test(test_set__awake),
		cmocka_unit_test(test_set__asleep),
		cmocka_unit_test(test_sleep__never_overslept),
		cmocka_unit_test(test_sleep__its_time),
		cmocka_unit_test(test_suspend),
		cmocka_unit_test(test_suspend__this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
