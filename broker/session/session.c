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
	SESSION_FDS = 1,
	/* So much of answers that a client has not read is not charged. */
	SESSION_UNREAD_BYTES = 4096,
	/* A session ends at more bytes in unread answers that its tenant has no room for. */
	SESSION_UNREAD_MOST = 16384,
	/* Plans or arenas of a session that ends, given to the setup thread in one go. */
	RELEASE_BATCH = 8,
};

/* Most bytes of a request that may carry descriptors: of a PLAN_ADD that says so. */
enum { MAX_FDS_MESSAGE_BYTES = 256 };

/* A message with descriptors, on its way in. See session_receive_fds(). */
struct session_receipt {
	struct closers_job job;
	struct session *session;
	struct closers_message message;
	size_t n_bytes;
	_Alignas(8) char bytes[];
};

/*
 * Handles a message that was received as @flags say. Return: 1; negative if the session is over,
 * with *ret_why set where the client broke a rule.
 */
static int session_handle(struct session *session, const void *bytes, size_t n, int flags, int *fds,
			  unsigned int n_fds, const char **ret_why)
{
	int r;

	if (n_fds > RBK_WIRE_MAX_FDS) {
		*ret_why = "it sent more descriptors than a message may have";
		r = SESSION_E_HOSTILE;
	} else if (flags & MSG_CTRUNC) {
		/* Our limit, not the client's fault. */
		r = request_refuse(session, bytes, n, -EMFILE);
	} else if (n == 0) {
		*ret_why = n_fds > 0 ? "it sent an empty message" : NULL;
		r = SESSION_E_HOSTILE;
	} else if (flags & MSG_TRUNC) {
		*ret_why = "it sent a message longer than the protocol's";
		r = SESSION_E_HOSTILE;
	} else {
		r = request_handle(session, bytes, n, fds, n_fds, ret_why);
	}
	return r ? -1 : 1;
}

/* Whatever the client has not received stays charged, and its tenant's. */
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

static void receipt_run(struct closers_job *job)
{
	struct session_receipt *receipt = container_of(job, struct session_receipt, job);
	struct iovec iov = {.iov_base = receipt->bytes, .iov_len = receipt->n_bytes};

	closers_receive(receipt->session->receiving_fd, &iov, &receipt->message);
}

static void receipt_done(struct closers_job *job)
{
	struct session_receipt *receipt = container_of(job, struct session_receipt, job);
	struct session *session = receipt->session;
	struct closers_message *message = &receipt->message;
	const char *why = NULL;
	int r = 0;

	session->is_receiving = false;
	if (!session->is_ending && message->n_bytes >= 0)
		r = session_handle(session, receipt->bytes, (size_t)message->n_bytes,
				   message->flags, message->fds, message->n_fds, &why);
	for (unsigned int i = 0; i < message->n_fds; i++)
		if (message->fds[i] >= 0 &&
		    discard_fd(session->server, session->account, message->fds[i]))
			r = -1;
	if (r < 0 || (message->n_bytes < 0 && message->error != EAGAIN && message->error != EINTR))
		session_end(session, why != NULL, why ? why : "it disconnected");
	session_let_go(session);
	if (!session->is_ending)
		loop_rewatch(session->watch);
	free(receipt);
	session_job_done(session);
}

/*
 * Descriptors never come in through the reactor: what the kernel has no room for, or cannot make a
 * descriptor of, it closes in the receiver's name, for as long as the client likes. So a message
 * that carries some is received by a thread that is there for that.
 */
static int session_receive_fds(struct session *session)
{
	const size_t n_bytes = session->user->is_slow ? RBK_WIRE_MAX_BYTES : MAX_FDS_MESSAGE_BYTES;
	struct session_receipt *receipt = calloc(1, sizeof(*receipt) + n_bytes);

	if (!receipt)
		return error_origin(-ENOMEM);
	receipt->session = session;
	receipt->n_bytes = n_bytes;
	receipt->job = (struct closers_job){.run = receipt_run, .done = receipt_done};
	session->receiving_fd = session->fd;
	session->is_receiving = true;
	session_job_started(session);
	closers_submit(session->server->closers, session->account, &receipt->job);
	return 0;
}

/*
 * Return: 1 if a message was handled; 0 if there is none, or one that is received elsewhere;
 * negative if the session is over, with *ret_why set where the client broke a rule.
 */
