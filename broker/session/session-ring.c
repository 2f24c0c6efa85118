/* SPDX-License-Identifier: MIT */
/*
 * Rings of a session
 *
 * On request the setup thread makes a ring, and a closers.h thread sends it to the client and later
 * seals it, because clients can delay sending and sealing. The ring is then announced to the
 * dispatcher. It is closed when the client asks for that, breaks a rule or disconnects. A closed
 * ring stays in memory until none of its tasks is in flight; then server_settle() has the setup
 * thread free it. The dispatcher learns of a ring when its bell has been rung for the first time;
 * see ring-memory.c. A ring occupies its slot in session->rings from the request until it is freed,
 * so its id is not reused in between.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#include "loop/loop.h"
#include "session/ring-memory.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "shm/ring.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/thread.h"

/*
 * Token of the first sleep. The dispatcher's tokens begin with 1, and differ from it for the life
 * of a ring.
 */
static const uint32_t first_token = UINT32_MAX;

/* Work of a thread on a slow user's bell: bits of bell_does and bell_wants. */
enum bell_work { BELL_SHUT = 1, BELL_DRAIN = 2, BELL_RING = 4 };

/* Messages drained from a bell at once; the kernel holds 11 by default. */
enum { BELL_DRAIN_BATCH = 16 };

static void ring_seal_begin(struct session_ring *ring);

/*
 * Return true if the next message of the bell has descriptors, which no client may send there. A
 * plain read would make the kernel close them at once, which takes as long as the client wants.
 */
static bool bell_has_descriptors(const struct session_ring *ring)
{
	struct msghdr message = {.msg_iov = NULL};

	return recvmsg(ring->bell_fd, &message, MSG_DONTWAIT | MSG_PEEK) >= 0 &&
	       (message.msg_flags & MSG_CTRUNC);
}

/*
 * Send a message to a client that is not slow, or from a thread.
 * Return: false: the kernel has no memory for it now, and the client still sleeps.
 */
static bool bell_ring(const struct session_ring *ring)
{
	ssize_t n;

	do
		n = send(ring->bell_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	/* If the bell is full, the client is awake already, or is not reading. */
	return n >= 0 || (errno != ENOBUFS && errno != ENOMEM);
}

static void bell_drain(struct session_ring *ring)
{
	struct mmsghdr messages[BELL_DRAIN_BATCH] = {{.msg_len = 0}};
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = sizeof(byte)};

	if (!ring->bell_refuses_fds) {
		/* Read the one message that was checked. A client that sent more has rung again. */
		if (bell_has_descriptors(ring))
			session_end(ring->session, true, "the client sent descriptors to its bell");
		else
			recv(ring->bell_fd, &byte, sizeof(byte), MSG_DONTWAIT);
		return;
	}
	for (unsigned int i = 0; i < BELL_DRAIN_BATCH; i++)
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
	recvmmsg(ring->bell_fd, messages, BELL_DRAIN_BATCH, MSG_DONTWAIT, NULL);
}

static struct session_ring *ring_of_bell(struct closers_job *job)
{
	return container_of(job, struct session_ring, bell_job);
}

static void bell_run(struct closers_job *job)
{
	struct session_ring *ring = ring_of_bell(job);

	if (ring->bell_does & BELL_SHUT)
		shutdown(ring->bell_fd, SHUT_WR);
	if (ring->bell_does & BELL_DRAIN)
		bell_drain(ring);
	ring->bell_has_failed = (ring->bell_does & BELL_RING) && !bell_ring(ring);
}

static void bell_begin(struct session_ring *ring);

/* Report the ring drained unless a task or a thread still uses it. */
static void ring_closed(struct session_ring *ring)
{
	if (ring->is_closing && ring->n_in_flight == 0 && ring->state != RING_ANSWERING &&
	    ring->state != RING_SEALING)
		session_ring_drained(ring);
}

