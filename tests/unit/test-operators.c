/* SPDX-License-Identifier: MIT */
/*
 * Every operator on every device against the reference: test-operators DEVICES [FILTER [ROUNDS]]
 *
 * DEVICES and ROUNDS: see op-rig.h. FILTER names tests, with * and ?. Each row of rows[] is a case
 * of an operator, run with all its float types.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "reference/random-fused.h"
#include "reference/random-gemm.h"
#include "reference/random-moves.h"
#include "reference/random-nets.h"
#include "reference/random-quantized.h"
#include "reference/random-rows.h"
#include "reference/random-windows.h"
#include "shm/dtype.h"
#include "shm/half.h"
#include "support/elementwise-cases.h"
#include "support/gather-cases.h"
#include "support/one-op.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "unit/op-rig.h"
#include "unit/vulkan-rig.h"
#include "util/clock.h"

enum { MAX = OP_RIG_MAX_COUNT };

/* Skip a test that is not meant for GPUs. */
static void skip_on_gpu(void)
{
	if (op_rig_is_gpu())
		skip();
}

/* ---- Rows ---- */

/* A node as one_op() reads it. "=": a constant, or an input if constants are off. */
struct row {
	const char *op, *inputs, *attrs;
	double atol; /* 0: the default, a tight tolerance */
};

/* clang-format off */
static const struct row rows[] = {
	{"MatMul", "[count,1] [1,1]", ""},
	{"MatMul", "[count,7] [7,3]", ""},
	{"MatMul", "[count,8] [8,4]", ""},
	{"MatMul", "[count,33] [33,129]", ""},
	{"MatMul", "[65,17] [17,67]", ""},
	{"MatMul", "[130,70] [70,5]", ""},
	{"MatMul", "[9] [9,10]", ""},
	{"MatMul", "[10,9] [9]", ""},
	{"MatMul", "[19] [19]", ""},
	{"MatMul", "[count,5,6] [6,7]", ""},
	{"MatMul", "[count,5,6] [count,6,7]", ""},
	{"MatMul", "[count,1,5,6] [4,6,7]", ""},
	{"MatMul", "[5,6] [count,3,6,9]", ""},
	{"MatMul", "[2,1,3,4,5] [4,1,5,6]", ""},
	{"MatMul", "[6] [count,6,7]", ""},
	{"MatMul", "[count,5,6] [6]", ""},
	{"Gemm", "[count,13] [13,21]", ""},
	{"Gemm", "[count,13] [21,13] [21]", "transB=1 alpha=0.5 beta=2.0"},
	{"Gemm", "[13,9] [13,70] [9,1]", "transA=1 alpha=2.0"},
	{"Gemm", "[70,66] [3,70] []", "transA=1 transB=1 beta=-1.0"},
	{"Gemm", "[count,40] [40,66] [1,66]", ""},
	{"Gemm", "[7,40] [40,66] [7,66]", ""},
	{"Gemm", "[count,4] [2,4] [1]", "transB=1"},
	/* Edges of tiles: thin matrices, whole steps of k and a remainder, a quad past the end. */
	{"MatMul", "[count,48] [48,2]", ""},
	{"MatMul", "[64,32] [32,128]", ""},
	{"MatMul", "[67,47] [47,131]", ""},
	{"Gemm", "[40,3] [40,5]", "transA=1"},
	{"Gemm", "[49,66] [49,193] [193]", "transA=1"},
	{"Gemm", "[count,53] [131,53] [1,131]", "transB=1"},
	{"Gemm", "[35,66] [129,35]", "transA=1 transB=1"},
	{"Gemm", "[32,1] [1,32]", "transA=1 transB=1"},
	/* One row, which has its own shaders: wide, narrow, transposed, of a batch. */
	{"MatMul", "[1,67] [67,131]", ""},
	{"MatMul", "[1,33] [33,3]", ""},
	{"MatMul", "[5,1,22] [5,22,70]", ""},
	{"Gemm", "[1,41] [66,41] [1,66]", "transB=1 alpha=0.5 beta=2.0"},
	{"Gemm", "[45,1] [45,129] [1]", "transA=1"},
	{"Gemm", "[34,1] [65,34]", "transA=1 transB=1"},
	{"Gemm", "[1,9] [2,9] [2]", "transB=1"},
	{"Add", "[count,5] [count,5]", ""},
	{"Add", "[count,999] [999]", ""},
	{"Add", "[count,7] [count,1]", ""},
	{"Add", "[] [count,3,5]", ""},
	{"Add", "[] []", ""},
	{"Mul", "[count,1,5,3] [4,1,3]", ""},
	{"Mul", "[2,3,1] [1,1,513]", ""},
	{"Mul", "[2,1,2,1,2,1,2,1] [1,3,1,3,1,3,1,3]", ""},
	{"Relu", "[count,515]", ""}, {"Relu", "[1]", ""},
	{"Softmax", "[count,10]", ""},
	{"Softmax", "[count,1]", ""},
	{"Softmax", "[count,1000]", ""},
	{"Softmax", "[count,300,3]", "axis=1"},
	{"Softmax", "[5,2,3]", "axis=0"},
	{"ReduceSum", "[count,10]", "axes=[1]"},
	{"ReduceSum", "[count,9,11]", "axes=[1] keepdims=0"},
	{"ReduceSum", "[3,9,11]", "axes=[0,2]"},
	{"ReduceSum", "[count,9,111]", "axes=[1,2]"},
	{"ReduceSum", "[13,17]", ""},
	{"ReduceSum", "[count,17]", "noop_with_empty_axes=1"},
	{"ReduceSum", "[2,3,2,3,2,3,2,3]", "axes=[0,2,4,6]"},
	{"ReduceSum", "[2,3,2,3,2,3,2,3]", "axes=[1,3,5,7]"},
	{"Transpose", "[33,65]", ""},
	{"Transpose", "[count,7,5]", "perm=[0,2,1]"},
	{"Transpose", "[2,3,4,5]", "perm=[2,0,3,1]"},
	{"Transpose", "[5]", ""}, {"Transpose", "[1,1]", ""},
	{"Conv", "[count,1,7,7] [1,1,3,3]", ""},
	{"Conv", "[count,3,11,9] [10,3,3,3] [10]", "pads=[1,1,1,1] strides=[2,1]"},
	{"Conv", "[count,4,12,13] [6,2,3,2] [6]", "group=2 dilations=[2,3] pads=[0,3,2,1]"},
	{"Conv", "[count,5,9,9] [5,1,3,3]", "group=5 pads=[1,1,1,1]"},
	{"Conv", "[2,8,5,5] [70,8,1,1]", ""},
	{"Conv", "[count,3,31] [9,3,5] [9]", "pads=[2,2]"},
	{"Conv", "[1,2,4,4] [5,2,4,4]", ""},
	{"Conv", "[count,16,13,11] [66,16,3,3] [66]", "pads=[1,1,1,1]"},
	{"Conv", "[2,3,9,8] [5,3,5,1]", "pads=[2,0,2,0]"},
	{"Conv", "[2,4,6,15] [7,4,1,6]", "dilations=[1,2]"},
	{"Conv", "[count,17,9,10] [9,17,1,1]", "strides=[2,3]"},
	{"Conv", "[2,12,7,19] [24,4,3,3] [24]", "group=3 pads=[2,1,0,3] strides=[1,2]"},
	{"Conv", "[count,3,20,19] [6,1,3,3] [6]", "group=3 dilations=[2,1] pads=[1,2,3,1]"},
	/* Windows of one element. */
	{"Conv", "[count,5,3,7] [33,5,1,1] [33]", ""},
	{"Conv", "[count,16,7,9] [40,8,1,1]", "group=2"},
	{"Conv", "[2,16,7,9] [40,8,1,1] [40]", "group=2"},
	{"Conv", "[count,6,35] [20,6,1] [20]", ""},
	{"Conv", "[2,6,5,1] [17,6,1,1]", "pads=[0,1,0,0]"},
	{"MaxPool", "[count,3,8,9]", "kernel_shape=[2,2] strides=[2,2]"},
	{"MaxPool", "[count,3,9,7]", "kernel_shape=[3,3] strides=[2,1] pads=[1,1,1,1]"},
	{"MaxPool", "[count,2,9,9]", "kernel_shape=[2,3] dilations=[3,2]"},
	{"MaxPool", "[count,2,19]", "kernel_shape=[4]"},
	{"TopK", "[count,5]", "k=5"},
	{"TopK", "[count,1]", "k=1"},
	{"TopK", "[count,3001]", "k=7"},
	{"TopK", "[count,300]", "k=40"},
	{"TopK", "[count,300]", "k=4 largest=0"},
	{"TopK", "[count,30,7]", "k=3 axis=1"},
	{"TopK", "[17,3,5]", "k=9 axis=0 largest=0"},
};