static int session_receive(struct session *session, const char **ret_why)
{
	static _Alignas(8) char buffer[RBK_WIRE_MAX_BYTES];
	struct iovec iov = {.iov_base = buffer, .iov_len = sizeof(buffer)};
	struct msghdr message = {.msg_iov = NULL};
	uint64_t begin_ticks;
	ssize_t n;

	/* The client's end is told of what has been received, not of what was looked at. */
	n = recvmsg(session->fd, &message, MSG_DONTWAIT | MSG_PEEK);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (message.msg_flags & MSG_CTRUNC || session->user->is_slow)
		return session_receive_fds(session);

	message = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
	begin_ticks = turn_now(session->server->work.turn);
	n = recvmsg(session->fd, &message, MSG_DONTWAIT);
	owner_judge(session->server, session->user, begin_ticks);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	return session_handle(session, buffer, (size_t)n, message.msg_flags, NULL, 0, ret_why);
}

static void on_readable(void *data, uint32_t events)
{
	struct session *session = data;

	session_queue(session, &session->read_job);
}

/* One message: then it is another owner's turn. */
static void run_read(struct turn_job *job)
{
	struct session *session = container_of(job, struct session, read_job);
	const char *why = NULL;
	int r;

	if (session->is_receiving || session->is_suspended || session->reset.is_begun)
		return;
	if (session->resume) {
		void (*resume)(struct session *) = session->resume;

		session->resume = NULL;
		resume(session);
		if (!session->is_ending)
			session_queue(session, job);
		return;
	}
	r = session_receive(session, &why);
	if (session->is_ending)
		return;
	if (r < 0)
		session_end(session, why != NULL, why ? why : "it disconnected");
	else if (r > 0)
		session_queue(session, job);
}

/*
 * Charges the kernel's memory for answers that the client has not read, once there may be more of
 * them than a client has that reads: the kernel is asked no more than every few answers.
 */
static void charge_unread(struct session *session, size_t bytes)
{
	/* The kernel counts no message as less than that. */
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
	/* A tenant without room is told so by answers: some may be under way. */
	if (r && n_bytes > SESSION_UNREAD_MOST)
		session_end(session, true,
			    "its tenant may not have as much memory as answers take that it does "
			    "not read");
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
 * An answer of @bytes was sent, or was not for @error. Return: 0; SESSION_E_REFUSED: too many
 * descriptors are under way.
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
		session_end(session, true, "it does not read its answers");
		return 0;
	default:
		session_end(session, false, "it cannot be answered");
		return 0;
	}
}

/* As session_sent(). */
static int session_send(struct session *session, const struct rbk_wire_reply *reply, size_t bytes,
			const int *fds, unsigned int n_fds)
{
	uint64_t begin_ticks;
	int error;

	if (session->user->is_slow) {
		session_send_slowly(session, reply, bytes, fds, n_fds);
		return 0;
	}
	begin_ticks = turn_now(session->server->work.turn);
	error = session_post(session->fd, reply, bytes, fds, n_fds);
	owner_judge(session->server, session->user, begin_ticks);
	return session_sent(session, bytes, error);
}

void session_reply(struct session *session, struct rbk_wire_reply *reply, size_t bytes)
{
	if (!session->is_ending)
		(void)session_send(session, reply, bytes, NULL, 0);
}

static void session_refuse_fds(struct session *session, const struct rbk_wire_reply *reply)
{
	session_reply_result(session, reply->type, reply->cookie, -EBUSY,
			     "too many descriptors are under way in answers that nobody has read");
}

