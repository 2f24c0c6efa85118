/* SPDX-License-Identifier: MIT */
/*
 * The operator catalogue: the table
 *
 * One row per operator, in the order of enum op_kind. The rows stand beside their rules, one file
 * per family: op-matmul.c, op-elementwise.c, op-softmax.c, op-reduce.c, op-norm.c, op-attention.c,
 * op-transpose.c, op-move.c, op-reshape.c, op-window.c, op-top-k.c, op-gather.c, op-onehot.c.
 *
 * TopK is the one operator whose run time depends on what it reads: how often the selection changes
 * depends on the order of the values.
 */
#include <string.h>

#include "shm/operators/op-rows.h"

#define ROW_OF(KIND, row) [OP_##KIND] = &op_##row

static const struct op *const ops[] = {
	[OP_MATMUL] = &op_matmul,
	[OP_GEMM] = &op_gemm,
	OP_ELEMENTWISE(ROW_OF),
	[OP_SOFTMAX] = &op_softmax,
	[OP_REDUCE_SUM] = &op_reduce_sum,
	[OP_REDUCE_MEAN] = &op_reduce_mean,
	[OP_REDUCE_SUM_SQUARE] = &op_reduce_sum_square,
	[OP_REDUCE_L1] = &op_reduce_l1,
	[OP_REDUCE_L2] = &op_reduce_l2,
	[OP_REDUCE_LOG_SUM] = &op_reduce_log_sum,
	[OP_REDUCE_LOG_SUM_EXP] = &op_reduce_log_sum_exp,
	[OP_REDUCE_PROD] = &op_reduce_prod,
	[OP_REDUCE_MAX] = &op_reduce_max,
	[OP_REDUCE_MIN] = &op_reduce_min,
	[OP_ARG_MAX] = &op_arg_max,
	[OP_ARG_MIN] = &op_arg_min,
	[OP_CUM_SUM] = &op_cum_sum,
	[OP_LOG_SOFTMAX] = &op_log_softmax,
	[OP_LAYER_NORM] = &op_layer_norm,
	[OP_RMS_NORM] = &op_rms_norm,
	[OP_INSTANCE_NORM] = &op_instance_norm,
	[OP_GROUP_NORM] = &op_group_norm,
	[OP_BATCH_NORM] = &op_batch_norm,
	[OP_LP_NORM] = &op_lp_norm,
	[OP_ROTARY] = &op_rotary,
	[OP_ATTENTION] = &op_attention,
	[OP_TRANSPOSE] = &op_transpose,
	[OP_SLICE] = &op_slice,
	[OP_CONCAT] = &op_concat,
	[OP_SPLIT] = &op_split,
	[OP_EXPAND] = &op_expand,
	[OP_TILE] = &op_tile,
	[OP_PAD] = &op_pad,
	[OP_RESHAPE] = &op_reshape,
	[OP_CONV] = &op_conv,
	[OP_MAX_POOL] = &op_max_pool,
	[OP_AVERAGE_POOL] = &op_average_pool,
	[OP_LP_POOL] = &op_lp_pool,
	[OP_CONV_TRANSPOSE] = &op_conv_transpose,
	[OP_TOP_K] = &op_top_k,
	[OP_QUANTIZE_LINEAR] = &op_quantize_linear,
	[OP_DEQUANTIZE_LINEAR] = &op_dequantize_linear,
	[OP_DYNAMIC_QUANTIZE_LINEAR] = &op_dynamic_quantize_linear,
	[OP_MATMUL_INTEGER] = &op_matmul_integer,
	[OP_QLINEAR_MATMUL] = &op_qlinear_matmul,
	[OP_CONV_INTEGER] = &op_conv_integer,
	[OP_QLINEAR_CONV] = &op_qlinear_conv,
	[OP_MATMUL_NBITS] = &op_matmul_nbits,
	[OP_GATHER] = &op_gather,
	[OP_GATHER_ELEMENTS] = &op_gather_elements,
	[OP_GATHER_ND] = &op_gather_nd,
	[OP_SCATTER_ELEMENTS] = &op_scatter_elements,
	[OP_SCATTER_ND] = &op_scatter_nd,
	[OP_ONE_HOT] = &op_one_hot,
	[OP_TRILU] = &op_trilu,
};
_Static_assert(sizeof(ops) / sizeof(ops[0]) == OP_KIND_COUNT, "one per operator");

const struct op_attr op_no_attrs[] = {{0}};

const struct op *op_by_name(const char *name)
{
	for (size_t i = 0; i < OP_KIND_COUNT; i++) {
		if (!strcmp(ops[i]->name, name))
			return ops[i];
	}
	return NULL;
}

const struct op *op_by_kind(enum op_kind kind)
{
	return (unsigned int)kind < OP_KIND_COUNT ? ops[kind] : NULL;
}

uint32_t op_types(const struct op *op, uint8_t device)
{
	return device == OP_ON_CPU ? op->classes[0].cpu : op->classes[0].vulkan;
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
