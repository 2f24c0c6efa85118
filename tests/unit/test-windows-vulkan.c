/* SPDX-License-Identifier: MIT */
/*
 * Operators that slide a window on the Vulkan executor against the reference: random shapes,
 * attributes and types, guards around every tensor, both shader variants.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/random-windows.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 5, ROUNDS = 40 * RANDOM_WINDOWS_OPERATORS };

static void check(struct rig *rig, struct plan *plan, unsigned int round)
{
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	struct job job;

	rig_prepare(rig, plan);
	job_init(rig, &job, plan, count, 1 + round);
	job_reset(&job);
	rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!job_check(&job, 2e-5, 1e-5))
		fail_msg("%s, round %u", plan->nodes[0].op->name, round);
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

static void check_variant(uint32_t force)
{
	uint64_t seed = 78;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int round = 0; round < ROUNDS; round++)
		check(&rig, random_window(&seed, round, MAX_COUNT), round);
	rig_deinit(&rig);
}

TEST(test_windows__plain)
{
	check_variant(VULKAN_FORCE_PLAIN);
}

TEST(test_windows__shared)
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
