/* SPDX-License-Identifier: MIT */
/* Estimates: priors, what they learn and how fast, robustness; exploration */
#include <math.h>

#include "placer-bench.h"
#include "support/test.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU, GPU2 = BENCH_GPU2 };

static double predict(const struct placer_bench *bench, uint8_t device, uint32_t count)
{
	return (double)place_predict_ns(bench->placer, bench->place_plan, device, count);
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
	if (!(fabs(a - b) <= share * fabs(b)))
		fail_msg("line %d: %g is not within %g%% of %g", line, a, share * 100, b);
}

/* --- priors --- */

TEST(test_prior__sum_of_the_model)
{
	double bytes;

	PLACER_BENCH(bench, 2, NULL);
	for (uint32_t count = 1; count <= 1u << 20; count *= 4) {
		bytes = 1024.0 * count;
		assert_near(predict(&bench, CPU, count), 500 + bytes / 8, 1e-5);
		/* The transfer to the device and back counts. */
		assert_near(predict(&bench, GPU, count), 10000 + bytes / 64 + bytes / 32, 1e-5);
		/* The prior is a straight line between these counts. */
		assert_near(predict(&bench, CPU, count + count / 3),
			    500 + 1024.0 * (count + count / 3) / 8, 1e-5);
	}
	/* States are transferred both ways. */
	bench.plan.tensors = (struct tensor[]){{.kind = RBK_TENSOR_STATE}};
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 1024), 10000 + 1048576.0 / 64 + 1.5 * 1048576 / 32, 1e-5);
	/* Each submission has a start-up cost. */
	bench.plan.n_parts[GPU] = 5;
	bench.plan.tensors = NULL;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 1024), 50000 + 1048576.0 / 64 + 1048576.0 / 32, 1e-5);
}

/* Return what a task takes of the CPU's time. */
static double share(const struct placer_bench *bench, uint32_t count)
{
	return (double)place_share_ns(bench->placer, bench->place_plan, CPU, count);
}

TEST(test_prior__servers_share)
{
	struct place_profile profile = placer_bench_profile(1, 0);

	profile.n_servers = 8;
	profile.n_servers_per_task = 4;
	profile.share_min_ns = 50000;
	PLACER_BENCH(bench, 1, &profile);
	/* Too short to be shared; shared by some servers; shared by all. */
	assert_near(predict(&bench, CPU, 32), 32768, 1e-5);
	assert_near(predict(&bench, CPU, 128), 50000, 1e-5);
	assert_near(predict(&bench, CPU, 1024), 1048576 / 4, 1e-5);
	assert_near((double)place_work_ns(bench.placer, bench.place_plan, CPU, 1024), 1048576,
		    1e-5);
	assert_near(share(&bench, 1024), 1048576 / 8, 1e-5);
	/* Two servers are all there is. */
	placer_limit_servers(bench.placer, CPU, 2);
	assert_near(share(&bench, 1024), 1048576 / 2, 1e-5);
}

TEST(test_prior__better_profile)
{
	struct place_profile profile = placer_bench_profile(16, 500);

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 10; i++)
		placer_bench_learn(&bench, CPU, 4096, 700000);
	placer_set_profile(bench.placer, CPU, &profile);
	/* Learned estimates stay; a new plan gets the new profile's prior. */
	assert_near(predict(&bench, CPU, 4096), 700000, 0.02);
	placer_bench_renew(&bench);
	assert_near(predict(&bench, CPU, 4096), 500 + 4194304.0 / 16, 1e-5);
	assert_true(placer_profile(bench.placer, CPU)->task_ns == 500);
}

