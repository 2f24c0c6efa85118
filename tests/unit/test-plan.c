/* SPDX-License-Identifier: MIT */
/* Plans: the meaning of a graph, and graphs that are refused */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail-alloc.h"
#include "plan/executor.h"
#include "support/big-plan.h"
#include "support/one-op.h"
#include "support/test.h"

/* Describe the nearest neighbours of x: -|b|^2/2 + x * b', then the k best. */
static struct describe *describe_neighbours(void)
{
	struct describe *d = describe_new("neighbours", 256);

	describe_constant(d, "b", RBK_REF(1, 0), DESCRIBE_DIMS(16, 40));
	describe_output(d, "values", DESCRIBE_DIMS(DESCRIBE_COUNT, 5));
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_scratch(d, "products");
	describe_constant(d, "norms", RBK_REF(2, 4096), DESCRIBE_DIMS(40));
	describe_scratch(d, "scores");
	describe_tensor(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64, 0,
			DESCRIBE_DIMS(DESCRIBE_COUNT, 5));
	describe_node(d, "MatMul", "multiply", "x,b", "products");
	describe_node(d, "Add", "subtract", "products,norms", "scores");
	describe_node(d, "TopK", "select", "scores", "values,indices");
	describe_attr_int(d, "k", 5);
	return d;
}

TEST(test_plan__neighbours)
{
	struct plan *plan = expect_plan(describe_neighbours());
	struct tensor *tensor;

	assert_int_equal(plan->n_bindings, 3);
	assert_string_equal(plan->tensors[plan->bindings[0].tensor].name, "values");
	assert_string_equal(plan->tensors[plan->bindings[1].tensor].name, "x");
	assert_string_equal(plan->tensors[plan->bindings[2].tensor].name, "indices");
	assert_true(plan->bindings[0].written);
	assert_false(plan->bindings[1].written);
	assert_true(plan->bindings[2].written);
	assert_fields(*plan, (bindings[1].fixed_bytes, 0), (bindings[1].row_bytes, 64),
		      (bindings[2].row_bytes, 40));
	assert_int_equal(expect_tensor(plan, "x")->binding, 1);

	assert_fields(*plan, (n_constants, 2), (constants[0].offset, 0),
		      (constants[0].bytes, 16 * 40 * 4), (constants[0].arena->ino, 1),
		      (constants[1].offset, 4096), (constants[1].bytes, 160),
		      (constants[1].arena->ino, 2), (constant_bytes, 16 * 40 * 4 + 160));
	tensor = expect_tensor(plan, "norms");
	assert_int_equal(tensor->constant, 1);
	assert_string_equal(plan->tensors[plan->constants[1].tensor].name, "norms");

	tensor = expect_tensor(plan, "scores");
	assert_int_equal(tensor->shape.rank, 2);
	assert_true(tensor->shape.dynamic);
	assert_fields(*tensor, (row_bytes, 160), (fixed_bytes, 0), (max_bytes, 160 * 256));
	assert_int_equal(tensor_bytes(tensor, 3), 480);
	/* The nodes after the product work in place. */
	assert_int_equal(plan->scratch_bytes, 160 * 256);

	assert_fields(*plan, (cost.flops_row, 2 * 16 * 40 + 40 + 3 * 40),
		      (touched_fixed, plan->constant_bytes), (touched_row, 64 + 20 + 40));
	assert_int_equal(plan_touched_bytes(plan, 10), plan->constant_bytes + 1240);
	assert_int_equal(plan->ops_devices, OP_ON_CPU | OP_ON_VULKAN);
	assert_true(plan->splits_rows);
	/* Rows of 64, 20 and 40 bytes: every 16th row starts at a multiple of 64 in all of them. */
	assert_int_equal(plan->row_grain, 16);
	assert_false(plan->data_independent);
	assert_false(plan->has_state);
	plan_free(plan);
}

