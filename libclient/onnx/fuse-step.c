/* SPDX-License-Identifier: MIT */
/* Finding steps, and replacing one by another: see fuse.h. */
#include "libclient/onnx/eval.h"
#include "libclient/onnx/fuse.h"

bool fuse_number(const struct tensor *tensor, double *ret)
{
	const struct constant *constant = tensor ? tensor->constant : NULL;

	if (!constant || constant->n_elems != 1 || constant->rows ||
	    !eval_is_float(constant->dtype))
		return false;
	*ret = eval_load(constant->dtype, constant->data, 0);
	return true;
}

const struct step *fuse_maker(const struct tensor *tensor, const char *op)
{
	const struct step *step = tensor && !tensor->constant ? tensor->producer : NULL;

	return step && step->row && !strcmp(step->op, op) ? step : NULL;
}

const struct step *fuse_only_maker(const struct tensor *tensor, const char *op)
{
	const struct step *step = fuse_maker(tensor, op);

	return step && step->n_out == 1 && tensor->n_uses == 1 ? step : NULL;
}

const struct attr *fuse_attr(const struct step *step, const char *name)
{
	for (unsigned int i = 0; i < step->n_attrs; i++)
		if (!strcmp(step->attrs[i].name, name))
			return &step->attrs[i];
	return NULL;
}

bool fuse_replace(struct graph *graph, struct step *step, const char *op, struct tensor *const *in,
		  unsigned int n_in, const struct attr *attrs, unsigned int n_attrs)
{
	const uint32_t n_refusals = graph->n_refusals, n_steps = graph->n_steps;
	struct tensor *out;

	out = graph_emit_1(graph, op, in, n_in, attrs, n_attrs);
	if (graph->n_refusals > n_refusals || graph->fatal || graph->n_steps != n_steps + 1 ||
	    out->dtype != step->out[0]->dtype || !shape_equal(&out->shape, &step->out[0]->shape)) {
		graph->n_refusals = n_refusals;
		graph->n_steps = n_steps;
		return false;
	}
	graph->steps[n_steps]->out[0] = step->out[0];
	step->out[0]->producer = graph->steps[n_steps];
	return true;
}
