/* SPDX-License-Identifier: MIT */
/*
 * Making and freeing rings
 *
 * The broker makes both areas and the bell and sends their descriptors; only the bell's is kept.
 * The state of the hot path lies in a page that fork() wipes. The state for freeing lies in the
 * page after it, so that a child can still unmap what it has inherited.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/private.h"

/* Default spin limit of a wait: the cost of a sleep and its wake-up. */
#define SPIN_MAX_NS 50000u

static struct client_ring_cold *ring_cold(struct rbk_ring *ring)
{
	return (struct client_ring_cold *)((char *)ring + client_page_bytes());
}

/* On one processor the broker cannot answer while this thread spins. */
static bool has_one_processor(void)
{
	cpu_set_t set;

	return !sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) == 1;
}

static void ring_freep(struct rbk_ring **ring)
{
	rbk_ring_free(*ring);
}

static int ring_alloc(struct rbk *rbk, struct rbk_ring **ret, struct rbk_error *error)
{
	size_t page_bytes = client_page_bytes();
	struct client_ring_cold *cold;
	struct rbk_ring *ring;
	void *pages;
	int r;

	_Static_assert(sizeof(*ring) <= 4096 && sizeof(*cold) <= 4096, "a page each");
	pages = mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (pages == MAP_FAILED)
		return client_error(error, -ENOMEM, "out of memory");
	if (madvise(pages, page_bytes, MADV_WIPEONFORK)) {
		r = -errno;
		munmap(pages, 2 * page_bytes);
		return client_error(error, r,
				    "cannot set up the detection of fork()ed children: %m");
	}
	ring = pages;
	cold = ring_cold(ring);
	cold->rbk = client_ref(rbk);
	cold->bell = -1;
	ring->cold = cold;
	*ret = ring;
	return 0;
}

/*
 * Map an area of the ring. Return: 0; negative errno, also if the memfd is shorter than announced.
 */
