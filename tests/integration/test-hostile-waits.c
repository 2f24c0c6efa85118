/* SPDX-License-Identifier: MIT */
/*
 * Waiting for device memory in every form, against a live broker
 *
 * Members wait for each other in a circle, die while they wait, and see their leases shrink
 * meanwhile. A client sends requests without end and never reads. Raw sockets let one thread do
 * everything in one order. A neighbour, whose plan runs throughout, makes progress in each test.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "support/test.h"

enum { DEVICE_MIB = 64, LONG_MS = 600000 };

/* A member of its own lease. */
struct member {
	int fd;
	uint32_t number;
};

static int begin(void **state)
{
	return hostile_begin_with(&(struct broker_options){
		.args = (const char *const[]){"--gpu=software", "--device-memory=64MiB",
					      "--force-cpu=yes", NULL}});
}

/* Note the neighbour's progress at the beginning of a test. */
static int note_neighbour(void **state)
{
	results_before = neighbour_results(neighbour);
	return 0;
}

/*
 * Check at the end of a test that the waiters did not stop the neighbour. neighbour_stop() reports
 * wrong results.
 */
static int expect_neighbour(void **state)
{
	hostile_expect_nothing_left();
	neighbour_finish_round(neighbour);
	assert_true(neighbour_results(neighbour) > results_before);
	return 0;
}

/* ---- Members ---- */

static struct member open_member(uint64_t mib)
{
	const struct rbk_wire_lease_open request = {
		.request = {.type = RBK_WIRE_LEASE_OPEN},
		.device = GPU,
		.min_bytes = 1,
		.wish_bytes = mib ? mib * MIB : 1,
		.max_bytes = DEVICE_MIB * MIB,
		.program = "waits",
	};
	struct member member = {.fd = hostile_session()};
	struct rbk_wire_lease lease;

	raw_ask(member.fd, &request, sizeof(request), NULL, 0, &lease, sizeof(lease));
	if (lease.reply.res)
		fail_msg("%s", lease.reply.text);
	member.number = lease.number;
	return member;
}

static void say_credit(const struct member *member, uint64_t least, uint64_t back, uint32_t wait_ms)
{
	const struct rbk_wire_lease_credit request = {
		.request = {.type = RBK_WIRE_LEASE_CREDIT, .cookie = member->number},
		.lease = member->number,
		.wait_ms = wait_ms,
		.want_bytes = least,
		.least_bytes = least,
		.return_bytes = back,
	};

	assert_int_equal(raw_send(member->fd, &request, sizeof(request), NULL, 0), sizeof(request));
}

/* Wait for a reply. Return: its result; 1 if none comes within the timeout. */
static int hear(const struct member *member, unsigned int timeout_ms)
{
	struct rbk_wire_lease_given given;
	struct pollfd poll_fd = {.fd = member->fd, .events = POLLIN};

	if (poll(&poll_fd, 1, (int)timeout_ms) == 0)
		return 1;
	assert_true(raw_receive(member->fd, &given, sizeof(given), NULL, NULL, 1000) >=
		    (ssize_t)sizeof(given.reply));
	return given.reply.res;
}

static int hear_soon(const struct member *member)
{
	return hear(member, (unsigned int)(harness_slow_ns(20000000000) / 1000000));
}

static void take(const struct member *member, uint64_t bytes)
{
	say_credit(member, bytes, 0, 0);
	assert_int_equal(hear_soon(member), 0);
}

/* Wait until the broker has handled all earlier messages. */
static void sync_with(const struct member *member)
{
	broker_vram_used(observer);
	assert_int_equal(hear(member, 0), 1);
}

/* ---- Waiting in a circle ---- */

/* A rejected member stays and keeps its credit. Each time it asks again, it is rejected again. */
TEST(test_ring__rejected_members_stay, note_neighbour, expect_neighbour)
{
	enum { N = 8 };
	struct member members[N];

	for (unsigned int i = 0; i < N; i++) {
		members[i] = open_member(DEVICE_MIB / N);
		take(&members[i], 8 * MIB);
	}
	for (unsigned int i = 0; i < N; i++) {
		say_credit(&members[i], 8 * MIB, 0, LONG_MS);
		if (i + 1 < N)
			sync_with(&members[i]);
	}
	assert_int_equal(hear_soon(&members[N - 1]), -EDEADLK);
	/*
	 * The rejected member no longer waits, and could give credit back: no other request is
	 * rejected.
	 */
	harness_sleep_ms(50);
	for (unsigned int i = 0; i + 1 < N; i++)
		assert_int_equal(hear(&members[i], 0), 1);
	/* The neighbour works while they wait. */
	neighbour_finish_round(neighbour);
	/* No other request is rejected when it asks again. */
	for (unsigned int i = 0; i < 20; i++) {
		say_credit(&members[N - 1], 8 * MIB, 0, LONG_MS);
		assert_int_equal(hear_soon(&members[N - 1]), -EDEADLK);
	}
	for (unsigned int i = 0; i + 1 < N; i++)
		assert_int_equal(hear(&members[i], 0), 1);
	for (unsigned int i = 0; i < N; i++)
		close(members[i].fd);
}

