#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The scheduler's structures: a device's queue, a flow, time
 *
 * Private to place/. struct placer has a struct place_schedule, each of its devices a struct
 * place_queue. Reactor thread only.
 *
 * Times in here are the scheduler's own, which only goes forward: what a caller's clock jumps back
 * is left out (schedule_time()).
 *
 * Virtual time is device time divided by a weight, in fractions of a nanosecond; it may wrap, so it
 * is compared by the sign of a difference.
 */
#include <stdbool.h>
#include <stdint.h>

#include "place/profile.h"
#include "place/schedule.h"
#include "util/heap.h"

enum {
	SCHEDULE_CLASSES = RBK_PRIORITY_COUNT,
	/* virtual time = ns * inverse_weight >> SHIFT; inverse_weight = 2^24 / weight */
	SCHEDULE_INVERSE_LOG2 = 24,
	SCHEDULE_VIRTUAL_SHIFT = 12,
	SCHEDULE_MAX_WEIGHT = 10000,
	/* Tasks that can be moved, by how much better the other device is, see movable_bucket(). */
	SCHEDULE_BUCKETS = 64,
	/* Tasks a server that are released for a flow with a quota, before any of them is back. */
	SCHEDULE_QUOTA_DEPTH = 2,
};

/* Longest work of one task that is believed: 2^40 ns, 18 minutes. */
#define SCHEDULE_MAX_WORK_NS (1ull << 40)

/* A quota that was used up stays so until there is this much time's worth in the bucket again. */
#define SCHEDULE_REFILL_NS 1000000ull /* 1 ms */

/* A released task holds its device up for this long at least, whatever was predicted. */
#define SCHEDULE_MIN_HELD_NS 1000ull

/* What broker/cpu gives a server to do at a time: nobody joins a task with less left than that. */
#define SCHEDULE_CHUNK_NS 20000ull /* 20 us */

/* Wait in a device, in ns, after which another task is stopped: a shorter wait may be chance. */
#define SCHEDULE_PATIENCE_NS 250000ull /* 0.25 ms */

/* What all devices have in common. */
struct place_schedule {
	uint64_t last_now_ns;        /* the caller's */
	uint64_t now_ns;             /* ours */
	uint64_t sequence;           /* of the next task queued */
	struct heap_node *throttled; /* flows, by when they may go on */

	/* Until then rebalancing would look in vain, unless more was queued. */
	uint64_t rebalance_ns;
	uint64_t rebalance_sequence;
};

/* A device's. */
struct place_queue {
	struct heap_node *flows; /* that have something queued and may start it, by start tag */
	uint64_t virtual_time;
	uint64_t last_finish;   /* the latest finish tag there was */
	uint64_t active_weight; /* of flows with something queued or released */
	uint32_t n_active;      /* of these flows */
	uint32_t n_servers;     /* in use */
	uint32_t n_servers_per_task;
	float inverse_servers;
	uint32_t n_queued, n_released, n_waiting;
	uint32_t n_without_choice; /* released, and nothing else could do them */
	bool was_needed;           /* such a one was released since somebody asked */

	/*
	 * Predicted work, summed over servers. What was released waits in the device in the order
	 * in which it was released until a server is free. The sum of what servers have done of
	 * what runs is running_slots * now - running_since, whoever began when.
	 */
	uint64_t queued_ns;
	uint64_t waiting_ns, running_ns;
	uint64_t running_since; /* sum of task->since; wraps */
	uint32_t running_slots;
	double running_variance; /* of running_ns, by the spread of its estimates */
	struct list_node waiting;
	struct list_node short_handed; /* running, on fewer servers than they can use */
	bool is_preemptible;           /* what runs can be stopped */
	uint32_t n_limited;            /* running, of flows with quotas */
	struct list_node running;      /* where they can be stopped, in the order of their begin */
	float pace; /* how many times longer tasks took than was predicted, recently */

	/* Tasks of one plan that follow each other. */
	const struct place_flow *run_flow;
	const struct place_plan *run_plan;
	uint64_t run_left_ns;

	/* Queued tasks that may run on another device; the last queued at the end. */
	struct list_node movable[SCHEDULE_BUCKETS];
	uint64_t movable_mask;
	uint32_t n_movable;
};

/* Tasks of one flow on one device in one class. */
struct place_class {
	struct list_node in_order; /* that came in the order in which they are due */
	struct heap_node *heap;    /* all others */
};

/*
 * The queued tasks of a plan in parts on one device, all of one flow. One of them is in its class,
 * the others are in here.
 */
struct place_gate {
	const uint32_t *n_slots;    /* of the plan there, see struct plan; 0: any number */
	uint32_t n_begun;           /* tasks that have a slot */
	struct heap_node *going_on; /* tasks that have one */
	struct heap_node *waiting;  /* tasks that have none */
	struct place_task *next;    /* in its class; NULL: none is queued that could start */
};

/*
 * The gate of a plan on a device. Return: NULL: it has no parts there, and its tasks start whenever
 * their turn comes.
 */
struct place_gate *place_gate(const struct place_plan *place_plan, uint8_t device);

/* A flow on one device. */
struct place_flow_queue {
	struct heap_node node; /* in place_queue.flows */
	struct place_flow *flow;
	uint64_t start; /* tag of what it starts next */
	uint64_t queued_ns;
	uint64_t used_ns;
	uint32_t n_queued, n_released;
	uint32_t n_in_parts;               /* released, whose rest is yet to come */
	uint32_t n_waiting;                /* released, and waiting for a server */
	uint32_t n_held[SCHEDULE_CLASSES]; /* released, by class */
	/* Charged for what is released; what servers have done of it is as in place_queue. */
	uint64_t held_ns, running_since;
	uint32_t running_slots;
	uint8_t class_mask; /* 0: nothing is queued, or nothing that has or could have a slot */
	bool is_startable;  /* node is in a heap */
	bool is_active;     /* its weight is in place_queue.active_weight */
	struct place_class classes[SCHEDULE_CLASSES];
};

