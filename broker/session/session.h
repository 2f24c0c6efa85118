#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Sessions: one connected client, its rings, arenas and plans
 *
 * The structures that the hot path reads stand here in the open; only session/ changes them, except
 * for the fields marked as the dispatcher's. Reactor thread only, but for struct plan and struct
 * exec_arena, which the setup thread also works on while their owner is in a state that keeps
 * everybody else away (PREPARING, RELEASING).
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
struct stats_user;

/* Positive outcomes of handling what a client sent: the session ends, the daemon goes on. */
enum { SESSION_E_HOSTILE = 1, SESSION_E_REFUSED = 2 };

/* What the slots of plans and arenas are doing. */
enum slot_state {
	SLOT_FREE = 0,
	SLOT_PREPARING, /* the setup thread works on it */
	SLOT_LOADING,   /* a plan whose memory is on its way to a device */
	SLOT_READY,
	SLOT_REMOVING,  /* no new user; waits for the last one */
	SLOT_RELEASING, /* the setup thread undoes it */
};

/* State of a ring. */
enum ring_state {
	RING_MAKING,    /* the setup thread makes its memory */
	RING_ANSWERING, /* a thread sends it to the client, who may have it */
	RING_QUIET,     /* the client has it and has not rung its bell yet: nothing is read there */
	RING_SEALING,   /* a thread sees to it that the client cannot take pages away */
	RING_READY,     /* the dispatcher polls it */
	RING_UNMAKING,  /* the setup thread frees its memory */
};

/* What an arena is charged as: slots of session_arena.charges. */
enum {
	ARENA_CHARGE_ONE,
	ARENA_CHARGE_ARENA_BYTES,
	ARENA_CHARGE_HOST_BYTES, /* all of it, also what a udmabuf pins */
	ARENA_CHARGE_MAPPING,
	ARENA_CHARGE_FD,
	ARENA_CHARGE_WRAPS,
	ARENA_CHARGE_GTT, /* exported, where the device counts GTT apart */
	ARENA_CHARGES,
};

/* A registered arena. Slot i of session->arenas is arena id i. */
struct session_arena {
	struct exec_arena exec; /* what tasks and plans point to */
	struct session *session;
	struct offload_job job;
	struct closers_job lane_job; /* maps or seals the memfd, or lets go of the memory */
	struct charge charges[ARENA_CHARGES];
	uint16_t id;
	uint8_t state; /* enum slot_state */
	bool wants_reply;
	bool fixes;           /* is to be fixed, see struct exec_arena */
	bool is_exported;     /* a device made it; its fd stays open and the hold waits for it */
	uint32_t n_in_flight; /* tasks that reference it; the dispatcher's */
	uint32_t n_plans;     /* plans with constants in it, also those being verified */
	uint32_t cookie;      /* of the request that is being worked on */
	int fd;               /* until it is imported; an exported one's as long as it lives */
	struct hold *hold;
	uint64_t bytes;
	uint64_t n_bytes_done; /* faulted in so far, since is_sealed if that is set */
	bool was_wrapped;      /* for executors that need that, if there was room */
	bool is_imported;      /* executors know it */
	bool was_sealed;       /* that was tried, if is_imported and fixes; and */
	bool is_sealed;        /* no page can be taken away any more */
	int map_result;
	char map_message[ARENA_MESSAGE_BYTES];
	int fault_slot;         /* in the SIGBUS table; -1: not in it */
	atomic_bool is_faulted; /* set by the SIGBUS handler */
};

