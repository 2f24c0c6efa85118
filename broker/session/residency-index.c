/* SPDX-License-Identifier: MIT */
/*
 * Residency: finding constants that are on a device
 *
 * A chained hash table over (device, inode, offset, bytes, owner, tier). Clients choose offsets and
 * how many constants there are, so the hash has a secret seed and the table grows with its content:
 * a look-up stays short whatever they choose.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "session/residency-private.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/error.h"

enum { FIRST_BUCKETS = 1024, MAX_BUCKETS = 1 << 22 };

/* The finalizer of MurmurHash3: every bit of the input changes half of the output. */
static uint64_t mix(uint64_t hash)
{
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdull;
	hash ^= hash >> 33;
	hash *= 0xc4ceb9fe1a85ec53ull;
	return hash ^ hash >> 33;
}

static struct resident_constant **bucket_of(const struct resident_index *index, dev_t dev,
					    ino_t ino, uint64_t offset)
{
	uint64_t hash = mix(index->seed ^ offset);

	hash = mix(hash ^ (uint64_t)ino ^ (uint64_t)dev << 40);
	return &index->buckets[hash & (index->n_buckets - 1)];
}

int resident_index_init(struct resident_index *index)
{
	*index = (struct resident_index){.n_buckets = FIRST_BUCKETS};
	index->buckets = calloc(FIRST_BUCKETS, sizeof(struct resident_constant *));
	if (!index->buckets)
		return error_origin(-ENOMEM);
	/* Early in a machine's life there may be no randomness yet; time is better than nothing. */
	if (getrandom(&index->seed, sizeof(index->seed), GRND_NONBLOCK) != sizeof(index->seed))
		index->seed = mix(clock_now_ns());
	return 0;
}

void resident_index_deinit(struct resident_index *index)
{
	free(index->buckets);
	*index = (struct resident_index){.buckets = NULL};
}

static void put(struct resident_index *index, struct resident_constant *constant)
{
	struct resident_constant **bucket =
		bucket_of(index, constant->dev, constant->ino, constant->offset);

	constant->next = *bucket;
	*bucket = constant;
}

static void grow(struct resident_index *index)
{
	struct resident_index old = *index;
	uint32_t n = old.n_buckets * 2;

	if (n > MAX_BUCKETS)
		return;
	index->buckets = calloc(n, sizeof(struct resident_constant *));
	if (!index->buckets) {
		index->buckets = old.buckets;
		return;
	}
	index->n_buckets = n;
	for (uint32_t i = 0; i < old.n_buckets; i++) {
		struct resident_constant *next;

		for (struct resident_constant *at = old.buckets[i]; at; at = next) {
			next = at->next;
			put(index, at);
		}
	}
	free(old.buckets);
}

void resident_index_add(struct resident_index *index, struct resident_block *block)
{
	index->n_constants += block->exec.n_constants;
	while (index->n_constants > index->n_buckets) {
		uint32_t before = index->n_buckets;

		grow(index);
		if (index->n_buckets == before)
			break;
	}
	for (uint32_t i = 0; i < block->exec.n_constants; i++)
		put(index, &block->constants[i]);
}

void resident_index_remove(struct resident_index *index, struct resident_block *block)
{
	index->n_constants -= block->exec.n_constants;
	for (uint32_t i = 0; i < block->exec.n_constants; i++) {
		struct resident_constant *constant = &block->constants[i], **at;

		at = bucket_of(index, constant->dev, constant->ino, constant->offset);
		while (*at != constant)
			at = &(*at)->next;
		*at = constant->next;
	}
}

struct resident_constant *resident_index_find(const struct resident_index *index, uint64_t owner,
					      enum exec_tier tier,
					      const struct plan_constant *wanted)
{
	const struct exec_arena *arena = wanted->arena;
	struct resident_constant *at = *bucket_of(index, arena->dev, arena->ino, wanted->offset);

	for (; at; at = at->next)
		if (at->ino == arena->ino && at->dev == arena->dev &&
		    at->offset == wanted->offset && at->bytes == wanted->bytes &&
		    at->block->owner == owner && at->block->exec.tier == tier)
			return at;
	return NULL;
}
