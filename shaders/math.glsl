/* SPDX-License-Identifier: MIT */
/*
 * Mathematical functions
 *
 * GLSL's own functions may be less precise than results require (a sine is good only near zero, a
 * logarithm is poor near one), and leave infinities, zeros and NaNs undefined. These are the
 * functions of broker/cpu/vec-math.h, with the same polynomials, for four numbers at a time. That
 * file also states their results for special values. Comparisons select these results, so that no
 * compiler may assume that a value is a number. Include exp.glsl, which has the exponential
 * function, first.
 */
#define INF uintBitsToFloat(0x7f800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7fc00000u)

bvec4 is_finite4(vec4 x)
{
	return lessThan(floatBitsToUint(x) & 0x7fffffffu, uvec4(0x7f800000u));
}

/*
 * Divide. The reciprocal of a nearly maximal number may be flushed, so both operands are scaled
 * down.
 */
vec4 divide(vec4 a, vec4 b)
{
	vec4 scale = mix(vec4(1.0), vec4(5.9604645e-8), greaterThan(magnitude(b), vec4(1.2676506e30)));

	return (a * scale) / (b * scale);
}

vec4 root(vec4 x)
{
	vec4 y = mix(x, sqrt(x), lessThan(vec4(0.0), x));

	y = mix(vec4(INF), y, lessThan(x, vec4(INF)));
	y = mix(y, vec4(NOT_A_NUMBER), lessThan(x, vec4(0.0)));
	return mix(y, x, is_nan4(x));
}

vec4 log_of(vec4 x)
{
	bvec4 small = lessThan(x, vec4(1.17549435e-38));
	vec4 t = mix(x, x * 8388608.0, small);
	ivec4 bits = floatBitsToInt(t) - 0x3f3504f3;
	vec4 e = vec4(bits >> 23) - mix(vec4(0.0), vec4(23.0), small);
	vec4 f = intBitsToFloat((bits & 0x7fffff) + 0x3f3504f3) - 1.0;
	vec4 p = ((((((((0.0697161147 * f - 0.114797338) * f + 0.116854199) * f - 0.124256873) * f +
		      0.142490576) * f - 0.166678023) * f + 0.200007157) * f - 0.24999997) * f +
		  0.333333312);
	vec4 square = f * f;
	vec4 y = e * 1.42860682031e-6 + p * f * square - 0.5 * square;

	y = y + f + e * 0.693145751953125;
	y = mix(x, y, lessThan(x, vec4(INF)));
	y = mix(y, vec4(NOT_A_NUMBER), lessThan(x, vec4(0.0)));
	y = mix(y, vec4(-INF), equal(t, vec4(0.0)));
	return mix(y, x, is_nan4(x));
}

vec4 log1p_of(vec4 x)
{
	precise vec4 sum = x + 1.0;
	precise vec4 back = sum - 1.0;
	precise vec4 rest = x - back;
	vec4 y = log_of(sum);

	return mix(y, y + rest / sum, is_finite4(y));
}

vec4 sinh_of(vec4 x)
{
	vec4 a = magnitude(x), e = expm1_of(lesser(vec4(10.0), a));

	return with_sign(mix(0.5 * (e + e / (e + 1.0)), exp_shifted(a, -1.0),
			     lessThan(vec4(9.0), a)),
			 x);
}

vec4 cosh_of(vec4 x)
{
	vec4 part = exp_shifted(magnitude(x), -1.0);

	return part + divide(vec4(0.25), part);
}

vec4 asinh_of(vec4 x)
{
	vec4 a = magnitude(x), square = a * a;
	bvec4 big = lessThan(vec4(8192.0), a);
	vec4 u = mix(a + square / (1.0 + sqrt(square + 1.0)), a - 1.0, big);

	return with_sign(log1p_of(u) + mix(vec4(0.0), vec4(0.693147181), big), x);
}

vec4 acosh_of(vec4 x)
{
	vec4 t = x - 1.0;
	bvec4 big = lessThan(vec4(8192.0), x);
	vec4 u = mix(t + root(2.0 * t + t * t), t, big);
	vec4 y = log1p_of(u) + mix(vec4(0.0), vec4(0.693147181), big);

	return mix(y, vec4(NOT_A_NUMBER), lessThan(x, vec4(1.0)));
}

vec4 atanh_of(vec4 x)
{
	vec4 a = magnitude(x), u = mix(2.0 * a / (1.0 - a), vec4(INF), equal(a, vec4(1.0)));

	return with_sign(0.5 * log1p_of(u), x);
}

