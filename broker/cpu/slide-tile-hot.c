/* SPDX-License-Identifier: MIT */
/*
 * Depthwise Conv with channels last, by tiles of pixels
 *
 * As in slide-last-hot.c, a vector is neighbouring channels of one pixel. With many channels, the
 * input rows under a row of windows exceed the first-level cache, so such a convolution is bound by
 * loads. Here windows of 3 or 5 columns, 1 or 2 apart, are computed for a tile of neighbouring
 * pixels, of two rows where there are enough registers. Each pixel of the input is loaded once for
 * all windows of the tile, and each weight once for a row of windows.
 *
 * A tile at an edge skips columns outside the input. If the pixels or channels are not a multiple
 * of the tile, the last tile computes some again. Every sum adds its taps in order, whatever the
 * tile, so the result is the same for every split.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/window.h"

/* rows of a tile; its pixels are TILE_PIXELS_ODD or TILE_PIXELS_EVEN */
#if VW == 16
enum { TILE_ROWS = 2 };
#else
enum { TILE_ROWS = 1 };
#endif
enum { TILE_PIXELS_ODD = 7, TILE_PIXELS_EVEN = 8, TILE_MOST = 8 };

/* channels between two polls */
enum { TILE_PIECE = 1 << 12 };

/* Rows of the output computed together. */
struct tile_rows {
	const struct cpu_window *args;
	const float *x; /* the picture */
	float *y;       /* the first row */
	size_t n;       /* 1..TILE_ROWS */
	size_t oz, oy;
	size_t q_begin, q_end; /* taps inside along depth */
	/* rows of the input that are inside, counted from tap 0 of the first row */
	size_t t_begin, t_end;
};

/* Apply one row of the input. @from: column 0. @weights: the taps for each row of the tile. */
VEC_INLINE void tile_row(const size_t width, const size_t stride, const size_t pixels,
			 const bool has_0, const bool has_1, size_t channels, uint32_t columns,
			 const float *from, const float *const weights[2],
			 vf acc[TILE_ROWS][TILE_MOST])
{
	vf w[2][5];

	VEC_UNROLL
	for (size_t s = 0; s < width; s++) {
		if (has_0)
			w[0][s] = vf_load(weights[0] + s * channels);
		if (has_1)
			w[1][s] = vf_load(weights[1] + s * channels);
	}
	VEC_UNROLL
	for (size_t j = 0; j < (pixels - 1) * stride + width; j++) {
		vf x;

		if (!(columns >> j & 1))
			continue;
		x = vf_load(from + j * channels);
		VEC_UNROLL
		for (size_t i = 0; i < pixels; i++) {
			if (j < i * stride || j - i * stride >= width)
				continue;
			if (has_0)
				acc[0][i] += w[0][j - i * stride] * x;
			if (has_1)
				acc[TILE_ROWS - 1][i] += w[1][j - i * stride] * x;
		}
	}
}

/*
 * Compute VW channels from @c on of the pixels from @ox on. @columns: bits of the columns inside.
 */
VEC_INLINE void tile_vector(const size_t width, const size_t stride, const size_t pixels,
			    const struct tile_rows *rows, size_t ox, size_t c, uint32_t columns)
{
	const struct cpu_window *args = rows->args;
	const size_t channels = args->channels, line = args->width * channels;
	const size_t height = args->kernel[1], tap_row = width * channels;
	float *y = rows->y + ox * channels + c;
	const vf start = args->bias ? vf_load(args->bias + c) : (vf){0};
	vf acc[TILE_ROWS][TILE_MOST];

	VEC_UNROLL
	for (size_t i = 0; i < TILE_ROWS * pixels; i++)
		acc[i / pixels][i % pixels] = start;
	for (size_t q = rows->q_begin; q < rows->q_end; q++) {
		const size_t iz =
			rows->oz * args->stride[0] + q * args->dilation[0] - args->pad_begin[0];
		/* Column 0 may be outside the row; it is not read then. */
		const float *from = rows->x +
				    ((ptrdiff_t)((iz * args->height + rows->oy * args->stride[1] +
						  rows->t_begin - args->pad_begin[1]) *
						 args->width) +
				     (ptrdiff_t)(ox * stride) - (ptrdiff_t)args->pad_begin[2]) *
					    (ptrdiff_t)channels +
				    c;
		const float *taps = args->weights_packed + q * height * tap_row + c;

		for (size_t t = rows->t_begin; t < rows->t_end; t++, from += line) {
			const size_t t_1 = t - args->stride[1];
			const bool has_0 = t < height;
			const bool has_1 = TILE_ROWS > 1 && rows->n > 1 && t_1 < height;
			const float *const weights[2] = {taps + (has_0 ? t : 0) * tap_row,
							 taps + (has_1 ? t_1 : 0) * tap_row};

			if (has_0 && has_1)
				tile_row(width, stride, pixels, true, TILE_ROWS > 1, channels,
					 columns, from, weights, acc);
			else if (has_0)
				tile_row(width, stride, pixels, true, false, channels, columns,
					 from, weights, acc);
			else if (has_1)
				tile_row(width, stride, pixels, false, TILE_ROWS > 1, channels,
					 columns, from, weights, acc);
		}
	}
	VEC_UNROLL
	for (size_t i = 0; i < pixels; i++)
		vf_store(y + i * channels, acc[0][i]);
	if (TILE_ROWS == 1 || rows->n == 1)
		return;
	y += args->out_width * channels;
	VEC_UNROLL
	for (size_t i = 0; i < pixels; i++)
		vf_store(y + i * channels, acc[TILE_ROWS - 1][i]);
}

