/* SPDX-License-Identifier: MIT */
/*
 * Decisions while the CPU is contended: the tenant that causes the contention does not gain by it,
 * and other tenants do not lose by that. Decisions while only some CPU workers are in use.
 */
#include <math.h>

#include "placer-bench.h"
#include "support/test.h"
#include "util/checked.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU, LARGE = 1 << 20 };

struct pair {
	struct placer_bench bench;
	struct place_flow *culprit;
	uint32_t count; /* rows of a task that is slightly faster on the CPU */
};

static int setup(void **state)
{
	const struct place_flow_limits limits = {.weight = 100,
						 .priority_max = RBK_PRIORITY_URGENT};
	struct pair *pair = test_calloc(1, sizeof(*pair));
	struct placer_bench *bench = &pair->bench;

	placer_bench_init(bench, 2, NULL);
	assert_int_equal(place_flow_new(bench->placer, &limits, &pair->culprit), 0);
	pair->count = 512;
	placer_bench_trust(bench, pair->count);
	while (placer_bench_decide(bench, pair->count, RBK_STRATEGY_AUTO).device == GPU)
		placer_bench_trust(bench, pair->count /= 2);
	*state = pair;
	return 0;
}

static int teardown(void **state)
{
	struct pair *pair = *state;

	place_flow_free(pair->bench.placer, pair->culprit);
	placer_bench_deinit(&pair->bench);
	test_free(pair);
	return 0;
}

static struct place_decision decide(struct placer_bench *bench, struct place_flow *flow,
				    uint32_t count, uint8_t strategy)
{
	struct place_request request = {.count = count, .strategy = strategy};

	bench->place_plan->wish_bucket = UINT16_MAX;
	return place_decide(bench->placer, bench->place_plan, flow, request, bench->now_ns);
}

TEST(test_culprit__stays_on_the_cpu, setup, teardown)
{
	struct pair *pair = *state;
	struct placer_bench *bench = &pair->bench;
	struct place_decision before, decision;

	before = decide(bench, pair->culprit, pair->count, RBK_STRATEGY_AUTO);
	assert_int_equal(before.device, CPU);
	placer_set_contention(bench->placer, CPU, 20, bench->now_ns);
	place_flow_set_own_contention(pair->culprit, 1);
	decision = decide(bench, pair->culprit, pair->count, RBK_STRATEGY_AUTO);
	assert_memory_equal(&decision, &before, sizeof(before));
	decision = decide(bench, bench->flow, pair->count, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, GPU), (reason, RBK_REASON_CONTENTION));
	/* The culprit's advantage ends with its own contention. */
	place_flow_set_own_contention(pair->culprit, 0);
	decision = decide(bench, pair->culprit, pair->count, RBK_STRATEGY_AUTO);
	assert_fields(decision, (device, GPU), (reason, RBK_REASON_CONTENTION));
}

/* A software GPU suffers the same contention, so it is no alternative. */
TEST(test_software_gpu__contended_as_well, setup, teardown)
{
	struct pair *pair = *state;
	struct placer_bench *bench = &pair->bench;

	placer_set_contention(bench->placer, CPU, 20, bench->now_ns);
	assert_int_equal(decide(bench, bench->flow, pair->count, RBK_STRATEGY_AUTO).device, GPU);
	placer_set_contention(bench->placer, GPU, 20, bench->now_ns);
	assert_int_equal(decide(bench, bench->flow, pair->count, RBK_STRATEGY_AUTO).device, CPU);
	assert_int_equal(decide(bench, bench->flow, 1, RBK_STRATEGY_AUTO).device, CPU);
}

/* If the culprit causes part of the contention, that part is taken off its estimate. */
TEST(test_culprit__of_part_of_the_contention, setup, teardown)
{
	const float factor = 9;
	struct pair *pair = *state;
	struct placer_bench *bench = &pair->bench;
	struct place_decision decision;
	float undisturbed_ns;

	undisturbed_ns =
		decide(bench, bench->flow, pair->count, RBK_STRATEGY_ONLY_CPU).predicted_ns;
	placer_set_contention(bench->placer, CPU, factor, bench->now_ns);
	for (unsigned int i = 0; i <= 8; i++) {
		const float share = (float)i / 8;

		place_flow_set_own_contention(pair->culprit, share);
		decision = decide(bench, pair->culprit, pair->count, RBK_STRATEGY_ONLY_CPU);
		assert_true(fabsf(decision.predicted_ns / undisturbed_ns -
				  (1 + (factor - 1) * (1 - share))) < 0.001f);
	}
}

