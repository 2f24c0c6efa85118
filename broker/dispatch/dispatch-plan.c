/* SPDX-License-Identifier: MIT */
/*
 * Plans: the dispatcher's part of them
 *
 * This part is the placer's record of a plan, and cached answers about tasks that may run on the
 * reactor itself: the largest counts, and the placer's reason.
 */
#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "place/cut-devices.h"
#include "place/graph.h"
#include "util/error.h"

/* Longest predicted time of a task that may run on the reactor itself */
static const uint64_t inline_budget_ns = 2000;
/*
 * The same of a small task. The placer's prediction, which learns, is limited to SMALL_NS besides,
 * because the estimates here are pessimistic.
 */
static const uint64_t small_budget_ns = 80000;

/*
 * Time that a step takes, however little it computes. Measured on a Xeon with AVX-512, plans of
 * 1,000 and more steps on one element each: a step of Neg takes 17 ns, of LpPool 55 ns, of Concat
 * 64 ns, and if none of the plan is in a cache 80, 140 and 95 ns. The executor adds the overhead of
 * a step's rows and matrices (overhead_fixed_ps, overhead_row_ps).
 */
static const uint64_t step_ns = 100;

/* The estimates below are in sixty-fourths of a nanosecond. */
enum { ESTIMATE_UNITS_PER_NS = 64 };

/*
 * Estimate how long nodes take, pessimistically: at 2 floating-point operations per nanosecond, or
 * at the rate that the executor promises where its kernels are blocked, and at 16 bytes per
 * nanosecond.
 */
static uint64_t estimate(uint64_t flops, uint64_t blocked_flops, uint64_t bytes,
			 uint32_t blocked_flops_per_ns)
{
	const uint32_t blocked_per_ns = blocked_flops_per_ns > 2 ? blocked_flops_per_ns : 2;

	return (flops - blocked_flops) * ESTIMATE_UNITS_PER_NS / 2 +
	       blocked_flops * ESTIMATE_UNITS_PER_NS / blocked_per_ns +
	       bytes * ESTIMATE_UNITS_PER_NS / 16;
}

/* Return the largest count up to @max for which fixed + count * row is within @budget; 0: none. */
static uint32_t most_within(uint64_t fixed, uint64_t row, uint64_t budget, uint32_t max)
{
	if (fixed > budget)
		return 0;
	if (row == 0 || (budget - fixed) / row >= max)
		return max;
	return (uint32_t)((budget - fixed) / row);
}

/*
 * Return the largest count whose task is predicted to take at most @budget_ns; 0: none. The time is
 * that of flops and bytes, of the steps, or of the executor's overhead, whichever is longest: the
 * sum is at most three times as long.
 */
static uint32_t inline_limit(const struct dispatch *dispatch, const struct plan *plan,
			     uint64_t budget_ns)
{
	const struct executor *cpu = dispatch->executors[RBK_DEVICE_CPU];
	const struct cost *cost = &plan->cost;
	uint64_t fixed, row;
	uint32_t limit;

	if (!cpu->ops->run_inline || !plan->data_independent ||
	    plan->device_state[RBK_DEVICE_CPU] != PLAN_DEVICE_READY)
		return 0;
	/* No plan beyond 2^40 can pass, and the sums below cannot overflow. */
	if ((cost->flops_fixed | cost->flops_row | cost->bytes_fixed | cost->bytes_row) >> 40)
		return 0;
	if (plan->n_steps > budget_ns / step_ns)
		return 0;
	fixed = estimate(cost->flops_fixed, plan->blocked_flops_fixed, cost->bytes_fixed,
			 cpu->info.blocked_flops_per_ns);
	row = estimate(cost->flops_row, plan->blocked_flops_row, cost->bytes_row,
		       cpu->info.blocked_flops_per_ns);
	limit = most_within(fixed, row, budget_ns * ESTIMATE_UNITS_PER_NS, plan->max_count);
	return most_within(plan->overhead_fixed_ps, plan->overhead_row_ps, budget_ns * 1000, limit);
}

