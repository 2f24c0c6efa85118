/* SPDX-License-Identifier: MIT */
/*
 * Depthwise Conv and pooling
 *
 * Each channel has a plane of its own. The window slides over the plane directly, for a vector of
 * neighbouring pixels at a time. Lanes for which a tap is outside the input are masked. Windows are
 * clipped to the input: taps outside are skipped, which for sums equals zeros.
 *
 * Windows of usual heights are computed for several rows of the output at once, because these share
 * rows of the input: the elements loaded for a tap of one window serve another tap of the next
 * row's window.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-math.h"
#include "cpu/vec-trig.h"
#include "cpu/vec.h"
#include "cpu/window.h"

#if VW == 16
#define SLIDE_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif VW == 8
#define SLIDE_ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
#define SLIDE_ODD 1, 3, 5, 7
#endif

enum slide { SLIDE_CONV, SLIDE_MAX, SLIDE_SUM, SLIDE_LP };

/* vectors computed side by side, to hide the latency of one sum */
enum { SLIDE_REGS = 4 };

/* rows computed at once, for the same reason */
enum { SLIDE_ROWS = 4 };

/* pixels of a row between two polls */
enum { SLIDE_PIECE = 1 << 12 };

/* taps of a row of a window that are computed between two polls */
enum { SLIDE_TAPS = 1 << 8 };

/* maximum taps of a row of a window that is computed for several rows at once */
enum { SLIDE_BLOCK_TAPS = 16 };

/*
 * Values common to all rows of all planes. lanes and counts are of a row's first and last vector,
 * and valid for windows of at most SLIDE_BLOCK_TAPS columns.
 */
struct slide_edges {
	struct window_inner inner;
	size_t last; /* position of the last vector */
	struct window_lanes lanes[2][SLIDE_BLOCK_TAPS];
	vf counts[2]; /* SLIDE_SUM: taps of a row of the window that count, by lane */
};

/* A row of a plane of the output. */
struct slide_row {
	const struct cpu_window *args;
	const struct slide_edges *edges;
	const float *plane, *weights;
	float bias;
	size_t oz, oy;
	size_t q_begin, q_end, r_begin, r_end; /* taps inside along depth and height */
	size_t divides; /* SLIDE_SUM: taps along depth and height that count */
};

/* Return |x| to the power @p, by squaring. */
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

/* Return the @p-th root of @x. Not inlined: one call per vector, of many instructions. */
static __attribute__((noinline)) vf slide_root(vf x, uint32_t p)
{
	return vf_pow(x, vf_set(1.0f / (float)p));
}

VEC_INLINE vf slide_tap(const enum slide what, const struct cpu_window *args, vf value,
			float weight, vf x)
{
	if (what == SLIDE_CONV)
		return value + vf_set(weight) * x;
	if (what == SLIDE_MAX)
		return window_larger(x, value);
	return value + (what == SLIDE_SUM ? x : slide_power(x, args->p));
}

/* Return the result from the taps' @value. SLIDE_SUM: @divides * @counts taps count, by lane. */
VEC_INLINE vf slide_finish(const enum slide what, const struct slide_row *row, vf value,
			   size_t divides, vf counts)
{
	const uint32_t p = row->args->p;

	if (what == SLIDE_CONV)
		return value + vf_set(row->bias);
	if (what == SLIDE_SUM) {
		const vf divisor = vf_set((float)divides) * counts, one = vf_set(1.0f);

		return value / vf_select((vi)(divisor > one), divisor, one);
	}
	if (what == SLIDE_MAX || p == 1)
		return value;
	return p == 2 ? vf_sqrt(value) : slide_root(value, p);
}

/* Return the slice of the input under tap @q along the depth. */
VEC_INLINE const float *slide_plane_at(const struct slide_row *row, size_t q)
{
	const struct cpu_window *args = row->args;
	const size_t z = row->oz * args->stride[0] + q * args->dilation[0] - args->pad_begin[0];

	return row->plane + z * args->height * args->width;
}

