/* SPDX-License-Identifier: MIT */
/*
 * The operator table: every row is complete and can be found
 */
#include <stdlib.h>
#include <string.h>

#include "shm/operators/op.h"
#include "shm/plan-wire.h"
#include "support/test.h"

/*
 * Check that every letter names a class, that every class is used and has types, and that the CPU
 * computes the operator.
 */
static void assert_rows_classes(const struct op *op)
{
	const char *letters[] = {op->in_classes, op->out_classes};
	unsigned int n = 0;

	assert_in_range(strlen(op->in_classes), 1, op->max_in);
	assert_in_range(strlen(op->out_classes), 1, op->max_out);
	while (n < OP_MAX_CLASSES && op->classes[n].name)
		n++;
	assert_in_range(n, 1, OP_MAX_CLASSES);
	for (unsigned int i = 0; i < n; i++) {
		uint32_t types = op->classes[i].cpu | op->classes[i].vulkan;

		assert_true(strchr(op->in_classes, op->classes[i].name) ||
			    strchr(op->out_classes, op->classes[i].name));
		assert_int_not_equal(types, 0);
		assert_int_equal(types & ~OP_ANY_TYPE, 0);
	}
	for (unsigned int i = 0; i < 2; i++) {
		for (const char *letter = letters[i]; *letter; letter++) {
			unsigned int class = 0;

			while (class < n && op->classes[class].name != *letter)
				class ++;
			assert_in_range(class, 0, n - 1);
		}
	}
	assert_int_not_equal(op_types(op, OP_ON_CPU), 0);
}

TEST(test_op__rows)
{
	for (unsigned int i = 0; i < OP_KIND_COUNT; i++) {
		const struct op *op = op_by_kind((enum op_kind)i);

		assert_non_null(op);
		assert_int_equal(op->kind, i);
		assert_ptr_equal(op_by_name(op->name), op);
		assert_in_range(op->min_in, 1, op->max_in);
		assert_in_range(op->max_in, 1, OP_MAX_INPUTS);
		assert_in_range(op->min_out, 1, op->max_out);
		assert_in_range(op->max_out, 1, OP_MAX_OUTPUTS);
		assert_rows_classes(op);
		assert_non_null(op->infer);
		assert_non_null(op->cost);
		assert_non_null(op->attrs);
		for (const struct op_attr *attr = op->attrs; attr->name; attr++) {
			assert_in_range(attr->type, RBK_ATTR_INT, RBK_ATTR_STRING);
			assert_in_range(strlen(attr->name), 1, RBK_NAME_BYTES - 1);
		}
	}
}

TEST(test_op__unknown)
{
	assert_null(op_by_name(""));
	assert_null(op_by_name("matmul"));
	assert_null(op_by_name("MatMulIntegers"));
	assert_null(op_by_kind(OP_KIND_COUNT));
	assert_null(op_by_kind((enum op_kind) - 1));
}

TEST(test_op__in_place)
{
	for (unsigned int i = 0; i < OP_KIND_COUNT; i++)
		assert_int_equal(op_by_kind((enum op_kind)i)->in_place,
				 i >= OP_ADD && i <= OP_BITWISE_NOT);
}
