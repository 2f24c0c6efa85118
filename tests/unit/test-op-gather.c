/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Gather, GatherElements, GatherND, ScatterElements, ScatterND, OneHot, Trilu,
 * GridSample
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/operators/op-call.h"
#include "support/one-op.h"
#include "support/test.h"

static void expect(const char *op, const char *inputs, const char *attrs, const char *shape,
		   bool splits_rows)
{
	struct plan *plan = expect_plan(one_op(op, inputs, attrs));

	assert_string_equal(SHAPE_TEXT(&expect_tensor(plan, "y")->shape), shape);
	if (splits_rows != plan->splits_rows)
		fail_msg("%s is %ssplit by rows", shape, plan->splits_rows ? "" : "not ");
	plan_free(plan);
}

TEST(test_gather__shapes)
{
	struct plan *plan;

	expect("Gather", "[5,4] i64[3]", "", "[3,4]", false);
	expect("Gather", "[5,4] i64[]", "", "[4]", false);
	expect("Gather", "[5] i64[]", "", "[]", false);
	expect("Gather", "[5,4] i64[2,3]", "axis=-1", "[5,2,3]", false);
	expect("Gather", "[5,4,6] i64[2,3]", "axis=1", "[5,2,3,6]", false);
	expect("Gather", "[5,4] i64[count,3]", "", "[count,3,4]", true);
	expect("Gather", "[count,4] i64[3]", "axis=1", "[count,3]", true);

	/* The cost counts only the rows of the table that are read. */
	plan = expect_plan(one_op("Gather", "[1000,4] i64[3]", ""));
	assert_int_equal(plan->cost.bytes_fixed, 2 * 3 * 4 * 4 + 3 * 8);
	plan_free(plan);
}

TEST(test_gather__refused)
{
	expect_refuses("Gather", "[count,4] i64[3]", "",
		       "would point into dimension count of input \"a\" [count,4]");
	expect_refuses("Gather", "[5,4] i64[count]", "axis=1",
		       "would make count dimension 1 of the output");
	expect_refuses("Gather", "[count,4] i64[count]", "", "dimension count");
	expect_refuses("Gather", "[] i64[3]", "", "input \"a\" is a scalar");
	expect_refuses("Gather", "[5,4] i64[3]", "axis=2", "attribute \"axis\" is 2");
	expect_refuses("Gather", "[5,4] i64[3]", "axis=-9223372036854775808", "attribute \"axis\"");
	expect_refuses("Gather", "[2,2,2,2,2] i64[2,2,2,2,2]", "", "more than 8 dimensions");
	expect_refuses("Gather", "[5,4] [3]", "", "is float32, expected one of int32");
}

TEST(test_gather_elements__shapes)
{
	expect("GatherElements", "[5,4] i64[9,3]", "", "[9,3]", false);
	expect("GatherElements", "[5,4] i64[5,9]", "axis=-1", "[5,9]", false);
	expect("GatherElements", "[5,4] i64[count,3]", "", "[count,3]", true);
	expect("GatherElements", "[count,4] i64[count,9]", "axis=1", "[count,9]", true);
}

TEST(test_gather_elements__refused)
{
	expect_refuses("GatherElements", "[5,4] i64[9,5]", "",
		       "dimension 1 of input \"b\" [9,5] is 5, expected no more");
	expect_refuses("GatherElements", "[5,4] i64[9]", "", "another number of dimensions");
	expect_refuses("GatherElements", "[] i64[]", "", "is a scalar");
	expect_refuses("GatherElements", "[count,4] i64[count,4]", "", "dimension count");
	expect_refuses("GatherElements", "[count,4] i64[5,4]", "axis=1",
		       "dimension 0 of input \"b\" [5,4] is 5");
	expect_refuses("GatherElements", "[5,4] i64[count,4]", "axis=1",
		       "is count, expected no more");
}

TEST(test_gather_nd__shapes)
{
	expect("GatherND", "[5,4] i64[3,2]", "", "[3]", false);
	expect("GatherND", "[5,4] i64[3,1]", "", "[3,4]", false);
	expect("GatherND", "[5,4] i64[2]", "", "[]", false);
	expect("GatherND", "[5,4,6] i64[5,1]", "batch_dims=1", "[5,6]", false);
	expect("GatherND", "[5,4] i64[count,3,2]", "", "[count,3]", true);
	expect("GatherND", "[count,4,6] i64[count,7,2]", "batch_dims=1", "[count,7]", true);
}

TEST(test_gather_nd__refused)
{
	expect_refuses("GatherND", "[5,4] i64[3,3]", "",
		       "has indices of 3 numbers, expected from 1 to 2");
	expect_refuses("GatherND", "[5,4] i64[]", "", "is a scalar");
	expect_refuses("GatherND", "[] i64[1]", "", "is a scalar");
	expect_refuses("GatherND", "[5,4] i64[count]", "", "has indices of count numbers");
	expect_refuses("GatherND", "[5,4] i64[5,1]", "batch_dims=2",
		       "attribute \"batch_dims\" is 2");
	expect_refuses("GatherND", "[5,4] i64[5,1]", "batch_dims=-1",
		       "attribute \"batch_dims\" is -1");
	expect_refuses("GatherND", "[5,4] i64[6,1]", "batch_dims=1", "differ in dimension 0");
	expect_refuses("GatherND", "[count,4] i64[3,1]", "", "dimension count");
	expect_refuses("GatherND", "[count,4] i64[5,1]", "batch_dims=1", "differ in dimension 0");
	expect_refuses("GatherND", "[2,2,2,2,2,2] i64[2,2,2,2,1]", "", "more than 8 dimensions");
}

