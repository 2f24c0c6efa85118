/* SPDX-License-Identifier: MIT */
/* Breakers: when they open, how they close, which plans they bar */
#include "placer-bench.h"
#include "support/test.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU, GPU2 = BENCH_GPU2, COUNT = 8192 };

static enum place_breaker breaker_of(const struct placer_bench *bench, uint8_t device)
{
	struct place_device_report report;

	placer_device_report(bench->placer, device, bench->now_ns, &report);
	return report.breaker;
}

static void succeed(struct placer_bench *bench, uint8_t device)
{
	placer_bench_learn(
		bench, device, COUNT,
		(double)place_predict_ns(bench->placer, bench->place_plan, device, COUNT));
}

TEST(test_open__after_three)
{
	struct place_device_report report;
	struct place_decision decision;

	PLACER_BENCH(bench, 2, NULL);
	succeed(&bench, GPU);
	placer_bench_fail(&bench, GPU);
	placer_bench_fail(&bench, GPU);
	assert_int_equal(breaker_of(&bench, GPU), PLACE_CLOSED);
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, GPU), (flags, 0));
	placer_bench_fail(&bench, GPU);
	assert_int_equal(breaker_of(&bench, GPU), PLACE_OPEN);
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, CPU), (reason, RBK_REASON_BREAKER_OPEN));
	assert_false(place_can_move(bench.placer, bench.place_plan, GPU));
	placer_device_report(bench.placer, GPU, bench.now_ns, &report);
	assert_int_equal(report.n_opened, 1);
	/* A reset closes the breaker and keeps the learned speed. */
	placer_reset_device(bench.placer, GPU);
	assert_int_equal(breaker_of(&bench, GPU), PLACE_CLOSED);
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
	assert_int_equal(decision.device, GPU);
}

/* A device that has done well for long begins to fail every third task. */
TEST(test_open__every_third)
{
	unsigned int n_failed = 0;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 5000; i++)
		succeed(&bench, GPU);
	for (unsigned int i = 0; breaker_of(&bench, GPU) == PLACE_CLOSED; i++) {
		if (i % 3 == 2) {
			placer_bench_fail(&bench, GPU);
			n_failed++;
		} else {
			succeed(&bench, GPU);
		}
	}
	assert_int_equal(n_failed, 3);
}

/* Failures too rare for the last few results add up over the window. */
TEST(test_open__over_the_window)
{
	struct place_device_report report;

	PLACER_BENCH(bench, 2, NULL);
	/* 1 failure in 25 is a success rate of 0.96: the breaker stays closed. */
	for (unsigned int i = 0; i < 5000; i++) {
		if (i % 25 == 24)
			placer_bench_fail(&bench, GPU);
		else
			succeed(&bench, GPU);
	}
	placer_device_report(bench.placer, GPU, bench.now_ns, &report);
	assert_int_equal(report.breaker, PLACE_CLOSED);
	assert_true(report.success_rate > 0.955 && report.success_rate < 0.965);
	/* 1 in 15 opens the breaker. */
	for (unsigned int i = 0; i < 100; i++) {
		if (i % 15 == 14)
			placer_bench_fail(&bench, GPU);
		else
			succeed(&bench, GPU);
	}
	assert_int_equal(breaker_of(&bench, GPU), PLACE_OPEN);
}

TEST(test_open__cpu_stays)
{
	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 100; i++)
		placer_bench_fail(&bench, CPU);
	placer_bench_fail(&bench, RBK_DEVICE_NONE);
	placer_bench_fail(&bench, RBK_MAX_DEVICES);
	assert_int_equal(breaker_of(&bench, CPU), PLACE_CLOSED);
	assert_int_equal(placer_bench_decide(&bench, 1, RBK_STRATEGY_AUTO).device, CPU);
}

static void open_breaker(struct placer_bench *bench)
{
	while (breaker_of(bench, GPU) == PLACE_CLOSED)
		placer_bench_fail(bench, GPU);
}

