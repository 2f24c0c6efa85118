/* SPDX-License-Identifier: MIT */
/* Tests of libclient/onnx: nodes of every opset become the catalogue's operators, and refusals */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "fail-alloc.h"
#include "libclient/onnx/eval.h"
#include "support/onnx-model.h"
#include "support/test.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

static struct onnx_model made;
static struct rbk_onnx *model;
static struct rbk_error error;

static const int64_t x_dims[] = {-1, 4};

/* Begin a model that reads x, [N,4]. */
static void start(int64_t opset)
{
	onnx_model_init(&made, opset);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, x_dims);
}

static void load(const char *output)
{
	const uint8_t *bytes;
	size_t n_bytes;

	onnx_model_output(&made, output);
	bytes = onnx_model_pack(&made, &n_bytes);
	error.text[0] = 0;
	if (rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, &error))
		fail_msg("%s", error.text);
	onnx_model_deinit(&made);
}

static int compile_as(uint32_t max_count, uint32_t disable)
{
	const struct rbk_onnx_options options = {
		.size = sizeof(options), .max_count = max_count, .disable = disable};

	return rbk_onnx_compile(model, &options, &error);
}

static void compile(uint32_t max_count)
{
	if (compile_as(max_count, 0))
		fail_msg("%s", error.text);
}

static void finish(void)
{
	model = rbk_onnx_free(model);
}

/* Expect the plan's operators, in order, separated by blanks. */
static void expect_steps(const char *expected)
{
	char got[256] = "";

	for (unsigned int i = 0; i < rbk_onnx_n_steps(model); i++) {
		struct rbk_onnx_step step;

		assert_int_equal(rbk_onnx_step(model, i, &step), 0);
		if (i > 0)
			strcat(got, " ");
		strcat(got, step.op);
	}
	assert_string_equal(got, expected);
}

static void expect_refused(int r, const char *words)
{
	if (!r || !strstr(error.text, words))
		fail_msg("expected \"%s\", got %d \"%s\"", words, r, error.text);
	assert_int_equal(r, -EOPNOTSUPP);
}

static const struct tensor *find(const char *name)
{
	for (uint32_t i = 0; i < model->n_values; i++)
		if (!strcmp(model->values[i].name, name) && model->graph->values[i])
			return model->graph->values[i];
	fail_msg("there is no \"%s\"", name);
	return NULL;
}

/* Expect a folded value of int64s: @values, plus @rows (may be NULL) for each row of the count. */
static void expect_ints(const char *name, unsigned int n, const int64_t *values,
			const int64_t *rows)
{
	const struct constant *constant = find(name)->constant;

	assert_non_null(constant);
	assert_fields(*constant, (dtype, RBK_ONNX_I64), (n_elems, n));
	assert_memory_equal(constant->data, values, n * sizeof(*values));
	assert_int_equal(constant->rows != NULL, rows != NULL);
	if (rows)
		assert_memory_equal(constant->rows, rows, n * sizeof(*rows));
}

static void expect_shape(const char *name, const char *expected)
{
	char text[SHAPE_TEXT_BYTES];

	assert_string_equal(shape_print(&find(name)->shape, text), expected);
}

/* ---- Shapes and counts ---- */

TEST(test_compile__count)
{
	struct rbk_onnx_bound bound;

	start(13);
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	assert_int_equal(rbk_onnx_n_bound(model), 0);
	compile(16);
	expect_steps("Relu");
	assert_int_equal(rbk_onnx_n_bound(model), 2);
	assert_int_equal(rbk_onnx_bound(model, 0, &bound), 0);
	assert_string_equal(bound.name, "x");
	assert_false(bound.is_output);
	assert_fields(bound, (dims[0], RBK_DIM_COUNT), (per_count, 1), (bytes_row, 16),
		      (bytes_fixed, 0));
	assert_int_equal(rbk_onnx_bound(model, 1, &bound), 0);
	assert_string_equal(bound.name, "y");
	assert_true(bound.is_output);
	assert_int_equal(rbk_onnx_bound(model, 2, &bound), -EINVAL);

	/* With one row, every dimension is fixed. */
	compile(1);
	assert_int_equal(rbk_onnx_bound(model, 0, &bound), 0);
	assert_fields(bound, (dims[0], 1), (per_count, 0), (bytes_fixed, 16));

	assert_int_equal(rbk_onnx_set_dim(model, "N", 3, &error), 0);
	assert_int_equal(rbk_onnx_n_bound(model), 0);
	compile(16);
	expect_shape("y", "[3,4]");
	assert_int_equal(rbk_onnx_set_dim(model, "K", 3, &error), -ENOENT);
	assert_int_equal(rbk_onnx_set_dim(model, "N", -1, &error), -EINVAL);
	finish();
}

