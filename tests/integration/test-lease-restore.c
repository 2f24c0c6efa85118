/* SPDX-License-Identifier: MIT */
/*
 * Leases that a restarted broker restores, and clients that die on the way
 *
 * brokerd is killed and restarted, with the same budget or a smaller one. Members report in any
 * order what they hold. The charge never exceeds the budget. A rejected member is told why, and
 * succeeds once other members have given enough back. Then a typical client dies after each step of
 * its conversation: nothing is left, and members that shared an object keep it.
 *
 * Raw sockets send each request at an exact point.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/raw.h"
#include "support/test.h"

#define MIB (1ull << 20)
#define GPU RBK_DEVICE_GPU

enum { DEVICE_MIB = 64, LONG_MS = 600000 };

static struct broker broker;
static struct rbk *observer;

static void start_with(const char *policy)
{
	observer = broker_start_gpu(
		&broker,
		&(struct broker_options){.policy = policy,
					 .args = (const char *const[]){"--gpu=software",
								       "--device-memory=64MiB",
								       NULL}},
		"observer");
}

static void restart_with(const char *policy)
{
	broker_kill(&broker);
	rbk_disconnect(observer);
	broker_remove(&broker);
	start_with(policy);
}

static int begin(void **state)
{
	start_with("");
	return 0;
}

static int end(void **state)
{
	rbk_disconnect(observer);
	broker_stop(&broker);
	return 0;
}

/* ---- Members ---- */

struct member {
	int fd;
	uint32_t number;
	uint64_t held_bytes; /* credit, as the member knows it */
	uint64_t wish_bytes, max_bytes;
};

/* The reply to the last request. */
static union {
	struct rbk_wire_reply reply;
	struct rbk_wire_lease lease;
	struct rbk_wire_lease_given given;
} answer;

static struct rbk_wire_lease_open an_opening(const struct member *member)
{
	return (struct rbk_wire_lease_open){
		.request = {.type = RBK_WIRE_LEASE_OPEN},
		.device = GPU,
		.min_bytes = 1,
		.wish_bytes = member->wish_bytes,
		.max_bytes = member->max_bytes,
		.program = "member",
	};
}

static int ask(int fd, const void *request, size_t n_bytes)
{
	raw_ask(fd, request, n_bytes, NULL, 0, &answer, sizeof(answer));
	return answer.reply.res;
}

static int ask_credit(struct member *member, uint64_t bytes)
{
	const struct rbk_wire_lease_credit request = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT},
		.lease = member->number,
		.want_bytes = bytes,
		.least_bytes = bytes,
	};
	int r = ask(member->fd, &request, sizeof(request));

	member->held_bytes += r ? 0 : bytes;
	return r;
}

static void give(struct member *member, uint64_t bytes)
{
	const struct rbk_wire_lease_credit request = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT},
		.lease = member->number,
		.return_bytes = bytes,
	};

	assert_int_equal(ask(member->fd, &request, sizeof(request)), 0);
	member->held_bytes -= bytes;
}

static int ask_resize(const struct member *member, uint64_t bytes)
{
	const struct rbk_wire_lease_resize request = {.request = {.type = RBK_WIRE_LEASE_RESIZE},
						      .lease = member->number,
						      .wish_bytes = bytes};

	return ask(member->fd, &request, sizeof(request));
}

/* Open a lease of its own, and take credit. */
static struct member member_with(uint64_t wish_mib, uint64_t max_mib, uint64_t credit_mib)
{
	struct member member = {.fd = raw_connect(&broker),
				.wish_bytes = wish_mib * MIB,
				.max_bytes = max_mib * MIB};
	struct rbk_wire_lease_open request = an_opening(&member);

	raw_hello(member.fd);
	assert_int_equal(ask(member.fd, &request, sizeof(request)), 0);
	member.number = answer.lease.number;
	if (credit_mib > 0)
		assert_int_equal(ask_credit(&member, credit_mib * MIB), 0);
	return member;
}

static struct member joined_with(const struct member *other, uint64_t credit_mib)
{
	struct member member = *other;
	const struct rbk_wire_lease_open request = {.request = {.type = RBK_WIRE_LEASE_OPEN},
						    .flags = RBK_WIRE_LEASE_JOIN,
						    .number = other->number};

	member.fd = raw_connect(&broker);
	member.held_bytes = 0;
	raw_hello(member.fd);
	assert_int_equal(ask(member.fd, &request, sizeof(request)), 0);
	assert_int_equal(ask_credit(&member, credit_mib * MIB), 0);
	return member;
}

static void member_leave(struct member *member)
{
	close(member->fd);
	member->fd = -1;
}

/*
 * Restore on a new connection to the current broker. The connection stays open if the broker
 * rejects the lease.
 */
