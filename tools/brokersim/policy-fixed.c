/* SPDX-License-Identifier: MIT */
/*
 * Policies beside the engine: fixed rules, estimates without learning, oracles
 *
 * All policies but the oracles know what the engine under test knows at the start: plans, sizes,
 * profiles, devices that are present, and the device of each task. Earliest completion equals
 * StarPU's dmda with a calibrated model that is not updated: predicted backlog less elapsed time.
 * HEFT (Topcuoglu, Hariri, Wu, TPDS 13(3), 2002) for tasks without dependencies is earliest
 * completion over tasks sorted by mean time, the longest first.
 */
#include "policies.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "util/checked.h"
#include "util/error.h"

#define THRESHOLD_BYTES (1ull << 20)

static struct sim_choice on(unsigned int device)
{
	return (struct sim_choice){.device = (uint8_t)device};
}

static struct sim_choice decide_cpu(struct sim *sim, struct sim_task *task)
{
	return on(RBK_DEVICE_CPU);
}

static struct sim_choice decide_gpu(struct sim *sim, struct sim_task *task)
{
	return on(RBK_DEVICE_GPU);
}

static struct sim_choice decide_threshold(struct sim *sim, struct sim_task *task)
{
	const struct plan *plan = sim->world->plans[task->plan];

	return on(plan_touched_bytes(plan, task->count) >= THRESHOLD_BYTES ? RBK_DEVICE_GPU
									   : RBK_DEVICE_CPU);
}

static struct sim_choice decide_turns(struct sim *sim, struct sim_task *task)
{
	return on(sim->n_admitted % SCENARIO_DEVICES);
}

const struct policy policy_cpu = {"cpu", "everything on the CPU", .decide = decide_cpu};
const struct policy policy_gpu = {"gpu", "everything that fits on the other device",
				  .decide = decide_gpu};
const struct policy policy_threshold = {"threshold", "1 MiB and more on the other device",
					.decide = decide_threshold};
const struct policy policy_turns = {"round-robin", "by turns", .decide = decide_turns};

/* --- Estimates --- */

/* by device: predicted server time of tasks that were placed on it and are not done */
struct backlog {
	double ns[SCENARIO_DEVICES];
};

static int begin_backlog(struct sim *sim)
{
	sim->state = calloc(1, sizeof(struct backlog));
	return sim->state ? 0 : error_origin(-ENOMEM);
}

static void end_backlog(struct sim *sim)
{
	free(sim->state);
}

static double server_ns(struct world_cost cost)
{
	return cost.serial_ns + cost.shared_ns;
}

static double wait_ns(const struct sim *sim, unsigned int d)
{
	const struct backlog *backlog = sim->state;
	const struct device *device = &sim->devices[d];
	double ns = backlog->ns[d];

	for (uint32_t i = 0; i < device->n_running; i++)
		ns -= fmin(device->running[i].busy_ns, device->running[i].part->estimated_ns);
	return fmax(ns, 0) / device->n_servers;
}

static struct sim_choice decide_earliest(struct sim *sim, struct sim_task *task)
{
	double best_ns = INFINITY;
	struct sim_choice choice = on(RBK_DEVICE_CPU);

	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		struct world_cost cost =
			world_estimate(sim->world, task->plan, (uint8_t)d, task->count);
		double ns = wait_ns(sim, d) + world_alone_ns(sim->world, (uint8_t)d, cost);

		if (!world_may_run(sim->world, task, (uint8_t)d) || ns >= best_ns)
			continue;
		best_ns = ns;
		choice = on(d);
	}
	return choice;
}

static void count(struct sim *sim, struct sim_part *part, unsigned int d)
{
	struct backlog *backlog = sim->state;

	part->estimated_ns =
		server_ns(world_estimate(sim->world, part->task->plan, (uint8_t)d, part->n_rows));
	backlog->ns[d] += part->estimated_ns;
}

static void queue_earliest(struct sim *sim, struct sim_task *task, const struct sim_choice *choice)
{
	sim_start_part(sim, task, 0, choice->device, task->count);
	count(sim, &task->parts[0], choice->device);
	device_release(&sim->devices[choice->device], &task->parts[0]);
}

static bool ended_earliest(struct sim *sim, const struct device_run *run)
{
	struct backlog *backlog = sim->state;

	backlog->ns[run->part->device] -= run->part->estimated_ns;
	if (run->fails)
		count(sim, run->part, RBK_DEVICE_CPU);
	return false;
}

const struct policy policy_earliest = {
	"ect",
	"earliest completion by profile, without learning (as dmda)",
	.begin = begin_backlog,
	.end = end_backlog,
	.decide = decide_earliest,
	.queue = queue_earliest,
	.ended = ended_earliest,
};
const struct policy policy_heft = {
	"heft",
	"the same, the longest of tasks that arrive together first",
	.sorts = true,
	.begin = begin_backlog,
	.end = end_backlog,
	.decide = decide_earliest,
	.queue = queue_earliest,
	.ended = ended_earliest,
};

/* --- Perfect knowledge --- */

static struct sim_choice decide_knowing(struct sim *sim, struct sim_task *task,
					enum knowledge knowledge)
{
	double best_ns = INFINITY;
	struct sim_choice choice = on(RBK_DEVICE_CPU);

	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		double ns;

		if (!world_may_run(sim->world, task, (uint8_t)d))
			continue;
		ns = device_probe_ns(&sim->devices[d],
				     sim_cost(sim, task, (uint8_t)d, task->count, knowledge),
				     knowledge);
		if (ns < best_ns) {
			best_ns = ns;
			choice = on(d);
		}
	}
	return choice;
}

static struct sim_choice decide_oracle(struct sim *sim, struct sim_task *task)
{
	return decide_knowing(sim, task, KNOW_ALL);
}

static struct sim_choice decide_means(struct sim *sim, struct sim_task *task)
{
	return decide_knowing(sim, task, KNOW_MEANS);
}

const struct policy policy_means = {
	"means", "earliest completion by true times, but noise: the best that estimates can do",
	.decide = decide_means};
const struct policy policy_oracle = {"oracle", "earliest completion by true times (clairvoyant)",
				     .decide = decide_oracle};
const struct policy policy_oracle_sorted = {
	"oracle-lpt", "the same, the longest of tasks that arrive together first", .sorts = true,
	.decide = decide_oracle};
