#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Mathematical functions over vectors
 *
 * Included by the kernel sources only, after vec.h. libm takes one number at a time. These
 * functions take VW numbers, without a branch on the data except for a sine's very large arguments.
 * Each reduces its argument to an interval around zero and evaluates a polynomial there that
 * interpolates the function at Chebyshev nodes. Infinities, zeros and NaNs give what C's annex F
 * says of libm's function, unless the function's comment says otherwise.
 *
 * Errors in units in the last place: the largest found over 80,000 arguments of all binades against
 * libm in double precision. tests/unit/test-cpu-math.c checks these bounds:
 *
 *   exp .9    log .75   sin cos 1.5      asin 1.9         sinh tanh 2.1    erf 1.1
 *   expm1 1.5 log1p 1.5 tan 2.9          acos atan 1.05   cosh 1.2         sqrt, roundings: exact
 *   pow .51   sigmoid 2 asinh acosh 1.6  atanh 2.1        normal_cdf 7 (from -4 up)
 *
 * A sigmoid that would be denormal is 0. Denormal results are rounded as the thread's control
 * register says.
 */
#include <math.h>

#include "cpu/vec.h"

/* Masks: the results of comparisons and operands of vf_pick(); mask register bits on AVX-512. */
#if VW == 16

typedef __mmask16 vm;

VEC_INLINE vm vm_lt(vf a, vf b)
{
	return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
}

VEC_INLINE vm vm_eq(vf a, vf b)
{
	return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ);
}

/* Return the lanes of @bits that are not 0. */
VEC_INLINE vm vm_test(vi bits)
{
	return _mm512_test_epi32_mask((__m512i)bits, (__m512i)bits);
}

VEC_INLINE bool vm_any(vm mask)
{
	return mask != 0;
}

VEC_INLINE vf vf_pick(vm mask, vf a, vf b)
{
	return (vf)_mm512_mask_blend_ps(mask, (__m512)b, (__m512)a);
}

/* a < b ? a : b; hence b where either is a NaN */
VEC_INLINE vf vf_min(vf a, vf b)
{
	return (vf)_mm512_min_ps((__m512)a, (__m512)b);
}

