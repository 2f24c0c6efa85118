/* SPDX-License-Identifier: MIT */
/*
 * Conv
 *
 * A convolution is a matrix product of the weights, [out channels][channels * taps], with a matrix
 * that nobody stores: its columns are output pixels, its rows the input as seen through one tap.
 * For a unit of pixels, a block of its rows at a time is gathered into the workspace in the form
 * that the register tile reads, padding as zeros, and multiplied with packed weights.
 *
 * A depthwise convolution has one row of weights per matrix and would waste that: see slide-hot.c.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "cpu/window.h"

/* Out channels that are multiplied before the next ones are fetched. */
#define CONV_MC 240

_Static_assert((CONV_MC + CPU_CONV_PIXELS) * CPU_GEMM_KC * sizeof(float) <= CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of the weights and a block of the pixels");
_Static_assert(CPU_CONV_PIXELS % GEMM_NR == 0, "whole panels");

static size_t conv_depth(const struct cpu_window *args)
{
	return args->channels / args->group * args->kernel[0] * args->kernel[1] * args->kernel[2];
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
			const size_t kb = window_min(CPU_GEMM_KC, depth - p);

			CPU_FN(gemm_pack_a)(m, kb, weights + p, depth, 1, to);
			to += m * kb;
		}
	}
}

/* One tap of one channel, seen from output pixels [first, first + n). */
static void conv_gather(const struct cpu_window *args, const float *channel, size_t tap,
			size_t first, size_t n, float *to)
{
	const size_t s = tap % args->kernel[2], r = tap / args->kernel[2] % args->kernel[1];
	const size_t q = tap / args->kernel[2] / args->kernel[1];
	size_t row = first / args->out_width, ox = first % args->out_width, from, until;

	window_positions(s, args->stride[2], args->pad_begin[2], args->dilation[2], args->out_width,
			 args->width, &from, &until);
	while (n > 0) {
		const size_t len = window_min(n, args->out_width - ox);
		/* Before the beginning wraps to what is beyond the end. */
		const size_t iz = row / args->out_height * args->stride[0] + q * args->dilation[0] -
				  args->pad_begin[0];
		const size_t iy = row % args->out_height * args->stride[1] + r * args->dilation[1] -
				  args->pad_begin[1];
		size_t begin = from < ox ? ox : from, end = window_min(until, ox + len);

		if (iz >= args->depth || iy >= args->height || begin >= end) {
			memset(to, 0, len * sizeof(float));
		} else {
			const float *line = channel + (iz * args->height + iy) * args->width +
					    (begin * args->stride[2] + s * args->dilation[2] -
					     args->pad_begin[2]);

			memset(to, 0, (begin - ox) * sizeof(float));
			if (args->stride[2] == 1)
				memcpy(to + (begin - ox), line, (end - begin) * sizeof(float));
			else
				for (size_t i = begin; i < end; i++)
					to[i - ox] = line[(i - begin) * args->stride[2]];
			memset(to + (end - ox), 0, (ox + len - end) * sizeof(float));
		}
		to += len;
		n -= len;
		ox = 0;
		row++;
	}
}

/* Is the output the input's pixels, as they are? */
static bool conv_is_plain(const struct cpu_window *args)
{
	for (unsigned int i = 0; i < 3; i++)
		if (args->kernel[i] != 1 || args->stride[i] != 1 || args->pad_begin[i] != 0)
			return false;
	return args->out_depth == args->depth && args->out_height == args->height &&
	       args->out_width == args->width;
}

/* Rows [p, p + kb) of the matrix that nobody stores, as panels of GEMM_NR pixels. */
static void conv_pack_pixels(const struct cpu_window *args, const float *x, size_t p, size_t kb,
			     size_t first, size_t n, float *to)
{
	const size_t taps = args->kernel[0] * args->kernel[1] * args->kernel[2];
	const bool is_plain = conv_is_plain(args);
	float gathered[CPU_CONV_PIXELS];

	for (size_t k = 0; k < kb; k++) {
		const size_t channel = (p + k) / taps, tap = (p + k) % taps;
		const float *plane = x + channel * cpu_window_in(args), *row = gathered;

		if (is_plain)
			row = plane + first;
		else
			conv_gather(args, plane, tap, first, n, gathered);
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
	const size_t depth = conv_depth(args), pixels = cpu_window_out(args);
	const size_t n = window_min(CPU_CONV_PIXELS, pixels - first);
	const size_t m = args->out_channels / args->group;
	const size_t in_channels = args->channels / args->group;
	const float *x =
		args->x + (batch * args->channels + group * in_channels) * cpu_window_in(args);
	const float *weights =
		(args->weights_packed ? args->weights_packed : args->weights) + group * m * depth;
	float *y = args->y + (batch * args->out_channels + group * m) * pixels + first;
	float *const a_block = workspace, *const b_block = workspace + CONV_MC * CPU_GEMM_KC;

	for (size_t p = 0; p < depth; p += CPU_GEMM_KC) {
		const size_t kb = window_min(CPU_GEMM_KC, depth - p);

		cpu_pause(args->pause);
		conv_pack_pixels(args, x, p, kb, first, n, b_block);
		for (size_t i = 0; i < m; i += CONV_MC) {
			const size_t mb = window_min(CONV_MC, m - i);
			const float *a = weights + m * p + i * kb;

			if (!args->weights_packed) {
				CPU_FN(gemm_pack_a)
				(mb, kb, weights + i * depth + p, depth, 1, a_block);
				a = a_block;
			}
			for (size_t j = 0; j < n; j += GEMM_NR) {
				cpu_pause(args->pause);
				CPU_FN(gemm_panel)
				(mb, window_min(GEMM_NR, n - j), kb, a, b_block + j * kb,
				 y + i * pixels + j, pixels, p > 0);
			}
		}
	}
	for (size_t i = 0; i < m && (args->bias || args->activation); i++) {
		float *row = y + i * pixels;
		struct cpu_map add = {.in = {row}, .out = row, .step = {1, 0}};

		if (args->bias) {
			add.in[1] = args->bias + group * m + i;
			CPU_FN(map_f32)[CPU_MAP_ADD](&add, n);
		}
		cpu_activate(args->activation, row, n);
	}
}

void CPU_FN(conv)(const struct cpu_window *args, size_t begin, size_t end, void *workspace)
{
	const size_t pixels = cpu_window_out(args);
	const size_t blocks = (pixels + CPU_CONV_PIXELS - 1) / CPU_CONV_PIXELS;

	if (cpu_conv_is_depthwise(args)) {
		CPU_FN(conv_depthwise)(args, begin, end);
		return;
	}
	for (size_t unit = begin; unit < end; unit++)
		conv_unit(args, unit / blocks / args->group, unit / blocks % args->group,
			  unit % blocks * CPU_CONV_PIXELS, workspace);
}
