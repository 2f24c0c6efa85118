/* SPDX-License-Identifier: MIT */
/*
 * Rings: two memfds and a socket pair, made and sealed by the broker
 *
 * Allocating, mapping and unmapping a large ring takes milliseconds, so the setup thread does it,
 * and allocates a step at a time: other jobs run in between. The reactor only charges for a ring
 * and links it in and out.
 *
 * The completion area is mapped writable and then sealed with F_SEAL_FUTURE_WRITE. From then on no
 * process, including the broker, can map it writable again. The broker maps the submission area
 * read-only, because only the client writes there.
 *
 * The client has a descriptor of the submission area and could punch holes into it. A thread that
 * reads there sleeps until the punching ends, and a client that repeats it can delay the thread for
 * seconds. The reactor therefore does not read the area until it is sealed with F_SEAL_FUTURE_WRITE
 * as well, which also forbids punching. The client must have mapped the area by then. Its first
 * bell says so: the broker is announced to sleep on the ring from the beginning.
 *
 * The bell is a socket pair because each end is an open file description of its own: flags that the
 * client sets on its end do not affect the broker's, and the broker's sends and receives never
 * block.
 */
#include "session/ring-memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session/server.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "shm/number.h"
#include "shm/ring.h"
#include "util/error.h"
#include "util/pages.h"

enum {
	/* Bounds the messages in the bell of a client that never reads. */
	BELL_BUFFER_BYTES = 4096,
	/*
	 * Our end of the bell, and the three descriptors sent to the client. Without privilege
	 * these count against our own limit until the client has received them, which it may never
	 * do. All four stay charged while the client's end of the bell exists, in flight or
	 * received.
	 */
	RING_FDS = 4,
	RING_MAPPINGS = 3, /* each area, and the dispatcher's memory of a large ring */
	RING_WATCHES = 2,  /* one per area */
	/* Bytes of the areas that one call of ring_make() fills: some 300 us */
	MAKE_STEP_BYTES = 1 << 20,
};

static size_t round_to_pages(size_t bytes)
{
	return round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

/* Create a memfd of @bytes, for which fill_area() allocates pages. */
static int area_new(struct hold *hold, const char *name, size_t bytes, int *ret_fd)
{
	_cleanup_(close_fdp) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return error_origin(-errno);
	if (ftruncate(fd, (off_t)bytes) < 0)
		return error_origin(-errno);
	/* Watch last, because hold_leave_files() must precede the closing of a watched area. */
	r = hold_watch(hold, fd);
	if (r)
		return error_fold(r);
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

	if (account_charge(account, &ring->charges[RING_CHARGE_ONE], ACCOUNT_RINGS, 1) ||
	    account_charge(account, &ring->charges[RING_CHARGE_HOST_BYTES], ACCOUNT_HOST_BYTES,
			   sizeof(struct session_table) + hooks->ring_bytes(ring->n_entries)) ||
	    account_charge(account, &ring->charges[RING_CHARGE_AREA_BYTES], ACCOUNT_HOST_BYTES,
			   ring->sq_bytes + ring->cq_bytes + HOLD_FILES * HOLD_FILE_BYTES +
				   HOLD_BYTES) ||
	    account_charge(account, &ring->charges[RING_CHARGE_BELL_BYTES], ACCOUNT_HOST_BYTES,
			   HOLD_SOCKETS_BYTES + HOLD_BYTES) ||
	    account_charge(account, &ring->charges[RING_CHARGE_FDS], ACCOUNT_FDS, RING_FDS) ||
	    (ring->is_restored &&
	     account_charge(account, &ring->charges[RING_CHARGE_FROM_FD], ACCOUNT_FDS, 1)) ||
	    account_charge(account, &ring->charges[RING_CHARGE_MAPPINGS], ACCOUNT_MAPPINGS,
			   RING_MAPPINGS) ||
	    account_charge(account, &ring->charges[RING_CHARGE_WATCHES], ACCOUNT_WATCHES,
			   RING_WATCHES) ||
	    account_charge(account, &ring->charges[RING_CHARGE_TASKS], ACCOUNT_TASKS,
			   ring->n_entries))
		return RING_E_QUOTA;
	return 0;
}

/* Create the holds for the parts of a ring that a client may keep. */
static int ring_hold(struct session_ring *ring)
{
	struct server *server = ring->session->server;
	int r = hold_new(server, HOLD_FILES, &ring->area_hold);

	if (r == 0)
		r = hold_new(server, 0, &ring->bell_hold);
	return r ? error_fold(r) : 0;
}

static bool session_has(const struct session *session, uint64_t features)
{
	return (session->features & features) == features;
}

/* Return the size of the completion area of a session's ring. */
static size_t cq_bytes(const struct session *session, uint32_t n_entries)
{
	if (session_has(session, RBK_FEAT_REATTACH | RBK_FEAT_AFTER))
		return RBK_CQ_AFTER_BYTES(n_entries);
	if (session_has(session, RBK_FEAT_REATTACH | RBK_FEAT_UNDO))
		return RBK_CQ_UNDO_BYTES(n_entries);
	if (session_has(session, RBK_FEAT_REATTACH))
		return RBK_CQ_REATTACH_BYTES(n_entries);
	return RBK_CQ_AREA_BYTES(n_entries);
}

static int ring_new_any(struct session *session, uint32_t id, uint32_t n_entries, bool is_restored,
			struct session_ring **ret)
{
	_cleanup_(ring_freep) struct session_ring *ring = NULL;
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
		.client_fds = {-1, -1, -1},
		.is_restored = is_restored,
		.from_fd = -1,
		.fault_slot = -1,
		.sq_bytes = round_to_pages(RBK_SQ_AREA_BYTES(n_entries)),
		.cq_bytes = round_to_pages(cq_bytes(session, n_entries)),
	};
	r = ring_charge(ring);
	if (r)
		return r;
	r = ring_hold(ring);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(ring);
	return 0;
}

