/* SPDX-License-Identifier: MIT */
/*
 * The plain reference against numbers worked out by hand
 *
 * The reference is the oracle for the executors, so it is checked itself: results small enough to
 * compute on paper, for every operator. test-conformance.c adds ONNX's own cases.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/test.h"

/* Run a plan with @bindings in the order of the plan's bindings. */
static void run(struct describe *describe, uint32_t count, void *const *bindings)
{
	struct plan *plan = reference_plan(describe, NULL);

	reference_run(plan, count, bindings);
	plan_free(plan);
}

static void assert_floats(const float *got, const float *want, size_t n)
{
	assert_true(reference_close("floats", got, want, n, 1e-6, 1e-6));
}

TEST(test_matmul__count)
{
	float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, 2, 0, 1, 3}, y[6];
	float want[] = {1, 2, 8, 3, 4, 18};
	struct describe *d = describe_new("", 8);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 2));
	describe_input(d, "w", DESCRIBE_DIMS(2, 3));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_node(d, "MatMul", "", "x,w", "y");
	run(d, 2, (void *[]){x, w, y});
	assert_floats(y, want, 6);
}

TEST(test_matmul__batch_broadcast)
{
	/* [2,1,1,2] x [3,2,1] = [2,3,1,1] */
	float a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, 1, 1, 1}, y[6];
	float want[] = {1, 2, 3, 3, 4, 7};
	struct describe *d = describe_new("", 1);

	describe_input(d, "a", DESCRIBE_DIMS(2, 1, 1, 2));
	describe_input(d, "b", DESCRIBE_DIMS(3, 2, 1));
	describe_output(d, "y", DESCRIBE_DIMS(2, 3, 1, 1));
	describe_node(d, "MatMul", "", "a,b", "y");
	run(d, 1, (void *[]){a, b, y});
	assert_floats(y, want, 6);
}

TEST(test_matmul__vectors)
{
	float a[] = {1, 2, 3}, b[] = {4, 5, 6}, y;
	struct describe *d = describe_new("", 1);

	describe_input(d, "a", DESCRIBE_DIMS(3));
	describe_input(d, "b", DESCRIBE_DIMS(3));
	describe_output(d, "y", DESCRIBE_SCALAR);
	describe_node(d, "MatMul", "", "a,b", "y");
	run(d, 1, (void *[]){a, b, &y});
	assert_float_equal(y, 32, 1e-6);
}

TEST(test_gemm__all_attributes)
{
	/* A' = [[1,3],[2,4]], B' = [[5,7],[6,8]], A'B' = [[23,31],[34,46]] */
	float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[] = {10, 20}, y[4];
	float want[] = {51, 72, 73, 102};
	struct describe *d = describe_new("", 1);

	describe_input(d, "a", DESCRIBE_DIMS(2, 2));
	describe_input(d, "b", DESCRIBE_DIMS(2, 2));
	describe_input(d, "c", DESCRIBE_DIMS(2));
	describe_output(d, "y", DESCRIBE_DIMS(2, 2));
	describe_node(d, "Gemm", "", "a,b,c", "y");
	describe_attr_int(d, "transA", 1);
	describe_attr_int(d, "transB", 1);
	describe_attr_float(d, "alpha", 2);
	describe_attr_float(d, "beta", 0.5f);
	run(d, 1, (void *[]){a, b, c, y});
	assert_floats(y, want, 4);
}

TEST(test_add_mul_relu__chain)
{
	/* y = relu(x * m + s), with scratch between; m broadcasts along rows, s is a scalar */
	float x[] = {1, -2, 3, -4}, m[] = {2, 3}, s = 1, y[4], want[] = {3, 0, 7, 0};
	struct describe *d = describe_new("", 4);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 2));
	describe_input(d, "m", DESCRIBE_DIMS(2));
	describe_input(d, "s", DESCRIBE_SCALAR);
	describe_scratch(d, "xm");
	describe_scratch(d, "xms");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 2));
	describe_node(d, "Mul", "", "x,m", "xm");
	describe_node(d, "Add", "", "s,xm", "xms");
	describe_node(d, "Relu", "", "xms", "y");
	run(d, 2, (void *[]){x, m, &s, y});
	assert_floats(y, want, 4);
}

