/* SPDX-License-Identifier: MIT */
/*
 * Measuring devices again while clients are served
 *
 * The calibrator (calibrate/calibrate.h) decides the steps; this file gives it the broker's setup
 * thread, its dispatcher and its ledger. One timer checks the age of profiles, a second after the
 * start and then every hour. Profiles are written to disk on the setup thread, because disks are
 * slow.
 */
#include "daemon/refresh-profiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calibrate/calibrate.h"
#include "calibrate/profiles.h"
#include "dispatch/dispatch.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "memory/residency.h"
#include "tenant/account.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"

/* Clients that start with the broker are served first. */
static const uint64_t first_ns = 1000000000u, interval_ns = 3600000000000u;

/* Time without tasks before a step, and interval at which that is checked */
static const uint64_t quiet_ns = 1000000000u, look_ns = 250000000u;

/* A step of the calibrator on the setup thread. */
struct step {
	struct offload_job job;
	calibrate_step_fn *run, *done;
	void *data;
};

/* A task of the calibrator */
struct own {
	struct dispatch_own own;
	struct exec_task *task;
	calibrate_step_fn *done;
	void *data;
};

struct refresh {
	struct refresh_options options;
	struct calibrator *calibrator;
	struct loop_timer *timer;
	struct step step;
	struct own own;
	struct loop_timer *quiet_timer;
	void (*deferred)(struct refresh *refresh); /* step to do once it is quiet; NULL: none */
	uint64_t n_completed, busy_ns; /* tasks completed, and time, when a task was last seen */
	struct charge device_charge, host_charge;
	bool is_guest; /* entered as a guest of residency */
	bool is_stopping;
};

/* A profile to be written to disk */
struct keep {
	struct offload_job job;
	struct profiles_copy copy;
};

/* ---- The calibrator's callbacks ---- */

static void step_run(struct offload_job *job)
{
	struct step *step = container_of(job, struct step, job);

	step->run(step->data);
}

static void step_done(struct offload_job *job)
{
	struct step *step = container_of(job, struct step, job);

	step->done(step->data);
}

static bool is_quiet(struct refresh *refresh)
{
	uint64_t n_completed = dispatch_n_completed(refresh->options.dispatch);
	uint64_t now_ns = clock_now_ns();

	if (n_completed != refresh->n_completed ||
	    dispatch_n_in_flight(refresh->options.dispatch) > 0) {
		refresh->n_completed = n_completed;
		refresh->busy_ns = now_ns;
	}
	return now_ns - refresh->busy_ns >= quiet_ns;
}

/*
 * Return true if a device is lost: it cannot be reopened while a probe's plan is loaded on it, so
 * the measurement must end.
 */
static bool is_any_lost(const struct refresh *refresh)
{
	for (uint32_t i = 0; i < refresh->options.n_executors; i++) {
		struct executor *executor = refresh->options.executors[i];

		if (executor->ops->is_lost && executor->ops->is_lost(executor))
			return true;
	}
	return false;
}

/* Do a step now, or as soon as it is quiet. */
static void when_quiet(struct refresh *refresh, void (*step)(struct refresh *refresh))
{
	if (refresh->is_stopping || is_quiet(refresh) || is_any_lost(refresh)) {
		refresh->deferred = NULL;
		step(refresh);
		return;
	}
	refresh->deferred = step;
	loop_timer_arm(refresh->quiet_timer, look_ns);
}

static void on_quiet_timer(void *data)
{
	struct refresh *refresh = data;

	if (refresh->deferred)
		when_quiet(refresh, refresh->deferred);
}

static void submit_step(struct refresh *refresh)
{
	offload_submit(refresh->options.offload, &refresh->step.job);
}

static void prepare_step(struct refresh *refresh, calibrate_step_fn *run, calibrate_step_fn *done,
			 void *data)
{
	refresh->step = (struct step){
		.job = {.run = step_run, .done = step_done, .cause = OFFLOAD_CALIBRATION},
		.run = run,
		.done = done,
		.data = data,
	};
}

static void setup(void *context, calibrate_step_fn *run, calibrate_step_fn *done, void *data)
{
	struct refresh *refresh = context;

	prepare_step(refresh, run, done, data);
	when_quiet(refresh, submit_step);
}

static bool enter(struct refresh *refresh, const struct executor *executor)
{
	if (!refresh->is_guest)
		refresh->is_guest =
			residency_guest_enter(refresh->options.residency, executor->index);
	return refresh->is_guest;
}

static void leave(struct refresh *refresh, const struct executor *executor)
{
	charge_deinit(&refresh->device_charge);
	charge_deinit(&refresh->host_charge);
	if (refresh->is_guest)
		residency_guest_leave(refresh->options.residency, executor->index);
	refresh->is_guest = false;
}

