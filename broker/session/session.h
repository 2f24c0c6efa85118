#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Sessions: connected clients, each with its rings, arenas and plans
 *
 * The structures are public because the hot path reads them. Only session/ changes them, except for
 * the fields marked as the dispatcher's. Reactor thread only, with one exception: the setup thread
 * also works on a struct plan and a struct exec_arena while their owner's state excludes all other
 * users (PREPARING, RELEASING).
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "loop/offload.h"
#include "loop/turn-queue.h"
#include "plan/executor.h"
#include "plan/plan.h"
#include "memory/residency.h"
#include "session/arena-memory.h"
#include "session/closers.h"
#include "session/description.h"
#include "session/hold.h"
#include "shm/wire.h"
#include "stats/stats.h"
#include "tenant/tenant.h"
#include "util/list.h"

struct dispatch_ring;
struct lease_page;
struct loop_timer;
struct loop_watch;
struct owner;
struct place_plan;
struct server;
struct session;
struct session_segments;
struct stats_user;

/* Positive outcomes of handling a client's input: the session ends, the daemon continues. */
enum { SESSION_E_HOSTILE = 1, SESSION_E_REFUSED = 2, SESSION_E_LAGS = 3 };

/* States of the slots of plans and arenas. */
enum slot_state {
	SLOT_FREE = 0,
	SLOT_PREPARING, /* the setup thread works on it */
	SLOT_LOADING,   /* a plan whose memory is being loaded onto a device */
	SLOT_READY,
	SLOT_REMOVING,  /* no new user; waits for the last task */
	SLOT_RELEASING, /* the setup thread releases it */
};

/* State of a ring. */
enum ring_state {
	RING_MAKING,    /* the setup thread makes the ring's memory */
	RING_ANSWERING, /* a closers.h thread sends the ring, which the client may already have */
	RING_QUIET,   /* the client has the ring, but has not rung its bell; the ring is not read */
	RING_SEALING, /* a closers.h thread seals it: no page can be removed */
	RING_READY,   /* the dispatcher polls the ring */
	RING_UNMAKING, /* the setup thread frees the ring's memory */
};

/* Charges of an arena: slots of session_arena.charges. */
enum {
	ARENA_CHARGE_ONE,
	ARENA_CHARGE_ARENA_BYTES,
	ARENA_CHARGE_HOST_BYTES, /* all host bytes, including bytes pinned by a udmabuf */
	ARENA_CHARGE_MAPPING,
	ARENA_CHARGE_FD,
	ARENA_CHARGE_WRAPS,
	ARENA_CHARGE_GTT, /* only if exported by a device that counts GTT separately */
	ARENA_CHARGES,
};

/* A registered arena. Slot i of session->arenas is arena id i. */
struct session_arena {
	struct exec_arena exec; /* referenced by tasks and plans */
	struct session *session;
	struct offload_job job;
	struct closers_job lane_job; /* maps or seals the memfd, or releases the memory */
	struct charge charges[ARENA_CHARGES];
	uint16_t id;
	uint8_t state; /* enum slot_state */
	bool wants_reply;
	bool fixes;           /* is to be fixed; see struct exec_arena */
	bool is_exported;     /* a device's memory; its fd stays open, and hold keeps the charges */
	bool is_restored;     /* an earlier broker had the device make it */
	uint32_t n_in_flight; /* tasks that reference it; the dispatcher's */
	uint32_t n_plans;     /* plans with constants in it, including those being verified */
	uint32_t cookie;      /* of the request in progress */
	int fd;               /* open until imported and sealed; an exported arena's stays open */
	uint64_t
		wait_end_ns; /* restored: until then it may be busy with an earlier broker's work */
	struct hold *hold;
	struct executor *exporter; /* restored: of the same driver; NULL: there is none */
	uint64_t bytes;
	uint64_t n_bytes_done; /* bytes faulted in; restarts at 0 when is_sealed is set */
	bool was_wrapped;      /* dma-bufs were made for executors, if there was room */
	bool is_imported;      /* executors know the arena */
	bool was_sealed;       /* sealing was tried */
	bool is_sealed;        /* no page can be removed any more */
	int map_result;
	char map_message[ARENA_MESSAGE_BYTES];
	int fault_slot;         /* slot in the SIGBUS table; -1: none */
	atomic_bool is_faulted; /* set by the SIGBUS handler */
};

