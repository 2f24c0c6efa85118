/* SPDX-License-Identifier: MIT */
/*
 * The choice of running tasks that give way
 *
 * A flow is charged for a task when it is released, with all that the task is predicted to use. For
 * a task of seconds this says nothing about which flow is next in a millisecond. So flows with
 * running tasks are compared by the tag that they would have if they had been charged with the time
 * used by now (flow_tag()). Virtual time, at which other flows enter, follows the least of these
 * tags.
 *
 * A waiting task of another flow is released once a running task's flow is no longer behind its
 * own, as if the running task were nearly over. Often the waiting task begins without a stop, in
 * between or on a server that becomes free. The running task is asked to stop only when the other
 * has waited for a while, and the running task's flow is a slice ahead. So a device changes between
 * two long tasks at most once per two slices, and hardly ever if there are servers for all flows.
 */
#include "place/placer-private.h"

static inline struct place_task *task_of_running(const struct list_node *node)
{
	return container_of(node, struct place_task, running);
}

/*
 * Compute how far the flow of a running task is ahead of its share of the device, in virtual time.
 * The first task of @fq, of @class, is compared with it. Return: below 0 if that flow is behind.
 */
static inline int64_t lead_of(const struct place_task *task, const struct place_flow_queue *fq,
			      uint8_t class, uint8_t device, uint64_t now)
{
	const struct place_flow_queue *other = &task->flow->on[device];

	if (other == fq)
		return task->class > class ? INT64_MAX : -1;
	return (int64_t)(flow_tag(other, now) - flow_tag(fq, now));
}

/* Check whether another flow runs on the device, or a task of this flow in a class below @class. */
static inline bool may_give_way(const struct place_queue *queue, const struct place_flow_queue *fq,
				uint8_t class)
{
	if (queue->n_active > 1)
		return true;
	for (unsigned int i = class + 1; i < SCHEDULE_CLASSES; i++)
		if (fq->n_held[i])
			return true;
	return false;
}

bool queue_gives_way(const struct place_queue *queue, const struct place_flow_queue *fq,
		     uint8_t class, uint8_t device, uint64_t now)
{
	if (!may_give_way(queue, fq, class))
		return false;
	list_for_each (node, &queue->running)
		if (lead_of(task_of_running(node), fq, class, device, now) >= 0)
			return true;
	return false;
}

void queue_advance(struct place_queue *queue, uint8_t device, uint64_t now)
{
	uint64_t least = 0;
	bool is_first = true;

	/* A task that has run for less than a slice makes no difference. */
	if (now - task_of_running(queue->running.next)->begin_ns < PLACE_SLICE_NS)
		return;
	list_for_each (node, &queue->running) {
		uint64_t tag = flow_tag(&task_of_running(node)->flow->on[device], now);

		least = is_first || virtual_after(least, tag) ? tag : least;
		is_first = false;
	}
	if (queue->flows && virtual_after(least, flow_queue_of(queue->flows)->start))
		least = flow_queue_of(queue->flows)->start;
	if (virtual_after(least, queue->virtual_time))
		queue->virtual_time = least;
}

/* Return true if the task has run long enough to be asked to stop, or to be asked again. */
static inline bool may_ask(const struct place_task *task, uint64_t now)
{
	return now - task->asked_ns >= PLACE_SLICE_NS;
}

/* Return true if the task was asked to stop, and should be back soon. */
static inline bool is_asked(const struct place_task *task, uint64_t now)
{
	return task->asked_ns != task->begin_ns && !may_ask(task, now);
}

/* Return true if the flow's quota is used up, if charged with the time used by now. */
static inline bool is_over_quota(const struct place_task *task, uint8_t device, uint64_t now)
{
	const struct place_flow *flow = task->flow;
	const struct place_flow_queue *fq = &flow->on[device];
	uint64_t used_ns;

	if (!task->is_limited || flow->cpu_max <= 0)
		return false;
	used_ns = fq->running_slots * now - fq->running_since;
	return flow_tokens(flow, now) + (double)(int64_t)(fq->held_ns - used_ns) <= 0;
}