int ring_new(struct session *session, uint32_t id, uint32_t n_entries, struct session_ring **ret)
{
	return ring_new_any(session, id, n_entries, false, ret);
}

int ring_new_restored(struct session *session, uint32_t id, uint32_t n_entries, int fds[2],
		      struct session_ring **ret, const char **ret_why)
{
	struct session_ring *ring;
	int r = ring_new_any(session, id, n_entries, true, &ring);

	if (r)
		return r;
	*ret_why = ring_restore_check(fds[0], ring->sq_bytes);
	if (!*ret_why)
		*ret_why = ring_restore_check(fds[1], ring->cq_bytes);
	if (*ret_why) {
		ring_free(ring);
		return RING_E_UNSUITABLE;
	}
	ring->client_fds[RING_FD_SQ] = steal_fd(&fds[0]);
	ring->from_fd = steal_fd(&fds[1]);
	*ret = ring;
	return 0;
}

static int map_area(int fd, size_t bytes, int protection, void **ret)
{
	void *area = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

	if (area == MAP_FAILED)
		return error_origin(-errno);
	*ret = area;
	return 0;
}

/* Create the areas that are new, and map both. */
static int new_areas(struct session_ring *ring)
{
	int *fds = ring->client_fds;
	void *area = NULL;
	int r;

	if (ring->is_restored)
		r = hold_watch(ring->area_hold, fds[RING_FD_SQ]);
	else
		r = area_new(ring->area_hold, "ringbroker-sq", ring->sq_bytes, &fds[RING_FD_SQ]);
	if (r)
		return error_fold(r);
	r = area_new(ring->area_hold, "ringbroker-cq", ring->cq_bytes, &fds[RING_FD_CQ]);
	if (r)
		return error_fold(r);
	r = map_area(fds[RING_FD_SQ], ring->sq_bytes, PROT_READ, &area);
	if (r)
		return error_fold(r);
	ring->sq = area;
	r = map_area(fds[RING_FD_CQ], ring->cq_bytes, PROT_READ | PROT_WRITE, &area);
	if (r)
		return error_fold(r);
	ring->cq = area;
	return 0;
}

/* Allocate, where the area is new, and fault in @bytes of an area from @offset on. */
static int fill_area(const struct session_ring *ring, bool is_sq, size_t offset, size_t bytes)
{
	const int fd = ring->client_fds[is_sq ? RING_FD_SQ : RING_FD_CQ];
	char *base = is_sq ? (char *)ring->sq : (char *)ring->cq;

	if (!(is_sq && ring->is_restored) && fallocate(fd, 0, (off_t)offset, (off_t)bytes) < 0)
		return error_origin(-errno);
	pages_populate(base + offset, bytes, !is_sq);
	return 0;
}

