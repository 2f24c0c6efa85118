#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tasks of plans that are cut into segments: see segment-hot.c. All functions: reactor;
 * segments_whole() also the thread that begins a segment.
 */
#include <stdbool.h>

#include "dispatch/dispatch-private.h"
#include "session/segments.h"

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

/* Return true if the task is not cut, or its slot describes its last segment. */
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
