/* SPDX-License-Identifier: MIT */
/*
 * ledger: the cost of charging memory and of residency decisions
 *
 * Hot: a task's path through admission, placement, an executor that completes it at once, and
 * completion, all on one thread, in batches. The measured side is a device with memory: residency
 * has charged and loaded the plan, and the dispatcher counts wanted plans and tasks in flight. One
 * baseline is a device without memory, which residency does not manage. The other is the CPU's
 * queue, whose tasks are not counted as wanted. Target: at most 10 ns more than on the CPU's queue.
 *
 * Cold, for information, beside the cheapest system call: one charge and its refund; one review of
 * all plans with half of them resident and the other half waiting for memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ringbroker.h>

#include "bench.h"
#include "dispatch/dispatch-private.h"
#include "memory/residency-private.h"
#include "model-broker.h"
#include "plans.h"
#include "tenant/account.h"
#include "util/clock.h"

enum {
	BATCH = 64,
	MAX_PLANS = 1000,
	PLAN_FLOATS = 1024,
	PLAN_BYTES = PLAN_FLOATS * sizeof(float),
	CHARGES = 64,
};

struct side {
	struct bench_env *env;
	struct model_broker *broker;
	struct rbk *rbk;
	struct rbk_ring *ring;
	struct rbk_arena *constants, *arena;
	struct rbk_plan **plans;
	unsigned int n_plans;
	unsigned int strategy;
	unsigned int plan; /* index of the plan that tasks run */
	uint8_t device;    /* device that tasks must run on */
};

/* Add the plan y = x + c, where the constant c is one page that no other plan shares. */
static int add_plan(struct side *side, struct rbk_builder *builder, unsigned int number,
		    struct rbk_error *error)
{
	const uint32_t dims[1] = {PLAN_FLOATS};
	unsigned int x, y, constant;

	x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 1, dims);
	constant = rbk_builder_constant(builder, "c", RBK_DTYPE_F32, 1, dims, side->constants,
					(uint64_t)number * PLAN_BYTES);
	y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, 1, dims);
	rbk_builder_binary(builder, "Add", x, constant, y);
	return rbk_plan_new(side->rbk, builder, 1, &side->plans[number], error);
}

/*
 * Start the ring. The broker reads a ring's entries after its first doorbell, which the broker's
 * loop receives; rounds run without the loop.
 */
static int begin_ring(struct side *side)
{
	const struct rbk_cqe *cqe;
	int r;

	rbk_prep_nop(rbk_get_sqe(side->ring));
	r = rbk_submit(side->ring);
	/* The model's broker does not wake clients. */
	while (r >= 0 && (r = rbk_peek_batch_cqe(side->ring, &cqe, 1)) == 0)
		usleep(20);
	if (r < 0)
		return r;
	rbk_cq_advance(side->ring, 1);
	return 0;
}

static int connect_client(void *data)
{
	struct side *side = data;
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = model_broker_socket(side->broker),
		.name = "brokerbench",
	};
	struct rbk_error error = {"out of memory"};
	int r;

	side->plans = calloc(side->n_plans, sizeof(*side->plans));
	if (!side->plans)
		return bench_fail(side->env, -ENOMEM, "no plans");
	r = rbk_connect(&options, &side->rbk, &error);
	if (!r)
		r = rbk_ring_new(side->rbk, 2 * BATCH, &side->ring, &error);
	if (!r)
		r = rbk_arena_new(side->rbk, 2 * PLAN_BYTES, &side->arena, &error);
	if (!r)
		r = rbk_arena_new(side->rbk, (uint64_t)side->n_plans * PLAN_BYTES, &side->constants,
				  &error);
	if (!r)
		r = rbk_arena_seal(side->constants, &error);
	for (unsigned int i = 0; i < side->n_plans && !r; i++) {
		struct rbk_builder *builder = rbk_builder_new("bench-ledger");

		r = builder ? add_plan(side, builder, i, &error) : -ENOMEM;
		rbk_builder_free(builder);
	}
	if (r)
		return bench_refused(side->env, r, error.text);
	r = begin_ring(side);
	return r ? bench_fail(side->env, r, "cannot start the ring") : 0;
}

