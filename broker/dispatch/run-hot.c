/* SPDX-License-Identifier: MIT */
/*
 * Running tasks
 *
 * A task goes to one executor at a time and comes back from it. Completing one may free its
 * successor in a chain, which may complete at once, and so on: that is a loop here, not a
 * recursion, because a client decides how long its chains are.
 *
 * A task is counted on its device from when it is placed there until it comes back, also while it
 * waits for room in the executor's queue: its plan's memory stays there for so long.
 */
#include <errno.h>

#include "dispatch/task.h"
#include "util/clock.h"

enum { REAP_BATCH = 64 };

static void task_submit(struct dispatch *dispatch, struct task *task)
{
	struct executor *executor = dispatch->executors[task->device];
	struct task_queue *pending = &dispatch->pending[task->device];

	task->plan->n_on_device[task->device]++;
	atomic_store_explicit(&task->exec.state, EXEC_QUEUED, memory_order_relaxed);
	if (!pending->first && executor->ops->submit(executor, &task->exec) == 0) {
		task->phase = TASK_SUBMITTED;
		dispatch->n_submitted++;
		dispatch->flush_mask |= 1u << task->device;
		return;
	}
	task->phase = TASK_PENDING;
	task->next = NULL;
	*pending->end = task;
	pending->end = &task->next;
	dispatch->n_pending++;
}

/* A task has come back from its device, or will not go there. */
static inline void task_off_device(struct dispatch *dispatch, const struct task *task)
{
	struct session_plan *slot = task->plan;

	if (--slot->n_on_device[task->device] == 0 && (slot->leaving & 1u << task->device))
		residency_plan_idle(dispatch->options.residency, slot, task->device);
}

/*
 * The memory of the task's plan is not where the task should run. Return: true if the task has
 * completed with *ret_res; false if it waits, or an executor has it.
 */
static __attribute__((__cold__, __noinline__)) bool task_begin_constrained(
	struct dispatch *dispatch, struct task *task, struct place_decision decision, int *ret_res)
{
	bool is_nowhere = decision.device == RBK_DEVICE_NONE;

	/* An answer that is no says more than its state does now. */
	if (decision.wanted && task->wait_res == 0) {
		if (is_nowhere && task->plan->state != SLOT_READY) {
			*ret_res = -ECANCELED;
			return true;
		}
		if (task->waits_for_memory && task->plan->state == SLOT_READY) {
			if (!task->has_waited)
				note_wanted(task->plan, task->admit_ticks);
			task_wait(task, RESIDENCY_WAIT, decision.wanted);
			return false;
		}
		/* Brought, and taken away again before its turn came: it does not insist. */
		if (is_nowhere && !task->has_waited) {
			note_wanted(task->plan, task->admit_ticks);
			task_wait(task, RESIDENCY_PREFETCH, decision.wanted);
			return false;
		}
	}
	note_constraint(dispatch, task->plan, decision, task->admit_ticks);
	if (!is_nowhere) {
		/* On a GPU, where the CPU is what lacks memory. */
		if (decision.device != RBK_DEVICE_CPU)
			note_wanted(task->plan, task->admit_ticks);
		task_submit(dispatch, task);
		return false;
	}
	*ret_res = task->wait_res ? task->wait_res : -ENOMEM;
	return true;
}

/* Return: true if the task has completed with *ret_res; false if it waits or an executor has it. */
static bool task_begin(struct dispatch *dispatch, struct task *task, int *ret_res)
{
	struct place_decision decision;

	*ret_res = 0;
	if (task->is_cancelled || task->ring->ring->is_closing) {
		*ret_res = -ECANCELED;
		return true;
	}
	switch (task->opcode) {
	case RBK_OP_RUN:
		decision = place_task(&dispatch->placer, task->plan->plan, task->exec.count,
				      task->strategy);
		task->device = decision.device;
		task->reason = decision.reason;
		if (__builtin_expect(decision.reason == RBK_REASON_MEMORY_CONSTRAINT, 0))
			return task_begin_constrained(dispatch, task, decision, ret_res);
		if (decision.device == RBK_DEVICE_NONE) {
			*ret_res = task->wait_res ? task->wait_res : -ENODEV;
			return true;
		}
		if (decision.device != RBK_DEVICE_CPU && !task->has_waited)
			note_wanted(task->plan, task->admit_ticks);
		task_submit(dispatch, task);
		return false;
	case RBK_OP_PREFETCH:
	case RBK_OP_EVICT:
		task_ask_residency(dispatch, task, ret_res);
		return *ret_res != 0;
	case RBK_OP_CANCEL:
		*ret_res = dispatch_cancel(task->ring, task, task->target);
		return true;
	default:
		return true;
	}
}

