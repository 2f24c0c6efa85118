/* SPDX-License-Identifier: MIT */
/* Shape rules: elementwise operators */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_add__broadcast)
{
	expect_infers("Add", "[2,3] [2,3]", "", "[2,3]");
	expect_infers("Add", "[2,3] [3]", "", "[2,3]");
	expect_infers("Add", "[3] [2,3]", "", "[2,3]");
	expect_infers("Add", "[] [2,3]", "", "[2,3]");
	expect_infers("Add", "[] []", "", "[]");
	expect_infers("Add", "[2,1] [1,3]", "", "[2,3]");
	expect_infers("Mul", "[4,1,3] [2,1]", "", "[4,2,3]");
	expect_infers("Mul", "[1,1,1,1,1,1,1,1] [2]", "", "[1,1,1,1,1,1,1,2]");
}

TEST(test_add__count)
{
	expect_infers("Add", "[count,3] [3]", "", "[count,3]");
	expect_infers("Add", "[1,3] [count,3]", "", "[count,3]");
	expect_infers("Add", "[count,3] [count,1]", "", "[count,3]");
	expect_infers("Add", "[count] [1]", "", "[count]");
	expect_infers("Add", "[count] []", "", "[count]");
}

TEST(test_add__refused)
{
	expect_refuses("Add", "[2,3] [2]", "", "inputs \"a\" [2,3] and \"b\" [2] do not broadcast",
		       "dimension 1 would be 3 and 2");
	expect_refuses("Mul", "[count,3] [2,3]", "", "dimension 0 would be count and 2");
	expect_refuses("Mul", "[count,3] [100,3]", "", "dimension 0 would be count and 100");
	expect_refuses("Add", "[count] [4,1]", "", "would make count dimension 1 of the output");
	expect_refuses("Add", "[count] [4,3]", "", "dimension 1 would be count and 3");
	expect_refuses("Add", "[count,3] [1,1,3]", "", "count dimension 1");
	expect_refuses("Add", "[count,3] [count,1,3]", "", "count dimension 1");
	expect_refuses("Add", "[2]", "", "1 input, expected at least 2");
	expect_refuses("Add", "[2] [2]", "axis=1", "unknown attribute \"axis\"");
}

TEST(test_relu__shapes)
{
	expect_infers("Relu", "[2,3]", "", "[2,3]");
	expect_infers("Relu", "[]", "", "[]");
	expect_infers("Relu", "[count]", "", "[count]");
	expect_refuses("Relu", "[2] [2]", "", "2 inputs, expected at most 1");
}

TEST(test_elementwise__cost)
{
	struct plan *plan = expect_plan(one_op("Add", "[count,3] [3]", ""));

	assert_int_equal(plan->cost.flops_row, 3);
	assert_int_equal(plan->cost.flops_fixed, 0);
	assert_int_equal(plan->cost.bytes_row, 4 * 6);
	assert_int_equal(plan->cost.bytes_fixed, 4 * 3);
	assert_true(plan->splits_rows);
	plan_free(plan);
}

TEST(test_elementwise__int64_refused)
{
	struct describe *d = describe_new("", 1);

	describe_tensor(d, "indices", RBK_TENSOR_INPUT, RBK_DTYPE_I64, 0, DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_node(d, "Exp", "e", "indices", "y");
	expect_refused(d, "node 0 \"e\" (Exp)", "input \"indices\" is int64, expected");
}

TEST(test_where__broadcast)
{
	struct describe *d = describe_new("", 4);
	struct plan *plan;

	describe_tensor(d, "c", RBK_TENSOR_INPUT, RBK_DTYPE_BOOL, 0, DESCRIBE_DIMS(3, 1));
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 1, 5));
	describe_input(d, "y", DESCRIBE_DIMS(1));
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 5));
	describe_node(d, "Where", "w", "c,x,y", "z");
	plan = expect_plan(d);
	plan_free(plan);
	d = describe_new("", 1);
	describe_tensor(d, "c", RBK_TENSOR_INPUT, RBK_DTYPE_BOOL, 0, DESCRIBE_DIMS(2));
	describe_input(d, "x", DESCRIBE_DIMS(3));
	describe_input(d, "y", DESCRIBE_DIMS(1));
	describe_inferred(d, "z", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Where", "w", "c,x,y", "z");
	expect_refused(d, "(Where)", "do not broadcast");
	expect_refuses("Where", "[2] [2] [2]", "", "input \"a\" is float32, expected bool");
}

TEST(test_elementwise__attributes)
{
	expect_infers("Clip", "[2,3]", "min=0.5", "[2,3]");
	expect_infers("Gelu", "[count,3]", "approximate=tanh", "[count,3]");
	expect_refuses("Gelu", "[2]", "approximate=fast", "\"fast\", expected one of none, tanh");
	expect_refuses("Mod", "[2] [2]", "", "\"fmod\" is 0, expected 1 for float32");
	expect_infers("Mod", "[2] [2]", "fmod=1", "[2]");
	expect_infers("Shrink", "[count,3]", "lambd=1.5 bias=1.5", "[count,3]");
	expect_refuses("Cast", "[2]", "to=12", "\"to\" is 12");
	expect_refuses("Cast", "[2]", "", "\"to\"");
	expect_infers("PRelu", "[count,3,4] [3,1]", "", "[count,3,4]");
	expect_refuses("PRelu", "[3] [2,3]", "", "the slope \"b\" is [2,3]");
	expect_infers("Less", "[2,1] [3]", "", "[2,3]");
	expect_refuses("And", "[2] [2]", "", "input \"a\" is float32, expected bool");
}

static struct plan *unary_plan(const char *op, uint8_t dtype)
{
	struct describe *d = describe_new("", 1);

	describe_tensor(d, "x", RBK_TENSOR_INPUT, dtype, 0, DESCRIBE_DIMS(7));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, dtype);
	describe_node(d, op, "node", "x", "y");
	return expect_plan(d);
}

/*
 * Parameters are widened, defaults keep their float32 value, GPUs do not get the plan, and
 * functions cost more.
 */
TEST(test_elementwise__float64)
{
	struct plan *plan = unary_plan("HardSigmoid", RBK_DTYPE_F64), *floats;

	assert_true(plan->nodes[0].params.elementwise.d[0] == (double)0.2f);
	assert_true(plan->nodes[0].params.elementwise.d[1] == 0.5);
	assert_int_equal(plan->ops_devices, OP_ON_CPU | OP_ON_VULKAN);
	plan_free(plan);
	plan = unary_plan("Sin", RBK_DTYPE_F64);
	assert_int_equal(plan->ops_devices, OP_ON_CPU);
	plan_free(plan);
	plan = unary_plan("Clip", RBK_DTYPE_F64);
	assert_true(plan->nodes[0].params.elementwise.d[0] == -INFINITY);
	assert_true(plan->nodes[0].params.elementwise.d[1] == INFINITY);
	plan_free(plan);
	plan = unary_plan("Exp", RBK_DTYPE_F64);
	floats = unary_plan("Exp", RBK_DTYPE_F32);
	assert_int_equal(plan->cost.bytes_fixed, 2 * floats->cost.bytes_fixed);
	assert_true(plan->cost.flops_fixed > 8 * floats->cost.flops_fixed);
	assert_int_equal(floats->ops_devices, OP_ON_CPU | OP_ON_VULKAN);
	plan_free(plan);
	plan_free(floats);
}
