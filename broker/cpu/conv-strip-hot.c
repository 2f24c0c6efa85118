/* SPDX-License-Identifier: MIT */
/*
 * Conv of few channels, with channels last
 *
 * If a pixel needs little computation, the cost of edges matters: gathering each pixel's input, as
 * in conv-last-hot.c, or computing edges separately, as in conv-direct-hot.c. Here each pixel of
 * the input is copied once, with zeros for the padding beside it, so that no row has an edge. The
 * copy is made strip by strip, as many rows as stay in the cache. A window's part of a row is then
 * contiguous, and adjacent windows differ only in their start. A register tile is adjacent pixels
 * of a row by vectors of out channels, and reads the strip in place. Rows above and below the
 * picture are skipped.
 *
 * A sum is one chain that begins with the bias, taps in order and channels within a tap: the same
 * for every split.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "cpu/window.h"

/* Pixels of a register tile of one vector, and of two vectors */
#if VW == 16
enum { STRIP_PIXELS_1 = 14, STRIP_PIXELS_2 = 14 };
#else
enum { STRIP_PIXELS_1 = 14, STRIP_PIXELS_2 = 6 };
#endif

/* Floats of a strip, which stays in the first-level cache beside the weights */
enum { STRIP_FLOATS = 4096 };

_Static_assert((STRIP_FLOATS + CPU_CONV_STRIP_FLOATS) * sizeof(float) <= CPU_WORKSPACE_BYTES,
	       "the workspace holds a strip of the least height");

/* True if half a vector suffices: the next narrower level then needs no more vectors. */
#if VW == 16
#define STRIP_IS_NARROW(args) ((args)->out_channels <= VW / 2)
#define STRIP_NARROW_FN(name) CPU_FN_EXPAND(name, avx2)

size_t STRIP_NARROW_FN(pack_conv_strips_size)(const struct cpu_window *args);
void STRIP_NARROW_FN(pack_conv_strips)(const struct cpu_window *args, float *to);
void STRIP_NARROW_FN(conv_strips)(const struct cpu_window *args, size_t begin, size_t end,
				  void *workspace);
#else
#define STRIP_IS_NARROW(args) false
#define STRIP_NARROW_FN(name) CPU_FN(name)
#endif

static size_t strip_depth(const struct cpu_window *args)
{
	return args->kernel[1] * args->kernel[2] * args->channels;
}

size_t CPU_FN(pack_conv_strips_size)(const struct cpu_window *args)
{
	if (STRIP_IS_NARROW(args))
		return STRIP_NARROW_FN(pack_conv_strips_size)(args);
	return strip_depth(args) * round_up(args->out_channels, VW);
}

/* Pack panels of two vectors of out channels, the last one perhaps of one: taps, then channels. */
void CPU_FN(pack_conv_strips)(const struct cpu_window *args, float *to)
{
	const size_t taps = args->kernel[1] * args->kernel[2], depth = strip_depth(args);

	if (STRIP_IS_NARROW(args)) {
		STRIP_NARROW_FN(pack_conv_strips)(args, to);
		return;
	}
	for (size_t j = 0; j < args->out_channels; j += 2 * VW) {
		const size_t n = args->out_channels - j, width = n > VW ? 2 * VW : VW;

		for (size_t k = 0; k < depth; k++) {
			const float *from = args->weights + j * depth + k % args->channels * taps +
					    k / args->channels;

			for (size_t i = 0; i < width; i++)
				*to++ = i < n ? from[i * depth] : 0;
		}
	}
}

/* Positions of windows in a strip, or in the picture itself; distances are in floats. */
struct strip {
	size_t line;             /* between rows */
	size_t step;             /* between the windows of adjacent pixels */
	size_t row_step;         /* between the rows of a window */
	size_t n_runs, run_step; /* runs of a window's row, and the distance between them */
	size_t run;
};

