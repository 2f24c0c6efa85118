/* SPDX-License-Identifier: MIT */
/*
 * Polling in a turn: shares of tenants by weight, whatever their rings; budgets; the start of the
 * next turn.
 */
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dispatch/dispatch-private.h"
#include "loop/loop.h"
#include "session/server-private.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum { N_CROWD = 60, CROWD_ENTRIES = 256, NEIGHBOUR_ENTRIES = 8192 };

/*
 * A tenant with many rings, beside a neighbour with one. An entry takes @inline_ns by the fake's
 * word; nothing else takes time.
 */
struct crowd {
	struct bench bench;
	struct tenant tenant;
	struct rig_ring rings[N_CROWD]; /* of the crowd's tenant */
};

static void set_budget(struct dispatch *dispatch, uint64_t budget_ns)
{
	turn_set_budget(dispatch->turn, budget_ns);
	dispatch->batch_ticks = dispatch->turn->budget_ticks / 8;
}

static void fill(struct bench *bench, struct rig_ring *ring)
{
	struct rbk_sqe sqe = run_entry(bench, bench->tiny, 0);

	while (ring->sq_tail - ring->ring->sq_head < ring->n_entries)
		rig_put(ring, &sqe);
}

static void crowd_make(struct crowd *crowd, uint32_t weight, uint32_t neighbour_weight,
		       uint64_t inline_ns)
{
	struct dispatch *dispatch;

	memset(crowd, 0, sizeof(*crowd));
	bench_begin(&crowd->bench, 1, NEIGHBOUR_ENTRIES);
	crowd->bench.rig.session->tenant->weight = neighbour_weight;
	crowd->tenant = (struct tenant){
		.weight = weight, .number = 77, .priority_max = RBK_PRIORITY_URGENT};
	for (unsigned int i = 0; i < N_CROWD; i++)
		rig_ring_new_for(&crowd->bench.rig, &crowd->tenant, CROWD_ENTRIES,
				 &crowd->rings[i]);
	dispatch = crowd->bench.rig.dispatch;
	dispatch_limits_changed(dispatch);
	dispatch->entry_ticks = 0;
	dispatch->poll_ticks = 0;
	crowd->bench.cpu->inline_ns = inline_ns;
	set_budget(dispatch, 100000);
}

/* Like crowd_make(), with full rings. */
static void crowd_begin(struct crowd *crowd, uint32_t weight, uint32_t neighbour_weight,
			uint64_t inline_ns)
{
	crowd_make(crowd, weight, neighbour_weight, inline_ns);
	for (unsigned int i = 0; i < N_CROWD; i++)
		fill(&crowd->bench, &crowd->rings[i]);
	fill(&crowd->bench, &crowd->bench.ring);
}

static void crowd_end(struct crowd *crowd)
{
	for (unsigned int i = 0; i < N_CROWD; i++)
		rig_ring_deinit(&crowd->rings[i]);
	bench_end(&crowd->bench);
}

static unsigned int turn(struct crowd *crowd)
{
	struct dispatch_ring *hostile = NULL;
	unsigned int n = dispatch_work(crowd->bench.rig.dispatch, &hostile);

	assert_null(hostile);
	turn_end(crowd->bench.rig.dispatch->turn);
	return n;
}

static uint32_t done_by_crowd(const struct crowd *crowd)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < N_CROWD; i++)
		n += crowd->rings[i].ring->sq_head;
	return n;
}

static uint32_t done_by_neighbour(const struct crowd *crowd)
{
	return crowd->bench.ring.ring->sq_head;
}

/* Sixty rings of one tenant and one of another: each tenant gets half. */
TEST(test_share__tenants_not_rings)
{
	static struct crowd crowd;

	crowd_begin(&crowd, 100, 100, 500);
	for (unsigned int i = 0; i < 100; i++)
		turn(&crowd);
	assert_in_range(done_by_neighbour(&crowd), 1900, 2200);
	assert_in_range(done_by_crowd(&crowd), 1900, 2200);
	/* The crowd's rings have equal shares. */
	for (unsigned int i = 0; i < N_CROWD; i++)
		assert_in_range(crowd.rings[i].ring->sq_head, 1, 64);
	crowd_end(&crowd);
}

TEST(test_share__follows_weight)
{
	static struct crowd crowd;

	crowd_begin(&crowd, 100, 300, 500);
	for (unsigned int i = 0; i < 100; i++)
		turn(&crowd);
	assert_in_range(done_by_neighbour(&crowd), 2900, 3200);
	assert_in_range(done_by_crowd(&crowd), 900, 1100);
	/* A new weight takes effect at once. */
	crowd.bench.rig.session->tenant->weight = 100;
	dispatch_limits_changed(crowd.bench.rig.dispatch);
	for (unsigned int i = 0; i < 100; i++)
		turn(&crowd);
	assert_in_range(done_by_neighbour(&crowd), 4900, 5300);
	assert_in_range(done_by_crowd(&crowd), 2900, 3200);
	crowd_end(&crowd);
}

