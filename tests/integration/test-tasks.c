/* SPDX-License-Identifier: MIT */
/*
 * Tasks through a real broker: chains, cancelling, barriers, argument tables, states, removal of
 * objects in use, deadlines, and full rings
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/scaled.h"
#include "support/test.h"

enum {
	N = 256, /* of the slow plan's matrices */
	MAX_ROWS = 1024,
	SMALL = 16,
	ARENA_BYTES = 16 << 20,
	SLOW_AT = 9 << 20, /* input of the slow plan, which no task writes */
};

static struct broker broker;
static struct rbk *rbk;
static struct rbk_arena *arena;
static struct rbk_plan *slow, *fast; /* slow: [count,N] x [N,N]; fast: [16] + [16] */
static uint32_t n_rows;              /* count of a slow task */

static struct rbk_plan *make_slow(void)
{
	struct rbk_plan *plan = NULL;

	assert_int_equal(plan_product(rbk, MAX_ROWS, N, N, NULL, &plan, NULL), 0);
	return plan;
}

static struct rbk_plan *make_fast(const char *op)
{
	struct rbk_plan *plan = NULL;

	assert_int_equal(plan_elements(rbk, op, 2, 1, SMALL, &plan, NULL), 0);
	return plan;
}

static int begin(void **state)
{
	/* With one worker, tasks wait for each other. */
	broker_start(&broker,
		     &(struct broker_options){.args = (const char *const[]){"--workers=1", NULL}});
	rbk = broker_connect(&broker, "tasks");
	/* Sanitizers slow a product down more than ten times. */
	n_rows = test_is_scaled_down() ? MAX_ROWS / 8 : MAX_ROWS;
	assert_int_equal(rbk_arena_new(rbk, ARENA_BYTES, &arena, NULL), 0);
	slow = make_slow();
	fast = make_fast("Add");
	return 0;
}

static int end(void **state)
{
	struct rbk_stats stats;

	fast = rbk_plan_free(fast);
	slow = rbk_plan_free(slow);
	arena = rbk_arena_free(arena);
	assert_int_equal(rbk_stats(rbk, &stats), 0);
	assert_fields(stats, (tasks_in_flight, 0), (arenas, 0), (plans, 0), (rings, 0));
	rbk = rbk_disconnect(rbk);
	broker_stop(&broker);
	return 0;
}

static struct rbk_ring *make_ring(unsigned int entries)
{
	struct rbk_ring *ring = NULL;

	assert_int_equal(rbk_ring_new(rbk, entries, &ring, NULL), 0);
	return ring;
}

static float *at(uint64_t offset)
{
	return (float *)((char *)rbk_arena_data(arena) + offset);
}

/* Prepare a task of a few milliseconds. */
static struct rbk_sqe *put_slow(struct rbk_ring *ring, uint64_t user_data, unsigned int flags)
{
	const uint64_t refs[] = {rbk_arena_ref(arena, SLOW_AT), rbk_arena_ref(arena, 2 << 20),
				 rbk_arena_ref(arena, 4 << 20)};
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	assert_non_null(sqe);
	rbk_prep_run(sqe, rbk_plan_id(slow), n_rows, refs, 3);
	rbk_sqe_set_flags(sqe, flags);
	rbk_sqe_set_data64(sqe, user_data);
	return sqe;
}

/* Prepare z = x + y of 64 bytes each, at these offsets. */
static struct rbk_sqe *put_fast(struct rbk_ring *ring, uint64_t user_data, unsigned int flags,
				uint64_t x, uint64_t y, uint64_t z)
{
	const uint64_t refs[] = {rbk_arena_ref(arena, x), rbk_arena_ref(arena, y),
				 rbk_arena_ref(arena, z)};
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	assert_non_null(sqe);
	rbk_prep_run(sqe, rbk_plan_id(fast), 1, refs, 3);
	rbk_sqe_set_flags(sqe, flags);
	rbk_sqe_set_data64(sqe, user_data);
	return sqe;
}

