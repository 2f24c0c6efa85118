/* SPDX-License-Identifier: MIT */
/*
 * Elementwise kernels: float64
 *
 * Each function is a plain loop, written as one line: an expression of an element x, or x and y,
 * with the parameters a and b. The compiler vectorises functions of a few instructions. Others call
 * libm, one element at a time: float64 is rare. Products and sums are not contracted, so that every
 * level gives the same bits, whatever the split.
 *
 * Formulas and the treatment of NaNs are those of map-float-hot.c.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/map-common.h"

/* @hint precedes the loop: see vec.h. */
#define UNARY_LOOP(name, R, hint, expression)                        \
	static void map_##name(const struct cpu_map *args, size_t n) \
	{                                                            \
		const double a = args->d[0], b = args->d[1];         \
		const int64_t finds = args->i[0];                    \
		const double *from = args->in[0];                    \
		R *to = args->out;                                   \
                                                                     \
		(void)a, (void)b, (void)finds;                       \
		hint for (size_t i = 0; i < n; i++)                  \
		{                                                    \
			const double x = from[i];                    \
                                                                     \
			to[i] = (expression);                        \
		}                                                    \
	}

#define UNARY_TO(name, R, expression) UNARY_LOOP(name, R, CPU_INDEPENDENT, expression)
#define UNARY(name, expression)       UNARY_LOOP(name, double, CPU_INDEPENDENT, expression)
/* A function of libm */
#define FUNCTION(name, expression) UNARY_LOOP(name, double, , expression)

#define BINARY_ROW(name, R, hint, expression)                                          \
	VEC_INLINE void name##_row(size_t n, const double *x_from, const bool x_steps, \
				   const double *y_from, const bool y_steps, R *to)    \
	{                                                                              \
		const double x_set = x_from[0], y_set = y_from[0];                     \
                                                                                       \
		hint for (size_t i = 0; i < n; i++)                                    \
		{                                                                      \
			const double x = x_steps ? x_from[i] : x_set;                  \
			const double y = y_steps ? y_from[i] : y_set;                  \
                                                                                       \
			to[i] = (expression);                                          \
		}                                                                      \
	}

#define BINARY_LOOP(name, R, hint, expression) \
	BINARY_ROW(name, R, hint, expression)  \
	MAP_BINARY(name)

#define BINARY(name, expression)     BINARY_LOOP(name, double, CPU_INDEPENDENT, expression)
#define COMPARISON(name, expression) BINARY_LOOP(name, uint8_t, CPU_INDEPENDENT, expression)
#define FUNCTION_2(name, expression) BINARY_LOOP(name, double, , expression)

/* Return the nearest integer, ties to even. From 2^52 on every number is an integer. */
VEC_INLINE double rounded(double x)
{
	const double size = __builtin_fabs(x), whole = size + 0x1p52 - 0x1p52;

	return __builtin_copysign(size < 0x1p52 ? whole : size, x);
}

VEC_INLINE double rounded_down(double x)
{
	const double whole = rounded(x);

	return __builtin_copysign(whole > x ? whole - 1 : whole, x);
}

VEC_INLINE double rounded_up(double x)
{
	return -rounded_down(-x);
}

/* Return the minimum (most(): the maximum), or a NaN if an operand is one. */
VEC_INLINE double least(double x, double y)
{
	return x < y || x != x ? x : y;
}

VEC_INLINE double most(double x, double y)
{
	return x > y || x != x ? x : y;
}

/* Return x, limited from below, then from above. A limit that is a NaN has no effect. */
VEC_INLINE double limit(double x, double low, double high)
{
	const double above = x < low ? low : x;

	return above > high ? high : above;
}

VEC_INLINE double sign(double x)
{
	/* A denormal is neither positive nor negative where denormals count as zero. */
	return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? x * 0 : x;
}

/* The C library reads the bits of denormals, even in a mode that counts them as zero. */
VEC_INLINE double natural_log(double x)
{
	return x == 0 ? -INFINITY : log(x);
}

VEC_INLINE double hard_sigmoid(double x, double a, double b)
{
	return limit(a * x + b, 0, 1);
}

