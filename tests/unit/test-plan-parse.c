/* SPDX-License-Identifier: MIT */
/*
 * Reading plan descriptions: one damaged field at a time
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/one-op.h"
#include "support/test.h"
#include "util/checked.h"

/* Describe x [count,3] * w [3,4] -> s; TopK(s, k=2) -> v, i, padded by three edges. */
static void *make(size_t *ret_bytes)
{
	struct describe *d = describe_new("plan", 100);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_constant(d, "w", RBK_REF(1, 64), DESCRIBE_DIMS(3, 4));
	describe_scratch(d, "s");
	describe_output(d, "v", DESCRIBE_DIMS(DESCRIBE_COUNT, 2));
	describe_inferred(d, "i", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, "MatMul", "product", "x,w", "s");
	describe_node(d, "TopK", "best", "s", "v,i");
	describe_attr_int(d, "k", 2);
	describe_attr_int(d, "sorted", 1);
	return describe_finish(d, ret_bytes);
}

/* Make a description, set an lvalue of its view, and expect a refusal with these words. */
#define EXPECT_DAMAGE(lvalue, value, ...)                                      \
	do {                                                                   \
		size_t bytes_;                                                 \
		void *desc_ = make(&bytes_);                                   \
		struct describe_view view = describe_view(desc_);              \
                                                                               \
		assert_false(view.lvalue == (__typeof__(view.lvalue))(value)); \
		view.lvalue = value;                                           \
		expect_bytes_refused(desc_, bytes_, __VA_ARGS__);              \
		free(desc_);                                                   \
	} while (0)

TEST(test_parse__undamaged)
{
	char message[PLAN_MESSAGE_BYTES];
	struct plan *plan;
	size_t bytes;
	void *desc = make(&bytes);

	assert_int_equal(plan_new(desc, bytes, &one_op_arenas, message, &plan), 0);
	/* The plan keeps no pointers into the description. */
	memset(desc, 0xff, bytes);
	free(desc);
	assert_string_equal(plan->name, "plan");
	assert_fields(*plan, (max_count, 100), (n_tensors, 5), (n_nodes, 2));
	assert_string_equal(plan->nodes[0].name, "product");
	assert_string_equal(plan->nodes[1].op->name, "TopK");
	assert_string_equal(plan->tensors[2].name, "s");
	assert_int_equal(plan->nodes[1].params.top_k.k, 2);
	assert_false(plan->pinned);
	plan_free(plan);
}

TEST(test_parse__every_length)
{
	size_t bytes;
	uint8_t *desc = make(&bytes);

	for (size_t n = 0; n < bytes; n++) {
		/*
		 * The copy has exactly this length, so that a sanitizer detects a read beyond it.
		 */
		void *copy = malloc(n ? n : 1);

		memcpy(copy, desc, n);
		expect_bytes_refused(copy, n, "the description has");
		free(copy);
	}
	desc = realloc(desc, bytes + 8);
	memset(desc + bytes, 0, 8);
	expect_bytes_refused(desc, bytes + 8, "but its header describes");
	free(desc);
}

TEST(test_parse__header)
{
	EXPECT_DAMAGE(header->magic, 0, "not a plan description");
	EXPECT_DAMAGE(header->version, 2, "version 2, expected 1");
	EXPECT_DAMAGE(header->flags, 4, "unknown flags 0x4");
	EXPECT_DAMAGE(header->reserved[0], 1, "reserved bytes of the plan");
	EXPECT_DAMAGE(header->reserved[2], 1, "reserved bytes of the plan");
	EXPECT_DAMAGE(header->name[0], '\n', "the plan's name");
	EXPECT_DAMAGE(header->name[31], 'x', "the plan's name");
	EXPECT_DAMAGE(header->pinned_device, 1, "names device 1, expected 0");
	EXPECT_DAMAGE(header->max_count, 0, "max_count is 0");
	EXPECT_DAMAGE(header->max_count, 0x80000000u, "max_count is 2147483648");
	EXPECT_DAMAGE(header->n_tensors, 0, "0 tensors, expected 1 to 4096");
	EXPECT_DAMAGE(header->n_tensors, 4097, "4097 tensors");
	EXPECT_DAMAGE(header->n_tensors, 4, "its header describes");
	EXPECT_DAMAGE(header->n_nodes, 0, "0 nodes, expected 1 to 4096");
	EXPECT_DAMAGE(header->n_nodes, 4097, "4097 nodes");
	EXPECT_DAMAGE(header->n_nodes, 3, "its header describes");
	EXPECT_DAMAGE(header->n_attrs, UINT32_MAX, "its header describes");
	EXPECT_DAMAGE(header->n_edges, UINT32_MAX, "its header describes");
	EXPECT_DAMAGE(header->blob_bytes, UINT32_MAX, "its header describes");
}

