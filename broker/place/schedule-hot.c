/* SPDX-License-Identifier: MIT */
/*
 * The scheduler: which task starts next
 *
 * Three levels. A device has a heap of flows by start tag: the virtual time at which the flow's
 * next task would start if all had their shares; the least tag is first. A flow has four classes. A
 * class has a list of tasks without deadlines, which come in the order in which they are due, so
 * that queueing and starting them costs next to nothing. All other tasks of the class are in a
 * heap; the heads of both are compared.
 *
 * Start tags: a released task advances its flow's tag by its predicted time, divided by the weight;
 * when the task is back the tag is corrected by the time used. The device's virtual time is the
 * start tag of the task released last. A flow that returns after a while starts there; a flow in
 * debt starts where the debt is paid. When a device has nothing to do all flows' debts are
 * forgiven: no flow waited.
 *
 * A flow's tasks without deadlines run one after the other, even if they are run in parts: the rest
 * of one precedes later ones. If they took turns, part by part, the median latency of 4000 tasks
 * queued at once would be a third less; but the longest tasks would be left at the end, each bound
 * to the device that has begun with it. All would be done 4% later. A client that waits for a task
 * can give it a class or a deadline.
 *
 * Invariants: a flow is in a device's heap exactly if it has a queued task there that can start,
 * and its quota does not hold it back; a queued task is in its class's list or heap, or in its
 * gate's heaps, and among the movable ones exactly if it is not bound and another device can run
 * it.
 *
 * Progress: a released task of a plan in parts has a slot, and only released or begun tasks have
 * one. So whatever a device holds can be done, and its room becomes free. If a gate has tasks and
 * none can start, all its slots belong to released tasks: each of them comes back, continues, or
 * frees its slot.
 */
#include <assert.h>
#include <string.h>

#include "place/placer-private.h"

static inline struct place_task *task_of_node(const struct heap_node *node)
{
	return container_of(node, struct place_task, node);
}

static inline struct place_task *task_of_link(const struct list_node *link)
{
	return container_of(link, struct place_task, link);
}

static inline bool is_due_before(const struct place_task *a, const struct place_task *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->sequence < b->sequence;
}

static inline bool task_before(const struct heap_node *a, const struct heap_node *b)
{
	return is_due_before(task_of_node(a), task_of_node(b));
}

/* Order in which one gate's tasks start, whatever their flows */
static inline bool is_gated_before(const struct place_task *a, const struct place_task *b)
{
	return a->class != b->class ? a->class < b->class : is_due_before(a, b);
}

static inline bool gated_before(const struct heap_node *a, const struct heap_node *b)
{
	return is_gated_before(task_of_node(a), task_of_node(b));
}

/* --- A flow's tasks on a device --- */

/*
 * Return the bucket among movable tasks: quarters of an octave of how much better the other device
 * is.
 */
static inline uint8_t movable_bucket(float here_ns, float there_ns)
{
	int32_t here, there, bucket;

	/* The bits of a positive float, as a number, are roughly its logarithm. */
	memcpy(&here, &here_ns, sizeof(here));
	memcpy(&there, &there_ns, sizeof(there));
	bucket = (here >> 21) - (there >> 21) + SCHEDULE_BUCKETS / 2;
	bucket = bucket < 0 ? 0 : bucket;
	return (uint8_t)(bucket < SCHEDULE_BUCKETS ? bucket : SCHEDULE_BUCKETS - 1);
}

static inline bool is_movable(const struct place_task *task)
{
	return !(task->decision.flags & (PLACE_BOUND | PLACE_EXPLORES | PLACE_PROBES)) &&
	       task->decision.other_ns > 0;
}

/*
 * Count a task that no other device could do: no other is ready for it, or it was requested there.
 * A task that is bound only because it continues, or explores, had a choice.
 */
static inline void note_choice(struct place_queue *queue, struct place_task *task)
{
	const uint8_t flags = task->decision.flags;

	if (task->parts_count == 0)
		task->has_choice = task->decision.other_ns > 0 &&
				   (!(flags & PLACE_BOUND) || flags & PLACE_EXPLORES);
	if (task->has_choice)
		return;
	queue->n_without_choice++;
	queue->was_needed = true;
}