/* Return the row of the input under tap @r of the height and @q of the depth. */
VEC_INLINE const float *slide_line(const struct slide_row *row, size_t q, size_t r)
{
	const struct cpu_window *args = row->args;
	const size_t y = row->oy * args->stride[1] + r * args->dilation[1] - args->pad_begin[1];

	return slide_plane_at(row, q) + y * args->width;
}

/* Return the lanes of the VW pixels from @ox on, at most @n, for which tap @s is inside. */
VEC_INLINE struct window_lanes slide_lanes(const struct cpu_window *args, size_t ox, size_t n,
					   size_t s)
{
	const int64_t stride = (int64_t)args->stride[2];
	const int64_t at = (int64_t)(ox * args->stride[2] + s * args->dilation[2]) -
			   (int64_t)args->pad_begin[2];
	const int64_t left = (int64_t)args->width - at;
	/* Avoid the division for a stride of 1. */
	int64_t from = at >= 0 ? 0 : stride == 1 ? -at : (stride - 1 - at) / stride;
	int64_t until = left <= 0 ? 0 : stride == 1 ? left : (left - 1) / stride + 1;

	if (until > (int64_t)n)
		until = (int64_t)n;
	return window_lanes_of(from < until ? (uint32_t)((1u << until) - (1u << from)) : 0,
			       args->stride[2]);
}

/* Return @x; for SLIDE_MAX, lanes outside @lanes become -inf, so that they do not count. */
VEC_INLINE vf slide_masked(const enum slide what, uint32_t lanes, vf x)
{
	const vf nothing = vf_set(-INFINITY);

	if (what != SLIDE_MAX)
		return x;
#if VW == 16
	return (vf)_mm512_mask_mov_ps((__m512)nothing, (__mmask16)lanes, (__m512)x);
#else
	return vf_select(vi_of_lanes(lanes), x, nothing);
#endif
}

/* SLIDE_SUM: return the taps of a row of the window that count, by lane. Edges only. */
static __attribute__((noinline)) vf slide_row_counts(const struct cpu_window *args, size_t ox,
						     size_t n)
{
	const vf one = vf_set(1.0f);
	float counts[VW];
	vf sum = {0};
	size_t begin, end;

	if (!args->includes_pad && args->kernel[2] <= SLIDE_TAPS) {
		window_taps_of(ox, n, args->stride[2], args->pad_begin[2], args->dilation[2],
			       args->kernel[2], args->width, &begin, &end);
		for (size_t s = begin; s < end; s++)
			sum += vf_select(vi_of_lanes(slide_lanes(args, ox, n, s).bits), one,
					 (vf){0});
		return sum;
	}
	for (size_t l = 0; l < VW; l++)
		counts[l] = l < n ? (float)window_counted(args, ox + l, 2, args->width) : 1;
	return vf_load(counts);
}

VEC_INLINE vf slide_start(const enum slide what)
{
	return vf_set(what == SLIDE_MAX ? -INFINITY : 0);
}

/* Add the cost of @taps vectors to @work, and poll once that is worth it. */
VEC_INLINE void slide_look(const enum slide what, const struct cpu_window *args, size_t *work,
			   size_t taps)
{
	/* A power takes as many steps as @p has bits. */
	*work += what == SLIDE_LP ? taps * (32 - (size_t)__builtin_clz(args->p)) : taps;
	if (*work >= CPU_PAUSE_ELEMS / VW) {
		cpu_pause(args->pause);
		*work = 0;
	}
}

/*
 * Compute pixels [ox, ox + n) of a row, n <= VW, for any window. @inner: all taps are inside
 * horizontally.
 */
