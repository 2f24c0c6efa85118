/* SPDX-License-Identifier: MIT */
/*
 * Names become values, nodes an order
 *
 * ONNX connects nodes by names, each of which is defined once: by an input of the graph, by an
 * initializer (which may also be an input: then it is that input's default), or as the output of a
 * node. All definitions are sorted by name, so that what is defined twice is found, and so that
 * looking one up costs the same whatever names a file has. Then nodes are put in an order in which
 * each comes after those it reads from, by an iterative depth-first walk in the file's own order:
 * files are nearly always sorted already and then stay as they are. A walk that meets a node it has
 * entered and not left has found a cycle.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/model.h"

/* All strings of a model may be absent. */
static const char *text(const char *string)
{
	return string ? string : "";
}

struct resolver {
	struct rbk_onnx *model;
	const Onnx__GraphProto *graph;
	struct model_value **sorted; /* by name */
	struct rbk_error *error;
};

static int out_of_memory(struct resolver *resolver)
{
	return onnx_error(resolver->error, mem_error(&resolver->model->mem),
			  "the model needs too much memory");
}

/* "node 7 "scores" (MatMul)" */
#define NODE_FORMAT             "node %u \"%s\" (%s)"
#define NODE_ARGS(index, proto) (unsigned int)(index), text((proto)->name), text((proto)->op_type)

/* ---- Definitions ---- */

static int compare_names(const void *a, const void *b)
{
	return strcmp((*(struct model_value *const *)a)->name,
		      (*(struct model_value *const *)b)->name);
}

static int compare_name(const void *name, const void *value)
{
	return strcmp(name, (*(struct model_value *const *)value)->name);
}

static struct model_value *find_value(const struct resolver *resolver, const char *name)
{
	struct model_value **place = bsearch(name, resolver->sorted, resolver->model->n_values,
					     sizeof(*resolver->sorted), compare_name);

	return place ? *place : NULL;
}

static struct model_value *add_value(struct resolver *resolver, const char *name)
{
	struct model_value *value = &resolver->model->values[resolver->model->n_values++];

	*value = (struct model_value){.name = name, .producer = ONNX_NO_NODE};
	return value;
}

static const Onnx__TensorProto *find_initializer(const struct resolver *resolver, size_t i)
{
	return resolver->graph->initializer[i];
}

/*
 * All names that something defines. Initializers that are inputs too come twice and are merged
 * afterwards, everything else that does is an error.
 */
static int define(struct resolver *resolver)
{
	const Onnx__GraphProto *graph = resolver->graph;
	struct rbk_onnx *model = resolver->model;
	uint64_t n = graph->n_input + graph->n_initializer;

	for (size_t i = 0; i < graph->n_node; i++)
		n += graph->node[i]->n_output;
	if (n > ONNX_MAX_VALUES)
		return onnx_error(resolver->error, -EFBIG,
				  "the graph has %llu values, expected at most %u",
				  (unsigned long long)n, ONNX_MAX_VALUES);
	model->values = mem_zero(&model->mem, n, sizeof(*model->values));
	resolver->sorted = mem_zero(&model->mem, n, sizeof(*resolver->sorted));
	if (!model->values || !resolver->sorted)
		return out_of_memory(resolver);

	for (size_t i = 0; i < graph->n_input; i++) {
		struct model_value *value;

		if (!text(graph->input[i]->name)[0])
			return onnx_error(resolver->error, -EBADMSG, "input %zu has no name", i);
		value = add_value(resolver, graph->input[i]->name);
		value->is_input = true;
		value->info = graph->input[i];
	}
	for (size_t i = 0; i < graph->n_node; i++)
		for (size_t j = 0; j < graph->node[i]->n_output; j++)
			if (text(graph->node[i]->output[j])[0])
				add_value(resolver, graph->node[i]->output[j])->producer =
					(uint32_t)i;
	for (uint32_t i = 0; i < model->n_values; i++)
		resolver->sorted[i] = &model->values[i];
	qsort(resolver->sorted, model->n_values, sizeof(*resolver->sorted), compare_names);
	for (uint32_t i = 1; i < model->n_values; i++)
		if (!compare_names(&resolver->sorted[i - 1], &resolver->sorted[i]))
			return onnx_error(resolver->error, -EBADMSG,
					  "two things are called \"%s\": each name is defined once",
					  resolver->sorted[i]->name);
	return 0;
}