/*
 * Ask the placer where tasks of @count rows run. A task that runs inline waits for no device: what
 * the devices do at the moment does not matter, nor does the flow.
 * Return: the reason if all of them run on the CPU; else RBK_REASON_NONE.
 */
static uint8_t reason_on_cpu(const struct dispatch *dispatch, const struct session_plan *plan,
			     uint32_t count)
{
	const struct place_request request = {
		.count = count,
		.strategy = RBK_STRATEGY_AUTO,
		.flags = PLACE_AS_IF_IDLE,
	};
	struct place_decision decision;

	decision = place_decide(dispatch->placer, plan->place, dispatch->nobody, request,
				dispatch_now_ns(dispatch));
	if (decision.device == RBK_DEVICE_CPU && (decision.reason == RBK_REASON_BELOW_THRESHOLD ||
						  decision.reason == RBK_REASON_GPU_UNAVAILABLE))
		return decision.reason;
	return RBK_REASON_NONE;
}

/*
 * Cache the placer's answers for the largest counts that run inline. They also hold for smaller
 * counts, which touch fewer bytes.
 */
static void plan_review(struct dispatch *dispatch, struct session_plan *plan)
{
	plan->inline_reason = RBK_REASON_NONE;
	if (plan->inline_max_count > 0)
		plan->inline_reason = reason_on_cpu(dispatch, plan, plan->inline_max_count);
	for (plan->small_max_count = plan->small_bound;
	     plan->small_max_count > plan->inline_max_count; plan->small_max_count /= 2) {
		plan->small_reason = reason_on_cpu(dispatch, plan, plan->small_max_count);
		if (plan->small_reason)
			break;
	}
}

/* Return true if tasks on the device take no time from the processors of another. */
static bool works_apart(const struct dispatch *dispatch, uint8_t device)
{
	const enum executor_kind kind = dispatch->executors[device]->info.kind;

	return kind != EXECUTOR_SOFTWARE_GPU &&
	       placer_profile(dispatch->placer, device)->is_valid &&
	       !placer_is_drained(dispatch->placer, device);
}

void *dispatch_cut_begin(void *context, const struct session *session, size_t desc_bytes,
			 uint64_t *bytes)
{
	const struct dispatch *dispatch = context;
	const struct place_config *config = placer_config(dispatch->placer);
	const size_t basis_bytes = sizeof(struct place_cut_basis) +
				   dispatch->n_executors * sizeof(struct place_cut_device);
	_cleanup_(freep) struct place_cut_basis *basis = NULL;
	uint64_t room_bytes = UINT64_MAX;

	/* Where the CPU is not known or does not count, neither does what others would save. */
	if (config->force_cpu || config->strategy == RBK_STRATEGY_ENERGY ||
	    dispatch->n_executors < 2 || !works_apart(dispatch, 0))
		return NULL;
	basis = calloc(1, basis_bytes);
	if (!basis)
		return NULL;
	for (uint8_t i = 0; i < dispatch->n_executors; i++) {
		const struct executor_info *info = &dispatch->executors[i]->info;

		if (i != RBK_DEVICE_CPU)
			room_bytes =
				residency_room(dispatch->options.residency, i, session->tenant);
		if (room_bytes > 0 && works_apart(dispatch, i))
			basis->devices[basis->n_devices++] = (struct place_cut_device){
				.profile = *placer_profile(dispatch->placer, i),
				.room_bytes = room_bytes,
				.types = info->types,
				.kind = i == RBK_DEVICE_CPU ? OP_ON_CPU : OP_ON_VULKAN,
			};
	}
	if (basis->n_devices < 2)
		return NULL;
	basis->threshold_bytes = config->threshold_bytes;
	basis->min_count = config->min_count;
	basis->min_gain = config->partition_min_gain;
	*bytes += basis_bytes + place_cut_bytes(basis->n_devices, desc_bytes);
	return steal_ptr(basis);
}

bool dispatch_cut_choose(const void *basis, const struct plan *plan, const struct cut_wish *wish,
			 struct cut_choice *ret)
{
	return place_cut_points(basis, plan, wish, ret);
}

