/* SPDX-License-Identifier: MIT */
/*
 * What works element by element on the Vulkan executor against the reference: every operator and
 * type, random shapes and broadcasts, edge values, guards around every tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "support/elementwise-cases.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { ROUNDS = 4, CAST_ROUNDS = 18 };

static uint64_t seed = 98;

static void check(struct rig *rig, const struct op *op, uint8_t dtype, unsigned int round)
{
	struct plan *plan = reference_plan(elementwise_case(op, dtype, round, &seed), NULL);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % ELEMENTWISE_MAX_COUNT;
	struct job job;

	/* Float64 is the CPU's. */
	if (!(plan->ops_devices & OP_ON_VULKAN)) {
		plan_free(plan);
		return;
	}
	rig_prepare(rig, plan);
	job_init(rig, &job, plan, count, 1);
	elementwise_fill(plan, count, &job.want, &seed);
	job_reset(&job);
	rig_run(rig, &job);
	if (!job_check(&job, 1e-4, 1e-30))
		fail_msg("%s of type %u, round %u", op->name, dtype, round);
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

static void test_elementwise__against_reference(void **state)
{
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){0});
	for (unsigned int kind = OP_ADD; kind <= OP_BITWISE_NOT; kind++) {
		const struct op *op = op_by_kind((enum op_kind)kind);

		for (uint8_t dtype = 0; dtype < 32; dtype++)
			for (unsigned int round = 0;
			     round < (kind == OP_CAST ? CAST_ROUNDS : ROUNDS); round++)
				if (op->classes[0].vulkan & OP_TYPE(dtype))
					check(&rig, op, dtype, round);
	}
	rig_deinit(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elementwise__against_reference),
	};

	clock_init();
	if (!rig_available())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