static int map_area(int fd, uint64_t bytes, int protection, void **ret)
{
	struct stat stat;
	void *map;

	if (fstat(fd, &stat))
		return -errno;
	if (!S_ISREG(stat.st_mode) || stat.st_size < 0 || (uint64_t)stat.st_size < bytes)
		return -EPROTO;
	map = mmap(NULL, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*ret = map;
	return 0;
}

/* Map both areas and take over the bell of @answer on success. */
static int ring_map(struct rbk_ring *ring, const struct rbk_wire_ring *wire,
		    struct client_answer *answer, struct rbk_error *error)
{
	struct client_ring_cold *cold = ring->cold;
	struct stat stat;
	int flags, r;

	r = map_area(answer->fds[0], wire->sq_bytes, PROT_READ | PROT_WRITE, &cold->sq_map);
	if (r)
		return client_error(error, r, "cannot map the submission area: %m");
	cold->sq_bytes = wire->sq_bytes;
	r = map_area(answer->fds[1], wire->cq_bytes, PROT_READ, &cold->cq_map);
	if (r)
		return client_error(error, r, "cannot map the completion area: %m");
	cold->cq_bytes = wire->cq_bytes;
	if (fstat(answer->fds[2], &stat) || !S_ISSOCK(stat.st_mode))
		return client_error(error, -EPROTO, "the bell is not a socket");
	cold->bell = answer->fds[2];
	answer->fds[2] = -1;
	/*
	 * A blocking bell lets a wait without a timeout take one system call; other calls use
	 * MSG_DONTWAIT.
	 */
	flags = fcntl(cold->bell, F_GETFL);
	if (flags < 0 || fcntl(cold->bell, F_SETFL, flags & ~O_NONBLOCK))
		return client_error(error, -errno, "cannot set up the bell: %m");

	ring->sq = cold->sq_map;
	ring->cq = cold->cq_map;
	ring->n_entries = wire->n_entries;
	ring->mask = wire->n_entries - 1;
	ring->probe_in = ring->probe_every = 1;
	ring->spin_ns = SPIN_MAX_NS;
	if (has_one_processor())
		rbk_ring_set_spin_ns(ring, 0);
	return 0;
}

RBK_EXPORT int rbk_ring_new(struct rbk *rbk, unsigned int entries, struct rbk_ring **ret,
			    struct rbk_error *error)
{
	client_cleanup(ring_freep) struct rbk_ring *ring = NULL;
	struct rbk_wire_ring_add request = {.request.type = RBK_WIRE_RING_ADD, .n_entries = 1};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	if (entries == 0 || entries > RBK_MAX_RING_ENTRIES)
		return client_error(error, -EINVAL, "a ring has 1 to %u entries, not %u",
				    RBK_MAX_RING_ENTRIES, entries);
	while (request.n_entries < entries)
		request.n_entries *= 2;
	if (request.n_entries > rbk->max_ring_entries)
		return client_error(error, -EDQUOT,
				    "the broker allows at most %u entries in a ring, not %u",
				    rbk->max_ring_entries, request.n_entries);

	r = ring_alloc(rbk, &ring, error);
	if (r)
		return r;
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	ring->cold->id = answer.reply.ring.id;
	ring->cold->exists = true;
	if (answer.reply.ring.n_entries != request.n_entries)
		r = client_error(error, -EPROTO, "the broker made a ring of %u entries, not of %u",
				 answer.reply.ring.n_entries, request.n_entries);
	else
		r = ring_map(ring, &answer.reply.ring, &answer, error);
	for (unsigned int i = 0; i < answer.n_fds; i++)
		client_close(&answer.fds[i]);
	if (r == -EPROTO)
		client_lose(rbk, r);
	if (r)
		return r;
	client_ring_link(ring);
	*ret = ring;
	ring = NULL;
	return 0;
}

void client_ring_link(struct rbk_ring *ring)
{
	struct client_ring_cold *cold = ring->cold;
	struct rbk *rbk = cold->rbk;

	pthread_mutex_lock(&rbk->lock);
	cold->next = rbk->rings;
	cold->link = &rbk->rings;
	if (cold->next)
		cold->next->link = &cold->next;
	rbk->rings = cold;
	/*
	 * The connection was lost before this bell was in the list, so client_lose() has not shut
	 * it.
	 */
	if (rbk->lost)
		ring->lost = rbk->lost;
	pthread_mutex_unlock(&rbk->lock);
}

static void ring_unlink(struct client_ring_cold *cold)
{
	/* Neighbours in the list, rings of other threads, write the link too. */
	pthread_mutex_lock(&cold->rbk->lock);
	if (cold->link) {
		*cold->link = cold->next;
		if (cold->next)
			cold->next->link = cold->link;
	}
	pthread_mutex_unlock(&cold->rbk->lock);
}

RBK_EXPORT struct rbk_ring *rbk_ring_free(struct rbk_ring *ring)
{
	struct client_ring_cold *cold;

	if (!ring)
		return NULL;
	cold = ring_cold(ring);
	if (!client_is_child(cold->rbk))
		ring_unlink(cold);
	/*
	 * Unmap first: the broker charges for mapped memory, and reports when the ring is removed.
	 */
	if (cold->sq_map)
		munmap(cold->sq_map, cold->sq_bytes);
	if (cold->cq_map)
		munmap(cold->cq_map, cold->cq_bytes);
	client_close(&cold->bell);
	if (!client_is_child(cold->rbk) && cold->exists)
		client_request_id(cold->rbk, RBK_WIRE_RING_REMOVE, cold->id, NULL);
	client_unref(cold->rbk);
	munmap(ring, 2 * client_page_bytes());
	return NULL;
}

RBK_EXPORT void rbk_ring_set_spin_ns(struct rbk_ring *ring, uint64_t spin_ns)
{
	if (!ring->cold)
		return;
	ring->spin_ns = spin_ns;
	ring->spin_is_fixed = true;
}

RBK_EXPORT int rbk_ring_fd(const struct rbk_ring *ring)
{
	return ring->cold ? ring->cold->bell : -ECHILD;
}
