/* SPDX-License-Identifier: MIT */
/*
 * Liveness: a device that has work and makes no progress is an error
 *
 * Devices fail in unforeseen ways: tasks wait for each other, sums are wrong, an executor has lost
 * a task. These failures share one symptom: the device has work and returns nothing. So a timer
 * checks each device from time to time while there is work. A device that has returned nothing for
 * much longer than was predicted has stalled. An incident is logged once, with the tasks that the
 * device holds and their tenants, and counted. Repair is more drastic the longer the stall lasts:
 *
 *  - First, the scheduler's sums are computed anew from the actual tasks. Tasks that the executor
 *    has not begun are taken back and queued again.
 *  - Then tasks that the executor has not begun and that may run on the CPU are moved there. Each
 *    counts as a failure of the device, so that its breaker opens.
 *  - At last, if nothing runs on the device although it was given tasks, it is declared lost: the
 *    tasks it holds are returned, and it is reopened.
 *
 * The thresholds: while tasks run, the executor has a timeout of its own, which knows more; the
 * thresholds here are for stalls that this timeout overlooks. While no task runs, a second is too
 * long, except where other programs may keep the threads from running: on the CPU, and on a GPU in
 * software. Devices that are already lost are not checked, nor are tasks that wait for a CPU quota
 * to fill, or for leased programs that share the device.
 *
 * A look at the tasks that a device holds takes time for each task in flight, of which clients have
 * as many as they like. So a look begins only when the device has done nothing for a second, and
 * then ever more rarely. Looks visit one device at a time, in slices (walk.c). Such a look is not
 * of one moment, and is abandoned when the device makes progress meanwhile. A look that ends has
 * visited each run that the executor held when it began, since none was returned:
 *
 *  - A look that finds nothing given proves that no run was held for the whole look. A look that
 *    finds only throttled runs proves that no other run was queued for the whole look. The device
 *    has not stalled.
 *  - A look that finds nothing running proves that nothing ran when it began; a run begun since its
 *    visit may run now. So the time without progress counts only until the look began, and each run
 *    is treated by its current state: only runs that have not begun are taken back, only queued
 *    runs are moved.
 *
 * The counts in the log come from the recount, which is of one moment: scheduling between its parts
 * would work on sums that lack tasks. A device is declared lost by a count of one moment, too. Both
 * counts take time for each task in flight: the former once per incident, the latter after a look,
 * and looks become ever rarer. A client cannot cause incidents by cancelling all of its tasks: a
 * task that is cancelled while it runs counts as progress. Moving tasks to the CPU again takes
 * slices.
 */
#include <errno.h>
#include <inttypes.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "loop/loop.h"
#include "util/error.h"
#include "util/log.h"

enum {
	/* Log lines about holders, per incident */
	MAX_HOLDERS = 8,
	/* Multiple of the predicted time */
	PATIENCE = 4,
};

static const uint64_t look_ns = 100000000;
static const uint64_t idle_floor_ns = 1000000000;
static const uint64_t software_idle_floor_ns = 5000000000;
static const uint64_t busy_floor_ns = 15000000000;
static const uint64_t cpu_floor_ns = 10000000000;
/* A software device shares the processors with all other programs: slow is not stuck. */
static const uint64_t software_floor_ns = 60000000000;

/* Tasks of one plan on a device */
struct holder {
	const struct session_plan *plan;
	uint32_t n_queued, n_given, n_running, n_begun;
};

/* A recount's counts, all of one moment */
struct census {
	struct holding holding;
	uint64_t n_taken, n_held; /* plans' slots: as counted before; as tasks have them */
	uint32_t n_holders;       /* including those not listed */
	struct holder holders[MAX_HOLDERS];
};

static inline bool run_is_given(const struct run *run)
{
	return run->place.state == PLACE_RELEASED;
}

static bool run_is_running(const struct run *run)
{
	return atomic_load_explicit(&run->exec.state, memory_order_acquire) == EXEC_RUNNING;
}

/* --- walking over runs --- */

typedef void (*run_fn)(struct dispatch *dispatch, struct run *run, void *data);

