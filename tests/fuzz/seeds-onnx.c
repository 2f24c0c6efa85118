/* SPDX-License-Identifier: MIT */
/*
 * Writer of the seeds of corpus/onnx: small models that together use every rule
 *
 *	seeds-onnx FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ringbroker/onnx.h"
#include "support/onnx-model.h"

static struct onnx_model made;
static const char *folder;
static const int64_t image[] = {-1, 4, 6, 6}, flat[] = {-1, 8};

static void start(int64_t opset, unsigned int rank, const int64_t *dims)
{
	onnx_model_init(&made, opset);
	onnx_model_input(&made, "x", RBK_ONNX_F32, rank, dims);
}

static void finish(const char *name)
{
	char path[4096];
	const uint8_t *bytes;
	size_t n_bytes;
	FILE *file;

	onnx_model_output(&made, "y");
	bytes = onnx_model_pack(&made, &n_bytes);
	snprintf(path, sizeof(path), "%s/%s.seed", folder, name);
	file = fopen(path, "w");
	if (!file || fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file)) {
		perror(path);
		exit(1);
	}
	onnx_model_deinit(&made);
}

static void floats(const char *name, unsigned int rank, const int64_t *dims)
{
	static float zeros[1024];
	size_t n = 1;

	for (unsigned int i = 0; i < rank; i++)
		n *= (size_t)dims[i];
	onnx_model_constant(&made, name, RBK_ONNX_F32, rank, dims, zeros, n * sizeof(float));
}

static void ints(const char *name, unsigned int n, const int64_t *values)
{
	onnx_model_ints(&made, name, n, values);
}

/* Write a chain of operators that have one input and no attributes. */
static void chain(const char *name, int64_t opset, unsigned int rank, const int64_t *dims,
		  const char *const *ops)
{
	char from[16] = "x", to[16], edge[40];

	start(opset, rank, dims);
	for (unsigned int i = 0; ops[i]; i++) {
		snprintf(to, sizeof(to), ops[i + 1] ? "t%u" : "y", i);
		snprintf(edge, sizeof(edge), "%s", from);
		onnx_model_node(&made, ops[i], edge, to);
		strcpy(from, to);
	}
	finish(name);
}

static void shapes(void)
{
	Onnx__NodeProto *node;

	start(13, 2, flat);
	ints("zero", 1, (int64_t[]){0});
	ints("rest", 1, (int64_t[]){-1});
	onnx_model_node(&made, "Shape", "x", "shape");
	onnx_model_node(&made, "Gather", "shape zero", "n");
	node = onnx_model_node(&made, "Concat", "n rest", "target");
	onnx_model_attr_int(&made, node, "axis", 0);
	onnx_model_node(&made, "Reshape", "x target", "r");
	onnx_model_node(&made, "Flatten", "r", "f");
	onnx_model_node(&made, "Unsqueeze", "f rest", "u");
	onnx_model_node(&made, "Squeeze", "u rest", "s");
	onnx_model_node(&made, "Expand", "s target", "y");
	finish("shapes");

	start(18, 4, image);
	ints("starts", 2, (int64_t[]){1, -1});
	ints("ends", 2, (int64_t[]){INT64_MAX, INT64_MIN});
	ints("axes", 2, (int64_t[]){1, -1});
	ints("steps", 2, (int64_t[]){1, -2});
	ints("sizes", 2, (int64_t[]){1, 2});
	ints("pads", 8, (int64_t[]){0, 1, 0, 1, 0, 1, 0, 1});
	ints("repeats", 4, (int64_t[]){1, 2, 1, 1});
	onnx_model_node(&made, "Slice", "x starts ends axes steps", "a");
	node = onnx_model_node(&made, "Split", "a sizes", "b c");
	onnx_model_attr_int(&made, node, "axis", 1);
	onnx_model_node(&made, "Pad", "c pads", "d");
	onnx_model_node(&made, "Tile", "d repeats", "e");
	node = onnx_model_node(&made, "Transpose", "e", "y");
	onnx_model_attr_ints(&made, node, "perm", 4, (int64_t[]){0, 2, 3, 1});
	finish("moves");

	start(11, 4, image);
	node = onnx_model_node(&made, "DepthToSpace", "x", "a");
	onnx_model_attr_int(&made, node, "blocksize", 2);
	node = onnx_model_node(&made, "SpaceToDepth", "a", "b");
	onnx_model_attr_int(&made, node, "blocksize", 3);
	onnx_model_constant(&made, "scales", RBK_ONNX_F32, 1, (int64_t[]){4}, (float[]){1, 1, 2, 2},
			    16);
	node = onnx_model_node(&made, "Resize", "b - scales", "y");
	onnx_model_attr_string(&made, node, "mode", "linear");
	finish("blocks");
}

