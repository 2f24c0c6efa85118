/* SPDX-License-Identifier: MIT */
/*
 * Depthwise Conv, Conv of small groups and pooling, with channels last
 *
 * A vector is neighbouring channels of one pixel, so every tap is one load whatever the strides,
 * the dilations and the padding: a tap outside the input is skipped for all of a pixel's channels.
 * Several neighbouring pixels are computed at once, to hide the latency of one sum and to load
 * weights once for all of them. Where the windows of neighbours overlap, they share work: in a
 * convolution, each loaded pixel of the input; in a pooling, the result of each column of the
 * input.
 *
 * With groups of two or four channels, a vector holds several groups. Each input channel is spread
 * over the lanes of its group and multiplied by weights that are packed vector by vector for that.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/window.h"

enum last { LAST_CONV, LAST_PAIRS, LAST_FOURS, LAST_MAX, LAST_SUM };

/* channels in a group of a convolution; 0: not a convolution */
#define LAST_GROUP(what) \
	((what) == LAST_FOURS ? 4u : (what) == LAST_PAIRS ? 2u : (what) == LAST_CONV)

/* pixels computed at once */
enum { LAST_PIXELS = 4 };

/* elements of a row between two polls */
enum { LAST_PIECE = 1 << 13 };

/* A row of the output. */
struct last_row {
	const struct cpu_window *args;
	const float *x; /* the picture */
	float *y;
	size_t oz, oy;
	size_t q_begin, q_end, r_begin, r_end; /* taps inside along depth and height */
	size_t divides; /* LAST_SUM: taps along depth and height that count */
	float factor;   /* LAST_SUM: factor of sums without clipped taps */
};

/* A block of neighbouring pixels of a row. */
struct last_block {
	const struct last_row *row;
	size_t ox, n; /* n: LAST_PIXELS, or fewer at the row's end */
	/*
	 * first tap of a row that is inside and number of taps inside, by pixel; set if any tap is
	 * outside
	 */
	size_t first[LAST_PIXELS], inside[LAST_PIXELS];
	/* columns of the input that are inside, counted from tap 0 of pixel 0 */
	size_t columns_begin, columns_end;
	float factors[LAST_PIXELS]; /* LAST_SUM: factors of the sums, by pixel */
};

/* The iteration over the taps of a row. */
enum last_way {
	LAST_SHARED,         /* by column of the input: windows overlap in a known way */
	LAST_SHARED_CLIPPED, /* the same; some columns are outside */
	LAST_EACH,           /* by tap */
	LAST_EACH_CLIPPED,
};

VEC_INLINE vf last_start(const enum last what)
{
	return vf_set(what == LAST_MAX ? -INFINITY : 0);
}

/* Spread channel @k of each group over the group's lanes. */
#define LAST_SPREAD_2(b, k) (b) + (k), (b) + (k), (b) + 2 + (k), (b) + 2 + (k)
#define LAST_SPREAD_4(b, k) (b) + (k), (b) + (k), (b) + (k), (b) + (k)
#if VW == 16
#define LAST_SPREAD(x, spread, k) \
	__builtin_shufflevector(x, x, spread(0, k), spread(4, k), spread(8, k), spread(12, k))
#elif VW == 8
#define LAST_SPREAD(x, spread, k) __builtin_shufflevector(x, x, spread(0, k), spread(4, k))
#else
#define LAST_SPREAD(x, spread, k) __builtin_shufflevector(x, x, spread(0, k))
#endif

/* Add the products of a vector of groups. @weights: VW weights for each channel of a group. */
VEC_INLINE vf last_groups(const enum last what, vf value, const vf *weights, vf x)
{
	if (what == LAST_PAIRS) {
		value += weights[0] * LAST_SPREAD(x, LAST_SPREAD_2, 0);
		return value + weights[1] * LAST_SPREAD(x, LAST_SPREAD_2, 1);
	}
	value += weights[0] * LAST_SPREAD(x, LAST_SPREAD_4, 0);
	value += weights[1] * LAST_SPREAD(x, LAST_SPREAD_4, 1);
	value += weights[2] * LAST_SPREAD(x, LAST_SPREAD_4, 2);
	return value + weights[3] * LAST_SPREAD(x, LAST_SPREAD_4, 3);
}

VEC_INLINE vf last_tap(const enum last what, vf value, vf weight, vf x)
{
	if (what == LAST_CONV)
		return value + weight * x;
	return what == LAST_MAX ? window_larger(x, value) : value + x;
}

/* Load VW channels or, without @all, the first @n. */
VEC_INLINE vf last_load(const float *from, const bool all, size_t n)
{
	return all ? vf_load(from) : vf_load_partial(from, n);
}

