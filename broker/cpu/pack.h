#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Packed constants. Private to broker/cpu; setup thread only.
 *
 * A packed copy is made once for all plans of one owner over the same bytes: identified by owner,
 * the arena's (dev, ino), range, and how it was packed. Constants are immutable, so a copy never
 * goes stale.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cpu_pack_key {
	uint64_t owner, dev, ino, offset, bytes;
	uint64_t form[8]; /* what is packed, and the parameters of packing; unused ones 0 */
};

struct cpu_pack {
	struct cpu_pack_key key;
	struct cpu_pack *next; /* in its bucket */
	uint32_t n_refs;
	float *data; /* a mapping of its own, page-aligned */
	size_t map_bytes;
};

enum { CPU_PACK_BUCKETS = 1024 };

struct cpu_pack_cache {
	struct cpu_pack *buckets[CPU_PACK_BUCKETS];
	uint64_t bytes; /* of all that exist */
};

/*
 * Finds the copy or makes an empty one of @floats, to be filled by the caller if *ret_new.
 * Return: 0, with a reference in *ret; -ENOMEM.
 */
int cpu_pack_get(struct cpu_pack_cache *cache, const struct cpu_pack_key *key, size_t floats,
		 struct cpu_pack **ret, bool *ret_new);
/* Frees it with the last reference. Return: NULL. */
struct cpu_pack *cpu_pack_unref(struct cpu_pack_cache *cache, struct cpu_pack *pack);

/* Anonymous memory, zeroed, on huge pages where large. Return: NULL if out of memory. */
void *cpu_map(size_t bytes, size_t *ret_map_bytes);
void cpu_unmap(void *map, size_t map_bytes);
