/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Slice, Concat, Split, Expand, Tile and Pad
 */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_slice__shapes)
{
	struct plan *plan;

	expect_infers("Slice", "[10,20]", "starts=[0,0] ends=[3,10]", "[3,10]");
	expect_infers("Slice", "[10,20]", "starts=[1] ends=[1000] axes=[-1]", "[10,19]");
	expect_infers("Slice", "[10,20]", "starts=[-3] ends=[-1] axes=[0]", "[2,20]");
	expect_infers("Slice", "[10,20]", "starts=[20] ends=[-21] axes=[1] steps=[-1]", "[10,20]");
	expect_infers("Slice", "[10,20]", "starts=[9,19] ends=[0,0] steps=[-3,-4]", "[3,5]");
	expect_infers("Slice", "[10]", "starts=[0] ends=[10] steps=[3]", "[4]");
	expect_infers("Slice", "[10]",
		      "starts=[-9223372036854775807] ends=[9223372036854775807] "
		      "steps=[9223372036854775807]",
		      "[1]");
	expect_infers("Slice", "[10]",
		      "starts=[9223372036854775807] ends=[-9223372036854775807] "
		      "steps=[-9223372036854775807]",
		      "[1]");
	expect_infers("Slice", "[]", "starts=[] ends=[]", "[]");
	expect_infers("Slice", "[count,8]", "starts=[2] ends=[4] axes=[1]", "[count,2]");
	expect_infers("Slice", "[count,8]", "starts=[0,2] ends=[2147483647,4]", "[count,2]");

	plan = expect_plan(one_op("Slice", "[9,8]", "starts=[-1,2] ends=[-100,3] steps=[-3,5]"));
	assert_int_equal(plan->nodes[0].params.slice.start[0], 8);
	assert_int_equal(plan->nodes[0].params.slice.step[0], -3);
	assert_int_equal(plan->nodes[0].params.slice.start[1], 2);
	assert_int_equal(plan->nodes[0].params.slice.step[1], 1);
	assert_int_equal(plan->cost.bytes_fixed, 2 * 4 * 3);
	plan_free(plan);
}

TEST(test_slice__refused)
{
	expect_refuses("Slice", "[4]", "starts=[1] ends=[2,3]",
		       "\"ends\" has 2 values, expected 1");
	expect_refuses("Slice", "[4]", "starts=[1] ends=[2] axes=[1]", "\"axes\" has the value 1");
	expect_refuses("Slice", "[4]", "starts=[1] ends=[2] steps=[0]",
		       "\"steps\" has the value 0");
	expect_refuses("Slice", "[4]", "starts=[1,1] ends=[2,2]", "\"starts\" has 2 values");
	expect_refuses("Slice", "[4,4]", "starts=[1,1] ends=[2,2] axes=[0,-2]",
		       "names dimension 0 twice");
	expect_refuses("Slice", "[4]", "starts=[2] ends=[2]", "nothing is left of dimension 0");
	expect_refuses("Slice", "[4]", "starts=[9] ends=[10]", "nothing is left");
	expect_refuses("Slice", "[4]", "starts=[0] ends=[4] steps=[-1]", "nothing is left");
	expect_refuses(
		"Slice", "[count,4]", "starts=[0] ends=[1]",
		"take a part of the leading dimension of input \"a\" [count,4], which is count");
}

TEST(test_concat__shapes)
{
	expect_infers("Concat", "[2,3]", "axis=0", "[2,3]");
	expect_infers("Concat", "[2,3] [4,3]", "axis=0", "[6,3]");
	expect_infers("Concat", "[2,3] [2,1] [2,7]", "axis=-1", "[2,11]");
	expect_infers("Concat", "[count,3] [count,4]", "axis=1", "[count,7]");
	expect_infers("Concat", "[count]", "axis=0", "[count]");
}

