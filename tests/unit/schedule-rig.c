/* SPDX-License-Identifier: MIT */
/* Devices in virtual time; see schedule-rig.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "schedule-rig.h"

/* The rig that records what is learned; one at a time. */
static struct rig *current;

float __wrap_place_work_ns(const struct placer *placer, const struct place_plan *place_plan,
			   uint8_t device, uint32_t count);
float __wrap_place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
			      uint8_t device, uint32_t count);
float __wrap_place_predict_now_ns(const struct placer *placer, const struct place_plan *place_plan,
				  uint8_t device, uint32_t count, float contention);
float __wrap_place_spread(const struct placer *placer, const struct place_plan *place_plan,
			  uint8_t device, uint32_t count);
bool __wrap_place_can_move(const struct placer *placer, const struct place_plan *place_plan,
			   uint8_t device);
uint32_t __wrap_place_rows_per_submission(const struct placer *placer,
					  const struct place_plan *place_plan, uint8_t device,
					  uint32_t count);
void __wrap_place_learn(struct placer *placer, struct place_plan *place_plan, uint8_t device,
			uint32_t count, enum place_result result, uint64_t exec_ns,
			uint64_t busy_ns, uint64_t now_ns);
void __wrap_place_learn_part(struct placer *placer, struct place_plan *place_plan, uint8_t device,
			     uint32_t count, uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns);

float __wrap_place_work_ns(const struct placer *placer, const struct place_plan *place_plan,
			   uint8_t device, uint32_t count)
{
	const struct rig_plan *plan = (const void *)place_plan;

	current->n_asked++;
	return plan->work_ns[device] * (float)count;
}

float __wrap_place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
			      uint8_t device, uint32_t count)
{
	const struct rig_plan *plan = (const void *)place_plan;
	float work_ns = __wrap_place_work_ns(placer, place_plan, device, count);

	if (device == 0 && plan->servers > 0)
		return work_ns / plan->servers;
	return work_ns / (float)placer->devices[device].queue.n_servers_per_task;
}

float __wrap_place_predict_now_ns(const struct placer *placer, const struct place_plan *place_plan,
				  uint8_t device, uint32_t count, float contention)
{
	return __wrap_place_predict_ns(placer, place_plan, device, count) * contention;
}

float __wrap_place_spread(const struct placer *placer, const struct place_plan *place_plan,
			  uint8_t device, uint32_t count)
{
	const struct rig_plan *plan = (const void *)place_plan;

	return plan->spread;
}

bool __wrap_place_can_move(const struct placer *placer, const struct place_plan *place_plan,
			   uint8_t device)
{
	const struct rig_plan *plan = (const void *)place_plan;

	return plan->work_ns[device] > 0;
}

void __wrap_place_learn(struct placer *placer, struct place_plan *place_plan, uint8_t device,
			uint32_t count, enum place_result result, uint64_t exec_ns,
			uint64_t busy_ns, uint64_t now_ns)
{
	current->n_learned++;
	current->learned_count = count;
	current->learned_exec_ns = exec_ns;
	current->learned_busy_ns = busy_ns;
}

void __wrap_place_learn_part(struct placer *placer, struct place_plan *place_plan, uint8_t device,
			     uint32_t count, uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns)
{
	current->n_parts_learned++;
}

uint32_t __wrap_place_rows_per_submission(const struct placer *placer,
					  const struct place_plan *place_plan, uint8_t device,
					  uint32_t count)
{
	return current->max_rows && current->max_rows < count ? current->max_rows : count;
}

struct place_gate *__wrap_place_gate(const struct place_plan *place_plan, uint8_t device);

struct place_gate *__wrap_place_gate(const struct place_plan *place_plan, uint8_t device)
{
	const struct rig_plan *plan = (const void *)place_plan;

	return plan->gates ? &plan->gates[device] : NULL;
}

