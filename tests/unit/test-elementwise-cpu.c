/* SPDX-License-Identifier: MIT */
/*
 * What works element by element on the CPU's executor, at every SIMD level, against the reference:
 * every operator and type, random shapes and broadcasts, edge values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "support/elementwise-cases.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { ROUNDS = 14, CAST_ROUNDS = 18 };

static uint64_t seed = 99;

static void check(struct cpu_rig *rig, const struct op *op, uint8_t dtype, unsigned int round)
{
	struct plan *plan = reference_plan(elementwise_case(op, dtype, round, &seed), NULL);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % ELEMENTWISE_MAX_COUNT;
	/* Of a line near where it is 0 the sum's terms are all that is left to compare with. */
	const bool is_difference = op->kind == OP_HARD_SIGMOID || op->kind == OP_HARD_SWISH;
	struct reference_buffers want;
	struct cpu_job job;
	char what[64];

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1);
	elementwise_fill(plan, count, &job.buffers, &seed);
	reference_buffers_copy(&want, &job.buffers);
	reference_run(plan, count, want.bindings);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	snprintf(what, sizeof(what), "%s of type %u, round %u", op->name, dtype, round);
	if (!reference_buffers_close(plan, count, &job.buffers, &want, 2e-5,
				     is_difference ? 1e-7 : 1e-30))
		fail_msg("%s", what);
	reference_buffers_deinit(&want);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

TEST(test_elementwise__against_reference)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct cpu_rig rig;

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		cpu_rig_init(&rig,
			     &(struct cpu_options){.n_workers = 1, .simd = (enum cpu_simd)level});
		for (unsigned int kind = OP_ADD; kind <= OP_BITWISE_NOT; kind++) {
			const struct op *op = op_by_kind((enum op_kind)kind);

			for (uint8_t dtype = 0; dtype < 32; dtype++)
				for (unsigned int round = 0;
				     round < (kind == OP_CAST ? CAST_ROUNDS : ROUNDS); round++)
					if (op->classes[0].cpu & OP_TYPE(dtype))
						check(&rig, op, dtype, round);
		}
		cpu_rig_deinit(&rig);
	}
}

TEST_MAIN(NULL, NULL, clock_init())
