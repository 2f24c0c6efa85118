#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher's structures: tasks, their runs on devices, rings, flows, the dispatcher itself
 *
 * Private to dispatch/. Reactor thread only, except the parts of struct exec_task that an executor
 * borrows.
 *
 * An entry takes a task slot if it cannot complete while it is admitted: it runs on a device, waits
 * for its predecessors or for device memory, or is a barrier. There are as many slots as
 * entries, so admission never lacks a slot.
 *
 * Times passed to the placer are clock_ticks() in nanoseconds.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dispatch/dispatch.h"
#include "dispatch/join.h"
#include "dispatch/overrun.h"
#include "dispatch/reactor-run.h"
#include "dispatch/series.h"
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
#include "util/log.h"

struct segment_set;
struct task;

/*
 * A task's work on one device. Its rows are submitted in pieces, one after the other. Each
 * submission queues anew, so that other tasks run in between. A plan that cannot be cut by rows may
 * be prepared in parts on the device; then a submission is one part, of all rows.
 */
struct run {
	struct exec_task exec;   /* the next submission, or the running one */
	struct place_task place; /* what is left of the run, for the scheduler */
	struct task *task;
	struct exec_ref *refs; /* exec.refs; offsets advance with the rows */
	uint32_t n_rows;       /* from the submission's first row to the run's last */
	uint16_t n_parts;      /* of the plan on this device */
	bool is_over;
	bool has_begun;                 /* a submission, or a part of one, has run */
	uint64_t part_ns, part_busy_ns; /* time of the earlier parts */
};

/* A second device's share of a task, taken from a pool */
struct half {
	struct run run;
	struct half *next; /* in dispatch.free_halves */
	struct exec_ref refs[RBK_MAX_REFS];
};

enum task_phase {
	TASK_HELD,    /* waits for its predecessors in a chain and in a join */
	TASK_PLACED,  /* its runs are queued for devices, or held by executors */
	TASK_BARRIER, /* waits for all earlier tasks of its ring */
	TASK_WAITING, /* waits for residency's answer, see wait.c */
	TASK_BLOCKED, /* waits for a crossing block of its plan, see segment-hot.c */
	TASK_WOKEN,   /* answered or cancelled; in dispatch.woken */
	TASK_IDLE,    /* its slot has no segment; others have, see segment-hot.c */
};

struct task {
	struct run run;
	struct half *half; /* if partitioned: the rows after run's; NULL: run has all */
	struct dispatch_ring *ring;
	struct session_plan *plan;  /* of RUN, PREFETCH, EVICT; otherwise NULL */
	struct session_plan *whole; /* if plan is a segment of it: see segment.h; else NULL */
	uint16_t segment;           /* number of that segment, */
	uint16_t batch;             /* and of the micro-batch; 0 unless the task has several */
	struct segment_set *set;    /* of a RUN that has begun a segment, or is about to */
	struct task *next;          /* in the free list, or in a queue */
	struct task *chain_next;    /* successor, held until this task completes */
	struct join_task join;
	struct list_node link;   /* in dispatch_ring.in_flight, oldest first */
	struct index_node named; /* in its bucket, unless cancelled */
	uint64_t user_data;
	uint64_t target; /* user_data that a CANCEL cancels */
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
	bool is_moved;      /* was first queued for another device */
	bool was_held_back; /* waited for leases that share its device */
	/* Units of the ring's undo memory that hold its states as they were; 0: none. */
	uint8_t undo_first, n_undo;
	bool is_rerun, is_undone; /* an earlier broker has begun it; its states were written back */
	bool is_suspect;          /* brokers may have crashed because of it: see blame.c */

	/* RUN only */
	uint32_t count;
	uint32_t n_rows_done[2];         /* rows done on the CPU, and on another device */
	uint32_t split_count;            /* first device's rows if split; 0: not split */
	float predicted_ns, other_ns;    /* as decided: on its device, on the best other one */
	uint8_t n_runs;                  /* runs that are not over */
	int32_t res;                     /* result of the first run that failed */
	uint64_t start_ticks, end_ticks; /* first start and last end of its runs; 0: none ran */

	/* Waiting for memory */
	bool waits_for_memory; /* RBK_SQE_WAIT_MEMORY */
	bool has_waited;       /* residency was asked before */
	int32_t wait_res;      /* residency's last answer; 0 before */
	struct residency_waiter waiter;
	struct list_node waiting; /* in session_plan.waiting, or session_segments.waiting */
};