/* Return bits of the @n columns under the windows from @ox on that are inside. */
static uint32_t tile_columns(const struct cpu_window *args, size_t ox, size_t n)
{
	uint32_t columns = 0;

	/* A column before the beginning wraps around to a number beyond the end. */
	for (size_t j = 0; j < n; j++)
		if (ox * args->stride[2] + j - args->pad_begin[2] < args->width)
			columns |= 1u << j;
	return columns;
}

VEC_INLINE void tile_pass(const size_t width, const size_t stride, const size_t pixels,
			  const struct tile_rows *rows)
{
	const struct cpu_window *args = rows->args;

	for (size_t at = 0; at < args->out_width; at += pixels) {
		const size_t ox = min_size(at, args->out_width - pixels);
		const uint32_t columns = tile_columns(args, ox, (pixels - 1) * stride + width);

		for (size_t at_c = 0; at_c < args->channels; at_c += VW) {
			cpu_pause_at(args->pause, at_c, TILE_PIECE);
			tile_vector(width, stride, pixels, rows, ox,
				    min_size(at_c, args->channels - VW), columns);
		}
	}
}

typedef void tile_pass_fn(const struct tile_rows *rows);

#define TILE_INSTANCE(width, stride, pixels)                                              \
	static void tile_pass_##width##_##stride##_##pixels(const struct tile_rows *rows) \
	{                                                                                 \
		tile_pass(width, stride, pixels, rows);                                   \
	}

TILE_INSTANCE(3, 1, 7)
TILE_INSTANCE(3, 1, 8)
TILE_INSTANCE(3, 2, 7)
TILE_INSTANCE(3, 2, 8)
TILE_INSTANCE(5, 1, 7)
TILE_INSTANCE(5, 1, 8)
TILE_INSTANCE(5, 2, 7)
TILE_INSTANCE(5, 2, 8)

/* Return the function for the shape of @args; NULL if there is none. */
static tile_pass_fn *tile_pass_of(const struct cpu_window *args)
{
	/* indices: window of 3 or 5; stride of 1 or 2; tile of 7 or 8 pixels */
	static tile_pass_fn *const passes[2][2][2] = {
		{{tile_pass_3_1_7, tile_pass_3_1_8}, {tile_pass_3_2_7, tile_pass_3_2_8}},
		{{tile_pass_5_1_7, tile_pass_5_1_8}, {tile_pass_5_2_7, tile_pass_5_2_8}},
	};
	const size_t width = args->kernel[2], stride = args->stride[2], n = args->out_width;

	if (args->channels < VW || n < TILE_PIXELS_ODD || (width != 3 && width != 5) ||
	    stride > 2 || args->dilation[1] != 1 || args->dilation[2] != 1)
		return NULL;
	/* Choose the tile whose last one computes fewer pixels again. */
	return passes[width == 5][stride == 2]
		     [n > TILE_PIXELS_ODD &&
		      round_up(n, TILE_PIXELS_EVEN) <= round_up(n, TILE_PIXELS_ODD)];
}

bool CPU_FN(conv_tiles_last)(const struct cpu_window *args, size_t begin, size_t end)
{
	const size_t out = args->out_width * args->channels, stride = args->stride[1];
	tile_pass_fn *const pass = tile_pass_of(args);
	struct tile_rows rows = {.args = args};

	if (!pass)
		return false;
	for (; begin < end; begin += rows.n) {
		const size_t slice = begin / args->out_height;

		cpu_pause(args->pause);
		rows.oy = begin % args->out_height;
		rows.oz = slice % args->out_depth;
		rows.n = min_size(min_size(TILE_ROWS, end - begin), args->out_height - rows.oy);
		rows.x = args->x + slice / args->out_depth * args->channels * cpu_window_in(args);
		rows.y = args->y + begin * out;
		window_taps(rows.oz, args->stride[0], args->pad_begin[0], args->dilation[0],
			    args->kernel[0], args->depth, &rows.q_begin, &rows.q_end);
		window_taps(rows.oy, stride, args->pad_begin[1], 1,
			    (rows.n - 1) * stride + args->kernel[1], args->height, &rows.t_begin,
			    &rows.t_end);
		pass(&rows);
		for (size_t i = 0; args->activation && i < rows.n * out; i += CPU_PAUSE_ELEMS) {
			cpu_activate(args->activation, rows.y + i,
				     min_size(CPU_PAUSE_ELEMS, rows.n * out - i));
			cpu_pause(args->pause);
		}
	}
	return true;
}
