/* SPDX-License-Identifier: MIT */
/*
 * GridSample: its shape rule; on the CPU's executor, at every SIMD level, and on the Vulkan
 * executor, in both shader variants, against the reference.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "shm/half.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 3, ROUNDS = 240, VULKAN_ROUNDS = 120 };

static uint32_t pick(uint64_t *seed, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(seed) % (to - from + 1));
}

/* Case @round: every mode, padding and type, with and without a count. */
static struct plan *plan_of(unsigned int round, bool mixes, uint64_t *seed)
{
	static const char *const modes[] = {"linear", "nearest", "cubic", "bilinear", "bicubic"};
	static const char *const paddings[] = {"zeros", "border", "reflection"};
	static const enum rbk_dtype types[] = {RBK_DTYPE_F32, RBK_DTYPE_F16, RBK_DTYPE_F64};
	const unsigned int mode = round % 5, padding = round / 5 % 3;
	const unsigned int spatial = mode == 2 || mode == 4 ? 2 : pick(seed, 2, 3);
	const unsigned int type = round / 15 % 3, grid_type = mixes ? pick(seed, 0, 2) : type;
	const bool is_dynamic = pick(seed, 0, 1);
	struct describe *d = describe_new("sample", is_dynamic ? MAX_COUNT : 1);
	uint32_t x[RBK_MAX_RANK], grid[RBK_MAX_RANK];

	x[0] = grid[0] = is_dynamic ? DESCRIBE_COUNT : pick(seed, 1, 2);
	x[1] = pick(seed, 0, 3) ? pick(seed, 1, 5) : pick(seed, 30, 70);
	for (unsigned int i = 0; i < spatial; i++) {
		x[2 + i] = pick(seed, 0, 7) ? pick(seed, 1, 9) : 1;
		grid[1 + i] = pick(seed, 1, spatial == 2 ? 15 : 6);
	}
	grid[1 + spatial] = spatial;
	describe_tensor(d, "x", RBK_TENSOR_INPUT, types[type], 0, 2 + spatial, x);
	describe_tensor(d, "grid", RBK_TENSOR_INPUT, types[grid_type], 0, 2 + spatial, grid);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, types[type]);
	describe_node(d, "GridSample", "", "x,grid", "y");
	describe_attr_string(d, "mode", modes[mode]);
	describe_attr_string(d, "padding_mode", paddings[padding]);
	describe_attr_int(d, "align_corners", pick(seed, 0, 1));
	return reference_plan(d, NULL);
}

/* Coordinates: many of them half way between pixels, some beside the picture, few far away. */
static void fill(const struct plan *plan, uint32_t count, void *to, uint64_t *seed)
{
	const struct tensor *grid = &plan->tensors[plan->nodes[0].in[1]];

	for (uint64_t i = 0; i < shape_elems(&grid->shape, count); i++) {
		const uint32_t kind = pick(seed, 0, 9);
		const double whole = (double)pick(seed, 0, 40) - 20;
		double n = kind < 3   ? whole / 16
			   : kind < 6 ? whole / 9
			   : kind < 9 ? (double)pick(seed, 0, 1 << 20) / (1 << 19) - 1
				      : whole / 2;

		if (grid->dtype == RBK_DTYPE_F64)
			((double *)to)[i] = n;
		else if (grid->dtype == RBK_DTYPE_F32)
			((float *)to)[i] = (float)n;
		else
			((uint16_t *)to)[i] = half_from_float((float)n);
	}
}

static void check_cpu(struct cpu_rig *rig, unsigned int round, uint64_t *seed)
{
	struct plan *plan = plan_of(round, true, seed);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	struct reference_buffers want;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1 + round);
	fill(plan, count, job.buffers.bindings[1], seed);
	reference_buffers_copy(&want, &job.buffers);
	reference_run(plan, count, want.bindings);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!reference_buffers_close(plan, count, &job.buffers, &want, 1e-6, 1e-6))
		fail_msg("round %u", round);
	reference_buffers_deinit(&want);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

TEST(test_grid_sample__cpu)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		uint64_t seed = 5;
		struct cpu_rig rig;

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		cpu_rig_init(&rig,
			     &(struct cpu_options){.n_workers = 1, .simd = (enum cpu_simd)level});
		for (unsigned int round = 0; round < ROUNDS; round++)
			check_cpu(&rig, round, &seed);
		cpu_rig_deinit(&rig);
	}
}

