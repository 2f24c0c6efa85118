/* SPDX-License-Identifier: MIT */
/*
 * One run
 *
 * Time advances from event to event: an arrival, a change of a device, an event of the scenario,
 * the policy's wake time. At each event ended submissions are reported first. Then the scenario's
 * events happen, tasks arrive, and the policy releases parts that may start.
 *
 * Each decision is judged when it is made, before it has effects. An oracle that knows the true
 * times of all assigned tasks and of the task itself plays both devices forward, and determines
 * when the task would complete on each. A decision is right if no device completes the task earlier
 * by 5% of the time until then.
 */
#include "sim.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/checked.h"
#include "util/error.h"

#define RIGHT_WITHIN 0.05

void sim_deinit(struct sim *sim)
{
	if (sim->policy && sim->policy->end)
		sim->policy->end(sim);
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		device_deinit(&sim->devices[d]);
	free(sim->ready);
	free(sim->next_closed);
	free(sim->n_left);
	free(sim->n_of_plan);
	free(sim->verdicts);
	free(sim->service_ns);
	free(sim->saturated_ns);
	free(sim->segments);
	*sim = (struct sim){0};
}

static int init(struct sim *sim, struct world *world, const struct policy *policy, bool records)
{
	const struct scenario *scenario = world->scenario;
	int r;

	*sim = (struct sim){.world = world, .records = records, .is_saturated = true};
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		r = device_init(&sim->devices[d], world, (uint8_t)d);
		if (r)
			return error_fold(r);
	}
	sim->ready = calloc(world->n_tasks + 1, sizeof(*sim->ready));
	sim->next_closed = calloc(scenario->n_tenants, sizeof(*sim->next_closed));
	sim->n_left = calloc(scenario->n_tenants, sizeof(*sim->n_left));
	sim->n_of_plan =
		calloc((size_t)scenario->n_tenants * scenario->n_plans, sizeof(*sim->n_of_plan));
	sim->verdicts = calloc(world->n_tasks + 1, sizeof(*sim->verdicts));
	sim->service_ns = calloc(scenario->n_tenants, sizeof(*sim->service_ns));
	sim->saturated_ns = calloc(scenario->n_tenants, sizeof(*sim->saturated_ns));
	if (!sim->ready || !sim->next_closed || !sim->n_left || !sim->n_of_plan || !sim->verdicts ||
	    !sim->service_ns || !sim->saturated_ns)
		return error_origin(-ENOMEM);
	sim->n_open = world->n_tasks;
	for (uint32_t i = world->n_tasks; i-- > 0;) {
		const struct sim_task *task = &world->tasks[i];

		sim->n_left[task->tenant]++;
		if (isinf(task->arrive_ns)) {
			sim->next_closed[task->tenant] = i;
			sim->n_open = i;
		}
	}
	sim->policy = policy;
	r = policy->begin ? policy->begin(sim) : 0;
	if (r)
		return error_fold(r);
	return 0;
}

static int record(struct sim *sim, const struct device_run *run)
{
	const struct sim_task *task = run->part->task;

	if (sim->n_segments == sim->max_segments) {
		uint32_t max = sim->max_segments ? sim->max_segments * 2 : 1024;
		struct sim_segment *segments =
			reallocarray(sim->segments, max, sizeof(*sim->segments));

		if (!segments)
			return error_origin(-ENOMEM);
		sim->segments = segments;
		sim->max_segments = max;
	}
	sim->segments[sim->n_segments++] = (struct sim_segment){
		.begin_ns = run->begin_ns,
		.end_ns = sim->now_ns,
		.tenant = task->tenant,
		.plan = task->plan,
		.device = run->part->device,
		.n_parts = task->n_parts,
		.failed = run->fails,
		.lane = run->lane,
	};
	return 0;
}

void sim_start_part(struct sim *sim, struct sim_task *task, unsigned int part, uint8_t device,
		    uint32_t n_rows)
{
	struct sim_part *p = &task->parts[part];

	p->n_rows = p->n_now = n_rows;
	p->n_begun = p->n_done = 0;
	device_assign(&sim->devices[device], p, sim->now_ns);
}

/* --- Judging --- */

static double min_of(const double *values)
{
	return fmin(values[RBK_DEVICE_CPU], values[RBK_DEVICE_GPU]);
}

struct world_cost sim_cost(struct sim *sim, const struct sim_task *task, uint8_t device,
			   uint32_t n_rows, enum knowledge knowledge)
{
	uint32_t n_cut = sim->policy->cut ? sim->policy->cut(sim, task, device, n_rows) : 0;

	return world_cut_cost(sim->world, task, device, n_rows, n_cut, sim->now_ns,
			      knowledge == KNOW_ALL);
}

static double probe_ns(struct sim *sim, const struct sim_task *task, uint8_t device,
		       uint32_t n_rows, enum knowledge knowledge)
{
	struct world_cost cost = sim_cost(sim, task, device, n_rows, knowledge);

	return device_probe_ns(&sim->devices[device], cost, knowledge) - sim->now_ns;
}

