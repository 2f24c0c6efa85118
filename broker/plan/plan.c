/* SPDX-License-Identifier: MIT */
/*
 * Plans: verified graphs, immutable once made
 *
 * The description's bytes have been checked by plan-parse.c; here the graph gets its meaning, in
 * one pass over the nodes in execution order:
 *
 *   - a node reads only what has a value by then: inputs, constants and states always do, outputs
 *     and scratch tensors once a node before it wrote them;
 *   - every output and scratch tensor is written by exactly one node, a state by at most one,
 *     inputs and constants by none;
 *   - a state's old value is seen by the nodes before its writer and by the writer, the new one by
 *     those after it. It is updated in place, so a writer that reads it as well must be an operator
 *     whose element i depends on elements i only (struct op: in_place);
 *   - the operator's shape rule turns the inputs' shapes into the outputs', which are compared with
 *     what was declared or, where the client left it open, become the tensor's shape.
 *
 * No tensor exceeds PLAN_MAX_BYTES, and so no sum over the at most 4,096 tensors overflows 64 bits;
 * costs are products of more than shapes and saturate until they are compared with MAX_WORK.
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

/* Operations and bytes of one task: far beyond what any device does in a lifetime. */
#define MAX_WORK (1ull << 62)

enum {
	NO_NODE = 0xffff,
	EDGES_PER_MARK = 64,
};

/* What is needed while a plan is made. */
struct maker {
	struct plan_parsed parsed;
	const struct plan_arena_lookup *lookup;
	char *message;
	struct plan *plan;
	uint16_t *writers;       /* by tensor; NO_NODE: none yet */
	uint32_t *last_present;  /* see mark_edges() */
	struct plan_life *lives; /* by tensor */
	bool has_count;          /* some tensor is dynamic */
	bool mixes_rows;         /* some node computes rows from other rows */
};

static void maker_deinit(struct maker *maker)
{
	free(maker->writers);
	free(maker->last_present);
	free(maker->lives);
	plan_free(maker->plan);
}

static const char *kind_name(uint8_t kind)
{
	static const char *const names[RBK_TENSOR_KIND_COUNT] = {
		[RBK_TENSOR_INPUT] = "an input",           [RBK_TENSOR_OUTPUT] = "an output",
		[RBK_TENSOR_CONSTANT] = "a constant",      [RBK_TENSOR_STATE] = "a state",
		[RBK_TENSOR_SCRATCH] = "a scratch tensor",
	};

	return names[kind];
}

/* Gives a tensor its shape. */
static int set_shape(struct maker *maker, unsigned int index, const struct shape *shape)
{
	struct tensor *tensor = &maker->plan->tensors[index];
	uint64_t unit = dtype_bytes(tensor->dtype), total;
	bool fits = true;

	for (unsigned int i = shape->dynamic; i < shape->rank; i++)
		fits = fits && checked_mul(unit, shape->dims[i], &unit);
	fits = fits && checked_mul(unit, shape->dynamic ? shape->dims[0] : 1, &total);
	if (!fits || total > PLAN_MAX_BYTES)
		return plan_refuse(
			maker->message, "tensor %u \"%s\" %s would have more than %llu bytes",
			index, tensor->name, SHAPE_TEXT(shape), (unsigned long long)PLAN_MAX_BYTES);
	tensor->shape = *shape;
	tensor->fixed_bytes = shape->dynamic ? 0 : unit;
	tensor->row_bytes = shape->dynamic ? unit : 0;
	tensor->max_bytes = total;
	maker->has_count |= shape->dynamic;
	return 0;
}

static int make_tensor(struct maker *maker, unsigned int index)
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

