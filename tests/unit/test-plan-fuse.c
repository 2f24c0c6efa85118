/* SPDX-License-Identifier: MIT */
/* Tests of plan/fuse.c: fused nodes, and nodes that work in place */
#include "plan/plan.h"
#include "support/one-op.h"
#include "support/test.h"

/* Describe y = @activation of x [count,4] times w [4,8], through scratch t. */
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

	assert_int_equal(plan->nodes[activation].computed_by, is_fused ? node : PLAN_NO_NODE);
	return is_fused;
}

static bool has_sum(const struct plan *plan, unsigned int node, unsigned int sum)
{
	const bool has_sum = plan->nodes[node].sum == sum;

	assert_int_equal(plan->nodes[sum].computed_by, has_sum ? node : PLAN_NO_NODE);
	assert_int_equal(plan->nodes[node].n_in, has_sum ? 3 : 2);
	return has_sum;
}

static bool shares(struct plan *plan, const char *a, const char *b)
{
	return expect_tensor(plan, a)->root == expect_tensor(plan, b)->root;
}

TEST(test_fuse__activation)
{
	static const char *const together[] = {"Relu",  "LeakyRelu", "Clip",    "Tanh",
					       "Elu",   "Gelu",      "Sigmoid", "HardSigmoid",
					       "Swish", "HardSwish", "Mish",    "Shrink"};
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

		/* The same number of operations, but t is neither written nor read. */
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
	/* The output t is not shared: the task's own memory may be far from the device. */
	assert_false(shares(plan, "t", "y"));
	plan_free(plan);
}

TEST(test_fuse__read_by_others)
{
	struct describe *d = product("Relu");
	struct plan *plan;

	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_node(d, "Neg", "", "t", "z");
	plan = expect_plan(d);
	assert_false(is_fused(plan, 0, 1));
	assert_false(shares(plan, "t", "y"));
	plan_free(plan);

	/* Likewise if t is an output itself. */
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

	/* Likewise if a view of t is read. */
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

/* Only the first of two activations is fused; the second works in place. */
TEST(test_fuse__chain)
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
	/* The row is broadcast: only the other operand is as large as the result. */
	describe_node(d, "Add", "", "positive,v", "s");
	describe_node(d, "Neg", "", "s", "y");
	plan = expect_plan(d);
	assert_true(is_fused(plan, 0, 1));
	assert_int_equal(plan->nodes[2].computed_by, PLAN_NO_NODE);
	assert_true(shares(plan, "t", "u"));
	assert_true(shares(plan, "u", "v"));
	assert_true(shares(plan, "v", "s"));
	assert_false(shares(plan, "positive", "s"));
	assert_false(shares(plan, "s", "y"));
	plan_free(plan);
}

/*
 * Describe y = x [count,3,4] times w [4,8], plus b of @dims, and @activation of the sum unless
 * NULL.
 */
static struct describe *sum(const char *in, unsigned int rank, const uint32_t *dims,
			    const char *activation)
{
	struct describe *d = describe_new("", 16);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 4));
	describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(4, 8));
	describe_constant(d, "b", RBK_REF(1, 0), rank, dims);
	describe_scratch(d, "t");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 8));
	describe_node(d, "MatMul", "", "x,w", "t");
	if (!activation) {
		describe_node(d, "Add", "", in, "y");
		return d;
	}
	describe_scratch(d, "u");
	describe_node(d, "Add", "", in, "u");
	describe_node(d, activation, "", "u", "y");
	return d;
}

