/* SPDX-License-Identifier: MIT */
/*
 * Residency: finding constants that are on a device
 *
 * A chained hash table over (device, inode, offset, bytes, owner, tier). Clients choose offsets,
 * sizes and how many constants there are, so the hash is of all six, has a secret seed, and the
 * table grows with its content: a look-up stays short whatever they choose. Constants that agree in
 * all six are as good as each other, and the first is found; taking one out needs no search. A
 * table that grows moves a few buckets with each constant that comes, as all at once would keep the
 * reactor for as long as there are constants.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "session/residency-private.h"
#include "session/session.h"
#include "util/clock.h"
#include "util/error.h"

enum {
	FIRST_BUCKETS = 1024,
	MAX_BUCKETS = 1 << 22,
	MOVED_AT_ONCE = 4, /* buckets; done long before the table has to grow again */
};

/* The finalizer of MurmurHash3: every bit of the input changes half of the output. */
static uint64_t mix(uint64_t hash)
{
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdull;
	hash ^= hash >> 33;
	hash *= 0xc4ceb9fe1a85ec53ull;
	return hash ^ hash >> 33;
}

/* Lookup key of a constant. */
struct key {
	dev_t dev;
	ino_t ino;
	uint64_t offset, bytes;
	uint64_t owner;
	enum exec_tier tier;
};

static struct key key_of(const struct resident_constant *constant)
{
	return (struct key){constant->dev,   constant->ino,          constant->offset,
			    constant->bytes, constant->block->owner, constant->block->exec.tier};
}

static uint64_t hash_of(const struct resident_index *index, const struct key *key)
{
	uint64_t hash = mix(index->seed ^ key->offset);

	hash = mix(hash ^ key->bytes);
	hash = mix(hash ^ (uint64_t)key->ino ^ (uint64_t)key->dev << 40);
	return mix(hash ^ key->owner ^ (uint64_t)key->tier << 60);
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
	free(index->old_buckets);
	*index = (struct resident_index){.buckets = NULL};
}

static void put(struct resident_index *index, struct resident_constant *constant)
{
	const struct key key = key_of(constant);
	struct resident_constant **bucket =
		&index->buckets[hash_of(index, &key) & (index->n_buckets - 1)];

	constant->next = *bucket;
	constant->at = bucket;
	if (constant->next)
		constant->next->at = &constant->next;
	*bucket = constant;
}

/* Moves a few buckets of a table that is left. */
static void move_some(struct resident_index *index)
{
	for (uint32_t i = 0; i < MOVED_AT_ONCE && index->old_buckets; i++) {
		struct resident_constant *next;

		for (struct resident_constant *c = index->old_buckets[index->n_moved]; c;
		     c = next) {
			next = c->next;
			put(index, c);
		}
		index->old_buckets[index->n_moved++] = NULL;
		if (index->n_moved < index->n_old_buckets)
			continue;
		free(index->old_buckets);
		index->old_buckets = NULL;
	}
}

static void grow(struct resident_index *index)
{
	const uint32_t n = index->n_buckets * 2;
	struct resident_constant **buckets;

	if (n > MAX_BUCKETS || index->old_buckets)
		return;
	buckets = calloc(n, sizeof(struct resident_constant *));
	if (!buckets)
		return;
	index->old_buckets = index->buckets;
	index->n_old_buckets = index->n_buckets;
	index->n_moved = 0;
	index->buckets = buckets;
	index->n_buckets = n;
}

void resident_index_add(struct resident_index *index, struct resident_block *block)
{
	for (uint32_t i = 0; i < block->exec.n_constants; i++) {
		if (++index->n_constants > index->n_buckets)
			grow(index);
		move_some(index);
		put(index, &block->constants[i]);
	}
}

void resident_index_remove(struct resident_index *index, struct resident_block *block)
{
	index->n_constants -= block->exec.n_constants;
	for (uint32_t i = 0; i < block->exec.n_constants; i++) {
		struct resident_constant *constant = &block->constants[i];

		*constant->at = constant->next;
		if (constant->next)
			constant->next->at = constant->at;
	}
}

static struct resident_constant *find_in(struct resident_constant *c, const struct key *key)
{
	for (; c; c = c->next)
		if (c->ino == key->ino && c->dev == key->dev && c->offset == key->offset &&
		    c->bytes == key->bytes && c->block->owner == key->owner &&
		    c->block->exec.tier == key->tier)
			return c;
	return NULL;
}

struct resident_constant *resident_index_find(const struct resident_index *index, uint64_t owner,
					      enum exec_tier tier,
					      const struct plan_constant *wanted)
{
	const struct key key = {
		wanted->arena->dev, wanted->arena->ino, wanted->offset, wanted->bytes, owner, tier};
	const uint64_t hash = hash_of(index, &key);
	struct resident_constant *found =
		find_in(index->buckets[hash & (index->n_buckets - 1)], &key);

	if (found || !index->old_buckets)
		return found;
	return find_in(index->old_buckets[hash & (index->n_old_buckets - 1)], &key);
}
