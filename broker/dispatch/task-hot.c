/* SPDX-License-Identifier: MIT */
/*
 * Tasks: begin, completion, chains
 *
 * A task whose turn has come is placed, and is queued for a device (run-hot.c) or waits for memory
 * (wait.c). Completing a task may free its successor in a chain, which may complete at once, and so
 * on: that is a loop here, not a recursion, because a client decides how long its chains are.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/record.h"
#include "dispatch/segment.h"
#include "dispatch/undo.h"

/* Runs that are taken back from one executor in one turn. */
enum { REAP_BATCH = 64 };

/*
 * Begin a task whose plan lacks memory on the device where the task should run.
 * Return: true if the task has completed with *ret_res; false if it waits, or is placed.
 */
static __attribute__((__cold__, __noinline__)) bool task_begin_constrained(
	struct dispatch *dispatch, struct task *task, struct place_decision decision, int *ret_res)
{
	bool is_nowhere = decision.device == RBK_DEVICE_NONE;

	/* A refusal by residency says more than the plan's current state. */
	if (decision.wanted && task->wait_res == 0) {
		if (is_nowhere && task->plan->state != SLOT_READY) {
			*ret_res = -ECANCELED;
			return true;
		}
		if (task->waits_for_memory && task->plan->state == SLOT_READY) {
			if (!task->has_waited)
				note_wanted(task->plan, task->admit_ticks, task->batch);
			wait_begin(task, RESIDENCY_WAIT, decision.wanted);
			return false;
		}
		/*
		 * Do not wait again if the plan was loaded and evicted before the task's turn came.
		 */
		if (is_nowhere && !task->has_waited) {
			note_wanted(task->plan, task->admit_ticks, task->batch);
			wait_begin(task, RESIDENCY_PREFETCH, decision.wanted);
			return false;
		}
		if (!is_nowhere && weights_wait(dispatch, task, decision.wanted)) {
			note_wanted(task->plan, task->admit_ticks, task->batch);
			return false;
		}
	}
	note_constraint(dispatch, task->plan, decision, task->admit_ticks, task->batch);
	if (!is_nowhere) {
		/* The task runs on a GPU, because the CPU lacks the memory. */
		if (decision.device != RBK_DEVICE_CPU)
			note_wanted(task->plan, task->admit_ticks, task->batch);
		runs_place(dispatch, task, decision);
		weights_go_on(dispatch, task, decision);
		return false;
	}
	*ret_res = task->wait_res ? task->wait_res : -ENOMEM;
	return true;
}

static struct place_decision task_decide(struct dispatch *dispatch, const struct task *task)
{
	uint64_t left_ns = 0;
	struct place_request request = {
		.count = task->count,
		.strategy = task->strategy,
		.flags = task->place_flags,
	};

	if (__builtin_expect(task->whole != NULL, 0))
		segments_request(task, &request);
	if (task->deadline_ticks != UINT64_MAX) {
		/* A deadline in the past counts as the closest possible one. */
		left_ns = clock_elapsed_ns(dispatch->now_ticks, task->deadline_ticks);
		request.deadline_ns = left_ns ? left_ns : 1;
	}
	return place_decide(dispatch->placer, task->plan->place, task->ring->flow->place, request,
			    dispatch_now_ns(dispatch));
}

/* Return: true if the task has completed with *ret_res; false if it waits, or is placed. */
static bool task_begin_run(struct dispatch *dispatch, struct task *task, int *ret_res)
{
	const struct place_decision *decided = dispatch->decided;
	struct place_decision decision = decided ? *decided : task_decide(dispatch, task);

	dispatch->decided = NULL;
	task->device = decision.device;
	task->reason = decision.reason;
	if (__builtin_expect(decision.reason == RBK_REASON_MEMORY_CONSTRAINT, 0))
		return task_begin_constrained(dispatch, task, decision, ret_res);
	if (decision.device == RBK_DEVICE_NONE) {
		*ret_res = task->wait_res ? task->wait_res : -ENODEV;
		return true;
	}
	if (decision.device != RBK_DEVICE_CPU && !task->has_waited)
		note_wanted(task->plan, task->admit_ticks, task->batch);
	runs_place(dispatch, task, decision);
	weights_go_on(dispatch, task, decision);
	return false;
}

