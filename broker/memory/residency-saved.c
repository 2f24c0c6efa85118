/* SPDX-License-Identifier: MIT */
/*
 * Residency: the working set that outlives the broker
 *
 * When clients bring their plans to the next broker, the plans that were in a device's memory are
 * loaded at once, as any new plan is, and fit, because they fitted before. A plan that had no place
 * is parked, as one that was evicted by hand: it is loaded when a task wants it. Without that, the
 * order in which clients come back would decide, and plans in use would be evicted for others.
 * Values and times of use are restored, too, so that the next eviction chooses as before.
 *
 * A plan is known again by its tenant's name and its fingerprint, which says nothing of the
 * contents of its constants. Of several plans with the same, each takes one entry. A tenant can
 * only confuse its own plans.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory/residency-private.h"
#include "util/clock.h"
#include "util/error.h"

enum { MAX_SAVED = 4096 };

/* Values beyond this are no values of residency_value(). */
static const double max_value = 1e12;

struct saved_head {
	uint32_t n_devices, n_plans;
	uint64_t keys[RBK_MAX_DEVICES];
};

struct saved_plan {
	uint64_t identity; /* 0: taken */
	uint64_t unused_ns;
	double value;
	uint32_t devices; /* bit i: it was in the memory of device i */
	uint32_t reserved;
};

/* In residency.saved; devices are present ones. */
struct residency_saved {
	uint32_t n;
	struct saved_plan plans[];
};

static uint64_t identity_of(const struct plan_memory *memory)
{
	uint64_t hash = memory->plan->fingerprint;

	for (const char *c = tenant_name(memory->tenant); *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	return hash ? hash : 1;
}

/* --- Writing --- */

static uint32_t devices_of(const struct residency_plan *plan)
{
	uint32_t devices = 0;

	for (uint32_t i = 1; i < plan->residency->options.n_executors; i++)
		if (plan->on[i].state == RESIDENCE_IN || plan->on[i].state == RESIDENCE_LOADING)
			devices |= 1u << i;
	return devices;
}

static void write_plan(FILE *stream, const struct residency_plan *plan, uint64_t now_ns)
{
	const struct saved_plan saved = {
		.identity = identity_of(plan->memory),
		.unused_ns = now_ns > plan->used_ns ? now_ns - plan->used_ns : 0,
		.value = plan->value,
		.devices = devices_of(plan),
	};

	fwrite(&saved, sizeof(saved), 1, stream);
}

void residency_save(const struct residency *residency, const uint64_t *keys, FILE *stream)
{
	struct saved_head head = {.n_devices = residency->options.n_executors};
	const uint64_t now_ns = clock_now_ns();
	uint32_t n = 0;

	memcpy(head.keys, keys, head.n_devices * sizeof(*keys));
	list_for_each (node, &residency->plans)
		head.n_plans++;
	if (head.n_plans > MAX_SAVED)
		head.n_plans = MAX_SAVED;
	fwrite(&head, sizeof(head), 1, stream);
	list_for_each (node, &residency->plans)
		if (n++ < head.n_plans)
			write_plan(stream, container_of(node, struct residency_plan, link), now_ns);
}

/* --- Reading --- */

static bool check_plan(const struct saved_plan *plan, uint32_t n_devices)
{
	return plan->identity != 0 && plan->devices >> n_devices == 0 && !(plan->devices & 1) &&
	       plan->value >= 0 && plan->value <= max_value && plan->reserved == 0;
}

/* Return the present devices, as a mask, of saved @devices. */
static uint32_t present(const struct residency *residency, const struct saved_head *head,
			const uint64_t *keys, uint32_t devices)
{
	uint32_t mask = 0;

	for (uint32_t i = 1; i < head->n_devices; i++)
		for (uint32_t k = 1; k < residency->options.n_executors; k++)
			if (devices & 1u << i && keys[k] == head->keys[i])
				mask |= 1u << k;
	return mask;
}

int residency_restore(struct residency *residency, const uint64_t *keys, const void *bytes,
		      size_t n_bytes)
{
	struct residency_saved *saved;
	struct saved_head head;
	const char *at = bytes;

	if (n_bytes < sizeof(head))
		return RESIDENCY_E_IMPOSSIBLE;
	memcpy(&head, bytes, sizeof(head));
	if (head.n_devices == 0 || head.n_devices > RBK_MAX_DEVICES || head.n_plans > MAX_SAVED ||
	    n_bytes != sizeof(head) + head.n_plans * sizeof(struct saved_plan))
		return RESIDENCY_E_IMPOSSIBLE;
	saved = calloc(1, sizeof(*saved) + head.n_plans * sizeof(struct saved_plan));
	if (!saved)
		return error_origin(-ENOMEM);
	saved->n = head.n_plans;
	if (head.n_plans > 0)
		memcpy(saved->plans, at + sizeof(head), head.n_plans * sizeof(struct saved_plan));
	for (uint32_t i = 0; i < saved->n; i++) {
		struct saved_plan *plan = &saved->plans[i];

		if (!check_plan(plan, head.n_devices)) {
			free(saved);
			return RESIDENCY_E_IMPOSSIBLE;
		}
		plan->devices = present(residency, &head, keys, plan->devices);
	}
	free(residency->saved);
	residency->saved = saved;
	return 0;
}

bool residency_saved_take(struct residency_plan *plan)
{
	struct residency_saved *saved = plan->residency->saved;
	const uint64_t identity = saved ? identity_of(plan->memory) : 0;

	for (uint32_t i = 0; saved && i < saved->n; i++) {
		struct saved_plan *from = &saved->plans[i];

		if (from->identity != identity)
			continue;
		from->identity = 0;
		plan->value = from->value;
		if (from->unused_ns < plan->used_ns)
			plan->used_ns -= from->unused_ns;
		return from->devices == 0;
	}
	return false;
}
