/* SPDX-License-Identifier: MIT */
/*
 * Quantization, and products and convolutions of quantized tensors
 *
 * Nodes differ in the order of scales and zero points among their inputs; the step of a product has
 * them in the order of enum cpu_integer_in. Constant weights are packed when the plan is prepared.
 * Other weights are packed by a separate step before the one that reads them.
 */
#include "cpu/compile.h"

#include <errno.h>
#include <string.h>

#include "cpu/internal.h"
#include "cpu/run-quantize.h"
#include "util/error.h"

enum { FILL_BYTES = 2 << 20 }; /* bytes of a packed form that are filled at a time */

static const struct cpu_int8_kernels *int8_kernels(const struct compiler *c)
{
	return cpu_int8_best(c->cpu->kernels->level);
}

static bool is_each(const struct tensor *tensor)
{
	return tensor && (tensor->shape.dynamic || shape_elems(&tensor->shape, 1) > 1);
}

static enum cpu_quant_type quant_type(uint8_t dtype)
{
	return dtype == RBK_DTYPE_I32  ? CPU_QUANT_S32
	       : dtype == RBK_DTYPE_I8 ? CPU_QUANT_S8
				       : CPU_QUANT_U8;
}

/* Set the axis along which the scale changes: [outer][axis][inner]. */
static void quantize_axis(struct compiler *c, const struct shape *x)
{
	const union op_params *params = &c->node->params;
	struct cpu_step_quantize *step = compile_args(c);
	const unsigned int axis = params->quantize.axis;
	const size_t n = x->dims[axis], block = params->quantize.block;
	const size_t n_blocks = div_up(n, block);

	step->outer = extent_range(x, 0, axis);
	step->axis = extent_aligned(x, x->rank, axis);
	step->inner = extent_range(x, axis + 1u, x->rank);
	step->args.block = block;
	if (params->quantize.is_blocked) {
		step->args.scale_inner = extent_is_one(step->inner) ? 0 : 1;
		step->args.scale_axis = step->inner.fixed;
		step->args.scale_outer = n_blocks * step->inner.fixed;
	} else {
		step->args.scale_axis = 1;
	}
	if (!extent_is_one(step->inner))
		return;
	/*
	 * The last axis is a row, or rows of whole blocks; a ragged last block keeps the general
	 * form.
	 */
	if (block == 1) {
		step->inner = step->axis;
		step->axis = (struct cpu_extent){.fixed = 1};
		step->args.scale_inner = 1;
		step->args.scale_axis = 0;
		step->args.scale_outer = params->quantize.is_blocked ? n : 0;
	} else if (n % block == 0) {
		step->inner = (struct cpu_extent){.fixed = block};
		step->axis = (struct cpu_extent){.fixed = n_blocks};
		step->args.block = 1;
	}
}

static int compile_quantize(struct compiler *c)
{
	const bool dequantizes = c->node->op->kind == OP_DEQUANTIZE_LINEAR;
	const struct shape *x = &node_in(c, 0)->shape;
	struct cpu_step_quantize *step = compile_args(c);

	c->step->run = dequantizes ? cpu_run_dequantize : cpu_run_quantize;
	c->step->units = cpu_units_quantize;
	c->step->looks = true;
	step->kernels = int8_kernels(c);
	step->args.type = quant_type(dequantizes ? node_in(c, 0)->dtype : node_out(c, 0)->dtype);
	if (c->node->params.quantize.block > 0) {
		quantize_axis(c, x);
		return 0;
	}
	step->args.block = 1;
	step->outer = step->axis = (struct cpu_extent){.fixed = 1};
	step->inner = extent_range(x, 0, x->rank);
	return 0;
}

