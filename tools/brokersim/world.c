/* SPDX-License-Identifier: MIT */
/*
 * The world: plans, tasks and true times
 *
 * A true time has the form of an estimate by the device's profile: starting a task, transferring
 * bindings over the link, then the nodes. Nodes longer than share_min_ns are shared by several
 * servers. Effects without a term in the estimate are added (struct scenario_truth). All random
 * quantities are drawn by key (random.h), so that a task has the same true time under every policy.
 */
#include "world.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plans.h"
#include "random.h"
#include "shm/number.h"
#include "util/checked.h"
#include "util/error.h"

static bool fits(const struct scenario *scenario, const struct plan *plan)
{
	uint64_t memory_bytes = scenario->profiles[RBK_DEVICE_GPU].memory_bytes;
	uint64_t bytes = plan->scratch_bytes + plan_touched_bytes(plan, plan->max_count);

	return memory_bytes == 0 || bytes <= memory_bytes;
}

static int make_plans(struct world *world, char message[SCENARIO_MESSAGE_BYTES])
{
	const struct scenario *scenario = world->scenario;
	int r;

	for (uint32_t i = 0; i < scenario->n_plans; i++) {
		const struct scenario_plan *spec = &scenario->plans[i];
		char why[PLAN_MESSAGE_BYTES] = "";
		struct plan *plan = NULL;

		r = plans_new(spec, why, &plan);
		if (r == SCENARIO_E_INVALID)
			snprintf(message, SCENARIO_MESSAGE_BYTES, "%.300s:%u: plan \"%s\": %s",
				 scenario->path, spec->line, spec->name, why);
		if (r)
			return r == SCENARIO_E_INVALID ? r : error_fold(r);
		plan->device_state[RBK_DEVICE_CPU] = PLAN_DEVICE_READY;
		plan->device_state[RBK_DEVICE_GPU] =
			fits(scenario, plan) ? PLAN_DEVICE_READY : PLAN_DEVICE_NO_MEMORY;
		world->plans[i] = plan;
		for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
			world->efficiency[i][d] = draw_factor(world->seed, DRAW_EFFICIENCY, i, d,
							      scenario->truth[d].efficiency);
	}
	return 0;
}

static uint16_t draw_plan(const struct world *world, uint32_t tenant, uint32_t i)
{
	const struct scenario_tenant *spec = &world->scenario->tenants[tenant];
	double sum = 0, at;
	uint32_t last = 0;

	for (uint32_t p = 0; p < world->scenario->n_plans; p++)
		sum += spec->shares[p];
	at = sum * draw_uniform(world->seed, DRAW_PLAN, tenant, i);
	for (uint32_t p = 0; p < world->scenario->n_plans; p++) {
		if (spec->shares[p] <= 0)
			continue;
		last = p;
		at -= spec->shares[p];
		if (at < 0)
			break;
	}
	return (uint16_t)last;
}

static uint32_t draw_count(const struct world *world, uint32_t tenant, uint32_t i, uint32_t plan)
{
	const struct scenario_plan *spec = &world->scenario->plans[plan];
	double u = draw_uniform(world->seed, DRAW_COUNT, tenant, i);
	double count = spec->count_min * pow((double)spec->count_max / spec->count_min, u);

	return count < spec->count_min   ? spec->count_min
	       : count > spec->count_max ? spec->count_max
					 : (uint32_t)lround(count);
}

/* Return the time of the arrival after @at_ns. */
static double next_arrival(const struct world *world, uint32_t tenant, uint32_t i, double at_ns)
{
	const struct scenario_tenant *spec = &world->scenario->tenants[tenant];
	double wait_ns, period_ns, in_ns;

	switch (spec->arrivals) {
	case ARRIVALS_POISSON:
	case ARRIVALS_BURSTY:
		wait_ns = 1e9 / spec->rate_per_s *
			  draw_exponential(world->seed, DRAW_ARRIVAL, tenant, i);
		if (spec->arrivals == ARRIVALS_POISSON)
			return at_ns + wait_ns;
		/* Advance in the time that consists of bursts alone, then insert the pauses. */
		period_ns = spec->on_ns + spec->off_ns;
		in_ns = floor((at_ns - spec->start_ns) / period_ns) * spec->on_ns +
			fmin(fmod(at_ns - spec->start_ns, period_ns), spec->on_ns) + wait_ns;
		return spec->start_ns + floor(in_ns / spec->on_ns) * period_ns +
		       fmod(in_ns, spec->on_ns);
	case ARRIVALS_CLOSED:
		return i < spec->n_outstanding ? spec->start_ns : INFINITY;
	default:
		return spec->start_ns;
	}
}

