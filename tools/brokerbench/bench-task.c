/* SPDX-License-Identifier: MIT */
/*
 * task-overhead: the cost of a task that is hardly more than its entry
 *
 * Add of 16 floats runs inline on the reactor. The baseline of its round trip is the bare rings.
 * The baseline of its rate, published 64 at a time, is the same kernel called in a loop, which
 * shows how small a task is worth submitting.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bare-ring.h"
#include "bench.h"
#include "cpu/kernels.h"
#include "plans.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"

#define N_FLOATS     16
#define RING_ENTRIES 1024u
#define BATCH        64u

/* calls of the kernel per sample */
#define N_CALLS       16384u
#define ROUND_SAMPLES 4096u

struct kernel_add {
	const struct cpu_kernels *kernels;
	float *left, *right, *out;
};

static int kernel_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct kernel_add *add = data;
	const struct cpu_map args = {
		.in = {add->left, add->right}, .out = add->out, .step = {1, 1}};
	uint64_t start, last, now, budget;
	unsigned int i, call;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	budget = clock_ns_to_ticks(budget_ns);
	start = last = clock_ticks();
	for (i = 0; i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		for (call = 0; call < N_CALLS; call++)
			add->kernels->map[CPU_F32][CPU_MAP_ADD](&args, N_FLOATS);
		now = clock_ticks();
		samples_add(samples, N_CALLS * 1e3 / (double)clock_elapsed_ns(last, now));
		last = now;
	}
	return 0;
}

/* Check the first set's result, which the broker has written. */
static int check(struct bench_env *env, const struct kernel_add *add)
{
	for (int i = 0; i < N_FLOATS; i++)
		if (add->out[i] != add->left[i] + add->right[i])
			return bench_fail(env, -EILSEQ, "Add computed a wrong result");
	return 0;
}

static int run(struct bench_env *env)
{
	const struct bench_row round_trip = {"add=16 spinning", "ns", false, "bare-ring"};
	const struct bench_row rate = {"add=16 batch=64", "M/s", true, "kernel"};
	_cleanup_(plans_add_deinit) struct plans_add add = PLANS_ADD_INIT;
	struct bare_ring *bare = NULL;
	struct kernel_add kernel;
	struct target target;
	struct target_task task;
	float *data;
	int r;

	r = target_init(&target, env, TARGET_PINNED);
	if (r)
		return r;
	r = plans_add_init(&add, env, target.rbk, N_FLOATS, false, 1);
	if (r)
		goto out;
	task = (struct target_task){
		.ring = target.ring,
		.plan_id = rbk_plan_id(add.plan),
		.count = 1,
		.n_refs = 3,
		.batch = BATCH,
	};
	plans_add_refs(&add, 0, task.refs);
	data = rbk_arena_data(add.arena);
	kernel = (struct kernel_add){cpu_kernels_get(CPU_SIMD_AUTO), data, data + N_FLOATS,
				     data + 2 * N_FLOATS};

	memset(kernel.out, 0xff, N_FLOATS * sizeof(float));
	r = target_run_once(&task);
	if (!r)
		r = check(env, &kernel);
	if (!r)
		r = bare_ring_new(RING_ENTRIES, env->peer_cpu, &bare);
	if (!r && bench_is_wanted(env, round_trip.params))
		r = bench_compare(env, &round_trip, (struct bench_side){target_round_trips, &task},
				  (struct bench_side){bare_ring_round_trips, bare});
	if (!r && bench_is_wanted(env, rate.params))
		r = bench_compare(env, &rate, (struct bench_side){target_throughput, &task},
				  (struct bench_side){kernel_round, &kernel});
	if (r)
		bench_fail(env, r, "measuring failed");
	bare_ring_free(bare);
	plans_add_deinit(&add);
out:
	target_deinit(&target);
	return r;
}

const struct bench bench_task_overhead = {
	.name = "task-overhead",
	.summary = "Add of 16 floats: round trip, and tasks per second at a batch of 64",
	.baseline = "the bare rings' round trip; the same kernel called in a loop",
	.run = run,
};