TEST(test_parse__pinned)
{
	struct describe *d = one_op("Relu", "[2]", "");
	struct plan *plan;

	describe_pin(d, 15);
	plan = expect_plan(d);
	assert_true(plan->pinned);
	assert_int_equal(plan->pinned_device, 15);
	plan_free(plan);

	d = one_op("Relu", "[2]", "");
	describe_pin(d, 16);
	expect_refused(d, "names device 16, expected one below 16");
}

TEST(test_parse__tensors)
{
	EXPECT_DAMAGE(tensors[0].name[0], 0, "tensor 0 has no name");
	EXPECT_DAMAGE(tensors[1].name[0], '\x7f', "tensor 1 has no name or one");
	EXPECT_DAMAGE(tensors[1].name[0], '\xc3', "tensor 1 has no name or one");
	EXPECT_DAMAGE(tensors[1].name[2], 'x', "tensor 1 has no name or one");
	EXPECT_DAMAGE(tensors[1].name[0], 'x', "tensors 0 and 1 are both called \"x\"");
	EXPECT_DAMAGE(tensors[0].kind, 5, "tensor 0 \"x\" has unknown kind 5");
	EXPECT_DAMAGE(tensors[0].dtype, 0, "tensor 0 \"x\" has unknown element type 0");
	EXPECT_DAMAGE(tensors[0].dtype, 12, "unknown element type 12");
	EXPECT_DAMAGE(tensors[0].flags, 4, "tensor 0 \"x\" has unknown flags 0x4");
	EXPECT_DAMAGE(tensors[0].reserved, 1, "reserved bytes of tensor 0 \"x\"");
	EXPECT_DAMAGE(tensors[0].constant_ref, 64, "tensor 0 \"x\" has a constant reference");
	EXPECT_DAMAGE(tensors[0].rank, 9, "tensor 0 \"x\" has rank 9, expected at most 8");
	EXPECT_DAMAGE(tensors[0].rank, 0, "tensor 0 \"x\" is dynamic and has rank 0");
	EXPECT_DAMAGE(tensors[0].rank, 1, "has 3 as dimension 1, expected 0 beyond its rank");
	EXPECT_DAMAGE(tensors[0].rank, 3, "has 0 as dimension 2, expected a number from 1");
	EXPECT_DAMAGE(tensors[0].dims[0], 100,
		      "100 as dimension 0, expected 0 because that dimension is the count");
	EXPECT_DAMAGE(tensors[0].dims[1], 0, "has 0 as dimension 1", "without elements");
	EXPECT_DAMAGE(tensors[0].dims[1], 0x80000000u, "has 2147483648 as dimension 1");
	EXPECT_DAMAGE(tensors[0].dims[7], 1, "has 1 as dimension 7");
	EXPECT_DAMAGE(tensors[0].flags, RBK_PLAN_TENSOR_DYNAMIC | RBK_PLAN_TENSOR_INFER,
		      "tensor 0 \"x\" asks for its shape to be inferred");
	EXPECT_DAMAGE(tensors[4].kind, RBK_TENSOR_INPUT, "tensor 4 \"i\" asks for its shape");
	EXPECT_DAMAGE(tensors[4].flags, RBK_PLAN_TENSOR_DYNAMIC, "\"i\" is dynamic and has rank 0");
	EXPECT_DAMAGE(tensors[4].rank, 1, "tensor 4 \"i\" asks for its shape");
}

