/* SPDX-License-Identifier: MIT */
/*
 * Sessions: a connection from its first byte to its last charge
 *
 * A session is never freed where its end is found. session_end() closes what the client can reach
 * and marks the session; once per turn server_settle() goes on with every session that is ending,
 * in order: rings whose tasks have drained, then, with nothing in flight and no job on the setup
 * thread, plans and arenas, then the session itself. So whoever holds a pointer to a session, a
 * ring or a task during a turn may keep it until the turn is over.
 */
#include "session/session.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "loop/loop.h"
#include "session/peer.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"

enum {
	/* Messages handled before the next session has its turn. */
	SESSION_MESSAGE_BATCH = 8,
	SESSION_FDS = 1,
};

/* Of one turn: no more messages of a session are handled after it, and no more rings freed. */
static const uint64_t turn_ns = 500000;

unsigned int session_take_fds(struct msghdr *message, int fds[RBK_WIRE_MAX_FDS])
{
	unsigned int n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		const int *received = (const int *)CMSG_DATA(c);
		size_t n_received = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n_received; i++) {
			if (n < RBK_WIRE_MAX_FDS)
				fds[n++] = received[i];
			else
				close(received[i]);
		}
	}
	return n;
}

/*
 * Return: 1 if a message was handled; 0 if there is none; negative if the session is over, with
 * *ret_why set where the client broke a rule.
 */