static int by_arrival(const void *a, const void *b)
{
	const struct sim_task *left = a, *right = b;

	if (left->arrive_ns != right->arrive_ns)
		return left->arrive_ns < right->arrive_ns ? -1 : 1;
	return left->id < right->id ? -1 : left->id > right->id;
}

static void draw_tasks(struct world *world, uint32_t only)
{
	const struct scenario *scenario = world->scenario;

	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		const struct scenario_tenant *spec = &scenario->tenants[t];
		double at_ns = spec->start_ns;

		if (only != UINT32_MAX && only != t)
			continue;
		for (uint32_t i = 0; i < spec->n_tasks; i++) {
			struct sim_task *task = &world->tasks[world->n_tasks];

			at_ns = next_arrival(world, t, i, at_ns);
			task->tenant = (uint16_t)t;
			task->plan = draw_plan(world, t, i);
			task->count = draw_count(world, t, i, task->plan);
			task->arrive_ns = at_ns;
			/*
			 * The id keys a task's random numbers, independently of which tenants run.
			 */
			task->id = t * SCENARIO_MAX_TASKS + i;
			world->n_tasks++;
		}
	}
}

static void copy_trace(struct world *world, uint32_t only)
{
	const struct scenario *scenario = world->scenario;

	for (uint32_t i = 0; i < scenario->n_trace; i++) {
		const struct scenario_arrival *arrival = &scenario->trace[i];

		if (only != UINT32_MAX && only != arrival->tenant)
			continue;
		world->tasks[world->n_tasks++] = (struct sim_task){.id = i,
								   .tenant = arrival->tenant,
								   .plan = arrival->plan,
								   .count = arrival->count,
								   .arrive_ns = arrival->at_ns};
	}
}

int world_new(const struct scenario *scenario, uint64_t seed, uint32_t only,
	      char message[SCENARIO_MESSAGE_BYTES], struct world **ret)
{
	_cleanup_(world_freep) struct world *world = calloc(1, sizeof(*world));
	uint64_t n_tasks = scenario->n_trace;
	int r;

	if (!world)
		return error_origin(-ENOMEM);
	world->scenario = scenario;
	world->seed = seed;
	if (!n_tasks) {
		for (uint32_t t = 0; t < scenario->n_tenants; t++)
			n_tasks += scenario->tenants[t].n_tasks;
	}
	world->plans = calloc(scenario->n_plans, sizeof(struct plan *));
	world->efficiency = calloc(scenario->n_plans, sizeof(*world->efficiency));
	world->tasks = calloc(n_tasks, sizeof(*world->tasks));
	if (!world->plans || !world->efficiency || !world->tasks)
		return error_origin(-ENOMEM);
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		world->phase[d] = draw_uniform(seed, DRAW_PHASE, d, 0);
		world->slow[d] = world->contention[d] = 1;
	}
	world->n_workers = scenario->profiles[RBK_DEVICE_CPU].n_servers;
	r = make_plans(world, message);
	if (r)
		return r == SCENARIO_E_INVALID ? r : error_fold(r);
	if (scenario->n_trace)
		copy_trace(world, only);
	else
		draw_tasks(world, only);
	qsort(world->tasks, world->n_tasks, sizeof(world->tasks[0]), by_arrival);
	for (uint32_t i = 0; i < world->n_tasks; i++) {
		struct sim_task *task = &world->tasks[i];
		double deadline_ns = scenario->tenants[task->tenant].deadline_ns;

		task->deadline_ns = deadline_ns > 0 ? task->arrive_ns + deadline_ns : INFINITY;
		task->done_ns = NAN;
		for (unsigned int p = 0; p < MAX_PARTS; p++) {
			task->parts[p].task = task;
			list_init(&task->parts[p].link);
		}
	}
	*ret = steal_ptr(world);
	return 0;
}

struct world *world_free(struct world *world)
{
	if (world) {
		for (uint32_t i = 0; world->plans && i < world->scenario->n_plans; i++)
			plan_free(world->plans[i]);
		free(world->plans);
		free(world->efficiency);
		free(world->tasks);
		free(world);
	}
	return NULL;
}

double world_share(const struct world *world)
{
	const uint32_t n_servers = world->scenario->profiles[RBK_DEVICE_CPU].n_servers;

	if (world->n_hogs <= 0)
		return 1;
	return fmax((world->n_workers + world->n_hogs) / (n_servers ? n_servers : 1), 1);
}

double world_speed(const struct world *world, uint8_t device, double now_ns)
{
	const struct scenario_truth *truth = &world->scenario->truth[device];
	double speed = 1 / (world->slow[device] * world->contention[device]);

	if (device == RBK_DEVICE_CPU)
		speed /= world_share(world);
	if (truth->drift > 0)
		speed *= 1 + truth->drift *
				     sin(2 * M_PI *
					 (now_ns / truth->drift_period_ns + world->phase[device]));
	return speed;
}

