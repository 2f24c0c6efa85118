#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher's structures: tasks, what devices do of them, rings, flows, the dispatcher itself
 *
 * Private to dispatch/. Reactor thread only, but for the parts of struct exec_task that an executor
 * borrows.
 *
 * A task slot is taken for an entry that cannot complete while it is looked at: it goes to a
 * device, waits for its predecessor in a chain or for device memory, or is a barrier. There are as
 * many slots as entries, so admission never fails for want of one.
 *
 * Times that the placer is given are clock_ticks() in nanoseconds.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dispatch/dispatch.h"
#include "loop/turn-queue.h"
#include "loop/turn.h"
#include "memory/residency.h"
#include "place/placer.h"
#include "place/schedule.h"
#include "plan/executor.h"
#include "session/session.h"
#include "shm/ring.h"
#include "util/chunks.h"
#include "util/clock.h"
#include "util/heap.h"
#include "util/index.h"
#include "util/list.h"

struct task;

/*
 * What one device does of a task: rows, given to it one submission after the other, each of which
 * queues anew, so that others get in between. A plan that cannot be cut by rows may be prepared in
 * parts there; then a submission is one of these, of all rows.
 */
struct run {
	struct exec_task exec;   /* the submission that is next, or running */
	struct place_task place; /* what is left, in the eyes of the scheduler */
	struct task *task;
	struct exec_ref *refs; /* exec.refs: they move on with the rows */
	uint32_t n_rows;       /* from the first of this submission to the last of the run */
	uint16_t n_parts;      /* on this device */
	bool is_over;
	bool has_begun;                 /* a submission of it has run, or a part of one */
	uint64_t part_ns, part_busy_ns; /* of the parts before this one */
};

/* A second device's share of a task. Taken from a pool. */
struct half {
	struct run run;
	struct half *next; /* in dispatch.free_halves */
	struct exec_ref refs[RBK_MAX_REFS];
};

enum task_phase {
	TASK_HELD,    /* waits for its predecessor in a chain */
	TASK_PLACED,  /* its runs are queued for a device, or an executor has them */
	TASK_BARRIER, /* waits for everything before it */
	TASK_WAITING, /* waits for an answer of residency, see wait.c */
	TASK_WOKEN,   /* has it, or was cancelled: in dispatch.woken */
};

struct task {
	struct run run;
	struct half *half; /* partitioned: the rows after run's; NULL: run has all */
	struct dispatch_ring *ring;
	struct session_plan *plan; /* RUN, PREFETCH, EVICT */
	struct task *next;         /* in the free list, or in a queue */
	struct task *chain_next;   /* held until this one has succeeded */
	struct list_node link;     /* in dispatch_ring.in_flight, oldest first */
	struct index_node named;   /* in its bucket, unless it was cancelled */
	uint64_t user_data;
	uint64_t target; /* CANCEL */
	uint64_t admit_ticks;
	uint64_t deadline_ticks; /* UINT64_MAX: none */
	uint8_t opcode;
	uint8_t phase; /* enum task_phase */
	uint8_t strategy;
	uint8_t priority;
	uint8_t device;
	uint8_t reason;
	uint8_t place_flags; /* PLACE_MAY_* */
	bool is_cancelled;   /* completes with -ECANCELED when its turn comes */
	bool is_explored;
	bool is_moved; /* was queued for another device at first */

	/* RUN. */
	uint32_t count;
	uint32_t n_rows_done[2]; /* on the CPU, and on another device */
	uint32_t split_count;    /* as decided, with what was predicted then */
	float predicted_ns, other_ns;
	uint8_t n_runs;                  /* that are not over */
	int32_t res;                     /* of the first run that failed */
	uint64_t start_ticks, end_ticks; /* of what ran first and last; 0: nothing did */

