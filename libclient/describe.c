/* SPDX-License-Identifier: MIT */
/*
 * Description of a plan on the wire, from a builder
 *
 * This file makes the checks that need the whole plan: there is a node, every output and scratch
 * tensor is written, constants lie in sealed arenas of this connection, and the count is valid.
 * Then the sections of shm/plan-wire.h are written one after the other. A node's attributes, which
 * may have been set in any order, are made contiguous.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/private.h"
#include "shm/plan-wire.h"

static int check_tensor(const struct builder_tensor *tensor, const struct rbk *rbk,
			uint32_t max_count, struct rbk_error *error)
{
	switch (tensor->kind) {
	case RBK_TENSOR_OUTPUT:
	case RBK_TENSOR_SCRATCH:
		if (!tensor->written)
			return client_error(error, -EINVAL, "no node writes tensor \"%s\"",
					    tensor->name);
		break;
	case RBK_TENSOR_CONSTANT:
		if (tensor->arena->rbk != rbk)
			return client_error(
				error, -EINVAL,
				"constant \"%s\" lies in an arena of another connection",
				tensor->name);
		if (!tensor->arena->sealed)
			return client_error(error, -EINVAL,
					    "constant \"%s\" lies in an arena that is not sealed; "
					    "call rbk_arena_seal() first",
					    tensor->name);
		break;
	default:
		break;
	}
	if (tensor->dynamic && tensor->bytes > (1ull << RBK_REF_OFFSET_BITS) / max_count)
		return client_error(
			error, -EINVAL,
			"tensor \"%s\" is larger than the largest arena at a count of %u",
			tensor->name, max_count);
	return 0;
}

static int check_all(const struct rbk_builder *builder, const struct rbk *rbk, uint32_t max_count,
		     struct rbk_error *error)
{
	const struct builder_tensor *tensors = builder->tensors.items;
	int r;

	if (builder->error)
		return client_error(error, builder->error, "%s", builder->text);
	if (builder->nodes.n == 0)
		return client_error(error, -EINVAL, "the plan has no nodes");
	if (max_count == 0)
		return client_error(error, -EINVAL, "the largest count cannot be 0");
	if (!builder->dynamic && max_count != 1)
		return client_error(error, -EINVAL,
				    "no tensor has RBK_DIM_COUNT, so the largest count must be 1 "
				    "and not %u",
				    max_count);
	for (size_t i = 0; i < builder->tensors.n; i++) {
		r = check_tensor(&tensors[i], rbk, max_count, error);
		if (r)
			return r;
	}
	return 0;
}

/* Pointers to the sections. */
struct description {
	struct rbk_plan_header *header;
	struct rbk_plan_tensor *tensors;
	struct rbk_plan_node *nodes;
	struct rbk_plan_attr *attrs;
	uint16_t *edges;
	uint8_t *blob;
};

static void put_header(const struct description *description, const struct rbk_builder *builder,
		       uint32_t max_count)
{
	*description->header = (struct rbk_plan_header){
		.magic = RBK_PLAN_MAGIC,
		.version = RBK_PLAN_VERSION,
		.flags = (builder->pinned ? RBK_PLAN_PINNED : 0) |
			 (builder->disables_fusion ? RBK_PLAN_NO_FUSION : 0),
		.max_count = max_count,
		.n_tensors = (uint16_t)builder->tensors.n,
		.n_nodes = (uint16_t)builder->nodes.n,
		.n_attrs = (uint32_t)builder->attrs.n,
		.n_edges = (uint32_t)builder->edges.n,
		.blob_bytes = (uint32_t)builder->blob.n,
		.pinned_device = builder->pinned_device,
	};
	strcpy(description->header->name, builder->name);
}

static void put_tensors(const struct description *description, const struct rbk_builder *builder)
{
	const struct builder_tensor *tensors = builder->tensors.items;

	for (size_t i = 0; i < builder->tensors.n; i++) {
		const struct builder_tensor *from = &tensors[i];
		struct rbk_plan_tensor *to = &description->tensors[i];

		strcpy(to->name, from->name);
		to->kind = from->kind;
		to->dtype = from->dtype;
		to->rank = from->rank;
		to->flags = (uint8_t)((from->dynamic ? RBK_PLAN_TENSOR_DYNAMIC : 0) |
				      (from->inferred ? RBK_PLAN_TENSOR_INFER : 0));
		memcpy(to->dims, from->dims, sizeof(to->dims));
		if (from->kind == RBK_TENSOR_CONSTANT)
			to->constant_ref = rbk_arena_ref(from->arena, from->offset);
	}
}

