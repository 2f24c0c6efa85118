/* SPDX-License-Identifier: MIT */
/*
 * The builder: each mistake has its own message, and the broker reads every description that it
 * makes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail-alloc.h"
#include "plan/executor.h"
#include "plan/plan.h"
#include "shm/plan-wire.h"
#include "support/client-fixture.h"
#include "support/test.h"

#define F32  RBK_DTYPE_F32
#define NONE RBK_TENSOR_NONE

static const uint32_t dims_4[] = {4};
static const uint32_t dims_n_8[] = {RBK_DIM_COUNT, 8};
static const uint32_t dims_8_3[] = {8, 3};

/* Arenas of constants. The builder and the description read only these members. */
static struct rbk connection, other_connection;
static struct rbk_arena sealed = {.rbk = &connection, .bytes = 4096, .id = 9, .sealed = true};
static struct rbk_arena unsealed = {.rbk = &connection, .bytes = 4096, .id = 8};
static struct rbk_arena foreign = {.rbk = &other_connection, .bytes = 4096, .sealed = true};

/* ---- Mistakes ---- */

static unsigned int input(struct rbk_builder *b)
{
	return rbk_builder_input(b, "x", F32, 1, dims_4);
}

static void tensor_without_name(struct rbk_builder *b)
{
	rbk_builder_input(b, "", F32, 1, dims_4);
}

static void tensor_null_name(struct rbk_builder *b)
{
	rbk_builder_output(b, NULL, F32, 1, dims_4);
}

static void tensor_long_name(struct rbk_builder *b)
{
	rbk_builder_state(b, "a23456789b123456789c123456789d12", F32, 1, dims_4);
}

static void tensor_odd_name(struct rbk_builder *b)
{
	rbk_builder_scratch(b, "t\n", F32, 1, dims_4);
}

static void tensor_twice(struct rbk_builder *b)
{
	input(b);
	rbk_builder_output(b, "x", F32, 1, dims_4);
}

static void tensor_dtype(struct rbk_builder *b)
{
	rbk_builder_input(b, "x", (enum rbk_dtype)4, 1, dims_4);
}

static void tensor_dtype_large(struct rbk_builder *b)
{
	rbk_builder_input(b, "x", (enum rbk_dtype)257, 1, dims_4);
}

static void tensor_rank(struct rbk_builder *b)
{
	const uint32_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

	rbk_builder_input(b, "x", F32, 9, dims);
}

static void tensor_no_dims(struct rbk_builder *b)
{
	rbk_builder_input(b, "x", F32, 2, NULL);
}

static void tensor_inferred_input(struct rbk_builder *b)
{
	rbk_builder_input(b, "x", F32, RBK_RANK_INFERRED, NULL);
}

static void tensor_zero_dim(struct rbk_builder *b)
{
	const uint32_t dims[] = {4, 0};

	rbk_builder_input(b, "x", F32, 2, dims);
}

static void tensor_inner_count(struct rbk_builder *b)
{
	const uint32_t dims[] = {4, RBK_DIM_COUNT};

	rbk_builder_input(b, "x", F32, 2, dims);
}

static void tensor_too_large(struct rbk_builder *b)
{
	const uint32_t dims[] = {1u << 31, 1u << 31, 1u << 31};

	rbk_builder_input(b, "x", F32, 3, dims);
}

static void tensor_65th(struct rbk_builder *b)
{
	char name[8];

	for (int i = 0; i < 65; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		if (i % 3 == 0)
			rbk_builder_input(b, name, F32, 1, dims_4);
		else if (i % 3 == 1)
			rbk_builder_output(b, name, F32, 1, dims_4);
		else
			rbk_builder_state(b, name, F32, 1, dims_4);
	}
}

static void tensor_4097th(struct rbk_builder *b)
{
	char name[8];

	for (int i = 0; i < 4097; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		rbk_builder_scratch(b, name, F32, 1, dims_4);
	}
}

static void constant_nowhere(struct rbk_builder *b)
{
	rbk_builder_constant(b, "w", F32, 1, dims_4, NULL, 0);
}

static void constant_misaligned(struct rbk_builder *b)
{
	rbk_builder_constant(b, "w", F32, 1, dims_4, &sealed, 32);
}

static void constant_beyond(struct rbk_builder *b)
{
	const uint32_t dims[] = {1024};

	rbk_builder_constant(b, "w", F32, 1, dims, &sealed, 64);
}