TEST(test_parse__nodes)
{
	EXPECT_DAMAGE(nodes[0].name[0], 1, "the name of node 0 is not");
	EXPECT_DAMAGE(nodes[0].name[31], 1, "the name of node 0 is not");
	EXPECT_DAMAGE(nodes[0].op[0], 0, "node 0 \"product\" has no operator");
	EXPECT_DAMAGE(nodes[0].op[6], 's', "node 0 \"product\": unknown operator \"MatMuls\"",
		      "expected one of those that brokerctl devices lists");
	EXPECT_DAMAGE(nodes[0].op[0], 'm', "unknown operator \"matMul\"");
	EXPECT_DAMAGE(nodes[1].reserved[2], 1, "reserved bytes of node 1 \"best\"");
	EXPECT_DAMAGE(nodes[1].first_in, 6, "node 1 \"best\" has inputs or outputs beyond the 6");
	EXPECT_DAMAGE(nodes[1].first_in, UINT32_MAX, "inputs or outputs beyond");
	EXPECT_DAMAGE(nodes[1].n_in, 4, "inputs or outputs beyond");
	EXPECT_DAMAGE(nodes[1].n_in, 2, "node 1 \"best\" (TopK): 2 inputs, expected at most 1");
	EXPECT_DAMAGE(nodes[1].first_out, 5, "inputs or outputs beyond");
	EXPECT_DAMAGE(nodes[1].n_out, UINT16_MAX, "inputs or outputs beyond");
	EXPECT_DAMAGE(nodes[1].first_attr, 1, "node 1 \"best\" has attributes beyond the 2");
	EXPECT_DAMAGE(nodes[1].first_attr, UINT32_MAX, "attributes beyond");
	EXPECT_DAMAGE(nodes[1].n_attrs, 3, "attributes beyond");
	EXPECT_DAMAGE(nodes[1].n_attrs, 0, "attribute \"k\" is missing");
	EXPECT_DAMAGE(nodes[0].n_attrs, 2, "node 0 \"product\" (MatMul): unknown attribute \"k\"");
}

TEST(test_parse__attributes)
{
	EXPECT_DAMAGE(attrs[0].name[0], 0, "attribute 0 has no name");
	EXPECT_DAMAGE(attrs[0].name[1], 9, "attribute 0 has no name or one");
	EXPECT_DAMAGE(attrs[0].name[0], 'q', "unknown attribute \"q\", expected one of axis, k");
	EXPECT_DAMAGE(attrs[0].type, 0, "attribute 0 \"k\" has unknown type 0");
	EXPECT_DAMAGE(attrs[0].type, 6, "attribute 0 \"k\" has unknown type 6");
	EXPECT_DAMAGE(attrs[0].type, RBK_ATTR_INTS, "attribute \"k\" has type 3, expected 1");
	EXPECT_DAMAGE(attrs[0].type, RBK_ATTR_FLOAT, "attribute \"k\" has type 2, expected 1");
	EXPECT_DAMAGE(attrs[0].n, 0, "attribute 0 \"k\" has 0 values, expected 1");
	EXPECT_DAMAGE(attrs[0].n, 2, "attribute 0 \"k\" has 2 values, expected 1");
	EXPECT_DAMAGE(attrs[0].reserved, 1, "reserved bytes of attribute 0 \"k\"");
	EXPECT_DAMAGE(attrs[0].blob_offset, 4, "not aligned to 8 bytes or reaches beyond");
	EXPECT_DAMAGE(attrs[0].blob_offset, 16, "not aligned to 8 bytes or reaches beyond");
	EXPECT_DAMAGE(attrs[1].blob_offset, 0xfffffff8u, "reaches beyond the blob");
}

/* Lists and strings whose length times element size overflows 32 bits. */
TEST(test_parse__attribute_overflow)
{
	const uint32_t types[] = {RBK_ATTR_INTS, RBK_ATTR_FLOATS, RBK_ATTR_STRING};
	const uint32_t lengths[] = {0x20000000u, 0x20000001u, 0x40000001u, UINT32_MAX};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(lengths); j++) {
			size_t bytes;
			void *desc = make(&bytes);
			struct describe_view view = describe_view(desc);

			view.attrs[0].type = types[i];
			view.attrs[0].n = lengths[j];
			expect_bytes_refused(desc, bytes, "attribute 0 \"k\"",
					     "reaches beyond the blob");
			free(desc);
		}
	}
}