static void visit(struct dispatch *dispatch, struct run *run, uint8_t device, run_fn fn, void *data)
{
	if (!run->is_over && run->place.decision.device == device && run->place.state != PLACE_IDLE)
		fn(dispatch, run, data);
}

/*
 * Call @fn for the task's runs on @device. It may queue the run elsewhere, and must complete
 * nothing.
 */
static void visit_runs(struct dispatch *dispatch, struct task *task, uint8_t device, run_fn fn,
		       void *data)
{
	struct task *slot;

	for (uint32_t i = 0; (slot = task_slot(task, i)); i++) {
		if (slot->phase != TASK_PLACED)
			continue;
		visit(dispatch, &slot->run, device, fn, data);
		if (slot->half)
			visit(dispatch, &slot->half->run, device, fn, data);
	}
}

/* Visit all runs at once, where scheduling must not continue in between. */
static void for_each_run(struct dispatch *dispatch, uint8_t device, run_fn fn, void *data)
{
	list_for_each (node, &dispatch->rings) {
		struct dispatch_ring *ring = container_of(node, struct dispatch_ring, link);

		list_for_each (other, &ring->in_flight) {
			struct task *task = container_of(other, struct task, link);

			visit_runs(dispatch, task, device, fn, data);
		}
	}
}

/* --- Holders of a device --- */

static void count_run(struct dispatch *dispatch, struct run *run, void *data)
{
	struct holding *holding = data;
	bool is_given = run_is_given(run), is_running = is_given && run_is_running(run);

	if (run->task->admit_ticks < holding->oldest_ticks)
		holding->oldest_ticks = run->task->admit_ticks;
	holding->n_queued += !is_given;
	holding->n_given += is_given && !is_running;
	holding->n_running += is_running;
	if (is_given)
		holding->predicted_ns += run->place.work_ns;
	else if (place_task_is_held_back(&run->place) ||
		 (run->place.decision.device == RBK_DEVICE_CPU &&
		  place_flow_is_throttled(run->place.flow, dispatch_now_ns(dispatch))))
		holding->n_throttled++;
}

static struct holder *holder_of(struct census *census, const struct task *task)
{
	uint32_t n = census->n_holders < MAX_HOLDERS ? census->n_holders : MAX_HOLDERS;

	for (uint32_t i = 0; i < n; i++)
		if (census->holders[i].plan == task->plan)
			return &census->holders[i];
	if (census->n_holders++ >= MAX_HOLDERS)
		return NULL;
	census->holders[n] = (struct holder){.plan = task->plan};
	return &census->holders[n];
}

static void count_holder(struct census *census, const struct run *run)
{
	struct holder *holder = holder_of(census, run->task);
	bool is_given = run_is_given(run), is_running = is_given && run_is_running(run);

	if (!holder)
		return;
	holder->n_queued += !is_given;
	holder->n_given += is_given && !is_running;
	holder->n_running += is_running;
	holder->n_begun += run->place.has_slot;
}

static void log_holding(struct dispatch *dispatch, uint8_t device, uint64_t idle_ns,
			const struct census *census, bool was_wrong)
{
	const struct executor *executor = dispatch->executors[device];
	const struct holding *holding = &census->holding;

	log_error_of(LOG_OF_DEVICE(device), LOG_DEVICE_STALLED,
		     "%s has completed no task for %.1f s: %" PRIu32 " tasks run, %" PRIu32 " were "
		     "passed to it but have not begun, %" PRIu32 " are queued, the oldest was "
		     "admitted %.1f s ago%s; the broker tries to recover it",
		     executor->info.name, (double)idle_ns / 1e9, holding->n_running,
		     holding->n_given, holding->n_queued,
		     (double)clock_elapsed_ns(holding->oldest_ticks, dispatch->now_ticks) / 1e9,
		     was_wrong ? ", and the scheduler's counts were wrong" : "");
	for (uint32_t i = 0; i < census->n_holders && i < MAX_HOLDERS; i++) {
		const struct holder *holder = &census->holders[i];
		const struct session *session = holder->plan->session;

		log_error_of(LOG_OF(.has_device = true, .device = device,
				    .tenant = session_owner(session), .session = session->number),
			     LOG_DEVICE_STALLED,
			     "%s: plan %" PRIx32 " of session %" PRIu32 ", tenant %s: %" PRIu32
			     " run, %" PRIu32 " not begun, %" PRIu32 " queued; %" PRIu32
			     " of %" PRIu32 " slots are taken",
			     executor->info.name, holder->plan->id, session->number,
			     session_owner(session), holder->n_running, holder->n_given,
			     holder->n_queued, holder->n_begun,
			     holder->plan->plan->n_slots[device]);
	}
	if (census->n_holders > MAX_HOLDERS)
		log_error_of(LOG_OF_DEVICE(device), LOG_DEVICE_STALLED,
			     "%s: more plans have tasks on this device", executor->info.name);
}

