/* SPDX-License-Identifier: MIT */
/*
 * Operators that slide a window on the CPU's executor, at every SIMD level, against the reference:
 * random shapes, attributes and types.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "reference/random-windows.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 5, ROUNDS = 90 * RANDOM_WINDOWS_OPERATORS };

static void check(struct cpu_rig *rig, struct plan *plan, unsigned int round)
{
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	struct reference_buffers want;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1 + round);
	reference_buffers_copy(&want, &job.buffers);
	reference_run(plan, count, want.bindings);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!reference_buffers_close(plan, count, &job.buffers, &want, 1e-5, 1e-5))
		fail_msg("%s, round %u", plan->nodes[0].op->name, round);
	reference_buffers_deinit(&want);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

TEST(test_windows__against_reference)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		uint64_t seed = 77;
		struct cpu_rig rig;

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		cpu_rig_init(&rig,
			     &(struct cpu_options){.n_workers = 1, .simd = (enum cpu_simd)level});
		for (unsigned int round = 0; round < test_scaled(ROUNDS); round++)
			check(&rig, random_window(&seed, round, MAX_COUNT), round);
		cpu_rig_deinit(&rig);
	}
}

TEST_MAIN(NULL, NULL, clock_init())
