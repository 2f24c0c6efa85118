/* SPDX-License-Identifier: MIT */
/* Figures of tenants and their plans */
#include "control/publish-private.h"

#include "dispatch/dispatch.h"
#include "memory/residency.h"
#include "place/placer.h"
#include "session/segments.h"
#include "session/session.h"
#include "shm/stats-figures.h"
#include "stats/stats.h"
#include "tenant/tenant.h"
#include "util/number.h"

enum {
	MAX_PLANS = 1024,        /* plans that an update looks at */
	MAX_CHANGED_PLANS = 128, /* plans whose figures an update computes */
};

/* --- Plans --- */

static uint8_t memory_state(uint8_t device_state)
{
	static const uint8_t states[] = {
		[PLAN_DEVICE_UNSUPPORTED] = RBK_MEMORY_UNSUPPORTED,
		[PLAN_DEVICE_READY] = RBK_MEMORY_RESIDENT,
		[PLAN_DEVICE_NO_MEMORY] = RBK_MEMORY_NEVER_FITS,
		[PLAN_DEVICE_FAILED] = RBK_MEMORY_LOST,
		[PLAN_DEVICE_EVICTED] = RBK_MEMORY_EVICTED,
	};

	return states[device_state];
}

static void describe_memory(const struct session_plan *plan, unsigned int device,
			    struct rbk_stats_plan_device *ret, struct stats_plan_memory *memory)
{
	struct residency_about about;

	plan_describe(plan, device, &about);
	ret->state = memory_state(about.device_state);
	if (device == RBK_DEVICE_CPU)
		return;
	if (about.device_state == PLAN_DEVICE_READY)
		ret->tier = about.tier == EXEC_TIER_GTT ? RBK_TIER_GTT : RBK_TIER_VRAM;
	ret->resident_bytes = about.resident_bytes;
	ret->footprint_bytes = about.required_bytes;
	memory->n_evictions += about.n_evictions;
	memory->n_returns += about.n_returns;
}

/* Add up the learned times of all segments; 0 if the device cannot run one of them. */
static void describe_segments(const struct publish *publish, struct session_plan *plan,
			      uint8_t device, struct rbk_stats_plan_device *ret)
{
	const uint32_t count = plan->stats.record->count;

	for (uint32_t i = 0; i < plan_n_segments(plan); i++) {
		const struct session_plan *segment = plan_segment(plan, i);
		const uint32_t most = segment->plan->max_count;
		struct place_report report;

		if (segment->plan->device_state[device] == PLAN_DEVICE_UNSUPPORTED) {
			ret->estimate_ns = ret->mean_ns = 0;
			return;
		}
		place_plan_report(dispatch_placer(publish->options.dispatch), segment->place,
				  device, count && count < most ? count : most, &report);
		ret->estimate_ns += report.exec_ns;
		ret->mean_ns += report.mean_ns;
	}
}

/* Add what placement has learned, for a task of as many rows as the last one had. */
static void describe_learned(const struct publish *publish, struct session_plan *plan,
			     uint8_t device, struct rbk_stats_plan_device *ret)
{
	uint32_t count = plan->stats.record->count;
	struct place_report report;

	if (plan->segments)
		describe_segments(publish, plan, device, ret);
	if (!plan->place || ret->state == RBK_MEMORY_UNSUPPORTED)
		return;
	place_plan_report(dispatch_placer(publish->options.dispatch), plan->place, device,
			  count ? count : plan->plan->max_count, &report);
	ret->estimate_ns = report.exec_ns;
	ret->spread = report.spread;
	ret->mean_ns = report.mean_ns;
	ret->mean_error = report.mean_error;
	ret->speedup = report.speedup;
	ret->break_even = report.break_even;
	ret->is_trusted = report.is_trusted;
	ret->contention = stats_contention(report.contention);
}

void publish_plan(struct publish *publish, struct session_plan *plan)
{
	struct rbk_stats_plan_device figures[RBK_MAX_DEVICES] = {{.estimate_ns = 0}};
	struct stats_plan_memory memory = {
		.n_constraints = plan_n_constrained(plan),
		.n_segments = plan_n_segments(plan),
		.n_segments_resident = plan_n_resident(plan),
		.n_streamed = plan->segments ? plan->segments->n_streamed : 0,
		.cut = plan->cut,
		.cut_ns = plan->cut_ns,
		.whole_ns = plan->whole_ns,
	};

	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		describe_memory(plan, i, &figures[i], &memory);
		describe_learned(publish, plan, (uint8_t)i, &figures[i]);
	}
	stats_set_plan(&plan->stats, figures, publish->options.n_executors, &memory);
}

static uint64_t tasks_of(const struct publish *publish, const struct stats_plan *plan)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < publish->options.n_executors; i++)
		n += plan->record->devices[i].n_tasks;
	return n;
}

/* Return a value that changes whenever the plan becomes resident on a device or is evicted. */
static uint64_t state_of(const struct publish *publish, struct session_plan *plan)
{
	uint64_t state = 0, all = 0;

	for (uint32_t k = 0; k < plan_n_segments(plan); k++) {
		const struct plan *segment = plan_segment(plan, k)->plan;

		for (uint32_t i = 0; i < publish->options.n_executors; i++)
			state |= (uint64_t)(segment->device_state[i] & 15) << 4 * i;
		/* The golden ratio: no two segments' states cancel each other out. */
		all = (all + state) * 0x9e3779b97f4a7c15u;
		state = 0;
	}
	return all;
}

/* Return a value that changes whenever the times that are predicted for plans now change. */
static uint64_t contention_of(const struct publish *publish)
{
	struct place_device_report report;

	placer_device_report(dispatch_placer(publish->options.dispatch), RBK_DEVICE_CPU, 0,
			     &report);
	return stats_contention(report.contention);
}

