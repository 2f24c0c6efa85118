#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The server: what all sessions share
 *
 * Owns the listening sockets and the list of sessions; borrows the loop, the setup thread, the
 * tenants and the executors, which main() makes first and frees last. Reactor thread only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/executor.h"
#include "shm/wire.h"
#include "util/cleanup.h"

struct loop;
struct offload;
struct residency;
struct rbk_stats_broker;
struct rbk_stats_view;
struct server;
struct session;
struct session_plan;
struct session_ring;
struct stats;
struct tenant;
struct tenants;

enum {
	SERVER_E_IN_USE = 1,     /* another broker listens there */
	SERVER_E_PERMISSION = 2, /* may not make the socket there */
	SERVER_E_PATH = 3,       /* too long, or its folder does not exist */
	SERVER_E_NO_SOCKET = 4,  /* something else than a socket is there */
	/* The same of the administrators' socket, added to the above. */
	SERVER_E_ADMIN = 8,
};

/*
 * The administrators' socket. The kernel's word decides who may what there, so that its permissions
 * need only keep others from trying: members of the group may look; root, the user that the broker
 * runs as and @users may also change something.
 */
struct server_admin_options {
	const char *socket_path; /* NULL: there is none */
	int given_fd;            /* as that of clients */
	unsigned int socket_mode;
	bool has_group; /* else gid is not set, and the socket's group is left as it is */
	gid_t gid;
	const uid_t *users;
	uint32_t n_users;
};

/*
 * So many sessions of administrators at once, whoever else has how many; of these some are for
 * those who may change something, so that those who may only look cannot keep them out.
 */
