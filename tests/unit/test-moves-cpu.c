/* SPDX-License-Identifier: MIT */
/*
 * What only moves elements on the CPU's executor, at every SIMD level, against the reference: every
 * operator and type, random shapes and attributes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/kernels.h"
#include "reference/random-moves.h"
#include "support/elementwise-cases.h"
#include "support/scaled.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 7, ROUNDS = 8 * RANDOM_MOVES_ROUNDS };

static uint64_t seed = 77;

static void check(struct cpu_rig *rig, unsigned int round)
{
	struct plan *plan = random_moves(&seed, round, MAX_COUNT);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	struct reference_buffers want;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1);
	elementwise_fill(plan, count, &job.buffers, &seed);
	reference_buffers_copy(&want, &job.buffers);
	reference_run(plan, count, want.bindings);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!reference_buffers_close(plan, count, &job.buffers, &want, 0, 0))
		fail_msg("%s of type %u, round %u", plan->nodes[0].op->name, plan->tensors[0].dtype,
			 round);
	reference_buffers_deinit(&want);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

static void test_moves__against_reference(void **state)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct cpu_rig rig;

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		cpu_rig_init(&rig,
			     &(struct cpu_options){.n_workers = 1, .simd = (enum cpu_simd)level});
		for (unsigned int round = 0; round < test_scaled(ROUNDS); round++)
			check(&rig, round);
		cpu_rig_deinit(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves__against_reference),
	};

	clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
