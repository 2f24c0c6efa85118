/* SPDX-License-Identifier: MIT */
/*
 * Devices: from a decision to executors and back
 *
 * A task that was placed is a run on one device, or two runs on two. The placer's scheduler says
 * which run's submission starts next on which device; what it has not said yet can be withdrawn, or
 * moved. A submission that comes back is followed by the run's next one, which queues like any
 * other, or ends the run; the last run ends the task.
 *
 * A run is counted on its device from when it is queued for it until its last submission is back:
 * its plan's memory stays there for so long. Moving it counts it elsewhere.
 *
 * Failing over: rows that a device could not do are done by the CPU, with all that follow them in
 * the run; those before them are done already. Where a plan has parts, rows are not apart, and the
 * run begins anew.
 *
 * A device that can stop tasks is asked to where the scheduler says so, and where a task was
 * cancelled or its ring is closing. What comes back unfinished queues anew, and goes on where it
 * was stopped; what is not to go on is abandoned.
 *
 * Urgent submissions overtake what the executor has not begun. A flow has that right while it has
 * nothing else there: it asks for less than its share, or the scheduler would not have released it.
 * Two of them taking turns could overtake a third for ever, so after a few in a row one waits. What
 * is long, or was stopped before, is not urgent where it could be stopped.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"

enum {
	RELEASE_BATCH = 64, /* a turn, for each device */
	MAX_URGENT = 8,     /* until one that is not urgent has come back */
	/* What releasing a submission and taking it back costs the reactor, in entries. */
	REAP_ENTRIES = 8,
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
 * The scheduler sees all that is left, although only a part of it may be given to the executor at
 * once: what comes later counts for who would wait behind it.
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
	run->place.later_ns = 0;
	run->place.goes_on = run->place.has_slot = false;
	run->place.gate = NULL;
	run->place.stopped_exec_ns = run->place.stopped_busy_ns = 0;
	run->place.plan = task->plan->place;
	run->place.flow = task->ring->flow->place;
	run->place.decision = decision;
	run->place.decision.split_count = 0;
	run->place.priority = task->priority;
	run->place.admit_ns = clock_ticks_to_ns(task->admit_ticks);
	run->place.deadline_ns = task->deadline_ticks == UINT64_MAX
					 ? UINT64_MAX
					 : clock_ticks_to_ns(task->deadline_ticks);
}

/* Goes on @n_rows further in the tensors that have rows. */
static void run_advance(struct run *run, uint32_t n_rows)
{
	const struct plan *plan = run->task->plan->plan;

	for (uint32_t i = 0; i < plan->n_bindings; i++)
		run->refs[i].offset += plan->bindings[i].row_bytes * n_rows;
	run->n_rows -= n_rows;
}

/* --- partition --- */

/* Rows from @split_count on are the CPU's. Return: false: there is no half left in the pool. */
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

