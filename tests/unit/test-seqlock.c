/* SPDX-License-Identifier: MIT */
/* Published data is read whole while the next data is being written */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "support/test.h"
#include "util/seqlock.h"

enum { N_READERS = 3, N_READS = 2000, N_DIFFERENT = 30, N_WORDS = 120 };

struct data {
	uint64_t words[N_WORDS];
};

struct published {
	_Atomic uint32_t sequence;
	_Atomic uint64_t words[2][N_WORDS];
};

struct race {
	struct published published;
	_Atomic uint32_t n_reading; /* readers not done yet */
	_Atomic uint32_t n_torn;
};

/* Write @n to all parts of @data. */
static void fill(struct data *data, uint32_t n)
{
	for (unsigned int i = 0; i < N_WORDS; i++)
		data->words[i] = n;
}

static bool is_whole(const struct data *data)
{
	for (unsigned int i = 1; i < N_WORDS; i++)
		if (data->words[i] != data->words[0])
			return false;
	return true;
}

static void put(struct published *published, const struct data *data)
{
	seqlock_write(&published->sequence, published->words[0], N_WORDS, data);
}

static bool get(const struct published *published, struct data *ret)
{
	return seqlock_read(&published->sequence, published->words[0], N_WORDS, ret);
}

TEST(test_read__before_first_write)
{
	static struct published published;
	struct data data = {{5}};

	assert_false(get(&published, &data));
	assert_int_equal(data.words[0], 5);
}

TEST(test_read__latest_write)
{
	static struct published published;
	struct data data, seen;

	for (uint32_t n = 1; n <= 5; n++) {
		fill(&data, n);
		put(&published, &data);
		assert_int_equal(atomic_load(&published.sequence), n);
		assert_true(get(&published, &seen));
		assert_memory_equal(&seen, &data, sizeof(seen));
	}
}

static void *reader(void *context)
{
	struct race *race = context;
	struct data data;
	uint64_t last = 0;
	uint32_t n_different = 0;

	/* Read on until other data has been seen, too. */
	for (uint32_t i = 0; i < N_READS || n_different < N_DIFFERENT;) {
		if (!get(&race->published, &data)) {
			sched_yield();
			continue;
		}
		i++;
		if (!is_whole(&data) || data.words[0] < last)
			atomic_fetch_add(&race->n_torn, 1);
		n_different += data.words[0] != last;
		last = data.words[0];
	}
	atomic_fetch_sub(&race->n_reading, 1);
	return NULL;
}

TEST(test_read__while_it_is_written)
{
	static struct race race;
	static struct data data, seen;
	pthread_t threads[N_READERS];
	uint32_t n = 0;

	atomic_store(&race.n_reading, N_READERS);
	for (unsigned int i = 0; i < N_READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reader, &race), 0);
	while (atomic_load(&race.n_reading) > 0) {
		fill(&data, ++n);
		put(&race.published, &data);
		/* Pause between writes, or a reader might never succeed. */
		for (int i = 0; i < 4; i++)
			assert_true(get(&race.published, &seen) && is_whole(&seen));
	}
	for (unsigned int i = 0; i < N_READERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&race.n_torn), 0);
	assert_int_equal(atomic_load(&race.published.sequence), n);
}
