/* SPDX-License-Identifier: MIT */
/*
 * Memory and descriptors that a client keeps after the broker has released them
 *
 * A client gives back what the broker made for it, or its session ends, but the client keeps the
 * descriptors, received or unread. Pages, sockets and the kernel's count of descriptors in flight
 * still burden the broker. The client's tenant must therefore reach its own limits, have room again
 * once it has released the descriptors, and affect no other tenant.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/capability.h>

#include "integration/harness.h"
#include "integration/raw.h"
#include "support/test.h"

enum {
	HOST_MAX = 32 << 20,
	N_ENTRIES = 4096,
	AREAS_BYTES = N_ENTRIES * 96,         /* rounded up */
	KEPT_MAX_BYTES = AREAS_BYTES + 65536, /* bytes of a ring that a client can keep */
	/* More pairs of areas than the tenant's host-max allows. */
	MANY_RINGS = HOST_MAX / AREAS_BYTES + 1,
	/* A ring whose areas alone exceed host-max. */
	MANY_SESSIONS = 2000,
	N_PAGES = 6,
	ANSWER_MS = 60000,
	/* RLIMIT_NOFILE of the broker with few descriptors: open ones, and those in flight. */
	FEW_FDS = 300,
	GREEDY_UID = 40001,
};

static struct broker broker;

/* ---- Requests ---- */

static void send_ring_add(int fd, uint32_t n_entries)
{
	const struct rbk_wire_ring_add add = {
		.request = {.type = RBK_WIRE_RING_ADD, .cookie = 2},
		.n_entries = n_entries,
	};

	assert_int_equal(raw_send(fd, &add, sizeof(add), NULL, 0), sizeof(add));
}

/* Send RING_ADD. Return: the result; with 0, the descriptors are in @fds. */
static int ring_add(int fd, uint32_t *ret_id, int fds[3])
{
	struct rbk_wire_ring reply = {.id = 0};
	unsigned int n_fds = 3;

	send_ring_add(fd, N_ENTRIES);
	assert_true(raw_receive(fd, &reply, sizeof(reply), fds, &n_fds, ANSWER_MS) >=
		    (ssize_t)sizeof(reply.reply));
	assert_int_equal(n_fds, reply.reply.res == 0 ? 3 : 0);
	*ret_id = reply.id;
	return reply.reply.res;
}

static void close_all(const int *fds, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		close(fds[i]);
}

static int session_new(void)
{
	int fd = raw_connect(&broker);

	raw_hello(fd);
	return fd;
}

/* Return the host memory, in bytes, that the tenant of @fd is charged for. */
static uint64_t host_bytes(int fd)
{
	const struct rbk_wire_request request = {.type = RBK_WIRE_TENANT, .cookie = 3};
	struct rbk_wire_tenant reply;

	assert_int_equal(raw_send(fd, &request, sizeof(request), NULL, 0), sizeof(request));
	assert_true(raw_receive(fd, &reply, sizeof(reply), NULL, NULL, ANSWER_MS) ==
		    (ssize_t)sizeof(reply));
	assert_int_equal(reply.reply.res, 0);
	return reply.host_bytes.used;
}

/* Wait until the charge is at most @n_most; the broker notices released memory after a moment. */
static uint64_t wait_for_host_bytes(int fd, uint64_t n_most)
{
	uint64_t n = host_bytes(fd);

	for (unsigned int i = 0; i < 6000 && n > n_most; i++) {
		harness_sleep_ms(10);
		n = host_bytes(fd);
	}
	return n;
}

static void expect_host_bytes(int fd, uint64_t n_expected)
{
	assert_int_equal(wait_for_host_bytes(fd, n_expected), n_expected);
}

/* ---- Memory ---- */

static int begin(void **state)
{
	static const char *const args[] = {"--gpu=none", NULL};
	static const struct broker_options options = {
		.args = args,
		.policy = "[tenant default]\nhost-max = 32MiB\n",
	};

	broker_start(&broker, &options);
	return 0;
}

static int end(void **state)
{
	broker_stop(&broker);
	return 0;
}

/*
 * The tenant pays for the rings' memory of ended sessions until the client closes the descriptors.
 */
