/* SPDX-License-Identifier: MIT */
/*
 * Plans: verified graphs, immutable once made
 *
 * plan-parse.c checks the description's bytes. This file checks the graph, in one pass over the
 * nodes in execution order:
 *
 *   - a node reads only tensors that have a value by then: inputs, constants and states always do,
 *     outputs and scratch tensors once a node before it wrote them;
 *   - every output and scratch tensor is written by exactly one node, a state by at most one,
 *     inputs and constants by none;
 *   - a state's old value is seen by the nodes before its writer and by the writer, the new
 *     value by the nodes after it. It is updated in place, so a writer that reads it as well
 *     must be an operator whose element i depends on elements i only (struct op: in_place);
 *   - the operator's shape rule computes the outputs' shapes from the inputs'. They are
 *     compared with the declared shapes or, if the client left a shape open, become the
 *     tensor's shape.
 *
 * No tensor exceeds PLAN_MAX_BYTES, so no sum over the at most 4,096 tensors overflows 64 bits.
 * Costs are products of more than shapes; they saturate until they are compared with MAX_WORK.
 *
 * A description may be large, and other work waits for the thread that verifies it. The work is
 * therefore a list of stages, each of them the same for every tensor, node or edge.
 * plan_maker_work() does some items and remembers where the next call continues. An item takes one
 * step; an item that does more than look at a few numbers counts more steps itself.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "plan/fuse.h"
#include "plan/move.h"
#include "plan/plan-layout.h"
#include "plan/plan-parse.h"
#include "shm/operators/op-call.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/number.h"

/* Operations and bytes of one task: far beyond what any device does in a lifetime. */
#define MAX_WORK (1ull << 62)

enum {
	NO_NODE = 0xffff,
	EDGES_PER_MARK = 64,
	NODE_STEPS = 4,
	SORT_STEPS = 4,    /* steps of an item that takes part in sorting */
	SEARCH_STEPS = 32, /* steps of a layout that take as long as one step here */
};

/* Kind of plan->works[i]: that of the first node counted in it. */
struct work_kind {
	struct cost cost;
	int digits;
};

/* State of plan_new(). */
struct plan_maker {
	const void *desc;
	size_t desc_bytes;
	struct plan_parsed parsed;
	struct plan_arena_lookup lookup;
	char *message;
	struct plan *plan;
	uint16_t *writers;       /* by tensor; NO_NODE: none yet */
	uint32_t *last_present;  /* see mark_edges() */
	uint32_t n_present;      /* 1 + the last present edge among those marked so far */
	struct plan_life *lives; /* by tensor */
	unsigned int n_constants;
	bool has_count;    /* some tensor is dynamic */
	bool mixes_rows;   /* some node computes rows from other rows */
	bool has_result;   /* some node writes an output or a state */
	bool writes_fixed; /* some output or state is not dynamic */
	struct fuser fuser;
	struct work_kind kinds[PLAN_MAX_WORKS];
	uint64_t hash; /* the fingerprint so far */
	struct layout layout;

	unsigned int stage; /* index into stages */
	uint32_t next;      /* next item of the stage */
	uint32_t n_steps;   /* steps that the current part has taken */
};

static const char *kind_name(uint8_t kind)
{
	static const char *const names[RBK_TENSOR_KIND_COUNT] = {
		[RBK_TENSOR_INPUT] = "an input",           [RBK_TENSOR_OUTPUT] = "an output",
		[RBK_TENSOR_CONSTANT] = "a constant",      [RBK_TENSOR_STATE] = "a state",
		[RBK_TENSOR_SCRATCH] = "a scratch tensor",
	};

	return names[kind];
}

/* Set a tensor's shape and sizes. */
static int set_shape(struct plan_maker *maker, unsigned int index, const struct shape *shape)
{
	struct tensor *tensor = &maker->plan->tensors[index];
	uint64_t unit = dtype_bytes(tensor->dtype), total;
	bool fits = true;

	for (unsigned int i = shape->dynamic; i < shape->rank; i++)
		fits = fits && checked_mul(unit, shape->dims[i], &unit);
	fits = fits && checked_mul(unit, shape->dynamic ? shape->dims[0] : 1, &total);
	if (!fits || total > PLAN_MAX_BYTES)
		return plan_refuse(maker->message,
				   "tensor %u \"%s\" %s would have more than %llu bytes", index,
				   tensor->name, SHAPE_TEXT(shape), ull(PLAN_MAX_BYTES));
	tensor->shape = *shape;
	tensor->fixed_bytes = shape->dynamic ? 0 : unit;
	tensor->row_bytes = shape->dynamic ? unit : 0;
	tensor->max_bytes = total;
	maker->has_count |= shape->dynamic;
	return 0;
}

