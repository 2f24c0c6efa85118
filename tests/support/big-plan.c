/* SPDX-License-Identifier: MIT */
/*
 * Plan descriptions of the largest allowed size, of graphs that are hard to verify
 *
 * Each section grows in its own buffer; the end concatenates the sections.
 */
#include "support/big-plan.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/plan-wire.h"

enum {
	MAX_EDGES = 1 << 18,
	MAX_ATTRS = RBK_MAX_PLAN_NODES,
	MAX_BLOB = 1 << 19,
	FAN = 32,        /* inputs of a Concat, outputs of a Split */
	SIDE = 8,        /* elements of the tensors of most graphs */
	NEAR = 6,        /* longest life of a tensor of BIG_LIVES, in nodes */
	MOST_SIZES = 61, /* tensor sizes in BIG_GAPS and BIG_LIVES */
};

struct graph {
	struct rbk_plan_header header;
	struct rbk_plan_tensor tensors[RBK_MAX_PLAN_TENSORS];
	struct rbk_plan_node nodes[RBK_MAX_PLAN_NODES];
	struct rbk_plan_attr attrs[MAX_ATTRS];
	uint16_t edges[MAX_EDGES];
	uint8_t blob[MAX_BLOB];
};

static uint16_t add_tensor(struct graph *g, enum rbk_tensor_kind kind, unsigned int rank,
			   const uint32_t *dims)
{
	const uint16_t t = g->header.n_tensors++;
	struct rbk_plan_tensor *tensor = &g->tensors[t];

	assert(t < RBK_MAX_PLAN_TENSORS);
	/* Names differ only in their last characters, so that comparing them costs time. */
	snprintf(tensor->name, sizeof(tensor->name), "a-tensor-of-a-large-plan-%05u", t);
	tensor->kind = (uint8_t)kind;
	tensor->dtype = RBK_DTYPE_F32;
	tensor->rank = (uint8_t)rank;
	if (rank > 0)
		memcpy(tensor->dims, dims, rank * sizeof(*dims));
	else if (kind == RBK_TENSOR_SCRATCH || kind == RBK_TENSOR_OUTPUT)
		tensor->flags = RBK_PLAN_TENSOR_INFER;
	return t;
}

static uint16_t add_list(struct graph *g, enum rbk_tensor_kind kind, uint32_t n)
{
	return add_tensor(g, kind, 1, &n);
}

static uint16_t add_scratch(struct graph *g)
{
	return add_tensor(g, RBK_TENSOR_SCRATCH, 0, NULL);
}

static uint32_t add_edge(struct graph *g, uint16_t t)
{
	assert(g->header.n_edges < MAX_EDGES);
	g->edges[g->header.n_edges] = t;
	return g->header.n_edges++;
}

/* Add a node without edges. */
static struct rbk_plan_node *add_node(struct graph *g, const char *op)
{
	struct rbk_plan_node *node = &g->nodes[g->header.n_nodes];

	assert(g->header.n_nodes < RBK_MAX_PLAN_NODES);
	snprintf(node->name, sizeof(node->name), "node-%u", g->header.n_nodes++);
	snprintf(node->op, sizeof(node->op), "%s", op);
	node->first_attr = g->header.n_attrs;
	return node;
}

static struct rbk_plan_node *add_unary(struct graph *g, const char *op, uint16_t in, uint16_t out)
{
	struct rbk_plan_node *node = add_node(g, op);

	node->first_in = add_edge(g, in);
	node->first_out = add_edge(g, out);
	node->n_in = node->n_out = 1;
	return node;
}

static void add_binary(struct graph *g, const char *op, uint16_t a, uint16_t b, uint16_t out)
{
	struct rbk_plan_node *node = add_node(g, op);

	node->first_in = add_edge(g, a);
	add_edge(g, b);
	node->first_out = add_edge(g, out);
	node->n_in = 2;
	node->n_out = 1;
}

