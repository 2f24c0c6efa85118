/* SPDX-License-Identifier: MIT */
/*
 * Depthwise Conv and pooling
 *
 * What has a plane of its own for each channel slides its window over it directly: a vector of
 * neighbouring pixels at a time where all taps are inside horizontally, pixel by pixel beside that.
 * Windows are clipped to the input: taps outside are left out, which for sums is as good as zeros.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-math.h"
#include "cpu/vec-trig.h"
#include "cpu/vec.h"
#include "cpu/window.h"

enum slide { SLIDE_CONV, SLIDE_MAX, SLIDE_SUM, SLIDE_LP };

/* Vectors that are computed side by side, to hide the latency of one sum. */
enum { SLIDE_REGS = 4 };

/* Pixels of a row between two looks for others. */
enum { SLIDE_PIECE = 1 << 12 };

/* What a row of a plane is computed with. */
struct slide_row {
	const struct cpu_window *args;
	const float *plane, *weights;
	float bias;
	size_t oz, oy;
	size_t q_begin, q_end, r_begin, r_end; /* taps that are inside along depth and height */
	size_t divides;                        /* SLIDE_SUM: taps of these two that count */
};

/* |x| to a power, by squaring. */
VEC_INLINE vf slide_power(vf x, uint32_t p)
{
	vf power = vf_abs(x), product = vf_set(1.0f);

	for (;;) {
		if (p & 1)
			product *= power;
		p >>= 1;
		if (p == 0)
			return product;
		power *= power;
	}
}

VEC_INLINE vf slide_tap(const enum slide what, const struct cpu_window *args, vf value,
			float weight, vf x)
{
	if (what == SLIDE_CONV)
		return value + vf_set(weight) * x;
	if (what == SLIDE_MAX)
		return vf_select((vi)(x > value), x, value);
	return value + (what == SLIDE_SUM ? x : slide_power(x, args->p));
}

/* What becomes of all taps together; @divisor: SLIDE_SUM. */
VEC_INLINE vf slide_finish(const enum slide what, const struct slide_row *row, vf value,
			   size_t divisor)
{
	const uint32_t p = row->args->p;

	if (what == SLIDE_CONV)
		return value + vf_set(row->bias);
	if (what == SLIDE_SUM)
		return value / vf_set(divisor ? (float)divisor : 1.0f);
	if (what == SLIDE_MAX || p == 1)
		return value;
	return p == 2 ? vf_sqrt(value) : vf_pow(value, vf_set(1.0f / (float)p));
}

/* Taps of output position @o along dimension @d that an average is over. */
static size_t slide_counted(const struct cpu_window *args, size_t o, unsigned int d, size_t limit)
{
	const size_t pad = args->pad_begin[d];
	size_t begin, end;

	if (args->includes_pad)
		window_taps(o, args->stride[d], 0, args->dilation[d], args->kernel[d],
			    limit + pad + args->pad_end[d], &begin, &end);
	else
		window_taps(o, args->stride[d], pad, args->dilation[d], args->kernel[d], limit,
			    &begin, &end);
	return end - begin;
}

/* The row of the input under a tap. */
VEC_INLINE const float *slide_line(const struct slide_row *row, size_t q, size_t r)
{
	const struct cpu_window *args = row->args;
	const size_t z = row->oz * args->stride[0] + q * args->dilation[0] - args->pad_begin[0];
	const size_t y = row->oy * args->stride[1] + r * args->dilation[1] - args->pad_begin[1];

	return row->plane + (z * args->height + y) * args->width;
}

