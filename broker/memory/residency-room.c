/* SPDX-License-Identifier: MIT */
/*
 * Residency: which plans are loaded and evicted
 *
 * A review first takes memory back: from tenants above their maximum, then whatever the device can
 * no longer hold, down to the reserves. Then it loads plans, the most wanted first, into free room
 * or by displacing other plans where residency-policy.h allows it. A displaced plan is evicted when
 * its tasks have completed. Until then the request waits (AWAITED), and its bytes are set aside, so
 * that no other request takes them.
 *
 * A request within its tenant's reserve is owed. Its bytes are set aside even where the plans of
 * tenants that hold too much cannot be evicted yet because they are being loaded. These plans are
 * evicted as soon as they are loaded.
 *
 * A review runs when something has changed: memory was freed or became usable, a limit was set, or
 * a task found its plan not resident. While requests remain that were not granted, a timer repeats
 * them, since the values of plans change with time.
 *
 * There may be as many plans as clients can add. So a review visits them in slices, each in its own
 * turn, notes the best, and loads those when it has visited all, again as far as turns allow. Where
 * many plans must be evicted, each turn evicts some. Other work is done in rounds that a review
 * only begins: over AWAITED plans, over plans that are to return, and over plans in the second
 * tier. A round visits each plan once; the next turns continue it without the pause between
 * reviews. A plan's value is updated only when the plan is visited or compared with another.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/number.h"

enum {
	REVIEW_NS = 20000000,
	/* AWAITED and returning plans take at most 1/PROMISES_PART of a turn's budget */
	PROMISES_PART = 4,
	WALK_PART = 2,             /* a slice of a walk takes at most 1/WALK_PART of the budget */
	WALK_PIECES = 16,          /* plans visited between two looks at the clock */
	MAX_HOLDOFF_DOUBLINGS = 6, /* more would exceed residency_max_holdoff_ns */
	/* several slots take at most 1/SPARE_MAPPINGS of the remaining mappings */
	SPARE_MAPPINGS = 16,
};
/* Time after a plan's last request for which reviews keep trying to load it. */
static const uint64_t patience_ns = 10ull * 1000 * 1000 * 1000;

static struct seeker seeker_of(const struct residence *residence)
{
	return (struct seeker){
		.device = residence->device,
		.tenant = residence->plan->tenant,
		.residence = (struct residence *)residence,
		/* 0 unless AWAITED */
		.awaited_bytes = residence->awaited_bytes,
	};
}

static bool has_room(const struct residence *residence, uint64_t bytes)
{
	const struct seeker seeker = seeker_of(residence);

	return bytes <= seeker_room(&seeker);
}

/*
 * Return true if the tenant may have the mappings of @n_slots slots and a block. A plan of several
 * slots may take only a fraction of the remaining mappings; the rest is kept for later plans.
 */
static bool has_mappings(const struct residence *residence, uint32_t n_slots)
{
	const struct residency_device *device = residence->device;
	const struct executor_info *info = &device->executor->info;
	const struct account *account = residence->plan->tenant->account;
	const uint64_t n =
		exec_footprint_mappings(&residence->plan->memory->plan->footprint[device->index],
					info, n_slots) +
		info->allocation_mappings;

	return n == 0 || checked_range(account_used(account, ACCOUNT_MAPPINGS),
				       n_slots > 1 ? n * SPARE_MAPPINGS : n,
				       account_limit(account, ACCOUNT_MAPPINGS));
}

/*
 * Return true if the tenant may have the host memory and the mappings that the plan needs. If not,
 * no plan is evicted for it.
 */
static bool has_host_room(const struct residence *residence, uint32_t n_slots)
{
	const struct residency_device *device = residence->device;
	const struct account *account = residence->plan->tenant->account;
	uint64_t bytes =
		exec_footprint_host_bytes(&residence->plan->memory->plan->footprint[device->index],
					  &device->executor->info, n_slots);

	return (bytes == 0 || checked_range(account_used(account, ACCOUNT_HOST_BYTES), bytes,
					    account_limit(account, ACCOUNT_HOST_BYTES))) &&
	       has_mappings(residence, n_slots);
}

static bool is_owed(const struct residence *residence, uint64_t bytes, bool by_hand)
{
	const struct seeker seeker = seeker_of(residence);

	return seeker_is_owed(&seeker, bytes, by_hand);
}

