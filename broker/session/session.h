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
#include "plan/executor.h"
#include "plan/plan.h"
#include "session/arena.h"
#include "shm/wire.h"
#include "tenant/tenant.h"
#include "util/list.h"

struct dispatch_ring;
struct hold;
struct loop_watch;
struct place_plan;
struct residency_plan;
struct server;
struct session;

/* Positive outcomes of handling what a client sent: the session ends, the daemon goes on. */
enum { SESSION_E_HOSTILE = 1 };

/* What the slots of plans and arenas are doing. */
enum slot_state {
	SLOT_FREE = 0,
	SLOT_PREPARING, /* the setup thread works on it */
	SLOT_LOADING,   /* a plan whose memory is on its way to a device */
	SLOT_READY,
	SLOT_REMOVING,  /* no new user; waits for the last one */
	SLOT_RELEASING, /* the setup thread undoes it */
};

/* What an arena is charged as: slots of session_arena.charges. */
enum {
	ARENA_CHARGE_ONE,
	ARENA_CHARGE_ARENA_BYTES,
	ARENA_CHARGE_HOST_BYTES, /* all of it, also what a udmabuf pins */
	ARENA_CHARGE_MAPPING,
	ARENA_CHARGE_FD,
	ARENA_CHARGE_GTT, /* exported, where the device counts GTT apart */
	ARENA_CHARGES,
};

/* A registered arena. Slot i of session->arenas is arena id i. */
struct session_arena {
	struct exec_arena exec; /* what tasks and plans point to */
	struct session *session;
	struct offload_job job;
	struct charge charges[ARENA_CHARGES];
	uint16_t id;
	uint8_t state; /* enum slot_state */
	bool wants_reply;
	bool is_exported;     /* a device made it; its fd stays open and the hold waits for it */
	uint32_t n_in_flight; /* tasks that reference it; the dispatcher's */
	uint32_t n_plans;     /* plans with constants in it */
	uint32_t cookie;      /* of the request that is being worked on */
	int fd;               /* until it is imported; an exported one's as long as it lives */
	struct hold *hold;
	uint64_t bytes;
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
	uint8_t state;             /* enum slot_state */
	bool wants_reply;          /* a remove request waits */
	uint32_t cookie;
	int prepare_result;
	struct charge charges[3]; /* one plan; what executors hold; what describes it */
	struct offload_job job;

	/* Residency: see residency.h. The dispatcher counts, residency reads and clears. */
	uint32_t n_wanted;     /* tasks, since the last look, that a device with memory has or would
				  have had */
	bool is_wanted;        /* in residency_demand */
	uint16_t leaving;      /* bit i: residency_plan_idle() when n_on_device[i] becomes 0 */
	uint64_t wanted_ticks; /* when the last of them was admitted */
	uint64_t n_constrained;                /* tasks that went elsewhere for want of memory */
	uint32_t n_on_device[RBK_MAX_DEVICES]; /* in flight there */
	struct session_plan *next_wanted;
	struct place_plan *place;    /* what the placer knows of it; the dispatcher's */
	struct list_node dispatched; /* in dispatch.plans; likewise */
	struct list_node waiting;    /* tasks that wait for its memory; likewise */
	struct list_node ending;     /* in dispatch.ending, while these are being ended; likewise */
	struct residency_plan *residency;
};

/* A submission and a completion ring. */
struct session_ring {
	/* Hot: the dispatcher's, set up by session/ring.c. Nothing here is read back from shared
	 * memory. */
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
	int bell_fd;
	bool is_closing;
	bool is_drained;        /* closing, and nothing in flight */
	int fault_slot;         /* of the submission area, in the SIGBUS table; -1: not in it */
	atomic_bool is_faulted; /* set by the SIGBUS handler */
	uint32_t remove_cookie;
	bool wants_reply;
	size_t sq_bytes, cq_bytes;
	struct loop_watch *bell_watch;
	struct charge charges[5];
	struct offload_job job;
};

struct session_stats {
	uint64_t tasks[RBK_MAX_DEVICES];
	uint64_t reasons[RBK_REASON_COUNT];
	uint64_t errors;
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
};

struct session {
	/* Hot. */
	struct session_arena **arenas; /* by id; NULL unless READY */
	struct session_plan **plans;   /* by slot; NULL unless READY */
	uint32_t n_arenas, n_plans;    /* lengths of the two */
	struct session_stats stats;

	/* Cold. */
	struct server *server;
	struct list_node link;              /* in server->sessions */
	struct session_ring **rings;        /* by id; NULL where free */
	struct session_arena **arena_slots; /* by id, in any state but FREE */
	struct session_plan **plan_slots;
	uint16_t *plan_generations; /* by slot */
	struct tenant *tenant;
	void *observed; /* struct server_observer's */
	struct charge charges[3];
	int fd;
	struct loop_watch *watch;
	uint32_t number; /* for log lines */
	pid_t pid;       /* of the peer, from SO_PEERCRED */
	uid_t uid;
	uint64_t features;
	uint64_t arena_bytes;
	uint32_t n_jobs; /* on the setup thread */
	bool is_greeted;
	bool is_ending;
	bool has_released_plans;        /* ending, and they were given to the setup thread; */
	bool has_released_arenas;       /* once these were gone, those */
	char name[RBK_WIRE_NAME_BYTES]; /* the client's own, printable */
};

/* Takes over @fd in any case. Return: 0; ACCOUNT_E_QUOTA, refused, and the client is told why;
 * errno. */
int session_new(struct server *server, int fd, struct session **ret);

/*
 * Starts the end: closes the connection and the rings. server_settle() goes on when nothing is in
 * flight: releases plans and arenas and frees the session; nothing is freed in here. @why goes to
 * the log if @is_hostile. Idempotent.
 */
void session_end(struct session *session, bool is_hostile, const char *why);

/*
 * The dispatcher: stops or resumes listening to the ring's bell, for a client that rings it without
 * having anything to say.
 */
void session_ring_mute(struct session_ring *ring, bool is_muted);

/* The dispatcher: @ring->is_closing and its n_in_flight has become 0. Frees nothing. */
void session_ring_drained(struct session_ring *ring);

/* The dispatcher: the last task of a plan or an arena that is REMOVING has ended. */
void session_plan_idle(struct session_plan *plan);
void session_arena_idle(struct session_arena *arena);
