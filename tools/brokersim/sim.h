#pragma once
/* SPDX-License-Identifier: MIT */
/* One run: a world under a policy, in virtual time */
#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "world.h"

struct sim;

/* Placement of a task by a policy. */
struct sim_choice {
	uint8_t device;
	uint8_t reason;
	/* rows [0, split_count) run on device, the others on the CPU; 0: all on device */
	uint32_t split_count;
	struct place_decision decision;  /* decision of the engine under test */
	float wait_ns[SCENARIO_DEVICES]; /* by device: wait that the policy predicted */
};

struct policy {
	const char *name;
	const char *about;
	bool sorts; /* admit tasks that arrive together by falling mean duration over devices */
	/* Return: 0 or a negative errno. */
	int (*begin)(struct sim *sim);
	void (*end)(struct sim *sim);
	struct sim_choice (*decide)(struct sim *sim, struct sim_task *task);
	/* Most rows of one submission to a device; NULL: no limit. */
	uint32_t (*cut)(struct sim *sim, const struct sim_task *task, uint8_t device,
			uint32_t n_rows);
	/* NULL: release tasks to their devices at once, in order of arrival. */
	void (*queue)(struct sim *sim, struct sim_task *task, const struct sim_choice *choice);
	/* Release parts to devices; NULL: nothing to do. */
	void (*pump)(struct sim *sim);
	/*
	 * A submission has ended.
	 * Return: true if the policy queues the part's remaining rows itself, also after a failure;
	 * false: the simulator runs the part again on the CPU if it failed.
	 */
	bool (*ended)(struct sim *sim, const struct device_run *run);
	/* An event has changed a device. */
	void (*changed)(struct sim *sim, const struct scenario_event *event);
	/* Time of the next pump() that no event triggers; NULL: never. */
	double (*wake_ns)(struct sim *sim);
};

extern const struct policy *const policies[];
const struct policy *policy_by_name(const char *name);

/* A submission of the timeline */
struct sim_segment {
	double begin_ns, end_ns;
	uint16_t tenant, plan;
	uint8_t device;
	uint8_t n_parts;
	bool failed;
	uint32_t lane;
};

/* Judgement of a task's placement */
struct sim_verdict {
	bool is_right, is_right_expected;
	/* extra time to completion relative to the better device, 0 if equal */
	float loss, loss_expected;
	/* times that the oracle saw, and the policy's decision */
	float done_ns[SCENARIO_DEVICES], wait_ns[SCENARIO_DEVICES];
	struct sim_choice choice;
};

struct sim {
	struct world *world;
	const struct policy *policy;
	void *state; /* the policy's own */
	struct device devices[SCENARIO_DEVICES];
	double now_ns;
	uint32_t n_admitted, n_done;
	uint32_t n_open; /* tasks with a known arrival; tasks of closed tenants follow */
	uint32_t *ready; /* indexes of tasks that arrive now */
	uint32_t n_ready;
	uint32_t next_arrival, next_event;
	uint32_t *next_closed; /* by tenant: next task that waits for a completion */
	uint32_t *n_left;      /* by tenant: tasks not done */
	uint32_t *n_of_plan;   /* by tenant and plan: tasks admitted */
	struct sim_verdict *verdicts;
	/* by tenant: device time so far, and while every tenant had tasks; sum of both devices */
	double *service_ns, *saturated_ns;
	bool is_saturated;
	double longest_ns; /* longest time of a submission */
	uint64_t n_failed, n_moved;
	uint32_t n_flips;               /* begins and ends of contention, as judged by the engine */
	double split_speed, split_gain; /* sums over split tasks */
	uint32_t n_split;
	bool records;
	struct sim_segment *segments;
	uint32_t n_segments, max_segments;
};

/*
 * Run @world to the end; the run consumes it. Deinitialize @sim whatever is returned.
 * Return: 0; SCENARIO_E_INVALID if the policy left tasks undone; a negative errno.
 */
int sim_run(struct sim *sim, struct world *world, const struct policy *policy, bool records);
void sim_deinit(struct sim *sim);

/* Return the cost of @n_rows rows of a task on a device, in submissions as the policy cuts them. */
struct world_cost sim_cost(struct sim *sim, const struct sim_task *task, uint8_t device,
			   uint32_t n_rows, enum knowledge knowledge);

/* Assign a task's part of @n_rows rows to a device, with no row begun. */
void sim_start_part(struct sim *sim, struct sim_task *task, unsigned int part, uint8_t device,
		    uint32_t n_rows);