enum {
	SERVER_ADMIN_SESSIONS = 256,
	SERVER_ADMIN_LOOKING_SESSIONS = 224,
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
 * Hooks by which the dispatcher learns what happens to sessions; called on the reactor, but for
 * ring_make() and ring_unmake(). ring_added(), for a ring that was made, and plan_ready(), when the
 * executors have prepared a plan and before a task can name it, may refuse with a negative errno.
 * plan_removing(): no new task finds the plan any more, and tasks that wait for its memory are to
 * end. After ring_closing() no entry is admitted, waiting tasks are dropped and tasks in flight are
 * waited for: session_ring.n_in_flight falls to 0, at which the dispatcher calls
 * session_ring_drained().
 */
struct server_hooks {
	/* Host memory that the dispatcher will hold for a ring, to be charged first. */
	uint64_t (*ring_bytes)(uint32_t n_entries);
	/*
	 * Allocates and frees that memory, on the setup thread: large pieces take milliseconds.
	 * Return: 0 or -ENOMEM. ring_unmake() accepts a ring that was never made.
	 */
	int (*ring_make)(void *context, struct session_ring *ring);
	void (*ring_unmake)(void *context, struct session_ring *ring);
	int (*ring_added)(void *context, struct session_ring *ring);
	void (*ring_closing)(void *context, struct session_ring *ring);
	void (*ring_freed)(void *context, struct session_ring *ring);
	/* A ring that it listens to has been rung: see session_ring_listen(). */
	void (*ring_bell)(void *context, struct session_ring *ring);
	/* The table of an entry of the ring has been copied: see session_table_fetch(). */
	void (*table_there)(void *context, struct session_ring *ring);
	/* The bell of a slow user's ring has been drained: see session_ring_drain_bell(). */
	void (*ring_drained)(void *context, struct session_ring *ring);
	/* Likewise for a plan. */
	uint64_t (*plan_bytes)(void *context, const struct plan *plan);
	/* Setup thread, before plan_ready(): allocates what plan_ready() may need. */
	void (*plan_make)(void *context);
	int (*plan_ready)(void *context, struct session_plan *plan);
	void (*plan_removing)(void *context, struct session_plan *plan);
	/* Also of a plan that never became ready. */
	void (*plan_freed)(void *context, struct session_plan *plan);
	uint64_t (*tasks_in_flight)(void *context);
	void *context;
};

/*
 * Who computes figures for statistics pages, and knows what administrators may change
 * (control/publish.c); any of these may be NULL. Called on the reactor.
 */
struct server_publisher {
	/* Somebody is about to look: bring pages up to date. */
	void (*update)(void *context);
	/* A plan is about to leave: its figures, for the last time. */
	void (*plan_leaving)(void *context, struct session_plan *plan);
	/* Somebody looks, or nobody does any more. */
	void (*set_watched)(void *context, bool is_watched);
	/* Its tenant's statistics begin anew: what was learned of the plan is forgotten. */
	void (*plan_reset)(void *context, struct session_plan *plan);
	/* Force-CPU: @value 1 or 0 sets it, -1 asks. Return: 1 or 0, as it is now. */
	int (*force_cpu)(void *context, int value);
	/* Everything's statistics begin anew. */
	void (*reset)(void *context);
	void *context;
};

/* How far draining is. */
struct server_drained {
	bool is_drained;
	uint64_t n_tasks;      /* that have still to end */
	uint64_t device_bytes; /* that are still taken */
};

/*
 * Who does what administrators ask for (broker/control/control.c); all of these, or none. Called on
 * the reactor.
 */
enum { SERVER_E_INVALID = 1 };
struct server_control {
	/*
	 * As RBK_WIRE_ADMIN_SET. Return: 0; SERVER_E_INVALID, with a sentence in *ret_why, to be
	 * freed; negative errno.
	 */
	int (*set)(void *context, struct tenant *tenant, const char *key, const char *value,
		   char **ret_why);
	/* As RBK_WIRE_ADMIN_DRAIN, of a tenant, and of a device other than the CPU. */
	void (*drain_tenant)(void *context, struct tenant *tenant,
			     enum rbk_wire_drain_action action, struct server_drained *ret);
	void (*drain_device)(void *context, uint8_t device, enum rbk_wire_drain_action action,
			     struct server_drained *ret);
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

/* Counters since start, beside those of each session; but for the second one, which is of now. */
struct server_stats {
	uint64_t tasks_completed;
	uint64_t n_in_flight; /* the sum of all session_ring.n_in_flight */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t sessions_ended_hostile;
};

struct server_options {
	const char *socket_path;
	/*
	 * A socket that listens there already, which is borrowed and, being somebody else's, not
	 * removed; 0: there is none, the server makes one.
	 */
	int given_fd;
	unsigned int socket_mode; /* permission bits */
	struct server_admin_options admin;
	struct server_limits limits;
	struct loop *loop;
	struct offload *offload;
	struct tenants *tenants;
	struct executor *const *executors; /* by device index; [0] is the CPU */
	uint32_t n_executors;
	struct residency *residency;
	struct server_hooks hooks;
	struct server_publisher publisher;
	struct server_control control;
	struct server_observer observer;
};

/*
 * Listens. Everything pointed to is borrowed for the server's life.
 * Return: 0; SERVER_E_*, with SERVER_E_ADMIN added if it is about that socket; negative errno.
 */
int server_new(const struct server_options *options, struct server **ret);

/* Accepts no more sessions; those there go on. */
void server_stop_accepting(struct server *server);

/*
 * Return how many descriptors are to be kept, as the limit of open files is, for connections that
 * are charged to no tenant and for the threads of closers.h. Any thread.
 */
uint32_t server_own_fds(void);

/* Starts the end of every session; server_is_empty() tells when they are gone. */
void server_end_sessions(struct server *server, const char *reason);
/*
 * Are no sessions left, and nothing that threads have still to close? Or no sessions but those that
 * wait for descriptors of clients, while closing one of these takes long, or all of them do: see
 * server_n_discards().
 */
bool server_is_empty(const struct server *server);

/*
 * Do the reactor's work for clients beside their rings, for a fourth of a turn's budget: messages,
 * connections, the ends of sessions, looking for the session whose page faulted. Call it once per
 * turn of the reactor, while no caller holds a pointer to a session or a ring. A call without work
 * is a few loads.
 */
void server_settle(struct server *server);
/* Return: true if server_settle() has work left. */
bool server_is_settling(const struct server *server);

struct server_stats *server_stats(struct server *server);

/* What is counted for statistics pages. Lives as long as the server. */
struct stats *server_stats_pages(struct server *server);
/*
 * Has the root page there, and kept up to date as for any other watcher, until
 * server_unwatch_root(): for a part of the broker that tells what is in it, such as the metrics
 * endpoint. Once for each of the one, once the other. The view may be read by any thread in
 * between, as a client would read it (rbk_stats_copy()); nobody may write there.
 * Return: 0; negative errno.
 */
int server_watch_root(struct server *server, struct rbk_stats_view *ret);
void server_unwatch_root(struct server *server);
/*
 * While it rests the page stays, but is not kept up to date for this watcher's sake; when it does
 * so no more, it is at once. Between the two above, and not resting at the end.
 */
void server_rest_root(struct server *server, bool rests);
/* The members of the whole broker's record that the server knows; the rest of *ret stays. */
void server_describe(const struct server *server, struct rbk_stats_broker *ret);
/* Forgets the counts of tenants that are gone from the policy: it was read again. */
void server_forget_tenants(struct server *server);
/* Begins to count for those that it names, if they are not too many: they are seen at once. */
void server_know_tenants(struct server *server);

/*
 * Descriptors that clients sent and that are being closed. How long that takes is up to the
 * clients: server_free() waits for it.
 */
uint64_t server_n_discards(const struct server *server);

struct closers_report;
/* The threads that close what clients left or sent. */
void server_describe_closers(struct server *server, struct closers_report *ret);

/* Another process may have the sockets from now on. */
void server_unlock(struct server *server);

/* Must be empty. Removes the sockets. Return: NULL. */
struct server *server_free(struct server *server);

DEFINE_CLEANUP(struct server *, server_free)