static int restore(struct member *member)
{
	struct rbk_wire_lease_open request = an_opening(member);
	int fd = raw_connect(&broker), r;

	raw_hello(fd);
	request.flags = RBK_WIRE_LEASE_RESTORE;
	request.number = member->number;
	request.held_bytes = member->held_bytes;
	r = ask(fd, &request, sizeof(request));
	close(member->fd);
	member->fd = fd;
	if (r == 0)
		member->number = answer.lease.number;
	return r;
}

static void expect_refused(struct member *member, int res, const char *part)
{
	assert_int_equal(restore(member), res);
	if (!strstr(answer.reply.text, part) || !strstr(answer.reply.text, "tenant default"))
		fail_msg("it is told: %s", answer.reply.text);
}

/* ---- The same budget ---- */

/*
 * The first member grows to its wish, for which there was no room before. It does not grow into
 * memory that the second member holds and has not reported yet.
 */
TEST(test_first_member_leaves_unreported_memory)
{
	struct member second = member_with(44, 44, 40), first = member_with(30, 30, 20);

	restart_with("");
	assert_int_equal(restore(&first), 0);
	assert_true(answer.lease.granted_bytes >= 20 * MIB);
	assert_int_equal(restore(&second), 0);
	assert_true(broker_vram_used(observer) <= DEVICE_MIB * MIB);
	assert_int_equal(ask_credit(&first, 5 * MIB), -ENOMEM);
	give(&second, 40 * MIB);
	assert_int_equal(ask_resize(&second, MIB), 0);
	assert_int_equal(ask_credit(&first, 10 * MIB), 0);
	member_leave(&first);
	member_leave(&second);
	broker_wait_vram(observer, 0);
}

/* The unused credit of a lease is available to its own members. */
TEST(test_members_share_unused_credit)
{
	static const char policy[] = "[tenant default]\nvram-max = 32MiB\n";
	struct member first, second;

	restart_with(policy);
	first = member_with(32, 32, 16);
	second = joined_with(&first, 14);
	restart_with(policy);
	assert_int_equal(restore(&first), 0);
	assert_int_equal(restore(&second), 0);
	assert_int_equal(first.number, second.number);
	broker_wait_vram(observer, 32 * MIB);
	assert_int_equal(ask_credit(&second, 2 * MIB), 0);
	assert_int_equal(ask_credit(&first, 1), -ENOMEM);
	member_leave(&first);
	member_leave(&second);
	broker_wait_vram(observer, 0);
	restart_with("");
}

/*
 * After the restart, one member takes all of the lease before the other member reports its own
 * credit. Both are charged, above the lease's maximum. No credit is granted until the charge is
 * below the maximum.
 */
TEST(test_above_maximum)
{
	struct member first = member_with(20, 20, 10), second = joined_with(&first, 10);

	restart_with("");
	assert_int_equal(restore(&first), 0);
	assert_int_equal(ask_credit(&first, 10 * MIB), 0);
	assert_int_equal(ask_credit(&first, 1), -ENOMEM);
	assert_int_equal(restore(&second), 0);
	assert_int_equal(answer.lease.granted_bytes, 30 * MIB);
	assert_int_equal(answer.lease.max_bytes, 20 * MIB);
	broker_wait_vram(observer, 30 * MIB);
	assert_int_equal(ask_credit(&second, 1), -ENOMEM);
	give(&first, 5 * MIB);
	broker_wait_vram(observer, 25 * MIB);
	assert_int_equal(ask_credit(&second, 1), -ENOMEM);
	member_leave(&second);
	broker_wait_vram(observer, 20 * MIB);
	assert_int_equal(ask_credit(&first, 5 * MIB), 0);
	assert_int_equal(ask_credit(&first, 1), -ENOMEM);
	member_leave(&first);
	broker_wait_vram(observer, 0);
}

/*
 * The broker dies after it has given one member's returned credit to another, but before the first
 * member reads the reply: both have it. A single member cannot exceed the maximum in this way.
 */
TEST(test_lost_answer)
{
	struct member first = member_with(20, 20, 20), second = joined_with(&first, 0);
	struct member alone = member_with(20, 20, 20);
	uint64_t alone_bytes = alone.held_bytes, first_bytes = first.held_bytes;

	give(&first, 8 * MIB);
	assert_int_equal(ask_credit(&second, 8 * MIB), 0);
	first.held_bytes = first_bytes;
	give(&alone, 8 * MIB);
	assert_int_equal(ask_credit(&alone, 8 * MIB), 0);
	alone.held_bytes = alone_bytes;
	restart_with("");
	assert_int_equal(restore(&first), 0);
	assert_int_equal(restore(&second), 0);
	assert_int_equal(answer.lease.granted_bytes, 28 * MIB);
	assert_int_equal(restore(&alone), 0);
	assert_int_equal(answer.lease.granted_bytes, 20 * MIB);
	broker_wait_vram(observer, 48 * MIB);
	give(&first, 8 * MIB);
	broker_wait_vram(observer, 40 * MIB);
	member_leave(&first);
	member_leave(&second);
	member_leave(&alone);
	broker_wait_vram(observer, 0);
}

