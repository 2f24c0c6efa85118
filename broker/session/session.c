/* SPDX-License-Identifier: MIT */
/*
 * Sessions: connections from the first byte to the last charge
 *
 * A session is never freed where its end is detected. session_end(), in session-connection.c, marks
 * the session, closes its rings, and cancels jobs of its plans and arenas that have not begun. It
 * then shuts down the connection: a client that finds its connection closed finds its rings closed
 * as well. Once per turn, server_settle() continues with each session that is ending. It frees the
 * drained rings first. When no task is in flight and no job is on the setup thread, it releases the
 * plans and arenas, and finally the session. A pointer to a session, a ring or a task therefore
 * stays valid until the end of the turn.
 */
#include "session/session.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "loop/loop.h"
#include "session/peer.h"
#include "session/segments.h"
#include "session/server-private.h"
#include "util/error.h"
#include "util/log.h"

enum {
	SESSION_FDS = 1,
	/* Plans or arenas of an ending session that are given to the setup thread at once. */
	RELEASE_BATCH = 8,
	/* The reason why a connection gets no session */
	REASON_BYTES = ACCOUNT_TEXT_BYTES + 96,
};

/* Maximum of a request with descriptors: a PLAN_ADD with RBK_WIRE_PLAN_FD. */
enum { MAX_FDS_MESSAGE_BYTES = 256 };

/* A message with descriptors that is being received. See session_receive_fds(). */
struct session_receipt {
	struct closers_job job;
	struct session *session;
	struct closers_message message;
	size_t n_bytes;
	_Alignas(8) char bytes[];
};

/* End a session from which a message could not be taken: @r and @why as session_receive(). */
static void end_receiving(struct session *session, int r, const char *why)
{
	if (why || r == -ECONNRESET)
		session_end(session, why != NULL, why ? why : "it disconnected");
	else
		session_fail(session, "the broker cannot handle a message", -r);
}

/* Handle a message that was received with @flags. Return: 1; as session_receive(). */
static int session_handle(struct session *session, const void *bytes, size_t n, int flags, int *fds,
			  unsigned int n_fds, const char **ret_why)
{
	int r;

	if (n_fds > RBK_WIRE_MAX_FDS) {
		*ret_why = "the client sent a message with too many descriptors";
		r = SESSION_E_HOSTILE;
	} else if (flags & MSG_CTRUNC) {
		/* Our limit, not the client's fault. */
		r = request_refuse(session, bytes, n, -EMFILE);
	} else if (n == 0) {
		*ret_why = n_fds > 0 ? "the client sent an empty message with descriptors" : NULL;
		r = SESSION_E_HOSTILE;
	} else if (flags & MSG_TRUNC) {
		*ret_why = "the client sent a message that is longer than any request";
		r = SESSION_E_HOSTILE;
	} else {
		r = request_handle(session, bytes, n, fds, n_fds, ret_why);
	}
	return r > 0 ? -ECONNRESET : r < 0 ? r : 1;
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
			r = -ENOMEM;
	if (message->n_bytes < 0 && message->error != EAGAIN && message->error != EINTR)
		r = -message->error;
	if (r < 0)
		end_receiving(session, r, why);
	session_let_go(session);
	if (!session->is_ending)
		loop_rewatch(session->watch);
	free(receipt);
	session_job_done(session);
}

/*
 * Have a closers.h thread receive a message with descriptors. The reactor never receives
 * descriptors: the kernel closes those that do not fit or cannot be installed, on behalf of the
 * receiver, for as long as the client wants.
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
 * Return: 1 if a message was handled; 0 if there is none, or if a thread receives it; -ECONNRESET
 * if the client has left, or with *ret_why set if it broke a rule; another negative errno if a call
 * of the broker failed.
 */
static int session_receive(struct session *session, const char **ret_why)
{
	static _Alignas(8) char buffer[RBK_WIRE_MAX_BYTES];
	struct iovec iov = {.iov_base = buffer, .iov_len = sizeof(buffer)};
	struct msghdr message = {.msg_iov = NULL};
	uint64_t begin_ticks;
	ssize_t n;

	/* Receiving wakes waiters at the client's end; MSG_PEEK does not. */
	n = recvmsg(session->fd, &message, MSG_DONTWAIT | MSG_PEEK);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (message.msg_flags & MSG_CTRUNC || session->user->is_slow)
		return session_receive_fds(session);

	message = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
	begin_ticks = turn_now(session->server->work.turn);
	n = recvmsg(session->fd, &message, MSG_DONTWAIT);
	owner_judge(session->server, session->user, begin_ticks);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return session_handle(session, buffer, (size_t)n, message.msg_flags, NULL, 0, ret_why);
}

