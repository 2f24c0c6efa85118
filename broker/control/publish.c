/* SPDX-License-Identifier: MIT */
/*
 * Publishing figures
 *
 * Counts are in the pages already; this computes the rest. While nobody looks nothing is computed,
 * and the timer does not run. An update does a bounded amount of work: so many tenants and plans,
 * those first that were longest not looked at, which is why both lists are turned round; of plans
 * only those that completed tasks since. Whoever asks for pages more often than update_min_ns gets
 * what the last update computed.
 *
 * A tenant's share of a device is its part of the device time that all tenants used since the
 * update before: what people mean by "who is using it now".
 *
 * Sessions are looked at in the same way, each in its turn.
 *
 * The clients decide how much there is to compute. So an update is a round in steps: a device, a
 * tenant, a session, a lease each. A round stops when the turn's budget is used up, and goes on in
 * the next turn; what the whole page says comes with the last step.
 */
#include "control/publish.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "contention/contention.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "loop/turn.h"
#include "memory/budget.h"
#include "memory/residency.h"
#include "place/placer.h"
#include "session/closers.h"
#include "session/session.h"
#include "stats/stats.h"
#include "telemetry/telemetry.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"

/* The next step of a round. */
enum publish_step {
	PUBLISH_NOTHING, /* there is no round */
	PUBLISH_DEVICES,
	PUBLISH_TENANTS,
	PUBLISH_SESSIONS,
	PUBLISH_LEASES,
	PUBLISH_WHOLE,
};

enum {
	/* A round gets at least one over a turn's budget, and so many pieces, in one go. */
	PUBLISH_PART = 4,
	PUBLISH_PIECES = 64,
	/* An update shows so many; tools/monitor/pages.c waits for the others. */
	MAX_TENANTS = 64,
	MAX_PLANS = 1024,        /* looked at */
	MAX_CHANGED_PLANS = 128, /* for which figures were computed */
	MAX_SESSIONS = 1024,
	MAX_LEASES = 512,         /* likewise */
	MAX_SESSION_PLANS = 4096, /* asked whether they are in some device's memory */
};
static const uint64_t period_ns = 250000000;
static const uint64_t update_min_ns = 10000000;
/* Sessions' latencies are of that long, and not of longer. */
static const uint64_t latency_ns = 1000000000;
static const uint64_t latency_stale_ns = 10000000000;

struct publish {
	struct publish_options options;
	struct server *server;
	struct stats *stats;
	struct loop_timer *timer;
	bool is_watched;
	bool is_stale; /* an update was asked for whenever the last one was */
	int force_cpu; /* as an administrator said; -1: as configured */
	uint64_t updated_ns;
	uint64_t seen_ns[RBK_MAX_DEVICES]; /* device_ns of all at the update before */

	/* The round. */
	struct loop_timer *round_timer; /* goes on in the next turn */
	enum publish_step step;
	uint32_t n_left;     /* pieces of the step */
	uint64_t elapsed_ns; /* since the round before */
	uint64_t used_ns[RBK_MAX_DEVICES];
	unsigned int n_looked, n_changed, n_asked; /* see the limits of one update */
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

static void describe_memory(const struct publish *publish, const struct session_plan *plan,
			    unsigned int device, struct rbk_stats_plan_device *ret,
			    struct stats_plan_memory *memory)
{
	struct residency_about about;