/* Add an attribute to the last node. */
static void add_attr(struct graph *g, const char *name, enum rbk_plan_attr_type type,
		     const void *values, uint32_t n, size_t value_bytes)
{
	struct rbk_plan_attr *attr = &g->attrs[g->header.n_attrs++];
	const size_t bytes = n * value_bytes;

	assert(g->header.n_attrs <= MAX_ATTRS && g->header.blob_bytes + bytes <= MAX_BLOB);
	snprintf(attr->name, sizeof(attr->name), "%s", name);
	attr->type = type;
	attr->n = n;
	attr->blob_offset = g->header.blob_bytes;
	memcpy(g->blob + attr->blob_offset, values, bytes);
	g->header.blob_bytes += (uint32_t)(bytes + 7) & ~7u;
	g->nodes[g->header.n_nodes - 1].n_attrs++;
}

static void add_attr_ints(struct graph *g, const char *name, const int64_t *values, uint32_t n)
{
	add_attr(g, name, RBK_ATTR_INTS, values, n, sizeof(*values));
}

static void add_attr_int(struct graph *g, const char *name, int64_t value)
{
	add_attr(g, name, RBK_ATTR_INT, &value, 1, sizeof(value));
}

static void chain(struct graph *g, unsigned int n)
{
	uint16_t at = add_list(g, RBK_TENSOR_INPUT, SIDE), next;

	while (g->header.n_tensors < n) {
		next = g->header.n_tensors + 1u < n ? add_scratch(g)
						    : add_list(g, RBK_TENSOR_OUTPUT, SIDE);
		add_unary(g, "Neg", at, next);
		at = next;
	}
}

static void chain_backwards(struct graph *g, unsigned int n)
{
	uint16_t at = add_list(g, RBK_TENSOR_OUTPUT, SIDE);

	while (g->header.n_tensors + 1u < n)
		add_scratch(g);
	at = add_list(g, RBK_TENSOR_INPUT, SIDE);
	for (; at > 0; at--)
		add_unary(g, "Neg", at, at - 1);
}

static void views(struct graph *g, unsigned int n, bool between)
{
	const int64_t shape = SIDE;
	uint16_t at = add_list(g, RBK_TENSOR_INPUT, SIDE), next;

	while (g->header.n_tensors < n) {
		next = g->header.n_tensors + 1u < n ? add_scratch(g)
						    : add_list(g, RBK_TENSOR_OUTPUT, SIDE);
		if (between && next % 2) {
			add_unary(g, "Neg", at, next);
		} else {
			add_unary(g, "Reshape", at, next);
			add_attr_ints(g, "shape", &shape, 1);
		}
		at = next;
	}
}

static void alive(struct graph *g, unsigned int n)
{
	const uint16_t x = add_list(g, RBK_TENSOR_INPUT, SIDE);
	const uint16_t n_leaves = (uint16_t)(n / 2 - 1);
	uint16_t sum, next;

	for (uint16_t i = 0; i < n_leaves; i++)
		add_unary(g, "Neg", x, add_scratch(g));
	sum = x;
	for (uint16_t i = 0; i < n_leaves; i++) {
		next = i + 1 < n_leaves ? add_scratch(g) : add_list(g, RBK_TENSOR_OUTPUT, SIDE);
		add_binary(g, "Add", sum, (uint16_t)(x + 1 + i), next);
		sum = next;
	}
}

/* Return a pseudo-random number that depends on @i alone. */
static uint32_t scatter(uint32_t i)
{
	i = (i ^ i >> 7) * 0x9e3779b1u;
	return (i ^ i >> 15) * 0x85ebca6bu >> 8;
}

/*
 * Add lists of all lengths. Each is expanded from one number and summed some nodes later: within a
 * few nodes if @near, else as late as possible.
 */
