/* SPDX-License-Identifier: MIT */
/* Cut points: where a plan is cut into segments */
#include <stdlib.h>

#include "plan/cut-points.h"
#include "shm/operators/op-call.h"
#include "util/cleanup.h"
#include "util/number.h"

enum {
	/*
	 * Least estimated time on the CPU, less the time to move crossing tensors, of a run of
	 * nodes that goes to a device: several times what a submission takes
	 */
	WORTH_NS = 100000,
	KNOWN_WORTH_NS = 10000, /* the same of known gains, less the submissions of the pieces */
	FLOPS_PER_NS = 32,
	BYTES_PER_NS = 16,
	CROSSING_BYTES_PER_NS = 8,
	/* Pieces that the device memory has room for; most pieces of all constants */
	PIECES_RESIDENT = 8,
	PIECES_MOST = 32,
	MOST_SCALE = 1 << 16, /* of the numbers above */
};

/* The node that writes a tensor, and the last that reads it */
struct uses {
	uint16_t writer, reader; /* PLAN_NO_NODE: none */
};

/* A cut in progress */
struct points {
	const struct plan *plan;
	const struct uses *uses; /* by tensor */
	const struct cut_wish *wish;
	uint64_t worth_ns;
	uint64_t piece_bytes; /* of a segment's constants, on a device */
	uint16_t *firsts;
	uint32_t n; /* may exceed what firsts has room for */
	bool is_on_device, has_device;
	uint64_t constant_bytes; /* of the present segment */
	uint16_t joined;         /* last node that is computed along with an earlier one */
};

static uint64_t constants_of(const struct plan *plan, const struct node *node)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < node->n_in; i++)
		if (node->in[i] != PLAN_NO_TENSOR &&
		    plan->tensors[node->in[i]].kind == RBK_TENSOR_CONSTANT)
			bytes += plan->tensors[node->in[i]].max_bytes;
	return bytes;
}

static bool is_scratch(const struct plan *plan, uint16_t t)
{
	return t != PLAN_NO_TENSOR && plan->tensors[t].kind == RBK_TENSOR_SCRATCH;
}

/* Return true if devices hold the type of tensor @t, if any. */
static bool has_type(const struct plan *plan, const struct cut_wish *wish, uint16_t t)
{
	return t == PLAN_NO_TENSOR || wish->types == 0 ||
	       wish->types & OP_TYPE(plan->tensors[t].dtype);
}

static bool has_types(const struct points *points, const struct node *node)
{
	for (uint32_t i = 0; i < node->n_in; i++)
		if (!has_type(points->plan, points->wish, node->in[i]))
			return false;
	for (uint32_t i = 0; i < node->n_out; i++)
		if (!has_type(points->plan, points->wish, node->out[i]))
			return false;
	return true;
}

/* Return true if a device can have the plan as it is. */
static bool is_whole(const struct plan *plan, const struct cut_wish *wish)
{
	for (uint16_t t = 0; t < plan->n_tensors; t++)
		if (!has_type(plan, wish, t))
			return false;
	return plan->ops_devices & wish->devices && plan->constant_bytes <= wish->memory_bytes &&
	       plan->scratch_bytes <= wish->memory_bytes - plan->constant_bytes;
}

/* Return the bytes of scratch tensors that a node reads and writes. */
static uint64_t operands_of(const struct plan *plan, const struct node *node)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < (uint32_t)node->n_in + node->n_out; i++) {
		const uint16_t t = i < node->n_in ? node->in[i] : node->out[i - node->n_in];

		if (is_scratch(plan, t))
			bytes += plan->tensors[t].max_bytes;
	}
	return bytes;
}

/*
 * Return true if a device has @node and everything that is computed along with it, and memory for
 * its constants and what it computes with.
 */
static bool is_on_device(const struct points *points, const struct node *node)
{
	const struct node *nodes = points->plan->nodes;
	uint8_t devices = points->wish->devices;

	if (node->computed_by != PLAN_NO_NODE)
		node = &nodes[node->computed_by];
	if (!has_types(points, node) ||
	    constants_of(points->plan, node) + operands_of(points->plan, node) >
		    points->wish->memory_bytes)
		return false;
	devices &= node->devices;
	if (node->sum != PLAN_NO_NODE)
		devices &= nodes[node->sum].devices;
	if (node->activation != PLAN_NO_NODE)
		devices &= nodes[node->activation].devices;
	return devices != 0;
}