static void constant_dynamic(struct rbk_builder *b)
{
	rbk_builder_constant(b, "w", F32, 2, dims_n_8, &sealed, 0);
}

static void node_no_op(struct rbk_builder *b)
{
	rbk_builder_unary(b, "", 0, 0);
}

static void node_name(struct rbk_builder *b)
{
	unsigned int x = input(b);

	rbk_builder_node(b, "Relu", "\x7f", &x, 1, &x, 1);
}

static void node_unknown_input(struct rbk_builder *b)
{
	rbk_builder_binary(b, "Add", input(b), 7, 0);
}

static void node_unknown_output(struct rbk_builder *b)
{
	rbk_builder_unary(b, "Relu", input(b), 7);
}

static void node_reads_unwritten(struct rbk_builder *b)
{
	unsigned int t = rbk_builder_scratch(b, "t", F32, RBK_RANK_INFERRED, NULL);
	unsigned int y = rbk_builder_output(b, "y", F32, RBK_RANK_INFERRED, NULL);

	rbk_builder_unary(b, "Relu", t, y);
}

static void node_writes_input(struct rbk_builder *b)
{
	unsigned int x = input(b);

	rbk_builder_node(b, "Relu", "act", &x, 1, &x, 1);
}

static void node_writes_constant(struct rbk_builder *b)
{
	rbk_builder_unary(b, "Relu", input(b),
			  rbk_builder_constant(b, "w", F32, 1, dims_4, &sealed, 0));
}

static void node_writes_twice(struct rbk_builder *b)
{
	unsigned int x = input(b), y = rbk_builder_output(b, "y", F32, 1, dims_4);

	rbk_builder_unary(b, "Relu", x, y);
	rbk_builder_unary(b, "Relu", x, y);
}

static void node_writes_nothing(struct rbk_builder *b)
{
	rbk_builder_unary(b, "Relu", input(b), NONE);
}

static void node_null_inputs(struct rbk_builder *b)
{
	unsigned int y = rbk_builder_output(b, "y", F32, 1, dims_4);

	rbk_builder_node(b, "Relu", NULL, NULL, 1, &y, 1);
}

static unsigned int relu(struct rbk_builder *b)
{
	return rbk_builder_unary(b, "Relu", input(b), rbk_builder_output(b, "y", F32, 1, dims_4));
}

static void attr_no_node(struct rbk_builder *b)
{
	rbk_builder_attr_int(b, 3, "axis", 1);
}

static void attr_no_name(struct rbk_builder *b)
{
	rbk_builder_attr_float(b, relu(b), NULL, 1);
}

static void attr_twice(struct rbk_builder *b)
{
	unsigned int node = relu(b);

	rbk_builder_attr_int(b, node, "axis", 1);
	rbk_builder_attr_float(b, node, "axis", 1);
}

static void attr_no_values(struct rbk_builder *b)
{
	rbk_builder_attr_ints(b, relu(b), "pads", NULL, 4);
}

static void attr_no_string(struct rbk_builder *b)
{
	rbk_builder_attr_string(b, relu(b), "mode", NULL);
}

static void pin_nowhere(struct rbk_builder *b)
{
	rbk_builder_pin_device(b, 16);
}

/* Mistakes that are found at the end, when a plan is made. */

static void no_node(struct rbk_builder *b)
{
	input(b);
}

static void output_unwritten(struct rbk_builder *b)
{
	relu(b);
	rbk_builder_output(b, "z", F32, 1, dims_4);
}

static void constant_unsealed(struct rbk_builder *b)
{
	relu(b);
	rbk_builder_constant(b, "w", F32, 1, dims_4, &unsealed, 0);
}

static void constant_foreign(struct rbk_builder *b)
{
	relu(b);
	rbk_builder_constant(b, "w", F32, 1, dims_4, &foreign, 0);
}

static void count_without_dimension(struct rbk_builder *b)
{
	relu(b);
}

static void count_too_large(struct rbk_builder *b)
{
	const uint32_t dims[] = {RBK_DIM_COUNT, 1u << 30, 64};

	relu(b);
	rbk_builder_input(b, "n", F32, 3, dims);
}

