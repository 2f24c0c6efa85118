#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Packed constants. Private to broker/cpu; setup thread only.
 *
 * A packed copy is made once for all plans of one owner over the same bytes: identified by owner,
 * the arena's (dev, ino), range, and how it was packed. Constants are immutable, so a copy never
 * goes stale.
 *
 * A copy begins as addresses without memory, so that what a plan takes is known, and charged,
 * before anything is taken; cpu_pack_commit() comes before the copy is filled (compile-fill.c), a
 * part at a time, by whichever plan that has the copy gets there first.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/chunks.h"
#include "util/index.h"

struct cpu_pack_key {
	uint64_t owner, dev, ino, offset, bytes;
	uint64_t form[8]; /* what is packed, and the parameters of packing; unused ones 0 */
};

struct cpu_pack {
	struct cpu_pack_key key;
	struct index_node node; /* in the cache, unless the copy is freed from its end */
	uint32_t n_refs;
	bool is_committed; /* there is memory */
	bool is_filled;
	uint64_t n_filled; /* parts, unless is_filled */
	uint64_t user;     /* the last one, by number, of the compilations that hold it */
	float *data;       /* page-aligned */
	size_t map_bytes;
};

struct cpu_pack_cache {
	struct chunks *memory;
	struct index_node *root;
	uint64_t seed[2];         /* of the hash */
	uint64_t bytes;           /* of all that exist */
	uint64_t committed_bytes; /* of those that have memory */
};

/* Borrows @memory. */
void cpu_pack_cache_init(struct cpu_pack_cache *cache, struct chunks *memory);
/*
 * Finds the copy or makes one of @floats, without memory. Return: 0, with a reference in *ret;
 * -ENOMEM.
 */
int cpu_pack_get(struct cpu_pack_cache *cache, const struct cpu_pack_key *key, size_t floats,
		 struct cpu_pack **ret);
/* Gives it memory, zeroed, unless it has some. Return: 0; -ENOMEM. */
int cpu_pack_commit(struct cpu_pack_cache *cache, struct cpu_pack *pack);
/* Frees it with the last reference. Return: NULL. */
struct cpu_pack *cpu_pack_unref(struct cpu_pack_cache *cache, struct cpu_pack *pack);
/*
 * cpu_pack_unref() that frees @bytes of the copy, as chunks_unmap_some(), at most. cpu_pack_get()
 * does not find a copy any more once its last reference is gone. Return: @pack, which is to be
 * passed again; NULL: done.
 */
struct cpu_pack *cpu_pack_unref_some(struct cpu_pack_cache *cache, struct cpu_pack *pack,
				     size_t bytes);