/* Larger than a block or a piece of a CPU kernel: deeper, wider, more channels, longer rows. */
static const struct row blocks[] = {
	{"MatMul", "[count,385] =[385,50]", "", 1e-4},
	{"MatMul", "[count,900] =[900,37]", "", 1e-4},
	{"MatMul", "[30,400] =[400,70]", "", 1e-4},
	{"MatMul", "[250,33] =[33,300]", "", 1e-4},
	{"MatMul", "[3,20] =[20,1100]", "", 1e-4},
	{"MatMul", "[3,520] =[520,530]", "", 1e-4},
	{"MatMul", "[30,257] =[257,70]", "", 1e-4},
	{"MatMul", "[500,33] =[33,130]", "", 1e-4},
	{"MatMul", "[2,1,3,150] =[3,150,140]", "", 1e-4},
	{"Gemm", "[count,401] =[201,401] =[201]", "transB=1", 1e-4},
	{"Conv", "[1,45,7,9] =[247,45,3,3]", "", 1e-4},
	{"Conv", "[1,400,2,21] =[250,400,1,1]", "", 1e-4},
	{"Conv", "[1,4,20,31] =[250,4,3,3]", "strides=[2,2] pads=[1,1,1,1]", 1e-5},
	{"Conv", "[1,12,4,7,9] =[8,6,2,3,3]", "group=2 pads=[1,1,1,1,1,1]", 1e-5},
	{"Conv", "[1,3,2500] =[3,1,5]", "group=3 pads=[1,1]", 1e-5},
	{"Conv", "[count,20,19,23] =[20,1,3,3]", "group=20 strides=[2,2] pads=[1,1,1,1]", 1e-5},
	{"Conv", "[1,7,3000] =[5,7,9]", "strides=[3] pads=[1,1]", 1e-5},
	{"ConvTranspose", "[count,4,5,9] =[4,3,3,2] [6]", "group=2 strides=[2,3]", 1e-5},
	{"ConvTranspose", "[1,400,2,5] =[400,250,2,2]", "strides=[1,2]", 1e-4},
	{"ConvTranspose", "[1,270,4,5] =[270,50,3,3]", "strides=[2,2] pads=[1,1,1,1]", 1e-4},
	{"ConvTranspose", "[1,5,3,9,17] =[5,3,3,3,3]", "pads=[1,1,1,1,1,1]", 1e-5},
	{"ConvTranspose", "[1,3,2,2] =[3,5,1,1]", "strides=[3,3]"},
	{"ConvTranspose", "[1,8,600] =[8,100,4]", "strides=[3] pads=[1,1]", 1e-5},
	{"MaxPool", "[2,2,5000]", "kernel_shape=[7] pads=[3,3]"},
	{"AveragePool", "[2,2,5000]", "kernel_shape=[7] pads=[3,3]"},
	{"LpPool", "[2,2,5000]", "kernel_shape=[7] pads=[3,3]"},
	{"MaxPool", "[count,3,19,23]", "kernel_shape=[19,23]"},
	{"AveragePool", "[count,3,19,23]", "kernel_shape=[19,23]"},
	{"LpPool", "[count,3,19,23]", "kernel_shape=[19,23]"},
	{"LpPool", "[1,2,40]", "kernel_shape=[4] p=7", 1e-5},
	{"LpPool", "[1,2,40]", "kernel_shape=[4] p=31", 1e-5},
	{"Attention", "[1,2,130,64] [1,1,390,64] [1,1,390,64]", "", 1e-4},
	{"Attention", "[1,2,130,64] [1,1,390,64] [1,1,390,200]", "is_causal=1", 1e-4},
	/* Whole vectors, a column that is not packed, one scale or one per element, many pieces. */
	{"Softmax", "[3,128]", ""}, {"LogSoftmax", "[3,128]", ""},
	{"LpPool", "[1,2,40]", "kernel_shape=[4] p=1"},
	{"MatMul", "[count,4000] =[4000,3]", "", 1e-4},
	{"LayerNormalization", "[3,40000] [40000]", "", 1e-4},
	{"LayerNormalization", "[2,7001] [1] [7001]", "axis=1", 1e-4},
	{"InstanceNormalization", "[2,3,40000] [3] [3]", "", 1e-4},
	{"LpNormalization", "[2,700,19]", "axis=1"},
	{"CumSum", "[2,700]", "axis=1 reverse=1 exclusive=1", 1e-4},
	{"CumSum", "[2,700,19]", "axis=1 exclusive=1", 1e-4},
	/* Multiples of a stride that overflow 32 bits; there is only one window. */
	{"MaxPool", "[count,3,4,37]", "kernel_shape=[2,3] strides=[268435455,1073741824]"},
	{"AveragePool", "[count,3,4,37]", "kernel_shape=[2,3] strides=[2147483647,2147483647]"},
};

