#pragma once
/* SPDX-License-Identifier: MIT */
/* What the files of session/ share about the server; nobody outside session/ includes it. */
#include <sys/socket.h>

#include "loop/turn-queue.h"
#include "session/closers.h"
#include "session/server.h"
#include "session/session.h"
#include "stats/stats.h"
#include "util/list.h"
#include "util/log.h"

enum { SERVER_END_LIMITS = 64 /* reasons to end a session, told apart in the log */ };

struct holds;
struct loop_timer;

/* For the log. */
#define SESSION_ABOUT(s)                                                                        \
	LOG_OF(.tenant = (s)->tenant ? tenant_name((s)->tenant) : NULL, .session = (s)->number, \
	       .pid = (s)->pid, .uid = (s)->uid)

/* Lists that tenants are spread over, of whom there may be a thousand. */
enum { SERVER_STATS_USERS = 256 };

/* Bounds of what no tenant is charged for: administrators' newcomers, and refusal.c's. */
enum { SERVER_ADMIN_NEWCOMERS = 8, SERVER_REFUSALS = 64 };

/* Lists that owners are spread over. */
enum { SERVER_OWNERS = 256 };

/* For whom the reactor works; owner.c. */
struct owner {
	struct turn_owner share;
	struct list_node link; /* in one of server->owners */
	uint64_t key;
	uint32_t n_users;               /* that hold a reference */
	uint32_t n_newcomers;           /* connections that wait to be identified */
	uint32_t n_refusals;            /* of a user: connections in server->refusals */
	struct log_limit refusal_limit; /* of a user: lines about these */
	uint64_t bucket_ns, judged_ns;  /* of a user, or one in a tenant: see slow.c */
	bool is_slow;                   /* likewise */
};

/* A socket that is listened on; listen.c. All zero but for the descriptors: not in use. */
struct listener {
	struct server *server;
	const char *path; /* in the server's options */
	int fd;           /* -1: no more sessions */
	int lock_fd;      /* held for as long as the socket's path is ours */
	struct loop_watch *watch;
	struct turn_owner owner; /* of accepting, which serves all clients */
	struct turn_job job;
	uint32_t n_newcomers; /* that came in here */
	bool is_admin;
	bool is_given;  /* the path is not ours */
	bool is_paused; /* as many connections are held as may be: others wait in the socket */
	/* Since it was last seen that none wait there: it was paused; that has lasted for long. */
	bool is_behind, is_shedding;
	struct loop_timer *patience;
};
#define LISTENER_INIT ((struct listener){.fd = -1, .lock_fd = -1})

struct server {
	struct server_options options;
	struct server_stats stats;
	struct list_node sessions;
	uint64_t n_sessions;
	uint64_t n_rings, n_arenas, n_plans; /* of all sessions, now */
	uint32_t n_admin_sessions;           /* of n_sessions; see admin-rights.c */
	uint32_t next_number;
	struct listener clients, admins;
	struct loop_timer *retry; /* accepting again after running out of descriptors */
	struct turn_queue work;   /* what clients make the reactor do beside their rings */
	struct list_node owners[SERVER_OWNERS]; /* see owner.c */
	struct owner common;                    /* of those that have none of their own */
	struct loop_timer *end_timer;           /* wakes the loop while sessions end */
	uint64_t end_ns;                        /* when they began to; 0: they have not */
	struct list_node newcomers;             /* see listen.c */
	uint32_t n_newcomers, max_newcomers;
	uint32_t n_newcomer_users; /* owners that have some */
	uint32_t n_uncharged;      /* connections that are being closed and charged to no tenant */
	uint32_t max_uncharged;    /* of these, newcomers and refusals together */
	int spare_fd; /* given up to refuse a connection when no descriptor is left; -1: was */
	struct discard *spare_discards, *discards; /* for when memory is lacking; their array */
	struct turn_job fault_job;                 /* looks for the session whose page faulted */
	struct turn_owner fault_owner;             /* of fault_job, which serves no tenant */
	uint64_t n_to_check;                       /* sessions that have still to be looked at */
	struct closers *closers;                   /* see discard.c */

	/* See greet.c. */
	struct list_node silent;
	struct loop_timer *silent_timer;
	uint64_t silent_period_ns;
	uint32_t silent_period; /* number of it */
	bool has_late_silent;   /* some have still to be ended */

