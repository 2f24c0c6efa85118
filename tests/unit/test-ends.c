/* SPDX-License-Identifier: MIT */
/* Rows that are taken from both ends: every element once, by one of two threads. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "util/ends.h"

TEST(test_take__until_ends_meet)
{
	for (size_t n = 0; n <= 9; n++) {
		for (unsigned int order = 0; order < 1u << n; order++) {
			struct ends ends;
			size_t front = 0, back = n, taken;

			ends_reset(&ends, 0, 0);
			for (size_t i = 0; i < n; i++) {
				const bool from_back = order >> i & 1;
				const enum ends_take take = ends_take(&ends, n, from_back, &taken);

				assert_int_equal(take, i + 1 == n ? ENDS_LAST : ENDS_ONE);
				assert_int_equal(taken, from_back ? --back : front++);
			}
			assert_int_equal(front, back);
			for (unsigned int i = 0; i < 4; i++)
				assert_int_equal(ends_take(&ends, n, i & 1, &taken), ENDS_NONE);
		}
	}
}

enum { THREADS = 3, ROW = 5000, ROUNDS = 40 };

struct taker {
	struct ends *ends;
	pthread_barrier_t *start;
	bool from_back;
	uint8_t n_times[ROW];
	unsigned int n_last;
};

static void *take_all(void *data)
{
	struct taker *taker = data;
	size_t previous = taker->from_back ? ROW : 0, taken;
	enum ends_take take;
	bool is_first = true;

	pthread_barrier_wait(taker->start);
	while ((take = ends_take(taker->ends, ROW, taker->from_back, &taken))) {
		taker->n_times[taken]++;
		taker->n_last += take == ENDS_LAST;
		/* Each taker moves away from its end. */
		if (!is_first && (taker->from_back ? taken >= previous : taken <= previous))
			taker->n_times[taken] = 100;
		is_first = false;
		previous = taken;
	}
	return NULL;
}

TEST(test_take__threads)
{
	struct taker *takers = calloc(THREADS, sizeof(*takers));

	assert_non_null(takers);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		struct ends ends;
		pthread_barrier_t start;
		pthread_t threads[THREADS];
		unsigned int n_last = 0;

		ends_reset(&ends, 0, 0);
		assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
		memset(takers, 0, THREADS * sizeof(*takers));
		for (unsigned int i = 0; i < THREADS; i++) {
			takers[i].ends = &ends;
			takers[i].start = &start;
			takers[i].from_back = i > 0;
			assert_int_equal(pthread_create(&threads[i], NULL, take_all, &takers[i]),
					 0);
		}
		for (unsigned int i = 0; i < THREADS; i++) {
			assert_int_equal(pthread_join(threads[i], NULL), 0);
			n_last += takers[i].n_last;
		}
		assert_int_equal(n_last, 1);
		for (size_t i = 0; i < ROW; i++)
			assert_int_equal(takers[0].n_times[i] + takers[1].n_times[i] +
						 takers[2].n_times[i],
					 1);
		pthread_barrier_destroy(&start);
	}
	free(takers);
}

/* A row of which a part was taken, and the rest is taken later. */
TEST(test_left__row_taken_in_parts)
{
	struct ends ends;
	uint32_t front = 7, back = 7;
	size_t taken;

	ends_reset(&ends, 2, 3);
	assert_int_equal(ends_take(&ends, 8, false, &taken), ENDS_ONE);
	assert_int_equal(taken, 2);
	assert_int_equal(ends_take(&ends, 8, true, &taken), ENDS_ONE);
	assert_int_equal(taken, 4);
	assert_true(ends_left(&ends, 8, &front, &back));
	assert_int_equal(front, 3);
	assert_int_equal(back, 4);
	ends_reset(&ends, front, back);
	assert_int_equal(ends_take(&ends, 8, true, &taken), ENDS_LAST);
	assert_int_equal(taken, 3);
	for (unsigned int i = 0; i < 2; i++) {
		assert_false(ends_left(&ends, 8, &front, &back));
		assert_int_equal(ends_take(&ends, 8, i, &taken), ENDS_NONE);
	}
	assert_int_equal(front, 3);
	assert_int_equal(back, 4);
}
