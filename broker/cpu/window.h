#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Sliding windows: positions and taps along one dimension, and strided loads. Included by the
 * kernel sources only.
 */
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "cpu/vec.h"
#include "util/number.h"

/* Rows of a block of packed weights that one unit packs: whole register tiles. */
enum { WINDOW_PACK_ROWS = 96 };

/*
 * Compute the taps [*begin, *end) that fall into [0, limit) for the window at output position @o.
 */
static inline void window_taps(size_t o, size_t stride, size_t pad, size_t dilation, size_t kernel,
			       size_t limit, size_t *begin, size_t *end)
{
	const int64_t at = (int64_t)(o * stride) - (int64_t)pad;

	*begin = at < 0 ? ((size_t)-at + dilation - 1) / dilation : 0;
	*end = at >= (int64_t)limit
		       ? 0
		       : min_size(kernel, (size_t)((int64_t)limit - 1 - at) / dilation + 1);
	if (*begin > *end)
		*begin = *end;
}

/*
 * Compute the taps [*begin, *end) that fall into [0, limit) for any of output positions [@o, @o +
 * @n).
 */
static inline void window_taps_of(size_t o, size_t n, size_t stride, size_t pad, size_t dilation,
				  size_t kernel, size_t limit, size_t *begin, size_t *end)
{
	size_t other;

	/*
	 * The window at the last position has the first tap inside, and the window at @o the last
	 * one.
	 */
	window_taps(o + n - 1, stride, pad, dilation, kernel, limit, begin, &other);
	window_taps(o, stride, pad, dilation, kernel, limit, &other, end);
}

/*
 * Compute the output positions [*begin, *end) of one row for which tap @tap falls into [0, limit).
 */
static inline void window_positions(size_t tap, size_t stride, size_t pad, size_t dilation,
				    size_t n, size_t limit, size_t *begin, size_t *end)
{
	const int64_t at = (int64_t)(tap * dilation) - (int64_t)pad;

	*begin = at < 0 ? min_size(n, ((size_t)-at + stride - 1) / stride) : 0;
	*end = at >= (int64_t)limit ? 0
				    : min_size(n, (size_t)((int64_t)limit - 1 - at) / stride + 1);
	if (*end < *begin)
		*end = *begin;
}

/* The output positions of a row for which all taps are inside horizontally. */
struct window_inner {
	size_t begin, end;
};

static inline struct window_inner window_find_inner(const struct cpu_window *args)
{
	struct window_inner inner;
	size_t ignored;

	window_positions(0, args->stride[2], args->pad_begin[2], args->dilation[2], args->out_width,
			 args->width, &inner.begin, &ignored);
	window_positions(args->kernel[2] - 1, args->stride[2], args->pad_begin[2],
			 args->dilation[2], args->out_width, args->width, &ignored, &inner.end);
	return inner;
}

/* Return the taps along dimension @d that the average at output position @o divides by. */
static inline size_t window_counted(const struct cpu_window *args, size_t o, unsigned int d,
				    size_t limit)
{
	const size_t pad = args->pad_begin[d];
	size_t begin, end;

	if (args->includes_pad)
		window_taps(o, args->stride[d], 0, args->dilation[d], args->kernel[d],
			    limit + pad + args->pad_end[d], &begin, &end);
	else
		window_taps(o, args->stride[d], pad, args->dilation[d], args->kernel[d], limit,
			    &begin, &end);
	return end - begin;
}

/* Return @a where it is larger than @b, else @b, also where either is a NaN. */
VEC_INLINE vf window_larger(vf a, vf b)
{
#if VW == 16
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif VW == 8
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
	return vf_select((vi)(a > b), a, b);
#endif
}

/* Move bit l of @lanes to bit 2 * l. */
VEC_INLINE uint32_t window_spread(uint32_t lanes)
{
	lanes = (lanes | lanes << 8) & 0x00ff00ffu;
	lanes = (lanes | lanes << 4) & 0x0f0f0f0fu;
	lanes = (lanes | lanes << 2) & 0x33333333u;
	return (lanes | lanes << 1) & 0x55555555u;
}

