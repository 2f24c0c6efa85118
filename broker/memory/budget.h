#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Budget: the memory of each device that all tenants together may use
 *
 * Connects telemetry and residency, which know nothing of each other. With each sample that matters
 * it computes the usable memory: the device's memory, less a headroom, less the use of outside
 * processes, less the driver's overhead for the broker. The overhead is charged to the broker's own
 * account, so that the ledger's sum is what the kernel counts for the broker. Reactor thread.
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
struct tenant;
struct tenants;
struct waker;

/*
 * Expected maximum, per device, of what a driver allocates for the broker itself, such as command
 * buffers and pipelines. A larger overhead is logged as a warning.
 */
#define BUDGET_OVERHEAD_BYTES (64ull << 20)

struct budget_options {
	struct loop *loop;
	struct waker *waker; /* rung by telemetry; for this module only */
	struct telemetry *telemetry;
	struct residency *residency;
	struct tenants *tenants;
	struct enforce *enforce; /* told of new samples, and may need more of them; NULL: none */
	struct executor *const *executors;
	uint32_t n_executors;
	/*
	 * Called with each new list of processes: @own_ns is the time for which the device's
	 * engines worked for the broker since the last call, @others_ns that for all other
	 * processes. NULL: not called.
	 */
	void (*engine_time)(void *context, uint8_t device, uint64_t own_ns, uint64_t others_ns);
	/*
	 * Called afterwards for each lease whose programs used @ns of the device; NULL: not called.
	 */
	void (*leased_time)(void *context, const struct tenant *tenant, uint8_t device,
			    uint64_t ns);
	/* Bring the time of leases' timeslices up to date. NULL: not called. */
	void (*count_timeslices)(void *context);
	void *context;
	/* An administrator set memory_bytes, and devices have no headroom. */
	bool is_capped;
};

/*
 * Make a budget, and evaluate the first sample. @options is copied, all that it points to is
 * borrowed.
 * Return: 0 or a negative errno.
 */
int budget_new(const struct budget_options *options, struct budget **ret);
struct budget *budget_free(struct budget *budget);

/* Apply a new policy: headroom and reserves may have changed. */
void budget_policy_changed(struct budget *budget);

/*
 * Set the pace of the samples. The dispatcher calls this after each turn that gave tasks to a
 * device other than the CPU (@is_busy), and before it sleeps (@is_busy only if such a device has
 * tasks). @context is the budget.
 */
void budget_set_pace(void *context, bool is_busy, bool has_sessions);

/* Return the bytes of a device that all tenants together may use, as of the last look. */
uint64_t budget_usable_bytes(const struct budget *budget, uint32_t device);

/* Update the use of leases if it may have changed; call before the figures are read. */
void budget_look_at_leases(struct budget *budget);
/* Return the bytes of leases that programs use on a device, as of the last look: see lease.h. */
uint64_t budget_leased_bytes(const struct budget *budget, uint32_t device);

/* Figures computed from a sample. */
struct budget_figures {
	uint64_t usable_bytes;   /* usable by all tenants */
	uint64_t outside_bytes;  /* used by outside processes */
	uint64_t overhead_bytes; /* used by the broker's process, beyond tenants' allocations */
};

/*
 * Compute the figures of a sample; a pure function. @total_bytes is the executor's total;
 * @headroom_bytes stay free; @allocated_bytes are what executors hold for tenants; @leased_bytes
 * are outside use within leases, which tenants are charged for already. Members of @pool may be
 * invalid: unknown use counts as 0.
 */
void budget_compute(const struct memory_reading *pool, uint64_t total_bytes,
		    uint64_t headroom_bytes, uint64_t allocated_bytes, uint64_t leased_bytes,
		    struct budget_figures *ret);

DEFINE_CLEANUP(struct budget *, budget_free)