VEC_INLINE void slide_some(const enum slide what, const size_t stride, const struct slide_row *row,
			   bool inner, size_t ox, size_t n, size_t *work, float *y)
{
	const struct cpu_window *args = row->args;
	const ptrdiff_t left = (ptrdiff_t)(ox * args->stride[2]) - (ptrdiff_t)args->pad_begin[2];
	const struct window_lanes all = window_lanes_of((1u << n) - 1, args->stride[2]);
	vf value = slide_start(what), counts = {0};
	size_t begin, end;

	/* Windows may be far wider than the input. */
	window_taps_of(ox, n, args->stride[2], args->pad_begin[2], args->dilation[2],
		       args->kernel[2], args->width, &begin, &end);
	for (size_t q = row->q_begin; q < row->q_end && row->r_begin < row->r_end && begin < end;
	     q++) {
		for (size_t r = row->r_begin; r < row->r_end; r++) {
			const float *from = slide_line(row, q, r) + left +
					    (ptrdiff_t)(begin * args->dilation[2]);
			const size_t tap = (q * args->kernel[1] + r) * args->kernel[2];

			for (size_t s = begin; s < end;) {
				const size_t until = min_size(end, s + SLIDE_TAPS);

				/* Strides other than 1 and 2 gather lane by lane. */
				slide_look(what, args, work, (until - s) * (stride ? 1 : VW));
				for (; s < until; s++, from += args->dilation[2]) {
					const struct window_lanes lanes =
						inner ? all : slide_lanes(args, ox, n, s);
					const vf x =
						window_load(from, lanes, stride, args->stride[2]);

					value = slide_tap(what, args, value,
							  what == SLIDE_CONV ? row->weights[tap + s]
									     : 0,
							  slide_masked(what, lanes.bits, x));
				}
			}
		}
	}
	if (what == SLIDE_SUM)
		counts = inner ? vf_set((float)args->kernel[2]) : slide_row_counts(args, ox, n);
	vf_store_partial(y + ox, slide_finish(what, row, value, row->divides, counts), n);
}

/* Compute SLIDE_REGS vectors of neighbouring pixels all of whose taps are inside horizontally. */
VEC_INLINE void slide_vectors(const enum slide what, const size_t stride,
			      const struct slide_row *row, size_t ox, size_t *work, float *y)
{
	const struct cpu_window *args = row->args;
	const vf counts = vf_set((float)args->kernel[2]);
	vf value[SLIDE_REGS];

	VEC_UNROLL
	for (size_t v = 0; v < SLIDE_REGS; v++)
		value[v] = slide_start(what);
	for (size_t q = row->q_begin; q < row->q_end; q++) {
		for (size_t r = row->r_begin; r < row->r_end; r++) {
			const float *from =
				slide_line(row, q, r) + ox * stride - args->pad_begin[2];
			const float *weight =
				what == SLIDE_CONV
					? row->weights + (q * args->kernel[1] + r) * args->kernel[2]
					: NULL;

			for (size_t s = 0; s < args->kernel[2];) {
				const size_t until = min_size(args->kernel[2], s + SLIDE_TAPS);

				slide_look(what, args, work, (until - s) * SLIDE_REGS);
				for (; s < until; s++, from += args->dilation[2]) {
					VEC_UNROLL
					for (size_t v = 0; v < SLIDE_REGS; v++)
						value[v] = slide_tap(
							what, args, value[v],
							what == SLIDE_CONV ? weight[s] : 0,
							window_load_all(from + v * VW * stride,
									stride));
				}
			}
		}
	}
	VEC_UNROLL
	for (size_t v = 0; v < SLIDE_REGS; v++)
		vf_store(y + ox + v * VW, slide_finish(what, row, value[v], row->divides, counts));
}

/* Compute a row of the output. */
VEC_INLINE void slide_row(const enum slide what, const size_t stride, const struct slide_row *row,
			  const struct window_inner *inner, float *y)
{
	const size_t width = row->args->out_width;
	size_t ox = 0, work = 0, n;

	for (; ox < width; ox += n) {
		/* Count windows without any tap inside, too. */
		slide_look(what, row->args, &work, SLIDE_REGS);
		n = SLIDE_REGS * VW;
		if (stride != 0 && ox >= inner->begin && ox + n <= inner->end) {
			slide_vectors(what, stride, row, ox, &work, y);
			continue;
		}
		n = min_size(VW, width - ox);
		slide_some(what, stride, row, ox >= inner->begin && ox + n <= inner->end, ox, n,
			   &work, y);
	}
}

/*
 * Find the lanes of each tap of a row for the VW pixels from @ox on, and for SLIDE_SUM the taps
 * that count. Not inlined: few vectors need it, and each shape would have the code three times.
 */
