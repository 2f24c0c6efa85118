/* SPDX-License-Identifier: MIT */
/*
 * Operators that only move elements
 *
 * A node has one step per move. With channels last, Concat moves rows of pixels.
 *
 * Dimensions of a move may be in any order. The dimension whose elements are adjacent in the source
 * is moved next to the one whose elements are adjacent in the destination. So every Transpose
 * consists of planes.
 */
#include "cpu/compile.h"
#include "cpu/run-move.h"
#include "plan/move.h"
#include "util/error.h"

_Static_assert((int)CPU_MOVE_MAX_DIMS == (int)MOVE_MAX_DIMS, "a step holds any move");

/* Move dimension @d to the last but one position; the others keep their order. */
static void make_last_but_one(struct move *move, unsigned int d)
{
	const uint64_t extent = move->extent[d];
	const int64_t from_stride = move->from_stride[d], to_stride = move->to_stride[d];

	for (; d + 2 < move->n_dims; d++) {
		move->extent[d] = move->extent[d + 1];
		move->from_stride[d] = move->from_stride[d + 1];
		move->to_stride[d] = move->to_stride[d + 1];
	}
	move->extent[d] = extent;
	move->from_stride[d] = from_stride;
	move->to_stride[d] = to_stride;
}

/* Reorder the dimensions of @move for its best form. Return: the form. */
static enum cpu_move_form choose_form(struct move *move, unsigned int *dynamic_dim)
{
	const unsigned int n = move->n_dims;
	const int64_t element = move->element_bytes;

	if (n == 0 || move->to_stride[n - 1] != element)
		return CPU_MOVE_ELEMENTS;
	if (move->from_stride[n - 1] == element && move->from != PLAN_NO_TENSOR)
		return CPU_MOVE_ROWS;
	if (move->from_stride[n - 1] == 0)
		return CPU_MOVE_ELEMENTS;
	for (unsigned int d = 0; d + 1 < n; d++) {
		if (move->from_stride[d] != element)
			continue;
		if (d == 0)
			*dynamic_dim = n - 2;
		make_last_but_one(move, d);
		return CPU_MOVE_PLANE;
	}
	return CPU_MOVE_ELEMENTS;
}

static void set_step(struct compiler *c, struct move *move)
{
	struct cpu_step_move *to = compile_args(c);
	unsigned int dynamic_dim = 0, front;

	move_widen(move, 8);
	*to = (struct cpu_step_move){.value = move->value,
				     .is_value = move->from == PLAN_NO_TENSOR};
	to->args.form = choose_form(move, &dynamic_dim);
	to->args.element_bytes = move->element_bytes;
	if (to->args.form == CPU_MOVE_ROWS) {
		to->args.element_bytes = 1;
		move->extent[move->n_dims - 1] *= move->element_bytes;
		move->from_stride[move->n_dims - 1] = move->to_stride[move->n_dims - 1] = 1;
	}
	/* At least two dimensions: prepend dimensions of 1. */
	front = move->n_dims < 2 ? 2 - move->n_dims : 0;
	to->args.n_dims = front + move->n_dims;
	for (unsigned int d = 0; d < front; d++)
		to->args.extent[d] = 1;
	for (unsigned int d = 0; d < move->n_dims; d++) {
		to->args.extent[front + d] = move->extent[d];
		to->args.from_stride[front + d] = (ptrdiff_t)move->from_stride[d];
		to->args.to_stride[front + d] = (ptrdiff_t)move->to_stride[d];
	}
	to->dynamic = move->dynamic;
	to->dynamic_dim = front + dynamic_dim;
	to->from_first = (size_t)move->from_first;
	to->to_first = (size_t)move->to_first;
	c->step->run = cpu_run_move;
	c->step->units = cpu_units_move;
}

