/* SPDX-License-Identifier: MIT */
/*
 * Residency: who comes and who goes
 *
 * A review yields first: tenants above their maximum, then whatever the device can no longer hold,
 * down to the reserves. Then it brings plans: those wanted most first, into free room, or by
 * displacing others where residency-policy.h allows it. Who is displaced leaves when its tasks have
 * ended, and the wish waits (AWAITED) with its bytes set aside, so that nobody else takes them.
 *
 * What a tenant is owed, a wish within its reserve, is promised even where those who hold too much
 * cannot leave yet, because they are just coming: promised memory is theirs no longer, so they go
 * as soon as they have come.
 *
 * Reviews happen when something changed: memory was freed, or can be had again; a limit was set; a
 * task wanted a plan in vain. While there are wishes that were not granted, a timer repeats them,
 * since what is wanted changes with time.
 *
 * There may be as many plans as clients can add. So a review looks at them in slices, in turns of
 * their own, notes the best, and brings those when it has seen all, again as far as turns allow.
 * Likewise plans leave some in each turn where many have to, and a review only begins the rounds
 * over promises, over plans that are to come back, and over those in the second tier. A round looks
 * at each of them once, and the next turns go on with it, without the pause between reviews. How
 * much a plan is wanted is counted only when it matters: as the plan is looked at, and as it is
 * compared with another.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

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
	PROMISES_PART = 4,   /* promises take at most that part of a turn's budget, */
	WALK_PART = 2,       /* a slice this one, */
	WALK_PIECES = 16,    /* and between two looks at the clock so many plans */
	SPARE_MAPPINGS = 16, /* one plan of several slots takes at most that part of those left */
};
/* A wish is repeated for that long after the plan was wanted last. */
static const uint64_t patience_ns = 10ull * 1000 * 1000 * 1000;

static struct seeker seeker_of(const struct residence *residence)
{
	return (struct seeker){
		.device = residence->device,
		.tenant = residence->plan->tenant,
		.residence = (struct residence *)residence,
		/* 0 unless it is AWAITED. */
		.awaited_bytes = residence->awaited_bytes,
	};
}

static const struct tenant_share *share_of(const struct residence *residence)
{
	return &residence->plan->tenant->shares[residence->device->index];
}

uint64_t residency_tenant_used(const struct residency_device *device, const struct tenant *tenant)
{
	return account_used(tenant->account, account_vram(device->index)) -
	       memory_of(tenant)->leaving[device->index];
}

static void fold(struct residency_plan *plan, uint64_t now_ns, uint64_t now_ticks)
{
	struct plan_memory *memory = plan->memory;
	uint64_t since_ns = clock_elapsed_ns(memory->wanted_ticks, now_ticks);

	if (memory->n_wanted > 0) {
		plan->used_ns = now_ns - since_ns;
		plan->is_parked = false;
	}
	plan->value =
		residency_value(plan->value, memory->n_wanted, now_ns - plan->folded_ns, since_ns);
	plan->folded_ns = now_ns;
	memory->n_wanted = 0;
}

void residency_fold_plan(struct residency_plan *plan)
{
	fold(plan, clock_now_ns(), clock_ticks());
}

void residency_look(struct residency *residency)
{
	residency->look_ns = clock_now_ns();
	residency->look_ticks = clock_ticks();
}

void residency_look_at(struct residency_plan *plan)
{
	const struct residency *residency = plan->residency;

	if (plan->folded_ns < residency->look_ns)
		fold(plan, residency->look_ns, residency->look_ticks);
}

/* What plans and leases have been charged for. */
static uint64_t device_charged(const struct residency_device *device)
{
	return device->charged_bytes[EXEC_TIER_VRAM] +
	       device->residency->leases.granted_bytes[device->index];
}

int64_t residency_device_free(const struct residency_device *device)
{
	return (int64_t)device->usable_bytes[EXEC_TIER_VRAM] -
	       (int64_t)(device_charged(device) - device->leaving_bytes) -
	       (int64_t)device->awaited_bytes - (int64_t)device->refused_bytes;
}

uint64_t seeker_tenant_awaited(const struct seeker *seeker)
{
	return memory_of(seeker->tenant)->awaited[seeker->device->index] - seeker->awaited_bytes;
}

int64_t residency_tenant_free(const struct residency_device *device, const struct tenant *tenant)
{
	return (int64_t)tenant->shares[device->index].max -
	       (int64_t)residency_tenant_used(device, tenant);
}