static int define_initializers(struct resolver *resolver)
{
	const Onnx__GraphProto *graph = resolver->graph;
	struct rbk_onnx *model = resolver->model;
	uint32_t n_before = model->n_values;
	struct constant *constants;
	int r;

	constants = mem_zero(&model->mem, graph->n_initializer, sizeof(*constants));
	if (!constants)
		return out_of_memory(resolver);
	for (size_t i = 0; i < graph->n_initializer; i++) {
		const Onnx__TensorProto *proto = find_initializer(resolver, i);
		struct model_value *value;

		if (!text(proto->name)[0])
			return onnx_error(resolver->error, -EBADMSG, "initializer %zu has no name",
					  i);
		r = constant_decode(&model->mem, &model->external, proto, "initializer",
				    &constants[i], resolver->error);
		if (r)
			return r;
		model->n_weight_bytes += constants[i].n_bytes;
		if (model->n_weight_bytes > ONNX_MAX_WEIGHT_BYTES)
			return onnx_error(resolver->error, -EFBIG,
					  "the initializers have more than 64 GiB");
		/* Only names of before are sorted yet; twice the same new name is found below. */
		model->n_values = n_before;
		value = find_value(resolver, proto->name);
		model->n_values = n_before + (uint32_t)i;
		if (value && (!value->is_input || value->initializer))
			return onnx_error(resolver->error, -EBADMSG,
					  "two things are called \"%s\": each name is defined once",
					  proto->name);
		if (value) {
			/* Value n_before + i belongs to initializer i; here it has no name, so that
			 * nothing refers to it. */
			value->initializer = &constants[i];
			add_value(resolver, "");
		} else {
			add_value(resolver, proto->name)->initializer = &constants[i];
		}
	}
	for (uint32_t i = n_before; i < model->n_values; i++)
		resolver->sorted[i] = &model->values[i];
	qsort(resolver->sorted, model->n_values, sizeof(*resolver->sorted), compare_names);
	for (uint32_t i = 1; i < model->n_values; i++)
		if (resolver->sorted[i]->name[0] &&
		    !compare_names(&resolver->sorted[i - 1], &resolver->sorted[i]))
			return onnx_error(resolver->error, -EBADMSG,
					  "two things are called \"%s\": each name is defined once",
					  resolver->sorted[i]->name);
	return 0;
}

/* ---- Nodes ---- */

static bool is_default_domain(const char *domain)
{
	return !text(domain)[0] || !strcmp(domain, "ai.onnx");
}

/* Each domain's opset is a number from 1 on. */
static int check_opsets(struct resolver *resolver, const Onnx__ModelProto *proto)
{
	for (size_t i = 0; i < proto->n_opset_import; i++) {
		const char *domain = text(proto->opset_import[i]->domain);
		const long long version = proto->opset_import[i]->version;

		if (is_default_domain(domain) && (version < 1 || version > ONNX_MAX_OPSET))
			return onnx_error(resolver->error, version < 1 ? -EBADMSG : -EOPNOTSUPP,
					  "its opset is %lld, expected 1 to %u", version,
					  ONNX_MAX_OPSET);
		if (version < 1 || version > INT32_MAX)
			return onnx_error(resolver->error, -EBADMSG,
					  "its opset of domain \"%s\" is %lld, expected 1 or more",
					  domain, version);
	}
	return 0;
}

static uint32_t find_opset(const Onnx__ModelProto *proto, const char *domain)
{
	for (size_t i = 0; i < proto->n_opset_import; i++) {
		const char *imported = text(proto->opset_import[i]->domain);

		if (is_default_domain(domain) ? is_default_domain(imported)
					      : !strcmp(domain, imported))
			return (uint32_t)proto->opset_import[i]->version;
	}
	return 0;
}