/* A tenant as the scheduler sees it, from its first ring until it owes no time any more. */
struct flow {
	struct place_flow *place;
	uint64_t owed_ticks; /* reactor time not yet charged */
	bool may_throttle;   /* it has a quota, or its tenant is drained */
	uint32_t weight;
	uint32_t n_active;                /* active rings */
	struct dispatch_ring *next;       /* active ring to be polled next */
	int64_t credit_ticks;             /* reactor time left in this round; negative: debt */
	uint64_t throttled_ticks;         /* when it was throttled; 0: it is not */
	uint32_t n_held[RBK_MAX_DEVICES]; /* tasks that executors hold, by device */
	uint32_t inline_overruns;         /* fill of the leaky bucket of all its plans */
	uint64_t inline_again_ticks;      /* when a full bucket permits inlining again */
	uint32_t n_noted;                 /* refused entries noted since noted_from_ticks */
	uint64_t noted_from_ticks;

	/* Cold. */
	uint32_t n_rings;
	struct tenant *tenant;
	struct list_node link;          /* in dispatch.flows */
	struct list_node active_link;   /* in dispatch.active_flows while n_active > 0 */
	struct turn_owner bells;        /* owner of its rings' jobs in dispatch.rung */
	struct turn_owner wakes;        /* owner of its rings' jobs in dispatch.bells */
	uint64_t refused_round;         /* last refill_round that found no quota left */
	struct log_limit refused_limit; /* log lines about refused entries */
	uint64_t idle_ticks; /* last deactivation of its last active ring, or flow_forgive() */

	/* The tasks on devices that leases share, and the classes that may start: share-hot.c */
	struct timeslice_plans shared[RBK_MAX_DEVICES];
	uint8_t n_open[RBK_MAX_DEVICES];
	uint8_t held_from[RBK_MAX_DEVICES];     /* tasks of this class and later ones waited */
	uint64_t opened_ticks[RBK_MAX_DEVICES]; /* until then; 0: never */

	/* See flow_is_busy(). */
	uint64_t active_ticks;   /* begin of the part of n_active > 0 that busy_ticks lacks */
	uint64_t window_ticks;   /* begin of the window */
	uint64_t busy_ticks;     /* time in the window with n_active > 0 */
	uint64_t window_used_ns; /* flow_used_ns() at the begin of the window */
	bool was_busy;           /* in the last window */
};

struct dispatch_ring {
	/* Hot. */
	struct session_ring *ring;
	struct flow *flow;
	struct task *chain_last; /* last entry of the open chain, if not completed */
	struct task *barrier;    /* no entry is consumed while it is set */
	bool chain_open;         /* the last admitted entry had RBK_SQE_LINK */
	bool chain_broken;       /* the open chain has failed */
	bool is_fetching;        /* a table is being copied: no entry is consumed */
	bool is_active;          /* in dispatch.active */
	bool is_throttled;       /* tenant over its quota or drained: see flow.c */
	bool is_dirty;           /* in dispatch.dirty, with completions to publish */
	bool is_due;             /* the client is told when its task completes */
	bool is_watched;         /* its client did not sleep during its last task */
	bool goes_on;            /* entries come soon after a completion */
	uint32_t sleep_token;    /* token of the broker's last sleep */
	uint32_t rung_token;     /* token of the client's sleep last rung for */
	uint32_t cq_published;   /* completions that the client can see */
	uint32_t client_slept;   /* rbk_sq_area.slept when the last task completed */
	uint32_t n_left;         /* entries left of a batch that took too long */
	/* Records that an earlier broker left, and those of them that were admitted again */
	uint32_t n_restored, n_readmitted;
	uint64_t restored_chain;              /* RBK_COMMIT_CHAIN_*, until all are admitted */
	struct rbk_commit commit_base;        /* rbk_cq_area.commit_base */
	uint64_t left_ticks;                  /* admission of these entries */
	uint64_t left_queue_ns;               /* time that the batch's inline tasks took */
	uint64_t last_work_ticks, rung_ticks; /* rung_ticks: its client was last woken */
	uint64_t done_ticks, worked_ticks;    /* see ring_go_on() */
	uint64_t spin_ticks;                  /* time for which an empty ring stays active */
	uint32_t active_index;                /* in dispatch.active */
	struct dispatch_ring *prev_active, *next_active; /* circle of its flow's active rings */
	struct dispatch_ring *next_dirty;

	/*
	 * Task slots: slot i has references [i * RBK_MAX_REFS, +RBK_MAX_REFS). Tasks, references
	 * and buckets are one piece of dispatch.ring_chunks, which begins with the tasks.
	 */
	struct task *free_tasks;
	struct task *tasks;
	struct exec_ref *refs;
	uint32_t n_tasks_touched; /* slots ever used; the others cost no memory */
	uint32_t bucket_mask;
	struct list_node in_flight;
	struct index_node **buckets; /* tasks in flight by user_data, for CANCEL */
	struct join_ring join;