TEST(test_scatter__shapes)
{
	struct plan *plan;

	expect("ScatterElements", "[5,4] i64[9,3] [9,3]", "", "[5,4]", false);
	expect("ScatterElements", "[5,4] i64[count,3] [count,3]", "", "[5,4]", false);
	expect("ScatterElements", "[count,4] i64[count,3] [count,3]", "axis=1", "[count,4]", true);
	expect("ScatterND", "[5,4] i64[3,2] [3]", "", "[5,4]", false);
	expect("ScatterND", "[5,4] i64[1] [4]", "", "[5,4]", false);
	expect("ScatterND", "[5,4] i64[count,1] [count,4]", "", "[5,4]", false);

	plan = expect_plan(one_op("ScatterND", "[5] i64[1] []", "reduction=min"));
	assert_int_equal(plan->nodes[0].params.gather.reduction, OP_SCATTER_MIN);
	plan_free(plan);
}

TEST(test_scatter__refused)
{
	expect_refuses("ScatterElements", "[5,4] i64[9,3] [9,4]", "",
		       "input \"c\" is [9,4], expected [9,3]");
	expect_refuses("ScatterElements", "[count,4] i64[count,4] [count,4]", "",
		       "dimension count");
	expect_refuses("ScatterElements", "[5] i64[2] [2]", "reduction=sum",
		       "attribute \"reduction\" is \"sum\"");
	expect_refuses("ScatterND", "[5,4] i64[3,1] [3]", "", "input \"c\" is [3], expected [3,4]");
	expect_refuses("ScatterND", "[count,4] i64[3,1] [3,4]", "", "dimension count");
	expect_refuses("ScatterND", "[] i64[3,1] [3]", "", "is a scalar");
	expect_refuses("ScatterND", "[5] i64[3,2] [3]", "", "indices of 2 numbers");
	expect_refuses("ScatterND", "[5] i64[3,1]", "", "2 inputs, expected at least 3");
}

TEST(test_one_hot)
{
	expect("OneHot", "i64[3] [2]", "depth=7", "[3,7]", false);
	expect("OneHot", "i64[] [2]", "depth=7", "[7]", false);
	expect("OneHot", "i64[count,3] [2]", "depth=7", "[count,3,7]", true);
	expect("OneHot", "i64[count,3] [2]", "depth=7 axis=1", "[count,7,3]", true);
	expect_refuses("OneHot", "i64[count] [2]", "depth=7 axis=0",
		       "would make count dimension 1");
	expect_refuses("OneHot", "i64[3] [2]", "", "attribute \"depth\" is missing");
	expect_refuses("OneHot", "i64[3] [2]", "depth=0", "\"depth\" is 0");
	expect_refuses("OneHot", "i64[3] [2]", "depth=2147483648", "\"depth\" is 2147483648");
	expect_refuses("OneHot", "i64[3] [3]", "depth=4", "input \"b\" is [3], expected [2]");
	expect_refuses("OneHot", "i64[1,1,1,1,1,1,1,1] [2]", "depth=4", "has 8 dimensions");
}

TEST(test_trilu)
{
	struct plan *plan;

	expect_infers("Trilu", "[3,4]", "", "[3,4]");
	expect_infers("Trilu", "[count,3,4]", "k=-2 upper=0", "[count,3,4]");
	expect_refuses("Trilu", "[3]", "", "expected two dimensions or more");
	expect_refuses("Trilu", "[3,4]", "upper=2", "\"upper\" is 2");

	plan = expect_plan(one_op("Trilu", "[3,4]", "k=9223372036854775807"));
	assert_int_equal(plan->nodes[0].params.trilu.k, OP_MAX_DIM);
	plan_free(plan);
	/* The result depends on the row's index, so a count of rows cannot be split. */
	plan = expect_plan(one_op("Trilu", "[count,4]", ""));
	assert_false(plan->splits_rows);
	plan_free(plan);
}

TEST(test_grid_sample__shapes)
{
	static const char op[] = "GridSample";

	expect_infers(op, "[2,3,4,5] [2,6,7,2]", "", "[2,3,6,7]");
	expect_infers(op, "[count,3,4,5] [count,6,7,2]", "mode=bicubic", "[count,3,6,7]");
	expect_infers(op, "[2,3,4,5,6] [2,7,8,9,3]", "padding_mode=reflection", "[2,3,7,8,9]");
	expect_refuses(op, "[3,4,5] [2,6,7,2]", "", "\"a\" [3,4,5] has 3 dimensions",
		       "expected 4 or 5");
	expect_refuses(op, "[2,3,4,5,6] [2,7,8,9,3]", "mode=cubic", "\"mode\" is cubic",
		       "for 4 dimensions", "\"a\" is [2,3,4,5,6]");
	expect_refuses(op, "[2,3,4,5] [2,6,7,3]", "", "\"b\" is [2,6,7,3]", "the last of them 2");
	expect_refuses(op, "[2,3,4,5] [2,6,7,8,2]", "", "expected 4 dimensions");
	expect_refuses(op, "[2,3,4,5] [3,6,7,2]", "", "differ in dimension 0");
	expect_refuses(op, "[count,3,4,5] [3,6,7,2]", "", "differ in dimension 0");
	expect_refuses(op, "[2,3,4,5] [2,6,7,2]", "mode=lanczos", "\"mode\" is \"lanczos\"",
		       "linear, nearest, cubic");
	expect_refuses(op, "[2,3,4,5] [2,6,7,2]", "padding_mode=wrap",
		       "\"padding_mode\" is \"wrap\"");
	expect_refuses(op, "[2,3,4,5] [2,6,7,2]", "align_corners=2", "\"align_corners\" is 2");
}