	/* Waiting for memory. */
	bool waits_for_memory; /* RBK_SQE_WAIT_MEMORY */
	bool has_waited;       /* residency was asked before */
	int32_t wait_res;      /* its last answer; 0 before */
	struct residency_waiter waiter;
	struct list_node waiting; /* in session_plan.waiting */
};

/* A tenant in the eyes of the scheduler, from its first ring until it owes no time any more. */
struct flow {
	struct place_flow *place;
	uint64_t owed_ticks; /* the reactor's work that it was not charged with yet */
	bool may_throttle;   /* it has a quota, or is drained */
	uint32_t weight;
	uint32_t n_active;          /* its rings that are */
	struct dispatch_ring *next; /* of these, the one to be polled next */
	int64_t credit_ticks;       /* of the reactor's time, until other flows have had theirs */
	uint64_t throttled_ticks;   /* since when it is held up; 0: it is not */
	uint32_t n_held[RBK_MAX_DEVICES]; /* its tasks that an executor has */
	uint32_t inline_overruns;         /* of all its plans: fill of a leaky bucket; while that */
	uint64_t inline_again_ticks;      /* is full none runs on the reactor, until then */

	/* Cold. */
	uint32_t n_rings;
	struct tenant *tenant;
	struct list_node link;        /* in dispatch.flows */
	struct list_node active_link; /* in dispatch.active_flows, while it has active rings */
	struct turn_owner bells;      /* of its rings' jobs in dispatch.rung */
	struct turn_owner wakes;      /* likewise, in dispatch.bells */
	uint64_t refused_round;       /* of refill_round, in which it had no quota left */
	uint64_t idle_ticks; /* when its last active ring went, or flow_forgive() was called */
};

struct dispatch_ring {
	/* Hot. */
	struct session_ring *ring;
	struct flow *flow;
	struct task *chain_last; /* the open chain's last entry, if it has not completed */
	struct task *barrier;    /* entries are not consumed while there is one */
	bool chain_open;         /* the last entry admitted had RBK_SQE_LINK */
	bool chain_broken;       /* the open chain has failed */
	bool is_fetching;        /* a table is copied: no entry is consumed meanwhile */
	bool is_active;          /* in dispatch.active */
	bool is_throttled;       /* its tenant is over its quota or drained: see flow.c */
	bool is_dirty;           /* in dispatch.dirty: completions to publish */
	uint32_t sleep_token;    /* of our last sleep */
	uint32_t rung_token;     /* the client's sleep that we have rung for */
	uint32_t n_left;         /* of a batch that took too long: for the next one, */
	uint64_t left_ticks;     /* since it began, and */
	uint64_t left_queue_ns;  /* which inline tasks took that long */
	uint64_t last_work_ticks;
	uint64_t spin_ticks;                             /* how long an empty ring stays active */
	uint32_t active_index;                           /* in dispatch.active */
	struct dispatch_ring *prev_active, *next_active; /* of its flow, in a circle */
	struct dispatch_ring *next_dirty;

	/*
	 * Task slots: slot i has references [i * RBK_MAX_REFS, +RBK_MAX_REFS). All of them are one
	 * piece of dispatch.ring_chunks, which begins with the tasks.
	 */
	struct task *free_tasks;
	struct task *tasks;
	struct exec_ref *refs;
	uint32_t n_tasks_touched; /* slots beyond it were never used, and cost no memory */
	uint32_t bucket_mask;
	struct list_node in_flight;
	struct index_node **buckets; /* tasks in flight by user_data, for CANCEL */

	/* Cold. */
	struct dispatch *dispatch;
	size_t map_bytes;         /* of tasks and what comes after them */
	struct list_node link;    /* in dispatch.rings */
	struct turn_job bell_job; /* its bell was rung */
	struct turn_job wake_job; /* its client sleeps, and is to be rung for */
	struct list_node throttled_link;
	uint64_t refill_round;    /* of dispatch's, in which it was looked at last */
	struct list_node closing; /* in dispatch.closing */
	uint32_t n_to_close;      /* tasks in flight that were not looked at since */
	uint32_t n_empty_bells;
	uint64_t empty_bells_since_ns;
	bool is_muted;               /* in dispatch.muted: the loop does not watch its bell */
	uint8_t mute_level;          /* how often it was muted lately */
	uint64_t muted_until_ns;     /* or was, the last time */
	struct heap_node muted_node; /* by muted_until_ns */
};