TEST(test_culprit__split_as_if_alone, setup, teardown)
{
	struct pair *pair = *state;
	struct placer_bench *bench = &pair->bench;
	struct place_decision before, decision;

	before = decide(bench, pair->culprit, LARGE, RBK_STRATEGY_PARTITION);
	assert_true(before.split_count > 0);
	placer_set_contention(bench->placer, CPU, 5, bench->now_ns);
	place_flow_set_own_contention(pair->culprit, 1);
	decision = decide(bench, pair->culprit, LARGE, RBK_STRATEGY_PARTITION);
	assert_memory_equal(&decision, &before, sizeof(before));
	decision = decide(bench, bench->flow, LARGE, RBK_STRATEGY_PARTITION);
	assert_true(decision.split_count > before.split_count);
}

/* The estimate learns a task's undisturbed time, whichever tenant disturbs the task. */
TEST(test_culprit__learned_as_others, setup, teardown)
{
	const struct placer_bench *bench = &((struct pair *)*state)->bench;
	struct pair *pair = *state;
	struct place_task task = {
		.place_plan = bench->place_plan,
		.flow = pair->culprit,
		.count = pair->count,
		.deadline_ns = UINT64_MAX,
	};
	float before_ns = place_predict_ns(bench->placer, bench->place_plan, CPU, pair->count);
	uint64_t now_ns = bench->now_ns;

	placer_set_contention(bench->placer, CPU, 8, bench->now_ns);
	place_flow_set_own_contention(pair->culprit, 1);
	for (unsigned int i = 0; i < 200; i++) {
		const uint64_t exec_ns = (uint64_t)(before_ns * 8);

		task.state = PLACE_IDLE;
		task.decision.device = CPU;
		place_enqueue(bench->placer, &task, now_ns);
		assert_ptr_equal(place_next(bench->placer, CPU, now_ns), &task);
		now_ns += exec_ns;
		place_done(bench->placer, &task, PLACE_DONE, exec_ns, 0, now_ns);
	}
	assert_true(fabsf(place_predict_ns(bench->placer, bench->place_plan, CPU, pair->count) /
				  before_ns -
			  1) < 0.01f);
}

/* The wait for queued tasks is predicted with the same contention as their execution. */
TEST(test_culprit__waits, setup, teardown)
{
	struct pair *pair = *state;
	struct placer_bench *bench = &pair->bench;
	struct place_task tasks[4] = {0};
	uint64_t alone_ns;

	for (unsigned int i = 0; i < 4; i++) {
		tasks[i] = (struct place_task){
			.place_plan = bench->place_plan,
			.flow = bench->flow,
			.count = pair->count,
			.deadline_ns = UINT64_MAX,
		};
		place_enqueue(bench->placer, &tasks[i], bench->now_ns);
	}
	alone_ns = place_flow_wait_ns(bench->placer, bench->flow, CPU, bench->now_ns);
	placer_set_contention(bench->placer, CPU, 5, bench->now_ns);
	place_flow_set_own_contention(pair->culprit, 0.5f);
	assert_in_range(place_flow_wait_ns(bench->placer, bench->flow, CPU, bench->now_ns),
			alone_ns * 5 - 5, alone_ns * 5 + 5);
	place_flow_set_own_contention(bench->flow, 0.5f);
	assert_in_range(place_flow_wait_ns(bench->placer, bench->flow, CPU, bench->now_ns),
			alone_ns * 3 - 5, alone_ns * 3 + 5);
	/* A tenant's own contention counts only on the CPU. */
	placer_set_contention(bench->placer, GPU, 5, bench->now_ns);
	tasks[0].decision.device = GPU;
	place_dequeue(bench->placer, &tasks[0], bench->now_ns);
	place_enqueue(bench->placer, &tasks[0], bench->now_ns);
	alone_ns = place_flow_wait_ns(bench->placer, bench->flow, GPU, bench->now_ns);
	place_flow_set_own_contention(bench->flow, 1);
	assert_int_equal(place_flow_wait_ns(bench->placer, bench->flow, GPU, bench->now_ns),
			 alone_ns);
	for (unsigned int i = 0; i < 4; i++)
		place_dequeue(bench->placer, &tasks[i], bench->now_ns);
}

