/* SPDX-License-Identifier: MIT */
/*
 * A turn's work on tasks: entries that did not complete when they were admitted
 *
 * A turn takes finished tasks back from executors, and ends the waiting of tasks whose plan or ring
 * is being removed. It continues woken tasks and walks over all tasks, starts tasks whose
 * predecessors have completed, and releases queued runs.
 * Then it publishes completions to clients and flushes executors. Each step does a batch, so that
 * no tenant holds up the turn.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/ending.h"
#include "dispatch/segment.h"
#include "dispatch/share.h"
#include "util/clock.h"

enum {
	/* Woken tasks that one turn continues, and edges of joins that it visits */
	WAKE_BATCH = 128,
	/* Each of both gets 1 / WAKE_PART of a turn's budget: entries wait meanwhile. */
	WAKE_PART = 8,
	/* Tasks; see leave_slice(). */
	FEW_TASKS = 4,
};

/* Return the device to which a successful PREFETCH has brought its plan. */
static uint8_t prefetched_device(const struct dispatch *dispatch, const struct task *task)
{
	if (task->waiter.device != RBK_DEVICE_NONE)
		return task->waiter.device;
	for (uint32_t i = RBK_DEVICE_GPU; i < dispatch->n_executors; i++)
		if (task->plan->plan->device_state[i] == PLAN_DEVICE_READY)
			return (uint8_t)i;
	return RBK_DEVICE_NONE;
}

unsigned int dispatch_wake(struct dispatch *dispatch)
{
	const struct turn *turn = dispatch->turn;
	const uint64_t stop_ticks = turn_used_ticks(turn) + turn->budget_ticks / WAKE_PART;
	struct task *task;
	unsigned int n;

	for (n = 0; n < WAKE_BATCH && (task = dispatch->woken.first); n++) {
		/* A task that did not ask to wait is not lost with its plan. */
		const bool goes_on = task->waiter.wish == RESIDENCY_STREAM;

		task->waiter.wish = RESIDENCY_PREFETCH;
		dispatch->woken.first = task->next;
		if (!task->next)
			dispatch->woken.end = &dispatch->woken.first;
		if (task->is_cancelled || task->wait_res == -ECANCELED ||
		    (task->plan->state != SLOT_READY && !goes_on) || segments_have_failed(task)) {
			task_end(dispatch, task, -ECANCELED);
		} else if (task->opcode == RBK_OP_RUN) {
			/* Place it anew after any answer: the placer knows what is possible. */
			if (goes_on && task->wait_res == 0)
				task->whole->segments->of[task->segment].came_to =
					task->waiter.device;
			task_start(dispatch, task);
		} else {
			if (task->opcode == RBK_OP_PREFETCH && task->wait_res == 0)
				task->device = prefetched_device(dispatch, task);
			if (task->whole && segments_go_on_wish(dispatch, task))
				task_start(dispatch, task);
			else
				task_finish(dispatch, task, task->wait_res);
		}
		if (turn_used_ticks(turn) >= stop_ticks)
			return n + 1;
	}
	return n;
}

/*
 * Start tasks whose predecessors have completed.
 * Return: the edges visited.
 */
static __attribute__((__noinline__)) unsigned int start_joined(struct dispatch *dispatch)
{
	const struct turn *turn = dispatch->turn;
	const uint64_t stop_ticks = turn_used_ticks(turn) + turn->budget_ticks / WAKE_PART;
	struct task *task;
	unsigned int n = 0;

	while (n < WAKE_BATCH && !list_is_empty(&dispatch->joining)) {
		n++;
		task = join_next(dispatch);
		if (task)
			task_start(dispatch, task);
		if (turn_used_ticks(turn) >= stop_ticks)
			break;
	}
	return n;
}

/*
 * Continue the walks in dispatch.walking.
 * Return: the steps done.
 */
static __attribute__((__cold__, __noinline__)) unsigned int dispatch_walk(struct dispatch *dispatch)
{
	unsigned int n = 0;

	if (dispatch->walking & WALK_REPLACE)
		n += dispatch_replace(dispatch);
	if (dispatch->walking & WALK_LOOK)
		n += liveness_look(dispatch);
	return n;
}