/* Gives back what a task with a plan held on to. */
static void task_release_plan(struct task *task)
{
	struct session_plan *plan = task->plan;
	struct session_arena *arena;

	for (uint32_t i = 0; task->opcode == RBK_OP_RUN && i < plan->plan->n_bindings; i++) {
		arena = container_of(task->exec.refs[i].arena, struct session_arena, exec);
		if (--arena->n_in_flight == 0 && arena->state == SLOT_REMOVING)
			session_arena_idle(arena);
	}
	if (--plan->n_in_flight == 0 && plan->state == SLOT_REMOVING)
		session_plan_idle(plan);
}

static void task_post(struct dispatch *dispatch, struct task *task, int res)
{
	struct outcome outcome = {
		.res = res,
		.device = RBK_DEVICE_NONE,
		.reason = task->reason,
	};

	/* start_ticks is 0 unless an executor had it; one that began can no longer be cancelled. */
	if (task->opcode == RBK_OP_RUN && task->exec.start_ticks && res != -ECANCELED) {
		outcome.device = task->device;
		outcome.queue_ns = clock_elapsed_ns(task->admit_ticks, task->exec.start_ticks);
		outcome.exec_ns = clock_elapsed_ns(task->exec.start_ticks, task->exec.end_ticks);
		if (task->exec.end_ticks > task->deadline_ticks)
			outcome.flags = RBK_CQE_DEADLINE_MISSED;
	}
	if (task->opcode == RBK_OP_PREFETCH && task->device != RBK_DEVICE_NONE) {
		outcome.device = task->device;
		/* It is told, but nothing ran there. */
		task->ring->ring->session->stats.tasks[task->device]--;
	}
	ring_post(dispatch, task->ring, task->user_data, &outcome);
}

/* Completes @task and frees its slot. Return: the successor whose turn has come, or NULL. */
static struct task *task_complete(struct dispatch *dispatch, struct task *task, int res)
{
	struct dispatch_ring *ring = task->ring;
	struct task *successor = task->chain_next;

	task_post(dispatch, task, res);
	ring_mark_dirty(dispatch, ring);

	if (successor)
		successor->is_cancelled |= res < 0;
	if (ring->chain_last == task) {
		ring->chain_last = NULL;
		ring->chain_broken = res < 0;
	}
	if (task->plan)
		task_release_plan(task);
	list_remove(&task->link);
	list_remove(&task->same);
	task->next = ring->free_tasks;
	ring->free_tasks = task;
	ring->ring->n_in_flight--;
	return successor;
}

/* After completions: a barrier has nothing left before it; a closing ring has drained. */
static void ring_after_completion(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct task *barrier = ring->barrier;

	if (barrier && ring->ring->n_in_flight == 1) {
		ring->barrier = NULL;
		task_complete(dispatch, barrier, 0);
	}
	if (ring->ring->is_closing && ring->ring->n_in_flight == 0)
		session_ring_drained(ring->ring);
}

void task_start(struct dispatch *dispatch, struct task *task)
{
	struct dispatch_ring *ring = task->ring;
	int res;

	while (task && task_begin(dispatch, task, &res))
		task = task_complete(dispatch, task, res);
	ring_after_completion(dispatch, ring);
}

void task_finish(struct dispatch *dispatch, struct task *task, int res)
{
	struct dispatch_ring *ring = task->ring;
	struct task *successor = task_complete(dispatch, task, res);

	if (successor)
		task_start(dispatch, successor);
	else
		ring_after_completion(dispatch, ring);
}

/*
 * May a task that failed on its device run again on the CPU? Outputs are out of place, so a second
 * run is harmless; a state may be half updated, and is never run again blindly.
 */
