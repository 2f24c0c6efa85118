/* SPDX-License-Identifier: MIT */
/*
 * Compiling a model: the pass over its nodes
 *
 * A model whose inputs have the leading dimension 1 is first tried with that dimension as the
 * count. emit.c then requires every step to compute rows from rows. Any refusal means that this
 * could not be proved, and the pass is repeated with the shapes of the file.
 */
#include <errno.h>
#include <stdlib.h>

#include "libclient/onnx/canon.h"

/* ---- The end of the pass ---- */

/* Mark the model's inputs from which needed values are computed. */
static void mark_needed(struct graph *graph)
{
	struct tensor **stack = graph_take(graph, graph->n_needed_max * sizeof(*stack));
	uint32_t depth = 0;

	if (!stack)
		return;
	for (uint32_t i = 0; i < graph->n_needed; i++)
		stack[depth++] = graph->needed[i];
	while (depth > 0 && !graph->fatal) {
		struct tensor *tensor = stack[--depth];
		uint32_t n_more = tensor->producer ? tensor->producer->n_in : 0;

		if (tensor->input != UINT32_MAX)
			graph->model->inputs[tensor->input].value_needed = true;
		for (uint32_t i = 0; i < n_more; i++) {
			struct tensor *in = tensor->producer->in[i];

			if (!in || in->is_needed)
				continue;
			in->is_needed = true;
			stack = graph_grow(graph, stack, depth, &graph->n_needed_max,
					   sizeof(*stack));
			if (!stack)
				return;
			stack[depth++] = in;
		}
	}
}

/* Return true if the tensor has no elements, and a type that plans have. */
static bool is_nothing(const struct tensor *tensor)
{
	return tensor->constant && tensor->constant->n_elems == 0 &&
	       OP_ANY_TYPE & OP_TYPE(tensor->dtype);
}

/*
 * Return a tensor of one element in place of one without elements, which plans cannot have. Every
 * output then has its place among the bound tensors.
 */
static struct tensor *stand_in(struct graph *graph, const struct constant *nothing)
{
	struct tensor *tensor = canon_copy(graph, graph_scalar(graph, nothing->dtype, 0));

	tensor->stands_for = nothing;
	return tensor;
}

/* Have every output of the model written by its own step. */
static void make_outputs(struct graph *graph)
{
	const struct rbk_onnx *model = graph->model;

	graph->outputs = graph_zero(graph, model->n_outputs, sizeof(*graph->outputs));
	for (uint32_t i = 0; !graph->fatal && i < model->n_outputs; i++) {
		uint32_t index = model->outputs[i].value;
		struct tensor *tensor = nibbles_widen(graph, graph_value(graph, index));

		if (tensor->known && is_nothing(tensor)) {
			tensor = stand_in(graph, tensor->constant);
			if (graph->fatal)
				break;
		} else if (tensor->known && (tensor->constant || !tensor->producer ||
					     tensor->output != UINT32_MAX)) {
			tensor = canon_copy(graph, tensor);
			if (graph->fatal)
				break;
		}
		tensor->name = model->values[index].name;
		tensor->output = i;
		graph->outputs[i] = tensor;
	}
}

static void run_pass(struct graph *graph)
{
	const struct rbk_onnx *model = graph->model;

	graph->values = graph_zero(graph, model->n_values, sizeof(*graph->values));
	for (uint32_t i = 0; !graph->fatal && i < model->n_nodes; i++)
		canon_node(graph, &model->nodes[i]);
	graph->node = NULL;
	if (!graph->fatal)
		make_outputs(graph);
	if (!graph->fatal)
		mark_needed(graph);
}

/* Return true if inputs have the leading dimension 1 in the file, but tasks may have more rows. */
static bool may_make_batch(const struct rbk_onnx *model, const struct rbk_onnx_options *options)
{
	bool found = false;

	if (options->max_count <= 1 || options->keep_batch)
		return false;
	for (uint32_t i = 0; i < model->n_inputs; i++) {
		const struct model_input *input = &model->inputs[i];

		if (input->set || model->values[input->value].initializer || input->rank < 1)
			continue;
		if (input->dims[0] < 0)
			return false;
		found |= input->dims[0] == 1;
	}
	return found;
}

static struct graph *graph_start(struct rbk_onnx *model, const struct rbk_onnx_options *options,
				 bool makes_batch)
{
	struct graph *graph = calloc(1, sizeof(*graph));

	if (!graph)
		return NULL;
	mem_init(&graph->mem, GRAPH_MAX_BYTES + 4 * model->n_weight_bytes);
	graph->n_evaluable = GRAPH_MAX_EVAL_ELEMS + model->n_weight_bytes;
	graph->model = model;
	graph->options = *options;
	graph->max_count = options->max_count;
	graph->makes_batch = makes_batch;
	graph->nowhere.name = "";
	for (uint32_t i = 0; i < model->n_inputs; i++)
		model->inputs[i].value_needed = false;
	run_pass(graph);
	if (!graph->fatal && graph->n_refusals == 0)
		optimise(graph);
	return graph;
}

int graph_new(struct rbk_onnx *model, const struct rbk_onnx_options *options, struct graph **ret,
	      struct rbk_error *error)
{
	struct graph *graph = NULL;
	int r;

	if (may_make_batch(model, options)) {
		graph = graph_start(model, options, true);
		if (!graph || graph->fatal || graph->n_refusals > 0)
			graph = graph_free(graph);
	}
	if (!graph)
		graph = graph_start(model, options, false);
	if (!graph)
		return onnx_error(error, -ENOMEM, "out of memory");
	r = graph->fatal;
	if (r) {
		graph_free(graph);
		return onnx_error(error, r,
				  r == -EFBIG ? "compiling the model takes too much memory"
					      : "out of memory");
	}
	*ret = graph;
	if (graph->n_refusals == 0)
		return 0;
	return onnx_error(error, -EOPNOTSUPP, "%s%s%s%s%s; %u reason%s in all",
			  graph->refusals[0].op, graph->refusals[0].op[0] ? " \"" : "",
			  graph->refusals[0].name, graph->refusals[0].op[0] ? "\": " : "",
			  graph->refusals[0].reason, graph->n_refusals,
			  onnx_plural(graph->n_refusals));
}