static int resolve_edges(struct resolver *resolver, struct model_node *node, char *const *names,
			 size_t n, bool is_input, uint32_t **ret)
{
	uint32_t *edges = mem_take(&resolver->model->mem, n * sizeof(*edges));

	if (!edges)
		return out_of_memory(resolver);
	for (size_t i = 0; i < n; i++) {
		struct model_value *value;

		edges[i] = ONNX_ABSENT;
		if (!text(names[i])[0])
			continue;
		value = find_value(resolver, names[i]);
		if (!value)
			return onnx_error(resolver->error, -EBADMSG,
					  NODE_FORMAT " reads \"%s\", which nothing defines",
					  NODE_ARGS(node->index, node->proto), names[i]);
		edges[i] = (uint32_t)(value - resolver->model->values);
		value->n_uses += is_input;
	}
	*ret = edges;
	return 0;
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_attributes(struct resolver *resolver, const struct model_node *node)
{
	const Onnx__NodeProto *proto = node->proto;
	const char **names = mem_take(&resolver->model->mem, proto->n_attribute * sizeof(*names));

	if (!names)
		return out_of_memory(resolver);
	for (size_t i = 0; i < proto->n_attribute; i++) {
		names[i] = text(proto->attribute[i]->name);
		if (!names[i][0])
			return onnx_error(resolver->error, -EBADMSG,
					  NODE_FORMAT " has an attribute without a name",
					  NODE_ARGS(node->index, proto));
		if (text(proto->attribute[i]->ref_attr_name)[0])
			return onnx_error(resolver->error, -EBADMSG,
					  NODE_FORMAT ": attribute \"%s\" refers to a function's, "
						      "but it is in none",
					  NODE_ARGS(node->index, proto), names[i]);
	}
	qsort(names, proto->n_attribute, sizeof(*names), compare_strings);
	for (size_t i = 1; i < proto->n_attribute; i++)
		if (!strcmp(names[i - 1], names[i]))
			return onnx_error(resolver->error, -EBADMSG,
					  NODE_FORMAT " has attribute \"%s\" twice",
					  NODE_ARGS(node->index, proto), names[i]);
	return 0;
}

static int resolve_node(struct resolver *resolver, struct model_node *node, uint32_t index)
{
	const Onnx__NodeProto *proto = resolver->graph->node[index];
	int r;

	node->proto = proto;
	node->index = index;
	node->domain = is_default_domain(proto->domain) ? "" : proto->domain;
	node->opset = find_opset(resolver->model->proto, node->domain);
	node->n_in = (uint32_t)proto->n_input;
	node->n_out = (uint32_t)proto->n_output;
	if (!text(proto->op_type)[0])
		return onnx_error(resolver->error, -EBADMSG, "node %u \"%s\" has no operator",
				  index, text(proto->name));
	r = check_attributes(resolver, node);
	if (!r)
		r = resolve_edges(resolver, node, proto->input, proto->n_input, true, &node->in);
	if (!r)
		r = resolve_edges(resolver, node, proto->output, proto->n_output, false,
				  &node->out);
	return r;
}

enum visit { VISIT_NEW, VISIT_OPEN, VISIT_DONE };

struct walk {
	uint32_t node;
	uint32_t next_in;
};

/*
 * Appends the nodes that @first needs, then itself, to @order. @nodes are in the file's order.
 */
static int order_from(struct resolver *resolver, const struct model_node *nodes, uint32_t first,
		      uint8_t *visits, struct walk *stack, uint32_t *order, uint32_t *n_order)
{
	uint32_t depth = 0;

	if (visits[first] == VISIT_DONE)
		return 0;
	stack[depth++] = (struct walk){.node = first};
	visits[first] = VISIT_OPEN;
	while (depth > 0) {
		struct walk *top = &stack[depth - 1];
		const struct model_node *node = &nodes[top->node];
		uint32_t value, producer = ONNX_NO_NODE;

		if (top->next_in == node->n_in) {
			visits[top->node] = VISIT_DONE;
			order[(*n_order)++] = top->node;
			depth--;
			continue;
		}
		value = node->in[top->next_in++];
		if (value != ONNX_ABSENT)
			producer = resolver->model->values[value].producer;
		if (producer == ONNX_NO_NODE || visits[producer] == VISIT_DONE)
			continue;
		if (visits[producer] == VISIT_OPEN)
			return onnx_error(resolver->error, -EBADMSG,
					  "the graph is cyclic: " NODE_FORMAT
					  " reads \"%s\", which depends on it",
					  NODE_ARGS(node->index, node->proto),
					  resolver->model->values[value].name);
		visits[producer] = VISIT_OPEN;
		stack[depth++] = (struct walk){.node = producer};
	}
	return 0;
}

static int order_nodes(struct resolver *resolver, struct model_node *nodes, uint32_t n)
{
	struct rbk_onnx *model = resolver->model;
	struct walk *stack = mem_take(&model->mem, n * sizeof(*stack));
	uint32_t *order = mem_take(&model->mem, n * sizeof(*order));
	uint8_t *visits = mem_zero(&model->mem, n, 1);
	uint32_t n_order = 0;
	int r = 0;

	model->nodes = mem_take(&model->mem, n * sizeof(*model->nodes));
	if (!stack || !order || !visits || !model->nodes)
		return out_of_memory(resolver);
	for (uint32_t i = 0; !r && i < n; i++)
		r = order_from(resolver, nodes, i, visits, stack, order, &n_order);
	if (r)
		return r;
	for (uint32_t i = 0; i < n; i++)
		model->nodes[i] = nodes[order[i]];
	model->n_nodes = n;
	return 0;
}

static int resolve_nodes(struct resolver *resolver)
{
	uint32_t n = (uint32_t)resolver->graph->n_node;
	struct model_node *nodes = mem_zero(&resolver->model->mem, n, sizeof(*nodes));
	int r;

	if (!nodes)
		return out_of_memory(resolver);
	for (uint32_t i = 0; i < n; i++) {
		r = resolve_node(resolver, &nodes[i], i);
		if (r)
			return r;
	}
	return order_nodes(resolver, nodes, n);
}

/* ---- Inputs and outputs ---- */

/* What the graph declares of an input or output: a dense tensor. */
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
			"%s \"%s\" is no tensor: sequences, maps, optional and sparse ones "
			"are not read",
			what, text(info->name));
	ret->dtype = (uint32_t)type->tensor_type->elem_type;
	shape = type->tensor_type->shape;
	if (!shape)
		return 0;
	if (shape->n_dim > RBK_ONNX_MAX_RANK)
		return onnx_error(resolver->error, -EOPNOTSUPP,
				  "%s \"%s\" has %zu dimensions, expected at most %d", what,
				  text(info->name), shape->n_dim, RBK_ONNX_MAX_RANK);
	ret->rank = (int32_t)shape->n_dim;
	for (size_t i = 0; i < shape->n_dim; i++) {
		const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];

		ret->dims[i] = RBK_ONNX_DIM_OPEN;
		if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
		    text(dim->dim_param)[0])
			ret->dim_names[i] = dim->dim_param;
		if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
			continue;
		/* Some exporters write -1 for what is open. */
		if (dim->dim_value < -1 || dim->dim_value > INT32_MAX)
			return onnx_error(resolver->error, -EBADMSG,
					  "%s \"%s\": dimension %zu is %lld", what,
					  text(info->name), i, (long long)dim->dim_value);
		ret->dims[i] = dim->dim_value;
	}
	return 0;
}

