/* SPDX-License-Identifier: MIT */
/*
 * cut: plans that one private broker cuts over the CPU and a device, beside the CPU alone
 *
 * The device is one for tests: it computes nothing, and takes the time of the operations at a rate
 * that is a multiple of what the CPU has just been measured at, so that both sides of a row depend
 * on the machine alike. One plan has two branches, and a device that is as fast as the CPU: brokerd
 * cuts the plan to save time. The other is a chain whose constants are 1.5 times the memory of a
 * device that is four times as fast: brokerd cuts the plan for want of memory, and the device
 * cannot have it alone. Small segments without room run on the CPU; large ones are streamed, over a
 * link that moves the constants of one in an eighth of the time that the CPU takes for it.
 */
#include <errno.h>
#include <stdio.h>

#include <ringbroker.h>

#include "bench.h"
#include "plans.h"
#include "samples.h"
#include "target.h"
#include "util/clock.h"

enum {
	ROWS = 256,
	PRODUCTS = 12,
	LINK_PARTS = 8, /* of the CPU's time for a product, in one of which its matrix crosses */
	TIMED = 9,      /* tasks by which the CPU is measured */
	TAUGHT = 100,   /* tasks before the measurement, from whose times brokerd learns */
};

struct shape {
	uint32_t n_branches;
	uint32_t side;          /* of the matrices */
	uint32_t times_as_fast; /* as the CPU, the device */
	bool lacks_memory;      /* the device has room for two thirds of the matrices */
	bool has_link;
};

static uint64_t tensor_bytes(const struct shape *shape)
{
	return (uint64_t)ROWS * shape->side * sizeof(float);
}

static uint64_t matrix_bytes(const struct shape *shape)
{
	return (uint64_t)shape->side * shape->side * sizeof(float);
}

static double product_flops(const struct shape *shape)
{
	return 2.0 * ROWS * shape->side * shape->side;
}

/* A broker with the plan */
struct side {
	struct target target;
	struct rbk_arena *constants, *arena;
	struct rbk_plan *plan;
	struct target_task task;
};

/* Describe PRODUCTS products in branches of the same input, whose ends are multiplied. */
static struct rbk_builder *describe(const struct shape *shape, const struct rbk_arena *constants)
{
	const uint32_t dims[] = {ROWS, shape->side}, square[] = {shape->side, shape->side};
	const uint32_t n_a_branch = PRODUCTS / shape->n_branches;
	struct rbk_builder *b = rbk_builder_new("cut");
	const unsigned int x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims);
	unsigned int from = x, to, w, end = x;
	char name[32];

	for (unsigned int i = 0; i < PRODUCTS; i++) {
		if (i % (n_a_branch) == 0)
			from = x;
		snprintf(name, sizeof(name), "w%u", i);
		w = rbk_builder_constant(b, name, RBK_DTYPE_F32, 2, square, constants,
					 i * matrix_bytes(shape));
		snprintf(name, sizeof(name), "product%u", i);
		to = rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, dims);
		rbk_builder_binary(b, "MatMul", from, w, to);
		from = to;
		if (i + 1 == n_a_branch)
			end = to;
	}
	/* If there is one branch, the square of its end */
	to = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
	rbk_builder_binary(b, "Mul", end, from, to);
	return b;
}

static int prepare(struct side *side, struct bench_env *env, const struct shape *shape)
{
	struct rbk *rbk = side->target.rbk;
	struct rbk_error error = {"out of memory"};
	struct rbk_builder *builder;
	int r;

	r = rbk_arena_new(rbk, PRODUCTS * matrix_bytes(shape), &side->constants, &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(side->constants), PRODUCTS * matrix_bytes(shape) / 4, 3);
		r = rbk_arena_seal(side->constants, &error);
	}
	if (r == 0)
		r = rbk_arena_new(rbk, 2 * tensor_bytes(shape), &side->arena, &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(side->arena), tensor_bytes(shape) / 4, 5);
		builder = describe(shape, side->constants);
		r = rbk_plan_new(rbk, builder, 1, &side->plan, &error);
		rbk_builder_free(builder);
	}
	if (r)
		return bench_refused(env, r, error.text);
	side->task = (struct target_task){
		.ring = side->target.ring,
		.plan_id = rbk_plan_id(side->plan),
		.count = 1,
		.refs = {rbk_arena_ref(side->arena, 0),
			 rbk_arena_ref(side->arena, tensor_bytes(shape))},
		.n_refs = 2,
		.depth = 1,
	};
	return 0;
}

static void side_deinit(struct side *side)
{
	rbk_plan_free(side->plan);
	rbk_arena_free(side->arena);
	rbk_arena_free(side->constants);
	target_deinit(&side->target);
}

