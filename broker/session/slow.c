/* SPDX-License-Identifier: MIT */
/*
 * Users whose sockets take the kernel long
 *
 * A call that receives or sends a message, or closes a connection, makes the kernel wake all
 * waiters at the other end. A client can have millions of waiters, since each entry of a poll() or
 * an epoll is one, and waking each takes a hundred nanoseconds. The number of waiters cannot be
 * queried in advance. The reactor therefore measures the processor time of calls that take long. A
 * user in a tenant becomes slow when its calls overflow a leaky bucket. The threads of closers.h
 * then do the reactor's socket work for this user, in the account's lane. Only this user's clients
 * are served later. A hypervisor that stops the processor during a call has the same effect, which
 * is why a bucket is used.
 *
 * A user stays slow until the broker ends, because a client could make the next socket slow as
 * quickly.
 */
#include "session/server-private.h"
#include "util/clock.h"
#include "util/log.h"

/* Shorter calls do not count. */
static const uint64_t long_call_ns = 500000;
static const uint64_t bucket_ns = 20000000;
/* The bucket leaks one part in LEAK_PART of the elapsed time. */
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
		       "clients of uid %u delay other clients, because too many of them wait at "
		       "their sockets to be woken: the broker serves them later from now on",
		       (unsigned int)(uint32_t)user->key);
}
