/* SPDX-License-Identifier: MIT */
/* Clients that take the kernel long to wake: the reactor touches no socket of their user */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/server-private.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "util/clock.h"

enum { N_ENTRIES = 64, LONG_NS = 30000000 };

static struct {
	pthread_t thread;
	int fds[2];      /* the broker's ends of a connection and a bell */
	bool wakes_long; /* calls on these descriptors take long_ns */
	uint64_t long_ns;
	bool is_preempted;    /* other threads have the CPU in these calls */
	unsigned int n_calls; /* calls on these descriptors by the reactor */
	unsigned int n_fails; /* calls of send() on these descriptors that are still to fail */
	uint64_t ticks, cpu_ns;
} reactor;

static uint64_t read_ticks(void)
{
	return reactor.ticks;
}

static uint64_t read_cpu_ns(void)
{
	return reactor.cpu_ns;
}

static void touch(int fd)
{
	if (!pthread_equal(pthread_self(), reactor.thread) ||
	    (fd != reactor.fds[0] && fd != reactor.fds[1]))
		return;
	reactor.n_calls++;
	if (!reactor.wakes_long)
		return;
	reactor.ticks += clock_ns_to_ticks(reactor.long_ns);
	reactor.cpu_ns += reactor.is_preempted ? 0 : reactor.long_ns;
}

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
	/* Peeking wakes no thread. */
	if (!(flags & MSG_PEEK))
		touch(fd);
	return __real_recvmsg(fd, message, flags);
}

int __real_recvmmsg(int fd, struct mmsghdr *messages, unsigned int n, int flags,
		    struct timespec *timeout);
int __wrap_recvmmsg(int fd, struct mmsghdr *messages, unsigned int n, int flags,
		    struct timespec *timeout);
int __wrap_recvmmsg(int fd, struct mmsghdr *messages, unsigned int n, int flags,
		    struct timespec *timeout)
{
	touch(fd);
	return __real_recvmmsg(fd, messages, n, flags, timeout);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	touch(fd);
	return __real_sendmsg(fd, message, flags);
}

ssize_t __real_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
	touch(fd);
	if ((fd == reactor.fds[0] || fd == reactor.fds[1]) && reactor.n_fails > 0) {
		reactor.n_fails--;
		errno = ENOBUFS;
		return -1;
	}
	return __real_send(fd, bytes, n, flags);
}

int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
	touch(fd);
	return __real_shutdown(fd, how);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	touch(fd);
	return __real_close(fd);
}

static void begin(struct rig *rig, struct rig_ring *ring)
{
	struct turn *turn;

	rig_init(rig, 1);
	rig_ring_new(rig, N_ENTRIES, ring);
	rig->session->is_greeted = true;
	turn = loop_current(rig->loop);
	turn_set_budget(turn, TURN_BUDGET_US * 1000);
	turn->read_ticks = read_ticks;
	turn->read_cpu_ns = read_cpu_ns;
	reactor.thread = pthread_self();
	reactor.fds[0] = rig->session->fd;
	reactor.fds[1] = ring->ring->bell_fd;
	reactor.wakes_long = reactor.is_preempted = false;
	reactor.long_ns = LONG_NS;
	reactor.n_calls = 0;
}

static void end(struct rig *rig, struct rig_ring *ring)
{
	rig_ring_deinit(ring);
	rig_deinit(rig);
	reactor.fds[0] = reactor.fds[1] = -1;
}

static void ask(struct rig *rig)
{
	const struct rbk_wire_request request = {.type = RBK_WIRE_STATS, .cookie = 1};

	assert_int_equal(send(rig->fd, &request, sizeof(request), 0), sizeof(request));
	assert_int_equal(rig_answer(rig, RBK_WIRE_STATS, NULL, 0), 0);
}

/* Turn the loop until there is something to read at @fd, or nothing, as @is_there says. */
static void wait_for(struct rig *rig, int fd, bool is_there)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	while ((poll(&poll_fd, 1, 0) == 1) != is_there) {
		rig_work(rig);
		rig_settle(rig);
	}
}

