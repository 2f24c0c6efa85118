/* SPDX-License-Identifier: MIT */
/*
 * device-tasks: what the broker adds to the time of a GPU that takes no processor
 *
 * The device is that of brokerd --test-device. Both sides have its late wake-ups in their times,
 * and the switches to its thread and back. The broker adds the way to the reactor and back to the
 * client, and saves a switch where its threads are awake in time. Each row of times is followed by
 * one of the processor time per task: of the client and the broker together, beside that of the
 * baseline.
 */
#include <stdio.h>
#include <unistd.h>

#include "bare-device.h"
#include "bench.h"
#include "broker-process/broker-process.h"
#include "cost.h"
#include "plans.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"

#define N_FLOATS      16u
#define ROUND_SAMPLES 8192u
#define TIME_TARGET   1.1

/* Times of a task in microseconds */
static const uint32_t times_us[] = {50, 100, 300, 1000, 5000};

struct bare {
	struct bare_device *device;
	struct cost *cost;
};

/* Samples are microseconds per task. */
static int bare_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	const uint64_t budget = clock_ns_to_ticks(budget_ns);
	struct bare *bare = data;
	uint64_t start, last, now;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	cost_begin(bare->cost);
	start = last = clock_ticks();
	for (i = 0; !r && i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		r = bare_device_run(bare->device);
		now = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(last, now) / 1e3);
		last = now;
	}
	cost_end(bare->cost, i);
	return r;
}

static int ours_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	const size_t first = samples->n;
	int r = target_waits(data, budget_ns, samples);

	for (size_t i = first; i < samples->n; i++)
		samples->values[i] /= 1e3;
	return r;
}

static void report_cost(struct bench_env *env, const char *params, const struct cost *ours,
			const struct cost *bare)
{
	const struct bench_row row = {params, "us", false, "bare-device"};
	double ours_us = cost_us(ours), bare_us = cost_us(bare);
	struct samples samples[2] = {{&ours_us, 1, 1}, {&bare_us, 1, 1}};

	bench_report(env, &row, &samples[0], &samples[1]);
}

static int compare(struct bench_env *env, const struct target *target, uint32_t time_us)
{
	struct plans_add add = PLANS_ADD_INIT;
	struct cost cost, bare_cost;
	char params[32], cost_params[40];
	const struct bench_row row = {params, "us", false, "bare-device", TIME_TARGET};
	struct bare bare = {.cost = &bare_cost};
	struct target_task task;
	int r;

	r = plans_add_init(&add, env, target->rbk, N_FLOATS, false, 1);
	if (r)
		return r;
	task = (struct target_task){
		.ring = target->ring,
		.plan_id = rbk_plan_id(add.plan),
		.count = 1,
		.n_refs = 3,
		.strategy = RBK_STRATEGY_DEVICE(target->gpu.index),
		.depth = 1,
		.cost = &cost,
	};
	plans_add_refs(&add, 0, task.refs);
	snprintf(params, sizeof(params), "time=%u us", time_us);
	snprintf(cost_params, sizeof(cost_params), "%s cpu", params);
	r = bare_device_new(time_us, &bare.device);
	if (r) {
		plans_add_deinit(&add);
		return bench_fail(env, r, "the device does not start");
	}
	r = cost_init(&cost, getpid(), broker_process_pid(target->process));
	if (!r)
		r = cost_init(&bare_cost, getpid(), 0);
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){ours_round, &task},
				  (struct bench_side){bare_round, &bare});
	if (r)
		bench_fail(env, r, "measuring failed (%s)", params);
	else
		report_cost(env, cost_params, &cost, &bare_cost);
	bare_device_free(bare.device);
	plans_add_deinit(&add);
	return r;
}

static int run(struct bench_env *env)
{
	struct target target;
	char params[48];
	int r = 0;

	if (env->socket)
		return bench_skip(env, NULL, "needs brokers of its own, not --socket");
	for (size_t i = 0; i < ARRAY_SIZE(times_us) && !r; i++) {
		snprintf(params, sizeof(params), "time=%u us cpu", times_us[i]);
		if (!bench_is_wanted(env, params))
			continue;
		r = target_init_timed(&target, env, times_us[i], 0, 0);
		if (r)
			return r;
		r = compare(env, &target, times_us[i]);
		target_deinit(&target);
	}
	return r;
}

const struct bench bench_device_tasks = {
	.name = "device-tasks",
	.summary =
		"tasks of a GPU of 50 us to 5 ms, which takes no processor: brokerd --test-device",
	.baseline = "the same device, submitted to and awaited by one thread",
	.run = run,
};
