/* SPDX-License-Identifier: MIT */
/*
 * The reactor's turn
 *
 * When no ring is active the reactor arms the waker, does another turn, and sleeps in the loop if
 * that turn found nothing to do.
 */
#include "dispatch/dispatch.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/ending.h"
#include "dispatch/segment.h"
#include "loop/loop.h"
#include "session/segments.h"
#include "util/crash.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/thread.h"
#include "util/waker.h"

enum {
	/* Polls in a row before the loop, timers and idle rings are looked at */
	TURN_POLLS = 16,
	/* Entries of a batch, and completions unread, of a stream: see let_gather() */
	STREAM_ENTRIES = 48,
	STREAM_UNREAD = 64,
	STREAM_STEP = 6,
	/* Tasks split over two devices at the same time */
	MAX_HALVES = 64,
	/* Divisor of the time for work beside rings, see settle() */
	SETTLE_REST = 4,
	MAX_REST = 50, /* in turn budgets */
	/* Looks that found a neighbour's entries, after which a task is left to the workers */
	MOST_CALLS = 4,
	/* A batch of entries takes 1 / BATCH_PART of a turn. */
	BATCH_PART = 8,
};

static const uint64_t default_stop_ns = 10000000000;
/* Time that a client has to say hello before a pause. */
static const uint64_t hello_ns = 100000000;
/* Failures older than the longest wait of a breaker are forgiven when a device is reopened. */
static const uint64_t forgive_ns = 60000000000;

/*
 * A device that hangs gives no sign of it, and tasks queued for it may meanwhile be done sooner
 * elsewhere. So rebalancing is due after this time even without any event.
 */
static const uint64_t balance_interval_ns = 10000000;

/* See charge_batch(). */
static const uint64_t entry_ns = 16;
/* See leave_slice(). */
static const uint64_t end_ns = 150;
static const uint64_t max_batch_ns = 1000000;
static const uint64_t charge_ns = 2000;
/* Time to poll an empty ring */
static const uint64_t poll_ns = 10;

static void on_plan_removing(void *context, struct session_plan *plan)
{
	for (uint32_t i = 0; i < plan_n_segments(plan); i++)
		waits_plan_removing(context, plan_segment(plan, i));
	weights_forget(context, plan);
}

static void on_table_there(void *context, struct session_ring *session_ring)
{
	struct dispatch_ring *ring = session_ring->dispatch;
	struct dispatch *dispatch = context;

	ring->is_fetching = false;
	dispatch_admit_fetched(dispatch, ring);
	/*
	 * Poll the entries that came in the meantime; a ring without entries announces its sleep
	 * again.
	 */
	if (!ring->is_active && !ring->is_throttled)
		ring_activate(dispatch, ring, clock_ticks());
}

/* --- the turn --- */

static uint64_t on_tasks_in_flight(void *context)
{
	return dispatch_n_in_flight(context);
}

void dispatch_await_balance(struct dispatch *dispatch)
{
	if (dispatch->is_balance_armed || dispatch->n_queued == 0 || dispatch->n_executors < 2)
		return;
	dispatch->is_balance_armed = true;
	loop_timer_arm(dispatch->balance_timer, balance_interval_ns);
}

static void on_balance(void *data)
{
	struct dispatch *dispatch = data;

	dispatch->is_balance_armed = false;
	dispatch->may_rebalance = true;
}

static void on_slice(void *data)
{
	struct dispatch *dispatch = data;

	dispatch->is_slice_armed = false;
	dispatch->may_preempt = true;
}

/* If a task may have to be stopped, arm the timer for it. */
static void await_slice(struct dispatch *dispatch)
{
	uint64_t now_ns, slice_ns;

	if (dispatch->is_slice_armed || dispatch->n_submitted == 0 ||
	    !place_may_preempt(dispatch->placer))
		return;
	dispatch->now_ticks = clock_ticks();
	now_ns = dispatch_now_ns(dispatch);
	slice_ns = place_preempt_ns(dispatch->placer, now_ns);
	dispatch->is_slice_armed = true;
	loop_timer_arm(dispatch->slice_timer, slice_ns - now_ns);
}

