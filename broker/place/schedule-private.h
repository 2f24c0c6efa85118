#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The scheduler's structures: a device's queue, a flow, time
 *
 * Private to place/. struct placer has a struct place_schedule, each of its devices a struct
 * place_queue. Reactor thread only.
 *
 * Times here are of the scheduler's own clock, which never goes back: when a caller's clock jumps
 * back, the jump is left out (schedule_time()).
 *
 * Virtual time is device time divided by a weight, in fractions of a nanosecond. It may wrap, so it
 * is compared by the sign of a difference.
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/profile.h"
#include "place/schedule.h"
#include "util/heap.h"
#include "util/priority.h"

enum {
	SCHEDULE_CLASSES = RBK_PRIORITY_COUNT,
	SCHEDULE_ALL_OPEN = (1 << SCHEDULE_CLASSES) - 1,
	/* virtual time = ns * inverse_weight >> SHIFT; inverse_weight = 2^24 / weight */
	SCHEDULE_INVERSE_LOG2 = 24,
	SCHEDULE_VIRTUAL_SHIFT = 12,
	SCHEDULE_MAX_WEIGHT = 10000,
	/* Buckets of movable tasks, by how much better the other device is, see movable_bucket() */
	SCHEDULE_BUCKETS = 64,
	/* Tasks per server that a flow with a quota may have released at a time */
	SCHEDULE_QUOTA_DEPTH = 2,
};

/* Upper bound of one task's predicted work: 2^40 ns, 18 minutes */
#define SCHEDULE_MAX_WORK_NS (1ull << 40)

/* A used-up quota stays so until the bucket holds this much time's worth again. */
#define SCHEDULE_REFILL_NS 1000000ull /* 1 ms */

/* A released task occupies its device for at least this time, whatever was predicted. */
#define SCHEDULE_MIN_HELD_NS 1000ull

/* Work that broker/cpu gives a server at a time. No server joins a task with less left. */
#define SCHEDULE_CHUNK_NS 20000ull /* 20 us */

/* Wait in a device, in ns, after which another task is stopped: a shorter wait may be chance. */
#define SCHEDULE_PATIENCE_NS 250000ull /* 0.25 ms */

/* Time of a device's engines below which place_note_engine_time() learns nothing */
#define SCHEDULE_LEAST_ENGINE_NS 5000000ull /* 5 ms */
/* Weight of a call's factor in the mean */
#define SCHEDULE_OUTSIDE_SHARE 0.5f

/* State common to all devices */
struct place_schedule {
	uint64_t last_now_ns;        /* last reading of the caller's clock */
	uint64_t now_ns;             /* the scheduler's clock */
	uint64_t sequence;           /* of the next task to be queued */
	struct heap_node *throttled; /* flows, by refill_ns */

	/* Until this time rebalancing gains nothing, unless more tasks were queued. */
	uint64_t rebalance_ns;
	uint64_t rebalance_sequence;
};

/* A device's queue */
struct place_queue {
	struct heap_node *flows; /* flows with a task that may start, by start tag */
	uint64_t virtual_time;
	uint64_t last_finish;   /* latest finish tag so far */
	uint64_t active_weight; /* sum over active flows */
	uint32_t n_active;      /* active flows */
	uint32_t n_servers;     /* servers in use */
	uint32_t n_servers_per_task;
	float inverse_servers;
	uint32_t n_queued, n_released, n_waiting;
	uint32_t n_closed;         /* flows of which not all classes may start */
	uint32_t n_without_choice; /* released tasks that no other device could do */
	bool was_needed;           /* such a task was released since placer_is_needed() */

	/*
	 * Predicted work, summed over servers. Released tasks wait in the device, in the order of
	 * release, until a server is free. The work that servers have done on running tasks is
	 * running_slots * now - running_since, whenever each of them began.
	 */
	uint64_t queued_ns;
	uint64_t waiting_ns, running_ns;
	uint64_t running_since; /* sum of task->since; wraps */
	uint32_t running_slots;
	double running_variance; /* of running_ns, from the spread of its estimates */
	struct list_node waiting;
	struct list_node short_handed; /* running tasks with fewer servers than they can use */
	bool is_preemptible;           /* running tasks can be stopped */
	uint32_t n_limited;            /* running tasks of flows with quotas */
	struct list_node running; /* if preemptible: running tasks, in the order of their begin */
	float pace;               /* recent ratio of actual to predicted time, at least 1 */
	uint64_t done_ns;         /* time of the tasks that are back */
	float outside_factor;     /* time of tasks per time of the device's engines, at least 1 */
	uint64_t noted_ns, noted_virtual; /* done_ns, virtual_time at place_note_engine_time() */
	uint64_t advance;                 /* of virtual_time between the last two calls of it */

	/* Tasks of one plan that follow each other */
	const struct place_flow *run_flow;
	const struct place_plan *run_plan;
	uint64_t run_left_ns;

	/* Queued tasks that may run on another device; the last queued at the end */
	struct list_node movable[SCHEDULE_BUCKETS];
	uint64_t movable_mask;
	uint32_t n_movable;
};

