#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says of a process: whose it is, and in which lease's cgroup
 *
 * A process id may be another process's at any time: whoever acts upon this makes sure that the
 * process was there before and is there still. Reactor thread.
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
	/* Of cgroups, as those of the device gate: who is deeper is in no lease's. */
	PROCESS_MAX_LEVELS = 64,
};

/* Where it is looked up. */
struct process_view {
	const char *proc;    /* "/proc" but in tests */
	const char *cgroups; /* where the unified hierarchy is mounted; NULL: nowhere */
	struct tenants *tenants;
	uint64_t tick_ns;
	char text[PROC_TEXT_BYTES];
};
/* Everything is borrowed. */
void process_view_init(struct process_view *view, const char *proc, const char *cgroups,
		       struct tenants *tenants);

/* When it began, CLOCK_BOOTTIME. Return: 0: it is gone, or cannot be seen. */
uint64_t process_start(struct process_view *view, pid_t pid);

/* Effective user and group of @peer->pid, and its groups. Return: false: they are not known. */
bool process_user(struct process_view *view, struct peer *peer,
		  gid_t groups[static PROCESS_MAX_GROUPS]);

/* As a client's, see session/peer.c; to be unreferenced. Return: NULL: it is gone. */
struct tenant *process_tenant(struct process_view *view, pid_t pid);

/* Is it in a cgroup, or below? Who is too deep is not. */
bool process_is_in(struct process_view *view, pid_t pid, uint64_t cgroup_id);

/*
 * The lease of a device whose cgroup, the nearest of those that it is in, and whose user and tenant
 * are its own. NULL: there is none.
 */
struct lease *process_find_lease(struct process_view *view, const struct leases *leases,
				 uint8_t device, pid_t pid);
