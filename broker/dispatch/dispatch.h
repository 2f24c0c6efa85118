#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher: from entries to completions
 *
 * One reactor thread polls the rings of active sessions in turn. It validates each entry once,
 * places it, runs it inline or submits it to an executor, and posts completions. The thread sleeps
 * in the event loop when no ring is active and no other work is left.
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
struct timeslice_plans;
struct waker;

enum { REACTOR_TASK_NS = 2000000 }; /* default of dispatch_options.reactor_task_ns in brokerd */

struct dispatch_options {
	struct loop *loop;
	struct waker *waker; /* wakes the reactor; signalled by executors */
	struct executor *const *executors;
	uint32_t n_executors;
	struct residency *residency;
	struct place_config config;
	/* copied; see struct placer_options */
	const struct place_profile *profiles[RBK_MAX_DEVICES];
	int64_t spin_ns; /* spin time before sleeping; -1: adaptive; 0: none */
	/* longest predicted time of a task that the reactor runs on the CPU itself; 0: none */
	uint64_t reactor_task_ns;
	uint32_t n_processors; /* processors that the broker may use */
	/* a quota allows less than their time: the reactor hardly spins, to save it for tasks */
	bool has_quota;
	uint64_t stop_ns; /* time until dispatch_stop() abandons tasks; 0: 10 s */
	/*
	 * Receives the activity: the devices other than the CPU that have tasks, as bits, and
	 * whether there are rings; may be NULL. Called in each turn that submitted tasks to such a
	 * device, before they are flushed, and before the reactor sleeps. Must be cheap.
	 */
	void (*note_activity)(void *context, uint32_t devices, bool has_rings);
	void *activity_context;
	/*
	 * The devices whose time leases share, as bits, to be read in each turn; NULL: there are
	 * none.
	 */
	const uint32_t *shared_devices;
	/*
	 * Called in a turn in which tasks on such a device have come, begun or ended: see
	 * timeslice_share_plans(). It may change n_open of any flow's struct timeslice_plans.
	 */
	void (*share_plans)(void *context, uint8_t device, struct timeslice_plans *changed);
	void *share_context;
	/*
	 * Called when work begins after a pause; may be NULL. Not called again until
	 * dispatch_is_working() has returned false.
	 */
	void (*work_begins)(void *context);
	void *work_context;
};

/*
 * Make a dispatcher. It borrows everything that @options points to, except the profiles.
 * Return: 0 or negative errno.
 */
int dispatch_new(const struct dispatch_options *options, struct dispatch **ret);

/* Return the hooks for server_new(), valid as long as the dispatcher. */
struct server_hooks dispatch_hooks(struct dispatch *dispatch);

/* Marks that brokers' crashes leave in the record of a task, after which it is not run again */
enum { DISPATCH_MAX_CRASHES = 2 };

/*
 * Mark the tasks for which this broker may be crashing: for crash_watch(). @context is the
 * dispatcher; @culprit, the executor's task of the thread that crashes, or the struct dispatch_ring
 * of which it admits an entry; NULL: it is not known. Any thread, in a handler of a signal.
 */
void dispatch_blame(void *context, const void *culprit);

/*
 * Serve @server until dispatch_stop() was called and all tasks and sessions have drained.
 * Return: 0; -ETIMEDOUT: executors still hold tasks stop_ns after dispatch_stop(); another negative
 * errno: the event loop failed.
 */
int dispatch_run(struct dispatch *dispatch, struct server *server);

/*
 * Drain: admit no more entries, let tasks in flight complete, end the sessions, then let
 * dispatch_run() return. For a handler in the loop.
 */
void dispatch_stop(struct dispatch *dispatch);

/*
 * Pause: admit no more entries, accept no connections, and let tasks in flight complete, but wait
 * for at most @limit_ns. Then call @paused, outside any handler, while all sessions and the tasks
 * that are left stay as they are: another broker may take them over. If it returns 0, the
 * dispatcher goes on as before; otherwise @paused is called again after that many nanoseconds or
 * earlier. Without effect while the dispatcher stops or pauses.
 */
void dispatch_pause(struct dispatch *dispatch, uint64_t limit_ns, uint64_t (*paused)(void *context),
		    void *context);
/* End a pause before @paused is called. Without effect where there is none. For a handler. */
void dispatch_resume(struct dispatch *dispatch);

/*
 * Set the configuration of placement. It applies to tasks placed from now on. force_cpu also moves
 * tasks that are queued for other devices, in this turn and the following ones.
 */
void dispatch_configure(struct dispatch *dispatch, const struct place_config *config);

/* Apply changed limits of tenants (weight, priority-max, cpu-max). */
void dispatch_limits_changed(struct dispatch *dispatch);

/*
 * Drain @device (@is_drained), or put it back into use. No task is placed on a drained device.
 * Queued tasks that may run elsewhere are moved, in this turn and the following ones.
 */
