/* SPDX-License-Identifier: MIT */
/*
 * Flows: tenants as the scheduler sees them
 *
 * A tenant has a flow from its first ring on. When its last ring is gone the flow stays until it
 * owes nothing: a tenant that leaves and returns keeps its debt.
 *
 * Quotas: while a tenant has none left its rings are not polled. Such a ring leaves the list of
 * active rings without announcing a sleep. A timer, armed for the first quota that refills,
 * activates it again. The same timer continues the tasks that such tenants have queued for the CPU.
 *
 * A tenant that an administrator drains is held up in the same way, but for an unknown time: its
 * rings are in a list of their own until it is resumed.
 */
#include <errno.h>
#include <stdlib.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/share.h"
#include "loop/loop.h"
#include "util/error.h"

/* Throttled rings that one turn checks at least */
enum { REFILL_BATCH = 16 };

enum {
	BUSY_PART = 4,
	/* A part of a device or of the reactor; a NOP is charged with 16 ns. */
	BUSY_USE_PART = 4000,
	BUSY_LOOKS = 8, /* active flows that one question looks at */
};
static const uint64_t busy_window_ns = 10000000;

/* Interval at which flows without rings are checked for debt */
static const uint64_t review_ns = 100000000;
/* Shortest wait for a refill: quotas fill continuously, and checking more often gains nothing. */
static const uint64_t min_refill_ns = 50000;

static struct place_flow_limits limits_of(const struct tenant *tenant)
{
	return (struct place_flow_limits){
		.weight = tenant->weight,
		.priority_max = tenant->priority_max,
		.cpu_max = tenant->cpu_max,
	};
}

static void flow_free(struct dispatch *dispatch, struct flow *flow)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(dispatch->idled); i++)
		if (dispatch->idled[i] == flow)
			dispatch->idled[i] = NULL;
	if (dispatch->busy == flow)
		dispatch->busy = NULL;
	list_remove(&flow->link);
	share_forget(flow);
	if (dispatch->alone_flow == flow)
		dispatch->alone_flow = NULL;
	place_flow_free(dispatch->placer, flow->place);
	tenant_unref(flow->tenant);
	free(flow);
}

void flow_charge(struct dispatch *dispatch, struct flow *flow)
{
	place_flow_charge(dispatch->placer, flow->place, RBK_DEVICE_CPU,
			  clock_ticks_to_ns(flow->owed_ticks));
	flow->owed_ticks = 0;
}

bool ring_is_throttled(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	dispatch->now_ticks = clock_ticks();
	flow_charge(dispatch, ring->flow);
	ring->is_throttled = ring->flow->tenant->is_drained ||
			     place_flow_is_throttled(ring->flow->place, dispatch_now_ns(dispatch));
	return ring->is_throttled;
}

static int flow_new(struct dispatch *dispatch, struct tenant *tenant, struct flow **ret)
{
	const struct place_flow_limits limits = limits_of(tenant);
	struct flow *flow = calloc(1, sizeof(*flow));
	int r;

	if (!flow)
		return error_origin(-ENOMEM);
	r = place_flow_new(dispatch->placer, &limits, &flow->place);
	if (r) {
		free(flow);
		return error_fold(r);
	}
	flow->tenant = tenant_ref(tenant);
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		flow->shared[i] =
			(struct timeslice_plans){.tenant = tenant, .n_open = TIMESLICE_CLASSES};
		flow->n_open[i] = TIMESLICE_CLASSES;
	}
	flow->may_throttle = limits.cpu_max > 0 || tenant->is_drained;
	flow->weight = limits.weight ? limits.weight : 1;
	turn_owner_init(&flow->bells, flow->weight, tenant->number);
	turn_owner_init(&flow->wakes, flow->weight, tenant->number);
	list_init(&flow->active_link);
	list_append(&dispatch->flows, &flow->link);
	*ret = flow;
	return 0;
}

/* Return the flow of a tenant. NULL: it has none. */
static struct flow *find_flow(const struct dispatch *dispatch, const struct tenant *tenant)
{
	for (struct list_node *node = dispatch->flows.next; node != &dispatch->flows;
	     node = node->next) {
		struct flow *flow = container_of(node, struct flow, link);

		if (flow->tenant == tenant)
			return flow;
	}
	return NULL;
}

