/* SPDX-License-Identifier: MIT */
/*
 * The neighbour: a client that must not notice what other clients do
 *
 * Its results are compared with a plain product of its own, summed in double precision. Each task's
 * output is overwritten before the task, so that a completion without a result shows.
 */
#include "integration/harness.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum {
	N_IN = 64,
	N_OUT = 32,
	MAX_COUNT = 256,
	IN_FLIGHT = 4, /* tasks per round, each with buffers of its own */
	ROUNDS_AT_ONCE = 8,
	PAUSE_MS = 4, /* after ROUNDS_AT_ONCE rounds */
};

struct neighbour {
	pthread_t thread;
	struct rbk *rbk;
	struct rbk_arena *constants, *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	const float *x[IN_FLIGHT];
	float *y[IN_FLIGHT];
	float *wanted; /* expected output, [MAX_COUNT, N_OUT] */
	_Atomic bool stop;
	_Atomic uint64_t n_results;
	_Atomic uint64_t longest_ns;
	_Atomic bool is_over; /* the thread has ended and writes no more */
	char failure[256];    /* empty if all was right */
};

static void fill(float *data, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		data[i] = (float)(harness_random(&seed) >> 40) / (float)(1 << 23) - 1.0f;
}

static void prepare_plan(struct neighbour *n, uint64_t weight_at, uint64_t bias_at)
{
	const uint32_t in_dims[] = {RBK_DIM_COUNT, N_IN}, out_dims[] = {RBK_DIM_COUNT, N_OUT};
	const uint32_t weight_dims[] = {N_IN, N_OUT}, bias_dims[] = {N_OUT};
	struct rbk_error error = {"no sentence"};
	struct rbk_builder *b = rbk_builder_new("neighbour");
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, in_dims);
	unsigned int w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, weight_dims, n->constants,
					      weight_at);
	unsigned int bias =
		rbk_builder_constant(b, "b", RBK_DTYPE_F32, 1, bias_dims, n->constants, bias_at);
	unsigned int product = rbk_builder_scratch(b, "p", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	unsigned int y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, out_dims);

	rbk_builder_binary(b, "MatMul", x, w, product);
	rbk_builder_binary(b, "Add", product, bias, y);
	if (rbk_plan_new(n->rbk, b, MAX_COUNT, &n->plan, &error))
		fail_msg("the neighbour's plan: %s", error.text);
	rbk_builder_free(b);
}

/* Submit task @slot over @count rows. */
static void submit(struct neighbour *n, unsigned int slot, uint32_t count)
{
	const uint64_t refs[] = {rbk_ref(n->arena, n->x[slot]), rbk_ref(n->arena, n->y[slot])};
	struct rbk_sqe *sqe = rbk_get_sqe(n->ring);

	memset(n->y[slot], 0x7f, sizeof(float) * MAX_COUNT * N_OUT);
	rbk_prep_run(sqe, rbk_plan_id(n->plan), count, refs, 2);
	rbk_sqe_set_data64(sqe, (uint64_t)slot << 32 | count);
}

/* Return true if the completion and its output are right. */
static bool check(struct neighbour *n, const struct rbk_cqe *cqe)
{
	unsigned int slot = (unsigned int)(cqe->user_data >> 32);
	uint32_t count = (uint32_t)cqe->user_data;

	if (cqe->res || slot >= IN_FLIGHT || count > MAX_COUNT) {
		snprintf(n->failure, sizeof(n->failure), "a completion says %d", cqe->res);
		return false;
	}
	for (uint32_t i = 0; i < count * N_OUT; i++) {
		if (fabsf(n->y[slot][i] - n->wanted[i]) <= 1e-4f)
			continue;
		snprintf(n->failure, sizeof(n->failure), "element %u of %u rows is %g, not %g", i,
			 count, (double)n->y[slot][i], (double)n->wanted[i]);
		return false;
	}
	n->n_results++;
	return true;
}

