#pragma once
/* SPDX-License-Identifier: MIT */
/* The rows of the catalogue, each defined beside its rule. Private to shm/operators. */
#include "shm/operators/op.h"

#define OP_ROW_NAME(KIND, row, ...) op_##row

/*
 * Members of a row with @least_in to @most_in inputs and one output, all of one class, whose types
 * every device supports. Its run time does not depend on tensor contents.
 */
#define OP_ROW_OF_ONE_CLASS(least_in, most_in, types) OP_ROW_OF(least_in, most_in, types, types)

/* The same for types that only the CPU supports. */
#define OP_ROW_OF_CPU_CLASS(least_in, most_in, types) OP_ROW_OF(least_in, most_in, types, 0)

#define OP_ROW_OF(least_in, most_in, cpu_types, vulkan_types)                                 \
	.min_in = least_in, .max_in = most_in, .min_out = 1, .max_out = 1, .in_classes = "T", \
	.out_classes = "T", .classes = {{'T', cpu_types, vulkan_types}}, .data_independent = true

extern const struct op OP_LIST(OP_ROW_NAME);

/* Rules that other rules call, on the first two inputs and on the first two or three. */
int op_matmul_infer(struct op_call *call);
int op_conv_infer(struct op_call *call);

/* Compute the cost of a product of matrices, of which input 0 is the left one. */
void op_matmul_cost(const struct op_call *call, struct cost *ret);

/* The empty list, for operators without attributes. */
static const struct op_attr op_no_attrs[] = {{0}};
/* Attributes of convolutions. */
extern const struct op_attr op_conv_attrs[];