static void on_readable(void *data, uint32_t events)
{
	struct session *session = data;

	/* An end does not wait behind other requests. */
	if (events & (POLLHUP | POLLERR)) {
		session->has_hung_up = true;
		if (session->read_job.is_held)
			turn_queue_release(&session->server->work, &session->read_job);
	}
	session_queue(session, &session->read_job);
}

static bool has_left(const struct session *session)
{
	struct pollfd poll_fd = {.fd = session->fd};

	return poll(&poll_fd, 1, 0) > 0 && poll_fd.revents & POLLHUP;
}

/*
 * Return true if the next message is one by which a client comes back. It must not wait for a debt
 * of its tenant before restraint.c knows.
 */
static bool comes_back(const struct session *session)
{
	struct rbk_wire_lease_open request = {.flags = 0};
	struct iovec iov = {.iov_base = &request, .iov_len = sizeof(request)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (recvmsg(session->fd, &message, MSG_DONTWAIT | MSG_PEEK) < 0)
		return false;
	return request.request.type == RBK_WIRE_WANT_ID ||
	       request.request.type == RBK_WIRE_RING_RESTORE ||
	       (request.request.type == RBK_WIRE_LEASE_OPEN &&
		request.flags & RBK_WIRE_LEASE_RESTORE);
}

/*
 * Return true if the next request waits, held by restraint.c. HELLO does not: the connection has
 * waited.
 */
static bool is_held(struct session *session)
{
	if (!session->tenant || !session->is_greeted || session->has_hung_up)
		return false;
	if (session->owner->restraint.is_restrained && comes_back(session))
		restraint_returns(session->owner);
	return restraint_holds(session->server, session->owner, session->tenant,
			       &session->read_job);
}

/* Handle one message, then let other owners have their turn. */
static void run_read(struct turn_job *job)
{
	struct session *session = container_of(job, struct session, read_job);
	const char *why = NULL;
	int r;

	/*
	 * The kernel reports the end of a connection once. A client that leaves while its request
	 * waits may leave nothing that would end the wait.
	 */
	if (session->is_suspended && !session->is_ending && !session->is_receiving &&
	    has_left(session)) {
		session_end(session, false, "it disconnected");
		return;
	}
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
	if (is_held(session))
		return;
	r = session_receive(session, &why);
	if (session->is_ending)
		return;
	if (r < 0)
		end_receiving(session, r, why);
	else if (r > 0)
		session_queue(session, job);
}

/* Return the host bytes that session_allocate() takes. */
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
	if (session->is_ending)
		session->owner->n_ending--;
	owner_unref(session->owner);
	owner_unref(session->user);
	tenant_unref(session->tenant);
	loop_unwatch(session->watch);
	free(session);
}