	ret->state = memory_state(plan->plan->device_state[device]);
	if (device == RBK_DEVICE_CPU || !plan->memory.residency)
		return;
	residency_about(publish->options.residency, &plan->memory, device, &about);
	ret->state = memory_state(about.device_state);
	if (about.device_state == PLAN_DEVICE_READY)
		ret->tier = about.tier == EXEC_TIER_GTT ? RBK_TIER_GTT : RBK_TIER_VRAM;
	ret->resident_bytes = about.resident_bytes;
	ret->footprint_bytes = about.required_bytes;
	memory->n_evictions += about.n_evictions;
	memory->n_returns += about.n_returns;
}

/* What placement knows, of a task of as many rows as the last one had. */
static void describe_learned(const struct publish *publish, const struct session_plan *plan,
			     uint8_t device, struct rbk_stats_plan_device *ret)
{
	uint32_t count = plan->stats.record->count;
	struct place_report report;

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
}

static void publish_plan(struct publish *publish, struct session_plan *plan)
{
	struct rbk_stats_plan_device figures[RBK_MAX_DEVICES] = {{.estimate_ns = 0}};
	struct stats_plan_memory memory = {.n_constraints = plan->memory.n_constrained};

	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		describe_memory(publish, plan, i, &figures[i], &memory);
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

/* Changes whenever the plan comes to a device or leaves one. */
static uint64_t state_of(const struct publish *publish, const struct session_plan *plan)
{
	uint64_t state = 0;

	for (uint32_t i = 0; i < publish->options.n_executors; i++)
		state |= (uint64_t)(plan->plan->device_state[i] & 15) << 4 * i;
	return state;
}

/* Adds to what was looked at and computed of this update. */
static void publish_plans(struct publish *publish, struct stats_tenant *tenant,
			  unsigned int *n_looked, unsigned int *n_changed)
{
	struct list_node *first = NULL, *node;

	while (*n_looked < MAX_PLANS && *n_changed < MAX_CHANGED_PLANS) {
		struct stats_plan *plan;
		uint64_t n_tasks, state;

		node = tenant->plans.next;
		if (node == &tenant->plans || node == first)
			return;
		first = first ? first : node;
		list_remove(node);
		list_append(&tenant->plans, node);
		++*n_looked;
		plan = container_of(node, struct stats_plan, link);
		n_tasks = tasks_of(publish, plan);
		state = state_of(publish, plan->owner);
		if (plan->seen_tasks == n_tasks + 1 && plan->seen_state == state)
			continue;
		plan->seen_tasks = n_tasks + 1;
		plan->seen_state = state;
		++*n_changed;
		publish_plan(publish, plan->owner);
	}
}

/* --- Tenants --- */

static void publish_tenant(const struct publish *publish, const struct tenant *tenant,
			   struct stats_tenant *stats, const uint64_t used_ns[RBK_MAX_DEVICES])
{
	const struct account *account = tenant->account;
	const struct residency_counts *counts =
		residency_counts(publish->options.residency, tenant);
	struct rbk_stats_tenant figures = {
		.weight = tenant->weight,
		.flags = (tenant->is_named ? RBK_STATS_TENANT_NAMED : 0) |
			 (tenant->is_drained ? RBK_STATS_TENANT_DRAINED : 0) |
			 (tenant->is_changed ? RBK_STATS_TENANT_CHANGED : 0),
		.n_evictions = counts->n_evictions,
		.n_returns = counts->n_returns,
		.n_memory_constraints = counts->n_constraints,
		.n_refused = account_n_refused(account),
		.n_sessions = account_used(account, ACCOUNT_SESSIONS),
		.n_plans = account_used(account, ACCOUNT_PLANS),
		.host_used = account_used(account, ACCOUNT_HOST_BYTES),
		.host_max = account_limit(account, ACCOUNT_HOST_BYTES),
	};
	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		const struct tenant_share *share = &tenant->shares[i];
		uint64_t device_ns = stats->totals->devices[i].device_ns;
		uint64_t own_ns = counter_growth(device_ns, stats->seen_ns[i]);

		stats->seen_ns[i] = device_ns;
		if (used_ns[i] > 0)
			figures.devices[i].share =
				own_ns < used_ns[i] ? (double)own_ns / (double)used_ns[i] : 1;
		if (i == RBK_DEVICE_CPU) {
			figures.devices[i].memory_used = figures.host_used;
			figures.devices[i].memory_max = figures.host_max;
			figures.devices[i].memory_high = figures.host_max;
			continue;
		}
		figures.devices[i].memory_used = account_used(account, account_vram(i));
		figures.devices[i].memory_max = share->max;
		figures.devices[i].memory_reserve = share->reserve;
		figures.devices[i].memory_high = share->high;
		figures.devices[i].gtt_used = account_used(account, account_gtt(i));
		figures.devices[i].gtt_max = account_limit(account, account_gtt(i));
	}
	stats_set_tenant(stats, &figures);
}

/*
 * The next one. All of them have their turn in a round where they are few; else as many as there is
 * time for: their shares then cover the time since that.
 */
static void publish_next_tenant(struct publish *publish)
{
	struct stats_tenant *stats = stats_first_tenant(publish->stats);
	const struct tenant *tenant;

	if (!stats)
		return;
	tenant = tenants_get(publish->options.tenants, stats->own.number);
	if (!tenant) {
		/* Whoever has sessions is known. */
		stats_tenant_free(stats);
		return;
	}
	stats_tenant_last(stats);
	publish_tenant(publish, tenant, stats, publish->used_ns);
	publish_plans(publish, stats, &publish->n_looked, &publish->n_changed);
}

/* --- Sessions --- */

/* Counts it, and what it has of devices' memory, if it is there. */
static void count_plan(const struct publish *publish, const struct session_plan *plan,
		       struct rbk_stats_session *figures)
{
	bool is_resident = false;