/* Loops of more than 65,535 iterations, which one known driver would cut short. */
static const struct row longs[] = {
	{"MatMul", "[3,100001] [100001,6]", "", 1e-2},
	{"MatMul", "[2,200001] [200001,1]", "", 1e-2},
	{"ReduceSum", "[2,100003]", "axes=[1]", 1e-2},
	{"ReduceSum", "[200003,2]", "axes=[0]", 1e-2},
	{"Softmax", "[1,9001]", ""},
	{"TopK", "[3,600001]", "k=5"},
	{"TopK", "[1,600001]", "k=9"},
	{"Transpose", "[300,1003]", ""},
	{"Add", "[70000,9] [9]", ""},
};
/* clang-format on */

/* Return true if the results of @op are elements of its inputs. */
static bool is_selection(const char *op)
{
	static const char *const ops[] = {"MaxPool", "ReduceMax", "ReduceMin",
					  "Relu",    "TopK",      "Transpose"};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (strcmp(op, ops[i]) == 0)
			return true;
	return false;
}

/* Check @row with floats of type @floats. "=" marks a constant only if @has_constants. */
static void check_row(const struct row *row, enum rbk_dtype floats, bool has_constants,
		      const struct op_check *check)
{
	struct op_check of_row = *check;
	char inputs[256], *to = inputs;
	struct describe *d;

	for (const char *from = row->inputs; *from; from++)
		if (has_constants || *from != '=')
			*to++ = *from;
	*to = 0;
	d = one_op_counted(row->op, inputs, row->attrs, MAX);
	describe_floats(d, floats);
	if (!is_selection(row->op)) {
		of_row.rtol = 2e-6;
		of_row.atol = row->atol > 0 ? row->atol : 1e-5;
	}
	op_check(reference_plan(d, op_rig_arena(floats)), &of_row);
}

static void check_rows(const struct row *of, size_t n, const struct op_check *check)
{
	static const enum rbk_dtype floats[] = {RBK_DTYPE_F32, RBK_DTYPE_F64, RBK_DTYPE_F16};

	/* Float16 in rows[] only: a CPU converts large operands just as small ones. */
	for (const struct row *row = of; row < of + n; row++)
		for (unsigned int i = 0; i < (of == rows ? 3 : 2); i++) {
			if (!op_rig_takes(op_by_name(row->op), floats[i]) ||
			    !op_rig_wants(row->op, floats[i]))
				continue;
			check_row(row, floats[i], false, check);
			if (strchr(row->inputs, '='))
				check_row(row, floats[i], true, check);
		}
}

#define CHECK_ROWS(of, ...) \
	check_rows(of, sizeof(of) / sizeof((of)[0]), &(struct op_check){__VA_ARGS__})

TEST(test_operators__rows)
{
	CHECK_ROWS(rows, .has_layouts = true);
}

TEST(test_operators__blocks)
{
	static const uint32_t columns[] = {5, 7, 8, 16, 17, 31, 32, 48, 49};
	char inputs[64];

	skip_on_gpu();
	CHECK_ROWS(blocks, .has_layouts = true);
	/* All remainders of rows of a tile, with a second block of the depth added. */
	for (uint32_t m = 1; m < 15; m++)
		for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
			const struct row row = {"MatMul", inputs, "", 1e-4};

			if (test_is_scaled_down() && (m + i) % 4)
				continue; /* each number of rows and of columns remains */
			snprintf(inputs, sizeof(inputs), "[%u,500] =[500,%u]", m, columns[i]);
			check_rows(&row, 1, &(struct op_check){0});
		}
}

TEST(test_operators__long_loops)
{
	/* More batches than a grid may have. */
	static const struct row batches[] = {{"MatMul", "[70001,1,2] [70001,2,1]", ""}};

	/* Later iterations are alike; "plain" has the long loops of "shared". */
	if (!test_is_scaled_down() && !(op_rig_is_short() && op_rig_is("shared")))
		CHECK_ROWS(longs, .count = 1);
	check_row(batches, RBK_DTYPE_F32, false, &(struct op_check){.count = 1});
}

/* ---- Contents ---- */

static void put(const struct tensor *tensor, void *data, uint64_t i, double value)
{
	if (tensor->dtype == RBK_DTYPE_F64)
		((double *)data)[i] = value;
	else if (tensor->dtype == RBK_DTYPE_F32)
		((float *)data)[i] = (float)value;
	else if (tensor->dtype == RBK_DTYPE_F16)
		((uint16_t *)data)[i] = half_from_float((float)value);
}

