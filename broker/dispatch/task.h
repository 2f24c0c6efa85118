#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher's structures: tasks, the state of a ring, the dispatcher itself
 *
 * Private to dispatch/. Reactor thread only, but for the parts of struct exec_task that an executor
 * borrows.
 *
 * A task slot is taken for an entry that cannot complete while it is looked at: it goes to an
 * executor, waits for its predecessor in a chain or for device memory, or is a barrier. There are
 * as many slots as entries, so admission never fails for want of one.
 */
#include <stdbool.h>
#include <stdint.h>

#include "dispatch/dispatch.h"
#include "place/place.h"
#include "plan/executor.h"
#include "session/residency.h"
#include "session/session.h"
#include "shm/ring.h"
#include "util/list.h"

enum task_phase {
	TASK_HELD,    /* waits for its predecessor in a chain */
	TASK_PENDING, /* waits for room in an executor's queue */
	TASK_SUBMITTED,
	TASK_BARRIER, /* waits for everything before it */
	TASK_WAITING, /* waits for an answer of residency, see wait.c */
	TASK_WOKEN,   /* has it, or was cancelled: in dispatch.woken */
};

struct task {
	struct exec_task exec;
	struct dispatch_ring *ring;
	struct session_plan *plan; /* RUN, PREFETCH, EVICT */
	struct task *next;         /* in the free list, or in a queue */
	struct task *chain_next;   /* held until this one has succeeded */
	struct list_node link;     /* in dispatch_ring.in_flight, oldest first */
	struct list_node same;     /* in its bucket, oldest first, unless it was cancelled */
	uint64_t user_data;
	uint64_t target; /* CANCEL */
	uint64_t admit_ticks;
	uint64_t deadline_ticks; /* UINT64_MAX: none */
	uint8_t opcode;
	uint8_t phase; /* enum task_phase */
	uint8_t strategy;
	uint8_t device;
	uint8_t reason;
	bool is_cancelled; /* completes with -ECANCELED when its turn comes */

	/* Waiting for memory. */
	bool waits_for_memory; /* RBK_SQE_WAIT_MEMORY */
	bool has_waited;       /* residency was asked before */
	int32_t wait_res;      /* its last answer; 0 before */
	struct residency_waiter waiter;
	struct list_node waiting; /* in session_plan.waiting */
};

struct dispatch_ring {
	/* Hot. */
	struct session_ring *ring;
	struct task *chain_last; /* the open chain's last entry, if it has not completed */
	struct task *barrier;    /* entries are not consumed while there is one */
	bool chain_open;         /* the last entry admitted had RBK_SQE_LINK */
	bool chain_broken;       /* the open chain has failed */
	bool is_active;          /* in dispatch.active */
	bool is_dirty;           /* in dispatch.dirty: completions to publish */
	bool wants_bell;         /* in dispatch.bells */
	uint32_t sleep_token;    /* of our last sleep */
	uint32_t rung_token;     /* the client's sleep that we have rung for */
	uint64_t last_work_ticks;
	uint64_t spin_ticks; /* how long an empty ring stays active */
	struct dispatch_ring *next_dirty;
	struct dispatch_ring *next_bell;

	/* Task slots: slot i has references [i * RBK_MAX_REFS, +RBK_MAX_REFS). */
	struct task *free_tasks;
	struct task *tasks;
	struct exec_ref *refs;
	uint32_t n_tasks_touched; /* slots beyond it were never used, and cost no memory */
	uint32_t bucket_mask;
	struct list_node in_flight;
	struct list_node *buckets; /* tasks in flight by user_data, for CANCEL */

	/* Cold. */
	struct dispatch *dispatch;
	struct list_node link; /* in dispatch.rings */
	struct list_node muted_link;
	struct list_node closing; /* in dispatch.closing */
	uint32_t n_to_close;      /* tasks in flight that were not looked at since */
	uint32_t n_empty_bells;
	uint64_t empty_bells_since_ns;
};

/* Tasks, oldest first. */
struct task_queue {
	struct task *first, **end;
};