static void bell_done(struct closers_job *job)
{
	struct session_ring *ring = ring_of_bell(job);
	struct session *session = ring->session;
	const struct server_hooks *hooks = &session->server->options.hooks;
	const bool was_drained = ring->bell_does & BELL_DRAIN;

	/* End of file wakes the client of a closing ring. */
	if (ring->bell_has_failed && !ring->is_closing)
		ring->bell_wants |= BELL_RING;
	ring->bell_does = 0;
	if (was_drained && !ring->is_closing)
		hooks->ring_drained(hooks->context, ring);
	if (ring->bell_wants)
		bell_begin(ring);
	else
		ring_closed(ring);
	session_lane_done(session);
}

/* Begin the bell work that is wanted. The ring is kept until it is done. */
static void bell_begin(struct session_ring *ring)
{
	ring->bell_does = ring->bell_wants;
	ring->bell_wants = 0;
	ring->bell_job = (struct closers_job){.run = bell_run, .done = bell_done};
	session_submit_to_lane(ring->session, &ring->bell_job);
}

static void bell_do_slowly(struct session_ring *ring, enum bell_work what)
{
	ring->bell_wants |= (uint8_t)what;
	if (!ring->bell_does)
		bell_begin(ring);
}

bool session_ring_drains_itself(const struct session_ring *ring)
{
	return !ring->session->user->is_slow || !ring->bell_refuses_fds;
}

bool session_ring_drain_bell(struct session_ring *ring)
{
	struct session *session = ring->session;
	uint64_t begin_ticks;

	if (!session_ring_drains_itself(ring)) {
		if (!ring->is_closing)
			bell_do_slowly(ring, BELL_DRAIN);
		return ring->is_closing;
	}
	begin_ticks = turn_now(session->server->work.turn);
	bell_drain(ring);
	owner_judge(session->server, session->user, begin_ticks);
	return true;
}

void session_ring_tell_processor(struct session_ring *ring, int processor)
{
	const uint32_t told = (uint32_t)(processor + 1);

	if (told == ring->processor)
		return;
	ring->processor = told;
	__atomic_store_n(&ring->cq->processor, told, __ATOMIC_RELAXED);
}

bool session_ring_wake(struct session_ring *ring)
{
	struct session *session = ring->session;
	uint64_t begin_ticks;
	bool is_rung;

	__atomic_store_n(&ring->cq->rung_ns, clock_now_ns(), __ATOMIC_RELAXED);
	session_ring_tell_processor(ring, sched_getcpu());
	if (session->user->is_slow) {
		bell_do_slowly(ring, BELL_RING);
		return true;
	}
	begin_ticks = turn_now(session->server->work.turn);
	is_rung = bell_ring(ring);
	owner_judge(session->server, session->user, begin_ticks);
	return is_rung;
}

void session_ring_listen(struct session_ring *ring)
{
	if (ring->bell_watch)
		loop_rewatch(ring->bell_watch);
}

static void on_bell(void *data, uint32_t events)
{
	struct session_ring *ring = data;
	const struct server_hooks *hooks = &ring->session->server->options.hooks;

	if (events & (POLLHUP | POLLERR)) {
		/*
		 * The client closed its end; the control connection tells whether the client is
		 * gone.
		 */
		ring->bell_watch = loop_unwatch(ring->bell_watch);
		return;
	}
	if (ring->state == RING_READY)
		hooks->ring_bell(hooks->context, ring);
	else if (ring->state == RING_QUIET)
		ring_seal_begin(ring);
}

/* Prepare a made ring for the client. */
static int ring_start(struct session_ring *ring)
{
	/*
	 * The client can remove pages, and the kernel may fail to replace them when the broker
	 * reads.
	 */
	int r = sigbus_add((void *)ring->sq, ring->sq_bytes, &ring->is_faulted, &ring->fault_slot);

	if (r)
		return error_fold(r);
	ring->has_barriers = !thread_fence_others();
	__atomic_store_n(&ring->cq->has_barriers, ring->has_barriers, __ATOMIC_RELAXED);
	rbk_ring_announce_sleep(&ring->cq->sq_wait, first_token);
	return 0;
}

static struct session_ring *ring_of_job(struct offload_job *job)
{
	return container_of(job, struct session_ring, job);
}

static void ring_unmake_run(struct offload_job *job)
{
	ring_unmake(ring_of_job(job));
}