/* Loads */

/* Nothing else may happen before the broker has memory again. */
static enum try_result try_again(struct residency *residency)
{
	residency_review_in(residency, REVIEW_NS);
	return TRY_LATER;
}

static enum try_result try_gtt(struct residence *residence)
{
	struct residency_device *device = residence->device;
	struct draft draft;
	uint64_t bytes;
	bool has_begun;

	if (device->usable_bytes[EXEC_TIER_GTT] == 0)
		return TRY_NO_ROOM;
	if (draft_init(&draft, residence, EXEC_TIER_GTT))
		return try_again(device->residency);
	bytes = draft_device_bytes(&draft, 1);
	has_begun = !draft.must_wait &&
		    checked_range(device->charged_bytes[EXEC_TIER_GTT], bytes,
				  device->usable_bytes[EXEC_TIER_GTT]) &&
		    residence_begin(&draft, 1) == 0;
	if (!has_begun)
		draft_deinit(&draft);
	return has_begun ? TRY_STARTED : TRY_NO_ROOM;
}

/* Return the number of slots for which there is free room, at least 1. */
static uint32_t slots_for(const struct draft *draft, const struct residence *residence)
{
	const struct plan *plan = residence->plan->memory->plan;
	uint32_t n = plan->footprint[residence->device->index].max_slots;

	while (n > 1 &&
	       (!has_room(residence, draft_device_bytes(draft, n)) || !has_host_room(residence, n)))
		n /= 2;
	return n;
}

/* Return false if a temporary obstacle prevents a load. Takes constant time. */
static bool may_try(const struct residence *residence)
{
	const struct residency_device *device = residence->device;

	if (residence->plan->tenant->memory->n_loads[device->index] >= RESIDENCY_MAX_LOADS ||
	    device->state != RESIDENCY_DEVICE_UP)
		return false;
	/*
	 * A returning plan must wait until all moved plans are unloaded, or it would share its old
	 * block, which other plans have not left yet.
	 */
	return !residence->must_return || (device->n_moving == 0 && !device->renew_next);
}

enum try_result residence_try(struct residence *residence, enum residency_force force)
{
	struct residency_device *device = residence->device;
	bool was_awaited = residence->state == RESIDENCE_AWAITED;
	struct seeker seeker = seeker_of(residence);
	struct draft draft;
	uint64_t bytes;
	uint32_t n_slots;

	if (!may_try(residence))
		return TRY_LATER;
	if (draft_init(&draft, residence, EXEC_TIER_VRAM))
		return try_again(device->residency);
	if (draft.must_wait) {
		draft_deinit(&draft);
		return TRY_LATER;
	}
	n_slots = slots_for(&draft, residence);
	bytes = draft_device_bytes(&draft, n_slots);
	if (has_room(residence, bytes) && residence_begin(&draft, n_slots) == 0)
		return TRY_STARTED;
	seeker.shares = draft.n_sharing > (draft.own != NULL);
	draft_deinit(&draft);
	if (was_awaited || !has_host_room(residence, n_slots))
		return TRY_NO_ROOM;
	/* The number of AWAITED plans is limited, because each round tries all of them. */
	if (residence->plan->tenant->memory->n_awaited[device->index] >= RESIDENCY_MAX_AWAITED)
		return try_gtt(residence) == TRY_STARTED ? TRY_STARTED : TRY_LATER;

	if (seeker_displace(&seeker, &bytes, force)) {
		residence->state = RESIDENCE_AWAITED;
		residence->sought_ns = clock_now_ns();
		residence->awaited_bytes = bytes;
		residence->plan->tenant->memory->awaited[device->index] += bytes;
		residence->plan->tenant->memory->n_awaited[device->index]++;
		device->awaited_bytes += bytes;
		list_append(&device->awaiting, &residence->link);
		return TRY_AWAITED;
	}
	return try_gtt(residence);
}

struct residence *residency_choose(struct residency_plan *plan)
{
	struct residency *residency = plan->residency;
	struct residence *best = NULL;

	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		struct residence *residence = &plan->on[i];

		if (!(plan->supported & 1u << i) ||
		    residency->devices[i].state != RESIDENCY_DEVICE_UP)
			continue;
		if (residence->state == RESIDENCE_IN || residence->state == RESIDENCE_LOADING ||
		    residence->state == RESIDENCE_AWAITED)
			return residence;
		if (!residence_fits(residence))
			continue;
		if (!best ||
		    residency_device_free(residence->device) > residency_device_free(best->device))
			best = residence;
	}
	return best;
}