/* Compute pixels of a row, with @n_rows rows of their windows from @x on, @n out channels. */
VEC_INLINE void strip_tile(const size_t pixels, const size_t nv, const struct strip *strip,
			   size_t n_rows, const float *x, const float *weights, const float *bias,
			   size_t n, float *y, size_t y_rs)
{
	const size_t step = strip->step, rest = n - (nv - 1) * VW;
	vf acc[STRIP_PIXELS_1][2], start[2] = {0};

	if (bias) {
		start[nv - 1] = vf_load_partial(bias + (nv - 1) * VW, rest);
		if (nv == 2)
			start[0] = vf_load(bias);
	}
	VEC_UNROLL
	for (size_t i = 0; i < pixels; i++) {
		acc[i][0] = start[0];
		acc[i][1] = start[1];
	}
	for (size_t r = 0; r < n_rows; r++) {
		for (size_t s = 0; s < strip->n_runs; s++) {
			const float *from = x + r * strip->row_step + s * strip->run_step;
			const float *const end = from + strip->run;

			for (; from < end; from++, weights += nv * VW) {
				vf w[2] = {0};

				VEC_UNROLL
				for (size_t v = 0; v < nv; v++)
					w[v] = vf_load(weights + v * VW);
				VEC_UNROLL
				for (size_t i = 0; i < pixels; i++) {
					const vf value = vf_set(from[i * step]);

					VEC_UNROLL
					for (size_t v = 0; v < nv; v++)
						acc[i][v] += value * w[v];
				}
			}
		}
	}
	VEC_UNROLL
	for (size_t i = 0; i < pixels; i++, y += y_rs)
		vf_store_row(nv, y, acc[i], rest);
}

typedef void strip_tile_fn(const struct strip *strip, size_t n_rows, const float *x,
			   const float *weights, const float *bias, size_t n, float *y,
			   size_t y_rs);

/* The extents are constants in each instance, so that the tile stays in registers. */
#define STRIP_INSTANCE(pixels, nv)                                                                 \
	static void strip_tile_##pixels##_##nv(const struct strip *strip, size_t n_rows,           \
					       const float *x, const float *weights,               \
					       const float *bias, size_t n, float *y, size_t y_rs) \
	{                                                                                          \
		strip_tile(pixels, nv, strip, n_rows, x, weights, bias, n, y, y_rs);               \
	}
#define STRIP_NAME(pixels, nv) strip_tile_##pixels##_##nv,

#define STRIP_FOR_6(X, nv)     X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv)
#define STRIP_FOR_14(X, nv) \
	STRIP_FOR_6(X, nv)  \
	X(7, nv) X(8, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv) X(13, nv) X(14, nv)
#if VW == 16
#define STRIP_FOR_2(X) STRIP_FOR_14(X, 2)
#else
#define STRIP_FOR_2(X) STRIP_FOR_6(X, 2)
#endif

STRIP_FOR_14(STRIP_INSTANCE, 1)
STRIP_FOR_2(STRIP_INSTANCE)

static strip_tile_fn *const strip_tiles_1[STRIP_PIXELS_1] = {STRIP_FOR_14(STRIP_NAME, 1)};
static strip_tile_fn *const strip_tiles_2[STRIP_PIXELS_2] = {STRIP_FOR_2(STRIP_NAME)};

static strip_tile_fn *strip_tile_of(size_t pixels, size_t n)
{
	if (n > VW)
		return strip_tiles_2[pixels - 1];
	return strip_tiles_1[pixels - 1];
}

/*
 * Copy the rows that windows of output rows [@oy, @oy + @n_rows) see of picture @x. Rows outside it
 * are not written.
 */
static void strip_fill(const struct cpu_window *args, const float *x, size_t oy, size_t n_rows,
		       float *to)
{
	const size_t channels = args->channels, row = args->width * channels;
	const size_t line = cpu_conv_strip_width(args) * channels;
	const size_t before = min_size(args->pad_begin[2] * channels, line);
	const size_t inside = min_size(row, line - before);
	/* A position before the beginning wraps around to one beyond the end. */
	const size_t first = oy * args->stride[1] - args->pad_begin[1];
	const size_t n = cpu_conv_strip_height(args, n_rows);

	for (size_t i = 0; i < n; i++, to += line) {
		if (first + i >= args->height)
			continue;
		window_zero(to, before);
		window_copy(to + before, x + (first + i) * row, inside);
		window_zero(to + before + inside, line - before - inside);
	}
}