/* Random profiles with flat rates and random plans: more rows never take less time. */
TEST(test_prior__monotone)
{
	struct place_profile profiles[2];
	struct placer_bench bench;
	double last, ns;

	for (unsigned int n = 0; n < 200; n++) {
		placer_bench_init(&bench, 1, NULL);
		bench.random += n * 977;
		for (unsigned int i = 0; i < 2; i++) {
			profiles[i] = placer_bench_profile(
				(float)exp2(placer_bench_random(&bench, 24)) / 256,
				(float)placer_bench_random(&bench, 100000));
			profiles[i].n_servers = 1 + placer_bench_random(&bench, 64);
			profiles[i].n_servers_per_task =
				1 + placer_bench_random(&bench, profiles[i].n_servers);
			profiles[i].share_min_ns = (float)placer_bench_random(&bench, 1000000);
			profiles[i].up_bytes_per_ns = profiles[i].down_bytes_per_ns =
				(float)placer_bench_random(&bench, 3);
		}
		placer_bench_deinit(&bench);
		placer_bench_init(&bench, 2, profiles);
		bench.random += n;
		bench.node.op =
			op_by_kind((enum op_kind)placer_bench_random(&bench, OP_KIND_COUNT));
		bench.node.cost = (struct cost){
			.flops_fixed = placer_bench_random(&bench, 1u << 30),
			.flops_row = placer_bench_random(&bench, 1u << 20),
			.bytes_fixed = placer_bench_random(&bench, 1u << 30),
			.bytes_row = placer_bench_random(&bench, 1u << 20),
		};
		placer_bench_renew(&bench);
		for (uint8_t device = 0; device < 2; device++) {
			last = 0;
			for (uint64_t count = 1; count < 1u << 31; count += count / 5 + 1) {
				ns = predict(&bench, device, (uint32_t)count);
				assert_true(ns > 0 && isfinite(ns));
				assert_true(ns >= last * (1 - 1e-5));
				last = ns;
			}
		}
		placer_bench_deinit(&bench);
	}
}

/* --- learning --- */

TEST(test_learn__trusted_soon)
{
	PLACER_BENCH(bench, 2, NULL);
	assert_false(report(&bench, CPU, 1000).is_trusted);
	for (unsigned int i = 0; i < PLACE_TRUST; i++) {
		assert_false(report(&bench, CPU, 1000).is_trusted);
		placer_bench_learn(&bench, CPU, 1000, 5e6);
	}
	assert_true(report(&bench, CPU, 1000).is_trusted);
	assert_false(report(&bench, GPU, 1000).is_trusted);
	assert_near(predict(&bench, CPU, 1000), 5e6, 0.01);
	/* Counts nearby become trusted, too. The learned ratio applies to all other counts. */
	assert_true(report(&bench, CPU, 1400).is_trusted);
	assert_false(report(&bench, CPU, 100000).is_trusted);
	assert_near(predict(&bench, CPU, 100000), 500e6, 0.01);
}

TEST(test_learn__interpolates_counts)
{
	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 10; i++) {
		placer_bench_learn(&bench, CPU, 1024, 1e6);
		placer_bench_learn(&bench, CPU, 16384, 64e6);
	}
	/*
	 * The larger count takes four times as long per row. Counts between the two are
	 * interpolated.
	 */
	for (uint32_t count = 2048; count < 16384; count += 512) {
		double ns = predict(&bench, CPU, count), row = 1e6 / 1024;

		assert_true(ns > row * count * 1.01 && ns < 4.05 * row * count);
	}
}

TEST(test_learn__noise)
{
	struct place_report seen;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 300; i++)
		placer_bench_learn(&bench, CPU, 512, 3e6 * placer_bench_noise(&bench, 0.1));
	seen = report(&bench, CPU, 512);
	assert_near(seen.exec_ns, 3e6, 0.04);
	assert_near(seen.mean_ns, 3e6, 0.04);
	assert_true(seen.spread > 0.07 && seen.spread < 0.13);
	assert_true(seen.mean_error > 0.04 && seen.mean_error < 0.12);
	assert_int_equal(seen.n_done, 300);
}

