/* SPDX-License-Identifier: MIT */
/*
 * Descriptions on their way to the setup thread: work on the reactor, charges held meanwhile, and
 * cleanup
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop.h"
#include "session/description.h"
#include "session/server-private.h"
#include "support/big-plan.h"
#include "support/session-rig.h"
#include "support/test.h"
#include "util/clock.h"

enum { ARENA_BYTES = 1 << 20 };

/* The tenant's charges. */
struct held {
	uint64_t host_bytes, plans, fds;
};

static struct held held(const struct rig *rig)
{
	const struct account *account = rig->session->tenant->account;

	return (struct held){
		.host_bytes = account_used(account, ACCOUNT_HOST_BYTES),
		.plans = account_used(account, ACCOUNT_PLANS),
		.fds = account_used(account, ACCOUNT_FDS),
	};
}

static void assert_held(const struct rig *rig, struct held expected)
{
	const struct held now = held(rig);

	assert_fields(now, (host_bytes, expected.host_bytes), (plans, expected.plans),
		      (fds, expected.fds));
}

static int memfd_of(const void *desc, size_t bytes)
{
	int fd = memfd_create("description", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, desc, bytes, 0), bytes);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static void add(struct rig *rig, const void *desc, size_t bytes)
{
	assert_int_equal(session_plan_add(rig->session, ++rig->next_cookie, desc, bytes), 0);
}

static void add_big(struct rig *rig, enum big_plan kind, unsigned int n)
{
	size_t bytes;
	void *desc = big_plan(kind, n, &bytes);
	int fd = memfd_of(desc, bytes);

	assert_int_equal(session_plan_add_fd(rig->session, ++rig->next_cookie, &fd, bytes), 0);
	assert_int_equal(fd, -1);
	free(desc);
}

/* y = x * a constant in arena @id. */
static void *with_constant(uint16_t id, size_t *ret_bytes)
{
	struct describe *d = describe_new("product", 1);

	describe_input(d, "x", DESCRIBE_DIMS(16));
	describe_constant(d, "c", RBK_REF(id, 64), DESCRIBE_DIMS(16));
	describe_constant(d, "unused", RBK_REF(id, 128), DESCRIBE_DIMS(16));
	describe_output(d, "y", DESCRIBE_DIMS(16));
	describe_node(d, "Mul", "it", "x,c", "y");
	return describe_finish(d, ret_bytes);
}

/* The largest descriptions cost the reactor a small part of the time to verify them. */
TEST(test_description__short_on_the_reactor)
{
	for (unsigned int kind = 0; kind < BIG_PLANS; kind++) {
		uint64_t reactor_ns = UINT64_MAX, verify_ns = UINT64_MAX, begin_ns;
		struct rbk_wire_plan reply;
		struct rig rig;
		size_t bytes;
		void *desc;

		if (kind == BIG_CONSTANTS)
			continue;
		desc = big_plan((enum big_plan)kind, 4096, &bytes);
		rig_init(&rig, 1);
		/* Prepare one plan first, so that one-time costs are not measured. */
		rig_relu(&rig, false);
		for (unsigned int i = 0; i < 20 && reactor_ns >= verify_ns / 2; i++) {
			const struct plan_arena_lookup nothing = {.find = NULL};
			char message[PLAN_MESSAGE_BYTES];
			struct plan *plan = NULL;
			int fd = memfd_of(desc, bytes), r;
			uint64_t ns;

			begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
			plan_new(desc, bytes, &nothing, message, &plan);
			ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
			verify_ns = ns < verify_ns ? ns : verify_ns;
			plan_free(plan);

			begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
			assert_int_equal(
				session_plan_add_fd(rig.session, ++rig.next_cookie, &fd, bytes), 0);
			r = rig_answer(&rig, RBK_WIRE_PLAN_ADD, &reply, sizeof(reply));
			ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
			reactor_ns = ns < reactor_ns ? ns : reactor_ns;
			assert_int_equal(r, big_plan_is_legal((enum big_plan)kind) ? 0 : -EINVAL);
			if (r)
				continue;
			begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
			assert_int_equal(
				session_plan_remove(rig.session, ++rig.next_cookie, reply.id), 0);
			assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
		}
		print_message("%-32s %7.1f us on the reactor, %7.1f us to verify\n",
			      big_plan_name((enum big_plan)kind), (double)reactor_ns / 1e3,
			      (double)verify_ns / 1e3);
		assert_true(reactor_ns < verify_ns / 2);
		rig_deinit(&rig);
		free(desc);
	}
}

