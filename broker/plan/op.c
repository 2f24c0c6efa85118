/* SPDX-License-Identifier: MIT */
/*
 * The operator catalogue: the table
 *
 * One row per operator, in the order of enum op_kind. What a row cannot say (how shapes follow from
 * shapes, what a use costs) is in the two functions it points to, one file per family: op-matmul.c,
 * op-elementwise.c, op-softmax.c, op-reduce.c, op-transpose.c, op-window.c, op-top-k.c.
 *
 * TopK is the one operator whose run time depends on what it reads: how often the selection changes
 * depends on the order of the values.
 */
#include <string.h>

#include "plan/op-call.h"
#include "util/checked.h"

static const struct op_attr no_attrs[] = {{0}};

static const struct op_attr gemm_attrs[] = {
	{"alpha", RBK_ATTR_FLOAT, false},
	{"beta", RBK_ATTR_FLOAT, false},
	{"transA", RBK_ATTR_INT, false},
	{"transB", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr softmax_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr reduce_attrs[] = {
	{"axes", RBK_ATTR_INTS, false},
	{"keepdims", RBK_ATTR_INT, false},
	{"noop_with_empty_axes", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr transpose_attrs[] = {
	{"perm", RBK_ATTR_INTS, false},
	{0},
};

static const struct op_attr conv_attrs[] = {
	{"auto_pad", RBK_ATTR_STRING, false},
	{"dilations", RBK_ATTR_INTS, false},
	{"group", RBK_ATTR_INT, false},
	{"kernel_shape", RBK_ATTR_INTS, false},
	{"pads", RBK_ATTR_INTS, false},
	{"strides", RBK_ATTR_INTS, false},
	{0},
};

static const struct op_attr max_pool_attrs[] = {
	{"auto_pad", RBK_ATTR_STRING, false}, {"ceil_mode", RBK_ATTR_INT, false},
	{"dilations", RBK_ATTR_INTS, false},  {"kernel_shape", RBK_ATTR_INTS, true},
	{"pads", RBK_ATTR_INTS, false},       {"storage_order", RBK_ATTR_INT, false},
	{"strides", RBK_ATTR_INTS, false},    {0},
};

static const struct op_attr top_k_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"k", RBK_ATTR_INT, true},
	{"largest", RBK_ATTR_INT, false},
	{"sorted", RBK_ATTR_INT, false},
	{0},
};

static const struct op ops[OP_KIND_COUNT] = {
	[OP_MATMUL] =
		{
			.kind = OP_MATMUL,
			.family = OP_FAMILY_MATMUL,
			.name = "MatMul",
			.opset = 13,
			.min_in = 2,
			.max_in = 2,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.data_independent = true,
			.splits_rows = true,
			.attrs = no_attrs,
			.infer = op_matmul_infer,
			.cost = op_matmul_cost,
		},
	[OP_GEMM] =
		{
			.kind = OP_GEMM,
			.family = OP_FAMILY_GEMM,
			.name = "Gemm",
			.opset = 13,
			.min_in = 2,
			.max_in = 3,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.data_independent = true,
			.splits_rows = true,
			.attrs = gemm_attrs,
			.infer = op_gemm_infer,
			.cost = op_gemm_cost,
		},
	[OP_ADD] =
		{
			.kind = OP_ADD,
			.family = OP_FAMILY_ELEMENTWISE,
			.name = "Add",
			.opset = 14,
			.min_in = 2,
			.max_in = 2,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.in_place = true,
			.data_independent = true,
			.splits_rows = true,
			.attrs = no_attrs,
			.infer = op_binary_infer,
			.cost = op_elementwise_cost,
		},
	[OP_MUL] =
		{
			.kind = OP_MUL,
			.family = OP_FAMILY_ELEMENTWISE,
			.name = "Mul",
			.opset = 14,
			.min_in = 2,
			.max_in = 2,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.in_place = true,
			.data_independent = true,
			.splits_rows = true,
			.attrs = no_attrs,
			.infer = op_binary_infer,
			.cost = op_elementwise_cost,
		},
	[OP_RELU] =
		{
			.kind = OP_RELU,
			.family = OP_FAMILY_ACTIVATION,
			.name = "Relu",
			.opset = 14,
			.min_in = 1,
			.max_in = 1,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.in_place = true,
			.data_independent = true,
			.splits_rows = true,
			.attrs = no_attrs,
			.infer = op_unary_infer,
			.cost = op_elementwise_cost,
		},
	[OP_SOFTMAX] =
		{
			.kind = OP_SOFTMAX,
			.family = OP_FAMILY_SOFTMAX,
			.name = "Softmax",
			.opset = 13,
			.min_in = 1,
			.max_in = 1,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.data_independent = true,
			.splits_rows = true,
			.attrs = softmax_attrs,
			.infer = op_softmax_infer,
			.cost = op_softmax_cost,
		},
	[OP_REDUCE_SUM] =
		{
			.kind = OP_REDUCE_SUM,
			.family = OP_FAMILY_REDUCTION,
			.name = "ReduceSum",
			.opset = 13,
			.min_in = 1,
			.max_in = 1,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.data_independent = true,
			.splits_rows = true,
			.attrs = reduce_attrs,
			.infer = op_reduce_infer,
			.cost = op_reduce_cost,
		},
	[OP_TRANSPOSE] =
		{
			.kind = OP_TRANSPOSE,
			.family = OP_FAMILY_TRANSPOSE,
			.name = "Transpose",
			.opset = 13,
			.min_in = 1,
			.max_in = 1,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.data_independent = true,
			.splits_rows = true,
			.attrs = transpose_attrs,
			.infer = op_transpose_infer,
			.cost = op_transpose_cost,
		},
	[OP_CONV] =
		{
			.kind = OP_CONV,
			.family = OP_FAMILY_CONVOLUTION,
			.name = "Conv",
			.opset = 11,
			.min_in = 2,
			.max_in = 3,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.data_independent = true,
			.splits_rows = true,
			.attrs = conv_attrs,
			.infer = op_conv_infer,
			.cost = op_conv_cost,
		},
	[OP_MAX_POOL] =
		{
			.kind = OP_MAX_POOL,
			.family = OP_FAMILY_POOLING,
			.name = "MaxPool",
			.opset = 12,
			.min_in = 1,
			.max_in = 1,
			.min_out = 1,
			.max_out = 1,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.data_independent = true,
			.splits_rows = true,
			.attrs = max_pool_attrs,
			.infer = op_max_pool_infer,
			.cost = op_max_pool_cost,
		},
	[OP_TOP_K] =
		{
			.kind = OP_TOP_K,
			.family = OP_FAMILY_SELECTION,
			.name = "TopK",
			.opset = 11,
			.min_in = 1,
			.max_in = 1,
			.min_out = 2,
			.max_out = 2,
			.devices = OP_ON_CPU | OP_ON_VULKAN,
			.splits_rows = true,
			.attrs = top_k_attrs,
			.infer = op_top_k_infer,
			.cost = op_top_k_cost,
		},
};

const struct op *op_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (!strcmp(ops[i].name, name))
			return &ops[i];
	}
	return NULL;
}

const struct op *op_by_kind(enum op_kind kind)
{
	return (unsigned int)kind < OP_KIND_COUNT ? &ops[kind] : NULL;
}

const char *op_family_name(enum op_family family)
{
	static const char *const names[OP_FAMILY_COUNT] = {
		[OP_FAMILY_MATMUL] = "matmul",           [OP_FAMILY_GEMM] = "gemm",
		[OP_FAMILY_CONVOLUTION] = "convolution", [OP_FAMILY_ELEMENTWISE] = "elementwise",
		[OP_FAMILY_ACTIVATION] = "activation",   [OP_FAMILY_POOLING] = "pooling",
		[OP_FAMILY_REDUCTION] = "reduction",     [OP_FAMILY_SOFTMAX] = "softmax",
		[OP_FAMILY_TRANSPOSE] = "transpose",     [OP_FAMILY_SELECTION] = "selection",
	};

	return names[family];
}
