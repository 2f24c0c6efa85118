/* SPDX-License-Identifier: MIT */
/*
 * Leases that share a device's time: the timer
 *
 * lease/timeslice.c decides which lease may submit work. It is called after each request of a
 * member (session-timeslice.c), when a member leaves, and by one timer for all devices.
 */
#include "lease/lease.h"
#include "loop/loop.h"
#include "memory/residency.h"
#include "session/server-private.h"
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

int timeslices_start(struct server *server)
{
	int r = loop_timer_new(server->options.loop, on_timeslice, server, &server->slice_timer);

	return r ? error_fold(r) : 0;
}

void timeslices_stop(struct server *server)
{
	server->slice_timer = loop_timer_free(server->slice_timer);
}

void server_note_plans(struct server *server, uint32_t devices)
{
	struct timeslices *timeslices = timeslices_of(server);
	uint64_t now_ns;

	if (timeslices->n_leases == 0)
		return;
	now_ns = timeslices_now(server);
	timeslice_note_plans(timeslices, devices, now_ns);
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