TEST(test_softmax__axis)
{
	float x[] = {0, logf(3), 0, 0}, y[4];
	float last[] = {0.25f, 0.75f, 0.5f, 0.5f}, first[] = {0.5f, 0.75f, 0.5f, 0.25f};
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(2, 2));
	describe_output(d, "y", DESCRIBE_DIMS(2, 2));
	describe_node(d, "Softmax", "", "x", "y");
	run(d, 1, (void *[]){x, y});
	assert_floats(y, last, 4);

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(2, 2));
	describe_output(d, "y", DESCRIBE_DIMS(2, 2));
	describe_node(d, "Softmax", "", "x", "y");
	describe_attr_int(d, "axis", 0);
	run(d, 1, (void *[]){x, y});
	assert_floats(y, first, 4);
}

TEST(test_reduce_sum__axes)
{
	float x[] = {1, 2, 3, 4, 5, 6}, rows[2], columns[3], all;
	float want_rows[] = {6, 15}, want_columns[] = {5, 7, 9};
	struct describe *d = describe_new("", 4);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_output(d, "rows", DESCRIBE_DIMS(DESCRIBE_COUNT));
	describe_output(d, "columns", DESCRIBE_DIMS(1, 3));
	describe_output(d, "all", DESCRIBE_SCALAR);
	describe_node(d, "ReduceSum", "", "x", "rows");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(-1));
	describe_attr_int(d, "keepdims", 0);
	describe_node(d, "ReduceSum", "", "x", "columns");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(0));
	describe_node(d, "ReduceSum", "", "x", "all");
	describe_attr_int(d, "keepdims", 0);
	run(d, 2, (void *[]){x, rows, columns, &all});
	assert_floats(rows, want_rows, 2);
	assert_floats(columns, want_columns, 3);
	assert_float_equal(all, 21, 1e-6);
}

TEST(test_transpose__perm)
{
	/* [2,1,3] by (2,0,1) = [3,2,1] */
	float x[] = {1, 2, 3, 4, 5, 6}, y[6], want[] = {1, 4, 2, 5, 3, 6};
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(2, 1, 3));
	describe_output(d, "y", DESCRIBE_DIMS(3, 2, 1));
	describe_node(d, "Transpose", "", "x", "y");
	describe_attr_ints(d, "perm", DESCRIBE_INTS(2, 0, 1));
	run(d, 1, (void *[]){x, y});
	assert_floats(y, want, 6);
}

TEST(test_conv__strides_pads_bias)
{
	/* 1-D: kernel (1,2), stride 2, one zero in front: 0*1+1*2, 2*1+3*2 */
	float x[] = {1, 2, 3}, w[] = {1, 2}, b[] = {10}, y[2], want[] = {12, 18};
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(1, 1, 3));
	describe_input(d, "w", DESCRIBE_DIMS(1, 1, 2));
	describe_input(d, "b", DESCRIBE_DIMS(1));
	describe_output(d, "y", DESCRIBE_DIMS(1, 1, 2));
	describe_node(d, "Conv", "", "x,w,b", "y");
	describe_attr_ints(d, "strides", DESCRIBE_INTS(2));
	describe_attr_ints(d, "pads", DESCRIBE_INTS(1, 0));
	run(d, 1, (void *[]){x, w, b, y});
	assert_floats(y, want, 2);
}

TEST(test_conv__groups_dilation)
{
	/* Two groups of one channel, each 2x2 with a 2x1 kernel dilated by 1 and 1 */
	float x[] = {1, 2, 3, 4, 5, 6, 7, 8}, w[] = {1, 10, 1, 100}, y[4];
	float want[] = {31, 42, 705, 806};
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(1, 2, 2, 2));
	describe_input(d, "w", DESCRIBE_DIMS(2, 1, 2, 1));
	describe_output(d, "y", DESCRIBE_DIMS(1, 2, 1, 2));
	describe_node(d, "Conv", "", "x,w", "y");
	describe_attr_int(d, "group", 2);
	run(d, 1, (void *[]){x, w, y});
	assert_floats(y, want, 4);
}

TEST(test_max_pool__ceil_mode)
{
	float x[] = {1, 5, 2, -7, -9}, y[3], want[] = {5, 2, -9};
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(1, 1, 5));
	describe_output(d, "y", DESCRIBE_DIMS(1, 1, 3));
	describe_node(d, "MaxPool", "", "x", "y");
	describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2));
	describe_attr_ints(d, "strides", DESCRIBE_INTS(2));
	describe_attr_int(d, "ceil_mode", 1);
	run(d, 1, (void *[]){x, y});
	assert_floats(y, want, 3);
}

