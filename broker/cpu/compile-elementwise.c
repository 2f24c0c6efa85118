/* SPDX-License-Identifier: MIT */
/*
 * Elementwise operators
 *
 * Adjacent dimensions are merged where every operand passes through both with one stride, or is
 * repeated. This makes most broadcasts a single loop or rows of one kind. The kernel is looked up
 * by operator and type. Float16 is converted to float32, some elements at a time, except where
 * elements only move.
 */
#include <assert.h>

#include "cpu/compile.h"
#include "cpu/run-elementwise.h"

static const enum cpu_type types[] = {
	[RBK_DTYPE_F32] = CPU_F32,   [RBK_DTYPE_F16] = CPU_F16,   [RBK_DTYPE_I32] = CPU_I32,
	[RBK_DTYPE_I64] = CPU_I64,   [RBK_DTYPE_I8] = CPU_I8,     [RBK_DTYPE_U8] = CPU_U8,
	[RBK_DTYPE_BOOL] = CPU_BOOL, [RBK_DTYPE_BF16] = CPU_BF16, [RBK_DTYPE_F64] = CPU_F64,
};

/* Operators without a single function of their own, or with several */
enum {
	CPU_MAP_WHERE = CPU_MAP_COUNT,
	CPU_MAP_CAST = CPU_MAP_COUNT,
	CPU_MAP_BIT_SHIFT = CPU_MAP_SHIFT_LEFT,
};

/* The functions of each operator, indexed by op_params.elementwise.form. */
#define FUNCTION_OF(KIND, ...)     [OP_##KIND - OP_ADD][0] = (enum cpu_map_op)CPU_MAP_##KIND
#define OTHER_FORM(FUNCTION, KIND) [OP_##KIND - OP_ADD][1] = CPU_MAP_##FUNCTION
static const enum cpu_map_op functions[][2] = {
	OP_ELEMENTWISE(FUNCTION_OF),
	OP_OTHER_FORMS(OTHER_FORM),
};

static enum cpu_map_op function_of(const struct node *node)
{
	return functions[node->op->kind - OP_ADD][node->params.elementwise.form];
}

void compile_activation(struct compiler *c, const struct node *node)
{
	c->step->activation = (struct cpu_activation){
		.kernel = c->step->kernels->map[CPU_F32][function_of(node)],
		.f = {node->params.elementwise.f[0], node->params.elementwise.f[1]},
	};
}

static void choose_kernel(struct compiler *c, struct cpu_step_map *step)
{
	const struct cpu_kernels *kernels = c->step->kernels;
	const struct tensor *out = node_out(c, 0);
	enum cpu_type type = types[node_in(c, 0)->dtype];

	if (c->node->op->kind == OP_WHERE) {
		step->kernel = kernels->where[__builtin_ctz(step->out_bytes)];
	} else if (c->node->op->kind == OP_CAST) {
		step->kernel = kernels->cast[type][types[out->dtype]];
	} else {
		step->halves = type == CPU_F16;
		step->halves_out = step->halves && out->dtype == RBK_DTYPE_F16;
		type = step->halves ? CPU_F32 : type;
		step->kernel = kernels->map[type][function_of(c->node)];
	}
	assert(step->kernel);
}

/* Return true if dimension @e can be merged with the one before it for all operands. */
static bool joins(const struct cpu_step_map *step, const size_t last[3], const size_t stride[3],
		  struct cpu_extent e)
{
	for (unsigned int i = 0; i < step->n_in; i++) {
		if (last[i] != stride[i] * e.fixed)
			return false;
	}
	return true;
}

static int compile_elementwise(struct compiler *c)
{
	const unsigned int rank = node_out(c, 0)->shape.rank;
	const struct shape y = compile_shape(c, node_out(c, 0), rank);
	struct shape x[CPU_MAP_MAX_IN];
	struct cpu_step_map *step = compile_args(c);
	struct cpu_extent extent[CPU_MAX_DIMS];
	size_t stride[CPU_MAX_DIMS][CPU_MAP_MAX_IN];
	unsigned int n = 0;

	*step = (struct cpu_step_map){
		.n_in = c->node->n_in,
		.out_bytes = (uint8_t)dtype_bytes(node_out(c, 0)->dtype),
		.inner.fixed = 1,
		/* Functions of float64 take at least ten times as long. */
		.pause = node_in(c, 0)->dtype == RBK_DTYPE_F64 ? CPU_PAUSE_ELEMS / 16
							       : CPU_PAUSE_ELEMS,
	};
	memcpy(step->i, c->node->params.elementwise.i, sizeof(step->i));
	for (unsigned int i = 0; i < step->n_in; i++) {
		step->in_bytes[i] = (uint8_t)dtype_bytes(node_in(c, i)->dtype);
		x[i] = compile_shape(c, node_in(c, i), rank);
	}
	choose_kernel(c, step);

	for (unsigned int d = 0; d < rank; d++) {
		const struct cpu_extent e = extent_aligned(&y, rank, d);
		size_t here[CPU_MAP_MAX_IN] = {0};

		if (extent_is_one(e))
			continue;
		for (unsigned int i = 0; i < step->n_in; i++)
			here[i] = stride_aligned(&x[i], rank, d);
		if (n > 0 && joins(step, stride[n - 1], here, e))
			extent[n - 1] = extent_mul(extent[n - 1], e);
		else
			extent[n++] = e;
		memcpy(stride[n - 1], here, sizeof(here));
	}
	/* Innermost strides are now 0 or 1; one is 1, unless this is the only dimension. */
	if (n > 0)
		step->inner = extent[n - 1];
	step->n_outer = n > 1 ? n - 1 : 0;
	for (unsigned int i = 0; i < step->n_in; i++) {
		step->step[i] = n > 0 && stride[n - 1][i];
		for (unsigned int d = 0; d < step->n_outer; d++)
			step->stride[i][d] = stride[d][i] * step->in_bytes[i];
	}
	for (unsigned int d = 0; d < step->n_outer; d++)
		step->extent[d] = extent[d];
	c->step->run = step->n_outer ? cpu_run_map : cpu_run_map_flat;
	c->step->units = step->n_outer ? cpu_units_map : cpu_units_map_flat;
	return 0;
}

/*
 * Return true if each operand is a picture of the result's rank, or lies the same in both orders:
 * right-aligned, it has no channels or nothing but channels.
 */
static bool elementwise_may(const struct plan *plan, const struct node *node)
{
	const struct tensor *y = cpu_layout_tensor(plan, node->out[0]);

	if (!cpu_layout_is_picture(y))
		return false;
	for (unsigned int i = 0; i < node->n_in; i++) {
		const struct tensor *x = cpu_layout_tensor(plan, node->in[i]);
		const unsigned int missing = y->shape.rank - x->shape.rank;

		if (!cpu_layout_is_float(x) || (x->shape.dynamic && missing))
			return false;
		if (missing > 1 || (missing == 1 && x->shape.dims[0] == 1))
			continue;
		if (missing == 1 ? cpu_layout_pixels(&x->shape, 1) > 1
				 : cpu_layout_is_picture(x) && cpu_layout_is_constant(plan, x))
			return false;
	}
	return true;
}

#define ELEMENTWISE(KIND, row, ...)                  \
	cpu_op_##row = {                             \
		.compile = compile_elementwise,      \
		.takes_half = compile_half_as_it_is, \
		.may_be_last = elementwise_may,      \
	}
const struct cpu_op OP_ELEMENTWISE(ELEMENTWISE);
