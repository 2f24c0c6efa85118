/* SPDX-License-Identifier: MIT */
/*
 * Residency: the functions of residency.h.
 *
 * The files, from the top to the bottom layer; no file calls into a layer above its own:
 * - residency-room.c decides which plans are loaded and evicted
 * - residency-lease.c serves waits for leases
 * - residency-seek.c finds plans to evict
 * - residency-device.c has plans leave a device
 * - residency-load.c loads and unloads one plan
 * - residency-plan.c has the records of plans
 * - residency-reopen.c reopens a lost device
 * - residency-wait.c answers the waiters for a plan
 * - residency-timer.c schedules the next review
 * - residency-figures.c computes the sums
 * - residency-policy.c decides which plan may displace which
 *
 * The reactor owns plans, residences, blocks and sums. The setup thread uses a residence only while
 * it is LOADING or UNLOADING, and changes only its job_result, is_own_filled, is_work_freed and
 * n_freeing.
 */
#include "memory/residency.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"

/* Time after which a time that was learned counts for half */
#define BRING_HALF_LIFE_NS 10e9

static void ask_evict(struct residency_plan *plan, struct residency_waiter *waiter)
{
	/* The plan was evicted after the waiter was put off. A later load is not to be undone. */
	if (waiter->was_deferred && !plan->is_parked) {
		waiter_finish(waiter, 0);
		return;
	}
	/* Tasks counted until now do not end the parking. */
	residency_fold_plan(plan);
	plan->is_parked = true;
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++)
		if (waiter->device == RBK_DEVICE_NONE || waiter->device == i)
			residence_evict_by_hand(&plan->on[i]);
	if (residency_plan_is_gone(plan, waiter->device)) {
		waiter_finish(waiter, 0);
		return;
	}
	waiter_stay(waiter);
}

/* Try to load a plan at most once per turn, however many waiters ask for it. */
static int try_asked(struct residence *residence, enum residency_force force)
{
	struct residency *residency = residence->plan->residency;

	if (residence->asked_number != residency->n_asked_turns ||
	    residence->asked_force < (uint8_t)force) {
		residence->asked_number = residency->n_asked_turns;
		residence->asked_force = (uint8_t)force;
		residence->asked_result = residence_try(residence, force);
	}
	return residence->asked_result;
}

static void ask_bring(struct residency_plan *plan, struct residency_waiter *waiter)
{
	struct residence *residence = waiter->device == RBK_DEVICE_NONE ? residency_choose(plan)
									: &plan->on[waiter->device];
	int res = waiter_verdict(plan, waiter);

	plan->is_parked = false;
	plan->must_go = 0;
	if (residence && residence->state == RESIDENCE_IN) {
		waiter_finish(waiter, 0);
		return;
	}
	if (waiter->wish == RESIDENCY_STREAM && plan->tenant->is_emptied) {
		waiter_finish(waiter, -ENOMEM);
		return;
	}
	if (res == 0 && (!residence || residence->device->state != RESIDENCY_DEVICE_UP))
		res = -EIO;
	if (res) {
		waiter_finish(waiter, res);
		return;
	}
	waiter_stay(waiter);
	if (residence->state == RESIDENCE_OUT &&
	    try_asked(residence, waiter->wish == RESIDENCY_STREAM
					 ? RESIDENCY_OWN_SEGMENTS
					 : RESIDENCY_BY_HAND) == TRY_NO_ROOM &&
	    waiter->wish != RESIDENCY_WAIT)
		waiter_finish(waiter, -ENOMEM);
}

static void handle(struct residency_waiter *waiter)
{
	struct residency_plan *plan = waiter->memory->residency;

	if (plan->removed)
		waiter_finish(waiter, -ECANCELED);
	else if (waiter->wish == RESIDENCY_EVICT)
		ask_evict(plan, waiter);
	else
		ask_bring(plan, waiter);
}

