/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Gather, GatherElements, GatherND, ScatterElements, ScatterND, OneHot, Trilu
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/operators/op-call.h"
#include "support/one-op.h"
#include "support/test.h"

/* As one_op(), of @n inputs, input @index being int64; attributes are added by the caller. */
static struct describe *indexed(const char *op, unsigned int n, unsigned int index, ...)
{
	struct describe *d;
	bool has_count = false;
	char in[16] = "";
	va_list shapes;

	va_start(shapes, index);
	for (unsigned int i = 0; i < n; i++)
		has_count |= va_arg(shapes, const char *)[0] == 'c';
	va_end(shapes);
	d = describe_new("one", has_count ? 100 : 1);
	va_start(shapes, index);
	for (unsigned int i = 0; i < n; i++) {
		const char *at = va_arg(shapes, const char *);
		const char name[] = {(char)('a' + i), 0};
		uint32_t dims[RBK_MAX_RANK];
		unsigned int rank = 0;

		for (; *at; at += strcspn(at, ",") + (strchr(at, ',') != NULL))
			dims[rank++] =
				*at == 'c' ? DESCRIBE_COUNT : (uint32_t)strtoul(at, NULL, 10);
		describe_tensor(d, name, RBK_TENSOR_INPUT,
				i == index ? RBK_DTYPE_I64 : RBK_DTYPE_F32, 0, rank, dims);
		snprintf(in + strlen(in), sizeof(in) - strlen(in), "%s%s", i ? "," : "", name);
	}
	va_end(shapes);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, op, "it", in, "y");
	return d;
}

static void expect(struct describe *d, const char *shape, bool splits_rows)
{
	struct plan *plan = expect_plan(d);

	assert_string_equal(SHAPE_TEXT(&expect_tensor(plan, "y")->shape), shape);
	if (splits_rows != plan->splits_rows)
		fail_msg("%s is %ssplit by rows", shape, plan->splits_rows ? "" : "not ");
	plan_free(plan);
}

static struct describe *with_int(struct describe *d, const char *name, int64_t value)
{
	describe_attr_int(d, name, value);
	return d;
}

static struct describe *with_string(struct describe *d, const char *name, const char *value)
{
	describe_attr_string(d, name, value);
	return d;
}

TEST(test_gather__shapes)
{
	struct plan *plan;

	expect(indexed("Gather", 2, 1, "5,4", "3"), "[3,4]", false);
	expect(indexed("Gather", 2, 1, "5,4", ""), "[4]", false);
	expect(indexed("Gather", 2, 1, "5", ""), "[]", false);
	expect(with_int(indexed("Gather", 2, 1, "5,4", "2,3"), "axis", -1), "[5,2,3]", false);
	expect(with_int(indexed("Gather", 2, 1, "5,4,6", "2,3"), "axis", 1), "[5,2,3,6]", false);
	expect(indexed("Gather", 2, 1, "5,4", "c,3"), "[count,3,4]", true);
	expect(with_int(indexed("Gather", 2, 1, "c,4", "3"), "axis", 1), "[count,3]", true);

	/* Of the table only what is read counts. */
	plan = expect_plan(indexed("Gather", 2, 1, "1000,4", "3"));
	assert_int_equal(plan->cost.bytes_fixed, 2 * 3 * 4 * 4 + 3 * 8);
	plan_free(plan);
}

TEST(test_gather__refused)
{
	expect_refused(indexed("Gather", 2, 1, "c,4", "3"),
		       "would point into dimension count of input \"a\" [count,4]", NULL);
	expect_refused(with_int(indexed("Gather", 2, 1, "5,4", "c"), "axis", 1),
		       "would make count dimension 1 of the output", NULL);
	expect_refused(indexed("Gather", 2, 1, "c,4", "c"), "dimension count", NULL);
	expect_refused(indexed("Gather", 2, 1, "", "3"), "input \"a\" is a scalar", NULL);
	expect_refused(with_int(indexed("Gather", 2, 1, "5,4", "3"), "axis", 2),
		       "attribute \"axis\" is 2", NULL);
	expect_refused(with_int(indexed("Gather", 2, 1, "5,4", "3"), "axis", INT64_MIN),
		       "attribute \"axis\"", NULL);
	expect_refused(indexed("Gather", 2, 1, "2,2,2,2,2", "2,2,2,2,2"), "more than 8 dimensions",
		       NULL);
	expect_refused(indexed("Gather", 2, 2, "5,4", "3"), "is float32, expected one of int32",
		       NULL);
}