TEST(test_builder__mistakes)
{
	static const struct {
		void (*make)(struct rbk_builder *builder);
		const char *sentence;
		bool at_end;
	} cases[] = {
		{tensor_without_name, "the name of tensor 0, an input, is empty"},
		{tensor_null_name, "the name of tensor 0, an output, is empty"},
		{tensor_long_name, "the name of tensor 0, a state, is longer than 31 bytes"},
		{tensor_odd_name, "the name of tensor 0, a scratch tensor, is not printable ASCII"},
		{tensor_twice, "two tensors have the name \"x\""},
		{tensor_dtype, "tensor \"x\": there is no element type 4"},
		{tensor_dtype_large, "tensor \"x\": there is no element type 257"},
		{tensor_rank, "tensor \"x\": an input cannot have rank 9; ranks are 0 to 8"},
		{tensor_no_dims,
		 "tensor \"x\": an input cannot have rank 2; ranks are 0 to 8, with "
		 "dimensions"},
		{tensor_inferred_input,
		 "tensor \"x\": an input cannot have rank -1; ranks are 0 to 8"},
		{tensor_zero_dim, "tensor \"x\": dimension 1 is 0"},
		{tensor_inner_count,
		 "tensor \"x\": dimension 1 cannot be RBK_DIM_COUNT; only dimension 0 of a tensor "
		 "that is not a constant can"},
		{tensor_too_large, "tensor \"x\" is larger than the largest arena"},
		{tensor_65th, "tensor \"t64\": a plan has at most 64 inputs, outputs and states"},
		{tensor_4097th, "a plan has at most 4096 tensors"},
		{constant_nowhere, "constant \"w\" lies in no arena"},
		{constant_misaligned, "constant \"w\": offset 32 is not a multiple of 64"},
		{constant_beyond,
		 "constant \"w\": 4096 bytes at offset 64 end beyond an arena of 4096 "
		 "bytes"},
		{constant_dynamic,
		 "tensor \"w\": dimension 0 cannot be RBK_DIM_COUNT; only dimension 0 of a tensor "
		 "that is not a constant can"},
		{node_no_op, "node 0: the operator's name is empty"},
		{node_name, "node 0 (Relu): its name is not printable ASCII"},
		{node_unknown_input, "node 0 (Add): input 1 is tensor 7, which does not exist"},
		{node_unknown_output, "node 0 (Relu): output 0 is tensor 7, which does not exist"},
		{node_reads_unwritten,
		 "node 0 (Relu): input 0, \"t\", is not written by an earlier node"},
		{node_writes_input,
		 "node 0 (Relu \"act\"): output 0, \"x\", is an input and cannot be written"},
		{node_writes_constant,
		 "node 0 (Relu): output 0, \"w\", is a constant and cannot be written"},
		{node_writes_twice, "node 1 (Relu): output 0, \"y\", is written twice"},
		{node_writes_nothing, "node 0 (Relu): it has no outputs"},
		{node_null_inputs,
		 "node 0 (Relu): expected arrays of 1 inputs and 1 outputs, with at most 65535 "
		 "elements each"},
		{attr_no_node, "attribute \"axis\": there is no node 3"},
		{attr_no_name, "node 0 (Relu): the name of an attribute is empty"},
		{attr_twice, "node 0 (Relu): attribute \"axis\" is given twice"},
		{attr_no_values, "node 0 (Relu): attribute \"pads\" has no value"},
		{attr_no_string, "node 0 (Relu): attribute \"mode\" has no value"},
		{pin_nowhere, "a plan cannot be pinned to device 16"},
		{no_node, "the plan has no nodes", true},
		{output_unwritten, "no node writes tensor \"z\"", true},
		{constant_unsealed,
		 "constant \"w\" lies in an arena that is not sealed; call rbk_arena_seal() first",
		 true},
		{constant_foreign, "constant \"w\" lies in an arena of another connection", true},
		{count_without_dimension,
		 "no tensor has RBK_DIM_COUNT, so the largest count must be 1 and not 4096", true},
		{count_too_large,
		 "tensor \"n\" is larger than the largest arena at a count of 4096", true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		/*
		 * Mistakes found at the end are made in a dynamic plan, except for
		 * count_without_dimension.
		 */
		bool dynamic = cases[i].make != count_without_dimension;
		struct rbk_builder *b = rbk_builder_new("mistaken");
		struct rbk_error error = {""};
		void *desc = NULL;
		size_t bytes;

		cases[i].make(b);
		if (cases[i].at_end && dynamic)
			rbk_builder_input(b, "dynamic", F32, 2, dims_n_8);
		if (!cases[i].at_end) {
			assert_non_null(rbk_builder_error(b));
			assert_string_equal(rbk_builder_error(b), cases[i].sentence);
			/* The first mistake is kept, and later calls do nothing. */
			assert_int_equal(rbk_builder_input(b, "more", F32, 1, dims_4), NONE);
			rbk_builder_pin_device(b, 99);
			rbk_builder_attr_int(b, 99, "more", 1);
			rbk_builder_unary(b, "More", 99, 99);
			assert_string_equal(rbk_builder_error(b), cases[i].sentence);
		} else {
			assert_null(rbk_builder_error(b));
		}
		assert_int_equal(client_describe(b, &connection, 4096, &desc, &bytes, &error),
				 -EINVAL);
		assert_string_equal(error.text, cases[i].sentence);
		assert_null(desc);
		assert_null(rbk_builder_free(b));
	}
}

TEST(test_builder__name)
{
	struct rbk_builder *b = rbk_builder_new("a name that is longer than it may be");

	assert_string_equal(rbk_builder_error(b), "the plan's name is longer than 31 bytes");
	rbk_builder_free(b);
	b = rbk_builder_new(NULL);
	assert_string_equal(rbk_builder_error(b), "the plan's name is empty");
	rbk_builder_free(b);
	b = rbk_builder_new("");
	assert_null(rbk_builder_error(b));
	rbk_builder_free(b);
	assert_null(rbk_builder_free(NULL));
	/* rbk_builder_new() returns NULL without memory. */
	assert_string_equal(rbk_builder_error(NULL), "out of memory");
	assert_int_equal(rbk_builder_constant(NULL, "w", F32, 1, dims_4, &sealed, 0), NONE);
	rbk_builder_unary(NULL, "Relu", 0, 0);
	rbk_builder_attr_int(NULL, 0, "axis", 1);
	rbk_builder_pin_device(NULL, 0);
}

/* ---- Descriptions ---- */

/* A plan with one of everything. */
static struct rbk_builder *example(void)
{
	const uint32_t dims_3[] = {3};
	const int64_t axes[] = {1};
	struct rbk_builder *b = rbk_builder_new("example");
	unsigned int x = rbk_builder_input(b, "x", F32, 2, dims_n_8);
	unsigned int w = rbk_builder_constant(b, "w", F32, 2, dims_8_3, &sealed, 128);
	unsigned int bias = rbk_builder_constant(b, "bias", F32, 1, dims_3, &sealed, 0);
	unsigned int s = rbk_builder_scratch(b, "scores", F32, RBK_RANK_INFERRED, NULL);
	unsigned int t = rbk_builder_scratch(b, "biased", F32, RBK_RANK_INFERRED, NULL);
	unsigned int values = rbk_builder_output(b, "values", F32, RBK_RANK_INFERRED, NULL);
	unsigned int indices =
		rbk_builder_output(b, "indices", RBK_DTYPE_I64, RBK_RANK_INFERRED, NULL);
	unsigned int sums = rbk_builder_output(b, "sums", F32, RBK_RANK_INFERRED, NULL);
	unsigned int gemm_inputs[] = {x, w, NONE}, outputs[] = {values, indices};
	unsigned int gemm = rbk_builder_node(b, "Gemm", "project", gemm_inputs, 3, &s, 1);
	unsigned int top_k, sum;

	rbk_builder_binary(b, "Add", s, bias, t);
	top_k = rbk_builder_node(b, "TopK", "best", &t, 1, outputs, 2);
	sum = rbk_builder_unary(b, "ReduceSum", t, sums);
	/* Attributes need not follow the order of the nodes. */
	rbk_builder_attr_ints(b, sum, "axes", axes, 1);
	rbk_builder_attr_int(b, top_k, "k", 2);
	rbk_builder_attr_float(b, gemm, "alpha", 0.5f);
	rbk_builder_attr_int(b, sum, "keepdims", 0);
	rbk_builder_attr_int(b, gemm, "transB", 0);
	return b;
}

static struct exec_arena *find_arena(void *context, uint16_t id, const char **ret_why)
{
	*ret_why = "there is no such arena";
	return id == sealed.id ? context : NULL;
}

TEST(test_describe__broker_reads_it)
{
	struct exec_arena arena = {.bytes = 4096, .immutable = true};
	const struct plan_arena_lookup lookup = {find_arena, &arena};
	char message[PLAN_MESSAGE_BYTES] = "";
	struct rbk_builder *b = example();
	struct rbk_error error = {""};
	struct plan *plan = NULL;
	void *desc = NULL;
	size_t bytes;

	assert_null(rbk_builder_error(b));
	assert_int_equal(client_describe(b, &connection, 100, &desc, &bytes, &error), 0);
	if (plan_new(desc, bytes, &lookup, message, &plan))
		fail_msg("%s", message);
	assert_string_equal(plan->name, "example");
	assert_fields(*plan, (max_count, 100), (n_tensors, 8), (n_nodes, 4), (n_bindings, 4));
	assert_false(plan->pinned);
	assert_fields(*plan, (n_constants, 2), (constants[0].offset, 128),
		      (constants[0].bytes, 8 * 3 * 4), (nodes[0].in[0], 0), (nodes[0].in[1], 1));
	assert_string_equal(plan->nodes[0].name, "project");
	assert_true(plan->nodes[0].params.gemm.alpha == 0.5f);
	assert_int_equal(plan->nodes[2].params.top_k.k, 2);
	assert_false(plan->nodes[3].params.reduce.keepdims);
	assert_int_equal(plan->nodes[3].params.reduce.axes, 2);
	/* Inferred shapes: two of three scores for each row, as i64. */
	assert_fields(*plan, (tensors[6].row_bytes, 2 * 8), (tensors[7].row_bytes, 4));
	plan_free(plan);
	free(desc);

	rbk_builder_pin_device(b, 1);
	assert_int_equal(client_describe(b, &connection, 1, &desc, &bytes, &error), 0);
	assert_int_equal(plan_new(desc, bytes, &lookup, message, &plan), 0);
	assert_true(plan->pinned);
	assert_int_equal(plan->pinned_device, 1);
	plan_free(plan);
	free(desc);
	rbk_builder_free(b);
}

/* Every type of attribute, byte by byte. */
TEST(test_describe__attributes)
{
	const float floats[] = {1, 2, 3};
	const int64_t ints[] = {-1, INT64_MAX};
	struct rbk_builder *b = rbk_builder_new("");
	unsigned int node = relu(b);
	const struct rbk_plan_header *header;
	const struct rbk_plan_attr *attrs;
	const uint8_t *blob;
	void *desc;
	size_t bytes;

	rbk_builder_attr_floats(b, node, "floats", floats, 3);
	rbk_builder_attr_string(b, node, "string", "same");
	rbk_builder_attr_ints(b, node, "ints", ints, 2);
	rbk_builder_attr_ints(b, node, "none", NULL, 0);
	assert_null(rbk_builder_error(b));
	assert_int_equal(client_describe(b, &connection, 1, &desc, &bytes, NULL), 0);
	header = desc;
	attrs = (const void *)((const char *)(header + 1) + 2 * sizeof(struct rbk_plan_tensor) +
			       sizeof(struct rbk_plan_node));
	assert_fields(*header, (n_attrs, 4), (blob_bytes, 16 + 8 + 16));
	blob = (const uint8_t *)desc + bytes - header->blob_bytes;
	assert_fields(attrs[0], (type, RBK_ATTR_FLOATS), (n, 3));
	assert_memory_equal(blob + attrs[0].blob_offset, floats, sizeof(floats));
	assert_fields(attrs[1], (type, RBK_ATTR_STRING), (n, 4));
	assert_memory_equal(blob + attrs[1].blob_offset, "same\0\0\0", 8);
	assert_int_equal(attrs[2].type, RBK_ATTR_INTS);
	assert_memory_equal(blob + attrs[2].blob_offset, ints, sizeof(ints));
	assert_int_equal(attrs[3].n, 0);
	assert_string_equal(attrs[3].name, "none");
	free(desc);
	rbk_builder_free(b);
}

/* Return a chain of @n Relu nodes. */
static struct rbk_builder *chain(unsigned int n)
{
	struct rbk_builder *b = rbk_builder_new("chain");
	unsigned int last = input(b);
	char name[16];

	for (unsigned int i = 0; i < n; i++) {
		unsigned int next;

		snprintf(name, sizeof(name), "t%u", i);
		next = i == n - 1 ? rbk_builder_output(b, name, F32, RBK_RANK_INFERRED, NULL)
				  : rbk_builder_scratch(b, name, F32, RBK_RANK_INFERRED, NULL);
		rbk_builder_unary(b, "Relu", last, next);
		last = next;
	}
	return b;
}

/*
 * Small descriptions travel in the message, large ones in a memfd. The fake broker returns the
 * bytes that it received.
 */
TEST(test_plan__large)
{
	static const unsigned int sizes[] = {1, 300, 380, 4000};

	FIXTURE(fixture, NULL);
	for (size_t i = 0; i < 4; i++) {
		struct rbk_builder *b = chain(sizes[i]);
		struct rbk_plan_info info;
		struct rbk_plan *plan;

		assert_int_equal(rbk_plan_new(fixture.rbk, b, 1, &plan, &fixture.error), 0);
		rbk_plan_info(plan, &info);
		assert_fields(info, (id, rbk_plan_id(plan)), (devices, 1), (n_refs, 2),
			      (max_count, 1));
		assert_true(info.flops_row >= sizes[i] * 168);
		assert_int_equal(info.flops_fixed, info.flops_row > 65520 ? RBK_WIRE_PLAN_FD : 0);
		assert_null(rbk_plan_free(plan));
		rbk_builder_free(b);
	}
	assert_null(rbk_plan_free(NULL));
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

TEST(test_plan__too_large)
{
	static float values[1 << 18];
	struct rbk_builder *b = rbk_builder_new("");
	unsigned int node = relu(b);
	struct rbk_error error;
	char name[8];
	void *desc;
	size_t bytes;

	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		rbk_builder_attr_floats(b, node, name, values, 1 << 18);
	}
	assert_null(rbk_builder_error(b));
	assert_int_equal(client_describe(b, &connection, 1, &desc, &bytes, &error), -E2BIG);
	assert_non_null(strstr(error.text, "at most 2097152"));
	rbk_builder_attr_floats(b, node, "huge", values, 1u << 31);
	assert_string_equal(rbk_builder_error(b), "node 0 (Relu): attribute \"huge\" is too large");
	rbk_builder_free(b);
}

/* The broker keeps an arena that plans use: it can be removed when the last plan is gone. */
TEST(test_plan__outlives_arena)
{
	struct rbk_builder *b = rbk_builder_new("constants");
	struct rbk_plan *plans[2];
	struct rbk_arena *arena;
	unsigned int w, v, y;

	FIXTURE(fixture, NULL);
	assert_int_equal(rbk_arena_new(fixture.rbk, 4096, &arena, NULL), 0);
	assert_int_equal(rbk_arena_seal(arena, NULL), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 1);
	w = rbk_builder_constant(b, "w", F32, 1, dims_4, arena, 0);
	v = rbk_builder_constant(b, "v", F32, 1, dims_4, arena, 64);
	y = rbk_builder_output(b, "y", F32, 1, dims_4);
	rbk_builder_binary(b, "Add", w, v, y);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rbk_plan_new(fixture.rbk, b, 1, &plans[i], NULL), 0);
	rbk_builder_free(b);
	rbk_arena_free(arena);
	/* The client's mapping is gone, but not the broker's. */
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 1);
	rbk_plan_free(plans[0]);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 1);
	rbk_plan_free(plans[1]);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_ARENA_REMOVE), 2);
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

