/* SPDX-License-Identifier: MIT */
/* Shape rules: Cholesky, TriangularSolve */
#include "shm/operators/op-call.h"
#include "support/one-op.h"
#include "support/test.h"

static void expect_rows(const char *op, const char *inputs, const char *attrs, bool splits_rows)
{
	struct plan *plan = expect_plan(one_op(op, inputs, attrs));

	assert_int_equal(plan->splits_rows, splits_rows);
	plan_free(plan);
}

TEST(test_cholesky__rule)
{
	expect_infers("Cholesky", "[3,3]", "", "[3,3]");
	expect_infers("Cholesky", "f64[1,1]", "", "[1,1]");
	expect_infers("Cholesky", "f16[count,2,3,3]", "", "[count,2,3,3]");
	expect_rows("Cholesky", "[count,3,3]", "", true);
	expect_refuses("Cholesky", "[3]", "", "input \"a\" is [3], expected square matrices");
	expect_refuses("Cholesky", "[3,4]", "", "input \"a\" is [3,4], expected square matrices");
	expect_refuses("Cholesky", "[count,100]", "", "that are equal and fixed");
	expect_refuses("Cholesky", "i32[3,3]", "", "is int32");
	expect_refuses("Cholesky", "[3,3]", "upper=1", "upper");
}

TEST(test_triangular_solve__rule)
{
	expect_infers("TriangularSolve", "[3,3] [3,5]", "", "[3,5]");
	expect_infers("TriangularSolve", "[3,3] [5,3]", "left=0 transA=1", "[5,3]");
	expect_infers("TriangularSolve", "[3,3] [count,3]", "left=0", "[count,3]");
	expect_infers("TriangularSolve", "[3,3] [count,2,3,7]", "upper=1 unit_diagonal=1",
		      "[count,2,3,7]");
	expect_infers("TriangularSolve", "[count,3,3] [count,7,3]", "left=0", "[count,7,3]");
	expect_rows("TriangularSolve", "[3,3] [count,3]", "left=0", true);
	expect_rows("TriangularSolve", "[count,3,3] [count,3,9]", "", true);
}

TEST(test_triangular_solve__refused)
{
	expect_refuses("TriangularSolve", "[3,4] [3,5]", "",
		       "input \"a\" is [3,4], expected square matrices");
	expect_refuses("TriangularSolve", "[3,3] [3]", "",
		       "input \"b\" is [3], expected two dimensions or more");
	expect_refuses("TriangularSolve", "[3,3] [5,3]", "",
		       "input \"b\" is [5,3] with 5 rows, expected 3 as in \"a\" [3,3]");
	expect_refuses("TriangularSolve", "[3,3] [3,5]", "left=0",
		       "input \"b\" is [3,5] with 5 columns, expected 3 as in \"a\" [3,3]");
	expect_refuses("TriangularSolve", "[100,100] [count,5]", "",
		       "input \"b\" is [count,5] with count rows, expected 100");
	expect_refuses("TriangularSolve", "[2,3,3] [4,3,5]", "", "different leading dimensions");
	expect_refuses("TriangularSolve", "[2,3,3] [3,5]", "", "different leading dimensions");
	expect_refuses("TriangularSolve", "[100,3,3] [count,3,5]", "",
		       "different leading dimensions");
	expect_refuses("TriangularSolve", "[3,3] [3,5]", "left=2", "\"left\" is 2");
	expect_refuses("TriangularSolve", "[3,3] f64[3,5]", "", "float64");
	expect_refuses("TriangularSolve", "[3,3]", "", "input");
}