/* Tasks, oldest first. */
struct task_queue {
	struct task *first, **end;
};

/* Walks that go on in each turn, as bits of dispatch.walking. */
enum { WALK_REPLACE = 1 << 0, WALK_LOOK = 1 << 1 };

/* The next task slot of a walk over all tasks in flight, see walk.c. */
struct walk {
	struct dispatch_ring *ring; /* NULL: none is left */
	uint32_t slot;              /* index in ring->tasks */
	uint32_t n_rings;           /* rings left to visit, this one included */
};

/* The next plan and task that replace.c visits. */
struct replace {
	uint32_t n_plans; /* plans left to visit, before tasks */
	struct walk walk;
};

/* What is going on on a device. */
struct device_load {
	uint32_t n_queued;        /* runs in its queue */
	uint32_t n_held;          /* that its executor has */
	uint32_t n_urgent;        /* of these, urgent ones since one that is not came back */
	uint32_t n_returned;      /* ever, but for those cancelled before they ran; wraps */
	uint32_t n_stalls;        /* incidents, see liveness.c */
	bool is_avoided;          /* in one: what it hands back unbegun goes to the CPU */
	struct dispatch_own *own; /* the broker's own task that its executor has */
	uint32_t loss;            /* 1 + how often it had been reopened when a task last lost it */
	uint64_t loss_ticks;      /* when that was */
};

/* Does a device that has work make progress? See liveness.c. */
struct device_watch {
	uint32_t n_returned; /* device_load's, when it changed last */
	uint8_t stage;       /* of mending; 0: it makes progress */
	bool is_begun;       /* it was looked at before */
	uint64_t idle_ns;    /* since then, or since it had nothing to do */
	uint64_t look_ns;    /* what it holds is looked at when idle_ns is as long */
};

/* Runs of a device, as a look finds them. */
struct holding {
	uint32_t n_queued;    /* in the scheduler */
	uint32_t n_throttled; /* of these, held up by a quota */
	uint32_t n_given;     /* with the executor, and not begun */
	uint32_t n_running;
	uint64_t predicted_ns; /* of what the executor has */
	uint64_t oldest_ticks; /* admission of the oldest */
};

/* A walk over the tasks of a device that seems to have stalled, see liveness.c. */
struct look {
	uint8_t device;
	bool is_evading;  /* it moves tasks to the CPU instead of counting them */
	uint64_t idle_ns; /* device_watch.idle_ns when the look began */
	uint32_t n_evaded;
	struct walk walk;
	struct holding holding;
};

