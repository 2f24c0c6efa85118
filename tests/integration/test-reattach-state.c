/* SPDX-License-Identifier: MIT */
/*
 * Brokers that die while tasks update states
 *
 * A task adds its input to a state, and then computes for some time, so that most deaths find tasks
 * which have updated their state and have not completed. The client knows nothing of the deaths: no
 * task fails, and each state is what it is after each update was applied once.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "integration/harness.h"
#include "support/scaled.h"
#include "support/test.h"

enum {
	ROWS = 32,
	WIDTH = 64,
	N_ELEMS = ROWS * WIDTH, /* of a state, of an input and of an output */
	N_SHIFTS = 6,           /* an output is the state, shifted by so many columns */
	N_STATES = 4,
	CHAIN = 4, /* linked updates of each state, which are submitted together */
	N_KINDS = 1 + 2 * CHAIN,
	WRAP = 4096, /* elements stay integers that are exact */
};

struct client {
	pthread_t thread;
	const char *socket_path;
	bool prefers_gpu; /* for every other state */
	atomic_bool must_end, has_ended;
	char failure[256]; /* empty: none */
	_Atomic uint64_t n_done;
	unsigned int n_reattached;
};

struct work {
	struct client *client;
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	float *shift; /* the matrix that shifts by one column */
	float *states[N_STATES], *inputs[N_STATES][CHAIN], *outputs[N_STATES][CHAIN];
	float expected[N_STATES];
	uint64_t random;
};

static bool failed(struct work *work, const char *what, long long a, long long b)
{
	if (!work->client->failure[0])
		snprintf(work->client->failure, sizeof(work->client->failure), "%s (%lld, %lld)",
			 what, a, b);
	return false;
}

/* Make s = Relu(s + x), y = s shifted by N_SHIFTS columns. */
static int make_plan(struct work *work, struct rbk_error *error)
{
	const uint32_t dims[] = {ROWS, WIDTH}, square[] = {WIDTH, WIDTH};
	struct rbk_builder *b = rbk_builder_new("running sum");
	unsigned int s = rbk_builder_state(b, "s", RBK_DTYPE_F32, 2, dims);
	unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims);
	unsigned int m = rbk_builder_input(b, "shift", RBK_DTYPE_F32, 2, square);
	unsigned int y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
	unsigned int u = rbk_builder_scratch(b, "sum", RBK_DTYPE_F32, 2, dims), v;
	char name[16];
	int r;

	rbk_builder_binary(b, "Add", s, x, u);
	rbk_builder_node(b, "Relu", "", &u, 1, &s, 1);
	for (unsigned int i = 1; i <= N_SHIFTS; i++) {
		snprintf(name, sizeof(name), "shifted %u", i);
		v = i < N_SHIFTS ? rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, dims) : y;
		rbk_builder_binary(b, "MatMul", u, m, v);
		u = v;
	}
	r = rbk_plan_new(work->rbk, b, 1, &work->plan, error);
	rbk_builder_free(b);
	return r;
}

static float *elems(struct work *work, size_t n)
{
	return rbk_arena_alloc(work->arena, n * sizeof(float));
}

static bool work_begin(struct work *work, struct client *client)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = client->socket_path,
	};
	const size_t bytes = (N_STATES * N_KINDS * N_ELEMS + WIDTH * WIDTH) * sizeof(float);
	struct rbk_error error = {""};
	int r;

	*work = (struct work){.client = client, .random = 1};
	r = rbk_connect(&options, &work->rbk, &error);
	if (!r)
		r = rbk_arena_new_flags(work->rbk, bytes, RBK_ARENA_MEMFD, &work->arena, &error);
	if (!r)
		r = make_plan(work, &error);
	if (!r)
		r = rbk_ring_new(work->rbk, 64, &work->ring, &error);
	if (r)
		return failed(work, error.text, r, 0);
	work->shift = elems(work, (size_t)WIDTH * WIDTH);
	for (unsigned int i = 0; i < WIDTH; i++)
		work->shift[i * WIDTH + (i + 1) % WIDTH] = 1;
	for (unsigned int i = 0; i < N_STATES; i++) {
		work->states[i] = elems(work, N_ELEMS);
		for (unsigned int k = 0; k < CHAIN; k++) {
			work->inputs[i][k] = elems(work, N_ELEMS);
			work->outputs[i][k] = elems(work, N_ELEMS);
		}
	}
	return true;
}

static void work_end(struct work *work)
{
	work->client->n_reattached = work->rbk ? rbk_n_reattached(work->rbk) : 0;
	rbk_ring_free(work->ring);
	rbk_plan_free(work->plan);
	rbk_arena_free(work->arena);
	rbk_disconnect(work->rbk);
}

/* Element @i of a state and of its inputs differs from element 0 by a constant. */
static void fill(float *values, float first)
{
	for (unsigned int i = 0; i < N_ELEMS; i++)
		values[i] = first + (float)(i % 16);
}

