/* SPDX-License-Identifier: MIT */
/*
 * The CPU's float64 functions compared with libm in long double: arguments of every binade and both
 * signs, special values, elements at every place of a split, and the same bits at every level.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map-want.h"
#include "reference/reference.h"
#include "support/test.h"
#include "unit/cpu-levels.h"

enum { PER_BINADE = 3, N_BINADES = 2046, N_NEAR = 4000 };
enum { N_VALUES = 2 * PER_BINADE * N_BINADES + N_NEAR + 7 };

struct function {
	enum cpu_map_op op;
	const char *name;
	double d[2];
	/* Largest error in units in the last place. Below @from no accuracy is promised. */
	double ulps, from;
};

#define EVERYWHERE -INFINITY

static const struct function functions[] = {
	{CPU_MAP_ABS, "abs", {0}, 0, EVERYWHERE},
	{CPU_MAP_NEG, "neg", {0}, 0, EVERYWHERE},
	{CPU_MAP_SIGN, "sign", {0}, 0, EVERYWHERE},
	{CPU_MAP_FLOOR, "floor", {0}, 0, EVERYWHERE},
	{CPU_MAP_CEIL, "ceil", {0}, 0, EVERYWHERE},
	{CPU_MAP_ROUND, "round", {0}, 0, EVERYWHERE},
	{CPU_MAP_SQRT, "sqrt", {0}, 0.501, EVERYWHERE},
	{CPU_MAP_RECIPROCAL, "reciprocal", {0}, 0.501, EVERYWHERE},
	{CPU_MAP_CLIP, "clip", {-0.1, 3}, 0, EVERYWHERE},
	{CPU_MAP_CLIP, "clip, crossed", {3, -0.1}, 0, EVERYWHERE},
	{CPU_MAP_RELU, "relu", {0}, 0, EVERYWHERE},
	{CPU_MAP_LEAKY_RELU, "leaky_relu", {0.01}, 0.501, EVERYWHERE},
	{CPU_MAP_THRESHOLDED_RELU, "thresholded", {0.1}, 0, EVERYWHERE},
	{CPU_MAP_ELU, "elu", {1.1}, 2, EVERYWHERE},
	{CPU_MAP_SELU, "selu", {1.6732632423543772, 1.0507009873554805}, 3, EVERYWHERE},
	{CPU_MAP_CELU, "celu", {0.7}, 4, EVERYWHERE},
	{CPU_MAP_GELU, "gelu", {0}, 4, -1},
	{CPU_MAP_GELU, "gelu, far", {0}, 450, -25},
	{CPU_MAP_GELU_TANH, "gelu_tanh", {0}, 4, -1},
	{CPU_MAP_GELU_TANH, "gelu_tanh, far", {0}, 450, -15},
	{CPU_MAP_SIGMOID, "sigmoid", {0}, 3, -700},
	{CPU_MAP_HARD_SIGMOID, "hard_sigmoid", {0.2, 0.5}, 2, -2},
	{CPU_MAP_HARD_SWISH, "hard_swish", {0}, 4, -2},
	{CPU_MAP_SWISH, "swish", {1}, 4, -700},
	{CPU_MAP_SWISH, "swish, alpha", {1.7}, 450, -400},
	{CPU_MAP_MISH, "mish", {0}, 4, -700},
	{CPU_MAP_SOFTPLUS, "softplus", {0}, 3, -700},
	{CPU_MAP_SOFTSIGN, "softsign", {0}, 2, EVERYWHERE},
	{CPU_MAP_SHRINK, "shrink", {0.5, 0.25}, 1, EVERYWHERE},
	{CPU_MAP_EXP, "exp", {0}, 1, EVERYWHERE},
	{CPU_MAP_LOG, "log", {0}, 1, EVERYWHERE},
	{CPU_MAP_ERF, "erf", {0}, 2, EVERYWHERE},
	{CPU_MAP_SIN, "sin", {0}, 1, EVERYWHERE},
	{CPU_MAP_COS, "cos", {0}, 1, EVERYWHERE},
	{CPU_MAP_TAN, "tan", {0}, 1, EVERYWHERE},
	{CPU_MAP_ASIN, "asin", {0}, 1, EVERYWHERE},
	{CPU_MAP_ACOS, "acos", {0}, 1, EVERYWHERE},
	{CPU_MAP_ATAN, "atan", {0}, 1, EVERYWHERE},
	{CPU_MAP_SINH, "sinh", {0}, 3, EVERYWHERE},
	{CPU_MAP_COSH, "cosh", {0}, 3, EVERYWHERE},
	{CPU_MAP_TANH, "tanh", {0}, 3, EVERYWHERE},
	{CPU_MAP_ASINH, "asinh", {0}, 3, EVERYWHERE},
	{CPU_MAP_ACOSH, "acosh", {0}, 3, EVERYWHERE},
	{CPU_MAP_ATANH, "atanh", {0}, 3, EVERYWHERE},
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
	/* Arguments where functions change most, and near halves, where rounding changes. */
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
	const long double want = map_want(function->op, (long double)x, (long double)function->d[0],
					  (long double)function->d[1]);
	const long double size = fabsl(want), unit = ldexpl(1, DBL_MIN_EXP - DBL_MANT_DIG);

	if (isnan(want))
		return isnan(got);
	/* The result rounds to infinity. */
	if (size > (long double)DBL_MAX)
		return (long double)got == want || fabs(got) >= DBL_MAX;
	return got == (double)want ||
	       fabsl((long double)got - want) <=
		       (long double)function->ulps * fmaxl(unit, 0x1p-52L * size);
}

/* @first has the results of the first level, or gets them if @is_first is set. */
static void check(const struct cpu_kernels *kernels, const struct function *function,
		  const double *x, double *got, double *first, bool is_first)
{
	double again[64];
	struct cpu_map args = {
		.in = {x}, .out = got, .step = {1}, .d = {function->d[0], function->d[1]}};

	kernels->map[CPU_F64][function->op](&args, N_VALUES);
	for (size_t i = 0; i < N_VALUES; i++) {
		if (x[i] < function->from || is_right(function, x[i], got[i]))
			continue;
		fail_msg("%s: %s of %a is %a, not %La", kernels->name, function->name, x[i], got[i],
			 map_want(function->op, (long double)x[i], (long double)function->d[0],
				  (long double)function->d[1]));
	}
	for (size_t i = 0, n = 1; i + n <= N_VALUES; i += n, n = n % 61 + 1) {
		args.in[0] = x + i;
		args.out = again;
		kernels->map[CPU_F64][function->op](&args, n);
		assert_memory_equal(again, got + i, n * sizeof(*again));
	}
	if (is_first)
		memcpy(first, got, N_VALUES * sizeof(*got));
	for (size_t i = 0; i < N_VALUES; i++)
		assert_true(memcmp(&first[i], &got[i], sizeof(*got)) == 0 ||
			    (isnan(first[i]) && isnan(got[i])));
}

TEST(test_functions__against_long_double)
{
	double *x = reference_alloc(N_VALUES * sizeof(*x)),
	       *got = reference_alloc(N_VALUES * sizeof(*x));
	double *first = reference_alloc(N_VALUES * sizeof(*x));

	if (LDBL_MANT_DIG <= DBL_MANT_DIG)
		skip();
	fill(x);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		bool is_first = true;

		for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
			const struct cpu_kernels *kernels = cpu_level((enum cpu_simd)level);

			if (!kernels)
				continue;
			check(kernels, &functions[i], x, got, first, is_first);
			is_first = false;
		}
	}
	free(x);
	free(got);
	free(first);
}