int64_t seeker_tenant_free(const struct seeker *seeker)
{
	return residency_tenant_free(seeker->device, seeker->tenant) -
	       (int64_t)seeker_tenant_awaited(seeker);
}

/*
 * Not what is still taken by those who leave, and not what others who are awaited will need when
 * that is free.
 */
uint64_t seeker_room(const struct seeker *seeker)
{
	const struct residency_device *device = seeker->device;
	const struct account *account = seeker->tenant->account;
	uint64_t max = seeker->tenant->shares[device->index].max;
	uint64_t usable =
		saturating_sub(device->usable_bytes[EXEC_TIER_VRAM], device->refused_bytes);
	uint64_t charged = device_charged(device);
	uint64_t kept =
		charged - device->leaving_bytes + device->awaited_bytes - seeker->awaited_bytes;
	uint64_t used = account_used(account, account_vram(device->index));
	uint64_t promised =
		residency_tenant_used(device, seeker->tenant) + seeker_tenant_awaited(seeker);

	uint64_t room =
		min_u64(min_u64(saturating_sub(usable, charged), saturating_sub(usable, kept)),
			min_u64(saturating_sub(max, used), saturating_sub(max, promised)));

	return seeker->residence ? room
				 : min_u64(room, residency_lease_room(device, seeker->tenant));
}

static bool has_room(const struct residence *residence, uint64_t bytes)
{
	const struct seeker seeker = seeker_of(residence);

	return bytes <= seeker_room(&seeker);
}

/*
 * May the tenant have the mappings of @n_slots and a block? More than one slot may take only a part
 * of those left, so that there are some for plans to come.
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
 * May its tenant have the host memory and the mappings that it takes? If not, nobody has to leave
 * for it.
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

bool residence_fits(const struct residence *residence)
{
	return residence->required_bytes <= share_of(residence)->max &&
	       residence->required_bytes <= residence->device->executor->info.memory_bytes;
}

uint64_t residency_available(const struct residency_device *device, const struct tenant *tenant)
{
	int64_t of_tenant = residency_tenant_free(device, tenant),
		of_device = residency_device_free(device);
	uint64_t evictable = memory_of(tenant)->evictable[device->index];
	uint64_t leased = leases_of(tenant)->granted[device->index];
	uint64_t reserve = tenant->shares[device->index].reserve;

	/* Its own plans can make way, and others that hold more than their due. */
	of_tenant += (int64_t)evictable;
	of_device += (int64_t)evictable;
	if (of_device < (int64_t)saturating_sub(reserve, leased))
		of_device = (int64_t)saturating_sub(reserve, leased);
	if (of_device < 0)
		of_device = 0;
	return (uint64_t)(of_tenant < of_device ? of_tenant > 0 ? of_tenant : 0 : of_device);
}

uint64_t residence_available(const struct residence *residence)
{
	return residency_available(residence->device, residence->plan->tenant);
}

static bool is_owed(const struct residence *residence, uint64_t bytes, bool by_hand)
{
	const struct seeker seeker = seeker_of(residence);

	return seeker_is_owed(&seeker, bytes, by_hand);
}

/* Coming */

static enum try_result try_gtt(struct residence *residence)
{
	struct residency_device *device = residence->device;
	struct draft draft;
	uint64_t bytes;
	bool has_begun;

	if (device->usable_bytes[EXEC_TIER_GTT] == 0)
		return TRY_NO_ROOM;
	if (draft_init(&draft, residence, EXEC_TIER_GTT))
		return TRY_LATER;
	bytes = draft_device_bytes(&draft, 1);
	has_begun = !draft.must_wait &&
		    checked_range(device->charged_bytes[EXEC_TIER_GTT], bytes,
				  device->usable_bytes[EXEC_TIER_GTT]) &&
		    residence_begin(&draft, 1) == 0;
	if (!has_begun)
		draft_deinit(&draft);
	return has_begun ? TRY_STARTED : TRY_NO_ROOM;
}

/* As many slots as there is free room for, at least one. */
static uint32_t slots_for(const struct draft *draft, const struct residence *residence)
{
	const struct plan *plan = residence->plan->memory->plan;
	uint32_t n = plan->footprint[residence->device->index].max_slots;

	while (n > 1 &&
	       (!has_room(residence, draft_device_bytes(draft, n)) || !has_host_room(residence, n)))
		n /= 2;
	return n;
}

