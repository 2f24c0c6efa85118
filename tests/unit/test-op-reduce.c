/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: ReduceSum
 */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_reduce__shapes)
{
	expect_infers("ReduceSum", "[2,3,4]", "", "[1,1,1]");
	expect_infers("ReduceSum", "[2,3,4]", "keepdims=0", "[]");
	expect_infers("ReduceSum", "[2,3,4]", "axes=[1]", "[2,1,4]");
	expect_infers("ReduceSum", "[2,3,4]", "axes=[1] keepdims=0", "[2,4]");
	expect_infers("ReduceSum", "[2,3,4]", "axes=[-1,0] keepdims=0", "[3]");
	expect_infers("ReduceSum", "[2,3,4]", "axes=[]", "[1,1,1]");
	expect_infers("ReduceSum", "[2,3,4]", "noop_with_empty_axes=1", "[2,3,4]");
	expect_infers("ReduceSum", "[2,3,4]", "axes=[2] noop_with_empty_axes=1", "[2,3,1]");
	expect_infers("ReduceSum", "[]", "", "[]");
	expect_infers("ReduceSum", "[2,2,2,2,2,2,2,2]", "keepdims=0", "[]");
}

TEST(test_reduce__count)
{
	struct plan *plan;

	expect_infers("ReduceSum", "[count,3]", "axes=[1]", "[count,1]");
	expect_infers("ReduceSum", "[count,3]", "axes=[1] keepdims=0", "[count]");
	expect_infers("ReduceSum", "[count,3]", "axes=[0]", "[1,3]");
	expect_infers("ReduceSum", "[count,3]", "axes=[0] keepdims=0", "[3]");
	expect_infers("ReduceSum", "[count,3]", "keepdims=0", "[]");

	plan = expect_plan(one_op("ReduceSum", "[count,3]", "axes=[1]"));
	assert_true(plan->splits_rows);
	assert_int_equal(plan->cost.flops_row, 3);
	assert_int_equal(plan->cost.bytes_row, 4 * 4);
	assert_int_equal(plan->nodes[0].params.reduce.axes, 2);
	assert_true(plan->nodes[0].params.reduce.keepdims);
	plan_free(plan);

	plan = expect_plan(one_op("ReduceSum", "[count,3]", "axes=[0] keepdims=0"));
	assert_false(plan->splits_rows);
	assert_int_equal(plan->cost.flops_row, 3);
	assert_int_equal(plan->cost.bytes_row, 4 * 3);
	assert_int_equal(plan->cost.bytes_fixed, 4 * 3);
	assert_false(plan->nodes[0].params.reduce.keepdims);
	plan_free(plan);
}

TEST(test_reduce__refused)
{
	expect_refuses("ReduceSum", "[2,3]", "axes=[2]",
		       "attribute \"axes\" has the value 2, but input \"a\" has 2 dimensions");
	expect_refuses("ReduceSum", "[2,3]", "axes=[-3]", "value -3");
	expect_refuses("ReduceSum", "[2,3]", "axes=[1,-1]", "names dimension 1 twice");
	expect_refuses("ReduceSum", "[]", "axes=[0]", "input \"a\" has 0 dimensions");
	expect_refuses("ReduceSum", "[2,3]", "keepdims=2", "\"keepdims\" is 2");
	expect_refuses("ReduceSum", "[2,3] [1]", "", "2 inputs, expected at most 1");
}