TEST(test_gather_elements__shapes)
{
	expect(indexed("GatherElements", 2, 1, "5,4", "9,3"), "[9,3]", false);
	expect(with_int(indexed("GatherElements", 2, 1, "5,4", "5,9"), "axis", -1), "[5,9]", false);
	expect(indexed("GatherElements", 2, 1, "5,4", "c,3"), "[count,3]", true);
	expect(with_int(indexed("GatherElements", 2, 1, "c,4", "c,9"), "axis", 1), "[count,9]",
	       true);
}

TEST(test_gather_elements__refused)
{
	expect_refused(indexed("GatherElements", 2, 1, "5,4", "9,5"),
		       "dimension 1 of input \"b\" [9,5] is 5, expected no more", NULL);
	expect_refused(indexed("GatherElements", 2, 1, "5,4", "9"), "not as many dimensions", NULL);
	expect_refused(indexed("GatherElements", 2, 1, "", ""), "is a scalar", NULL);
	expect_refused(indexed("GatherElements", 2, 1, "c,4", "c,4"), "dimension count", NULL);
	expect_refused(with_int(indexed("GatherElements", 2, 1, "c,4", "5,4"), "axis", 1),
		       "dimension 0 of input \"b\" [5,4] is 5", NULL);
	expect_refused(with_int(indexed("GatherElements", 2, 1, "5,4", "c,4"), "axis", 1),
		       "is count, expected no more", NULL);
}

TEST(test_gather_nd__shapes)
{
	expect(indexed("GatherND", 2, 1, "5,4", "3,2"), "[3]", false);
	expect(indexed("GatherND", 2, 1, "5,4", "3,1"), "[3,4]", false);
	expect(indexed("GatherND", 2, 1, "5,4", "2"), "[]", false);
	expect(with_int(indexed("GatherND", 2, 1, "5,4,6", "5,1"), "batch_dims", 1), "[5,6]",
	       false);
	expect(indexed("GatherND", 2, 1, "5,4", "c,3,2"), "[count,3]", true);
	expect(with_int(indexed("GatherND", 2, 1, "c,4,6", "c,7,2"), "batch_dims", 1), "[count,7]",
	       true);
}

TEST(test_gather_nd__refused)
{
	expect_refused(indexed("GatherND", 2, 1, "5,4", "3,3"),
		       "has indices of 3 numbers, expected from 1 to 2", NULL);
	expect_refused(indexed("GatherND", 2, 1, "5,4", ""), "is a scalar", NULL);
	expect_refused(indexed("GatherND", 2, 1, "", "1"), "is a scalar", NULL);
	expect_refused(indexed("GatherND", 2, 1, "5,4", "c"), "has indices of count numbers", NULL);
	expect_refused(with_int(indexed("GatherND", 2, 1, "5,4", "5,1"), "batch_dims", 2),
		       "attribute \"batch_dims\" is 2", NULL);
	expect_refused(with_int(indexed("GatherND", 2, 1, "5,4", "5,1"), "batch_dims", -1),
		       "attribute \"batch_dims\" is -1", NULL);
	expect_refused(with_int(indexed("GatherND", 2, 1, "5,4", "6,1"), "batch_dims", 1),
		       "differ in dimension 0", NULL);
	expect_refused(indexed("GatherND", 2, 1, "c,4", "3,1"), "dimension count", NULL);
	expect_refused(with_int(indexed("GatherND", 2, 1, "c,4", "5,1"), "batch_dims", 1),
		       "differ in dimension 0", NULL);
	expect_refused(indexed("GatherND", 2, 1, "2,2,2,2,2,2", "2,2,2,2,1"),
		       "more than 8 dimensions", NULL);
}

