/* SPDX-License-Identifier: MIT */
/*
 * The input of an eight-bit convolution, as panels of words
 *
 * A row of a panel is one word of the depth as its pixels see it. Rows of one plane read the same
 * bytes through one tap after the other. Therefore the plane's bytes that any row reads are
 * converted to words once, with padding around them, in a slab. A panel row then consists of runs
 * of the slab, which differ between rows only in their offset. Padding is the input's zero point,
 * which cancels out. Each panel is copied from the slab just before it is multiplied, so that it
 * stays in the first-level cache.
 *
 * A convolution without a window needs no slab. If taps are so far apart that the slab would not
 * fit, bytes are gathered row by row.
 */
#include "cpu/int8-conv.h"
#include "cpu/int8-words.h"
#include "cpu/window.h"

/* Return true if each output pixel depends only on the input pixel at its position. */
static bool pixels_are_plain(const struct cpu_window *w)
{
	return w->kernel[1] == 1 && w->kernel[2] == 1 && w->stride[1] == 1 && w->stride[2] == 1 &&
	       w->pad_begin[1] == 0 && w->pad_begin[2] == 0 && w->out_width == w->width &&
	       w->out_height == w->height;
}

static size_t slab_clamp(int64_t value, size_t most)
{
	return value < 0 ? 0 : min_size((size_t)value, most);
}

/* Find the place of the slab. Return: false if a block of the depth does not fit. */
static bool slab_find(const struct i8_pixels *p, struct i8_slab *ret)
{
	const struct cpu_window *w = &p->conv->window;
	const size_t last = p->first + p->n - 1;
	const size_t oy = p->first / w->out_width, rows = last / w->out_width - oy;
	/* A single row needs only the given columns. */
	const size_t ox = rows == 0 ? p->first % w->out_width : 0;
	const size_t columns = (rows == 0 ? last % w->out_width : w->out_width - 1) - ox;
	const size_t taps = p->depth->by_taps ? p->depth->row_words * I8_GROUP : w->kernel[2];
	/* Planes of which a block may have words */
	const size_t planes =
		min_size(p->depth->planes, (p->depth->block - 1) / p->depth->plane_words + 2);

	ret->width = columns * w->stride[2] + (taps - 1) * w->dilation[2] + 1;
	ret->rows = rows * w->stride[1] + (w->kernel[1] - 1) * w->dilation[1] + 1;
	/* None of the three values exceeds 2^63. */
	if (ret->width > I8_SLAB_ROW || ret->rows > I8_SLAB_WORDS ||
	    planes * ret->rows * ret->width > I8_SLAB_WORDS)
		return false;
	ret->plane = ret->rows * ret->width;
	ret->row = (int64_t)(oy * w->stride[1]) - (int64_t)w->pad_begin[1];
	ret->column = (int64_t)(ox * w->stride[2]) - (int64_t)w->pad_begin[2];
	ret->inside_begin = slab_clamp(-ret->column, ret->width);
	ret->inside_end = slab_clamp((int64_t)w->width - ret->column, ret->width);
	ret->step = w->dilation[2] * (p->depth->by_taps ? I8_GROUP : 1);
	return true;
}

/* Find where the pixels see their first word in the slab, vector by vector. */
static void slab_find_parts(const struct i8_pixels *p, const struct i8_slab *slab,
			    struct i8_arrange *work)
{
	const struct cpu_window *w = &p->conv->window;
	const size_t stride = w->stride[2];
	const size_t first_row = p->first / w->out_width;
	size_t row = first_row, ox = p->first % w->out_width, n = p->n;
	const size_t column = (size_t)(slab->column + (int64_t)w->pad_begin[2]);
	struct i8_part *part = work->parts;
	size_t v = 0, lane = 0;

	memset(work->n_parts, 0, sizeof(work->n_parts));
	while (n > 0) {
		const size_t len = min_size(min_size(n, w->out_width - ox), VW - lane);
		const struct window_lanes lanes =
			window_lanes_of(((1u << len) - 1) << lane, stride);
		const size_t at =
			(row - first_row) * w->stride[1] * slab->width + ox * stride - column;

		/* Lane 0 may be before the slab, but is not read then. */
		*part++ =
			(struct i8_part){(ptrdiff_t)(at - lane * stride), lanes.bits, lanes.reads};
		if (work->n_parts[v]++ == 0)
			work->first_part[v] = (uint8_t)(part - work->parts - 1);
		n -= len;
		lane += len;
		ox += len;
		if (lane == VW) {
			lane = 0;
			v++;
		}
		if (ox == w->out_width) {
			ox = 0;
			row++;
		}
	}
}

