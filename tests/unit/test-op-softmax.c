/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Softmax
 */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

static unsigned int axis_of(const char *inputs, const char *attrs)
{
	struct plan *plan = expect_plan(one_op("Softmax", inputs, attrs));
	unsigned int axis = plan->nodes[0].params.softmax.axis;

	plan_free(plan);
	return axis;
}

TEST(test_softmax__axis)
{
	expect_infers("Softmax", "[2,3,4]", "", "[2,3,4]");
	expect_infers("Softmax", "[count,4]", "", "[count,4]");
	assert_int_equal(axis_of("[2,3,4]", ""), 2);
	assert_int_equal(axis_of("[2,3,4]", "axis=1"), 1);
	assert_int_equal(axis_of("[2,3,4]", "axis=-3"), 0);
}

TEST(test_softmax__along_count)
{
	struct plan *plan = expect_plan(one_op("Softmax", "[count,4]", "axis=0"));

	assert_false(plan->splits_rows);
	plan_free(plan);
	plan = expect_plan(one_op("Softmax", "[count,4]", "axis=1"));
	assert_true(plan->splits_rows);
	assert_int_equal(plan->cost.flops_row, 5 * 4);
	plan_free(plan);
	plan = expect_plan(one_op("Softmax", "[count]", ""));
	assert_false(plan->splits_rows);
	plan_free(plan);
}

TEST(test_softmax__refused)
{
	expect_refuses("Softmax", "[2,3]", "axis=2",
		       "attribute \"axis\" is 2, expected a number from -2 to 1");
	expect_refuses("Softmax", "[2,3]", "axis=-3", "attribute \"axis\" is -3");
	expect_refuses("Softmax", "[]", "", "input \"a\" is a scalar", "\"axis\"");
	expect_refuses("Softmax", "[2,3]", "axis=[1]", "\"axis\" has type 3, expected 1");
}