/* Failed loads */

/*
 * Delay the next load of a plan whose load ended with the loss of the device. The plan may be the
 * cause. Other plans use the device between its attempts, which become rare, and a device that
 * survives no load is not reopened all the time.
 */
static void hold_off_lost(struct residence *residence)
{
	residence->left_ns = clock_now_ns();
	residence->holdoff_ns = residence->n_lost < MAX_HOLDOFF_DOUBLINGS
					? (uint64_t)RESIDENCY_FIRST_HOLDOFF_NS << residence->n_lost
					: residency_max_holdoff_ns;
	residence->n_lost++;
}

void residency_load_failed(struct residence *residence, int r)
{
	struct residency_device *device = residence->device;
	struct residency *residency = device->residency;
	struct residency_plan *plan = residence->plan;
	bool is_retry = residence->is_retry;
	enum try_result result;
	uint64_t n_unlogged;

	residence->is_retry = false;
	if (plan->removed) {
		residency_tell(residence, -ENOMEM);
		return;
	}
	if (r == -EIO || residency_device_is_lost(device)) {
		residency_device_lost(residency, device->index);
		hold_off_lost(residence);
		residency_tell(residence, -EIO);
		return;
	}
	if (r == EXECUTOR_E_CANCELLED) {
		/* Evicted by hand. The waiters that came later have the plan loaded again. */
		if (plan->is_parked)
			residency_tell(residence, -EINTR);
		return;
	}
	if (r == EXECUTOR_E_NO_MEMORY && !is_retry) {
		/*
		 * An outside process took the memory first. Evict plans for the whole request if
		 * allowed, whatever room the figures show; otherwise only retry the load.
		 */
		residence->is_retry = true;
		residency_look(residency);
		device->refused_bytes = residence->required_bytes;
		result = residence_try(residence, RESIDENCY_BY_VALUE);
		device->refused_bytes = 0;
		if (result > TRY_AWAITED)
			result = residence_try(residence, RESIDENCY_BY_VALUE);
		if (result <= TRY_AWAITED)
			return;
		residence->is_retry = false;
		/* The obstacle passes when the tenant's other loads or AWAITED plans are done. */
		if (result == TRY_LATER) {
			residence->left_ns = clock_now_ns();
			residence->holdoff_ns = RESIDENCY_FIRST_HOLDOFF_NS;
			return;
		}
	}
	if (log_limit_pass(&residency->failure_limit, clock_now_ns(), &n_unlogged))
		log_warning_of(
			LOG_OF(.tenant = tenant_name(residence->plan->tenant),
			       .plan = residence->plan->memory->plan->name, .has_device = true,
			       .device = device->index),
			LOG_PLAN_NO_MEMORY,
			"device %u (%s) has no memory for plan \"%s\" of tenant %s%s%s: its tasks "
			"run on another device",
			device->index, device->executor->info.name,
			residence->plan->memory->plan->name, tenant_name(residence->plan->tenant),
			r < 0 ? ": " : "", r < 0 ? strerror(-r) : "");
	residence_stay_out(residence);
	residence->left_ns = clock_now_ns();
	residence->holdoff_ns = RESIDENCY_FIRST_HOLDOFF_NS;
	residency_tell(residence, -ENOMEM);
}

/* Reviews */

/* Return true if waiters for a load of the plan are held. */
static bool is_waited_for(const struct residency_plan *plan)
{
	return plan->n_held[RESIDENCY_PREFETCH] + plan->n_held[RESIDENCY_STREAM] +
		       plan->n_held[RESIDENCY_WAIT] >
	       0;
}

/* Return what may be evicted for the plan's waiters. */
static enum residency_force force_of(const struct residency_plan *plan)
{
	if (plan->n_held[RESIDENCY_PREFETCH] + plan->n_held[RESIDENCY_WAIT] > 0)
		return RESIDENCY_BY_HAND;
	return plan->n_held[RESIDENCY_STREAM] > 0 ? RESIDENCY_OWN_SEGMENTS : RESIDENCY_BY_VALUE;
}

/*
 * Take memory back from tenants above a lowered maximum: AWAITED plans lose theirs before resident
 * ones.
 * Return: false if the turn ended before all was done.
 */