TEST(test_compile__open_dimensions)
{
	onnx_model_init(&made, 13);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){-1, -2});
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	expect_refused(compile_as(16, 0), "dimension 1 (M) is open");
	assert_int_equal(rbk_onnx_set_dim(model, "M", 7, &error), 0);
	compile(16);
	expect_shape("y", "[count,7]");
	finish();

	onnx_model_init(&made, 13);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){-3, -3});
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	expect_refused(compile_as(16, 0), "dimension 1 (no name)");
	assert_int_equal(rbk_onnx_set_shape(model, "x", 2, (int64_t[]){-1, 5}, &error), 0);
	compile(16);
	expect_shape("y", "[count,5]");
	assert_int_equal(rbk_onnx_set_shape(model, "x", 3, (int64_t[]){1, 5, 5}, &error), -EINVAL);
	assert_int_equal(rbk_onnx_set_shape(model, "x", 2, (int64_t[]){1, 6}, &error), -EINVAL);
	assert_int_equal(rbk_onnx_set_shape(model, "z", 0, NULL, &error), -ENOENT);
	finish();

	/* Two dimensions that are both unknown are not equal. */
	onnx_model_init(&made, 13);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){-1, 4});
	onnx_model_input(&made, "z", RBK_ONNX_F32, 2, (int64_t[]){-2, 4});
	onnx_model_node(&made, "Add", "x z", "y");
	load("y");
	expect_refused(compile_as(16, 0), "only one of them can be the count");
	finish();
}

TEST(test_compile__batch_of_one)
{
	static const float w[16];
	const int64_t dims[] = {1, 4}, square[] = {4, 4};

	onnx_model_init(&made, 13);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, dims);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 2, square, w, sizeof(w));
	onnx_model_node(&made, "MatMul", "x w", "h");
	onnx_model_node(&made, "Relu", "h", "y");
	load("y");
	compile(8);
	expect_shape("y", "[count,4]");
	{
		const struct rbk_onnx_options keep = {
			.size = sizeof(keep), .max_count = 8, .keep_batch = 1};

		assert_int_equal(rbk_onnx_compile(model, &keep, &error), 0);
	}
	expect_shape("y", "[1,4]");
	finish();

	/* An operator across rows would change its result, so the count stays fixed. */
	for (unsigned int i = 0; i < 3; i++) {
		Onnx__NodeProto *node;

		onnx_model_init(&made, 13);
		onnx_model_input(&made, "x", RBK_ONNX_F32, 2, dims);
		if (i == 0) {
			node = onnx_model_node(&made, "Softmax", "x", "y");
			onnx_model_attr_int(&made, node, "axis", 0);
		} else if (i == 1) {
			onnx_model_node(&made, "Transpose", "x", "t");
			onnx_model_node(&made, "Relu", "t", "y");
		} else {
			onnx_model_ints(&made, "axes", 1, (int64_t[]){0});
			onnx_model_node(&made, "ReduceSum", "x axes", "y");
		}
		load("y");
		compile(8);
		assert_false(find("y")->shape.dynamic);
		assert_int_equal(rbk_onnx_n_refusals(model), 0);
		finish();
	}
}

/* ---- Constants ---- */

TEST(test_fold__shape_arithmetic)
{
	Onnx__NodeProto *node;

	start(13);
	onnx_model_ints(&made, "zero", 1, (int64_t[]){0});
	onnx_model_ints(&made, "one", 1, (int64_t[]){1});
	onnx_model_ints(&made, "rest", 2, (int64_t[]){-1, 2});
	onnx_model_node(&made, "Shape", "x", "shape");
	onnx_model_node(&made, "Gather", "shape zero", "n");
	onnx_model_node(&made, "Gather", "shape one", "width");
	onnx_model_node(&made, "Mul", "n width", "all");
	onnx_model_node(&made, "Div", "all width", "again");
	node = onnx_model_node(&made, "Concat", "n rest", "target");
	onnx_model_attr_int(&made, node, "axis", 0);
	onnx_model_node(&made, "Equal", "target rest", "equal");
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	compile_as(16, 0);
	expect_ints("shape", 2, (int64_t[]){0, 4}, (int64_t[]){1, 0});
	expect_ints("n", 1, (int64_t[]){0}, (int64_t[]){1});
	expect_ints("width", 1, (int64_t[]){4}, NULL);
	expect_ints("all", 1, (int64_t[]){0}, (int64_t[]){4});
	expect_ints("again", 1, (int64_t[]){0}, (int64_t[]){1});
	expect_ints("target", 3, (int64_t[]){0, -1, 2}, (int64_t[]){1, 0, 0});
	/* With one row, the count is a number like any other. */
	compile_as(1, 0);
	expect_ints("all", 1, (int64_t[]){4}, NULL);
	finish();
}