static void put_cancel(struct rbk_ring *ring, uint64_t user_data, uint64_t target)
{
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	assert_non_null(sqe);
	rbk_prep_cancel(sqe, target);
	rbk_sqe_set_data64(sqe, user_data);
}

static struct rbk_cqe take(struct rbk_ring *ring)
{
	const struct rbk_cqe *cqe = NULL;
	struct rbk_cqe copy;

	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 20000000000), 0);
	copy = *cqe;
	rbk_cqe_seen(ring, cqe);
	return copy;
}

/* Take @n completions, each exactly once, and store their results in @results by user_data. */
static void take_all(struct rbk_ring *ring, unsigned int n, int *results)
{
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < n; i++)
		results[i] = 1;
	for (unsigned int i = 0; i < n; i++) {
		cqe = take(ring);
		assert_true(cqe.user_data < n);
		assert_int_equal(results[cqe.user_data], 1);
		results[cqe.user_data] = cqe.res;
	}
}

/* ---- Chains ---- */

TEST(test_chain__in_order, begin, end)
{
	enum { LENGTH = 40 };
	struct rbk_ring *ring = make_ring(64);
	int results[LENGTH];

	/* Each task adds 1 to the result of the task before; any other order is wrong. */
	for (unsigned int i = 0; i < SMALL; i++)
		at(0)[i] = at(64)[i] = 1.0f;
	for (unsigned int i = 0; i < LENGTH; i++)
		put_fast(ring, i, i + 1 < LENGTH ? RBK_SQE_LINK : 0, 0, 64 + i * 64ull,
			 128 + i * 64ull);
	assert_int_equal(rbk_submit(ring), LENGTH);
	take_all(ring, LENGTH, results);
	for (unsigned int i = 0; i < LENGTH; i++) {
		assert_int_equal(results[i], 0);
		assert_true(at(128 + i * 64ull)[0] == (float)(i + 2));
	}
	rbk_ring_free(ring);
}

TEST(test_chain__behind_a_worker, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	int results[6];

	/* Held tasks read what the slow task writes. */
	for (unsigned int i = 0; i < N * N; i++)
		at(2 << 20)[i] = i % (N + 1) == 0 ? 2.0f : 0.0f;
	for (unsigned int i = 0; i < n_rows * N; i++)
		at(SLOW_AT)[i] = 3.0f;
	memset(at(8 << 20), 0, 4096);
	for (unsigned int round = 0; round < 20; round++) {
		memset(at(4 << 20), 0, (size_t)n_rows * N * 4);
		put_slow(ring, 0, RBK_SQE_LINK);
		for (unsigned int i = 1; i < 6; i++)
			put_fast(ring, i, i < 5 ? RBK_SQE_LINK : 0, 4 << 20,
				 (8 << 20) + (i - 1) * 64ull, (8 << 20) + i * 64ull);
		assert_int_equal(rbk_submit(ring), 6);
		take_all(ring, 6, results);
		for (unsigned int i = 0; i < 6; i++)
			assert_int_equal(results[i], 0);
		for (unsigned int i = 1; i < 6; i++)
			assert_true(at((8 << 20) + i * 64ull)[3] == 6.0f * (float)i);
	}
	rbk_ring_free(ring);
}

