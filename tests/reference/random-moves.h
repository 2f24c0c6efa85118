#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of the operators that only move elements, for comparing executors with the
 * reference. */
#include <stdint.h>

#include "reference/reference.h"

/* How many rounds go once through all operators, types, and with and without a count. */
enum { RANDOM_MOVES_OPERATORS = 7, RANDOM_MOVES_ROUNDS = 7 * 9 * 2 };

/*
 * A plan of the operator that @round says, with random shapes and attributes: dynamic, of max_count
 * @max_count, in every second round through all of them. *state is advanced.
 */
struct plan *random_moves(uint64_t *state, unsigned int round, uint32_t max_count);
