/* SPDX-License-Identifier: MIT */
/*
 * What is computed along with a product or a convolution on the Vulkan executor against the
 * reference: with fusion and without, guards around every tensor, both shader variants.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/random-fused.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 5, ROUNDS = 2 * RANDOM_FUSED_ROUNDS };

static void check(struct rig *rig, uint64_t seed, unsigned int round, bool fuses)
{
	struct plan *plan = random_fused(&seed, round, MAX_COUNT, fuses);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	struct job job;

	rig_prepare(rig, plan);
	job_init(rig, &job, plan, count, 1 + round);
	if (round % 3 == 0)
		random_fused_fill(&seed, plan, &job.want);
	job_reset(&job);
	rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!job_check(&job, RANDOM_FUSED_RTOL(plan), RANDOM_FUSED_ATOL(plan)))
		fail_msg("%s and %s, round %u, %s", plan->nodes[0].op->name,
			 plan->nodes[plan->n_nodes - 1].op->name, round,
			 fuses ? "together" : "apart");
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

static void check_variant(uint32_t force)
{
	uint64_t seed = 78;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int round = 0; round < ROUNDS; round++) {
		reference_random(&seed);
		check(&rig, seed, round, true);
		if (round % 4 == 0)
			check(&rig, seed, round, false);
	}
	rig_deinit(&rig);
}

TEST(test_fuse__plain)
{
	check_variant(VULKAN_FORCE_PLAIN);
}

TEST(test_fuse__shared)
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