static void put_nodes(const struct description *description, const struct rbk_builder *builder)
{
	const struct builder_node *nodes = builder->nodes.items;
	const struct builder_attr *attrs = builder->attrs.items;
	uint32_t n_attrs = 0;

	for (size_t i = 0; i < builder->nodes.n; i++) {
		const struct builder_node *from = &nodes[i];
		struct rbk_plan_node *to = &description->nodes[i];

		strcpy(to->name, from->name);
		strcpy(to->op, from->op);
		to->first_in = from->first_in;
		to->first_out = from->first_out;
		to->n_in = from->n_in;
		to->n_out = from->n_out;
	}

	/*
	 * Count the attributes of each node, sum the counts to offsets, then place the attributes.
	 */
	for (size_t i = 0; i < builder->attrs.n; i++)
		description->nodes[attrs[i].node].n_attrs++;
	for (size_t i = 0; i < builder->nodes.n; i++) {
		description->nodes[i].first_attr = n_attrs;
		n_attrs += description->nodes[i].n_attrs;
		description->nodes[i].n_attrs = 0;
	}
	for (size_t i = 0; i < builder->attrs.n; i++) {
		struct rbk_plan_node *node = &description->nodes[attrs[i].node];
		struct rbk_plan_attr *to = &description->attrs[node->first_attr + node->n_attrs++];

		strcpy(to->name, attrs[i].name);
		to->type = attrs[i].type;
		to->n = attrs[i].n;
		to->blob_offset = attrs[i].blob_offset;
	}
}

int client_describe(const struct rbk_builder *builder, const struct rbk *rbk, uint32_t max_count,
		    void **ret_desc, size_t *ret_bytes, struct rbk_error *error)
{
	size_t tensors_bytes = builder->tensors.n * sizeof(struct rbk_plan_tensor);
	size_t nodes_bytes = builder->nodes.n * sizeof(struct rbk_plan_node);
	size_t attrs_bytes = builder->attrs.n * sizeof(struct rbk_plan_attr);
	size_t edges_bytes = (builder->edges.n * sizeof(uint16_t) + 7) / 8 * 8;
	size_t bytes = sizeof(struct rbk_plan_header) + tensors_bytes + nodes_bytes + attrs_bytes +
		       edges_bytes + builder->blob.n;
	struct description description;
	uint8_t *desc;
	int r;

	r = check_all(builder, rbk, max_count, error);
	if (r)
		return r;
	if (bytes > RBK_WIRE_PLAN_MAX_BYTES)
		return client_error(error, -E2BIG,
				    "the plan's description has %zu bytes, expected at most %u",
				    bytes, RBK_WIRE_PLAN_MAX_BYTES);
	desc = calloc(1, bytes);
	if (!desc)
		return client_error(error, -ENOMEM, "out of memory");

	description.header = (struct rbk_plan_header *)desc;
	description.tensors = (struct rbk_plan_tensor *)(desc + sizeof(struct rbk_plan_header));
	description.nodes =
		(struct rbk_plan_node *)((uint8_t *)description.tensors + tensors_bytes);
	description.attrs = (struct rbk_plan_attr *)((uint8_t *)description.nodes + nodes_bytes);
	description.edges = (uint16_t *)((uint8_t *)description.attrs + attrs_bytes);
	description.blob = (uint8_t *)description.edges + edges_bytes;

	put_header(&description, builder, max_count);
	put_tensors(&description, builder);
	put_nodes(&description, builder);
	if (builder->edges.n > 0)
		memcpy(description.edges, builder->edges.items,
		       builder->edges.n * sizeof(uint16_t));
	if (builder->blob.n > 0)
		memcpy(description.blob, builder->blob.items, builder->blob.n);

	*ret_desc = desc;
	*ret_bytes = bytes;
	return 0;
}
