/* SPDX-License-Identifier: MIT */
/*
 * Asking the broker on a thread of its own
 *
 * Requests are rare: to find a broker, to fetch a new tenant's page, to probe a broker that does
 * not answer, and to change something.
 */
#include "asker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

void asker_init(struct asker *asker)
{
	*asker = (struct asker){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
}

static void *answer(void *data)
{
	struct asker *asker = data;
	const uint64_t one = 1;

	asker->question(asker->about);
	/* Pairs with the acquire in asker_is_done(). */
	__atomic_store_n(&asker->is_done, true, __ATOMIC_RELEASE);
	if (asker->fd >= 0)
		(void)!write(asker->fd, &one, sizeof(one));
	return NULL;
}

void asker_begin(struct asker *asker, void (*question)(void *), void *about, bool waits)
{
	sigset_t all, before;
	int r = -1;

	asker->is_asking = true;
	asker->is_done = false;
	asker->question = question;
	asker->about = about;
	if (!waits && asker->fd >= 0) {
		/* The drawing thread handles signals. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		r = pthread_create(&asker->thread, NULL, answer, asker);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (r == 0)
		return;
	asker->thread = pthread_self();
	answer(asker);
}

static void end(struct asker *asker)
{
	uint64_t n;

	if (!pthread_equal(asker->thread, pthread_self()))
		pthread_join(asker->thread, NULL);
	if (asker->fd >= 0)
		(void)!read(asker->fd, &n, sizeof(n));
	asker->is_asking = false;
}

bool asker_is_done(struct asker *asker, int timeout_ms)
{
	struct pollfd fd = {.fd = asker->fd, .events = POLLIN};

	if (!asker->is_asking)
		return false;
	if (timeout_ms > 0 && asker->fd >= 0)
		poll(&fd, 1, timeout_ms);
	/* Pairs with the release in answer(): the result is visible. */
	if (!__atomic_load_n(&asker->is_done, __ATOMIC_ACQUIRE))
		return false;
	end(asker);
	return true;
}

void asker_deinit(struct asker *asker)
{
	if (asker->is_asking)
		end(asker);
	if (asker->fd >= 0)
		close(asker->fd);
	asker->fd = -1;
}
