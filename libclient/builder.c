/* SPDX-License-Identifier: MIT */
/*
 * The plan builder
 *
 * A builder collects tensors, nodes and attributes, and checks them as far as possible without the
 * operator catalogue, which only the broker has: names, ranks, sizes, kinds, and that every node
 * reads tensors that exist by then. The first mistake is kept with its sentence, and everything
 * after it is ignored. A program therefore need not check each return value, and the sentence names
 * the cause and not its consequences.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/private.h"
#include "shm/dtype.h"
#include "shm/plan-wire.h"

/* The wire format has 16 bits for a node's number of attributes. */
#define BUILDER_ATTRS_MAX 65535u

static const char *const kind_names[RBK_TENSOR_KIND_COUNT] = {
	[RBK_TENSOR_INPUT] = "an input",           [RBK_TENSOR_OUTPUT] = "an output",
	[RBK_TENSOR_CONSTANT] = "a constant",      [RBK_TENSOR_STATE] = "a state",
	[RBK_TENSOR_SCRATCH] = "a scratch tensor",
};

__attribute__((__format__(__printf__, 3, 4))) static void builder_fail(struct rbk_builder *builder,
								       int r, const char *format,
								       ...)
{
	va_list args;

	if (builder->error)
		return;
	builder->error = r;
	va_start(args, format);
	vsnprintf(builder->text, sizeof(builder->text), format, args);
	va_end(args);
}

/*
 * Append @n items of @item_bytes. Return: the first of them; NULL without memory, which becomes the
 * builder's error.
 */
static void *array_add(struct rbk_builder *builder, struct builder_array *array, size_t n,
		       size_t item_bytes)
{
	if (n > array->n_max - array->n) {
		size_t n_max = array->n_max * 2 > array->n + n ? array->n_max * 2 : array->n + n;
		void *items = reallocarray(array->items, n_max, item_bytes);

		if (!items) {
			builder_fail(builder, -ENOMEM, "out of memory");
			return NULL;
		}
		array->items = items;
		array->n_max = n_max;
	}
	array->n += n;
	return (char *)array->items + (array->n - n) * item_bytes;
}

static struct builder_tensor *tensors_of(const struct rbk_builder *builder)
{
	return builder->tensors.items;
}

/* Hash a name with FNV-1a, so that a search among thousands of names compares few strings. */
static uint32_t name_hash(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return hash;
}

/* Check @name. Return: NULL, or a phrase that describes its fault. */
static const char *name_trouble(const char *name, bool may_be_empty)
{
	if (!name || (!name[0] && !may_be_empty))
		return "is empty";
	if (strlen(name) >= RBK_NAME_BYTES)
		return "is longer than 31 bytes";
	for (; *name; name++)
		if (*name < 0x20 || *name > 0x7e)
			return "is not printable ASCII";
	return NULL;
}

_Static_assert(RBK_NAME_BYTES == 32, "name_trouble() says so");

RBK_EXPORT struct rbk_builder *rbk_builder_new(const char *name)
{
	struct rbk_builder *builder = calloc(1, sizeof(*builder));
	const char *trouble;

	if (!builder)
		return NULL;
	trouble = name_trouble(name, true);
	if (trouble)
		builder_fail(builder, -EINVAL, "the plan's name %s", trouble);
	else
		strcpy(builder->name, name);
	return builder;
}

RBK_EXPORT struct rbk_builder *rbk_builder_free(struct rbk_builder *builder)
{
	if (!builder)
		return NULL;
	free(builder->tensors.items);
	free(builder->nodes.items);
	free(builder->attrs.items);
	free(builder->edges.items);
	free(builder->blob.items);
	free(builder);
	return NULL;
}

RBK_EXPORT const char *rbk_builder_error(const struct rbk_builder *builder)
{
	if (!builder)
		return "out of memory";
	return builder->error ? builder->text : NULL;
}

/* ---- Tensors ---- */

/* Set the shape and the size. Return: false after a mistake. */
static bool tensor_set_shape(struct rbk_builder *builder, struct builder_tensor *tensor,
			     enum rbk_dtype dtype, int rank, const uint32_t *dims)
{
	uint64_t n_bytes = dtype_bytes(dtype);
	bool may_infer = tensor->kind == RBK_TENSOR_OUTPUT || tensor->kind == RBK_TENSOR_SCRATCH;

