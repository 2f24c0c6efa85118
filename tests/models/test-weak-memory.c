/* SPDX-License-Identifier: MIT */
/*
 * Protocols between threads under all executions that C11 permits: see weak-memory.h. Each scenario
 * is repeated without the orders on which it relies, and must then fail.
 */
#include <string.h>

#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "support/test.h"

enum { MAX_EXECUTIONS = 1000000 };

static struct weak_result result;

/* --- The checker itself --- */

static unsigned int outcomes_of(const struct weak_scenario *scenario, unsigned int without)
{
	weak_outcomes = 0;
	weak_explore(scenario, without, MAX_EXECUTIONS, &result);
	assert_true(result.is_complete);
	assert_string_equal(result.failure, "");
	return weak_outcomes;
}

/* Outcomes, the first result first */
enum { O00 = 1 << 0, O01 = 1 << 1, O10 = 1 << 2, O11 = 1 << 3 };

TEST(test_checker__litmus_tests)
{
	const unsigned int all = O00 | O01 | O10 | O11;

	assert_int_equal(outcomes_of(&weak_store_buffers, 0), O01 | O10 | O11);
	assert_int_equal(outcomes_of(&weak_store_buffers, WEAK_WITHOUT_FENCES), all);
	assert_int_equal(outcomes_of(&weak_store_buffers_unfenced, 0), O01 | O10 | O11);
	assert_int_equal(outcomes_of(&weak_store_buffers_unfenced, WEAK_WITHOUT_BARRIERS), all);
	assert_int_equal(outcomes_of(&weak_message, 0), O00 | O01 | O11);
	assert_int_equal(outcomes_of(&weak_message, WEAK_WITHOUT_RELEASE), all);
	assert_int_equal(outcomes_of(&weak_message, WEAK_WITHOUT_ACQUIRE), all);
	assert_int_equal(outcomes_of(&weak_message_fences, 0), O00 | O01 | O11);
	assert_int_equal(outcomes_of(&weak_message_fences, WEAK_WITHOUT_FENCES), all);
	assert_int_equal(outcomes_of(&weak_coherence, 0), O00 | O01 | O11);
	assert_int_equal(outcomes_of(&weak_causality, 0), O00 | O01 | O11);
	assert_int_equal(outcomes_of(&weak_causality, WEAK_WITHOUT_RELEASE), all);
	assert_int_equal(outcomes_of(&weak_load_first, 0), O01 | O10);
	assert_int_equal(outcomes_of(&weak_exchange, 0), O01 | O10);
}

/* --- Protocols --- */

static void expect_right(const struct weak_scenario *scenario)
{
	weak_explore(scenario, 0, MAX_EXECUTIONS, &result);
	print_message("%s: %llu executions\n", scenario->name,
		      (unsigned long long)result.n_executions);
	if (result.failure[0])
		print_message("%s", result.trace);
	assert_string_equal(result.failure, "");
	assert_true(result.is_complete);
}

static void expect_wrong(const struct weak_scenario *scenario, enum weak_without without,
			 const char *failure)
{
	weak_explore(scenario, without, MAX_EXECUTIONS, &result);
	if (!strstr(result.failure, failure))
		fail_msg("%s without %u: \"%s\", not \"%s\"", scenario->name, without,
			 result.failure, failure);
}

static void expect_orders_needed(const struct weak_scenario *scenario)
{
	expect_wrong(scenario, WEAK_WITHOUT_RELEASE, "in no order");
	expect_wrong(scenario, WEAK_WITHOUT_ACQUIRE, "in no order");
}

TEST(test_spsc)
{
	expect_right(&weak_spsc);
	expect_orders_needed(&weak_spsc);
}

TEST(test_exec_task__cancelled)
{
	weak_exec_results = 0;
	expect_right(&weak_cancel);
	assert_int_equal(weak_exec_results, 1 << 0 | 1 << 1);
	expect_orders_needed(&weak_cancel);
}

TEST(test_exec_task__stopped_and_cancelled)
{
	weak_exec_results = 0;
	expect_right(&weak_stop);
	assert_int_equal(weak_exec_results, 1 << 0 | 1 << 1 | 1 << 2);
	expect_orders_needed(&weak_stop);
}

TEST(test_seqlock)
{
	expect_right(&weak_seqlock);
	expect_wrong(&weak_seqlock, WEAK_WITHOUT_FENCES, "copy[1] == 2 * copy[0]");
	expect_wrong(&weak_seqlock, WEAK_WITHOUT_RELEASE, "copy[1] == 2 * copy[0]");
	expect_wrong(&weak_seqlock, WEAK_WITHOUT_ACQUIRE, "copy[1] == 2 * copy[0]");
}

TEST(test_stats_record)
{
	expect_right(&weak_record);
	expect_wrong(&weak_record, WEAK_WITHOUT_FENCES, "copy[2] == 2 * copy[1]");
	expect_wrong(&weak_record, WEAK_WITHOUT_RELEASE, "copy[2] == 2 * copy[1]");
	expect_wrong(&weak_record, WEAK_WITHOUT_ACQUIRE, "copy[2] == 2 * copy[1]");
}

TEST(test_waker__no_wake_up_is_lost)
{
	expect_right(&weak_waker);
	expect_wrong(&weak_waker, WEAK_WITHOUT_FENCES, "all threads wait");
}

TEST(test_awake__no_task_is_forgotten)
{
	expect_right(&weak_awake);
	expect_wrong(&weak_awake, WEAK_WITHOUT_FENCES, "all threads wait");
}

TEST(test_pool__no_wake_up_is_lost)
{
	expect_right(&weak_pool);
	expect_wrong(&weak_pool, WEAK_WITHOUT_FENCES, "all threads wait");
}

TEST(test_pool__leader_waits_for_helpers)
{
	expect_right(&weak_pool_team);
	expect_wrong(&weak_pool_team, WEAK_WITHOUT_RELEASE, "in no order");
}

TEST(test_pool__limited_worker_hands_over)
{
	expect_right(&weak_pool_limited);
	expect_wrong(&weak_pool_limited, WEAK_WITHOUT_FENCES, "all threads wait");
}

TEST(test_ring__no_wake_up_is_lost)
{
	const struct weak_scenario *const scenarios[] = {&weak_ring, &weak_ring_several,
							 &weak_ring_full, &weak_ring_armed};

	for (unsigned int i = 0; i < 4; i++) {
		expect_right(scenarios[i]);
		expect_orders_needed(scenarios[i]);
		expect_wrong(scenarios[i], WEAK_WITHOUT_FENCES, "all threads wait");
	}
}

TEST(test_ring__fences_are_left_to_the_broker)
{
	const struct weak_scenario *const scenarios[] = {&weak_ring_unfenced, &weak_ring_leaving,
							 &weak_ring_keeping};

	for (unsigned int i = 0; i < 3; i++) {
		expect_right(scenarios[i]);
		expect_wrong(scenarios[i], WEAK_WITHOUT_BARRIERS, "all threads wait");
	}
	expect_wrong(&weak_ring_leaving, WEAK_WITHOUT_FENCES, "all threads wait");
}

TEST(test_commit__is_complete)
{
	weak_commit_seen = 0;
	expect_right(&weak_commit);
	assert_int_equal(weak_commit_seen, 1 << 0 | 1 << 1 | 1 << 2);
	expect_orders_needed(&weak_commit);
}

TEST_MAIN(NULL, NULL, (void)0)
