/* SPDX-License-Identifier: MIT */
/*
 * Rings, plans and sessions that end with as much as a client can have, in slices
 *
 * Time is counted in readings of the clock, one for each task, so that a turn's share of work is a
 * number of tasks. Between two turns a neighbour's entry is served.
 */
#include <errno.h>
#include <unistd.h>

#include "dispatch/dispatch-private.h"
#include "loop/loop.h"
#include "session/server-private.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum {
	FULL = 32768,
	BUDGET = 800,       /* of a turn, in readings */
	SLICE = BUDGET / 8, /* part of a turn for ends */
	OVER = 8,           /* readings of a turn beside those for tasks */
	N_PLANS = 200,
	BATCH = 8, /* plans that one piece of work gives to the setup thread */
};

static uint64_t n_readings;

static uint64_t read_steps(void)
{
	return ++n_readings;
}

struct kit {
	struct bench bench;
	struct tenant other;
	struct rig_ring full; /* of the bench's session */
	struct rig_ring neighbour;
	uint64_t n_nops; /* that the neighbour completed */
	bool waits_for_nop;
};

static void kit_begin(struct kit *kit, uint32_t n_devices)
{
	bench_begin(&kit->bench, n_devices, N_ENTRIES);
	kit->other = (struct tenant){.weight = 100, .number = 77, .n_refs = 1};
	rig_ring_new_for(&kit->bench.rig, &kit->other, N_ENTRIES, &kit->neighbour);
	rig_ring_new(&kit->bench.rig, FULL, &kit->full);
	rig_work(&kit->bench.rig);
	kit->waits_for_nop = false;
}

/* Count time in readings from now on. */
static void count_readings(struct kit *kit)
{
	struct turn *turn = kit->bench.rig.dispatch->turn;

	turn->read_ticks = read_steps;
	turn->budget_ticks = BUDGET;
	turn_reset(turn);
}

static void kit_end(struct kit *kit)
{
	rig_ring_deinit(&kit->full);
	rig_ring_deinit(&kit->neighbour);
	bench_end(&kit->bench);
}

#define KIT(name, n_devices) SCOPED(kit, name, kit_begin, kit_end, n_devices)

static uint32_t n_in_flight(const struct kit *kit)
{
	return kit->bench.rig.session->rings[kit->full.ring->id] ? kit->full.ring->n_in_flight : 0;
}

/* Return the number of tasks that are still to be told of their end. */
static uint32_t n_to_end(const struct kit *kit)
{
	uint32_t n = kit->bench.rig.residency->n_waiters;

	if (n_in_flight(kit) > 0)
		n += rig_dispatch_ring(&kit->full)->n_to_close;
	return n;
}

/* Do a turn in which the neighbour has an entry. */
static void turn(struct kit *kit)
{
	struct dispatch_ring *hostile = NULL;
	struct rbk_cqe cqe;

	if (!kit->waits_for_nop)
		rig_put(&kit->neighbour, &(const struct rbk_sqe){.opcode = RBK_OP_NOP});
	dispatch_work(kit->bench.rig.dispatch, &hostile);
	assert_null(hostile);
	kit->waits_for_nop = !rig_take(&kit->neighbour, &cqe);
	kit->n_nops += !kit->waits_for_nop;
	assert_true(loop_turn(kit->bench.rig.loop, false) >= 0);
}

static void fill(struct kit *kit, uint8_t opcode)
{
	struct rbk_sqe sqe = run_entry(&kit->bench, kit->bench.queued, 0);

	sqe.opcode = opcode;
	if (opcode == RBK_OP_RUN)
		sqe.strategy = RBK_STRATEGY_ONLY_CPU;
	else
		sqe = (struct rbk_sqe){.opcode = opcode, .plan_id = sqe.plan_id};
	for (uint64_t i = 0; i < FULL; i++) {
		sqe.user_data = i;
		rig_put(&kit->full, &sqe);
	}
	for (unsigned int i = 0; i < FULL && kit->full.ring->n_in_flight < FULL; i++)
		turn(kit);
	assert_int_equal(kit->full.ring->n_in_flight, FULL);
	count_readings(kit);
}

/* Do turns until no task is in flight. Return: their number. */
static unsigned int drain(struct kit *kit)
{
	unsigned int n_turns = 0;
	uint32_t n_before, n, n_to_end_before;

	kit->n_nops = 0;
	for (n = n_in_flight(kit); n > 0; n_turns++) {
		n_before = n;
		n_to_end_before = n_to_end(kit);
		turn(kit);
		n = n_in_flight(kit);
		assert_in_range(n_before - n, 0, SLICE + OVER);
		/* A task that waits for memory counts twice if its ring is closing. */
		if (n > 0)
			assert_in_range(n_to_end_before - n_to_end(kit), 0, 2 * SLICE + OVER);
		assert_true(n_turns < FULL);
	}
	return n_turns;
}

