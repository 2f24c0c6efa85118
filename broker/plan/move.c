/* SPDX-License-Identifier: MIT */
/*
 * Moves: operators that only move elements: see move.h.
 *
 * Each operator has a function that describes its moves, dimension by dimension with move_append().
 */
#include "plan/move.h"

#include <string.h>

#include "shm/dtype.h"

static const struct shape *shape_of(const struct plan *plan, uint16_t tensor)
{
	return &plan->tensors[tensor].shape;
}

/* Return the bytes from one index of dimension @i to the next, which do not depend on the count. */
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

/* Append an innermost dimension of @extent indices; @is_count: times the count. */
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

/* Append dimension @i of @shape in full. */
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

static bool move_slice(const struct plan *plan, const struct node *node, unsigned int i,
		       struct move *move)
{
	const struct shape *from = shape_of(plan, node->in[0]), *to = shape_of(plan, node->out[0]);

	move_begin(move, plan, node->in[0], node->out[0]);
	for (unsigned int d = 0; d < to->rank; d++) {
		const int64_t stride = stride_of(move, from, d);

		move->from_first += node->params.slice.start[d] * (uint64_t)stride;
		move_append_dim(move, to, d, stride * node->params.slice.step[d],
				stride_of(move, to, d));
	}
	return true;
}

/*
 * Describe a move between all of @part and index @first of dimension @axis of @whole. @takes_out:
 * @whole is read.
 */
static void move_part(struct move *move, const struct shape *part, const struct shape *whole,
		      unsigned int axis, uint64_t first, bool takes_out)
{
	const uint64_t at = first * (uint64_t)stride_of(move, whole, axis);

	move->from_first = takes_out ? at : 0;
	move->to_first = takes_out ? 0 : at;
	for (unsigned int d = 0; d < part->rank; d++) {
		const int64_t in_part = stride_of(move, part, d);
		const int64_t in_whole = stride_of(move, whole, d);

		move_append_dim(move, part, d, takes_out ? in_whole : in_part,
				takes_out ? in_part : in_whole);
	}
	move->is_independent = true;
}

static bool move_concat(const struct plan *plan, const struct node *node, unsigned int i,
			struct move *move)
{
	const unsigned int axis = node->params.along.axis;
	uint64_t first = 0;

	for (unsigned int k = 0; k < i; k++)
		first += shape_of(plan, node->in[k])->dims[axis];
	move_begin(move, plan, node->in[i], node->out[0]);
	move_part(move, shape_of(plan, node->in[i]), shape_of(plan, node->out[0]), axis, first,
		  false);
	return true;
}

static bool move_split(const struct plan *plan, const struct node *node, unsigned int i,
		       struct move *move)
{
	const unsigned int axis = node->params.along.axis;
	uint64_t first = 0;

	for (unsigned int k = 0; k < i; k++)
		first += shape_of(plan, node->out[k])->dims[axis];
	move_begin(move, plan, node->in[0], node->out[i]);
	move_part(move, shape_of(plan, node->out[i]), shape_of(plan, node->in[0]), axis, first,
		  true);
	return true;
}

static bool move_expand(const struct plan *plan, const struct node *node, unsigned int i,
			struct move *move)
{
	const struct shape *from = shape_of(plan, node->in[0]), *to = shape_of(plan, node->out[0]);
	const unsigned int skip = to->rank - from->rank;

	move_begin(move, plan, node->in[0], node->out[0]);
	for (unsigned int d = 0; d < to->rank; d++) {
		const bool repeats =
			d < skip || (from->dims[d - skip] == 1 && !(d == 0 && to->dynamic));

		move_append_dim(move, to, d, repeats ? 0 : stride_of(move, from, d - skip),
				stride_of(move, to, d));
	}
	return true;
}

/* Each dimension becomes two. The outer one repeats the input: its source stride is 0. */
static bool move_tile(const struct plan *plan, const struct node *node, unsigned int i,
		      struct move *move)
{
	const struct shape *from = shape_of(plan, node->in[0]), *to = shape_of(plan, node->out[0]);

