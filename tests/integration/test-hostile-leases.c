/* SPDX-License-Identifier: MIT */
/*
 * Lease requests of hostile clients, against a live broker
 *
 * Clients send other clients' numbers, sizes near 2^64, more objects than allowed, storms of
 * members, and messages with a change. The broker answers each request or ends the session. Other
 * clients do not notice, and at the end nothing is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "shm/reset-verdict.h"
#include "support/test.h"

enum { OTHER_UID = 40001, N_PAGES = 16 };

static int begin(void **state)
{
	hostile_begin_with(&(struct broker_options){
		.policy = "[tenant default]\n"
			  "[tenant other]\nmatch-uid = 40001\n"
			  "vram-reserve = 24MiB\n",
		.args = (const char *const[]){"--gpu=software", "--device-memory=64MiB",
					      "--socket-mode=0666", NULL}});
	/* Another user connects, too. */
	assert_int_equal(chmod(broker.dir, 0711), 0);
	return 0;
}

static int nothing_left(void **state)
{
	hostile_expect_nothing_left();
	return 0;
}

static struct rbk_wire_lease_open an_opening(uint64_t min, uint64_t wish, uint64_t max)
{
	return (struct rbk_wire_lease_open){
		.request = {.type = RBK_WIRE_LEASE_OPEN},
		.device = GPU,
		.min_bytes = min,
		.wish_bytes = wish,
		.max_bytes = max,
		.program = "hostile\n\x1b[2J",
	};
}

static int ask_open(int fd, const struct rbk_wire_lease_open *request, struct rbk_wire_lease *ret)
{
	raw_ask(fd, request, sizeof(*request), NULL, 0, ret, sizeof(*ret));
	return ret->reply.res;
}

/* Open a lease. Return: its number. */
static uint32_t open_lease(int fd, uint64_t wish, uint64_t max)
{
	const struct rbk_wire_lease_open request = an_opening(1, wish, max);
	struct rbk_wire_lease lease;

	if (ask_open(fd, &request, &lease))
		fail_msg("%s", lease.reply.text);
	return lease.number;
}

static int ask_join(int fd, uint32_t number)
{
	const struct rbk_wire_lease_open request = {
		.request = {.type = RBK_WIRE_LEASE_OPEN},
		.flags = RBK_WIRE_LEASE_JOIN,
		.number = number,
	};
	struct rbk_wire_lease lease;

	return ask_open(fd, &request, &lease);
}

static struct rbk_wire_lease_given given;

static int ask_credit(int fd, uint32_t lease, uint64_t want, uint64_t least, uint64_t back)
{
	const struct rbk_wire_lease_credit request = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT},
		.lease = lease,
		.want_bytes = want,
		.least_bytes = least,
		.return_bytes = back,
		.used_bytes = UINT64_MAX,
		.extra_bytes = UINT64_MAX,
		.n_objects = UINT32_MAX,
		.n_refused = UINT32_MAX,
	};

	raw_ask(fd, &request, sizeof(request), NULL, 0, &given, sizeof(given));
	return given.reply.res;
}

static int ask_object(int fd, uint32_t lease, uint32_t action, uint64_t ino, uint64_t bytes,
		      uint64_t from_credit)
{
	const struct rbk_wire_lease_object request = {
		.request = {.type = RBK_WIRE_LEASE_OBJECT},
		.lease = lease,
		.action = action,
		.dev = 9,
		.ino = ino,
		.bytes = bytes,
		.from_credit_bytes = from_credit,
	};

	raw_ask(fd, &request, sizeof(request), NULL, 0, &given, sizeof(given));
	return given.reply.res;
}

/* Numbers of another session's lease, and of no lease. */
TEST(test_forged_numbers, NULL, nothing_left)
{
	int victim = hostile_session(), fd = hostile_session();
	uint32_t number = open_lease(victim, 8 * MIB, 8 * MIB);
	const struct rbk_wire_lease_resize resize = {
		.request = {.type = RBK_WIRE_LEASE_RESIZE}, .lease = number, .wish_bytes = 1};

	assert_int_equal(ask_credit(victim, number, 4 * MIB, 4 * MIB, 0), 0);
	assert_int_equal(ask_credit(fd, number, 0, 0, 4 * MIB), -ENOENT);
	assert_int_equal(ask_credit(fd, number, MIB, 1, 0), -ENOENT);
	assert_int_equal(ask_credit(fd, 0, MIB, 1, 0), -ENOENT);
	assert_int_equal(ask_credit(fd, UINT32_MAX, MIB, 1, 0), -ENOENT);
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_DROP, 1, 0, 0), -ENOENT);
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, 1, 1, 0), -ENOENT);
	raw_ask(fd, &resize, sizeof(resize), NULL, 0, &given, sizeof(given));
	assert_int_equal(given.reply.res, -EPERM);
	assert_int_equal(ask_join(fd, number + 1), -ENOENT);
	/* A lease of its own does not give the session access. */
	open_lease(fd, MIB, MIB);
	assert_int_equal(ask_join(fd, number), -EALREADY);
	assert_int_equal(ask_credit(fd, number, 0, 0, 1), -ENOENT);
	assert_int_equal(ask_credit(victim, number, 4 * MIB, 4 * MIB, 0), 0);
	close(fd);
	close(victim);
}

