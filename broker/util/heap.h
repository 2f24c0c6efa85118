#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Leftist heaps, with the links inside the objects
 *
 * A heap is a pointer to its least node, NULL if it is empty. The right spine of every subtree is
 * the shortest path to a missing child, so it has at most log2(n + 1) nodes, whatever the order of
 * insertions and removals. Merging walks only two right spines. So every operation is O(log n) in
 * the worst case, not only on average: clients cannot make it slower by what they queue. Source:
 * Crane, Linear Lists and Priority Queues as Balanced Binary Trees, 1972; Knuth, TAOCP 3, 5.2.3.
 *
 * @is_before is a strict order. The functions are inline so that @is_before is inlined, too.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
	struct heap_node *parent, *left, *right;
	uint32_t rank; /* nodes on the right spine from this node on */
};

/* Return true if @a comes before @b. */
typedef bool heap_order_fn(const struct heap_node *a, const struct heap_node *b);

static inline uint32_t heap_rank_(const struct heap_node *node)
{
	return node ? node->rank : 0;
}

/* Make the child with the shorter right spine the right child. */
static inline void heap_settle_(struct heap_node *node)
{
	if (heap_rank_(node->left) < heap_rank_(node->right)) {
		struct heap_node *left = node->left;

		node->left = node->right;
		node->right = left;
	}
	node->rank = heap_rank_(node->right) + 1;
}

/*
 * Merge two heaps, ignoring the parents of their roots.
 * Return: the root, without a parent.
 */
static inline __attribute__((__always_inline__)) struct heap_node *heap_merge_(
	struct heap_node *a, struct heap_node *b, heap_order_fn *is_before)
{
	struct heap_node *root = NULL, *parent = NULL, **at = &root;

	while (a && b) {
		if (is_before(b, a)) {
			struct heap_node *first = b;

			b = a;
			a = first;
		}
		*at = a;
		a->parent = parent;
		parent = a;
		at = &a->right;
		a = a->right;
	}
	*at = a ? a : b;
	if (*at)
		(*at)->parent = parent;
	for (; parent; parent = parent->parent)
		heap_settle_(parent);
	return root;
}

static inline __attribute__((__always_inline__)) void heap_insert(struct heap_node **heap,
								  struct heap_node *node,
								  heap_order_fn *is_before)
{
	node->parent = node->left = node->right = NULL;
	node->rank = 1;
	*heap = *heap ? heap_merge_(*heap, node, is_before) : node;
}

/* Remove any node, which must be in @heap. */
static inline __attribute__((__always_inline__)) void heap_remove(struct heap_node **heap,
								  struct heap_node *node,
								  heap_order_fn *is_before)
{
	struct heap_node *parent = node->parent;
	struct heap_node *child = heap_merge_(node->left, node->right, is_before);

	if (child)
		child->parent = parent;
	if (!parent) {
		*heap = child;
		return;
	}
	if (parent->left == node)
		parent->left = child;
	else
		parent->right = child;
	/*
	 * Each changed rank on the path exceeds the previous: the walk is no longer than a spine.
	 */
	for (; parent; parent = parent->parent) {
		uint32_t rank = parent->rank;

		heap_settle_(parent);
		if (parent->rank == rank)
			break;
	}
}

/* Move @node after its sort key has changed. */
static inline __attribute__((__always_inline__)) void heap_update(struct heap_node **heap,
								  struct heap_node *node,
								  heap_order_fn *is_before)
{
	if (*heap == node && !node->left)
		return;
	heap_remove(heap, node, is_before);
	heap_insert(heap, node, is_before);
}
