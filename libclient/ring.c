/* SPDX-License-Identifier: MIT */
/*
 * Making and freeing rings
 *
 * The broker makes both areas and the bell and sends their descriptors; only the bell's is kept,
 * unless the connection may re-attach: the next broker gets the areas' (reattach.c,
 * ring-recover.c). The state of the hot path lies in a page that fork() wipes. The state for
 * freeing lies in the page after it, so that a child can still unmap what it has inherited.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/private.h"
#include "shm/ring.h"

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

void client_ring_keep_fences(struct rbk_ring *ring)
{
	ring->is_unfenced = false;
	ring->n_fenced = 0;
	rbk_ring_keep_fences(&ring->sq->unfenced);
	/* The first time in a process with threads, the registration takes some ms. */
	ring->may_be_unfenced =
		ring->cq->has_barriers &&
		!syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
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
	cold->sq_fd = cold->cq_fd = cold->bell = cold->epoll = -1;
	ring->cold = cold;
	*ret = ring;
	return 0;
}

int client_area_map(int fd, uint64_t bytes, int protection, void **ret)
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

/*
 * A blocking bell lets a wait without a timeout take one system call; other calls use MSG_DONTWAIT.
 */
int client_bell_set_up(int bell, struct rbk_error *error)
{
	struct stat stat;
	int flags;

	if (fstat(bell, &stat) || !S_ISSOCK(stat.st_mode))
		return client_error(error, -EPROTO, "the bell is not a socket");
	flags = fcntl(bell, F_GETFL);
	if (flags < 0 || fcntl(bell, F_SETFL, flags & ~O_NONBLOCK))
		return client_error(error, -errno, "cannot set up the bell: %m");
	return 0;
}

struct client_ring_area *client_area_free(struct client_ring_area *area, size_t cq_bytes)
{
	if (!area)
		return NULL;
	munmap(area->cq_map, cq_bytes);
	client_close(&area->cq_fd);
	client_close(&area->bell);
	free(area);
	return NULL;
}

/* Release the memory and the descriptors of the ring. */
static void ring_unmap(struct client_ring_cold *cold)
{
	if (cold->sq_map)
		munmap(cold->sq_map, cold->sq_bytes);
	if (cold->cq_map)
		munmap(cold->cq_map, cold->cq_bytes);
	cold->sq_map = cold->cq_map = NULL;
	cold->area = client_area_free(cold->area, cold->cq_bytes);
	client_close(&cold->bell);
	client_close(&cold->sq_fd);
	client_close(&cold->cq_fd);
	client_close(&cold->epoll);
}

/* Map both areas and take over the descriptors of @answer that the ring keeps. */
static int ring_map(struct rbk_ring *ring, const struct rbk_wire_ring *wire,
		    struct client_answer *answer, struct rbk_error *error)
{
	struct client_ring_cold *cold = ring->cold;
	int r;

	if (cold->rbk->reattach.is_possible &&
	    wire->cq_bytes < RBK_CQ_REATTACH_BYTES(wire->n_entries))
		return client_error(error, -EPROTO, "the completion area has no room for records");
	r = client_area_map(answer->fds[0], wire->sq_bytes, PROT_READ | PROT_WRITE, &cold->sq_map);
	if (r)
		return client_error(error, r, "cannot map the submission area: %m");
	cold->sq_bytes = wire->sq_bytes;
	r = client_area_map(answer->fds[1], wire->cq_bytes, PROT_READ, &cold->cq_map);
	if (r)
		return client_error(error, r, "cannot map the completion area: %m");
	cold->cq_bytes = wire->cq_bytes;
	r = client_bell_set_up(answer->fds[2], error);
	if (r)
		return r;
	cold->bell = answer->fds[2];
	answer->fds[2] = -1;
	if (cold->rbk->reattach.is_possible) {
		cold->sq_fd = answer->fds[0];
		cold->cq_fd = answer->fds[1];
		answer->fds[0] = answer->fds[1] = -1;
	}
	cold->n_entries = wire->n_entries;

	ring->sq = cold->sq_map;
	ring->cq = cold->cq_map;
	ring->n_entries = wire->n_entries;
	ring->mask = wire->n_entries - 1;
	client_ring_keep_fences(ring);
	ring->probe_in = ring->probe_every = 1;
	ring->spin_ns = SPIN_MAX_NS;
	if (has_one_processor())
		rbk_ring_set_spin_ns(ring, 0);
	return 0;
}

