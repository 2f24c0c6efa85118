/* SPDX-License-Identifier: MIT */
/*
 * Whole plans on the devices of test-operators
 *
 * Plans of several nodes, and single nodes with the operands and outputs on which a device's
 * lowering depends: random plans have them only by chance.
 */
#include <string.h>

#include "plan/executor.h"
#include "reference/random-rows.h"
#include "reference/views.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "unit/op-rig.h"

enum { MAX = OP_RIG_MAX_COUNT };

static struct plan *network_plan(void)
{
	struct describe *d = describe_new("network", MAX);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 1, 12, 12));
	describe_constant(d, "w1", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(8, 1, 5, 5));
	describe_constant(d, "b1", RBK_REF(REFERENCE_ARENA, 4096), DESCRIBE_DIMS(8));
	describe_constant(d, "w2", RBK_REF(REFERENCE_ARENA, 8192), DESCRIBE_DIMS(16, 8, 3, 3));
	describe_scratch(d, "c1");
	describe_scratch(d, "r1");
	describe_scratch(d, "p1");
	describe_scratch(d, "c2");
	describe_scratch(d, "t2");
	describe_scratch(d, "s2");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Conv", "", "x,w1,b1", "c1");
	describe_attr_ints(d, "pads", DESCRIBE_INTS(2, 2, 2, 2));
	describe_node(d, "Relu", "", "c1", "r1");
	describe_node(d, "MaxPool", "", "r1", "p1");
	describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2, 2));
	describe_attr_ints(d, "strides", DESCRIBE_INTS(2, 2));
	describe_node(d, "Conv", "", "p1,w2", "c2");
	describe_node(d, "Transpose", "", "c2", "t2");
	describe_attr_ints(d, "perm", DESCRIBE_INTS(0, 2, 3, 1));
	describe_node(d, "ReduceSum", "", "t2", "s2");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(1, 2));
	describe_attr_int(d, "keepdims", 0);
	describe_node(d, "Softmax", "", "s2", "y");
	return reference_plan(d, op_rig_arena(RBK_DTYPE_F32));
}

/* Describe products and windows of float16 or float64 in sequence. */
static struct describe *windows_describe(void)
{
	struct describe *d = describe_new("windows", MAX);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4, 9, 9));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(6, 4, 3, 3));
	describe_constant(d, "d", RBK_REF(REFERENCE_ARENA, 64), DESCRIBE_DIMS(6, 1, 3, 3));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 128), DESCRIBE_DIMS(6));
	describe_constant(d, "m", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(4, 7));
	describe_constant(d, "n", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(7));
	for (unsigned int i = 0; i < 5; i++)
		describe_scratch(d, (const char[]){"stuva"[i], '1', 0});
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Conv", "", "x,w,b", "s1");
	describe_node(d, "Conv", "", "s1,d,b", "t1");
	describe_attr_int(d, "group", 6);
	describe_node(d, "MaxPool", "", "t1", "u1");
	describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(2, 2));
	describe_node(d, "MatMul", "", "u1,m", "v1");
	describe_node(d, "Add", "", "v1,n", "a1");
	describe_node(d, "LeakyRelu", "", "a1", "y");
	return d;
}

/* Make a plan that reads a state and then updates it in place. */
static struct plan *state_plan(void)
{
	struct describe *d = describe_new("state", MAX);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 11));
	describe_state(d, "sum", DESCRIBE_DIMS(DESCRIBE_COUNT, 11));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 11));
	describe_node(d, "Mul", "", "x,sum", "y");
	describe_node(d, "Add", "", "x,sum", "sum");
	return reference_plan(d, NULL);
}

/* Make a plan of two float16 products with sums, the second of which needs less working memory. */
static struct plan *sums_plan(void)
{
	struct describe *d = describe_new("sums", MAX);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 40));
	describe_constant(d, "m", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(40, 30));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(30));
	describe_constant(d, "n", RBK_REF(REFERENCE_ARENA, 64), DESCRIBE_DIMS(30, 3));
	describe_constant(d, "c", RBK_REF(REFERENCE_ARENA, 64), DESCRIBE_DIMS(3));
	for (unsigned int i = 0; i < 3; i++)
		describe_scratch(d, (const char[]){"stu"[i], '1', 0});
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "x,m", "s1");
	describe_node(d, "Add", "", "s1,b", "t1");
	describe_node(d, "MatMul", "", "t1,n", "u1");
	describe_node(d, "Add", "", "c,u1", "y");
	describe_floats(d, RBK_DTYPE_F16);
	return reference_plan(d, op_rig_arena(RBK_DTYPE_F16));
}