/* Reason why a connection gets no session, and the answer's result. */
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
			-EDQUOT, "the broker has reached its limit of administrators' sessions"};
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
	/* The rejected client's tenant is charged for descriptors left in the connection. */
	*ret = (struct refusal_reason){
		-EACCES,
		"this socket accepts only administrators: root, the user that brokerd runs as, and "
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

static bool has_room(const struct server *server, const struct account *account)
{
	return account_has_room(account, ACCOUNT_SESSIONS, 1) &&
	       account_has_room(account, ACCOUNT_FDS, SESSION_FDS) &&
	       account_has_room(account, ACCOUNT_HOST_BYTES, session_host_bytes(server));
}

/*
 * Return true if earlier sessions of the tenant are ending, or what they had is being closed: a
 * client that disconnects and connects again must not find its own session in the way.
 */
static bool is_lagging(const struct server *server, const struct account *account,
		       const struct owner *owner)
{
	return owner->n_ending > 0 || closers_is_closing(server->closers, account);
}

bool session_lag_is_over(const struct server *server, const struct session_lag *lag)
{
	return has_room(server, lag->account) || !is_lagging(server, lag->account, lag->owner);
}

void session_lag_deinit(struct session_lag *lag)
{
	lag->account = account_unref(lag->account);
	owner_unref(lag->owner);
	lag->owner = NULL;
}

/* Explain the limit that leaves no room. Return: @text. */
static const char *explain(const struct session *session, char text[REASON_BYTES])
{
	account_explain(session->account, text);
	if (is_lagging(session->server, session->account, session->owner))
		strcat(text, "; some of it belongs to sessions that are still ending: try again "
			     "later");
	return text;
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

/* Return: 0; SESSION_E_REFUSED; SESSION_E_LAGS, unless @lag is NULL; negative errno. */
static int session_init(struct session *session, bool is_admin, const struct session_lag *lag,
			struct peer_identity *identity, struct refusal_reason *ret,
			char text[REASON_BYTES])
{
	struct server *server = session->server;
	int r;

	r = session_identify(session, is_admin, identity, ret);
	if (r)
		return r;
	session->owner = owner_of_session(session);
	session->user = owner_of_client(session);
	if (!has_room(server, session->account)) {
		holds_look(server, session->account);
		if (lag && (lag->has_place || session->owner->n_awaiting == 0) &&
		    !has_room(server, session->account) &&
		    is_lagging(server, session->account, session->owner))
			return SESSION_E_LAGS;
	}
	if (session_charge(session)) {
		*ret = (struct refusal_reason){-EDQUOT, explain(session, text)};
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

/* Stop all work for the client of a session that ends. */
static void end_objects(struct session *session)
{
	for (uint32_t i = 0; i < session->server->options.limits.max_rings; i++)
		if (session->rings[i])
			session_ring_close(session->rings[i]);
	for (uint32_t i = 0; i < session->n_plans; i++)
		if (session->plan_slots[i])
			session_plan_cancel(session->plan_slots[i]);
	for (uint32_t i = 0; i < session->n_arenas; i++)
		if (session->arena_slots[i])
			session_arena_cancel(session->arena_slots[i]);
}

int session_new(struct server *server, int fd, bool is_admin, struct session **ret,
		struct session_lag *lag)
{
	struct session *session = calloc(1, sizeof(*session));
	struct peer_identity identity = PEER_IDENTITY_INIT;
	struct refusal_reason reason = {.res = 0};
	char text[REASON_BYTES];
	int r;

	if (!session) {
		discard_connection(server, tenants_broker_account(server->options.tenants), NULL,
				   fd, &(struct charge){.account = NULL});
		return error_origin(-ENOMEM);
	}
	session->server = server;
	session->fd = session->sent.fd = fd;
	session->end_objects = end_objects;
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

	r = session_init(session, is_admin, lag, &identity, &reason, text);
	if (r) {
		if (r == SESSION_E_LAGS) {
			lag->account = account_ref(session->account);
			lag->owner = owner_ref(session->owner);
			session->fd = -1;
		}
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

/* Free one drained ring. Return: true if a ring is left. */
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

/*
 * Give a batch of the plans to the setup thread, the last ones first. The memory of many plans lies
 * at the end of the heap: if the first ones were freed before the last one, the last free() would
 * return the memory of all to the system at once, which takes the reactor hundreds of microseconds.
 * Return: true if the thread has all of them.
 */
static bool session_release_plans(struct session *session)
{
	uint32_t n = 0;

	for (; session->n_released_plans < session->n_plans; session->n_released_plans++) {
		const uint32_t slot = session->n_plans - 1 - session->n_released_plans;
		struct session_plan *plan = session->plan_slots[slot];

		if (!plan)
			continue;
		if (n >= RELEASE_BATCH)
			return false;
		n += plan_n_segments(plan);
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

/* Do a part of an end, or of the removal of a ring. May free the session. */
static void run_settle(struct turn_job *job)
{
	struct session *session = container_of(job, struct session, settle_job);
	bool has_rings = session_settle_ring(session);

	/* Waiters for lease memory must not wait for this session's tasks. */
	if (session->is_ending)
		session_leases_discard(session);
	if (!session->is_ending || has_rings)
		return;

	/*
	 * Release arenas after plans: a plan that is being loaded reads its constants from arenas.
	 */
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
			session_end(session, true,
				    "the broker could not read a page of the client's ring");
			return;
		}
	}
	for (uint32_t i = 0; i < session->n_arenas; i++) {
		struct session_arena *arena = session->arena_slots[i];

		if (arena && atomic_load_explicit(&arena->is_faulted, memory_order_acquire)) {
			session_end(session, true,
				    "the broker could not read a page of the client's arena");
			return;
		}
	}
}
