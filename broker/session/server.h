#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The server: state shared by all sessions
 *
 * The server owns the listening sockets and the list of sessions. It borrows the loop, the setup
 * thread, the tenants and the executors, which main() creates first and frees last. Reactor thread
 * only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lease/timeslice-plans.h"
#include "plan/executor.h"
#include "shm/wire.h"
#include "util/cleanup.h"

struct cut_choice;
struct cut_wish;
struct loop;
struct offload;
struct residency;
struct rbk_stats_broker;
struct rbk_stats_slice;
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
	SERVER_E_PERMISSION = 2, /* no permission to create the socket there */
	SERVER_E_PATH = 3,       /* too long, or its folder does not exist */
	SERVER_E_NO_SOCKET = 4,  /* a file other than a socket is there */
	SERVER_E_STOPPED = 5,    /* SIGTERM or SIGINT came while an ending process was waited for */
	/* Added to the above for the administrators' socket. */
	SERVER_E_ADMIN = 8,
};

/*
 * The administrators' socket. The kernel's credentials decide the rights: members of the group may
 * read; root, the user that the broker runs as and @users may also change settings. The socket's
 * permissions only keep other users from trying.
 */
struct server_admin_options {
	const char *socket_path; /* NULL: no socket */
	int given_fd;            /* as server_options.given_fd */
	unsigned int socket_mode;
	bool has_group; /* false: gid is not set, and the socket's group stays */
	gid_t gid;
	const uid_t *users;
	uint32_t n_users;
};

/*
 * Most sessions of administrators, independent of other sessions. The difference is reserved for
 * administrators who may change settings, so that readers cannot exclude them.
 */
enum {
	SERVER_ADMIN_SESSIONS = 256,
	SERVER_ADMIN_LOOKING_SESSIONS = 224,
};

/* Limits of one session; the tenant's account limits the sum over its sessions. */
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
 * Hooks that tell the dispatcher about sessions. Called on the reactor, except ring_make(),
 * ring_unmake() and plan_make().
 *
 * ring_added(), for a ring that was made, may fail with a negative errno. So may plan_ready(),
 * called when the executors have prepared a plan and before a task can name it. plan_removing(): no
 * new task finds the plan, and tasks that wait for its memory must end. Of a plan that was cut, its
 * segments and then the plan are ready; only the plan is removed, only its segments are freed.
 * After ring_closing() no entry is admitted, and waiting tasks are dropped. When
 * session_ring.n_in_flight reaches 0, the dispatcher calls session_ring_drained().
 */
struct server_hooks {
	/* Return the host bytes that the dispatcher needs for a ring, to be charged first. */
	uint64_t (*ring_bytes)(uint32_t n_entries);
	/*
	 * Allocate and free that memory, on the setup thread: large allocations take milliseconds.
	 * ring_unmake() accepts a ring that was never made.
	 * Return: 0 or -ENOMEM.
	 */
	int (*ring_make)(void *context, struct session_ring *ring);
	void (*ring_unmake)(void *context, struct session_ring *ring);
	int (*ring_added)(void *context, struct session_ring *ring);
	void (*ring_closing)(void *context, struct session_ring *ring);
	void (*ring_freed)(void *context, struct session_ring *ring);
	/* A watched bell has been rung: see session_ring_listen(). */
	void (*ring_bell)(void *context, struct session_ring *ring);
	/* The table of an entry of the ring has been copied: see session_table_fetch(). */
	void (*table_there)(void *context, struct session_ring *ring);
	/* The bell of a slow user's ring has been drained: see session_ring_drain_bell(). */
	void (*ring_drained)(void *context, struct session_ring *ring);
	/* Return the bytes of host memory that the dispatcher needs for a plan. */
	uint64_t (*plan_bytes)(void *context, const struct session_plan *plan);
	/* Setup thread, before plan_ready(): allocate memory that plan_ready() may need. */
	void (*plan_make)(void *context);
	int (*plan_ready)(void *context, struct session_plan *plan);
	void (*plan_removing)(void *context, struct session_plan *plan);
	/* Also called for a plan that never became ready. */
	void (*plan_freed)(void *context, struct session_plan *plan);
	/*
	 * Describe the devices, as they are now, for cut_choose() of a plan of @session, with a
	 * description of @desc_bytes. Adds to *bytes what both allocate. The caller frees the
	 * answer, in one allocation, on any thread. NULL: as if the answer were NULL.
	 * Return: NULL: nothing is known; see cut_points() (plan/cut-points.h).
	 */
	void *(*cut_begin)(void *context, const struct session *session, size_t desc_bytes,
			   uint64_t *bytes);
	/*
	 * Setup thread: choose where such a plan is cut, so that it is predicted to end soonest.
	 * Return: false: cut_points() decides.
	 */
	bool (*cut_choose)(const void *basis, const struct plan *plan, const struct cut_wish *wish,
			   struct cut_choice *ret);
	uint64_t (*tasks_in_flight)(void *context);
	/*
	 * Return true if rings of other tenants than @tenant, NULL for none, are busy. NULL: they
	 * never are.
	 */
	bool (*others_work)(void *context, const struct tenant *tenant);
	void *context;
};