TEST(test_concat__refused)
{
	expect_refuses("Concat", "[2,3] [2,3]", "", "\"axis\" is missing");
	expect_refuses("Concat", "[] []", "axis=0", "is a scalar");
	expect_refuses("Concat", "[2,3] [2,3]", "axis=2", "\"axis\" is 2");
	expect_refuses("Concat", "[2,3] [2]", "axis=0", "different numbers of dimensions");
	expect_refuses("Concat", "[2,3] [2,4]", "axis=0", "differ in dimension 1");
	expect_refuses("Concat", "[count,3] [2,3]", "axis=1", "differ in dimension 0");
	expect_refuses("Concat", "[count,3] [count,3]", "axis=0",
		       "put something behind the leading dimension of input \"a\"");
	expect_refuses("Concat", "[2,3] [count,3]", "axis=0",
		       "put something behind the leading dimension of input \"b\"");
	expect_refuses("Concat", "[2] - [2]", "axis=0", "input 1 is absent, but required");
	expect_refuses("Concat", "[2147483647] [1]", "axis=0",
		       "dimension 0 of the output would be 2147483648");
}

TEST(test_split__refused)
{
	expect_infers("Split", "[count,3]", "axis=1 split=[3]", "[count,3]");
	expect_refuses("Split", "[4,3]", "axis=0", "\"split\" is missing");
	expect_refuses("Split", "[4,3]", "split=[2,2]", "\"split\" has 2 values, expected 1");
	expect_refuses("Split", "[4,3]", "split=[3]",
		       "\"split\" has 3 elements in all, expected as many as dimension 0");
	expect_refuses("Split", "[4,3]", "split=[0]", "\"split\" has the value 0");
	expect_refuses("Split", "[4,3]", "axis=2 split=[3]", "\"axis\" is 2");
	expect_refuses("Split", "[count,3]", "split=[3]", "split the leading dimension");
}

