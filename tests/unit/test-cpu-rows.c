/* SPDX-License-Identifier: MIT */
/*
 * Kernels along rows: reductions, ArgMax, CumSum, LogSoftmax, normalisations, RotaryEmbedding. Each
 * against its definition in double precision, at every SIMD level, however the work is split.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel-rig.h"
#include "support/test.h"

/* What floats can be, besides ordinary. */
static void add_edges(float *x, size_t n)
{
	static const float edges[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN};

	for (size_t i = 0; i < 1 + n / 50; i++)
		x[pick(0, n - 1)] = edges[pick(0, 4)];
}

static const char *const kind_names[] = {"sum",     "mean",        "sum of squares", "L1",  "L2",
					 "log sum", "log sum exp", "product",        "max", "min"};

static double reduce_start(enum cpu_reduce_kind kind)
{
	if (kind == CPU_REDUCE_MAX || kind == CPU_REDUCE_LOG_SUM_EXP)
		return -INFINITY;
	return kind == CPU_REDUCE_MIN ? INFINITY : kind == CPU_REDUCE_PROD;
}

static double reduce_step(enum cpu_reduce_kind kind, double acc, double x)
{
	switch (kind) {
	case CPU_REDUCE_SUM_SQUARE:
	case CPU_REDUCE_L2:
		return acc + x * x;
	case CPU_REDUCE_L1:
		return acc + fabs(x);
	case CPU_REDUCE_LOG_SUM_EXP:
		if (isnan(acc) || isnan(x))
			return NAN;
		if (isinf(acc) || isinf(x))
			return fmax(acc, x);
		return fmax(acc, x) + log1p(exp(-fabs(acc - x)));
	case CPU_REDUCE_PROD:
		return acc * x;
	case CPU_REDUCE_MAX:
		return isnan(acc) || x <= acc ? acc : x;
	case CPU_REDUCE_MIN:
		return isnan(acc) || x >= acc ? acc : x;
	default:
		return acc + x;
	}
}

static double reduce_finish(enum cpu_reduce_kind kind, double acc, double n)
{
	switch (kind) {
	case CPU_REDUCE_MEAN:
		return acc / n;
	case CPU_REDUCE_L2:
		return sqrt(acc);
	case CPU_REDUCE_LOG_SUM:
		return log(acc);
	default:
		return acc;
	}
}

/* Reduces the middle, or the first and the last, of three dimensions. */
static void check_reduce(enum cpu_reduce_kind kind, const size_t dims[3], bool middle,
			 const float *x)
{
	const size_t n = middle ? dims[0] * dims[2] : dims[1];
	double *sums = malloc(n * sizeof(*sums));
	float *want = malloc(n * sizeof(*want));
	struct cpu_reduce args = {.x = x, .kind = kind};
	const size_t strides[3] = {dims[1] * dims[2], dims[2], 1};

	assert_true(sums && want);
	for (size_t i = 0; i < n; i++)
		sums[i] = reduce_start(kind);
	for (size_t i = 0; i < dims[0] * dims[1] * dims[2]; i++) {
		const size_t to =
			middle ? i / strides[0] * dims[2] + i % dims[2] : i / dims[2] % dims[1];

		sums[to] = reduce_step(kind, sums[to], (double)x[i]);
	}
	for (size_t i = 0; i < n; i++)
		want[i] = (float)reduce_finish(kind, sums[i],
					       (double)(middle ? dims[1] : dims[0] * dims[2]));
	for (unsigned int d = 0; d < 3; d++) {
		const bool reduced = (d == 1) == middle;
		unsigned int *to = reduced ? &args.n_reduced : &args.n_kept;

		(reduced ? args.reduced : args.kept)[*to] = dims[d];
		(reduced ? args.reduced_stride : args.kept_stride)[*to] = strides[d];
		++*to;
	}
	args.inner_kept = middle;
	check_levels(kind_names[kind],
		     (struct call){.run = run_reduce,
				   .args = &args,
				   .units = cpu_reduce_units(&args),
				   .n_out = n},
		     want, kind == CPU_REDUCE_PROD ? 2e-4 : 2e-5, 2e-5);
	free(sums);
	free(want);
}

