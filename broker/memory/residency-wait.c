/* SPDX-License-Identifier: MIT */
/*
 * Residency: waiters for a plan to be loaded or evicted
 *
 * A waiter's callback may be called at any point, because it only notes the answer.
 */
#include <errno.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-private.h"
#include "tenant/tenant.h"

/* Answering takes at most 1/TELL_PART of a turn's budget. */
enum { TELL_PART = 4 };

/* Queue the deferred waiters of a plan to be handled again. This takes constant time. */
static void recall(struct residency_plan *plan, enum residency_wish wish)
{
	struct list_node *deferred = &plan->deferred[wish], *asked = &plan->tenant->memory->asked;

	if (list_is_empty(deferred))
		return;
	if (list_is_empty(asked))
		list_append(&plan->residency->asking, &plan->tenant->memory->asking);
	list_splice(asked, deferred);
	residency_review_in(plan->residency, 0);
}

/* Remove a waiter from its list. */
static void waiter_take(struct residency_waiter *waiter)
{
	struct residency_plan *plan = waiter->memory->residency;
	enum residency_wish wish = waiter->wish;

	list_remove(&waiter->link);
	if (waiter->is_asked) {
		waiter->is_asked = false;
		plan->n_asked--;
		if (list_is_empty(&plan->tenant->memory->asked))
			list_remove(&plan->tenant->memory->asking);
		return;
	}
	if (--plan->n_held[wish] == 0)
		recall(plan, wish);
	if (plan->n_held[RESIDENCY_PREFETCH] + plan->n_held[RESIDENCY_STREAM] +
		    plan->n_held[RESIDENCY_WAIT] ==
	    0) {
		plan->is_named = 0;
		list_remove(&plan->waited);
	}
}

void waiter_finish(struct residency_waiter *waiter, int res)
{
	waiter_take(waiter);
	waiter->done(waiter, res);
}

void waiter_stay(struct residency_waiter *waiter)
{
	struct residency_plan *plan = waiter->memory->residency;
	enum residency_wish wish = waiter->wish;

	waiter_take(waiter);
	if (plan->n_held[wish] >= RESIDENCY_MAX_HELD) {
		waiter->is_asked = waiter->was_deferred = true;
		plan->n_asked++;
		list_append(&plan->deferred[wish], &waiter->link);
		return;
	}
	plan->n_held[wish]++;
	list_append(&plan->held[wish], &waiter->link);
	if (wish != RESIDENCY_EVICT && list_is_empty(&plan->waited))
		list_append(&plan->residency->waited, &plan->waited);
	if (wish != RESIDENCY_EVICT && waiter->device != RBK_DEVICE_NONE)
		plan->is_named |= (uint16_t)(1u << waiter->device);
}

/* Return true if the waiter asked for this device or for any. */
static bool waiter_wants(const struct residency_waiter *waiter, const struct residence *residence)
{
	return waiter->device == RBK_DEVICE_NONE || waiter->device == residence->device->index;
}

static void tell_held(struct residence *residence, enum residency_wish wish, int res)
{
	struct residency_plan *plan = residence->plan;

	list_for_each_safe (node, &plan->held[wish])
		if (waiter_wants(waiter_of(node), residence))
			waiter_finish(waiter_of(node), res);
	recall(plan, wish);
}

void residency_tell_added(struct residency_plan *plan)
{
	void (*added)(struct plan_memory * memory) = plan->added;

	if (!added)
		return;
	plan->added = NULL;
	added(plan->memory);
}

void residency_tell_interrupted(struct residence *residence)
{
	tell_held(residence, RESIDENCY_PREFETCH, -EINTR);
	tell_held(residence, RESIDENCY_STREAM, -EINTR);
}

void residency_tell(struct residence *residence, int res)
{
	struct residency_plan *plan = residence->plan;

	tell_held(residence, RESIDENCY_PREFETCH, res);
	tell_held(residence, RESIDENCY_STREAM, res);
	if (res == 0)
		tell_held(residence, RESIDENCY_WAIT, res);
	/* A waiter wanted the plan again after it was evicted by hand. */
	if (res == 0)
		plan->is_parked = false;
	residency_tell_added(plan);
}

void residency_tell_gone(struct residence *residence)
{
	struct residency_plan *plan = residence->plan;

	list_for_each_safe (node, &plan->held[RESIDENCY_EVICT])
		if (residency_plan_is_gone(plan, waiter_of(node)->device))
			waiter_finish(waiter_of(node), 0);
	recall(plan, RESIDENCY_EVICT);
}

int waiter_verdict(const struct residency_plan *plan, const struct residency_waiter *waiter)
{
	bool is_supported = false, is_lost = false;

	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++) {
		const struct residence *residence = &plan->on[i];

		if (!(plan->supported & 1u << i) ||
		    (waiter->device != RBK_DEVICE_NONE && waiter->device != i))
			continue;
		is_supported = true;
		if (residence->device->state != RESIDENCY_DEVICE_UP)
			is_lost = true;
		else if (residence_fits(residence))
			return 0;
	}
	if (!is_supported)
		return -ENODEV;
	return is_lost ? -EIO : -ENOMEM;
}

static void tell_hopeless(struct residency_plan *plan, enum residency_wish wish)
{
	list_for_each_safe (node, &plan->held[wish]) {
		int res = waiter_verdict(plan, waiter_of(node));

		if (res)
			waiter_finish(waiter_of(node), res);
	}
	recall(plan, wish);
}

void residency_tell_on(struct residency *residency)
{
	const struct turn *turn = loop_current(residency->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, TELL_PART);

	for (uint32_t n = 0; residency->waited.next != &residency->told; n++) {
		struct residency_plan *plan =
			container_of(residency->waited.next, struct residency_plan, waited);

		if (n >= RESIDENCY_SLICE || (n > 0 && turn_used_ticks(turn) >= stop_ticks))
			return;
		list_remove(&plan->waited);
		list_append(&residency->waited, &plan->waited);
		tell_hopeless(plan, RESIDENCY_PREFETCH);
		tell_hopeless(plan, RESIDENCY_STREAM);
		tell_hopeless(plan, RESIDENCY_WAIT);
	}
	list_remove(&residency->told);
}

void residency_tell_hopeless(struct residency *residency)
{
	list_remove(&residency->told);
	list_append(&residency->waited, &residency->told);
	residency_tell_on(residency);
	residency_go_on_soon(residency);
}

void residency_ask(struct residency *residency, struct plan_memory *memory,
		   struct residency_waiter *waiter, enum residency_wish wish, uint8_t device)
{
	struct residency_plan *plan = memory->residency;

	waiter->memory = memory;
	waiter->wish = (uint8_t)wish;
	waiter->device = device;
	waiter->is_asked = true;
	waiter->was_deferred = false;
	plan->n_asked++;
	if (list_is_empty(&plan->tenant->memory->asked))
		list_append(&residency->asking, &plan->tenant->memory->asking);
	list_append(&plan->tenant->memory->asked, &waiter->link);
	residency_review_in(residency, 0);
}

void residency_withdraw(struct residency *residency, struct residency_waiter *waiter)
{
	waiter_take(waiter);
}