/*
 * Return the running task whose flow is furthest ahead. Of several, return the one that was not
 * asked for longest, since the device may not have begun the others. NULL: none gives way to
 * @waiting yet.
 */
static struct place_task *find_victim(const struct place_queue *queue,
				      const struct place_task *waiting, uint8_t device,
				      uint64_t now)
{
	const struct place_flow_queue *fq = &waiting->flow->on[device];
	struct place_task *best = NULL;
	int64_t most = 0;

	list_for_each (node, &queue->running) {
		struct place_task *task = task_of_running(node);
		int64_t lead = lead_of(task, fq, waiting->class, device, now);

		if (!may_ask(task, now) || lead < most ||
		    lead < (int64_t)flow_virtual(task->flow, PLACE_SLICE_NS))
			continue;
		if (best && lead == most && best->asked_ns <= task->asked_ns)
			continue;
		most = lead;
		best = task;
	}
	return best;
}

struct place_task *place_preempt(struct placer *placer, uint8_t device, uint64_t now_ns)
{
	struct place_queue *queue = &placer->devices[device].queue;
	uint64_t now = schedule_time(&placer->schedule, now_ns);
	struct place_task *victim = NULL;
	uint32_t n_asked = 0;

	if (list_is_empty(&queue->running) || (queue->n_waiting == 0 && queue->n_limited == 0))
		return NULL;
	list_for_each (node, &queue->running) {
		struct place_task *task = task_of_running(node);

		n_asked += is_asked(task, now);
		if (queue->n_limited > 0 && may_ask(task, now) && is_over_quota(task, device, now))
			victim = task;
	}
	/* Stop one task for each that waits. */
	list_for_each (node, &queue->waiting) {
		const struct place_task *task = container_of(node, struct place_task, link);

		if (victim || now - task->begin_ns < SCHEDULE_PATIENCE_NS)
			break;
		if (n_asked > 0)
			n_asked--;
		else
			victim = find_victim(queue, task, device, now);
	}
	if (victim)
		victim->asked_ns = now;
	return victim;
}

/* Return true if a running task, or one about to run, may have to be stopped for a waiting one. */
static bool may_preempt(const struct place_queue *queue, uint8_t device)
{
	const struct place_flow_queue *fq;
	unsigned int n = 0;

	if (list_is_empty(&queue->running))
		return false;
	if (queue->n_limited > 0)
		return true;
	if (queue->n_active > 1)
		return queue->n_waiting > 0 || queue->flows;
	fq = &task_of_running(queue->running.next)->flow->on[device];
	for (unsigned int i = 0; i < SCHEDULE_CLASSES; i++)
		n += fq->n_held[i] > 0;
	return n > 1;
}

bool place_may_preempt(const struct placer *placer)
{
	for (uint32_t i = 0; i < placer->n_devices; i++)
		if (may_preempt(&placer->devices[i].queue, (uint8_t)i))
			return true;
	return false;
}

uint64_t place_preempt_ns(const struct placer *placer, uint64_t now_ns)
{
	uint64_t now = schedule_peek(&placer->schedule, now_ns), age_ns;

	for (uint32_t i = 0; i < placer->n_devices; i++) {
		const struct place_queue *queue = &placer->devices[i].queue;

		if (!may_preempt(queue, (uint8_t)i))
			continue;
		/* The first task in the list was the first to begin. */
		age_ns = now - task_of_running(queue->running.next)->begin_ns;
		if (age_ns + SCHEDULE_PATIENCE_NS < PLACE_SLICE_NS)
			return now_ns + PLACE_SLICE_NS - age_ns;
		return now_ns + SCHEDULE_PATIENCE_NS;
	}
	return UINT64_MAX;
}
