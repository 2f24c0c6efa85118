/* SPDX-License-Identifier: MIT */
/* Functions that query a model, and that set what its file leaves open */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/graph.h"

ONNX_EXPORT uint32_t rbk_onnx_opset(const struct rbk_onnx *model)
{
	return model->opset;
}

ONNX_EXPORT uint32_t rbk_onnx_n_nodes(const struct rbk_onnx *model)
{
	return (uint32_t)model->proto->graph->n_node;
}

/* ---- Inputs and outputs ---- */

static void describe(const struct rbk_onnx *model, const struct model_input *input,
		     struct rbk_onnx_value *ret)
{
	const struct model_value *value = &model->values[input->value];

	*ret = (struct rbk_onnx_value){
		.name = value->name,
		.dtype = input->dtype,
		.rank = input->rank,
		.is_optional = value->is_input && value->initializer,
		.is_set = input->set != NULL,
		.value_needed = input->value_needed,
	};
	memcpy(ret->dims, input->dims, sizeof(ret->dims));
	memcpy(ret->dim_names, input->dim_names, sizeof(ret->dim_names));
}

ONNX_EXPORT unsigned int rbk_onnx_n_inputs(const struct rbk_onnx *model)
{
	return model->n_inputs;
}

ONNX_EXPORT int rbk_onnx_input(const struct rbk_onnx *model, unsigned int i,
			       struct rbk_onnx_value *ret)
{
	if (i >= model->n_inputs)
		return -EINVAL;
	describe(model, &model->inputs[i], ret);
	return 0;
}

ONNX_EXPORT unsigned int rbk_onnx_n_outputs(const struct rbk_onnx *model)
{
	return model->n_outputs;
}

ONNX_EXPORT int rbk_onnx_output(const struct rbk_onnx *model, unsigned int i,
				struct rbk_onnx_value *ret)
{
	if (i >= model->n_outputs)
		return -EINVAL;
	describe(model, &model->outputs[i], ret);
	return 0;
}

static struct model_input *find_input(struct rbk_onnx *model, const char *name)
{
	for (uint32_t i = 0; i < model->n_inputs; i++)
		if (!strcmp(model->values[model->inputs[i].value].name, name))
			return &model->inputs[i];
	return NULL;
}

/* ---- What the file leaves open ---- */

static void forget_graph(struct rbk_onnx *model)
{
	model->graph = graph_free(model->graph);
}

ONNX_EXPORT int rbk_onnx_set_dim(struct rbk_onnx *model, const char *name, int64_t size,
				 struct rbk_error *error)
{
	bool found = false;

	if (size < 0 || size > INT32_MAX)
		return onnx_error(error, -EINVAL,
				  "dimension \"%s\" cannot be %lld, expected a number from 0 to "
				  "2^31-1",
				  name, (long long)size);
	for (uint32_t i = 0; i < model->n_inputs; i++) {
		struct model_input *input = &model->inputs[i];

		for (int32_t j = 0; j < input->rank; j++) {
			if (!input->dim_names[j] || strcmp(input->dim_names[j], name))
				continue;
			input->dims[j] = size;
			found = true;
		}
	}
	if (!found)
		return onnx_error(error, -ENOENT, "no input has a dimension \"%s\"", name);
	forget_graph(model);
	return 0;
}

static bool fits(const struct model_input *input, int rank, const int64_t *dims)
{
	if (rank < 0 || rank > RBK_ONNX_MAX_RANK || (input->rank >= 0 && input->rank != rank))
		return false;
	for (int i = 0; i < rank; i++)
		if (dims[i] < RBK_ONNX_DIM_OPEN || dims[i] > INT32_MAX ||
		    (input->rank >= 0 && input->dims[i] >= 0 && dims[i] >= 0 &&
		     input->dims[i] != dims[i]))
			return false;
	return true;
}

