/* SPDX-License-Identifier: MIT */
/*
 * Kernels of float64 along rows, at every SIMD level: the same bits however the work is split, long
 * sums, and what comes first among equals. What they compute is tested by whole plans, in
 * test-cpu-operators.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel-rig.h"
#include "support/test.h"

/* @n elements of float64 up to where a page begins that may not be touched. */
static struct guarded doubles_new(size_t n)
{
	struct guarded g = guarded_new(2 * n);
	double *x = (double *)g.data;

	for (size_t i = 0; i < n; i++)
		x[i] = (double)pick(0, 1 << 30) * 0x1p-29 - 1;
	return g;
}

/* At every level; @n_out: elements of float64. */
static void check_all(struct call call, size_t n_out)
{
	call.n_out = 2 * n_out;
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		call.kernels = cpu_kernels_get((enum cpu_simd)level);
		if (call.kernels)
			check_splits(&call);
	}
}

TEST(test_reduce__splits)
{
	for (unsigned int round = 0; round < 8; round++) {
		const size_t a = pick(1, 4), b = pick(1, round == 7 ? 900 : 40), c = pick(1, 150);
		struct guarded x = doubles_new(a * b * c);

		for (enum cpu_reduce_kind kind = 0; kind <= CPU_REDUCE_MIN; kind++) {
			const struct cpu_reduce middle = {
				.x = x.data,
				.n_kept = 2,
				.kept = {a, c},
				.kept_stride = {b * c, 1},
				.n_reduced = 1,
				.reduced = {b},
				.reduced_stride = {c},
				.inner_kept = true,
				.kind = kind,
				.type = CPU_F64,
			};
			const struct cpu_reduce outer = {
				.x = x.data,
				.n_kept = 1,
				.kept = {b},
				.kept_stride = {c},
				.n_reduced = 2,
				.reduced = {a, c},
				.reduced_stride = {b * c, 1},
				.kind = kind,
				.type = CPU_F64,
			};

			check_all((struct call){.run = run_reduce,
						.args = &middle,
						.units = cpu_reduce_units(&middle)},
				  a * c);
			check_all((struct call){.run = run_reduce,
						.args = &outer,
						.units = cpu_reduce_units(&outer)},
				  b);
		}
		guarded_free(&x);
	}
}

static void check_nothing(const struct cpu_kernels *kernels, void *workspace)
{
	static const double want[] = {0,         NAN,       0, 0,         0,
				      -INFINITY, -INFINITY, 1, -INFINITY, INFINITY};

	for (unsigned int i = 0; i < 20; i++) {
		double x = 5, y[70];
		const struct cpu_reduce args = {
			.x = &x,
			.y = y,
			.kind = (enum cpu_reduce_kind)(i / 2),
			.type = CPU_F64,
			.n_kept = 1,
			.kept = {70},
			.kept_stride = {1},
			.n_reduced = 2,
			.reduced = {0, 4},
			.reduced_stride = {70, 70},
			.inner_kept = i % 2,
		};

		kernels->reduce(&args, 0, cpu_reduce_units(&args));
		for (unsigned int j = 0; j < 70; j++)
			assert_true(y[j] == want[i / 2] || (isnan(y[j]) && isnan(want[i / 2])));
	}
}

TEST(test_reduce__nothing)
{
	for_each_level(check_nothing);
}

enum { MANY = 1000001 };

