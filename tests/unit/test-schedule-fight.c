/* SPDX-License-Identifier: MIT */
/* All operations in random order: no task is lost or doubled, and all sums stay right */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule-rig.h"
#include "support/test.h"

enum { TASKS = 600, FLOWS = 12, DEVICES = 3, PLANS = 20 };

struct fight {
	struct rig rig;
	uint64_t random;
	struct rig_plan plans[PLANS];
	struct place_gate gates[PLANS][DEVICES];
	uint32_t n_slots[PLANS];
	struct place_flow *flows[FLOWS];
	struct rig_task tasks[TASKS];
	/* expected states and devices of the tasks */
	uint8_t state[TASKS], device[TASKS];
	uint32_t n_gone_on, n_gated, n_released, n_put_back, n_done, n_cancelled, n_throttled,
		n_heaped, n_held_back;
};

static uint32_t below(struct fight *fight, uint32_t n)
{
	return (uint32_t)(rig_random(&fight->random) * n);
}

/* Record that a task has moved. Only this callback reports moves. */
static void moved(struct rig *rig, struct rig_task *task, uint8_t from)
{
	struct fight *fight = (struct fight *)rig;
	ptrdiff_t i = task - fight->tasks;
	const struct rig_plan *plan = (const void *)task->task.place_plan;

	assert_fields(*fight, (state[i], PLACE_QUEUED), (device[i], from));
	assert_int_equal(task->task.decision.flags & PLACE_BOUND, 0);
	assert_true(plan->work_ns[task->task.decision.device] > 0);
	fight->device[i] = task->task.decision.device;
}

static void check_heap(const struct heap_node *node, const struct heap_node *parent, uint32_t *n)
{
	if (!node)
		return;
	assert_ptr_equal(node->parent, parent);
	assert_true(heap_rank_(node->left) >= heap_rank_(node->right));
	assert_int_equal(node->rank, heap_rank_(node->right) + 1);
	++*n;
	check_heap(node->left, node, n);
	check_heap(node->right, node, n);
}

static uint32_t length(const struct list_node *list)
{
	uint32_t n = 0;

	list_for_each (node, list) {
		assert_ptr_equal(node->next->prev, node);
		n++;
	}
	return n;
}

/* Return the number of tasks in gates of @device, of one flow or of all flows. */
static uint32_t n_in_gates(const struct fight *fight, const struct place_flow *flow, uint8_t device)
{
	uint32_t n = 0;

	for (int i = 0; i < TASKS; i++) {
		const struct place_task *task = &fight->tasks[i].task;

		n += task->state == PLACE_QUEUED && task->device == device && task->gate &&
		     task->gate->next != task && (!flow || task->flow == flow);
	}
	return n;
}

static void check_gate(const struct fight *fight, const struct place_gate *gate)
{
	uint32_t n_begun = 0, n_queued = 0, n = 0;

	for (int i = 0; i < TASKS; i++) {
		const struct place_task *task = &fight->tasks[i].task;

		if (task->state == PLACE_IDLE || task->gate != gate)
			continue;
		n_begun += task->has_slot;
		n_queued += task->state == PLACE_QUEUED;
		assert_true(task->has_slot || task->state == PLACE_QUEUED);
	}
	check_heap(gate->going_on, NULL, &n);
	check_heap(gate->waiting, NULL, &n);
	assert_int_equal(n + (gate->next != NULL), n_queued);
	assert_int_equal(gate->n_begun, n_begun);
	assert_true(n_begun <= *gate->n_slots);
	/* A task that can start is always found. */
	if (!gate->next)
		assert_true(!gate->going_on && (!gate->waiting || n_begun == *gate->n_slots));
	else if (!gate->next->has_slot)
		assert_true(n_begun < *gate->n_slots);
}