/* One output pixel, its window clipped. */
VEC_INLINE float slide_pixel(const enum slide what, const struct slide_row *row, size_t ox)
{
	const struct cpu_window *args = row->args;
	vf value = vf_set(what == SLIDE_MAX ? -INFINITY : 0);
	size_t s_begin, s_end, divisor = 0;

	window_taps(ox, args->stride[2], args->pad_begin[2], args->dilation[2], args->kernel[2],
		    args->width, &s_begin, &s_end);
	for (size_t q = row->q_begin; q < row->q_end; q++) {
		for (size_t r = row->r_begin; r < row->r_end; r++) {
			const float *line = slide_line(row, q, r);
			const size_t tap = (q * args->kernel[1] + r) * args->kernel[2];

			for (size_t s = s_begin; s < s_end; s++) {
				const float x = line[ox * args->stride[2] + s * args->dilation[2] -
						     args->pad_begin[2]];

				value = slide_tap(what, args, value,
						  what == SLIDE_CONV ? row->weights[tap + s] : 0,
						  vf_set(x));
			}
		}
	}
	if (what == SLIDE_SUM)
		divisor = row->divides * slide_counted(args, ox, 2, args->width);
	return slide_finish(what, row, value, divisor)[0];
}

/* @n <= VW elements that are @stride (1 or 2) apart; none behind the last is read. */
VEC_INLINE vf slide_load(const float *from, const size_t stride, size_t n)
{
	if (stride == 1)
		return n == VW ? vf_load(from) : vf_load_partial(from, n);
	if (2 * n <= VW)
		return __builtin_shufflevector(vf_load_partial(from, 2 * n - 1), (vf){0},
					       VEC_EVEN);
	return __builtin_shufflevector(vf_load(from), vf_load_partial(from + VW, 2 * n - 1 - VW),
				       VEC_EVEN);
}

/*
 * @regs vectors of neighbouring pixels, or @n <= VW of them where @regs is 1, all of whose taps are
 * inside horizontally.
 */
VEC_INLINE void slide_vectors(const enum slide what, const size_t stride, const size_t regs,
			      const struct slide_row *row, size_t ox, size_t n, float *y)
{
	const struct cpu_window *args = row->args;
	vf value[SLIDE_REGS];

	VEC_UNROLL
	for (size_t v = 0; v < regs; v++)
		value[v] = vf_set(what == SLIDE_MAX ? -INFINITY : 0);
	for (size_t q = row->q_begin; q < row->q_end; q++) {
		for (size_t r = row->r_begin; r < row->r_end; r++) {
			const float *from =
				slide_line(row, q, r) + ox * stride - args->pad_begin[2];
			const float *weight =
				what == SLIDE_CONV
					? row->weights + (q * args->kernel[1] + r) * args->kernel[2]
					: NULL;

			for (size_t s = 0; s < args->kernel[2]; s++, from += args->dilation[2]) {
				VEC_UNROLL
				for (size_t v = 0; v < regs; v++) {
					const vf x = slide_load(from + v * VW * stride, stride,
								regs == 1 ? n : VW);

					value[v] = slide_tap(what, args, value[v],
							     what == SLIDE_CONV ? weight[s] : 0, x);
				}
			}
		}
	}
	VEC_UNROLL
	for (size_t v = 0; v < regs; v++)
		vf_store_partial(y + ox + v * VW,
				 slide_finish(what, row, value[v], row->divides * args->kernel[2]),
				 regs == 1 ? n : VW);
}

VEC_INLINE void slide_piece(const enum slide what, const size_t stride, const struct slide_row *row,
			    size_t ox, size_t end, float *y)
{
	for (; ox + SLIDE_REGS * VW <= end; ox += SLIDE_REGS * VW)
		slide_vectors(what, stride, SLIDE_REGS, row, ox, VW, y);
	for (; ox < end; ox += VW)
		slide_vectors(what, stride, 1, row, ox, window_min(VW, end - ox), y);
}