/* Arm the timers that bring the loop back to work on devices, or for them. */
static void await_devices(struct dispatch *dispatch)
{
	dispatch_await_balance(dispatch);
	if (!dispatch->is_watching)
		liveness_arm(dispatch);
}

/* Called each time before the loop is entered. */
static inline void announce_work(struct dispatch *dispatch)
{
	const struct dispatch_options *options = &dispatch->options;

	if (!dispatch->is_working && dispatch_is_working(dispatch) && options->work_begins)
		options->work_begins(options->work_context);
}

/*
 * Poll the kernel, as each turn does; with @block until an event comes. A turn without this poll
 * would leave bells, requests and timers waiting for as long as tasks return or are ended.
 */
static int look_at_kernel(struct dispatch *dispatch, bool block)
{
	announce_work(dispatch);
	flow_await_refill(dispatch);
	await_slice(dispatch);
	return loop_turn(dispatch->options.loop, block);
}

unsigned int dispatch_work(struct dispatch *dispatch, struct dispatch_ring **ret_hostile)
{
	unsigned int n = dispatch_poll(dispatch, ret_hostile);

	if (__builtin_expect(*ret_hostile != NULL, 0))
		return n;
	/*
	 * Completed entries are announced before the work on tasks, of any tenant, which may take
	 * long.
	 */
	if (!turn_queue_is_empty(&dispatch->bells))
		dispatch_ring_bells(dispatch);
	return n + dispatch_tasks(dispatch);
}

/*
 * Do the work for clients beside their rings in at most 1 / SETTLE_REST of the time in which rings
 * and devices have work. So a client that connects in a loop, or sends one request after the other,
 * does not delay every entry. After rings and devices were idle for a budget, this work may take
 * all of the time. Only the work itself demands a rest, not time in which the reactor was
 * preempted, as by a client that has got its answer.
 */
static void settle(struct dispatch *dispatch)
{
	const uint64_t budget_ticks = dispatch->turn->budget_ticks;
	uint64_t now_ticks, rest_ticks;
	struct turn_span span;

	if (!server_is_settling(dispatch->server)) {
		/* looks for faults */
		server_settle(dispatch->server);
		return;
	}
	span = turn_span(dispatch->turn, clock_ticks());
	if ((int64_t)(dispatch->rest_until_ticks - span.begin_ticks) > 0 &&
	    (int64_t)(span.begin_ticks - dispatch->busy_ticks) < (int64_t)budget_ticks)
		return;
	server_settle(dispatch->server);
	now_ticks = clock_ticks();
	rest_ticks = turn_span_cost(dispatch->turn, span, now_ticks) * (SETTLE_REST - 1);
	if (rest_ticks > MAX_REST * budget_ticks)
		rest_ticks = MAX_REST * budget_ticks;
	dispatch->rest_until_ticks = now_ticks + rest_ticks;
}

/* Return true if there is such work, and its rest is over. */
static bool settle_is_due(const struct dispatch *dispatch, uint64_t now_ticks)
{
	return dispatch->server && server_is_settling(dispatch->server) &&
	       (int64_t)(now_ticks - dispatch->rest_until_ticks) >= 0;
}

/* --- tasks that the reactor runs itself --- */

/*
 * Return true if a ring has entries or the kernel has news, or if it is time to ask executors for
 * finished tasks.
 */
static bool sees_work(struct dispatch *dispatch, uint64_t now_ticks)
{
	struct reactor_run *own = &dispatch->reactor_run;
	bool has_news =
		!turn_queue_is_empty(&dispatch->rung) || loop_has_news(dispatch->options.loop);
	bool is_called = false;

	/* A neighbour's ring may have become active during the task. */
	for (uint32_t i = 0; i < dispatch->n_active && i < REACTOR_RUN_RINGS; i++) {
		const struct dispatch_ring *ring = dispatch->active[i];

		if (!dispatch_ring_has_work(ring))
			continue;
		has_news = true;
		is_called |= ring->flow != own->flow;
	}
	own->n_calls += is_called;
	return has_news || settle_is_due(dispatch, now_ticks) ||
	       (dispatch->n_submitted > own->n_held &&
		now_ticks - own->reaped_ticks > own->reap_ticks);
}

/*
 * Do a turn's work but for that which can wait until the task has ended.
 * Return: false if the task must stop, because the next turn has more to do.
 */