/* An input whose default the file has takes its shape from that, where it declares none. */
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

static int resolve_ends(struct resolver *resolver)
{
	const Onnx__GraphProto *graph = resolver->graph;
	struct rbk_onnx *model = resolver->model;
	int r;

	model->inputs = mem_zero(&model->mem, graph->n_input, sizeof(*model->inputs));
	model->outputs = mem_zero(&model->mem, graph->n_output, sizeof(*model->outputs));
	if (!model->inputs || !model->outputs)
		return out_of_memory(resolver);
	for (size_t i = 0; i < graph->n_input; i++) {
		struct model_input *input = &model->inputs[i];

		input->value =
			(uint32_t)(find_value(resolver, graph->input[i]->name) - model->values);
		r = read_info(resolver, graph->input[i], "input", input);
		if (!r)
			r = check_default(resolver, input);
		if (r)
			return r;
		model->n_inputs++;
	}
	for (size_t i = 0; i < graph->n_output; i++) {
		const char *name = text(graph->output[i]->name);
		struct model_value *value = name[0] ? find_value(resolver, name) : NULL;

		if (!value)
			return onnx_error(resolver->error, -EBADMSG,
					  "output %zu, \"%s\", is written by nothing", i, name);
		for (size_t j = 0; j < i && graph->n_output <= RBK_MAX_REFS; j++)
			if (model->outputs[j].value == (uint32_t)(value - model->values))
				return onnx_error(resolver->error, -EBADMSG,
						  "there are two outputs \"%s\"", name);
		model->outputs[i].value = (uint32_t)(value - model->values);
		value->n_uses++;
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
		return onnx_error(resolver->error, -EBADMSG, "it has no graph");
	if (proto->ir_version < 3)
		return onnx_error(resolver->error, -EOPNOTSUPP,
				  "its IR version is %lld, expected 3 or later",
				  (long long)proto->ir_version);
	r = check_opsets(resolver, proto);
	if (r)
		return r;
	model->opset = find_opset(proto, "");
	if (model->opset == 0)
		return onnx_error(resolver->error, -EBADMSG,
				  "it does not say which opset of the default domain it uses");
	if (proto->graph->n_sparse_initializer > 0)
		return onnx_error(resolver->error, -EOPNOTSUPP, "sparse initializers are not read");
	if (proto->graph->n_node > ONNX_MAX_NODES)
		return onnx_error(resolver->error, -EFBIG,
				  "the graph has %zu nodes, expected at most %u",
				  proto->graph->n_node, ONNX_MAX_NODES);
	if (proto->graph->n_output == 0)
		return onnx_error(resolver->error, -EBADMSG, "the graph has no output");
	return 0;
}

int model_resolve(struct rbk_onnx *model, struct rbk_error *error)
{
	struct resolver resolver = {.model = model, .graph = model->proto->graph, .error = error};
	int r;

	r = check_model(&resolver);
	if (!r)
		r = define(&resolver);
	if (!r)
		r = define_initializers(&resolver);
	if (!r)
		r = resolve_nodes(&resolver);
	if (!r)
		r = resolve_ends(&resolver);
	return r;
}
