/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Transpose
 */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_transpose__shapes)
{
	struct plan *plan;

	expect_infers("Transpose", "[2,3,4]", "", "[4,3,2]");
	expect_infers("Transpose", "[2,3,4]", "perm=[1,2,0]", "[3,4,2]");
	expect_infers("Transpose", "[]", "", "[]");
	expect_infers("Transpose", "[]", "perm=[]", "[]");
	expect_infers("Transpose", "[5]", "", "[5]");
	expect_infers("Transpose", "[count,3,4]", "perm=[0,2,1]", "[count,4,3]");
	expect_infers("Transpose", "[count]", "", "[count]");

	plan = expect_plan(one_op("Transpose", "[2,3,4]", "perm=[1,2,0]"));
	assert_int_equal(plan->nodes[0].params.transpose.perm[0], 1);
	assert_int_equal(plan->nodes[0].params.transpose.perm[1], 2);
	assert_int_equal(plan->nodes[0].params.transpose.perm[2], 0);
	assert_int_equal(plan->cost.flops_fixed, 0);
	assert_int_equal(plan->cost.bytes_fixed, 2 * 4 * 24);
	plan_free(plan);
}

TEST(test_transpose__refused)
{
	expect_refuses("Transpose", "[2,3,4]", "perm=[0,1]",
		       "attribute \"perm\" has 2 values, expected 3");
	expect_refuses("Transpose", "[2,3]", "perm=[0,2]",
		       "\"perm\" has the value 2, expected numbers from 0 to 1");
	expect_refuses("Transpose", "[2,3]", "perm=[0,-1]", "\"perm\" has the value -1");
	expect_refuses("Transpose", "[2,3]", "perm=[1,1]", "names dimension 1 twice");
}

TEST(test_transpose__count_refused)
{
	expect_refuses("Transpose", "[count,3]", "",
		       "input \"a\" [count,3] would lose count as its leading dimension");
	expect_refuses("Transpose", "[count,3,4]", "perm=[1,0,2]",
		       "expected \"perm\" to begin "
		       "with 0");
}
