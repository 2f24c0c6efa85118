/* SPDX-License-Identifier: MIT */
/*
 * Steps that read tensors without elements
 *
 * Plans neither have nor need such tensors. Any result that ONNX defines for them is known while
 * compiling (nearly always another tensor without elements), even if other inputs are unknown.
 * eval.c handles constants; this file handles the rest, by kinds of operators. Types and attributes
 * are still checked by the catalogue's rule, as if each dimension of 0 were 1.
 */
#include <stdio.h>
#include <string.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/emit.h"
#include "libclient/onnx/eval.h"

static bool is_empty(const struct tensor *tensor)
{
	return tensor && tensor->constant && tensor->constant->n_elems == 0;
}

bool emit_reads_nothing(const struct step *step)
{
	for (unsigned int i = 0; i < step->n_in; i++)
		if (is_empty(step->in[i]))
			return true;
	return false;
}

/* Infer types by the catalogue's rule, with a 1 for each 0. Return: false after a refusal. */
static bool infer_types(struct graph *graph, struct step *step)
{
	struct tensor in[OP_MAX_INPUTS], out[OP_MAX_OUTPUTS];
	struct step trial = *step;

	for (unsigned int i = 0; i < step->n_in; i++) {
		if (!step->in[i])
			continue;
		in[i] = *step->in[i];
		for (unsigned int j = 0; j < in[i].shape.rank; j++)
			in[i].shape.dims[j] += in[i].shape.dims[j] == 0;
		trial.in[i] = &in[i];
	}
	for (unsigned int i = 0; i < step->n_out; i++) {
		out[i] = (struct tensor){.name = ""};
		trial.out[i] = step->out[i] ? &out[i] : NULL;
	}
	if (!emit_infer(graph, &trial))
		return false;
	for (unsigned int i = 0; i < step->n_out; i++)
		if (step->out[i])
			step->out[i]->dtype = out[i].dtype;
	return true;
}

/*
 * Make output @i a constant of @shape, with all elements @value. Return: false if there are too
 * many elements.
 */
static bool publish(struct graph *graph, struct step *step, unsigned int i,
		    const struct shape *shape, const struct attr *value)
{
	struct tensor *out = i < step->n_out ? step->out[i] : NULL;
	int64_t dims[RBK_MAX_RANK];
	struct constant result;
	int r;

	if (!out)
		return true;
	for (unsigned int j = 0; j < shape->rank; j++)
		dims[j] = shape->dims[j];
	r = eval_result(graph, out->dtype, shape->rank, dims, false, &result);
	if (r > 0)
		return false;
	for (uint64_t j = 0; !r && value && j < result.n_elems; j++) {
		if (value->type == RBK_ATTR_INT)
			eval_store_int(out->dtype, (void *)result.data, j, value->i);
		else
			eval_store(out->dtype, (void *)result.data, j, (double)value->f);
	}
	if (!r)
		r = eval_publish(graph, out, &result);
	if (r && !graph->fatal)
		graph->fatal = r;
	return true;
}

/* ---- Shapes by kinds of operators; false if the result is not defined ---- */

static bool as_broadcast(const struct step *step, struct shape *ret)
{
	struct shape shape = {.rank = 0};

	for (unsigned int i = 0; i < step->n_in; i++)
		if (step->in[i] && step->in[i]->shape.rank > shape.rank)
			shape.rank = step->in[i]->shape.rank;
	for (unsigned int i = 0; i < shape.rank; i++)
		shape.dims[i] = 1;
	for (unsigned int i = 0; i < step->n_in; i++) {
		const struct shape *in = step->in[i] ? &step->in[i]->shape : &shape;

		for (unsigned int j = 0; j < in->rank; j++) {
			uint32_t *dim = &shape.dims[shape.rank - in->rank + j];

			if (in->dims[j] == 1)
				continue;
			if (*dim != 1 && *dim != in->dims[j])
				return false;
			*dim = in->dims[j];
		}
	}
	*ret = shape;
	return true;
}

/* A sum of no products is 0. */
static bool as_product(const struct step *step, struct shape *ret)
{
	struct shape a = step->in[0]->shape, b = step->in[1]->shape;
	struct shape shape = {.rank = 0};
	unsigned int rank, skip_a, skip_b;
	bool is_row = a.rank == 1, is_column = b.rank == 1;

	if (a.rank == 0 || b.rank == 0)
		return false;
	/* A vector is a row on the left, and a column on the right. */
	if (is_row)
		a = (struct shape){.rank = 2, .dims = {1, a.dims[0]}};
	if (is_column)
		b = (struct shape){.rank = 2, .dims = {b.dims[0], 1}};
	if (a.dims[a.rank - 1] != b.dims[b.rank - 2])
		return false;
	rank = a.rank > b.rank ? a.rank : b.rank;
	skip_a = rank - a.rank;
	skip_b = rank - b.rank;
	for (unsigned int i = 0; i + 2 < rank; i++) {
		uint32_t of_a = i < skip_a ? 1 : a.dims[i - skip_a];
		uint32_t of_b = i < skip_b ? 1 : b.dims[i - skip_b];

		if (of_a != of_b && of_a != 1 && of_b != 1)
			return false;
		shape.dims[shape.rank++] = of_a == 1 ? of_b : of_a;
	}
	if (!is_row)
		shape.dims[shape.rank++] = a.dims[a.rank - 2];
	if (!is_column)
		shape.dims[shape.rank++] = b.dims[b.rank - 1];
	*ret = shape;
	return true;
}

