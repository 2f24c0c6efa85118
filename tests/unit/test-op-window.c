/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Conv and pooling
 */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_conv__shapes)
{
	expect_infers("Conv", "[1,3,8,9] [4,3,3,3]", "", "[1,4,6,7]");
	expect_infers("Conv", "[1,3,8,9] [4,3,3,3] [4]", "pads=[1,1,1,1]", "[1,4,8,9]");
	expect_infers("Conv", "[1,3,8,9] [4,3,3,3]", "strides=[2,3]", "[1,4,3,3]");
	expect_infers("Conv", "[1,3,8,9] [4,3,3,3]", "dilations=[2,1]", "[1,4,4,7]");
	expect_infers("Conv", "[1,3,8,9] [4,3,3,2]", "pads=[0,1,2,3] kernel_shape=[3,2]",
		      "[1,4,8,12]");
	expect_infers("Conv", "[1,4,8,8] [6,2,1,1]", "group=2", "[1,6,8,8]");
	expect_infers("Conv", "[1,4,8,8] [4,1,3,3]", "group=4", "[1,4,6,6]");
	expect_infers("Conv", "[2,3,10] [5,3,4]", "strides=[2]", "[2,5,4]");
	expect_infers("Conv", "[count,3,10] [5,3,4] [5]", "", "[count,5,7]");
	expect_infers("Conv", "[count,1,1,1] [1,1,1,1]", "", "[count,1,1,1]");
	expect_infers("Conv", "[count,2,5,8,9] [4,2,3,3,3]", "pads=[1,0,0,1,0,0] strides=[2,1,3]",
		      "[count,4,3,6,3]");
}

TEST(test_conv__auto_pad)
{
	struct plan *plan;

	expect_infers("Conv", "[1,1,8] [1,1,3]", "auto_pad=VALID strides=[2]", "[1,1,3]");
	expect_infers("Conv", "[1,1,8] [1,1,3]", "auto_pad=NOTSET pads=[1,1]", "[1,1,8]");
	expect_infers("Conv", "[1,1,8] [1,1,3]", "auto_pad=SAME_UPPER strides=[3]", "[1,1,3]");
	expect_infers("Conv", "[1,1,8] [1,1,1]", "auto_pad=SAME_LOWER strides=[3]", "[1,1,3]");

	plan = expect_plan(one_op("Conv", "[1,1,5,8] [1,1,2,4]", "auto_pad=SAME_UPPER"));
	assert_int_equal(plan->nodes[0].params.window.pad_begin[1], 0);
	assert_int_equal(plan->nodes[0].params.window.pad_end[1], 1);
	assert_int_equal(plan->nodes[0].params.window.pad_begin[2], 1);
	assert_int_equal(plan->nodes[0].params.window.pad_end[2], 2);
	plan_free(plan);
	plan = expect_plan(one_op("Conv", "[1,1,5,8] [1,1,2,4]", "auto_pad=SAME_LOWER"));
	assert_int_equal(plan->nodes[0].params.window.pad_begin[1], 1);
	assert_int_equal(plan->nodes[0].params.window.pad_end[1], 0);
	assert_int_equal(plan->nodes[0].params.window.pad_begin[2], 2);
	assert_int_equal(plan->nodes[0].params.window.pad_end[2], 1);
	plan_free(plan);
}

TEST(test_conv__parameters_1d)
{
	struct plan *plan = expect_plan(
		one_op("Conv", "[1,2,9] [4,1,3]", "group=2 strides=[2] dilations=[3] pads=[4,5]"));
	const union op_params *params = &plan->nodes[0].params;

	assert_int_equal(params->window.kernel[1], 1);
	assert_int_equal(params->window.stride[1], 1);
	assert_int_equal(params->window.dilation[1], 1);
	assert_int_equal(params->window.pad_begin[1], 0);
	assert_int_equal(params->window.pad_end[1], 0);
	assert_int_equal(params->window.kernel[2], 3);
	assert_int_equal(params->window.stride[2], 2);
	assert_int_equal(params->window.dilation[2], 3);
	assert_int_equal(params->window.pad_begin[2], 4);
	assert_int_equal(params->window.pad_end[2], 5);
	assert_int_equal(params->window.group, 2);
	plan_free(plan);
}