/* A plan. Ids are slot | generation << 16, so that a stale one is told from its successor. */
struct session_plan {
	struct plan *plan;
	struct session *session;
	uint32_t id;
	uint32_t inline_max_count; /* counts up to it run on the reactor; the dispatcher's */
	uint8_t inline_reason;     /* these run there for that, unless asked otherwise; 0: ask the
				      placer; likewise */
	uint32_t inline_overruns;  /* the dispatcher's: fill of a leaky bucket */
	uint32_t n_in_flight;      /* the dispatcher's */
	struct stats_plan stats;   /* likewise: what becomes of each task is counted there */
	uint8_t state;             /* enum slot_state */
	bool wants_reply;          /* a remove request waits */
	uint16_t failed;           /* bit i: device i cannot prepare it; the setup thread's */
	uint32_t n_measured;       /* devices that have measured it; the setup thread's */
	uint32_t cookie;
	struct charge charges[3]; /* one plan; what executors hold; what describes it */
	struct offload_job job;
	struct description *description; /* until it is verified */
	struct list_node check;          /* in tenant.checks; alone: does not wait there */
	bool is_checking;                /* it has its tenant's turn there */
	struct plan_pins pins;           /* the arenas of its constants */

	struct list_node dispatched; /* in dispatch.plans; the dispatcher's */
	struct list_node waiting;    /* tasks that wait for its memory; likewise */
	struct list_node ending;     /* in dispatch.ending, while these are being ended; likewise */
	struct place_plan *place;    /* what the placer knows of it; likewise */
	struct plan_memory memory;   /* where it is; hot, too */
};

/* The charges of a ring: slots of session_ring.charges. */
enum {
	RING_CHARGE_ONE,
	RING_CHARGE_HOST_BYTES, /* what is the broker's alone */
	RING_CHARGE_AREA_BYTES, /* what a client may keep */
	RING_CHARGE_BELL_BYTES, /* likewise */
	RING_CHARGE_FDS,        /* kept with the bell */
	RING_CHARGE_MAPPINGS,
	RING_CHARGE_WATCHES, /* kept with the areas */
	RING_CHARGE_TASKS,
	RING_CHARGES,
};

/* Descriptors that a client gets with a ring. */
enum { RING_FD_SQ, RING_FD_CQ, RING_FD_BELL, RING_CLIENT_FDS };

/* A submission and a completion ring. */
struct session_ring {
	/*
	 * Hot: the dispatcher's, set up by session/ring-memory.c. Nothing here is read back from
	 * shared memory.
	 */
	const struct rbk_sq_area *sq; /* the client writes, mapped read-only */
	struct rbk_cq_area *cq;       /* we write */
	struct session *session;
	uint32_t n_entries;
	uint32_t mask;
	uint32_t sq_head;
	uint32_t cq_tail;
	uint32_t cq_head_seen;
	uint32_t n_in_flight;           /* admitted, completion not yet in the ring */
	struct dispatch_ring *dispatch; /* the dispatcher's own state */

	/* Cold. */
	uint32_t id;
	uint8_t state; /* enum ring_state */
	int bell_fd;
	int client_fds[RING_CLIENT_FDS]; /* until it is sealed */
	int job_result;                  /* of the setup thread: 0; RING_E_*; negative errno */
	bool is_announced;               /* the dispatcher knows it */
	bool bell_refuses_fds;           /* the kernel sees to it that no descriptors come in */
	bool is_closing;
	bool is_drained;        /* closing, and nothing in flight */
	int fault_slot;         /* of the submission area, in the SIGBUS table; -1: not in it */
	atomic_bool is_faulted; /* set by the SIGBUS handler */
	uint32_t cookie;        /* of the request that is being worked on */
	bool wants_reply;
	size_t sq_bytes, cq_bytes;
	struct loop_watch *bell_watch; /* calls once, and again after session_ring_listen() */
	struct session_table *table;   /* that is being copied, or was; NULL: none ever */
	struct charge charges[RING_CHARGES];
	struct hold *area_hold, *bell_hold; /* until it is unmade */
	struct offload_job job;
	struct closers_job lane_job; /* answers the client, or seals the memfd */
	struct closers_job bell_job; /* does to a slow user's bell what bell_does says */
	uint8_t bell_does;           /* 0: nothing */
	uint8_t bell_wants;          /* after that */
	int answer_fd, answer_error; /* the session's connection; 0 or why nothing was sent there */
};

