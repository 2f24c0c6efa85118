#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of the operators along rows, for comparing executors with the reference. */
#include <stdint.h>

#include "reference/reference.h"

/* Rounds that cover all operators. */
enum { RANDOM_ROWS_OPERATORS = 24 };

/*
 * Make a plan of the operator of @round, with random shapes and attributes: dynamic, of max_count
 * @max_count, in odd passes over all operators if the operator allows it. *state advances.
 */
struct plan *random_rows(uint64_t *state, unsigned int round, uint32_t max_count);

/*
 * Make a float64 plan as random_rows() does; the first RANDOM_ROWS_DOUBLE operators support
 * float64.
 */
enum { RANDOM_ROWS_DOUBLE = 22 };
struct plan *random_rows_double(uint64_t *state, unsigned int round, uint32_t max_count);

/* Change random contents: masks exclude keys, and lengths are valid. */
void random_rows_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *state);
