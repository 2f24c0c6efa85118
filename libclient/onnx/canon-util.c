/* SPDX-License-Identifier: MIT */
/* Functions that rules share: inputs and outputs of a node, axes, and known elements */
#include <errno.h>
#include <stdlib.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"

/* ---- Inputs and outputs ---- */

struct tensor *canon_in(struct graph *graph, unsigned int i)
{
	const struct model_node *node = graph->node;

	if (i >= node->n_in || node->in[i] == ONNX_ABSENT)
		return NULL;
	return bfloat_in(graph, nibbles_widen(graph, graph_value(graph, node->in[i])));
}

struct tensor *canon_narrow_in(struct graph *graph, unsigned int i)
{
	const struct model_node *node = graph->node;
	struct tensor *tensor = NULL;

	if (i < node->n_in && node->in[i] != ONNX_ABSENT)
		tensor = graph_value(graph, node->in[i]);
	return tensor && tensor->nibbles ? tensor : canon_in(graph, i);
}

bool canon_wants(const struct graph *graph, unsigned int i)
{
	return i < graph->node->n_out && graph->node->out[i] != ONNX_ABSENT;
}

void canon_out(struct graph *graph, unsigned int i, struct tensor *tensor)
{
	if (!canon_wants(graph, i) || !tensor)
		return;
	tensor = bfloat_out(graph, i, tensor);
	if (!tensor->name[0] && tensor != &graph->nowhere)
		tensor->name = graph->model->values[graph->node->out[i]].name;
	graph->values[graph->node->out[i]] = tensor;
}

/* ---- Axes ---- */

bool canon_axis(struct graph *graph, int64_t axis, unsigned int rank, unsigned int *ret)
{
	if (axis < -(int64_t)rank || axis >= (int64_t)rank) {
		graph_refuse(graph, "axis %lld is not one of %u dimensions", (long long)axis, rank);
		return false;
	}
	*ret = (unsigned int)(axis < 0 ? axis + rank : axis);
	return true;
}

bool canon_axes(struct graph *graph, const int64_t *axes, unsigned int n, unsigned int rank,
		unsigned int *ret)
{
	uint32_t seen = 0;
	unsigned int axis, n_ret = 0;

	for (unsigned int i = 0; i < n; i++) {
		if (!canon_axis(graph, axes[i], rank, &axis))
			return false;
		if (seen >> axis & 1) {
			graph_refuse(graph, "axis %u is given twice", axis);
			return false;
		}
		seen |= 1u << axis;
	}
	for (axis = 0; axis < rank; axis++)
		if (seen >> axis & 1)
			ret[n_ret++] = axis;
	return true;
}

/* ---- Known elements ---- */

bool canon_known(struct graph *graph, struct tensor *tensor, const char *what)
{
	if (!tensor) {
		graph_refuse(graph, "its %s is missing", what);
		return false;
	}
	if (tensor->constant)
		return true;
	graph_need(graph, tensor);
	if (tensor->input != UINT32_MAX)
		graph_refuse(graph,
			     "the value of input \"%s\" (%s) must be known when the plan is made",
			     tensor->name, what);
	else
		graph_refuse(graph,
			     "its %s, \"%s\", must be known when the plan is made, but a node "
			     "computes it",
			     what, tensor->name);
	return false;
}

const int64_t *canon_known_sizes(struct graph *graph, struct tensor *tensor, const char *what,
				 unsigned int *ret_n, const int64_t **ret_rows)
{
	const struct constant *constant;
	int64_t *values;

	if (!canon_known(graph, tensor, what))
		return NULL;
	constant = tensor->constant;
	if ((constant->dtype != RBK_ONNX_I64 && constant->dtype != RBK_ONNX_I32) ||
	    constant->rank > 1 || constant->n_elems > UINT16_MAX) {
		graph_refuse(graph, "its %s is not a list of integers", what);
		return NULL;
	}
	*ret_n = (unsigned int)constant->n_elems;
	*ret_rows = constant->rows;
	if (constant->dtype == RBK_ONNX_I64)
		return constant->data;
	values = graph_take(graph, constant->n_elems * sizeof(*values));
	for (uint64_t i = 0; values && i < constant->n_elems; i++)
		values[i] = ((const int32_t *)constant->data)[i];
	return values;
}

const int64_t *canon_known_ints(struct graph *graph, struct tensor *tensor, const char *what,
				unsigned int *ret_n)
{
	const int64_t *values, *rows = NULL;

	values = canon_known_sizes(graph, tensor, what, ret_n, &rows);
	if (values && rows) {
		graph_refuse(graph, "its %s depends on the count", what);
		return NULL;
	}
	return values;
}

bool canon_known_number(struct graph *graph, struct tensor *tensor, const char *what, double *ret)
{
	if (!canon_known(graph, tensor, what))
		return false;
	if (tensor->constant->n_elems != 1 || tensor->constant->rows ||
	    onnx_dtype_size(tensor->constant->dtype) == 0) {
		graph_refuse(graph, "its %s is not a single number", what);
		return false;
	}
	*ret = eval_load(tensor->constant->dtype, tensor->constant->data, 0);
	return true;
}

bool canon_known_whole(struct graph *graph, struct tensor *tensor, const char *what, int64_t *ret)
{
	const struct constant *constant;
	double number;

	if (!canon_known_number(graph, tensor, what, &number))
		return false;
	constant = tensor->constant;
	if (eval_is_int(constant->dtype)) {
		*ret = eval_load_int(constant->dtype, constant->data, 0);
		return true;
	}
	if (!(fabs(number) < 0x1p63) || number != trunc(number)) {
		graph_refuse(graph, "its %s is %g, expected a whole number", what, number);
		return false;
	}
	*ret = (int64_t)number;
	return true;
}

bool canon_attr_or_input(struct graph *graph, const char *name, const int64_t **ret,
			 unsigned int *ret_n)
{
	struct tensor *tensor = canon_in(graph, 1);
	bool was_refused = graph->is_refused;

	*ret = NULL;
	*ret_n = 0;
	if (tensor) {
		*ret = canon_known_ints(graph, tensor, name, ret_n);
		return *ret != NULL;
	}
	graph->is_refused = false;
	*ret = canon_ints(graph, name, ret_n);
	if (graph->is_refused)
		return false;
	graph->is_refused = was_refused;
	return true;
}