	move_begin(move, plan, node->in[0], node->out[0]);
	for (unsigned int d = 0; d < to->rank; d++) {
		const int64_t stride = stride_of(move, to, d);

		move_append(move, to->dims[d] / from->dims[d], false, 0, stride * from->dims[d]);
		move_append_dim(move, from, d, stride_of(move, from, d), stride);
	}
	return true;
}

/*
 * Pad. The first move copies the elements that are kept to their place. The other moves go from the
 * last dimension to the first. They make the padding before and behind a dimension from elements
 * that are in the output by then: over the full extent of the inner dimensions, and over the kept
 * extent of the outer ones.
 */
enum { PAD_PARTS = 3, PAD_SIDES = 2 };

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };

/* Padding of one dimension: numbers of indices added in front, kept, and added behind. */
struct padding {
	uint64_t before, kept, after;
	uint64_t skipped; /* dropped from the front of the input */
};

static struct padding padding_of(const struct node *node, const struct shape *from,
				 const struct shape *to, unsigned int d)
{
	const int64_t begin = node->params.pad.begin[d];
	const int64_t end = (int64_t)to->dims[d] - from->dims[d] - begin;
	struct padding padding = {
		.before = begin > 0 ? (uint64_t)begin : 0,
		.after = end > 0 ? (uint64_t)end : 0,
		.skipped = begin < 0 ? (uint64_t)-begin : 0,
	};

	padding.kept = to->dims[d] - padding.before - padding.after;
	return padding;
}

static void move_kept(const struct plan *plan, const struct node *node, struct move *move)
{
	const struct shape *from = shape_of(plan, node->in[0]), *to = shape_of(plan, node->out[0]);

	move_begin(move, plan, node->in[0], node->out[0]);
	for (unsigned int d = 0; d < to->rank; d++) {
		const struct padding padding = padding_of(node, from, to, d);
		const int64_t from_stride = stride_of(move, from, d);
		const int64_t to_stride = stride_of(move, to, d);

		move->from_first += padding.skipped * (uint64_t)from_stride;
		move->to_first += padding.before * (uint64_t)to_stride;
		move_append(move, padding.kept, d == 0 && to->dynamic, from_stride, to_stride);
	}
}

/*
 * Indices of one dimension that are copied from other indices of it. All periods have the same
 * source.
 */
struct run {
	uint64_t from, to, n;
	int64_t step;
	uint64_t n_periods;
};

/*
 * Describe the indices on one side in up to three runs: mirrored ones; whole periods, which repeat
 * indices that are in the output by then; and the rest. Return: false: run @part is empty.
 */
static bool pad_run(const struct padding *padding, enum pad_mode mode, bool behind,
		    unsigned int part, struct run *ret)
{
	const uint64_t before = padding->before, kept = padding->kept;
	const uint64_t n = behind ? padding->after : before;
	const bool mirrors = mode == PAD_REFLECT && kept > 1;
	const uint64_t period = mirrors ? 2 * (kept - 1) : kept;
	const uint64_t mirrored = !mirrors ? 0 : n < kept - 1 ? n : kept - 1;
	const uint64_t periods = (n - mirrored) / period, rest = (n - mirrored) % period;
	/* End (behind) and begin (in front) of the indices that are filled after part 0. */
	const uint64_t first = before + kept + mirrored, last = before - (behind ? 0 : mirrored);

	*ret = (struct run){.n = n, .step = 1, .n_periods = 1};
	if (mode == PAD_CONSTANT || mode == PAD_EDGE || (mode == PAD_REFLECT && !mirrors)) {
		ret->to = behind ? before + kept : 0;
		ret->from = behind ? before + kept - 1 : before;
		ret->step = 0;
		return part == 0 && n > 0;
	}
	if (part == 0) {
		ret->n = mirrored;
		ret->step = -1;
		ret->to = behind ? before + kept : last;
		ret->from = behind ? before + kept - 2 : before + mirrored;
	} else if (part == 1) {
		ret->n = period;
		ret->n_periods = periods;
		ret->to = behind ? first : rest;
		ret->from = behind ? first - period : last;
	} else {
		ret->n = rest;
		ret->to = behind ? first + periods * period : 0;
		ret->from = behind ? first - period : last + period - rest;
	}
	return ret->n > 0 && ret->n_periods > 0;
}