static int make_tensor(struct plan_maker *maker, unsigned int index)
{
	const struct rbk_plan_tensor *wire = &maker->parsed.tensors[index];
	struct tensor *tensor = &maker->plan->tensors[index];
	struct shape shape = {.rank = wire->rank};

	memcpy(tensor->name, wire->name, sizeof(tensor->name));
	tensor->kind = wire->kind;
	tensor->dtype = wire->dtype;
	maker->writers[index] = NO_NODE;
	tensor->root = (uint16_t)index;
	if (wire->flags & RBK_PLAN_TENSOR_INFER)
		return 0;
	memcpy(shape.dims, wire->dims, sizeof(shape.dims));
	if (wire->flags & RBK_PLAN_TENSOR_DYNAMIC) {
		shape.dynamic = true;
		shape.dims[0] = maker->plan->max_count;
	}
	return set_shape(maker, index, &shape);
}

static int make_constant(struct plan_maker *maker, unsigned int index)
{
	uint64_t ref = maker->parsed.tensors[index].constant_ref;
	struct tensor *tensor = &maker->plan->tensors[index];
	struct plan_constant *constant;
	struct exec_arena *arena;
	const char *why = "there is no such arena";

	if (tensor->shape.dynamic)
		return plan_refuse(maker->message,
				   "constant %u \"%s\" is %s, expected fixed dimensions", index,
				   tensor->name, SHAPE_TEXT(&tensor->shape));
	if (RBK_REF_OFFSET(ref) % RBK_REF_ALIGN)
		return plan_refuse(maker->message,
				   "constant %u \"%s\" is at offset %llu of its arena, expected a "
				   "multiple of %u",
				   index, tensor->name, ull(RBK_REF_OFFSET(ref)), RBK_REF_ALIGN);
	arena = maker->lookup.find(maker->lookup.context, RBK_REF_ARENA(ref), &why);
	if (!arena)
		return plan_refuse(maker->message,
				   "constant %u \"%s\" is in arena %u, expected an immutable one: "
				   "%s",
				   index, tensor->name, RBK_REF_ARENA(ref), why);
	if (!checked_range(RBK_REF_OFFSET(ref), tensor->max_bytes, arena->bytes))
		return plan_refuse(
			maker->message,
			"constant %u \"%s\" has %llu bytes at offset %llu, expected them "
			"within the %llu bytes of arena %u",
			index, tensor->name, ull(tensor->max_bytes), ull(RBK_REF_OFFSET(ref)),
			ull(arena->bytes), RBK_REF_ARENA(ref));
	constant = &maker->plan->constants[maker->plan->n_constants];
	constant->tensor = (uint16_t)index;
	constant->arena = arena;
	constant->offset = RBK_REF_OFFSET(ref);
	constant->bytes = tensor->max_bytes;
	tensor->constant = maker->plan->n_constants++;
	maker->plan->constant_bytes += constant->bytes;
	return 0;
}

static int make_any_tensor(struct plan_maker *maker, uint32_t index)
{
	int r = make_tensor(maker, index);

	maker->n_constants += maker->plan->tensors[index].kind == RBK_TENSOR_CONSTANT;
	return r;
}

/* Allocate the constants. Every declared tensor has its shape by now. */
static int begin_constants(struct plan_maker *maker, uint32_t unused)
{
	struct plan *plan = maker->plan;

	if (!maker->has_count && plan->max_count != 1)
		return plan_refuse(maker->message,
				   "max_count is %u, expected 1 because no tensor has count as its "
				   "leading dimension",
				   plan->max_count);
	if (maker->n_constants == 0)
		return 0;
	plan->constants = calloc(maker->n_constants, sizeof(*plan->constants));
	return plan->constants ? 0 : error_origin(-ENOMEM);
}

static int make_any_constant(struct plan_maker *maker, uint32_t index)
{
	return maker->plan->tensors[index].kind == RBK_TENSOR_CONSTANT ? make_constant(maker, index)
								       : 0;
}

/* Describe a tensor for shape rules. Return: @ret. */
static const struct op_tensor *view(const struct tensor *tensor, struct op_tensor *ret)
{
	*ret = (struct op_tensor){tensor->name, tensor->dtype, tensor->shape};
	return ret;
}

static int check_reads(struct plan_maker *maker, struct op_call *call, const struct node *node,
		       struct op_tensor views[OP_MAX_INPUTS])
{
	for (unsigned int i = 0; i < node->n_in; i++) {
		const struct tensor *tensor;
		uint16_t t = node->in[i];

		if (t == PLAN_NO_TENSOR)
			continue;
		tensor = &maker->plan->tensors[t];
		if ((tensor->kind == RBK_TENSOR_OUTPUT || tensor->kind == RBK_TENSOR_SCRATCH) &&
		    maker->writers[t] == NO_NODE)
			return op_call_refuse(call,
					      "input \"%s\" is %s without a value, expected an "
					      "earlier node to write it",
					      tensor->name, kind_name(tensor->kind));
		maker->lives[t].last = (uint16_t)call->node_index;
		call->in[i] = view(tensor, &views[i]);
	}
	return 0;
}