TEST(test_fuse__sum)
{
	struct plan *plan, *apart;
	struct describe *d;

	for (unsigned int i = 0; i < 2; i++) {
		const char *in = i ? "b,t" : "t,b";

		plan = expect_plan(sum(in, DESCRIBE_DIMS(8), "Gelu"));
		assert_true(has_sum(plan, 0, 1));
		assert_int_equal(plan->nodes[0].in[2], expect_tensor(plan, "b") - plan->tensors);
		assert_true(is_fused(plan, 0, 2));
		assert_true(shares(plan, "t", "u"));
		assert_true(shares(plan, "u", "y"));
		assert_int_equal(plan->scratch_bytes, 0);
		d = sum(in, DESCRIBE_DIMS(8), "Gelu");
		describe_disable_fusion(d);
		apart = expect_plan(d);
		assert_false(has_sum(apart, 0, 1));
		assert_false(is_fused(apart, 0, 2));

		/* The same number of operations, but t and u are neither written nor read. */
		assert_int_equal(plan->cost.flops_row, apart->cost.flops_row);
		assert_int_equal(plan->cost.bytes_row, apart->cost.bytes_row - 4 * 96);
		assert_int_equal(plan->cost.bytes_fixed, apart->cost.bytes_fixed);
		assert_int_equal(plan->nodes[0].cost.flops_row, plan->cost.flops_row);
		assert_int_equal(plan->nodes[0].cost.bytes_row, plan->cost.bytes_row);
		assert_int_equal(plan->nodes[0].cost.bytes_fixed, plan->cost.bytes_fixed);
		plan_free(plan);
		plan_free(apart);
	}
}

/*
 * Describe a product plus an addend of the product's shape. The product is one matrix except in
 * case 3.
 */
static struct describe *sum_by_element(unsigned int which)
{
	struct describe *d = describe_new("", 16);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 4));
	if (which == 0)
		describe_input(d, "w", DESCRIBE_DIMS(4, 8));
	else if (which < 3)
		describe_input(d, "w", DESCRIBE_DIMS(1, 4, 8));
	else
		describe_input(d, "w", DESCRIBE_DIMS(DESCRIBE_COUNT, 4, 8));
	describe_input(d, "past", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 8));
	describe_scratch(d, "t");
	describe_scratch(d, "u");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 8));
	describe_node(d, "MatMul", "", "x,w", "t");
	describe_node(d, "Add", "", which % 2 ? "past,t" : "t,past", "u");
	describe_node(d, "Relu", "", "u", "y");
	return d;
}

TEST(test_fuse__sum_by_element)
{
	struct plan *plan, *apart;
	struct describe *d;

	for (unsigned int i = 0; i < 4; i++) {
		const bool is_one = i != 3;

		plan = expect_plan(sum_by_element(i));
		d = sum_by_element(i);
		describe_disable_fusion(d);
		apart = expect_plan(d);
		assert_int_equal(has_sum(plan, 0, 1), is_one);
		assert_int_equal(is_fused(plan, 0, 2), is_one);
		assert_int_equal(shares(plan, "t", "y"), is_one);
		if (is_one) {
			assert_int_equal(plan->cost.bytes_row, apart->cost.bytes_row - 4 * 96);
			assert_int_equal(plan->nodes[0].cost.bytes_row, plan->cost.bytes_row);
			assert_int_equal(plan->cost.flops_row, apart->cost.flops_row);
		}
		plan_free(plan);
		plan_free(apart);
	}

	/* The sum of two products is fused with the later product. */
	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(5, 4));
	describe_input(d, "w", DESCRIBE_DIMS(4, 8));
	describe_input(d, "v", DESCRIBE_DIMS(4, 8));
	describe_scratch(d, "t");
	describe_scratch(d, "u");
	describe_output(d, "y", DESCRIBE_DIMS(5, 8));
	describe_node(d, "MatMul", "", "x,w", "t");
	describe_node(d, "MatMul", "", "x,v", "u");
	describe_node(d, "Add", "", "t,u", "y");
	plan = expect_plan(d);
	assert_true(has_sum(plan, 1, 2));
	assert_int_equal(plan->nodes[0].sum, PLAN_NO_NODE);
	assert_true(shares(plan, "u", "y"));
	assert_false(shares(plan, "t", "y"));
	plan_free(plan);
}

