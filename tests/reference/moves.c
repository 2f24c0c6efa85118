/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators that only move elements
 *
 * For each element of an output, where it comes from: coordinates of an input, which are looked up
 * dimension by dimension as the operator is defined.
 */
#include "reference/moves.h"

#include <assert.h>
#include <string.h>

#include "shm/dtype.h"

struct coords {
	int64_t at[RBK_MAX_RANK];
};

static uint64_t offset(const struct shape *shape, uint32_t count, const struct coords *coords)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < shape->rank; i++) {
		const uint32_t dim = shape_dim(shape, i, count);

		assert(coords->at[i] >= 0 && coords->at[i] < dim);
		sum = sum * dim + (uint64_t)coords->at[i];
	}
	return sum;
}

static struct coords coords_of(const struct shape *shape, uint32_t count, uint64_t i)
{
	struct coords coords = {{0}};

	for (unsigned int d = shape->rank; d-- > 0; i /= shape_dim(shape, d, count))
		coords.at[d] = (int64_t)(i % shape_dim(shape, d, count));
	return coords;
}

static struct coords source(const struct node *node, const struct shape *y, const struct coords *to)
{
	struct coords from = {{0}};

	for (unsigned int d = 0; d < y->rank; d++)
		from.at[node->params.transpose.perm[d]] = to->at[d];
	return from;
}

bool reference_moves(const struct plan *plan, const struct node *node, uint32_t count,
		     const void *const *in, void *const *out)
{
	if (node->op->kind != OP_TRANSPOSE)
		return false;
	for (unsigned int o = 0; o < node->n_out; o++) {
		const struct tensor *y = &plan->tensors[node->out[o]];
		const uint64_t bytes = dtype_bytes(y->dtype);

		for (uint64_t i = 0; i < shape_elems(&y->shape, count); i++) {
			const struct coords to = coords_of(&y->shape, count, i);
			const struct coords from = source(node, &y->shape, &to);
			const uint64_t at = offset(&plan->tensors[node->in[0]].shape, count, &from);

			memcpy((char *)out[o] + i * bytes, (const char *)in[0] + at * bytes, bytes);
		}
	}
	return true;
}
