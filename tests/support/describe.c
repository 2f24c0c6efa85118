/* SPDX-License-Identifier: MIT */
/*
 * Plan descriptions for tests
 *
 * Each section of the description grows in its own buffer; describe_finish() writes the sections in
 * sequence. Buffers are zeroed as they grow, so every reserved byte and all padding is zero.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/describe.h"

struct buffer {
	uint8_t *data;
	size_t bytes;
	size_t capacity;
};

struct describe {
	struct rbk_plan_header header;
	struct buffer tensors;
	struct buffer nodes;
	struct buffer attrs;
	struct buffer edges;
	struct buffer blob;
};

static void die(const char *what, const char *name)
{
	fprintf(stderr, "describe: %s: %s\n", what, name);
	abort();
}

static void *buffer_grow(struct buffer *buffer, size_t bytes)
{
	size_t capacity = buffer->capacity ? buffer->capacity : 256;
	uint8_t *data;

	while (capacity < buffer->bytes + bytes)
		capacity *= 2;
	if (capacity != buffer->capacity) {
		data = realloc(buffer->data, capacity);
		if (!data)
			die("realloc", "out of memory");
		buffer->data = data;
		buffer->capacity = capacity;
	}
	data = buffer->data + buffer->bytes;
	memset(data, 0, bytes);
	buffer->bytes += bytes;
	return data;
}

static void copy_name(char target[RBK_NAME_BYTES], const char *name)
{
	size_t bytes = strlen(name);

	if (bytes >= RBK_NAME_BYTES)
		die("name too long", name);
	memcpy(target, name, bytes);
}

struct describe *describe_new(const char *name, uint32_t max_count)
{
	struct describe *describe = calloc(1, sizeof(*describe));

	if (!describe)
		die("calloc", "out of memory");
	describe->header.magic = RBK_PLAN_MAGIC;
	describe->header.version = RBK_PLAN_VERSION;
	describe->header.max_count = max_count;
	copy_name(describe->header.name, name);
	return describe;
}

struct describe *describe_free(struct describe *describe)
{
	if (!describe)
		return NULL;
	free(describe->tensors.data);
	free(describe->nodes.data);
	free(describe->attrs.data);
	free(describe->edges.data);
	free(describe->blob.data);
	free(describe);
	return NULL;
}

void describe_set_max_count(struct describe *describe, uint32_t max_count)
{
	describe->header.max_count = max_count;
}

void describe_pin(struct describe *describe, uint8_t device)
{
	describe->header.flags |= RBK_PLAN_PINNED;
	describe->header.pinned_device = device;
}

void describe_disable_fusion(struct describe *describe)
{
	describe->header.flags |= RBK_PLAN_NO_FUSION;
}

unsigned int describe_tensor(struct describe *describe, const char *name, enum rbk_tensor_kind kind,
			     enum rbk_dtype dtype, uint64_t constant_ref, unsigned int rank,
			     const uint32_t *dims)
{
	struct rbk_plan_tensor *tensor = buffer_grow(&describe->tensors, sizeof(*tensor));

	if (rank > RBK_MAX_RANK)
		die("rank too large", name);
	copy_name(tensor->name, name);
	tensor->kind = (uint8_t)kind;
	tensor->dtype = (uint8_t)dtype;
	tensor->rank = (uint8_t)rank;
	tensor->constant_ref = constant_ref;
	for (unsigned int i = 0; i < rank; i++)
		tensor->dims[i] = dims[i];
	if (rank > 0 && dims[0] == DESCRIBE_COUNT) {
		tensor->flags |= RBK_PLAN_TENSOR_DYNAMIC;
		tensor->dims[0] = 0;
	}
	return describe->header.n_tensors++;
}

unsigned int describe_input(struct describe *describe, const char *name, unsigned int rank,
			    const uint32_t *dims)
{
	return describe_tensor(describe, name, RBK_TENSOR_INPUT, RBK_DTYPE_F32, 0, rank, dims);
}

unsigned int describe_output(struct describe *describe, const char *name, unsigned int rank,
			     const uint32_t *dims)
{
	return describe_tensor(describe, name, RBK_TENSOR_OUTPUT, RBK_DTYPE_F32, 0, rank, dims);
}

unsigned int describe_state(struct describe *describe, const char *name, unsigned int rank,
			    const uint32_t *dims)
{
	return describe_tensor(describe, name, RBK_TENSOR_STATE, RBK_DTYPE_F32, 0, rank, dims);
}

unsigned int describe_constant(struct describe *describe, const char *name, uint64_t constant_ref,
			       unsigned int rank, const uint32_t *dims)
{
	return describe_tensor(describe, name, RBK_TENSOR_CONSTANT, RBK_DTYPE_F32, constant_ref,
			       rank, dims);
}

unsigned int describe_inferred(struct describe *describe, const char *name,
			       enum rbk_tensor_kind kind, enum rbk_dtype dtype)
{
	unsigned int i = describe_tensor(describe, name, kind, dtype, 0, DESCRIBE_SCALAR);

	((struct rbk_plan_tensor *)describe->tensors.data)[i].flags |= RBK_PLAN_TENSOR_INFER;
	return i;
}

unsigned int describe_scratch(struct describe *describe, const char *name)
{
	return describe_inferred(describe, name, RBK_TENSOR_SCRATCH, RBK_DTYPE_F32);
}

static uint16_t find_tensor(const struct describe *describe, const char *name, size_t bytes)
{
	const struct rbk_plan_tensor *tensors = (const void *)describe->tensors.data;

	if (bytes == 0 || (bytes == 1 && name[0] == '-'))
		return RBK_PLAN_NO_TENSOR;
	for (unsigned int i = 0; i < describe->header.n_tensors; i++) {
		if (strlen(tensors[i].name) == bytes && !memcmp(tensors[i].name, name, bytes))
			return (uint16_t)i;
	}
	die("no such tensor", name);
	return RBK_PLAN_NO_TENSOR;
}

static uint16_t add_edges(struct describe *describe, const char *names)
{
	uint16_t n = 0;

	if (!*names)
		return 0;
	for (;;) {
		size_t bytes = strcspn(names, ",");
		uint16_t index = find_tensor(describe, names, bytes);

		memcpy(buffer_grow(&describe->edges, sizeof(index)), &index, sizeof(index));
		describe->header.n_edges++;
		n++;
		if (!names[bytes])
			return n;
		names += bytes + 1;
	}
}

void describe_floats(struct describe *describe, enum rbk_dtype dtype)
{
	struct rbk_plan_tensor *tensors = (struct rbk_plan_tensor *)describe->tensors.data;

	for (unsigned int i = 0; i < describe->header.n_tensors; i++)
		if (tensors[i].dtype == RBK_DTYPE_F32)
			tensors[i].dtype = (uint8_t)dtype;
}

void describe_halve(struct describe *describe)
{
	describe_floats(describe, RBK_DTYPE_F16);
}

void describe_node(struct describe *describe, const char *op, const char *name, const char *in,
		   const char *out)
{
	struct rbk_plan_node *node = buffer_grow(&describe->nodes, sizeof(*node));

	copy_name(node->name, name);
	copy_name(node->op, op);
	node->first_in = describe->header.n_edges;
	node->n_in = add_edges(describe, in);
	node->first_out = describe->header.n_edges;
	node->n_out = add_edges(describe, out);
	node->first_attr = describe->header.n_attrs;
	describe->header.n_nodes++;
}

static void add_attr(struct describe *describe, const char *name, uint32_t type, size_t n,
		     const void *values, size_t bytes)
{
	struct rbk_plan_attr *attr = buffer_grow(&describe->attrs, sizeof(*attr));
	struct rbk_plan_node *nodes = (void *)describe->nodes.data;
	uint8_t *blob;

	if (describe->header.n_nodes == 0)
		die("attribute without a node", name);
	copy_name(attr->name, name);
	attr->type = type;
	attr->n = (uint32_t)n;
	attr->blob_offset = (uint32_t)describe->blob.bytes;
	blob = buffer_grow(&describe->blob, (bytes + 7) & ~(size_t)7);
	if (bytes)
		memcpy(blob, values, bytes);
	nodes[describe->header.n_nodes - 1].n_attrs++;
	describe->header.n_attrs++;
}

void describe_attr_int(struct describe *describe, const char *name, int64_t value)
{
	add_attr(describe, name, RBK_ATTR_INT, 1, &value, sizeof(value));
}

void describe_attr_float(struct describe *describe, const char *name, float value)
{
	add_attr(describe, name, RBK_ATTR_FLOAT, 1, &value, sizeof(value));
}

void describe_attr_ints(struct describe *describe, const char *name, unsigned int n,
			const int64_t *values)
{
	add_attr(describe, name, RBK_ATTR_INTS, n, values, n * sizeof(*values));
}

void describe_attr_string(struct describe *describe, const char *name, const char *value)
{
	add_attr(describe, name, RBK_ATTR_STRING, strlen(value), value, strlen(value));
}

static uint8_t *put(uint8_t *target, const void *source, size_t bytes)
{
	if (bytes)
		memcpy(target, source, bytes);
	return target + bytes;
}

void *describe_finish(struct describe *describe, size_t *ret_bytes)
{
	uint8_t *desc, *end;
	size_t bytes;

	if (describe->edges.bytes % 8)
		buffer_grow(&describe->edges, 8 - describe->edges.bytes % 8);
	describe->header.blob_bytes = (uint32_t)describe->blob.bytes;
	bytes = sizeof(describe->header) + describe->tensors.bytes + describe->nodes.bytes +
		describe->attrs.bytes + describe->edges.bytes + describe->blob.bytes;
	desc = malloc(bytes);
	if (!desc)
		die("malloc", "out of memory");
	end = put(desc, &describe->header, sizeof(describe->header));
	end = put(end, describe->tensors.data, describe->tensors.bytes);
	end = put(end, describe->nodes.data, describe->nodes.bytes);
	end = put(end, describe->attrs.data, describe->attrs.bytes);
	end = put(end, describe->edges.data, describe->edges.bytes);
	put(end, describe->blob.data, describe->blob.bytes);
	describe_free(describe);
	*ret_bytes = bytes;
	return desc;
}

struct describe_view describe_view(void *desc)
{
	struct describe_view view = {.header = desc};
	uint8_t *next = (uint8_t *)desc + sizeof(*view.header);

	view.tensors = (void *)next;
	next += view.header->n_tensors * sizeof(*view.tensors);
	view.nodes = (void *)next;
	next += view.header->n_nodes * sizeof(*view.nodes);
	view.attrs = (void *)next;
	next += view.header->n_attrs * sizeof(*view.attrs);
	view.edges = (void *)next;
	next += (view.header->n_edges * sizeof(*view.edges) + 7) & ~(size_t)7;
	view.blob = next;
	return view;
}