/* Tasks of one flow on one device in one class. */
struct place_class {
	struct list_node in_order; /* tasks that came in the order in which they are due */
	struct heap_node *heap;    /* all other tasks */
};

/*
 * The queued tasks of a plan in parts on one device, in brokerd all of one flow. One task is in its
 * class, the others are in the gate's heaps.
 */
struct place_gate {
	const uint32_t *n_slots;    /* of the plan on the device, see struct plan; 0: any number */
	uint32_t n_begun;           /* tasks that have a slot */
	struct heap_node *going_on; /* queued tasks that have a slot */
	struct heap_node *waiting;  /* queued tasks that have no slot */
	struct place_task *next;    /* the task in its class; NULL: no queued task could start */
};

/*
 * Return the gate of a plan on a device; NULL: the plan has no parts there, and its tasks start
 * whenever their turn comes.
 */
struct place_gate *place_gate(const struct place_plan *place_plan, uint8_t device);

/* A flow on one device. */
struct place_flow_queue {
	struct heap_node node; /* in place_queue.flows */
	struct place_flow *flow;
	uint64_t start; /* start tag of its next task */
	uint64_t queued_ns;
	uint64_t used_ns; /* device time that it was charged with */
	uint64_t outside; /* part of start: charges of place_flow_charge_outside() at most */
	uint32_t n_queued, n_released;
	uint32_t n_in_parts;               /* released tasks of which a rest is queued */
	uint32_t n_waiting;                /* released tasks that wait for a server */
	uint32_t n_held[SCHEDULE_CLASSES]; /* released tasks, by class */
	/* Charge for released tasks; servers' work on them is computed as in place_queue. */
	uint64_t held_ns, running_since;
	uint32_t running_slots;
	uint8_t class_mask; /* classes with a task that has, or could have, a slot */
	uint8_t open_mask;  /* classes of which tasks may start: all below some class */
	bool is_startable;  /* node is in place_queue.flows */
	bool is_active;     /* its weight is in place_queue.active_weight */
	struct place_class classes[SCHEDULE_CLASSES];
};

struct place_flow {
	uint32_t weight;
	uint32_t inverse_weight;
	uint8_t first_class;  /* best class that it may have */
	bool is_throttled;    /* node is in place_schedule.throttled */
	float own_contention; /* share of the CPU's contention that it causes, 0..1 */
	/* Bucket of processor time; below 0: debt */
	double cpu_max; /* ns per ns; 0: no quota */
	double tokens_ns;
	uint64_t tokens_at_ns;
	uint64_t refill_ns; /* when it may continue, if throttled */
	struct heap_node node;
	struct placer *placer;
	uint32_t n_devices;
	struct place_flow_queue on[];
};

/*
 * Initialize a queue. Without n_servers in @profile, which may be NULL, the device has one server.
 */
void place_queue_init(struct place_queue *queue, const struct place_profile *profile);
/*
 * Set the profile and the number of servers in use, 0: all. Takes effect for tasks queued from now
 * on.
 */
void place_queue_set_profile(struct place_queue *queue, const struct place_profile *profile,
			     uint32_t n_in_use);

/* Return the predicted time until the device has done all its tasks, of all tenants. */
uint64_t place_queue_backlog_ns(const struct placer *placer, uint8_t device, uint64_t now_ns);

/*
 * Move a queued task to @device for rebalancing, keeping its place among its flow's tasks, and call
 * placer.moved(). @predicted_ns is for @device, @other_ns for the best of the other devices.
 */
void schedule_move(struct placer *placer, struct place_task *task, uint8_t device,
		   float predicted_ns, float other_ns);

/* A shorter step back is a reading that was taken a little earlier, not a clock that was set. */
#define SCHEDULE_JITTER_NS   1000000000ull
#define SCHEDULE_MAX_STEP_NS (1ull << 50) /* 13 days */

/* Return the scheduler's time when the caller's clock reads @now_ns. */
static inline uint64_t schedule_peek(const struct place_schedule *schedule, uint64_t now_ns)
{
	uint64_t step = now_ns - schedule->last_now_ns;

	if (now_ns <= schedule->last_now_ns)
		return schedule->now_ns;
	return schedule->now_ns + (step < SCHEDULE_MAX_STEP_NS ? step : SCHEDULE_MAX_STEP_NS);
}

static inline uint64_t schedule_time(struct place_schedule *schedule, uint64_t now_ns)
{
	schedule->now_ns = schedule_peek(schedule, now_ns);
	if (now_ns > schedule->last_now_ns || schedule->last_now_ns - now_ns > SCHEDULE_JITTER_NS)
		schedule->last_now_ns = now_ns;
	return schedule->now_ns;
}

/* Return true if virtual time @a is after @b. */
static inline bool virtual_after(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) > 0;
}

/* Convert @ns of device time to virtual time of a flow. */
static inline uint64_t flow_virtual(const struct place_flow *flow, uint64_t ns)
{
	return ns * flow->inverse_weight >> SCHEDULE_VIRTUAL_SHIFT;
}