static int compile_dynamic_quantize(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape;
	const struct cpu_operand ranges = compile_work(c, OP_RANGES * 2 * sizeof(float));
	const struct cpu_step_ranges of = {int8_kernels(c), extent_range(x, 0, x->rank)};
	struct cpu_step_quantize *step;
	int r;

	c->step->run = cpu_run_ranges;
	c->step->units = cpu_units_ranges;
	c->step->looks = true;
	c->step->out[3] = ranges;
	*(struct cpu_step_ranges *)compile_args(c) = of;
	r = compile_add(c);
	if (r)
		return error_fold(r);
	c->step->run = cpu_run_range_end;
	c->step->units = cpu_units_one;
	c->step->cost_fixed_ns = OP_RANGES;
	c->step->out[3] = ranges;
	*(struct cpu_step_ranges *)compile_args(c) = of;
	r = compile_add(c);
	if (r)
		return error_fold(r);
	c->step->run = cpu_run_quantize_dynamic;
	c->step->units = cpu_units_quantize;
	c->step->looks = true;
	step = compile_args(c);
	step->kernels = of.kernels;
	step->args.type = CPU_QUANT_U8;
	step->args.block = 1;
	step->outer = step->axis = (struct cpu_extent){.fixed = 1};
	step->inner = of.n;
	return 0;
}

/* The node's input for each enum cpu_integer_in; -1: absent */
static const int8_t integer_in[2][CPU_INTEGER_BIAS + 1] = {
	{0, 1, 2, 3, -1, -1, -1, -1, -1}, /* MatMulInteger, ConvInteger */
	{0, 3, 2, 5, 1, 4, 6, 7, 8},      /* QLinearMatMul, QLinearConv */
};

static int integer_index(const struct compiler *c, enum cpu_integer_in in)
{
	const bool is_linear =
		c->node->op->kind == OP_QLINEAR_MATMUL || c->node->op->kind == OP_QLINEAR_CONV;

	return integer_in[is_linear][in];
}

static const struct tensor *integer_tensor(const struct compiler *c, enum cpu_integer_in in)
{
	const int i = integer_index(c, in);

	return i < 0 ? NULL : node_in(c, (unsigned int)i);
}

static struct cpu_integer integer_of(const struct compiler *c)
{
	const bool requantizes = integer_tensor(c, CPU_INTEGER_Y_SCALE) != NULL;

	return (struct cpu_integer){
		.kernels = int8_kernels(c),
		.a_signed = integer_tensor(c, CPU_INTEGER_A)->dtype == RBK_DTYPE_I8,
		.b_signed = integer_tensor(c, CPU_INTEGER_B)->dtype == RBK_DTYPE_I8,
		.y_signed = node_out(c, 0)->dtype == RBK_DTYPE_I8,
		.a_zero_each = is_each(integer_tensor(c, CPU_INTEGER_A_ZERO)),
		.b_zero_each = is_each(integer_tensor(c, CPU_INTEGER_B_ZERO)),
		.a_scale_each = is_each(integer_tensor(c, CPU_INTEGER_A_SCALE)),
		.b_scale_each = is_each(integer_tensor(c, CPU_INTEGER_B_SCALE)),
		.requantizes = requantizes,
	};
}

/* Dot products of bytes do four times as many operations per register and instruction. */
static void integer_speed(struct compiler *c, const struct cpu_int8_kernels *kernels)
{
	if (kernels->level == CPU_INT8_AVX_VNNI || kernels->level == CPU_INT8_AVX512_VNNI)
		c->speed_up = 4;
}

/* Reorder the operands of a new step, which are in the node's order. */
static void integer_operands(struct compiler *c)
{
	struct cpu_operand in[CPU_MAX_IN];

	memcpy(in, c->step->in, sizeof(in));
	for (unsigned int to = 0; to <= CPU_INTEGER_BIAS; to++) {
		const int from = integer_index(c, (enum cpu_integer_in)to);

		c->step->in[to] = from < 0 ? (struct cpu_operand){.present = false} : in[from];
	}
}

/* Pack constant input @i, and point c->step->in[i] at the packed form. */
static int pack_constant(struct compiler *c, unsigned int i, enum pack_form form,
			 const uint64_t *params, unsigned int n_params, size_t bytes,
			 struct cpu_fill **ret)
{
	int r = compile_pack(c, i, form, params, n_params,
			     (bytes + sizeof(float) - 1) / sizeof(float), ret);

	return r ? error_fold(r) : 0;
}

struct integer_fill {
	size_t (*pack)(const struct cpu_int8_gemm *gemm, size_t begin, size_t end, void *to);
	struct cpu_int8_gemm gemm;
	size_t n_matrices, packed_bytes;
};
CPU_STEP_HOLDS(struct integer_fill);

