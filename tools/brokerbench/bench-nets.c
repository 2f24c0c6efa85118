/* SPDX-License-Identifier: MIT */
/*
 * nets: the gain of storing pictures in the layout that is computed best
 *
 * Tasks of small networks over one picture, on one worker: as the broker prepares them, and with
 * fusion forbidden, so that every picture stays channels-first. The networks have no activations
 * that could be fused, so only the layout differs.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "fused.h"
#include "shm/number.h"
#include "util/checked.h"

#define CONSTANT_BYTES (8u << 20)
#define TENSOR_BYTES   (4u << 20)
#define MAX_LAYERS     16

/*
 * A layer. Windows are square; Conv has padding kernel / 2, which keeps sizes up to the stride, and
 * MaxPool has none.
 */
struct layer {
	const char *op;
	uint32_t channels, kernel, stride;
	bool is_depthwise;
};

struct net {
	const char *name;
	uint32_t channels, size; /* channels and side of the picture */
	struct layer layers[MAX_LAYERS];
};

#define CONV(channels_, kernel_, stride_)                  \
	{                                                  \
		"Conv", channels_, kernel_, stride_, false \
	}
#define DEPTHWISE(channels_, stride_)               \
	{                                           \
		"Conv", channels_, 3, stride_, true \
	}
#define POOL(channels_, kernel_, stride_)              \
	{                                              \
		"MaxPool", channels_, kernel_, stride_ \
	}

static const struct net nets[] = {
	{"digits 1x28x28", 1, 28, {CONV(8, 5, 1), POOL(8, 2, 2), CONV(16, 5, 1), POOL(16, 3, 3)}},
	{"3x3 and pooling 3x64x64",
	 3,
	 64,
	 {CONV(32, 3, 1), CONV(32, 3, 1), POOL(32, 2, 2), CONV(64, 3, 1), CONV(64, 3, 1),
	  POOL(64, 2, 2), CONV(128, 3, 1), CONV(128, 3, 1), POOL(128, 2, 2)}},
	{"depthwise 3x112x112",
	 3,
	 112,
	 {CONV(32, 3, 2), DEPTHWISE(32, 1), CONV(64, 1, 1), DEPTHWISE(64, 2), CONV(128, 1, 1),
	  DEPTHWISE(128, 1), CONV(128, 1, 1), DEPTHWISE(128, 2), CONV(256, 1, 1), DEPTHWISE(256, 2),
	  CONV(512, 1, 1), DEPTHWISE(512, 1), CONV(512, 1, 1)}},
};

/*
 * Add a layer over tensor @x.
 * Return: the layer's result, which is the plan's output if @is_last.
 */
static unsigned int add_layer(struct rbk_builder *builder, const struct layer *layer,
			      uint32_t channels, unsigned int x, const struct rbk_arena *constants,
			      uint64_t *offset, unsigned int number, bool is_last)
{
	const uint32_t group = layer->is_depthwise ? channels : 1;
	const uint32_t dims[] = {layer->channels, channels / group, layer->kernel, layer->kernel};
	const int64_t kernel[] = {layer->kernel, layer->kernel};
	const int64_t strides[] = {layer->stride, layer->stride};
	const int64_t pad = layer->kernel / 2, pads[] = {pad, pad, pad, pad};
	const bool is_conv = !strcmp(layer->op, "Conv");
	unsigned int in[2] = {x}, out, node;
	char name[32];

	snprintf(name, sizeof(name), "t%u", number);
	out = (is_last ? rbk_builder_output : rbk_builder_scratch)(builder, name, RBK_DTYPE_F32,
								   RBK_RANK_INFERRED, NULL);
	if (is_conv) {
		snprintf(name, sizeof(name), "w%u", number);
		in[1] = rbk_builder_constant(builder, name, RBK_DTYPE_F32, 4, dims, constants,
					     *offset);
		*offset += round_up((uint64_t)dims[0] * dims[1] * dims[2] * dims[3] * sizeof(float),
				    RBK_REF_ALIGN);
	}
	node = rbk_builder_node(builder, layer->op, NULL, in, is_conv ? 2 : 1, &out, 1);
	rbk_builder_attr_ints(builder, node, "kernel_shape", kernel, 2);
	rbk_builder_attr_ints(builder, node, "strides", strides, 2);
	if (is_conv) {
		rbk_builder_attr_int(builder, node, "group", group);
		rbk_builder_attr_ints(builder, node, "pads", pads, 4);
	}
	return out;
}

static void describe(struct rbk_builder *builder, const void *what,
		     const struct rbk_arena *constants)
{
	const struct net *net = what;
	const uint32_t dims[] = {1, net->channels, net->size, net->size};
	uint32_t channels = net->channels;
	uint64_t offset = 0;
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 4, dims);

	for (unsigned int i = 0; i < MAX_LAYERS && net->layers[i].op; i++) {
		x = add_layer(builder, &net->layers[i], channels, x, constants, &offset, i,
			      i + 1 == MAX_LAYERS || !net->layers[i + 1].op);
		channels = net->layers[i].channels;
	}
}

static int run(struct bench_env *env)
{
	struct fused fused;
	int r;

	r = fused_init(&fused, env, TARGET_ONE_WORKER, CONSTANT_BYTES, TENSOR_BYTES);
	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(nets) && !r; i++) {
		const struct bench_row row = {nets[i].name, "ns", false, "channel after channel"};

		r = fused_compare(&fused, env, &row, describe, &nets[i]);
	}
	fused_deinit(&fused);
	return r;
}

const struct bench bench_nets = {
	.name = "nets",
	.summary = "tasks of small networks over pictures, which may lie with channels last",
	.baseline = "the same, with every picture channel after channel",
	.run = run,
};
