#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Exponentials and logarithms of vectors
 *
 * These are polynomials of our own, because libm's functions take one number at a time. Included by
 * the kernel sources only. Levels that fuse give the same bits.
 */
#include <math.h>

#include "cpu/vec.h"

/*
 * exp(x) for x <= 0 or NaN, to about 1 unit in the last place; 0 where the result would be
 * denormal. x = n ln 2 + r with |r| <= ln 2 / 2. exp(r) is its Taylor series up to the seventh
 * power, whose remainder is below 2^-24; 2^n is built from its bits.
 */
VEC_INLINE vf vf_exp_neg(vf x)
{
	const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
	const vf least = vf_set(-87.0f);
	const vi small = (vi)(x < least);
	const vf t = vf_select(small, least, x);
	const vf z = t * vf_set(1.44269504088896341f) + magic;
	const vf n = z - magic;
	/* ln 2 is split into two parts, the first short enough for an exact product. */
	vf r = t - n * vf_set(0.693359375f);
	vf p = vf_set(1.0f / 5040);

	r = r - n * vf_set(-2.12194440e-4f);
	p = p * r + vf_set(1.0f / 720);
	p = p * r + vf_set(1.0f / 120);
	p = p * r + vf_set(1.0f / 24);
	p = p * r + vf_set(1.0f / 6);
	p = p * r + vf_set(0.5f);
	p = p * r + vf_set(1);
	p = p * r + vf_set(1);
	/* The low bits of z are n. For a NaN the power is arbitrary, and the product is a NaN. */
	p = p * (vf)(((vu)z << 23) + (127u << 23));
	return vf_select(small, (vf){0}, p);
}

/*
 * ln(x): x = m 2^e with m from sqrt(1/2) to sqrt(2); ln(m) is a polynomial in m - 1. Denormals
 * count as zeros, whose logarithm is -inf.
 */
VEC_INLINE vf vf_log(vf x)
{
	const vu bits = (vu)x - 0x3f3504f3u; /* the bits of sqrt(1/2) */
	const vi e = (vi)bits >> 23;
	const vf m = (vf)((bits & 0x7fffffu) + 0x3f3504f3u);
	const vf n = __builtin_convertvector(e, vf);
	const vf r = m - vf_set(1), r2 = r * r;
	const vf inf = vf_set(INFINITY);
	vf p = vf_set(7.0376836292e-2f), y;

	p = p * r + vf_set(-1.1514610310e-1f);
	p = p * r + vf_set(1.1676998740e-1f);
	p = p * r + vf_set(-1.2420140846e-1f);
	p = p * r + vf_set(1.4249322787e-1f);
	p = p * r + vf_set(-1.6668057665e-1f);
	p = p * r + vf_set(2.0000714765e-1f);
	p = p * r + vf_set(-2.4999993993e-1f);
	p = p * r + vf_set(3.3333331174e-1f);
	y = p * r * r2;
	y = y + n * vf_set(-2.12194440e-4f);
	y = y - r2 * vf_set(0.5f);
	y = (r + y) + n * vf_set(0.693359375f);
	y = vf_select((vi)(x < vf_set(1.17549435e-38f)), -inf, y);
	y = vf_select((vi)(x < (vf){0}), inf - inf, y);
	/* +inf and NaNs are returned unchanged. */
	return vf_select((vi)(x < inf) | (vi)(x < (vf){0}), y, x + x);
}

VEC_INLINE float f_exp_neg(float x)
{
	return vf_exp_neg(vf_set(x))[0];
}

/* tanh(x): a polynomial near 0, where the quotient of exponentials would lose precision. */
VEC_INLINE vf vf_tanh(vf x)
{
	const vu sign = (vu)x & 0x80000000u;
	const vf a = (vf)((vu)x & 0x7fffffffu), a2 = a * a;
	const vf e = vf_exp_neg(a * vf_set(-2));
	const vf far = (vf_set(1) - e) / (vf_set(1) + e);
	vf p = vf_set(-5.70498872745e-3f);

	p = p * a2 + vf_set(2.06390887954e-2f);
	p = p * a2 + vf_set(-5.37397155531e-2f);
	p = p * a2 + vf_set(1.33314422036e-1f);
	p = p * a2 + vf_set(-3.33332819422e-1f);
	p = p * a2 * a + a;
	return (vf)((vu)vf_select((vi)(a < vf_set(0.625f)), p, far) | sign);
}

VEC_INLINE vf vf_sqrt(vf x)
{
#if VW == 16
	return (vf)_mm512_sqrt_ps((__m512)x);
#elif VW == 8
	return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
	return (vf)_mm_sqrt_ps((__m128)x);
#else
	for (size_t i = 0; i < VW; i++)
		x[i] = __builtin_sqrtf(x[i]);
	return x;
#endif
}

VEC_INLINE float f_sqrt(float x)
{
#if defined(__SSE2__)
	return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#else
	return __builtin_sqrtf(x);
#endif
}