static __attribute__((__noinline__)) bool work_between(struct dispatch *dispatch)
{
	struct reactor_run *own = &dispatch->reactor_run;
	struct dispatch_ring *hostile = NULL;

	if (loop_has_news(dispatch->options.loop)) {
		own->kernel_result = look_at_kernel(dispatch, false);
		if (own->kernel_result < 0)
			return false;
		own->kernel_result = 0;
	}
	if (!turn_queue_is_empty(&dispatch->rung))
		dispatch_answer_bells(dispatch);
	dispatch_work(dispatch, &hostile);
	if (!turn_queue_is_empty(&dispatch->bells))
		dispatch_ring_bells(dispatch);
	if (settle_is_due(dispatch, clock_ticks()))
		settle(dispatch);
	/* The session of a hostile ring ends in the next turn, which finds its indices again. */
	return !hostile;
}

/* Answer what came during the task, between two pieces of it: an exec_look_fn. */
static void look_between(void *context)
{
	struct dispatch *dispatch = context;
	struct reactor_run *own = &dispatch->reactor_run;
	uint64_t now_ticks = clock_ticks();
	bool goes_on = true;

	own->is_overrun |= now_ticks - own->looked_ticks > own->long_piece_ticks;
	if (__builtin_expect(sees_work(dispatch, now_ticks), 0)) {
		goes_on = work_between(dispatch);
		dispatch_give_way(dispatch, own->running->task->ring);
		own->reaped_ticks = clock_ticks();
		/* Other work is no fault of the task. */
		own->stop_ticks += own->reaped_ticks - now_ticks;
		now_ticks = own->reaped_ticks;
	}
	own->looked_ticks = now_ticks;
	if (__builtin_expect(!goes_on || now_ticks > own->stop_ticks || own->n_calls > MOST_CALLS ||
				     own->is_in_the_way || dispatch->n_active > REACTOR_RUN_RINGS,
			     0))
		exec_task_stop(&own->running->exec, EXEC_STOPPING);
}

static void note_time(struct dispatch *dispatch, struct run *run)
{
	struct reactor_run *own = &dispatch->reactor_run;
	struct session_plan *plan = run->task->plan;
	struct flow *flow = run->task->ring->flow;
	uint64_t n_forgiven = 1;

	if (own->is_overrun || own->looked_ticks > own->stop_ticks) {
		overrun_note(&plan->reactor_overruns, &plan->reactor_again_ticks,
			     dispatch->now_ticks, OVERRUN_PAUSE_NS);
		overrun_note(&flow->inline_overruns, &flow->inline_again_ticks, dispatch->now_ticks,
			     OVERRUN_PAUSE_NS);
	} else if ((plan->reactor_overruns | flow->inline_overruns) > 0) {
		/* The counter may have gone backwards. */
		if (run->exec.end_ticks > run->exec.start_ticks)
			n_forgiven +=
				(run->exec.end_ticks - run->exec.start_ticks) / own->forgive_ticks;
		overrun_forgive(&plan->reactor_overruns, n_forgiven);
		overrun_forgive(&flow->inline_overruns, n_forgiven);
	}
}

/* Remove the oldest run that waits. */
static struct run *take_waiting(struct reactor_run *own, uint64_t *ret_work_ns)
{
	struct run *run = own->waiting[0].run;

	*ret_work_ns = own->waiting[0].work_ns;
	own->n_waiting--;
	for (uint32_t i = 0; i < own->n_waiting; i++)
		own->waiting[i] = own->waiting[i + 1];
	return run;
}

/* Note that the reactor does not hold a run any more. */
static void let_go(struct reactor_run *own, uint64_t work_ns)
{
	own->n_held--;
	own->work_ns -= work_ns;
}

/*
 * Give a run to a worker if a neighbour's task came after the run was taken: they share the workers
 * as the scheduler decides. A sole worker that has a task gets the run as well.
 */
static bool give_to_worker(struct dispatch *dispatch, struct run *run)
{
	struct executor *cpu = dispatch->executors[RBK_DEVICE_CPU];
	const struct flow *flow = run->task->ring->flow;
	const uint32_t n_held = dispatch->loads[RBK_DEVICE_CPU].n_held;
	const uint32_t n_alone = cpu->info.n_threads == 1 ? dispatch->reactor_run.n_held
							  : flow->n_held[RBK_DEVICE_CPU];

	if (n_held == n_alone || cpu->ops->submit(cpu, &run->exec) != 0)
		return false;
	dispatch->flush_mask |= 1u << RBK_DEVICE_CPU;
	dispatch_flush(dispatch);
	return true;
}

