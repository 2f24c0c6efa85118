/* SPDX-License-Identifier: MIT */
/*
 * A graph's memory, refusals and tensors
 *
 * Tensors are made when nodes read them. Initializers, and inputs that the caller set, are
 * constants. Other inputs have the shape that the file and the caller declare; an open leading
 * dimension becomes the task's count. Only tensors that are read must be known.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/canon.h"
#include "shm/dtype.h"

/* ---- Memory and refusals ---- */

void *graph_take(struct graph *graph, uint64_t bytes)
{
	void *place = mem_take(&graph->mem, bytes);

	if (!place && !graph->fatal)
		graph->fatal = mem_error(&graph->mem);
	return place;
}

void *graph_zero(struct graph *graph, uint64_t n, uint64_t item_bytes)
{
	void *place = mem_zero(&graph->mem, n, item_bytes);

	if (!place && !graph->fatal)
		graph->fatal = mem_error(&graph->mem);
	return place;
}

void *graph_grow(struct graph *graph, void *items, uint32_t n, uint32_t *n_max, size_t item_bytes)
{
	uint32_t n_new = *n_max ? *n_max * 2 : 64;
	void *place;

	if (n < *n_max)
		return items;
	place = graph_take(graph, n_new * item_bytes);
	if (!place)
		return NULL;
	if (n > 0)
		memcpy(place, items, n * item_bytes);
	*n_max = n_new;
	return place;
}

/* "com.example.Op" */
static const char *node_op(struct graph *graph, const struct model_node *node)
{
	const char *op = node->proto->op_type;

	return node->domain[0] ? mem_printf(&graph->mem, "%s.%s", node->domain, op) : op;
}

static const char *node_name(const struct model_node *node)
{
	if (node->name[0])
		return node->name;
	for (uint32_t i = 0; i < node->n_out; i++)
		if (node->proto->output[i] && node->proto->output[i][0])
			return node->proto->output[i];
	return "";
}

void graph_refuse(struct graph *graph, const char *format, ...)
{
	struct rbk_onnx_refusal *refusal;
	struct rbk_error reason;
	va_list args;

	graph->is_refused = true;
	if (graph->fatal || graph->n_refusals >= GRAPH_MAX_REFUSALS)
		return;
	refusal = graph_grow(graph, graph->refusals, graph->n_refusals, &graph->n_refusals_max,
			     sizeof(*refusal));
	if (!refusal)
		return;
	graph->refusals = refusal;
	refusal += graph->n_refusals;
	va_start(args, format);
	vsnprintf(reason.text, sizeof(reason.text), format, args);
	va_end(args);
	if (graph->node && graph->node->frame) {
		const size_t n = strlen(reason.text);

		snprintf(reason.text + n, sizeof(reason.text) - n, " (node %u of %s)",
			 graph->node->place, graph->node->frame->body);
	}
	for (char *c = reason.text; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	*refusal = (struct rbk_onnx_refusal){.node = UINT32_MAX, .name = "", .op = ""};
	refusal->reason = mem_string(&graph->mem, reason.text);
	if (graph->node) {
		refusal->node = graph->node->index;
		refusal->opset = graph->node->opset;
		refusal->name = node_name(graph->node);
		refusal->op = node_op(graph, graph->node);
	}
	if (!refusal->reason || !refusal->op)
		graph->fatal = mem_error(&graph->mem);
	else
		graph->n_refusals++;
}

/* ---- Tensors ---- */

static struct tensor *tensor_new(struct graph *graph, const char *name)
{
	struct tensor *tensor = graph_zero(graph, 1, sizeof(*tensor));

	if (!tensor)
		tensor = &graph->nowhere;
	tensor->name = name;
	tensor->number = graph->n_tensors++;
	tensor->input = UINT32_MAX;
	tensor->output = UINT32_MAX;
	return tensor;
}

struct tensor *graph_unknown(struct graph *graph)
{
	return tensor_new(graph, "");
}

struct tensor *graph_constant(struct graph *graph, const struct constant *constant)
{
	struct tensor *tensor = tensor_new(graph, "");

	if (constant->rank > RBK_MAX_RANK) {
		graph_refuse(graph, "a constant has %u dimensions, expected at most %u",
			     constant->rank, RBK_MAX_RANK);
		return tensor;
	}
	tensor->shape.rank = (uint8_t)constant->rank;
	for (uint32_t i = 0; i < constant->rank; i++) {
		if (constant->dims[i] > OP_MAX_DIM) {
			graph_refuse(graph,
				     "a constant has a dimension of %lld, expected at most %u",
				     (long long)constant->dims[i], OP_MAX_DIM);
			return tensor;
		}
		tensor->shape.dims[i] = (uint32_t)constant->dims[i];
	}
	tensor->dtype = (uint8_t)constant->dtype;
	tensor->constant = constant;
	tensor->known = true;
	return tensor;
}

static const struct constant *make_nothing(struct graph *graph, uint32_t dtype,
					   const struct shape *shape)
{
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));

	if (!constant)
		return NULL;
	constant->dtype = dtype;
	constant->rank = shape->rank;
	for (unsigned int i = 0; i < shape->rank; i++)
		constant->dims[i] = shape->dims[i];
	constant->data = constant; /* never read */
	return constant;
}

struct tensor *graph_nothing(struct graph *graph, uint32_t dtype, const struct shape *shape)
{
	const struct constant *constant = make_nothing(graph, dtype, shape);

	return constant ? graph_constant(graph, constant) : &graph->nowhere;
}

