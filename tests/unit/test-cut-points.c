/* SPDX-License-Identifier: MIT */
/* Tests of plan/cut-points.c: where plans are cut, and which stay whole */
#include <stdio.h>

#include "plan/cut-points.h"
#include "shm/operators/op.h"
#include "support/one-op.h"
#include "support/test.h"

enum { SIDE = 256, MATRIX_BYTES = SIDE * SIDE * 4, ROWS = 64 };

static const struct cut_wish gpu = {.devices = OP_ON_VULKAN, .memory_bytes = UINT64_MAX};

/* Describe @n products in a row; product @lacking is followed by the sine of float64. */
static struct describe *chain(uint32_t n, uint32_t lacking)
{
	struct describe *d = describe_new("chain", ROWS);
	char from[RBK_NAME_BYTES] = "x", w[RBK_NAME_BYTES], to[RBK_NAME_BYTES], in[64];

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	for (uint32_t i = 0; i < n; i++) {
		snprintf(w, sizeof(w), "w%u", i);
		snprintf(to, sizeof(to), i + 1 < n ? "t%u" : "y", i);
		describe_constant(d, w, RBK_REF(1, 0), DESCRIBE_DIMS(SIDE, SIDE));
		if (i + 1 < n)
			describe_scratch(d, to);
		snprintf(in, sizeof(in), "%s,%s", from, w);
		describe_node(d, "MatMul", "", in, to);
		snprintf(from, sizeof(from), "%s", to);
		if (i != lacking || i + 1 == n)
			continue;
		describe_inferred(d, "wide", RBK_TENSOR_SCRATCH, RBK_DTYPE_F64);
		describe_inferred(d, "sine", RBK_TENSOR_SCRATCH, RBK_DTYPE_F64);
		describe_scratch(d, "narrow");
		describe_node(d, "Cast", "", to, "wide");
		describe_attr_int(d, "to", 11);
		describe_node(d, "Sin", "", "wide", "sine");
		describe_node(d, "Cast", "", "sine", "narrow");
		describe_attr_int(d, "to", 1);
		snprintf(from, sizeof(from), "narrow");
	}
	return d;
}

/* Assert where the plan of @describe is cut, and why: before the nodes of @wanted, 0 at the end. */
static void check(struct describe *describe, const struct cut_wish *wish, enum rbk_cut why,
		  const uint16_t *wanted)
{
	struct plan *plan = expect_plan(describe);
	struct cut_choice choice;

	cut_points(plan, wish, &choice);
	for (uint32_t i = 0; i < choice.n; i++)
		assert_int_equal(choice.firsts[i], wanted[i]);
	assert_int_equal(wanted[choice.n], 0);
	assert_int_equal(choice.why, why);
	plan_free(plan);
}

#define CHECK(describe, wish, ...) \
	check(describe, wish, RBK_CUT_TO_FIT, (const uint16_t[]){__VA_ARGS__, 0})
#define CHECK_WHOLE(describe, wish, why) check(describe, wish, why, (const uint16_t[]){0})

static struct cut_wish with_memory(uint64_t bytes)
{
	return (struct cut_wish){.devices = OP_ON_VULKAN, .memory_bytes = bytes};
}

TEST(test_points__whole)
{
	const struct cut_wish none = {.devices = 0, .memory_bytes = 0};
	struct cut_wish wish;
	struct describe *d;

	CHECK_WHOLE(chain(8, UINT32_MAX), &gpu, RBK_CUT_FITS);
	CHECK_WHOLE(chain(8, 3), &none, RBK_CUT_NO_DEVICE);
	/* All constants fit, with scratch of two tensors. */
	wish = with_memory(8 * MATRIX_BYTES + 2 * ROWS * SIDE * 4);
	CHECK_WHOLE(chain(8, UINT32_MAX), &wish, RBK_CUT_FITS);
	/* A pinned plan runs where it is pinned. */
	wish = with_memory(2 * MATRIX_BYTES);
	d = chain(8, UINT32_MAX);
	describe_pin(d, 1);
	CHECK_WHOLE(d, &wish, RBK_CUT_PINNED);
	/* A device without room for any of the constants */
	wish = with_memory(MATRIX_BYTES - 1);
	CHECK_WHOLE(chain(8, UINT32_MAX), &wish, RBK_CUT_NO_DEVICE);
	/* One node */
	CHECK_WHOLE(one_op("Sin", "f64[4]", ""), &gpu, RBK_CUT_NO_DEVICE);
}

/* GPUs have casts to and from float64, if they hold it at all, but not its sine. */
TEST(test_points__operator_that_lacks)
{
	struct cut_wish single = gpu;

	/* Products 0 to 3 are nodes 0 to 3; Cast, Sin, Cast are 4 to 6. */
	CHECK(chain(8, 3), &gpu, 5, 6);
	CHECK(chain(8, 0), &gpu, 2, 3);
	single.types = OP_ANY_TYPE & ~OP_TYPE(RBK_DTYPE_F64);
	CHECK(chain(8, 3), &single, 4, 7);
}

