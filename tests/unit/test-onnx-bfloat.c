/* SPDX-License-Identifier: MIT */
/* Tests of libclient/onnx: models in bfloat16, which become casts around nodes in float32 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/onnx/eval.h"
#include "support/onnx-model.h"
#include "support/test.h"

static struct onnx_model made;
static struct rbk_onnx *model;
static struct rbk_error error;

static const int64_t x_dims[] = {1, 2, 4, 4};

/* Begin a model that reads the bfloat16 inputs x and w, both [1,2,4,4], and the float32 input f. */
static void start(void)
{
	onnx_model_init(&made, 23);
	onnx_model_input(&made, "x", RBK_ONNX_BF16, 4, x_dims);
	onnx_model_input(&made, "w", RBK_ONNX_BF16, 4, x_dims);
	onnx_model_input(&made, "f", RBK_ONNX_F32, 4, x_dims);
}

/* Compile the model for @outputs, names separated by blanks. Return: as rbk_onnx_compile(). */
static int compile(const char *outputs, uint32_t disable)
{
	const struct rbk_onnx_options options = {
		.size = sizeof(options), .max_count = 1, .disable = disable};
	char names[64], *save, *name;
	const uint8_t *bytes;
	size_t n_bytes;

	strcpy(names, outputs);
	for (name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save))
		onnx_model_output(&made, name);
	bytes = onnx_model_pack(&made, &n_bytes);
	if (rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error))
		fail_msg("%s", error.text);
	onnx_model_deinit(&made);
	return rbk_onnx_compile(model, &options, &error);
}

/*
 * Expect the plan's operators in order, each Cast named by the type it casts to, and the first
 * output's type.
 */
static void expect(const char *outputs, const char *steps, const char *type)
{
	char got[512] = "";

	if (compile(outputs, 0))
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < model->graph->n_steps; i++) {
		const struct step *step = model->graph->steps[i];

		strcat(got, i ? " " : "");
		strcat(got, strcmp(step->op, "Cast") ? step->op
						     : rbk_onnx_dtype_name(step->out[0]->dtype));
	}
	assert_string_equal(got, steps);
	assert_string_equal(rbk_onnx_dtype_name(model->graph->outputs[0]->dtype), type);
	model = rbk_onnx_free(model);
}

TEST(test_computes__in_float32)
{
	start();
	onnx_model_node(&made, "Add", "x w", "y");
	expect("y", "float32 float32 Add bfloat16", "bfloat16");
	/* Each value between nodes is rounded to bfloat16, and no tensor is cast twice. */
	start();
	onnx_model_node(&made, "Mul", "x x", "a");
	onnx_model_node(&made, "Add", "a x", "b");
	onnx_model_node(&made, "Sub", "b a", "y");
	expect("y", "float32 Mul bfloat16 float32 Add bfloat16 float32 Sub bfloat16", "bfloat16");
	start();
	onnx_model_node(&made, "Less", "x w", "y");
	expect("y", "float32 float32 Less", "bool");
	start();
	onnx_model_node(&made, "ArgMax", "x", "y");
	expect("y", "float32 ArgMax", "int64");
	start();
	onnx_model_node(&made, "Sum", "x", "y");
	expect("y", "Reshape", "bfloat16");
	/* A node of several steps rounds only after its last step. */
	start();
	onnx_model_node(&made, "MeanVarianceNormalization", "x", "y");
	if (compile("y", 0))
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < model->graph->n_steps; i++)
		assert_int_equal(model->graph->steps[i]->out[0]->dtype == RBK_ONNX_BF16,
				 i + 1 == model->graph->n_steps);
	model = rbk_onnx_free(model);
}

