/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that take long to close: TCP sockets that linger with unsent data
 *
 * The kernel closes a descriptor in the thread that receives a message without room for it, or
 * frees a socket with unread messages. For every way in which a client can send such a descriptor,
 * the broker must go on meanwhile: another client is answered at once.
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/raw.h"
#include "support/lingering.h"
#include "support/test.h"

enum {
	LINGER_S = 30,
	/* Far above a reply's time on a busy machine, far below LINGER_S. */
	ANSWER_MAX_S = 8,
	N_TRIES = 12,
	MAX_FDS = 6,
};

static struct broker broker;
static struct rbk *observer;
static int listener;

static int begin(void **state)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int bytes = 4096;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(listener >= 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1024), 0);
	broker_start(&broker, NULL);
	observer = broker_connect(&broker, "observer");
	return 0;
}

static int end(void **state)
{
	observer = rbk_disconnect(observer);
	broker_stop(&broker);
	close(listener);
	return 0;
}

/* Send a message with lingering sockets, to which the broker then holds the last reference. */
static void send_lingering(int fd, const void *bytes, size_t n_bytes, unsigned int n_fds)
{
	int fds[MAX_FDS] = {0};

	for (unsigned int i = 0; i < n_fds; i++)
		fds[i] = lingering_socket(listener, LINGER_S);
	if (raw_send(fd, bytes, n_bytes, fds, n_fds) < 0)
		for (unsigned int i = 0; i < n_fds; i++) {
			const struct linger none = {.l_onoff = 0};

			setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &none, sizeof(none));
		}
	for (unsigned int i = 0; i < n_fds; i++)
		close(fds[i]);
}

static void expect_answer(void)
{
	struct rbk_stats stats;
	uint64_t begin_ns = harness_now_ns();

	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_true(harness_now_ns() - begin_ns < ANSWER_MAX_S * 1000000000ull);
}

/*
 * Stop the broker, so that messages queue up and this process can close its own references to the
 * descriptors in them. Otherwise close() here would wait, instead of the broker's.
 */
static void stop(const struct broker *of)
{
	int status;

	assert_int_equal(kill(of->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(of->pid, &status, WUNTRACED), of->pid);
	assert_true(WIFSTOPPED(status));
}

static void go_on(const struct broker *of)
{
	assert_int_equal(kill(of->pid, SIGCONT), 0);
}

static const struct rbk_wire_request nonsense = {.type = 4711};

/* Check that messages behind one that ends the session are freed unread. */
TEST(test_unread__behind_hostile)
{
	for (unsigned int i = 0; i < N_TRIES; i++) {
		int fd = raw_connect(&broker);

		raw_hello(fd);
		stop(&broker);
		raw_send(fd, &nonsense, sizeof(nonsense), NULL, 0);
		send_lingering(fd, &nonsense, sizeof(nonsense), 1);
		go_on(&broker);
		expect_answer();
		close(fd);
	}
}

/* Descriptors with a request that takes none, and more descriptors than a message may have. */
TEST(test_message__unexpected)
{
	const struct rbk_wire_request devices = {.type = RBK_WIRE_DEVICES};
	const struct rbk_wire_arena_add add = {.request = {.type = RBK_WIRE_ARENA_ADD},
					       .bytes = 4096};

	const struct rbk_wire_plan_add plan = {.request = {.type = RBK_WIRE_PLAN_ADD},
					       .desc_bytes = 64,
					       .flags = RBK_WIRE_PLAN_FD};
	const struct {
		const void *bytes;
		size_t n_bytes;
	} requests[] = {{&devices, sizeof(devices)}, {&add, sizeof(add)}, {&plan, sizeof(plan)}};

	for (unsigned int i = 0; i < 3 * MAX_FDS; i++) {
		int fd = raw_connect(&broker);

		raw_hello(fd);
		send_lingering(fd, requests[i % 3].bytes, requests[i % 3].n_bytes, 1 + i / 3);
		expect_answer();
		raw_expect_closed(fd);
		close(fd);
	}
}

/* Descriptors with the first message, before HELLO; the session ends. */
TEST(test_connection__first_message)
{
	for (unsigned int i = 0; i < N_TRIES; i++) {
		int fd = raw_connect(&broker);

		stop(&broker);
		send_lingering(fd, &nonsense, i % 2 ? sizeof(nonsense) : 0, 1);
		close(fd);
		go_on(&broker);
		expect_answer();
	}
}

/* Several messages at once; the last is unread when the connection ends. */
TEST(test_connection__many)
{
	for (unsigned int i = 0; i < N_TRIES / 3; i++) {
		int fd = raw_connect(&broker);

		stop(&broker);
		for (unsigned int k = 0; k < 6; k++)
			send_lingering(fd, &nonsense, k % 2 ? sizeof(nonsense) : 0, 1);
		go_on(&broker);
		expect_answer();
		close(fd);
		expect_answer();
	}
}

/* Beside lingering sockets, memfds still arrive, in the order in which they were sent. */
TEST(test_memfd__arrives_beside_lingering_sockets)
{
	struct rbk_arena *arena;

	for (unsigned int i = 0; i < 8; i++) {
		assert_int_equal(rbk_arena_new(observer, 65536, &arena, NULL), 0);
		assert_int_equal(rbk_arena_seal(arena, NULL), 0);
		rbk_arena_free(arena);
	}
	expect_answer();
}

/*
 * SIGTERM while one closer thread is stuck and a session waits for it, with a socket inside a
 * socket, which a shutdown() does not reach. The broker ends without waiting for either.
 */
TEST(test_stop__does_not_wait_for_stuck_closer)
{
	const struct rbk_wire_request devices = {.type = RBK_WIRE_DEVICES};
	const struct rbk_wire_arena_add add = {.request = {.type = RBK_WIRE_ARENA_ADD},
					       .bytes = 4096};
	struct broker own;
	int stuck, waiting, memfd, ends[2];
	uint64_t begin_ns;

	broker_start(&own, NULL);
	stuck = raw_connect(&own);
	raw_hello(stuck);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	send_lingering(ends[0], "", 1, 1);
	stop(&own);
	assert_true(raw_send(stuck, &devices, sizeof(devices), &ends[1], 1) > 0);
	close(ends[0]);
	close(ends[1]);
	go_on(&own);
	raw_expect_closed(stuck);
	close(stuck);

	waiting = raw_connect(&own);
	raw_hello(waiting);
	memfd = memfd_create("arena", MFD_CLOEXEC);
	assert_true(memfd >= 0);
	assert_true(raw_send(waiting, &add, sizeof(add), &memfd, 1) > 0);
	close(memfd);

	begin_ns = harness_now_ns();
	broker_stop(&own);
	assert_true(harness_now_ns() - begin_ns < ANSWER_MAX_S * 1000000000ull);
	close(waiting);
}

TEST_MAIN(begin, end)