TEST(test_reduce__every_kind)
{
	for (unsigned int round = 0; round < 16; round++) {
		const size_t dims[3] = {pick(1, 4), round == 7 ? 900 : pick(1, 40),
					round == 8   ? 30000
					: round >= 9 ? pick(1, 700)
						     : pick(1, 150)};
		const size_t n = dims[0] * dims[1] * dims[2];
		struct guarded x = guarded_new(n);

		for (enum cpu_reduce_kind kind = 0; kind <= CPU_REDUCE_MIN; kind++) {
			for (size_t i = 0; i < n; i++) {
				/* Neither over- nor underflow, and no sum near 0. */
				if (kind == CPU_REDUCE_PROD)
					x.data[i] = 1 + x.data[i] / 1000;
				else if (kind == CPU_REDUCE_LOG_SUM || kind == CPU_REDUCE_SUM)
					x.data[i] = fabsf(x.data[i]);
			}
			check_reduce(kind, dims, true, x.data);
			check_reduce(kind, dims, false, x.data);
		}
		add_edges(x.data, n);
		for (enum cpu_reduce_kind kind = 0; kind <= CPU_REDUCE_MIN; kind++) {
			check_reduce(kind, dims, true, x.data);
			check_reduce(kind, dims, false, x.data);
		}
		guarded_free(&x);
	}
}

TEST(test_reduce__nothing)
{
	static const float want[] = {0, NAN, 0, 0, 0, -INFINITY, -INFINITY, 1, -INFINITY, INFINITY};

	for (enum cpu_reduce_kind kind = 0; kind <= CPU_REDUCE_MIN; kind++) {
		float line[70], x = 5;

		for (size_t i = 0; i < 70; i++)
			line[i] = want[kind];
		for (unsigned int inner_kept = 0; inner_kept < 2; inner_kept++) {
			const struct cpu_reduce args = {
				.x = &x,
				.kind = kind,
				.n_kept = 1,
				.kept = {70},
				.kept_stride = {1},
				.n_reduced = 2,
				.reduced = {0, 4},
				.reduced_stride = {70, 70},
				.inner_kept = inner_kept,
			};

			check_levels(kind_names[kind],
				     (struct call){.run = run_reduce,
						   .args = &args,
						   .units = cpu_reduce_units(&args),
						   .n_out = 70},
				     line, 0, 0);
		}
	}
}

/* A million and one alike: a single chain of float additions would lose a hundredth of them. */
TEST(test_reduce__long_sum)
{
	const size_t n = 1000001;
	float *x = malloc(n * sizeof(*x)), want = 1000001 * 0.1f;

	assert_non_null(x);
	for (size_t i = 0; i < n; i++)
		x[i] = 0.1f;
	for (unsigned int inner_kept = 0; inner_kept < 2; inner_kept++) {
		const struct cpu_reduce args = {
			.x = x,
			.n_kept = inner_kept,
			.kept = {1},
			.kept_stride = {1},
			.n_reduced = 1,
			.reduced = {n},
			.reduced_stride = {1},
			.inner_kept = inner_kept,
		};

		check_levels("long sum",
			     (struct call){.run = run_reduce,
					   .args = &args,
					   .units = cpu_reduce_units(&args),
					   .n_out = 1},
			     &want, 2e-5, 0);
	}
	free(x);
}