/*
 * The active lanes of a vector whose lanes are @stride elements apart in memory, and the elements,
 * counted from lane 0's, that are read for them.
 */
struct window_lanes {
	uint32_t bits;
	uint32_t reads; /* bits of 2 * VW elements; 0: load lane by lane */
};

/* @bits must be contiguous. */
static inline struct window_lanes window_lanes_of(uint32_t bits, size_t stride)
{
	struct window_lanes lanes = {bits, bits};

	if (bits == 0 || stride == 1)
		return lanes;
	if (stride == 2) {
		lanes.reads = window_spread(bits);
		return lanes;
	}
	lanes.reads = 0;
	/* The elements between two lanes belong to the row, too, so they may be read. */
	if ((31 - (uint32_t)__builtin_clz(bits)) * stride < VW)
		lanes.reads = (2u << (31 - (uint32_t)__builtin_clz(bits)) * stride) -
			      (1u << __builtin_ctz(bits) * stride);
	return lanes;
}

/* window_load() for any stride. */
VEC_INLINE vf window_gather(const float *from, struct window_lanes lanes, size_t stride)
{
	float values[VW] = {0};

#if VW == 16
	/* Unsigned: large strides wrap around here, and are read lane by lane. */
	const __m512i index = (__m512i)((vu)vi_lanes() * (uint32_t)stride);

	if (lanes.reads)
		return (vf)_mm512_maskz_permutexvar_ps((__mmask16)lanes.bits, index,
						       (__m512)vf_load_lanes(from, lanes.reads));
	if (stride <= INT32_MAX / VW)
		return (vf)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), (__mmask16)lanes.bits,
						    index, from, sizeof(float));
#elif VW == 8
	if (stride <= INT32_MAX / VW)
		return (vf)_mm256_mask_i32gather_ps(_mm256_setzero_ps(), from,
						    (__m256i)((vu)vi_lanes() * (uint32_t)stride),
						    (__m256)vi_of_lanes(lanes.bits), sizeof(float));
#endif
	for (uint32_t bits = lanes.bits; bits; bits &= bits - 1) {
		const unsigned int l = (unsigned int)__builtin_ctz(bits);

		values[l] = from[l * stride];
	}
	return vf_load(values);
}

/*
 * Load from[l * stride] into each lane l of @lanes; the other lanes are 0 and their memory is not
 * read. @stride is 1, 2, or 0 for @any_stride.
 */
VEC_INLINE vf window_load(const float *from, struct window_lanes lanes, const size_t stride,
			  size_t any_stride)
{
	if (stride == 1)
		return vf_load_lanes(from, lanes.bits);
	if (stride == 2)
		return __builtin_shufflevector(vf_load_lanes(from, lanes.reads & VEC_ALL),
					       vf_load_lanes(from + VW, lanes.reads >> VW),
					       VEC_EVEN);
	return window_gather(from, lanes, any_stride);
}

/* Load all lanes; @stride is 1 or 2. Nothing behind the last lane's element is read. */
VEC_INLINE vf window_load_all(const float *from, const size_t stride)
{
	if (stride == 1)
		return vf_load(from);
	return __builtin_shufflevector(vf_load(from), vf_load_lanes(from + VW, VEC_ALL >> 1),
				       VEC_EVEN);
}

/* Copy elements that lie side by side. */
VEC_INLINE void window_copy(float *to, const float *from, size_t n)
{
	for (; n >= VW; n -= VW, from += VW, to += VW)
		vf_store(to, vf_load(from));
	if (n)
		vf_store_partial(to, vf_load_partial(from, n), n);
}

VEC_INLINE void window_zero(float *to, size_t n)
{
	for (; n >= VW; n -= VW, to += VW)
		vf_store(to, (vf){0});
	if (n)
		vf_store_partial(to, (vf){0}, n);
}