	/* Cold. */
	struct dispatch *dispatch;
	size_t map_bytes;           /* of the piece that begins with tasks */
	struct list_node link;      /* in dispatch.rings */
	struct turn_job bell_job;   /* submitted when its bell was rung */
	struct list_node late_link; /* in dispatch.late_bells */
	struct turn_job wake_job;   /* submitted when its sleeping client is to be woken */
	struct list_node throttled_link;
	uint64_t refill_round;    /* last dispatch.refill_round that looked at it */
	struct list_node closing; /* in dispatch.closing */
	uint32_t n_to_close;      /* tasks in flight not visited since closing began */
	bool is_dozing;           /* a sleep is announced, and waits for a fence */
	bool is_bell_late;        /* its bell was rung, and is to be drained after the entries */
	bool was_called_off;      /* an announced sleep, for which the client may have rung */
	uint32_t n_empty_bells;
	uint64_t empty_bells_since_ns;
	bool is_muted;               /* in dispatch.muted: the loop does not watch its bell */
	uint8_t mute_level;          /* number of recent mutes; each doubles the next one */
	uint64_t muted_until_ns;     /* end of the current mute, or of the last one */
	struct heap_node muted_node; /* keyed by muted_until_ns */
};

/* A queue of tasks, oldest first */
struct task_queue {
	struct task *first, **end;
};

/* Bits of dispatch.walking: walks that continue in each turn. */
enum { WALK_REPLACE = 1 << 0, WALK_LOOK = 1 << 1 };

/* The next task slot of a walk over all tasks in flight, see walk.c. */
struct walk {
	struct dispatch_ring *ring; /* NULL: none is left */
	uint32_t slot;              /* index in ring->tasks */
	uint32_t n_rings;           /* rings left to visit, including ring */
};

/* The next plan and task that replace.c visits. */
struct replace {
	uint32_t n_plans; /* plans left to visit, before tasks */
	struct walk walk;
};

/* Load of a device */
struct device_load {
	uint32_t n_queued;        /* runs in its queue */
	uint32_t n_held;          /* runs that its executor holds */
	uint32_t n_urgent;        /* urgent runs submitted since a non-urgent one returned */
	uint32_t n_returned;      /* runs returned, but for those cancelled unbegun; wraps */
	uint32_t n_stalls;        /* stalls so far, see liveness.c */
	bool is_avoided;          /* during a stall: runs returned unbegun move to the CPU */
	struct dispatch_own *own; /* the broker's own task that its executor has */
	uint32_t loss;            /* 1 + reopenings at the last loss by a task; 0: none */
	uint64_t loss_ticks;      /* when the last loss was noticed */
	uint64_t idle_ticks;      /* since when it is idle for a suspect; 0: it is not */
	uint64_t due_ticks;       /* predicted end of its task, if struct due has the device */
	uint64_t early_ticks;     /* time by which tasks end before their prediction, see due.c */
};

/* The ends of tasks for which the reactor is awake, see due.c. */
struct due {
	uint32_t devices; /* bit mask of the devices with a task whose end is predicted */
	uint64_t most_ticks;
	uint64_t lag_ticks;   /* time by which the timer is late */
	uint64_t alarm_ticks; /* when the timer ends; 0: it is not armed */
	struct loop_timer *timer;
};

/* Progress of a device that has work, see liveness.c. */
struct device_watch {
	uint32_t n_returned; /* device_load.n_returned when it last changed */
	uint8_t stage;       /* of repair; 0: the device makes progress */
	bool is_begun;       /* the device was checked before */
	uint64_t idle_ns;    /* time since its last progress, or since it had no work */
	uint64_t look_ns;    /* idle_ns at which a look begins */
};

/* A device's runs, as counted */
struct holding {
	uint32_t n_queued;    /* in the scheduler */
	uint32_t n_throttled; /* of n_queued: held up by a quota */
	uint32_t n_given;     /* held by the executor, not begun */
	uint32_t n_running;
	uint64_t predicted_ns; /* time of the runs that the executor holds */
	uint64_t oldest_ticks; /* admission of the oldest task */
};

/* A walk over the tasks of a device that may have stalled, see liveness.c. */
struct look {
	uint8_t device;
	bool is_evading;  /* moves tasks to the CPU instead of counting them */
	uint64_t idle_ns; /* device_watch.idle_ns when the look began */
	uint32_t n_evaded;
	struct walk walk;
	struct holding holding;
};

/*
 * A suspect waits until no device but the CPU has a run, or it is the one that such a device has:
 * see blame.c.
 */
enum { ALONE_NOBODY, ALONE_WAITS, ALONE_RUNS };