/* Publish a tenant's plans in turn. Adds to the plans looked at and computed in this update. */
static void publish_plans(struct publish *publish, struct stats_tenant *tenant,
			  unsigned int *n_looked, unsigned int *n_changed)
{
	struct list_node *first = NULL, *node;
	const uint64_t contention = contention_of(publish);

	while (*n_looked < MAX_PLANS && *n_changed < MAX_CHANGED_PLANS) {
		struct stats_plan *plan;
		uint64_t n_tasks, state;

		node = tenant->plans.next;
		if (node == &tenant->plans || node == first)
			return;
		first = first ? first : node;
		list_remove(node);
		list_append(&tenant->plans, node);
		plan = container_of(node, struct stats_plan, link);
		*n_looked += plan_n_segments(plan->owner);
		n_tasks = tasks_of(publish, plan);
		state = state_of(publish, plan->owner);
		if (plan->seen_tasks == n_tasks + 1 && plan->seen_state == state &&
		    plan->seen_contention == contention)
			continue;
		plan->seen_tasks = n_tasks + 1;
		plan->seen_state = state;
		plan->seen_contention = contention;
		*n_changed += plan_n_segments(plan->owner);
		publish_plan(publish, plan->owner);
	}
}

/* --- Tenants --- */

/* Set what the policy and administrators determine. */
static void describe_limits(const struct publish *publish, const struct tenant *tenant,
			    struct rbk_stats_tenant *ret)
{
	const struct account *account = tenant->account;

	ret->weight = tenant->weight;
	ret->flags = (tenant->is_named ? RBK_STATS_TENANT_NAMED : 0) |
		     (tenant->is_drained ? RBK_STATS_TENANT_DRAINED : 0) |
		     (tenant->is_changed ? RBK_STATS_TENANT_CHANGED : 0);
	ret->host_max = account_limit(account, ACCOUNT_HOST_BYTES);
	ret->devices[RBK_DEVICE_CPU].memory_max = ret->host_max;
	ret->devices[RBK_DEVICE_CPU].memory_high = ret->host_max;
	for (uint32_t i = RBK_DEVICE_GPU; i < publish->options.n_executors; i++) {
		const struct tenant_share *share = &tenant->shares[i];

		ret->devices[i].memory_max = share->max;
		ret->devices[i].memory_reserve = share->reserve;
		ret->devices[i].memory_high = share->high;
		ret->devices[i].gtt_max = account_limit(account, account_gtt(i));
	}
}

static void publish_tenant(const struct publish *publish, const struct tenant *tenant,
			   struct stats_tenant *stats, const uint64_t used_ns[RBK_MAX_DEVICES])
{
	const struct account *account = tenant->account;
	const struct residency_counts *counts =
		residency_counts(publish->options.residency, tenant);
	const struct tenant_shared *shared = &leases_of(tenant)->shared;
	struct rbk_stats_tenant figures = {
		.n_evictions = counts->n_evictions,
		.n_returns = counts->n_returns,
		.n_memory_constraints = counts->n_constraints,
		.n_refused = account_n_refused(account),
		.n_sessions = account_used(account, ACCOUNT_SESSIONS),
		.n_plans = account_used(account, ACCOUNT_PLANS),
		.host_used = account_used(account, ACCOUNT_HOST_BYTES),
		.arena_bytes = account_used(account, ACCOUNT_ARENA_BYTES),
		.slice_ns = shared->used_ns,
		.slice_wait_ns = shared->waited_ns,
		.n_overdue = shared->n_overdue,
		.n_submissions = shared->parts[PARTS_SUBMISSIONS],
		.n_parts = shared->parts[PARTS_DIVIDED],
		.n_lost_own = shared->n_lost_own,
		.n_lost = shared->n_lost,
		.beside_ns = shared->beside_ns,
	};
	describe_limits(publish, tenant, &figures);
	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		uint64_t device_ns = stats->totals->devices[i].device_ns;
		uint64_t own_ns = counter_growth(device_ns, stats->seen_ns[i]);

		stats->seen_ns[i] = device_ns;
		if (used_ns[i] > 0)
			figures.devices[i].share =
				own_ns < used_ns[i] ? (double)own_ns / (double)used_ns[i] : 1;
		if (i == RBK_DEVICE_CPU) {
			figures.devices[i].memory_used = figures.host_used;
			continue;
		}
		figures.devices[i].memory_used = account_used(account, account_vram(i));
		figures.devices[i].gtt_used = account_used(account, account_gtt(i));
	}
	stats_set_tenant(stats, &figures);
}

void publish_next_tenant(struct publish *publish)
{
	struct stats_tenant *stats = stats_first_tenant(publish->stats);
	const struct tenant *tenant;

	if (!stats)
		return;
	tenant = tenants_get(publish->options.tenants, stats->own.number);
	if (!tenant) {
		/* A tenant that has sessions is known; this one has none any more. */
		stats_tenant_free(stats);
		return;
	}
	stats_tenant_last(stats);
	publish_tenant(publish, tenant, stats, publish->used_ns);
	publish_plans(publish, stats, &publish->n_looked, &publish->n_changed);
}

void publish_changed(struct publish *publish, const struct tenant *tenant)
{
	struct stats_tenant *stats =
		tenant ? stats_tenant_find(publish->stats, tenant->number) : NULL;
	struct rbk_stats_tenant figures;

	publish->is_stale = true;
	if (!stats)
		return;
	figures = *stats->totals;
	describe_limits(publish, tenant, &figures);
	stats_set_tenant(stats, &figures);
	stats_tenant_show(stats);
}
