/* SPDX-License-Identifier: MIT */
/*
 * The CPU's functions of float64 against libm in a wider type: arguments of every binade and both
 * signs, the special values, wherever a split puts an element, the same bits at every level.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/kernels.h"
#include "reference/reference.h"

enum { PER_BINADE = 3, N_BINADES = 2046, N_NEAR = 4000 };
enum { N_VALUES = 2 * PER_BINADE * N_BINADES + N_NEAR + 7 };

struct function {
	enum cpu_map_op op;
	const char *name;
	long double (*want)(long double x, long double a, long double b);
	double d[2];
	/* Largest error in units in the last place; below @from nothing is promised. */
	double ulps, from;
};

#define WANT(name, expression)                                                      \
	static long double want_##name(long double x, long double a, long double b) \
	{                                                                           \
		return (expression);                                                \
	}

static long double sigmoid(long double x)
{
	return 1 / (1 + expl(-x));
}

static long double limited(long double x, long double low, long double high)
{
	return isnan(x) ? x : fminl(fmaxl(x, low), high);
}

static const long double root_half = 0.707106781186547524400844362104849039L;

WANT(abs, fabsl(x))
WANT(neg, -x)
WANT(sign, isnan(x) || x == 0 ? x : copysignl(1, x))
WANT(floor, floorl(x))
WANT(ceil, ceill(x))
WANT(round, rintl(x))
WANT(sqrt, sqrtl(x))
WANT(reciprocal, 1 / x)
WANT(clip, limited(x, a, b))
WANT(relu, x < 0 ? 0 : x)
WANT(leaky_relu, x < 0 ? a * x : x)
WANT(thresholded_relu, x > a ? x : 0)
WANT(elu, x < 0 ? a * expm1l(x) : x)
WANT(selu, b *(x < 0 ? a * expm1l(x) : x))
WANT(celu, x > 0 ? x : a * expm1l(x / a) + 0)
WANT(gelu, x * 0.5L * erfcl(-x * root_half))
WANT(gelu_tanh, x *sigmoid(4 * root_half * 0.564189583547756286948079451560772586L *
			   (x + 0.044715L * x * x * x)))
WANT(sigmoid, sigmoid(x))
WANT(hard_sigmoid, limited(a *x + b, 0, 1))
WANT(hard_swish, x *limited(x / 6 + 0.5L, 0, 1))
WANT(swish, x *sigmoid(a *x))
WANT(mish, x *tanhl(x > 60 ? x : log1pl(expl(x))))
WANT(softplus, x > 60 ? x : log1pl(expl(x)))
WANT(softsign, x / (1 + fabsl(x)))
WANT(exp, expl(x))
WANT(log, logl(x))
WANT(erf, erfl(x))
WANT(sin, sinl(x))
WANT(cos, cosl(x))
WANT(tan, tanl(x))
WANT(asin, asinl(x))
WANT(acos, acosl(x))
WANT(atan, atanl(x))
WANT(sinh, sinhl(x))
WANT(cosh, coshl(x))
WANT(tanh, tanhl(x))
WANT(asinh, asinhl(x))
WANT(acosh, acoshl(x))
WANT(atanh, atanhl(x))

#define EVERYWHERE -INFINITY

static const struct function functions[] = {
	{CPU_MAP_ABS, "abs", want_abs, {0}, 0, EVERYWHERE},
	{CPU_MAP_NEG, "neg", want_neg, {0}, 0, EVERYWHERE},
	{CPU_MAP_SIGN, "sign", want_sign, {0}, 0, EVERYWHERE},
	{CPU_MAP_FLOOR, "floor", want_floor, {0}, 0, EVERYWHERE},
	{CPU_MAP_CEIL, "ceil", want_ceil, {0}, 0, EVERYWHERE},
	{CPU_MAP_ROUND, "round", want_round, {0}, 0, EVERYWHERE},
	{CPU_MAP_SQRT, "sqrt", want_sqrt, {0}, 0.501, EVERYWHERE},
	{CPU_MAP_RECIPROCAL, "reciprocal", want_reciprocal, {0}, 0.501, EVERYWHERE},
	{CPU_MAP_CLIP, "clip", want_clip, {-0.1, 3}, 0, EVERYWHERE},
	{CPU_MAP_CLIP, "clip, crossed", want_clip, {3, -0.1}, 0, EVERYWHERE},
	{CPU_MAP_RELU, "relu", want_relu, {0}, 0, EVERYWHERE},
	{CPU_MAP_LEAKY_RELU, "leaky_relu", want_leaky_relu, {0.01}, 0.501, EVERYWHERE},
	{CPU_MAP_THRESHOLDED_RELU, "thresholded", want_thresholded_relu, {0.1}, 0, EVERYWHERE},
	{CPU_MAP_ELU, "elu", want_elu, {1.1}, 2, EVERYWHERE},
	{CPU_MAP_SELU, "selu", want_selu, {1.6732632423543772, 1.0507009873554805}, 3, EVERYWHERE},
	{CPU_MAP_CELU, "celu", want_celu, {0.7}, 4, EVERYWHERE},
	{CPU_MAP_GELU, "gelu", want_gelu, {0}, 4, -1},
	{CPU_MAP_GELU, "gelu, far", want_gelu, {0}, 450, -25},
	{CPU_MAP_GELU_TANH, "gelu_tanh", want_gelu_tanh, {0}, 4, -1},
	{CPU_MAP_GELU_TANH, "gelu_tanh, far", want_gelu_tanh, {0}, 450, -15},
	{CPU_MAP_SIGMOID, "sigmoid", want_sigmoid, {0}, 3, -700},
	{CPU_MAP_HARD_SIGMOID, "hard_sigmoid", want_hard_sigmoid, {0.2, 0.5}, 2, -2},
	{CPU_MAP_HARD_SWISH, "hard_swish", want_hard_swish, {0}, 4, -2},
	{CPU_MAP_SWISH, "swish", want_swish, {1}, 4, -700},
	{CPU_MAP_SWISH, "swish, alpha", want_swish, {1.7}, 450, -400},
	{CPU_MAP_MISH, "mish", want_mish, {0}, 4, -700},
	{CPU_MAP_SOFTPLUS, "softplus", want_softplus, {0}, 3, -700},
	{CPU_MAP_SOFTSIGN, "softsign", want_softsign, {0}, 2, EVERYWHERE},
	{CPU_MAP_EXP, "exp", want_exp, {0}, 1, EVERYWHERE},
	{CPU_MAP_LOG, "log", want_log, {0}, 1, EVERYWHERE},
	{CPU_MAP_ERF, "erf", want_erf, {0}, 2, EVERYWHERE},
	{CPU_MAP_SIN, "sin", want_sin, {0}, 1, EVERYWHERE},
	{CPU_MAP_COS, "cos", want_cos, {0}, 1, EVERYWHERE},
	{CPU_MAP_TAN, "tan", want_tan, {0}, 1, EVERYWHERE},
	{CPU_MAP_ASIN, "asin", want_asin, {0}, 1, EVERYWHERE},
	{CPU_MAP_ACOS, "acos", want_acos, {0}, 1, EVERYWHERE},
	{CPU_MAP_ATAN, "atan", want_atan, {0}, 1, EVERYWHERE},
	{CPU_MAP_SINH, "sinh", want_sinh, {0}, 3, EVERYWHERE},
	{CPU_MAP_COSH, "cosh", want_cosh, {0}, 3, EVERYWHERE},
	{CPU_MAP_TANH, "tanh", want_tanh, {0}, 3, EVERYWHERE},
	{CPU_MAP_ASINH, "asinh", want_asinh, {0}, 3, EVERYWHERE},
	{CPU_MAP_ACOSH, "acosh", want_acosh, {0}, 3, EVERYWHERE},
	{CPU_MAP_ATANH, "atanh", want_atanh, {0}, 3, EVERYWHERE},
};