/* Put NaNs, infinities and zeros of both signs at random places. */
static void fill_special(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
			 uint64_t *state)
{
	static const double special[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1};

	for (unsigned int i = 0; i < buffers->n; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];
		const uint64_t n = shape_elems(&tensor->shape, count);

		for (uint64_t k = 0; !plan->bindings[i].written && k < 1 + n / 50; k++)
			put(tensor, buffers->bindings[i], reference_random(state) % n,
			    special[reference_random(state) % 6]);
	}
}

/*
 * Fill with a few values, so that many are equal, or with rising or falling values that end in
 * NaNs. Integers include the limits of the type.
 */
static void fill_ties(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *state)
{
	static const double few[] = {1, 2, 2, NAN, -INFINITY, INFINITY, 0, -0.0};
	static const int64_t integers[] = {0, INT64_MAX, INT64_MIN, -1, 1, INT64_MAX - 1};
	const struct tensor *tensor = &plan->tensors[plan->bindings[0].tensor];
	const size_t bytes = dtype_bytes(tensor->dtype);
	const unsigned int how = reference_random(state) % 4, n_few = how == 0 ? 8 : 3;
	const uint64_t n = shape_elems(&tensor->shape, count);

	for (uint64_t i = 0; i < n; i++) {
		const double steady = i > n * 2 / 3 ? NAN : how == 2 ? (double)i : -(double)i;
		/* The limits of each type are those of int64, shifted. */
		const int64_t integer = integers[reference_random(state) % 6] >> (64 - 8 * bytes);

		if (OP_TYPE(tensor->dtype) & OP_ALL_FLOATS)
			put(tensor, buffers->bindings[0], i,
			    how < 2 ? few[reference_random(state) % n_few] : steady);
		else
			memcpy((char *)buffers->bindings[0] + i * bytes, &integer, bytes);
	}
}

/* Scale the factors so that products exceed float32's range, and fit into it after alpha. */
static void fill_large(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		       uint64_t *state)
{
	for (unsigned int i = 0; i < 2; i++)
		for (size_t k = 0; k < buffers->bytes[i] / sizeof(float); k++)
			((float *)buffers->bindings[i])[k] *= 3e19f;
}

/* Put a NaN into the third input, a Gemm's addend. */
static void fill_third_with_nan(const struct plan *plan, uint32_t count,
				struct reference_buffers *buffers, uint64_t *state)
{
	put(&plan->tensors[plan->bindings[2].tensor], buffers->bindings[2], 1, NAN);
}

/* Give query 0 no key, query 1 keys 1, 4 ..., query 2 keys 2, 5 ... with NaN or infinite values. */
static void fill_beside_mask(const struct plan *plan, uint32_t count,
			     struct reference_buffers *buffers, uint64_t *state)
{
	uint8_t *mask = buffers->bindings[3];
	float *values = buffers->bindings[2];

	for (size_t i = 0; i < buffers->bytes[3]; i++)
		mask[i] = i >= 200 && i % 3 == 0;
	for (size_t j = 2; j < 200; j += 3)
		values[j * 5] = values[j * 5 + 1] = j % 2 ? NAN : INFINITY;
}

TEST(test_contents__special)
{
	static const struct row special[] = {
		{"Relu", "[8,79]", ""},
		{"Softmax", "[8,79]", "", 1e-5},
		{"Softmax", "[8,40]", "axis=0", 1e-5},
		{"LogSoftmax", "[8,79]", "", 1e-5},
		{"MatMul", "[7,50] [50,37]", "", 1e-4},
		{"MaxPool", "[2,3,11,29]", "kernel_shape=[2,3] pads=[1,1,1,1]"},
		{"MaxPool", "[2,3,11,29]", "kernel_shape=[2,3] strides=[1,2] pads=[1,1,1,1]"},
		{"ReduceMax", "[5,30,7]", "axes=[1]"},
		{"ReduceMin", "[5,30,7]", "axes=[0,2]"},
		{"ReduceLogSumExp", "[5,30,7]", "axes=[1]", 2e-5},
		{"ReduceL1", "[5,300]", "axes=[1]", 2e-5},
		{"Attention", "[1,1,60,8] [1,1,4,8] [1,1,4,5]", "", 1e-4},
	};
	static const struct row masked = {
		"Attention", "[1,2,3,8] [1,1,200,8] [1,1,200,5] bool[3,200]", "", 1e-4};
	static const char *const inputs[] = {"[1,2,40,24] [1,1,150,24] [1,1,150,5]",
					     "[1,2,1,24] [1,1,150,24] [1,1,150,5]"};
	char attrs[96];
	static const struct row beta[] = {{"Gemm", "[3,4] [4,5] [5]", "beta=0.0"}};

	skip_on_gpu();
	for (unsigned int i = 0; i < op_rig_rounds(8, 0); i++)
		CHECK_ROWS(special, .fill = fill_special);
	for (unsigned int i = 0; i < 8; i++) {
		const struct row large = {"Attention", inputs[i % 2], attrs, 1e-4};

		snprintf(attrs, sizeof(attrs), "qk_matmul_output_mode=%u is_causal=%u scale=%.38f",
			 i / 2, i % 2 == 0, 2e-38);
		check_row(&large, RBK_DTYPE_F32, false, &(struct op_check){.fill = fill_large});
	}
	check_row(&masked, RBK_DTYPE_F32, false, &(struct op_check){.fill = fill_beside_mask});
	CHECK_ROWS(beta, .fill = fill_third_with_nan);
}

/*
 * Make the first input's matrices solvable: a diagonal from 2 to 3, and other elements that are
 * small enough. What must not be read is NaN.
 */
static void fill_solvable(const struct plan *plan, uint32_t count,
			  struct reference_buffers *buffers, uint64_t *state)
{
	const union op_params *params = &plan->nodes[0].params;
	const bool is_cholesky = plan->nodes[0].op->kind == OP_CHOLESKY;
	const struct tensor *tensor = &plan->tensors[plan->bindings[0].tensor];
	const uint64_t n = tensor->shape.dims[tensor->shape.rank - 1];

