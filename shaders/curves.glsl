/* SPDX-License-Identifier: MIT */
/*
 * Activations other than piecewise linear ones, by number. They can also be fused with a product or
 * a convolution (broker/plan/fuse.c); @a and @b are their parameters. Their results for special
 * values are those of broker/cpu/map-float-hot.c. With -DDOUBLES, a part of typed-double.glsl:
 * these and all other functions built from the exponential function and the logarithm, of float64.
 */
#ifdef DOUBLES
#include "double-exp.glsl"

double sigmoid_of(double x)
{
	return divide(1.0lf, 1.0lf + exp_of(-x));
}

double tanh_of(double x)
{
	double e = expm1_of(lesser(40.0lf, 2.0lf * magnitude(x)));

	return with_sign(e / (e + 2.0lf), x);
}

double sinh_of(double x)
{
	double a = magnitude(x), e = expm1_of(lesser(25.0lf, a));

	return with_sign(a > 24.0lf ? exp_shifted(a, -1.0lf) : 0.5lf * (e + e / (e + 1.0lf)), x);
}

double cosh_of(double x)
{
	double part = exp_shifted(magnitude(x), -1.0lf);

	return part + divide(0.25lf, part);
}

double asinh_of(double x)
{
	double a = magnitude(x), square = a * a;
	bool big = a > 1.0e8lf;
	double u = big ? a - 1.0lf : a + square / (1.0lf + sqrt(square + 1.0lf));

	return with_sign(log1p_of(u) + (big ? 0.69314718055994530942lf : 0.0lf), x);
}

double acosh_of(double x)
{
	double t = x - 1.0lf;
	bool big = x > 1.0e8lf;
	double u = big ? t : t + root(2.0lf * t + t * t);

	if (x < 1.0lf)
		return no_number();
	return log1p_of(u) + (big ? 0.69314718055994530942lf : 0.0lf);
}

double atanh_of(double x)
{
	double a = magnitude(x);

	return with_sign(0.5lf * log1p_of(a == 1.0lf ? infinity() : 2.0lf * a / (1.0lf - a)), x);
}

/* erf(a) for 0 <= a <= 2: every term of 2 / sqrt(pi) a e^-a^2 (1 + 2 a^2 / 3 + ...) is positive. */
double erf_series(double a)
{
	double square = a * a, term = 1.0lf, sum = 1.0lf;

	for (int k = 1; k < 40; k++) {
		term *= 2.0lf * square / double(2 * k + 1);
		sum += term;
	}
	return 1.12837916709551257390lf * a * exp_of(-square) * sum;
}

/* erfc(a) for a >= 1.75, where @square and @rest together are -a * a: a continued fraction. */
double erfc_tail(double a, double square, double rest)
{
	double below = a, e = exp_of(square);

	for (int k = 50; k > 0; k--)
		below = a + 0.5lf * double(k) / below;
	return (e + e * rest) * 0.56418958354775628695lf / below;
}

double erf_of(double x)
{
	double a = lesser(10.0lf, magnitude(x));

	if (a < 2.0lf)
		return with_sign(erf_series(a), x);
	return with_sign(1.0lf - erfc_tail(a, -a * a, 0.0lf), x);
}

/*
 * Return the cumulative normal distribution at @x. From 1.75 on the continued fraction has the last
 * bits; above, the error of the series, some 8 units in the last place of 1, would grow against a
 * tail that becomes 0.005 at 2.
 */
double normal_cdf(double x)
{
	double a = lesser(40.0lf, magnitude(x)), part = -0.5lf * a, root_a = a * 0.70710678118654752440lf;
	precise double square = a * part;
	precise double rest = fma(a, part, -square);
	double tail = root_a < 1.75lf ? 1.0lf - erf_series(root_a) : erfc_tail(root_a, square, rest);

	return x < 0.0lf ? 0.5lf * tail : 1.0lf - 0.5lf * tail;
}

double mish(double x)
{
	double e = exp_of(lesser(40.0lf, x)), n = e * (e + 2.0lf);

	return x * (n / (n + 2.0lf));
}

double limit(double x, double low, double high)
{
	return lesser(high, greater(low, x));
}

double hard_sigmoid(double x, double a, double b)
{
	return limit(a * x + b, 0.0lf, 1.0lf);
}

/* Like curve() below, of float64. */
double curve(uint function, double x, double a, double b)
{
	switch (function) {
	case MAP_TANH:
		return tanh_of(x);
	case MAP_ELU:
		return x < 0.0lf ? a * expm1_of(x) : x;
	case MAP_GELU:
		return x * normal_cdf(x);
	case MAP_GELU_TANH:
		return x * sigmoid_of(2.0lf * (x * (0.79788456080286535588lf +
						    0.03567740813630012546lf * (x * x))));
	case MAP_SIGMOID:
		return sigmoid_of(x);
	case MAP_HARD_SIGMOID:
		return hard_sigmoid(x, a, b);
	case MAP_HARD_SWISH:
		return x * hard_sigmoid(x, 1.0lf / 6.0lf, 0.5lf);
	case MAP_SWISH:
		return x * sigmoid_of(a * x);
	case MAP_MISH:
		return mish(x);
	case MAP_SHRINK:
		return x < -a ? x + b : x > a ? x - b : 0.0lf;
	}
	return x;
}
#else
#include "map.glsl"
#include "exp.glsl"

vec4 limit(vec4 x, vec4 low, vec4 high)
{
	return lesser(high, greater(low, x));
}

vec4 hard_sigmoid(vec4 x, float a, float b)
{
	return limit(a * x + b, vec4(0.0), vec4(1.0));
}

vec4 mish(vec4 x)
{
	vec4 e = exp_of(lesser(vec4(20.0), x)), n = e * (e + 2.0);

	return x * (n / (n + 2.0));
}

vec4 curve(uint function, vec4 x, float a, float b)
{
	switch (function) {
	case MAP_TANH:
		return tanh_of(x);
	case MAP_ELU:
		return mix(x, a * expm1_of(x), lessThan(x, vec4(0.0)));
	case MAP_GELU:
		return x * normal_cdf(x);
	case MAP_GELU_TANH:
		return x * sigmoid_of(2.0 * (x * (0.797884561 + 0.0356774081 * (x * x))));
	case MAP_SIGMOID:
		return sigmoid_of(x);
	case MAP_HARD_SIGMOID:
		return hard_sigmoid(x, a, b);
	case MAP_HARD_SWISH:
		return x * hard_sigmoid(x, 1.0 / 6.0, 0.5);
	case MAP_SWISH:
		return x * sigmoid_of(a * x);
	case MAP_MISH:
		return mish(x);
	case MAP_SHRINK:
		return mix(mix(vec4(0.0), x - b, greaterThan(x, vec4(a))), x + b,
			   lessThan(x, vec4(-a)));
	}
	return x;
}
#endif