	/* See refusal.c. */
	struct list_node refusals;
	struct loop_timer *refusal_timer;
	struct log_limit failure_limit, lease_limit, accept_limit;
	struct log_limit end_limits[SERVER_END_LIMITS]; /* by reason, */
	uint32_t end_reasons[SERVER_END_LIMITS];        /* of which these are hashes */
	uint32_t n_refusals;                            /* in the list */
	uint32_t n_refused_users;                       /* owners that have some there */
	struct holds *holds;                            /* see hold.h */

	/* See session-stats.c. */
	struct stats *pages;
	struct list_node stats_users[SERVER_STATS_USERS]; /* tenants with sessions, by number */
	uint32_t n_watchers, n_root_watchers; /* sessions that were handed a page, that page */
	struct charge root_charges[4];
};

/*
 * discard.c: closes, on a thread for that, a descriptor that came from a client and that the broker
 * does not keep. Charged to @account until it is closed.
 * Return: 0; SESSION_E_HOSTILE if that exceeds the account's limit, -ENOMEM: it is closed all the
 * same, and the session must end.
 */
int discard_fd(struct server *server, struct account *account, int fd);
/* Return: 0 or -ENOMEM. */
int discards_init(struct server *server);
/* Nothing may be under way. */
void discards_deinit(struct server *server);
/*
 * discard_fd() of a connection of ours, a Unix socket. The client of @user, which may be NULL, sees
 * its end at once, unless @user is slow. @charge, which may be empty, is taken over and undone when
 * the connection is closed.
 */
void discard_connection(struct server *server, struct account *account, struct owner *user, int fd,
			struct charge *charge);

/*
 * greet.c: a session that says nothing ends. greet_init(): 0 or -ENOMEM; nothing may be expected of
 * a session twice; greet_done() is harmless for one that nothing is expected of.
 */
int greet_init(struct server *server);
void greet_deinit(struct server *server);
void greet_expect(struct session *session);
static inline void greet_done(struct session *session)
{
	list_remove(&session->silent);
}

/* server.c: @server->options.loop is set. */
void server_work_init(struct server *server);

/*
 * owner.c. Owners are reference-counted: an owner stays while references to it exist, and until it
 * owes no time. Getting one cannot fail. owner_unref() takes NULL.
 */
void owners_init(struct server *server);
void owners_deinit(struct server *server);
struct owner *owner_of_user(struct server *server, uid_t uid);
/* Get the one for the session's user in its tenant, or among administrators. */
struct owner *owner_of_client(const struct session *session);
struct owner *owner_ref(struct owner *owner);
/* Get the owner for the session's tenant, or for the administrator. */
struct owner *owner_of_session(const struct session *session);
void owner_unref(struct owner *owner);
/* Go on accepting, if the listener was paused and there is room again. */
void listener_resume(struct listener *listener);
/* Has the reactor run @job for the session, in a later turn or later in this one. */
void session_queue(struct session *session, struct turn_job *job);

/*
 * listen.c: makes the socket and listens. Return: 0; SERVER_E_*; negative errno. What is half made
 * listener_deinit() takes down, with the socket; the lock is kept until listener_unlock().
 */
int listener_init(struct listener *listener, struct server *server, bool is_admin);
void listener_deinit(struct listener *listener);
void listener_unlock(struct listener *listener);
/* Gets a descriptor to give up later, if there is none and one can be had. */
void listeners_take_spare(struct server *server);

/*
 * refusal.c: takes over @fd, a connection that gets no session, to answer its first request with
 * the negative errno @res and the sentence @why, and then close it; that may take long in the name
 * of @account.
 */
void refuse_connection(struct server *server, struct account *account, int fd, pid_t pid, uid_t uid,
		       int res, const char *why);
/* Return: 0 or -ENOMEM. */
int refusals_init(struct server *server);
/* Closes those that still wait. Idempotent. */
void refusals_deinit(struct server *server);

/*
 * slow.c. A system call on a socket of @user's began at @begin_ticks (turn_now()): if such calls
 * have taken the reactor long, @user is slow from now on.
 */
void owner_judge(struct server *server, struct owner *user, uint64_t begin_ticks);

/* Room for the descriptors of an answer. */
union session_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int) * RBK_WIRE_MAX_FDS)];
};

/*
 * admin-rights.c: RBK_FEAT_ADMIN and RBK_FEAT_ADMIN_CHANGE, as far as a client may on the
 * administrators' socket. 0: it gets no session there. Needs its groups.
 */
