/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing plan_new()
 *
 * The input is a description. A rejected description must yield a message. An accepted one must
 * yield a plan with the properties that plan/plan.h guarantees, which are checked field by field.
 * Small plans are run by the reference implementation, whose reads and writes the sanitizer checks.
 *
 * Every plan is also cut at random. Each segment must be a plan with these properties, too, and the
 * segments of a small plan must have its results.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "place/cut-devices.h"
#include "plan/cut.h"
#include "plan/executor.h"
#include "plan/move.h"
#include "reference/reference.h"
#include "reference/segments.h"
#include "shm/operators/op-call.h"
#include "shm/dtype.h"

/* A plan above these limits is checked, but not run. */
#define MAX_RUN_WORK  (1u << 14)
#define MAX_RUN_BYTES (1u << 16)

/* Find out where a plan is cut to save time, on a CPU and two GPUs that are fast at one thing each.
 */
static void cut_by_time(const struct plan *plan)
{
	enum { DEVICES = 3 };
	_Alignas(struct place_cut_basis) char bytes[sizeof(struct place_cut_basis) +
						    DEVICES * sizeof(struct place_cut_device)] = {
		0};
	struct place_cut_basis *basis = (void *)bytes;
	const struct cut_wish wish = {.devices = OP_ON_VULKAN, .memory_bytes = 1 << 16};
	struct cut_choice choice = {.n = 0};

	/* The search takes as long as a hundred plans. */
	if (plan->fingerprint % 64 != 0)
		return;
	basis->n_devices = DEVICES;
	for (uint32_t i = 0; i < DEVICES; i++) {
		struct place_cut_device *device = &basis->devices[i];

		device->room_bytes = plan->fingerprint & 64 ? UINT64_MAX : wish.memory_bytes;
		device->kind = i == 0 ? OP_ON_CPU : OP_ON_VULKAN;
		device->profile.is_valid = true;
		device->profile.n_servers_per_task = 1;
		for (unsigned int family = 0; family < OP_FAMILY_COUNT; family++)
			for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++)
				device->profile.rates[family][k] = (struct place_rate){
					.flops_per_ns = family % DEVICES == i ? 1 : 0.001f,
					.bytes_per_ns = 1};
	}
	if (!place_cut_points(basis, plan, &wish, &choice))
		return;
	assert(choice.n < CUT_MAX_SEGMENTS && choice.n < plan->n_nodes);
	for (uint32_t i = 0; i < choice.n; i++)
		assert(choice.firsts[i] > (i > 0 ? choice.firsts[i - 1] : 0) &&
		       choice.firsts[i] < plan->n_nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Arena 1 has memory, arena 2 is not immutable, and no other arena exists. */
static struct exec_arena arena;

static struct exec_arena *find_arena(void *context, uint16_t arena_id, const char **ret_why)
{
	if (!arena.base)
		reference_arena_init(&arena, 1 << 16, 1);
	if (arena_id == 1)
		return &arena;
	*ret_why = arena_id == 2 ? "arena 2 is not sealed against writing" : "no such arena";
	return NULL;
}

static void check_shape(const struct plan *plan, const struct shape *shape)
{
	assert(shape->rank <= RBK_MAX_RANK);
	assert(!shape->dynamic || (shape->rank > 0 && shape->dims[0] == plan->max_count));
	for (unsigned int i = 0; i < shape->rank; i++)
		assert(shape->dims[i] >= 1 && shape->dims[i] <= INT32_MAX);
}

static void check_tensor(const struct plan *plan, const struct tensor *tensor)
{
	uint64_t elem = dtype_bytes(tensor->dtype), max;

	assert(tensor->name[0] && strnlen(tensor->name, RBK_NAME_BYTES) < RBK_NAME_BYTES);
	assert(tensor->kind < RBK_TENSOR_KIND_COUNT);
	assert(elem > 0);
	check_shape(plan, &tensor->shape);
	max = elem * shape_elems(&tensor->shape, plan->max_count);
	assert(max == tensor->max_bytes && max >= elem && max <= PLAN_MAX_BYTES);
	assert(tensor_bytes(tensor, plan->max_count) == max);
	assert(tensor_bytes(tensor, 1) == elem * shape_elems(&tensor->shape, 1));
	assert((tensor->fixed_bytes == 0) == tensor->shape.dynamic);
	assert((tensor->row_bytes != 0) == tensor->shape.dynamic);
	if (tensor->kind == RBK_TENSOR_SCRATCH &&
	    plan->tensors[tensor->root].kind == RBK_TENSOR_SCRATCH) {
		assert(tensor->scratch_offset % PLAN_SCRATCH_ALIGN == 0);
		assert(tensor->scratch_offset + max <= plan->scratch_bytes);
	} else if (tensor->kind == RBK_TENSOR_SCRATCH) {
		assert(plan->tensors[tensor->root].max_bytes == max);
	} else if (tensor->kind == RBK_TENSOR_CONSTANT) {
		const struct plan_constant *constant = &plan->constants[tensor->constant];

		assert(tensor->constant < plan->n_constants);
		assert(&plan->tensors[constant->tensor] == tensor);
		assert(constant->arena == &arena && constant->offset % RBK_REF_ALIGN == 0);
		assert(constant->bytes == max && constant->offset + max <= arena.bytes);
	} else {
		const struct plan_binding *binding = &plan->bindings[tensor->binding];

		assert(tensor->binding < plan->n_bindings);
		assert(&plan->tensors[binding->tensor] == tensor);
		assert(binding->fixed_bytes == tensor->fixed_bytes);
		assert(binding->row_bytes == tensor->row_bytes);
		assert(binding->written == (tensor->kind != RBK_TENSOR_INPUT));
	}
}

static void check_node(const struct plan *plan, unsigned int index, unsigned int *writers)
{
	const struct node *node = &plan->nodes[index];
	unsigned int n_in = 0, n_out = 0;

	assert(node->op && op_by_kind(node->op->kind) == node->op);
	assert(node->n_in >= node->op->min_in &&
	       node->n_in <= node->op->max_in + (node->sum != PLAN_NO_NODE));
	assert(node->n_out >= node->op->min_out && node->n_out <= node->op->max_out);
	for (unsigned int i = 0; i < OP_MAX_INPUTS; i++) {
		uint16_t t = node->in[i];

		if (t == PLAN_NO_TENSOR)
			continue;
		n_in = i + 1;
		assert(t < plan->n_tensors);
		assert((plan->tensors[t].kind != RBK_TENSOR_OUTPUT &&
			plan->tensors[t].kind != RBK_TENSOR_SCRATCH) ||
		       writers[t]);
	}
	for (unsigned int i = 0; i < OP_MAX_OUTPUTS; i++) {
		uint16_t t = node->out[i];

		if (t == PLAN_NO_TENSOR)
			continue;
		n_out = i + 1;
		assert(t < plan->n_tensors && !writers[t]);
		assert(plan->tensors[t].kind != RBK_TENSOR_INPUT);
		assert(plan->tensors[t].kind != RBK_TENSOR_CONSTANT);
		writers[t] = index + 1;
	}
	assert(n_in == node->n_in && n_out == node->n_out);
}

static bool is_in_block(const struct plan *plan, const struct tensor *tensor)
{
	return tensor->kind == RBK_TENSOR_SCRATCH &&
	       plan->tensors[tensor->root].kind == RBK_TENSOR_SCRATCH;
}

/*
 * Check that scratch tensors which overlap in the block do not overlap in time, unless they share a
 * root.
 */
static void check_layout(const struct plan *plan, const unsigned int *writers,
			 const unsigned int *last)
{
	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		const struct tensor *a = &plan->tensors[i];

		for (unsigned int j = 0; is_in_block(plan, a) && j < i; j++) {
			const struct tensor *b = &plan->tensors[j];

			if (is_in_block(plan, b) && a->root != b->root &&
			    a->scratch_offset < b->scratch_offset + b->max_bytes &&
			    b->scratch_offset < a->scratch_offset + a->max_bytes)
				assert(last[i] < writers[j] || last[j] < writers[i]);
		}
	}
}

