/* SPDX-License-Identifier: MIT */
/*
 * Leases that share a device's time, see timeslices.c, and leases that sleep, see lease/sleep.h:
 * requests of members and owners
 */
#include <errno.h>

#include "lease/lease.h"
#include "memory/residency.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/fair.h"
#include "util/log.h"
#include "util/priority.h"

void session_timeslice(struct session *session, const struct rbk_wire_lease_timeslice *timeslice)
{
	const struct rbk_wire_request *request = &timeslice->request;
	struct lease_member *member = session_lease_member(session, request, timeslice->lease);
	uint64_t now_ns = timeslices_now(session->server);
	int r = 0;

	if (!member)
		return;
	if (timeslice->action != RBK_WIRE_TIMESLICE_JOIN && !member->timeslice.is_sharing) {
		session_reply_result(session, request->type, request->cookie, -ENOENT,
				     "this member of lease %u does not share the device's time",
				     timeslice->lease);
		return;
	}
	if (timeslice->action == RBK_WIRE_TIMESLICE_WANT)
		timeslice_want(member, now_ns);
	else if (timeslice->action == RBK_WIRE_TIMESLICE_DONE)
		timeslice_done(member, timeslice->word, now_ns);
	else if (timeslice->action == RBK_WIRE_TIMESLICE_GIVE_UP)
		timeslice_give_up(member, timeslice->word, now_ns);
	else if (timeslice->action == RBK_WIRE_TIMESLICE_LEAVE)
		timeslice_leave(member, now_ns);
	else if (timeslice->action == RBK_WIRE_TIMESLICE_ENDING)
		timeslice_ending(member, timeslice->word, timeslice->rest_us * UINT64_C(1000),
				 now_ns);
	else
		r = timeslice_join(member, timeslice->priority, now_ns);
	if (r)
		session_reply_result(session, request->type, request->cookie, -EBUSY,
				     "tenant %s: at most %d leases of a tenant share the time of "
				     "device %u, and %d members of a lease",
				     tenant_name(session->tenant), TIMESLICE_MAX_LEASES,
				     member->lease->device, TIMESLICE_MAX_MEMBERS);
	else
		session_reply_result(session, request->type, request->cookie, 0, NULL);
	timeslices_arm(session->server, now_ns);
}

void session_lease_share(struct session *session, const struct rbk_wire_lease_share *share)
{
	const struct rbk_wire_request *request = &share->request;
	struct lease *lease = session_own_lease(session, request, share->lease, "change");
	const bool ends_sharing = share->priority == 1 + RBK_PRIORITY_NONE;
	uint64_t now_ns;

	if (!lease)
		return;
	if ((share->priority > RBK_PRIORITY_COUNT && !ends_sharing) ||
	    share->share > FAIR_MAX_WEIGHT || (share->priority == 0 && share->share == 0)) {
		session_reply_result(session, request->type, request->cookie, -EINVAL,
				     "lease %u can have a share from 1 to %d and a known priority, "
				     "not share %u and priority %u",
				     lease->number, FAIR_MAX_WEIGHT, share->share, share->priority);
		return;
	}
	now_ns = timeslices_now(session->server);
	timeslice_set(lease, share->priority, share->share, now_ns);
	lease_show(lease);
	timeslices_arm(session->server, now_ns);
	if (!session->tenant)
		log_info_of(SESSION_ABOUT(session), LOG_LEASE_SHARED,
			    "lease %u of \"%s\", tenant %s: %s%s; its share is %u among its "
			    "tenant's leases, as uid %u (pid %d) asked",
			    lease->number, lease->name, tenant_name(lease->tenant),
			    share->priority == 0 ? "its priority stays"
			    : ends_sharing       ? "its programs stop sharing the device"
						 : "it has priority ",
			    share->priority && !ends_sharing
				    ? priority_of_program(share->priority - 1)
				    : "",
			    timeslice_share(lease), (unsigned int)session->uid, (int)session->pid);
	session_reply_result(session, request->type, request->cookie, 0, NULL);
}

void session_parts(struct session *session, const struct rbk_wire_lease_parts *parts)
{
	const struct rbk_wire_request *request = &parts->request;
	struct lease_member *member = session_lease_member(session, request, parts->lease);
	const struct parts_report report = {
		.counts = {[PARTS_SUBMISSIONS] = parts->n_submissions,
			   [PARTS_DIVIDED] = parts->n_parts,
			   [PARTS_SLICES] = parts->n_slices,
			   [PARTS_WHOLE] = parts->n_whole,
			   [PARTS_UNSLICED] = parts->n_unsliced},
		.longest_ns = parts->longest_ns,
	};

	if (!member)
		return;
	parts_report(member, &report, clock_now_ns());
	session_reply_result(session, request->type, request->cookie, 0, NULL);
}

void session_lease_sleep(struct session *session, const struct rbk_wire_lease_sleep *sleep)
{
	static const char *const said[] = {
		[RBK_LEASE_AWAKE] = "it is awake",
		[RBK_LEASE_SLEEPS] = "it sleeps: memory of idle programs goes to host memory",
		[RBK_LEASE_HELD] = "it is held: its programs submit nothing until it is awake",
	};
	const struct rbk_wire_request *request = &sleep->request;
	struct lease *lease = session_own_lease(session, request, sleep->lease, "put to sleep");

	if (!lease)
		return;
	if (sleep->sleep > RBK_LEASE_HELD) {
		session_reply_result(session, request->type, request->cookie, -EINVAL,
				     "a lease can be awake (0), asleep (1) or held (2), not %u",
				     sleep->sleep);
		return;
	}
	sleep_set(lease, sleep->sleep);
	residency_leases_changed(session->server->options.residency, lease->device);
	if (!session->tenant)
		log_info_of(SESSION_ABOUT(session), LOG_LEASE_SLEEPS,
			    "lease %u of \"%s\", tenant %s: %s, as uid %u (pid %d) asked",
			    lease->number, lease->name, tenant_name(lease->tenant),
			    said[sleep->sleep], (unsigned int)session->uid, (int)session->pid);
	session_reply_result(session, request->type, request->cookie, 0, NULL);
}

void session_lease_moved(struct session *session, const struct rbk_wire_lease_moved *moved)
{
	const struct rbk_wire_request *request = &moved->request;
	struct lease_member *member = session_lease_member(session, request, moved->lease);

	if (!member)
		return;
	if (sleep_report(member, moved->movable_bytes, moved->moved_bytes))
		residency_leases_changed(session->server->options.residency, member->lease->device);
	session_reply_result(session, request->type, request->cookie, 0, NULL);
}