static int check_writes(struct plan_maker *maker, struct op_call *call, const struct node *node,
			struct op_tensor views[OP_MAX_OUTPUTS])
{
	for (unsigned int i = 0; i < node->n_out; i++) {
		const struct tensor *tensor;
		uint16_t t = node->out[i];

		if (t == PLAN_NO_TENSOR)
			continue;
		tensor = &maker->plan->tensors[t];
		if (tensor->kind == RBK_TENSOR_INPUT || tensor->kind == RBK_TENSOR_CONSTANT)
			return op_call_refuse(call,
					      "output \"%s\" is %s of the plan, expected an "
					      "output, a state or a scratch tensor",
					      tensor->name, kind_name(tensor->kind));
		if (maker->writers[t] != NO_NODE)
			return op_call_refuse(call,
					      "output \"%s\" is written by node %u already, "
					      "expected one writer",
					      tensor->name, maker->writers[t]);
		for (unsigned int j = 0; j < node->n_in; j++) {
			if (node->in[j] == t && !call->op->in_place)
				return op_call_refuse(call,
						      "state \"%s\" is both read and written, "
						      "expected another tensor: %s does not work "
						      "in place",
						      tensor->name, call->op->name);
		}
		maker->writers[t] = (uint16_t)call->node_index;
		maker->lives[t].first = (uint16_t)call->node_index;
		maker->lives[t].last = (uint16_t)call->node_index;
		call->out[i] = view(tensor, &views[i]);
	}
	return 0;
}

/* Compare the inferred types and shapes with the declared ones, or set the shapes left open. */
static int check_outputs(struct plan_maker *maker, struct op_call *call, const struct node *node)
{
	for (unsigned int i = 0; i < node->n_out; i++) {
		const struct shape *shape = &call->out_shape[i];
		const struct tensor *tensor;
		uint16_t t = node->out[i];
		int r;

		if (t == PLAN_NO_TENSOR)
			continue;
		tensor = &maker->plan->tensors[t];
		if (tensor->dtype != call->out_dtype[i])
			return op_call_refuse(call, "output \"%s\" is declared as %s, expected %s",
					      tensor->name, dtype_name(tensor->dtype),
					      dtype_name(call->out_dtype[i]));
		if (maker->parsed.tensors[t].flags & RBK_PLAN_TENSOR_INFER) {
			r = set_shape(maker, t, shape);
			if (r)
				return r;
		} else if (!shape_equal(&tensor->shape, shape)) {
			return op_call_refuse(call, "output \"%s\" is declared as %s, expected %s",
					      tensor->name, SHAPE_TEXT(&tensor->shape),
					      SHAPE_TEXT(shape));
		}
	}
	return 0;
}

/* Return true if the node computes a row of its outputs from other rows, too. */
static bool node_mixes_rows(const struct op_call *call)
{
	bool in_dynamic = false, out_dynamic = true;

	for (unsigned int i = 0; i < call->n_in; i++)
		in_dynamic |= call->in[i] && call->in[i]->shape.dynamic;
	for (unsigned int i = 0; i < call->n_out; i++)
		out_dynamic &= !call->out[i] || call->out_shape[i].dynamic;
	return in_dynamic && (!out_dynamic || call->mixes_rows || !call->op->splits_rows);
}

static int find_op(struct plan_maker *maker, unsigned int index, const struct op **ret)
{
	const struct rbk_plan_node *wire = &maker->parsed.nodes[index];
	const struct op *op = op_by_name(wire->op);

	if (op) {
		*ret = op;
		return 0;
	}
	return plan_refuse(maker->message,
			   "node %u%s%s%s: unknown operator \"%s\", expected one of those that "
			   "brokerctl devices lists",
			   index, wire->name[0] ? " \"" : "", wire->name, wire->name[0] ? "\"" : "",
			   wire->op);
}

/*
 * Make entry @index of last_present: 1 + the last edge before (index + 1) * EDGES_PER_MARK that is
 * present, or 0. Nodes may share edges, so thousands of nodes may each end with the same tens of
 * thousands of absent ones. The entries bound the edges that count_edges() looks at.
 */