/* Charges of a plan: slots of session_plan.charges. */
enum plan_charge {
	PLAN_CHARGE_ONE,       /* one of the tenant's plans */
	PLAN_CHARGE_EXECUTORS, /* executors' host memory */
	PLAN_CHARGE_RECORDS,   /* records of the plan and its segments */
	PLAN_CHARGE_CROSSING,  /* memory of tensors that cross between segments */
	PLAN_CHARGE_MAPPING,   /* mapping of that memory */
	PLAN_CHARGE_WRAPS,     /* dma-bufs of that memory */
	PLAN_CHARGES,
};

/* A plan. Its id is slot | generation << 16, so that a stale id differs from its successor. */
struct session_plan {
	struct plan *plan;
	struct session *session;
	uint32_t id;
	uint32_t wanted_id;        /* id to get when it is ready; its slot: any generation */
	uint32_t inline_max_count; /* highest count that runs on the reactor; the dispatcher's */
	/* reason of tasks that run there without asking the placer; 0: ask it; the dispatcher's */
	uint8_t inline_reason;
	/*
	 * Small tasks, which run there while a worker would be no sooner: highest count by
	 * estimate; of these, the highest count that AUTO keeps on the CPU, and why; the
	 * dispatcher's
	 */
	uint32_t small_bound, small_max_count;
	uint8_t small_reason;
	/* fills of leaky buckets of tasks that took the reactor too long; the dispatcher's */
	uint32_t inline_overruns, reactor_overruns;
	uint64_t reactor_again_ticks; /* when a full bucket of the latter permits tasks again */
	uint32_t n_in_flight;         /* tasks; the dispatcher's */
	struct stats_plan stats;      /* counts of completed tasks; the dispatcher's */
	uint8_t state;                /* enum slot_state */
	bool wants_reply;             /* a remove request waits for the reply */
	uint16_t failed;     /* bit i: device i cannot prepare the plan; the setup thread's */
	uint32_t n_measured; /* devices that have measured the plan; the setup thread's */
	uint32_t cookie;
	struct charge charges[PLAN_CHARGES];
	struct offload_job job;
	struct description *description; /* NULL once verified */
	struct list_node check;          /* in tenant.checks; unlinked: not waiting */
	bool is_checking;                /* it is being verified, in its tenant's turn */
	struct plan_pins pins;           /* arenas of its constants */

	struct list_node dispatched; /* in dispatch.plans; the dispatcher's */
	struct list_node waiting;    /* tasks that wait for the plan's memory; the dispatcher's */
	struct list_node ending; /* in dispatch.ending while waiting is emptied; the dispatcher's */
	struct place_plan *place;          /* the placer's record; the dispatcher's */
	struct session_segments *segments; /* the plan is cut; NULL: it is whole; see segments.h */
	uint8_t cut; /* enum rbk_cut; this and the next two: see rbk_stats_plan */
	float cut_ns, whole_ns;
	struct session_plan *whole; /* of a segment: the plan that clients know; else NULL */
	bool is_prepared;           /* by the executors; the setup thread's */
	uint32_t n_entered;         /* segments that dispatcher and residency know; reactor */
	uint32_t n_loading; /* segments still being loaded, plus 1 until all are entered; reactor */
	uint32_t n_leaving; /* segments whose memory residency has still to release; reactor */
	struct plan_memory memory; /* residency's record; hot */
};

/* Charges of a ring: slots of session_ring.charges. */
enum {
	RING_CHARGE_ONE,
	RING_CHARGE_HOST_BYTES, /* memory that only the broker has */
	RING_CHARGE_AREA_BYTES, /* areas, which a client may keep */
	RING_CHARGE_BELL_BYTES, /* bell, which a client may keep */
	RING_CHARGE_FDS,        /* held until the bell is released */
	RING_CHARGE_FROM_FD,    /* held until a restored ring is made */
	RING_CHARGE_MAPPINGS,
	RING_CHARGE_WATCHES, /* held until the areas are released */
	RING_CHARGE_TASKS,
	RING_CHARGES,
};

/* Descriptors sent to a client with a ring. */
enum { RING_FD_SQ, RING_FD_CQ, RING_FD_BELL, RING_CLIENT_FDS };