TEST(test_conv__cost)
{
	struct plan *plan = expect_plan(one_op("Conv", "[count,4,8,8] [6,2,3,3] [6]", "group=2"));

	assert_int_equal(plan->cost.flops_row, 6 * 6 * 6 * (2 * 2 * 3 * 3 + 1));
	assert_int_equal(plan->cost.bytes_row, 4 * (4 * 8 * 8 + 6 * 6 * 6));
	assert_int_equal(plan->cost.bytes_fixed, 4 * (6 * 2 * 3 * 3 + 6));
	assert_true(plan->splits_rows);
	plan_free(plan);
}

TEST(test_conv__refused)
{
	expect_refuses("Conv", "[3,8] [4,3]", "", "input \"a\" is [3,8], expected batch");
	expect_refuses("Conv", "[1,1,2,2,2,2] [1,1,1,1,1,1]", "", "one to three spatial");
	expect_refuses("Conv", "[1,3,8] [4,3,3,3]", "",
		       "input \"b\" is [4,3,3,3], expected 3 dimensions as \"a\"");
	expect_refuses("Conv", "[1,3,8,8] [4,2,3,3]", "",
		       "input \"b\" is [4,2,3,3], expected dimension 1 to be 3, the channels of "
		       "\"a\" [1,3,8,8] divided by group 1");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "group=2",
		       "\"group\" is 2, expected a divisor of the 3 channels");
	expect_refuses("Conv", "[1,4,8,8] [3,2,3,3]", "group=2",
		       "dimension 0 to be a multiple of group 2");
	expect_refuses("Conv", "[1,4,8,8] [4,4,3,3]", "group=0", "\"group\" is 0");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3] [3]", "",
		       "input \"c\" is [3], expected [4], one per channel");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3] [4,1]", "", "input \"c\" is [4,1]");
	expect_refuses(
		"Conv", "[1,3,8,8] [4,3,3,3]", "kernel_shape=[3,2]",
		"\"kernel_shape\" has the value 2, but input \"b\" is [4,3,3,3], expected 3");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "kernel_shape=[3]",
		       "\"kernel_shape\" has 1 value, expected 2");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "strides=[0,1]",
		       "\"strides\" has the value 0");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "dilations=[1,-1]", "value -1");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "pads=[0,0,0]",
		       "\"pads\" has 3 values, expected 4");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "pads=[0,0,0,-1]", "value -1");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "auto_pad=SAME",
		       "\"auto_pad\" is \"SAME\", expected one of NOTSET, SAME_UPPER, SAME_LOWER, "
		       "VALID");
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "auto_pad=VALID pads=[0,1,0,0]",
		       "\"pads\" is given together with \"auto_pad\" VALID");
	expect_refuses("Conv", "[1,3,8,2] [4,3,3,3]", "",
		       "a window of 3 does not fit into dimension 3 of input \"a\" [1,3,8,2] with "
		       "padding 0 and 0");
	expect_refuses("Conv", "[1,3,2,8] [4,3,3,3]", "dilations=[2,1]", "a window of 5",
		       "dimension 2");
	expect_refuses("Conv", "[1,3,8] [count,3,3]", "",
		       "input \"b\" is [count,3,3], expected fixed dimensions");
	expect_refuses("Conv", "[1,3,8] [4,3,3] [count]", "", "input \"c\" is [count]");
	expect_refuses("Conv", "[1,3,8]", "", "1 input, expected at least 2");
}

TEST(test_window__overflow_refused)
{
	expect_refuses("Conv", "[1,1,8] [1,1,3]", "dilations=[2147483647]", "too large");
	expect_refuses("Conv", "[1,1,8] [1,1,1]", "pads=[2147483647,0]", "too large");
	expect_refuses("Conv", "[1,1,8] [1,1,1]", "pads=[1073741824,1073741824]", "too large");
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[2147483647]", "does not fit");
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[2147483648]",
		       "expected numbers from 1 to 2147483647");
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[4294967298]", "4294967298");
	expect_refuses("MaxPool", "[1,1,2000000000]",
		       "kernel_shape=[2000000000] auto_pad=SAME_UPPER", "too large");
	expect_infers("MaxPool", "[1,1,8]", "kernel_shape=[1] strides=[2147483647]", "[1,1,1]");
}