static int mark_edges(struct plan_maker *maker, uint32_t index)
{
	const uint32_t n_edges = maker->parsed.header->n_edges;

	for (uint32_t i = index * EDGES_PER_MARK; i < n_edges && i / EDGES_PER_MARK == index; i++)
		if (maker->parsed.edges[i] != RBK_PLAN_NO_TENSOR)
			maker->n_present = i + 1;
	maker->last_present[index] = maker->n_present;
	return 0;
}

/* Return: the number of the @n edges from @first, without absent ones at the end. */
static uint32_t count_edges(const struct plan_maker *maker, uint32_t first, uint32_t n)
{
	uint32_t end = first + n;

	while (end > first && end % EDGES_PER_MARK != 0 &&
	       maker->parsed.edges[end - 1] == RBK_PLAN_NO_TENSOR)
		end--;
	if (end > first && end % EDGES_PER_MARK == 0)
		end = maker->last_present[end / EDGES_PER_MARK - 1];
	return end > first ? end - first : 0;
}

/*
 * Copy up to @max of @n edges from @first; entries beyond them are absent. Return: as
 * count_edges(), which may be more than @max.
 */
static unsigned int copy_edges(const struct plan_maker *maker, uint32_t first, uint32_t n,
			       unsigned int max, uint16_t *ret)
{
	n = count_edges(maker, first, n);
	for (unsigned int i = 0; i < max; i++)
		ret[i] = i < n ? maker->parsed.edges[first + i] : PLAN_NO_TENSOR;
	return n;
}

/* Set the bound of the memory that executors may use for the node beside its tensors. */
static int set_work(struct plan_maker *maker, struct op_call *call, struct node *node)
{
	uint64_t bytes = 0;

	if (node->op->work)
		node->work_bytes = node->op->work(call);
	/* Executors may convert float16 tensors to float32: at most PLAN_MAX_BYTES each. */
	for (unsigned int i = 0; i < call->n_in + call->n_out; i++) {
		const uint16_t t = i < call->n_in ? node->in[i] : node->out[i - call->n_in];

		if (t == PLAN_NO_TENSOR || maker->plan->tensors[t].dtype != RBK_DTYPE_F16)
			continue;
		checked_align(2 * maker->plan->tensors[t].max_bytes, PLAN_SCRATCH_ALIGN, &bytes);
		if (!checked_add(node->work_bytes, bytes, &node->work_bytes))
			node->work_bytes = UINT64_MAX;
	}
	if (node->work_bytes > PLAN_MAX_BYTES)
		return op_call_refuse(call, "its workspace would exceed %llu bytes",
				      ull(PLAN_MAX_BYTES));
	if (node->work_bytes > maker->plan->work_bytes)
		maker->plan->work_bytes = node->work_bytes;
	return 0;
}

/*
 * Make the output of a Reshape a view of its input, or the input a view of the output, if one of
 * them is scratch. States have no views, because they change in the middle of a plan.
 */
static void make_view(struct plan_maker *maker, const struct node *node)
{
	struct tensor *tensors = maker->plan->tensors;
	struct tensor *in = &tensors[node->in[0]], *out = &tensors[node->out[0]];

	if (out->kind == RBK_TENSOR_SCRATCH && tensors[in->root].kind != RBK_TENSOR_STATE)
		out->root = in->root;
	else if (out->kind == RBK_TENSOR_OUTPUT && in->kind == RBK_TENSOR_SCRATCH &&
		 in->root == node->in[0])
		in->root = node->out[0];
}

/*
 * Resolve a view of views, and extend the life of its root. Thousands of nodes that work in place
 * make one chain, so every tensor on the way to a root is pointed at the root: over all tensors
 * that takes n log n.
 */
static int resolve_views(struct plan_maker *maker, uint32_t index)
{
	struct tensor *tensors = maker->plan->tensors;
	uint16_t root = tensors[index].root, next;

	/* No cycles exist: a tensor points to one that existed before it did. */
	while (tensors[root].root != root)
		root = tensors[root].root;
	for (uint16_t t = (uint16_t)index; t != root; t = next) {
		next = tensors[t].root;
		tensors[t].root = root;
		maker->n_steps++;
	}
	if (maker->lives[root].last < maker->lives[index].last)
		maker->lives[root].last = maker->lives[index].last;
	return 0;
}