static void constants(void)
{
	Onnx__NodeProto *node;

	start(13, 2, flat);
	ints("a", 3, (int64_t[]){1, 2, 3});
	ints("one", 1, (int64_t[]){1});
	onnx_model_node(&made, "Add", "a one", "b");
	onnx_model_node(&made, "Mul", "a b", "c");
	onnx_model_node(&made, "Div", "c one", "d");
	onnx_model_node(&made, "Sub", "d a", "e");
	onnx_model_node(&made, "Equal", "e a", "f");
	onnx_model_node(&made, "Where", "f a b", "g");
	onnx_model_node(&made, "ReduceProd", "g", "h");
	node = onnx_model_node(&made, "Cast", "h", "i");
	onnx_model_attr_int(&made, node, "to", RBK_ONNX_F32);
	onnx_model_node(&made, "Sqrt", "i", "j");
	onnx_model_node(&made, "Tile", "a one", "k");
	onnx_model_node(&made, "Expand", "one a", "l");
	node = onnx_model_node(&made, "ConstantOfShape", "one", "m");
	node = onnx_model_node(&made, "Constant", "", "n");
	onnx_model_attr_int(&made, node, "value_int", 4);
	onnx_model_node(&made, "Range", "n n n", "o");
	onnx_model_node(&made, "Neg", "a", "p");
	onnx_model_node(&made, "Mod", "p b", "q");
	onnx_model_node(&made, "Add", "x j", "y");
	finish("constants");
}

static void layers(void)
{
	Onnx__NodeProto *node;

	start(13, 4, image);
	floats("w", 4, (int64_t[]){3, 4, 3, 3});
	floats("b", 1, (int64_t[]){3});
	node = onnx_model_node(&made, "Conv", "x w b", "c");
	onnx_model_attr_string(&made, node, "auto_pad", "SAME_UPPER");
	node = onnx_model_node(&made, "BatchNormalization", "c b b b b", "n");
	onnx_model_attr_float(&made, node, "epsilon", 1e-3f);
	node = onnx_model_node(&made, "MaxPool", "n", "p");
	onnx_model_attr_ints(&made, node, "kernel_shape", 2, (int64_t[]){2, 2});
	node = onnx_model_node(&made, "AveragePool", "p", "q");
	onnx_model_attr_ints(&made, node, "kernel_shape", 2, (int64_t[]){2, 2});
	onnx_model_node(&made, "GlobalAveragePool", "q", "y");
	finish("layers");

	start(13, 2, (int64_t[]){1, 8});
	floats("w", 2, (int64_t[]){8, 8});
	onnx_model_node(&made, "MatMul", "x w", "a");
	onnx_model_node(&made, "Gemm", "a w", "b");
	ints("k", 1, (int64_t[]){3});
	onnx_model_node(&made, "TopK", "b k", "c i");
	node = onnx_model_node(&made, "Softmax", "c", "d");
	onnx_model_attr_int(&made, node, "axis", -1);
	onnx_model_node(&made, "ReduceSum", "d k", "e");
	onnx_model_node(&made, "ArgMax", "d", "f");
	onnx_model_node(&made, "CumSum", "d k", "g");
	onnx_model_node(&made, "Clip", "d", "y");
	finish("products");

	start(18, 4, image);
	node = onnx_model_node(&made, "LRN", "x", "a");
	onnx_model_attr_int(&made, node, "size", 3);
	node = onnx_model_node(&made, "MeanVarianceNormalization", "a", "b");
	onnx_model_attr_ints(&made, node, "axes", 2, (int64_t[]){2, 3});
	ints("two", 1, (int64_t[]){2});
	onnx_model_node(&made, "Pow", "b two", "c");
	onnx_model_node(&made, "Hardmax", "c", "y");
	finish("norms");

	start(18, 2, (int64_t[]){3, 4});
	node = onnx_model_node(&made, "EyeLike", "x", "a");
	onnx_model_attr_int(&made, node, "k", -1);
	onnx_model_node(&made, "NonZero", "a", "b");
	onnx_model_constant(&made, "mask", RBK_ONNX_BOOL, 1, (int64_t[]){3}, (bool[]){1, 0, 1}, 3);
	node = onnx_model_node(&made, "Compress", "x mask", "c");
	onnx_model_attr_int(&made, node, "axis", 0);
	ints("lengths", 4, (int64_t[]){2, 0, 1, 2});
	onnx_model_node(&made, "ReverseSequence", "c lengths", "y");
	finish("known");

	start(18, 2, (int64_t[]){0, 4});
	floats("w", 2, (int64_t[]){4, 3});
	onnx_model_node(&made, "MatMul", "x w", "a");
	node = onnx_model_node(&made, "Transpose", "a", "b");
	onnx_model_node(&made, "MatMul", "b a", "c");
	ints("zero", 1, (int64_t[]){0});
	node = onnx_model_node(&made, "ReduceMax", "a zero", "d");
	onnx_model_node(&made, "Gather", "c zero", "e");
	node = onnx_model_node(&made, "Concat", "e d a", "y");
	onnx_model_attr_int(&made, node, "axis", 0);
	finish("nothing");

	start(6, 4, image);
	floats("b", 2, (int64_t[]){4, 6});
	node = onnx_model_node(&made, "Add", "x b", "a");
	onnx_model_attr_int(&made, node, "broadcast", 1);
	onnx_model_attr_int(&made, node, "axis", 1);
	node = onnx_model_node(&made, "Softmax", "a", "s");
	node = onnx_model_node(&made, "Clip", "s", "c");
	onnx_model_attr_float(&made, node, "min", 0);
	node = onnx_model_node(&made, "ReduceMax", "c", "y");
	onnx_model_attr_ints(&made, node, "axes", 1, (int64_t[]){2});
	finish("opset-6");
}