TEST(test_max_pool__shapes)
{
	struct plan *plan;

	expect_infers("MaxPool", "[1,3,8,8]", "kernel_shape=[2,2]", "[1,3,7,7]");
	expect_infers("MaxPool", "[1,3,8,8]", "kernel_shape=[2,2] strides=[2,2]", "[1,3,4,4]");
	expect_infers("MaxPool", "[1,3,7,7]", "kernel_shape=[2,2] strides=[2,2]", "[1,3,3,3]");
	expect_infers("MaxPool", "[1,3,7,7]", "kernel_shape=[2,2] strides=[2,2] ceil_mode=1",
		      "[1,3,4,4]");
	expect_infers("MaxPool", "[1,3,7]", "kernel_shape=[3] pads=[1,1] dilations=[2]", "[1,3,5]");
	expect_infers("MaxPool", "[count,3,7,7]", "kernel_shape=[3,3] auto_pad=SAME_UPPER",
		      "[count,3,7,7]");
	/* A window that would start in the padding after the input is dropped. */
	expect_infers("MaxPool", "[1,1,2]", "kernel_shape=[1] strides=[2] pads=[0,1] ceil_mode=1",
		      "[1,1,1]");
	expect_infers("MaxPool", "[1,1,2]", "kernel_shape=[1] strides=[2] pads=[0,1]", "[1,1,2]");

	plan = expect_plan(one_op("MaxPool", "[count,3,8,8]", "kernel_shape=[2,3]"));
	assert_int_equal(plan->cost.flops_row, 3 * 7 * 6 * 2 * 3);
	assert_int_equal(plan->nodes[0].params.window.group, 1);
	plan_free(plan);
}

TEST(test_max_pool__refused)
{
	expect_refuses("MaxPool", "[1,3,8,8]", "", "attribute \"kernel_shape\" is missing");
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[2]", "has 1 value, expected 2");
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[2,2] storage_order=2",
		       "\"storage_order\" is 2, expected a number from 0 to 1");
	expect_refuses("MaxPool", "[8,8]", "kernel_shape=[2,2]", "input \"a\" is [8,8]");
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[2,2] group=1",
		       "unknown attribute \"group\", expected one of auto_pad, ceil_mode");
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[0,2]", "value 0");
}

/* Indices count from the first row of the whole task, so the task cannot be split by rows. */
TEST(test_max_pool__indices)
{
	struct plan *plan;

	for (int n_out = 1; n_out <= 2; n_out++) {
		struct describe *d = describe_new("", 9);

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 1, 4));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		if (n_out > 1)
			describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
		describe_node(d, "MaxPool", "pool", "x", n_out > 1 ? "y,indices" : "y");
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2));
		plan = expect_plan(d);
		assert_int_equal(plan->splits_rows, n_out == 1);
		assert_int_equal(expect_tensor(plan, "y")->shape.dims[2], 3);
		if (n_out > 1)
			assert_int_equal(expect_tensor(plan, "indices")->shape.dims[2], 3);
		plan_free(plan);
	}
}