/* Queued tasks of other tenants move away from the contended CPU; the culprit's tasks stay. */
TEST(test_culprit__not_moved, setup, teardown)
{
	struct pair *pair = *state;
	struct placer_bench *bench = &pair->bench;
	const struct place_decision here = decide(bench, bench->flow, pair->count, 0);

	assert_int_equal(here.device, CPU);
	for (unsigned int is_culprit = 0; is_culprit < 2; is_culprit++) {
		struct place_task task =
					  {
						  .place_plan = bench->place_plan,
						  .flow = is_culprit ? pair->culprit : bench->flow,
						  .decision = here,
						  .count = pair->count,
						  .deadline_ns = UINT64_MAX,
					  },
				  running = task;

		/* The CPU is busy with another task. */
		placer_set_contention(bench->placer, CPU, 1, bench->now_ns);
		place_flow_set_own_contention(pair->culprit, 1);
		place_enqueue(bench->placer, &running, bench->now_ns);
		assert_ptr_equal(place_next(bench->placer, CPU, bench->now_ns), &running);
		place_enqueue(bench->placer, &task, bench->now_ns);
		bench->now_ns += (uint64_t)(here.predicted_ns * 0.99f);
		assert_int_equal(place_rebalance(bench->placer, bench->now_ns), 0);
		placer_set_contention(bench->placer, CPU, 50, bench->now_ns);
		bench->now_ns += 1000;
		place_rebalance(bench->placer, bench->now_ns);
		assert_int_equal(task.decision.device, is_culprit ? CPU : GPU);
		place_dequeue(bench->placer, &task, bench->now_ns);
		place_done(bench->placer, &running, PLACE_DONE, 1000, 0, bench->now_ns);
	}
}

TEST(test_share__invalid_values, setup, teardown)
{
	const float shares[] = {NAN, -1, -INFINITY, 1e30f, INFINITY};
	struct pair *pair = *state;
	struct placer_bench *bench = &pair->bench;

	placer_set_contention(bench->placer, CPU, 20, bench->now_ns);
	for (unsigned int i = 0; i < 5; i++) {
		struct place_decision decision;

		place_flow_set_own_contention(pair->culprit, shares[i]);
		decision = decide(bench, pair->culprit, pair->count, RBK_STRATEGY_AUTO);
		assert_int_equal(decision.device, i < 3 ? GPU : CPU);
		assert_true(decision.predicted_ns > 0);
	}
}

/* --- learning while contention rises, stays and falls --- */

static double alone_ns(const struct placer_bench *bench, uint8_t device, uint32_t count)
{
	return (double)place_predict_ns(bench->placer, bench->place_plan, device, count);
}

static double now_ns(struct placer_bench *bench, uint8_t device, uint32_t count)
{
	return (double)decide(bench, bench->flow, count, RBK_STRATEGY_DEVICE(device)).predicted_ns;
}

static struct place_report report(const struct placer_bench *bench, uint8_t device, uint32_t count)
{
	struct place_report report;

	place_plan_report(bench->placer, bench->place_plan, device, count, &report);
	return report;
}

#define assert_near(a, b, share) assert_near_(a, b, share, __LINE__)
static void assert_near_(double a, double b, double share, int line)
{
	if (!(fabs(a - b) <= share * b))
		fail_msg("line %d: %g is not within %g%% of %g", line, a, share * 100, b);
}

/* Tasks on one device: their time alone, how many times longer they take, and what is told. */
struct phase {
	struct placer_bench *bench;
	uint8_t device;
	uint32_t count;
	double task_ns, slowdown;
};

/*
 * Run tasks for @ns, at least @least of them, with contention told as @factor. From the @least-th
 * task on, both the learned time and the prediction must be right.
 */
static void run_phase(const struct phase *phase, float factor, double ns, unsigned int least,
		      bool is_checked)
{
	struct placer_bench *bench = phase->bench;
	const uint64_t end_ns = bench->now_ns + (uint64_t)ns;
	const double took_ns = phase->task_ns * phase->slowdown;

	placer_set_contention(bench->placer, phase->device, factor, bench->now_ns);
	for (unsigned int i = 0; i < least || bench->now_ns < end_ns; i++) {
		placer_bench_learn(bench, phase->device, phase->count,
				   took_ns * placer_bench_noise(bench, 0.05));
		if (!is_checked || i < least)
			continue;
		assert_near(alone_ns(bench, phase->device, phase->count), phase->task_ns, 0.2);
		assert_near(now_ns(bench, phase->device, phase->count), took_ns, 0.3);
	}
}

/*
 * Tasks take ten times as long for a second. That is told 20 ms late, and for 500 ms after its end.
 */