TEST(test_moves__as_it_is)
{
	static const char *const ops[] = {"Transpose", "Flatten", "Identity", "Squeeze"};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		start();
		onnx_model_node(&made, ops[i], "x", "y");
		expect("y", i ? "Reshape" : "Transpose", "bfloat16");
	}
	start();
	onnx_model_node(&made, "Concat", "x w", "a");
	onnx_model_attr_int(&made, made.graph.node[0], "axis", 1);
	onnx_model_node(&made, "Transpose", "a", "y");
	expect("y", "Concat Transpose", "bfloat16");
	start();
	onnx_model_node(&made, "Less", "f f", "c");
	onnx_model_node(&made, "Where", "c x w", "y");
	expect("y", "Less Where", "bfloat16");
	start();
	onnx_model_node(&made, "Shape", "x", "s");
	onnx_model_node(&made, "Reshape", "w s", "y");
	expect("y", "Reshape", "bfloat16");
}

static void scatter(const char *reduction)
{
	const int64_t dims[] = {1, 1, 1, 1};
	const uint16_t update = 0x3f80;
	const int64_t at = 0;

	start();
	onnx_model_constant(&made, "i", RBK_ONNX_I64, 4, dims, &at, sizeof(at));
	onnx_model_constant(&made, "u", RBK_ONNX_BF16, 4, dims, &update, sizeof(update));
	onnx_model_node(&made, "ScatterElements", "x i u", "y");
	onnx_model_attr_string(&made, made.graph.node[0], "reduction", reduction);
}

TEST(test_scatter)
{
	scatter("none");
	expect("y", "ScatterElements", "bfloat16");
	scatter("add");
	expect("y", "float32 ScatterElements bfloat16", "bfloat16");
}

/*
 * An output that ONNX defines as float32 stays float32. Other outputs have the type of the input
 * that determines it.
 */
TEST(test_types_of_outputs)
{
	const int64_t dims[] = {4};
	const uint16_t bfloats[] = {0x3f80, 0x4000, 0x4040, 0x4080};
	const float floats[] = {1, 2, 3, 4};

	start();
	onnx_model_constant(&made, "s", RBK_ONNX_BF16, 1, dims, bfloats, sizeof(bfloats));
	onnx_model_node(&made, "LayerNormalization", "x s", "y m");
	if (compile("y m", 0))
		fail_msg("%s", error.text);
	assert_int_equal(model->graph->outputs[0]->dtype, RBK_ONNX_BF16);
	assert_int_equal(model->graph->outputs[1]->dtype, RBK_ONNX_F32);
	model = rbk_onnx_free(model);
	start();
	onnx_model_constant(&made, "s", RBK_ONNX_F32, 1, dims, floats, sizeof(floats));
	onnx_model_node(&made, "RMSNormalization", "x s", "y");
	expect("y", "float32 RMSNormalization", "float32");
	start();
	onnx_model_node(&made, "Pow", "f x", "y");
	expect("y", "float32 Pow", "float32");
	start();
	onnx_model_node(&made, "Pow", "x f", "y");
	expect("y", "float32 Pow bfloat16", "bfloat16");
	start();
	onnx_model_node(&made, "MaxPool", "x", "y i");
	onnx_model_attr_ints(&made, made.graph.node[0], "kernel_shape", 2, (int64_t[]){2, 2});
	expect("i y", "float32 MaxPool bfloat16", "int64");
}