TEST(test_sizes, NULL, nothing_left)
{
	static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 1, 1ull << 63, INT64_MAX,
					UINT64_MAX - 8 * MIB};
	int fd = hostile_session();
	struct rbk_wire_lease_open request;
	struct rbk_wire_lease lease;
	uint32_t number;

	for (unsigned int i = 0; i < sizeof(huge) / sizeof(*huge); i++) {
		request = an_opening(huge[i], huge[i], huge[i]);
		assert_int_equal(ask_open(fd, &request, &lease), -EDQUOT);
		request.flags = RBK_WIRE_LEASE_RESTORE;
		request.number = 77;
		request.min_bytes = 1;
		request.held_bytes = huge[i];
		assert_int_equal(ask_open(fd, &request, &lease), -EDQUOT);
	}
	request = an_opening(0, 1, 1);
	assert_int_equal(ask_open(fd, &request, &lease), -EINVAL);
	request = an_opening(2, 1, 3);
	assert_int_equal(ask_open(fd, &request, &lease), -EINVAL);
	/* The lease gets all of the device and no more, whatever its maximum says. */
	request = an_opening(1, UINT64_MAX, UINT64_MAX);
	assert_int_equal(ask_open(fd, &request, &lease), 0);
	assert_true(lease.granted_bytes <= 64 * MIB && lease.max_bytes == 64 * MIB);
	close(fd);
	hostile_expect_nothing_left();

	fd = hostile_session();
	number = open_lease(fd, 8 * MIB, 16 * MIB);
	for (unsigned int i = 0; i < sizeof(huge) / sizeof(*huge); i++) {
		assert_int_equal(ask_credit(fd, number, huge[i], huge[i], 0), -ENOMEM);
		assert_int_equal(ask_credit(fd, number, 0, 0, huge[i]), -EINVAL);
		assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, i, huge[i], 0),
				 -ENOMEM);
		assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, i, huge[i], huge[i]),
				 -EINVAL);
	}
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, 1, 0, 0), -EINVAL);
	/* A request for more than there is gets what there is. */
	assert_int_equal(ask_credit(fd, number, UINT64_MAX, 1, 0), 0);
	assert_int_equal(given.given_bytes, 16 * MIB);
	assert_int_equal(ask_credit(fd, number, UINT64_MAX, 1, 0), -ENOMEM);
	assert_int_equal(ask_credit(fd, number, UINT64_MAX, 0, 0), 0);
	assert_int_equal(given.given_bytes, 0);
	assert_int_equal(ask_credit(fd, number, 0, 0, 16 * MIB + 1), -EINVAL);
	assert_int_equal(ask_credit(fd, number, 0, 0, 16 * MIB), 0);
	assert_int_equal(ask_credit(fd, number, 0, 0, 1), -EINVAL);
	close(fd);
}

TEST(test_objects, NULL, nothing_left)
{
	int fd = hostile_session(), other = hostile_session();
	uint32_t number = open_lease(fd, MIB, MIB);

	assert_int_equal(ask_join(other, number), 0);
	assert_int_equal(ask_credit(fd, number, MIB, MIB, 0), 0);
	for (unsigned int i = 0; i < RBK_WIRE_LEASE_MAX_OBJECTS; i++) {
		assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, i, 1, 1), 0);
		assert_int_equal(given.given_bytes, 1);
	}
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, UINT64_MAX, 1, 1), -ENOSPC);
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, 0, 1, 1), -ENOSPC);
	for (unsigned int i = 0; i < RBK_WIRE_LEASE_MAX_OBJECTS; i += 3)
		assert_int_equal(ask_object(other, number, RBK_WIRE_OBJECT_ADD, i, 1, 0), 0);
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_DROP, 5, 0, 0), 0);
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_DROP, 5, 0, 0), -ENOENT);
	assert_int_equal(ask_object(fd, number, RBK_WIRE_OBJECT_ADD, 5, 1, 0), 0);
	close(fd);
	assert_int_equal(ask_credit(other, number, 0, 0, 0), 0);
	close(other);
}

/* Descriptors that are no cgroup's folder, and the cgroup of another session's lease. */
TEST(test_no_cgroups, NULL, nothing_left)
{
	int victim = hostile_session(), fd = hostile_session(), pair[2];
	struct rbk_wire_lease_cgroup request = {.request = {.type = RBK_WIRE_LEASE_CGROUP}};
	struct rbk_wire_reply reply;
	int fds[6];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	fds[0] = pair[0];
	fds[1] = pair[1];
	fds[2] = memfd_create("hostile", MFD_CLOEXEC);
	fds[3] = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fds[4] = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	fds[5] = open("/sys/fs", O_PATH | O_CLOEXEC);
	request.lease = open_lease(victim, MIB, MIB);
	raw_ask(fd, &request, sizeof(request), fds, 1, &reply, sizeof(reply));
	assert_int_equal(reply.res, -ENOENT);
	for (unsigned int i = 0; i < 6; i++) {
		assert_true(fds[i] >= 0);
		raw_ask(victim, &request, sizeof(request), &fds[i], 1, &reply, sizeof(reply));
		assert_int_equal(reply.res, -ENOTDIR);
		close(fds[i]);
	}
	close(fd);
	close(victim);
}

