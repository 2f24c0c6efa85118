/* SPDX-License-Identifier: MIT */
/*
 * Branches
 *
 * An If has two graphs, which read what is around them by name. Both are resolved here, so that
 * either can be put in the place of the If once its condition is known, when the model is compiled
 * (canon-flow.c). What they read of the bodies around them must come before the If.
 */
#include <errno.h>
#include <string.h>

#include "libclient/onnx/resolve.h"

static const Onnx__GraphProto *find_graph(const Onnx__NodeProto *proto, const char *name)
{
	for (size_t i = 0; i < proto->n_attribute; i++)
		if (!strcmp(proto->attribute[i]->name, name))
			return proto->attribute[i]->g;
	return NULL;
}

static int check_branch(struct resolver *resolver, const struct model_node *node, const char *which,
			const Onnx__GraphProto *graph)
{
	if (!graph)
		return onnx_error(resolver->error, -EBADMSG, "%s has no %s", NODE_TEXT(node),
				  which);
	if (node->frame && node->frame->depth >= RESOLVE_MAX_DEPTH)
		return onnx_error(resolver->error, -EFBIG,
				  "functions and branches are more than %u deep: %s",
				  RESOLVE_MAX_DEPTH, NODE_TEXT(node));
	if (graph->n_input > 0)
		return onnx_error(resolver->error, -EBADMSG,
				  "%s: its %s has %zu input%s, expected none", NODE_TEXT(node),
				  which, graph->n_input, onnx_plural(graph->n_input));
	if (graph->n_output != node->n_out)
		return onnx_error(resolver->error, -EBADMSG, "%s has %u output%s, its %s has %zu",
				  NODE_TEXT(node), node->n_out, onnx_plural(node->n_out), which,
				  graph->n_output);
	return 0;
}

static int resolve_outputs(struct resolver *resolver, const struct scope *scope,
			   const struct model_node *node, const Onnx__GraphProto *graph,
			   uint32_t *outputs)
{
	int r;

	for (size_t i = 0; i < graph->n_output; i++) {
		const char *name = onnx_text(graph->output[i]->name);

		r = scope_find(resolver, scope, name, &outputs[i]);
		if (r)
			return r;
		if (outputs[i] == ONNX_NO_VALUE || outputs[i] == ONNX_ABSENT)
			return onnx_error(resolver->error, -EBADMSG,
					  "%s: output %zu, \"%s\", of its %s is written by nothing",
					  NODE_TEXT(node), i, name, scope->frame->body);
		resolver->model->values[outputs[i]].n_uses++;
	}
	return 0;
}

static int resolve_branch(struct resolver *resolver, const struct scope *outer,
			  const struct model_node *node, const char *which,
			  struct captures *captures, struct model_branch *ret)
{
	const Onnx__GraphProto *graph = find_graph(node->proto, which);
	struct mem *mem = &resolver->model->mem;
	struct model_frame *frame = mem_take(mem, sizeof(*frame));
	struct node_list list = {.id = resolver->n_lists++};
	struct scope scope = {
		.outer = outer,
		.frame = frame,
		.imports = outer->imports,
		.n_imports = outer->n_imports,
		.captures = captures,
		.list = &list,
	};
	int r;

	ret->outputs = mem_take(mem, node->n_out * sizeof(*ret->outputs));
	if (!frame || !ret->outputs)
		return resolver_out_of_memory(resolver);
	*frame = model_frame_of(node, which, NULL);
	r = check_branch(resolver, node, which, graph);
	if (!r)
		r = scope_define(resolver, &scope, graph);
	if (!r)
		r = nodes_resolve(resolver, &scope, graph->node, graph->n_node);
	if (!r)
		r = nodes_order(resolver, &list, &ret->nodes);
	if (!r)
		r = resolve_outputs(resolver, &scope, node, graph, ret->outputs);
	ret->n_nodes = list.n;
	return r;
}

int branches_resolve(struct resolver *resolver, const struct scope *scope, struct model_node *node)
{
	struct mem *mem = &resolver->model->mem;
	struct model_branch *branches = mem_zero(mem, 2, sizeof(*branches));
	struct captures captures = {0};
	uint32_t *in;
	int r;

	if (!branches)
		return resolver_out_of_memory(resolver);
	r = resolve_branch(resolver, scope, node, "then_branch", &captures, &branches[0]);
	if (!r)
		r = resolve_branch(resolver, scope, node, "else_branch", &captures, &branches[1]);
	if (r)
		return r;
	in = mem_take(mem, (node->n_in + (uint64_t)captures.n) * sizeof(*in));
	if (!in)
		return resolver_out_of_memory(resolver);
	if (node->n_in > 0)
		memcpy(in, node->in, node->n_in * sizeof(*in));
	if (captures.n > 0)
		memcpy(in + node->n_in, captures.values, captures.n * sizeof(*in));
	node->in = in;
	node->n_reads = node->n_in + captures.n;
	node->branches = branches;
	return 0;
}