/* --- mending --- */

static void forget_gate(struct dispatch *dispatch, struct run *run, void *data)
{
	struct census *census = data;

	census->n_taken += place_recount_plan(run->place.place_plan, run->place.decision.device);
}

static void recall_run(struct dispatch *dispatch, struct run *run)
{
	uint8_t expected = EXEC_QUEUED;

	/* A later part has results that other parts wait for, and cannot move to another device. */
	if (!run_is_given(run) || run->exec.part > 0)
		return;
	/*
	 * A recalled task that was stopped starts over, which would update part of its state twice.
	 */
	if (run->has_begun && run->task->plan->plan->has_state)
		return;
	/*
	 * Pairs with exec_task_begin(): one of the two wins. A recalled run is queued again when
	 * returned.
	 */
	if (atomic_compare_exchange_strong_explicit(&run->exec.state, &expected, EXEC_CANCELLED,
						    memory_order_acq_rel, memory_order_acquire))
		dispatch->mended[run->place.decision.device].n_recalled++;
}

/* Recall in the same visit: recalling changes nothing that is counted here. */
static void recount_run(struct dispatch *dispatch, struct run *run, void *data)
{
	struct census *census = data;

	place_recount_task(dispatch->placer, &run->place);
	census->n_held += run->place.has_slot;
	count_run(dispatch, run, &census->holding);
	count_holder(census, run);
	recall_run(dispatch, run);
}

/*
 * Compute the scheduler's sums for @device anew, and recall its runs.
 * Return: true if the sums were wrong.
 */
static bool recount(struct dispatch *dispatch, uint8_t device, struct census *ret)
{
	struct place_recount count;

	*ret = (struct census){.holding.oldest_ticks = UINT64_MAX};
	for_each_run(dispatch, device, forget_gate, ret);
	place_recount_begin(dispatch->placer, device, &count);
	list_for_each (node, &dispatch->flows)
		place_recount_flow(container_of(node, struct flow, link)->place, device);
	for_each_run(dispatch, device, recount_run, ret);
	if (ret->n_taken > ret->n_held)
		dispatch->mended[device].n_slots += ret->n_taken - ret->n_held;
	list_for_each (node, &dispatch->flows)
		place_recount_flow_done(dispatch->placer,
					container_of(node, struct flow, link)->place, device);
	return place_recount_end(dispatch->placer, device, &count);
}

static void evade_run(struct dispatch *dispatch, struct run *run, void *data)
{
	uint32_t *n = data;

	if (run_evade(dispatch, run))
		++*n;
	else
		recall_run(dispatch, run);
}

static void log_evaded(const struct dispatch *dispatch)
{
	const struct look *look = &dispatch->look;

	if (look->n_evaded > 0)
		log_warning_of(LOG_OF_DEVICE(look->device), LOG_DEVICE_STALLED,
			       "%s still makes no progress: %" PRIu32 " tasks that were queued for "
			       "it move to the CPU",
			       dispatch->executors[look->device]->info.name, look->n_evaded);
}

static void look_begin(struct dispatch *dispatch, uint8_t device, bool is_evading)
{
	dispatch->look = (struct look){
		.device = device,
		.is_evading = is_evading,
		.idle_ns = dispatch->watches[device].idle_ns,
		.holding.oldest_ticks = UINT64_MAX,
	};
	walk_begin(dispatch, &dispatch->look.walk);
	dispatch->walking |= WALK_LOOK;
}