static int make_node(struct plan_maker *maker, uint32_t index)
{
	const struct rbk_plan_node *wire = &maker->parsed.nodes[index];
	struct plan *plan = maker->plan;
	struct node *node = &plan->nodes[index];
	struct op_call call = {
		.node_index = index,
		.node_name = node->name,
		.attrs = maker->parsed.attrs + wire->first_attr,
		.n_attrs = wire->n_attrs,
		.blob = maker->parsed.blob,
		.message = maker->message,
	};
	struct op_tensor views[OP_MAX_INPUTS + OP_MAX_OUTPUTS];
	int r;

	r = find_op(maker, index, &node->op);
	if (r)
		return r;
	call.op = node->op;
	memcpy(node->name, wire->name, sizeof(node->name));
	memset(node->in, 0xff, sizeof(node->in));
	memset(node->out, 0xff, sizeof(node->out));
	node->sum = node->activation = node->computed_by = PLAN_NO_NODE;
	call.n_in = copy_edges(maker, wire->first_in, wire->n_in, OP_MAX_INPUTS, node->in);
	call.n_out = copy_edges(maker, wire->first_out, wire->n_out, OP_MAX_OUTPUTS, node->out);
	/* Operands beyond the maximum are refused next. */
	node->n_in = (uint8_t)call.n_in;
	node->n_out = (uint8_t)call.n_out;
	/* A node takes several times as long as other items, and more for each operand. */
	maker->n_steps += NODE_STEPS + node->n_in + node->n_out;
	r = op_call_check_arity(&call);
	if (!r)
		r = check_reads(maker, &call, node, views);
	if (!r)
		r = check_writes(maker, &call, node, views + OP_MAX_INPUTS);
	if (!r)
		r = op_call_infer(&call);
	if (!r)
		r = check_outputs(maker, &call, node);
	if (r)
		return r;
	node->params = call.params;
	node->op->cost(&call, &node->cost);
	cost_add(&plan->cost, &node->cost);
	r = set_work(maker, &call, node);
	if (r)
		return r;
	node->devices = call.devices;
	plan->ops_devices &= call.devices;
	plan->data_independent &= node->op->data_independent;
	maker->mixes_rows |= node_mixes_rows(&call);
	if (node->op->kind == OP_RESHAPE)
		make_view(maker, node);
	return 0;
}

static bool work_fits(uint64_t fixed, uint64_t row, uint32_t count)
{
	uint64_t total;

	return checked_mul(row, count, &total) && checked_add(total, fixed, &total) &&
	       total <= MAX_WORK;
}

static uint32_t row_grain(const struct plan *plan)
{
	uint64_t grain = 1;

	/* All values are powers of two, so the largest is a multiple of the others. */
	for (uint32_t i = 0; i < plan->n_bindings; i++) {
		uint64_t row_bytes = plan->bindings[i].row_bytes;

		while (row_bytes * grain % RBK_REF_ALIGN != 0)
			grain *= 2;
	}
	return (uint32_t)grain;
}

/* FNV-1a, word by word */
static uint64_t hash_word(uint64_t hash, uint64_t word)
{
	return (hash ^ word) * 0x100000001b3ull;
}

/* The fingerprint covers attributes only as far as they change shapes or costs. */
static int hash_tensor(struct plan_maker *maker, uint32_t index)
{
	const struct tensor *tensor = &maker->plan->tensors[index];
	uint64_t hash = maker->hash;

	hash = hash_word(hash, (uint64_t)tensor->kind << 8 | tensor->dtype);
	hash = hash_word(hash, (uint64_t)tensor->shape.dynamic << 8 | tensor->shape.rank);
	for (uint32_t k = 0; k < tensor->shape.rank; k++)
		hash = hash_word(hash, tensor->shape.dims[k]);
	maker->hash = hash;
	return 0;
}

static void hash_node(struct plan_maker *maker, const struct node *node)
{
	uint64_t hash = hash_word(maker->hash, node->op->kind);

	for (uint32_t k = 0; k < node->n_in; k++)
		hash = hash_word(hash, node->in[k]);
	for (uint32_t k = 0; k < node->n_out; k++)
		hash = hash_word(hash, node->out[k]);
	hash = hash_word(hash, node->cost.flops_fixed);
	hash = hash_word(hash, node->cost.flops_row);
	hash = hash_word(hash, node->cost.bytes_fixed);
	maker->hash = hash_word(hash, node->cost.bytes_row);
}

/* No sum overflows: see MAX_WORK. */
static void sum_blocked(struct plan *plan, const struct node *node)
{
	if (node->op->kind != OP_MATMUL && node->op->kind != OP_GEMM && node->op->kind != OP_CONV)
		return;
	plan->blocked_flops_fixed += node->cost.flops_fixed;
	plan->blocked_flops_row += node->cost.flops_row;
}

/* Count the binary digits of one task's work. */
static int work_digits(const struct plan *plan, const struct cost *cost)
{
	const double n = (double)cost->flops_fixed + (double)cost->bytes_fixed +
			 ((double)cost->flops_row + (double)cost->bytes_row) * plan->max_count;

	return n < 0x1p63 ? 64 - __builtin_clzll((uint64_t)n | 1) : 64;
}

