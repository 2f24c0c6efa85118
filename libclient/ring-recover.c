/* SPDX-License-Identifier: MIT */
/*
 * Rings whose broker is gone
 *
 * The submission area outlives the broker: the client goes on publishing entries, and the next
 * broker finds them there. The completion area is made anew by the next broker, with the
 * completions that the client has not consumed at the same places. reattach.c obtains it; the
 * ring's own thread installs it here when it next looks, over the old area, so that pointers to
 * completions stay valid and the hot path keeps its addresses. Indices continue.
 *
 * Until then the ring is away: there is no bell that would wake the ring's thread, so it sleeps on
 * the connection's news_fd instead, which becomes readable when the re-attachment has ended either
 * way. rbk_ring_fd() is an epoll descriptor that contains one or the other, so that an event loop
 * keeps one descriptor for the ring's whole life.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "libclient/private.h"
#include "shm/ring.h"

/*
 * Have the descriptor of rbk_ring_fd(), if there is one, follow @fd. On failure it follows the old
 * descriptor, which is readable now: the event loop does not sleep, but works.
 */
static void follow(struct client_ring_cold *cold, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (cold->epoll < 0 || cold->in_epoll == fd ||
	    epoll_ctl(cold->epoll, EPOLL_CTL_ADD, fd, &event))
		return;
	if (cold->in_epoll >= 0)
		epoll_ctl(cold->epoll, EPOLL_CTL_DEL, cold->in_epoll, NULL);
	cold->in_epoll = fd;
}

/* Install what the next broker made of the ring. Under rbk->lock. Return: 0; negative errno. */
static int install(struct rbk_ring *ring)
{
	struct client_ring_cold *cold = ring->cold;
	struct client_ring_area *area = cold->area;
	uint32_t token;

	if (mremap(area->cq_map, cold->cq_bytes, cold->cq_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		   cold->cq_map) == MAP_FAILED)
		return -errno;
	follow(cold, area->bell);
	client_close(&cold->bell);
	client_close(&cold->cq_fd);
	cold->bell = area->bell;
	cold->cq_fd = area->cq_fd;
	cold->id = area->id;
	cold->area = NULL;
	free(area);
	/*
	 * The broker may sleep since it took the ring over, and entries may have been published
	 * meanwhile: look at its sleep token after them, as for each entry. If it is gone again,
	 * the bell says so later.
	 */
	token = rbk_ring_sleep_token(&ring->cq->sq_wait);
	ring->sq_rung = token;
	if (token != 0)
		send(cold->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return 0;
}

/* Find out about the ring. Under rbk->lock. Return: as client_ring_recover(). */
static int recover(struct rbk_ring *ring)
{
	struct client_ring_cold *cold = ring->cold;
	struct rbk *rbk = cold->rbk;
	int r;

	/* Completions that the next broker published count, even if it is lost, too. */
	if (cold->area && !rbk->reattach.is_away && !rbk->reattach.is_restoring) {
		r = install(ring);
		return r ? r : rbk->lost;
	}
	if (!rbk->lost && !rbk->reattach.is_away) {
		/* The bell or the closed word of this ring alone says so. */
		if (!client_may_reattach(rbk) ||
		    __atomic_load_n(&ring->cq->closed, __ATOMIC_ACQUIRE) == RBK_RING_CLOSED)
			return -ECONNRESET;
		client_broker_gone(rbk);
	}
	if (rbk->lost)
		return rbk->lost;
	follow(cold, rbk->reattach.news_fd);
	return CLIENT_RING_AWAY;
}

int client_ring_recover(struct rbk_ring *ring)
{
	struct rbk *rbk = ring->cold->rbk;
	int r;

	if (ring->lost == CLIENT_RING_AWAY &&
	    __atomic_load_n(&rbk->reattach.is_away, __ATOMIC_ACQUIRE))
		return CLIENT_RING_AWAY;
	pthread_mutex_lock(&rbk->lock);
	r = recover(ring);
	pthread_mutex_unlock(&rbk->lock);
	return r;
}

RBK_EXPORT int rbk_ring_fd(const struct rbk_ring *ring)
{
	struct client_ring_cold *cold = ring->cold;

	if (!cold)
		return -ECHILD;
	if (!cold->rbk->reattach.is_possible)
		return cold->bell;
	if (cold->epoll < 0) {
		cold->epoll = epoll_create1(EPOLL_CLOEXEC);
		if (cold->epoll < 0)
			return -errno;
		follow(cold,
		       ring->lost == CLIENT_RING_AWAY ? cold->rbk->reattach.news_fd : cold->bell);
	}
	if (cold->in_epoll < 0) {
		client_close(&cold->epoll);
		return -ENOMEM;
	}
	return cold->epoll;
}