	for (uint32_t i = RBK_DEVICE_GPU; i < publish->options.n_executors; i++) {
		if (!plan->memory.residency || plan->plan->device_state[i] != PLAN_DEVICE_READY)
			continue;
		is_resident = true;
		figures->memory_used += residency_vram_bytes(&plan->memory, i);
	}
	figures->n_plans_resident += is_resident;
}

/* Adds to the plans that were asked in this update; beyond what there is time for, none is. */
static void count_resident(const struct publish *publish, const struct session *session,
			   unsigned int *n_asked, struct rbk_stats_session *figures)
{
	uint32_t left = session->n_added_plans;

	for (uint32_t i = 0; i < session->n_plans && left > 0 && *n_asked < MAX_SESSION_PLANS;
	     i++, ++*n_asked) {
		if (!session->plan_slots[i])
			continue;
		left--;
		if (session->plans[i])
			count_plan(publish, session->plans[i], figures);
	}
}

/* The upper end of the bucket that it is in. */
static uint64_t quantile_ns(const struct session_latencies *latencies, uint64_t n,
			    unsigned int percent)
{
	unsigned int bucket = 0;
	uint64_t below = 0;

	for (; bucket + 1 < RBK_STATS_BUCKETS; bucket++) {
		below += latencies->buckets[bucket];
		if (below * 100 >= percent * n)
			return rbk_stats_bucket_ns(bucket + 1);
	}
	return rbk_stats_bucket_ns(bucket);
}

/* Begins to count anew when that has been done for a second. */
static void look_at_latencies(struct session_latencies *latencies, uint64_t now_ns)
{
	const uint64_t ns = now_ns - latencies->from_ns;
	uint64_t n = 0;

	if (ns < latency_ns)
		return;
	/* While nobody watches, nobody begins anew. */
	for (unsigned int i = 0; i < RBK_STATS_BUCKETS && ns < latency_stale_ns; i++)
		n += latencies->buckets[i];
	latencies->p50_ns = n ? quantile_ns(latencies, n, 50) : 0;
	latencies->p99_ns = n ? quantile_ns(latencies, n, 99) : 0;
	latencies->from_ns = now_ns;
	memset(latencies->buckets, 0, sizeof(latencies->buckets));
}

static uint64_t count_in_flight(const struct session *session)
{
	uint64_t n = 0;

	for (uint32_t i = 0, left = session->n_added_rings; left > 0; i++) {
		if (!session->rings[i])
			continue;
		left--;
		n += session->rings[i]->n_in_flight;
	}
	return n;
}

static void publish_session(const struct publish *publish, struct session *session,
			    struct stats_session *shown, unsigned int *n_asked)
{
	const struct session_stats *stats = &session->stats;
	struct rbk_stats_session figures = {
		.number = session->number,
		.tenant = session->tenant ? session->tenant->number : 0,
		.flags = (session->tenant ? 0 : RBK_STATS_SESSION_ADMIN) |
			 (session->is_ending ? RBK_STATS_SESSION_ENDING : 0),
		.pid = (uint32_t)session->pid,
		.uid = session->uid,
		.began_at_ns = session->began_ns,
		.n_errors = stats->errors,
		.n_fallbacks = stats->reasons[RBK_REASON_CPU_FALLBACK],
		.copied_bytes = stats->copied_bytes,
		.transferred_bytes = stats->transferred_bytes,
		.n_in_flight = count_in_flight(session),
		.n_rings = session->n_added_rings,
		.n_arenas = session->n_added_arenas,
		.arena_bytes = session->arena_bytes,
		.n_plans = session->n_added_plans,
		.n_evictions = stats->n_evictions,
		.gpu_ns = stats->gpu_ns,
	};

