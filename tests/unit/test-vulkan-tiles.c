/* SPDX-License-Identifier: MIT */
/*
 * Each tile shape of a shader variant (plain, shared) against the plain reference, whatever
 * problems it would be chosen for: random products and convolutions, both types, guards around each
 * tensor. The argument "all" adds products that differ from others in a transposition alone. With
 * RBK_TEST_MATRICES in the environment, the device must have a tile of cooperative matrices:
 * tests/soak/newer.py has such a device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"
#include "vulkan/device.h"
#include "vulkan/tiles.h"

enum { MAX_COUNT = 4, ROUNDS = 24 };

static uint32_t force = VULKAN_FORCE_PLAIN; /* the shader variant */
static bool has_all;                        /* see describe() */
static uint64_t seed = 11;

static uint32_t pick(uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(&seed) % (to - from + 1));
}

/* Pick a size at or near the edges of tiles, of quads and of steps of k. */
static uint32_t pick_size(uint32_t from, uint32_t to)
{
	static const uint32_t edges[] = {1,  3,  4,  8,  15, 16, 17,  31,
					 32, 33, 63, 64, 65, 96, 128, 129};
	const uint32_t edge = edges[pick(0, sizeof(edges) / sizeof(edges[0]) - 1)];

	return edge >= from && edge <= to && pick(0, 2) > 0 ? edge : pick(from, to);
}

static struct describe *describe_product(bool trans_a, bool trans_b)
{
	const uint32_t m = pick_size(1, 150), n = pick_size(1, 300), k = pick_size(1, 90);
	const bool is_batch = !trans_a && !trans_b && pick(0, 1);
	struct describe *d = describe_new("tiles", is_batch ? MAX_COUNT : 1);

	if (is_batch) {
		describe_input(d, "a", DESCRIBE_DIMS(DESCRIBE_COUNT, m, k));
		describe_input(d, "b", DESCRIBE_DIMS(pick(0, 1) ? DESCRIBE_COUNT : 1, k, n));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "MatMul", "", "a,b", "y");
		return d;
	}
	describe_input(d, "a", DESCRIBE_DIMS(trans_a ? k : m, trans_a ? m : k));
	describe_input(d, "b", DESCRIBE_DIMS(trans_b ? n : k, trans_b ? k : n));
	describe_input(d, "c", DESCRIBE_DIMS(pick(0, 1) ? m : 1, pick(0, 1) ? n : 1));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Gemm", "", "a,b,c", "y");
	describe_attr_int(d, "transA", trans_a);
	describe_attr_int(d, "transB", trans_b);
	if (pick(0, 1))
		describe_attr_float(d, "beta", 0.5f);
	return d;
}

/* Describe a convolution with enough output channels for the pipelines with tile shapes. */
static struct describe *describe_convolution(void)
{
	const uint32_t group = pick(1, 2), filters = group * pick_size(32, 140);
	const uint32_t channels = pick_size(1, 20), kernel_h = pick(1, 3), kernel_w = pick(2, 4);
	const int64_t pads[4] = {pick(0, 2), pick(0, 3), pick(0, 2), pick(0, 3)};
	const int64_t strides[2] = {pick(1, 2), pick(1, 2)};
	const int64_t dilations[2] = {pick(1, 2), pick(1, 2)};
	struct describe *d = describe_new("tiles", MAX_COUNT);

	describe_input(d, "x",
		       DESCRIBE_DIMS(DESCRIBE_COUNT, group * channels, pick_size(5, 12),
				     pick_size(7, 24)));
	describe_input(d, "w", DESCRIBE_DIMS(filters, channels, kernel_h, kernel_w));
	describe_input(d, "b", DESCRIBE_DIMS(filters));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Conv", "", "x,w,b", "y");
	describe_attr_int(d, "group", group);
	describe_attr_ints(d, "pads", 4, pads);
	describe_attr_ints(d, "strides", 2, strides);
	describe_attr_ints(d, "dilations", 2, dilations);
	return d;
}

/*
 * Compilers of software devices are slow, so not every pipeline of products is tested. A shape has
 * one of the four pairs of transpositions with float32, another one with float16; with "all" two of
 * the pairs, and the other two. Cooperative matrices have one type and all four pairs.
 */
static struct describe *describe(enum exec_tile_op op, unsigned int tile, bool of_matrices,
				 unsigned int round)
{
	const bool is_half = op == EXEC_TILE_CONV ? round % 4 == 0 : op == EXEC_TILE_MATMUL_HALF;
	const unsigned int pairs = of_matrices ? round : tile + is_half;
	const bool trans_a = has_all || of_matrices ? pick(0, 1) : tile / 2 % 2;
	const bool trans_b = trans_a ^ (pairs % 2 != 0);
	struct describe *d =
		op == EXEC_TILE_CONV ? describe_convolution() : describe_product(trans_a, trans_b);

	if (is_half)
		describe_halve(d);
	return d;
}

static void check(struct rig *rig, enum exec_tile_op op, unsigned int tile, bool of_matrices,
		  unsigned int round)
{
	struct describe *d = describe(op, tile, of_matrices, round);
	struct plan *plan;
	struct job job;

	plan = reference_plan(d, NULL);
	rig_prepare(rig, plan);
	job_init(rig, &job, plan, plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT, 1 + round);
	job_reset(&job);
	rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!job_check(&job, 2e-5, 3e-5))
		fail_msg("%s, shape %u, round %u", plan->nodes[0].op->name, tile, round);
	job_deinit(rig, &job);
	rig_release(rig, plan);
}

