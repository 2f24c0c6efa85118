/* SPDX-License-Identifier: MIT */
/*
 * Tests of libclient/onnx: single nodes with rare inputs and attributes
 *
 * Each case is a model of one node, in a short notation, with the expected types, shapes and value
 * of its outputs.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail-alloc.h"
#include "libclient/onnx/eval.h"
#include "support/onnx-model.h"
#include "support/test.h"

/*
 * Inputs: types with shapes, and lists of constants: "f32[2,0] {1,2}"; "-" is an absent input.
 * Attributes: "axis=1 pads=0,1 mode=reflect". Outputs as inputs, or words of the refusal.
 */
struct one_node {
	const char *op;
	int64_t opset;
	const char *inputs, *attrs, *outputs;
	double value; /* value of each element, if the output has elements */
};

static struct onnx_model made;
static struct rbk_onnx *model;
static struct rbk_error error;

static const struct {
	const char *name;
	int dtype;
} types[] = {{"f32", RBK_ONNX_F32},  {"f16", RBK_ONNX_F16}, {"i64", RBK_ONNX_I64},
	     {"i32", RBK_ONNX_I32},  {"i8", RBK_ONNX_I8},   {"u8", RBK_ONNX_U8},
	     {"bool", RBK_ONNX_BOOL}};

static int type_of(const char *text)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strncmp(types[i].name, text, strcspn(text, "[")))
			return types[i].dtype;
	fail_msg("no type in \"%s\"", text);
	return 0;
}

static unsigned int read_list(const char *text, int64_t *ret)
{
	unsigned int n = 0;
	char *end;

	while (*text && !strchr("]}", *text)) {
		ret[n++] = strtoll(text, &end, 10);
		text = end + (*end == ',');
	}
	return n;
}

static void add_attr(Onnx__NodeProto *node, char *text)
{
	char *value = strchr(text, '=');
	int64_t list[16];

	*value++ = 0;
	if (strchr("-0123456789", *value) && strchr(value, '.'))
		onnx_model_attr_float(&made, node, text, strtof(value, NULL));
	else if (strchr("-0123456789", *value) && !strchr(value, ','))
		onnx_model_attr_int(&made, node, text, atoll(value));
	else if (strchr("-0123456789", *value))
		onnx_model_attr_ints(&made, node, text, read_list(value, list), list);
	else
		onnx_model_attr_string(&made, node, text, value);
}

static bool is_refusal(const struct one_node *one)
{
	return !strchr(one->outputs, '[');
}

static bool has_two(const struct one_node *one)
{
	return !is_refusal(one) && strchr(one->outputs, ' ');
}

static void load(const struct one_node *one)
{
	char names[64] = "", text[256], *save, *word;
	static char in_names[8][2];
	Onnx__NodeProto *node;
	const uint8_t *bytes;
	unsigned int n_in = 0;
	size_t n_bytes;

	onnx_model_init(&made, one->opset);
	snprintf(text, sizeof(text), "%s", one->inputs);
	for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save), n_in++) {
		int64_t list[16];

		in_names[n_in][0] = *word == '-' ? '-' : (char)('a' + n_in);
		strcat(strcat(names, n_in ? " " : ""), in_names[n_in]);
		if (*word == '{')
			onnx_model_ints(&made, in_names[n_in], read_list(word + 1, list), list);
		else if (*word != '-')
			onnx_model_input(&made, in_names[n_in], type_of(word),
					 read_list(strchr(word, '[') + 1, list), list);
	}
	node = onnx_model_node(&made, one->op, names, has_two(one) ? "y z" : "y");
	snprintf(text, sizeof(text), "%s", one->attrs);
	for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
		add_attr(node, word);
	onnx_model_output(&made, "y");
	if (node->n_output > 1)
		onnx_model_output(&made, "z");
	bytes = onnx_model_pack(&made, &n_bytes);
	if (rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error))
		fail_msg("%s: %s", one->op, error.text);
	onnx_model_deinit(&made);
}

/* Write the type and shape of value @name to @ret, as "f32[2,0]", and find its constant. */
static void describe(const char *name, char ret[128], const struct constant **ret_constant)
{
	const struct tensor *tensor = NULL;
	char shape[SHAPE_TEXT_BYTES];

	for (uint32_t i = 0; i < model->n_values; i++)
		if (!strcmp(model->values[i].name, name))
			tensor = model->graph->values[i];
	assert_non_null(tensor);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].dtype == tensor->dtype)
			snprintf(ret, 128, "%s%s", types[i].name,
				 shape_print(&tensor->shape, shape));
	*ret_constant = tensor->constant;
}

/* Compile the model, failing each allocation in turn first. */
static int compile(void)
{
	int r;

	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_onnx_compile(model, NULL, &error);
		if (!fail_alloc_stop())
			return r;
		assert_int_equal(r, -ENOMEM);
	}
}

/*
 * Compile the model and expect a refusal, or outputs, as @one says.
 * Return: the constant of the first output, or NULL if it is not known.
 */
