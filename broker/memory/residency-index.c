/* SPDX-License-Identifier: MIT */
/*
 * Residency: the index of constants on a device
 *
 * A chained hash table. The key is (device, inode, offset, bytes, owner, tier). Clients choose
 * offsets, sizes and the number of constants. So the hash covers the whole key and has a secret
 * seed, and the table grows with its content: a look-up stays short whatever clients choose.
 * Constants with equal keys are interchangeable, and the first is found. A removal needs no search.
 *
 * The table grows by one bucket at a time (linear hashing: Litwin, VLDB 1980). The new bucket gets
 * its part of the bucket that is next to be split. Buckets are allocated in segments that are never
 * moved. So adding a constant costs a few moves and at most a small allocation. A table that
 * doubles would have to clear and free tens of megabytes at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "memory/residency-private.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"

enum {
	MAX_BUCKETS = RESIDENT_INDEX_SEGMENT * RESIDENT_INDEX_SEGMENTS,
	STEPS_AT_ONCE = 4, /* entries moved or buckets added for each new constant */
};

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
	uint64_t hash = mix_u64(index->seed ^ key->offset);

	hash = mix_u64(hash ^ key->bytes);
	hash = mix_u64(hash ^ (uint64_t)key->ino ^ (uint64_t)key->dev << 40);
	return mix_u64(hash ^ key->owner ^ (uint64_t)key->tier << 60);
}

int resident_index_init(struct resident_index *index)
{
	*index = (struct resident_index){.n_buckets = RESIDENT_INDEX_SEGMENT};
	index->segments[0] = calloc(RESIDENT_INDEX_SEGMENT, sizeof(struct resident_constant *));
	if (!index->segments[0])
		return error_origin(-ENOMEM);
	/* Early in a machine's life there may be no randomness yet; then the time is the seed. */
	if (getrandom(&index->seed, sizeof(index->seed), GRND_NONBLOCK) != sizeof(index->seed))
		index->seed = mix_u64(clock_now_ns());
	return 0;
}

void resident_index_deinit(struct resident_index *index)
{
	for (uint32_t i = 0; i < RESIDENT_INDEX_SEGMENTS; i++)
		free(index->segments[i]);
	*index = (struct resident_index){.n_buckets = 0};
}

/* Return the largest power of two that is at most the number of buckets. */
static uint32_t full_buckets(const struct resident_index *index)
{
	return 1u << (31 - __builtin_clz(index->n_buckets));
}

/* Return the number of the bucket that was split last into the newest one, or is being split. */
static uint32_t last_split(const struct resident_index *index)
{
	const uint32_t newest = index->n_buckets - 1;

	return newest - (1u << (31 - __builtin_clz(newest)));
}

static uint32_t number_of(const struct resident_index *index, uint64_t hash)
{
	const uint32_t full = full_buckets(index);
	const uint32_t number = (uint32_t)hash & (2 * full - 1);

	return number < index->n_buckets ? number : number - full;
}

static struct resident_constant **bucket_of(const struct resident_index *index, uint32_t number)
{
	return &index->segments[number / RESIDENT_INDEX_SEGMENT][number % RESIDENT_INDEX_SEGMENT];
}

/* Insert a constant at the head of the list at @list. */
static void link_in(struct resident_constant **list, struct resident_constant *constant)
{
	constant->next = *list;
	constant->at = list;
	if (constant->next)
		constant->next->at = &constant->next;
	*list = constant;
}

static void link_out(struct resident_constant *constant)
{
	*constant->at = constant->next;
	if (constant->next)
		constant->next->at = constant->at;
}

static void put(struct resident_index *index, struct resident_constant *constant)
{
	const struct key key = key_of(constant);

	link_in(bucket_of(index, number_of(index, hash_of(index, &key))), constant);
}

/* Add a bucket, and begin to split the bucket that it takes its constants from. */
static void split(struct resident_index *index)
{
	struct resident_constant **from, ***segment;

	segment = &index->segments[index->n_buckets / RESIDENT_INDEX_SEGMENT];
	if (!*segment)
		*segment = calloc(RESIDENT_INDEX_SEGMENT, sizeof(struct resident_constant *));
	if (!*segment)
		return;
	index->n_buckets++;
	from = bucket_of(index, last_split(index));
	index->splitting = *from;
	if (index->splitting)
		index->splitting->at = &index->splitting;
	*from = NULL;
}

/*
 * Take a few steps towards as many buckets as constants. More steps than new constants let the
 * table catch up.
 */
static void grow(struct resident_index *index)
{
	struct resident_constant *constant;

	for (uint32_t i = 0; i < STEPS_AT_ONCE; i++) {
		constant = index->splitting;
		if (constant) {
			link_out(constant);
			put(index, constant);
		} else if (index->n_constants > index->n_buckets &&
			   index->n_buckets < MAX_BUCKETS) {
			split(index);
		}
	}
}

void resident_index_add(struct resident_index *index, struct resident_block *block)
{
	for (uint32_t i = 0; i < block->exec.n_constants; i++) {
		index->n_constants++;
		grow(index);
		put(index, &block->constants[i]);
	}
}

void resident_index_remove(struct resident_index *index, struct resident_block *block)
{
	index->n_constants -= block->exec.n_constants;
	for (uint32_t i = 0; i < block->exec.n_constants; i++)
		link_out(&block->constants[i]);
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
	const uint32_t number = number_of(index, hash_of(index, &key));
	struct resident_constant *found = find_in(*bucket_of(index, number), &key);

	if (found || !index->splitting)
		return found;
	if (number != index->n_buckets - 1 && number != last_split(index))
		return NULL;
	return find_in(index->splitting, &key);
}