/* The third of five tasks fails: two succeed, two are cancelled. Then a new chain begins. */
TEST(test_chain__failure_in_the_middle, begin, end)
{
	static const bool slow_head[] = {false, true};
	struct rbk_ring *ring = make_ring(64);
	int results[7];

	for (unsigned int k = 0; k < 2; k++) {
		if (slow_head[k])
			put_slow(ring, 0, RBK_SQE_LINK);
		else
			put_fast(ring, 0, RBK_SQE_LINK, 0, 64, 128);
		put_fast(ring, 1, RBK_SQE_LINK, 0, 64, 128);
		put_fast(ring, 2, RBK_SQE_LINK, 0, 64, 64);
		put_fast(ring, 3, RBK_SQE_LINK, 0, 64, 128);
		put_fast(ring, 4, 0, 0, 64, 128);
		put_fast(ring, 5, RBK_SQE_LINK, 0, 64, 192);
		put_fast(ring, 6, 0, 0, 64, 256);
		assert_int_equal(rbk_submit(ring), 7);
		take_all(ring, 7, results);
		assert_int_equal(results[0], 0);
		assert_int_equal(results[1], 0);
		assert_int_equal(results[2], -EINVAL);
		assert_int_equal(results[3], -ECANCELED);
		assert_int_equal(results[4], -ECANCELED);
		assert_int_equal(results[5], 0);
		assert_int_equal(results[6], 0);
	}
	rbk_ring_free(ring);
}

/* A chain longer than the ring stays open while the ring is refilled. */
TEST(test_chain__longer_than_the_ring, begin, end)
{
	enum { LENGTH = 300, FAILS_AT = 200 };
	struct rbk_ring *ring = make_ring(8);
	unsigned int n_put = 0, n_done = 0;
	static int results[LENGTH];
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < SMALL; i++)
		at(0)[i] = at(64)[i] = 1.0f;
	while (n_done < LENGTH) {
		while (n_put < LENGTH && n_put - n_done < 8) {
			if (n_put == FAILS_AT)
				put_fast(ring, n_put, RBK_SQE_LINK, 0, 64, 0);
			else if (n_put % 50 == 0)
				put_slow(ring, n_put, RBK_SQE_LINK);
			else
				put_fast(ring, n_put, n_put + 1 < LENGTH ? RBK_SQE_LINK : 0, 0, 64,
					 128);
			n_put++;
		}
		assert_true(rbk_submit(ring) >= 0);
		cqe = take(ring);
		results[cqe.user_data] = cqe.res;
		n_done++;
	}
	for (unsigned int i = 0; i < LENGTH; i++)
		assert_int_equal(results[i], i < FAILS_AT    ? 0
					     : i == FAILS_AT ? -EINVAL
							     : -ECANCELED);
	rbk_ring_free(ring);
}

/* ---- Joins ---- */

enum { LEAVES = 32, NODES = 2 * LEAVES - 1, NODES_AT = 8 << 20 };

/*
 * Put a tree of sums behind a slow task whose result, 6, its leaves double: node i adds nodes
 * 2 i + 1 and 2 i + 2. @is_spoiled: the last leaf is to write over its input.
 */
static void put_tree(struct rbk_ring *ring, bool is_spoiled)
{
	uint32_t indices[NODES + 1];

	indices[NODES] = rbk_sqe_index(ring, put_slow(ring, NODES, 0));
	for (unsigned int i = NODES; i-- > 0;) {
		const bool is_leaf = 2 * i + 2 >= NODES;
		const uint64_t left = is_leaf ? 4 << 20 : NODES_AT + (2 * i + 1) * 64ull;
		struct rbk_sqe *sqe =
			put_fast(ring, i, 0, left, is_leaf ? left : left + 64,
				 is_spoiled && i == NODES - 1 ? left : NODES_AT + i * 64ull);
		const uint32_t terms[] = {indices[is_leaf ? NODES : 2 * i + 1],
					  indices[is_leaf ? NODES : 2 * i + 2]};

		indices[i] = rbk_sqe_index(ring, sqe);
		assert_int_equal(rbk_sqe_set_after(ring, sqe, terms, 2), 0);
	}
}