	snprintf(figures.name, sizeof(figures.name), "%s", session->name);
	snprintf(figures.comm, sizeof(figures.comm), "%s", session->comm);
	for (uint32_t i = 0; i < publish->options.n_executors; i++)
		figures.n_tasks += stats->tasks[i];
	figures.n_gpu_tasks = figures.n_tasks - stats->tasks[RBK_DEVICE_CPU];
	count_resident(publish, session, n_asked, &figures);
	look_at_latencies(&session->latencies, publish->updated_ns);
	figures.p50_ns = session->latencies.p50_ns;
	figures.p99_ns = session->latencies.p99_ns;
	stats_set_session(shown, &figures);
}

static void publish_next_session(struct publish *publish)
{
	struct stats_session *shown = stats_first_session(publish->stats);

	if (!shown)
		return;
	stats_session_last(shown);
	publish_session(publish, shown->owner, shown, &publish->n_asked);
}

/* --- Leases --- */

static void publish_lease(const struct lease *lease, struct stats_lease *shown)
{
	struct rbk_stats_lease figures = {
		.number = lease->number,
		.tenant = lease->tenant->number,
		.device = lease->device,
		.pid = (uint32_t)lease->pid,
		.uid = lease->uid,
		.n_members = lease->n_members,
		.opened_at_ns = lease->opened_ns,
		.min_bytes = lease->min_bytes,
		.wish_bytes = lease->wish_bytes,
		.max_bytes = lease->max_bytes,
		.granted_bytes = lease_granted(lease),
		.credited_bytes = lease->credited_bytes,
		.object_bytes = lease->object_bytes,
		.used_bytes = lease->used_bytes,
		.extra_bytes = lease->extra_bytes,
		.peak_bytes = lease->peak_bytes,
		.seen_bytes = lease->is_seen ? lease->seen_bytes : RBK_STATS_ABSENT,
		.waiting_bytes = lease->waiting_bytes,
		.n_objects = lease->n_objects,
		.n_refused = lease->n_refused,
	};
	if (lease->n_waits > 0)
		figures.flags |= RBK_STATS_LEASE_WAITING;
	if (lease_is_shrinking(lease))
		figures.flags |= RBK_STATS_LEASE_SHRINKING;
	if (lease->restored_number)
		figures.flags |= RBK_STATS_LEASE_RESTORED;
	if (lease->is_over || lease->used_bytes + lease->extra_bytes > lease_granted(lease))
		figures.flags |= RBK_STATS_LEASE_OVER;
	if (lease->is_capped)
		figures.flags |= RBK_STATS_LEASE_CAPPED;
	snprintf(figures.name, sizeof(figures.name), "%s", lease->name);
	stats_set_lease(shown, &figures);
}

static void publish_next_lease(struct publish *publish)
{
	struct stats_lease *shown = stats_first_lease(publish->stats);

	if (!shown)
		return;
	stats_lease_last(shown);
	publish_lease(shown->owner, shown);
}

/* --- Devices and the whole --- */

static uint64_t or_absent(struct reading reading)
{
	return reading.is_valid ? reading.value : RBK_STATS_ABSENT;
}

static void describe_sensors(const struct publish *publish, uint32_t index,
			     struct rbk_stats_device *ret)
{
	struct device_reading reading = {.state = TELEMETRY_PRESENT};
	struct memory_reading pool;

	/* What was not read is absent. */
	telemetry_read(publish->options.telemetry, index, &reading);
	pool = telemetry_pool(&reading);
	if (pool.total.is_valid)
		ret->memory_total = pool.total.value;
	ret->memory_used = or_absent(pool.used);
	ret->memory_outside = RBK_STATS_ABSENT;
	if (pool.used.is_valid && pool.own.is_valid) {
		uint64_t leased = index == RBK_DEVICE_CPU
					  ? 0
					  : budget_leased_bytes(publish->options.budget, index);
		uint64_t ours = pool.own.value + leased;

		ret->memory_outside = pool.used.value > ours ? pool.used.value - ours : 0;
	}
	ret->gtt_total = or_absent(reading.gtt.total);
	ret->gtt_used = or_absent(reading.gtt.used);
	ret->load_percent = or_absent(reading.load_percent);
	ret->memory_load_percent = or_absent(reading.memory_load_percent);
	ret->clock_hz = or_absent(reading.gpu_hz);
	ret->memory_clock_hz = or_absent(reading.memory_hz);
	ret->temperature_millicelsius = or_absent(reading.temperature_millicelsius);
	ret->power_microwatts = or_absent(reading.power_microwatts);
	ret->n_driver_evictions = or_absent(reading.n_evictions);
}

/* The best of what its profile says of any family at any size. */
static void describe_profile(const struct place_profile *profile, struct rbk_stats_device *ret)
{
	if (!profile || !profile->is_valid)
		return;
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++) {
			const struct place_rate *rate = &profile->rates[i][k];

			if (ret->flops_per_ns < (double)rate->flops_per_ns)
				ret->flops_per_ns = (double)rate->flops_per_ns;
			if (ret->bytes_per_ns < (double)rate->bytes_per_ns)
				ret->bytes_per_ns = (double)rate->bytes_per_ns;
		}
	ret->n_servers = profile->n_servers;
	ret->up_bytes_per_ns = (double)profile->up_bytes_per_ns;
	ret->down_bytes_per_ns = (double)profile->down_bytes_per_ns;
	ret->launch_ns = (double)profile->task_ns;
	ret->active_watts = (double)profile->active_watts;
}