/*
 * Check the node @along that node @index computes along with its own, and record that the output of
 * @along is written by the step of @index. @from: the input of @along that @index produces.
 */
static void check_along(const struct plan *plan, unsigned int index, unsigned int along,
			uint16_t from, unsigned int *writers)
{
	const struct node *node = &plan->nodes[index], *next = &plan->nodes[along];

	assert(along > index && along < plan->n_nodes && node->n_out == 1 && next->n_out == 1);
	assert(next->computed_by == index && node->computed_by == PLAN_NO_NODE);
	assert(next->in[0] == from || next->in[1] == from);
	assert(plan->tensors[from].root == plan->tensors[next->out[0]].root);
	assert(shape_equal(&plan->tensors[from].shape, &plan->tensors[next->out[0]].shape));
	assert(plan->tensors[from].dtype == plan->tensors[next->out[0]].dtype);
	writers[next->out[0]] = writers[node->out[0]];
}

static void check_fused(const struct plan *plan, unsigned int index, unsigned int *writers)
{
	const struct node *node = &plan->nodes[index], *sum;
	uint16_t result = node->out[0];

	if (node->sum != PLAN_NO_NODE) {
		sum = &plan->nodes[node->sum];
		check_along(plan, index, node->sum, result, writers);
		assert(sum->in[sum->in[0] == result] == node->in[2]);
		result = sum->out[0];
	}
	if (node->activation != PLAN_NO_NODE) {
		assert(plan->nodes[node->activation].n_in == 1);
		check_along(plan, index, node->activation, result, writers);
		result = plan->nodes[node->activation].out[0];
	}
	assert(plan_result(plan, node, 0) == result);
}