/* Is nothing in the way that passes by itself? Takes no time. */
static bool may_try(const struct residence *residence)
{
	const struct residency_device *device = residence->device;

	if (residence->plan->tenant->memory->n_loads[device->index] >= RESIDENCY_MAX_LOADS ||
	    device->state != RESIDENCY_DEVICE_UP)
		return false;
	/* Otherwise the plan would find the block that it left, which others are still to leave. */
	return !residence->must_return || (device->n_moving == 0 && !device->renew_next);
}

enum try_result residence_try(struct residence *residence, bool by_hand)
{
	struct residency_device *device = residence->device;
	bool was_awaited = residence->state == RESIDENCE_AWAITED;
	struct seeker seeker;
	struct draft draft;
	uint64_t bytes;
	uint32_t n_slots;

	if (!may_try(residence))
		return TRY_LATER;
	if (draft_init(&draft, residence, EXEC_TIER_VRAM))
		return TRY_LATER;
	if (draft.must_wait) {
		draft_deinit(&draft);
		return TRY_LATER;
	}
	n_slots = slots_for(&draft, residence);
	bytes = draft_device_bytes(&draft, n_slots);
	if (has_room(residence, bytes) && residence_begin(&draft, n_slots) == 0)
		return TRY_STARTED;
	draft_deinit(&draft);
	if (was_awaited || !has_host_room(residence, n_slots))
		return TRY_NO_ROOM;
	/* Each promise is looked after, which takes time. */
	if (residence->plan->tenant->memory->n_awaited[device->index] >= RESIDENCY_MAX_AWAITED)
		return try_gtt(residence) == TRY_STARTED ? TRY_STARTED : TRY_LATER;

