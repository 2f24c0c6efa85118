/* SPDX-License-Identifier: MIT */
/*
 * Residency: see residency.h.
 *
 * Here is what others call, and who is told. What it is made of: residency-load.c brings one plan
 * to a device and takes it away, residency-room.c decides which, residency-seek.c finds those that
 * make way, residency-lease.c serves those who wait for a lease, residency-device.c handles the
 * loss of a device, memory/residency-policy.c says who gives way to whom.
 *
 * Owned by the reactor: plans, residences, blocks, the sums. The setup thread sees a residence only
 * while it is LOADING or UNLOADING, and changes nothing of it but job_result.
 */
#include "memory/residency.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"

/* Telling takes at most that part of a turn's budget. */
enum { TELL_PART = 4 };

/* Waiters */

static struct residency_waiter *waiter_of(struct list_node *node)
{
	return container_of(node, struct residency_waiter, link);
}

/* What was put off is looked at again. However much it is, that is done here at once. */
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

/* Out of the list that it is in. */
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
	if (plan->n_held[RESIDENCY_PREFETCH] + plan->n_held[RESIDENCY_WAIT] == 0) {
		plan->is_named = 0;
		list_remove(&plan->waited);
	}
}

static void waiter_finish(struct residency_waiter *waiter, int res)
{
	waiter_take(waiter);
	waiter->done(waiter, res);
}

/* It was looked at, and waits for its plan from now on. */
static void waiter_stay(struct residency_waiter *waiter)
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

/* Is this what it waits for? */
static bool waiter_wants(const struct residency_waiter *waiter, const struct residence *residence)
{
	return waiter->device == RBK_DEVICE_NONE || waiter->device == residence->device->index;
}

static bool is_gone_everywhere(const struct residency_plan *plan, uint8_t device)
{
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++)
		if ((device == RBK_DEVICE_NONE || device == i) &&
		    plan->on[i].state != RESIDENCE_OUT)
			return false;
	return true;
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

void residency_tell(struct residence *residence, int res)
{
	struct residency_plan *plan = residence->plan;

	tell_held(residence, RESIDENCY_PREFETCH, res);
	if (res == 0)
		tell_held(residence, RESIDENCY_WAIT, res);
	/* Whoever wanted it back after it was evicted by hand has it. */
	if (res == 0)
		plan->is_parked = false;
	residency_tell_added(plan);
}

void residence_evict_by_hand(struct residence *residence)
{
	const bool is_coming =
		residence->state == RESIDENCE_AWAITED || residence->state == RESIDENCE_LOADING;

	residence_evict(residence);
	/* There may well be room: who asked before that is not told that there is none. */
	if (is_coming)
		tell_held(residence, RESIDENCY_PREFETCH, -EINTR);
}

void residency_tell_gone(struct residence *residence)
{
	struct residency_plan *plan = residence->plan;

	list_for_each_safe (node, &plan->held[RESIDENCY_EVICT])
		if (is_gone_everywhere(plan, waiter_of(node)->device))
			waiter_finish(waiter_of(node), 0);
	recall(plan, RESIDENCY_EVICT);
}

/* What waits for a plan that can never come is told so. */
static int waiter_verdict(const struct residency_plan *plan, const struct residency_waiter *waiter)
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

static void ask_evict(struct residency_plan *plan, struct residency_waiter *waiter)
{
	/* It is gone since then, and may have been brought again, which is not to be undone. */
	if (waiter->was_deferred && !plan->is_parked) {
		waiter_finish(waiter, 0);
		return;
	}
	/* What was wanted until now does not bring it back. */
	residency_fold_plan(plan);
	plan->is_parked = true;
	for (unsigned int i = 1; i < plan->residency->options.n_executors; i++)
		if (waiter->device == RBK_DEVICE_NONE || waiter->device == i)
			residence_evict_by_hand(&plan->on[i]);
	if (is_gone_everywhere(plan, waiter->device)) {
		waiter_finish(waiter, 0);
		return;
	}
	waiter_stay(waiter);
}

