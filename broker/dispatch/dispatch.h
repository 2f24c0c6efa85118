#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher: from entries to completions
 *
 * One reactor thread polls the rings of active sessions in turn, validates each entry once, places
 * it, runs it inline or hands it to an executor, and posts completions. It sleeps in the event loop
 * when no ring is active and nothing is in flight that it should spin for.
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/placer.h"
#include "plan/executor.h"
#include "session/server.h"
#include "util/cleanup.h"
#include "util/list.h"

struct dispatch;
struct loop;
struct residency;
struct tenant;
struct waker;

struct dispatch_options {
	struct loop *loop;
	struct waker *waker; /* that the executors ring */
	struct executor *const *executors;
	uint32_t n_executors;
	struct residency *residency;
	struct place_config config;
	const struct place_profile *profiles[RBK_MAX_DEVICES]; /* copied; struct placer_options */
	int64_t spin_ns;       /* before sleeping; -1: adaptive; 0: never spin */
	uint32_t n_processors; /* that the broker may use */
	uint64_t stop_ns;      /* until dispatch_stop() abandons tasks; 0: 10 s */
	/*
	 * Told how much is going on, for who watches devices, or NULL: in each turn that gave tasks
	 * to a device other than the CPU, and before sleeping. Must be cheap.
	 */
	void (*set_pace)(void *context, bool is_busy, bool has_sessions);
	void *pace_context;
	/*
	 * Told that there is work after there was none, until dispatch_is_working() has said that
	 * there is none again; or NULL.
	 */
	void (*work_begins)(void *context);
	void *work_context;
};

/* Everything pointed to is borrowed. Return: 0 or negative errno. */
int dispatch_new(const struct dispatch_options *options, struct dispatch **ret);

/* For server_new(); valid as long as the dispatcher. */
struct server_hooks dispatch_hooks(struct dispatch *dispatch);

/*
 * Serves @server until dispatch_stop() was called and everything has drained.
 * Return: 0 or negative errno (the loop broke).
 */
int dispatch_run(struct dispatch *dispatch, struct server *server);

/*
 * Drains: no entry is admitted any more, tasks in flight complete, sessions end, dispatch_run()
 * returns. For a handler in the loop.
 */
void dispatch_stop(struct dispatch *dispatch);

/*
 * Takes effect for what is placed from now on; force_cpu also for what waits for a device, in this
 * turn and those that follow.
 */
void dispatch_configure(struct dispatch *dispatch, const struct place_config *config);

/* Limits of tenants (weight, priority-max, cpu-max) have changed. */
void dispatch_limits_changed(struct dispatch *dispatch);

/*
 * Nothing is placed on a device from now on (@is_drained), and what waits for it goes elsewhere if
 * it may, in this turn and those that follow; or things are again.
 */
void dispatch_drain_device(struct dispatch *dispatch, uint8_t device, bool is_drained);

/*
 * tenant->is_drained has changed. While it is set no entry of the tenant is admitted; those that
 * were complete.
 */
void dispatch_drain_changed(struct dispatch *dispatch, const struct tenant *tenant);
/* A tenant's tasks that were admitted and have not completed. */
uint64_t dispatch_tenant_in_flight(const struct dispatch *dispatch, const struct tenant *tenant);
/* Tasks, or parts of them, that wait for a device or run there. */
uint64_t dispatch_device_in_flight(struct dispatch *dispatch, uint8_t device);
/*
 * Return the number of the device's stalls, in which it had work and made no progress; each was
 * logged, and mended where possible.
 */
uint32_t dispatch_n_stalls(const struct dispatch *dispatch, uint8_t device);

/* Counts of the repairs after a device's stalls, since the dispatcher began. */
struct dispatch_mended {
	uint64_t n_slots;    /* of plans, that no task had although they were said to be taken */
	uint64_t n_recalled; /* tasks taken back from the executor, which had not begun them */
	uint64_t n_moved;    /* tasks that went to the CPU */
	uint64_t n_lost;     /* how often the device was declared lost */
};
void dispatch_describe_mended(const struct dispatch *dispatch, uint8_t device,
			      struct dispatch_mended *ret);

/*
 * The placer: for reports, and for profiles and contention that were measured. What time it is in
 * its eyes is clock_ticks_to_ns(clock_ticks()).
 */
struct placer *dispatch_placer(struct dispatch *dispatch);

/*
 * The processors are contended: the reactor hardly spins, so that it is nobody's bad neighbour.
 * What it has learned of spinning is kept for after.
 */
void dispatch_set_contended(struct dispatch *dispatch, bool is_contended);
/*
 * How many times longer others make the CPU take, 1: no longer: for the log of tasks that complete
 * there from now on.
 */
void dispatch_log_contention(struct dispatch *dispatch, float factor);
/*
 * What part of the CPU's contention a tenant causes itself, see place_flow_set_own_contention(). A
 * tenant without a ring has nothing to be decided about, and is passed over.
 */
void dispatch_set_own_contention(struct dispatch *dispatch, const struct tenant *tenant,
				 float share);

/* Clients' tasks that have completed since start, and that have not: is anything going on? */
uint64_t dispatch_n_completed(const struct dispatch *dispatch);
uint64_t dispatch_n_in_flight(const struct dispatch *dispatch);

/* Do devices work, or wait for tasks, or are rings polled? For who was told that work begins. */
bool dispatch_is_working(struct dispatch *dispatch);

/* A task of the broker itself. The caller's storage, until done() is called. */
struct dispatch_own {
	struct exec_task exec; /* plan, refs, count, part; the plan is ready on the device */
	uint8_t device;
	/*
	 * On the reactor, once; may run it again, or free it. @res as exec_task.res; -ECANCELED if
	 * it did not run because the dispatcher stopped.
	 */
	void (*done)(struct dispatch_own *own, int res);
	struct list_node link; /* the dispatcher's */
};

/*
 * Runs a task when nothing else is queued for its device or on it, one at a time on each device.
 * Return: 0, done() will be called, not from in here; -ENODEV; -ECANCELED: the dispatcher stops.
 */
int dispatch_run_own(struct dispatch *dispatch, struct dispatch_own *own);

/* No ring may be left. Return: NULL. */
struct dispatch *dispatch_free(struct dispatch *dispatch);

DEFINE_CLEANUP(struct dispatch *, dispatch_free)
