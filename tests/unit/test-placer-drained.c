/* SPDX-License-Identifier: MIT */
/*
 * Devices that an administrator drains: no task is placed on a drained device, whatever its
 * strategy. The other devices are placed on as before.
 */
#include "placer-bench.h"
#include "support/test.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU, GPU2 = BENCH_GPU2, COUNT = 8192, LARGE = 1 << 20 };

#define expect_placed(bench, strategy, device, reason) \
	expect_placed_(bench, strategy, device, reason, __LINE__)

static void expect_placed_(struct placer_bench *bench, uint8_t strategy, uint8_t device,
			   uint8_t reason, int line)
{
	struct place_decision decision = placer_bench_decide(bench, COUNT, strategy);

	if (decision.device != device || decision.reason != reason || decision.wanted != 0)
		fail_msg("line %d: on device %u for reason %u, not on %u for %u; wanted %u", line,
			 decision.device, decision.reason, device, reason, decision.wanted);
}

static void expect_all_work(struct placer_bench *bench, uint32_t n_devices)
{
	for (uint8_t i = 0; i < n_devices; i++) {
		assert_false(placer_is_drained(bench->placer, i));
		assert_true(place_can_move(bench->placer, bench->place_plan, i));
		expect_placed(bench, RBK_STRATEGY_DEVICE(i), i, RBK_REASON_USER_PREFERENCE);
	}
}

/*
 * One GPU of two is drained. The other GPU takes all tasks, and queued tasks may move only to it.
 */
