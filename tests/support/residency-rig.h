#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A test bench for residency
 *
 * A real residency engine, ledger and setup thread over counting devices. The devices count the
 * loaded bytes and parts, and the peak of the bytes. Plans consist of constants alone, each named
 * by a number. The state changes only in calls of the test. Errors inside the rig abort.
 */
#include <stdbool.h>
#include <stdint.h>

#include "memory/residency.h"
#include "tenant/tenant.h"

enum {
	RIG_DEVICE = 1, /* the first device with memory */
	RIG_MAX_DEVICES = 3,
	RIG_MAX_TENANTS = 4,
	RIG_PAGE = 4096,
	RIG_ALIGN = 256,
};

/* A counting device. Members without a comment belong to the setup thread while a job runs. */
struct counting {
	struct executor executor;
	struct executor_ops ops;
	uint64_t allocated[EXEC_TIER_COUNT]; /* bytes now, by tier */
	uint64_t most_allocated;             /* peak bytes of VRAM */
	uint32_t n_block_loads, n_plan_loads;
	atomic_uint n_parts;        /* set by the test: calls to load a block, at least 1 */
	atomic_uint n_load_parts;   /* set by the test: calls to load a plan; 0: one */
	atomic_uint n_unload_parts; /* set by the test: calls to unload a plan; 0: one */
	uint32_t n_load_calls, n_unload_calls; /* calls of the load or unload in progress */
	uint32_t n_unload_slices;              /* calls of plan_unload_some() */
	uint32_t n_shrink_slices;              /* calls of block_shrink() */
	atomic_uint n_refused;        /* set by the test: loads that still find no memory */
	atomic_uint n_failed_reopens; /* set by the test: reopens that still fail */
	uint32_t lost_part; /* set by the test: lose the device after this many parts of a block */
	/* set by the test: lose the device when it loads a block of this many pages */
	atomic_uint fatal_pages;
	atomic_bool is_lost;  /* set by the test */
	atomic_bool is_held;  /* set by the test: loads wait */
	atomic_bool has_held; /* a load has waited since hold */
};

struct residency_rig {
	struct loop *loop;
	struct offload *offload;
	struct account_book *book;
	struct residency *residency;
	struct counting devices[RIG_MAX_DEVICES];
	struct executor *executors[RIG_MAX_DEVICES];
	struct executor cpu;
	struct tenant tenants[RIG_MAX_TENANTS];
	uint64_t n_evictions[RIG_MAX_TENANTS]; /* evictions of a session, by tenant */
	uint32_t n_devices;
	struct list_node plans; /* plans not yet removed */
};

/*
 * Make @n_devices devices beside the CPU, of @vram_bytes and @gtt_bytes each. A tenant's limit is
 * all of that memory.
 */
void residency_rig_init(struct residency_rig *rig, uint32_t n_devices, uint64_t vram_bytes,
			uint64_t gtt_bytes, enum residency_policy policy);
/*
 * Call rig_check(), then remove all plans, which must have been added. Abort unless all memory is
 * released.
 */
void residency_rig_deinit(struct residency_rig *rig);
#define RESIDENCY_RIG(name, ...) \
	SCOPED(residency_rig, name, residency_rig_init, residency_rig_deinit, __VA_ARGS__)

/* Make a rig with one device of 100 MiB, the usual one. */
void residency_rig_begin(struct residency_rig *rig);
#define BEGIN(name) SCOPED(residency_rig, name, residency_rig_begin, residency_rig_deinit)

void rig_share(struct residency_rig *rig, unsigned int tenant, uint64_t max, uint64_t high,
	       uint64_t reserve);

/* Make a plan with these constants (numbers, ending with 0) of @bytes each. */
struct plan_memory *rig_plan(struct residency_rig *rig, unsigned int tenant, uint64_t bytes,
			     const uint32_t *constants);
/* Make a plan with one constant that no other plan has. */
struct plan_memory *rig_plan_of(struct residency_rig *rig, unsigned int tenant, uint64_t bytes);
/* Add @memory without waiting. */
void rig_add(struct residency_rig *rig, struct plan_memory *memory);
/* Make a plan as rig_plan_of() does, add, settle and check it: it is on the device if it fits. */
struct plan_memory *rig_settled(struct residency_rig *rig, unsigned int tenant, uint64_t bytes);
/* Complete all tasks of the plan on the device. */
void rig_idle(struct residency_rig *rig, struct plan_memory *memory);
/* Return the tenant's charged bytes of device memory. */
uint64_t rig_used(const struct residency_rig *rig, unsigned int tenant);
/* Remove and free @memory, and wait until it is freed. */
void rig_remove(struct residency_rig *rig, struct plan_memory *memory);

bool rig_is_ready(const struct plan_memory *memory);
/* Record that @n tasks want the plan now. */
void rig_want(struct residency_rig *rig, struct plan_memory *memory, uint32_t n);

/* A request made by hand, and its result. */
struct rig_wish {
	struct residency_waiter waiter; /* its done is rig_on_done() */
	int n_done;
	int res; /* 1: not done */
};
void rig_on_done(struct residency_waiter *waiter, int res);
/* Request memory on any device, and settle. */
void rig_ask(struct residency_rig *rig, struct plan_memory *memory, struct rig_wish *wish,
	     enum residency_wish what);

/* Turn the loop until nothing is in progress and no event is pending. */
void rig_settle(struct residency_rig *rig);
/* Turn the loop once, and let the setup thread run. */
void rig_turn(struct residency_rig *rig);
/* Return true if a review is due soon, or as soon as the pause after the last review has passed. */
bool rig_review_is_due(const struct residency_rig *rig);

/* Check that charged bytes equal allocated bytes, and that no tenant exceeds its maximum. */
void rig_check(const struct residency_rig *rig);
