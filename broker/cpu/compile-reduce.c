/* SPDX-License-Identifier: MIT */
/*
 * Softmax, reductions, CumSum and TopK
 *
 * Operators along one dimension see every tensor as outer, axis and inner dimension. For
 * reductions, adjacent dimensions of the same kind are merged, and dimensions of 1 are dropped.
 */
#include "cpu/compile.h"
#include "cpu/run-reduce.h"

static enum cpu_type type_of(const struct tensor *tensor)
{
	switch (tensor->dtype) {
	case RBK_DTYPE_I32:
		return CPU_I32;
	case RBK_DTYPE_I64:
		return CPU_I64;
	case RBK_DTYPE_I8:
		return CPU_I8;
	case RBK_DTYPE_U8:
	case RBK_DTYPE_BOOL:
		return CPU_U8;
	default:
		return node_float_type(tensor);
	}
}

static struct cpu_step_columns *columns(struct compiler *c, unsigned int axis)
{
	struct cpu_step_columns *step = compile_args(c);
	const struct shape *x = &node_in(c, 0)->shape;

	step->outer = extent_range(x, 0, axis);
	step->len = extent_aligned(x, x->rank, axis);
	step->inner = extent_range(x, axis + 1, x->rank);
	step->type = type_of(node_in(c, 0));
	return step;
}

static int compile_top_k(struct compiler *c)
{
	struct cpu_step_columns *step = columns(c, c->node->params.top_k.axis);

	c->step->run = cpu_run_top_k;
	c->step->units = cpu_units_top_k;
	step->k = c->node->params.top_k.k;
	step->largest = c->node->params.top_k.largest;
	return 0;
}

static int compile_arg(struct compiler *c)
{
	struct cpu_step_columns *step = columns(c, c->node->params.arg.axis);

	c->step->run = cpu_run_arg;
	c->step->units = cpu_units_columns;
	step->largest = c->node->op->kind == OP_ARG_MAX;
	step->last = c->node->params.arg.last;
	return 0;
}

static int compile_cum_sum(struct compiler *c)
{
	struct cpu_step_columns *step = columns(c, c->node->params.cum_sum.axis);

	c->step->run = cpu_run_scan;
	c->step->units = cpu_units_columns;
	step->exclusive = c->node->params.cum_sum.exclusive;
	step->reverse = c->node->params.cum_sum.reverse;
	return 0;
}

static int compile_lp_norm(struct compiler *c)
{
	struct cpu_step_columns *step = columns(c, c->node->params.lp_norm.axis);

	c->step->run = cpu_run_lp_norm;
	c->step->units = cpu_units_columns;
	step->l1 = c->node->params.lp_norm.p == 1;
	return 0;
}

static int compile_softmax(struct compiler *c)
{
	struct cpu_step_columns *step = columns(c, c->node->params.softmax.axis);

	step->log = c->node->op->kind == OP_LOG_SOFTMAX;
	c->step->run = cpu_run_softmax;
	c->step->units = cpu_units_softmax;
	return 0;
}

_Static_assert(OP_REDUCE_MEAN - OP_REDUCE_SUM == CPU_REDUCE_MEAN &&
		       OP_REDUCE_LOG_SUM_EXP - OP_REDUCE_SUM == CPU_REDUCE_LOG_SUM_EXP &&
		       OP_REDUCE_MIN - OP_REDUCE_SUM == CPU_REDUCE_MIN,
	       "the kinds are in one order");

/* Return true if all dimensions except batch and channels are reduced. */
static bool reduce_may(const struct plan *plan, const struct node *node)
{
	const struct tensor *x = cpu_layout_tensor(plan, node->in[0]);

	return cpu_layout_is_picture(x) &&
	       node->params.reduce.axes == ((1u << x->shape.rank) - 1) - 3u;
}