/* Runs of nodes that are too small for a submission stay with what is before them. */
TEST(test_points__not_worth_it)
{
	struct describe *d = describe_new("small", 1);

	describe_input(d, "x", DESCRIBE_DIMS(64));
	describe_inferred(d, "wide", RBK_TENSOR_SCRATCH, RBK_DTYPE_F64);
	describe_inferred(d, "sine", RBK_TENSOR_SCRATCH, RBK_DTYPE_F64);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Cast", "", "x", "wide");
	describe_attr_int(d, "to", 11);
	describe_node(d, "Sin", "", "wide", "sine");
	describe_node(d, "Cast", "", "sine", "y");
	describe_attr_int(d, "to", 1);
	CHECK_WHOLE(d, &gpu, RBK_CUT_NO_DEVICE);
}

/* Constants of twice the memory are cut into pieces of an eighth of it, but at least a node. */
TEST(test_points__pieces)
{
	struct cut_wish wish = with_memory(4 * MATRIX_BYTES);
	struct plan *plan;
	struct cut_choice choice;

	CHECK(chain(8, UINT32_MAX), &wish, 1, 2, 3, 4, 5, 6, 7);
	wish = with_memory(16 * MATRIX_BYTES);
	CHECK(chain(20, UINT32_MAX), &wish, 2, 4, 6, 8, 10, 12, 14, 16, 18);

	/* However large a plan is, it has few segments. */
	wish = with_memory(2 * MATRIX_BYTES);
	plan = expect_plan(chain(1000, UINT32_MAX));
	cut_points(plan, &wish, &choice);
	assert_in_range(choice.n, 16, CUT_MAX_SEGMENTS - 1);
	plan_free(plan);
}

/* A matrix that fits nowhere stays on the CPU, between pieces that fit. */
TEST(test_points__constant_that_never_fits)
{
	struct describe *d = describe_new("large", ROWS);
	const struct cut_wish wish = with_memory(2 * MATRIX_BYTES);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	describe_constant(d, "a", RBK_REF(1, 0), DESCRIBE_DIMS(SIDE, SIDE));
	describe_constant(d, "b", RBK_REF(1, 0), DESCRIBE_DIMS(SIDE, 3 * SIDE));
	describe_scratch(d, "s");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 3 * SIDE));
	describe_node(d, "MatMul", "", "x,a", "s");
	describe_node(d, "MatMul", "", "s,b", "y");
	CHECK(d, &wish, 1);
}

/* A product and the activation that is computed along with it stay together. */
TEST(test_points__fused_nodes)
{
	struct describe *d = describe_new("fused", ROWS);
	const struct cut_wish wish = with_memory(3 * MATRIX_BYTES / 2);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	describe_constant(d, "a", RBK_REF(1, 0), DESCRIBE_DIMS(SIDE, SIDE));
	describe_constant(d, "b", RBK_REF(1, 0), DESCRIBE_DIMS(SIDE, SIDE));
	describe_scratch(d, "s");
	describe_scratch(d, "r");
	describe_scratch(d, "t");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, SIDE));
	describe_node(d, "MatMul", "", "x,a", "s");
	describe_node(d, "Relu", "", "s", "r");
	describe_node(d, "MatMul", "", "r,b", "t");
	describe_node(d, "Tanh", "", "t", "y");
	CHECK(d, &wish, 2);
}

/* The seed cuts any plan, otherwise for each number, and the same each time. */
TEST(test_points__at_random)
{
	struct plan *plan = expect_plan(chain(8, UINT32_MAX));
	struct cut_choice choice, again;
	uint32_t seen = 0;

	for (uint64_t seed = 1; seed <= 100; seed++) {
		const struct cut_wish wish = {.seed = seed};

		cut_points(plan, &wish, &choice);
		cut_points(plan, &wish, &again);
		assert_int_equal(choice.why, RBK_CUT_AT_RANDOM);
		assert_int_equal(again.n, choice.n);
		assert_memory_equal(choice.firsts, again.firsts,
				    choice.n * sizeof(choice.firsts[0]));
		assert_in_range(choice.n, 0, plan->n_nodes - 1);
		for (uint32_t i = 0; i < choice.n; i++)
			assert_in_range(choice.firsts[i], i > 0 ? choice.firsts[i - 1] + 1 : 1,
					plan->n_nodes - 1);
		seen |= 1u << choice.n;
	}
	/* From whole to a cut before each node */
	assert_int_equal(seen & (1u << 0 | 1u << 7), 1u << 0 | 1u << 7);
	plan_free(plan);
}
