/* SPDX-License-Identifier: MIT */
/* Results of the interpreter, attributes of its steps, and walks over indices. */
#include <errno.h>
#include <string.h>

#include "libclient/onnx/eval.h"

/*
 * Float results up to this size are computed even if folding is disabled, because shapes depend on
 * them.
 */
#define EVAL_SMALL_ELEMS 64

/* ---- Results ---- */

int eval_result(struct graph *graph, uint32_t dtype, uint32_t rank, const int64_t *dims,
		bool with_rows, struct constant *ret)
{
	struct constant result = {.dtype = dtype, .rank = rank};
	int64_t *rows;
	void *data;

	if (rank > RBK_MAX_RANK || onnx_dtype_size(dtype) == 0)
		return EVAL_E_UNKNOWN;
	if (rank > 0)
		memcpy(result.dims, dims, rank * sizeof(*dims));
	for (uint32_t i = 0; i < rank; i++)
		if (dims[i] < 0 || dims[i] > OP_MAX_DIM)
			return EVAL_E_UNKNOWN;
	if (!constant_measure(&result) || result.n_elems > graph->n_evaluable)
		return EVAL_E_UNKNOWN;
	if (graph->options.disable & RBK_ONNX_OPT_FOLD && eval_is_float(dtype) &&
	    result.n_elems > EVAL_SMALL_ELEMS)
		return EVAL_E_UNKNOWN;
	graph->n_evaluable -= result.n_elems;
	data = graph_zero(graph, result.n_elems, onnx_dtype_size(dtype));
	rows = with_rows ? graph_zero(graph, result.n_elems, sizeof(*rows)) : NULL;
	if (!data || (with_rows && !rows))
		return graph->fatal;
	result.data = data;
	result.rows = rows;
	*ret = result;
	return 0;
}

int eval_publish(struct graph *graph, struct tensor *tensor, const struct constant *result)
{
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));

	if (!constant)
		return graph->fatal;
	*constant = *result;
	/* Drop rows that are all 0. */
	for (uint64_t i = 0; constant->rows; i++) {
		if (i == constant->n_elems) {
			constant->rows = NULL;
			break;
		}
		if (constant->rows[i])
			break;
	}
	tensor->dtype = (uint8_t)constant->dtype;
	tensor->shape = (struct shape){.rank = (uint8_t)constant->rank};
	for (uint32_t i = 0; i < constant->rank; i++)
		tensor->shape.dims[i] = (uint32_t)constant->dims[i];
	tensor->constant = constant;
	tensor->known = true;
	return 0;
}

/* ---- Attributes ---- */

const int64_t *eval_ints(const struct step *step, const char *name, unsigned int *ret_n)
{
	*ret_n = 0;
	for (unsigned int i = 0; i < step->n_attrs; i++) {
		const struct attr *attr = &step->attrs[i];

		if (strcmp(attr->name, name))
			continue;
		*ret_n = attr->n;
		return attr->type == RBK_ATTR_INT ? &attr->i : attr->ints;
	}
	return NULL;
}

int64_t eval_int(const struct step *step, const char *name, int64_t fallback)
{
	unsigned int n;
	const int64_t *value = eval_ints(step, name, &n);

	return value && n == 1 ? *value : fallback;
}

bool eval_float(const struct step *step, const char *name, double *ret)
{
	for (unsigned int i = 0; i < step->n_attrs; i++) {
		if (strcmp(step->attrs[i].name, name) || step->attrs[i].type != RBK_ATTR_FLOAT)
			continue;
		*ret = step->attrs[i].f;
		return true;
	}
	return false;
}

/* ---- Walks ---- */

void eval_step_walk(struct eval_walk *walk)
{
	for (uint32_t i = walk->rank; i-- > 0;) {
		for (unsigned int j = 0; j < walk->n_in; j++)
			walk->at[j] += walk->strides[j][i];
		if (++walk->index[i] < walk->dims[i])
			return;
		for (unsigned int j = 0; j < walk->n_in; j++)
			walk->at[j] -= walk->strides[j][i] * walk->dims[i];
		walk->index[i] = 0;
	}
}
