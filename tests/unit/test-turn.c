/* SPDX-License-Identifier: MIT */
/* The reactor's turn: slices, budgets, overruns by cause, the longest turn */
#include <stdlib.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "support/test.h"
#include "util/clock.h"

enum { BUDGET = 1000 };

static uint64_t now_ticks;

static uint64_t read_now(void)
{
	return now_ticks;
}

static struct turn make_turn(void)
{
	struct turn turn;

	turn_init(&turn, 0);
	turn.read_ticks = read_now;
	turn.budget_ticks = BUDGET;
	turn_reset(&turn);
	now_ticks = 5000;
	return turn;
}

static void spend(struct turn *turn, enum rbk_turn_cause cause, uint32_t tenant, uint64_t ticks)
{
	struct turn_source outer = turn_enter(turn, cause, tenant);

	now_ticks += ticks;
	turn_leave(turn, outer);
}

TEST(test_used__counts_slices_only)
{
	struct turn turn = make_turn();
	struct turn_source outer, inner;

	/* Time between slices counts for no cause: the reactor slept. */
	now_ticks += 100000;
	assert_int_equal(turn_used_ticks(&turn), 0);
	spend(&turn, RBK_TURN_TIMERS, 0, 10);
	now_ticks += 100000;
	assert_int_equal(turn_used_ticks(&turn), 10);
	outer = turn_enter(&turn, RBK_TURN_MESSAGES, 3);
	now_ticks += 20;
	assert_int_equal(turn_used_ticks(&turn), 30);
	inner = turn_enter(&turn, RBK_TURN_PLANS, 3);
	now_ticks += 300;
	turn_leave(&turn, inner);
	assert_int_equal(turn.source.cause, RBK_TURN_MESSAGES);
	now_ticks += 5;
	turn_leave(&turn, outer);
	assert_int_equal(turn_used_ticks(&turn), 335);
	turn.entry_ticks += 50;
	assert_int_equal(turn_used_ticks(&turn), 385);
	assert_false(turn_is_over(&turn));
	spend(&turn, RBK_TURN_TIMERS, 0, BUDGET);
	assert_true(turn_is_over(&turn));
	turn_end(&turn);
	assert_int_equal(turn_used_ticks(&turn), 0);
	assert_false(turn_is_over(&turn));
}

TEST(test_stop__last_source_has_budget)
{
	struct turn turn = make_turn();

	assert_int_equal(turn_stop_ticks(&turn, 4), BUDGET);
	spend(&turn, RBK_TURN_TIMERS, 0, BUDGET - 1);
	assert_int_equal(turn_stop_ticks(&turn, 4), BUDGET - 1 + BUDGET / 4);
	spend(&turn, RBK_TURN_TIMERS, 0, 5 * BUDGET);
	assert_int_equal(turn_stop_ticks(&turn, 4), 6 * BUDGET - 1 + BUDGET / 4);
}

/*
 * An overrun is assigned to the cause of most of the turn, and to the tenant of its longest slice.
 */
TEST(test_overrun__cause_and_tenant)
{
	struct turn turn = make_turn();

	spend(&turn, RBK_TURN_PLANS, 7, 4 * BUDGET);
	spend(&turn, RBK_TURN_CONNECTIONS, 1, 2 * BUDGET);
	spend(&turn, RBK_TURN_CONNECTIONS, 2, 3 * BUDGET);
	spend(&turn, RBK_TURN_CONNECTIONS, 1, 1 * BUDGET);
	turn_end(&turn);
	assert_fields(turn.report, (n_overruns[RBK_TURN_CONNECTIONS], 1),
		      (n_overruns[RBK_TURN_PLANS], 0), (longest_ticks, 10 * BUDGET),
		      (longest.cause, RBK_TURN_CONNECTIONS), (longest.tenant, 2));

	/* A shorter overrun is counted, but does not replace the longest one. */
	turn.report.longest_ticks = 20 * BUDGET;
	spend(&turn, RBK_TURN_PLANS, 7, 11 * BUDGET);
	turn_end(&turn);
	assert_fields(turn.report, (n_overruns[RBK_TURN_PLANS], 1),
		      (longest.cause, RBK_TURN_CONNECTIONS));

	/* Nothing of the overrun remains in the next turn. */
	spend(&turn, RBK_TURN_TIMERS, 0, 1);
	turn_end(&turn);
	assert_fields(turn.report, (n_overruns[RBK_TURN_TIMERS], 0),
		      (n_overruns[RBK_TURN_PLANS], 1));
}