struct session_stats {
	uint64_t tasks[RBK_MAX_DEVICES];
	uint64_t reasons[RBK_REASON_COUNT];
	uint64_t errors;
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t gpu_ns;      /* that GPUs' servers worked on its tasks */
	uint64_t n_evictions; /* of its plans */
};

/* How long its tasks took, from admission to end, but for those run on the reactor itself. */
struct session_latencies {
	uint32_t buckets[RBK_STATS_BUCKETS]; /* count by rbk_stats_bucket(), since */
	uint64_t from_ns;                    /* then; the publisher's, as the next */
	uint64_t p50_ns, p99_ns;             /* of those before; 0: there were none */
};

/* A request to begin statistics anew, in pieces, see session-stats.c. */
struct session_reset {
	struct turn_job job;
	bool is_begun; /* and not answered: the session's next message waits */
	bool is_of_all;
	uint32_t cookie;
	uint32_t tenant;      /* number of the one whose plans are visited */
	uint32_t n_plans;     /* of it, to be visited */
	uint32_t next_record; /* of its page, visited after its plans */
};

/* The charge of struct session's that goes with its connection. */
enum { SESSION_CHARGE_FD = 1 };

struct session {
	/* Hot. */
	struct session_arena **arenas; /* by id; NULL unless READY */
	struct session_plan **plans;   /* by slot; NULL unless READY */
	uint32_t n_arenas, n_plans;    /* lengths of the two */
	uint32_t n_unfixed;            /* arenas in the first whose memory is not fixed */
	/* A copy of the table that the entry which is being admitted names; NULL: there is none. */
	const uint64_t *fetched;
	struct session_stats stats;
	struct stats_tenant *tenant_stats; /* what is counted for the tenant */

	/* Cold. */
	struct server *server;
	struct list_node link;                        /* in server->sessions */
	void (*end_objects)(struct session *session); /* stops rings, plans, arenas */
	struct session_ring **rings;                  /* by id; NULL where free */
	struct session_arena **arena_slots;           /* by id, in any state but FREE */
	struct session_plan **plan_slots;
	uint16_t *plan_generations;    /* by slot */
	struct tenant *tenant;         /* NULL: an administrator's, who has nothing of the above */
	struct account *account;       /* the tenant's, or the broker's; borrowed */
	struct owner *owner;           /* of the next two, and of reset.job */
	struct owner *user;            /* in its tenant, see slow.c */
	struct turn_job read_job;      /* handles a message */
	struct turn_job settle_job;    /* frees rings that have drained; goes on with an end */
	uint64_t rights;               /* RBK_FEAT_ADMIN, RBK_FEAT_ADMIN_CHANGE; 0: a tenant's */
	struct stats_user *stats_user; /* NULL if tenant is */
	void *observed;                /* struct server_observer's */
	struct charge charges[3];
	struct hold *hold; /* of the connection, until that is closed */
	struct hold_sent sent;
	struct charge unread;  /* the kernel's memory for answers, where that is much */
	uint64_t unread_bytes; /* of them, no more than that */
	int fd;
	int receiving_fd;   /* the same, for the thread that receives a message with descriptors */
	bool is_receiving;  /* such a thread does: nothing is read here meanwhile */
	uint32_t n_posting; /* answers that such threads send, one more for shut_job */
	struct closers_job shut_job; /* ends the connection for the client */
	/* Handles the request in waiting; NULL: none waits for a thread of closers.h. */
	void (*resume)(struct session *session);
	bool is_suspended; /* it does still: nothing is read here meanwhile */
	union {
		struct rbk_wire_stats_of stats_of;
		struct rbk_wire_lease_open lease_open;
	} waiting;
	struct list_node page_wait;    /* for its tenant's page, see session-stats.c */
	struct loop_timer *page_timer; /* until an administrator waits no more; NULL: none does */
	int page_result;               /* of making that */
	struct lease_page *lease_page; /* for the request that waits; NULL: none */
	struct loop_watch *watch;
	uint32_t number; /* for log lines */
	pid_t pid;       /* of the peer, from SO_PEERCRED */
	uid_t uid;
	uint64_t features;
	uint64_t arena_bytes;
	struct list_node leases;      /* of which it is a member, see session-lease.c */
	struct list_node lease_waits; /* requests about them that wait to be answered */
	uint32_t n_added_rings, n_added_arenas, n_added_plans; /* how many there are */
	uint64_t began_ns;                                     /* as statistics pages have it */
	struct stats_session shown;
	struct session_latencies latencies;
	struct session_reset reset;
	uint32_t n_jobs;      /* on the setup thread, n_lane_jobs, and one if is_receiving */
	uint32_t n_lane_jobs; /* of its rings and arenas, on threads of closers.h */
	uint32_t n_fetches;   /* tables of its rings that are being copied */
	bool has_admin_place; /* of those that sessions of administrators have */
	bool is_late;         /* its tenant was drained when it came: see RING_ADD of wire.h */
	bool is_greeted;
	struct list_node silent; /* in server->silent until then; alone: not in it */
	uint32_t silent_period;  /* server->silent_period when it came */
	bool is_ending;
	bool watches_stats, watches_root; /* was handed a statistics page, the root page */
	uint32_t n_released_plans;        /* ending: slots whose plan the setup thread has; */
	uint32_t n_released_arenas;       /* once these were gone, whose arena */
	char name[RBK_WIRE_NAME_BYTES];   /* the client's own, printable */
	char comm[16];                    /* its process's when it connected; empty: not known */
};