static const struct constant *check_outputs(const struct one_node *one)
{
	char found[2][128], text[300];
	const struct constant *constant = NULL;
	int r;

	load(one);
	r = compile();
	if (is_refusal(one)) {
		if (r != -EOPNOTSUPP || !strstr(error.text, one->outputs))
			fail_msg("%s of %s: %d \"%s\", expected \"%s\"", one->op, one->inputs, r,
				 error.text, one->outputs);
		return NULL;
	}
	if (r)
		fail_msg("%s of %s: %s", one->op, one->inputs, error.text);
	if (has_two(one))
		describe("z", found[1], &constant);
	describe("y", found[0], &constant);
	snprintf(text, sizeof(text), "%s%s%s", found[0], has_two(one) ? " " : "",
		 has_two(one) ? found[1] : "");
	if (strcmp(text, one->outputs))
		fail_msg("%s of %s is %s, expected %s", one->op, one->inputs, text, one->outputs);
	return constant;
}

static void check_value(const struct one_node *one, const struct constant *constant)
{
	for (uint64_t i = 0; i < constant->n_elems; i++) {
		const double value = eval_load(constant->dtype, constant->data, i);

		if (value != one->value && !(isnan(value) && isnan(one->value)))
			fail_msg("%s of %s: %g, expected %g", one->op, one->inputs, value,
				 one->value);
	}
}

static void check(const struct one_node *one)
{
	const struct constant *constant = check_outputs(one);

	if (!is_refusal(one)) {
		/* The plan has one step per output and no other steps. */
		assert_int_equal(rbk_onnx_n_bound(model), rbk_onnx_n_steps(model));
		assert_non_null(constant);
		check_value(one, constant);
	}
	model = rbk_onnx_free(model);
}

static void check_all(const struct one_node *ones, size_t n)
{
	for (size_t i = 0; i < n; i++)
		check(&ones[i]);
}

#define CHECK_ALL(ones) check_all(ones, sizeof(ones) / sizeof((ones)[0]))

/* ---- Tensors without elements ---- */

TEST(test_elementwise)
{
	static const struct one_node ones[] = {
		{"Relu", 13, "f32[2,0]", "", "f32[2,0]"},
		{"IsNaN", 13, "f16[0]", "", "bool[0]"},
		{"Cast", 13, "f32[0,3]", "to=7", "i64[0,3]"},
		{"Clip", 13, "i8[0]", "", "i8[0]"},
		{"Add", 13, "f32[2,0] f32[2,1]", "", "f32[2,0]"},
		{"Add", 13, "f32[1] i64[0]", "", "float32"},
		{"Relu", 13, "bool[1]", "", "float16, float64, bfloat16;"},
		{"Add", 13, "f32[3] f32[0]", "", "has no elements, for which Add is not defined"},
		{"Less", 13, "f32[3,1,1] f32[0,4]", "", "bool[3,0,4]"},
		{"Where", 16, "bool[0] f32[1] f32[]", "", "f32[0]"},
		{"PRelu", 16, "f32[2,0] f32[1]", "", "f32[2,0]"},
		{"Sum", 13, "f32[0,1] f32[3] f32[1]", "", "f32[0,3]"},
		{"Mean", 13, "f32[0] f32[1]", "", "f32[0]"},
		{"Gelu", 20, "f32[0]", "approximate=tan", "approximate"},
	};

	CHECK_ALL(ones);
}

TEST(test_products)
{
	static const struct one_node ones[] = {
		{"MatMul", 13, "f32[2,0] f32[0,3]", "", "f32[2,3]", 0},
		{"MatMul", 13, "f32[0,4] f32[4,3]", "", "f32[0,3]"},
		{"MatMul", 13, "f32[5,1,2,0] f32[7,0,3]", "", "f32[5,7,2,3]", 0},
		{"MatMul", 13, "f32[0] f32[0]", "", "f32[]", 0},
		{"MatMul", 13, "f32[4] f32[2,4,0]", "", "f32[2,0]"},
		{"MatMul", 13, "f32[2,0] f32[1,3]", "", "has no elements"},
		{"MatMulInteger", 10, "u8[2,0] i8[0,3]", "", "i32[2,3]", 0},
		{"Gemm", 13, "f32[0,4] f32[4,3] f32[3]", "", "f32[0,3]"},
		{"Gemm", 13, "f32[0,4] f32[3,0]", "transA=1 transB=1", "f32[4,3]", 0},
		{"Gemm", 13, "f32[2,4] f32[3,0]", "transB=1", "has no elements"},
		{"Conv", 11, "f32[0,3,8,8] f32[2,3,3,3]", "pads=1,1,0,0", "f32[0,2,7,7]"},
		{"Conv", 11, "f32[1,0,8,8] f32[2,0,3,3]", "", "has no elements"},
		{"Conv", 11, "f32[0,3,8,8] f32[2,4,3,3]", "", "channels"},
		{"MaxPool", 12, "f32[0,3,8,8]", "kernel_shape=2,2 strides=2,2",
		 "f32[0,3,4,4] i64[0,3,4,4]"},
		{"GlobalAveragePool", 12, "f32[0,3,8,8]", "", "f32[0,3,1,1]"},
		{"Softmax", 13, "f32[0,3]", "", "f32[0,3]"},
		{"Softmax", 11, "f32[4,0,3]", "", "f32[4,0,3]"},
		{"LayerNormalization", 17, "f32[0,3] f32[3]", "", "f32[0,3]"},
		{"CumSum", 14, "f32[0] {0}", "", "f32[0]"},
		{"LRN", 13, "f32[2,0,3]", "size=3", "f32[2,0,3]"},
		{"Hardmax", 13, "f32[2,0]", "", "f32[2,0]"},
		{"MeanVarianceNormalization", 13, "f32[2,0]", "axes=0,1", "f32[2,0]"},
		{"BatchNormalization", 15, "f32[0,3] f32[3] f32[3] f32[3] f32[3]", "", "f32[0,3]"},
		{"BatchNormalization", 7, "f32[0,3] f32[3] f32[3] f32[3] f32[3]", "spatial=0",
		 "f32[0,3]"},
		{"BatchNormalization", 7, "f32[0,3,4] f32[3] f32[3] f32[3] f32[3]", "spatial=0",
		 "it normalises every element on its own (spatial is 0)"},
	};

	CHECK_ALL(ones);
}