struct dispatch {
	/* Hot. */
	struct executor *const *executors;
	uint32_t n_executors;
	uint32_t n_active;
	struct dispatch_ring **active; /* n_active rings, in any order */
	uint32_t n_submitted;          /* runs that executors hold, and own tasks */
	uint32_t n_queued;             /* runs queued for all devices */
	uint32_t flush_mask;           /* executors that were given tasks this turn */
	bool may_rebalance; /* tasks were queued or returned since the last rebalancing */
	bool may_preempt;   /* dispatch_preempt() is due */
	uint32_t held_back; /* devices on which flows may be held back, as bits: share-hot.c */
	const uint32_t *shared_devices; /* of the options, or of a word that is 0 */
	bool is_costly;                 /* an entry of this batch took long */
	bool is_batch_over;             /* admit no more of its entries now */
	uint32_t n_batch;               /* entries that it found */
	/*
	 * The decision about the entry, for the task that begins next; NULL: it is still to be
	 * made. A second one would find that the first has used up a try of a device that failed.
	 */
	const struct place_decision *decided;
	bool is_now;          /* now_ticks was read when this turn's last batch ended */
	uint8_t alone;        /* ALONE_* */
	uint8_t alone_device; /* device of the suspect of alone_flow */
	uint32_t n_suspects;
	struct flow *alone_flow; /* flow of the suspect for which devices are idle; NULL: none */
	struct turn *turn;       /* the loop's turn */
	struct list_node active_flows; /* first: to be polled next */
	struct flow *idled[2];         /* the last flows whose rings went to sleep; NULL: none */
	struct flow *busy;             /* the last flow that was found to be busy; NULL: none */
	uint32_t n_active_flows;
	bool is_round_cut;         /* the last round did not reach all active flows */
	bool stores_fetch;         /* lines of completions come by stores alone */
	uint64_t active_weight;    /* sum over active_flows */
	uint64_t batch_ticks;      /* length of a batch of entries */
	uint64_t batch_stop_ticks; /* when this batch stops */
	uint64_t long_batch_ticks; /* a longer batch is reported */
	struct dispatch_ring *dirty;
	struct turn_queue bells;     /* jobs that wake sleeping clients */
	struct turn_queue rung;      /* jobs that answer rung bells */
	struct list_node late_bells; /* rings whose bells are drained in the next turn */
	struct task_queue woken;     /* tasks whose waiting is over */
	struct list_node ending;     /* removed plans with waiting tasks */
	struct list_node closing;
	uint8_t walking;      /* WALK_*: walks in progress */
	uint64_t bucket_seed; /* spreads user_data over buckets */
	struct residency_demand *demand;
	struct placer *placer;
	uint64_t now_ticks;           /* last reading of the clock */
	struct exec_task inline_task; /* for entries that run without a slot */
	uint64_t inline_clock_ticks;  /* end of the batch's last inline task, or its begin */
	uint64_t inline_queue_ns;     /* wait of the batch's next inline task */
	uint32_t n_inline;
	struct series series;     /* inline tasks of the batch */
	uint32_t n_taken;         /* counts task slots that are taken: see LOOK_EVERY */
	uint32_t n_succeeded;     /* tasks that succeeded; wraps */
	uint64_t end_ticks;       /* reactor time to take back a task */
	uint64_t entry_ticks;     /* reactor time for an entry that completes at once */
	uint64_t max_batch_ticks; /* most that a flow is charged: the reactor may be preempted */
	uint64_t charge_ticks;    /* owed time at which a flow is charged */
	uint64_t slice_ticks;     /* time until an urgent task is stopped */
	uint64_t poll_ticks;      /* reactor time to poll an empty ring */
	struct server_stats *stats;
	struct half *free_halves;
	struct device_load loads[RBK_MAX_DEVICES];
	struct reactor_run reactor_run;
	struct due due;
	struct exec_ref inline_refs[RBK_MAX_REFS];
	struct list_node joining; /* rings with edges for join_next() */

	/* Cold. */
	struct dispatch_options options;
	struct chunks ring_chunks; /* for the setup thread */
	struct dispatch_mended mended[RBK_MAX_DEVICES];
	struct server *server;
	struct list_node rings;
	struct replace replace;
	struct look look;
	struct heap_node *muted; /* rings, by end of mute */
	struct list_node throttled;
	struct list_node drained; /* like throttled, for tenants that an administrator drains */
	struct list_node flows;
	struct place_flow *nobody; /* flow of no tenant, for decisions without a task */
	struct list_node plans;
	uint32_t n_plans;     /* length of plans */
	struct list_node own; /* the broker's tasks that wait for an idle device */
	struct half *halves;
	uint32_t n_rings;
	uint32_t active_capacity;
	uint32_t sleep_at;         /* index in active where dispatch_sleep_rings() continues */
	uint64_t busy_ticks;       /* when rings or devices last had work */
	uint64_t rest_until_ticks; /* until then other work for clients rests */
	uint64_t crowded_spin_ticks, quota_spin_ticks, min_spin_ticks, max_spin_ticks, keep_ticks,
		late_ticks;
	bool is_contended;    /* processors are contended: hardly spin */
	uint64_t moved_ticks; /* when the reactor last left a client's processor */
	struct loop_watch *waker_watch;
	struct loop_timer *mute_timer;
	struct loop_timer *drain_timer;
	struct loop_timer *refill_timer;
	struct loop_timer *flow_timer;
	bool is_refill_armed;
	bool is_refilling;     /* a round is in progress */
	uint64_t refill_round; /* number of the round over all throttled rings */
	struct loop_timer *balance_timer;
	bool is_balance_armed;
	struct loop_timer *slice_timer;
	bool is_slice_armed;
	struct loop_timer *watch_timer;
	bool is_watching;       /* watch_timer is armed */
	uint64_t watched_ticks; /* last check of the devices */
	struct device_watch watches[RBK_MAX_DEVICES];
	uint16_t contention_flags; /* RBK_DECISION_CONTENTION_* for tasks completed by the CPU */
	bool is_working;           /* last result of dispatch_is_working() */
	bool is_holding;           /* no entry is admitted: the broker is stopping, or pauses */
	bool is_stopping;
	bool drain_expired, awaits_hello; /* awaits_hello: tasks have drained; clients may not */
	uint64_t drain_ns;
	/* Called when a pause has drained; NULL: there is no pause. */
	uint64_t (*paused)(void *context);
	void *paused_context;
};