static int make_constant(struct maker *maker, unsigned int index)
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
				   index, tensor->name, (unsigned long long)RBK_REF_OFFSET(ref),
				   RBK_REF_ALIGN);
	arena = maker->lookup->find(maker->lookup->context, RBK_REF_ARENA(ref), &why);
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
			index, tensor->name, (unsigned long long)tensor->max_bytes,
			(unsigned long long)RBK_REF_OFFSET(ref), (unsigned long long)arena->bytes,
			RBK_REF_ARENA(ref));
	constant = &maker->plan->constants[maker->plan->n_constants];
	constant->tensor = (uint16_t)index;
	constant->arena = arena;
	constant->offset = RBK_REF_OFFSET(ref);
	constant->bytes = tensor->max_bytes;
	tensor->constant = maker->plan->n_constants++;
	maker->plan->constant_bytes += constant->bytes;
	return 0;
}

static int make_tensors(struct maker *maker)
{
	struct plan *plan = maker->plan;
	unsigned int n_constants = 0;
	int r;

	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		r = make_tensor(maker, i);
		if (r)
			return r;
		n_constants += plan->tensors[i].kind == RBK_TENSOR_CONSTANT;
	}
	if (!maker->has_count && plan->max_count != 1)
		return plan_refuse(maker->message,
				   "max_count is %u, expected 1 as no tensor has count as its "
				   "leading dimension",
				   plan->max_count);
	if (n_constants == 0)
		return 0;
	plan->constants = calloc(n_constants, sizeof(*plan->constants));
	if (!plan->constants)
		return error_origin(-ENOMEM);
	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		if (plan->tensors[i].kind != RBK_TENSOR_CONSTANT)
			continue;
		r = make_constant(maker, i);
		if (r)
			return r;
	}
	return 0;
}

/* A tensor as shape rules see it. Return: @ret. */
static const struct op_tensor *view(const struct tensor *tensor, struct op_tensor *ret)
{
	*ret = (struct op_tensor){tensor->name, tensor->dtype, tensor->shape};
	return ret;
}

