/* SPDX-License-Identifier: MIT */
/*
 * Setup of the scheduler: queues of devices, flows and their limits
 *
 * This code runs once per tenant or per change of configuration. A flow has room for its tasks on
 * every device from the start, so that nothing is allocated while tasks come and go.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "place/placer-private.h"
#include "util/error.h"

void place_queue_set_profile(struct place_queue *queue, const struct place_profile *profile,
			     uint32_t n_in_use)
{
	bool is_known = profile && profile->is_valid;

	/* The number of servers may be known even if the profile is not valid. */
	queue->n_servers = profile && profile->n_servers ? profile->n_servers : 1;
	queue->n_servers_per_task = is_known ? profile->n_servers_per_task : 1;
	if (n_in_use && queue->n_servers > n_in_use)
		queue->n_servers = n_in_use;
	if (queue->n_servers_per_task > queue->n_servers)
		queue->n_servers_per_task = queue->n_servers;
	queue->inverse_servers = 1 / (float)queue->n_servers;
}

void place_queue_init(struct place_queue *queue, const struct place_profile *profile)
{
	*queue = (struct place_queue){.pace = 1, .outside_factor = 1};
	place_queue_set_profile(queue, profile, 0);
	list_init(&queue->waiting);
	list_init(&queue->short_handed);
	list_init(&queue->running);
	for (unsigned int i = 0; i < SCHEDULE_BUCKETS; i++)
		list_init(&queue->movable[i]);
}

void place_set_preemptible(struct placer *placer, uint8_t device)
{
	placer->devices[device].queue.is_preemptible = true;
}

static void set_weight(struct placer *placer, struct place_flow *flow, uint32_t weight)
{
	uint32_t old = flow->weight;

	weight = weight < 1 ? 1 : weight;
	weight = weight > SCHEDULE_MAX_WEIGHT ? SCHEDULE_MAX_WEIGHT : weight;
	flow->weight = weight;
	flow->inverse_weight = (1u << SCHEDULE_INVERSE_LOG2) / weight;
	for (uint32_t i = 0; i < flow->n_devices; i++) {
		struct place_queue *queue = &placer->devices[i].queue;

		if (flow->on[i].is_active)
			queue->active_weight += (uint64_t)weight - old;
	}
}

/* Set the quota; a quota that is not a number, or out of range, is none. */
static void set_quota(struct placer *placer, struct place_flow *flow, float cpu_max, uint64_t now)
{
	bool had_one = flow->cpu_max > 0;
	double most;

	if (had_one)
		flow_sync_tokens(flow, now);
	flow->cpu_max = cpu_max > 0 && cpu_max <= PLACE_MAX_SERVERS ? (double)cpu_max : 0;
	flow->tokens_at_ns = now;
	most = flow->cpu_max * (double)PLACE_QUOTA_PERIOD_NS;
	if (!had_one || flow->tokens_ns > most)
		flow->tokens_ns = most;
	if (flow->is_throttled) {
		heap_remove(&placer->schedule.throttled, &flow->node, throttled_before);
		flow->is_throttled = false;
	}
	if (flow->cpu_max > 0)
		flow_spend(placer, flow, 0, now);
	flow_update(placer, flow, RBK_DEVICE_CPU);
}

int place_flow_new(struct placer *placer, const struct place_flow_limits *limits,
		   struct place_flow **ret)
{
	struct place_flow *flow;

	flow = calloc(1, sizeof(*flow) + placer->n_devices * sizeof(flow->on[0]));
	if (!flow)
		return error_origin(-ENOMEM);
	flow->placer = placer;
	flow->n_devices = placer->n_devices;
	for (uint32_t i = 0; i < flow->n_devices; i++) {
		struct place_flow_queue *fq = &flow->on[i];

		fq->flow = flow;
		fq->start = placer->devices[i].queue.virtual_time;
		fq->open_mask = SCHEDULE_ALL_OPEN;
		for (unsigned int j = 0; j < SCHEDULE_CLASSES; j++)
			list_init(&fq->classes[j].in_order);
	}
	flow->weight = 1;
	place_flow_set_limits(placer, flow, limits, placer->schedule.last_now_ns);
	*ret = flow;
	return 0;
}

void place_flow_set_limits(struct placer *placer, struct place_flow *flow,
			   const struct place_flow_limits *limits, uint64_t now_ns)
{
	uint64_t now = schedule_time(&placer->schedule, now_ns);

	flow->first_class = priority_class(limits->priority_max);
	set_weight(placer, flow, limits->weight);
	set_quota(placer, flow, limits->cpu_max, now);
}

void place_flow_set_own_contention(struct place_flow *flow, float share)
{
	/* NaN counts as no share. */
	if (!(share > 0))
		share = 0;
	flow->own_contention = share < 1 ? share : 1;
}

uint64_t place_flow_used_ns(const struct place_flow *flow)
{
	uint64_t used_ns = 0;

	for (uint32_t i = 0; i < flow->n_devices; i++)
		used_ns += flow->on[i].used_ns;
	return used_ns;
}

