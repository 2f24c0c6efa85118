/* SPDX-License-Identifier: MIT */
/*
 * Softmax, ReduceSum, Transpose and TopK
 *
 * Softmax and TopK see any tensor as outer, axis and inner dimension. For the other two,
 * neighbouring dimensions that are treated alike are merged and those of 1 dropped.
 */
#include "cpu/compile.h"

static void columns(struct compiler *c, unsigned int axis)
{
	const struct shape *x = &node_in(c, 0)->shape;

	c->step->columns.outer = extent_range(x, 0, axis);
	c->step->columns.len = extent_aligned(x, x->rank, axis);
	c->step->columns.inner = extent_range(x, axis + 1, x->rank);
}

int compile_top_k(struct compiler *c)
{
	columns(c, c->node->params.top_k.axis);
	c->step->run = cpu_run_top_k;
	c->step->units = cpu_units_top_k;
	c->step->columns.k = c->node->params.top_k.k;
	c->step->columns.largest = c->node->params.top_k.largest;
	return 0;
}

int compile_softmax(struct compiler *c)
{
	columns(c, c->node->params.softmax.axis);
	c->step->run = cpu_run_softmax;
	c->step->units = cpu_units_softmax;
	return 0;
}

int compile_reduce(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape;
	struct cpu_step_reduce *step = &c->step->reduce;
	struct cpu_reduce *args = &step->args;
	const uint8_t axes = c->node->params.reduce.axes;
	bool any = false, last = false;

	c->step->run = cpu_run_reduce;
	c->step->units = cpu_units_reduce;
	step->count_kept = x->dynamic && !(axes & 1);
	step->count_reduced = x->dynamic && (axes & 1);
	for (unsigned int i = 0; i < x->rank; i++) {
		const bool reduced = axes & 1u << i, dynamic = i == 0 && x->dynamic;
		const size_t extent = dynamic ? 1 : x->dims[i];
		unsigned int *n = reduced ? &args->n_reduced : &args->n_kept;
		size_t *extents = reduced ? args->reduced : args->kept;
		size_t *strides = reduced ? args->reduced_stride : args->kept_stride;

		if (extent == 1 && !dynamic)
			continue;
		/* A tensor has no gaps: neighbours of one kind always merge. */
		if (any && reduced == last)
			extents[*n - 1] *= extent;
		else
			extents[(*n)++] = extent;
		strides[*n - 1] = shape_stride(x, i);
		any = true;
		last = reduced;
	}
	if (!any) {
		args->n_reduced = 1;
		args->reduced[0] = args->reduced_stride[0] = 1;
	}
	args->inner_kept = any && !last;
	return 0;
}

int compile_transpose(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape, *y = &node_out(c, 0)->shape;
	struct cpu_step_transpose *step = &c->step->transpose;
	struct cpu_transpose *args = &step->args;

	c->step->run = cpu_run_transpose;
	c->step->units = cpu_units_transpose;
	step->dynamic = y->dynamic;
	for (unsigned int i = 0; i < y->rank; i++) {
		const bool dynamic = i == 0 && y->dynamic;
		const size_t extent = dynamic ? 1 : y->dims[i];
		const size_t stride = shape_stride(x, c->node->params.transpose.perm[i]);
		unsigned int *n = &args->n_dims;

		if (extent == 1 && !dynamic)
			continue;
		if (*n > 0 && args->x_stride[*n - 1] == stride * extent)
			args->extent[*n - 1] *= extent;
		else
			args->extent[(*n)++] = extent;
		args->x_stride[*n - 1] = stride;
	}
	return 0;
}