/* A submission and a completion ring. */
struct session_ring {
	/*
	 * Hot: the dispatcher's, set up by session/ring-memory.c. No member is read back from
	 * shared memory.
	 */
	const struct rbk_sq_area *sq;    /* written by the client; mapped read-only */
	struct rbk_cq_area *cq;          /* written by the broker */
	struct rbk_task_record *records; /* in cq; NULL: the client does not re-attach */
	uint8_t *undo;                   /* states before tasks, in cq; NULL: no room for them */
	uint64_t undo_taken;             /* bit mask of the RBK_UNDO_UNITS that tasks have */
	struct session *session;
	uint32_t n_entries;
	uint32_t mask;
	uint32_t sq_head;
	uint32_t cq_tail;
	uint32_t cq_head_seen;
	uint32_t processor;             /* as last told to the client */
	uint32_t n_in_flight;           /* tasks admitted whose completion is not yet in the ring */
	uint32_t n_restored;            /* the first records, which an earlier broker left */
	struct dispatch_ring *dispatch; /* the dispatcher's own state */
	uint64_t *failed;               /* failures, in cq; NULL: no room for them */

	/* Cold. */
	uint32_t id;
	uint8_t state;     /* enum ring_state */
	bool has_barriers; /* as told to the client */
	int bell_fd;
	int client_fds[RING_CLIENT_FDS]; /* open until the ring is sealed */
	bool is_restored;                /* an earlier broker made it */
	bool is_restoring;               /* counted in session.n_restoring */
	int from_fd;           /* its completion area of that broker, until it was copied; -1 */
	const char *why;       /* after RING_E_UNSUITABLE: what is wrong with its areas */
	int job_result;        /* of the setup thread: 0; RING_E_*; negative errno */
	bool is_announced;     /* the dispatcher knows the ring */
	bool bell_refuses_fds; /* the kernel refuses descriptors sent to the bell */
	bool is_closing;
	bool is_drained;        /* closing, with no task in flight */
	int fault_slot;         /* slot of the submission area in the SIGBUS table; -1: none */
	atomic_bool is_faulted; /* set by the SIGBUS handler */
	uint32_t cookie;        /* of the request that made the ring */
	uint32_t remove_cookie; /* of the request to remove it, if wants_reply */
	bool wants_reply;
	size_t sq_bytes, cq_bytes;
	size_t filled_bytes;           /* of both areas, by ring_make() so far */
	struct loop_watch *bell_watch; /* fires once; rearmed by session_ring_listen() */
	struct session_table *table;   /* last table copied or being copied; NULL: none yet */
	struct charge charges[RING_CHARGES];
	struct hold *area_hold, *bell_hold; /* NULL once the ring is unmade */
	struct offload_job job;
	struct closers_job lane_job; /* answers the client, or seals the memfd */
	struct closers_job bell_job; /* bell work of a slow user's ring; see bell_does */
	uint8_t bell_does;           /* enum bell_work in progress; 0: none */
	uint8_t bell_wants;          /* enum bell_work to do next */
	bool bell_has_failed; /* the kernel had no memory to ring; the thread, then bell_done() */
	int answer_fd, answer_error; /* connection of the session; errno of sending, or 0 */
};

struct session_stats {
	uint64_t tasks[RBK_MAX_DEVICES];
	uint64_t reasons[RBK_REASON_COUNT];
	uint64_t errors;
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t gpu_ns;      /* time that GPU servers worked on the session's tasks */
	uint64_t n_evictions; /* evictions of the session's plans */
};

/* Latencies of tasks from admission to end, without tasks run on the reactor. */
struct session_latencies {
	uint32_t buckets[RBK_STATS_BUCKETS]; /* counts by rbk_stats_bucket(), since from_ns */
	uint64_t from_ns;        /* start of the counts; the publisher's, like the next two */
	uint64_t p50_ns, p99_ns; /* of the previous counts; 0: no tasks */
};

/* A request to reset statistics, done in pieces; see session-stats.c. */
struct session_reset {
	struct turn_job job;
	bool is_begun; /* begun and not answered; the session's next message waits */
	bool is_of_all;
	uint32_t cookie;
	uint32_t tenant;      /* number of the tenant whose plans are visited */
	uint32_t n_plans;     /* plans of the tenant still to visit */
	uint32_t next_record; /* record of the tenant's page to visit next, after the plans */
};

/* The charge in session.charges that is released with the connection. */
enum { SESSION_CHARGE_FD = 1 };

struct session {
	/* Hot. */
	struct session_arena **arenas; /* by id; NULL unless READY */
	struct session_plan **plans;   /* by slot; NULL unless READY */
	uint32_t n_arenas, n_plans;    /* lengths of arenas and plans */
	uint32_t n_unfixed;            /* entries of arenas whose memory is not fixed */
	/* Copy of the argument table of the entry being admitted; NULL: none. */
	const uint64_t *fetched;
	struct session_stats stats;
	struct stats_tenant *tenant_stats; /* counters of the tenant */

