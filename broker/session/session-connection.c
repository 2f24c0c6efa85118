/* SPDX-License-Identifier: MIT */
/*
 * Connections of sessions: answers, jobs, and the end
 *
 * The plans, arenas, rings and leases of a session use the functions of this file to answer the
 * client, to give jobs to other threads, and to end the session when the client breaks a rule.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/number.h"

enum {
	/* Unread bytes of answers that are not charged. */
	SESSION_UNREAD_BYTES = 4096,
	/* Unread bytes of answers at which a session ends if its tenant has no room for them. */
	SESSION_UNREAD_MOST = 16384,
};

/* An answer to a client of a slow user, to be sent by a thread. */
struct parcel {
	struct closers_job job;
	struct session *session;
	int fd; /* the connection */
	int error;
	int sent_fd; /* -1: none */
	size_t n_bytes;
	_Alignas(8) char bytes[]; /* struct rbk_wire_reply and its message */
};

const char *session_owner(const struct session *session)
{
	return session->tenant ? tenant_name(session->tenant) : "(administrators)";
}

/* Disconnect; unread answers stay charged to the account. */
static void session_disconnect(struct session *session)
{
	charge_deinit(&session->unread);
	hold_leave_connection(steal_ptr(session->hold), steal_fd(&session->fd), session->user,
			      session->account,
			      (struct charge *[]){&session->charges[SESSION_CHARGE_FD],
						  &session->sent.charge, NULL},
			      session->rights != 0);
	session->has_admin_place = false;
	hold_sent_deinit(&session->sent);
}

void session_let_go(struct session *session)
{
	if (session->is_ending && session->fd >= 0 && !session->is_receiving &&
	    session->n_posting == 0)
		session_disconnect(session);
}

/* ---- Jobs ---- */

void session_submit(struct session *session, struct offload_job *job)
{
	restraint_job(session->owner);
	job->owner = &session->tenant->setup;
	job->weight = session->tenant->weight;
	job->tenant = session->tenant->number;
	/* Memory is released without waiting for requests of the tenant's other sessions. */
	job->goes_first = session->is_ending || job->cause == OFFLOAD_PLAN_RELEASE ||
			  job->cause == OFFLOAD_ARENA_UNMAP;
	offload_submit(session->server->options.offload, job);
}

void session_suspend(struct session *session, void (*resume)(struct session *session))
{
	session->resume = resume;
	session->is_suspended = true;
}

void session_resume(struct session *session)
{
	session->is_suspended = false;
	if (!session->is_ending)
		session_queue(session, &session->read_job);
}

void session_job_started(struct session *session)
{
	session->n_jobs++;
}

void session_job_done(struct session *session)
{
	session->n_jobs--;
	if (session->is_ending)
		session_queue(session, &session->settle_job);
}

void session_submit_to_lane(struct session *session, struct closers_job *job)
{
	session_job_started(session);
	session->n_lane_jobs++;
	restraint_job(session->owner);
	closers_submit(session->server->closers, session->account, job);
}

void session_lane_done(struct session *session)
{
	session->n_lane_jobs--;
	session_job_done(session);
}

/* ---- Answers ---- */

/*
 * Charge the kernel's memory for unread answers if it may exceed what a client that reads them has.
 * The kernel is queried only every few answers.
 */
static void charge_unread(struct session *session, size_t bytes)
{
	/* The kernel counts at least this for each message. */
	enum { MESSAGE_BYTES = 1024 };
	uint64_t n_bytes;
	int r;

	session->unread_bytes += bytes + MESSAGE_BYTES;
	if (session->unread_bytes <= SESSION_UNREAD_BYTES)
		return;
	n_bytes = hold_unread_bytes(session->fd);
	session->unread_bytes = n_bytes;
	if (n_bytes <= SESSION_UNREAD_BYTES) {
		charge_deinit(&session->unread);
		return;
	}
	r = account_charge_change(session->account, &session->unread, ACCOUNT_HOST_BYTES, n_bytes);
	if (r && holds_look(session->server, session->account))
		r = account_charge_change(session->account, &session->unread, ACCOUNT_HOST_BYTES,
					  n_bytes);
	/* A tenant without room learns so from answers, some of which may be unread. */
	if (r && n_bytes > SESSION_UNREAD_MOST)
		session_end(session, true,
			    "the client's unread answers would exceed its tenant's limit of host "
			    "memory");
}

