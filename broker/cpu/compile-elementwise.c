/* SPDX-License-Identifier: MIT */
/*
 * Add, Mul and Relu
 *
 * Neighbouring dimensions are merged where both operands walk through them in one stride, or both
 * repeat: that makes most broadcasts a single loop or rows of one kind.
 */
#include "cpu/compile.h"

int compile_binary(struct compiler *c)
{
	const bool is_add = c->node->op->kind == OP_ADD;
	const struct shape *a = &node_in(c, 0)->shape, *b = &node_in(c, 1)->shape;
	const struct shape *y = &node_out(c, 0)->shape;
	struct cpu_step_binary *step = &c->step->binary;
	struct cpu_extent extent[CPU_MAX_DIMS];
	size_t a_stride[CPU_MAX_DIMS], b_stride[CPU_MAX_DIMS];
	unsigned int n = 0;

	for (unsigned int i = 0; i < y->rank; i++) {
		const struct cpu_extent e = extent_aligned(y, y->rank, i);
		const size_t as = stride_aligned(a, y->rank, i), bs = stride_aligned(b, y->rank, i);

		if (extent_is_one(e))
			continue;
		if (n > 0 && a_stride[n - 1] == as * e.fixed && b_stride[n - 1] == bs * e.fixed) {
			extent[n - 1] = extent_mul(extent[n - 1], e);
		} else {
			extent[n++] = e;
		}
		a_stride[n - 1] = as;
		b_stride[n - 1] = bs;
	}
	/* What is left innermost has strides of 0 or 1, and not both 0 unless it is all there is.
	 */
	step->inner = n > 0 ? extent[n - 1] : (struct cpu_extent){.fixed = 1};
	step->a_step = n > 0 ? a_stride[n - 1] : 0;
	step->b_step = n > 0 ? b_stride[n - 1] : 0;
	step->n_outer = n > 1 ? n - 1 : 0;
	for (unsigned int i = 0; i < step->n_outer; i++) {
		step->extent[i] = extent[i];
		step->a_stride[i] = a_stride[i];
		step->b_stride[i] = b_stride[i];
	}
	if (step->n_outer == 0) {
		c->step->run = is_add ? cpu_run_add_flat : cpu_run_mul_flat;
		c->step->units = cpu_units_flat;
	} else {
		c->step->run = is_add ? cpu_run_add : cpu_run_mul;
		c->step->units = cpu_units_broadcast;
	}
	return 0;
}

int compile_relu(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape;

	c->step->run = cpu_run_relu;
	c->step->units = cpu_units_relu;
	c->step->n = extent_range(x, 0, x->rank);
	return 0;
}
