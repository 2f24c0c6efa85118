/* SPDX-License-Identifier: MIT */
/*
 * A broker for tests of the client library
 *
 * One thread owns all state; the test's calls are commands that it executes between two turns. A
 * turn serves the sockets, then the rings. After a turn without work it announces its sleep in
 * every ring, checks once more, and polls. A fault is applied to the answer just before sending, so
 * that the rest of the answer is right.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/ring.h"
#include "shm/wire.h"
#include "support/fake-broker.h"

#define FAKE_RINGS    16
#define FAKE_SESSIONS 8
#define FAKE_HELD_MAX 512
#define FAKE_SEND_FDS 8

/* A failure inside the fake broker is a bug of the test. */
#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
				strerror(errno));                                          \
			abort();                                                           \
		}                                                                          \
	} while (0)

enum fake_command {
	COMMAND_NONE,
	COMMAND_KILL,
	COMMAND_RELEASE,
	COMMAND_CLOSE_RINGS,
	COMMAND_SPOIL_RINGS,
	COMMAND_RING_BELLS,
	COMMAND_TELL_DUE,
	COMMAND_TELL_PROCESSOR,
};

struct fake_ring {
	bool used;
	int session;
	int bell;
	uint32_t n;
	struct rbk_sq_area *sq;
	struct rbk_cq_area *cq;
	size_t cq_bytes;
	bool commits; /* RBK_FEAT_REATTACH */
	uint32_t sq_head;
	uint32_t cq_tail;
	uint32_t token;      /* token of the broker's last sleep */
	uint32_t rung_token; /* token of the client's last sleep that ended with a bell */
};

union fake_answer {
	struct rbk_wire_reply head;
	struct rbk_wire_welcome welcome;
	struct rbk_wire_ring ring;
	struct rbk_wire_id_reply id;
	struct rbk_wire_plan plan;
	struct rbk_wire_devices devices;
	struct rbk_wire_stats stats;
	struct rbk_wire_plan_memory plan_memory;
	struct rbk_wire_tenant tenant;
	unsigned char bytes[RBK_WIRE_MAX_BYTES]; /* room for more bytes than any answer has */
};

struct fake_held {
	int session;
	int fd; /* -1: none */
	union fake_answer answer;
	size_t bytes;
};

struct fake_broker {
	struct fake_options options;
	char client[RBK_WIRE_NAME_BYTES]; /* the name of the last one */
	char directory[64];
	char path[96];
	pthread_t thread;
	bool running;

	/* Shared by the test and the thread. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int wake; /* eventfd */
	enum fake_command command;
	uint32_t arguments[2];
	bool paused;                 /* atomic */
	bool hidden;                 /* atomic */
	unsigned int n_requests[32]; /* atomic, like the next members */
	uint64_t ids;
	unsigned int n_objects;
	unsigned int n_wakeups;
	unsigned int n_wakeups_sent;

	/* Owned by the thread. */
	int listener;
	int sessions[FAKE_SESSIONS];
	uint64_t features[FAKE_SESSIONS];
	uint64_t session_ids[FAKE_SESSIONS]; /* part of ids */
	uint32_t wanted_id;                  /* 0: none */
	int got_fds[2];                      /* of the request that is being answered; -1: none */
	struct fake_ring rings[FAKE_RINGS];
	struct fake_held *held;
	unsigned int n_held;
	uint32_t next_id;
};

static void count(unsigned int *counter, unsigned int n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* ---- Rings ---- */

static void *map_memfd(const char *name, size_t bytes, size_t file_bytes, int *ret_fd)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *map;

	CHECK(fd >= 0);
	CHECK(!ftruncate(fd, (off_t)bytes));
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	if (file_bytes != bytes)
		CHECK(!ftruncate(fd, (off_t)file_bytes));
	*ret_fd = fd;
	return map;
}

static size_t round_page(size_t bytes)
{
	return (bytes + 4095) / 4096 * 4096;
}

static struct fake_ring *ring_new(struct fake_broker *fake, int session, uint32_t n,
				  struct rbk_wire_ring *answer)
{
	struct fake_ring *ring = fake->rings;

	while (ring->used)
		CHECK(++ring < fake->rings + FAKE_RINGS);
	memset(ring, 0, sizeof(*ring));
	ring->commits = fake->features[session] & RBK_FEAT_REATTACH;
	ring->cq_bytes =
		round_page(ring->commits ? RBK_CQ_REATTACH_BYTES(n) : RBK_CQ_AREA_BYTES(n));
	ring->session = session;
	ring->n = n;
	answer->sq_bytes = round_page(RBK_SQ_AREA_BYTES(n));
	answer->cq_bytes = ring->cq_bytes;
	answer->n_entries = n;
	answer->id = (uint32_t)(ring - fake->rings);
	return ring;
}