/* A Gemm over zero terms yields its bias. */
TEST(test_products__bias)
{
	const struct one_node one = {"Gemm", 13, "f32[2,0] f32[0,3] f32[3]", "", "f32[2,3]"};
	struct rbk_onnx_step step;

	load(&one);
	assert_int_equal(rbk_onnx_compile(model, NULL, &error), 0);
	assert_int_equal(rbk_onnx_n_bound(model), 2);
	assert_int_equal(rbk_onnx_step(model, rbk_onnx_n_steps(model) - 1, &step), 0);
	assert_string_equal(step.op, "Add");
	model = rbk_onnx_free(model);
}

TEST(test_moves)
{
	static const struct one_node ones[] = {
		{"Transpose", 13, "f32[2,0,3]", "perm=2,0,1", "f32[3,2,0]"},
		{"Reshape", 13, "f32[0,4] {2,0}", "", "cannot be reshaped to its shape"},
		{"Reshape", 13, "f32[0,4] {0,2,2}", "", "f32[0,2,2]"},
		{"Reshape", 13, "f32[0,4] {-1,2}", "", "f32[0,2]"},
		{"Reshape", 13, "f32[0,4] {0,-1}", "", "cannot be reshaped to its shape"},
		{"Reshape", 14, "f32[0,4] {7,0}", "allowzero=1", "f32[7,0]"},
		{"Reshape", 13, "f32[3,0] {3,0}", "", "f32[3,0]"},
		{"Flatten", 13, "f32[0,4,2]", "", "f32[0,8]"},
		{"Squeeze", 13, "f32[0,1] {1}", "", "f32[0]"},
		{"Unsqueeze", 13, "f32[0] {0}", "", "f32[1,0]"},
		{"Slice", 13, "f32[4] {3} {1}", "", "f32[0]"},
		{"Slice", 13, "f32[0,4] {0} {2} {1}", "", "f32[0,2]"},
		{"Split", 13, "f32[0,4] {1,3}", "axis=1", "f32[0,1] f32[0,3]"},
		{"Split", 13, "f32[0] {0,0}", "", "f32[0] f32[0]"},
		{"Concat", 13, "f32[0,2] f32[0,3]", "axis=1", "f32[0,5]"},
		{"Concat", 13, "f32[0,2] f32[0,2]", "axis=0", "f32[0,2]"},
		{"Concat", 13, "f32[0,2] f32[4,3]", "axis=0", "\"a\" is float32"},
		{"Concat", 13, "i64[0,3] f32[4,3]", "axis=0", "\"a\" is int64"},
		{"Expand", 13, "f32[3,1] {3,0}", "", "f32[3,0]"},
		{"Expand", 13, "f32[0] {2,1}", "", "f32[2,0]"},
		{"Expand", 13, "f32[3] {0}", "", "does not expand"},
		{"Tile", 13, "f32[3,2] {0,5}", "", "f32[0,10]"},
		{"Tile", 13, "f32[0,2] {3,5}", "", "f32[0,10]"},
		{"Tile", 13, "f32[3,2] {0,2147483647}", "", "it repeats dimension 1"},
		{"Pad", 13, "f32[0,2] {1,0,2,1}", "", "f32[3,3]", 0},
		{"Pad", 13, "i64[0,2] {0,1,0,1}", "", "i64[0,4]"},
		{"Pad", 13, "f32[0,2] {1,0,2,1}", "mode=edge", "has no elements"},
		{"Pad", 13, "f32[0,2] {-1,0,0,1}", "", "has no elements"},
		{"DepthToSpace", 13, "f32[0,4,3,3]", "blocksize=2", "f32[0,1,6,6]"},
		{"Trilu", 14, "f32[0,3]", "", "f32[0,3]"},
		{"Size", 13, "f32[0,3]", "", "i64[]", 0},
	};

	CHECK_ALL(ones);
}