/* A task is without a processor for 20 ms now and then, also among the first tasks. */
TEST(test_learn__outliers)
{
	struct placer_bench bench;

	for (unsigned int first = 0; first < 3; first++) {
		placer_bench_init(&bench, 2, NULL);
		for (unsigned int i = 0; i < 200; i++) {
			bool is_outlier = i % 12 == first;

			placer_bench_learn(&bench, CPU, 512,
					   1e5 * placer_bench_noise(&bench, 0.05) +
						   (is_outlier ? 2e7 : 0));
			if (i > 2)
				assert_near(predict(&bench, CPU, 512), 1e5, 0.2);
		}
		placer_bench_deinit(&bench);
	}
}

/* Return the number of tasks of @count rows, of @ns each, until the estimate is right again. */
static unsigned int tasks_to_follow(struct placer_bench *bench, uint32_t count, double ns)
{
	unsigned int n = 0;

	while (fabs(predict(bench, CPU, count) / ns - 1) > 0.1 && n < 1000) {
		placer_bench_learn(bench, CPU, count, ns * placer_bench_noise(bench, 0.05));
		n++;
	}
	return n;
}

TEST(test_learn__three_times_faster_or_slower)
{
	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 500; i++)
		placer_bench_learn(&bench, CPU, 512, 1e6 * placer_bench_noise(&bench, 0.1));
	assert_in_range(tasks_to_follow(&bench, 512, 3e6), 2, 10);
	for (unsigned int i = 0; i < 100; i++)
		placer_bench_learn(&bench, CPU, 512, 3e6 * placer_bench_noise(&bench, 0.1));
	assert_in_range(tasks_to_follow(&bench, 512, 1e6), 2, 10);
}

/* Tasks of many counts: a change seen at a few counts applies to all. */
TEST(test_learn__change_applies_to_all_counts)
{
	uint32_t count;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 2000; i++) {
		count = 1 +
			placer_bench_random(&bench, 1u << (1 + placer_bench_random(&bench, 14)));
		placer_bench_learn(&bench, CPU, count,
				   (500 + 1000.0 * count) * placer_bench_noise(&bench, 0.1));
	}
	for (unsigned int i = 0; i < 25; i++) {
		count = 1 +
			placer_bench_random(&bench, 1u << (1 + placer_bench_random(&bench, 14)));
		placer_bench_learn(&bench, CPU, count,
				   3 * (500 + 1000.0 * count) * placer_bench_noise(&bench, 0.1));
	}
	for (count = 1; count <= 1u << 14; count *= 2)
		assert_near(predict(&bench, CPU, count), 3 * (500 + 1000.0 * count), 0.3);
}

/* From a certain count on the data exceeds a cache, which no profile describes. */
TEST(test_learn__step_at_cache_size)
{
	double worst = 0, error;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 4000; i++) {
		uint32_t count = 1 + placer_bench_random(&bench, 8192);
		double ns = (count > 3000 ? 250.0 : 100.0) * count;

		if (i > 2000 && (count < 2000 || count > 4100)) {
			error = fabs(predict(&bench, CPU, count) / ns - 1);
			if (count > 300 && error > worst)
				worst = error;
		}
		placer_bench_learn(&bench, CPU, count, ns * placer_bench_noise(&bench, 0.02));
	}
	assert_true(worst < 0.15);
}

