/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: MatMul and Gemm
 */
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"

TEST(test_matmul__shapes)
{
	expect_infers("MatMul", "[2,3] [3,4]", "", "[2,4]");
	expect_infers("MatMul", "[3] [3,4]", "", "[4]");
	expect_infers("MatMul", "[2,3] [3]", "", "[2]");
	expect_infers("MatMul", "[3] [3]", "", "[]");
	expect_infers("MatMul", "[5,2,3] [5,3,4]", "", "[5,2,4]");
	expect_infers("MatMul", "[5,2,3] [3,4]", "", "[5,2,4]");
	expect_infers("MatMul", "[2,3] [5,3,4]", "", "[5,2,4]");
	expect_infers("MatMul", "[6,1,2,3] [5,3,4]", "", "[6,5,2,4]");
	expect_infers("MatMul", "[1,5,2,3] [6,1,3,4]", "", "[6,5,2,4]");
	expect_infers("MatMul", "[5,2,3] [3]", "", "[5,2]");
	expect_infers("MatMul", "[3] [5,3,4]", "", "[5,4]");
	expect_infers("MatMul", "[2,2,2,2,2,2,2,3] [3,1]", "", "[2,2,2,2,2,2,2,1]");
}

TEST(test_matmul__count)
{
	expect_infers("MatMul", "[count,3] [3,4]", "", "[count,4]");
	expect_infers("MatMul", "[count,3] [3]", "", "[count]");
	expect_infers("MatMul", "[count,2,3] [3,4]", "", "[count,2,4]");
	expect_infers("MatMul", "[count,2,3] [count,3,4]", "", "[count,2,4]");
	expect_infers("MatMul", "[count,2,3] [1,3,4]", "", "[count,2,4]");
	expect_infers("MatMul", "[2,3] [count,3,4]", "", "[count,2,4]");
	expect_infers("MatMul", "[3] [count,3,4]", "", "[count,4]");
	expect_infers("MatMul", "[count,1,2,3] [5,3,4]", "", "[count,5,2,4]");
}

TEST(test_matmul__count_refused)
{
	expect_refuses("MatMul", "[count] [3,4]", "", "input \"a\" [count] would be summed");
	expect_refuses("MatMul", "[2,3] [count,4]", "", "input \"b\" [count,4] would be summed",
		       "expected that dimension to be fixed");
	expect_refuses("MatMul", "[count] [count]", "", "\"a\" [count] would be summed");
	expect_refuses("MatMul", "[count,3] [5,3,4]", "", "input \"a\" [count,3]", "\"b\" [5,3,4]",
		       "count dimension 1 of the output");
	expect_refuses("MatMul", "[count,3] [1,3,4]", "", "count dimension 1 of the output");
	expect_refuses("MatMul", "[count,3] [count,3,4]", "", "count dimension 1");
	expect_refuses("MatMul", "[count,2,3] [5,3,4]", "",
		       "dimension 0 would be count and 5, expected equal numbers or a 1");
	expect_refuses("MatMul", "[count,2,3] [5,1,3,4]", "", "count dimension 1");
	/* A fixed dimension equal to max_count is not the count. */
	expect_refuses("MatMul", "[count,2,3] [100,3,4]", "", "count and 100");
}

TEST(test_matmul__refused)
{
	expect_refuses("MatMul", "[2,3] [4,5]", "", "\"a\" [2,3]", "\"b\" [4,5]",
		       "inner dimensions 3 and 4, expected equal ones");
	expect_refuses("MatMul", "[3] [4]", "", "inner dimensions 3 and 4");
	expect_refuses("MatMul", "[] [4]", "", "input \"a\" is a scalar");
	expect_refuses("MatMul", "[4] []", "", "input \"b\" is a scalar");
	expect_refuses("MatMul", "[2,2,3] [3,3,4]", "", "\"a\" [2,2,3]", "\"b\" [3,3,4]",
		       "dimension 0 would be 2 and 3");
	expect_refuses("MatMul", "[2,3]", "", "1 input, expected at least 2");
	expect_refuses("MatMul", "- [2,3]", "", "input 0 is absent");
	expect_refuses("MatMul", "[2,3] [3,4] [4]", "", "3 inputs, expected at most 2");
	expect_refuses("MatMul", "[2,3] [3,4]", "alpha=1.0",
		       "unknown attribute \"alpha\", expected none");
}

TEST(test_matmul__cost)
{
	struct plan *plan = expect_plan(one_op("MatMul", "[count,3] [3,4]", ""));

	assert_int_equal(plan->cost.flops_fixed, 0);
	assert_int_equal(plan->cost.flops_row, 2 * 3 * 4);
	assert_int_equal(plan->cost.bytes_fixed, 4 * 3 * 4);
	assert_int_equal(plan->cost.bytes_row, 4 * (3 + 4));
	assert_int_equal(plan_flops(plan, 10), 240);
	assert_true(plan->splits_rows);
	assert_true(plan->data_independent);
	plan_free(plan);

	plan = expect_plan(one_op("MatMul", "[5,2,3] [3,4]", ""));
	assert_int_equal(plan->cost.flops_fixed, 2 * 5 * 2 * 3 * 4);
	assert_int_equal(plan->cost.flops_row, 0);
	assert_false(plan->splits_rows);
	plan_free(plan);
}

