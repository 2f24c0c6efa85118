/* SPDX-License-Identifier: MIT */
/*
 * Gather, GatherElements, GatherND, ScatterElements and ScatterND
 *
 * A scatter takes two steps: the first copies the data, the second writes into the copy.
 */
#include "cpu/compile.h"

#include "cpu/internal.h"
#include "util/error.h"

CPU_STEP_HOLDS(struct cpu_step_gather);
CPU_STEP_HOLDS(struct cpu_step_elements);
CPU_STEP_HOLDS(struct cpu_step_scatter_nd);

/* Return the bytes of an element as steps see it: float16 may have been converted to float32. */
static size_t element_bytes(const struct compiler *c, const struct tensor *tensor)
{
	return c->is_half && tensor->dtype == RBK_DTYPE_F16 ? sizeof(float)
							    : dtype_bytes(tensor->dtype);
}

/* Return log2 of 1, 2, 4 or 8 bytes. */
static unsigned int log_bytes(size_t bytes)
{
	return (unsigned int)__builtin_ctzll(bytes);
}

/* Gather: selects the same rows of each outer element. */
static int compile_gather(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape, *at = &node_in(c, 1)->shape;
	const size_t bytes = dtype_bytes(node_in(c, 0)->dtype);
	const unsigned int axis = c->node->params.gather.axis;
	struct cpu_step_gather *step = compile_args(c);
	struct cpu_gather *args = &step->args;

	compile_run(c, c->cpu->kernels->gather);
	step->outer = extent_range(x, 0, axis);
	step->rows = extent_range(at, 0, at->rank);
	args->indices = node_indices(node_in(c, 1));
	args->run = shape_stride(x, axis) * bytes;
	args->x_outer = args->run * x->dims[axis];
	args->n_index = 1;
	args->limit[0] = x->dims[axis];
	args->stride[0] = args->run;
	return 0;
}

/*
 * Set limits and strides, in units of @bytes, of tuples of @n indices into dimensions of @x from
 * @first on.
 */
static void set_strides(const struct shape *x, unsigned int first, unsigned int n, size_t bytes,
			size_t *limit, size_t *stride)
{
	for (unsigned int i = 0; i < n; i++) {
		limit[i] = x->dims[first + i];
		stride[i] = shape_stride(x, first + i) * bytes;
	}
}

static int compile_gather_nd(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape, *at = &node_in(c, 1)->shape;
	const size_t bytes = dtype_bytes(node_in(c, 0)->dtype);
	const unsigned int batch = c->node->params.gather.batch_dims;
	const unsigned int n = at->dims[at->rank - 1];
	struct cpu_step_gather *step = compile_args(c);
	struct cpu_gather *args = &step->args;

	compile_run(c, c->cpu->kernels->gather);
	step->outer = extent_range(at, 0, batch);
	step->rows = extent_range(at, batch, at->rank - 1u);
	args->indices = node_indices(node_in(c, 1));
	args->run = shape_stride(x, batch + n - 1) * bytes;
	args->n_index = n;
	set_strides(x, batch, n, bytes, args->limit, args->stride);
	if (batch > 0) {
		args->x_outer = shape_stride(x, batch - 1) * bytes;
		args->index_outer = shape_stride(at, batch - 1);
	}
	return 0;
}

/*
 * Set the dimensions of the table and of the flat tensor, which lies as the indices do. Adjacent
 * dimensions are merged if the inner one has the same extent in both. The count is dimension 0,
 * which is the axis or an outer dimension.
 */
static void set_elements(struct compiler *c, unsigned int kind)
{
	const struct shape *table = &node_in(c, 0)->shape, *flat = &node_in(c, 1)->shape;
	struct cpu_step_elements *step = compile_args(c);
	struct cpu_elements *args = &step->args;
	const unsigned int axis = c->node->params.gather.axis;
	bool joins = false;

	step->kind = kind;
	step->count_outer = flat->dynamic && axis != 0;
	step->len = extent_aligned(flat, flat->rank, axis);
	args->indices = node_indices(node_in(c, 1));
	args->flat_step = shape_stride(flat, axis);
	args->table_step = shape_stride(table, axis);
	args->limit = table->dims[axis];
	args->inner = 1;
	for (unsigned int i = 0; i < flat->rank; i++) {
		const size_t extent = i == 0 && step->count_outer ? 1 : flat->dims[i];
		const unsigned int last = args->n_outer - joins;

		if (i != axis) {
			args->extent[last] = joins ? args->extent[last] * extent : extent;
			args->flat_stride[last] = shape_stride(flat, i);
			args->table_stride[last] = shape_stride(table, i);
			args->n_outer = last + 1;
		}
		joins = i != axis && i + 1u < flat->rank && i + 1u != axis &&
			flat->dims[i + 1] == table->dims[i + 1];
	}
	/* The last dimension, if it is not the axis: its elements are adjacent in both tensors. */
	if (axis + 1u < flat->rank) {
		args->n_outer--;
		args->inner = args->extent[args->n_outer];
	}
}