/* Seal the completion area and make the bell. */
static void ring_open(struct fake_ring *ring, int fds[3])
{
	int pair[2];

	CHECK(!fcntl(fds[1], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE));
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
	ring->bell = pair[0];
	fds[2] = pair[1];
}

static void ring_commit(struct fake_ring *ring)
{
	if (ring->commits)
		__atomic_store_n(&ring->cq->commit,
				 rbk_commit_word(ring->sq_head, ring->cq_tail, 0),
				 __ATOMIC_RELEASE);
}

static void ring_make(struct fake_broker *fake, int session, uint32_t n, enum fake_fault fault,
		      struct rbk_wire_ring *answer, int fds[3])
{
	struct fake_ring *ring = ring_new(fake, session, n, answer);
	bool is_short = fault == FAKE_FILE_SHORT;

	ring->sq = map_memfd("sq", answer->sq_bytes, is_short ? 0 : answer->sq_bytes, &fds[0]);
	ring->cq = map_memfd("cq", answer->cq_bytes, is_short ? 0 : answer->cq_bytes, &fds[1]);
	if (!is_short) {
		ring->sq->sq_tail = ring->cq->sq_head = ring->sq_head = fake->options.start;
		ring->sq->cq_head = ring->cq->cq_tail = ring->cq_tail = fake->options.start;
		ring->cq->has_barriers = fake->options.has_barriers;
	}
	ring_open(ring, fds);
	ring->used = !is_short;
	if (is_short)
		close(ring->bell);
}

/* Take over a ring of an earlier broker, whose areas are got_fds. */
static void ring_restore(struct fake_broker *fake, int session, uint32_t n,
			 struct rbk_wire_ring *answer, int fds[3])
{
	struct fake_ring *ring = ring_new(fake, session, n, answer);
	struct rbk_cq_area *old;

	CHECK(ring->commits && fake->got_fds[0] >= 0 && fake->got_fds[1] >= 0);
	ring->sq = mmap(NULL, answer->sq_bytes, PROT_READ, MAP_SHARED, fake->got_fds[0], 0);
	old = mmap(NULL, ring->cq_bytes, PROT_READ, MAP_SHARED, fake->got_fds[1], 0);
	CHECK(ring->sq != MAP_FAILED && old != MAP_FAILED);
	fds[0] = fake->got_fds[0];
	fake->got_fds[0] = -1;
	ring->cq = map_memfd("cq", ring->cq_bytes, ring->cq_bytes, &fds[1]);
	rbk_commit_load(old, &ring->cq->commit_base);
	ring->cq->sq_head = ring->sq_head = (uint32_t)ring->cq->commit_base.sq_head;
	ring->cq->cq_tail = ring->cq_tail = (uint32_t)ring->cq->commit_base.cq_tail;
	ring->cq->has_barriers = fake->options.has_barriers;
	memcpy(ring->cq->cqes, old->cqes, n * sizeof(ring->cq->cqes[0]));
	munmap(old, ring->cq_bytes);
	ring_commit(ring);
	ring_open(ring, fds);
	ring->used = true;
}

static void ring_drop(struct fake_ring *ring)
{
	if (ring->bell >= 0)
		close(ring->bell);
	munmap(ring->sq, round_page(RBK_SQ_AREA_BYTES(ring->n)));
	munmap(ring->cq, ring->cq_bytes);
	ring->used = false;
}

static uint64_t fake_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * Complete the ring's entries as far as the completion ring has room.
 * Return: true if it completed any.
 */
