#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of the operators along rows, for comparing executors with the reference. */
#include <stdint.h>

#include "reference/reference.h"

/* How many rounds go once through all operators. */
enum { RANDOM_ROWS_OPERATORS = 24 };

/*
 * A plan of the operator that @round says, with random shapes and attributes: dynamic, of max_count
 * @max_count, in odd rounds through all of them if it can be. *state is advanced.
 */
struct plan *random_rows(uint64_t *state, unsigned int round, uint32_t max_count);

/* The same of float64: the first RANDOM_ROWS_DOUBLE operators have it. */
enum { RANDOM_ROWS_DOUBLE = 22 };
struct plan *random_rows_double(uint64_t *state, unsigned int round, uint32_t max_count);

/* Changes random contents: keys that a mask leaves out, and lengths that are valid. */
void random_rows_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *state);
