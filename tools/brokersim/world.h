#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The world: plans and tasks of one run, and their true times
 *
 * The true time of a node is the profile's estimate with effects that the engine cannot estimate: a
 * cliff where data exceeds the cache, rows rounded up to tiles, an unknown factor by plan and
 * device, a slow wave of the clock, noise per task, jitter per submission, and the scenario's
 * events.
 */
#include <stdbool.h>
#include <stdint.h>

#include "scenario.h"
#include "place/schedule.h"
#include "plan/plan.h"
#include "util/list.h"

struct sim_task;

/* The rows of a task that run on one device; most tasks have one part. */
struct sim_part {
	struct place_task place; /* for the engine under test */
	struct sim_task *task;
	struct list_node link; /* in the device's list of parts with rows that have not begun */
	struct sim_part *next; /* next part released to the device that has not begun */
	uint8_t device;
	bool is_listed;
	bool is_urgent;      /* begins between the chunks of other parts */
	uint32_t n_rows;     /* rows of the part */
	uint32_t n_done;     /* rows completed */
	uint32_t n_begun;    /* rows completed or given to the device */
	uint32_t n_now;      /* rows of the current or next submission */
	uint32_t n_cut;      /* most rows of one submission; 0: no limit */
	double waiting_ns;   /* true server time of the rows that have not begun, as listed */
	double estimated_ns; /* server time by which a policy counts the part */
};

enum { MAX_PARTS = 2 };

struct sim_task {
	uint32_t id;
	uint16_t tenant, plan;
	uint32_t count;
	double arrive_ns;
	double deadline_ns; /* absolute; INFINITY: none */
	double done_ns;     /* NAN: not yet */
	struct sim_part parts[MAX_PARTS];
	uint8_t n_parts, n_parts_done;
	uint8_t device, reason; /* as decided */
	bool fell_back;
	uint32_t nth_of_plan; /* tasks of the tenant's plan admitted earlier */
};

struct world {
	const struct scenario *scenario;
	uint64_t seed;
	struct plan **plans;
	struct sim_task *tasks; /* by arrival; tasks of closed tenants follow in order of id */
	uint32_t n_tasks;
	double (*efficiency)[SCENARIO_DEVICES]; /* by plan */
	double phase[SCENARIO_DEVICES];
	double slow[SCENARIO_DEVICES];
	double contention[SCENARIO_DEVICES];
	double n_hogs;      /* number of hogs on the CPU */
	uint32_t n_workers; /* CPU servers in use */
	uint64_t fail_every[SCENARIO_DEVICES];
	bool is_lost[SCENARIO_DEVICES];
};

/*
 * Make the world of a run. @only: the only tenant with tasks; UINT32_MAX: all tenants.
 * Return: 0; SCENARIO_E_INVALID with a sentence in @message; -ENOMEM.
 */
int world_new(const struct scenario *scenario, uint64_t seed, uint32_t only,
	      char message[SCENARIO_MESSAGE_BYTES], struct world **ret);
struct world *world_free(struct world *world);

/* Return a device's speed at a time, 1 on average: the clock's wave and the effects of events. */
double world_speed(const struct world *world, uint8_t device, double now_ns);

/* Return the slowdown of the CPU's workers by hogs, at least 1; processors are shared evenly. */
double world_share(const struct world *world);

/* Cost of a submission: time on one server, and server time that several servers can share. */
struct world_cost {
	double serial_ns;
	double shared_ns;
};

/*
 * Return the true cost of @n_rows rows of a task on a device if they began at @now_ns; without
 * @with_noise the mean over tasks of the plan.
 */
struct world_cost world_cost(const struct world *world, const struct sim_task *task, uint8_t device,
			     uint32_t n_rows, double now_ns, bool with_noise);

/* Return the sum of world_cost() over submissions of at most @n_cut rows; 0: one submission. */
struct world_cost world_cut_cost(const struct world *world, const struct sim_task *task,
				 uint8_t device, uint32_t n_rows, uint32_t n_cut, double now_ns,
				 bool with_noise);

/* Return the cost by the profile alone, as known to a policy without history. */
struct world_cost world_estimate(const struct world *world, uint32_t plan, uint8_t device,
				 uint32_t n_rows);

/* Return the number of @n_servers that share work of @shared_ns, at least one chunk for each. */
uint32_t world_team(double shared_ns, uint32_t n_servers);

/* Return the duration of a submission on an idle device. */
double world_alone_ns(const struct world *world, uint8_t device, struct world_cost cost);

/* Return true if the task's plan can run on the device. */
bool world_may_run(const struct world *world, const struct sim_task *task, uint8_t device);

DEFINE_CLEANUP(struct world *, world_free)
