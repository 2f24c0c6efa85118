/* SPDX-License-Identifier: MIT */
/*
 * Networks over pictures on the CPU's executor: with channels last wherever that is possible, and
 * where it pays, against the reference; and without any fusion.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "reference/random-nets.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 4, ROUNDS = 250 };

/* Rounding is measured by the largest number of a tensor: it comes from sums of such. */
static void assert_close(const struct tensor *tensor, unsigned int seed, const float *got,
			 const float *want, size_t n)
{
	float largest = 1;

	for (size_t i = 0; i < n; i++)
		if (isfinite(want[i]) && fabsf(want[i]) > largest)
			largest = fabsf(want[i]);
	for (size_t i = 0; i < n; i++)
		if (got[i] != want[i] && !(isnan(got[i]) && isnan(want[i])) &&
		    !(fabsf(got[i] - want[i]) <= 1e-4f * largest))
			fail_msg("net %u, \"%s\"[%zu]: %g instead of %g", seed, tensor->name, i,
				 (double)got[i], (double)want[i]);
}

static void check(struct cpu_rig *rig, struct exec_arena *arena, unsigned int seed, bool fuses)
{
	struct plan *plan = random_net(seed, MAX_COUNT, arena, fuses);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + seed % MAX_COUNT;
	struct reference_buffers want;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1 + seed);
	reference_buffers_copy(&want, &job.buffers);
	reference_run(plan, count, want.bindings);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	for (unsigned int i = 0; i < plan->n_bindings; i++)
		if (plan->bindings[i].written)
			assert_close(&plan->tensors[plan->bindings[i].tensor], seed,
				     job.buffers.bindings[i], want.bindings[i],
				     want.bytes[i] / sizeof(float));
	reference_buffers_deinit(&want);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

TEST(test_layout__against_reference)
{
	struct exec_arena arena;

	reference_arena_init(&arena, RANDOM_NETS_ARENA_BYTES, 5);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct cpu_rig rigs[2];

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		for (unsigned int i = 0; i < 2; i++)
			cpu_rig_init(&rigs[i],
				     &(struct cpu_options){.n_workers = 1 + i,
							   .simd = (enum cpu_simd)level,
							   .layout = i == 0 ? CPU_LAYOUT_EVERY
									    : CPU_LAYOUT_WORTH});
		for (unsigned int seed = 0; seed < test_scaled(ROUNDS); seed++) {
			check(&rigs[0], &arena, seed, true);
			check(&rigs[1], &arena, seed, true);
			check(&rigs[seed & 1], &arena, seed, false);
		}
		for (unsigned int i = 0; i < 2; i++)
			cpu_rig_deinit(&rigs[i]);
	}
	reference_arena_deinit(&arena);
}

/*
 * A picture that as many nodes read as a plan can have, each as often as it can: who submits it
 * keeps the setup thread for milliseconds, not for minutes. (This test then reaches its time
 * limit.)
 */
TEST(test_layout__one_picture_with_all_readers)
{
	enum { INPUTS = 32, N_CONCAT = RBK_MAX_PLAN_TENSORS - 4 };
	char inputs[2 * INPUTS], name[16];
	struct exec_arena arena;
	struct cpu_rig rig;
	struct describe *d = describe_new("readers", 1);
	struct plan *plan;

	reference_arena_init(&arena, RANDOM_NETS_ARENA_BYTES, 5);
	describe_input(d, "x", DESCRIBE_DIMS(1, 2, 2, 2));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(2, 2, 1, 1));
	describe_scratch(d, "p");
	describe_node(d, "Conv", "", "x,w", "p");
	for (unsigned int i = 0; i < INPUTS; i++)
		memcpy(inputs + 2 * i, i + 1 < INPUTS ? "p," : "p", 2);
	for (unsigned int i = 0; i < N_CONCAT; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		describe_scratch(d, name);
		describe_node(d, "Concat", "", inputs, name);
		describe_attr_int(d, "axis", 1);
	}
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Relu", "", name, "y");
	plan = reference_plan(d, &arena);

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1, .layout = CPU_LAYOUT_WORTH});
	cpu_rig_prepare(&rig, plan);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

TEST_MAIN(NULL, NULL, clock_init())