/* Return true if all windows are inside the picture. */
static bool strip_is_inner(const struct cpu_window *args)
{
	return args->pad_begin[1] == 0 && args->pad_begin[2] == 0 &&
	       cpu_conv_strip_width(args) <= args->width &&
	       cpu_conv_strip_height(args, args->out_height) <= args->height;
}

/* Compute row @oy of the output, out channels [@j, @j + @n), with its windows from @x on. */
static void strip_row(const struct cpu_window *args, const struct strip *strip, const float *x,
		      size_t oy, size_t j, size_t n, float *y)
{
	const size_t most = n > VW ? STRIP_PIXELS_2 : STRIP_PIXELS_1;
	const size_t n_tiles = div_up(args->out_width, most);
	const size_t taps_row = args->kernel[2] * args->channels * (n > VW ? 2 * VW : VW);
	const float *weights = args->weights_packed + j * strip_depth(args);
	const float *bias = args->bias ? args->bias + j : NULL;
	size_t first, last;

	window_taps(oy, args->stride[1], args->pad_begin[1], args->dilation[1], args->kernel[1],
		    args->height, &first, &last);
	/* Tiles of about equal width */
	for (size_t tile = 0; tile < n_tiles; tile++) {
		const size_t ox = args->out_width * tile / n_tiles;
		const size_t pixels = args->out_width * (tile + 1) / n_tiles - ox;

		strip_tile_of(pixels, n)(strip, last - first,
					 x + first * strip->row_step + ox * strip->step,
					 weights + first * taps_row, bias, n,
					 y + ox * args->out_channels + j, args->out_channels);
	}
}

/* Compute rows [@oy, @oy + @n_rows) of one picture, whose windows are in @x. */
static void strip_rows(const struct cpu_window *args, const struct strip *strip, const float *x,
		       size_t oy, size_t n_rows, float *y)
{
	const size_t out = args->out_width * args->out_channels;

	for (size_t j = 0; j < args->out_channels; j += 2 * VW) {
		const size_t n = min_size(2 * VW, args->out_channels - j);

		for (size_t i = 0; i < n_rows; i++) {
			cpu_pause(args->pause);
			strip_row(args, strip, x + i * args->stride[1] * strip->line, oy + i, j, n,
				  y + i * out);
		}
	}
	cpu_activate(args->activation, y, n_rows * out);
}

void CPU_FN(conv_strips)(const struct cpu_window *args, size_t begin, size_t end, void *workspace)
{
	const size_t channels = args->channels, out = args->out_width * args->out_channels;
	const bool is_inner = strip_is_inner(args), is_run = args->dilation[2] == 1;
	struct strip strip = {
		.line = (is_inner ? args->width : cpu_conv_strip_width(args)) * channels,
		.step = args->stride[2] * channels,
		.n_runs = is_run ? 1 : args->kernel[2],
		.run_step = args->dilation[2] * channels,
		.run = is_run ? args->kernel[2] * channels : channels,
	};
	size_t most = 1;

	if (STRIP_IS_NARROW(args)) {
		STRIP_NARROW_FN(conv_strips)(args, begin, end, workspace);
		return;
	}
	strip.row_step = args->dilation[1] * strip.line;
	while (cpu_conv_strip_height(args, most + 1) * strip.line <= STRIP_FLOATS)
		most++;
	while (begin < end) {
		const size_t oy = begin % args->out_height;
		const size_t n = min_size(min_size(end - begin, args->out_height - oy), most);
		const float *x =
			args->x + begin / args->out_height * args->height * args->width * channels;

		if (is_inner) {
			x += oy * args->stride[1] * strip.line;
		} else {
			strip_fill(args, x, oy, n, workspace);
			x = workspace;
		}
		strip_rows(args, &strip, x, oy, n, args->y + begin * out);
		begin += n;
	}
}