int flow_join(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct tenant *tenant = ring->ring->session->tenant;
	int r;

	ring->flow = find_flow(dispatch, tenant);
	r = ring->flow ? 0 : flow_new(dispatch, tenant, &ring->flow);
	if (r)
		return error_fold(r);
	ring->flow->n_rings++;
	return 0;
}

/*
 * Free the flows that are not needed any more.
 * Return: true if flows without rings remain, which become free later.
 */
static bool review_flows(struct dispatch *dispatch)
{
	bool is_any_leaving = false;

	dispatch->now_ticks = clock_ticks();
	list_for_each_safe (node, &dispatch->flows) {
		struct flow *flow = container_of(node, struct flow, link);

		if (flow->n_rings > 0)
			continue;
		/*
		 * The flow stays until its tenant may run inline tasks again: a tenant cannot erase
		 * its overruns by leaving and returning.
		 */
		if (turn_owner_is_idle(&dispatch->rung, &flow->bells) &&
		    turn_owner_is_idle(&dispatch->bells, &flow->wakes) &&
		    dispatch->now_ticks >= flow->inline_again_ticks &&
		    place_flow_is_idle(dispatch->placer, flow->place, dispatch_now_ns(dispatch)))
			flow_free(dispatch, flow);
		else
			is_any_leaving = true;
	}
	return is_any_leaving;
}

static void on_review(void *data)
{
	struct dispatch *dispatch = data;

	if (review_flows(dispatch))
		loop_timer_arm(dispatch->flow_timer, review_ns);
}

void flow_leave(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	flow_charge(dispatch, ring->flow);
	if (--ring->flow->n_rings == 0)
		on_review(dispatch);
	ring->flow = NULL;
}

void dispatch_limits_changed(struct dispatch *dispatch)
{
	dispatch->now_ticks = clock_ticks();
	list_for_each (node, &dispatch->flows) {
		struct flow *flow = container_of(node, struct flow, link);
		const struct place_flow_limits limits = limits_of(flow->tenant);

		place_flow_set_limits(dispatch->placer, flow->place, &limits,
				      dispatch_now_ns(dispatch));
		flow->may_throttle = limits.cpu_max > 0 || flow->tenant->is_drained;
		if (flow->n_active > 0)
			dispatch->active_weight -= flow->weight;
		flow->weight = limits.weight ? limits.weight : 1;
		flow->bells.flow.weight = flow->wakes.flow.weight = flow->weight;
		if (flow->n_active > 0)
			dispatch->active_weight += flow->weight;
	}
	/* A larger quota, or none, may resume throttled tenants. */
	if (dispatch->is_refill_armed)
		loop_timer_arm(dispatch->refill_timer, min_refill_ns);
}

void dispatch_set_own_contention(struct dispatch *dispatch, const struct tenant *tenant,
				 float share)
{
	struct flow *flow = find_flow(dispatch, tenant);

	if (flow)
		place_flow_set_own_contention(flow->place, share);
}

void dispatch_note_engine_time(struct dispatch *dispatch, uint8_t device, uint64_t own_ns,
			       uint64_t others_ns)
{
	place_note_engine_time(dispatch->placer, device, own_ns, others_ns);
	list_for_each (node, &dispatch->flows)
		place_flow_limit_debt(dispatch->placer,
				      container_of(node, struct flow, link)->place, device);
}

void dispatch_charge_leased(struct dispatch *dispatch, const struct tenant *tenant, uint8_t device,
			    uint64_t ns)
{
	struct flow *flow = find_flow(dispatch, tenant);

	if (flow && flow->n_rings > 0)
		place_flow_charge_outside(dispatch->placer, flow->place, device, ns);
}

uint64_t dispatch_used_ns(const struct dispatch *dispatch, const struct tenant *tenant,
			  uint8_t device, float *ret_factor)
{
	const struct flow *flow;

	*ret_factor = place_outside_factor(dispatch->placer, device);
	if (!tenant)
		return place_used_ns(dispatch->placer, device);
	flow = find_flow(dispatch, tenant);
	return flow ? place_flow_used_on_ns(flow->place, device) : 0;
}

/* --- who is busy --- */