/* A tenant with long entries gets fewer of them, and waits until other tenants had their share. */
TEST(test_share__by_time)
{
	static struct crowd crowd;
	uint32_t n_neighbour;

	crowd_begin(&crowd, 100, 100, 500);
	turn(&crowd);
	/* As if the crowd had just taken 200 us. */
	rig_dispatch_ring(&crowd.rings[0])->flow->credit_ticks -=
		(int64_t)clock_ns_to_ticks(200000);
	n_neighbour = done_by_neighbour(&crowd);
	for (uint32_t n_crowd = done_by_crowd(&crowd); done_by_crowd(&crowd) == n_crowd;)
		turn(&crowd);
	assert_in_range(done_by_neighbour(&crowd) - n_neighbour, 350, 450);
	crowd_end(&crowd);
}

/* An idle tenant delays no other tenant, not even one in debt. */
TEST(test_share__idle_tenant_delays_none)
{
	static struct crowd crowd;
	struct flow *flow;

	crowd_begin(&crowd, 1, 10000, 500);
	while (done_by_neighbour(&crowd) < NEIGHBOUR_ENTRIES)
		assert_true(turn(&crowd) > 0);
	flow = rig_dispatch_ring(&crowd.rings[0])->flow;
	flow->credit_ticks = -(int64_t)clock_ns_to_ticks(1000000000);
	for (unsigned int i = 0; i < 50; i++)
		assert_true(turn(&crowd) > 0);
	crowd_end(&crowd);
}

/* A tenant that rang alone owes no time to tenants that come afterwards. */
TEST(test_share__lone_bells_owe_nothing)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	uint64_t begin_ticks;

	crowd_begin(&crowd, 100, 100, 500);
	dispatch = crowd.bench.rig.dispatch;
	for (unsigned int i = 0; i < N_CROWD; i++)
		ring_deactivate(dispatch, rig_dispatch_ring(&crowd.rings[i]));
	begin_ticks = clock_ticks();
	while (clock_elapsed_ns(begin_ticks, clock_ticks()) < 20000000) {
		dispatch_ring_bell(dispatch, crowd.bench.ring.ring);
		dispatch_answer_bells(dispatch);
	}
	for (unsigned int i = 0; i < N_CROWD; i++)
		ring_activate(dispatch, rig_dispatch_ring(&crowd.rings[i]), clock_ticks());
	for (unsigned int i = 0; i < 100; i++)
		turn(&crowd);
	assert_in_range(done_by_neighbour(&crowd), 1900, 2200);
	assert_in_range(done_by_crowd(&crowd), 1900, 2200);
	crowd_end(&crowd);
}

/* A bell during which the reactor was preempted is charged at most like a batch of entries. */
TEST(test_share__preempted_bells)
{
	enum { N = 100, MOST = 2 };
	static struct crowd crowd;
	struct dispatch *dispatch;
	struct flow *flow;
	int64_t credit_ticks;

	crowd_begin(&crowd, 100, 100, 500);
	dispatch = crowd.bench.rig.dispatch;
	flow = rig_dispatch_ring(&crowd.bench.ring)->flow;
	flow->owed_ticks = 0;
	flow->credit_ticks = credit_ticks = N * MOST;
	dispatch->max_batch_ticks = MOST;
	dispatch->charge_ticks = UINT64_MAX;
	for (unsigned int i = 0; i < N; i++) {
		dispatch_ring_bell(dispatch, crowd.bench.ring.ring);
		dispatch_answer_bells(dispatch);
	}
	assert_in_range(flow->owed_ticks, 1, N * MOST);
	assert_in_range(flow->credit_ticks, 0, credit_ticks - 1);
	crowd_end(&crowd);
}

TEST(test_budget__ends_the_turn)
{
	static struct crowd crowd;
	uint32_t n;

	/* Entries of 10 us: at most ten or so, however many rings wait. */
	crowd_begin(&crowd, 100, 100, 10000);
	for (unsigned int i = 0; i < 20; i++) {
		n = done_by_crowd(&crowd) + done_by_neighbour(&crowd);
		turn(&crowd);
		n = done_by_crowd(&crowd) + done_by_neighbour(&crowd) - n;
		assert_in_range(n, 1, 12);
	}
	crowd_end(&crowd);
}

/*
 * Even with the smallest budget, each turn makes progress, and each ring is polled before any is
 * polled twice.
 */
