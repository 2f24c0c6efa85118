/* SPDX-License-Identifier: MIT */
/*
 * The mathematical functions of the CPU's kernels compared with libm in long double: arguments of
 * every binade and both signs, special values, and the same bits with AVX2 and AVX-512.
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

struct function {
	enum cpu_map_op op;
	const char *name;
	float f[2];
	/*
	 * Largest error in units in the last place, of a level without and of one with fused
	 * multiply-adds. Below @from, which may be -INFINITY, no accuracy is promised.
	 */
	double ulps[2];
	float from;
};

static double want(const struct function *function, float x)
{
	return (double)map_want(function->op, (long double)x, (long double)function->f[0],
				(long double)function->f[1]);
}

#define EVERYWHERE -INFINITY

static const struct function functions[] = {
	{CPU_MAP_ABS, "abs", {0}, {0, 0}, EVERYWHERE},
	{CPU_MAP_NEG, "neg", {0}, {0, 0}, EVERYWHERE},
	{CPU_MAP_SIGN, "sign", {0}, {0, 0}, EVERYWHERE},
	{CPU_MAP_FLOOR, "floor", {0}, {0, 0}, EVERYWHERE},
	{CPU_MAP_CEIL, "ceil", {0}, {0, 0}, EVERYWHERE},
	{CPU_MAP_ROUND, "round", {0}, {0, 0}, EVERYWHERE},
	{CPU_MAP_SQRT, "sqrt", {0}, {0.5, 0.5}, EVERYWHERE},
	{CPU_MAP_RECIPROCAL, "reciprocal", {0}, {0.5, 0.5}, EVERYWHERE},
	{CPU_MAP_CLIP, "clip", {-0.5f, 3}, {0, 0}, EVERYWHERE},
	{CPU_MAP_CLIP, "clip, crossed", {3, -0.5f}, {0, 0}, EVERYWHERE},
	{CPU_MAP_RELU, "relu", {0}, {0, 0}, EVERYWHERE},
	{CPU_MAP_LEAKY_RELU, "leaky_relu", {0.01f}, {0.5, 0.5}, EVERYWHERE},
	{CPU_MAP_THRESHOLDED_RELU, "thresholded_relu", {1}, {0, 0}, EVERYWHERE},
	{CPU_MAP_ELU, "elu", {1.5f}, {2, 2}, EVERYWHERE},
	{CPU_MAP_SELU, "selu", {1.6732632f, 1.0507010f}, {2.7, 2.7}, EVERYWHERE},
	{CPU_MAP_CELU, "celu", {0.7f}, {2, 2}, EVERYWHERE},
	{CPU_MAP_GELU, "gelu", {0}, {9, 8}, -4.1f},
	{CPU_MAP_GELU_TANH, "gelu_tanh", {0}, {20, 16}, -4.5f},
	{CPU_MAP_SIGMOID, "sigmoid", {0}, {2, 2}, -87},
	{CPU_MAP_HARD_SIGMOID, "hard_sigmoid", {0.2f, 0.5f}, {1.7, 0.6}, -2},
	{CPU_MAP_HARD_SWISH, "hard_swish", {0}, {2, 2}, -2},
	{CPU_MAP_SWISH, "swish", {1}, {3, 3}, -87},
	{CPU_MAP_SWISH, "swish, alpha", {1.7f}, {13, 13}, -10},
	{CPU_MAP_MISH, "mish", {0}, {3.5, 3.5}, -87},
	{CPU_MAP_SOFTPLUS, "softplus", {0}, {2, 2}, -87},
	{CPU_MAP_SOFTSIGN, "softsign", {0}, {1.5, 1.5}, EVERYWHERE},
	{CPU_MAP_SHRINK, "shrink", {0.5f, 0.25f}, {0.5, 0.5}, EVERYWHERE},
	{CPU_MAP_EXP, "exp", {0}, {0.9, 0.9}, EVERYWHERE},
	{CPU_MAP_LOG, "log", {0}, {0.8, 0.8}, EVERYWHERE},
	{CPU_MAP_ERF, "erf", {0}, {1.1, 1}, EVERYWHERE},
	{CPU_MAP_SIN, "sin", {0}, {1.5, 1.5}, EVERYWHERE},
	{CPU_MAP_COS, "cos", {0}, {1.5, 1.5}, EVERYWHERE},
	{CPU_MAP_TAN, "tan", {0}, {3, 3}, EVERYWHERE},
	{CPU_MAP_ASIN, "asin", {0}, {2, 2}, EVERYWHERE},
	{CPU_MAP_ACOS, "acos", {0}, {1.1, 1.1}, EVERYWHERE},
	{CPU_MAP_ATAN, "atan", {0}, {1.1, 1.1}, EVERYWHERE},
	{CPU_MAP_SINH, "sinh", {0}, {2.2, 2.2}, EVERYWHERE},
	{CPU_MAP_COSH, "cosh", {0}, {1.2, 1.2}, EVERYWHERE},
	{CPU_MAP_TANH, "tanh", {0}, {2, 2}, EVERYWHERE},
	{CPU_MAP_ASINH, "asinh", {0}, {1.8, 1.8}, EVERYWHERE},
	{CPU_MAP_ACOSH, "acosh", {0}, {1.6, 1.6}, EVERYWHERE},
	{CPU_MAP_ATANH, "atanh", {0}, {2.2, 2.2}, EVERYWHERE},
};

enum { PER_BINADE = 160, N_SPECIAL = 42, N_ARGUMENTS = N_SPECIAL + 2 * 256 * PER_BINADE };