/* Return the end of the run of nodes from @first on that are all on a device, or all not. */
static uint16_t run_end(const struct points *points, uint16_t first)
{
	const struct plan *plan = points->plan;
	const bool is_on = is_on_device(points, &plan->nodes[first]);
	uint16_t end = first;

	while (end < plan->n_nodes && is_on_device(points, &plan->nodes[end]) == is_on)
		end++;
	return end;
}

/*
 * Return the bytes of scratch tensors that cross between the nodes from @first to before @end and
 * others. A tensor that n of the nodes read counts n times: plans have thousands of runs of
 * nodes, so each run looks at its own operands only.
 */
static double crossing_bytes(const struct points *points, uint16_t first, uint16_t end)
{
	const struct plan *plan = points->plan;
	double bytes = 0;

	for (uint16_t i = first; i < end; i++) {
		const struct node *node = &plan->nodes[i];

		for (uint32_t k = 0; k < node->n_in; k++)
			if (is_scratch(plan, node->in[k]) &&
			    points->uses[node->in[k]].writer < first)
				bytes += (double)plan->tensors[node->in[k]].max_bytes;
		for (uint32_t k = 0; k < node->n_out; k++)
			if (is_scratch(plan, node->out[k]) &&
			    points->uses[node->out[k]].reader != PLAN_NO_NODE &&
			    points->uses[node->out[k]].reader >= end)
				bytes += (double)plan->tensors[node->out[k]].max_bytes;
	}
	return bytes;
}

/* Return the time that the device saves with the nodes from @first to before @end. */
static double known_gain_ns(const struct points *points, uint16_t first, uint16_t end)
{
	const struct cut_wish *wish = points->wish;
	double ns = -(double)wish->submission_ns;
	uint64_t bytes = 0;

	for (uint16_t i = first; i < end; i++) {
		ns += (double)wish->gain_ns[i];
		bytes += constants_of(points->plan, &points->plan->nodes[i]);
	}
	ns -= (double)wish->submission_ns * (double)(bytes / points->piece_bytes);
	if (wish->link_bytes_per_ns > 0)
		ns -= crossing_bytes(points, first, end) / (double)wish->link_bytes_per_ns;
	return ns;
}

static bool is_worth_it(const struct points *points, uint16_t first, uint16_t end)
{
	const struct plan *plan = points->plan;
	struct cost cost = {.flops_fixed = 0};
	double ns;

	if (points->wish->gain_ns)
		return known_gain_ns(points, first, end) >= (double)points->worth_ns;

	for (uint16_t i = first; i < end; i++)
		cost_add(&cost, &plan->nodes[i].cost);
	ns = ((double)cost.flops_fixed + (double)cost.flops_row * plan->max_count) / FLOPS_PER_NS +
	     ((double)cost.bytes_fixed + (double)cost.bytes_row * plan->max_count) / BYTES_PER_NS -
	     crossing_bytes(points, first, end) / CROSSING_BYTES_PER_NS;
	return ns >= (double)points->worth_ns;
}

/* Add @node, which runs on a device or does not, to the present segment or to a new one. */
static void add_node(struct points *points, uint16_t i, bool is_on)
{
	const struct node *node = &points->plan->nodes[i];
	const uint64_t bytes = constants_of(points->plan, node);
	const bool is_full = is_on && points->constant_bytes > 0 &&
			     points->constant_bytes + bytes > points->piece_bytes;

	if (i > 0 && i > points->joined && (is_on != points->is_on_device || is_full)) {
		if (points->n < CUT_MAX_SEGMENTS - 1)
			points->firsts[points->n] = i;
		points->n++;
		points->constant_bytes = 0;
		points->is_on_device = is_on;
	}
	if (i == 0)
		points->is_on_device = is_on;
	points->has_device |= is_on;
	points->constant_bytes += bytes;
	if (node->sum != PLAN_NO_NODE && node->sum > points->joined)
		points->joined = node->sum;
	if (node->activation != PLAN_NO_NODE && node->activation > points->joined)
		points->joined = node->activation;
}

