/* SPDX-License-Identifier: MIT */
/*
 * Every operator at every SIMD level, through the executor: against the plain reference over odd
 * and random shapes, broadcasts, axes and counts; constants packed and not; AVX2 and AVX-512 bit by
 * bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "plan/executor.h"
#include "reference/random-gemm.h"
#include "reference/random-rows.h"
#include "reference/reference.h"
#include "reference/views.h"
#include "shm/dtype.h"
#include "support/describe.h"
#include "support/scaled.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/waker.h"

enum { ARENA_BYTES = 2 << 20, MAX_COUNT = 9 };

static struct waker waker;
static struct executor *executors[CPU_SIMD_COUNT]; /* NULL where the processor has no such level */
static struct exec_arena arena;
static uint64_t seed = 42;

static uint32_t pick(uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(&seed) % (to - from + 1));
}

static int set_up(void **state)
{
	clock_init();
	cpu_flush_denormals();
	assert_int_equal(waker_init(&waker), 0);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		if (!cpu_kernels_get((enum cpu_simd)level)) {
			fprintf(stderr, "no %s here: not tested\n",
				cpu_simd_name((enum cpu_simd)level));
			continue;
		}
		assert_int_equal(
			cpu_executor_new(
				&(struct cpu_options){.n_workers = 1, .simd = (enum cpu_simd)level},
				&waker, &executors[level]),
			0);
		assert_int_equal(cpu_kernels_get((enum cpu_simd)level)->level, level);
	}
	reference_arena_init(&arena, ARENA_BYTES, 3);
	return 0;
}

static int tear_down(void **state)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
		if (executors[level])
			executors[level]->ops->free(executors[level]);
	waker_deinit(&waker);
	reference_arena_deinit(&arena);
	return 0;
}

static void run_level(struct executor *executor, struct plan *plan, uint32_t count,
		      struct reference_buffers *buffers)
{
	struct exec_arena arenas[RBK_MAX_REFS];
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_task task = {.plan = plan, .refs = refs, .count = count, .res = 1};

	for (unsigned int i = 0; i < buffers->n; i++) {
		arenas[i] = (struct exec_arena){.base = buffers->bindings[i],
						.bytes = buffers->bytes[i]};
		refs[i] = (struct exec_ref){.arena = &arenas[i]};
	}
	executor->ops->run_inline(executor, &task);
	assert_int_equal(task.res, 0);
}

/* Bit by bit, except that one NaN is as good as another. All outputs of these tests are 32 bits a
 * piece or compared as such. */
static void assert_same_bits(const struct reference_buffers *a, const struct reference_buffers *b)
{
	for (unsigned int i = 0; i < a->n; i++) {
		const float *x = a->bindings[i], *y = b->bindings[i];

		for (size_t j = 0; j < a->bytes[i] / sizeof(float); j++)
			if (memcmp(&x[j], &y[j], sizeof(float)) && !(isnan(x[j]) && isnan(y[j])))
				fail_msg("binding %u, element %zu: %a and %a", i, j, (double)x[j],
					 (double)y[j]);
	}
}

/* @data: what to start from instead of random numbers, or NULL. */
static void check_plan(struct plan *plan, double tolerance, const struct reference_buffers *data,
		       uint32_t only_count)
{
	const uint32_t counts[] = {1, 2, 5, MAX_COUNT};

	for (unsigned int c = 0; c < 4 && counts[c] <= plan->max_count; c++) {
		const uint32_t count = only_count ? only_count : counts[c];
		struct reference_buffers start, want, got[CPU_SIMD_COUNT] = {0};

		if (data)
			reference_buffers_copy(&start, data);
		else
			reference_buffers_init(&start, plan, count, pick(1, 1000));
		reference_buffers_copy(&want, &start);
		reference_run(plan, count, want.bindings);
		for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
			struct executor *executor = executors[level];

			if (!executor)
				continue;
			reference_buffers_copy(&got[level], &start);
			assert_int_equal(executor->ops->plan_prepare(executor, plan), 0);
			run_level(executor, plan, count, &got[level]);
			executor->ops->plan_release(executor, plan);
			if (!reference_buffers_close(plan, count, &got[level], &want, tolerance,
						     tolerance))
				fail_msg("%s at %s, count %u", plan->nodes[0].op->name,
					 cpu_simd_name((enum cpu_simd)level), count);
		}
		if (executors[CPU_SIMD_AVX2] && executors[CPU_SIMD_AVX512])
			assert_same_bits(&got[CPU_SIMD_AVX2], &got[CPU_SIMD_AVX512]);
		for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
			reference_buffers_deinit(&got[level]);
		reference_buffers_deinit(&want);
		reference_buffers_deinit(&start);
		if (only_count)
			break;
	}
}