/* A row of the output, of which pixels [inner_begin, inner_end) have all taps inside. */
VEC_INLINE void slide_row(const enum slide what, const struct slide_row *row, size_t inner_begin,
			  size_t inner_end, float *y)
{
	const struct cpu_window *args = row->args;
	size_t ox = 0;

	for (; ox < inner_begin; ox++)
		y[ox] = slide_pixel(what, row, ox);
	while (ox < inner_end) {
		const size_t end = window_min(inner_end, ox + SLIDE_PIECE);

		if (args->stride[2] == 1)
			slide_piece(what, 1, row, ox, end, y);
		else
			slide_piece(what, 2, row, ox, end, y);
		ox = end;
		if (ox < inner_end)
			cpu_pause(args->pause);
	}
	for (; ox < args->out_width; ox++) {
		cpu_pause_at(args->pause, ox + 1, SLIDE_PIECE);
		y[ox] = slide_pixel(what, row, ox);
	}
}

VEC_INLINE void slide_plane(const enum slide what, const struct cpu_window *args,
			    const float *plane, const float *weights, float bias, float *y)
{
	struct slide_row row = {.args = args, .plane = plane, .weights = weights, .bias = bias};
	size_t inner_begin = 0, inner_end = 0, ignored;

	/* Where even the first and the last tap are inside. */
	if (args->stride[2] <= 2) {
		window_positions(0, args->stride[2], args->pad_begin[2], args->dilation[2],
				 args->out_width, args->width, &inner_begin, &ignored);
		window_positions(args->kernel[2] - 1, args->stride[2], args->pad_begin[2],
				 args->dilation[2], args->out_width, args->width, &ignored,
				 &inner_end);
		if (inner_end < inner_begin)
			inner_end = inner_begin;
	}
	for (row.oz = 0; row.oz < args->out_depth; row.oz++) {
		window_taps(row.oz, args->stride[0], args->pad_begin[0], args->dilation[0],
			    args->kernel[0], args->depth, &row.q_begin, &row.q_end);
		for (row.oy = 0; row.oy < args->out_height; row.oy++, y += args->out_width) {
			cpu_pause(args->pause);
			window_taps(row.oy, args->stride[1], args->pad_begin[1], args->dilation[1],
				    args->kernel[1], args->height, &row.r_begin, &row.r_end);
			if (what == SLIDE_SUM)
				row.divides = slide_counted(args, row.oz, 0, args->depth) *
					      slide_counted(args, row.oy, 1, args->height);
			slide_row(what, &row, inner_begin, inner_end, y);
		}
	}
}

void CPU_FN(conv_depthwise)(const struct cpu_window *args, size_t begin, size_t end)
{
	const size_t taps = args->kernel[0] * args->kernel[1] * args->kernel[2];
	const size_t pixels = cpu_window_out(args);

	for (size_t unit = begin; unit < end; unit++) {
		const size_t channel = unit % args->channels;
		float *y = args->y + unit * pixels;

		slide_plane(SLIDE_CONV, args, args->x + unit * cpu_window_in(args),
			    args->weights + channel * taps, args->bias ? args->bias[channel] : 0,
			    y);
		for (size_t i = 0; args->activation && i < pixels; i += CPU_PAUSE_ELEMS) {
			cpu_activate(args->activation, y + i,
				     window_min(CPU_PAUSE_ELEMS, pixels - i));
			cpu_pause(args->pause);
		}
	}
}

void CPU_FN(max_pool)(const struct cpu_window *args, size_t begin, size_t end)
{
	for (size_t unit = begin; unit < end; unit++)
		slide_plane(SLIDE_MAX, args, args->x + unit * cpu_window_in(args), NULL, 0,
			    args->y + unit * cpu_window_out(args));
}

void CPU_FN(average_pool)(const struct cpu_window *args, size_t begin, size_t end)
{
	for (size_t unit = begin; unit < end; unit++)
		slide_plane(SLIDE_SUM, args, args->x + unit * cpu_window_in(args), NULL, 0,
			    args->y + unit * cpu_window_out(args));
}

void CPU_FN(lp_pool)(const struct cpu_window *args, size_t begin, size_t end)
{
	for (size_t unit = begin; unit < end; unit++)
		slide_plane(SLIDE_LP, args, args->x + unit * cpu_window_in(args), NULL, 0,
			    args->y + unit * cpu_window_out(args));
}
