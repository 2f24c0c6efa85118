/* SPDX-License-Identifier: MIT */
/* Rings that get another broker while the kernel lacks memory. */
#include <errno.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/client-fixture.h"
#include "support/test.h"
#include "unit/reattach-scene.h"

static atomic_int n_adds_fail;  /* descriptors that the kernel will not add to an epoll set */
static atomic_int n_maps_fail;  /* mappings that it will not replace */
static atomic_int n_sends_fail; /* requests behind HELLO for which it has no buffers */

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
void *__real_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	if (operation == EPOLL_CTL_ADD && atomic_load(&n_adds_fail) > 0) {
		atomic_fetch_sub(&n_adds_fail, 1);
		errno = ENOSPC;
		return -1;
	}
	return __real_epoll_ctl(epoll, operation, fd, event);
}

/* Return true if the socket was accepted by the fake broker: only that one has a name. */
static bool is_of_broker(int fd)
{
	struct sockaddr_un address;
	socklen_t bytes = sizeof(address);

	return getsockname(fd, (struct sockaddr *)&address, &bytes) == 0 &&
	       bytes > sizeof(address.sun_family);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	const struct rbk_wire_request *request = message->msg_iov[0].iov_base;

	if (atomic_load(&n_sends_fail) > 0 && !is_of_broker(fd) &&
	    request->type != RBK_WIRE_HELLO) {
		atomic_fetch_sub(&n_sends_fail, 1);
		errno = ENOBUFS;
		return -1;
	}
	return __real_sendmsg(fd, message, flags);
}

void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if ((flags & MAP_FIXED) && atomic_load(&n_maps_fail) > 0) {
		atomic_fetch_sub(&n_maps_fail, 1);
		/* The kernel may fail between the removal of a mapping and its replacement. */
		munmap(address, bytes);
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return __real_mmap64(address, bytes, protection, flags, fd, offset);
}

/* Consume @n completions of nops from @first as an event loop does. Return: the loop's turns. */
static int loop(struct rbk_ring *ring, int epoll, unsigned int n, uint64_t first)
{
	const struct rbk_cqe *cqe;
	struct epoll_event event;
	int r, n_turns = 0;

	while (n > 0) {
		while (n > 0 && !(r = rbk_peek_cqe(ring, &cqe))) {
			assert_int_equal(cqe->user_data, first++);
			rbk_cqe_seen(ring, cqe);
			n--;
		}
		if (n == 0)
			break;
		assert_int_equal(r, -EAGAIN);
		n_turns++;
		r = rbk_ring_arm(ring);
		assert_true(r >= 0);
		if (r == 0)
			assert_int_equal(epoll_wait(epoll, &event, 1, 60000), 1);
	}
	return n_turns;
}

/* Assert that an event loop sleeps, after at most a few bytes that came late. */
static void expect_sleep(struct rbk_ring *ring, int epoll)
{
	struct epoll_event event;
	int n_turns = 0;

	do {
		assert_true(n_turns++ < 4);
		while (rbk_ring_arm(ring) != 0)
			;
	} while (epoll_wait(epoll, &event, 1, 10) != 0);
}

/* An event loop works on while a descriptor cannot be added, and sleeps again afterwards. */
TEST(test_recover__epoll_is_full)
{
	struct epoll_event event = {.events = EPOLLIN};
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	int epoll;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 8);
	for (int i = 1; i <= 2; i++) {
		atomic_store(&n_adds_fail, i == 1 ? 1 : 0);
		assert_int_equal(rbk_ring_fd(ring) < 0 ? 1 : 2, i);
	}
	epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, rbk_ring_fd(ring), &event), 0);
	for (uint64_t round = 0; round < 3; round++) {
		scene_kill(&scene);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000000), -ETIME);
		submit_nops(ring, 3, 6 * round);
		/* The ring has no broker to wait for: the loop sleeps. */
		expect_sleep(ring, epoll);
		atomic_store(&n_adds_fail, 5);
		scene_start(&scene, NULL);
		loop(ring, epoll, 3, 6 * round);
		assert_int_equal(atomic_load(&n_adds_fail), 0);
		expect_sleep(ring, epoll);
		submit_nops(ring, 3, 6 * round + 3);
		loop(ring, epoll, 3, 6 * round + 3);
	}
	/* Waits and counts go on, too. */
	scene_kill(&scene);
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000000), -ETIME);
	submit_nops(ring, 3, 18);
	atomic_store(&n_adds_fail, 5);
	scene_start(&scene, NULL);
	expect_nops(ring, 3, 18);
	close(epoll);
	rbk_ring_free(ring);
}

/* A ring whose completion area the kernel has unmapped goes on elsewhere. */
TEST(test_recover__area_is_unmapped)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 4);
	for (uint64_t round = 0; round < 4; round++) {
		const void *before = ring->cq;

		scene_kill(&scene);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000000), -ETIME);
		submit_nops(ring, 3, 3 * round);
		atomic_store(&n_maps_fail, round % 2 == 0);
		scene_start(&scene, NULL);
		expect_nops(ring, 3, 3 * round);
		assert_int_equal(atomic_load(&n_maps_fail), 0);
		assert_int_equal(ring->cq != before, round % 2 == 0);
	}
	rbk_ring_free(ring);
}

/* An object that cannot be restored for want of buffers ends a try, not the connection. */
TEST(test_recover__no_buffers)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;

	SCENE(scene);
	ring = ring_make(&scene.fixture, 4);
	for (uint64_t round = 0; round < 4; round++) {
		scene_kill(&scene);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000000), -ETIME);
		submit_nops(ring, 3, 3 * round);
		atomic_store(&n_sends_fail, 1 + (int)round);
		scene_start(&scene, NULL);
		expect_nops(ring, 3, 3 * round);
		assert_int_equal(atomic_load(&n_sends_fail), 0);
	}
	rbk_ring_free(ring);
}
