/* SPDX-License-Identifier: MIT */
/*
 * Quotas and waits: what a flow may use, and how long it would wait
 *
 * A bucket holds processor time and fills at the flow's rate. A task takes out its predicted time
 * when it starts, and the difference when it is back; the reactor's work is taken out at once. A
 * bucket may go below zero, so long tasks run, and are paid for before the next. It is updated only
 * when it is read: there is no timer per flow, but a heap of the throttled flows by refill_ns.
 */
#include <math.h>

#include "place/placer-private.h"

void flow_sync_tokens(struct place_flow *flow, uint64_t now)
{
	flow->tokens_ns = flow_tokens(flow, now);
	flow->tokens_at_ns = now;
}

/*
 * Return true if a quota keeps a flow from starting tasks. Until tasks are back the quota is kept
 * by their predictions. So few are released at a time: servers have the next task at hand, but
 * wrong predictions cost no more than those tasks.
 */
static inline bool is_held_by_quota(const struct place_queue *queue, const struct place_flow *flow,
				    const struct place_flow_queue *fq)
{
	if (__builtin_expect(flow->cpu_max <= 0, 1) || fq != &flow->on[RBK_DEVICE_CPU])
		return false;
	return flow->is_throttled || fq->n_released >= SCHEDULE_QUOTA_DEPTH * queue->n_servers;
}

void flow_update(struct placer *placer, struct place_flow *flow, uint8_t device)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &flow->on[device];
	bool is_startable = (fq->class_mask & fq->open_mask) && !is_held_by_quota(queue, flow, fq);

	if (is_startable == fq->is_startable)
		return;
	fq->is_startable = is_startable;
	if (is_startable) {
		if (!list_is_empty(&queue->running))
			queue_advance(queue, device, placer->schedule.now_ns);
		if (virtual_after(queue->virtual_time, fq->start))
			fq->start = queue->virtual_time;
		heap_insert(&queue->flows, &fq->node, flow_before);
		/* End another flow's sequence of tasks of one plan. */
		if (queue->run_flow != flow)
			queue->run_flow = NULL;
	} else {
		heap_remove(&queue->flows, &fq->node, flow_before);
		queue_forgive_debts(queue);
	}
	flow_set_active(queue, fq);
}

void place_flow_open(struct placer *placer, struct place_flow *flow, uint8_t device,
		     uint8_t n_classes)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &flow->on[device];
	const bool was_closed = fq->open_mask != SCHEDULE_ALL_OPEN;

	fq->open_mask = (uint8_t)((1u << n_classes) - 1);
	queue->n_closed -= was_closed;
	queue->n_closed += fq->open_mask != SCHEDULE_ALL_OPEN;
	flow_update(placer, flow, device);
}

void place_flow_classes(const struct place_flow *flow, uint8_t device, uint8_t *ret_queued,
			uint8_t *ret_released)
{
	const struct place_flow_queue *fq = &flow->on[device];

	*ret_queued = fq->class_mask;
	*ret_released = 0;
	if (fq->n_released == 0)
		return;
	for (unsigned int i = 0; i < SCHEDULE_CLASSES; i++)
		*ret_released |= (uint8_t)((fq->n_held[i] > 0) << i);
}

bool place_task_is_held_back(const struct place_task *task)
{
	return task->state == PLACE_QUEUED &&
	       !(task->flow->on[task->device].open_mask & 1u << task->class);
}

static void flow_release(struct placer *placer, struct place_flow *flow)
{
	heap_remove(&placer->schedule.throttled, &flow->node, throttled_before);
	flow->is_throttled = false;
	flow_update(placer, flow, RBK_DEVICE_CPU);
}

void flow_spend(struct placer *placer, struct place_flow *flow, int64_t ns, uint64_t now)
{
	double wait_ns;

	flow_sync_tokens(flow, now);
	flow->tokens_ns -= (double)ns;
	if (flow->tokens_ns > 0) {
		if (flow->is_throttled && ns < 0)
			flow_release(placer, flow);
		return;
	}
	wait_ns = (double)SCHEDULE_REFILL_NS - flow->tokens_ns / flow->cpu_max;
	wait_ns = wait_ns < (double)SCHEDULE_MAX_STEP_NS ? wait_ns : (double)SCHEDULE_MAX_STEP_NS;
	if (flow->is_throttled) {
		heap_remove(&placer->schedule.throttled, &flow->node, throttled_before);
	} else {
		flow->is_throttled = true;
		flow_update(placer, flow, RBK_DEVICE_CPU);
	}
	flow->refill_ns = now + (uint64_t)wait_ns;
	heap_insert(&placer->schedule.throttled, &flow->node, throttled_before);
}

