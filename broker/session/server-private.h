#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations about the server shared by the files of session/; private to session/. */
#include <sys/socket.h>

#include "loop/turn-queue.h"
#include "session/closers.h"
#include "session/server.h"
#include "session/session.h"
#include "stats/stats.h"
#include "util/list.h"
#include "util/log.h"

enum { SERVER_END_LIMITS = 64 /* reasons to end a session that the log distinguishes */ };

struct holds;
struct loop_timer;

/* Context of a log line about session @s. */
#define SESSION_ABOUT(s)                                                                        \
	LOG_OF(.tenant = (s)->tenant ? tenant_name((s)->tenant) : NULL, .session = (s)->number, \
	       .pid = (s)->pid, .uid = (s)->uid)

/* Buckets of server.stats_users; there may be a thousand tenants. */
enum { SERVER_STATS_USERS = 256 };

/* Maximum numbers of connections charged to no tenant: of administrators, and in refusal.c */
enum { SERVER_ADMIN_NEWCOMERS = 8, SERVER_REFUSALS = 64 };

/* Buckets of server.owners */
enum { SERVER_OWNERS = 256 };

/* Limit of an owner's requests while others are busy; see restraint.c. */
struct restraint {
	int64_t credit_ns;     /* time that may be spent at once; negative: debt */
	uint64_t looked_ns;    /* time of the last look; 0: none yet */
	uint64_t held_ns;      /* time since which requests wait, or of the last release */
	uint64_t spent_ticks;  /* share.flow.spent at the last look */
	uint64_t thread_ns;    /* the tenant's time on other threads at the last look */
	uint64_t jobs_ns;      /* estimate for jobs of other threads since the last look */
	uint64_t allowance_ns; /* left for clients that come back */
	uint64_t returned_ns;  /* time of the last request by which one came back; 0: none */
	uint32_t n_passes;     /* requests that pass without a look */
	bool is_restrained;
	bool has_returned;           /* the allowance was used up, and is not full again */
	bool knows_threads;          /* thread_ns was read */
	struct list_node held;       /* requests that wait for a tick: turn_queue_hold() */
	struct list_node link;       /* in server->restrained while requests wait */
	const struct tenant *tenant; /* of the requests that wait; NULL: not known */
};

/* An owner of the reactor's work; owner.c. */
struct owner {
	struct turn_owner share;
	struct restraint restraint;
	/* of a user: counted owner of its last session, whose debt restrains it as well; or NULL */
	struct owner *last;
	struct list_node link; /* in one of server->owners */
	uint64_t key;
	uint32_t n_users;     /* references */
	uint32_t n_newcomers; /* connections waiting for identification */
	uint32_t n_awaiting;  /* newcomers of a user, or of a tenant, in listener->awaiting */
	uint32_t n_refusals;  /* of a user: connections in server->refusals */
	uint32_t n_ending;    /* of a tenant: sessions that are ending */
	struct log_limit refusal_limit; /* of a user: log lines about refusals */
	uint64_t bucket_ns, judged_ns;  /* of a user, or a user in a tenant: see slow.c */
	bool is_slow;                   /* of the same owners as bucket_ns */
};

/* A listening socket, see listen.c. It is not in use if all members but the descriptors are 0. */
struct listener {
	struct server *server;
	const char *path; /* borrowed from the server's options */
	int fd;           /* -1: not accepting */
	int lock_fd;      /* held while the socket's path is ours */
	struct loop_watch *watch;
	struct turn_owner owner; /* owner of accepting, which serves all clients */
	struct turn_job job;
	uint32_t n_newcomers; /* newcomers accepted here */
	bool is_admin;
	bool is_given;  /* the path belongs to another process */
	bool is_paused; /* the bound of held connections is reached; others wait in the socket */
	/*
	 * is_behind: it was paused since the socket was last found empty; is_shedding: and that
	 * pause has lasted too long.
	 */
	bool is_behind, is_shedding;
	struct loop_timer *patience;
	struct list_node awaiting; /* newcomers that wait for ends of sessions of their tenant */
	uint32_t n_awaiting;
	struct loop_timer *await_timer;
};
#define LISTENER_INIT ((struct listener){.fd = -1, .lock_fd = -1})

