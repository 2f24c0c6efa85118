#pragma once
/* SPDX-License-Identifier: MIT */
/* The rows of the catalogue, each defined beside its rule. Private to shm/operators. */
#include "shm/operators/op.h"

#define OP_ROW_NAME(KIND, row) op_##row

/*
 * Of a row: so many inputs and one output, all of one class, whose types every device takes. What
 * is in them does not change the time that it takes.
 */
#define OP_ROW_OF_ONE_CLASS(least_in, most_in, types)                                         \
	.min_in = least_in, .max_in = most_in, .min_out = 1, .max_out = 1, .in_classes = "T", \
	.out_classes = "T", .classes = {{'T', types, types}}, .data_independent = true

extern const struct op op_matmul, op_gemm;                                 /* op-matmul.c */
extern const struct op OP_ELEMENTWISE(OP_ROW_NAME);                        /* op-elementwise.c */
extern const struct op op_softmax, op_log_softmax, op_lp_norm, op_cum_sum; /* op-softmax.c */
extern const struct op op_reduce_sum, op_reduce_mean, op_reduce_sum_square, op_reduce_l1,
	op_reduce_l2, op_reduce_log_sum, op_reduce_log_sum_exp, op_reduce_prod, op_reduce_max,
	op_reduce_min, op_arg_max, op_arg_min; /* op-reduce.c */
extern const struct op op_layer_norm, op_rms_norm, op_instance_norm, op_group_norm,
	op_batch_norm;                          /* op-norm.c */
extern const struct op op_rotary, op_attention; /* op-attention.c */
extern const struct op op_transpose;            /* op-transpose.c */
extern const struct op op_slice, op_concat, op_split, op_expand, op_tile, op_pad; /* op-move.c */
extern const struct op op_reshape;                                                /* op-reshape.c */
extern const struct op op_conv, op_max_pool, op_average_pool, op_lp_pool,
	op_conv_transpose;       /* op-window.c */
extern const struct op op_top_k; /* op-top-k.c */

/* op-quantize.c */
extern const struct op op_quantize_linear, op_dequantize_linear, op_dynamic_quantize_linear;
/* op-integer.c */
extern const struct op op_matmul_integer, op_qlinear_matmul, op_conv_integer, op_qlinear_conv,
	op_matmul_nbits;

/* op-gather.c */
extern const struct op op_gather, op_gather_elements, op_gather_nd, op_scatter_elements,
	op_scatter_nd;
extern const struct op op_one_hot, op_trilu; /* op-onehot.c */

/* Rules that others ask, of the first two inputs and of the first two or three. */
int op_matmul_infer(struct op_call *call);
int op_conv_infer(struct op_call *call);

/* Of operators without attributes. */
extern const struct op_attr op_no_attrs[];