/* Convert @work_ns to the load that it adds to a device. */
static inline float load_ns(const struct placer *placer, uint8_t device, float work_ns)
{
	const struct place_device *of = &placer->devices[device];

	return work_ns * of->queue.inverse_servers * of->slowdown;
}

/* Return the least load that a task would add to a device other than @device; 0: there is none. */
static inline float load_elsewhere_ns(const struct placer *placer, const struct place_task *task,
				      uint8_t device)
{
	float least_ns = 0;

	for (uint32_t i = 0; i < placer->n_devices; i++) {
		float ns;

		if (i == device || !place_can_move(placer, task->place_plan, (uint8_t)i))
			continue;
		ns = load_ns(placer, (uint8_t)i,
			     place_work_ns(placer, task->place_plan, (uint8_t)i, task->count));
		least_ns = least_ns > 0 && least_ns < ns ? least_ns : ns;
	}
	return least_ns;
}

/*
 * Add a task to the movable ones, by how much of a device it takes up, not for how long: one of
 * many servers for 20 us is less than the whole of another device for 10.
 */
static inline void insert_movable(const struct placer *placer, struct place_queue *queue,
				  struct place_task *task)
{
	float there_ns;

	list_init(&task->moving);
	if (!is_movable(task))
		return;
	there_ns = load_elsewhere_ns(placer, task, task->device);
	if (there_ns <= 0)
		there_ns = task->decision.other_ns;
	task->bucket =
		movable_bucket(load_ns(placer, task->device, (float)task->work_ns), there_ns);
	list_append(&queue->movable[task->bucket], &task->moving);
	queue->movable_mask |= 1ull << task->bucket;
	queue->n_movable++;
}

static inline void remove_movable(struct place_queue *queue, struct place_task *task)
{
	if (list_is_empty(&task->moving))
		return;
	list_remove(&task->moving);
	if (list_is_empty(&queue->movable[task->bucket]))
		queue->movable_mask &= ~(1ull << task->bucket);
	queue->n_movable--;
}

/* Insert a task into its class, in its order. */
static inline void insert_class(struct place_flow_queue *fq, struct place_task *task)
{
	struct place_class *class = &fq->classes[task->class];
	struct list_node *list = &class->in_order;

	fq->class_mask |= (uint8_t)(1u << task->class);
	task->is_in_heap = false;
	if (task->deadline_ns == UINT64_MAX) {
		if (list_is_empty(list) || is_due_before(task_of_link(list->prev), task)) {
			list_append(list, &task->link);
			return;
		}
		if (is_due_before(task, task_of_link(list->next))) {
			list_append(list->next, &task->link);
			return;
		}
	}
	task->is_in_heap = true;
	heap_insert(&class->heap, &task->node, task_before);
}

static inline void remove_class(struct place_flow_queue *fq, struct place_task *task)
{
	struct place_class *class = &fq->classes[task->class];

	if (task->is_in_heap)
		heap_remove(&class->heap, &task->node, task_before);
	else
		list_remove(&task->link);
	if (!class->heap && list_is_empty(&class->in_order))
		fq->class_mask &= (uint8_t) ~(1u << task->class);
}

/* --- Gates: only for plans in parts --- */

static inline struct heap_node **gate_heap(struct place_gate *gate, const struct place_task *task)
{
	return task->has_slot ? &gate->going_on : &gate->waiting;
}

/* Return the queue of the flow in which a gate's task waits. */
static inline struct place_flow_queue *queue_of(const struct place_task *task)
{
	return &task->flow->on[task->device];
}

/*
 * Choose gate->next, the one task of the gate that is in its flow's class and can start. If no slot
 * is free, choose a task that has a slot. If a more urgent task waits for a slot, the chosen task
 * gets the class and the due time of the waiting task for its next part, so that a slot becomes
 * free soon. The flows of the old and the new gate->next are updated, except @flow, which the
 * caller updates.
 */
static __attribute__((__noinline__)) void gate_settle(struct placer *placer,
						      const struct place_flow *flow,
						      struct place_gate *gate)
{
	struct place_task *last = gate->next, *next, *waiting;

