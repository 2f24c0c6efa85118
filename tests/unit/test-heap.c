/* SPDX-License-Identifier: MIT */
/* Leftist heaps compared with a plain reference, and the worst-case cost of their operations. */
#include <stdlib.h>

#include "support/test.h"
#include "util/checked.h"
#include "util/heap.h"

enum { N = 4096 };

struct item {
	struct heap_node node;
	uint32_t key;
	bool is_in;
};

static struct item items[N];
static uint64_t n_compared;

static struct item *item_of(const struct heap_node *node)
{
	return container_of(node, struct item, node);
}

static bool item_before(const struct heap_node *a, const struct heap_node *b)
{
	n_compared++;
	return item_of(a)->key < item_of(b)->key;
}

/*
 * Check order, ranks and parents of a whole heap.
 * Return: the number of nodes.
 */
static uint32_t check(const struct heap_node *node, const struct heap_node *parent)
{
	uint32_t n;

	if (!node)
		return 0;
	assert_ptr_equal(node->parent, parent);
	if (parent)
		assert_true(item_of(parent)->key <= item_of(node)->key);
	assert_true(heap_rank_(node->left) >= heap_rank_(node->right));
	assert_int_equal(node->rank, heap_rank_(node->right) + 1);
	n = check(node->left, node) + check(node->right, node) + 1;
	assert_true((1u << node->rank) - 1 <= n);
	return n;
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Compared with a search for the least element. */
TEST(test_heap__against_reference)
{
	struct heap_node *heap = NULL;
	uint32_t random = 1, n = 0;

	for (uint32_t round = 0; round < 20000; round++) {
		struct item *item = &items[next_random(&random) % 200];
		uint32_t least = UINT32_MAX, what = next_random(&random) % 8;

		if (!item->is_in) {
			item->key = next_random(&random) % 100;
			heap_insert(&heap, &item->node, item_before);
			n++;
		} else if (what < 2) {
			item->key = next_random(&random) % 100;
			heap_update(&heap, &item->node, item_before);
		} else {
			if (what == 7)
				item = item_of(heap);
			heap_remove(&heap, &item->node, item_before);
			n--;
		}
		if (!(item->is_in && what < 2))
			item->is_in = !item->is_in;
		for (uint32_t i = 0; i < 200; i++)
			if (items[i].is_in && items[i].key < least)
				least = items[i].key;
		if (heap)
			assert_int_equal(item_of(heap)->key, least);
		else
			assert_int_equal(n, 0);
		if (round % 16 == 0)
			assert_int_equal(check(heap, NULL), n);
	}
	for (uint32_t i = 0; i < 200; i++)
		items[i].is_in = false;
}

/* In any order of operations, no single one compares more than two spines' nodes. */
TEST(test_heap__adversarial_orders)
{
	for (int order = 0; order < 5; order++) {
		struct heap_node *heap = NULL;
		uint32_t random = 7, previous = 0;
		uint64_t most = 0;

		for (uint32_t i = 0; i < N; i++) {
			static const uint32_t saw[] = {0, N, 1, N - 1};
			const uint32_t keys[] = {i, N - i, next_random(&random), 5,
						 saw[i % 4] + i / 4};

			items[i].key = keys[order];
			n_compared = 0;
			heap_insert(&heap, &items[i].node, item_before);
			most = n_compared > most ? n_compared : most;
		}
		assert_int_equal(check(heap, NULL), N);
		/* Remove from the middle, the end and the beginning in turn, then in order. */
		for (uint32_t i = 0; i < N / 4; i++) {
			struct item *item = &items[(i * 1021) % N];

			if (!item->node.rank)
				continue;
			n_compared = 0;
			heap_remove(&heap, &item->node, item_before);
			item->node.rank = 0;
			most = n_compared > most ? n_compared : most;
		}
		check(heap, NULL);
		while (heap) {
			struct item *item = item_of(heap);

			assert_true(item->key >= previous);
			previous = item->key;
			n_compared = 0;
			heap_remove(&heap, &item->node, item_before);
			most = n_compared > most ? n_compared : most;
		}
		assert_in_range(most, 1, 2 * 13);
	}
}