/* Count at one moment: a run that a look in slices found given may have begun since. */
static bool runs_nothing_now(struct dispatch *dispatch, uint8_t device)
{
	struct holding holding = {.oldest_ticks = UINT64_MAX};

	for_each_run(dispatch, device, count_run, &holding);
	return holding.n_running == 0 && holding.n_given > 0;
}

static void mend(struct dispatch *dispatch, uint8_t device, struct device_watch *watch,
		 const struct holding *holding)
{
	struct executor *executor = dispatch->executors[device];
	struct census census;
	bool was_wrong;

	switch (watch->stage) {
	case 0:
		dispatch->loads[device].n_stalls++;
		was_wrong = recount(dispatch, device, &census);
		log_holding(dispatch, device, watch->idle_ns, &census, was_wrong);
		watch->stage = 1;
		break;
	case 1:
		if (device != RBK_DEVICE_CPU) {
			dispatch->loads[device].is_avoided = true;
			look_begin(dispatch, device, true);
		}
		watch->stage = 2;
		break;
	default:
		if (executor->ops->lose && holding->n_running == 0 && holding->n_given > 0 &&
		    runs_nothing_now(dispatch, device)) {
			dispatch->mended[device].n_lost++;
			executor->ops->lose(executor,
					    "it does not begin the tasks that were passed to it");
		}
	}
	/* The executor returns cancelled and lost tasks when it is flushed. */
	dispatch->flush_mask |= 1u << device;
	dispatch->may_rebalance = true;
}

/* --- watching --- */

static uint64_t patience_ns(const struct dispatch *dispatch, uint8_t device,
			    const struct holding *holding)
{
	bool is_software = dispatch->executors[device]->info.kind == EXECUTOR_SOFTWARE_GPU;
	uint64_t floor_ns, most_ns;

	if (device == RBK_DEVICE_CPU)
		floor_ns = cpu_floor_ns;
	else if (holding->n_running > 0)
		floor_ns = is_software ? software_floor_ns : busy_floor_ns;
	else
		floor_ns = is_software ? software_idle_floor_ns : idle_floor_ns;
	/* Tasks that never began do not justify waiting. */
	most_ns = holding->n_running > 0 ? PATIENCE * holding->predicted_ns : 0;
	return most_ns > floor_ns ? most_ns : floor_ns;
}

static void look_abandon(struct dispatch *dispatch)
{
	if (!(dispatch->walking & WALK_LOOK))
		return;
	dispatch->walking &= (uint8_t)~WALK_LOOK;
	if (dispatch->look.is_evading)
		log_evaded(dispatch);
}

static void watch_anew(struct dispatch *dispatch, uint8_t device, bool is_alive)
{
	struct device_watch *watch = &dispatch->watches[device];

	if (watch->stage > 0 && is_alive)
		log_info_of(LOG_OF_DEVICE(device), LOG_DEVICE_STALLED, "%s %s, after %.1f s",
			    dispatch->executors[device]->info.name,
			    dispatch->loads[device].n_returned == watch->n_returned
				    ? "has no more tasks"
				    : "makes progress again",
			    (double)watch->idle_ns / 1e9);
	dispatch->loads[device].is_avoided = false;
	if (dispatch->look.device == device)
		look_abandon(dispatch);
	*watch = (struct device_watch){
		.n_returned = dispatch->loads[device].n_returned,
		.is_begun = true,
		.look_ns = idle_floor_ns,
	};
}

/* Return true if the device's tasks wait, by design, for a suspect on another one: see blame.c. */
static bool is_kept_idle(const struct dispatch *dispatch, uint8_t device)
{
	return dispatch->alone != ALONE_NOBODY && device != RBK_DEVICE_CPU &&
	       dispatch->loads[device].n_held == 0;
}

/*
 * Return: true if the device has work and has returned nothing since the last call; otherwise the
 * device is watched anew.
 */
static bool is_suspect(struct dispatch *dispatch, uint8_t device)
{
	const struct device_load *load = &dispatch->loads[device];
	const struct device_watch *watch = &dispatch->watches[device];
	struct executor *executor = dispatch->executors[device];

	if (load->n_queued + load->n_held == 0 || load->own || is_kept_idle(dispatch, device) ||
	    load->n_returned != watch->n_returned || !watch->is_begun) {
		watch_anew(dispatch, device, true);
		return false;
	}
	if (executor->ops->is_lost && executor->ops->is_lost(executor)) {
		watch_anew(dispatch, device, false);
		return false;
	}
	return true;
}