static const float special[N_SPECIAL] = {
	0.0f,
	-0.0f,
	1,
	-1,
	0.5f,
	-0.5f,
	INFINITY,
	-INFINITY,
	NAN,
	-NAN,
	FLT_MAX,
	-FLT_MAX,
	FLT_MIN,
	-FLT_MIN,
	0x1p-149f,
	-0x1p-149f,
	2,
	-2,
	1.5f,
	-1.5f,
	2.5f,
	-2.5f,
	3,
	-3,
	88.7228f,
	-87.3365f,
	88.8f,
	-103.972f,
	-104.1f,
	89.4159f,
	9,
	16777216,
	8388609,
	-8388607,
	0x1p20f,
	0x1.8p20f,
	3.1415927f,
	1.570796f,
	1e-30f,
	-1e-30f,
	/* As integers, the largest value and one close to the smallest. */
	__builtin_nanf("0x3fffff"),
	-__builtin_nanf("0x3fffff"),
};

static float *arguments_new(void)
{
	float *x = reference_alloc(N_ARGUMENTS * sizeof(*x));
	uint64_t seed = 77;
	size_t n = N_SPECIAL;

	memcpy(x, special, sizeof(special));
	for (uint32_t top = 0; top < 512; top++) {
		for (unsigned int i = 0; i < PER_BINADE; i++) {
			const uint32_t bits =
				top << 23 | (uint32_t)(reference_random(&seed) & 0x7fffff);

			memcpy(&x[n++], &bits, sizeof(bits));
		}
	}
	assert_int_equal(n, N_ARGUMENTS);
	return x;
}

/*
 * Return the error in units in the last place of @want; infinite if the kind of value or the sign
 * of a zero differs.
 */
static double error_of(float got, double want)
{
	const float rounded = (float)want;
	int exponent;

	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got) ? 0 : INFINITY;
	if (isinf(rounded) || rounded == 0) {
		if (got == rounded)
			return rounded != 0 || signbit(got) == signbit(rounded) ? 0 : INFINITY;
		/* One value was rounded up to infinity, the other was not. */
		if (isinf(rounded) && !isinf(got))
			return (fabs(want) - fabs((double)got)) / 0x1p104;
		return fabs((double)got - want) / 0x1p-149;
	}
	if (isinf(got))
		return (0x1p128 - fabs(want)) / 0x1p104;
	frexp((double)rounded, &exponent);
	return fabs((double)got - want) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

static bool check(const struct cpu_kernels *kernels, const struct function *function,
		  const float *x, float *y)
{
	const struct cpu_map args = {
		.in = {x},
		.out = y,
		.step = {1},
		.f = {function->f[0], function->f[1]},
	};
	const double bound = function->ulps[kernels->level != CPU_SIMD_SSE2];
	double most = 0;
	size_t where = 0;

	kernels->map[CPU_F32][function->op](&args, N_ARGUMENTS);
	for (size_t i = 0; i < N_ARGUMENTS; i++) {
		double error;

		if (x[i] < function->from && x[i] > -FLT_MAX)
			continue;
		error = error_of(y[i], want(function, x[i]));
		if (error > most) {
			most = error;
			where = i;
		}
	}
	if (most > bound || getenv("TEST_SHOW_ERRORS"))
		fprintf(stderr, "%s of %s: %.2f ulp, at %a (%g): %a, not %a\n", kernels->name,
			function->name, most, (double)x[where], (double)x[where], (double)y[where],
			want(function, x[where]));
	return most <= bound;
}

TEST(test_math__errors)
{
	float *x = arguments_new(), *y = reference_alloc(N_ARGUMENTS * sizeof(*y));
	bool right = true;

	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_level((enum cpu_simd)level);

		for (size_t i = 0; kernels && i < sizeof(functions) / sizeof(functions[0]); i++)
			right &= check(kernels, &functions[i], x, y);
	}
	assert_true(right);
	free(x);
	free(y);
}

/* Levels with fused multiply-adds give the same bits, except for the bits of a NaN. */
TEST(test_math__same_bits)
{
	const struct cpu_kernels *avx2 = cpu_level(CPU_SIMD_AVX2);
	const struct cpu_kernels *avx512 = cpu_level(CPU_SIMD_AVX512);
	float *x, *y[2];

	if (!avx2 || !avx512)
		skip();
	x = arguments_new();
	for (unsigned int i = 0; i < 2; i++)
		y[i] = reference_alloc(N_ARGUMENTS * sizeof(*y[i]));
	for (size_t f = 0; f < sizeof(functions) / sizeof(functions[0]); f++) {
		struct cpu_map args = {.in = {x}, .step = {1}, .out = y[0]};

		memcpy(args.f, functions[f].f, sizeof(args.f));
		avx2->map[CPU_F32][functions[f].op](&args, N_ARGUMENTS);
		args.out = y[1];
		avx512->map[CPU_F32][functions[f].op](&args, N_ARGUMENTS);
		for (size_t i = 0; i < N_ARGUMENTS; i++) {
			if (isnan(y[0][i]) && isnan(y[1][i]))
				continue;
			if (memcmp(&y[0][i], &y[1][i], sizeof(float)) != 0)
				fail_msg("%s of %a: %a with AVX2, %a with AVX-512",
					 functions[f].name, (double)x[i], (double)y[0][i],
					 (double)y[1][i]);
		}
	}
	for (unsigned int i = 0; i < 2; i++)
		free(y[i]);
	free(x);
}