static void moved(void *context, struct place_task *task, uint8_t from)
{
	struct rig *rig = context;

	rig->n_moved++;
	assert(task->state == PLACE_QUEUED);
	assert(task->decision.device != from);
	if (rig->moved)
		rig->moved(rig, (struct rig_task *)task, from);
}

void rig_init(struct rig *rig, uint32_t n_devices, const uint32_t *n_servers)
{
	*rig = (struct rig){.now_ns = 1000000000};
	rig->placer = calloc(1, sizeof(*rig->placer));
	assert(rig->placer);
	rig->placer->config = PLACE_CONFIG_DEFAULT;
	rig->placer->n_devices = n_devices;
	rig->placer->moved = moved;
	rig->placer->context = rig;
	for (uint32_t i = 0; i < n_devices; i++) {
		const struct place_profile profile = {
			.is_valid = true,
			.n_servers = n_servers[i],
			.n_servers_per_task = 1,
		};

		rig->placer->devices[i].contention = 1;
		rig->placer->devices[i].slowdown = 1;
		place_queue_init(&rig->placer->devices[i].queue, &profile);
		rig->devices[i].n_servers = n_servers[i];
		rig->devices[i].end = &rig->devices[i].first;
	}
	current = rig;
	/* Start the placer's clock. */
	place_startable(rig->placer, rig->now_ns);
}

void rig_deinit(struct rig *rig)
{
	free(rig->placer);
	current = NULL;
}

struct place_flow *rig_flow(struct rig *rig, uint32_t weight, uint8_t priority_max, float cpu_max)
{
	const struct place_flow_limits limits = {weight, priority_max, cpu_max};
	struct place_flow *flow = NULL;
	int r = place_flow_new(rig->placer, &limits, &flow);

	assert(r == 0);
	(void)r;
	return flow;
}

void rig_task_init(struct rig_task *task, const struct rig_plan *plan, struct place_flow *flow,
		   uint8_t device)
{
	*task = (struct rig_task){
		.actual_factor = 1,
		.task =
			{
				.place_plan = (struct place_plan *)plan,
				.flow = flow,
				.decision = {.device = device,
					     .predicted_ns = plan->work_ns[device]},
				.count = 1,
				.deadline_ns = UINT64_MAX,
			},
	};
	for (uint32_t i = 0; i < RIG_DEVICES; i++) {
		float other_ns = plan->work_ns[i];

		if (i != device && other_ns > 0 &&
		    (task->task.decision.other_ns == 0 || other_ns < task->task.decision.other_ns))
			task->task.decision.other_ns = other_ns;
	}
}

void rig_enqueue(struct rig *rig, struct rig_task *task)
{
	task->task.admit_ns = rig->now_ns;
	place_enqueue(rig->placer, &task->task, rig->now_ns);
}

static void begin(struct rig *rig, struct rig_device *device, uint8_t index, uint32_t server)
{
	struct rig_task *task = device->first;
	const struct rig_plan *plan = (const void *)task->task.place_plan;

	device->first = task->next;
	if (!device->first)
		device->end = &device->first;
	device->running[server] = task;
	task->busy_ns = (uint64_t)((double)plan->work_ns[index] * (double)task->actual_factor *
				   task->n_now);
	if (task->left_ns)
		task->busy_ns = task->left_ns;
	task->left_ns = 0;
	task->busy_ns = task->busy_ns ? task->busy_ns : 1;
	task->begin_ns = rig->now_ns;
	task->end_ns = rig->now_ns + task->busy_ns;
}