TEST(test_join__tree_of_sums, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	int results[NODES + 1];

	for (unsigned int i = 0; i < N * N; i++)
		at(2 << 20)[i] = i % (N + 1) == 0 ? 2.0f : 0.0f;
	for (unsigned int i = 0; i < n_rows * N; i++)
		at(SLOW_AT)[i] = 3.0f;
	for (unsigned int round = 0; round < 10; round++) {
		memset(at(4 << 20), 0, (size_t)n_rows * N * 4);
		memset(at(NODES_AT), 0, NODES * 64);
		put_tree(ring, false);
		assert_int_equal(rbk_submit(ring), NODES + 1);
		take_all(ring, NODES + 1, results);
		for (unsigned int i = 0; i <= NODES; i++)
			assert_int_equal(results[i], 0);
		assert_true(at(NODES_AT)[5] == 12.0f * LEAVES);
	}
	rbk_ring_free(ring);
}

/* One leaf cannot be computed: neither can what is above it. The others are. */
TEST(test_join__failure_in_a_tree, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	int results[NODES + 1];

	put_tree(ring, true);
	assert_int_equal(rbk_submit(ring), NODES + 1);
	take_all(ring, NODES + 1, results);
	for (unsigned int i = 0; i <= NODES; i++) {
		const bool is_above = ((i + 1) & (i + 2)) == 0;

		assert_int_equal(results[i], i == NODES - 1          ? -EINVAL
					     : is_above && i < NODES ? -ECANCELED
								     : 0);
	}
	rbk_ring_free(ring);
}

/* ---- CANCEL ---- */

TEST(test_cancel__every_state, begin, end)
{
	struct rbk_ring *ring = make_ring(1024);
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	unsigned int n_cancelled = 0, n_inline = 0;
	int results[12];

	/*
	 * The target may be queued, running or complete; the outcome must be consistent. A reactor
	 * that lost its processor runs no task inline for a second.
	 */
	for (unsigned int round = 0; round < 6 || (n_inline == 0 && harness_now_ns() < end_ns);
	     round++) {
		put_slow(ring, 0, 0);
		assert_int_equal(rbk_submit(ring), 1);
		if (round % 2)
			while (rbk_sq_ready(ring))
				usleep(50);
		put_slow(ring, 1, 0);                        /* queued behind task 0 */
		put_slow(ring, 2, RBK_SQE_LINK);             /* queued */
		put_fast(ring, 3, RBK_SQE_LINK, 0, 64, 128); /* held */
		put_fast(ring, 4, 0, 0, 64, 128);            /* held */
		put_cancel(ring, 5, 0);
		put_cancel(ring, 6, 1);
		put_cancel(ring, 7, 3);
		put_cancel(ring, 8, 3);
		put_cancel(ring, 9, 4711);
		put_fast(ring, 10, 0, 0, 64, 192);
		put_cancel(ring, 11, 10);
		assert_int_equal(rbk_submit(ring), 11);
		take_all(ring, 12, results);
		assert_true(results[5] == 0 || results[5] == -EALREADY || results[5] == -ENOENT);
		assert_int_equal(results[0], results[5] == 0 ? -ECANCELED : 0);
		n_cancelled += results[5] == 0;
		assert_true(results[6] == 0 || results[6] == -EALREADY || results[6] == -ENOENT);
		assert_int_equal(results[1], results[6] == 0 ? -ECANCELED : 0);
		assert_int_equal(results[2], 0);
		assert_int_equal(results[7], 0);
		assert_int_equal(results[3], -ECANCELED);
		assert_int_equal(results[4], -ECANCELED);
		assert_int_equal(results[8], -ENOENT);
		assert_int_equal(results[9], -ENOENT);
		/* A task that ran inline has ended. */
		assert_true(results[11] == 0 || results[11] == -EALREADY || results[11] == -ENOENT);
		assert_int_equal(results[10], results[11] == 0 ? -ECANCELED : 0);
		n_inline += results[11] == -ENOENT;
	}
	assert_true(n_cancelled > 0);
	assert_true(n_inline > 0);
	rbk_ring_free(ring);
}

