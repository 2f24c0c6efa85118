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
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/ending.h"

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

void wait_leave(struct task *task)
{
	struct dispatch *dispatch = task->ring->dispatch;

	if (task->waiter.wish != RESIDENCY_STREAM) {
		wait_cancel(task);
		return;
	}
	/* It never asked to wait: it goes on as if there were no room. */
	residency_withdraw(dispatch->options.residency, &task->waiter);
	task_wake(dispatch, task, -ENOMEM);
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