struct dispatch {
	/* Hot. */
	struct executor *const *executors;
	uint32_t n_executors;
	uint32_t n_active;
	struct dispatch_ring **active; /* as long as there are rings */
	uint32_t n_submitted;          /* tasks that executors hold */
	uint32_t n_pending;
	uint32_t flush_mask; /* executors that were given tasks this turn */
	struct dispatch_ring *dirty;
	struct dispatch_ring *bells;
	struct task_queue woken; /* whose waiting is over */
	struct list_node ending; /* removed plans that tasks still wait for */
	struct list_node closing;
	uint64_t bucket_seed; /* which user_data share a bucket is not for clients to know */
	struct residency_demand *demand;
	struct placer placer;
	struct exec_task inline_task; /* for entries that run without a slot */
	uint64_t inline_clock_ticks;  /* when the last of this batch ended, or the batch began */
	uint64_t inline_queue_ns;     /* how long the next of this batch has waited */
	struct server_stats *stats;
	struct task_queue pending[RBK_MAX_DEVICES]; /* waiting for room in an executor's queue */
	struct exec_ref inline_refs[RBK_MAX_REFS];

	/* Cold. */
	struct dispatch_options options;
	struct server *server;
	struct list_node rings;
	struct list_node muted;
	uint32_t n_rings;
	uint32_t active_capacity;
	uint64_t crowded_spin_ticks, min_spin_ticks, max_spin_ticks;
	struct loop_watch *waker_watch;
	struct loop_timer *mute_timer;
	struct loop_timer *drain_timer;
	bool has_used_devices; /* other than the CPU, since nothing was in flight */
	bool is_stopping;
	bool drain_expired;
};

/* validate-hot.c */

/*
 * Judges a private copy of an entry of @session. RUN, PREFETCH, EVICT: sets *ret_plan. RUN:
 * resolves its references into @refs (RBK_MAX_REFS).
 * Return: 0, or the negative errno that the entry completes with (struct rbk_sqe lists them).
 */
int validate_entry(const struct session *session, const struct rbk_sqe *sqe, struct exec_ref *refs,
		   struct session_plan **ret_plan);

/* admit-hot.c */

