#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Devices in virtual time, for tests of the scheduler
 *
 * The rig stands in for everything around the scheduler: estimates are what a test says, devices
 * run what place_next() releases, in that order, on as many servers as they have, for as long as
 * the test says that it really takes. Link with the wrapped functions of schedule_rig_dep.
 */
#include "place/placer-private.h"

enum { RIG_DEVICES = 3, RIG_SERVERS = 64 };

/* Stands in for struct place_plan. */
struct rig_plan {
	float work_ns[RIG_DEVICES]; /* of one row, of all servers; 0: cannot run there */
	float spread;
	float servers; /* that share it on device 0; 0: as many as the device has for a task */
	struct place_gate *gates; /* [device]; NULL: it has no parts anywhere */
};

struct rig_task {
	struct place_task task;
	float actual_factor; /* really takes that many times what is predicted */
	uint64_t release_ns, end_ns, done_ns;
	uint64_t busy_ns;
	uint32_t n_now, n_rows; /* in this submission; in all that is left */
	struct rig_task *next;  /* in a device's queue */
	void *owner;
	uint32_t n_released, n_done;
	uint64_t begin_ns, left_ns; /* of what was stopped: what it will still take */
	uint32_t n_stopped;
};

struct rig_device {
	uint32_t n_servers;
	struct rig_task *running[RIG_SERVERS];
	struct rig_task *first, **end; /* held, not begun */
	uint64_t busy_ns;
	uint32_t n_held;
};

struct rig {
	struct placer *placer;
	struct rig_device devices[RIG_DEVICES];
	uint64_t now_ns;
	bool is_rebalancing; /* after every task */
	uint32_t max_rows;   /* of a submission; 0: any number */
	uint64_t stop_ns;    /* that a task which is asked to stop still takes */
	uint32_t n_asked;    /* predictions */
	uint32_t n_learned, n_parts_learned, n_moved;
	/* The last that was learned. */
	uint32_t learned_count;
	uint64_t learned_exec_ns, learned_busy_ns;
	/* May enqueue again. */
	void (*done)(struct rig *rig, struct rig_task *task, uint8_t device);
	void (*moved)(struct rig *rig, struct rig_task *task, uint8_t from);
	void *owner;
};

void rig_init(struct rig *rig, uint32_t n_devices, const uint32_t *n_servers);
void rig_deinit(struct rig *rig);
#define RIG(name, ...) SCOPED(rig, name, rig_init, rig_deinit, __VA_ARGS__)

struct place_flow *rig_flow(struct rig *rig, uint32_t weight, uint8_t priority_max, float cpu_max);

/* Fills in all but deadline and priority; what it needs to be queued as a task of one row. */
void rig_task_init(struct rig_task *task, const struct rig_plan *plan, struct place_flow *flow,
		   uint8_t device);
void rig_enqueue(struct rig *rig, struct rig_task *task);

/* What the devices may have, they get. */
void rig_pump(struct rig *rig);

/* Runs until then, or until nothing runs if that is earlier and nothing waits for a quota. */
void rig_run(struct rig *rig, uint64_t until_ns);

double rig_random(uint64_t *state); /* 0 <= x < 1 */