uint64_t admin_rights(const struct server_admin_options *options, const struct peer *peer);
/* A session that is to have @rights begins, if there is one left, and ends. Return: is there? */
bool admin_session_begin(struct server *server, uint64_t rights);
void admin_session_end(struct server *server);

/* session-connection.c */

/* An answer: @reply heads a structure of @bytes. Ends the session where it does not read them. */
void session_reply(struct session *session, struct rbk_wire_reply *reply, size_t bytes);
/*
 * session_reply() with descriptors. With @is_shared, others have what these are of, so that no
 * charge of that is for what is under way to this client.
 * Return: 0, whether the session goes on or not; SESSION_E_REFUSED: too many descriptors are under
 * way, so the client was answered -EBUSY instead, and what was done for it is to be undone.
 */
int session_reply_fds(struct session *session, struct rbk_wire_reply *reply, size_t bytes,
		      const int *fds, unsigned int n_fds, bool is_shared);
/*
 * session_reply_fds() for sockets: the kernel has whoever sends one wait until it has collected
 * unreachable sockets, of any user, and their users decide how long that takes. So a
 * thread of closers.h calls session_post(), with the connection that session_post_begin() returned
 * on the reactor and keeps, and session_post_end() on the reactor deals with what that returned.
 */
int session_post_begin(struct session *session);
/* For the ends of what needs the connection: lets go of it if the session ends and nothing does. */
void session_let_go(struct session *session);
/* Return: 0 or an errno, not negative. */
int session_post(int fd, const struct rbk_wire_reply *reply, size_t bytes, const int *fds,
		 unsigned int n_fds);
/* Return: as session_reply_fds(). */
int session_post_end(struct session *session, const struct rbk_wire_reply *reply, size_t bytes,
		     int error);