	for (uint64_t i = 0; i < shape_elems(&tensor->shape, count); i++) {
		const uint64_t row = i / n % n, column = i % n;
		const bool is_diagonal = row == column;
		const bool is_upper = !is_cholesky && params->triangular.upper;
		const double x = (double)(reference_random(state) % 2001) / 1000 - 1;
		double value = is_diagonal ? 2.5 + x / 2 : x / 2 / sqrt((double)n);

		if (is_diagonal ? !is_cholesky && params->triangular.unit
				: is_upper != (column > row))
			value = (double)NAN;
		put(tensor, buffers->bindings[0], i, value);
	}
}

/* Make a leading minor of each matrix negative, 0 or NaN. */
static void fill_indefinite(const struct plan *plan, uint32_t count,
			    struct reference_buffers *buffers, uint64_t *state)
{
	static const double diagonals[] = {-1, 0, NAN, -INFINITY};
	const struct tensor *tensor = &plan->tensors[plan->bindings[0].tensor];
	const uint64_t n = tensor->shape.dims[tensor->shape.rank - 1];

	fill_solvable(plan, count, buffers, state);
	for (uint64_t i = 0; i < shape_elems(&tensor->shape, count); i += n * n)
		put(tensor, buffers->bindings[0], i + reference_random(state) % n * (n + 1),
		    diagonals[reference_random(state) % 4]);
}

TEST(test_contents__triangular)
{
	static const struct row factored[] = {
		{"Cholesky", "[1,1]", ""},         {"Cholesky", "[5,5]", ""},
		{"Cholesky", "[31,31]", ""},       {"Cholesky", "[64,64]", ""},
		{"Cholesky", "[count,33,33]", ""}, {"Cholesky", "[3,2,70,70]", ""},
	};
	static const struct row longs_of[] = {
		{"Cholesky", "[1090,1090]", ""},
		{"TriangularSolve", "[1090,1090] [3,1090]", "left=0"},
		{"TriangularSolve", "[2063,2063] [2063,33]", "upper=1"},
	};
	static const char *const left[] = {"[1,1] [1,1]", "[33,33] [33,70]", "[6,6] [count,6,31]",
					   "[count,7,7] [count,7,32]", "[2,3,34,34] [2,3,34,5]"};
	static const char *const right[] = {
		"[1,1] [1,1]",        "[33,33] [70,33]",          "[6,6] [count,6]",
		"[6,6] [count,31,6]", "[count,7,7] [count,32,7]", "[2,3,34,34] [2,3,5,34]"};
	char attrs[64];

	skip_on_gpu();
	CHECK_ROWS(factored, .fill = fill_solvable);
	for (unsigned int i = 0; i < 4; i++)
		CHECK_ROWS(factored, .fill = fill_indefinite);
	for (unsigned int how = 0; how < 16; how++)
		for (unsigned int i = 0; i < (how & 1 ? 5 : 6); i++) {
			const struct row row = {"TriangularSolve", how & 1 ? left[i] : right[i],
						attrs};

			snprintf(attrs, sizeof(attrs),
				 "left=%u upper=%u transA=%u unit_diagonal=%u", how & 1,
				 how >> 1 & 1, how >> 2 & 1, how >> 3);
			check_rows(&row, 1, &(struct op_check){.fill = fill_solvable});
		}
	/* More unknowns than a panel has. */
	for (size_t i = 0; i < sizeof(longs_of) / sizeof(longs_of[0]); i++)
		check_row(&longs_of[i], RBK_DTYPE_F32, false,
			  &(struct op_check){.fill = fill_solvable});
}

TEST(test_contents__ties)
{
	static const char *const types[] = {"f32", "f64", "i64", "i32", "i8", "u8"};
	static const char *const ops[] = {"TopK", "TopK", "TopK", "ArgMax", "ArgMin"};
	char inputs[32], attrs[64];

	skip_on_gpu();
	for (unsigned int round = 0; round < op_rig_rounds(600, 0); round++) {
		const uint32_t n = op_rig_pick(1, round % 4 ? 90 : 700);

		snprintf(inputs, sizeof(inputs), "%s[2,%u,%u]", types[round % 6], n,
			 op_rig_pick(1, 3));
		if (round % 5 < 3)
			snprintf(attrs, sizeof(attrs), "axis=1 k=%u largest=%u sorted=%u",
				 op_rig_pick(1, round % 2 && n > 20 ? 20 : n), op_rig_pick(0, 1),
				 op_rig_pick(0, 1));
		else
			snprintf(attrs, sizeof(attrs), "axis=1 select_last_index=%u",
				 op_rig_pick(0, 1));
		op_check(reference_plan(one_op(ops[round % 5], inputs, attrs), NULL),
			 &(struct op_check){.fill = fill_ties});
	}
}

/* ---- Random plans ---- */

/* Use channels last where possible and where profitable, with fusion and without. */
TEST(test_random__nets)
{
	skip_on_gpu();
	for (unsigned int round = 0; round < op_rig_rounds(250, 0); round++)
		for (unsigned int fuses = 0; fuses < 2; fuses++)
			op_check(random_net(round, MAX / 2, op_rig_arena(RBK_DTYPE_F32), fuses),
				 &(struct op_check){.what = "net",
						    .rtol = 1e-4,
						    .is_of_largest = true,
						    .has_layouts = true});
}

/* ---- Random nodes ---- */

static void check_elementwise(enum op_kind kind, unsigned int n_rounds)
{
	const struct op *op = op_by_kind(kind);
	/* Near a root of the line, the sum cancels: compare by absolute error. */
	const bool is_difference = kind == OP_HARD_SIGMOID || kind == OP_HARD_SWISH;
	const struct op_check check = {.rtol = op_rig_is_gpu() ? 1e-4 : 2e-5,
				       .atol = is_difference ? 1e-7 : 1e-30,
				       .fill = elementwise_fill};

	for (uint8_t type = 0; type < 32; type++)
		for (unsigned int round = 0; op_rig_samples(op, type) && round < n_rounds; round++)
			op_check(reference_plan(elementwise_case(op, type, round, op_rig_seed()),
						NULL),
				 &check);
}

/* Enough rounds for all types that Cast converts to. */
enum { CAST_ROUNDS = 18 };

