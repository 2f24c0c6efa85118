/* SPDX-License-Identifier: MIT */
/*
 * Tests of plan/fuse.c: what is computed together, and what works in place
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/plan.h"
#include "support/one-op.h"

/* y = @activation of x [count,4] times w [4,8], through scratch t. */
static struct describe *product(const char *activation)
{
	struct describe *d = describe_new("", 16);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(4, 8));
	describe_scratch(d, "t");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_node(d, "MatMul", "", "x,w", "t");
	describe_node(d, activation, "", "t", "y");
	return d;
}

static bool is_fused(const struct plan *plan, unsigned int node, unsigned int activation)
{
	const bool is_fused = plan->nodes[node].activation == activation;

	assert_int_equal(plan->nodes[activation].is_activation, is_fused);
	return is_fused;
}

static bool shares(struct plan *plan, const char *a, const char *b)
{
	return expect_tensor(plan, a)->root == expect_tensor(plan, b)->root;
}

static void test_fuse__activation(void **state)
{
	static const char *const together[] = {"Relu",  "LeakyRelu", "Clip",    "Tanh",
					       "Elu",   "Gelu",      "Sigmoid", "HardSigmoid",
					       "Swish", "HardSwish", "Mish"};
	struct plan *plan, *apart;
	struct describe *d;

	for (unsigned int i = 0; i < sizeof(together) / sizeof(together[0]); i++) {
		plan = expect_plan(product(together[i]));
		assert_true(is_fused(plan, 0, 1));
		assert_true(shares(plan, "t", "y"));
		assert_int_equal(plan->scratch_bytes, 0);
		d = product(together[i]);
		describe_disable_fusion(d);
		apart = expect_plan(d);
		assert_false(is_fused(apart, 0, 1));
		assert_false(shares(apart, "t", "y"));
		assert_int_equal(apart->scratch_bytes, 16 * 32);

		/* As many operations, without writing t and reading it again. */
		assert_int_equal(plan->cost.flops_row, apart->cost.flops_row);
		assert_int_equal(plan->cost.bytes_row, apart->cost.bytes_row - 2 * 32);
		assert_int_equal(plan->nodes[0].cost.flops_row, plan->cost.flops_row);
		assert_int_equal(plan->nodes[0].cost.bytes_row, plan->cost.bytes_row);
		assert_int_equal(plan->nodes[1].cost.flops_row, 0);
		plan_free(plan);
		plan_free(apart);
	}
	plan = expect_plan(product("Softplus"));
	assert_false(is_fused(plan, 0, 1));
	/* The task's own memory may be far from the device. */
	assert_false(shares(plan, "t", "y"));
	plan_free(plan);
}

static void test_fuse__read_by_others(void **state)
{
	struct describe *d = product("Relu");
	struct plan *plan;

	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_node(d, "Neg", "", "t", "z");
	plan = expect_plan(d);
	assert_false(is_fused(plan, 0, 1));
	assert_false(shares(plan, "t", "y"));
	plan_free(plan);

	/* Likewise as an output itself. */
	d = describe_new("", 16);
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(4, 8));
	describe_output(d, "t", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_node(d, "MatMul", "", "x,w", "t");
	describe_node(d, "Relu", "", "t", "y");
	plan = expect_plan(d);
	assert_false(is_fused(plan, 0, 1));
	plan_free(plan);

	/* And by a view. */
	d = product("Relu");
	describe_scratch(d, "v");
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 2, 4));
	describe_node(d, "Reshape", "", "t", "v");
	describe_attr_ints(d, "shape", 3, (const int64_t[]){-1, 2, 4});
	describe_node(d, "Neg", "", "v", "z");
	plan = expect_plan(d);
	assert_false(is_fused(plan, 0, 1));
	assert_true(shares(plan, "t", "v"));
	plan_free(plan);
}

/* Only the first one of two; the other one works in place. */
static void test_fuse__chain(void **state)
{
	struct describe *d = describe_new("", 16);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(4, 8));
	describe_constant(d, "row", RBK_REF(1, 0), DESCRIBE_DIMS(8));
	describe_scratch(d, "t");
	describe_scratch(d, "u");
	describe_scratch(d, "v");
	describe_scratch(d, "s");
	describe_scratch(d, "positive");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_node(d, "MatMul", "", "x,w", "t");
	describe_node(d, "Relu", "", "t", "u");
	describe_node(d, "Relu", "", "u", "v");
	describe_node(d, "Relu", "", "row", "positive");
	/* The row repeats: only the other operand is as large as the result. */
	describe_node(d, "Add", "", "positive,v", "s");
	describe_node(d, "Neg", "", "s", "y");
	plan = expect_plan(d);
	assert_true(is_fused(plan, 0, 1));
	assert_false(plan->nodes[2].is_activation);
	assert_true(shares(plan, "t", "u"));
	assert_true(shares(plan, "u", "v"));
	assert_true(shares(plan, "v", "s"));
	assert_false(shares(plan, "positive", "s"));
	assert_false(shares(plan, "s", "y"));
	plan_free(plan);
}

/* What changes the type has elements of another size. */
static void test_fuse__types(void **state)
{
	struct describe *d = describe_new("", 16);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_scratch(d, "t");
	describe_inferred(d, "is", RBK_TENSOR_SCRATCH, RBK_DTYPE_BOOL);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_BOOL);
	describe_node(d, "Neg", "", "x", "t");
	describe_node(d, "IsNaN", "", "t", "is");
	describe_node(d, "Not", "", "is", "y");
	plan = expect_plan(d);
	assert_false(shares(plan, "t", "is"));
	plan_free(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fuse__activation),
		cmocka_unit_test(test_fuse__read_by_others),
		cmocka_unit_test(test_fuse__chain),
		cmocka_unit_test(test_fuse__types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