static void ring_unmake_done(struct offload_job *job)
{
	struct session_ring *ring = ring_of_job(job);
	struct session *session = ring->session;

	hold_leave_socket(steal_ptr(ring->bell_hold), steal_fd(&ring->bell_fd), session->user,
			  (struct charge *[]){&ring->charges[RING_CHARGE_FDS],
					      &ring->charges[RING_CHARGE_BELL_BYTES], NULL});
	/* If the client has released the ring's memory, undo the charges before it is answered. */
	holds_notice(session->server);
	if (ring->wants_reply)
		session_reply_result(session, RBK_WIRE_RING_REMOVE, ring->remove_cookie, 0, NULL);
	session->rings[ring->id] = NULL;
	session->server->n_rings--;
	session->n_added_rings--;
	ring_free(ring);
	session_job_done(session);
}

/* Have the setup thread free the ring's memory. */
static void ring_unmake_begin(struct session_ring *ring)
{
	ring->state = RING_UNMAKING;
	/* Hand over the areas before unmapping, which frees those that the client does not have. */
	hold_leave_files(steal_ptr(ring->area_hold),
			 (struct charge *[]){&ring->charges[RING_CHARGE_AREA_BYTES],
					     &ring->charges[RING_CHARGE_WATCHES], NULL});
	ring->job = (struct offload_job){
		.run = ring_unmake_run,
		.done = ring_unmake_done,
		.cause = OFFLOAD_RING,
	};
	session_job_started(ring->session);
	session_submit(ring->session, &ring->job);
}

static struct session_ring *ring_of_lane(struct closers_job *job)
{
	return container_of(job, struct session_ring, lane_job);
}

static void ring_seal_run(struct closers_job *job)
{
	struct session_ring *ring = ring_of_lane(job);

	ring->job_result = ring_seal(ring);
}

/* Note that @session has brought a ring of an earlier broker. */
static void note_restored(struct session *session)
{
	session->server->n_restored_sessions += !session->has_restored;
	session->server->restored_ns = clock_now_ns();
	session->has_restored = true;
}

/* Sealed: the dispatcher takes over, and finds the entries for which the client has rung. */
static void ring_seal_done(struct closers_job *job)
{
	struct session_ring *ring = ring_of_lane(job);
	struct session *session = ring->session;
	const struct server_hooks *hooks = &session->server->options.hooks;
	int r = ring->job_result;

	ring->state = RING_READY;
	if (ring->is_closing) {
		session_ring_drained(ring);
	} else if (r == RING_E_UNSEALED) {
		session_end(session, true,
			    "the broker cannot seal the submission area of the client's ring");
	} else {
		if (r == 0)
			r = hooks->ring_added(hooks->context, ring);
		ring->is_announced = r == 0;
		if (ring->is_restored && r == 0)
			note_restored(session);
		if (ring->is_restored && r == 0)
			log_debug_of(SESSION_ABOUT(session), LOG_RING_RESTORED,
				     "session %u: took over ring %u of an earlier broker, with "
				     "%u unfinished tasks",
				     session->number, ring->id, ring->n_restored);
		if (r == 0)
			session_ring_drain_bell(ring);
		else
			session_fail(session, "the broker cannot serve a ring", -r);
	}
	session_lane_done(session);
}

static void ring_seal_begin(struct session_ring *ring)
{
	ring->state = RING_SEALING;
	ring->lane_job = (struct closers_job){.run = ring_seal_run, .done = ring_seal_done};
	session_submit_to_lane(ring->session, &ring->lane_job);
}

static void ring_make_run(struct offload_job *job)
{
	struct session_ring *ring = ring_of_job(job);

	ring->job_result = ring_make(ring);
	job->has_more = ring->job_result == RING_E_MORE;
}

static const char *ring_strerror(int r)
{
	switch (r) {
	case -ENOSPC:
		return "the broker's user has reached its limit of inotify watches (see "
		       "/proc/sys/fs/inotify/max_user_watches)";
	case -EMFILE:
		return "the broker's user has reached its limit of open files or of inotify "
		       "instances (see /proc/sys/fs/inotify/max_user_instances)";
	default:
		return strerror(-r);
	}
}

