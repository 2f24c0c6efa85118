/* SPDX-License-Identifier: MIT */
/* Ticks compared with CLOCK_MONOTONIC, and conversions that must not overflow. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"
#include "util/clock.h"

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

TEST(test_ticks__agree_with_monotonic)
{
	uint64_t ns_0, ns_1, ticks_0, ticks_1, elapsed_ns, error_ns = UINT64_MAX;

	/* An interruption between two readings spoils one round, not all. */
	for (int round = 0; round < 40 && error_ns > 200000; round++) {
		ns_0 = clock_now_ns();
		ticks_0 = clock_ticks();
		usleep(50000);
		ns_1 = clock_now_ns();
		ticks_1 = clock_ticks();
		elapsed_ns = clock_elapsed_ns(ticks_0, ticks_1);
		error_ns = distance(elapsed_ns, ns_1 - ns_0);
	}
	/* 0.4% of 50 ms. */
	assert_true(error_ns <= 200000);
}

TEST(test_ticks__never_run_backwards)
{
	uint64_t last = clock_ticks(), now;

	for (int i = 0; i < 1000000; i++) {
		now = clock_ticks();
		assert_true(now >= last);
		last = now;
	}
}

TEST(test_conversion__round_trip)
{
	static const uint64_t year_ns = 365ull * 86400 * 1000000000;

	for (uint64_t ns = 1; ns < year_ns; ns = ns * 3 + 1) {
		uint64_t back = clock_ticks_to_ns(clock_ns_to_ticks(ns));

		/* Both factors are exact to 2^-32 of their product with the rate. */
		assert_true(distance(back, ns) <= 2 + (ns >> 28));
	}
	assert_int_equal(clock_ticks_to_ns(0), 0);
	assert_int_equal(clock_ns_to_ticks(0), 0);
}

TEST(test_elapsed__other_processor_behind)
{
	assert_int_equal(clock_elapsed_ns(1000, 999), 0);
	assert_int_equal(clock_elapsed_ns(1000, 1000), 0);
	assert_true(clock_elapsed_ns(0, clock_ns_to_ticks(1000000)) > 990000);
}

static _Atomic uint64_t mailbox;
static uint64_t furthest_ahead; /* read after the thread has ended */

static void *answer(void *data)
{
	uint64_t seen = 0, now;

	for (int i = 0; i < 1000; i++) {
		while ((seen = atomic_load(&mailbox)) == 0 || (seen & 1) == 0)
			sched_yield();
		now = clock_ticks();
		if (seen > now && seen - now > furthest_ahead)
			furthest_ahead = seen - now;
		atomic_store(&mailbox, 2);
	}
	return NULL;
}

/*
 * A tick count that one thread reads before it sends is hardly ever in the future of the receiver.
 * The counter is read out of order with the load of the message; clock_elapsed_ns() returns 0 then.
 */
TEST(test_ticks__compare_between_threads)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
	for (int i = 0; i < 1000; i++) {
		atomic_store(&mailbox, clock_ticks() | 1);
		while (atomic_load(&mailbox) != 2)
			sched_yield();
	}
	pthread_join(thread, NULL);
	assert_true(clock_ticks_to_ns(furthest_ahead) < 10000);
}

int main(void)
{
	/* Before clock_init() ticks are nanoseconds, and all tests must pass as well. */
	int n_failed = test_run(NULL, NULL);

	clock_init();
	return n_failed + test_run(NULL, NULL);
}
