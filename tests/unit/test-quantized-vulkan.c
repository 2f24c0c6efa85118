/* SPDX-License-Identifier: MIT */
/*
 * Operators on quantized tensors on the Vulkan executor against the reference: bit by bit where
 * results are whole numbers, over random shapes, signs, zero points, scales and types of floats,
 * both shader variants, guards around every tensor; weights constant and not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "reference/random-quantized.h"
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

static void test_quantized__plain(void **state)
{
	check_variant(VULKAN_FORCE_PLAIN);
}

static void test_quantized__shared(void **state)
{
	check_variant(VULKAN_FORCE_SHARED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantized__plain),
		cmocka_unit_test(test_quantized__shared),
	};

	clock_init();
	if (!rig_available())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