static double link_ns(const struct place_profile *profile, const struct plan *plan, uint32_t n_rows)
{
	double up_bytes, down_bytes, ns = 0;

	plans_link_bytes(plan, n_rows, &up_bytes, &down_bytes);
	if (profile->up_bytes_per_ns > 0 && up_bytes > 0)
		ns += (double)profile->link_ns + up_bytes / (double)profile->up_bytes_per_ns;
	if (profile->down_bytes_per_ns > 0 && down_bytes > 0)
		ns += (double)profile->link_ns + down_bytes / (double)profile->down_bytes_per_ns;
	return ns;
}

/* Add the cost of the nodes for @n_rows; with @truth the true cost, otherwise the profile's. */
static void add_nodes(const struct place_profile *profile, const struct plan *plan, uint32_t n_rows,
		      const struct scenario_truth *truth, struct world_cost *cost)
{
	if (truth && truth->tile_rows)
		n_rows = round_up(n_rows, truth->tile_rows);
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];
		double flops =
			(double)node->cost.flops_fixed + (double)node->cost.flops_row * n_rows;
		double bytes =
			(double)node->cost.bytes_fixed + (double)node->cost.bytes_row * n_rows;
		double ns = place_profile_node_ns(profile, node->op->family, flops, bytes);

		if (truth && truth->cache_bytes > 0 && bytes > truth->cache_bytes)
			ns *= truth->cache_factor;
		if (profile->n_servers_per_task > 1 && ns > (double)profile->share_min_ns)
			cost->shared_ns += ns;
		else
			cost->serial_ns += ns;
	}
}

struct world_cost world_estimate(const struct world *world, uint32_t plan, uint8_t device,
				 uint32_t n_rows)
{
	const struct place_profile *profile = &world->scenario->profiles[device];
	struct world_cost cost = {.serial_ns = (double)profile->task_ns +
					       link_ns(profile, world->plans[plan], n_rows)};

	add_nodes(profile, world->plans[plan], n_rows, NULL, &cost);
	return cost;
}

struct world_cost world_cost(const struct world *world, const struct sim_task *task, uint8_t device,
			     uint32_t n_rows, double now_ns, bool with_noise)
{
	const struct place_profile *profile = &world->scenario->profiles[device];
	const struct scenario_truth *truth = &world->scenario->truth[device];
	const struct plan *plan = world->plans[task->plan];
	struct world_cost cost = {.serial_ns = (double)profile->task_ns +
					       link_ns(profile, plan, n_rows)};
	double factor = world->efficiency[task->plan][device] / world_speed(world, device, now_ns);
	double jitter_ns = truth->jitter_ns;

	add_nodes(profile, plan, n_rows, truth, &cost);
	if (with_noise) {
		factor *= draw_factor(world->seed, DRAW_NOISE, task->id, device, truth->noise);
		jitter_ns *= draw_exponential(world->seed, DRAW_JITTER, task->id,
					      (uint64_t)device << 32 | n_rows);
	}
	cost.serial_ns = cost.serial_ns * factor + jitter_ns;
	cost.shared_ns *= factor;
	return cost;
}

struct world_cost world_cut_cost(const struct world *world, const struct sim_task *task,
				 uint8_t device, uint32_t n_rows, uint32_t n_cut, double now_ns,
				 bool with_noise)
{
	struct world_cost sum = {0}, cost;
	uint32_t n = n_cut ? n_rows / n_cut : 0, rest = n_rows - n * n_cut;

	if (n) {
		cost = world_cost(world, task, device, n_cut, now_ns, with_noise);
		sum.serial_ns += n * cost.serial_ns;
		sum.shared_ns += n * cost.shared_ns;
	}
	if (rest) {
		cost = world_cost(world, task, device, rest, now_ns, with_noise);
		sum.serial_ns += cost.serial_ns;
		sum.shared_ns += cost.shared_ns;
	}
	return sum;
}

uint32_t world_team(double shared_ns, uint32_t n_servers)
{
	/* Chunks have the length of those that broker/cpu cuts. */
	double n_chunks = shared_ns / 20000;

	if (n_chunks < 1)
		return 1;
	return n_chunks < n_servers ? (uint32_t)n_chunks : n_servers;
}

double world_alone_ns(const struct world *world, uint8_t device, struct world_cost cost)
{
	const struct place_profile *profile = &world->scenario->profiles[device];
	uint32_t n = profile->n_servers < profile->n_servers_per_task ? profile->n_servers
								      : profile->n_servers_per_task;

	return cost.serial_ns + cost.shared_ns / world_team(cost.shared_ns, n ? n : 1);
}

bool world_may_run(const struct world *world, const struct sim_task *task, uint8_t device)
{
	return !world->is_lost[device] &&
	       world->plans[task->plan]->device_state[device] == PLAN_DEVICE_READY;
}