static bool enforce_limits(struct residency_device *device)
{
	list_for_each_safe (node, &device->awaiting) {
		struct residence *residence = container_of(node, struct residence, link);

		if (residency_tenant_free(device, residence->plan->tenant) >=
		    (int64_t)residence->plan->tenant->memory->awaited[device->index])
			continue;
		residence_forget_awaited(residence);
		residency_tell(residence, -ENOMEM);
	}
	return residency_take_surplus(device);
}

/* Take back what the device can no longer hold. Return: as enforce_limits(). */
static bool yield(struct residency_device *device)
{
	/* AWAITED plans that are not owed their bytes lose them first. */
	list_for_each_safe (node, &device->awaiting) {
		struct residence *residence = container_of(node, struct residence, link);

		if (residency_device_free(device) >= 0)
			return true;
		if (!is_owed(residence, residence->awaited_bytes,
			     force_of(residence->plan) == RESIDENCY_BY_HAND)) {
			residence_forget_awaited(residence);
			residency_tell(residence, -ENOMEM);
		}
	}
	return residency_take_back(device);
}

static void make_room(struct residency_device *device)
{
	const bool is_within = enforce_limits(device);

	device->is_above = !yield(device) || !is_within;
}

/*
 * Move plans of the second tier to VRAM when it has free room, or room that is owed to them: they
 * are unloaded and reloaded. Each review moves at most one plan, and looks for it in as many turns
 * as that takes.
 */
static void promote(struct residency_device *device)
{
	for (uint32_t n = 0; n < RESIDENCY_SLICE && device->n_to_promote > 0; n++) {
		struct list_node *node = device->second_tier.next;
		struct residence *residence = container_of(node, struct residence, holding);

		device->n_to_promote--;
		if (node == &device->second_tier)
			continue;
		list_remove(node);
		list_append(&device->second_tier, node);
		if (residence_fits(residence) &&
		    (has_room(residence, residence->required_bytes) ||
		     is_owed(residence, residence->required_bytes, false))) {
			device->n_to_promote = 0;
			residence_move(residence);
		}
	}
}

/* Try to load an AWAITED plan. Return: true if this took time. */
static bool bring_one_awaited(struct residence *residence)
{
	struct residency_device *device = residence->device;
	bool is_due;

	/* An attempt takes time for each of the plan's constants. */
	if (!may_try(residence) ||
	    (device->leaving_bytes > 0 && !has_room(residence, residence->awaited_bytes)))
		return false;
	if (residence_try(residence, RESIDENCY_BY_VALUE) != TRY_NO_ROOM ||
	    device->leaving_bytes > 0)
		return true;
	is_due = is_owed(residence, residence->awaited_bytes,
			 force_of(residence->plan) == RESIDENCY_BY_HAND);
	/* Plans that are in the way and being loaded are evicted once they are loaded. */
	if (is_due && device->n_jobs > 0)
		return true;
	/*
	 * All evictions have completed, and there is still no room. A later review repeats a
	 * request that is owed.
	 */
	residence_forget_awaited(residence);
	if (!is_due)
		residency_tell(residence, -ENOMEM);
	return true;
}

/*
 * Reload a plan that was unloaded by residence_move().
 * Return: false if there is a temporary obstacle, which concerns its tenant's other plans, too.
 */
static bool bring_one_moved(struct residence *residence)
{
	struct residency_plan *plan = residence->plan;
	enum try_result result;

	residency_look_at(plan);
	if (plan->is_parked || plan->removed || plan->tenant->is_emptied) {
		residence_stay_out(residence);
		return true;
	}
	result = residence_try(residence, RESIDENCY_BY_VALUE);
	if (result == TRY_NO_ROOM)
		residence_stay_out(residence);
	return result != TRY_LATER;
}

/* Return true if the turn has no time for another attempt. There is always time for the first. */
static bool is_late(const struct residency_device *device, bool is_any_tried, uint64_t stop_ticks)
{
	const struct turn *turn = loop_current(device->residency->options.loop);

	return is_any_tried && turn_used_ticks(turn) >= stop_ticks;
}