TEST(test_parse__edges)
{
	EXPECT_DAMAGE(edges[0], 5, "edge 0 names tensor 5, expected one of the 5");
	EXPECT_DAMAGE(edges[2], 0xfffe, "edge 2 names tensor 65534");
	EXPECT_DAMAGE(edges[0], RBK_PLAN_NO_TENSOR,
		      "node 0 \"product\" (MatMul): input 0 is absent, but required");
	EXPECT_DAMAGE(edges[1], RBK_PLAN_NO_TENSOR, "1 input, expected at least 2");
	EXPECT_DAMAGE(edges[4], RBK_PLAN_NO_TENSOR,
		      "node 1 \"best\" (TopK): output 0 is absent, but required");
	EXPECT_DAMAGE(edges[6], 1, "the padding behind the edges");
	EXPECT_DAMAGE(edges[7], 1, "the padding behind the edges");
}

/* 32 characters leave no room for the NUL. */
TEST(test_parse__names_without_end)
{
	size_t bytes;
	void *desc = make(&bytes);
	struct describe_view view = describe_view(desc);

	memset(view.nodes[1].op, 'x', RBK_NAME_BYTES);
	expect_bytes_refused(desc, bytes, "node 1 \"best\" has no operator or one");
	memset(view.nodes[1].name, 'x', RBK_NAME_BYTES);
	expect_bytes_refused(desc, bytes, "the name of node 1");
	memset(view.tensors[4].name, 'x', RBK_NAME_BYTES);
	expect_bytes_refused(desc, bytes, "tensor 4 has no name or one");
	memset(view.header->name, 'x', RBK_NAME_BYTES);
	expect_bytes_refused(desc, bytes, "the plan's name");
	free(desc);

	desc = make(&bytes);
	view = describe_view(desc);
	memset(view.attrs[1].name, 'x', RBK_NAME_BYTES);
	expect_bytes_refused(desc, bytes, "attribute 1 has no name or one");
	free(desc);
}

/* A string attribute is shown only in a form that can be printed. */
TEST(test_parse__unprintable_string)
{
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[2] auto_pad=\x1b[2J\xff",
		       "\"auto_pad\" is \"?[2J?\"");
	expect_refuses("MaxPool", "[1,1,8]",
		       "kernel_shape=[2] auto_pad=0123456789abcdefghijklmnopqrstuvwxyz"
		       "0123456789abcdefghijklmnopqrstuvwxyz",
		       "\"auto_pad\" has type");
	expect_refuses("MaxPool", "[1,1,8]",
		       "kernel_shape=[2] auto_pad=abcdefghijklmnopqrstuvwxyz0123456789",
		       "\"auto_pad\" is \"abcdefghijklmnopqrstuvwxyz012345\", expected");
	expect_refuses("MaxPool", "[1,1,8]", "kernel_shape=[2] auto_pad=VALI", "\"VALI\"");
}

/* Two nodes may share the same edges. */
TEST(test_parse__shared_ranges)
{
	size_t bytes;
	void *desc = make(&bytes);
	struct describe_view view = describe_view(desc);
	char message[PLAN_MESSAGE_BYTES];
	struct plan *plan;

	view.nodes[1].first_in = 2; /* the edge that node 0 writes */
	assert_int_equal(plan_new(desc, bytes, &one_op_arenas, message, &plan), 0);
	plan_free(plan);
	free(desc);
}

/* Names of maximum length are quoted in full and fit into the message. */
TEST(test_parse__longest_names)
{
	struct describe *d = describe_new("0123456789abcdef0123456789abcde", 1);

	describe_input(d, "x123456789abcdef0123456789abcde", DESCRIBE_DIMS(1, 2, 3, 4, 5, 6, 7, 8));
	describe_input(d, "w123456789abcdef0123456789abcde", DESCRIBE_DIMS(1, 2, 3, 4, 5, 6, 9, 8));
	describe_output(d, "y123456789abcdef0123456789abcde", DESCRIBE_DIMS(2));
	describe_node(d, "MatMul", "n123456789abcdef0123456789abcde",
		      "x123456789abcdef0123456789abcde,w123456789abcdef0123456789abcde",
		      "y123456789abcdef0123456789abcde");
	expect_refused(d, "node 0 \"n123456789abcdef0123456789abcde\"",
		       "\"x123456789abcdef0123456789abcde\"", "\"w123456789abcdef0123456789abcde\"",
		       "inner dimensions 8 and 9, expected equal ones");
}