TEST(test_entries__counted_apart)
{
	struct turn turn = make_turn();

	turn.entry_ticks = 3 * BUDGET;
	turn.entries.tenant = 4;
	turn_end(&turn);
	assert_fields(turn.report, (longest_ticks, 3 * BUDGET), (longest.cause, RBK_TURN_ENTRIES),
		      (longest.tenant, 4), (n_overruns[RBK_TURN_ENTRIES], 0));
	/* One overrun longer than the longest so far, and one shorter. */
	turn.entry_ticks = 30 * BUDGET;
	turn_end(&turn);
	turn.entry_ticks = 20 * BUDGET;
	turn_end(&turn);
	assert_fields(turn.report, (n_overruns[RBK_TURN_ENTRIES], 2), (longest_ticks, 30 * BUDGET));
}

TEST(test_reset__clears_figures)
{
	struct turn turn = make_turn();

	spend(&turn, RBK_TURN_RINGS, 9, 100 * BUDGET);
	turn_end(&turn);
	turn_reset(&turn);
	assert_fields(turn.report, (longest_ticks, 0), (n_overruns[RBK_TURN_RINGS], 0));
	spend(&turn, RBK_TURN_OTHER, 0, 2);
	turn_end(&turn);
	assert_fields(turn.report, (longest_ticks, 2), (longest.cause, RBK_TURN_OTHER));
}

static uint64_t cpu_now_ns;
static unsigned int n_cpu_readings;

static uint64_t read_cpu_now(void)
{
	n_cpu_readings++;
	return cpu_now_ns;
}

/* Spend a slice of @ticks, in which the thread has the CPU for @cpu_ns. */
static void spend_cpu(struct turn *turn, uint64_t ticks, uint64_t cpu_ns)
{
	spend(turn, RBK_TURN_BELLS, 1, ticks);
	cpu_now_ns += cpu_ns;
}

/* Only time on the CPU counts as work, not time in which other threads had the CPU. */
TEST(test_cpu__counts_own_time_only)
{
	const uint64_t us = clock_ns_to_ticks(1000), ms = 1000 * us;
	struct turn turn;
	uint64_t begin_ticks;

	turn_init(&turn, 100000);
	turn.read_ticks = read_now;
	turn.read_cpu_ns = read_cpu_now;
	begin_ticks = turn_now(&turn);
	spend_cpu(&turn, 2000 * us, 2000000);
	/* CPU time is not measured yet. */
	assert_int_equal(turn_worked_ticks(&turn, begin_ticks, ms), 0);
	turn_time_cpu(&turn);
	begin_ticks = turn_now(&turn);
	spend_cpu(&turn, 900 * us, 900000);
	assert_int_equal(turn_worked_ticks(&turn, begin_ticks, ms), 0);
	spend_cpu(&turn, 9000 * us, 1000);
	assert_int_equal(turn_worked_ticks(&turn, begin_ticks, ms), clock_ns_to_ticks(901000));
	begin_ticks = turn_now(&turn);
	spend_cpu(&turn, 1100 * us, 1100000);
	assert_int_equal(turn_worked_ticks(&turn, begin_ticks, ms), 1100 * us);
}

/*
 * Time in which other threads had the CPU does not count as the turn's CPU time, but the turn's
 * length stays the same.
 */
