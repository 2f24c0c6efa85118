#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * An index of what clients name, by hash
 *
 * Clients choose names, and may choose them so that lookups take as long as they can. So no bound
 * here rests on what they do not know or cannot measure: a tree is a digital search tree (Coffman,
 * Eve, CACM 1970; Knuth, TAOCP 3, 6.3), in which a node on level i has its descendants parted by
 * bit i of their hash. Two different hashes of 64 bits differ in one of them, and no path has more
 * than INDEX_MAX_STEPS nodes, whatever is put in and taken out in whichever order. Names of 64 bits
 * have index_hash(), a bijection: different names have different hashes.
 *
 * Entries of the same hash are a circle, oldest first; the oldest is the tree's node. Taking one
 * out costs the same wherever it is. One thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

enum { INDEX_MAX_STEPS = 65 };

struct index_node {
	struct index_node *child[2]; /* a node of the tree: by the next bit, from the first on */
	struct list_node same;       /* the others of the same hash, younger ones first after it */
	uint64_t hash;
	bool is_in;   /* the index */
	bool is_node; /* of the tree: the oldest of its hash */
};

/* A bijection: different values of @user_data have different hashes. */
static inline uint64_t index_hash(uint64_t user_data, uint64_t seed)
{
	uint64_t hash = (user_data ^ seed) * 0xff51afd7ed558ccdull;

	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
	return hash ^ hash >> 33;
}

/*
 * Where the node of @hash is linked, or would be. *ret_n_steps, unless NULL, counts the nodes that
 * were looked at.
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

/* The oldest of @hash in the tree of @root; NULL: there is none. */
static inline struct index_node *index_find(struct index_node **root, uint64_t hash)
{
	return *index_locate(root, hash, NULL);
}

/* The one after @node of the same hash; NULL: @node is the youngest. */
static inline struct index_node *index_next(struct index_node *node)
{
	struct index_node *next = container_of(node->same.next, struct index_node, same);

	return next->is_node ? NULL : next;
}

/* @node becomes the youngest of @hash. */
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

/* Any descendant may be in its ancestors' places: takes out a leaf below *@at. */
static inline struct index_node *index_take_leaf(struct index_node **at)
{
	struct index_node *leaf;

	while ((*at)->child[0] || (*at)->child[1])
		at = &(*at)->child[(*at)->child[0] == NULL];
	leaf = *at;
	*at = NULL;
	return leaf;
}

/* One that is not in the index stays as it is. */
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
