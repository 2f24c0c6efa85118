/* SPDX-License-Identifier: MIT */
/*
 * Every operator on the Vulkan executor against the reference: odd shapes, broadcasts and counts,
 * both shader variants, all memory paths, with guards around every tensor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/random-rows.h"
#include "reference/views.h"
#include "support/test.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

#define N   DESCRIBE_COUNT
#define D   DESCRIBE_DIMS
#define MAX 8 /* max_count where a plan is dynamic */

enum { CONSTANT_BYTES = 4 << 20 };

/* A plan of one node over inputs a, b, c of these shapes (rank 0 beyond the last). */
struct one {
	const char *op;
	unsigned int n_in;
	struct {
		unsigned int rank;
		uint32_t dims[RBK_MAX_RANK];
	} in[3];
	struct {
		const char *name;
		unsigned int n; /* 0: an int */
		int64_t value[4];
	} attrs[7];
	float alpha, beta; /* Gemm */
};

/* @floats: what is float32 becomes this. */
static struct plan *one_plan(const struct one *one, uint32_t max_count, enum rbk_dtype floats)
{
	static const char *const names[] = {"a", "a,b", "a,b,c"};
	struct describe *d = describe_new(one->op, max_count);

	for (unsigned int i = 0; i < one->n_in; i++)
		describe_input(d, (const char[]){'a' + i, 0}, one->in[i].rank, one->in[i].dims);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	if (strcmp(one->op, "TopK") == 0) {
		describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, one->op, "node", "a", "y,indices");
	} else {
		describe_node(d, one->op, "node", names[one->n_in - 1], "y");
	}
	for (unsigned int i = 0; one->attrs[i].name; i++) {
		if (one->attrs[i].n)
			describe_attr_ints(d, one->attrs[i].name, one->attrs[i].n,
					   one->attrs[i].value);
		else
			describe_attr_int(d, one->attrs[i].name, one->attrs[i].value[0]);
	}
	if (one->alpha != 0)
		describe_attr_float(d, "alpha", one->alpha);
	if (one->beta != 0)
		describe_attr_float(d, "beta", one->beta);
	describe_floats(d, floats);
	return reference_plan(d, NULL);
}

