/* SPDX-License-Identifier: MIT */
/*
 * Leases that share a device's time: the timer
 *
 * lease/timeslice.c decides which lease may submit work. It is called after each request of a
 * member (session-timeslice.c), when a member leaves, by the dispatcher about tasks of plans, and
 * by one timer for all devices.
 */
#include "lease/lease.h"
#include "loop/loop.h"
#include "memory/residency.h"
#include "session/server-private.h"
#include "tenant/tenant.h"
#include "util/clock.h"
#include "util/error.h"

static struct timeslices *timeslices_of(struct server *server)
{
	return &residency_leases(server->options.residency)->timeslices;
}

/* The timer is that late only if the broker was stopped. */
static const uint64_t stopped_ns = 500000000;

uint64_t timeslices_now(struct server *server)
{
	const uint64_t now_ns = clock_now_ns();

	if (server->slice_due_ns > 0 && now_ns > server->slice_due_ns + stopped_ns)
		timeslice_skip(timeslices_of(server), now_ns);
	return now_ns;
}

void timeslices_arm(struct server *server, uint64_t now_ns)
{
	uint64_t next_ns = timeslice_next_ns(timeslices_of(server), now_ns);

	server->slice_due_ns = next_ns == UINT64_MAX ? 0 : next_ns;
	if (next_ns == UINT64_MAX)
		loop_timer_disarm(server->slice_timer);
	else
		loop_timer_arm(server->slice_timer, next_ns > now_ns ? next_ns - now_ns : 0);
}

static void on_timeslice(void *data)
{
	struct server *server = data;
	uint64_t now_ns = timeslices_now(server);

	timeslice_run(timeslices_of(server), now_ns);
	timeslices_arm(server, now_ns);
}

/* Log a timeslice on the page of the lease's tenant. */
static void on_ended(void *data, const struct lease *lease, const struct timeslice_record *record)
{
	static const uint8_t priorities[] = {RBK_PRIORITY_URGENT, RBK_PRIORITY_HIGH,
					     RBK_PRIORITY_NORMAL, RBK_PRIORITY_LOW};
	struct server *server = data;
	/* Pages have times of the broker's own clock. */
	const uint64_t offset_ns = clock_ticks_to_ns(clock_ticks()) - clock_now_ns();
	const bool is_own = record->for_tenant == lease->tenant->number;
	const uint32_t flags = (record->is_overdue ? RBK_STATS_SLICE_OVERDUE : 0) |
			       (record->is_late ? RBK_STATS_SLICE_LATE : 0) |
			       (record->for_lease && !is_own ? RBK_STATS_SLICE_FOR_OTHERS : 0) |
			       (record->is_for_plans ? RBK_STATS_SLICE_FOR_PLANS : 0) |
			       (record->is_left ? RBK_STATS_SLICE_LEFT : 0) |
			       (record->is_alone ? RBK_STATS_SLICE_ALONE : 0);
	const struct rbk_stats_slice shown = {
		.lease = lease->number,
		/* A tenant must not learn what others do. */
		.ended_for = is_own ? record->for_lease : 0,
		.wanted_at_ns = record->wanted_ns ? record->wanted_ns + offset_ns : 0,
		.began_at_ns = record->began_ns + offset_ns,
		.closed_at_ns = record->closed_ns ? record->closed_ns + offset_ns : 0,
		.ended_at_ns = record->ended_ns + offset_ns,
		.plans_ns = record->plans_ns,
		.device = lease->device,
		.priority = priorities[record->class & 3],
		.flags = (uint16_t)flags,
	};

	resets_note_slice(&lease->leases->resets, lease, record);
	server_stats_slice(server, lease->tenant, &shown);
}

int timeslices_start(struct server *server)
{
	struct timeslices *timeslices = timeslices_of(server);
	int r = loop_timer_new(server->options.loop, on_timeslice, server, &server->slice_timer);

	if (r)
		return error_fold(r);
	timeslices->ended = on_ended;
	timeslices->context = server;
	return 0;
}

void timeslices_stop(struct server *server)
{
	if (server->slice_timer)
		timeslices_of(server)->ended = NULL;
	server->slice_timer = loop_timer_free(server->slice_timer);
}

void server_share_plans(struct server *server, uint8_t device, struct timeslice_plans *changed)
{
	const uint64_t now_ns = timeslices_now(server);
	struct timeslice_plans **end = &changed;

	/* Without memory for its tenant's account a tenant's tasks are not held back. */
	while (*end)
		if ((*end)->is_known || leases_know((*end)->tenant) == 0)
			end = &(*end)->next_changed;
		else
			*end = (*end)->next_changed;
	timeslice_share_plans(timeslices_of(server), device, changed, now_ns);
	timeslices_arm(server, now_ns);
}

void server_count_timeslices(struct server *server)
{
	struct timeslices *timeslices = timeslices_of(server);

	uint64_t now_ns;

	if (timeslices->n_leases == 0)
		return;
	now_ns = timeslices_now(server);
	timeslice_count_time(timeslices, now_ns);
	/* Time of plans that was counted now may end a timeslice. */
	timeslice_run(timeslices, now_ns);
	timeslices_arm(server, now_ns);
}

void timeslices_leave(struct server *server, struct lease_member *member)
{
	uint64_t now_ns;

	if (!member->timeslice.is_sharing)
		return;
	now_ns = timeslices_now(server);
	timeslice_leave(member, now_ns);
	timeslices_arm(server, now_ns);
}