/* admit-hot.c */

/*
 * Consume up to a batch of entries.
 * Return: the number of entries; ADMIT_E_PROTOCOL: the session must end.
 */
enum { ADMIT_BATCH = 64, ADMIT_E_PROTOCOL = -1 };
int dispatch_poll_ring(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Admit the entry of @ring whose table has been copied. */
void dispatch_admit_fetched(struct dispatch *dispatch, struct dispatch_ring *ring);

/*
 * Poll active rings. Where several flows have active rings, each flow gets its part of the
 * reactor's time by its weight, however many rings it has. Rings that do not fit into this turn are
 * polled first in the next.
 * Return: the number of entries.
 */
unsigned int dispatch_poll(struct dispatch *dispatch, struct dispatch_ring **ret_hostile);

/* reactor-run-hot.c */

void reactor_run_init(struct dispatch *dispatch);

/*
 * Decide whether the reactor itself runs a run that is to be submitted to the CPU, and queue it
 * then. The caller counts it as one that the executor holds.
 */
bool reactor_run_takes(struct dispatch *dispatch, struct run *run);

/*
 * Return true if a run that the reactor does not take must wait until the reactor has run those
 * that it has: a tenant's tasks never run on two threads at once where there is one worker.
 */
bool reactor_run_is_sole(const struct dispatch *dispatch, const struct run *run);

/* Return the number of processors left for helpers, beside the reactor and an awake client. */
unsigned int reactor_run_free(const struct dispatch *dispatch, const struct run *run);

/* work-hot.c */

/*
 * Take finished tasks back, and start others.
 * Return: the number of tasks.
 */
unsigned int dispatch_tasks(struct dispatch *dispatch);

/*
 * Continue a batch of tasks whose waiting is over.
 * Return: the number of tasks.
 */
unsigned int dispatch_wake(struct dispatch *dispatch);

/* dispatch.c */

/*
 * Run the oldest of the runs that the reactor has taken, and take it back; there must be one. Not
 * to be called within the run of another.
 * Return: the number of tasks, 1.
 */
unsigned int reactor_run_next(struct dispatch *dispatch);

/*
 * Poll rings, wake clients, then work on tasks.
 * Return: the entries and tasks handled.
 */
unsigned int dispatch_work(struct dispatch *dispatch, struct dispatch_ring **ret_hostile);

/* task-hot.c */

/* Start a task whose turn has come, and its successors as far as they complete at once. */
void task_start(struct dispatch *dispatch, struct task *task);

/* Complete a task that no executor holds, and start its successor in the chain. */
void task_finish(struct dispatch *dispatch, struct task *task, int res);
/* The same, but @task may be a slot of several that segments of one task have. */
void task_end(struct dispatch *dispatch, struct task *task, int res);

/*
 * Take finished tasks back from the executors, in a slice of the turn.
 * Return: the number of tasks.
 */
unsigned int dispatch_reap(struct dispatch *dispatch);

/*
 * Cancel the oldest task of @ring with @user_data other than @self, the cancelling task (NULL: the
 * caller is no task).
 * Return: 0; -ENOENT: no such task; -EALREADY: it has begun and cannot be stopped.
 */
int dispatch_cancel(struct dispatch_ring *ring, const struct task *self, uint64_t user_data);

/* run-hot.c */

/* Queue a task for the device, or the devices, of @decision, and count it there. */
void runs_place(struct dispatch *dispatch, struct task *task, struct place_decision decision);

/*
 * Stop a TASK_PLACED that no device has begun, or whose device can stop it. The task completes with
 * -ECANCELED, in dispatch_tasks() or when its executor returns it.
 * Return: false if a run has begun that cannot be stopped; nothing has changed then.
 */
bool runs_withdraw(struct dispatch *dispatch, struct task *task);
/* Its two steps: ask whether the task can be stopped, and stop it as far as possible. */
bool runs_may_stop(struct dispatch *dispatch, struct task *task);
void runs_stop(struct dispatch *dispatch, struct task *task);

/*
 * Submit queued tasks to executors. The caller has just read now_ticks.
 * Return: the number of devices that can be given more at once.
 */
unsigned int dispatch_release(struct dispatch *dispatch);

/* Ask executors to stop the tasks that place_preempt() names. */
void dispatch_preempt(struct dispatch *dispatch);

/* Flush the executors that were given tasks in this turn. */
void dispatch_flush(struct dispatch *dispatch);

/*
 * Take back @run's submission from its executor: queue the next one, or end the run.
 * Return: the task if its last run has ended; otherwise NULL.
 */
struct task *run_returned(struct dispatch *dispatch, struct run *run);

/* A suspect of @flow is no task any more: see blame.c. */
void suspect_left(struct dispatch *dispatch, const struct flow *flow);

/*
 * Move a run that is queued for a failing device to the CPU, if it may run there.
 * Return: true if it was moved.
 */
bool run_evade(struct dispatch *dispatch, struct run *run);

/* For the placer: count a queued run that has moved away from device @from. */
void dispatch_moved(void *context, struct place_task *place, uint8_t from);

/* liveness.c */

/* Check all devices now. Look at the tasks of one of them as far as this turn's budget allows. */
void liveness_check(struct dispatch *dispatch);
/*
 * Continue a look while dispatch.walking has WALK_LOOK.
 * Return: the slots visited.
 */
unsigned int liveness_look(struct dispatch *dispatch);
/* Arm the timer that checks devices, again and again while there is work. */
void liveness_arm(struct dispatch *dispatch);
int liveness_init(struct dispatch *dispatch);
void liveness_deinit(struct dispatch *dispatch);

/* flow.c */

/* Charge a flow for the reactor time that it owes. */
void flow_charge(struct dispatch *dispatch, struct flow *flow);

/*
 * Charge the flow of @ring and set ring->is_throttled.
 * Return: true if its tenant is drained or has used up its quota; do not poll the ring then.
 */
bool ring_is_throttled(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Note that the flow has no active rings any more. */
void flow_idled(struct dispatch *dispatch, struct flow *flow);
/* Return true if a flow of another tenant than @tenant was busy lately: server_hooks.others_work.
 */
bool dispatch_others_work(void *context, const struct tenant *tenant);

/*
 * Join @ring to its tenant's flow, which is made if there is none.
 * Return: 0 or -ENOMEM.
 */
int flow_join(struct dispatch *dispatch, struct dispatch_ring *ring);
void flow_leave(struct dispatch *dispatch, struct dispatch_ring *ring);

/*
 * If a task is queued, arm the timer for the next rebalancing, which happens even if no task is
 * queued or returned until then.
 */
void dispatch_await_balance(struct dispatch *dispatch);

/* If rings are throttled or tasks are queued, arm the timer for the first quota that refills. */
void flow_await_refill(struct dispatch *dispatch);
/* Park @ring, which is throttled and out of dispatch.active, until it may be polled again. */
void flow_park(struct dispatch *dispatch, struct dispatch_ring *ring);

int flows_init(struct dispatch *dispatch);
void flows_deinit(struct dispatch *dispatch);

/* dispatch-plan.c */

/* For server_hooks. */
void *dispatch_cut_begin(void *context, const struct session *session, size_t desc_bytes,
			 uint64_t *bytes);
bool dispatch_cut_choose(const void *basis, const struct plan *plan, const struct cut_wish *wish,
			 struct cut_choice *ret);
uint64_t dispatch_plan_bytes(void *context, const struct session_plan *plan);
void dispatch_plan_make(void *context);
int dispatch_plan_ready(void *context, struct session_plan *plan);
void dispatch_plan_freed(void *context, struct session_plan *plan);
/* Refresh the cached decisions of the next plan in dispatch.plans, which must not be empty. */
void dispatch_plan_review_next(struct dispatch *dispatch);

/* replace.c */

/*
 * Refresh the cached decisions of all plans; with @has_tasks, also move queued tasks off devices
 * that are not to be used any more. This call does one batch, dispatch_replace() does the rest. A
 * second call starts over, except that without @has_tasks a walk over tasks continues.
 */
void dispatch_replace_begin(struct dispatch *dispatch, bool has_tasks);

/*
 * Continue while dispatch.walking has WALK_REPLACE.
 * Return: the plans and slots visited.
 */
unsigned int dispatch_replace(struct dispatch *dispatch);

/* refused.c */

struct sqe_fault;
/*
 * Find what is wrong with an entry of @session. @is_in_chain: the entry before it has RBK_SQE_LINK;
 * @n_nameable: entries before it that it can name.
 * Return: as sqe_check(): 0 or the errno of validate_entry(), unless a table has changed meanwhile
 * or has not been copied.
 */
int dispatch_find_fault(const struct session *session, const struct rbk_sqe *sqe, bool is_in_chain,
			uint32_t n_nameable, struct sqe_fault *ret);

/*
 * Find out what is wrong with an entry that was refused with @res, show it in the tenant's page and
 * log it at level debug. Takes some microseconds: the caller limits the number of calls.
 */
void dispatch_note_refused(struct dispatch *dispatch, struct dispatch_ring *ring,
			   const struct rbk_sqe *sqe, int res);

/* walk.c */

/* Begin a walk at the first ring. */
void walk_begin(const struct dispatch *dispatch, struct walk *walk);

/*
 * Visit the next slot, or move to the next ring. Set *ret to the slot's task if it is queued for a
 * device or held by an executor, otherwise to NULL.
 * Return: false if nothing is left.
 */
bool walk_next(const struct dispatch *dispatch, struct walk *walk, struct task **ret);

/*
 * Call @step until it returns false, which means that nothing is left, or until the batch or the
 * turn's part for it is over. If nothing is left, clear @which, a WALK_*, in dispatch.walking.
 * Return: the steps done.
 */
unsigned int walk_slice(struct dispatch *dispatch, uint8_t which,
			bool (*step)(struct dispatch *dispatch));

/* Move walks off @ring, which is about to leave dispatch.rings. */
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
 * Answer rung bells, tenants by weight, for a part of the turn's budget. Bells that do not fit wait
 * for the next turn.
 * Return: the number of bells.
 */
unsigned int dispatch_answer_bells(struct dispatch *dispatch);
/* Let the next turn drain the late bells. Return: their number. */
unsigned int dispatch_drain_late(struct dispatch *dispatch);
/*
 * Have the table of a RUN copied, which validate_entry() could not read. The ring admits nothing
 * until dispatch_admit_fetched().
 * Return: 0; the negative errno that the entry completes with.
 */
int dispatch_table_fetch(struct dispatch_ring *ring, const struct rbk_sqe *sqe);
void dispatch_ring_drained(void *context, struct session_ring *ring);
/*
 * Deactivate rings that stayed empty for their spin budget, or are throttled. While the reactor has
 * work for more rings than processors, empty ones stay active for longer. Each call checks some of
 * the active rings, in turn.
 * @has_worked: the last turn had work.
 */
void dispatch_sleep_rings(struct dispatch *dispatch, bool has_worked);
/* Remove @ring from the active rings, if it is among them. */
void ring_deactivate(struct dispatch *dispatch, struct dispatch_ring *ring);
void dispatch_stop_polling(struct dispatch *dispatch);
/* Poll every ring again that may be polled. */
void dispatch_poll_again(struct dispatch *dispatch);
/*
 * Wake sleeping clients, tenants by weight, for a part of the turn's budget and no longer, because
 * tasks of all tenants wait meanwhile. The next call wakes the clients that remain.
 */
void dispatch_ring_bells(struct dispatch *dispatch);
/* Before computing for @client, leave its processor, and let others run on the reactor's. */
void dispatch_give_way(struct dispatch *dispatch, struct dispatch_ring *client);
int rings_init(struct dispatch *dispatch);
void rings_deinit(struct dispatch *dispatch);

/* Return: 0; -ENOMEM. */
int due_init(struct dispatch *dispatch);
void due_deinit(struct dispatch *dispatch);

/* Note that a GPU begins a task now, which is predicted to take @predicted_ns. */
void due_begin(struct dispatch *dispatch, uint8_t device, uint64_t predicted_ns);

/* Note that the task of a device in due.devices was returned. @end_ticks: 0 if it did not run. */
void due_end(struct dispatch *dispatch, uint8_t device, uint64_t end_ticks);

/*
 * Return true if a task is about to end, so that the reactor must not sleep. Otherwise wake the
 * reactor shortly before the next end. Devices whose task is late are forgotten.
 */
bool due_is_near(struct dispatch *dispatch);

/* own.c */

/*
 * Start the broker's own tasks on devices that have no other task.
 * Return: the number of tasks.
 */
unsigned int own_start(struct dispatch *dispatch);
/* Complete the broker's own task that @device has returned. */
void own_returned(struct dispatch *dispatch, uint8_t device);
/*
 * Cancel all of the broker's own tasks. Tasks that executors hold complete when they are returned.
 */
void own_cancel_all(struct dispatch *dispatch);

/* wait.c */

/* Ask residency, and wait for its answer as TASK_WAITING. */
void wait_begin(struct task *task, enum residency_wish wish, uint8_t device);

/* End the waiting of a TASK_WAITING, which completes with -ECANCELED in dispatch_wake(). */
void wait_cancel(struct task *task);

/*
 * Begin a PREFETCH or an EVICT. The task waits, or *ret_res is set to the errno it completes with.
 */
void wait_by_opcode(struct dispatch *dispatch, struct task *task, int *ret_res);

static inline bool dispatch_is_ending(const struct dispatch *dispatch)
{
	return !list_is_empty(&dispatch->ending) || !list_is_empty(&dispatch->closing);
}

/* complete-hot.c */

/* A completion without its task's user_data */
struct outcome {
	int32_t res;
	uint8_t device;
	uint8_t reason;
	uint16_t flags;
	uint64_t queue_ns;
	uint64_t exec_ns;
};

/*
 * Write a completion into the ring's memory without publishing it. The caller has made sure that
 * there is room.
 *
 * Inline, so that the outcome never lies in memory. Loads that straddle two recent stores wait
 * until these have left the store buffer, behind the earlier stores to the client's cache lines.
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

	/* Write whole words: the store buffer is the bottleneck. */
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

/*
 * Publish consumed entries and posted completions to the client. If the client sleeps, queue the
 * job that wakes it.
 */
void ring_publish(struct dispatch *dispatch, struct dispatch_ring *ring);

/* Return true if dispatch_poll_ring() has something to do. */
bool dispatch_ring_has_work(const struct dispatch_ring *ring);

/* Publish every ring that completions were posted to since the last call. */
void dispatch_publish_dirty(struct dispatch *dispatch);

/* Tell note_activity() of the options which devices are in use. */
void dispatch_note_activity(const struct dispatch *dispatch);

static inline uint64_t task_hash(const struct dispatch_ring *ring, uint64_t user_data)
{
	return index_hash(user_data, ring->dispatch->bucket_seed);
}

/* The trees of util/index.h branch by a hash's first bits, so other bits choose the bucket. */
static inline struct index_node **task_bucket(const struct dispatch_ring *ring, uint64_t hash)
{
	return &ring->buckets[hash >> 40 & ring->bucket_mask];
}

/* Return the time by the placer's clock. */
static inline uint64_t dispatch_now_ns(const struct dispatch *dispatch)
{
	return clock_ticks_to_ns(dispatch->now_ticks);
}

/*
 * One in so many entries with a slot checks whether the batch is over: reading the clock takes a
 * tenth of the time of such an entry.
 */
enum { LOOK_EVERY = 4 };

/*
 * Prepare a slot that was never used. Its entry checks whether the batch is over: the slot has no
 * memory yet, and the kernel takes microseconds to give it some.
 */
static inline struct task *task_touch(struct dispatch_ring *ring)
{
	const uint32_t i = ring->n_tasks_touched++;
	struct task *task = &ring->tasks[i];

	ring->dispatch->n_taken |= LOOK_EVERY - 1;
	task->ring = ring;
	task->run.task = task;
	task->run.refs = ring->refs + (size_t)i * RBK_MAX_REFS;
	task->run.exec.refs = task->run.refs;
	return task;
}

static inline struct task *task_take(struct dispatch_ring *ring)
{
	struct task *task = ring->free_tasks;

	if (!task)
		return task_touch(ring);
	ring->free_tasks = task->next;
	return task;
}

/* Free @n slots, which are listed from @first to @last. */
static inline void task_free(struct dispatch_ring *ring, struct task *first, struct task *last,
			     uint32_t n)
{
	last->next = ring->free_tasks;
	ring->free_tasks = first;
	ring->ring->n_in_flight -= n;
	ring->dispatch->stats->n_in_flight -= n;
}

/*
 * Reduce the debt of a flow that had no active rings by its share of the time since idle_ticks,
 * which other flows have used.
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

/* Start to poll the ring. Room in dispatch->active was made when the ring was added. */
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
		flow->active_ticks = now_ticks;
		ring->prev_active = ring->next_active = flow->next = ring;
		/* Put a new flow behind those that the last round did not reach. */
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

/*
 * Count a task that runs on a device with memory of its own, or would run there if @plan were
 * resident; once for all its micro-batches.
 */
static inline void note_wanted(struct session_plan *plan, uint64_t admit_ticks, uint32_t batch)
{
	plan->memory.n_wanted += batch == 0;
	plan->memory.wanted_ticks = admit_ticks;
}

/* Count a task that does not get device memory, likewise: the plan is not resident, or never fits.
 */
static inline void note_constraint(struct dispatch *dispatch, struct session_plan *plan,
				   struct place_decision decision, uint64_t admit_ticks,
				   uint32_t batch)
{
	plan->memory.counts->n_constraints += batch == 0;
	if (decision.wanted) {
		note_wanted(plan, admit_ticks, batch);
		residency_want(dispatch->demand, &plan->memory);
	} else {
		plan->memory.n_constrained += batch == 0;
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