static bool submit(struct work *work, unsigned int i)
{
	const unsigned int strategy =
		work->client->prefers_gpu && i % 2 ? RBK_STRATEGY_PREFER_GPU : RBK_STRATEGY_AUTO;
	struct rbk_sqe *sqe;

	for (unsigned int k = 0; k < CHAIN; k++) {
		fill(work->inputs[i][k], (float)(harness_random(&work->random) % 16));
		sqe = rbk_get_sqe(work->ring);
		if (!sqe)
			return failed(work, "no entry is free", i, k);
		rbk_prep_run(sqe, rbk_plan_id(work->plan), 1,
			     (const uint64_t[]){rbk_ref(work->arena, work->states[i]),
						rbk_ref(work->arena, work->inputs[i][k]),
						rbk_ref(work->arena, work->shift),
						rbk_ref(work->arena, work->outputs[i][k])},
			     4);
		rbk_sqe_set_data64(sqe, i);
		rbk_sqe_set_strategy(sqe, strategy);
		if (k + 1 < CHAIN)
			sqe->flags |= RBK_SQE_LINK;
	}
	return rbk_submit(work->ring) == CHAIN || failed(work, "rbk_submit()", i, 0);
}

/* Check the state after a chain of updates, and the output of each update. */
static bool check(struct work *work, unsigned int i, const float *before)
{
	float sums[N_ELEMS];

	memcpy(sums, before, sizeof(sums));
	for (unsigned int k = 0; k < CHAIN; k++)
		for (unsigned int e = 0; e < N_ELEMS; e++) {
			const unsigned int row = e / WIDTH, column = e % WIDTH;

			sums[e] += work->inputs[i][k][e];
			if (work->outputs[i][k][row * WIDTH + (column + N_SHIFTS) % WIDTH] !=
			    sums[e])
				return failed(work, "an output is wrong", i, e);
		}
	for (unsigned int e = 0; e < N_ELEMS; e++)
		if (work->states[i][e] != sums[e])
			return failed(work, "a state is wrong", (long long)work->states[i][e],
				      (long long)sums[e]);
	return true;
}

/* Update each state by a chain of tasks. */
static bool do_round(struct work *work)
{
	static float before[N_STATES][N_ELEMS];
	const struct rbk_cqe *cqe;
	int r;

	for (unsigned int i = 0; i < N_STATES; i++) {
		if (work->states[i][0] > WRAP)
			memset(work->states[i], 0, sizeof(before[i]));
		memcpy(before[i], work->states[i], sizeof(before[i]));
		if (!submit(work, i))
			return false;
	}
	for (unsigned int n = 0; n < N_STATES * CHAIN; n++) {
		r = rbk_wait_cqe(work->ring, &cqe);
		if (r)
			return failed(work, "waiting failed", r, 0);
		if (cqe->res)
			return failed(work, "a task failed", (long long)cqe->user_data, cqe->res);
		rbk_cqe_seen(work->ring, cqe);
	}
	for (unsigned int i = 0; i < N_STATES; i++)
		if (!check(work, i, before[i]))
			return false;
	atomic_fetch_add(&work->client->n_done, N_STATES * CHAIN);
	return true;
}

static void *client_run(void *data)
{
	struct client *client = data;
	struct work work;
	bool is_good = work_begin(&work, client);

	while (is_good && !atomic_load(&client->must_end))
		is_good = do_round(&work);
	work_end(&work);
	atomic_store(&client->has_ended, true);
	return NULL;
}

/* Wait until the client has completed more tasks. */
static void await_work(const struct client *client)
{
	const uint64_t n_done = atomic_load(&client->n_done);

	while (atomic_load(&client->n_done) == n_done && !atomic_load(&client->has_ended))
		harness_sleep_ms(1);
}

static void die_often(const char *const *args, unsigned int n_deaths, bool prefers_gpu)
{
	struct broker_options options = {.args = args, .is_undisturbed = true};
	struct client client = {.prefers_gpu = prefers_gpu};
	struct broker first, broker;
	uint64_t random = 1;

	broker_start(&first, &options);
	broker = first;
	options.socket_path = client.socket_path = first.socket_path;
	assert_int_equal(pthread_create(&client.thread, NULL, client_run, &client), 0);
	for (unsigned int i = 0; i < n_deaths; i++) {
		await_work(&client);
		usleep((unsigned int)(harness_random(&random) % 4000));
		broker_kill(&broker);
		if (i > 0)
			broker_remove(&broker);
		broker_start(&broker, &options);
	}
	await_work(&client);
	atomic_store(&client.must_end, true);
	assert_int_equal(pthread_join(client.thread, NULL), 0);
	if (client.failure[0])
		fail_msg("after %llu tasks and %u re-attachments: %s",
			 (unsigned long long)client.n_done, client.n_reattached, client.failure);
	assert_in_range(client.n_reattached, 1, n_deaths);
	print_message("%llu updates, %u re-attachments\n", (unsigned long long)client.n_done,
		      client.n_reattached);
	broker_stop(&broker);
	broker_remove(&first);
}

TEST(test_states__after_kills)
{
	die_often(NULL, (unsigned int)test_scaled(20), false);
}

TEST(test_states__with_a_software_gpu)
{
	die_often((const char *const[]){"--gpu=software", NULL}, (unsigned int)test_scaled(5),
		  true);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(115))
