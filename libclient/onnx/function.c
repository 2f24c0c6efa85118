/* SPDX-License-Identifier: MIT */
/*
 * Functions
 *
 * A file may define its own operators as functions of others. A call is replaced by the function's
 * nodes. Names of the function's inputs and outputs stand for the values of the call, all other
 * names are local to the function, and opsets are those that the function imports. Functions may
 * call others, but not themselves. The result is bounded by the depth of calls, and by the total of
 * nodes and values.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/newer.h"
#include "libclient/onnx/resolve.h"

/*
 * Memory for inlining, in addition to the limit by the file's size: a small file may contain many
 * calls.
 */
#define FUNCTION_BYTES (64ull << 20)
/* Limit of attributes: they are searched for each call. */
#define FUNCTION_MAX_ATTRS 1024u
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

bool function_has_attribute(const struct function *function, const char *name)
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

/*
 * Resolve the reference of @attr to an attribute of the function, under @attr's own name. Return:
 * 0, *ret is NULL if the call omits the attribute and it has no default; -EBADMSG, -EOPNOTSUPP,
 * -ENOMEM.
 */
static int refer(struct resolver *resolver, const struct model_frame *frame,
		 const struct model_node *node, const Onnx__AttributeProto *attr,
		 Onnx__AttributeProto **ret)
{
	const struct function *function = frame->function;
	const Onnx__AttributeProto *value;

	*ret = NULL;
	if (!function_has_attribute(function, attr->ref_attr_name))
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
	/* Names in the graph would be those of another body. */
	if (value->g || value->n_graphs > 0)
		return onnx_error(resolver->error, -EOPNOTSUPP,
				  "%s: attribute \"%s\" refers to a graph, which is not supported",
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
				  "%s has an attribute that refers to a function's attribute, but "
				  "the node is not in a function",
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