/*
 * Return the address of tap 0 of pixel 0, in row @r of slice @q of its window. It may be outside
 * the row.
 */
VEC_INLINE const float *last_line(const struct last_block *block, size_t q, size_t r)
{
	const struct last_row *row = block->row;
	const struct cpu_window *args = row->args;
	const size_t iz = row->oz * args->stride[0] + q * args->dilation[0] - args->pad_begin[0];
	const size_t iy = row->oy * args->stride[1] + r * args->dilation[1] - args->pad_begin[1];
	const ptrdiff_t ix =
		(ptrdiff_t)(block->ox * args->stride[2]) - (ptrdiff_t)args->pad_begin[2];

	return row->x + ((ptrdiff_t)((iz * args->height + iy) * args->width) + ix) *
				(ptrdiff_t)args->channels;
}

/*
 * Return the packed weights of one tap: with groups, whole vectors for each of a group's channels.
 */
VEC_INLINE size_t last_tap_weights(const enum last what, size_t channels)
{
	return what == LAST_CONV ? channels : (channels + VW - 1) / VW * VW * LAST_GROUP(what);
}

/* Apply tap @s of one row of the window to all pixels' @value. @from: tap 0 of pixel 0. */
VEC_INLINE void last_tap_of(const enum last what, const bool clips, const bool all,
			    const struct last_block *block, size_t s, const float *from,
			    const float *weight, size_t n, vf *value)
{
	const struct cpu_window *args = block->row->args;
	const size_t channels = args->channels, step = args->stride[2] * channels;
	const bool in_groups = what == LAST_PAIRS || what == LAST_FOURS;
	vf w[4] = {0};

	from += s * args->dilation[2] * channels;
	if (what == LAST_CONV)
		w[0] = last_load(weight + s * channels, all, n);
	VEC_UNROLL
	for (size_t k = 0; k < 4; k++)
		if (in_groups && k < LAST_GROUP(what))
			w[k] = vf_load(weight + s * last_tap_weights(what, channels) + k * VW);
	VEC_UNROLL
	for (size_t i = 0; i < LAST_PIXELS; i++) {
		vf x;

		if (clips && s - block->first[i] >= block->inside[i])
			continue;
		x = last_load(from + i * step, all, n);
		value[i] = in_groups ? last_groups(what, value[i], w, x)
				     : last_tap(what, value[i], w[0], x);
	}
}

/* Apply all taps of one row of the window; @width 0: any width. */
VEC_INLINE void last_taps(const enum last what, const bool clips, const size_t width,
			  const bool all, const struct last_block *block, const float *from,
			  const float *weight, size_t n, vf *value)
{
	if (width == 0) {
		for (size_t s = 0; s < block->row->args->kernel[2]; s++)
			last_tap_of(what, clips, all, block, s, from, weight, n, value);
		return;
	}
	VEC_UNROLL
	for (size_t s = 0; s < width; s++)
		last_tap_of(what, clips, all, block, s, from, weight, n, value);
}

/* Apply column @j, which is tap j - i * stride of pixel i. */
VEC_INLINE void last_column(const enum last what, const size_t width, const size_t stride,
			    const size_t j, const vf *weights, vf x, vf *value)
{
	VEC_UNROLL
	for (size_t i = 0; i < LAST_PIXELS; i++)
		if (j >= i * stride && j - i * stride < width)
			value[i] = last_tap(what, value[i],
					    what == LAST_CONV ? weights[j - i * stride] : x, x);
}

/* maximum columns that neighbours share: windows 5 wide, 2 apart */
enum { LAST_COLUMNS = (LAST_PIXELS - 1) * 2 + 5 };

/* Apply one row of the window by columns of the input; poolings only reduce into @columns. */
VEC_INLINE void last_share(const enum last what, const bool clips, const size_t width,
			   const size_t stride, const bool all, const struct last_block *block,
			   const float *from, const float *weight, size_t n, vf *value, vf *columns)
{
	const size_t channels = block->row->args->channels;
	vf weights[5];

	if (what == LAST_CONV) {
		VEC_UNROLL
		for (size_t s = 0; s < width; s++)
			weights[s] = last_load(weight + s * channels, all, n);
	}
	VEC_UNROLL
	for (size_t j = 0; j < (LAST_PIXELS - 1) * stride + width; j++) {
		vf x;

		if (clips && (j < block->columns_begin || j >= block->columns_end))
			continue;
		x = last_load(from + j * channels, all, n);
		if (what == LAST_CONV)
			last_column(what, width, stride, j, weights, x, value);
		else
			columns[j] = last_tap(what, columns[j], x, x);
	}
}