/* Eight servers, four per task: a task alone is shared by four, a task among others by fewer. */
TEST(test_learn__work_and_servers)
{
	struct place_profile profiles[2] = {placer_bench_profile(8, 500),
					    placer_bench_profile(64, 10000)};
	struct place_decision decision;
	struct place_queue *queue;

	profiles[0].n_servers = 8;
	profiles[0].n_servers_per_task = 4;
	profiles[0].share_min_ns = 10000;
	PLACER_BENCH(bench, 2, profiles);
	queue = &bench.placer->devices[CPU].queue;
	for (unsigned int i = 0; i < 50; i++)
		place_learn(bench.placer, bench.place_plan, CPU, 8192, PLACE_DONE, 1000000, 3000000,
			    bench.now_ns += 1000000);
	assert_near(predict(&bench, CPU, 8192), 1e6, 0.02);
	assert_near((double)place_work_ns(bench.placer, bench.place_plan, CPU, 8192), 3e6, 0.02);
	decision = placer_bench_decide(&bench, 8192, RBK_STRATEGY_ONLY_CPU);
	assert_near((double)decision.predicted_ns, 1e6, 0.02);

	/* Other tasks leave five servers free, then two, then two but soon all. */
	queue->n_released = queue->running_slots = 3;
	queue->running_ns = 80000000;
	queue->running_since = 3 * bench.now_ns;
	decision = placer_bench_decide(&bench, 8192, RBK_STRATEGY_ONLY_CPU);
	assert_near((double)decision.predicted_ns, 1e6, 0.02);
	queue->running_slots = 6;
	queue->running_since = 6 * bench.now_ns;
	decision = placer_bench_decide(&bench, 8192, RBK_STRATEGY_ONLY_CPU);
	assert_near((double)decision.predicted_ns, 1.5e6, 0.02);
	queue->running_ns = 800000;
	decision = placer_bench_decide(&bench, 8192, RBK_STRATEGY_ONLY_CPU);
	assert_near((double)decision.predicted_ns, 1.1e6, 0.05);
	/*
	 * Among other tasks it takes longer. These times do not change the estimate for a task
	 * alone, even if the task ended last.
	 */
	for (unsigned int i = 0; i < 50; i++) {
		queue->n_released = i % 2;
		bench.now_ns += 100000;
		place_learn(bench.placer, bench.place_plan, CPU, 8192, PLACE_DONE, 3000000, 3000000,
			    bench.now_ns);
	}
	queue->n_released = queue->running_slots = 0;
	assert_near(predict(&bench, CPU, 8192), 1e6, 0.02);
	assert_near((double)place_work_ns(bench.placer, bench.place_plan, CPU, 8192), 3e6, 0.02);
	/* The same time, measured alone, changes the estimate. */
	for (unsigned int i = 0; i < 50; i++)
		place_learn(bench.placer, bench.place_plan, CPU, 8192, PLACE_DONE, 1500000, 3000000,
			    bench.now_ns += 1500000);
	assert_near(predict(&bench, CPU, 8192), 1.5e6, 0.02);
}

/* Contention does not make a device's estimate slower. */
TEST(test_learn__contention)
{
	PLACER_BENCH(bench, 2, NULL);
	placer_set_contention(bench.placer, CPU, 4, bench.now_ns);
	for (unsigned int i = 0; i < 20; i++)
		placer_bench_learn(&bench, CPU, 512, 4e6);
	assert_near(predict(&bench, CPU, 512), 1e6, 0.01);
	assert_near((double)placer_bench_decide(&bench, 512, RBK_STRATEGY_ONLY_CPU).predicted_ns,
		    4e6, 0.01);
}