	if (n_bytes == 0) {
		builder_fail(builder, -EINVAL, "tensor \"%s\": there is no element type %u",
			     tensor->name, (unsigned int)dtype);
		return false;
	}
	tensor->dtype = (uint8_t)dtype;
	if (rank == RBK_RANK_INFERRED && may_infer) {
		tensor->inferred = true;
		return true;
	}
	if (rank < 0 || rank > (int)RBK_MAX_RANK || (rank > 0 && !dims)) {
		builder_fail(builder, -EINVAL,
			     "tensor \"%s\": %s cannot have rank %d; ranks are 0 to %u%s",
			     tensor->name, kind_names[tensor->kind], rank, RBK_MAX_RANK,
			     rank > 0 && !dims ? ", with dimensions" : "");
		return false;
	}

	tensor->rank = (uint8_t)rank;
	tensor->bytes = n_bytes;
	for (int i = 0; i < rank; i++) {
		if (dims[i] == RBK_DIM_COUNT && i == 0 && tensor->kind != RBK_TENSOR_CONSTANT) {
			tensor->dynamic = true;
			continue;
		}
		if (dims[i] == RBK_DIM_COUNT) {
			builder_fail(builder, -EINVAL,
				     "tensor \"%s\": dimension %d cannot be RBK_DIM_COUNT; only "
				     "dimension 0 of a tensor that is not a constant can",
				     tensor->name, i);
			return false;
		}
		if (dims[i] == 0) {
			builder_fail(builder, -EINVAL, "tensor \"%s\": dimension %d is 0",
				     tensor->name, i);
			return false;
		}
		tensor->dims[i] = dims[i];
		if (tensor->bytes > (1ull << RBK_REF_OFFSET_BITS) / dims[i]) {
			builder_fail(builder, -EINVAL,
				     "tensor \"%s\" is larger than the largest arena",
				     tensor->name);
			return false;
		}
		tensor->bytes *= dims[i];
	}
	return true;
}

static unsigned int add_tensor(struct rbk_builder *builder, enum rbk_tensor_kind kind,
			       const char *name, enum rbk_dtype dtype, int rank,
			       const uint32_t *dims, const struct rbk_arena *arena, uint64_t offset)
{
	struct builder_tensor tensor = {
		.kind = (uint8_t)kind, .arena = (struct rbk_arena *)arena, .offset = offset};
	bool is_bound = kind != RBK_TENSOR_CONSTANT && kind != RBK_TENSOR_SCRATCH;
	struct builder_tensor *place;
	const char *trouble;

	if (!builder || builder->error)
		return RBK_TENSOR_NONE;
	trouble = name_trouble(name, false);
	if (trouble) {
		builder_fail(builder, -EINVAL, "the name of tensor %zu, %s, %s", builder->tensors.n,
			     kind_names[kind], trouble);
		return RBK_TENSOR_NONE;
	}
	strcpy(tensor.name, name);
	tensor.name_hash = name_hash(name);
	for (size_t i = 0; i < builder->tensors.n; i++)
		if (tensors_of(builder)[i].name_hash == tensor.name_hash &&
		    !strcmp(tensors_of(builder)[i].name, name)) {
			builder_fail(builder, -EINVAL, "two tensors have the name \"%s\"", name);
			return RBK_TENSOR_NONE;
		}
	if (builder->tensors.n >= RBK_MAX_PLAN_TENSORS) {
		builder_fail(builder, -EINVAL, "a plan has at most %u tensors",
			     RBK_MAX_PLAN_TENSORS);
		return RBK_TENSOR_NONE;
	}
	if (is_bound && builder->n_refs >= RBK_MAX_REFS) {
		builder_fail(builder, -EINVAL,
			     "tensor \"%s\": a plan has at most %u inputs, outputs and states",
			     name, RBK_MAX_REFS);
		return RBK_TENSOR_NONE;
	}
	if (!tensor_set_shape(builder, &tensor, dtype, rank, dims))
		return RBK_TENSOR_NONE;

	place = array_add(builder, &builder->tensors, 1, sizeof(*place));
	if (!place)
		return RBK_TENSOR_NONE;
	*place = tensor;
	builder->n_refs += is_bound;
	builder->dynamic |= tensor.dynamic;
	return (unsigned int)builder->tensors.n - 1;
}

