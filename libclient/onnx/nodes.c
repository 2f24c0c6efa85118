/* SPDX-License-Identifier: MIT */
/*
 * Nodes, and an order in which they can run
 *
 * The nodes of a body form a list (resolve.c); an If has a list for each of its branches. A list is
 * sorted so that each node follows the nodes that it reads from, by an iterative depth-first walk
 * in the file's order. Files are nearly always sorted already, and their order then stays. If the
 * walk meets a node that it has entered but not left, the graph is cyclic.
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

bool nodes_is_default_domain(const char *domain)
{
	return !onnx_text(domain)[0] || !strcmp(domain, "ai.onnx");
}

int nodes_check_opsets(struct resolver *resolver, Onnx__OperatorSetIdProto *const *imports,
		       size_t n_imports, const char *whose)
{
	for (size_t i = 0; i < n_imports; i++) {
		const char *domain = onnx_text(imports[i]->domain);
		const long long version = imports[i]->version;

		if (nodes_is_default_domain(domain) && (version < 1 || version > ONNX_MAX_OPSET))
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
		const bool is_of_domain = nodes_is_default_domain(domain)
						  ? nodes_is_default_domain(imported)
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

/* ---- Order ---- */

enum visit { VISIT_NEW, VISIT_OPEN, VISIT_DONE };

struct walk {
	uint32_t node;
	uint32_t next_in;
};

/* Append the nodes that @first depends on, then @first, to @order. */
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
					  "that node's output",
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
