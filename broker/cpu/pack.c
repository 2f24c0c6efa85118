/* SPDX-License-Identifier: MIT */
/* See pack.h. */
#include "cpu/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

void cpu_pack_cache_init(struct cpu_pack_cache *cache, struct chunks *memory)
{
	*cache = (struct cpu_pack_cache){.memory = memory};
	/* Soon after boot there may be no entropy yet; the time is a fallback. */
	if (getrandom(cache->seed, sizeof(cache->seed), GRND_NONBLOCK) != sizeof(cache->seed))
		cache->seed[0] = cache->seed[1] = index_hash(clock_now_ns(), 0);
}

/*
 * Clients choose most of a key, and the tree is balanced only over different hashes. So the hash is
 * a polynomial over the integers modulo 2^61 - 1, with the key's words as coefficients, evaluated
 * at a secret point. Two different keys collide at 26 points at most (Carter, Wegman, JCSS 1979).
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
	pack->data = chunks_reserve(cache->memory, bytes, &pack->map_bytes);
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
	int r;

	if (pack->is_committed)
		return 0;
	r = chunks_commit(cache->memory, pack->data, pack->map_bytes);
	if (r)
		return error_fold(r);
	pack->is_committed = true;
	cache->committed_bytes += pack->map_bytes;
	return 0;
}

struct cpu_pack *cpu_pack_unref_some(struct cpu_pack_cache *cache, struct cpu_pack *pack,
				     size_t bytes)
{
	const size_t map_bytes = pack->map_bytes;
	bool has_more;

	if (pack->node.is_in && --pack->n_refs > 0)
		return NULL;
	index_remove(&cache->root, &pack->node);
	has_more = chunks_unmap_some(cache->memory, pack->data, &pack->map_bytes, bytes);
	cache->bytes -= map_bytes - pack->map_bytes;
	cache->committed_bytes -= pack->is_committed ? map_bytes - pack->map_bytes : 0;
	if (has_more)
		return pack;
	free(pack);
	return NULL;
}

struct cpu_pack *cpu_pack_unref(struct cpu_pack_cache *cache, struct cpu_pack *pack)
{
	return pack ? cpu_pack_unref_some(cache, pack, pack->map_bytes) : NULL;
}