/* A sum is fused only if the addend is the same for every row, or as large as the product. */
TEST(test_fuse__sum_shapes)
{
	static const struct {
		unsigned int rank;
		uint32_t dims[4];
		bool is_fused;
	} cases[] = {
		{0, {0}, true},     {1, {1}, true},       {1, {8}, true},
		{2, {1, 8}, true},  {3, {1, 1, 8}, true}, {3, {1, 1, 1}, true},
		{2, {3, 8}, false}, {2, {3, 1}, false},   {3, {1, 3, 8}, false},
	};
	struct plan *plan;
	struct describe *d;

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		plan = expect_plan(sum("t,b", cases[i].rank, cases[i].dims, NULL));
		assert_int_equal(has_sum(plan, 0, 1), cases[i].is_fused);
		assert_int_equal(shares(plan, "t", "y"), cases[i].is_fused);
		plan_free(plan);
	}

	/* The addend is larger than the product, or has more dimensions. */
	for (unsigned int i = 0; i < 3; i++) {
		d = describe_new("", 1);
		describe_input(d, "x", DESCRIBE_DIMS(5, 4));
		describe_input(d, "w", DESCRIBE_DIMS(4, 1));
		describe_input(d, "b",
			       i == 0   ? 1
			       : i == 1 ? 3
					: 0,
			       i == 0 ? (const uint32_t[]){8} : (const uint32_t[]){1, 1, 1});
		describe_scratch(d, "t");
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "MatMul", "", "x,w", "t");
		describe_node(d, "Add", "", "t,b", "y");
		plan = expect_plan(d);
		assert_int_equal(has_sum(plan, 0, 1), i == 2);
		plan_free(plan);
	}

	/* The right-hand side is a vector, so the addend has one element per row. */
	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(5, 4));
	describe_input(d, "w", DESCRIBE_DIMS(4));
	describe_input(d, "b", DESCRIBE_DIMS(5));
	describe_scratch(d, "t");
	describe_output(d, "y", DESCRIBE_DIMS(5));
	describe_node(d, "MatMul", "", "x,w", "t");
	describe_node(d, "Add", "", "t,b", "y");
	plan = expect_plan(d);
	assert_false(has_sum(plan, 0, 1));
	plan_free(plan);
}

/* The addend must be computed before the product, and must not change before the sum. */
TEST(test_fuse__sum_order)
{
	struct plan *plan;
	struct describe *d;

	for (unsigned int i = 0; i < 4; i++) {
		d = describe_new("", 1);
		describe_input(d, "x", DESCRIBE_DIMS(2, 3, 4));
		describe_input(d, "w", DESCRIBE_DIMS(4, 8));
		describe_input(d, "list", DESCRIBE_DIMS(8));
		describe_state(d, "s", DESCRIBE_DIMS(8));
		describe_scratch(d, "b");
		describe_scratch(d, "t");
		describe_output(d, "y", DESCRIBE_DIMS(2, 3, 8));
		if (i != 1)
			describe_node(d, "Neg", "", "list", "b");
		describe_node(d, "MatMul", "", "x,w", "t");
		if (i == 1)
			describe_node(d, "Neg", "", "list", "b");
		if (i == 2)
			describe_node(d, "Add", "", "s,b", "s");
		describe_node(d, "Add", "", i < 2 ? "t,b" : i == 2 ? "t,s" : "t,t", "y");
		plan = expect_plan(d);
		if (i == 0)
			assert_true(has_sum(plan, 1, 2));
		else
			assert_int_equal(plan->nodes[i == 1 ? 0 : 1].sum, PLAN_NO_NODE);
		plan_free(plan);
	}

	/* Only one sum is fused, and none after an activation. */
	d = sum("t,b", DESCRIBE_DIMS(8), "Relu");
	describe_output(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 3, 8));
	describe_scratch(d, "v");
	describe_scratch(d, "positive");
	describe_scratch(d, "sum");
	describe_node(d, "MatMul", "", "x,w", "v");
	describe_node(d, "Relu", "", "v", "positive");
	describe_node(d, "Add", "", "positive,b", "sum");
	describe_node(d, "Add", "", "sum,b", "z");
	plan = expect_plan(d);
	assert_true(has_sum(plan, 0, 1));
	assert_true(is_fused(plan, 3, 4));
	assert_false(has_sum(plan, 3, 5));
	assert_int_equal(plan->nodes[5].computed_by, PLAN_NO_NODE);
	assert_int_equal(plan->nodes[6].computed_by, PLAN_NO_NODE);
	plan_free(plan);
}

/* A node that changes the type changes the size of elements, so it does not work in place. */
TEST(test_fuse__types)
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

	/* No device fuses anything with float64 products. */
	d = sum("t,b", DESCRIBE_DIMS(8), "Relu");
	describe_floats(d, RBK_DTYPE_F64);
	plan = expect_plan(d);
	assert_false(has_sum(plan, 0, 1));
	assert_false(is_fused(plan, 0, 2));
	plan_free(plan);
}