struct server {
	struct server_options options;
	struct server_stats stats;
	struct list_node sessions;
	uint64_t n_sessions;
	uint64_t n_rings, n_arenas, n_plans; /* over all sessions, now */
	uint32_t n_admin_sessions;           /* included in n_sessions; see admin-rights.c */
	uint32_t next_number;
	struct listener clients, admins;
	struct loop_timer *retry; /* accepts again after the process ran out of descriptors */
	struct turn_queue work;   /* work for clients beside their rings */
	struct list_node owners[SERVER_OWNERS]; /* see owner.c */
	struct list_node restrained;            /* restraints with requests that wait */
	struct loop_timer *restraint_timer;
	uint64_t started_ns;
	struct owner common;          /* for users whose own owner could not be allocated */
	struct loop_timer *end_timer; /* wakes the loop while sessions end */
	uint64_t end_ns;              /* time of the first server_end_sessions(); 0: not yet */
	struct list_node newcomers;   /* see listen.c */
	uint32_t n_newcomers, max_newcomers;
	uint32_t n_newcomer_users; /* owners that have newcomers */
	uint32_t n_uncharged;      /* connections being closed that are charged to no tenant */
	uint32_t max_uncharged;    /* bound of n_uncharged, newcomers and refusals together */
	int spare_fd;              /* given up to refuse a connection at the limit; -1: none */
	/* list of the free ones, for use when memory is short; array of all */
	struct discard *spare_discards, *discards;
	struct turn_job fault_job;      /* searches for the session whose page faulted */
	struct turn_owner fault_owner;  /* owner of fault_job, which serves no tenant */
	uint64_t n_to_check;            /* sessions still to check */
	struct closers *closers;        /* see discard.c */
	struct loop_timer *slice_timer; /* see timeslices.c */
	struct loop_timer *reset_timer; /* see resets.c */
	uint64_t slice_due_ns;          /* when it ends; 0: it is not armed */
	bool holds_connections;         /* no client is accepted: they wait in the socket */
	uint32_t n_restored_sessions;   /* sessions that have brought a ring of an earlier broker */
	uint64_t restored_ns;           /* when the last such ring was ready; 0: none was */

	/* See greet.c. */
	struct list_node silent;
	struct loop_timer *silent_timer;
	uint64_t silent_period_ns;
	uint32_t silent_period; /* number of the current period */
	bool has_late_silent;   /* late sessions remain to be ended */

	/* See refusal.c. */
	struct list_node refusals;
	struct loop_timer *refusal_timer;
	struct log_limit failure_limit, lease_limit, accept_limit;
	struct log_limit end_limits[SERVER_END_LIMITS]; /* by reason */
	uint32_t end_reasons[SERVER_END_LIMITS];        /* hashes of the reasons */
	uint32_t n_refusals;                            /* length of refusals */
	uint32_t n_refused_users;                       /* owners that have refusals */
	struct holds *holds;                            /* see hold.h */

	/* See session-stats.c. */
	struct stats *pages;
	struct list_node stats_users[SERVER_STATS_USERS]; /* tenants with sessions, by number */
	uint32_t n_watchers, n_root_watchers; /* sessions that received a page, the root page */
	struct charge root_charges[4];
};

/*
 * discard.c: close, on a closers.h thread, a descriptor that came from a client and that the broker
 * does not keep. It is charged to @account until it is closed.
 * Return: 0; SESSION_E_HOSTILE: the charge exceeds the account's limit; -ENOMEM. On failure the
 * descriptor is closed nevertheless, and the session must end.
 */