TEST(test_probe__one_at_a_time)
{
	struct place_decision decision;

	PLACER_BENCH(bench, 2, NULL);
	open_breaker(&bench);
	bench.now_ns += PLACE_BACKOFF_MIN_NS - 1;
	assert_int_equal(placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device, CPU);
	bench.now_ns++;
	/*
	 * A task that would not run on the GPU anyway, or has no time to fail there, is no probe.
	 */
	assert_int_equal(placer_bench_decide(&bench, 1, RBK_STRATEGY_AUTO).device, CPU);
	decision = place_decide(bench.placer, bench.place_plan, bench.flow,
				(struct place_request){.count = COUNT, .deadline_ns = 1000000000},
				bench.now_ns);
	assert_int_equal(decision.device, CPU);
	for (unsigned int i = 0; i < PLACE_BREAKER_PROBES; i++) {
		decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
		assert_fields(decision, (device, GPU), (flags, PLACE_PROBES | PLACE_BOUND));
		assert_int_equal(breaker_of(&bench, GPU), PLACE_HALF_OPEN);
		decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
		assert_fields(decision, (device, CPU), (reason, RBK_REASON_BREAKER_OPEN));
		succeed(&bench, GPU);
	}
	assert_int_equal(breaker_of(&bench, GPU), PLACE_CLOSED);
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, GPU), (flags, 0));
}

/* A lost probe must not be the last probe. */
TEST(test_probe__lost)
{
	PLACER_BENCH(bench, 2, NULL);
	open_breaker(&bench);
	bench.now_ns += PLACE_BACKOFF_MIN_NS;
	assert_int_equal(placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device, GPU);
	assert_int_equal(placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device, CPU);
	bench.now_ns += 11000000000;
	assert_int_equal(placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device, GPU);
}

/* Each failed probe lengthens the back-off, up to a minute. */
TEST(test_probe__backs_off)
{
	uint64_t open_ns, last_ns = 0;

	PLACER_BENCH(bench, 2, NULL);
	open_breaker(&bench);
	for (unsigned int i = 0; i < 12; i++) {
		open_ns = bench.now_ns;
		while (placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device == CPU)
			bench.now_ns += 10000000;
		open_ns = bench.now_ns - open_ns;
		if (i < 9)
			assert_true(open_ns > last_ns + last_ns / 2);
		assert_true(open_ns <= PLACE_BACKOFF_MAX_NS + 10000000);
		last_ns = open_ns;
		placer_bench_fail(&bench, GPU);
		assert_int_equal(breaker_of(&bench, GPU), PLACE_OPEN);
	}
	assert_true(last_ns >= PLACE_BACKOFF_MAX_NS);
}

TEST(test_probe__clock_goes_back)
{
	unsigned int n = 0;

	PLACER_BENCH(bench, 2, NULL);
	bench.now_ns = 1ull << 60;
	open_breaker(&bench);
	bench.now_ns = 5;
	while (placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device == CPU) {
		bench.now_ns += PLACE_BACKOFF_MIN_NS / 2;
		assert_true(++n <= 3);
	}
	/* The clock also goes back while a probe is in flight. */
	bench.now_ns = 1ull << 59;
	assert_int_equal(placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device, GPU);
	bench.now_ns = 5;
	assert_int_equal(placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device, GPU);
}

/*
 * Run @n_tasks tasks where the placer puts them. The GPU is four times faster and fails as @fails
 * says. A failed task has taken its time on the GPU and runs again on the CPU.
 * Return: the total time divided by the time on the CPU alone.
 */
static double run(struct placer_bench *bench, unsigned int n_tasks,
		  bool (*fails)(struct placer_bench *bench, unsigned int n),
		  unsigned int *ret_n_gpu)
{
	const double cpu_ns = 1e6, gpu_ns = 2.5e5;
	uint64_t start_ns = bench->now_ns;
	unsigned int n_gpu = 0;
	uint8_t device;

	for (unsigned int i = 0; i < n_tasks; i++) {
		device = placer_bench_decide(bench, COUNT, RBK_STRATEGY_AUTO).device;
		if (device == GPU && fails(bench, n_gpu++)) {
			bench->now_ns += (uint64_t)gpu_ns;
			place_learn(bench->placer, bench->place_plan, GPU, COUNT, PLACE_FAILED,
				    (uint64_t)gpu_ns, 0, bench->now_ns);
			device = CPU;
		}
		placer_bench_learn(bench, device, COUNT, device == GPU ? gpu_ns : cpu_ns);
	}
	*ret_n_gpu = n_gpu;
	return (double)(bench->now_ns - start_ns) / (cpu_ns * n_tasks);
}

static bool fails_every_third(struct placer_bench *bench, unsigned int n)
{
	return n % 3 == 2;
}

