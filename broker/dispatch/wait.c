/* SPDX-License-Identifier: MIT */
/*
 * Waiting for device memory
 *
 * A task that asks residency is a task like any other, with its slot, its place in a chain and its
 * share of the ring: a RUN that waits for its plan's memory, a PREFETCH, an EVICT. While such a
 * task waits it is in its plan's list, so that it ends with the plan. It is also in its ring's list
 * of tasks in flight, so that it ends with the ring.
 *
 * Residency answers at any time, from a handler of the loop or from residency_turn(). No task may
 * be completed there, because that may start other tasks. So an answer only puts the task into the
 * queue dispatch.woken, as cancelling does, and dispatch_work() continues it. However its waiting
 * ends, a task enters that queue exactly once.
 *
 * Clients can have as many tasks wait as they have entries, and end the waiting of all of them with
 * one request. So the code that visits all of them does so in batches, one per turn, as far as the
 * turn's budget allows.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"

enum {
	/* Tasks whose waiting one turn ends */
	WAIT_BATCH = 128,
	/* Ending waits gets 1 / WAIT_PART of a turn's budget: others' tasks wait meanwhile. */
	WAIT_PART = 8,
};

static void task_wake(struct dispatch *dispatch, struct task *task, int res)
{
	list_remove(&task->waiting);
	if (list_is_empty(&task->plan->waiting))
		list_remove(&task->plan->ending);
	task->phase = TASK_WOKEN;
	task->wait_res = res;
	task->next = NULL;
	*dispatch->woken.end = task;
	dispatch->woken.end = &task->next;
}

static void on_answer(struct residency_waiter *waiter, int res)
{
	struct task *task = container_of(waiter, struct task, waiter);

	/*
	 * The plan was evicted on request. A PREFETCH or EVICT is cancelled; a RUN that cannot run
	 * elsewhere lacks the memory.
	 */
	if (res == -EINTR)
		res = task->opcode == RBK_OP_RUN ? -ENOMEM : -ECANCELED;
	task_wake(task->ring->dispatch, task, res);
}

void wait_begin(struct task *task, enum residency_wish wish, uint8_t device)
{
	struct dispatch *dispatch = task->ring->dispatch;

	task->phase = TASK_WAITING;
	task->has_waited = true;
	task->waiter.done = on_answer;
	list_append(&task->plan->waiting, &task->waiting);
	residency_ask(dispatch->options.residency, &task->plan->memory, &task->waiter, wish,
		      device);
}

void wait_cancel(struct task *task)
{
	struct dispatch *dispatch = task->ring->dispatch;

	residency_withdraw(dispatch->options.residency, &task->waiter);
	task_wake(dispatch, task, -ECANCELED);
}

void wait_by_opcode(struct dispatch *dispatch, struct task *task, int *ret_res)
{
	uint8_t device = RBK_DEVICE_NONE;
	enum residency_wish wish = task->opcode == RBK_OP_EVICT ? RESIDENCY_EVICT
				   : task->waits_for_memory     ? RESIDENCY_WAIT
								: RESIDENCY_PREFETCH;

	if (task->plan->state != SLOT_READY) {
		*ret_res = -ECANCELED;
		return;
	}
	if (task->strategy & RBK_STRATEGY_NAMED)
		device = task->strategy & (uint8_t)~RBK_STRATEGY_NAMED;
	if (device == RBK_DEVICE_CPU ||
	    (device != RBK_DEVICE_NONE && device >= dispatch->n_executors)) {
		*ret_res = -ENODEV;
		return;
	}
	wait_begin(task, wish, device);
}

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
	wait_cancel(container_of(plan->waiting.next, struct task, waiting));
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
	ring->n_to_close = ring->ring->n_in_flight;
	list_append(&dispatch->closing, &ring->closing);
	/* The next turn begins: a session that ends closes many rings at once. */
}