TEST(test_split__outputs)
{
	struct describe *d = describe_new("split", 1);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(2, 7));
	describe_inferred(d, "a", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_inferred(d, "b", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Split", "it", "x", "a,b");
	describe_attr_int(d, "axis", -1);
	describe_attr_ints(d, "split", DESCRIBE_INTS(5, 2));
	plan = expect_plan(d);
	assert_int_equal(expect_tensor(plan, "a")->shape.dims[1], 5);
	assert_int_equal(expect_tensor(plan, "b")->shape.dims[1], 2);
	plan_free(plan);

	d = describe_new("split", 1);
	describe_input(d, "x", DESCRIBE_DIMS(7));
	describe_inferred(d, "a", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_inferred(d, "b", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Split", "it", "x", "a,-,b");
	describe_attr_ints(d, "split", DESCRIBE_INTS(2, 3, 2));
	expect_refused(d, "output 1 is absent, but required");
}

TEST(test_expand__shapes)
{
	expect_infers("Expand", "[3,1]", "shape=[2,1,6]", "[2,3,6]");
	expect_infers("Expand", "[3,1]", "shape=[3,4]", "[3,4]");
	expect_infers("Expand", "[]", "shape=[2,2]", "[2,2]");
	expect_infers("Expand", "[2,3]", "shape=[]", "[2,3]");
	expect_infers("Expand", "[2,3]", "shape=[1]", "[2,3]");
	expect_infers("Expand", "[count,1,3]", "shape=[1,4,1]", "[count,4,3]");
	expect_infers("Expand", "[count,1]", "shape=[5]", "[count,5]");
	expect_refuses("Expand", "[2,3]", "shape=[4,3]",
		       "\"shape\" has 4 for dimension 0, which is 2");
	expect_refuses("Expand", "[count,3]", "shape=[4,3]", "for dimension 0, which is count");
	expect_refuses("Expand", "[count,3]", "shape=[2,1,1]",
		       "count would become dimension 1 of the output");
	expect_refuses("Expand", "[2]", "shape=[0]", "\"shape\" has the value 0");
	expect_refuses("Expand", "[2]", "shape=[1,1,1,1,1,1,1,1,1]", "\"shape\" has 9 values");
}

TEST(test_tile__shapes)
{
	expect_infers("Tile", "[2,3]", "repeats=[2,4]", "[4,12]");
	expect_infers("Tile", "[]", "repeats=[]", "[]");
	expect_infers("Tile", "[count,3]", "repeats=[1,2]", "[count,6]");
	expect_refuses("Tile", "[2,3]", "repeats=[2]", "\"repeats\" has 1 value, expected 2");
	expect_refuses("Tile", "[2]", "repeats=[0]", "\"repeats\" has the value 0");
	expect_refuses("Tile", "[2]", "repeats=[2147483647]",
		       "dimension 0 of the output would be 4294967294");
	expect_refuses("Tile", "[count,3]", "repeats=[2,1]", "repeat the leading dimension");
}

TEST(test_pad__shapes)
{
	struct plan *plan;

	expect_infers("Pad", "[2,3]", "pads=[1,0,2,4]", "[5,7]");
	expect_infers("Pad", "[2,3]", "pads=[-1,0,0,-2]", "[1,1]");
	expect_infers("Pad", "[5]", "pads=[-4,9] mode=reflect", "[10]");
	expect_infers("Pad", "[]", "pads=[]", "[]");
	expect_infers("Pad", "[count,3]", "pads=[0,1,0,1] mode=wrap", "[count,5]");
	plan = expect_plan(one_op("Pad", "[2]", "pads=[1,1] value=1.0"));
	assert_int_equal(plan->nodes[0].params.pad.value, 0x3f8000003f800000);
	plan_free(plan);
}

TEST(test_pad__refused)
{
	expect_refuses("Pad", "[2,3]", "pads=[1,1]", "\"pads\" has 2 values, expected 4");
	expect_refuses("Pad", "[2]", "pads=[1,1] mode=mirror",
		       "\"mirror\", expected one of constant, reflect, edge, wrap");
	expect_refuses("Pad", "[2]", "pads=[-1,-1]", "expected at least one element to be left");
	expect_refuses("Pad", "[2]", "pads=[-2147483647,2147483647]", "one element to be left");
	expect_refuses("Pad", "[2]", "pads=[2147483647,2147483647]", "at most 2147483647 in all");
	expect_refuses("Pad", "[2]", "pads=[2147483648,0]", "\"pads\" has the value 2147483648");
	expect_refuses("Pad", "[count,3]", "pads=[1,0,0,0]", "add to the leading dimension");
	expect_refuses("Pad", "[2]", "pads=[1,1] int_value=3", "\"int_value\" is for integers");
}

/* The value's bits in the tensor's type, repeated to fill 64 bits. */
TEST(test_pad__values)
{
	static const struct {
		enum rbk_dtype dtype;
		bool is_integer;
		double value;
		uint64_t bits;
	} cases[] = {
		{RBK_DTYPE_F16, false, -2, 0xc000c000c000c000},
		{RBK_DTYPE_BF16, false, -2, 0xc000c000c000c000},
		{RBK_DTYPE_BF16, false, 1.0078125 - 0.00390625, 0x3f803f803f803f80},
		{RBK_DTYPE_F32, false, 0, 0},
		{RBK_DTYPE_U8, true, 200, 0xc8c8c8c8c8c8c8c8},
		{RBK_DTYPE_I8, true, -1, UINT64_MAX},
		{RBK_DTYPE_I8, false, 3.7, 0x0303030303030303},
		{RBK_DTYPE_BOOL, true, 2, 0x0101010101010101},
		{RBK_DTYPE_I32, true, -2, 0xfffffffefffffffe},
		{RBK_DTYPE_I64, true, -2, 0xfffffffffffffffe},
		{RBK_DTYPE_F64, false, -2, 0xc000000000000000},
		{RBK_DTYPE_F64, false, 0.1f, 0x3fb99999a0000000},
		{RBK_DTYPE_F64, true, 0x123456789abcd, 0x000123456789abcd},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct describe *d = describe_new("pad", 1);
		struct plan *plan;

		describe_tensor(d, "x", RBK_TENSOR_INPUT, cases[i].dtype, 0, DESCRIBE_DIMS(2));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, cases[i].dtype);
		describe_node(d, "Pad", "it", "x", "y");
		describe_attr_ints(d, "pads", DESCRIBE_INTS(1, 1));
		if (cases[i].is_integer)
			describe_attr_int(d, "int_value", (int64_t)cases[i].value);
		else
			describe_attr_float(d, "value", (float)cases[i].value);
		plan = expect_plan(d);
		assert_int_equal(plan->nodes[0].params.pad.value, cases[i].bits);
		plan_free(plan);
	}
}
