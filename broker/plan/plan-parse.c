/* SPDX-License-Identifier: MIT */
/*
 * Parsing of plan descriptions
 *
 * The description is private memory by now, so it may be read as often as needed; but every byte of
 * it is a client's choice. The order matters: first the header, then whether the sections that it
 * announces fill the description exactly, and only then the contents of the sections. All sections
 * are multiples of eight bytes long, so structures can be read in place. Names are checked to be
 * printable before any message quotes them. Nodes may share edges and attributes, and attributes
 * may share bytes of the blob. So no function here follows the references of nodes and attributes:
 * the work is linear in the description, except for the comparison of names, which sorts.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan-parse.h"
#include "shm/dtype.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/number.h"

int plan_refuse(char message[PLAN_MESSAGE_BYTES], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(message, PLAN_MESSAGE_BYTES, format, args);
	va_end(args);
	return PLAN_E_INVALID;
}

/* Return true for NUL-terminated printable ASCII, padded with zeros. */
static bool name_is_valid(const char name[RBK_NAME_BYTES])
{
	unsigned int i = 0;

	while (i < RBK_NAME_BYTES && name[i] >= 0x20 && name[i] <= 0x7e)
		i++;
	if (i == RBK_NAME_BYTES)
		return false;
	while (i < RBK_NAME_BYTES && name[i] == 0)
		i++;
	return i == RBK_NAME_BYTES;
}

static bool is_zero(const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (((const uint8_t *)bytes)[i])
			return false;
	}
	return true;
}

static int parse_header(const struct rbk_plan_header *header, char message[PLAN_MESSAGE_BYTES])
{
	if (header->magic != RBK_PLAN_MAGIC)
		return plan_refuse(message,
				   "the bytes are not a plan description: their magic number is "
				   "0x%08x",
				   header->magic);
	if (header->version != RBK_PLAN_VERSION)
		return plan_refuse(message, "the description has version %u, expected %u",
				   header->version, RBK_PLAN_VERSION);
	if (header->flags & ~(RBK_PLAN_PINNED | RBK_PLAN_NO_FUSION))
		return plan_refuse(message, "the plan has unknown flags 0x%x", header->flags);
	if (!is_zero(header->reserved, sizeof(header->reserved)))
		return plan_refuse(message, "reserved bytes of the plan are not 0");
	if (!name_is_valid(header->name))
		return plan_refuse(message, "the plan's name is not NUL-terminated printable "
					    "ASCII");
	if (header->pinned_device >= RBK_MAX_DEVICES ||
	    (header->pinned_device && !(header->flags & RBK_PLAN_PINNED)))
		return plan_refuse(message, "the plan names device %u, expected %s",
				   header->pinned_device,
				   header->flags & RBK_PLAN_PINNED ? "one below 16"
								   : "0 because the plan is "
								     "not pinned");
	if (header->max_count < 1 || header->max_count > OP_MAX_DIM)
		return plan_refuse(message, "max_count is %u, expected a number from 1 to %u",
				   header->max_count, OP_MAX_DIM);
	if (header->n_tensors < 1 || header->n_tensors > RBK_MAX_PLAN_TENSORS)
		return plan_refuse(message, "the plan has %u tensors, expected 1 to %u",
				   header->n_tensors, RBK_MAX_PLAN_TENSORS);
	if (header->n_nodes < 1 || header->n_nodes > RBK_MAX_PLAN_NODES)
		return plan_refuse(message, "the plan has %u nodes, expected 1 to %u",
				   header->n_nodes, RBK_MAX_PLAN_NODES);
	return 0;
}

static int parse_dims(unsigned int index, const struct rbk_plan_tensor *tensor,
		      char message[PLAN_MESSAGE_BYTES])
{
	bool dynamic = tensor->flags & RBK_PLAN_TENSOR_DYNAMIC;
	bool infer = tensor->flags & RBK_PLAN_TENSOR_INFER;

	if (tensor->rank > RBK_MAX_RANK)
		return plan_refuse(message, "tensor %u \"%s\" has rank %u, expected at most %u",
				   index, tensor->name, tensor->rank, RBK_MAX_RANK);
	if (infer && (tensor->rank || dynamic ||
		      (tensor->kind != RBK_TENSOR_OUTPUT && tensor->kind != RBK_TENSOR_SCRATCH)))
		return plan_refuse(
			message,
			"tensor %u \"%s\" asks for its shape to be inferred, expected an "
			"output or scratch tensor without a shape",
			index, tensor->name);
	if (dynamic && tensor->rank == 0)
		return plan_refuse(message,
				   "tensor %u \"%s\" is dynamic and has rank 0, expected a leading "
				   "dimension",
				   index, tensor->name);
	for (unsigned int i = 0; i < RBK_MAX_RANK; i++) {
		uint32_t dim = tensor->dims[i];

		if (i >= tensor->rank || (i == 0 && dynamic)) {
			if (dim)
				return plan_refuse(message,
						   "tensor %u \"%s\" has %u as dimension %u, "
						   "expected 0 %s",
						   index, tensor->name, dim, i,
						   i >= tensor->rank ? "beyond its rank"
								     : "because that dimension is "
								       "the count");
		} else if (dim < 1 || dim > OP_MAX_DIM) {
			return plan_refuse(message,
					   "tensor %u \"%s\" has %u as dimension %u, expected a "
					   "number from 1 to %u (tensors without elements are not "
					   "supported)",
					   index, tensor->name, dim, i, OP_MAX_DIM);
		}
	}
	return 0;
}