TEST(test_indices)
{
	static const struct one_node ones[] = {
		{"Gather", 13, "f32[4,3] i64[0]", "", "f32[0,3]"},
		{"Gather", 13, "f32[4,0] i64[2]", "", "f32[2,0]"},
		{"Gather", 13, "f32[0,4] i64[2]", "", "has no elements"},
		{"Gather", 13, "f32[0,4] i64[0]", "", "f32[0,4]"},
		{"Gather", 13, "f32[4,3] f32[0]", "", "float32"},
		{"GatherElements", 13, "f32[4,3] i64[0,3]", "", "f32[0,3]"},
		{"GatherND", 13, "f32[4,3] i64[0,1]", "", "f32[0,3]"},
		{"GatherND", 13, "f32[4,3] i64[2,0]", "", "has no elements"},
		{"TopK", 11, "f32[4,3] {0}", "", "f32[4,0] i64[4,0]"},
		{"TopK", 11, "f32[0,3] {2}", "", "f32[0,2] i64[0,2]"},
		{"TopK", 11, "f32[0,3] {4}", "", "has no elements"},
		{"TopK", 11, "i64[4,3] {0}", "", "i64[4,0] i64[4,0]"},
		{"ArgMax", 13, "f32[0,3]", "axis=1 keepdims=0", "i64[0]"},
		{"ArgMax", 13, "f32[0,3]", "axis=0", "has no elements"},
		{"OneHot", 11, "i64[0] {4} f32[2]", "axis=0", "f32[4,0]"},
	};

	CHECK_ALL(ones);
}

/* Opset 20 has other names of modes than opset 16. */
TEST(test_grid_sample)
{
	static const struct one_node ones[] = {
		{"GridSample", 16, "f32[1,2,3,4] f32[1,5,6,2]", "mode=bicubic", "f32[1,2,5,6]"},
		{"GridSample", 20, "f32[1,2,3,4,5] f32[1,6,7,8,3]", "mode=linear",
		 "f32[1,2,6,7,8]"},
		{"GridSample", 20, "f32[1,2,3,4,5] f32[1,6,7,8,3]", "mode=cubic", "4 dimensions"},
		{"GridSample", 16, "f32[1,2,3,4] f32[1,0,6,2]", "", "has no elements"},
		{"GridSample", 15, "f32[1,2,3,4] f32[1,5,6,2]", "", "exists only from opset 16 on"},
	};

	for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
		check_outputs(&ones[i]);
		model = rbk_onnx_free(model);
	}
}

/* ScatterND leaves elements without an update unchanged. */
TEST(test_indices__scatter)
{
	const struct one_node one = {"ScatterND", 18, "f32[4] i64[0,1] f32[0]", "", "f32[4]"};
	struct rbk_onnx_step step;

	load(&one);
	assert_int_equal(rbk_onnx_compile(model, NULL, &error), 0);
	assert_int_equal(rbk_onnx_n_bound(model), 2);
	assert_int_equal(rbk_onnx_n_steps(model), 1);
	assert_int_equal(rbk_onnx_step(model, 0, &step), 0);
	assert_string_equal(step.op, "Reshape");
	model = rbk_onnx_free(model);
}

TEST(test_reductions)
{
	static const struct one_node ones[] = {
		{"ReduceSum", 13, "f32[0,3] {0}", "keepdims=0", "f32[3]", 0},
		{"ReduceSum", 13, "f32[0,3] {1}", "keepdims=0", "f32[0]"},
		{"ReduceMax", 20, "i32[0]", "", "i32[1]", INT32_MIN},
		{"ReduceMin", 20, "u8[0]", "", "u8[1]", 255},
		{"ReduceMean", 18, "f32[0]", "", "f32[1]", NAN},
		{"ReduceL1", 18, "i32[0]", "", "i32[1]", 0},
		{"ReduceLogSum", 18, "i32[0]", "", "has no elements"},
		/* Along no axes, only the operation on single elements remains. */
		{"ReduceL1", 18, "f32[2,0]", "noop_with_empty_axes=1", "f32[2,0]"},
		{"ReduceLogSum", 18, "f16[0] {}", "noop_with_empty_axes=1", "f16[0]"},
		{"ReduceL1", 18, "{-3}", "noop_with_empty_axes=1", "i64[1]", 3},
		{"ReduceL2", 18, "{-3} {}", "noop_with_empty_axes=1", "i64[1]", 3},
		{"ReduceSumSquare", 18, "{-3}", "noop_with_empty_axes=1", "i64[1]", 9},
		{"ReduceProd", 18, "{-3} {}", "noop_with_empty_axes=1", "i64[1]", -3},
		{"ReduceLogSum", 18, "{3}", "noop_with_empty_axes=1", "int64"},
	};

	CHECK_ALL(ones);
}