/* Requests that would wait for ever, and hundreds of members that join and leave. */
TEST(test_storms, NULL, nothing_left)
{
	enum { N = 200, ROUNDS = 5, MAX_WAITING = 64 };
	struct rbk_wire_lease_credit wait = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT},
		.wait_ms = UINT32_MAX,
		.want_bytes = MIB,
		.least_bytes = MIB,
	};
	int fd = hostile_session(), members[N];
	uint32_t number = open_lease(fd, MIB, MIB);
	unsigned int n_busy = 0;

	assert_int_equal(ask_join(members[0] = hostile_session(), number), 0);
	assert_int_equal(ask_credit(members[0], number, MIB, MIB, 0), 0);
	wait.lease = number;
	for (unsigned int i = 0; i < MAX_WAITING + 5; i++) {
		struct rbk_wire_reply reply;

		wait.request.cookie = i;
		assert_int_equal(raw_send(fd, &wait, sizeof(wait), NULL, 0), sizeof(wait));
		if (i < MAX_WAITING)
			continue;
		assert_int_equal(raw_receive(fd, &reply, sizeof(reply), NULL, NULL, 60000),
				 sizeof(reply));
		assert_int_equal(reply.cookie, i);
		n_busy += reply.res == -EBUSY;
	}
	assert_int_equal(n_busy, 5);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int i = 1; i < N; i++) {
			members[i] = hostile_session();
			assert_int_equal(ask_join(members[i], number), 0);
			assert_int_equal(ask_join(members[i], number), -EALREADY);
		}
		for (unsigned int i = 1; i < N; i++)
			close(members[i]);
	}
	close(members[0]);
	close(fd);
}

/* The number of a tenant's requests that wait for a device is limited, over all of its sessions. */
TEST(test_waits_of_tenant, NULL, nothing_left)
{
	enum { N = 16, EACH = 64 };
	struct rbk_wire_lease_credit wait = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT},
		.wait_ms = UINT32_MAX,
		.want_bytes = MIB,
		.least_bytes = MIB,
	};
	const struct rbk_wire_lease_open opening = an_opening(MIB, MIB, MIB);
	int fd = hostile_session(), members[N], another;
	struct rbk_wire_lease lease;

	wait.lease = open_lease(fd, MIB, MIB);
	assert_int_equal(ask_credit(fd, wait.lease, MIB, MIB, 0), 0);
	for (unsigned int i = 0; i < N; i++) {
		members[i] = hostile_session();
		assert_int_equal(ask_join(members[i], wait.lease), 0);
		for (unsigned int k = 0; k < EACH; k++)
			assert_int_equal(raw_send(members[i], &wait, sizeof(wait), NULL, 0),
					 sizeof(wait));
		/* Answered after the broker has read the requests before it. */
		assert_int_equal(ask_credit(members[i], wait.lease, 0, 0, 0), 0);
	}
	assert_int_equal(ask_credit(fd, wait.lease, MIB, MIB, 0), -EBUSY);
	assert_non_null(strstr(given.reply.text, "1024"));
	another = hostile_session();
	assert_int_equal(ask_open(another, &opening, &lease), -EBUSY);
	/* Once one session has ended, other requests of the tenant may wait. */
	close(members[0]);
	do
		assert_int_equal(ask_credit(fd, wait.lease, 0, 0, 0), 0);
	while (ask_credit(fd, wait.lease, MIB, MIB, 0) == -EBUSY);
	assert_int_equal(given.reply.res, -ENOMEM);
	for (unsigned int i = 1; i < N; i++)
		close(members[i]);
	close(fd);
	close(another);
}

static int connect_other(void)
{
	int fd;

	harness_become(OTHER_UID);
	fd = hostile_session();
	harness_become(0);
	return fd;
}

/* No other tenant gets a reserve, whether it requests the memory or claims to have held it. */
TEST(test_others_reserve, NULL, nothing_left)
{
	struct rbk_wire_lease_open request = an_opening(1, 64 * MIB, 64 * MIB);
	int fd = hostile_session(), liar, other;
	struct rbk_wire_lease lease;

	assert_int_equal(ask_open(fd, &request, &lease), 0);
	assert_true(lease.granted_bytes <= 40 * MIB);
	close(fd);
	hostile_expect_nothing_left();
	liar = hostile_session();
	request = an_opening(1, 1, 64 * MIB);
	request.flags = RBK_WIRE_LEASE_RESTORE;
	request.number = 4711;
	request.held_bytes = 41 * MIB;
	assert_int_equal(ask_open(liar, &request, &lease), -ENOMEM);
	assert_non_null(strstr(lease.reply.text, "default"));
	assert_non_null(strstr(lease.reply.text, "41 MiB"));
	request.held_bytes = 38 * MIB;
	assert_int_equal(ask_open(liar, &request, &lease), 0);
	assert_int_equal(lease.granted_bytes, 38 * MIB);
	if (geteuid() == 0) {
		other = connect_other();
		request = an_opening(24 * MIB, 24 * MIB, 64 * MIB);
		assert_int_equal(ask_open(other, &request, &lease), 0);
		assert_int_equal(ask_credit(liar, 4711, 10 * MIB, 10 * MIB, 0), -ENOMEM);
		close(other);
	}
	close(liar);
}

