/* SPDX-License-Identifier: MIT */
/*
 * Eight-bit convolution
 *
 * Like the float convolution (window-hot.c), this one is a product of the weights with a matrix
 * that is never stored as a whole. A unit's pixels are arranged block by block of the depth in the
 * form that the register tile reads (int8-pixels-hot.c). Padding is the input's zero point, so that
 * it contributes nothing. Zero points are corrected as in int8-gemm-hot.c. The sums of the weights'
 * rows are stored with their packed form; with the bias and the input's zero point they become one
 * number per out channel. If all panels of a piece fit into the first-level cache, they are
 * arranged before the first is multiplied.
 *
 * Where it pays, vectors hold out channels instead (int8-channels-hot.c): see
 * cpu_int8_conv_by_channels(). Then everything that some rows of the output see is arranged once,
 * as words that are read in place.
 */
#include "cpu/int8-conv.h"
#include "cpu/window.h"
#include "util/number.h"

enum {
	I8_CONV_MC = 480,         /* out channels whose sums fit the workspace */
	I8_CONV_FLAT = 4 * I8_MR, /* out channels per pass over all panels */
	/* words per row packed between two cpu_pause() calls */
	I8_CONV_PACK_WORDS = 1 << 10,
};

_Static_assert(CPU_CONV_PIXELS % I8_NR == 0 && I8_CONV_MC % I8_MR == 0, "whole panels");
_Static_assert(CPU_CONV_CHANNELS % I8_MR == 0, "whole register tiles");
_Static_assert(CPU_INT8_CONV_CHANNELS % I8_NR == 0, "whole vectors");

struct i8_conv_workspace {
	int32_t panel[I8_KCW * I8_NR];
	int32_t sums[I8_CONV_MC * CPU_CONV_PIXELS];
	int32_t row_add[I8_CONV_MC], row_zero[I8_CONV_MC];
	int32_t col_sums[CPU_CONV_PIXELS];
	float row_scale[I8_CONV_MC];
	struct i8_arrange arrange;
};
_Static_assert(sizeof(struct i8_conv_workspace) <= CPU_WORKSPACE_BYTES, "fits");

static size_t conv_taps(const struct cpu_window *window)
{
	return window->channels / window->group * window->kernel[1] * window->kernel[2];
}

/* Return @m per-channel values, rounded up to whole vectors. */
static size_t conv_padded(size_t m)
{
	return round_up(m, VW);
}

/*
 * The packed form of each group has the sums of its rows, then its rows block by block. By
 * channels, it has I8_NR rows at a time; the last rows are padded with zeros to whole vectors.
 */
size_t CPU_FN(i8_pack_conv_size)(const struct cpu_window *window)
{
	const size_t m = window->out_channels / window->group;
	const size_t rows = cpu_int8_conv_by_channels(window) ? conv_padded(m) : m;

	return window->group * rows * (i8_depth_of(window).words + 1) * sizeof(int32_t);
}

/* Return word @k of one row of the weights. */
static int32_t conv_word(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
			 const uint8_t *row, size_t k)
{
	const struct cpu_window *window = &conv->window;
	const size_t taps = window->kernel[1] * window->kernel[2];
	uint32_t word = 0;

	for (size_t q = 0; q < I8_GROUP; q++) {
		size_t channel, tap;

		if (!i8_depth_at(window, depth, k, q, &channel, &tap))
			continue;
		if (I8_GROUP == 4)
			word |= (uint32_t)row[channel * taps + tap] << 8 * q;
		else
			word |= ((uint32_t)i8_value(row[channel * taps + tap],
						    conv->weights_signed) &
				 0xffff)
				<< 16 * q;
	}
	return (int32_t)word;
}

/* Pack words [begin, end) of rows [first, first + n). Rows from @m on are zeros. */
static void conv_pack_words(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
			    const uint8_t *weights, size_t begin, size_t end, size_t first,
			    size_t n, size_t m, int32_t *to)
{
	const size_t taps = conv_taps(&conv->window);

	for (size_t k = begin; k < end; k++) {
		cpu_pause_at(conv->window.pause, k, I8_CONV_PACK_WORDS);
		for (size_t row = first; row < first + n; row++)
			*to++ = row < m ? conv_word(conv, depth, weights + row * taps, k) : 0;
	}
}

