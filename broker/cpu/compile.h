#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the compilers of the operators share. Private to broker/cpu; setup thread only.
 *
 * Shapes are turned into the few numbers that a kernel wants, once. The only thing that varies per
 * task is the count, and it can only be a leading dimension: so of the loops of an operator at most
 * the outermost depends on it, and every stride is known when the plan is prepared.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/step.h"
#include "plan/plan.h"

struct compiler {
	struct cpu_executor *cpu;
	const struct plan *plan;
	struct cpu_plan *compiled;
	const struct node *node;
	struct cpu_step *step; /* to be filled; kernels, operands and cost are there */
};

enum pack_form { PACK_MATRIX = 1, PACK_CONV };

/* Return: 0, -ENOMEM. */
int compile_matmul(struct compiler *c);
int compile_gemm(struct compiler *c);
int compile_binary(struct compiler *c);
int compile_relu(struct compiler *c);
int compile_softmax(struct compiler *c);
int compile_reduce(struct compiler *c);
int compile_transpose(struct compiler *c);
int compile_conv(struct compiler *c);
int compile_max_pool(struct compiler *c);
int compile_top_k(struct compiler *c);

/*
 * Finds or makes the packed form of constant input @i and points that operand of the step at it.
 * Return: 0, with *ret_new telling whether it is to be filled; -ENOMEM.
 */
int compile_pack(struct compiler *c, unsigned int i, enum pack_form form, const uint64_t *params,
		 unsigned int n_params, size_t floats, struct cpu_pack **ret, bool *ret_new);

/* Return: the tensor, NULL if absent. */
static inline const struct tensor *node_in(const struct compiler *c, unsigned int i)
{
	if (i >= c->node->n_in || c->node->in[i] == PLAN_NO_TENSOR)
		return NULL;
	return &c->plan->tensors[c->node->in[i]];
}

static inline const struct tensor *node_out(const struct compiler *c, unsigned int i)
{
	return &c->plan->tensors[c->node->out[i]];
}

/* Dimension @i of a shape, which is aligned at the end with one of @rank dimensions. */
static inline struct cpu_extent extent_aligned(const struct shape *shape, unsigned int rank,
					       unsigned int i)
{
	const unsigned int missing = rank - shape->rank;

	if (i < missing)
		return (struct cpu_extent){.fixed = 1};
	if (i == missing && shape->dynamic)
		return (struct cpu_extent){.row = 1};
	return (struct cpu_extent){.fixed = shape->dims[i - missing]};
}

static inline bool extent_is_one(struct cpu_extent extent)
{
	return extent.row == 0 && extent.fixed == 1;
}

/* One of the two does not depend on the count. */
static inline struct cpu_extent extent_mul(struct cpu_extent a, struct cpu_extent b)
{
	if (b.row)
		return (struct cpu_extent){.row = b.row * a.fixed};
	return (struct cpu_extent){.fixed = a.fixed * b.fixed, .row = a.row * b.fixed};
}

/* Product of dimensions [from, to). */
static inline struct cpu_extent extent_range(const struct shape *shape, unsigned int from,
					     unsigned int to)
{
	struct cpu_extent product = {.fixed = 1};

	for (unsigned int i = from; i < to; i++)
		product = extent_mul(product, extent_aligned(shape, shape->rank, i));
	return product;
}

/* Elements below dimension @i: the stride along it. Never depends on the count. */
static inline size_t shape_stride(const struct shape *shape, unsigned int i)
{
	size_t stride = 1;

	while (++i < shape->rank)
		stride *= shape->dims[i];
	return stride;
}

/* Stride along aligned dimension @i of @rank, 0 where it repeats. */
static inline size_t stride_aligned(const struct shape *shape, unsigned int rank, unsigned int i)
{
	if (extent_is_one(extent_aligned(shape, rank, i)))
		return 0;
	return shape_stride(shape, i - (rank - shape->rank));
}
