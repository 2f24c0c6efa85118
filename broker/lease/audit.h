#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Lease audits: find processes that exceed their leases, and decide on the consequence
 *
 * Processes keep to their leases by themselves; the kernel tells how much they really use. This
 * module decides only: it reads no clock and sends no signal. The figures of a process are a moment
 * old, and leases change meanwhile. So no process is judged by one look. A process must exceed its
 * lease in a list of processes that was begun after a pidfd of the process was opened.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lease/lease.h"
#include "tenant/policy.h"

/* Pause between SIGTERM and SIGKILL. */
#define AUDIT_KILL_NS 10000000000ull

/* A process on one device, as observed. */
struct audit_process {
	pid_t pid;
	uint64_t bytes;
	uint64_t started_ns;       /* CLOCK_BOOTTIME */
	const struct lease *lease; /* lease on that device; NULL: no member of one */
};

/* A lease, as observed. */
struct audit_sum {
	uint64_t seen_bytes, allowed_bytes;
	/* index of the process that most exceeds its credit; UINT32_MAX: none is seen */
	uint32_t worst;
};

/*
 * Return the lease of a process. A member's process id names the process that connected only while
 * that process lives: a process that started after the member joined is another one.
 */
struct lease *audit_find_lease(const struct leases *leases, uint8_t device, pid_t pid,
			       uint64_t started_ns);

/*
 * Correct the credit of a member that came back from a broker that ended, and itself reported how
 * much it holds. The list of processes begun at @list_ns must be later than its return. If the
 * process uses more, beyond the tolerance, the member is credited with the difference: see
 * lease_correct(). With @is_off it is not.
 * Return: the member, if this was its first correction; otherwise NULL.
 */
struct lease_member *audit_confirm(struct lease *lease, const struct audit_process *process,
				   uint64_t list_ns, bool is_off);

/*
 * Add up the use of the members of @lease, out of @n processes of its device. They may use the most
 * that was granted since audit_begin_anew(), and the tolerance for each process.
 */
void audit_add_up(const struct lease *lease, const struct audit_process *processes, uint32_t n,
		  struct audit_sum *ret);
/* Start anew: bytes granted from now on count for the next list of processes. */
void audit_begin_anew(struct lease *lease);

/* A process that exceeds its lease, from look to look; zeroed but for noticed_ns. */
struct audit_case {
	uint64_t noticed_ns; /* time at which its pidfd was opened */
	uint64_t told_ns, terminated_ns;
	bool is_killed;
};

/* Steps to be taken now. */
enum {
	AUDIT_TELL = 1 << 0,
	AUDIT_TERMINATE = 1 << 1, /* SIGTERM */
	AUDIT_KILL = 1 << 2,
};

/*
 * Decide on a process that still exceeds its lease in a list that was begun at @list_ns. Each step
 * is returned once.
 * Return: a sum of AUDIT_*.
 */
unsigned int audit_step(struct audit_case *audit_case, enum policy_audit action, uint64_t list_ns,
			uint64_t now_ns);

/* A process that may have to be stopped. */
struct audit_suspect {
	pid_t pid;
	uid_t uid; /* effective */
	bool has_lease;
	uint64_t started_ns;
};
const char *audit_spares(const struct audit_suspect *suspect, pid_t broker_pid,
			 uint64_t broker_started_ns);
