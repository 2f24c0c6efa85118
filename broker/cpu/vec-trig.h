#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Functions that compute in double precision internally: sine, cosine, tangent, power
 *
 * Included by the kernel sources only. A sine's argument is reduced by multiples of pi / 2, and the
 * remainder must have all its bits however close it is to zero. Below 2^20 doubles give that.
 * Above, the argument is multiplied by the relevant bits of 2 / pi, in integers (Payne and Hanek).
 * A power's logarithm is computed in double precision because it is multiplied by the exponent. For
 * errors see vec-math.h.
 */
#include "cpu/vec-double.h"
#include "cpu/vec-math.h"

/* the lanes of a vf as doubles */
struct vd2 {
	vd half[2];
};

VEC_INLINE struct vd2 vd_widen(vf x)
{
#if VW == 16
	return (struct vd2){{(vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x)),
			     (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1))}};
#elif VW == 8
	return (struct vd2){{(vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)),
			     (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1))}};
#elif defined(__SSE2__)
	return (struct vd2){{(vd)_mm_cvtps_pd((__m128)x),
			     (vd)_mm_cvtps_pd(_mm_movehl_ps((__m128)x, (__m128)x))}};
#else
	return (struct vd2){{(vd){(double)x[0], (double)x[1]}, (vd){(double)x[2], (double)x[3]}}};
#endif
}

VEC_INLINE vf vd_narrow(struct vd2 x)
{
#if VW == 16
	return (vf)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)x.half[0])),
				      _mm512_cvtpd_ps((__m512d)x.half[1]), 1);
#elif VW == 8
	return (vf)_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)x.half[0])),
					_mm256_cvtpd_ps((__m256d)x.half[1]), 1);
#elif defined(__SSE2__)
	return (vf)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)x.half[0]),
				 _mm_cvtpd_ps((__m128d)x.half[1]));
#else
	return (vf){(float)x.half[0][0], (float)x.half[0][1], (float)x.half[1][0],
		    (float)x.half[1][1]};
#endif
}

#define VD_MAGIC 0x1.8p52 /* adding it rounds a double to an integer */

/* x = quadrant * pi / 2 + r, |r| about pi / 4 at most. */
struct vf_angle {
	vf r;
	vi quadrant; /* the last two bits count */
};

/* Reduce the angle x, finite and >= 1. Return: r; the quadrant's last two bits in *ret. */
VEC_INLINE float f_reduce_angle(float x, int32_t *ret)
{
	static const uint32_t two_over_pi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
					       0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
	uint32_t bits, w[3];
	uint64_t product;

	memcpy(&bits, &x, sizeof(bits));
	/*
	 * x is an integer of 24 bits times 2^e. Skip the bits of 2 / pi that give whole turns; take
	 * the next 96 bits. Of their product with the integer, 64 bits matter.
	 */
	const uint64_t mantissa = (bits & 0x7fffff) | 0x800000;
	const unsigned int at = (bits >> 23) - 150 + 30, shift = at % 32;

	for (unsigned int i = 0; i < 3; i++) {
		const uint64_t pair =
			(uint64_t)two_over_pi[at / 32 + i] << 32 | two_over_pi[at / 32 + i + 1];

		w[i] = (uint32_t)(pair >> (32 - shift));
	}
	product = ((mantissa * w[0]) << 32) + mantissa * w[1] + (mantissa * w[2] >> 32);
	const uint64_t quadrant = (product + (UINT64_C(1) << 61)) >> 62;

	*ret = (int32_t)(quadrant & 3);
	return (float)((double)(int64_t)(product - (quadrant << 62)) *
		       (1.5707963267948966 * 0x1p-62));
}

/* Reduce the angles x >= 0. For infinities and NaNs the result is arbitrary. */
VEC_INLINE struct vf_angle vf_reduce_angle(vf x)
{
	const vm big = vm_lt(vf_set(0x1p20f), x);
	const vf magic = vf_set(12582912.0f);
	struct vd2 value = vd_widen(x), turns;
	struct vf_angle angle;

	VEC_UNROLL
	for (unsigned int h = 0; h < 2; h++) {
		const vd v = value.half[h];
		const vd n = v * 0.63661977236758134 + VD_MAGIC - VD_MAGIC;

		/* pi / 2 is split into two parts, the first short enough for an exact product. */
		value.half[h] = v - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34;
		turns.half[h] = n;
	}
	angle.r = vd_narrow(value);
	angle.quadrant = (vi)(vd_narrow(turns) + magic);
	if (__builtin_expect(vm_any(big), 0)) {
		for (unsigned int lane = 0; lane < VW; lane++) {
			int32_t quadrant;

			if (x[lane] > 0x1p20f && x[lane] < INFINITY) {
				angle.r[lane] = f_reduce_angle(x[lane], &quadrant);
				angle.quadrant[lane] = quadrant;
			}
		}
	}
	return angle;
}

VEC_INLINE vf vf_sin_small(vf r)
{
	const vf z = r * r;

	return r +
	       r * (z * VF_POLY(z, 2.72468687e-6f, -0.00019840063f, 0.00833333183f, -0.166666667f));
}

VEC_INLINE vf vf_cos_small(vf r)
{
	const vf z = r * r;

	return 1 - (0.5f * z - z * z * VF_POLY(z, 2.45454191e-5f, -0.00138882913f, 0.0416666646f));
}