static void check_device(const struct fight *fight, uint8_t device)
{
	const struct place_queue *queue = &fight->rig.placer->devices[device].queue;
	uint32_t n_queued = 0, n_released = 0, n_movable = 0, n_in_heap = 0, n_startable = 0;
	uint32_t n_short = 0, n_without_choice = 0;
	uint64_t queued_ns = 0, released_ns = 0, slots = 0, since = 0, active = 0;

	for (int i = 0; i < TASKS; i++) {
		const struct place_task *task = &fight->tasks[i].task;

		assert_int_equal(task->state, fight->state[i]);
		if (fight->state[i] == PLACE_IDLE || fight->device[i] != device)
			continue;
		assert_fields(*task, (device, device), (decision.device, device));
		if (task->state == PLACE_QUEUED) {
			n_queued++;
			queued_ns += task->work_ns;
			n_movable += !(task->decision.flags & PLACE_BOUND) &&
				     task->decision.other_ns > 0;
		} else {
			n_released++;
			queued_ns += task->later_ns;
			released_ns += task->work_ns;
			n_without_choice += !task->has_choice;
			slots += task->is_running ? task->slots : 0;
			since += task->is_running ? task->since : 0;
			if (task->is_running) {
				assert_in_range(task->slots, 1, task->wanted);
				n_short += !list_is_empty(&task->link);
			}
		}
	}
	assert_fields(*queue, (n_queued, n_queued), (queued_ns, queued_ns),
		      (n_released, n_released), (waiting_ns + queue->running_ns, released_ns),
		      (running_slots, slots), (running_since, since));
	assert_true(queue->running_slots <= queue->n_servers);
	assert_int_equal(length(&queue->waiting), queue->n_waiting);
	assert_int_equal(length(&queue->short_handed), n_short);
	assert_fields(*queue, (n_movable, n_movable), (n_without_choice, n_without_choice));
	for (unsigned int i = 0; i < SCHEDULE_BUCKETS; i++) {
		uint32_t n = length(&queue->movable[i]);

		assert_int_equal(n > 0, queue->movable_mask >> i & 1);
		n_movable -= n;
	}
	assert_int_equal(n_movable, 0);

	for (int i = 0; i < FLOWS; i++) {
		const struct place_flow *flow = fight->flows[i];
		const struct place_flow_queue *fq = &flow->on[device];
		bool is_held = device == RBK_DEVICE_CPU && flow->cpu_max > 0 &&
			       (flow->is_throttled ||
				fq->n_released >= SCHEDULE_QUOTA_DEPTH * queue->n_servers);
		uint32_t n = 0;

		for (int j = 0; j < SCHEDULE_CLASSES; j++) {
			uint32_t in_class = length(&fq->classes[j].in_order);

			check_heap(fq->classes[j].heap, NULL, &in_class);
			assert_int_equal(in_class > 0, fq->class_mask >> j & 1);
			n += in_class;
		}
		assert_int_equal(fq->is_startable, n > 0 && !is_held);
		n += n_in_gates(fight, flow, device);
		assert_int_equal(fq->n_queued, n);
		n_queued -= n;
		n_startable += fq->is_startable;
		assert_int_equal(fq->is_active, fq->is_startable || fq->n_released);
		active += fq->is_active ? flow->weight : 0;
	}
	assert_int_equal(n_queued, 0);
	assert_int_equal(queue->active_weight, active);
	check_heap(queue->flows, NULL, &n_in_heap);
	assert_int_equal(n_in_heap, n_startable);
}

static void check(struct fight *fight)
{
	uint32_t n_throttled = 0, n_in_heap = 0;

	for (uint8_t i = 0; i < DEVICES; i++)
		check_device(fight, i);
	for (int i = 0; i < PLANS; i++)
		for (int k = 0; k < DEVICES && fight->plans[i].gates; k++)
			check_gate(fight, &fight->gates[i][k]);
	check_heap(fight->rig.placer->schedule.throttled, NULL, &n_in_heap);
	for (int i = 0; i < FLOWS; i++)
		n_throttled += fight->flows[i]->is_throttled;
	assert_int_equal(n_in_heap, n_throttled);
	fight->n_throttled += n_throttled;
}

static struct place_flow_limits random_limits(struct fight *fight)
{
	static const float quotas[] = {0, 0, 0, 0.1f, 2, NAN};
	static const uint32_t weights[] = {0, 1, 100, 100, 1000, 10000, UINT32_MAX};

