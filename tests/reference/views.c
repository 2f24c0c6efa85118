/* SPDX-License-Identifier: MIT */
/* A plan of views: see views.h. */
#include "reference/views.h"

#include "reference/reference.h"

struct describe *views_describe(uint32_t max_count, bool half)
{
	struct describe *d = describe_new("views", max_count);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 6));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 64), DESCRIBE_DIMS(12));
	describe_scratch(d, "three");
	describe_scratch(d, "weights");
	describe_scratch(d, "product");
	describe_scratch(d, "flat");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_inferred(d, "z", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Reshape", "", "x", "three");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(0, 2, 3));
	describe_node(d, "Reshape", "", "w", "weights");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(3, -1));
	describe_node(d, "MatMul", "", "three,weights", "product");
	describe_node(d, "Reshape", "", "product", "flat");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(-1, 8));
	describe_node(d, "Reshape", "", "three", "z");
	describe_attr_ints(d, "shape", DESCRIBE_INTS(0, 1, 6));
	describe_node(d, "Relu", "", "flat", "y");
	if (half)
		describe_halve(d);
	return d;
}
