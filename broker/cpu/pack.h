#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Packed constants. Private to broker/cpu; setup thread only.
 *
 * All plans of one owner over the same bytes share one packed copy. Its key is the owner, the
 * arena's (dev, ino), the range, and the form of packing. Constants are immutable, so a copy is
 * never stale.
 *
 * A copy begins as reserved addresses without memory, so that the size of a plan is known and
 * charged before any memory is allocated. cpu_pack_commit() allocates the memory; compile-fill.c
 * then fills the copy part by part. Any plan that references the copy may fill the next part.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/chunks.h"
#include "util/index.h"

struct cpu_pack_key {
	uint64_t owner, dev, ino, offset, bytes;
	uint64_t form[8]; /* the kind of packing and its parameters; unused words 0 */
};

struct cpu_pack {
	struct cpu_pack_key key;
	struct index_node node; /* in the cache; removed once the copy is being freed in parts */
	uint32_t n_refs;
	bool is_committed; /* data has memory */
	bool is_filled;
	uint64_t n_filled; /* parts filled so far, until is_filled */
	uint64_t user;     /* number of the last compilation that referenced the copy */
	float *data;       /* page-aligned */
	size_t map_bytes;
};

struct cpu_pack_cache {
	struct chunks *memory;
	struct index_node *root;
	uint64_t seed[2];         /* of the hash */
	uint64_t bytes;           /* of all copies */
	uint64_t committed_bytes; /* of the copies that have memory */
};

/* Borrows @memory. */
void cpu_pack_cache_init(struct cpu_pack_cache *cache, struct chunks *memory);
/*
 * Find the copy of @key, or create one of @floats without memory. Return: 0, with a reference in
 * *ret; -ENOMEM.
 */
int cpu_pack_get(struct cpu_pack_cache *cache, const struct cpu_pack_key *key, size_t floats,
		 struct cpu_pack **ret);
/* Allocate the copy's memory, zeroed, unless it has some. Return: 0; -ENOMEM. */
int cpu_pack_commit(struct cpu_pack_cache *cache, struct cpu_pack *pack);
/* Drop a reference; the last one frees the copy. Return: NULL. */
struct cpu_pack *cpu_pack_unref(struct cpu_pack_cache *cache, struct cpu_pack *pack);
/*
 * Like cpu_pack_unref(), but free at most @bytes of the copy per call, as chunks_unmap_some(). Once
 * the last reference is dropped, cpu_pack_get() does not find the copy any more. Return: @pack if
 * some of it is left, which the caller passes again; NULL: done.
 */
struct cpu_pack *cpu_pack_unref_some(struct cpu_pack_cache *cache, struct cpu_pack *pack,
				     size_t bytes);