static __attribute__((noinline)) void slide_find_lanes(enum slide what,
						       const struct cpu_window *args, size_t ox,
						       struct window_lanes *ret_lanes,
						       vf *ret_counts)
{
	const size_t n = min_size(VW, args->out_width - ox);

	for (size_t s = 0; s < args->kernel[2]; s++)
		ret_lanes[s] = slide_lanes(args, ox, n, s);
	*ret_counts = what == SLIDE_SUM ? slide_row_counts(args, ox, n) : (vf){0};
}

static void slide_find_edges(enum slide what, const struct cpu_window *args,
			     struct slide_edges *ret)
{
	ret->inner = window_find_inner(args);
	ret->last = (args->out_width - 1) / VW * VW;
	for (size_t i = 0; i < 2 && args->kernel[2] <= SLIDE_BLOCK_TAPS; i++)
		slide_find_lanes(what, args, i ? ret->last : 0, ret->lanes[i], &ret->counts[i]);
}

/*
 * Apply tap @s of input row @i, counted from where the first window begins, to each row of the
 * output.
 */
VEC_INLINE void slide_rows(const enum slide what, const size_t height, const size_t stride,
			   const size_t rows, const struct slide_row *row, const size_t i, size_t s,
			   vf x, vf *value)
{
	VEC_UNROLL
	for (size_t o = 0; o < rows; o++) {
		const size_t tap = (i - o * stride) * row->args->kernel[2] + s;

		if (i >= o * stride && i < o * stride + height)
			value[o] = slide_tap(what, row->args, value[o],
					     what == SLIDE_CONV ? row->weights[tap] : 0, x);
	}
}

/*
 * Load and apply tap @s of input row @i, whose first pixel is at @from. @lanes: the tap's lanes;
 * NULL: all.
 */
VEC_INLINE void slide_single(const enum slide what, const size_t height, const size_t stride,
			     const size_t rows, const struct slide_row *row, const size_t i,
			     size_t s, const float *from, const struct window_lanes *lanes,
			     vf *value)
{
	vf x;

	if (lanes)
		x = slide_masked(what, lanes->bits,
				 window_load(from, *lanes, stride <= 2 ? stride : 0, stride));
	else
		x = window_load_all(from, stride);
	slide_rows(what, height, stride, rows, row, i, s, x, value);
}

/*
 * Apply taps @s and @s + 1 with a stride of 2: the pixels of one tap lie between those of the
 * other.
 */
VEC_INLINE void slide_pair(const enum slide what, const size_t height, const size_t rows,
			   const struct slide_row *row, const size_t i, size_t s, const float *from,
			   vf *value)
{
	const vf low = vf_load(from), high = vf_load(from + VW);

	slide_rows(what, height, 2, rows, row, i, s, __builtin_shufflevector(low, high, VEC_EVEN),
		   value);
	slide_rows(what, height, 2, rows, row, i, s + 1,
		   __builtin_shufflevector(low, high, SLIDE_ODD), value);
}

/* Apply all taps of input row @i. @width: number of taps; 0: read from the arguments. */
VEC_INLINE void slide_taps(const enum slide what, const size_t height, const size_t width,
			   const size_t stride, const size_t rows, const struct slide_row *row,
			   const size_t i, const float *from, const struct window_lanes *lanes,
			   vf *value)
{
	const struct cpu_window *args = row->args;
	size_t s = 0;

	if (!lanes && stride == 2 && width > 0) {
		VEC_UNROLL
		for (size_t pair = 0; pair < width / 2; pair++)
			slide_pair(what, height, rows, row, i, 2 * pair, from + 2 * pair, value);
		if (width % 2)
			slide_single(what, height, stride, rows, row, i, width - 1,
				     from + width - 1, NULL, value);
		return;
	}
	if (width > 0) {
		VEC_UNROLL
		for (size_t t = 0; t < width; t++)
			slide_single(what, height, stride, rows, row, i, t, from + t,
				     lanes ? &lanes[t] : NULL, value);
		return;
	}
	for (; !lanes && stride == 2 && args->dilation[2] == 1 && s + 1 < args->kernel[2]; s += 2)
		slide_pair(what, height, rows, row, i, s, from + s, value);
	for (; s < args->kernel[2]; s++)
		slide_single(what, height, stride, rows, row, i, s, from + s * args->dilation[2],
			     lanes ? &lanes[s] : NULL, value);
}

