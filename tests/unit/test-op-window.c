/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Conv and MaxPool
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "support/one-op.h"

static void test_conv__shapes(void **state)
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
}

static void test_conv__auto_pad(void **state)
{
	struct plan *plan;

	expect_infers("Conv", "[1,1,8] [1,1,3]", "auto_pad=VALID strides=[2]", "[1,1,3]");
	expect_infers("Conv", "[1,1,8] [1,1,3]", "auto_pad=NOTSET pads=[1,1]", "[1,1,8]");
	expect_infers("Conv", "[1,1,8] [1,1,3]", "auto_pad=SAME_UPPER strides=[3]", "[1,1,3]");
	expect_infers("Conv", "[1,1,8] [1,1,1]", "auto_pad=SAME_LOWER strides=[3]", "[1,1,3]");

	plan = expect_plan(one_op("Conv", "[1,1,5,8] [1,1,2,4]", "auto_pad=SAME_UPPER"));
	assert_int_equal(plan->nodes[0].params.window.pad_begin[0], 0);
	assert_int_equal(plan->nodes[0].params.window.pad_end[0], 1);
	assert_int_equal(plan->nodes[0].params.window.pad_begin[1], 1);
	assert_int_equal(plan->nodes[0].params.window.pad_end[1], 2);
	plan_free(plan);
	plan = expect_plan(one_op("Conv", "[1,1,5,8] [1,1,2,4]", "auto_pad=SAME_LOWER"));
	assert_int_equal(plan->nodes[0].params.window.pad_begin[0], 1);
	assert_int_equal(plan->nodes[0].params.window.pad_end[0], 0);
	assert_int_equal(plan->nodes[0].params.window.pad_begin[1], 2);
	assert_int_equal(plan->nodes[0].params.window.pad_end[1], 1);
	plan_free(plan);
}

static void test_conv__parameters_1d(void **state)
{
	struct plan *plan = expect_plan(
		one_op("Conv", "[1,2,9] [4,1,3]", "group=2 strides=[2] dilations=[3] pads=[4,5]"));
	const union op_params *params = &plan->nodes[0].params;

	assert_int_equal(params->window.kernel[0], 1);
	assert_int_equal(params->window.stride[0], 1);
	assert_int_equal(params->window.dilation[0], 1);
	assert_int_equal(params->window.pad_begin[0], 0);
	assert_int_equal(params->window.pad_end[0], 0);
	assert_int_equal(params->window.kernel[1], 3);
	assert_int_equal(params->window.stride[1], 2);
	assert_int_equal(params->window.dilation[1], 3);
	assert_int_equal(params->window.pad_begin[1], 4);
	assert_int_equal(params->window.pad_end[1], 5);
	assert_int_equal(params->window.group, 2);
	plan_free(plan);
}

static void test_conv__cost(void **state)
{
	struct plan *plan = expect_plan(one_op("Conv", "[count,4,8,8] [6,2,3,3] [6]", "group=2"));

	assert_int_equal(plan->cost.flops_row, 6 * 6 * 6 * (2 * 2 * 3 * 3 + 1));
	assert_int_equal(plan->cost.bytes_row, 4 * (4 * 8 * 8 + 6 * 6 * 6));
	assert_int_equal(plan->cost.bytes_fixed, 4 * (6 * 2 * 3 * 3 + 6));
	assert_true(plan->splits_rows);
	plan_free(plan);
}

