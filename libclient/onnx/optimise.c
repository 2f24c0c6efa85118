/* SPDX-License-Identifier: MIT */
/*
 * After the pass: removing unused steps, fusing, and binding
 *
 * Steps are in an order in which they can run, so one walk backwards finds the steps that the
 * outputs depend on. Between two such walks, several steps are fused into one where the catalogue
 * has an operator for them (fuse.c).
 */
#include <stdio.h>
#include <string.h>

#include "libclient/onnx/graph.h"

static bool is_bound_input(const struct tensor *tensor)
{
	return tensor && tensor->is_used && tensor->input != UINT32_MAX && !tensor->constant;
}

/* Mark the steps that the outputs depend on, or all steps if RBK_ONNX_OPT_DEAD is disabled. */
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

/* Clear the marks of mark(). */
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

/* Return the name of the node's first output that is present; "" without one. */
static const char *output_name(const struct graph *graph, const struct model_node *node)
{
	for (uint32_t i = 0; node && i < node->n_out; i++)
		if (node->out[i] != ONNX_ABSENT)
			return graph->model->values[node->out[i]].name;
	return "";
}

/*
 * Name each step by its node, else by the output of the node or the step, else by operator and
 * number.
 */
static void name_steps(struct graph *graph)
{
	for (uint32_t i = 0; i < graph->n_steps; i++) {
		struct step *step = graph->steps[i];
		const char *name = step->node ? step->node->name : "";

		if (!name[0])
			name = output_name(graph, step->node);
		for (unsigned int j = 0; !name[0] && j < step->n_out; j++)
			if (step->out[j])
				name = step->out[j]->name;
		if (!name[0]) {
			const size_t room = strlen(step->op) + 16;
			char *made = graph_take(graph, room);

			if (made)
				snprintf(made, room, "%s %u", step->op, i);
			name = made ? made : step->op;
		}
		step->name = name;
	}
}

void optimise(struct graph *graph)
{
	/* Mark twice: unused steps must not count as readers, and fusing leaves steps unused. */
	mark(graph);
	sweep(graph);
	forget(graph);
	fuse(graph);
	if (graph->fatal)
		return;
	mark(graph);
	sweep(graph);
	name_steps(graph);
	bind(graph);
}