/* Return true if there is work on tasks other than taking back what executors return. */
static inline bool has_other_tasks(const struct dispatch *dispatch)
{
	return (dispatch->n_queued | dispatch->flush_mask) != 0 || dispatch->woken.first ||
	       !list_is_empty(&dispatch->joining) || dispatch->dirty ||
	       dispatch_is_ending(dispatch) || dispatch->walking || dispatch->may_preempt;
}

/*
 * Close the slice. If @n_tasks tasks have ended in it and nothing else was done, @n_tasks is their
 * number, otherwise UINT32_MAX. For a few tasks their usual time replaces another reading of the
 * clock.
 */
static inline void leave_slice(struct dispatch *dispatch, uint32_t n_tasks)
{
	const struct turn_source none = {.cause = RBK_TURN_CAUSES};
	struct turn *turn = dispatch->turn;

	if (n_tasks <= FEW_TASKS)
		turn_leave_at(turn, none, turn->slice_ticks + n_tasks * dispatch->end_ticks);
	else
		turn_leave(turn, none);
}

/*
 * Do all work on tasks that are not entries any more. @has_more: the result of has_other_tasks().
 * No slice is counted if executors have nothing to return and there is no other work.
 */
static __attribute__((__noinline__)) unsigned int work_on_tasks(struct dispatch *dispatch,
								bool has_more)
{
	uint32_t n_before = dispatch->n_succeeded, n_ended = UINT32_MAX;
	const bool is_now = dispatch->is_now;
	struct turn *turn = dispatch->turn;
	unsigned int n_total = 0;
	bool is_open = true;

	if (is_now) {
		/* Another slice may have ended since the batch. */
		if (dispatch->now_ticks < turn->slice_ticks)
			dispatch->now_ticks = turn->slice_ticks;
		turn_open_at(turn, RBK_TURN_COMPLETIONS, dispatch->now_ticks);
	} else if (has_more) {
		turn_enter(turn, RBK_TURN_COMPLETIONS, 0);
		dispatch->now_ticks = turn->slice_ticks;
	} else {
		is_open = false;
	}
	if (dispatch->n_submitted > 0)
		n_total = dispatch_reap(dispatch);
	if (!is_open) {
		if (n_total == 0)
			return 0;
		/* Otherwise a task failed, was stopped, has more parts, or is the broker's own. */
		if (dispatch->n_succeeded - n_before == n_total && dispatch->n_queued == 0 &&
		    !dispatch->woken.first && list_is_empty(&dispatch->joining))
			n_ended = n_total;
	}
	if (dispatch_is_ending(dispatch))
		n_total += waits_end(dispatch);
	if (__builtin_expect(dispatch->walking, 0))
		n_total += dispatch_walk(dispatch);
	if (dispatch->woken.first)
		n_total += dispatch_wake(dispatch);
	if (!list_is_empty(&dispatch->joining))
		n_total += start_joined(dispatch);
	if (__builtin_expect(dispatch_is_shared(dispatch), 0)) {
		dispatch->now_ticks = clock_ticks();
		n_total += dispatch_release_shared(dispatch);
	} else if (dispatch->n_queued > 0) {
		if (!is_now || n_total > 0)
			dispatch->now_ticks = clock_ticks();
		n_total += dispatch_release(dispatch);
	}
	if (dispatch->may_preempt)
		dispatch_preempt(dispatch);
	if (dispatch->dirty)
		dispatch_publish_dirty(dispatch);
	if (dispatch->flush_mask)
		dispatch_flush(dispatch);
	leave_slice(dispatch, n_ended);
	return n_total;
}

unsigned int dispatch_tasks(struct dispatch *dispatch)
{
	const bool has_more = has_other_tasks(dispatch);

	return has_more || dispatch->n_submitted > 0 ? work_on_tasks(dispatch, has_more) : 0;
}