/* Compute the @n channels from @c on (@all: VW) of a block. */
VEC_INLINE void last_vectors(const enum last what, const enum last_way way, const size_t width,
			     const size_t stride, const bool all, const struct last_block *block,
			     size_t c, size_t n)
{
	const bool clips = way == LAST_SHARED_CLIPPED || way == LAST_EACH_CLIPPED;
	const bool shares = way == LAST_SHARED || way == LAST_SHARED_CLIPPED;
	/* Only poolings have a result per column. */
	const size_t n_columns =
		shares && what != LAST_CONV ? (LAST_PIXELS - 1) * stride + width : 0;
	const struct last_row *row = block->row;
	const struct cpu_window *args = row->args;
	float *y = row->y + block->ox * args->channels + c;
	vf value[LAST_PIXELS], start = last_start(what), columns[LAST_COLUMNS];

	if (LAST_GROUP(what) && args->bias)
		start = last_load(args->bias + c, all, n);
	VEC_UNROLL
	for (size_t i = 0; i < LAST_PIXELS; i++)
		value[i] = start;
	VEC_UNROLL
	for (size_t j = 0; j < n_columns; j++)
		columns[j] = start;
	for (size_t q = row->q_begin; q < row->q_end; q++) {
		for (size_t r = row->r_begin; r < row->r_end; r++) {
			const float *from = last_line(block, q, r) + c, *weight = NULL;

			if (LAST_GROUP(what))
				weight = args->weights_packed + c * LAST_GROUP(what) +
					 (q * args->kernel[1] + r) * args->kernel[2] *
						 last_tap_weights(what, args->channels);
			if (shares)
				last_share(what, clips, width, stride, all, block, from, weight, n,
					   value, columns);
			else
				last_taps(what, clips, width, all, block, from, weight, n, value);
		}
	}
	VEC_UNROLL
	for (size_t j = 0; j < n_columns; j++)
		last_column(what, width, stride, j, NULL, columns[j], value);
	VEC_UNROLL
	for (size_t i = 0; i < LAST_PIXELS; i++) {
		if (clips && i >= block->n)
			continue;
		if (what == LAST_SUM)
			value[i] *= vf_set(clips ? block->factors[i] : row->factor);
		if (all)
			vf_store(y + i * args->channels, value[i]);
		else
			vf_store_partial(y + i * args->channels, value[i], n);
	}
}

/* Compute all channels of a block. */
VEC_INLINE void last_block(const enum last what, const enum last_way way, const size_t width,
			   const size_t stride, const struct last_block *block)
{
	const size_t channels = block->row->args->channels;
	size_t c = 0;

	for (; c + VW <= channels; c += VW) {
		cpu_pause_at(block->row->args->pause, c + VW, LAST_PIECE);
		last_vectors(what, way, width, stride, true, block, c, VW);
	}
	if (c < channels)
		last_vectors(what, way, width, stride, false, block, c, channels - c);
}

/* Compute a block whose windows overlap in a known way. */
VEC_INLINE void last_shared(const enum last what, const size_t width, const size_t stride,
			    const struct last_block *block, bool clips)
{
	if (clips)
		last_block(what, LAST_SHARED_CLIPPED, width, stride, block);
	else
		last_block(what, LAST_SHARED, width, stride, block);
}

/*
 * Determine the taps that are inside for the pixels from @ox on; none for pixels beyond the row's
 * end.
 */
static void last_clip(const struct cpu_window *args, struct last_block *block)
{
	const int64_t at = (int64_t)(block->ox * args->stride[2]) - (int64_t)args->pad_begin[2];

	for (size_t i = 0; i < LAST_PIXELS; i++) {
		size_t begin = 0, end = 0;

		if (i < block->n)
			window_taps(block->ox + i, args->stride[2], args->pad_begin[2],
				    args->dilation[2], args->kernel[2], args->width, &begin, &end);
		block->first[i] = begin;
		block->inside[i] = end - begin;
	}
	block->columns_begin = at < 0 ? (size_t)-at : 0;
	block->columns_end = at < (int64_t)args->width ? (size_t)((int64_t)args->width - at) : 0;
}

static void last_count(const struct cpu_window *args, struct last_block *block)
{
	for (size_t i = 0; i < block->n; i++) {
		const size_t divides =
			block->row->divides * window_counted(args, block->ox + i, 2, args->width);

		block->factors[i] = 1 / (float)(divides ? divides : 1);
	}
}

