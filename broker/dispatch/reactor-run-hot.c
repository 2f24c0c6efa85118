/* SPDX-License-Identifier: MIT */
/*
 * Tasks that the reactor runs itself
 *
 * A task that a worker runs costs two switches of threads, to the worker and back, which take
 * longer than a task of tens of microseconds. So while no other tenant has work, the reactor runs
 * such a task itself, on the CPU. For everything else the task is one that the executor holds: it
 * can be cancelled, and stopped. Between pieces of the task, which take some ten microseconds at
 * most, the reactor does what it does in a turn: it answers entries, bells and requests, takes back
 * what other executors return, and releases tasks to them. It stops the task, and a worker resumes
 * it, when the task takes longer than predicted, when a worker gets a neighbour's task, or when
 * neighbours' entries come again and again.
 *
 * A task is taken by its predicted time. A piece or a task that takes too long fills the leaky
 * buckets of its plan and its tenant, as tasks that run inline do: a plan whose bucket is full is
 * left to the workers for OVERRUN_PAUSE_NS, and for as long after each further overrun.
 *
 * This file takes the tasks, dispatch.c runs them.
 *
 * The tasks taken are of one flow, in the order of their release. Several are taken only if workers
 * would not complete them sooner. Workers that have a task get the next one as well; but once each
 * of several has two, the reactor helps them with short tasks. Where many clients have one short
 * task each, every switch to a worker takes the processor from a client or from the reactor.
 */
#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "util/clock.h"

/* A piece of a task that takes longer is an overrun: neighbours wait for it. */
static const uint64_t long_piece_ns = 50000;
/* Time after which executors are asked again for finished tasks, while entries are absent */
static const uint64_t reap_ns = 10000;
/* Longest time of several tasks under contention, and beside workers that are full */
static const uint64_t most_short_ns = 200000;
/* A ring that had entries within this time belongs to a neighbour that has work. */
static const uint64_t quiet_ns = 50000;

void reactor_run_init(struct dispatch *dispatch)
{
	struct reactor_run *own = &dispatch->reactor_run;
	const struct executor *cpu = dispatch->executors[RBK_DEVICE_CPU];

	if (cpu->ops->run_here)
		own->most_ns = dispatch->options.reactor_task_ns;
	own->long_piece_ticks = clock_ns_to_ticks(long_piece_ns);
	own->forgive_ticks = clock_ns_to_ticks(OVERRUN_FORGIVE_NS);
	own->reap_ticks = clock_ns_to_ticks(reap_ns);
	own->quiet_ticks = clock_ns_to_ticks(quiet_ns);
}

/* Return true if a flow other than @flow had entries lately, or if there are too many rings. */
static bool has_busy_neighbour(const struct dispatch *dispatch, const struct flow *flow)
{
	if (dispatch->n_active > REACTOR_RUN_RINGS)
		return true;
	for (uint32_t i = 0; i < dispatch->n_active; i++) {
		const struct dispatch_ring *ring = dispatch->active[i];

		if (ring->flow != flow &&
		    dispatch->now_ticks - ring->last_work_ticks < dispatch->reactor_run.quiet_ticks)
			return true;
	}
	return false;
}

static bool are_fixed(const struct exec_ref *refs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!refs[i].arena->is_fixed)
			return false;
	return true;
}

/*
 * Return true if touching a run's tensors never waits for a process that takes pages away. A
 * segment that begins may copy the states of others: see undo-hot.c.
 */
static bool is_fixed(const struct run *run)
{
	const struct whole_run whole = segments_whole(run->task);

	return run->task->ring->ring->session->n_unfixed == 0 ||
	       (are_fixed(run->refs, run->exec.plan->n_bindings) &&
		(!run->exec.on_begin || are_fixed(whole.refs, whole.plan->n_bindings)));
}

unsigned int reactor_run_free(const struct dispatch *dispatch, const struct run *run)
{
	const unsigned int n_taken = 1 + run->task->ring->is_watched;

	if (dispatch->is_contended || dispatch->options.n_processors <= n_taken)
		return 0;
	return dispatch->options.n_processors - n_taken;
}