TEST(test_fold__moves)
{
	const int64_t values[] = {0, 1, 2, 3, 4, 5};
	Onnx__NodeProto *node;

	start(13);
	onnx_model_constant(&made, "c", RBK_ONNX_I64, 2, (int64_t[]){2, 3}, values, sizeof(values));
	node = onnx_model_node(&made, "Transpose", "c", "transposed");
	onnx_model_attr_ints(&made, node, "perm", 2, (int64_t[]){1, 0});
	onnx_model_ints(&made, "starts", 2, (int64_t[]){-1, INT64_MAX});
	onnx_model_ints(&made, "ends", 2, (int64_t[]){INT64_MIN, 0});
	onnx_model_ints(&made, "axes", 2, (int64_t[]){0, -1});
	onnx_model_ints(&made, "steps", 2, (int64_t[]){-1, -2});
	onnx_model_node(&made, "Slice", "c starts ends axes steps", "sliced");
	onnx_model_ints(&made, "twice", 2, (int64_t[]){1, 2});
	onnx_model_node(&made, "Tile", "c twice", "tiled");
	onnx_model_ints(&made, "wide", 3, (int64_t[]){2, 2, 3});
	onnx_model_node(&made, "Expand", "c wide", "expanded");
	node = onnx_model_node(&made, "Split", "c", "first second third");
	onnx_model_attr_int(&made, node, "axis", 1);
	onnx_model_ints(&made, "which", 2, (int64_t[]){-1, 0});
	node = onnx_model_node(&made, "Gather", "c which", "gathered");
	onnx_model_attr_int(&made, node, "axis", 1);
	node = onnx_model_node(&made, "Concat", "c transposed2", "joined");
	onnx_model_attr_int(&made, node, "axis", 1);
	onnx_model_ints(&made, "flat", 1, (int64_t[]){-1});
	onnx_model_node(&made, "Reshape", "c flat", "list");
	onnx_model_ints(&made, "first_axis", 1, (int64_t[]){0});
	onnx_model_node(&made, "ReduceProd", "list", "product");
	onnx_model_node(&made, "Unsqueeze", "second first_axis", "more");
	onnx_model_node(&made, "Squeeze", "more", "less");
	onnx_model_node(&made, "Identity", "c", "transposed2");
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	compile_as(4, 0);
	expect_ints("transposed", 6, (int64_t[]){0, 3, 1, 4, 2, 5}, NULL);
	expect_ints("sliced", 2, (int64_t[]){5, 2}, NULL);
	expect_ints("tiled", 12, (int64_t[]){0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, NULL);
	expect_ints("expanded", 12, (int64_t[]){0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, NULL);
	expect_ints("second", 2, (int64_t[]){1, 4}, NULL);
	expect_ints("gathered", 4, (int64_t[]){2, 0, 5, 3}, NULL);
	expect_ints("joined", 12, (int64_t[]){0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, NULL);
	expect_ints("list", 6, values, NULL);
	expect_ints("product", 1, (int64_t[]){0}, NULL);
	expect_shape("more", "[1,2,1]");
	expect_shape("less", "[2]");
	assert_int_equal(rbk_onnx_n_refusals(model), 0);
	finish();
}

/*
 * An input without elements is known, so every result of a reduction along its empty axis is known,
 * too.
 */
TEST(test_fold__nothing)
{
	static const struct {
		const char *op;
		float value;
	} cases[] = {{"ReduceSum", 0},        {"ReduceProd", 1}, {"ReduceMax", -INFINITY},
		     {"ReduceMin", INFINITY}, {"ReduceL2", 0},   {"ReduceLogSumExp", -INFINITY}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct tensor *found;

		onnx_model_init(&made, 20);
		onnx_model_input(&made, "x", RBK_ONNX_F32, 3, (int64_t[]){2, 0, 4});
		onnx_model_ints(&made, "axes", 1, (int64_t[]){1});
		onnx_model_node(&made, cases[i].op, "x axes", "reduced");
		load("reduced");
		compile_as(4, 0);
		assert_int_equal(rbk_onnx_n_refusals(model), 0);
		assert_int_equal(rbk_onnx_n_bound(model), 1);
		/* The output still needs one step that writes it. */
		assert_int_equal(rbk_onnx_n_steps(model), 1);
		expect_shape("reduced", "[2,1,4]");
		found = find("reduced");
		assert_int_equal(found->constant->n_elems, 8);
		for (unsigned int k = 0; k < 8; k++)
			assert_true(((const float *)found->constant->data)[k] == cases[i].value);
		finish();
	}
}

/* Outputs without elements are bound like others, and the plan has a step for them. */
TEST(test_fold__empty_outputs)
{
	struct rbk_onnx_bound bound;

	start(13);
	onnx_model_ints(&made, "far", 1, (int64_t[]){1000});
	onnx_model_ints(&made, "further", 1, (int64_t[]){2000});
	onnx_model_ints(&made, "axis", 1, (int64_t[]){1});
	onnx_model_node(&made, "Slice", "x far further axis", "y");
	load("y");
	compile_as(1, 0);
	assert_int_equal(rbk_onnx_n_refusals(model), 0);
	assert_int_equal(rbk_onnx_n_steps(model), 1);
	assert_int_equal(rbk_onnx_n_bound(model), 1);
	assert_int_equal(rbk_onnx_bound(model, 0, &bound), 0);
	assert_true(bound.is_output);
	assert_fields(bound, (rank, 2), (dims[1], 0), (bytes_fixed, 0));
	finish();
}

TEST(test_fold__constants)
{
	Onnx__NodeProto *node;

	start(13);
	node = onnx_model_node(&made, "Constant", "", "five");
	onnx_model_attr_int(&made, node, "value_int", 5);
	node = onnx_model_node(&made, "Constant", "", "two");
	onnx_model_attr_int(&made, node, "value_int", 2);
	node = onnx_model_node(&made, "Constant", "", "zero");
	onnx_model_attr_int(&made, node, "value_int", 0);
	onnx_model_node(&made, "Range", "zero five two", "range");
	node = onnx_model_node(&made, "Mod", "five two", "mod");
	onnx_model_node(&made, "Sub", "zero five", "minus");
	onnx_model_node(&made, "Mod", "minus two", "floor_mod");
	onnx_model_node(&made, "Div", "minus two", "div");
	node = onnx_model_node(&made, "Cast", "five", "half");
	onnx_model_attr_int(&made, node, "to", RBK_ONNX_F16);
	node = onnx_model_node(&made, "Cast", "half", "back");
	onnx_model_attr_int(&made, node, "to", RBK_ONNX_I64);
	onnx_model_ints(&made, "list", 1, (int64_t[]){3});
	node = onnx_model_node(&made, "ConstantOfShape", "list", "zeros");
	node = onnx_model_node(&made, "Size", "x", "size");
	node = onnx_model_node(&made, "Constant", "", "floats");
	{
		Onnx__AttributeProto *attr = onnx_model_attr(&made, node, "value_floats");
		static float floats[] = {1.5f, 2};

		attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
		attr->n_floats = 2;
		attr->floats = floats;
	}
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	if (compile_as(4, 0))
		fail_msg("%s", error.text);
	expect_ints("range", 3, (int64_t[]){0, 2, 4}, NULL);
	expect_ints("mod", 1, (int64_t[]){1}, NULL);
	expect_ints("floor_mod", 1, (int64_t[]){1}, NULL);
	expect_ints("div", 1, (int64_t[]){-2}, NULL);
	expect_ints("back", 1, (int64_t[]){5}, NULL);
	expect_ints("size", 1, (int64_t[]){0}, (int64_t[]){4});
	assert_int_equal(find("zeros")->constant->n_bytes, 12);
	assert_memory_equal(find("floats")->constant->data, ((float[]){1.5f, 2}), 8);
	expect_steps("Relu");
	finish();
}

static Onnx__NodeProto *dequantize(const char *inputs, const char *output, int64_t axis)
{
	Onnx__NodeProto *node = onnx_model_node(&made, "DequantizeLinear", inputs, output);

	onnx_model_attr_int(&made, node, "axis", axis);
	return node;
}

/*
 * One scale for all, one per index of an axis, one per block. Invalid combinations are not folded.
 */
TEST(test_fold__dequantize)
{
	static const int8_t w[] = {-128, -1, 0, 1, 2, 127}, zeros[] = {1, -1};
	static const float scales[] = {0.5f, 2, 4, 8};
	const int64_t dims[] = {2, 3}, two[] = {2}, blocks[] = {2, 2};
	Onnx__NodeProto *node;

	for (unsigned int strange = 0; strange < 2; strange++) {
		start(21);
		onnx_model_constant(&made, "w", RBK_ONNX_I8, 2, dims, w, sizeof(w));
		onnx_model_constant(&made, "one", RBK_ONNX_F32, 0, NULL, scales, 4);
		onnx_model_constant(&made, "some", RBK_ONNX_F32, 1, two, scales, 8);
		onnx_model_constant(&made, "zeros", RBK_ONNX_I8, 1, two, zeros, 2);
		onnx_model_constant(&made, "many", RBK_ONNX_F32, 2, blocks, scales, 16);
		dequantize("w one", "a", 9);
		dequantize("w some zeros", "b", -2);
		node = dequantize("w many", "c", 1);
		onnx_model_attr_int(&made, node, "block_size", 2);
		if (strange)
			onnx_model_attr_int(&made, node, "colour", 2);
		onnx_model_node(&made, "Relu", "x", "y");
		load("y");
		if (strange) {
			expect_refused(compile_as(4, 0), "colour");
			finish();
			continue;
		}
		compile(4);
		assert_memory_equal(find("a")->constant->data,
				    ((float[]){-64, -0.5f, 0, 0.5f, 1, 63.5f}), 24);
		assert_memory_equal(find("b")->constant->data,
				    ((float[]){-64.5f, -1, -0.5f, 4, 6, 256}), 24);
		assert_memory_equal(find("c")->constant->data,
				    ((float[]){-64, -0.5f, 0, 4, 8, 1016}), 24);
		finish();
	}
}

TEST(test_eval__halves)
{
	uint16_t half, again;

	/* Each half survives a load and a store unchanged. */
	for (uint32_t i = 0; i < 65536; i++) {
		half = (uint16_t)i;
		if ((half & 0x7c00) == 0x7c00 && half & 0x3ff)
			continue;
		eval_store(RBK_ONNX_F16, &again, 0, eval_load(RBK_ONNX_F16, &half, 0));
		assert_int_equal(again, half);
	}
	half = 0x7e00;
	assert_true(isnan(eval_load(RBK_ONNX_F16, &half, 0)));
	/* Rounding to nearest, ties to even, and the limits of the range. */
	eval_store(RBK_ONNX_F16, &half, 0, 1 + 0x1p-11);
	assert_int_equal(half, 0x3c00);
	eval_store(RBK_ONNX_F16, &half, 0, 1 + 3 * 0x1p-11);
	assert_int_equal(half, 0x3c02);
	eval_store(RBK_ONNX_F16, &half, 0, 65519.99);
	assert_int_equal(half, 0x7bff);
	eval_store(RBK_ONNX_F16, &half, 0, -65520);
	assert_int_equal(half, 0xfc00);
	eval_store(RBK_ONNX_F16, &half, 0, 0x1p-25);
	assert_int_equal(half, 0);
	eval_store(RBK_ONNX_F16, &half, 0, 0x1.8p-25);
	assert_int_equal(half, 1);
	eval_store(RBK_ONNX_F16, &half, 0, 2047.99);
	assert_int_equal(half, 0x6800);
}

/* ---- Operators over the opsets ---- */

TEST(test_opset_6__broadcast)
{
	static const float b[3 * 4];
	Onnx__NodeProto *node;

	onnx_model_init(&made, 6);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 4, (int64_t[]){-1, 3, 4, 5});
	onnx_model_constant(&made, "b", RBK_ONNX_F32, 2, (int64_t[]){3, 4}, b, sizeof(b));
	node = onnx_model_node(&made, "Add", "x b", "y");
	onnx_model_attr_int(&made, node, "broadcast", 1);
	onnx_model_attr_int(&made, node, "axis", 1);
	load("y");
	compile(4);
	expect_steps("Add");
	expect_shape("y", "[count,3,4,5]");
	assert_int_equal(model->graph->steps[0]->in[1]->shape.rank, 3);
	finish();

	/* Without the broadcast attribute, both inputs must have the same shape. */
	onnx_model_init(&made, 6);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){3, 4});
	onnx_model_constant(&made, "b", RBK_ONNX_F32, 1, (int64_t[]){4}, b, 16);
	onnx_model_node(&made, "Add", "x b", "y");
	load("y");
	expect_refused(compile_as(1, 0), "do not fit together");
	finish();
}