struct dispatch {
	/* Hot. */
	struct executor *const *executors;
	uint32_t n_executors;
	uint32_t n_active;
	struct dispatch_ring **active; /* as long as there are rings */
	uint32_t n_submitted;          /* runs that executors hold, and the broker's own tasks */
	uint32_t n_queued;             /* runs in the queues of all devices */
	uint32_t flush_mask;           /* executors that were given tasks this turn */
	bool may_rebalance;            /* tasks came, or came back, since the last time */
	bool may_preempt;              /* it is time to ask what is to be stopped */
	bool is_costly;                /* this batch has taken longer than entries usually do */
	bool is_batch_over;            /* no more entries of it are to be admitted now */
	bool is_now;                   /* now_ticks was read when this turn's last batch ended */
	struct turn *turn;             /* the loop's */
	struct list_node active_flows; /* the one to be polled next first */
	uint32_t n_active_flows;
	bool is_round_cut;         /* the last round has not come to all active flows */
	uint64_t active_weight;    /* of all these */
	uint64_t batch_ticks;      /* a batch of entries stops then */
	uint64_t batch_stop_ticks; /* when that is for this one */
	uint64_t long_batch_ticks; /* longer than any batch should be */
	struct dispatch_ring *dirty;
	struct turn_queue bells; /* rings whose clients sleep, and are to be rung for */
	struct turn_queue rung;  /* rings whose bells were rung */
	struct task_queue woken; /* whose waiting is over */
	struct list_node ending; /* removed plans that tasks still wait for */
	struct list_node closing;
	uint8_t walking;      /* WALK_*: walks that go on */
	uint64_t bucket_seed; /* spreads user_data over buckets */
	struct residency_demand *demand;
	struct placer *placer;
	uint64_t now_ticks;           /* about now */
	struct exec_task inline_task; /* for entries that run without a slot */
	uint64_t inline_clock_ticks;  /* when the last of this batch ended, or the batch began */
	uint64_t inline_queue_ns;     /* how long the next of this batch has waited */
	uint32_t n_inline;
	uint32_t n_taken;         /* task slots, ever; wraps */
	uint32_t n_succeeded;     /* tasks, ever; wraps */
	uint64_t end_ticks;       /* of the reactor, that a task takes which comes back */
	uint64_t entry_ticks;     /* that an entry which completes at once takes the reactor */
	uint64_t max_batch_ticks; /* and no more: a preempted reactor is not the tenant's doing */
	uint64_t charge_ticks;    /* what flows owe is passed on in such lumps */
	uint64_t slice_ticks;     /* an urgent task is stopped after that */
	uint64_t poll_ticks;      /* that looking at an empty ring takes */
	struct server_stats *stats;
	struct half *free_halves;
	struct device_load loads[RBK_MAX_DEVICES];
	struct exec_ref inline_refs[RBK_MAX_REFS];

	/* Cold. */
	struct dispatch_options options;
	struct chunks ring_chunks; /* setup thread */
	struct dispatch_mended mended[RBK_MAX_DEVICES];
	struct server *server;
	struct list_node rings;
	struct replace replace;
	struct look look;
	struct heap_node *muted; /* rings, the one first that is to be heard first */
	struct list_node throttled;
	struct list_node drained; /* likewise, of tenants that an administrator drains */
	struct list_node flows;
	struct place_flow *nobody; /* for questions about tasks that nobody has sent */
	struct list_node plans;
	uint32_t n_plans;     /* length of plans */
	struct list_node own; /* the broker's tasks that wait for an idle device */
	struct half *halves;
	uint32_t n_rings;
	uint32_t active_capacity;
	uint32_t sleep_at;         /* in active, where dispatch_sleep_rings() goes on */
	uint64_t busy_ticks;       /* when rings or devices had something to do last */
	uint64_t rest_until_ticks; /* then clients' other work goes on, while they have */
	uint64_t crowded_spin_ticks, min_spin_ticks, max_spin_ticks;
	bool is_contended; /* the processors are: then it hardly spins */
	struct loop_watch *waker_watch;
	struct loop_timer *mute_timer;
	struct loop_timer *drain_timer;
	struct loop_timer *refill_timer;
	struct loop_timer *flow_timer;
	bool is_refill_armed;
	bool is_refilling;     /* the round is not over */
	uint64_t refill_round; /* number of the look at all rings that are held up */
	struct loop_timer *balance_timer;
	bool is_balance_armed;
	struct loop_timer *slice_timer;
	bool is_slice_armed;
	struct loop_timer *watch_timer;
	bool is_watching;       /* it is armed */
	uint64_t watched_ticks; /* when they were looked at last */
	struct device_watch watches[RBK_MAX_DEVICES];
	uint16_t contention_flags; /* of tasks that the CPU completes now: RBK_DECISION_CONTENTION_*
				    */
	bool has_used_devices;     /* other than the CPU, since nothing was in flight */
	bool is_working;           /* as dispatch_is_working() said last */
	bool is_stopping;
	bool drain_expired;
};