TEST(test_learned__contention_comes_and_goes)
{
	static const double tasks_ns[] = {50e3, 1e6, 8e6, 60e6};
	enum { ADAPT = 8 };

	for (uint8_t device = CPU; device <= GPU; device++)
		for (size_t i = 0; i < ARRAY_SIZE(tasks_ns); i++) {
			struct placer_bench bench;
			struct phase phase = {&bench, device, 2048, tasks_ns[i], 1};

			placer_bench_init(&bench, 2, NULL);
			run_phase(&phase, 1, 1e9, ADAPT, true);
			for (unsigned int n = 0; n < 3; n++) {
				phase.slowdown = 10;
				run_phase(&phase, 1, 20e6, 0, false);
				run_phase(&phase, 10, 1e9, ADAPT, true);
				phase.slowdown = 1;
				run_phase(&phase, 10, 500e6, ADAPT, true);
				run_phase(&phase, 1, 1e9, ADAPT, true);
				assert_true(report(&bench, device, 2048).is_trusted);
			}
			placer_bench_deinit(&bench);
		}
}

/* Contention grows and shrinks by steps, each known at once. */
TEST(test_learned__contention_by_steps)
{
	static const float factors[] = {1, 1.2f, 2, 3, 5, 10, 10, 6, 3, 1.5f, 1};

	PLACER_BENCH(bench, 2, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(factors); i++) {
		const struct phase phase = {&bench, CPU, 2048, 1e6, (double)factors[i]};

		run_phase(&phase, factors[i], 200e6, 8, true);
	}
}

/* The factor jumps about, and tasks feel none of it, as on the reactor, or a part of it. */
TEST(test_felt__less_than_told)
{
	static const double shares[] = {0, 0.1, 0.5};

	for (size_t i = 0; i < ARRAY_SIZE(shares); i++) {
		struct placer_bench bench;
		float factor;

		placer_bench_init(&bench, 2, NULL);
		for (unsigned int n = 0; n < 20; n++)
			placer_bench_learn(&bench, CPU, 64, 3000);
		for (unsigned int n = 0; n < 500; n++) {
			factor = 5 + (float)placer_bench_random(&bench, 56);
			placer_set_contention(bench.placer, CPU, factor, bench.now_ns);
			if (n >= 8)
				assert_near(now_ns(&bench, CPU, 64),
					    3000 * (1 + ((double)factor - 1) * shares[i]), 0.3);
			placer_bench_learn(&bench, CPU, 64,
					   3000 * (1 + ((double)factor - 1) * shares[i]));
			assert_near(alone_ns(&bench, CPU, 64), 3000, 0.1);
		}
		/* Contention comes again: tasks are expected to feel all of it. */
		placer_set_contention(bench.placer, CPU, 1, bench.now_ns);
		for (unsigned int n = 0; n < 40; n++)
			placer_bench_learn(&bench, CPU, 64, 3000);
		placer_set_contention(bench.placer, CPU, 10, bench.now_ns);
		assert_near(now_ns(&bench, CPU, 64), 30000, 0.1);
		placer_bench_deinit(&bench);
	}
}

/* The report's figures are those of decisions. */
TEST(test_felt__reported)
{
	struct place_report seen;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int n = 0; n < 20; n++)
		placer_bench_learn(&bench, CPU, 2048, 1e6);
	placer_set_contention(bench.placer, CPU, 8, bench.now_ns);
	for (unsigned int n = 0; n < 20; n++) {
		seen = report(&bench, CPU, 2048);
		assert_near(seen.exec_ns * seen.contention, now_ns(&bench, CPU, 2048), 1e-5);
		placer_bench_learn(&bench, CPU, 2048, 3e6);
	}
	assert_near(seen.contention, 3, 0.1);
	assert_near(seen.exec_ns, 1e6, 0.05);
}

/* One task that takes very long under contention, or hardly any time, changes nothing. */
TEST(test_felt__outliers)
{
	static const double outliers_ns[] = {1e9, 20e6, 1e6, 1000};

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int n = 0; n < 50; n++)
		placer_bench_learn(&bench, CPU, 2048, 1e6 * placer_bench_noise(&bench, 0.05));
	placer_set_contention(bench.placer, CPU, 5, bench.now_ns);
	for (unsigned int n = 0; n < 200; n++) {
		placer_bench_learn(&bench, CPU, 2048,
				   n % 12 == 11 ? outliers_ns[n / 12 % 4]
						: 5e6 * placer_bench_noise(&bench, 0.05));
		assert_near(alone_ns(&bench, CPU, 2048), 1e6, 0.2);
		assert_near(now_ns(&bench, CPU, 2048), 5e6, 0.3);
	}
	assert_true(report(&bench, CPU, 2048).is_trusted);
}

