#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One run: a world under a policy, in virtual time
 */
#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "world.h"

struct sim;

/* Where a policy has a task run. */
struct sim_choice {
	uint8_t device;
	uint8_t reason;
	uint32_t split_count; /* rows [0, split_count) there, the others on the CPU; 0: all there */
	struct place_decision decision;  /* of the engine under test */
	float wait_ns[SCENARIO_DEVICES]; /* for each device, as it thought */
};

struct policy {
	const char *name;
	const char *about;
	bool sorts; /* tasks that arrive together: the longest, on average over devices, first */
	/* Return: 0 or negative errno. */
	int (*begin)(struct sim *sim);
	void (*end)(struct sim *sim);
	struct sim_choice (*decide)(struct sim *sim, struct sim_task *task);
	/* Most rows that it would give to a device at once; NULL: all. */
	uint32_t (*cut)(struct sim *sim, const struct sim_task *task, uint8_t device,
			uint32_t n_rows);
	/* NULL: in order of arrival, at once. */
	void (*queue)(struct sim *sim, struct sim_task *task, const struct sim_choice *choice);
	/* May release parts to devices; NULL: nothing to do. */
	void (*pump)(struct sim *sim);
	/*
	 * A submission has ended. Return: true if the rest of its part has been taken care of, or
	 * of its failure; false: the part is run again on the CPU if it failed.
	 */
	bool (*ended)(struct sim *sim, const struct device_run *run);
	/* Something became of a device. */
	void (*changed)(struct sim *sim, const struct scenario_event *event);
	/* When pump() may have something although nothing happened; NULL: never. */
	double (*wake_ns)(struct sim *sim);
};

extern const struct policy *const policies[];
const struct policy *policy_by_name(const char *name);

/* A submission that ran, for the timeline. */
struct sim_segment {
	double begin_ns, end_ns;
	uint16_t tenant, plan;
	uint8_t device;
	uint8_t n_parts;
	bool failed;
	uint32_t lane;
};

/* Was a task placed right? */
struct sim_verdict {
	bool is_right, is_right_expected;
	/* Of completion, relative to the better device. */
	float loss, loss_expected;
	/* What the oracle saw, and what was decided. */
	float done_ns[SCENARIO_DEVICES], wait_ns[SCENARIO_DEVICES];
	struct sim_choice choice;
};

struct sim {
	struct world *world;
	const struct policy *policy;
	void *state; /* the policy's */
	struct device devices[SCENARIO_DEVICES];
	double now_ns;
	uint32_t n_admitted, n_done;
	uint32_t n_open; /* tasks whose arrival is known; those of closed tenants follow */
	uint32_t *ready; /* tasks that arrive now */
	uint32_t n_ready;
	uint32_t next_arrival, next_event;
	uint32_t *next_closed; /* by tenant: the next task that waits for one to complete */
	uint32_t *n_left;      /* by tenant: tasks not done */
	uint32_t *n_of_plan;   /* by tenant and plan: tasks admitted */
	struct sim_verdict *verdicts;
	/* Device time by tenant while all had something to do; both devices together. */
	double *service_ns, *saturated_ns;
	bool is_saturated;
	double longest_ns; /* that a submission took */
	uint64_t n_failed, n_moved;
	uint32_t n_flips;               /* contention began or ended, as the engine judged */
	double explored_share;          /* as the engine under test says */
	double split_speed, split_gain; /* sums over tasks that were split */
	uint32_t n_split;
	bool records;
	struct sim_segment *segments;
	uint32_t n_segments, max_segments;
};

/*
 * Runs @world, which is used up by it, to the end. @sim is to be deinitialized whatever is
 * returned. Return: 0; SCENARIO_E_INVALID if the policy left tasks behind; negative errno.
 */
int sim_run(struct sim *sim, struct world *world, const struct policy *policy, bool records);
void sim_deinit(struct sim *sim);

/* What rows of a task cost on a device, cut as the policy cuts. */
struct world_cost sim_cost(struct sim *sim, const struct sim_task *task, uint8_t device,
			   uint32_t n_rows, enum knowledge knowledge);

/* Releases the first rows of a part that is the whole of what one device runs of a task. */
void sim_start_part(struct sim *sim, struct sim_task *task, unsigned int part, uint8_t device,
		    uint32_t n_rows);