/*
 * Takes over @fd, which came in on the administrators' socket if @is_admin, in any case.
 * Return: 0; SESSION_E_REFUSED, and the client is told why; negative errno.
 */
int session_new(struct server *server, int fd, bool is_admin, struct session **ret);

/* The tenant's name, or what a session has that belongs to none. */
const char *session_owner(const struct session *session);

/*
 * Start the end: close the rings, then the connection. server_settle() goes on when nothing is in
 * flight: releases plans and arenas and frees the session; nothing is freed in here. @why goes to
 * the log if @is_hostile. Idempotent.
 */
void session_end(struct session *session, bool is_hostile, const char *why);

/*
 * The dispatcher: has the @n references at @from in @arena copied by a thread that may sleep, for
 * @sqe of @ring, which is kept. Then server_hooks.table_there() is called on the reactor, unless
 * the ring is closing; until then the ring and the arena have a task in flight more. One at a time
 * for each ring. Return: 0 or -ENOMEM.
 */
int session_table_fetch(struct session_ring *ring, struct session_arena *arena,
			const uint64_t *from, uint32_t n, const struct rbk_sqe *sqe);

/* Table that is being fetched; lives until table_there() returns. */
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
 * The dispatcher: listens for the ring's bell, until it has rung: then server_hooks.ring_bell() is
 * called once. A bell that has rung before, and was not drained, counts. Costs no system call.
 */
void session_ring_listen(struct session_ring *ring);

/*
 * The dispatcher, and session/: takes a batch of messages out of the ring's bell, in one system
 * call where the kernel refuses descriptors for us and in two elsewhere. Ends the session of a
 * client that sends descriptors there. Return: false for the ring of a slow user: a thread of
 * closers.h does it, and server_hooks.ring_drained() is called after that, unless the ring is
 * closing.
 */
bool session_ring_drain_bell(struct session_ring *ring);

/* The dispatcher: wakes a client that sleeps on the ring. A system call, or a thread's. */
void session_ring_wake(struct session_ring *ring);

/* The dispatcher: @ring->is_closing and its n_in_flight has become 0. Frees nothing. */
void session_ring_drained(struct session_ring *ring);

/* The dispatcher: the last task of a plan or an arena that is REMOVING has ended. */
void session_plan_idle(struct session_plan *plan);
void session_arena_idle(struct session_arena *arena);