static int session_receive(struct session *session, const char **ret_why)
{
	static _Alignas(8) char buffer[RBK_WIRE_MAX_BYTES];
	int fds[RBK_WIRE_MAX_FDS] = {-1, -1, -1, -1};
	union session_control control;
	struct iovec iov = {.iov_base = buffer, .iov_len = sizeof(buffer)};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	unsigned int n_fds;
	ssize_t n;
	int r;

	n = recvmsg(session->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;

	/* Also without a byte: an empty message can carry them. */
	n_fds = session_take_fds(&message, fds);
	if (message.msg_flags & MSG_CTRUNC && n_fds == RBK_WIRE_MAX_FDS) {
		*ret_why = "it sent more descriptors than a message may have";
		r = SESSION_E_HOSTILE;
	} else if (message.msg_flags & MSG_CTRUNC) {
		/* Our limit, not the client's fault. */
		r = request_refuse(session, buffer, (size_t)n, -EMFILE);
	} else if (n == 0) {
		*ret_why = n_fds > 0 ? "it sent an empty message" : NULL;
		r = SESSION_E_HOSTILE;
	} else if (message.msg_flags & MSG_TRUNC) {
		*ret_why = "it sent a message longer than the protocol's";
		r = SESSION_E_HOSTILE;
	} else {
		r = request_handle(session, buffer, (size_t)n, fds, n_fds, ret_why);
	}
	for (unsigned int i = 0; i < n_fds; i++)
		if (fds[i] >= 0 && discard_fd(session->server, session->account, fds[i]))
			r = SESSION_E_HOSTILE;
	return r ? -1 : 1;
}

static void on_readable(void *data, uint32_t events)
{
	struct session *session = data;
	const uint64_t begin_ns = clock_now_ns();
	const char *why = NULL;
	int r = 1;

	for (unsigned int i = 0; i < SESSION_MESSAGE_BATCH && r > 0; i++) {
		/* A large ring alone takes milliseconds to make. */
		if (i > 0 && clock_now_ns() - begin_ns > turn_ns)
			break;
		r = session_receive(session, &why);
		if (session->is_ending)
			return;
	}
	if (r < 0)
		session_end(session, why != NULL, why ? why : "it disconnected");
	else if (r > 0)
		loop_rewatch(session->watch);
}

void session_reply(struct session *session, struct rbk_wire_reply *reply, size_t bytes,
		   const int *fds, unsigned int n_fds)
{
	union session_control control = {.header = {0}};
	struct iovec iov = {.iov_base = reply, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *header;

	if (session->is_ending)
		return;
	if (n_fds > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
	}
	if (sendmsg(session->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return;
	if (errno == EAGAIN)
		session_end(session, true, "it does not read its answers");
	else
		session_end(session, false, "it cannot be answered");
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
	session_reply(session, &reply, sizeof(reply), NULL, 0);
}

void session_job_started(struct session *session)
{
	session->n_jobs++;
}

void session_job_done(struct session *session)
{
	session->n_jobs--;
	if (session->is_ending)
		session->server->needs_settling = true;
}

/* What session_allocate() takes. */
static uint64_t session_host_bytes(const struct server *server)
{
	const struct server_limits *limits = &server->options.limits;

	return sizeof(struct session) + SERVER_OBSERVED_BYTES +
	       (limits->max_arenas + 1) * 2 * sizeof(void *) +
	       limits->max_plans * (2 * sizeof(void *) + sizeof(uint16_t)) +
	       limits->max_rings * sizeof(void *);
}

static int session_allocate(struct session *session)
{
	const struct server_limits *limits = &session->server->options.limits;

	session->n_arenas = limits->max_arenas + 1; /* 0 is never used */
	session->n_plans = limits->max_plans;
	session->arenas = calloc(session->n_arenas, sizeof(*session->arenas));
	session->arena_slots = calloc(session->n_arenas, sizeof(*session->arena_slots));
	session->plans = calloc(session->n_plans, sizeof(*session->plans));
	session->plan_slots = calloc(session->n_plans, sizeof(*session->plan_slots));
	session->plan_generations = calloc(session->n_plans, sizeof(*session->plan_generations));
	session->rings = calloc(limits->max_rings, sizeof(*session->rings));
	if (!session->arenas || !session->arena_slots || !session->plans || !session->plan_slots ||
	    !session->plan_generations || !session->rings)
		return error_origin(-ENOMEM);
	return 0;
}

static void session_deallocate(struct session *session)
{
	free(session->arenas);
	free(session->arena_slots);
	free(session->plans);
	free(session->plan_slots);
	free(session->plan_generations);
	free(session->rings);
	for (unsigned int i = 0; i < ARRAY_SIZE(session->charges); i++)
		charge_deinit(&session->charges[i]);
	session_stats_leave(session);
	if (session->rights)
		admin_session_end(session->server);
	tenant_unref(session->tenant);
	loop_unwatch(session->watch);
	close_fd(session->fd);
	free(session);
}

const char *session_owner(const struct session *session)
{
	return session->tenant ? tenant_name(session->tenant) : "(administrators)";
}

/* Why a connection gets no session, and what it is answered with. */
struct refusal_reason {
	int res;
	const char *why;
};

/* Return: 0; SESSION_E_REFUSED. */
static int session_find_rights(struct session *session, const struct peer *peer,
			       struct refusal_reason *ret)
{
	struct server *server = session->server;
	uint64_t rights = admin_rights(&server->options.admin, peer);

	if (!rights) {
		*ret = (struct refusal_reason){
			-EACCES, "this socket is for administrators: root, the user that brokerd "
				 "runs as, the members of admin-group and admin-users"};
		return SESSION_E_REFUSED;
	}
	if (!admin_session_begin(server, rights)) {
		*ret = (struct refusal_reason){
			-EDQUOT, "there are as many sessions of administrators as there may be"};
		return SESSION_E_REFUSED;
	}
	session->rights = rights;
	return 0;
}

/* Return: 0; SESSION_E_REFUSED; negative errno. */
static int session_identify(struct session *session, bool is_admin, struct peer_identity *identity,
			    struct refusal_reason *ret)
{
	struct tenants *tenants = session->server->options.tenants;
	uint32_t kinds = is_admin ? POLICY_MATCH_GID : policy_match_kinds(tenants_policy(tenants));
	int r = peer_identity_init(identity, session->fd, kinds | PEER_COMM);

	if (r)
		return error_fold(r);
	session->pid = identity->peer.pid;
	session->uid = identity->peer.uid;
	memcpy(session->comm, identity->comm, sizeof(session->comm));
	if (is_admin) {
		session->account = tenants_broker_account(tenants);
		return session_find_rights(session, &identity->peer, ret);
	}
	session->tenant = tenants_find(tenants, &identity->peer);
	session->account = session->tenant->account;
	session->is_late = session->tenant->is_drained;
	return 0;
}

/* Return: 0; ACCOUNT_E_QUOTA. */
static int session_charge(struct session *session)
{
	int r;

	r = account_charge(session->account, &session->charges[0], ACCOUNT_SESSIONS, 1);
	if (r == 0)
		r = account_charge(session->account, &session->charges[1], ACCOUNT_FDS,
				   SESSION_FDS);
	if (r == 0)
		r = account_charge(session->account, &session->charges[2], ACCOUNT_HOST_BYTES,
				   session_host_bytes(session->server));
	return r;
}

static void observe(struct session *session, const struct peer_identity *identity)
{
	const struct server_observer *observer = &session->server->options.observer;
	const struct tenants *tenants = session->server->options.tenants;

	if (session->tenant && observer->session_added)
		observer->session_added(
			observer->context, session, identity->pidfd,
			tenants_is_cgroup(tenants, session->tenant) ? identity->cgroup : NULL);
}

/* Return: 0; SESSION_E_REFUSED; negative errno. */
static int session_init(struct session *session, bool is_admin, struct peer_identity *identity,
			struct refusal_reason *ret, char text[ACCOUNT_TEXT_BYTES])
{
	struct server *server = session->server;
	int r;

	r = session_identify(session, is_admin, identity, ret);
	if (r)
		return r;
	if (session_charge(session)) {
		*ret = (struct refusal_reason){-EDQUOT, account_explain(session->account, text)};
		return SESSION_E_REFUSED;
	}
	r = session_allocate(session);
	if (r == 0)
		r = session_stats_join(session);
	if (r)
		return r;
	return loop_watch(server->options.loop, session->fd, POLLIN, on_readable, session,
			  &session->watch);
}

int session_new(struct server *server, int fd, bool is_admin, struct session **ret)
{
	struct session *session = calloc(1, sizeof(*session));
	struct peer_identity identity = PEER_IDENTITY_INIT;
	struct refusal_reason reason = {.res = 0};
	char text[ACCOUNT_TEXT_BYTES];
	int r;

	if (!session) {
		close(fd);
		return error_origin(-ENOMEM);
	}
	session->server = server;
	session->fd = fd;
	session->number = ++server->next_number;
	list_init(&session->link);
	list_init(&session->leases);
	list_init(&session->lease_waits);

	r = session_init(session, is_admin, &identity, &reason, text);
	if (r) {
		if (r == SESSION_E_REFUSED)
			refuse_connection(server, steal_fd(&session->fd), session->pid,
					  session->uid, reason.res, reason.why);
		session_deallocate(session);
		peer_identity_deinit(&identity);
		return r;
	}

	observe(session, &identity);
	peer_identity_deinit(&identity);
	list_append(&server->sessions, &session->link);
	server->n_sessions++;
	log_debug_of(SESSION_ABOUT(session), LOG_SESSION_CONNECTED,
		     "session %u: connected, pid %d, uid %u, tenant %s", session->number,
		     (int)session->pid, (unsigned int)session->uid, session_owner(session));
	*ret = session;
	return 0;
}

/* That of a reason, or else of one that has not been given for longest. */
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

/* Connecting and breaking a rule takes a client microseconds: one line a second for each rule. */
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
			       "%llu session%s closed likewise, and not logged",
			       (unsigned long long)n_unlogged, n_unlogged == 1 ? " was" : "s were");
}

void session_end(struct session *session, bool is_hostile, const char *why)
{
	struct server *server = session->server;

	if (session->is_ending)
		return;
	session->is_ending = true;
	if (is_hostile) {
		server->stats.sessions_ended_hostile++;
		log_end(session, why);
	} else {
		log_debug_of(SESSION_ABOUT(session), LOG_SESSION_ENDED, "session %u ended: %s",
			     session->number, why);
	}

	session->watch = loop_unwatch(session->watch);
	session->fd = close_fd(session->fd);
	for (uint32_t i = 0; i < server->options.limits.max_rings; i++)
		if (session->rings[i])
			session_ring_close(session->rings[i]);
	server->needs_settling = true;
}

/*
 * Frees rings that have drained. That answers whoever asked for it, which may be what ends the
 * session and closes its other rings. One that was full takes milliseconds to unmap, so what is too
 * much for this turn is left for the next. Return: is one left?
 */
static bool session_settle_rings(struct session *session)
{
	struct server *server = session->server;
	bool is_busy = false;

	for (uint32_t i = 0; i < server->options.limits.max_rings; i++) {
		if (!session->rings[i] || !session->rings[i]->is_drained)
			continue;
		if (clock_now_ns() - server->settling_ns > turn_ns) {
			server->needs_settling = true;
			break;
		}
		session_ring_discard(session->rings[i]);
	}
	for (uint32_t i = 0; i < session->server->options.limits.max_rings; i++)
		is_busy |= session->rings[i] != NULL;
	return is_busy;
}

void session_settle(struct session *session)
{
	bool has_rings = session_settle_rings(session);

	/* Whoever waits for that should not wait for this one's tasks. */
	if (session->is_ending)
		session_leases_discard(session);
	if (!session->is_ending || has_rings || session->n_jobs > 0)
		return;

	/* Arenas after plans: a plan on its way to a device reads its constants there. */
	if (!session->has_released_plans) {
		session->has_released_plans = true;
		for (uint32_t i = 0; i < session->n_plans; i++)
			if (session->plan_slots[i])
				session_plan_discard(session->plan_slots[i]);
	}
	if (session->n_jobs > 0)
		return;
	if (!session->has_released_arenas) {
		session->has_released_arenas = true;
		for (uint32_t i = 0; i < session->n_arenas; i++)
			if (session->arena_slots[i])
				session_arena_discard(session->arena_slots[i]);
	}
	if (session->n_jobs > 0)
		return;

	list_remove(&session->link);
	session->server->n_sessions--;
	if (session->tenant && session->server->options.observer.session_removed)
		session->server->options.observer.session_removed(
			session->server->options.observer.context, session);
	session_deallocate(session);
}

void session_check_faults(struct session *session)
{
	if (session->is_ending)
		return;
	for (uint32_t i = 0; i < session->server->options.limits.max_rings; i++) {
		struct session_ring *ring = session->rings[i];

		if (ring && atomic_load_explicit(&ring->is_faulted, memory_order_acquire)) {
			session_end(session, true, "a page of its ring could not be read");
			return;
		}
	}
	for (uint32_t i = 0; i < session->n_arenas; i++) {
		struct session_arena *slot = session->arena_slots[i];

		if (slot && atomic_load_explicit(&slot->is_faulted, memory_order_acquire)) {
			session_end(session, true, "a page of its arena could not be read");
			return;
		}
	}
}
