#pragma once
/* SPDX-License-Identifier: MIT */
/* Random descriptions of products, for comparing executors with the reference. */
#include <stdint.h>

#include "reference/reference.h"
#include "support/describe.h"

/* Rounds that cover all combinations of the attributes. */
enum { RANDOM_GEMM_ROUNDS = 64 };

/*
 * Describe a Gemm with the attributes of @round and random shapes: in some rounds dynamic, of
 * max_count @max_count; in some rounds deeper than a block. The second operand may be a constant of
 * the arena. *state advances.
 */
struct describe *random_gemm(uint64_t *state, unsigned int round, uint32_t max_count);

/*
 * Describe a MatMul with random shapes: in every third round with batches that may broadcast, in
 * odd rounds mostly dynamic. All else is as in random_gemm().
 */
struct describe *random_matmul(uint64_t *state, unsigned int round, uint32_t max_count);