/* Operators on integers, whether the catalogue has them or they are composed of several nodes. */
TEST(test_integers)
{
	static const struct one_node ones[] = {
		{"TopK", 24, "i64[4] {3}", "sorted=0", "i64[3] i64[3]"},
		{"TopK", 11, "i8[4,3] {2}", "axis=0 largest=0", "i8[2,3] i64[2,3]"},
		{"TopK", 11, "bool[4] {3}", "", "bool"},
		{"MatMul", 13, "i32[2,3] i32[3,4]", "", "i32[2,4]"},
		{"MatMul", 13, "i64[5,1,2,3] i64[7,3,4]", "", "i64[5,7,2,4]"},
		{"MatMul", 13, "i64[3] i64[7,3,4]", "", "i64[7,4]"},
		{"MatMul", 13, "i32[7,2,3] i32[3]", "", "i32[7,2]"},
		{"MatMul", 13, "{1,-2,3} {4,5,6}", "", "i64[]", 12},
		{"MatMul", 13, "i32[2,3] i32[4,3]", "", "int32"},
		{"MatMul", 13, "i32[2000,2000] i32[2000,2000]", "", "int32"},
		{"MatMul", 13, "i8[2,3] i8[3,4]", "", "int8"},
		{"Gemm", 13, "i32[4,2] i32[3,4] i32[3]", "transA=1 transB=1", "i32[2,3]"},
		{"Gemm", 13, "i64[2,4] i64[4,3] i64[3]", "alpha=2. beta=-3.", "i64[2,3]"},
		{"Gemm", 13, "i64[2,4] i64[4,3]", "alpha=0.5", "int64"},
		{"ReduceMean", 18, "i32[3,4] {1}", "", "i32[3,1]"},
		{"ReduceSumSquare", 18, "i64[3,4] {1}", "", "i64[3,1]"},
		{"ReduceL1", 18, "i32[3,4] {1}", "keepdims=0", "i32[3]"},
		{"ReduceL2", 18, "i32[3,4] {1}", "", "i32[3,1]"},
		{"ReduceLogSum", 18, "i64[3,4]", "", "i64[1,1]"},
		{"ReduceLogSumExp", 18, "i32[3,4] {0}", "keepdims=0", "i32[4]"},
		{"ReduceMean", 18, "{-7,2}", "", "i64[1]", -2},
		{"ReduceSumSquare", 18, "{-3,4}", "", "i64[1]", 25},
		{"ReduceL1", 18, "{-3,4}", "", "i64[1]", 7},
		{"ReduceL2", 18, "{-3,4}", "", "i64[1]", 5},
		{"ReduceLogSum", 18, "{30,-10}", "", "i64[1]", 2},
		{"ReduceMean", 18, "i8[3,4]", "", "int8"},
	};

	for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
		const struct constant *constant = check_outputs(&ones[i]);

		/* A case with an expected value must be folded to a constant. */
		if (ones[i].value != 0)
			assert_non_null(constant);
		if (constant)
			check_value(&ones[i], constant);
		model = rbk_onnx_free(model);
	}
}

/* Attention with an empty past: the first step of a conversation. */
TEST(test_attention)
{
	const struct one_node one = {"Attention", 23,
				     "f32[1,2,3,4] f32[1,2,3,4] f32[1,2,3,4] - f32[1,2,0,4] "
				     "f32[1,2,0,4]",
				     "", "f32[1,2,3,4]"};
	struct rbk_onnx_step step;

	load(&one);
	assert_int_equal(rbk_onnx_compile(model, NULL, &error), 0);
	assert_int_equal(rbk_onnx_n_bound(model), 4);
	assert_int_equal(rbk_onnx_step(model, 0, &step), 0);
	assert_string_equal(step.op, "Attention");
	model = rbk_onnx_free(model);
}

/* ---- Attributes and inputs that make no sense ---- */