/* Messages, answers, the bell in both directions, and ends. */
TEST(test_slow__nothing_on_the_reactor)
{
	struct rig_ring ring;
	struct rig rig;
	char byte;

	begin(&rig, &ring);
	ask(&rig);
	assert_int_equal(reactor.n_calls, 2);
	assert_false(rig.session->user->is_slow);
	reactor.wakes_long = true;
	ask(&rig);
	assert_true(rig.session->user->is_slow);
	assert_int_equal(reactor.n_calls, 2 + 1);
	ask(&rig);

	assert_int_equal(send(ring.bell, "", 1, 0), 1);
	dispatch_ring_bell(rig.dispatch, ring.ring);
	wait_for(&rig, reactor.fds[1], false);
	session_ring_wake(ring.ring);
	wait_for(&rig, ring.bell, true);
	assert_int_equal(recv(ring.bell, &byte, 1, 0), 1);

	assert_int_equal(session_ring_remove(rig.session, 1, ring.ring->id), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	wait_for(&rig, ring.bell, true);
	assert_int_equal(recv(ring.bell, &byte, 1, 0), 0);
	session_end(rig.session, false, "the test says so");
	wait_for(&rig, rig.fd, true);
	assert_int_equal(recv(rig.fd, &byte, 1, 0), 0);
	while (rig.server->n_sessions > 0)
		rig_settle(&rig);
	assert_int_equal(reactor.n_calls, 2 + 1);
	end(&rig, &ring);
}

/* A client sleeps for ever if its bell does not ring because the kernel has no memory. */
TEST(test_slow__rings_again_without_memory)
{
	struct rig_ring ring;
	struct rig rig;
	char byte;

	begin(&rig, &ring);
	reactor.n_fails = 1;
	assert_false(session_ring_wake(ring.ring));
	assert_true(session_ring_wake(ring.ring));
	assert_int_equal(recv(ring.bell, &byte, 1, 0), 1);

	/* By a thread, which tries again by itself. */
	reactor.wakes_long = true;
	ask(&rig);
	assert_true(rig.session->user->is_slow);
	reactor.n_fails = 2;
	assert_true(session_ring_wake(ring.ring));
	wait_for(&rig, ring.bell, true);
	assert_int_equal(recv(ring.bell, &byte, 1, 0), 1);
	assert_int_equal(reactor.n_fails, 0);
	end(&rig, &ring);
}

/* The reactor does not touch the user's other sockets either, not even once. */
TEST(test_slow__other_sockets_of_the_user)
{
	struct rig_ring ring;
	struct rig rig;
	int fd;

	begin(&rig, &ring);
	reactor.wakes_long = true;
	ask(&rig);
	assert_int_equal(reactor.n_calls, 1);
	fd = rig_connect(&rig);
	while (rig.server->n_sessions < 2)
		rig_settle(&rig);
	assert_ptr_equal(container_of(rig.server->sessions.prev, struct session, link)->user,
			 rig.session->user);
	close(fd);
	while (rig.server->n_sessions > 1)
		rig_settle(&rig);
	assert_int_equal(reactor.n_calls, 1);
	end(&rig, &ring);
}

/* Clients of the same user in another tenant are served as before. */
TEST(test_slow__not_in_other_tenants)
{
	struct tenant other = {.number = 4711};
	struct session session;
	struct rig_ring ring;
	struct rig rig;

	begin(&rig, &ring);
	reactor.wakes_long = true;
	ask(&rig);
	session = (struct session){.server = rig.server, .tenant = &other, .uid = rig.session->uid};
	session.user = owner_of_client(&session);
	assert_false(session.user->is_slow);
	owner_unref(session.user);
	session.tenant = rig.session->tenant;
	assert_true(owner_of_client(&session)->is_slow);
	end(&rig, &ring);
}

/* Time in which other threads had the processor does not count against the client. */
TEST(test_slow__preemption_is_not_counted)
{
	struct rig_ring ring;
	struct rig rig;

	begin(&rig, &ring);
	reactor.wakes_long = reactor.is_preempted = true;
	ask(&rig);
	ask(&rig);
	assert_false(rig.session->user->is_slow);
	assert_int_equal(reactor.n_calls, 4);
	end(&rig, &ring);
}

/* One slow call may be the machine's fault; many slow calls are the client's. */
TEST(test_slow__one_call_is_forgiven)
{
	struct rig_ring ring;
	struct rig rig;

	begin(&rig, &ring);
	reactor.wakes_long = true;
	reactor.long_ns = 8000000;
	ask(&rig);
	assert_int_equal(reactor.n_calls, 2);
	assert_false(rig.session->user->is_slow);
	ask(&rig);
	assert_true(rig.session->user->is_slow);
	assert_int_equal(reactor.n_calls, 3);
	/* Short calls never count, however many there are. */
	rig.session->user->is_slow = false;
	rig.session->user->bucket_ns = 0;
	reactor.long_ns = 100000;
	for (unsigned int i = 0; i < 400; i++)
		ask(&rig);
	assert_false(rig.session->user->is_slow);
	end(&rig, &ring);
}