bool reactor_run_is_sole(const struct dispatch *dispatch, const struct run *run)
{
	const struct reactor_run *own = &dispatch->reactor_run;

	return own->n_held > 0 && own->flow == run->task->ring->flow &&
	       dispatch->executors[RBK_DEVICE_CPU]->info.n_threads == 1;
}

/*
 * Return the longest predicted time of several tasks together. Of n tasks as many workers would
 * save all but an nth of the time, and cost a switch; one worker saves nothing, nor do several
 * without processors. Under contention each task is shorter than a switch, which takes a processor
 * that others wait for.
 */
static uint64_t most_together_ns(const struct dispatch *dispatch, const struct run *run)
{
	const uint32_t n_threads = dispatch->executors[RBK_DEVICE_CPU]->info.n_threads;
	const uint32_t n_tasks = dispatch->reactor_run.n_held + 1;
	const uint32_t n_least = n_tasks < n_threads ? n_tasks : n_threads;
	const uint32_t n = n_least > 2 ? n_least : 2;

	if (dispatch->is_contended)
		return most_short_ns;
	if (n_threads == 1 || reactor_run_free(dispatch, run) == 0)
		return dispatch->reactor_run.most_ns;
	return (uint64_t)REACTOR_SWITCH_NS * n / (n - 1);
}

/*
 * Return the longest predicted time that @run may have, together with all tasks that the reactor
 * has; 0: workers get it.
 */
static uint64_t most_ns(const struct dispatch *dispatch, const struct run *run)
{
	const struct reactor_run *own = &dispatch->reactor_run;
	const uint32_t n_threads = dispatch->executors[RBK_DEVICE_CPU]->info.n_threads;
	const uint32_t n_held = dispatch->loads[RBK_DEVICE_CPU].n_held;
	const uint32_t n_left = n_held - own->n_held;

	if (n_left == 0)
		return own->n_held > 0 ? most_together_ns(dispatch, run) : own->most_ns;
	/* Workers that have a task are awake, or soon will be. */
	if (n_threads < 2 || n_left < n_threads * FULL_TASKS ||
	    run->place.work_ns > REACTOR_SWITCH_NS)
		return 0;
	/* Beside a neighbour's task, reactor_run_next() would only give it to a worker later. */
	if (n_held != run->task->ring->flow->n_held[RBK_DEVICE_CPU])
		return 0;
	return most_short_ns;
}

bool reactor_run_takes(struct dispatch *dispatch, struct run *run)
{
	struct reactor_run *own = &dispatch->reactor_run;
	struct session_plan *plan = run->task->plan;
	struct flow *flow = run->task->ring->flow;
	const uint64_t work_ns = run->place.work_ns;

	if (work_ns > own->most_ns || run->exec.has_progress || own->n_waiting == REACTOR_RUNS)
		return false;
	/* The reactor's priority is high: it does not compute for long while other programs wait.
	 */
	if (dispatch->is_contended && work_ns > REACTOR_SWITCH_NS)
		return false;
	if (own->work_ns + work_ns > most_ns(dispatch, run) ||
	    (own->n_held > 0 && own->flow != flow) || dispatch->loads[RBK_DEVICE_CPU].own)
		return false;
	if (!plan->plan->data_independent || !is_fixed(run) || has_busy_neighbour(dispatch, flow))
		return false;
	if (!overrun_permits(&plan->reactor_overruns, plan->reactor_again_ticks,
			     dispatch->now_ticks) ||
	    !overrun_permits(&flow->inline_overruns, flow->inline_again_ticks, dispatch->now_ticks))
		return false;

	own->flow = flow;
	own->waiting[own->n_waiting].run = run;
	own->waiting[own->n_waiting++].work_ns = work_ns;
	own->n_held++;
	own->work_ns += work_ns;
	return true;
}