/* A slope for each channel, without naming the channels' dimension. */
TEST(test_opset_6__prelu)
{
	static const int64_t slopes[] = {2, 3, 4};
	const struct constant *constant;

	onnx_model_init(&made, 6);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 4, (int64_t[]){-1, 3, 4, 5});
	onnx_model_constant(&made, "s", RBK_ONNX_F32, 1, (int64_t[]){3}, slopes, 12);
	onnx_model_node(&made, "PRelu", "x s", "y");
	load("y");
	if (!compile_as(4, 0)) {
		constant = model->graph->steps[0]->in[1]->constant;
		assert_fields(*constant, (rank, 3), (dims[0], 3), (dims[1], 1));
	}
	finish();
}

TEST(test_softmax__opsets)
{
	onnx_model_init(&made, 13);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 3, (int64_t[]){2, 3, 4});
	onnx_model_node(&made, "Softmax", "x", "y");
	load("y");
	compile(1);
	expect_steps("Softmax");
	assert_int_equal(model->graph->steps[0]->attrs[0].i, 2);
	finish();
	onnx_model_init(&made, 12);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, (int64_t[]){2, 3});
	onnx_model_node(&made, "Softmax", "x", "y");
	load("y");
	compile(1);
	expect_steps("Softmax");
	assert_int_equal(model->graph->steps[0]->attrs[0].i, 1);
	finish();
}

