#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans as the broker prepares them, beside the same with fusion forbidden
 *
 * A plan here has one input, one output and constants, all of them float32.
 */
#include <stdint.h>

#include <ringbroker.h>

#include "bench.h"
#include "target.h"

/* What the plans of a bench share. */
struct fused {
	struct target target;
	struct rbk_arena *constants; /* small numbers, for plans to lay their constants over */
	struct rbk_arena *arena;     /* the input, which holds small numbers, and two outputs */
	uint32_t tensor_bytes;       /* of each of these; inputs and outputs may be smaller */
	unsigned int strategy;
};

/* Adds the tensors and the nodes of @what to a builder; the input first, so that a task's is. */
typedef void (*fused_describe_fn)(struct rbk_builder *builder, const void *what,
				  const struct rbk_arena *constants);

/*
 * Plans run on the GPU for TARGET_GPU, else on the CPU.
 * Return: 0; BENCH_E_SKIP or negative errno, which has been reported.
 */
int fused_init(struct fused *fused, struct bench_env *env, enum target_kind kind,
	       uint32_t constant_bytes, uint32_t tensor_bytes);
void fused_deinit(struct fused *fused);

/*
 * Measures the row, if it is wanted: @what with fusion and without, which must give the same up to
 * the rounding of sums in another order, and not zeros alone.
 * Return: 0; negative errno, which has been reported.
 */
int fused_compare(struct fused *fused, struct bench_env *env, const struct bench_row *row,
		  fused_describe_fn describe, const void *what);
