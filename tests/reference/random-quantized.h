#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of one operator on quantized tensors, for tests of executors. */
#include "reference/reference.h"

enum { RANDOM_QUANTIZED_COUNT = 6 }; /* max_count of dynamic plans */

/* The operators; OP_KIND_COUNT ends the list. */
extern const enum op_kind random_quantized_ops[];

/*
 * Make a plan. Weights and their scales and zero points are constants of @arena now and then, if
 * @arena is not NULL; it has at least 1 MiB. @large permits sizes beyond one block of a kernel.
 */
struct plan *random_quantized_plan(enum op_kind kind, struct exec_arena *arena, bool large,
				   uint64_t *seed);

/* Change random contents so that they include ties and ends of ranges. */
void random_quantized_fill(const struct plan *plan, uint32_t count,
			   struct reference_buffers *buffers, uint64_t *seed);
