/* SPDX-License-Identifier: MIT */
/*
 * Resolving a model's names, inputs and outputs
 *
 * ONNX connects nodes by names. Names are resolved to values (scope.c), functions are inlined
 * (resolve.c, function.c), and nodes are sorted into an order in which they can run (nodes.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/resolve.h"

/* ---- Inputs and outputs ---- */

/* Read the declaration of an input or output, which must be a dense tensor. */
static int read_info(struct resolver *resolver, const Onnx__ValueInfoProto *info, const char *what,
		     struct model_input *ret)
{
	const Onnx__TypeProto *type = info->type;
	const Onnx__TensorShapeProto *shape;

	ret->rank = -1;
	if (!type || type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET)
		return 0;
	if (type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
		return onnx_error(
			resolver->error, -EOPNOTSUPP,
			"%s \"%s\" is not a tensor: sequences, maps, optional and sparse values "
			"are not supported",
			what, onnx_text(info->name));
	ret->dtype = (uint32_t)type->tensor_type->elem_type;
	shape = type->tensor_type->shape;
	if (!shape)
		return 0;
	if (shape->n_dim > RBK_ONNX_MAX_RANK)
		return onnx_error(resolver->error, -EOPNOTSUPP,
				  "%s \"%s\" has %zu dimensions, expected at most %d", what,
				  onnx_text(info->name), shape->n_dim, RBK_ONNX_MAX_RANK);
	ret->rank = (int32_t)shape->n_dim;
	for (size_t i = 0; i < shape->n_dim; i++) {
		const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];

		ret->dims[i] = RBK_ONNX_DIM_OPEN;
		if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
		    onnx_text(dim->dim_param)[0])
			ret->dim_names[i] = dim->dim_param;
		if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
			continue;
		/* Some exporters write -1 for an open dimension. */
		if (dim->dim_value < -1 || dim->dim_value > INT32_MAX)
			return onnx_error(resolver->error, -EBADMSG,
					  "%s \"%s\": dimension %zu is %lld", what,
					  onnx_text(info->name), i, (long long)dim->dim_value);
		ret->dims[i] = dim->dim_value;
	}
	return 0;
}

/* Check that an input and the initializer that is its default have the same type and shape. */
static int check_default(struct resolver *resolver, struct model_input *input)
{
	const struct model_value *value = &resolver->model->values[input->value];
	const struct constant *constant = value->initializer;
	bool fits;

	if (!constant)
		return 0;
	fits = (!input->dtype || input->dtype == constant->dtype) &&
	       (input->rank < 0 || input->rank == (int32_t)constant->rank);
	for (int32_t i = 0; fits && i < input->rank; i++)
		fits = input->dims[i] < 0 || input->dims[i] == constant->dims[i];
	if (!fits)
		return onnx_error(
			resolver->error, -EBADMSG,
			"input \"%s\" and the initializer of that name are of different type "
			"or shape",
			value->name);
	return 0;
}

static int resolve_ends(struct resolver *resolver, const struct scope *scope)
{
	const Onnx__GraphProto *graph = resolver->model->proto->graph;
	struct rbk_onnx *model = resolver->model;
	int r;

	model->inputs = mem_zero(&model->mem, graph->n_input, sizeof(*model->inputs));
	model->outputs = mem_zero(&model->mem, graph->n_output, sizeof(*model->outputs));
	if (!model->inputs || !model->outputs)
		return resolver_out_of_memory(resolver);
	for (size_t i = 0; i < graph->n_input; i++) {
		struct model_input *input = &model->inputs[i];

		input->value = scope_find_own(scope, graph->input[i]->name)->value;
		r = read_info(resolver, graph->input[i], "input", input);
		if (!r)
			r = check_default(resolver, input);
		if (r)
			return r;
		model->n_inputs++;
	}
	for (size_t i = 0; i < graph->n_output; i++) {
		const char *name = onnx_text(graph->output[i]->name);
		const struct binding *binding = name[0] ? scope_find_own(scope, name) : NULL;

		if (!binding)
			return onnx_error(resolver->error, -EBADMSG,
					  "no node writes output %zu, \"%s\"", i, name);
		for (size_t j = 0; j < i && graph->n_output <= RBK_MAX_REFS; j++)
			if (model->outputs[j].value == binding->value)
				return onnx_error(resolver->error, -EBADMSG,
						  "two outputs have the name \"%s\"", name);
		model->outputs[i].value = binding->value;
		model->values[binding->value].n_uses++;
		r = read_info(resolver, graph->output[i], "output", &model->outputs[i]);
		if (r)
			return r;
		model->n_outputs++;
	}
	return 0;
}

static int check_model(struct resolver *resolver)
{
	const Onnx__ModelProto *proto = resolver->model->proto;
	struct rbk_onnx *model = resolver->model;
	int r;

	if (!proto->graph)
		return onnx_error(resolver->error, -EBADMSG, "the model has no graph");
	if (proto->ir_version < 3)
		return onnx_error(resolver->error, -EOPNOTSUPP,
				  "the model's IR version is %lld, expected 3 or later",
				  (long long)proto->ir_version);
	r = nodes_check_opsets(resolver, proto->opset_import, proto->n_opset_import, "its opset");
	if (r)
		return r;
	model->opset = nodes_find_opset(proto->opset_import, proto->n_opset_import, "");
	if (model->opset == 0)
		return onnx_error(resolver->error, -EBADMSG,
				  "the model does not say which opset of the default domain it "
				  "uses");
	if (proto->n_opset_import > ONNX_MAX_IMPORTS)
		return onnx_error(resolver->error, -EFBIG,
				  "the model imports %zu opsets, expected at most %u",
				  proto->n_opset_import, ONNX_MAX_IMPORTS);
	if (proto->graph->n_node > ONNX_MAX_NODES)
		return onnx_error(resolver->error, -EFBIG,
				  "the graph has %zu nodes, expected at most %u",
				  proto->graph->n_node, ONNX_MAX_NODES);
	if (proto->graph->n_output == 0)
		return onnx_error(resolver->error, -EBADMSG, "the graph has no output");
	return 0;
}

static int resolve_nodes(struct resolver *resolver, struct scope *scope)
{
	struct rbk_onnx *model = resolver->model;
	const Onnx__GraphProto *graph = model->proto->graph;
	struct node_list *list = scope->list;
	int r;

	list->nodes = mem_take(&model->mem, graph->n_node * sizeof(*list->nodes));
	if (!list->nodes)
		return resolver_out_of_memory(resolver);
	list->n_max = (uint32_t)graph->n_node;
	r = nodes_resolve(resolver, scope, graph->node, graph->n_node);
	if (!r)
		r = nodes_order(resolver, list, &model->nodes);
	if (!r)
		model->n_nodes = list->n;
	return r;
}

int model_resolve(struct rbk_onnx *model, struct rbk_error *error)
{
	struct resolver resolver = {.model = model, .error = error};
	struct node_list list = {.id = resolver.n_lists++};
	struct scope scope = {
		.imports = model->proto->opset_import,
		.n_imports = model->proto->n_opset_import,
		.list = &list,
	};
	int r;

	r = check_model(&resolver);
	if (!r)
		r = scope_define(&resolver, &scope, model->proto->graph);
	if (!r)
		r = functions_read(&resolver);
	if (!r)
		r = resolve_nodes(&resolver, &scope);
	if (!r)
		r = resolve_ends(&resolver, &scope);
	return r;
}