static uint8_t pixels_pad(const struct cpu_int8_conv *conv)
{
	return conv->x_zero.of ? *(const uint8_t *)conv->x_zero.of : 0;
}

/* Return a word whose first @n elements are @byte and whose others are 0. */
static int32_t pixels_word(uint8_t byte, size_t n, bool is_signed, uint8_t flip)
{
	uint8_t bytes[16];
	int32_t words[16];
	const uint8_t *rows[I8_GROUP];

	memset(bytes, byte, sizeof(bytes));
	for (size_t q = 0; q < I8_GROUP; q++)
		rows[q] = q < n ? bytes : NULL;
	i8_words_16(rows, 16, is_signed, flip, words);
	return words[0];
}

/* Fill @n words. May write up to a vector more. */
VEC_INLINE void slab_fill(int32_t *to, size_t n, int32_t word)
{
	for (size_t i = 0; i < n; i += VW)
		vi_store(to + i, vi_set(word));
}

/*
 * Convert rows of bytes, @between apart, to a row of places; only the first @n_rows elements of a
 * word exist. May write up to 16 words more.
 */
VEC_INLINE void slab_words(const uint8_t *row, size_t between, const size_t n_rows, size_t n,
			   bool is_signed, uint8_t flip, int32_t *to)
{
	for (size_t i = 0; i < n; i += 16) {
		const uint8_t *from[I8_GROUP];

		VEC_UNROLL
		for (size_t q = 0; q < I8_GROUP; q++)
			from[q] = q < n_rows ? row + q * between + i : NULL;
		i8_words_16(from, n - i, is_signed, flip, to + i);
	}
}

/* Convert the part of a plane that the pixels see to words. */
static void slab_make(const struct i8_pixels *p, const struct i8_slab *slab, size_t plane,
		      struct i8_arrange *work, int32_t *to)
{
	const struct cpu_window *w = &p->conv->window;
	const struct i8_depth *d = p->depth;
	const bool is_signed = p->conv->x_signed;
	const uint8_t flip = i8_flip(p->conv->weights_signed, is_signed);
	const uint8_t pad = pixels_pad(p->conv);
	const size_t area = w->height * w->width;
	const size_t channel = d->by_taps ? plane : plane * I8_GROUP;
	const size_t there = d->by_taps ? I8_GROUP : min_size(I8_GROUP, d->channels - channel);
	const int32_t pad_word = pixels_word(pad, there, is_signed, flip);
	const size_t begin = slab->inside_begin, end = slab->inside_end;

	for (size_t i = 0; i < slab->rows; i++, to += slab->width) {
		const int64_t iy = slab->row + (int64_t)i;
		const uint8_t *line;

		if (iy < 0 || iy >= (int64_t)w->height || begin >= end) {
			slab_fill(to, slab->width, pad_word);
			continue;
		}
		line = p->x + channel * area + (size_t)iy * w->width;
		line += (int64_t)begin + slab->column;
		if (d->by_taps) {
			/* Adjacent taps are the same row, shifted. */
			memset(work->row, pad, begin);
			memcpy(work->row + begin, line, end - begin);
			memset(work->row + end, pad, slab->width - end);
			/* The last places are used only as later elements of words. */
			slab_words(work->row, w->dilation[2], I8_GROUP,
				   slab->width - (I8_GROUP - 1) * w->dilation[2], is_signed, flip,
				   to);
			continue;
		}
		if (begin > 0)
			slab_fill(to, begin, pad_word);
		if (there == I8_GROUP)
			slab_words(line, area, I8_GROUP, end - begin, is_signed, flip, to + begin);
		else
			slab_words(line, area, there, end - begin, is_signed, flip, to + begin);
		if (end < slab->width)
			slab_fill(to + end, slab->width - end, pad_word);
	}
}

/* Load what a part sees at @from; other lanes are 0. @stride is 1, 2, or 0 for @any_stride. */
VEC_INLINE vi slab_load(const int32_t *from, const struct i8_part *part, vi lanes,
			const size_t stride, size_t any_stride)
{
	const struct window_lanes of = {part->bits, part->reads};

	from += part->offset;
#if VW < 16
	/* The margins around the slab allow whole vectors to be read. */
	if (stride == 1)
		return vi_load(from) & lanes;
	if (stride == 2)
		return __builtin_shufflevector(vi_load(from), vi_load(from + VW), VEC_EVEN) & lanes;
#endif
	return (vi)window_load((const float *)from, of, stride, any_stride);
}

