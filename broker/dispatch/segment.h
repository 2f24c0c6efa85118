#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tasks of plans that are cut into segments: see segment-hot.c. All functions: reactor;
 * segments_whole() also the thread that begins a segment.
 */
#include <stdbool.h>

#include "dispatch/dispatch-private.h"
#include "place/graph.h"
#include "session/segments.h"

/*
 * Marks functions that run while a thread crashes and the others go on. They read what the reactor
 * may be changing: at worst a mark is missing, and another crash sets it. A ring that is removed
 * meanwhile is its own neighbour in the list. See blame.c.
 */
#define AT_A_CRASH __attribute__((__no_sanitize__("thread")))

/* A slot that describes a segment of a task beside the one that the task's own slot describes */
struct segment_slot {
	struct task task;
	struct exec_ref refs[RBK_MAX_REFS];
};
_Static_assert(sizeof(struct segment_slot) <= SEGMENT_SLOT_BYTES &&
		       SEGMENT_SLOT_BYTES % _Alignof(struct segment_slot) == 0 &&
		       _Alignof(struct segment_slot) <= _Alignof(max_align_t),
	       "the slots of a set lie one after the other in memory of calloc()");

/* Return true if segments of a task run at once; @task may be any of its slots. */
AT_A_CRASH static inline bool segments_at_once(const struct task *task)
{
	return __builtin_expect(task->whole && task->set, 0) && task->set->n_slots > 1;
}

/* Return slot @i, below n_slots, of a task whose segments run at once; 0: its own. */
AT_A_CRASH static inline struct task *segments_slot(const struct segment_set *set, uint32_t i)
{
	return i == 0 ? set->task
		      : (struct task *)(void *)((uint8_t *)set->slots +
						(size_t)(i - 1) * SEGMENT_SLOT_BYTES);
}

/*
 * Return the number of what @slot describes among the task's segments, those of each micro-batch
 * after those of the one before.
 */
static inline uint32_t segments_instance(const struct task *slot)
{
	return slot->batch * slot->whole->segments->n + slot->segment;
}

/* Return a bit for each of them, of a task whose segments run at once. */
static inline uint64_t segments_all(const struct segment_set *set)
{
	return UINT64_MAX >> (64 - set->n_batches * set->task->whole->segments->n);
}

/* Return those that @slot needs. */
static inline uint64_t segments_needs(const struct task *slot)
{
	const struct session_segments *segments = slot->whole->segments;

	return segments->of[slot->segment].cut.needs << slot->batch * segments->n;
}

/* Return true if the task of @slot is not over with the segment that the slot describes. */
static inline bool segments_are_left(const struct task *slot)
{
	if (segments_at_once(slot))
		return slot->set->n_busy > 1 || slot->set->begun != segments_all(slot->set);
	return slot->whole && slot->segment + 1u < slot->whole->segments->n;
}

/* Return the task that a slot is of, which may be the task's own. */
static inline const struct task *segments_task(const struct task *slot)
{
	return segments_at_once(slot) ? slot->set->task : slot;
}

/* Return slot @i of any task, NULL: it has no more. Only those in TASK_PLACED have runs. */
AT_A_CRASH static inline struct task *task_slot(struct task *task, uint32_t i)
{
	if (!segments_at_once(task))
		return i == 0 ? task : NULL;
	return i < task->set->n_slots ? segments_slot(task->set, i) : NULL;
}

/* A RUN as its entry describes it, whatever segment its slot describes. */
struct whole_run {
	const struct plan *plan;
	const struct exec_ref *refs;
	uint32_t count;
};

static inline struct whole_run segments_whole(const struct task *task)
{
	const struct segment_set *set = task->set;

	if (task->whole && set)
		return (struct whole_run){task->whole->plan, set->refs, set->count};
	return (struct whole_run){task->plan->plan, task->run.refs, task->count};
}

/* Return true if the task is not cut, or @task describes its last segment. */
static inline bool segments_is_last(const struct task *task)
{
	return !task->whole || task->segment + 1u == task->whole->segments->n;
}

/* Prepare the dispatcher's part of a plan that is cut, beside those of its segments. */
void segments_ready(struct session_plan *plan);

/*
 * Begin a RUN of a plan that is cut: from now on the task's slot describes the first segment.
 * Return: false: the task waits for a crossing block; or, with *ret_res set, it ends, since it is
 * for GPUs alone, has states, and would reach a segment that no GPU can run.
 */
bool segments_begin(const struct dispatch *dispatch, struct task *task, int *ret_res);

/* Note a run of the present segment that a device has returned, before its time is counted. */
void segments_run_returned(const struct dispatch *dispatch, const struct run *run);

/*
 * Go on after the task's present segment ended with task->res.
 * Return: true: the slot describes the next segment, which is to be started; false: the task ends.
 */
bool segments_go_on(struct task *task);

/*
 * Have a slot describe segment @i of the task that it is of, or of its micro-batch @batch, which is
 * to be started.
 */
void segments_describe(struct task *slot, uint32_t i, uint32_t batch);

/* Return the @i-th segment in the order in which those of a task, or of a micro-batch, begin. */
static inline uint32_t segments_in_order(const struct session_segments *segments,
					 const struct segment_set *set, uint32_t i)
{
	/* There is no schedule before a task has begun without micro-batches, nor for chains. */
	return set->n_batches > 1 ? i : segments->graph->order[i];
}
/* Add what a slot says of its segment, which has ended, to what the set says of the task. */
void segments_add_up(struct task *slot);

