#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Vectors of one SIMD level
 *
 * Included by the kernel sources only. These are compiled once per level: the compiler's flags
 * decide the vector width VW, CPU_LEVEL names the level, and CPU_FN(name) gives each build's
 * symbols distinct names. Kernels depend on the level only through VW, except for the shape of the
 * matrix product's register tile.
 *
 * The two levels with fused multiply-add (AVX2 and AVX-512) give the same bits: every output
 * element is a chain of operations whose order does not depend on VW. Sums across lanes therefore
 * use a fixed number of VEC_LANES partial sums, in as many registers as that takes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* SSE2 does not include <immintrin.h>: compilers take longer to read it than most kernels. */
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#ifndef CPU_LEVEL
#define CPU_LEVEL generic
#endif

#define CPU_FN_PASTE(name, level)  cpu_##name##_##level
#define CPU_FN_EXPAND(name, level) CPU_FN_PASTE(name, level)
#define CPU_FN(name)               CPU_FN_EXPAND(name, CPU_LEVEL)

#if defined(__AVX512F__)
#define VW 16
#elif defined(__AVX2__)
#define VW 8
#else
#define VW 4
#endif

/* VEC_ALL: bits of all lanes. VEC_EVEN: even lanes of two vectors, for shuffles. */
#define VEC_ALL ((1u << VW) - 1)
#if VW == 16
#define VEC_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#elif VW == 8
#define VEC_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#else
#define VEC_EVEN 0, 2, 4, 6
#endif

#define VEC_LANES 32
#define VEC_REGS  (VEC_LANES / VW)

/* With a sanitizer's checks, unrolled loops would take compilers minutes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VEC_IS_SANITIZED true
#define VEC_UNROLL
#else
#define VEC_IS_SANITIZED false
#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

/*
 * Put this before a loop whose output may be the memory of an operand, if each element depends only
 * on operands of the same index.
 */
#if defined(__clang__)
#define CPU_INDEPENDENT _Pragma("clang loop vectorize(enable)")
#else
#define CPU_INDEPENDENT _Pragma("GCC ivdep")
#endif

/*
 * Kernels are inlined, so that the compiler builds each for its constant arguments. With a
 * sanitizer GCC calls them instead: inlined, the window kernels alone took a third of the build's
 * time. Clang does not define these macros, and always inlines.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VEC_INLINE static inline
#else
#define VEC_INLINE static inline __attribute__((always_inline))
#endif

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef uint32_t vu __attribute__((vector_size(VW * 4)));
typedef float vf_unaligned __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

/* Set all lanes. value - 0 is value, even if negative zero, so the compiler does not subtract. */
VEC_INLINE vf vf_set(float value)
{
	return value - (vf){0};
}

VEC_INLINE vf vf_load(const float *from)
{
	return *(const vf_unaligned *)from;
}

VEC_INLINE void vf_store(float *to, vf value)
{
	*(vf_unaligned *)to = value;
}

/* Select, per lane, @a where @mask (all ones or zero) is set, else @b. */
VEC_INLINE vf vf_select(vi mask, vf a, vf b)
{
	return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

#if VW == 16

/* Load the lanes of @bits; the other lanes are 0 and their memory is not touched. */
VEC_INLINE vf vf_load_lanes(const float *from, uint32_t bits)
{
	return (vf)_mm512_maskz_loadu_ps((__mmask16)bits, from);
}

/* Load the first @n (0..VW) elements; the other lanes are 0 and their memory is not touched. */
VEC_INLINE vf vf_load_partial(const float *from, size_t n)
{
	return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
}

VEC_INLINE void vf_store_partial(float *to, vf value, size_t n)
{
	_mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)value);
}

VEC_INLINE bool vi_any(vi mask)
{
	return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}

#elif VW == 8

VEC_INLINE vf vf_load_lanes(const float *from, uint32_t bits)
{
	const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	const __m256i has = _mm256_and_si256(_mm256_set1_epi32((int)bits), bit);

	return (vf)_mm256_maskload_ps(from, _mm256_cmpeq_epi32(has, bit));
}