static uint64_t flow_used_ns(const struct flow *flow)
{
	return place_flow_used_ns(flow->place) + clock_ticks_to_ns(flow->owed_ticks);
}

/*
 * Return true if the flow's rings were active for 1 / BUSY_PART of the last window or more, and it
 * used 1 / BUSY_USE_PART of a device or of the reactor: some tasks, or 15,000 NOPs a second. A
 * client that has lost its processor for some time slices is still busy. One with some tasks every
 * few milliseconds is not: other tenants' requests hardly delay it. Nor is one that only keeps its
 * rings active by a NOP now and then: the others' requests would wait for it, at no cost to it.
 */
static bool flow_is_busy(struct flow *flow, uint64_t now_ticks)
{
	const uint64_t window_ticks = clock_ns_to_ticks(busy_window_ns);
	const uint64_t elapsed_ticks = now_ticks - flow->window_ticks;
	uint64_t used_ns;

	if (flow->n_active > 0) {
		flow->busy_ticks += now_ticks - flow->active_ticks;
		flow->active_ticks = now_ticks;
	}
	if (elapsed_ticks >= window_ticks) {
		used_ns = flow_used_ns(flow);
		/* A device may have taken less time than it was charged. */
		flow->was_busy =
			flow->busy_ticks >= elapsed_ticks / BUSY_PART &&
			(int64_t)(used_ns - flow->window_used_ns) >=
				(int64_t)(clock_ticks_to_ns(elapsed_ticks) / BUSY_USE_PART);
		flow->window_used_ns = used_ns;
		flow->window_ticks = now_ticks;
		flow->busy_ticks = 0;
	}
	return flow->was_busy;
}

void flow_idled(struct dispatch *dispatch, struct flow *flow)
{
	const uint64_t now_ticks = clock_ticks();

	flow->busy_ticks += now_ticks - flow->active_ticks;
	(void)flow_is_busy(flow, now_ticks);
	if (dispatch->idled[0] == flow)
		return;
	dispatch->idled[1] = dispatch->idled[0];
	dispatch->idled[0] = flow;
}

static bool is_other_busy(struct flow *flow, const struct tenant *tenant, uint64_t now_ticks)
{
	return flow && flow->tenant != tenant && flow_is_busy(flow, now_ticks);
}

bool dispatch_others_work(void *context, const struct tenant *tenant)
{
	const uint64_t now_ticks = clock_ticks();
	struct dispatch *dispatch = context;
	unsigned int n = 0;

	/* Many flows may be active without being busy, and hide the one that is. */
	if (is_other_busy(dispatch->busy, tenant, now_ticks))
		return true;
	list_for_each (node, &dispatch->active_flows) {
		struct flow *flow = container_of(node, struct flow, active_link);

		if (is_other_busy(flow, tenant, now_ticks)) {
			dispatch->busy = flow;
			return true;
		}
		if (++n == BUSY_LOOKS)
			break;
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(dispatch->idled); i++)
		if (is_other_busy(dispatch->idled[i], tenant, now_ticks))
			return true;
	return false;
}

/* --- draining --- */

void dispatch_drain_changed(struct dispatch *dispatch, const struct tenant *tenant)
{
	uint64_t now_ticks = clock_ticks();

	dispatch_limits_changed(dispatch);
	if (tenant->is_drained)
		return;
	list_for_each_safe (node, &dispatch->drained) {
		struct dispatch_ring *ring =
			container_of(node, struct dispatch_ring, throttled_link);

		if (ring->flow->tenant != tenant)
			continue;
		list_remove(&ring->throttled_link);
		ring->is_throttled = false;
		ring_activate(dispatch, ring, now_ticks);
	}
}

uint64_t dispatch_tenant_in_flight(const struct dispatch *dispatch, const struct tenant *tenant)
{
	uint64_t n = 0;

	list_for_each (node, &dispatch->rings) {
		const struct dispatch_ring *ring = container_of(node, struct dispatch_ring, link);

		if (ring->flow->tenant == tenant)
			n += ring->ring->n_in_flight;
	}
	return n;
}

/* --- waiting for a quota --- */

