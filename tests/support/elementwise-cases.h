#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Uses of the operators that work element by element, for tests of executors
 *
 * Every operator with every type that a device takes, over random shapes and broadcasts, with or
 * without a count; and contents in which the edges of each type are frequent.
 */
#include "plan/plan.h"
#include "reference/reference.h"
#include "support/describe.h"

enum { ELEMENTWISE_MAX_COUNT = 5 };

/*
 * Case @round of @op with operands of @dtype, of OP_MAX_DIM elements at most. Return: NULL where
 * there is no such use, as of a remainder of floats that is none of C's.
 */
struct describe *elementwise_case(const struct op *op, uint8_t dtype, unsigned int round,
				  uint64_t *seed);

/* Fills what is read; @special also with infinities and what is not a number. */
void elementwise_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *seed);
