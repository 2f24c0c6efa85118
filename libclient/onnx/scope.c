/* SPDX-License-Identifier: MIT */
/*
 * Scopes: from names to values
 *
 * In a body each name is defined once: by an input, by an initializer, or as the output of a node.
 * An initializer may also be an input of the graph: it is then that input's default. All
 * definitions are sorted by name. Duplicates are thereby found, and a lookup has the same cost
 * whatever names a file uses. Branches also see the names of the bodies around them, functions do
 * not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/onnx/resolve.h"

/* ---- Memory ---- */

void *resolver_grow(struct resolver *resolver, void *items, uint32_t n, uint32_t *n_max,
		    size_t item_bytes)
{
	uint32_t n_new = *n_max ? *n_max * 2 : 16;
	void *place;

	if (n < *n_max)
		return items;
	place = mem_take(&resolver->model->mem, n_new * item_bytes);
	if (!place)
		return NULL;
	if (n > 0)
		memcpy(place, items, n * item_bytes);
	*n_max = n_new;
	return place;
}

int resolver_out_of_memory(struct resolver *resolver)
{
	return onnx_error(resolver->error, mem_error(&resolver->model->mem),
			  "the model needs too much memory");
}

/* Memory for sparse initializers, in addition to the limit by the file's size. */
#define SPARSE_BYTES (256ull << 20)

int scope_add_value(struct resolver *resolver, const char *name, uint32_t *ret)
{
	struct rbk_onnx *model = resolver->model;
	struct model_value *values;

	if (model->n_values >= ONNX_MAX_VALUES)
		return onnx_error(resolver->error, -EFBIG,
				  "with functions and branches, it has more than %u values",
				  ONNX_MAX_VALUES);
	values = resolver_grow(resolver, model->values, model->n_values, &resolver->n_values_max,
			       sizeof(*values));
	if (!values)
		return resolver_out_of_memory(resolver);
	model->values = values;
	values[model->n_values] = (struct model_value){.name = name, .producer = ONNX_NO_NODE};
	*ret = model->n_values++;
	return 0;
}

/* ---- Looking up ---- */

static int compare_bindings(const void *a, const void *b)
{
	return strcmp(((const struct binding *)a)->name, ((const struct binding *)b)->name);
}

static int compare_name(const void *name, const void *binding)
{
	return strcmp(name, ((const struct binding *)binding)->name);
}

struct binding *scope_find_own(const struct scope *scope, const char *name)
{
	if (scope->n_bindings == 0)
		return NULL;
	return bsearch(name, scope->bindings, scope->n_bindings, sizeof(*scope->bindings),
		       compare_name);
}

static int capture(struct resolver *resolver, struct captures *captures, uint32_t value)
{
	uint32_t *values = resolver_grow(resolver, captures->values, captures->n, &captures->n_max,
					 sizeof(*values));

	if (!values)
		return resolver_out_of_memory(resolver);
	captures->values = values;
	values[captures->n++] = value;
	return 0;
}

int scope_find(struct resolver *resolver, const struct scope *scope, const char *name,
	       uint32_t *ret)
{
	const struct scope *at = scope;
	struct binding *binding;
	int r = 0;

	*ret = ONNX_NO_VALUE;
	while (!(binding = scope_find_own(at, name))) {
		if (!at->outer)
			return 0;
		at = at->outer;
	}
	*ret = binding->value;
	for (; !r && scope != at && *ret != ONNX_ABSENT; scope = scope->outer)
		r = capture(resolver, scope->captures, *ret);
	return r;
}

/* ---- Defining ---- */

static int defined_twice(struct resolver *resolver, const struct scope *scope, const char *name)
{
	return onnx_error(resolver->error, -EBADMSG,
			  "two values have the name \"%s\"%s%s: each name must be defined once",
			  name, scope->frame ? " in " : "", scope->frame ? scope->frame->body : "");
}

/*
 * Merge an initializer with the input whose default it is. Return: false: the two are different
 * things of one name.
 */
static bool merge(struct rbk_onnx *model, struct binding *into, const struct binding *from)
{
	struct model_value *input = &model->values[into->value];
	struct model_value *constant = &model->values[from->value];

	if (!input->is_input) {
		struct model_value *other = input;

		input = constant;
		constant = other;
	}
	if (!input->is_input || input->initializer || !constant->initializer)
		return false;
	input->initializer = constant->initializer;
	constant->initializer = NULL;
	constant->name = "";
	into->value = (uint32_t)(input - model->values);
	return true;
}

int scope_sort(struct resolver *resolver, struct scope *scope)
{
	uint32_t n = 0;

	if (scope->n_bindings == 0)
		return 0;
	qsort(scope->bindings, scope->n_bindings, sizeof(*scope->bindings), compare_bindings);
	for (uint32_t i = 0; i < scope->n_bindings; i++) {
		const struct binding *binding = &scope->bindings[i];

		if (n == 0 || compare_bindings(&scope->bindings[n - 1], binding))
			scope->bindings[n++] = *binding;
		else if (scope->frame || !merge(resolver->model, &scope->bindings[n - 1], binding))
			return defined_twice(resolver, scope, binding->name);
	}
	scope->n_bindings = n;
	return 0;
}