TEST(test_reduce__opsets)
{
	Onnx__NodeProto *node;

	for (unsigned int i = 0; i < 2; i++) {
		start(i ? 13 : 11);
		if (i)
			onnx_model_ints(&made, "axes", 1, (int64_t[]){-1});
		node = onnx_model_node(&made, "ReduceSum", i ? "x axes" : "x", "y");
		if (!i)
			onnx_model_attr_ints(&made, node, "axes", 1, (int64_t[]){-1});
		onnx_model_attr_int(&made, node, "keepdims", 0);
		load("y");
		compile(4);
		expect_steps("ReduceSum");
		expect_shape("y", "[count]");
		finish();
	}
	/* With noop_with_empty_axes, no axes means no reduction. */
	start(13);
	node = onnx_model_node(&made, "ReduceSum", "x", "r");
	onnx_model_attr_int(&made, node, "noop_with_empty_axes", 1);
	onnx_model_node(&made, "Relu", "r", "y");
	load("y");
	compile(4);
	expect_steps("Relu");
	finish();
}

TEST(test_top_k__opsets)
{
	Onnx__NodeProto *node;

	for (unsigned int i = 0; i < 2; i++) {
		start(i ? 11 : 9);
		if (i)
			onnx_model_ints(&made, "k", 1, (int64_t[]){2});
		node = onnx_model_node(&made, "TopK", i ? "x k" : "x", "y i");
		if (!i)
			onnx_model_attr_int(&made, node, "k", 2);
		load("y");
		compile(4);
		expect_steps("TopK");
		expect_shape("y", "[count,2]");
		expect_shape("i", "[count,2]");
		finish();
	}
}