	/* Cold. */
	struct server *server;
	struct list_node link;                        /* in server->sessions */
	void (*end_objects)(struct session *session); /* stops rings, plans, arenas */
	struct session_ring **rings;                  /* by id; NULL where free */
	struct session_arena **arena_slots;           /* by id, in any state but FREE */
	struct session_plan **plan_slots;
	uint16_t *plan_generations; /* by slot */
	uint16_t least_generation;  /* the last plan's of an earlier broker; 0: none */
	struct tenant *tenant;      /* NULL: an administrator's session, without objects */
	struct account *account;    /* the tenant's, or the broker's; borrowed */
	struct owner *owner;        /* of read_job, settle_job and reset.job */
	struct owner *user;         /* the user in its tenant; see slow.c */
	struct turn_job read_job;   /* handles a message */
	struct turn_job settle_job; /* frees drained rings; continues an end */
	uint64_t rights; /* RBK_FEAT_ADMIN, RBK_FEAT_ADMIN_CHANGE; 0: a tenant's session */
	struct stats_user *stats_user; /* NULL if tenant is NULL */
	void *observed;                /* record of struct server_observer */
	struct charge charges[3];
	struct hold *hold; /* for the connection; NULL once the connection is closed */
	struct hold_sent sent;
	struct charge unread;  /* kernel memory of unread answers, if it is much */
	uint64_t unread_bytes; /* upper bound of the bytes of unread answers */
	int fd;
	int receiving_fd;   /* copy of fd for the thread that receives a message with descriptors */
	bool has_hung_up;   /* the client has closed the connection; messages may be left */
	bool is_receiving;  /* that thread is receiving; the reactor does not read */
	uint32_t n_posting; /* answers being sent by threads, plus one for shut_job */
	struct closers_job shut_job; /* shuts down the connection */
	/* Handles the request in waiting; NULL: no request waits for a closers.h thread. */
	void (*resume)(struct session *session);
	bool is_suspended; /* the request still waits; no message is read */
	union {
		struct rbk_wire_stats_of stats_of;
		struct rbk_wire_lease_open lease_open;
		struct rbk_wire_id remove;
	} waiting;
	struct list_node page_wait; /* in the waiters of the tenant's page; see session-stats.c */
	struct loop_timer *page_timer; /* timeout of an administrator's wait; NULL: none */
	int page_result;               /* result of making the page */
	struct lease_page *lease_page; /* page for the waiting request; NULL: none */
	struct loop_watch *watch;
	uint32_t number; /* for log lines */
	pid_t pid;       /* of the peer, from SO_PEERCRED */
	uid_t uid;
	uint64_t features;
	uint64_t arena_bytes;
	uint64_t exported_bytes; /* part of arena_bytes in arenas that a device made */
	struct list_node leases; /* leases of which the session is a member; see session-lease.c */
	struct list_node lease_waits; /* lease requests that are not answered yet */
	uint32_t n_added_rings, n_added_arenas, n_added_plans; /* existing objects */
	uint32_t wanted_id; /* id of the next arena or plan, if wants_id */
	bool wants_id;
	uint32_t n_restoring;  /* rings whose restored entries are not all admitted again */
	bool has_restored;     /* counted in server.n_restored_sessions */
	bool awaits_restoring; /* a removal is suspended until n_restoring is 0 */
	uint64_t began_ns;     /* as in statistics pages */
	struct stats_shown shown;
	struct session_latencies latencies;
	struct session_reset reset;
	uint32_t n_jobs; /* jobs on the setup thread, plus n_lane_jobs, plus 1 if is_receiving */
	uint32_t n_lane_jobs; /* jobs of rings and arenas on closers.h threads */
	uint32_t n_fetches;   /* tables of its rings that are being copied */
	bool has_admin_place; /* counted in server->n_admin_sessions */
	bool is_late; /* the tenant was drained when the client connected: see RING_ADD of wire.h */
	bool is_greeted;
	struct list_node silent; /* in server->silent until greeted; unlinked: not in it */
	uint32_t silent_period;  /* server->silent_period when the client connected */
	bool is_ending;
	bool watches_stats, watches_root; /* received a tenant's page, the root page */
	uint32_t n_released_plans;  /* at the end: slots whose plan was given to the setup thread */
	uint32_t n_released_arenas; /* at the end, after the plans: likewise for arenas */
	char name[RBK_WIRE_NAME_BYTES]; /* the client's own, printable */
	char comm[16];                  /* the process's when it connected; empty: unknown */
};

