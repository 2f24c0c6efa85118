/* SPDX-License-Identifier: MIT */
/*
 * Nodes, in an order in which they can run
 *
 * A body's nodes go into a list, where what they read and write are values; in the place of a call
 * are the nodes of its function, and an If has a list for each of its branches. Of an If it is also
 * known what its branches read from around it.
 *
 * Then nodes are put in an order in which each comes after those it reads from, by an iterative
 * depth-first walk in the file's own order: files are nearly always sorted already and then stay as
 * they are. A walk that meets a node it has entered and not left has found a cycle.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/resolve.h"

/* ---- Sentences ---- */

const char *node_text(const struct model_node *node, char ret[NODE_TEXT_BYTES])
{
	const struct model_frame *frame = node->frame;
	int n;

	n = snprintf(ret, NODE_TEXT_BYTES, "node %u \"%s\" (%s)", node->place,
		     onnx_text(node->proto->name), onnx_text(node->proto->op_type));
	for (; frame && n > 0 && n < NODE_TEXT_BYTES; frame = frame->outer)
		n += snprintf(ret + n, (size_t)(NODE_TEXT_BYTES - n),
			      " of %s, in node %u \"%s\" (%s)", frame->body, frame->place,
			      onnx_text(frame->proto->name), onnx_text(frame->proto->op_type));
	return ret;
}

const char *node_first_output(const Onnx__NodeProto *proto)
{
	for (size_t i = 0; i < proto->n_output; i++)
		if (onnx_text(proto->output[i])[0])
			return proto->output[i];
	return "";
}

struct model_frame model_frame_of(const struct model_node *node, const char *body,
				  const struct function *function)
{
	return (struct model_frame){
		.outer = node->frame,
		.body = body,
		.proto = node->proto,
		.function = function,
		.name = node->name[0] ? node->name : node_first_output(node->proto),
		.index = node->index,
		.place = node->place,
		.depth = node->frame ? node->frame->depth + 1 : 1,
	};
}

/* ---- Opsets ---- */

static bool is_default_domain(const char *domain)
{
	return !onnx_text(domain)[0] || !strcmp(domain, "ai.onnx");
}

int nodes_check_opsets(struct resolver *resolver, Onnx__OperatorSetIdProto *const *imports,
		       size_t n_imports, const char *whose)
{
	for (size_t i = 0; i < n_imports; i++) {
		const char *domain = onnx_text(imports[i]->domain);
		const long long version = imports[i]->version;

		if (is_default_domain(domain) && (version < 1 || version > ONNX_MAX_OPSET))
			return onnx_error(resolver->error, version < 1 ? -EBADMSG : -EOPNOTSUPP,
					  "%s is %lld, expected 1 to %u", whose, version,
					  ONNX_MAX_OPSET);
		if (version < 1 || version > INT32_MAX)
			return onnx_error(resolver->error, -EBADMSG,
					  "%s of domain \"%s\" is %lld, expected 1 or more", whose,
					  domain, version);
	}
	return 0;
}

uint32_t nodes_find_opset(Onnx__OperatorSetIdProto *const *imports, size_t n_imports,
			  const char *domain)
{
	uint32_t newest = 0;

	/* ONNX binds the nodes of a domain that is imported more than once to the newest. */
	for (size_t i = 0; i < n_imports; i++) {
		const char *imported = onnx_text(imports[i]->domain);
		const bool is_of_domain = is_default_domain(domain) ? is_default_domain(imported)
								    : !strcmp(domain, imported);

		if (is_of_domain && (uint32_t)imports[i]->version > newest)
			newest = (uint32_t)imports[i]->version;
	}
	return newest;
}

/* ---- Nodes ---- */

int nodes_append(struct resolver *resolver, struct node_list *list, const struct model_node *node)
{
	struct model_node *nodes =
		resolver_grow(resolver, list->nodes, list->n, &list->n_max, sizeof(*nodes));

	if (!nodes)
		return resolver_out_of_memory(resolver);
	list->nodes = nodes;
	for (uint32_t i = 0; i < node->n_out; i++) {
		if (node->out[i] == ONNX_ABSENT)
			continue;
		resolver->model->values[node->out[i]].producer = list->n;
		resolver->model->values[node->out[i]].list = list->id;
	}
	nodes[list->n++] = *node;
	return 0;
}

static int resolve_edges(struct resolver *resolver, const struct scope *scope,
			 const struct model_node *node, char *const *names, size_t n, bool uses,
			 uint32_t **ret)
{
	uint32_t *edges = mem_take(&resolver->model->mem, n * sizeof(*edges));
	int r;

	if (!edges)
		return resolver_out_of_memory(resolver);
	for (size_t i = 0; i < n; i++) {
		edges[i] = ONNX_ABSENT;
		if (!onnx_text(names[i])[0])
			continue;
		r = scope_find(resolver, scope, names[i], &edges[i]);
		if (r)
			return r;
		if (edges[i] == ONNX_NO_VALUE)
			return onnx_error(resolver->error, -EBADMSG,
					  "%s reads \"%s\", which nothing defines", NODE_TEXT(node),
					  names[i]);
		if (uses && edges[i] != ONNX_ABSENT)
			resolver->model->values[edges[i]].n_uses++;
	}
	*ret = edges;
	return 0;
}

