/* SPDX-License-Identifier: MIT */
/* Reshape: shapes, and which tensor's memory its output uses */
#include "support/one-op.h"
#include "support/test.h"

TEST(test_reshape__shapes)
{
	expect_infers("Reshape", "[2,3,4]", "shape=[24]", "[24]");
	expect_infers("Reshape", "[2,3,4]", "shape=[4,-1]", "[4,6]");
	expect_infers("Reshape", "[2,3,4]", "shape=[0,-1]", "[2,12]");
	expect_infers("Reshape", "[1]", "shape=[]", "[]");
	expect_infers("Reshape", "[]", "shape=[1,1]", "[1,1]");
	expect_infers("Reshape", "[count,3,4]", "shape=[0,12]", "[count,12]");
	expect_infers("Reshape", "[count,3,4]", "shape=[-1,4,3]", "[count,4,3]");
	expect_infers("Reshape", "[count,12]", "shape=[0,-1,4]", "[count,3,4]");
}

TEST(test_reshape__refused)
{
	expect_refuses("Reshape", "[2,3]", "shape=[7]", "\"shape\" gives [7]", "\"a\" [2,3]");
	expect_refuses("Reshape", "[2,3]", "shape=[4,-1]", "as many elements");
	expect_refuses("Reshape", "[2,3]", "shape=[-1,-1]", "-1 twice");
	expect_refuses("Reshape", "[2,3]", "shape=[2,3,0]", "copies dimension 2");
	expect_refuses("Reshape", "[2,3]", "shape=[-2,3]", "value -2");
	expect_refuses("Reshape", "[2]", "shape=[1,1,1,1,1,1,1,1,2]", "9 values");
	expect_refuses("Reshape", "[2]", "shape=[2147483647,2147483647,2147483647,2147483647]",
		       "as many elements");
	expect_refuses("Reshape", "[count,3]", "shape=[3,-1]", "would lose count");
	expect_refuses("Reshape", "[count,3]", "shape=[-1]", "would lose count");
	expect_refuses("Reshape", "[count,4]", "shape=[0,3]", "as many elements");
	expect_refuses("Reshape", "[2]", "", "\"shape\" is missing");
}

/*
 * A scratch output is a view of the input's memory. A scratch input of an output is a view of the
 * output's memory.
 */
TEST(test_reshape__views)
{
	struct describe *d = describe_new("", 10);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 6));
	describe_state(d, "s", DESCRIBE_DIMS(DESCRIBE_COUNT, 6));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_scratch(d, "c");
	describe_scratch(d, "e");
	describe_scratch(d, "f");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_inferred(d, "z", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Reshape", "", "x", "a");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(0, 2, 3));
	describe_node(d, "Reshape", "", "a", "b");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(0, 3, 2));
	describe_node(d, "Relu", "", "b", "c");
	describe_node(d, "Reshape", "", "c", "e");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(-1, 6));
	describe_node(d, "Reshape", "", "e", "y");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(0, 1, 6));
	describe_node(d, "Reshape", "", "s", "f");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(0, 3, 2));
	describe_node(d, "Relu", "", "f", "z");
	plan = expect_plan(d);
	assert_int_equal(expect_tensor(plan, "a")->root, 0);
	assert_int_equal(expect_tensor(plan, "b")->root, 0);
	assert_int_equal(expect_tensor(plan, "e")->root, expect_tensor(plan, "c") - plan->tensors);
	assert_int_equal(expect_tensor(plan, "f")->root, expect_tensor(plan, "f") - plan->tensors);
	assert_int_equal(expect_tensor(plan, "y")->root, expect_tensor(plan, "y") - plan->tensors);
	assert_int_equal(plan->scratch_bytes, 256);
	plan_free(plan);

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(6));
	describe_scratch(d, "a");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Relu", "", "x", "a");
	describe_node(d, "Reshape", "", "a", "y");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(2, 3));
	plan = expect_plan(d);
	assert_int_equal(expect_tensor(plan, "a")->root, 2);
	assert_int_equal(plan->scratch_bytes, 0);
	plan_free(plan);
}