static uint32_t breaker_of(enum place_breaker breaker)
{
	return breaker == PLACE_OPEN        ? RBK_STATS_BREAKER_OPEN
	       : breaker == PLACE_HALF_OPEN ? RBK_STATS_BREAKER_PROBING
					    : RBK_STATS_BREAKER_CLOSED;
}

static void describe_placement(const struct publish *publish, uint32_t index,
			       struct rbk_stats_device *ret)
{
	const struct placer *placer = dispatch_placer(publish->options.dispatch);
	struct place_device_report report;

	describe_profile(placer_profile(placer, (uint8_t)index), ret);
	placer_device_report(placer, (uint8_t)index, publish->updated_ns, &report);
	ret->breaker = breaker_of(report.breaker);
	ret->backlog_ns = report.backlog_ns;
	ret->n_queued = report.n_queued;
	ret->n_released = report.n_released;
	ret->n_opened = report.n_opened;
	ret->n_stalls = dispatch_n_stalls(publish->options.dispatch, (uint8_t)index);
	ret->success_rate = report.success_rate;
	ret->contention = report.contention;
	ret->explored_share = report.explored_share;
}

_Static_assert((int)RBK_STATS_TILE_MATMUL == EXEC_TILE_MATMUL &&
		       (int)RBK_STATS_TILE_CONV == EXEC_TILE_CONV &&
		       (int)RBK_STATS_TILE_MATMUL_F16 == EXEC_TILE_MATMUL_HALF &&
		       (int)RBK_STATS_TILE_OPERATORS == EXEC_TILE_OPS &&
		       (int)RBK_STATS_TILE_CLASSES == EXEC_TILE_CLASSES,
	       "the page's");

static void put_tile(struct rbk_stats_device *ret, enum exec_tile_op op, enum exec_tile_class class,
		     const struct exec_tile *tile)
{
	ret->tiles[op][class] = (struct rbk_stats_tile){tile->rows, tile->cols};
	if (tile->of_matrices)
		ret->flags |= RBK_STATS_DEVICE_TILES_OF_MATRICES << class;
}

static void describe_tiles(struct executor *executor, struct rbk_stats_device *ret)
{
	struct exec_tiles tiles;
	struct exec_tile tile;

	executor_get_tiles(executor, &tiles);
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (unsigned int class = 0; class < EXEC_TILE_CLASSES; class ++)
			if (executor->ops->tile &&
			    executor->ops->tile(executor, op, tiles.of[op][class], &tile))
				put_tile(ret, op, class, &tile);
}

/* @elapsed_ns since the update before, in which all tenants used @used_ns of the device. */
static void publish_device(struct publish *publish, uint32_t index, uint64_t elapsed_ns,
			   uint64_t used_ns)
{
	const struct executor_info *info = &publish->options.executors[index]->info;
	const struct account_book *book = tenants_book(publish->options.tenants);
	const struct account *broker = tenants_broker_account(publish->options.tenants);
	struct rbk_stats_device figures = {
		.kind = (uint32_t)info->kind,
		.n_servers = info->n_threads ? info->n_threads : 1,
		.memory_total = info->memory_bytes,
	};

	snprintf(figures.name, sizeof(figures.name), "%s", info->name);
	snprintf(figures.driver, sizeof(figures.driver), "%s", info->driver);
	snprintf(figures.paths, sizeof(figures.paths), "%s", info->paths);
	if (placer_is_drained(dispatch_placer(publish->options.dispatch), (uint8_t)index))
		figures.flags |= RBK_STATS_DEVICE_DRAINED;
	else if (!residency_is_up(publish->options.residency, index))
		figures.flags |= RBK_STATS_DEVICE_LOST;
	if (info->matrices && info->matrices[0])
		figures.flags |= RBK_STATS_DEVICE_MATRICES;
	describe_sensors(publish, index, &figures);
	describe_tiles(publish->options.executors[index], &figures);
	describe_placement(publish, index, &figures);
	if (index == RBK_DEVICE_CPU) {
		figures.memory_budget = RBK_STATS_ABSENT;
		figures.memory_charged = account_book_total(book, ACCOUNT_HOST_BYTES);
	} else {
		figures.memory_budget = budget_usable_bytes(publish->options.budget, index);
		figures.memory_charged = account_book_total(book, account_vram(index)) -
					 account_used(broker, account_vram(index));
	}
	if (elapsed_ns > 0)
		figures.utilization = (double)used_ns / ((double)elapsed_ns * figures.n_servers);
	if (figures.utilization > 1)
		figures.utilization = 1;
	stats_set_device(publish->stats, index, &figures);
}