TEST(test_gemm__shapes)
{
	expect_infers("Gemm", "[2,3] [3,4]", "", "[2,4]");
	expect_infers("Gemm", "[3,2] [3,4]", "transA=1", "[2,4]");
	expect_infers("Gemm", "[2,3] [4,3]", "transB=1", "[2,4]");
	expect_infers("Gemm", "[3,2] [4,3] [2,4]", "transA=1 transB=1", "[2,4]");
	expect_infers("Gemm", "[count,3] [4,3] [4]", "transB=1", "[count,4]");
	expect_infers("Gemm", "[2,3] [3,4] []", "", "[2,4]");
	expect_infers("Gemm", "[2,3] [3,4] [1]", "", "[2,4]");
	expect_infers("Gemm", "[2,3] [3,4] [4]", "", "[2,4]");
	expect_infers("Gemm", "[2,3] [3,4] [2,1]", "", "[2,4]");
	expect_infers("Gemm", "[2,3] [3,4] [1,4]", "", "[2,4]");
	expect_infers("Gemm", "[count,3] [3,4] [count,4]", "", "[count,4]");
	expect_infers("Gemm", "[count,3] [3,4] [count,1]", "", "[count,4]");
}

TEST(test_gemm__parameters)
{
	struct plan *plan =
		expect_plan(one_op("Gemm", "[2,3] [4,3] [4]", "alpha=0.5 beta=2.0 transB=1"));
	const union op_params *params = &plan->nodes[0].params;

	assert_int_equal(plan->nodes[0].n_in, 3);
	assert_true(params->gemm.alpha == 0.5f && params->gemm.beta == 2.0f);
	assert_false(params->gemm.trans_a);
	assert_true(params->gemm.trans_b);
	assert_int_equal(plan->cost.flops_fixed, 2 * 2 * 3 * 4 + 2 * 2 * 4);
	plan_free(plan);

	/* An absent optional input at the end is dropped. */
	plan = expect_plan(one_op("Gemm", "[2,3] [3,4] -", ""));
	params = &plan->nodes[0].params;
	assert_int_equal(plan->nodes[0].n_in, 2);
	assert_int_equal(plan->nodes[0].in[2], PLAN_NO_TENSOR);
	assert_true(params->gemm.alpha == 1 && params->gemm.beta == 1);
	assert_false(params->gemm.trans_a || params->gemm.trans_b);
	assert_int_equal(plan->cost.flops_fixed, 2 * 2 * 3 * 4);
	plan_free(plan);
}

TEST(test_gemm__refused)
{
	expect_refuses("Gemm", "[3] [3,4]", "", "input \"a\" is [3], expected two dimensions");
	expect_refuses("Gemm", "[2,3] [1,3,4]", "", "input \"b\" is [1,3,4]");
	expect_refuses("Gemm", "[2,3] [4,3]", "", "inner dimensions 3 and 4");
	expect_refuses("Gemm", "[2,3] [3,4]", "transA=1", "inner dimensions 2 and 3");
	expect_refuses("Gemm", "[2,3] [3,4]", "transA=2",
		       "attribute \"transA\" is 2, expected a number from 0 to 1");
	expect_refuses("Gemm", "[2,3] [3,4]", "transB=-1", "attribute \"transB\" is -1");
	expect_refuses("Gemm", "[2,3] [3,4]", "alpha=1", "attribute \"alpha\" has type 1");
	expect_refuses(
		"Gemm", "[2,3] [3,4] [3]", "",
		"input \"c\" is [3], expected a shape that broadcasts to the product's [2,4]");
	expect_refuses("Gemm", "[2,3] [3,4] [1,2,4]", "", "input \"c\" is [1,2,4]");
	expect_refuses("Gemm", "[2,3] [3,4] [4,2]", "", "input \"c\" is [4,2]");
	expect_refuses("Gemm", "[count,3] [3,4] [100,4]", "", "input \"c\" is [100,4]");
	expect_refuses("Gemm", "[2,3] [3,4] [count,4]", "", "input \"c\" is [count,4]");
	expect_refuses("Gemm", "[2,3] [3,4] [count]", "", "input \"c\" is [count]");
}

TEST(test_gemm__count_refused)
{
	expect_refuses("Gemm", "[count,2] [3,4]", "transA=1", "\"a\" [count,2] would be summed");
	expect_refuses("Gemm", "[2,3] [count,4]", "", "\"b\" [count,4] would be summed");
	expect_refuses("Gemm", "[2,3] [count,3]", "transB=1", "\"b\" [count,3] would make count",
		       "stay the leading one");
}
