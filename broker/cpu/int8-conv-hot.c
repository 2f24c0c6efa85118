/* SPDX-License-Identifier: MIT */
/*
 * Convolution of eight-bit numbers
 *
 * As the float one (window-hot.c), a product of the weights with a matrix that nobody stores: a
 * unit's pixels are gathered block by block of the depth in the form that the register tile reads,
 * padding as the input's zero point, so that it counts for nothing. Zero points are undone as in
 * int8-gemm-hot.c; the sums of the weights' rows are kept with their packed form, and with the bias
 * and the input's zero point they become one number per out channel.
 *
 * Depthwise convolutions would waste a tile on one row: they slide, a row of output at a time, with
 * 32-bit lanes.
 */
#include "cpu/int8-level.h"

enum { I8_CONV_MC = 960 }; /* out channels whose sums fit the workspace */

_Static_assert(CPU_CONV_PIXELS % I8_NR == 0 && I8_CONV_MC % I8_MR == 0, "whole panels");

struct i8_conv_workspace {
	int32_t pixels[CPU_CONV_PIXELS * I8_KCW];
	int32_t sums[I8_CONV_MC * CPU_CONV_PIXELS];
	int32_t row_add[I8_CONV_MC], row_zero[I8_CONV_MC];
	int32_t col_sums[CPU_CONV_PIXELS];
	float row_scale[I8_CONV_MC], col_scale[I8_NR];
	uint8_t gathered[I8_GROUP][CPU_CONV_PIXELS];
};
_Static_assert(sizeof(struct i8_conv_workspace) <= CPU_WORKSPACE_BYTES, "fits");

static size_t conv_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t conv_depth(const struct cpu_window *window)
{
	return window->channels / window->group * window->kernel[1] * window->kernel[2];
}

static size_t conv_words(size_t k)
{
	return (k + I8_GROUP - 1) / I8_GROUP;
}

/* Of each group the sums of its rows, then its rows block by block. */
size_t CPU_FN(i8_pack_conv_size)(const struct cpu_window *window)
{
	return window->out_channels * (conv_words(conv_depth(window)) + 1) * sizeof(int32_t);
}

void CPU_FN(i8_pack_conv)(const struct cpu_int8_conv *conv, void *to)
{
	const struct cpu_window *window = &conv->window;
	const size_t depth = conv_depth(window), m = window->out_channels / window->group;
	const uint8_t *weights = (const uint8_t *)(const void *)window->weights;
	int32_t *words = to;

	for (size_t g = 0; g < window->group; g++, weights += m * depth) {
		CPU_FN(i8_row_sums)(m, depth, weights, depth, conv->weights_signed, words);
		words += m;
		for (size_t p = 0; p < depth; p += I8_KC)
			words += CPU_FN(i8_pack_a)(m, conv_min(I8_KC, depth - p), weights + p,
						   depth, conv->weights_signed, words);
	}
}

/* Does a pixel of the output see nothing but itself? */
static bool conv_is_plain(const struct cpu_window *w)
{
	return w->kernel[1] == 1 && w->kernel[2] == 1 && w->stride[1] == 1 && w->stride[2] == 1 &&
	       w->pad_begin[1] == 0 && w->pad_begin[2] == 0 && w->out_width == w->width &&
	       w->out_height == w->height;
}

/* Output positions [*begin, *end) of a row for which tap @tap falls inside it. */
static void conv_positions(const struct cpu_window *w, size_t tap, size_t *begin, size_t *end)
{
	const int64_t at = (int64_t)(tap * w->dilation[2]) - (int64_t)w->pad_begin[2];
	const int64_t last = (int64_t)w->width - 1 - at;

	*begin = at < 0 ? conv_min(w->out_width, ((size_t)-at + w->stride[2] - 1) / w->stride[2])
			: 0;
	*end = last < 0 ? 0 : conv_min(w->out_width, (size_t)last / w->stride[2] + 1);
	if (*end < *begin)
		*end = *begin;
}