/* Return: true if the task has completed with *ret_res; false if it waits, or is placed. */
static bool task_begin(struct dispatch *dispatch, struct task *task, int *ret_res)
{
	*ret_res = 0;
	if (task->is_cancelled || task->ring->ring->is_closing) {
		*ret_res = -ECANCELED;
		return true;
	}
	switch (task->opcode) {
	case RBK_OP_RUN:
		if (__builtin_expect(task->plan->segments != NULL, 0) &&
		    !segments_begin(dispatch, task, ret_res))
			return *ret_res != 0;
		return task_begin_run(dispatch, task, ret_res);
	case RBK_OP_PREFETCH:
	case RBK_OP_EVICT:
		if (task->plan->segments)
			segments_begin_wish(task);
		wait_by_opcode(dispatch, task, ret_res);
		return *ret_res != 0;
	case RBK_OP_CANCEL:
		*ret_res = dispatch_cancel(task->ring, task, task->target);
		return true;
	default:
		return true;
	}
}

/* Release the references of a task that has a plan. */
static void task_release_plan(struct task *task)
{
	struct session_plan *plan = task->plan;
	struct session_arena *arena;

	for (uint32_t i = 0; task->opcode == RBK_OP_RUN && i < plan->plan->n_bindings; i++) {
		arena = container_of(task->run.refs[i].arena, struct session_arena, exec);
		if (--arena->n_in_flight == 0 && arena->state == SLOT_REMOVING)
			session_arena_idle(arena);
	}
	if (--plan->n_in_flight == 0 && plan->state == SLOT_REMOVING)
		session_plan_idle(plan);
}

/* Count a RUN in statistics, unless it was cancelled. */
static void task_count(const struct dispatch *dispatch, struct task *task,
		       const struct outcome *outcome)
{
	uint64_t ended_ticks = task->end_ticks ? task->end_ticks : dispatch->now_ticks;
	unsigned int flags = outcome->flags;

	if (task->opcode != RBK_OP_RUN || outcome->res == -ECANCELED)
		return;
	if (task->is_moved)
		flags |= RBK_DECISION_MOVED;
	if (task->was_held_back)
		flags |= RBK_DECISION_HELD_BACK;
	if (outcome->device == RBK_DEVICE_CPU)
		flags |= dispatch->contention_flags;
	stats_task_done(&task->plan->stats, &(struct stats_task){
						    .user_data = task->user_data,
						    .ended_ns = clock_ticks_to_ns(ended_ticks),
						    .queue_ns = outcome->queue_ns,
						    .exec_ns = outcome->exec_ns,
						    .predicted_ns = task->predicted_ns,
						    .other_ns = task->other_ns,
						    .count = task->count,
						    .split_count = task->split_count,
						    .flags = (uint16_t)flags,
						    .device = outcome->device,
						    .reason = outcome->reason,
						    .res = outcome->res,
					    });
	if (outcome->device < RBK_MAX_DEVICES)
		task->plan->session->latencies
			.buckets[rbk_stats_bucket(outcome->queue_ns + outcome->exec_ns)]++;
}

static void task_post(struct dispatch *dispatch, struct task *task, int res)
{
	struct outcome outcome = {
		.res = res,
		.device = RBK_DEVICE_NONE,
		.reason = task->reason,
	};

	/* A cancelled task reports no device, even if a part of it was done. */
	if (task->opcode == RBK_OP_RUN && task->start_ticks && res != -ECANCELED) {
		outcome.device = task->device;
		outcome.queue_ns = clock_elapsed_ns(task->admit_ticks, task->start_ticks);
		outcome.exec_ns = clock_elapsed_ns(task->start_ticks, task->end_ticks);
		if (task->end_ticks > task->deadline_ticks)
			outcome.flags |= RBK_CQE_DEADLINE_MISSED;
		if (task->n_rows_done[0] > 0 && task->n_rows_done[1] > 0)
			outcome.flags |= RBK_CQE_PARTITIONED;
		if (task->is_explored)
			outcome.flags |= RBK_CQE_EXPLORED;
	}
	if (task->opcode == RBK_OP_PREFETCH && task->device != RBK_DEVICE_NONE) {
		outcome.device = task->device;
		/* The completion names the device, but no task ran on it. */
		task->ring->ring->session->stats.tasks[task->device]--;
	}
	task_count(dispatch, task, &outcome);
	ring_post(dispatch, task->ring, task->user_data, &outcome);
}

/* See whether the client slept while its task ran: whether it is likely to sleep during the next.
 */
static void ring_see_client(struct dispatch_ring *ring)
{
	const struct rbk_sq_area *sq = ring->ring->sq;
	const uint32_t slept = __atomic_load_n(&sq->slept, __ATOMIC_RELAXED);

	ring->is_watched =
		__atomic_load_n(&sq->cq_wait, __ATOMIC_RELAXED) == 0 && slept == ring->client_slept;
	ring->client_slept = slept;
}

