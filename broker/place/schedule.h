#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Scheduling: in which order the tasks of a device start
 *
 * Between the decision and the executor a task waits in the queue of its device. Tenants share a
 * device by weight, in device time: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), a
 * flow per tenant, charged with what was predicted when a task starts and corrected when it ends.
 * Within a flow tasks start by class (RBK_PRIORITY_*, above the tenant's ceiling capped to it), in
 * a class by deadline, where a task without one counts as due PLACE_NO_DEADLINE_NS after its
 * admission, then by admission. So classes and deadlines move nothing but the tenant's own tasks.
 *
 * Executors run what they were given in that order; so they are given little: until what they hold
 * is predicted to keep each server busy for PLACE_RELEASE_NS, and one task per server at least.
 * What is still queued can be reordered, cancelled, and moved to another device.
 *
 * Plans in parts (struct plan.n_parts): from its first part to its last a task keeps a slot, the
 * working memory that the plan has on the device. A task that has none must not take up the
 * device's room, or those that have them could never go on. So such a plan has a gate per device:
 * of its queued tasks the scheduler sees one, the best that can start now. A part that goes on
 * always can; a first part only while there is a free slot. Begun tasks are as urgent as the most
 * urgent one that waits for a slot of theirs.
 *
 * Where a device can stop tasks that have begun (place_set_preemptible()), tasks of other flows do
 * not wait for their ends: once a running task's flow is PLACE_SLICE_NS ahead of one that waits, or
 * has used up its quota, the task is asked to stop; likewise where its own flow has one of a better
 * class. The rest of a stopped task is queued again, before tasks that came later. While no other
 * task waits, a task runs to its end.
 *
 * CPU quotas (cpu-max): a flow has a bucket of processor time that fills at its rate, up to
 * PLACE_QUOTA_PERIOD_NS worth; while it is empty its tasks do not start on the CPU and its rings
 * are not read. No more than two of its tasks a server are released at a time: wrong predictions
 * overdraw the bucket by no more than those. What the reactor does for a tenant is charged like any
 * other CPU work.
 *
 * Reactor thread only. Nothing here allocates but place_flow_new().
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/placer.h"
#include "util/heap.h"
#include "util/list.h"

#define PLACE_RELEASE_NS      500000ull     /* 0.5 ms */
#define PLACE_SLICE_NS        500000ull     /* 0.5 ms: no task is asked to stop before */
#define PLACE_NO_DEADLINE_NS  1000000000ull /* 1 s */
#define PLACE_QUOTA_PERIOD_NS 100000000ull  /* 100 ms */

struct place_gate;

struct place_flow_limits {
	uint32_t weight;      /* 1..10000; 0 counts as 1 */
	uint8_t priority_max; /* enum rbk_priority, whose numbers are not in order */
	float cpu_max;        /* processors; 0: no quota */
};

/*
 * One per tenant, for as long as it has anything to do or owes time: one that comes back at once
 * does not begin anew. Return: 0 or -ENOMEM.
 */
int place_flow_new(struct placer *placer, const struct place_flow_limits *limits,
		   struct place_flow **ret);
/* Its quota's bucket and what it has used of its share stay as they are. */
void place_flow_set_limits(struct placer *placer, struct place_flow *flow,
			   const struct place_flow_limits *limits, uint64_t now_ns);
/*
 * That part of the CPU's contention, 0 to 1, is caused by the flow's own tenant: its tasks are
 * decided about as if that part were not there, so that nobody is moved to a better device for
 * having crowded the processors.
 */
void place_flow_set_own_contention(struct placer *placer, struct place_flow *flow, float share);
/* Nothing queued, nothing released, nothing owed: freeing it now loses nothing. */
bool place_flow_is_idle(const struct placer *placer, const struct place_flow *flow,
			uint64_t now_ns);
/* No task of it may be queued or released. Return: NULL. */
struct place_flow *place_flow_free(struct placer *placer, struct place_flow *flow);

/* Has it used up its quota? Then its rings are not to be read until place_refill_ns(). */
bool place_flow_is_throttled(struct place_flow *flow, uint64_t now_ns);

/* The reactor has worked that long for it. */
void place_flow_charge(struct placer *placer, struct place_flow *flow, uint64_t ns);

/*
 * How long a task of @flow would wait on @device before it starts: what the device was given (which
 * of what runs is the mean of what is left of tasks that have not ended by now) and then what all
 * have queued, or the flow's turns until its own queue is through, if that is earlier; or longer,
 * if its quota is used up before. Times the device's contention. O(1).
 */
uint64_t place_flow_wait_ns(const struct placer *placer, const struct place_flow *flow,
			    uint8_t device, uint64_t now_ns);

/* Device time that it was charged with in all, for statistics. */
uint64_t place_flow_used_ns(const struct place_flow *flow, uint8_t device);

enum place_task_state { PLACE_IDLE, PLACE_QUEUED, PLACE_RELEASED };

/* A task in the eyes of the scheduler; embedded in its owner's. */
struct place_task {
	/* The owner's, set before place_enqueue(). */
	struct place_plan *plan;
	struct place_flow *flow;
	struct place_decision decision; /* device, predicted_ns, PLACE_BOUND */
	uint32_t count;                 /* rows of this submission */
	uint8_t priority;               /* enum rbk_priority */
	/* Another part of the same task follows the one released last: set before place_done(). */
	bool goes_on;
	uint64_t admit_ns;
	uint64_t deadline_ns; /* UINT64_MAX: none */

	/* The scheduler's; 0 when it is queued for the first time. */
	bool has_slot;           /* of gate: it was begun, or its first part is released */
	struct place_gate *gate; /* of its plan on its device; NULL: the plan has none there */
	uint8_t state;           /* enum place_task_state */
	uint8_t class;           /* after the ceiling, 0 first */
	uint8_t device;          /* where it is queued or was released to */
	uint8_t bucket;          /* of what may move; see schedule-private.h */
	bool is_in_heap, is_running;
	bool has_choice; /* released: another device could have done it */
	uint16_t wanted; /* servers that it is expected to keep busy if it can have them */
	uint16_t slots;  /* running: that it has */
	float spread;    /* of work_ns, relative */
	int64_t due_ns;
	uint64_t sequence;
	uint64_t work_ns;  /* predicted, of all servers; what it was charged when released */
	uint64_t later_ns; /* released: what does not go into one submission, not charged yet */
	/* Of its parts that are done, since it was last queued on another device or has failed. */
	uint32_t parts_count;
	uint64_t parts_exec_ns, parts_busy_ns;
	/* work done for this submission before its last stop, in ns; 0 when queued first */
	uint64_t stopped_exec_ns, stopped_busy_ns;
	/* Where tasks can be stopped. */
	bool is_limited;          /* running: its flow has a quota */
	uint64_t begin_ns;        /* released, and running */
	uint64_t asked_ns;        /* running: last asked to stop */
	struct list_node running; /* among the running */
	uint64_t since;           /* running: sum of the times at which its servers began; wraps */
	struct list_node link;    /* queued: in its class. Released: who waits, or wants servers */
	struct list_node moving;  /* queued, not bound: among those that may move */
	struct heap_node node;    /* in its class, when it did not come in order */
};

/* Queues a task on decision.device. */
void place_enqueue(struct placer *placer, struct place_task *task, uint64_t now_ns);

/* Takes a task that is queued out again: it was cancelled. */
void place_dequeue(struct placer *placer, struct place_task *task, uint64_t now_ns);

/*
 * The task that is to start next on @device, released and charged; NULL: none, or the device has
 * enough to do. Short tasks of one plan and flow follow each other for up to PLACE_RELEASE_NS, as
 * long as no other flow comes to the device, so that they can go into one submission. Of a task
 * that is longer than a submission may be, place_rows_per_submission() are taken for released, and
 * the rest for queued; when that part is done, the rest is to be queued with the same place_task.
 * What is learned is how long its parts took, and, when the last is done, how long all did.
 */
struct place_task *place_next(struct placer *placer, uint8_t device, uint64_t now_ns);

/* A task just released was not taken: it is queued again where it was, and not charged. */
void place_put_back(struct placer *placer, struct place_task *task, uint64_t now_ns);

/*
 * A released task is back; @exec_ns, @busy_ns as for place_learn(), which it calls. The task is
 * PLACE_IDLE and may be queued again; it has to be if task->goes_on is set: then it keeps its slot.
 */
void place_done(struct placer *placer, struct place_task *task, enum place_result result,
		uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns);

/* Tasks that run on @device can be stopped; nothing is released there. */
void place_set_preemptible(struct placer *placer, uint8_t device);

/*
 * A running task that is to be stopped now, for another or its quota; NULL: none. It is asked about
 * again after a slice if it has not come back.
 */
struct place_task *place_preempt(struct placer *placer, uint8_t device, uint64_t now_ns);

/*
 * The device has not begun a task that place_preempt() named: servers begin what they were given in
 * an order of their own. Another that waits there is taken for running instead.
 */
void place_not_begun(struct placer *placer, struct place_task *task, uint64_t now_ns);

/* Return true if a task may have to be stopped. Costs less than a look at the clock. */
bool place_may_preempt(const struct placer *placer);

/* When place_preempt() should be called at the latest; UINT64_MAX: no task needs to be stopped. */
uint64_t place_preempt_ns(const struct placer *placer, uint64_t now_ns);

/*
 * A released task was stopped before its end, after @exec_ns, @busy_ns as for place_learn(): it is
 * charged with them, and PLACE_IDLE. When it is queued again it is what is left; place_done() will
 * learn from all of it.
 */
void place_stopped(struct placer *placer, struct place_task *task, uint64_t exec_ns,
		   uint64_t busy_ns, uint64_t now_ns);

/*
 * Moves queued tasks that are not bound between devices: where one is predicted to be done
 * balance_high times later than another (or the other, balance_low), or another has nothing to do,
 * those that would be complete earlier there; and whichever it takes to have all devices done
 * earlier. What has a deadline, is urgent or belongs to a flow that waits less than others moves
 * only to be complete earlier itself. Bounded work, and next to none where nothing can be gained.
 *
 * To be called when a task has ended, and once per turn after all that came was queued, before
 * place_next(): what was released stays where it is.
 * Return: how many tasks moved; placer_options.moved() was told of each.
 */
unsigned int place_rebalance(struct placer *placer, uint64_t now_ns);

/*
 * Makes a device's sums anew from what is really there: cold, for when they cannot be right. In
 * this order: place_recount_plan() for the plan of each of its tasks, as often as one likes;
 * place_recount_begin(); place_recount_flow() for every flow; place_recount_task() for each task
 * that is queued or released there, once; place_recount_flow_done() for every flow; and
 * place_recount_end(). Nothing else in between. What flows were charged with stays.
 * place_recount_plan() returns how many slots were said to be taken, 0 from the second call on;
 * place_recount_end() returns true if the sums were wrong.
 */
struct place_recount {
	uint32_t n_queued, n_released, n_waiting; /* of the device, before */
	uint64_t queued_ns, held_ns;
};
uint32_t place_recount_plan(struct place_plan *place_plan, uint8_t device);
void place_recount_begin(struct placer *placer, uint8_t device, struct place_recount *ret);
void place_recount_flow(struct placer *placer, struct place_flow *flow, uint8_t device);
void place_recount_task(struct placer *placer, struct place_task *task);
void place_recount_flow_done(struct placer *placer, struct place_flow *flow, uint8_t device);
bool place_recount_end(const struct placer *placer, uint8_t device,
		       const struct place_recount *before);

/* Devices, as a mask, on which place_next() has something now. */
uint32_t place_startable(struct placer *placer, uint64_t now_ns);

/* When the first throttled flow may go on; UINT64_MAX: none is throttled. */
uint64_t place_refill_ns(const struct placer *placer, uint64_t now_ns);