/*
 * Add @ring to the rings whose sleepers client_lose() wakes, and that the next broker restores.
 * Return: false: the broker of @generation is gone, and the ring with it.
 */
static bool ring_link(struct rbk_ring *ring, uint32_t generation)
{
	struct client_ring_cold *cold = ring->cold;
	struct rbk *rbk = cold->rbk;

	if (!client_objects_lock_for(rbk, generation))
		return false;
	pthread_mutex_lock(&rbk->lock);
	cold->next = rbk->rings;
	cold->link = &rbk->rings;
	if (cold->next)
		cold->next->link = &cold->next;
	rbk->rings = cold;
	/*
	 * The broker was lost before this bell was in the list, so client_lose() and
	 * client_broker_gone() have not shut it.
	 */
	if (rbk->lost)
		ring->lost = rbk->lost;
	else if (rbk->reattach.is_away)
		shutdown(cold->bell, SHUT_RDWR);
	pthread_mutex_unlock(&rbk->lock);
	client_objects_unlock(rbk);
	return true;
}

/* Have the broker make the ring, and map it. */
static int ring_make(struct rbk_ring *ring, struct rbk_wire_ring_add *request,
		     uint32_t *ret_generation, struct rbk_error *error)
{
	struct client_message message = {&request->request, sizeof(*request), NULL, 0, -1};
	struct rbk *rbk = ring->cold->rbk;
	struct client_answer answer;
	int r;

	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	*ret_generation = answer.generation;
	ring->cold->id = answer.reply.ring.id;
	ring->cold->exists = true;
	if (answer.reply.ring.n_entries != request->n_entries)
		r = client_error(error, -EPROTO, "the broker made a ring of %u entries, not of %u",
				 answer.reply.ring.n_entries, request->n_entries);
	else
		r = ring_map(ring, &answer.reply.ring, &answer, error);
	for (unsigned int i = 0; i < answer.n_fds; i++)
		client_close(&answer.fds[i]);
	if (r == -EPROTO)
		client_lose(rbk, r);
	return r;
}

RBK_EXPORT int rbk_ring_new(struct rbk *rbk, unsigned int entries, struct rbk_ring **ret,
			    struct rbk_error *error)
{
	client_cleanup(ring_freep) struct rbk_ring *ring = NULL;
	struct rbk_wire_ring_add request = {.request.type = RBK_WIRE_RING_ADD, .n_entries = 1};
	uint32_t max_entries, generation;
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	if (entries == 0 || entries > RBK_MAX_RING_ENTRIES)
		return client_error(error, -EINVAL, "a ring has 1 to %u entries, not %u",
				    RBK_MAX_RING_ENTRIES, entries);
	while (request.n_entries < entries)
		request.n_entries *= 2;
	max_entries = __atomic_load_n(&rbk->max_ring_entries, __ATOMIC_RELAXED);
	if (request.n_entries > max_entries)
		return client_error(error, -EDQUOT,
				    "the broker allows at most %u entries in a ring, not %u",
				    max_entries, request.n_entries);

	r = ring_alloc(rbk, &ring, error);
	if (r)
		return r;
	for (;;) {
		r = ring_make(ring, &request, &generation, error);
		if (r)
			return r;
		if (ring_link(ring, generation))
			break;
		ring_unmap(ring->cold);
		ring->cold->exists = false;
	}
	*ret = ring;
	ring = NULL;
	return 0;
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
	uint32_t generation, id;

	if (!ring)
		return NULL;
	cold = ring_cold(ring);
	generation = client_objects_lock(cold->rbk);
	if (!client_is_child(cold->rbk))
		ring_unlink(cold);
	client_objects_unlock(cold->rbk);
	id = cold->area ? cold->area->id : cold->id;
	/*
	 * Unmap first: the broker charges for mapped memory, and reports when the ring is removed.
	 */
	ring_unmap(cold);
	if (!client_is_child(cold->rbk) && cold->exists)
		client_remove_unlisted(cold->rbk, RBK_WIRE_RING_REMOVE, id, generation);
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