int discard_fd(struct server *server, struct account *account, int fd);
/* Return: 0 or -ENOMEM. */
int discards_init(struct server *server);
/* No job may be in progress. */
void discards_deinit(struct server *server);
/*
 * Discard a connection of ours, a Unix socket, as discard_fd() does. The client of @user, which may
 * be NULL, sees the end at once unless @user is slow. @charge, which may be empty, is taken over
 * and undone when the connection is closed.
 */
void discard_connection(struct server *server, struct account *account, struct owner *user, int fd,
			struct charge *charge);

/*
 * greet.c: end sessions that do not send HELLO in time. greet_init() returns 0 or -ENOMEM. Call
 * greet_expect() once per session; greet_done() also accepts a session without it.
 */
int greet_init(struct server *server);
void greet_deinit(struct server *server);
void greet_expect(struct session *session);
static inline void greet_done(struct session *session)
{
	list_remove(&session->silent);
}

/* server.c: initialise the work queue; @server->options.loop is set. */
void server_work_init(struct server *server);

/*
 * restraint.c. restraints_init() returns 0 or -ENOMEM. restraint_holds() is called by the @job of a
 * request that is about to be served, and returns true if the job must return: it runs again later.
 * @tenant: NULL if it is not known yet. restraint_job() counts a job that @owner gives to another
 * thread. restraint_returns() notes a request by which a client of @owner that an earlier broker
 * served comes back. restraint_is_idle() returns true if the owner owes no time.
 */
int restraints_init(struct server *server);
void restraints_deinit(struct server *server);
void restraint_init(struct restraint *restraint);
bool restraint_holds(struct server *server, struct owner *owner, const struct tenant *tenant,
		     struct turn_job *job);
void restraint_job(struct owner *owner);
void restraint_returns(struct owner *owner);
bool restraint_is_idle(struct server *server, struct owner *owner);

/*
 * owner.c. Owners are reference-counted: an owner is kept while references to it exist and while it
 * owes time. Getting an owner cannot fail. owner_unref() accepts NULL.
 */
void owners_init(struct server *server);
void owners_deinit(struct server *server);
struct owner *owner_of_user(struct server *server, uid_t uid);
/* Get the owner for the session's user in its tenant, or among administrators. */
struct owner *owner_of_client(const struct session *session);
struct owner *owner_ref(struct owner *owner);
/* Get the owner for the session's tenant, or for the administrator. */
struct owner *owner_of_session(const struct session *session);
void owner_unref(struct owner *owner);
/* Note that @last is the owner of the user's last session. */
void owner_follow(struct owner *user, struct owner *last);
/* Continue accepting if the listener was paused; accepting checks for room. */
void listener_resume(struct listener *listener);
/* Queue @job of the session for this turn or a later one. */
void session_queue(struct session *session, struct turn_job *job);

/*
 * listen.c: create the socket and listen. listener_deinit() removes even a partly created listener
 * and its socket. The lock is kept until listener_unlock().
 * Return: 0; SERVER_E_*; a negative errno.
 */
int listener_init(struct listener *listener, struct server *server, bool is_admin);
void listener_deinit(struct listener *listener);
void listener_unlock(struct listener *listener);
/* Allocate the spare descriptor if there is none and the limit permits one. */
void listeners_take_spare(struct server *server);

/*
 * refusal.c: take over @fd, a connection that gets no session. Answer its first request with the
 * negative errno @res and the sentence @why, then close it. Closing may take long and occupies the
 * lane of @account.
 */
void refuse_connection(struct server *server, struct account *account, int fd, pid_t pid, uid_t uid,
		       int res, const char *why);
/* Return: 0 or -ENOMEM. */
int refusals_init(struct server *server);
/* Close the waiting connections. Idempotent. */
void refusals_deinit(struct server *server);

/*
 * slow.c. Account for a system call on a socket of @user that began at @begin_ticks (turn_now()).
 * @user becomes slow if such calls have taken too much of the reactor's time.
 */
void owner_judge(struct server *server, struct owner *user, uint64_t begin_ticks);

/* Buffer for the descriptors of an answer. */
union session_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int) * RBK_WIRE_MAX_FDS)];
};