static int compile_gather_elements(struct compiler *c)
{
	compile_run(c, c->cpu->kernels->gather_elements);
	set_elements(c, log_bytes(dtype_bytes(node_in(c, 0)->dtype)));
	return 0;
}

static bool scatter_takes_half(const struct node *node)
{
	return node->params.gather.reduction == OP_SCATTER_NONE;
}

/* Return the scatter function of the node. */
static enum cpu_scatter scatter_of(const struct compiler *c)
{
	static const uint8_t firsts[] = {
		[RBK_DTYPE_F32] = CPU_SCATTER_F32, [RBK_DTYPE_F16] = CPU_SCATTER_F32,
		[RBK_DTYPE_F64] = CPU_SCATTER_F64, [RBK_DTYPE_I32] = CPU_SCATTER_I32,
		[RBK_DTYPE_I64] = CPU_SCATTER_I64, [RBK_DTYPE_I8] = CPU_SCATTER_I8,
		[RBK_DTYPE_U8] = CPU_SCATTER_U8,
	};
	const struct tensor *x = node_in(c, 0);
	const unsigned int reduction = c->node->params.gather.reduction;

	if (reduction == OP_SCATTER_NONE)
		return (enum cpu_scatter)(CPU_SCATTER_BYTE + log_bytes(dtype_bytes(x->dtype)));
	return (enum cpu_scatter)(firsts[x->dtype] + reduction - OP_SCATTER_ADD);
}

/* Make the present step copy the data, and add a step for the caller to fill. */
static int add_scatter(struct compiler *c)
{
	const struct tensor *x = node_in(c, 0);
	const size_t bytes = element_bytes(c, x);
	struct cpu_extent n = extent_range(&x->shape, 0, x->shape.rank);

	c->step->run = cpu_run_copy;
	c->step->units = cpu_units_elems;
	*(struct cpu_extent *)compile_args(c) =
		(struct cpu_extent){.fixed = n.fixed * bytes, .row = n.row * bytes};
	return compile_add(c);
}

static int compile_scatter_elements(struct compiler *c)
{
	int r = add_scatter(c);

	if (r)
		return error_fold(r);
	compile_run(c, c->cpu->kernels->scatter_elements);
	set_elements(c, scatter_of(c));
	return 0;
}

static int compile_scatter_nd(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape, *at = &node_in(c, 1)->shape;
	const unsigned int n = at->dims[at->rank - 1];
	struct cpu_step_scatter_nd *step;
	struct cpu_scatter_nd *args;
	int r = add_scatter(c);

	if (r)
		return error_fold(r);
	step = compile_args(c);
	args = &step->args;
	compile_run(c, c->cpu->kernels->scatter_nd);
	step->kind = scatter_of(c);
	step->rows = extent_range(at, 0, at->rank - 1u);
	args->indices = node_indices(node_in(c, 1));
	args->run = shape_stride(x, n - 1);
	args->n_index = n;
	set_strides(x, 0, n, 1, args->limit, args->stride);
	return 0;
}

const struct cpu_op cpu_op_gather = {.compile = compile_gather,
				     .takes_half = compile_half_as_it_is};
const struct cpu_op cpu_op_gather_elements = {.compile = compile_gather_elements,
					      .takes_half = compile_half_as_it_is,
					      .overhead = {15, 0, 4}};
const struct cpu_op cpu_op_gather_nd = {.compile = compile_gather_nd,
					.takes_half = compile_half_as_it_is};
const struct cpu_op cpu_op_scatter_elements = {.compile = compile_scatter_elements,
					       .takes_half = scatter_takes_half,
					       .overhead = {15, 0, 12}};
const struct cpu_op cpu_op_scatter_nd = {
	.compile = compile_scatter_nd, .takes_half = scatter_takes_half, .overhead = {15, 0, 16}};
