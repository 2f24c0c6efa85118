/* SPDX-License-Identifier: MIT */
/*
 * Control messages from hostile clients, against a live broker
 *
 * Each broken rule ends the session, with its reason in the log. tests/attack sends the millions of
 * messages (row messages).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "integration/odd-messages.h"
#include "shm/plan-wire.h"
#include "support/describe.h"
#include "support/test.h"

/* ---- One rule at a time, with its reason in the log ---- */

static void expect_closed_because(const struct odd_message *m, bool greeted, const char *reason)
{
	int fd = raw_connect(&broker);

	if (greeted)
		raw_hello(fd);
	assert_int_equal(raw_send(fd, m->bytes, m->n_bytes, m->fds, m->n_fds), m->n_bytes);
	raw_expect_closed(fd);
	close(fd);
	broker_wait_log(&broker, reason);
}

TEST(test_rules__reason_in_the_log, hostile_begin, hostile_end)
{
	struct rbk_stats stats;
	struct odd_message m;
	struct odd_messages kit;

	odd_messages_begin(&kit, &broker, 1);
	odd_message_make(&kit, RBK_WIRE_STATS, &m);
	expect_closed_because(&m, false, "the client did not send its hello first");
	odd_message_make(&kit, RBK_WIRE_HELLO, &m);
	expect_closed_because(&m, true, "the client sent a second hello");
	m.bytes[offsetof(struct rbk_wire_hello, magic)] ^= 1;
	expect_closed_because(&m, false, "the client's hello has a wrong magic number");
	odd_message_make(&kit, RBK_WIRE_HELLO, &m);
	m.bytes[offsetof(struct rbk_wire_hello, abi_major)]++;
	expect_closed_because(&m, false, "the client speaks another version of the protocol");
	odd_message_make(&kit, RBK_WIRE_HELLO, &m);
	memset(m.bytes + offsetof(struct rbk_wire_hello, name), 'x', RBK_WIRE_NAME_BYTES);
	expect_closed_because(&m, false, "the client's name is not NUL-terminated");
	odd_message_make(&kit, 4711, &m);
	expect_closed_because(&m, true, "a request of unknown type");
	odd_message_make(&kit, RBK_WIRE_STATS, &m);
	m.n_bytes++;
	expect_closed_because(&m, true, "a request of the wrong length or with");
	odd_message_make(&kit, RBK_WIRE_STATS, &m);
	m.n_fds = RBK_WIRE_MAX_FDS + 1;
	for (unsigned int i = 0; i < m.n_fds; i++)
		m.fds[i] = kit.arena;
	expect_closed_because(&m, true, "the client sent a message with too many descriptors");
	odd_message_make(&kit, RBK_WIRE_RING_ADD, &m);
	m.bytes[offsetof(struct rbk_wire_ring_add, reserved)] = 1;
	expect_closed_because(&m, true, "reserved bytes of the client's ring request are not 0");
	odd_message_make(&kit, RBK_WIRE_PLAN_REMOVE, &m);
	m.bytes[offsetof(struct rbk_wire_id, reserved)] = 1;
	expect_closed_because(&m, true,
			      "reserved bytes of the client's request to remove something are not "
			      "0");
	ODD_PUT(&m, (struct rbk_wire_plan_add){.request.type = RBK_WIRE_PLAN_ADD, .flags = 2});
	expect_closed_because(&m, true, "the client's plan request has unknown flags");
	ODD_PUT(&m, (struct rbk_wire_plan_add){.request.type = RBK_WIRE_PLAN_ADD, .desc_bytes = 1});
	expect_closed_because(&m, true, "another length than its request says");
	ODD_PUT(&m, (struct rbk_wire_plan_add){.request.type = RBK_WIRE_PLAN_ADD,
					       .desc_bytes = 64,
					       .flags = RBK_WIRE_PLAN_FD});
	expect_closed_because(&m, true, "has a wrong descriptor");
	m.n_fds = 1;
	m.fds[0] = kit.fds[ODD_FD_UNSEALED];
	expect_closed_because(&m, true, "not in a memfd that is sealed against shrinking");
	m.fds[0] = kit.fds[ODD_FD_EMPTY];
	expect_closed_because(&m, true, "is shorter than its request says");
	m.fds[0] = kit.fds[ODD_FD_WRITE_ONLY];
	expect_closed_because(&m, true, "the broker cannot read");
	m.n_fds = 0;
	m.n_bytes = 0;
	m.fds[m.n_fds++] = kit.arena;
	expect_closed_because(&m, true, "the client sent an empty message with descriptors");
	odd_messages_end(&kit);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_int_equal(stats.sessions_ended_hostile, 17);
	/* The log shows a client's name only without control characters. */
	assert_false(broker_log_has(&broker, "\x1b"));
}

/* A client that breaks a rule again and again does not fill the log. */
TEST(test_rules__log_is_bounded, hostile_begin, hostile_end)
{
	const uint64_t n = test_scaled(2000), begin_ns = harness_now_ns();
	unsigned int before = broker_log_lines(&broker);
	const uint32_t unknown[2] = {4711, 0};
	uint64_t seconds;

	for (uint64_t i = 0; i < n; i++) {
		int fd = raw_connect(&broker);

		assert_int_equal(raw_send(fd, unknown, sizeof(unknown), NULL, 0), sizeof(unknown));
		raw_expect_closed(fd);
		close(fd);
	}
	seconds = (harness_now_ns() - begin_ns) / 1000000000;
	assert_in_range(broker_log_lines(&broker) - before, 1, 2 * (seconds + 2));
}

TEST(test_rules__message_too_long, hostile_begin, hostile_end)
{
	size_t n_bytes = RBK_WIRE_MAX_BYTES + 1;
	uint8_t *bytes = calloc(1, n_bytes);
	int fd = raw_connect(&broker);

	assert_non_null(bytes);
	raw_hello(fd);
	bytes[0] = RBK_WIRE_PLAN_ADD;
	assert_int_equal(raw_send(fd, bytes, n_bytes, NULL, 0), n_bytes);
	raw_expect_closed(fd);
	broker_wait_log(&broker, "a message that is longer than any request");
	close(fd);
	free(bytes);
}

TEST(test_answers__never_read, hostile_begin, hostile_end)
{
	const struct rbk_wire_request stats = {.type = RBK_WIRE_STATS};
	int fd = raw_connect(&broker);
	unsigned int n = 0;

	raw_hello(fd);
	while (raw_send(fd, &stats, sizeof(stats), NULL, 0) > 0)
		assert_true(n++ < 1000000);
	close(fd);
	broker_wait_log(&broker, "the client does not read its answers");
}

/* ---- Many ---- */

TEST(test_connections__thousands, hostile_begin, hostile_end)
{
	enum { N = 3000 };
	static int fds[N];
	struct rlimit old;
	struct rbk_stats stats;

	getrlimit(RLIMIT_NOFILE, &old);
	if (old.rlim_max < N + 500) {
		print_message("needs %d descriptors\n", N + 500);
		skip();
	}
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){N + 500, old.rlim_max});
	for (unsigned int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < N; i++) {
			fds[i] = raw_connect(&broker);
			if (i % 10 == 0)
				raw_hello(fds[i]);
		}
		broker_wait_sessions(observer, N + 2);
		assert_int_equal(rbk_stats(observer, &stats), 0);
		for (unsigned int i = 0; i < N; i++)
			close(fds[i]);
		broker_wait_sessions(observer, 2);
	}
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(110))