int plan_parse_tensor(const struct plan_parsed *parsed, unsigned int index,
		      char message[PLAN_MESSAGE_BYTES])
{
	const struct rbk_plan_tensor *tensor = &parsed->tensors[index];

	if (!name_is_valid(tensor->name) || !tensor->name[0])
		return plan_refuse(message,
				   "tensor %u has no name or one that is not NUL-terminated "
				   "printable ASCII",
				   index);
	if (tensor->kind >= RBK_TENSOR_KIND_COUNT)
		return plan_refuse(message, "tensor %u \"%s\" has unknown kind %u", index,
				   tensor->name, tensor->kind);
	if (!dtype_bytes(tensor->dtype))
		return plan_refuse(message,
				   "tensor %u \"%s\" has unknown element type %u, expected 1 "
				   "(float32) or 7 (int64)",
				   index, tensor->name, tensor->dtype);
	if (tensor->flags & ~(RBK_PLAN_TENSOR_DYNAMIC | RBK_PLAN_TENSOR_INFER))
		return plan_refuse(message, "tensor %u \"%s\" has unknown flags 0x%x", index,
				   tensor->name, tensor->flags);
	if (tensor->reserved)
		return plan_refuse(message, "reserved bytes of tensor %u \"%s\" are not 0", index,
				   tensor->name);
	if (tensor->constant_ref && tensor->kind != RBK_TENSOR_CONSTANT)
		return plan_refuse(message,
				   "tensor %u \"%s\" has a constant reference, expected 0 because "
				   "it is not a constant",
				   index, tensor->name);
	return parse_dims(index, tensor, message);
}

static int compare_names(const void *a, const void *b)
{
	const struct rbk_plan_tensor *const *x = a, *const *y = b;

	return memcmp((*x)->name, (*y)->name, RBK_NAME_BYTES);
}

int plan_parse_names(const struct plan_parsed *parsed, char message[PLAN_MESSAGE_BYTES])
{
	_cleanup_(freep) const struct rbk_plan_tensor **sorted = NULL;
	unsigned int n = parsed->header->n_tensors;

	sorted = calloc(n, sizeof(struct rbk_plan_tensor *));
	if (!sorted)
		return error_origin(-ENOMEM);
	for (unsigned int i = 0; i < n; i++)
		sorted[i] = &parsed->tensors[i];
	qsort(sorted, n, sizeof(struct rbk_plan_tensor *), compare_names);
	for (unsigned int i = 1; i < n; i++) {
		if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
			return plan_refuse(message,
					   "tensors %u and %u are both called \"%s\", expected "
					   "distinct names",
					   (unsigned int)(sorted[i - 1] - parsed->tensors),
					   (unsigned int)(sorted[i] - parsed->tensors),
					   sorted[i]->name);
	}
	return 0;
}

int plan_parse_node(const struct plan_parsed *parsed, unsigned int index,
		    char message[PLAN_MESSAGE_BYTES])
{
	const struct rbk_plan_header *header = parsed->header;
	const struct rbk_plan_node *node = &parsed->nodes[index];

	if (!name_is_valid(node->name))
		return plan_refuse(message,
				   "the name of node %u is not NUL-terminated printable ASCII",
				   index);
	if (!name_is_valid(node->op) || !node->op[0])
		return plan_refuse(message,
				   "node %u \"%s\" has no operator or one that is not "
				   "NUL-terminated printable ASCII",
				   index, node->name);
	if (!is_zero(node->reserved, sizeof(node->reserved)))
		return plan_refuse(message, "reserved bytes of node %u \"%s\" are not 0", index,
				   node->name);
	if (!checked_range(node->first_in, node->n_in, header->n_edges) ||
	    !checked_range(node->first_out, node->n_out, header->n_edges))
		return plan_refuse(
			message,
			"node %u \"%s\" has inputs or outputs beyond the %u edges of the "
			"plan",
			index, node->name, header->n_edges);
	if (!checked_range(node->first_attr, node->n_attrs, header->n_attrs))
		return plan_refuse(message,
				   "node %u \"%s\" has attributes beyond the %u of the plan", index,
				   node->name, header->n_attrs);
	return 0;
}