static int tell_timeslice(int fd, uint32_t lease, uint32_t action, uint32_t word)
{
	const struct rbk_wire_lease_timeslice request = {
		.request = {.type = RBK_WIRE_LEASE_TIMESLICE},
		.lease = lease,
		.action = action,
		.priority = action == RBK_WIRE_TIMESLICE_JOIN     ? RBK_PRIORITY_URGENT
			    : action == RBK_WIRE_TIMESLICE_ENDING ? UINT32_MAX
								  : 0,
		.word = word,
	};
	struct rbk_wire_reply reply;

	raw_ask(fd, &request, sizeof(request), NULL, 0, &reply, sizeof(reply));
	return reply.res;
}

/* Timeslices of other sessions' leases, without having joined, with words of the future. */
TEST(test_timeslices, NULL, nothing_left)
{
	enum { N = 18 };
	int victim = hostile_session(), fds[N];
	uint32_t number = open_lease(victim, MIB, MIB), numbers[N];

	assert_int_equal(tell_timeslice(victim, number, RBK_WIRE_TIMESLICE_WANT, 0), -ENOENT);
	assert_int_equal(tell_timeslice(victim, number, RBK_WIRE_TIMESLICE_DONE, 4), -ENOENT);
	for (unsigned int i = 0; i < N; i++) {
		fds[i] = hostile_session_with(RBK_FEAT_ENDING);
		numbers[i] = open_lease(fds[i], 4096, 4096);
		assert_int_equal(tell_timeslice(fds[i], number, RBK_WIRE_TIMESLICE_JOIN, 0),
				 -ENOENT);
		assert_int_equal(tell_timeslice(fds[i], numbers[i], RBK_WIRE_TIMESLICE_JOIN, 0),
				 i < 16 ? 0 : -EBUSY);
		assert_int_equal(tell_timeslice(fds[i], numbers[i], RBK_WIRE_TIMESLICE_WANT, 0),
				 i < 16 ? 0 : -ENOENT);
	}
	/* The holder tells what it likes, and leaves. */
	for (uint32_t word = 0; word < 64; word++)
		assert_int_equal(tell_timeslice(fds[0], numbers[0],
						word % 2 ? RBK_WIRE_TIMESLICE_DONE
							 : RBK_WIRE_TIMESLICE_ENDING,
						word / 2),
				 0);
	close(fds[0]);
	while (tell_timeslice(victim, number, RBK_WIRE_TIMESLICE_JOIN, 0) == -EBUSY)
		harness_sleep_ms(1);
	for (unsigned int i = 1; i < N; i++)
		close(fds[i]);
	close(victim);
}

static int tell_parts(int fd, uint32_t lease, uint64_t count)
{
	const struct rbk_wire_lease_parts request = {
		.request = {.type = RBK_WIRE_LEASE_PARTS},
		.lease = lease,
		.n_submissions = count,
		.n_parts = count,
		.n_slices = count,
		.n_whole = count,
		.n_unsliced = count,
		.longest_ns = count,
	};
	struct rbk_wire_reply reply;

	raw_ask(fd, &request, sizeof(request), NULL, 0, &reply, sizeof(reply));
	return reply.res;
}