/* Work that waits is prolonged by what tasks were seen to feel, not by the factor that is told. */
TEST(test_felt__waits)
{
	struct place_task task;
	uint64_t wait_ns;

	PLACER_BENCH(bench, 2, NULL);
	placer_bench_trust(&bench, 2048);
	task = (struct place_task){
		.place_plan = bench.place_plan,
		.flow = bench.flow,
		.count = 2048,
		.deadline_ns = UINT64_MAX,
	};
	place_enqueue(bench.placer, &task, bench.now_ns);
	wait_ns = place_flow_wait_ns(bench.placer, bench.flow, CPU, bench.now_ns);
	placer_set_contention(bench.placer, CPU, 50, bench.now_ns);
	assert_in_range(place_flow_wait_ns(bench.placer, bench.flow, CPU, bench.now_ns),
			wait_ns * 49, wait_ns * 51);
	for (unsigned int n = 0; n < 200; n++)
		placer_bench_learn(&bench, CPU, 2048, alone_ns(&bench, CPU, 2048) * 2);
	wait_ns = place_flow_wait_ns(bench.placer, bench.flow, CPU, bench.now_ns) / wait_ns;
	assert_in_range(wait_ns, 1, 3);
	place_dequeue(bench.placer, &task, bench.now_ns);
}

/* A change that contention explains is undone, whether or not more tasks run there. */
TEST(test_undo__change_before_contention_was_known)
{
	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int n = 0; n < 50; n++) {
		placer_bench_learn(&bench, CPU, 64, 50e3);
		placer_bench_learn(&bench, CPU, 4096, 3e6);
	}
	for (unsigned int n = 0; n < 20; n++) {
		placer_bench_learn(&bench, CPU, 64, 500e3);
		if (n % 10 == 0)
			placer_bench_learn(&bench, CPU, 4096, 30e6);
	}
	assert_near(alone_ns(&bench, CPU, 64), 500e3, 0.1);
	placer_set_contention(bench.placer, CPU, 10, bench.now_ns);
	assert_near(alone_ns(&bench, CPU, 64), 50e3, 0.1);
	assert_near(alone_ns(&bench, CPU, 4096), 3e6, 0.1);
	/* A change long before contention stays. */
	placer_set_contention(bench.placer, CPU, 1, bench.now_ns);
	for (unsigned int n = 0; n < 500; n++)
		placer_bench_learn(&bench, CPU, 64, 500e3);
	placer_set_contention(bench.placer, CPU, 10, bench.now_ns);
	assert_near(alone_ns(&bench, CPU, 64), 500e3, 0.1);
	placer_set_contention(bench.placer, CPU, 1, bench.now_ns);
	/* A change to shorter times stays, too; and no freed plan is touched. */
	for (unsigned int n = 0; n < 10; n++)
		placer_bench_learn(&bench, CPU, 64, 50e3);
	placer_set_contention(bench.placer, CPU, 10, bench.now_ns);
	assert_near(alone_ns(&bench, CPU, 64), 50e3, 0.1);
	placer_set_contention(bench.placer, CPU, 1, bench.now_ns);
	for (unsigned int n = 0; n < 10; n++)
		placer_bench_learn(&bench, CPU, 64, 500e3);
	placer_bench_renew(&bench);
	placer_set_contention(bench.placer, CPU, 10, bench.now_ns);
	placer_bench_learn(&bench, CPU, 64, 500e3);
}

/* A change that nothing followed is no recent one for that. */
TEST(test_undo__idle_between_change_and_contention)
{
	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int n = 0; n < 50; n++)
		placer_bench_learn(&bench, CPU, 64, 50e3);
	for (unsigned int n = 0; n < 20; n++)
		placer_bench_learn(&bench, CPU, 64, 500e3);
	bench.now_ns += 3600ull * 1000000000;
	placer_set_contention(bench.placer, CPU, 10, bench.now_ns);
	assert_near(alone_ns(&bench, CPU, 64), 500e3, 0.1);
}

/*
 * A software GPU that is known to take 40 ms runs some requested tasks while others keep the
 * processors busy. It must not look better than the CPU's 3 ms afterwards, nor meanwhile.
 */
