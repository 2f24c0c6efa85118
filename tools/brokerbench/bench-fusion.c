/* SPDX-License-Identifier: MIT */
/*
 * fusion: what it is worth to compute what follows a product or a convolution along with it
 *
 * Tasks of one layer, as the broker prepares them and with fusion forbidden: on one worker, and on
 * a GPU, a real one or else a software one.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "plans.h"
#include "target.h"
#include "util/checked.h"

#define CONSTANT_BYTES (10u << 20)
#define TENSOR_BYTES   (2u << 20)

/* @op of x by weights, of which the first @n_dims are dimensions; then perhaps an Add, of a list or
 * of x. */
struct layer {
	const char *name, *op;
	unsigned int n_dims;
	uint32_t x[4], weights[4];
	uint32_t bias; /* 0: none */
	bool adds_x;   /* likewise */
	const char *activation;
};

#define LINEAR(name, rows, from, to, activation)                                      \
	{                                                                             \
		name, "MatMul", 3, {1, rows, from}, {from, to}, to, false, activation \
	}
#define CONV(name, channels, size, filters, kernel, activation)                                  \
	{                                                                                        \
		name, "Conv", 4, {1, channels, size, size}, {filters, channels, kernel, kernel}, \
			0, false, activation                                                     \
	}

static const struct layer layers[] = {
	LINEAR("linear 128x768 to 768", 128, 768, 768, NULL),
	LINEAR("linear 128x768 to 3072, Gelu", 128, 768, 3072, "Gelu"),
	{"MatMul 128x768 to 768, plus x", "MatMul", 3, {1, 128, 768}, {768, 768}, 0, true, NULL},
	LINEAR("linear 1x768 to 768", 1, 768, 768, NULL),
	LINEAR("linear 16x64 to 64, Relu", 16, 64, 64, "Relu"),
	CONV("Conv 3x3 64x56x56 to 64, Relu", 64, 56, 64, 3, "Relu"),
	CONV("Conv 3x3 16x14x14 to 16, Swish", 16, 14, 16, 3, "Swish"),
	CONV("Conv 1x1 64x14x14 to 64, Gelu", 64, 14, 64, 1, "Gelu"),
};

static int make_plan(const struct layer *layer, const struct target *target,
		     const struct rbk_arena *constants, bool fuses, struct rbk_plan **ret,
		     struct rbk_error *error)
{
	struct rbk_builder *builder = rbk_builder_new("bench-fusion");
	const unsigned int n_weights = layer->n_dims == 4 ? 4 : 2;
	unsigned int x, in[2], at, n_left, node;
	const bool has_sum = layer->bias > 0 || layer->adds_x;
	const int64_t pad = layer->weights[2] / 2, pads[] = {pad, pad, pad, pad};
	char name[8];
	int r;

	if (!builder)
		return -ENOMEM;
	if (!fuses)
		rbk_builder_disable_fusion(builder);
	in[0] = x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, layer->n_dims, layer->x);
	in[1] = rbk_builder_constant(builder, "w", RBK_DTYPE_F32, n_weights, layer->weights,
				     constants, 0);
	n_left = 1 + has_sum + (layer->activation != NULL);
	for (unsigned int i = 0; n_left > 0; i++) {
		const bool is_sum = i == 1 && has_sum;

		snprintf(name, sizeof(name), "t%u", i);
		at = (--n_left ? rbk_builder_scratch : rbk_builder_output)(
			builder, name, RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
		if (is_sum && layer->adds_x)
			in[1] = x;
		else if (is_sum)
			in[1] = rbk_builder_constant(builder, "b", RBK_DTYPE_F32, 1, &layer->bias,
						     constants, 0);
		node = rbk_builder_node(builder,
					i == 0   ? layer->op
					: is_sum ? "Add"
						 : layer->activation,
					NULL, in, i == 0 || is_sum ? 2 : 1, &at, 1);
		if (i == 0 && layer->n_dims == 4)
			rbk_builder_attr_ints(builder, node, "pads", pads, 4);
		in[0] = at;
	}
	r = rbk_plan_new(target->rbk, builder, 1, ret, error);
	rbk_builder_free(builder);
	return r;
}

