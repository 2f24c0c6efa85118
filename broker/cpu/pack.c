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

#include "util/cleanup.h"
#include "util/error.h"

enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20 };

void *cpu_map(size_t bytes, size_t *ret_map_bytes)
{
	const size_t unit = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
	size_t map_bytes;
	void *map;

	if (__builtin_add_overflow(bytes, unit - 1, &map_bytes))
		return NULL;
	map_bytes &= ~(unit - 1);
	map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	/* Only advice: where huge pages are off, the small ones serve. */
	if (unit == HUGE_PAGE_BYTES)
		madvise(map, map_bytes, MADV_HUGEPAGE);
	*ret_map_bytes = map_bytes;
	return map;
}

void cpu_unmap(void *map, size_t map_bytes)
{
	if (map)
		munmap(map, map_bytes);
}

static struct cpu_pack **pack_bucket(struct cpu_pack_cache *cache, const struct cpu_pack_key *key)
{
	const uint8_t *bytes = (const uint8_t *)key;
	uint64_t hash = 14695981039346656037ull; /* FNV-1a */

	for (size_t i = 0; i < sizeof(*key); i++)
		hash = (hash ^ bytes[i]) * 1099511628211ull;
	return &cache->buckets[(hash >> 32) % CPU_PACK_BUCKETS];
}

int cpu_pack_get(struct cpu_pack_cache *cache, const struct cpu_pack_key *key, size_t floats,
		 struct cpu_pack **ret, bool *ret_new)
{
	struct cpu_pack **bucket = pack_bucket(cache, key);
	_cleanup_(freep) struct cpu_pack *pack = NULL;
	size_t bytes;

	for (struct cpu_pack *p = *bucket; p; p = p->next) {
		if (memcmp(&p->key, key, sizeof(*key)))
			continue;
		p->n_refs++;
		*ret = p;
		*ret_new = false;
		return 0;
	}

	if (__builtin_mul_overflow(floats, sizeof(float), &bytes))
		return error_origin(-ENOMEM);
	pack = calloc(1, sizeof(*pack));
	if (!pack)
		return error_origin(-ENOMEM);
	pack->data = cpu_map(bytes, &pack->map_bytes);
	if (!pack->data)
		return error_origin(-ENOMEM);
	pack->key = *key;
	pack->n_refs = 1;
	pack->next = *bucket;
	cache->bytes += pack->map_bytes;
	*bucket = pack;
	*ret = steal_ptr(pack);
	*ret_new = true;
	return 0;
}

struct cpu_pack *cpu_pack_unref(struct cpu_pack_cache *cache, struct cpu_pack *pack)
{
	struct cpu_pack **at;

	if (!pack || --pack->n_refs > 0)
		return NULL;
	for (at = pack_bucket(cache, &pack->key); *at != pack; at = &(*at)->next)
		;
	*at = pack->next;
	cache->bytes -= pack->map_bytes;
	cpu_unmap(pack->data, pack->map_bytes);
	free(pack);
	return NULL;
}
