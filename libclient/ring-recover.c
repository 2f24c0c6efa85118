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
 * way. rbk_ring_fd() is an epoll descriptor that follows one or the other, so that an event loop
 * keeps one descriptor for the ring's whole life. It contains news_fd from the beginning, because
 * the switch to it must not fail: then only a change of the events is left to do, which takes no
 * memory. A new bell that cannot be added leaves the ring away, with news_fd readable: the event
 * loop does not sleep, but tries again.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "libclient/private.h"
#include "shm/ring.h"

/* Have the descriptor of rbk_ring_fd() follow news_fd if @follows. */
static void follow_news(const struct client_ring_cold *cold, bool follows)
{
	struct epoll_event event = {.events = follows ? EPOLLIN : 0};

	epoll_ctl(cold->epoll, EPOLL_CTL_MOD, cold->rbk->reattach.news_fd, &event);
}

/* Have the descriptor of rbk_ring_fd() follow @bell. Return: 0; negative errno. */
static int follow_bell(const struct client_ring_cold *cold, int bell)
{
	struct epoll_event event = {.events = EPOLLIN};

	return epoll_ctl(cold->epoll, EPOLL_CTL_ADD, bell, &event) ? -errno : 0;
}

/*
 * Map the new area over the old one. If the kernel cannot, it may have removed the old mapping, and
 * given the addresses to another thread since: neither read nor unmap them. The ring then moves to
 * the address at which the new area is mapped already. Under rbk->lock.
 */
static void replace_area(struct rbk_ring *ring, struct client_ring_area *area)
{
	struct client_ring_cold *cold = ring->cold;

	if (mmap(cold->cq_map, cold->cq_bytes, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
		 area->cq_fd, 0) == MAP_FAILED)
		ring->cq = cold->cq_map = area->cq_map;
	else
		munmap(area->cq_map, cold->cq_bytes);
}

/* Install what the next broker made of the ring. Under rbk->lock. Return: 0; CLIENT_RING_AWAY. */
static int install(struct rbk_ring *ring)
{
	struct client_ring_cold *cold = ring->cold;
	struct client_ring_area *area = cold->area;
	uint32_t token;

	if (cold->epoll >= 0) {
		if (follow_bell(cold, area->bell))
			return CLIENT_RING_AWAY;
		follow_news(cold, false);
	}
	replace_area(ring, area);
	client_close(&cold->bell);
	client_close(&cold->cq_fd);
	cold->bell = area->bell;
	cold->cq_fd = area->cq_fd;
	cold->id = area->id;
	cold->area = NULL;
	free(area);
	client_ring_keep_fences(ring);
	/*
	 * The broker may sleep since it took the ring over, and entries may have been published
	 * meanwhile: look at its sleep token after them, as for each entry. If it is gone again,
	 * the bell says so later.
	 */
	token = rbk_ring_sleep_token(&ring->cq->sq_wait);
	ring->sq_rung = token;
	/* A bell that could not be rung is rung for the next entry or wait. */
	if (token != 0 && send(cold->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		ring->sq_rung = 0;
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
	if (cold->epoll >= 0) {
		follow_news(cold, true);
		/* A child's copy would keep the bell in the set when it is closed. */
		epoll_ctl(cold->epoll, EPOLL_CTL_DEL, cold->bell, NULL);
	}
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
	struct epoll_event event = {.events = 0};
	int r;

	if (!cold)
		return -ECHILD;
	if (!cold->rbk->reattach.is_possible)
		return cold->bell;
	if (cold->epoll >= 0)
		return cold->epoll;
	cold->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (cold->epoll < 0)
		return -errno;
	if (ring->lost == CLIENT_RING_AWAY)
		event.events = EPOLLIN;
	r = epoll_ctl(cold->epoll, EPOLL_CTL_ADD, cold->rbk->reattach.news_fd, &event) ? -errno : 0;
	if (!r && ring->lost != CLIENT_RING_AWAY)
		r = follow_bell(cold, cold->bell);
	if (r)
		client_close(&cold->epoll);
	return r ? r : cold->epoll;
}