TEST(test_random__elementwise)
{
	const unsigned int n_rounds = op_rig_is_short() ? 2 : op_rig_rounds(28, 4);

	/* The device "shared" has the same shaders as "plain". */
	if (op_rig_is("shared"))
		skip();
	for (enum op_kind kind = OP_ADD; kind <= OP_BITWISE_NOT; kind++)
		check_elementwise(kind, kind == OP_CAST ? CAST_ROUNDS : n_rounds);
}

/* Valid indices, and indices out of range. */
TEST(test_operators__gather)
{
	for (unsigned int kind = GATHER_FIRST; kind <= GATHER_LAST; kind++)
		for (uint8_t type = 0; type < 32; type++)
			for (unsigned int round = 0;
			     OP_ANY_TYPE & OP_TYPE(type) && round < op_rig_rounds(48, 12); round++)
				op_check(reference_plan(gather_case(op_by_kind((enum op_kind)kind),
								    type, round, op_rig_seed()),
							NULL),
					 &(struct op_check){.fill = gather_fill,
							    .spoil = gather_spoil});
}

TEST(test_random__moves)
{
	for (unsigned int round = 0; round < op_rig_rounds(8, 4) * RANDOM_MOVES_ROUNDS; round++)
		op_check(random_moves(op_rig_seed(), round, MAX),
			 &(struct op_check){.fill = elementwise_fill});
}

TEST(test_random__samples)
{
	const double tolerance = op_rig_is_gpu() ? 2e-5 : 1e-6;

	/* The device "shared" has the same shaders as "plain". */
	if (op_rig_is("shared"))
		skip();
	for (unsigned int round = 0; round < op_rig_rounds(240, 120); round++)
		op_check(reference_plan(sample_case(round, !op_rig_is_gpu(), op_rig_seed()), NULL),
			 &(struct op_check){
				 .rtol = tolerance, .atol = tolerance, .fill = sample_fill});
}

/* A coordinate that is NaN, or far outside the picture, reads no memory outside the picture. */
TEST(test_contents__samples)
{
	static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, 1e9f, -1e9f};
	struct cpu_rig rig;

	skip_on_gpu();
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int round = 0; round < 15; round++) {
		struct plan *plan = reference_plan(sample_case(round, false, op_rig_seed()), NULL);
		struct cpu_job job;

		cpu_rig_prepare(&rig, plan);
		cpu_job_init(&job, plan, 1, 1);
		for (uint64_t i = 0; i < job.buffers.bytes[1] / sizeof(float); i++)
			((float *)job.buffers.bindings[1])[i] = odd[op_rig_pick(0, 7)];
		cpu_rig_run(&rig, &job);
		assert_int_equal(job.task.res, 0);
		for (uint64_t i = 0; i < job.buffers.bytes[2] / sizeof(float); i++)
			assert_true(fabsf(((float *)job.buffers.bindings[2])[i]) < 10);
		cpu_job_deinit(&job);
		cpu_rig_release(&rig, plan);
	}
	cpu_rig_deinit(&rig);
}

TEST(test_operators__random_rows)
{
	const struct op_check check = {
		.rtol = 2e-5, .atol = 2e-5, .may_refuse = true, .fill = random_rows_fill};
	const unsigned int n_rounds = op_rig_is_short() ? 2 : op_rig_rounds(24, 4);
	unsigned int n = 0, n_computed = 0;

	op_rig_set_seed(5);
	for (unsigned int round = 0; round < n_rounds * RANDOM_ROWS_OPERATORS; round++, n++)
		n_computed += op_check(random_rows(op_rig_seed(), round, MAX), &check) > 0;
	/* Attention, the last operator, has as many forms as all others together. */
	for (unsigned int round = 0; round < op_rig_rounds(200, 0); round++, n++)
		n_computed += op_check(random_rows(op_rig_seed(),
						   (round + 1) * RANDOM_ROWS_OPERATORS - 1, MAX),
				       &check) > 0;
	for (unsigned int round = 0; round < n_rounds * RANDOM_ROWS_DOUBLE; round++, n++)
		n_computed += op_check(random_rows_double(op_rig_seed(), round, MAX), &check) > 0;
	/* A few cases are too large for a GPU, and a real GPU may lack float64. */
	assert_true(n_computed > n * 9 / 10 || getenv("RBK_TEST_GPU"));
}

/* Put large finite numbers at random places; their powers of e are infinite. */
static void fill_extreme(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
			 uint64_t *state)
{
	const struct tensor *tensor = &plan->tensors[plan->bindings[0].tensor];
	const uint64_t n = shape_elems(&tensor->shape, count);
	const double large = tensor->dtype == RBK_DTYPE_F64 ? 0x1p300 : 1e30;

	for (uint64_t k = 0; k < 1 + n / 50; k++)
		put(tensor, buffers->bindings[0], reference_random(state) % n,
		    reference_random(state) % 2 ? large : -large);
}

TEST(test_contents__extreme)
{
	static const struct row of[] = {
		{"Softmax", "[count,37]", "", 0},    {"Softmax", "[count,5,70]", "axis=1", 0},
		{"LogSoftmax", "[count,37]", "", 0}, {"Relu", "[count,37]", "", 0},
		{"ReduceMax", "[count,37]", "", 0},  {"Sigmoid", "[count,37]", "", 0},
	};

	CHECK_ROWS(of, .fill = fill_extreme);
}

static void fill_special_rows(const struct plan *plan, uint32_t count,
			      struct reference_buffers *buffers, uint64_t *state)
{
	fill_special(plan, count, buffers, state);
	random_rows_fill(plan, count, buffers, state);
}

TEST(test_contents__rows)
{
	const struct op_check check = {.rtol = 2e-5, .atol = 2e-5, .fill = fill_special_rows};

	skip_on_gpu();
	/* Not Attention, the last: whether masked keys may have NaN weights is unspecified. */
	for (unsigned int round = 0; round < op_rig_rounds(8, 0) * RANDOM_ROWS_OPERATORS; round++)
		if ((round + 1) % RANDOM_ROWS_OPERATORS)
			op_check(random_rows(op_rig_seed(), round, MAX), &check);
	for (unsigned int round = 0; round < op_rig_rounds(8, 0) * RANDOM_ROWS_DOUBLE; round++)
		op_check(random_rows_double(op_rig_seed(), round, MAX), &check);
}