/* Pack the existing rows of [first, first + rows) of a group. */
static void conv_pack_rows(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
			   const uint8_t *weights, size_t first, size_t rows, int32_t *to)
{
	const struct cpu_window *window = &conv->window;
	const size_t taps = conv_taps(window), m = window->out_channels / window->group;
	const bool by_channels = cpu_int8_conv_by_channels(window);
	const size_t padded = by_channels ? conv_padded(m) : m;
	const size_t n = min_size(rows, padded - first);

	memset(to + first, 0, n * sizeof(*to));
	CPU_FN(i8_row_sums)
	(min_size(n, m - first), taps, weights + first * taps, taps, conv->weights_signed,
	 to + first);
	to += padded;
	if (by_channels) {
		conv_pack_words(conv, depth, weights, 0, depth->words, first, n, m,
				to + first * depth->words);
		return;
	}
	for (size_t p = 0; p < depth->words; p += depth->block) {
		const size_t end = min_size(depth->words, p + depth->block);

		conv_pack_words(conv, depth, weights, p, end, first, n, m,
				to + p * m + first * (end - p));
	}
}

size_t CPU_FN(i8_pack_conv)(const struct cpu_int8_conv *conv, size_t begin, size_t end, void *to)
{
	const struct cpu_window *window = &conv->window;
	const bool by_channels = cpu_int8_conv_by_channels(window);
	const struct i8_depth depth = i8_depth_of(window);
	const size_t taps = conv_taps(window), m = window->out_channels / window->group;
	const size_t rows = by_channels ? I8_NR : I8_MR, blocks = div_up(m, rows);
	const size_t group_words = (by_channels ? conv_padded(m) : m) * (depth.words + 1);
	const uint8_t *weights = (const uint8_t *)(const void *)window->weights;

	for (size_t unit = begin; unit < min_size(end, window->group * blocks); unit++) {
		const size_t group = unit / blocks;

		cpu_pause(window->pause);
		conv_pack_rows(conv, &depth, weights + group * m * taps, unit % blocks * rows, rows,
			       (int32_t *)to + group * group_words);
	}
	return window->group * blocks;
}

/*
 * Store the negated zero points of out channels [channel, channel + m), padded to whole vectors.
 * Return: true if any is not 0.
 */
static bool conv_zeros(const struct cpu_int8_conv *conv, size_t channel, size_t m, int32_t *to)
{
	const struct cpu_zeros *zeros = &conv->weights_zero;
	const int32_t sign = conv->weights_signed ? 0x80 : 0;
	const uint8_t *bytes = zeros->of;
	uint32_t any = 0;

	if (!bytes || !zeros->each) {
		const int32_t zero = i8_zero(zeros, 0, conv->weights_signed, 0);

		for (size_t i = 0; i < m; i += VW)
			vi_store(to + i, vi_set(-zero));
		return zero != 0;
	}
	bytes += channel;
	for (size_t i = 0; i < m; i++) {
		const int32_t zero = (bytes[i] ^ sign) - sign;

		any |= (uint32_t)zero;
		to[i] = -zero;
	}
	memset(to + m, 0, (conv_padded(m) - m) * sizeof(*to));
	return any != 0;
}

/* Store the combined scales in whole vectors. Return: true if all magnitudes are below 1. */
static bool conv_scales(const struct cpu_requantize *q, size_t channel, size_t m, float *to)
{
	const vf b = vf_set(q->b.of[0]), y = vf_set(q->y[0]), one = vf_set(1);
	vi larger = {0};

	for (size_t i = 0; i < m; i += VW) {
		const vf a = q->a.each ? vf_load_partial(q->a.of + channel + i, min_size(VW, m - i))
				       : vf_set(q->a.of[0]);
		const vf scale = b * a / y;

		larger |= ~((vi)(scale < one) & (vi)(scale > -one));
		vf_store(to + i, scale);
	}
	return !vi_any(larger);
}