	if (last) {
		remove_class(queue_of(last), last);
		heap_insert(gate_heap(gate, last), &last->node, gated_before);
	}
	next = gate->going_on ? task_of_node(gate->going_on) : NULL;
	waiting = gate->waiting ? task_of_node(gate->waiting) : NULL;
	if (waiting && (!next || is_gated_before(waiting, next))) {
		if (*gate->n_slots == 0 || gate->n_begun < *gate->n_slots)
			next = waiting;
	} else {
		waiting = NULL;
	}
	gate->next = next;
	if (next) {
		heap_remove(gate_heap(gate, next), &next->node, gated_before);
		if (waiting) {
			next->class = waiting->class;
			next->due_ns = waiting->due_ns;
		}
		insert_class(queue_of(next), next);
		if (next->flow != flow)
			flow_update(placer, next->flow, next->device);
	}
	if (last && last->flow != flow)
		flow_update(placer, last->flow, last->device);
}

static void gate_insert(struct placer *placer, struct place_task *task)
{
	struct place_gate *gate = task->gate;

	heap_insert(gate_heap(gate, task), &task->node, gated_before);
	if (!gate->next || is_gated_before(task, gate->next))
		gate_settle(placer, task->flow, gate);
}

static void gate_remove(struct placer *placer, struct place_task *task)
{
	struct place_gate *gate = task->gate;

	if (gate->next != task) {
		heap_remove(gate_heap(gate, task), &task->node, gated_before);
		return;
	}
	remove_class(queue_of(task), task);
	gate->next = NULL;
	gate_settle(placer, task->flow, gate);
}

/* Take a slot for the first part, which is released: no other task has that slot from now on. */
static inline void gate_take_slot(struct place_task *task)
{
	if (!task->gate || task->has_slot)
		return;
	task->has_slot = true;
	task->gate->n_begun++;
}

static inline void gate_give_slot(struct placer *placer, struct place_task *task)
{
	if (!task->has_slot)
		return;
	task->has_slot = false;
	task->gate->n_begun--;
	gate_settle(placer, task->flow, task->gate);
}

/* Insert a task, except for the flow's place among the flows. */
static void insert_task(struct placer *placer, struct place_task *task, uint8_t device)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &task->flow->on[device];

	task->state = PLACE_QUEUED;
	task->device = device;
	if (!task->has_slot)
		task->gate = place_gate(task->place_plan, device);
	if (__builtin_expect(task->gate != NULL, 0))
		gate_insert(placer, task);
	else
		insert_class(fq, task);
	fq->n_queued++;
	fq->queued_ns += task->work_ns;
	queue->n_queued++;
	queue->queued_ns += task->work_ns;
	insert_movable(placer, queue, task);
}

static void remove_task(struct placer *placer, struct place_task *task)
{
	struct place_queue *queue = &placer->devices[task->device].queue;
	struct place_flow_queue *fq = &task->flow->on[task->device];

	if (__builtin_expect(task->gate != NULL, 0))
		gate_remove(placer, task);
	else
		remove_class(fq, task);
	fq->n_queued--;
	fq->queued_ns -= task->work_ns;
	queue->n_queued--;
	queue->queued_ns -= task->work_ns;
	remove_movable(queue, task);
}

static inline struct place_task *first_task(const struct place_flow_queue *fq)
{
	const struct place_class *class = &fq->classes[__builtin_ctz(fq->class_mask)];
	struct place_task *in_order, *in_heap;

	if (!class->heap)
		return task_of_link(class->in_order.next);
	in_heap = task_of_node(class->heap);
	if (list_is_empty(&class->in_order))
		return in_heap;
	in_order = task_of_link(class->in_order.next);
	return is_due_before(in_heap, in_order) ? in_heap : in_order;
}

/* --- Tasks that a device holds --- */

static inline double variance_of(const struct place_task *task)
{
	double deviation_ns = (double)task->work_ns * (double)task->spread;

	return deviation_ns * deviation_ns;
}

/* Let @n more servers work on the task from now on. */
static inline void add_servers(struct place_queue *queue, struct place_task *task, uint32_t n,
			       uint64_t now)
{
	struct place_flow_queue *fq = &task->flow->on[task->device];

	task->slots = (uint16_t)(task->slots + n);
	task->since += n * now;
	queue->running_slots += n;
	queue->running_since += n * now;
	fq->running_slots += n;
	fq->running_since += n * now;
}