/* Estimates stay finite, whatever times are observed and whatever the clock says. */
TEST(test_learn__hostile)
{
	static const uint64_t times_ns[] = {0,          1,          2,          1000,
					    1u << 31,   1ull << 53, UINT64_MAX, UINT64_MAX - 1,
					    1ull << 63, 1000000};
	struct place_device_report device_report;
	struct place_decision decision;
	struct place_report seen;

	PLACER_BENCH(bench, 3, NULL);
	for (unsigned int i = 0; i < 100000; i++) {
		uint32_t count =
			placer_bench_random(&bench, UINT32_MAX) >> placer_bench_random(&bench, 32);
		uint8_t device = (uint8_t)placer_bench_random(&bench, 4);
		struct place_request request = {
			.count = count,
			.strategy = (uint8_t)placer_bench_random(&bench, RBK_STRATEGY_COUNT),
			.flags = (uint8_t)placer_bench_random(&bench, 4),
			.deadline_ns = times_ns[placer_bench_random(&bench, 10)],
		};

		if (i % 1000 == 0)
			placer_reset_device(bench.placer, GPU);
		if (i % 777 == 0)
			placer_set_contention(bench.placer, device, (float)times_ns[i % 10],
					      bench.now_ns);
		place_learn(bench.placer, bench.place_plan, device, count,
			    i % 50 ? PLACE_DONE : (enum place_result)placer_bench_random(&bench, 3),
			    times_ns[placer_bench_random(&bench, 10)],
			    times_ns[placer_bench_random(&bench, 10)],
			    times_ns[placer_bench_random(&bench, 10)]);
		decision = place_decide(bench.placer, bench.place_plan, bench.flow, request,
					times_ns[placer_bench_random(&bench, 10)]);
		if (decision.device != RBK_DEVICE_NONE) {
			assert_true(decision.device < 3);
			assert_true(isfinite(decision.predicted_ns) && decision.predicted_ns > 0);
			assert_true(isfinite(decision.other_ns) && decision.other_ns >= 0);
			assert_true(decision.split_count < (count ? count : 1));
		}
		for (uint8_t k = 0; k < 3; k++) {
			double ns = predict(&bench, k, count);

			assert_true(isfinite(ns) && ns > 0);
			assert_true(place_work_ns(bench.placer, bench.place_plan, k, count) > 0);
		}
		if (i % 100)
			continue;
		seen = report(&bench, device % 3, count);
		assert_true(isfinite(seen.exec_ns) && seen.exec_ns > 0);
		assert_true(isfinite(seen.spread) && isfinite(seen.mean_ns));
		assert_true(isfinite(seen.mean_error) && isfinite(seen.speedup));
		placer_device_report(bench.placer, device % 3, times_ns[i / 100 % 10],
				     &device_report);
		assert_true(isfinite(device_report.explored_share));
		assert_true(device_report.success_rate >= 0 && device_report.success_rate <= 1);
	}
}

/*
 * 1,000 times slower than predicted. A single wrong reading of the clock does not change the
 * estimate.
 */
TEST(test_learn__thousand_times_slower)
{
	double ns;

	PLACER_BENCH(bench, 2, NULL);
	ns = predict(&bench, GPU, 9999) * 1000;
	assert_int_equal(placer_bench_decide(&bench, 9999, RBK_STRATEGY_AUTO).device, GPU);
	for (unsigned int i = 0; i < PLACE_TRUST; i++)
		placer_bench_learn(&bench, GPU, 9999, ns);
	assert_near(predict(&bench, GPU, 9999), ns, 0.01);
	assert_int_equal(placer_bench_decide(&bench, 9999, RBK_STRATEGY_AUTO).device, CPU);
	placer_bench_learn(&bench, GPU, 9999, 1);
	place_learn(bench.placer, bench.place_plan, GPU, 9999, PLACE_DONE, UINT64_MAX, 0, 0);
	assert_near(predict(&bench, GPU, 9999), ns, 0.2);
}

/* --- reports --- */

TEST(test_report__break_even)
{
	struct place_report seen;
	uint32_t count;

	PLACER_BENCH(bench, 2, NULL);
	seen = report(&bench, GPU, 1u << 20);
	count = seen.break_even;
	assert_true(count > 1);
	assert_true(predict(&bench, GPU, count) < predict(&bench, CPU, count));
	assert_true(predict(&bench, GPU, count - 1) >= predict(&bench, CPU, count - 1));
	assert_near(seen.speedup, (1.0 / 8) / (1.0 / 64 + 1.0 / 32), 0.01);
	assert_int_equal(report(&bench, CPU, 1).break_even, 0);
	for (unsigned int i = 0; i < 20; i++)
		for (count = 1; count < 1u << 31 && count; count *= 2)
			placer_bench_learn(&bench, GPU, count, 1e6 * count);
	assert_int_equal(report(&bench, GPU, 1).break_even, 0);
}