int session_post(int fd, const struct rbk_wire_reply *reply, size_t bytes, const int *fds,
		 unsigned int n_fds)
{
	union session_control control = {.header = {0}};
	struct iovec iov = {.iov_base = (void *)reply, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *header;

	if (n_fds > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
	}
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

/*
 * Handle the result @error of sending an answer of @bytes.
 * Return: 0; SESSION_E_REFUSED: too many descriptors are in flight.
 */
static int session_sent(struct session *session, size_t bytes, int error)
{
	switch (error) {
	case 0:
		charge_unread(session, bytes);
		return 0;
	case ETOOMANYREFS:
		return SESSION_E_REFUSED;
	case EAGAIN:
		session_end(session, true, "the client does not read its answers");
		return 0;
	case EPIPE:
	case ECONNRESET:
		session_end(session, false, "the client has left");
		return 0;
	default:
		session_fail(session, "the broker cannot send the client an answer", error);
		return 0;
	}
}

static void session_refuse_fds(struct session *session, const struct rbk_wire_reply *reply)
{
	session_reply_result(session, reply->type, reply->cookie, -EBUSY,
			     "too many descriptors are in flight, in answers that clients have not "
			     "read");
}

int session_post_begin(struct session *session)
{
	session->n_posting++;
	return session->fd;
}

int session_post_end(struct session *session, const struct rbk_wire_reply *reply, size_t bytes,
		     int error)
{
	int r;

	session->n_posting--;
	r = session->is_ending ? 0 : session_sent(session, bytes, error);
	if (r)
		session_refuse_fds(session, reply);
	session_let_go(session);
	return r;
}

static void parcel_free(struct parcel *parcel)
{
	close_fd(parcel->sent_fd);
	free(parcel);
}

static void parcel_run(struct closers_job *job)
{
	struct parcel *parcel = container_of(job, struct parcel, job);

	parcel->error = session_post(parcel->fd, (const struct rbk_wire_reply *)parcel->bytes,
				     parcel->n_bytes, &parcel->sent_fd, parcel->sent_fd >= 0);
}

static void parcel_done(struct closers_job *job)
{
	struct parcel *parcel = container_of(job, struct parcel, job);
	struct session *session = parcel->session;

	if (session_post_end(session, (const struct rbk_wire_reply *)parcel->bytes, parcel->n_bytes,
			     parcel->error))
		session_end(session, true, "too many descriptors are in flight to the client");
	parcel_free(parcel);
	session_lane_done(session);
}

/* Return: NULL if out of memory or descriptors. */
static struct parcel *parcel_new(const struct rbk_wire_reply *reply, size_t bytes, int sent_fd)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel) + bytes);

	if (!parcel)
		return NULL;
	parcel->job = (struct closers_job){.run = parcel_run, .done = parcel_done};
	parcel->n_bytes = bytes;
	memcpy(parcel->bytes, reply, bytes);
	/* Duplicate the descriptor, which the caller may close meanwhile. */
	parcel->sent_fd = sent_fd < 0 ? -1 : fcntl(sent_fd, F_DUPFD_CLOEXEC, 0);
	if (sent_fd >= 0 && parcel->sent_fd < 0) {
		free(parcel);
		return NULL;
	}
	return parcel;
}

/*
 * Send as session_reply_fd() does, by a closers.h thread, for a slow user. A client with too many
 * descriptors in flight is not answered; its session ends.
 */
static void session_send_slowly(struct session *session, const struct rbk_wire_reply *reply,
				size_t bytes, int sent_fd)
{
	struct parcel *parcel = parcel_new(reply, bytes, sent_fd);

	if (!parcel) {
		session_fail(session, "the broker cannot send the client an answer", ENOMEM);
		return;
	}
	parcel->session = session;
	parcel->fd = session_post_begin(session);
	session_submit_to_lane(session, &parcel->job);
}

/* Send an answer and, unless it is -1, a descriptor. Return: as session_sent(). */
static int session_send(struct session *session, const struct rbk_wire_reply *reply, size_t bytes,
			int sent_fd)
{
	uint64_t begin_ticks;
	int error;

	if (session->user->is_slow) {
		session_send_slowly(session, reply, bytes, sent_fd);
		return 0;
	}
	begin_ticks = turn_now(session->server->work.turn);
	error = session_post(session->fd, reply, bytes, &sent_fd, sent_fd >= 0);
	owner_judge(session->server, session->user, begin_ticks);
	return session_sent(session, bytes, error);
}

void session_reply(struct session *session, struct rbk_wire_reply *reply, size_t bytes)
{
	if (!session->is_ending)
		(void)session_send(session, reply, bytes, -1);
}

int session_reply_fd(struct session *session, struct rbk_wire_reply *reply, size_t bytes, int fd,
		     bool is_shared)
{
	int r;

	if (session->is_ending)
		return 0;
	if (is_shared && hold_sent_add(&session->sent, session->server, session->account)) {
		session_reply_result(session, reply->type, reply->cookie, -EBUSY,
				     "the session has reached its limit of descriptors in answers "
				     "that it has not read");
		return SESSION_E_REFUSED;
	}
	r = session_send(session, reply, bytes, fd);
	if (r)
		session_refuse_fds(session, reply);
	return r;
}