/* Reports of parts, of other sessions' leases, with any counts, and without the feature. */
TEST(test_parts, NULL, nothing_left)
{
	static const uint64_t counts[] = {UINT64_MAX, 0, 5, UINT64_MAX - 5, 1ull << 48};
	int fd = hostile_session_with(RBK_FEAT_PARTS), other = hostile_session_with(RBK_FEAT_PARTS);
	uint32_t number = open_lease(fd, MIB, MIB);
	struct rbk_wire_lease_parts parts = {.request = {.type = RBK_WIRE_LEASE_PARTS},
					     .lease = number};

	assert_int_equal(tell_parts(other, number, 1), -ENOENT);
	for (unsigned int i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		assert_int_equal(tell_parts(fd, number, counts[i]), 0);
	hostile_expect_ended(&parts, sizeof(parts), NULL, 0);
	parts.reserved = 1;
	assert_int_equal(raw_send(fd, &parts, sizeof(parts), NULL, 0), sizeof(parts));
	raw_expect_closed(fd);
	close(fd);
	close(other);
}

static int tell_share(int fd, uint32_t lease, uint32_t priority, uint32_t share)
{
	const struct rbk_wire_lease_share request = {.request = {.type = RBK_WIRE_LEASE_SHARE},
						     .lease = lease,
						     .priority = priority,
						     .share = share};
	struct rbk_wire_reply reply;

	raw_ask(fd, &request, sizeof(request), NULL, 0, &reply, sizeof(reply));
	return reply.res;
}

/* Shares and priorities of other sessions' leases, out of range, and without the features. */
TEST(test_shares, NULL, nothing_left)
{
	const uint64_t features = RBK_FEAT_SHARES | RBK_FEAT_UNSHARE;
	const uint32_t none = 1 + RBK_PRIORITY_NONE;
	int fd = hostile_session_with(features), other = hostile_session_with(features);
	uint32_t number = open_lease(fd, MIB, MIB);
	struct rbk_wire_lease_share share = {
		.request = {.type = RBK_WIRE_LEASE_SHARE}, .lease = number, .share = 1};
	struct rbk_wire_lease_timeslice timeslice = {.request = {.type = RBK_WIRE_LEASE_TIMESLICE},
						     .lease = number};

	assert_int_equal(tell_share(other, number, 0, 1), -EPERM);
	assert_int_equal(tell_share(fd, number, 0, 10001), -EINVAL);
	for (uint32_t priority = RBK_PRIORITY_COUNT + 1; priority < 300; priority++)
		assert_int_equal(tell_share(fd, number, priority, 0),
				 priority == none ? 0 : -EINVAL);
	assert_int_equal(tell_share(fd, number, UINT32_MAX, 1), -EINVAL);
	assert_int_equal(tell_timeslice(fd, number, RBK_WIRE_TIMESLICE_LEAVE, 0), -ENOENT);
	assert_int_equal(tell_timeslice(other, number, RBK_WIRE_TIMESLICE_LEAVE, 0), -ENOENT);
	/* Members may join and leave as often as they like, whatever was set. */
	for (unsigned int i = 0; i < 100; i++) {
		assert_int_equal(tell_timeslice(fd, number, RBK_WIRE_TIMESLICE_JOIN, 0), 0);
		assert_int_equal(tell_timeslice(fd, number, RBK_WIRE_TIMESLICE_WANT, 0), 0);
		assert_int_equal(tell_share(fd, number, i % 2 ? none : 1, 0), 0);
		assert_int_equal(tell_timeslice(fd, number, RBK_WIRE_TIMESLICE_LEAVE, 0), 0);
		assert_int_equal(tell_timeslice(fd, number, RBK_WIRE_TIMESLICE_WANT, 0), -ENOENT);
	}
	hostile_expect_ended(&share, sizeof(share), NULL, 0);
	timeslice.action = RBK_WIRE_TIMESLICE_LEAVE;
	hostile_expect_ended(&timeslice, sizeof(timeslice), NULL, 0);
	timeslice.action = RBK_WIRE_TIMESLICE_GIVE_UP;
	hostile_expect_ended(&timeslice, sizeof(timeslice), NULL, 0);
	share.reserved = 1;
	assert_int_equal(raw_send(fd, &share, sizeof(share), NULL, 0), sizeof(share));
	raw_expect_closed(fd);
	close(fd);
	close(other);
}

static struct rbk_wire_id_reply tell_lost(int fd, uint32_t lease, uint32_t verdict)
{
	const struct rbk_wire_lease_lost request = {
		.request = {.type = RBK_WIRE_LEASE_LOST},
		.lease = lease,
		.verdict = verdict,
	};
	struct rbk_wire_id_reply reply = {.id = UINT32_MAX};

	raw_ask(fd, &request, sizeof(request), NULL, 0, &reply, sizeof(reply));
	return reply;
}

/* Reports of lost devices without end, of other sessions' leases, with lies, and in odd forms. */
TEST(test_lost, NULL, nothing_left)
{
	enum { N = 20000 };
	int fd = hostile_session_with(RBK_FEAT_LOST), other = hostile_session_with(RBK_FEAT_LOST);
	uint32_t number = open_lease(fd, MIB, MIB), another = open_lease(other, MIB, MIB);
	struct rbk_wire_lease_lost lost = {.request = {.type = RBK_WIRE_LEASE_LOST},
					   .lease = number};

	assert_int_equal(tell_lost(other, number, RESET_VERDICT_GUILTY).reply.res, -ENOENT);
	/* It accuses no other program by that. */
	assert_int_equal(tell_lost(fd, number, RESET_VERDICT_INNOCENT).id, 0);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(tell_lost(fd, number, i % 3).reply.res, 0);
	assert_int_equal(tell_lost(fd, number, RESET_VERDICT_UNKNOWN).id, 1);
	assert_int_equal(tell_lost(other, another, RESET_VERDICT_INNOCENT).reply.res, 0);
	hostile_expect_ended(&lost, sizeof(lost), NULL, 0);
	lost.verdict = RESET_VERDICT_COUNT;
	assert_int_equal(raw_send(fd, &lost, sizeof(lost), NULL, 0), sizeof(lost));
	raw_expect_closed(fd);
	close(fd);
	close(other);
}

static int tell_moved(int fd, uint32_t number, uint64_t movable_bytes, uint64_t moved_bytes)
{
	const struct rbk_wire_lease_moved moved = {.request = {.type = RBK_WIRE_LEASE_MOVED},
						   .lease = number,
						   .movable_bytes = movable_bytes,
						   .moved_bytes = moved_bytes};
	struct rbk_wire_reply reply;

	raw_ask(fd, &moved, sizeof(moved), NULL, 0, &reply, sizeof(reply));
	return reply.res;
}

static int tell_sleep(int fd, uint32_t number, uint32_t state)
{
	const struct rbk_wire_lease_sleep sleep = {
		.request = {.type = RBK_WIRE_LEASE_SLEEP}, .lease = number, .sleep = state};
	struct rbk_wire_reply reply;

	raw_ask(fd, &sleep, sizeof(sleep), NULL, 0, &reply, sizeof(reply));
	return reply.res;
}

/* Leases that sleep: of other sessions, in unknown states, with any reports, without the feature.
 */
TEST(test_sleep, NULL, nothing_left)
{
	int fd = hostile_session_with(RBK_FEAT_SLEEP), other = hostile_session_with(RBK_FEAT_SLEEP);
	uint32_t number = open_lease(fd, MIB, MIB);
	struct rbk_wire_lease_moved moved = {.request = {.type = RBK_WIRE_LEASE_MOVED},
					     .lease = number};
	const struct rbk_wire_lease_sleep sleep = {.request = {.type = RBK_WIRE_LEASE_SLEEP},
						   .lease = number};

	assert_int_equal(tell_moved(other, number, MIB, 0), -ENOENT);
	assert_int_equal(tell_sleep(other, number, RBK_LEASE_HELD), -EPERM);
	assert_int_equal(tell_sleep(fd, number + 1, RBK_LEASE_HELD), -ENOENT);
	assert_int_equal(tell_sleep(fd, number, RBK_LEASE_ASKED), -EINVAL);
	assert_int_equal(tell_sleep(fd, number, UINT32_MAX), -EINVAL);
	for (uint32_t sleep_state = RBK_LEASE_HELD + 1; sleep_state-- > 0;) {
		assert_int_equal(tell_sleep(fd, number, sleep_state), 0);
		assert_int_equal(tell_moved(fd, number, UINT64_MAX, UINT64_MAX), 0);
		assert_int_equal(tell_moved(fd, number, 0, UINT64_MAX), 0);
	}
	hostile_expect_ended(&moved, sizeof(moved), NULL, 0);
	hostile_expect_ended(&sleep, sizeof(sleep), NULL, 0);
	moved.reserved = 1;
	assert_int_equal(raw_send(fd, &moved, sizeof(moved), NULL, 0), sizeof(moved));
	raw_expect_closed(fd);
	close(fd);
	close(other);
}

/* Messages that are cut short, too long, or have a reserved field set. */
TEST(test_forms, NULL, nothing_left)
{
	struct rbk_wire_lease_open open = an_opening(1, 1, 1);
	struct rbk_wire_lease_credit credit = {.request = {.type = RBK_WIRE_LEASE_CREDIT}};
	struct rbk_wire_lease_object object = {.request = {.type = RBK_WIRE_LEASE_OBJECT},
					       .action = RBK_WIRE_OBJECT_ADD};
	struct rbk_wire_lease_resize resize = {.request = {.type = RBK_WIRE_LEASE_RESIZE}};
	struct rbk_wire_lease_cgroup cgroup = {.request = {.type = RBK_WIRE_LEASE_CGROUP}};
	struct rbk_wire_lease_timeslice timeslice = {.request = {.type = RBK_WIRE_LEASE_TIMESLICE},
						     .action = RBK_WIRE_TIMESLICE_JOIN};
	struct rbk_wire_lease_share share = {.request = {.type = RBK_WIRE_LEASE_SHARE}};
	struct rbk_wire_lease_parts parts = {.request = {.type = RBK_WIRE_LEASE_PARTS}};
	const struct {
		const void *bytes;
		size_t n_bytes;
	} good[] = {{&open, sizeof(open)},     {&credit, sizeof(credit)},
		    {&object, sizeof(object)}, {&resize, sizeof(resize)},
		    {&share, sizeof(share)},   {&timeslice, sizeof(timeslice)},
		    {&parts, sizeof(parts)}};
	struct rbk_wire_lease_open bad[12];
	unsigned int n = 0;
	uint8_t longer[sizeof(open) + 8];
	const int fds[] = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};

	for (unsigned int i = 0; i < sizeof(good) / sizeof(*good); i++) {
		/* Unexpected descriptors are closed. */
		for (unsigned int n_fds = 1; n_fds <= 4; n_fds++)
			hostile_expect_ended(good[i].bytes, good[i].n_bytes, fds, n_fds);
		for (int change = -8; change <= 8; change += 4) {
			if (change == 0)
				continue;
			memset(longer, 0, sizeof(longer));
			memcpy(longer, good[i].bytes, good[i].n_bytes);
			hostile_expect_ended(longer, (size_t)((long)good[i].n_bytes + change), NULL,
					     0);
		}
	}
	for (n = 0; n < 12; n++)
		bad[n] = open;
	bad[0].flags = 8;
	bad[1].number = 1;
	bad[2].flags = RBK_WIRE_LEASE_JOIN;
	bad[3].flags = RBK_WIRE_LEASE_JOIN | RBK_WIRE_LEASE_RESTORE;
	bad[3].number = 1;
	bad[4].uuid[15] = 1;
	bad[5].flags = RBK_WIRE_LEASE_BY_UUID;
	bad[6].held_bytes = 1;
	memset(bad[7].program, 'x', sizeof(bad[7].program));
	bad[8].flags = RBK_WIRE_LEASE_JOIN;
	bad[8].number = 1;
	bad[9].flags = RBK_WIRE_LEASE_JOIN | RBK_WIRE_LEASE_BY_UUID;
	bad[9].number = 1;
	/* These flags take a feature. */
	bad[10].flags = RBK_WIRE_LEASE_RESTORE | RBK_WIRE_LEASE_RESIZED;
	bad[10].number = 1;
	bad[11].flags = RBK_WIRE_LEASE_RESTORE | RBK_WIRE_LEASE_OPENER;
	bad[11].number = 1;
	for (unsigned int i = 0; i < n; i++) {
		hostile_expect_ended(&bad[i], sizeof(bad[i]), NULL, 0);
	}
	credit.least_bytes = 1;
	hostile_expect_ended(&credit, sizeof(credit), NULL, 0);
	credit.want_bytes = credit.return_bytes = 1;
	hostile_expect_ended(&credit, sizeof(credit), NULL, 0);
	object.action = 3;
	hostile_expect_ended(&object, sizeof(object), NULL, 0);
	resize.reserved = 1;
	hostile_expect_ended(&resize, sizeof(resize), NULL, 0);
	share.reserved = 1;
	hostile_expect_ended(&share, sizeof(share), NULL, 0);
	timeslice.priority = RBK_PRIORITY_COUNT;
	hostile_expect_ended(&timeslice, sizeof(timeslice), NULL, 0);
	timeslice.action = RBK_WIRE_TIMESLICE_WANT;
	timeslice.priority = RBK_PRIORITY_URGENT;
	hostile_expect_ended(&timeslice, sizeof(timeslice), NULL, 0);
	timeslice.priority = 0;
	timeslice.word = 1;
	hostile_expect_ended(&timeslice, sizeof(timeslice), NULL, 0);
	timeslice.word = 0;
	/* The first two take features. */
	for (timeslice.action = RBK_WIRE_TIMESLICE_LEAVE; timeslice.action < 9; timeslice.action++)
		hostile_expect_ended(&timeslice, sizeof(timeslice), NULL, 0);
	/* LEASE_CGROUP has exactly one descriptor. */
	for (unsigned int n_fds = 0; n_fds < 3; n_fds++) {
		cgroup.reserved = n_fds == 1;
		hostile_expect_ended(&cgroup, sizeof(cgroup), fds, n_fds);
	}
}