/* Clamp a prediction to 1..SCHEDULE_MAX_WORK_NS; NaN becomes 1. */
static inline uint64_t schedule_work_ns(float ns)
{
	if (!(ns >= 1))
		return 1;
	return ns < (float)SCHEDULE_MAX_WORK_NS ? (uint64_t)ns : SCHEDULE_MAX_WORK_NS;
}

/* The part of queue_running_ns() for an end nearer than four standard deviations. */
float queue_nearly_done_ns(float left_ns, float variance);

/* Return the server time left of the prediction for running tasks; below 0: overdue. */
static inline int64_t queue_left_ns(const struct place_queue *queue, uint64_t now)
{
	uint64_t done = queue->running_slots * now - queue->running_since;

	return (int64_t)(queue->running_ns - done);
}

/*
 * Return the expected server time that running tasks still need, given that they have not ended.
 * That is more than the rest of the prediction, since tasks that would have ended earlier have
 * ended.
 */
static inline float queue_running_ns(const struct place_queue *queue, uint64_t now)
{
	float left_ns = (float)queue_left_ns(queue, now);
	float variance = (float)queue->running_variance;

	if (left_ns > 0 && left_ns * left_ns >= 16 * variance)
		return left_ns;
	return queue_nearly_done_ns(left_ns, variance);
}

static inline bool queue_has_free_server(const struct place_queue *queue)
{
	return queue->running_slots < queue->n_servers;
}

/* --- Flows --- */

static inline struct place_flow_queue *flow_queue_of(const struct heap_node *node)
{
	return container_of(node, struct place_flow_queue, node);
}

static inline struct place_flow *throttled_flow_of(const struct heap_node *node)
{
	return container_of(node, struct place_flow, node);
}

static inline bool flow_before(const struct heap_node *a, const struct heap_node *b)
{
	return virtual_after(flow_queue_of(b)->start, flow_queue_of(a)->start);
}

static inline bool throttled_before(const struct heap_node *a, const struct heap_node *b)
{
	return throttled_flow_of(a)->refill_ns < throttled_flow_of(b)->refill_ns;
}

/*
 * Return the start tag that a flow would have if it had been charged with the time used by now,
 * instead of all that its released tasks are predicted to use.
 */
static inline uint64_t flow_tag(const struct place_flow_queue *fq, uint64_t now)
{
	uint64_t used_ns = fq->running_slots * now - fq->running_since;
	int64_t unused_ns = (int64_t)(fq->held_ns - used_ns);

	if (unused_ns < 0)
		return fq->start + flow_virtual(fq->flow, (uint64_t)-unused_ns);
	return fq->start - flow_virtual(fq->flow, (uint64_t)unused_ns);
}

/* --- schedule-preempt-hot.c: only for devices whose tasks can be stopped --- */

/* Return true if a running task is to give way to @fq's first task, of @class, sooner or later. */
bool queue_gives_way(const struct place_queue *queue, const struct place_flow_queue *fq,
		     uint8_t class, uint8_t device, uint64_t now);
/* Advance virtual time while long tasks run. */
void queue_advance(struct place_queue *queue, uint8_t device, uint64_t now);

/* --- Classes, and flows that share a device --- */

/* Count the flow among the device's active flows, or no longer. */
static inline void flow_set_active(struct place_queue *queue, struct place_flow_queue *fq)
{
	bool is_active = fq->is_startable || fq->n_released;

	if (is_active == fq->is_active)
		return;
	fq->is_active = is_active;
	if (is_active) {
		queue->active_weight += fq->flow->weight;
		queue->n_active++;
	} else {
		queue->active_weight -= fq->flow->weight;
		queue->n_active--;
	}
}

/* If no flow waits and no task is released, forget the time that flows have used. */
static inline void queue_forgive_debts(struct place_queue *queue)
{
	if (!queue->flows && queue->n_released == 0 && queue->n_closed == 0)
		queue->virtual_time = queue->last_finish;
}

/* --- schedule-quota-hot.c: which flows may start something; quotas, of flows that have one --- */

/*
 * Put a flow among those that may start a task on a device, or take it out: it must have a task
 * queued there that can start, and its quota must not hold it back. A flow that enters begins at
 * the device's virtual time: unused time is not saved up.
 */
void flow_update(struct placer *placer, struct place_flow *flow, uint8_t device);

/* Return the processor time in the bucket, in ns. */
static inline double flow_tokens(const struct place_flow *flow, uint64_t now)
{
	double most = flow->cpu_max * (double)PLACE_QUOTA_PERIOD_NS;
	double tokens = flow->tokens_ns + (double)(now - flow->tokens_at_ns) * flow->cpu_max;

	return tokens < most ? tokens : most;
}

/* Store the bucket's present content. */
void flow_sync_tokens(struct place_flow *flow, uint64_t now);
/* Take @ns out of the bucket, or put some back; throttle the flow if nothing is left. */
void flow_spend(struct placer *placer, struct place_flow *flow, int64_t ns, uint64_t now);
/* Release throttled flows whose buckets have filled. */
void schedule_refill(struct placer *placer, uint64_t now);