unsigned int reactor_run_next(struct dispatch *dispatch)
{
	struct executor *cpu = dispatch->executors[RBK_DEVICE_CPU];
	struct reactor_run *own = &dispatch->reactor_run;
	uint64_t work_ns;
	struct run *run = take_waiting(own, &work_ns);

	if (give_to_worker(dispatch, run)) {
		let_go(own, work_ns);
		return 1;
	}
	dispatch_give_way(dispatch, run->task->ring);
	own->running = run;
	own->is_overrun = own->is_in_the_way = false;
	own->n_calls = 0;
	own->looked_ticks = own->reaped_ticks = clock_ticks();
	/* Twice the prediction, and the time of a switch: a worker would not be sooner. */
	own->stop_ticks = own->looked_ticks + clock_ns_to_ticks(2 * work_ns + REACTOR_SWITCH_NS);
	cpu->ops->run_here(cpu, &run->exec, reactor_run_free(dispatch, run), look_between,
			   dispatch);
	dispatch->now_ticks = clock_ticks();
	own->is_overrun |= dispatch->now_ticks - own->looked_ticks > own->long_piece_ticks;
	note_time(dispatch, run);
	if (run->exec.res == 0 && run->exec.count == run->n_rows && segments_is_last(run->task))
		stats_reactor_ran(run->task->ring->ring->session->tenant_stats);
	/* The client was not idle meanwhile. */
	run->task->ring->last_work_ticks = dispatch->now_ticks;

	own->running = NULL;
	let_go(own, work_ns);
	own->returned = &run->exec;
	dispatch_tasks(dispatch);
	return 1;
}

/* Run a task on this thread, last in a turn, so that nothing else waits for it; tell its client. */
static unsigned int run_here(struct dispatch *dispatch)
{
	unsigned int n = reactor_run_next(dispatch);

	if (!turn_queue_is_empty(&dispatch->bells))
		dispatch_ring_bells(dispatch);
	return n;
}

static unsigned int dispatch_turn(struct dispatch *dispatch)
{
	struct dispatch_ring *hostile = NULL;
	struct turn_source outer;
	unsigned int n = 0;

	/* First, so that the rings of rung bells are polled in the same turn. */
	if (!turn_queue_is_empty(&dispatch->rung))
		n = dispatch_answer_bells(dispatch);
	n += dispatch_work(dispatch, &hostile);
	if (hostile)
		session_end(hostile->ring->session, true, "the client's ring indices are invalid");
	if (!turn_queue_is_empty(&dispatch->bells)) {
		dispatch_ring_bells(dispatch);
		/* The next turn rings the remaining bells. */
		n += !turn_queue_is_empty(&dispatch->bells);
	}
	if (!list_is_empty(&dispatch->late_bells))
		n += dispatch_drain_late(dispatch);
	if (dispatch->demand->first) {
		outer = turn_enter(dispatch->turn, RBK_TURN_RESIDENCY, 0);
		residency_turn(dispatch->options.residency);
		turn_leave(dispatch->turn, outer);
		n++;
	}
	if (!list_is_empty(&dispatch->own))
		n += own_start(dispatch);
	if (dispatch->reactor_run.n_waiting > 0)
		n += run_here(dispatch);
	if (dispatch->n_submitted + dispatch->n_queued > 0)
		await_devices(dispatch);
	if (n > 0)
		dispatch->busy_ticks = dispatch->now_ticks;
	return n;
}

void dispatch_configure(struct dispatch *dispatch, const struct place_config *config)
{
	dispatch->now_ticks = clock_ticks();
	placer_configure(dispatch->placer, config);
	dispatch_replace_begin(dispatch, config->force_cpu);
}

void dispatch_drain_device(struct dispatch *dispatch, uint8_t device, bool is_drained)
{
	dispatch->now_ticks = clock_ticks();
	placer_set_drained(dispatch->placer, device, is_drained);
	dispatch_replace_begin(dispatch, is_drained);
}