static void sizes(struct graph *g, unsigned int n, bool near)
{
	const uint32_t one = 1;
	const uint16_t x = add_tensor(g, RBK_TENSOR_INPUT, 1, &one);
	const uint16_t n_lists = (uint16_t)(n / 2 - 2);
	uint16_t *order = calloc(2 * (size_t)n_lists, sizeof(*order));
	uint16_t first = x + 1, n_read = 0;

	for (uint32_t i = 0; i < 2u * n_lists; i++)
		add_scratch(g);
	for (uint16_t i = 0; i < n_lists; i++)
		order[i] = i;
	/* Read the lists in an order that differs from the order of writes. */
	for (uint16_t i = 0; i < n_lists; i++) {
		const uint16_t k = near ? (uint16_t)(i - scatter(i) % (i < NEAR ? i + 1u : NEAR))
					: (uint16_t)(scatter(i) % n_lists);
		const uint16_t other = order[k];

		order[k] = order[i];
		order[i] = other;
	}
	for (uint16_t i = 0; i < n_lists; i++) {
		const int64_t length = 64 * (1 + scatter(i + 7u) % MOST_SIZES);
		const int64_t axis = 0;

		add_unary(g, "Expand", x, (uint16_t)(first + i));
		add_attr_ints(g, "shape", &length, 1);
		/*
		 * Far reads begin when half of the lists are written; from then on, reads alternate
		 * with writes.
		 */
		while (n_read < n_lists &&
		       (near ? n_read + 2u * NEAR < i : i >= n_lists / 2u && n_read < i / 4u) &&
		       order[n_read] < i) {
			add_unary(g, "ReduceSum", (uint16_t)(first + order[n_read]),
				  (uint16_t)(first + n_lists + order[n_read]));
			add_attr_ints(g, "axes", &axis, 1);
			n_read++;
		}
	}
	for (; n_read < n_lists; n_read++)
		add_unary(g, "ReduceSum", (uint16_t)(first + order[n_read]),
			  (uint16_t)(first + n_lists + order[n_read]));
	add_unary(g, "Neg", x, add_tensor(g, RBK_TENSOR_OUTPUT, 1, &one));
	free(order);
}

static void fan_in(struct graph *g, unsigned int n)
{
	const uint16_t x = add_list(g, RBK_TENSOR_INPUT, SIDE);
	struct rbk_plan_node *node;

	while (g->header.n_tensors < n) {
		const uint16_t out = g->header.n_tensors + 1u < n
					     ? add_scratch(g)
					     : add_list(g, RBK_TENSOR_OUTPUT, FAN * SIDE);

		node = add_node(g, "Concat");
		node->first_in = g->header.n_edges;
		for (unsigned int i = 0; i < FAN; i++)
			add_edge(g, x);
		node->first_out = add_edge(g, out);
		node->n_in = FAN;
		node->n_out = 1;
		add_attr_int(g, "axis", 0);
	}
}

static void fan_out(struct graph *g, unsigned int n)
{
	const uint16_t x = add_list(g, RBK_TENSOR_INPUT, FAN * SIDE);
	struct rbk_plan_node *node;
	int64_t parts[FAN];

	for (unsigned int i = 0; i < FAN; i++)
		parts[i] = SIDE;
	add_unary(g, "Neg", x, add_list(g, RBK_TENSOR_OUTPUT, FAN * SIDE));
	while (n - g->header.n_tensors > FAN) {
		node = add_node(g, "Split");
		node->first_in = add_edge(g, x);
		node->first_out = g->header.n_edges;
		for (unsigned int i = 0; i < FAN; i++)
			add_edge(g, add_scratch(g));
		node->n_in = 1;
		node->n_out = FAN;
		add_attr_int(g, "axis", 0);
		add_attr_ints(g, "split", parts, FAN);
	}
}

static void constants(struct graph *g, unsigned int n)
{
	const uint16_t x = add_list(g, RBK_TENSOR_INPUT, 16);
	const uint16_t y = add_list(g, RBK_TENSOR_OUTPUT, 16);
	uint16_t c = y;

	for (unsigned int i = 0; g->header.n_tensors < n; i++) {
		c = add_list(g, RBK_TENSOR_CONSTANT, 16);
		g->tensors[c].constant_ref = RBK_REF(1, (uint64_t)i * RBK_REF_ALIGN);
	}
	add_binary(g, "Add", x, c, y);
}