/* Wait until memfds are closed. Another thread closes them, and they stay charged until then. */
static void wait_closed(struct rig *rig)
{
	while (server_n_discards(rig->server) > 0)
		assert_true(loop_turn(rig->loop, true) >= 0);
}

/* A rejected plan leaves nothing behind, and each answer carries its request's cookie. */
TEST(test_description__refused)
{
	struct rbk_wire_plan reply;
	struct session_plan *plan;
	struct held before;
	size_t bytes;
	void *desc;

	RIG(rig, 1);
	before = held(&rig);
	add(&rig, "nonsense", 8);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	assert_held(&rig, before);
	add(&rig, "", 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	assert_held(&rig, before);
	add_big(&rig, BIG_ILLEGAL, 4096);
	assert_int_equal(held(&rig).plans, before.plans + 1);
	assert_int_equal(held(&rig).fds, before.fds + 1);
	assert_true(held(&rig).host_bytes > before.host_bytes + 2 * 4096 * 88);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	wait_closed(&rig);
	assert_held(&rig, before);
	desc = with_constant(7, &bytes);
	add(&rig, desc, bytes);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	assert_held(&rig, before);
	assert_int_equal(rig.server->n_plans, 0);
	free(desc);

	/* Rejected plans do not use up ids. */
	plan = rig_relu(&rig, false);
	assert_int_equal(plan->id, 1u << 16);
	add_big(&rig, BIG_CHAIN, 4096);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, &reply, sizeof(reply)), 0);
	assert_fields(reply, (reply.cookie, rig.next_cookie), (id, 1u << 16 | 1));
}

/*
 * An arena that a description names stays from the request until the plan is rejected or removed.
 */
TEST(test_description__arenas_stay)
{
	struct session_arena *constants, *writable;
	struct rbk_wire_reply head;
	struct rbk_wire_plan reply;
	size_t bytes;
	void *desc;

	RIG(rig, 1);
	constants = rig_arena_new(&rig, ARENA_BYTES, true);
	writable = rig_arena_new(&rig, ARENA_BYTES, false);
	desc = with_constant(constants->id, &bytes);
	add(&rig, desc, bytes);
	/* A plan counts once, however many of its constants are in the arena. */
	assert_int_equal(constants->n_plans, 1);
	assert_int_equal(session_arena_remove(rig.session, ++rig.next_cookie, constants->id), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_ARENA_REMOVE, NULL, 0), -EBUSY);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, &reply, sizeof(reply)), 0);
	assert_int_equal(constants->n_plans, 1);
	assert_int_equal(session_plan_remove(rig.session, ++rig.next_cookie, reply.id), 0);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
	assert_int_equal(constants->n_plans, 0);

	/* A constant beyond the arena's end: the plan is rejected, and the arena is free again. */
	describe_view(desc).tensors[1].constant_ref = RBK_REF(constants->id, ARENA_BYTES);
	add(&rig, desc, bytes);
	assert_int_equal(constants->n_plans, 1);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	assert_int_equal(constants->n_plans, 0);
	/* An arena that is not sealed can hold no constants, and can be removed at any time. */
	describe_view(desc).tensors[1].constant_ref = RBK_REF(writable->id, 0);
	add(&rig, desc, bytes);
	assert_int_equal(writable->n_plans, 0);
	assert_int_equal(session_arena_remove(rig.session, ++rig.next_cookie, writable->id), 0);
	/* The setup thread unmaps first, unless the thread has begun to verify. */
	for (unsigned int i = 0; i < 2; i++) {
		/* The thread may have no processor for a while. */
		for (unsigned int k = 0; !rig_has_answer(&rig); k++)
			assert_true(k < 500);
		assert_true(recv(rig.fd, &head, sizeof(head), MSG_PEEK) >= (ssize_t)sizeof(head));
		assert_int_equal(rig_answer(&rig, head.type, NULL, 0),
				 head.type == RBK_WIRE_PLAN_ADD ? -EINVAL : 0);
	}
	free(desc);
}