static int disconnect_client(void *data)
{
	struct side *side = data;

	for (unsigned int i = 0; i < side->n_plans && side->plans; i++)
		rbk_plan_free(side->plans[i]);
	free(side->plans);
	rbk_arena_free(side->constants);
	rbk_arena_free(side->arena);
	rbk_ring_free(side->ring);
	rbk_disconnect(side->rbk);
	return 0;
}

static void side_deinit(struct side *side)
{
	if (!side->broker)
		return;
	model_broker_serve(side->broker, disconnect_client, side);
	model_broker_free(side->broker);
}

/* Initialize a side; @memory_bytes 0: a device without memory. */
static int side_init(struct side *side, struct bench_env *env, uint64_t memory_bytes,
		     unsigned int n_plans, unsigned int strategy)
{
	const struct model_broker_options options = {
		.devices = {{.name = "model CPU"},
			    {.name = "model card",
			     .memory_bytes = memory_bytes,
			     .bus_bytes_per_s = 1000000000000u}},
		.n_devices = 2,
	};
	int r;

	*side = (struct side){
		.env = env,
		.n_plans = n_plans,
		.strategy = strategy,
		.device = strategy == RBK_STRATEGY_ONLY_CPU ? RBK_DEVICE_CPU : RBK_DEVICE_GPU,
	};
	r = model_broker_new(&options, &side->broker);
	if (r)
		return bench_fail(env, r, "cannot make a broker");
	return model_broker_serve(side->broker, connect_client, side);
}

/* Rounds */

static int take_completions(struct side *side, unsigned int n)
{
	struct dispatch *dispatch = model_broker_dispatch(side->broker);
	struct dispatch_ring *hostile = NULL;
	const struct rbk_cqe *cqes[BATCH];
	int taken;

	while (n > 0) {
		dispatch_work(dispatch, &hostile);
		/* done by the loop otherwise, which rounds leave out */
		turn_end(dispatch->turn);
		taken = rbk_peek_batch_cqe(side->ring, cqes, BATCH);
		if (taken < 0)
			return taken;
		for (int i = 0; i < taken; i++)
			if (cqes[i]->res || cqes[i]->device != side->device)
				return -EPROTO;
		rbk_cq_advance(side->ring, (unsigned int)taken);
		n -= (unsigned int)taken;
	}
	dispatch->flush_mask = 0;
	return 0;
}

static int run_batch(struct side *side)
{
	const uint64_t refs[2] = {rbk_arena_ref(side->arena, 0),
				  rbk_arena_ref(side->arena, PLAN_BYTES)};
	struct rbk_sqe *sqe;
	int r;

	for (unsigned int i = 0; i < BATCH; i++) {
		sqe = rbk_get_sqe(side->ring);
		rbk_prep_run(sqe, rbk_plan_id(side->plans[side->plan]), 1, refs, 2);
		rbk_sqe_set_strategy(sqe, side->strategy);
	}
	r = rbk_submit(side->ring);
	return r < 0 ? r : take_completions(side, BATCH);
}

static int task_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(budget_ns), start, end;
	struct side *side = data;
	int r;

	r = samples_reserve(samples, budget_ns / 1000 + 2);
	for (unsigned int i = 0; i < 4 && !r; i++)
		r = run_batch(side);
	do {
		start = clock_ticks();
		if (!r)
			r = run_batch(side);
		end = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(start, end) / BATCH);
	} while (!r && end < end_ticks && samples_room(samples) > 0);
	return r;
}

static int review_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(budget_ns), start, end;
	struct side *side = data;
	struct residency *residency = model_broker_residency(side->broker);
	int r;

	r = samples_reserve(samples, budget_ns / 1000 + 2);
	if (r)
		return r;
	residency_review(residency);
	do {
		start = clock_ticks();
		residency_review(residency);
		end = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(start, end));
	} while (end < end_ticks && samples_room(samples) > 0);
	return 0;
}

static int charge_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(budget_ns), start, end;
	struct account *account = data;
	struct charge charge = CHARGE_INIT;
	int r;

	r = samples_reserve(samples, budget_ns / 100 + 2);
	do {
		start = clock_ticks();
		for (unsigned int i = 0; i < CHARGES && !r; i++) {
			r = account_charge(account, &charge, account_vram(RBK_DEVICE_GPU), i);
			charge_deinit(&charge);
		}
		end = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(start, end) / CHARGES);
	} while (!r && end < end_ticks && samples_room(samples) > 0);
	return r > 0 ? -EDQUOT : r;
}