/* Return: the index of the group that a node of @family and @kind is counted in. */
static uint32_t find_work(struct plan *plan, const struct work_kind *kinds, enum op_family family,
			  const struct work_kind *kind)
{
	uint32_t nearest = plan->n_works;
	int least = INT_MAX;

	for (uint32_t i = 0; i < plan->n_works; i++) {
		const int distance = abs(kinds[i].digits - kind->digits);

		if (plan->works[i].family != family)
			continue;
		if (memcmp(&kinds[i].cost, &kind->cost, sizeof(kind->cost)) == 0)
			return i;
		if (distance < least) {
			least = distance;
			nearest = i;
		}
	}
	/* The last entries are kept for families not seen before. */
	if (nearest < plan->n_works && plan->n_works >= PLAN_MAX_WORKS - OP_FAMILY_COUNT)
		return nearest;
	plan->works[plan->n_works].family = family;
	return plan->n_works++;
}

static void sum_work(struct plan_maker *maker, const struct node *node)
{
	struct plan *plan = maker->plan;
	const struct work_kind kind = {.cost = node->cost, work_digits(plan, &node->cost)};
	uint32_t k;

	if (node->computed_by != PLAN_NO_NODE)
		return;
	k = find_work(plan, maker->kinds, node->op->family, &kind);
	maker->n_steps += k / NODE_STEPS;
	if (plan->works[k].n++ == 0)
		maker->kinds[k] = kind;
	cost_add(&plan->works[k].cost, &node->cost);
}

/* Number a binding. Every tensor has its shape by now. */
static int bind_tensor(struct plan_maker *maker, uint32_t index)
{
	struct plan *plan = maker->plan;
	struct tensor *tensor = &plan->tensors[index];
	struct plan_binding *binding;

	if ((tensor->kind == RBK_TENSOR_OUTPUT || tensor->kind == RBK_TENSOR_SCRATCH) &&
	    maker->writers[index] == NO_NODE)
		return plan_refuse(maker->message, "tensor %u \"%s\" is %s, but no node writes it",
				   index, tensor->name, kind_name(tensor->kind));
	if (tensor->kind == RBK_TENSOR_SCRATCH)
		return 0;
	plan->touched_fixed += tensor->fixed_bytes;
	plan->touched_row += tensor->row_bytes;
	if (tensor->kind == RBK_TENSOR_CONSTANT)
		return 0;
	if (plan->n_bindings == RBK_MAX_REFS)
		return plan_refuse(maker->message,
				   "tensor %u \"%s\" is %s, but the plan has %u inputs, "
				   "outputs and states before it, expected at most %u",
				   index, tensor->name, kind_name(tensor->kind), RBK_MAX_REFS,
				   RBK_MAX_REFS);
	tensor->binding = plan->n_bindings++;
	binding = &plan->bindings[tensor->binding];
	binding->fixed_bytes = tensor->fixed_bytes;
	binding->row_bytes = tensor->row_bytes;
	binding->tensor = (uint16_t)index;
	binding->written = tensor->kind != RBK_TENSOR_INPUT;
	maker->has_result |= binding->written && maker->writers[index] != NO_NODE;
	maker->writes_fixed |= binding->written && !tensor->shape.dynamic;
	plan->has_state |= tensor->kind == RBK_TENSOR_STATE;
	return 0;
}

static int begin_fusion(struct plan_maker *maker, uint32_t unused)
{
	struct plan *plan = maker->plan;

	if (!maker->has_result)
		return plan_refuse(maker->message,
				   "the plan has no result, expected a node that writes an output "
				   "or a state");
	if (!work_fits(plan->cost.flops_fixed, plan->cost.flops_row, plan->max_count) ||
	    !work_fits(plan->cost.bytes_fixed, plan->cost.bytes_row, plan->max_count))
		return plan_refuse(maker->message,
				   "one task would take more than %llu operations or bytes",
				   ull(MAX_WORK));
	return plan->fuses ? fuser_init(&maker->fuser, plan, maker->writers, maker->lives) : 0;
}

static int count_reads(struct plan_maker *maker, uint32_t index)
{
	fuser_count(&maker->fuser, index);
	return 0;
}

static int fuse(struct plan_maker *maker, uint32_t index)
{
	fuser_fuse(&maker->fuser, index);
	return 0;
}

/* Begin the sums over nodes. Fusion, which moves costs between nodes, has ended. */
static int begin_sums(struct plan_maker *maker, uint32_t unused)
{
	fuser_deinit(&maker->fuser);
	maker->hash = hash_word(0xcbf29ce484222325ull, maker->plan->max_count);
	maker->plan->works = calloc(PLAN_MAX_WORKS, sizeof(*maker->plan->works));
	return maker->plan->works ? 0 : error_origin(-ENOMEM);
}