TEST(test_hostile)
{
	static const struct one_node ones[] = {
		{"LRN", 13, "f32[2,3]", "size=0", "windows"},
		{"LRN", 13, "f32[2,3]", "", "windows"},
		{"LRN", 13, "f32[2,3]", "size=9223372036854775807", "windows"},
		{"LRN", 13, "f32[3]", "size=3", "windows"},
		{"LRN", 13, "i64[2,3]", "size=3", "expected float32, float16, float64 or bfloat16"},
		{"LRN", 13, "f32[1,3,65536,65536]", "size=3", "too large"},
		{"MeanVarianceNormalization", 13, "f32[2,3]", "axes=0,-2", "is given twice"},
		{"MeanVarianceNormalization", 13, "f32[2,3]", "", "axis 2"},
		{"MeanVarianceNormalization", 13, "i32[2,3]", "axes=0,1", "expected float32"},
		{"Hardmax", 13, "i64[2,3]", "", "expected float32"},
		{"Hardmax", 13, "f32[2,3]", "axis=2", "axis 2"},
		{"Pow", 13, "f32[2] bool[2]", "", "float32 and bool"},
		{"Pow", 13, "u8[2] f32[2]", "", "uint8 and float32"},
		{"Pow", 13, "f32[2] i64[3]", "", "broadcast"},
		{"Clip", 13, "f32[2] i64[]", "", "its min is int64, but its input is float32"},
		{"EyeLike", 9, "f32[2]", "", "two dimensions"},
		{"EyeLike", 9, "f32[2,2]", "dtype=13", "type 13"},
		{"EyeLike", 9, "f32[2,2]", "dtype=-1", "type -1"},
		{"EyeLike", 9, "f32[2,2]", "k=-9223372036854775808", "f32[2,2]", 0},
		{"EyeLike", 9, "f32[2,2]", "k=9223372036854775807", "f32[2,2]", 0},
		{"EyeLike", 9, "f32[65536,65536]", "", "too large"},
		{"NonZero", 13, "f32[2]", "", "must be known"},
		{"NonZero", 13, "{0,0}", "", "i64[1,0]"},
		{"Compress", 11, "f32[2] bool[2]", "", "must be known"},
		{"Compress", 11, "f32[2] {1,0}", "", "its condition is int64"},
		{"Compress", 11, "f32[2] bool[0]", "", "f32[0]"},
		{"ReverseSequence", 10, "f32[4,2] {1,5}", "",
		 "the length of sequence 1 is 5 elements, expected at most 4"},
		{"ReverseSequence", 10, "f32[4,2] {1,-1}", "", "length of sequence 1 is -1"},
		{"ReverseSequence", 10, "f32[4,2] {1,2}", "batch_axis=0 time_axis=0", "2 lengths"},
		{"ReverseSequence", 10, "f32[4,2] {1}", "", "1 lengths"},
		{"ReverseSequence", 10, "f32[4] {1}", "", "1 lengths"},
		{"Shrink", 9, "i64[2]", "", "expected float32"},
		{"BatchNormalization", 15, "f32[2,3] f32[3] f32[3] f32[3] f32[2]",
		 "training_mode=1", "one element per channel"},
		{"BatchNormalization", 15, "f32[3] f32[3] f32[3] f32[3] f32[3]", "training_mode=1",
		 "one element per channel"},
		{"Relu", 5, "f32[2]", "", "supported only from opset 6 on"},
		{"Reshape", 1, "f32[2]", "shape=2,1", "supported only from opset 6 on"},
		{"TensorScatter", 24, "f32[2,4] f32[2,1]", "axis=0", "does not fit into"},
		{"TensorScatter", 24, "f32[2,4] f32[2,1,1]", "", "does not fit into"},
		{"TensorScatter", 24, "f32[2,4] f32[1,1]", "axis=1", "must be the same"},
		{"TensorScatter", 24, "f32[2,3,4,5] f32[2,2,1,5]", "", "must be the same"},
		{"TensorScatter", 24, "f32[2,3,4,5] f32[2,3,1,4]", "", "must be the same"},
		{"TensorScatter", 24, "f32[2,4] f32[2,1] i64[3]", "axis=1",
		 "write_indices are int64"},
		{"TensorScatter", 24, "f32[2,4] f32[2,1] i64[]", "axis=1",
		 "write_indices are int64"},
		{"TensorScatter", 24, "f32[2,4] f32[2,1] i32[2]", "axis=1",
		 "write_indices are int32"},
		{"TensorScatter", 24, "f32[2,4] f32[2,2] {0,-1}", "axis=1",
		 "contain -1 at position 1"},
		{"TensorScatter", 24, "f32[2,4] f32[2,2] {3,0}", "axis=1", "from 0 to 2"},
		{"TensorScatter", 24, "f32[2,4] f32[2,3]", "axis=1 mode=round", "mode"},
		{"TensorScatter", 24, "f32[2,4,1] f32[2,9,1]", "", "does not fit into"},
		{"Einsum", 12, "f32[4]", "equation=i", "no such operator"},
	};

	CHECK_ALL(ones);
}

static void set_attr(Onnx__AttributeProto *attr, int type)
{
	static int64_t ints[] = {1, 1};
	static float floats[] = {0.5f, 0.5f};
	static Onnx__TensorProto tensor = ONNX__TENSOR_PROTO__INIT;
	static Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;

	attr->has_type = 1;
	attr->type = (Onnx__AttributeProto__AttributeType)type;
	switch (type) {
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
		attr->has_i = 1;
		attr->i = 1;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
		attr->has_f = 1;
		attr->f = 0.5f;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
		attr->has_s = 1;
		attr->s = (ProtobufCBinaryData){3, (uint8_t *)"\0\n\xff"};
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
		attr->t = &tensor;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH:
		attr->g = &graph;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
		attr->n_ints = 2;
		attr->ints = ints;
		break;
	default:
		attr->n_floats = 2;
		attr->floats = floats;
	}
}

/*
 * Each attribute has one type. Any other type is refused with a sentence that names the expected
 * one.
 */