unsigned int plan_attr_element_bytes(uint32_t type)
{
	static const unsigned int bytes[] = {
		[RBK_ATTR_INT] = sizeof(int64_t),
		[RBK_ATTR_FLOAT] = sizeof(float),
		[RBK_ATTR_INTS] = sizeof(int64_t),
		[RBK_ATTR_FLOATS] = sizeof(float),
		[RBK_ATTR_STRING] = 1,
	};

	return type < ARRAY_SIZE(bytes) ? bytes[type] : 0;
}

int plan_parse_attr(const struct plan_parsed *parsed, unsigned int index,
		    char message[PLAN_MESSAGE_BYTES])
{
	const struct rbk_plan_attr *attr = &parsed->attrs[index];
	const unsigned int elem_bytes = plan_attr_element_bytes(attr->type);

	if (!name_is_valid(attr->name) || !attr->name[0])
		return plan_refuse(message,
				   "attribute %u has no name or one that is not NUL-terminated "
				   "printable ASCII",
				   index);
	if (elem_bytes == 0)
		return plan_refuse(message, "attribute %u \"%s\" has unknown type %u", index,
				   attr->name, attr->type);
	if (attr->n != 1 && (attr->type == RBK_ATTR_INT || attr->type == RBK_ATTR_FLOAT))
		return plan_refuse(message, "attribute %u \"%s\" has %u values, expected 1", index,
				   attr->name, attr->n);
	if (attr->reserved)
		return plan_refuse(message, "reserved bytes of attribute %u \"%s\" are not 0",
				   index, attr->name);
	if (attr->blob_offset % 8 ||
	    !checked_range(attr->blob_offset, (uint64_t)attr->n * elem_bytes,
			   parsed->header->blob_bytes))
		return plan_refuse(message,
				   "attribute %u \"%s\" has a value that is not aligned to 8 bytes "
				   "or reaches beyond the blob",
				   index, attr->name);
	return 0;
}

/* Return the bytes of the edges and of the padding behind them. */
static uint64_t padded_bytes(const struct rbk_plan_header *header)
{
	return ((uint64_t)header->n_edges * sizeof(uint16_t) + 7) & ~(uint64_t)7;
}

int plan_parse_edges(const struct plan_parsed *parsed, uint32_t first, uint32_t n,
		     char message[PLAN_MESSAGE_BYTES])
{
	const struct rbk_plan_header *header = parsed->header;

	for (uint32_t i = first; i < first + n; i++) {
		if (parsed->edges[i] >= header->n_tensors && parsed->edges[i] != RBK_PLAN_NO_TENSOR)
			return plan_refuse(message,
					   "edge %u names tensor %u, expected one of the %u of the "
					   "plan",
					   i, parsed->edges[i], header->n_tensors);
	}
	if (first + n == header->n_edges &&
	    !is_zero(parsed->edges + header->n_edges,
		     padded_bytes(header) - header->n_edges * sizeof(*parsed->edges)))
		return plan_refuse(message, "the padding behind the edges is not 0");
	return 0;
}

int plan_parse_header(const void *desc, size_t desc_bytes, char message[PLAN_MESSAGE_BYTES],
		      struct plan_parsed *ret)
{
	const struct rbk_plan_header *header = desc;
	uint64_t expected;
	const uint8_t *next;
	int r;

	assert((uintptr_t)desc % 8 == 0);
	if (desc_bytes < sizeof(*header))
		return plan_refuse(message,
				   "the description has %zu bytes, expected at least the %zu of "
				   "its header",
				   desc_bytes, sizeof(*header));
	r = parse_header(header, message);
	if (r)
		return r;

	/* Four 32-bit numbers times less than 100 bytes: no sum here can overflow 64 bits. */
	expected = sizeof(*header) + (uint64_t)header->n_tensors * sizeof(struct rbk_plan_tensor) +
		   (uint64_t)header->n_nodes * sizeof(struct rbk_plan_node) +
		   (uint64_t)header->n_attrs * sizeof(struct rbk_plan_attr) + padded_bytes(header) +
		   header->blob_bytes;
	if (expected != desc_bytes)
		return plan_refuse(message,
				   "the description has %zu bytes, but its header describes %llu",
				   desc_bytes, ull(expected));

	next = (const uint8_t *)desc + sizeof(*header);
	ret->header = header;
	ret->tensors = (const void *)next;
	next += header->n_tensors * sizeof(*ret->tensors);
	ret->nodes = (const void *)next;
	next += header->n_nodes * sizeof(*ret->nodes);
	ret->attrs = (const void *)next;
	next += header->n_attrs * sizeof(*ret->attrs);
	ret->edges = (const void *)next;
	next += padded_bytes(header);
	ret->blob = next;
	return 0;
}
