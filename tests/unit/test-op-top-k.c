/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: TopK
 */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_top_k__shapes)
{
	struct plan *plan;

	expect_infers("TopK", "[2,5]", "k=3", "[2,3]");
	expect_infers("TopK", "[2,5]", "k=1 axis=0", "[1,5]");
	expect_infers("TopK", "[2,5]", "k=5 axis=-1", "[2,5]");
	expect_infers("TopK", "[count,5]", "k=2", "[count,2]");

	plan = expect_plan(one_op("TopK", "[count,5,6]", "k=3 axis=-2 largest=0 sorted=0"));
	assert_int_equal(plan->nodes[0].params.top_k.k, 3);
	assert_int_equal(plan->nodes[0].params.top_k.axis, 1);
	assert_false(plan->nodes[0].params.top_k.largest);
	assert_false(plan->nodes[0].params.top_k.sorted);
	assert_int_equal(expect_tensor(plan, "z")->dtype, RBK_DTYPE_I64);
	assert_int_equal(expect_tensor(plan, "z")->row_bytes, 8 * 3 * 6);
	assert_int_equal(expect_tensor(plan, "y")->row_bytes, 4 * 3 * 6);
	assert_true(plan->splits_rows);
	assert_false(plan->data_independent);
	assert_int_equal(plan->cost.flops_row, 2 * 5 * 6);
	plan_free(plan);

	plan = expect_plan(one_op("TopK", "[5]", "k=3"));
	assert_true(plan->nodes[0].params.top_k.largest);
	assert_true(plan->nodes[0].params.top_k.sorted);
	plan_free(plan);
}

TEST(test_top_k__refused)
{
	expect_refuses("TopK", "[2,5]", "", "attribute \"k\" is missing");
	expect_refuses("TopK", "[2,5]", "k=0", "attribute \"k\" is 0");
	expect_refuses("TopK", "[2,5]", "k=6",
		       "attribute \"k\" is 6, expected at most dimension 1 of input \"a\" [2,5]");
	expect_refuses("TopK", "[2,5]", "k=-1", "attribute \"k\" is -1");
	expect_refuses("TopK", "[2,5]", "k=1 axis=2", "attribute \"axis\" is 2");
	expect_refuses("TopK", "[]", "k=1", "input \"a\" is a scalar");
	expect_refuses("TopK", "[count,5]", "k=1 axis=0",
		       "\"axis\" names dimension count of input \"a\" [count,5]");
	expect_refuses("TopK", "[count]", "k=1", "names dimension count");
	expect_refuses("TopK", "[5]", "k=1 k=2", "attribute \"k\" is given twice");
	expect_refuses("TopK", "[5]", "k=1 largest=3", "\"largest\" is 3");
	expect_refuses("TopK", "[5]", "k=1 sorted=-1", "\"sorted\" is -1");
}

TEST(test_top_k__outputs)
{
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(5));
	describe_output(d, "values", DESCRIBE_DIMS(2));
	describe_node(d, "TopK", "t", "x", "values");
	describe_attr_int(d, "k", 2);
	expect_refused(d, "node 0 \"t\" (TopK)", "1 output, expected at least 2");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(5));
	describe_output(d, "values", DESCRIBE_DIMS(2));
	describe_output(d, "indices", DESCRIBE_DIMS(2));
	describe_node(d, "TopK", "t", "x", "values,indices");
	describe_attr_int(d, "k", 2);
	expect_refused(d, "output \"indices\" is declared as float32, expected int64");
}
