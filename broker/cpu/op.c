/* SPDX-License-Identifier: MIT */
/* The operators of the CPU executor; the file that implements an operator describes it. */
#include "cpu/compile.h"

#define OP_OF(KIND, row, ...) [OP_##KIND] = &cpu_op_##row

const struct cpu_op *cpu_op_of(enum op_kind kind)
{
	static const struct cpu_op *const ops[] = {OP_LIST(OP_OF)};

	return ops[kind];
}