/* Fill the next step of the areas. Return: 0; RING_E_MORE; a negative errno. */
static int fill_areas(struct session_ring *ring)
{
	const size_t all_bytes = ring->sq_bytes + ring->cq_bytes;
	size_t left = MAKE_STEP_BYTES;
	int r;

	while (left > 0 && ring->filled_bytes < all_bytes) {
		const bool is_sq = ring->filled_bytes < ring->sq_bytes;
		const size_t offset = ring->filled_bytes - (is_sq ? 0 : ring->sq_bytes);
		size_t bytes = (is_sq ? ring->sq_bytes : ring->cq_bytes) - offset;

		bytes = bytes < left ? bytes : left;
		r = fill_area(ring, is_sq, offset, bytes);
		if (r)
			return error_fold(r);
		ring->filled_bytes += bytes;
		left -= bytes;
	}
	return ring->filled_bytes < all_bytes ? RING_E_MORE : 0;
}

static int seal_areas(struct session_ring *ring)
{
	const int *fds = ring->client_fds;
	int r;

	if (session_has(ring->session, RBK_FEAT_REATTACH))
		ring->records = rbk_ring_records(ring->cq, ring->n_entries);
	if (session_has(ring->session, RBK_FEAT_REATTACH | RBK_FEAT_UNDO))
		ring->undo = rbk_ring_undo(ring->cq, ring->n_entries);
	if (session_has(ring->session, RBK_FEAT_REATTACH | RBK_FEAT_AFTER))
		ring->failed = rbk_ring_failed(ring->cq, ring->n_entries);
	r = ring->is_restored ? ring_restore(ring)
			      : area_seal(fds[RING_FD_SQ], F_SEAL_SHRINK | F_SEAL_GROW);
	ring->from_fd = close_fd(ring->from_fd);
	if (r)
		return r == RING_E_UNSUITABLE ? r : error_fold(r);
	r = area_seal(fds[RING_FD_CQ],
		      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	return r ? error_fold(r) : 0;
}

static int make_bell(struct session_ring *ring)
{
	int bell[2], buffer_bytes = BELL_BUFFER_BYTES;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bell) < 0)
		return error_origin(-errno);
	ring->bell_fd = bell[0];
	ring->client_fds[RING_FD_BELL] = bell[1];
	if (setsockopt(bell[0], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes)) < 0 ||
	    setsockopt(bell[1], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes)) < 0)
		return error_origin(-errno);
	/* Linux 6.16 and later; otherwise session_ring_drain_bell() checks for descriptors. */
	ring->bell_refuses_fds = closers_take_fds(bell[0], false);
	return 0;
}

int ring_make(struct session_ring *ring)
{
	const struct server_hooks *hooks = &ring->session->server->options.hooks;
	int r;

	r = ring->cq ? 0 : new_areas(ring);
	if (r == 0)
		r = fill_areas(ring);
	if (r == 0)
		r = seal_areas(ring);
	if (r == 0)
		r = make_bell(ring);
	if (r == 0)
		r = hooks->ring_make(hooks->context, ring);
	return r && r != RING_E_UNSUITABLE && r != RING_E_MORE ? error_fold(r) : r;
}

static void close_client_fds(struct session_ring *ring)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(ring->client_fds); i++)
		ring->client_fds[i] = close_fd(ring->client_fds[i]);
}

int ring_seal(struct session_ring *ring)
{
	int fd = ring->client_fds[RING_FD_SQ], r = 0, seals;

	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		/* The client has a descriptor, and may have added either seal itself. */
		seals = fcntl(fd, F_GET_SEALS);
		if (seals < 0)
			r = error_origin(-errno);
		else if (!(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
			r = RING_E_UNSEALED;
	}
	/*
	 * Fault in pages that the client removed before the seal here rather than in the reactor.
	 */
	if (r == 0)
		pages_populate((void *)ring->sq, ring->sq_bytes, false);
	close_client_fds(ring);
	return r;
}

void ring_unmake(struct session_ring *ring)
{
	const struct server_hooks *hooks = &ring->session->server->options.hooks;

	hooks->ring_unmake(hooks->context, ring);
	sigbus_remove(ring->fault_slot);
	ring->fault_slot = -1;
	if (ring->sq)
		munmap((void *)ring->sq, ring->sq_bytes);
	if (ring->cq)
		munmap(ring->cq, ring->cq_bytes);
	ring->sq = NULL;
	ring->cq = NULL;
	close_client_fds(ring);
}

struct session_ring *ring_free(struct session_ring *ring)
{
	if (!ring)
		return NULL;
	for (unsigned int i = 0; i < ARRAY_SIZE(ring->charges); i++)
		charge_deinit(&ring->charges[i]);
	hold_free(ring->area_hold);
	hold_free(ring->bell_hold);
	close_fd(ring->bell_fd);
	close_fd(ring->from_fd);
	close_client_fds(ring);
	free(ring->table);
	free(ring);
	return NULL;
}