static uint32_t ring_request(bool is_restored)
{
	return is_restored ? RBK_WIRE_RING_RESTORE : RBK_WIRE_RING_ADD;
}

static struct rbk_wire_ring ring_answer(const struct session_ring *ring)
{
	return (struct rbk_wire_ring){
		.reply = {.type = ring_request(ring->is_restored), .cookie = ring->cookie},
		.id = ring->id,
		.n_entries = ring->n_entries,
		.sq_bytes = ring->sq_bytes,
		.cq_bytes = ring->cq_bytes,
	};
}

void session_ring_restored(struct session_ring *ring)
{
	struct session *session = ring->session;

	if (!ring->is_restoring)
		return;
	ring->is_restoring = false;
	if (--session->n_restoring > 0 || !session->awaits_restoring)
		return;
	session->awaits_restoring = false;
	session_resume(session);
}

static void ring_refuse(struct session_ring *ring, int r)
{
	session_ring_restored(ring);
	/* Close the ring first: failing to answer ends the session, which closes its rings. */
	ring->is_closing = true;
	ring_unmake_begin(ring);
	session_reply_result(ring->session, ring_request(ring->is_restored), ring->cookie,
			     r == RING_E_UNSUITABLE ? -EINVAL : r,
			     "the broker cannot %s a ring: %s",
			     ring->is_restored ? "restore" : "make",
			     r == RING_E_UNSUITABLE ? ring->why : ring_strerror(r));
}

static void ring_answer_run(struct closers_job *job)
{
	struct session_ring *ring = ring_of_lane(job);
	const struct rbk_wire_ring answer = ring_answer(ring);

	ring->answer_error = session_post(ring->answer_fd, &answer.reply, sizeof(answer),
					  ring->client_fds, RING_CLIENT_FDS);
}

/* The client may already have rung, or asked for the ring's removal. */
static void ring_answer_done(struct closers_job *job)
{
	struct session_ring *ring = ring_of_lane(job);
	const struct rbk_wire_ring answer = ring_answer(ring);
	struct session *session = ring->session;
	int r;

	r = session_post_end(session, &answer.reply, sizeof(answer), ring->answer_error);
	ring->state = RING_QUIET;
	if (ring->is_closing)
		session_ring_drained(ring);
	else if (r)
		session_ring_close(ring);
	else if (loop_watch_once(session->server->options.loop, ring->bell_fd, POLLIN, on_bell,
				 ring, &ring->bell_watch))
		session_fail(session, "the broker cannot serve a ring", ENOMEM);
	session_lane_done(session);
}

static void ring_make_done(struct offload_job *job)
{
	struct session_ring *ring = ring_of_job(job);
	struct session *session = ring->session;
	int r = ring->job_result;

	charge_deinit(&ring->charges[RING_CHARGE_FROM_FD]);
	if (r == 0 && !session->is_ending)
		r = ring_start(ring);
	if (r || session->is_ending) {
		ring_refuse(ring, r);
	} else {
		ring->state = RING_ANSWERING;
		ring->answer_fd = session_post_begin(session);
		ring->lane_job = (struct closers_job){
			.run = ring_answer_run,
			.done = ring_answer_done,
		};
		session_submit_to_lane(session, &ring->lane_job);
	}
	session_job_done(session);
}

/* Create a ring, one of an earlier broker if @fds is not NULL. Return: as ring_new_restored(). */
static int ring_create(struct session *session, uint32_t id, uint32_t n_entries, int *fds,
		       struct session_ring **ret, const char **ret_why)
{
	return fds ? ring_new_restored(session, id, n_entries, fds, ret, ret_why)
		   : ring_new(session, id, n_entries, ret);
}

