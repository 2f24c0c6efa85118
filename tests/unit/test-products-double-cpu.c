/* SPDX-License-Identifier: MIT */
/*
 * Products, convolutions and pooling of float64 on the CPU's executor, at every SIMD level: against
 * the reference, with tolerances that float32 does not meet; the same bits however many workers
 * share the work, and of AVX2 and AVX-512. What is small and random is in test-windows-cpu.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "reference/random-gemm.h"
#include "support/describe.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 7, ARENA_BYTES = 4 << 20 };

static struct cpu_rig rigs[CPU_SIMD_COUNT]; /* without an executor where there is no such level */
static struct exec_arena arena;
static uint64_t seed = 21;

static uint32_t pick(uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(&seed) % (to - from + 1));
}

static int set_up(void **state)
{
	clock_init();
	cpu_flush_denormals();
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
		if (cpu_kernels_get((enum cpu_simd)level))
			cpu_rig_init(&rigs[level],
				     &(struct cpu_options){.n_workers = 3,
							   .simd = (enum cpu_simd)level});
	reference_arena_init(&arena, ARENA_BYTES, 5);
	for (size_t i = 0; i < ARENA_BYTES / sizeof(double); i++)
		((double *)(void *)arena.base)[i] =
			(double)(int64_t)(reference_random(&seed) >> 11) * 0x1p-52 - 1;
	return 0;
}

static int tear_down(void **state)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
		if (rigs[level].executor)
			cpu_rig_deinit(&rigs[level]);
	reference_arena_deinit(&arena);
	return 0;
}

/* One NaN is as good as another. */
static void assert_same_bits(const struct reference_buffers *a, const struct reference_buffers *b)
{
	for (unsigned int i = 0; i < a->n; i++) {
		const double *x = a->bindings[i], *y = b->bindings[i];

		for (size_t j = 0; j < a->bytes[i] / sizeof(double); j++)
			if (memcmp(&x[j], &y[j], sizeof(double)) && !(isnan(x[j]) && isnan(y[j])))
				fail_msg("binding %u, element %zu: %a and %a", i, j, x[j], y[j]);
	}
}

/* Into @ret, which starts as @from. */
static void run(struct cpu_rig *rig, struct plan *plan, uint32_t count, bool is_inline,
		const struct reference_buffers *from, struct reference_buffers *ret)
{
	struct cpu_job job;

	cpu_job_init(&job, plan, count, 1);
	for (unsigned int i = 0; i < from->n; i++)
		memcpy(job.buffers.bindings[i], from->bindings[i], from->bytes[i]);
	if (is_inline)
		rig->executor->ops->run_inline(rig->executor, &job.task);
	else
		cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	reference_buffers_copy(ret, &job.buffers);
	cpu_job_deinit(&job);
}

/* Tolerances as of float32: see reference_buffers_close(). */
static void check_data(struct plan *plan, uint32_t count, const struct reference_buffers *data,
		       double tolerance)
{
	struct reference_buffers want, got[CPU_SIMD_COUNT] = {0}, shared;

	reference_buffers_copy(&want, data);
	reference_run(plan, count, want.bindings);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct cpu_rig *rig = &rigs[level];

		if (!rig->executor)
			continue;
		cpu_rig_prepare(rig, plan);
		run(rig, plan, count, true, data, &got[level]);
		run(rig, plan, count, false, data, &shared);
		assert_same_bits(&got[level], &shared);
		reference_buffers_deinit(&shared);
		if (!reference_buffers_close(plan, count, &got[level], &want, tolerance, tolerance))
			fail_msg("%s at %s, count %u", plan->nodes[0].op->name,
				 cpu_simd_name((enum cpu_simd)level), count);
		rig->executor->ops->plan_release(rig->executor, plan);
	}
	if (rigs[CPU_SIMD_AVX2].executor && rigs[CPU_SIMD_AVX512].executor)
		assert_same_bits(&got[CPU_SIMD_AVX2], &got[CPU_SIMD_AVX512]);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
		reference_buffers_deinit(&got[level]);
	reference_buffers_deinit(&want);
}

/* A plan whose floats are made float64, at the largest count and at another one. */
static void check(struct describe *d, double tolerance)
{
	struct plan *plan;

	describe_floats(d, RBK_DTYPE_F64);
	plan = reference_plan(d, &arena);
	for (uint32_t count = plan->max_count;; count = 2) {
		struct reference_buffers data;

		reference_buffers_init(&data, plan, count, pick(1, 1000));
		check_data(plan, count, &data, tolerance);
		reference_buffers_deinit(&data);
		if (count <= 2)
			break;
	}
	plan_free(plan);
}

static void operand(struct describe *d, const char *name, bool constant, unsigned int rank,
		    const uint32_t *dims)
{
	if (constant)
		describe_constant(d, name, RBK_REF(REFERENCE_ARENA, 64), rank, dims);
	else
		describe_input(d, name, rank, dims);
}

