/* SPDX-License-Identifier: MIT */
/*
 * The simulator's own arithmetic: optima, bounds, fairness, devices
 */
#include <math.h>

#include "measure.h"
#include "optimum.h"
#include "random.h"
#include "support/test.h"

enum { MAX_TASKS = 10 };

static double steady(const void *context, unsigned int device, double until_ns)
{
	const double *speeds = context;

	return until_ns * speeds[device];
}

/* Return the best makespan of all assignments. */
static double brute_force(const struct optimum_task *tasks, uint32_t n, const double *speeds)
{
	double best = INFINITY;

	for (uint32_t mask = 0; mask < 1u << n; mask++) {
		double load[2] = {0, 0}, makespan = 0;

		for (uint32_t i = 0; i < n; i++) {
			unsigned int device = mask >> i & 1;

			load[device] += tasks[i].ns[device];
			makespan = fmax(makespan, tasks[i].alone_ns[device]);
		}
		makespan = fmax(makespan, load[0] / speeds[0]);
		makespan = fmax(makespan, load[1] / speeds[1]);
		best = fmin(best, makespan);
	}
	return best;
}

static void draw_tasks(struct optimum_task *tasks, uint32_t n, uint64_t seed)
{
	for (uint32_t i = 0; i < n; i++) {
		for (unsigned int d = 0; d < 2; d++) {
			tasks[i].ns[d] = 1e6 * draw_exponential(seed, DRAW_GENERATE, i, d);
			tasks[i].alone_ns[d] = tasks[i].ns[d];
		}
		/* Some tasks can run on one device only. */
		if (draw_uniform(seed, DRAW_PLAN, i, 0) < 0.2)
			tasks[i].ns[i % 2] = tasks[i].alone_ns[i % 2] = INFINITY;
	}
}

TEST(test_optimum__brute_force)
{
	struct optimum_task tasks[MAX_TASKS];

	for (uint64_t seed = 1; seed <= 60; seed++) {
		uint32_t n = 1 + (uint32_t)(seed % MAX_TASKS);
		double speeds[2] = {1, 0.5 + draw_uniform(seed, DRAW_PHASE, 0, 0)};
		double expected, found = NAN;
		int r;

		draw_tasks(tasks, n, seed);
		expected = brute_force(tasks, n, speeds);
		r = optimum_exact(tasks, n, speeds, 20, &found);
		if (r == OPTIMUM_E_ABSENT)
			skip();
		assert_int_equal(r, 0);
		/* The result is proven to a thousandth, and never above the optimum. */
		assert_true(found <= expected * (1 + 1e-6));
		assert_true(found >= expected * (1 - 2.1e-3));
	}
}

TEST(test_bound__never_above_the_optimum)
{
	struct optimum_task tasks[MAX_TASKS];
	double closest = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		uint32_t n = 1 + (uint32_t)(seed % MAX_TASKS);
		double speeds[2] = {1, 0.5 + draw_uniform(seed, DRAW_PHASE, 0, 0)};
		struct optimum_capacity capacity = {.ns = steady, .context = speeds};
		double optimum, whole, pieces;

		draw_tasks(tasks, n, seed);
		optimum = brute_force(tasks, n, speeds);
		whole = optimum_bound(tasks, n, true, &capacity);
		pieces = optimum_bound(tasks, n, false, &capacity);
		assert_true(whole <= optimum * (1 + 1e-9));
		assert_true(pieces <= whole * (1 + 1e-9));
		closest = fmax(closest, whole / optimum);
	}
	/* The bound is also tight. */
	assert_true(closest > 0.99);
}

TEST(test_bound__by_hand)
{
	/* 30 ms of work on two devices, one twice as fast as the other: 10 ms. */
	const struct optimum_task tasks[] = {
		{{10e6, 5e6}, {10e6, 5e6}}, {{10e6, 5e6}, {10e6, 5e6}}, {{10e6, 5e6}, {10e6, 5e6}}};
	const double speeds[2] = {1, 1};
	struct optimum_capacity capacity = {.ns = steady, .context = speeds};
	double ns = 0;

	assert_true(fabs(optimum_bound(tasks, 3, true, &capacity) - 10e6) < 1);
	assert_true(fabs(brute_force(tasks, 3, speeds) - 10e6) < 1);
	if (optimum_exact(tasks, 3, speeds, 10, &ns) == 0)
		assert_true(fabs(ns - 10e6) < 0.003 * 10e6);
	/* Without any task the bound is 0. */
	assert_true(optimum_bound(tasks, 0, true, &capacity) < 1);
}

TEST(test_jain__by_hand)
{
	assert_true(fabs(measure_jain((double[]){1, 1, 1, 1}, 4) - 1) < 1e-12);
	assert_true(fabs(measure_jain((double[]){1, 0, 0, 0}, 4) - 0.25) < 1e-12);
	assert_true(fabs(measure_jain((double[]){1, 3}, 2) - 0.8) < 1e-12);
}

/* Random draws have the expected moments, and depend only on their key. */
TEST(test_draw__moments)
{
	const uint32_t n = 20000;
	double sum = 0, squares = 0, uniform = 0, exponential = 0, factor = 0;

	for (uint32_t i = 0; i < n; i++) {
		double x = draw_normal(7, DRAW_NOISE, i, 1);

		assert_true(x == draw_normal(7, DRAW_NOISE, i, 1));
		assert_true(x != draw_normal(8, DRAW_NOISE, i, 1));
		assert_true(x != draw_normal(7, DRAW_NOISE, i, 0));
		sum += x;
		squares += x * x;
		uniform += draw_uniform(7, DRAW_COUNT, i, 0);
		exponential += draw_exponential(7, DRAW_JITTER, i, 0);
		factor += draw_factor(7, DRAW_EFFICIENCY, i, 0, 0.3);
	}
	assert_true(fabs(sum / n) < 0.03);
	assert_true(fabs(squares / n - 1) < 0.05);
	assert_true(fabs(uniform / n - 0.5) < 0.01);
	assert_true(fabs(exponential / n - 1) < 0.03);
	assert_true(fabs(factor / n - 1) < 0.02);
}