/* segment-graph-hot.c */

/*
 * Return true if segments are placed for all of the plan's tasks in flight together. A plan without
 * a graph has one device.
 */
static inline bool segments_in_stream(const struct session_segments *segments)
{
	return segments->n_begun > 1 && segments->graph;
}

/* Return true if advice was made for a task of about as many rows as one that has begun. */
static inline bool segments_fit_advice(const struct session_segments *segments, uint32_t count)
{
	return count / 2 <= segments->advised_count && segments->advised_count / 2 <= count;
}

/*
 * Have a decision about a segment regard the other tasks of the plan in flight, if any. An urgent
 * task has no regard for others.
 */
static inline void segments_request(const struct task *slot, struct place_request *request)
{
	const struct session_segments *segments = slot->whole->segments;

	if (!segments_in_stream(segments) || slot->priority == RBK_PRIORITY_URGENT ||
	    slot->place_flags & PLACE_UNADVISED || !segments_fit_advice(segments, slot->set->count))
		return;
	request->flags |= PLACE_IN_STREAM;
	request->n_in_flight = (uint16_t)segments->n_begun;
}

/*
 * Update the advice for a plan whose segments run at once, or that has several tasks in flight, for
 * @task, which begins: the order of segments, and what the placer adds to the completion on each
 * device, unless the task has another size.
 */
void segments_advise(const struct dispatch *dispatch, struct session_segments *segments,
		     struct task *task);

/*
 * Return when a slot's segment should end, which was placed with advice by @decision: in a stream
 * as predicted now, else as the schedule has it.
 */
uint64_t segments_advised_ns(const struct task *slot, struct place_decision decision);

/* stream-hot.c */

/*
 * Choose the number of micro-batches of @task, which is about to begin with @set. If it is worth it
 * to have several, set what the set has of them, and have the task placed without advice, and no
 * part of it split over two devices.
 */
void stream_begin(const struct dispatch *dispatch, struct task *task, struct segment_set *set);

/* at-once-hot.c */

/*
 * As segments_go_on(), for a task whose segments run at once: note that the segment of slot @slot
 * ended with *res. If it failed, the others are stopped. Return: the task if it ends, with *res set
 * to its result; otherwise NULL.
 */
struct task *segments_slot_ended(struct dispatch *dispatch, struct task *slot, int *res);

/*
 * Have a free slot describe the next segment that can begin, which is to be started.
 * Return: that slot; NULL: no segment can begin, or no slot is free.
 */
struct task *segments_next(struct segment_set *set);

/*
 * Cancel a task whose segments run at once: it ends with -ECANCELED once all slots have returned.
 * Return: false if one has begun that cannot be stopped, unless @is_forced; nothing has changed
 * then.
 */
bool segments_cancel(struct dispatch *dispatch, struct task *task, bool is_forced);

/* Return true if a segment that is about to begin is of no use any more, since another failed. */
static inline bool segments_have_failed(const struct task *task)
{
	return segments_at_once(task) && task->set->res != 0;
}

/* segment-hot.c */

/*
 * Begin a PREFETCH or an EVICT, or go on after the answer for the present segment, likewise. A
 * PREFETCH that does not wait ends with the segments that its device has room for.
 */
void segments_begin_wish(struct task *task);
bool segments_go_on_wish(const struct dispatch *dispatch, struct task *task);

/* Return true if a segment that updates a state has ended, and the task goes on. */
static inline bool segments_have_updated(const struct task *task)
{
	return __builtin_expect(task->whole && task->set, 0) && task->set->has_updated;
}

/* Wake a TASK_BLOCKED, which does not wait for a crossing block any more. */
void segments_withdraw(struct dispatch *dispatch, struct task *task);

/*
 * End a task that has begun a segment, or has a crossing block: its slot describes the whole task
 * again. The task that has waited longest for the block gets it, and is woken.
 * Return: @res, or the error of a task that has updated states where @res says that it has not.
 */
int segments_end(struct dispatch *dispatch, struct task *task, int res);

/* weights.c */

/*
 * Have a task wait until its segment, which was to run on the CPU for lack of memory, is on
 * @device, if it is expected to end sooner so. @device may be RBK_DEVICE_NONE. Cold. Return: true
 * if the task waits, as after wait_begin().
 */
bool weights_wait(struct dispatch *dispatch, struct task *task, uint8_t device);

/* Forget a segment that was to come, of a plan that is being removed and may not be cut. */
void weights_forget(struct dispatch *dispatch, struct session_plan *plan);

/* Bring the segment after that of @task, which has just been placed, if that pays. Cold. */
void weights_ahead(struct dispatch *dispatch, const struct task *task);

/* Do so if a task of the plan has waited for that device's memory, which this task would use. */
static inline void weights_go_on(struct dispatch *dispatch, const struct task *task,
				 struct place_decision decision)
{
	if (__builtin_expect(task->whole && task->whole->segments->streamed_to, 0) &&
	    (decision.device == task->whole->segments->streamed_to ||
	     decision.wanted == task->whole->segments->streamed_to))
		weights_ahead(dispatch, task);
}
