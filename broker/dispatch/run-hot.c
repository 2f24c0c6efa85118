/* SPDX-License-Identifier: MIT */
/*
 * Runs: from a decision to executors and back
 *
 * A placed task is a run on one device, or two runs on two. The placer's scheduler decides which
 * run's submission starts next on which device; until then a submission can be withdrawn, or moved.
 * A returned submission is followed by the run's next one, which queues like any other, or ends the
 * run; the last run ends the task.
 *
 * A run is counted on its device from when it is queued until its last submission is returned: its
 * plan stays resident for that time. Moving the run moves the count.
 *
 * Falling back: rows on which a device failed are done by the CPU, with all later rows of the run;
 * the earlier rows are done already. Where a plan has parts, all rows are in each part, and the run
 * starts over.
 *
 * A device that can stop tasks is asked to when the scheduler says so, when a task is cancelled,
 * and when its ring is closing. A task that is returned unfinished queues anew and resumes where it
 * was stopped; if it is not to resume, it is abandoned.
 *
 * Urgent submissions overtake those that the executor has not begun. A flow may do that while it
 * has no other submission on the device: it asks for less than its share, or the scheduler would
 * not have released this one. Two flows taking turns could overtake a third for ever, so after
 * MAX_URGENT in a row one waits. A submission that is long, or was stopped before, is not urgent
 * where it could be stopped.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "dispatch/share.h"
#include "dispatch/undo.h"

enum {
	RELEASE_BATCH = 64, /* per turn and device */
	MAX_URGENT = 8,     /* until one that is not urgent has returned */
	/* Reactor time to release a submission and take it back, in entries */
	REAP_ENTRIES = 8,
	/* A client that sleeps for longer gains nothing by rising early. */
	MOST_DUE_NS = 1000000000,
};

/* --- where a run is counted --- */

static inline void run_on_device(struct run *run, uint8_t device)
{
	run->task->plan->memory.n_on_device[device]++;
}

static inline void run_off_device(struct dispatch *dispatch, const struct run *run, uint8_t device)
{
	struct session_plan *plan = run->task->plan;

	if (--plan->memory.n_on_device[device] == 0 && (plan->memory.leaving & 1u << device))
		residency_plan_idle(dispatch->options.residency, &plan->memory, device);
}

static inline void note_queued(struct dispatch *dispatch, const struct run *run)
{
	dispatch->loads[run->place.decision.device].n_queued++;
	dispatch->n_queued++;
}

static inline void note_dequeued(struct dispatch *dispatch, uint8_t device)
{
	dispatch->loads[device].n_queued--;
	dispatch->n_queued--;
}

/* --- queueing --- */

/* A state is updated once, as a whole. */
static inline bool run_can_split(const struct run *run)
{
	const struct plan *plan = run->task->plan->plan;

	return run->n_parts == 1 && plan->splits_rows && !plan->has_state;
}

/*
 * Queue all that is left of a run, although only a part of it may be submitted at once: the rest
 * counts for the tasks that would wait behind it.
 */
static void run_enqueue(struct dispatch *dispatch, struct run *run)
{
	run->place.count = run->n_rows;
	dispatch->may_rebalance = true;
	note_queued(dispatch, run);
	place_enqueue(dispatch->placer, &run->place, dispatch_now_ns(dispatch));
}

static void run_init(struct run *run, struct task *task, struct place_decision decision,
		     uint32_t n_rows)
{
	run->task = task;
	run->n_rows = n_rows;
	run->is_over = false;
	run->has_begun = false;
	run->part_ns = run->part_busy_ns = 0;
	run->exec.plan = task->plan->plan;
	run->exec.part = 0;
	run->exec.has_progress = false;
	run->exec.on_begin = NULL;
	atomic_store_explicit(&run->exec.state, EXEC_IDLE, memory_order_relaxed);
	run->place.later_ns = 0;
	run->place.goes_on = run->place.has_slot = false;
	run->place.gate = NULL;
	run->place.stopped_exec_ns = run->place.stopped_busy_ns = 0;
	run->place.parts_count = 0;
	run->place.parts_exec_ns = run->place.parts_busy_ns = 0;
	run->place.place_plan = task->plan->place;
	run->place.flow = task->ring->flow->place;
	run->place.decision = decision;
	run->place.decision.split_count = 0;
	if (__builtin_expect(decision.flags & PLACE_ADVISED, 0))
		run->place.advised_ns = segments_advised_ns(task, decision);
	run->place.priority = task->priority;
	run->place.admit_ns = clock_ticks_to_ns(task->admit_ticks);
	run->place.deadline_ns = task->deadline_ticks == UINT64_MAX
					 ? UINT64_MAX
					 : clock_ticks_to_ns(task->deadline_ticks);
}

