/* SPDX-License-Identifier: MIT */
/*
 * Resolving the nodes of bodies: the graph's, a function's, a branch's
 *
 * Names that a node reads and writes are resolved to values. A call is replaced by the nodes of its
 * function, which is another body. An If has two graphs that read names of the bodies around them.
 * Both are resolved, so that either can replace the If when its condition becomes known, at
 * compilation (canon.c). Values that they read from the bodies around them must be produced before
 * the If.
 */
#include <errno.h>
#include <string.h>

#include "libclient/onnx/resolve.h"

/*
 * Limit of the bytes of functions that inlining reads, summed over calls: names are sorted and
 * searched.
 */
#define FUNCTION_TEXT_BYTES (1ull << 30)

/* ---- Calls: inlining functions ---- */

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
				  "%s has %u input%s and %u output%s, but %s has %zu and %zu",
				  NODE_TEXT(call), call->n_in, onnx_plural(call->n_in), call->n_out,
				  onnx_plural(call->n_out), function->body, proto->n_input,
				  proto->n_output);
	for (size_t i = 0; i < call->proto->n_attribute; i++)
		if (!function_has_attribute(function, call->proto->attribute[i]->name))
			return onnx_error(resolver->error, -EBADMSG,
					  "%s has attribute \"%s\", which %s does not have",
					  NODE_TEXT(call), call->proto->attribute[i]->name,
					  function->body);
	return nodes_check_opsets(resolver, proto->opset_import, proto->n_opset_import,
				  function->opset_text);
}

/*
 * Charge the bytes of a call. A small file could otherwise cause much work: long names, or many
 * attributes, in each of many calls.
 */
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

/* Bind inputs to the values that the call gives; outputs of nodes have no values yet. */
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
 * Bind each output of a node to an output of the call, or to a new value. A function's output that
 * is also an input, or another output, must be copied: @copied has a flag for each output.
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
					  "no node writes output \"%s\" of %s", name,
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

/* Append an Identity that writes output @i of @call from the function's value @name. */
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
				  "%s: output %u is an input of the function that the node does "
				  "not give",
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

static int inline_function(struct resolver *resolver, const struct scope *scope,
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

/* ---- Branches ---- */

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
		return onnx_error(resolver->error, -EBADMSG,
				  "%s has %u output%s, but its %s has %zu", NODE_TEXT(node),
				  node->n_out, onnx_plural(node->n_out), which, graph->n_output);
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
					  "%s: no node writes output %zu, \"%s\", of its %s",
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

static int resolve_branches(struct resolver *resolver, const struct scope *scope,
			    struct model_node *node)
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

/* ---- Nodes ---- */

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
					  "%s reads \"%s\", which no node, input or initializer "
					  "defines",
					  NODE_TEXT(node), names[i]);
		if (uses && edges[i] != ONNX_ABSENT)
			resolver->model->values[edges[i]].n_uses++;
	}
	*ret = edges;
	return 0;
}

/* Set the name for the node's steps: in a function or branch the frame's name comes first. */
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
		.domain = nodes_is_default_domain(proto->domain) ? "" : proto->domain,
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
	/* For a call, only the function's nodes count as reading the inputs. */
	if (!r)
		r = resolve_edges(resolver, scope, &node, proto->input, proto->n_input, !function,
				  &node.in);
	if (!r)
		r = resolve_edges(resolver, scope, &node, proto->output, proto->n_output, false,
				  &node.out);
	if (r)
		return r;
	if (function)
		return inline_function(resolver, scope, &node, function);
	node.opset = nodes_find_opset(scope->imports, scope->n_imports, node.domain);
	if (node.opset == 0 && !node.domain[0])
		return onnx_error(resolver->error, -EBADMSG,
				  "%s: the function does not say which opset it uses",
				  NODE_TEXT(&node));
	if (!node.domain[0] && !strcmp(proto->op_type, "If"))
		r = resolve_branches(resolver, scope, &node);
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
