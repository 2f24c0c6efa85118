/* SPDX-License-Identifier: MIT */
/*
 * Depthwise Conv and pooling of float64
 *
 * The kernels go tap by tap: each tap adds its view of the input to a whole row of the output, or
 * compares it. Windows are clipped to the input.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-double.h"
#include "cpu/vec.h"
#include "cpu/window.h"

enum slide { SLIDE_CONV, SLIDE_MAX, SLIDE_SUM, SLIDE_LP };

/* pixels of a row that stay in the first-level cache during all taps */
enum { SLIDE_PIXELS = 1 << 10 };

/* cost of a tap beside its pixels, and of raising a pixel to a power; in pixels */
enum { SLIDE_TAP_COST = 16, SLIDE_POWER_COST = 32 };

/* A row of a plane of the output. */
struct slide_row {
	const struct cpu_window *args;
	const double *plane, *weights; /* weights: SLIDE_CONV only */
	double bias;
	size_t oz, oy;
	size_t q_begin, q_end, r_begin, r_end; /* taps inside along depth and height */
};

VEC_INLINE double slide_tap(const enum slide what, uint32_t p, double value, double weight,
			    double x)
{
	if (what == SLIDE_CONV)
		return d_muladd(weight, x, value);
	if (what == SLIDE_MAX)
		return d_larger(x, value);
	if (what == SLIDE_SUM)
		return value + x;
	return p == 1   ? value + __builtin_fabs(x)
	       : p == 2 ? d_muladd(x, x, value)
			: value + pow(__builtin_fabs(x), p);
}

/* Like slide_tap(), for vectors; SLIDE_LP: p up to 2. */
VEC_INLINE vd slide_tap_vector(const enum slide what, uint32_t p, vd value, double weight, vd x)
{
	if (what == SLIDE_CONV)
		return value + vd_set(weight) * x;
	if (what == SLIDE_MAX)
		return vd_larger(x, value);
	if (what == SLIDE_SUM)
		return value + x;
	return p == 1 ? value + vd_abs(x) : value + x * x;
}

/* Apply a tap to @n pixels of y; its input elements are @stride apart. */
VEC_INLINE void slide_add(const enum slide what, uint32_t p, double weight, const double *x,
			  size_t stride, size_t n, double *y)
{
	size_t i = 0;

	if (stride == 1 && (what != SLIDE_LP || p <= 2))
		for (; i + VD <= n; i += VD)
			vd_store(y + i,
				 slide_tap_vector(what, p, vd_load(y + i), weight, vd_load(x + i)));
	for (; i < n; i++)
		y[i] = slide_tap(what, p, y[i], weight, x[i * stride]);
}

/* Compute the results of pixels [ox, ox + n) from the sums over their taps. */
VEC_INLINE void slide_finish(const enum slide what, const struct slide_row *row, size_t ox,
			     size_t n, double *y)
{
	const struct cpu_window *args = row->args;
	const struct window_inner inner = window_find_inner(args);
	const size_t counted = what != SLIDE_SUM
				       ? 0
				       : window_counted(args, row->oz, 0, args->depth) *
						 window_counted(args, row->oy, 1, args->height);

	for (size_t i = 0; i < n; i++) {
		if (what == SLIDE_CONV) {
			y[i] += row->bias;
		} else if (what == SLIDE_SUM) {
			const bool is_inner = ox + i >= inner.begin && ox + i < inner.end;
			const size_t taps =
				counted * (is_inner ? args->kernel[2]
						    : window_counted(args, ox + i, 2, args->width));

			y[i] /= taps > 1 ? (double)taps : 1;
		} else if (what == SLIDE_LP && args->p == 2) {
			y[i] = sqrt(y[i]);
		} else if (what == SLIDE_LP && args->p > 2) {
			y[i] = pow(y[i], 1.0 / args->p);
		}
	}
}

/* Return the cost of an element, relative to an addition. */
VEC_INLINE size_t slide_cost(const enum slide what, const struct cpu_window *args)
{
	return what == SLIDE_LP && args->p > 2 ? SLIDE_POWER_COST : 1;
}

/* Add @more to @work; call cpu_pause() each time that CPU_PAUSE_ELEMS have come together. */
VEC_INLINE void slide_look(const struct cpu_window *args, size_t *work, size_t more)
{
	*work += more;
	if (*work >= CPU_PAUSE_ELEMS) {
		cpu_pause(args->pause);
		*work = 0;
	}
}