/* Move the run's references on by @n_rows, in the tensors that have rows. */
static void run_advance(struct run *run, uint32_t n_rows)
{
	const struct plan *plan = run->task->plan->plan;

	for (uint32_t i = 0; i < plan->n_bindings; i++)
		run->refs[i].offset += plan->bindings[i].row_bytes * n_rows;
	run->n_rows -= n_rows;
}

/* --- partition --- */

/*
 * Split a task: the CPU gets the rows from @split_count on.
 * Return: false if the pool has no half left.
 */
static bool task_split(struct dispatch *dispatch, struct task *task, struct place_decision decision)
{
	const struct plan *plan = task->plan->plan;
	struct half *half = dispatch->free_halves;
	struct place_decision other = decision;
	uint32_t n_rows = decision.split_count;

	if (!half)
		return false;
	dispatch->free_halves = half->next;
	task->half = half;
	task->n_runs = 2;
	task->split_count = n_rows;

	decision.flags |= PLACE_BOUND;
	run_init(&task->run, task, decision, n_rows);
	other.device = RBK_DEVICE_CPU;
	other.flags |= PLACE_BOUND;
	other.flags &= (uint8_t) ~(PLACE_EXPLORES | PLACE_PROBES);
	other.predicted_ns = place_predict_ns(dispatch->placer, task->plan->place, RBK_DEVICE_CPU,
					      task->count - n_rows);
	run_init(&half->run, task, other, task->count);
	for (uint32_t i = 0; i < plan->n_bindings; i++)
		half->refs[i] = task->run.refs[i];
	half->run.refs = half->refs;
	half->run.exec.refs = half->refs;
	run_advance(&half->run, n_rows);

	run_on_device(&task->run, decision.device);
	run_on_device(&half->run, RBK_DEVICE_CPU);
	run_enqueue(dispatch, &task->run);
	run_enqueue(dispatch, &half->run);
	return true;
}

static bool task_may_split(const struct task *task, struct place_decision decision)
{
	const struct plan *plan = task->plan->plan;

	return decision.split_count > 0 && decision.split_count < task->count &&
	       decision.device != RBK_DEVICE_CPU && plan->splits_rows && !plan->has_state &&
	       plan->device_state[RBK_DEVICE_CPU] == PLAN_DEVICE_READY;
}

void runs_place(struct dispatch *dispatch, struct task *task, struct place_decision decision)
{
	task->phase = TASK_PLACED;
	task->device = decision.device;
	task->is_explored = decision.flags & PLACE_EXPLORES;
	task->is_moved = task->was_held_back = false;
	task->split_count = 0;
	task->predicted_ns = decision.predicted_ns;
	task->other_ns = decision.other_ns;
	if (decision.split_count > 0) {
		if (task_may_split(task, decision) && task_split(dispatch, task, decision))
			return;
		decision.predicted_ns = place_predict_ns(dispatch->placer, task->plan->place,
							 decision.device, task->count);
		task->predicted_ns = decision.predicted_ns;
	}
	/*
	 * The task stays on the device that its entry named or for whose memory it waited, even if
	 * another would be done earlier. If the named device does not exist, it stays on the
	 * substitute.
	 */
	if (decision.reason == RBK_REASON_USER_PREFERENCE ||
	    (task->strategy & RBK_STRATEGY_NAMED) ||
	    (task->has_waited && decision.device != RBK_DEVICE_CPU))
		decision.flags |= PLACE_BOUND;
	task->half = NULL;
	task->n_runs = 1;
	run_init(&task->run, task, decision, task->count);
	run_on_device(&task->run, decision.device);
	run_enqueue(dispatch, &task->run);
}

/* --- the end of runs --- */

static void half_free(struct dispatch *dispatch, struct task *task)
{
	struct half *half = task->half;

	if (!half)
		return;
	task->half = NULL;
	half->next = dispatch->free_halves;
	dispatch->free_halves = half;
}

/* End a run that is neither held by an executor nor queued. */
static void run_over(struct dispatch *dispatch, struct run *run)
{
	run->is_over = true;
	run->task->n_runs--;
	run_off_device(dispatch, run, run->place.decision.device);
}

/*
 * Return true if the run may be stopped after its device has begun it. A state is updated as a
 * whole, as long as there is a client to use it.
 */
static bool run_may_break_off(const struct dispatch *dispatch, const struct run *run)
{
	const struct executor *executor = dispatch->executors[run->place.decision.device];
	const struct task *task = run->task;

	return executor->ops->abandon &&
	       (!task->plan->plan->has_state || task->ring->ring->is_closing);
}