/* Start a task on the free servers, of which there is at least one. */
static inline void start_task(struct place_queue *queue, struct place_task *task, uint64_t now)
{
	uint32_t n_free = queue->n_servers - queue->running_slots;

	task->is_running = true;
	task->slots = 0;
	task->since = 0;
	add_servers(queue, task, task->wanted < n_free ? task->wanted : n_free, now);
	queue->running_ns += task->work_ns;
	queue->running_variance += variance_of(task);
	if (queue->is_preemptible) {
		task->begin_ns = task->asked_ns = now;
		task->is_limited = task->flow->cpu_max > 0;
		queue->n_limited += task->is_limited;
		list_append(&queue->running, &task->running);
	}
	if (task->slots < task->wanted)
		list_append(&queue->short_handed, &task->link);
	else
		list_init(&task->link);
}

/* Let free servers join running tasks, the oldest first, while these have chunks left. */
static void join_others(struct place_queue *queue, uint64_t now)
{
	while (queue_has_free_server(queue) && !list_is_empty(&queue->short_handed)) {
		struct place_task *task = task_of_link(queue->short_handed.next);
		uint32_t n_free = queue->n_servers - queue->running_slots;
		uint64_t done_ns = task->slots * now - task->since, most;

		most = done_ns < task->work_ns ? (task->work_ns - done_ns) / SCHEDULE_CHUNK_NS : 0;
		most = most < task->wanted ? most : task->wanted;
		/* Ever less is left: a task that cannot be joined now never can. */
		if (most <= task->slots + n_free)
			list_remove(&task->link);
		if (most > task->slots)
			add_servers(queue, task,
				    most - task->slots < n_free ? (uint32_t)most - task->slots
								: n_free,
				    now);
	}
}

static void append_waiting(struct place_queue *queue, struct place_task *task, uint64_t now)
{
	task->is_running = false;
	task->begin_ns = now;
	list_append(&queue->waiting, &task->link);
	queue->n_waiting++;
	task->flow->on[task->device].n_waiting++;
	queue->waiting_ns += task->work_ns;
}

static inline void hold_task(struct place_queue *queue, struct place_task *task, uint64_t now)
{
	struct place_flow_queue *fq = &task->flow->on[task->device];

	queue->n_released++;
	fq->held_ns += task->work_ns;
	fq->n_held[task->class]++;
	list_init(&task->link);
	if (queue->n_waiting == 0 && queue_has_free_server(queue)) {
		start_task(queue, task, now);
		return;
	}
	append_waiting(queue, task, now);
}

/* Remove a running task from its servers. */
static inline void leave_servers(struct place_queue *queue, struct place_task *task)
{
	struct place_flow_queue *fq = &task->flow->on[task->device];

	if (queue->is_preemptible) {
		list_remove(&task->running);
		queue->n_limited -= task->is_limited;
	}
	fq->running_slots -= task->slots;
	fq->running_since -= task->since;
	list_remove(&task->link);
	queue->running_slots -= task->slots;
	queue->running_since -= task->since;
	queue->running_ns -= task->work_ns;
	queue->running_variance -= variance_of(task);
	/* Clear the rounding error. */
	if (queue->running_slots == 0 || queue->running_variance < 0)
		queue->running_variance = 0;
}

/* Start the tasks that have waited longest on the free servers. */
static inline void start_waiting(struct place_queue *queue, uint64_t now)
{
	while (queue->n_waiting && queue_has_free_server(queue)) {
		struct place_task *next = task_of_link(queue->waiting.next);

		list_remove(&next->link);
		queue->n_waiting--;
		next->flow->on[next->device].n_waiting--;
		queue->waiting_ns -= next->work_ns;
		start_task(queue, next, now);
	}
}

void place_not_begun(struct placer *placer, struct place_task *task, uint64_t now_ns)
{
	struct place_queue *queue = &placer->devices[task->device].queue;
	uint64_t now = schedule_time(&placer->schedule, now_ns);

	if (!task->is_running)
		return;
	leave_servers(queue, task);
	start_waiting(queue, now);
	append_waiting(queue, task, now);
}

/* Remove a task that is back; waiting tasks take over its servers. */
static void unhold_task(struct place_queue *queue, struct place_task *task, uint64_t now)
{
	struct place_flow_queue *fq = &task->flow->on[task->device];

	queue->n_released--;
	fq->held_ns -= task->work_ns;
	fq->n_held[task->class]--;
	if (task->is_running) {
		leave_servers(queue, task);
	} else {
		/* Devices need not start tasks in the order in which they got them. */
		list_remove(&task->link);
		queue->n_waiting--;
		fq->n_waiting--;
		queue->waiting_ns -= task->work_ns;
	}
	start_waiting(queue, now);
	if (!list_is_empty(&queue->short_handed))
		join_others(queue, now);
}