/* clang-format off */
static const struct one ones[] = {
	{"MatMul", 2, {{2, {N, 1}}, {2, {1, 1}}}},
	{"MatMul", 2, {{2, {N, 7}}, {2, {7, 3}}}},
	{"MatMul", 2, {{2, {N, 8}}, {2, {8, 4}}}},
	{"MatMul", 2, {{2, {N, 33}}, {2, {33, 129}}}},
	{"MatMul", 2, {{2, {65, 17}}, {2, {17, 67}}}},
	{"MatMul", 2, {{2, {130, 70}}, {2, {70, 5}}}},
	{"MatMul", 2, {{1, {9}}, {2, {9, 10}}}},
	{"MatMul", 2, {{2, {10, 9}}, {1, {9}}}},
	{"MatMul", 2, {{1, {19}}, {1, {19}}}},
	{"MatMul", 2, {{3, {N, 5, 6}}, {2, {6, 7}}}},
	{"MatMul", 2, {{3, {N, 5, 6}}, {3, {N, 6, 7}}}},
	{"MatMul", 2, {{4, {N, 1, 5, 6}}, {3, {4, 6, 7}}}},
	{"MatMul", 2, {{2, {5, 6}}, {4, {N, 3, 6, 9}}}},
	{"MatMul", 2, {{5, {2, 1, 3, 4, 5}}, {4, {4, 1, 5, 6}}}},
	{"MatMul", 2, {{1, {6}}, {3, {N, 6, 7}}}},
	{"MatMul", 2, {{3, {N, 5, 6}}, {1, {6}}}},
	{"Gemm", 2, {{2, {N, 13}}, {2, {13, 21}}}},
	{"Gemm", 3, {{2, {N, 13}}, {2, {21, 13}}, {1, {21}}}, {{"transB", 0, {1}}}, 0.5f, 2.0f},
	{"Gemm", 3, {{2, {13, 9}}, {2, {13, 70}}, {2, {9, 1}}}, {{"transA", 0, {1}}}, 2.0f, 0},
	{"Gemm", 3, {{2, {70, 66}}, {2, {3, 70}}, {0, {0}}},
	 {{"transA", 0, {1}}, {"transB", 0, {1}}}, 0, -1.0f},
	{"Gemm", 3, {{2, {N, 40}}, {2, {40, 66}}, {2, {1, 66}}}},
	{"Gemm", 3, {{2, {7, 40}}, {2, {40, 66}}, {2, {7, 66}}}},
	{"Gemm", 3, {{2, {N, 4}}, {2, {2, 4}}, {1, {1}}}, {{"transB", 0, {1}}}},
	/* The edges of tiles: thin matrices, whole steps of k and a rest, a quad beyond the last. */
	{"MatMul", 2, {{2, {N, 48}}, {2, {48, 2}}}},
	{"MatMul", 2, {{2, {64, 32}}, {2, {32, 128}}}},
	{"MatMul", 2, {{2, {67, 47}}, {2, {47, 131}}}},
	{"Gemm", 2, {{2, {40, 3}}, {2, {40, 5}}}, {{"transA", 0, {1}}}},
	{"Gemm", 3, {{2, {49, 66}}, {2, {49, 193}}, {1, {193}}}, {{"transA", 0, {1}}}},
	{"Gemm", 3, {{2, {N, 53}}, {2, {131, 53}}, {2, {1, 131}}}, {{"transB", 0, {1}}}},
	{"Gemm", 2, {{2, {35, 66}}, {2, {129, 35}}}, {{"transA", 0, {1}}, {"transB", 0, {1}}}},
	{"Gemm", 2, {{2, {32, 1}}, {2, {1, 32}}}, {{"transA", 0, {1}}, {"transB", 0, {1}}}},
	/* One row, which has shaders of its own: wide, narrow, transposed, of a batch. */
	{"MatMul", 2, {{2, {1, 67}}, {2, {67, 131}}}},
	{"MatMul", 2, {{2, {1, 33}}, {2, {33, 3}}}},
	{"MatMul", 2, {{3, {5, 1, 22}}, {3, {5, 22, 70}}}},
	{"Gemm", 3, {{2, {1, 41}}, {2, {66, 41}}, {2, {1, 66}}}, {{"transB", 0, {1}}}, 0.5f, 2.0f},
	{"Gemm", 3, {{2, {45, 1}}, {2, {45, 129}}, {1, {1}}}, {{"transA", 0, {1}}}},
	{"Gemm", 2, {{2, {34, 1}}, {2, {65, 34}}}, {{"transA", 0, {1}}, {"transB", 0, {1}}}},
	{"Gemm", 3, {{2, {1, 9}}, {2, {2, 9}}, {1, {2}}}, {{"transB", 0, {1}}}},
	{"Add", 2, {{2, {N, 5}}, {2, {N, 5}}}},
	{"Add", 2, {{2, {N, 999}}, {1, {999}}}},
	{"Add", 2, {{2, {N, 7}}, {2, {N, 1}}}},
	{"Add", 2, {{0, {0}}, {3, {N, 3, 5}}}},
	{"Add", 2, {{0, {0}}, {0, {0}}}},
	{"Mul", 2, {{4, {N, 1, 5, 3}}, {3, {4, 1, 3}}}},
	{"Mul", 2, {{3, {2, 3, 1}}, {3, {1, 1, 513}}}},
	{"Mul", 2, {{8, {2, 1, 2, 1, 2, 1, 2, 1}}, {8, {1, 3, 1, 3, 1, 3, 1, 3}}}},
	{"Relu", 1, {{2, {N, 515}}}},
	{"Relu", 1, {{1, {1}}}},
	{"Softmax", 1, {{2, {N, 10}}}},
	{"Softmax", 1, {{2, {N, 1}}}},
	{"Softmax", 1, {{2, {N, 1000}}}},
	{"Softmax", 1, {{3, {N, 300, 3}}}, {{"axis", 0, {1}}}},
	{"Softmax", 1, {{3, {5, 2, 3}}}, {{"axis", 0, {0}}}},
	{"ReduceSum", 1, {{2, {N, 10}}}, {{"axes", 1, {1}}}},
	{"ReduceSum", 1, {{3, {N, 9, 11}}}, {{"axes", 1, {1}}, {"keepdims", 0, {0}}}},
	{"ReduceSum", 1, {{3, {3, 9, 11}}}, {{"axes", 2, {0, 2}}}},
	{"ReduceSum", 1, {{3, {N, 9, 111}}}, {{"axes", 2, {1, 2}}}},
	{"ReduceSum", 1, {{2, {13, 17}}}},
	{"ReduceSum", 1, {{2, {N, 17}}}, {{"noop_with_empty_axes", 0, {1}}}},
	{"ReduceSum", 1, {{8, {2, 3, 2, 3, 2, 3, 2, 3}}}, {{"axes", 4, {0, 2, 4, 6}}}},
	{"ReduceSum", 1, {{8, {2, 3, 2, 3, 2, 3, 2, 3}}}, {{"axes", 4, {1, 3, 5, 7}}}},
	{"Transpose", 1, {{2, {33, 65}}}},
	{"Transpose", 1, {{3, {N, 7, 5}}}, {{"perm", 3, {0, 2, 1}}}},
	{"Transpose", 1, {{4, {2, 3, 4, 5}}}, {{"perm", 4, {2, 0, 3, 1}}}},
	{"Transpose", 1, {{1, {5}}}},
	{"Transpose", 1, {{2, {1, 1}}}},
	{"Conv", 2, {{4, {N, 1, 7, 7}}, {4, {1, 1, 3, 3}}}},
	{"Conv", 3, {{4, {N, 3, 11, 9}}, {4, {10, 3, 3, 3}}, {1, {10}}},
	 {{"pads", 4, {1, 1, 1, 1}}, {"strides", 2, {2, 1}}}},
	{"Conv", 3, {{4, {N, 4, 12, 13}}, {4, {6, 2, 3, 2}}, {1, {6}}},
	 {{"group", 0, {2}}, {"dilations", 2, {2, 3}}, {"pads", 4, {0, 3, 2, 1}}}},
	{"Conv", 2, {{4, {N, 5, 9, 9}}, {4, {5, 1, 3, 3}}},
	 {{"group", 0, {5}}, {"pads", 4, {1, 1, 1, 1}}}},
	{"Conv", 2, {{4, {2, 8, 5, 5}}, {4, {70, 8, 1, 1}}}},
	{"Conv", 3, {{3, {N, 3, 31}}, {3, {9, 3, 5}}, {1, {9}}}, {{"pads", 2, {2, 2}}}},
	{"Conv", 2, {{4, {1, 2, 4, 4}}, {4, {5, 2, 4, 4}}}},
	{"Conv", 3, {{4, {N, 16, 13, 11}}, {4, {66, 16, 3, 3}}, {1, {66}}},
	 {{"pads", 4, {1, 1, 1, 1}}}},
	{"Conv", 2, {{4, {2, 3, 9, 8}}, {4, {5, 3, 5, 1}}}, {{"pads", 4, {2, 0, 2, 0}}}},
	{"Conv", 2, {{4, {2, 4, 6, 15}}, {4, {7, 4, 1, 6}}}, {{"dilations", 2, {1, 2}}}},
	{"Conv", 2, {{4, {N, 17, 9, 10}}, {4, {9, 17, 1, 1}}}, {{"strides", 2, {2, 3}}}},
	{"Conv", 3, {{4, {2, 12, 7, 19}}, {4, {24, 4, 3, 3}}, {1, {24}}},
	 {{"group", 0, {3}}, {"pads", 4, {2, 1, 0, 3}}, {"strides", 2, {1, 2}}}},
	{"Conv", 3, {{4, {N, 3, 20, 19}}, {4, {6, 1, 3, 3}}, {1, {6}}},
	 {{"group", 0, {3}}, {"dilations", 2, {2, 1}}, {"pads", 4, {1, 2, 3, 1}}}},
	/* Windows of one element. */
	{"Conv", 3, {{4, {N, 5, 3, 7}}, {4, {33, 5, 1, 1}}, {1, {33}}}},
	{"Conv", 2, {{4, {N, 16, 7, 9}}, {4, {40, 8, 1, 1}}}, {{"group", 0, {2}}}},
	{"Conv", 3, {{4, {2, 16, 7, 9}}, {4, {40, 8, 1, 1}}, {1, {40}}}, {{"group", 0, {2}}}},
	{"Conv", 3, {{3, {N, 6, 35}}, {3, {20, 6, 1}}, {1, {20}}}},
	{"Conv", 2, {{4, {2, 6, 5, 1}}, {4, {17, 6, 1, 1}}}, {{"pads", 4, {0, 1, 0, 0}}}},
	{"MaxPool", 1, {{4, {N, 3, 8, 9}}}, {{"kernel_shape", 2, {2, 2}}, {"strides", 2, {2, 2}}}},
	{"MaxPool", 1, {{4, {N, 3, 9, 7}}},
	 {{"kernel_shape", 2, {3, 3}}, {"strides", 2, {2, 1}}, {"pads", 4, {1, 1, 1, 1}}}},
	{"MaxPool", 1, {{4, {N, 2, 9, 9}}}, {{"kernel_shape", 2, {2, 3}}, {"dilations", 2, {3, 2}}}},
	{"MaxPool", 1, {{3, {N, 2, 19}}}, {{"kernel_shape", 1, {4}}}},
	{"TopK", 1, {{2, {N, 5}}}, {{"k", 0, {5}}}},
	{"TopK", 1, {{2, {N, 1}}}, {{"k", 0, {1}}}},
	{"TopK", 1, {{2, {N, 3001}}}, {{"k", 0, {7}}}},
	{"TopK", 1, {{2, {N, 300}}}, {{"k", 0, {40}}}},
	{"TopK", 1, {{2, {N, 300}}}, {{"k", 0, {4}}, {"largest", 0, {0}}}},
	{"TopK", 1, {{3, {N, 30, 7}}}, {{"k", 0, {3}}, {"axis", 0, {1}}}},
	{"TopK", 1, {{3, {17, 3, 5}}}, {{"k", 0, {9}}, {"axis", 0, {0}}, {"largest", 0, {0}}}},
};
/* clang-format on */