static void matmul_case(uint32_t m, uint32_t k, uint32_t n, bool constant)
{
	struct describe *d = describe_new("", m == DESCRIBE_COUNT ? MAX_COUNT : 1);

	describe_input(d, "a", DESCRIBE_DIMS(m, k));
	operand(d, "b", constant, DESCRIBE_DIMS(k, n));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "a,b", "y");
	check(d, 1e-5);
}

TEST(test_matmul__sizes)
{
	static const uint32_t rows[] = {1, 2, 5, 6, 7, 12, 13, 24, 25};
	static const uint32_t columns[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 100};

	for (unsigned int i = 0; i < 9; i++)
		for (unsigned int j = 0; j < 15; j++)
			matmul_case(rows[i], pick(1, 40), columns[j], (i + j) & 1);
	/* Deeper than a block, several blocks of rows and columns, b in place and not. */
	matmul_case(DESCRIBE_COUNT, 600, 37, true);
	matmul_case(3, 520, 530, false);
	matmul_case(30, 257, 70, false);
	matmul_case(500, 33, 130, false);
	matmul_case(250, 10, 1100, true);
}

TEST(test_matmul__batches)
{
	struct describe *d = describe_new("", MAX_COUNT);

	describe_input(d, "a", DESCRIBE_DIMS(DESCRIBE_COUNT, 1, 3, 50));
	operand(d, "b", true, DESCRIBE_DIMS(3, 50, 40));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "a,b", "y");
	check(d, 1e-5);
	d = describe_new("", 1);
	describe_input(d, "a", DESCRIBE_DIMS(5, 2, 9, 30));
	describe_input(d, "b", DESCRIBE_DIMS(30));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "a,b", "y");
	check(d, 1e-5);
}

TEST(test_gemm__attributes)
{
	for (unsigned int round = 0; round < RANDOM_GEMM_ROUNDS; round++)
		check(random_gemm(&seed, round, MAX_COUNT), 1e-5);
}

/* Without beta the addend is not looked at. */
TEST(test_gemm__beta_0)
{
	struct describe *d = describe_new("", 1);
	struct reference_buffers data;
	struct plan *plan;

	describe_input(d, "a", DESCRIBE_DIMS(3, 4));
	describe_input(d, "b", DESCRIBE_DIMS(4, 5));
	describe_input(d, "c", DESCRIBE_DIMS(5));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Gemm", "", "a,b,c", "y");
	describe_attr_float(d, "beta", 0);
	describe_floats(d, RBK_DTYPE_F64);
	plan = reference_plan(d, NULL);
	reference_buffers_init(&data, plan, 1, 1);
	((double *)data.bindings[2])[1] = NAN;
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct reference_buffers got;

		if (!rigs[level].executor)
			continue;
		cpu_rig_prepare(&rigs[level], plan);
		run(&rigs[level], plan, 1, true, &data, &got);
		for (unsigned int i = 0; i < 15; i++)
			assert_true(isfinite(((double *)got.bindings[3])[i]));
		reference_buffers_deinit(&got);
		rigs[level].executor->ops->plan_release(rigs[level].executor, plan);
	}
	reference_buffers_deinit(&data);
	plan_free(plan);
}

/* Of @dims, the last are spatial ones; 3 wide and 1 beside what is there. */
static void conv_case(const char *op, unsigned int rank, const uint32_t *dims,
		      const uint32_t *weights, uint32_t group, int64_t stride)
{
	const bool is_transposed = !strcmp(op, "ConvTranspose");
	struct describe *d = describe_new("", dims[0] == DESCRIBE_COUNT ? MAX_COUNT : 1);
	int64_t strides[3], pads[6];

	for (unsigned int i = 0; i < 3; i++)
		strides[i] = stride;
	for (unsigned int i = 0; i < 6; i++)
		pads[i] = weights[2 + i % (rank - 2)] > 1;
	describe_input(d, "x", rank, dims);
	operand(d, "w", true, rank, weights);
	operand(d, "b", false, DESCRIBE_DIMS(is_transposed ? weights[1] * group : weights[0]));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, op, "", "x,w,b", "y");
	describe_attr_int(d, "group", group);
	describe_attr_ints(d, "strides", rank - 2, strides);
	describe_attr_ints(d, "pads", 2 * (rank - 2), pads);
	check(d, 1e-5);
}