/*
 * Store what a vector of pixels sees through each of @n words, as part of a panel. @masked: words
 * have elements that are not taps.
 */
VEC_INLINE void slab_look(const struct i8_part *part, size_t n_parts, const struct i8_word *words,
			  size_t n, const int32_t *slab, const size_t stride, size_t any_stride,
			  const bool masked, int32_t *to)
{
	const vi first = vi_of_lanes(part[0].bits), second = vi_of_lanes(part[1].bits);

	for (size_t t = 0; t < n; t++) {
		const int32_t *from = slab + words[t].offset;
		vi value = {0};

		if (n_parts > 0)
			value = slab_load(from, &part[0], first, stride, any_stride);
		if (n_parts > 1)
			value |= slab_load(from, &part[1], second, stride, any_stride);
		for (size_t i = 2; i < n_parts; i++)
			value |= slab_load(from, &part[i], vi_of_lanes(part[i].bits), stride,
					   any_stride);
		if (masked)
			value &= words[t].mask;
		vi_store(to + t * I8_NR, value);
	}
}

VEC_INLINE void slab_look_at(const struct i8_arrange *work, size_t v, size_t n, const size_t stride,
			     size_t any_stride, int32_t *to)
{
	const struct i8_part *part = work->parts + work->first_part[v];
	const size_t n_parts = work->n_parts[v];
	const int32_t *slab = work->slab + I8_SLAB_BEFORE;

	if (work->is_masked)
		slab_look(part, n_parts, work->words, n, slab, stride, any_stride, true, to);
	else if (n_parts == 1)
		slab_look(part, 1, work->words, n, slab, stride, any_stride, false, to);
	else if (n_parts == 2)
		slab_look(part, 2, work->words, n, slab, stride, any_stride, false, to);
	else
		slab_look(part, n_parts, work->words, n, slab, stride, any_stride, false, to);
}

/* Find the slab offsets and masks of words [k, k + n). */
static void slab_find_words(const struct i8_pixels *p, const struct i8_slab *slab, size_t k,
			    size_t n, struct i8_word *to)
{
	const struct cpu_window *w = &p->conv->window;
	const struct i8_depth *d = p->depth;
	size_t row = k % d->plane_words / d->row_words, at = k % d->row_words, plane = 0;

	for (size_t t = 0; t < n; t++) {
		const size_t left = d->by_taps ? w->kernel[2] - at * I8_GROUP : I8_GROUP;

		to[t].offset = plane + row * w->dilation[1] * slab->width + at * slab->step;
		to[t].mask = left < I8_GROUP ? (int32_t)((1u << 32 / I8_GROUP * left) - 1) : -1;
		if (++at < d->row_words)
			continue;
		at = 0;
		if (++row < w->kernel[1])
			continue;
		row = 0;
		plane += slab->plane;
	}
}

/* Pack the words of a block for the panel from pixel @j on. */
static void panel_of_slab(const struct i8_pixels *p, size_t kw, size_t j,
			  const struct i8_arrange *work, int32_t *to)
{
	const size_t stride = p->conv->window.stride[2];

	for (size_t half = 0; half < 2; half++, to += VW) {
		const size_t v = j / VW + half;

		if (stride == 1)
			slab_look_at(work, v, kw, 1, 1, to);
		else if (stride == 2)
			slab_look_at(work, v, kw, 2, 2, to);
		else
			slab_look_at(work, v, kw, 0, stride, to);
	}
}

/* Gather one tap of one channel for pixels [first, first + n). */
static void gather(const struct i8_pixels *p, const uint8_t *plane, size_t tap, size_t first,
		   size_t n, uint8_t *to)
{
	const struct cpu_window *w = &p->conv->window;
	const uint8_t pad = pixels_pad(p->conv);
	const size_t r = tap / w->kernel[2], s = tap % w->kernel[2];
	size_t oy = first / w->out_width, ox = first % w->out_width, from, until;

	window_positions(s, w->stride[2], w->pad_begin[2], w->dilation[2], w->out_width, w->width,
			 &from, &until);
	while (n > 0) {
		const size_t len = min_size(n, w->out_width - ox);
		const int64_t iy = (int64_t)(oy * w->stride[1] + r * w->dilation[1]) -
				   (int64_t)w->pad_begin[1];
		const size_t begin = from < ox ? ox : from, end = min_size(until, ox + len);

		memset(to, pad, len);
		if (iy >= 0 && iy < (int64_t)w->height) {
			const uint8_t *row = plane + (size_t)iy * w->width;

			for (size_t i = begin; i < end; i++)
				to[i - ox] = row[i * w->stride[2] + s * w->dilation[2] -
						 w->pad_begin[2]];
		}
		to += len;
		n -= len;
		ox = 0;
		oy++;
	}
}