static uint32_t force; /* the variant: VULKAN_FORCE_* */

static void run_counts(struct rig *rig, struct plan *plan, double rtol, double atol)
{
	static const uint32_t counts[] = {MAX, 1, 3, 7};
	struct job job;

	rig_prepare(rig, plan);
	for (unsigned int i = 0; i < (plan->max_count > 1 ? 4 : 1); i++) {
		job_init(rig, &job, plan, plan->max_count > 1 ? counts[i] : 1, i + 1);
		/* Twice: the second run takes parameter blocks as the first left them. */
		for (int again = 0; again < 2; again++) {
			job_reset(&job);
			rig_run(rig, &job);
			assert_int_equal(job.task.res, 0);
			if (!job_check(&job, rtol, atol))
				fail_msg("plan %s, first input %u x %u, count %u", plan->name,
					 plan->tensors[0].shape.dims[0],
					 plan->tensors[0].shape.dims[1], job.task.count);
		}
		job_deinit(rig, &job);
	}
	rig_release(rig, plan);
}

TEST(test_operators__alone)
{
	static const enum rbk_dtype floats[] = {RBK_DTYPE_F32, RBK_DTYPE_F16, RBK_DTYPE_F64};
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
		bool dynamic = false;

		for (unsigned int j = 0; j < ones[i].n_in; j++)
			dynamic |= ones[i].in[j].rank > 0 && ones[i].in[j].dims[0] == N;
		for (size_t k = 0; k < sizeof(floats) / sizeof(floats[0]); k++)
			if (rig.executor->info.types &
			    op_types(op_by_name(ones[i].op), OP_ON_VULKAN) & OP_TYPE(floats[k]))
				run_counts(&rig, one_plan(&ones[i], dynamic ? MAX : 1, floats[k]),
					   2e-6, 1e-5);
	}
	rig_deinit(&rig);
}