TEST(test_reduce__integers)
{
	static const int64_t wide[6] = {3, -7, INT64_MAX, 2, 5, INT64_MIN};
	static const int32_t narrow[6] = {3, -7, INT32_MAX, 2, 5, INT32_MIN};
	static const int8_t bytes[6] = {3, -7, 127, 2, 5, -128};
	static const uint8_t unsigned_bytes[6] = {3, 7, 255, 2, 5, 0};
	/* Over each line of 3: the sum, the product, the largest, the smallest. */
	static const enum cpu_reduce_kind kinds[4] = {CPU_REDUCE_SUM, CPU_REDUCE_PROD,
						      CPU_REDUCE_MAX, CPU_REDUCE_MIN};
	const int64_t wide_want[4][2] = {{INT64_MAX - 4, INT64_MIN + 7},
					 {(int64_t)(21 - (UINT64_C(1) << 63) * 21), 0},
					 {INT64_MAX, 5},
					 {-7, INT64_MIN}};
	static const int32_t narrow_want[4][2] = {{INT32_MAX - 4, INT32_MIN + 7},
						  {(int32_t)(21 - (21u << 31)), 0},
						  {INT32_MAX, 5},
						  {-7, INT32_MIN}};
	struct cpu_reduce args = {
		.n_kept = 1,
		.kept = {2},
		.kept_stride = {3},
		.n_reduced = 1,
		.reduced = {3},
		.reduced_stride = {1},
	};

	for (unsigned int i = 0; i < 4; i++) {
		int8_t got[2];

		args.kind = kinds[i];
		args.type = CPU_I64;
		args.x = wide;
		check_levels(
			kind_names[i],
			(struct call){.run = run_reduce, .args = &args, .units = 2, .n_out = 4},
			wide_want[i], -1, 0);
		args.type = CPU_I32;
		args.x = narrow;
		check_levels(
			kind_names[i],
			(struct call){.run = run_reduce, .args = &args, .units = 2, .n_out = 2},
			narrow_want[i], -1, 0);
		if (i < 2)
			continue;
		args.type = CPU_I8;
		args.x = bytes;
		args.y = got;
		cpu_kernels_get(CPU_SIMD_AUTO)->reduce(&args, 0, 2);
		assert_int_equal(got[0], i == 2 ? 127 : -7);
		assert_int_equal(got[1], i == 2 ? 5 : -128);
		args.type = CPU_U8;
		args.x = unsigned_bytes;
		cpu_kernels_get(CPU_SIMD_AUTO)->reduce(&args, 0, 2);
		assert_int_equal((uint8_t)got[0], i == 2 ? 255 : 3);
		assert_int_equal((uint8_t)got[1], i == 2 ? 5 : 0);
	}
}

static double arg_value(const struct cpu_arg *args, size_t i)
{
	double value = args->type == CPU_F32   ? (double)((const float *)args->x)[i]
		       : args->type == CPU_I32 ? ((const int32_t *)args->x)[i]
					       : (double)((const int64_t *)args->x)[i];

	return args->smallest ? -value : value;
}

static void check_arg(struct cpu_arg *args)
{
	const size_t n = args->outer * args->inner;
	int64_t *want = malloc(n * sizeof(*want));

	assert_non_null(want);
	for (size_t i = 0; i < n; i++) {
		const size_t base = i / args->inner * args->len * args->inner + i % args->inner;
		size_t best = 0;

		for (size_t j = 1; j < args->len; j++) {
			const double a = arg_value(args, base + best * args->inner);
			const double b = arg_value(args, base + j * args->inner);
			const bool equal = a == b || (isnan(a) && isnan(b));

			if (b > a || (isnan(b) && !isnan(a)) || (equal && args->last))
				best = j;
		}
		want[i] = (int64_t)best;
	}
	check_levels("arg",
		     (struct call){.run = run_arg,
				   .args = args,
				   .units = cpu_column_units(args->outer, args->inner),
				   .n_out = 2 * n},
		     want, -1, 0);
	free(want);
}

TEST(test_arg__ties_and_nan)
{
	for (unsigned int round = 0; round < 24; round++) {
		struct cpu_arg args = {.outer = pick(1, 4),
				       .len = round == 0 ? 1 : pick(1, 200),
				       .inner = round & 1 ? 1 : pick(2, 100)};
		const size_t n = args.outer * args.len * args.inner;
		struct guarded x = guarded_new(n), ints = guarded_new(n);

		/* Few different values, so that most are there several times. */
		for (size_t i = 0; i < n; i++)
			x.data[i] = roundf(x.data[i] * 8);
		for (size_t i = 0; i < n; i++)
			((int32_t *)ints.data)[i] = (int32_t)x.data[i];
		if (round & 2)
			add_edges(x.data, n);
		for (unsigned int way = 0; way < 4; way++) {
			args.smallest = way & 1;
			args.last = way & 2;
			args.type = CPU_F32;
			args.x = x.data;
			check_arg(&args);
			args.type = CPU_I32;
			args.x = ints.data;
			check_arg(&args);
		}
		guarded_free(&x);
		guarded_free(&ints);
	}
}