/* Pack a panel row by row from gathered bytes. */
static void panel_of_rows(const struct i8_pixels *p, size_t k, size_t kw, size_t j,
			  struct i8_arrange *work, int32_t *to)
{
	const struct cpu_window *w = &p->conv->window;
	const bool is_signed = p->conv->x_signed;
	const uint8_t flip = i8_flip(p->conv->weights_signed, is_signed);
	const size_t n = min_size(I8_NR, p->n - j);

	for (size_t i = 0; i < kw; i++, to += I8_NR) {
		const uint8_t *row[I8_GROUP];

		for (size_t q = 0; q < I8_GROUP; q++) {
			size_t channel, tap;

			row[q] = NULL;
			if (!i8_depth_at(w, p->depth, k + i, q, &channel, &tap))
				continue;
			gather(p, p->x + channel * w->height * w->width, tap, p->first + j, n,
			       work->gathered[q]);
			row[q] = work->gathered[q];
		}
		CPU_FN(i8_pack_group)(row, n, is_signed, flip, to);
	}
}

/* Pack a panel from the input in place: a word has some channels of the pixel itself. */
static void panel_of_plain(const struct i8_pixels *p, size_t k, size_t kw, size_t j, int32_t *to)
{
	const size_t area = p->conv->window.height * p->conv->window.width;
	const size_t channels = p->depth->channels, n = min_size(I8_NR, p->n - j);
	const bool is_signed = p->conv->x_signed;
	const uint8_t flip = i8_flip(p->conv->weights_signed, is_signed);
	const uint8_t *from = p->x + k * I8_GROUP * area + p->first + j;

	for (size_t i = 0; i < kw; i++, from += I8_GROUP * area, to += I8_NR) {
		const size_t left = channels - (k + i) * I8_GROUP;
		const uint8_t *row[I8_GROUP];

		if (n == I8_NR && I8_NR % 16 == 0 && left >= I8_GROUP) {
			slab_words(from, area, I8_GROUP, I8_NR, is_signed, flip, to);
			continue;
		}
		for (size_t q = 0; q < I8_GROUP; q++)
			row[q] = q < left ? from + q * area : NULL;
		CPU_FN(i8_pack_group)(row, n, is_signed, flip, to);
	}
}

bool CPU_FN(i8_arrange_fits)(const struct i8_pixels *pixels)
{
	struct i8_slab slab;

	return pixels_are_plain(&pixels->conv->window) || slab_find(pixels, &slab);
}

void CPU_FN(i8_arrange_block)(const struct i8_pixels *pixels, size_t k, size_t kw,
			      struct i8_arrange *work)
{
	const struct i8_depth *d = pixels->depth;
	const size_t first_plane = k / d->plane_words, last_plane = (k + kw - 1) / d->plane_words;
	int32_t *to = work->slab + I8_SLAB_BEFORE;

	work->is_plain = pixels_are_plain(&pixels->conv->window);
	work->is_slab = !work->is_plain && slab_find(pixels, &work->found);
	if (!work->is_slab)
		return;
	work->is_masked = d->by_taps && pixels->conv->window.kernel[2] % I8_GROUP;
	slab_find_parts(pixels, &work->found, work);
	slab_find_words(pixels, &work->found, k, kw, work->words);
	for (size_t plane = first_plane; plane <= last_plane; plane++, to += work->found.plane)
		slab_make(pixels, &work->found, plane, work, to);
}

bool CPU_FN(i8_arrange_rows)(const struct i8_pixels *pixels, struct i8_arrange *work)
{
	const struct i8_depth *d = pixels->depth;
	int32_t *to = work->slab + I8_SLAB_BEFORE;

	if (!slab_find(pixels, &work->found))
		return false;
	slab_find_words(pixels, &work->found, 0, d->plane_words, work->words);
	for (size_t plane = 0; plane < d->planes; plane++, to += work->found.plane)
		slab_make(pixels, &work->found, plane, work, to);
	return true;
}

void CPU_FN(i8_arrange_panel)(const struct i8_pixels *pixels, size_t k, size_t kw, size_t j,
			      struct i8_arrange *work, int32_t *to)
{
	if (work->is_plain)
		panel_of_plain(pixels, k, kw, j, to);
	else if (work->is_slab)
		panel_of_slab(pixels, kw, j, work, to);
	else
		panel_of_rows(pixels, k, kw, j, work, to);
}