int session_reply_fds(struct session *session, struct rbk_wire_reply *reply, size_t bytes,
		      const int *fds, unsigned int n_fds, bool is_shared)
{
	int r;

	if (session->is_ending)
		return 0;
	if (is_shared && hold_sent_add(&session->sent, session->server, session->account, n_fds)) {
		session_reply_result(session, reply->type, reply->cookie, -EBUSY,
				     "the session has not read answers with as many descriptors as "
				     "there may be");
		return SESSION_E_REFUSED;
	}
	r = session_send(session, reply, bytes, fds, n_fds);
	if (r)
		session_refuse_fds(session, reply);
	return r;
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

void session_submit(struct session *session, struct offload_job *job)
{
	job->owner = &session->tenant->setup;
	job->weight = session->tenant->weight;
	job->tenant = session->tenant->number;
	/* Memory comes back without waiting for what the tenant's other sessions ask for. */
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
	closers_submit(session->server->closers, session->account, job);
}

void session_lane_done(struct session *session)
{
	session->n_lane_jobs--;
	session_job_done(session);
}

/* What session_allocate() takes. */
static uint64_t session_host_bytes(const struct server *server)
{
	const struct server_limits *limits = &server->options.limits;

	return sizeof(struct session) + HOLD_BYTES + SERVER_OBSERVED_BYTES +
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
	return hold_new(session->server, 0, &session->hold);
}

static void session_deallocate(struct session *session)
{
	free(session->arenas);
	free(session->arena_slots);
	free(session->plans);
	free(session->plan_slots);
	free(session->plan_generations);
	free(session->rings);
	if (session->fd >= 0)
		discard_connection(
			session->server,
			session->account ? session->account
					 : tenants_broker_account(session->server->options.tenants),
			session->user, steal_fd(&session->fd),
			&session->charges[SESSION_CHARGE_FD]);
	for (unsigned int i = 0; i < ARRAY_SIZE(session->charges); i++)
		charge_deinit(&session->charges[i]);
	charge_deinit(&session->unread);
	hold_free(session->hold);
	session_stats_leave(session);
	if (session->has_admin_place)
		admin_session_end(session->server);
	turn_queue_withdraw(&session->server->work, &session->read_job);
	turn_queue_withdraw(&session->server->work, &session->settle_job);
	owner_unref(session->owner);
	owner_unref(session->user);
	tenant_unref(session->tenant);
	loop_unwatch(session->watch);
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
static int session_take_rights(struct session *session, uint64_t rights, struct refusal_reason *ret)
{
	struct server *server = session->server;

	session->account = tenants_broker_account(server->options.tenants);
	if (!admin_session_begin(server, rights)) {
		*ret = (struct refusal_reason){
			-EDQUOT, "there are as many sessions of administrators as there may be"};
		return SESSION_E_REFUSED;
	}
	session->rights = rights;
	session->has_admin_place = true;
	return 0;
}

/* Return: 0; SESSION_E_REFUSED; negative errno. */
static int session_identify(struct session *session, bool is_admin, struct peer_identity *identity,
			    struct refusal_reason *ret)
{
	const struct server_options *options = &session->server->options;
	uint32_t kinds = policy_match_kinds(tenants_policy(options->tenants));
	uint64_t rights;
	int r;

	if (is_admin)
		kinds |= POLICY_MATCH_GID;
	r = peer_identity_init(identity, session->fd, kinds | PEER_COMM);
	if (r)
		return error_fold(r);
	session->pid = identity->peer.pid;
	session->uid = identity->peer.uid;
	memcpy(session->comm, identity->comm, sizeof(session->comm));
	rights = is_admin ? admin_rights(&options->admin, &identity->peer) : 0;
	if (rights)
		return session_take_rights(session, rights, ret);
	session->tenant = tenants_find(options->tenants, &identity->peer);
	session->account = session->tenant->account;
	session->is_late = session->tenant->is_drained;
	if (!is_admin)
		return 0;
	/* The stranger's tenant is charged for what the stranger has left in the connection. */
	*ret = (struct refusal_reason){
		-EACCES, "this socket is for administrators: root, the user that brokerd runs as, "
			 "the members of admin-group and admin-users"};
	return SESSION_E_REFUSED;
}

/* Return: 0; ACCOUNT_E_QUOTA. */
static int session_charge(struct session *session)
{
	int r;

	for (unsigned int i = 0; i < ARRAY_SIZE(session->charges); i++)
		charge_deinit(&session->charges[i]);
	r = account_charge(session->account, &session->charges[0], ACCOUNT_SESSIONS, 1);
	if (r == 0)
		r = account_charge(session->account, &session->charges[SESSION_CHARGE_FD],
				   ACCOUNT_FDS, SESSION_FDS);
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

static void run_settle(struct turn_job *job);

/* Return: 0; SESSION_E_REFUSED; negative errno. */
static int session_init(struct session *session, bool is_admin, struct peer_identity *identity,
			struct refusal_reason *ret, char text[ACCOUNT_TEXT_BYTES])
{
	struct server *server = session->server;
	int r;

	r = session_identify(session, is_admin, identity, ret);
	if (r)
		return r;
	session->owner = owner_of_session(session);
	session->user = owner_of_client(session);
	if (session_charge(session) &&
	    (!holds_look(server, session->account) || session_charge(session))) {
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
		discard_connection(server, tenants_broker_account(server->options.tenants), NULL,
				   fd, &(struct charge){.account = NULL});
		return error_origin(-ENOMEM);
	}
	session->server = server;
	session->fd = session->sent.fd = fd;
	session->number = ++server->next_number;
	list_init(&session->link);
	list_init(&session->sent.link);
	list_init(&session->leases);
	list_init(&session->lease_waits);
	list_init(&session->silent);
	list_init(&session->page_wait);
	turn_job_init(&session->read_job, RBK_TURN_MESSAGES, run_read);
	turn_job_init(&session->settle_job, RBK_TURN_ENDS, run_settle);
	session_reset_init(session);

	r = session_init(session, is_admin, &identity, &reason, text);
	if (r) {
		if (r == SESSION_E_REFUSED)
			refuse_connection(server, session->account, steal_fd(&session->fd),
					  session->pid, session->uid, reason.res, reason.why);
		session_deallocate(session);
		peer_identity_deinit(&identity);
		return r;
	}

	observe(session, &identity);
	peer_identity_deinit(&identity);
	greet_expect(session);
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
	/* Rings first: a client that finds its connection closed finds them closed as well. */
	for (uint32_t i = 0; i < server->options.limits.max_rings; i++)
		if (session->rings[i])
			session_ring_close(session->rings[i]);
	if (session->user->is_slow)
		session_shut_slowly(session);
	else
		shutdown(session->fd, SHUT_RDWR);
	session_let_go(session);
	for (uint32_t i = 0; i < session->n_plans; i++)
		if (session->plan_slots[i])
			session_plan_cancel(session->plan_slots[i]);
	for (uint32_t i = 0; i < session->n_arenas; i++)
		if (session->arena_slots[i])
			session_arena_cancel(session->arena_slots[i]);
	turn_queue_withdraw(&server->work, &session->read_job);
	turn_queue_withdraw(&server->work, &session->reset.job);
	session_queue(session, &session->settle_job);
}

/*
 * Has one ring freed that has drained. Return: is a ring left?
 */
static bool session_settle_ring(struct session *session)
{
	struct session_ring *drained = NULL, *ring;
	bool has_more = false, is_busy = false;

	for (uint32_t i = 0; i < session->server->options.limits.max_rings; i++) {
		ring = session->rings[i];
		if (!ring)
			continue;
		is_busy = true;
		if (ring->is_drained && !drained)
			drained = ring;
		else
			has_more |= ring->is_drained;
	}
	if (drained)
		session_ring_discard(drained);
	if (has_more)
		session_queue(session, &session->settle_job);
	return is_busy;
}

/* Gives some of its plans to the setup thread. Return: has it all of them? */
static bool session_release_plans(struct session *session)
{
	uint32_t n = 0;

	for (; session->n_released_plans < session->n_plans; session->n_released_plans++) {
		struct session_plan *plan = session->plan_slots[session->n_released_plans];

		if (!plan)
			continue;
		if (n++ == RELEASE_BATCH)
			return false;
		session_plan_discard(plan);
	}
	return true;
}

static bool session_release_arenas(struct session *session)
{
	uint32_t n = 0;

	for (; session->n_released_arenas < session->n_arenas; session->n_released_arenas++) {
		struct session_arena *arena = session->arena_slots[session->n_released_arenas];

		if (!arena)
			continue;
		if (n++ == RELEASE_BATCH)
			return false;
		session_arena_discard(arena);
	}
	return true;
}

/* A piece of an end, or of the removal of a ring. May free the session. */
static void run_settle(struct turn_job *job)
{
	struct session *session = container_of(job, struct session, settle_job);
	bool has_rings = session_settle_ring(session);

	/* Whoever waits for that should not wait for this one's tasks. */
	if (session->is_ending)
		session_leases_discard(session);
	if (!session->is_ending || has_rings)
		return;

	/* Arenas after plans: a plan on its way to a device reads its constants there. */
	if (session->n_released_plans == 0 && session->n_jobs > 0)
		return;
	if (!session_release_plans(session)) {
		session_queue(session, job);
		return;
	}
	if (session->n_released_arenas == 0 && session->n_jobs > 0)
		return;
	if (!session_release_arenas(session)) {
		session_queue(session, job);
		return;
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

bool session_waits_for_closers(const struct session *session)
{
	const uint32_t n_jobs = session->n_lane_jobs + session->is_receiving;
	uint32_t n_in_flight = 0;

	for (uint32_t i = 0; i < session->server->options.limits.max_rings; i++)
		if (session->rings[i])
			n_in_flight += session->rings[i]->n_in_flight;
	return session->is_ending && (n_jobs > 0 || session->n_fetches > 0) &&
	       session->n_jobs == n_jobs && n_in_flight == session->n_fetches &&
	       !turn_job_waits(&session->settle_job);
}

void session_check_faults(struct session *session)
{
	if (session->is_ending)
		return;
	for (uint32_t i = 0; i < session->server->options.limits.max_rings; i++) {
		const struct session_ring *ring = session->rings[i];

		if (ring && ring->state == RING_READY &&
		    atomic_load_explicit(&ring->is_faulted, memory_order_acquire)) {
			session_end(session, true, "a page of its ring could not be read");
			return;
		}
	}
	for (uint32_t i = 0; i < session->n_arenas; i++) {
		struct session_arena *arena = session->arena_slots[i];

		if (arena && atomic_load_explicit(&arena->is_faulted, memory_order_acquire)) {
			session_end(session, true, "a page of its arena could not be read");
			return;
		}
	}
}