struct place_flow {
	uint32_t weight;
	uint32_t inverse_weight;
	uint8_t first_class;  /* the best it may have */
	bool is_throttled;    /* node is in place_schedule.throttled */
	float own_contention; /* what part of the CPU's it causes itself, 0..1 */
	/* Processor time; below 0 is debt. */
	double cpu_max; /* ns per ns; 0: no quota */
	double tokens_ns;
	uint64_t tokens_at_ns;
	uint64_t refill_ns; /* while it is throttled */
	struct heap_node node;
	struct placer *placer;
	uint32_t n_devices;
	struct place_flow_queue on[];
};

/* @profile: NULL or not valid: one server. */
void place_queue_init(struct place_queue *queue, const struct place_profile *profile);
/* As many of them as are in use, 0: all; takes effect for what is queued from now on. */
void place_queue_set_profile(struct place_queue *queue, const struct place_profile *profile,
			     uint32_t n_in_use);

/* Predicted time until the device has done all it has, of all tenants. */
uint64_t place_queue_backlog_ns(const struct placer *placer, uint8_t device, uint64_t now_ns);

/*
 * For rebalancing: moves a queued task, keeping its place among its flow's, and tells
 * placer.moved(). @predicted_ns is for the device it goes to, @other_ns for the best but that.
 */
void schedule_move(struct placer *placer, struct place_task *task, uint8_t device,
		   float predicted_ns, float other_ns);

/* Steps back that are shorter are readings that were taken a little earlier, not a clock set. */
#define SCHEDULE_JITTER_NS   1000000000ull
#define SCHEDULE_MAX_STEP_NS (1ull << 50) /* 13 days */

/* What the scheduler's clock will say when the caller's says @now_ns. */
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

/* Is virtual time @a after @b? */
static inline bool virtual_after(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) > 0;
}

/* @ns of device time in virtual time of a flow. */
static inline uint64_t flow_virtual(const struct place_flow *flow, uint64_t ns)
{
	return ns * flow->inverse_weight >> SCHEDULE_VIRTUAL_SHIFT;
}

/* What was predicted, within reason: also NaN, infinity, 0 and less. */
static inline uint64_t schedule_work_ns(float ns)
{
	if (!(ns >= 1))
		return 1;
	return ns < (float)SCHEDULE_MAX_WORK_NS ? (uint64_t)ns : SCHEDULE_MAX_WORK_NS;
}

/* Where the end is nearer than four standard deviations, see queue_running_ns(). */
float queue_nearly_done_ns(float left_ns, float variance);

/* Server time that is left of what was predicted for what runs; below 0 if that is overdue. */
static inline int64_t queue_left_ns(const struct place_queue *queue, uint64_t now)
{
	uint64_t done = queue->running_slots * now - queue->running_since;

	return (int64_t)(queue->running_ns - done);
}

/*
 * Expected server time that what runs still needs, given that it is not done yet: more than is left
 * of what was predicted, since those that would have ended earlier have.
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
 * The start tag that a flow would have if it had been charged with what it has used by now, not
 * with all that its released tasks are predicted to use.
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

/* Is there a running task that is to give way to @fq's first, of @class, sooner or later? */
bool queue_gives_way(const struct place_queue *queue, const struct place_flow_queue *fq,
		     uint8_t class, uint8_t device, uint64_t now);
/* Virtual time goes on while tasks run that are long. */
void queue_advance(struct place_queue *queue, uint8_t device, uint64_t now);

/* --- Classes, and flows that share a device --- */

/* A class's place in the order, 0 first; the enum's numbers are not in it. */
static inline uint8_t schedule_class(uint8_t priority)
{
	switch (priority) {
	case RBK_PRIORITY_URGENT:
		return 0;
	case RBK_PRIORITY_HIGH:
		return 1;
	case RBK_PRIORITY_LOW:
		return 3;
	default:
		return 2;
	}
}

/* Counts the flow in or out of those that share the device now. */
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

/* No flow waits: time that flows used is of no account any more. */
static inline void queue_forgive_debts(struct place_queue *queue)
{
	if (!queue->flows && queue->n_released == 0)
		queue->virtual_time = queue->last_finish;
}

/* --- schedule-quota-hot.c: which flows may start something; quotas, of flows that have one --- */

/*
 * Puts a flow among those that may start something on a device, or takes it out, as it has
 * something queued there and is not throttled. One that comes in begins at the device's virtual
 * time: what it did not use is not saved up.
 */
void flow_update(struct placer *placer, struct place_flow *flow, uint8_t device);

/* What is in the bucket. */
static inline double flow_tokens(const struct place_flow *flow, uint64_t now)
{
	double most = flow->cpu_max * (double)PLACE_QUOTA_PERIOD_NS;
	double tokens = flow->tokens_ns + (double)(now - flow->tokens_at_ns) * flow->cpu_max;

	return tokens < most ? tokens : most;
}

/* Makes it what is in the bucket from now on. */
void flow_sync_tokens(struct place_flow *flow, uint64_t now);
/* Takes @ns out, or puts some back; throttles the flow if nothing is left. */
void flow_spend(struct placer *placer, struct place_flow *flow, int64_t ns, uint64_t now);
/* Lets flows go on whose buckets have filled. */
void schedule_refill(struct placer *placer, uint64_t now);
