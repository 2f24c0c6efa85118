/* SPDX-License-Identifier: MIT */
/*
 * Time of a node beside its operations and bytes
 *
 * A product of two matrices of one element is one operation on 12 bytes, and takes 20 ns. Kernels
 * set up loops for every unit, row or matrix, however short, and some move elements one by one. The
 * dispatcher computes tasks of one or two microseconds on its own thread, so it must know these
 * times. The numbers of struct cpu_op are about two thirds of the time that the worst shapes took,
 * of those that take at most 2 us by flops and bytes, on a Xeon with AVX-512.
 */
#include "cpu/compile.h"

static const struct cpu_overhead overhead_default = {15, 0, 0};

static size_t kernel_taps(const struct compiler *c)
{
	const struct shape *weights = &node_in(c, 1)->shape;
	size_t taps = 1;

	for (unsigned int i = 2; i < weights->rank; i++)
		taps *= weights->dims[i];
	return taps;
}

static double elems(const struct tensor *tensor, unsigned int n_dims, uint32_t count)
{
	const struct cpu_extent extent = extent_range(&tensor->shape, 0, n_dims);

	return (double)cpu_extent_at(&extent, count);
}

static double max(double a, double b)
{
	return a > b ? a : b;
}

/*
 * Measure rows and elements. Weights and other inputs have rows, too, but kernels process them in
 * larger pieces.
 */
static void measure(const struct compiler *c, uint32_t count, double *ret_rows, double *ret_elems)
{
	for (unsigned int i = 0; i < c->node->n_in + c->node->n_out; i++) {
		const struct tensor *tensor =
			i < c->node->n_in ? node_in(c, i) : node_out(c, i - c->node->n_in);

		if (!tensor)
			continue;
		*ret_elems = max(*ret_elems, elems(tensor, tensor->shape.rank, count));
		if (tensor->shape.rank > 0 && (i == 0 || i == c->node->n_in))
			*ret_rows = max(*ret_rows, elems(tensor, tensor->shape.rank - 1, count));
	}
}

double compile_overhead_ns(const struct compiler *c, uint32_t first_step, uint32_t count)
{
	const enum op_kind kind = c->node->op->kind;
	const struct tensor *in = node_in(c, 0);
	struct cpu_overhead each = c->op->overhead;
	double rows = 1, n = 1, units = 0;

	if (each.unit_ns == 0)
		each = overhead_default;
	measure(c, count, &rows, &n);
	for (uint32_t i = first_step; i < c->compiled->n_steps; i++) {
		const struct cpu_step *step = &c->compiled->steps[i];

		units += (double)step->units(step, count);
	}
	if (kind == OP_CONV_TRANSPOSE)
		units *= (double)kernel_taps(c);
	/* A copy: the shape rule's cost is that of a view. */
	if (kind == OP_RESHAPE && units > 0)
		return n * (double)dtype_bytes(in->dtype) / 8;
	/* These kernels process elements one by one. */
	if (kind == OP_MAX_POOL && in->dtype != RBK_DTYPE_F32)
		each.elem_quarter_ns = 24;
	else if (kind >= OP_REDUCE_SUM && kind <= OP_REDUCE_MIN &&
		 !(OP_ALL_FLOATS & OP_TYPE(in->dtype)))
		each.elem_quarter_ns = 8;
	/* Float16 is converted to and from float32; a vector holds half as many float64. */
	return (units * each.unit_ns + rows * each.row_ns + n * each.elem_quarter_ns / 4) *
	       (in && (in->dtype == RBK_DTYPE_F64 || in->dtype == RBK_DTYPE_F16) ? 2 : 1);
}
