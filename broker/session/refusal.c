/* SPDX-License-Identifier: MIT */
/*
 * Connections that are refused with a sentence
 *
 * A client to which its tenant's limits leave no session is told so before its connection is
 * closed. An answer must name the client's request, so the connection waits for the request. Such a
 * refusal is small: a descriptor and a sentence. It is charged to no account, and therefore limited
 * in number and time. A client that does not send HELLO within some seconds has its connection
 * closed. In a full list, users have equal parts: a connection of a user with more than its part is
 * closed for one of a user with less.
 *
 * The log has at most one line a second about each user. A user determines how often it tries, and
 * must not hide why another user is refused.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/number.h"

/* A refusal is closed when the timer fires for the second time. */
static const uint64_t refusal_period_ns = 2000000000;

struct refusal {
	struct list_node link; /* in server->refusals */
	struct server *server;
	struct loop_watch *watch;
	struct account *account; /* account that closing fd occupies; counted */
	struct owner *owner;     /* of the user; counted */
	int fd;
	bool is_old;
	int res;
	char text[RBK_WIRE_TEXT_BYTES];
};

static void refusal_free(struct refusal *refusal)
{
	struct server *server = refusal->server;

	list_remove(&refusal->link);
	loop_unwatch(refusal->watch);
	discard_connection(server, refusal->account, refusal->owner, refusal->fd,
			   &(struct charge){.account = NULL});
	account_unref(refusal->account);
	if (--refusal->owner->n_refusals == 0)
		server->n_refused_users--;
	owner_unref(refusal->owner);
	server->n_refusals--;
	free(refusal);
	listener_resume(&server->admins);
}

static void refusal_answer(struct refusal *refusal, const struct rbk_wire_request *request)
{
	struct rbk_wire_reply reply = {
		.type = request->type,
		.cookie = request->cookie,
		.res = refusal->res,
	};

	snprintf(reply.text, sizeof(reply.text), "%s", refusal->text);
	/* A client that cannot receive the answer is not told again. */
	if (send(refusal->fd, &reply, sizeof(reply), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_debug(LOG_DETAIL, "cannot send a refusal to a client: %s", strerror(errno));
}

/* Return: true if the connection is to be read again. */
static bool refusal_read(struct refusal *refusal)
{
	struct rbk_wire_request request;
	struct iovec iov = {.iov_base = &request, .iov_len = sizeof(request)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	/* Peek first: receiving would make the kernel close the descriptors here. */
	ssize_t n = recvmsg(refusal->fd, &message, MSG_DONTWAIT | MSG_PEEK);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n == (ssize_t)sizeof(request) && !(message.msg_flags & MSG_CTRUNC)) {
		/* Receive the request: closing with unread messages would discard the answer. */
		recv(refusal->fd, &request, sizeof(request), MSG_DONTWAIT);
		refusal_answer(refusal, &request);
	}
	return false;
}

static void on_readable(void *data, uint32_t events)
{
	struct refusal *refusal = data;
	struct turn *turn = loop_current(refusal->server->options.loop);
	struct turn_source outer = turn_enter(turn, RBK_TURN_CONNECTIONS, 0);

	if (refusal_read(refusal))
		loop_rewatch(refusal->watch);
	else
		refusal_free(refusal);
	turn_leave(turn, outer);
}

static void on_refusal_timer(void *data)
{
	struct server *server = data;

	list_for_each_safe (node, &server->refusals) {
		struct refusal *refusal = container_of(node, struct refusal, link);

		if (refusal->is_old)
			refusal_free(refusal);
		else
			refusal->is_old = true;
	}
	if (server->n_refusals > 0)
		loop_timer_arm(server->refusal_timer, refusal_period_ns);
}

int refusals_init(struct server *server)
{
	list_init(&server->refusals);
	return loop_timer_new(server->options.loop, on_refusal_timer, server,
			      &server->refusal_timer);
}

void refusals_deinit(struct server *server)
{
	list_for_each_safe (node, &server->refusals)
		refusal_free(container_of(node, struct refusal, link));
	server->refusal_timer = loop_timer_free(server->refusal_timer);
}

static void log_refusal(struct owner *owner, pid_t pid, uid_t uid, const char *why)
{
	uint64_t n_unlogged;

	if (!log_limit_pass(&owner->refusal_limit, clock_now_ns(), &n_unlogged))
		return;
	if (n_unlogged > 0)
		log_warning_of(
			LOG_OF(.pid = pid, .uid = uid), LOG_SESSION_REFUSED,
			"refused a connection of pid %d, and %llu before it of the same user: %s",
			(int)pid, ull(n_unlogged), why);
	else
		log_warning_of(LOG_OF(.pid = pid, .uid = uid), LOG_SESSION_REFUSED,
			       "refused a connection of pid %d: %s", (int)pid, why);
}

/* Make room for a connection of @owner in a full list. Return: false if it already has its part. */
static bool make_room(struct server *server, const struct owner *owner)
{
	const uint32_t part =
		SERVER_REFUSALS / (server->n_refused_users + (owner->n_refusals == 0));
	struct refusal *found = NULL;

	if (owner->n_refusals >= part)
		return false;
	/* Find the oldest refusal of the user with most refusals. */
	list_for_each (node, &server->refusals) {
		struct refusal *refusal = container_of(node, struct refusal, link);

		if (!found || refusal->owner->n_refusals > found->owner->n_refusals)
			found = refusal;
	}
	refusal_free(found);
	return true;
}

void refuse_connection(struct server *server, struct account *account, int fd, pid_t pid, uid_t uid,
		       int res, const char *why)
{
	struct refusal *refusal = NULL;
	struct owner *owner = owner_of_user(server, uid);

	log_refusal(owner, pid, uid, why);
	if (!owner->is_slow && (server->n_refusals < SERVER_REFUSALS || make_room(server, owner)))
		refusal = calloc(1, sizeof(*refusal));
	if (!refusal) {
		discard_connection(server, account, owner, fd, &(struct charge){.account = NULL});
		owner_unref(owner);
		return;
	}
	refusal->server = server;
	refusal->account = account_ref(account);
	refusal->owner = owner;
	if (owner->n_refusals++ == 0)
		server->n_refused_users++;
	refusal->fd = fd;
	refusal->res = res;
	snprintf(refusal->text, sizeof(refusal->text), "no session: %s", why);
	list_append(&server->refusals, &refusal->link);
	if (server->n_refusals++ == 0)
		loop_timer_arm(server->refusal_timer, refusal_period_ns);
	/* Most clients have sent HELLO by now. */
	if (!refusal_read(refusal) ||
	    loop_watch(server->options.loop, fd, POLLIN, on_readable, refusal, &refusal->watch))
		refusal_free(refusal);
}