static void heartbeat(struct publish *publish, uint64_t now_ns)
{
	struct timespec realtime;
	uint64_t realtime_ns;

	clock_gettime(CLOCK_REALTIME, &realtime);
	realtime_ns = (uint64_t)realtime.tv_sec * 1000000000u + (uint64_t)realtime.tv_nsec;
	stats_heartbeat(publish->stats, now_ns, (int64_t)(clock_now_ns() - now_ns),
			(int64_t)(realtime_ns - now_ns));
}

_Static_assert(ARRAY_SIZE(((struct rbk_stats_broker *)0)->n_turn_overruns) == RBK_TURN_CAUSES,
	       "each cause has its count");

static void describe_turns(const struct publish *publish, struct rbk_stats_broker *ret)
{
	const struct turn_report *report = &loop_current(publish->options.loop)->report;

	ret->longest_turn_ns = clock_ticks_to_ns(report->longest_ticks);
	ret->longest_turn_cause = report->longest.cause;
	ret->longest_turn_tenant = report->longest.tenant;
	memcpy(ret->n_turn_overruns, report->n_overruns, sizeof(ret->n_turn_overruns));
}

_Static_assert((int)RBK_SETUP_CAUSES == OFFLOAD_CAUSES &&
		       (int)RBK_SETUP_PLAN_VERIFY == OFFLOAD_PLAN_VERIFY &&
		       (int)RBK_SETUP_PLAN_MEASURE == OFFLOAD_PLAN_MEASURE &&
		       (int)RBK_SETUP_PLAN_PREPARE == OFFLOAD_PLAN_PREPARE &&
		       (int)RBK_SETUP_PLAN_RELEASE == OFFLOAD_PLAN_RELEASE &&
		       (int)RBK_SETUP_ARENA_MAP == OFFLOAD_ARENA_MAP &&
		       (int)RBK_SETUP_ARENA_UNMAP == OFFLOAD_ARENA_UNMAP &&
		       (int)RBK_SETUP_RING == OFFLOAD_RING && (int)RBK_SETUP_LOAD == OFFLOAD_LOAD &&
		       (int)RBK_SETUP_UNLOAD == OFFLOAD_UNLOAD &&
		       (int)RBK_SETUP_REOPEN == OFFLOAD_REOPEN &&
		       (int)RBK_SETUP_CALIBRATION == OFFLOAD_CALIBRATION &&
		       (int)RBK_SETUP_FILE == OFFLOAD_FILE,
	       "the page's");
_Static_assert(RBK_SETUP_CAUSES <= RBK_STATS_MAX_SETUP_CAUSES, "each has its place");

static struct rbk_stats_setup_time setup_time(const struct offload_time *time)
{
	return (struct rbk_stats_setup_time){
		.ns = time->ns,
		.cause = time->cause,
		.tenant = time->tenant,
	};
}

static void describe_setup(const struct publish *publish, struct rbk_stats_upkeep *ret)
{
	struct offload_report report;

	offload_describe(publish->options.offload, &report);
	ret->n_setup_waiting = report.n_waiting;
	ret->setup_running = setup_time(&report.running);
	ret->longest_wait = setup_time(&report.longest_wait);
	for (unsigned int i = 0; i < OFFLOAD_CAUSES; i++)
		ret->setup[i] = (struct rbk_stats_setup_slices){
			.n_slices = report.causes[i].n_slices,
			.total_ns = report.causes[i].total_ns,
			.longest_ns = report.causes[i].longest_ns,
			.longest_tenant = report.causes[i].longest_tenant,
		};
}

static void publish_upkeep(struct publish *publish)
{
	const struct turn_report *turns = &loop_current(publish->options.loop)->report;
	struct rbk_stats_upkeep figures = {.flags = 0};
	struct closers_report closers;
	struct dispatch_mended mended;

	describe_setup(publish, &figures);
	server_describe_closers(publish->server, &closers);
	figures.n_closers = closers.n_threads;
	figures.n_closers_max = closers.n_threads_max;
	figures.n_closers_stuck = closers.n_stuck;
	figures.n_closings_waiting = closers.n_waiting;
	figures.n_closers_ever_stuck = closers.n_ever_stuck;
	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		dispatch_describe_mended(publish->options.dispatch, (uint8_t)i, &mended);
		figures.mended[i] = (struct rbk_stats_mended){
			.n_slots = mended.n_slots,
			.n_recalled = mended.n_recalled,
			.n_moved = mended.n_moved,
			.n_lost = mended.n_lost,
		};
	}
	figures.longest_turn_cpu_ns = clock_ticks_to_ns(turns->longest_cpu_ticks);
	stats_set_upkeep(publish->stats, &figures);
}

