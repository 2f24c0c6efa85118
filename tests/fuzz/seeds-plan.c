/* SPDX-License-Identifier: MIT */
/*
 * Writer of the seeds of corpus/plan: one description for each operator and a few graphs
 *
 *	seeds-plan DIRECTORY
 *
 * Run the program again when shm/plan-wire.h changes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "support/one-op.h"

static const char *directory;

static void save(const char *name, struct describe *describe)
{
	char path[4096];
	size_t bytes;
	void *desc = describe_finish(describe, &bytes);
	char message[PLAN_MESSAGE_BYTES] = "";
	struct plan *plan = NULL;
	FILE *file;

	/* A seed that the parser refuses would lead to little of it. */
	if (plan_new(desc, bytes, &one_op_arenas, message, &plan)) {
		fprintf(stderr, "%s: %s\n", name, message);
		exit(1);
	}
	plan_free(plan);

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "wb");
	if (!file || fwrite(desc, 1, bytes, file) != bytes || fclose(file)) {
		perror(path);
		exit(1);
	}
	free(desc);
}

/* Return a graph with constants, scratch, three operators and three bindings. */
static struct describe *neighbours(void)
{
	struct describe *d = describe_new("neighbours", 16);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 8));
	describe_constant(d, "b", RBK_REF(1, 0), DESCRIBE_DIMS(8, 12));
	describe_constant(d, "norms", RBK_REF(1, 4096), DESCRIBE_DIMS(12));
	describe_scratch(d, "products");
	describe_scratch(d, "scores");
	describe_output(d, "values", DESCRIBE_DIMS(DESCRIBE_COUNT, 5));
	describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, "MatMul", "multiply", "x,b", "products");
	describe_node(d, "Add", "subtract", "products,norms", "scores");
	describe_node(d, "TopK", "select", "scores", "values,indices");
	describe_attr_int(d, "k", 5);
	return d;
}

/* Return a graph with a state's old and new value. */
static struct describe *accumulate(void)
{
	struct describe *d = describe_new("accumulate", 4);