TEST(test_scan__every_way)
{
	for (unsigned int round = 0; round < 16; round++) {
		struct cpu_scan args = {.outer = pick(1, 4),
					.len = pick(1, 300),
					.inner = round & 1 ? 1 : pick(2, 100),
					.exclusive = round & 2,
					.reverse = round & 4};
		const size_t n = args.outer * args.len * args.inner;
		struct guarded x = guarded_new(n);
		float *want = malloc(n * sizeof(float));
		int32_t *ints = malloc(n * sizeof(int32_t)),
			*want_ints = malloc(n * sizeof(int32_t));

		assert_true(want && ints && want_ints);
		for (size_t i = 0; i < n; i++)
			ints[i] = (int32_t)(x.data[i] * 2e9f);
		for (size_t column = 0; column < args.outer * args.inner; column++) {
			const size_t base =
				column / args.inner * args.len * args.inner + column % args.inner;
			double sum = 0;
			uint32_t int_sum = 0;

			for (size_t i = 0; i < args.len; i++) {
				const size_t at =
					base + (args.reverse ? args.len - 1 - i : i) * args.inner;

				want[at] = (float)(args.exclusive ? sum : sum + (double)x.data[at]);
				sum += (double)x.data[at];
				want_ints[at] =
					(int32_t)(args.exclusive ? int_sum
								 : int_sum + (uint32_t)ints[at]);
				int_sum += (uint32_t)ints[at];
			}
		}
		args.x = x.data;
		check_levels("scan",
			     (struct call){.run = run_scan,
					   .args = &args,
					   .units = cpu_column_units(args.outer, args.inner),
					   .n_out = n},
			     want, 1e-5, 1e-5);
		args.x = ints;
		args.type = CPU_I32;
		check_levels("scan of integers",
			     (struct call){.run = run_scan,
					   .args = &args,
					   .units = cpu_column_units(args.outer, args.inner),
					   .n_out = n},
			     want_ints, -1, 0);
		free(want);
		free(ints);
		free(want_ints);
		guarded_free(&x);
	}
}

TEST(test_softmax__and_its_logarithm)
{
	for (unsigned int round = 0; round < 24; round++) {
		struct cpu_softmax args = {.outer = pick(1, 5),
					   .len = pick(1, 150),
					   .inner = round & 1 ? 1 : pick(2, 100),
					   .log = round & 2};
		const size_t n = args.outer * args.len * args.inner;
		struct guarded x = guarded_new(n);
		float *want = malloc(n * sizeof(float));

		assert_non_null(want);
		for (size_t i = 0; i < n; i++)
			x.data[i] *= round & 4 ? 60 : 3;
		for (size_t column = 0; column < args.outer * args.inner; column++) {
			const size_t base =
				column / args.inner * args.len * args.inner + column % args.inner;
			double max = -INFINITY, sum = 0;

			for (size_t i = 0; i < args.len; i++)
				max = fmax(max, (double)x.data[base + i * args.inner]);
			for (size_t i = 0; i < args.len; i++)
				sum += exp((double)x.data[base + i * args.inner] - max);
			for (size_t i = 0; i < args.len; i++) {
				const size_t at = base + i * args.inner;
				const double d = (double)x.data[at] - max;

				want[at] = (float)(args.log ? d - log(sum) : exp(d) / sum);
			}
		}
		args.x = x.data;
		check_levels("softmax",
			     (struct call){.run = run_softmax,
					   .args = &args,
					   .units = cpu_softmax_units(&args),
					   .n_out = n},
			     want, 2e-6, 2e-6);
		free(want);
		guarded_free(&x);
	}
}