static int compile_moves(struct compiler *c)
{
	const unsigned int n = plan_n_moves(c->plan, c->node);
	const struct tensor *tensors = c->plan->tensors;
	bool is_first = true;
	int r;

	for (unsigned int i = 0; i < n; i++) {
		struct move move;

		if (!plan_move(c->plan, c->node, i, &move))
			continue;
		r = is_first ? 0 : compile_add(c);
		if (r)
			return r;
		is_first = false;
		for (unsigned int k = 0; k < CPU_MAX_IN; k++)
			c->step->in[k].present = false;
		for (unsigned int k = 0; k < CPU_MAX_OUT; k++)
			c->step->out[k].present = false;
		if (move.from != PLAN_NO_TENSOR)
			c->step->in[0] = compile_operand(c, &tensors[move.from]);
		c->step->out[0] = compile_operand(c, &tensors[move.to]);
		set_step(c, &move);
	}
	if (is_first)
		compile_drop(c);
	return 0;
}

/* Copy input @i of a Concat with channels last, pixel by pixel. */
static void set_rows(struct compiler *c, unsigned int i, size_t first)
{
	const struct shape *x = &node_in(c, i)->shape;
	const size_t pixels = extent_range(x, 2, x->rank).fixed;
	const size_t from_bytes = x->dims[1] * sizeof(float);
	struct cpu_step_move *step = compile_args(c);

	step->args = (struct cpu_move){
		.form = CPU_MOVE_ROWS,
		.element_bytes = 1,
		.n_dims = 2,
		.extent = {x->dynamic ? pixels : x->dims[0] * pixels, from_bytes},
		.from_stride = {(ptrdiff_t)from_bytes, 1},
		.to_stride = {(ptrdiff_t)(node_out(c, 0)->shape.dims[1] * sizeof(float)), 1},
	};
	step->dynamic = x->dynamic;
	step->to_first = first;
	memset(c->step->in, 0, sizeof(c->step->in));
	c->step->in[0] = compile_in(c, i);
	c->step->run = cpu_run_move;
	c->step->units = cpu_units_move;
}

static int compile_concat(struct compiler *c)
{
	size_t first = 0;
	int r;

	if (!c->is_last)
		return compile_moves(c);
	for (unsigned int i = 0; i < c->node->n_in; i++) {
		r = i == 0 ? 0 : compile_add(c);
		if (r)
			return error_fold(r);
		set_rows(c, i, first);
		first += node_in(c, i)->shape.dims[1] * sizeof(float);
	}
	return 0;
}

static bool concat_may(const struct plan *plan, const struct node *node)
{
	for (unsigned int i = 0; i < node->n_in; i++)
		if (!cpu_layout_is_float(cpu_layout_tensor(plan, node->in[i])))
			return false;
	return node->params.along.axis == 1 && cpu_layout_has_out(plan, node, 0);
}

const struct cpu_op cpu_op_concat = {.compile = compile_concat,
				     .may_be_last = concat_may,
				     .takes_half = compile_half_as_it_is,
				     .overhead = {15, 0, 2}};
const struct cpu_op cpu_op_transpose = {
	.compile = compile_moves, .takes_half = compile_half_as_it_is, .overhead = {20, 0, 2}};
const struct cpu_op cpu_op_slice = {
	.compile = compile_moves, .takes_half = compile_half_as_it_is, .overhead = {15, 0, 2}};
const struct cpu_op cpu_op_split = {
	.compile = compile_moves, .takes_half = compile_half_as_it_is, .overhead = {15, 0, 2}};
const struct cpu_op cpu_op_expand = {
	.compile = compile_moves, .takes_half = compile_half_as_it_is, .overhead = {15, 0, 2}};
const struct cpu_op cpu_op_tile = {
	.compile = compile_moves, .takes_half = compile_half_as_it_is, .overhead = {15, 0, 2}};
const struct cpu_op cpu_op_pad = {
	.compile = compile_moves, .takes_half = compile_half_as_it_is, .overhead = {15, 0, 2}};
