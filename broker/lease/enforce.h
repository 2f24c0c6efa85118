#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Holding processes to their leases that do not do so themselves
 *
 * Looks, as often as telemetry lists the processes that use a device, whether any of them uses more
 * than its lease allows, or has none although its tenant's policy asks for one, and does what the
 * tenant's policy says: tells the log, has the tenant come after others meanwhile, or ends the
 * process. What is judged how, and who is spared, is in lease/audit.h. Reactor thread.
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
	const char *proc;    /* "/proc" but in tests */
	const char *cgroups; /* where the unified hierarchy is mounted; NULL: nowhere */
	/* A tenant's weight and priority are others now. */
	void (*lowered)(void *context);
	/* More or less of a device is granted to leases. */
	void (*corrected)(void *context, uint8_t device);
	void *context;
};

/* Everything is borrowed. Return: 0 or negative errno. */
int enforce_new(const struct enforce_options *options, struct enforce **ret);
struct enforce *enforce_free(struct enforce *enforce);

/* The policy was read again, or a tenant's changed. */
void enforce_policy_changed(struct enforce *enforce);

/* Before the broker sleeps: cheap. */
void enforce_wake(struct enforce *enforce);
/* Others use more or less of a device than before. */
void enforce_outside_changed(struct enforce *enforce);
/* Is a list of processes awaited that decides something? */
bool enforce_is_urgent(const struct enforce *enforce);

/* Judges by one sample of a device; for the timer, and tests. @now_ns: clock_now_ns(). */
void enforce_look(struct enforce *enforce, uint8_t device, const struct device_reading *reading,
		  uint64_t now_ns);

/*
 * The lease of a process that is no member of it, by the cgroup that it is in. NULL: there is none.
 */
struct lease *enforce_find_by_cgroup(struct enforce *enforce, uint8_t device, pid_t pid);

/* Which leases does the kernel hold, too? For the timer, and tests. */
void enforce_look_at_caps(struct enforce *enforce);

DEFINE_CLEANUP(struct enforce *, enforce_free)