/*
 * Compute the corrections of out channels [channel, channel + m), in vectors of channels, since a
 * channel may have few pixels. Return: true if the sums need any correction or conversion.
 */
static bool conv_rows(const struct cpu_int8_conv *conv, size_t channel, size_t m,
		      const int32_t *row_sums, struct i8_finish *finish,
		      struct i8_conv_workspace *work)
{
	const uint8_t flip = i8_flip(conv->weights_signed, conv->x_signed);
	const vi x_zero = vi_set(i8_zero(&conv->x_zero, 0, conv->x_signed, flip));
	const vi depth = vi_set((int32_t)conv_taps(&conv->window));
	const bool any = conv_zeros(conv, channel, m, work->row_zero);
	const float *bias = (const float *)(const void *)conv->bias;
	vi any_add = {0};

	for (size_t i = 0; i < m; i += VW) {
		const size_t n = min_size(VW, m - i);
		const vi sums = (vi)vf_load_partial((const float *)(const void *)row_sums + i, n);
		const vi of_zeros = vi_mul(depth, vi_load(work->row_zero + i));
		vi add = vi_sub((vi){0}, vi_mul(x_zero, vi_add(sums, of_zeros)));

		if (bias)
			add = vi_add(add, (vi)vf_load_partial(bias + channel + i, n));
		any_add |= add;
		vi_store(work->row_add + i, add);
	}
	*finish = (struct i8_finish){.row_add = work->row_add};
	if (any) {
		finish->n_outer = 1;
		finish->row[0] = work->row_zero;
	}
	if (conv->requantize) {
		finish->is_scaled_down = conv_scales(conv->requantize, channel, m, work->row_scale);
		CPU_FN(i8_finish_bytes)(conv->requantize, finish);
		finish->row_scale = work->row_scale;
	}
	return conv->requantize || any || vi_any(any_add != 0);
}

static struct i8_pixels conv_pixels(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
				    const struct cpu_conv_piece *piece)
{
	const struct cpu_window *w = &conv->window;
	const size_t plane = piece->batch * w->channels + piece->group * depth->channels;

	return (struct i8_pixels){
		.conv = conv,
		.depth = depth,
		.x = (const uint8_t *)(const void *)w->x + plane * w->height * w->width,
		.first = piece->first,
		.n = piece->n,
	};
}

/* One group's part of a piece: its out channels and its pixels */
struct conv_part {
	const struct cpu_int8_conv *conv;
	size_t m;              /* out channels of the group */
	size_t channel;        /* the group's first out channel */
	const int32_t *packed; /* the group's packed weights: sums, then words */
	size_t at;             /* output index of the first channel's first pixel */
	size_t pixels;         /* output stride between channels */
};

static struct conv_part conv_part_of(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
				     const struct cpu_conv_piece *piece)
{
	const struct cpu_window *w = &conv->window;
	const size_t pixels = w->out_height * w->out_width;
	const size_t m = w->out_channels / w->group, channel = piece->group * m;

	return (struct conv_part){
		.conv = conv,
		.m = m,
		.channel = channel,
		.packed = (const int32_t *)(const void *)w->weights_packed +
			  channel * (depth->words + 1),
		.at = (piece->batch * w->out_channels + channel) * pixels + piece->first,
		.pixels = pixels,
	};
}