/* MAX_COUNT is taken back where no tensor turned out to have the count. */
static struct plan *make_plan(struct describe *d)
{
	const struct plan_arena_lookup lookup = reference_arena_lookup(&arena);
	char message[PLAN_MESSAGE_BYTES];
	struct describe_view view;
	struct plan *plan;
	bool dynamic = false;
	size_t bytes;
	void *desc = describe_finish(d, &bytes);

	view = describe_view(desc);
	for (unsigned int i = 0; i < view.header->n_tensors; i++)
		dynamic |= (view.tensors[i].flags & RBK_PLAN_TENSOR_DYNAMIC) != 0;
	if (!dynamic)
		view.header->max_count = 1;
	if (plan_new(desc, bytes, &lookup, message, &plan))
		fail_msg("%s", message);
	free(desc);
	return plan;
}

static void check(struct describe *d, double tolerance)
{
	struct plan *plan = make_plan(d);

	check_plan(plan, tolerance, NULL, 0);
	plan_free(plan);
}

/* An input or a constant, the latter somewhere in the arena. */
static void describe_operand(struct describe *d, const char *name, bool constant, unsigned int rank,
			     const uint32_t *dims)
{
	if (constant)
		describe_constant(d, name, RBK_REF(REFERENCE_ARENA, pick(0, 8) * RBK_REF_ALIGN),
				  rank, dims);
	else
		describe_input(d, name, rank, dims);
}

static void matmul_case(uint32_t m, uint32_t k, uint32_t n, bool constant)
{
	struct describe *d = describe_new("", MAX_COUNT);

	describe_input(d, "a", DESCRIBE_DIMS(m, k));
	describe_operand(d, "b", constant, DESCRIBE_DIMS(k, n));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "a,b", "y");
	check(d, 1e-4);
}

TEST(test_matmul__odd_sizes)
{
	const uint32_t sizes[] = {1, 2, 5, 6, 7, 12, 13, 24, 25};
	const uint32_t widths[] = {1, 3, 8, 15, 16, 17, 31, 32, 33, 64, 100};

	for (unsigned int i = 0; i < 9; i++)
		for (unsigned int j = 0; j < 11; j++)
			matmul_case(sizes[i], pick(1, 40), widths[j], (i + j) & 1);
	/* Deeper than one block, packed and not, plain and not. */
	matmul_case(DESCRIBE_COUNT, 385, 50, true);
	matmul_case(DESCRIBE_COUNT, 900, 37, true);
	matmul_case(DESCRIBE_COUNT, 900, 37, false);
	matmul_case(30, 400, 70, false);
	matmul_case(30, 400, 70, true);
	matmul_case(250, 65, 300, true);
	matmul_case(250, 65, 300, false);
	matmul_case(3, 20, 1100, true);
}

/* Operators over float16: converted in front and behind, constants once, whether packed or not. */
TEST(test_half__operators)
{
	static const char *const ops[] = {"MatMul",  "Gemm",      "Add", "Mul",
					  "Softmax", "ReduceSum", "Relu"};

	for (unsigned int i = 0; i < 7; i++) {
		for (unsigned int constant = 0; constant < 2; constant++) {
			struct describe *d = describe_new("", MAX_COUNT);
			const bool is_unary = i >= 4;

			describe_input(d, "a", DESCRIBE_DIMS(DESCRIBE_COUNT, 33));
			if (!is_unary && i < 2)
				describe_operand(d, "b", constant, DESCRIBE_DIMS(33, 41));
			else if (!is_unary)
				describe_operand(d, "b", constant, DESCRIBE_DIMS(33));
			describe_scratch(d, "s");
			describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
			describe_node(d, ops[i], "", is_unary ? "a" : "a,b", "s");
			describe_node(d, "Relu", "", "s", "y");
			describe_halve(d);
			check(d, 1e-5);
		}
	}
}