/*
 * Write models with 8-bit weights and per-channel scales, and with an empty weight of huge
 * dimensions.
 */
static void quantized(void)
{
	static const int8_t zeros[4];
	Onnx__NodeProto *node;

	for (unsigned int empty = 0; empty < 2; empty++) {
		const int64_t dims[] = {empty ? 0 : 4, empty ? INT32_MAX : 4, INT32_MAX, INT32_MAX};
		static const int8_t bytes[16];

		start(21, 2, flat);
		onnx_model_constant(&made, "w", RBK_ONNX_I8, empty ? 4 : 2, dims, bytes,
				    empty ? 0 : sizeof(bytes));
		floats("scales", 1, (int64_t[]){4});
		onnx_model_constant(&made, "zeros", RBK_ONNX_I8, 1, (int64_t[]){4}, zeros, 4);
		node = onnx_model_node(&made, "DequantizeLinear", "w scales zeros", "f");
		onnx_model_attr_int(&made, node, "axis", empty ? 0 : 1);
		onnx_model_node(&made, "Relu", "x", "y");
		finish(empty ? "quantized-nothing" : "quantized");
	}
}

/* Write functions with attributes that call each other, and a function that calls itself. */
static void functions(void)
{
	Onnx__NodeProto scratch, *node;
	Onnx__FunctionProto *function;

	for (unsigned int recursive = 0; recursive < 2; recursive++) {
		start(17, 2, flat);
		function = onnx_model_function(&made, "my", "Outer", "a b", "c a d", 12);
		onnx_model_function_attr(&made, function, "s");
		node = onnx_model_function_node(&made, function, recursive ? "Outer" : "Inner",
						"a b", "t d");
		onnx_model_domain(&made, node, "my");
		onnx_model_overload(&made, node, recursive ? "" : "o");
		onnx_model_attr_ref(&made, node, "s", "s");
		onnx_model_function_node(&made, function, "Softmax", "t", "c");
		function = onnx_model_function(&made, "my", "Inner", "a b", "d e", 17);
		onnx_model_function_overload(&made, function, "o");
		onnx__node_proto__init(&scratch);
		onnx_model_attr_float(&made, &scratch, "s", 0.5f);
		onnx_model_function_default(&made, function, scratch.attribute[0]);
		node = onnx_model_function_node(&made, function, "LeakyRelu", "a", "d");
		onnx_model_attr_ref(&made, node, "alpha", "s");
		onnx_model_function_node(&made, function, "Max", "d b", "e");
		onnx_model_domain(&made, onnx_model_node(&made, "Outer", "x x", "p q"), "my");
		node = onnx_model_domain(&made, onnx_model_node(&made, "Outer", "p q", "- - y"),
					 "my");
		onnx_model_attr_float(&made, node, "s", 2);
		finish(recursive ? "function-recursive" : "functions");
	}
}