static bool look_one(struct dispatch *dispatch)
{
	struct look *look = &dispatch->look;
	struct task *task;

	if (!walk_next(dispatch, &look->walk, &task))
		return false;
	if (task && look->is_evading)
		visit_runs(dispatch, task, look->device, evade_run, &look->n_evaded);
	else if (task)
		visit_runs(dispatch, task, look->device, count_run, &look->holding);
	return true;
}

static void judge(struct dispatch *dispatch, const struct look *look)
{
	const struct holding *holding = &look->holding;
	struct device_watch *watch = &dispatch->watches[look->device];
	uint64_t patience;

	if (holding->n_given + holding->n_running == 0 &&
	    holding->n_queued == holding->n_throttled) {
		watch_anew(dispatch, look->device, true);
		return;
	}
	watch->look_ns = 2 * watch->idle_ns;
	patience = patience_ns(dispatch, look->device, holding);
	if (look->idle_ns >= patience)
		mend(dispatch, look->device, watch, holding);
	else if (watch->look_ns > patience)
		watch->look_ns = patience;
}

unsigned int liveness_look(struct dispatch *dispatch)
{
	const uint8_t device = dispatch->look.device;
	const bool is_evading = dispatch->look.is_evading;
	struct look look;
	unsigned int n;

	if (!is_suspect(dispatch, device))
		return 0;
	n = walk_slice(dispatch, WALK_LOOK, look_one);
	/* The executor returns recalled tasks when it is flushed. */
	if (is_evading)
		dispatch->flush_mask |= 1u << device;
	if (dispatch->walking & WALK_LOOK)
		return n;
	if (is_evading) {
		log_evaded(dispatch);
		return n;
	}
	/* Judging a look may begin another one. */
	look = dispatch->look;
	judge(dispatch, &look);
	return n;
}

static void watch_device(struct dispatch *dispatch, uint8_t device, uint64_t elapsed_ns)
{
	struct device_watch *watch = &dispatch->watches[device];

	if (!is_suspect(dispatch, device))
		return;
	watch->idle_ns += elapsed_ns;
	if (watch->idle_ns < watch->look_ns || dispatch->walking & WALK_LOOK)
		return;
	look_begin(dispatch, device, false);
	liveness_look(dispatch);
}

void liveness_check(struct dispatch *dispatch)
{
	uint64_t elapsed_ns;

	dispatch->now_ticks = clock_ticks();
	elapsed_ns = clock_elapsed_ns(dispatch->watched_ticks, dispatch->now_ticks);
	dispatch->watched_ticks = dispatch->now_ticks;
	/* Time without checks does not count against a device: the broker itself was stopped. */
	if (elapsed_ns > 2 * look_ns)
		elapsed_ns = 2 * look_ns;
	for (uint32_t i = 0; i < dispatch->n_executors; i++)
		watch_device(dispatch, (uint8_t)i, elapsed_ns);
}

static void on_watch(void *data)
{
	struct dispatch *dispatch = data;

	dispatch->is_watching = false;
	liveness_check(dispatch);
	if (dispatch->n_submitted + dispatch->n_queued > 0)
		liveness_arm(dispatch);
}

void liveness_arm(struct dispatch *dispatch)
{
	dispatch->is_watching = true;
	loop_timer_arm(dispatch->watch_timer, look_ns);
}

uint32_t dispatch_n_stalls(const struct dispatch *dispatch, uint8_t device)
{
	return device < dispatch->n_executors ? dispatch->loads[device].n_stalls : 0;
}

void dispatch_describe_mended(const struct dispatch *dispatch, uint8_t device,
			      struct dispatch_mended *ret)
{
	*ret = dispatch->mended[device];
}

int liveness_init(struct dispatch *dispatch)
{
	int r;

	r = loop_timer_new(dispatch->options.loop, on_watch, dispatch, &dispatch->watch_timer);
	return r ? error_fold(r) : 0;
}

void liveness_deinit(struct dispatch *dispatch)
{
	loop_timer_free(dispatch->watch_timer);
}