TEST(test_norm__layers_and_groups)
{
	for (unsigned int round = 0; round < 32; round++) {
		const size_t runs = round & 1 ? pick(1, 6) : 1, period = round & 2 ? pick(1, 3) : 1;
		const size_t run = round & 1 ? pick(1, 60) : 1;
		const size_t len = round & 1 ? runs * run : round == 4 ? 40000 : pick(1, 300);
		const size_t rows = period * pick(1, 4), n = rows * len;
		const size_t n_params = period * (len / run);
		struct guarded x = guarded_new(n), scale = guarded_new(n_params),
			       bias = guarded_new(n_params);
		struct cpu_norm args = {
			.x = x.data,
			.scale = round & 4 ? scale.data : NULL,
			.bias = round & 8 ? bias.data : NULL,
			.rows = rows,
			.len = len,
			.run = run,
			.period = period,
			.scale_each = run == 1,
			.bias_each = run == 1,
			.epsilon = 1e-3f,
			.rms = round & 16,
			.mean = round % 3 ? NULL : x.data,
			.inv_std = round % 3 ? NULL : x.data,
		};
		const size_t n_out = n + (args.mean ? 2 * rows : 0);
		float *want = malloc(n_out * sizeof(float));

		assert_non_null(want);
		/* Far from 0, where the naive formula for the variance fails. */
		for (size_t i = 0; i < n; i++)
			x.data[i] += round & 16 ? 0 : 300;
		for (size_t row = 0; row < rows; row++) {
			double mean = 0, var = 0, inv;

			for (size_t i = 0; i < len && !args.rms; i++)
				mean += (double)x.data[row * len + i] / (double)len;
			for (size_t i = 0; i < len; i++)
				var += pow((double)x.data[row * len + i] - mean, 2) / (double)len;
			inv = 1 / sqrt(var + 1e-3);
			for (size_t i = 0; i < len; i++) {
				const size_t at = row % period * (len / run) + i / run;

				want[row * len + i] =
					(float)(((double)x.data[row * len + i] - mean) * inv *
							(args.scale ? (double)scale.data[at] : 1) +
						(args.bias ? (double)bias.data[at] : 0));
			}
			if (args.mean) {
				want[n + row] = (float)mean;
				want[n + rows + row] = (float)inv;
			}
		}
		check_levels("norm",
			     (struct call){
				     .run = run_norm, .args = &args, .units = rows, .n_out = n_out},
			     want, 1e-4, 1e-3);
		free(want);
		guarded_free(&x);
		guarded_free(&scale);
		guarded_free(&bias);
	}
}

TEST(test_batch_norm__channels)
{
	for (unsigned int round = 0; round < 12; round++) {
		struct cpu_batch_norm args = {.batch = pick(1, 4),
					      .channels = pick(1, 70),
					      .run = round & 1 ? 1 : pick(1, 90),
					      .epsilon = 1e-5f};
		const size_t n = args.batch * args.channels * args.run;
		struct guarded x = guarded_new(n), params[4];
		float *want = malloc(n * sizeof(float));

		assert_non_null(want);
		for (unsigned int i = 0; i < 4; i++)
			params[i] = guarded_new(args.channels);
		for (size_t c = 0; c < args.channels; c++)
			params[3].data[c] = fabsf(params[3].data[c]) + 0.1f;
		args.x = x.data;
		args.scale = params[0].data;
		args.bias = params[1].data;
		args.mean = params[2].data;
		args.var = params[3].data;
		for (size_t i = 0; i < n; i++) {
			const size_t c = i / args.run % args.channels;

			want[i] = (float)(((double)x.data[i] - (double)params[2].data[c]) /
						  sqrt((double)params[3].data[c] + 1e-5) *
						  (double)params[0].data[c] +
					  (double)params[1].data[c]);
		}
		check_levels("batch norm",
			     (struct call){.run = run_batch_norm,
					   .args = &args,
					   .units = cpu_batch_norm_units(&args),
					   .n_out = n},
			     want, 1e-5, 1e-5);
		free(want);
		guarded_free(&x);
		for (unsigned int i = 0; i < 4; i++)
			guarded_free(&params[i]);
	}
}