/* Write an If within a branch of another If, and sparse weights. */
static void branches(void)
{
	Onnx__SparseTensorProto sparse = ONNX__SPARSE_TENSOR_PROTO__INIT;
	Onnx__SparseTensorProto *list[] = {&sparse};
	Onnx__GraphProto *graph;
	Onnx__NodeProto *node;

	start(17, 2, flat);
	ints("one", 1, (int64_t[]){1});
	onnx_model_node(&made, "Less", "one one", "c");
	node = onnx_model_node(&made, "If", "c", "y q");
	for (unsigned int i = 0; i < 4; i++) {
		graph = onnx_model_branch(&made, node, i % 2 ? "else_branch" : "then_branch");
		onnx_model_graph_node(&made, graph, "Relu", "x", "t");
		onnx_model_graph_output(&made, graph, "t");
		onnx_model_graph_output(&made, graph, "x");
		if (i == 1)
			node = onnx_model_graph_node(&made, graph, "If", "c", "u v");
	}
	finish("branches");

	start(17, 2, flat);
	sparse.values =
		onnx_model_tensor(&made, "w", RBK_ONNX_F32, 1, (int64_t[]){2}, (float[]){1, 2}, 8);
	sparse.indices = onnx_model_tensor(&made, "", RBK_ONNX_I64, 2, (int64_t[]){2, 2},
					   (int64_t[]){0, 3, 7, 1}, 32);
	sparse.n_dims = 2;
	sparse.dims = (int64_t[]){8, 4};
	made.graph.n_sparse_initializer = 1;
	made.graph.sparse_initializer = list;
	onnx_model_node(&made, "MatMul", "x w", "a");
	node = onnx_model_node(&made, "Constant", "", "b");
	onnx_model_attr(&made, node, "sparse_value")->sparse_tensor = &sparse;
	node->attribute[0]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR;
	onnx_model_node(&made, "MatMul", "x b", "c");
	onnx_model_node(&made, "Add", "a c", "y");
	finish("sparse");
}

static void hostile(void)
{
	start(13, 2, flat);
	onnx_model_node(&made, "Add", "a x", "b");
	onnx_model_node(&made, "Add", "b x", "a");
	onnx_model_node(&made, "Relu", "x", "y");
	finish("cyclic");

	start(13, 2, flat);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 3, (int64_t[]){5, 1 << 20, 256}, "", 0);
	onnx_model_node(&made, "Relu", "x", "y");
	finish("five-gigabytes");

	start(13, 3, (int64_t[]){0, INT32_MAX, INT32_MAX});
	onnx_model_constant(&made, "w", RBK_ONNX_I64, 3, (int64_t[]){0, INT32_MAX, INT32_MAX}, "",
			    0);
	onnx_model_node(&made, "Transpose", "w", "t");
	onnx_model_node(&made, "Add", "w w", "a");
	onnx_model_node(&made, "Relu", "x", "y");
	finish("empty");
}

int main(int argc, char **argv)
{
	static const char *const elements[] = {"Relu", "Sigmoid",  "Tanh", "Erf",     "Exp",
					       "Neg",  "Identity", "Sum",  "Dropout", NULL};
	static const char *const reductions[] = {"LogSoftmax", "ReduceMean", "Squeeze", NULL};

	if (argc != 2)
		return 2;
	folder = argv[1];
	chain("elements", 17, 2, flat, elements);
	chain("reductions", 12, 4, image, reductions);
	shapes();
	constants();
	layers();
	quantized();
	functions();
	branches();
	hostile();
	return 0;
}