/* Values near 1: no overflow, no sum near 0. Half of the time, also NaNs and infinities. */
static void fill_near_one(const struct plan *plan, uint32_t count,
			  struct reference_buffers *buffers, uint64_t *state)
{
	const struct tensor *tensor = &plan->tensors[plan->bindings[0].tensor];

	for (uint64_t k = 0; k < shape_elems(&tensor->shape, count); k++)
		put(tensor, buffers->bindings[0], k,
		    1 + ((double)(reference_random(state) % 2001) - 1000) / 1e6);
	if (reference_random(state) & 1)
		fill_special(plan, count, buffers, state);
}

/* Lines reduced several at a time, long lines, lines of several dimensions, and columns. */
TEST(test_contents__reductions)
{
	static const char *const of[][2] = {
		{"[80,70]", "axes=[1]"},     {"[37,1100]", "axes=[1]"},
		{"[3,41,700]", "axes=[1]"},  {"[2,900,200]", "axes=[1]"},
		{"[9,5,131]", "axes=[0,2]"}, {"[3,30000]", "axes=[1]"},
		{"[2,3,30000]", "axes=[1]"},
	};

	static const struct row integers[] = {
		{"ReduceSum", "i64[4,5,6,7]", "axes=[0,2]"},
		{"ReduceProd", "i32[4,5,6,7]", "axes=[1,3]"},
		{"ReduceMax", "i8[4,5,6,7]", "axes=[0,2]"},
		{"ReduceMin", "u8[4,5,6,7]", "axes=[1,3]"},
	};

	skip_on_gpu();
	CHECK_ROWS(integers, .fill = NULL);
	for (enum op_kind kind = OP_REDUCE_SUM; kind <= OP_REDUCE_MIN; kind++)
		for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
			const struct row row = {op_by_kind(kind)->name, of[i][0], of[i][1], 2e-4};

			for (unsigned int again = 0; again < op_rig_rounds(2, 0); again++)
				check_rows(&row, 1, &(struct op_check){.fill = fill_near_one});
		}
}

TEST(test_random__products)
{
	static const enum rbk_dtype floats[] = {RBK_DTYPE_F32, RBK_DTYPE_F64};

	for (unsigned int round = 0; round < op_rig_rounds(300, 24); round++)
		for (unsigned int i = 0; i < 4; i++) {
			const enum rbk_dtype type = floats[i % 2];
			struct describe *d =
				(i < 2 ? random_matmul : random_gemm)(op_rig_seed(), round, MAX);

			if (i >= 2 && round >= RANDOM_GEMM_ROUNDS) {
				describe_free(d);
				continue;
			}
			describe_floats(d, type);
			op_check(reference_plan(d, op_rig_arena(type)),
				 &(struct op_check){.rtol = 1e-5,
						    .atol = type == RBK_DTYPE_F64 ? 1e-5 : 1e-4});
		}
}

TEST(test_random__windows)
{
	const unsigned int n_rounds = op_rig_is_short() ? 20 : op_rig_rounds(90, 40);

	for (unsigned int round = 0; round < n_rounds * RANDOM_WINDOWS_OPERATORS; round++)
		op_check(random_window(op_rig_seed(), round, MAX / 2, op_rig_arena),
			 &(struct op_check){.rtol = op_rig_is_gpu() ? 2e-5 : 1e-5,
					    .atol = 1e-5,
					    .has_layouts = true});
	for (unsigned int round = 0; round < op_rig_rounds(960, 0); round++)
		op_check(random_picture(op_rig_seed(), round, MAX / 2, op_rig_arena(RBK_DTYPE_F32)),
			 &(struct op_check){.rtol = 1e-4, .atol = 1e-4, .has_layouts = true});
}

/* Steps fused with a product or a convolution: with fusion and without. */
TEST(test_random__fused)
{
	const unsigned int n = op_rig_is_short() ? 1 : op_rig_rounds(8, 2);

	op_rig_set_seed(1);
	for (unsigned int i = 0; i < n * RANDOM_FUSED_ROUNDS; i++) {
		/* In a single pass, every other activation has plans with a count. */
		const unsigned int round = i + (n == 1 && i / 4 % 2 ? RANDOM_FUSED_ROUNDS : 0);
		const uint64_t begin = reference_random(op_rig_seed());

		for (unsigned int fuses = 0; fuses < (op_rig_is_gpu() && round % 4 ? 1 : 2);
		     fuses++) {
			uint64_t of_round = begin;
			struct plan *plan = random_fused(&of_round, round, MAX / 2, !fuses);

			op_check(plan,
				 &(struct op_check){.rtol = RANDOM_FUSED_RTOL(plan),
						    .atol = RANDOM_FUSED_ATOL(plan),
						    .fill = round % 3 ? NULL : random_fused_fill});
		}
	}
}

TEST(test_random__quantized)
{
	const unsigned int n_rounds = op_rig_is_short() ? 20 : op_rig_rounds(60, 40);

	for (const enum op_kind *kind = random_quantized_ops; *kind != OP_KIND_COUNT; kind++)
		for (unsigned int round = 0; round < n_rounds; round++)
			op_check(random_quantized_plan(*kind, op_rig_arena(RBK_DTYPE_F32),
						       round % 12 == 0, op_rig_seed()),
				 &(struct op_check){.rtol = 1e-4,
						    .atol = 1e-3,
						    .fill = random_quantized_fill});
}

/* ---- Limits of devices ---- */

/* Set all bits of the factors, and the bytes of the other inputs to 1. */
static void fill_with_ones(const struct plan *plan, uint32_t count,
			   struct reference_buffers *buffers, uint64_t *state)
{
	for (unsigned int i = 0; i + 1 < buffers->n; i++)
		memset(buffers->bindings[i], i < 2 ? 0xff : 1, buffers->bytes[i]);
}

/* Sums that overflow 32 bits wrap around: factors of all ones, and zero points. */
TEST(test_random__quantized_wraps)
{
	static const char *const inputs[] = {"u8[3,40003] u8[40003,5] - u8[]",
					     "u8[3,40003] u8[40003,5] u8[]"};

	/* A software device may refuse loops of this many iterations. */
	for (unsigned int i = 0; i < 2; i++)
		op_check(reference_plan(one_op("MatMulInteger", inputs[i], ""), NULL),
			 &(struct op_check){.may_refuse = true, .fill = fill_with_ones});
}