/* Works contain all nodes that compute and the whole cost, however many sizes there are. */
TEST(test_plan__works)
{
	for (unsigned int n_sizes = 1; n_sizes <= 200; n_sizes += 199) {
		struct describe *d = describe_new("works", 1);
		uint64_t flops = 0, bytes = 0, n_nodes = 0;
		struct plan *plan;
		char in[16] = "x", out[16];

		describe_input(d, "x", DESCRIBE_DIMS(1, 1));
		describe_output(d, "y", DESCRIBE_DIMS(1, 7));
		for (uint32_t i = 0; i < 200; i++) {
			const int64_t dims[] = {1 + i % n_sizes, 1};

			snprintf(out, sizeof(out), "t%u", i);
			describe_scratch(d, out);
			describe_node(d, "Expand", "", "x", out);
			describe_attr_ints(d, "shape", 2, dims);
			snprintf(in, sizeof(in), "t%u", i);
			snprintf(out, sizeof(out), "s%u", i);
			describe_scratch(d, out);
			describe_node(d, "Softmax", "", in, out);
		}
		describe_constant(d, "w", RBK_REF(1, 0), DESCRIBE_DIMS(1, 7));
		describe_scratch(d, "product");
		describe_node(d, "MatMul", "", "x,w", "product");
		describe_node(d, "Relu", "", "product", "y");
		plan = expect_plan(d);
		assert_in_range(plan->n_works, 3, PLAN_MAX_WORKS);
		if (n_sizes == 1)
			assert_int_equal(plan->n_works, 3);
		for (uint32_t i = 0; i < plan->n_works; i++) {
			const struct plan_work *work = &plan->works[i];

			flops += work->cost.flops_fixed;
			bytes += work->cost.bytes_fixed;
			n_nodes += work->n;
			if (work->family == OP_FAMILY_MATMUL)
				assert_int_equal(work->n, 1);
		}
		assert_int_equal(flops, plan->cost.flops_fixed);
		assert_int_equal(bytes, plan->cost.bytes_fixed);
		/* The activation is fused with the product. */
		assert_int_equal(n_nodes, plan->n_nodes - 1);
		assert_int_equal(plan->blocked_flops_fixed,
				 plan->nodes[plan->n_nodes - 2].cost.flops_fixed);
		plan_free(plan);
	}
}

/* These operators take only floats, at each of their inputs. */
TEST(test_plan__int64_inputs)
{
	static const char *const nodes[OP_KIND_COUNT][3] = {
		[OP_MATMUL] = {"[2,2] [2,2]"},
		[OP_GEMM] = {"[2,2] [2,2] [2]"},
		[OP_SOFTMAX] = {"[2]"},
		[OP_LOG_SOFTMAX] = {"[2]"},
		[OP_LAYER_NORM] = {"[2] [2] [2]"},
		[OP_BATCH_NORM] = {"[1,2] [2] [2] [2] [2]"},
		[OP_TRANSPOSE] = {"[2]"},
		[OP_RESHAPE] = {"[2]", "shape=[1,2]"},
		[OP_CONV] = {"[1,1,2] [1,1,1] [1]"},
		[OP_AVERAGE_POOL] = {"[1,1,2]", "kernel_shape=[1]"},
		[OP_TOP_K] = {"[2]", "k=1"},
	};

	for (unsigned int kind = 0; kind < OP_KIND_COUNT; kind++) {
		const struct op *op = op_by_kind((enum op_kind)kind);
		const char *attrs = nodes[kind][1] ? nodes[kind][1] : "";
		size_t bytes;

		if (!nodes[kind][0])
			continue;
		plan_free(expect_plan(one_op(op->name, nodes[kind][0], attrs)));
		if (op_types(op, OP_ON_CPU) & OP_TYPE(RBK_DTYPE_I64))
			continue;
		for (unsigned int i = 0; i < op->max_in; i++) {
			void *desc =
				describe_finish(one_op(op->name, nodes[kind][0], attrs), &bytes);
			char words[64];

			describe_view(desc).tensors[i].dtype = RBK_DTYPE_I64;
			snprintf(words, sizeof(words),
				 "input \"%c\" is int64, expected one of float32, float16",
				 'a' + (char)i);
			expect_bytes_refused(desc, bytes, op->name, words);
			free(desc);
		}
	}
}