void task_place(struct dispatch *dispatch, struct task *task, struct place_decision decision)
{
	task->phase = TASK_PLACED;
	task->device = decision.device;
	task->is_explored = decision.flags & PLACE_EXPLORES;
	task->is_moved = false;
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
	 * Who named a device, or waited for its memory, has it, also if another is done earlier;
	 * and where there is none of that name, has what stands in for it.
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

/* The run is not with an executor any more, nor queued. */
static void run_over(struct dispatch *dispatch, struct run *run)
{
	run->is_over = true;
	run->task->n_runs--;
	run_off_device(dispatch, run, run->place.decision.device);
}

/*
 * May the run be stopped where its device has begun it? A state is updated as a whole, as long as
 * there is a client to use it.
 */
static bool run_may_break_off(const struct dispatch *dispatch, const struct run *run)
{
	const struct executor *executor = dispatch->executors[run->place.decision.device];
	const struct task *task = run->task;

	return executor->ops->abandon &&
	       (!task->plan->plan->has_state || task->ring->ring->is_closing);
}

/* An executor has it. Return: false, and nothing is done: it has begun, and cannot be stopped. */
static bool run_cancel_held(struct dispatch *dispatch, struct run *run)
{
	uint8_t expected = EXEC_QUEUED;

	/* Pairs with exec_task_begin(): one of the two wins. */
	if (atomic_compare_exchange_strong_explicit(&run->exec.state, &expected, EXEC_CANCELLED,
						    memory_order_acq_rel, memory_order_acquire))
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

/* A run that need not go on: taken out of its queue, or told to its executor. */
static void run_stop(struct dispatch *dispatch, struct run *run)
{
	if (run->is_over)
		return;
	if (run->place.state != PLACE_QUEUED) {
		run_cancel_held(dispatch, run);
		return;
	}
	if (run->exec.part > 0)
		return;
	run_abandon(dispatch, run);
	place_dequeue(dispatch->placer, &run->place, dispatch_now_ns(dispatch));
	note_dequeued(dispatch, run->place.decision.device);
	run_over(dispatch, run);
}

/* Return: the task, if that was its last run; NULL. */
static inline struct task *run_ended(struct dispatch *dispatch, struct run *run, int res)
{
	struct task *task = run->task;

	run_over(dispatch, run);
	if (res && !task->res)
		task->res = res;
	/* What the other device does is of no use any more. */
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
 * Return: false, and nothing is done: an executor has begun it and does not stop it. One that has
 * it queued, or stops it, hands it back: then the run goes on, or begins anew, if the task as a
 * whole could not be withdrawn.
 */
static bool run_may_stop(struct dispatch *dispatch, struct run *run)
{
	if (run->is_over || (run->has_begun && !run_may_break_off(dispatch, run)))
		return false;
	return run->place.state == PLACE_QUEUED || run_cancel_held(dispatch, run);
}

bool task_withdraw(struct dispatch *dispatch, struct task *task)
{
	if (!run_may_stop(dispatch, &task->run) ||
	    (task->half && !run_may_stop(dispatch, &task->half->run)))
		return false;
	task->is_cancelled = true;
	run_stop(dispatch, &task->run);
	if (task->half)
		run_stop(dispatch, &task->half->run);
	if (task->n_runs > 0)
		return true;
	half_free(dispatch, task);
	/* Completing it may start others, which is not for who is in the middle of something. */
	task->phase = TASK_WOKEN;
	task->next = NULL;
	*dispatch->woken.end = task;
	dispatch->woken.end = &task->next;
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

/* How much of what is left this submission does, so that others get in between. */
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

/* Return: false: the executor takes nothing more now. */
static bool run_submit(struct dispatch *dispatch, struct run *run)
{
	uint8_t device = run->place.decision.device;
	struct executor *executor = dispatch->executors[device];
	struct device_load *load = &dispatch->loads[device];

	run_measure(dispatch, run, device);
	run->exec.start_ticks = run->exec.end_ticks = run->exec.busy_ticks = 0;
	run->exec.copied_bytes = run->exec.transferred_bytes = 0;
	run->exec.is_urgent = run_is_urgent(dispatch, run, device);
	/* It may take longer than was predicted. */
	run->exec.slice_ticks = run->exec.is_urgent ? dispatch->slice_ticks : 0;
	atomic_store_explicit(&run->exec.state, EXEC_QUEUED, memory_order_relaxed);
	if (executor->ops->submit(executor, &run->exec) != 0)
		return false;
	note_dequeued(dispatch, device);
	load->n_urgent += run->exec.is_urgent;
	load->n_held++;
	run->task->ring->flow->n_held[device]++;
	dispatch->n_submitted++;
	dispatch->flush_mask |= 1u << device;
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

/* An executor that begins wakes a thread that sleeps, or enters the driver. */
void dispatch_flush(struct dispatch *dispatch)
{
	if (dispatch->flush_mask & ~(1u << RBK_DEVICE_CPU)) {
		dispatch->has_used_devices = true;
		dispatch_set_pace(dispatch, true);
	}
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

/* --- and back --- */

/*
 * May a run that failed on its device go on on the CPU? Outputs are out of place, so a second run
 * is harmless; a state may be half updated, and is never run again blindly.
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
	/* What was predicted was another device's time. */
	task->predicted_ns = task->other_ns = 0;
	/* Parts that were done are of no use to the CPU. */
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
	place_learn(dispatch->placer, run->place.plan, device, run->n_rows, PLACE_FAILED, 0, 0,
		    now_ns);
	dispatch->mended[device].n_moved++;
	run_fall_back(dispatch, run);
	return true;
}

/*
 * A task that did not run, as with a tensor out of reach, says nothing about its device. A device
 * that is lost takes all with it that it has; that is one failure, the first one's that comes back.
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

/* Tells the placer. Parts are charged one by one, and learned from together. */
static void run_learn(struct dispatch *dispatch, struct run *run)
{
	enum place_result result = run_result(dispatch, run);
	uint64_t now_ns = dispatch_now_ns(dispatch);
	uint64_t exec_ns = clock_elapsed_ns(run->exec.start_ticks, run->exec.end_ticks);
	uint64_t busy_ns = clock_ticks_to_ns(run->exec.busy_ticks);
	struct session *session = run->task->ring->ring->session;

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
	/* A cancelled run says that the device is alive only if the device had begun it. */
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
	/* A stopped task waited until it went on: that is no execution. */
	if (__builtin_expect(run->place.stopped_exec_ns > 0, 0) && !task->half &&
	    run->exec.start_ticks > task->end_ticks)
		task->start_ticks += run->exec.start_ticks - task->end_ticks;
	if (!task->start_ticks || task->start_ticks > run->exec.start_ticks)
		task->start_ticks = run->exec.start_ticks;
	if (task->end_ticks < run->exec.end_ticks)
		task->end_ticks = run->exec.end_ticks;
}

/* A submission was done. Return: is there another one, which waits in the queue now? */
static bool run_go_on(struct dispatch *dispatch, struct run *run)
{
	struct task *task = run->task;
	struct place_decision *decision = &run->place.decision;

	run->has_begun = true;
	/* Rows of one run are done by one device, unless that fails. */
	decision->flags |= PLACE_BOUND;
	if (run->exec.part + 1u < run->n_parts) {
		/* What was begun in parts is gone through with. */
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

/* Its device has stopped it before its end. Return: as run_returned(). */
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
	/* Stopped for a cancellation that came too late for the other half, or taken back. */
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
	if (to != RBK_DEVICE_CPU)
		note_wanted(task->plan, task->admit_ticks);
}