/* Measure what the CPU computes. Return: operations per nanosecond, at least 1; negative errno. */
static int cpu_rate(const struct side *side, const struct shape *shape, struct bench_env *env)
{
	struct samples samples = SAMPLES_INIT;
	uint64_t begin_ns;
	double rate = 0;
	int r = samples_reserve(&samples, TIMED);

	for (unsigned int i = 0; i < TIMED && r == 0; i++) {
		begin_ns = clock_now_ns();
		r = target_run_once(&side->task);
		samples_add(&samples, (double)(clock_now_ns() - begin_ns));
	}
	if (r == 0)
		rate = PRODUCTS * product_flops(shape) / samples_percentile(&samples, 50);
	samples_deinit(&samples);
	if (r)
		return bench_fail(env, r, "a task failed");
	return rate > 1 ? (int)(rate + 0.5) : 1;
}

/* Have brokerd learn the times of the segments. Return: 0; BENCH_E_SKIP: there are none. */
static int teach(const struct side *side, struct bench_env *env, const struct bench_row *row)
{
	const int n = target_n_segments(&side->target, side->plan);
	int r = n < 0 ? n : 0;

	if (n == 1)
		return bench_skip(env, row->params, "by its profiles brokerd expects no gain");
	for (uint32_t i = 0; i < TAUGHT && r == 0; i++)
		r = target_run_once(&side->task);
	return r ? bench_fail(env, r, "a task failed") : 0;
}

/* Start a broker with a device, of which all depends on what the CPU computes. */
static int start_cut(struct side *side, struct bench_env *env, const struct shape *shape,
		     uint32_t cpu_flops_per_ns)
{
	const double product_ns = product_flops(shape) / cpu_flops_per_ns;
	const double bytes_per_ns = (double)matrix_bytes(shape) / (product_ns / LINK_PARTS);
	const uint64_t memory_bytes =
		PRODUCTS * matrix_bytes(shape) * 2 / 3 + 4 * tensor_bytes(shape);

	return target_init_rated(&side->target, env, cpu_flops_per_ns * shape->times_as_fast,
				 shape->lacks_memory ? memory_bytes : 0,
				 shape->has_link ? (uint32_t)(bytes_per_ns * 1000) : 0);
}

static int measure(struct bench_env *env, const struct shape *shape, const struct bench_row *row)
{
	struct side cut = {.target = TARGET_INIT}, whole = {.target = TARGET_INIT};
	int r;

	if (!bench_is_wanted(env, row->params))
		return 0;
	r = target_init(&whole.target, env, TARGET_WORKERS);
	if (r == 0)
		r = prepare(&whole, env, shape);
	if (r == 0)
		r = cpu_rate(&whole, shape, env);
	if (r > 0)
		r = start_cut(&cut, env, shape, (uint32_t)r);
	if (r == 0)
		r = prepare(&cut, env, shape);
	if (r == 0)
		r = teach(&cut, env, row);
	if (r == 0)
		r = bench_compare(env, row, (struct bench_side){target_waits, &cut.task},
				  (struct bench_side){target_waits, &whole.task});
	side_deinit(&cut);
	side_deinit(&whole);
	return r;
}

static int run(struct bench_env *env)
{
	const struct shape branches = {.n_branches = 2, .side = 768, .times_as_fast = 1};
	const struct shape model = {
		.n_branches = 1, .side = 768, .times_as_fast = 4, .lacks_memory = true};
	const struct shape streamed = {.n_branches = 1,
				       .side = 1536,
				       .times_as_fast = 4,
				       .lacks_memory = true,
				       .has_link = true};
	const struct bench_row branches_row = {"branches=2 device=1", "ns", false, "the CPU alone",
					       .target = 1 / 1.2};
	const struct bench_row model_row = {"memory=1/1.5 device=4", "ns", false, "the CPU alone",
					    .target = 1};
	/* A third of it on the CPU would take half of the time. */
	const struct bench_row streamed_row = {"memory=1/1.5 device=4 streamed", "ns", false,
					       "the CPU alone", .target = 0.5};
	int r;

	if (env->socket)
		return bench_skip(env, NULL, "it starts brokers of its own, with a timed device");
	r = measure(env, &branches, &branches_row);
	if (r >= 0)
		r = measure(env, &model, &model_row);
	return r < 0 ? r : measure(env, &streamed, &streamed_row);
}

const struct bench bench_cut = {
	.name = "cut",
	.summary = "plans cut over the CPU and a timed device: two branches; a lack of memory",
	.baseline = "the whole plan on the CPU alone",
	.run = run,
};