/* The sine of infinity is a NaN, from inf - inf. */
VEC_INLINE vf vf_sin(vf x)
{
	const vf a = vf_abs(x);
	const struct vf_angle angle = vf_reduce_angle(a);
	const vf y =
		vf_pick(vm_test(angle.quadrant & 1), vf_cos_small(angle.r), vf_sin_small(angle.r));
	const vi sign = vf_sign(x) ^ (vi)((vu)angle.quadrant << 30);

	return vf_pick(vm_lt(a, vf_set(INFINITY)), (vf)((vi)y ^ (sign & INT32_MIN)), x - x);
}

VEC_INLINE vf vf_cos(vf x)
{
	const vf a = vf_abs(x);
	const struct vf_angle angle = vf_reduce_angle(a);
	const vf y =
		vf_pick(vm_test(angle.quadrant & 1), vf_sin_small(angle.r), vf_cos_small(angle.r));
	/* The quadrant of a number that is not finite is arbitrary. */
	const vi sign = (vi)(((vu)angle.quadrant + 1) << 30);

	return vf_pick(vm_lt(a, vf_set(INFINITY)), (vf)((vi)y ^ (sign & INT32_MIN)), x - x);
}

VEC_INLINE vf vf_tan(vf x)
{
	const vf a = vf_abs(x);
	const struct vf_angle angle = vf_reduce_angle(a);
	const vf s = vf_sin_small(angle.r), c = vf_cos_small(angle.r);
	const vm odd = vm_test(angle.quadrant & 1);
	const vf y = vf_pick(odd, -c, s) / vf_pick(odd, s, c);

	return vf_pick(vm_lt(a, vf_set(INFINITY)), (vf)((vi)y ^ vf_sign(x)), x - x);
}

/* log2(x) for normal x > 0 */
VEC_INLINE vd vd_log2(vd x)
{
	const vl bits = (vl)x - 0x3fe6a09e667f3bcd; /* the bits of sqrt(1/2) */
	/* Convert the exponent by inserting it into the bits of a double. */
	const vd e = (vd)((vl)((vl)((uint64_t __attribute__((vector_size(VW * 4)))) bits >> 52) ^
			       0x800) |
			  0x4330000000000000) -
		     (0x1p52 + 0x800);
	const vd m = (vd)((bits & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
	const vd s = (m - 1) / (m + 1), z = s * s;
	vd p = (vd){0} + 0.340753967611876426;

	p = p * z + 0.411671606202406928;
	p = p * z + 0.577083600061584936;
	p = p * z + 0.961796673284573007;
	p = p * z + 2.88539008179010975;
	return p * s + e;
}

/* 2^x for |x| < 1000 */
VEC_INLINE vd vd_exp2(vd x)
{
	const vd z = x + VD_MAGIC, f = x - (z - VD_MAGIC);
	vd p = (vd){0} + 1.53037007113656939e-5;

	p = p * f + 0.000154697291141182971;
	p = p * f + 0.00133334784736854153;
	p = p * f + 0.00961802561331803425;
	p = p * f + 0.0555041090632586661;
	p = p * f + 0.240226512134980927;
	p = p * f + 0.693147180556832414;
	p = p * f + 0.999999999959561751;
	return p * (vd)(((vl)z << 52) + 0x3ff0000000000000);
}

/* x^y for x > 0, finite, normal as a double */
VEC_INLINE vf vf_pow_positive(vf x, vf y)
{
	struct vd2 base = vd_widen(x);
	const struct vd2 exponent = vd_widen(y);

	VEC_UNROLL
	for (unsigned int h = 0; h < 2; h++) {
		vd t = vd_log2(base.half[h]) * exponent.half[h];

		/* Clamp t to [-400, 400], beyond any float's logarithm; NaNs stay. */
		t = (vd)(((vl)t & ~(vl)(t > 400.0)) | ((vl)((vd){0} + 400.0) & (vl)(t > 400.0)));
		t = (vd)(((vl)t & ~(vl)(t < -400.0)) | ((vl)((vd){0} - 400.0) & (vl)(t < -400.0)));
		base.half[h] = vd_exp2(t);
	}
	return vd_narrow(base);
}

VEC_INLINE vf vf_pow(vf x, vf y)
{
	const vf zero = {0}, one = vf_set(1.0f), infinity = vf_set(INFINITY);
	const vf a = vf_abs(x), b = vf_abs(y);
	/* From 2^24 on, every float is an even integer. */
	const vf half = 0.5f * b;
	const vm whole = vm_eq(vf_floor(y), y), even = vm_eq(vf_floor(half), half);
	const vf ends = vf_pick(vm_lt(y, zero), infinity, zero);
	vf power = vf_pow_positive(a, y);
	vf sign;

	/* One to any power; then 0 and infinity, which vf_pow_positive() does not handle. */
	power = vf_pick(vm_eq(a, one), one, power);
	power = vf_pick(vm_eq(a, zero), ends, power);
	power = vf_pick(vm_eq(a, infinity), vf_pick(vm_lt(y, zero), zero, infinity), power);
	/* Powers of negative numbers. */
	sign = vf_pick(whole, vf_pick(even, zero, -zero), zero);
	power = (vf)((vi)power | ((vi)sign & (vi)x));
	power = vf_pick(vm_lt(x, zero),
			vf_pick(whole, power, vf_pick(vm_lt(a, infinity), vf_set(NAN), power)),
			power);
	/* NaNs stay, except to the power of 0 or as an exponent of 1. */
	power = vf_pick(vm_eq(a, a), vf_pick(vm_eq(y, y), power, y), x);
	power = vf_pick(vm_eq(x, one), one, power);
	return vf_pick(vm_eq(y, zero), one, power);
}