VEC_INLINE void last_any(const enum last what, size_t width, const struct last_block *block,
			 bool clips)
{
	if (clips)
		last_block(what, LAST_EACH_CLIPPED, 0, 0, block);
	else if (width == 2)
		last_block(what, LAST_EACH, 2, 0, block);
	else if (width == 3)
		last_block(what, LAST_EACH, 3, 0, block);
	else
		last_block(what, LAST_EACH, 0, 0, block);
}

VEC_INLINE void last_row(const enum last what, const struct last_row *row,
			 const struct window_inner *inner)
{
	const struct cpu_window *args = row->args;
	const bool shares = args->dilation[2] == 1 && what != LAST_PAIRS && what != LAST_FOURS;
	const size_t width = args->kernel[2], stride = args->stride[2];
	struct last_block block = {.row = row};

	for (; block.ox < args->out_width; block.ox += block.n) {
		bool clips;

		cpu_pause_at(args->pause, block.ox, LAST_PIECE / 16);
		/* Compute some inner pixels again, so that the last inner block is full. */
		if (block.ox >= inner->begin + LAST_PIXELS && block.ox < inner->end &&
		    block.ox + LAST_PIXELS > inner->end)
			block.ox = inner->end - LAST_PIXELS;
		block.n = min_size(LAST_PIXELS, args->out_width - block.ox);
		clips = block.ox < inner->begin || block.ox + LAST_PIXELS > inner->end;
		if (clips)
			last_clip(args, &block);
		if (what == LAST_SUM && clips)
			last_count(args, &block);
		if (shares && width == 3 && stride == 1)
			last_shared(what, 3, 1, &block, clips);
		else if (shares && width == 3 && stride == 2)
			last_shared(what, 3, 2, &block, clips);
		else if (shares && width == 5 && stride == 1 && what == LAST_CONV)
			last_shared(what, 5, 1, &block, clips);
		else if (shares && width == 5 && stride == 2 && what == LAST_CONV)
			last_shared(what, 5, 2, &block, clips);
		else
			last_any(what, width, &block, clips);
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
		if (what == LAST_SUM) {
			row.divides = window_counted(args, row.oz, 0, args->depth) *
				      window_counted(args, row.oy, 1, args->height);
			row.factor = 1 / (float)((row.divides ? row.divides : 1) * args->kernel[2]);
		}
		last_row(what, &row, &inner);
		for (size_t i = 0; args->activation && i < out; i += CPU_PAUSE_ELEMS) {
			cpu_activate(args->activation, row.y + i,
				     min_size(CPU_PAUSE_ELEMS, out - i));
			cpu_pause(args->pause);
		}
	}
}

/*
 * With fewer channels than lanes, the next narrower level wastes fewer lanes. It gives the same
 * bits and, where half a vector holds all channels, computes twice as many pixels in the same time.
 */
#if VW == 16
#define LAST_IS_NARROW(args) ((args)->channels < VW)
#define LAST_NARROW_FN(name) CPU_FN_EXPAND(name, avx2)

void LAST_NARROW_FN(conv_groups_last)(const struct cpu_window *args, size_t begin, size_t end);
void LAST_NARROW_FN(max_pool_last)(const struct cpu_window *args, size_t begin, size_t end);
void LAST_NARROW_FN(average_pool_last)(const struct cpu_window *args, size_t begin, size_t end);
#else
#define LAST_IS_NARROW(args) false
#define LAST_NARROW_FN(name) CPU_FN(name)
#endif

void CPU_FN(conv_groups_last)(const struct cpu_window *args, size_t begin, size_t end)
{
	const size_t group = args->channels / args->group;

	if (group == 4)
		last_rows(LAST_FOURS, args, begin, end);
	else if (group == 2)
		last_rows(LAST_PAIRS, args, begin, end);
	else if (LAST_IS_NARROW(args))
		LAST_NARROW_FN(conv_groups_last)(args, begin, end);
	else if (!CPU_FN(conv_tiles_last)(args, begin, end))
		last_rows(LAST_CONV, args, begin, end);
}

void CPU_FN(max_pool_last)(const struct cpu_window *args, size_t begin, size_t end)
{
	if (LAST_IS_NARROW(args))
		LAST_NARROW_FN(max_pool_last)(args, begin, end);
	else
		last_rows(LAST_MAX, args, begin, end);
}

void CPU_FN(average_pool_last)(const struct cpu_window *args, size_t begin, size_t end)
{
	if (LAST_IS_NARROW(args))
		LAST_NARROW_FN(average_pool_last)(args, begin, end);
	else
		last_rows(LAST_SUM, args, begin, end);
}
