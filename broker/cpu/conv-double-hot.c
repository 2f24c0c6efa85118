/* SPDX-License-Identifier: MIT */
/*
 * Conv and ConvTranspose of float64
 *
 * A convolution is a matrix product with one operand gathered a block at a time: the input of each
 * tap for a unit's pixels, row by row. No operand is packed beforehand. See window-hot.c.
 *
 * ConvTranspose works in reverse. For a block of the input's pixels and each tap in turn, a matrix
 * product computes the pixels' contributions, which are added at the positions to which the tap
 * spreads them. A unit owns some out channels, so no other unit adds to them.
 *
 * A depthwise convolution has one row of weights per matrix: see slide-double-hot.c.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-double.h"
#include "cpu/vec.h"
#include "cpu/window.h"

_Static_assert((GEMM_MC + CPU_CONV_PIXELS) * CPU_GEMM_F64_KC * sizeof(double) <=
		       CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of the weights and a block of the pixels");
_Static_assert(((CPU_TRANSPOSE_F64_CHANNELS + CPU_CONV_PIXELS) * CPU_GEMM_F64_KC +
		CPU_TRANSPOSE_F64_CHANNELS * CPU_CONV_PIXELS) *
			       sizeof(double) <=
		       CPU_WORKSPACE_BYTES,
	       "and, for ConvTranspose, a tile of what comes of them");
_Static_assert(CPU_CONV_PIXELS % GEMM_F64_NR == 0, "whole panels");

/* A pixel of the output (of the input for ConvTranspose), or a tap */
struct place {
	size_t z, y, x;
};

static struct place place_of(size_t i, size_t height, size_t width)
{
	return (struct place){i / width / height, i / width % height, i % width};
}

/* Gather one tap of one channel for @n pixels from @at on; padding is 0. */
static void conv_look(const struct cpu_window *args, const struct place *tap, struct place at,
		      const double *channel, size_t n, double *to)
{
	const size_t stride = args->stride[2];
	size_t from, until;

	window_positions(tap->x, stride, args->pad_begin[2], args->dilation[2], args->out_width,
			 args->width, &from, &until);
	while (n > 0) {
		const size_t len = min_size(n, args->out_width - at.x);
		/* A position before the beginning wraps around to one beyond the end. */
		const size_t iz =
			at.z * args->stride[0] + tap->z * args->dilation[0] - args->pad_begin[0];
		const size_t iy =
			at.y * args->stride[1] + tap->y * args->dilation[1] - args->pad_begin[1];
		size_t begin = from < at.x ? at.x : from, end = min_size(until, at.x + len);

		if (iz >= args->depth || iy >= args->height || begin >= end)
			begin = end = at.x;
		memset(to, 0, (begin - at.x) * sizeof(double));
		if (begin < end) {
			const double *line =
				channel + (iz * args->height + iy) * args->width +
				(begin * stride + tap->x * args->dilation[2] - args->pad_begin[2]);

			if (stride == 1)
				memcpy(to + (begin - at.x), line, (end - begin) * sizeof(double));
			else
				for (size_t i = begin; i < end; i++)
					to[i - at.x] = line[(i - begin) * stride];
		}
		memset(to + (end - at.x), 0, (at.x + len - end) * sizeof(double));
		to += len;
		n -= len;
		at.x = 0;
		if (++at.y == args->out_height) {
			at.y = 0;
			at.z++;
		}
	}
}

/* Store @n elements, followed by zeros, as one row of panels that have @kb rows. */
static void conv_spread(const double *line, size_t n, size_t kb, double *to)
{
	for (size_t j = 0; j < n; j += GEMM_F64_NR) {
		vd_store(to + j * kb, vd_load(line + j));
		vd_store(to + j * kb + VD, vd_load(line + j + VD));
	}
}

