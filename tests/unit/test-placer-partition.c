/* SPDX-License-Identifier: MIT */
/* Dividing tasks: one task over two devices, and a long task into submissions */
#include <math.h>

#include "placer-bench.h"
#include "support/test.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU, LARGE = 1 << 20 };

static struct place_decision decide(struct placer_bench *bench, uint32_t count, uint8_t strategy,
				    uint8_t flags)
{
	struct place_request request = {.count = count, .strategy = strategy, .flags = flags};

	return place_decide(bench->placer, bench->place_plan, bench->flow, request, bench->now_ns);
}

static struct place_decision may_split(struct placer_bench *bench, uint32_t count)
{
	return decide(bench, count, RBK_STRATEGY_AUTO, PLACE_MAY_PARTITION);
}

TEST(test_split__both_at_once)
{
	struct place_decision decision;

	PLACER_BENCH(bench, 2, NULL);
	assert_int_equal(decide(&bench, LARGE, RBK_STRATEGY_AUTO, 0).split_count, 0);
	decision = may_split(&bench, LARGE);
	assert_int_equal(decision.device, GPU);
	assert_int_equal(decision.reason, RBK_REASON_COST_MODEL);
	assert_int_equal(decision.flags, PLACE_BOUND);
	assert_int_equal(decision.split_count % bench.plan.row_grain, 0);
	/* CPU: 8 bytes/ns; GPU: 1 / (1 / 64 + 1 / 32) bytes/ns, so 2.67 times as many rows. */
	assert_true(fabs(decision.split_count / (double)LARGE - 2.667 / 3.667) < 0.01);
	assert_true(fabsf(decision.predicted_ns / decision.other_ns - 1) < 0.01f);
}

TEST(test_split__grain)
{
	static const uint32_t grains[] = {0, 1, 3, 8, 64};
	struct place_decision decision;
	struct placer_bench bench;

	for (unsigned int i = 0; i < 5; i++) {
		placer_bench_init(&bench, 2, NULL);
		bench.plan.row_grain = grains[i];
		placer_bench_renew(&bench);
		for (uint32_t count = 1; count < 300; count++) {
			decision = decide(&bench, count, RBK_STRATEGY_PARTITION, 0);
			/* Each part has at least one grain, or the task is not split. */
			if (decision.split_count == 0) {
				assert_true(count <= (grains[i] ? grains[i] : 1));
				continue;
			}
			assert_int_equal(decision.device, GPU);
			assert_int_equal(decision.reason, RBK_REASON_USER_PREFERENCE);
			assert_true(decision.split_count < count);
			assert_int_equal(decision.split_count % (grains[i] ? grains[i] : 1), 0);
		}
		placer_bench_deinit(&bench);
	}
}

TEST(test_split__only_where_possible)
{
	struct place_config config;

	PLACER_BENCH(bench, 2, NULL);
	assert_true(may_split(&bench, LARGE).split_count > 0);
	bench.plan.splits_rows = false;
	assert_int_equal(may_split(&bench, LARGE).split_count, 0);
	assert_int_equal(decide(&bench, LARGE, RBK_STRATEGY_PARTITION, 0).split_count, 0);
	bench.plan.splits_rows = true;
	bench.plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	assert_int_equal(may_split(&bench, LARGE).split_count, 0);
	assert_int_equal(may_split(&bench, LARGE).wanted, GPU);
	bench.plan.device_state[GPU] = PLAN_DEVICE_READY;
	bench.plan.device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
	assert_int_equal(may_split(&bench, LARGE).split_count, 0);
	bench.plan.device_state[CPU] = PLAN_DEVICE_READY;
	/* Tasks below partition_min_bytes are split only on request. */
	config = *placer_config(bench.placer);
	config.partition_min_bytes = LARGE * 1024ull + 1;
	placer_bench_configure(&bench, config);
	assert_int_equal(may_split(&bench, LARGE).split_count, 0);
	assert_true(decide(&bench, LARGE, RBK_STRATEGY_PARTITION, 0).split_count > 0);
	config.force_cpu = true;
	placer_bench_configure(&bench, config);
	assert_int_equal(decide(&bench, LARGE, RBK_STRATEGY_PARTITION, 0).split_count, 0);
	config.force_cpu = false;
	placer_bench_configure(&bench, config);
	/* A half-open GPU is not probed with a part of a task. */
	for (unsigned int i = 0; i < PLACE_BREAKER_FAILURES; i++)
		placer_bench_fail(&bench, GPU);
	bench.now_ns += PLACE_BACKOFF_MIN_NS;
	assert_int_equal(decide(&bench, LARGE, RBK_STRATEGY_PARTITION, 0).split_count, 0);
}