void flow_park(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct flow *flow = ring->flow;

	if (flow->tenant->is_drained) {
		list_append(&dispatch->drained, &ring->throttled_link);
		return;
	}
	if (!flow->throttled_ticks) {
		flow->throttled_ticks = clock_ticks();
		stats_throttled(ring->ring->session->tenant_stats, 0, 1);
	}
	list_append(&dispatch->throttled, &ring->throttled_link);
}

/*
 * Return true if the quota of @ring's flow suffices again. A flow without quota is checked once in
 * a round for all its rings.
 */
static bool ring_may_go_on(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct flow *flow = ring->flow;

	if (!flow->may_throttle)
		return true;
	if (flow->refused_round == dispatch->refill_round)
		return false;
	if (!ring_is_throttled(dispatch, ring))
		return true;
	flow->refused_round = dispatch->refill_round;
	return false;
}

static void ring_resume(struct dispatch *dispatch, struct dispatch_ring *ring, uint64_t now_ticks)
{
	struct flow *flow = ring->flow;

	ring->is_throttled = false;
	if (flow->throttled_ticks)
		stats_throttled(ring->ring->session->tenant_stats,
				clock_elapsed_ns(flow->throttled_ticks, now_ticks), 0);
	flow->throttled_ticks = 0;
	ring_activate(dispatch, ring, now_ticks);
}

/* Return the ring that has waited for longest; NULL if this round has visited all. */
static struct dispatch_ring *next_throttled(const struct dispatch *dispatch)
{
	struct list_node *node = dispatch->throttled.next;
	struct dispatch_ring *ring = container_of(node, struct dispatch_ring, throttled_link);

	if (node == &dispatch->throttled || ring->refill_round == dispatch->refill_round)
		return NULL;
	return ring;
}

/*
 * Check throttled rings, each once in a round. A tenant may have any number of them, so a round
 * continues in the next turn when this turn is over.
 */
static void on_refill(void *data)
{
	struct dispatch *dispatch = data;
	uint64_t now_ticks = clock_ticks();
	struct dispatch_ring *ring;

	dispatch->is_refill_armed = false;
	dispatch->now_ticks = now_ticks;
	dispatch->refill_round += !dispatch->is_refilling;
	dispatch->is_refilling = false;
	for (unsigned int n = 0; (ring = next_throttled(dispatch)); n++) {
		if (n >= REFILL_BATCH && turn_is_over(dispatch->turn)) {
			dispatch->is_refilling = dispatch->is_refill_armed = true;
			loop_timer_arm(dispatch->refill_timer, 0);
			return;
		}
		ring->refill_round = dispatch->refill_round;
		list_remove(&ring->throttled_link);
		if (ring->flow->tenant->is_drained)
			list_append(&dispatch->drained, &ring->throttled_link);
		else if (ring_may_go_on(dispatch, ring))
			ring_resume(dispatch, ring, now_ticks);
		else
			list_append(&dispatch->throttled, &ring->throttled_link);
	}
}

void flow_await_refill(struct dispatch *dispatch)
{
	uint64_t now_ns, refill_ns;

	if (dispatch->is_refill_armed ||
	    (list_is_empty(&dispatch->throttled) && dispatch->n_queued == 0))
		return;
	dispatch->now_ticks = clock_ticks();
	now_ns = dispatch_now_ns(dispatch);
	refill_ns = place_refill_ns(dispatch->placer, now_ns);
	if (refill_ns == UINT64_MAX && list_is_empty(&dispatch->throttled))
		return;
	refill_ns = refill_ns == UINT64_MAX || refill_ns < now_ns ? 0 : refill_ns - now_ns;
	if (refill_ns < min_refill_ns)
		refill_ns = min_refill_ns;
	dispatch->is_refill_armed = true;
	loop_timer_arm(dispatch->refill_timer, refill_ns);
}

int flows_init(struct dispatch *dispatch)
{
	int r;

	r = loop_timer_new(dispatch->options.loop, on_refill, dispatch, &dispatch->refill_timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(dispatch->options.loop, on_review, dispatch, &dispatch->flow_timer);
	return r ? error_fold(r) : 0;
}

void flows_deinit(struct dispatch *dispatch)
{
	list_for_each_safe (node, &dispatch->flows)
		flow_free(dispatch, container_of(node, struct flow, link));
	loop_timer_free(dispatch->refill_timer);
	loop_timer_free(dispatch->flow_timer);
}
