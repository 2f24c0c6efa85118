/* SPDX-License-Identifier: MIT */
/*
 * The largest descriptions of plans, from many sessions at once, against a live broker
 *
 * Graphs that are hard to verify, legal ones and one that is rejected for its last node, are sent
 * as fast as the broker answers. The requests of other clients that are served meanwhile are
 * counted and compared with the number of descriptions, so that the machine's speed does not
 * matter.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "support/big-plan.h"
#include "support/test.h"

enum {
	N_ATTACKERS = 16,
	CONSTANTS_BYTES = 4096 * 64,
};

/* A description in a memfd that is sealed against shrinking. */
struct sealed {
	int fd;
	uint32_t bytes;
};

/* Plans that all attackers send, and their counters. */
struct arsenal {
	struct sealed plans[BIG_PLANS];
	int constants;
	enum big_plan only; /* BIG_PLANS: all in turn */
	uint64_t n_rounds;
	_Atomic uint64_t n_answered;
	_Atomic unsigned int n_running;
};

struct attacker {
	struct arsenal *arsenal;
	pthread_t thread;
	int fd;
	unsigned int number;
	char error[RBK_WIRE_TEXT_BYTES + 64]; /* empty: no error */
};

static void arsenal_init(struct arsenal *arsenal, enum big_plan only)
{
	arsenal->only = only;
	for (unsigned int kind = 0; kind < BIG_PLANS; kind++) {
		struct sealed *plan = &arsenal->plans[kind];
		size_t bytes;
		/* A sanitizer sees the same with fewer nodes, but a plan must be too large. */
		const bool is_small = test_is_scaled_down() && big_plan_is_legal(kind);
		void *desc = big_plan((enum big_plan)kind, is_small ? 1024 : 4096, &bytes);

		plan->bytes = (uint32_t)bytes;
		plan->fd = raw_memfd((bytes + 4095) & ~(size_t)4095, false, 0);
		assert_int_equal(pwrite(plan->fd, desc, bytes, 0), bytes);
		assert_int_equal(fcntl(plan->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
		free(desc);
	}
	arsenal->constants =
		raw_memfd(CONSTANTS_BYTES, false, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	/* Few rounds suffice, because each attacker begins with another kind of plan. */
	arsenal->n_rounds = test_scaled(2);
	atomic_store(&arsenal->n_answered, 0);
	atomic_store(&arsenal->n_running, N_ATTACKERS);
}

static void arsenal_deinit(struct arsenal *arsenal)
{
	for (unsigned int kind = 0; kind < BIG_PLANS; kind++)
		close(arsenal->plans[kind].fd);
	close(arsenal->constants);
}

/* Send a request and wait for its reply. Return: the result; -ETIME without a reply. */
static int ask(int fd, const void *request, size_t bytes, const int *memfd,
	       struct rbk_wire_plan *reply)
{
	int timeout_ms = (int)(harness_slow_ns(60000000000) / 1000000);

	if (raw_send(fd, request, bytes, memfd, memfd ? 1 : 0) != (ssize_t)bytes ||
	    raw_receive(fd, reply, sizeof(*reply), NULL, NULL, timeout_ms) <= 0)
		return -ETIME;
	return reply->reply.res;
}

static void attack_once(struct attacker *attacker, enum big_plan kind)
{
	const struct sealed *plan = &attacker->arsenal->plans[kind];
	const struct rbk_wire_plan_add add = {
		.request.type = RBK_WIRE_PLAN_ADD,
		.desc_bytes = plan->bytes,
		.flags = RBK_WIRE_PLAN_FD,
	};
	struct rbk_wire_id remove = {.request.type = RBK_WIRE_PLAN_REMOVE};
	struct rbk_wire_plan reply;
	int r = ask(attacker->fd, &add, sizeof(add), &plan->fd, &reply);

	if (r != (big_plan_is_legal(kind) ? 0 : -EINVAL)) {
		snprintf(attacker->error, sizeof(attacker->error), "%s: %d%s%.*s",
			 big_plan_name(kind), r, r && r != -ETIME ? ", " : "",
			 r && r != -ETIME ? RBK_WIRE_TEXT_BYTES - 1 : 0, reply.reply.text);
		return;
	}
	atomic_fetch_add(&attacker->arsenal->n_answered, 1);
	if (r)
		return;
	remove.id = reply.id;
	r = ask(attacker->fd, &remove, sizeof(remove), NULL, &reply);
	if (r)
		snprintf(attacker->error, sizeof(attacker->error), "%s: removal: %d",
			 big_plan_name(kind), r);
}

static void *attack(void *data)
{
	struct attacker *attacker = data;

	for (uint64_t i = 0; i < attacker->arsenal->n_rounds && !attacker->error[0]; i++)
		attack_once(attacker,
			    attacker->arsenal->only < BIG_PLANS
				    ? attacker->arsenal->only
				    : (enum big_plan)((i + attacker->number) % BIG_PLANS));
	atomic_fetch_sub(&attacker->arsenal->n_running, 1);
	return NULL;
}

static void attacker_init(struct attacker *attacker, struct arsenal *arsenal, unsigned int number)
{
	uint32_t id;

	*attacker = (struct attacker){.arsenal = arsenal, .number = number};
	attacker->fd = hostile_session();
	assert_int_equal(
		raw_arena_add(attacker->fd, arsenal->constants, CONSTANTS_BYTES, &id, NULL), 0);
	assert_int_equal(id, 1);
}

/*
 * Attack with one kind of plan, or with all. Each description takes milliseconds to verify. If the
 * reactor verified it, other clients would wait for one description of each attacker at a time.
 */
static void attack_with(enum big_plan only)
{
	uint64_t n_served = 0, n_answered, n_results, begin_ns, ns, longest_ns = 0;
	struct attacker attackers[N_ATTACKERS];
	struct rbk_stats stats;
	struct arsenal arsenal;

	arsenal_init(&arsenal, only);
	for (unsigned int i = 0; i < N_ATTACKERS; i++)
		attacker_init(&attackers[i], &arsenal, i);

	n_results = neighbour_results(neighbour);
	for (unsigned int i = 0; i < N_ATTACKERS; i++)
		assert_int_equal(pthread_create(&attackers[i].thread, NULL, attack, &attackers[i]),
				 0);
	while (atomic_load(&arsenal.n_running) > 0) {
		begin_ns = harness_now_ns();
		assert_int_equal(rbk_stats(observer, &stats), 0);
		ns = harness_now_ns() - begin_ns;
		longest_ns = ns > longest_ns ? ns : longest_ns;
		n_served++;
	}
	n_results = neighbour_results(neighbour) - n_results;
	for (unsigned int i = 0; i < N_ATTACKERS; i++) {
		assert_int_equal(pthread_join(attackers[i].thread, NULL), 0);
		assert_string_equal(attackers[i].error, "");
		close(attackers[i].fd);
	}
	n_answered = atomic_load(&arsenal.n_answered);
	print_message("%llu descriptions; meanwhile %llu requests of another session were "
		      "answered, the slowest after %.1f ms, and the neighbour got %llu results\n",
		      (unsigned long long)n_answered, (unsigned long long)n_served,
		      (double)longest_ns / 1e6, (unsigned long long)n_results);
	assert_int_equal(n_answered, N_ATTACKERS * arsenal.n_rounds);
	assert_true(n_served > 2 * n_answered);
	assert_true(n_results > 0);
	arsenal_deinit(&arsenal);
}

/* Attack with all plans, most of which the broker adds. */
TEST(test_plans__all, hostile_begin, hostile_end)
{
	attack_with(BIG_PLANS);
}

/* Attack with plans that are rejected for their last node, and are therefore never charged. */
TEST(test_plans__refused, hostile_begin, hostile_end)
{
/* The threads do the same as in test_plans__all, where one of 16 sends these plans. */
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	attack_with(BIG_TOO_LARGE);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(110))
