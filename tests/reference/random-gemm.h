#pragma once
/* SPDX-License-Identifier: MIT */
/* Random descriptions of products, for comparing executors with the reference. */
#include <stdint.h>

#include "reference/reference.h"
#include "support/describe.h"

/* How many rounds go once through all combinations of what the attributes say. */
enum { RANDOM_GEMM_ROUNDS = 64 };

/*
 * A Gemm whose attributes @round says, with random shapes: in some rounds dynamic, of max_count
 * @max_count, in some deeper than a block. The second operand may be a constant of the arena.
 * *state is advanced.
 */
struct describe *random_gemm(uint64_t *state, unsigned int round, uint32_t max_count);

/*
 * A MatMul with random shapes: in every third round with batches that may broadcast, in odd rounds
 * mostly dynamic. Otherwise as random_gemm().
 */
struct describe *random_matmul(uint64_t *state, unsigned int round, uint32_t max_count);