VEC_INLINE __m256i vf_partial_mask(size_t n)
{
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

VEC_INLINE vf vf_load_partial(const float *from, size_t n)
{
	return (vf)_mm256_maskload_ps(from, vf_partial_mask(n));
}

VEC_INLINE void vf_store_partial(float *to, vf value, size_t n)
{
	_mm256_maskstore_ps(to, vf_partial_mask(n), (__m256)value);
}

VEC_INLINE bool vi_any(vi mask)
{
	return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
}

#else

VEC_INLINE vf vf_load_lanes(const float *from, uint32_t bits)
{
	vf value = {0};

	if (bits == VEC_ALL)
		return vf_load(from);
	for (size_t i = 0; i < VW; i++)
		if (bits >> i & 1)
			value[i] = from[i];
	return value;
}

VEC_INLINE vf vf_load_partial(const float *from, size_t n)
{
	vf value = {0};

	if (n >= VW)
		return vf_load(from);
	for (size_t i = 0; i < n; i++)
		value[i] = from[i];
	return value;
}

VEC_INLINE void vf_store_partial(float *to, vf value, size_t n)
{
	if (n >= VW) {
		vf_store(to, value);
		return;
	}
	for (size_t i = 0; i < n; i++)
		to[i] = value[i];
}

VEC_INLINE bool vi_any(vi mask)
{
#if defined(__SSE2__)
	return _mm_movemask_epi8((__m128i)mask) != 0;
#else
	return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

#endif

/*
 * Store a row of a register tile: @nv vectors, 1 or 2; of the last one only the first @rest lanes.
 */
VEC_INLINE void vf_store_row(const size_t nv, float *to, const vf row[2], size_t rest)
{
	if (nv == 2)
		vf_store(to, row[0]);
	if (rest == VW)
		vf_store(to + (nv - 1) * VW, row[nv - 1]);
	else
		vf_store_partial(to + (nv - 1) * VW, row[nv - 1], rest);
}

/* Transpose four rows of four: out[i][j] = in[j][i]. */
VEC_INLINE void v4_transpose(const v4 in[4], v4 out[4])
{
	const v4 a = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
	const v4 b = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
	const v4 c = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
	const v4 d = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);

	out[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
	out[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
	out[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
	out[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/* Move lane i + @by to lane i; the last @by lanes are arbitrary. */
VEC_INLINE vf vf_down(vf v, const unsigned int by)
{
#if VW == 16
	if (by == 8)
		return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12,
					       13, 14, 15);
	if (by == 4)
		return __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 12, 13, 14, 15, 12, 13,
					       14, 15);
	if (by == 2)
		return __builtin_shufflevector(v, v, 2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15,
					       14, 15);
	return __builtin_shufflevector(v, v, 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15);
#elif VW == 8
	if (by == 4)
		return __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7);
	if (by == 2)
		return __builtin_shufflevector(v, v, 2, 3, 2, 3, 6, 7, 6, 7);
	return __builtin_shufflevector(v, v, 1, 1, 3, 3, 5, 5, 7, 7);
#else
	if (by == 2)
		return __builtin_shufflevector(v, v, 2, 3, 2, 3);
	return __builtin_shufflevector(v, v, 1, 1, 3, 3);
#endif
}

/*
 * Fold VEC_LANES partial results into one by @merge, halves onto halves, in the same order at every
 * level.
 */
#define VEC_FOLD(acc, merge)                                                                  \
	do {                                                                                  \
		VEC_UNROLL                                                                    \
		for (size_t fold_n = VEC_REGS / 2; fold_n > 0; fold_n /= 2) {                 \
			VEC_UNROLL                                                            \
			for (size_t fold_v = 0; fold_v < fold_n; fold_v++)                    \
				(acc)[fold_v] = merge((acc)[fold_v], (acc)[fold_v + fold_n]); \
		}                                                                             \
		VEC_UNROLL                                                                    \
		for (unsigned int fold_by = VW / 2; fold_by > 0; fold_by /= 2)                \
			(acc)[0] = merge((acc)[0], vf_down((acc)[0], fold_by));               \
	} while (0)

VEC_INLINE vf vf_add(vf a, vf b)
{
	return a + b;
}

/* Sum VEC_LANES partial sums, in the same order at every level. */
VEC_INLINE float vec_sum(const vf acc[VEC_REGS])
{
	vf sums[VEC_REGS];

	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++)
		sums[v] = acc[v];
	VEC_FOLD(sums, vf_add);
	return sums[0][0];
}

/* Return the lane numbers. */
VEC_INLINE vi vi_lanes(void)
{
#if VW == 16
	return (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif VW == 8
	return (vi){0, 1, 2, 3, 4, 5, 6, 7};
#else
	return (vi){0, 1, 2, 3};
#endif
}

/* Return all ones in the lanes of @bits. */
VEC_INLINE vi vi_of_lanes(uint32_t bits)
{
	return ((((vi){0} + 1) << vi_lanes()) & (int32_t)bits) != 0;
}

/* Return all ones in the first @n lanes. */
VEC_INLINE vi vi_first(size_t n)
{
	return vi_lanes() < (int32_t)n;
}
