#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Scheduling: in which order the tasks of a device start
 *
 * Between the decision and the executor a task waits in the queue of its device. Tenants share a
 * device by weight, in device time: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996).
 * Each tenant has a flow, which is charged with the predicted time when a task starts, and
 * corrected when it ends. Within a flow tasks start by class (RBK_PRIORITY_*, capped to the
 * tenant's ceiling), in a class by deadline, then by admission. A task without a deadline counts as
 * due PLACE_NO_DEADLINE_NS after its admission. So classes and deadlines only reorder the tenant's
 * own tasks.
 *
 * Executors run tasks in the order in which they were submitted, so they are given little: until
 * the tasks they hold are predicted to keep each server busy for PLACE_RELEASE_NS, and at least one
 * task per server. Queued tasks can be reordered, cancelled, and moved to another device.
 *
 * Plans in parts (struct plan.n_parts): from its first part to its last a task keeps a slot, the
 * working memory that the plan has on the device. A task without a slot must not occupy the device,
 * or tasks that have slots could never continue. So such a plan has a gate per device: of its
 * queued tasks the scheduler sees one, the best that can start now. A later part always can; a
 * first part only while a slot is free. Begun tasks are as urgent as the most urgent task that
 * waits for one of their slots.
 *
 * Where a device can stop tasks that have begun (place_set_preemptible()), other flows' tasks do
 * not wait for them to end. A running task is asked to stop once its flow is PLACE_SLICE_NS ahead
 * of a waiting one, or has used up its quota. The same holds if its own flow has a task of a better
 * class waiting. The rest of a stopped task is queued again, before tasks that came later. While no
 * other task waits, a task runs to its end.
 *
 * CPU quotas (cpu-max): a flow has a bucket of processor time that fills at its rate, up to
 * PLACE_QUOTA_PERIOD_NS worth. While the bucket is empty the flow's tasks do not start on the CPU
 * and its rings are not read. At most two of its tasks per server are released at a time, so wrong
 * predictions overdraw the bucket by no more than these. The reactor's work for a tenant is charged
 * like any other CPU work.
 *
 * Reactor thread only. Nothing here allocates except place_flow_new().
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/placer.h"
#include "util/heap.h"
#include "util/list.h"

#define PLACE_RELEASE_NS      500000ull     /* 0.5 ms */
#define PLACE_SLICE_NS        500000ull     /* 0.5 ms; no task is asked to stop earlier */
#define PLACE_NO_DEADLINE_NS  1000000000ull /* 1 s */
#define PLACE_QUOTA_PERIOD_NS 100000000ull  /* 100 ms */

struct place_gate;

struct place_flow_limits {
	uint32_t weight;      /* 1..10000; 0 counts as 1 */
	uint8_t priority_max; /* enum rbk_priority, whose numbers are not in order */
	float cpu_max;        /* processors; 0: no quota */
};

/*
 * Make a tenant's flow. Keep it while the tenant has tasks or owes time, so that a tenant that
 * leaves and returns keeps its debt.
 * Return: 0 or -ENOMEM.
 */
int place_flow_new(struct placer *placer, const struct place_flow_limits *limits,
		   struct place_flow **ret);
/* Set the limits. The quota's bucket and the used share stay as they are. */
void place_flow_set_limits(struct placer *placer, struct place_flow *flow,
			   const struct place_flow_limits *limits, uint64_t now_ns);
/*
 * Set the share, 0 to 1, of the CPU's contention that the flow's own tenant causes. Its tasks are
 * placed as if that share did not exist, so that a tenant gains no better device by crowding the
 * processors.
 */
void place_flow_set_own_contention(struct place_flow *flow, float share);
/*
 * Return the time in ns, over all devices, that the flow was charged with so far. It decreases when
 * a task took less time than was predicted.
 */
uint64_t place_flow_used_ns(const struct place_flow *flow);
/* The same on one device. */
uint64_t place_flow_used_on_ns(const struct place_flow *flow, uint8_t device);
/* Return the time of a device, in ns, that tasks which are back have used so far. */
uint64_t place_used_ns(const struct placer *placer, uint8_t device);
/*
 * Return the time of tasks for each ns in which the device worked for them, at least 1: other
 * programs use the device meanwhile, as place_note_engine_time() has learned.
 */
float place_outside_factor(const struct placer *placer, uint8_t device);
/*
 * Return true if nothing is queued, released or owed, so that freeing the flow now loses nothing.
 */
bool place_flow_is_idle(const struct placer *placer, const struct place_flow *flow,
			uint64_t now_ns);
/*
 * Free a flow. No task of it may be queued or released.
 * Return: NULL.
 */
struct place_flow *place_flow_free(struct placer *placer, struct place_flow *flow);

/*
 * Let tasks of the flow start on @device only in the first @n_classes classes, 0..4: the others
 * wait for other programs, which share the device. At first all may start. Tasks that have begun in
 * parts wait between them. A flow that waits saves up no time, see above.
 */
void place_flow_open(struct placer *placer, struct place_flow *flow, uint8_t device,
		     uint8_t n_classes);
/* Return the classes, as bits, of the flow's tasks that are queued, and that are released. */
void place_flow_classes(const struct place_flow *flow, uint8_t device, uint8_t *ret_queued,
			uint8_t *ret_released);

/* Return true if the flow has used up its quota. Do not read its rings until place_refill_ns(). */
bool place_flow_is_throttled(struct place_flow *flow, uint64_t now_ns);

/*
 * Charge a flow for @ns of @device beside its tasks there: for the reactor's work, which counts as
 * the CPU's, or for time in which the device was kept idle for it.
 */
void place_flow_charge(struct placer *placer, struct place_flow *flow, uint8_t device, uint64_t ns);

/*
 * Note the times for which the engines of @device worked since the last call, as the kernel tells:
 * @own_ns for tasks, @others_ns for other programs. Call about once a second, before
 * place_flow_charge_outside().
 */
void place_note_engine_time(struct placer *placer, uint8_t device, uint64_t own_ns,
			    uint64_t others_ns);

/*
 * Charge a flow for @ns of @device's engines that its tenant used without the scheduler, between
 * the last two calls of place_note_engine_time(): the flow's tasks there wait until other flows
 * have had their shares. A task counts from its start to its end, in which the device also works
 * for other programs; @ns is converted to that time. The flow owes at most as much as flows
 * advanced between the two calls: nothing, if there were no tasks. place_flow_used_ns() does not
 * include the charge.
 */
void place_flow_charge_outside(struct placer *placer, struct place_flow *flow, uint8_t device,
			       uint64_t ns);

/*
 * After place_note_engine_time(), for each flow: forgive what the flow owes by earlier charges of
 * place_flow_charge_outside() beyond what flows have advanced since the call before. So once such
 * use ends, the flow's tasks wait about as long as the time between two calls, whatever the
 * weights.
 */
void place_flow_limit_debt(struct placer *placer, struct place_flow *flow, uint8_t device);

/*
 * Predict how long a task of @flow would wait on @device before it starts: the time left of the
 * released tasks, and the time of the queued tasks. A running task counts with the mean of the time
 * left, given that it has not ended by now. The queued tasks are all that are queued, or those that
 * start until the flow's own queue is empty, if that takes less time. The sum is multiplied by the
 * device's contention, as far as its tasks feel it. If the flow's quota is used up before, the wait
 * is longer. Takes constant time.
 */
uint64_t place_flow_wait_ns(const struct placer *placer, const struct place_flow *flow,
			    uint8_t device, uint64_t now_ns);

enum place_task_state { PLACE_IDLE, PLACE_QUEUED, PLACE_RELEASED };

/* A task as the scheduler sees it; embedded by its owner */
struct place_task {
	/* Set by the owner before place_enqueue() */
	struct place_plan *place_plan;
	struct place_flow *flow;
	struct place_decision decision; /* device, predicted_ns, PLACE_BOUND */
	uint32_t count;                 /* rows of this submission */
	uint8_t priority;               /* enum rbk_priority */
	/* Another part of the task follows the one released last; set before place_done(). */
	bool goes_on;
	uint64_t admit_ns;
	uint64_t deadline_ns; /* UINT64_MAX: none */
	uint64_t advised_ns;  /* PLACE_ADVISED: when its end was expected; see place/graph.h */

	/* The scheduler's; 0 when the task is first queued */
	bool has_slot;           /* has a slot of gate: since its first part was released */
	struct place_gate *gate; /* of the plan on the device; NULL: no parts there */
	uint8_t state;           /* enum place_task_state */
	uint8_t class;           /* 0: the most urgent; at least the flow's first_class */
	uint8_t device;          /* on which it is queued, or to which it was released */
	uint8_t bucket;          /* index in place_queue.movable */
	bool is_in_heap, is_running;
	bool has_choice; /* released: another device could have done it */
	uint16_t wanted; /* servers that it is expected to use if they are free */
	uint16_t slots;  /* running: servers that it has */
	float spread;    /* relative spread of work_ns */
	int64_t due_ns;
	uint64_t sequence;
	uint64_t work_ns;  /* predicted, over all servers; charged when released */
	uint64_t later_ns; /* released: work after this submission, not charged yet */
	/* Sums over its done parts; reset when it is queued on another device or fails */
	uint32_t parts_count;
	uint64_t parts_exec_ns, parts_busy_ns;
	/* Work done for this submission before its last stop; 0 when first queued */
	uint64_t stopped_exec_ns, stopped_busy_ns;
	/* Used where tasks can be stopped */
	bool is_limited;          /* running: its flow has a quota */
	uint64_t begin_ns;        /* released: time at which it began to run, or to wait */
	uint64_t asked_ns;        /* running: time of the last request to stop; begin_ns: none */
	struct list_node running; /* in place_queue.running */
	uint64_t since;           /* running: sum of its servers' start times; wraps */
	struct list_node link;    /* queued: in its class; released: in waiting or short_handed */
	struct list_node moving;  /* queued, not bound: in place_queue.movable */
	struct heap_node node;    /* in the heap of its class or gate */
};

/* Queue a task on decision.device. */
void place_enqueue(struct placer *placer, struct place_task *task, uint64_t now_ns);

/* Dequeue a queued task that was cancelled. */
void place_dequeue(struct placer *placer, struct place_task *task, uint64_t now_ns);

/*
 * Release and charge the task that starts next on @device. Short tasks of one plan and flow follow
 * each other for up to PLACE_RELEASE_NS, so that one submission can hold them. This ends when
 * another flow comes to the device. Of a task that is longer than a submission may be,
 * place_rows_per_submission() rows count as released, the rest as queued. When that part is done,
 * the caller queues the rest with the same place_task. The placer learns the time of each part, and
 * with the last part the time of all of them.
 * Return: NULL: no task can start, or the device has enough to do.
 */
struct place_task *place_next(struct placer *placer, uint8_t device, uint64_t now_ns);

/* Return true if a task is queued and place_flow_open() keeps it from starting. */
bool place_task_is_held_back(const struct place_task *task);

/* Queue a task again, in its old place, that was released but not submitted; refund its charge. */
void place_put_back(struct placer *placer, struct place_task *task, uint64_t now_ns);

/*
 * Take back a released task; @exec_ns, @busy_ns as for place_learn(), which is called. The task is
 * PLACE_IDLE and may be queued again. If task->goes_on is set it keeps its slot and must be queued
 * again.
 */
void place_done(struct placer *placer, struct place_task *task, enum place_result result,
		uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns);

/* Declare that running tasks on @device can be stopped. No task may have been released there. */
void place_set_preemptible(struct placer *placer, uint8_t device);

/*
 * Return a running task that is to be stopped now, for another task or for its quota; NULL: none.
 * If the task has not come back after a slice, it is returned again.
 */
struct place_task *place_preempt(struct placer *placer, uint8_t device, uint64_t now_ns);

/*
 * Note that the device has not begun a task that place_preempt() named: servers begin tasks in an
 * order of their own. Another released task that waits there counts as running instead.
 */
void place_not_begun(struct placer *placer, struct place_task *task, uint64_t now_ns);

/* Return true if a task may have to be stopped. Costs less than reading the clock. */
bool place_may_preempt(const struct placer *placer);

/* Return the latest time for the next place_preempt(); UINT64_MAX: no task needs to be stopped. */
uint64_t place_preempt_ns(const struct placer *placer, uint64_t now_ns);

/*
 * Take back a released task that was stopped before its end, after @exec_ns, @busy_ns as for
 * place_learn(). The flow is charged with them, and the task is PLACE_IDLE. When it is queued again
 * it stands for the remaining work; place_done() will learn from the whole.
 */
void place_stopped(struct placer *placer, struct place_task *task, uint64_t exec_ns,
		   uint64_t busy_ns, uint64_t now_ns);

/*
 * Move queued tasks that are not bound between devices. Tasks that would be complete earlier on
 * another device move in two cases. Their device is predicted to be done balance_high times later
 * than the other (or the other, balance_low), or the other has nothing to do. Further tasks move if
 * all devices are done earlier then. A task that has a deadline, is urgent or belongs to a flow
 * that waits less than others moves only to be complete earlier itself. The work is bounded, and
 * next to none if nothing can be gained.
 *
 * Call it when a task has ended, and once per turn after all new tasks were queued, before
 * place_next(). Released tasks stay where they are.
 * Return: the number of tasks moved; placer_options.moved() was called for each.
 */
unsigned int place_rebalance(struct placer *placer, uint64_t now_ns);

/*
 * Compute a device's sums anew from its tasks. Slow; for sums that cannot be right. Call in this
 * order, with no other call in between: place_recount_plan() for the plan of each of the device's
 * tasks, any number of times; place_recount_begin(); place_recount_flow() for every flow;
 * place_recount_task() once for each task that is queued or released there;
 * place_recount_flow_done() for every flow; place_recount_end(). Flows keep their charges.
 * place_recount_plan() returns the slots that counted as taken, 0 from the second call on;
 * place_recount_end() returns true if the sums were wrong.
 */
struct place_recount {
	uint32_t n_queued, n_released, n_waiting; /* of the device, before the recount */
	uint64_t queued_ns, held_ns;
};
uint32_t place_recount_plan(struct place_plan *place_plan, uint8_t device);
void place_recount_begin(struct placer *placer, uint8_t device, struct place_recount *ret);
void place_recount_flow(struct place_flow *flow, uint8_t device);
void place_recount_task(struct placer *placer, struct place_task *task);
void place_recount_flow_done(struct placer *placer, struct place_flow *flow, uint8_t device);
bool place_recount_end(const struct placer *placer, uint8_t device,
		       const struct place_recount *before);

/* Return the devices, as a mask, on which place_next() has a task now. */
uint32_t place_startable(struct placer *placer, uint64_t now_ns);

/* Return the time at which the first throttled flow may continue; UINT64_MAX: there is none. */
uint64_t place_refill_ns(const struct placer *placer, uint64_t now_ns);