static bool fails_a_third(struct placer_bench *bench, unsigned int n)
{
	return placer_bench_random(bench, 3) == 0;
}

static bool fails_always(struct placer_bench *bench, unsigned int n)
{
	return true;
}

static bool fails_at_first(struct placer_bench *bench, unsigned int n)
{
	return n < 8;
}

TEST(test_throughput__failing)
{
	bool (*const fails[])(struct placer_bench * bench,
			      unsigned int n) = {fails_every_third, fails_a_third, fails_always};
	struct placer_bench bench;
	unsigned int n_gpu;
	double time;

	for (unsigned int i = 0; i < 3; i++) {
		placer_bench_init(&bench, 2, NULL);
		time = run(&bench, 20000, fails[i], &n_gpu);
		/* The GPU is never in use for long: three failures, then single probes. */
		assert_true(time < 1.01);
		assert_in_range(n_gpu, 3, 200);
		assert_int_not_equal(breaker_of(&bench, GPU), PLACE_CLOSED);
		placer_bench_deinit(&bench);
	}
}

TEST(test_throughput__repaired)
{
	unsigned int n_gpu;

	PLACER_BENCH(bench, 2, NULL);
	run(&bench, 200000, fails_at_first, &n_gpu);
	assert_int_equal(breaker_of(&bench, GPU), PLACE_CLOSED);
	assert_true(n_gpu > 50000);
}

/* A plan that fails loses the device; other plans keep it. */
TEST(test_plan__failure_keeps_the_device)
{
	struct place_plan *good = NULL;
	struct place_decision decision;
	struct plan plan;
	struct node node;

	PLACER_BENCH(bench, 2, NULL);
	placer_bench_plan_init(&plan, &node, 2);
	assert_int_equal(place_plan_new(bench.placer, &plan, &good), 0);
	for (unsigned int i = 0; i < 100; i++) {
		place_learn(bench.placer, good, GPU, COUNT, PLACE_DONE, 200000, 0, bench.now_ns);
		decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
		if (decision.device == GPU)
			placer_bench_fail(&bench, GPU);
	}
	assert_int_equal(breaker_of(&bench, GPU), PLACE_CLOSED);
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, CPU), (reason, RBK_REASON_BREAKER_OPEN));
	assert_false(place_can_move(bench.placer, bench.place_plan, GPU));
	assert_true(place_can_move(bench.placer, good, GPU));
	decision = place_decide(bench.placer, good, bench.flow,
				(struct place_request){.count = COUNT}, bench.now_ns);
	assert_int_equal(decision.device, GPU);
	/* A second plan that fails opens the device's breaker. */
	for (unsigned int i = 0; i < 3; i++)
		place_learn(bench.placer, good, GPU, COUNT, PLACE_FAILED, 1000, 0, bench.now_ns);
	assert_int_equal(breaker_of(&bench, GPU), PLACE_OPEN);
	place_plan_free(bench.placer, good);
}

TEST(test_plan__added_again_after_reset)
{
	PLACER_BENCH(bench, 2, NULL);
	bench.plan.fingerprint = 7;
	placer_bench_renew(&bench);
	open_breaker(&bench);
	placer_reset_device(bench.placer, GPU);
	placer_bench_renew(&bench);
	assert_int_equal(placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO).device, GPU);
}

/* If a second GPU is present, no task falls back to the CPU. */
TEST(test_open__second_gpu)
{
	struct place_decision decision;

	PLACER_BENCH(bench, 3, NULL);
	open_breaker(&bench);
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, GPU2), (reason, RBK_REASON_GPU_AVAILABLE));
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_DEVICE(GPU));
	assert_fields(decision, (device, CPU), (reason, RBK_REASON_BREAKER_OPEN));
}

/* A task that may run only on the GPU can be the probe. */
TEST(test_probe__only_gpu)
{
	struct place_decision decision;

	PLACER_BENCH(bench, 2, NULL);
	open_breaker(&bench);
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_ONLY_GPU);
	assert_fields(decision, (device, RBK_DEVICE_NONE), (reason, RBK_REASON_BREAKER_OPEN));
	bench.now_ns += PLACE_BACKOFF_MIN_NS;
	decision = placer_bench_decide(&bench, COUNT, RBK_STRATEGY_ONLY_GPU);
	assert_fields(decision, (device, GPU), (flags, PLACE_PROBES | PLACE_BOUND));
}
