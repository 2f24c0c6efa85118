/* SPDX-License-Identifier: MIT */
/*
 * Tests of libclient/onnx: weights of few bits, quantized operators of ONNX Runtime, the types that
 * refusals name, and mixed types
 */
#include <errno.h>
#include <string.h>

#include "fail-alloc.h"
#include "libclient/onnx/eval.h"
#include "support/onnx-model.h"
#include "support/test.h"

static struct onnx_model made;
static struct rbk_onnx *model;
static struct rbk_error error;

/* Return bytes 0x21, 0x43, ...: all values of four bits. */
static const uint8_t *some_bytes(void)
{
	static uint8_t bytes[4096];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(0x21 + 34 * i);
	return bytes;
}

static const float *some_scales(void)
{
	static float scales[256];

	for (size_t i = 0; i < 256; i++)
		scales[i] = 0.25f * (float)(1 + i % 7);
	return scales;
}

/*
 * Begin a model with x [N,40] and a weight w of @rows by @columns, with scales s of @n_scales by
 * @columns.
 */
static Onnx__NodeProto *start(int dtype, int64_t rows, int64_t columns, int64_t n_scales,
			      int64_t block)
{
	Onnx__NodeProto *node;

	onnx_model_init(&made, 21);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){-1, 40});
	onnx_model_constant(
		&made, "w", dtype, 2, (int64_t[]){rows, columns}, some_bytes(),
		(size_t)rbk_onnx_dtype_bytes((uint32_t)dtype, (uint64_t)(rows * columns)));
	onnx_model_constant(&made, "s", RBK_ONNX_F32, n_scales ? 2 : 0,
			    (int64_t[]){n_scales, columns}, some_scales(),
			    n_scales ? (size_t)(n_scales * columns) * 4 : 4);
	node = onnx_model_node(&made, "DequantizeLinear", "w s", "v");
	onnx_model_attr_int(&made, node, "axis", 0);
	if (block)
		onnx_model_attr_int(&made, node, "block_size", block);
	return node;
}

/* Compile the model, failing each allocation in turn first. */
static int compile(const char *output, uint32_t disable)
{
	const struct rbk_onnx_options options = {
		.size = sizeof(options), .max_count = 8, .disable = disable};
	const uint8_t *bytes;
	size_t n_bytes;
	int r;

	onnx_model_output(&made, output);
	bytes = onnx_model_pack(&made, &n_bytes);
	if (rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error))
		fail_msg("%s", error.text);
	onnx_model_deinit(&made);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_onnx_compile(model, &options, &error);
		if (!fail_alloc_stop())
			return r;
		assert_int_equal(r, -ENOMEM);
	}
}

static void expect(const char *output, uint32_t disable, const char *steps)
{
	char got[256] = "";

	if (compile(output, disable))
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < model->graph->n_steps; i++)
		strcat(strcat(got, i ? " " : ""), model->graph->steps[i]->op);
	assert_string_equal(got, steps);
	model = rbk_onnx_free(model);
}

static void refuses(const char *output, const char *why)
{
	assert_int_equal(compile(output, 0), -EOPNOTSUPP);
	if (!strstr(error.text, why))
		fail_msg("\"%s\" says nothing of \"%s\"", error.text, why);
	model = rbk_onnx_free(model);
}

TEST(test_products__stay_small)
{
	static const struct {
		int64_t n_scales, block;
		const char *steps;
	} cases[] = {
		{0, 0, "MatMulNBits"},   {3, 16, "MatMulNBits"}, {2, 32, "MatMulNBits"},
		{1, 48, "MatMulNBits"},  {5, 8, "MatMul"},       {1, 40, "MatMulNBits"},
		{1, 300, "MatMulNBits"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start(RBK_ONNX_I4, 40, 12, cases[i].n_scales, cases[i].block);
		onnx_model_node(&made, "MatMul", "x v", "y");
		expect("y", 0, cases[i].steps);
	}
	start(RBK_ONNX_U4, 40, 12, 3, 16);
	onnx_model_node(&made, "MatMul", "x v", "y");
	if (compile("y", 0))
		fail_msg("%s", error.text);
	/*
	 * Half a byte per element, in whole blocks. Zero points are explicit: they differ from ONNX
	 * Runtime's default.
	 */
	assert_int_equal(model->graph->steps[0]->in[1]->constant->n_bytes, 12 * 48 / 2);
	assert_int_equal(model->graph->steps[0]->in[2]->constant->n_elems, 12 * 3);
	assert_int_equal(model->graph->steps[0]->in[3]->constant->n_bytes, 12 * 2);
	model = rbk_onnx_free(model);
}

/* Layers that share weights also share the packed weights. */
TEST(test_products__share)
{
	const struct step *first = NULL, *second = NULL;

	start(RBK_ONNX_U4, 40, 12, 0, 0);
	onnx_model_node(&made, "MatMul", "x v", "m");
	onnx_model_node(&made, "Neg", "x", "z");
	onnx_model_node(&made, "MatMul", "z v", "n");
	onnx_model_node(&made, "Add", "m n", "y");
	if (compile("y", 0))
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < model->graph->n_steps; i++)
		if (!strcmp(model->graph->steps[i]->op, "MatMulNBits")) {
			first = second;
			second = model->graph->steps[i];
		}
	assert_non_null(first);
	for (unsigned int i = 1; i <= 3; i++)
		assert_ptr_equal(first->in[i], second->in[i]);
	model = rbk_onnx_free(model);
}

