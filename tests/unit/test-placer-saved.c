/* SPDX-License-Identifier: MIT */
/* Learned times that outlive the broker, and files that are none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "unit/placer-bench.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU, GPU2 = BENCH_GPU2, DAY_S = 86400 };

static const uint64_t keys[] = {100, 101, 102};
static const uint64_t now_s = 1000 * DAY_S;

static double predict(const struct placer_bench *bench, uint8_t device, uint32_t count)
{
	return (double)place_predict_ns(bench->placer, bench->place_plan, device, count);
}

static void assert_near(double value, double expected, double share)
{
	if (!(fabs(value - expected) <= share * expected))
		fail_msg("%g, expected %g", value, expected);
}

static bool is_trusted(const struct placer_bench *bench, uint8_t device, uint32_t count)
{
	struct place_report report;

	place_plan_report(bench->placer, bench->place_plan, device, count, &report);
	return report.is_trusted;
}

static char *save(const struct placer_bench *bench, const uint64_t *of, size_t *ret_n)
{
	char *bytes;
	FILE *stream = open_memstream(&bytes, ret_n);

	assert_non_null(stream);
	placer_save(bench->placer, of, now_s, PLACER_SAVE_ALL, stream);
	assert_int_equal(fclose(stream), 0);
	return bytes;
}

/* Save what a broker with @n_devices has learned of plan 42: 7 ms at count 512, 30 ms at 4096. */
static char *saved(uint32_t n_devices, size_t *ret_n)
{
	char *bytes;

	PLACER_BENCH(bench, n_devices, NULL);
	bench.plan.fingerprint = 42;
	placer_bench_renew(&bench);
	for (unsigned int i = 0; i < 10; i++) {
		placer_bench_learn(&bench, GPU, 512, 7e6);
		placer_bench_learn(&bench, GPU, 4096, 30e6);
		placer_bench_learn(&bench, CPU, 512, 2e6);
	}
	bytes = save(&bench, keys, ret_n);
	return bytes;
}

TEST(test_saved__next_broker_predicts_the_same)
{
	size_t n;
	char *bytes = saved(2, &n);
	double prior_ns;

	PLACER_BENCH(bench, 2, NULL);
	prior_ns = predict(&bench, GPU, 512);
	assert_int_equal(placer_restore(bench.placer, keys, now_s + 60, bytes, n), 0);
	/* Another plan knows nothing, and takes nothing. */
	bench.plan.fingerprint = 43;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), prior_ns, 0.01);
	bench.plan.fingerprint = 42;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), 7e6, 0.01);
	assert_near(predict(&bench, GPU, 4096), 30e6, 0.01);
	assert_near(predict(&bench, CPU, 512), 2e6, 0.01);
	assert_true(is_trusted(&bench, GPU, 512) && is_trusted(&bench, CPU, 512));
	/* The first task goes where the last one went. */
	assert_int_equal(placer_bench_decide(&bench, 512, RBK_STRATEGY_AUTO).device, CPU);
	/* It goes on learning. */
	for (unsigned int i = 0; i < 200; i++)
		placer_bench_learn(&bench, GPU, 512, 1e6);
	assert_near(predict(&bench, GPU, 512), 1e6, 0.05);
	free(bytes);
}

TEST(test_saved__each_is_taken_once)
{
	struct place_plan *other;
	size_t n;
	char *bytes = saved(2, &n);
	double prior_ns;

	PLACER_BENCH(bench, 2, NULL);
	prior_ns = predict(&bench, GPU, 512);
	assert_int_equal(placer_restore(bench.placer, keys, now_s, bytes, n), 0);
	bench.plan.fingerprint = 42;
	placer_bench_renew(&bench);
	assert_int_equal(place_plan_new(bench.placer, &bench.plan, &other), 0);
	assert_near((double)place_predict_ns(bench.placer, other, GPU, 512), prior_ns, 0.01);
	place_plan_free(bench.placer, other);
	free(bytes);
}

/* With room for few, the newest plans are saved. */
TEST(test_saved__newest_first)
{
	struct node nodes[3];
	struct plan plans[3];
	struct place_plan *made[3];
	FILE *stream;
	char *bytes;
	size_t n;

	{
		PLACER_BENCH(bench, 2, NULL);
		for (unsigned int i = 0; i < 3; i++) {
			placer_bench_plan_init(&plans[i], &nodes[i], 2);
			plans[i].fingerprint = 50 + i;
			assert_int_equal(place_plan_new(bench.placer, &plans[i], &made[i]), 0);
			place_learn(bench.placer, made[i], GPU, 512, PLACE_DONE, 7000000, 7000000,
				    1000000000);
		}
		stream = open_memstream(&bytes, &n);
		assert_non_null(stream);
		placer_save(bench.placer, keys, now_s, 2, stream);
		assert_int_equal(fclose(stream), 0);
		for (unsigned int i = 0; i < 3; i++)
			place_plan_free(bench.placer, made[i]);
	}
	PLACER_BENCH(bench, 2, NULL);
	assert_int_equal(placer_restore(bench.placer, keys, now_s, bytes, n), 0);
	for (unsigned int i = 0; i < 3; i++) {
		bench.plan.fingerprint = 50 + i;
		placer_bench_renew(&bench);
		if (i == 0)
			assert_true(predict(&bench, GPU, 512) < 6e6);
		else
			assert_near(predict(&bench, GPU, 512), 7e6, 0.01);
	}
	free(bytes);
}

