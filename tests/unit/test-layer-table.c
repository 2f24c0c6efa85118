/* SPDX-License-Identifier: MIT */
/* The layer's table of allocations: add, find, remove; failing allocations; threads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail-alloc.h"
#include "libclient/layer/dispatch.h"
#include "support/test.h"

enum { MANY = 20000, THREADS = 8 };

static void nothing_left(const void *record, void *context)
{
	fail();
}

static void count_one(const void *record, void *context)
{
	const struct allocation *allocation = record;

	*(uint64_t *)context += allocation->bytes;
}

static int add(struct table *table, uint64_t handle)
{
	struct allocation allocation = {.handle = handle, .bytes = handle * 3, .gpus = 1};

	return table_add(table, &allocation);
}

/* Return handles of all kinds: addresses at equal distances, small numbers, large numbers. */
static uint64_t handle_of(unsigned int i, unsigned int kind)
{
	switch (kind) {
	case 0:
		return 0x7f0012340000 + (uint64_t)i * 64;
	case 1:
		return i + 1;
	default:
		return (uint64_t)(i + 1) << 40;
	}
}

TEST(test_table__many)
{
	for (unsigned int kind = 0; kind < 3; kind++) {
		struct allocation found;
		struct table table;

		table_init(&table, sizeof(struct allocation));
		assert_false(table_remove(&table, 1, &found));
		for (unsigned int i = 0; i < MANY; i++)
			assert_int_equal(add(&table, handle_of(i, kind)), 0);
		for (unsigned int i = 0; i < MANY; i += 2) {
			assert_true(table_remove(&table, handle_of(i, kind), &found));
			assert_int_equal(found.handle, handle_of(i, kind));
			assert_int_equal(found.bytes, handle_of(i, kind) * 3);
			assert_false(table_remove(&table, handle_of(i, kind), &found));
		}
		for (unsigned int i = 0; i < MANY; i++)
			assert_int_equal(table_find(&table, handle_of(i, kind), &found), i % 2);
		for (unsigned int i = 1; i < MANY; i += 2)
			assert_true(table_remove(&table, handle_of(i, kind), &found));
		table_deinit(&table, nothing_left, NULL);
	}
}

TEST(test_table__replace)
{
	struct object *object = (struct object *)&(int){0};
	struct allocation allocation = {.handle = 7, .object = object}, found;
	struct table table;

	table_init(&table, sizeof(struct allocation));
	assert_false(table_replace(&table, &allocation));
	assert_int_equal(add(&table, 7), 0);
	assert_true(table_replace(&table, &allocation));
	assert_true(table_remove(&table, 7, &found));
	assert_ptr_equal(found.object, object);
	assert_int_equal(found.bytes, 0);
	table_deinit(&table, nothing_left, NULL);
}

TEST(test_table__deinit_visits_remaining)
{
	uint64_t bytes = 0;
	struct table table;

	table_init(&table, sizeof(struct allocation));
	assert_int_equal(add(&table, 5), 0);
	assert_int_equal(add(&table, 6), 0);
	table_deinit(&table, count_one, &bytes);
	assert_int_equal(bytes, 33);
}

TEST(test_table__no_memory)
{
	struct allocation found;
	struct table table;

	table_init(&table, sizeof(struct allocation));
	for (unsigned int i = 0; i < 1000; i++) {
		fail_alloc_at(1);
		if (!add(&table, i + 1)) {
			fail_alloc_stop();
			continue;
		}
		fail_alloc_stop();
		/* The table is unchanged, and adding works a moment later. */
		assert_false(table_find(&table, i + 1, &found));
		assert_int_equal(add(&table, i + 1), 0);
	}
	for (unsigned int i = 0; i < 1000; i++)
		assert_true(table_remove(&table, i + 1, &found));
	table_deinit(&table, nothing_left, NULL);
}

static struct table shared;

static void *churn(void *argument)
{
	uint64_t base = (uint64_t)(uintptr_t)argument << 32;
	struct allocation found;

	for (unsigned int round = 0; round < 20; round++) {
		for (uint64_t i = 1; i < 500; i++)
			assert_int_equal(add(&shared, base + i * 16), 0);
		for (uint64_t i = 1; i < 500; i++) {
			assert_true(table_remove(&shared, base + i * 16, &found));
			assert_int_equal(found.bytes, (base + i * 16) * 3);
		}
	}
	return NULL;
}

TEST(test_table__threads)
{
	pthread_t threads[THREADS];

	table_init(&shared, sizeof(struct allocation));
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	table_deinit(&shared, nothing_left, NULL);
}