static void judge(struct sim *sim, const struct sim_task *task, const struct sim_choice *choice)
{
	struct sim_verdict *verdict = &sim->verdicts[task - sim->world->tasks];
	double loss[2];

	for (unsigned int with_noise = 0; with_noise < 2; with_noise++) {
		enum knowledge knowledge = with_noise ? KNOW_ALL : KNOW_MEANS;
		double done_ns[SCENARIO_DEVICES], chosen;

		for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
			done_ns[d] = INFINITY;
			if (world_may_run(sim->world, task, (uint8_t)d))
				done_ns[d] =
					probe_ns(sim, task, (uint8_t)d, task->count, knowledge);
			verdict->done_ns[d] = (float)done_ns[d];
			verdict->wait_ns[d] =
				(float)(done_ns[d] -
					world_alone_ns(sim->world, (uint8_t)d,
						       sim_cost(sim, task, (uint8_t)d, task->count,
								knowledge)));
		}
		chosen = done_ns[choice->device];
		if (choice->split_count)
			chosen = fmax(
				probe_ns(sim, task, choice->device, choice->split_count, knowledge),
				probe_ns(sim, task, RBK_DEVICE_CPU,
					 task->count - choice->split_count, knowledge));
		loss[with_noise] = isinf(chosen) ? 1 : fmax(chosen / min_of(done_ns) - 1, 0);
	}
	verdict->is_right_expected = loss[0] < RIGHT_WITHIN;
	verdict->is_right = loss[1] < RIGHT_WITHIN;
	verdict->loss = (float)loss[1];
	verdict->loss_expected = (float)loss[0];
	verdict->choice = *choice;
}

/*
 * Add the speed and gain of a split task, compared with both devices idle and sharing the task
 * perfectly.
 */
static void judge_split(struct sim *sim, const struct sim_task *task)
{
	double alone_ns[SCENARIO_DEVICES];
	double took_ns = sim->now_ns - task->arrive_ns;

	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		alone_ns[d] =
			world_alone_ns(sim->world, (uint8_t)d,
				       sim_cost(sim, task, (uint8_t)d, task->count, KNOW_ALL));
	sim->split_speed += 1 / (1 / alone_ns[0] + 1 / alone_ns[1]) / took_ns;
	sim->split_gain += min_of(alone_ns) / took_ns - 1;
	sim->n_split++;
}

/* --- Tasks --- */

static void admit(struct sim *sim, uint32_t index)
{
	struct sim_task *task = &sim->world->tasks[index];
	struct sim_choice choice;

	task->nth_of_plan =
		sim->n_of_plan[(size_t)task->tenant * sim->world->scenario->n_plans + task->plan]++;
	choice = sim->policy->decide(sim, task);
	/* A task placed on a device that cannot run it runs on the CPU. */
	if (choice.device >= SCENARIO_DEVICES || !world_may_run(sim->world, task, choice.device)) {
		choice.device = RBK_DEVICE_CPU;
		choice.split_count = 0;
	}
	judge(sim, task, &choice);
	task->device = choice.device;
	task->reason = choice.reason;
	task->n_parts = choice.split_count ? 2 : 1;
	sim->n_admitted++;
	if (sim->policy->queue) {
		sim->policy->queue(sim, task, &choice);
	} else {
		sim_start_part(sim, task, 0, choice.device, task->count);
		device_release(&sim->devices[choice.device], &task->parts[0]);
	}
}

/* Return the task's mean duration over devices, by profile. */
static double mean_estimate_ns(const struct sim *sim, const struct sim_task *task)
{
	double sum = 0;

	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		sum += world_alone_ns(
			sim->world, (uint8_t)d,
			world_estimate(sim->world, task->plan, (uint8_t)d, task->count));
	return sum / SCENARIO_DEVICES;
}

static int longest_first(const void *a, const void *b, void *context)
{
	const struct sim *sim = context;
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	double left_ns = mean_estimate_ns(sim, &sim->world->tasks[left]);
	double right_ns = mean_estimate_ns(sim, &sim->world->tasks[right]);

	if (left_ns != right_ns)
		return left_ns > right_ns ? -1 : 1;
	return left < right ? -1 : left > right;
}

static void arrive(struct sim *sim)
{
	const struct world *world = sim->world;

	while (sim->next_arrival < sim->n_open &&
	       world->tasks[sim->next_arrival].arrive_ns <= sim->now_ns)
		sim->ready[sim->n_ready++] = sim->next_arrival++;
	if (sim->policy->sorts)
		qsort_r(sim->ready, sim->n_ready, sizeof(*sim->ready), longest_first, sim);
	for (uint32_t i = 0; i < sim->n_ready; i++)
		admit(sim, sim->ready[i]);
	sim->n_ready = 0;
}