/* Pack rows [p, p + kb) of the virtual matrix as panels of pixels. */
static void conv_pack(const struct cpu_window *args, const double *x, size_t p, size_t kb,
		      size_t first, size_t n, double *to)
{
	const size_t taps = cpu_window_taps(args), plane = cpu_window_in(args);
	struct place tap = place_of(p % taps, args->kernel[1], args->kernel[2]), at;
	const double *channel = x + p / taps * plane;
	double line[CPU_CONV_PIXELS] = {0};
	struct cpu_window flat;

	if (cpu_window_is_plain(args)) {
		flat = cpu_window_line(args);
		args = &flat;
	}
	at = place_of(first, args->out_height, args->out_width);
	for (size_t k = 0; k < kb; k++) {
		conv_look(args, &tap, at, channel, n, line);
		conv_spread(line, n, kb, to + k * GEMM_F64_NR);
		if (++tap.x < args->kernel[2])
			continue;
		tap.x = 0;
		if (++tap.y < args->kernel[1])
			continue;
		tap.y = 0;
		if (++tap.z < args->kernel[0])
			continue;
		tap.z = 0;
		channel += plane;
	}
}

/* Add a channel's bias to @n of its elements. */
static void conv_add(double bias, size_t n, double *y, struct cpu_pause *pause)
{
	for (size_t i = 0; i < n; i++) {
		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		y[i] += bias;
	}
}

static void conv_piece(const struct cpu_window_f64 *args, const struct cpu_conv_piece *piece,
		       double *workspace)
{
	const struct cpu_window *window = &args->window;
	const size_t pixels = cpu_window_out(window), n = piece->n;
	const size_t m = window->out_channels / window->group;
	const size_t in_channels = window->channels / window->group;
	const size_t depth = in_channels * cpu_window_taps(window);
	const double *x = args->x + (piece->batch * window->channels + piece->group * in_channels) *
					    cpu_window_in(window);
	const double *weights = args->weights + piece->group * m * depth;
	double *y = args->y + (piece->batch * window->out_channels + piece->group * m) * pixels +
		    piece->first;
	double *const a_block = workspace, *const b_block = workspace + GEMM_MC * CPU_GEMM_F64_KC;

	for (size_t p = 0; p < depth; p += CPU_GEMM_F64_KC) {
		const size_t kb = min_size(CPU_GEMM_F64_KC, depth - p);

		cpu_pause(window->pause);
		conv_pack(window, x, p, kb, piece->first, n, b_block);
		for (size_t i = piece->m_begin; i < piece->m_end; i += GEMM_MC) {
			const size_t mb = min_size(GEMM_MC, piece->m_end - i);

			CPU_FN(gemm_f64_pack_a)
			(mb, kb, weights + i * depth + p, depth, 1, a_block);
			for (size_t j = 0; j < n; j += GEMM_F64_NR) {
				cpu_pause(window->pause);
				CPU_FN(gemm_f64_panel)
				(mb, min_size(GEMM_F64_NR, n - j), kb, a_block, b_block + j * kb,
				 y + i * pixels + j, pixels, p > 0);
			}
		}
	}
	for (size_t i = piece->m_begin; i < piece->m_end && args->bias; i++)
		conv_add(args->bias[piece->group * m + i], n, y + i * pixels, NULL);
}

void CPU_FN(conv_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end, void *workspace)
{
	if (cpu_conv_is_depthwise(&args->window)) {
		CPU_FN(conv_depthwise_f64)(args, begin, end);
		return;
	}
	while (begin < end) {
		const struct cpu_conv_piece piece = cpu_conv_piece(&args->window, &begin, end);

		conv_piece(args, &piece, workspace);
	}
}

/* Add a tile's rows, for @n pixels of the input from @at on, at the positions of a tap. */
static void transpose_spread(const struct cpu_window *args, const struct place *tap,
			     struct place at, const double *tile, size_t m, size_t n, double *y)
{
	const size_t stride = args->stride[2], plane = cpu_window_out(args);
	size_t from, until;

