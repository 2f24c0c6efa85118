/* SPDX-License-Identifier: MIT */
/*
 * Users whose sockets take the kernel long
 *
 * Whoever receives a message, sends one, or closes a connection has the kernel wake those who wait
 * for that at the other end. The kernel goes through all of them, and a client can have millions
 * wait: each entry of a poll() is one, and of an epoll. It cannot be seen before, and takes a
 * hundred nanoseconds for each. So the reactor measures the processor time of calls that take long,
 * and a user whose calls took more of it than a leaky bucket holds is slow from then on, in the
 * tenant: what the reactor does with sockets of clients, the threads of closers.h do for this
 * user's, in the account's lane. Such a client is served later, and nobody else is. A hypervisor
 * that stops the processor in the middle of a call looks the same; that is why it is a bucket.
 *
 * A user stays slow until the broker ends, because a client could make the next socket slow as
 * quickly.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "session/server-private.h"
#include "util/clock.h"
#include "util/log.h"

/* An answer. */
struct parcel {
	struct closers_job job;
	struct session *session;
	int fd; /* the connection */
	int error;
	unsigned int n_fds;
	int fds[RBK_WIRE_MAX_FDS];
	size_t n_bytes;
	_Alignas(8) char bytes[]; /* struct rbk_wire_reply, and more */
};

/* Calls that take less count for nothing. */
static const uint64_t long_call_ns = 500000;
static const uint64_t bucket_ns = 20000000;
/* The bucket loses this part of the time that passes. */
enum { LEAK_PART = 1000 };

void owner_judge(struct server *server, struct owner *user, uint64_t begin_ticks)
{
	uint64_t ticks, now_ns, leaked_ns;

	if (user->is_slow || user == &server->common)
		return;
	ticks = turn_worked_ticks(server->work.turn, begin_ticks, clock_ns_to_ticks(long_call_ns));
	if (ticks == 0)
		return;
	now_ns = clock_now_ns();
	leaked_ns = (now_ns - user->judged_ns) / LEAK_PART;
	user->bucket_ns = user->bucket_ns > leaked_ns ? user->bucket_ns - leaked_ns : 0;
	user->bucket_ns += clock_ticks_to_ns(ticks);
	user->judged_ns = now_ns;
	if (user->bucket_ns < bucket_ns)
		return;
	user->is_slow = true;
	log_warning_of(LOG_OF(.uid = (uid_t)user->key), LOG_SESSION_CLOSED,
		       "clients of uid %u have so many wait at their sockets that waking them "
		       "holds up others: they are served later from now on",
		       (unsigned int)(uint32_t)user->key);
}

static void parcel_free(struct parcel *parcel)
{
	for (unsigned int i = 0; i < parcel->n_fds; i++)
		close_fd(parcel->fds[i]);
	free(parcel);
}

static void parcel_run(struct closers_job *job)
{
	struct parcel *parcel = container_of(job, struct parcel, job);

	parcel->error = session_post(parcel->fd, (const struct rbk_wire_reply *)parcel->bytes,
				     parcel->n_bytes, parcel->fds, parcel->n_fds);
}

static void parcel_done(struct closers_job *job)
{
	struct parcel *parcel = container_of(job, struct parcel, job);
	struct session *session = parcel->session;

	if (session_post_end(session, (const struct rbk_wire_reply *)parcel->bytes, parcel->n_bytes,
			     parcel->error))
		session_end(session, true, "too many descriptors are under way to it");
	parcel_free(parcel);
	session_lane_done(session);
}

/* Return: NULL without memory or descriptors. */
static struct parcel *parcel_new(const struct rbk_wire_reply *reply, size_t bytes, const int *fds,
				 unsigned int n_fds)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel) + bytes);

	if (!parcel)
		return NULL;
	parcel->job = (struct closers_job){.run = parcel_run, .done = parcel_done};
	parcel->n_bytes = bytes;
	memcpy(parcel->bytes, reply, bytes);
	/* The caller may close its own meanwhile. */
	for (; parcel->n_fds < n_fds; parcel->n_fds++) {
		parcel->fds[parcel->n_fds] = fcntl(fds[parcel->n_fds], F_DUPFD_CLOEXEC, 0);
		if (parcel->fds[parcel->n_fds] < 0) {
			parcel_free(parcel);
			return NULL;
		}
	}
	return parcel;
}

void session_send_slowly(struct session *session, const struct rbk_wire_reply *reply, size_t bytes,
			 const int *fds, unsigned int n_fds)
{
	struct parcel *parcel = parcel_new(reply, bytes, fds, n_fds);

	if (!parcel) {
		session_end(session, false, "the broker is out of memory or descriptors");
		return;
	}
	parcel->session = session;
	parcel->fd = session_post_begin(session);
	session_submit_to_lane(session, &parcel->job);
}

static void shut_run(struct closers_job *job)
{
	/* The descriptor is the session's until shut_done(). */
	shutdown(container_of(job, struct session, shut_job)->fd, SHUT_RDWR);
}

static void shut_done(struct closers_job *job)
{
	struct session *session = container_of(job, struct session, shut_job);

	session->n_posting--;
	session_let_go(session);
	session_lane_done(session);
}

void session_shut_slowly(struct session *session)
{
	session->shut_job = (struct closers_job){.run = shut_run, .done = shut_done};
	session_post_begin(session);
	session_submit_to_lane(session, &session->shut_job);
}