/* Return true if the device may be given another task. */
static bool has_room(const struct place_queue *queue, uint64_t now)
{
	uint64_t waiting_ns = queue->n_waiting * SCHEDULE_MIN_HELD_NS;
	int64_t left_ns;

	if (queue->n_waiting == 0 && queue_has_free_server(queue))
		return true;
	if (waiting_ns < queue->waiting_ns)
		waiting_ns = queue->waiting_ns;
	/* Overdue tasks may end at any time: the next tasks should be at hand then. */
	left_ns = queue_left_ns(queue, now);
	if (left_ns > 0)
		waiting_ns += (uint64_t)left_ns;
	return (float)waiting_ns * queue->pace < (float)(PLACE_RELEASE_NS * queue->n_servers);
}

/*
 * Return true if place_next() has a task. While a part of a task runs, its flow's next task is not
 * released ahead of time: once the part is back, the rest of the first task precedes it.
 */
static inline bool can_start(const struct place_queue *queue, uint8_t device, uint64_t now)
{
	const struct place_flow_queue *fq;

	if (!queue->flows)
		return false;
	fq = flow_queue_of(queue->flows);
	if (has_room(queue, now))
		return fq->n_in_parts == 0 || queue_has_free_server(queue);
	/*
	 * A running task that can be stopped for this one is as good as over. Other flows' tasks
	 * that wait there do not prevent that, or this flow would depend on those flows.
	 */
	return queue->is_preemptible &&
	       (fq->n_waiting == 0 || (float)queue->waiting_ns * queue->pace <
					      (float)(PLACE_RELEASE_NS * queue->n_servers)) &&
	       queue_gives_way(queue, fq, (uint8_t)__builtin_ctz(fq->class_mask), device, now);
}

/* --- The interface --- */

/* Convert @at_ns of the caller's clock to the scheduler's, with a limited distance. */
static inline int64_t to_due_ns(uint64_t now, uint64_t now_ns, uint64_t at_ns)
{
	const int64_t most = SCHEDULE_MAX_STEP_NS;
	int64_t ahead_ns = (int64_t)(at_ns - now_ns);

	ahead_ns = ahead_ns < most ? ahead_ns : most;
	return (int64_t)now + (ahead_ns > -most ? ahead_ns : -most);
}

/* Predict a task's work on the device, and how many servers will share it. */
static inline void predict_task(const struct placer *placer, struct place_task *task,
				uint8_t device)
{
	const struct place_queue *queue = &placer->devices[device].queue;
	float work_ns = place_work_ns(placer, task->place_plan, device, task->count);
	uint32_t most = queue->n_servers_per_task;
	float share;

	task->work_ns = schedule_work_ns(work_ns);
	task->spread = place_spread(placer, task->place_plan, device, task->count);
	task->wanted = 1;
	if (most == 1)
		return;
	share = work_ns / place_predict_ns(placer, task->place_plan, device, task->count) + 0.5f;
	/*
	 * A task that nearly all servers share counts as using all: none is free for other tasks.
	 */
	if (share >= (float)most * 0.75f)
		share = (float)most;
	if (share >= 1)
		task->wanted = (uint16_t)(share < (float)most ? share : (float)most);
}

/*
 * Compute the remaining time of a stopped task that was to take @work_ns: at least an eighth of the
 * time that it has taken, and a slice.
 */
static inline uint64_t rest_ns(const struct place_task *task, uint64_t work_ns)
{
	uint64_t done_ns = task->stopped_busy_ns, least_ns = done_ns / 8 + PLACE_SLICE_NS;

	return work_ns > done_ns + least_ns ? work_ns - done_ns : least_ns;
}

static inline void forget_parts(struct place_task *task)
{
	task->parts_count = 0;
	task->parts_exec_ns = task->parts_busy_ns = 0;
}