/* What its steps are called: of a function's, the call comes first. */
static int name_node(struct resolver *resolver, struct model_node *node)
{
	const char *name = onnx_text(node->proto->name);

	node->name = name;
	if (!node->frame)
		return 0;
	if (!name[0])
		name = node_first_output(node->proto);
	node->name = mem_printf(&resolver->model->mem, "%s/%s", node->frame->name, name);
	return node->name ? 0 : resolver_out_of_memory(resolver);
}

static int resolve_node(struct resolver *resolver, const struct scope *scope,
			const Onnx__NodeProto *proto, uint32_t place)
{
	struct model_node node = {
		.proto = proto,
		.domain = is_default_domain(proto->domain) ? "" : proto->domain,
		.frame = scope->frame,
		.index = scope->frame ? scope->frame->index : place,
		.place = place,
		.n_in = (uint32_t)proto->n_input,
		.n_out = (uint32_t)proto->n_output,
		.n_reads = (uint32_t)proto->n_input,
	};
	const struct function *function = NULL;
	int r;

	if (++resolver->n_nodes > ONNX_MAX_NODES)
		return onnx_error(resolver->error, -EFBIG,
				  "with functions and branches, it has more than %u nodes",
				  ONNX_MAX_NODES);
	if (!onnx_text(proto->op_type)[0])
		return onnx_error(resolver->error, -EBADMSG, "%s has no operator",
				  NODE_TEXT(&node));
	r = name_node(resolver, &node);
	if (!r)
		r = functions_fill_attributes(resolver, scope, &node);
	if (!r)
		r = functions_find(resolver, proto, &function);
	/* A function's nodes read what the call does. */
	if (!r)
		r = resolve_edges(resolver, scope, &node, proto->input, proto->n_input, !function,
				  &node.in);
	if (!r)
		r = resolve_edges(resolver, scope, &node, proto->output, proto->n_output, false,
				  &node.out);
	if (r)
		return r;
	if (function)
		return functions_inline(resolver, scope, &node, function);
	node.opset = nodes_find_opset(scope->imports, scope->n_imports, node.domain);
	if (node.opset == 0 && !node.domain[0])
		return onnx_error(resolver->error, -EBADMSG,
				  "%s: the function does not say which opset it uses",
				  NODE_TEXT(&node));
	if (!node.domain[0] && !strcmp(proto->op_type, "If"))
		r = branches_resolve(resolver, scope, &node);
	return r ? r : nodes_append(resolver, scope->list, &node);
}

int nodes_resolve(struct resolver *resolver, const struct scope *scope,
		  Onnx__NodeProto *const *protos, size_t n)
{
	int r = 0;

	for (size_t i = 0; !r && i < n; i++)
		r = resolve_node(resolver, scope, protos[i], (uint32_t)i);
	return r;
}

/* ---- Order ---- */

enum visit { VISIT_NEW, VISIT_OPEN, VISIT_DONE };

struct walk {
	uint32_t node;
	uint32_t next_in;
};

/* Appends the nodes that @first needs, then itself, to @order. */
static int order_from(struct resolver *resolver, const struct node_list *list, uint32_t first,
		      uint8_t *visits, struct walk *stack, uint32_t *order, uint32_t *n_order)
{
	uint32_t depth = 0;

	if (visits[first] == VISIT_DONE)
		return 0;
	stack[depth++] = (struct walk){.node = first};
	visits[first] = VISIT_OPEN;
	while (depth > 0) {
		struct walk *top = &stack[depth - 1];
		const struct model_node *node = &list->nodes[top->node];
		const struct model_value *value;
		uint32_t producer = ONNX_NO_NODE, edge;

		if (top->next_in == node->n_reads) {
			visits[top->node] = VISIT_DONE;
			order[(*n_order)++] = top->node;
			depth--;
			continue;
		}
		edge = node->in[top->next_in++];
		value = edge == ONNX_ABSENT ? NULL : &resolver->model->values[edge];
		if (value && value->list == list->id)
			producer = value->producer;
		if (producer == ONNX_NO_NODE || visits[producer] == VISIT_DONE)
			continue;
		if (visits[producer] == VISIT_OPEN)
			return onnx_error(resolver->error, -EBADMSG,
					  "the graph is cyclic: %s reads \"%s\", which depends on "
					  "it",
					  NODE_TEXT(node), value->name);
		visits[producer] = VISIT_OPEN;
		stack[depth++] = (struct walk){.node = producer};
	}
	return 0;
}

int nodes_order(struct resolver *resolver, const struct node_list *list, struct model_node **ret)
{
	struct mem *mem = &resolver->model->mem;
	struct walk *stack = mem_take(mem, list->n * sizeof(*stack));
	uint32_t *order = mem_take(mem, list->n * sizeof(*order));
	uint8_t *visits = mem_zero(mem, list->n, 1);
	struct model_node *nodes = mem_take(mem, list->n * sizeof(*nodes));
	uint32_t n_order = 0;
	int r = 0;

	if (!stack || !order || !visits || !nodes)
		return resolver_out_of_memory(resolver);
	for (uint32_t i = 0; !r && i < list->n; i++)
		r = order_from(resolver, list, i, visits, stack, order, &n_order);
	if (r)
		return r;
	for (uint32_t i = 0; i < list->n; i++)
		nodes[i] = list->nodes[order[i]];
	*ret = nodes;
	return 0;
}