void schedule_refill(struct placer *placer, uint64_t now)
{
	struct place_schedule *schedule = &placer->schedule;

	while (schedule->throttled && throttled_flow_of(schedule->throttled)->refill_ns <= now)
		flow_release(placer, throttled_flow_of(schedule->throttled));
}

bool place_flow_is_throttled(struct place_flow *flow, uint64_t now_ns)
{
	if (!flow->is_throttled)
		return false;
	schedule_refill(flow->placer, schedule_time(&flow->placer->schedule, now_ns));
	return flow->is_throttled;
}

uint64_t place_refill_ns(const struct placer *placer, uint64_t now_ns)
{
	const struct place_schedule *schedule = &placer->schedule;
	uint64_t now = schedule_peek(schedule, now_ns);
	uint64_t refill_ns;

	if (!schedule->throttled)
		return UINT64_MAX;
	refill_ns = throttled_flow_of(schedule->throttled)->refill_ns;
	return refill_ns > now ? now_ns + (refill_ns - now) : now_ns;
}

void place_flow_charge(struct placer *placer, struct place_flow *flow, uint8_t device, uint64_t ns)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &flow->on[device];

	ns = ns < SCHEDULE_MAX_WORK_NS ? ns : SCHEDULE_MAX_WORK_NS;
	fq->used_ns += ns;
	if (!fq->is_startable && virtual_after(queue->virtual_time, fq->start))
		fq->start = queue->virtual_time;
	fq->start += flow_virtual(flow, ns);
	if (virtual_after(fq->start, queue->last_finish))
		queue->last_finish = fq->start;
	if (fq->is_startable)
		heap_update(&queue->flows, &fq->node, flow_before);
	else if (!queue->flows && queue->n_released == 0)
		queue->virtual_time = queue->last_finish;
	if (flow->cpu_max > 0 && device == RBK_DEVICE_CPU)
		flow_spend(placer, flow, (int64_t)ns, placer->schedule.now_ns);
}

/*
 * Estimate how much of the tasks' time goes by per time of the engines, because the device works
 * for others meanwhile. Tasks may wait for more than that, as for a copy on the CPU; but others
 * cannot have taken more time than they had. The mean of some calls counts, without those in which
 * there was hardly any task.
 */
void place_note_engine_time(struct placer *placer, uint8_t device, uint64_t own_ns,
			    uint64_t others_ns)
{
	struct place_queue *queue = &placer->devices[device].queue;
	const float tasks_ns = (float)(queue->done_ns - queue->noted_ns);
	float factor = 1;

	if (own_ns >= SCHEDULE_LEAST_ENGINE_NS && tasks_ns > (float)own_ns) {
		factor = tasks_ns / (float)own_ns;
		if (factor > 1 + (float)others_ns / (float)own_ns)
			factor = 1 + (float)others_ns / (float)own_ns;
	}
	queue->outside_factor += (factor - queue->outside_factor) * SCHEDULE_OUTSIDE_SHARE;
	queue->advance = queue->virtual_time - queue->noted_virtual;
	queue->noted_ns = queue->done_ns;
	queue->noted_virtual = queue->virtual_time;
}

/*
 * Return how much later than virtual time the flow's next task starts, without the predicted time
 * of tasks that have not taken it yet.
 */
static uint64_t flow_owed(const struct placer *placer, const struct place_queue *queue,
			  const struct place_flow_queue *fq)
{
	const uint64_t tag = flow_tag(fq, placer->schedule.now_ns);

	return virtual_after(tag, queue->virtual_time) ? tag - queue->virtual_time : 0;
}

void place_flow_charge_outside(struct placer *placer, struct place_flow *flow, uint8_t device,
			       uint64_t ns)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &flow->on[device];
	const float task_ns = (float)ns * queue->outside_factor;
	const uint64_t owed = flow_owed(placer, queue, fq);
	uint64_t more =
		flow_virtual(flow, task_ns < (float)SCHEDULE_MAX_WORK_NS ? (uint64_t)task_ns
									 : SCHEDULE_MAX_WORK_NS);

	if (owed >= queue->advance)
		return;
	more = more < queue->advance - owed ? more : queue->advance - owed;
	fq->outside += more;
	/* Tasks have not used that time: last_finish stays. */
	if (!fq->is_startable && virtual_after(queue->virtual_time, fq->start))
		fq->start = queue->virtual_time;
	fq->start += more;
	if (fq->is_startable)
		heap_update(&queue->flows, &fq->node, flow_before);
}