/* Reload a tenant's moved plans. Return: false if the turn ended before all were tried. */
static bool bring_moved_of(struct residency_device *device, struct tenant_memory *memory,
			   uint64_t stop_ticks, bool *is_any_tried)
{
	struct residency_holding *on = &memory->on[device->index];

	if (on->round_number == device->n_bring_rounds)
		return true;
	list_for_each_safe (node, &on->returning) {
		struct residence *residence = container_of(node, struct residence, returning);

		/* The limits on loads and AWAITED plans keep these few. */
		if (residence->state != RESIDENCE_OUT)
			continue;
		if (is_late(device, *is_any_tried, stop_ticks))
			return false;
		*is_any_tried = true;
		if (!bring_one_moved(residence))
			break;
	}
	on->round_number = device->n_bring_rounds;
	return true;
}

/*
 * Try the AWAITED plans in the order of their requests, then the moved plans.
 * Return: false if the turn ended before all were tried.
 */
static bool bring_promised_in_turn(struct residency_device *device)
{
	const struct turn *turn = loop_current(device->residency->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, PROMISES_PART);
	bool is_any_tried = false;

	for (uint32_t n = 0; device->bring_next != &device->awaiting; n++) {
		struct list_node *node = device->bring_next;

		if (n >= RESIDENCY_SLICE || is_late(device, is_any_tried, stop_ticks))
			return false;
		device->bring_next = node->next;
		is_any_tried |= bring_one_awaited(container_of(node, struct residence, link));
	}
	list_for_each (node, &device->residency->holders)
		if (!bring_moved_of(device, container_of(node, struct tenant_memory, link),
				    stop_ticks, &is_any_tried))
			return false;
	return true;
}

/*
 * Continue the round over AWAITED and moved plans. A round tries each plan once, in as many turns
 * as that takes. A review requests one round: whatever could change its outcome causes the next
 * review.
 */
static void bring_promised(struct residency_device *device)
{
	device->is_bringing = !bring_promised_in_turn(device);
	if (device->is_bringing || !device->must_bring_again)
		return;
	device->n_bring_rounds++;
	device->bring_next = device->awaiting.next;
	device->is_bringing = true;
	device->must_bring_again = false;
}

static void bring_promised_anew(struct residency_device *device)
{
	if (device->is_bringing) {
		device->must_bring_again = true;
	} else {
		device->n_bring_rounds++;
		device->bring_next = device->awaiting.next;
	}
	bring_promised(device);
}

static bool is_candidate(const struct residency_plan *plan, const struct residence *residence,
			 uint64_t now_ns)
{
	if (residence->state != RESIDENCE_OUT || plan->removed || residence->must_return ||
	    plan->tenant->is_emptied)
		return false;
	if (is_waited_for(plan))
		return true;
	return !plan->is_parked && now_ns - residence->left_ns >= residence->holdoff_ns;
}

static bool candidate_comes_first(const struct candidates *candidates, const struct candidate *a,
				  const struct candidate *b)
{
	if (candidates->in_turn && a->residence->tried_number != b->residence->tried_number)
		return a->residence->tried_number < b->residence->tried_number;
	return residency_comes_first(&a->claim, &b->claim);
}

/* Insert a plan into the sorted candidates if it is among the best. */
static void candidates_add(struct candidates *candidates, struct residence *residence)
{
	const struct seeker seeker = seeker_of(residence);
	struct candidate candidate = {.residence = residence};
	uint32_t i;

	if (!residence_fits(residence))
		return;
	seeker_claim(&seeker, residence->required_bytes, &candidate.claim);
	for (i = candidates->n;
	     i > 0 && candidate_comes_first(candidates, &candidate, &candidates->of[i - 1]); i--)
		if (i < RESIDENCY_MAX_DRAFTS)
			candidates->of[i] = candidates->of[i - 1];
	if (i < RESIDENCY_MAX_DRAFTS)
		candidates->of[i] = candidate;
	if (candidates->n < RESIDENCY_MAX_DRAFTS)
		candidates->n++;
	else
		candidates->is_full = true;
}

/* Return true if the request may be granted later. */
static bool bring_candidate(struct residency *residency, struct residence *residence,
			    uint64_t now_ns)
{
	struct residency_plan *plan = residence->plan;
	enum try_result result;

	/* The plan's state may have changed since it was noted. */
	if (!is_candidate(plan, residence, now_ns))
		return false;
	residence->tried_number = residency->n_reviews;
	result = residence_try(residence, force_of(plan));
	/* An AWAITED plan is tried again, since the evictions may not free enough. */
	if (result <= TRY_AWAITED)
		return result == TRY_AWAITED;
	if (result == TRY_NO_ROOM)
		residency_tell(residence, -ENOMEM);
	return is_waited_for(plan) || (plan->value > 0 && now_ns - plan->used_ns < patience_ns);
}