static int check_reads(struct maker *maker, struct op_call *call, const struct node *node,
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

static int check_writes(struct maker *maker, struct op_call *call, const struct node *node,
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

/* Compares what the rule inferred with what was declared, or declares it. */
static int check_outputs(struct maker *maker, struct op_call *call, const struct node *node)
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

/* Does the node compute a row of its outputs from other rows, too? */
static bool node_mixes_rows(const struct op_call *call)
{
	bool in_dynamic = false, out_dynamic = true;

	for (unsigned int i = 0; i < call->n_in; i++)
		in_dynamic |= call->in[i] && call->in[i]->shape.dynamic;
	for (unsigned int i = 0; i < call->n_out; i++)
		out_dynamic &= !call->out[i] || call->out_shape[i].dynamic;
	return in_dynamic && (!out_dynamic || call->mixes_rows || !call->op->splits_rows);
}

static int find_op(struct maker *maker, unsigned int index, const struct op **ret)
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
 * Nodes may share edges, so thousands of nodes may each end with the same tens of thousands of
 * absent ones. Entry i of the index is 1 + the last edge before (i + 1) * EDGES_PER_MARK that is
 * present, or 0; it bounds what count_edges() looks at. Return: 0; -ENOMEM.
 */
static int mark_edges(struct maker *maker)
{
	const uint32_t n_edges = maker->parsed.header->n_edges;
	uint32_t last = 0;

	maker->last_present = calloc(n_edges / EDGES_PER_MARK + 1, sizeof(*maker->last_present));
	if (!maker->last_present)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < n_edges; i++) {
		if (maker->parsed.edges[i] != RBK_PLAN_NO_TENSOR)
			last = i + 1;
		maker->last_present[i / EDGES_PER_MARK] = last;
	}
	return 0;
}

/* Return: how many of the @n edges from @first there are without absent ones at the end. */
static uint32_t count_edges(const struct maker *maker, uint32_t first, uint32_t n)
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
 * Copies up to @max of @n edges from @first; those beyond are absent. Return: as count_edges(); may
 * be more than @max.
 */
static unsigned int copy_edges(const struct maker *maker, uint32_t first, uint32_t n,
			       unsigned int max, uint16_t *ret)
{
	n = count_edges(maker, first, n);
	for (unsigned int i = 0; i < max; i++)
		ret[i] = i < n ? maker->parsed.edges[first + i] : PLAN_NO_TENSOR;
	return n;
}

/* What the node's steps may take for themselves. */
static int set_work(struct maker *maker, struct op_call *call, struct node *node)
{
	uint64_t bytes = 0;

	if (node->op->work)
		node->work_bytes = node->op->work(call);
	/* Executors may compute in float32: no more than PLAN_MAX_BYTES each. */
	for (unsigned int i = 0; i < call->n_in + call->n_out; i++) {
		const uint16_t t = i < call->n_in ? node->in[i] : node->out[i - call->n_in];

		if (t == PLAN_NO_TENSOR || maker->plan->tensors[t].dtype != RBK_DTYPE_F16)
			continue;
		checked_align(2 * maker->plan->tensors[t].max_bytes, PLAN_SCRATCH_ALIGN, &bytes);
		if (!checked_add(node->work_bytes, bytes, &node->work_bytes))
			node->work_bytes = UINT64_MAX;
	}
	if (node->work_bytes > PLAN_MAX_BYTES)
		return op_call_refuse(call, "it would need more than %llu bytes to work in",
				      (unsigned long long)PLAN_MAX_BYTES);
	if (node->work_bytes > maker->plan->work_bytes)
		maker->plan->work_bytes = node->work_bytes;
	return 0;
}

/*
 * Makes the output of a Reshape a view of the input, or the input one of the output, where either
 * is scratch. States keep their bytes for themselves: they change in the middle of a plan.
 */
static void make_view(struct maker *maker, const struct node *node)
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
 * Views of views, and how long roots live. Thousands of nodes that work in place make one chain, so
 * whatever is passed on the way to a root is pointed there: over all tensors that takes n log n.
 */
static void resolve_views(struct maker *maker)
{
	struct tensor *tensors = maker->plan->tensors;

	for (unsigned int i = 0; i < maker->plan->n_tensors; i++) {
		uint16_t root = tensors[i].root, next;

		/* There are no circles: a tensor points to one that was there before it did. */
		while (tensors[root].root != root)
			root = tensors[root].root;
		for (uint16_t t = (uint16_t)i; t != root; t = next) {
			next = tensors[t].root;
			tensors[t].root = root;
		}
		if (maker->lives[root].last < maker->lives[i].last)
			maker->lives[root].last = maker->lives[i].last;
	}
}

static int make_node(struct maker *maker, unsigned int index)
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
	/* More than there is room for are refused next. */
	node->n_in = (uint8_t)call.n_in;
	node->n_out = (uint8_t)call.n_out;
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

	/* Powers of two: the largest is a multiple of all. */
	for (uint32_t i = 0; i < plan->n_bindings; i++) {
		uint64_t row_bytes = plan->bindings[i].row_bytes;

		while (row_bytes * grain % RBK_REF_ALIGN != 0)
			grain *= 2;
	}
	return (uint32_t)grain;
}

/* FNV-1a, word by word. */
static uint64_t hash_word(uint64_t hash, uint64_t word)
{
	return (hash ^ word) * 0x100000001b3ull;
}

/* Attributes count as far as they change shapes or work. */
static uint64_t fingerprint(const struct plan *plan)
{
	uint64_t hash = hash_word(0xcbf29ce484222325ull, plan->max_count);

	for (uint32_t i = 0; i < plan->n_tensors; i++) {
		const struct tensor *tensor = &plan->tensors[i];

		hash = hash_word(hash, (uint64_t)tensor->kind << 8 | tensor->dtype);
		hash = hash_word(hash, (uint64_t)tensor->shape.dynamic << 8 | tensor->shape.rank);
		for (uint32_t k = 0; k < tensor->shape.rank; k++)
			hash = hash_word(hash, tensor->shape.dims[k]);
	}
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		hash = hash_word(hash, node->op->kind);
		for (uint32_t k = 0; k < node->n_in; k++)
			hash = hash_word(hash, node->in[k]);
		for (uint32_t k = 0; k < node->n_out; k++)
			hash = hash_word(hash, node->out[k]);
		hash = hash_word(hash, node->cost.flops_fixed);
		hash = hash_word(hash, node->cost.flops_row);
		hash = hash_word(hash, node->cost.bytes_fixed);
		hash = hash_word(hash, node->cost.bytes_row);
	}
	return hash ^ hash >> 32;
}

