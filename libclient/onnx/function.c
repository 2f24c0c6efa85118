/* SPDX-License-Identifier: MIT */
/*
 * Functions
 *
 * A file may define operators of its own, as functions of others. A call is replaced by the
 * function's nodes: the names of its inputs and outputs are those values that the call has in their
 * places, all other names are the function's own, and opsets are the ones that the function says.
 * Functions call others, but not themselves. What that may come to is bounded by how deep it goes,
 * and by all nodes and values that there are in the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/newer.h"
#include "libclient/onnx/resolve.h"

/* What inlining may take, beside what the file's size allows: a small file may call much. */
#define FUNCTION_BYTES (64ull << 20)
/* Of attributes: they are looked through for each call. */
#define FUNCTION_MAX_ATTRS 1024u
/* What inlining may read of functions, calls together: their names are sorted and looked for. */
#define FUNCTION_TEXT_BYTES (1ull << 30)

struct function {
	const char *domain; /* "" is the default one */
	const char *name;
	const char *overload;
	const Onnx__FunctionProto *proto;
	Onnx__AttributeProto *const *defaults;
	size_t n_defaults;
	uint64_t n_bytes;       /* of all that it says */
	uint64_t n_attr_bytes;  /* of the names of its attributes */
	const char *opset_text; /* for sentences: the opset of function "my.f" */
	const char *body;       /* function "my.f", which is the end of that */
};

/* ---- Definitions ---- */

static const char *plain_domain(const char *domain)
{
	return domain && strcmp(domain, "ai.onnx") ? domain : "";
}

static int compare_functions(const void *a, const void *b)
{
	const struct function *one = a, *other = b;
	int order = strcmp(one->name, other->name);

	if (!order)
		order = strcmp(one->domain, other->domain);
	return order ? order : strcmp(one->overload, other->overload);
}

static int read_function(struct resolver *resolver, const Onnx__FunctionProto *proto,
			 struct function *ret)
{
	struct mem *mem = &resolver->model->mem;
	int r;

	ret->proto = proto;
	ret->domain = plain_domain(proto->domain);
	ret->name = onnx_text(proto->name);
	ret->overload = newer_function_overload(mem, proto);
	if (!ret->overload)
		return resolver_out_of_memory(resolver);
	if (!ret->name[0])
		return onnx_error(resolver->error, -EBADMSG, "a function has no name");
	ret->opset_text = mem_printf(mem, "the opset of function \"%s%s%s%s%s\"", ret->domain,
				     ret->domain[0] ? "." : "", ret->name,
				     ret->overload[0] ? ":" : "", ret->overload);
	if (!ret->opset_text)
		return resolver_out_of_memory(resolver);
	ret->body = ret->opset_text + strlen("the opset of ");
	r = newer_function_defaults(mem, proto, &ret->defaults, &ret->n_defaults, resolver->error);
	if (r)
		return r;
	if (proto->n_attribute > FUNCTION_MAX_ATTRS || ret->n_defaults > FUNCTION_MAX_ATTRS ||
	    proto->n_opset_import > ONNX_MAX_IMPORTS)
		return onnx_error(resolver->error, -EFBIG,
				  "%s has more than %u attributes, or opsets", ret->body,
				  FUNCTION_MAX_ATTRS);
	ret->n_bytes = protobuf_c_message_get_packed_size(&proto->base);
	for (size_t i = 0; i < proto->n_attribute; i++)
		ret->n_attr_bytes += strlen(proto->attribute[i]) + 1;
	for (size_t i = 0; i < ret->n_defaults; i++)
		ret->n_attr_bytes += strlen(onnx_text(ret->defaults[i]->name)) + 1;
	return 0;
}

int functions_read(struct resolver *resolver)
{
	const Onnx__ModelProto *proto = resolver->model->proto;
	struct function *functions;
	int r;

	if (proto->n_functions == 0)
		return 0;
	resolver->model->mem.max_bytes += FUNCTION_BYTES;
	functions = mem_zero(&resolver->model->mem, proto->n_functions, sizeof(*functions));
	if (!functions)
		return resolver_out_of_memory(resolver);
	for (size_t i = 0; i < proto->n_functions; i++) {
		r = read_function(resolver, proto->functions[i], &functions[i]);
		if (r)
			return r;
	}
	qsort(functions, proto->n_functions, sizeof(*functions), compare_functions);
	for (size_t i = 1; i < proto->n_functions; i++)
		if (!compare_functions(&functions[i - 1], &functions[i]))
			return onnx_error(resolver->error, -EBADMSG, "%s is defined twice",
					  functions[i].body);
	resolver->functions = functions;
	resolver->n_functions = proto->n_functions;
	return 0;
}