static void conv_deep(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
		      const struct cpu_conv_piece *piece, struct i8_conv_workspace *work)
{
	const struct conv_part part = conv_part_of(conv, depth, piece);
	const struct i8_pixels of = conv_pixels(conv, depth, piece);
	const size_t n = piece->n, pixels = part.pixels;
	struct i8_finish finish;

	for (size_t i = piece->m_begin; i < piece->m_end; i += I8_CONV_MC) {
		const size_t mb = min_size(I8_CONV_MC, piece->m_end - i);
		const bool lacks =
			conv_rows(conv, part.channel + i, mb, part.packed + i, &finish, work);
		const size_t at = part.at + i * pixels;
		int32_t *y = work->sums;
		size_t y_rs = CPU_CONV_PIXELS;

		if (!conv->requantize) {
			y = (int32_t *)(void *)conv->window.y + at;
			y_rs = pixels;
		}
		if (finish.n_outer > 0)
			memset(work->col_sums, 0, sizeof(work->col_sums));
		for (size_t p = 0; p < depth->words; p += depth->block) {
			const size_t kw = min_size(depth->block, depth->words - p);
			const int32_t *a = part.packed + part.m + part.m * p + i * kw;
			const bool is_last = p + kw == depth->words;

			cpu_pause(conv->window.pause);
			CPU_FN(i8_arrange_block)(&of, p, kw, &work->arrange);
			for (size_t j = 0; j < n; j += I8_NR) {
				cpu_pause(conv->window.pause);
				CPU_FN(i8_arrange_panel)
				(&of, p, kw, j, &work->arrange, work->panel);
				if (finish.n_outer > 0)
					CPU_FN(i8_column_sums)
				(kw, work->panel, conv->weights_signed, work->col_sums + j);
				finish.col[0] = work->col_sums + j;
				if (conv->requantize) {
					finish.y = (uint8_t *)(void *)conv->window.y + at + j;
					finish.y_rs = pixels;
				}
				CPU_FN(i8_panel)
				(mb, min_size(I8_NR, n - j), kw, a, conv->weights_signed, false, 0,
				 0, work->panel, y + j, y_rs, p > 0,
				 is_last && lacks ? &finish : NULL);
			}
		}
	}
}

/* Compute out channels [i, i + m) of a part, the rows of @finish, for all of its panels' pixels. */
static void conv_flat_rows(const struct conv_part *part, const struct i8_depth *depth, size_t i,
			   size_t m, size_t n, const struct i8_finish *finish,
			   struct i8_conv_workspace *work)
{
	const struct cpu_int8_conv *conv = part->conv;
	const size_t kw = depth->words, pixels = part->pixels, at = part->at + i * pixels;
	const int32_t *a = part->packed + part->m + i * kw;
	int32_t *const y = conv->requantize ? NULL : (int32_t *)(void *)conv->window.y + at;
	struct i8_finish of_panel;

	cpu_pause(conv->window.pause);
	if (finish)
		of_panel = *finish;
	for (size_t j = 0; j < n; j += I8_NR) {
		if (finish) {
			of_panel.col[0] = work->col_sums + j;
			of_panel.y = (uint8_t *)(void *)conv->window.y + at + j;
			of_panel.y_rs = pixels;
		}
		CPU_FN(i8_panel)
		(m, min_size(I8_NR, n - j), kw, a, conv->weights_signed, false, 0, 0,
		 work->panel + j * kw, y ? y + j : NULL, pixels, false, finish ? &of_panel : NULL);
	}
}

/*
 * Compute a piece whose panels all fit into the first-level cache. A few out channels at a time see
 * all pixels, and write long rows.
 */
static void conv_flat(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
		      const struct cpu_conv_piece *piece, struct i8_conv_workspace *work)
{
	const struct conv_part part = conv_part_of(conv, depth, piece);
	const struct i8_pixels of = conv_pixels(conv, depth, piece);
	const size_t n = piece->n, kw = depth->words;
	bool has_sums = false;

	cpu_pause(conv->window.pause);
	CPU_FN(i8_arrange_block)(&of, 0, kw, &work->arrange);
	for (size_t j = 0; j < n; j += I8_NR)
		CPU_FN(i8_arrange_panel)(&of, 0, kw, j, &work->arrange, work->panel + j * kw);
	for (size_t i = piece->m_begin; i < piece->m_end; i += I8_CONV_FLAT) {
		const size_t mb = min_size(I8_CONV_FLAT, piece->m_end - i);
		struct i8_finish finish;
		const bool lacks =
			conv_rows(conv, part.channel + i, mb, part.packed + i, &finish, work);

		if (finish.n_outer > 0 && !has_sums) {
			memset(work->col_sums, 0, sizeof(work->col_sums));
			for (size_t j = 0; j < n; j += I8_NR)
				CPU_FN(i8_column_sums)
			(kw, work->panel + j * kw, conv->weights_signed, work->col_sums + j);
			has_sums = true;
		}
		conv_flat_rows(&part, depth, i, mb, n, lacks ? &finish : NULL, work);
	}
}