/* A tenant whose limits leave no room for a session while its earlier sessions end */
struct session_lag {
	bool has_place; /* set by the caller: it may wait even if others of the tenant do */
	struct account *account; /* counted; NULL: none */
	struct owner *owner;     /* counted */
};

/*
 * Create a session for @fd, which the function takes over unless it returns SESSION_E_LAGS.
 * @is_admin: @fd comes from the administrators' socket.
 * Return: 0; SESSION_E_REFUSED, and the client is told the reason; SESSION_E_LAGS, only if @lag is
 * not NULL: it is set, and session_lag_is_over() tells when to try again; a negative errno.
 */
int session_new(struct server *server, int fd, bool is_admin, struct session **ret,
		struct session_lag *lag);
/* Return true if another try has another result. */
bool session_lag_is_over(const struct server *server, const struct session_lag *lag);
void session_lag_deinit(struct session_lag *lag);

/* Return the tenant's name, or "(administrators)". */
const char *session_owner(const struct session *session);

/*
 * Begin to end a session: close the rings, then the connection. When no task is in flight,
 * server_settle() continues: it releases plans and arenas and frees the session. This function
 * frees nothing. @why is logged if @is_hostile. Idempotent.
 */
void session_end(struct session *session, bool is_hostile, const char *why);

/*
 * Begin to end a session because a call of the broker's own failed with errno @error: log @what,
 * which could not be done, then do as session_end(). The client has broken no rule.
 */
void session_fail(struct session *session, const char *what, int error);

/*
 * The dispatcher: all restored entries of a ring were admitted again, or may not be for long. Until
 * then plans and arenas, which they may name, are not removed. Idempotent.
 */
void session_ring_restored(struct session_ring *ring);

/*
 * The dispatcher: have a closers.h thread, which may sleep, copy the @n references at @from in
 * @arena for @sqe of @ring. @sqe is kept. The reactor then calls server_hooks.table_there(), unless
 * the ring is closing. Meanwhile the ring and the arena each count one more task in flight. Each
 * ring fetches one table at a time.
 * Return: 0 or -ENOMEM.
 */
int session_table_fetch(struct session_ring *ring, struct session_arena *arena,
			const uint64_t *from, uint32_t n, const struct rbk_sqe *sqe);

/* A table that is being fetched; valid until table_there() returns. */
struct session_table {
	struct closers_job job;
	struct session_ring *ring;
	struct session_arena *arena;
	const uint64_t *from;
	uint32_t n;
	struct rbk_sqe sqe;
	uint64_t refs[RBK_MAX_REFS];
};

/*
 * The dispatcher: watch the ring's bell for one ring, on which server_hooks.ring_bell() is called.
 * An earlier ring that was not drained counts. Costs no system call.
 */
void session_ring_listen(struct session_ring *ring);

/*
 * The dispatcher, and session/: drain a batch of messages from the ring's bell, in one system call
 * where the kernel refuses descriptors for us and in two elsewhere. End the session of a client
 * that sends descriptors.
 * Return: true if the bell was drained or the ring is closing; false for the ring of a slow user,
 * whose bell a closers.h thread drains. server_hooks.ring_drained() is called afterwards unless the
 * ring is closing.
 */
bool session_ring_drain_bell(struct session_ring *ring);

/* Return true if session_ring_drain_bell() would not leave it to a thread. */
bool session_ring_drains_itself(const struct session_ring *ring);

/*
 * The dispatcher: wake a client that sleeps on the ring, and tell it the time. A system call, made
 * by a thread for a slow user.
 * Return: false: the kernel has no memory for the message now, and the client still sleeps.
 */
bool session_ring_wake(struct session_ring *ring);

/* The dispatcher: tell the client on which processor the reactor is; -1: not known. */
void session_ring_tell_processor(struct session_ring *ring, int processor);

/* The dispatcher: report that @ring->is_closing is set and its n_in_flight is 0. Frees nothing. */
void session_ring_drained(struct session_ring *ring);

/* The dispatcher: report that the last task of a plan or an arena in state REMOVING has ended. */
void session_plan_idle(struct session_plan *plan);
void session_arena_idle(struct session_arena *arena);