/* The CPU would take a seventh of the rows: a gain of 1.17. */
TEST(test_split__worth_it)
{
	struct place_profile profiles[] = {placer_bench_profile(8, 500),
					   placer_bench_profile(48, 500)};
	struct place_config config;

	PLACER_BENCH(bench, 2, profiles);
	assert_int_equal(may_split(&bench, LARGE).split_count, 0);
	config = *placer_config(bench.placer);
	config.partition_min_gain = 0.15f;
	placer_bench_configure(&bench, config);
	assert_true(may_split(&bench, LARGE).split_count > LARGE / 7 * 5);
}

/* A device with queued tasks gets fewer rows. */
TEST(test_split__counts_queued_tasks)
{
	struct place_decision free_both, busy_gpu;
	struct place_task task;

	PLACER_BENCH(bench, 2, NULL);
	free_both = may_split(&bench, LARGE);
	task = (struct place_task){
		.place_plan = bench.place_plan,
		.flow = bench.flow,
		.decision = decide(&bench, LARGE / 4, RBK_STRATEGY_ONLY_GPU, 0),
		.count = LARGE / 4,
		.admit_ns = bench.now_ns,
		.deadline_ns = UINT64_MAX,
	};
	place_enqueue(bench.placer, &task, bench.now_ns);
	busy_gpu = may_split(&bench, LARGE);
	assert_in_range(busy_gpu.split_count, 1, free_both.split_count - LARGE / 20);
	place_dequeue(bench.placer, &task, bench.now_ns);
}

/* The GPU is three times slower than its profile says. The parts' times correct the split. */
TEST(test_split__learns_from_parts)
{
	const double cpu_row_ns = 128, gpu_row_ns = 144;
	struct place_decision decision;
	double best_ns, ns, gpu_ns, cpu_ns;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 20; i++) {
		decision = decide(&bench, LARGE, RBK_STRATEGY_PARTITION, 0);
		gpu_ns = decision.split_count * gpu_row_ns;
		cpu_ns = (LARGE - decision.split_count) * cpu_row_ns;
		placer_bench_learn(&bench, GPU, decision.split_count, gpu_ns);
		placer_bench_learn(&bench, CPU, LARGE - decision.split_count, cpu_ns);
	}
	ns = gpu_ns > cpu_ns ? gpu_ns : cpu_ns;
	best_ns = LARGE / (1 / gpu_row_ns + 1 / cpu_row_ns);
	assert_true(ns < best_ns * 1.05);
}

/* --- submissions --- */

TEST(test_rows__submissions_are_bounded)
{
	struct place_profile free_to_start = placer_bench_profile(8, 0);
	struct place_config config;
	uint32_t rows, n_parts;

	PLACER_BENCH(bench, 2, NULL);
	config = *placer_config(bench.placer);
	for (uint32_t count = 1; count < 100000000; count += count / 3 + 1) {
		rows = place_rows_per_submission(bench.placer, bench.place_plan, CPU, count);
		/*
		 * Contention does not make submissions shorter: more parts would wait more often.
		 */
		placer_set_contention(bench.placer, CPU, 50, bench.now_ns);
		assert_int_equal(
			place_rows_per_submission(bench.placer, bench.place_plan, CPU, count),
			rows);
		placer_set_contention(bench.placer, CPU, 1, bench.now_ns);
		assert_in_range(rows, 1, count);
		assert_true(place_predict_ns(bench.placer, bench.place_plan, CPU, rows) <=
			    (float)config.submission_max_ns);
		if (rows == count)
			continue;
		assert_int_equal(rows % bench.plan.row_grain, 0);
		/* The task has no more parts than necessary. */
		n_parts = (count - 1) / rows + 1;
		assert_true(place_predict_ns(bench.placer, bench.place_plan, CPU,
					     count / (n_parts - 1)) >
			    (float)config.submission_max_ns * 0.95f);
	}
	/* A disturbed GPU takes longer, so its submissions are shorter. */
	rows = place_rows_per_submission(bench.placer, bench.place_plan, GPU, 1 << 28);
	placer_set_contention(bench.placer, GPU, 10, bench.now_ns);
	assert_true(place_rows_per_submission(bench.placer, bench.place_plan, GPU, 1 << 28) <
		    rows / 9);
	/* The minimum is one grain, if starting a task costs nothing. */
	config.submission_max_ns = 1;
	placer_bench_configure(&bench, config);
	placer_set_profile(bench.placer, CPU, &free_to_start);
	placer_bench_renew(&bench);
	assert_int_equal(place_rows_per_submission(bench.placer, bench.place_plan, CPU, 1000), 8);
	assert_int_equal(place_rows_per_submission(bench.placer, bench.place_plan, CPU, 8), 8);
	bench.plan.splits_rows = false;
	assert_int_equal(place_rows_per_submission(bench.placer, bench.place_plan, CPU, 1000),
			 1000);
	assert_int_equal(place_rows_per_submission(bench.placer, bench.place_plan, 77, 1000), 1000);
}