/* ---- Deaths ---- */

TEST(test_waiter_dies, note_neighbour, expect_neighbour)
{
	const struct rbk_wire_lease_open opening = {
		.request = {.type = RBK_WIRE_LEASE_OPEN},
		.device = GPU,
		.wait_ms = LONG_MS,
		.min_bytes = 48 * MIB,
		.wish_bytes = 48 * MIB,
		.max_bytes = 48 * MIB,
	};
	struct member holder = open_member(DEVICE_MIB), first, second;

	take(&holder, DEVICE_MIB * MIB);
	for (unsigned int round = 0; round < 20; round++) {
		/*
		 * The first request would take nearly all, and keeps the second, smaller request
		 * waiting.
		 */
		first = (struct member){.fd = hostile_session()};
		raw_send(first.fd, &opening, sizeof(opening), NULL, 0);
		sync_with(&first);
		say_credit(&holder, 0, 8 * MIB, 0);
		assert_int_equal(hear_soon(&holder), 0);
		second = (struct member){.fd = hostile_session()};
		raw_send(second.fd, &opening, sizeof(opening), NULL, 0);
		sync_with(&second);
		close(first.fd);
		sync_with(&second);
		if (round % 2)
			close(second.fd);
		take(&holder, 8 * MIB);
		if (round % 2 == 0)
			close(second.fd);
	}
	close(holder.fd);
}

/* ---- Shrinking leases ---- */

/*
 * Memory of a lease that shrinks is granted to the waiter; a lease that grows takes none from it.
 */
TEST(test_resized_meanwhile, note_neighbour, expect_neighbour)
{
	struct member holder = open_member(DEVICE_MIB - 1), waiter = open_member(0);
	struct rbk_wire_lease_resize resize = {.request = {.type = RBK_WIRE_LEASE_RESIZE},
					       .lease = holder.number,
					       .wish_bytes = 32 * MIB};
	struct rbk_wire_lease_given given;

	say_credit(&waiter, 40 * MIB, 0, LONG_MS);
	sync_with(&waiter);
	raw_ask(holder.fd, &resize, sizeof(resize), NULL, 0, &given, sizeof(given));
	assert_int_equal(given.reply.res, 0);
	assert_int_equal(hear(&waiter, 20), 1);
	resize.wish_bytes = DEVICE_MIB * MIB;
	raw_ask(holder.fd, &resize, sizeof(resize), NULL, 0, &given, sizeof(given));
	assert_int_equal(given.granted_bytes, 32 * MIB);
	resize.wish_bytes = 16 * MIB;
	raw_ask(holder.fd, &resize, sizeof(resize), NULL, 0, &given, sizeof(given));
	assert_int_equal(hear_soon(&waiter), 0);
	/*
	 * The waiter's own lease is shrunk below its request: the request waits in vain, but only
	 * until its timeout.
	 */
	say_credit(&waiter, 20 * MIB, 0, 200);
	resize.lease = waiter.number;
	resize.wish_bytes = 41 * MIB;
	assert_int_equal(raw_send(waiter.fd, &resize, sizeof(resize), NULL, 0), sizeof(resize));
	assert_int_equal(hear_soon(&waiter), 0);
	assert_int_equal(hear_soon(&waiter), -ETIMEDOUT);
	close(holder.fd);
	close(waiter.fd);
}

/* ---- Floods ---- */

/* A client that sends requests and reads no reply; other clients are answered at once. */
TEST(test_client_never_reads_replies, note_neighbour, expect_neighbour)
{
	struct member deaf = open_member(1), other = open_member(1);
	uint64_t longest_ns = 0;
	bool is_over = false;

	for (unsigned int i = 0; i < 20000 && !is_over; i++) {
		const struct rbk_wire_lease_credit request = {
			.request = {.type = RBK_WIRE_LEASE_CREDIT},
			.lease = deaf.number,
			.want_bytes = i % 2 ? 4096 : 0,
			.return_bytes = i % 2 ? 0 : 4096,
		};
		uint64_t begin_ns;

		is_over =
			send(deaf.fd, &request, sizeof(request), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
			errno != EAGAIN;
		if (i % 100)
			continue;
		begin_ns = harness_now_ns();
		take(&other, 4096);
		say_credit(&other, 0, 4096, 0);
		assert_int_equal(hear_soon(&other), 0);
		if (harness_now_ns() - begin_ns > longest_ns)
			longest_ns = harness_now_ns() - begin_ns;
	}
	print_message("%s; others waited for %llu us at most\n",
		      is_over ? "its session was ended" : "it is there yet",
		      (unsigned long long)longest_ns / 1000);
	assert_true(longest_ns < harness_slow_ns(2000000000));
	close(deaf.fd);
	close(other.fd);
}

TEST_MAIN(begin, hostile_end, harness_limit_seconds(120))