uint64_t place_flow_used_on_ns(const struct place_flow *flow, uint8_t device)
{
	return device < flow->n_devices ? flow->on[device].used_ns : 0;
}

uint64_t place_used_ns(const struct placer *placer, uint8_t device)
{
	return device < placer->n_devices ? placer->devices[device].queue.done_ns : 0;
}

float place_outside_factor(const struct placer *placer, uint8_t device)
{
	return device < placer->n_devices ? placer->devices[device].queue.outside_factor : 1;
}

bool place_flow_is_idle(const struct placer *placer, const struct place_flow *flow, uint64_t now_ns)
{
	uint64_t now = schedule_peek(&placer->schedule, now_ns);

	for (uint32_t i = 0; i < flow->n_devices; i++) {
		const struct place_flow_queue *fq = &flow->on[i];

		if (fq->n_queued || fq->n_released ||
		    virtual_after(fq->start, placer->devices[i].queue.virtual_time))
			return false;
	}
	/* A new flow's bucket would be full: keep this one until it is. */
	return flow->cpu_max <= 0 ||
	       flow_tokens(flow, now) >= flow->cpu_max * (double)PLACE_QUOTA_PERIOD_NS;
}

struct place_flow *place_flow_free(struct placer *placer, struct place_flow *flow)
{
	if (!flow)
		return NULL;
	for (uint32_t i = 0; i < flow->n_devices; i++) {
		assert(flow->on[i].n_queued == 0);
		assert(flow->on[i].n_released == 0);
		if (placer->devices[i].queue.run_flow == flow)
			placer->devices[i].queue.run_flow = NULL;
		placer->devices[i].queue.n_closed -= flow->on[i].open_mask != SCHEDULE_ALL_OPEN;
	}
	if (flow->is_throttled)
		heap_remove(&placer->schedule.throttled, &flow->node, throttled_before);
	free(flow);
	return NULL;
}

/* --- Recounting --- */

uint32_t place_recount_plan(struct place_plan *place_plan, uint8_t device)
{
	struct place_gate *gate = place_gate(place_plan, device);
	uint32_t n_begun = 0;

	if (gate) {
		n_begun = gate->n_begun;
		*gate = (struct place_gate){.n_slots = gate->n_slots};
	}
	return n_begun;
}

static uint64_t held_ns(const struct place_queue *queue)
{
	return queue->waiting_ns + queue->running_ns;
}

void place_recount_begin(struct placer *placer, uint8_t device, struct place_recount *ret)
{
	struct place_queue *queue = &placer->devices[device].queue;

	*ret = (struct place_recount){
		.n_queued = queue->n_queued,
		.n_released = queue->n_released,
		.n_waiting = queue->n_waiting,
		.queued_ns = queue->queued_ns,
		.held_ns = held_ns(queue),
	};
	*queue = (struct place_queue){
		.virtual_time = queue->virtual_time,
		.last_finish = queue->last_finish,
		.n_servers = queue->n_servers,
		.n_servers_per_task = queue->n_servers_per_task,
		.inverse_servers = queue->inverse_servers,
		.was_needed = queue->was_needed,
		.is_preemptible = queue->is_preemptible,
		.pace = 1,
		.done_ns = queue->done_ns,
		.noted_ns = queue->noted_ns,
		.noted_virtual = queue->noted_virtual,
		.advance = queue->advance,
		.outside_factor = queue->outside_factor,
		.n_closed = queue->n_closed,
	};
	list_init(&queue->waiting);
	list_init(&queue->short_handed);
	list_init(&queue->running);
	for (unsigned int i = 0; i < SCHEDULE_BUCKETS; i++)
		list_init(&queue->movable[i]);
}

void place_recount_flow(struct place_flow *flow, uint8_t device)
{
	struct place_flow_queue *fq = &flow->on[device];

	*fq = (struct place_flow_queue){
		.flow = flow,
		.start = fq->start,
		.used_ns = fq->used_ns,
		.open_mask = fq->open_mask,
	};
	for (unsigned int i = 0; i < SCHEDULE_CLASSES; i++)
		list_init(&fq->classes[i].in_order);
}

void place_recount_flow_done(struct placer *placer, struct place_flow *flow, uint8_t device)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &flow->on[device];

	flow_update(placer, flow, device);
	/* The flow has tasks on the device, and none that could start. */
	if (!fq->is_active && fq->n_released > 0) {
		fq->is_active = true;
		queue->active_weight += flow->weight;
		queue->n_active++;
	}
}

bool place_recount_end(const struct placer *placer, uint8_t device,
		       const struct place_recount *before)
{
	const struct place_queue *queue = &placer->devices[device].queue;

	return queue->n_queued != before->n_queued || queue->n_released != before->n_released ||
	       queue->queued_ns != before->queued_ns || held_ns(queue) != before->held_ns;
}
