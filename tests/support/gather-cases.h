#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Uses of the operators that take indices, of Trilu and of GridSample, for tests of executors
 *
 * The cases cover every type over random shapes, with and without a count; and valid and invalid
 * indices.
 */
#include "plan/plan.h"
#include "reference/reference.h"
#include "support/describe.h"

enum { GATHER_MAX_COUNT = 7, GATHER_FIRST = OP_GATHER, GATHER_LAST = OP_TRILU };

/* Describe case @round of @op with elements of @dtype. */
struct describe *gather_case(const struct op *op, uint8_t dtype, unsigned int round,
			     uint64_t *seed);

/* Fill the tensors that the plan reads. Every index is valid, counted from either end. */
void gather_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		 uint64_t *seed);

/*
 * Make one index invalid, in one of many ways.
 * Return: false where no index can be invalid.
 */
bool gather_spoil(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		  uint64_t *seed);

/*
 * Describe case @round of GridSample: 45 rounds cover every mode, padding and type. With @mixes the
 * grid has another type than the image.
 */
struct describe *sample_case(unsigned int round, bool mixes, uint64_t *seed);

/* Fill the grid; many coordinates are half way between pixels, some are outside the image. */
void sample_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		 uint64_t *seed);