	describe_state(d, "s", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_output(d, "old", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_output(d, "new", DESCRIBE_DIMS(DESCRIBE_COUNT, 3));
	describe_node(d, "Relu", "before", "s", "old");
	describe_node(d, "Add", "update", "s,x", "s");
	describe_node(d, "Softmax", "after", "s", "new");
	describe_pin(d, 1);
	return d;
}

/* Return a graph whose scratch tensors share memory. */
static struct describe *chain(void)
{
	struct describe *d = describe_new("chain", 1);
	char from[16] = "x", to[16];

	describe_input(d, "x", DESCRIBE_DIMS(4, 4));
	for (unsigned int i = 0; i < 8; i++) {
		snprintf(to, sizeof(to), "t%u", i);
		describe_scratch(d, to);
		describe_node(d, i % 3 ? "Relu" : "Transpose", "", from, to);
		snprintf(from, sizeof(from), "t%u", i);
	}
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "last", "t6,t7", "y");
	return d;
}

/* One plan of each operator that has no plan of its own below. */
static const struct {
	const char *op, *inputs, *attrs;
} singles[] = {
	{"Add", "[2,3] [2,3]", ""},
	{"ArgMax", "[2,3,4]", ""},
	{"Attention", "[count,4,5,8] [count,2,7,8] [count,2,7,6]", ""},
	{"AveragePool", "[count,3,8,8]", "kernel_shape=[2,2]"},
	{"BatchNormalization", "[count,3,4] [3] [3] [3] [3]", ""},
	{"BitShift", "u8[count,4] u8[4]", "direction=LEFT"},
	{"Clip", "[2,3]", "min=0.5"},
	{"ConvInteger", "u8[1,2,5,5] u8[3,2,3,3]", ""},
	{"ConvTranspose", "[count,1,3,3] [1,2,3,3]", ""},
	{"CumSum", "[count,3]", "axis=1 reverse=1 exclusive=1"},
	{"DequantizeLinear", "u8[count,4] [] u8[]", ""},
	{"DynamicQuantizeLinear", "[4,4]", ""},
	{"Gather", "[5,3] i64[count]", "axis=0"},
	{"GatherElements", "[5,3] i64[2,3]", "axis=0"},
	{"GatherND", "[5,3] i64[count,1]", ""},
	{"Gelu", "[count,3]", "approximate=tanh"},
	{"GridSample", "[count,2,4,4] [count,3,3,2]", "mode=cubic"},
	{"GroupNormalization", "[count,6,4] [6] [6]", "num_groups=2"},
	{"InstanceNormalization", "[count,3,4] [3] [3]", ""},
	{"IsInf", "[count,4]", "detect_negative=0"},
	{"LayerNormalization", "[count,3,4] [4]", ""},
	{"Less", "[2,1] [3]", ""},
	{"LpNormalization", "[count,4]", "axis=1 p=1"},
	{"LpPool", "[count,3,8,8]", "kernel_shape=[2,2] p=3"},
	{"MatMulInteger", "u8[count,3] u8[3,2]", ""},
	{"Mod", "[2] [2]", "fmod=1"},
	{"OneHot", "i64[count] [2]", "depth=4 axis=-1"},
	{"PRelu", "[count,3,4] [3,1]", ""},
	{"QLinearConv", "u8[1,2,5,5] [] u8[] u8[3,2,3,3] [] u8[] [] u8[]", ""},
	{"QLinearMatMul", "u8[2,3] [] u8[] u8[3,2] [] u8[] [] u8[]", ""},
	{"QuantizeLinear", "[count,4] [] u8[]", ""},
	{"RMSNormalization", "[2,3,4] [2,3,4]", "axis=0"},
	{"Reshape", "[2,3,4]", "shape=[24]"},
	{"RotaryEmbedding", "[count,4,3,8] [count,3,4] [count,3,4]", ""},
	{"ScatterElements", "[5,3] i64[2,3] [2,3]", "axis=0"},
	{"ScatterND", "[5,3] i64[2,1] [2,3]", "reduction=min"},
	{"Shrink", "[count,3]", "lambd=1.5 bias=1.5"},
	{"Trilu", "[3,4]", ""},
	{"Where", "bool[count,4] [4] [1]", ""},
};

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
		return 2;
	}
	directory = argv[1];
	save("neighbours", neighbours());
	save("accumulate", accumulate());
	save("chain", chain());
	save("matmul", one_op("MatMul", "[count,1,2,3] [5,3,4]", ""));
	save("matmul-vector", one_op("MatMul", "[3] [2,3,4]", ""));
	save("gemm", one_op("Gemm", "[3,2] [4,3] [2,1]", "alpha=0.5 beta=2.0 transA=1 transB=1"));
	save("mul", one_op("Mul", "[count,1,4] [3,1]", ""));
	save("softmax", one_op("Softmax", "[count,4,2]", "axis=-2"));
	save("reduce-sum", one_op("ReduceSum", "[count,4,2]", "axes=[0,-1] keepdims=0"));
	save("reduce-noop", one_op("ReduceSum", "[4,2]", "noop_with_empty_axes=1"));
	save("transpose", one_op("Transpose", "[count,3,2,4]", "perm=[0,3,1,2]"));
	save("slice", one_op("Slice", "[count,8,9]",
			     "starts=[-1,2] ends=[-100,8] axes=[1,-1] steps=[-3,2]"));
	save("concat", one_op("Concat", "[count,3] [count,1] [count,4]", "axis=1"));
	save("split", one_op("Split", "[4,3]", "axis=0 split=[4]"));
	save("expand", one_op("Expand", "[3,1]", "shape=[2,1,4]"));
	save("tile", one_op("Tile", "[2,3]", "repeats=[3,2]"));
	save("pad", one_op("Pad", "[count,3,4]", "pads=[0,1,-1,0,-1,2] value=1.5"));
	save("pad-reflect", one_op("Pad", "[3,4]", "pads=[9,1,7,0] mode=reflect"));
	save("conv", one_op("Conv", "[2,4,5,6] [6,2,3,2] [6]",
			    "group=2 pads=[1,0,1,1] strides=[2,1] dilations=[1,2] "
			    "kernel_shape=[3,2]"));
	save("conv-1d", one_op("Conv", "[count,2,9] [3,2,3]", "auto_pad=SAME_UPPER strides=[2]"));
	save("max-pool", one_op("MaxPool", "[count,2,7,7]",
				"kernel_shape=[2,3] strides=[2,2] ceil_mode=1 storage_order=0"));
	save("max-pool-1d", one_op("MaxPool", "[1,2,7]", "kernel_shape=[3] auto_pad=VALID"));
	for (size_t i = 0; i < sizeof(singles) / sizeof(singles[0]); i++) {
		char name[64];

		snprintf(name, sizeof(name), "op-%s", singles[i].op);
		save(name, one_op(singles[i].op, singles[i].inputs, singles[i].attrs));
	}
	save("top-k", one_op("TopK", "[count,6,3]", "k=2 axis=1 largest=0 sorted=0"));
	return 0;
}