RBK_EXPORT unsigned int rbk_builder_input(struct rbk_builder *builder, const char *name,
					  enum rbk_dtype dtype, int rank, const uint32_t *dims)
{
	return add_tensor(builder, RBK_TENSOR_INPUT, name, dtype, rank, dims, NULL, 0);
}

RBK_EXPORT unsigned int rbk_builder_output(struct rbk_builder *builder, const char *name,
					   enum rbk_dtype dtype, int rank, const uint32_t *dims)
{
	return add_tensor(builder, RBK_TENSOR_OUTPUT, name, dtype, rank, dims, NULL, 0);
}

RBK_EXPORT unsigned int rbk_builder_state(struct rbk_builder *builder, const char *name,
					  enum rbk_dtype dtype, int rank, const uint32_t *dims)
{
	return add_tensor(builder, RBK_TENSOR_STATE, name, dtype, rank, dims, NULL, 0);
}

RBK_EXPORT unsigned int rbk_builder_scratch(struct rbk_builder *builder, const char *name,
					    enum rbk_dtype dtype, int rank, const uint32_t *dims)
{
	return add_tensor(builder, RBK_TENSOR_SCRATCH, name, dtype, rank, dims, NULL, 0);
}

RBK_EXPORT unsigned int rbk_builder_constant(struct rbk_builder *builder, const char *name,
					     enum rbk_dtype dtype, int rank, const uint32_t *dims,
					     const struct rbk_arena *arena, uint64_t offset)
{
	const struct builder_tensor *tensor;
	unsigned int id;

	id = add_tensor(builder, RBK_TENSOR_CONSTANT, name, dtype, rank, dims, arena, offset);
	if (!builder || builder->error)
		return RBK_TENSOR_NONE;
	tensor = &tensors_of(builder)[id];
	if (!arena)
		builder_fail(builder, -EINVAL, "constant \"%s\" lies in no arena", name);
	else if (offset % RBK_REF_ALIGN != 0)
		builder_fail(builder, -EINVAL,
			     "constant \"%s\": offset %llu is not a multiple of %u", name,
			     (unsigned long long)offset, RBK_REF_ALIGN);
	else if (offset > arena->bytes || tensor->bytes > arena->bytes - offset)
		builder_fail(builder, -EINVAL,
			     "constant \"%s\": %llu bytes at offset %llu end beyond an arena of "
			     "%zu bytes",
			     name, (unsigned long long)tensor->bytes, (unsigned long long)offset,
			     arena->bytes);
	return builder->error ? RBK_TENSOR_NONE : id;
}

/* ---- Nodes ---- */

/* "node 3 (MatMul)" or "node 3 (MatMul \"scores\")", for messages. */
struct node_title {
	char text[2 * RBK_NAME_BYTES + 32];
};

static struct node_title node_title(size_t index, const char *op, const char *name)
{
	struct node_title title;
	bool is_named = name && name[0];

	snprintf(title.text, sizeof(title.text), "node %zu (%s%s%s%s)", index, op,
		 is_named ? " \"" : "", is_named ? name : "", is_named ? "\"" : "");
	return title;
}

static bool check_input(struct rbk_builder *builder, const char *title, unsigned int position,
			unsigned int id)
{
	const struct builder_tensor *tensor;

	if (id == RBK_TENSOR_NONE)
		return true;
	if (id >= builder->tensors.n) {
		builder_fail(builder, -EINVAL, "%s: input %u is tensor %u, which does not exist",
			     title, position, id);
		return false;
	}
	tensor = &tensors_of(builder)[id];
	if ((tensor->kind == RBK_TENSOR_OUTPUT || tensor->kind == RBK_TENSOR_SCRATCH) &&
	    !tensor->written) {
		builder_fail(builder, -EINVAL,
			     "%s: input %u, \"%s\", is not written by an earlier node", title,
			     position, tensor->name);
		return false;
	}
	return true;
}

