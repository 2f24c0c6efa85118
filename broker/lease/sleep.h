#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Sleep: memory of idle leased programs that goes to host memory
 *
 * Programs can have the layer in them move their memory (libclient/layer/mover.h). They do so, once
 * they are idle, while their lease's page asks for it: because an administrator, or the lease's
 * opener, has said so (sleep_set()), or because another lease waits for room (sleep_ask()). What
 * they give back leaves the lease, too, even below its wish; when they go on, the lease grows again
 * as for any request for credit.
 *
 * A lease that is held submits nothing until it is woken, whether its memory can be moved or not.
 *
 * Members report what they can move and have moved. These figures are believed as other reports
 * are: they only choose which lease is asked, and let a lease have less. Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/abi.h>

struct lease;
struct lease_member;
struct leases;

/* A lease's part; zeroed at first. */
struct lease_sleep {
	uint32_t set;  /* enum rbk_lease_sleep of sleep_set() */
	bool is_asked; /* by sleep_ask() */
	/* sums of the members' reports */
	uint64_t movable_bytes; /* that can be moved, those that were included */
	uint64_t moved_bytes;
};

/* Return the enum rbk_lease_sleep that members see. */
static inline uint32_t sleep_state(const struct lease_sleep *sleep)
{
	if (sleep->set != RBK_LEASE_AWAKE)
		return sleep->set;
	return sleep->is_asked ? RBK_LEASE_ASKED : RBK_LEASE_AWAKE;
}

/* Return true if the lease sleeps, so that it keeps no more than its members have. */
static inline bool sleep_is_sleeping(const struct lease_sleep *sleep)
{
	return sleep->moved_bytes > 0 && sleep_state(sleep) != RBK_LEASE_AWAKE;
}

/* A member's part: its last report; zeroed at first. */
struct member_sleep {
	uint64_t movable_bytes, moved_bytes;
};

/* Have a lease sleep, be held, or be awake: an enum rbk_lease_sleep but RBK_LEASE_ASKED. */
void sleep_set(struct lease *lease, uint32_t state);
/* Ask a lease to sleep until sleep_end_asking(), since another one waits for room. */
void sleep_ask(struct lease *lease);
/* Ask no lease of a device any more. */
void sleep_end_asking(struct leases *leases, uint8_t device);

/*
 * Note a member's report, and give back what its lease does not need while it sleeps. Return: true
 * if something has changed.
 */
bool sleep_report(struct lease_member *member, uint64_t movable_bytes, uint64_t moved_bytes);
