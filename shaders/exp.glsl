/* SPDX-License-Identifier: MIT */
/*
 * The exponential function and functions built from it. A part of math.glsl, for shaders that need
 * no more.
 */
bvec4 is_nan4(vec4 x)
{
	return greaterThan(floatBitsToUint(x) & 0x7fffffffu, uvec4(0x7f800000u));
}

vec4 magnitude(vec4 x)
{
	return uintBitsToFloat(floatBitsToUint(x) & 0x7fffffffu);
}

/* Return @x, which is not negative, with the sign of @sign. */
vec4 with_sign(vec4 x, vec4 sign)
{
	return uintBitsToFloat(floatBitsToUint(x) | (floatBitsToUint(sign) & 0x80000000u));
}

/* a < b ? a : b; hence b where either is a NaN */
vec4 lesser(vec4 a, vec4 b)
{
	return mix(b, a, lessThan(a, b));
}

vec4 greater(vec4 a, vec4 b)
{
	return mix(b, a, greaterThan(a, b));
}

/* x = n ln 2 + r with |r| <= ln 2 / 2 */
void reduce_exp(vec4 x, out vec4 n, out vec4 r)
{
	n = roundEven(x * 1.44269504088896341);
	precise vec4 high = x - n * 0.693145751953125;
	precise vec4 all = high - n * 1.42860682031e-6;
	r = all;
}

vec4 expm1_small(vec4 r)
{
	vec4 p = ((((0.00139262508 * r + 0.00836323288) * r + 0.0416665542) * r + 0.166665767) * r +
		  0.5);

	return p * (r * r) + r;
}

/* p * 2^n for |n| < 250 */
vec4 scale_by(vec4 p, vec4 n)
{
	ivec4 i = ivec4(n), part = i >> 1;

	return p * intBitsToFloat((part + 127) << 23) * intBitsToFloat((i - part + 127) << 23);
}

vec4 exp_shifted(vec4 x, float shift)
{
	vec4 n, r, t = lesser(vec4(90.0), greater(vec4(-105.0), x));

	reduce_exp(t, n, r);
	return mix(scale_by(expm1_small(r) + 1.0, n + shift), x, is_nan4(x));
}

vec4 exp_of(vec4 x)
{
	return exp_shifted(x, 0.0);
}

vec4 expm1_of(vec4 x)
{
	vec4 n, r, t = lesser(vec4(89.0), greater(vec4(-25.0), x)), scale;

	reduce_exp(t, n, r);
	scale = intBitsToFloat((ivec4(n) + 126) << 23);
	return mix(2.0 * (expm1_small(r) * scale + (scale - 0.5)), x, is_nan4(x));
}

vec4 sigmoid_of(vec4 x)
{
	vec4 e = exp_of(-x);

	return mix(1.0 / (1.0 + e), vec4(0.0), greaterThan(e, vec4(8.5070592e37)));
}

vec4 tanh_of(vec4 x)
{
	vec4 e = expm1_of(lesser(vec4(20.0), 2.0 * magnitude(x)));

	return with_sign(e / (e + 2.0), x);
}

/* erfc(a) where a >= 0 and @square + @rest is -a * a */
vec4 erfc_of(vec4 a, vec4 square, vec4 rest)
{
	vec4 w = 1.0 / (1.0 + 0.3 * a), e = exp_of(square);
	vec4 p = ((((((((-0.130419334 * w + 0.49020514) * w - 0.522535962) * w + 0.560327382) * w -
		      0.104055148) * w + 0.219276235) * w + 0.147123141) * w + 0.170902715) * w +
		  0.169175812) * w;

	return (e + e * rest) * p;
}

/* Return the cumulative normal distribution at @x. */
vec4 normal_cdf(vec4 x)
{
	vec4 a = lesser(vec4(14.5), magnitude(x)), part = -0.5 * a, square = a * part;
	precise vec4 rest = fma(a, part, -square);
	vec4 tail = 0.5 * erfc_of(a * 0.707106781, square, rest);

	return mix(1.0 - tail, tail, lessThan(x, vec4(0.0)));
}
