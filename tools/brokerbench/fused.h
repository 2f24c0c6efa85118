#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans as the broker prepares them, against the same plans with fusion forbidden
 *
 * A plan here has one input, one output and constants, all of them float32.
 */
#include <stdint.h>

#include <ringbroker.h>

#include "bench.h"
#include "target.h"

/* Objects shared by the plans of a bench */
struct fused {
	struct target target;
	struct rbk_arena *constants; /* small numbers, which plans use as their constants */
	struct rbk_arena *arena;     /* the input, small numbers, and two outputs */
	uint32_t tensor_bytes; /* bytes of the input and of each output; tensors may be smaller */
	unsigned int strategy;
};

/* Add the tensors and nodes of @what to a builder; the input first, as in a task's references. */
typedef void (*fused_describe_fn)(struct rbk_builder *builder, const void *what,
				  const struct rbk_arena *constants);

/*
 * Initialize for plans on the GPU if @kind is TARGET_GPU, otherwise on the CPU.
 * Return: 0; BENCH_E_SKIP or a negative errno, which has been reported.
 */
int fused_init(struct fused *fused, struct bench_env *env, enum target_kind kind,
	       uint32_t constant_bytes, uint32_t tensor_bytes);
void fused_deinit(struct fused *fused);

/*
 * Measure the row, if it is wanted: @what with fusion and without. Both must give the same result
 * up to the rounding of reordered sums, and not only zeros.
 * Return: 0; a negative errno, which has been reported.
 */
int fused_compare(struct fused *fused, struct bench_env *env, const struct bench_row *row,
		  fused_describe_fn describe, const void *what);
