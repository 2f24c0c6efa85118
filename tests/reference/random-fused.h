#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Random plans of a product or a convolution and what may be computed along with it, for comparing
 * executors with the reference, with fusion and without.
 */
#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"

/* How many rounds go once through all operators and what follows them. */
enum { RANDOM_FUSED_ROUNDS = 4 * 13 };

/*
 * A plan of what @round says, with random shapes: dynamic, of max_count @max_count, in every other
 * round through all of them. *state is advanced, alike whether it @fuses.
 */
struct plan *random_fused(uint64_t *state, unsigned int round, uint32_t max_count, bool fuses);

/*
 * Results may differ by so much from the reference's. Between nodes that are not fused, float16 is
 * rounded, which its own differences from one are measured by.
 */
#define RANDOM_FUSED_RTOL(plan) (random_fused_is_half(plan) ? 4e-3 : 2e-5)
#define RANDOM_FUSED_ATOL(plan) (random_fused_is_half(plan) ? 8e-3 : 1e-5)

static inline bool random_fused_is_half(const struct plan *plan)
{
	return plan->tensors[plan->bindings[0].tensor].dtype == RBK_DTYPE_F16;
}

/* Inputs with some numbers in them that are none, or infinite. */
void random_fused_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		       uint64_t *state);