/* Alike: a single chain of additions would be off by some 1e-11, and float32 much more. */
static void check_long_sum(const struct cpu_kernels *kernels, void *workspace)
{
	double *x = malloc(MANY * sizeof(*x)), *y = malloc(MANY * sizeof(*y)), sum;

	assert_true(x && y);
	for (size_t i = 0; i < MANY; i++)
		x[i] = 0.1;
	for (unsigned int inner_kept = 0; inner_kept < 2; inner_kept++) {
		const struct cpu_reduce args = {
			.x = x,
			.y = &sum,
			.type = CPU_F64,
			.n_kept = inner_kept,
			.kept = {1},
			.kept_stride = {1},
			.n_reduced = 1,
			.reduced = {MANY},
			.reduced_stride = {1},
			.inner_kept = inner_kept,
		};

		kernels->reduce(&args, 0, 1);
		assert_true(fabs(sum - MANY * 0.1) < 1e-13 * MANY * 0.1);
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

TEST(test_axis__splits)
{
	for (unsigned int round = 0; round < 16; round++) {
		const size_t outer = pick(1, 5), len = pick(1, 600);
		const size_t inner = round & 1 ? 1 : pick(2, 150), n = outer * len * inner;
		struct guarded x = doubles_new(n);
		const struct cpu_softmax softmax = {.x = x.data,
						    .outer = outer,
						    .len = len,
						    .inner = inner,
						    .log = round & 2,
						    .type = CPU_F64};
		const struct cpu_scan scan = {.x = x.data,
					      .outer = outer,
					      .len = len,
					      .inner = inner,
					      .exclusive = round & 2,
					      .reverse = round & 4,
					      .type = CPU_F64};
		const struct cpu_lp_norm norm = {.x = x.data,
						 .outer = outer,
						 .len = len,
						 .inner = inner,
						 .l1 = round & 2,
						 .type = CPU_F64};
		const struct cpu_arg arg = {.x = x.data,
					    .outer = outer,
					    .len = len,
					    .inner = inner,
					    .smallest = round & 2,
					    .last = round & 4,
					    .type = CPU_F64};
		struct call call = {.units = cpu_column_units(outer, inner)};

		call.run = run_softmax;
		call.args = &softmax;
		check_all(call, n);
		call.run = run_scan;
		call.args = &scan;
		check_all(call, n);
		call.run = run_lp_norm;
		call.args = &norm;
		check_all(call, n);
		call.run = run_arg;
		call.args = &arg;
		check_all(call, outer * inner);
		guarded_free(&x);
	}
}

/* What may be written where it was read. */
static void check_in_place(const struct cpu_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < 8; round++) {
		const size_t len = pick(1, 100), inner = round & 1 ? 1 : pick(2, 80);
		struct guarded x = doubles_new(len * inner), y = doubles_new(len * inner);
		struct cpu_softmax softmax = {.x = x.data,
					      .y = y.data,
					      .outer = 1,
					      .len = len,
					      .inner = inner,
					      .log = round & 2,
					      .type = CPU_F64};

		kernels->softmax(&softmax, 0, cpu_softmax_units(&softmax));
		softmax.y = x.data;
		kernels->softmax(&softmax, 0, cpu_softmax_units(&softmax));
		assert_memory_equal(x.data, y.data, len * inner * sizeof(double));
		guarded_free(&x);
		guarded_free(&y);
	}
}

TEST(test_softmax__in_place)
{
	for_each_level(check_in_place);
}

TEST(test_norm__splits)
{
	for (unsigned int round = 0; round < 16; round++) {
		const size_t channels = pick(1, 70), run = round & 1 ? 1 : pick(1, 90);
		const size_t rows = pick(1, 6), len = channels * run, n = rows * len;
		struct guarded x = doubles_new(n), scale = doubles_new(len),
			       bias = doubles_new(len);
		const struct cpu_norm norm = {
			.x = x.data,
			.scale = round & 2 ? scale.data : NULL,
			.bias = round & 4 ? bias.data : NULL,
			.rows = rows,
			.len = len,
			.run = run,
			.period = 1,
			.scale_each = run == 1,
			.bias_each = run == 1,
			.epsilon = 1e-3f,
			.rms = round & 8,
			.type = CPU_F64,
		};
		const struct cpu_batch_norm batch = {
			.x = x.data,
			.scale = scale.data,
			.bias = bias.data,
			.mean = bias.data,
			.var = scale.data,
			.batch = rows,
			.channels = channels,
			.run = run,
			.epsilon = 1,
			.type = CPU_F64,
		};

		check_all((struct call){.run = run_norm, .args = &norm, .units = rows}, n);
		check_all((struct call){.run = run_batch_norm,
					.args = &batch,
					.units = cpu_batch_norm_units(&batch)},
			  n);
		guarded_free(&x);
		guarded_free(&scale);
		guarded_free(&bias);
	}
}

/* Zeros of both signs are equal, and a NaN is larger and smaller than all numbers. */
static void check_equals(const struct cpu_kernels *kernels, void *workspace)
{
	static const double zeros[4] = {-1, -0.0, 0.0, -0.0}, none[4] = {3, NAN, -INFINITY, NAN};
	static const int64_t want[2][4] = {{1, 3, 0, 0}, {1, 3, 1, 3}};

	for (unsigned int i = 0; i < 8; i++) {
		int64_t at = -1;
		const struct cpu_arg args = {
			.x = i < 4 ? zeros : none,
			.y = &at,
			.outer = 1,
			.len = 4,
			.inner = 1,
			.smallest = i & 2,
			.last = i & 1,
			.type = CPU_F64,
		};

		kernels->arg(&args, 0, 1);
		assert_int_equal(at, want[i / 4][i % 4]);
	}
}

TEST(test_arg__equals)
{
	for_each_level(check_equals);
}
