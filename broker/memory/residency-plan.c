/* SPDX-License-Identifier: MIT */
/*
 * Residency: the records of plans and of their tenants
 *
 * A tenant's plans on a device are in two lists, large and small, for the searches for plans to
 * evict: see residency-seek.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "memory/residency-private.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/clock.h"

/* Tenants */

int tenant_memory_make(struct tenant *tenant)
{
	struct tenant_memory *memory;

	if (tenant->memory)
		return 0;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return -ENOMEM;
	memory->tenant = tenant;
	list_init(&memory->asked);
	list_init(&memory->asking);
	tenant->memory = memory;
	return 0;
}

static int holders_ref(struct residency *residency, struct tenant *tenant)
{
	struct tenant_memory *memory;

	if (tenant_memory_make(tenant))
		return -ENOMEM;
	memory = tenant->memory;
	if (memory->n_plans++ > 0)
		return 0;
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		memory->on[i] = (struct residency_holding){.round_number = 0};
		list_init(&memory->on[i].large);
		list_init(&memory->on[i].small);
		list_init(&memory->on[i].returning);
	}
	list_append(&residency->holders, &memory->link);
	return 0;
}

static void holders_unref(struct tenant *tenant)
{
	if (--tenant->memory->n_plans == 0)
		list_remove(&tenant->memory->link);
}

/* Plans */

struct residency_plan *residency_plan_new(struct residency *residency, struct plan_memory *memory)
{
	uint32_t n = residency->options.n_executors;
	struct residency_plan *plan = calloc(1, sizeof(*plan) + n * sizeof(plan->on[0]));

	if (!plan)
		return NULL;
	if (holders_ref(residency, memory->tenant)) {
		free(plan);
		return NULL;
	}
	plan->residency = residency;
	plan->memory = memory;
	plan->tenant = tenant_ref(memory->tenant);
	memory->counts = &memory->tenant->memory->counts;
	plan->value = 1; /* a new plan is expected to be used */
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

static void walk_forget(struct residency_plan *plan)
{
	struct residency_walk *walk = &plan->residency->walk;

	if (!walk->next)
		return;
	if (walk->next == &plan->link)
		walk->next = plan->link.next;
	candidates_forget(&walk->waiting, plan);
	candidates_forget(&walk->wanted, plan);
}

bool residency_plan_settle(struct residency_plan *plan)
{
	struct residency *residency = plan->residency;
	void (*removed)(struct plan_memory * memory) = plan->removed;
	struct plan_memory *memory = plan->memory;
	const bool was_supported = plan->supported;

	if (!removed || !residency_plan_is_gone(plan, RBK_DEVICE_NONE))
		return false;
	assert(plan->n_asked == 0);
	walk_forget(plan);
	list_remove(&plan->link);
	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		list_remove(&plan->on[i].returning);
	residency->n_plans--;
	memory->residency = NULL;
	holders_unref(plan->tenant);
	tenant_unref(plan->tenant);
	free(plan);
	removed(memory);
	/* The plan's charges are refunded, so another plan may fit. */
	if (was_supported)
		residency_review_in(residency, 0);
	return true;
}

/* Plans that may be evicted */

static bool holds_anything(const struct residence *residence)
{
	uint64_t bytes = residence->work_charge.device.amount;

	for (uint32_t i = 0; i < residence->n_sharing && bytes == 0; i++)
		bytes = residence->sharing[i]->exec.bytes;
	return bytes > 0;
}

static bool is_large(const struct residence *residence, uint64_t bytes)
{
	return bytes > residence->device->executor->info.memory_bytes / RESIDENCY_LARGE;
}

void residence_hold(struct residence *residence)
{
	struct residency_device *device = residence->device;
	struct residency_holding *on = &residence->plan->tenant->memory->on[device->index];

	if (residence->tier != EXEC_TIER_VRAM) {
		list_append(&device->second_tier, &residence->holding);
		device->n_second_tier++;
		return;
	}
	if (!holds_anything(residence))
		return;
	list_append(&device->by_age, &residence->aging);
	list_append(is_large(residence, residence_bytes(residence)) ? &on->large : &on->small,
		    &residence->holding);
}

void residence_release(struct residence *residence)
{
	struct residency_device *device = residence->device;

	if (residence->tier != EXEC_TIER_VRAM)
		device->n_second_tier--;
	if (device->renew_next == &residence->aging)
		device->renew_next = residence->aging.next;
	list_remove(&residence->aging);
	list_remove(&residence->holding);
}

static void visit(struct residence *residence, uint64_t bytes, residency_holder_fn fn, void *data)
{
	residence->device->residency->n_visits++;
	/* Skip a plan that is being evicted. */
	if (residence->state == RESIDENCE_IN)
		fn(residence, bytes, data);
}

void residency_visit_holders(struct tenant_memory *memory, unsigned int device,
			     residency_holder_fn fn, void *data)
{
	struct residency_holding *on = &memory->on[device];
	struct list_node *last = on->small.prev;

	list_for_each (node, &on->large) {
		struct residence *residence = container_of(node, struct residence, holding);

		visit(residence, residence_bytes(residence), fn, data);
	}
	for (unsigned int n = 0; n < RESIDENCY_SMALL && !list_is_empty(&on->small); n++) {
		struct list_node *node = on->small.next;
		struct residence *residence = container_of(node, struct residence, holding);
		uint64_t bytes = residence_bytes(residence);

		/* Plans that shared its blocks may have left since the last visit. */
		list_remove(node);
		list_append(is_large(residence, bytes) ? &on->large : &on->small, node);
		visit(residence, bytes, fn, data);
		if (node == last)
			break;
	}
}
