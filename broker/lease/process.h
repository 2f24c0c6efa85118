#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Processes: a process's user, tenant and lease, as the kernel tells them
 *
 * The kernel may reuse a process id at any time. A caller that acts upon these results must make
 * sure that the process lived before and is still alive. Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tenant/policy.h"
#include "util/proc.h"

struct lease;
struct leases;
struct tenant;
struct tenants;

enum {
	PROCESS_MAX_GROUPS = 256,
	/* levels of cgroups, as in the device gate; a deeper process has no lease by cgroup */
	PROCESS_MAX_LEVELS = 64,
};

/* Sources of the look-ups. */
struct process_view {
	const char *proc;    /* "/proc" except in tests */
	const char *cgroups; /* mount point of the unified hierarchy; NULL: none */
	struct tenants *tenants;
	uint64_t tick_ns;
	char text[PROC_TEXT_BYTES];
};
/* Initialise a view; all pointers are borrowed. */
void process_view_init(struct process_view *view, const char *proc, const char *cgroups,
		       struct tenants *tenants);

/* Return the start time of a process (CLOCK_BOOTTIME); 0: it is gone, or cannot be read. */
uint64_t process_start(struct process_view *view, pid_t pid);

/*
 * Read the effective user and group of @peer->pid, and its groups. Return: false: they are not
 * known.
 */
bool process_user(struct process_view *view, struct peer *peer,
		  gid_t groups[static PROCESS_MAX_GROUPS]);

/*
 * Return the tenant of a process, found as a client's: see session/peer.c. The caller drops the
 * reference. NULL: the process is gone.
 */
struct tenant *process_tenant(struct process_view *view, pid_t pid);

/*
 * Return true if the process is in the cgroup or below it; false if it is more than
 * PROCESS_MAX_LEVELS deep.
 */
bool process_is_in(struct process_view *view, pid_t pid, uint64_t cgroup_id);

/*
 * Return the lease of a device to whose cgroup the process belongs: the nearest such cgroup above
 * the process counts, and its lease must have the process's user and tenant. NULL: there is none.
 */
struct lease *process_find_lease(struct process_view *view, const struct leases *leases,
				 uint8_t device, pid_t pid);