/* Remove the full ring, and expect the answer once all tasks are gone. */
static void remove_full(struct kit *kit)
{
	struct session *session = kit->bench.rig.session;
	unsigned int n_turns;

	assert_int_equal(session_ring_remove(session, 5, kit->full.ring->id), 0);
	assert_int_equal(n_in_flight(kit), FULL);
	assert_int_equal(rig_dispatch_ring(&kit->full)->n_to_close, FULL);
	n_turns = drain(kit);
	assert_true(kit->n_nops > n_turns / 2);
	assert_true(n_turns > FULL / (SLICE + OVER));
	assert_int_equal(rig_answer(&kit->bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(kit->bench.rig.server->stats.n_in_flight, 0);
}

/* A ring of queued tasks, none of which the executor takes */
TEST(test_ring__queued_tasks)
{
	KIT(kit, 1);
	kit.bench.cpu->capacity = 0;
	fill(&kit, RBK_OP_RUN);
	remove_full(&kit);
	assert_int_equal(kit.bench.rig.dispatch->n_queued, 0);
}

/* A ring of requests that wait for memory */
TEST(test_ring__waiting_tasks)
{
	KIT(kit, 2);
	fill(&kit, RBK_OP_PREFETCH);
	remove_full(&kit);
}

/* A plan for whose memory all tasks of a ring wait */
TEST(test_plan__waiting_tasks)
{
	struct session *session;

	KIT(kit, 2);
	session = kit.bench.rig.session;
	fill(&kit, RBK_OP_PREFETCH);
	assert_int_equal(session_plan_remove(session, 5, kit.bench.queued->id), 0);
	assert_true(n_in_flight(&kit) > FULL - 2 * SLICE);
	assert_true(drain(&kit) > FULL / (SLICE + OVER) - 1);
	assert_int_equal(rig_answer(&kit.bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
	for (uint64_t i = 0; i < FULL; i++) {
		struct rbk_cqe cqe;

		assert_true(rig_take(&kit.full, &cqe));
		assert_fields(cqe, (res, -ECANCELED));
	}
}

/* The end of a plan does not wait for that of a full ring, of which clients can close many. */
TEST(test_plan__beside_full_ring)
{
	struct session_plan *plan;
	struct session *session;
	struct rbk_cqe cqe;
	struct rig *rig;

	KIT(kit, 2);
	rig = &kit.bench.rig;
	session = rig->session;
	plan = rig_relu(rig, true);
	rig_put(&kit.bench.ring, &(const struct rbk_sqe){.opcode = RBK_OP_PREFETCH,
							 .plan_id = plan->id,
							 .user_data = 7});
	fill(&kit, RBK_OP_PREFETCH);
	assert_int_equal(session_ring_remove(session, 5, kit.full.ring->id), 0);
	turn(&kit);
	assert_false(rig_take(&kit.bench.ring, &cqe));
	assert_int_equal(session_plan_remove(session, 6, plan->id), 0);
	turn(&kit);
	turn(&kit);
	assert_true(rig_take(&kit.bench.ring, &cqe));
	assert_fields(cqe, (user_data, 7), (res, -ECANCELED));
	assert_true(n_in_flight(&kit) > FULL / 2);
	drain(&kit);
}

/* A session ends with the full ring and many plans. No step takes more than its part. */
TEST(test_session__full)
{
	struct session *session;
	struct server *server;
	uint32_t n_jobs;
	uint64_t n_plans;
	struct rig *rig;

	KIT(kit, 1);
	rig = &kit.bench.rig;
	session = rig->session;
	server = rig->server;
	for (unsigned int i = 0; i < N_PLANS; i++)
		rig_relu(rig, true);
	kit.bench.cpu->capacity = 0;
	fill(&kit, RBK_OP_RUN);
	n_plans = server->n_plans;
	assert_true(n_plans > N_PLANS);

	session_end(session, false, "for the test");
	assert_int_equal(n_in_flight(&kit), FULL);
	assert_true(drain(&kit) > FULL / (SLICE + OVER));
	/* Plans are released after the last task, and keep their slots until they are freed. */
	assert_int_equal(server->n_plans, n_plans);
	for (unsigned int i = 0; i < 100000 && server->n_sessions > 0; i++) {
		n_jobs = session->n_jobs;
		server->work.turn->budget_ticks = 1;
		server_settle(server);
		server->work.turn->budget_ticks = BUDGET;
		if (server->n_sessions > 0)
			assert_true(session->n_jobs <= n_jobs + BATCH);
		/* The first plan goes last. */
		if (n_jobs == 0 && server->n_sessions > 0 && server->n_plans == n_plans)
			assert_int_not_equal(session->plan_slots[0]->state, SLOT_RELEASING);
		assert_true(loop_turn(rig->loop, false) >= 0);
		/* Let the setup thread run. */
		usleep(100);
	}
	assert_fields(*server, (n_sessions, 0), (n_plans, 0), (n_rings, 0));
}