void session_reply_result(struct session *session, uint32_t type, uint32_t cookie, int res,
			  const char *format, ...)
{
	struct rbk_wire_reply reply = {.type = type, .cookie = cookie, .res = res};
	va_list args;

	if (format) {
		va_start(args, format);
		vsnprintf(reply.text, sizeof(reply.text), format, args);
		va_end(args);
	}
	session_reply(session, &reply, sizeof(reply));
}

bool session_may_change(struct session *session, uint32_t type, uint32_t cookie)
{
	if (session->rights & RBK_FEAT_ADMIN_CHANGE)
		return true;
	if (session->rights)
		session_reply_result(session, type, cookie, -EPERM,
				     "uid %u may only read: root, the user that brokerd runs as, "
				     "and admin-users may make changes",
				     (unsigned int)session->uid);
	else
		session_reply_result(session, type, cookie, -EPERM,
				     "changes can only be made at the administrators' socket");
	return false;
}

/* ---- The end ---- */

static void shut_run(struct closers_job *job)
{
	/* The session keeps the descriptor until shut_done(). */
	shutdown(container_of(job, struct session, shut_job)->fd, SHUT_RDWR);
}

static void shut_done(struct closers_job *job)
{
	struct session *session = container_of(job, struct session, shut_job);

	session->n_posting--;
	session_let_go(session);
	session_lane_done(session);
}

static void session_shut_slowly(struct session *session)
{
	session->shut_job = (struct closers_job){.run = shut_run, .done = shut_done};
	session_post_begin(session);
	session_submit_to_lane(session, &session->shut_job);
}

/* Return the limit of a reason, or reuse the limit of the reason logged least recently. */
static struct log_limit *end_limit(struct server *server, const char *why)
{
	uint32_t hash = 1, oldest = 0;

	for (const char *c = why; *c; c++)
		hash = hash * 31 + (unsigned char)*c;
	for (uint32_t i = 0; i < SERVER_END_LIMITS; i++) {
		if (server->end_limits[i].logged_ns && server->end_reasons[i] == hash)
			return &server->end_limits[i];
		if (server->end_limits[i].logged_ns < server->end_limits[oldest].logged_ns)
			oldest = i;
	}
	server->end_reasons[oldest] = hash;
	return &server->end_limits[oldest];
}

/*
 * A client can connect and break a rule within microseconds: log one line a second for each rule.
 */
static void log_end(struct session *session, const char *why)
{
	uint64_t n_unlogged;

	if (!log_limit_pass(end_limit(session->server, why), clock_now_ns(), &n_unlogged))
		return;
	log_warning_of(SESSION_ABOUT(session), LOG_SESSION_CLOSED,
		       "session %u (\"%s\", pid %d, uid %u, tenant %s) closed: %s", session->number,
		       session->name, (int)session->pid, (unsigned int)session->uid,
		       session_owner(session), why);
	if (n_unlogged > 0)
		log_warning_of(SESSION_ABOUT(session), LOG_SESSION_CLOSED,
			       "%llu more session%s closed for the same reason", ull(n_unlogged),
			       n_unlogged == 1 ? " was" : "s were");
}

void session_fail(struct session *session, const char *what, int error)
{
	char why[160];

	if (session->is_ending)
		return;
	snprintf(why, sizeof(why), "%s: %s", what, strerror(error));
	log_end(session, why);
	session_end(session, false, why);
}

void session_end(struct session *session, bool is_hostile, const char *why)
{
	struct server *server = session->server;

	if (session->is_ending)
		return;
	session->is_ending = true;
	session->owner->n_ending++;
	greet_done(session);
	if (is_hostile) {
		server->stats.sessions_ended_hostile++;
		if (session->tenant)
			session->tenant->past.n_ended_hostile++;
		log_end(session, why);
	} else {
		log_debug_of(SESSION_ABOUT(session), LOG_SESSION_ENDED, "session %u ended: %s",
			     session->number, why);
	}

	session->watch = loop_unwatch(session->watch);
	if (server->options.restarter.session_ended)
		server->options.restarter.session_ended(server->options.restarter.context,
							session->number);
	/* Close rings first: a client whose connection is closed finds its rings closed as well. */
	session->end_objects(session);
	if (session->user->is_slow)
		session_shut_slowly(session);
	else
		shutdown(session->fd, SHUT_RDWR);
	session_let_go(session);
	turn_queue_withdraw(&server->work, &session->read_job);
	turn_queue_withdraw(&server->work, &session->reset.job);
	session_queue(session, &session->settle_job);
}
