#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels of quantized operators
 *
 * Eight-bit products are exact: every sum is the integer sum modulo 2^32, at every level and
 * however the work is split. Processors' instructions for such products are finer graded than the
 * levels of kernels.h, so these kernels have their own levels. As in kernels.h, no kernel
 * allocates, locks, starts a thread or keeps state, and any thread may call any of them.
 *
 * A zero point is the element value that means zero; it has its tensor's type. Matrices are
 * row-major with adjacent columns; strides count elements.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "shm/number.h"

enum cpu_int8_level {
	CPU_INT8_SSE2 = 0, /* the generic build where the processor is no x86 */
	CPU_INT8_AVX2,
	CPU_INT8_AVX_VNNI, /* AVX2 with dot products of four bytes */
	CPU_INT8_AVX512,   /* F, BW, DQ, VL */
	CPU_INT8_AVX512_VNNI,
	CPU_INT8_COUNT,
};

/* Zero points: one per tensor, or one per row or column of a matrix; NULL: 0 */
struct cpu_zeros {
	const void *of;
	bool each;
};

/* Scales: one per tensor, or one per row or column; never NULL */
struct cpu_scales {
	const float *of;
	bool each;
};

/* Requantization of sums: saturate(round(sum * a * b / y) + zero), ties to even */
struct cpu_requantize {
	struct cpu_scales a, b; /* a: per row, b: per column */
	const float *y;
	const void *y_zero; /* NULL: 0 */
	bool y_signed;
};

/* y[m][n] = sum over k of (a[m][k] - a_zero[m]) * (b[k][n] - b_zero[n]), requantized if asked */
struct cpu_int8_gemm {
	size_t m, n, k;
	const void *a;
	const void *b;        /* not read if b_packed is set */
	const void *b_packed; /* from pack_b() of the same level and signs, or NULL */
	size_t a_rs, b_rs;    /* row strides */
	bool a_signed, b_signed;
	struct cpu_zeros a_zero, b_zero;
	const struct cpu_requantize *requantize; /* NULL: y is int32 */
	void *y;
	size_t y_rs;
	struct cpu_pause *pause;
};

/*
 * A convolution of eight-bit tensors: window.x and window.weights are bytes, window.y is int32 or
 * bytes. weights_packed is from pack_conv() of the same level, sign of the weights, and window;
 * only the batch may differ. In requantize, a has the scales of the weights, per out channel, and b
 * the input's single scale. Padding is the input's zero point.
 */
struct cpu_int8_conv {
	struct cpu_window window; /* its bias is not used */
	bool x_signed, weights_signed;
	struct cpu_zeros x_zero, weights_zero;
	const int32_t *bias; /* NULL: none */
	const struct cpu_requantize *requantize;
};

/*
 * QuantizeLinear and DequantizeLinear over [outer][axis][inner]. The scale of element (o, a, i) is
 * scale[o * scale_outer + a / block * scale_axis + i * scale_inner]; strides are 0 where the scale
 * is broadcast.
 */
enum cpu_quant_type { CPU_QUANT_U8, CPU_QUANT_S8, CPU_QUANT_S32 };
struct cpu_quantize {
	size_t outer, axis, inner, block;
	size_t scale_outer, scale_axis, scale_inner;
	const void *x;
	const float *scale;
	const void *zero; /* indexed like scale; NULL: 0 */
	void *y;
	enum cpu_quant_type type; /* the quantized type; CPU_QUANT_S32 is only dequantized */
	struct cpu_pause *pause;
};

enum {
	CPU_INT8_CONV_DEPTH = 128, /* see cpu_int8_conv_by_channels() */
	/* most words of the input that one row of the output sees */
	CPU_INT8_CONV_ROW_WORDS = 1 << 17,
	CPU_INT8_CONV_CHANNELS = 64, /* minimum of a unit */
};

/*
 * Return true if a vector holds out channels of one pixel, instead of pixels of one out channel.
 * Then no vector is padded with pixels that do not exist, and the input is read in place after one
 * conversion to words. But results must be transposed, which pays only after a deep sum. Rows of
 * the output are computed one by one.
 */
static inline bool cpu_int8_conv_by_channels(const struct cpu_window *args)
{
	const size_t channels = args->channels / args->group, m = args->out_channels / args->group;
	const size_t taps = args->kernel[1] * args->kernel[2];
	const size_t rows = (args->kernel[1] - 1) * args->dilation[1] + 1;
	const size_t width = args->out_width + (args->kernel[2] - 1) * args->dilation[2];

	if (args->stride[2] != 1 || taps < 2 || taps > 64 || channels % 4 ||
	    channels * taps < CPU_INT8_CONV_DEPTH)
		return false;
	/* The last vectors, of channels and of pixels, must be nearly full. */
	if (m < 16 || (m + 15) / 16 * 16 - m > m / 8 || args->out_width < 7)
		return false;
	return rows <= CPU_INT8_CONV_ROW_WORDS && width <= 1 << 14 &&
	       channels / 2 * rows * width <= CPU_INT8_CONV_ROW_WORDS;
}