static void find_points(struct points *points)
{
	uint16_t end;

	for (uint16_t first = 0; first < points->plan->n_nodes; first = end) {
		const bool is_on = is_on_device(points, &points->plan->nodes[first]);
		bool is_used;

		end = run_end(points, first);
		is_used = is_on && is_worth_it(points, first, end);
		for (uint16_t i = first; i < end; i++)
			add_node(points, i, is_used);
	}
}

/* Choose random nodes to cut before, from none to all, by @seed and the plan's fingerprint. */
static uint32_t random_points(const struct plan *plan, uint64_t seed, uint16_t *ret_firsts)
{
	const uint64_t step = 0x9e3779b97f4a7c15u; /* the golden ratio */
	uint64_t state = seed ^ plan->fingerprint;
	const uint64_t part =
		1 + mix_u64(state += step) % (plan->n_nodes < 16 ? plan->n_nodes : 16);
	uint32_t n = 0;

	for (uint16_t i = 1; i < plan->n_nodes && n < CUT_MAX_SEGMENTS - 1; i++)
		if (mix_u64(state += step) % part == 0)
			ret_firsts[n++] = i;
	return n;
}

/* Return the uses of all tensors, for free(); NULL: out of memory. */
static struct uses *find_uses(const struct plan *plan)
{
	struct uses *uses = calloc(plan->n_tensors, sizeof(*uses));

	for (uint16_t t = 0; uses && t < plan->n_tensors; t++)
		uses[t] = (struct uses){PLAN_NO_NODE, PLAN_NO_NODE};
	for (uint16_t i = 0; uses && i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		for (uint32_t k = 0; k < node->n_in; k++)
			if (node->in[k] != PLAN_NO_TENSOR)
				uses[node->in[k]].reader = i;
		for (uint32_t k = 0; k < node->n_out; k++)
			if (node->out[k] != PLAN_NO_TENSOR)
				uses[node->out[k]].writer = i;
	}
	return uses;
}

/* Return true if the device memory that there is has room for all that runs on a device. */
static bool fits(const struct points *points)
{
	const struct plan *plan = points->plan;
	uint64_t bytes = plan->scratch_bytes;

	for (uint16_t i = 0; i < plan->n_nodes; i++)
		if (is_on_device(points, &plan->nodes[i]))
			bytes += constants_of(plan, &plan->nodes[i]);
	return bytes <= points->wish->memory_bytes;
}

/* Return why a plan stays whole that no part of it would make better. */
static enum rbk_cut why_whole(const struct plan *plan, const struct cut_wish *wish)
{
	if (plan->pinned)
		return RBK_CUT_PINNED;
	return wish->devices ? RBK_CUT_FITS : RBK_CUT_NO_DEVICE;
}

void cut_points(const struct plan *plan, const struct cut_wish *wish, struct cut_choice *ret)
{
	const uint64_t piece_bytes =
		max_u64(wish->memory_bytes / PIECES_RESIDENT, plan->constant_bytes / PIECES_MOST);
	_cleanup_(freep) struct uses *uses = NULL;

	*ret = (struct cut_choice){.why = why_whole(plan, wish)};
	if (wish->seed) {
		ret->n = random_points(plan, wish->seed, ret->firsts);
		ret->why = RBK_CUT_AT_RANDOM;
		return;
	}
	if (!wish->devices || plan->pinned || is_whole(plan, wish))
		return;
	uses = find_uses(plan);
	/* If there are too many segments, shorter runs are left to the CPU, and pieces are larger.
	 */
	for (uint64_t scale = 1; uses && scale < MOST_SCALE; scale *= 8) {
		struct points points = {
			.plan = plan,
			.uses = uses,
			.wish = wish,
			.worth_ns = (wish->gain_ns ? KNOWN_WORTH_NS : WORTH_NS) * scale,
			.firsts = ret->firsts,
		};

		points.piece_bytes = fits(&points) ? UINT64_MAX : piece_bytes * scale;
		find_points(&points);
		if (!points.has_device) {
			ret->why = RBK_CUT_NO_DEVICE;
			return;
		}
		if (points.n < CUT_MAX_SEGMENTS) {
			ret->n = points.n;
			ret->why = points.n > 0 ? RBK_CUT_TO_FIT : RBK_CUT_FITS;
			return;
		}
	}
	ret->why = RBK_CUT_REFUSED;
}