TEST(test_scatter__shapes)
{
	struct plan *plan;

	expect(indexed("ScatterElements", 3, 1, "5,4", "9,3", "9,3"), "[5,4]", false);
	expect(indexed("ScatterElements", 3, 1, "5,4", "c,3", "c,3"), "[5,4]", false);
	expect(with_int(indexed("ScatterElements", 3, 1, "c,4", "c,3", "c,3"), "axis", 1),
	       "[count,4]", true);
	expect(indexed("ScatterND", 3, 1, "5,4", "3,2", "3"), "[5,4]", false);
	expect(indexed("ScatterND", 3, 1, "5,4", "1", "4"), "[5,4]", false);
	expect(indexed("ScatterND", 3, 1, "5,4", "c,1", "c,4"), "[5,4]", false);

	plan = expect_plan(
		with_string(indexed("ScatterND", 3, 1, "5", "1", ""), "reduction", "min"));
	assert_int_equal(plan->nodes[0].params.gather.reduction, OP_SCATTER_MIN);
	plan_free(plan);
}

TEST(test_scatter__refused)
{
	expect_refused(indexed("ScatterElements", 3, 1, "5,4", "9,3", "9,4"),
		       "input \"c\" is [9,4], expected [9,3]", NULL);
	expect_refused(indexed("ScatterElements", 3, 1, "c,4", "c,4", "c,4"), "dimension count",
		       NULL);
	expect_refused(
		with_string(indexed("ScatterElements", 3, 1, "5", "2", "2"), "reduction", "sum"),
		"attribute \"reduction\" is \"sum\"", NULL);
	expect_refused(indexed("ScatterND", 3, 1, "5,4", "3,1", "3"),
		       "input \"c\" is [3], expected [3,4]", NULL);
	expect_refused(indexed("ScatterND", 3, 1, "c,4", "3,1", "3,4"), "dimension count", NULL);
	expect_refused(indexed("ScatterND", 3, 1, "", "3,1", "3"), "is a scalar", NULL);
	expect_refused(indexed("ScatterND", 3, 1, "5", "3,2", "3"), "indices of 2 numbers", NULL);
	expect_refused(indexed("ScatterND", 2, 1, "5", "3,1"), "2 inputs, expected at least 3",
		       NULL);
}

TEST(test_one_hot)
{
	expect(with_int(indexed("OneHot", 2, 0, "3", "2"), "depth", 7), "[3,7]", false);
	expect(with_int(indexed("OneHot", 2, 0, "", "2"), "depth", 7), "[7]", false);
	expect(with_int(indexed("OneHot", 2, 0, "c,3", "2"), "depth", 7), "[count,3,7]", true);
	expect(with_int(with_int(indexed("OneHot", 2, 0, "c,3", "2"), "depth", 7), "axis", 1),
	       "[count,7,3]", true);
	expect_refused(with_int(with_int(indexed("OneHot", 2, 0, "c", "2"), "depth", 7), "axis", 0),
		       "would make count dimension 1", NULL);
	expect_refused(indexed("OneHot", 2, 0, "3", "2"), "attribute \"depth\" is missing", NULL);
	expect_refused(with_int(indexed("OneHot", 2, 0, "3", "2"), "depth", 0), "\"depth\" is 0",
		       NULL);
	expect_refused(with_int(indexed("OneHot", 2, 0, "3", "2"), "depth", 1ll << 31),
		       "\"depth\" is 2147483648", NULL);
	expect_refused(with_int(indexed("OneHot", 2, 0, "3", "3"), "depth", 4),
		       "input \"b\" is [3], expected [2]", NULL);
	expect_refused(with_int(indexed("OneHot", 2, 0, "1,1,1,1,1,1,1,1", "2"), "depth", 4),
		       "has 8 dimensions", NULL);
}

TEST(test_trilu)
{
	struct plan *plan;

	expect_infers("Trilu", "[3,4]", "", "[3,4]");
	expect_infers("Trilu", "[count,3,4]", "k=-2 upper=0", "[count,3,4]");
	expect_refuses("Trilu", "[3]", "", "expected two dimensions or more", NULL);
	expect_refuses("Trilu", "[3,4]", "upper=2", "\"upper\" is 2", NULL);

	plan = expect_plan(one_op("Trilu", "[3,4]", "k=9223372036854775807"));
	assert_int_equal(plan->nodes[0].params.trilu.k, OP_MAX_DIM);
	plan_free(plan);
	/* Which row it is counts where the count is that of the rows. */
	plan = expect_plan(one_op("Trilu", "[count,4]", ""));
	assert_false(plan->splits_rows);
	plan_free(plan);
}