TEST(test_rows__random)
{
	uint64_t seed = 5;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (unsigned int round = 0; round < 4 * RANDOM_ROWS_OPERATORS; round++)
		run_counts(&rig, random_rows(&seed, round, MAX), 2e-5, 2e-5);
	rig_deinit(&rig);
}

TEST(test_rows__random_float64)
{
	uint64_t seed = 6;
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	/* A real card may lack it. */
	assert_true(rig.executor->info.types & OP_FLOAT64 || getenv("RBK_TEST_GPU"));
	for (unsigned int round = 0; round < 4 * RANDOM_ROWS_DOUBLE; round++)
		if (rig.executor->info.types & OP_FLOAT64)
			run_counts(&rig, random_rows_double(&seed, round, MAX), 2e-5, 2e-5);
	rig_deinit(&rig);
}

/* y = topk(x * w + b): constants, scratch, a hazard between every two steps. */
static struct plan *knn_plan(struct exec_arena *arena, uint32_t max_count, uint32_t n)
{
	struct describe *d = describe_new("knn", max_count);

	describe_input(d, "x", D(N, 50));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), D(50, n));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 0), D(n));
	describe_scratch(d, "xw");
	describe_scratch(d, "scores");
	describe_output(d, "values", D(N, 5));
	describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, "MatMul", "", "x,w", "xw");
	describe_node(d, "Add", "", "xw,b", "scores");
	describe_node(d, "TopK", "", "scores", "values,indices");
	describe_attr_int(d, "k", 5);
	return reference_plan(d, arena);
}

