/* SPDX-License-Identifier: MIT */
/*
 * Depthwise Conv and pooling of pictures whose channels come last
 *
 * A vector is neighbouring channels of one pixel, so every tap is one load whatever the strides,
 * dilations and the padding are: taps beside the input are left out for all of a pixel's channels.
 * Some neighbouring pixels are computed at once, to hide the latency of one sum and to load weights
 * once for all of them.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/window.h"

enum last { LAST_CONV, LAST_MAX, LAST_SUM };

/* Pixels that are computed at once. */
enum { LAST_PIXELS = 4 };

/* Elements of a row between two looks for others. */
enum { LAST_PIECE = 1 << 13 };

/* What a row of the output is computed with. */
struct last_row {
	const struct cpu_window *args;
	const float *x; /* the picture */
	float *y;
	size_t oz, oy;
	size_t q_begin, q_end, r_begin, r_end; /* taps that are inside along depth and height */
	size_t divides;                        /* LAST_SUM: taps of these two that count */
};

VEC_INLINE vf last_tap(const enum last what, vf value, vf weight, vf x)
{
	if (what == LAST_CONV)
		return value + weight * x;
	return what == LAST_MAX ? window_larger(x, value) : value + x;
}

/* @n channels from @c on, at most VW, of which the last vector of a pixel may have fewer. */
VEC_INLINE vf last_load(const float *from, const bool all, size_t n)
{
	return all ? vf_load(from) : vf_load_partial(from, n);
}

/*
 * @pixels pixels from @ox on, the @n channels from @c on (@all: VW), taps [s_begin, s_end) of each
 * row of the window. LAST_SUM: divided by @divisor.
 */
VEC_INLINE void last_vectors(const enum last what, const size_t pixels, const bool all,
			     const struct last_row *row, size_t ox, size_t c, size_t n,
			     size_t s_begin, size_t s_end, float divisor)
{
	const struct cpu_window *args = row->args;
	const size_t channels = args->channels, step = args->stride[2] * channels;
	const size_t next_tap = args->dilation[2] * channels;
	/* Before the beginning wraps to what is beyond the end. */
	const size_t ix = ox * args->stride[2] + s_begin * args->dilation[2] - args->pad_begin[2];
	vf value[LAST_PIXELS], start = vf_set(what == LAST_MAX ? -INFINITY : 0);
	float *y = row->y + ox * channels + c;

	if (what == LAST_CONV && args->bias)
		start = last_load(args->bias + c, all, n);
	VEC_UNROLL
	for (size_t i = 0; i < pixels; i++)
		value[i] = start;
	for (size_t q = row->q_begin; q < row->q_end; q++) {
		const size_t iz =
			row->oz * args->stride[0] + q * args->dilation[0] - args->pad_begin[0];

		for (size_t r = row->r_begin; r < row->r_end; r++) {
			const size_t iy = row->oy * args->stride[1] + r * args->dilation[1] -
					  args->pad_begin[1];
			const float *from =
				row->x + ((iz * args->height + iy) * args->width + ix) * channels +
				c;
			const size_t tap = (q * args->kernel[1] + r) * args->kernel[2] + s_begin;
			const float *weight = args->weights_packed + tap * channels + c;

			for (size_t s = s_begin; s < s_end; s++) {
				vf w = {0};

				if (what == LAST_CONV)
					w = last_load(weight, all, n);
				VEC_UNROLL
				for (size_t i = 0; i < pixels; i++)
					value[i] = last_tap(what, value[i], w,
							    last_load(from + i * step, all, n));
				from += next_tap;
				weight += channels;
			}
		}
	}
	VEC_UNROLL
	for (size_t i = 0; i < pixels; i++) {
		if (what == LAST_SUM)
			value[i] /= vf_set(divisor);
		if (all)
			vf_store(y + i * channels, value[i]);
		else
			vf_store_partial(y + i * channels, value[i], n);
	}
}

/* All channels of @pixels pixels. */
VEC_INLINE void last_pixels(const enum last what, const size_t pixels, const struct last_row *row,
			    size_t ox, size_t s_begin, size_t s_end, float divisor)
{
	const size_t channels = row->args->channels;
	size_t c = 0;

	for (; c + VW <= channels; c += VW) {
		cpu_pause_at(row->args->pause, c + VW, LAST_PIECE);
		last_vectors(what, pixels, true, row, ox, c, VW, s_begin, s_end, divisor);
	}
	if (c < channels)
		last_vectors(what, pixels, false, row, ox, c, channels - c, s_begin, s_end,
			     divisor);
}

VEC_INLINE float last_divisor(const struct last_row *row, size_t counts)
{
	const size_t divides = row->divides * counts;

	return divides ? (float)divides : 1;
}

VEC_INLINE void last_row(const enum last what, const struct last_row *row,
			 const struct window_inner *inner)
{
	const struct cpu_window *args = row->args;
	const size_t width = args->kernel[2];

	for (size_t ox = 0, n; ox < args->out_width; ox += n) {
		size_t begin, end;

		cpu_pause_at(args->pause, ox, LAST_PIECE / 16);
		n = LAST_PIXELS;
		if (ox >= inner->begin && ox + n <= inner->end) {
			last_pixels(what, LAST_PIXELS, row, ox, 0, width, last_divisor(row, width));
			continue;
		}
		n = 1;
		window_taps(ox, args->stride[2], args->pad_begin[2], args->dilation[2], width,
			    args->width, &begin, &end);
		last_pixels(what, 1, row, ox, begin, end,
			    what == LAST_SUM
				    ? last_divisor(row, window_counted(args, ox, 2, args->width))
				    : 1);
	}
}

VEC_INLINE void last_rows(const enum last what, const struct cpu_window *args, size_t begin,
			  size_t end)
{
	const struct window_inner inner = window_find_inner(args);
	const size_t out = args->out_width * args->channels;
	struct last_row row = {.args = args};

	for (size_t unit = begin; unit < end; unit++) {
		const size_t batch = unit / args->out_height / args->out_depth;

		cpu_pause(args->pause);
		row.x = args->x + batch * args->channels * cpu_window_in(args);
		row.y = args->y + unit * out;
		row.oy = unit % args->out_height;
		row.oz = unit / args->out_height % args->out_depth;
		window_taps(row.oz, args->stride[0], args->pad_begin[0], args->dilation[0],
			    args->kernel[0], args->depth, &row.q_begin, &row.q_end);
		window_taps(row.oy, args->stride[1], args->pad_begin[1], args->dilation[1],
			    args->kernel[1], args->height, &row.r_begin, &row.r_end);
		if (what == LAST_SUM)
			row.divides = window_counted(args, row.oz, 0, args->depth) *
				      window_counted(args, row.oy, 1, args->height);
		last_row(what, &row, &inner);
		for (size_t i = 0; args->activation && i < out; i += CPU_PAUSE_ELEMS) {
			cpu_activate(args->activation, row.y + i,
				     window_min(CPU_PAUSE_ELEMS, out - i));
			cpu_pause(args->pause);
		}
	}
}

void CPU_FN(conv_depthwise_last)(const struct cpu_window *args, size_t begin, size_t end)
{
	last_rows(LAST_CONV, args, begin, end);
}

void CPU_FN(max_pool_last)(const struct cpu_window *args, size_t begin, size_t end)
{
	last_rows(LAST_MAX, args, begin, end);
}

void CPU_FN(average_pool_last)(const struct cpu_window *args, size_t begin, size_t end)
{
	last_rows(LAST_SUM, args, begin, end);
}