/* Absent inputs, in the middle and everywhere. */
TEST(test_plan__absent)
{
	struct describe *d;

	expect_refuses("Gemm", "[2,2] - [2]", "", "input 1 is absent, but required");
	expect_refuses("Gemm", "- - -", "", "0 inputs, expected at least 2");
	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(2));
	describe_output(d, "y", DESCRIBE_DIMS(2));
	describe_node(d, "Relu", "", "x", "-");
	expect_refused(d, "node 0 (Relu): 0 outputs, expected at least 1");
	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(2));
	describe_output(d, "y", DESCRIBE_DIMS(2));
	describe_node(d, "Relu", "", "", "");
	expect_refused(d, "node 0 (Relu): 0 inputs");
}

TEST(test_plan__free_null)
{
	assert_null(plan_free(NULL));
}

TEST(test_plan__order)
{
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_scratch(d, "t");
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_node(d, "Relu", "second", "t", "y");
	describe_node(d, "Relu", "first", "x", "t");
	expect_refused(d, "node 0 \"second\" (Relu)",
		       "input \"t\" is a scratch tensor without a value",
		       "expected an earlier node to write it");

	d = describe_new("", 1);
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_node(d, "Relu", "", "y", "y");
	expect_refused(d, "node 0 (Relu): input \"y\" is an output without a value");
}

TEST(test_plan__writers)
{
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_input(d, "x2", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_node(d, "Relu", "n", "x", "y");
	describe_node(d, "Relu", "m", "x", "x2");
	expect_refused(d, "node 1 \"m\" (Relu): output \"x2\" is an input of the plan");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_constant(d, "c", RBK_REF(1, 0), DESCRIBE_DIMS(4));
	describe_node(d, "Relu", "n", "x", "c");
	expect_refused(d, "node 0 \"n\" (Relu): output \"c\" is a constant of the plan");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_node(d, "Relu", "n", "x", "y");
	describe_node(d, "Add", "m", "x,x", "y");
	expect_refused(d, "node 1 \"m\" (Add): output \"y\" is written by node 0 already");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(2));
	describe_node(d, "TopK", "n", "x", "y,y");
	describe_attr_int(d, "k", 2);
	expect_refused(d, "output \"y\" is written by node 0 already");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_output(d, "z", DESCRIBE_DIMS(4));
	describe_node(d, "Relu", "n", "x", "y");
	expect_refused(d, "tensor 2 \"z\" is an output, but no node writes it");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_scratch(d, "t");
	describe_node(d, "Relu", "n", "x", "y");
	expect_refused(d, "tensor 2 \"t\" is a scratch tensor, but no node writes it");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_scratch(d, "t");
	describe_node(d, "Relu", "n", "x", "t");
	expect_refused(d, "the plan has no result");
}

/* An output may be read by later nodes. */
TEST(test_plan__output_read)
{
	struct describe *d = describe_new("", 1);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(4));
	describe_output(d, "z", DESCRIBE_DIMS(4));
	describe_node(d, "Relu", "", "x", "y");
	describe_node(d, "Add", "", "x,y", "z");
	plan = expect_plan(d);
	assert_int_equal(plan->scratch_bytes, 0);
	assert_false(plan->splits_rows);
	plan_free(plan);
}