/*
 * Cancel a run that an executor holds.
 * Return: false, with nothing changed, if it has begun and cannot be stopped.
 */
static bool run_cancel_held(struct dispatch *dispatch, struct run *run)
{
	uint8_t expected = EXEC_QUEUED;

	/* Pairs with exec_task_begin(): one of the two wins. */
	if (atomic_compare_exchange_strong_explicit(&run->exec.state, &expected, EXEC_CANCELLED,
						    memory_order_acq_rel, memory_order_acquire))
		return true;
	/* The run was recalled before. */
	if (expected == EXEC_CANCELLED)
		return true;
	return run_may_break_off(dispatch, run) && exec_task_stop(&run->exec, EXEC_CANCELLED);
}

/* Abandon the progress of a stopped run that no executor holds now. */
static void run_abandon(struct dispatch *dispatch, struct run *run)
{
	struct executor *executor = dispatch->executors[run->place.decision.device];

	if (run->exec.has_progress)
		executor->ops->abandon(executor, &run->exec);
}

/* Stop a run that need not continue: dequeue it, or cancel it at its executor. */
static void run_stop(struct dispatch *dispatch, struct run *run)
{
	/* A task that has begun in parts is carried through. */
	if (run->is_over || run->exec.part > 0)
		return;
	if (run->place.state != PLACE_QUEUED) {
		run_cancel_held(dispatch, run);
		return;
	}
	run_abandon(dispatch, run);
	place_dequeue(dispatch->placer, &run->place, dispatch_now_ns(dispatch));
	note_dequeued(dispatch, run->place.decision.device);
	run_over(dispatch, run);
}

/*
 * End a run with result @res.
 * Return: the task if that was its last run; otherwise NULL.
 */
static inline struct task *run_ended(struct dispatch *dispatch, struct run *run, int res)
{
	struct task *task = run->task;

	run_over(dispatch, run);
	if (res && !task->res)
		task->res = res;
	/* The other device's result is of no use any more. */
	if (task->res && task->half) {
		run_stop(dispatch, &task->run);
		run_stop(dispatch, &task->half->run);
	}
	if (task->n_runs > 0)
		return NULL;
	half_free(dispatch, task);
	return task;
}

/*
 * Return true if something of the task is left after the submission of @run: it can be stopped
 * there although the submission has ended, which the executor will tell.
 */
static bool run_may_end_early(const struct dispatch *dispatch, const struct run *run)
{
	return run_may_break_off(dispatch, run) &&
	       (run->exec.count < run->n_rows || segments_are_left(run->task));
}

/*
 * Return false, with nothing changed, if an executor has begun the run and does not stop it. An
 * executor that holds the run unbegun, or stops it, returns it; the run then resumes, or starts
 * over, if the task as a whole could not be withdrawn.
 */
static bool run_may_stop(struct dispatch *dispatch, struct run *run)
{
	if (run->is_over || (run->has_begun && !run_may_break_off(dispatch, run)))
		return false;
	return run->place.state == PLACE_QUEUED || run_cancel_held(dispatch, run) ||
	       run_may_end_early(dispatch, run);
}

bool runs_may_stop(struct dispatch *dispatch, struct task *task)
{
	return run_may_stop(dispatch, &task->run) &&
	       (!task->half || run_may_stop(dispatch, &task->half->run));
}

void runs_stop(struct dispatch *dispatch, struct task *task)
{
	run_stop(dispatch, &task->run);
	if (task->half)
		run_stop(dispatch, &task->half->run);
	if (task->n_runs > 0)
		return;
	half_free(dispatch, task);
	/*
	 * Completing the task may start others, which must not happen inside the caller:
	 * dispatch_wake() completes it.
	 */
	task->phase = TASK_WOKEN;
	task->next = NULL;
	*dispatch->woken.end = task;
	dispatch->woken.end = &task->next;
}

bool runs_withdraw(struct dispatch *dispatch, struct task *task)
{
	if (!runs_may_stop(dispatch, task))
		return false;
	task->is_cancelled = true;
	/* A submission that has ended is returned without an error. */
	task->res = -ECANCELED;
	runs_stop(dispatch, task);
	return true;
}

/* --- to executors --- */

static bool run_is_urgent(const struct dispatch *dispatch, const struct run *run, uint8_t device)
{
	const struct device_load *load = &dispatch->loads[device];

	if (dispatch->executors[device]->ops->abandon &&
	    (run->exec.has_progress || run->place.work_ns > PLACE_SLICE_NS))
		return false;
	return load->n_held > 0 && run->task->ring->flow->n_held[device] == 0 &&
	       load->n_urgent < MAX_URGENT;
}

