/* SPDX-License-Identifier: MIT */
/*
 * The operator catalogue: the table
 *
 * Each operator's row is beside its rule in the file of its family.
 *
 * TopK is the only operator whose run time depends on tensor contents: the order of the values
 * determines how often the selection changes.
 */
#include <string.h>

#include "shm/operators/op-rows.h"

#define ROW_OF(KIND, row, ...) [OP_##KIND] = &op_##row

static const struct op *const ops[] = {OP_LIST(ROW_OF)};

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