/* Inputs on which shapes and kernels depend become attributes; index inputs stay inputs. */
TEST(test_indexed)
{
	Onnx__NodeProto *node;

	start(18);
	onnx_model_input(&made, "at", RBK_ONNX_I64, 2, x_dims);
	onnx_model_node(&made, "Scatter", "x at x", "s");
	load("s");
	expect_refused(compile_as(4, 0), "Scatter");
	finish();

	start(18);
	onnx_model_input(&made, "at", RBK_ONNX_I64, 2, x_dims);
	node = onnx_model_node(&made, "ScatterElements", "x at x", "s");
	onnx_model_attr_int(&made, node, "axis", -1);
	load("s");
	compile(4);
	expect_steps("ScatterElements");
	expect_shape("s", "[count,4]");
	finish();

	start(14);
	onnx_model_ints(&made, "depth", 1, (int64_t[]){7});
	onnx_model_constant(&made, "values", RBK_ONNX_F32, 1, (int64_t[]){2}, (const float[]){0, 1},
			    2 * sizeof(float));
	node = onnx_model_node(&made, "OneHot", "x depth values", "hot");
	onnx_model_attr_int(&made, node, "axis", 1);
	onnx_model_ints(&made, "k", 1, (int64_t[]){-1});
	onnx_model_node(&made, "Trilu", "hot k", "y");
	load("y");
	compile(4);
	expect_steps("Cast OneHot Trilu");
	expect_shape("hot", "[count,7,4]");
	finish();

	start(14);
	onnx_model_ints(&made, "depth", 1, (int64_t[]){-7});
	onnx_model_node(&made, "OneHot", "x depth x", "y");
	load("y");
	expect_refused(compile_as(4, 0), "depth is -7");
	finish();
}

TEST(test_variadic)
{
	start(13);
	onnx_model_node(&made, "Sum", "x x x x", "y");
	load("y");
	compile(4);
	expect_steps("Add Add Add");
	finish();
	start(13);
	onnx_model_node(&made, "Sum", "x", "s");
	onnx_model_node(&made, "Relu", "s", "y");
	load("y");
	compile(4);
	expect_steps("Relu");
	finish();
}

TEST(test_no_ops)
{
	Onnx__NodeProto *node;

	start(13);
	onnx_model_node(&made, "Identity", "x", "a");
	onnx_model_node(&made, "Dropout", "a", "b");
	node = onnx_model_node(&made, "Transpose", "b", "c");
	onnx_model_attr_ints(&made, node, "perm", 2, (int64_t[]){0, 1});
	node = onnx_model_node(&made, "Cast", "c", "d");
	onnx_model_attr_int(&made, node, "to", RBK_ONNX_F32);
	onnx_model_ints(&made, "starts", 1, (int64_t[]){0});
	onnx_model_ints(&made, "ends", 1, (int64_t[]){INT64_MAX});
	onnx_model_node(&made, "Slice", "d starts ends", "e");
	onnx_model_ints(&made, "ones", 2, (int64_t[]){1, 1});
	onnx_model_node(&made, "Tile", "e ones", "f");
	onnx_model_node(&made, "Expand", "f ones", "g");
	onnx_model_ints(&made, "pads", 4, (int64_t[]){0, 0, 0, 0});
	onnx_model_node(&made, "Pad", "g pads", "h");
	onnx_model_ints(&made, "same", 2, (int64_t[]){0, -1});
	onnx_model_node(&made, "Reshape", "h same", "i");
	onnx_model_node(&made, "Relu", "i", "y");
	onnx_model_node(&made, "Softmax", "y", "dead");
	load("y");
	compile(4);
	expect_steps("Relu");
	if (!compile_as(4, RBK_ONNX_OPT_DEAD))
		expect_steps("Relu Softmax");
	finish();
}

/* A normalisation of two channels is folded into the convolution's weights and bias. */
TEST(test_conv_batch_norm)
{
	static const float w[] = {1, 2}, b[] = {10, 20}, scale[] = {2, 3}, shift[] = {1, -1};
	static const float mean[] = {5, 6}, var[] = {4, 9};
	const int64_t dims[] = {-1, 1, 4}, w_dims[] = {2, 1, 1}, list[] = {2};
	const struct step *step;
	Onnx__NodeProto *node;

	for (unsigned int i = 0; i < 2; i++) {
		onnx_model_init(&made, 15);
		onnx_model_input(&made, "x", RBK_ONNX_F32, 3, dims);
		onnx_model_constant(&made, "w", RBK_ONNX_F32, 3, w_dims, w, sizeof(w));
		onnx_model_constant(&made, "b", RBK_ONNX_F32, 1, list, b, sizeof(b));
		onnx_model_constant(&made, "scale", RBK_ONNX_F32, 1, list, scale, sizeof(scale));
		onnx_model_constant(&made, "shift", RBK_ONNX_F32, 1, list, shift, sizeof(shift));
		onnx_model_constant(&made, "mean", RBK_ONNX_F32, 1, list, mean, sizeof(mean));
		onnx_model_constant(&made, "var", RBK_ONNX_F32, 1, list, var, sizeof(var));
		onnx_model_node(&made, "Conv", "x w b", "c");
		node = onnx_model_node(&made, "BatchNormalization", "c scale shift mean var", "n");
		onnx_model_attr_float(&made, node, "epsilon", 0);
		onnx_model_node(&made, "Relu", "n", "y");
		/* Another node reads the convolution's result before the normalisation. */
		if (i)
			onnx_model_node(&made, "Relu", "c", "other");
		load("y");
		if (i) {
			compile_as(4, 0);
			assert_true(rbk_onnx_n_steps(model) != 2);
			finish();
			continue;
		}
		compile(4);
		expect_steps("Conv Relu");
		step = model->graph->steps[0];
		assert_memory_equal(step->in[1]->constant->data, ((float[]){1, 2}), 8);
		assert_memory_equal(step->in[2]->constant->data, ((float[]){6, 13}), 8);
		if (!compile_as(4, RBK_ONNX_OPT_CONV_BN))
			expect_steps("Conv BatchNormalization Relu");
		finish();
	}
}

