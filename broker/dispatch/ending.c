/* SPDX-License-Identifier: MIT */
/*
 * The end of the tasks of plans that are removed, and of rings that close
 *
 * Clients can have as many tasks wait as they have entries, and end the waiting of all of them with
 * one request. So the code that visits all of them does so in batches, one per turn, as far as the
 * turn's budget allows.
 */
#include "dispatch/ending.h"
#include "dispatch/segment.h"

enum {
	/* Tasks whose waiting one turn ends */
	WAIT_BATCH = 128,
	/* Ending waits gets 1 / WAIT_PART of a turn's budget: others' tasks wait meanwhile. */
	WAIT_PART = 8,
};

/* Return true if a plan in dispatch->ending had a task to end. */
static bool end_one_of_plan(struct dispatch *dispatch)
{
	struct session_plan *plan =
		container_of(dispatch->ending.next, struct session_plan, ending);

	if (list_is_empty(&dispatch->ending))
		return false;
	/* Plans take turns. The last task of a plan removes it from the list. */
	list_remove(&plan->ending);
	list_append(&dispatch->ending, &plan->ending);
	wait_leave(container_of(plan->waiting.next, struct task, waiting));
	return true;
}

/*
 * Drop a task that waits for a device or for memory. Held tasks are cancelled by their predecessor.
 */
static void task_drop(struct dispatch *dispatch, struct task *task)
{
	if (segments_at_once(task))
		segments_cancel(dispatch, task, true);
	else if (task->phase == TASK_PLACED)
		runs_withdraw(dispatch, task);
	else if (task->phase == TASK_WAITING)
		wait_cancel(task);
	else if (task->phase == TASK_BLOCKED)
		segments_withdraw(dispatch, task);
}

static bool end_one_of_ring(struct dispatch *dispatch)
{
	struct dispatch_ring *ring =
		container_of(dispatch->closing.next, struct dispatch_ring, closing);
	struct list_node *node;

	if (list_is_empty(&dispatch->closing))
		return false;
	node = ring->in_flight.next;
	if (ring->n_to_close == 0 || node == &ring->in_flight) {
		list_remove(&ring->closing);
		return true;
	}
	/*
	 * The ring admits no more tasks, and the order of those in flight does not matter any more.
	 * Closing rings take turns.
	 */
	list_remove(&ring->closing);
	list_append(&dispatch->closing, &ring->closing);
	ring->n_to_close--;
	list_remove(node);
	list_append(&ring->in_flight, node);
	task_drop(dispatch, container_of(node, struct task, link));
	return true;
}

unsigned int waits_end(struct dispatch *dispatch)
{
	const struct turn *turn = dispatch->turn;
	const uint64_t stop_ticks = turn_used_ticks(turn) + turn->budget_ticks / WAIT_PART;
	unsigned int n = 0;

	/* Alternate: clients can close full rings faster than their tasks end. */
	while (n < WAIT_BATCH) {
		const unsigned int n_ended =
			(unsigned int)end_one_of_ring(dispatch) + end_one_of_plan(dispatch);

		if (n_ended == 0)
			break;
		n += n_ended;
		if (turn_used_ticks(turn) >= stop_ticks)
			break;
	}
	return n;
}

void waits_plan_removing(struct dispatch *dispatch, struct session_plan *plan)
{
	if (list_is_empty(&plan->waiting))
		return;
	list_append(&dispatch->ending, &plan->ending);
	waits_end(dispatch);
}

void waits_ring_closing(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	/* Slots that are kept have no task. */
	ring->n_to_close = ring->ring->n_in_flight - ring->join.n_kept;
	list_append(&dispatch->closing, &ring->closing);
	/* The next turn begins: a session that ends closes many rings at once. */
}
