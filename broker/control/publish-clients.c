/* SPDX-License-Identifier: MIT */
/* Figures of sessions and leases */
#include "control/publish-private.h"

#include <stdio.h>
#include <string.h>

#include "memory/residency.h"
#include "session/segments.h"
#include "session/session.h"
#include "stats/stats.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/number.h"
#include "util/priority.h"

/* Sessions' plans whose residency one update checks */
enum { MAX_SESSION_PLANS = 4096 };
/* The time that a session's latencies cover, and the age from which they are stale. */
static const uint64_t latency_ns = 1000000000;
static const uint64_t latency_stale_ns = 10000000000;

/* --- Sessions --- */

/* Count a plan that is resident on some device, and its memory on devices. */
static void count_plan(const struct publish *publish, struct session_plan *plan,
		       struct rbk_stats_session *figures)
{
	bool is_resident = false;

	for (uint32_t k = 0; k < plan_n_segments(plan); k++) {
		const struct session_plan *segment = plan_segment(plan, k);

		for (uint32_t i = RBK_DEVICE_GPU; i < publish->options.n_executors; i++) {
			if (!segment->memory.residency ||
			    segment->plan->device_state[i] != PLAN_DEVICE_READY)
				continue;
			is_resident = true;
			figures->memory_used += residency_vram_bytes(&segment->memory, i);
		}
	}
	figures->n_plans_resident += is_resident;
}

/*
 * Count a session's resident plans. @n_asked counts the plans checked in this update; beyond
 * MAX_SESSION_PLANS none is checked.
 */
static void count_resident(const struct publish *publish, const struct session *session,
			   unsigned int *n_asked, struct rbk_stats_session *figures)
{
	uint32_t left = session->n_added_plans;

	for (uint32_t i = 0; i < session->n_plans && left > 0 && *n_asked < MAX_SESSION_PLANS;
	     i++, ++*n_asked) {
		if (!session->plan_slots[i])
			continue;
		left--;
		if (!session->plans[i])
			continue;
		*n_asked += plan_n_segments(session->plans[i]) - 1;
		count_plan(publish, session->plans[i], figures);
	}
}

/* Return the upper end of the bucket that the quantile is in. */
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

/* Compute the quantiles of a session that has counted for a second, and reset its counts. */
static void look_at_latencies(struct session_latencies *latencies, uint64_t now_ns)
{
	const uint64_t ns = now_ns - latencies->from_ns;
	uint64_t n = 0;

	if (ns < latency_ns)
		return;
	/*
	 * Counts over latency_stale_ns or longer include a time without watchers, and are dropped.
	 */
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
			    struct stats_shown *shown, unsigned int *n_asked)
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
	stats_shown_set(shown, &figures);
}

void publish_next_session(struct publish *publish)
{
	struct stats_shown *shown = stats_first_shown(publish->stats, STATS_SESSIONS);

	if (!shown)
		return;
	stats_shown_last(shown);
	publish_session(publish, shown->owner, shown, &publish->n_asked);
}

/* --- Leases --- */

/* A share of a device's time is not shown any longer than this after the last list. */
static const uint64_t old_ns = 5000000000;

/* Return the flags of a lease that shares its device's time; 0: it does not. */
static uint32_t sharing_flags(const struct lease *lease)
{
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL);
	uint8_t class;

	if (lease->timeslice.n_members == 0)
		return 0;
	class = timeslice_class(lease);
	return RBK_STATS_LEASE_SHARING | (class > normal ? RBK_STATS_LEASE_BACKGROUND : 0) |
	       (class == priority_class(RBK_PRIORITY_HIGH) ? RBK_STATS_LEASE_HIGH : 0) |
	       (class == priority_class(RBK_PRIORITY_URGENT) ? RBK_STATS_LEASE_URGENT : 0);
}

/* Set the figures of how the programs' work is divided, and of their waits for the device. */
static void describe_parts(const struct lease *lease, uint64_t now_ns, struct rbk_stats_lease *ret)
{
	static const uint64_t unknown[PARTS_COUNTS] = {RBK_STATS_ABSENT, RBK_STATS_ABSENT,
						       RBK_STATS_ABSENT, RBK_STATS_ABSENT,
						       RBK_STATS_ABSENT};
	const uint64_t *counts = lease->parts.is_reported ? lease->parts.counts : unknown;
	const struct lease_timeslice *slice = &lease->timeslice;

	ret->n_submissions = counts[PARTS_SUBMISSIONS];
	ret->n_parts = counts[PARTS_DIVIDED];
	ret->n_slices = counts[PARTS_SLICES];
	ret->n_whole = counts[PARTS_WHOLE];
	ret->n_unsliced = counts[PARTS_UNSLICED];
	ret->longest_part_ns = recent_most(&lease->parts.longest, now_ns);
	ret->longest_wait_ns = recent_most(&slice->longest_wait, now_ns);
	if (slice->n_wanting == 0)
		return;
	ret->flags |= RBK_STATS_LEASE_QUEUED;
	ret->queued_ns = saturating_sub(now_ns, slice->wanted_ns);
}

static void publish_lease(const struct lease *lease, struct stats_shown *shown)
{
	const uint64_t now_ns = clock_now_ns();
	const bool is_recent = lease->has_busy && now_ns - lease->busy_at_ns < old_ns;
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
		.busy_ns = lease->has_busy ? lease->busy_ns : RBK_STATS_ABSENT,
		.busy_percent = is_recent ? lease->busy_percent : RBK_STATS_ABSENT,
		.flags = sharing_flags(lease),
		.slice_ns = lease->timeslice.used_ns,
		.slice_wait_ns = lease->timeslice.waited_ns,
		.beside_ns = lease->beside.total_ns,
		.n_overdue = (uint32_t)min_u64(lease->timeslice.n_overdue, UINT32_MAX),
		.share = lease->timeslice.n_members > 0 ? timeslice_share(lease) : 0,
		.movable_bytes = lease->sleep.movable_bytes,
		.moved_bytes = lease->sleep.moved_bytes,
	};
	describe_parts(lease, now_ns, &figures);
	if (lease->n_waits > 0)
		figures.flags |= RBK_STATS_LEASE_WAITING;
	if (lease_is_shrinking(lease))
		figures.flags |= RBK_STATS_LEASE_SHRINKING;
	if (lease->restored_number)
		figures.flags |= RBK_STATS_LEASE_RESTORED;
	if (lease->is_over || lease->used_bytes + lease->extra_bytes > lease_granted(lease))
		figures.flags |= RBK_STATS_LEASE_OVER;
	if (sleep_state(&lease->sleep) != RBK_LEASE_AWAKE)
		figures.flags |= RBK_STATS_LEASE_SLEEPS;
	if (sleep_state(&lease->sleep) == RBK_LEASE_HELD)
		figures.flags |= RBK_STATS_LEASE_HELD;
	if (lease->is_capped)
		figures.flags |= RBK_STATS_LEASE_CAPPED;
	snprintf(figures.name, sizeof(figures.name), "%s", lease->name);
	stats_shown_set(shown, &figures);
}

void publish_next_lease(struct publish *publish)
{
	struct stats_shown *shown = stats_first_shown(publish->stats, STATS_LEASES);

	if (!shown)
		return;
	stats_shown_last(shown);
	publish_lease(shown->owner, shown);
}