TEST(test_attributes__types)
{
	static const struct {
		const char *op, *attr;
		int type;
		int64_t opset;
	} cases[] = {
		{"Softmax", "axis", 2, 13},      {"Transpose", "perm", 7, 13},
		{"Gelu", "approximate", 3, 20},  {"LeakyRelu", "alpha", 1, 13},
		{"Cast", "to", 2, 13},           {"Flatten", "axis", 2, 13},
		{"MaxPool", "strides", 7, 13},   {"MaxPool", "auto_pad", 3, 13},
		{"ReduceSum", "axes", 7, 11},    {"ReduceSum", "keepdims", 2, 11},
		{"TopK", "axis", 2, 13},         {"Split", "axis", 2, 13},
		{"Pad", "mode", 3, 13},          {"Resize", "mode", 3, 13},
		{"LRN", "size", 2, 13},          {"LRN", "alpha", 1, 13},
		{"EyeLike", "k", 2, 13},         {"MeanVarianceNormalization", "axes", 7, 13},
		{"DepthToSpace", "mode", 3, 13}, {"ConstantOfShape", "value", 4, 13},
		{"Constant", "value", 4, 13},    {"BatchNormalization", "epsilon", 1, 13},
		{"Concat", "axis", 2, 13},       {"Gather", "axis", 2, 13},
	};
	static const int types_of_attrs[] = {1, 2, 3, 4, 5, 6, 7};
	const int64_t dims[] = {1, 4, 4, 4};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t k = 0; k < 7; k++) {
			const bool has_input = strcmp(cases[i].op, "Constant") != 0;
			Onnx__NodeProto *node;
			const uint8_t *bytes;
			size_t n_bytes;

			if (types_of_attrs[k] == cases[i].type)
				continue;
			onnx_model_init(&made, cases[i].opset);
			onnx_model_input(&made, "x", RBK_ONNX_F32, 4, dims);
			onnx_model_ints(&made, "n", 1, (int64_t[]){1});
			node = onnx_model_node(
				&made, cases[i].op,
				!has_input                                   ? ""
				: !strcmp(cases[i].op, "BatchNormalization") ? "x x x x x"
				: !strcmp(cases[i].op, "TopK") || !strcmp(cases[i].op, "Gather")
					? "x n"
				: !strcmp(cases[i].op, "ConstantOfShape") ? "n"
									  : "x",
				"y");
			set_attr(onnx_model_attr(&made, node, cases[i].attr), types_of_attrs[k]);
			onnx_model_output(&made, "y");
			bytes = onnx_model_pack(&made, &n_bytes);
			if (rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error))
				fail_msg("%s: %s", cases[i].op, error.text);
			onnx_model_deinit(&made);
			if (rbk_onnx_compile(model, NULL, &error) != -EOPNOTSUPP ||
			    !strstr(error.text, cases[i].attr))
				fail_msg("%s with %s of type %d: \"%s\"", cases[i].op,
					 cases[i].attr, types_of_attrs[k], error.text);
			model = rbk_onnx_free(model);
		}
	}
}

/* Old files leave out the type of an attribute. */
TEST(test_attributes__without_types)
{
	static const struct {
		const char *op, *attr;
		int type;
	} cases[] = {{"LeakyRelu", "alpha", 1},
		     {"GlobalLpPool", "p", 2},
		     {"Gelu", "approximate", 3},
		     {"MaxPool", "kernel_shape", 7}};
	const int64_t dims[] = {1, 4, 4, 4};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		Onnx__AttributeProto *attr;
		const uint8_t *bytes;
		size_t n_bytes;

		onnx_model_init(&made, 20);
		onnx_model_input(&made, "x", RBK_ONNX_F32, 4, dims);
		attr = onnx_model_attr(&made, onnx_model_node(&made, cases[i].op, "x", "y"),
				       cases[i].attr);
		set_attr(attr, cases[i].type);
		attr->has_type = 0;
		if (attr->has_s)
			attr->s = (ProtobufCBinaryData){4, (uint8_t *)"tanh"};
		onnx_model_output(&made, "y");
		bytes = onnx_model_pack(&made, &n_bytes);
		if (rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error) ||
		    rbk_onnx_compile(model, NULL, &error))
			fail_msg("%s: %s", cases[i].op, error.text);
		onnx_model_deinit(&made);
		model = rbk_onnx_free(model);
	}
}

/* A huge tensor is refused before its memory is allocated. */
TEST(test_hostile__sizes)
{
	static const struct one_node ones[] = {
		{"ConstantOfShape", 9, "{1000000,1000000}", "", "too large"},
		{"ConstantOfShape", 9, "{9223372036854775807,9223372036854775807}", "",
		 "too large"},
		{"ConstantOfShape", 9, "{-1}", "", "would be -1"},
		{"ConstantOfShape", 9, "{1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}", "", "dimensions"},
		{"Expand", 13, "f32[1] {2147483647,2147483647,2147483647}", "",
		 "too large for any memory"},
		{"Relu", 14, "f32[2147483647,2147483647,2147483647]", "", "its input would be"},
		{"Tile", 13, "f32[2] {9223372036854775807}", "", "it repeats dimension 0"},
		{"Pad", 13, "f32[2] {9223372036854775807,9223372036854775807}", "", "Pad"},
		{"Pad", 13, "f32[2] {-9223372036854775808,0}", "", "Pad"},
		{"Reshape", 13, "f32[4] {1,1,1,1,1,1,1,1,1,1,1,1,4}", "", "13 dimensions"},
		{"Reshape", 13, "f32[4] {-1,-1}", "", "dimension 1 of its shape is -1"},
		{"Reshape", 13, "f32[4] {9223372036854775807,-1}", "", "its shape is"},
		{"Unsqueeze", 13, "f32[4] {0,1,2,3,4,5,6,7,8}", "", "dimensions"},
		{"Range", 11, "{0} {9223372036854775807} {1}", "", "elements"},
		{"Range", 11, "{0} {5} {0}", "", "elements"},
		{"Slice", 13, "f32[4] {0} {4} {0} {0}", "", "one of its steps is 0"},
		{"Slice", 13,
		 "{1,2,3,4} {9223372036854775807} {-9223372036854775808} {0} "
		 "{-9223372036854775808}",
		 "", "i64[1]", 4},
		{"OneHot", 11, "i64[2] {9223372036854775807} f32[2]", "", "depth is"},
		{"Transpose", 13, "f32[4,4]", "perm=0,0", "not a permutation"},
		{"Transpose", 13, "f32[4,4]", "perm=0,9223372036854775807", "not a permutation"},
		{"Concat", 13, "f32[2147483647] f32[2147483647]", "axis=0", "Concat"},
	};

	CHECK_ALL(ones);
}