TEST(test_report__reset)
{
	double prior_ns;

	PLACER_BENCH(bench, 2, NULL);
	prior_ns = predict(&bench, CPU, 512);
	for (unsigned int i = 0; i < 20; i++)
		placer_bench_learn(&bench, CPU, 512, 1e9);
	placer_bench_fail(&bench, GPU);
	assert_int_equal(report(&bench, GPU, 512).n_failed, 1);
	place_plan_reset(bench.placer, bench.place_plan);
	assert_int_equal(report(&bench, CPU, 512).n_done, 0);
	assert_int_equal(report(&bench, GPU, 512).n_failed, 0);
	assert_true(report(&bench, CPU, 512).mean_ns == 0);
	assert_near(predict(&bench, CPU, 512), prior_ns, 1e-6);
}

/* Clients choose the number of nodes of a plan and how often it is reset. */
TEST(test_report__reset_visits_no_node)
{
	double prior_ns;

	PLACER_BENCH(bench, 2, NULL);
	prior_ns = predict(&bench, CPU, 512);
	for (unsigned int i = 0; i < 20; i++)
		placer_bench_learn(&bench, CPU, 512, 1e9);
	/* Without nodes and works, a recomputed prior would differ. */
	bench.plan.n_nodes = bench.plan.n_works = 0;
	place_plan_reset(bench.placer, bench.place_plan);
	assert_near(predict(&bench, CPU, 512), prior_ns, 1e-6);
}

/* --- histories of returning clients --- */

TEST(test_history__same_fingerprint)
{
	double prior_ns;

	PLACER_BENCH(bench, 2, NULL);
	bench.plan.fingerprint = 42;
	placer_bench_renew(&bench);
	prior_ns = predict(&bench, GPU, 512);
	for (unsigned int i = 0; i < 10; i++)
		placer_bench_learn(&bench, GPU, 512, 7e6);
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), 7e6, 0.01);
	assert_true(report(&bench, GPU, 512).is_trusted);
	/*
	 * A history does not apply to another plan, to another shape, or to a plan without a
	 * fingerprint.
	 */
	bench.plan.fingerprint = 43;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), prior_ns, 0.01);
	bench.plan.fingerprint = 42;
	bench.plan.max_count = 600;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), prior_ns, 0.01);
	bench.plan.fingerprint = 0;
	for (unsigned int i = 0; i < 2; i++) {
		placer_bench_renew(&bench);
		assert_near(predict(&bench, GPU, 512), prior_ns, 0.01);
		placer_bench_learn(&bench, GPU, 512, 7e6);
	}
}

TEST(test_history__bounded)
{
	double prior_ns;

	PLACER_BENCH(bench, 2, NULL);
	prior_ns = predict(&bench, GPU, 512);
	for (uint64_t i = 1; i <= PLACE_MAX_HISTORIES + 10; i++) {
		bench.plan.fingerprint = i;
		placer_bench_renew(&bench);
		placer_bench_learn(&bench, GPU, 512, 7e6);
	}
	bench.plan.fingerprint = 1000;
	placer_bench_renew(&bench);
	assert_int_equal(bench.placer->n_histories, PLACE_MAX_HISTORIES);
	/* The oldest history has been dropped, the latest is still there. */
	bench.plan.fingerprint = 1;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), prior_ns, 0.01);
	bench.plan.fingerprint = PLACE_MAX_HISTORIES + 10;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), 7e6, 0.01);
}

/* --- exploration --- */

/*
 * Run @n_tasks tasks of one count that take @cpu_ns on the CPU and @gpu_ns on the GPU.
 * Return: the fraction of time lost to exploration.
 */
static double run(struct placer_bench *bench, unsigned int n_tasks, double cpu_ns, double gpu_ns,
		  unsigned int *ret_explored, unsigned int *ret_gpu)
{
	double lost_ns = 0, all_ns = 0, ns;
	struct place_decision decision;

	*ret_explored = *ret_gpu = 0;
	for (unsigned int i = 0; i < n_tasks; i++) {
		decision = placer_bench_decide(bench, 2048, RBK_STRATEGY_AUTO);
		ns = (decision.device == GPU ? gpu_ns : cpu_ns) * placer_bench_noise(bench, 0.1);
		placer_bench_learn(bench, decision.device, 2048, ns);
		all_ns += ns;
		*ret_gpu += decision.device == GPU;
		if (!(decision.flags & PLACE_EXPLORES))
			continue;
		++*ret_explored;
		if (decision.device == GPU && gpu_ns > cpu_ns)
			lost_ns += gpu_ns - cpu_ns;
		if (decision.device == CPU && cpu_ns > gpu_ns)
			lost_ns += cpu_ns - gpu_ns;
	}
	return lost_ns / all_ns;
}

