#pragma once
/* SPDX-License-Identifier: MIT */
/* What server.c, session.c and request.c share; nobody outside session/ includes it. */
#include <sys/socket.h>

#include "session/server.h"
#include "session/session.h"
#include "util/list.h"
#include "util/log.h"

enum { SERVER_END_LIMITS = 64 /* reasons to end a session, told apart in the log */ };

struct loop_timer;

/* For the log. */
#define SESSION_ABOUT(s)                                                                    \
	LOG_OF(.tenant = tenant_name((s)->tenant), .session = (s)->number, .pid = (s)->pid, \
	       .uid = (s)->uid)

struct server {
	struct server_options options;
	struct server_stats stats;
	struct list_node sessions;
	uint64_t n_sessions;
	uint64_t n_rings, n_arenas, n_plans; /* of all sessions, now */
	uint32_t next_number;
	int fd;      /* listening; -1: no more sessions */
	int lock_fd; /* held for as long as the socket's path is ours */
	struct loop_watch *watch;
	struct loop_timer *retry; /* accepting again after running out of descriptors */
	bool needs_settling;      /* a session is ending and may be able to go on */
	uint64_t settling_ns;     /* when this turn's settling began */
	struct offload *closer;   /* see discard.c */
	uint64_t n_discards;

	/* See refusal.c. */
	struct list_node refusals;
	struct loop_timer *refusal_timer;
	struct log_limit refusal_limit, failure_limit;
	struct log_limit end_limits[SERVER_END_LIMITS]; /* by reason, */
	uint32_t end_reasons[SERVER_END_LIMITS];        /* of which these are hashes */
	uint32_t n_refusals;                            /* in the list */
	struct list_node holds;                         /* see hold.c */
	struct loop_timer *hold_timer;
};

/*
 * discard.c: closes, on a thread of its own, a descriptor that came from a client and that nobody
 * keeps. Charged to @account until it is closed.
 * Return: 0; SESSION_E_HOSTILE if that exceeds the account's limit, -ENOMEM: it is closed all the
 * same, and the session must end.
 */
int discard_fd(struct server *server, struct account *account, int fd);

/*
 * refusal.c: takes over @fd, a connection that gets no session, to answer its first request with
 * -EDQUOT and the sentence @why, and then close it.
 */
void refuse_connection(struct server *server, int fd, pid_t pid, uid_t uid, const char *why);
/* Return: 0 or -ENOMEM. */
int refusals_init(struct server *server);
/* Closes those that still wait. Idempotent. */
void refusals_deinit(struct server *server);

/* Room for the descriptors of a message. */
union session_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int) * RBK_WIRE_MAX_FDS)];
};

/* session.c: takes the descriptors out of a received message. Return: how many. */
unsigned int session_take_fds(struct msghdr *message, int fds[RBK_WIRE_MAX_FDS]);

/*
 * hold.c: keeps the charges of an exported arena that was removed until nobody but us holds the
 * dma-buf. hold_new() comes first, so that nothing can fail later: 0; -ENOMEM. hold_leave() takes
 * everything over and frees @hold in the end, at once if @fd is -1.
 */
enum { HOLD_CHARGES = 3 };
struct hold;
int holds_init(struct server *server);
/* Forgets what clients still have: the broker ends. */
void holds_deinit(struct server *server);
int hold_new(struct server *server, struct hold **ret);
void hold_leave(struct hold *hold, int fd, struct charge *const charges[HOLD_CHARGES]);

/* session.c, for request.c */

/* An answer: @reply heads a structure of @bytes. Ends the session where it does not read them. */
void session_reply(struct session *session, struct rbk_wire_reply *reply, size_t bytes,
		   const int *fds, unsigned int n_fds);
/* An answer that is a result and a sentence; @format may be NULL. */
void session_reply_result(struct session *session, uint32_t type, uint32_t cookie, int res,
			  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A job was given to the setup thread, or came back from it. */
void session_job_started(struct session *session);
void session_job_done(struct session *session);

/* For server_settle(): goes on with an end, which may free the session. */
void session_settle(struct session *session);
/* Ends the session if one of its arenas faulted. */
void session_check_faults(struct session *session);

/*
 * session-plan.c, session-arena.c, session-ring.c: requests, already checked for their form. Each
 * answers the client, at once or when the setup thread is done.
 * Return: 0; SESSION_E_HOSTILE.
 */
int session_plan_add(struct session *session, uint32_t cookie, const void *desc, size_t desc_bytes);
int session_plan_remove(struct session *session, uint32_t cookie, uint32_t id);
/* The plan of an id; NULL if there is none that tasks can name. */
struct session_plan *session_plan_find(const struct session *session, uint32_t id);
/* Takes *fd if it is to be mapped, and sets it to -1. It is a memfd. */
int session_arena_add(struct session *session, uint32_t cookie, int *fd, uint64_t bytes);
/* Has the device make it that wants to; session_exporter() is NULL if none does. */
int session_arena_new(struct session *session, uint32_t cookie, uint64_t bytes);
struct executor *session_exporter(const struct session *session);
int session_arena_remove(struct session *session, uint32_t cookie, uint32_t id);
int session_ring_add(struct session *session, uint32_t cookie, uint32_t n_entries);
int session_ring_remove(struct session *session, uint32_t cookie, uint32_t id);

/* For the end of a session: no task is in flight, no job under way; nobody is answered. */
void session_plan_discard(struct session_plan *slot);
void session_arena_discard(struct session_arena *slot);

/* Stops a ring: nothing is admitted any more. */
void session_ring_close(struct session_ring *ring);
/* Frees a drained ring and answers who asked for its removal. */
void session_ring_discard(struct session_ring *ring);

/*
 * request.c: handles one message of @n_bytes with @n_fds descriptors; those it takes are set to -1,
 * the caller closes the rest. Return: 0; SESSION_E_HOSTILE with *ret_why set.
 */
int request_handle(struct session *session, const void *message, size_t n_bytes, int *fds,
		   unsigned int n_fds, const char **ret_why);

/* Answers the request at @message, if it has a head, with @res. Return: 0. */
int request_refuse(struct session *session, const void *message, size_t n_bytes, int res);