/* Set how many of the remaining rows this submission does, so that other tasks run in between. */
static void run_measure(const struct dispatch *dispatch, struct run *run, uint8_t device)
{
	const struct session_plan *plan = run->task->plan;

	if (run->exec.has_progress)
		return;
	run->exec.count = run->n_rows;
	if (run->exec.part > 0)
		return;
	run->n_parts = plan->plan->n_parts[device] ? plan->plan->n_parts[device] : 1;
	if (run_can_split(run))
		run->exec.count = place_rows_per_submission(dispatch->placer, plan->place, device,
							    run->n_rows);
}

/*
 * Return 1 + the processor of a client that does not sleep while its tasks run, as far as the past
 * tells; 0: none. Under contention workers are not pinned, and the processors have other work.
 */
static uint32_t busy_processor(const struct dispatch *dispatch, const struct dispatch_ring *ring)
{
	if (!ring->is_watched || dispatch->is_contended)
		return 0;
	return __atomic_load_n(&ring->ring->sq->processor, __ATOMIC_RELAXED);
}

/* Return true if a client may spin while the device computes, without slowing it. */
static bool leaves_processor(const struct dispatch *dispatch, uint8_t device)
{
	const struct executor_info *info = &dispatch->executors[device]->info;

	if (info->kind == EXECUTOR_GPU)
		return true;
	return info->kind == EXECUTOR_CPU && !dispatch->is_contended &&
	       info->n_threads < dispatch->options.n_processors;
}

/*
 * Note when a task that begins now is predicted to complete, and tell its client if it has no other
 * task in flight. Not for a task in segments: the prediction is of its present segment alone.
 */
static void tell_due(struct dispatch *dispatch, const struct run *run)
{
	struct dispatch_ring *ring = run->task->ring;
	const uint8_t device = run->place.decision.device;

	const float predicted_ns = run->task->predicted_ns;

	if (run->has_begun || run->task->half || run->task->whole ||
	    dispatch->loads[device].n_held > 0 || !(predicted_ns > 0) ||
	    predicted_ns > (float)MOST_DUE_NS)
		return;
	if (dispatch->executors[device]->info.kind == EXECUTOR_GPU)
		due_begin(dispatch, device, (uint64_t)predicted_ns);
	if (ring->ring->n_in_flight != 1 || !leaves_processor(dispatch, device))
		return;
	ring->is_due = true;
	__atomic_store_n(&ring->ring->cq->due_ns, clock_now_ns() + (uint64_t)predicted_ns,
			 __ATOMIC_RELAXED);
}

/* Give a run to its executor or to the reactor. Return: false if neither takes it now. */
static inline bool hand_over(struct dispatch *dispatch, struct run *run, uint8_t device)
{
	struct executor *executor = dispatch->executors[device];

	if (device == RBK_DEVICE_CPU && reactor_run_takes(dispatch, run))
		return true;
	if (device == RBK_DEVICE_CPU && reactor_run_is_sole(dispatch, run))
		return false;
	if (executor->ops->submit(executor, &run->exec) != 0)
		return false;
	dispatch->flush_mask |= 1u << device;
	if (device == RBK_DEVICE_CPU && dispatch->reactor_run.n_held > 0)
		dispatch->reactor_run.is_in_the_way |=
			dispatch->reactor_run.flow != run->task->ring->flow;
	return true;
}

/* From now on, devices without a run are idle for the suspect @run. */
static void keep_idle(struct dispatch *dispatch, const struct run *run)
{
	if (dispatch->alone_flow)
		return;
	dispatch->alone_flow = run->task->ring->flow;
	dispatch->alone_device = run->place.decision.device;
	for (uint32_t i = RBK_DEVICE_CPU + 1; i < dispatch->n_executors; i++)
		dispatch->loads[i].idle_ticks =
			dispatch->loads[i].n_held == 0 ? dispatch->now_ticks : 0;
}

/*
 * Charge the suspect's flow for the time in which @device was idle for it; and on its own device,
 * where its tasks compete with those of others, for the idle time of any device.
 */
static void charge_idle(struct dispatch *dispatch, uint8_t device)
{
	const uint8_t own = dispatch->alone_device;
	struct device_load *load = &dispatch->loads[device];
	const uint64_t ns =
		load->idle_ticks ? clock_elapsed_ns(load->idle_ticks, dispatch->now_ticks) : 0;

	load->idle_ticks = 0;
	if (!dispatch->alone_flow || ns == 0)
		return;
	place_flow_charge(dispatch->placer, dispatch->alone_flow->place, device, ns);
	if (device != own)
		place_flow_charge(dispatch->placer, dispatch->alone_flow->place, own, ns);
}