/* One tap of one channel, seen from output pixels [first, first + n). */
static void conv_gather(const struct cpu_window *w, const uint8_t *plane, size_t tap, size_t first,
			size_t n, uint8_t pad, uint8_t *to)
{
	const size_t r = tap / w->kernel[2], s = tap % w->kernel[2];
	size_t oy = first / w->out_width, ox = first % w->out_width, from, until;

	conv_positions(w, s, &from, &until);
	while (n > 0) {
		const size_t len = conv_min(n, w->out_width - ox);
		const int64_t iy = (int64_t)(oy * w->stride[1] + r * w->dilation[1]) -
				   (int64_t)w->pad_begin[1];
		const size_t begin = from < ox ? ox : from, end = conv_min(until, ox + len);

		if (iy < 0 || iy >= (int64_t)w->height || begin >= end) {
			memset(to, pad, len);
		} else {
			const uint8_t *row =
				plane + (size_t)iy * w->width +
				(begin * w->stride[2] + s * w->dilation[2] - w->pad_begin[2]);

			memset(to, pad, begin - ox);
			if (w->stride[2] == 1)
				memcpy(to + (begin - ox), row, end - begin);
			else
				for (size_t i = begin; i < end; i++)
					to[i - ox] = row[(i - begin) * w->stride[2]];
			memset(to + (end - ox), pad, ox + len - end);
		}
		to += len;
		n -= len;
		ox = 0;
		oy++;
	}
}

static uint8_t conv_pad(const struct cpu_int8_conv *conv)
{
	return conv->x_zero.of ? *(const uint8_t *)conv->x_zero.of : 0;
}

/* Rows [p, p + kb) of the matrix that nobody stores, as panels of I8_NR pixels. */
static void conv_pack_pixels(const struct cpu_int8_conv *conv, const uint8_t *x, size_t p,
			     size_t kb, size_t first, size_t n, struct i8_conv_workspace *work)
{
	const struct cpu_window *w = &conv->window;
	const size_t taps = w->kernel[1] * w->kernel[2], kw = conv_words(kb);
	const uint8_t flip = i8_flip(conv->weights_signed, conv->x_signed);
	const bool is_plain = conv_is_plain(w);
	const uint8_t *row[I8_GROUP], *panel_row[I8_GROUP];

	for (size_t k = 0; k < kb; k += I8_GROUP) {
		for (size_t q = 0; q < I8_GROUP; q++) {
			const size_t channel = (p + k + q) / taps, tap = (p + k + q) % taps;
			const uint8_t *plane = x + channel * w->height * w->width;

			row[q] = NULL;
			if (k + q >= kb)
				continue;
			row[q] = is_plain ? plane + first : work->gathered[q];
			if (!is_plain)
				conv_gather(w, plane, tap, first, n, conv_pad(conv),
					    work->gathered[q]);
		}
		for (size_t j = 0; j < n; j += I8_NR) {
			for (size_t q = 0; q < I8_GROUP; q++)
				panel_row[q] = row[q] ? row[q] + j : NULL;
			CPU_FN(i8_pack_group)
			(panel_row, conv_min(I8_NR, n - j), conv->x_signed, flip,
			 work->pixels + j * kw + k / I8_GROUP * I8_NR);
		}
	}
}

static float conv_scale(const struct cpu_int8_conv *conv, size_t channel)
{
	const struct cpu_requantize *q = conv->requantize;

	return q->b.of[0] * q->a.of[q->a.each ? channel : 0] / q->y[0];
}

/* What is known of out channels [channel, channel + m) beforehand. */
static void conv_rows(const struct cpu_int8_conv *conv, size_t channel, size_t m,
		      const int32_t *row_sums, struct i8_finish *finish,
		      struct i8_conv_workspace *work)
{
	const uint8_t flip = i8_flip(conv->weights_signed, conv->x_signed);
	const uint32_t x_zero = (uint32_t)i8_zero(&conv->x_zero, 0, conv->x_signed, flip);
	const uint32_t depth = (uint32_t)conv_depth(&conv->window);
	uint32_t any = 0;