/*
 * Try the candidates; each attempt may take a search. Return: false if the turn ended before the
 * last.
 */
static bool bring_candidates(struct residency *residency, struct candidates *candidates,
			     uint64_t now_ns, bool *is_any_tried)
{
	const struct turn *turn = loop_current(residency->options.loop);

	while (candidates->n_tried < candidates->n) {
		struct residence *residence;

		if (*is_any_tried && turn_is_over(turn))
			return false;
		*is_any_tried = true;
		residence = candidates->of[candidates->n_tried++].residence;
		residency->walk.is_wishing |= bring_candidate(residency, residence, now_ns);
	}
	return true;
}

/* Return true if the plan would be in the device's memory if outside processes used less. */
static bool is_pressed(const struct residency_plan *plan, const struct residence *residence,
		       uint64_t now_ns)
{
	if (plan->is_parked || plan->removed || residence->state == RESIDENCE_LOADING ||
	    (residence->state == RESIDENCE_IN && residence->tier == EXEC_TIER_VRAM))
		return false;
	return residence->is_pressed || now_ns - plan->used_ns < patience_ns;
}

/* Return true if a waiter wants the plan on this device and no other. */
static bool is_named(const struct residency_plan *plan, const struct residence *residence)
{
	return (plan->is_named & 1u << residence->device->index) && is_waited_for(plan) &&
	       !plan->removed && residence->state == RESIDENCE_OUT &&
	       residence->device->state == RESIDENCY_DEVICE_UP;
}

static void candidates_add_named(struct candidates *waiting, struct residency_plan *plan,
				 const struct residence *chosen)
{
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++)
		if (&plan->on[i] != chosen && is_named(plan, &plan->on[i]))
			candidates_add(waiting, &plan->on[i]);
}

static void walk_begin(struct residency *residency)
{
	residency->walk = (struct residency_walk){
		.timer = residency->walk.timer,
		.next = residency->plans.next,
		.n_left = residency->n_plans,
		.is_showing = residency->must_show,
		.waiting.in_turn = true,
		.next_ns = UINT64_MAX,
	};
	residency->must_show = false;
	residency->n_reviews++;
}

static void show_everywhere(struct residency_plan *plan)
{
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++)
		residence_show(&plan->on[i]);
}

static void go_by_hand(struct residency_plan *plan)
{
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++)
		if (plan->must_go & 1u << i)
			residence_evict_by_hand(&plan->on[i]);
	plan->must_go = 0;
}

/* Evict a plan of a drained tenant. It displaced no plan, so it may be loaded again at once. */
static void go_with_tenant(struct residency_plan *plan)
{
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++) {
		const bool was_in = plan->on[i].state == RESIDENCE_IN;

		residence_evict(&plan->on[i]);
		if (was_in)
			plan->on[i].holdoff_ns = 0;
	}
}

static void walk_look_at(struct residency_walk *walk, struct residency_plan *plan, uint64_t now_ns)
{
	struct residence *residence;

	if (plan->must_go)
		go_by_hand(plan);
	if (walk->is_showing)
		show_everywhere(plan);

	residency_look_at(plan);
	plan->memory->is_wanted = false;
	if (plan->tenant->is_emptied) {
		go_with_tenant(plan);
		return;
	}
	residence = residency_choose(plan);
	if (plan->is_named)
		candidates_add_named(&walk->waiting, plan, residence);
	if (!residence)
		return;
	walk->is_pressed |= is_pressed(plan, residence, now_ns);
	if (is_candidate(plan, residence, now_ns))
		candidates_add(is_waited_for(plan) ? &walk->waiting : &walk->wanted, residence);
	else if (residence->must_return)
		walk->is_wishing = true;
	else if (residence->state == RESIDENCE_OUT && !plan->is_parked && !plan->removed)
		walk->next_ns = min_u64(walk->next_ns, residence->left_ns + residence->holdoff_ns);
}

