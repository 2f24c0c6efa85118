/* SPDX-License-Identifier: MIT */
/*
 * What is computed along with a product or a convolution on the CPU's executor, at every SIMD
 * level, against the reference: with fusion and without.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "reference/random-fused.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 5, ROUNDS = 8 * RANDOM_FUSED_ROUNDS };

static void check(struct cpu_rig *rig, uint64_t seed, unsigned int round, bool fuses)
{
	struct plan *plan = random_fused(&seed, round, MAX_COUNT, fuses);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	struct reference_buffers want;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1 + round);
	if (round % 3 == 0)
		random_fused_fill(&seed, plan, &job.buffers);
	reference_buffers_copy(&want, &job.buffers);
	reference_run(plan, count, want.bindings);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!reference_buffers_close(plan, count, &job.buffers, &want, RANDOM_FUSED_RTOL(plan),
				     RANDOM_FUSED_ATOL(plan)))
		fail_msg("%s and %s, round %u, %s", plan->nodes[0].op->name,
			 plan->nodes[plan->n_nodes - 1].op->name, round,
			 fuses ? "together" : "apart");
	reference_buffers_deinit(&want);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

TEST(test_fuse__against_reference)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		uint64_t seed = 77;
		struct cpu_rig rig;

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1 + level % 2,
							 .simd = (enum cpu_simd)level});
		for (unsigned int round = 0; round < test_scaled(ROUNDS); round++) {
			reference_random(&seed);
			check(&rig, seed, round, true);
			check(&rig, seed, round, false);
		}
		cpu_rig_deinit(&rig);
	}
}

TEST_MAIN(NULL, NULL, clock_init())