/* Selection commutes with rounding, and the selection of bfloat16 values needs no rounding. */
TEST(test_selects)
{
	start();
	onnx_model_node(&made, "Relu", "x", "a");
	onnx_model_node(&made, "Exp", "a", "y");
	expect("y", "float32 Relu Exp bfloat16", "bfloat16");
	start();
	onnx_model_node(&made, "Conv", "x w", "a");
	onnx_model_node(&made, "Relu", "a", "y");
	expect("y", "float32 float32 Conv Relu bfloat16", "bfloat16");
	/*
	 * A selection is computed before the rounding. Its input is rounded, too, if another node
	 * reads it.
	 */
	start();
	onnx_model_node(&made, "Mul", "x w", "a");
	onnx_model_node(&made, "Neg", "a", "b");
	onnx_model_node(&made, "Add", "a b", "y");
	expect("y", "float32 float32 Mul bfloat16 Neg bfloat16 float32 float32 Add bfloat16",
	       "bfloat16");
	/*
	 * Rounding can make distinct values equal, and MaxPool would then return other indices. So
	 * MaxPool selects from the rounded values.
	 */
	start();
	onnx_model_node(&made, "Mul", "x w", "a");
	onnx_model_node(&made, "MaxPool", "a", "y i");
	onnx_model_attr_ints(&made, made.graph.node[1], "kernel_shape", 2, (int64_t[]){2, 2});
	expect("y i", "float32 float32 Mul bfloat16 float32 MaxPool bfloat16", "bfloat16");
}

TEST(test_casts__of_the_model)
{
	start();
	onnx_model_node(&made, "Cast", "x", "a");
	onnx_model_attr_int(&made, made.graph.node[0], "to", RBK_ONNX_F32);
	onnx_model_node(&made, "Add", "a f", "b");
	onnx_model_node(&made, "CastLike", "b x", "c");
	onnx_model_node(&made, "Mul", "c x", "y");
	expect("y", "float32 Add bfloat16 float32 Mul bfloat16", "bfloat16");
	start();
	onnx_model_node(&made, "Cast", "x", "y");
	onnx_model_attr_int(&made, made.graph.node[0], "to", RBK_ONNX_F16);
	expect("y", "float16", "float16");
}

/*
 * Write an RMS normalisation as exporters do. Nodes in float32 are fused as always, even if the
 * model's input is bfloat16.
 */
static void write_norm(const char *x)
{
	const float epsilon = 1e-6f;
	const int64_t last = -1;
	char in[16];

	onnx_model_constant(&made, "e", RBK_ONNX_F32, 0, NULL, &epsilon, sizeof(epsilon));
	onnx_model_ints(&made, "last", 1, &last);
	snprintf(in, sizeof(in), "%s %s", x, x);
	onnx_model_node(&made, "Mul", in, "square");
	onnx_model_node(&made, "ReduceMean", "square last", "mean");
	onnx_model_node(&made, "CastLike", "e mean", "epsilon");
	onnx_model_node(&made, "Add", "mean epsilon", "sum");
	onnx_model_node(&made, "Sqrt", "sum", "root");
	snprintf(in, sizeof(in), "%s root", x);
	onnx_model_node(&made, "Div", in, "n");
}

TEST(test_fuses__between_casts)
{
	start();
	onnx_model_node(&made, "Cast", "x", "a");
	onnx_model_attr_int(&made, made.graph.node[0], "to", RBK_ONNX_F32);
	write_norm("a");
	onnx_model_node(&made, "CastLike", "n x", "y");
	expect("y", "float32 RMSNormalization bfloat16", "bfloat16");
	/*
	 * Here each node rounds, and one fused node would round only once, with another result:
	 * nothing is fused.
	 */
	start();
	write_norm("x");
	if (compile("n", 0))
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < model->graph->n_steps; i++)
		assert_string_not_equal(model->graph->steps[i]->op, "RMSNormalization");
	model = rbk_onnx_free(model);
}

/*
 * A constant is cast once, at compile time, with the usual rounding. Of a list of int32, only the
 * lower halves count.
 */