/*
 * Complete @task and free its slot.
 * Return: the successor whose turn has come, or NULL.
 */
static struct task *task_complete(struct dispatch *dispatch, struct task *task, int res)
{
	struct dispatch_ring *ring = task->ring;
	struct task *successor = task->chain_next;

	if (__builtin_expect(task->whole || task->set, 0))
		res = segments_end(dispatch, task, res);
	if (__builtin_expect(task->is_rerun && !task->is_undone && res < 0, 0))
		res = -ECONNRESET;
	join_complete(dispatch, task, res);
	dispatch->n_succeeded += res >= 0;
	if (ring->is_due) {
		ring->is_due = false;
		__atomic_store_n(&ring->ring->cq->due_ns, 0, __ATOMIC_RELAXED);
	}
	ring_see_client(ring);
	task_post(dispatch, task, res);
	if (ring->ring->records && !ring->ring->is_closing)
		record_post(ring, record_of(task));
	ring_mark_dirty(dispatch, ring);

	if (successor)
		successor->is_cancelled |= res < 0;
	if (__builtin_expect(successor && successor->join.n_awaited > 0, 0)) {
		successor->join.is_chained = false;
		/* Unlike others, it outlives the commit of its predecessor's failure. */
		if (res < 0 && ring->ring->records && !ring->ring->is_closing)
			record_end_chain(successor, task);
		successor = NULL;
	}
	if (ring->chain_last == task) {
		ring->chain_last = NULL;
		ring->chain_broken = res < 0;
		if (__builtin_expect(ring_is_restoring(ring), 0) && res < 0)
			record_break(ring, (uint32_t)(task - ring->tasks));
	}
	if (__builtin_expect(task->n_undo > 0, 0)) {
		/* This commits the completion. */
		if (res < 0 && successor && !ring->ring->is_closing)
			record_end_chain(successor, task);
		undo_release(task);
	}
	if (__builtin_expect(task->is_suspect, 0))
		suspect_left(dispatch, ring->flow);
	if (task->plan)
		task_release_plan(task);
	list_remove(&task->link);
	index_remove(task_bucket(ring, task->named.hash), &task->named);
	if (__builtin_expect(join_keeps_slot(task, res), 0))
		join_keep_slot(task);
	else
		task_free(ring, task, task, 1);
	/*
	 * A successor that will not start is cancelled in the same commit as the failure: otherwise
	 * the next broker would find it without a predecessor.
	 */
	if (successor && !successor->is_cancelled && ring->ring->records && !ring->ring->is_closing)
		ring_commit(ring, ring_sq_head(ring));
	return successor;
}

/* After completions, end a barrier with no task before it, and a closing ring that has drained. */
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

/*
 * Go on with a task whose segments run at once: its slot @slot has begun a segment, or that segment
 * has ended with *res. Begin all segments that can begin now.
 * Return: the task if it ends with *res; otherwise NULL.
 */
static __attribute__((__noinline__)) struct task *go_on_at_once(struct dispatch *dispatch,
								struct task *slot, bool has_ended,
								int *res)
{
	struct segment_set *set = slot->set;
	struct task *task;

	while (slot) {
		task = has_ended ? segments_slot_ended(dispatch, slot, res) : NULL;
		if (task)
			return task;
		slot = segments_next(set);
		has_ended = slot && task_begin(dispatch, slot, res);
	}
	return NULL;
}

/* Begin what @task's slot describes. Return: the task if it ends with *ret_res; otherwise NULL. */
static inline struct task *task_go(struct dispatch *dispatch, struct task *task, int *ret_res)
{
	const bool has_ended = task_begin(dispatch, task, ret_res);

	if (segments_at_once(task))
		return go_on_at_once(dispatch, task, has_ended, ret_res);
	return has_ended ? task : NULL;
}