/* Check that the elements which a move reads or writes lie within its tensor. */
static void check_side(const struct plan *plan, const struct move *move, uint16_t tensor,
		       uint64_t first, const int64_t *strides)
{
	uint64_t low = first, high = first;

	for (unsigned int d = 0; d < move->n_dims; d++) {
		const uint64_t n =
			move->extent[d] * (d == 0 && move->dynamic ? plan->max_count : 1);

		assert(n > 0);
		if (strides[d] < 0)
			low -= (n - 1) * (uint64_t)-strides[d];
		else
			high += (n - 1) * (uint64_t)strides[d];
	}
	assert(low <= first && high >= first);
	assert(high + move->element_bytes <= plan->tensors[tensor].max_bytes);
}

static void check_moves(const struct plan *plan, const struct node *node)
{
	struct move move;

	if (!plan_moves(node->op->kind))
		return;
	for (unsigned int i = 0; i < plan_n_moves(plan, node); i++) {
		if (!plan_move(plan, node, i, &move))
			continue;
		for (unsigned int wide = 0; wide < 2; wide++) {
			assert(move.n_dims <= MOVE_MAX_DIMS);
			check_side(plan, &move, move.to, move.to_first, move.to_stride);
			if (move.from != PLAN_NO_TENSOR)
				check_side(plan, &move, move.from, move.from_first,
					   move.from_stride);
			move_widen(&move, 16);
		}
	}
}

static void check_plan(const struct plan *plan)
{
	unsigned int *writers = calloc(plan->n_tensors, sizeof(*writers));
	unsigned int *last = calloc(plan->n_tensors, sizeof(*last));
	uint64_t fixed = 0, row = 0;

	assert(writers && last && plan->n_nodes >= 1 && plan->max_count >= 1);
	assert(plan->n_bindings >= 1 && plan->n_bindings <= RBK_MAX_REFS);
	assert(!plan->pinned || plan->pinned_device < RBK_MAX_DEVICES);
	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		check_tensor(plan, &plan->tensors[i]);
		if (plan->tensors[i].kind != RBK_TENSOR_SCRATCH) {
			fixed += plan->tensors[i].fixed_bytes;
			row += plan->tensors[i].row_bytes;
		}
	}
	assert(plan->touched_fixed == fixed && plan->touched_row == row);
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		check_node(plan, i, writers);
		check_moves(plan, node);
		for (unsigned int j = 0; j < node->n_in; j++) {
			if (node->in[j] != PLAN_NO_TENSOR)
				last[node->in[j]] = i + 1;
		}
		for (unsigned int j = 0; j < node->n_out; j++) {
			if (node->out[j] != PLAN_NO_TENSOR)
				last[node->out[j]] = i + 1;
		}
	}
	for (unsigned int i = 0; i < plan->n_tensors; i++)
		assert(writers[i] || (plan->tensors[i].kind != RBK_TENSOR_OUTPUT &&
				      plan->tensors[i].kind != RBK_TENSOR_SCRATCH));
	for (unsigned int i = 0; i < plan->n_nodes; i++)
		check_fused(plan, i, writers);
	check_layout(plan, writers, last);
	assert(plan_flops(plan, plan->max_count) >= plan_flops(plan, 1));
	free(writers);
	free(last);
}