static bool move_padding(const struct plan *plan, const struct node *node, unsigned int axis,
			 bool behind, unsigned int part, struct move *move)
{
	const struct shape *from = shape_of(plan, node->in[0]), *to = shape_of(plan, node->out[0]);
	const enum pad_mode mode = (enum pad_mode)node->params.pad.mode;
	const struct padding padding = padding_of(node, from, to, axis);
	struct run run;

	if (!pad_run(&padding, mode, behind, part, &run))
		return false;
	move_begin(move, plan, mode == PAD_CONSTANT ? PLAN_NO_TENSOR : node->out[0], node->out[0]);
	for (unsigned int d = 0; d < to->rank; d++) {
		const struct padding other = padding_of(node, from, to, d);
		const int64_t stride = stride_of(move, to, d);

		if (d == axis) {
			move->from_first += run.from * (uint64_t)stride;
			move->to_first += run.to * (uint64_t)stride;
			move_append(move, run.n_periods, false, 0, stride * (int64_t)run.n);
			move_append(move, run.n, false, stride * run.step, stride);
		} else if (d > axis) {
			move_append_dim(move, to, d, stride, stride);
		} else {
			move->from_first += other.before * (uint64_t)stride;
			move->to_first += other.before * (uint64_t)stride;
			move_append(move, other.kept, d == 0 && to->dynamic, stride, stride);
		}
	}
	return true;
}

static bool move_pad(const struct plan *plan, const struct node *node, unsigned int i,
		     struct move *move)
{
	const bool is_constant = node->params.pad.mode == PAD_CONSTANT;

	if (i == 0) {
		move_kept(plan, node, move);
	} else {
		const unsigned int rank = shape_of(plan, node->out[0])->rank;
		const unsigned int part = (i - 1) % PAD_PARTS, side = (i - 1) / PAD_PARTS;

		if (!move_padding(plan, node, rank - 1 - side / PAD_SIDES, side % PAD_SIDES, part,
				  move))
			return false;
	}
	move->value = node->params.pad.value;
	move->is_independent = is_constant;
	if (move->from == PLAN_NO_TENSOR) {
		move->from_first = 0;
		memset(move->from_stride, 0, sizeof(move->from_stride));
	}
	return true;
}

typedef bool move_fn(const struct plan *plan, const struct node *node, unsigned int i,
		     struct move *move);

static move_fn *const moves[OP_KIND_COUNT] = {
	[OP_TRANSPOSE] = move_transpose,
	[OP_SLICE] = move_slice,
	[OP_CONCAT] = move_concat,
	[OP_SPLIT] = move_split,
	[OP_EXPAND] = move_expand,
	[OP_TILE] = move_tile,
	[OP_PAD] = move_pad,
};

bool plan_moves(enum op_kind kind)
{
	return moves[kind] != NULL;
}

unsigned int plan_n_moves(const struct plan *plan, const struct node *node)
{
	switch (node->op->kind) {
	case OP_CONCAT:
		return node->n_in;
	case OP_SPLIT:
		return node->n_out;
	case OP_PAD:
		return 1 + shape_of(plan, node->out[0])->rank * PAD_SIDES * PAD_PARTS;
	default:
		return 1;
	}
}

bool plan_move(const struct plan *plan, const struct node *node, unsigned int i, struct move *ret)
{
	return moves[node->op->kind](plan, node, i, ret);
}

/* Return true if all positions are multiples of @bytes, and the last dimension is, too. */
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