/*
 * Handle the waiters queued since the last turn. residency_ask() does not handle them, because its
 * caller holds a task. Handling a waiter may take a while, and clients can have as many waiters as
 * ring entries. So the time is limited, and the next turn begins with another tenant.
 */
static void handle_asked(struct residency *residency)
{
	enum { ASKED_NS = 200000 };
	uint64_t begin_ns = clock_now_ns();

	residency->n_asked_turns++;
	do {
		struct list_node *node = residency->asking.next;
		struct tenant_memory *memory = container_of(node, struct tenant_memory, asking);

		if (node == &residency->asking)
			break;
		list_remove(node);
		list_append(&residency->asking, node);
		handle(waiter_of(memory->asked.next));
		residency->asked_ns = clock_now_ns() - begin_ns;
	} while (residency->asked_ns < ASKED_NS);
}

/* Plans */

int residency_add(struct residency *residency, struct plan_memory *memory,
		  void (*done)(struct plan_memory *memory))
{
	struct residency_plan *plan = residency_plan_new(residency, memory);
	struct residence *residence;

	if (!plan)
		return error_origin(-ENOMEM);
	memory->residency = plan;
	residency->n_plans++;
	if (!plan->supported) {
		list_append(&residency->unable, &plan->link);
		return RESIDENCY_E_SETTLED;
	}
	list_append(&residency->plans, &plan->link);
	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		residence_show(&plan->on[i]);
	plan->is_parked = residency_saved_take(plan);
	if (plan->tenant->is_emptied || plan->is_parked)
		return RESIDENCY_E_SETTLED;

	residency_look(residency);
	residence = residency_choose(plan);
	if (!residence || residence_try(residence, RESIDENCY_BY_VALUE) != TRY_STARTED) {
		residency_review_in(residency, 0);
		return RESIDENCY_E_SETTLED;
	}
	plan->added = done;
	return 0;
}

/* Remove the plan from the dispatcher's list, if the list contains it. */
static void demand_forget(struct residency *residency, struct plan_memory *memory)
{
	struct plan_memory **at = &residency->demand.first;

	while (*at && *at != memory)
		at = &(*at)->next_wanted;
	if (*at)
		*at = memory->next_wanted;
	memory->is_wanted = false;
}

void residency_remove(struct residency *residency, struct plan_memory *memory,
		      void (*done)(struct plan_memory *memory))
{
	struct residency_plan *plan = memory->residency;

	if (!plan) {
		done(memory);
		return;
	}
	demand_forget(residency, memory);
	plan->added = NULL;
	plan->removed = done;
	for (int wish = 0; wish < RESIDENCY_WISHES; wish++)
		while (!list_is_empty(&plan->held[wish]))
			waiter_finish(waiter_of(plan->held[wish].next), -ECANCELED);
	if (plan->n_asked > 0)
		list_for_each_safe (node, &plan->tenant->memory->asked)
			if (waiter_of(node)->memory == memory)
				waiter_finish(waiter_of(node), -ECANCELED);
	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		residence_evict(&plan->on[i]);
	residency_plan_settle(plan);
}

static uint64_t resident_bytes(const struct residence *residence)
{
	uint64_t bytes = residence->work_charge.device.amount;

	if (residence->state == RESIDENCE_OUT || residence->state == RESIDENCE_AWAITED)
		return 0;
	for (uint32_t i = 0; i < residence->n_sharing; i++)
		bytes += residence->sharing[i]->exec.bytes / residence->sharing[i]->n_sharers;
	return bytes;
}

uint64_t residency_vram_bytes(const struct plan_memory *memory, unsigned int device)
{
	const struct residency_plan *plan = memory->residency;
	const struct residence *residence = &plan->on[device];

	if (!(plan->supported & 1u << device) || residence->tier == EXEC_TIER_GTT)
		return 0;
	return resident_bytes(residence);
}