/* Allocate a constant of rank 1 or 0. */
static struct constant *small_constant(struct graph *graph, uint32_t dtype, unsigned int n,
				       unsigned int rank, void **ret_data)
{
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));
	void *data = graph_zero(graph, n, 8);

	if (!constant || !data)
		return NULL;
	constant->dtype = dtype;
	constant->rank = rank;
	constant->dims[0] = rank ? n : 0;
	constant->data = data;
	if (!constant_measure(constant))
		return NULL;
	*ret_data = data;
	return constant;
}

struct tensor *graph_scalar(struct graph *graph, uint32_t dtype, double value)
{
	struct constant *constant;
	void *data;

	constant = small_constant(graph, dtype, 1, 0, &data);
	if (!constant)
		return graph_unknown(graph);
	eval_store(dtype, data, 0, value);
	return graph_constant(graph, constant);
}

struct tensor *graph_ints(struct graph *graph, const int64_t *values, unsigned int n)
{
	struct constant *constant;
	void *data;

	constant = small_constant(graph, RBK_ONNX_I64, n, 1, &data);
	if (!constant)
		return graph_unknown(graph);
	memcpy(data, values, n * sizeof(*values));
	return graph_constant(graph, constant);
}

/* ---- The model's values ---- */

/*
 * Return true if the leading dimension of @input is the count. Refuse the model if two open leading
 * dimensions have different names.
 */
static bool leads_with_count(struct graph *graph, const struct model_input *input, const char *name)
{
	const char *dim_name = input->dim_names[0];

	if (graph->makes_batch)
		return input->dims[0] == 1;
	if (input->dims[0] >= 0)
		return false;
	if (dim_name && graph->count_name && strcmp(dim_name, graph->count_name))
		graph_refuse(graph,
			     "input \"%s\" leads with the open dimension \"%s\", another one with "
			     "\"%s\": only one of them can be the count, give the other a number",
			     name, dim_name, graph->count_name);
	if (dim_name && !graph->count_name)
		graph->count_name = dim_name;
	return true;
}

static struct tensor *input_tensor(struct graph *graph, uint32_t index)
{
	const struct model_input *input = &graph->model->inputs[index];
	const char *name = graph->model->values[input->value].name;
	struct tensor *tensor = tensor_new(graph, name);

	tensor->input = index;
	if (dtype_bytes(input->dtype) == 0) {
		graph_refuse(graph,
			     "input \"%s\" is of element type %s, which no device computes with: "
			     "float32, float16, float64, bfloat16, int8, uint8, int32, int64 and "
			     "bool are known",
			     name, rbk_onnx_dtype_name(input->dtype));
		return tensor;
	}
	if (input->rank < 0) {
		graph_refuse(graph, "the file does not say how many dimensions input \"%s\" has",
			     name);
		return tensor;
	}
	if (input->rank > (int32_t)RBK_MAX_RANK) {
		graph_refuse(graph, "input \"%s\" has %d dimensions, expected at most %u", name,
			     input->rank, RBK_MAX_RANK);
		return tensor;
	}
	tensor->shape.rank = (uint8_t)input->rank;
	for (int32_t i = 0; i < input->rank; i++) {
		tensor->shape.dims[i] = (uint32_t)input->dims[i];
		if (i == 0 && leads_with_count(graph, input, name)) {
			tensor->shape.dynamic = graph->max_count > 1;
			tensor->shape.dims[0] = graph->max_count;
		} else if (input->dims[i] < 0) {
			graph_refuse(graph,
				     "input \"%s\": dimension %d (%s) is open, expected a number; "
				     "only a leading one can be the count",
				     name, i,
				     input->dim_names[i] ? input->dim_names[i] : "no name");
			return tensor;
		}
	}
	tensor->dtype = (uint8_t)input->dtype;
	tensor->known = true;
	/*
	 * A tensor without elements is known, whatever a task binds, so results can be computed
	 * now.
	 */
	if (shape_is_empty(&tensor->shape))
		tensor->constant = make_nothing(graph, tensor->dtype, &tensor->shape);
	return tensor;
}

static uint32_t find_input(const struct rbk_onnx *model, uint32_t value)
{
	for (uint32_t i = 0; i < model->n_inputs; i++)
		if (model->inputs[i].value == value)
			return i;
	return UINT32_MAX;
}

struct tensor *graph_value(struct graph *graph, uint32_t index)
{
	const struct model_value *value = &graph->model->values[index];
	const struct model_node *node = graph->node;
	const struct constant *set = NULL;
	uint32_t input = UINT32_MAX;
	struct tensor *tensor;

	if (graph->values[index])
		return graph->values[index];
	if (value->is_input) {
		input = find_input(graph->model, index);
		set = graph->model->inputs[input].set;
	}
	/*
	 * Report errors of an input as errors of the model, not of the node that reads the input
	 * first.
	 */
	if (input != UINT32_MAX)
		graph->node = NULL;
	if (set || value->initializer)
		tensor = graph_constant(graph, set ? set : value->initializer);
	else if (input != UINT32_MAX)
		tensor = input_tensor(graph, input);
	else
		tensor = graph_unknown(graph);
	graph->node = node;
	tensor->name = value->name;
	graph->values[index] = tensor;
	return tensor;
}

void graph_need(struct graph *graph, struct tensor *tensor)
{
	struct tensor **needed;

	if (tensor->is_needed || tensor == &graph->nowhere)
		return;
	needed = graph_grow(graph, graph->needed, graph->n_needed, &graph->n_needed_max,
			    sizeof(*needed));
	if (!needed)
		return;
	graph->needed = needed;
	needed[graph->n_needed++] = tensor;
	tensor->is_needed = true;
}

struct graph *graph_free(struct graph *graph)
{
	if (!graph)
		return NULL;
	mem_deinit(&graph->mem);
	free(graph);
	return NULL;
}