	return (struct place_flow_limits){
		.weight = weights[below(fight, ARRAY_SIZE(weights))],
		.priority_max = (uint8_t)below(fight, 4),
		.cpu_max = quotas[below(fight, ARRAY_SIZE(quotas))],
	};
}

static void enqueue(struct fight *fight, int i)
{
	struct rig_plan *plan = &fight->plans[below(fight, PLANS)];
	struct rig_task *task = &fight->tasks[i];
	uint8_t device;

	do
		device = (uint8_t)below(fight, DEVICES);
	while (!(plan->work_ns[device] > 0));
	rig_task_init(task, plan, fight->flows[below(fight, FLOWS)], device);
	task->task.count = 1 + below(fight, 10);
	task->task.priority = (uint8_t)below(fight, 4);
	if (below(fight, 3) == 0)
		task->task.deadline_ns = fight->rig.now_ns + below(fight, 3000) * 1000000ull;
	if (below(fight, 4) == 0)
		task->task.decision.flags = PLACE_BOUND;
	if (below(fight, 50) == 0)
		task->task.decision.predicted_ns = INFINITY;
	task->actual_factor = (float)pow(5, rig_random(&fight->random) * 4 - 2);
	rig_enqueue(&fight->rig, task);
	fight->state[i] = PLACE_QUEUED;
	fight->device[i] = device;
	fight->n_heaped += task->task.is_in_heap;
	fight->n_gated += task->task.gate != NULL;
}

static void done(struct fight *fight, int i)
{
	static const enum place_result results[] = {PLACE_DONE, PLACE_DONE, PLACE_FAILED,
						    PLACE_SKIPPED};
	static const uint64_t lies[] = {0, 1, UINT64_MAX, 1ull << 63};
	struct rig_task *task = &fight->tasks[i];
	uint64_t exec_ns = (uint64_t)((float)task->task.work_ns * task->actual_factor);

	if (below(fight, 30) == 0)
		exec_ns = lies[below(fight, ARRAY_SIZE(lies))];
	task->task.goes_on = task->task.has_slot && below(fight, 3) > 0;
	place_done(fight->rig.placer, &task->task, results[below(fight, ARRAY_SIZE(results))],
		   exec_ns, below(fight, 2) ? exec_ns / 2 : 0, fight->rig.now_ns);
	fight->state[i] = PLACE_IDLE;
	fight->n_done++;
	if (!task->task.goes_on)
		return;
	/* The task must continue: it is bound to the device and has its slot. */
	task->task.decision.flags |= PLACE_BOUND;
	place_enqueue(fight->rig.placer, &task->task, fight->rig.now_ns);
	fight->state[i] = PLACE_QUEUED;
	fight->n_gone_on++;
}

static void act_on_task(struct fight *fight)
{
	int i = (int)below(fight, TASKS);

	switch (fight->state[i]) {
	case PLACE_IDLE:
		enqueue(fight, i);
		break;
	case PLACE_QUEUED:
		if (below(fight, 3))
			break;
		place_dequeue(fight->rig.placer, &fight->tasks[i].task, fight->rig.now_ns);
		fight->state[i] = PLACE_IDLE;
		fight->n_cancelled++;
		break;
	default:
		if (below(fight, 8)) {
			done(fight, i);
			break;
		}
		place_put_back(fight->rig.placer, &fight->tasks[i].task, fight->rig.now_ns);
		fight->state[i] = PLACE_QUEUED;
		fight->n_put_back++;
		fight->n_held_back += fight->tasks[i].task.later_ns > 0;
	}
}

static void release(struct fight *fight)
{
	uint8_t device = (uint8_t)below(fight, DEVICES);
	bool is_startable = place_startable(fight->rig.placer, fight->rig.now_ns) >> device & 1;
	struct place_task *task = place_next(fight->rig.placer, device, fight->rig.now_ns);
	ptrdiff_t i = (struct rig_task *)task - fight->tasks;

	assert_int_equal(task != NULL, is_startable);
	if (!task)
		return;
	assert_fields(*fight, (state[i], PLACE_QUEUED), (device[i], device));
	fight->state[i] = PLACE_RELEASED;
	fight->n_released++;
}