/* validate-hot.c */

/*
 * Judges a private copy of an entry of @session. RUN, PREFETCH, EVICT: sets *ret_plan. RUN:
 * resolves its references into @refs (RBK_MAX_REFS).
 * Return: 0; the negative errno that the entry completes with (struct rbk_sqe lists them);
 * VALIDATE_E_TABLE: its table is where only threads that may sleep may read.
 */
enum { VALIDATE_E_TABLE = 1 };
int validate_entry(const struct session *session, const struct rbk_sqe *sqe, struct exec_ref *refs,
		   struct session_plan **ret_plan);

/* admit-hot.c */

/* Consumes up to a batch of entries. Return: how many; ADMIT_E_PROTOCOL: the session must end. */
enum { ADMIT_BATCH = 64, ADMIT_E_PROTOCOL = -1 };
int dispatch_poll_ring(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Goes on with the entry of @ring whose table has been copied. */
void dispatch_admit_fetched(struct dispatch *dispatch, struct dispatch_ring *ring);

/*
 * Polls active rings. Where several flows have active rings, each gets its part of the reactor's
 * time by its weight, however many rings it has. What does not fit into this turn is polled first
 * in the next. Return: the entries.
 */
unsigned int dispatch_poll(struct dispatch *dispatch, struct dispatch_ring **ret_hostile);

/* work-hot.c */

/* Takes finished tasks back, and starts others. Return: how many. */
unsigned int dispatch_tasks(struct dispatch *dispatch);

/* Goes on with tasks whose waiting is over, a batch of them. Return: how many. */
unsigned int dispatch_wake(struct dispatch *dispatch);

/* dispatch.c */

/* Polls, wakes clients, then works on tasks. Return: entries and tasks handled. */
unsigned int dispatch_work(struct dispatch *dispatch, struct dispatch_ring **ret_hostile);

/* task-hot.c */

/* Starts a task whose turn has come, and its successors as far as they complete at once. */
void task_start(struct dispatch *dispatch, struct task *task);

/* Completes a task that is not with an executor, and goes on with its chain. */
void task_finish(struct dispatch *dispatch, struct task *task, int res);

/* Takes finished tasks back from the executors, in a slice of the turn. Return: how many. */
unsigned int dispatch_reap(struct dispatch *dispatch);

/*
 * Cancels the oldest task of @ring with that user_data, but for @self, who asks (NULL: no task).
 * Return: 0; -ENOENT; -EALREADY.
 */
int dispatch_cancel(struct dispatch_ring *ring, const struct task *self, uint64_t user_data);

/* run-hot.c */

/* Queues a task for the device, or the devices, of @decision, and counts it there. */
void task_place(struct dispatch *dispatch, struct task *task, struct place_decision decision);

/*
 * Stops a TASK_PLACED that no device has begun, or whose device can stop it: it completes with
 * -ECANCELED, in dispatch_tasks() or when its executor hands it back. Return: false: one has begun
 * that does not stop, and nothing has changed.
 */
bool task_withdraw(struct dispatch *dispatch, struct task *task);

/*
 * Gives queued tasks to executors; now_ticks was read for that. Return: how many of these may be
 * given more at once.
 */
unsigned int dispatch_release(struct dispatch *dispatch);

/* Asks executors to stop what is to give way. */
void dispatch_preempt(struct dispatch *dispatch);

/* Tells executors that they were given all tasks of this turn. */
void dispatch_flush(struct dispatch *dispatch);

/*
 * An executor has handed @run's submission back: its next one is queued, or the run is over.
 * Return: the task, if that was its last run; NULL.
 */
struct task *run_returned(struct dispatch *dispatch, struct run *run);

/* A run that is queued for a device which fails goes to the CPU, if it may. Return: did it? */
bool run_evade(struct dispatch *dispatch, struct run *run);

/* For the placer: a queued run is on another device now. */
void dispatch_moved(void *context, struct place_task *place, uint8_t from);

/* liveness.c */

/* Looks at all devices now: at what one of them holds, as far as this turn's budget allows. */
void dispatch_watch_devices(struct dispatch *dispatch);
/* Goes on with a look while dispatch.walking has WALK_LOOK. Return: the slots visited. */
unsigned int dispatch_look(struct dispatch *dispatch);
/* Looks at them until there is no work any more. */
void dispatch_watch_begin(struct dispatch *dispatch);
int liveness_init(struct dispatch *dispatch);
void liveness_deinit(struct dispatch *dispatch);

/* flow.c */

/* Charges what the reactor did for a flow. */
void flow_charge(struct dispatch *dispatch, struct flow *flow);

/* Its tenant has used up its quota: then @ring is not polled until there is some again. */
bool ring_is_throttled(struct dispatch *dispatch, struct dispatch_ring *ring);

/* The flow of @ring's tenant, made where there is none. Return: 0 or -ENOMEM. */
int flow_join(struct dispatch *dispatch, struct dispatch_ring *ring);
void flow_leave(struct dispatch *dispatch, struct dispatch_ring *ring);

/*
 * If something waits for a device: sees to it that balance is looked at again, also if
 * no task comes or returns.
 */
void dispatch_await_balance(struct dispatch *dispatch);

/* If something waits for a quota: sees to it that it goes on in time. */
void flow_await_refill(struct dispatch *dispatch);
/* @ring, throttled and out of dispatch.active, goes on later. */
void flow_park(struct dispatch *dispatch, struct dispatch_ring *ring);

int flows_init(struct dispatch *dispatch);
void flows_deinit(struct dispatch *dispatch);

/* dispatch-plan.c */

/* For server_hooks. */
uint64_t dispatch_plan_bytes(void *context, const struct plan *plan);
void dispatch_plan_make(void *context);
int dispatch_plan_ready(void *context, struct session_plan *plan);
void dispatch_plan_freed(void *context, struct session_plan *plan);
/* Makes what is cached of decisions anew for a plan; the next call takes the next plan. There must
 * be one. */
void dispatch_plan_review_next(struct dispatch *dispatch);

/* replace.c */

/*
 * Has what is cached of decisions made anew for all plans, and with @has_tasks has all queued tasks
 * leave devices that are not to be used any more. Does a batch; what is left is for
 * dispatch_replace(). A second call begins anew.
 */
void dispatch_replace_begin(struct dispatch *dispatch, bool has_tasks);

/* Goes on while dispatch.walking has WALK_REPLACE. Return: how many plans and slots it visited. */
unsigned int dispatch_replace(struct dispatch *dispatch);

/* walk.c */

/* Begins a walk at the first ring. */
void walk_begin(const struct dispatch *dispatch, struct walk *walk);

/*
 * Visits the next slot, or ring. Return: false if nothing is left; *ret is the slot's task that is
 * queued for a device or that an executor has, or NULL.
 */
bool walk_next(const struct dispatch *dispatch, struct walk *walk, struct task **ret);

/*
 * Calls @step, which returns false if nothing is left, until the batch or the turn is over. Then
 * @which, a WALK_*, leaves dispatch.walking if nothing is left. Return: how many steps were done.
 */
unsigned int walk_slice(struct dispatch *dispatch, uint8_t which,
			bool (*step)(struct dispatch *dispatch));

/* @ring is about to leave dispatch.rings. */
void walks_ring_freed(struct dispatch *dispatch, const struct dispatch_ring *ring);

/* dispatch-ring.c */

uint64_t dispatch_ring_bytes(uint32_t n_entries);
int dispatch_ring_make(void *context, struct session_ring *ring);
void dispatch_ring_unmake(void *context, struct session_ring *ring);
int dispatch_ring_added(void *context, struct session_ring *ring);
void dispatch_ring_ended(void *context, struct session_ring *ring);
void dispatch_ring_freed(void *context, struct session_ring *ring);
void dispatch_ring_bell(void *context, struct session_ring *ring);
/*
 * Answers bells that were rung, tenants by weight, for a part of the turn's budget; what does not
 * fit waits for the next turn. Return: how many.
 */
unsigned int dispatch_answer_bells(struct dispatch *dispatch);
/*
 * Has the table of a RUN, which validate_entry() could not read, copied; the ring admits nothing
 * until dispatch_admit_fetched(). Return: 0; the negative errno that the entry completes with.
 */
int dispatch_table_fetch(struct dispatch_ring *ring, const struct rbk_sqe *sqe);
void dispatch_ring_drained(void *context, struct session_ring *ring);
/*
 * Rings that stayed empty for their budget, or are throttled, leave the list of active ones. Looks
 * at some of them at each call, in turn.
 */
void dispatch_sleep_rings(struct dispatch *dispatch);
/* @ring leaves the list of active ones, if it is there. */
void ring_deactivate(struct dispatch *dispatch, struct dispatch_ring *ring);
void dispatch_stop_polling(struct dispatch *dispatch);
/*
 * Wakes clients that sleep, tenants by weight, for a part of the turn's budget and no longer: tasks
 * of all tenants wait meanwhile. Those that do not fit are woken in the next call.
 */
void dispatch_ring_bells(struct dispatch *dispatch);
int rings_init(struct dispatch *dispatch);
void rings_deinit(struct dispatch *dispatch);

/* own.c */

/* Starts tasks of the broker's own on devices that have nothing else. Return: how many. */
unsigned int own_start(struct dispatch *dispatch);
/* One has come back from @device. */
void own_returned(struct dispatch *dispatch, uint8_t device);
/* All of them end, now or when they are back. */
void own_cancel_all(struct dispatch *dispatch);

/* wait.c */

/* Starts waiting for residency's answer; task->waits_for_memory and so on are set. */
void task_wait(struct task *task, enum residency_wish wish, uint8_t device);

/* The task is TASK_WAITING and goes on soon, to complete with -ECANCELED. */
void task_stop_waiting(struct task *task);

/* Begins a PREFETCH or an EVICT. It waits, or *ret_res is set to the errno it completes with. */
void task_ask_residency(struct dispatch *dispatch, struct task *task, int *ret_res);

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
	uint64_t *words;

	_Static_assert(sizeof(struct rbk_cqe) == 4 * sizeof(*words) &&
			       offsetof(struct rbk_cqe, res) == 8 &&
			       offsetof(struct rbk_cqe, device) == 12 &&
			       offsetof(struct rbk_cqe, reason) == 13 &&
			       offsetof(struct rbk_cqe, flags) == 14 &&
			       offsetof(struct rbk_cqe, queue_ns) == 16,
		       "completions are written word by word");
	if (ring->is_closing)
		return;

	/* Whole words: the store buffer is what is short. */
	words = (uint64_t *)&ring->cq->cqes[ring->cq_tail++ & ring->mask];
	words[0] = user_data;
	words[1] = (uint32_t)outcome->res | (uint64_t)outcome->device << 32 |
		   (uint64_t)outcome->reason << 40 | (uint64_t)outcome->flags << 48;
	words[2] = outcome->queue_ns;
	words[3] = outcome->exec_ns;

	if (outcome->device < RBK_MAX_DEVICES)
		stats->tasks[outcome->device]++;
	stats->reasons[outcome->reason]++;
	if (__builtin_expect(outcome->res < 0, 0))
		stats->errors++;
	dispatch->stats->tasks_completed++;
}

