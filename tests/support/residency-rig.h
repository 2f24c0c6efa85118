#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Residency on the bench
 *
 * A real residency engine, ledger and setup thread over devices that only count: what is loaded on
 * them, in how many parts, and whether it is more than there is. Plans are made of constants alone,
 * named by a number. Nothing moves unless the test calls. What goes wrong in here aborts.
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

/* A device that counts. Fields without a comment are the setup thread's while a job runs. */
struct counting {
	struct executor executor;
	struct executor_ops ops;
	uint64_t allocated[EXEC_TIER_COUNT]; /* now */
	uint64_t most_allocated;             /* of VRAM, ever */
	uint32_t n_block_loads, n_plan_loads;
	atomic_uint n_parts; /* set by the test: calls that a block takes, at least 1 */
	uint32_t n_begun_loads, n_begun_unloads; /* calls for plans, since one was the last of it */
	atomic_uint n_plan_parts;                /* set by the test: calls for each, 0: one */
	atomic_uint n_load_parts;   /* set by the test: calls that a plan takes, 0: one */
	atomic_uint n_unload_parts; /* likewise, to be unloaded */
	uint32_t n_load_calls, n_unload_calls; /* since a plan took no more */
	uint32_t n_unload_slices;              /* calls of plan_unload_some() */
	uint32_t n_shrink_slices;              /* calls of block_shrink() */
	atomic_uint n_refused;                 /* set by the test: so many loads find no memory */
	atomic_uint n_failed_reopens; /* set by the test: so many fail before one succeeds */
	uint32_t lost_part;      /* set by the test: so many parts of a block, and it is lost */
	atomic_uint fatal_pages; /* set by the test: loading a block of that size loses it */
	atomic_bool is_lost;     /* set by the test */
	atomic_bool is_held;     /* set by the test: loads wait */
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
	uint64_t n_evictions[RIG_MAX_TENANTS]; /* of a session of each */
	uint32_t n_devices;
	struct list_node plans; /* not removed yet */
};

/* @n_devices beside the CPU, of @vram_bytes and @gtt_bytes each. Tenants may have all of it. */
void residency_rig_init(struct residency_rig *rig, uint32_t n_devices, uint64_t vram_bytes,
			uint64_t gtt_bytes, enum residency_policy policy);
/* rig_check(); removes all plans, which must have been added. Everything must have been given back.
 */
void residency_rig_deinit(struct residency_rig *rig);
#define RESIDENCY_RIG(name, ...) \
	SCOPED(residency_rig, name, residency_rig_init, residency_rig_deinit, __VA_ARGS__)

/* The usual one: a device of 100 MiB. */
void residency_rig_begin(struct residency_rig *rig);
#define BEGIN(name) SCOPED(residency_rig, name, residency_rig_begin, residency_rig_deinit)

void rig_share(struct residency_rig *rig, unsigned int tenant, uint64_t max, uint64_t high,
	       uint64_t reserve);

/* A plan with these constants (numbers, ending with 0) of @bytes each. */
struct plan_memory *rig_plan(struct residency_rig *rig, unsigned int tenant, uint64_t bytes,
			     const uint32_t *constants);
/* The same with one constant that no other plan has. */
struct plan_memory *rig_plan_of(struct residency_rig *rig, unsigned int tenant, uint64_t bytes);
/* Adds it without waiting. */
void rig_add(struct residency_rig *rig, struct plan_memory *slot);
/* rig_plan_of(), added, settled and checked: on the device where there is room. */
struct plan_memory *rig_settled(struct residency_rig *rig, unsigned int tenant, uint64_t bytes);
/* The tasks that the plan has on the device have ended. */
void rig_idle(struct residency_rig *rig, struct plan_memory *slot);
/* Device memory of a tenant. */
uint64_t rig_used(const struct residency_rig *rig, unsigned int tenant);
/* Removes and frees it, and waits for that. */
void rig_remove(struct residency_rig *rig, struct plan_memory *slot);

bool rig_is_ready(const struct plan_memory *slot);
/* @n tasks wanted it, now. */
void rig_want(struct residency_rig *rig, struct plan_memory *slot, uint32_t n);

/* What is asked by hand, and what came of it. */
struct rig_wish {
	struct residency_waiter waiter; /* its done is rig_on_done() */
	int n_done;
	int res; /* 1: not done */
};
void rig_on_done(struct residency_waiter *waiter, int res);
/* Asks, of any device, and settles. */
void rig_ask(struct residency_rig *rig, struct plan_memory *slot, struct rig_wish *wish,
	     enum residency_wish what);

/* Turns the loop until nothing is under way and nothing more happens. */
void rig_settle(struct residency_rig *rig);
/* Turns the loop once, and gives the setup thread its time. */
void rig_turn(struct residency_rig *rig);
/* Is a review to come soon, or as soon as the pause after the last one has passed? */
bool rig_review_is_due(const struct residency_rig *rig);

/* What is charged and what is allocated are the same, and nobody has more than is his. */
void rig_check(const struct residency_rig *rig);