TEST(test_budget__smallest)
{
	static struct crowd crowd;
	uint32_t most = 0, least = UINT32_MAX;

	crowd_begin(&crowd, 100, 100, 500);
	set_budget(crowd.bench.rig.dispatch, 0);
	for (unsigned int i = 0; i < 4 * N_CROWD; i++)
		assert_int_equal(turn(&crowd), 1);
	assert_in_range(done_by_neighbour(&crowd), 2 * N_CROWD - 2, 2 * N_CROWD + 2);
	for (unsigned int i = 0; i < N_CROWD; i++) {
		uint32_t n = crowd.rings[i].ring->sq_head;

		most = n > most ? n : most;
		least = n < least ? n : least;
	}
	assert_in_range(most - least, 0, 1);
	crowd_end(&crowd);
}

/* With other work in the turn, entries still get at least half of the budget. */
TEST(test_budget__other_work_counts)
{
	static struct crowd crowd;
	struct turn *counted;
	uint32_t n;

	crowd_begin(&crowd, 100, 100, 10000);
	counted = crowd.bench.rig.dispatch->turn;
	n = done_by_crowd(&crowd) + done_by_neighbour(&crowd);
	counted->other_ticks = 100 * counted->budget_ticks;
	turn(&crowd);
	assert_in_range(done_by_crowd(&crowd) + done_by_neighbour(&crowd) - n, 1, 7);
	assert_int_equal(counted->other_ticks, 0);
	crowd_end(&crowd);
}

/* A batch is cut in the middle: no entry is lost or reordered. */
TEST(test_batch__is_cut)
{
	struct rbk_sqe sqe;
	struct dispatch_ring *hostile = NULL;

	BENCH(bench, 1, N_ENTRIES);
	bench.cpu->inline_ns = 5000;
	set_budget(bench.rig.dispatch, 100000);
	for (uint64_t i = 0; i < N_ENTRIES; i++) {
		sqe = run_entry(&bench, bench.tiny, i);
		rig_put(&bench.ring, &sqe);
	}
	/* 12.5 us are an eighth of the budget. */
	assert_int_equal(dispatch_work(bench.rig.dispatch, &hostile), 3);
	assert_int_equal(rig_dispatch_ring(&bench.ring)->n_left, N_ENTRIES - 3);
	rig_work(&bench.rig);
	for (uint64_t i = 0; i < N_ENTRIES; i++)
		assert_true(expect_cqe(&bench, i, 0).queue_ns + 100 >= i * 5000);
	assert_int_equal(rig_dispatch_ring(&bench.ring)->n_left, 0);
}

/* An entry that takes longer than a turn may is counted, with its tenant. */
TEST(test_overrun__of_entries)
{
	static struct crowd crowd;
	const struct turn_report *report;

	crowd_begin(&crowd, 100, 1, 2000000);
	report = &crowd.bench.rig.dispatch->turn->report;
	turn_reset(crowd.bench.rig.dispatch->turn);
	while (done_by_crowd(&crowd) == 0)
		turn(&crowd);
	assert_true(report->n_overruns[RBK_TURN_ENTRIES] > 0);
	assert_int_equal(report->longest.cause, RBK_TURN_ENTRIES);
	assert_true(clock_ticks_to_ns(report->longest_ticks) > 1999000);
	assert_in_range(report->longest.tenant, 1, 77);
	crowd_end(&crowd);
}

/* ---- A backlog without a ring that is polled ---- */

enum { N_BACKLOG = 1000 };

struct backlog {
	struct bench bench;
	struct loop_timer *timer;
	uint64_t n_left; /* tasks left when the timer fired */
	atomic_bool has_fired;
};

static void on_timer(void *data)
{
	struct backlog *backlog = data;

	if (!atomic_load(&backlog->has_fired))
		backlog->n_left = dispatch_n_in_flight(backlog->bench.rig.dispatch);
	atomic_store(&backlog->has_fired, true);
	/* The device's tasks, now and later, end as well. */
	fake_finish_all(backlog->bench.cpu, -ECANCELED);
	loop_timer_arm(backlog->timer, 1);
}

static void wait_for_timer(void *data)
{
	struct backlog *backlog = data;

	while (!atomic_load(&backlog->has_fired))
		sched_yield();
}

