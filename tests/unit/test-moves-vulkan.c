/* SPDX-License-Identifier: MIT */
/*
 * What only moves elements on the Vulkan executor against the reference: every operator and type,
 * random shapes and attributes, both shader variants, guards around every tensor.
 */
#include <stdlib.h>
#include <string.h>

#include "reference/random-moves.h"
#include "support/elementwise-cases.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { ROUNDS = 4 * RANDOM_MOVES_ROUNDS };

static uint64_t seed = 78;

static void check(struct rig *rig, unsigned int round)
{
	struct plan *plan = random_moves(&seed, round, RIG_MAX_COUNT);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % RIG_MAX_COUNT;
	struct job job;

	rig_prepare(rig, plan);
	job_init(rig, &job, plan, count, 1);
	elementwise_fill(plan, count, &job.want, &seed);
	job_reset(&job);
	rig_run(rig, &job);
	if (!job_check(&job, 0, 0))
		fail_msg("%s of type %u, round %u", plan->nodes[0].op->name, plan->tensors[0].dtype,
			 round);
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

TEST(test_moves__against_reference)
{
	const uint32_t forces[] = {VULKAN_FORCE_PLAIN, VULKAN_FORCE_SHARED | VULKAN_FORCE_STAGED};

	for (unsigned int i = 0; i < 2; i++) {
		struct rig rig;

		rig_init(&rig, &(struct vulkan_options){.force = forces[i]});
		for (unsigned int round = 0; round < ROUNDS; round++)
			check(&rig, round);
		rig_deinit(&rig);
	}
}

int main(void)
{
	clock_init();
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
