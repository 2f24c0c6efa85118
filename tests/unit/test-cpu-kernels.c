/* SPDX-License-Identifier: MIT */
/*
 * The CPU's kernels, called directly with arguments that no plan has, or for which no reference is
 * exact enough. test-operators.c has the rest.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "reference/reference.h"
#include "shm/half.h"
#include "support/test.h"
#include "unit/cpu-levels.h"

enum { MANY = 1000001 };

static void for_each_level(void (*check)(const struct cpu_kernels *kernels))
{
	for (enum cpu_simd level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
		if (cpu_level(level))
			check(cpu_level(level));
}

/* Reductions of zero elements, along rows and along columns. */
static void check_nothing(const struct cpu_kernels *kernels)
{
	static const double want[] = {0,         NAN,       0, 0,         0,
				      -INFINITY, -INFINITY, 1, -INFINITY, INFINITY};

	for (unsigned int i = 0; i < 40; i++) {
		const bool is_double = i / 20;
		double x = 5, y[70];
		const struct cpu_reduce args = {
			.x = &x,
			.y = y,
			.kind = (enum cpu_reduce_kind)(i / 2 % 10),
			.type = is_double ? CPU_F64 : CPU_F32,
			.n_kept = 1,
			.kept = {70},
			.kept_stride = {1},
			.n_reduced = 2,
			.reduced = {0, 4},
			.reduced_stride = {70, 70},
			.inner_kept = i % 2,
		};

		kernels->reduce(&args, 0, cpu_reduce_units(&args));
		for (unsigned int j = 0; j < 70; j++) {
			const double got = is_double ? y[j] : (double)((float *)y)[j];

			assert_true(got == want[i / 2 % 10] ||
				    (isnan(got) && isnan(want[i / 2 % 10])));
		}
	}
}

TEST(test_reduce__nothing)
{
	for_each_level(check_nothing);
}

/*
 * The sum of a million and one equal numbers: a single chain of additions would lose 1% in float32,
 * and be off by some 1e-11 in float64.
 */
static void check_long_sum(const struct cpu_kernels *kernels)
{
	double *x = malloc(MANY * sizeof(*x)), *y = malloc(MANY * sizeof(*y));

	assert_true(x && y);
	for (unsigned int i = 0; i < 4; i++) {
		const bool is_double = i / 2, inner_kept = i % 2;
		const double tolerance = is_double ? 1e-13 : 2e-5;
		double sum = 0;
		const struct cpu_reduce args = {
			.x = x,
			.y = &sum,
			.type = is_double ? CPU_F64 : CPU_F32,
			.n_kept = inner_kept,
			.kept = {1},
			.kept_stride = {1},
			.n_reduced = 1,
			.reduced = {MANY},
			.reduced_stride = {1},
			.inner_kept = inner_kept,
		};

		for (size_t k = 0; k < MANY; k++)
			if (is_double)
				x[k] = 0.1;
			else
				((float *)x)[k] = 0.1f;
		kernels->reduce(&args, 0, 1);
		if (!is_double)
			sum = (double)*(float *)&sum;
		assert_true(fabs(sum - MANY * 0.1) < tolerance * MANY * 0.1);
	}
	kernels->scan(
		&(struct cpu_scan){
			.x = x, .y = y, .outer = 1, .len = MANY, .inner = 1, .type = CPU_F64},
		0, 1);
	for (size_t i = 0; i < MANY; i += 1000)
		assert_true(fabs(y[i] - (double)(i + 1) * 0.1) <= 1e-13 * y[i]);
	free(x);
	free(y);
}

TEST(test_reduce__long_sum)
{
	for_each_level(check_long_sum);
}

