/* SPDX-License-Identifier: MIT */
/*
 * Operators that only move elements: see move.h
 *
 * Each has a function that describes its moves, dimension by dimension as move_append() takes them.
 */
#include "plan/move.h"

#include <string.h>

#include "shm/dtype.h"

static const struct shape *shape_of(const struct plan *plan, uint16_t tensor)
{
	return &plan->tensors[tensor].shape;
}

/* Bytes from one index of dimension @i to the next. Never depends on the count. */
static int64_t stride_of(const struct move *move, const struct shape *shape, unsigned int i)
{
	int64_t stride = move->element_bytes;

	while (++i < shape->rank)
		stride *= shape->dims[i];
	return stride;
}

static void move_begin(struct move *move, const struct plan *plan, uint16_t from, uint16_t to)
{
	*move = (struct move){
		.from = from,
		.to = to,
		.element_bytes = (unsigned int)dtype_bytes(plan->tensors[to].dtype),
	};
}

/* Adds a dimension within those that are there, of @extent indices; times the count if @is_count.
 */
static void move_append(struct move *move, uint64_t extent, bool is_count, int64_t from_stride,
			int64_t to_stride)
{
	unsigned int last = move->n_dims - 1;

	if (extent == 1 && !is_count)
		return;
	if (move->n_dims > 0 && move->from_stride[last] == from_stride * (int64_t)extent &&
	    move->to_stride[last] == to_stride * (int64_t)extent) {
		move->extent[last] *= extent;
	} else {
		last = move->n_dims++;
		move->extent[last] = is_count ? 1 : extent;
	}
	move->from_stride[last] = from_stride;
	move->to_stride[last] = to_stride;
	move->dynamic |= is_count;
}

/* A dimension of @shape as it is. */
static void move_append_dim(struct move *move, const struct shape *shape, unsigned int i,
			    int64_t from_stride, int64_t to_stride)
{
	move_append(move, shape->dims[i], i == 0 && shape->dynamic, from_stride, to_stride);
}

static bool move_transpose(const struct plan *plan, const struct node *node, unsigned int i,
			   struct move *move)
{
	const struct shape *from = shape_of(plan, node->in[0]), *to = shape_of(plan, node->out[0]);

	move_begin(move, plan, node->in[0], node->out[0]);
	for (unsigned int d = 0; d < to->rank; d++)
		move_append_dim(move, to, d, stride_of(move, from, node->params.transpose.perm[d]),
				stride_of(move, to, d));
	return true;
}

bool plan_moves(enum op_kind kind)
{
	return kind == OP_TRANSPOSE;
}

unsigned int plan_n_moves(const struct plan *plan, const struct node *node)
{
	return 1;
}

bool plan_move(const struct plan *plan, const struct node *node, unsigned int i, struct move *ret)
{
	return move_transpose(plan, node, i, ret);
}

/* Is everything but the last dimension in steps of @bytes, and that one as many of them? */
static bool is_wide(const struct move *move, unsigned int bytes)
{
	const unsigned int last = move->n_dims - 1;

	if (move->from_first % bytes || move->to_first % bytes ||
	    move->extent[last] * move->element_bytes % bytes)
		return false;
	for (unsigned int d = 0; d < last; d++)
		if (move->from_stride[d] % (int64_t)bytes || move->to_stride[d] % (int64_t)bytes)
			return false;
	return true;
}

void move_widen(struct move *move, unsigned int max_bytes)
{
	const bool is_value = move->from == PLAN_NO_TENSOR;
	const unsigned int last = move->n_dims - 1, element = move->element_bytes;
	unsigned int bytes = max_bytes;

	if (move->n_dims == 0 || move->to_stride[last] != element ||
	    (!is_value && move->from_stride[last] != element))
		return;
	while (bytes > element && !is_wide(move, bytes))
		bytes /= 2;
	if (bytes <= element)
		return;
	move->element_bytes = bytes;
	move->extent[last] /= bytes / element;
	move->to_stride[last] = bytes;
	move->from_stride[last] = is_value ? 0 : (int64_t)bytes;
	if (move->extent[last] == 1 && !(last == 0 && move->dynamic))
		move->n_dims--;
}