TEST(test_reshape__views)
{
	check(views_describe(MAX_COUNT, false), 1e-6);
	check(views_describe(MAX_COUNT, true), 1e-6);
}

TEST(test_half__windows)
{
	for (unsigned int constant = 0; constant < 2; constant++) {
		struct describe *d = describe_new("", MAX_COUNT);

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4, 9, 9));
		describe_operand(d, "w", constant, DESCRIBE_DIMS(6, 4, 3, 3));
		describe_operand(d, "d", constant, DESCRIBE_DIMS(6, 1, 3, 3));
		describe_operand(d, "b", constant, DESCRIBE_DIMS(6));
		describe_scratch(d, "s");
		describe_scratch(d, "t");
		describe_scratch(d, "u");
		describe_inferred(d, "values", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, "Conv", "", "x,w,b", "s");
		describe_node(d, "Conv", "", "s,d,b", "t");
		describe_attr_int(d, "group", 6);
		describe_node(d, "MaxPool", "", "t", "u");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2, 2));
		describe_node(d, "TopK", "", "u", "values,indices");
		describe_attr_int(d, "k", 2);
		describe_halve(d);
		/* A step of float16 between two convolutions. */
		check(d, 4e-3);
	}
}

TEST(test_matmul__batches)
{
	for (unsigned int round = 0; round < test_scaled(60); round++) {
		const unsigned int a_rank = pick(1, 5), b_rank = pick(1, 5);
		const unsigned int rank = a_rank > b_rank ? a_rank : b_rank;
		uint32_t out[8], a[8], b[8];
		const uint32_t k = pick(1, 9);
		struct describe *d = describe_new("", MAX_COUNT);

		/* Aligned at the end: position i of rank. */
		for (unsigned int i = 0; i < rank; i++)
			out[i] = pick(1, 4);
		for (unsigned int i = 0; i < a_rank; i++)
			a[i] = pick(0, 2) ? out[rank - a_rank + i] : 1;
		for (unsigned int i = 0; i < b_rank; i++)
			b[i] = pick(0, 2) ? out[rank - b_rank + i] : 1;
		a[a_rank - 1] = k;
		if (a_rank > 1)
			a[a_rank - 2] = pick(1, 15);
		b[b_rank > 1 ? b_rank - 2 : 0] = k;
		if (b_rank > 1)
			b[b_rank - 1] = pick(1, 40);
		/* The count in front of one or both batches. */
		if (rank > 2 && round & 1) {
			if (a_rank == rank)
				a[0] = DESCRIBE_COUNT;
			if (b_rank == rank)
				b[0] = pick(0, 1) || a_rank != rank ? DESCRIBE_COUNT : 1;
		}
		describe_input(d, "a", a_rank, a);
		describe_operand(d, "b", b[0] != DESCRIBE_COUNT && pick(0, 1), b_rank, b);
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "MatMul", "", "a,b", "y");
		check(d, 1e-5);
	}
}

TEST(test_matmul__packed_batch)
{
	struct describe *d = describe_new("", MAX_COUNT);

	describe_input(d, "a", DESCRIBE_DIMS(2, 1, 3, 150));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 128), DESCRIBE_DIMS(3, 150, 140));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "a,b", "y");
	check(d, 1e-4);
}

TEST(test_gemm__attributes)
{
	for (unsigned int round = 0; round < RANDOM_GEMM_ROUNDS; round++)
		check(random_gemm(&seed, round, MAX_COUNT), 1e-4);
}

TEST(test_gemm__packed_transposed)
{
	struct describe *d = describe_new("", MAX_COUNT);

	describe_input(d, "a", DESCRIBE_DIMS(DESCRIBE_COUNT, 401));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(201, 401));
	describe_constant(d, "c", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(201));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Gemm", "", "a,b,c", "y");
	describe_attr_int(d, "transB", 1);
	check(d, 1e-4);
}

