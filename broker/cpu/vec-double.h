#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Vectors of float64 of one SIMD level: half as many as of float32. Included by the kernel sources
 * only; see vec.h.
 */
#include <stddef.h>

#include "cpu/vec.h"

#define VD (VW / 2)

typedef double vd __attribute__((vector_size(VD * 8)));
typedef int64_t vl __attribute__((vector_size(VD * 8)));
typedef double vd_unaligned __attribute__((vector_size(VD * 8), aligned(8), may_alias));

/* A difference, for the same reason as in vf_set(). */
VEC_INLINE vd vd_set(double value)
{
	return value - (vd){0};
}

VEC_INLINE vd vd_load(const double *from)
{
	return *(const vd_unaligned *)from;
}

VEC_INLINE void vd_store(double *to, vd value)
{
	*(vd_unaligned *)to = value;
}

/*
 * Return @a where it is larger than @b, else @b, also where either is a NaN. d_larger() uses the
 * same instruction, so that vectors and the scalar tail flush the same denormals.
 */
VEC_INLINE vd vd_larger(vd a, vd b)
{
#if VW == 16
	return (vd)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif VW == 8
	return (vd)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(__SSE2__)
	return (vd)_mm_max_pd((__m128d)a, (__m128d)b);
#else
	const vl mask = (vl)(a > b);

	return (vd)((mask & (vl)a) | (~mask & (vl)b));
#endif
}

VEC_INLINE double d_larger(double a, double b)
{
#if defined(__SSE2__)
	return _mm_cvtsd_f64(_mm_max_sd(_mm_set_sd(a), _mm_set_sd(b)));
#else
	return a > b ? a : b;
#endif
}

VEC_INLINE vd vd_abs(vd x)
{
	return (vd)((vl)x & INT64_MAX);
}

VEC_INLINE double d_muladd(double a, double b, double c)
{
#if defined(__FMA__)
	return __builtin_fma(a, b, c);
#else
	return a * b + c;
#endif
}

VEC_INLINE double d_sqrt(double x)
{
#if defined(__SSE2__)
	return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)));
#else
	return __builtin_sqrt(x);
#endif
}