uint64_t dispatch_device_in_flight(struct dispatch *dispatch, uint8_t device)
{
	struct place_device_report report;

	dispatch->now_ticks = clock_ticks();
	placer_device_report(dispatch->placer, device, dispatch_now_ns(dispatch), &report);
	return report.n_queued + report.n_released;
}

uint64_t dispatch_n_completed(const struct dispatch *dispatch)
{
	return dispatch->stats ? dispatch->stats->tasks_completed : 0;
}

uint64_t dispatch_n_in_flight(const struct dispatch *dispatch)
{
	return dispatch->stats ? dispatch->stats->n_in_flight : 0;
}

struct placer *dispatch_placer(struct dispatch *dispatch)
{
	return dispatch->placer;
}

bool dispatch_is_working(struct dispatch *dispatch)
{
	dispatch->is_working =
		dispatch->n_active > 0 || dispatch->n_submitted + dispatch->n_queued > 0;
	return dispatch->is_working;
}

/* Sleep, unless a last turn finds something to do. */
static int dispatch_sleep(struct dispatch *dispatch)
{
	bool block;
	int r;

	waker_arm(dispatch->options.waker);
	block = dispatch_turn(dispatch) == 0 && dispatch->n_active == 0;
	if (block)
		dispatch_note_activity(dispatch);
	r = look_at_kernel(dispatch, block);
	waker_disarm(dispatch->options.waker);
	return r;
}

/*
 * Let tasks in flight complete, then end the sessions.
 * Return: true if no session is left.
 */
static bool dispatch_drain(struct dispatch *dispatch)
{
	if (dispatch->n_submitted + dispatch->n_queued > 0 && !dispatch->drain_expired)
		return false;
	server_end_sessions(dispatch->server, "the broker is stopping");
	server_settle(dispatch->server);
	return server_is_empty(dispatch->server);
}

/* --- stops and pauses --- */

static void on_drain_expired(void *data)
{
	struct dispatch *dispatch = data;

	if (!dispatch->awaits_hello)
		log_warning(
			LOG_STOPPED_BUSY, "tasks did not finish within %g s of the request to %s",
			(double)dispatch->drain_ns / 1e9, dispatch->paused ? "restart" : "stop");
	dispatch->drain_expired = true;
}

/* Admit nothing any more, and expect tasks in flight to complete within @limit_ns. */
static void hold(struct dispatch *dispatch, uint64_t limit_ns)
{
	dispatch->is_holding = true;
	dispatch->drain_expired = dispatch->awaits_hello = false;
	dispatch->drain_ns = limit_ns;
	own_cancel_all(dispatch);
	loop_timer_arm(dispatch->drain_timer, limit_ns);
}

void dispatch_stop(struct dispatch *dispatch)
{
	if (dispatch->is_stopping)
		return;
	dispatch->is_stopping = true;
	dispatch->paused = NULL;
	if (dispatch->server)
		server_stop_accepting(dispatch->server);
	hold(dispatch, dispatch->options.stop_ns);
}

void dispatch_pause(struct dispatch *dispatch, uint64_t limit_ns, uint64_t (*paused)(void *context),
		    void *context)
{
	if (dispatch->is_holding)
		return;
	dispatch->paused = paused;
	dispatch->paused_context = context;
	server_hold_connections(dispatch->server, true);
	hold(dispatch, limit_ns);
}

/* Go on as if there had been no pause. */
static void end_pause(struct dispatch *dispatch)
{
	dispatch->paused = NULL;
	dispatch->is_holding = false;
	loop_timer_disarm(dispatch->drain_timer);
	dispatch->drain_expired = false;
	server_hold_connections(dispatch->server, false);
	dispatch_poll_again(dispatch);
}

void dispatch_resume(struct dispatch *dispatch)
{
	if (dispatch->paused)
		end_pause(dispatch);
}

/*
 * Return true if a client has connected and not been answered, and is worth waiting for: it would
 * see an error. One that keeps silent is not.
 */
static bool awaits_hello(struct dispatch *dispatch)
{
	if (!server_is_welcoming(dispatch->server))
		return false;
	if (!dispatch->awaits_hello)
		loop_timer_arm(dispatch->drain_timer, hello_ns);
	dispatch->awaits_hello = true;
	return true;
}

