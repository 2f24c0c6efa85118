#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What resolving a model's names needs
 *
 * Nodes come from bodies: the graph, the branches of an If, functions. Each body has a scope, which
 * says what a name is in it; nodes of a function go into the list of whoever calls it, a branch has
 * a list of its own.
 */
#include "libclient/onnx/model.h"

/* Opsets that a model or a function imports: they are looked through for each node. */
#define ONNX_MAX_IMPORTS 1024u

/* How deep functions may call each other and branches be in branches. */
#define RESOLVE_MAX_DEPTH 128u

/* A function of the file. */
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

struct resolver {
	struct rbk_onnx *model;
	struct rbk_error *error;
	uint32_t n_values_max;
	uint32_t n_nodes; /* of all bodies, as often as they are inlined, and calls */
	uint32_t n_lists;
	bool has_sparse;       /* sparse weights were met */
	uint64_t n_text_bytes; /* of functions, as often as they were inlined */
	size_t n_functions;
	const struct function *functions; /* sorted */
};

/* Nodes in the order in which they were met. */
struct node_list {
	uint32_t id; /* no other one's */
	uint32_t n, n_max;
	struct model_node *nodes;
};

/* What a branch reads of the bodies that it is in. */
struct captures {
	uint32_t n, n_max;
	uint32_t *values;
};

struct binding {
	const char *name;
	uint32_t value; /* or ONNX_ABSENT: an input that the call does not give */
};

struct scope {
	const struct scope *outer;       /* of a branch: whose names count as well */
	const struct model_frame *frame; /* NULL: the graph itself */
	Onnx__OperatorSetIdProto *const *imports;
	size_t n_imports;
	struct binding *bindings; /* by name */
	uint32_t n_bindings;
	struct captures *captures; /* of a branch */
	struct node_list *list;
};

/* All strings of a model may be absent. */
static inline const char *onnx_text(const char *string)
{
	return string ? string : "";
}

/* ---- scope.c ---- */

/* An array in the model's memory with room for one more. Return: NULL without memory. */
void *resolver_grow(struct resolver *resolver, void *items, uint32_t n, uint32_t *n_max,
		    size_t item_bytes);
int resolver_out_of_memory(struct resolver *resolver);

int scope_add_value(struct resolver *resolver, const char *name, uint32_t *ret);

/*
 * Sorts the bindings. Two of one name are an error, except an input of the graph and the
 * initializer that is its default, which become one.
 */
int scope_sort(struct resolver *resolver, struct scope *scope);
struct binding *scope_find_own(const struct scope *scope, const char *name);

/*
 * The value of @name, in the scope or those that it is in: then their branches capture it.
 * Return: 0, *ret is ONNX_NO_VALUE if nothing defines it; -EFBIG, -ENOMEM.
 */
int scope_find(struct resolver *resolver, const struct scope *scope, const char *name,
	       uint32_t *ret);

/* Defines the names of @graph's inputs, nodes and initializers, and decodes these. */
int scope_define(struct resolver *resolver, struct scope *scope, const Onnx__GraphProto *graph);

/* ---- nodes.c ---- */

/* "node 7 "scores" (MatMul)", and in what that is. */
#define NODE_TEXT_BYTES 400
#define NODE_TEXT(node) node_text(node, (char[NODE_TEXT_BYTES]){0})
const char *node_text(const struct model_node *node, char ret[NODE_TEXT_BYTES]);

/* The name of the first thing that it writes, or "". */
const char *node_first_output(const Onnx__NodeProto *proto);

/* The frame of the nodes in @node's place. */
struct model_frame model_frame_of(const struct model_node *node, const char *body,
				  const struct function *function);

/* Return: true if @domain is ONNX's own. */
bool nodes_is_default_domain(const char *domain);
/* Checks that each of @imports is a number of those that are read. */
int nodes_check_opsets(struct resolver *resolver, Onnx__OperatorSetIdProto *const *imports,
		       size_t n_imports, const char *whose);
uint32_t nodes_find_opset(Onnx__OperatorSetIdProto *const *imports, size_t n_imports,
			  const char *domain);

/* Appends @node to @list, as what writes its outputs. */
int nodes_append(struct resolver *resolver, struct node_list *list, const struct model_node *node);

/* Puts the list's nodes in an order in which they can run, into @ret. */
int nodes_order(struct resolver *resolver, const struct node_list *list, struct model_node **ret);

/* ---- function.c ---- */

/* Reads what functions the file has. */
int functions_read(struct resolver *resolver);
/* Return: NULL if the file has no such one: it is an operator. */
int functions_find(struct resolver *resolver, const Onnx__NodeProto *proto,
		   const struct function **ret);
/* Return: true if @function has an attribute of that name. */
bool function_has_attribute(const struct function *function, const char *name);
/*
 * Gives @node attributes without references: those that refer to the attributes of the function
 * that it is in have their values, or are left out.
 */
int functions_fill_attributes(struct resolver *resolver, const struct scope *scope,
			      struct model_node *node);

/* ---- resolve.c ---- */

/* Appends @protos to the scope's list, with calls and branches resolved. */
int nodes_resolve(struct resolver *resolver, const struct scope *scope,
		  Onnx__NodeProto *const *protos, size_t n);