/*
 * The publisher (control/publish.c) computes figures for statistics pages and knows the settings
 * that administrators may change. Any member may be NULL. Called on the reactor.
 */
struct server_publisher {
	/* Update the pages, which are about to be read. */
	void (*update)(void *context);
	/* Publish the figures of a plan that is about to be removed, for the last time. */
	void (*plan_leaving)(void *context, struct session_plan *plan);
	/* @is_watched: at least one watcher of pages exists. */
	void (*set_watched)(void *context, bool is_watched);
	/* The tenant's statistics are reset: forget measurements of the plan. */
	void (*plan_reset)(void *context, struct session_plan *plan);
	/*
	 * Force-CPU: set it with @value 1 or 0, query it with -1.
	 * Return: the present state, 1 or 0.
	 */
	int (*force_cpu)(void *context, int value);
	/* All statistics are reset. */
	void (*reset)(void *context);
	void *context;
};

/* Progress of draining. */
struct server_drained {
	bool is_drained;
	uint64_t n_tasks;      /* tasks that have not ended */
	uint64_t device_bytes; /* bytes still in use */
	bool holds_plans;      /* plans are in these bytes, or are being loaded or unloaded */
};

/*
 * The control functions do what administrators request (broker/control/control.c); all are set, or
 * none. Called on the reactor.
 */
enum { SERVER_E_INVALID = 1 };
struct server_control {
	/*
	 * Set a key as RBK_WIRE_ADMIN_SET does.
	 * Return: 0: *ret_why is NULL or a note on the value, to be freed; SERVER_E_INVALID: a
	 * sentence is in *ret_why, to be freed; a negative errno.
	 */
	int (*set)(void *context, struct tenant *tenant, const char *key, const char *value,
		   char **ret_why);
	/* Drain as RBK_WIRE_ADMIN_DRAIN does: a tenant, or a device other than the CPU. */
	void (*drain_tenant)(void *context, struct tenant *tenant,
			     enum rbk_wire_drain_action action, struct server_drained *ret);
	void (*drain_device)(void *context, uint8_t device, enum rbk_wire_drain_action action,
			     struct server_drained *ret);
	void *context;
};

/* The restarter (broker/daemon/restart.c) lets the next broker take over. Called on the reactor. */
struct server_restarter {
	/*
	 * Begin a restart for session @number, whose client waits for server_restart_answer() with
	 * @cookie. Return: 0; -EBUSY; -ENOMEM.
	 */
	int (*begin)(void *context, uint32_t number, uint32_t cookie, uint64_t drain_ns);
	/* Session @number has ended. */
	void (*session_ended)(void *context, uint32_t number);
	/* Set the members of @ret that the server does not know, and the text of the last failure.
	 */
	void (*describe)(void *context, struct rbk_wire_restart *ret);
	void *context;
};

/*
 * The observer (broker/contention/contention.c) watches the activity of clients' processes outside
 * of the broker. Both members may be NULL. Called on the reactor. The observer may keep
 * SERVER_OBSERVED_BYTES for each session, which are charged to the session.
 */
enum { SERVER_OBSERVED_BYTES = 1024 };
struct server_observer {
	/*
	 * A session of the process session->pid began. @pidfd refers to that process (-1: unknown).
	 * @cgroup is its cgroup if its tenant is matched by cgroup alone, else NULL. Neither is
	 * kept. The hook may set session->observed.
	 */
	void (*session_added)(void *context, struct session *session, int pidfd,
			      const char *cgroup);
	/* A session ends; called for each session that was added. */
	void (*session_removed)(void *context, struct session *session);
	void *context;
};

/* Counters since start, beyond those of each session; n_in_flight is a present value. */
struct server_stats {
	uint64_t tasks_completed;
	uint64_t n_in_flight; /* sum of session_ring.n_in_flight over all rings */
	uint64_t copied_bytes;
	uint64_t transferred_bytes;
	uint64_t sessions_ended_hostile;
};

struct server_options {
	const char *socket_path;
	/*
	 * A socket that listens there already; borrowed, and not removed because it belongs to
	 * another process. 0: none, and the server creates one.
	 */
	int given_fd;
	/*
	 * The sockets that listen already, the administrators' included, were made by an earlier
	 * broker of this process: their paths belong to this one.
	 */
	bool owns_given;
	unsigned int socket_mode; /* permission bits */
	struct server_admin_options admin;
	struct server_limits limits;
	struct loop *loop;
	struct offload *offload;
	struct tenants *tenants;
	struct executor *const *executors; /* by device index; [0] is the CPU */
	uint32_t n_executors;
	uint32_t n_processors; /* processors that the broker may use; 0: not known */
	uint64_t cut_seed;     /* cut plans at random, for tests; 0: no */
	struct residency *residency;
	struct server_hooks hooks;
	struct server_publisher publisher;
	struct server_control control;
	struct server_restarter restarter; /* begin NULL: this broker cannot be restarted */
	struct server_observer observer;
};