static void run(struct neighbour *n)
{
	uint64_t seed = 88172645463325252u, started_ns = harness_now_ns(), ended_ns;
	const struct rbk_cqe *cqe;
	int r;

	for (uint64_t round = 1; !n->stop; round++) {
		for (unsigned int i = 0; i < IN_FLIGHT; i++)
			submit(n, i, 1 + (uint32_t)(harness_random(&seed) >> 20) % MAX_COUNT);
		r = rbk_submit(n->ring);
		for (unsigned int i = 0; i < IN_FLIGHT && r >= 0; i++) {
			r = rbk_wait_cqe_timeout(n->ring, &cqe, 60000000000);
			if (r == 0 && !check(n, cqe))
				return;
			if (r == 0)
				rbk_cqe_seen(n->ring, cqe);
		}
		if (r < 0) {
			snprintf(n->failure, sizeof(n->failure), "a wait ended with: %s",
				 strerror(-r));
			return;
		}
		ended_ns = harness_now_ns();
		if (ended_ns - started_ns > n->longest_ns)
			n->longest_ns = ended_ns - started_ns;
		/*
		 * Without pauses the neighbour and the broker would take both processors of a small
		 * machine from the test, and use them for as long as it runs.
		 */
		if (round % ROUNDS_AT_ONCE == 0)
			harness_sleep_ms(PAUSE_MS);
		started_ns = harness_now_ns();
	}
}

static void *run_thread(void *data)
{
	struct neighbour *n = data;

	run(n);
	n->is_over = true;
	return NULL;
}

struct neighbour *neighbour_start(const struct broker *broker)
{
	struct neighbour *n = calloc(1, sizeof(*n));
	float *weight, *bias, *first = NULL;
	uint64_t weight_at, bias_at;

	assert_non_null(n);
	n->rbk = broker_connect(broker, "neighbour");
	assert_int_equal(rbk_arena_new(n->rbk, 65536, &n->constants, NULL), 0);
	weight = rbk_arena_alloc(n->constants, sizeof(float) * N_IN * N_OUT);
	bias = rbk_arena_alloc(n->constants, sizeof(float) * N_OUT);
	fill(weight, N_IN * N_OUT, 1);
	fill(bias, N_OUT, 2);
	weight_at = (uint64_t)((char *)weight - (char *)rbk_arena_data(n->constants));
	bias_at = (uint64_t)((char *)bias - (char *)rbk_arena_data(n->constants));
	assert_int_equal(rbk_arena_seal(n->constants, NULL), 0);

	assert_int_equal(rbk_arena_new(n->rbk, 1 << 20, &n->arena, NULL), 0);
	for (unsigned int i = 0; i < IN_FLIGHT; i++) {
		float *x = rbk_arena_alloc(n->arena, sizeof(float) * MAX_COUNT * N_IN);

		n->y[i] = rbk_arena_alloc(n->arena, sizeof(float) * MAX_COUNT * N_OUT);
		assert_non_null(n->y[i]);
		fill(x, (size_t)MAX_COUNT * N_IN, 3);
		n->x[i] = x;
		first = first ? first : x;
	}
	n->wanted = malloc(sizeof(float) * MAX_COUNT * N_OUT);
	assert_non_null(n->wanted);
	for (unsigned int row = 0; row < MAX_COUNT; row++) {
		for (unsigned int col = 0; col < N_OUT; col++) {
			double sum = bias[col];

			for (unsigned int k = 0; k < N_IN; k++)
				sum += (double)first[row * N_IN + k] *
				       (double)weight[k * N_OUT + col];
			n->wanted[row * N_OUT + col] = (float)sum;
		}
	}
	prepare_plan(n, weight_at, bias_at);
	assert_int_equal(rbk_ring_new(n->rbk, 16, &n->ring, NULL), 0);
	assert_int_equal(pthread_create(&n->thread, NULL, run_thread, n), 0);
	for (unsigned int i = 0; i < 10000 && n->n_results == 0 && !n->is_over; i++)
		harness_sleep_ms(1);
	return n;
}

uint64_t neighbour_results(const struct neighbour *n)
{
	return n->n_results;
}

void neighbour_finish_round(const struct neighbour *n)
{
	/* The rest of the current round, and one whole round. */
	const uint64_t n_wanted = n->n_results + 2 * IN_FLIGHT;

	while (n->n_results < n_wanted && !n->is_over)
		harness_sleep_ms(1);
}

uint64_t neighbour_take_longest_ns(struct neighbour *n)
{
	return atomic_exchange(&n->longest_ns, 0);
}

struct neighbour *neighbour_stop(struct neighbour *n)
{
	if (!n)
		return NULL;
	n->stop = true;
	pthread_join(n->thread, NULL);
	if (n->failure[0])
		fail_msg("the neighbour noticed: %s, after %llu results", n->failure,
			 (unsigned long long)n->n_results);
	assert_true(n->n_results > 0);
	rbk_ring_free(n->ring);
	rbk_plan_free(n->plan);
	rbk_arena_free(n->arena);
	rbk_arena_free(n->constants);
	rbk_disconnect(n->rbk);
	free(n->wanted);
	free(n);
	return NULL;
}