TEST(test_binary__broadcasts)
{
	for (unsigned int round = 0; round < test_scaled(120); round++) {
		const unsigned int a_rank = pick(0, 5), b_rank = pick(0, 5);
		const unsigned int rank = a_rank > b_rank ? a_rank : b_rank;
		uint32_t out[8], a[8], b[8];
		struct describe *d = describe_new("", MAX_COUNT);

		for (unsigned int i = 0; i < rank; i++)
			out[i] = i + 1 == rank ? pick(1, 70) : pick(1, 5);
		if (rank > 0 && round & 1)
			out[0] = DESCRIBE_COUNT;
		for (unsigned int i = 0; i < a_rank; i++)
			a[i] = pick(0, 3) ? out[rank - a_rank + i] : 1;
		for (unsigned int i = 0; i < b_rank; i++)
			b[i] = pick(0, 3) ? out[rank - b_rank + i] : 1;
		describe_input(d, "a", a_rank, a);
		describe_operand(d, "b", !b_rank || b[0] != DESCRIBE_COUNT, b_rank, b);
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, round & 2 ? "Add" : "Mul", "", "a,b", "y");
		check(d, 1e-6);
	}
}

TEST(test_relu__sizes)
{
	for (uint32_t n = 1; n < 70; n += pick(1, 6)) {
		struct describe *d = describe_new("", MAX_COUNT);

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, n));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Relu", "", "x", "y");
		check(d, 0);
	}
}

/* Dimensions with a preference for small ones and the last one longer. */
static void pick_dims(unsigned int rank, uint32_t *dims, uint32_t longest, bool dynamic)
{
	for (unsigned int i = 0; i < rank; i++)
		dims[i] = pick(0, 4) ? pick(1, i + 1 == rank || !pick(0, 2) ? longest : 6) : 1;
	if (dynamic)
		dims[0] = DESCRIBE_COUNT;
}

TEST(test_softmax__axes)
{
	for (unsigned int round = 0; round < test_scaled(60); round++) {
		const unsigned int rank = pick(1, 4);
		uint32_t dims[8];
		struct describe *d = describe_new("", MAX_COUNT);

		pick_dims(rank, dims, 90, round & 1);
		describe_input(d, "x", rank, dims);
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Softmax", "", "x", "y");
		describe_attr_int(d, "axis", pick(0, rank - 1));
		check(d, 2e-6);
	}
}

TEST(test_reduce_sum__axes)
{
	for (unsigned int round = 0; round < test_scaled(120); round++) {
		const unsigned int rank = pick(1, 5);
		const uint32_t mask = pick(0, (1u << rank) - 1);
		int64_t axes[8];
		unsigned int n = 0;
		uint32_t dims[8];
		struct describe *d = describe_new("", MAX_COUNT);

		pick_dims(rank, dims, rank < 4 ? 150 : 12, round & 1);
		for (unsigned int i = 0; i < rank; i++)
			if (mask & 1u << i)
				axes[n++] = i;
		describe_input(d, "x", rank, dims);
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "ReduceSum", "", "x", "y");
		if (n > 0)
			describe_attr_ints(d, "axes", n, axes);
		else
			describe_attr_int(d, "noop_with_empty_axes", pick(0, 1));
		describe_attr_int(d, "keepdims", pick(0, 1));
		check(d, 1e-5);
	}
}

TEST(test_transpose__perms)
{
	for (unsigned int round = 0; round < test_scaled(100); round++) {
		const bool dynamic = round & 1;
		const unsigned int rank = pick(1, 5);
		int64_t perm[8];
		uint32_t dims[8];
		struct describe *d = describe_new("", MAX_COUNT);

		pick_dims(rank, dims, rank < 4 ? 80 : 12, dynamic);
		for (unsigned int i = 0; i < rank; i++)
			perm[i] = i;
		for (unsigned int i = rank - 1; i > dynamic; i--) {
			const unsigned int j = pick(dynamic, i);
			const int64_t t = perm[i];

			perm[i] = perm[j];
			perm[j] = t;
		}
		describe_input(d, "x", rank, dims);
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Transpose", "", "x", "y");
		describe_attr_ints(d, "perm", rank, perm);
		check(d, 0);
	}
}