/* The kernel is polled between any two turns: events do not wait for a backlog. */
TEST(test_backlog__kernel_polled_between_turns)
{
	static struct backlog backlog;
	struct bench *bench = &backlog.bench;
	struct dispatch *dispatch;

	bench_begin(bench, 1, 1024);
	dispatch = bench->rig.dispatch;
	bench->cpu->capacity = 1;
	for (uint64_t i = 0; i < N_BACKLOG; i++)
		put_run(bench, bench->queued, i, 0);
	rig_work(&bench->rig);
	assert_int_equal(dispatch_n_in_flight(dispatch), N_BACKLOG);
	assert_int_equal(loop_timer_new(bench->rig.loop, on_timer, &backlog, &backlog.timer), 0);
	loop_timer_arm(backlog.timer, 1);
	/* Each turn ends one task of the ring. */
	set_budget(dispatch, 0);
	session_end(bench->rig.session, false, "the test wants it");
	rig_run(&bench->rig, wait_for_timer, &backlog);
	assert_in_range(backlog.n_left, N_BACKLOG / 2, N_BACKLOG);
	loop_timer_free(backlog.timer);
	bench_end(bench);
}

/* Rings are added and removed in the middle of a round. */
TEST(test_rings__removed_while_in_turn)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	struct flow *flow;

	crowd_begin(&crowd, 100, 100, 500);
	dispatch = crowd.bench.rig.dispatch;
	flow = rig_dispatch_ring(&crowd.rings[0])->flow;
	for (unsigned int i = 0; i < N_CROWD; i++) {
		turn(&crowd);
		assert_int_equal(flow->n_active, N_CROWD - i);
		ring_deactivate(dispatch, rig_dispatch_ring(&crowd.rings[i * 7 % N_CROWD]));
		ring_deactivate(dispatch, rig_dispatch_ring(&crowd.rings[i * 7 % N_CROWD]));
	}
	assert_int_equal(flow->n_active, 0);
	assert_int_equal(dispatch->n_active_flows, 1);
	assert_int_equal(dispatch->active_weight, 100);
	ring_activate(dispatch, rig_dispatch_ring(&crowd.rings[3]), clock_ticks());
	assert_int_equal(dispatch->n_active_flows, 2);
	assert_true(turn(&crowd) > 0);
	crowd_end(&crowd);
}

/* ---- Bells: time is counted in readings of the clock, see test-session-turn.c ---- */

enum { STEPS = 32 };

static uint64_t n_readings;

static uint64_t read_steps(void)
{
	return ++n_readings;
}

/* Let all rings sleep with their bells enabled. */
static void crowd_sleep(struct crowd *crowd)
{
	struct dispatch *dispatch;

	crowd_make(crowd, 100, 100, 500);
	dispatch = crowd->bench.rig.dispatch;
	for (unsigned int i = 0; i < 2 * N_CROWD && dispatch->n_active > 0; i++)
		dispatch_sleep_rings(dispatch, false);
	rig_settle(&crowd->bench.rig);
	rig_settle(&crowd->bench.rig);
	assert_int_equal(dispatch->n_active, 0);
	turn_end(dispatch->turn);
	dispatch->turn->read_ticks = read_steps;
	dispatch->turn->budget_ticks = STEPS;
	turn_reset(dispatch->turn);
}

static void ring_all(struct crowd *crowd)
{
	for (unsigned int i = 0; i < N_CROWD; i++)
		assert_int_equal(send(crowd->rings[i].bell, "", 1, MSG_DONTWAIT), 1);
}

static unsigned int count_waiting(const struct crowd *crowd)
{
	return (unsigned int)crowd->bench.rig.dispatch->rung.n_jobs;
}

/*
 * Sixty bells ring before another tenant's. Each turn answers some; the other tenant's is among the
 * first, and all are answered.
 */
TEST(test_bells__in_slices)
{
	static struct crowd crowd;
	struct dispatch_ring *ring;
	struct dispatch *dispatch;
	unsigned int n, n_answered = 0, n_turns = 0, most = 0;
	bool was_answered = false;

	crowd_sleep(&crowd);
	dispatch = crowd.bench.rig.dispatch;
	ring = rig_dispatch_ring(&crowd.bench.ring);
	ring_all(&crowd);
	put_bare(&crowd.bench, RBK_OP_NOP, 1, 0);
	assert_int_equal(send(crowd.bench.ring.bell, "", 1, MSG_DONTWAIT), 1);
	/* All bells are known, and none is answered yet. */
	while (count_waiting(&crowd) < N_CROWD + 1)
		assert_true(loop_turn(crowd.bench.rig.loop, false) >= 0);
	assert_false(ring->is_active);
	for (; count_waiting(&crowd) > 0; n_turns++) {
		n = dispatch_answer_bells(dispatch);
		most = n > most ? n : most;
		n_answered += n;
		was_answered |= n_turns == 0 && ring->is_active;
		turn_end(dispatch->turn);
	}
	assert_true(was_answered);
	assert_int_equal(n_answered, N_CROWD + 1);
	assert_in_range(most, 1, STEPS / 4);
	crowd_end(&crowd);
}