static int ring_add(struct session *session, uint32_t cookie, uint32_t n_entries, int *fds)
{
	const struct server_limits *limits = &session->server->options.limits;
	const uint32_t type = ring_request(fds != NULL);
	const char *fault = NULL;
	char why[ACCOUNT_TEXT_BYTES];
	struct session_ring *ring;
	uint32_t id;
	int r;

	for (id = 0; id < limits->max_rings && session->rings[id]; id++)
		;
	if (id == limits->max_rings) {
		session_reply_result(session, type, cookie, -EDQUOT,
				     "the session already has %u rings, which is the limit", id);
		return 0;
	}

	r = ring_create(session, id, n_entries, fds, &ring, &fault);
	if (r == RING_E_QUOTA && holds_look(session->server, session->account))
		r = ring_create(session, id, n_entries, fds, &ring, &fault);
	if (r == RING_E_UNSUITABLE) {
		session_reply_result(session, type, cookie, -EINVAL,
				     "the broker cannot restore a ring: %s", fault);
		return 0;
	}
	if (r == RING_E_GEOMETRY) {
		session_reply_result(session, type, cookie, -EINVAL,
				     "the number of a ring's entries is a power of two up to %u, "
				     "not %u",
				     limits->max_ring_entries, n_entries);
		return 0;
	}
	if (r == RING_E_QUOTA) {
		session_reply_result(session, type, cookie, -EDQUOT,
				     "no room for a ring of %u entries: %s", n_entries,
				     account_explain(session->tenant->account, why));
		return 0;
	}
	if (r) {
		session_reply_result(session, type, cookie, r, "the broker cannot make a ring: %s",
				     ring_strerror(r));
		return 0;
	}

	session->rings[id] = ring;
	session->server->n_rings++;
	session->n_added_rings++;
	ring->is_restoring = ring->is_restored;
	session->n_restoring += ring->is_restoring;
	ring->cookie = cookie;
	ring->job = (struct offload_job){
		.run = ring_make_run,
		.done = ring_make_done,
		.cause = OFFLOAD_RING,
	};
	session_job_started(session);
	session_submit(session, &ring->job);
	return 0;
}

int session_ring_add(struct session *session, uint32_t cookie, uint32_t n_entries)
{
	return ring_add(session, cookie, n_entries, NULL);
}

int session_ring_restore(struct session *session, uint32_t cookie, uint32_t n_entries, int fds[2])
{
	return ring_add(session, cookie, n_entries, fds);
}

void session_ring_close(struct session_ring *ring)
{
	const struct server_hooks *hooks = &ring->session->server->options.hooks;

	/* ring_make_done() or ring_unmake_done() handles a ring that the setup thread has. */
	if (ring->is_closing || ring->state == RING_MAKING || ring->state == RING_UNMAKING)
		return;
	ring->is_closing = true;
	session_ring_restored(ring);
	ring->bell_watch = loop_unwatch(ring->bell_watch);
	if (ring->is_announced)
		hooks->ring_closing(hooks->context, ring);
	__atomic_store_n(&ring->cq->closed,
			 ring->session->server->end_ns ? RBK_RING_STOPPED : RBK_RING_CLOSED,
			 __ATOMIC_RELEASE);
	/* End of file wakes a client that sleeps on its end, whatever it wrote into its area. */
	if (ring->session->user->is_slow)
		bell_do_slowly(ring, BELL_SHUT);
	else
		shutdown(ring->bell_fd, SHUT_WR);
	ring_closed(ring);
}

int session_ring_remove(struct session *session, uint32_t cookie, uint32_t id)
{
	struct session_ring *ring =
		id < session->server->options.limits.max_rings ? session->rings[id] : NULL;

	if (!ring || ring->state == RING_MAKING || ring->is_closing) {
		session_reply_result(session, RBK_WIRE_RING_REMOVE, cookie, -ENOENT,
				     "there is no ring %u", id);
		return 0;
	}
	ring->wants_reply = true;
	/* A thread may be sending the answer with the other cookie. */
	ring->remove_cookie = cookie;
	session_ring_close(ring);
	return 0;
}

void session_ring_drained(struct session_ring *ring)
{
	/* A thread uses the bell; bell_done() calls this function again. */
	if (ring->bell_does)
		return;
	ring->is_drained = true;
	session_queue(ring->session, &ring->session->settle_job);
}

void session_ring_discard(struct session_ring *ring)
{
	const struct server_hooks *hooks = &ring->session->server->options.hooks;

	ring->is_drained = false;
	if (ring->is_announced)
		hooks->ring_freed(hooks->context, ring);
	ring->is_announced = false;
	ring_unmake_begin(ring);
}