TEST(test_explore__bounded)
{
	/* real time of the other device relative to the better one, whatever the profile says */
	static const double ratios[] = {1.1, 2, 5, 20, 1000};
	unsigned int n_explored, n_gpu;
	struct place_device_report seen;
	struct placer_bench bench;
	double share;

	for (unsigned int i = 0; i < 5; i++) {
		placer_bench_init(&bench, 2, NULL);
		share = run(&bench, 50000, 1e5 * ratios[i], 1e5, &n_explored, &n_gpu);
		assert_true(share <= 0.0105 + ratios[i] / 50000);
		assert_true(n_explored >= 1);
		placer_device_report(bench.placer, CPU, bench.now_ns, &seen);
		assert_true(seen.explored_share <= 0.0105 + ratios[i] / 50000);
		assert_int_equal(report(&bench, CPU, 2048).n_explored, n_explored);
		placer_bench_deinit(&bench);
	}
}

/* The profile is wrong by far. Exploration soon moves tasks to the faster device. */
TEST(test_explore__corrects_wrong_profile)
{
	struct place_profile profiles[2] = {placer_bench_profile(8, 500),
					    placer_bench_profile(16, 500)};
	unsigned int n_explored, n_gpu;

	PLACER_BENCH(bench, 2, profiles);
	assert_int_equal(placer_bench_decide(&bench, 2048, RBK_STRATEGY_AUTO).device, GPU);
	run(&bench, 1000, 0.7e5, 1e5, &n_explored, &n_gpu);
	assert_in_range(n_explored, PLACE_TRUST, 20);
	assert_true(n_gpu < 600);
	/* The GPU has become faster, which only exploration can find out. */
	run(&bench, 3000, 0.7e5, 0.2e5, &n_explored, &n_gpu);
	assert_true(n_gpu > 1500);
}

/*
 * The first task on the faster device took many times as long, as while its memory was new. A few
 * observations do not keep tasks away, though what they predict would.
 */
TEST(test_explore__corrects_bad_sample)
{
	unsigned int n_explored, n_gpu;

	PLACER_BENCH(bench, 2, NULL);
	placer_bench_learn(&bench, CPU, 2048, 8e5);
	placer_bench_learn(&bench, GPU, 2048, 1e5);
	assert_int_equal(placer_bench_decide(&bench, 2048, RBK_STRATEGY_AUTO).device, GPU);
	run(&bench, 4000, 0.5e5, 1e5, &n_explored, &n_gpu);
	assert_in_range(n_explored, 1, 20);
	assert_true(n_gpu < 3000);
	run(&bench, 100, 0.5e5, 1e5, &n_explored, &n_gpu);
	assert_true(n_gpu < 10);
}

/*
 * A device known to be slow is explored while tasks would have to wait for the faster device, and
 * only then.
 */
