#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The server: what all sessions share
 *
 * Owns the listening socket and the list of sessions; borrows the loop, the setup thread, the
 * tenants and the executors, which main() makes first and frees last. Reactor thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "util/cleanup.h"

struct loop;
struct offload;
struct residency;
struct server;
struct session;
struct session_plan;
struct session_ring;
struct tenants;

enum {
	SERVER_E_IN_USE = 1,     /* another broker listens there */
	SERVER_E_PERMISSION = 2, /* may not make the socket there */
	SERVER_E_PATH = 3,       /* too long, or its folder does not exist */
	SERVER_E_NO_SOCKET = 4,  /* something else than a socket is there */
};

/* Limits of one session; what a tenant's sessions hold together is its account's affair. */
struct server_limits {
	uint32_t max_ring_entries;
	uint32_t max_rings;
	uint32_t max_arenas;
	uint32_t max_plans;
	uint64_t max_arena_bytes;
};
#define SERVER_LIMITS_DEFAULT                             \
	((struct server_limits){                          \
		.max_ring_entries = RBK_MAX_RING_ENTRIES, \
		.max_rings = 64,                          \
		.max_arenas = 1024,                       \
		.max_plans = 1024,                        \
		.max_arena_bytes = 1ull << 40,            \
	})

/*
 * How the dispatcher learns what happens to sessions; called on the reactor. ring_added() and
 * plan_ready(), when the executors have prepared a plan and before a task can name it, may refuse
 * with a negative errno. plan_removing(): no new task finds the plan any more, and those
 * that wait for its memory are to end. After ring_closing() no entry is admitted, waiting tasks are
 * dropped and tasks in flight are waited for: session_ring.n_in_flight falls to 0, at which the
 * dispatcher calls session_ring_drained().
 */
struct server_hooks {
	/* Host memory that the dispatcher will hold for a ring, to be charged first. */
	uint64_t (*ring_bytes)(uint32_t n_entries);
	int (*ring_added)(void *context, struct session_ring *ring);
	void (*ring_closing)(void *context, struct session_ring *ring);
	void (*ring_freed)(void *context, struct session_ring *ring);
	void (*ring_bell)(void *context, struct session_ring *ring);
	/* Likewise for a plan. */
	uint64_t (*plan_bytes)(void *context, const struct plan *plan);
	int (*plan_ready)(void *context, struct session_plan *plan);
	void (*plan_removing)(void *context, struct session_plan *plan);
	/* Also of a plan that never became ready. */
	void (*plan_freed)(void *context, struct session_plan *plan);
	uint64_t (*tasks_in_flight)(void *context);
	void *context;
};

/*
 * Who watches what sessions' processes do outside of the broker (broker/contention.c); both may be
 * NULL. Called on the reactor. It may keep SERVER_OBSERVED_BYTES for each session, which is charged
 * that.
 */
enum { SERVER_OBSERVED_BYTES = 1024 };
struct server_observer {
	/*
	 * A session of session->pid began. @pidfd refers to that process (-1: not known), and
	 * @cgroup is its cgroup if its tenant is whoever is in there, else NULL. Neither is kept.
	 * May set session->observed.
	 */
	void (*session_added)(void *context, struct session *session, int pidfd,
			      const char *cgroup);
	/* It ends; of every session that was added. */
	void (*session_removed)(void *context, struct session *session);
	void *context;
};

/* Counters since start, beside those of each session. */
struct server_stats {
	uint64_t tasks_completed;
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t sessions_ended_hostile;
};

struct server_options {
	const char *socket_path;
	unsigned int socket_mode; /* permission bits */
	struct server_limits limits;
	struct loop *loop;
	struct offload *offload;
	struct tenants *tenants;
	struct executor *const *executors; /* by device index; [0] is the CPU */
	uint32_t n_executors;
	struct residency *residency;
	struct server_hooks hooks;
	struct server_observer observer;
};

/*
 * Listens. Everything pointed to is borrowed for the server's life.
 * Return: 0; SERVER_E_*; negative errno.
 */
int server_new(const struct server_options *options, struct server **ret);

/* Accepts no more sessions; those there go on. */
void server_stop_accepting(struct server *server);

/* Starts the end of every session; server_is_empty() tells when they are gone. */
void server_end_sessions(struct server *server, const char *reason);
bool server_is_empty(const struct server *server);

/*
 * Once per turn of the reactor, when nobody holds a pointer to a session or a ring: continues the
 * ends of sessions and starts the end of those whose arena faulted. A few loads if there are none.
 */
void server_settle(struct server *server);
/* Is there something left that server_settle() should go on with at once? */
bool server_is_settling(const struct server *server);

struct server_stats *server_stats(struct server *server);

/*
 * Descriptors that clients sent and that are being closed. How long that takes is up to the
 * clients: server_free() waits for it.
 */
uint64_t server_n_discards(const struct server *server);

/* Must be empty. Removes the socket. Return: NULL. */
struct server *server_free(struct server *server);

DEFINE_CLEANUP(struct server *, server_free)