TEST(test_conv__windows)
{
	for (unsigned int round = 0; round < test_scaled(110); round++) {
		const bool flat = round % 5 == 0, bias = pick(0, 1);
		const uint32_t group = round % 3 ? 1 : pick(1, 4);
		const uint32_t per_group = round % 9 == 0 ? 1 : pick(1, 5);
		const uint32_t channels = group * per_group;
		/* Every third is depthwise. */
		const uint32_t out = group * (round % 9 == 0 ? 1 : pick(1, 20));
		const uint32_t kh = pick(1, 4), kw = pick(1, 4);
		const uint32_t dh = pick(1, 2), dw = pick(1, 2);
		const uint32_t h = (kh - 1) * dh + pick(1, 9), w = (kw - 1) * dw + pick(1, 40);
		struct describe *d = describe_new("", MAX_COUNT);

		if (flat) {
			describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, channels, w));
			describe_operand(d, "w", pick(0, 1), DESCRIBE_DIMS(out, per_group, kw));
		} else {
			describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, channels, h, w));
			describe_operand(d, "w", pick(0, 1), DESCRIBE_DIMS(out, per_group, kh, kw));
		}
		if (bias)
			describe_input(d, "b", DESCRIBE_DIMS(out));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "Conv", "", bias ? "x,w,b" : "x,w", "y");
		describe_attr_int(d, "group", group);
		if (flat) {
			describe_attr_ints(d, "strides", DESCRIBE_INTS(pick(1, 3)));
			describe_attr_ints(d, "dilations", DESCRIBE_INTS(dw));
			describe_attr_ints(d, "pads", DESCRIBE_INTS(pick(0, 6), pick(0, 6)));
		} else {
			describe_attr_ints(d, "strides", DESCRIBE_INTS(pick(1, 3), pick(1, 3)));
			describe_attr_ints(d, "dilations", DESCRIBE_INTS(dh, dw));
			describe_attr_ints(
				d, "pads",
				DESCRIBE_INTS(pick(0, 5), pick(0, 6), pick(0, 5), pick(0, 6)));
		}
		check(d, 1e-5);
	}
}

/* Deeper than a block, more out channels than are fetched at a time, a pointwise kernel. */
TEST(test_conv__large)
{
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(1, 45, 7, 9));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 64), DESCRIBE_DIMS(247, 45, 3, 3));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Conv", "", "x,w", "y");
	check(d, 1e-4);

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(1, 400, 5, 41));
	describe_input(d, "w", DESCRIBE_DIMS(250, 400, 1, 1));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Conv", "", "x,w", "y");
	check(d, 1e-4);
}

/* Constant weights of groups; deeper than a block, more out channels than are fetched at a time. */
TEST(test_conv_transpose__packed)
{
	for (unsigned int is_constant = 0; is_constant < 2; is_constant++) {
		struct describe *d = describe_new("", MAX_COUNT);

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4, 5, 9));
		describe_operand(d, "w", is_constant, DESCRIBE_DIMS(4, 3, 3, 2));
		describe_input(d, "b", DESCRIBE_DIMS(6));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "ConvTranspose", "", "x,w,b", "y");
		describe_attr_int(d, "group", 2);
		describe_attr_ints(d, "strides", DESCRIBE_INTS(2, 3));
		check(d, 1e-5);

		d = describe_new("", 1);
		describe_input(d, "x", DESCRIBE_DIMS(1, 400, 3, 15));
		describe_operand(d, "w", is_constant, DESCRIBE_DIMS(400, 250, 2, 2));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "ConvTranspose", "", "x,w", "y");
		describe_attr_ints(d, "strides", DESCRIBE_INTS(1, 2));
		check(d, 1e-4);
	}
}

TEST(test_max_pool__windows)
{
	for (unsigned int round = 0; round < test_scaled(80); round++) {
		const uint32_t kh = pick(1, 4), kw = pick(1, 5), dh = pick(1, 2), dw = pick(1, 3);
		const uint32_t h = (kh - 1) * dh + pick(1, 7), w = (kw - 1) * dw + pick(1, 40);
		struct describe *d = describe_new("", MAX_COUNT);

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, h, w));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "MaxPool", "", "x", "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(kh, kw));
		describe_attr_ints(d, "strides", DESCRIBE_INTS(pick(1, 3), pick(1, 3)));
		describe_attr_ints(d, "dilations", DESCRIBE_INTS(dh, dw));
		/* Beyond the window, too: it may lie in the padding entirely. */
		describe_attr_ints(d, "pads",
				   DESCRIBE_INTS(pick(0, 6), pick(0, 9), pick(0, 6), pick(0, 9)));
		describe_attr_int(d, "ceil_mode", pick(0, 1));
		check(d, 0);
	}
}

