/* SPDX-License-Identifier: MIT */
/*
 * fusion: the gain of computing the nodes after a product or a convolution in its epilogue
 *
 * Tasks of one layer, as the broker prepares them and with fusion forbidden, on one worker and on a
 * GPU: a real one, else a software one.
 */
#include <stdio.h>

#include "bench.h"
#include "fused.h"
#include "util/checked.h"

#define CONSTANT_BYTES (10u << 20)
#define TENSOR_BYTES   (2u << 20)

/*
 * A layer: @op of x, which has @n_dims dimensions, and weights; then an optional Add of a bias or
 * of x; then an optional activation.
 */
struct layer {
	const char *name, *op;
	unsigned int n_dims;
	uint32_t x[4], weights[4];
	uint32_t bias;          /* elements of the bias; 0: no bias */
	bool adds_x;            /* the Add is of x instead of a bias */
	const char *activation; /* NULL: no activation */
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

static void describe(struct rbk_builder *builder, const void *what,
		     const struct rbk_arena *constants)
{
	const struct layer *layer = what;
	const unsigned int n_weights = layer->n_dims == 4 ? 4 : 2;
	unsigned int x, in[2], at, n_left, node;
	const bool has_sum = layer->bias > 0 || layer->adds_x;
	const int64_t pad = layer->weights[2] / 2, pads[] = {pad, pad, pad, pad};
	char name[8];

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
}

static int run_on(struct bench_env *env, bool on_gpu)
{
	struct fused fused;
	char params[64];
	const struct bench_row row = {params, "ns", false, "one by one"};
	int r;

	r = fused_init(&fused, env, on_gpu ? TARGET_GPU : TARGET_ONE_WORKER, CONSTANT_BYTES,
		       TENSOR_BYTES);
	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(layers) && !r; i++) {
		snprintf(params, sizeof(params), "%s, %s", on_gpu ? "gpu" : "cpu", layers[i].name);
		r = fused_compare(&fused, env, &row, describe, &layers[i]);
	}
	fused_deinit(&fused);
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