static bool task_may_fall_back(const struct task *task)
{
	const struct plan *plan = task->plan->plan;

	return task->device != RBK_DEVICE_CPU && task->strategy != RBK_STRATEGY_ONLY_GPU &&
	       !plan->pinned && !plan->has_state && !task->ring->ring->is_closing &&
	       plan->device_state[RBK_DEVICE_CPU] == PLAN_DEVICE_READY;
}

static void task_returned(struct dispatch *dispatch, struct task *task)
{
	struct session_stats *stats = &task->ring->ring->session->stats;
	int res = task->exec.res;

	dispatch->n_submitted--;
	task_off_device(dispatch, task);
	stats->copied_bytes += task->exec.copied_bytes;
	stats->transferred_bytes += task->exec.transferred_bytes;
	dispatch->stats->copied_bytes += task->exec.copied_bytes;
	dispatch->stats->transferred_bytes += task->exec.transferred_bytes;

	/* A task that did not run, as with a tensor out of reach, says nothing about its device. */
	/* A lost device is residency's affair, and comes back as new. */
	if (res != -ECANCELED && res != -EXDEV &&
	    !(res == -EIO && residency_device_lost(dispatch->options.residency, task->device)))
		place_report(&dispatch->placer, task->device, res == -EIO);
	if ((res == -EIO || res == -ENOMEM || res == -EXDEV) && task_may_fall_back(task)) {
		task->device = RBK_DEVICE_CPU;
		task->reason = RBK_REASON_CPU_FALLBACK;
		task_submit(dispatch, task);
		return;
	}
	task_finish(dispatch, task, res);
}

unsigned int dispatch_reap(struct dispatch *dispatch)
{
	struct exec_task *done[REAP_BATCH];
	struct executor *executor;
	unsigned int n, n_total = 0;

	for (uint32_t i = 0; i < dispatch->n_executors; i++) {
		executor = dispatch->executors[i];
		n = executor->ops->reap(executor, done, REAP_BATCH);
		for (unsigned int k = 0; k < n; k++)
			task_returned(dispatch, container_of(done[k], struct task, exec));
		n_total += n;
	}
	return n_total;
}

unsigned int dispatch_resubmit(struct dispatch *dispatch)
{
	struct executor *executor;
	struct task_queue *pending;
	unsigned int n = 0;
	struct task *task;

	for (uint32_t i = 0; i < dispatch->n_executors; i++) {
		pending = &dispatch->pending[i];
		executor = dispatch->executors[i];
		while ((task = pending->first)) {
			if (!task->is_cancelled &&
			    executor->ops->submit(executor, &task->exec) != 0)
				break;

			pending->first = task->next;
			if (!pending->first)
				pending->end = &pending->first;
			dispatch->n_pending--;
			n++;
			if (task->is_cancelled) {
				task_off_device(dispatch, task);
				task_finish(dispatch, task, -ECANCELED);
				continue;
			}
			task->phase = TASK_SUBMITTED;
			dispatch->n_submitted++;
			dispatch->flush_mask |= 1u << i;
		}
	}
	return n;
}

int dispatch_cancel(struct dispatch_ring *ring, const struct task *self, uint64_t user_data)
{
	uint8_t expected = EXEC_QUEUED;
	struct task *task;

	/* In one bucket, so that nobody gains by filling a ring and looking for what is not there.
	 */
	list_for_each_safe (node, task_bucket(ring, user_data)) {
		task = container_of(node, struct task, same);
		if (task->is_cancelled)
			list_remove(&task->same);
		if (task == self || task->user_data != user_data || task->is_cancelled)
			continue;

		switch (task->phase) {
		case TASK_HELD:
		case TASK_PENDING:
		case TASK_WOKEN:
			task->is_cancelled = true;
			return 0;
		case TASK_SUBMITTED:
			/* Pairs with exec_task_begin(): one of the two wins. */
			if (!atomic_compare_exchange_strong_explicit(
				    &task->exec.state, &expected, EXEC_CANCELLED,
				    memory_order_acq_rel, memory_order_acquire))
				return -EALREADY;
			task->is_cancelled = true;
			return 0;
		case TASK_WAITING:
			task->is_cancelled = true;
			task_stop_waiting(task);
			return 0;
		default:
			return -EALREADY;
		}
	}
	return -ENOENT;
}
