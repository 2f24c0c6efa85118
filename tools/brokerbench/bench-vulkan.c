/* SPDX-License-Identifier: MIT */
/*
 * matmul-vulkan: the broker's overhead over a GPU's work
 *
 * C = A * B with all three tensors in the client's arena, so that both sides use the same memory
 * path. The baseline opens the same device in this process, submits one recorded command buffer per
 * product with the broker's own shader, and waits for it. In some rows many of the broker's tasks
 * are in flight. The last rows compare with other shaders in the same bare loop, to judge the
 * broker's shader. One is a naive shader. The other, on a software device only, is the best known
 * there for matrices whose size is known beforehand; its target is 0.9 of its speed.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "plan/executor.h"
#include "plans.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"
#include "vulkan/bench.h"

#define ROUND_SAMPLES 1024u

/* Samples are microseconds per product. */
static int bare_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t start, last, now, budget;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (!r)
		r = vulkan_bare_run(data);
	budget = clock_ns_to_ticks(budget_ns);
	start = last = clock_ticks();
	for (i = 0; !r && i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		r = vulkan_bare_run(data);
		now = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(last, now) / 1e3);
		last = now;
	}
	return r;
}

static int ours_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	size_t first = samples->n;
	int r;

	r = target_waits(data, budget_ns, samples);
	for (size_t i = first; i < samples->n; i++)
		samples->values[i] /= 1e3;
	return r;
}

/* Check that both sides compute the same product, up to the order of their sums. */
static int check(struct bench_env *env, struct plans_matmul *matmul, struct target_task *task,
		 struct vulkan_bare *bare)
{
	const double bound = 1e-6 * (matmul->k + 16.0);
	size_t n = (size_t)matmul->m * matmul->n;
	float *expected;
	int r;

	expected = malloc(n * sizeof(float));
	if (!expected)
		return bench_fail(env, -ENOMEM, "no memory for a result");
	memset(matmul->c, 0xff, n * sizeof(float));
	r = vulkan_bare_run(bare);
	memcpy(expected, matmul->c, n * sizeof(float));
	memset(matmul->c, 0xff, n * sizeof(float));
	if (!r)
		r = target_run_once(task);
	if (r)
		bench_fail(env, r, "a product failed");
	for (size_t i = 0; i < n && !r; i++)
		if (!(fabs((double)matmul->c[i] - (double)expected[i]) <= bound))
			r = bench_fail(env, -EILSEQ, "element %zu is %g, the baseline has %g", i,
				       (double)matmul->c[i], (double)expected[i]);
	free(expected);
	return r;
}

/* Compare; @depth products are in flight, which all write the same result. */
static int compare(struct bench_env *env, const struct target *target, uint32_t n, uint32_t depth,
		   enum vulkan_bare_shader shader)
{
	const struct vulkan_options options = {
		.mode = target->gpu.kind == RBK_DEVICE_KIND_SOFTWARE_GPU ? VULKAN_SOFTWARE
									 : VULKAN_AUTO,
	};
	_cleanup_(vulkan_bare_freep) struct vulkan_bare *bare = NULL;
	struct exec_arena arena = {0};
	struct plans_matmul matmul;
	struct target_task task;
	struct bench_row row = {.unit = "us"};
	uint64_t offsets[3];
	char params[32];
	int r;

	if (depth > 1)
		snprintf(params, sizeof(params), "n=%u depth=%u", n, depth);
	else
		snprintf(params, sizeof(params), "n=%u", n);
	if (!bench_is_wanted(env, params))
		return 0;
	r = plans_matmul_init(&matmul, env, target->rbk, n, n, n, false);
	if (r)
		return r;
	row.params = params;
	row.baseline = shader == VULKAN_BARE_SAME    ? "bare-vulkan"
		       : shader == VULKAN_BARE_NAIVE ? "bare-naive"
						     : "bare-registers";
	if (shader == VULKAN_BARE_REGISTERS)
		row.target = 1 / 0.9;
	task = (struct target_task){
		.ring = target->ring,
		.plan_id = rbk_plan_id(matmul.plan),
		.count = 1,
		.n_refs = matmul.n_refs,
		.strategy = RBK_STRATEGY_DEVICE(target->gpu.index),
		.depth = depth,
	};
	memcpy(task.refs, matmul.refs, sizeof(matmul.refs));
	for (unsigned int i = 0; i < 3; i++)
		offsets[i] = RBK_REF_OFFSET(matmul.refs[i]);
	arena.base = rbk_arena_data(matmul.arena);
	arena.bytes = rbk_arena_bytes(matmul.arena);

	r = vulkan_bare_new(&options, shader, n, &arena, offsets[0], offsets[1], offsets[2], &bare);
	if (r == VULKAN_BARE_E_NO_DEVICE)
		bench_skip(env, params, "this process does not find the device");
	else if (r)
		bench_fail(env, r, "the bare loop does not start");
	if (!r)
		r = check(env, &matmul, &task, bare);
	if (!r) {
		r = bench_compare(env, &row, (struct bench_side){ours_round, &task},
				  (struct bench_side){bare_round, bare});
		if (r)
			bench_fail(env, r, "measuring failed (%s)", params);
	}
	bare = vulkan_bare_free(bare);
	plans_matmul_deinit(&matmul);
	return r;
}

static int run(struct bench_env *env)
{
	static const uint32_t sizes[] = {64, 128, 256, 512, 1024};
	struct target target;
	int r;

	r = target_init(&target, env, TARGET_GPU);
	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(sizes) && r >= 0; i++)
		r = compare(env, &target, sizes[i], 1, VULKAN_BARE_SAME);
	/* Small products share submissions; the bare loop waits for each. */
	for (size_t i = 0; i < 2 && r >= 0; i++)
		r = compare(env, &target, sizes[i], 64, VULKAN_BARE_SAME);
	/* The naive shader takes seconds at 1024 on a software device. */
	for (size_t i = 0; i + 1 < ARRAY_SIZE(sizes) && r >= 0; i++)
		r = compare(env, &target, sizes[i], 1, VULKAN_BARE_NAIVE);
	for (size_t i = 1;
	     i < ARRAY_SIZE(sizes) && r >= 0 && target.gpu.kind == RBK_DEVICE_KIND_SOFTWARE_GPU;
	     i++)
		r = compare(env, &target, sizes[i], 1, VULKAN_BARE_REGISTERS);
	target_deinit(&target);
	return r;
}

const struct bench bench_matmul_vulkan = {
	.name = "matmul-vulkan",
	.summary = "products of n x n matrices on the GPU, through the broker",
	.baseline = "the same shader and memory path in a bare loop; a naive shader, and a shader "
		    "with register tiles",
	.run = run,
};