/* A bell that rings repeatedly before it is answered is reported once. */
TEST(test_bells__reported_once)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	int n_handlers = 0;
	char byte;

	crowd_sleep(&crowd);
	dispatch = crowd.bench.rig.dispatch;
	for (unsigned int i = 0; i < 100; i++) {
		ring_all(&crowd);
		n_handlers += loop_turn(crowd.bench.rig.loop, false);
		/* As if the broker had read the byte. */
		for (unsigned int k = 0; k < N_CROWD; k++)
			recv(crowd.rings[k].ring->bell_fd, &byte, 1, MSG_DONTWAIT);
	}
	assert_int_equal(n_handlers, N_CROWD);
	assert_int_equal(count_waiting(&crowd), N_CROWD);
	/* A closed ring's bell is not answered any more. */
	session_ring_close(crowd.rings[0].ring);
	assert_int_equal(count_waiting(&crowd), N_CROWD - 1);
	while (count_waiting(&crowd) > 0) {
		dispatch_answer_bells(dispatch);
		turn_end(dispatch->turn);
	}
	crowd_end(&crowd);
}

/* One answer empties a bell. */
TEST(test_bells__emptied_at_once)
{
	static struct crowd crowd;
	char byte;

	crowd_sleep(&crowd);
	while (send(crowd.rings[0].bell, "", 1, MSG_DONTWAIT) == 1)
		;
	while (count_waiting(&crowd) == 0)
		assert_true(loop_turn(crowd.bench.rig.loop, false) >= 0);
	if (crowd.rings[0].ring->bell_refuses_fds) {
		assert_int_equal(dispatch_answer_bells(crowd.bench.rig.dispatch), 1);
		assert_int_equal(recv(crowd.rings[0].ring->bell_fd, &byte, 1, MSG_DONTWAIT), -1);
	}
	crowd_end(&crowd);
}

/* Publish to a sleeping client, as if a task of it had completed. */
static void want_bell(struct rig_ring *ring)
{
	ring->sq->cq_wait = 5;
	rig_dispatch_ring(ring)->cq_published--;
	ring_publish(rig_dispatch_ring(ring)->dispatch, rig_dispatch_ring(ring));
}

/*
 * Sixty sleeping clients are woken some in each turn, and each once. Another tenant's client, which
 * is the last one, is woken in the first turn.
 */
TEST(test_bells__rung_in_slices)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	unsigned int n_before, n_left = N_CROWD, most = 0;
	char byte;

	crowd_sleep(&crowd);
	dispatch = crowd.bench.rig.dispatch;
	for (unsigned int i = 0; i < N_CROWD; i++)
		want_bell(&crowd.rings[i]);
	want_bell(&crowd.bench.ring);
	for (unsigned int n_turns = 0; n_left > 0; n_turns++) {
		assert_true(n_turns < N_CROWD);
		n_before = n_left;
		dispatch_ring_bells(dispatch);
		turn_end(dispatch->turn);
		assert_false(turn_job_waits(&rig_dispatch_ring(&crowd.bench.ring)->wake_job));
		n_left = 0;
		for (unsigned int i = 0; i < N_CROWD; i++)
			n_left += turn_job_waits(&rig_dispatch_ring(&crowd.rings[i])->wake_job);
		most = n_before - n_left > most ? n_before - n_left : most;
	}
	assert_true(turn_queue_is_empty(&dispatch->bells));
	assert_in_range(most, 1, STEPS);
	for (unsigned int i = 0; i < N_CROWD; i++)
		assert_int_equal(recv(crowd.rings[i].bell, &byte, 1, MSG_DONTWAIT), 1);
	for (unsigned int i = 0; i < N_CROWD; i++)
		assert_int_equal(recv(crowd.rings[i].bell, &byte, 1, MSG_DONTWAIT), -1);
	crowd_end(&crowd);
}

static const struct turn *watched;
static enum rbk_turn_cause first_cause;

static uint64_t note_cause(void)
{
	if (first_cause == RBK_TURN_CAUSES)
		first_cause = watched->source.cause;
	return clock_ticks();
}

/* A client whose entry has completed is woken before other tasks are handled. */
TEST(test_bells__before_tasks)
{
	struct dispatch *dispatch;
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	dispatch = bench.rig.dispatch;
	sqe = run_entry(&bench, bench.queued, 1);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	turn_end(dispatch->turn);
	assert_true(dispatch->n_submitted > 0);
	bench.ring.sq->cq_wait = 5;
	put_bare(&bench, RBK_OP_NOP, 2, 0);
	watched = dispatch->turn;
	first_cause = RBK_TURN_CAUSES;
	dispatch->turn->read_ticks = note_cause;
	rig_work(&bench.rig);
	assert_int_equal(first_cause, RBK_TURN_BELLS);
}