uint64_t residency_bring_ns(const struct plan_memory *memory, unsigned int device)
{
	const struct residence *residence = &memory->residency->on[device];
	const uint64_t now_ns = clock_now_ns();
	double ns = residence_link_ns(residence), part, since_ns;

	if (!(memory->residency->supported & 1u << device) || !(ns > 0))
		return 0;
	/* A time that is not used is not learned anew, so it is believed less and less. */
	if (residence->bring_ns > 0) {
		part = exp2(-(double)(now_ns - residence->brought_ns) / BRING_HALF_LIFE_NS);
		ns += part * (residence->bring_ns - ns);
	}
	/* One that is late may be late for as long again. */
	if (residence->state == RESIDENCE_AWAITED || residence->state == RESIDENCE_LOADING) {
		since_ns = (double)(now_ns - residence->sought_ns);
		ns = since_ns < ns ? ns - since_ns : since_ns;
	}
	return (uint64_t)ns + 1;
}

bool residency_waits_for_device(const struct plan_memory *memory, unsigned int device)
{
	const struct residency_plan *plan = memory->residency;

	return plan->supported & 1u << device &&
	       plan->on[device].device->state > RESIDENCY_DEVICE_UP;
}

void residency_about(const struct residency *residency, const struct plan_memory *memory,
		     unsigned int device, struct residency_about *ret)
{
	const struct residency_plan *plan = memory->residency;
	const struct residence *residence = &plan->on[device];

	*ret = (struct residency_about){.device_state = memory->plan->device_state[device]};
	if (!(plan->supported & 1u << device))
		return;
	ret->required_bytes = residence->required_bytes;
	ret->available_bytes = residence_available(residence);
	ret->tier = residence->tier;
	ret->n_evictions = residence->n_evictions;
	ret->n_returns = residence->n_returns;
	ret->resident_bytes = resident_bytes(residence);
}

uint64_t residency_room(const struct residency *residency, unsigned int device,
			const struct tenant *tenant)
{
	const struct residency_device *of = &residency->devices[device];

	if (of->state == RESIDENCY_DEVICE_NONE)
		return UINT64_MAX;
	return of->state == RESIDENCY_DEVICE_UP ? residency_available(of, tenant) : 0;
}

const struct residency_counts *residency_counts(const struct residency *residency,
						const struct tenant *tenant)
{
	return &memory_of(tenant)->counts;
}

/* Tasks and events */

struct residency_demand *residency_demand(struct residency *residency)
{
	return &residency->demand;
}

void residency_turn(struct residency *residency)
{
	enum { MIN_REVIEW_NS = 2000000 };
	uint64_t since_ns = clock_now_ns() - residency->reviewed_ns;

	/*
	 * The plans stay marked until the review, so that each is added at most once between
	 * reviews.
	 */
	residency->demand.first = NULL;
	residency_review_in(residency, since_ns < MIN_REVIEW_NS ? MIN_REVIEW_NS - since_ns : 0);
}

void residency_plan_idle(struct residency *residency, struct plan_memory *memory,
			 unsigned int device)
{
	residence_drained(&memory->residency->on[device]);
}

void residency_set_usable(struct residency *residency, unsigned int device, uint64_t vram_bytes,
			  uint64_t gtt_bytes)
{
	struct residency_device *on = &residency->devices[device];
	bool has_shrunk = vram_bytes < on->usable_bytes[EXEC_TIER_VRAM];

	if (on->state == RESIDENCY_DEVICE_NONE)
		return;
	if (vram_bytes == on->usable_bytes[EXEC_TIER_VRAM] &&
	    gtt_bytes == on->usable_bytes[EXEC_TIER_GTT])
		return;
	on->has_new_waits = true;
	on->usable_bytes[EXEC_TIER_VRAM] = vram_bytes;
	on->usable_bytes[EXEC_TIER_GTT] = gtt_bytes;
	if (has_shrunk)
		residency_review(residency);
	else
		residency_review_in(residency, 0);
}

