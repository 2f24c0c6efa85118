#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Uses of the operators that go by indices, of Trilu and of GridSample, for tests of executors
 *
 * Every type over random shapes, with and without a count; and indices that are good, or not.
 */
#include "plan/plan.h"
#include "reference/reference.h"
#include "support/describe.h"

enum { GATHER_MAX_COUNT = 7, GATHER_FIRST = OP_GATHER, GATHER_LAST = OP_TRILU };

/* Case @round of @op with elements of @dtype. */
struct describe *gather_case(const struct op *op, uint8_t dtype, unsigned int round,
			     uint64_t *seed);

/* Fills what is read; every index is one of those that there are, counted from either end. */
void gather_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		 uint64_t *seed);

/* Makes one index a bad one, of many kinds. Return: false where there are none that can be bad. */
bool gather_spoil(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		  uint64_t *seed);

/*
 * Case @round of GridSample: 45 of them have every mode, padding and type. The grid is of another
 * type, too, if @mixes.
 */
struct describe *sample_case(unsigned int round, bool mixes, uint64_t *seed);

/* Fills the grid; many coordinates are half way between pixels, some are beside the picture. */
void sample_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		 uint64_t *seed);