/* a > b ? a : b */
VEC_INLINE vf vf_max(vf a, vf b)
{
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

VEC_INLINE vf vf_sqrt(vf x)
{
	return (vf)_mm512_sqrt_ps((__m512)x);
}

/*
 * Round to an integer: vf_rint() to the nearest, ties to even; vf_floor() down. The sign of a zero
 * stays.
 */
VEC_INLINE vf vf_rint(vf x)
{
	return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VEC_INLINE vf vf_floor(vf x)
{
	return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

#else

typedef vi vm;

VEC_INLINE vm vm_lt(vf a, vf b)
{
	return (vi)(a < b);
}

VEC_INLINE vm vm_eq(vf a, vf b)
{
	return (vi)(a == b);
}

VEC_INLINE vm vm_test(vi bits)
{
	return (vi)(bits != 0);
}

VEC_INLINE bool vm_any(vm mask)
{
	return vi_any(mask);
}

#if VW == 8

VEC_INLINE vf vf_pick(vm mask, vf a, vf b)
{
	return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
}

VEC_INLINE vf vf_min(vf a, vf b)
{
	return (vf)_mm256_min_ps((__m256)a, (__m256)b);
}

VEC_INLINE vf vf_max(vf a, vf b)
{
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}

VEC_INLINE vf vf_sqrt(vf x)
{
	return (vf)_mm256_sqrt_ps((__m256)x);
}

VEC_INLINE vf vf_rint(vf x)
{
	return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VEC_INLINE vf vf_floor(vf x)
{
	return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

#else

VEC_INLINE vf vf_pick(vm mask, vf a, vf b)
{
	return vf_select(mask, a, b);
}

VEC_INLINE vf vf_min(vf a, vf b)
{
#if defined(__SSE2__)
	return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
	return vf_select((vi)(a < b), a, b);
#endif
}

VEC_INLINE vf vf_max(vf a, vf b)
{
#if defined(__SSE2__)
	return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
	return vf_select((vi)(a > b), a, b);
#endif
}

VEC_INLINE vf vf_sqrt(vf x)
{
#if defined(__SSE2__)
	return (vf)_mm_sqrt_ps((__m128)x);
#else
	for (size_t i = 0; i < VW; i++)
		x[i] = __builtin_sqrtf(x[i]);
	return x;
#endif
}

/* From 2^23 on, every float is an integer. Adding 2^23 to a smaller one rounds off its fraction. */
VEC_INLINE vf vf_rint(vf x)
{
	const vi sign = (vi)x & INT32_MIN;
	const vf a = (vf)((vi)x & INT32_MAX), limit = vf_set(8388608.0f);
	const vf rounded = a + limit - limit;

	return (vf)((vi)vf_select((vi)(a < limit), rounded, a) | sign);
}

VEC_INLINE vf vf_floor(vf x)
{
	const vi sign = (vi)x & INT32_MIN;
	const vf rounded = vf_rint(x);

	return (vf)((vi)vf_select((vi)(rounded > x), rounded - 1, rounded) | sign);
}

#endif
#endif

VEC_INLINE vf vf_ceil(vf x)
{
	return -vf_floor(-x);
}

VEC_INLINE vf vf_abs(vf x)
{
	return (vf)((vi)x & INT32_MAX);
}

VEC_INLINE vi vf_sign(vf x)
{
	return (vi)x & INT32_MIN;
}

/* Return @magnitude, which is not negative, with the sign of @sign. */
VEC_INLINE vf vf_signed(vf magnitude, vi sign)
{
	return (vf)((vi)magnitude | sign);
}

/* a * b + c in one rounding where the level has fused multiply-add, else in two */
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if VW == 16
	return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VW == 8
	return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
	return a * b + c;
#endif
}

/* Evaluate the polynomial with these coefficients, the highest power's first. */
#define VF_POLY(x, ...)                            \
	vf_poly((x), (const float[]){__VA_ARGS__}, \
		sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

VEC_INLINE vf vf_poly(vf x, const float *coefficients, size_t n)
{
	vf p = vf_set(coefficients[0]);

	VEC_UNROLL
	for (size_t i = 1; i < n; i++)
		p = p * x + vf_set(coefficients[i]);
	return p;
}

/* x = n ln 2 + r with |r| <= ln 2 / 2. */
struct vf_reduced {
	vf n, r;
	vi i; /* n */
};

VEC_INLINE struct vf_reduced vf_reduce_exp(vf x)
{
	const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
	const vf z = x * vf_set(1.44269504088896341f) + magic;
	const vf n = z - magic;
	/* ln 2 is split into two parts, the first short enough for an exact product. */
	const vf r = x - n * vf_set(0x1.62e4p-1f);

	return (struct vf_reduced){
		.n = n, .r = r - n * vf_set(1.42860682031e-6f), .i = (vi)z - (vi)magic};
}

/* exp(r) - 1 for |r| <= ln 2 / 2 */
VEC_INLINE vf vf_expm1_small(vf r)
{
	return VF_POLY(r, 0.00139262508f, 0.00836323288f, 0.0416665542f, 0.166665767f, 0.5f) *
		       (r * r) +
	       r;
}

/* p * 2^n for |n| < 250, rounded once. */
VEC_INLINE vf vf_scale(vf p, vf n, vi i)
{
#if VW == 16
	return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
	/* Scale in two steps, the first of which is exact: both powers are normal numbers. */
	const vi half = i >> 1;

	return p * (vf)((half + 127) << 23) * (vf)((i - half + 127) << 23);
#endif
}

/* exp(x) * 2^shift for a small @shift; overflows only if the result does */
VEC_INLINE vf vf_exp_shifted(vf x, int shift)
{
	const vf t = vf_min(vf_set(90.0f), vf_max(vf_set(-105.0f), x));
	const struct vf_reduced e = vf_reduce_exp(t);

	return vf_scale(vf_expm1_small(e.r) + 1, e.n + (float)shift, e.i + shift);
}

VEC_INLINE vf vf_exp(vf x)
{
	return vf_exp_shifted(x, 0);
}

/* A result of 0 is positive. */
VEC_INLINE vf vf_expm1(vf x)
{
	const vf t = vf_min(vf_set(89.0f), vf_max(vf_set(-25.0f), x));
	const struct vf_reduced e = vf_reduce_exp(t);
	/* 2^n / 2: 2^n itself may overflow. */
	const vf scale = (vf)((e.i + 126) << 23);

	return 2 * (vf_expm1_small(e.r) * scale + (scale - 0.5f));
}

VEC_INLINE vf vf_log(vf x)
{
	const vm small = vm_lt(x, vf_set(0x1p-126f));
	const vf t = vf_pick(small, x * vf_set(0x1p23f), x);
	/*
	 * 0x3f3504f3 is sqrt(1/2). Numbers below 0 wrap around; their results are replaced below.
	 */
	const vi bits = (vi)((vu)t - 0x3f3504f3u);
	const vf e =
		__builtin_convertvector(bits >> 23, vf) - vf_pick(small, vf_set(23.0f), (vf){0});
	/* The mantissa is in [sqrt(1/2), sqrt(2)). */
	const vf f = (vf)((bits & 0x7fffff) + 0x3f3504f3) - 1;
	const vf p = VF_POLY(f, 0.0697161147f, -0.114797338f, 0.116854199f, -0.124256873f,
			     0.142490576f, -0.166678023f, 0.200007157f, -0.24999997f, 0.333333312f);
	const vf square = f * f;
	vf y = e * vf_set(1.42860682031e-6f) + p * f * square - 0.5f * square;

	y = y + f + e * vf_set(0x1.62e4p-1f);
	y = vf_pick(vm_lt(x, vf_set(INFINITY)), y, x);
	y = vf_pick(vm_lt(x, (vf){0}), vf_set(NAN), y);
	return vf_pick(vm_eq(t, (vf){0}), vf_set(-INFINITY), y);
}

/* log(1 + x): the rounding error of 1 + x is small; the derivative corrects for it. */
VEC_INLINE vf vf_log1p(vf x)
{
	const vf sum = x + 1;
	const vf lost = (x - (sum - 1)) / sum;
	const vf log = vf_log(sum);

	/* At x = -1 and x = inf, neither log nor lost is finite. */
	return vf_pick(vm_lt(vf_abs(log), vf_set(INFINITY)), log + lost, log);
}

VEC_INLINE vf vf_sigmoid(vf x)
{
	return 1 / (1 + vf_exp(-x));
}

VEC_INLINE vf vf_tanh(vf x)
{
	const vf e = vf_expm1(vf_min(vf_set(20.0f), 2 * vf_abs(x)));

	return vf_signed(e / (e + 2), vf_sign(x));
}

VEC_INLINE vf vf_sinh(vf x)
{
	const vf a = vf_abs(x);
	const vf e = vf_expm1(vf_min(vf_set(10.0f), a));

	/* From 9 on, exp(-a) is negligible beside exp(a). */
	return vf_signed(
		vf_pick(vm_lt(vf_set(9.0f), a), vf_exp_shifted(a, -1), 0.5f * (e + e / (e + 1))),
		vf_sign(x));
}

VEC_INLINE vf vf_cosh(vf x)
{
	const vf half = vf_exp_shifted(vf_abs(x), -1);

	return half + 0.25f / half;
}

/* Above 2^13, where a square may overflow, asinh(a) is log(a) + ln 2. */
VEC_INLINE vf vf_asinh(vf x)
{
	const vf a = vf_abs(x), square = a * a;
	const vm big = vm_lt(vf_set(8192.0f), a);
	const vf u = vf_pick(big, a - 1, a + square / (1 + vf_sqrt(square + 1)));

	return vf_signed(vf_log1p(u) + vf_pick(big, vf_set(0.693147181f), (vf){0}), vf_sign(x));
}

VEC_INLINE vf vf_acosh(vf x)
{
	const vf t = x - 1;
	const vm big = vm_lt(vf_set(8192.0f), x);
	const vf u = vf_pick(big, t, t + vf_sqrt(2 * t + t * t));
	const vf y = vf_log1p(u) + vf_pick(big, vf_set(0.693147181f), (vf){0});

	return vf_pick(vm_lt(x, vf_set(1.0f)), vf_set(NAN), y);
}

VEC_INLINE vf vf_atanh(vf x)
{
	const vf a = vf_abs(x);

	return vf_signed(0.5f * vf_log1p(2 * a / (1 - a)), vf_sign(x));
}

/* (asin(x) - x) / x for 0 <= x <= 1/2, by @z = x * x */
VEC_INLINE vf vf_asin_small(vf z)
{
	return z *
	       VF_POLY(z, 0.0380850236f, 0.0265545422f, 0.0450013801f, 0.0749885507f, 0.166666724f);
}

/* Above 1/2: asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2)), where the root of x > 1 is a NaN. */
VEC_INLINE vf vf_asin(vf x)
{
	const vf a = vf_abs(x);
	const vm big = vm_lt(vf_set(0.5f), a);
	const vf z = vf_pick(big, 0.5f * (1 - a), a * a);
	const vf s = vf_pick(big, vf_sqrt(z), a);
	const vf p = s + s * vf_asin_small(z);

	return (vf)((vi)vf_pick(big, 1.57079633f - (2 * p + 4.37113883e-8f), p) | vf_sign(x));
}

VEC_INLINE vf vf_acos(vf x)
{
	const vf a = vf_abs(x);
	const vm big = vm_lt(vf_set(0.5f), a);
	const vf z = vf_pick(big, 0.5f * (1 - a), a * a);
	const vf s = vf_pick(big, vf_sqrt(z), x);
	const vf p = s + s * vf_asin_small(z);
	const vf ends = vf_pick(vm_lt(x, (vf){0}), 3.14159265f - (2 * p + 8.74227766e-8f), 2 * p);

	return vf_pick(big, ends, 1.57079633f - (p + 4.37113883e-8f));
}

VEC_INLINE vf vf_atan(vf x)
{
	const vf a = vf_abs(x);
	const vm big = vm_lt(vf_set(1.0f), a);
	const vf t = vf_pick(big, -1 / a, a);
	const vf z = t * t;
	const vf p =
		VF_POLY(z, -0.00238699732f, 0.0135077714f, -0.035871539f, 0.0625016944f,
			-0.0865688043f, 0.110337641f, -0.142785687f, 0.199997393f, -0.333333317f);

	return vf_signed(
		vf_pick(big, vf_set(1.57079633f), (vf){0}) +
			(t + (t * (z * p) - vf_pick(big, vf_set(4.37113883e-8f), (vf){0}))),
		vf_sign(x));
}

/*
 * erfc(a) for a >= 0, where @square + @rest is -a * a: exp(-a * a) times a polynomial in 1 / (1 +
 * .3 a). Small results keep their relative precision.
 */
VEC_INLINE vf vf_erfc(vf a, vf square, vf rest)
{
	const vf w = 1 / (1 + 0.3f * a);
	const vf p =
		VF_POLY(w, -0.130419334f, 0.49020514f, -0.522535962f, 0.560327382f, -0.104055148f,
			0.219276235f, 0.147123141f, 0.170902715f, 0.169175812f, 0.0f);
	const vf e = vf_exp(square);

	return (e + e * rest) * p;
}

VEC_INLINE vf vf_erf(vf x)
{
	const vf a = vf_abs(x), t = vf_min(vf_set(10.0f), a), z = a * a;
	const vf p = VF_POLY(z, -0.000596731088f, 0.0049889060f, -0.0267639951f, 0.11281754f,
			     -0.37612489f, 0.12837915f);
	const vf y = vf_pick(vm_lt(a, vf_set(0.93f)), a + a * p, 1 - vf_erfc(t, -t * t, (vf){0}));

	return vf_signed(y, vf_sign(x));
}

/* The cumulative normal distribution at @x: (1 + erf(x / sqrt(2))) / 2. */
VEC_INLINE vf vf_normal_cdf(vf x)
{
	const vf a = vf_min(vf_set(14.5f), vf_abs(x)), half = -0.5f * a, square = a * half;
	const vf tail = 0.5f * vf_erfc(a * 0.707106781f, square, vf_fma(a, half, -square));

	return vf_pick(vm_lt(x, (vf){0}), tail, 1 - tail);
}