static bool ring_serve(struct fake_broker *fake, struct fake_ring *ring)
{
	uint32_t tail = rbk_ring_observe(&ring->sq->sq_tail);
	uint32_t head = rbk_ring_observe(&ring->sq->cq_head);
	uint32_t token, n_done = 0;

	if (__atomic_load_n(&fake->paused, __ATOMIC_ACQUIRE))
		return false;
	while (ring->sq_head != tail && ring->cq_tail - head < ring->n) {
		struct rbk_cqe *cqe = &ring->cq->cqes[ring->cq_tail++ & (ring->n - 1)];
		struct rbk_sqe sqe;

		rbk_sqe_load(&sqe, &ring->sq->sqes[ring->sq_head++ & (ring->n - 1)]);
		/* Opcode and plan show the test which entry arrived. */
		*cqe = (struct rbk_cqe){.user_data = sqe.user_data,
					.device = RBK_DEVICE_NONE,
					.queue_ns = sqe.opcode,
					.exec_ns = sqe.plan_id};
		n_done++;
	}
	if (n_done == 0)
		return false;
	ring_commit(ring);
	if (__atomic_load_n(&fake->hidden, __ATOMIC_ACQUIRE))
		return true;
	rbk_ring_publish(&ring->cq->sq_head, ring->sq_head);
	rbk_ring_publish(&ring->cq->cq_tail, ring->cq_tail);
	token = rbk_ring_sleep_token(&ring->sq->cq_wait);
	if (token != 0 && token != ring->rung_token && ring->bell >= 0 &&
	    rbk_ring_is_wanted(&ring->sq->cq_wanted, ring->cq_tail)) {
		ring->rung_token = token;
		count(&fake->n_wakeups_sent, 1);
		__atomic_store_n(&ring->cq->rung_ns, fake_now_ns() - fake->options.rung_early_ns,
				 __ATOMIC_RELAXED);
		send(ring->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	return true;
}

static bool ring_has_work(struct fake_ring *ring)
{
	return rbk_ring_observe(&ring->sq->sq_tail) != ring->sq_head &&
	       ring->cq_tail - rbk_ring_observe(&ring->sq->cq_head) < ring->n;
}

/* ---- Requests ---- */

static void send_packet(int fd, const void *bytes, size_t n_bytes, const int *fds,
			unsigned int n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(FAKE_SEND_FDS * sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)bytes, n_bytes};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

	if (n_fds > 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
	}
	sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Return the id of a new arena or plan: the next one, or the one that was wanted. */
static uint32_t id_new(struct fake_broker *fake, int session)
{
	uint32_t id = fake->wanted_id ? fake->wanted_id : fake->next_id;

	fake->wanted_id = 0;
	if (id >= fake->next_id)
		fake->next_id = id + 1;
	if (id < 64) {
		__atomic_fetch_or(&fake->ids, 1ull << id, __ATOMIC_RELAXED);
		fake->session_ids[session] |= 1ull << id;
	}
	return id;
}

/* Fix the memfd that came with the request, if @bytes asks for it: no other broker has done so. */
static void arena_fix(struct fake_broker *fake, uint64_t bytes)
{
	void *map;

	CHECK(!(bytes & RBK_WIRE_ARENA_DMA_BUF) || !(bytes & RBK_WIRE_ARENA_FIX));
	/* A memfd stands for a dma-buf; it has no seals. */
	CHECK(!(bytes & RBK_WIRE_ARENA_DMA_BUF) ==
	      (fcntl(fake->got_fds[0], F_GET_SEALS) > F_SEAL_SEAL));
	if (!(bytes & RBK_WIRE_ARENA_FIX))
		return;
	bytes &= ~RBK_WIRE_ARENA_FIX;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fake->got_fds[0], 0);
	CHECK(map != MAP_FAILED);
	CHECK(!fcntl(fake->got_fds[0], F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	munmap(map, bytes);
}

static void id_drop(struct fake_broker *fake, uint32_t id)
{
	if (id < 64)
		__atomic_fetch_and(&fake->ids, ~(1ull << id), __ATOMIC_RELAXED);
}

/*
 * Fill in the right answer to a request.
 * Return: its length.
 */
static size_t answer_right(struct fake_broker *fake, int session, const void *request,
			   enum fake_fault fault, union fake_answer *answer, int *fds,
			   unsigned int *ret_n_fds)
{
	const struct rbk_wire_request *head = request;
	uint32_t n;

	*ret_n_fds = 0;
	switch (head->type) {
	case RBK_WIRE_HELLO:
		memcpy(fake->client, ((const struct rbk_wire_hello *)request)->name,
		       sizeof(fake->client));
		answer->welcome.abi_major = RBK_ABI_MAJOR;
		answer->welcome.n_devices = 1;
		/* A broker of version 1.0 rejects a newer minor version, too. */
		if (fake->options.is_old && ((const struct rbk_wire_hello *)request)->abi_minor > 0)
			answer->head.res = -EPROTONOSUPPORT;
		if (!fake->options.is_old)
			answer->welcome.features =
				((RBK_FEAT_RESIDENCY | RBK_FEAT_TENANTS | 1ull << 60) &
				 ~fake->options.lacks) |
				(fake->options.features &
				 ((const struct rbk_wire_hello *)request)->features);
		fake->features[session] = answer->welcome.features;
		answer->welcome.max_ring_entries = fake->options.max_ring_entries
							   ? fake->options.max_ring_entries
							   : RBK_MAX_RING_ENTRIES;
		answer->welcome.arena_segment_bytes = fake->options.segment_bytes;
		answer->welcome.flags = fake->options.exports ? RBK_WIRE_WELCOME_EXPORTS : 0;
		strcpy(answer->welcome.broker, fake->options.name ? fake->options.name : "fake");
		return sizeof(answer->welcome);
	case RBK_WIRE_RING_ADD:
		n = ((const struct rbk_wire_ring_add *)request)->n_entries;
		ring_make(fake, session, fault == FAKE_ENTRIES_OTHER ? 2 * n : n, fault,
			  &answer->ring, fds);
		*ret_n_fds = 3;
		count(&fake->n_objects, 1);
		return sizeof(answer->ring);
	case RBK_WIRE_ARENA_NEW:
		fds[0] = memfd_create("exported", MFD_CLOEXEC);
		CHECK(fds[0] >= 0);
		n = fault == FAKE_ARENA_SHORT ? 4096 : 0;
		CHECK(!ftruncate(fds[0],
				 (off_t)((const struct rbk_wire_arena_new *)request)->bytes - n));
		*ret_n_fds = 1;
		answer->id.id = id_new(fake, session);
		count(&fake->n_objects, fault != FAKE_REFUSE);
		return sizeof(answer->id);
	case RBK_WIRE_RING_RESTORE:
		ring_restore(fake, session, ((const struct rbk_wire_ring_add *)request)->n_entries,
			     &answer->ring, fds);
		*ret_n_fds = 3;
		count(&fake->n_objects, 1);
		return sizeof(answer->ring);
	case RBK_WIRE_WANT_ID:
		fake->wanted_id = ((const struct rbk_wire_id *)request)->id;
		if (fake->ids >> fake->wanted_id & 1)
			answer->head.res = -EBUSY;
		return sizeof(answer->head);
	case RBK_WIRE_ARENA_ADD:
		arena_fix(fake, ((const struct rbk_wire_arena_add *)request)->bytes);
		answer->id.id = id_new(fake, session);
		count(&fake->n_objects, 1);
		return sizeof(answer->id);
	case RBK_WIRE_PLAN_ADD:
		answer->plan.id = id_new(fake, session);
		answer->plan.devices = 1;
		answer->plan.flops_row = ((const struct rbk_wire_plan_add *)request)->desc_bytes;
		answer->plan.flops_fixed = ((const struct rbk_wire_plan_add *)request)->flags;
		count(&fake->n_objects, 1);
		return sizeof(answer->plan);
	case RBK_WIRE_RING_REMOVE:
		ring_drop(&fake->rings[((const struct rbk_wire_id *)request)->id]);
		count(&fake->n_objects, -1u);
		return sizeof(answer->head);
	case RBK_WIRE_ARENA_REMOVE:
	case RBK_WIRE_PLAN_REMOVE:
		id_drop(fake, ((const struct rbk_wire_id *)request)->id);
		count(&fake->n_objects, -1u);
		return sizeof(answer->head);
	case RBK_WIRE_DEVICES:
		answer->devices.n_devices = 2;
		answer->devices.devices[1].index = 1;
		answer->devices.devices[1].kind = RBK_WIRE_DEVICE_GPU;
		answer->devices.devices[1].memory_bytes = 1 << 30;
		strcpy(answer->devices.devices[0].name, "cpu");
		strcpy(answer->devices.devices[1].paths, "staged");
		return sizeof(answer->devices);
	case RBK_WIRE_STATS:
		answer->stats.session_tasks[0] = 11;
		answer->stats.session_reasons[RBK_REASON_COUNT - 1] = 22;
		answer->stats.host_bytes = 33;
		answer->stats.sessions_ended_hostile = 44;
		return sizeof(answer->stats);
	case RBK_WIRE_PLAN_MEMORY:
		CHECK(!fake->options.is_old);
		answer->plan_memory.n_devices = 2;
		answer->plan_memory.n_constrained = ((const struct rbk_wire_id *)request)->id;
		answer->plan_memory.devices[0].state = RBK_MEMORY_RESIDENT;
		answer->plan_memory.devices[1] = (struct rbk_wire_plan_device){
			RBK_MEMORY_EVICTED, RBK_TIER_GTT, 1, 2, 3, 4, 5};
		return sizeof(answer->plan_memory);
	case RBK_WIRE_TENANT:
		CHECK(!fake->options.is_old);
		strcpy(answer->tenant.name, "web");
		answer->tenant.host_bytes = (struct rbk_wire_use){1, 2};
		answer->tenant.sessions = (struct rbk_wire_use){3, UINT64_MAX};
		answer->tenant.n_evictions = 4;
		answer->tenant.n_refused = 5;
		answer->tenant.n_devices = 2;
		answer->tenant.devices[1] = (struct rbk_wire_tenant_device){{6, 7}, 8, 9, {10, 11}};
		return sizeof(answer->tenant);
	default:
		CHECK(!"a known request");
		return 0;
	}
}

/*
 * Apply a fault to the answer.
 * Return: the length of the altered answer.
 */
static size_t answer_spoil(enum fake_fault fault, union fake_answer *answer, size_t bytes, int *fds,
			   unsigned int *n_fds)
{
	switch (fault) {
	case FAKE_REFUSE:
		answer->head.res = -EDQUOT;
		strcpy(answer->head.text, "that is too much");
		break;
	case FAKE_REFUSE_EVER:
		answer->head.res = -EINVAL;
		strcpy(answer->head.text, "that is wrong");
		break;
	case FAKE_REFUSE_BARE:
		answer->head.res = -EBUSY;
		bytes = sizeof(answer->head);
		break;
	case FAKE_SHORT:
		return bytes - 4;
	case FAKE_EMPTY:
		return 4;
	case FAKE_LONG:
		return bytes + 8;
	case FAKE_HUGE:
		return sizeof(*answer);
	case FAKE_COOKIE:
		answer->head.cookie += 1000;
		break;
	case FAKE_TYPE:
		answer->head.type =
			answer->head.type == RBK_WIRE_STATS ? RBK_WIRE_HELLO : RBK_WIRE_STATS;
		break;
	case FAKE_POSITIVE:
		answer->head.res = 1;
		break;
	case FAKE_ENDLESS:
		answer->head.res = -EINVAL;
		memset(answer->head.text, 'x', sizeof(answer->head.text));
		break;
	case FAKE_VERSION:
		answer->welcome.abi_major = RBK_ABI_MAJOR + 1;
		break;
	case FAKE_ENTRIES_0:
		answer->ring.n_entries = 0;
		break;
	case FAKE_ENTRIES_3:
		answer->ring.n_entries = 3;
		break;
	case FAKE_AREA_SMALL:
		answer->ring.cq_bytes = 512;
		break;
	case FAKE_AREA_HUGE:
		answer->ring.sq_bytes = 1ull << 40;
		break;
	case FAKE_SEGMENT_ODD:
		answer->welcome.arena_segment_bytes = 4097;
		break;
	case FAKE_ID:
		answer->id.id = 0xffff;
		break;
	case FAKE_DEVICES_17:
		if (answer->head.type == RBK_WIRE_PLAN_MEMORY)
			answer->plan_memory.n_devices = 17;
		else if (answer->head.type == RBK_WIRE_TENANT)
			answer->tenant.n_devices = 17;
		else
			answer->devices.n_devices = 17;
		break;
	case FAKE_NAME_ENDLESS:
		if (answer->head.type == RBK_WIRE_TENANT)
			memset(answer->tenant.name, 'x', sizeof(answer->tenant.name));
		else
			memset(answer->devices.devices[1].driver, 'x', 64);
		break;
	case FAKE_FDS_WRONG:
		for (unsigned int i = 0; i < *n_fds; i++) {
			close(fds[i]);
			fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
		}
		break;
	case FAKE_FDS_MISSING:
		while (*n_fds > 0)
			close(fds[--*n_fds]);
		break;
	case FAKE_FDS_TOO_MANY:
	case FAKE_FDS_FLOOD:
		do
			fds[(*n_fds)++] = open("/dev/null", O_RDWR | O_CLOEXEC);
		while (fault == FAKE_FDS_FLOOD && *n_fds < FAKE_SEND_FDS);
		break;
	default:
		break;
	}
	return bytes;
}

static void fake_close_all(struct fake_broker *fake)
{
	for (int i = 0; i < FAKE_RINGS; i++)
		if (fake->rings[i].used)
			ring_drop(&fake->rings[i]);
	for (int i = 0; i < FAKE_SESSIONS; i++) {
		if (fake->sessions[i] >= 0)
			close(fake->sessions[i]);
		fake->sessions[i] = -1;
	}
	if (fake->listener >= 0)
		close(fake->listener);
	fake->listener = -1;
	unlink(fake->path);
}

/* Close the descriptors that came with the request. */
static void drop_got_fds(struct fake_broker *fake)
{
	for (int i = 0; i < 2; i++) {
		if (fake->got_fds[i] >= 0)
			close(fake->got_fds[i]);
		fake->got_fds[i] = -1;
	}
}

static void answer_request(struct fake_broker *fake, int session, const void *request)
{
	const struct rbk_wire_request *head = request;
	enum fake_fault fault = FAKE_OK;
	union fake_answer answer;
	int fds[FAKE_SEND_FDS];
	unsigned int n_fds, number;
	size_t bytes;

	CHECK(head->type < 32);
	number = __atomic_fetch_add(&fake->n_requests[head->type], 1, __ATOMIC_RELAXED);
	if (head->type == fake->options.fault_type &&
	    (number == fake->options.fault_at ||
	     (number > fake->options.fault_at && fake->options.fault_always)))
		fault = fake->options.fault;
	if (fault == FAKE_SILENT)
		return;
	if (fault == FAKE_DIE) {
		fake_close_all(fake);
		return;
	}

	memset(&answer, 0, sizeof(answer));
	answer.head.type = head->type;
	answer.head.cookie = head->cookie;
	bytes = answer_right(fake, session, request, fault, &answer, fds, &n_fds);
	/* A test that has its answer may count the descriptors of the process. */
	drop_got_fds(fake);
	bytes = answer_spoil(fault, &answer, bytes, fds, &n_fds);
	if (answer.head.res < 0)
		while (n_fds > 0)
			close(fds[--n_fds]);
	if (fault == FAKE_HELD) {
		CHECK(n_fds <= 1 && fake->n_held < FAKE_HELD_MAX);
		fake->held[fake->n_held++] =
			(struct fake_held){session, n_fds ? fds[0] : -1, answer, bytes};
		return;
	}
	send_packet(fake->sessions[session], &answer, bytes, fds, n_fds);
	if (fault == FAKE_TWICE)
		send_packet(fake->sessions[session], &answer, bytes, fds, n_fds);
	while (n_fds > 0)
		close(fds[--n_fds]);
	if (fault == FAKE_DIE_AFTER)
		fake_close_all(fake);
}

static void session_end(struct fake_broker *fake, int session)
{
	for (int i = 0; i < FAKE_RINGS; i++)
		if (fake->rings[i].used && fake->rings[i].session == session)
			ring_drop(&fake->rings[i]);
	__atomic_fetch_and(&fake->ids, ~fake->session_ids[session], __ATOMIC_RELAXED);
	fake->session_ids[session] = 0;
	close(fake->sessions[session]);
	fake->sessions[session] = -1;
}

/* Keep a descriptor that came with a request until the request is answered. */
static void keep_fd(struct fake_broker *fake, int fd)
{
	const int i = fake->got_fds[0] < 0 ? 0 : 1;

	CHECK(fake->got_fds[i] < 0);
	fake->got_fds[i] = fd;
}

/* Serve a request or the end of a session; return true if either came. */
static bool session_serve(struct fake_broker *fake, int session)
{
	static __thread uint64_t request[RBK_WIRE_MAX_BYTES / 8];
	char control[CMSG_SPACE(RBK_WIRE_MAX_FDS * sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = {request, sizeof(request)};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control,
				.msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fake->sessions[session], &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	for (struct cmsghdr *cmsg = n > 0 ? CMSG_FIRSTHDR(&header) : NULL; cmsg;
	     cmsg = CMSG_NXTHDR(&header, cmsg))
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= cmsg->cmsg_len; at += sizeof(int))
			keep_fd(fake, *(int *)((char *)cmsg + at));
	if (n <= 0)
		session_end(fake, session);
	else
		answer_request(fake, session, request);
	/* Some requests have no answer. */
	drop_got_fds(fake);
	return true;
}

/* ---- The thread ---- */

static bool fake_turn(struct fake_broker *fake)
{
	bool did = false;
	int fd;

	fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) {
		int i = 0;

		while (fake->sessions[i] >= 0)
			CHECK(++i < FAKE_SESSIONS);
		fake->sessions[i] = fd;
		did = true;
	}
	for (int i = 0; i < FAKE_SESSIONS; i++)
		if (fake->sessions[i] >= 0)
			did |= session_serve(fake, i);
	for (int i = 0; i < FAKE_RINGS; i++)
		if (fake->rings[i].used)
			did |= ring_serve(fake, &fake->rings[i]);
	return did;
}

static void fake_sleep(struct fake_broker *fake)
{
	struct pollfd fds[2 + FAKE_SESSIONS + FAKE_RINGS];
	bool has_work = false, paused = __atomic_load_n(&fake->paused, __ATOMIC_ACQUIRE);
	nfds_t n = 0;
	char bytes[64];

	for (int i = 0; i < FAKE_RINGS; i++) {
		struct fake_ring *ring = &fake->rings[i];

		if (!ring->used)
			continue;
		if (++ring->token == 0)
			ring->token = 1;
		rbk_ring_announce_sleep(&ring->cq->sq_wait, ring->token);
		if (!rbk_ring_has_fences(&ring->sq->unfenced))
			CHECK(!syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0));
		has_work |= ring_has_work(ring);
		if (ring->bell >= 0)
			fds[n++] = (struct pollfd){.fd = ring->bell, .events = POLLIN};
	}
	fds[n++] = (struct pollfd){.fd = fake->wake, .events = POLLIN};
	if (fake->listener >= 0)
		fds[n++] = (struct pollfd){.fd = fake->listener, .events = POLLIN};
	for (int i = 0; i < FAKE_SESSIONS; i++)
		if (fake->sessions[i] >= 0)
			fds[n++] = (struct pollfd){.fd = fake->sessions[i], .events = POLLIN};
	if (!has_work || paused)
		poll(fds, n, -1);
	for (int i = 0; i < FAKE_RINGS; i++) {
		struct fake_ring *ring = &fake->rings[i];
		ssize_t got = 0;

		if (!ring->used)
			continue;
		rbk_ring_announce_awake(&ring->cq->sq_wait);
		while (ring->bell >= 0 &&
		       (got = recv(ring->bell, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
			count(&fake->n_wakeups, 1);
		if (ring->bell >= 0 && (got == 0 || errno != EAGAIN)) {
			close(ring->bell);
			ring->bell = -1;
		}
	}
}

static void fake_obey(struct fake_broker *fake)
{
	for (unsigned int i = 0; fake->command == COMMAND_RELEASE && i < fake->n_held; i++) {
		struct fake_held *held = &fake->held[i];

		send_packet(fake->sessions[held->session], &held->answer, held->bytes, &held->fd,
			    held->fd >= 0);
		if (held->fd >= 0)
			close(held->fd);
	}
	if (fake->command == COMMAND_RELEASE)
		fake->n_held = 0;
	for (int i = 0; i < FAKE_RINGS; i++) {
		struct fake_ring *ring = &fake->rings[i];

		if (!ring->used)
			continue;
		switch (fake->command) {
		case COMMAND_CLOSE_RINGS:
			if (fake->arguments[0])
				__atomic_store_n(&ring->cq->closed, fake->arguments[0],
						 __ATOMIC_RELEASE);
			if (fake->arguments[1] && ring->bell >= 0) {
				close(ring->bell);
				ring->bell = -1;
			}
			break;
		case COMMAND_SPOIL_RINGS:
			rbk_ring_publish(&ring->cq->cq_tail, ring->cq_tail + fake->arguments[0]);
			rbk_ring_publish(&ring->cq->sq_head, ring->sq_head + fake->arguments[1]);
			break;
		case COMMAND_RING_BELLS:
			for (uint32_t n = 0; n < fake->arguments[0]; n++)
				send(ring->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
			break;
		case COMMAND_TELL_DUE:
			__atomic_store_n(&ring->cq->due_ns, fake_now_ns() + fake->arguments[0],
					 __ATOMIC_RELAXED);
			break;
		case COMMAND_TELL_PROCESSOR:
			__atomic_store_n(&ring->cq->processor, fake->arguments[0] + 1,
					 __ATOMIC_RELAXED);
			break;
		default:
			break;
		}
	}
}

static void *fake_main(void *argument)
{
	struct fake_broker *fake = argument;
	bool dead = false;
	uint64_t value;

	while (!dead) {
		if (!fake_turn(fake))
			fake_sleep(fake);
		if (read(fake->wake, &value, sizeof(value)) < 0)
			continue;
		pthread_mutex_lock(&fake->lock);
		dead = fake->command == COMMAND_KILL;
		if (dead)
			fake_close_all(fake);
		else
			fake_obey(fake);
		fake->command = COMMAND_NONE;
		pthread_cond_broadcast(&fake->changed);
		pthread_mutex_unlock(&fake->lock);
	}
	return NULL;
}

static void fake_do(struct fake_broker *fake, enum fake_command command, uint32_t a, uint32_t b)
{
	uint64_t one = 1;

	pthread_mutex_lock(&fake->lock);
	fake->command = command;
	fake->arguments[0] = a;
	fake->arguments[1] = b;
	CHECK(write(fake->wake, &one, sizeof(one)) == sizeof(one));
	while (fake->command != COMMAND_NONE)
		pthread_cond_wait(&fake->changed, &fake->lock);
	pthread_mutex_unlock(&fake->lock);
}

struct fake_broker *fake_broker_new(const struct fake_options *options)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct fake_broker *fake = calloc(1, sizeof(*fake));

	CHECK(fake);
	fake->held = calloc(FAKE_HELD_MAX, sizeof(*fake->held));
	CHECK(fake->held);
	if (options)
		fake->options = *options;
	for (int i = 0; i < FAKE_SESSIONS; i++)
		fake->sessions[i] = -1;
	fake->got_fds[0] = fake->got_fds[1] = -1;
	/* No arena has the id 0, which would mean that none is wanted. */
	fake->next_id = fake->options.features & RBK_FEAT_REATTACH ? 1 : 0;
	if (fake->options.path) {
		snprintf(fake->path, sizeof(fake->path), "%s", fake->options.path);
	} else {
		strcpy(fake->directory, "/tmp/fake-broker-XXXXXX");
		CHECK(mkdtemp(fake->directory));
		snprintf(fake->path, sizeof(fake->path), "%s/brokerd.sock", fake->directory);
	}
	strcpy(address.sun_path, fake->path);
	fake->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(fake->wake >= 0 && fake->listener >= 0);
	CHECK(!bind(fake->listener, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!listen(fake->listener, 16));
	pthread_mutex_init(&fake->lock, NULL);
	pthread_cond_init(&fake->changed, NULL);
	CHECK(!pthread_create(&fake->thread, NULL, fake_main, fake));
	fake->running = true;
	return fake;
}

void fake_broker_kill(struct fake_broker *fake)
{
	if (!fake->running)
		return;
	fake_do(fake, COMMAND_KILL, 0, 0);
	pthread_join(fake->thread, NULL);
	fake->running = false;
}

struct fake_broker *fake_broker_free(struct fake_broker *fake)
{
	if (!fake)
		return NULL;
	fake_broker_kill(fake);
	if (fake->directory[0])
		rmdir(fake->directory);
	close(fake->wake);
	pthread_cond_destroy(&fake->changed);
	pthread_mutex_destroy(&fake->lock);
	free(fake->held);
	free(fake);
	return NULL;
}

const char *fake_broker_client(const struct fake_broker *fake)
{
	return fake->client;
}

const char *fake_broker_path(const struct fake_broker *fake)
{
	return fake->path;
}

void fake_broker_release(struct fake_broker *fake)
{
	fake_do(fake, COMMAND_RELEASE, 0, 0);
}

void fake_broker_pause(struct fake_broker *fake, bool paused)
{
	__atomic_store_n(&fake->paused, paused, __ATOMIC_RELEASE);
	fake_do(fake, COMMAND_RING_BELLS, 0, 0);
}

void fake_broker_close_rings(struct fake_broker *fake, uint32_t closed, bool close_bells)
{
	fake_do(fake, COMMAND_CLOSE_RINGS, closed, close_bells);
}

void fake_broker_hide(struct fake_broker *fake, bool hidden)
{
	__atomic_store_n(&fake->hidden, hidden, __ATOMIC_RELEASE);
}

void fake_broker_spoil_rings(struct fake_broker *fake, uint32_t cq_tail_ahead,
			     uint32_t sq_head_ahead)
{
	fake_do(fake, COMMAND_SPOIL_RINGS, cq_tail_ahead, sq_head_ahead);
}

void fake_broker_ring_bells(struct fake_broker *fake, unsigned int n)
{
	fake_do(fake, COMMAND_RING_BELLS, n, 0);
}

void fake_broker_tell_due(struct fake_broker *fake, uint32_t left_ns)
{
	fake_do(fake, COMMAND_TELL_DUE, left_ns, 0);
}

void fake_broker_tell_processor(struct fake_broker *fake, uint32_t processor)
{
	fake_do(fake, COMMAND_TELL_PROCESSOR, processor, 0);
}

unsigned int fake_broker_requests(struct fake_broker *fake, uint32_t type)
{
	return __atomic_load_n(&fake->n_requests[type], __ATOMIC_RELAXED);
}

unsigned int fake_broker_objects(struct fake_broker *fake)
{
	return __atomic_load_n(&fake->n_objects, __ATOMIC_RELAXED);
}

unsigned int fake_broker_wakeups(struct fake_broker *fake)
{
	return __atomic_load_n(&fake->n_wakeups, __ATOMIC_RELAXED);
}

unsigned int fake_broker_wakeups_sent(struct fake_broker *fake)
{
	return __atomic_load_n(&fake->n_wakeups_sent, __ATOMIC_RELAXED);
}

uint64_t fake_broker_ids(struct fake_broker *fake)
{
	return __atomic_load_n(&fake->ids, __ATOMIC_RELAXED);
}