TEST(test_plan__state)
{
	struct describe *d = describe_new("", 8);
	struct plan *plan;

	describe_state(d, "s", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Add", "", "s,x", "s");
	plan = expect_plan(d);
	assert_true(plan->has_state);
	assert_true(plan->splits_rows);
	assert_int_equal(plan->n_bindings, 2);
	assert_true(plan->bindings[0].written);
	plan_free(plan);

	/* A state written by a node that does not read it: any operator is allowed. */
	d = describe_new("", 1);
	describe_state(d, "s", DESCRIBE_DIMS(4, 4));
	describe_scratch(d, "t");
	describe_node(d, "Transpose", "", "s", "t");
	describe_node(d, "MatMul", "", "t,t", "s");
	plan_free(expect_plan(d));

	d = describe_new("", 1);
	describe_state(d, "s", DESCRIBE_DIMS(4, 4));
	describe_node(d, "Transpose", "turn", "s", "s");
	expect_refused(d, "node 0 \"turn\" (Transpose): state \"s\" is both read and written",
		       "Transpose does not work in place");

	d = describe_new("", 1);
	describe_state(d, "s", DESCRIBE_DIMS(4, 4));
	describe_node(d, "Relu", "", "s", "s");
	describe_node(d, "Relu", "", "s", "s");
	expect_refused(d, "node 1 (Relu): output \"s\" is written by node 0 already");

	/* Broadcasting would change the shape of a state updated in place. */
	d = describe_new("", 1);
	describe_state(d, "s", DESCRIBE_DIMS(4));
	describe_input(d, "x", DESCRIBE_DIMS(4, 4));
	describe_node(d, "Add", "", "s,x", "s");
	expect_refused(d, "output \"s\" is declared as [4], expected [4,4]");

	/*
	 * A plan with a state of fixed shape cannot be split by rows. A state that no node writes
	 * is no result.
	 */
	d = describe_new("", 8);
	describe_state(d, "s", DESCRIBE_DIMS(4));
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Add", "", "s,x", "y");
	plan = expect_plan(d);
	assert_false(plan->splits_rows);
	plan_free(plan);
	d = describe_new("", 1);
	describe_state(d, "s", DESCRIBE_DIMS(4));
	describe_scratch(d, "t");
	describe_node(d, "Relu", "", "s", "t");
	expect_refused(d, "the plan has no result");
}

TEST(test_plan__declared_shapes)
{
	struct describe *d = describe_new("", 10);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_input(d, "w", DESCRIBE_DIMS(3, 4));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 5));
	describe_node(d, "MatMul", "n", "x,w", "y");
	expect_refused(d, "node 0 \"n\" (MatMul): output \"y\" is declared as [count,5], expected "
			  "[count,4]");

	d = describe_new("", 10);
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_output(d, "y", DESCRIBE_DIMS(10, 3));
	describe_node(d, "Relu", "n", "x", "y");
	expect_refused(d, "\"y\" is declared as [10,3], expected [count,3]");

	d = describe_new("", 10);
	describe_input(d, "x", DESCRIBE_DIMS(10, 3));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_node(d, "Relu", "n", "x", "y");
	expect_refused(d, "\"y\" is declared as [count,3], expected [10,3]");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(3));
	describe_output(d, "y", DESCRIBE_DIMS(1, 3));
	describe_node(d, "Relu", "n", "x", "y");
	expect_refused(d, "\"y\" is declared as [1,3], expected [3]");

	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(3));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, "Relu", "n", "x", "y");
	expect_refused(d, "output \"y\" is declared as int64, expected float32");
}

TEST(test_plan__max_count)
{
	struct describe *d = describe_new("", 2);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(3));
	describe_output(d, "y", DESCRIBE_DIMS(3));
	describe_node(d, "Relu", "", "x", "y");
	expect_refused(d, "max_count is 2, expected 1 because no tensor has count");

	/* With a maximum of one row, the count is still no fixed dimension of 1. */
	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_input(d, "w", DESCRIBE_DIMS(2, 3));
	describe_output(d, "y", DESCRIBE_DIMS(2, 3));
	describe_node(d, "Add", "", "x,w", "y");
	expect_refused(d, "dimension 0 would be count and 2");

	d = describe_new("", 0x7fffffff);
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Relu", "", "x", "y");
	plan = expect_plan(d);
	assert_int_equal(expect_tensor(plan, "y")->max_bytes, 12 * 0x7fffffffull);
	plan_free(plan);
}