/* Let the neighbour be idle for a moment, without debt. */
static void come_back(struct crowd *crowd)
{
	struct dispatch_ring *ring = rig_dispatch_ring(&crowd->bench.ring);

	ring->flow->credit_ticks = 0;
	ring_deactivate(crowd->bench.rig.dispatch, ring);
	ring_activate(crowd->bench.rig.dispatch, ring, clock_ticks());
}

/*
 * A tenant that was idle is polled before tenants that were polled since, but not before one that
 * the last round has not reached.
 */
TEST(test_share__newcomers_first)
{
	static struct crowd crowd;
	uint32_t n_neighbour, n_crowd;

	crowd_begin(&crowd, 100, 100, 500);
	/* The budget is so small that a round ends after the first batch. */
	set_budget(crowd.bench.rig.dispatch, 0);
	crowd.bench.rig.dispatch->is_round_cut = false;
	come_back(&crowd);
	n_neighbour = done_by_neighbour(&crowd);
	turn(&crowd);
	assert_int_equal(done_by_neighbour(&crowd), n_neighbour + 1);
	/* Now the crowd is next: a tenant that becomes idle repeatedly waits for it. */
	come_back(&crowd);
	n_crowd = done_by_crowd(&crowd);
	turn(&crowd);
	assert_int_equal(done_by_crowd(&crowd), n_crowd + 1);
	crowd_end(&crowd);
}

/*
 * A tenant in debt also recovers while it is idle: half of the idle time counts, where two tenants
 * have the same weight.
 */
TEST(test_share__idle_time_counts)
{
	static struct crowd crowd;
	struct dispatch_ring *ring;
	struct dispatch *dispatch;
	uint64_t now_ticks;

	crowd_begin(&crowd, 100, 100, 500);
	dispatch = crowd.bench.rig.dispatch;
	ring = rig_dispatch_ring(&crowd.bench.ring);
	now_ticks = dispatch->now_ticks;
	ring->flow->credit_ticks = -1000;
	ring_deactivate(dispatch, ring);
	ring_activate(dispatch, ring, now_ticks + 1000);
	assert_int_equal(ring->flow->credit_ticks, -500);
	/* Time in which the tenant has an active ring does not count. */
	dispatch->now_ticks = now_ticks + 10000;
	ring_deactivate(dispatch, ring);
	/* Each moment counts once. */
	for (unsigned int i = 0; i < 3; i++)
		flow_forgive(dispatch, ring->flow, now_ticks + 10400);
	assert_int_equal(ring->flow->credit_ticks, -300);
	ring_activate(dispatch, ring, now_ticks + 1000000);
	assert_int_equal(ring->flow->credit_ticks, 0);
	crowd_end(&crowd);
}

/*
 * A sleeping client is woken before other tenants' entries are handled: the round ends with its
 * tenant's part, and the next turn continues with the others.
 */
TEST(test_bells__end_the_round)
{
	static struct crowd crowd;
	uint32_t n_neighbour, n_crowd;
	char byte;

	crowd_begin(&crowd, 100, 100, 500);
	turn(&crowd);
	come_back(&crowd);
	crowd.bench.ring.sq->cq_wait = 5;
	n_neighbour = done_by_neighbour(&crowd);
	n_crowd = done_by_crowd(&crowd);
	turn(&crowd);
	assert_true(done_by_neighbour(&crowd) > n_neighbour);
	assert_int_equal(done_by_crowd(&crowd), n_crowd);
	assert_int_equal(recv(crowd.bench.ring.bell, &byte, 1, MSG_DONTWAIT), 1);
	turn(&crowd);
	assert_true(done_by_crowd(&crowd) > n_crowd);
	crowd_end(&crowd);
}

/*
 * A bell that rings meanwhile ends the round, of one tenant or of several, after the current batch
 * or part. But entries first get as much of the turn as other work.
 */