TEST(test_average_pool__shapes)
{
	struct plan *plan;

	expect_infers("AveragePool", "[count,3,8,8]", "kernel_shape=[2,2]", "[count,3,7,7]");
	expect_infers("AveragePool", "[1,3,8,8,8]", "kernel_shape=[2,3,4] strides=[1,2,3]",
		      "[1,3,7,3,2]");
	expect_infers("AveragePool", "[1,1,7]", "kernel_shape=[3] dilations=[2] pads=[1,1]",
		      "[1,1,5]");
	expect_infers("AveragePool", "[1,1,4,4]", "kernel_shape=[3,3] strides=[2,2] ceil_mode=1",
		      "[1,1,2,2]");
	plan = expect_plan(one_op("AveragePool", "[1,1,4]",
				  "kernel_shape=[2] pads=[1,1] count_include_pad=1"));
	assert_true(plan->nodes[0].params.window.includes_pad);
	plan_free(plan);
	expect_refuses("AveragePool", "[1,1,4]", "kernel_shape=[2] count_include_pad=2",
		       "\"count_include_pad\" is 2");
	expect_refuses("AveragePool", "[1,1,4]", "kernel_shape=[2] storage_order=1",
		       "unknown attribute \"storage_order\"");
}

TEST(test_lp_pool__shapes)
{
	struct plan *plan;

	expect_infers("LpPool", "[count,3,8,8]", "kernel_shape=[2,2] p=3", "[count,3,7,7]");
	plan = expect_plan(one_op("LpPool", "[1,1,4]", "kernel_shape=[2]"));
	assert_int_equal(plan->nodes[0].params.window.p, 2);
	plan_free(plan);
	expect_refuses("LpPool", "[1,1,4]", "kernel_shape=[2] p=0", "\"p\" is 0");
	expect_refuses("LpPool", "[1,1,4]", "kernel_shape=[2] p=4294967298", "4294967298");
}

TEST(test_conv_transpose__shapes)
{
	struct plan *plan;

	expect_infers("ConvTranspose", "[count,1,3,3] [1,2,3,3]", "", "[count,2,5,5]");
	expect_infers("ConvTranspose", "[1,1,3] [1,2,3] [2]", "", "[1,2,5]");
	expect_infers("ConvTranspose", "[1,1,3,4,5] [1,2,3,3,3]", "", "[1,2,5,6,7]");
	expect_infers("ConvTranspose", "[1,1,3,3] [1,2,3,3]", "strides=[3,2] output_padding=[1,1]",
		      "[1,2,10,8]");
	expect_infers("ConvTranspose", "[1,1,3,3] [1,2,3,3]", "strides=[3,2] output_shape=[10,8]",
		      "[1,2,10,8]");
	expect_infers("ConvTranspose", "[1,1,3,3] [1,2,3,3]", "strides=[3,2] pads=[1,2,1,2]",
		      "[1,2,7,3]");
	expect_infers("ConvTranspose", "[1,1,3,3] [1,1,2,2]", "dilations=[2,2]", "[1,1,5,5]");
	expect_infers("ConvTranspose", "[1,4,3,3] [4,2,3,3]", "group=2 auto_pad=SAME_LOWER",
		      "[1,4,3,3]");
	plan = expect_plan(one_op("ConvTranspose", "[1,1,3] [1,1,4]",
				  "strides=[2] auto_pad=SAME_UPPER output_padding=[1]"));
	assert_int_equal(plan->nodes[0].params.window.pad_begin[2], 1);
	plan_free(plan);
	plan = expect_plan(one_op("ConvTranspose", "[1,1,3] [1,1,4]",
				  "strides=[2] auto_pad=SAME_LOWER output_padding=[1]"));
	assert_int_equal(plan->nodes[0].params.window.pad_begin[2], 2);
	plan_free(plan);
}

TEST(test_conv_transpose__refused)
{
	expect_refuses("ConvTranspose", "[1,3,8] [4,2,3]", "", "and dimension 0 to be 3");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3,3]", "", "expected 3 dimensions");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3]", "group=2", "a divisor of the 3");
	expect_refuses("ConvTranspose", "[1,4,8] [4,2,3] [2]", "group=2", "expected [4]");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3]", "pads=[5,5]", "leaves nothing");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3]", "strides=[2147483647]", "too large");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3]", "dilations=[2147483647]", "too large");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3]", "output_padding=[2147483647]",
		       "too large");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3]", "output_padding=[-1]", "-1");
	expect_refuses("ConvTranspose", "[1,3,8] [3,2,3]", "output_shape=[0]", "0");
	expect_refuses("ConvTranspose", "[1,3,8] [count,2,3]", "", "expected fixed");
}