static void conv_piece(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
		       const struct cpu_conv_piece *piece, struct i8_conv_workspace *work)
{
	if (div_up(piece->n, I8_NR) * depth->words <= I8_KCW)
		conv_flat(conv, depth, piece, work);
	else
		conv_deep(conv, depth, piece, work);
}

/* Compute a piece, divided where its pixels require it. */
static void conv_pieces(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
			struct cpu_conv_piece piece, struct i8_conv_workspace *work)
{
	const size_t width = conv->window.out_width, end = piece.first + piece.n;
	struct i8_pixels pixels = conv_pixels(conv, depth, &piece);

	if (CPU_FN(i8_arrange_fits)(&pixels)) {
		conv_piece(conv, depth, &piece, work);
		return;
	}
	/* The span of two long rows may be too large for the slab: compute each row by itself. */
	for (; piece.first < end; piece.first += piece.n) {
		piece.n = min_size(end - piece.first, width - piece.first % width);
		conv_piece(conv, depth, &piece, work);
	}
}

/* ---- By channels ---- */

/* Units [begin, end) of one matrix: for each part of the out channels, its rows in that range */
struct conv_rows {
	size_t batch, group;
	size_t begin, end;
	struct cpu_int8_conv_cut cut;
};

/* Arranged rows [first, last) of the output */
struct conv_band {
	const struct cpu_int8_conv *conv;
	const struct i8_depth *depth;
	const struct i8_arrange *arrange;
	size_t first, last;
	bool skips;     /* skip kernel rows that see only padding, which is zero */
	size_t sums_rs; /* stride between rows of the pixels' sums */
};

/* Set the words that row @oy sees. Return: the row's first place in the slab. */
static const int32_t *conv_row(const struct conv_band *band, size_t oy,
			       struct i8_channels *channels)
{
	const struct cpu_window *w = &band->conv->window;
	const struct i8_slab *slab = &band->arrange->found;
	const size_t row_words = band->depth->row_words;
	const int64_t above = (int64_t)(oy * w->stride[1]) - (int64_t)w->pad_begin[1];
	size_t begin = 0, end = w->kernel[1];

	if (band->skips)
		window_taps(oy, w->stride[1], w->pad_begin[1], w->dilation[1], w->kernel[1],
			    w->height, &begin, &end);
	channels->words = band->arrange->words + begin * row_words;
	channels->n_words = (end - begin) * row_words;
	channels->n_skipped = band->depth->plane_words - channels->n_words;
	channels->weights += begin * row_words * min_size(conv_padded(channels->m), I8_NR);
	return band->arrange->slab + I8_SLAB_BEFORE + (size_t)(above - slab->row) * slab->width;
}

static void conv_pixel_sums(const struct conv_band *band, struct i8_channels channels,
			    int32_t *sums)
{
	const struct cpu_window *w = &band->conv->window;

	for (size_t row = band->first; row < band->last; row++, sums += band->sums_rs) {
		const int32_t *pixels = conv_row(band, row, &channels);

		CPU_FN(i8_channels_sums)
		(&channels, band->conv->weights_signed, w->out_width, pixels, sums);
	}
}

/* Compute the units' rows among the arranged rows, part by part. */
static void conv_rows_band(const struct conv_band *band, const struct conv_rows *rows,
			   struct i8_conv_workspace *work)
{
	const struct cpu_int8_conv *conv = band->conv;
	const struct cpu_window *w = &conv->window;
	const size_t pixels = w->out_height * w->out_width, parts = rows->cut.parts;
	const size_t m = w->out_channels / w->group, channel = rows->group * m;
	const int32_t *packed = (const int32_t *)(const void *)w->weights_packed +
				rows->group * conv_padded(m) * (band->depth->words + 1);
	struct i8_finish finish;
	bool has_sums = false;

