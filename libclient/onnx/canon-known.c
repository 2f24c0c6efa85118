/* SPDX-License-Identifier: MIT */
/*
 * Rules: operators that depend on the elements of an input
 *
 * The selection, or the size of the result, depends on the elements of an input, which must be
 * known. The operators become constants, or gather by constant indices.
 */
#include <stdio.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"

/* Make a constant with memory for its elements, all 0. Return: NULL after a refusal. */
static struct constant *constant_new(struct graph *graph, uint32_t dtype, unsigned int rank,
				     const int64_t *dims, void **ret_data)
{
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));

	if (!constant)
		return NULL;
	constant->dtype = dtype;
	constant->rank = rank;
	memcpy(constant->dims, dims, rank * sizeof(*dims));
	if (!constant_measure(constant) || constant->n_elems > graph->n_evaluable) {
		graph_refuse(graph, "its output would be too large a constant");
		return NULL;
	}
	graph->n_evaluable -= constant->n_elems;
	constant->data = *ret_data = graph_zero(graph, constant->n_bytes + 1, 1);
	return constant->data ? constant : NULL;
}

void canon_eye_like(struct graph *graph)
{
	const struct tensor *x = canon_in(graph, 0);
	const int64_t dims[] = {x->shape.dims[0], x->shape.dims[1]};
	const int64_t k = canon_int(graph, "k", 0);
	const int64_t dtype = canon_int(graph, "dtype", x->dtype);
	struct constant *constant;
	void *data;

	if (x->shape.rank != 2 || x->shape.dynamic) {
		graph_refuse(graph, "its input is %s, expected two dimensions of known sizes",
			     SHAPE_TEXT(&x->shape));
		return;
	}
	if (dtype < 0 || dtype > 31 || !(OP_ANY_TYPE & OP_TYPE(dtype))) {
		graph_refuse(graph, "its elements would have type %lld, which plans do not support",
			     (long long)dtype);
		return;
	}
	constant = constant_new(graph, (uint32_t)dtype, 2, dims, &data);
	if (!constant)
		return;
	for (int64_t i = 0; i < dims[0]; i++)
		if (k > -dims[0] && k < dims[1] && i + k >= 0 && i + k < dims[1])
			eval_store(constant->dtype, data, (uint64_t)(i * dims[1] + i + k), 1);
	canon_out(graph, 0, graph_constant(graph, constant));
}

/* List the indices of the nonzero elements, one row for each dimension. */
void canon_non_zero(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	const struct constant *from;
	struct constant *to;
	int64_t dims[2], at = 0;
	int64_t *indices;
	void *data;

	if (!canon_known(graph, x, "input"))
		return;
	from = x->constant;
	if (from->rows || onnx_dtype_size(from->dtype) == 0) {
		graph_refuse(graph, "the values of its input are not known");
		return;
	}
	dims[0] = from->rank;
	dims[1] = 0;
	for (uint64_t i = 0; i < from->n_elems; i++)
		dims[1] += eval_load(from->dtype, from->data, i) != 0;
	to = constant_new(graph, RBK_ONNX_I64, 2, dims, &data);
	if (!to)
		return;
	indices = data;
	for (uint64_t i = 0; i < from->n_elems; i++) {
		uint64_t rest = i;

		if (eval_load(from->dtype, from->data, i) == 0)
			continue;
		for (uint32_t j = from->rank; j-- > 0;) {
			indices[j * dims[1] + at] = (int64_t)(rest % (uint64_t)from->dims[j]);
			rest /= (uint64_t)from->dims[j];
		}
		at++;
	}
	canon_out(graph, 0, graph_constant(graph, to));
}