static bool check_output(struct rbk_builder *builder, const char *title, unsigned int position,
			 unsigned int id)
{
	struct builder_tensor *tensor;

	if (id == RBK_TENSOR_NONE)
		return true;
	if (id >= builder->tensors.n) {
		builder_fail(builder, -EINVAL, "%s: output %u is tensor %u, which does not exist",
			     title, position, id);
		return false;
	}
	tensor = &tensors_of(builder)[id];
	if (tensor->kind == RBK_TENSOR_INPUT || tensor->kind == RBK_TENSOR_CONSTANT) {
		builder_fail(builder, -EINVAL, "%s: output %u, \"%s\", is %s and cannot be written",
			     title, position, tensor->name, kind_names[tensor->kind]);
		return false;
	}
	if (tensor->written) {
		builder_fail(builder, -EINVAL, "%s: output %u, \"%s\", is written twice", title,
			     position, tensor->name);
		return false;
	}
	tensor->written = true;
	return true;
}

RBK_EXPORT unsigned int rbk_builder_node(struct rbk_builder *builder, const char *op,
					 const char *name, const unsigned int *inputs,
					 unsigned int n_inputs, const unsigned int *outputs,
					 unsigned int n_outputs)
{
	struct builder_node *node;
	struct node_title title;
	const char *trouble;
	uint16_t *edges;
	bool writes = false;
	size_t index;

	if (!builder || builder->error)
		return 0;
	index = builder->nodes.n;
	trouble = name_trouble(op, false);
	if (trouble) {
		builder_fail(builder, -EINVAL, "node %zu: the operator's name %s", index, trouble);
		return 0;
	}
	trouble = name_trouble(name ? name : "", true);
	if (trouble) {
		builder_fail(builder, -EINVAL, "node %zu (%s): its name %s", index, op, trouble);
		return 0;
	}
	title = node_title(index, op, name);
	if (index >= RBK_MAX_PLAN_NODES) {
		builder_fail(builder, -EINVAL, "%s: a plan has at most %u nodes", title.text,
			     RBK_MAX_PLAN_NODES);
		return 0;
	}
	if ((n_inputs && !inputs) || (n_outputs && !outputs) || n_inputs > UINT16_MAX ||
	    n_outputs > UINT16_MAX) {
		builder_fail(builder, -EINVAL,
			     "%s: expected arrays of %u inputs and %u outputs, with at most 65535 "
			     "elements each",
			     title.text, n_inputs, n_outputs);
		return 0;
	}
	for (unsigned int i = 0; i < n_inputs; i++)
		if (!check_input(builder, title.text, i, inputs[i]))
			return 0;
	for (unsigned int i = 0; i < n_outputs; i++) {
		if (!check_output(builder, title.text, i, outputs[i]))
			return 0;
		writes |= outputs[i] != RBK_TENSOR_NONE;
	}
	if (!writes) {
		builder_fail(builder, -EINVAL, "%s: it has no outputs", title.text);
		return 0;
	}

	node = array_add(builder, &builder->nodes, 1, sizeof(*node));
	if (!node)
		return 0;
	memset(node, 0, sizeof(*node));
	strcpy(node->op, op);
	strcpy(node->name, name ? name : "");
	node->first_in = (uint32_t)builder->edges.n;
	node->n_in = (uint16_t)n_inputs;
	node->first_out = node->first_in + n_inputs;
	node->n_out = (uint16_t)n_outputs;
	edges = array_add(builder, &builder->edges, n_inputs + n_outputs, sizeof(*edges));
	if (!edges)
		return 0;
	for (unsigned int i = 0; i < n_inputs; i++)
		*edges++ = (uint16_t)inputs[i];
	for (unsigned int i = 0; i < n_outputs; i++)
		*edges++ = (uint16_t)outputs[i];
	return (unsigned int)index;
}

RBK_EXPORT unsigned int rbk_builder_unary(struct rbk_builder *builder, const char *op,
					  unsigned int input, unsigned int output)
{
	return rbk_builder_node(builder, op, NULL, &input, 1, &output, 1);
}

RBK_EXPORT unsigned int rbk_builder_binary(struct rbk_builder *builder, const char *op,
					   unsigned int left, unsigned int right,
					   unsigned int output)
{
	const unsigned int inputs[] = {left, right};

	return rbk_builder_node(builder, op, NULL, inputs, 2, &output, 1);
}

/* ---- Attributes ---- */