void task_start(struct dispatch *dispatch, struct task *task)
{
	struct dispatch_ring *ring = task->ring;
	int res;

	while (task && (task = task_go(dispatch, task, &res)))
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

void task_end(struct dispatch *dispatch, struct task *task, int res)
{
	if (segments_at_once(task))
		task = go_on_at_once(dispatch, task, true, &res);
	if (task)
		task_finish(dispatch, task, res);
}

/* The slot of a task of a plan that is cut has returned. */
static __attribute__((__noinline__)) void segment_returned(struct dispatch *dispatch,
							   struct task *task)
{
	if (!segments_at_once(task) && segments_go_on(task))
		task_start(dispatch, task);
	else
		task_end(dispatch, task, task->res);
}

static inline void task_returned(struct dispatch *dispatch, struct exec_task *exec)
{
	struct task *task = run_returned(dispatch, container_of(exec, struct run, exec));

	if (!task)
		return;
	/* Report the CPU if it did at least half of the rows. */
	if (task->n_rows_done[0] >= task->n_rows_done[1] && task->n_rows_done[0] > 0)
		task->device = RBK_DEVICE_CPU;
	if (__builtin_expect(task->whole != NULL, 0))
		segment_returned(dispatch, task);
	else
		task_finish(dispatch, task, task->res);
}

/* Note that executors have returned something, at now_ticks. */
static inline void note_returned(struct dispatch *dispatch)
{
	if (dispatch->turn->source.cause == RBK_TURN_CAUSES)
		turn_open_at(dispatch->turn, RBK_TURN_COMPLETIONS, dispatch->now_ticks);
	dispatch->may_rebalance = true;
}

unsigned int dispatch_reap(struct dispatch *dispatch)
{
	struct exec_task *done[REAP_BATCH];
	struct executor *executor;
	unsigned int n, n_total = 0;

	done[0] = dispatch->reactor_run.returned;
	if (done[0]) {
		dispatch->reactor_run.returned = NULL;
		note_returned(dispatch);
		task_returned(dispatch, done[0]);
		n_total++;
	}
	for (uint32_t i = 0; i < dispatch->n_executors; i++) {
		executor = dispatch->executors[i];
		n = executor->ops->reap(executor, done, REAP_BATCH);
		if (n > 0) {
			dispatch->now_ticks = clock_ticks();
			note_returned(dispatch);
		}
		for (unsigned int k = 0; k < n; k++) {
			if (dispatch->loads[i].own && done[k] == &dispatch->loads[i].own->exec)
				own_returned(dispatch, (uint8_t)i);
			else
				task_returned(dispatch, done[k]);
		}
		n_total += n;
	}
	return n_total;
}

/* Return: as dispatch_cancel(). */
static int task_cancel(struct dispatch *dispatch, struct task *task)
{
	if (__builtin_expect(task->is_rerun, 0) || segments_have_updated(task))
		return -EALREADY;
	if (segments_at_once(task)) {
		if (!segments_cancel(dispatch, task, false))
			return -EALREADY;
		task->is_cancelled = true;
		return 0;
	}
	switch (task->phase) {
	case TASK_HELD:
	case TASK_WOKEN:
		task->is_cancelled = true;
		return 0;
	case TASK_PLACED:
		return runs_withdraw(dispatch, task) ? 0 : -EALREADY;
	case TASK_WAITING:
		task->is_cancelled = true;
		wait_cancel(task);
		return 0;
	case TASK_BLOCKED:
		task->is_cancelled = true;
		segments_withdraw(dispatch, task);
		return 0;
	default:
		return -EALREADY;
	}
}

/* Record that the CANCEL which is admitted now, or has the slot of @self, stopped @task. */
static void record_cancel(const struct dispatch_ring *ring, const struct task *self,
			  const struct task *task)
{
	struct rbk_task_record *record = record_of(task);

	if (self)
		record->cancel_index = record_of(self)->sq_index;
	else if (ring_is_restoring(ring))
		record->cancel_index = ring->ring->records[ring->n_readmitted].sq_index;
	else
		record->cancel_index =
			record_index(ring->commit_base.sq_head, ring->ring->sq_head - 1);
	record_set_flags(record, record->flags | RBK_TASK_CANCELLED);
}

int dispatch_cancel(struct dispatch_ring *ring, const struct task *self, uint64_t user_data)
{
	uint64_t hash = task_hash(ring, user_data);
	struct index_node **bucket = task_bucket(ring, hash);
	struct index_node *node = index_find(bucket, hash), *next;
	struct task *task;
	bool is_cancelled;
	int res;

	for (; node; node = next) {
		next = index_next(node);
		task = container_of(node, struct task, named);
		if (task == self)
			continue;
		/* A task that was cancelled with its chain or its ring is skipped, once. */
		is_cancelled = task->is_cancelled;
		res = is_cancelled ? 0 : task_cancel(ring->dispatch, task);
		if (res == 0)
			index_remove(bucket, node);
		if (res == 0 && !is_cancelled && ring->ring->records)
			record_cancel(ring, self, task);
		if (!is_cancelled)
			return res;
	}
	return -ENOENT;
}