/* Pack some units of a matrix, or all. */
static bool fill_integer(const struct cpu_fill *fill, uint64_t number)
{
	const struct integer_fill *args = (const void *)fill->args;
	const size_t bytes = args->packed_bytes;
	const size_t n_parts = div_up(bytes, FILL_BYTES);
	const size_t matrix = number / n_parts, part = number % n_parts;
	uint8_t *const to = (uint8_t *)fill->pack->data + matrix * bytes;
	struct cpu_int8_gemm gemm = args->gemm;
	size_t step;

	gemm.b = (const uint8_t *)fill->from[0] + matrix * gemm.k * gemm.n;
	step = div_up(args->pack(&gemm, 0, 0, to), n_parts);
	args->pack(&gemm, part * step, (part + 1) * step, to);
	return number + 1 < args->n_matrices * n_parts;
}

static int pack_integer(struct compiler *c, size_t n_matrices, struct cpu_operand *ret)
{
	struct cpu_step_integer *integer = compile_args(c);
	const struct cpu_integer *of = &integer->of;
	struct cpu_step_gemm *step = &integer->gemm;
	const unsigned int index = (unsigned int)integer_index(c, CPU_INTEGER_B);
	const size_t n = step->n.fixed, k = step->k, bytes = of->kernels->pack_b_size(k, n);
	const uint64_t params[] = {k, n, n_matrices, of->a_signed, of->b_signed};
	const uintptr_t from = c->step->in[index].offset;
	struct cpu_fill *fill;
	size_t total;
	int r;

	if (__builtin_mul_overflow(bytes, n_matrices, &total))
		return error_origin(-ENOMEM);
	r = pack_constant(c, index, PACK_INTEGER, params, 5, total, &fill);
	if (r)
		return error_fold(r);
	if (fill) {
		fill->part = fill_integer;
		*(struct integer_fill *)fill->args = (struct integer_fill){
			.pack = of->kernels->pack_b,
			.gemm = {.n = n,
				 .k = k,
				 .b_rs = n,
				 .a_signed = of->a_signed,
				 .b_signed = of->b_signed},
			.n_matrices = n_matrices,
			.packed_bytes = bytes,
		};
		compile_fill_from(c, fill, 0, from);
	}
	step->b_is_packed = true;
	step->b_matrix = bytes;
	*ret = c->step->in[index];
	return 0;
}

static int compile_integer(struct compiler *c)
{
	const struct tensor *a = integer_tensor(c, CPU_INTEGER_A);
	const struct tensor *b = integer_tensor(c, CPU_INTEGER_B);
	const struct cpu_integer of = integer_of(c);
	struct cpu_step_integer *integer = compile_args(c);
	struct cpu_step_gemm *step = &integer->gemm;
	struct cpu_operand packed = {.present = false};
	bool is_one;
	int r;

	c->step->run = cpu_run_integer;
	c->step->units = cpu_units_gemm;
	c->step->looks = true;
	integer->of = of;
	integer_speed(c, of.kernels);
	/* Values per row repeat with each matrix, so matrices are kept apart. */
	is_one = compile_product(step, &a->shape, &b->shape, of.a_zero_each || of.a_scale_each);
	if (b->kind == RBK_TENSOR_CONSTANT) {
		size_t n_matrices = 1;

		for (unsigned int i = 0; !is_one && i + 2 < b->shape.rank; i++)
			n_matrices *= b->shape.dims[i];
		r = pack_integer(c, n_matrices, &packed);
		if (r)
			return error_fold(r);
	}
	integer_operands(c);
	if (packed.present)
		c->step->in[CPU_INTEGER_B] = packed;
	return 0;
}

struct integer_conv_fill {
	size_t (*pack)(const struct cpu_int8_conv *conv, size_t begin, size_t end, void *to);
	struct cpu_int8_conv conv;
};
CPU_STEP_HOLDS(struct integer_conv_fill);