/* The division of a convolution by channels. A unit is an output row by some out channels. */
struct cpu_int8_conv_cut {
	size_t matrices;             /* pictures times groups */
	size_t parts, part_channels; /* parts of a group's out channels, and their channels */
};

static inline struct cpu_int8_conv_cut cpu_int8_conv_cut(const struct cpu_window *args)
{
	const size_t m = args->out_channels / args->group;
	const size_t most = div_up(m, CPU_INT8_CONV_CHANNELS);
	struct cpu_int8_conv_cut cut = {.matrices = args->batch * args->group};
	const size_t units = cut.matrices * args->out_height;

	cut.parts = div_up(CPU_CONV_ENOUGH, units);
	cut.parts = cut.parts < most ? cut.parts : most;
	cut.part_channels = div_up(most, cut.parts) * CPU_INT8_CONV_CHANNELS;
	cut.parts = div_up(m, cut.part_channels);
	return cut;
}

static inline size_t cpu_int8_conv_units(const struct cpu_window *args)
{
	const struct cpu_int8_conv_cut cut = cpu_int8_conv_cut(args);

	if (!cpu_int8_conv_by_channels(args))
		return cpu_conv_matrix_units(args);
	return cut.matrices * cut.parts * args->out_height;
}

/* The kernels of a level, in the form of CPU_KERNELS */
/* clang-format off */
#define CPU_INT8_KERNELS(KERNEL) \
	/* Return the bytes of pack_b()'s result. */ \
	KERNEL(size_t, pack_b_size, (size_t k, size_t n)) \
	/* \
	 * Pack units [begin, end) of a constant b for gemm(); @end may be beyond the last unit. \
	 * Units are packed in ascending order. @to is the result of all units, aligned to 64 \
	 * bytes. Return: the number of all units. \
	 */ \
	KERNEL(size_t, pack_b, (const struct cpu_int8_gemm *gemm, size_t begin, size_t end, void *to)) \
	/* ONNX MatMulInteger, QLinearMatMul, one matrix; see cpu_gemm_tile. */ \
	KERNEL(void, gemm, (const struct cpu_int8_gemm *gemm, const struct cpu_gemm_tile *tile, \
			    void *workspace)) \
	KERNEL(size_t, pack_conv_size, (const struct cpu_window *window)) \
	/* As pack_b(), with units in any order. */ \
	KERNEL(size_t, pack_conv, (const struct cpu_int8_conv *conv, size_t begin, size_t end, \
				   void *to)) \
	/* ONNX ConvInteger, QLinearConv; weights must be packed. Units: cpu_int8_conv_units(). */ \
	KERNEL(void, conv, (const struct cpu_int8_conv *conv, size_t begin, size_t end, \
			    void *workspace)) \
	/* ONNX QuantizeLinear and DequantizeLinear. Units: cpu_quantize_units(). */ \
	KERNEL(void, quantize, (const struct cpu_quantize *args, size_t begin, size_t end)) \
	KERNEL(void, dequantize, (const struct cpu_quantize *args, size_t begin, size_t end)) \
	/* Find the least and the greatest of @n floats and 0, ignoring NaNs. */ \
	KERNEL(void, range, (size_t n, const float *x, float ret[2]))
/* clang-format on */

struct cpu_int8_kernels {
	enum cpu_int8_level level;
	const char *name; /* "avx512-vnni" */
	size_t gemm_mr, gemm_nr;
	CPU_INT8_KERNELS(CPU_KERNEL_MEMBER)
};

/* Elements of one unit of a quantization, and the maximum of rows in one unit */
enum { CPU_QUANT_PIECE = 8192 };

/* Return the rows of a unit: short rows are combined up to CPU_QUANT_PIECE elements. */
static inline size_t cpu_quantize_rows(const struct cpu_quantize *args)
{
	return args->inner == 0 || args->inner > CPU_QUANT_PIECE ? 1
								 : CPU_QUANT_PIECE / args->inner;
}

static inline size_t cpu_quantize_units(const struct cpu_quantize *args)
{
	const size_t rows = cpu_quantize_rows(args);
	const size_t pieces = div_up(args->inner, CPU_QUANT_PIECE);

	return div_up(args->outer * args->axis, rows) * pieces;
}

/* Return: the kernels of @level; NULL if this processor or this build has none. */
const struct cpu_int8_kernels *cpu_int8_get(enum cpu_int8_level level);

/*
 * Return the best int8 kernels within a level of kernels.h, with dot products if the processor has
 * them.
 */
const struct cpu_int8_kernels *cpu_int8_best(enum cpu_simd within);
