#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Devices in virtual time, for tests of the scheduler
 *
 * The rig replaces everything around the scheduler. A test sets the estimates. Devices run the
 * tasks that place_next() releases, in that order, on as many servers as they have, for the time
 * that the test sets. Link with the wrapped functions of schedule_rig_dep.
 */
#include "place/placer-private.h"

enum { RIG_DEVICES = 3, RIG_SERVERS = 64 };

/* Replaces struct place_plan. */
struct rig_plan {
	float work_ns[RIG_DEVICES]; /* server time of one row, ns; 0: cannot run there */
	float spread;
	/* servers that share a task on device 0; 0: the device's n_servers_per_task */
	float servers;
	struct place_gate *gates; /* by device; NULL: no device computes it in parts */
};

struct rig_task {
	struct place_task task;
	float actual_factor; /* actual time / predicted time */
	uint64_t release_ns, end_ns, done_ns;
	uint64_t busy_ns;
	uint32_t n_now, n_rows; /* rows in this submission; rows left in all */
	struct rig_task *next;  /* next in a device's queue */
	void *owner;
	uint32_t n_released, n_done;
	uint64_t begin_ns, left_ns; /* start; ns that a stopped task still takes */
	uint32_t n_stopped;
};

struct rig_device {
	uint32_t n_servers;
	struct rig_task *running[RIG_SERVERS];
	struct rig_task *first, **end; /* held tasks that have not begun */
	uint64_t busy_ns;
	uint32_t n_held;
};

struct rig {
	struct placer *placer;
	struct rig_device devices[RIG_DEVICES];
	uint64_t now_ns;
	bool is_rebalancing; /* rebalance after every task */
	uint32_t max_rows;   /* rows of a submission; 0: no limit */
	uint64_t stop_ns;    /* ns that a task still runs after it is asked to stop */
	uint32_t n_asked;    /* predictions requested */
	uint32_t n_learned, n_parts_learned, n_moved;
	/* Arguments of the last place_learn(). */
	uint32_t learned_count;
	uint64_t learned_exec_ns, learned_busy_ns;
	/* Called when a task has completed. May enqueue again. */
	void (*done)(struct rig *rig, struct rig_task *task, uint8_t device);
	void (*moved)(struct rig *rig, struct rig_task *task, uint8_t from);
	void *owner;
};

void rig_init(struct rig *rig, uint32_t n_devices, const uint32_t *n_servers);
void rig_deinit(struct rig *rig);
#define RIG(name, ...) SCOPED(rig, name, rig_init, rig_deinit, __VA_ARGS__)

struct place_flow *rig_flow(struct rig *rig, uint32_t weight, uint8_t priority_max, float cpu_max);

/* Return the device time that the flow was charged with in all. */
static inline uint64_t rig_used_ns(const struct place_flow *flow, uint8_t device)
{
	return flow->on[device].used_ns;
}

/* Fill in all members but deadline and priority, so that the task can be queued as one row. */
void rig_task_init(struct rig_task *task, const struct rig_plan *plan, struct place_flow *flow,
		   uint8_t device);
void rig_enqueue(struct rig *rig, struct rig_task *task);

/* Give the devices all tasks that the scheduler releases now. */
void rig_pump(struct rig *rig);

/* Run until @until_ns, or until no task runs if that is earlier and no task waits for a quota. */
void rig_run(struct rig *rig, uint64_t until_ns);

double rig_random(uint64_t *state); /* in [0, 1) */
