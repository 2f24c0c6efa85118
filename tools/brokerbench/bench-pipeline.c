/* SPDX-License-Identifier: MIT */
/*
 * pipeline: a plan in segments over the CPU and a device, each of which runs what it is better at
 *
 * The plan is a chain of products, which take the CPU many times as long as the device, each with
 * sines after it, which take the CPU less; each node is a segment of its own. The device is one for
 * tests: it computes nothing and takes a time for each submission and for each row. Tasks that
 * allow it stream through the segments in micro-batches.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include <ringbroker.h>

#include "bench.h"
#include "plans.h"
#include "samples.h"
#include "target.h"
#include "util/clock.h"

enum {
	ROWS = 512,
	SIDE = 1536,
	DEPTH = 8,
	TASK_US = 20, /* of the device, for each submission */
	TAUGHT = 200, /* tasks */
};

static const uint64_t tensor_bytes = (uint64_t)ROWS * SIDE * sizeof(float);
static const uint64_t matrix_bytes = (uint64_t)SIDE * SIDE * sizeof(float);

/*
 * A number of products, of sines after each, what a row takes on the device, and a seed of --cut
 * with which the broker cuts before each node, found by trying seeds; the benchmark fails if the
 * plan has another number of segments.
 */
struct shape {
	uint32_t n_products, n_sines, row_ns;
	unsigned int seed;
};

struct pipeline {
	const struct shape *shape;
	struct target target;
	struct rbk_arena *constants, *arena;
	struct rbk_plan *plan;
};

/* Return the time that a task takes of the device, which is the busiest. */
static uint64_t busy_ns(const struct shape *shape)
{
	return shape->n_products * (TASK_US * 1000ull + (uint64_t)ROWS * shape->row_ns);
}

static struct rbk_builder *describe(const struct shape *shape, const struct rbk_arena *constants)
{
	static const uint32_t dims[] = {RBK_DIM_COUNT, SIDE}, square[] = {SIDE, SIDE};
	struct rbk_builder *b = rbk_builder_new("pipeline");
	unsigned int from = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims), to, w;
	char name[32];

	for (unsigned int i = 0; i < shape->n_products; i++) {
		snprintf(name, sizeof(name), "w%u", i);
		w = rbk_builder_constant(b, name, RBK_DTYPE_F32, 2, square, constants,
					 i * matrix_bytes);
		snprintf(name, sizeof(name), "product%u", i);
		to = rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, dims);
		rbk_builder_binary(b, "MatMul", from, w, to);
		for (unsigned int k = 0; k < shape->n_sines; k++, to = from) {
			snprintf(name, sizeof(name), "sine%u-%u", i, k);
			from = i * shape->n_sines + k + 1 < shape->n_products * shape->n_sines
				       ? rbk_builder_scratch(b, name, RBK_DTYPE_F32, 2, dims)
				       : rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, dims);
			rbk_builder_unary(b, "Sin", to, from);
		}
	}
	return b;
}

static int prepare(struct pipeline *pipeline, struct bench_env *env)
{
	struct rbk *rbk = pipeline->target.rbk;
	struct rbk_error error = {"out of memory"};
	struct rbk_builder *builder;
	int r;

	r = rbk_arena_new(rbk, pipeline->shape->n_products * matrix_bytes, &pipeline->constants,
			  &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(pipeline->constants),
			   pipeline->shape->n_products * matrix_bytes / 4, 3);
		r = rbk_arena_seal(pipeline->constants, &error);
	}
	if (r == 0)
		r = rbk_arena_new(rbk, (1 + DEPTH) * tensor_bytes, &pipeline->arena, &error);
	if (r == 0) {
		plans_fill(rbk_arena_data(pipeline->arena), tensor_bytes / 4, 5);
		builder = describe(pipeline->shape, pipeline->constants);
		r = rbk_plan_new(rbk, builder, ROWS, &pipeline->plan, &error);
		rbk_builder_free(builder);
	}
	return r ? bench_refused(env, r, error.text) : 0;
}

static struct target_task task_of(const struct pipeline *pipeline, unsigned int flags,
				  uint32_t depth)
{
	return (struct target_task){
		.ring = pipeline->target.ring,
		.plan_id = rbk_plan_id(pipeline->plan),
		.count = ROWS,
		.refs = {rbk_arena_ref(pipeline->arena, 0),
			 rbk_arena_ref(pipeline->arena, tensor_bytes)},
		.n_refs = 2,
		.flags = flags,
		.depth = depth,
		.output_stride = tensor_bytes,
	};
}

