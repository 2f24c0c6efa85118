/* SPDX-License-Identifier: MIT */
/*
 * Conv with channels last
 *
 * The convolution is a matrix product with the roles exchanged: rows are output pixels, and columns
 * are output channels, which fill the vectors. Most convolutions are computed in place, see
 * conv-direct-hot.c. The remaining ones have narrow pictures, or pixels that are better copied next
 * to each other. The input of a pixel through one row of its window is contiguous, so rows are
 * gathered by copying whole runs, with zeros for padding. No gathering is needed if the window is a
 * single pixel. Weights are packed as the right operand of a product, in the order of the runs:
 * taps, then channels, one panel of out channels after the other.
 *
 * A sum begins with the bias and proceeds block by block, as in gemm-hot.c: the same for every
 * split.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "cpu/window.h"

/* Out channels from which it pays to interleave pixels for the register tile */
#define LAST_INTERLEAVE_MIN 160

_Static_assert((CPU_CONV_PIXELS + GEMM_MR) * CPU_GEMM_KC * sizeof(float) <= CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of the pixels");
_Static_assert(CPU_CONV_PIXELS % GEMM_MR == 0 && CPU_CONV_CHANNELS % GEMM_NR == 0, "whole tiles");

/* Return the channels of small groups; groups of several channels are padded to whole vectors. */
static size_t last_padded(const struct cpu_window *args)
{
	return args->group == args->channels ? args->channels : round_up(args->channels, VW);
}

size_t CPU_FN(pack_conv_last_size)(const struct cpu_window *args)
{
	const size_t taps = cpu_window_taps(args);

	if (cpu_conv_last_strips(args))
		return CPU_FN(pack_conv_strips_size)(args);
	if (cpu_conv_last_slides(args))
		return taps * last_padded(args) * (args->channels / args->group);
	return args->group * CPU_FN(pack_b_size)(args->channels / args->group * taps,
						 args->out_channels / args->group);
}

/* Units of packing: terms of a panel, or channels of a tap */
enum { LAST_PACK_DEPTH = 1024, LAST_PACK_CHANNELS = 4096 };
_Static_assert(LAST_PACK_CHANNELS % VW == 0, "whole vectors");

/* Pack a matrix [taps][channels] by out channels per group, in panels of GEMM_NR out channels. */
static size_t last_pack_panels(const struct cpu_window *args, size_t begin, size_t end, float *to)
{
	const size_t taps = cpu_window_taps(args), channels = args->channels / args->group;
	const size_t depth = taps * channels, n = args->out_channels / args->group;
	const size_t n_blocks = div_up(depth, LAST_PACK_DEPTH);
	const size_t n_panels = div_up(n, GEMM_NR);
	const size_t n_units = args->group * n_panels * n_blocks;

	for (size_t unit = begin; unit < min_size(end, n_units); unit++) {
		const size_t block = unit % n_blocks * LAST_PACK_DEPTH, panel = unit / n_blocks;
		const size_t j = panel % n_panels * GEMM_NR, group = panel / n_panels;
		const size_t until = min_size(depth, block + LAST_PACK_DEPTH);
		const float *weights = args->weights + (group * n + j) * depth;
		float *at = to + (panel * depth + block) * GEMM_NR;

		for (size_t k = block; k < until; k++) {
			const float *from = weights + k % channels * taps + k / channels;

			for (size_t i = 0; i < GEMM_NR; i++)
				*at++ = j + i < n ? from[i * depth] : 0;
		}
	}
	return n_units;
}

/* Pack small groups, tap by tap: vectors of out channels, for each channel of their groups. */
static size_t last_pack_groups(const struct cpu_window *args, size_t begin, size_t end, float *to)
{
	const size_t taps = cpu_window_taps(args), group = args->channels / args->group;
	const size_t padded = last_padded(args);
	const size_t n_blocks = div_up(padded, LAST_PACK_CHANNELS);
	const size_t n_units = taps * n_blocks;

	for (size_t unit = begin; unit < min_size(end, n_units); unit++) {
		const size_t first = unit % n_blocks * LAST_PACK_CHANNELS, tap = unit / n_blocks;
		const size_t until = min_size(padded, first + LAST_PACK_CHANNELS);
		const size_t width = group == 1 ? until - first : VW;
		float *at = to + (tap * padded + first) * group;

		for (size_t c = first; c < until; c += width)
			for (size_t k = 0; k < group; k++)
				for (size_t i = c; i < c + width; i++)
					*at++ = i < args->channels
							? args->weights[(i * group + k) * taps +
									tap]
							: 0;
	}
	return n_units;
}

size_t CPU_FN(pack_conv_last)(const struct cpu_window *args, size_t begin, size_t end, float *to)
{
	if (cpu_conv_last_slides(args) && !cpu_conv_last_strips(args))
		return last_pack_groups(args, begin, end, to);
	if (!cpu_conv_last_strips(args))
		return last_pack_panels(args, begin, end, to);
	/* Strips are always small: one unit. */
	if (begin == 0 && end > 0)
		CPU_FN(pack_conv_strips)(args, to);
	return 1;
}

/* Gathered elements [begin, end) of a pixel's row of the product */
struct last_span {
	size_t begin, end;
};

/*
 * Gather the part of elements [at, at + n) of a pixel's row that is in the span. Elements before
 * @from and from @until on are padding. The others are at @x, which is the place of element @at.
 */
VEC_INLINE void last_run(const struct last_span *span, size_t at, size_t n, size_t from,
			 size_t until, const float *x, float *to)
{
	const size_t begin = at > span->begin ? at : span->begin;
	const size_t end = min_size(at + n, span->end);
	size_t first, last;

	if (begin >= end)
		return;
	first = at + from < begin ? begin : min_size(at + from, end);
	last = at + until > end ? end : at + until;
	to += begin - span->begin;
	if (first >= last) {
		window_zero(to, end - begin);
		return;
	}
	window_zero(to, first - begin);
	window_copy(to + (first - begin), x + (first - at), last - first);
	window_zero(to + (last - begin), end - last);
}

/* A pixel of the output */
struct last_pixel {
	size_t batch, oz, oy, ox;
};

/* Return true if all taps of the pixel's window are inside the picture. */
static bool last_is_inner(const struct cpu_window *args, const struct last_pixel *pixel)
{
	const size_t at[3] = {pixel->oz, pixel->oy, pixel->ox};
	const size_t limit[3] = {args->depth, args->height, args->width};

	for (unsigned int i = 0; i < 3; i++) {
		/* A position before the beginning wraps around to one beyond the end. */
		const size_t first = at[i] * args->stride[i] - args->pad_begin[i];

		if (first >= limit[i] ||
		    limit[i] - first <= (args->kernel[i] - 1) * args->dilation[i])
			return false;
	}
	return true;
}

/* Do last_look() for a pixel whose taps are all inside and whose rows of taps are contiguous. */
static void last_look_inner(const struct cpu_window *args, const struct last_pixel *pixel,
			    const float *x, const struct last_span *span, float *to)
{
	const size_t run = args->kernel[2] * (args->channels / args->group);
	const size_t iz = pixel->oz * args->stride[0] - args->pad_begin[0];
	const size_t iy = pixel->oy * args->stride[1] - args->pad_begin[1];
	const size_t ix = pixel->ox * args->stride[2] - args->pad_begin[2];
	const size_t line = args->width * args->channels;
	size_t at = 0;

	x += pixel->batch * args->channels * cpu_window_in(args) +
	     ((iz * args->height + iy) * args->width + ix) * args->channels;
	for (size_t q = 0; q < args->kernel[0]; q++) {
		const float *from = x + q * args->dilation[0] * args->height * line;

		for (size_t r = 0; r < args->kernel[1]; r++, at += run) {
			const size_t begin = at > span->begin ? at : span->begin;
			const size_t end = min_size(at + run, span->end);

			if (begin < end) {
				window_copy(to, from + (begin - at), end - begin);
				to += end - begin;
			}
			from += args->dilation[1] * line;
		}
	}
}

/* Gather one pixel's input, in the span. @x: the group's first channel of the first picture. */
static void last_look(const struct cpu_window *args, const struct last_pixel *pixel, const float *x,
		      const struct last_span *span, float *to)
{
	const size_t channels = args->channels / args->group, width = args->kernel[2];
	const size_t pixels = args->dilation[2] == 1 && args->group == 1 ? width : 1;
	/* A position before the beginning wraps around to one beyond the end. */
	const size_t ix = pixel->ox * args->stride[2] - args->pad_begin[2];
	size_t begin = 0, end = width, at = 0;

	if (pixels == width && last_is_inner(args, pixel)) {
		last_look_inner(args, pixel, x, span, to);
		return;
	}
	if (ix >= args->width || ix + (width - 1) * args->dilation[2] >= args->width)
		window_taps(pixel->ox, args->stride[2], args->pad_begin[2], args->dilation[2],
			    width, args->width, &begin, &end);
	x += pixel->batch * args->channels * cpu_window_in(args);
	for (size_t q = 0; q < args->kernel[0]; q++) {
		const size_t iz =
			pixel->oz * args->stride[0] + q * args->dilation[0] - args->pad_begin[0];

		for (size_t r = 0; r < args->kernel[1]; r++) {
			const size_t iy = pixel->oy * args->stride[1] + r * args->dilation[1] -
					  args->pad_begin[1];
			const bool inside = iz < args->depth && iy < args->height;
			/* Address of tap 0; may be outside the row, where it is not read. */
			const float *line =
				inside ? x + ((ptrdiff_t)((iz * args->height + iy) * args->width) +
					      (ptrdiff_t)ix) *
							 (ptrdiff_t)args->channels
				       : x;

			if (at + width * channels <= span->begin || at >= span->end) {
				at += width * channels;
				continue;
			}
			if (pixels == width) {
				last_run(span, at, width * channels, begin * channels,
					 inside ? end * channels : 0, line, to);
				at += width * channels;
				continue;
			}
			for (size_t s = 0; s < width; s++, at += channels)
				last_run(span, at, channels, 0,
					 inside && s >= begin && s < end ? channels : 0,
					 line + s * args->dilation[2] * args->channels, to);
		}
	}
}

static void last_next(const struct cpu_window *args, struct last_pixel *pixel)
{
	if (++pixel->ox < args->out_width)
		return;
	pixel->ox = 0;
	if (++pixel->oy < args->out_height)
		return;
	pixel->oy = 0;
	if (++pixel->oz < args->out_depth)
		return;
	pixel->oz = 0;
	pixel->batch++;
}

static struct last_pixel last_pixel_at(const struct cpu_window *args, size_t index)
{
	const size_t row = index / args->out_width, slice = row / args->out_height;

	return (struct last_pixel){
		.batch = slice / args->out_depth,
		.oz = slice % args->out_depth,
		.oy = row % args->out_height,
		.ox = index % args->out_width,
	};
}

/* Gather the rows of the product for a piece's pixels, plain or in panels of GEMM_MR. */
static void last_gather(const struct cpu_window *args, const struct cpu_conv_piece *piece,
			const float *x, const struct last_span *span, bool interleaves, float *to,
			float *rows)
{
	const size_t kb = span->end - span->begin;
	struct last_pixel pixel = last_pixel_at(args, piece->first);

	for (size_t i = 0; i < piece->n; i += GEMM_MR) {
		const size_t n = min_size(GEMM_MR, piece->n - i);
		float *row = interleaves ? rows : to;

		for (size_t j = 0; j < n; j++, row += kb) {
			last_look(args, &pixel, x, span, row);
			last_next(args, &pixel);
		}
		if (interleaves)
			CPU_FN(gemm_pack_a)(n, kb, rows, kb, 1, to);
		to += n * kb;
	}
}

/* Initialise every row of the result with the bias. */
static void last_begin(const float *bias, size_t m, size_t n, float *y, size_t y_rs)
{
	for (size_t i = 0; i < m; i++, y += y_rs) {
		if (bias)
			window_copy(y, bias, n);
		else
			window_zero(y, n);
	}
}

static void last_activate(const struct cpu_activation *activation, size_t m, size_t n, float *y,
			  size_t y_rs)
{
	if (n == y_rs) {
		cpu_activate(activation, y, m * n);
		return;
	}
	for (size_t i = 0; activation && i < m; i++, y += y_rs)
		cpu_activate(activation, y, n);
}

static void last_piece(const struct cpu_window *args, const struct cpu_conv_piece *piece,
		       float *workspace)
{
	const size_t channels = args->channels / args->group,
		     depth = cpu_window_taps(args) * channels;
	const size_t n_all = args->out_channels / args->group, y_rs = args->out_channels;
	const size_t k_end = args->k_end ? args->k_end : depth;
	const size_t n_padded = round_up(n_all, GEMM_NR);
	const size_t first_column = piece->group * n_all + piece->m_begin;
	const size_t m = piece->n, n = piece->m_end - piece->m_begin;
	const bool is_plain = cpu_window_is_plain(args), interleaves = n >= LAST_INTERLEAVE_MIN;
	const float *x = args->x + piece->group * channels;
	const float *weights = args->weights_packed + piece->group * n_padded * depth;
	float *y = args->y + piece->first * y_rs + first_column;
	float *rows = workspace + CPU_CONV_PIXELS * CPU_GEMM_KC;

	if (args->k_begin == 0)
		last_begin(args->bias ? args->bias + first_column : NULL, m, n, y, y_rs);
	for (size_t p = args->k_begin; p < k_end; p += CPU_GEMM_KC) {
		const size_t kb = min_size(CPU_GEMM_KC, k_end - p);
		const struct last_span span = {p, p + kb};
		const float *a = workspace;
		size_t a_rs = kb;

		cpu_pause(args->pause);
		if (!is_plain) {
			last_gather(args, piece, x, &span, interleaves, workspace, rows);
		} else {
			a = x + piece->first * args->channels + p;
			a_rs = args->channels;
			if (interleaves) {
				CPU_FN(gemm_pack_a)(m, kb, a, a_rs, 1, workspace);
				a = workspace;
			}
		}
		for (size_t j = 0; j < n; j += GEMM_NR) {
			const float *b = weights + (piece->m_begin + j) * depth + p * GEMM_NR;
			const size_t nr = min_size(GEMM_NR, n - j);

			cpu_pause(args->pause);
			if (interleaves)
				CPU_FN(gemm_panel)(m, nr, kb, a, b, y + j, y_rs, true);
			else
				CPU_FN(gemm_rows_panel)(m, nr, kb, a, a_rs, b, y + j, y_rs, true);
		}
	}
	if (k_end == depth)
		last_activate(args->activation, m, n, y, y_rs);
}

void CPU_FN(conv_last)(const struct cpu_window *args, size_t begin, size_t end, void *workspace)
{
	const struct cpu_window flat = cpu_conv_last_flat(args);

	if (cpu_conv_last_strips(args)) {
		CPU_FN(conv_strips)(args, begin, end, workspace);
		return;
	}
	if (cpu_conv_last_slides(args)) {
		CPU_FN(conv_groups_last)(args, begin, end);
		return;
	}
	if (cpu_conv_last_is_direct(args)) {
		CPU_FN(conv_direct)(args, begin, end);
		return;
	}
	while (begin < end) {
		const struct cpu_conv_piece piece = cpu_conv_piece(&flat, &begin, end);

		last_piece(args, &piece, workspace);
	}
}