TEST(test_one_of_two_devices)
{
	PLACER_BENCH(bench, 3, NULL);
	for (uint8_t drained = GPU; drained <= GPU2; drained++) {
		const uint8_t other = drained == GPU ? GPU2 : GPU;

		expect_all_work(&bench, 3);
		placer_set_drained(bench.placer, drained, true);
		assert_true(placer_is_drained(bench.placer, drained));
		assert_false(placer_is_drained(bench.placer, other));
		expect_placed(&bench, RBK_STRATEGY_AUTO, other, RBK_REASON_GPU_AVAILABLE);
		expect_placed(&bench, RBK_STRATEGY_PREFER_GPU, other, RBK_REASON_USER_PREFERENCE);
		expect_placed(&bench, RBK_STRATEGY_ONLY_GPU, other, RBK_REASON_USER_PREFERENCE);
		expect_placed(&bench, RBK_STRATEGY_LATENCY, other, RBK_REASON_GPU_AVAILABLE);
		expect_placed(&bench, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
		expect_placed(&bench, RBK_STRATEGY_DEVICE(other), other,
			      RBK_REASON_USER_PREFERENCE);
		/* A task that names the drained device runs on the CPU. */
		expect_placed(&bench, RBK_STRATEGY_DEVICE(drained), CPU,
			      RBK_REASON_GPU_UNAVAILABLE);
		assert_false(place_can_move(bench.placer, bench.place_plan, drained));
		assert_true(place_can_move(bench.placer, bench.place_plan, other));
		/* Draining twice is undone by one call. */
		placer_set_drained(bench.placer, drained, true);
		placer_set_drained(bench.placer, drained, false);
	}
	expect_all_work(&bench, 3);
}

TEST(test_both_devices)
{
	PLACER_BENCH(bench, 3, NULL);
	placer_set_drained(bench.placer, GPU, true);
	placer_set_drained(bench.placer, GPU2, true);
	expect_placed(&bench, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, RBK_STRATEGY_ENERGY, CPU, RBK_REASON_GPU_UNAVAILABLE);
	placer_set_drained(bench.placer, GPU, false);
	expect_placed(&bench, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
}

/* A drained device counts as absent in every plan state: no task waits for its memory. */
TEST(test_states__do_not_matter)
{
	static const uint8_t states[] = {PLAN_DEVICE_READY, PLAN_DEVICE_EVICTED,
					 PLAN_DEVICE_NO_MEMORY, PLAN_DEVICE_FAILED};

	PLACER_BENCH(bench, 2, NULL);
	placer_set_drained(bench.placer, GPU, true);
	for (unsigned int i = 0; i < sizeof(states); i++) {
		bench.plan.device_state[GPU] = states[i];
		expect_placed(&bench, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
		expect_placed(&bench, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
		expect_placed(&bench, RBK_STRATEGY_DEVICE(GPU), CPU, RBK_REASON_GPU_UNAVAILABLE);
		expect_placed(&bench, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
			      RBK_REASON_GPU_UNAVAILABLE);
	}
	bench.plan.device_state[GPU] = PLAN_DEVICE_READY;
	bench.plan.pinned = true;
	bench.plan.pinned_device = GPU;
	placer_bench_renew(&bench);
	expect_placed(&bench, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	placer_set_drained(bench.placer, GPU, false);
	expect_placed(&bench, RBK_STRATEGY_AUTO, GPU, RBK_REASON_USER_PREFERENCE);
}

/*
 * Draining neither causes nor clears failures. An open breaker sends no probes to a drained device.
 */
TEST(test_breaker__is_independent)
{
	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < PLACE_BREAKER_FAILURES; i++)
		placer_bench_fail(&bench, GPU);
	expect_placed(&bench, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BREAKER_OPEN);
	placer_set_drained(bench.placer, GPU, true);
	for (unsigned int i = 0; i < 1000; i++) {
		bench.now_ns += 100000000;
		expect_placed(&bench, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	}
	/* An administrator's reset closes the breaker, and the device stays drained. */
	placer_reset_device(bench.placer, GPU);
	expect_placed(&bench, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	assert_false(place_can_move(bench.placer, bench.place_plan, GPU));
	placer_set_drained(bench.placer, GPU, false);
	expect_placed(&bench, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);

	for (unsigned int i = 0; i < PLACE_BREAKER_FAILURES; i++)
		placer_bench_fail(&bench, GPU);
	placer_set_drained(bench.placer, GPU, true);
	placer_set_drained(bench.placer, GPU, false);
	expect_placed(&bench, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BREAKER_OPEN);
}

/* A task is split between the CPU and the GPU that is not drained. */
TEST(test_split__with_the_other)
{
	struct place_request request = {
		.count = LARGE,
		.strategy = RBK_STRATEGY_PARTITION,
		.flags = PLACE_MAY_PARTITION,
	};
	struct place_decision decision;

	PLACER_BENCH(bench, 3, NULL);
	placer_set_drained(bench.placer, GPU, true);
	decision = place_decide(bench.placer, bench.place_plan, bench.flow, request, bench.now_ns);
	assert_int_equal(decision.device, GPU2);
	assert_in_range(decision.split_count, 1, LARGE - 1);
	placer_set_drained(bench.placer, GPU2, true);
	decision = place_decide(bench.placer, bench.place_plan, bench.flow, request, bench.now_ns);
	assert_int_equal(decision.device, CPU);
	assert_int_equal(decision.split_count, 0);
}

/*
 * No task explores a drained device, even if the exploration was already due. Other devices are
 * explored.
 */
TEST(test_explore__never)
{
	unsigned int n_explored = 0, n_on[3] = {0};

	PLACER_BENCH(bench, 3, NULL);
	for (unsigned int i = 0; i < 30000; i++) {
		struct place_decision decision;
		const bool is_drained = i / 1000 % 2;

		placer_set_drained(bench.placer, GPU, is_drained);
		decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
		assert_false(is_drained && decision.device == GPU);
		n_explored += (decision.flags & PLACE_EXPLORES) != 0;
		n_on[decision.device]++;
		/*
		 * All devices take about the same time, so an estimate without exploration stays
		 * unknown.
		 */
		placer_bench_learn(&bench, decision.device, COUNT,
				   1e5 + placer_bench_random(&bench, 20000));
	}
	assert_true(n_explored > 0);
	assert_true(n_on[GPU] > 0 && n_on[GPU2] + n_on[CPU] >= 15000);
}