/* Are both results the same, up to rounding? */
static bool is_same(const float *a, const float *b, size_t n)
{
	float largest = 0;

	for (size_t i = 0; i < n; i++)
		largest = fmaxf(largest, fabsf(b[i]));
	for (size_t i = 0; i < n; i++)
		if (!(fabsf(a[i] - b[i]) <= 1e-4f * largest))
			return false;
	return largest > 0;
}

static int compare(struct bench_env *env, const struct target *target, const struct layer *layer,
		   const struct rbk_arena *constants, struct rbk_arena *arena, bool on_gpu)
{
	char params[64];
	const struct bench_row row = {params, "ns", false, "one by one"};
	struct rbk_plan *plans[2] = {NULL, NULL};
	struct rbk_error error = {"out of memory"};
	struct target_task tasks[2];
	float *y = rbk_arena_data(arena);
	int r = 0;

	snprintf(params, sizeof(params), "%s, %s", on_gpu ? "gpu" : "cpu", layer->name);
	if (!bench_is_wanted(env, params))
		return 0;
	memset(y + TENSOR_BYTES / sizeof(float), 0, 2 * (size_t)TENSOR_BYTES);
	for (unsigned int i = 0; i < 2 && !r; i++) {
		r = make_plan(layer, target, constants, i == 0, &plans[i], &error);
		if (r) {
			bench_refused(env, r, error.text);
			goto out;
		}
		tasks[i] = (struct target_task){
			.ring = target->ring,
			.plan_id = rbk_plan_id(plans[i]),
			.count = 1,
			.refs = {rbk_arena_ref(arena, 0),
				 rbk_arena_ref(arena, (i + 1) * TENSOR_BYTES)},
			.n_refs = 2,
			.strategy = on_gpu ? RBK_STRATEGY_ONLY_GPU : RBK_STRATEGY_ONLY_CPU,
			.depth = 1,
		};
		r = target_run_once(&tasks[i]);
	}
	y += TENSOR_BYTES / sizeof(float);
	if (!r && !is_same(y, y + TENSOR_BYTES / sizeof(float), TENSOR_BYTES / sizeof(float)))
		r = -EILSEQ;
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){target_waits, &tasks[0]},
				  (struct bench_side){target_waits, &tasks[1]});
	if (r)
		bench_fail(env, r, "%s failed, or both are not the same", params);
out:
	rbk_plan_free(plans[0]);
	rbk_plan_free(plans[1]);
	return r;
}

static int run_on(struct bench_env *env, bool on_gpu)
{
	struct rbk_arena *constants = NULL, *arena = NULL;
	struct rbk_error error = {"out of memory"};
	struct target target;
	int r;

	r = target_init(&target, env, on_gpu ? TARGET_GPU : TARGET_ONE_WORKER);
	if (r)
		return r;
	r = rbk_arena_new(target.rbk, CONSTANT_BYTES, &constants, &error);
	if (!r) {
		plans_fill(rbk_arena_data(constants), CONSTANT_BYTES / sizeof(float), 2);
		r = rbk_arena_seal(constants, &error);
	}
	if (!r)
		r = rbk_arena_new(target.rbk, 3 * TENSOR_BYTES, &arena, &error);
	if (r) {
		bench_refused(env, r, error.text);
		goto out;
	}
	plans_fill(rbk_arena_data(arena), TENSOR_BYTES / sizeof(float), 1);
	for (size_t i = 0; i < ARRAY_SIZE(layers) && !r; i++)
		r = compare(env, &target, &layers[i], constants, arena, on_gpu);
out:
	rbk_arena_free(arena);
	rbk_arena_free(constants);
	target_deinit(&target);
	return r;
}

static int run(struct bench_env *env)
{
	const int r = run_on(env, false);

	return r < 0 ? r : run_on(env, true);
}

const struct bench bench_fusion = {
	.name = "fusion",
	.summary = "tasks of one layer, with its sum and activation computed along",
	.baseline = "the same, one node after the other",
	.run = run,
};