vec4 asin_small(vec4 z)
{
	return z * ((((0.0380850236 * z + 0.0265545422) * z + 0.0450013801) * z + 0.0749885507) * z +
		    0.166666724);
}

vec4 asin_of(vec4 x)
{
	vec4 a = magnitude(x);
	bvec4 big = lessThan(vec4(0.5), a);
	vec4 z = mix(a * a, 0.5 * (1.0 - a), big), s = mix(a, root(z), big);
	vec4 p = s + s * asin_small(z);

	return with_sign(mix(p, 1.57079633 - 2.0 * p, big), x);
}

vec4 acos_of(vec4 x)
{
	vec4 a = magnitude(x);
	bvec4 big = lessThan(vec4(0.5), a);
	vec4 z = mix(a * a, 0.5 * (1.0 - a), big), s = mix(x, root(z), big);
	vec4 p = s + s * asin_small(z);
	vec4 ends = mix(2.0 * p, 3.14159265 - 2.0 * p, lessThan(x, vec4(0.0)));

	return mix(1.57079633 - p, ends, big);
}

vec4 atan_of(vec4 x)
{
	vec4 a = magnitude(x);
	bvec4 big = lessThan(vec4(1.0), a);
	vec4 t = mix(a, -divide(vec4(1.0), a), big), z = t * t;
	vec4 p = ((((((((-0.00238699732 * z + 0.0135077714) * z - 0.035871539) * z + 0.0625016944) * z -
		      0.0865688043) * z + 0.110337641) * z - 0.142785687) * z + 0.199997393) * z -
		  0.333333317);

	return with_sign(mix(vec4(0.0), vec4(1.57079633), big) + (t + t * (z * p)), x);
}

vec4 erf_of(vec4 x)
{
	vec4 a = magnitude(x), t = lesser(vec4(10.0), a), z = a * a;
	vec4 p = (((((-0.000596731088 * z + 0.0049889060) * z - 0.0267639951) * z + 0.11281754) * z -
		   0.37612489) * z + 0.12837915);

	return with_sign(mix(1.0 - erfc_of(t, -t * t, vec4(0.0)), a + a * p, lessThan(a, vec4(0.93))),
			 x);
}

/*
 * Reduce finite x >= 0 to quadrant * pi / 2 + r, with |r| about pi / 4 at most. The relevant bits
 * of 2 / pi are multiplied by x's bits (Payne and Hanek).
 */
uint reduce_angle(float x, out float r)
{
	const uint two_over_pi[8] = uint[](0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
					   0xdb629599u, 0x3c439041u, 0xfe5163abu);
	uint bits = floatBitsToUint(x), place = (bits >> 23) - 120u, shift = place & 31u, quadrant;
	uint mantissa = (bits & 0x7fffffu) | 0x800000u, w[3];
	uint64_t product;

	if (x < 0.785398) {
		r = x;
		return 0u;
	}
	[[unroll]] for (uint i = 0; i < 3; i++) {
		uint high = two_over_pi[min(place / 32u + i, 7u)];
		uint low = two_over_pi[min(place / 32u + i + 1u, 7u)];

		w[i] = shift == 0u ? high : high << shift | low >> (32u - shift);
	}
	product = (uint64_t(mantissa * w[0]) << 32) + uint64_t(mantissa) * uint64_t(w[1]) +
		  (uint64_t(mantissa) * uint64_t(w[2]) >> 32);
	quadrant = uint((product + (1ul << 61)) >> 62);
	product -= uint64_t(quadrant) << 62;
	r = (float(int(uint(product >> 32))) * 4294967296.0 + float(uint(product & 0xfffffffful))) *
	    3.40612158e-19;
	return quadrant;
}

/* Reduce four angles >= 0; infinities and NaNs count as 0. */
void reduce_angles(vec4 x, out vec4 r, out uvec4 quadrant)
{
	[[unroll]] for (uint i = 0; i < 4; i++)
		quadrant[i] = reduce_angle(x[i] < INF ? x[i] : 0.0, r[i]);
}

vec4 sin_small(vec4 r)
{
	vec4 z = r * r;

	return r + r * (z * (((2.72468687e-6 * z - 0.00019840063) * z + 0.00833333183) * z -
			     0.166666667));
}

vec4 cos_small(vec4 r)
{
	vec4 z = r * r;

	return 1.0 -
	       (0.5 * z - z * z * ((2.45454191e-5 * z - 0.00138882913) * z + 0.0416666646));
}

vec4 flip(vec4 x, bvec4 flipped)
{
	return mix(x, -x, flipped);
}