TEST(test_products__of_the_other_side)
{
	start(RBK_ONNX_I4, 12, 40, 0, 0);
	onnx_model_node(&made, "Transpose", "v", "t");
	onnx_model_node(&made, "MatMul", "x t", "y");
	expect("y", 0, "MatMulNBits");
	start(RBK_ONNX_I4, 12, 40, 0, 0);
	onnx_model_attr_int(&made, onnx_model_node(&made, "Gemm", "x v", "y"), "transB", 1);
	expect("y", 0, "MatMulNBits");
	/* The blocks lie along the axis that is not summed over, so MatMulNBits cannot be used. */
	start(RBK_ONNX_I4, 32, 40, 2, 16);
	onnx_model_attr_int(&made, onnx_model_node(&made, "Gemm", "x v", "y"), "transB", 1);
	expect("y", 0, "Gemm");
}

/* Operators that read single elements get the weights as floats, converted once. */
TEST(test_floats)
{
	start(RBK_ONNX_I4, 3, 40, 0, 0);
	onnx_model_node(&made, "Gather", "v three", "row");
	onnx_model_ints(&made, "three", 1, (int64_t[]){2});
	onnx_model_node(&made, "Add", "x row", "y");
	expect("y", 0, "Add");
	start(RBK_ONNX_I4, 40, 12, 0, 0);
	onnx_model_node(&made, "MatMul", "x v", "y");
	expect("y", RBK_ONNX_OPT_FOLD, "DequantizeLinear MatMul");
	start(RBK_ONNX_U4, 2, 2, 0, 0);
	if (compile("v", 0))
		fail_msg("%s", error.text);
	for (uint64_t i = 0; i < 4; i++) {
		const struct tensor *v = model->graph->steps[0]->in[0];

		assert_non_null(v->constant);
		assert_true(eval_load(RBK_ONNX_F32, v->constant->data, i) ==
			    0.25 * (double)(i + 1));
	}
	model = rbk_onnx_free(model);
}

TEST(test_refusals__name_the_type)
{
	static const int64_t dims[] = {2, 2};

	start(RBK_ONNX_I4, 40, 12, 0, 0);
	onnx_model_node(&made, "Relu", "w", "y");
	refuses("y", "is int4, which no device computes with: only DequantizeLinear may read it");
	start(RBK_ONNX_I4, 40, 12, 3, 8);
	onnx_model_node(&made, "MatMul", "x v", "y");
	refuses("y", "one scale for each block of 8");
	onnx_model_init(&made, 23);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, dims);
	onnx_model_constant(&made, "s", RBK_ONNX_F32, 0, NULL, some_scales(), 4);
	onnx_model_attr_int(&made, onnx_model_node(&made, "QuantizeLinear", "x s", "y"),
			    "output_dtype", 22);
	refuses("y", "int4");
	assert_string_equal(rbk_onnx_dtype_name(25), "uint2");
	assert_string_equal(rbk_onnx_dtype_name(26), "int2");
	assert_string_equal(rbk_onnx_dtype_name(24), "float8e8m0");
	for (uint32_t dtype = 1; dtype <= 26; dtype++)
		assert_string_not_equal(rbk_onnx_dtype_name(dtype), "unknown");
}

/* Begin a model with a node of ONNX Runtime's domain, and byte inputs with their scales. */
static Onnx__NodeProto *start_bytes(const char *op, const char *inputs)
{
	onnx_model_init(&made, 17);
	onnx_model_import(&made, "com.microsoft");
	onnx_model_input(&made, "a", RBK_ONNX_U8, 2, (int64_t[]){-1, 40});
	onnx_model_input(&made, "b", RBK_ONNX_U8, 2, (int64_t[]){-1, 40});
	onnx_model_constant(&made, "s", RBK_ONNX_F32, 0, NULL, some_scales(), 4);
	onnx_model_constant(&made, "z", RBK_ONNX_U8, 0, NULL, some_bytes(), 1);
	return onnx_model_domain(&made, onnx_model_node(&made, op, inputs, "y"), "com.microsoft");
}

TEST(test_bytes__between_floats)
{
	start_bytes("QLinearAdd", "a s z b s - s z");
	expect("y", 0, "DequantizeLinear DequantizeLinear Add QuantizeLinear");
	onnx_model_attr_int(&made, start_bytes("QLinearConcat", "s z a s z b s z"), "axis", 1);
	expect("y", 0, "DequantizeLinear DequantizeLinear Concat QuantizeLinear");
	onnx_model_attr_int(&made, start_bytes("QLinearSoftmax", "a s z s"), "opset", 13);
	expect("y", 0, "DequantizeLinear Softmax QuantizeLinear");
}