static uint64_t seed = 0x9e3779b97f4a7c15;

static uint32_t pick(uint32_t n)
{
	return (uint32_t)(harness_random(&seed) >> 33) % n;
}

static uint64_t odd_size(void)
{
	static const uint64_t odd[] = {0,
				       1,
				       4096,
				       MIB,
				       8 * MIB,
				       64 * MIB,
				       64 * MIB + 1,
				       1ull << 32,
				       INT64_MAX,
				       UINT64_MAX,
				       UINT64_MAX - 4095};

	return pick(3) ? odd[pick(sizeof(odd) / sizeof(*odd))] : pick(16 * MIB);
}

static size_t make_message(uint32_t number, uint8_t bytes[256])
{
	struct rbk_wire_lease_open open = an_opening(odd_size(), odd_size(), odd_size());
	struct rbk_wire_lease_credit credit = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT}, .lease = number, .wait_ms = pick(20)};
	struct rbk_wire_lease_object object = {.request = {.type = RBK_WIRE_LEASE_OBJECT},
					       .lease = number,
					       .action = 1 + pick(2),
					       .dev = 9,
					       .ino = pick(5)};
	struct rbk_wire_lease_resize resize = {.request = {.type = RBK_WIRE_LEASE_RESIZE},
					       .lease = number,
					       .wish_bytes = odd_size()};
	struct rbk_wire_lease_timeslice timeslice = {
		.request = {.type = RBK_WIRE_LEASE_TIMESLICE},
		.lease = number,
		.action = 1 + pick(5),
	};
	const struct rbk_wire_lease_share share = {.request = {.type = RBK_WIRE_LEASE_SHARE},
						   .lease = number,
						   .priority = pick(8) ? pick(6) : 256,
						   .share = pick(10002)};
	struct rbk_wire_lease_parts parts = {.request = {.type = RBK_WIRE_LEASE_PARTS},
					     .lease = number,
					     .n_parts = odd_size(),
					     .longest_ns = odd_size()};
	size_t n;

	switch (pick(10)) {
	case 0:
		if (pick(2)) {
			open.flags = RBK_WIRE_LEASE_RESTORE;
			open.number = number;
			open.held_bytes = odd_size();
		}
		memcpy(bytes, &open, n = sizeof(open));
		break;
	case 1:
	case 2:
		credit.want_bytes = odd_size();
		credit.least_bytes = pick(2) ? credit.want_bytes : 0;
		memcpy(bytes, &credit, n = sizeof(credit));
		break;
	case 3:
		credit.return_bytes = odd_size();
		memcpy(bytes, &credit, n = sizeof(credit));
		break;
	case 4:
		if (object.action == RBK_WIRE_OBJECT_ADD) {
			object.bytes = odd_size();
			object.from_credit_bytes = pick(2) ? odd_size() : 0;
		}
		memcpy(bytes, &object, n = sizeof(object));
		break;
	case 5:
	case 6:
		if (timeslice.action == RBK_WIRE_TIMESLICE_JOIN)
			timeslice.priority = pick(RBK_PRIORITY_COUNT);
		if (timeslice.action == RBK_WIRE_TIMESLICE_DONE ||
		    timeslice.action == RBK_WIRE_TIMESLICE_GIVE_UP)
			timeslice.word = pick(64);
		if (timeslice.action == RBK_WIRE_TIMESLICE_ENDING)
			timeslice.rest_us = pick(2000);
		memcpy(bytes, &timeslice, n = sizeof(timeslice));
		break;
	case 7:
		memcpy(bytes, &share, n = sizeof(share));
		break;
	case 8:
		memcpy(bytes, &parts, n = sizeof(parts));
		break;
	default:
		memcpy(bytes, &resize, n = sizeof(resize));
		break;
	}
	if (pick(8) == 0)
		bytes[8 + pick((uint32_t)n - 8)] ^= (uint8_t)(1u << pick(8));
	/* Limit the waits to 20 ms. */
	if (((struct rbk_wire_request *)bytes)->type == RBK_WIRE_LEASE_OPEN)
		((struct rbk_wire_lease_open *)bytes)->wait_ms %= 20;
	if (((struct rbk_wire_request *)bytes)->type == RBK_WIRE_LEASE_CREDIT)
		((struct rbk_wire_lease_credit *)bytes)->wait_ms %= 20;
	return n;
}