TEST(test_plan__knn)
{
	struct exec_arena arena;
	struct rig rig;

	reference_arena_init(&arena, CONSTANT_BYTES, 7);
	rig_init(&rig, &(struct vulkan_options){.force = force});
	run_counts(&rig, knn_plan(&arena, MAX, 1999), 1e-5, 1e-5);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* A small network: convolution, pooling, a flattening product by Transpose and ReduceSum. */
TEST(test_plan__network)
{
	struct exec_arena arena;
	struct describe *d = describe_new("network", MAX);
	struct rig rig;

	reference_arena_init(&arena, CONSTANT_BYTES, 9);
	describe_input(d, "x", D(N, 1, 12, 12));
	describe_constant(d, "w1", RBK_REF(REFERENCE_ARENA, 0), D(8, 1, 5, 5));
	describe_constant(d, "b1", RBK_REF(REFERENCE_ARENA, 4096), D(8));
	describe_constant(d, "w2", RBK_REF(REFERENCE_ARENA, 8192), D(16, 8, 3, 3));
	describe_scratch(d, "c1");
	describe_scratch(d, "r1");
	describe_scratch(d, "p1");
	describe_scratch(d, "c2");
	describe_scratch(d, "t2");
	describe_scratch(d, "s2");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Conv", "", "x,w1,b1", "c1");
	describe_attr_ints(d, "pads", DESCRIBE_INTS(2, 2, 2, 2));
	describe_node(d, "Relu", "", "c1", "r1");
	describe_node(d, "MaxPool", "", "r1", "p1");
	describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2, 2));
	describe_attr_ints(d, "strides", DESCRIBE_INTS(2, 2));
	describe_node(d, "Conv", "", "p1,w2", "c2");
	describe_node(d, "Transpose", "", "c2", "t2");
	describe_attr_ints(d, "perm", DESCRIBE_INTS(0, 2, 3, 1));
	describe_node(d, "ReduceSum", "", "t2", "s2");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(1, 2));
	describe_attr_int(d, "keepdims", 0);
	describe_node(d, "Softmax", "", "s2", "y");
	rig_init(&rig, &(struct vulkan_options){.force = force});
	run_counts(&rig, reference_plan(d, &arena), 1e-4, 1e-5);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* A state is read, then updated in place. */