TEST(test_kept__ended_sessions)
{
	int fds[MANY_RINGS][3], fd = session_new(), session, r = 0;
	const uint64_t n_before = host_bytes(fd);
	unsigned int n = 0;
	uint32_t id;

	for (; n < MANY_RINGS; n++) {
		session = session_new();
		r = ring_add(session, &id, fds[n]);
		close(session);
		if (r)
			break;
	}
	assert_int_equal(r, -EDQUOT);
	for (unsigned int i = 0; i < n; i++)
		close_all(fds[i], 3);
	expect_host_bytes(fd, n_before);
	close(fd);
}

/*
 * Answers that are not read keep the rings' memory too, in sessions that the broker ended because
 * of a packet without a request.
 */
TEST(test_kept__unread_in_ended_sessions)
{
	int sessions[MANY_RINGS], fd = session_new(), fds[3];
	const uint64_t n_before = host_bytes(fd);
	uint64_t n_most;
	uint32_t id;

	for (unsigned int i = 0; i < MANY_RINGS; i++) {
		struct pollfd poll_fd = {.events = POLLIN};

		poll_fd.fd = sessions[i] = session_new();
		send_ring_add(sessions[i], N_ENTRIES);
		assert_int_equal(poll(&poll_fd, 1, ANSWER_MS), 1);
		assert_int_equal(raw_send(sessions[i], "", 1, NULL, 0), 1);
		poll_fd.events = POLLRDHUP;
		assert_int_equal(poll(&poll_fd, 1, ANSWER_MS), 1);
		/* Memory that only the broker had of this ring leaves no room for the next. */
		n_most = n_before + (i + 1) * KEPT_MAX_BYTES;
		assert_true(wait_for_host_bytes(fd, n_most) <= n_most);
	}
	assert_int_equal(ring_add(fd, &id, fds), -EDQUOT);
	close_all(sessions, MANY_RINGS);
	expect_host_bytes(fd, n_before);
	close(fd);
}

/* Mappings, and descriptors opened with O_PATH, keep memory too. */
TEST(test_kept__mappings_and_path_descriptors)
{
	int fds[3], paths[MANY_RINGS], fd = session_new(), r = 0;
	const uint64_t n_before = host_bytes(fd);
	struct raw_ring mapped;
	unsigned int n = 0;
	uint64_t n_mapped;
	char path[64];
	uint32_t id;

	raw_ring_add(fd, N_ENTRIES, &mapped);
	close_all((int[]){mapped.sq_fd, mapped.cq_fd, mapped.bell}, 3);
	mapped.sq_fd = mapped.cq_fd = mapped.bell = -1;
	assert_int_equal(raw_remove(fd, RBK_WIRE_RING_REMOVE, mapped.id), 0);
	n_mapped = host_bytes(fd);
	assert_true(n_mapped >= n_before + AREAS_BYTES);
	for (; n < MANY_RINGS; n++) {
		r = ring_add(fd, &id, fds);
		if (r)
			break;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
		paths[n] = open(path, O_PATH | O_CLOEXEC);
		assert_true(paths[n] >= 0);
		close_all(fds, 3);
		assert_int_equal(raw_remove(fd, RBK_WIRE_RING_REMOVE, id), 0);
	}
	assert_int_equal(r, -EDQUOT);
	close_all(paths, n);
	expect_host_bytes(fd, n_mapped);
	raw_ring_close(&mapped);
	expect_host_bytes(fd, n_before);
	close(fd);
}

/* Doorbells keep kernel memory and descriptors too. */
TEST(test_kept__doorbells)
{
	int fds[3], bells[8], fd = session_new();
	const uint64_t n_before = host_bytes(fd);
	uint64_t n_kept;
	uint32_t id;

	for (unsigned int i = 0; i < 8; i++) {
		assert_int_equal(ring_add(fd, &id, fds), 0);
		close_all(fds, 2);
		bells[i] = fds[2];
		assert_int_equal(raw_remove(fd, RBK_WIRE_RING_REMOVE, id), 0);
	}
	n_kept = host_bytes(fd);
	assert_true(n_kept >= n_before + 8 * 1024);
	assert_true(n_kept < n_before + AREAS_BYTES);
	close_all(bells, 8);
	expect_host_bytes(fd, n_before);
	close(fd);
}

/*
 * A tenant's page is removed with its last session, and made again for the next; a client may keep
 * the old one.
 */
