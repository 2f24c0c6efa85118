#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Lease enforcement: act against processes that exceed their leases
 *
 * Whenever telemetry lists the processes that use a device, this module looks for two kinds of
 * processes: those that use more than their leases allow, and those without a lease whose tenant's
 * policy requires one. It does what the tenant's policy says: log a warning, lower the tenant's
 * priority meanwhile, or stop the process. lease/audit.h decides which processes are judged how,
 * and which are spared. Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "telemetry/telemetry.h"
#include "util/cleanup.h"

struct enforce;
struct lease;
struct leases;
struct loop;
struct tenants;

struct enforce_options {
	struct loop *loop;
	const struct telemetry *telemetry;
	struct tenants *tenants;
	struct leases *leases;
	uint32_t n_devices;
	const char *proc;    /* "/proc" except in tests */
	const char *cgroups; /* mount point of the unified hierarchy; NULL: none */
	/* Called when a tenant's weight and priority have changed. */
	void (*lowered)(void *context);
	/* Called when the bytes granted to leases of a device have changed. */
	void (*corrected)(void *context, uint8_t device);
	void *context;
};

/*
 * Make an enforcer. @options is copied, all that it points to is borrowed.
 * Return: 0 or a negative errno.
 */
int enforce_new(const struct enforce_options *options, struct enforce **ret);
struct enforce *enforce_free(struct enforce *enforce);

/* Apply a new policy, or a new policy of one tenant. */
void enforce_policy_changed(struct enforce *enforce);

/* Arm the timer if there is work. Called before the broker sleeps, so it is cheap. */
void enforce_wake(struct enforce *enforce);
/* Report that outside processes use more or less of a device than before. */
void enforce_outside_changed(struct enforce *enforce);
/* Return true if a pending list of processes decides something. */
bool enforce_is_urgent(const struct enforce *enforce);

/* Judge by one sample of a device; called by the timer and by tests. @now_ns: clock_now_ns(). */
void enforce_look(struct enforce *enforce, uint8_t device, const struct device_reading *reading,
		  uint64_t now_ns);

/*
 * Return the lease of a process: that of its connections, or else of its cgroup. NULL: there is
 * none. *ret_is_member: the process is a member of the lease.
 */
struct lease *enforce_find_lease(struct enforce *enforce, uint8_t device, pid_t pid,
				 bool *ret_is_member);

/* Find the leases that the kernel enforces, too; called by the timer and by tests. */
void enforce_look_at_caps(struct enforce *enforce);

DEFINE_CLEANUP(struct enforce *, enforce_free)