void residency_set_reserved(struct residency *residency, unsigned int device, uint64_t vram_bytes)
{
	residency->devices[device].reserved_bytes = vram_bytes;
	leases_count_reserves(&residency->leases, (uint8_t)device);
	residency->devices[device].has_new_waits = true;
	residency_review_in(residency, 0);
}

void residency_set_outside(struct residency *residency, unsigned int device, uint64_t vram_bytes)
{
	residency->devices[device].outside_bytes = vram_bytes;
}

bool residency_is_pressed(const struct residency *residency)
{
	return residency->is_pressed;
}

void residency_limits_changed(struct residency *residency)
{
	residency->must_show = true;
	residency_tell_hopeless(residency);
	residency_leases_limit(residency);
	leases_show(&residency->leases);
	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		residency->devices[i].has_new_waits = true;
	residency_review_in(residency, 0);
}

/* The timer */

static void on_timer(void *data)
{
	struct residency *residency = data;

	residency->timer_ns = 0;
	/*
	 * The timer was set when the last review had taken less time. Put a review off once only:
	 * reviews may follow one another for as long as plans are loaded and evicted.
	 */
	if (!residency->is_put_off && clock_now_ns() < residency_paused_until_ns(residency)) {
		residency->is_put_off = true;
		residency_review_in(residency, 0);
		return;
	}
	residency->is_put_off = false;
	residency->asked_ns = 0;
	handle_asked(residency);
	residency_devices_turn(residency);
	residency_review(residency);
	if (!list_is_empty(&residency->asking))
		residency_review_in(residency, 0);
}

static void on_walk_timer(void *data)
{
	residency_walk_on(data);
}

int residency_new(const struct residency_options *options, struct residency **ret)
{
	_cleanup_(residency_freep) struct residency *residency = NULL;
	int r;

	residency = calloc(1, sizeof(*residency));
	if (!residency)
		return error_origin(-ENOMEM);
	residency->options = *options;
	residency->load_failed = residency_load_failed;
	residency->started_ns = clock_now_ns();
	list_init(&residency->plans);
	list_init(&residency->unable);
	list_init(&residency->waited);
	list_init(&residency->told);
	list_init(&residency->holders);
	list_init(&residency->asking);
	r = leases_init(&residency->leases);
	if (r) {
		free(steal_ptr(residency));
		return error_fold(r);
	}
	for (unsigned int i = 0; i < options->n_executors; i++) {
		struct residency_device *device = &residency->devices[i];
		const struct executor_info *info = &options->executors[i]->info;

		device->residency = residency;
		device->executor = options->executors[i];
		device->index = (uint8_t)i;
		list_init(&device->residences);
		list_init(&device->awaiting);
		list_init(&device->by_age);
		list_init(&device->second_tier);
		device->bring_next = &device->awaiting;
		if (info->memory_page_bytes == 0)
			continue;
		device->state = RESIDENCY_DEVICE_UP;
		device->usable_bytes[EXEC_TIER_VRAM] = info->memory_bytes;
		device->usable_bytes[EXEC_TIER_GTT] = info->gtt_bytes / 2;
		r = resident_index_init(&device->index_of_constants);
		if (r)
			return error_fold(r);
	}
	r = loop_timer_new(options->loop, on_timer, residency, &residency->timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_walk_timer, residency, &residency->walk.timer);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(residency);
	return 0;
}

struct residency *residency_free(struct residency *residency)
{
	if (!residency)
		return NULL;
	assert(residency->n_plans == 0);
	for (unsigned int i = 0; i < residency->options.n_executors; i++) {
		struct residency_device *device = &residency->devices[i];

		assert(device->n_jobs == 0 && device->n_guests == 0);
		for (int tier = 0; tier < EXEC_TIER_COUNT; tier++)
			assert(device->charged_bytes[tier] == 0);
		resident_index_deinit(&device->index_of_constants);
	}
	leases_deinit(&residency->leases);
	loop_timer_free(residency->timer);
	loop_timer_free(residency->walk.timer);
	free(residency->saved);
	free(residency);
	return NULL;
}