/* Charge for the idle devices until now. They are not idle for the same flow any more. */
static void settle_idle(struct dispatch *dispatch)
{
	for (uint8_t i = RBK_DEVICE_CPU + 1; i < dispatch->n_executors; i++)
		charge_idle(dispatch, i);
	dispatch->alone_flow = NULL;
}

/* The devices are there for all tenants again. */
static __attribute__((__cold__, __noinline__)) void end_alone(struct dispatch *dispatch)
{
	settle_idle(dispatch);
	dispatch->alone = ALONE_NOBODY;
}

/* A suspect of @flow waits no more; another one begins to wait of its own. */
static __attribute__((__cold__, __noinline__)) void end_wait(struct dispatch *dispatch,
							     const struct flow *flow)
{
	if (dispatch->alone == ALONE_WAITS && dispatch->alone_flow == flow)
		end_alone(dispatch);
}

__attribute__((__cold__, __noinline__)) void suspect_left(struct dispatch *dispatch,
							  const struct flow *flow)
{
	dispatch->n_suspects--;
	/* It may have been cancelled while it waited. */
	end_wait(dispatch, flow);
}

/* Note that a run has returned from a device while a suspect waits or runs. */
static __attribute__((__cold__, __noinline__)) void note_alone(struct dispatch *dispatch,
							       const struct run *run)
{
	const uint8_t device = run->place.decision.device;

	if (device == RBK_DEVICE_CPU || dispatch->loads[device].n_held > 0)
		return;
	if (dispatch->alone == ALONE_RUNS)
		end_alone(dispatch);
	else
		dispatch->loads[device].idle_ticks = dispatch->now_ticks;
}

/*
 * Return true if a device other than the CPU may begin @run. A suspect waits until no such device
 * has another run, and the others wait for it meanwhile: see blame.c. Its flow is charged for that.
 */
static __attribute__((__cold__, __noinline__)) bool run_may_begin(struct dispatch *dispatch,
								  const struct run *run)
{
	uint32_t n_held = 0;

	/* The last suspect may have been cancelled while it waited. */
	if (dispatch->n_suspects == 0) {
		end_alone(dispatch);
		return true;
	}
	for (uint32_t i = RBK_DEVICE_CPU + 1; i < dispatch->n_executors; i++)
		n_held += dispatch->loads[i].n_held;
	if (n_held > 0 && dispatch->alone == ALONE_NOBODY && run->task->is_suspect) {
		dispatch->alone = ALONE_WAITS;
		keep_idle(dispatch, run);
	}
	if (n_held > 0)
		return dispatch->alone == ALONE_NOBODY;
	if (!run->task->is_suspect) {
		end_alone(dispatch);
		return true;
	}
	/* Another suspect may have begun to wait. From now on the others are idle for this one. */
	settle_idle(dispatch);
	keep_idle(dispatch, run);
	dispatch->loads[run->place.decision.device].idle_ticks = 0;
	dispatch->alone = ALONE_RUNS;
	return true;
}

/*
 * Submit a run, or leave it to the reactor itself.
 * Return: false if the executor takes no more now.
 */
static bool run_submit(struct dispatch *dispatch, struct run *run)
{
	uint8_t device = run->place.decision.device;
	struct device_load *load = &dispatch->loads[device];

	if (__builtin_expect(dispatch->n_suspects | dispatch->alone, 0) &&
	    device != RBK_DEVICE_CPU && !run_may_begin(dispatch, run))
		return false;
	run_measure(dispatch, run, device);
	run->exec.start_ticks = run->exec.end_ticks = run->exec.busy_ticks = 0;
	run->exec.copied_bytes = run->exec.transferred_bytes = 0;
	run->exec.is_urgent = run_is_urgent(dispatch, run, device);
	run->exec.busy_processor = busy_processor(dispatch, run->task->ring);
	/* An urgent task may take longer than predicted. */
	run->exec.slice_ticks = run->exec.is_urgent ? dispatch->slice_ticks : 0;
	atomic_store_explicit(&run->exec.state, EXEC_QUEUED, memory_order_relaxed);
	if (__builtin_expect(run->task->plan->plan->has_state, 0))
		undo_prepare(run);
	if (!hand_over(dispatch, run, device))
		return false;
	tell_due(dispatch, run);
	if (__builtin_expect(dispatch->held_back & 1u << device, 0))
		share_note_begun(run, device);
	note_dequeued(dispatch, device);
	load->n_urgent += run->exec.is_urgent;
	load->n_held++;
	run->task->ring->flow->n_held[device]++;
	dispatch->n_submitted++;
	return true;
}