	for (size_t i = 0; i < m; i++) {
		const uint32_t zero = (uint32_t)i8_zero(&conv->weights_zero, channel + i,
							conv->weights_signed, 0);
		const uint32_t bias = conv->bias ? (uint32_t)conv->bias[channel + i] : 0;

		any |= zero;
		work->row_zero[i] = (int32_t)-zero;
		work->row_add[i] =
			(int32_t)(bias - x_zero * (uint32_t)row_sums[i] + depth * zero * x_zero);
		if (conv->requantize)
			work->row_scale[i] = conv_scale(conv, channel + i);
	}
	*finish = (struct i8_finish){.row_add = work->row_add};
	if (any) {
		finish->n_outer = 1;
		finish->row[0] = work->row_zero;
	}
	if (conv->requantize) {
		CPU_FN(i8_finish_bytes)(conv->requantize, finish);
		finish->row_scale = work->row_scale;
	}
}

static void conv_piece(const struct cpu_int8_conv *conv, const struct cpu_conv_piece *piece,
		       struct i8_conv_workspace *work)
{
	const struct cpu_window *w = &conv->window;
	const size_t depth = conv_depth(w), pixels = w->out_height * w->out_width;
	const size_t batch = piece->batch, group = piece->group, first = piece->first, n = piece->n;
	const size_t m = w->out_channels / w->group, in_channels = w->channels / w->group;
	const uint8_t *x = (const uint8_t *)(const void *)w->x +
			   (batch * w->channels + group * in_channels) * w->height * w->width;
	const int32_t *packed = (const int32_t *)(const void *)w->weights_packed +
				group * m * (conv_words(depth) + 1);
	const size_t at = (batch * w->out_channels + group * m) * pixels + first;
	struct i8_finish finish;

	for (size_t i = piece->m_begin; i < piece->m_end; i += I8_CONV_MC) {
		const size_t mb = conv_min(I8_CONV_MC, piece->m_end - i);
		int32_t *y = work->sums;
		size_t y_rs = CPU_CONV_PIXELS;

		conv_rows(conv, group * m + i, mb, packed + i, &finish, work);
		if (!conv->requantize) {
			y = (int32_t *)(void *)w->y + at + i * pixels;
			y_rs = pixels;
		}
		if (finish.n_outer > 0)
			memset(work->col_sums, 0, sizeof(work->col_sums));
		for (size_t p = 0; p == 0 || p < depth; p += I8_KC) {
			const size_t kb = conv_min(I8_KC, depth - p), kw = conv_words(kb);
			const int32_t *a = packed + m + m * (p / I8_GROUP) + i * kw;

			cpu_pause(w->pause);
			conv_pack_pixels(conv, x, p, kb, first, n, work);
			for (size_t j = 0; j < n; j += I8_NR) {
				cpu_pause(w->pause);
				if (finish.n_outer > 0)
					CPU_FN(i8_column_sums)
				(kw, work->pixels + j * kw, conv->weights_signed,
				 work->col_sums + j);
				finish.col[0] = work->col_sums + j;
				if (conv->requantize) {
					finish.y = (uint8_t *)(void *)w->y + at + i * pixels + j;
					finish.y_rs = pixels;
				}
				CPU_FN(i8_panel)
				(mb, conv_min(I8_NR, n - j), kw, a, conv->weights_signed, false, 0,
				 0, work->pixels + j * kw, y + j, y_rs, p > 0,
				 p + kb == depth ? &finish : NULL);
			}
		}
	}
}

typedef uint8_t i8_lanes_u __attribute__((vector_size(VW)));
typedef int8_t i8_lanes_s __attribute__((vector_size(VW)));

