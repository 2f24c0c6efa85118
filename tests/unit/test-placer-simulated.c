/* SPDX-License-Identifier: MIT */
/* Errors of the placer that brokersim has found, one case each */
#include "placer-bench.h"
#include "support/test.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU };

/* Weights that cross the link with every part must not dominate a task's time. */
TEST(test_parts__weights_cross_the_link_again)
{
	const uint32_t count = 1000003;
	float whole_ns, parts_ns;
	uint32_t rows;

	PLACER_BENCH(bench, 2, NULL);
	/* 640 MB at 32 bytes/ns: 20 ms, twice the maximum of a submission, for a single row. */
	bench.plan.bindings[0].fixed_bytes = 640000000;
	bench.plan.touched_fixed = 640000000;
	placer_bench_renew(&bench);
	whole_ns = place_predict_ns(bench.placer, bench.place_plan, GPU, count);
	rows = place_rows_per_submission(bench.placer, bench.place_plan, GPU, count);
	parts_ns = place_predict_ns(bench.placer, bench.place_plan, GPU, rows) *
		   (float)((count + rows - 1) / rows);
	assert_true(parts_ns < whole_ns * 1.3f);
}

/* Without such weights, parts are as short as configured. */
TEST(test_parts__as_short_as_configured)
{
	uint32_t rows;

	PLACER_BENCH(bench, 2, NULL);
	rows = place_rows_per_submission(bench.placer, bench.place_plan, GPU, 4000001);
	assert_true(rows < 4000001 && rows % bench.plan.row_grain == 0);
	assert_true(place_predict_ns(bench.placer, bench.place_plan, GPU, rows) < 1.05f * 10000000);
}

/* Rounding up to the grain never gives more rows than the task has. */
TEST(test_parts__never_more_than_all)
{
	PLACER_BENCH(bench, 2, NULL);
	bench.plan.bindings[0].fixed_bytes = 640000000;
	placer_bench_renew(&bench);
	for (uint32_t count = 1; count < 100000; count += 997)
		for (uint8_t device = CPU; device <= GPU; device++) {
			uint32_t rows = place_rows_per_submission(bench.placer, bench.place_plan,
								  device, count);

			assert_in_range(rows, 1, count);
		}
}

static struct place_task held_task(struct placer_bench *bench, uint32_t count)
{
	return (struct place_task){
		.place_plan = bench->place_plan,
		.flow = bench->flow,
		.decision = {.device = CPU, .flags = PLACE_BOUND},
		.count = count,
		.admit_ns = bench->now_ns,
		.deadline_ns = UINT64_MAX,
	};
}

static void hold(struct placer_bench *bench, struct place_task *task)
{
	place_enqueue(bench->placer, task, bench->now_ns);
	assert_ptr_equal(place_next(bench->placer, CPU, bench->now_ns), task);
}

static void let_go(struct placer_bench *bench, struct place_task *task)
{
	place_done(bench->placer, task, PLACE_SKIPPED, 0, 0, bench->now_ns);
}

/* A small task does not wait for a busy CPU while a GPU is idle. */
TEST(test_below_threshold__cpu_is_busy)
{
	struct place_decision decision;
	struct place_task task;

	PLACER_BENCH(bench, 2, NULL);
	decision = placer_bench_decide(&bench, 64, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, CPU), (reason, RBK_REASON_BELOW_THRESHOLD));

	task = held_task(&bench, 1000);
	hold(&bench, &task);
	/* The CPU is busy for 128 us; the GPU would complete the task after about 13. */
	decision = placer_bench_decide(&bench, 64, RBK_STRATEGY_AUTO);
	assert_int_equal(decision.device, GPU);
	/* The full rules decide the same. */
	decision = place_decide_in_full(bench.placer, bench.place_plan, bench.flow,
					(struct place_request){.count = 64}, bench.now_ns);
	assert_int_equal(decision.device, GPU);
	let_go(&bench, &task);

	/* The task stays if the CPU is busy for about as long as the GPU would take. */
	task = held_task(&bench, 100);
	hold(&bench, &task);
	decision = placer_bench_decide(&bench, 64, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, CPU), (reason, RBK_REASON_BELOW_THRESHOLD));
	let_go(&bench, &task);
}

/* A task shared by nearly all servers leaves no server free. */
TEST(test_wait__shared_by_nearly_all_servers)
{
	struct place_profile profiles[] = {placer_bench_profile(8, 500),
					   placer_bench_profile(64, 10000)};
	struct place_task task;

	profiles[CPU].n_servers = profiles[CPU].n_servers_per_task = 8;
	PLACER_BENCH(bench, 2, profiles);
	/* Learned: 7.2 of 8 servers busy on average. */
	for (unsigned int i = 0; i < 200; i++)
		place_learn(bench.placer, bench.place_plan, CPU, 100000, PLACE_DONE, 1000000,
			    7200000, bench.now_ns += 1000000);
	task = held_task(&bench, 100000);
	hold(&bench, &task);
	assert_true(place_flow_wait_ns(bench.placer, bench.flow, CPU, bench.now_ns) > 500000);
	let_go(&bench, &task);
}