static void complete(struct sim *sim, struct sim_task *task)
{
	const struct scenario *scenario = sim->world->scenario;
	double deadline_ns = scenario->tenants[task->tenant].deadline_ns;
	uint32_t next = sim->next_closed[task->tenant];

	task->done_ns = sim->now_ns;
	sim->n_done++;
	if (task->n_parts > 1)
		judge_split(sim, task);
	/* Admit the next task of a closed tenant, whose tasks are adjacent. */
	if (next >= sim->n_open && next < sim->world->n_tasks &&
	    sim->world->tasks[next].tenant == task->tenant) {
		struct sim_task *more = &sim->world->tasks[next];

		more->arrive_ns = sim->now_ns;
		if (deadline_ns > 0)
			more->deadline_ns = sim->now_ns + deadline_ns;
		sim->ready[sim->n_ready++] = next;
		sim->next_closed[task->tenant]++;
	}
	/*
	 * From now on the tenant has no task left, so the devices are no longer saturated by all
	 * tenants.
	 */
	if (--sim->n_left[task->tenant] == 0 && sim->is_saturated) {
		memcpy(sim->saturated_ns, sim->service_ns,
		       scenario->n_tenants * sizeof(*sim->service_ns));
		sim->is_saturated = false;
	}
}

static int ended(struct sim *sim, struct device *device, const struct device_run *run)
{
	struct sim_part *part = run->part;
	struct sim_task *task = part->task;
	int r = sim->records ? record(sim, run) : 0;

	if (r)
		return error_fold(r);
	sim->service_ns[task->tenant] += run->busy_ns / device->n_servers;
	sim->longest_ns = fmax(sim->longest_ns, sim->now_ns - run->begin_ns);
	if (run->fails) {
		sim->n_failed++;
		task->fell_back = true;
		device_unassign(device, part);
		part->n_begun = part->n_done;
	} else {
		part->n_done += part->n_now;
	}
	if (part->n_done == part->n_rows && ++task->n_parts_done == task->n_parts)
		complete(sim, task);
	if (sim->policy->ended && sim->policy->ended(sim, run))
		return 0;
	if (run->fails) {
		/* Run the remaining rows on the CPU; also if the CPU was the device that failed. */
		part->n_now = part->n_rows - part->n_begun;
		device_assign(&sim->devices[RBK_DEVICE_CPU], part, sim->now_ns);
		device_release(&sim->devices[RBK_DEVICE_CPU], part);
	}
	return 0;
}

/* --- Devices --- */

static int happen(struct sim *sim, const struct scenario_event *event)
{
	struct world *world = sim->world;
	struct device *device = &sim->devices[event->device];
	struct device_run run;
	int r;

	switch (event->kind) {
	case EVENT_SLOW:
		world->slow[event->device] = event->value;
		break;
	case EVENT_CONTENTION:
		world->contention[event->device] = event->value;
		break;
	case EVENT_HOGS:
		world->n_hogs = event->value;
		break;
	case EVENT_FAIL_EVERY:
		world->fail_every[event->device] = (uint64_t)event->value;
		break;
	case EVENT_LOST:
	case EVENT_BACK:
		world->is_lost[event->device] = event->kind == EVENT_LOST;
		break;
	}
	if (sim->policy->changed)
		sim->policy->changed(sim, event);
	while (event->kind == EVENT_LOST && device_fail_one(device, &run)) {
		r = ended(sim, device, &run);
		if (r)
			return error_fold(r);
	}
	return 0;
}

static int advance(struct sim *sim)
{
	struct device_run run;
	bool is_settled;
	int r;

	do {
		is_settled = true;
		for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
			struct device *device = &sim->devices[d];

			while (device_advance(device, sim->now_ns, &run)) {
				is_settled = false;
				r = ended(sim, device, &run);
				if (r)
					return error_fold(r);
			}
		}
	} while (!is_settled);
	return 0;
}

static double next_ns(struct sim *sim)
{
	const struct scenario *scenario = sim->world->scenario;
	double at_ns = INFINITY;

	if (sim->next_arrival < sim->n_open)
		at_ns = sim->world->tasks[sim->next_arrival].arrive_ns;
	if (sim->next_event < scenario->n_events)
		at_ns = fmin(at_ns, scenario->events[sim->next_event].at_ns);
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		at_ns = fmin(at_ns, device_next_ns(&sim->devices[d]));
	if (sim->n_ready)
		at_ns = sim->now_ns;
	if (sim->policy->wake_ns && sim->n_done < sim->n_admitted)
		at_ns = fmin(at_ns, sim->policy->wake_ns(sim));
	return fmax(at_ns, sim->now_ns);
}

int sim_run(struct sim *sim, struct world *world, const struct policy *policy, bool records)
{
	const struct scenario *scenario = world->scenario;
	int r;

	r = init(sim, world, policy, records);
	if (r)
		return error_fold(r);
	while (sim->n_done < world->n_tasks) {
		double at_ns = next_ns(sim);

		if (isinf(at_ns))
			return SCENARIO_E_INVALID;
		sim->now_ns = at_ns;
		r = advance(sim);
		while (!r && sim->next_event < scenario->n_events &&
		       scenario->events[sim->next_event].at_ns <= at_ns)
			r = happen(sim, &scenario->events[sim->next_event++]);
		if (r)
			return error_fold(r);
		arrive(sim);
		if (policy->pump)
			policy->pump(sim);
		r = advance(sim);
		if (r)
			return error_fold(r);
	}
	return 0;
}
