/* SPDX-License-Identifier: MIT */
/*
 * Rings: two memfds and a socket pair, made and sealed by the broker
 *
 * The completion area is mapped writable first and sealed with F_SEAL_FUTURE_WRITE then: from that
 * moment nobody, this process included, can map it writable again. The submission area is mapped
 * read-only here: nothing in the broker writes what belongs to the client.
 *
 * The bell is a socket pair because each end is its own open file description: flags that the
 * client sets on its end do not reach ours, and our sends and receives never block.
 */
#include "session/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session/server.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "shm/ring.h"
#include "util/error.h"

enum {
	/* What waits in the bell for a client that never reads is bounded by this. */
	BELL_BUFFER_BYTES = 4096,
	/*
	 * Our end of the bell, and the three that travel to the client: without privilege these
	 * count against our own limit until it has received them, which it may never do.
	 */
	RING_FDS = 4,
	RING_MAPPINGS = 2,
};

static size_t round_to_pages(size_t bytes)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page_bytes - 1) & ~(page_bytes - 1);
}

/* A memfd of @bytes, all pages allocated. */
static int area_new(const char *name, size_t bytes, int *ret_fd)
{
	_cleanup_(close_fdp) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return error_origin(-errno);
	if (ftruncate(fd, (off_t)bytes) < 0 || fallocate(fd, 0, 0, (off_t)bytes) < 0)
		return error_origin(-errno);
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int area_seal(int fd, int seals)
{
	return fcntl(fd, F_ADD_SEALS, seals) < 0 ? error_origin(-errno) : 0;
}

static int ring_charge(struct session_ring *ring)
{
	const struct server_hooks *hooks = &ring->session->server->options.hooks;
	struct account *account = ring->session->tenant->account;

	if (account_charge(account, &ring->charges[0], ACCOUNT_RINGS, 1) ||
	    account_charge(account, &ring->charges[1], ACCOUNT_HOST_BYTES,
			   ring->sq_bytes + ring->cq_bytes + hooks->ring_bytes(ring->n_entries)) ||
	    account_charge(account, &ring->charges[2], ACCOUNT_FDS, RING_FDS) ||
	    account_charge(account, &ring->charges[3], ACCOUNT_MAPPINGS, RING_MAPPINGS) ||
	    account_charge(account, &ring->charges[4], ACCOUNT_TASKS, ring->n_entries))
		return RING_E_QUOTA;
	return 0;
}

int ring_new(struct session *session, uint32_t id, uint32_t n_entries, struct ring_fds *ret_fds,
	     struct session_ring **ret)
{
	_cleanup_(ring_freep) struct session_ring *ring = NULL;
	_cleanup_(close_fdp) int sq_fd = -1, cq_fd = -1;
	int bell[2], buffer_bytes = BELL_BUFFER_BYTES;
	void *area;
	int r;

	if (!rbk_is_power_of_two(n_entries) ||
	    n_entries > session->server->options.limits.max_ring_entries)
		return RING_E_GEOMETRY;

	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return error_origin(-ENOMEM);
	*ring = (struct session_ring){
		.session = session,
		.id = id,
		.n_entries = n_entries,
		.mask = n_entries - 1,
		.bell_fd = -1,
		.fault_slot = -1,
		.sq_bytes = round_to_pages(RBK_SQ_AREA_BYTES(n_entries)),
		.cq_bytes = round_to_pages(RBK_CQ_AREA_BYTES(n_entries)),
	};
	r = ring_charge(ring);
	if (r)
		return r;

	r = area_new("ringbroker-sq", ring->sq_bytes, &sq_fd);
	if (r)
		return error_fold(r);
	r = area_new("ringbroker-cq", ring->cq_bytes, &cq_fd);
	if (r)
		return error_fold(r);

	area = mmap(NULL, ring->sq_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, sq_fd, 0);
	if (area == MAP_FAILED)
		return error_origin(-errno);
	ring->sq = area;
	/* The client can take its pages away, and they may not come back when we read. */
	r = sigbus_add(area, ring->sq_bytes, &ring->is_faulted, &ring->fault_slot);
	if (r)
		return error_fold(r);
	area = mmap(NULL, ring->cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, cq_fd,
		    0);
	if (area == MAP_FAILED)
		return error_origin(-errno);
	ring->cq = area;

	r = area_seal(sq_fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (r)
		return error_fold(r);
	r = area_seal(cq_fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	if (r)
		return error_fold(r);

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bell) < 0)
		return error_origin(-errno);
	ring->bell_fd = bell[0];
	ret_fds->bell = bell[1];
	if (setsockopt(bell[0], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes)) < 0 ||
	    setsockopt(bell[1], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes)) < 0) {
		r = error_origin(-errno);
		ret_fds->bell = close_fd(ret_fds->bell);
		return r;
	}

	ret_fds->sq = steal_fd(&sq_fd);
	ret_fds->cq = steal_fd(&cq_fd);
	*ret = steal_ptr(ring);
	return 0;
}

struct session_ring *ring_free(struct session_ring *ring)
{
	if (!ring)
		return NULL;
	sigbus_remove(ring->fault_slot);
	if (ring->sq)
		munmap((void *)ring->sq, ring->sq_bytes);
	if (ring->cq)
		munmap(ring->cq, ring->cq_bytes);
	close_fd(ring->bell_fd);
	for (unsigned int i = 0; i < ARRAY_SIZE(ring->charges); i++)
		charge_deinit(&ring->charges[i]);
	free(ring);
	return NULL;
}