TEST(test_far_worse__is_not_chosen)
{
	const struct place_request request = {.count = 4096};
	struct place_decision decision;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int n = 0; n < 50; n++) {
		placer_bench_learn(&bench, CPU, 4096, 3e6);
		placer_bench_learn(&bench, GPU, 4096, 40e6);
	}
	for (unsigned int n = 0; n < 300; n++) {
		float factor = n < 200 ? 10 + (float)placer_bench_random(&bench, 51) : 1;

		if (n < 200 && n % 4 == 0)
			factor = 60;
		placer_set_contention(bench.placer, CPU, factor, bench.now_ns);
		placer_set_contention(bench.placer, GPU, factor, bench.now_ns);
		bench.place_plan->wish_bucket = UINT16_MAX;
		decision = place_decide(bench.placer, bench.place_plan, bench.flow, request,
					bench.now_ns);
		assert_int_equal(decision.device, CPU);
		placer_bench_learn(&bench, CPU, 4096, n < 200 ? 3.6e6 : 3e6);
		if (n < 200 && n % 4 == 0)
			placer_bench_learn(&bench, GPU, 4096, 125e6);
	}
}

/* --- trust --- */

TEST(test_trust__as_the_error_says)
{
	struct place_report seen;
	unsigned int n_lost = 0, n = 0;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 20; i++)
		placer_bench_learn(&bench, CPU, 2048, 1e6);
	seen = report(&bench, CPU, 2048);
	assert_true(seen.is_trusted && seen.mean_error < 0.01);
	/* Any of three times, a hundred times apart: there is no good prediction. */
	for (unsigned int i = 0; i < 500; i++) {
		placer_bench_learn(&bench, CPU, 2048, pow(10, 5 + placer_bench_random(&bench, 3)));
		seen = report(&bench, CPU, 2048);
		assert_int_equal(seen.is_trusted, seen.mean_error <= 0.5);
		/* A neighbour's estimate is of the same plan. */
		assert_false(report(&bench, CPU, 2048 + 1024).is_trusted && !seen.is_trusted);
		n_lost += !seen.is_trusted;
	}
	assert_true(n_lost > 200);
	do {
		placer_bench_learn(&bench, CPU, 2048, 1e6);
		seen = report(&bench, CPU, 2048);
		assert_int_equal(seen.is_trusted, seen.mean_error <= 0.5);
	} while (!seen.is_trusted && ++n < 1000);
	assert_in_range(n, 5, 100);
	/* One outlier is no reason. */
	for (unsigned int i = 0; i < 100; i++)
		placer_bench_learn(&bench, CPU, 2048, 1e6);
	placer_bench_learn(&bench, CPU, 2048, 1e9);
	assert_true(report(&bench, CPU, 2048).is_trusted);
	placer_bench_learn(&bench, CPU, 2048, 1);
	assert_true(report(&bench, CPU, 2048).is_trusted);
	/* The error begins with the learned times: how wrong the profile was does not matter. */
	for (unsigned int i = 0; i < PLACE_TRUST + 1; i++)
		placer_bench_learn(&bench, GPU, 2048, 1e9);
	seen = report(&bench, GPU, 2048);
	assert_true(seen.is_trusted && seen.mean_error < 0.01);
}

/* --- fewer workers --- */

/*
 * Begin a bench with four CPU workers. All four share a long task if @shares, else a task has one
 * worker.
 */
static void bench_of_workers(struct placer_bench *bench, bool shares)
{
	struct place_profile profiles[] = {placer_bench_profile(8, 500),
					   placer_bench_profile(64, 10000)};

	profiles[CPU].n_servers = 4;
	profiles[CPU].n_servers_per_task = shares ? 4 : 1;
	placer_bench_init(bench, 2, profiles);
}

static float on_cpu_ns(struct placer_bench *bench)
{
	return decide(bench, bench->flow, LARGE, RBK_STRATEGY_ONLY_CPU).predicted_ns;
}

