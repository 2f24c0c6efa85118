/* SPDX-License-Identifier: MIT */
/*
 * MaxPool of any type, with the positions of the maxima: pixel by pixel
 *
 * All types are compared as float64, which represents them exactly. The maximum is the first of
 * equal values in the order of the input; a NaN is never the maximum.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/window.h"

/* Pixels, and taps, between two cpu_pause() calls */
enum { POOL_PIECE = 1 << 10, POOL_TAPS = 1 << 12 };

VEC_INLINE double pool_load(const enum cpu_type type, const void *x, size_t i)
{
	if (type == CPU_I8)
		return ((const int8_t *)x)[i];
	if (type == CPU_U8)
		return ((const uint8_t *)x)[i];
	if (type == CPU_F64)
		return ((const double *)x)[i];
	return (double)((const float *)x)[i];
}

VEC_INLINE void pool_store(const enum cpu_type type, void *y, size_t i, double value)
{
	if (type == CPU_I8)
		((int8_t *)y)[i] = (int8_t)value;
	else if (type == CPU_U8)
		((uint8_t *)y)[i] = (uint8_t)value;
	else if (type == CPU_F64)
		((double *)y)[i] = value;
	else
		((float *)y)[i] = (float)value;
}

/* Return the input position of tap @tap of output position @o along dimension @d. */
static size_t pool_at(const struct cpu_window *window, unsigned int d, size_t o, size_t tap)
{
	return o * window->stride[d] + tap * window->dilation[d] - window->pad_begin[d];
}

/* Return the ONNX index of pixel @pixel of a channel, which is in row-major order. */
static size_t pool_index(const struct cpu_pool *args, size_t pixel)
{
	const struct cpu_window *window = &args->window;
	const size_t x = pixel % window->width, row = pixel / window->width;

	if (!args->is_column_major)
		return pixel;
	return (x * window->height + row % window->height) * window->depth + row / window->height;
}

/* Call cpu_pause() once enough @work was done. */
static inline void pool_look(const struct cpu_window *window, size_t *work)
{
	if (*work >= POOL_TAPS) {
		cpu_pause(window->pause);
		*work = 0;
	}
}

/* Return output pixel @o (depth, height, width) of the channel that begins at element @first. */
VEC_INLINE double pool_pixel(const enum cpu_type type, const struct cpu_pool *args, size_t first,
			     const size_t o[3], size_t *work, size_t *ret_index)
{
	const struct cpu_window *window = &args->window;
	const size_t limit[3] = {window->depth, window->height, window->width};
	double most = type == CPU_I8 ? -128 : type == CPU_U8 ? 0 : -INFINITY;
	size_t begin[3], end[3], best = SIZE_MAX;

	for (unsigned int i = 0; i < 3; i++)
		window_taps(o[i], window->stride[i], window->pad_begin[i], window->dilation[i],
			    window->kernel[i], limit[i], &begin[i], &end[i]);
	for (size_t q = begin[0]; q < end[0] && begin[1] < end[1]; q++) {
		for (size_t r = begin[1]; r < end[1]; r++) {
			const size_t row = pool_at(window, 0, o[0], q) * window->height +
					   pool_at(window, 1, o[1], r);

			for (size_t s = begin[2]; s < end[2];) {
				const size_t until = min_size(end[2], s + POOL_TAPS);

				*work += until - s;
				for (; s < until; s++) {
					const size_t pixel =
						row * window->width + pool_at(window, 2, o[2], s);
					const double x = pool_load(type, args->x, first + pixel);

					if (best == SIZE_MAX || x > most)
						best = pixel;
					if (x > most)
						most = x;
				}
				pool_look(window, work);
			}
			*work += 1;
			pool_look(window, work);
		}
	}
	*work += 1;
	pool_look(window, work);
	*ret_index = best == SIZE_MAX ? first : first + pool_index(args, best);
	return most;
}

VEC_INLINE void pool_channel(const enum cpu_type type, const struct cpu_pool *args, size_t unit)
{
	const struct cpu_window *window = &args->window;
	const size_t first = unit * cpu_window_in(window);
	const size_t pixels = cpu_window_out(window), out = unit * pixels;
	size_t o[3] = {0, 0, 0}, work = 0, index;

	for (size_t i = 0; i < pixels; i++) {
		cpu_pause_at(window->pause, i, POOL_PIECE);
		pool_store(type, args->y, out + i, pool_pixel(type, args, first, o, &work, &index));
		if (args->indices)
			args->indices[out + i] = (int64_t)index;
		if (++o[2] == window->out_width) {
			o[2] = 0;
			if (++o[1] == window->out_height) {
				o[1] = 0;
				o[0]++;
			}
		}
	}
}

void CPU_FN(max_pool_any)(const struct cpu_pool *args, size_t begin, size_t end)
{
	for (size_t unit = begin; unit < end; unit++) {
		if (args->type == CPU_I8)
			pool_channel(CPU_I8, args, unit);
		else if (args->type == CPU_U8)
			pool_channel(CPU_U8, args, unit);
		else if (args->type == CPU_F64)
			pool_channel(CPU_F64, args, unit);
		else
			pool_channel(CPU_F32, args, unit);
	}
}