void dispatch_drain_device(struct dispatch *dispatch, uint8_t device, bool is_drained);

/*
 * Apply a change of tenant->is_drained. While it is set no entry of the tenant is admitted; tasks
 * that were admitted complete.
 */
void dispatch_drain_changed(struct dispatch *dispatch, const struct tenant *tenant);
/* Return the tenant's tasks that were admitted and have not completed. */
uint64_t dispatch_tenant_in_flight(const struct dispatch *dispatch, const struct tenant *tenant);
/* Return the tasks, or parts of tasks, that are queued for a device or held by its executor. */
uint64_t dispatch_device_in_flight(struct dispatch *dispatch, uint8_t device);
/*
 * Return the number of the device's stalls, in which it had work and made no progress. Each stall
 * was logged, and repaired where possible.
 */
uint32_t dispatch_n_stalls(const struct dispatch *dispatch, uint8_t device);

/* Repairs after a device's stalls, since the dispatcher was made. */
struct dispatch_mended {
	uint64_t n_slots;    /* slots of plans that were counted as taken without a task */
	uint64_t n_recalled; /* tasks taken back from the executor before it began them */
	uint64_t n_moved;    /* tasks moved to the CPU */
	uint64_t n_lost;     /* times the device was declared lost */
};
void dispatch_describe_mended(const struct dispatch *dispatch, uint8_t device,
			      struct dispatch_mended *ret);

/*
 * Return the placer, for reports, and for setting measured profiles and contention. Its time is
 * clock_ticks_to_ns(clock_ticks()).
 */
struct placer *dispatch_placer(struct dispatch *dispatch);

/*
 * Set whether the processors are contended. While they are, the reactor hardly spins, so that it
 * takes little processor time from other programs. The spin budgets that it has learned are kept.
 */
void dispatch_set_contended(struct dispatch *dispatch, bool is_contended);
/*
 * Set the factor by which contention prolongs the CPU's tasks (1: not at all), for the log of tasks
 * that complete on the CPU from now on.
 */
void dispatch_log_contention(struct dispatch *dispatch, float factor);
/*
 * Set the share of the CPU's contention that @tenant causes itself, see
 * place_flow_set_own_contention(). A tenant without a flow has no tasks to place and is ignored.
 */
void dispatch_set_own_contention(struct dispatch *dispatch, const struct tenant *tenant,
				 float share);
/* Pass the times of a device's engines to place_note_engine_time(); place_flow_limit_debt(). */
void dispatch_note_engine_time(struct dispatch *dispatch, uint8_t device, uint64_t own_ns,
			       uint64_t others_ns);
/*
 * Return the time of a device, in ns, that tasks of a tenant have used so far, or with NULL those
 * of all tenants that are back; 0: the tenant has no tasks. It may decrease. *ret_factor:
 * place_outside_factor(). Takes O(n) of the tenants with rings.
 */
uint64_t dispatch_used_ns(const struct dispatch *dispatch, const struct tenant *tenant,
			  uint8_t device, float *ret_factor);
/*
 * Charge @tenant for @ns of @device that its leased programs used: place_flow_charge_outside(). A
 * tenant without rings has no tasks that could wait, and is ignored.
 */
void dispatch_charge_leased(struct dispatch *dispatch, const struct tenant *tenant, uint8_t device,
			    uint64_t ns);

/*
 * Return the clients' tasks that have completed since start, and the tasks in flight; 0 before
 * dispatch_run().
 */
uint64_t dispatch_n_completed(const struct dispatch *dispatch);
uint64_t dispatch_n_in_flight(const struct dispatch *dispatch);

/*
 * Return true if a device has tasks, tasks are queued or rings are polled. After false,
 * work_begins() is called again when work begins.
 */
bool dispatch_is_working(struct dispatch *dispatch);

/* A task of the broker itself. The caller keeps the storage until done() is called. */
struct dispatch_own {
	struct exec_task exec; /* plan, refs, count, part; the plan is ready on the device */
	uint8_t device;
	/*
	 * Called once on the reactor; may run the task again, or free it. @res is exec.res, or
	 * -ECANCELED if the task did not run because the dispatcher stopped.
	 */
	void (*done)(struct dispatch_own *own, int res);
	struct list_node link; /* in dispatch.own */
};

/*
 * Run a task when no other task is queued for its device or held by the device's executor. Each
 * device runs one such task at a time.
 * Return: 0: done() will be called, never from within this call; -ENODEV: no such device;
 * -ECANCELED: the dispatcher is stopping.
 */
int dispatch_run_own(struct dispatch *dispatch, struct dispatch_own *own);

/*
 * Free the dispatcher. No ring may be left.
 * Return: NULL.
 */
struct dispatch *dispatch_free(struct dispatch *dispatch);

DEFINE_CLEANUP(struct dispatch *, dispatch_free)