/* Each tile of the variant, with problems of all classes. */
TEST(test_tiles__right)
{
	struct exec_tile tile;
	unsigned int n[EXEC_TILE_OPS];
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (n[op] = 0; rig.executor->ops->tile(rig.executor, op, n[op], &tile); n[op]++) {
			struct exec_tiles tiles;

			assert_true(tile.rows > 0 && tile.cols > 0);
			memset(&tiles, (int)n[op], sizeof(tiles));
			executor_set_tiles(rig.executor, &tiles);
			for (unsigned int round = 0; round < test_scaled(ROUNDS); round++)
				check(&rig, op, n[op], tile.of_matrices, round);
		}
	assert_true(n[EXEC_TILE_MATMUL] >= 3 && n[EXEC_TILE_CONV] >= 3);
	assert_true(n[EXEC_TILE_MATMUL_HALF] >= 3);
	rig_deinit(&rig);
}

/*
 * List the tile shapes of a device of the shared variant for an operator.
 * Return: their number.
 */
static unsigned int list_tiles(uint32_t matrix, bool has_half, enum exec_tile_op op,
			       struct exec_tile ret[EXEC_MAX_TILES])
{
	static struct vk_device device;
	unsigned int n = 0;

	device.variant = VK_VARIANT_SHARED;
	device.subgroup_size = 32;
	device.has_half = has_half;
	device.product = (struct vk_matrices){matrix, matrix, matrix, 32};
	while (vk_tile(&device, op, n, &ret[n]))
		n++;
	return n;
}

/*
 * Made-up devices: products of float16 may use cooperative matrices if the device has any, as one
 * more shape after the others. No other operator uses them.
 */
TEST(test_tiles__of_made_up_matrices)
{
	struct exec_tile with[EXEC_MAX_TILES] = {0}, without[EXEC_MAX_TILES] = {0};
	unsigned int n;

	for (enum exec_tile_op op = 0; op < EXEC_TILE_OPS; op++) {
		const bool is_half = op == EXEC_TILE_MATMUL_HALF;

		n = list_tiles(0, true, op, without);
		assert_true(n >= 3);
		assert_int_equal(list_tiles(16, true, op, with), n + is_half);
		assert_memory_equal(with, without, n * sizeof(with[0]));
		for (unsigned int i = 0; i < n; i++)
			assert_false(with[i].of_matrices);
		assert_int_equal(with[n].of_matrices, is_half);
		if (!is_half)
			continue;
		assert_int_equal(list_tiles(16, false, op, with), 0);
		assert_true(vk_pipe_is_of_matrices(vk_tile_info(VK_VARIANT_SHARED, op, n)));
		assert_false(vk_pipe_is_of_matrices(vk_tile_info(VK_VARIANT_SHARED, op, n - 1)));
	}
}

/*
 * Cooperative matrices of this device. test_tiles__right checks their results as those of every
 * other shape.
 */
TEST(test_tiles__of_matrices)
{
	unsigned int n[EXEC_TILE_OPS] = {0};
	struct exec_tile tile;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int op = 0; op < EXEC_TILE_OPS; op++)
		for (unsigned int i = 0; rig.executor->ops->tile(rig.executor, op, i, &tile); i++)
			n[op] += tile.of_matrices;
	assert_int_equal(n[EXEC_TILE_MATMUL] + n[EXEC_TILE_CONV], 0);
	if (getenv("RBK_TEST_MATRICES")) {
		assert_true(rig.executor->info.matrices[0]);
		assert_int_equal(n[EXEC_TILE_MATMUL_HALF], 1);
	} else if (!rig.executor->info.matrices[0]) {
		print_message("no cooperative matrices here: only that none are taken\n");
		assert_int_equal(n[EXEC_TILE_MATMUL_HALF], 0);
	}
	rig_deinit(&rig);
}

/* Invalid shapes, as in a file of another version, change nothing. */
TEST(test_set__unknown)
{
	struct exec_tiles before, after, wrong;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = VULKAN_FORCE_SHARED});
	executor_get_tiles(rig.executor, &before);
	memset(&wrong, 0xff, sizeof(wrong));
	wrong.of[EXEC_TILE_CONV][EXEC_TILE_SMALL] = 1;
	executor_set_tiles(rig.executor, &wrong);
	executor_get_tiles(rig.executor, &after);
	assert_int_equal(after.of[EXEC_TILE_CONV][EXEC_TILE_SMALL], 1);
	after.of[EXEC_TILE_CONV][EXEC_TILE_SMALL] = before.of[EXEC_TILE_CONV][EXEC_TILE_SMALL];
	assert_memory_equal(&before, &after, sizeof(before));
	rig_deinit(&rig);
}

TEST(test_class)
{
	assert_int_equal(exec_tile_class(1, 1, 1), EXEC_TILE_FEW_ROWS);
	assert_int_equal(exec_tile_class(EXEC_TILE_ROWS, 1 << 20, 7), EXEC_TILE_FEW_ROWS);
	assert_int_equal(exec_tile_class(EXEC_TILE_ROWS + 1, EXEC_TILE_COLS, 1),
			 EXEC_TILE_FEW_COLS);
	assert_int_equal(exec_tile_class(128, 128, 1), EXEC_TILE_SMALL);
	assert_int_equal(exec_tile_class(128, 128, 4), EXEC_TILE_LARGE);
	assert_int_equal(exec_tile_class(256, 256, 1), EXEC_TILE_LARGE);
	assert_int_equal(exec_tile_class(UINT32_MAX, UINT32_MAX, 1), EXEC_TILE_LARGE);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "shared") == 0)
		force = VULKAN_FORCE_SHARED;
	has_all = argc > 2 && strcmp(argv[2], "all") == 0;
	clock_init();
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