TEST(test_plan__constants)
{
	const struct {
		uint64_t ref;
		const char *words[2];
	} cases[] = {
		{RBK_REF(1, 32), {"\"c\" is at offset 32 of its arena", "multiple of 64"}},
		{RBK_REF(1, 1), {"at offset 1", "multiple of 64"}},
		{RBK_REF(3, 0), {"in arena 3", "arena 3 is not sealed against writing"}},
		{RBK_REF(9, 0), {"in arena 9, expected an immutable one", "no such arena"}},
		{RBK_REF(1, ONE_OP_ARENA_BYTES), {"has 16 bytes at offset 1048576", "of arena 1"}},
		{RBK_REF(0xffff, 0), {"in arena 65535", "no such arena"}},
		{RBK_REF(1, 0xffffffffffc0ull),
		 {"at offset 281474976710592", "within the 1048576"}},
	};
	struct describe *d;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		d = describe_new("", 1);
		describe_input(d, "x", DESCRIBE_DIMS(4));
		describe_constant(d, "c", cases[i].ref, DESCRIBE_DIMS(4));
		describe_output(d, "y", DESCRIBE_DIMS(4));
		describe_node(d, "Add", "", "x,c", "y");
		expect_refused(d, "constant 1 \"c\"", cases[i].words[0], cases[i].words[1]);
	}

	/* The last byte of the arena, and one element beyond. */
	for (uint32_t extra = 0; extra < 2; extra++) {
		d = describe_new("", 1);
		describe_constant(d, "c", RBK_REF(1, ONE_OP_ARENA_BYTES - 64),
				  DESCRIBE_DIMS(16 + extra));
		describe_output(d, "y", DESCRIBE_DIMS(16 + extra));
		describe_node(d, "Relu", "", "c", "y");
		if (extra)
			expect_refused(d, "constant 0 \"c\" has 68 bytes");
		else
			plan_free(expect_plan(d));
	}

	d = describe_new("", 4);
	describe_constant(d, "c", RBK_REF(1, 0), DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Relu", "", "c", "y");
	expect_refused(d, "constant 0 \"c\" is [count,4], expected fixed dimensions");
}

TEST(test_plan__bindings_limit)
{
	for (unsigned int n_in = RBK_MAX_REFS - 1; n_in <= RBK_MAX_REFS; n_in++) {
		struct describe *d = describe_new("", 1);
		char name[16];

		for (unsigned int i = 0; i < n_in; i++) {
			snprintf(name, sizeof(name), "x%u", i);
			describe_input(d, name, DESCRIBE_DIMS(2));
		}
		describe_output(d, "y", DESCRIBE_DIMS(2));
		describe_node(d, "Relu", "", "x0", "y");
		if (n_in < RBK_MAX_REFS)
			plan_free(expect_plan(d));
		else
			expect_refused(d, "tensor 64 \"y\" is an output", "expected at most 64");
	}
}

