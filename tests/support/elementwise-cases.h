#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Uses of elementwise operators, for tests of executors
 *
 * The cases cover every operator with every type that a device takes, over random shapes and
 * broadcasts, with and without a count. Their contents include the edge values of each type often.
 */
#include "plan/plan.h"
#include "reference/reference.h"
#include "support/describe.h"

enum { ELEMENTWISE_MAX_COUNT = 5 };

/*
 * Describe case @round of @op with operands of @dtype, each of at most OP_MAX_DIM elements.
 * Return: the description; NULL where @op has no such use, such as a float remainder other than C's
 * fmod.
 */
struct describe *elementwise_case(const struct op *op, uint8_t dtype, unsigned int round,
				  uint64_t *seed);

/* Fill the tensors that the plan reads; with @special, also with infinities and NaNs. */
void elementwise_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *seed);
