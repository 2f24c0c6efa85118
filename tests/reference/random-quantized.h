#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of one operator on quantized tensors, for tests of executors. */
#include "reference/reference.h"

enum { RANDOM_QUANTIZED_COUNT = 6 }; /* max_count of those that have one */

/* The operators, ended by OP_KIND_COUNT. */
extern const enum op_kind random_quantized_ops[];

/*
 * Makes a plan. Weights and what belongs to them are constants of @arena now and then, if it is not
 * NULL; it has 1 MiB at least. @large allows sizes beyond one block of a kernel.
 */
struct plan *random_quantized_plan(enum op_kind kind, struct exec_arena *arena, bool large,
				   uint64_t *seed);

/* Changes random contents so that ties and ends of ranges are among them. */
void random_quantized_fill(const struct plan *plan, uint32_t count,
			   struct reference_buffers *buffers, uint64_t *seed);