static void fusible(struct graph *g, unsigned int n)
{
	const uint32_t matrix[] = {SIDE, SIDE};
	const uint16_t x = add_tensor(g, RBK_TENSOR_INPUT, 2, matrix);
	const uint16_t y = add_tensor(g, RBK_TENSOR_OUTPUT, 2, matrix);
	const uint16_t w = add_tensor(g, RBK_TENSOR_INPUT, 2, matrix);
	uint16_t at = x, product, sum, next;

	while (g->header.n_tensors + 3u < n) {
		product = add_scratch(g);
		sum = add_scratch(g);
		next = add_scratch(g);
		add_binary(g, "MatMul", at, w, product);
		add_binary(g, "Add", product, x, sum);
		add_unary(g, "Relu", sum, next);
		at = next;
	}
	add_unary(g, "Relu", at, y);
}

static void absent(struct graph *g, unsigned int n)
{
	const uint16_t x = add_list(g, RBK_TENSOR_INPUT, SIDE);
	const uint32_t first = add_edge(g, x);
	const uint32_t n_absent = 15 * n;
	struct rbk_plan_node *node;

	for (uint32_t i = 0; i < n_absent; i++)
		add_edge(g, RBK_PLAN_NO_TENSOR);
	while (g->header.n_tensors < n) {
		const uint16_t out = g->header.n_tensors + 1u < n
					     ? add_scratch(g)
					     : add_list(g, RBK_TENSOR_OUTPUT, SIDE);

		node = add_node(g, "Neg");
		node->first_in = first;
		node->n_in = (uint16_t)(n_absent + 1);
		node->first_out = add_edge(g, out);
		node->n_out = 1;
	}
}

static void attrs(struct graph *g, unsigned int n)
{
	const uint32_t image[] = {1, 1, 2, 2, 2}, kernel[] = {1, 1, 1, 1, 1};
	const int64_t ones[] = {1, 1, 1}, zeros[6] = {0};
	const uint16_t w = add_tensor(g, RBK_TENSOR_INPUT, 5, kernel);
	uint16_t at = add_tensor(g, RBK_TENSOR_INPUT, 5, image), next;
	uint32_t first_attr = 0;

	while (g->header.n_tensors < n) {
		next = g->header.n_tensors + 1u < n ? add_scratch(g)
						    : add_tensor(g, RBK_TENSOR_OUTPUT, 5, image);
		add_binary(g, "Conv", at, w, next);
		if (g->header.n_attrs == 0) {
			add_attr_ints(g, "dilations", ones, 3);
			add_attr_int(g, "group", 1);
			add_attr_ints(g, "kernel_shape", ones, 3);
			add_attr_ints(g, "pads", zeros, 6);
			add_attr_ints(g, "strides", ones, 3);
		}
		g->nodes[g->header.n_nodes - 1].first_attr = first_attr;
		g->nodes[g->header.n_nodes - 1].n_attrs = 5;
		at = next;
	}
}

/* Add two chains whose tensors each have slightly more than 2^46 bytes. */
static void too_large(struct graph *g, unsigned int n)
{
	const uint32_t dims[] = {INT32_MAX, 8193};
	const uint16_t x = add_tensor(g, RBK_TENSOR_INPUT, 2, dims);
	const uint16_t y = add_tensor(g, RBK_TENSOR_OUTPUT, 2, dims);
	uint16_t at[2] = {x, x};

	while (g->header.n_tensors + 2u <= n)
		for (unsigned int i = 0; i < 2; i++) {
			const uint16_t next = add_scratch(g);

			add_unary(g, "Neg", at[i], next);
			at[i] = next;
		}
	add_binary(g, "Add", at[0], at[1], y);
}

static void *append(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return (uint8_t *)to + bytes;
}