static void add_attr(struct rbk_builder *builder, unsigned int node, const char *name,
		     enum rbk_plan_attr_type type, const void *values, size_t n, size_t value_bytes)
{
	const struct builder_node *nodes;
	const struct builder_attr *attrs;
	struct builder_attr *attr;
	struct node_title title;
	size_t blob_bytes;
	const char *trouble;
	uint8_t *blob;

	if (!builder || builder->error)
		return;
	nodes = builder->nodes.items;
	attrs = builder->attrs.items;
	if (node >= builder->nodes.n) {
		builder_fail(builder, -EINVAL, "attribute \"%s\": there is no node %u",
			     name ? name : "", node);
		return;
	}
	title = node_title(node, nodes[node].op, nodes[node].name);
	trouble = name_trouble(name, false);
	if (trouble) {
		builder_fail(builder, -EINVAL, "%s: the name of an attribute %s", title.text,
			     trouble);
		return;
	}
	for (size_t i = builder->attrs.n; i-- > 0;)
		if (attrs[i].node == node && !strcmp(attrs[i].name, name)) {
			builder_fail(builder, -EINVAL, "%s: attribute \"%s\" is given twice",
				     title.text, name);
			return;
		}
	if (builder->attrs.n >= BUILDER_ATTRS_MAX) {
		builder_fail(builder, -EINVAL, "%s: a plan has at most %u attributes", title.text,
			     BUILDER_ATTRS_MAX);
		return;
	}
	if (n > 0 && !values) {
		builder_fail(builder, -EINVAL, "%s: attribute \"%s\" has no value", title.text,
			     name);
		return;
	}
	if (n > RBK_WIRE_PLAN_MAX_BYTES / value_bytes ||
	    builder->blob.n > RBK_WIRE_PLAN_MAX_BYTES) {
		builder_fail(builder, -E2BIG, "%s: attribute \"%s\" is too large", title.text,
			     name);
		return;
	}

	attr = array_add(builder, &builder->attrs, 1, sizeof(*attr));
	if (!attr)
		return;
	memset(attr, 0, sizeof(*attr));
	strcpy(attr->name, name);
	attr->node = node;
	attr->type = type;
	attr->n = (uint32_t)n;
	attr->blob_offset = (uint32_t)builder->blob.n;
	blob_bytes = (n * value_bytes + 7) / 8 * 8;
	blob = array_add(builder, &builder->blob, blob_bytes, 1);
	if (!blob || n == 0)
		return;
	memset(blob, 0, blob_bytes);
	memcpy(blob, values, n * value_bytes);
}

RBK_EXPORT void rbk_builder_attr_int(struct rbk_builder *builder, unsigned int node,
				     const char *name, int64_t value)
{
	add_attr(builder, node, name, RBK_ATTR_INT, &value, 1, sizeof(value));
}

RBK_EXPORT void rbk_builder_attr_float(struct rbk_builder *builder, unsigned int node,
				       const char *name, float value)
{
	add_attr(builder, node, name, RBK_ATTR_FLOAT, &value, 1, sizeof(value));
}

RBK_EXPORT void rbk_builder_attr_ints(struct rbk_builder *builder, unsigned int node,
				      const char *name, const int64_t *values,
				      unsigned int n_values)
{
	add_attr(builder, node, name, RBK_ATTR_INTS, values, n_values, sizeof(*values));
}

RBK_EXPORT void rbk_builder_attr_floats(struct rbk_builder *builder, unsigned int node,
					const char *name, const float *values,
					unsigned int n_values)
{
	add_attr(builder, node, name, RBK_ATTR_FLOATS, values, n_values, sizeof(*values));
}

RBK_EXPORT void rbk_builder_attr_string(struct rbk_builder *builder, unsigned int node,
					const char *name, const char *value)
{
	add_attr(builder, node, name, RBK_ATTR_STRING, value, value ? strlen(value) : 1, 1);
}

RBK_EXPORT void rbk_builder_pin_device(struct rbk_builder *builder, unsigned int device)
{
	if (!builder || builder->error)
		return;
	if (device >= RBK_MAX_DEVICES) {
		builder_fail(builder, -EINVAL, "a plan cannot be pinned to device %u", device);
		return;
	}
	builder->pinned = true;
	builder->pinned_device = (uint8_t)device;
}

RBK_EXPORT void rbk_builder_disable_fusion(struct rbk_builder *builder)
{
	if (builder)
		builder->disables_fusion = true;
}