/* A CANCEL in a chain waits for its turn, and does not find itself. */
TEST(test_cancel__in_a_chain, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	int results[3];

	put_slow(ring, 0, RBK_SQE_LINK);
	put_cancel(ring, 1, 1);
	put_fast(ring, 2, 0, 0, 64, 128);
	assert_int_equal(rbk_submit(ring), 3);
	take_all(ring, 3, results);
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], -ENOENT);
	assert_int_equal(results[2], 0);
	rbk_ring_free(ring);
}

/* ---- BARRIER ---- */

TEST(test_barrier__orders, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	unsigned int n_before = 0;
	struct rbk_cqe cqe;
	struct rbk_sqe *sqe;

	for (unsigned int round = 0; round < 10; round++) {
		for (unsigned int i = 0; i < 8; i++)
			put_slow(ring, i, 0);
		sqe = rbk_get_sqe(ring);
		rbk_prep_barrier(sqe);
		rbk_sqe_set_data64(sqe, 100);
		for (unsigned int i = 0; i < 8; i++)
			put_fast(ring, 200 + i, 0, 0, 64, 128);
		assert_int_equal(rbk_submit(ring), 17);
		n_before = 0;
		for (unsigned int i = 0; i < 17; i++) {
			cqe = take(ring);
			assert_int_equal(cqe.res, 0);
			if (i < 8)
				assert_true(cqe.user_data < 8);
			else if (i == 8)
				assert_int_equal(cqe.user_data, 100);
			else
				assert_true(cqe.user_data >= 200);
			n_before += cqe.user_data < 8;
		}
		assert_int_equal(n_before, 8);
	}
	rbk_ring_free(ring);
}

/* ---- Argument tables ---- */

TEST(test_table__up_to_64_references, begin, end)
{
	static const unsigned int counts[] = {6, 17, 64};
	const uint32_t dims[] = {SMALL};
	struct rbk_ring *ring = make_ring(16);

	for (unsigned int k = 0; k < 3; k++) {
		unsigned int n = counts[k], in[64], out;
		struct rbk_builder *b = rbk_builder_new("table");
		struct rbk_plan *plan = NULL;
		uint64_t *table = (uint64_t *)at(1 << 20);
		char name[16];

		for (unsigned int i = 0; i + 1 < n; i++) {
			snprintf(name, sizeof(name), "in%u", i);
			in[i] = rbk_builder_input(b, name, RBK_DTYPE_F32, 1, dims);
			for (unsigned int e = 0; e < SMALL; e++)
				at(i * 64ull)[e] = (float)(i + e);
			table[i] = rbk_arena_ref(arena, i * 64ull);
		}
		out = rbk_builder_output(b, "out", RBK_DTYPE_F32, 1, dims);
		table[n - 1] = rbk_arena_ref(arena, 8192);
		/* in0 + in1 + in2 + ... */
		for (unsigned int i = 1, sum = in[0], next; i + 1 < n; i++) {
			snprintf(name, sizeof(name), "sum%u", i);
			next = i + 2 < n ? rbk_builder_scratch(b, name, RBK_DTYPE_F32, 1, dims)
					 : out;
			rbk_builder_binary(b, "Add", sum, in[i], next);
			sum = next;
		}
		assert_int_equal(rbk_plan_new(rbk, b, 1, &plan, NULL), 0);
		rbk_builder_free(b);
		memset(at(8192), 0x7f, 64);
		rbk_prep_run_table(rbk_get_sqe(ring), rbk_plan_id(plan), 1,
				   rbk_arena_ref(arena, 1 << 20), n);
		assert_int_equal(rbk_submit(ring), 1);
		assert_int_equal(take(ring).res, 0);
		for (unsigned int e = 0; e < SMALL; e++)
			assert_true(at(8192)[e] == (float)((n - 1) * (n - 2) / 2 + (n - 1) * e));
		rbk_prep_run_table(rbk_get_sqe(ring), rbk_plan_id(plan), 1,
				   rbk_arena_ref(arena, 1 << 20), n - 1);
		assert_int_equal(rbk_submit(ring), 1);
		assert_int_equal(take(ring).res, -EINVAL);
		rbk_plan_free(plan);
	}
	rbk_ring_free(ring);
}