/* Thousands of constants in a memfd: the arenas are looked up once it has been read. */
TEST(test_description__many_constants)
{
	struct session_arena *constants;
	struct rbk_wire_plan reply;

	RIG(rig, 1);
	constants = rig_arena_new(&rig, ARENA_BYTES, true);
	assert_int_equal(constants->id, 1);
	add_big(&rig, BIG_CONSTANTS, 4096);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, &reply, sizeof(reply)), 0);
	assert_int_equal(reply.constant_bytes, 4094 * 64);
	assert_int_equal(constants->n_plans, 1);
}

/* The session ends in each stage of the request. */
TEST(test_description__session_ends)
{
	for (unsigned int n_turns = 0; n_turns < 6; n_turns++) {
		struct session_arena *constants;
		struct rig rig;
		size_t bytes;
		void *desc;

		rig_init(&rig, 1);
		constants = rig_arena_new(&rig, ARENA_BYTES, true);
		desc = with_constant(constants->id, &bytes);
		add_big(&rig, BIG_CHAIN, 4096);
		add_big(&rig, BIG_ILLEGAL, 4096);
		add(&rig, desc, bytes);
		add(&rig, "nonsense", 8);
		for (unsigned int i = 0; i < n_turns; i++) {
			usleep(1000);
			assert_true(loop_turn(rig.loop, false) >= 0);
		}
		session_end(rig.session, false, "the test wants it");
		free(desc);
		rig_deinit(&rig);
	}
}

/* Return: the slices of verification that the setup thread has completed. */
static uint64_t verify_slices(struct rig *rig)
{
	struct offload_report report;

	offload_describe(rig->offload, &report);
	return report.causes[OFFLOAD_PLAN_VERIFY].n_slices;
}

/* A large description is verified in many slices; its session may end after any of them. */
TEST(test_description__slices)
{
	struct held before;
	uint64_t n;
	struct rig rig;

	rig_init(&rig, 1);
	before = held(&rig);
	n = verify_slices(&rig);
	add_big(&rig, BIG_ILLEGAL, 4096);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	n = verify_slices(&rig) - n;
	print_message("%llu slices\n", (unsigned long long)n);
	assert_true(n >= 5);
	wait_closed(&rig);
	assert_held(&rig, before);
	rig_deinit(&rig);

	for (uint64_t end = 1; end < n; end++) {
		rig_init(&rig, 1);
		add_big(&rig, BIG_ILLEGAL, 4096);
		while (verify_slices(&rig) < end)
			assert_true(loop_turn(rig.loop, false) >= 0);
		session_end(rig.session, false, "the test wants it");
		rig_deinit(&rig);
	}
}

/* An unreadable descriptor is a protocol violation. */
TEST(test_description__unreadable)
{
	char path[64];
	int fd, write_only;

	RIG(rig, 1);
	fd = memfd_of("nonsense", 8);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	write_only = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(write_only >= 0);
	close(fd);
	assert_int_equal(session_plan_add_fd(rig.session, ++rig.next_cookie, &write_only, 8), 0);
	while (!rig.session->is_ending)
		assert_true(loop_turn(rig.loop, true) >= 0);
	assert_int_equal(server_stats(rig.server)->sessions_ended_hostile, 1);
}