/* Deeper than a block, more channels and more pixels than one has; rows longer than a piece. */
TEST(test_conv__blocks)
{
	conv_case("Conv", DESCRIBE_DIMS(2, 30, 13, 17), (uint32_t[]){100, 30, 3, 3}, 1, 1);
	conv_case("Conv", DESCRIBE_DIMS(1, 4, 20, 31), (uint32_t[]){250, 4, 3, 3}, 1, 2);
	conv_case("Conv", DESCRIBE_DIMS(DESCRIBE_COUNT, 40, 5, 6), (uint32_t[]){9, 40, 1, 1}, 1, 1);
	conv_case("Conv", DESCRIBE_DIMS(1, 12, 4, 7, 9), (uint32_t[]){8, 6, 2, 3, 3}, 2, 1);
	conv_case("Conv", DESCRIBE_DIMS(1, 3, 2500), (uint32_t[]){3, 1, 5}, 3, 1);
	conv_case("Conv", DESCRIBE_DIMS(DESCRIBE_COUNT, 20, 19, 23), (uint32_t[]){20, 1, 3, 3}, 20,
		  2);
	conv_case("Conv", DESCRIBE_DIMS(1, 7, 3000), (uint32_t[]){5, 7, 9}, 1, 3);
}

TEST(test_conv_transpose__blocks)
{
	conv_case("ConvTranspose", DESCRIBE_DIMS(1, 270, 4, 5), (uint32_t[]){270, 50, 3, 3}, 1, 2);
	conv_case("ConvTranspose", DESCRIBE_DIMS(DESCRIBE_COUNT, 6, 11, 23),
		  (uint32_t[]){6, 20, 2, 2}, 2, 2);
	conv_case("ConvTranspose", DESCRIBE_DIMS(1, 5, 3, 9, 17), (uint32_t[]){5, 3, 3, 3, 3}, 1,
		  1);
	conv_case("ConvTranspose", DESCRIBE_DIMS(1, 8, 600), (uint32_t[]){8, 100, 4}, 1, 3);
}

/* Sums and activations behind products are computed in float64, too, by nodes of their own. */
TEST(test_products__activations)
{
	struct describe *d = describe_new("", MAX_COUNT);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 9, 10));
	operand(d, "w", true, DESCRIBE_DIMS(4, 3, 3, 3));
	operand(d, "v", true, DESCRIBE_DIMS(8, 5));
	operand(d, "b", true, DESCRIBE_DIMS(5));
	describe_scratch(d, "s");
	describe_scratch(d, "t");
	describe_scratch(d, "u");
	describe_scratch(d, "q");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Conv", "", "x,w", "s");
	describe_node(d, "Relu", "", "s", "t");
	describe_node(d, "MatMul", "", "t,v", "u");
	describe_node(d, "Add", "", "u,b", "q");
	describe_node(d, "LeakyRelu", "", "q", "y");
	check(d, 1e-5);
}

/* Rows longer than a piece; windows as large as the picture; powers. */
TEST(test_pools__sizes)
{
	static const char *const ops[] = {"MaxPool", "AveragePool", "LpPool"};

	for (unsigned int i = 0; i < 3; i++) {
		struct describe *d = describe_new("", 1);

		describe_input(d, "x", DESCRIBE_DIMS(2, 2, 5000));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, ops[i], "", "x", "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(7));
		describe_attr_ints(d, "pads", DESCRIBE_INTS(3, 3));
		check(d, 1e-5);
		d = describe_new("", MAX_COUNT);
		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 19, 23));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, ops[i], "", "x", "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(19, 23));
		check(d, 1e-5);
	}
	for (int64_t p = 1; p < 40; p += 6) {
		struct describe *d = describe_new("", 1);

		describe_input(d, "x", DESCRIBE_DIMS(1, 2, 40));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "LpPool", "", "x", "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(4));
		describe_attr_int(d, "p", p);
		check(d, 1e-5);
	}
}

/* What is not a number is no maximum; what is infinite may be one. With indices and without. */
TEST(test_max_pool__edges)
{
	static const double edges[] = {NAN, -INFINITY, INFINITY, 0x1p-1070, -0.0, 1e300};

	for (unsigned int round = 0; round < 8; round++) {
		struct describe *d = describe_new("", 1);
		struct reference_buffers data;
		struct plan *plan;

		describe_input(d, "x", DESCRIBE_DIMS(2, 3, 11, 29));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		if (round & 1)
			describe_inferred(d, "i", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, "MaxPool", "", "x", round & 1 ? "y,i" : "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2, 3));
		describe_attr_ints(d, "strides", DESCRIBE_INTS(1, 1 + (round >> 1 & 1)));
		describe_attr_ints(d, "pads", DESCRIBE_INTS(1, 1, 1, 1));
		describe_floats(d, RBK_DTYPE_F64);
		plan = reference_plan(d, NULL);
		reference_buffers_init(&data, plan, 1, 1 + round);
		for (size_t i = 0; i < data.bytes[0] / sizeof(double); i++)
			if (pick(0, 2) || round < 2)
				((double *)data.bindings[0])[i] = edges[pick(0, round < 2 ? 1 : 5)];
		check_data(plan, 1, &data, 0);
		reference_buffers_deinit(&data);
		plan_free(plan);
	}
}

TEST_MAIN(set_up, tear_down)