void place_enqueue(struct placer *placer, struct place_task *task, uint64_t now_ns)
{
	uint64_t now = schedule_time(&placer->schedule, now_ns);
	struct place_flow *flow = task->flow;
	uint8_t device = task->decision.device;

	assert(device < placer->n_devices);
	if (task->device != device)
		forget_parts(task);
	task->class = priority_class(task->priority);
	if (task->class < flow->first_class)
		task->class = flow->first_class;
	if (task->deadline_ns == UINT64_MAX)
		task->due_ns =
			to_due_ns(now, now_ns, task->admit_ns) + (int64_t)PLACE_NO_DEADLINE_NS;
	else
		task->due_ns = to_due_ns(now, now_ns, task->deadline_ns);
	/* The rest of a task takes the task's place. */
	if (task->later_ns == 0 && task->stopped_exec_ns == 0 && !task->has_slot)
		task->sequence = placer->schedule.sequence;
	placer->schedule.sequence++;
	task->later_ns = 0;
	predict_task(placer, task, device);
	if (__builtin_expect(task->stopped_exec_ns != 0, 0))
		task->work_ns = rest_ns(task, task->work_ns);
	insert_task(placer, task, device);
	flow_update(placer, flow, device);
}

void place_dequeue(struct placer *placer, struct place_task *task, uint64_t now_ns)
{
	assert(task->state == PLACE_QUEUED);
	schedule_time(&placer->schedule, now_ns);
	remove_task(placer, task);
	gate_give_slot(placer, task);
	task->state = PLACE_IDLE;
	task->later_ns = 0;
	flow_update(placer, task->flow, task->device);
}

void schedule_move(struct placer *placer, struct place_task *task, uint8_t device,
		   float predicted_ns, float other_ns)
{
	uint8_t from = task->device;

	remove_task(placer, task);
	flow_update(placer, task->flow, from);
	forget_parts(task);
	task->decision.device = device;
	/* Replace the reason for its first device. */
	task->decision.reason = RBK_REASON_COST_MODEL;
	task->decision.predicted_ns = predicted_ns;
	task->decision.other_ns = other_ns;
	predict_task(placer, task, device);
	insert_task(placer, task, device);
	flow_update(placer, task->flow, device);
	if (placer->moved)
		placer->moved(placer->context, task, from);
}

/* Choose the flow whose turn it is; a flow that has begun with a plan continues for a while. */
static struct place_flow_queue *pick_flow(struct place_queue *queue, uint8_t device,
					  struct place_task **ret_task)
{
	struct place_flow_queue *fq = flow_queue_of(queue->flows);
	struct place_task *task;

	if (queue->run_flow && queue->run_flow != fq->flow) {
		const struct place_flow_queue *run = &queue->run_flow->on[device];

		if (run->is_startable) {
			task = first_task(run);
			if (task->place_plan == queue->run_plan &&
			    task->work_ns <= queue->run_left_ns) {
				queue->run_left_ns -= task->work_ns;
				*ret_task = task;
				return (struct place_flow_queue *)run;
			}
		}
	}
	task = first_task(fq);
	if (queue->run_flow != fq->flow || queue->run_plan != task->place_plan ||
	    task->work_ns > queue->run_left_ns) {
		queue->run_flow = fq->flow;
		queue->run_plan = task->place_plan;
		queue->run_left_ns = PLACE_RELEASE_NS;
	}
	queue->run_left_ns -=
		task->work_ns < queue->run_left_ns ? task->work_ns : queue->run_left_ns;
	*ret_task = task;
	return fq;
}

/*
 * Hold back a part of a task that is longer than a submission may be, so that other tasks run in
 * between. The first part is released; the rest stays in the sums of queued work.
 */
static __attribute__((__cold__, __noinline__)) void hold_back(struct placer *placer,
							      struct place_task *task)
{
	struct place_queue *queue = &placer->devices[task->device].queue;
	uint32_t count =
		place_rows_per_submission(placer, task->place_plan, task->device, task->count);
	uint64_t work_ns;

	if (count >= task->count)
		return;
	work_ns = schedule_work_ns(place_work_ns(placer, task->place_plan, task->device, count));
	if (task->stopped_exec_ns)
		work_ns = rest_ns(task, work_ns);
	if (work_ns >= task->work_ns)
		return;
	task->later_ns = task->work_ns - work_ns;
	task->work_ns = work_ns;
	task->flow->on[task->device].queued_ns += task->later_ns;
	queue->queued_ns += task->later_ns;
	task->flow->on[task->device].n_in_parts++;
}