/*
 * admin-rights.c: return the rights (RBK_FEAT_ADMIN, RBK_FEAT_ADMIN_CHANGE) of a client on the
 * administrators' socket, whose groups must be known. 0: no session.
 */
uint64_t admin_rights(const struct server_admin_options *options, const struct peer *peer);
/*
 * Count a session with @rights, and end counting it.
 * Return: true if the bound permits the session.
 */
bool admin_session_begin(struct server *server, uint64_t rights);
void admin_session_end(struct server *server);

/* session-connection.c */

/*
 * Send an answer; @reply heads a structure of @bytes. End the session of a client that does not
 * read its answers.
 */
void session_reply(struct session *session, struct rbk_wire_reply *reply, size_t bytes);
/*
 * Send an answer with a descriptor, as session_reply() does. @is_shared: others also have the
 * object of the descriptor, whose charges therefore do not cover descriptors in flight to this
 * client.
 * Return: 0, even if the session ended; SESSION_E_REFUSED: too many descriptors are in flight, the
 * client was answered -EBUSY, and the caller must undo the request.
 */
int session_reply_fd(struct session *session, struct rbk_wire_reply *reply, size_t bytes, int fd,
		     bool is_shared);
/*
 * Send sockets in three steps, in place of session_reply_fd(). The kernel makes the sender of a
 * socket wait until unreachable sockets of any user are collected, and their users determine how
 * long that takes. session_post_begin(), on the reactor, returns the connection and keeps it open.
 * A closers.h thread calls session_post(). session_post_end(), on the reactor, handles its result.
 */
int session_post_begin(struct session *session);
/*
 * Disconnect if the session is ending and no thread uses the connection. To be called when a use of
 * the connection ends.
 */
void session_let_go(struct session *session);
/* Return: 0 or a positive errno. */
int session_post(int fd, const struct rbk_wire_reply *reply, size_t bytes, const int *fds,
		 unsigned int n_fds);
/* Return: as session_reply_fd(). */
int session_post_end(struct session *session, const struct rbk_wire_reply *reply, size_t bytes,
		     int error);