TEST(test_bells__are_heard_soon)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	uint32_t n_neighbour, n_crowd;

	crowd_sleep(&crowd);
	dispatch = crowd.bench.rig.dispatch;
	dispatch->turn->read_ticks = clock_ticks;
	set_budget(dispatch, 100000);
	for (unsigned int i = 1; i < N_CROWD; i++) {
		fill(&crowd.bench, &crowd.rings[i]);
		ring_activate(dispatch, rig_dispatch_ring(&crowd.rings[i]), clock_ticks());
	}
	/* A turn of 25 us without a bell has two batches or more. */
	assert_false(loop_has_news(crowd.bench.rig.loop));
	assert_in_range(turn(&crowd), 50, 75);
	assert_int_equal(send(crowd.rings[0].bell, "", 1, MSG_DONTWAIT), 1);
	assert_true(loop_has_news(crowd.bench.rig.loop));
	assert_in_range(turn(&crowd), 1, 26);
	dispatch->turn->other_ticks = 100 * dispatch->turn->budget_ticks;
	assert_in_range(turn(&crowd), 50, 75);

	fill(&crowd.bench, &crowd.bench.ring);
	ring_activate(dispatch, rig_dispatch_ring(&crowd.bench.ring), clock_ticks());
	/* As if the crowd had made up for the time that it ran alone. */
	rig_dispatch_ring(&crowd.rings[1])->flow->credit_ticks = 0;
	n_crowd = done_by_crowd(&crowd);
	turn(&crowd);
	assert_true(done_by_neighbour(&crowd) > 0);
	assert_int_equal(done_by_crowd(&crowd), n_crowd);
	n_neighbour = done_by_neighbour(&crowd);
	dispatch->turn->other_ticks = 100 * dispatch->turn->budget_ticks;
	turn(&crowd);
	assert_true(done_by_crowd(&crowd) > n_crowd);
	assert_true(done_by_neighbour(&crowd) > n_neighbour);
	crowd_end(&crowd);
}

/* Sixty rings that were muted together are not all unmuted in the same turn. */
TEST(test_bells__unmuted_in_slices)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	unsigned int n_muted, n_left = N_CROWD, most = 0;

	crowd_sleep(&crowd);
	dispatch = crowd.bench.rig.dispatch;
	for (unsigned int i = 0; i < N_CROWD; i++) {
		struct dispatch_ring *ring = rig_dispatch_ring(&crowd.rings[i]);

		while (!ring->is_muted) {
			ring->empty_bells_since_ns = clock_now_ns();
			dispatch_ring_bell(dispatch, ring->ring);
			dispatch_answer_bells(dispatch);
			turn_end(dispatch->turn);
		}
	}
	/* The budget is so small that the handlers of a turn have only one piece of work each. */
	dispatch->turn->budget_ticks = 0;
	while (n_left > 0) {
		assert_true(loop_turn(crowd.bench.rig.loop, true) >= 0);
		n_muted = 0;
		for (unsigned int i = 0; i < N_CROWD; i++)
			n_muted += rig_dispatch_ring(&crowd.rings[i])->is_muted;
		most = n_left - n_muted > most ? n_left - n_muted : most;
		n_left = n_muted;
	}
	assert_int_equal(most, 1);
	dispatch->turn->budget_ticks = STEPS;
	crowd_end(&crowd);
}

/* The tasks in flight of all rings are counted, so that reading their number visits no ring. */
TEST(test_in_flight__counted)
{
	BENCH(bench, 1, N_ENTRIES);
	for (uint64_t i = 1; i <= 5; i++)
		put_run(&bench, bench.queued, i, 0);
	put_bare(&bench, RBK_OP_NOP, 6, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.ring.ring->n_in_flight, 5);
	assert_int_equal(dispatch_n_in_flight(bench.rig.dispatch), 5);
	finish(&bench, bench.cpu, 2, 0);
	assert_int_equal(dispatch_n_in_flight(bench.rig.dispatch), 4);
	/* The session's end completes the rest, and the rig asserts that none is left. */
}

/* Sixty rings whose tenant's quota is refilled do not all continue in the same turn. */
TEST(test_refill__in_slices)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	uint32_t n_before, most = 0;

	crowd_sleep(&crowd);
	dispatch = crowd.bench.rig.dispatch;
	for (unsigned int i = 0; i < N_CROWD; i++) {
		struct dispatch_ring *ring = rig_dispatch_ring(&crowd.rings[i]);

		ring->is_throttled = true;
		flow_park(dispatch, ring);
	}
	flow_await_refill(dispatch);
	dispatch->turn->budget_ticks = 0;
	while (dispatch->n_active < N_CROWD) {
		n_before = dispatch->n_active;
		assert_true(loop_turn(crowd.bench.rig.loop, true) >= 0);
		if (dispatch->n_active - n_before > most)
			most = dispatch->n_active - n_before;
	}
	assert_in_range(most, 1, 16);
	assert_true(list_is_empty(&dispatch->throttled));
	dispatch->turn->budget_ticks = STEPS;
	crowd_end(&crowd);
}