TEST(test_workers__fewer)
{
	for (unsigned int shares = 0; shares < 2; shares++) {
		struct placer_bench bench;
		struct place_task task;
		float all_ns, work_ns;
		uint64_t wait_ns;

		bench_of_workers(&bench, shares);
		task = (struct place_task){
			.place_plan = bench.place_plan,
			.flow = bench.flow,
			.count = LARGE,
			.deadline_ns = UINT64_MAX,
		};
		all_ns = on_cpu_ns(&bench);
		work_ns = place_work_ns(bench.placer, bench.place_plan, CPU, LARGE);
		assert_true(fabsf(work_ns / all_ns - (shares ? 4 : 1)) < 0.1f);
		place_enqueue(bench.placer, &task, bench.now_ns);
		wait_ns = place_flow_wait_ns(bench.placer, bench.flow, CPU, bench.now_ns);
		for (uint32_t n = 4; n > 0; n--) {
			placer_limit_servers(bench.placer, CPU, n);
			assert_true(fabsf(on_cpu_ns(&bench) / all_ns / (shares ? 4.0f / n : 1) -
					  1) < 0.1f);
			assert_in_range(
				place_flow_wait_ns(bench.placer, bench.flow, CPU, bench.now_ns),
				wait_ns * 4 / n * 99 / 100, wait_ns * 4 / n * 101 / 100);
			assert_true(place_work_ns(bench.placer, bench.place_plan, CPU, LARGE) ==
				    work_ns);
		}
		/* With both contention and one worker, a task gets half of the worker's time. */
		placer_set_contention(bench.placer, CPU, 2, bench.now_ns);
		assert_true(fabsf(on_cpu_ns(&bench) / all_ns / (shares ? 8 : 2) - 1) < 0.1f);
		placer_set_contention(bench.placer, CPU, 1, bench.now_ns);
		placer_set_profile(bench.placer, CPU, placer_profile(bench.placer, CPU));
		assert_int_equal(bench.placer->devices[CPU].queue.n_servers, 1);
		placer_limit_servers(bench.placer, CPU, 0);
		assert_true(on_cpu_ns(&bench) == all_ns);
		placer_limit_servers(bench.placer, CPU, 99);
		assert_true(on_cpu_ns(&bench) == all_ns);
		placer_limit_servers(bench.placer, RBK_DEVICE_NONE, 1);
		place_dequeue(bench.placer, &task, bench.now_ns);
		placer_bench_deinit(&bench);
	}
}

/*
 * One task is released per worker in use. Tasks released before the limit was lowered are no
 * problem.
 */
TEST(test_workers__released)
{
	struct place_task tasks[12];
	struct placer_bench bench;
	uint32_t n_released = 0, n;

	bench_of_workers(&bench, false);
	for (unsigned int i = 0; i < 12; i++) {
		tasks[i] = (struct place_task){
			.place_plan = bench.place_plan,
			.flow = bench.flow,
			.count = LARGE,
			.deadline_ns = UINT64_MAX,
		};
		place_enqueue(bench.placer, &tasks[i], bench.now_ns);
	}
	while (place_next(bench.placer, CPU, bench.now_ns))
		n_released++;
	assert_in_range(n_released, 4, 8);
	placer_limit_servers(bench.placer, CPU, 1);
	assert_null(place_next(bench.placer, CPU, bench.now_ns));
	for (unsigned int i = 0; i < n_released; i++) {
		bench.now_ns += 1000000;
		place_done(bench.placer, &tasks[i], PLACE_DONE, 1000000, 1000000, bench.now_ns);
	}
	for (n = 0; place_next(bench.placer, CPU, bench.now_ns); n++)
		;
	assert_in_range(n, 1, 2);
	placer_limit_servers(bench.placer, CPU, 4);
	while (place_next(bench.placer, CPU, bench.now_ns))
		n++;
	assert_in_range(n, 4, 8);
	for (unsigned int i = n_released; i < 12; i++) {
		if (tasks[i].state == PLACE_RELEASED)
			place_done(bench.placer, &tasks[i], PLACE_DONE, 1000000, 1000000,
				   bench.now_ns);
		else
			place_dequeue(bench.placer, &tasks[i], bench.now_ns);
	}
	placer_bench_deinit(&bench);
}

/* The number of workers that share a task is not learned while fewer workers are in use. */
TEST(test_workers__learned)
{
	struct placer_bench bench;
	float all_ns, work_ns;

	bench_of_workers(&bench, true);
	all_ns = on_cpu_ns(&bench);
	work_ns = place_work_ns(bench.placer, bench.place_plan, CPU, LARGE);
	placer_limit_servers(bench.placer, CPU, 1);
	for (unsigned int i = 0; i < 200; i++) {
		bench.now_ns += (uint64_t)work_ns;
		place_learn(bench.placer, bench.place_plan, CPU, LARGE, PLACE_DONE,
			    (uint64_t)work_ns, (uint64_t)work_ns, bench.now_ns);
	}
	placer_limit_servers(bench.placer, CPU, 4);
	assert_true(fabsf(on_cpu_ns(&bench) / all_ns - 1) < 0.05f);
	placer_bench_deinit(&bench);
}

/*
 * With all workers and no contention the CPU would be faster: the GPU takes 1.5 times as long. If
 * the CPU falls behind, through fewer workers or longer tasks, the reason is contention.
 */