/* ---- Integers that a double cannot represent ---- */

static void check_range(int64_t start, int64_t limit, int64_t delta, unsigned int n,
			const int64_t *expected)
{
	const struct constant *constant = NULL;
	struct one_node one = {"Range", 11};
	char inputs[128], found[128];

	snprintf(inputs, sizeof(inputs), "{%lld} {%lld} {%lld}", (long long)start, (long long)limit,
		 (long long)delta);
	one.inputs = inputs;
	one.attrs = "";
	one.outputs = "i64[]";
	load(&one);
	if (compile())
		fail_msg("Range of %s: %s", inputs, error.text);
	describe("y", found, &constant);
	assert_non_null(constant);
	assert_int_equal(constant->n_elems, n);
	if (n > 0)
		assert_memory_equal(constant->data, expected, n * sizeof(*expected));
	model = rbk_onnx_free(model);
}

TEST(test_integers__range)
{
	const int64_t odd = (1ll << 53) + 1, quarter = 1ll << 62;

	check_range(odd, odd + 5, 2, 3, (int64_t[]){odd, odd + 2, odd + 4});
	check_range(-odd, -odd - 3, -1, 3, (int64_t[]){-odd, -odd - 1, -odd - 2});
	check_range(INT64_MAX - 1, INT64_MAX, 1, 1, (int64_t[]){INT64_MAX - 1});
	check_range(INT64_MIN, INT64_MAX, quarter, 4, (int64_t[]){INT64_MIN, -quarter, 0, quarter});
	check_range(INT64_MAX, INT64_MIN, INT64_MIN, 2, (int64_t[]){INT64_MAX, -1});
	check_range(odd, odd, 1, 0, NULL);
	check_range(odd + 1, odd, 1, 0, NULL);
}

/* Constant folding flushes denormals to zero, as devices do. */
TEST(test_denormals)
{
	static const float values[] = {1e-40f, -1e-40f, 1.2e-38f, -0.0f};

	assert_true(eval_load(RBK_ONNX_F32, values, 0) == 0);
	assert_true(eval_load(RBK_ONNX_F32, values, 1) == 0);
	assert_true(signbit(eval_load(RBK_ONNX_F32, values, 1)));
	assert_true(eval_load(RBK_ONNX_F32, values, 2) == (double)values[2]);
	assert_true(signbit(eval_load(RBK_ONNX_F32, values, 3)));
}

TEST(test_integers__whole)
{
	static const struct one_node ones[] = {
		{"CumSum", 14, "f32[2] {4611686018427387905}", "", "axis 4611686018427387905"},
		{"TopK", 11, "f32[4] {-9007199254740993}", "", "k is -9007199254740993"},
		{"OneHot", 11, "i64[2] {9007199254740993} f32[2]", "", "depth is 9007199254740993"},
	};

	CHECK_ALL(ones);
}

/* ---- Constants ---- */

TEST(test_constant__sparse)
{
	for (unsigned int place = 2; place <= 3; place++) {
		Onnx__SparseTensorProto sparse = ONNX__SPARSE_TENSOR_PROTO__INIT;
		const struct constant *constant = NULL;
		Onnx__AttributeProto *attr;
		const uint8_t *bytes;
		char found[128];
		size_t n_bytes;
		int r;

		onnx_model_init(&made, 17);
		sparse.values = onnx_model_tensor(&made, "", RBK_ONNX_I64, 1, (int64_t[]){1},
						  (int64_t[]){9}, 8);
		sparse.indices = onnx_model_tensor(&made, "", RBK_ONNX_I64, 1, (int64_t[]){1},
						   (int64_t[]){place}, 8);
		sparse.n_dims = 1;
		sparse.dims = (int64_t[]){3};
		attr = onnx_model_attr(&made, onnx_model_node(&made, "Constant", "", "y"),
				       "sparse_value");
		attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR;
		attr->sparse_tensor = &sparse;
		onnx_model_output(&made, "y");
		bytes = onnx_model_pack(&made, &n_bytes);
		assert_int_equal(rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error), 0);
		onnx_model_deinit(&made);
		r = compile();
		if (place == 3) {
			assert_int_equal(r, -EOPNOTSUPP);
			assert_non_null(strstr(error.text, "index 0 is outside of its shape"));
		} else {
			assert_int_equal(r, 0);
			describe("y", found, &constant);
			assert_string_equal(found, "i64[3]");
			assert_memory_equal(constant->data, ((int64_t[]){0, 0, 9}), 24);
		}
		model = rbk_onnx_free(model);
	}
}