static bool charge(void *context, struct executor *executor, uint64_t device_bytes,
		   uint64_t host_bytes)
{
	const enum account_slot slot = account_vram(executor->index);
	struct refresh *refresh = context;

	if (device_bytes == 0 && host_bytes == 0) {
		leave(refresh, executor);
		return true;
	}
	if (!residency_is_up(refresh->options.residency, executor->index) ||
	    !enter(refresh, executor))
		return false;
	/* The charge is small, and no plan is evicted for it. */
	account_charge_set(refresh->options.account, &refresh->device_charge, slot, device_bytes);
	account_charge_set(refresh->options.account, &refresh->host_charge, ACCOUNT_HOST_BYTES,
			   host_bytes);
	return true;
}

static void own_done(struct dispatch_own *dispatched, int res)
{
	struct own *own = container_of(dispatched, struct own, own);
	struct exec_task *task = own->task;

	task->res = res;
	task->start_ticks = dispatched->exec.start_ticks;
	task->end_ticks = dispatched->exec.end_ticks;
	task->busy_ticks = dispatched->exec.busy_ticks;
	own->done(own->data);
}

static void own_refused_run(void *data)
{
}

static void submit_own(struct refresh *refresh)
{
	struct own *own = &refresh->own;

	if (dispatch_run_own(refresh->options.dispatch, &own->own) == 0)
		return;
	/* The dispatcher is stopping, and done() must not be called from within this call. */
	own->task->res = -ECANCELED;
	prepare_step(refresh, own_refused_run, own->done, own->data);
	submit_step(refresh);
}

static void run(void *context, struct executor *executor, struct exec_task *task,
		calibrate_step_fn *done, void *data)
{
	struct refresh *refresh = context;
	struct own *own = &refresh->own;

	*own = (struct own){
		.own = {.exec = {.plan = task->plan,
				 .refs = task->refs,
				 .count = task->count,
				 .part = task->part},
			.device = executor->index,
			.done = own_done},
		.task = task,
		.done = done,
		.data = data,
	};
	when_quiet(refresh, submit_own);
}

static void keep_run(struct offload_job *job)
{
	struct keep *keep = container_of(job, struct keep, job);

	profiles_copy_write(&keep->copy);
}

static void keep_done(struct offload_job *job)
{
	free(container_of(job, struct keep, job));
}

static void result(void *context, struct executor *executor,
		   const struct calibrate_samples *samples)
{
	struct refresh *refresh = context;
	struct keep *keep;

	if (!samples || !profiles_take(refresh->options.profiles, executor->index, samples,
				       (uint64_t)time(NULL))) {
		log_debug_of(LOG_OF_DEVICE(executor->index), LOG_DEVICE_NOT_MEASURED,
			     "device %u could not be measured while it was idle", executor->index);
		return;
	}
	log_info_of(LOG_OF_DEVICE(executor->index), LOG_DEVICE_MEASURED,
		    "device %u was measured while it was idle", executor->index);
	placer_set_profile(dispatch_placer(refresh->options.dispatch), executor->index,
			   profiles_get(refresh->options.profiles, executor->index));
	keep = malloc(sizeof(*keep));
	if (!keep)
		return;
	keep->job = (struct offload_job){
		.run = keep_run,
		.done = keep_done,
		.cause = OFFLOAD_FILE,
	};
	profiles_copy(refresh->options.profiles, executor->index, &keep->copy);
	offload_submit(refresh->options.offload, &keep->job);
}

/* ---- Timer ---- */

static void on_timer(void *data)
{
	struct refresh *refresh = data;

	if (refresh->is_stopping)
		return;
	if (!calibrator_is_busy(refresh->calibrator))
		calibrator_start(refresh->calibrator,
				 profiles_stale(refresh->options.profiles, (uint64_t)time(NULL)));
	loop_timer_arm(refresh->timer, interval_ns);
}

int refresh_new(const struct refresh_options *options, struct refresh **ret)
{
	_cleanup_(refresh_freep) struct refresh *refresh = calloc(1, sizeof(*refresh));
	struct calibrate_ops ops = {
		.setup = setup, .charge = charge, .run = run, .result = result, .context = refresh};
	int r;

	if (!refresh)
		return error_origin(-ENOMEM);
	refresh->options = *options;
	r = calibrator_new(&ops, options->executors, options->n_executors, &refresh->calibrator);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_timer, refresh, &refresh->timer);
	if (r)
		return error_fold(r);
	r = loop_timer_new(options->loop, on_quiet_timer, refresh, &refresh->quiet_timer);
	if (r)
		return error_fold(r);
	refresh->busy_ns = clock_now_ns();
	loop_timer_arm(refresh->timer, first_ns);
	*ret = steal_ptr(refresh);
	return 0;
}

void refresh_stop(struct refresh *refresh)
{
	if (!refresh)
		return;
	refresh->is_stopping = true;
	loop_timer_disarm(refresh->timer);
	loop_timer_disarm(refresh->quiet_timer);
	calibrator_stop(refresh->calibrator);
	/* Let a deferred step return, too. */
	if (refresh->deferred)
		when_quiet(refresh, refresh->deferred);
}

struct refresh *refresh_free(struct refresh *refresh)
{
	if (!refresh)
		return NULL;
	loop_timer_free(refresh->timer);
	loop_timer_free(refresh->quiet_timer);
	calibrator_free(refresh->calibrator);
	free(refresh);
	return NULL;
}