/* Without quota, one pass asks once for all rings, and ends. */
TEST(test_refill__asks_once)
{
	static struct crowd crowd;
	struct dispatch *dispatch;
	struct flow *flow;

	crowd_sleep(&crowd);
	dispatch = crowd.bench.rig.dispatch;
	crowd.tenant.cpu_max = 1e-8f;
	dispatch_limits_changed(dispatch);
	flow = rig_dispatch_ring(&crowd.rings[0])->flow;
	flow->owed_ticks = clock_ns_to_ticks(1000000000);
	for (unsigned int i = 0; i < N_CROWD; i++) {
		struct dispatch_ring *ring = rig_dispatch_ring(&crowd.rings[i]);

		assert_true(ring_is_throttled(dispatch, ring));
		flow_park(dispatch, ring);
	}
	dispatch->is_refill_armed = true;
	loop_timer_arm(dispatch->refill_timer, 0);
	for (unsigned int i = 0; i < 100 && (i == 0 || dispatch->is_refilling); i++) {
		dispatch->turn->budget_ticks = 0;
		loop_turn(crowd.bench.rig.loop, true);
		assert_true(i < 10);
	}
	assert_int_equal(dispatch->n_active, 0);
	assert_int_equal(flow->refused_round, dispatch->refill_round);
	for (unsigned int i = 0; i < N_CROWD; i++)
		assert_int_equal(rig_dispatch_ring(&crowd.rings[i])->refill_round,
				 dispatch->refill_round);
	dispatch->turn->budget_ticks = STEPS;
	crowd_end(&crowd);
}

/* A client's endless other work, beside a task that completes meanwhile. */
struct endless {
	struct bench bench;
	struct turn_owner owner;
	struct turn_job job;
	uint64_t finished_ns; /* time at which the device completed the task; 0: not yet */
	bool is_back;         /* the dispatcher has reaped the task */
	atomic_bool is_over;
};

static void run_endless(struct turn_job *job)
{
	struct endless *endless = container_of(job, struct endless, job);
	struct dispatch *dispatch = endless->bench.rig.dispatch;

	if (!endless->finished_ns && dispatch->n_active == 0) {
		fake_finish(endless->bench.cpu, 1, 0);
		endless->finished_ns = clock_now_ns();
	}
	endless->is_back = endless->finished_ns && dispatch->n_submitted == 0;
	if (endless->is_back ||
	    (endless->finished_ns && clock_now_ns() - endless->finished_ns > 5000000000))
		atomic_store(&endless->is_over, true);
	else
		turn_queue_submit(&endless->bench.rig.server->work, &endless->owner, job);
}

static void await_endless(void *data)
{
	struct endless *endless = data;

	while (!atomic_load(&endless->is_over))
		usleep(1000);
}

/* No ring is polled and the reactor does not sleep, but completed tasks are reaped. */
TEST(test_settling__tasks_complete)
{
	static struct endless endless;
	struct bench *bench = &endless.bench;
	struct server *server;

	bench_begin(bench, 1, N_ENTRIES);
	server = bench->rig.server;
	put_run(bench, bench->queued, 1, 0);
	rig_work(&bench->rig);
	assert_true(fake_begin(bench->cpu, 1));
	turn_owner_init(&endless.owner, 100, 0);
	turn_job_init(&endless.job, RBK_TURN_OTHER, run_endless);
	turn_queue_submit(&server->work, &endless.owner, &endless.job);
	rig_run(&bench->rig, await_endless, &endless);
	assert_true(endless.is_back);
	bench_end(bench);
}

/* ---- Slices of tasks: the clock is read once per slice that may have done much ---- */

static void work_once(struct bench *bench)
{
	struct dispatch_ring *hostile = NULL;

	dispatch_work(bench->rig.dispatch, &hostile);
	assert_null(hostile);
}

TEST(test_slices__few_clock_readings)
{
	enum { MANY = 5 };
	static struct bench bench;
	struct turn *turn;
	uint64_t used_ticks;

	bench_begin(&bench, 1, N_ENTRIES);
	turn = bench.rig.dispatch->turn;
	turn_end(turn);
	turn->read_ticks = read_steps;
	n_readings = 0;
	put_run(&bench, bench.queued, 1, 0);
	work_once(&bench);
	assert_int_equal(bench.cpu->n_tasks, 1);
	assert_int_equal(n_readings, 1);

	/* Polling executors that return nothing is not measured. */
	used_ticks = turn->other_ticks;
	work_once(&bench);
	assert_int_equal(n_readings, 1);
	assert_int_equal(turn->other_ticks, used_ticks);
	fake_finish(bench.cpu, 1, 0);
	work_once(&bench);
	assert_int_equal(n_readings, 1);
	assert_int_equal(turn->other_ticks - used_ticks, bench.rig.dispatch->end_ticks);
	expect_cqe(&bench, 1, 0);

	for (unsigned int i = 0; i < MANY; i++)
		put_run(&bench, bench.queued, i, 0);
	while (bench.cpu->n_tasks < MANY)
		work_once(&bench);
	n_readings = 0;
	fake_finish_all(bench.cpu, 0);
	work_once(&bench);
	assert_int_equal(n_readings, 1);
	turn_end(turn);
	turn->read_ticks = NULL;
	bench_end(&bench);
}
