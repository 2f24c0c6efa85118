#pragma once
/* SPDX-License-Identifier: MIT */
/* The rows of the catalogue, each defined beside its rule. Private to shm/operators. */
#include "shm/operators/op.h"

#define OP_ROW_NAME(KIND, row, ...) op_##row

/*
 * Of a row: so many inputs and one output, all of one class, whose types every device takes. What
 * is in them does not change the time that it takes.
 */
#define OP_ROW_OF_ONE_CLASS(least_in, most_in, types)                                         \
	.min_in = least_in, .max_in = most_in, .min_out = 1, .max_out = 1, .in_classes = "T", \
	.out_classes = "T", .classes = {{'T', types, types}}, .data_independent = true

extern const struct op OP_LIST(OP_ROW_NAME);

/* Rules that others ask, of the first two inputs and of the first two or three. */
int op_matmul_infer(struct op_call *call);
int op_conv_infer(struct op_call *call);

/* Of operators without attributes. */
static const struct op_attr op_no_attrs[] = {{0}};