unsigned int dispatch_release(struct dispatch *dispatch)
{
	unsigned int n, n_more = 0;
	struct place_task *place;
	uint32_t devices;

	if (dispatch->may_rebalance) {
		dispatch->may_rebalance = false;
		place_rebalance(dispatch->placer, dispatch_now_ns(dispatch));
	}
	devices = place_startable(dispatch->placer, dispatch_now_ns(dispatch));
	for (uint8_t i = 0; devices >> i; i++) {
		if (!(devices & 1u << i))
			continue;
		for (n = 0; n < RELEASE_BATCH; n++) {
			place = place_next(dispatch->placer, i, dispatch_now_ns(dispatch));
			if (!place)
				break;
			if (!run_submit(dispatch, container_of(place, struct run, place))) {
				place_put_back(dispatch->placer, place, dispatch_now_ns(dispatch));
				break;
			}
		}
		n_more += n == RELEASE_BATCH;
	}
	return n_more;
}

void dispatch_note_activity(const struct dispatch *dispatch)
{
	const struct dispatch_options *options = &dispatch->options;
	uint32_t devices = 0;

	if (!options->note_activity)
		return;
	for (uint32_t i = RBK_DEVICE_CPU + 1; i < options->n_executors; i++)
		devices |= (uint32_t)(dispatch->loads[i].n_held > 0) << i;
	options->note_activity(options->activity_context, devices, dispatch->n_rings > 0);
}

/* Flushing an executor wakes a sleeping thread, or enters the driver. */
void dispatch_flush(struct dispatch *dispatch)
{
	if (dispatch->flush_mask & ~(1u << RBK_DEVICE_CPU))
		dispatch_note_activity(dispatch);
	for (; dispatch->flush_mask; dispatch->flush_mask &= dispatch->flush_mask - 1) {
		unsigned int i = (unsigned int)__builtin_ctz(dispatch->flush_mask);

		dispatch->executors[i]->ops->flush(dispatch->executors[i]);
	}
}

void dispatch_preempt(struct dispatch *dispatch)
{
	struct place_task *place;
	struct exec_task *exec;
	uint64_t now_ns;

	dispatch->may_preempt = false;
	dispatch->now_ticks = clock_ticks();
	now_ns = dispatch_now_ns(dispatch);
	for (uint8_t i = 0; i < dispatch->n_executors; i++)
		for (unsigned int n = 0; n < RELEASE_BATCH; n++) {
			place = place_preempt(dispatch->placer, i, now_ns);
			if (!place)
				break;
			exec = &container_of(place, struct run, place)->exec;
			if (!exec_task_stop(exec, EXEC_STOPPING) &&
			    atomic_load_explicit(&exec->state, memory_order_relaxed) == EXEC_QUEUED)
				place_not_begun(dispatch->placer, place, now_ns);
		}
}

/* --- from executors --- */

/*
 * Return true if a run that failed on its device may continue on the CPU. Outputs are out of place,
 * so a second run is harmless; a state may be half updated, and is never run again blindly.
 */
static bool run_may_fall_back(const struct run *run, int res)
{
	const struct task *task = run->task;
	const struct plan *plan = task->plan->plan;

	return (res == -EIO || res == -ENOMEM || res == -EXDEV) && !task->res &&
	       run->place.decision.device != RBK_DEVICE_CPU &&
	       task->strategy != RBK_STRATEGY_ONLY_GPU && !plan->pinned && !plan->has_state &&
	       !task->ring->ring->is_closing &&
	       plan->device_state[RBK_DEVICE_CPU] == PLAN_DEVICE_READY;
}

static void run_fall_back(struct dispatch *dispatch, struct run *run)
{
	struct task *task = run->task;
	struct place_decision *decision = &run->place.decision;

	run_off_device(dispatch, run, decision->device);
	decision->device = RBK_DEVICE_CPU;
	decision->reason = RBK_REASON_CPU_FALLBACK;
	decision->flags = PLACE_BOUND;
	decision->other_ns = 0;
	task->reason = RBK_REASON_CPU_FALLBACK;
	task->is_explored = false;
	/* The prediction was for the other device. */
	task->predicted_ns = task->other_ns = 0;
	if (__builtin_expect(task->is_suspect, 0))
		end_wait(dispatch, task->ring->flow);
	/* Parts done on the device are of no use to the CPU. */
	run->exec.part = 0;
	run->part_ns = run->part_busy_ns = 0;
	run->has_begun = run->n_rows < task->count && !task->half;
	if (!task->half && task->n_rows_done[1] == 0)
		task->device = RBK_DEVICE_CPU;
	run_on_device(run, RBK_DEVICE_CPU);
	run_enqueue(dispatch, run);
}

