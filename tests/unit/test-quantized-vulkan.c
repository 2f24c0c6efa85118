/* SPDX-License-Identifier: MIT */
/*
 * Operators on quantized tensors on the Vulkan executor against the reference: bit by bit where
 * results are whole numbers, over random shapes, signs, zero points, scales and types of floats,
 * both shader variants, guards around every tensor; weights constant and not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/random-quantized.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { ROUNDS = 40, CONSTANT_BYTES = 2 << 20 };

static void check(struct rig *rig, struct plan *plan, uint32_t count, uint64_t *seed)
{
	struct job job;

	job_init(rig, &job, plan, count, 1);
	reference_buffers_deinit(&job.want);
	random_quantized_buffers(&job.want, plan, count, seed);
	job_reset(&job);
	rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!job_check(&job, 1e-4, 1e-3))
		fail_msg("%s, count %u", plan->nodes[0].op->name, count);
	job_deinit(rig, &job);
}

static void check_variant(uint32_t force)
{
	struct exec_arena arena;
	uint64_t seed = 41;
	struct rig rig;

	reference_arena_init(&arena, CONSTANT_BYTES, 3);
	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (const enum op_kind *kind = random_quantized_ops; *kind != OP_KIND_COUNT; kind++) {
		for (unsigned int round = 0; round < ROUNDS; round++) {
			struct plan *plan =
				random_quantized_plan(*kind, &arena, round % 12 == 0, &seed);

			rig_prepare(&rig, plan);
			check(&rig, plan, plan->max_count, &seed);
			if (plan->max_count > 1)
				check(&rig, plan, 1, &seed);
			rig_release(&rig, plan);
		}
	}
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Sums beyond the numbers of 32 bits, which wrap around: of all ones, and zero points. */
static void check_wraps(uint32_t force)
{
	static const uint32_t depth = 40003;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int zeros = 0; zeros < 2; zeros++) {
		struct describe *d = describe_new("wraps", 1);
		struct plan *plan;
		struct job job;

		describe_tensor(d, "a", RBK_TENSOR_INPUT, RBK_DTYPE_U8, 0, DESCRIBE_DIMS(3, depth));
		describe_tensor(d, "b", RBK_TENSOR_INPUT, RBK_DTYPE_U8, 0, DESCRIBE_DIMS(depth, 5));
		describe_tensor(d, "z", RBK_TENSOR_INPUT, RBK_DTYPE_U8, 0, DESCRIBE_SCALAR);
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I32);
		describe_node(d, "MatMulInteger", "", zeros ? "a,b,z" : "a,b,-,z", "y");
		plan = reference_plan(d, NULL);
		rig_prepare(&rig, plan);
		job_init(&rig, &job, plan, 1, 1);
		for (unsigned int i = 0; i < 3; i++)
			memset(job.want.bindings[i], i < 2 ? 0xff : 1, job.want.bytes[i]);
		job_reset(&job);
		rig_run(&rig, &job);
		assert_int_equal(job.task.res, 0);
		assert_true(job_check(&job, 0, 0));
		job_deinit(&rig, &job);
		rig_release(&rig, plan);
	}
	rig_deinit(&rig);
}

TEST(test_quantized__wraps)
{
	check_wraps(VULKAN_FORCE_PLAIN);
	check_wraps(VULKAN_FORCE_SHARED);
}

TEST(test_quantized__plain)
{
	check_variant(VULKAN_FORCE_PLAIN);
}

TEST(test_quantized__shared)
{
	check_variant(VULKAN_FORCE_SHARED);
}

int main(void)
{
	clock_init();
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
