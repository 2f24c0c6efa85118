/* SPDX-License-Identifier: MIT */
/*
 * Conversions around nodes with channels last
 *
 * layout.c chooses these nodes; the operators' files say which nodes may be chosen. An operand of
 * the node that lies in the other order is converted to or from scratch of the node's own. The
 * node's other steps see shapes in the order of memory.
 */
#include "cpu/compile.h"

#include "cpu/internal.h"
#include "cpu/run-move.h"
#include "util/error.h"

/* Add a step that converts from one order to the other. */
static int add_conversion(struct compiler *c, const struct tensor *tensor, bool to_last,
			  struct cpu_operand from, struct cpu_operand to)
{
	const struct shape *shape = &tensor->shape;
	const size_t channels = shape->dims[1], pixels = extent_range(shape, 2, shape->rank).fixed;
	const size_t rows = to_last ? pixels : channels, columns = to_last ? channels : pixels;
	const ptrdiff_t bytes = sizeof(float);
	struct cpu_step_move *step;
	int r;

	r = compile_add_conversion(c, from, to, tensor->fixed_bytes, tensor->row_bytes);
	if (r)
		return error_fold(r);
	step = compile_args(c);
	step->args = (struct cpu_move){
		.form = CPU_MOVE_PLANE,
		.element_bytes = sizeof(float),
		.n_dims = 3,
		.extent = {shape->dynamic ? 1 : shape->dims[0], rows, columns},
		.from_stride = {bytes * (ptrdiff_t)(rows * columns), bytes,
				bytes * (ptrdiff_t)rows},
		.to_stride = {bytes * (ptrdiff_t)(rows * columns), bytes * (ptrdiff_t)columns,
			      bytes},
	};
	step->dynamic = shape->dynamic;
	c->step->run = cpu_run_move;
	c->step->units = cpu_units_move;
	return 0;
}

/* Reserve scratch for one of the node's operands in the other order. */
static struct cpu_operand room_for(struct compiler *c, const struct tensor *tensor)
{
	c->work_max += round_up(tensor->max_bytes, PLAN_SCRATCH_ALIGN);
	return compile_work(c, tensor->max_bytes);
}

int compile_layout_begin(struct compiler *c)
{
	const struct node *node = c->node;
	int r = 0;

	c->is_last = c->layout.is_last[node - c->plan->nodes];
	for (unsigned int i = 0; !r && i < node->n_in; i++) {
		const struct tensor *in = node_in(c, i);
		const bool wants_last = c->is_last && cpu_layout_has_in(c->plan, node, i);
		struct cpu_operand from;

		if (!in || c->layout.lies_last[node->in[i]] == wants_last)
			continue;
		for (unsigned int k = 0; k < i; k++)
			if (node->in[k] == node->in[i])
				c->stand_in[i] = c->stand_in[k];
		if (c->stand_in[i].present)
			continue;
		from = compile_in(c, i);
		c->stand_in[i] = room_for(c, in);
		r = add_conversion(c, in, wants_last, from, c->stand_in[i]);
	}
	for (unsigned int i = 0; c->is_last && i < node->n_out; i++)
		if (cpu_layout_has_out(c->plan, node, i) &&
		    !c->layout.lies_last[plan_result(c->plan, node, i)])
			c->stand_out[i] = room_for(c, node_out(c, i));
	return r ? error_fold(r) : 0;
}

int compile_layout_end(struct compiler *c)
{
	int r = 0;

	for (unsigned int i = 0; c->is_last && !r && i < c->node->n_out; i++) {
		const struct cpu_operand last = c->stand_out[i];

		if (!last.present)
			continue;
		c->stand_out[i].present = false;
		r = add_conversion(c, node_out(c, i), false, last, compile_out(c, i));
	}
	return r ? error_fold(r) : 0;
}

struct shape compile_shape(const struct compiler *c, const struct tensor *tensor, unsigned int rank)
{
	const struct shape *shape = &tensor->shape;
	const unsigned int missing = rank - shape->rank;
	struct shape last = {.rank = (uint8_t)rank, .dynamic = shape->dynamic && !missing};

	if (!c->is_last)
		return *shape;
	for (unsigned int i = 0; i < rank; i++) {
		const unsigned int d = i == 0 ? 0 : i + 1 < rank ? i + 1 : 1;

		last.dims[i] = d < missing ? 1 : shape->dims[d - missing];
	}
	return last;
}

bool cpu_layout_is_picture(const struct tensor *tensor)
{
	return tensor && tensor->dtype == RBK_DTYPE_F32 && tensor->shape.rank >= 3 &&
	       tensor->shape.rank <= 2 + OP_MAX_SPATIAL && tensor->shape.dims[1] > 1 &&
	       cpu_layout_pixels(&tensor->shape, 2) > 1;
}

bool cpu_layout_has_in(const struct plan *plan, const struct node *node, unsigned int i)
{
	const struct tensor *x = i < node->n_in ? cpu_layout_tensor(plan, node->in[i]) : NULL;

	if (!cpu_layout_is_picture(x) || (i > 0 && node->op->kind == OP_CONV))
		return false;
	return !op_is_elementwise(node->op->kind) ||
	       x->shape.rank == cpu_layout_tensor(plan, node->out[0])->shape.rank;
}

bool cpu_layout_has_out(const struct plan *plan, const struct node *node, unsigned int i)
{
	return i < node->n_out && cpu_layout_is_picture(cpu_layout_tensor(plan, node->out[i]));
}

uint64_t cpu_layout_pixels(const struct shape *shape, unsigned int from)
{
	uint64_t n = 1;

	for (unsigned int i = from; i < shape->rank; i++)
		n *= shape->dims[i];
	return n;
}

bool cpu_layout_is_float(const struct tensor *tensor)
{
	return tensor && tensor->dtype == RBK_DTYPE_F32;
}

bool cpu_layout_is_constant(const struct plan *plan, const struct tensor *tensor)
{
	return plan->tensors[tensor->root].kind == RBK_TENSOR_CONSTANT;
}

double cpu_layout_filled(uint32_t channels, uint32_t width)
{
	return channels / ((double)width * div_up(channels, width));
}

double cpu_layout_filled_narrow(uint32_t channels)
{
	return cpu_layout_filled(channels, channels <= 8 ? 8 : 16);
}

double cpu_layout_pool_gain_ns(const struct plan *plan, const struct node *node)
{
	const double work = (double)(node->cost.bytes_fixed + node->cost.bytes_row);
	const uint32_t channels = cpu_layout_tensor(plan, node->in[0])->shape.dims[1];

	/* The divisors are bytes per nanosecond, on Zen 4. */
	return work / 22 - work / (60 * cpu_layout_filled_narrow(channels));
}