/* Return true if a node takes indices, which the reference requires to be in range. */
static bool has_indices(const struct plan *plan)
{
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const enum op_kind kind = plan->nodes[i].op->kind;

		if (kind == OP_GATHER || kind == OP_GATHER_ELEMENTS || kind == OP_GATHER_ND ||
		    kind == OP_SCATTER_ELEMENTS || kind == OP_SCATTER_ND)
			return true;
	}
	return false;
}

static bool may_run(const struct plan *plan, uint32_t count)
{
	uint64_t bytes = plan_touched_bytes(plan, count);

	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		if (plan->tensors[i].kind == RBK_TENSOR_SCRATCH)
			bytes += tensor_bytes(&plan->tensors[i], count);
	}
	return !has_indices(plan) && bytes <= MAX_RUN_BYTES &&
	       plan_flops(plan, count) <= MAX_RUN_WORK;
}

/* Run a plan, whole and as the segments of @cut (NULL: it cannot be cut so). */
static void run_plan(const struct plan *plan, const struct cut *cut, uint32_t count)
{
	const struct plan_arena_lookup lookup = {.find = find_arena};
	struct reference_buffers buffers, others;
	uint64_t order = plan->fingerprint | 1;

	if (!may_run(plan, count))
		return;
	reference_buffers_init(&buffers, plan, count, 1);
	reference_buffers_copy(&others, &buffers);
	reference_run(plan, count, buffers.bindings);
	/* The crossing block has room for max_count rows, whatever @count is. */
	if (cut && cut_crossing_bytes(cut) <= MAX_RUN_BYTES) {
		reference_run_segments(cut, &lookup, count, others.bindings, &order);
		for (unsigned int i = 0; i < buffers.n; i++)
			assert(memcmp(others.bindings[i], buffers.bindings[i], buffers.bytes[i]) ==
			       0);
	}
	reference_buffers_deinit(&others);
	reference_buffers_deinit(&buffers);
}

/*
 * Cut a plan, and check the segments. Return: NULL: a segment would have too many references, or
 * the crossing block too many bytes.
 */
static struct cut *cut_plan(const void *desc, size_t bytes, const struct plan *plan)
{
	const struct plan_arena_lookup lookup = {.find = find_arena};
	uint64_t state = plan->fingerprint | 1;
	uint16_t firsts[CUT_MAX_SEGMENTS];
	const uint32_t n = reference_firsts(plan, &state, firsts);
	struct plan *segment;
	struct cut *cut;
	int r;

	r = cut_new(desc, bytes, plan, firsts, n, &cut);
	assert(r == 0 || ((r == CUT_E_REFS || r == CUT_E_BYTES) && n > 0));
	for (uint32_t i = 0; r == 0 && i < cut_n_segments(cut); i++) {
		segment = reference_segment(cut, i, &lookup);
		check_plan(segment);
		plan_free(segment);
	}
	return r == 0 ? cut : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct plan_arena_lookup lookup = {.find = find_arena};
	char message[PLAN_MESSAGE_BYTES];
	struct plan *plan = NULL;
	struct cut *cut;
	void *aligned;
	int r;

	/* The parser requires 8-byte alignment; fuzzing engines do not guarantee it. */
	aligned = malloc(bytes ? bytes : 1);
	assert(aligned);
	if (bytes)
		memcpy(aligned, data, bytes);
	memset(message, 0xff, sizeof(message));
	r = plan_new(aligned, bytes, &lookup, message, &plan);
	if (r) {
		size_t n = strnlen(message, sizeof(message));

		assert(r == PLAN_E_INVALID && !plan && n > 0 && n < sizeof(message));
		for (size_t i = 0; i < n; i++)
			assert(message[i] >= 0x20 && message[i] <= 0x7e);
		free(aligned);
		return 0;
	}
	check_plan(plan);
	cut_by_time(plan);
	cut = cut_plan(aligned, bytes, plan);
	run_plan(plan, cut, 1);
	run_plan(plan, cut, plan->max_count);
	cut_free(cut);
	plan_free(plan);
	free(aligned);
	return 0;
}