/* After fusion, by which nodes take the work of others. No sum overflows: see MAX_WORK. */
static void sum_blocked(struct plan *plan)
{
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		if (node->op->kind != OP_MATMUL && node->op->kind != OP_GEMM &&
		    node->op->kind != OP_CONV)
			continue;
		plan->blocked_flops_fixed += node->cost.flops_fixed;
		plan->blocked_flops_row += node->cost.flops_row;
	}
}

/* Kind of plan->works[i]: that of the first node that was counted there. */
struct work_kind {
	struct cost cost;
	int digits;
};

/* Count the binary digits of one task's work. */
static int work_digits(const struct plan *plan, const struct cost *cost)
{
	const double n = (double)cost->flops_fixed + (double)cost->bytes_fixed +
			 ((double)cost->flops_row + (double)cost->bytes_row) * plan->max_count;

	return n < 0x1p63 ? 64 - __builtin_clzll((uint64_t)n | 1) : 64;
}

/* Return: where a node of @family and @kind is counted. */
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
	/* The last ones are for families that were not there before. */
	if (nearest < plan->n_works && plan->n_works >= PLAN_MAX_WORKS - OP_FAMILY_COUNT)
		return nearest;
	plan->works[plan->n_works].family = family;
	return plan->n_works++;
}

/* After fusion, by which nodes take the work of others. Return: 0; -ENOMEM. */
static int sum_works(struct plan *plan)
{
	struct work_kind kinds[PLAN_MAX_WORKS], kind;

	plan->works = calloc(PLAN_MAX_WORKS, sizeof(*plan->works));
	if (!plan->works)
		return error_origin(-ENOMEM);
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];
		uint32_t k;

		if (node->computed_by != PLAN_NO_NODE)
			continue;
		kind.cost = node->cost;
		kind.digits = work_digits(plan, &node->cost);
		k = find_work(plan, kinds, node->op->family, &kind);
		if (plan->works[k].n++ == 0)
			kinds[k] = kind;
		cost_add(&plan->works[k].cost, &node->cost);
	}
	return 0;
}

/* Numbers the bindings and sums up, once every tensor has its shape. */
static int finish(struct maker *maker)
{
	struct plan *plan = maker->plan;
	bool writes_fixed = false, has_result = false;
	int r;

	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		struct tensor *tensor = &plan->tensors[i];
		struct plan_binding *binding;

		if ((tensor->kind == RBK_TENSOR_OUTPUT || tensor->kind == RBK_TENSOR_SCRATCH) &&
		    maker->writers[i] == NO_NODE)
			return plan_refuse(maker->message,
					   "tensor %u \"%s\" is %s, but no node writes it", i,
					   tensor->name, kind_name(tensor->kind));
		if (tensor->kind == RBK_TENSOR_SCRATCH)
			continue;
		plan->touched_fixed += tensor->fixed_bytes;
		plan->touched_row += tensor->row_bytes;
		if (tensor->kind == RBK_TENSOR_CONSTANT)
			continue;
		if (plan->n_bindings == RBK_MAX_REFS)
			return plan_refuse(maker->message,
					   "tensor %u \"%s\" is %s, but the plan has %u inputs, "
					   "outputs and states before it, expected at most %u",
					   i, tensor->name, kind_name(tensor->kind), RBK_MAX_REFS,
					   RBK_MAX_REFS);
		tensor->binding = plan->n_bindings++;
		binding = &plan->bindings[tensor->binding];
		binding->fixed_bytes = tensor->fixed_bytes;
		binding->row_bytes = tensor->row_bytes;
		binding->tensor = (uint16_t)i;
		binding->written = tensor->kind != RBK_TENSOR_INPUT;
		has_result |= binding->written && maker->writers[i] != NO_NODE;
		writes_fixed |= binding->written && !tensor->shape.dynamic;
		plan->has_state |= tensor->kind == RBK_TENSOR_STATE;
	}
	if (!has_result)
		return plan_refuse(maker->message,
				   "the plan has no result, expected a node that writes an output "
				   "or a state");
	if (!work_fits(plan->cost.flops_fixed, plan->cost.flops_row, plan->max_count) ||
	    !work_fits(plan->cost.bytes_fixed, plan->cost.bytes_row, plan->max_count))
		return plan_refuse(maker->message,
				   "one task would take more than %llu operations or bytes",
				   (unsigned long long)MAX_WORK);
	if (plan->fuses) {
		r = plan_fuse(plan, maker->writers, maker->lives);
		if (r)
			return error_fold(r);
	}
	sum_blocked(plan);
	r = sum_works(plan);
	if (r)
		return error_fold(r);
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		plan->n_pieces += (uint32_t)node->n_in + node->n_out;
		plan->n_pieces += plan_moves(node->op->kind) ? plan_n_moves(plan, node) : 0;
	}
	plan->splits_rows = maker->has_count && !maker->mixes_rows && !writes_fixed;
	plan->row_grain = row_grain(plan);
	plan->fingerprint = fingerprint(plan);
	resolve_views(maker);
	return plan_layout(plan, maker->lives, maker->message);
}

