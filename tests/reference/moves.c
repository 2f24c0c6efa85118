/* SPDX-License-Identifier: MIT */
/*
 * The plain reference: operators that only move elements
 *
 * For each element of an output, the code computes its source: coordinates of an input, dimension
 * by dimension as the operator is defined. Elements are bytes, whatever their type.
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

/* Source of an output's element. */
struct source {
	unsigned int in;
	struct coords at;
	bool is_value; /* true: Pad's constant value */
};

/* Return the index in [0, @dim) that position @at, which may be outside, repeats or mirrors. */
static int64_t index_of(int64_t at, int64_t dim, unsigned int mode)
{
	enum { REFLECT = 1, EDGE };
	const int64_t period = mode == REFLECT ? 2 * (dim - 1) : dim;

	if (mode == EDGE || period == 0)
		return at < 0 ? 0 : at >= dim ? dim - 1 : at;
	at = (at % period + period) % period;
	return at < dim ? at : period - at;
}

static struct source pad_source(const struct node *node, const struct shape *x,
				const struct shape *y, const struct coords *to)
{
	struct source source = {0};

	for (unsigned int d = 0; d < y->rank; d++) {
		const int64_t begin = node->params.pad.begin[d];
		const int64_t end = (int64_t)y->dims[d] - x->dims[d] - begin;
		const int64_t first = begin < 0 ? -begin : 0;
		/* Size after negative pads. */
		const int64_t dim = x->dims[d] - first + (end < 0 ? end : 0);
		const int64_t at = to->at[d] - (begin > 0 ? begin : 0);

		if (begin == 0 && end == 0) {
			source.at.at[d] = at;
			continue;
		}
		source.is_value |= node->params.pad.mode == 0 && (at < 0 || at >= dim);
		if (!source.is_value)
			source.at.at[d] = first + index_of(at, dim, node->params.pad.mode);
	}
	return source;
}

static struct source concat_source(const struct plan *plan, const struct node *node,
				   const struct coords *to)
{
	const unsigned int axis = node->params.along.axis;
	struct source source = {.at = *to};

	for (;; source.in++) {
		const int64_t dim = plan->tensors[node->in[source.in]].shape.dims[axis];

		if (source.at.at[axis] < dim || source.in + 1u == node->n_in)
			return source;
		source.at.at[axis] -= dim;
	}
}

static struct source source_of(const struct plan *plan, const struct node *node, unsigned int out,
			       const struct coords *to)
{
	const struct shape *x = &plan->tensors[node->in[0]].shape;
	const struct shape *y = &plan->tensors[node->out[out]].shape;
	const unsigned int axis = node->params.along.axis;
	struct source source = {.at = *to};

	switch (node->op->kind) {
	case OP_TRANSPOSE:
		for (unsigned int d = 0; d < y->rank; d++)
			source.at.at[node->params.transpose.perm[d]] = to->at[d];
		break;
	case OP_SLICE:
		for (unsigned int d = 0; d < y->rank; d++)
			source.at.at[d] = node->params.slice.start[d] +
					  to->at[d] * node->params.slice.step[d];
		break;
	case OP_CONCAT:
		return concat_source(plan, node, to);
	case OP_SPLIT:
		for (unsigned int k = 0; k < out; k++)
			source.at.at[axis] += plan->tensors[node->out[k]].shape.dims[axis];
		break;
	case OP_EXPAND:
		for (unsigned int d = 0; d < x->rank; d++)
			source.at.at[d] = x->dims[d] == 1 && !(d == 0 && x->dynamic)
						  ? 0
						  : to->at[y->rank - x->rank + d];
		break;
	case OP_TILE:
		for (unsigned int d = 0; d < x->rank; d++)
			if (!(d == 0 && x->dynamic))
				source.at.at[d] %= x->dims[d];
		break;
	default:
		return pad_source(node, x, y, to);
	}
	return source;
}

bool reference_moves(const struct plan *plan, const struct node *node, uint32_t count,
		     const void *const *in, void *const *out)
{
	const enum op_kind kind = node->op->kind;

	if (kind != OP_TRANSPOSE && (kind < OP_SLICE || kind > OP_PAD))
		return false;
	for (unsigned int o = 0; o < node->n_out; o++) {
		const struct tensor *y = &plan->tensors[node->out[o]];
		const uint64_t bytes = dtype_bytes(y->dtype);

		for (uint64_t i = 0; i < shape_elems(&y->shape, count); i++) {
			const struct coords to = coords_of(&y->shape, count, i);
			const struct source source = source_of(plan, node, o, &to);
			const struct shape *x = &plan->tensors[node->in[source.in]].shape;
			const void *from = &node->params.pad.value;

			if (!source.is_value)
				from = (const char *)in[source.in] +
				       offset(x, count, &source.at) * bytes;
			memcpy((char *)out[o] + i * bytes, from, bytes);
		}
	}
	return true;
}