static void act(struct fight *fight)
{
	struct rig *rig = &fight->rig;
	struct place_flow *flow = fight->flows[below(fight, FLOWS)];
	uint8_t device = (uint8_t)below(fight, DEVICES);
	struct place_flow_limits limits;
	uint32_t n_moved = rig->n_moved;

	switch (below(fight, 40)) {
	case 0:
		limits = random_limits(fight);
		place_flow_set_limits(rig->placer, flow, &limits, rig->now_ns);
		break;
	case 1:
		place_flow_charge(rig->placer, flow, RBK_DEVICE_CPU, below(fight, 1000000));
		break;
	case 2:
	case 3:
		n_moved += place_rebalance(rig->placer, rig->now_ns);
		assert_int_equal(n_moved, rig->n_moved);
		break;
	case 4:
		assert_true(place_flow_wait_ns(rig->placer, flow, device, rig->now_ns) <=
			    SCHEDULE_MAX_STEP_NS);
		place_flow_is_throttled(flow, rig->now_ns);
		place_queue_backlog_ns(rig->placer, device, rig->now_ns);
		break;
	case 5:
		rig->now_ns += 1ull << below(fight, 34);
		break;
	case 6:
		if (below(fight, 10) == 0)
			rig->now_ns -= 1ull << below(fight, 29);
		break;
	default:
		rig->now_ns += 10000;
		if (below(fight, 2))
			release(fight);
		else
			act_on_task(fight);
	}
}

static void fight_once(uint64_t seed, int n_rounds)
{
	static const uint32_t n_servers[] = {4, 1, 2};
	static struct fight fight;

	memset(&fight, 0, sizeof(fight));
	fight.random = seed;
	rig_init(&fight.rig, DEVICES, n_servers);
	fight.rig.moved = moved;
	fight.rig.max_rows = 3;
	for (int i = 0; i < PLANS; i++) {
		double size = pow(10, 3 + rig_random(&fight.random) * 4);

		for (int j = 0; j < DEVICES; j++)
			fight.plans[i].work_ns[j] =
				(float)(size * pow(4, rig_random(&fight.random) * 2 - 1));
		if (below(&fight, 4) == 0)
			fight.plans[i].work_ns[below(&fight, DEVICES)] = 0;
		if (i % 2)
			continue;
		fight.plans[i].gates = fight.gates[i];
		fight.n_slots[i] = 1 + below(&fight, 4);
		for (int j = 0; j < DEVICES; j++)
			fight.gates[i][j].n_slots = &fight.n_slots[i];
	}
	for (int i = 0; i < FLOWS; i++) {
		struct place_flow_limits limits = random_limits(&fight);

		fight.flows[i] =
			rig_flow(&fight.rig, limits.weight, limits.priority_max, limits.cpu_max);
	}
	for (int i = 0; i < n_rounds; i++) {
		act(&fight);
		if (i % 64 == 0)
			check(&fight);
	}
	assert_true(fight.n_released > 100);
	assert_true(fight.n_done > 100);
	assert_true(fight.n_put_back > 10);
	assert_true(fight.n_cancelled > 100);
	assert_true(fight.n_throttled > 0);
	assert_true(fight.n_heaped > 100);
	assert_true(fight.n_held_back > 0);
	assert_true(fight.n_gated > 100);
	assert_true(fight.n_gone_on > 20);
	assert_true(fight.rig.n_moved > 20);

	/* In the end all tasks are released. */
	for (int i = 0, n_left = 1; n_left; i++) {
		assert_true(i < 100000);
		fight.rig.now_ns += 1000000000000;
		release(&fight);
		n_left = 0;
		for (int j = 0; j < TASKS; j++) {
			if (fight.state[j] == PLACE_RELEASED)
				done(&fight, j);
			n_left += fight.state[j] != PLACE_IDLE;
		}
	}
	check(&fight);
	for (int i = 0; i < FLOWS; i++)
		place_flow_free(fight.rig.placer, fight.flows[i]);
	assert_null(fight.rig.placer->schedule.throttled);
	rig_deinit(&fight.rig);
}

TEST(test_fight)
{
	for (uint64_t seed = 1; seed <= 6; seed++)
		fight_once(seed, 40000);
}