static void fill(double *values)
{
	static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, DBL_MAX, -DBL_MAX};
	uint64_t state = 17, n = 0;

	for (uint64_t exponent = 1; exponent <= N_BINADES; exponent++) {
		for (unsigned int i = 0; i < 2 * PER_BINADE; i++) {
			const uint64_t bits = (uint64_t)(i & 1) << 63 | exponent << 52 |
					      reference_random(&state) >> 12;

			memcpy(&values[n++], &bits, sizeof(bits));
		}
	}
	/* Where functions are interesting, and near halves, where rounding is. */
	for (unsigned int i = 0; i < N_NEAR; i++)
		values[n++] = ((double)(reference_random(&state) >> 40) - 0x1p23) *
			      (i % 4 == 0   ? 0x1p-1
			       : i % 4 == 1 ? 0x1p-13
					    : 0x1p-20);
	memcpy(values + n, special, sizeof(special));
	assert_int_equal(n + sizeof(special) / sizeof(special[0]), N_VALUES);
}

static bool is_right(const struct function *function, double x, double got)
{
	const long double want = function->want((long double)x, (long double)function->d[0],
						(long double)function->d[1]);
	const long double size = fabsl(want), unit = ldexpl(1, DBL_MIN_EXP - DBL_MANT_DIG);

	if (isnan(want))
		return isnan(got);
	/* What rounds to infinity. */
	if (size > (long double)DBL_MAX)
		return (long double)got == want || fabs(got) >= DBL_MAX;
	return got == (double)want ||
	       fabsl((long double)got - want) <=
		       (long double)function->ulps * fmaxl(unit, 0x1p-52L * size);
}

static void check(const struct cpu_kernels *kernels, const struct function *function,
		  const double *x, double *got, double *first)
{
	double again[64];
	struct cpu_map args = {
		.in = {x}, .out = got, .step = {1}, .d = {function->d[0], function->d[1]}};

	kernels->map[CPU_F64][function->op](&args, N_VALUES);
	for (size_t i = 0; i < N_VALUES; i++) {
		if (x[i] < function->from || is_right(function, x[i], got[i]))
			continue;
		fail_msg("%s: %s of %a is %a, not %La", kernels->name, function->name, x[i], got[i],
			 function->want((long double)x[i], (long double)function->d[0],
					(long double)function->d[1]));
	}
	for (size_t i = 0, n = 1; i + n <= N_VALUES; i += n, n = n % 61 + 1) {
		args.in[0] = x + i;
		args.out = again;
		kernels->map[CPU_F64][function->op](&args, n);
		assert_memory_equal(again, got + i, n * sizeof(*again));
	}
	if (kernels->level == CPU_SIMD_SSE2)
		memcpy(first, got, N_VALUES * sizeof(*got));
	for (size_t i = 0; i < N_VALUES; i++)
		assert_true(memcmp(&first[i], &got[i], sizeof(*got)) == 0 ||
			    (isnan(first[i]) && isnan(got[i])));
}

static void test_functions__against_long_double(void **state)
{
	double *x = reference_alloc(N_VALUES * sizeof(*x)),
	       *got = reference_alloc(N_VALUES * sizeof(*x));
	double *first = reference_alloc(N_VALUES * sizeof(*x));

	if (LDBL_MANT_DIG <= DBL_MANT_DIG)
		skip();
	fill(x);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
			const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_simd)level);

			if (kernels)
				check(kernels, &functions[i], x, got, first);
		}
	}
	free(x);
	free(got);
	free(first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions__against_long_double),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