	for (size_t i = 0; i < m; i += I8_NR) {
		const size_t part = i / rows->cut.part_channels;
		const size_t from = (rows->begin + parts - 1 - part) / parts;
		const size_t until = min_size((rows->end + parts - 1 - part) / parts, band->last);
		const struct i8_channels channels = {
			.planes = band->depth->planes,
			.plane = band->arrange->found.plane,
			.weights = packed + conv_padded(m) + i * band->depth->words,
			.m = min_size(I8_NR, m - i),
			.y = w->y,
			.y_rs = pixels,
			.pause = w->pause,
		};
		size_t row = from > band->first ? from : band->first;
		bool lacks;

		if (row >= until)
			continue;
		lacks = conv_rows(conv, channel + i, channels.m, packed + i, &finish, work);
		if (finish.n_outer > 0 && !has_sums) {
			conv_pixel_sums(band, channels, work->sums);
			has_sums = true;
		}
		for (; row < until; row++) {
			struct i8_channels of = channels;
			const int32_t *at = conv_row(band, row, &of);

			of.finish = lacks ? &finish : NULL;
			finish.col[0] = work->sums + (row - band->first) * band->sums_rs;
			CPU_FN(i8_channels_row)
			(&of, conv->weights_signed, w->out_width, at,
			 (rows->batch * w->out_channels + channel + i) * pixels +
				 row * w->out_width);
		}
	}
}

static void conv_rows_of(const struct cpu_int8_conv *conv, const struct i8_depth *depth,
			 const struct conv_rows *rows, struct i8_conv_workspace *work)
{
	const uint8_t flip = i8_flip(conv->weights_signed, conv->x_signed);
	const size_t width = conv->window.out_width;
	const size_t end = (rows->end - 1) / rows->cut.parts + 1;
	struct conv_band band = {
		.conv = conv,
		.depth = depth,
		.arrange = &work->arrange,
		.first = rows->begin / rows->cut.parts,
		.skips = i8_zero(&conv->x_zero, 0, conv->x_signed, flip) == 0,
		.sums_rs = round_up(width, I8_NR),
	};
	size_t n = min_size(end - band.first, I8_CONV_MC * CPU_CONV_PIXELS / band.sums_rs);

	while (band.first < end) {
		struct cpu_conv_piece piece = {.batch = rows->batch, .group = rows->group};
		struct i8_pixels of;

		n = min_size(n, end - band.first);
		piece.first = band.first * width;
		piece.n = n * width;
		of = conv_pixels(conv, depth, &piece);
		/* One row always fits, see cpu_int8_conv_by_channels(). */
		if (!CPU_FN(i8_arrange_rows)(&of, &work->arrange)) {
			n = (n + 1) / 2;
			continue;
		}
		band.last = band.first + n;
		conv_rows_band(&band, rows, work);
		band.first = band.last;
	}
}

static void conv_by_channels(const struct cpu_int8_conv *conv, size_t begin, size_t end,
			     struct i8_conv_workspace *work)
{
	const struct i8_depth depth = i8_depth_whole(&conv->window);
	const struct cpu_int8_conv_cut cut = cpu_int8_conv_cut(&conv->window);
	const size_t units = cut.parts * conv->window.out_height;

	while (begin < end) {
		const size_t matrix = begin / units, first = matrix * units;
		const struct conv_rows rows = {
			.batch = matrix / conv->window.group,
			.group = matrix % conv->window.group,
			.begin = begin - first,
			.end = min_size(end - first, units),
			.cut = cut,
		};

		conv_rows_of(conv, &depth, &rows, work);
		begin = first + rows.end;
	}
}

void CPU_FN(i8_conv)(const struct cpu_int8_conv *conv, size_t begin, size_t end, void *workspace)
{
	const struct i8_depth depth = i8_depth_of(&conv->window);

	if (cpu_int8_conv_by_channels(&conv->window)) {
		conv_by_channels(conv, begin, end, workspace);
		return;
	}
	while (begin < end) {
		const struct cpu_conv_piece piece = cpu_conv_piece(&conv->window, &begin, end);

		conv_pieces(conv, &depth, piece, workspace);
	}
}