/*
 * The normalisation is not folded if weights would become infinite: 0 times such a weight is NaN.
 */
TEST(test_conv_batch_norm__infinite)
{
	static const struct {
		float weight, scale, shift, mean, var;
	} cases[] = {
		{1, 2, 1, 5, 0},        {1, 0, 1, 5, 0},        {1, 2, 1, 5, -1},
		{1, 2, INFINITY, 5, 1}, {1, INFINITY, 1, 5, 1}, {1e30f, 1e30f, 1, 5, 1},
	};
	const int64_t dims[] = {-1, 1, 4}, ones[] = {1, 1, 1};
	Onnx__NodeProto *node;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		onnx_model_init(&made, 15);
		onnx_model_input(&made, "x", RBK_ONNX_F32, 3, dims);
		onnx_model_constant(&made, "w", RBK_ONNX_F32, 3, ones, &cases[i].weight, 4);
		onnx_model_constant(&made, "scale", RBK_ONNX_F32, 1, ones, &cases[i].scale, 4);
		onnx_model_constant(&made, "shift", RBK_ONNX_F32, 1, ones, &cases[i].shift, 4);
		onnx_model_constant(&made, "mean", RBK_ONNX_F32, 1, ones, &cases[i].mean, 4);
		onnx_model_constant(&made, "var", RBK_ONNX_F32, 1, ones, &cases[i].var, 4);
		onnx_model_node(&made, "Conv", "x w", "c");
		node = onnx_model_node(&made, "BatchNormalization", "c scale shift mean var", "y");
		onnx_model_attr_float(&made, node, "epsilon", 0);
		load("y");
		compile(4);
		expect_steps("Conv BatchNormalization");
		finish();
	}
}

/* ---- Refusals ---- */

TEST(test_refusals__all_of_them)
{
	struct rbk_onnx_refusal refusal;
	Onnx__NodeProto *node;

	start(13);
	node = onnx_model_node(&made, "Frobnicate", "x", "a");
	node->name = (char *)"first";
	node = onnx_model_node(&made, "Op", "a", "b");
	node->domain = (char *)"com.example";
	node = onnx_model_node(&made, "Softmax", "x", "c");
	onnx_model_attr_int(&made, node, "axis", 7);
	node = onnx_model_node(&made, "Softmax", "x", "d");
	onnx_model_attr_string(&made, node, "axis", "x");
	node = onnx_model_node(&made, "Relu", "x", "e");
	onnx_model_attr_int(&made, node, "slope", 7);
	onnx_model_node(&made, "Gelu", "x", "f");
	onnx_model_node(&made, "Relu", "x x", "g");
	onnx_model_node(&made, "Relu", "-", "h");
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	assert_int_equal(compile_as(4, 0), -EOPNOTSUPP);
	assert_non_null(strstr(error.text, "\"first\""));
	assert_non_null(strstr(error.text, "8 reasons"));
	assert_int_equal(rbk_onnx_n_refusals(model), 8);
	assert_int_equal(rbk_onnx_refusal(model, 0, &refusal), 0);
	assert_int_equal(refusal.node, 0);
	assert_string_equal(refusal.op, "Frobnicate");
	assert_string_equal(refusal.name, "first");
	assert_int_equal(refusal.opset, 13);
	assert_int_equal(rbk_onnx_refusal(model, 1, &refusal), 0);
	assert_string_equal(refusal.op, "com.example.Op");
	assert_string_equal(refusal.name, "b");
	assert_int_equal(refusal.opset, 0);
	assert_int_equal(rbk_onnx_refusal(model, 2, &refusal), 0);
	assert_string_equal(refusal.reason, "axis 7 is not one of 2 dimensions");
	assert_int_equal(rbk_onnx_refusal(model, 5, &refusal), 0);
	assert_string_equal(refusal.reason, "the operator exists only from opset 20 on");
	assert_int_equal(rbk_onnx_refusal(model, 8, &refusal), -EINVAL);
	/* A refused model has no bindings and no steps. */
	assert_int_equal(rbk_onnx_n_bound(model), 0);
	assert_int_equal(rbk_onnx_n_steps(model), 0);
	assert_int_equal(rbk_onnx_plan(model, NULL, NULL, NULL, &error), -EINVAL);
	finish();
}