TEST(test_plan__too_large)
{
	struct describe *d;
	struct plan *plan;

	expect_refused(one_op("Relu", "[2147483647,2147483647,2147483647]", ""),
		       "tensor 0 \"a\" [2147483647,2147483647,2147483647] would have more than "
		       "140737488355328 bytes");
	expect_refused(one_op("Relu", "[65536,65536,65536,65536]", ""), "tensor 0 \"a\"");
	expect_refused(one_op("Relu", "[65536,65536,8193]", ""), "tensor 0 \"a\"");
	/* 2^47 exactly, both as an input and as an output */
	plan_free(expect_plan(one_op("Relu", "[65536,65536,8192]", "")));
	/* A fixed part that fits, times the count that does not */
	expect_refused(one_op("Relu", "[count,65536,65536,4096]", ""), "tensor 0 \"a\" [count,");

	/* Inputs that fit, an output that does not */
	expect_refused(one_op("MatMul", "[33554432,1] [1,33554432]", ""), "tensor 2 \"y\"",
		       "would have more than");
	expect_refused(one_op("Add", "[2147483647,1] [1,2147483647]", ""), "tensor 2 \"y\"");
	expect_refused(one_op("Add", "[2147483647,1,1,1] [2147483647,1,1]", ""), "tensor 2 \"y\"");

	/* Tensors that fit, work that does not: 2 * 2^21 * 2^21 * 2^21 */
	plan = expect_plan(one_op("MatMul", "[1048576,1048576] [1048576,1048576]", ""));
	assert_true(plan->cost.flops_fixed == 1ull << 61);
	plan_free(plan);
	expect_refused(one_op("MatMul", "[2097152,2097152] [2097152,2097152]", ""),
		       "more than 4611686018427387904 operations or bytes");
	/* A sum that wraps around 64 bits to something small */
	expect_refused(one_op("MaxPool", "[1,1,1048576,1048576]",
			      "kernel_shape=[1073741824,1073741824] "
			      "pads=[1073741823,1073741823,0,0]"),
		       "operations or bytes");
	expect_refused(one_op("Conv", "[1024,1,1048576,1] [32768,1,1048576,1]",
			      "pads=[524288,0,524287,0]"),
		       "operations or bytes");

	/* Scratch tensors that fit, a block that does not */
	d = describe_new("", 1);
	describe_input(d, "x", DESCRIBE_DIMS(65536, 65536, 8192));
	describe_scratch(d, "t");
	describe_scratch(d, "u");
	describe_output(d, "y", DESCRIBE_DIMS(65536, 65536, 8192));
	describe_disable_fusion(d);
	describe_node(d, "Relu", "", "x", "t");
	describe_node(d, "Relu", "", "t", "u");
	describe_node(d, "Relu", "", "u", "y");
	expect_refused(d, "281474976710656 bytes of scratch memory, expected at most");
}

/* Output rows that need other rows, in the middle of the plan. */
TEST(test_plan__splits_rows)
{
	struct describe *d = describe_new("", 8);
	struct plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_scratch(d, "total");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "ReduceSum", "", "x", "total");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(0));
	describe_node(d, "Add", "", "x,total", "y");
	plan = expect_plan(d);
	assert_false(plan->splits_rows);
	plan_free(plan);

	/* A fixed part that both halves can compute themselves does not prevent splitting. */
	d = describe_new("", 8);
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_constant(d, "c", RBK_REF(1, 0), DESCRIBE_DIMS(4));
	describe_scratch(d, "positive");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Relu", "", "c", "positive");
	describe_node(d, "Add", "", "x,positive", "y");
	plan = expect_plan(d);
	assert_true(plan->splits_rows);
	assert_true(plan->data_independent);
	plan_free(plan);

	/* An output of fixed shape does: both halves would write it. */
	d = describe_new("", 8);
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_constant(d, "c", RBK_REF(1, 0), DESCRIBE_DIMS(4));
	describe_output(d, "positive", DESCRIBE_DIMS(4));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 4));
	describe_node(d, "Relu", "", "c", "positive");
	describe_node(d, "Add", "", "x,positive", "y");
	plan = expect_plan(d);
	assert_false(plan->splits_rows);
	plan_free(plan);
}

/* Every limit at once: 4,096 nodes in a chain over 4,096 tensors. */
TEST(test_plan__largest)
{
	struct describe *d = describe_new("", 1);
	char from[16] = "x", to[16];
	struct plan *plan;

	describe_disable_fusion(d);
	describe_input(d, "x", DESCRIBE_DIMS(2));
	for (unsigned int i = 0; i < RBK_MAX_PLAN_TENSORS - 2; i++) {
		snprintf(to, sizeof(to), "t%u", i);
		describe_scratch(d, to);
		describe_node(d, "Relu", "", from, to);
		memcpy(from, to, sizeof(from));
	}
	describe_output(d, "y", DESCRIBE_DIMS(2));
	describe_node(d, "Relu", "", from, "y");
	plan = expect_plan(d);
	assert_int_equal(plan->n_tensors, RBK_MAX_PLAN_TENSORS);
	/* A chain needs two places, whatever its length. */
	assert_int_equal(plan->scratch_bytes, 2 * PLAN_SCRATCH_ALIGN);
	plan_free(plan);
}

