#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Declarations for resolving a model's names
 *
 * Nodes come from bodies: the graph, the branches of an If, functions. Each body has a scope that
 * maps names to values. Nodes of a function are appended to the list of the caller; a branch has
 * its own list.
 */
#include "libclient/onnx/model.h"

/* Limit of imported opsets of a model or a function: they are searched for each node. */
#define ONNX_MAX_IMPORTS 1024u

/* Limit of nesting of functions and branches. */
#define RESOLVE_MAX_DEPTH 128u

/* A function of the file. */
struct function {
	const char *domain; /* "" is the default domain */
	const char *name;
	const char *overload;
	const Onnx__FunctionProto *proto;
	Onnx__AttributeProto *const *defaults;
	size_t n_defaults;
	uint64_t n_bytes;       /* of all its strings */
	uint64_t n_attr_bytes;  /* of the names of its attributes */
	const char *opset_text; /* for sentences: the opset of function "my.f" */
	const char *body;       /* function "my.f", the end of opset_text */
};

struct resolver {
	struct rbk_onnx *model;
	struct rbk_error *error;
	uint32_t n_values_max;
	uint32_t n_nodes; /* of all bodies, counted per inlining, and calls */
	uint32_t n_lists;
	bool has_sparse;       /* a sparse initializer occurred */
	uint64_t n_text_bytes; /* of functions, counted per inlining */
	size_t n_functions;
	const struct function *functions; /* sorted */
};

/* Nodes in the order in which they are resolved. */
struct node_list {
	uint32_t id; /* unique in the model */
	uint32_t n, n_max;
	struct model_node *nodes;
};

/* Values of the surrounding bodies that a branch reads. */
struct captures {
	uint32_t n, n_max;
	uint32_t *values;
};

struct binding {
	const char *name;
	uint32_t value; /* ONNX_ABSENT: an input that the call omits */
};

struct scope {
	const struct scope *outer;       /* of a branch: the scope whose names it sees, too */
	const struct model_frame *frame; /* NULL: the graph itself */
	Onnx__OperatorSetIdProto *const *imports;
	size_t n_imports;
	struct binding *bindings; /* sorted by name */
	uint32_t n_bindings;
	struct captures *captures; /* of a branch; else NULL */
	struct node_list *list;
};

/* Return @string, or "" if it is NULL: all strings of a model may be absent. */
static inline const char *onnx_text(const char *string)
{
	return string ? string : "";
}

/* ---- scope.c ---- */

/* Return an array of the model's memory with room for one more item; NULL without memory. */
void *resolver_grow(struct resolver *resolver, void *items, uint32_t n, uint32_t *n_max,
		    size_t item_bytes);
int resolver_out_of_memory(struct resolver *resolver);

int scope_add_value(struct resolver *resolver, const char *name, uint32_t *ret);

/*
 * Sort the bindings. Two bindings of one name are an error, except an input of the graph and the
 * initializer that is its default: these become one binding.
 */
int scope_sort(struct resolver *resolver, struct scope *scope);
struct binding *scope_find_own(const struct scope *scope, const char *name);

/*
 * Find the value of @name in the scope or the scopes around it; in the latter case each branch in
 * between captures the value.
 * Return: 0, *ret is ONNX_NO_VALUE if no scope defines the name; -EFBIG, -ENOMEM.
 */
int scope_find(struct resolver *resolver, const struct scope *scope, const char *name,
	       uint32_t *ret);

/* Define the names of @graph's inputs, nodes and initializers, and decode the initializers. */
int scope_define(struct resolver *resolver, struct scope *scope, const Onnx__GraphProto *graph);

/* ---- nodes.c ---- */

/* Buffer of a sentence part such as "node 7 "scores" (MatMul)", with the node's frames. */
#define NODE_TEXT_BYTES 400
#define NODE_TEXT(node) node_text(node, (char[NODE_TEXT_BYTES]){0})
const char *node_text(const struct model_node *node, char ret[NODE_TEXT_BYTES]);

/* Return the name of the node's first output that is present, or "". */
const char *node_first_output(const Onnx__NodeProto *proto);

/* Return the frame of the nodes that replace @node. */
struct model_frame model_frame_of(const struct model_node *node, const char *body,
				  const struct function *function);

/* Return: true if @domain is ONNX's own. */
bool nodes_is_default_domain(const char *domain);
/* Check that the version of each of @imports is supported. */
int nodes_check_opsets(struct resolver *resolver, Onnx__OperatorSetIdProto *const *imports,
		       size_t n_imports, const char *whose);
uint32_t nodes_find_opset(Onnx__OperatorSetIdProto *const *imports, size_t n_imports,
			  const char *domain);

/* Append @node to @list, as the producer of its outputs. */
int nodes_append(struct resolver *resolver, struct node_list *list, const struct model_node *node);

/* Sort the list's nodes into an order in which they can run, into @ret. */
int nodes_order(struct resolver *resolver, const struct node_list *list, struct model_node **ret);

/* ---- function.c ---- */

/* Read the functions of the file. */
int functions_read(struct resolver *resolver);
/*
 * Find the function that a node calls. Return: 0, *ret is NULL if there is none: the node is an
 * operator.
 */
int functions_find(struct resolver *resolver, const Onnx__NodeProto *proto,
		   const struct function **ret);
/* Return: true if @function has an attribute of that name. */
bool function_has_attribute(const struct function *function, const char *name);
/*
 * Resolve references in the attributes of @node, which lies in a function. A reference to an
 * attribute of the function is replaced by its value, or left out.
 */
int functions_fill_attributes(struct resolver *resolver, const struct scope *scope,
			      struct model_node *node);

/* ---- resolve.c ---- */

/* Append @protos to the scope's list, with calls and branches resolved. */
int nodes_resolve(struct resolver *resolver, const struct scope *scope,
		  Onnx__NodeProto *const *protos, size_t n);
