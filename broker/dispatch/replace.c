/* SPDX-License-Identifier: MIT */
/*
 * Tasks and plans after a device was drained, or may be used again
 *
 * Administrators drain devices and force tasks to the CPU; clients decide how many tasks are queued
 * then, and how many plans there are. New tasks find the change at once. What was decided before is
 * decided anew in batches, one per turn, as far as its budget allows: first what is cached for each
 * plan, then each task that is queued.
 *
 * The next task to be visited is known by its ring and the number of its slot, which stay where
 * they are as tasks come and go. A ring that is freed is passed over. Plans are visited at the
 * front of their list and go to its end, so one that is freed leaves nothing behind either.
 */
#include "dispatch/task.h"

enum {
	/* Plans and task slots that one turn visits. */
	REPLACE_BATCH = 128,
	/* Replacing has one over that of a turn's budget at least. */
	REPLACE_PART = 8,
};

/* A run that is queued for a device which is not to be used any more, and may run elsewhere. */
static void replace_run(struct dispatch *dispatch, struct run *run)
{
	const struct task *task = run->task;
	const struct place_request request = {
		.count = task->count,
		.strategy = task->strategy,
		.flags = task->place_flags & (uint8_t)~PLACE_MAY_PARTITION,
	};
	uint8_t from = run->place.decision.device;
	struct place_decision decision;

	if (run->is_over || run->place.state != PLACE_QUEUED || from == RBK_DEVICE_CPU ||
	    run->exec.part > 0)
		return;
	decision = place_decide(dispatch->placer, task->plan->place, task->ring->flow->place,
				request, dispatch_now_ns(dispatch));
	if (decision.device == RBK_DEVICE_NONE || decision.device == from)
		return;
	place_dequeue(dispatch->placer, &run->place, dispatch_now_ns(dispatch));
	decision.predicted_ns = place_predict_ns(dispatch->placer, task->plan->place,
						 decision.device, run->place.count);
	decision.flags |= run->place.decision.flags & PLACE_BOUND;
	run->place.decision = decision;
	dispatch_moved(dispatch, &run->place, from);
	place_enqueue(dispatch->placer, &run->place, dispatch_now_ns(dispatch));
}

static struct dispatch_ring *ring_after(const struct dispatch *dispatch,
					const struct list_node *node)
{
	return node->next == &dispatch->rings
		       ? NULL
		       : container_of(node->next, struct dispatch_ring, link);
}

void dispatch_replace_ring_freed(struct dispatch *dispatch, const struct dispatch_ring *ring)
{
	if (dispatch->replace.ring != ring)
		return;
	dispatch->replace.ring = ring_after(dispatch, &ring->link);
	dispatch->replace.slot = 0;
}

static void replace_one_of_ring(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct task *task;

	if (dispatch->replace.slot >= ring->n_tasks_touched) {
		dispatch->replace.ring = ring_after(dispatch, &ring->link);
		dispatch->replace.slot = 0;
		return;
	}
	task = &ring->tasks[dispatch->replace.slot++];
	/* A free slot keeps the phase of its last task. */
	if (list_is_empty(&task->link) || task->phase != TASK_PLACED)
		return;
	replace_run(dispatch, &task->run);
	if (task->half)
		replace_run(dispatch, &task->half->run);
}

/* Return: false if nothing is left. */
static bool replace_one(struct dispatch *dispatch)
{
	if (dispatch->replace.n_plans > 0 && !list_is_empty(&dispatch->plans)) {
		dispatch->replace.n_plans--;
		dispatch_plan_review_next(dispatch);
		return true;
	}
	if (!dispatch->replace.ring)
		return false;
	replace_one_of_ring(dispatch, dispatch->replace.ring);
	return true;
}

unsigned int dispatch_replace(struct dispatch *dispatch)
{
	const uint64_t stop_ticks = turn_stop_ticks(dispatch->turn, REPLACE_PART);
	unsigned int n = 0;

	dispatch->now_ticks = clock_ticks();
	while (n < REPLACE_BATCH && replace_one(dispatch)) {
		n++;
		if (turn_used_ticks(dispatch->turn) >= stop_ticks)
			return n;
	}
	if (n < REPLACE_BATCH)
		dispatch->replace.is_begun = false;
	return n;
}

void dispatch_replace_begin(struct dispatch *dispatch, bool has_tasks)
{
	dispatch->replace.is_begun = true;
	dispatch->replace.n_plans = dispatch->n_plans;
	if (has_tasks) {
		dispatch->replace.ring = ring_after(dispatch, &dispatch->rings);
		dispatch->replace.slot = 0;
	}
	dispatch_replace(dispatch);
}