VEC_INLINE double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* x * tanh(log(1 + e)) with e = exp(x); the hyperbolic tangent is 1 long before e overflows. */
VEC_INLINE double mish(double x)
{
	const double e = exp(x > 40 ? 40 : x), n = e * (e + 2);

	return x * (n / (n + 2));
}

/* 0.5 x (1 + tanh(u)), and (1 + tanh(u)) / 2 is the sigmoid of 2 u. */
VEC_INLINE double gelu_tanh(double x)
{
	const double u = M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * (x * x * x));

	return x * sigmoid(2 * u);
}

UNARY(abs, __builtin_fabs(x))
UNARY(neg, -x)
UNARY(sign, sign(x))
UNARY(floor, rounded_down(x))
UNARY(ceil, rounded_up(x))
UNARY(round, rounded(x))
UNARY(sqrt, __builtin_sqrt(x))
UNARY(reciprocal, 1 / x)
UNARY(clip, limit(x, a, b))
UNARY(relu, x < 0 ? 0 : x)
UNARY(leaky_relu, x < 0 ? a * x : x)
UNARY(thresholded_relu, x > a ? x : 0)
FUNCTION(elu, x < 0 ? a * expm1(x) : x)
FUNCTION(selu, b *(x < 0 ? a * expm1(x) : x))
FUNCTION(celu, (x < 0 ? 0 : x) + least(0, a *expm1(x / a)))
FUNCTION(gelu, x * 0.5 * erfc(-x * M_SQRT1_2))
FUNCTION(gelu_tanh, gelu_tanh(x))
FUNCTION(sigmoid, sigmoid(x))
UNARY(hard_sigmoid, hard_sigmoid(x, a, b))
UNARY(hard_swish, x *hard_sigmoid(x, 1. / 6, 0.5))
FUNCTION(swish, x *sigmoid(a *x))
FUNCTION(mish, mish(x))
FUNCTION(softplus, (x < 0 ? 0 : x) + log1p(exp(-__builtin_fabs(x))))
UNARY(softsign, x / (1 + __builtin_fabs(x)))
UNARY(shrink, x<-a ? x + b : x> a ? x - b : 0)
FUNCTION(exp, exp(x))
FUNCTION(log, natural_log(x))
FUNCTION(erf, erf(x))
FUNCTION(sin, sin(x))
FUNCTION(cos, cos(x))
FUNCTION(tan, tan(x))
FUNCTION(asin, asin(x))
FUNCTION(acos, acos(x))
FUNCTION(atan, atan(x))
FUNCTION(sinh, sinh(x))
FUNCTION(cosh, cosh(x))
FUNCTION(tanh, tanh(x))
FUNCTION(asinh, asinh(x))
FUNCTION(acosh, acosh(x))
FUNCTION(atanh, atanh(x))
UNARY_TO(is_nan, uint8_t, x != x)
UNARY_TO(is_inf, uint8_t,
	 (x == (double)INFINITY && (finds & 2)) || (x == -(double)INFINITY && (finds & 1)))

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div_, x / y)
BINARY(min, least(x, y))
BINARY(max, most(x, y))
BINARY(prelu, x < 0 ? x * y : x)
FUNCTION_2(fmod_, fmod(x, y))
FUNCTION_2(pow_, y == 2 ? x * x : pow(x == 0 ? x * 0 : x, y))
COMPARISON(equal, x == y)
COMPARISON(less, x < y)
COMPARISON(less_equal, x <= y)
COMPARISON(greater, x > y)
COMPARISON(greater_equal, x >= y)

cpu_map_fn *const CPU_FN(map_f64)[CPU_MAP_COUNT] = {
	MAP_FUNCTIONS,
	[CPU_MAP_EQUAL] = equal,
	[CPU_MAP_LESS] = less,
	[CPU_MAP_LESS_OR_EQUAL] = less_equal,
	[CPU_MAP_GREATER] = greater,
	[CPU_MAP_GREATER_OR_EQUAL] = greater_equal,
	[CPU_MAP_IS_NAN] = map_is_nan,
	[CPU_MAP_IS_INF] = map_is_inf,
};