/* Visit some plans. Return: true if all have been visited. */
static bool walk_slice(struct residency *residency, uint64_t now_ns)
{
	const struct turn *turn = loop_current(residency->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, WALK_PART);
	struct residency_walk *walk = &residency->walk;

	for (uint32_t n = 1; walk->next != &residency->plans && walk->n_left > 0; n++) {
		struct list_node *node = walk->next;

		if (n > RESIDENCY_SLICE ||
		    (n % WALK_PIECES == 0 && turn_used_ticks(turn) >= stop_ticks))
			return false;
		walk->next = node->next;
		walk->n_left--;
		walk_look_at(walk, container_of(node, struct residency_plan, link), now_ns);
	}
	return true;
}

/* End the walk. Schedule another review while there are requests that may be granted later. */
static void walk_end(struct residency *residency, uint64_t now_ns)
{
	struct residency_walk *walk = &residency->walk;
	bool is_wishing = walk->is_wishing || walk->waiting.is_full;

	walk->next = NULL;
	residency->is_pressed = walk->is_pressed;
	if (walk->next_ns != UINT64_MAX)
		residency_review_in(residency, saturating_sub(walk->next_ns, now_ns));
	if (is_wishing)
		residency_review_in(residency, REVIEW_NS);
	if (walk->is_outdated || residency->must_show)
		residency_review_in(residency, 0);
}

/*
 * Continue the walk. When all plans have been visited, plans with waiters are tried in turn, so
 * that every waiter is answered. Then wanted plans are tried, the most wanted first.
 */
static void walk_on(struct residency *residency)
{
	struct residency_walk *walk = &residency->walk;
	bool is_any_tried = false;

	if (walk_slice(residency, residency->look_ns) &&
	    bring_candidates(residency, &walk->waiting, residency->look_ns, &is_any_tried) &&
	    bring_candidates(residency, &walk->wanted, residency->look_ns, &is_any_tried))
		walk_end(residency, residency->look_ns);
}

static void go_on_with_device(struct residency_device *device)
{
	if (device->evict_next)
		residency_empty_on(device);
	if (device->state != RESIDENCY_DEVICE_UP)
		return;
	if (device->is_above) {
		const bool is_within = residency_take_surplus(device);

		device->is_above = !residency_take_back(device) || !is_within;
	}
	if (device->renew_next)
		residency_renew_on(device);
	if (device->is_bringing)
		bring_promised(device);
	if (device->n_to_promote > 0)
		promote(device);
}

void residency_walk_on(struct residency *residency)
{
	uint64_t begin_ns;

	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		residency_leases_serve_due(&residency->devices[i]);
	begin_ns = clock_now_ns();
	residency->is_reviewing = true;
	residency_look(residency);
	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		go_on_with_device(&residency->devices[i]);
	if (!list_is_empty(&residency->told))
		residency_tell_on(residency);
	if (residency->walk.next)
		walk_on(residency);
	residency_go_on_soon(residency);
	residency->is_reviewing = false;
	residency->review_ns += clock_now_ns() - begin_ns;
}

/*
 * Check the ledger: when no job is under way, the charges equal the bytes that the executor holds.
 */
static void check_sums(const struct residency_device *device)
{
	struct executor *executor = device->executor;

	if (device->n_jobs > 0 || device->n_guests > 0 || !executor->ops->memory_used)
		return;
	for (int tier = 0; tier < EXEC_TIER_COUNT; tier++)
		assert(executor->ops->memory_used(executor, (enum exec_tier)tier) ==
		       device->charged_bytes[tier]);
}

void residency_review(struct residency *residency)
{
	uint64_t now_ns = clock_now_ns();

	if (residency->is_reviewing)
		return;
	residency->is_reviewing = true;
	residency->reviewed_ns = now_ns;
	residency->demand.first = NULL;
	residency_look(residency);
	if (residency->has_large_leases)
		residency_leases_limit(residency);
	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		struct residency_device *device = &residency->devices[i];

		if (device->state != RESIDENCY_DEVICE_UP) {
			residency_leases_serve(device);
			continue;
		}
		check_sums(device);
		make_room(device);
		residency_leases_serve(device);
		bring_promised_anew(device);
		device->n_to_promote = device->n_second_tier;
		promote(device);
	}
	if (residency->walk.next) {
		residency->walk.is_outdated = true;
	} else {
		residency->review_ns = 0;
		walk_begin(residency);
		walk_on(residency);
	}
	residency_go_on_soon(residency);
	residency->is_reviewing = false;
	residency->review_ns += clock_now_ns() - now_ns;
}