static int sum_node(struct plan_maker *maker, uint32_t index)
{
	struct plan *plan = maker->plan;
	const struct node *node = &plan->nodes[index];

	sum_blocked(plan, node);
	sum_work(maker, node);
	plan->n_pieces += (uint32_t)node->n_in + node->n_out;
	plan->n_pieces += plan_moves(node->op->kind) ? plan_n_moves(plan, node) : 0;
	hash_node(maker, node);
	return 0;
}

static int begin_layout(struct plan_maker *maker, uint32_t unused)
{
	struct plan *plan = maker->plan;

	plan->splits_rows = maker->has_count && !maker->mixes_rows && !maker->writes_fixed;
	plan->row_grain = row_grain(plan);
	plan->fingerprint = maker->hash ^ maker->hash >> 32;
	maker->n_steps += SORT_STEPS * plan->n_tensors;
	return layout_init(&maker->layout, plan, maker->lives);
}

static int place(struct plan_maker *maker, uint32_t index)
{
	const uint32_t n_before = maker->layout.n_steps;

	layout_place(&maker->layout, maker->plan, index);
	maker->n_steps += (maker->layout.n_steps - n_before) / SEARCH_STEPS;
	return 0;
}

static int end_layout(struct plan_maker *maker, uint32_t unused)
{
	return layout_end(&maker->layout, maker->plan, maker->message);
}

static int parse_header(struct plan_maker *maker, uint32_t unused)
{
	return plan_parse_header(maker->desc, maker->desc_bytes, maker->message, &maker->parsed);
}

static int parse_tensor(struct plan_maker *maker, uint32_t index)
{
	return plan_parse_tensor(&maker->parsed, index, maker->message);
}

static int parse_names(struct plan_maker *maker, uint32_t unused)
{
	maker->n_steps += SORT_STEPS * maker->parsed.header->n_tensors;
	return plan_parse_names(&maker->parsed, maker->message);
}

static int parse_node(struct plan_maker *maker, uint32_t index)
{
	return plan_parse_node(&maker->parsed, index, maker->message);
}

static int parse_attr(struct plan_maker *maker, uint32_t index)
{
	return plan_parse_attr(&maker->parsed, index, maker->message);
}

static int parse_edges(struct plan_maker *maker, uint32_t index)
{
	const uint32_t first = index * EDGES_PER_MARK;
	const uint32_t left = maker->parsed.header->n_edges - first;

	return plan_parse_edges(&maker->parsed, first,
				left < EDGES_PER_MARK ? left : EDGES_PER_MARK, maker->message);
}

/* Allocate the plan. Every byte of the description has been checked by now. */
static int begin_plan(struct plan_maker *maker, uint32_t unused)
{
	const struct rbk_plan_header *header = maker->parsed.header;
	struct plan *plan;

	plan = maker->plan = calloc(1, sizeof(*plan));
	if (!plan)
		return error_origin(-ENOMEM);
	plan->tensors = calloc(header->n_tensors, sizeof(*plan->tensors));
	plan->nodes = calloc(header->n_nodes, sizeof(*plan->nodes));
	maker->writers = calloc(header->n_tensors, sizeof(*maker->writers));
	maker->lives = calloc(header->n_tensors, sizeof(*maker->lives));
	maker->last_present =
		calloc(header->n_edges / EDGES_PER_MARK + 1, sizeof(*maker->last_present));
	if (!plan->tensors || !plan->nodes || !maker->writers || !maker->lives ||
	    !maker->last_present)
		return error_origin(-ENOMEM);
	memcpy(plan->name, header->name, sizeof(plan->name));
	plan->max_count = header->max_count;
	plan->n_tensors = header->n_tensors;
	plan->n_nodes = header->n_nodes;
	plan->fuses = !(header->flags & RBK_PLAN_NO_FUSION);
	plan->pinned = header->flags & RBK_PLAN_PINNED;
	plan->pinned_device = header->pinned_device;
	plan->ops_devices = UINT8_MAX;
	plan->data_independent = true;
	return 0;
}

static uint32_t once(const struct plan_maker *maker)
{
	return 1;
}

static uint32_t by_tensor(const struct plan_maker *maker)
{
	return maker->parsed.header->n_tensors;
}

static uint32_t by_node(const struct plan_maker *maker)
{
	return maker->parsed.header->n_nodes;
}

static uint32_t by_fused_node(const struct plan_maker *maker)
{
	return maker->plan->fuses ? by_node(maker) : 0;
}

static uint32_t by_attr(const struct plan_maker *maker)
{
	return maker->parsed.header->n_attrs;
}

/* Return: the number of marks; the last mark may have no edges. */
static uint32_t by_mark(const struct plan_maker *maker)
{
	return maker->parsed.header->n_edges / EDGES_PER_MARK + 1;
}