ONNX_EXPORT int rbk_onnx_set_shape(struct rbk_onnx *model, const char *name, int rank,
				   const int64_t *dims, struct rbk_error *error)
{
	struct model_input *input = find_input(model, name);

	if (!input)
		return onnx_error(error, -ENOENT, "the model has no input \"%s\"", name);
	if (!fits(input, rank, dims))
		return onnx_error(error, -EINVAL, "input \"%s\" has another shape in the file",
				  name);
	for (int i = 0; i < rank; i++)
		if (dims[i] >= 0 || input->rank < 0)
			input->dims[i] = dims[i];
	input->rank = rank;
	forget_graph(model);
	return 0;
}

ONNX_EXPORT int rbk_onnx_set_input(struct rbk_onnx *model, const char *name,
				   const struct rbk_onnx_tensor *tensor, struct rbk_error *error)
{
	struct model_input *input = find_input(model, name);
	struct constant constant, *set = NULL;

	if (!input)
		return onnx_error(error, -ENOENT, "the model has no input \"%s\"", name);
	if (tensor) {
		if ((input->dtype && tensor->dtype != input->dtype) ||
		    !fits(input, tensor->rank, tensor->dims))
			return onnx_error(error, -EINVAL,
					  "input \"%s\" has another type or shape in the file",
					  name);
		constant =
			(struct constant){.dtype = tensor->dtype, .rank = (uint32_t)tensor->rank};
		for (int32_t i = 0; i < tensor->rank; i++) {
			if (tensor->dims[i] < 0)
				return onnx_error(error, -EINVAL, "dimension %d of \"%s\" is open",
						  i, name);
			constant.dims[i] = tensor->dims[i];
		}
		if (!constant_measure(&constant) || constant.n_bytes != tensor->n_bytes ||
		    (constant.n_elems > 0 && constant.n_bytes == 0))
			return onnx_error(error, -EINVAL,
					  "input \"%s\" got %llu bytes, but its shape requires "
					  "%llu",
					  name, (unsigned long long)tensor->n_bytes,
					  (unsigned long long)constant.n_bytes);
		/* One block: the constant, then its elements, aligned as malloc() aligns. */
		set = malloc(sizeof(*set) + 16 + constant.n_bytes);
		if (!set)
			return onnx_error(error, -ENOMEM, "out of memory");
		*set = constant;
		set->data = (char *)set + (sizeof(*set) + 15) / 16 * 16;
		if (constant.n_bytes > 0)
			memcpy((void *)set->data, tensor->data, constant.n_bytes);
	}
	forget_graph(model);
	free(input->set);
	input->set = set;
	return 0;
}

/* ---- Compiling ---- */

static int read_options(const struct rbk_onnx_options *options, struct rbk_onnx_options *ret,
			struct rbk_error *error)
{
	*ret = (struct rbk_onnx_options){.max_count = 1};
	if (options) {
		size_t n = options->size < sizeof(*ret) ? options->size : sizeof(*ret);

		if (options->size < sizeof(options->size))
			return onnx_error(error, -EINVAL, "the options lack their size");
		memcpy(ret, options, n);
		if (ret->max_count == 0)
			ret->max_count = 1;
	}
	if (ret->max_count > INT32_MAX)
		return onnx_error(error, -EINVAL, "max_count is %u, expected at most 2^31-1",
				  ret->max_count);
	return 0;
}

ONNX_EXPORT int rbk_onnx_compile(struct rbk_onnx *model, const struct rbk_onnx_options *options,
				 struct rbk_error *error)
{
	struct rbk_onnx_options wanted;
	int r;

	r = read_options(options, &wanted, error);
	if (r)
		return r;
	forget_graph(model);
	return graph_new(model, &wanted, &model->graph, error);
}

ONNX_EXPORT unsigned int rbk_onnx_n_refusals(const struct rbk_onnx *model)
{
	return model->graph ? model->graph->n_refusals : 0;
}