TEST(test_kept__statistics_pages)
{
	const struct rbk_wire_stats_of of = {.request = {.type = RBK_WIRE_STATS_PAGE}};
	struct rbk *administrator = broker_connect_admin(&broker, "watch");
	int pages[N_PAGES], fd = session_new();
	const uint64_t n_before = host_bytes(fd);
	struct rbk_wire_stats_page reply;
	struct stat about[N_PAGES];
	uint64_t n_bytes = 0;
	unsigned int n_fds;

	close(fd);
	for (unsigned int i = 0; i < N_PAGES; i++) {
		broker_wait_sessions(administrator, 1);
		fd = session_new();
		assert_int_equal(raw_send(fd, &of, sizeof(of), NULL, 0), sizeof(of));
		n_fds = 1;
		assert_int_equal(
			raw_receive(fd, &reply, sizeof(reply), &pages[i], &n_fds, ANSWER_MS),
			sizeof(reply));
		assert_int_equal(n_fds, 1);
		assert_int_equal(fstat(pages[i], &about[i]), 0);
		/* Each page is a new file. */
		for (unsigned int k = 0; k < i; k++)
			assert_true(about[k].st_ino != about[i].st_ino);
		n_bytes += reply.bytes;
		close(fd);
	}
	broker_wait_sessions(administrator, 1);
	fd = session_new();
	assert_true(host_bytes(fd) >= n_before + n_bytes);
	close_all(pages, N_PAGES);
	expect_host_bytes(fd, n_before);
	close(fd);
	rbk_disconnect(administrator);
}

/* ---- Descriptors in flight ---- */

/*
 * Limit RLIMIT_NOFILE, and drop the capabilities with which root may have any number of descriptors
 * in flight.
 */
static void allow_few_fds(void)
{
	const struct rlimit few = {FEW_FDS, FEW_FDS};

	setrlimit(RLIMIT_NOFILE, &few);
	prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE);
	prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN);
}

static int begin_few(void **state)
{
	static const char *const args[] = {"--gpu=none", "--socket-mode=0666", "--contention=none",
					   NULL};
	static const struct broker_options options = {
		.args = args,
		.in_child = allow_few_fds,
		.policy = "[tenant greedy]\nmatch-uid = 40001\n",
	};

	if (geteuid() != 0)
		return 0;
	broker_start(&broker, &options);
	assert_int_equal(chmod(broker.dir, 0711), 0);
	return 0;
}

static int end_few(void **state)
{
	if (geteuid() == 0)
		broker_stop(&broker);
	return 0;
}

static void need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("only root can be other users: skipped\n");
	skip();
}

/* Connect as the greedy tenant. Return: false if it gets no session. */
static bool greedy_new(int *ret_fd)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO, .cookie = 1},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.name = "greedy",
	};
	struct rbk_wire_reply reply;

	harness_become(GREEDY_UID);
	*ret_fd = raw_connect(&broker);
	harness_become(0);
	raw_ask(*ret_fd, &hello, sizeof(hello), NULL, 0, &reply, sizeof(reply));
	return reply.res == 0;
}

/*
 * Send a request again and again without reading replies, until the broker ends the session. Its
 * replies stay in the socket for the connection's owner.
 */
static void flood(int fd, const void *request, size_t n_bytes)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLOUT | POLLRDHUP};

	while (poll(&poll_fd, 1, ANSWER_MS) == 1 && !(poll_fd.revents & POLLRDHUP))
		send(fd, request, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	assert_true(poll_fd.revents & POLLRDHUP);
}

static void expect_neighbour(int neighbour)
{
	struct rbk_wire_ring reply = {.id = 0};
	unsigned int n_fds = 3;
	int fds[3];

	for (unsigned int i = 0; i < 3; i++) {
		n_fds = 3;
		send_ring_add(neighbour, N_ENTRIES);
		assert_true(raw_receive(neighbour, &reply, sizeof(reply), fds, &n_fds, ANSWER_MS) >=
			    (ssize_t)sizeof(reply.reply));
		assert_int_equal(reply.reply.res, 0);
		assert_int_equal(n_fds, 3);
		close_all(fds, 3);
		assert_int_equal(raw_remove(neighbour, RBK_WIRE_RING_REMOVE, reply.id), 0);
	}
}

