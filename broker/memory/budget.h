#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What all tenants together can have of each device
 *
 * Puts telemetry and residency together, which know nothing of each other: from each sample that
 * matters, what can be had is the device's memory, less a headroom, less what processes outside
 * use, less what the driver took for the broker itself. That last part is charged to the broker's
 * own account, so that the ledger's sum is what the kernel says the broker holds. Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "telemetry/telemetry.h"
#include "util/cleanup.h"

struct budget;
struct enforce;
struct loop;
struct residency;
struct tenants;
struct waker;

/*
 * Command buffers, pipelines and whatever else a driver allocates in device memory for us is
 * expected to stay below this, per device; above it a warning says so.
 */
#define BUDGET_OVERHEAD_BYTES (64ull << 20)

struct budget_options {
	struct loop *loop;
	struct waker *waker; /* that telemetry rings; nobody else uses it */
	struct telemetry *telemetry;
	struct residency *residency;
	struct tenants *tenants;
	struct enforce
		*enforce; /* told of what samples say, and may want more; NULL: there is none */
	struct executor *const *executors;
	uint32_t n_executors;
	/* Devices have all of their memory_bytes: an administrator said how much may be used. */
	bool is_capped;
};

/* Everything is borrowed. Takes the first sample into account. Return: 0 or negative errno. */
int budget_new(const struct budget_options *options, struct budget **ret);
struct budget *budget_free(struct budget *budget);

/* The policy was read again: headroom may have changed. */
void budget_policy_changed(struct budget *budget);

/*
 * For the dispatcher, once per turn that gave tasks to a device other than the CPU (@is_busy) and
 * before sleeping (not, if it has none there): sets the pace of the samples. @context is the
 * budget.
 */
void budget_set_pace(void *context, bool is_busy, bool has_sessions);

/* What all tenants together can have of a device's memory, as of the last look. */
uint64_t budget_usable_bytes(const struct budget *budget, uint32_t device);

/* What they use may have changed: somebody is about to look. */
void budget_look_at_leases(struct budget *budget);
/* What programs seem to use of their leases there, as of the last look: see lease.h. */
uint64_t budget_leased_bytes(const struct budget *budget, uint32_t device);

/* What a sample means. A pure function. */
struct budget_figures {
	uint64_t usable_bytes;   /* by tenants */
	uint64_t outside_bytes;  /* used by others */
	uint64_t overhead_bytes; /* used by the broker's process for nobody in particular */
};

/*
 * @total_bytes as the executor has them; @headroom_bytes to be left free; @allocated_bytes that
 * executors hold for tenants now; @leased_bytes of what others use is within leases, and so charged
 * to tenants already. @pool may lack anything: what is not known is taken for 0.
 */
void budget_compute(const struct memory_reading *pool, uint64_t total_bytes,
		    uint64_t headroom_bytes, uint64_t allocated_bytes, uint64_t leased_bytes,
		    struct budget_figures *ret);

DEFINE_CLEANUP(struct budget *, budget_free)