static void test_conv__refused(void **state)
{
	expect_refuses("Conv", "[3,8] [4,3]", "", "input \"a\" is [3,8], expected batch", NULL);
	expect_refuses("Conv", "[1,1,2,2,2] [1,1,1,1,1]", "", "one or two spatial", NULL);
	expect_refuses("Conv", "[1,3,8] [4,3,3,3]", "",
		       "input \"b\" is [4,3,3,3], expected 3 dimensions as \"a\"", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,2,3,3]", "",
		       "input \"b\" is [4,2,3,3], expected dimension 1 to be 3, the channels of "
		       "\"a\" [1,3,8,8] divided by group 1",
		       NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "group=2",
		       "\"group\" is 2, expected a divisor of the 3 channels", NULL);
	expect_refuses("Conv", "[1,4,8,8] [3,2,3,3]", "group=2",
		       "dimension 0 to be a multiple of group 2", NULL);
	expect_refuses("Conv", "[1,4,8,8] [4,4,3,3]", "group=0", "\"group\" is 0", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3] [3]", "",
		       "input \"c\" is [3], expected [4], one per channel", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3] [4,1]", "", "input \"c\" is [4,1]", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "kernel_shape=[3,2]",
		       "\"kernel_shape\" has the value 2, but input \"b\" is [4,3,3,3], expected 3",
		       NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "kernel_shape=[3]",
		       "\"kernel_shape\" has 1 values, expected 2", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "strides=[0,1]",
		       "\"strides\" has the value 0", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "dilations=[1,-1]", "value -1", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "pads=[0,0,0]",
		       "\"pads\" has 3 values, expected 4", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "pads=[0,0,0,-1]", "value -1", NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "auto_pad=SAME",
		       "\"auto_pad\" is \"SAME\", expected one of NOTSET, SAME_UPPER, SAME_LOWER, "
		       "VALID",
		       NULL);
	expect_refuses("Conv", "[1,3,8,8] [4,3,3,3]", "auto_pad=VALID pads=[0,1,0,0]",
		       "\"pads\" is given together with \"auto_pad\" VALID", NULL);
	expect_refuses("Conv", "[1,3,8,2] [4,3,3,3]", "",
		       "a window of 3 does not fit into dimension 3 of input \"a\" [1,3,8,2] with "
		       "padding 0 and 0",
		       NULL);
	expect_refuses("Conv", "[1,3,2,8] [4,3,3,3]", "dilations=[2,1]", "a window of 5",
		       "dimension 2", NULL);
	expect_refuses("Conv", "[1,3,8] [count,3,3]", "",
		       "input \"b\" is [count,3,3], expected fixed dimensions", NULL);
	expect_refuses("Conv", "[1,3,8] [4,3,3] [count]", "", "input \"c\" is [count]", NULL);
	expect_refuses("Conv", "[1,3,8]", "", "1 inputs, expected at least 2", NULL);
}

static void test_window__overflow_refused(void **state)
{
	expect_refuses("Conv", "[1,1,8] [1,1,3]", "dilations=[2147483647]", "too large", NULL);
	expect_refuses("Conv", "[1,1,8] [1,1,1]", "pads=[2147483647,0]", "too large", NULL);
	expect_refuses("Conv", "[1,1,8] [1,1,1]", "pads=[1073741824,1073741824]", "too large",
		       NULL);
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[2147483647]", "does not fit", NULL);
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[2147483648]",
		       "expected numbers from 1 to 2147483647", NULL);
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[4294967298]", "4294967298", NULL);
	expect_refuses("MaxPool", "[1,1,2000000000]",
		       "kernel_shape=[2000000000] auto_pad=SAME_UPPER", "too large", NULL);
	expect_infers("MaxPool", "[1,1,8]", "kernel_shape=[1] strides=[2147483647]", "[1,1,1]");
}

static void test_max_pool__shapes(void **state)
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
	/* The window that would start in the padding behind the input is dropped. */
	expect_infers("MaxPool", "[1,1,2]", "kernel_shape=[1] strides=[2] pads=[0,1] ceil_mode=1",
		      "[1,1,1]");
	expect_infers("MaxPool", "[1,1,2]", "kernel_shape=[1] strides=[2] pads=[0,1]", "[1,1,2]");

	plan = expect_plan(one_op("MaxPool", "[count,3,8,8]", "kernel_shape=[2,3]"));
	assert_int_equal(plan->cost.flops_row, 3 * 7 * 6 * 2 * 3);
	assert_int_equal(plan->nodes[0].params.window.group, 1);
	plan_free(plan);
}

static void test_max_pool__refused(void **state)
{
	struct describe *d;

	expect_refuses("MaxPool", "[1,3,8,8]", "", "attribute \"kernel_shape\" is missing", NULL);
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[2]", "has 1 values, expected 2",
		       NULL);
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[2,2] storage_order=1",
		       "\"storage_order\" is 1, expected a number from 0 to 0", NULL);
	expect_refuses("MaxPool", "[8,8]", "kernel_shape=[2,2]", "input \"a\" is [8,8]", NULL);
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[2,2] group=1",
		       "unknown attribute \"group\", expected one of auto_pad, ceil_mode", NULL);
	expect_refuses("MaxPool", "[1,3,8,8]", "kernel_shape=[0,2]", "value 0", NULL);

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(1, 1, 4));
	describe_output(d, "y", DESCRIBE_DIMS(1, 1, 3));
	describe_tensor(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64, 0, DESCRIBE_DIMS(1, 1, 3));
	describe_node(d, "MaxPool", "pool", "x", "y,indices");
	describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2));
	expect_refused(d, "node 0 \"pool\" (MaxPool)", "2 outputs, expected at most 1", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conv__shapes),
		cmocka_unit_test(test_conv__auto_pad),
		cmocka_unit_test(test_conv__parameters_1d),
		cmocka_unit_test(test_conv__cost),
		cmocka_unit_test(test_conv__refused),
		cmocka_unit_test(test_window__overflow_refused),
		cmocka_unit_test(test_max_pool__shapes),
		cmocka_unit_test(test_max_pool__refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