/* Kernels may write their result over their input. */
static void check_in_place(const struct cpu_kernels *kernels)
{
	for (unsigned int i = 0; i < 8; i++) {
		const size_t inner = i & 1 ? 1 : 79, n = 90 * inner;
		const bool is_double = i & 4;
		const size_t bytes = n * (is_double ? sizeof(double) : sizeof(float));
		double *x = reference_alloc(bytes), *y = reference_alloc(bytes);
		struct cpu_softmax args = {.x = x,
					   .y = y,
					   .outer = 1,
					   .len = 90,
					   .inner = inner,
					   .log = i & 2,
					   .type = is_double ? CPU_F64 : CPU_F32};

		for (size_t k = 0; k < n; k++)
			if (is_double)
				x[k] = (double)(k * 7919 % 1000) / 500 - 1;
			else
				((float *)x)[k] = (float)(k * 7919 % 1000) / 500 - 1;
		kernels->softmax(&args, 0, cpu_softmax_units(&args));
		args.y = x;
		kernels->softmax(&args, 0, cpu_softmax_units(&args));
		assert_memory_equal(x, y, bytes);
		free(x);
		free(y);
	}
}

TEST(test_softmax__in_place)
{
	for_each_level(check_in_place);
}

TEST(test_levels__known)
{
	assert_non_null(cpu_kernels_get(CPU_SIMD_AUTO));
	assert_non_null(cpu_kernels_get(CPU_SIMD_SSE2));
	assert_null(cpu_kernels_get(CPU_SIMD_COUNT));
}

/*
 * All float16s and floats of all kinds convert as in shm/half.h, for any length and rounding mode.
 */
TEST(test_half__bits)
{
	enum { N = 1 << 16 };
	uint16_t *halves = malloc(N * sizeof(*halves)), *back = malloc(N * sizeof(*back));
	float *floats = malloc(N * sizeof(*floats));
	uint64_t seed = 4711;

	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_level((enum cpu_simd)level);

		if (!kernels)
			continue;
		for (unsigned int i = 0; i < N; i++)
			halves[i] = (uint16_t)i;
		kernels->half_load(N, halves, floats);
		kernels->half_store(N, floats, back);
		for (unsigned int i = 0; i < N; i++) {
			const float want = half_to_float(halves[i]);

			assert_memory_equal(&floats[i], &want, sizeof(want));
			/* A NaN becomes quiet; all other values are kept. */
			assert_int_equal(back[i],
					 (i & 0x7c00) == 0x7c00 && (i & 0x3ff) ? i | 0x200 : i);
		}
		for (unsigned int round = 0; round < 40; round++) {
			for (unsigned int i = 0; i < N; i++) {
				uint32_t bits = (uint32_t)(reference_random(&seed) >> 16);

				/* Ties between two float16s, and floats next to them. */
				if (round & 1)
					bits = (bits & 0xffffe000) + 0x1000 + bits % 3 - 1;
				if (round & 2)
					bits = (bits & 0x80ffffff) | (0x32 + bits % 24) << 24 >> 1;
				memcpy(&floats[i], &bits, sizeof(bits));
			}
			kernels->half_store(N, floats, back);
			for (unsigned int i = 0; i < N; i++)
				assert_int_equal(back[i], half_from_float(floats[i]));
		}
		for (size_t n = 0; n < 70; n++) {
			memset(back, 0x55, 80 * sizeof(*back));
			kernels->half_store(n, floats, back);
			for (size_t i = 0; i < 80; i++)
				assert_int_equal(back[i],
						 i < n ? half_from_float(floats[i]) : 0x5555);
		}
	}
	free(halves);
	free(back);
	free(floats);
}

/* Dilations so large that a window's extent overflows 64 bits: 2^30 * 2^30 * 16 floats. */
TEST(test_strips__too_large_to_count)
{
	static const size_t far[] = {(1u << 30) - 1, 0x7ffffffe};

	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < 2; k++) {
			const struct cpu_window args = {
				.batch = 1,
				.channels = 16,
				.out_channels = 16,
				.group = 1,
				.depth = 1,
				.height = 8,
				.width = 8,
				.out_depth = 1,
				.out_height = 8,
				.out_width = 8,
				.kernel = {1, 2, 2},
				.stride = {1, 1, 1},
				.dilation = {1, far[i], far[k] - 7},
			};

			assert_false(cpu_conv_last_strips(&args));
		}
}