	window_positions(tap->x, stride, args->pad_begin[2], args->dilation[2], args->width,
			 args->out_width, &from, &until);
	for (size_t done = 0, len; done < n; done += len) {
		/* A position before the beginning wraps around to one beyond the end. */
		const size_t oz =
			at.z * args->stride[0] + tap->z * args->dilation[0] - args->pad_begin[0];
		const size_t oy =
			at.y * args->stride[1] + tap->y * args->dilation[1] - args->pad_begin[1];
		const size_t begin = from < at.x ? at.x : from;
		size_t end;

		len = min_size(n - done, args->width - at.x);
		end = min_size(until, at.x + len);
		if (oz < args->out_depth && oy < args->out_height && begin < end) {
			double *line =
				y + (oz * args->out_height + oy) * args->out_width +
				(begin * stride + tap->x * args->dilation[2] - args->pad_begin[2]);
			const double *row = tile + done + (begin - at.x);

			for (size_t i = 0; i < m; i++, line += plane, row += CPU_CONV_PIXELS)
				for (size_t j = 0; j < end - begin; j++)
					line[j * stride] += row[j];
		}
		at.x = 0;
		if (++at.y == args->height) {
			at.y = 0;
			at.z++;
		}
	}
}

/* Add the contributions of input pixels [first, first + n) to @mb out channels from @i on. */
static void transpose_pixels(const struct cpu_window_f64 *args, const double *x,
			     const double *weights, size_t i, size_t mb, size_t first, size_t n,
			     double *y, double *workspace)
{
	const struct cpu_window *window = &args->window;
	const size_t m = window->out_channels / window->group, taps = cpu_window_taps(window);
	const size_t depth = window->channels / window->group, plane = cpu_window_in(window);
	const struct place at = place_of(first, window->height, window->width);
	double *const a_block = workspace;
	double *const b_block = a_block + CPU_TRANSPOSE_F64_CHANNELS * CPU_GEMM_F64_KC;
	double *const tile = b_block + CPU_CONV_PIXELS * CPU_GEMM_F64_KC;
	double line[CPU_CONV_PIXELS] = {0};

	for (size_t p = 0; p < depth; p += CPU_GEMM_F64_KC) {
		const size_t kb = min_size(CPU_GEMM_F64_KC, depth - p);

		for (size_t k = 0; k < kb; k++) {
			memcpy(line, x + (p + k) * plane + first, n * sizeof(double));
			conv_spread(line, n, kb, b_block + k * GEMM_F64_NR);
		}
		for (size_t t = 0; t < taps; t++) {
			const struct place tap = place_of(t, window->kernel[1], window->kernel[2]);

			CPU_FN(gemm_f64_pack_a)
			(mb, kb, weights + (p * m + i) * taps + t, taps, m * taps, a_block);
			for (size_t j = 0; j < n; j += GEMM_F64_NR) {
				cpu_pause(window->pause);
				CPU_FN(gemm_f64_panel)
				(mb, min_size(GEMM_F64_NR, n - j), kb, a_block, b_block + j * kb,
				 tile + j, CPU_CONV_PIXELS, false);
			}
			transpose_spread(window, &tap, at, tile, mb, n, y);
		}
	}
}

void CPU_FN(conv_transpose_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end,
				void *workspace)
{
	const struct cpu_window *window = &args->window;
	const size_t m = window->out_channels / window->group;
	const size_t depth = window->channels / window->group;
	const size_t parts = cpu_conv_transpose_f64_parts(window);
	const size_t pixels = cpu_window_in(window), plane = cpu_window_out(window);

	for (size_t unit = begin; unit < end; unit++) {
		const size_t picture = unit / parts, group = picture % window->group;
		const size_t i = unit % parts * CPU_TRANSPOSE_F64_CHANNELS;
		const size_t mb = min_size(CPU_TRANSPOSE_F64_CHANNELS, m - i);
		const double *x = args->x + picture * depth * pixels;
		double *y = args->y + (picture * m + i) * plane;

		for (size_t k = 0; k < mb * plane; k++) {
			cpu_pause_at(window->pause, k, CPU_PAUSE_ELEMS);
			y[k] = 0;
		}
		for (size_t first = 0; first < pixels; first += CPU_CONV_PIXELS)
			transpose_pixels(
				args, x,
				args->weights + group * depth * m * cpu_window_taps(window), i, mb,
				first, min_size(CPU_CONV_PIXELS, pixels - first), y, workspace);
		for (size_t k = 0; k < mb && args->bias; k++)
			conv_add(args->bias[group * m + i + k], plane, y + k * plane,
				 window->pause);
	}
}