/* Leave a drained pause. Tasks that did not complete in time are as good as killed with it. */
static void look_at_pause(struct dispatch *dispatch)
{
	uint64_t again_ns;

	if (!dispatch->drain_expired &&
	    (dispatch->n_submitted + dispatch->n_queued > 0 || awaits_hello(dispatch)))
		return;
	again_ns = dispatch->paused(dispatch->paused_context);
	if (again_ns == 0) {
		/* Otherwise this process would not be the broker any more. */
		end_pause(dispatch);
		return;
	}
	/* The tasks had their time; this wait is no warning's cause. */
	dispatch->awaits_hello = true;
	loop_timer_arm(dispatch->drain_timer, again_ns);
}

/* Tell residency of lost devices: a device that hangs returns no task that would show it. */
static void notice_losses(struct dispatch *dispatch)
{
	for (uint32_t i = RBK_DEVICE_GPU; i < dispatch->n_executors; i++) {
		struct executor *executor = dispatch->executors[i];

		if (dispatch->loads[i].n_held > 0 && executor->ops->is_lost &&
		    executor->ops->is_lost(executor))
			residency_device_lost(dispatch->options.residency, i);
	}
}

/* Return true if work other than polling rings is left, so that the reactor must not sleep. */
static bool has_other_work(const struct dispatch *dispatch)
{
	return server_is_settling(dispatch->server) || !turn_queue_is_empty(&dispatch->rung) ||
	       dispatch->walking;
}

/*
 * Let entries of a stream gather after a turn of @n entries that followed the last one at once. A
 * reactor that looks at the ring after each entry takes the line of its index from the client,
 * which then publishes half as many. Where the client has not read many completions, it does not
 * wait for those of these entries.
 */
static void let_gather(const struct dispatch *dispatch, unsigned int n)
{
	const struct session_ring *ring = dispatch->active[0]->ring;

	if (dispatch->n_submitted > 0 ||
	    ring->cq_tail - rbk_ring_observe(&ring->sq->cq_head) < STREAM_UNREAD)
		return;
	for (; n < STREAM_ENTRIES; n += STREAM_STEP)
		thread_relax();
}

int dispatch_run(struct dispatch *dispatch, struct server *server)
{
	bool is_near = false;
	unsigned int n, i;
	int r = 0;

	dispatch->server = server;
	dispatch->stats = server_stats(server);
	crash_thread.is_own = true;
	while (r >= 0) {
		n = 0;
		if (dispatch->is_holding)
			dispatch_stop_polling(dispatch);
		/*
		 * Without active rings, too, one turn is done if the reactor does not sleep below:
		 * tasks return and clients are to be woken, even while others connect without end.
		 */
		for (i = 0;
		     i < TURN_POLLS && n == 0 &&
		     (dispatch->n_active > 0 || is_near || (i == 0 && has_other_work(dispatch)));
		     i++) {
			n = dispatch_turn(dispatch);
			if (n == 0)
				thread_relax();
		}
		if (n == 0 || dispatch->n_active > 1)
			dispatch_sleep_rings(dispatch, n > 0);
		else if (n < STREAM_ENTRIES && i == 1 && dispatch->n_active == 1)
			let_gather(dispatch, n);
		settle(dispatch);
		if (dispatch->is_stopping) {
			if (dispatch_drain(dispatch))
				break;
		} else if (dispatch->paused) {
			look_at_pause(dispatch);
		}
		if (dispatch->is_holding)
			dispatch_stop_polling(dispatch);
		/* Beside active rings the reactor is awake, and needs no alarm. */
		is_near = dispatch->n_active == 0 && dispatch->due.devices != 0 &&
			  due_is_near(dispatch);
		if (dispatch->n_active == 0 && !is_near && !has_other_work(dispatch)) {
			r = dispatch_sleep(dispatch);
		} else {
			r = look_at_kernel(dispatch, false);
		}
		if (r >= 0)
			r = dispatch->reactor_run.kernel_result;
		if (dispatch->n_submitted > 0)
			notice_losses(dispatch);
		if (!dispatch->paused && dispatch->drain_expired && dispatch->n_submitted > 0)
			return error_origin(-ETIMEDOUT);
	}
	return r < 0 ? error_fold(r) : 0;
}