/*
 * The broker dies while a lease shrinks. The remaining credit is charged. It decreases as credit is
 * given back, down to the wish that the next broker is told.
 */
TEST(test_while_shrinking)
{
	struct member member = member_with(20, 20, 20), other;

	assert_int_equal(ask_resize(&member, 10 * MIB), 0);
	assert_int_equal(answer.given.granted_bytes, 20 * MIB);
	give(&member, 4 * MIB);
	restart_with("");
	member.wish_bytes = 10 * MIB;
	assert_int_equal(restore(&member), 0);
	assert_int_equal(answer.lease.granted_bytes, 16 * MIB);
	broker_wait_vram(observer, 16 * MIB);
	other = member_with(48, 48, 48);
	assert_int_equal(ask_credit(&other, 1), -ENOMEM);
	give(&member, 16 * MIB);
	broker_wait_vram(observer, 58 * MIB);
	member_leave(&member);
	member_leave(&other);
	broker_wait_vram(observer, 0);
}

/* ---- A smaller budget ---- */

TEST(test_smaller_budget)
{
	static const char less[] = "[tenant default]\nvram-max = 32MiB\n";
	struct member first = member_with(30, 30, 24), second = member_with(20, 20, 16),
		      third = member_with(14, 14, 6);

	restart_with(less);
	assert_int_equal(restore(&first), 0);
	expect_refused(&second, -EDQUOT, "had 16 MiB, of which 8 MiB are available");
	/* The first lease's unused grant does not keep memory from the third. */
	assert_int_equal(restore(&third), 0);
	assert_true(broker_vram_used(observer) <= 32 * MIB);
	expect_refused(&second, -EDQUOT, "(vram-max)");
	/* The two restored leases cannot grow beyond the budget. */
	assert_int_equal(ask_credit(&first, 4 * MIB), -ENOMEM);
	assert_int_equal(ask_credit(&third, 4 * MIB), -ENOMEM);
	/* The second lease is restored once the others have given enough back. */
	give(&first, 14 * MIB);
	assert_int_equal(restore(&second), 0);
	assert_true(broker_vram_used(observer) <= 32 * MIB);
	give(&second, 16 * MIB);
	give(&third, 6 * MIB);
	member_leave(&second);
	member_leave(&third);
	broker_wait_vram(observer, 10 * MIB);
	assert_int_equal(ask_credit(&first, 20 * MIB), 0);
	assert_int_equal(ask_credit(&first, MIB), -ENOMEM);
	member_leave(&first);
	broker_wait_vram(observer, 0);
	restart_with("");
}

/* One lease holds more than its tenant's vram-max. */
TEST(test_one_lease_above_budget)
{
	static const char least[] = "[tenant default]\nvram-max = 8MiB\n";
	struct member member = member_with(20, 20, 16), small;

	restart_with(least);
	for (unsigned int i = 0; i < 3; i++)
		expect_refused(&member, -EDQUOT, "had 16 MiB, of which 8 MiB");
	broker_wait_vram(observer, 0);
	/* Other leases still work; the rejected lease is not charged to the tenant. */
	small = member_with(8, 8, 8);
	member_leave(&small);
	broker_wait_vram(observer, 0);
	member.held_bytes = 8 * MIB;
	assert_int_equal(restore(&member), 0);
	broker_wait_vram(observer, 8 * MIB);
	assert_int_equal(ask_credit(&member, 1), -ENOMEM);
	member_leave(&member);
	broker_wait_vram(observer, 0);
	restart_with("");
}

/* ---- Clients that die ---- */

enum { N_STEPS = 12, SHARED_INO = 77 };

static void say(int fd, const void *request, size_t n_bytes)
{
	assert_int_equal(raw_send(fd, request, n_bytes, NULL, 0), n_bytes);
}

static void say_object(const struct member *member, uint32_t action, uint64_t ino, uint64_t bytes,
		       uint64_t from_credit_bytes)
{
	const struct rbk_wire_lease_object request = {
		.request = {.type = RBK_WIRE_LEASE_OBJECT},
		.lease = member->number,
		.action = action,
		.dev = 5,
		.ino = ino,
		.bytes = bytes,
		.from_credit_bytes = from_credit_bytes,
	};

	say(member->fd, &request, sizeof(request));
}