/* A history that no plan has taken is saved again, with its age. */
TEST(test_saved__survives_brokers_without_the_plan)
{
	size_t n, n_again;
	char *bytes = saved(2, &n), *again;

	{
		PLACER_BENCH(between, 2, NULL);
		assert_int_equal(placer_restore(between.placer, keys, now_s, bytes, n), 0);
		again = save(&between, keys, &n_again);
	}
	assert_int_equal(n_again, n);
	PLACER_BENCH(bench, 2, NULL);
	assert_int_equal(placer_restore(bench.placer, keys, now_s + 1, again, n_again), 0);
	bench.plan.fingerprint = 42;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), 7e6, 0.01);
	free(bytes);
	free(again);
}

TEST(test_saved__devices_are_known_by_their_keys)
{
	/* The former device 1 is device 2 now, and device 1 is new. */
	const uint64_t moved[] = {100, 999, 101};
	double prior_ns, prior2_ns;
	size_t n;
	char *bytes = saved(2, &n);

	PLACER_BENCH(bench, 3, NULL);
	prior_ns = predict(&bench, GPU, 512);
	prior2_ns = predict(&bench, GPU2, 512);
	assert_int_equal(placer_restore(bench.placer, moved, now_s, bytes, n), 0);
	bench.plan.fingerprint = 42;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), prior_ns, 0.01);
	assert_near(predict(&bench, GPU2, 512), 7e6, 0.01);
	assert_true(fabs(prior2_ns - 7e6) > 1e5);
	assert_near(predict(&bench, CPU, 512), 2e6, 0.01);
	free(bytes);
}

/* With another profile, observed times stay what they were. */
TEST(test_saved__profile_has_changed)
{
	struct place_profile profiles[2] = {placer_bench_profile(8, 0),
					    placer_bench_profile(640, 1000)};
	size_t n;
	char *bytes = saved(2, &n);

	PLACER_BENCH(bench, 2, profiles);
	assert_int_equal(placer_restore(bench.placer, keys, now_s, bytes, n), 0);
	bench.plan.fingerprint = 42;
	placer_bench_renew(&bench);
	assert_near(predict(&bench, GPU, 512), 7e6, 0.1);
	free(bytes);
}

TEST(test_saved__age)
{
	size_t n;
	char *bytes = saved(2, &n);
	double prior_ns;

	for (unsigned int late = 0; late < 2; late++) {
		PLACER_BENCH(bench, 2, NULL);
		prior_ns = predict(&bench, GPU, 512);
		assert_int_equal(
			placer_restore(bench.placer, keys, now_s + 30 * DAY_S + late, bytes, n), 0);
		bench.plan.fingerprint = 42;
		placer_bench_renew(&bench);
		assert_near(predict(&bench, GPU, 512), late ? prior_ns : 7e6, 0.01);
	}
	free(bytes);
}

/* Damaged bytes are refused, or lead to estimates that are finite and above 0. */
TEST(test_saved__damaged)
{
	static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	unsigned int n_refused = 0, n_used = 0;
	size_t n;
	char *bytes = saved(2, &n), *copy = malloc(n);
	double ns;
	int r;

	assert_non_null(copy);
	for (size_t length = 0; length < n; length++) {
		PLACER_BENCH(bench, 2, NULL);
		assert_int_equal(placer_restore(bench.placer, keys, now_s, bytes, length),
				 PLACER_E_IMPOSSIBLE);
	}
	for (size_t at = 0; at < n; at++)
		for (unsigned int i = 0; i < sizeof(values); i++) {
			PLACER_BENCH(bench, 2, NULL);
			memcpy(copy, bytes, n);
			copy[at] = (char)values[i];
			r = placer_restore(bench.placer, keys, now_s, copy, n);
			n_refused += r == PLACER_E_IMPOSSIBLE;
			n_used += r == 0;
			assert_true(r == 0 || r == PLACER_E_IMPOSSIBLE);
			bench.plan.fingerprint = 42;
			placer_bench_renew(&bench);
			for (uint32_t count = 1; count < 1u << 20; count *= 3) {
				ns = predict(&bench, GPU, count);
				assert_true(isfinite(ns) && ns > 0);
			}
			placer_bench_learn(&bench, GPU, 512, 1e6);
			ns = predict(&bench, GPU, 512);
			assert_true(isfinite(ns) && ns > 0);
		}
	assert_true(n_refused > 0 && n_used > 0);
	free(copy);
	free(bytes);
}