/* Tasks that workers share: no worker's error is lost, and sums are the same each time. */
TEST(test_random__gather_large)
{
	static const char *const large[][3] = {
		{"Gather", "[3000,100] i64[5,4001]", ""},
		{"GatherElements", "[100000] i32[700000]", ""},
		{"ScatterElements", "[50,3,700] i32[300,3,700] [300,3,700]", "reduction=add"},
		{"ScatterND", "[30,10000] i64[90,1] [90,10000]", "reduction=add"},
	};

	skip_on_gpu();
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
		op_check(reference_plan(one_op(large[i][0], large[i][1], large[i][2]), NULL),
			 &(struct op_check){.fill = gather_fill, .spoil = gather_spoil});
}

/* Return the steps of a plan y = x of @n calls of @add, which describes nodes @from to @to. */
static uint32_t count_steps(unsigned int n,
			    void (*add)(struct describe *d, const char *from, const char *to))
{
	struct describe *d = describe_new("chain", 1);
	char from[16] = "x", to[16];
	struct plan *plan;
	struct cpu_rig rig;
	uint32_t n_steps;

	describe_tensor(d, "x", RBK_TENSOR_INPUT, RBK_DTYPE_I8, 0, DESCRIBE_DIMS(1));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I8);
	for (unsigned int i = 0; i < n; i++) {
		snprintf(to, sizeof(to), i + 1 < n ? "t%u" : "y", i);
		if (i + 1 < n)
			describe_inferred(d, to, RBK_TENSOR_SCRATCH, RBK_DTYPE_I8);
		add(d, from, to);
		memcpy(from, to, sizeof(from));
	}
	plan = reference_plan(d, NULL);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	cpu_rig_prepare(&rig, plan);
	n_steps = plan->n_steps;
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	return n_steps;
}

static void add_neg(struct describe *d, const char *from, const char *to)
{
	describe_node(d, "Neg", "", from, to);
}

static void add_concat(struct describe *d, const char *from, const char *to)
{
	char inputs[32 * 16] = "", joined[20];

	for (unsigned int i = 0; i < 32; i++) {
		strcat(inputs, i ? "," : "");
		strcat(inputs, from);
	}
	snprintf(joined, sizeof(joined), "%s-32", to);
	describe_inferred(d, joined, RBK_TENSOR_SCRATCH, RBK_DTYPE_I8);
	describe_node(d, "Concat", "", inputs, joined);
	describe_attr_int(d, "axis", 0);
	describe_node(d, "Slice", "", joined, to);
	describe_attr_ints(d, "starts", DESCRIBE_INTS(0));
	describe_attr_ints(d, "ends", DESCRIBE_INTS(1));
}

/* The dispatcher estimates the time of tiny tasks by steps: one for each tensor of a Concat. */
TEST(test_limits__steps)
{
	assert_int_equal(count_steps(1, add_neg), 1);
	assert_int_equal(count_steps(8, add_neg), 8);
	assert_int_equal(count_steps(1, add_concat), 33);
	assert_int_equal(count_steps(310, add_concat), 310 * 33);
}

/*
 * One picture that as many nodes read as a plan can have, each as often as possible. Its
 * preparation may occupy the setup thread for milliseconds, not minutes. (This test otherwise
 * reaches its time limit.)
 */
TEST(test_limits__one_picture_with_all_readers)
{
	enum { INPUTS = 32, N_CONCAT = RBK_MAX_PLAN_TENSORS - 4 };
	char inputs[2 * INPUTS], name[16];
	struct cpu_rig rig;
	struct describe *d;
	struct plan *plan;

	skip_on_gpu();
	d = describe_new("readers", 1);
	describe_input(d, "x", DESCRIBE_DIMS(1, 2, 2, 2));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(2, 2, 1, 1));
	describe_scratch(d, "p");
	describe_node(d, "Conv", "", "x,w", "p");
	for (unsigned int i = 0; i < INPUTS; i++)
		memcpy(inputs + 2 * i, i + 1 < INPUTS ? "p," : "p", 2);
	for (unsigned int i = 0; i < N_CONCAT; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		describe_scratch(d, name);
		describe_node(d, "Concat", "", inputs, name);
		describe_attr_int(d, "axis", 1);
	}
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Relu", "", name, "y");
	plan = reference_plan(d, op_rig_arena(RBK_DTYPE_F32));

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1, .layout = CPU_LAYOUT_WORTH});
	cpu_rig_prepare(&rig, plan);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/* An element has more updates than one GPU invocation may examine. */
TEST(test_limits__scatter)
{
	struct plan *plan;
	struct rig rig;

	if (!op_rig_is_gpu())
		skip();
	plan = reference_plan(one_op("ScatterElements", "[50] i64[1048576] [1048576]", ""), NULL);
	rig_init(&rig, &(struct vulkan_options){0});
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan),
			 EXECUTOR_E_UNSUPPORTED);
	rig.executor->ops->plan_release(rig.executor, plan);
	rig_deinit(&rig);
	plan_free(plan);
}

/* A device without shaderFloat64 computes nothing of float64, but everything else. */
TEST(test_limits__without_float64)
{
	if (!op_rig_is_gpu())
		skip();
	op_rig_close();
	assert_int_equal(op_rig_open("no-float64"), 0);
	check_elementwise(OP_CAST, CAST_ROUNDS);
}

int main(int argc, char **argv)
{
	int r;

	if (argc < 2) {
		fprintf(stderr, "usage: %s DEVICES [FILTER [ROUNDS]]\n", argv[0]);
		return 2;
	}
	if (argc > 2)
		setenv("RBK_TEST_FILTER", argv[2], 1);
	op_rig_set_rounds(argc > 3 ? argv[3] : "100");
	clock_init();
	r = op_rig_open(argv[1]);
	if (r)
		return r;
	r = test_run(NULL, NULL);
	op_rig_close();
	return r;
}