static void say_credit(const struct member *member, uint64_t least, uint64_t back, uint32_t wait_ms)
{
	const struct rbk_wire_lease_credit request = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT},
		.lease = member->number,
		.wait_ms = wait_ms,
		.want_bytes = least,
		.least_bytes = least,
		.return_bytes = back,
	};

	say(member->fd, &request, sizeof(request));
}

/* Read the reply to a step, if it is answered at once. */
static void hear(const struct member *member)
{
	assert_true(raw_receive(member->fd, &answer, sizeof(answer), NULL, NULL, 60000) >=
		    (ssize_t)sizeof(answer.reply));
	assert_int_equal(answer.reply.res, 0);
}

static void say_opening(const struct member *member, unsigned int step)
{
	struct rbk_wire_lease_open request = an_opening(member);

	if (step % 2) {
		request.flags = RBK_WIRE_LEASE_RESTORE;
		request.number = 4711;
		request.held_bytes = 12 * MIB;
	}
	say(member->fd, &request, sizeof(request));
}

/* Send the request of @step, for a new or a restored lease. */
static void say_step(struct member *member, unsigned int step, bool is_restored)
{
	const struct rbk_wire_hello hello = {.request = {.type = RBK_WIRE_HELLO},
					     .magic = RBK_WIRE_MAGIC,
					     .abi_major = RBK_ABI_MAJOR,
					     .abi_minor = RBK_ABI_MINOR,
					     .name = "mortal"};
	const struct rbk_wire_lease_resize resize = {.request = {.type = RBK_WIRE_LEASE_RESIZE},
						     .lease = member->number,
						     .wish_bytes = 10 * MIB};

	switch (step) {
	case 0:
		break; /* only connected */
	case 1:
		say(member->fd, &hello, sizeof(hello));
		break;
	case 2:
		say_opening(member, is_restored);
		break;
	case 3:
		say_credit(member, 8 * MIB, 0, 0);
		break;
	case 4: /* an export */
		say_object(member, RBK_WIRE_OBJECT_ADD, 1, 4 * MIB, 4 * MIB);
		break;
	case 5: /* an import of an object that another member pays for */
		say_object(member, RBK_WIRE_OBJECT_ADD, SHARED_INO, 2 * MIB, 0);
		break;
	case 6: /* an import for which this member pays from now on */
		say_object(member, RBK_WIRE_OBJECT_ADD, SHARED_INO + 1, 3 * MIB, 0);
		break;
	case 7:
		say(member->fd, &resize, sizeof(resize));
		break;
	case 8:
		say_credit(member, 0, 2 * MIB, 0);
		break;
	case 9:
		say_object(member, RBK_WIRE_OBJECT_DROP, 1, 0, 0);
		break;
	case 10: /* more than is free: it waits without a reply */
		say_credit(member, 10 * MIB, 0, LONG_MS);
		break;
	default:
		say_object(member, RBK_WIRE_OBJECT_DROP, SHARED_INO + 1, 0, 0);
		break;
	}
}

/* Run the steps up to @last, then die, before or after the last reply. */
static void live_until(unsigned int last, bool is_restored, bool is_heard)
{
	struct member member = {
		.fd = raw_connect(&broker), .wish_bytes = 16 * MIB, .max_bytes = 24 * MIB};

	for (unsigned int step = 0; step <= last; step++) {
		say_step(&member, step, is_restored);
		if (step == 0 || step >= 10 || (step == last && !is_heard))
			continue;
		hear(&member);
		if (step == 2)
			member.number = answer.lease.number;
	}
	close(member.fd);
}

TEST(test_die_at_each_step)
{
	struct member other = member_with(8, 8, 8);

	say_object(&other, RBK_WIRE_OBJECT_ADD, SHARED_INO, 2 * MIB, 2 * MIB);
	hear(&other);
	say_object(&other, RBK_WIRE_OBJECT_ADD, SHARED_INO + 1, 2 * MIB, 2 * MIB);
	hear(&other);
	broker_wait_vram(observer, 8 * MIB);
	for (unsigned int last = 0; last < N_STEPS; last++)
		for (unsigned int how = 0; how < 4; how++) {
			live_until(last, how & 1, how & 2);
			broker_wait_sessions(observer, 2);
			/*
			 * The other lease keeps its own credit and pays again for the objects that
			 * it shared.
			 */
			broker_wait_vram(observer, 8 * MIB);
		}
	assert_int_equal(ask_credit(&other, 1), -ENOMEM);
	member_leave(&other);
	broker_wait_vram(observer, 0);
}

TEST_MAIN(begin, end, harness_limit_seconds(120))
