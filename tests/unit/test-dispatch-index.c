/* SPDX-License-Identifier: MIT */
/*
 * Tasks by user_data: the steps of a lookup are bounded, whatever user_data clients choose
 *
 * First for the index alone, then in the dispatcher with a ring full of tasks.
 */
#include <string.h>

#include <errno.h>
#include <stdlib.h>

#include "support/test.h"
#include "unit/dispatch-bench.h"

enum { NODES = 32768, MANY_ENTRIES = 32768, SEED = 0x5eed };

static uint64_t random_bits(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static unsigned int depth(const struct index_node *node)
{
	unsigned int left, right;

	if (!node)
		return 0;
	assert_true(node->is_in && node->is_node);
	left = depth(node->child[0]);
	right = depth(node->child[1]);
	return 1 + (left > right ? left : right);
}

static unsigned int steps(struct index_node **root, uint64_t hash)
{
	unsigned int n = UINT32_MAX;

	index_locate(root, hash, &n);
	return n;
}

/* Return hashes that unbalance a tree as much as possible. */
static uint64_t hostile(uint32_t i, uint32_t pattern)
{
	switch (pattern) {
	case 0: /* one path, from the root down */
		return i < 64 ? (1ull << i) - 1 : (uint64_t)i << 32 | (UINT32_MAX - 1);
	case 1: /* a long common path */
		return (uint64_t)i << 49;
	case 2:
		return ~((uint64_t)i << 49);
	case 3: /* pairs that differ in the last bit */
		return (uint64_t)(i / 2) << 20 | (uint64_t)(i & 1) << 63;
	default:
		return i;
	}
}

TEST(test_index__steps_are_bounded)
{
	struct index_node *nodes = calloc(NODES, sizeof(*nodes)), *root = NULL;

	assert_non_null(nodes);
	for (uint32_t pattern = 0; pattern < 5; pattern++) {
		for (uint32_t i = 0; i < NODES; i++) {
			assert_in_range(steps(&root, hostile(i, pattern)), 0, INDEX_MAX_STEPS);
			index_insert(&root, &nodes[i], hostile(i, pattern));
		}
		assert_in_range(depth(root), 15, INDEX_MAX_STEPS);
		for (uint32_t i = 0; i < NODES; i++) {
			assert_ptr_equal(index_find(&root, hostile(i, pattern)), &nodes[i]);
			assert_in_range(steps(&root, hostile(i, pattern)), 1, INDEX_MAX_STEPS);
		}
		/* Remove from the root, which moves other nodes. */
		for (uint32_t i = 0; i < NODES; i++) {
			index_remove(&root, &nodes[i]);
			index_remove(&root, &nodes[i]);
			assert_null(index_find(&root, hostile(i, pattern)));
			if (i % 1024 == 0)
				assert_in_range(depth(root), 0, INDEX_MAX_STEPS);
		}
		assert_null(root);
	}
	free(nodes);
}

TEST(test_index__oldest_first)
{
	struct index_node nodes[6] = {0}, other = {0}, *root = NULL;

	for (unsigned int i = 0; i < 6; i++)
		index_insert(&root, &nodes[i], 7);
	index_insert(&root, &other, 15);
	assert_ptr_equal(index_find(&root, 7), &nodes[0]);
	assert_ptr_equal(index_next(&nodes[0]), &nodes[1]);
	assert_null(index_next(&nodes[5]));
	assert_null(index_next(&other));
	/* Remove from the middle, the youngest, and the oldest. */
	index_remove(&root, &nodes[2]);
	index_remove(&root, &nodes[5]);
	index_remove(&root, &nodes[0]);
	assert_ptr_equal(index_find(&root, 7), &nodes[1]);
	assert_ptr_equal(index_next(&nodes[1]), &nodes[3]);
	assert_ptr_equal(index_next(&nodes[3]), &nodes[4]);
	assert_null(index_next(&nodes[4]));
	assert_ptr_equal(index_find(&root, 15), &other);
	index_remove(&root, &nodes[1]);
	index_remove(&root, &nodes[3]);
	index_remove(&root, &nodes[4]);
	assert_null(index_find(&root, 7));
	assert_ptr_equal(index_find(&root, 15), &other);
	index_remove(&root, &other);
	assert_null(root);
}

/* Random operations give the same results as a search through all nodes. */
TEST(test_index__like_a_list)
{
	enum { FEW = 300 };
	static struct index_node nodes[FEW];
	static uint32_t since[FEW];
	struct index_node *root = NULL, *found;
	uint64_t random = 88172645463325252ull, hash;
	uint32_t n_in = 0;

	for (uint32_t turn = 1; turn < 200000; turn++) {
		uint32_t i = (uint32_t)(random_bits(&random) >> 32) % FEW, oldest = FEW;

		if (nodes[i].is_in) {
			index_remove(&root, &nodes[i]);
			n_in--;
		} else {
			hash = random_bits(&random) % 100 << (random % 3 * 27);
			index_insert(&root, &nodes[i], hash);
			since[i] = turn;
			n_in++;
		}
		hash = nodes[(uint32_t)(random_bits(&random) >> 32) % FEW].hash;
		for (uint32_t k = 0; k < FEW; k++)
			if (nodes[k].is_in && nodes[k].hash == hash &&
			    (oldest == FEW || since[k] < since[oldest]))
				oldest = k;
		found = index_find(&root, hash);
		assert_ptr_equal(found, oldest < FEW ? &nodes[oldest] : NULL);
	}
	assert_true(n_in > 0 && root);
}

/* --- In the dispatcher --- */

static uint64_t inverse(uint64_t odd)
{
	uint64_t x = odd;

	for (unsigned int i = 0; i < 6; i++)
		x *= 2 - odd * x;
	return x;
}

/* Return the user_data that a client which knows the seed would choose. */
static uint64_t user_data_of(uint64_t hash, uint64_t seed)
{
	hash ^= hash >> 33;
	hash *= inverse(0xc4ceb9fe1a85ec53ull);
	hash ^= hash >> 33;
	return (hash * inverse(0xff51afd7ed558ccdull)) ^ seed;
}

TEST(test_hash__is_a_bijection)
{
	uint64_t random = 1, value;

	for (unsigned int i = 0; i < 10000; i++) {
		value = random_bits(&random);
		assert_int_equal(user_data_of(index_hash(value, SEED), SEED), value);
	}
}

static unsigned int deepest(const struct dispatch_ring *ring)
{
	unsigned int most = 0, n;

	for (uint32_t i = 0; i <= ring->bucket_mask; i++) {
		n = depth(ring->buckets[i]);
		most = n > most ? n : most;
	}
	return most;
}

static uint64_t colliding(const struct dispatch_ring *ring, uint32_t i, uint32_t pattern)
{
	uint64_t seed = ring->dispatch->bucket_seed;

	switch (pattern) {
	case 0: /* one user_data for all */
		return 7;
	case 1: /* one bucket, common first bits */
		return user_data_of((uint64_t)i << 20, seed);
	case 2: /* one bucket, consecutive hashes */
		return user_data_of((uint64_t)(i & 0xffff) << 0 | (uint64_t)(i >> 16) << 60, seed);
	case 3: /* a few user_data, each repeated */
		return user_data_of((uint64_t)(i % 100) << 24, seed);
	default:
		return i;
	}
}

/*
 * A ring full of tasks: each is found and cancelled once. The device keeps a task that it has
 * begun, so that none completes in between.
 */
static void fill_and_cancel(struct bench *bench, uint32_t pattern)
{
	const uint32_t n = MANY_ENTRIES / 2 - 1;
	struct dispatch_ring *ring = rig_dispatch_ring(&bench->ring);
	struct rbk_cqe cqe;
	uint32_t n_zero = 0, n_cancelled = 0, n_unknown = 0;
	uint64_t target;

	for (uint32_t i = 0; i < n; i++)
		put_run(bench, bench->queued, colliding(ring, i, pattern), 0);
	rig_work(&bench->rig);
	assert_int_equal(bench->ring.ring->n_in_flight, n);
	assert_in_range(deepest(ring), 1, INDEX_MAX_STEPS);
	for (uint32_t i = 0; i < n; i++)
		put_cancel(bench, UINT64_MAX, colliding(ring, n - 1 - i, pattern), 0);
	target = colliding(ring, 0, pattern);
	put_cancel(bench, UINT64_MAX, target, 0);
	rig_work(&bench->rig);
	fake_finish_all(bench->cpu, 0);
	fake_finish_all(bench->gpu, 0);
	rig_work(&bench->rig);
	while (rig_take(&bench->ring, &cqe)) {
		if (cqe.user_data != UINT64_MAX) {
			assert_int_equal(cqe.res, -ECANCELED);
			n_cancelled++;
		} else if (cqe.res == 0) {
			n_zero++;
		} else {
			assert_int_equal(cqe.res, -ENOENT);
			n_unknown++;
		}
	}
	assert_int_equal(n_cancelled, n);
	assert_int_equal(n_zero, n);
	assert_int_equal(n_unknown, 1);
	assert_int_equal(deepest(ring), 0);
}

TEST(test_cancel__a_ring_full)
{
	BENCH(bench, 2, MANY_ENTRIES);
	for (uint32_t pattern = 0; pattern < 5; pattern++)
		fill_and_cancel(&bench, pattern);
}