TEST(test_explore__while_others_wait)
{
	const struct place_flow_limits limits = {.weight = 100};
	struct place_config config = PLACE_CONFIG_DEFAULT;
	struct place_flow *other;
	unsigned int n_explored, n_gpu;

	PLACER_BENCH(bench, 2, NULL);
	config.threshold_bytes = 0;
	placer_bench_configure(&bench, config);
	assert_int_equal(place_flow_new(bench.placer, &limits, &other), 0);
	/* The CPU takes more than ten times as long. */
	run(&bench, 2000, 1e7, 4e4, &n_explored, &n_gpu);
	assert_int_equal(n_explored, 0);
	assert_false(report(&bench, CPU, 2048).is_trusted);
	for (unsigned int i = 0; i < 30; i++) {
		struct place_decision decision;
		struct place_task task = {.place_plan = bench.place_plan,
					  .flow = other,
					  .count = 2048 * 5,
					  .decision = {.device = GPU},
					  .deadline_ns = UINT64_MAX};

		place_enqueue(bench.placer, &task, bench.now_ns);
		assert_ptr_equal(place_next(bench.placer, GPU, bench.now_ns), &task);
		decision = placer_bench_decide(&bench, 2048, RBK_STRATEGY_AUTO);
		place_put_back(bench.placer, &task, bench.now_ns);
		place_dequeue(bench.placer, &task, bench.now_ns);
		n_explored += decision.flags & PLACE_EXPLORES && decision.device == CPU;
		placer_bench_learn(&bench, decision.device, 2048,
				   decision.device == CPU ? 3e5 : 4e4);
	}
	assert_true(n_explored >= PLACE_TRUST);
	assert_true(report(&bench, CPU, 2048).is_trusted);
	place_flow_free(bench.placer, other);
}

TEST(test_explore__only_permitted_tasks)
{
	struct place_config config;
	unsigned int n_explored, n_gpu;
	struct place_request request = {.count = 2048, .deadline_ns = 1000000000};

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 10000; i++) {
		struct place_decision decision = place_decide(bench.placer, bench.place_plan,
							      bench.flow, request, bench.now_ns);

		assert_int_equal(decision.flags, 0);
		placer_bench_learn(&bench, decision.device, 2048, 1e5);
	}
	config = *placer_config(bench.placer);
	config.exploration = 0;
	placer_bench_configure(&bench, config);
	place_plan_reset(bench.placer, bench.place_plan);
	run(&bench, 10000, 2e5, 1e5, &n_explored, &n_gpu);
	assert_int_equal(n_explored, 0);
}

/* Another task explores the device if the first one has not ended after many executions. */
TEST(test_explore__again_after_a_lost_task)
{
	struct place_decision decision;
	unsigned int n_sent = 0;

	PLACER_BENCH(bench, 2, NULL);
	for (unsigned int i = 0; i < 2000 && n_sent < 2; i++) {
		decision = placer_bench_decide(&bench, 2048, RBK_STRATEGY_AUTO);
		if (decision.flags & PLACE_EXPLORES)
			n_sent++;
		else
			placer_bench_learn(&bench, decision.device, 2048, 1e5);
	}
	assert_int_equal(n_sent, 2);
}

/* A contended device is not explored: the result would not be worth the delay for its users. */
TEST(test_explore__not_while_contended)
{
	unsigned int n_explored, n_gpu;

	PLACER_BENCH(bench, 2, NULL);
	/* Both devices are known, and the CPU is faster. */
	run(&bench, 2000, 0.7e5, 1e5, &n_explored, &n_gpu);
	assert_true(n_gpu < 1000);
	placer_set_contention(bench.placer, CPU, 4, bench.now_ns);
	run(&bench, 50000, 2.8e5, 1e5, &n_explored, &n_gpu);
	assert_int_equal(n_gpu, 50000);
	assert_int_equal(n_explored, 0);
	placer_set_contention(bench.placer, CPU, 1.1f, bench.now_ns);
	run(&bench, 1000, 0.77e5, 1e5, &n_explored, &n_gpu);
	assert_true(n_gpu < 100);
}

/* The placer uses no random numbers: the same tasks lead to the same decisions. */
TEST(test_explore__repeatable)
{
	unsigned int explored[2], gpu[2];
	struct placer_bench bench;

	for (unsigned int i = 0; i < 2; i++) {
		placer_bench_init(&bench, 2, NULL);
		run(&bench, 5000, 2e5, 1e5, &explored[i], &gpu[i]);
		placer_bench_deinit(&bench);
	}
	assert_int_equal(explored[0], explored[1]);
	assert_int_equal(gpu[0], gpu[1]);
}
