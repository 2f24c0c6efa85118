#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of the operators that only move elements, for comparing executors with the
 * reference. */
#include <stdint.h>

#include "reference/reference.h"

/* Rounds that cover all operators and types, with and without a count. */
enum { RANDOM_MOVES_OPERATORS = 7, RANDOM_MOVES_ROUNDS = 7 * 9 * 2 };

/*
 * Make a plan of the operator of @round, with random shapes and attributes: dynamic, of max_count
 * @max_count, in every second pass over all operators. *state advances.
 */
struct plan *random_moves(uint64_t *state, unsigned int round, uint32_t max_count);