/* Multiples of a stride that have no room in 32 bits: there is one window. */
TEST(test_windows__huge_strides)
{
	static const int64_t strides[] = {0x0fffffff, 0x40000000, 0x7fffffff};

	for (unsigned int i = 0; i < 6; i++) {
		struct describe *d = describe_new("", MAX_COUNT);

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 4, 37));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, i % 2 ? "AveragePool" : "MaxPool", "", "x", "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2, 3));
		describe_attr_ints(d, "strides", DESCRIBE_INTS(strides[i / 2], strides[i / 2]));
		check(d, i % 2 ? 1e-6f : 0);
	}
}

TEST(test_top_k__axes)
{
	for (unsigned int round = 0; round < test_scaled(80); round++) {
		const bool dynamic = round & 1;
		const unsigned int rank = pick(1 + dynamic, 3), axis = pick(dynamic, rank - 1);
		uint32_t dims[8];
		struct describe *d = describe_new("", MAX_COUNT);

		pick_dims(rank, dims, rank < 3 ? 400 : 40, dynamic);
		describe_input(d, "x", rank, dims);
		describe_inferred(d, "values", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, "TopK", "", "x", "values,indices");
		describe_attr_int(d, "axis", axis);
		describe_attr_int(d, "k", pick(1, pick(0, 2) && dims[axis] > 5 ? 5 : dims[axis]));
		describe_attr_int(d, "largest", pick(0, 1));
		check(d, 0);
	}
}

/* Ties, rising and falling values, NaN and infinities: every element one of a few. */
TEST(test_top_k__ties_and_nans)
{
	const float few[] = {1, 2, 2, NAN, -INFINITY, INFINITY, 0, -0.0f};

	for (unsigned int round = 0; round < test_scaled(60); round++) {
		const uint32_t n = pick(1, 700), k = pick(1, n < 20 ? n : 20);
		struct describe *d = describe_new("", 3);
		struct reference_buffers data;
		struct plan *plan;
		float *x;

		describe_input(d, "x", DESCRIBE_DIMS(3, n));
		describe_inferred(d, "values", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, "TopK", "", "x", "values,indices");
		describe_attr_int(d, "k", k);
		describe_attr_int(d, "largest", round & 1);
		plan = make_plan(d);
		reference_buffers_init(&data, plan, 1, 1);
		x = data.bindings[0];
		for (uint32_t i = 0; i < n; i++) {
			x[i] = few[pick(0, round % 3 ? 7 : 4)];
			x[n + i] = round % 4 ? (float)i : (float)(i / 3);
			x[2 * n + i] = round % 5 ? -(float)i : NAN;
		}
		check_plan(plan, 0, &data, 1);
		reference_buffers_deinit(&data);
		plan_free(plan);
	}
}

/* Ties and the ends of the range, of every type of integers. */
TEST(test_top_k__integers)
{
	static const enum rbk_dtype types[] = {RBK_DTYPE_I64, RBK_DTYPE_I32, RBK_DTYPE_I8,
					       RBK_DTYPE_U8};
	const int64_t few[] = {0, INT64_MAX, INT64_MIN, -1, 1, INT64_MAX - 1};

	for (unsigned int round = 0; round < test_scaled(64); round++) {
		const enum rbk_dtype type = types[round % 4];
		const uint32_t n = pick(1, 90), inner = pick(1, 3);
		struct describe *d = describe_new("", 1);
		struct reference_buffers data;
		struct plan *plan;

		describe_tensor(d, "x", RBK_TENSOR_INPUT, type, 0, DESCRIBE_DIMS(2, n, inner));
		describe_inferred(d, "values", RBK_TENSOR_OUTPUT, type);
		describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, "TopK", "", "x", "values,indices");
		describe_attr_int(d, "axis", 1);
		describe_attr_int(d, "k", pick(1, n));
		describe_attr_int(d, "largest", round / 4 & 1);
		describe_attr_int(d, "sorted", round / 8 & 1);
		plan = make_plan(d);
		reference_buffers_init(&data, plan, 1, 1);
		for (uint32_t i = 0; i < 2 * n * inner; i++) {
			/* The ends of every type: int64's shifted. */
			const int64_t value =
				few[pick(0, 5)] >> (64 - 8 * (unsigned int)dtype_bytes(type));

			memcpy((char *)data.bindings[0] + i * dtype_bytes(type), &value,
			       dtype_bytes(type));
		}
		check_plan(plan, 0, &data, 1);
		reference_buffers_deinit(&data);
		plan_free(plan);
	}
}