void canon_compress(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1)};
	const bool has_axis = canon_has_attr(graph, "axis");
	const struct constant *condition;
	struct constant *indices;
	struct attr attr;
	unsigned int axis = 0;
	int64_t n = 0;
	void *data;

	if (!canon_known(graph, in[1], "condition") ||
	    (has_axis && !canon_axis(graph, canon_int(graph, "axis", 0), in[0]->shape.rank, &axis)))
		return;
	condition = in[1]->constant;
	if (!has_axis) {
		struct shape list = {.rank = 1, .dims = {1}};

		if (in[0]->shape.dynamic || shape_elems(&in[0]->shape, 1) > OP_MAX_DIM) {
			graph_refuse(graph, "%s cannot be flattened into a list",
				     SHAPE_TEXT(&in[0]->shape));
			return;
		}
		list.dims[0] = (uint32_t)shape_elems(&in[0]->shape, 1);
		in[0] = canon_reshape(graph, in[0], &list);
	}
	if (condition->dtype != RBK_ONNX_BOOL || condition->rank != 1 ||
	    condition->n_elems > in[0]->shape.dims[axis]) {
		graph_refuse(graph, "its condition is %s %s, expected at most %u of bool",
			     rbk_onnx_dtype_name(condition->dtype), SHAPE_TEXT(&in[1]->shape),
			     in[0]->shape.dims[axis]);
		return;
	}
	for (uint64_t i = 0; i < condition->n_elems; i++)
		n += eval_load_int(RBK_ONNX_BOOL, condition->data, i);
	indices = constant_new(graph, RBK_ONNX_I64, 1, &n, &data);
	if (!indices)
		return;
	n = 0;
	for (uint64_t i = 0; i < condition->n_elems; i++)
		if (eval_load_int(RBK_ONNX_BOOL, condition->data, i))
			((int64_t *)data)[n++] = (int64_t)i;
	in[1] = graph_constant(graph, indices);
	attr = ATTR_INT("axis", axis);
	canon_out(graph, 0, graph_emit_1(graph, "Gather", in, 2, &attr, 1));
}

/* Return the source index of each element in the first two dimensions. */
static struct tensor *reversed_indices(struct graph *graph, const struct shape *shape,
				       unsigned int time_axis, const int64_t *lengths)
{
	const int64_t dims[] = {shape->dims[0], shape->dims[1], 2};
	struct constant *constant;
	int64_t *indices;
	void *data;

	constant = constant_new(graph, RBK_ONNX_I64, 3, dims, &data);
	if (!constant)
		return NULL;
	indices = data;
	for (int64_t i = 0; i < dims[0]; i++) {
		for (int64_t j = 0; j < dims[1]; j++, indices += 2) {
			int64_t *time = &indices[time_axis];
			int64_t length = lengths[time_axis ? i : j];

			indices[0] = i;
			indices[1] = j;
			if (*time < length)
				*time = length - 1 - *time;
		}
	}
	return graph_constant(graph, constant);
}

void canon_reverse_sequence(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), NULL};
	const struct shape *shape = &in[0]->shape;
	const int64_t batch_axis = canon_int(graph, "batch_axis", 1);
	const int64_t time_axis = canon_int(graph, "time_axis", 0);
	struct attr attr = ATTR_INT("batch_dims", 0);
	const int64_t *lengths;
	unsigned int n;

	lengths = canon_known_ints(graph, canon_in(graph, 1), "sequence_lens", &n);
	if (!lengths)
		return;
	if (shape->rank < 2 || shape->dynamic || time_axis < 0 || time_axis > 1 ||
	    batch_axis != 1 - time_axis || n != shape->dims[batch_axis]) {
		graph_refuse(graph,
			     "%u lengths do not fit a batch in dimension %lld of %s, with time in "
			     "dimension %lld",
			     n, (long long)batch_axis, SHAPE_TEXT(shape), (long long)time_axis);
		return;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (lengths[i] < 0 || lengths[i] > shape->dims[time_axis]) {
			graph_refuse(graph,
				     "the length of sequence %u is %lld element%s, expected at "
				     "most %u",
				     i, (long long)lengths[i], onnx_plural((uint64_t)lengths[i]),
				     shape->dims[time_axis]);
			return;
		}
	}
	in[1] = reversed_indices(graph, shape, (unsigned int)time_axis, lengths);
	if (in[1])
		canon_out(graph, 0, graph_emit_1(graph, "GatherND", in, 2, &attr, 1));
}
