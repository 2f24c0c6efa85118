/* SPDX-License-Identifier: MIT */
/*
 * graphs: a task of a plan that is cut into segments, beside the plan as a whole
 *
 * The plan is a chain of products, each a segment of its own, on one worker. Two private brokers
 * prepare it: one cuts plans by --cut, the other does not. The difference is what segments cost:
 * the reactor starts each, and each writes its result where the next one reads it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <ringbroker.h>
#include <ringbroker/stats.h>

#include "bench.h"
#include "plans.h"
#include "target.h"

enum { LAYERS = 64, ROWS = 32 };

/*
 * A side of the square matrices, and a seed of --cut with which the broker cuts before each
 * product, found by trying seeds until cut_points() yielded LAYERS - 1 points. The points depend on
 * the plan's fingerprint, too; the benchmark fails if the plan has other than LAYERS segments.
 */
struct graph {
	uint32_t side;
	unsigned int seed;
	const char *params;
};

static const struct graph graphs[] = {
	{64, 9, "layers=64 side=64 rows=32"},
	{128, 27, "layers=64 side=128 rows=32"},
	{256, 19, "layers=64 side=256 rows=32"},
	{512, 4, "layers=64 side=512 rows=32"},
};

struct chain {
	struct target target;
	struct rbk_arena *constants, *arena;
	struct rbk_plan *plan;
	struct target_task task;
};

/* Describe y = x through LAYERS products. */
static void describe(struct rbk_builder *b, const struct rbk_arena *constants, uint32_t side)
{
	const uint32_t dims[] = {ROWS, side}, square[] = {side, side};
	unsigned int from = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims), to, w;
	char name[16];

	for (uint64_t i = 0; i < LAYERS; i++) {
		snprintf(name, sizeof(name), "w%u", (unsigned int)i);
		w = rbk_builder_constant(b, name, RBK_DTYPE_F32, 2, square, constants,
					 i * side * side * sizeof(float));
		snprintf(name, sizeof(name), "t%u", (unsigned int)i);
		to = i + 1 == LAYERS ? rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims)
				     : rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, dims);
		rbk_builder_binary(b, "MatMul", from, w, to);
		from = to;
	}
}

static int prepare(struct chain *chain, struct bench_env *env, uint32_t side)
{
	const uint64_t tensor_bytes = (uint64_t)ROWS * side * sizeof(float);
	struct rbk *rbk = chain->target.rbk;
	struct rbk_builder *builder = rbk_builder_new("chain");
	struct rbk_error error = {"out of memory"};
	int r;

	r = rbk_arena_new(rbk, (uint64_t)LAYERS * side * side * sizeof(float), &chain->constants,
			  &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(chain->constants), (size_t)LAYERS * side * side, 3);
		r = rbk_arena_seal(chain->constants, &error);
	}
	if (r == 0)
		r = rbk_arena_new(rbk, 2 * tensor_bytes, &chain->arena, &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(chain->arena), (size_t)ROWS * side, 5);
		describe(builder, chain->constants, side);
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

/* Find how many segments the broker cut the plan into. Return: a negative errno if it is unknown.
 */
static int count_segments(const struct chain *chain)
{
	struct rbk_stats_plan plan;
	struct rbk_stats_view view;
	int n = -ENOENT;
	int r = rbk_stats_map(chain->target.rbk, RBK_STATS_OWN, 0, &view, NULL);

	if (r)
		return r;
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_PLANS) && n < 0; i++) {
		const void *record = rbk_stats_record(&view, RBK_STATS_SECTION_PLANS, i);

		if (rbk_stats_copy(&plan, record, sizeof(plan)) &&
		    plan.state == RBK_STATS_PLAN_LIVE && plan.plan_id == rbk_plan_id(chain->plan))
			n = (int)plan.n_segments;
	}
	rbk_stats_unmap(&view);
	return n;
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
		r = prepare(&cut, env, graph->side);
	if (r == 0)
		r = target_init_cut(&whole.target, env, 0);
	if (r == 0)
		r = prepare(&whole, env, graph->side);
	n = r == 0 ? count_segments(&cut) : 0;
	if (r == 0 && n != LAYERS)
		r = bench_fail(env, n < 0 ? n : -EBADMSG, "the plan has %d segments, not %d", n,
			       LAYERS);
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
	.summary = "a task of 64 segments, each a product, on one worker",
	.baseline = "the same plan as a whole",
	.run = run,
};
