#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * An index of names that clients choose, by hash
 *
 * Clients may choose names so that lookups take as long as possible. So no bound here relies on
 * secrets or on what clients cannot measure. The tree is a digital search tree (Coffman, Eve, CACM
 * 1970; Knuth, TAOCP 3, 6.3): bit i of the hash separates the descendants of a node on level i. Two
 * different hashes of 64 bits differ in some bit, so no path has more than INDEX_MAX_STEPS nodes,
 * whatever the order of insertions and removals. For names of 64 bits index_hash() is a bijection:
 * different names have different hashes.
 *
 * Entries of the same hash form a circular list, oldest first; the oldest is the tree's node.
 * Removing any of them costs the same. One thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

enum { INDEX_MAX_STEPS = 65 };

struct index_node {
	/* child nodes in the tree, by the next bit, from the first on */
	struct index_node *child[2];
	struct list_node same; /* other nodes of the same hash, from the second oldest on */
	uint64_t hash;
	bool is_in;   /* true while in the index */
	bool is_node; /* true for a node of the tree: the oldest of its hash */
};

/* Hash @user_data; a bijection: different values have different hashes. */
static inline uint64_t index_hash(uint64_t user_data, uint64_t seed)
{
	uint64_t hash = (user_data ^ seed) * 0xff51afd7ed558ccdull;

	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
	return hash ^ hash >> 33;
}

/*
 * Return the place where the node of @hash is linked, or would be. *ret_n_steps, unless NULL, gets
 * the number of visited nodes.
 */
static inline struct index_node **index_locate(struct index_node **root, uint64_t hash,
					       unsigned int *ret_n_steps)
{
	struct index_node **at = root;
	unsigned int n = 0;

	for (uint64_t bits = hash; *at && (*at)->hash != hash; bits >>= 1, n++)
		at = &(*at)->child[bits & 1];
	if (ret_n_steps)
		*ret_n_steps = n + (*at != NULL);
	return at;
}

/* Return the oldest node of @hash in the tree of @root; NULL: there is none. */
static inline struct index_node *index_find(struct index_node **root, uint64_t hash)
{
	return *index_locate(root, hash, NULL);
}

/* Return the node after @node of the same hash; NULL: @node is the youngest. */
static inline struct index_node *index_next(struct index_node *node)
{
	struct index_node *next = container_of(node->same.next, struct index_node, same);

	return next->is_node ? NULL : next;
}

/* Insert @node as the youngest of @hash. */
static inline void index_insert(struct index_node **root, struct index_node *node, uint64_t hash)
{
	struct index_node **at = root;

	node->hash = hash;
	node->is_in = true;
	node->is_node = true;
	list_init(&node->same);
	if (__builtin_expect(*at != NULL, 0)) {
		at = index_locate(root, hash, NULL);
		if (*at) {
			node->is_node = false;
			list_append(&(*at)->same, &node->same);
			return;
		}
	}
	node->child[0] = node->child[1] = NULL;
	*at = node;
}

/* Remove a leaf below *@at. Any descendant may take an ancestor's place. */
static inline struct index_node *index_take_leaf(struct index_node **at)
{
	struct index_node *leaf;

	while ((*at)->child[0] || (*at)->child[1])
		at = &(*at)->child[(*at)->child[0] == NULL];
	leaf = *at;
	*at = NULL;
	return leaf;
}

/* Remove @node; a node that is not in the index stays unchanged. */
static inline void index_remove(struct index_node **root, struct index_node *node)
{
	struct index_node *heir, **at;

	if (!node->is_in)
		return;
	node->is_in = false;
	if (!node->is_node) {
		list_remove(&node->same);
		return;
	}
	at = *root == node ? root : index_locate(root, node->hash, NULL);
	heir = index_next(node);
	list_remove(&node->same);
	if (heir) {
		heir->is_node = true;
	} else if (!node->child[0] && !node->child[1]) {
		*at = NULL;
		return;
	} else {
		heir = index_take_leaf(at);
	}
	heir->child[0] = node->child[0];
	heir->child[1] = node->child[1];
	*at = heir;
}