static int call_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ticks = clock_ticks() + clock_ns_to_ticks(budget_ns), start, end;
	int r;

	r = samples_reserve(samples, budget_ns / 100 + 2);
	if (r)
		return r;
	do {
		start = clock_ticks();
		for (unsigned int i = 0; i < CHARGES; i++)
			syscall(SYS_getppid);
		end = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(start, end) / CHARGES);
	} while (end < end_ticks && samples_room(samples) > 0);
	return 0;
}

/* Rows */

static int run_tasks(struct bench_env *env)
{
	const struct bench_row no_memory = {"task on a device", "ns", false,
					    "device-without-memory"};
	const struct bench_row cpu = {"task on a device", "ns", false, "cpu-queue"};
	const struct bench_row lacking = {"task that lacks memory", "ns", false, "cpu-queue"};
	struct side managed = {0}, bare = {0}, queue = {0}, full = {0};
	int r;

	/*
	 * Prefer the GPU: the CPU could run the task, too, and AUTO would choose it after a delay
	 * of this process.
	 */
	r = side_init(&managed, env, 16 * PLAN_BYTES, 1, RBK_STRATEGY_PREFER_GPU);
	if (!r)
		r = side_init(&bare, env, 0, 1, RBK_STRATEGY_PREFER_GPU);
	if (!r)
		r = side_init(&queue, env, 16 * PLAN_BYTES, 1, RBK_STRATEGY_ONLY_CPU);
	/* The first of two plans fills the memory. */
	if (!r)
		r = side_init(&full, env, PLAN_BYTES * 3 / 2, 2, RBK_STRATEGY_PREFER_GPU);
	full.plan = 1;
	full.device = RBK_DEVICE_CPU;
	if (!r)
		r = bench_compare(env, &no_memory, (struct bench_side){task_round, &managed},
				  (struct bench_side){task_round, &bare});
	if (!r)
		r = bench_compare(env, &cpu, (struct bench_side){task_round, &managed},
				  (struct bench_side){task_round, &queue});
	if (!r)
		r = bench_compare(env, &lacking, (struct bench_side){task_round, &full},
				  (struct bench_side){task_round, &queue});
	if (r == -EPROTO)
		bench_fail(env, r, "a task failed, or ran elsewhere");
	side_deinit(&full);
	side_deinit(&queue);
	side_deinit(&bare);
	side_deinit(&managed);
	return r;
}

static int run_charge(struct bench_env *env)
{
	const struct bench_row row = {"charge and undo", "ns", false, "getppid"};
	struct account_limits limits;
	struct account_book *book = NULL;
	struct account *account = NULL;
	int r;

	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		limits.max[slot] = 1u << 30;
	r = account_book_new(&book);
	if (!r)
		r = account_new(book, "bench", &limits, &account);
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){charge_round, account},
				  (struct bench_side){call_round, NULL});
	account_unref(account);
	account_book_free(book);
	return r ? bench_fail(env, r, "cannot charge") : 0;
}

static int run_review(struct bench_env *env, unsigned int n_plans)
{
	struct side side = {0};
	char params[32];
	const struct bench_row row = {params, "ns", false, "getppid"};
	int r;

	snprintf(params, sizeof(params), "review of %u plans", n_plans);
	/* Besides the headroom there is room for half of the plans. */
	r = side_init(&side, env, (uint64_t)n_plans / 2 * PLAN_BYTES * 20 / 19, n_plans,
		      RBK_STRATEGY_AUTO);
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){review_round, &side},
				  (struct bench_side){call_round, NULL});
	side_deinit(&side);
	return r;
}

static int run(struct bench_env *env)
{
	int r;

	bench_pin(env, env->client_cpu);
	r = run_tasks(env);
	if (!r)
		r = run_charge(env);
	if (!r)
		r = run_review(env, 100);
	if (!r)
		r = run_review(env, MAX_PLANS);
	return r;
}

const struct bench bench_ledger = {
	.name = "ledger",
	.summary = "a task on a device whose memory is managed (target: +10 ns); charging; reviews",
	.baseline = "the same on a device without memory, and on the CPU's queue; a system call",
	.run = run,
};