int plan_new(const void *desc, size_t desc_bytes, const struct plan_arena_lookup *lookup,
	     char message[PLAN_MESSAGE_BYTES], struct plan **ret)
{
	_cleanup_(maker_deinit) struct maker maker = {.lookup = lookup, .message = message};
	const struct rbk_plan_header *header;
	struct plan *plan;
	int r;

	r = plan_parse(desc, desc_bytes, message, &maker.parsed);
	if (r)
		return r > 0 ? PLAN_E_INVALID : error_fold(r);
	header = maker.parsed.header;

	plan = maker.plan = calloc(1, sizeof(*plan));
	if (!plan)
		return error_origin(-ENOMEM);
	plan->tensors = calloc(header->n_tensors, sizeof(*plan->tensors));
	plan->nodes = calloc(header->n_nodes, sizeof(*plan->nodes));
	maker.writers = calloc(header->n_tensors, sizeof(*maker.writers));
	maker.lives = calloc(header->n_tensors, sizeof(*maker.lives));
	if (!plan->tensors || !plan->nodes || !maker.writers || !maker.lives)
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

	r = mark_edges(&maker);
	if (!r)
		r = make_tensors(&maker);
	for (unsigned int i = 0; !r && i < plan->n_nodes; i++)
		r = make_node(&maker, i);
	if (!r)
		r = finish(&maker);
	if (r)
		return r > 0 ? PLAN_E_INVALID : error_fold(r);
	*ret = steal_ptr(maker.plan);
	return 0;
}

uint64_t plan_new_bytes(size_t desc_bytes)
{
	/* Beside a tensor: what names are sorted with, writers, lives, reads, edges' marks. */
	const uint64_t tensor_bytes_each = sizeof(struct tensor) + sizeof(struct plan_constant) +
					   sizeof(struct plan_life) + 24 + PLAN_LAYOUT_TENSOR_BYTES;
	const uint64_t node_bytes_each = sizeof(struct node) + PLAN_LAYOUT_NODE_BYTES;
	const uint64_t most_bytes =
		RBK_MAX_PLAN_TENSORS * tensor_bytes_each + RBK_MAX_PLAN_NODES * node_bytes_each;
	/* As many of those that take most in comparison with what they are on the wire. */
	const uint64_t by_tensors = desc_bytes * tensor_bytes_each / sizeof(struct rbk_plan_tensor);
	const uint64_t by_nodes = desc_bytes * node_bytes_each / sizeof(struct rbk_plan_node);
	const uint64_t bytes = by_tensors > by_nodes ? by_tensors : by_nodes;

	return sizeof(struct plan) + PLAN_MAX_WORKS * sizeof(struct plan_work) + desc_bytes / 32 +
	       4096 + (bytes < most_bytes ? bytes : most_bytes);
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
