/* SPDX-License-Identifier: MIT */
/* Leases that share a device's time: requests of members; see timeslices.c. */
#include <errno.h>

#include "lease/lease.h"
#include "session/server-private.h"

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