TEST(test_plan__refused)
{
	struct fake_options options = {.fault = FAKE_REFUSE, .fault_type = RBK_WIRE_PLAN_ADD};
	struct rbk_builder *b = chain(1);
	struct rbk_plan *plan;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_plan_new(fixture.rbk, NULL, 1, &plan, &fixture.error), -ENOMEM);
	assert_int_equal(rbk_plan_new(fixture.rbk, b, 0, &plan, &fixture.error), -EINVAL);
	assert_string_equal(fixture.error.text, "the largest count cannot be 0");
	assert_int_equal(rbk_plan_new(fixture.rbk, b, 1, &plan, &fixture.error), -EDQUOT);
	assert_string_equal(fixture.error.text, "that is too much");
	/* The builder can be used again. */
	assert_int_equal(rbk_plan_new(fixture.rbk, b, 1, &plan, &fixture.error), 0);
	rbk_plan_free(plan);
	rbk_builder_free(b);
}

/* Any allocation may fail: the builder reports it, and a description is complete or absent. */
TEST(test_builder__no_memory)
{
	unsigned int n_failures = 0;

	for (unsigned int n = 1;; n++) {
		struct rbk_builder *b;
		struct rbk_error error;
		void *desc = NULL;
		size_t bytes;
		int r;

		fail_alloc_at(n);
		b = example();
		r = b ? client_describe(b, &connection, 100, &desc, &bytes, &error) : -ENOMEM;
		if (!fail_alloc_stop()) {
			assert_int_equal(r, 0);
			free(desc);
			rbk_builder_free(b);
			break;
		}
		n_failures++;
		assert_int_equal(r, -ENOMEM);
		assert_null(desc);
		rbk_builder_free(b);
	}
	assert_true(n_failures >= 7);
}