/*
 * A request beyond the quota is rejected before anything is copied, or as soon as its size is
 * known.
 */
TEST(test_description__quota)
{
	struct account_limits limits;
	struct account *account;
	struct held before;
	size_t bytes;
	void *desc;
	int fd;

	RIG(rig, 1);
	account = rig.session->tenant->account;
	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		limits.max[i] = account_limit(account, (enum account_slot)i);
	before = held(&rig);

	limits.max[ACCOUNT_HOST_BYTES] = before.host_bytes + (1 << 20);
	account_set_limits(account, &limits);
	desc = big_plan(BIG_CHAIN, 4096, &bytes);
	fd = memfd_of(desc, bytes);
	assert_int_equal(session_plan_add_fd(rig.session, ++rig.next_cookie, &fd, bytes), 0);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EDQUOT);
	assert_held(&rig, before);
	free(desc);

	/* The size of scratch is known after verification. */
	limits.max[ACCOUNT_HOST_BYTES] = before.host_bytes + (8 << 20);
	account_set_limits(account, &limits);
	{
		struct describe *d = describe_new("scratch", 1);

		describe_input(d, "x", DESCRIBE_DIMS(1 << 22));
		describe_tensor(d, "s", RBK_TENSOR_SCRATCH, RBK_DTYPE_F32, 0,
				DESCRIBE_DIMS(1 << 22));
		describe_output(d, "y", DESCRIBE_DIMS(1 << 22));
		describe_node(d, "Neg", "", "x", "s");
		describe_node(d, "Neg", "", "s", "y");
		desc = describe_finish(d, &bytes);
	}
	add(&rig, desc, bytes);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EDQUOT);
	assert_held(&rig, before);

	/* The limit may also be lowered meanwhile. */
	add(&rig, desc, bytes);
	limits.max[ACCOUNT_HOST_BYTES] = before.host_bytes;
	account_set_limits(account, &limits);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EDQUOT);
	assert_held(&rig, before);
	free(desc);
}

static void set_host_max(struct rig *rig, uint64_t bytes)
{
	struct account *account = rig->session->tenant->account;
	struct account_limits limits;

	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		limits.max[i] = account_limit(account, (enum account_slot)i);
	limits.max[ACCOUNT_HOST_BYTES] = bytes;
	account_set_limits(account, &limits);
}

/* Many requests are charged as one that is verified, plus a little for each waiting one. */
TEST(test_description__one_at_a_time)
{
	enum { N = 40, WAITING_BYTES = 8192 };
	struct held before;
	uint64_t one_bytes;

	RIG(rig, 1);
	before = held(&rig);
	add_big(&rig, BIG_ILLEGAL, 4096);
	one_bytes = held(&rig).host_bytes - before.host_bytes;
	assert_true(one_bytes > 10 * WAITING_BYTES);
	set_host_max(&rig, before.host_bytes + one_bytes + N * WAITING_BYTES);
	for (unsigned int i = 1; i < N; i++)
		add_big(&rig, BIG_ILLEGAL, 4096);
	assert_int_equal(held(&rig).plans, before.plans + N);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	wait_closed(&rig);
	assert_held(&rig, before);
}

/* A plan for which there is no room when its turn comes is rejected, and so is the next one. */
TEST(test_description__refused_at_its_turn)
{
	struct held before;

	RIG(rig, 1);
	before = held(&rig);
	add_big(&rig, BIG_ILLEGAL, 4096);
	add_big(&rig, BIG_ILLEGAL, 4096);
	add(&rig, "nonsense", 8);
	set_host_max(&rig, before.host_bytes);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EINVAL);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EDQUOT);
	assert_int_equal(rig_answer(&rig, RBK_WIRE_PLAN_ADD, NULL, 0), -EDQUOT);
	wait_closed(&rig);
	assert_held(&rig, before);
	/* With room again, a plan is accepted, and no turn was left over. */
	set_host_max(&rig, UINT64_MAX);
	rig_relu(&rig, false);
}
