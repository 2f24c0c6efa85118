#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Random plans of a product or a convolution and the operators that may be fused with it, for
 * comparing executors with the reference, with and without fusion.
 */
#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"

/* Rounds that cover all first operators and all operators that follow them. */
enum { RANDOM_FUSED_ROUNDS = 4 * 13 };

/*
 * Make the plan of @round, with random shapes: dynamic, of max_count @max_count, in every other
 * pass over all rounds. *state advances, independent of @fuses.
 */
struct plan *random_fused(uint64_t *state, unsigned int round, uint32_t max_count, bool fuses);

/*
 * Tolerances against the reference. Float16 is rounded between nodes that are not fused, so its
 * tolerances allow for the difference from one rounding.
 */
#define RANDOM_FUSED_RTOL(plan) (random_fused_is_half(plan) ? 4e-3 : 2e-5)
#define RANDOM_FUSED_ATOL(plan) (random_fused_is_half(plan) ? 8e-3 : 1e-5)

static inline bool random_fused_is_half(const struct plan *plan)
{
	return plan->tensors[plan->bindings[0].tensor].dtype == RBK_DTYPE_F16;
}

/* Fill the inputs, with some NaNs and infinities. */
void random_fused_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		       uint64_t *state);