/* Return how many pairs of segments there are of which one needs the other. */
static uint32_t n_needs(const struct session_segments *segments)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < segments->n; i++)
		n += (uint32_t)__builtin_popcountll(segments->of[i].cut.needs);
	return n;
}

/* Return true if there is a choice of devices, or of the order of segments. */
static bool has_graph(const struct dispatch *dispatch, const struct session_segments *segments)
{
	return segments->n_at_once > 1 || dispatch->n_executors > 1;
}

uint64_t dispatch_plan_bytes(void *context, const struct session_plan *plan)
{
	const struct dispatch *dispatch = context;
	const struct session_segments *segments = plan->segments;

	if (!segments)
		return place_plan_bytes(dispatch->placer, plan->plan);
	return has_graph(dispatch, segments)
		       ? place_graph_bytes(segments->n, n_needs(segments), dispatch->n_executors)
		       : 0;
}

/* Make the graph of a plan that is cut. Return: 0; -ENOMEM. */
static int make_graph(const struct dispatch *dispatch, struct session_segments *segments)
{
	struct place_graph *graph;
	uint32_t n = 0;
	int r;

	if (!has_graph(dispatch, segments))
		return 0;
	r = place_graph_new(segments->n, n_needs(segments), dispatch->n_executors, &graph);
	if (r)
		return error_fold(r);
	/* Any device reaches what crosses where it lies: the time is part of the segments'. */
	for (uint32_t i = 0; i < segments->n; i++) {
		graph->first[i] = n;
		for (uint64_t needs = segments->of[i].cut.needs; needs; needs &= needs - 1)
			graph->from[n++] = (uint32_t)__builtin_ctzll(needs);
	}
	graph->first[segments->n] = n;
	segments->graph = graph;
	return 0;
}

void dispatch_plan_make(void *context)
{
	struct dispatch *dispatch = context;

	placer_prepare(dispatch->placer);
}

int dispatch_plan_ready(void *context, struct session_plan *plan)
{
	struct dispatch *dispatch = context;
	int r;

	/* Tasks of a plan that is cut are tasks of its segments, one after the other. */
	if (plan->segments) {
		segments_ready(plan);
		return error_fold(make_graph(dispatch, plan->segments));
	}
	r = place_plan_new(dispatch->placer, plan->plan, &plan->place);
	if (r)
		return error_fold(r);
	list_init(&plan->waiting);
	list_init(&plan->ending);
	list_append(&dispatch->plans, &plan->dispatched);
	dispatch->n_plans++;
	/* The next broker must be able to tell whether a task had begun to update a state. */
	if (!plan->plan->has_state || !(plan->session->features & RBK_FEAT_REATTACH)) {
		plan->inline_max_count = inline_limit(dispatch, plan->plan, inline_budget_ns);
		if (dispatch->options.reactor_task_ns >= SMALL_NS)
			plan->small_bound = inline_limit(dispatch, plan->plan, small_budget_ns);
	}
	plan_review(dispatch, plan);
	return 0;
}

void dispatch_plan_freed(void *context, struct session_plan *plan)
{
	struct dispatch *dispatch = context;

	if (plan->segments)
		plan->segments->graph = place_graph_free(plan->segments->graph);
	if (!plan->place)
		return;
	list_remove(&plan->dispatched);
	dispatch->n_plans--;
	plan->place = place_plan_free(dispatch->placer, plan->place);
}

void dispatch_plan_review_next(struct dispatch *dispatch)
{
	struct list_node *node = dispatch->plans.next;
	struct session_plan *plan = container_of(node, struct session_plan, dispatched);

	list_remove(node);
	list_append(&dispatch->plans, node);
	/* No task finds a plan that is being removed, and the setup thread may be undoing it. */
	if (plan->state == SLOT_REMOVING || plan->state == SLOT_RELEASING)
		return;
	place_plan_configure(dispatch->placer, plan->place);
	plan_review(dispatch, plan);
}