void rig_pump(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->placer->n_devices; i++) {
		struct rig_device *device = &rig->devices[i];
		struct place_task *next;

		while ((next = place_next(rig->placer, (uint8_t)i, rig->now_ns))) {
			struct rig_task *task = (struct rig_task *)next;

			assert(next->state == PLACE_RELEASED);
			task->release_ns = rig->now_ns;
			task->n_released++;
			task->n_now = __wrap_place_rows_per_submission(
				rig->placer, next->place_plan, (uint8_t)i, next->count);
			task->next = NULL;
			*device->end = task;
			device->end = &task->next;
			device->n_held++;
		}
		assert(!(place_startable(rig->placer, rig->now_ns) & 1u << i));
		for (uint32_t j = 0; j < device->n_servers && device->first; j++)
			if (!device->running[j])
				begin(rig, device, (uint8_t)i, j);
	}
}

static void end(struct rig *rig, uint8_t index, uint32_t server)
{
	struct rig_device *device = &rig->devices[index];
	struct rig_task *task = device->running[server];

	device->running[server] = NULL;
	device->n_held--;
	if (task->begin_ns + task->busy_ns > rig->now_ns) {
		uint64_t used_ns = rig->now_ns - task->begin_ns;

		device->busy_ns += used_ns;
		task->left_ns = task->busy_ns - used_ns;
		task->n_stopped++;
		place_stopped(rig->placer, &task->task, used_ns, 0, rig->now_ns);
		place_enqueue(rig->placer, &task->task, rig->now_ns);
		return;
	}
	device->busy_ns += task->busy_ns;
	task->n_rows = task->task.count - task->n_now;
	task->task.count = task->n_now;
	place_done(rig->placer, &task->task, PLACE_DONE, task->busy_ns, 0, rig->now_ns);
	if (task->n_rows) {
		task->task.count = task->n_rows;
		place_enqueue(rig->placer, &task->task, rig->now_ns);
		return;
	}
	task->done_ns = rig->now_ns;
	task->n_done++;
	if (rig->done)
		rig->done(rig, task, index);
	if (rig->is_rebalancing)
		place_rebalance(rig->placer, rig->now_ns);
}

/* Stop the tasks that are asked to stop, stop_ns later. */
static void look(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->placer->n_devices; i++) {
		struct place_task *place;

		while ((place = place_preempt(rig->placer, (uint8_t)i, rig->now_ns))) {
			struct rig_task *task = (struct rig_task *)place;

			assert(place->state == PLACE_RELEASED && place->is_running);
			if (task->end_ns > rig->now_ns + rig->stop_ns)
				task->end_ns = rig->now_ns + rig->stop_ns;
		}
	}
}

void rig_run(struct rig *rig, uint64_t until_ns)
{
	while (true) {
		uint64_t next_ns = UINT64_MAX, look_ns;
		uint32_t device = 0, server = 0;

		rig_pump(rig);
		for (uint32_t i = 0; i < rig->placer->n_devices; i++) {
			for (uint32_t j = 0; j < rig->devices[i].n_servers; j++) {
				const struct rig_task *task = rig->devices[i].running[j];

				if (task && task->end_ns < next_ns) {
					next_ns = task->end_ns;
					device = i;
					server = j;
				}
			}
		}
		look_ns = place_preempt_ns(rig->placer, rig->now_ns);
		assert(place_may_preempt(rig->placer) == (look_ns != UINT64_MAX));
		if (next_ns > look_ns && look_ns < place_refill_ns(rig->placer, rig->now_ns)) {
			if (look_ns > until_ns)
				break;
			rig->now_ns = look_ns;
			look(rig);
			continue;
		}
		if (next_ns > place_refill_ns(rig->placer, rig->now_ns)) {
			next_ns = place_refill_ns(rig->placer, rig->now_ns);
			if (next_ns > until_ns)
				break;
			rig->now_ns = next_ns;
			continue;
		}
		if (next_ns > until_ns || next_ns == UINT64_MAX)
			break;
		rig->now_ns = next_ns > rig->now_ns ? next_ns : rig->now_ns;
		end(rig, (uint8_t)device, server);
	}
	if (until_ns != UINT64_MAX)
		rig->now_ns = until_ns;
}

double rig_random(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(*state >> 11) / (double)(1ull << 53);
}