TEST(test_workers__reason)
{
	struct placer_bench bench;
	struct place_decision decision;
	float all_ns;

	bench_of_workers(&bench, true);
	all_ns = on_cpu_ns(&bench);
	for (unsigned int i = 0; i < PLACE_TRUST * 4; i++) {
		placer_bench_learn(&bench, CPU, LARGE, all_ns);
		placer_bench_learn(&bench, GPU, LARGE, all_ns * 1.5);
	}
	assert_int_equal(decide(&bench, bench.flow, LARGE, RBK_STRATEGY_AUTO).device, CPU);
	for (unsigned int i = 0; i < 8; i++) {
		const uint8_t strategy = i % 2 ? RBK_STRATEGY_LATENCY : RBK_STRATEGY_AUTO;

		placer_limit_servers(bench.placer, CPU, 1 + i / 2);
		placer_set_contention(bench.placer, CPU, i / 2 == 3 ? 3 : 1.25f, bench.now_ns);
		decision = decide(&bench, bench.flow, LARGE, strategy);
		if (i / 2 == 2) /* three of four workers: not slow enough */
			continue;
		assert_fields(decision, (device, GPU), (reason, RBK_REASON_CONTENTION));
	}
	placer_bench_deinit(&bench);
}

static void release_one(struct placer_bench *bench, struct place_task *task, uint8_t flags,
			float other_ns)
{
	*task = (struct place_task){
		.place_plan = bench->place_plan,
		.flow = bench->flow,
		.count = 1,
		.deadline_ns = UINT64_MAX,
		.decision = {.flags = flags, .other_ns = other_ns},
	};
	place_enqueue(bench->placer, task, bench->now_ns);
	assert_ptr_equal(place_next(bench->placer, CPU, bench->now_ns), task);
}

static void end_one(struct placer_bench *bench, struct place_task *task)
{
	bench->now_ns += 1000;
	place_done(bench->placer, task, PLACE_DONE, 1000, 1000, bench->now_ns);
}

/*
 * A device's workers are needed for a task that no other device can run: while the task is there,
 * and once afterwards.
 */
TEST(test_workers__needed)
{
	static const struct {
		uint8_t flags;
		float other_ns;
		bool is_needed;
	} cases[] = {
		{0, 0, true},
		{0, 5, false},
		{PLACE_BOUND, 5, true},
		{PLACE_BOUND, 0, true},
		{PLACE_BOUND | PLACE_EXPLORES, 5, false},
	};
	struct placer_bench bench;

	bench_of_workers(&bench, false);
	assert_false(placer_is_needed(bench.placer, CPU));
	assert_false(placer_is_needed(bench.placer, RBK_DEVICE_NONE));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const bool is_needed = cases[i].is_needed;
		struct place_task tasks[2];

		release_one(&bench, &tasks[0], cases[i].flags, cases[i].other_ns);
		end_one(&bench, &tasks[0]);
		assert_int_equal(placer_is_needed(bench.placer, CPU), is_needed);
		assert_false(placer_is_needed(bench.placer, CPU));

		release_one(&bench, &tasks[0], cases[i].flags, cases[i].other_ns);
		release_one(&bench, &tasks[1], 0, 5);
		for (unsigned int j = 0; j < 3; j++)
			assert_int_equal(placer_is_needed(bench.placer, CPU), is_needed);
		end_one(&bench, &tasks[0]);
		assert_false(placer_is_needed(bench.placer, CPU));
		/* A decision that changes after the task was released does not count. */
		tasks[1].decision.other_ns = 0;
		assert_false(placer_is_needed(bench.placer, CPU));
		place_put_back(bench.placer, &tasks[1], bench.now_ns);
		place_dequeue(bench.placer, &tasks[1], bench.now_ns);
		assert_false(placer_is_needed(bench.placer, GPU));
	}
	placer_bench_deinit(&bench);
}

/* With LATENCY, the accepted delay grows with the contention, so contention stays the reason. */
TEST(test_latency__reason)
{
	struct place_decision decision;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 200; i++) {
		placer_bench_learn(&bench, CPU, 2048, i % 2 ? 1150000 : 650000);
		placer_bench_learn(&bench, GPU, 2048, 2500000);
	}
	decision = decide(&bench, bench.flow, 2048, RBK_STRATEGY_LATENCY);
	assert_fields(decision, (device, CPU), (reason, RBK_REASON_COST_MODEL));
	for (float factor = 4; factor < 100; factor *= 2) {
		placer_set_contention(bench.placer, CPU, factor, bench.now_ns);
		decision = decide(&bench, bench.flow, 2048, RBK_STRATEGY_LATENCY);
		assert_fields(decision, (device, GPU), (reason, RBK_REASON_CONTENTION));
	}
}
