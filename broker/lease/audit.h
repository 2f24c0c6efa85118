#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Do processes keep to their leases, and what becomes of those that do not
 *
 * Leases are kept by the processes themselves; the kernel says what they really use. This decides,
 * and does nothing: no clock, no signal. What is seen of a process is a moment old, and leases
 * change meanwhile, so nobody is judged by one look: only who uses too much in a list of processes
 * that was begun after somebody held on to the process, too.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lease/lease.h"
#include "tenant/policy.h"

/* The pause between asking a process to end and ending it. */
#define AUDIT_KILL_NS 10000000000ull

/* A process on one device, as observed. */
struct audit_process {
	pid_t pid;
	uint64_t bytes;
	uint64_t started_ns;       /* CLOCK_BOOTTIME */
	const struct lease *lease; /* of that device; NULL: it is a member of none */
};

/* A lease, as observed. */
struct audit_sum {
	uint64_t seen_bytes, allowed_bytes;
	/* Who has most beyond its credit, as an index; UINT32_MAX: nobody is seen. */
	uint32_t worst;
};

/*
 * The lease of a process. A member's process id means the process that connected only while that
 * lives: one that was started after it joined is another.
 */
struct lease *audit_find_lease(const struct leases *leases, uint8_t device, pid_t pid,
			       uint64_t started_ns);

/*
 * A member that came back from a broker that ended says itself what it has. If the process is seen
 * to have more, beyond the tolerance, in a list that was begun at @list_ns and after it came back,
 * it is credited with that: lease_correct(). With @is_off it is not.
 * Return: the member, if that was done for the first time; else NULL.
 */
struct lease_member *audit_confirm(struct lease *lease, const struct audit_process *process,
				   uint64_t list_ns, bool is_off);

/*
 * Adds up what the members of @lease use, out of @n processes of its device. What they may use is
 * the most that it was granted since audit_begin_anew(), and the tolerance for each.
 */
void audit_add_up(const struct lease *lease, const struct audit_process *processes, uint32_t n,
		  struct audit_sum *ret);
/* What it is granted from now on counts for the next list of processes. */
void audit_begin_anew(struct lease *lease);

/* Somebody who uses too much, from look to look; zeroed but for noticed_ns. */
struct audit_case {
	uint64_t noticed_ns; /* when the process was held on to */
	uint64_t told_ns, terminated_ns;
	bool is_killed;
};

/* What is to be done now. */
enum {
	AUDIT_TELL = 1 << 0,
	AUDIT_TERMINATE = 1 << 1, /* politely */
	AUDIT_KILL = 1 << 2,
};

/*
 * It still uses too much in a list that was begun at @list_ns. Each of these is returned once.
 * Return: a sum of AUDIT_*.
 */
unsigned int audit_step(struct audit_case *audit_case, enum policy_audit action, uint64_t list_ns,
			uint64_t now_ns);

/* Whom @broker_pid never stops, whatever the policy, and why; NULL: it may be stopped. */
struct audit_suspect {
	pid_t pid;
	uid_t uid; /* effective */
	bool has_lease;
	uint64_t started_ns;
};
const char *audit_spares(const struct audit_suspect *suspect, pid_t broker_pid,
			 uint64_t broker_started_ns);