static bool as_gemm(const struct step *step, struct shape *ret)
{
	const struct shape *a = &step->in[0]->shape, *b = &step->in[1]->shape;
	const bool trans_a = eval_int(step, "transA", 0) != 0;
	const bool trans_b = eval_int(step, "transB", 0) != 0;

	*ret = (struct shape){.rank = 2, .dims = {a->dims[trans_a], b->dims[!trans_b]}};
	return a->rank == 2 && b->rank == 2 && a->dims[!trans_a] == b->dims[trans_b];
}

/* Along a dimension of 0 there is no largest element. */
static bool as_arg(const struct step *step, struct shape *ret)
{
	const struct shape *in = &step->in[0]->shape;
	const unsigned int axis = (unsigned int)eval_int(step, "axis", 0);
	struct shape shape = *in;

	if (in->dims[axis] == 0)
		return false;
	shape.dims[axis] = 1;
	if (!eval_int(step, "keepdims", 1)) {
		shape.rank--;
		memmove(&shape.dims[axis], &shape.dims[axis + 1],
			(shape.rank - axis) * sizeof(shape.dims[0]));
	}
	*ret = shape;
	return true;
}

static bool as_gather(const struct step *step, struct shape *ret)
{
	const struct shape *data = &step->in[0]->shape, *at = &step->in[1]->shape;
	const unsigned int axis = (unsigned int)eval_int(step, "axis", 0);
	struct shape shape = {.rank = 0};

	if (data->rank - 1u + at->rank > RBK_MAX_RANK ||
	    (data->dims[axis] == 0 && !is_empty(step->in[1])))
		return false;
	for (unsigned int i = 0; i < axis; i++)
		shape.dims[shape.rank++] = data->dims[i];
	for (unsigned int i = 0; i < at->rank; i++)
		shape.dims[shape.rank++] = at->dims[i];
	for (unsigned int i = axis + 1; i < data->rank; i++)
		shape.dims[shape.rank++] = data->dims[i];
	*ret = shape;
	return true;
}

static bool as_indices(const struct step *step, struct shape *ret)
{
	*ret = step->in[1]->shape;
	return true;
}

static bool as_gather_nd(const struct step *step, struct shape *ret)
{
	const struct shape *data = &step->in[0]->shape, *at = &step->in[1]->shape;
	const uint64_t n_batch = (uint64_t)eval_int(step, "batch_dims", 0);
	struct shape shape = {.rank = 0};
	uint64_t taken;

	if (at->rank == 0)
		return false;
	taken = n_batch + at->dims[at->rank - 1];
	if (taken > data->rank || at->rank - 1u + data->rank - taken > RBK_MAX_RANK)
		return false;
	for (unsigned int i = 0; i + 1 < at->rank; i++)
		shape.dims[shape.rank++] = at->dims[i];
	for (unsigned int i = (unsigned int)taken; i < data->rank; i++)
		shape.dims[shape.rank++] = data->dims[i];
	*ret = shape;
	return true;
}

static bool as_one_hot(const struct step *step, struct shape *ret)
{
	const struct shape *at = &step->in[0]->shape;
	const unsigned int axis = (unsigned int)eval_int(step, "axis", 0);
	struct shape shape = {.rank = 0};

	for (unsigned int i = 0; i <= at->rank && i < RBK_MAX_RANK; i++)
		shape.dims[shape.rank++] =
			i == axis ? (uint32_t)eval_int(step, "depth", 0) : at->dims[i - (i > axis)];
	*ret = shape;
	return true;
}

static const struct attr *find_attr(const struct step *step, const char *name)
{
	for (unsigned int i = 0; i < step->n_attrs; i++)
		if (!strcmp(step->attrs[i].name, name))
			return &step->attrs[i];
	return NULL;
}