/*
 * Compute pixels [ox, ox + n), n <= VW, of @rows rows. The windows are @height high and @stride
 * apart in both directions, and @width wide unless that is 0. @lanes: by tap of a row; NULL if all
 * taps are inside and n is VW.
 */
VEC_INLINE void slide_block(const enum slide what, const size_t height, const size_t width,
			    const size_t stride, const size_t rows, const struct slide_row *row,
			    const size_t *divides, size_t ox, size_t n,
			    const struct window_lanes *lanes, vf counts, float *y)
{
	const struct cpu_window *args = row->args;
	const float *plane = slide_plane_at(row, 0);
	const ptrdiff_t left = (ptrdiff_t)(ox * stride) - (ptrdiff_t)args->pad_begin[2];
	vf value[SLIDE_ROWS];

	VEC_UNROLL
	for (size_t o = 0; o < rows; o++)
		value[o] = slide_start(what);
	VEC_UNROLL
	for (size_t i = 0; i < (rows - 1) * stride + height; i++) {
		/* A row before the beginning wraps around to a number beyond the end. */
		const size_t iy = row->oy * stride + i - args->pad_begin[1];

		if (iy < args->height)
			slide_taps(what, height, width, stride, rows, row, i,
				   plane + (ptrdiff_t)(iy * args->width) + left, lanes, value);
	}
	VEC_UNROLL
	for (size_t o = 0; o < rows; o++) {
		float *to = y + o * args->out_width + ox;
		const vf result = slide_finish(what, row, value[o], divides[o], counts);

		if (lanes)
			vf_store_partial(to, result, n);
		else
			vf_store(to, result);
	}
}

VEC_INLINE void slide_block_rows(const enum slide what, const size_t height, const size_t width,
				 const size_t stride, const size_t rows,
				 const struct slide_row *row, const struct window_inner *inner,
				 float *y)
{
	const struct cpu_window *args = row->args;
	const struct slide_edges *edges = row->edges;
	const vf all = vf_set((float)args->kernel[2]);
	size_t divides[SLIDE_ROWS] = {0};
	struct slide_edges other;

	for (size_t o = 0; o < rows && what == SLIDE_SUM; o++)
		divides[o] = window_counted(args, row->oz, 0, args->depth) *
			     window_counted(args, row->oy + o, 1, args->height);
	for (size_t ox = 0; ox < args->out_width; ox += VW) {
		const size_t n = min_size(VW, args->out_width - ox);
		const struct slide_edges *at = edges;
		size_t edge = ox > 0;

		cpu_pause_at(args->pause, ox + VW, SLIDE_PIECE);
		if (stride <= 2 && ox >= inner->begin && ox + VW <= inner->end) {
			slide_block(what, height, width, stride, rows, row, divides, ox, VW, NULL,
				    all, y);
			continue;
		}
		/*
		 * Vectors in between: with a stride above 2, or where whole windows are padding or
		 * widely dilated.
		 */
		if (ox != 0 && ox != edges->last) {
			slide_find_lanes(what, args, ox, other.lanes[0], &other.counts[0]);
			at = &other;
			edge = 0;
		}
		slide_block(what, height, width, stride, rows, row, divides, ox, n, at->lanes[edge],
			    at->counts[edge], y);
	}
}

/* Compute a plane, several rows at once. */
VEC_INLINE void slide_blocks(const enum slide what, const size_t height, const size_t width,
			     const size_t stride, struct slide_row *row,
			     const struct window_inner *inner, float *y)
{
	const struct cpu_window *args = row->args;

	for (row->oz = 0; row->oz < args->out_depth; row->oz++) {
		for (row->oy = 0; row->oy < args->out_height;) {
			const size_t left = args->out_height - row->oy;
			const size_t rows = left >= SLIDE_ROWS ? SLIDE_ROWS : left >= 2 ? 2 : 1;

			cpu_pause(args->pause);
			if (rows == SLIDE_ROWS)
				slide_block_rows(what, height, width, stride, SLIDE_ROWS, row,
						 inner, y);
			else if (rows == 2)
				slide_block_rows(what, height, width, stride, 2, row, inner, y);
			else
				slide_block_rows(what, height, width, stride, 1, row, inner, y);
			row->oy += rows;
			y += rows * args->out_width;
		}
	}
}