TEST(test_plan__state)
{
	struct describe *d = describe_new("state", MAX);
	struct rig rig;

	describe_input(d, "x", D(N, 11));
	describe_state(d, "sum", D(N, 11));
	describe_output(d, "y", D(N, 11));
	describe_node(d, "Mul", "", "x,sum", "y");
	describe_node(d, "Add", "", "x,sum", "sum");
	rig_init(&rig, &(struct vulkan_options){.force = force});
	run_counts(&rig, reference_plan(d, NULL), 1e-6, 1e-6);
	rig_deinit(&rig);
}

/* Loops of more than 65,535 turns, which a driver in the field would cut short. */
TEST(test_plan__long_loops)
{
	static const struct one longs[] = {
		{"MatMul", 2, {{2, {3, 100001}}, {2, {100001, 6}}}},
		{"MatMul", 2, {{2, {2, 200001}}, {2, {200001, 1}}}},
		{"ReduceSum", 1, {{2, {2, 100003}}}, {{"axes", 1, {1}}}},
		{"ReduceSum", 1, {{2, {200003, 2}}}, {{"axes", 1, {0}}}},
		{"Softmax", 1, {{2, {1, 9001}}}},
		{"TopK", 1, {{2, {3, 600001}}}, {{"k", 0, {5}}}},
		{"TopK", 1, {{2, {1, 600001}}}, {{"k", 0, {9}}}},
		{"Transpose", 1, {{2, {300, 1003}}}},
		{"Add", 2, {{2, {70000, 9}}, {1, {9}}}},
	};
	/* More batches than a grid has; half a minute in tiles without a GPU. */
	static const struct one batches = {"MatMul", 2, {{3, {70001, 1, 2}}, {3, {70001, 2, 1}}}};
	struct rig rig;

	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (size_t i = 0; i < sizeof(longs) / sizeof(longs[0]); i++) {
		run_counts(&rig, one_plan(&longs[i], 1, RBK_DTYPE_F32), 2e-5, 2e-3);
		if (rig.executor->info.types & op_types(op_by_name(longs[i].op), OP_ON_VULKAN) &
		    OP_FLOAT64)
			run_counts(&rig, one_plan(&longs[i], 1, RBK_DTYPE_F64), 2e-5, 2e-3);
	}
	if (force & VULKAN_FORCE_PLAIN)
		run_counts(&rig, one_plan(&batches, 1, RBK_DTYPE_F32), 1e-6, 1e-6);
	rig_deinit(&rig);
}

TEST(test_plan__views)
{
	struct exec_arena arena;
	struct rig rig;

	reference_arena_init(&arena, CONSTANT_BYTES, 7);
	rig_init(&rig, &(struct vulkan_options){.force = force});
	for (int half = 0; half < 2; half++)
		run_counts(&rig, reference_plan(views_describe(MAX, half), &arena), 2e-6, 1e-5);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint32_t force;
	} variants[] = {
		{"plain", VULKAN_FORCE_PLAIN},
		{"shared", VULKAN_FORCE_SHARED},
		{"plain-staged", VULKAN_FORCE_PLAIN | VULKAN_FORCE_STAGED},
		{"shared-upload", VULKAN_FORCE_SHARED | VULKAN_FORCE_UPLOAD},
		{"plain-staged-upload",
		 VULKAN_FORCE_PLAIN | VULKAN_FORCE_STAGED | VULKAN_FORCE_UPLOAD},
	};

	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
		if (argc > 1 && strcmp(argv[1], variants[i].name) == 0)
			force = variants[i].force;
	if (argc > 1 && force == 0) {
		fprintf(stderr, "%s: no variant named %s\n", argv[0], argv[1]);
		return 2;
	}
	clock_init();
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