/* Apply tap @s of each row of the windows to pixels [ox, ox + n). */
VEC_INLINE void slide_taps(const enum slide what, const struct slide_row *row, size_t s, size_t ox,
			   size_t n, double *y, size_t *work)
{
	const struct cpu_window *args = row->args;
	const size_t stride = args->stride[2];
	const size_t cost = slide_cost(what, args);
	size_t begin, end;

	window_positions(s, stride, args->pad_begin[2], args->dilation[2], args->out_width,
			 args->width, &begin, &end);
	begin = begin < ox ? ox : begin;
	end = min_size(end, ox + n);
	if (begin >= end || row->r_begin >= row->r_end) {
		/*
		 * The tap is inside for no pixel: strides pass the row's end, or the tap lies in
		 * the padding.
		 */
		slide_look(args, work, SLIDE_TAP_COST);
		return;
	}
	for (size_t q = row->q_begin; q < row->q_end; q++) {
		const size_t z =
			row->oz * args->stride[0] + q * args->dilation[0] - args->pad_begin[0];

		for (size_t r = row->r_begin; r < row->r_end; r++) {
			const size_t iy = row->oy * args->stride[1] + r * args->dilation[1] -
					  args->pad_begin[1];
			const size_t ix =
				begin * stride + s * args->dilation[2] - args->pad_begin[2];
			const size_t tap = (q * args->kernel[1] + r) * args->kernel[2] + s;

			slide_add(what, args->p, what == SLIDE_CONV ? row->weights[tap] : 0,
				  row->plane + (z * args->height + iy) * args->width + ix, stride,
				  end - begin, y + begin);
			slide_look(args, work, (end - begin) * cost + SLIDE_TAP_COST);
		}
	}
}

VEC_INLINE void slide_row(const enum slide what, const struct slide_row *row, double *y,
			  size_t *work)
{
	const struct cpu_window *args = row->args;
	const size_t cost = slide_cost(what, args);
	size_t begin, end;

	for (size_t ox = 0; ox < args->out_width; ox += SLIDE_PIXELS) {
		const size_t n = min_size(SLIDE_PIXELS, args->out_width - ox);

		for (size_t i = ox; i < ox + n; i++)
			y[i] = what == SLIDE_MAX ? -INFINITY : 0;
		window_taps_of(ox, n, args->stride[2], args->pad_begin[2], args->dilation[2],
			       args->kernel[2], args->width, &begin, &end);
		for (size_t s = begin; s < end; s++)
			slide_taps(what, row, s, ox, n, y, work);
		slide_finish(what, row, ox, n, y + ox);
		slide_look(args, work, n * cost);
	}
}

VEC_INLINE void slide_planes(const enum slide what, const struct cpu_window_f64 *args, size_t begin,
			     size_t end)
{
	const struct cpu_window *window = &args->window;
	const size_t taps = window->kernel[0] * window->kernel[1] * window->kernel[2];
	size_t work = 0;

	for (size_t unit = begin; unit < end; unit++) {
		const size_t channel = unit % window->channels;
		double *y = args->y + unit * cpu_window_out(window);
		struct slide_row row = {.args = window,
					.plane = args->x + unit * cpu_window_in(window)};

		if (what == SLIDE_CONV) {
			row.weights = args->weights + channel * taps;
			row.bias = args->bias ? args->bias[channel] : 0;
		}
		for (row.oz = 0; row.oz < window->out_depth; row.oz++) {
			window_taps(row.oz, window->stride[0], window->pad_begin[0],
				    window->dilation[0], window->kernel[0], window->depth,
				    &row.q_begin, &row.q_end);
			for (row.oy = 0; row.oy < window->out_height;
			     row.oy++, y += window->out_width) {
				window_taps(row.oy, window->stride[1], window->pad_begin[1],
					    window->dilation[1], window->kernel[1], window->height,
					    &row.r_begin, &row.r_end);
				slide_row(what, &row, y, &work);
			}
		}
	}
}

void CPU_FN(conv_depthwise_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end)
{
	slide_planes(SLIDE_CONV, args, begin, end);
}

void CPU_FN(max_pool_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end)
{
	slide_planes(SLIDE_MAX, args, begin, end);
}

void CPU_FN(average_pool_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end)
{
	slide_planes(SLIDE_SUM, args, begin, end);
}

void CPU_FN(lp_pool_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end)
{
	slide_planes(SLIDE_LP, args, begin, end);
}