/*
 * Create a server and listen. All objects that @options points to are borrowed for the server's
 * life.
 * Return: 0; SERVER_E_*, plus SERVER_E_ADMIN for the administrators' socket; a negative errno.
 */
int server_new(const struct server_options *options, struct server **ret);

/* Stop accepting; existing sessions continue. */
void server_stop_accepting(struct server *server);
/* Have connections wait in the sockets (@holds), or accept them again. */
void server_hold_connections(struct server *server, bool holds);
/* Return true if a client has connected and not been answered yet: it would have to try again. */
bool server_is_welcoming(const struct server *server);

/*
 * Return the number of descriptors, within the limit of open files, to reserve for connections that
 * are charged to no tenant and for closers.h threads. Any thread.
 */
uint32_t server_own_fds(void);

/* Begin to end all sessions; server_is_empty() reports when they are gone. */
void server_end_sessions(struct server *server, const char *reason);
/*
 * Return true if no sessions and no jobs of closers.h are left. Also return true if only sessions
 * that wait for closers.h are left, while one of its jobs or all of them take long: see
 * server_n_discards().
 */
bool server_is_empty(const struct server *server);

/*
 * Do the reactor's work for clients beside their rings, for a fourth of a turn's budget: messages,
 * connections, ends of sessions, and the search for a session whose page faulted. Call it once per
 * turn of the reactor, while no caller holds a pointer to a session or a ring. A call without work
 * costs a few loads.
 */
void server_settle(struct server *server);
/* Return: true if server_settle() has work left. */
bool server_is_settling(const struct server *server);

struct server_stats *server_stats(struct server *server);

/* Return the counters of statistics pages, valid for the server's life. */
struct stats *server_stats_pages(struct server *server);
/* Count @ns of @device that programs of the tenant's leases used, if pages show the tenant. */
void server_stats_leased_time(struct server *server, const struct tenant *tenant, uint8_t device,
			      uint64_t ns);
/* Log a timeslice of a tenant's lease, if the tenant has a page. */
void server_stats_slice(struct server *server, const struct tenant *tenant,
			const struct rbk_stats_slice *slice);
/* Note the tasks of plans on a device that leases share: timeslice_share_plans(). Reactor. */
void server_share_plans(struct server *server, uint8_t device, struct timeslice_plans *changed);
/* Bring the figures of leases that share a device up to date. Reactor. */
void server_count_timeslices(struct server *server);
/*
 * Create the root page if needed, and keep it updated as for any watcher until
 * server_unwatch_root(). Parts of the broker that export its contents use this, such as the metrics
 * endpoint. Pair each call with one server_unwatch_root(). In between, any thread may read the view
 * as a client does (rbk_stats_copy()); writing is not allowed.
 * Return: 0, or a negative errno.
 */
int server_watch_root(struct server *server, struct rbk_stats_view *ret);
void server_unwatch_root(struct server *server);
/*
 * Suspend (@rests) or resume the updates for this watcher; the page stays. Resuming updates the
 * page at once. Call it between the two functions above, and leave it resumed at the end.
 */
void server_rest_root(struct server *server, bool rests);
/* Set the members of the broker's record that the server knows; the rest of *ret stays. */
void server_describe(const struct server *server, struct rbk_stats_broker *ret);
/* Forget the counters of tenants that a reloaded policy no longer names. */
void server_forget_tenants(struct server *server);
/*
 * Create counters for the tenants that the policy names, if they are not too many, so that pages
 * show these tenants at once.
 */
void server_know_tenants(struct server *server);

/*
 * Return the number of unfinished jobs of closers.h, such as closing clients' descriptors. Clients
 * determine how long the jobs take; server_free() waits for them.
 */
uint64_t server_n_discards(const struct server *server);

struct closers_report;
/* Report on the closers.h threads. */
void server_describe_closers(struct server *server, struct closers_report *ret);

/*
 * Answer session @number, if it still exists, on a restart: with an error @res and @why, or with 0
 * and the members of @about that the server does not know.
 */
void server_restart_answer(struct server *server, uint32_t number, uint32_t cookie, int res,
			   const char *why, const struct rbk_wire_restart *about);

/* Return the listening sockets, -1: none; they stay the server's. */
void server_sockets(const struct server *server, int *ret_fd, int *ret_admin_fd);

/* Release the sockets' locks, so that another process may take the paths. */
void server_unlock(struct server *server);

/* Free the server, which must be empty, and remove the sockets. Return: NULL. */
struct server *server_free(struct server *server);

DEFINE_CLEANUP(struct server *, server_free)
