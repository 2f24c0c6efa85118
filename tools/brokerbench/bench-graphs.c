/* SPDX-License-Identifier: MIT */
/*
 * graphs: a task of a plan that is cut into segments, beside the plan as a whole
 *
 * The plan is a chain of products, or several chains whose results are added, each node a segment
 * of its own, on one worker. Two private brokers prepare it: one cuts plans by --cut, the other
 * does not. The difference is what segments cost: the reactor starts each, and each writes its
 * result where the next one reads it. Of several chains, segments run at once, by a schedule.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <ringbroker.h>

#include "bench.h"
#include "plans.h"
#include "target.h"

enum { NODES = 64, ROWS = 32, MAX_CHAINS = 4 };

/*
 * Equally long chains, a side of the square matrices, and a seed of --cut with which the broker
 * cuts before each node, found by trying seeds until cut_points() yielded NODES - 1 points. The
 * points depend on the plan's fingerprint, too; the benchmark fails if the plan has other than
 * NODES segments.
 */
struct graph {
	uint32_t n_chains, side;
	unsigned int seed;
	const char *params;
};

static const struct graph graphs[] = {
	{1, 64, 9, "layers=64 side=64 rows=32"},
	{1, 128, 27, "layers=64 side=128 rows=32"},
	{1, 256, 19, "layers=64 side=256 rows=32"},
	{1, 512, 4, "layers=64 side=512 rows=32"},
	{4, 64, 27, "layers=16 chains=4 side=64 rows=32"},
	{4, 128, 27, "layers=16 chains=4 side=128 rows=32"},
};

struct chain {
	struct target target;
	struct rbk_arena *constants, *arena;
	struct rbk_plan *plan;
	struct target_task task;
};

/* The description of a plan in the making */
struct maker {
	struct rbk_builder *builder;
	const struct rbk_arena *constants;
	uint32_t side, n_nodes;
};

/* Add a scratch tensor or, with the last node, the output. */
static unsigned int add_tensor(struct maker *maker)
{
	const uint32_t dims[] = {ROWS, maker->side};
	char name[16];

	snprintf(name, sizeof(name), "t%u", maker->n_nodes++);
	return maker->n_nodes == NODES
		       ? rbk_builder_output(maker->builder, "y", RBK_DTYPE_F32, 2, dims)
		       : rbk_builder_scratch(maker->builder, name, RBK_DTYPE_F32, 2, dims);
}

/* Add products of a tensor with @n matrices, one after the other. Return: the last product. */
static unsigned int add_chain(struct maker *maker, unsigned int from, uint32_t n)
{
	const uint32_t square[] = {maker->side, maker->side};
	unsigned int to, w;
	char name[16];

	for (uint32_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "w%u", maker->n_nodes);
		w = rbk_builder_constant(
			maker->builder, name, RBK_DTYPE_F32, 2, square, maker->constants,
			(uint64_t)maker->n_nodes * maker->side * maker->side * sizeof(float));
		to = add_tensor(maker);
		rbk_builder_binary(maker->builder, "MatMul", from, w, to);
		from = to;
	}
	return from;
}

/* Describe y = the sum of what @n_chains chains of products make of x, NODES nodes in all. */
static void describe(struct rbk_builder *b, const struct rbk_arena *constants,
		     const struct graph *graph)
{
	struct maker maker = {b, constants, graph->side, 0};
	const uint32_t dims[] = {ROWS, graph->side}, n = graph->n_chains;
	const unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims);
	unsigned int ends[MAX_CHAINS], to;

	/* The first chain is longer by what the sums leave over. */
	for (uint32_t i = 0; i < n; i++)
		ends[i] =
			add_chain(&maker, x, (NODES + 1) / n - 1 + (i == 0 ? (NODES + 1) % n : 0));
	for (uint32_t i = 1; i < n; i++) {
		to = add_tensor(&maker);
		rbk_builder_binary(b, "Add", ends[0], ends[i], to);
		ends[0] = to;
	}
}