/* Return the sine of |x| + @turns * pi / 2. */
vec4 sine_of(vec4 x, uint turns)
{
	vec4 a = magnitude(x), r, y;
	uvec4 quadrant;

	reduce_angles(a, r, quadrant);
	quadrant += turns;
	y = mix(sin_small(r), cos_small(r), notEqual(quadrant & 1u, uvec4(0)));
	y = flip(y, notEqual(quadrant & 2u, uvec4(0)));
	return mix(vec4(NOT_A_NUMBER), y, lessThan(a, vec4(INF)));
}

vec4 sin_of(vec4 x)
{
	return flip(sine_of(x, 0u), lessThan(x, vec4(0.0)));
}

vec4 cos_of(vec4 x)
{
	return sine_of(x, 1u);
}

vec4 tan_of(vec4 x)
{
	vec4 a = magnitude(x), r, s, c, y;
	uvec4 quadrant;
	bvec4 odd;

	reduce_angles(a, r, quadrant);
	s = sin_small(r);
	c = cos_small(r);
	odd = notEqual(quadrant & 1u, uvec4(0));
	y = flip(mix(s, -c, odd) / mix(c, s, odd), lessThan(x, vec4(0.0)));
	return mix(vec4(NOT_A_NUMBER), y, lessThan(a, vec4(INF)));
}

/*
 * Small integer powers are computed by products. These are exact if a float holds the result:
 * integers raised to float powers are truncated to integers afterwards.
 */
const float SMALL_POWERS = 16.0;

float small_power(float x, uint n)
{
	float power = 1.0;

	[[unroll]] for (uint i = 0; i < 4; i++) {
		if ((n >> i & 1u) != 0u)
			power *= x;
		x *= x;
	}
	return power;
}

/* C's pow(): see vf_pow(). The logarithm is no more precise than a float. */
vec4 pow_of(vec4 x, vec4 y)
{
	vec4 a = magnitude(x), part = 0.5 * magnitude(y), zero = vec4(0.0), one = vec4(1.0);
	bvec4 whole = equal(floor(y), y), even = equal(floor(part), part);
	bvec4 negative = lessThan(y, zero);
	vec4 t = y * log_of(a), power;

	power = exp_of(t);
	[[unroll]] for (uint i = 0; i < 4; i++)
		if (whole[i] && y[i] >= 0.0 && y[i] < SMALL_POWERS)
			power[i] = small_power(a[i], uint(y[i]));
	power = mix(power, root(a), equal(y, vec4(0.5)));
	power = mix(power, one, equal(a, one));
	power = mix(power, mix(zero, vec4(INF), negative), equal(a, zero));
	power = mix(power, mix(vec4(INF), zero, negative), equal(a, vec4(INF)));
	[[unroll]] for (uint i = 0; i < 4; i++) {
		if (whole[i] && !even[i])
			power[i] = uintBitsToFloat(floatBitsToUint(power[i]) ^
						   (floatBitsToUint(x[i]) & 0x80000000u));
		if (x[i] < 0.0 && !whole[i] && a[i] < INF)
			power[i] = NOT_A_NUMBER;
	}
	power = mix(mix(power, y, is_nan4(y)), x, is_nan4(x));
	power = mix(power, one, equal(x, one));
	return mix(power, one, equal(y, zero));
}

/* Return the remainder of finite x >= y > 0, by long division, eight bits at a time. */
float long_remainder(float x, float y)
{
	uint x_bits = floatBitsToUint(x), y_bits = floatBitsToUint(y);
	int x_exponent = int(x_bits >> 23), y_exponent = int(y_bits >> 23);
	uint rest = (x_bits & 0x7fffffu) | (x_exponent > 0 ? 0x800000u : 0u);
	uint by = (y_bits & 0x7fffffu) | (y_exponent > 0 ? 0x800000u : 0u);

	x_exponent = max(x_exponent, 1);
	y_exponent = max(y_exponent, 1);
	rest %= by;
	for (int shift = x_exponent - y_exponent; shift > 0; shift -= 8)
		rest = (rest << min(shift, 8)) % by;
	return scale_by(vec4(float(rest)), vec4(float(y_exponent - 150))).x;
}

vec4 fmod_of(vec4 x, vec4 y)
{
	vec4 a = magnitude(x), b = magnitude(y), r = a;

	[[unroll]] for (uint i = 0; i < 4; i++) {
		if (a[i] < INF && a[i] >= b[i] && b[i] > 0.0)
			r[i] = long_remainder(a[i], b[i]);
		else if (!(a[i] < INF) || b[i] == 0.0)
			r[i] = NOT_A_NUMBER;
	}
	return mix(with_sign(r, x), y, is_nan4(y));
}