/* ---- States ---- */

TEST(test_state__in_place, begin, end)
{
	const uint32_t dims[] = {SMALL};
	struct rbk_builder *b = rbk_builder_new("accumulate");
	unsigned int s = rbk_builder_state(b, "s", RBK_DTYPE_F32, 1, dims);
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 1, dims);
	struct rbk_ring *ring = make_ring(64);
	struct rbk_plan *plan = NULL;
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, 64)};

	rbk_builder_binary(b, "Add", s, x, s);
	assert_int_equal(rbk_plan_new(rbk, b, 1, &plan, NULL), 0);
	rbk_builder_free(b);
	for (unsigned int i = 0; i < SMALL; i++) {
		at(0)[i] = 0.0f;
		at(64)[i] = (float)i;
	}
	for (unsigned int i = 0; i < 50; i++) {
		rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(plan), 1, refs, 2);
		assert_int_equal(rbk_submit(ring), 1);
		assert_int_equal(take(ring).res, 0);
	}
	for (unsigned int i = 0; i < SMALL; i++)
		assert_true(at(0)[i] == 50.0f * (float)i);
	rbk_plan_free(plan);
	rbk_ring_free(ring);
}

/* ---- Removed while in use ---- */

TEST(test_remove__plan_in_use, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	struct rbk_plan *plan = make_slow();
	uint32_t id = rbk_plan_id(plan);
	const uint64_t refs[] = {rbk_arena_ref(arena, SLOW_AT), rbk_arena_ref(arena, 2 << 20),
				 rbk_arena_ref(arena, 4 << 20)};
	int results[32];

	for (unsigned int i = 0; i < 32; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		rbk_prep_run(sqe, id, n_rows, refs, 3);
		rbk_sqe_set_data64(sqe, i);
	}
	assert_int_equal(rbk_submit(ring), 32);
	while (rbk_sq_ready(ring))
		usleep(50);
	/* The removal is answered after the plan's last task; all of its tasks succeed. */
	rbk_plan_free(plan);
	take_all(ring, 32, results);
	for (unsigned int i = 0; i < 32; i++)
		assert_int_equal(results[i], 0);
	rbk_prep_run(rbk_get_sqe(ring), id, 1, refs, 3);
	assert_int_equal(rbk_submit(ring), 1);
	assert_int_equal(take(ring).res, -ENOENT);
	rbk_ring_free(ring);
}

TEST(test_remove__arena_in_use, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	struct rbk_arena *other = NULL;
	uint64_t out, refs[3];
	int results[32];

	assert_int_equal(rbk_arena_new(rbk, 2 << 20, &other, NULL), 0);
	out = rbk_arena_ref(other, 0);
	refs[0] = rbk_arena_ref(arena, SLOW_AT);
	refs[1] = rbk_arena_ref(arena, 2 << 20);
	refs[2] = out;
	for (unsigned int i = 0; i < 32; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		rbk_prep_run(sqe, rbk_plan_id(slow), n_rows, refs, 3);
		rbk_sqe_set_data64(sqe, i);
	}
	assert_int_equal(rbk_submit(ring), 32);
	while (rbk_sq_ready(ring))
		usleep(50);
	rbk_arena_free(other);
	take_all(ring, 32, results);
	for (unsigned int i = 0; i < 32; i++)
		assert_int_equal(results[i], 0);
	rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(slow), 1, refs, 3);
	assert_int_equal(rbk_submit(ring), 1);
	assert_int_equal(take(ring).res, -EBADF);
	rbk_ring_free(ring);
}