static void on_waker(void *data, uint32_t events)
{
	/* The event has ended the sleep; waker_disarm() drains it. */
}

struct server_hooks dispatch_hooks(struct dispatch *dispatch)
{
	return (struct server_hooks){
		.ring_bytes = dispatch_ring_bytes,
		.ring_make = dispatch_ring_make,
		.ring_unmake = dispatch_ring_unmake,
		.ring_added = dispatch_ring_added,
		.ring_closing = dispatch_ring_ended,
		.ring_freed = dispatch_ring_freed,
		.ring_bell = dispatch_ring_bell,
		.table_there = on_table_there,
		.ring_drained = dispatch_ring_drained,
		.plan_bytes = dispatch_plan_bytes,
		.plan_make = dispatch_plan_make,
		.plan_ready = dispatch_plan_ready,
		.plan_removing = on_plan_removing,
		.cut_begin = dispatch_cut_begin,
		.cut_choose = dispatch_cut_choose,
		.plan_freed = dispatch_plan_freed,
		.tasks_in_flight = on_tasks_in_flight,
		.others_work = dispatch_others_work,
		.context = dispatch,
	};
}

/*
 * Reset the breakers of a reopened device, unless a task lost the device lately. Then the failures
 * still count; otherwise each reopening would also close the breaker.
 */
static void on_reopened(void *context, unsigned int device)
{
	struct dispatch *dispatch = context;
	const struct device_load *load = &dispatch->loads[device];

	if (!load->loss || clock_elapsed_ns(load->loss_ticks, clock_ticks()) > forgive_ns)
		placer_reset_device(dispatch->placer, (uint8_t)device);
	dispatch_replace_begin(dispatch, false);
}

static int make_placer(struct dispatch *dispatch)
{
	const struct dispatch_options *options = &dispatch->options;
	struct placer_options placer_options = {
		.config = options->config,
		.n_devices = options->n_executors,
		.moved = dispatch_moved,
		.context = dispatch,
	};
	const struct place_flow_limits limits = {.weight = 1};
	struct place_profile unknown[RBK_MAX_DEVICES];
	int r;

	for (uint32_t i = 0; i < options->n_executors; i++) {
		/* The device's speed is unknown, but the number of its servers is known. */
		unknown[i] = (struct place_profile){
			.n_servers = options->executors[i]->info.n_threads,
		};
		placer_options.profiles[i] =
			options->profiles[i] ? options->profiles[i] : &unknown[i];
	}
	r = placer_new(&placer_options, &dispatch->placer);
	/* The placer has copied the profiles. */
	memset(dispatch->options.profiles, 0, sizeof(dispatch->options.profiles));
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < options->n_executors; i++)
		if (options->executors[i]->ops->abandon)
			place_set_preemptible(dispatch->placer, (uint8_t)i);
	r = place_flow_new(dispatch->placer, &limits, &dispatch->nobody);
	return r ? error_fold(r) : 0;
}

static int make_halves(struct dispatch *dispatch)
{
	dispatch->halves = calloc(MAX_HALVES, sizeof(*dispatch->halves));
	if (!dispatch->halves)
		return error_origin(-ENOMEM);
	for (unsigned int i = 0; i < MAX_HALVES; i++) {
		dispatch->halves[i].next = dispatch->free_halves;
		dispatch->free_halves = &dispatch->halves[i];
	}
	return 0;
}

/*
 * Return true if a line is fetched sooner by a store than by a prefetch for writing. A batch of 64
 * NOPs took a fifth less time without these prefetches on Zen 4, of AMD's family 19h, and an eighth
 * more on Zen 5. A Xeon was measured with them alone.
 */
static bool stores_fetch(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_is("amdfam19h");
#else
	return false;
#endif
}