static bool fill_integer_conv(const struct cpu_fill *fill, uint64_t number)
{
	const size_t n_parts = div_up(fill->pack->map_bytes, FILL_BYTES);
	const struct integer_conv_fill *args = (const void *)fill->args;
	struct cpu_int8_conv conv = args->conv;
	void *const to = fill->pack->data;
	size_t n_units, each;

	conv.window.weights = fill->from[0];
	n_units = args->pack(&conv, 0, 0, to);
	each = div_up(n_units, n_parts);
	args->pack(&conv, number * each, (number + 1) * each, to);
	return (number + 1) * each < n_units;
}

static int compile_integer_conv(struct compiler *c)
{
	const struct tensor *weights = integer_tensor(c, CPU_INTEGER_B);
	const struct cpu_integer of = integer_of(c);
	const unsigned int index = (unsigned int)integer_index(c, CPU_INTEGER_B);
	struct cpu_step_integer_conv conv = {.of = of};
	struct cpu_operand packed;
	size_t bytes;
	int r;

	compile_window(&integer_tensor(c, CPU_INTEGER_A)->shape, &node_out(c, 0)->shape,
		       &c->node->params, &conv.args, &conv.batch);
	bytes = of.kernels->pack_conv_size(&conv.args);
	integer_speed(c, of.kernels);
	if (weights->kind == RBK_TENSOR_CONSTANT) {
		const uint64_t params[] = {conv.args.channels,
					   conv.args.out_channels,
					   conv.args.kernel[1],
					   conv.args.kernel[2],
					   conv.args.group,
					   of.b_signed,
					   cpu_int8_conv_by_channels(&conv.args)};
		const uintptr_t from = c->step->in[index].offset;
		struct cpu_fill *fill;

		r = pack_constant(c, index, PACK_INTEGER_CONV, params, 7, bytes, &fill);
		if (r)
			return error_fold(r);
		if (fill) {
			fill->part = fill_integer_conv;
			*(struct integer_conv_fill *)fill->args = (struct integer_conv_fill){
				.pack = of.kernels->pack_conv,
				.conv = {.window = conv.args, .weights_signed = of.b_signed},
			};
			compile_fill_from(c, fill, 0, from);
		}
		packed = c->step->in[index];
	} else {
		packed = compile_work(c, bytes);
		integer_operands(c);
		c->step->run = cpu_run_integer_pack;
		c->step->units = cpu_units_integer_pack;
		c->step->looks = true;
		*(struct cpu_step_integer_conv *)compile_args(c) = conv;
		c->step->out[1] = packed;
		r = compile_add(c);
		if (r)
			return error_fold(r);
	}
	integer_operands(c);
	c->step->run = cpu_run_integer_conv;
	c->step->units = cpu_units_integer_conv;
	c->step->looks = true;
	*(struct cpu_step_integer_conv *)compile_args(c) = conv;
	c->step->in[CPU_INTEGER_B] = packed;
	return 0;
}

/*
 * Return true if weights, scales and zero points are constants of one arena. Then the weights'
 * place and the others' offsets identify a packed form.
 */
static bool nbits_is_constant(const struct compiler *c)
{
	const struct exec_arena *arena = NULL;

	for (unsigned int i = 1; i <= 3; i++) {
		const struct tensor *tensor = node_in(c, i);

		if (!tensor)
			continue;
		if (tensor->kind != RBK_TENSOR_CONSTANT ||
		    (arena && arena != c->plan->constants[tensor->constant].arena))
			return false;
		arena = c->plan->constants[tensor->constant].arena;
	}
	return true;
}

struct nbits_fill {
	struct cpu_nbits_weights weights;
	bool zeros_are_floats;
};
CPU_STEP_HOLDS(struct nbits_fill);

/* Pack some panels of columns. */
static bool fill_nbits(const struct cpu_fill *fill, uint64_t number)
{
	const struct nbits_fill *args = (const void *)fill->args;
	const struct cpu_kernels *kernels = fill->kernels;
	struct cpu_nbits_weights weights = args->weights;
	const size_t panel_bytes =
		kernels->pack_nbits_size(weights.k, kernels->gemm_nr, weights.block);
	const size_t panels = FILL_BYTES / panel_bytes > 0 ? FILL_BYTES / panel_bytes : 1;
	const size_t width = panels * kernels->gemm_nr, j = number * width;
	const size_t left = weights.n - j;
	const void *zeros = fill->from[2];

	weights.b = fill->from[0];
	weights.scales = fill->from[1];
	if (args->zeros_are_floats)
		weights.zeros_float = zeros;
	else
		weights.zeros = zeros;
	weights = cpu_nbits_columns(&weights, j, left < width ? left : width);
	kernels->pack_nbits(&weights, (uint8_t *)fill->pack->data + number * panels * panel_bytes);
	return weights.n < left;
}