/* acc[] += (row[] - zero) * weight; whole vectors, so all of them are padded to one. */
VEC_INLINE void slide_add(const bool x_signed, size_t n, const uint8_t *row, int32_t zero,
			  int32_t weight, int32_t *acc)
{
	const vi by = vi_set(weight), minus = vi_set(zero);

	for (size_t j = 0; j < n; j += VW) {
		i8_lanes_u bytes;
		vi value;

		memcpy(&bytes, row + j, VW);
		value = x_signed ? __builtin_convertvector((i8_lanes_s)bytes, vi)
				 : __builtin_convertvector(bytes, vi);
		vi_store(acc + j, vi_add(vi_load(acc + j), vi_mul(value - minus, by)));
	}
}

/* One piece of a channel that is convolved on its own. */
static void slide_piece(const struct cpu_int8_conv *conv, size_t batch, size_t channel,
			size_t first, struct i8_conv_workspace *work)
{
	const struct cpu_window *w = &conv->window;
	const size_t taps = w->kernel[1] * w->kernel[2], pixels = w->out_height * w->out_width;
	const size_t n = conv_min(CPU_CONV_PIXELS, pixels - first);
	const uint8_t *plane = (const uint8_t *)(const void *)w->x +
			       (batch * w->channels + channel) * w->height * w->width;
	const uint8_t *weights = (const uint8_t *)(const void *)w->weights + channel * taps;
	const int32_t x_zero = i8_zero(&conv->x_zero, 0, conv->x_signed, 0);
	const int32_t zero = i8_zero(&conv->weights_zero, channel, conv->weights_signed, 0);
	const size_t at = (batch * w->out_channels + channel) * pixels + first;
	struct i8_finish finish = {0};
	int32_t *acc = work->sums;

	for (size_t j = 0; j < CPU_CONV_PIXELS; j++)
		acc[j] = conv->bias ? conv->bias[channel] : 0;
	for (size_t tap = 0; tap < taps; tap++) {
		const int32_t weight = i8_value(weights[tap], conv->weights_signed) - zero;

		conv_gather(w, plane, tap, first, n, conv_pad(conv), work->gathered[0]);
		if (conv->x_signed)
			slide_add(true, n, work->gathered[0], x_zero, weight, acc);
		else
			slide_add(false, n, work->gathered[0], x_zero, weight, acc);
	}
	if (!conv->requantize) {
		memcpy((int32_t *)(void *)w->y + at, acc, n * sizeof(*acc));
		return;
	}
	CPU_FN(i8_finish_bytes)(conv->requantize, &finish);
	for (size_t j = 0; j < n; j += VW) {
		const vf value = __builtin_convertvector(vi_load(acc + j), vf) *
				 vf_set(conv_scale(conv, channel));

		i8_store((uint8_t *)(void *)w->y + at + j,
			 vi_add(i8_round(value, vf_set(finish.low), vf_set(finish.high)),
				vi_set(finish.zero)),
			 conv_min(VW, n - j));
	}
}

void CPU_FN(i8_conv)(const struct cpu_int8_conv *conv, size_t begin, size_t end, void *workspace)
{
	const struct cpu_window *w = &conv->window;
	const size_t pixels = w->out_height * w->out_width;
	const size_t pieces = (pixels + CPU_CONV_PIXELS - 1) / CPU_CONV_PIXELS;

	if (cpu_conv_is_depthwise(w)) {
		for (size_t unit = begin; unit < end; unit++)
			for (size_t piece = 0; piece < pieces; piece++) {
				cpu_pause(w->pause);
				slide_piece(conv, unit / w->channels, unit % w->channels,
					    piece * CPU_CONV_PIXELS, workspace);
			}
		return;
	}
	while (begin < end) {
		const struct cpu_conv_piece piece = cpu_conv_piece(w, &begin, end);

		conv_piece(conv, &piece, workspace);
	}
}