__attribute__((__cold__, __noinline__)) bool run_evade(struct dispatch *dispatch, struct run *run)
{
	uint64_t now_ns = dispatch_now_ns(dispatch);
	uint8_t device = run->place.decision.device;

	if (run->place.state != PLACE_QUEUED || run->exec.part > 0 || run->has_begun ||
	    !run_may_fall_back(run, -EIO))
		return false;
	place_dequeue(dispatch->placer, &run->place, now_ns);
	note_dequeued(dispatch, device);
	place_learn(dispatch->placer, run->place.place_plan, device, run->n_rows, PLACE_FAILED, 0,
		    0, now_ns);
	dispatch->mended[device].n_moved++;
	run_fall_back(dispatch, run);
	return true;
}

/*
 * Classify a returned submission for the placer. A task that did not run, e.g. because a tensor is
 * out of reach, says nothing about its device. A lost device fails all the tasks it holds; only the
 * first of them to be returned counts as a failure.
 */
static enum place_result run_result(struct dispatch *dispatch, const struct run *run)
{
	struct residency *residency = dispatch->options.residency;
	uint8_t device = run->place.decision.device;
	struct device_load *load = &dispatch->loads[device];
	uint32_t loss;

	if (run->exec.res == 0)
		return PLACE_DONE;
	if (run->exec.res != -EIO)
		return PLACE_SKIPPED;
	if (!residency_device_lost(residency, device))
		return PLACE_FAILED;
	loss = residency_n_reopened(residency, device) + 1;
	if (load->loss == loss)
		return PLACE_SKIPPED;
	load->loss = loss;
	load->loss_ticks = dispatch->now_ticks;
	return PLACE_FAILED;
}

/*
 * Report a returned submission to the placer. Parts are charged one by one, and learned from
 * together.
 */
static void run_learn(struct dispatch *dispatch, struct run *run)
{
	enum place_result result = run_result(dispatch, run);
	uint64_t now_ns = dispatch_now_ns(dispatch);
	uint64_t exec_ns = clock_elapsed_ns(run->exec.start_ticks, run->exec.end_ticks);
	uint64_t busy_ns = clock_ticks_to_ns(run->exec.busy_ticks);
	struct session *session = run->task->ring->ring->session;

	if (__builtin_expect(run->task->whole != NULL, 0))
		segments_run_returned(dispatch, run);
	stats_device_time(session->tenant_stats, run->place.decision.device,
			  busy_ns ? busy_ns : exec_ns);
	if (run->place.decision.device != RBK_DEVICE_CPU)
		session->stats.gpu_ns += busy_ns ? busy_ns : exec_ns;
	run->place.count = run->exec.count;
	if (run->exec.res == EXEC_UNFINISHED) {
		place_stopped(dispatch->placer, &run->place, exec_ns, busy_ns, now_ns);
		return;
	}
	if (run->n_parts == 1) {
		place_done(dispatch->placer, &run->place, result, exec_ns, busy_ns, now_ns);
		return;
	}
	place_done(dispatch->placer, &run->place, PLACE_SKIPPED, exec_ns, busy_ns, now_ns);
	run->part_ns += exec_ns;
	run->part_busy_ns += busy_ns ? busy_ns : exec_ns;
	if (result != PLACE_DONE || run->exec.part + 1u == run->n_parts)
		place_learn(dispatch->placer, run->task->plan->place, run->place.decision.device,
			    run->n_rows, result, run->part_ns, run->part_busy_ns, now_ns);
}