TEST(test_plan__allocation_failure)
{
	char message[PLAN_MESSAGE_BYTES];
	void *desc;
	struct plan *plan = NULL;
	unsigned int n;
	size_t bytes;
	int r;

	desc = describe_finish(describe_neighbours(), &bytes);
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = plan_new(desc, bytes, &one_op_arenas, message, &plan);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(plan);
	}
	assert_int_equal(r, 0);
	/* One allocation of the parser, six of the plan, two of the layout. */
	assert_in_range(n - 1, 9, 100);
	plan_free(plan);
	free(desc);
}

/* Return the arena for every constant. */
static struct exec_arena *find_any(void *context, uint16_t arena_id, const char **ret_why)
{
	return context;
}

/*
 * Make a plan in at most @max parts. *ret_result gets the last part's result, *ret_plan the plan or
 * NULL.
 * Return: the number of parts made.
 */
static unsigned int make_parts(enum big_plan kind, unsigned int n_nodes, unsigned int max,
			       int *ret_result, struct plan **ret_plan)
{
	static struct exec_arena arena = {.bytes = 1 << 20, .immutable = true};
	const struct plan_arena_lookup lookup = {.find = find_any, .context = &arena};
	char message[PLAN_MESSAGE_BYTES];
	struct plan_maker *maker;
	unsigned int n = 0;
	size_t bytes;
	void *desc = big_plan(kind, n_nodes, &bytes);

	*ret_plan = NULL;
	assert_int_equal(plan_maker_new(desc, bytes, &lookup, message, &maker), 0);
	do {
		*ret_result = plan_maker_work(maker, ret_plan);
		n++;
	} while (*ret_result == PLAN_E_MORE && n < max);
	plan_maker_free(maker);
	free(desc);
	return n;
}

/*
 * Check that a description four times as large takes about four times as many parts, so that a part
 * does not grow. A plan given up after any part leaks nothing.
 */
TEST(test_plan__parts)
{
	unsigned int n_large_of[BIG_PLANS];

	for (unsigned int kind = 0; kind < BIG_PLANS; kind++) {
		const bool is_legal = big_plan_is_legal((enum big_plan)kind);
		unsigned int n_small, n_large;
		struct plan *plan;
		int r;

		n_small = make_parts((enum big_plan)kind, 1024, UINT_MAX, &r, &plan);
		assert_int_equal(r, is_legal ? 0 : PLAN_E_INVALID);
		plan_free(plan);
		n_large = make_parts((enum big_plan)kind, 4096, UINT_MAX, &r, &plan);
		n_large_of[kind] = n_large;
		assert_int_equal(r, is_legal ? 0 : PLAN_E_INVALID);
		print_message("%-32s %3u parts, %3u where it is larger\n",
			      big_plan_name((enum big_plan)kind), n_small, n_large);
		assert_true(n_large >= 5 && n_large >= 2 * n_small);
		plan_free(plan);
		for (unsigned int n = 1; n < n_large; n++) {
			assert_int_equal(make_parts((enum big_plan)kind, 4096, n, &r, &plan), n);
			assert_int_equal(r, PLAN_E_MORE);
			assert_null(plan);
		}
	}
	/* Searches count as work: for gaps in the layout, and for work of the same kind. */
	assert_true(n_large_of[BIG_GAPS] >= n_large_of[BIG_ALIVE] + 6);
	assert_true(n_large_of[BIG_LIVES] >= n_large_of[BIG_ALIVE] + 3);
}