/* Each required input or attribute in turn is absent. */
TEST(test_bytes__absent)
{
	static const struct {
		const char *op, *inputs, *why;
	} cases[] = {
		{"QLinearAdd", "- s z b s z s z", "input 0 is missing"},
		{"QLinearAdd", "a - z b s z s z", "input 1, a scale, is missing"},
		{"QLinearAdd", "a s z - s z s z", "input 3, bytes, is missing"},
		{"QLinearAdd", "a s z b s z - z", "input 6, a scale, is missing"},
		{"QLinearSigmoid", "a s z - z", "input 3, a scale, is missing"},
		{"QLinearConcat", "s z a s z", "attribute \"axis\" is missing"},
		{"QGemm", "a s z - s z", "input 3, bytes, is missing"},
		{"QGemm", "a s z b - z", "input 4, a scale, is missing"},
		{"QGemm", "a - z b s z", "input 1, a scale, is missing"},
		{"QuantizeLinear", "s -", "it has 1 input, expected 2 to 3"},
		{"BiasGelu", "s", "it has 1 input, expected 2"},
		{"BiasGelu", "s s s", "it has 3 inputs, expected 2"},
		{"QLinearConcat", "s z a", "it has 3 inputs, expected at least 5"},
		{"QuantizeLinear", "s - z", "input 1 is missing"},
		{"DequantizeLinear", "a - z", "input 1 is missing"},
		{"MultiHeadAttention", "a - b", "input 1 is missing"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start_bytes(cases[i].op, cases[i].inputs);
		refuses("y", cases[i].why);
	}
	onnx_model_attr_int(&made, start_bytes("QLinearConcat", "s z - s z"), "axis", 1);
	refuses("y", "input 2, bytes, is missing");
}

/* The third spatial dimension is folded into channels, and the rows stay the leading dimension. */
TEST(test_volumes__are_folded)
{
	Onnx__NodeProto *node;

	for (unsigned int pads = 0; pads < 2; pads++) {
		onnx_model_init(&made, 17);
		onnx_model_input(&made, "x", RBK_ONNX_U8, 5, (int64_t[]){-1, 2, 5, 6, 7});
		onnx_model_constant(&made, "w", RBK_ONNX_U8, 5, (int64_t[]){3, 2, 3, 2, 2},
				    some_bytes(), 72);
		node = onnx_model_node(&made, "ConvInteger", "x w", "y");
		if (pads)
			onnx_model_attr_ints(&made, node, "pads", 6, (int64_t[]){1, 0, 0, 0, 0, 1});
		expect("y", 0,
		       pads ? "Pad Gather Gather Transpose Reshape ConvInteger Reshape"
			    : "Gather Gather Transpose Reshape ConvInteger Reshape");
	}
	for (unsigned int i = 0; i < 4; i++) {
		static const struct {
			const char *name;
			int64_t values[6];
			unsigned int n;
			const char *why;
		} cases[] = {
			{"strides", {1, 0, 1}, 3, "attribute \"strides\" has 0"},
			{"pads", {1, 1, 1}, 3, "attribute \"pads\" has 3 elements, expected 6"},
			{"kernel_shape", {3, 3, 2}, 3, "has 3, but the weights have 2"},
			{"dilations", {3, 1, 1}, 3, "windows of 7 do not fit into 5"},
		};

		onnx_model_init(&made, 17);
		onnx_model_input(&made, "x", RBK_ONNX_U8, 5, (int64_t[]){-1, 2, 5, 6, 7});
		onnx_model_constant(&made, "w", RBK_ONNX_U8, 5, (int64_t[]){3, 2, 3, 2, 2},
				    some_bytes(), 72);
		node = onnx_model_node(&made, "ConvInteger", "x w", "y");
		onnx_model_attr_ints(&made, node, cases[i].name, cases[i].n, cases[i].values);
		refuses("y", cases[i].why);
	}
}

/* Weights of eight or two bits become floats at compile time. */
TEST(test_narrow__becomes_floats)
{
	for (int64_t bits = 2; bits <= 8; bits *= 4) {
		Onnx__NodeProto *node;

		onnx_model_init(&made, 17);
		onnx_model_import(&made, "com.microsoft");
		onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){-1, 40});
		onnx_model_constant(&made, "w", RBK_ONNX_U8, 3, (int64_t[]){4, 3, 2 * bits},
				    some_bytes(), (size_t)(24 * bits));
		onnx_model_constant(&made, "s", RBK_ONNX_F32, 1, (int64_t[]){12}, some_scales(),
				    48);
		node = onnx_model_domain(&made, onnx_model_node(&made, "MatMulNBits", "x w s", "y"),
					 "com.microsoft");
		onnx_model_attr_int(&made, node, "K", 40);
		onnx_model_attr_int(&made, node, "N", 4);
		onnx_model_attr_int(&made, node, "bits", bits);
		onnx_model_attr_int(&made, node, "block_size", 16);
		expect("y", 0, "MatMul");
	}
}