static int compile_reduce(struct compiler *c)
{
	const unsigned int rank = node_in(c, 0)->shape.rank;
	const struct shape x = compile_shape(c, node_in(c, 0), rank);
	struct cpu_step_reduce *step = compile_args(c);
	struct cpu_reduce *args = &step->args;
	/* With channels last, the reduced dimensions are between batch and channels. */
	const uint8_t axes =
		c->is_last ? c->node->params.reduce.axes >> 1 : c->node->params.reduce.axes;
	bool any = false, last = false;

	c->step->run = cpu_run_reduce;
	c->step->units = cpu_units_reduce;
	args->kind = (enum cpu_reduce_kind)(c->node->op->kind - OP_REDUCE_SUM);
	args->type = type_of(node_in(c, 0));
	step->count_kept = x.dynamic && !(axes & 1);
	step->count_reduced = x.dynamic && (axes & 1);
	for (unsigned int i = 0; i < rank; i++) {
		const bool reduced = axes & 1u << i, dynamic = i == 0 && x.dynamic;
		const size_t extent = dynamic ? 1 : x.dims[i];
		unsigned int *n = reduced ? &args->n_reduced : &args->n_kept;
		size_t *extents = reduced ? args->reduced : args->kept;
		size_t *strides = reduced ? args->reduced_stride : args->kept_stride;

		if (extent == 1 && !dynamic)
			continue;
		/* A tensor has no gaps, so adjacent dimensions of one kind always merge. */
		if (any && reduced == last)
			extents[*n - 1] *= extent;
		else
			extents[(*n)++] = extent;
		strides[*n - 1] = shape_stride(&x, i);
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

static int compile_reshape(struct compiler *c)
{
	const struct tensor *x = node_in(c, 0), *y = node_out(c, 0);

	if (x->root == y->root) {
		compile_drop(c);
		return 0;
	}
	c->step->run = cpu_run_copy;
	c->step->units = cpu_units_elems;
	*(struct cpu_extent *)compile_args(c) =
		(struct cpu_extent){.fixed = x->fixed_bytes, .row = x->row_bytes};
	return 0;
}

const struct cpu_op cpu_op_softmax = {.compile = compile_softmax, .overhead = {30, 0, 0}};
const struct cpu_op cpu_op_reduce_sum = {.compile = compile_reduce, .may_be_last = reduce_may};
const struct cpu_op cpu_op_reduce_mean = {.compile = compile_reduce,
					  .may_be_last = reduce_may,
					  .last_gain_ns = cpu_layout_pool_gain_ns};
const struct cpu_op cpu_op_reduce_sum_square = {.compile = compile_reduce};
const struct cpu_op cpu_op_reduce_l1 = {.compile = compile_reduce};
const struct cpu_op cpu_op_reduce_l2 = {.compile = compile_reduce};
const struct cpu_op cpu_op_reduce_log_sum = {.compile = compile_reduce, .overhead = {15, 0, 4}};
const struct cpu_op cpu_op_reduce_log_sum_exp = {.compile = compile_reduce, .overhead = {50, 0, 6}};
const struct cpu_op cpu_op_reduce_prod = {.compile = compile_reduce};
const struct cpu_op cpu_op_reduce_max = {.compile = compile_reduce, .may_be_last = reduce_may};
const struct cpu_op cpu_op_reduce_min = {.compile = compile_reduce, .may_be_last = reduce_may};
const struct cpu_op cpu_op_arg_max = {.compile = compile_arg};
const struct cpu_op cpu_op_arg_min = {.compile = compile_arg};
const struct cpu_op cpu_op_cum_sum = {.compile = compile_cum_sum, .overhead = {12, 0, 8}};
const struct cpu_op cpu_op_log_softmax = {.compile = compile_softmax, .overhead = {40, 0, 0}};
const struct cpu_op cpu_op_lp_norm = {.compile = compile_lp_norm};
const struct cpu_op cpu_op_reshape = {.compile = compile_reshape,
				      .takes_half = compile_half_as_it_is};
const struct cpu_op cpu_op_top_k = {.compile = compile_top_k};