ONNX_EXPORT int rbk_onnx_refusal(const struct rbk_onnx *model, unsigned int i,
				 struct rbk_onnx_refusal *ret)
{
	if (i >= rbk_onnx_n_refusals(model))
		return -EINVAL;
	*ret = model->graph->refusals[i];
	return 0;
}

/* Return the graph if the model was compiled without a refusal. */
static const struct graph *sound(const struct rbk_onnx *model)
{
	return model->graph && model->graph->n_refusals == 0 ? model->graph : NULL;
}

static struct tensor *bound_tensor(const struct rbk_onnx *model, unsigned int i, bool *ret_output)
{
	const struct graph *graph = sound(model);

	if (!graph)
		return NULL;
	if (graph->plan_bound) {
		*ret_output = i >= graph->n_plan_inputs;
		return i < graph->n_plan_bound ? graph->plan_bound[i] : NULL;
	}
	if (i >= graph->n_bound)
		return NULL;
	*ret_output = graph->bound[i]->output != UINT32_MAX;
	return graph->bound[i];
}

ONNX_EXPORT unsigned int rbk_onnx_n_bound(const struct rbk_onnx *model)
{
	const struct graph *graph = sound(model);

	if (!graph)
		return 0;
	return graph->plan_bound ? graph->n_plan_bound : graph->n_bound;
}

ONNX_EXPORT int rbk_onnx_bound(const struct rbk_onnx *model, unsigned int i,
			       struct rbk_onnx_bound *ret)
{
	const struct tensor *tensor;
	const struct shape *shape;
	bool is_output = false;
	uint64_t n = 1;

	tensor = bound_tensor(model, i, &is_output);
	if (!tensor)
		return -EINVAL;
	shape = &tensor->shape;
	*ret = (struct rbk_onnx_bound){
		.name = tensor->name,
		.is_output = is_output,
		.index = is_output ? tensor->output : tensor->input,
		.tensor = tensor->number,
		.dtype = tensor->dtype,
		.rank = shape->rank,
	};
	if (tensor->stands_for) {
		ret->rank = tensor->stands_for->rank;
		for (uint32_t j = 0; j < ret->rank; j++)
			ret->dims[j] = (uint32_t)tensor->stands_for->dims[j];
		return 0;
	}
	memcpy(ret->dims, shape->dims, sizeof(ret->dims));
	for (unsigned int j = shape->dynamic; j < shape->rank; j++)
		n *= shape->dims[j];
	if (shape->dynamic) {
		ret->dims[0] = RBK_DIM_COUNT;
		ret->per_count = 1;
		ret->bytes_row = rbk_onnx_dtype_bytes(tensor->dtype, n);
	} else {
		ret->bytes_fixed = rbk_onnx_dtype_bytes(tensor->dtype, n);
	}
	return 0;
}

ONNX_EXPORT unsigned int rbk_onnx_n_steps(const struct rbk_onnx *model)
{
	const struct graph *graph = sound(model);

	return graph ? graph->n_steps : 0;
}

ONNX_EXPORT int rbk_onnx_step(const struct rbk_onnx *model, unsigned int i,
			      struct rbk_onnx_step *ret)
{
	const struct step *step;

	if (i >= rbk_onnx_n_steps(model))
		return -EINVAL;
	step = model->graph->steps[i];
	*ret = (struct rbk_onnx_step){
		.op = step->op,
		.name = step->name,
		.node = step->node ? step->node->index : UINT32_MAX,
		.mixes_rows = step->mixes_rows,
	};
	return 0;
}

ONNX_EXPORT int rbk_onnx_plan(struct rbk_onnx *model, struct rbk *rbk,
			      const struct rbk_onnx_options *options, struct rbk_plan **ret,
			      struct rbk_error *error)
{
	struct rbk_onnx_options wanted;
	int r;

	if (!sound(model))
		return onnx_error(error, -EINVAL, "the model is not compiled");
	r = options ? read_options(options, &wanted, error) : 0;
	if (r)
		return r;
	return graph_plan(model->graph, rbk, options ? &wanted : &model->graph->options, ret,
			  error);
}