/* Send an answer that is a result and a sentence; @format may be NULL. */
void session_reply_result(struct session *session, uint32_t type, uint32_t cookie, int res,
			  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Return true if the session may change settings; refuse the request otherwise. */
bool session_may_change(struct session *session, uint32_t type, uint32_t cookie);

/*
 * Suspend the request in session->waiting until a closers.h thread has made an object for it. No
 * message is read until session_resume(). After that @resume handles the request in the session's
 * share of the reactor's time, unless the session is ending.
 */
void session_suspend(struct session *session, void (*resume)(struct session *session));
void session_resume(struct session *session);

/* Count a job given to another thread, and its return. */
void session_job_started(struct session *session);
void session_job_done(struct session *session);
/*
 * Submit a job of a tenant's session to the setup thread, in the tenant's turn. The job may belong
 * to any object of the session; its run(), done() and cause are set. Jobs that release something,
 * and all jobs of a session that ends, precede the tenant's other jobs.
 */
void session_submit(struct session *session, struct offload_job *job);

/*
 * Submit a job of a session's ring or arena to a closers.h thread, in the lane of the account. Such
 * jobs add a seal to a memfd that the client can write, fault in its pages, or drop what may be the
 * last reference to it. The client determines how long each takes, perhaps for ever, so no other
 * tenant may wait for such a job. run() and done() are set; done() calls session_lane_done() last.
 */
void session_submit_to_lane(struct session *session, struct closers_job *job);
void session_lane_done(struct session *session);

/* session.c */

/* Return true if the session is ending and waits only for closers.h threads. */
bool session_waits_for_closers(const struct session *session);

/* End the session if a page of one of its arenas or rings faulted. */
void session_check_faults(struct session *session);

/*
 * session-plan.c, session-arena.c, session-ring.c: handle requests whose form was checked. Each
 * function answers the client, at once or when the setup thread has finished.
 * Return: 0; SESSION_E_HOSTILE.
 */
int session_plan_add(struct session *session, uint32_t cookie, const void *desc, size_t desc_bytes);
/* Add a plan from a memfd that is sealed against shrinking; take *fd if it is to be read. */
int session_plan_add_fd(struct session *session, uint32_t cookie, int *fd, size_t desc_bytes);
int session_plan_remove(struct session *session, uint32_t cookie, uint32_t id);
/*
 * Have the session's next plans get later ids than the plan @id of an earlier broker. Ids of
 * arenas, which are not counted, change nothing.
 */
void session_plan_continue(struct session *session, uint32_t id);
/* Return the plan of an id; NULL: no plan that tasks can name. */
struct session_plan *session_plan_find(const struct session *session, uint32_t id);
/*
 * Add an arena. Take *fd, a memfd, if it is to be mapped, and set *fd to -1. With @fixes, keep the
 * memfd's pages from being removed, if possible.
 */
int session_arena_add(struct session *session, uint32_t cookie, int *fd, uint64_t bytes,
		      bool fixes);
/* Add an arena made by session_exporter(), the device that makes arenas; NULL: none does. */
int session_arena_new(struct session *session, uint32_t cookie, uint64_t bytes);
struct executor *session_exporter(const struct session *session);
/* Add an arena that an earlier broker's device made: *fd, taken if it is used, is its dma-buf. */
int session_arena_restore(struct session *session, uint32_t cookie, int *fd, uint64_t bytes);
int session_arena_remove(struct session *session, uint32_t cookie, uint32_t id);
int session_ring_add(struct session *session, uint32_t cookie, uint32_t n_entries);
/* RING_RESTORE: @fds are the areas; those that are taken become -1. */
int session_ring_restore(struct session *session, uint32_t cookie, uint32_t n_entries, int fds[2]);
int session_ring_remove(struct session *session, uint32_t cookie, uint32_t id);

/*
 * session-stats.c: begin and end counting a session for its tenant. The last session of a tenant
 * removes its page. session_stats_join() returns 0 or -ENOMEM.
 */
int session_stats_join(struct session *session);
void session_stats_leave(struct session *session);
/*
 * Set the figures that RBK_WIRE_STATS reports beyond the session's own: sums over its tenant or,
 * for an administrator's session, the figures of server_describe(). Other members of *ret are 0.
 */
void session_describe(const struct session *session, struct rbk_stats_broker *ret);
/*
 * Begin to make the tenant's page if it has none and there is room. The page is available later.
 * Return: 0; ACCOUNT_E_QUOTA; a negative errno.
 */
int session_stats_want(struct session *session);
/* Begin and end counting a plan; the latter accepts a plan that was never added. */
void session_stats_plan_added(struct session_plan *plan);
void session_stats_plan_leaving(struct session_plan *plan);
/* Handle requests whose form was checked; each function answers the client. */
int session_stats_page(struct session *session, const struct rbk_wire_stats_of *of);
/* Begin a reset, of which a session has at most one. The answer is sent when it is complete. */
int session_stats_reset(struct session *session, const struct rbk_wire_stats_of *of);
void session_reset_init(struct session *session);
int session_control(struct session *session, const struct rbk_wire_control *control);
/* session-lease.c: handle requests whose form was checked. The answer may come later. */
void session_lease_open(struct session *session, const struct rbk_wire_lease_open *open);
void session_lease_credit(struct session *session, const struct rbk_wire_lease_credit *credit);
void session_lease_object(struct session *session, const struct rbk_wire_lease_object *object);
void session_lease_resize(struct session *session, const struct rbk_wire_lease_resize *resize);
/*
 * Return the lease of that number if the session may change it: it opened the lease, or is an
 * administrator's. NULL: the client was answered. @what ends the sentence: "resize".
 */
struct lease *session_own_lease(struct session *session, const struct rbk_wire_request *request,
				uint32_t number, const char *what);
/* Take *fd if the lease keeps it, and set it to -1. */
void session_lease_cgroup(struct session *session, const struct rbk_wire_lease_cgroup *cgroup,
			  int *fd);
/* Return: NULL: the session is no member of the lease with that number, and the client was told. */
struct lease_member *session_lease_member(struct session *session,
					  const struct rbk_wire_request *request, uint32_t number);
/* session-timeslice.c: handle requests whose form was checked. */
void session_timeslice(struct session *session, const struct rbk_wire_lease_timeslice *timeslice);
void session_lease_share(struct session *session, const struct rbk_wire_lease_share *share);
/* Where leased memory should be, and is: see lease/sleep.h. */
void session_lease_sleep(struct session *session, const struct rbk_wire_lease_sleep *sleep);
void session_lease_moved(struct session *session, const struct rbk_wire_lease_moved *moved);
void session_parts(struct session *session, const struct rbk_wire_lease_parts *parts);
/* resets.c: handle requests whose form was checked. */
void session_lost(struct session *session, const struct rbk_wire_lease_lost *lost);
/* Return: 0 or -ENOMEM. */
int server_resets_start(struct server *server);
void server_resets_stop(struct server *server);
/* timeslices.c. Return: 0 or -ENOMEM. */
int timeslices_start(struct server *server);
void timeslices_stop(struct server *server);
/* Return the time for a call of lease/timeslice.h. */
uint64_t timeslices_now(struct server *server);
/* Have the timer expire when something is due. After each call of lease/timeslice.h. */
void timeslices_arm(struct server *server, uint64_t now_ns);
/* End a member's part in sharing its device's time, before it leaves its lease. */
void timeslices_leave(struct server *server, struct lease_member *member);
/* session-admin.c: handle requests whose form was checked. */
void session_admin_set(struct session *session, const struct rbk_wire_admin_set *set);
void session_admin_limit(struct session *session, const struct rbk_wire_admin_limit *limit);
void session_admin_evict(struct session *session, const struct rbk_wire_admin_evict *evict);
void session_admin_drain(struct session *session, const struct rbk_wire_admin_drain *drain);
void session_admin_restart(struct session *session, const struct rbk_wire_admin_restart *restart);
void session_log_level(struct session *session, const struct rbk_wire_control *control);
void session_catalogue(struct session *session, uint32_t cookie);
/* Return: 0 or -ENOMEM. */
int server_stats_init(struct server *server);
void server_stats_deinit(struct server *server);
/*
 * Return the bytes charged to tenants on all devices; driver overhead, which is the broker's, is
 * not included.
 */
uint64_t server_device_bytes(const struct server *server);

/* A session ends: cancel the plan's jobs that the setup thread has not begun. */
void session_plan_cancel(struct session_plan *plan);
/* The same for an arena that is being prepared. */
void session_arena_cancel(struct session_arena *arena);

/*
 * Release a plan or an arena at the end of a session, with no task in flight and no job in
 * progress. The client is not answered.
 */
void session_plan_discard(struct session_plan *plan);
void session_arena_discard(struct session_arena *arena);
/* End the session's membership of leases, even with tasks in flight. */
void session_leases_discard(struct session *session);

/* Close a ring: no entry is admitted any more. */
void session_ring_close(struct session_ring *ring);
/*
 * Have the dispatcher forget a drained ring and the setup thread free it; then answer a removal
 * request.
 */
void session_ring_discard(struct session_ring *ring);

/*
 * request.c: handle a message of @n_bytes with @n_fds descriptors. Descriptors that are kept are
 * set to -1 in @fds; the caller closes the others.
 * Return: 0; SESSION_E_HOSTILE: *ret_why is set.
 */
int request_handle(struct session *session, const void *message, size_t n_bytes, int *fds,
		   unsigned int n_fds, const char **ret_why);

/* Answer the request at @message, if it has a head, with @res. Return: 0. */
int request_refuse(struct session *session, const void *message, size_t n_bytes, int res);