/* Measure the time that the device works for a task, as a clock has it. */
static int work_alone(void *data, uint64_t budget_ns, struct samples *samples)
{
	const uint64_t work_ns = busy_ns(data), begin_ns = clock_now_ns();
	const struct timespec time = {.tv_nsec = (long)work_ns};
	uint64_t last_ns = begin_ns, now_ns;
	int r = samples_reserve(samples, budget_ns / work_ns + 2);

	while (r == 0 && samples_room(samples) > 0 &&
	       (last_ns == begin_ns || last_ns - begin_ns < budget_ns)) {
		r = -clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
		now_ns = clock_now_ns();
		samples_add(samples, (double)(now_ns - last_ns));
		last_ns = now_ns;
	}
	return r;
}

/*
 * Run tasks with fewer rows: a device for tests has a profile that does not know what rows take, so
 * brokerd learns that for each size.
 */
static int teach(const struct pipeline *pipeline)
{
	struct target_task task = task_of(pipeline, 0, 1);
	int r = 0;

	for (uint32_t i = 0; i < TAUGHT && r == 0; i++) {
		task.count = ROWS >> (i % 4 + 1);
		r = target_run_once(&task);
	}
	return r;
}

static int measure_busy(struct bench_env *env, struct pipeline *pipeline,
			const struct bench_row *row)
{
	struct target_task task = task_of(pipeline, 0, DEPTH);
	struct shape shape = *pipeline->shape;

	return bench_compare(env, row, (struct bench_side){target_waits, &task},
			     (struct bench_side){work_alone, &shape});
}

static int measure_stream(struct bench_env *env, struct pipeline *pipeline,
			  const struct bench_row *row)
{
	struct target_task stream = task_of(pipeline, RBK_SQE_PARTITION, 1);
	struct target_task whole = task_of(pipeline, 0, 1);
	int r = teach(pipeline);

	if (r)
		return bench_fail(env, r, "a task failed");
	return bench_compare(env, row, (struct bench_side){target_waits, &stream},
			     (struct bench_side){target_waits, &whole});
}

static int measure(struct bench_env *env, const struct shape *shape, const struct bench_row *row,
		   int (*compare)(struct bench_env *env, struct pipeline *pipeline,
				  const struct bench_row *row))
{
	struct pipeline pipeline = {.shape = shape, .target = TARGET_INIT};
	const int n_wanted = (int)(shape->n_products * (1 + shape->n_sines));
	int r, n;

	if (!bench_is_wanted(env, row->params))
		return 0;
	r = target_init_timed(&pipeline.target, env, TASK_US, shape->row_ns, shape->seed);
	if (r == 0)
		r = prepare(&pipeline, env);
	n = r == 0 ? target_n_segments(&pipeline.target, pipeline.plan) : 0;
	if (r == 0 && n != n_wanted)
		r = bench_fail(env, n < 0 ? n : -EBADMSG, "the plan has %d segments, not %d", n,
			       n_wanted);
	if (r == 0)
		r = compare(env, &pipeline, row);
	rbk_plan_free(pipeline.plan);
	rbk_arena_free(pipeline.arena);
	rbk_arena_free(pipeline.constants);
	target_deinit(&pipeline.target);
	return r;
}

static int run(struct bench_env *env)
{
	static const struct shape busy = {4, 1, 1900, 1}, stream = {3, 3, 1300, 1};
	const struct bench_row busy_row = {"tasks=8 segments=8 rows=512", "ns", false,
					   "the device's own time", .target = 1 / 0.9};
	const struct bench_row stream_row = {"tasks=1 segments=12 rows=512 micro-batches", "ns",
					     false, "one segment after the other",
					     .target = 1 / 1.2};
	int r;

	if (env->socket)
		return bench_skip(env, NULL, "it starts brokers of its own, with a timed device");
	r = measure(env, &busy, &busy_row, measure_busy);
	return r ? r : measure(env, &stream, &stream_row, measure_stream);
}

const struct bench bench_pipeline = {
	.name = "pipeline",
	.summary = "a chain of segments by turns on a timed device and the CPU",
	.baseline = "the device's own time; one segment after the other",
	.run = run,
};