/* One operator over special values; the reference is told to agree on what is no number. */
static void check_special(const char *op, double tolerance)
{
	const float special[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e30f, -1e30f, 1};

	for (uint32_t n = 1; n < 80; n += 13) {
		struct describe *d = describe_new("", 1);
		struct reference_buffers data;
		struct plan *plan;

		describe_input(d, "x", DESCRIBE_DIMS(8, n));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, op, "", "x", "y");
		plan = make_plan(d);
		reference_buffers_init(&data, plan, 1, n);
		/* Row i has one kind of special value in one place; the first row everywhere. */
		for (uint32_t i = 0; i < 8; i++) {
			float *row = (float *)data.bindings[0] + i * n;

			row[pick(0, n - 1)] = special[i];
			for (uint32_t j = 0; i == 0 && j < n; j++)
				row[j] = special[pick(0, 7)];
		}
		check_plan(plan, tolerance, &data, 1);
		reference_buffers_deinit(&data);
		plan_free(plan);
	}
}

TEST(test_relu__special_values)
{
	check_special("Relu", 0);
}

TEST(test_softmax__special_values)
{
	check_special("Softmax", 1e-5);
}

TEST(test_matmul__special_values)
{
	struct describe *d = describe_new("", 1);
	struct reference_buffers data;
	struct plan *plan;
	float *a;

	describe_input(d, "a", DESCRIBE_DIMS(7, 50));
	describe_input(d, "b", DESCRIBE_DIMS(50, 37));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "a,b", "y");
	plan = make_plan(d);
	reference_buffers_init(&data, plan, 1, 5);
	/* A row without a number, two with an infinity; none may reach another. */
	a = data.bindings[0];
	a[3] = NAN;
	a[50 + 49] = INFINITY;
	a[5 * 50] = -INFINITY;
	check_plan(plan, 1e-4, &data, 1);
	reference_buffers_deinit(&data);
	plan_free(plan);
}

/* Denormals are zero in operands and results, at every level and in every lane. */
TEST(test_denormals__flushed)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_simd)level);
		float x[37], one[37], y[37];

		if (!kernels)
			continue;
		for (unsigned int i = 0; i < 37; i++) {
			x[i] = 1e-40f;
			one[i] = 1e-30f;
		}
		kernels->map[CPU_F32][CPU_MAP_ADD](
			&(struct cpu_map){.in = {x, x}, .out = y, .step = {1, 1}}, 37);
		for (unsigned int i = 0; i < 37; i++)
			assert_true(y[i] == 0);
		kernels->map[CPU_F32][CPU_MAP_MUL](
			&(struct cpu_map){.in = {one, one}, .out = y, .step = {1, 1}}, 37);
		for (unsigned int i = 0; i < 37; i++)
			assert_true(y[i] == 0);
	}
}

TEST(test_rows__random)
{
	for (unsigned int round = 0; round < test_scaled(12 * RANDOM_ROWS_OPERATORS); round++) {
		struct plan *plan = random_rows(&seed, round, MAX_COUNT);

		check_plan(plan, 2e-5, NULL, 0);
		plan_free(plan);
	}
}

/* What float64 can be, besides ordinary. Products would leave its range with the last one. */
static void add_edges(const struct plan *plan, struct reference_buffers *buffers)
{
	static const double edges[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 0x1p300};
	const bool multiplies = plan->nodes[0].op->kind == OP_REDUCE_PROD;
	double *x = buffers->bindings[0];

	for (size_t n = buffers->bytes[0] / sizeof(*x), i = 0; i < 1 + n / 50; i++)
		x[pick(0, (uint32_t)n - 1)] = edges[pick(0, multiplies ? 4 : 5)];
}

TEST(test_rows__random_float64)
{
	for (unsigned int round = 0; round < test_scaled(24 * RANDOM_ROWS_DOUBLE); round++) {
		struct plan *plan = random_rows_double(&seed, round, MAX_COUNT);
		const uint32_t count = plan->max_count == 1 ? 1 : pick(1, MAX_COUNT);
		struct reference_buffers data;

		reference_buffers_init(&data, plan, count, pick(1, 1000));
		if (round / RANDOM_ROWS_DOUBLE % 3 == 2)
			add_edges(plan, &data);
		check_plan(plan, 2e-5, &data, count);
		reference_buffers_deinit(&data);
		plan_free(plan);
	}
}

TEST_MAIN(set_up, tear_down)