int functions_find(struct resolver *resolver, const Onnx__NodeProto *proto,
		   const struct function **ret)
{
	const struct function key = {
		.domain = plain_domain(proto->domain),
		.name = onnx_text(proto->op_type),
		.overload = resolver->n_functions > 0
				    ? newer_node_overload(&resolver->model->mem, proto)
				    : "",
	};

	*ret = NULL;
	if (!key.overload)
		return resolver_out_of_memory(resolver);
	if (resolver->n_functions > 0)
		*ret = bsearch(&key, resolver->functions, resolver->n_functions,
			       sizeof(*resolver->functions), compare_functions);
	return 0;
}

/* ---- Attributes ---- */

static Onnx__AttributeProto *find_attribute(Onnx__AttributeProto *const *attrs, size_t n,
					    const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(onnx_text(attrs[i]->name), name))
			return attrs[i];
	return NULL;
}

static bool has_attribute(const struct function *function, const char *name)
{
	for (size_t i = 0; i < function->proto->n_attribute; i++)
		if (!strcmp(function->proto->attribute[i], name))
			return true;
	return find_attribute(function->defaults, function->n_defaults, name) != NULL;
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(struct resolver *resolver, const struct model_node *node, bool *ret_refers)
{
	const Onnx__NodeProto *proto = node->proto;
	const char **names = mem_take(&resolver->model->mem, proto->n_attribute * sizeof(*names));

	if (!names)
		return resolver_out_of_memory(resolver);
	for (size_t i = 0; i < proto->n_attribute; i++) {
		names[i] = onnx_text(proto->attribute[i]->name);
		if (!names[i][0])
			return onnx_error(resolver->error, -EBADMSG,
					  "%s has an attribute without a name", NODE_TEXT(node));
		*ret_refers |= onnx_text(proto->attribute[i]->ref_attr_name)[0] != 0;
	}
	if (proto->n_attribute > 1)
		qsort(names, proto->n_attribute, sizeof(*names), compare_strings);
	for (size_t i = 1; i < proto->n_attribute; i++)
		if (!strcmp(names[i - 1], names[i]))
			return onnx_error(resolver->error, -EBADMSG,
					  "%s has attribute \"%s\" twice", NODE_TEXT(node),
					  names[i]);
	return 0;
}

/* What @attr refers to, by its own name. Return: 0, *ret is NULL if the call leaves it out. */
static int refer(struct resolver *resolver, const struct model_frame *frame,
		 const struct model_node *node, const Onnx__AttributeProto *attr,
		 Onnx__AttributeProto **ret)
{
	const struct function *function = frame->function;
	const Onnx__AttributeProto *value;

	*ret = NULL;
	if (!has_attribute(function, attr->ref_attr_name))
		return onnx_error(resolver->error, -EBADMSG,
				  "%s: attribute \"%s\" refers to \"%s\", which %s does not have",
				  NODE_TEXT(node), attr->name, attr->ref_attr_name, function->body);
	value = find_attribute(frame->proto->attribute, frame->proto->n_attribute,
			       attr->ref_attr_name);
	if (!value)
		value = find_attribute(function->defaults, function->n_defaults,
				       attr->ref_attr_name);
	if (!value)
		return 0;
	/* Its names would be those of another body. */
	if (value->g || value->n_graphs > 0)
		return onnx_error(resolver->error, -EOPNOTSUPP,
				  "%s: attribute \"%s\" refers to a graph, which is not read",
				  NODE_TEXT(node), attr->name);
	*ret = mem_take(&resolver->model->mem, sizeof(**ret));
	if (!*ret)
		return resolver_out_of_memory(resolver);
	**ret = *value;
	(*ret)->name = attr->name;
	return 0;
}

int functions_fill_attributes(struct resolver *resolver, const struct scope *scope,
			      struct model_node *node)
{
	const struct model_frame *frame = scope->frame;
	Onnx__AttributeProto **attrs;
	Onnx__NodeProto *proto;
	bool refers = false;
	int r;

	r = check_names(resolver, node, &refers);
	if (r || !refers)
		return r;
	while (frame && !frame->function)
		frame = frame->outer;
	if (!frame)
		return onnx_error(resolver->error, -EBADMSG,
				  "%s has an attribute that refers to a function's, but it is in "
				  "none",
				  NODE_TEXT(node));
	proto = mem_take(&resolver->model->mem, sizeof(*proto));
	attrs = mem_take(&resolver->model->mem, node->proto->n_attribute * sizeof(*attrs));
	if (!proto || !attrs)
		return resolver_out_of_memory(resolver);
	*proto = *node->proto;
	proto->attribute = attrs;
	proto->n_attribute = 0;
	for (size_t i = 0; i < node->proto->n_attribute; i++) {
		Onnx__AttributeProto *attr = node->proto->attribute[i];

		if (onnx_text(attr->ref_attr_name)[0]) {
			r = refer(resolver, frame, node, attr, &attr);
			if (r)
				return r;
		}
		if (attr)
			attrs[proto->n_attribute++] = attr;
	}
	node->proto = proto;
	return 0;
}

/* ---- Calls ---- */

static int check_call(struct resolver *resolver, const struct model_node *call,
		      const struct function *function)
{
	const Onnx__FunctionProto *proto = function->proto;

	for (const struct model_frame *frame = call->frame; frame; frame = frame->outer)
		if (frame->function == function)
			return onnx_error(resolver->error, -EBADMSG, "%s calls itself, by %s",
					  function->body, NODE_TEXT(call));
	if (call->frame && call->frame->depth >= RESOLVE_MAX_DEPTH)
		return onnx_error(resolver->error, -EFBIG,
				  "functions and branches are more than %u deep: %s",
				  RESOLVE_MAX_DEPTH, NODE_TEXT(call));
	if (call->n_in > proto->n_input || call->n_out > proto->n_output)
		return onnx_error(resolver->error, -EBADMSG,
				  "%s has %u input%s and %u output%s, %s has %zu and %zu",
				  NODE_TEXT(call), call->n_in, onnx_plural(call->n_in), call->n_out,
				  onnx_plural(call->n_out), function->body, proto->n_input,
				  proto->n_output);
	for (size_t i = 0; i < call->proto->n_attribute; i++)
		if (!has_attribute(function, call->proto->attribute[i]->name))
			return onnx_error(resolver->error, -EBADMSG,
					  "%s has attribute \"%s\", which %s does not have",
					  NODE_TEXT(call), call->proto->attribute[i]->name,
					  function->body);
	return nodes_check_opsets(resolver, proto->opset_import, proto->n_opset_import,
				  function->opset_text);
}

/* A small file may have much read: long names, or many attributes, by each of many calls. */
static int charge_call(struct resolver *resolver, const struct model_node *call,
		       const struct function *function)
{
	resolver->n_text_bytes +=
		function->n_bytes + call->proto->n_attribute * function->n_attr_bytes;
	if (resolver->n_text_bytes > FUNCTION_TEXT_BYTES)
		return onnx_error(resolver->error, -EFBIG,
				  "functions have more than 1 GiB, inlined as often as they are "
				  "called: %s",
				  NODE_TEXT(call));
	return 0;
}

/* Inputs are what the call gives; what nodes write is not known yet. */
static int bind_names(struct resolver *resolver, struct scope *scope, const struct model_node *call,
		      const Onnx__FunctionProto *proto)
{
	uint64_t n = proto->n_input;
	struct binding *at;

	for (size_t i = 0; i < proto->n_node; i++)
		n += proto->node[i]->n_output;
	if (n > ONNX_MAX_VALUES)
		return onnx_error(resolver->error, -EFBIG,
				  "%s has %llu values, expected at most %u", scope->frame->body,
				  (unsigned long long)n, ONNX_MAX_VALUES);
	at = mem_take(&resolver->model->mem, n * sizeof(*at));
	if (!at)
		return resolver_out_of_memory(resolver);
	scope->bindings = at;
	for (size_t i = 0; i < proto->n_input; i++) {
		if (!onnx_text(proto->input[i])[0])
			return onnx_error(resolver->error, -EBADMSG, "input %zu of %s has no name",
					  i, scope->frame->body);
		*at++ = (struct binding){proto->input[i],
					 i < call->n_in ? call->in[i] : ONNX_ABSENT};
	}
	for (size_t i = 0; i < proto->n_node; i++)
		for (size_t j = 0; j < proto->node[i]->n_output; j++)
			if (onnx_text(proto->node[i]->output[j])[0])
				*at++ = (struct binding){proto->node[i]->output[j], ONNX_NO_VALUE};
	scope->n_bindings = (uint32_t)(at - scope->bindings);
	return scope_sort(resolver, scope);
}

/*
 * What nodes write is what the call writes, or a new value. An output that is an input, or another
 * output, is to be copied: @copied says which.
 */
static int bind_outputs(struct resolver *resolver, struct scope *scope,
			const struct model_node *call, const Onnx__FunctionProto *proto,
			bool *copied)
{
	int r = 0;

	for (size_t i = 0; i < proto->n_output; i++) {
		const char *name = onnx_text(proto->output[i]);
		struct binding *binding = scope_find_own(scope, name);

		if (!binding || !name[0])
			return onnx_error(resolver->error, -EBADMSG,
					  "output \"%s\" of %s is written by nothing", name,
					  scope->frame->body);
		if (i >= call->n_out || call->out[i] == ONNX_ABSENT)
			continue;
		copied[i] = binding->value != ONNX_NO_VALUE;
		if (!copied[i])
			binding->value = call->out[i];
	}
	for (uint32_t i = 0; !r && i < scope->n_bindings; i++)
		if (scope->bindings[i].value == ONNX_NO_VALUE)
			r = scope_add_value(resolver, scope->bindings[i].name,
					    &scope->bindings[i].value);
	return r;
}

/* Output @i of @call is what the function calls @name. */
static int copy_output(struct resolver *resolver, const struct scope *scope,
		       const struct model_node *call, uint32_t i, char *name)
{
	static char op[] = "Identity";
	struct mem *mem = &resolver->model->mem;
	struct model_node node = *call;
	Onnx__NodeProto *proto = mem_take(mem, sizeof(*proto));
	uint32_t *edges = mem_take(mem, 2 * sizeof(*edges));
	char **names = mem_take(mem, sizeof(*names));

	if (!proto || !edges || !names)
		return resolver_out_of_memory(resolver);
	edges[0] = scope_find_own(scope, name)->value;
	edges[1] = call->out[i];
	if (edges[0] == ONNX_ABSENT)
		return onnx_error(resolver->error, -EBADMSG,
				  "%s: output %u is an input that it does not give",
				  NODE_TEXT(call), i);
	resolver->model->values[edges[0]].n_uses++;
	names[0] = name;
	onnx__node_proto__init(proto);
	proto->op_type = op;
	proto->n_input = 1;
	proto->input = names;
	proto->n_output = 1;
	proto->output = names;
	node.proto = proto;
	node.domain = "";
	node.opset = resolver->model->opset;
	node.in = &edges[0];
	node.out = &edges[1];
	node.n_in = 1;
	node.n_reads = 1;
	node.n_out = 1;
	return nodes_append(resolver, scope->list, &node);
}

int functions_inline(struct resolver *resolver, const struct scope *scope,
		     const struct model_node *call, const struct function *function)
{
	const Onnx__FunctionProto *proto = function->proto;
	struct mem *mem = &resolver->model->mem;
	struct model_frame *frame = mem_take(mem, sizeof(*frame));
	bool *copied = mem_zero(mem, proto->n_output, sizeof(*copied));
	struct scope body = {
		.frame = frame,
		.imports = proto->opset_import,
		.n_imports = proto->n_opset_import,
		.list = scope->list,
	};
	int r;

	if (!frame || !copied)
		return resolver_out_of_memory(resolver);
	*frame = model_frame_of(call, function->body, function);
	r = charge_call(resolver, call, function);
	if (!r)
		r = check_call(resolver, call, function);
	if (!r)
		r = bind_names(resolver, &body, call, proto);
	if (!r)
		r = bind_outputs(resolver, &body, call, proto, copied);
	if (!r)
		r = nodes_resolve(resolver, &body, proto->node, proto->n_node);
	for (uint32_t i = 0; !r && i < call->n_out; i++)
		if (copied[i])
			r = copy_output(resolver, &body, call, i, proto->output[i]);
	return r;
}