TEST(test_remove__ring_in_use, begin, end)
{
	struct rbk_ring *ring = make_ring(64), *other = make_ring(64);
	int results[4];

	for (unsigned int i = 0; i < 64; i++)
		put_slow(ring, i, i % 2 ? 0 : RBK_SQE_LINK);
	assert_int_equal(rbk_submit(ring), 64);
	rbk_ring_free(ring);
	/* The other ring still works. */
	for (unsigned int i = 0; i < 4; i++)
		put_slow(other, i, 0);
	assert_int_equal(rbk_submit(other), 4);
	take_all(other, 4, results);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(results[i], 0);
	rbk_ring_free(other);
}

/* ---- Deadlines ---- */

TEST(test_deadline__missed, begin, end)
{
	struct rbk_ring *ring = make_ring(64);
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < 8; i++)
		rbk_sqe_set_deadline_us(put_slow(ring, i, 0), i == 7 ? 1 : 3600000000u);
	assert_int_equal(rbk_submit(ring), 8);
	for (unsigned int i = 0; i < 8; i++) {
		cqe = take(ring);
		assert_fields(cqe, (res, 0),
			      (flags, cqe.user_data == 7 ? RBK_CQE_DEADLINE_MISSED : 0));
		assert_true(cqe.exec_ns > 0);
	}
	rbk_ring_free(ring);
}

/* ---- Full rings ---- */

/*
 * A hundred times more tasks than the ring holds. No completion is consumed before the ring is
 * full. Each task completes once.
 */
TEST(test_full__completions_are_never_dropped, begin, end)
{
	enum { ENTRIES = 16, TOTAL = 1600 };
	const unsigned int n_total = (unsigned int)test_scaled(TOTAL);
	struct rbk_ring *ring = make_ring(ENTRIES);
	unsigned int n_put = 0, n_done = 0;
	static uint8_t seen[TOTAL];
	struct rbk_cqe cqe;

	memset(seen, 0, sizeof(seen));
	while (n_done < n_total) {
		struct rbk_sqe *sqe;

		/* 16 completions not yet consumed, and 16 entries in the submission ring. */
		for (unsigned int idle = 0; idle < 3 && n_put < n_total;) {
			sqe = rbk_get_sqe(ring);
			if (!sqe) {
				rbk_submit(ring);
				usleep(200);
				idle++;
				continue;
			}
			rbk_prep_nop(sqe);
			rbk_sqe_set_data64(sqe, n_put++);
		}
		assert_true(rbk_submit(ring) >= 0);
		assert_true(n_put - n_done <= 2 * ENTRIES);
		assert_true(rbk_cq_ready(ring) <= ENTRIES);
		for (unsigned int i = 0; i < 1 + n_done % 40 && n_done < n_put; i++) {
			cqe = take(ring);
			assert_true(cqe.user_data < n_total);
			assert_int_equal(seen[cqe.user_data]++, 0);
			n_done++;
		}
	}
	rbk_ring_free(ring);
}

TEST(test_full__saturated, begin, end)
{
	enum { ENTRIES = 128, TOTAL = 2000 };
	const unsigned int n_total = (unsigned int)test_scaled(TOTAL);
	struct rbk_ring *ring = make_ring(ENTRIES);
	unsigned int n_put = 0, n_done = 0;
	static uint8_t seen[TOTAL];
	struct rbk_sqe *sqe;
	struct rbk_cqe cqe;
	const uint64_t refs[] = {rbk_arena_ref(arena, SLOW_AT), rbk_arena_ref(arena, 2 << 20),
				 rbk_arena_ref(arena, 4 << 20)};

	memset(seen, 0, sizeof(seen));
	while (n_done < n_total) {
		while (n_put < n_total && (sqe = rbk_get_sqe(ring))) {
			rbk_prep_run(sqe, rbk_plan_id(slow), 32, refs, 3);
			rbk_sqe_set_data64(sqe, n_put++);
		}
		assert_true(rbk_submit(ring) >= 0);
		cqe = take(ring);
		assert_int_equal(cqe.res, 0);
		assert_int_equal(seen[cqe.user_data]++, 0);
		n_done++;
	}
	rbk_ring_free(ring);
}

