#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The world: one run's plans and tasks, and how long they really take
 *
 * The true time of a node starts from the device's profile and goes on where no estimate of the
 * engine can follow: a cliff where data does not fit the cache, rows rounded up to tiles, a factor
 * that a plan has on a device and nobody knows, a slow wave in the clock, noise per task, jitter
 * per submission, and what scenarios do to devices on the way.
 */
#include <stdbool.h>
#include <stdint.h>

#include "scenario.h"
#include "place/schedule.h"
#include "plan/plan.h"
#include "util/list.h"

struct sim_task;

/* Of a task's work what runs on one device; most tasks have one. */
struct sim_part {
	struct place_task place; /* for the engine under test */
	struct sim_task *task;
	struct list_node link; /* of its device's parts with rows that have not begun */
	struct sim_part *next; /* released to the device, not begun */
	uint8_t device;
	bool is_listed;
	bool is_urgent;      /* begins between the chunks of others */
	uint32_t n_rows;     /* all of them */
	uint32_t n_done;     /* results are there */
	uint32_t n_begun;    /* or given to the device */
	uint32_t n_now;      /* of the submission that the device has or will have next */
	uint32_t n_cut;      /* most of one submission; 0: all of them */
	double waiting_ns;   /* true server time of what has not begun, as listed */
	double estimated_ns; /* what a policy counts it with */
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
	uint32_t nth_of_plan; /* admitted before it, of its tenant's plan */
};

struct world {
	const struct scenario *scenario;
	uint64_t seed;
	struct plan **plans;
	struct sim_task *tasks; /* by arrival; those of closed tenants wait in order */
	uint32_t n_tasks;
	double (*efficiency)[SCENARIO_DEVICES]; /* by plan */
	double phase[SCENARIO_DEVICES];
	double slow[SCENARIO_DEVICES];
	double contention[SCENARIO_DEVICES];
	double n_hogs;      /* on the CPU */
	uint32_t n_workers; /* of its servers, in use */
	uint64_t fail_every[SCENARIO_DEVICES];
	bool is_lost[SCENARIO_DEVICES];
};

/*
 * @only: the tenant whose tasks there are; UINT32_MAX: all.
 * Return: 0; SCENARIO_E_INVALID with a sentence in @message; -ENOMEM.
 */
int world_new(const struct scenario *scenario, uint64_t seed, uint32_t only,
	      char message[SCENARIO_MESSAGE_BYTES], struct world **ret);
struct world *world_free(struct world *world);

/* A device's speed at a time, 1 on average: its clock's wave, and what events did to it. */
double world_speed(const struct world *world, uint8_t device, double now_ns);

/* How many times longer the CPU's workers take beside hogs: processors are shared evenly. */
double world_share(const struct world *world);

/* What one submission takes: time on one server, and server time that others can share. */
struct world_cost {
	double serial_ns;
	double shared_ns;
};

/*
 * The true cost of rows of a task on a device if they began at @now_ns. Without @noise: on average
 * over tasks of that plan.
 */
struct world_cost world_cost(const struct world *world, const struct sim_task *task, uint8_t device,
			     uint32_t n_rows, double now_ns, bool with_noise);

/* The sum over submissions of at most @n_cut rows; 0: one. */
struct world_cost world_cut_cost(const struct world *world, const struct sim_task *task,
				 uint8_t device, uint32_t n_rows, uint32_t n_cut, double now_ns,
				 bool with_noise);

/* The same by the profile alone: what a policy without history can know. */
struct world_cost world_estimate(const struct world *world, uint32_t plan, uint8_t device,
				 uint32_t n_rows);

/* How many of @n_servers share that much work: a chunk each at least. */
uint32_t world_team(double shared_ns, uint32_t n_servers);

/* How long a submission takes on an idle device. */
double world_alone_ns(const struct world *world, uint8_t device, struct world_cost cost);

/* Can a task's plan run there at all? */
bool world_may_run(const struct world *world, const struct sim_task *task, uint8_t device);

DEFINE_CLEANUP(struct world *, world_free)