/*
 * Instantiate slide_blocks() for one shape, with a @row of its own, whose members can stay in
 * registers. Each shape is a function, because compile time grows faster than a function's length.
 */
#define SLIDE_SHAPE(name, what, height, width, stride)                                         \
	static __attribute__((noinline)) void name(struct slide_row row,                       \
						   const struct window_inner *inner, float *y) \
	{                                                                                      \
		slide_blocks(what, height, width, stride, &row, inner, y);                     \
	}
SLIDE_SHAPE(slide_conv_3_1, SLIDE_CONV, 3, 0, 1)
SLIDE_SHAPE(slide_conv_3_2, SLIDE_CONV, 3, 0, 2)
SLIDE_SHAPE(slide_conv_5_1, SLIDE_CONV, 5, 0, 1)
SLIDE_SHAPE(slide_conv_5_2, SLIDE_CONV, 5, 0, 2)
SLIDE_SHAPE(slide_max_2_2, SLIDE_MAX, 2, 2, 2)
SLIDE_SHAPE(slide_max_3_1, SLIDE_MAX, 3, 3, 1)
SLIDE_SHAPE(slide_max_3_2, SLIDE_MAX, 3, 3, 2)
SLIDE_SHAPE(slide_max_3_3, SLIDE_MAX, 3, 3, 3)
SLIDE_SHAPE(slide_sum_3_1, SLIDE_SUM, 3, 3, 1)
SLIDE_SHAPE(slide_sum_3_2, SLIDE_SUM, 3, 3, 2)
SLIDE_SHAPE(slide_sum_3_3, SLIDE_SUM, 3, 3, 3)

/*
 * Compute a plane whose window has one of the usual shapes. Return: false if the shape is not one
 * of those computed by several rows.
 */
VEC_INLINE bool slide_usual(const enum slide what, struct slide_row *row,
			    const struct window_inner *inner, float *y)
{
	const struct cpu_window *args = row->args;
	const size_t height = args->kernel[1], stride = args->stride[1];

	if (what == SLIDE_LP || args->kernel[0] != 1 || args->stride[0] != 1 ||
	    args->pad_begin[0] != 0 || args->out_depth != args->depth ||
	    stride != args->stride[2] || args->dilation[1] != 1 ||
	    args->kernel[2] > SLIDE_BLOCK_TAPS)
		return false;
	/* With a sanitizer, compiling a function per shape would take minutes, too. */
	if (VEC_IS_SANITIZED) {
		if (what == SLIDE_CONV ? (height != 3 && height != 5) || stride > 2
				       : args->kernel[2] != height || args->dilation[2] != 1 ||
						 height < 2 || height > 3 || stride > height)
			return false;
		slide_blocks(what, height, what == SLIDE_CONV ? 0 : height, stride, row, inner, y);
		return true;
	}
	if (what == SLIDE_CONV) {
		if (height == 3 && stride == 1)
			slide_conv_3_1(*row, inner, y);
		else if (height == 3 && stride == 2)
			slide_conv_3_2(*row, inner, y);
		else if (height == 5 && stride == 1)
			slide_conv_5_1(*row, inner, y);
		else if (height == 5 && stride == 2)
			slide_conv_5_2(*row, inner, y);
		else
			return false;
		return true;
	}
	if (args->kernel[2] != height || args->dilation[2] != 1)
		return false;
	if (height == 3 && stride == 1)
		(what == SLIDE_MAX ? slide_max_3_1 : slide_sum_3_1)(*row, inner, y);
	else if (height == 3 && stride == 2)
		(what == SLIDE_MAX ? slide_max_3_2 : slide_sum_3_2)(*row, inner, y);
	else if (height == 2 && stride == 2 && what == SLIDE_MAX)
		slide_max_2_2(*row, inner, y);
	else if (height == 2 && stride == 2)
		slide_blocks(what, 2, 2, 2, row, inner, y); /* short: a call would be noticeable */
	else if (height == 3 && stride == 3)
		(what == SLIDE_MAX ? slide_max_3_3 : slide_sum_3_3)(*row, inner, y);
	else
		return false;
	return true;
}

