/* SPDX-License-Identifier: MIT */
/*
 * After the pass: what is left out, and what is bound
 *
 * Steps are in an order in which they can run, so one walk backwards finds what the outputs depend
 * on. In between, several steps become one where there is an operator for them (fuse.c).
 */
#include "libclient/onnx/graph.h"

static bool is_bound_input(const struct tensor *tensor)
{
	return tensor && tensor->is_used && tensor->input != UINT32_MAX && !tensor->constant;
}

/* Marks what the outputs need, and all that was read where nothing is to be left out. */
static void mark(struct graph *graph)
{
	bool keeps_all = graph->options.disable & RBK_ONNX_OPT_DEAD;

	for (uint32_t i = 0; i < graph->model->n_outputs; i++)
		graph->outputs[i]->is_used = true;
	for (uint32_t i = graph->n_steps; i-- > 0;) {
		struct step *step = graph->steps[i];

		step->is_used = keeps_all;
		for (unsigned int j = 0; j < step->n_out; j++)
			step->is_used |= step->out[j] && step->out[j]->is_used;
		for (unsigned int j = 0; step->is_used && j < step->n_in; j++)
			if (step->in[j])
				step->in[j]->is_used = true;
	}
}

static void sweep(struct graph *graph)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < graph->n_steps; i++)
		if (graph->steps[i]->is_used)
			graph->steps[n++] = graph->steps[i];
	graph->n_steps = n;
}

/* What mark() found out. */
static void forget(struct graph *graph)
{
	for (uint32_t i = 0; i < graph->n_steps; i++) {
		for (unsigned int j = 0; j < graph->steps[i]->n_in; j++)
			if (graph->steps[i]->in[j])
				graph->steps[i]->in[j]->is_used = false;
	}
}

static void bind(struct graph *graph)
{
	const struct rbk_onnx *model = graph->model;

	graph->bound = graph_zero(graph, (uint64_t)model->n_inputs + model->n_outputs,
				  sizeof(*graph->bound));
	if (!graph->bound)
		return;
	for (uint32_t i = 0; i < model->n_inputs; i++) {
		struct tensor *tensor = graph->values[model->inputs[i].value];

		if (is_bound_input(tensor))
			graph->bound[graph->n_bound++] = tensor;
	}
	for (uint32_t i = 0; i < model->n_outputs; i++)
		graph->bound[graph->n_bound++] = graph->outputs[i];
}

void optimise(struct graph *graph)
{
	/* Twice: what nobody reads is no reader, and what was fused is read no more. */
	mark(graph);
	sweep(graph);
	forget(graph);
	fuse(graph);
	if (graph->fatal)
		return;
	mark(graph);
	sweep(graph);
	bind(graph);
}