/* Consumes up to a batch of entries. Return: how many; ADMIT_E_PROTOCOL: the session must end. */
enum { ADMIT_BATCH = 64, ADMIT_E_PROTOCOL = -1 };
int dispatch_poll_ring(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Could dispatch_poll_ring() do something now? */
bool dispatch_ring_has_work(const struct dispatch_ring *ring);

/* Polls every active ring and takes finished tasks back. Return: entries and tasks handled. */
unsigned int dispatch_work(struct dispatch *dispatch, struct dispatch_ring **ret_hostile);

/* run-hot.c */

/* Starts a task whose turn has come, and its successors as far as they complete at once. */
void task_start(struct dispatch *dispatch, struct task *task);

/* Completes a task that is not with an executor, and goes on with its chain. */
void task_finish(struct dispatch *dispatch, struct task *task, int res);

/* Takes finished tasks back from the executors. Return: how many. */
unsigned int dispatch_reap(struct dispatch *dispatch);

/* Gives pending tasks to executors that have room again. Return: how many left the queues. */
unsigned int dispatch_resubmit(struct dispatch *dispatch);

/*
 * Cancels the oldest task of @ring with that user_data, but for @self, who asks (NULL: no task).
 * Return: 0; -ENOENT; -EALREADY.
 */
int dispatch_cancel(struct dispatch_ring *ring, const struct task *self, uint64_t user_data);

/* wait.c */

/* Starts waiting for residency's answer; task->waits_for_memory and so on are set. */
void task_wait(struct task *task, enum residency_wish wish, uint8_t device);

/* The task is TASK_WAITING and goes on soon, to complete with -ECANCELED. */
void task_stop_waiting(struct task *task);

/* Begins a PREFETCH or an EVICT. It waits, or *ret_res is set to the errno it completes with. */
void task_ask_residency(struct dispatch *dispatch, struct task *task, int *ret_res);

/* Goes on with tasks whose waiting is over, a batch of them. Return: how many. */
unsigned int dispatch_wake(struct dispatch *dispatch);

/*
 * Ends the waiting of all tasks of a plan, or of a ring, a batch of them at a time: what is left is
 * for dispatch_end_waiting().
 */
void dispatch_plan_removing(struct dispatch *dispatch, struct session_plan *plan);
void dispatch_ring_closing(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Goes on with that. Return: how many tasks were looked at. */
unsigned int dispatch_end_waiting(struct dispatch *dispatch);

static inline bool dispatch_is_ending(const struct dispatch *dispatch)
{
	return !list_is_empty(&dispatch->ending) || !list_is_empty(&dispatch->closing);
}

/* complete-hot.c */

/* What a completion says beyond its task's user_data. */
struct outcome {
	int32_t res;
	uint8_t device;
	uint8_t reason;
	uint16_t flags;
	uint64_t queue_ns;
	uint64_t exec_ns;
};

/*
 * Puts a completion into the ring's memory, not yet visible. Its room was made sure of.
 *
 * Inline, so that the outcome never lies in memory: loads that straddle two recent stores wait
 * until these have left the store buffer, behind the stores to the client's lines before them.
 */
static inline void ring_post(struct dispatch *dispatch, struct dispatch_ring *dispatch_ring,
			     uint64_t user_data, const struct outcome *outcome)
{
	struct session_ring *ring = dispatch_ring->ring;
	struct session_stats *stats = &ring->session->stats;
	struct rbk_cqe *cqe;

	if (ring->is_closing)
		return;

	cqe = &ring->cq->cqes[ring->cq_tail++ & ring->mask];
	cqe->user_data = user_data;
	cqe->res = outcome->res;
	cqe->device = outcome->device;
	cqe->reason = outcome->reason;
	cqe->flags = outcome->flags;
	cqe->queue_ns = outcome->queue_ns;
	cqe->exec_ns = outcome->exec_ns;

	if (outcome->device < RBK_MAX_DEVICES)
		stats->tasks[outcome->device]++;
	stats->reasons[outcome->reason]++;
	stats->errors += outcome->res < 0;
	dispatch->stats->tasks_completed++;
}

/* Shows entries consumed and completions posted to the client; notes that it must be woken. */
void ring_publish(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Publishes every ring that completions were posted to since the last call. */
void dispatch_publish_dirty(struct dispatch *dispatch);

/* Where a task of that user_data is looked for. */
static inline struct list_node *task_bucket(const struct dispatch_ring *ring, uint64_t user_data)
{
	uint64_t hash = (user_data ^ ring->dispatch->bucket_seed) * 0xff51afd7ed558ccdull;

	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
	return &ring->buckets[hash >> 33 & ring->bucket_mask];
}

static inline struct task *task_take(struct dispatch_ring *ring)
{
	struct task *task = ring->free_tasks;
	uint32_t i;

	if (task) {
		ring->free_tasks = task->next;
		return task;
	}
	i = ring->n_tasks_touched++;
	task = &ring->tasks[i];
	task->ring = ring;
	task->exec.refs = ring->refs + (size_t)i * RBK_MAX_REFS;
	return task;
}

/* Polls the ring from now on. Room in dispatch->active was made when the ring was added. */
static inline void ring_activate(struct dispatch *dispatch, struct dispatch_ring *ring,
				 uint64_t now_ticks)
{
	ring->is_active = true;
	ring->last_work_ticks = now_ticks;
	dispatch->active[dispatch->n_active++] = ring;
	rbk_ring_announce_awake(&ring->ring->cq->sq_wait);
}

/* A device with memory of its own has the task, or would have it if @slot's memory were there. */
static inline void note_wanted(struct session_plan *slot, uint64_t admit_ticks)
{
	slot->n_wanted++;
	slot->wanted_ticks = admit_ticks;
}

/* A task goes without device memory: it is not there, or it never fits. */
static inline void note_constraint(struct dispatch *dispatch, struct session_plan *slot,
				   struct place_decision decision, uint64_t admit_ticks)
{
	slot->session->tenant->n_memory_constraints++;
	if (decision.wanted) {
		note_wanted(slot, admit_ticks);
		residency_want(dispatch->demand, slot);
	} else {
		slot->n_constrained++;
	}
}

static inline void ring_mark_dirty(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	if (ring->is_dirty)
		return;
	ring->is_dirty = true;
	ring->next_dirty = dispatch->dirty;
	dispatch->dirty = ring;
}