TEST(test_top_k__ties)
{
	float x[] = {1, 3, 3, 2, /* */ 5, 5, 5, 5}, values[4], want[] = {3, 3, 5, 5};
	int64_t indices[4], want_indices[] = {1, 2, 0, 1};
	struct describe *d = describe_new("", 2);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_output(d, "values", DESCRIBE_DIMS(DESCRIBE_COUNT, 2));
	describe_tensor(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64, 0,
			DESCRIBE_DIMS(DESCRIBE_COUNT, 2));
	describe_node(d, "TopK", "", "x", "values,indices");
	describe_attr_int(d, "k", 2);
	run(d, 2, (void *[]){x, values, indices});
	assert_floats(values, want, 4);
	assert_true(reference_equal("indices", indices, want_indices, 4));
}

TEST(test_top_k__smallest_axis)
{
	/* Along dimension 0 of [3,2] */
	float x[] = {3, 1, 1, 1, 2, 0}, values[4], want[] = {1, 0, 2, 1};
	int64_t indices[4], want_indices[] = {1, 2, 2, 0};
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(3, 2));
	describe_output(d, "values", DESCRIBE_DIMS(2, 2));
	describe_tensor(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64, 0, DESCRIBE_DIMS(2, 2));
	describe_node(d, "TopK", "", "x", "values,indices");
	describe_attr_int(d, "k", 2);
	describe_attr_int(d, "axis", 0);
	describe_attr_int(d, "largest", 0);
	run(d, 1, (void *[]){x, values, indices});
	assert_floats(values, want, 4);
	assert_true(reference_equal("indices", indices, want_indices, 4));
}

TEST(test_state__old_then_new)
{
	/* before = s + x (old s); s = s + x in place; after = s * x (new s) */
	float s[] = {1, 2}, x[] = {10, 20}, before[2], after[2];
	float want_s[] = {11, 22}, want_after[] = {110, 440};
	struct describe *d = describe_new("", 1);

	describe_state(d, "s", DESCRIBE_DIMS(2));
	describe_input(d, "x", DESCRIBE_DIMS(2));
	describe_output(d, "before", DESCRIBE_DIMS(2));
	describe_output(d, "after", DESCRIBE_DIMS(2));
	describe_node(d, "Add", "", "s,x", "before");
	describe_node(d, "Add", "", "s,x", "s");
	describe_node(d, "Mul", "", "s,x", "after");
	run(d, 1, (void *[]){s, x, before, after});
	assert_floats(before, want_s, 2);
	assert_floats(s, want_s, 2);
	assert_floats(after, want_after, 2);
}

TEST(test_constant__read_from_arena)
{
	struct describe *d = describe_new("", 1);
	float x[] = {2}, y[1], c = 21;
	struct exec_arena arena;
	struct plan *plan;

	reference_arena_init(&arena, 4096, 1);
	memcpy(arena.base + 128, &c, sizeof(c));
	describe_input(d, "x", DESCRIBE_DIMS(1));
	describe_constant(d, "c", RBK_REF(REFERENCE_ARENA, 128), DESCRIBE_DIMS(1));
	describe_output(d, "y", DESCRIBE_DIMS(1));
	describe_node(d, "Mul", "", "x,c", "y");
	plan = reference_plan(d, &arena);
	reference_run(plan, 1, (void *[]){x, y});
	assert_float_equal(y[0], 42, 0);
	plan_free(plan);
	reference_arena_deinit(&arena);
}

TEST(test_close__tells_differences)
{
	float want[] = {1, 100, NAN, INFINITY};
	float same[] = {1.0005f, 100.05f, NAN, INFINITY};
	float number[] = {1, 100, 0, INFINITY}, none[] = {NAN, 100, NAN, INFINITY};
	float off[] = {1, 100.2f, NAN, INFINITY}, finite[] = {1, 100, NAN, 1e38f};
	int64_t a[] = {1, 2}, b[] = {1, 3};

	assert_true(reference_close("same", same, want, 4, 1e-3, 0));
	assert_false(reference_close("number for none", number, want, 4, 1e-3, 0));
	assert_false(reference_close("none for number", none, want, 4, 1e-3, 0));
	assert_false(reference_close("off", off, want, 4, 1e-3, 0));
	assert_false(reference_close("finite", finite, want, 4, 1e-3, 0));
	assert_true(reference_equal("same", a, a, 2));
	assert_false(reference_equal("other", a, b, 2));
}