/* The client reads none of many replies with one descriptor each. */
TEST_IN("descriptors", test_unread__pages, begin_few, end_few)
{
	const struct rbk_wire_stats_of of = {.request = {.type = RBK_WIRE_STATS_PAGE}};
	int fds[MANY_SESSIONS], neighbour;
	unsigned int n = 0;

	need_root();
	neighbour = session_new();
	while (n < FEW_FDS && greedy_new(&fds[n]))
		flood(fds[n++], &of, sizeof(of));
	close(fds[n]);
	expect_neighbour(neighbour);
	/* The greedy tenant alone runs out: it had to stop, or is answered without pages. */
	assert_true(n > 0 && n < FEW_FDS);
	close_all(fds, n);
	close(neighbour);
}

/* The client reads none of many replies with three descriptors each, from ended sessions. */
TEST_IN("descriptors", test_unread__rings, begin_few, end_few)
{
	const struct rbk_wire_ring_add add = {
		.request = {.type = RBK_WIRE_RING_ADD, .cookie = 2},
		.n_entries = 64,
	};
	int fds[MANY_SESSIONS], neighbour;
	unsigned int n = 0;

	need_root();
	neighbour = session_new();
	while (n < FEW_FDS && greedy_new(&fds[n]))
		flood(fds[n++], &add, sizeof(add));
	close(fds[n]);
	expect_neighbour(neighbour);
	assert_true(n > 0 && n < FEW_FDS);
	close_all(fds, n);
	/* The greedy tenant may have as many descriptors again once it has released them. */
	for (unsigned int i = 0; i < 600; i++) {
		bool is_there = greedy_new(&fds[0]);

		close(fds[0]);
		if (is_there)
			break;
		assert_true(i < 599);
		harness_sleep_ms(100);
	}
	close(neighbour);
}

/*
 * Unread replies without descriptors, in a session that goes on, are charged for the kernel's
 * memory.
 */
TEST(test_unread__memory)
{
	enum { N_UNREAD = 60, N_READ = 20 };
	const struct rbk_wire_request ask = {.type = RBK_WIRE_STATS, .cookie = 7};
	int fd = session_new(), other = session_new();
	uint64_t n_before = host_bytes(other);
	struct rbk_wire_stats reply;

	for (unsigned int i = 0; i < N_UNREAD; i++)
		assert_int_equal(raw_send(fd, &ask, sizeof(ask), NULL, 0), sizeof(ask));
	for (unsigned int i = 0; host_bytes(other) < n_before + N_UNREAD * sizeof(reply); i++) {
		assert_true(i < 10000);
		harness_sleep_ms(1);
	}
	for (unsigned int i = 0; i < N_UNREAD + N_READ; i++) {
		if (i >= N_UNREAD)
			assert_int_equal(raw_send(fd, &ask, sizeof(ask), NULL, 0), sizeof(ask));
		assert_int_equal(raw_receive(fd, &reply, sizeof(reply), NULL, NULL, ANSWER_MS),
				 sizeof(reply));
		assert_int_equal(reply.reply.res, 0);
	}
	expect_host_bytes(other, n_before);
	close(fd);
	close(other);
}

/*
 * The kernel's limit is per user, and other processes may use it up. The broker then rejects the
 * request, but keeps the session.
 */
TEST_IN("descriptors", test_unread__others_of_user, begin_few, end_few)
{
	int fds[3], pair[2], sent[50], received, fd;
	unsigned int n_fds;
	uint32_t id;
	char byte;

	need_root();
	fd = session_new();
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (unsigned int i = 0; i < 50; i++)
		sent[i] = pair[0];
	for (unsigned int i = 0; i <= FEW_FDS / 50; i++)
		assert_int_equal(raw_send(pair[0], "", 1, sent, 50), 1);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(ring_add(fd, &id, fds), -EBUSY);
	for (unsigned int i = 0; i <= FEW_FDS / 50; i++) {
		n_fds = 0;
		assert_int_equal(raw_receive(pair[1], &byte, 1, &received, &n_fds, ANSWER_MS), 1);
	}
	assert_int_equal(ring_add(fd, &id, fds), 0);
	close_all(fds, 3);
	close_all(pair, 2);
	close(fd);
}

int main(void)
{
	int r = test_run(begin, end);

	return test_run_group("descriptors", NULL, NULL) || r;
}