/* A coordinate that is no number, or far beyond all pixels, reads nothing beside the picture. */
TEST(test_grid_sample__no_numbers)
{
	static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, 1e9f, -1e9f};
	uint64_t seed = 6;
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int round = 0; round < 15; round++) {
		struct plan *plan = plan_of(round, false, &seed);
		struct cpu_job job;

		cpu_rig_prepare(&rig, plan);
		cpu_job_init(&job, plan, 1, 1);
		for (uint64_t i = 0; i < job.buffers.bytes[1] / sizeof(float); i++)
			((float *)job.buffers.bindings[1])[i] = odd[pick(&seed, 0, 7)];
		cpu_rig_run(&rig, &job);
		assert_int_equal(job.task.res, 0);
		for (uint64_t i = 0; i < job.buffers.bytes[2] / sizeof(float); i++)
			assert_true(fabsf(((float *)job.buffers.bindings[2])[i]) < 10);
		cpu_job_deinit(&job);
		cpu_rig_release(&rig, plan);
	}
	cpu_rig_deinit(&rig);
}

static void check_vulkan(struct rig *rig, unsigned int round, uint64_t *seed)
{
	struct plan *plan = plan_of(round, false, seed);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	const uint8_t dtype = plan->tensors[plan->nodes[0].in[0]].dtype;
	struct job job;

	if (!(rig->executor->info.types & OP_TYPE(dtype))) {
		plan_free(plan);
		return;
	}
	rig_prepare(rig, plan);
	job_init(rig, &job, plan, count, 1 + round);
	fill(plan, count, job.want.bindings[1], seed);
	job_reset(&job);
	rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!job_check(&job, 1e-5, 2e-5))
		fail_msg("round %u", round);
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

TEST(test_grid_sample__vulkan)
{
	static const uint32_t forced[] = {VULKAN_FORCE_PLAIN, VULKAN_FORCE_SHARED,
					  VULKAN_FORCE_PLAIN | VULKAN_FORCE_STAGED};

	if (!rig_available())
		skip();
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t seed = 7;
		struct rig rig;

		rig_init(&rig, &(struct vulkan_options){.force = forced[i]});
		for (unsigned int round = 0; round < VULKAN_ROUNDS; round++)
			check_vulkan(&rig, round, &seed);
		rig_deinit(&rig);
	}
}

TEST(test_grid_sample__rule)
{
	static const char op[] = "GridSample";

	expect_infers(op, "[2,3,4,5] [2,6,7,2]", "", "[2,3,6,7]");
	expect_infers(op, "[count,3,4,5] [count,6,7,2]", "mode=bicubic", "[count,3,6,7]");
	expect_infers(op, "[2,3,4,5,6] [2,7,8,9,3]", "padding_mode=reflection", "[2,3,7,8,9]");
	expect_refuses(op, "[3,4,5] [2,6,7,2]", "", "\"a\" [3,4,5] has 3 dimensions",
		       "expected 4 or 5", NULL);
	expect_refuses(op, "[2,3,4,5,6] [2,7,8,9,3]", "mode=cubic", "\"mode\" is cubic",
		       "for 4 dimensions", "\"a\" is [2,3,4,5,6]", NULL);
	expect_refuses(op, "[2,3,4,5] [2,6,7,3]", "", "\"b\" is [2,6,7,3]", "the last of them 2",
		       NULL);
	expect_refuses(op, "[2,3,4,5] [2,6,7,8,2]", "", "expected 4 dimensions", NULL);
	expect_refuses(op, "[2,3,4,5] [3,6,7,2]", "", "differ in dimension 0", NULL);
	expect_refuses(op, "[count,3,4,5] [3,6,7,2]", "", "differ in dimension 0", NULL);
	expect_refuses(op, "[2,3,4,5] [2,6,7,2]", "mode=lanczos", "\"mode\" is \"lanczos\"",
		       "linear, nearest, cubic", NULL);
	expect_refuses(op, "[2,3,4,5] [2,6,7,2]", "padding_mode=wrap",
		       "\"padding_mode\" is \"wrap\"", NULL);
	expect_refuses(op, "[2,3,4,5] [2,6,7,2]", "align_corners=2", "\"align_corners\" is 2",
		       NULL);
}

TEST_MAIN(NULL, NULL, clock_init())