static void publish_whole(struct publish *publish)
{
	struct rbk_stats_broker broker = {.flags = 0};
	const struct place_config *config;

	for (const struct tenant *tenant = tenants_first(publish->options.tenants); tenant;
	     tenant = tenants_next(publish->options.tenants, tenant))
		broker.n_tenants++;
	server_describe(publish->server, &broker);
	config = placer_config(dispatch_placer(publish->options.dispatch));
	broker.strategy = config->strategy;
	if (config->force_cpu)
		broker.flags |= RBK_STATS_BROKER_FORCE_CPU;
	describe_turns(publish, &broker);
	stats_set_broker(publish->stats, &broker);
	publish_upkeep(publish);
	stats_update_root(publish->stats);
	contention_publish(publish->options.contention, publish->stats);
	heartbeat(publish, publish->updated_ns);
}

/* --- Rounds --- */

/* A root page that was just made has nothing yet but what is counted. */
static bool is_root_new(const struct publish *publish)
{
	const struct rbk_stats_header *header = stats_root(publish->stats)->header;

	return header && header->n_updates == 1;
}

/* Return the number of pieces that a step has at its beginning. */
static uint32_t count_pieces(const struct publish *publish, enum publish_step step)
{
	switch (step) {
	case PUBLISH_DEVICES:
		return publish->options.n_executors;
	case PUBLISH_TENANTS:
		return min_u32(stats_n_tenants(publish->stats), MAX_TENANTS);
	case PUBLISH_SESSIONS:
		return min_u32(stats_n_sessions(publish->stats), MAX_SESSIONS);
	case PUBLISH_LEASES:
		return min_u32(stats_n_leases(publish->stats), MAX_LEASES);
	case PUBLISH_WHOLE:
		return 1;
	case PUBLISH_NOTHING:
		break;
	}
	return 0;
}

static void publish_piece(struct publish *publish)
{
	const uint32_t device = publish->options.n_executors - publish->n_left;

	switch (publish->step) {
	case PUBLISH_DEVICES:
		publish_device(publish, device, publish->elapsed_ns, publish->used_ns[device]);
		break;
	case PUBLISH_TENANTS:
		publish_next_tenant(publish);
		break;
	case PUBLISH_SESSIONS:
		publish_next_session(publish);
		break;
	case PUBLISH_LEASES:
		publish_next_lease(publish);
		break;
	case PUBLISH_WHOLE:
		publish_whole(publish);
		break;
	case PUBLISH_NOTHING:
		break;
	}
}

static void begin_round(struct publish *publish, uint64_t now_ns)
{
	publish->elapsed_ns = now_ns - publish->updated_ns;
	publish->updated_ns = now_ns;
	publish->n_looked = publish->n_changed = publish->n_asked = 0;
	stats_flush(publish->stats);
	for (uint32_t i = 0; i < publish->options.n_executors; i++) {
		uint64_t device_ns = stats_device_counts(publish->stats, i)->device_ns;

		publish->used_ns[i] = counter_growth(device_ns, publish->seen_ns[i]);
		publish->seen_ns[i] = device_ns;
	}
	publish->step = PUBLISH_DEVICES;
	publish->n_left = count_pieces(publish, publish->step);
	/* The rest may come in a later turn. */
	if (is_root_new(publish))
		publish_whole(publish);
}

static void next_step(struct publish *publish)
{
	publish->step = publish->step == PUBLISH_WHOLE ? PUBLISH_NOTHING : publish->step + 1;
	publish->n_left = count_pieces(publish, publish->step);
	if (publish->step == PUBLISH_LEASES)
		budget_look_at_leases(publish->options.budget);
}

/* Goes on with the round as far as the turn allows. Where there is little it ends at once. */
static void go_on(struct publish *publish)
{
	const struct turn *turn = loop_current(publish->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, PUBLISH_PART);

	for (unsigned int n = 0; publish->step != PUBLISH_NOTHING;) {
		if (publish->n_left == 0) {
			next_step(publish);
			continue;
		}
		if (n >= PUBLISH_PIECES && turn_used_ticks(turn) >= stop_ticks) {
			loop_timer_arm(publish->round_timer, 0);
			return;
		}
		publish_piece(publish);
		publish->n_left--;
		n++;
	}
}

