/* SPDX-License-Identifier: MIT */
/* Division of plans into parts: each workgroup is in exactly one part */
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "vulkan/parts.h"

/* Get the range [*begin, *end) of a dispatch's workgroups over x and y that do something. */
static void groups_of(const struct vk_params *params, uint32_t *begin, uint32_t *end)
{
	const uint64_t n = (uint64_t)params->groups[0] * params->groups[1];
	const uint64_t last = params->groups[3] + n;

	assert_true(params->groups[0] <= VK_MAX_GROUPS && params->groups[1] <= VK_MAX_GROUPS);
	*begin = params->groups[3];
	/* Workgroups beyond the last one return at once. */
	*end = last < params->w[ALL_GROUPS] ? (uint32_t)last : params->w[ALL_GROUPS];
}

static void check_cut(uint32_t n, uint32_t batch, uint32_t n_ranges, uint32_t n_batches)
{
	const struct vk_section section = {
		.n_steps = 1, .n_ranges = n_ranges, .n_batches = n_batches};
	uint32_t batch_next = 0, next = 0, begin, end;

	for (uint32_t i = 0; i < vk_section_n_parts(&section); i++) {
		struct vk_params params = {0};

		params.w[ALL_GROUPS] = n;
		params.w[BATCH_END] = batch;
		vk_params_cut(&params, &section, i);
		groups_of(&params, &begin, &end);
		if (i % n_ranges == 0) {
			assert_int_equal(params.w[BATCH_BEGIN], batch_next);
			batch_next = params.w[BATCH_END];
			next = 0;
		} else {
			assert_int_equal(params.w[BATCH_END], batch_next);
		}
		assert_int_equal(params.groups[2],
				 params.w[BATCH_END] - params.w[BATCH_BEGIN] < VK_MAX_GROUPS
					 ? params.w[BATCH_END] - params.w[BATCH_BEGIN]
					 : VK_MAX_GROUPS);
		assert_int_equal(begin, next);
		assert_true(end >= begin);
		next = end;
		if (i % n_ranges == n_ranges - 1)
			assert_int_equal(next, n);
	}
	assert_int_equal(batch_next, batch);
}

TEST(test_cut__every_group_once)
{
	static const uint32_t ns[] = {1, 2, 7, 100, 65534, 65535, 65536, 65537, 131070, 1000000};

	for (unsigned int i = 0; i < sizeof(ns) / sizeof(ns[0]); i++)
		for (uint32_t ranges = 1; ranges <= 40; ranges += 1 + ranges / 4)
			for (uint32_t batch = 1; batch <= 70000; batch = 3 * batch + 1)
				for (uint32_t batches = 1; batches <= 9; batches++)
					check_cut(ns[i], batch, ranges, batches);
	check_cut(4294836225u, 1, 7, 1);
	check_cut(4294836225u, 1, 65535, 1);
}

static uint32_t step_groups, step_batch;

static void fill_fake(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	params->w[ALL_GROUPS] = step_groups;
	params->w[BATCH_END] = step_batch;
}

enum { MAX_STEPS = 2000 };

struct fake {
	struct plan plan;
	struct node nodes[MAX_STEPS];
	struct vk_step steps[MAX_STEPS];
	struct vk_section sections[MAX_STEPS];
	uint16_t n_parts;
};

static uint32_t divide(struct fake *fake, uint32_t n, uint64_t part_flops, uint64_t part_bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		fake->steps[i].node = &fake->nodes[i];
		fake->steps[i].fill = fill_fake;
		fake->steps[i].share = 1;
	}
	fake->plan.max_count = 1;
	return vk_sections_make(&fake->plan, fake->steps, n, part_flops, part_bytes, fake->sections,
				&fake->n_parts);
}

/* Check that sections and parts are contiguous, and that each part is found in its section. */
static void check_sections(const struct fake *fake, uint32_t n_sections, uint32_t n_steps)
{
	uint32_t step = 0, part = 0;

	for (uint32_t i = 0; i < n_sections; i++) {
		const struct vk_section *section = &fake->sections[i];

		assert_int_equal(section->first_step, step);
		assert_int_equal(section->first_part, part);
		assert_true(section->n_steps >= 1);
		if (vk_section_n_parts(section) > 1)
			assert_int_equal(section->n_steps, 1);
		for (uint32_t k = 0; k < vk_section_n_parts(section); k++)
			assert_ptr_equal(vk_section_of(fake->sections, n_sections, part + k),
					 section);
		step += section->n_steps;
		part += vk_section_n_parts(section);
	}
	assert_int_equal(step, n_steps);
	assert_int_equal(part, fake->n_parts);
}

TEST(test_sections__by_load)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	uint32_t n;

	step_groups = 1000;
	step_batch = 1;
	fake->nodes[0].cost = (struct cost){.flops_fixed = 40};
	fake->nodes[1].cost = (struct cost){.flops_fixed = 50, .bytes_fixed = 10};
	fake->nodes[2].cost = (struct cost){.flops_row = 20};
	fake->nodes[3].cost = (struct cost){.flops_fixed = 1001};
	fake->nodes[4].cost = (struct cost){.bytes_row = 300};
	fake->nodes[5].cost = (struct cost){.flops_fixed = 1};

	/* Without a limit there is one part. */
	n = divide(fake, 6, 0, 0);
	assert_int_equal(n, 1);
	assert_int_equal(fake->n_parts, 1);
	check_sections(fake, n, 6);

	n = divide(fake, 6, 100, 0);
	assert_int_equal(n, 4);
	check_sections(fake, n, 6);
	assert_int_equal(fake->sections[0].n_steps, 2);
	assert_int_equal(fake->sections[1].n_steps, 1);
	assert_int_equal(vk_section_n_parts(&fake->sections[2]), 11);
	assert_int_equal(fake->sections[3].n_steps, 2);

	n = divide(fake, 6, 100, 100);
	assert_int_equal(n, 5);
	check_sections(fake, n, 6);
	assert_int_equal(vk_section_n_parts(&fake->sections[3]), 3);

	/* Batches are divided first. There are no more parts than workgroups. */
	step_groups = 2;
	step_batch = 4;
	n = divide(fake, 6, 100, 0);
	check_sections(fake, n, 6);
	assert_int_equal(fake->sections[2].n_batches, 4);
	assert_int_equal(fake->sections[2].n_ranges, 2);
	free(fake);
}

/* The number of parts fits into 16 bits, however large the work. */
TEST(test_sections__bounded)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	uint64_t random = 7;

	step_groups = UINT32_MAX / 2;
	step_batch = 50000;
	for (unsigned int round = 0; round < 200; round++) {
		const uint32_t n_steps = 1 + round * 9;

		for (uint32_t i = 0; i < n_steps; i++) {
			random = random * 6364136223846793005ull + 1442695040888963407ull;
			fake->nodes[i].cost.flops_fixed = (random >> 32) >> (random >> 59);
		}
		check_sections(fake, divide(fake, n_steps, 1 + (random >> 40), 0), n_steps);
	}
	fake->nodes[0].cost.flops_fixed = UINT64_MAX;
	check_sections(fake, divide(fake, 1, 1, 1), 1);
	assert_true(fake->n_parts > 10000);
	free(fake);
}