VEC_INLINE void slide_plane(const enum slide what, const struct cpu_window *args,
			    const struct slide_edges *edges, const float *plane,
			    const float *weights, float bias, float *y)
{
	struct slide_row row = {
		.args = args, .edges = edges, .plane = plane, .weights = weights, .bias = bias};
	const struct window_inner *inner = &edges->inner;

	if (slide_usual(what, &row, inner, y))
		return;
	for (row.oz = 0; row.oz < args->out_depth; row.oz++) {
		window_taps(row.oz, args->stride[0], args->pad_begin[0], args->dilation[0],
			    args->kernel[0], args->depth, &row.q_begin, &row.q_end);
		for (row.oy = 0; row.oy < args->out_height; row.oy++, y += args->out_width) {
			cpu_pause(args->pause);
			window_taps(row.oy, args->stride[1], args->pad_begin[1], args->dilation[1],
				    args->kernel[1], args->height, &row.r_begin, &row.r_end);
			if (what == SLIDE_SUM)
				row.divides = window_counted(args, row.oz, 0, args->depth) *
					      window_counted(args, row.oy, 1, args->height);
			if (args->stride[2] == 1)
				slide_row(what, 1, &row, inner, y);
			else if (args->stride[2] == 2)
				slide_row(what, 2, &row, inner, y);
			else
				slide_row(what, 0, &row, inner, y);
		}
	}
}

void CPU_FN(conv_depthwise)(const struct cpu_window *args, size_t begin, size_t end)
{
	const size_t taps = args->kernel[0] * args->kernel[1] * args->kernel[2];
	const size_t pixels = cpu_window_out(args);
	struct slide_edges edges;

	slide_find_edges(SLIDE_CONV, args, &edges);
	for (size_t unit = begin; unit < end; unit++) {
		const size_t channel = unit % args->channels;
		float *y = args->y + unit * pixels;

		slide_plane(SLIDE_CONV, args, &edges, args->x + unit * cpu_window_in(args),
			    args->weights + channel * taps, args->bias ? args->bias[channel] : 0,
			    y);
		for (size_t i = 0; args->activation && i < pixels; i += CPU_PAUSE_ELEMS) {
			cpu_activate(args->activation, y + i,
				     min_size(CPU_PAUSE_ELEMS, pixels - i));
			cpu_pause(args->pause);
		}
	}
}

void CPU_FN(max_pool)(const struct cpu_window *args, size_t begin, size_t end)
{
	struct slide_edges edges;

	slide_find_edges(SLIDE_MAX, args, &edges);
	for (size_t unit = begin; unit < end; unit++)
		slide_plane(SLIDE_MAX, args, &edges, args->x + unit * cpu_window_in(args), NULL, 0,
			    args->y + unit * cpu_window_out(args));
}

void CPU_FN(average_pool)(const struct cpu_window *args, size_t begin, size_t end)
{
	struct slide_edges edges;

	slide_find_edges(SLIDE_SUM, args, &edges);
	for (size_t unit = begin; unit < end; unit++)
		slide_plane(SLIDE_SUM, args, &edges, args->x + unit * cpu_window_in(args), NULL, 0,
			    args->y + unit * cpu_window_out(args));
}

void CPU_FN(lp_pool)(const struct cpu_window *args, size_t begin, size_t end)
{
	struct slide_edges edges;

	slide_find_edges(SLIDE_LP, args, &edges);
	for (size_t unit = begin; unit < end; unit++)
		slide_plane(SLIDE_LP, args, &edges, args->x + unit * cpu_window_in(args), NULL, 0,
			    args->y + unit * cpu_window_out(args));
}