/* Take the rest of a task out of the sums when its part is back, or was not submitted. */
static inline void forget_held_back(struct place_queue *queue, struct place_flow_queue *fq,
				    struct place_task *task)
{
	fq->queued_ns -= task->later_ns;
	queue->queued_ns -= task->later_ns;
	fq->n_in_parts -= task->later_ns > 0;
}

struct place_task *place_next(struct placer *placer, uint8_t device, uint64_t now_ns)
{
	uint64_t now = schedule_time(&placer->schedule, now_ns);
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq;
	struct place_flow *flow;
	struct place_task *task;
	uint64_t start;

	if (placer->schedule.throttled)
		schedule_refill(placer, now);
	if (!can_start(queue, device, now))
		return NULL;

	/* Continuing a plan out of turn does not make virtual time later for any flow. */
	fq = flow_queue_of(queue->flows);
	start = queue->is_preemptible ? flow_tag(fq, now) : fq->start;
	if (virtual_after(start, queue->virtual_time))
		queue->virtual_time = start;
	fq = pick_flow(queue, device, &task);
	flow = fq->flow;

	gate_take_slot(task);
	remove_task(placer, task);
	task->state = PLACE_RELEASED;
	task->later_ns = 0;
	note_choice(queue, task);
	if (__builtin_expect(task->work_ns > placer->config.submission_max_ns, 0))
		hold_back(placer, task);
	hold_task(queue, task, now);
	fq->n_released++;
	fq->used_ns += task->work_ns;
	fq->start += flow_virtual(flow, task->work_ns);
	if (virtual_after(fq->start, queue->last_finish))
		queue->last_finish = fq->start;
	if (fq->class_mask & fq->open_mask)
		heap_update(&queue->flows, &fq->node, flow_before);
	else
		flow_update(placer, flow, device);
	if (flow->cpu_max > 0 && device == RBK_DEVICE_CPU) {
		flow_spend(placer, flow, (int64_t)task->work_ns, now);
		flow_update(placer, flow, device);
	}
	return task;
}

/* Correct a flow's charge by @ns. */
static void correct(struct placer *placer, struct place_flow *flow, uint8_t device, int64_t ns,
		    uint64_t now)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &flow->on[device];

	fq->used_ns += (uint64_t)ns;
	if (ns < 0)
		fq->start -= flow_virtual(flow, (uint64_t)-ns);
	else
		fq->start += flow_virtual(flow, (uint64_t)ns);
	if (virtual_after(fq->start, queue->last_finish))
		queue->last_finish = fq->start;
	if (fq->is_startable)
		heap_update(&queue->flows, &fq->node, flow_before);
	if (flow->cpu_max > 0 && device == RBK_DEVICE_CPU)
		flow_spend(placer, flow, ns, now);
}

void place_put_back(struct placer *placer, struct place_task *task, uint64_t now_ns)
{
	uint64_t now = schedule_time(&placer->schedule, now_ns);
	uint8_t device = task->device;
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &task->flow->on[device];

	assert(task->state == PLACE_RELEASED);
	unhold_task(queue, task, now);
	queue->n_without_choice -= !task->has_choice;
	fq->n_released--;
	forget_held_back(queue, fq, task);
	correct(placer, task->flow, device, -(int64_t)task->work_ns, now);
	task->work_ns += task->later_ns;
	/* A part that follows another one keeps its slot. */
	if (!task->goes_on)
		gate_give_slot(placer, task);
	insert_task(placer, task, device);
	flow_update(placer, task->flow, device);
	flow_set_active(queue, fq);
}

/* Learn from parts one by one, and together, because decisions are about whole tasks. */
static inline void learn(struct placer *placer, struct place_task *task, bool is_last,
			 enum place_result result, uint64_t exec_ns, uint64_t busy_ns,
			 uint64_t now_ns)
{
	uint8_t device = task->device;

	if (result != PLACE_DONE)
		forget_parts(task);
	if (result != PLACE_DONE || (is_last && task->parts_count == 0)) {
		place_learn(placer, task->place_plan, device, task->count, result, exec_ns, busy_ns,
			    now_ns);
		return;
	}
	place_learn_part(placer, task->place_plan, device, task->count, exec_ns, busy_ns, now_ns);
	task->parts_count += task->count;
	task->parts_exec_ns += exec_ns;
	task->parts_busy_ns += busy_ns;
	if (!is_last)
		return;
	place_learn(placer, task->place_plan, device, task->parts_count, result,
		    task->parts_exec_ns, task->parts_busy_ns, now_ns);
	forget_parts(task);
}