TEST(test_random, NULL, nothing_left)
{
	uint64_t n_total = test_scaled(20000), n_answered = 0, n_closed = 0;
	_Alignas(8) uint8_t message[256];
	_Alignas(8) char answer[4096];
	int fds[2] = {-1, -1};
	uint32_t numbers[2] = {0, 0};

	for (uint64_t i = 0; i < n_total; i++) {
		unsigned int which = pick(2);
		ssize_t n;

		if (fds[which] < 0) {
			fds[which] = hostile_session_with(RBK_FEAT_FIXED_ARENAS | RBK_FEAT_SHARES |
							  RBK_FEAT_PARTS | RBK_FEAT_UNSHARE |
							  RBK_FEAT_ENDING);
			if (numbers[!which] && fds[!which] >= 0 &&
			    ask_join(fds[which], numbers[!which]) == 0)
				numbers[which] = numbers[!which];
			else
				numbers[which] = open_lease(fds[which], 4 * MIB, 24 * MIB);
		}
		n = (ssize_t)make_message(numbers[which], message);
		n = raw_send(fds[which], message, (size_t)n, NULL, 0);
		if (n > 0)
			n = raw_receive(fds[which], answer, sizeof(answer), NULL, NULL, 60000);
		assert_true(n != -ETIME);
		if (n > 0) {
			n_answered++;
			assert_true(broker_vram_used(observer) <= 64 * MIB);
			if (pick(50))
				continue;
		} else {
			n_closed++;
		}
		close(fds[which]);
		fds[which] = -1;
		/* This message may have opened the other session's lease. */
		if (fds[!which] < 0)
			numbers[0] = numbers[1] = 0;
	}
	for (unsigned int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	print_message("%llu answered, %llu ended\n", (unsigned long long)n_answered,
		      (unsigned long long)n_closed);
	assert_true(n_answered > n_total / 2);
	assert_true(n_closed > 0);
}

/* A client that keeps the page of an ended lease pays for it. */
TEST(test_pages_kept, NULL, nothing_left)
{
	const struct rbk_wire_lease_open request = an_opening(1, 1, MIB);
	struct rbk_wire_lease lease;
	int pages[N_PAGES], fd;
	struct rbk_stats stats;
	uint64_t n_bytes = 0;
	unsigned int n_fds;

	for (unsigned int i = 0; i < N_PAGES; i++) {
		fd = hostile_session();
		n_fds = 1;
		assert_int_equal(raw_send(fd, &request, sizeof(request), NULL, 0), sizeof(request));
		assert_int_equal(raw_receive(fd, &lease, sizeof(lease), &pages[i], &n_fds, 60000),
				 sizeof(lease));
		assert_int_equal(n_fds, 1);
		n_bytes += lease.page_bytes;
		close(fd);
	}
	broker_wait_sessions(observer, 2);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_true(stats.host_bytes >= stats_before.host_bytes + n_bytes);
	for (unsigned int i = 0; i < N_PAGES; i++)
		close(pages[i]);
}

TEST_MAIN(begin, hostile_end, harness_limit_seconds(120))
