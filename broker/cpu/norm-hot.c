/* SPDX-License-Identifier: MIT */
/*
 * Normalisations
 *
 * The first pass computes a row's mean, the second its variance from the differences to the mean:
 * the difference of two large sums would lose all digits where the mean is far from 0. Each sum has
 * NORM_LANES partial sums, which are cut into pieces of a fixed length. The third pass writes the
 * results. Most rows fit into the first-level cache.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-exp.h"
#include "cpu/vec.h"

/* Twice the usual partial sums hide the latency of additions, since a pass does little else. */
#define NORM_REGS  (2 * VEC_REGS)
#define NORM_LANES (2 * VEC_LANES)

/* elements of one piece of a sum, after which the kernel polls */
enum { NORM_PIECE = 256 * NORM_LANES };

/* rows of columns between two polls; each row may miss the cache */
enum { NORM_PAUSE_ROWS = 1 << 10 };

enum norm_sum { NORM_PLAIN, NORM_SQUARES, NORM_ABSOLUTE };

VEC_INLINE vf norm_term(const enum norm_sum kind, vf acc, vf x, vf mean)
{
	const vf d = x - mean;

	if (kind == NORM_PLAIN)
		return acc + x;
	if (kind == NORM_ABSOLUTE)
		return acc + (vf)((vu)x & 0x7fffffffu);
	return acc + d * d;
}

/* Return the sum of the terms; squares are of the differences to @mean. */
VEC_INLINE float norm_sum(const enum norm_sum kind, struct cpu_pause *pause, const float *x,
			  size_t len, float mean_one)
{
	const vf mean = vf_set(mean_one);
	vf total[NORM_REGS] = {0};
	float sum;

	for (size_t begin = 0; begin < len; begin += NORM_PIECE) {
		const size_t end = len - begin < NORM_PIECE ? len : begin + NORM_PIECE;
		vf acc[NORM_REGS] = {0};
		size_t i = begin;

		if (begin > 0)
			cpu_pause(pause);
		for (; i + NORM_LANES <= end; i += NORM_LANES) {
			VEC_UNROLL
			for (size_t v = 0; v < NORM_REGS; v++)
				acc[v] = norm_term(kind, acc[v], vf_load(x + i + v * VW), mean);
		}
		VEC_UNROLL
		for (size_t v = 0; v < NORM_REGS; v++) {
			const size_t at = i + v * VW, n = end - at < VW ? end - at : VW;

			if (at < end)
				acc[v] = vf_select(
					vi_first(n),
					norm_term(kind, acc[v], vf_load_partial(x + at, n), mean),
					acc[v]);
		}
		VEC_UNROLL
		for (size_t v = 0; v < NORM_REGS; v++)
			total[v] += acc[v];
	}
	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++)
		total[v] += total[v + VEC_REGS];
	sum = vec_sum(total);
	return sum;
}

/* The mapping of an element x to (x - mean) * inv * scale + bias. */
struct norm_map {
	vf mean, inv;
	float scale, bias; /* where they are constant along the row */
};

VEC_INLINE vf norm_apply(const struct norm_map *map, vf x, vf scale, vf bias)
{
	return (x - map->mean) * map->inv * scale + bias;
}

/* Write the results of a row. @scale and @bias are arrays if @scales and @shifts. */
VEC_INLINE void norm_write(struct cpu_pause *pause, const struct norm_map *map, const float *x,
			   float *y, size_t n, const bool scales, const float *scale,
			   const bool shifts, const float *bias)
{
	const vf one_scale = vf_set(map->scale), one_bias = vf_set(map->bias);
	size_t i = 0;

	for (; i + VW <= n; i += VW) {
		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		vf_store(y + i,
			 norm_apply(map, vf_load(x + i), scales ? vf_load(scale + i) : one_scale,
				    shifts ? vf_load(bias + i) : one_bias));
	}
	if (i < n)
		vf_store_partial(y + i,
				 norm_apply(map, vf_load_partial(x + i, n - i),
					    scales ? vf_load_partial(scale + i, n - i) : one_scale,
					    shifts ? vf_load_partial(bias + i, n - i) : one_bias),
				 n - i);
}

static void norm_row(const struct cpu_norm *args, size_t row)
{
	const size_t len = args->len, run = args->run, at = row % args->period;
	const bool scales = args->scale && args->scale_each;
	const bool shifts = args->bias && args->bias_each;
	const float *scale = args->scale, *bias = args->bias;
	const float *x = (const float *)args->x + row * len;
	float *y = (float *)args->y + row * len;
	float mean = 0, inv;
	struct norm_map map;

	if (!args->rms)
		mean = norm_sum(NORM_PLAIN, args->pause, x, len, 0) / (float)len;
	inv = norm_sum(NORM_SQUARES, args->pause, x, len, mean) / (float)len;
	inv = 1 / f_sqrt(inv + args->epsilon);
	if (args->mean)
		args->mean[row] = mean;
	if (args->inv_std)
		args->inv_std[row] = inv;
	map = (struct norm_map){vf_set(mean), vf_set(inv), 1, 0};

	if (scales && shifts) {
		norm_write(args->pause, &map, x, y, len, true, scale + at * len, true,
			   bias + at * len);
		return;
	}
	if (scales) {
		map.bias = bias ? bias[at] : 0;
		norm_write(args->pause, &map, x, y, len, true, scale + at * len, false, NULL);
		return;
	}
	if (shifts) {
		map.scale = scale ? scale[at] : 1;
		norm_write(args->pause, &map, x, y, len, false, NULL, true, bias + at * len);
		return;
	}
	for (size_t i = 0; i < len / run; i++) {
		map.scale = scale ? scale[at * (len / run) + i] : 1;
		map.bias = bias ? bias[at * (len / run) + i] : 0;
		norm_write(args->pause, &map, x + i * run, y + i * run, run, false, NULL, false,
			   NULL);
	}
}