/* Make a plan of a sum with a product: a batch of matrices times one matrix, or each times its own.
 */
static struct plan *batch_sum_plan(uint32_t n_matrices)
{
	struct describe *d = describe_new("batch-sum", MAX);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 2, 3, 8));
	describe_input(d, "m", DESCRIBE_DIMS(n_matrices, 8, 5));
	describe_input(d, "b", DESCRIBE_DIMS(DESCRIBE_COUNT, 2, 3, 5));
	describe_scratch(d, "s");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "x,m", "s");
	describe_node(d, "Add", "", "s,b", "y");
	return reference_plan(d, NULL);
}

/* Make a plan of Attention with the @in and @out of the node. @mask: type of the mask, if any. */
static struct plan *attention_plan(const char *in, const char *out, enum rbk_dtype mask)
{
	static const char *const inputs[] = {"k", "v", "pk", "pv"};
	static const char *const outputs[] = {"nk", "nv", "qk"};
	struct describe *d = describe_new("attention", MAX);

	describe_input(d, "q", DESCRIBE_DIMS(DESCRIBE_COUNT, 4, 5, 8));
	for (unsigned int i = 0; i < 4; i++)
		if (strstr(in, inputs[i]))
			describe_input(d, inputs[i],
				       DESCRIBE_DIMS(DESCRIBE_COUNT, 2, i < 2 ? 9 : 6, 8));
	if (strstr(in, "mask"))
		describe_tensor(d, "mask", RBK_TENSOR_INPUT, mask, 0, DESCRIBE_DIMS(5, 15));
	if (strstr(in, "valid"))
		describe_tensor(d, "valid", RBK_TENSOR_INPUT, RBK_DTYPE_I64, 0,
				DESCRIBE_DIMS(DESCRIBE_COUNT));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	for (unsigned int i = 0; i < 3; i++)
		if (strstr(out, outputs[i]))
			describe_inferred(d, outputs[i], RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Attention", "", in, out);
	return reference_plan(d, NULL);
}

TEST(test_operators__plans)
{
	static const enum rbk_dtype floats[] = {RBK_DTYPE_F32, RBK_DTYPE_F16, RBK_DTYPE_F64};
	static const enum rbk_dtype masks[] = {RBK_DTYPE_F32, RBK_DTYPE_F16, RBK_DTYPE_BOOL};
	const struct op_check check = {.rtol = 1e-4, .atol = 1e-5, .has_layouts = true};
	const struct op_check exact = {.rtol = 2e-6, .atol = 1e-6, .has_layouts = true};
	const struct op_check rows = {.rtol = 2e-5, .atol = 2e-5, .fill = random_rows_fill};
	const uint64_t before = *op_rig_seed();

	op_check(cpu_rig_knn_plan(op_rig_arena(RBK_DTYPE_F32), MAX, 1999), &check);
	op_check(network_plan(), &check);
	op_check(state_plan(), &exact);
	op_check(batch_sum_plan(1), &exact);
	op_check(batch_sum_plan(2), &exact);
	op_check(sums_plan(), &(struct op_check){.rtol = 4e-3, .atol = 2e-2});
	op_check(attention_plan("q,k,v,-,-,-,valid", "y", RBK_DTYPE_F32), &rows);
	op_check(attention_plan("q,k,v,-,pk,pv", "y,nk", RBK_DTYPE_F32), &rows);
	op_check(attention_plan("q,k,v", "y,nk,nv", RBK_DTYPE_F32), &rows);
	for (unsigned int i = 0; i < 3; i++)
		op_check(attention_plan("q,k,v,mask,pk,pv", "y,-,-,qk", masks[i]), &rows);
	op_check(reference_plan(
			 one_op_counted("LayerNormalization", "[count,3,7] [1] [1]", "axis=1", MAX),
			 NULL),
		 &rows);
	for (unsigned int i = 0; i < 3; i++) {
		struct describe *d = windows_describe();

		if (i < 2)
			op_check(reference_plan(views_describe(MAX, i), op_rig_arena(floats[i])),
				 &(struct op_check){
					 .rtol = 2e-6, .atol = 1e-5, .has_layouts = true});
		/* A float16 step between two other nodes. */
		describe_floats(d, floats[i]);
		op_check(reference_plan(d, op_rig_arena(floats[i])),
			 &(struct op_check){.rtol = i == 1 ? 4e-3 : 1e-4,
					    .atol = i == 1 ? 4e-3 : 1e-5});
	}
	/* Random tests have the same numbers with this test and without it. */
	*op_rig_seed() = before;
}