TEST(test_constants)
{
	static int32_t list[] = {0x3f80, (int32_t)0xdead4000, 0x0001, 0x7fc0};
	const uint16_t bfloats[] = {0x3f80, 0x4000, 0x0001, 0x7fc0};
	const float floats[] = {1.00390625f, 1.01171875f, 0x1p-133f, 3.4e38f};
	const uint16_t rounded[] = {0x3f80, 0x3f82, 0x0001, 0x7f80};
	const int64_t dims[] = {4};
	Onnx__TensorProto *tensor;

	start();
	onnx_model_constant(&made, "c", RBK_ONNX_BF16, 1, dims, bfloats, sizeof(bfloats));
	onnx_model_node(&made, "Add", "x c", "a");
	onnx_model_node(&made, "Mul", "a c", "y");
	expect("y", "float32 Add bfloat16 float32 Mul bfloat16", "bfloat16");

	start();
	tensor = onnx_model_constant(&made, "c", RBK_ONNX_BF16, 1, dims, NULL, 0);
	tensor->has_raw_data = false;
	tensor->n_int32_data = 4;
	tensor->int32_data = list;
	onnx_model_constant(&made, "d", RBK_ONNX_F32, 1, dims, floats, sizeof(floats));
	onnx_model_node(&made, "CastLike", "d c", "e");
	onnx_model_node(&made, "Concat", "c e", "y");
	onnx_model_attr_int(&made, made.graph.node[1], "axis", 0);
	if (compile("y", 0))
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < model->n_values; i++) {
		const struct tensor *y = model->graph->values[i];

		if (strcmp(model->values[i].name, "y"))
			continue;
		assert_memory_equal(y->constant->data, bfloats, sizeof(bfloats));
		assert_memory_equal((const uint16_t *)y->constant->data + 4, rounded,
				    sizeof(rounded));
	}
	model = rbk_onnx_free(model);
}

/* With no folding, elimination or fusion the plan is larger, but still compiles. */
TEST(test_compiles__as_written)
{
	const uint16_t weights[32] = {0x3f80};

	start();
	onnx_model_constant(&made, "k", RBK_ONNX_BF16, 4, x_dims, weights, sizeof(weights));
	onnx_model_node(&made, "Conv", "x k", "a");
	onnx_model_node(&made, "Identity", "a", "b");
	onnx_model_node(&made, "Relu", "b", "c");
	onnx_model_node(&made, "Softmax", "c", "y");
	assert_int_equal(compile("y", RBK_ONNX_OPT_ALL), 0);
	model = rbk_onnx_free(model);
}

TEST(test_refusals)
{
	const uint16_t bfloats[] = {0x3f80, 0x4000};
	const int64_t dims[] = {4};
	const uint8_t *bytes;
	size_t n_bytes;

	/* The constant's data is shorter than its shape requires. */
	onnx_model_init(&made, 23);
	onnx_model_constant(&made, "c", RBK_ONNX_BF16, 1, dims, bfloats, sizeof(bfloats));
	onnx_model_node(&made, "Neg", "c", "y");
	onnx_model_output(&made, "y");
	bytes = onnx_model_pack(&made, &n_bytes);
	assert_int_equal(rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "its type bfloat16 and shape require 8"));
	onnx_model_deinit(&made);
	/* Types that ONNX does not allow together, or not at all. */
	start();
	onnx_model_node(&made, "Add", "f x", "y");
	assert_int_equal(compile("y", 0), -EOPNOTSUPP);
	assert_non_null(strstr(error.text, "\"f\" is float32, but another input is bfloat16"));
	model = rbk_onnx_free(model);
	start();
	onnx_model_node(&made, "BitwiseAnd", "x w", "y");
	assert_int_equal(compile("y", 0), -EOPNOTSUPP);
	model = rbk_onnx_free(model);
	start();
	onnx_model_node(&made, "Concat", "x f", "y");
	onnx_model_attr_int(&made, made.graph.node[0], "axis", 1);
	assert_int_equal(compile("y", 0), -EOPNOTSUPP);
	assert_non_null(strstr(error.text, "bfloat16"));
	model = rbk_onnx_free(model);
	start();
	onnx_model_node(&made, "Cast", "x", "y");
	onnx_model_attr_int(&made, made.graph.node[0], "to", RBK_ONNX_U64);
	assert_int_equal(compile("y", 0), -EOPNOTSUPP);
	model = rbk_onnx_free(model);
}
