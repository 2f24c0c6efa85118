/* SPDX-License-Identifier: MIT */
/*
 * Operators that go by indices on the Vulkan executor against the reference: every type, random
 * shapes, indices that are out of range, guards around every tensor, both shader variants.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gather-cases.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { ROUNDS = 12 };

static uint64_t seed = 98;

static void run(struct rig *rig, struct job *job, int32_t want, const char *what)
{
	job_reset(job);
	rig_run(rig, job);
	if (job->task.res != want)
		fail_msg("%s: %d, expected %d", what, job->task.res, want);
}

static void check(struct rig *rig, const struct op *op, uint8_t dtype, unsigned int round)
{
	struct plan *plan = reference_plan(gather_case(op, dtype, round, &seed), NULL);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % GATHER_MAX_COUNT;
	struct job job;
	char what[64];

	snprintf(what, sizeof(what), "%s of type %u, round %u", op->name, dtype, round);
	rig_prepare(rig, plan);
	job_init(rig, &job, plan, count, 1);
	gather_fill(plan, count, &job.want, &seed);
	/* The guards still are what they were, and the next task knows nothing of it. */
	if (gather_spoil(plan, count, &job.want, &seed)) {
		run(rig, &job, -EDOM, what);
		gather_fill(plan, count, &job.want, &seed);
	}
	run(rig, &job, 0, what);
	if (!job_check(&job, 0, 0))
		fail_msg("%s", what);
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

static void check_all(uint32_t force)
{
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int kind = GATHER_FIRST; kind <= GATHER_LAST; kind++) {
		const struct op *op = op_by_kind((enum op_kind)kind);

		for (uint8_t dtype = 0; dtype < 32; dtype++)
			for (unsigned int round = 0; round < ROUNDS; round++)
				if (rig.executor->info.types & OP_ANY_TYPE & OP_TYPE(dtype))
					check(&rig, op, dtype, round);
	}
	rig_deinit(&rig);
}

TEST(test_gather__against_reference)
{
	check_all(0);
}

TEST(test_gather__other_variants)
{
	check_all(VULKAN_FORCE_SHARED | VULKAN_FORCE_UPLOAD);
	check_all(VULKAN_FORCE_PLAIN | VULKAN_FORCE_STAGED);
}

/* More updates of an element than one invocation is to look at. */
TEST(test_scatter__too_many)
{
	struct describe *d = describe_new("many", 1);
	struct plan *plan;
	struct rig rig;

	describe_input(d, "x", DESCRIBE_DIMS(50));
	describe_tensor(d, "at", RBK_TENSOR_INPUT, RBK_DTYPE_I64, 0, DESCRIBE_DIMS(1 << 20));
	describe_input(d, "u", DESCRIBE_DIMS(1 << 20));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "ScatterElements", "", "x,at,u", "y");
	plan = reference_plan(d, NULL);
	rig_init(&rig, &(struct vulkan_options){0});
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan),
			 EXECUTOR_E_UNSUPPORTED);
	rig.executor->ops->plan_release(rig.executor, plan);
	plan_free(plan);
	rig_deinit(&rig);
}

int main(void)
{
	clock_init();
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