/* Once for all who ask for it in this turn. */
static int try_asked(struct residence *residence)
{
	struct residency *residency = residence->plan->residency;

	if (residence->asked_number != residency->n_asked_turns) {
		residence->asked_number = residency->n_asked_turns;
		residence->asked_result = residence_try(residence, true);
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
	if (res == 0 && (!residence || residence->device->state != RESIDENCY_DEVICE_UP))
		res = -EIO;
	if (res) {
		waiter_finish(waiter, res);
		return;
	}
	waiter_stay(waiter);
	if (residence->state == RESIDENCE_OUT && try_asked(residence) == TRY_NO_ROOM &&
	    waiter->wish == RESIDENCY_PREFETCH)
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
 * What was asked since the last turn; not from inside residency_ask(), whose caller holds a task.
 * Each look may take a while and clients can ask for as much as they have entries, so there is an
 * end to it, and the next turn begins with another tenant.
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

void residence_show(struct residence *residence)
{
	struct plan_memory *memory = residence->plan->memory;
	unsigned int index = residence->device->index;
	uint8_t state = PLAN_DEVICE_EVICTED;

	if (!(residence->plan->supported & 1u << index))
		return;
	if (residence->device->state != RESIDENCY_DEVICE_UP)
		state = PLAN_DEVICE_FAILED;
	else if (residence->state == RESIDENCE_IN)
		state = PLAN_DEVICE_READY;
	else if (!residence_fits(residence))
		state = PLAN_DEVICE_NO_MEMORY;
	if (state == PLAN_DEVICE_READY)
		memory->plan->n_slots[index] = residence->n_slots;
	memory->plan->device_state[index] = state;
}

static struct residency_plan *residency_plan_new(struct residency *residency,
						 struct plan_memory *memory)
{
	uint32_t n = residency->options.n_executors;
	struct residency_plan *plan = calloc(1, sizeof(*plan) + n * sizeof(plan->on[0]));

	if (!plan)
		return NULL;
	if (residency_holders_ref(residency, memory->tenant)) {
		free(plan);
		return NULL;
	}
	plan->residency = residency;
	plan->memory = memory;
	plan->tenant = tenant_ref(memory->tenant);
	memory->counts = &memory->tenant->memory->counts;
	plan->value = 1; /* whoever makes a plan means to use it */
	plan->folded_ns = plan->used_ns = clock_now_ns();
	list_init(&plan->waited);
	for (int wish = 0; wish < RESIDENCY_WISHES; wish++) {
		list_init(&plan->held[wish]);
		list_init(&plan->deferred[wish]);
	}
	for (uint32_t i = 0; i < n; i++) {
		plan->on[i].plan = plan;
		plan->on[i].device = &residency->devices[i];
		list_init(&plan->on[i].link);
		list_init(&plan->on[i].returning);
		list_init(&plan->on[i].holding);
		list_init(&plan->on[i].aging);
		if (residency->devices[i].state != RESIDENCY_DEVICE_NONE &&
		    memory->plan->device_state[i] == PLAN_DEVICE_EVICTED) {
			plan->supported |= 1u << i;
			plan->on[i].required_bytes = residence_required(&plan->on[i]);
		}
	}
	return plan;
}

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

	residency_look(residency);
	residence = residency_choose(plan);
	if (!residence || residence_try(residence, false) != TRY_STARTED) {
		residency_review_in(residency, 0);
		return RESIDENCY_E_SETTLED;
	}
	plan->added = done;
	return 0;
}

bool residency_plan_settle(struct residency_plan *plan)
{
	struct residency *residency = plan->residency;
	void (*removed)(struct plan_memory * memory) = plan->removed;
	struct plan_memory *memory = plan->memory;
	const bool was_supported = plan->supported;

	if (!removed || !is_gone_everywhere(plan, RBK_DEVICE_NONE))
		return false;
	assert(plan->n_asked == 0);
	residency_walk_forget(plan);
	list_remove(&plan->link);
	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		list_remove(&plan->on[i].returning);
	residency->n_plans--;
	memory->residency = NULL;
	residency_holders_unref(plan->tenant);
	tenant_unref(plan->tenant);
	free(plan);
	removed(memory);
	/* What it left may be room for others. */
	if (was_supported)
		residency_review_in(residency, 0);
	return true;
}

/* It may be in the list that the dispatcher made. */
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

	/* They stay marked until the review, so that each is put in once between two reviews. */
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
	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		residency->devices[i].has_new_waits = true;
	residency_review_in(residency, 0);
}

/* The timer */

/* However many plans there are: reviews take a small part of the reactor's time. */
static uint64_t paused_until_ns(const struct residency *residency)
{
	return residency->reviewed_ns +
	       RESIDENCY_PAUSE * (residency->review_ns + residency->asked_ns);
}

static void on_timer(void *data)
{
	struct residency *residency = data;

	residency->timer_ns = 0;
	/*
	 * The timer was set when the review under way had not yet taken as long. Put a review off
	 * once: reviews may follow one another for as long as memory comes and goes.
	 */
	if (!residency->is_put_off && clock_now_ns() < paused_until_ns(residency)) {
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

void residency_review_in(struct residency *residency, uint64_t delay_ns)
{
	uint64_t at_ns = clock_now_ns() + delay_ns;
	uint64_t earliest_ns = paused_until_ns(residency);

	if (at_ns < earliest_ns) {
		delay_ns += earliest_ns - at_ns;
		at_ns = earliest_ns;
	}
	if (residency->timer_ns && residency->timer_ns <= at_ns)
		return;
	residency->timer_ns = at_ns;
	loop_timer_arm(residency->timer, delay_ns);
}

int residency_new(const struct residency_options *options, struct residency **ret)
{
	_cleanup_(residency_freep) struct residency *residency = NULL;
	int r;

	residency = calloc(1, sizeof(*residency));
	if (!residency)
		return error_origin(-ENOMEM);
	residency->options = *options;
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
	free(residency);
	return NULL;
}
