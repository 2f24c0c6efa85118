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
#include "session/server-private.h"
#include "util/clock.h"
#include "util/log.h"

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