	seeker = seeker_of(residence);
	if (seeker_displace(&seeker, bytes, by_hand)) {
		residence->state = RESIDENCE_AWAITED;
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

/* Reviews */

/* Does a task or a client wait for the plan to come? */
static bool is_waited_for(const struct residency_plan *plan)
{
	return plan->n_held[RESIDENCY_PREFETCH] + plan->n_held[RESIDENCY_WAIT] > 0;
}

/*
 * Tenants above a maximum that was lowered: what was promised to them goes before what they have.
 * Return: false: the turn has no time for the others.
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

/* Return: likewise. */
static bool yield(struct residency_device *device)
{
	/* What was promised beyond what is owed is the first thing to be taken back. */
	list_for_each_safe (node, &device->awaiting) {
		struct residence *residence = container_of(node, struct residence, link);

		if (residency_device_free(device) >= 0)
			return true;
		if (!is_owed(residence, residence->awaited_bytes, is_waited_for(residence->plan))) {
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
 * Plans that made do with the second tier move up into free room, or room that is owed to them:
 * they go, and come back. One does in each review, and as many turns look for it as it takes.
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

/* Return: did it take time? */
static bool bring_one_awaited(struct residence *residence)
{
	struct residency_device *device = residence->device;
	bool is_due;

	/* Trying takes time for each of its constants. */
	if (!may_try(residence) ||
	    (device->leaving_bytes > 0 && !has_room(residence, residence->awaited_bytes)))
		return false;
	if (residence_try(residence, false) != TRY_NO_ROOM || device->leaving_bytes > 0)
		return true;
	is_due = is_owed(residence, residence->awaited_bytes, is_waited_for(residence->plan));
	/* Plans that are in the way and still loading leave when they have come. */
	if (is_due && device->n_jobs > 0)
		return true;
	/* Everybody has left, and it was not enough after all. What is owed is asked for again. */
	residence_forget_awaited(residence);
	if (!is_due)
		residency_tell(residence, -ENOMEM);
	return true;
}

/*
 * A plan that left in order to come back. Return: false: something passes first that is in the way
 * of its tenant's others, too.
 */
static bool bring_one_moved(struct residence *residence)
{
	struct residency_plan *plan = residence->plan;
	enum try_result result;

	residency_look_at(plan);
	if (plan->is_parked || plan->removed) {
		residence_stay_out(residence);
		return true;
	}
	result = residence_try(residence, false);
	if (result == TRY_NO_ROOM)
		residence_stay_out(residence);
	return result != TRY_LATER;
}

/* Has the turn no time for another one? There is always time for the first. */
static bool is_late(const struct residency_device *device, bool is_any_tried, uint64_t stop_ticks)
{
	const struct turn *turn = loop_current(device->residency->options.loop);

	return is_any_tried && turn_used_ticks(turn) >= stop_ticks;
}

/* Return: false: the turn has no time for the others. */
static bool bring_moved_of(struct residency_device *device, struct tenant_memory *memory,
			   uint64_t stop_ticks, bool *is_any_tried)
{
	struct residency_holding *on = &memory->on[device->index];

	if (on->round_number == device->n_bring_rounds)
		return true;
	list_for_each_safe (node, &on->returning) {
		struct residence *residence = container_of(node, struct residence, returning);

		/* Few are on their way back, or promised it. */
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

/* Brings plans for which others left, in the order in which they asked, and those to come back. */
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
 * Each is tried once in a round, which takes as many turns as it needs. A round is all that a
 * review asks for: what could change its outcome brings the next review.
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
	if (residence->state != RESIDENCE_OUT || plan->removed || residence->must_return)
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

/* Keeps the best few. */
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

/* Return: is it a wish that time may grant? */
static bool bring_candidate(struct residency *residency, struct residence *residence,
			    uint64_t now_ns)
{
	struct residency_plan *plan = residence->plan;
	enum try_result result;

	/* Much may have happened since it was noted. */
	if (!is_candidate(plan, residence, now_ns))
		return false;
	residence->tried_number = residency->n_reviews;
	result = residence_try(residence, is_waited_for(plan));
	/* A promise is looked after, since those who leave may not be enough. */
	if (result <= TRY_AWAITED)
		return result == TRY_AWAITED;
	if (result == TRY_NO_ROOM)
		residency_tell(residence, -ENOMEM);
	return is_waited_for(plan) || (plan->value > 0 && now_ns - plan->used_ns < patience_ns);
}

/* Each may take a search. Return: false: the turn is over, and some are left. */
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

/* Would it be in the device's memory, were there less of others? */
static bool is_pressed(const struct residency_plan *plan, const struct residence *residence,
		       uint64_t now_ns)
{
	if (plan->is_parked || plan->removed || residence->state == RESIDENCE_LOADING ||
	    (residence->state == RESIDENCE_IN && residence->tier == EXEC_TIER_VRAM))
		return false;
	return residence->is_pressed || now_ns - plan->used_ns < patience_ns;
}

/* Somebody waits for that device, and being on another one is not what he waits for. */
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

static void walk_look_at(struct residency_walk *walk, struct residency_plan *plan, uint64_t now_ns)
{
	struct residence *residence;

	if (plan->must_go)
		go_by_hand(plan);
	if (walk->is_showing)
		show_everywhere(plan);

	residency_look_at(plan);
	plan->memory->is_wanted = false;
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

/* Return: true if all have been looked at. */
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

/* While there is a wish left that time may grant, there will be another review. */
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

bool residency_goes_on(const struct residency *residency)
{
	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		const struct residency_device *device = &residency->devices[i];

		if (device->evict_next)
			return true;
		if (device->state == RESIDENCY_DEVICE_UP &&
		    (device->is_above || device->is_bringing || device->n_to_promote > 0 ||
		     device->renew_next))
			return true;
	}
	return residency->walk.next != NULL || !list_is_empty(&residency->told);
}

/*
 * Once all plans have been looked at, those who wait are tried in turn, so that each hears; then
 * those who are wanted, most wanted first.
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

void residency_go_on_soon(struct residency *residency)
{
	uint64_t at_ns = UINT64_MAX;

	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		if (residency->devices[i].must_serve)
			at_ns = min_u64(at_ns, residency->devices[i].serve_ns);
	if (residency_goes_on(residency))
		loop_timer_arm(residency->walk.timer, 0);
	else if (at_ns != UINT64_MAX)
		loop_timer_arm(residency->walk.timer, saturating_sub(at_ns, clock_now_ns()));
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

static void candidates_forget(struct candidates *candidates, const struct residency_plan *plan)
{
	uint32_t n = 0, n_tried = 0;

	for (uint32_t i = 0; i < candidates->n; i++) {
		if (candidates->of[i].residence->plan == plan)
			continue;
		n_tried += i < candidates->n_tried;
		candidates->of[n++] = candidates->of[i];
	}
	candidates->n = n;
	candidates->n_tried = n_tried;
}

void residency_walk_forget(struct residency_plan *plan)
{
	struct residency_walk *walk = &plan->residency->walk;

	if (!walk->next)
		return;
	if (walk->next == &plan->link)
		walk->next = plan->link.next;
	candidates_forget(&walk->waiting, plan);
	candidates_forget(&walk->wanted, plan);
}

/* The ledger is right: with nothing under way, what is charged is what the executor holds. */
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