/* Make a task PLACE_IDLE that is back and has used @used_ns, and charge its flow with that. */
static void give_back(struct placer *placer, struct place_task *task, uint64_t used_ns,
		      uint64_t now)
{
	uint8_t device = task->device;
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &task->flow->on[device];

	assert(task->state == PLACE_RELEASED);
	unhold_task(queue, task, now);
	queue->n_without_choice -= !task->has_choice;
	queue->done_ns += used_ns;
	fq->n_released--;
	forget_held_back(queue, fq, task);
	task->state = PLACE_IDLE;
	if (!task->goes_on)
		gate_give_slot(placer, task);
	correct(placer, task->flow, device, (int64_t)used_ns - (int64_t)task->work_ns, now);
	flow_update(placer, task->flow, device);
	flow_set_active(queue, fq);
	queue_forgive_debts(queue);
}

static inline uint64_t believed_ns(uint64_t ns)
{
	return ns < SCHEDULE_MAX_WORK_NS ? ns : SCHEDULE_MAX_WORK_NS;
}

void place_stopped(struct placer *placer, struct place_task *task, uint64_t exec_ns,
		   uint64_t busy_ns, uint64_t now_ns)
{
	uint64_t now = schedule_time(&placer->schedule, now_ns);

	give_back(placer, task, believed_ns(busy_ns ? busy_ns : exec_ns), now);
	/* above 0 from now on */
	task->stopped_exec_ns += exec_ns ? exec_ns : 1;
	task->stopped_busy_ns += busy_ns ? busy_ns : exec_ns;
}

void place_done(struct placer *placer, struct place_task *task, enum place_result result,
		uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns)
{
	uint64_t now = schedule_time(&placer->schedule, now_ns);
	struct place_queue *queue = &placer->devices[task->device].queue;
	uint64_t used_ns = believed_ns(busy_ns ? busy_ns : exec_ns);

	give_back(placer, task, used_ns, now);
	if (result == PLACE_DONE) {
		float ratio = (float)used_ns / (float)task->work_ns;

		/* One task that hung says little about the next. */
		ratio = ratio < 64 ? ratio : 64;
		queue->pace += (ratio - queue->pace) * (1.0f / 16);
		queue->pace = queue->pace > 1 ? queue->pace : 1;
	}
	if (__builtin_expect(task->stopped_exec_ns != 0, 0)) {
		busy_ns = (busy_ns ? busy_ns : exec_ns) + task->stopped_busy_ns;
		exec_ns += task->stopped_exec_ns;
		task->stopped_exec_ns = task->stopped_busy_ns = 0;
	}
	learn(placer, task, task->later_ns == 0, result, exec_ns, busy_ns, now_ns);
}

uint32_t place_startable(struct placer *placer, uint64_t now_ns)
{
	uint64_t now = schedule_time(&placer->schedule, now_ns);
	uint32_t mask = 0;

	if (placer->schedule.throttled)
		schedule_refill(placer, now);
	for (uint32_t i = 0; i < placer->n_devices; i++) {
		if (can_start(&placer->devices[i].queue, (uint8_t)i, now))
			mask |= 1u << i;
	}
	return mask;
}

__attribute__((__cold__)) void place_recount_task(struct placer *placer, struct place_task *task)
{
	struct place_queue *queue = &placer->devices[task->device].queue;
	struct place_flow_queue *fq = &task->flow->on[task->device];
	uint64_t now = placer->schedule.now_ns;

	if (task->has_slot)
		task->gate->n_begun++;
	if (task->state == PLACE_QUEUED) {
		insert_task(placer, task, task->device);
		return;
	}
	assert(task->state == PLACE_RELEASED);
	queue->n_without_choice += !task->has_choice;
	fq->n_released++;
	fq->n_in_parts += task->later_ns > 0;
	fq->queued_ns += task->later_ns;
	queue->queued_ns += task->later_ns;
	hold_task(queue, task, now);
}