TEST(test_cpu__without_preemption)
{
	struct turn turn = make_turn();
	const uint64_t us = clock_ns_to_ticks(1000);

	turn.read_cpu_ns = read_cpu_now;
	turn.budget_ticks = 100 * us;
	turn_reset(&turn);
	n_cpu_readings = 0;

	/* Without a measurement, nothing is reported and the clock is not read. */
	spend_cpu(&turn, 50 * us, 50000);
	turn_end(&turn);
	assert_int_equal(n_cpu_readings, 0);
	assert_int_equal(turn.report.longest_cpu_ticks, 0);

	/* 30 us before the measurement begins, then 20 ms with 40 us on the CPU. */
	spend_cpu(&turn, 30 * us, 5000);
	turn_time_cpu(&turn);
	turn_time_cpu(&turn);
	assert_int_equal(n_cpu_readings, 1);
	spend_cpu(&turn, 20000 * us, 40000);
	turn_end(&turn);
	assert_int_equal(n_cpu_readings, 2);
	assert_int_equal(turn.report.longest_ticks, 20030 * us);
	assert_in_range(turn.report.longest_cpu_ticks, 69 * us, 71 * us);

	/* A shorter turn may have used more CPU time. */
	turn_time_cpu(&turn);
	spend_cpu(&turn, 500 * us, 500000);
	turn_end(&turn);
	assert_in_range(turn.report.longest_cpu_ticks, 499 * us, 500 * us);
	assert_int_equal(turn.report.longest_ticks, 20030 * us);

	/*
	 * A turn too short to have used more is not measured at its end. Polling between slices is
	 * not its time.
	 */
	n_cpu_readings = 0;
	turn_time_cpu(&turn);
	spend_cpu(&turn, 400 * us, 9000000);
	turn_end(&turn);
	assert_int_equal(n_cpu_readings, 1);
	turn_time_cpu(&turn);
	spend_cpu(&turn, 600 * us, 9000000);
	turn_end(&turn);
	assert_int_equal(turn.report.longest_cpu_ticks, 600 * us);
	turn_reset(&turn);
	assert_int_equal(turn.report.longest_cpu_ticks, 0);
}

/* A thread that has slept does not read the clock before it works for whoever has woken it. */
TEST(test_cpu__read_before_sleep)
{
	struct turn turn = make_turn();
	const uint64_t us = clock_ns_to_ticks(1000);

	turn.read_cpu_ns = read_cpu_now;
	turn.budget_ticks = 100 * us;
	turn_reset(&turn);
	turn_rest(&turn);
	n_cpu_readings = 0;
	cpu_now_ns += 3000;
	turn_time_cpu(&turn);
	assert_int_equal(n_cpu_readings, 0);
	/* The time of falling asleep counts as well. */
	spend_cpu(&turn, 20000 * us, 40000);
	turn_end(&turn);
	assert_int_equal(n_cpu_readings, 1);
	assert_in_range(turn.report.longest_cpu_ticks, 42 * us, 44 * us);

	/* The reading holds for one turn. */
	turn_time_cpu(&turn);
	assert_int_equal(n_cpu_readings, 2);
	turn_end(&turn);
}

/* Timers beyond a turn's budget run in later turns, in order. */
static unsigned int order[8], n_ran;

static void on_costly_timer(void *data)
{
	order[n_ran++] = *(unsigned int *)data;
	now_ticks += BUDGET;
}

TEST(test_loop__timers_in_slices)
{
	unsigned int numbers[4] = {0, 1, 2, 3}, n_turns = 0;
	struct loop_timer *timers[4];
	struct loop *loop;

	if (loop_new(&loop) != 0)
		skip();
	loop_current(loop)->read_ticks = read_now;
	loop_current(loop)->budget_ticks = BUDGET;
	turn_reset(loop_current(loop));
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(loop_timer_new(loop, on_costly_timer, &numbers[i], &timers[i]), 0);
		loop_timer_arm(timers[i], i);
	}
	for (n_ran = 0; n_ran < 4; n_turns++)
		assert_in_range(loop_turn(loop, true), 0, 1);
	assert_true(n_turns >= 4);
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(order[i], i);
		loop_timer_free(timers[i]);
	}
	/* Without an open slice, turn_set_cause() changes nothing. */
	turn_set_cause(loop_current(loop), RBK_TURN_PLANS);
	assert_int_equal(loop_turn(loop, false), 0);
	assert_int_equal(loop_current(loop)->report.longest.cause, RBK_TURN_TIMERS);
	assert_int_equal(loop_current(loop)->report.longest_ticks, BUDGET);
	loop_free(loop);
}

TEST_MAIN(NULL, NULL, clock_init())