void CPU_FN(norm)(const struct cpu_norm *args, size_t begin, size_t end)
{
	if (args->type == CPU_F64) {
		CPU_FN(norm_f64)(args, begin, end);
		return;
	}
	for (size_t row = begin; row < end; row++)
		norm_row(args, row);
}

static vf batch_norm_inv(const struct cpu_batch_norm *args, size_t c, size_t n)
{
	return vf_set(1) /
	       vf_sqrt(vf_load_partial((const float *)args->var + c, n) + vf_set(args->epsilon));
}

void CPU_FN(batch_norm)(const struct cpu_batch_norm *args, size_t begin, size_t end)
{
	const float *scale = args->scale, *bias = args->bias, *mean = args->mean;
	const size_t channels = args->channels, run = args->run;

	if (args->type == CPU_F64) {
		CPU_FN(batch_norm_f64)(args, begin, end);
		return;
	}
	if (run == 1) {
		for (size_t i = begin; i < end; i++) {
			const float *x = (const float *)args->x + i * channels;
			float *y = (float *)args->y + i * channels;

			for (size_t c = 0; c < channels; c += VW) {
				const size_t n = channels - c < VW ? channels - c : VW;
				const struct norm_map map = {
					.mean = vf_load_partial(mean + c, n),
					.inv = batch_norm_inv(args, c, n),
				};

				cpu_pause_at(args->pause, c, CPU_PAUSE_ELEMS);
				vf_store_partial(y + c,
						 norm_apply(&map, vf_load_partial(x + c, n),
							    vf_load_partial(scale + c, n),
							    vf_load_partial(bias + c, n)),
						 n);
			}
		}
		return;
	}
	for (size_t unit = begin; unit < end; unit++) {
		const size_t c = unit % channels;
		const struct norm_map map = {
			.mean = vf_set(mean[c]),
			.inv = vf_set(batch_norm_inv(args, c, 1)[0]),
			.scale = scale[c],
			.bias = bias[c],
		};

		norm_write(args->pause, &map, (const float *)args->x + unit * run,
			   (float *)args->y + unit * run, run, false, NULL, false, NULL);
	}
}

/* Return 1 / @norm, but 0 for 0, so that zeros stay zero. */
VEC_INLINE vf lp_norm_inv(vf norm)
{
	return vf_select((vi)(norm == (vf){0}), (vf){0}, vf_set(1) / norm);
}

VEC_INLINE void lp_norm_columns(const struct cpu_lp_norm *args, const float *x, float *y, size_t n)
{
	vf before = {0}, sum = {0}, inv;

	for (size_t i = 0; i < args->len; i++) {
		const vf value = vf_load_partial(x + i * args->inner, n);

		cpu_pause_at(args->pause, i, NORM_PAUSE_ROWS);
		sum = norm_term(args->l1 ? NORM_ABSOLUTE : NORM_SQUARES, sum, value, (vf){0});
		if (i % 256 == 255) {
			before += sum;
			sum = (vf){0};
		}
	}
	sum += before;
	inv = lp_norm_inv(args->l1 ? sum : vf_sqrt(sum));
	for (size_t i = 0; i < args->len; i++) {
		cpu_pause_at(args->pause, i, NORM_PAUSE_ROWS);
		vf_store_partial(y + i * args->inner, vf_load_partial(x + i * args->inner, n) * inv,
				 n);
	}
}

void CPU_FN(lp_norm)(const struct cpu_lp_norm *args, size_t begin, size_t end)
{
	const size_t blocks = div_up(args->inner, CPU_COLUMN_BLOCK);

	if (args->type == CPU_F64) {
		CPU_FN(lp_norm_f64)(args, begin, end);
		return;
	}
	for (size_t unit = begin; unit < end; unit++) {
		const size_t first = unit % blocks * CPU_COLUMN_BLOCK;
		const size_t last = first + CPU_COLUMN_BLOCK < args->inner
					    ? first + CPU_COLUMN_BLOCK
					    : args->inner;
		const size_t at = unit / blocks * args->len * args->inner;
		const float *x = (const float *)args->x + at;
		float *y = (float *)args->y + at;

		if (args->inner == 1) {
			const float sum =
				args->l1 ? norm_sum(NORM_ABSOLUTE, args->pause, x, args->len, 0)
					 : f_sqrt(norm_sum(NORM_SQUARES, args->pause, x, args->len,
							   0));
			const struct norm_map map = {
				.inv = lp_norm_inv(vf_set(sum)), .scale = 1, .bias = 0};

			norm_write(args->pause, &map, x, y, args->len, false, NULL, false, NULL);
			continue;
		}
		for (size_t j = first; j < last; j += VW)
			lp_norm_columns(args, x + j, y + j, last - j < VW ? last - j : VW);
	}
}