TEST(test_lp_norm__columns)
{
	for (unsigned int round = 0; round < 16; round++) {
		struct cpu_lp_norm args = {.outer = pick(1, 5),
					   .len = pick(1, 300),
					   .inner = round & 1 ? 1 : pick(2, 70),
					   .l1 = round & 2};
		const size_t n = args.outer * args.len * args.inner;
		struct guarded x = guarded_new(n);
		float *want = malloc(n * sizeof(float));

		assert_non_null(want);
		for (size_t column = 0; column < args.outer * args.inner; column++) {
			const size_t base =
				column / args.inner * args.len * args.inner + column % args.inner;
			double sum = 0;

			for (size_t i = 0; i < args.len; i++) {
				float *at = &x.data[base + i * args.inner];

				/* The first column is all zeros, and stays. */
				*at = column == 0 ? 0 : *at;
				sum += args.l1 ? fabs((double)*at) : (double)*at * (double)*at;
			}
			sum = args.l1 ? sum : sqrt(sum);
			for (size_t i = 0; i < args.len; i++) {
				const size_t at = base + i * args.inner;

				want[at] = (float)(sum == 0 ? 0 : (double)x.data[at] / sum);
			}
		}
		args.x = x.data;
		check_levels("lp norm",
			     (struct call){.run = run_lp_norm,
					   .args = &args,
					   .units = cpu_column_units(args.outer, args.inner),
					   .n_out = n},
			     want, 1e-5, 1e-6);
		free(want);
		guarded_free(&x);
	}
}

static void run_rotary(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_rotary args = *(const struct cpu_rotary *)call->args;

	args.y = y;
	call->kernels->rotary(&args, begin, end);
}

TEST(test_rotary__every_form)
{
	for (unsigned int round = 0; round < 24; round++) {
		struct cpu_rotary args = {.batch = pick(1, 3),
					  .seq = pick(1, 5),
					  .heads = pick(1, 4),
					  .head = 2 * pick(1, 40),
					  .interleaved = round & 1,
					  .n_positions = 9};
		const bool heads_first = round & 2, given = round & 4;
		const size_t n = args.batch * args.seq * args.heads * args.head;
		const size_t half = round & 8 ? args.head / 2 : pick(1, args.head / 2);
		const size_t lines = given ? args.n_positions : args.batch * args.seq;
		struct guarded x = guarded_new(n), cosine = guarded_new(lines * half),
			       sine = guarded_new(lines * half);
		int64_t positions[15];
		float *want = malloc(n * sizeof(float));

		assert_non_null(want);
		args.rotary = 2 * half;
		args.x = x.data;
		args.cos = cosine.data;
		args.sin = sine.data;
		args.positions = given ? positions : NULL;
		args.batch_stride = args.seq * args.heads * args.head;
		args.seq_stride = heads_first ? args.head : args.heads * args.head;
		args.head_stride = heads_first ? args.seq * args.head : args.head;
		for (unsigned int i = 0; i < 15; i++)
			positions[i] = i == 3 ? -5 : i == 4 ? INT64_MAX : (int64_t)pick(0, 8);
		for (size_t i = 0; i < n; i++) {
			const size_t d = i % args.head, line = i / args.head;
			const size_t b = line / (args.heads * args.seq);
			const size_t s =
				heads_first ? line % args.seq : line / args.heads % args.seq;
			int64_t p =
				given ? positions[b * args.seq + s] : (int64_t)(b * args.seq + s);
			const size_t pair = args.interleaved ? d / 2 : d % half;
			const bool second = args.interleaved ? d % 2 : d >= half;
			const float *head = x.data + line * args.head;
			const float a = head[args.interleaved ? 2 * pair : pair];
			const float c = head[args.interleaved ? 2 * pair + 1 : pair + half];
			double cos_p, sin_p;

			if (d >= args.rotary) {
				want[i] = head[d];
				continue;
			}
			p = p < 0 ? 0 : p >= (int64_t)lines ? (int64_t)lines - 1 : p;
			cos_p = (double)cosine.data[(size_t)p * half + pair];
			sin_p = (double)sine.data[(size_t)p * half + pair];
			want[i] = (float)(second ? (double)a * sin_p + (double)c * cos_p
						 : (double)a * cos_p - (double)c * sin_p);
		}
		check_levels("rotary",
			     (struct call){.run = run_rotary,
					   .args = &args,
					   .units = cpu_rotary_units(&args),
					   .n_out = n},
			     want, 1e-5, 1e-6);
		free(want);
		guarded_free(&x);
		guarded_free(&cosine);
		guarded_free(&sine);
	}
}
