/* SPDX-License-Identifier: MIT */
/*
 * See pack.h. Each copy is a mapping of its own, so that releasing it returns memory at once and
 * nothing of one owner is left in a heap for another to find.
 */
#include "cpu/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20 };

size_t cpu_map_bytes(size_t bytes)
{
	const size_t unit = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
	size_t map_bytes;

	if (__builtin_add_overflow(bytes, unit - 1, &map_bytes))
		return 0;
	return map_bytes & ~(unit - 1);
}

static void *map_as(size_t bytes, int protection, size_t *ret_map_bytes)
{
	const size_t map_bytes = cpu_map_bytes(bytes);
	void *map;

	if (map_bytes == 0)
		return NULL;
	map = mmap(NULL, map_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	/* Only advice: where huge pages are off, the small ones serve. */
	if (bytes >= HUGE_PAGE_BYTES)
		madvise(map, map_bytes, MADV_HUGEPAGE);
	*ret_map_bytes = map_bytes;
	return map;
}

void *cpu_map(size_t bytes, size_t *ret_map_bytes)
{
	return map_as(bytes, PROT_READ | PROT_WRITE, ret_map_bytes);
}

void cpu_unmap(void *map, size_t map_bytes)
{
	if (map)
		munmap(map, map_bytes);
}

bool cpu_unmap_some(void *map, size_t *map_bytes)
{
	const size_t bytes = *map_bytes < CPU_UNMAP_BYTES ? *map_bytes : CPU_UNMAP_BYTES;

	/* Bytes that were measured, but never mapped. */
	if (!map)
		return false;
	*map_bytes -= bytes;
	if (bytes > 0)
		munmap((uint8_t *)map + *map_bytes, bytes);
	return *map_bytes > 0;
}

void cpu_pack_cache_init(struct cpu_pack_cache *cache)
{
	*cache = (struct cpu_pack_cache){0};
	/* Early in a machine's life there may be no randomness yet; time is better than nothing. */
	if (getrandom(cache->seed, sizeof(cache->seed), GRND_NONBLOCK) != sizeof(cache->seed))
		cache->seed[0] = cache->seed[1] = index_hash(clock_now_ns(), 0);
}

/*
 * Clients choose most of a key, and the tree keeps short only what has different hashes. So the
 * hash is a polynomial over the integers modulo 2^61 - 1, with the key's words as coefficients, at
 * a secret point: two keys have the same one at 26 points at most (Carter, Wegman, JCSS 1979).
 */
static uint64_t hash_of(const struct cpu_pack_cache *cache, const struct cpu_pack_key *key)
{
	const uint64_t prime = (1ull << 61) - 1, point = cache->seed[0] & prime;
	uint32_t words[sizeof(*key) / sizeof(uint32_t)];
	uint64_t hash = 0;

	memcpy(words, key, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const unsigned __int128 product = (unsigned __int128)hash * point + words[i];

		hash = (uint64_t)(product & prime) + (uint64_t)(product >> 61);
		hash -= hash >= prime ? prime : 0;
	}
	return index_hash(hash, cache->seed[1]);
}

static struct cpu_pack *find(struct cpu_pack_cache *cache, const struct cpu_pack_key *key,
			     uint64_t hash)
{
	struct index_node *node = index_find(&cache->root, hash);

	for (; node; node = index_next(node)) {
		struct cpu_pack *pack = container_of(node, struct cpu_pack, node);

		if (!memcmp(&pack->key, key, sizeof(*key)))
			return pack;
	}
	return NULL;
}

int cpu_pack_get(struct cpu_pack_cache *cache, const struct cpu_pack_key *key, size_t floats,
		 struct cpu_pack **ret)
{
	const uint64_t hash = hash_of(cache, key);
	struct cpu_pack *found = find(cache, key, hash);
	_cleanup_(freep) struct cpu_pack *pack = NULL;
	size_t bytes;

	if (found) {
		found->n_refs++;
		*ret = found;
		return 0;
	}
	if (__builtin_mul_overflow(floats, sizeof(float), &bytes))
		return error_origin(-ENOMEM);
	pack = calloc(1, sizeof(*pack));
	if (!pack)
		return error_origin(-ENOMEM);
	/* The kernel counts nothing of what cannot be written: it is no memory yet in any sense. */
	pack->data = map_as(bytes, PROT_NONE, &pack->map_bytes);
	if (!pack->data)
		return error_origin(-ENOMEM);
	pack->key = *key;
	pack->n_refs = 1;
	index_insert(&cache->root, &pack->node, hash);
	cache->bytes += pack->map_bytes;
	*ret = steal_ptr(pack);
	return 0;
}

int cpu_pack_commit(struct cpu_pack_cache *cache, struct cpu_pack *pack)
{
	if (pack->is_committed)
		return 0;
	if (mprotect(pack->data, pack->map_bytes, PROT_READ | PROT_WRITE) < 0)
		return error_origin(-ENOMEM);
	pack->is_committed = true;
	cache->committed_bytes += pack->map_bytes;
	return 0;
}

struct cpu_pack *cpu_pack_unref_some(struct cpu_pack_cache *cache, struct cpu_pack *pack,
				     size_t bytes)
{
	if (pack->node.is_in && --pack->n_refs > 0)
		return NULL;
	index_remove(&cache->root, &pack->node);
	/* Whole huge pages: cutting one would make it small ones. */
	bytes = (bytes + HUGE_PAGE_BYTES - 1) & ~(size_t)(HUGE_PAGE_BYTES - 1);
	bytes = bytes < pack->map_bytes ? bytes : pack->map_bytes;
	pack->map_bytes -= bytes;
	cpu_unmap((uint8_t *)pack->data + pack->map_bytes, bytes);
	cache->bytes -= bytes;
	cache->committed_bytes -= pack->is_committed ? bytes : 0;
	if (pack->map_bytes > 0)
		return pack;
	free(pack);
	return NULL;
}

struct cpu_pack *cpu_pack_unref(struct cpu_pack_cache *cache, struct cpu_pack *pack)
{
	return pack ? cpu_pack_unref_some(cache, pack, pack->map_bytes) : NULL;
}