/* The result consists of padding only, which requires the one mode that repeats no elements. */
static bool as_pad(const struct step *step, struct shape *ret)
{
	const struct attr *mode = find_attr(step, "mode");
	unsigned int n, rank = step->in[0]->shape.rank;
	const int64_t *pads = eval_ints(step, "pads", &n);

	*ret = step->in[0]->shape;
	for (unsigned int i = 0; i < rank; i++) {
		int64_t dim = ret->dims[i];

		if (n != 2 * rank || __builtin_add_overflow(dim, pads[i], &dim) ||
		    __builtin_add_overflow(dim, pads[rank + i], &dim) || dim < 0 ||
		    dim > OP_MAX_DIM)
			return false;
		ret->dims[i] = (uint32_t)dim;
	}
	return shape_is_empty(ret) || !mode || !strcmp(mode->string, "constant");
}

/* ---- The table ---- */

static const struct {
	enum op_kind kind;
	bool (*shape)(const struct step *step, struct shape *ret);
	bool may_fill; /* the result may have elements */
} table[] = {
	{OP_MATMUL, as_product, true},
	{OP_MATMUL_INTEGER, as_product, true},
	{OP_PAD, as_pad, true},
	{OP_GEMM, as_gemm, false},
	{OP_ARG_MAX, as_arg, false},
	{OP_ARG_MIN, as_arg, false},
	{OP_GATHER, as_gather, false},
	{OP_GATHER_ELEMENTS, as_indices, false},
	{OP_GATHER_ND, as_gather_nd, false},
	{OP_ONE_HOT, as_one_hot, false},
};

/* Return: false if the operator is not defined for such shapes. */
static bool find_shape(const struct step *step, struct shape *ret)
{
	const enum op_kind kind = step->row->kind;

	if (op_is_elementwise(kind))
		return as_broadcast(step, ret) && shape_is_empty(ret);
	if (step->row->is_like_first) {
		*ret = step->in[0]->shape;
		return step->n_out == 1 && shape_is_empty(ret);
	}
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].kind == kind)
			return table[i].shape(step, ret) &&
			       (table[i].may_fill || shape_is_empty(ret));
	return false;
}

/* Set the types of the outputs, and check the attributes. Return: false after a refusal. */
static bool find_types(struct graph *graph, struct step *step)
{
	/* The rules of Pad and GatherND compute with dimensions, so a 1 cannot replace a 0. */
	if (step->row->kind == OP_PAD || step->row->kind == OP_GATHER_ND) {
		step->out[0]->dtype = step->in[0]->dtype;
		return true;
	}
	return infer_types(graph, step);
}

/* Return true for a batch of 0 images, with every other dimension at least 1. */
static bool is_batch_of_none(const struct step *step)
{
	const enum op_family family = step->row->family;
	bool is_one = family == OP_FAMILY_CONVOLUTION || family == OP_FAMILY_POOLING;
	struct shape one = step->in[0]->shape;

	if (one.rank == 0 || one.dims[0] != 0)
		return false;
	one.dims[0] = 1;
	for (unsigned int i = 1; i < step->n_in; i++)
		is_one &= !is_empty(step->in[i]);
	return is_one && !shape_is_empty(&one);
}

/* Infer the shapes for one image, and publish outputs for 0 images. */
static bool emit_batch(struct graph *graph, struct step *step)
{
	struct tensor one = *step->in[0], out[OP_MAX_OUTPUTS];
	struct step trial = *step;

	one.shape.dims[0] = 1;
	trial.in[0] = &one;
	for (unsigned int i = 0; i < step->n_out; i++) {
		out[i] = (struct tensor){.name = ""};
		trial.out[i] = step->out[i] ? &out[i] : NULL;
	}
	if (!emit_infer(graph, &trial))
		return true;
	for (unsigned int i = 0; i < step->n_out; i++) {
		if (!step->out[i])
			continue;
		step->out[i]->dtype = out[i].dtype;
		out[i].shape.dims[0] = 0;
		if (!publish(graph, step, i, &out[i].shape, NULL))
			return false;
	}
	return true;
}

static bool is_fixed(const struct step *step)
{
	for (unsigned int i = 0; i < step->n_in; i++)
		if (step->in[i] && step->in[i]->shape.dynamic)
			return false;
	return step->in[0] && step->out[0];
}

void emit_empty(struct graph *graph, struct step *step)
{
	const struct attr *value = find_attr(step, "int_value");
	struct shape shape;

	if (!value)
		value = find_attr(step, "value");
	if (is_fixed(step) && is_batch_of_none(step) && emit_batch(graph, step))
		return;
	if (is_fixed(step) && find_shape(step, &shape) &&
	    (!find_types(graph, step) || publish(graph, step, 0, &shape, value)))
		return;
	for (unsigned int i = 0; i < step->n_in; i++) {
		if (!is_empty(step->in[i]))
			continue;
		graph_refuse(graph,
			     "its input%s%s%s %s has no elements, for which %s is not defined",
			     step->in[i]->name[0] ? " \"" : "", step->in[i]->name,
			     step->in[i]->name[0] ? "\"" : "", SHAPE_TEXT(&step->in[i]->shape),
			     step->op);
		return;
	}
}
