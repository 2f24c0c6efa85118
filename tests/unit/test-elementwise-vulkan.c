/* SPDX-License-Identifier: MIT */
/*
 * What works element by element on the Vulkan executor against the reference: every operator and
 * type, random shapes and broadcasts, edge values, guards around every tensor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/elementwise-cases.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { ROUNDS = 4, CAST_ROUNDS = 18 };

static uint64_t seed = 98;

static void check(struct rig *rig, const struct op *op, uint8_t dtype, unsigned int round)
{
	struct plan *plan = reference_plan(elementwise_case(op, dtype, round, &seed), NULL);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % ELEMENTWISE_MAX_COUNT;
	struct job job;

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

TEST(test_elementwise__against_reference)
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

/* A device without shaderFloat64: nothing of float64 is its own, all else is. */
TEST(test_elementwise__without_float64)
{
	const struct op *op = op_by_kind(OP_CAST);
	unsigned int n_refused = 0, n_run = 0;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = VULKAN_FORCE_NO_DOUBLES});
	assert_int_equal(rig.executor->info.types, OP_ANY_TYPE & ~OP_FLOAT64);
	for (uint8_t dtype = 0; dtype < 32; dtype++)
		for (unsigned int round = 0; round < CAST_ROUNDS; round++) {
			struct plan *plan;

			if (!(op->classes[0].vulkan & OP_TYPE(dtype)))
				continue;
			plan = reference_plan(elementwise_case(op, dtype, round, &seed), NULL);
			if (dtype != RBK_DTYPE_F64 &&
			    plan->tensors[plan->nodes[0].out[0]].dtype != RBK_DTYPE_F64) {
				plan_free(plan);
				check(&rig, op, dtype, round);
				n_run++;
				continue;
			}
			assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan),
					 EXECUTOR_E_UNSUPPORTED);
			assert_int_equal(plan->device_state[RBK_DEVICE_GPU],
					 PLAN_DEVICE_UNSUPPORTED);
			rig.executor->ops->plan_release(rig.executor, plan);
			plan_free(plan);
			n_refused++;
		}
	assert_true(n_refused > CAST_ROUNDS);
	assert_true(n_run > CAST_ROUNDS);
	rig_deinit(&rig);
}

int main(void)
{
	clock_init();
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
