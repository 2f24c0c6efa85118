/* SPDX-License-Identifier: MIT */
/* Percentiles of the last ten seconds, compared with those of sorted delays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contention/delay-window.h"
#include "support/test.h"

static const uint64_t second_ns = 1000000000u;

static void count(struct delay_counts *counts, uint64_t ns)
{
	counts->buckets[run_queue_bucket(ns)]++;
	if (ns > counts->max_ns)
		counts->max_ns = ns;
}

static uint64_t random_ns(unsigned int *seed, unsigned int kind)
{
	double share = (double)rand_r(seed) / RAND_MAX;

	switch (kind) {
	case 0:
		return 300 + (uint64_t)(share * 5000);
	case 1:
		return (uint64_t)exp(6 + share * 14);
	default:
		/* Two kinds of waits: short ones, and whole time slices. */
		return share < 0.9 ? 2000 + (uint64_t)(share * 3000)
				   : 4000000 + (uint64_t)(share * 100000);
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void assert_near(uint64_t found, uint64_t exact)
{
	double error = fabs((double)found - (double)exact);

	if (exact >= 256)
		assert_true(error <= (double)exact / 16 + 1);
	else
		assert_true(found < 256);
}

TEST(test_percentiles)
{
	enum { MOST = 5000 };
	static const unsigned int sizes[] = {1, 2, 3, 10, 99, 100, 101, MOST};
	static const double shares[] = {0.01, 0.5, 0.9, 0.99, 1};
	static struct delay_window window;
	static struct delay_counts counts;
	static uint64_t delays[MOST];
	unsigned int seed = 7;

	for (unsigned int kind = 0; kind < 3; kind++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct delay_sum sum = {.n = 0};

			delay_window_init(&window, second_ns, &counts);
			counts.max_ns = 0;
			window.copies[0].max_ns = 0;
			for (unsigned int j = 0; j < sizes[i]; j++) {
				delays[j] = random_ns(&seed, kind);
				count(&counts, delays[j]);
			}
			qsort(delays, sizes[i], sizeof(delays[0]), compare);
			delay_window_add(&window, 2 * second_ns, &counts, &sum);
			assert_int_equal(sum.n, sizes[i]);
			assert_int_equal(sum.max_ns, delays[sizes[i] - 1]);
			for (size_t j = 0; j < sizeof(shares) / sizeof(shares[0]); j++) {
				unsigned int rank = (unsigned int)ceil(sizes[i] * shares[j]);

				assert_near(delay_percentile_ns(&sum, shares[j]),
					    delays[rank > 0 ? rank - 1 : 0]);
			}
		}
}

TEST(test_percentiles__none)
{
	struct delay_sum sum = {.n = 0};

	assert_int_equal(delay_percentile_ns(&sum, 0.5), 0);
	assert_int_equal(sum.max_ns, 0);
}

/* Delays at the edges of all buckets, and beyond the last. */
TEST(test_buckets)
{
	static struct delay_window window;
	static struct delay_counts counts, none;
	struct delay_sum sum = {.n = 0};

	for (unsigned int i = 1; i + 1 < RUN_QUEUE_BUCKETS; i++) {
		assert_int_equal(run_queue_bucket(run_queue_bucket_ns(i)), i);
		assert_int_equal(run_queue_bucket(run_queue_bucket_ns(i + 1) - 1), i);
	}
	count(&counts, UINT64_MAX);
	delay_window_init(&window, second_ns, &none);
	delay_window_add(&window, second_ns, &counts, &sum);
	assert_int_equal(sum.max_ns, UINT64_MAX);
	assert_true(delay_percentile_ns(&sum, 0.5) >= run_queue_bucket_ns(RUN_QUEUE_BUCKETS - 1));
}

/* Delays older than ten seconds are left out, also of the maximum. */
TEST(test_window)
{
	static struct delay_window window;
	static struct delay_counts counts;
	uint64_t now_ns = 5 * second_ns;

	count(&counts, 7000000);
	delay_window_init(&window, now_ns, &counts);
	for (unsigned int i = 0; i < 100; i++) {
		struct delay_sum sum = {.n = 0};

		/* Two readings per second, slightly late. */
		now_ns += second_ns / 2 + 1000;
		count(&counts, i == 3 ? 9000000 : 5000);
		delay_window_push(&window, now_ns, &counts);
		delay_window_add(&window, now_ns, &counts, &sum);
		assert_true(sum.n <= i + 1 && sum.n <= 21);
		assert_true(i < 20 || sum.n >= 19);
		if (i >= 3 && i < 20)
			assert_int_equal(sum.max_ns, 9000000);
		else if (i >= 25 || i < 3)
			assert_near(sum.max_ns, 5000);
	}
}

/* After an hour without readings, the delays of that hour are left out, and later ones count. */
TEST(test_window__after_a_pause)
{
	static struct delay_window window;
	static struct delay_counts counts;
	struct delay_sum sum = {.n = 0};
	uint64_t now_ns = 5 * second_ns;

	delay_window_init(&window, now_ns, &counts);
	for (unsigned int i = 0; i < 15; i++) {
		now_ns += second_ns;
		delay_window_push(&window, now_ns, &counts);
	}
	now_ns += 3600 * second_ns;
	count(&counts, 5000);
	delay_window_push(&window, now_ns, &counts);
	count(&counts, 6000);
	delay_window_add(&window, now_ns + 1, &counts, &sum);
	assert_int_equal(sum.n, 1);
}

/* Counts of 32 bits wrap around. */
TEST(test_window__wrap)
{
	static struct delay_window window;
	static struct delay_counts counts;
	struct delay_sum sum = {.n = 0};

	counts.buckets[5] = UINT32_MAX - 1;
	delay_window_init(&window, second_ns, &counts);
	counts.buckets[5] += 10;
	delay_window_add(&window, second_ns, &counts, &sum);
	assert_int_equal(sum.n, 10);
}

/* The sum over several threads. */
TEST(test_add__several)
{
	static struct delay_window windows[2];
	static struct delay_counts counts[2];
	struct delay_sum sum = {.n = 0};

	for (unsigned int i = 0; i < 2; i++)
		delay_window_init(&windows[i], second_ns, &counts[i]);
	for (unsigned int i = 0; i < 100; i++)
		count(&counts[i >= 60], i >= 60 ? 1000000 : 1000);
	for (unsigned int i = 0; i < 2; i++)
		delay_window_add(&windows[i], second_ns, &counts[i], &sum);
	assert_int_equal(sum.n, 100);
	assert_near(delay_percentile_ns(&sum, 0.5), 1000);
	assert_near(delay_percentile_ns(&sum, 0.61), 1000000);
	assert_int_equal(sum.max_ns, 1000000);
}