static void run_count(struct dispatch *dispatch, const struct run *run)
{
	struct task *task = run->task;
	struct session_stats *stats = &task->ring->ring->session->stats;
	uint8_t device = run->place.decision.device;
	struct device_load *load = &dispatch->loads[device];

	dispatch->n_submitted--;
	load->n_held--;
	if (__builtin_expect(dispatch->alone != ALONE_NOBODY, 0))
		note_alone(dispatch, run);
	if (__builtin_expect(dispatch->due.devices & 1u << device, 0))
		due_end(dispatch, device, run->exec.end_ticks);
	/* A cancelled run shows that the device is alive only if the device had begun it. */
	load->n_returned += run->exec.res != -ECANCELED || run->exec.busy_ticks > 0;
	task->ring->flow->n_held[device]--;
	if (!run->exec.is_urgent || load->n_held == 0)
		load->n_urgent = 0;
	stats->copied_bytes += run->exec.copied_bytes;
	stats->transferred_bytes += run->exec.transferred_bytes;
	dispatch->stats->copied_bytes += run->exec.copied_bytes;
	dispatch->stats->transferred_bytes += run->exec.transferred_bytes;
	stats_bytes(task->ring->ring->session->tenant_stats, run->exec.copied_bytes,
		    run->exec.transferred_bytes);
	task->ring->flow->owed_ticks += REAP_ENTRIES * dispatch->entry_ticks;
	if (!run->exec.start_ticks)
		return;
	/* The time for which a stopped task waited to resume is not execution. */
	if (__builtin_expect(run->place.stopped_exec_ns > 0, 0) && !task->half &&
	    run->exec.start_ticks > task->end_ticks)
		task->start_ticks += run->exec.start_ticks - task->end_ticks;
	if (!task->start_ticks || task->start_ticks > run->exec.start_ticks)
		task->start_ticks = run->exec.start_ticks;
	if (task->end_ticks < run->exec.end_ticks)
		task->end_ticks = run->exec.end_ticks;
}

/*
 * Continue a run after a submission was done.
 * Return: true if another submission is queued now.
 */
static bool run_go_on(struct dispatch *dispatch, struct run *run)
{
	struct task *task = run->task;
	struct place_decision *decision = &run->place.decision;

	run->has_begun = true;
	/* The rows of a run stay on one device, unless it fails. */
	decision->flags |= PLACE_BOUND;
	if (run->exec.part + 1u < run->n_parts) {
		/* A task that has begun in parts is carried through. */
		run->exec.part++;
		run_enqueue(dispatch, run);
		return true;
	}
	task->n_rows_done[decision->device != RBK_DEVICE_CPU] += run->exec.count;
	if (run->exec.count == run->n_rows || task->res || task->ring->ring->is_closing)
		return false;
	run_advance(run, run->exec.count);
	run_enqueue(dispatch, run);
	return true;
}

/*
 * Handle a run that its device has stopped before its end.
 * Return: as run_returned().
 */
static __attribute__((__noinline__)) struct task *run_stopped(struct dispatch *dispatch,
							      struct run *run)
{
	struct task *task = run->task;

	run->has_begun = true;
	run->place.decision.flags |= PLACE_BOUND;
	if (task->is_cancelled || task->res || task->ring->ring->is_closing) {
		run_abandon(dispatch, run);
		return run_ended(dispatch, run, -ECANCELED);
	}
	run_enqueue(dispatch, run);
	return NULL;
}

struct task *run_returned(struct dispatch *dispatch, struct run *run)
{
	struct task *task = run->task;
	int res = run->exec.res;

	run_count(dispatch, run);
	run->place.goes_on = res == 0 && run->exec.part + 1u < run->n_parts;
	run_learn(dispatch, run);
	if (__builtin_expect(res == EXEC_UNFINISHED, 0))
		return run_stopped(dispatch, run);
	if (res == 0 && run_go_on(dispatch, run))
		return NULL;
	if (run_may_fall_back(run, res)) {
		run_fall_back(dispatch, run);
		return NULL;
	}
	/*
	 * The run was recalled, or stopped for a cancellation that came too late for the other
	 * half.
	 */
	if (res == -ECANCELED && !task->is_cancelled && !task->res &&
	    !task->ring->ring->is_closing) {
		run_enqueue(dispatch, run);
		if (__builtin_expect(dispatch->loads[run->place.decision.device].is_avoided, 0))
			run_evade(dispatch, run);
		return NULL;
	}
	return run_ended(dispatch, run, res);
}

/* --- moving --- */

void dispatch_moved(void *context, struct place_task *place, uint8_t from)
{
	struct dispatch *dispatch = context;
	struct run *run = container_of(place, struct run, place);
	struct task *task = run->task;
	uint8_t to = place->decision.device;

	dispatch->loads[from].n_queued--;
	dispatch->loads[to].n_queued++;
	run_on_device(run, to);
	run_off_device(dispatch, run, from);
	task->device = to;
	task->is_moved = true;
	task->reason = place->decision.reason;
	task->predicted_ns = place->decision.predicted_ns;
	task->other_ns = place->decision.other_ns;
	task->is_explored = place->decision.flags & PLACE_EXPLORES;
	if (__builtin_expect(task->is_suspect, 0))
		end_wait(dispatch, task->ring->flow);
	if (to != RBK_DEVICE_CPU)
		note_wanted(task->plan, task->admit_ticks, task->batch);
}