static uint32_t by_block(const struct plan_maker *maker)
{
	return maker->layout.n_blocks;
}

/* The stages of the work, in order: each calls item() for every index below n_items(). */
static const struct {
	uint32_t (*n_items)(const struct plan_maker *maker);
	int (*item)(struct plan_maker *maker, uint32_t index);
} stages[] = {
	{once, parse_header},
	{by_tensor, parse_tensor},
	{once, parse_names},
	{by_node, parse_node},
	{by_attr, parse_attr},
	{by_mark, parse_edges},
	{once, begin_plan},
	{by_mark, mark_edges},
	{by_tensor, make_any_tensor},
	{once, begin_constants},
	{by_tensor, make_any_constant},
	{by_node, make_node},
	{by_tensor, bind_tensor},
	{once, begin_fusion},
	{by_fused_node, count_reads},
	{by_fused_node, fuse},
	{once, begin_sums},
	{by_tensor, hash_tensor},
	{by_node, sum_node},
	{by_tensor, resolve_views},
	{once, begin_layout},
	{by_block, place},
	{once, end_layout},
};

int plan_maker_new(const void *desc, size_t desc_bytes, const struct plan_arena_lookup *lookup,
		   char message[PLAN_MESSAGE_BYTES], struct plan_maker **ret)
{
	struct plan_maker *maker = calloc(1, sizeof(*maker));

	if (!maker)
		return error_origin(-ENOMEM);
	maker->desc = desc;
	maker->desc_bytes = desc_bytes;
	maker->lookup = *lookup;
	maker->message = message;
	*ret = maker;
	return 0;
}

int plan_maker_work(struct plan_maker *maker, struct plan **ret)
{
	int r;

	maker->n_steps = 0;
	for (; maker->stage < ARRAY_SIZE(stages); maker->stage++) {
		const uint32_t n = stages[maker->stage].n_items(maker);

		while (maker->next < n) {
			if (maker->n_steps >= PLAN_PART_STEPS)
				return PLAN_E_MORE;
			maker->n_steps++;
			r = stages[maker->stage].item(maker, maker->next++);
			if (r)
				return r > 0 ? PLAN_E_INVALID : error_fold(r);
		}
		maker->next = 0;
	}
	*ret = steal_ptr(maker->plan);
	return 0;
}

struct plan_maker *plan_maker_free(struct plan_maker *maker)
{
	if (!maker)
		return NULL;
	free(maker->writers);
	free(maker->last_present);
	free(maker->lives);
	fuser_deinit(&maker->fuser);
	layout_deinit(&maker->layout);
	plan_free(maker->plan);
	free(maker);
	return NULL;
}

int plan_new(const void *desc, size_t desc_bytes, const struct plan_arena_lookup *lookup,
	     char message[PLAN_MESSAGE_BYTES], struct plan **ret)
{
	_cleanup_(plan_maker_freep) struct plan_maker *maker = NULL;
	int r;

	r = plan_maker_new(desc, desc_bytes, lookup, message, &maker);
	if (r)
		return error_fold(r);
	do
		r = plan_maker_work(maker, ret);
	while (r == PLAN_E_MORE);
	return r < 0 ? error_fold(r) : r;
}

uint64_t plan_new_bytes(size_t desc_bytes)
{
	/* Beside a tensor: sorted names, writers, lives, reads, and edges' marks. */
	const uint64_t tensor_bytes_each = sizeof(struct tensor) + sizeof(struct plan_constant) +
					   sizeof(struct plan_life) + 24 + PLAN_LAYOUT_TENSOR_BYTES;
	const uint64_t node_bytes_each = sizeof(struct node) + PLAN_LAYOUT_NODE_BYTES;
	const uint64_t most_bytes =
		RBK_MAX_PLAN_TENSORS * tensor_bytes_each + RBK_MAX_PLAN_NODES * node_bytes_each;
	/* The items that take the most bytes in proportion to their bytes on the wire. */
	const uint64_t by_tensors = desc_bytes * tensor_bytes_each / sizeof(struct rbk_plan_tensor);
	const uint64_t by_nodes = desc_bytes * node_bytes_each / sizeof(struct rbk_plan_node);
	const uint64_t bytes = by_tensors > by_nodes ? by_tensors : by_nodes;

	return sizeof(struct plan) + PLAN_MAX_WORKS * sizeof(struct plan_work) +
	       sizeof(struct plan_maker) + desc_bytes / 32 + 4096 +
	       (bytes < most_bytes ? bytes : most_bytes);
}

struct plan *plan_free(struct plan *plan)
{
	if (!plan)
		return NULL;
	free(plan->tensors);
	free(plan->nodes);
	free(plan->constants);
	free(plan->works);
	free(plan);
	return NULL;
}
