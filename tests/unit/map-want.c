/* SPDX-License-Identifier: MIT */
/* See map-want.h. */
#include <math.h>
#include <stdlib.h>

#include "map-want.h"

static long double sigmoid(long double x)
{
	return 1 / (1 + expl(-x));
}

static long double limited(long double x, long double low, long double high)
{
	return isnan(x) ? x : fminl(fmaxl(x, low), high);
}

static const long double root_half = 0.707106781186547524400844362104849039L;

long double map_want(enum cpu_map_op op, long double x, long double a, long double b)
{
	switch (op) {
	case CPU_MAP_ABS:
		return fabsl(x);
	case CPU_MAP_NEG:
		return -x;
	case CPU_MAP_SIGN:
		return isnan(x) || x == 0 ? x : copysignl(1, x);
	case CPU_MAP_FLOOR:
		return floorl(x);
	case CPU_MAP_CEIL:
		return ceill(x);
	case CPU_MAP_ROUND:
		return rintl(x);
	case CPU_MAP_SQRT:
		return sqrtl(x);
	case CPU_MAP_RECIPROCAL:
		return 1 / x;
	case CPU_MAP_CLIP:
		return limited(x, a, b);
	case CPU_MAP_RELU:
		return x < 0 ? 0 : x;
	case CPU_MAP_LEAKY_RELU:
		return x < 0 ? a * x : x;
	case CPU_MAP_THRESHOLDED_RELU:
		return x > a ? x : 0;
	case CPU_MAP_ELU:
		return x < 0 ? a * expm1l(x) : x;
	case CPU_MAP_SELU:
		return b * (x < 0 ? a * expm1l(x) : x);
	case CPU_MAP_CELU:
		return x > 0 ? x : a * expm1l(x / a) + 0;
	case CPU_MAP_GELU:
		return x * 0.5L * erfcl(-x * root_half);
	case CPU_MAP_GELU_TANH:
		return x * sigmoid(4 * root_half * 0.564189583547756286948079451560772586L *
				   (x + 0.044715L * x * x * x));
	case CPU_MAP_SIGMOID:
		return sigmoid(x);
	case CPU_MAP_HARD_SIGMOID:
		return limited(a * x + b, 0, 1);
	case CPU_MAP_HARD_SWISH:
		return x * limited(x / 6 + 0.5L, 0, 1);
	case CPU_MAP_SWISH:
		return x * sigmoid(a * x);
	case CPU_MAP_MISH:
		return x * tanhl(x > 60 ? x : log1pl(expl(x)));
	case CPU_MAP_SOFTPLUS:
		return x > 60 ? x : log1pl(expl(x));
	case CPU_MAP_SOFTSIGN:
		return x / (1 + fabsl(x));
	case CPU_MAP_SHRINK:
		return x < -a ? x + b : x > a ? x - b : 0;
	case CPU_MAP_EXP:
		return expl(x);
	case CPU_MAP_LOG:
		return logl(x);
	case CPU_MAP_ERF:
		return erfl(x);
	case CPU_MAP_SIN:
		return sinl(x);
	case CPU_MAP_COS:
		return cosl(x);
	case CPU_MAP_TAN:
		return tanl(x);
	case CPU_MAP_ASIN:
		return asinl(x);
	case CPU_MAP_ACOS:
		return acosl(x);
	case CPU_MAP_ATAN:
		return atanl(x);
	case CPU_MAP_SINH:
		return sinhl(x);
	case CPU_MAP_COSH:
		return coshl(x);
	case CPU_MAP_TANH:
		return tanhl(x);
	case CPU_MAP_ASINH:
		return asinhl(x);
	case CPU_MAP_ACOSH:
		return acoshl(x);
	case CPU_MAP_ATANH:
		return atanhl(x);
	default:
		abort();
	}
}
