/* SPDX-License-Identifier: MIT */
/* The control protocol and rings without the library; see raw.h. */
#include "integration/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/ring.h"
#include "support/test.h"

enum { MAX_FDS = 64, ANSWER_MS = 60000 };

int raw_connect(const struct broker *broker)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", broker->socket_path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		fail_msg("cannot connect: %s", strerror(errno));
	return fd;
}

ssize_t raw_send(int fd, const void *bytes, size_t n_bytes, const int *fds, unsigned int n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	} control = {.header = {0}};
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = n_bytes};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *header;
	ssize_t n;

	if (n_fds > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
	}
	n = sendmsg(fd, &message, MSG_NOSIGNAL);
	return n < 0 ? -errno : n;
}

ssize_t raw_receive(int fd, void *bytes, size_t n_bytes, int *fds, unsigned int *n_fds,
		    unsigned int timeout_ms)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	} control;
	struct iovec iov = {.iov_base = bytes, .iov_len = n_bytes};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	unsigned int room = n_fds ? *n_fds : 0, used = 0;
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	ssize_t n;
	int r;

	r = poll(&poll_fd, 1, (int)timeout_ms);
	if (r <= 0)
		return -ETIME;
	n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		const int *received = (const int *)CMSG_DATA(c);
		size_t n_received = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < n_received; i++) {
			if (used < room)
				fds[used++] = received[i];
			else
				close(received[i]);
		}
	}
	if (n_fds)
		*n_fds = used;
	return n;
}

void raw_ask(int fd, const void *request, size_t n_bytes, const int *fds, unsigned int n_fds,
	     void *reply, size_t reply_bytes)
{
	struct rbk_wire_devices largest;
	ssize_t n;

	memset(reply, 0, reply_bytes);
	assert_int_equal(raw_send(fd, request, n_bytes, fds, n_fds), n_bytes);
	n = raw_receive(fd, &largest, sizeof(largest), NULL, NULL, ANSWER_MS);
	if (n < (ssize_t)sizeof(struct rbk_wire_reply))
		fail_msg("an answer of %zd bytes", n);
	memcpy(reply, &largest, (size_t)n < reply_bytes ? (size_t)n : reply_bytes);
}

void raw_hello_with(int fd, uint64_t features)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO, .cookie = 1},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.features = features,
		.abi_minor = RBK_ABI_MINOR,
		.name = "raw",
	};
	struct rbk_wire_welcome welcome;

	raw_ask(fd, &hello, sizeof(hello), NULL, 0, &welcome, sizeof(welcome));
	assert_int_equal(welcome.reply.res, 0);
}

void raw_hello(int fd)
{
	raw_hello_with(fd, RBK_FEAT_FIXED_ARENAS);
}

void raw_expect_closed(int fd)
{
	char bytes[8192];
	ssize_t n;

	do
		n = raw_receive(fd, bytes, sizeof(bytes), NULL, NULL, 10000);
	while (n > 0);
	if (n < 0)
		fail_msg("the broker did not close the connection: %zd", n);
}

void raw_ring_add(int fd, uint32_t n_entries, struct raw_ring *ret)
{
	const struct rbk_wire_ring_add add = {
		.request = {.type = RBK_WIRE_RING_ADD, .cookie = 2},
		.n_entries = n_entries,
	};
	struct rbk_wire_ring reply;
	unsigned int n_fds = 3;
	int fds[3];
	ssize_t n;

	assert_int_equal(raw_send(fd, &add, sizeof(add), NULL, 0), sizeof(add));
	n = raw_receive(fd, &reply, sizeof(reply), fds, &n_fds, ANSWER_MS);
	if (n != sizeof(reply) || reply.reply.res || n_fds != 3)
		fail_msg("no ring: %zd bytes, %u descriptors, \"%s\"", n, n_fds, reply.reply.text);
	*ret = (struct raw_ring){
		.id = reply.id,
		.n_entries = reply.n_entries,
		.sq_fd = fds[0],
		.cq_fd = fds[1],
		.bell = fds[2],
		.sq_bytes = reply.sq_bytes,
		.cq_bytes = reply.cq_bytes,
	};
	ret->sq = mmap(NULL, ret->sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ret->sq_fd, 0);
	assert_ptr_not_equal(ret->sq, MAP_FAILED);
	ret->cq = mmap(NULL, ret->cq_bytes, PROT_READ, MAP_SHARED, ret->cq_fd, 0);
	assert_ptr_not_equal(ret->cq, MAP_FAILED);
}

void raw_ring_close(struct raw_ring *ring)
{
	munmap(ring->sq, ring->sq_bytes);
	munmap((void *)ring->cq, ring->cq_bytes);
	close(ring->sq_fd);
	close(ring->cq_fd);
	close(ring->bell);
}

struct rbk_sqe *raw_ring_next(struct raw_ring *ring)
{
	return &ring->sq->sqes[ring->tail++ & (ring->n_entries - 1)];
}

void raw_ring_publish(struct raw_ring *ring)
{
	rbk_ring_publish(&ring->sq->sq_tail, ring->tail);
	if (rbk_ring_sleep_token(&ring->cq->sq_wait))
		send(ring->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool raw_ring_take(struct raw_ring *ring, struct rbk_cqe *ret)
{
	uint64_t until_ns = 0;

	while (rbk_ring_observe(&ring->cq->cq_tail) == ring->head) {
		if (!until_ns)
			until_ns = harness_now_ns() + 10000000000;
		if (harness_now_ns() > until_ns)
			return false;
		sched_yield();
	}
	*ret = ring->cq->cqes[ring->head++ & (ring->n_entries - 1)];
	rbk_ring_publish(&ring->sq->cq_head, ring->head);
	return true;
}

int raw_memfd(size_t bytes, bool is_sparse, unsigned int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (!is_sparse && bytes)
		assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

int raw_arena_add(int fd, int memfd, uint64_t bytes, uint32_t *ret_id, char *ret_text)
{
	const struct rbk_wire_arena_add add = {
		.request = {.type = RBK_WIRE_ARENA_ADD, .cookie = 3},
		.bytes = bytes,
	};
	struct rbk_wire_id_reply reply;

	raw_ask(fd, &add, sizeof(add), &memfd, 1, &reply, sizeof(reply));
	if (ret_id)
		*ret_id = reply.id;
	if (ret_text)
		memcpy(ret_text, reply.reply.text, sizeof(reply.reply.text));
	return reply.reply.res;
}

int raw_plan_add(int fd, const void *desc, size_t desc_bytes, uint32_t *ret_id)
{
	struct rbk_wire_plan_add *add = malloc(sizeof(*add) + desc_bytes);
	struct rbk_wire_plan reply;

	assert_non_null(add);
	*add = (struct rbk_wire_plan_add){
		.request = {.type = RBK_WIRE_PLAN_ADD, .cookie = 4},
		.desc_bytes = (uint32_t)desc_bytes,
	};
	memcpy(add + 1, desc, desc_bytes);
	raw_ask(fd, add, sizeof(*add) + desc_bytes, NULL, 0, &reply, sizeof(reply));
	free(add);
	if (ret_id)
		*ret_id = reply.id;
	return reply.reply.res;
}

int raw_remove(int fd, enum rbk_wire_type type, uint32_t id)
{
	const struct rbk_wire_id remove = {.request = {.type = type, .cookie = 5}, .id = id};
	struct rbk_wire_reply reply;

	raw_ask(fd, &remove, sizeof(remove), NULL, 0, &reply, sizeof(reply));
	return reply.res;
}