/* An answer that is a result and a sentence; @format may be NULL. */
void session_reply_result(struct session *session, uint32_t type, uint32_t cookie, int res,
			  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* May it change something? Refuses the request if not. */
bool session_may_change(struct session *session, uint32_t type, uint32_t cookie);

/*
 * The request that is being handled, kept in session->waiting, needs what a thread of closers.h is
 * making: nothing more is read until session_resume(), after which @resume handles the request in
 * the session's share of the reactor's time, if the session goes on.
 */
void session_suspend(struct session *session, void (*resume)(struct session *session));
void session_resume(struct session *session);

/* A job was given to the setup thread, or came back from it. */
void session_job_started(struct session *session);
void session_job_done(struct session *session);
/*
 * Gives the setup thread a job of a tenant's session, in the tenant's turn. The job may be of any
 * of the session's objects; its run(), done() and cause are set. A job that releases something goes
 * first of the tenant's, as does every job of a session that ends.
 */
void session_submit(struct session *session, struct offload_job *job);

/*
 * Gives a thread of closers.h a job of a session's ring or arena, in the lane of the account:
 * adding a seal to a memfd that the client can write, faulting in its pages, or dropping what may
 * be the last reference to one. The client decides how long each lasts, perhaps for ever, so no
 * other tenant may wait for such a job. Its run() and done() are set; done() calls
 * session_lane_done() last.
 */
void session_submit_to_lane(struct session *session, struct closers_job *job);
void session_lane_done(struct session *session);

/* session.c */

/* Return: true if the session ends, and only the pool of closers.h is not done with it. */
bool session_waits_for_closers(const struct session *session);

/* End the session if one of its arenas faulted. */
void session_check_faults(struct session *session);

/*
 * session-plan.c, session-arena.c, session-ring.c: requests, already checked for their form. Each
 * answers the client, at once or when the setup thread is done.
 * Return: 0; SESSION_E_HOSTILE.
 */
int session_plan_add(struct session *session, uint32_t cookie, const void *desc, size_t desc_bytes);
/* Likewise of a memfd that is sealed against shrinking; takes *fd if it is to be read. */
int session_plan_add_fd(struct session *session, uint32_t cookie, int *fd, size_t desc_bytes);
int session_plan_remove(struct session *session, uint32_t cookie, uint32_t id);
/* The plan of an id; NULL if there is none that tasks can name. */
struct session_plan *session_plan_find(const struct session *session, uint32_t id);
/*
 * Takes *fd, a memfd, if it is to be mapped, and sets *fd to -1. With @fixes the memfd's pages are
 * kept from being taken away, if that can be done.
 */
int session_arena_add(struct session *session, uint32_t cookie, int *fd, uint64_t bytes,
		      bool fixes);
/* Has the device make it that wants to; session_exporter() is NULL if none does. */
int session_arena_new(struct session *session, uint32_t cookie, uint64_t bytes);
struct executor *session_exporter(const struct session *session);
int session_arena_remove(struct session *session, uint32_t cookie, uint32_t id);
int session_ring_add(struct session *session, uint32_t cookie, uint32_t n_entries);
int session_ring_remove(struct session *session, uint32_t cookie, uint32_t id);

/*
 * session-stats.c: a session begins to be counted for its tenant (0 or -ENOMEM), and ends; the last
 * one takes the tenant's page away.
 */
int session_stats_join(struct session *session);
void session_stats_leave(struct session *session);
/*
 * Fill in what RBK_WIRE_STATS tells the session beside its own figures: sums over its tenant or,
 * for an administrator's session, the figures of server_describe(). Other members of *ret are 0.
 */
void session_describe(const struct session *session, struct rbk_stats_broker *ret);
/*
 * Has the tenant's page made, if there is none and there is room; the tenant gets it a moment
 * later. Return: 0; ACCOUNT_E_QUOTA; negative errno.
 */
int session_stats_want(struct session *session);
/* A plan begins to be counted, and ends; it may not have begun. */
void session_stats_plan_added(struct session_plan *plan);
void session_stats_plan_leaving(struct session_plan *plan);
/* Requests, already checked for their form; each answers the client. */
int session_stats_page(struct session *session, const struct rbk_wire_stats_of *of);
/* Begins a reset, of which the session has no other. The answer comes with its end. */
int session_stats_reset(struct session *session, const struct rbk_wire_stats_of *of);
void session_reset_init(struct session *session);
int session_control(struct session *session, const struct rbk_wire_control *control);
/* session-lease.c: likewise; the answer may come later. */
void session_lease_open(struct session *session, const struct rbk_wire_lease_open *open);
void session_lease_credit(struct session *session, const struct rbk_wire_lease_credit *credit);
void session_lease_object(struct session *session, const struct rbk_wire_lease_object *object);
void session_lease_resize(struct session *session, const struct rbk_wire_lease_resize *resize);
/* Takes *fd if that is what the lease keeps, and sets it to -1. */
void session_lease_cgroup(struct session *session, const struct rbk_wire_lease_cgroup *cgroup,
			  int *fd);
/* session-admin.c: likewise. */
void session_admin_set(struct session *session, const struct rbk_wire_admin_set *set);
void session_admin_evict(struct session *session, const struct rbk_wire_admin_evict *evict);
void session_admin_drain(struct session *session, const struct rbk_wire_admin_drain *drain);
void session_log_level(struct session *session, const struct rbk_wire_control *control);
void session_catalogue(struct session *session, uint32_t cookie);
/* Return: 0 or -ENOMEM. */
int server_stats_init(struct server *server);
void server_stats_deinit(struct server *server);
/* What is charged to tenants on devices; what drivers take for themselves is the broker's. */
uint64_t server_device_bytes(const struct server *server);

/* A session ends: what the setup thread has not begun of its plan is not done any more. */
void session_plan_cancel(struct session_plan *plan);
/* The same for an arena that is being faulted in. */
void session_arena_cancel(struct session_arena *arena);

/* For the end of a session: no task is in flight, no job under way; nobody is answered. */
void session_plan_discard(struct session_plan *plan);
void session_arena_discard(struct session_arena *arena);
/* It is a member of no lease any more, whether tasks are in flight or not. */
void session_leases_discard(struct session *session);

/* Stops a ring: nothing is admitted any more. */
void session_ring_close(struct session_ring *ring);
/*
 * The dispatcher forgets a drained ring, and the setup thread frees it; then it is answered who
 * asked for its removal.
 */
void session_ring_discard(struct session_ring *ring);

/*
 * request.c: handles one message of @n_bytes with @n_fds descriptors; those it takes are set to -1,
 * the caller closes the rest. Return: 0; SESSION_E_HOSTILE with *ret_why set.
 */
int request_handle(struct session *session, const void *message, size_t n_bytes, int *fds,
		   unsigned int n_fds, const char **ret_why);

/* Answers the request at @message, if it has a head, with @res. Return: 0. */
int request_refuse(struct session *session, const void *message, size_t n_bytes, int res);