static int dispatch_init(struct dispatch *dispatch)
{
	const struct dispatch_options *options = &dispatch->options;
	int r;

	r = make_placer(dispatch);
	if (r)
		return error_fold(r);
	reactor_run_init(dispatch);
	dispatch->stores_fetch = stores_fetch();
	r = make_halves(dispatch);
	if (r)
		return error_fold(r);
	r = rings_init(dispatch);
	if (r)
		return error_fold(r);
	r = flows_init(dispatch);
	if (r)
		return error_fold(r);
	r = due_init(dispatch);
	if (r)
		return error_fold(r);
	r = liveness_init(dispatch);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_balance, dispatch, &dispatch->balance_timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_slice, dispatch, &dispatch->slice_timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_drain_expired, dispatch, &dispatch->drain_timer);
	if (r)
		return error_fold(r);
	r = loop_watch(options->loop, options->waker->fd, POLLIN, on_waker, dispatch,
		       &dispatch->waker_watch);
	return r ? error_fold(r) : 0;
}

int dispatch_new(const struct dispatch_options *options, struct dispatch **ret)
{
	static const uint32_t none_shared;
	_cleanup_(dispatch_freep) struct dispatch *dispatch = calloc(1, sizeof(*dispatch));
	int r;

	if (!dispatch)
		return error_origin(-ENOMEM);
	dispatch->options = *options;
	if (!options->stop_ns)
		dispatch->options.stop_ns = default_stop_ns;
	dispatch->shared_devices = options->shared_devices ? options->shared_devices : &none_shared;
	dispatch->executors = options->executors;
	dispatch->n_executors = options->n_executors;
	dispatch_set_contended(dispatch, false);
	dispatch->inline_task.refs = dispatch->inline_refs;
	dispatch->demand = residency_demand(options->residency);
	dispatch->woken.end = &dispatch->woken.first;
	dispatch->now_ticks = clock_ticks();
	dispatch->entry_ticks = clock_ns_to_ticks(entry_ns);
	dispatch->end_ticks = clock_ns_to_ticks(end_ns);
	series_init(&dispatch->series);
	dispatch->max_batch_ticks = clock_ns_to_ticks(max_batch_ns);
	dispatch->charge_ticks = clock_ns_to_ticks(charge_ns);
	dispatch->slice_ticks = clock_ns_to_ticks(2 * PLACE_SLICE_NS);
	dispatch->poll_ticks = clock_ns_to_ticks(poll_ns);
	dispatch->turn = loop_current(options->loop);
	dispatch->batch_ticks = dispatch->turn->budget_ticks / BATCH_PART;
	dispatch->long_batch_ticks = dispatch->turn->budget_ticks;
	if (dispatch->long_batch_ticks > dispatch->max_batch_ticks)
		dispatch->long_batch_ticks = dispatch->max_batch_ticks;
	turn_queue_init(&dispatch->bells, dispatch->turn);
	turn_queue_init(&dispatch->rung, dispatch->turn);
	list_init(&dispatch->late_bells);
	list_init(&dispatch->joining);
	chunks_init(&dispatch->ring_chunks, CHUNKS_SMALL);
	list_init(&dispatch->active_flows);
	list_init(&dispatch->ending);
	list_init(&dispatch->closing);
	list_init(&dispatch->rings);
	list_init(&dispatch->throttled);
	list_init(&dispatch->drained);
	list_init(&dispatch->flows);
	list_init(&dispatch->plans);
	list_init(&dispatch->own);
	/* Entropy may be missing early after boot; the clock is good enough then. */
	if (getrandom(&dispatch->bucket_seed, sizeof(dispatch->bucket_seed), GRND_NONBLOCK) < 0)
		dispatch->bucket_seed = clock_now_ns();
	residency_on_reopened(options->residency, on_reopened, dispatch);
	r = dispatch_init(dispatch);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(dispatch);
	return 0;
}

struct dispatch *dispatch_free(struct dispatch *dispatch)
{
	if (!dispatch)
		return NULL;
	residency_on_reopened(dispatch->options.residency, NULL, NULL);
	own_cancel_all(dispatch);
	loop_unwatch(dispatch->waker_watch);
	loop_timer_free(dispatch->balance_timer);
	loop_timer_free(dispatch->slice_timer);
	loop_timer_free(dispatch->drain_timer);
	rings_deinit(dispatch);
	liveness_deinit(dispatch);
	due_deinit(dispatch);
	flows_deinit(dispatch);
	if (dispatch->nobody)
		place_flow_free(dispatch->placer, dispatch->nobody);
	placer_free(dispatch->placer);
	chunks_deinit(&dispatch->ring_chunks);
	free(dispatch->halves);
	free(dispatch);
	return NULL;
}