/* ---- Threads, event loops, processes ---- */

struct worker {
	unsigned int number;
	bool failed;
};

static void *use_own_ring(void *data)
{
	const uint64_t n_rounds = test_scaled(2000);
	struct worker *worker = data;
	uint64_t base = (8ull << 20) + worker->number * 4096ull;
	struct rbk_ring *ring = NULL;
	const struct rbk_cqe *cqe;

	worker->failed = rbk_ring_new(rbk, 32, &ring, NULL) != 0;
	for (uint64_t i = 0; i < n_rounds && !worker->failed; i++) {
		const uint64_t refs[] = {rbk_arena_ref(arena, base),
					 rbk_arena_ref(arena, base + 64),
					 rbk_arena_ref(arena, base + 128)};

		at(base)[5] = (float)i;
		at(base + 64)[5] = (float)worker->number;
		rbk_prep_run(rbk_get_sqe(ring), rbk_plan_id(fast), 1, refs, 3);
		worker->failed |= rbk_submit_and_wait(ring, 1) != 1;
		worker->failed |= rbk_peek_cqe(ring, &cqe) != 0 || cqe->res != 0;
		if (!worker->failed)
			rbk_cqe_seen(ring, cqe);
		worker->failed |= at(base + 128)[5] != (float)(i + worker->number);
	}
	rbk_ring_free(ring);
	return NULL;
}

TEST(test_threads__a_ring_each, begin, end)
{
	enum { N_THREADS = 6 };
	struct worker workers[N_THREADS];
	pthread_t threads[N_THREADS];

	for (unsigned int i = 0; i < N_THREADS; i++) {
		workers[i] = (struct worker){.number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, use_own_ring, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_false(workers[i].failed);
	}
}

TEST(test_event_loop__epoll, begin, end)
{
	struct rbk_ring *ring = make_ring(32);
	int epoll = epoll_create1(EPOLL_CLOEXEC), r;
	struct epoll_event event = {.events = EPOLLIN};
	unsigned int n_done = 0, n_put = 0;
	const struct rbk_cqe *cqe;

	assert_true(epoll >= 0);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, rbk_ring_fd(ring), &event), 0);
	while (n_done < 200) {
		while ((r = rbk_peek_cqe(ring, &cqe)) == 0) {
			assert_int_equal(cqe->res, 0);
			rbk_cqe_seen(ring, cqe);
			n_done++;
		}
		assert_int_equal(r, -EAGAIN);
		for (; n_put < 200 && n_put - n_done < 3; n_put++) {
			put_slow(ring, n_put, 0);
			assert_int_equal(rbk_submit(ring), 1);
		}
		if (n_done < 200 && rbk_ring_arm(ring) == 0)
			assert_int_equal(epoll_wait(epoll, &event, 1, 20000), 1);
	}
	close(epoll);
	rbk_ring_free(ring);
}

TEST(test_fork__child_is_told, begin, end)
{
	struct rbk_ring *ring = make_ring(32);
	const struct rbk_cqe *cqe;
	struct rbk_stats stats;
	int status;
	pid_t pid;

	put_fast(ring, 7, 0, 0, 64, 128);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool told = rbk_submit(ring) == -ECHILD && rbk_get_sqe(ring) == NULL &&
			    rbk_peek_cqe(ring, &cqe) == -ECHILD &&
			    rbk_stats(rbk, &stats) == -ECHILD;

		rbk_ring_free(ring);
		_exit(told ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(rbk_submit(ring), 1);
	assert_int_equal(take(ring).user_data, 7);
	rbk_ring_free(ring);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(110))
