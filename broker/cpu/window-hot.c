/* SPDX-License-Identifier: MIT */
/*
 * Conv and MaxPool
 *
 * A convolution is a matrix product of the weights, [out channels][channels * taps], with a matrix
 * that nobody stores: its columns are output pixels, its rows the input as seen through one tap.
 * For a unit of pixels, a block of its rows at a time is gathered into the workspace in the form
 * that the register tile reads, padding as zeros, and multiplied with packed weights.
 *
 * A depthwise convolution has one row of weights per matrix and would waste that: it slides its
 * window directly, a vector of neighbouring pixels at a time where all of its taps are inside, like
 * MaxPool. There, taps outside are left out.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

/* Out channels that are multiplied before the next ones are fetched. */
#define CONV_MC 240

_Static_assert((CONV_MC + CPU_CONV_PIXELS) * CPU_GEMM_KC * sizeof(float) <= CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of the weights and a block of the pixels");
_Static_assert(CPU_CONV_PIXELS % GEMM_NR == 0, "whole panels");

static size_t conv_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t conv_depth(const struct cpu_window *args)
{
	return args->channels / args->group * args->kernel[0] * args->kernel[1];
}

size_t CPU_FN(pack_conv_size)(const struct cpu_window *args)
{
	return args->out_channels * conv_depth(args);
}

void CPU_FN(pack_conv)(const struct cpu_window *args, float *to)
{
	const size_t depth = conv_depth(args), m = args->out_channels / args->group;

	for (size_t g = 0; g < args->group; g++) {
		const float *weights = args->weights + g * m * depth;

		for (size_t p = 0; p < depth; p += CPU_GEMM_KC) {
			const size_t kb = conv_min(CPU_GEMM_KC, depth - p);

			CPU_FN(gemm_pack_a)(m, kb, weights + p, depth, 1, to);
			to += m * kb;
		}
	}
}

/* Taps [*begin, *end) of a window at output position @o fall into [0, limit). */
static void window_taps(size_t o, size_t stride, size_t pad, size_t dilation, size_t kernel,
			size_t limit, size_t *begin, size_t *end)
{
	const int64_t at = (int64_t)(o * stride) - (int64_t)pad;

	*begin = at < 0 ? ((size_t)-at + dilation - 1) / dilation : 0;
	*end = at >= (int64_t)limit
		       ? 0
		       : conv_min(kernel, (size_t)((int64_t)limit - 1 - at) / dilation + 1);
	if (*begin > *end)
		*begin = *end;
}

/* Output positions [*begin, *end) of one row for which tap @tap falls into [0, limit). */
static void window_positions(size_t tap, size_t stride, size_t pad, size_t dilation, size_t n,
			     size_t limit, size_t *begin, size_t *end)
{
	const int64_t at = (int64_t)(tap * dilation) - (int64_t)pad;

	*begin = at < 0 ? conv_min(n, ((size_t)-at + stride - 1) / stride) : 0;
	*end = at >= (int64_t)limit ? 0
				    : conv_min(n, (size_t)((int64_t)limit - 1 - at) / stride + 1);
	if (*end < *begin)
		*end = *begin;
}

/* One tap of one channel, seen from output pixels [first, first + n). */
static void conv_gather(const struct cpu_window *args, const float *plane, size_t r, size_t s,
			size_t first, size_t n, float *to)
{
	size_t oy = first / args->out_width, ox = first % args->out_width, from, until;

	window_positions(s, args->stride[1], args->pad_begin[1], args->dilation[1], args->out_width,
			 args->width, &from, &until);
	while (n > 0) {
		const size_t len = conv_min(n, args->out_width - ox);
		const int64_t iy = (int64_t)(oy * args->stride[0] + r * args->dilation[0]) -
				   (int64_t)args->pad_begin[0];
		size_t begin = from < ox ? ox : from, end = conv_min(until, ox + len);

		if (iy < 0 || iy >= (int64_t)args->height || begin >= end) {
			memset(to, 0, len * sizeof(float));
		} else {
			const float *row = plane + (size_t)iy * args->width +
					   (begin * args->stride[1] + s * args->dilation[1] -
					    args->pad_begin[1]);

			memset(to, 0, (begin - ox) * sizeof(float));
			if (args->stride[1] == 1)
				memcpy(to + (begin - ox), row, (end - begin) * sizeof(float));
			else
				for (size_t i = begin; i < end; i++)
					to[i - ox] = row[(i - begin) * args->stride[1]];
			memset(to + (end - ox), 0, (ox + len - end) * sizeof(float));
		}
		to += len;
		n -= len;
		ox = 0;
		oy++;
	}
}

/* Rows [p, p + kb) of the matrix that nobody stores, as panels of GEMM_NR pixels. */
static void conv_pack_pixels(const struct cpu_window *args, const float *x, size_t p, size_t kb,
			     size_t first, size_t n, float *to)
{
	const size_t taps = args->kernel[0] * args->kernel[1];
	const bool is_plain = taps == 1 && args->stride[0] == 1 && args->stride[1] == 1 &&
			      args->pad_begin[0] == 0 && args->pad_begin[1] == 0 &&
			      args->out_width == args->width && args->out_height == args->height;
	float gathered[CPU_CONV_PIXELS];

	for (size_t k = 0; k < kb; k++) {
		const size_t channel = (p + k) / taps, tap = (p + k) % taps;
		const float *plane = x + channel * args->height * args->width, *row = gathered;

		if (is_plain)
			row = plane + first;
		else
			conv_gather(args, plane, tap / args->kernel[1], tap % args->kernel[1],
				    first, n, gathered);
		for (size_t j = 0; j < n; j += GEMM_NR) {
			float *panel = to + j * kb + k * GEMM_NR;

			if (n - j >= GEMM_NR) {
				memcpy(panel, row + j, GEMM_NR * sizeof(float));
			} else {
				memcpy(panel, row + j, (n - j) * sizeof(float));
				memset(panel + (n - j), 0, (GEMM_NR - (n - j)) * sizeof(float));
			}
		}
	}
}

static void conv_unit(const struct cpu_window *args, size_t batch, size_t group, size_t first,
		      float *workspace)
{
	const size_t depth = conv_depth(args), pixels = args->out_height * args->out_width;
	const size_t n = conv_min(CPU_CONV_PIXELS, pixels - first);
	const size_t m = args->out_channels / args->group;
	const size_t in_channels = args->channels / args->group;
	const float *x = args->x + (batch * args->channels + group * in_channels) * args->height *
					   args->width;
	const float *weights =
		(args->weights_packed ? args->weights_packed : args->weights) + group * m * depth;
	float *y = args->y + (batch * args->out_channels + group * m) * pixels + first;
	float *const a_block = workspace, *const b_block = workspace + CONV_MC * CPU_GEMM_KC;

	for (size_t p = 0; p < depth; p += CPU_GEMM_KC) {
		const size_t kb = conv_min(CPU_GEMM_KC, depth - p);

		cpu_pause(args->pause);
		conv_pack_pixels(args, x, p, kb, first, n, b_block);
		for (size_t i = 0; i < m; i += CONV_MC) {
			const size_t mb = conv_min(CONV_MC, m - i);
			const float *a = weights + m * p + i * kb;

			if (!args->weights_packed) {
				CPU_FN(gemm_pack_a)
				(mb, kb, weights + i * depth + p, depth, 1, a_block);
				a = a_block;
			}
			for (size_t j = 0; j < n; j += GEMM_NR) {
				cpu_pause(args->pause);
				CPU_FN(gemm_panel)
				(mb, conv_min(GEMM_NR, n - j), kb, a, b_block + j * kb,
				 y + i * pixels + j, pixels, p > 0);
			}
		}
	}
	if (!args->bias)
		return;
	for (size_t i = 0; i < m; i++) {
		const struct cpu_map add = {
			.in = {y + i * pixels, args->bias + group * m + i},
			.out = y + i * pixels,
			.step = {1, 0},
		};

		CPU_FN(map_f32)[CPU_MAP_ADD](&add, n);
	}
}

enum slide { SLIDE_CONV, SLIDE_MAX };

/* Vectors that are computed side by side, to hide the latency of one sum. */
enum { SLIDE_REGS = 4 };

/* Pixels of a row between two looks for others. */
enum { SLIDE_PIECE = 1 << 12 };

/* One output pixel, its window clipped. */
VEC_INLINE float slide_pixel(const enum slide what, const struct cpu_window *args,
			     const float *plane, const float *weights, size_t oy, size_t ox,
			     size_t r_begin, size_t r_end)
{
	float value = what == SLIDE_CONV ? 0 : -INFINITY;
	size_t s_begin, s_end;

	window_taps(ox, args->stride[1], args->pad_begin[1], args->dilation[1], args->kernel[1],
		    args->width, &s_begin, &s_end);
	for (size_t r = r_begin; r < r_end; r++) {
		const float *row = plane + (oy * args->stride[0] + r * args->dilation[0] -
					    args->pad_begin[0]) *
						   args->width;

		for (size_t s = s_begin; s < s_end; s++) {
			const float x = row[ox * args->stride[1] + s * args->dilation[1] -
					    args->pad_begin[1]];

			if (what == SLIDE_CONV)
				value = f_muladd(weights[r * args->kernel[1] + s], x, value);
			else
				value = x > value ? x : value;
		}
	}
	return value;
}

#if VW == 16
#define SLIDE_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#elif VW == 8
#define SLIDE_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#else
#define SLIDE_EVEN 0, 2, 4, 6
#endif

/* @n <= VW elements that are @stride (1 or 2) apart; none behind the last is read. */
VEC_INLINE vf slide_load(const float *from, const size_t stride, size_t n)
{
	if (stride == 1)
		return n == VW ? vf_load(from) : vf_load_partial(from, n);
	if (2 * n <= VW)
		return __builtin_shufflevector(vf_load_partial(from, 2 * n - 1), (vf){0},
					       SLIDE_EVEN);
	return __builtin_shufflevector(vf_load(from), vf_load_partial(from + VW, 2 * n - 1 - VW),
				       SLIDE_EVEN);
}

/*
 * @regs vectors of neighbouring pixels, or @n <= VW of them where @regs is 1, all of whose taps are
 * inside horizontally.
 */
VEC_INLINE void slide_vectors(const enum slide what, const size_t stride, const size_t regs,
			      const struct cpu_window *args, const float *plane,
			      const float *weights, float bias, size_t oy, size_t ox,
			      size_t r_begin, size_t r_end, size_t n, float *y)
{
	const float *row = plane + ox * stride - args->pad_begin[1];
	vf value[SLIDE_REGS];

	VEC_UNROLL
	for (size_t v = 0; v < regs; v++)
		value[v] = vf_set(what == SLIDE_CONV ? 0 : -INFINITY);
	for (size_t r = r_begin; r < r_end; r++) {
		const float *from =
			row + (oy * args->stride[0] + r * args->dilation[0] - args->pad_begin[0]) *
				      args->width;
		const float *weight = what == SLIDE_CONV ? weights + r * args->kernel[1] : NULL;

		for (size_t s = 0; s < args->kernel[1]; s++, from += args->dilation[1]) {
			VEC_UNROLL
			for (size_t v = 0; v < regs; v++) {
				const vf x = slide_load(from + v * VW * stride, stride,
							regs == 1 ? n : VW);

				if (what == SLIDE_CONV)
					value[v] += vf_set(weight[s]) * x;
				else
					value[v] = vf_select((vi)(x > value[v]), x, value[v]);
			}
		}
	}
	VEC_UNROLL
	for (size_t v = 0; v < regs; v++)
		vf_store_partial(y + ox + v * VW, value[v] + vf_set(bias), regs == 1 ? n : VW);
}

VEC_INLINE void slide_row(const enum slide what, const size_t stride, const struct cpu_window *args,
			  const float *plane, const float *weights, float bias, size_t oy,
			  size_t ox, size_t end, size_t r_begin, size_t r_end, float *y)
{
	for (; ox + SLIDE_REGS * VW <= end; ox += SLIDE_REGS * VW)
		slide_vectors(what, stride, SLIDE_REGS, args, plane, weights, bias, oy, ox, r_begin,
			      r_end, VW, y);
	for (; ox < end; ox += VW)
		slide_vectors(what, stride, 1, args, plane, weights, bias, oy, ox, r_begin, r_end,
			      conv_min(VW, end - ox), y);
}

VEC_INLINE void slide_plane(const enum slide what, const struct cpu_window *args,
			    const float *plane, const float *weights, float bias, float *y)
{
	size_t inner_begin = 0, inner_end = 0, ignored;

	/* Where even the first and the last tap are inside. */
	if (args->stride[1] <= 2) {
		window_positions(0, args->stride[1], args->pad_begin[1], args->dilation[1],
				 args->out_width, args->width, &inner_begin, &ignored);
		window_positions(args->kernel[1] - 1, args->stride[1], args->pad_begin[1],
				 args->dilation[1], args->out_width, args->width, &ignored,
				 &inner_end);
		if (inner_end < inner_begin)
			inner_end = inner_begin;
	}
	for (size_t oy = 0; oy < args->out_height; oy++, y += args->out_width) {
		size_t r_begin, r_end, ox = 0;

		cpu_pause(args->pause);
		window_taps(oy, args->stride[0], args->pad_begin[0], args->dilation[0],
			    args->kernel[0], args->height, &r_begin, &r_end);
		for (; ox < inner_begin; ox++)
			y[ox] = slide_pixel(what, args, plane, weights, oy, ox, r_begin, r_end) +
				bias;
		while (ox < inner_end) {
			const size_t end = conv_min(inner_end, ox + SLIDE_PIECE);

			if (args->stride[1] == 1)
				slide_row(what, 1, args, plane, weights, bias, oy, ox, end, r_begin,
					  r_end, y);
			else
				slide_row(what, 2, args, plane, weights, bias, oy, ox, end, r_begin,
					  r_end, y);
			ox = end;
			if (ox < inner_end)
				cpu_pause(args->pause);
		}
		for (; ox < args->out_width; ox++)
			y[ox] = slide_pixel(what, args, plane, weights, oy, ox, r_begin, r_end) +
				bias;
	}
}

void CPU_FN(conv)(const struct cpu_window *args, size_t begin, size_t end, void *workspace)
{
	const size_t pixels = args->out_height * args->out_width;
	const size_t blocks = (pixels + CPU_CONV_PIXELS - 1) / CPU_CONV_PIXELS;

	for (size_t unit = begin; unit < end; unit++) {
		if (cpu_conv_is_depthwise(args)) {
			const size_t channel = unit % args->channels;

			slide_plane(SLIDE_CONV, args, args->x + unit * args->height * args->width,
				    args->weights + channel * args->kernel[0] * args->kernel[1],
				    args->bias ? args->bias[channel] : 0, args->y + unit * pixels);
			continue;
		}
		conv_unit(args, unit / blocks / args->group, unit / blocks % args->group,
			  unit % blocks * CPU_CONV_PIXELS, workspace);
	}
}

void CPU_FN(max_pool)(const struct cpu_window *args, size_t begin, size_t end)
{
	const size_t pixels = args->out_height * args->out_width;

	for (size_t unit = begin; unit < end; unit++)
		slide_plane(SLIDE_MAX, args, args->x + unit * args->height * args->width, NULL, 0,
			    args->y + unit * pixels);
}