static int pack_nbits(struct compiler *c, const struct cpu_step_nbits *nbits, size_t bytes)
{
	const struct tensor *scales = node_in(c, 2), *zeros = node_in(c, 3);
	const struct cpu_nbits_weights weights = nbits->weights;
	const uint64_t params[] = {
		weights.k,
		weights.n,
		weights.block,
		c->plan->constants[scales->constant].offset,
		zeros ? c->plan->constants[zeros->constant].offset + 1 : 0,
		(uint64_t)scales->dtype << 8 | (zeros ? zeros->dtype : 0),
	};
	const uintptr_t from = c->step->in[1].offset;
	struct cpu_fill *fill;
	int r;

	r = pack_constant(c, 1, PACK_NBITS, params, 6, bytes, &fill);
	if (r)
		return error_fold(r);
	if (!fill)
		return 0;
	fill->part = fill_nbits;
	*(struct nbits_fill *)fill->args = (struct nbits_fill){weights, nbits->zeros_are_floats};
	compile_fill_from(c, fill, 0, from);
	compile_fill_from(c, fill, 1, c->step->in[2].offset);
	compile_fill_from(c, fill, 2, zeros ? c->step->in[3].offset : 0);
	return 0;
}

static int compile_nbits(struct compiler *c)
{
	const struct shape *a = &node_in(c, 0)->shape;
	const struct tensor *zeros = node_in(c, 3);
	const size_t k = a->dims[a->rank - 1], n = c->node->params.nbits.n;
	const size_t block = c->node->params.nbits.block;
	const size_t bytes = c->cpu->kernels->pack_nbits_size(k, n, block);
	const struct cpu_step_nbits nbits = {
		.gemm = {.m = extent_range(a, 0, a->rank - 1u), .n = {.fixed = n}, .k = k},
		.weights = {.k = k, .n = n, .block = block},
		.zeros_are_floats = zeros && zeros->dtype != RBK_DTYPE_U8,
	};
	int r;

	if (nbits_is_constant(c)) {
		r = pack_nbits(c, &nbits, bytes);
		if (r)
			return error_fold(r);
	} else {
		const struct cpu_operand packed = compile_work(c, bytes);

		c->step->run = cpu_run_nbits_pack;
		c->step->units = cpu_units_nbits_pack;
		c->step->looks = true;
		*(struct cpu_step_nbits *)compile_args(c) = nbits;
		c->step->out[1] = packed;
		r = compile_add(c);
		if (r)
			return error_fold(r);
		c->step->in[1] = packed;
	}
	c->step->run = cpu_run_nbits;
	c->step->units = cpu_units_gemm;
	c->step->rounds = cpu_rounds_gemm;
	c->step->looks = true;
	*(struct cpu_step_nbits *)compile_args(c) = nbits;
	return 0;
}

const struct cpu_op cpu_op_quantize_linear = {.compile = compile_quantize, .overhead = {15, 15, 0}};
const struct cpu_op cpu_op_dequantize_linear = {.compile = compile_quantize,
						.overhead = {15, 15, 0}};
const struct cpu_op cpu_op_dynamic_quantize_linear = {.compile = compile_dynamic_quantize};
const struct cpu_op cpu_op_matmul_integer = {.compile = compile_integer, .overhead = {100, 12, 0}};
const struct cpu_op cpu_op_qlinear_matmul = {.compile = compile_integer, .overhead = {150, 12, 0}};
const struct cpu_op cpu_op_conv_integer = {.compile = compile_integer_conv,
					   .overhead = {90, 15, 0}};
const struct cpu_op cpu_op_qlinear_conv = {.compile = compile_integer_conv,
					   .overhead = {150, 15, 0}};
const struct cpu_op cpu_op_matmul_nbits = {.compile = compile_nbits, .overhead = {30, 8, 0}};
