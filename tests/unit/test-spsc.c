/* SPDX-License-Identifier: MIT */
/* Queues of pointers: order, full, empty, 32-bit indices that wrap around, two threads */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "fail-alloc.h"
#include "support/test.h"
#include "util/spsc.h"

/* Act as if @start items had passed already. */
static void spsc_start_at(struct spsc *queue, uint32_t start)
{
	queue->tail_private = queue->head_seen = start;
	queue->head_private = queue->tail_seen = start;
	atomic_store(&queue->tail, start);
	atomic_store(&queue->head, start);
}

static void *number(uintptr_t value)
{
	return (void *)value;
}

TEST(test_queue__full_and_empty)
{
	for (uint32_t n_slots = 1; n_slots <= 64; n_slots *= 2) {
		struct spsc queue;

		assert_true(spsc_init(&queue, n_slots));
		assert_null(spsc_pop(&queue));
		for (int round = 0; round < 3; round++) {
			for (uintptr_t i = 1; i <= n_slots; i++)
				assert_true(spsc_push(&queue, number(i)));
			assert_false(spsc_push(&queue, number(99)));
			assert_false(spsc_push(&queue, number(99)));
			for (uintptr_t i = 1; i <= n_slots; i++) {
				assert_ptr_equal(spsc_pop(&queue), number(i));
				/* There is room for one item as soon as one is popped. */
				assert_true(spsc_push(&queue, number(100 + i)));
				assert_false(spsc_push(&queue, number(99)));
			}
			for (uintptr_t i = 1; i <= n_slots; i++)
				assert_ptr_equal(spsc_pop(&queue), number(100 + i));
			assert_null(spsc_pop(&queue));
		}
		spsc_deinit(&queue);
		spsc_deinit(&queue);
	}
}

TEST(test_queue__index_wraps)
{
	struct spsc queue;
	uintptr_t pushed = 0, popped = 0;
	unsigned int seed = 3;

	assert_true(spsc_init(&queue, 16));
	spsc_start_at(&queue, UINT32_MAX - 500);
	for (int i = 0; i < 4000; i++) {
		for (int n = rand_r(&seed) % 20; n > 0; n--) {
			bool pushes = spsc_push(&queue, number(pushed + 1));

			assert_int_equal(pushes, pushed - popped < 16);
			pushed += pushes;
		}
		for (int n = rand_r(&seed) % 20; n > 0; n--) {
			void *item = spsc_pop(&queue);

			assert_ptr_equal(item, popped < pushed ? number(popped + 1) : NULL);
			popped += item != NULL;
		}
	}
	assert_true(pushed > 5000);
	spsc_deinit(&queue);
}

TEST(test_init__allocation)
{
	struct spsc queue;

	fail_alloc_at(1);
	assert_false(spsc_init(&queue, 16));
	assert_true(fail_alloc_stop());
	spsc_deinit(&queue);
}

enum { N_ITEMS = 300000 };

struct item {
	uint64_t value, check;
};

struct pair {
	struct spsc there, back;
	struct item *items;
};

static void *consume(void *data)
{
	struct pair *pair = data;
	struct item *item;

	for (uint64_t i = 0; i < N_ITEMS; i++) {
		while (!(item = spsc_pop(&pair->there)))
			sched_yield();
		/* Data written before the push is visible after the pop. */
		assert_fields(*item, (value, i), (check, ~i));
		item->check = i;
		while (!spsc_push(&pair->back, item))
			sched_yield();
	}
	return NULL;
}

TEST(test_queue__two_threads)
{
	struct pair pair;
	struct item *item;
	uint64_t sent = 0, received = 0, n_full = 0, n_empty = 0;
	pthread_t thread;

	assert_true(spsc_init(&pair.there, 64));
	assert_true(spsc_init(&pair.back, 128));
	spsc_start_at(&pair.there, UINT32_MAX - 1000);
	pair.items = calloc(N_ITEMS, sizeof(*pair.items));
	assert_non_null(pair.items);
	assert_int_equal(pthread_create(&thread, NULL, consume, &pair), 0);
	while (received < N_ITEMS) {
		if (sent < N_ITEMS) {
			item = &pair.items[sent];
			*item = (struct item){.value = sent, .check = ~sent};
			if (spsc_push(&pair.there, item))
				sent++;
			else
				n_full++;
		}
		item = spsc_pop(&pair.back);
		if (item) {
			assert_fields(*item, (value, received), (check, received));
			received++;
		} else {
			n_empty++;
			sched_yield();
		}
	}
	pthread_join(thread, NULL);
	/* Both outcomes occurred, or nothing raced. */
	assert_true(n_full > 0);
	assert_true(n_empty > 0);
	assert_null(spsc_pop(&pair.there));
	assert_null(spsc_pop(&pair.back));
	free(pair.items);
	spsc_deinit(&pair.there);
	spsc_deinit(&pair.back);
}
