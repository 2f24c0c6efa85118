/* SPDX-License-Identifier: MIT */
/* Waking a sleeper only if it would oversleep, and detecting a suspend */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "support/test.h"
#include "util/clock.h"
#include "util/pace.h"

enum { IDLE, SLOW, FAST };

static const uint64_t second_ns = 1000000000u;

static bool is_rung(const struct pace *pace)
{
	struct pollfd pollfd = {.fd = pace->fd, .events = POLLIN};

	return poll(&pollfd, 1, 0) == 1;
}

TEST(test_set__awake)
{
	struct pace pace;

	assert_int_equal(pace_init(&pace, FAST), 0);
	assert_int_equal(pace_get(&pace), IDLE);
	/* The thread reads the pace before it sleeps, so it needs no wake-up. */
	assert_false(pace_set(&pace, FAST));
	assert_false(is_rung(&pace));
	assert_int_equal(pace_get(&pace), FAST);
	/* The thread does not sleep by the slower pace. */
	pace_sleep(&pace, IDLE, 1000 * second_ns);
	pace_deinit(&pace);
}

TEST(test_set__asleep)
{
	struct pace pace;

	assert_int_equal(pace_init(&pace, FAST), 0);
	assert_false(pace_set(&pace, SLOW));
	/* pace_sleep() sets this before it sleeps. */
	atomic_store(&pace.granted, SLOW);
	assert_false(pace_set(&pace, IDLE));
	assert_false(pace_set(&pace, SLOW));
	assert_false(is_rung(&pace));
	/* One wake-up suffices, however often the pace changes. */
	assert_true(pace_set(&pace, FAST));
	assert_true(is_rung(&pace));
	for (int i = 0; i < 1000; i++) {
		assert_false(pace_set(&pace, IDLE));
		assert_false(pace_set(&pace, FAST));
	}
	pace_deinit(&pace);
	assert_int_equal(pace.fd, -1);
}

struct sleeper {
	struct pace pace;
	uint32_t seen;
};

static void *sleep_until_busy(void *data)
{
	struct sleeper *sleeper = data;

	while ((sleeper->seen = pace_get(&sleeper->pace)) != FAST)
		pace_sleep(&sleeper->pace, sleeper->seen, 1000 * second_ns);
	return NULL;
}

/*
 * The thread wakes whenever the pace rises: before it sleeps, while it falls asleep, or afterwards.
 */
TEST(test_sleep__never_overslept)
{
	struct sleeper sleeper;
	pthread_t thread;

	for (int i = 0; i < 300; i++) {
		assert_int_equal(pace_init(&sleeper.pace, FAST), 0);
		assert_int_equal(pthread_create(&thread, NULL, sleep_until_busy, &sleeper), 0);
		for (int j = 0; j < i % 7; j++)
			sched_yield();
		pace_set(&sleeper.pace, SLOW);
		for (int j = 0; j < i % 5; j++)
			sched_yield();
		pace_set(&sleeper.pace, FAST);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(sleeper.seen, FAST);
		pace_deinit(&sleeper.pace);
	}
}

TEST(test_sleep__until_time_or_interrupt)
{
	uint64_t start_ns = clock_now_ns();
	struct pace pace;

	assert_int_equal(pace_init(&pace, FAST), 0);
	pace_sleep(&pace, IDLE, 2000000);
	assert_true(clock_now_ns() - start_ns >= 2000000);
	/* An interruption before the sleep ends it at once. */
	pace_interrupt(&pace);
	pace_sleep(&pace, IDLE, 1000 * second_ns);
	assert_false(is_rung(&pace));
	pace_deinit(&pace);
}

TEST(test_suspend__found_by_clocks)
{
	struct suspend suspend = {.has_looked = false};

	/* The clocks differ by 500, read 10 to 1,000,000 apart. */
	assert_false(suspend_step(&suspend, 1000, 1505, 1010));
	assert_false(suspend_step(&suspend, 2000, 2505, 1002000));
	assert_false(suspend_step(&suspend, 2000, 1002495, 1002000));
	assert_false(suspend_step(&suspend, 3000, 3505, 3010));
	/* The machine was suspended for 100. */
	assert_true(suspend_step(&suspend, 4000, 4605, 4010));
	assert_false(suspend_step(&suspend, 5000, 5605, 5010));
	assert_false(suspend_step(&suspend, 6000, 6601, 6002));
	/*
	 * If the reading was interrupted just then, the next step detects the suspend at the
	 * latest.
	 */
	assert_false(suspend_step(&suspend, 7000, 7605, 100000));
	assert_true(suspend_step(&suspend, 200000, 205000, 200010));
}

TEST(test_suspend__this_machine)
{
	struct suspend suspend = {.has_looked = false};

	for (int i = 0; i < 100000; i++)
		assert_false(suspend_look(&suspend));
}