/* Inputs whose values determine shapes: all are reported at once, also those behind other nodes. */
TEST(test_values_needed)
{
	const int64_t one[] = {1}, starts[] = {1}, ends[] = {3};
	struct rbk_onnx_tensor tensor = {
		.dtype = RBK_ONNX_I64, .rank = 1, .dims = {1}, .data = starts, .n_bytes = 8};
	struct rbk_onnx_value value;

	start(13);
	onnx_model_input(&made, "starts", RBK_ONNX_I64, 1, one);
	onnx_model_input(&made, "ends", RBK_ONNX_I64, 1, one);
	onnx_model_input(&made, "axes", RBK_ONNX_I64, 1, one);
	onnx_model_node(&made, "Identity", "ends", "same_ends");
	onnx_model_node(&made, "Slice", "c starts same_ends axes", "unused");
	onnx_model_constant(&made, "c", RBK_ONNX_I64, 1, (int64_t[]){4},
			    (int64_t[]){10, 11, 12, 13}, 32);
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	expect_refused(compile_as(4, 0), "must be known");
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(rbk_onnx_input(model, i, &value), 0);
		assert_int_equal(value.value_needed, i > 0);
	}
	assert_int_equal(rbk_onnx_set_input(model, "starts", &tensor, &error), 0);
	tensor.data = ends;
	assert_int_equal(rbk_onnx_set_input(model, "ends", &tensor, &error), 0);
	tensor.data = (int64_t[]){0};
	assert_int_equal(rbk_onnx_set_input(model, "axes", &tensor, &error), 0);
	compile(4);
	expect_ints("unused", 2, (int64_t[]){11, 12}, NULL);
	assert_int_equal(rbk_onnx_n_bound(model), 2);
	assert_int_equal(rbk_onnx_input(model, 1, &value), 0);
	assert_true(value.is_set);
	assert_false(value.value_needed);

	tensor.n_bytes = 4;
	assert_int_equal(rbk_onnx_set_input(model, "axes", &tensor, &error), -EINVAL);
	tensor.dtype = RBK_ONNX_F32;
	assert_int_equal(rbk_onnx_set_input(model, "axes", &tensor, &error), -EINVAL);
	assert_int_equal(rbk_onnx_set_input(model, "none", &tensor, &error), -ENOENT);
	assert_int_equal(rbk_onnx_set_input(model, "axes", NULL, &error), 0);
	expect_refused(compile_as(4, 0), "must be known");
	finish();
}

/*
 * An input with a default is bound, and its default ignored, unless the caller decides otherwise.
 */
TEST(test_defaults)
{
	static const float b[] = {1, 2, 3, 4};
	const int64_t four[] = {4};
	struct rbk_onnx_value value;

	start(13);
	onnx_model_input(&made, "b", RBK_ONNX_F32, 1, four);
	onnx_model_constant(&made, "b", RBK_ONNX_F32, 1, four, b, sizeof(b));
	onnx_model_node(&made, "Add", "x b", "y");
	load("y");
	compile(4);
	assert_int_equal(rbk_onnx_input(model, 1, &value), 0);
	assert_true(value.is_optional);
	assert_int_equal(rbk_onnx_n_bound(model), 2);
	finish();
}

TEST(test_options)
{
	struct rbk_onnx_options options = {.max_count = 4};

	start(13);
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	assert_int_equal(rbk_onnx_compile(model, &options, &error), -EINVAL);
	options.size = sizeof(options);
	options.max_count = 1u << 31;
	assert_int_equal(rbk_onnx_compile(model, &options, &error), -EINVAL);
	assert_int_equal(rbk_onnx_compile(model, NULL, NULL), 0);
	finish();
}

/* ---- Names ---- */

TEST(test_names)
{
	struct names *names = names_new();
	char name[RBK_NAME_BYTES], again[RBK_NAME_BYTES];

	assert_non_null(names);
	assert_int_equal(names_make(names, "short", name), 0);
	assert_string_equal(name, "short");
	assert_int_equal(names_make(names, "short", again), 0);
	assert_string_not_equal(again, "short");
	assert_int_equal(names_make(names, "/model/layers.11/self_attn/q_proj/MatMul_output", name),
			 0);
	assert_string_equal(name, &"ayers.11/self_attn/q_proj/MatMul_output"[8]);
	assert_int_equal(names_make(names, "caf\xc3\xa9\n", name), 0);
	assert_string_equal(name, "caf???");
	assert_int_equal(names_make(names, "", name), 0);
	assert_true(name[0] != 0);
	for (unsigned int i = 0; i < RBK_MAX_PLAN_TENSORS; i++) {
		assert_int_equal(names_make(names, "the same name that is always too long", name),
				 0);
		assert_true(strlen(name) < RBK_NAME_BYTES);
	}
	names_free(names);
}

/* ---- Memory ---- */

TEST(test_compile__allocations_fail)
{
	int r;

	start(13);
	onnx_model_ints(&made, "zero", 1, (int64_t[]){0});
	onnx_model_node(&made, "Shape", "x", "shape");
	onnx_model_node(&made, "Gather", "shape zero", "n");
	onnx_model_node(&made, "Relu", "x", "y");
	load("y");
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = compile_as(16, 0);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(rbk_onnx_n_steps(model), 0);
	}
	assert_int_equal(r, 0);
	finish();
}