static void *finish(const struct graph *g, size_t *ret_bytes)
{
	const size_t tensors_bytes = g->header.n_tensors * sizeof(g->tensors[0]);
	const size_t nodes_bytes = g->header.n_nodes * sizeof(g->nodes[0]);
	const size_t attrs_bytes = g->header.n_attrs * sizeof(g->attrs[0]);
	const size_t edges_bytes = (g->header.n_edges * sizeof(g->edges[0]) + 7) & ~(size_t)7;
	const size_t bytes = sizeof(g->header) + tensors_bytes + nodes_bytes + attrs_bytes +
			     edges_bytes + g->header.blob_bytes;
	void *desc = malloc(bytes), *next = desc;

	assert(desc);
	next = append(next, &g->header, sizeof(g->header));
	next = append(next, g->tensors, tensors_bytes);
	next = append(next, g->nodes, nodes_bytes);
	next = append(next, g->attrs, attrs_bytes);
	next = append(next, g->edges, edges_bytes);
	append(next, g->blob, g->header.blob_bytes);
	*ret_bytes = bytes;
	return desc;
}

const char *big_plan_name(enum big_plan kind)
{
	static const char *const names[BIG_PLANS] = {
		[BIG_CHAIN] = "a chain",
		[BIG_CHAIN_BACKWARDS] = "a chain backwards",
		[BIG_CHAIN_APART] = "a chain without fusion",
		[BIG_VIEWS] = "views of views",
		[BIG_VIEWS_BETWEEN] = "views between nodes",
		[BIG_ALIVE] = "all alive at once",
		[BIG_GAPS] = "gaps",
		[BIG_LIVES] = "short lives",
		[BIG_FAN_IN] = "many inputs",
		[BIG_FAN_OUT] = "many outputs",
		[BIG_CONSTANTS] = "constants",
		[BIG_FUSIBLE] = "nodes to fuse",
		[BIG_ABSENT] = "absent inputs",
		[BIG_ATTRS] = "attributes",
		[BIG_ILLEGAL] = "an unknown operator at the end",
		[BIG_TOO_LARGE] = "too much scratch",
	};

	return names[kind];
}

bool big_plan_is_legal(enum big_plan kind)
{
	return kind != BIG_ILLEGAL && kind != BIG_TOO_LARGE;
}

void *big_plan(enum big_plan kind, unsigned int n, size_t *ret_bytes)
{
	struct graph *g = calloc(1, sizeof(*g));
	void *desc;

	assert(g && n >= 64 && n <= RBK_MAX_PLAN_TENSORS);
	g->header.magic = RBK_PLAN_MAGIC;
	g->header.version = RBK_PLAN_VERSION;
	g->header.max_count = 1;
	snprintf(g->header.name, sizeof(g->header.name), "big-%u", (unsigned int)kind);
	switch (kind) {
	case BIG_CHAIN_APART:
		g->header.flags = RBK_PLAN_NO_FUSION;
		chain(g, n);
		break;
	case BIG_CHAIN_BACKWARDS:
		chain_backwards(g, n);
		break;
	case BIG_VIEWS:
	case BIG_VIEWS_BETWEEN:
		views(g, n, kind == BIG_VIEWS_BETWEEN);
		break;
	case BIG_ALIVE:
		alive(g, n);
		break;
	case BIG_GAPS:
	case BIG_LIVES:
		sizes(g, n, kind == BIG_LIVES);
		break;
	case BIG_FAN_IN:
		fan_in(g, n);
		break;
	case BIG_FAN_OUT:
		fan_out(g, n);
		break;
	case BIG_CONSTANTS:
		constants(g, n);
		break;
	case BIG_FUSIBLE:
		fusible(g, n);
		break;
	case BIG_ABSENT:
		absent(g, n);
		break;
	case BIG_ATTRS:
		attrs(g, n);
		break;
	case BIG_TOO_LARGE:
		too_large(g, n);
		break;
	case BIG_CHAIN:
	case BIG_ILLEGAL:
	case BIG_PLANS:
		chain(g, n);
		break;
	}
	if (kind == BIG_ILLEGAL)
		snprintf(g->nodes[g->header.n_nodes - 1].op, RBK_NAME_BYTES, "Negate");
	desc = finish(g, ret_bytes);
	free(g);
	return desc;
}