void place_flow_limit_debt(struct placer *placer, struct place_flow *flow, uint8_t device)
{
	struct place_queue *queue = &placer->devices[device].queue;
	struct place_flow_queue *fq = &flow->on[device];
	const uint64_t owed = flow_owed(placer, queue, fq);
	uint64_t less;

	fq->outside = fq->outside < owed ? fq->outside : owed;
	if (owed <= queue->advance || fq->outside == 0)
		return;
	less = owed - queue->advance;
	less = less < fq->outside ? less : fq->outside;
	fq->outside -= less;
	fq->start -= less;
	if (fq->is_startable)
		heap_update(&queue->flows, &fq->node, flow_before);
}

/*
 * Return the mean of the part above 0 of a normal distribution, x + phi(x) / Phi(x) in its
 * deviations; within a few hundredths, without exp(). A task that is later than such a distribution
 * explains is predicted to need another eighth of its delay: something has changed.
 */
float queue_nearly_done_ns(float left_ns, float variance)
{
	float deviation_ns = variance > 0 ? sqrtf(variance) : 0, x, far, late_ns;

	if (left_ns > 0) {
		if (deviation_ns <= 0)
			return left_ns;
		x = left_ns / deviation_ns;
		far = (1 - x / 4) * (1 - x / 4);
		return left_ns + deviation_ns * 0.8f * far * far;
	}
	late_ns = left_ns * -0.125f;
	if (deviation_ns <= 0)
		return late_ns;
	x = left_ns / deviation_ns;
	deviation_ns *= 0.8f / (1 - 0.55f * x);
	return deviation_ns > late_ns ? deviation_ns : late_ns;
}

uint64_t place_queue_backlog_ns(const struct placer *placer, uint8_t device, uint64_t now_ns)
{
	const struct place_queue *queue = &placer->devices[device].queue;
	uint64_t now = schedule_peek(&placer->schedule, now_ns);
	float work_ns =
		(float)(queue->queued_ns + queue->waiting_ns) + queue_running_ns(queue, now);

	return (uint64_t)(work_ns * queue->inverse_servers * placer->devices[device].slowdown);
}

/*
 * Return the virtual time until a flow has had its turn with all its queued tasks, in ns of one
 * server.
 */
static inline float turn_ns(const struct place_queue *queue, const struct place_flow *flow,
			    const struct place_flow_queue *fq)
{
	uint64_t turns = flow_virtual(flow, fq->queued_ns);
	uint64_t weight = queue->active_weight + (fq->is_active ? 0 : flow->weight);

	if (virtual_after(fq->start, queue->virtual_time))
		turns += fq->start - queue->virtual_time;
	return (float)turns * (float)weight *
	       (1.0f / (1u << (SCHEDULE_INVERSE_LOG2 - SCHEDULE_VIRTUAL_SHIFT)));
}

uint64_t place_flow_wait_ns(const struct placer *placer, const struct place_flow *flow,
			    uint8_t device, uint64_t now_ns)
{
	const struct place_queue *queue = &placer->devices[device].queue;
	const struct place_flow_queue *fq = &flow->on[device];
	uint64_t now = schedule_peek(&placer->schedule, now_ns);
	float released_ns = 0, queued_ns, turns_ns, wait_ns;

	/* With a free server released tasks do not delay this one. */
	if (!queue_has_free_server(queue))
		released_ns = (float)queue->waiting_ns + queue_running_ns(queue, now);
	/*
	 * Tasks that run, or that the device was given earlier, are stopped for a flow that is
	 * behind.
	 */
	if (queue->is_preemptible && fq->n_released == 0) {
		float slices_ns =
			(float)(PLACE_SLICE_NS * 2 * (queue->n_servers + queue->n_waiting));

		released_ns = released_ns < slices_ns ? released_ns : slices_ns;
	}
	queued_ns = (float)queue->queued_ns;
	turns_ns = turn_ns(queue, flow, fq);
	wait_ns = (released_ns + (turns_ns < queued_ns ? turns_ns : queued_ns)) *
		  queue->inverse_servers *
		  place_of_others(flow, device, placer->devices[device].slowdown);
	if (__builtin_expect(flow->cpu_max > 0 && device == RBK_DEVICE_CPU, 0)) {
		double missing_ns = (double)fq->queued_ns - flow_tokens(flow, now);
		float quota_ns = (float)(missing_ns / flow->cpu_max);

		if (flow->is_throttled && quota_ns < (float)SCHEDULE_REFILL_NS)
			quota_ns = (float)SCHEDULE_REFILL_NS;
		wait_ns = quota_ns > wait_ns ? quota_ns : wait_ns;
	}
	return wait_ns < (float)SCHEDULE_MAX_STEP_NS ? (uint64_t)wait_ns : SCHEDULE_MAX_STEP_NS;
}