static int prepare(struct chain *chain, struct bench_env *env, const struct graph *graph)
{
	const uint32_t side = graph->side;
	const uint64_t tensor_bytes = (uint64_t)ROWS * side * sizeof(float);
	struct rbk *rbk = chain->target.rbk;
	struct rbk_builder *builder = rbk_builder_new("chain");
	struct rbk_error error = {"out of memory"};
	int r;

	r = rbk_arena_new(rbk, (uint64_t)NODES * side * side * sizeof(float), &chain->constants,
			  &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(chain->constants), (size_t)NODES * side * side, 3);
		r = rbk_arena_seal(chain->constants, &error);
	}
	if (r == 0)
		r = rbk_arena_new(rbk, 2 * tensor_bytes, &chain->arena, &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(chain->arena), (size_t)ROWS * side, 5);
		describe(builder, chain->constants, graph);
		r = rbk_plan_new(rbk, builder, 1, &chain->plan, &error);
	}
	rbk_builder_free(builder);
	if (r)
		return bench_refused(env, r, error.text);
	chain->task = (struct target_task){
		.ring = chain->target.ring,
		.plan_id = rbk_plan_id(chain->plan),
		.count = 1,
		.refs = {rbk_arena_ref(chain->arena, 0), rbk_arena_ref(chain->arena, tensor_bytes)},
		.n_refs = 2,
		.strategy = RBK_STRATEGY_ONLY_CPU,
		.depth = 1,
	};
	return 0;
}

static void chain_deinit(struct chain *chain)
{
	rbk_plan_free(chain->plan);
	rbk_arena_free(chain->arena);
	rbk_arena_free(chain->constants);
	target_deinit(&chain->target);
}

/* Compare the results of both sides, which must have the same bits. */
static int compare_results(struct bench_env *env, const struct chain *cut,
			   const struct chain *whole, uint32_t side)
{
	const size_t bytes = (size_t)ROWS * side * sizeof(float);
	int r = target_run_once(&cut->task);

	if (r == 0)
		r = target_run_once(&whole->task);
	if (r)
		return bench_fail(env, r, "a task failed");
	if (memcmp((char *)rbk_arena_data(cut->arena) + bytes,
		   (char *)rbk_arena_data(whole->arena) + bytes, bytes) != 0)
		return bench_fail(env, -EBADMSG, "segments compute something else than the plan");
	return 0;
}

static int measure(struct bench_env *env, const struct graph *graph)
{
	const struct bench_row row = {graph->params, "ns", false, "whole", .target = 1.05};
	struct chain cut = {.target = TARGET_INIT}, whole = {.target = TARGET_INIT};
	int r, n;

	if (!bench_is_wanted(env, row.params))
		return 0;
	r = target_init_cut(&cut.target, env, graph->seed);
	if (r == 0)
		r = prepare(&cut, env, graph);
	if (r == 0)
		r = target_init_cut(&whole.target, env, 0);
	if (r == 0)
		r = prepare(&whole, env, graph);
	n = r == 0 ? target_n_segments(&cut.target, cut.plan) : 0;
	if (r == 0 && n != NODES)
		r = bench_fail(env, n < 0 ? n : -EBADMSG, "the plan has %d segments, not %d", n,
			       NODES);
	if (r == 0)
		r = compare_results(env, &cut, &whole, graph->side);
	if (r == 0)
		r = bench_compare(env, &row, (struct bench_side){target_waits, &cut.task},
				  (struct bench_side){target_waits, &whole.task});
	chain_deinit(&whole);
	chain_deinit(&cut);
	return r;
}

static int run(struct bench_env *env)
{
	int r = 0;

	if (env->socket)
		return bench_skip(env, NULL, "it starts brokers of its own, which cut plans");
	for (unsigned int i = 0; i < sizeof(graphs) / sizeof(graphs[0]) && r == 0; i++)
		r = measure(env, &graphs[i]);
	return r;
}

const struct bench bench_graphs = {
	.name = "graphs",
	.summary = "a task of 64 segments, in one chain of products or in four, on one worker",
	.baseline = "the same plan as a whole",
	.run = run,
};