/* Shows entries consumed and completions posted to the client; notes that it must be woken. */
void ring_publish(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Could dispatch_poll_ring() do something now? */
bool dispatch_ring_has_work(const struct dispatch_ring *ring);

/* Publishes every ring that completions were posted to since the last call. */
void dispatch_publish_dirty(struct dispatch *dispatch);

/* Tell whoever sets the pace of measurements whether devices are in use. */
static inline void dispatch_set_pace(const struct dispatch *dispatch, bool is_busy)
{
	const struct dispatch_options *options = &dispatch->options;

	if (options->set_pace)
		options->set_pace(options->pace_context, is_busy, dispatch->n_rings > 0);
}

static inline uint64_t task_hash(const struct dispatch_ring *ring, uint64_t user_data)
{
	return index_hash(user_data, ring->dispatch->bucket_seed);
}

/* Trees go by a hash's first bits, so the bucket goes by others. */
static inline struct index_node **task_bucket(const struct dispatch_ring *ring, uint64_t hash)
{
	return &ring->buckets[hash >> 40 & ring->bucket_mask];
}

/* The placer's clock. */
static inline uint64_t dispatch_now_ns(const struct dispatch *dispatch)
{
	return clock_ticks_to_ns(dispatch->now_ticks);
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
	task->run.task = task;
	task->run.refs = ring->refs + (size_t)i * RBK_MAX_REFS;
	task->run.exec.refs = task->run.refs;
	return task;
}

/*
 * Deduct from the debt of a flow without active rings its part of the time since idle_ticks, which
 * other flows have had.
 */
static inline void flow_forgive(const struct dispatch *dispatch, struct flow *flow,
				uint64_t now_ticks)
{
	const uint64_t ticks = now_ticks > flow->idle_ticks ? now_ticks - flow->idle_ticks : 0;
	const uint64_t all_weights = dispatch->active_weight + flow->weight;

	flow->idle_ticks = now_ticks;
	if (flow->credit_ticks >= 0)
		return;
	if (ticks >= (uint64_t)-flow->credit_ticks * all_weights / flow->weight)
		flow->credit_ticks = 0;
	else
		flow->credit_ticks += (int64_t)(ticks * flow->weight / all_weights);
}

/* Polls the ring from now on. Room in dispatch->active was made when the ring was added. */
static inline void ring_activate(struct dispatch *dispatch, struct dispatch_ring *ring,
				 uint64_t now_ticks)
{
	struct flow *flow = ring->flow;

	ring->is_active = true;
	ring->last_work_ticks = now_ticks;
	ring->active_index = dispatch->n_active;
	dispatch->active[dispatch->n_active++] = ring;
	if (flow->n_active++ == 0) {
		flow_forgive(dispatch, flow, now_ticks);
		ring->prev_active = ring->next_active = flow->next = ring;
		/* A newcomer goes behind those that the last round has not come to. */
		list_append(dispatch->is_round_cut ? &dispatch->active_flows
						   : dispatch->active_flows.next,
			    &flow->active_link);
		dispatch->n_active_flows++;
		dispatch->active_weight += flow->weight;
	} else {
		ring->next_active = flow->next;
		ring->prev_active = flow->next->prev_active;
		ring->prev_active->next_active = ring;
		flow->next->prev_active = ring;
	}
	rbk_ring_announce_awake(&ring->ring->cq->sq_wait);
}

/* A device with memory of its own has the task, or would have it if @plan's memory were there. */
static inline void note_wanted(struct session_plan *plan, uint64_t admit_ticks)
{
	plan->memory.n_wanted++;
	plan->memory.wanted_ticks = admit_ticks;
}

/* A task goes without device memory: it is not there, or it never fits. */
static inline void note_constraint(struct dispatch *dispatch, struct session_plan *plan,
				   struct place_decision decision, uint64_t admit_ticks)
{
	plan->memory.counts->n_constraints++;
	if (decision.wanted) {
		note_wanted(plan, admit_ticks);
		residency_want(dispatch->demand, &plan->memory);
	} else {
		plan->memory.n_constrained++;
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