static void on_round(void *data)
{
	struct publish *publish = data;
	struct turn *turn = loop_current(publish->options.loop);
	struct turn_source outer = turn_enter(turn, RBK_TURN_STATISTICS, 0);

	go_on(publish);
	turn_leave(turn, outer);
}

/* --- When --- */

static void update(struct publish *publish)
{
	uint64_t now_ns = clock_ticks_to_ns(clock_ticks());

	if (publish->step == PUBLISH_NOTHING && (publish->is_stale || is_root_new(publish) ||
						 now_ns - publish->updated_ns >= update_min_ns)) {
		publish->is_stale = false;
		begin_round(publish, now_ns);
		go_on(publish);
		return;
	}
	/* The round goes on, but a page that was just made should not be read empty. */
	if (publish->step != PUBLISH_NOTHING && is_root_new(publish))
		publish_whole(publish);
	/* Counts cost little to bring up to date. */
	stats_flush(publish->stats);
	stats_update_root(publish->stats);
}

static void on_update(void *context)
{
	struct publish *publish = context;
	struct turn *turn = loop_current(publish->options.loop);
	struct turn_source outer;

	if (!publish->server)
		return;
	outer = turn_enter(turn, RBK_TURN_STATISTICS, 0);
	update(publish);
	turn_leave(turn, outer);
}

static void on_timer(void *data)
{
	struct publish *publish = data;

	on_update(publish);
	if (publish->is_watched)
		loop_timer_arm(publish->timer, period_ns);
}

static void on_watched(void *context, bool is_watched)
{
	struct publish *publish = context;

	publish->is_watched = is_watched;
	contention_set_watched(publish->options.contention, is_watched);
	if (is_watched)
		loop_timer_arm(publish->timer, period_ns);
	else
		loop_timer_disarm(publish->timer);
}

static void on_plan_leaving(void *context, struct session_plan *plan)
{
	publish_plan(context, plan);
}

/* --- What administrators change --- */

static void on_plan_reset(void *context, struct session_plan *plan)
{
	struct publish *publish = context;

	publish->is_stale = true;
	if (plan->place)
		place_plan_reset(dispatch_placer(publish->options.dispatch), plan->place);
}

void publish_configure(struct publish *publish, const struct place_config *config)
{
	struct place_config wanted = *config;

	if (publish->force_cpu >= 0)
		wanted.force_cpu = publish->force_cpu;
	dispatch_configure(publish->options.dispatch, &wanted);
}

static void on_reset(void *context)
{
	struct publish *publish = context;

	publish->is_stale = true;
	turn_reset(loop_current(publish->options.loop));
	offload_reset(publish->options.offload);
	contention_reset(publish->options.contention);
}

static int on_force_cpu(void *context, int value)
{
	struct publish *publish = context;
	const struct place_config *config =
		placer_config(dispatch_placer(publish->options.dispatch));
	struct place_config wanted = *config;

	if (value >= 0) {
		publish->force_cpu = value;
		publish_configure(publish, &wanted);
		/* The next look shows it. */
		publish->is_stale = true;
	}
	return config->force_cpu;
}

struct server_publisher publish_hooks(struct publish *publish)
{
	return (struct server_publisher){
		.update = on_update,
		.plan_leaving = on_plan_leaving,
		.set_watched = on_watched,
		.plan_reset = on_plan_reset,
		.force_cpu = on_force_cpu,
		.reset = on_reset,
		.context = publish,
	};
}

void publish_start(struct publish *publish, struct server *server)
{
	publish->server = server;
	publish->stats = server_stats_pages(server);
	stats_set_period(publish->stats, period_ns);
	begin_round(publish, clock_ticks_to_ns(clock_ticks()));
	go_on(publish);
}

int publish_new(const struct publish_options *options, struct publish **ret)
{
	_cleanup_(publish_freep) struct publish *publish = calloc(1, sizeof(*publish));
	int r;

	if (!publish)
		return error_origin(-ENOMEM);
	publish->options = *options;
	publish->force_cpu = -1;
	r = loop_timer_new(options->loop, on_timer, publish, &publish->timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_round, publish, &publish->round_timer);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(publish);
	return 0;
}

struct publish *publish_free(struct publish *publish)
{
	if (!publish)
		return NULL;
	loop_timer_free(publish->timer);
	loop_timer_free(publish->round_timer);
	free(publish);
	return NULL;
}
