/* SPDX-License-Identifier: MIT */
/*
 * Tasks and plans after a device was drained, or may be used again
 *
 * Administrators drain devices and force tasks to the CPU; clients decide how many tasks are queued
 * then, and how many plans there are. New tasks find the change at once. Earlier decisions are made
 * anew in slices (walk.c): first the cached answers of each plan, then the device of each queued
 * task.
 *
 * A visited plan moves from the front of the list to its end, so a plan that is freed needs no
 * bookkeeping.
 */
#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"

/*
 * Move a run that is queued for a device which is not to be used any more, if it may run elsewhere.
 */
static void replace_run(struct dispatch *dispatch, struct run *run)
{
	const struct task *task = run->task;
	struct place_request request = {
		.count = task->count,
		.strategy = task->strategy,
		.flags = task->place_flags & (uint8_t)~PLACE_MAY_PARTITION,
	};
	uint8_t from = run->place.decision.device;
	struct place_decision decision;
	float whole_ns;

	if (run->is_over || run->place.state != PLACE_QUEUED || from == RBK_DEVICE_CPU ||
	    run->exec.part > 0)
		return;
	if (task->whole)
		segments_request(task, &request);
	decision = place_decide(dispatch->placer, task->plan->place, task->ring->flow->place,
				request, dispatch_now_ns(dispatch));
	if (decision.device == RBK_DEVICE_NONE || decision.device == from)
		return;
	place_dequeue(dispatch->placer, &run->place, dispatch_now_ns(dispatch));
	/* The rows that are left take their part of the time predicted now. */
	whole_ns =
		place_predict_ns(dispatch->placer, task->plan->place, decision.device, task->count);
	decision.predicted_ns *= place_predict_ns(dispatch->placer, task->plan->place,
						  decision.device, run->place.count) /
				 whole_ns;
	decision.flags |= run->place.decision.flags & PLACE_BOUND;
	run->place.decision = decision;
	if (decision.flags & PLACE_ADVISED)
		run->place.advised_ns = segments_advised_ns(task, decision);
	dispatch_moved(dispatch, &run->place, from);
	place_enqueue(dispatch->placer, &run->place, dispatch_now_ns(dispatch));
}

static void replace_task(struct dispatch *dispatch, struct task *task)
{
	struct task *slot;

	for (uint32_t i = 0; (slot = task_slot(task, i)); i++) {
		if (slot->phase != TASK_PLACED)
			continue;
		replace_run(dispatch, &slot->run);
		if (slot->half)
			replace_run(dispatch, &slot->half->run);
	}
}

static bool replace_one(struct dispatch *dispatch)
{
	struct task *task;

	if (dispatch->replace.n_plans > 0 && !list_is_empty(&dispatch->plans)) {
		dispatch->replace.n_plans--;
		dispatch_plan_review_next(dispatch);
		return true;
	}
	if (!walk_next(dispatch, &dispatch->replace.walk, &task))
		return false;
	if (task)
		replace_task(dispatch, task);
	return true;
}

unsigned int dispatch_replace(struct dispatch *dispatch)
{
	return walk_slice(dispatch, WALK_REPLACE, replace_one);
}

void dispatch_replace_begin(struct dispatch *dispatch, bool has_tasks)
{
	dispatch->walking |= WALK_REPLACE;
	dispatch->replace.n_plans = dispatch->n_plans;
	if (has_tasks)
		walk_begin(dispatch, &dispatch->replace.walk);
	dispatch_replace(dispatch);
}