static int bind_new(struct resolver *resolver, struct scope *scope, const char *name)
{
	struct binding *binding = &scope->bindings[scope->n_bindings];
	int r;

	binding->name = name;
	r = scope_add_value(resolver, name, &binding->value);
	if (!r)
		scope->n_bindings++;
	return r;
}

/* Return initializer @i, counting dense ones, then sparse ones. */
static const Onnx__TensorProto *find_constant(const Onnx__GraphProto *graph, size_t i)
{
	return i < graph->n_initializer
		       ? graph->initializer[i]
		       : graph->sparse_initializer[i - graph->n_initializer]->values;
}

static int bind_constants(struct resolver *resolver, struct scope *scope,
			  const Onnx__GraphProto *graph, struct constant *constants)
{
	int r;

	for (size_t i = 0; i < graph->n_initializer + graph->n_sparse_initializer; i++) {
		const Onnx__TensorProto *proto = find_constant(graph, i);
		const char *name = proto ? onnx_text(proto->name) : "";

		if (!name[0])
			return onnx_error(resolver->error, -EBADMSG, "initializer %zu has no name",
					  i);
		r = bind_new(resolver, scope, name);
		if (r)
			return r;
		resolver->model->values[resolver->model->n_values - 1].initializer = &constants[i];
	}
	return 0;
}

/* Return true if the scope lies in a function, and is resolved once per call. */
static bool is_in_function(const struct scope *scope)
{
	for (const struct model_frame *frame = scope->frame; frame; frame = frame->outer)
		if (frame->function)
			return true;
	return false;
}

/*
 * Count the bytes of weights, in proportion to which compiling may take memory. Weights in a
 * function are not counted, and decoding them does not raise the limit of memory: a function may be
 * called many times, while the file has its weights once.
 */
static int count_weights(struct resolver *resolver, const struct scope *scope, uint64_t n_bytes,
			 uint64_t max_bytes)
{
	struct rbk_onnx *model = resolver->model;

	if (is_in_function(scope)) {
		mem_limit(&model->mem, max_bytes);
		return 0;
	}
	model->n_weight_bytes += n_bytes;
	if (model->n_weight_bytes > ONNX_MAX_WEIGHT_BYTES)
		return onnx_error(resolver->error, -EFBIG,
				  "the initializers have more than 64 GiB");
	return 0;
}

static int decode_constants(struct resolver *resolver, const struct scope *scope,
			    const Onnx__GraphProto *graph, struct constant *constants)
{
	struct rbk_onnx *model = resolver->model;
	int r;

	if (graph->n_sparse_initializer > 0 && !resolver->has_sparse) {
		model->mem.max_bytes += SPARSE_BYTES;
		resolver->has_sparse = true;
	}
	for (size_t i = 0; i < graph->n_initializer + graph->n_sparse_initializer; i++) {
		const uint64_t max_bytes = model->mem.max_bytes;

		if (i < graph->n_initializer)
			r = constant_decode(&model->mem, &model->external, graph->initializer[i],
					    "initializer", &constants[i], resolver->error);
		else
			r = sparse_decode(&model->mem, &model->external,
					  graph->sparse_initializer[i - graph->n_initializer],
					  "sparse initializer", &constants[i], resolver->error);
		if (!r)
			r = count_weights(resolver, scope, constants[i].n_bytes, max_bytes);
		if (r)
			return r;
	}
	return 0;
}

int scope_define(struct resolver *resolver, struct scope *scope, const Onnx__GraphProto *graph)
{
	struct rbk_onnx *model = resolver->model;
	const size_t n_constants = graph->n_initializer + graph->n_sparse_initializer;
	uint64_t n = graph->n_input + n_constants;
	struct constant *constants;
	int r = 0;

	for (size_t i = 0; i < graph->n_node; i++)
		n += graph->node[i]->n_output;
	if (n > ONNX_MAX_VALUES)
		return onnx_error(resolver->error, -EFBIG,
				  "the graph has %llu values, expected at most %u",
				  (unsigned long long)n, ONNX_MAX_VALUES);
	scope->bindings = mem_take(&model->mem, n * sizeof(*scope->bindings));
	constants = mem_zero(&model->mem, n_constants, sizeof(*constants));
	if (!model->values) {
		model->values = mem_take(&model->mem, n * sizeof(*model->values));
		resolver->n_values_max = (uint32_t)n;
	}
	if (!scope->bindings || !constants || !model->values)
		return resolver_out_of_memory(resolver);

	for (size_t i = 0; !r && i < graph->n_input; i++) {
		if (!onnx_text(graph->input[i]->name)[0])
			return onnx_error(resolver->error, -EBADMSG, "input %zu has no name", i);
		r = bind_new(resolver, scope, graph->input[i]->name);
		if (!r)
			model->values[model->n_values - 1].is_input = true;
	}
	for (size_t i = 0; i < graph->n_node; i++)
		for (size_t j = 0; !r && j < graph->node[i]->n_output; j++)
			if (onnx_text(graph->node[i]->output[j])[0])
				r = bind_new(resolver, scope, graph->node[i]->output[j]);
	if (!r)
		r = bind_constants(resolver, scope, graph, constants);
	if (!r)
		r = scope_sort(resolver, scope);
	if (!r)
		r = decode_constants(resolver, scope, graph, constants);
	return r;
}
