/* SPDX-License-Identifier: MIT */
/*
 * Normalisations of float64
 *
 * The passes are those of norm-hot.c: a row's mean, then its variance from the differences to the
 * mean, then the result. See double-sum.h for the sums.
 */
#include "cpu/double-sum.h"
#include "cpu/level.h"

/* The mapping of an element x to (x - mean) * inv * scale + bias. */
struct norm_map {
	double mean, inv;
	double scale, bias; /* where they are constant along the row */
};

/* Write the results of a row; y may be x. @scale and @bias are arrays if @scales and @shifts. */
VEC_INLINE void norm_write(struct cpu_pause *pause, const struct norm_map *map, const double *x,
			   double *y, size_t n, const bool scales, const double *scale,
			   const bool shifts, const double *bias)
{
	for (size_t begin = 0; begin < n; begin += CPU_PAUSE_ELEMS) {
		const size_t end = n - begin < CPU_PAUSE_ELEMS ? n : begin + CPU_PAUSE_ELEMS;

		cpu_pause(pause);
		CPU_INDEPENDENT
		for (size_t i = begin; i < end; i++)
			y[i] = (x[i] - map->mean) * map->inv * (scales ? scale[i] : map->scale) +
			       (shifts ? bias[i] : map->bias);
	}
}

/* Return the reduction @kind of one line. */
static double norm_sum(const enum cpu_reduce_kind kind, struct cpu_pause *pause, const double *x,
		       size_t len, double mean)
{
	const struct double_block line = double_line(len);
	double shift[DOUBLE_LANES];
	struct double_sums sums;

	for (size_t i = 0; i < DOUBLE_LANES; i++)
		shift[i] = mean;
	if (kind == CPU_REDUCE_SUM)
		double_sum(CPU_REDUCE_SUM, &sums, &line, x, shift, pause);
	else
		double_sum(CPU_REDUCE_SUM_SQUARE, &sums, &line, x, shift, pause);
	return sums.total[0];
}

static void norm_row(const struct cpu_norm *args, size_t row)
{
	const bool scales = args->scale && args->scale_each;
	const bool shifts = args->bias && args->bias_each;
	/* Parameters per element are applied to a whole row at once. */
	const size_t len = args->len, run = scales || shifts ? len : args->run, n = len / run;
	const size_t at = row % args->period;
	const double *scale = args->scale, *bias = args->bias;
	const double *x = (const double *)args->x + row * len;
	double *y = (double *)args->y + row * len;
	struct norm_map map = {.scale = 1, .bias = 0};

	if (!args->rms)
		map.mean = norm_sum(CPU_REDUCE_SUM, args->pause, x, len, 0) / (double)len;
	map.inv = norm_sum(CPU_REDUCE_SUM_SQUARE, args->pause, x, len, map.mean) / (double)len;
	map.inv = 1 / __builtin_sqrt(map.inv + (double)args->epsilon);
	if (args->mean)
		args->mean[row] = (float)map.mean;
	if (args->inv_std)
		args->inv_std[row] = (float)map.inv;

	for (size_t i = 0; i < n; i++, x += run, y += run) {
		if (scale && !scales)
			map.scale = scale[at * n + i];
		if (bias && !shifts)
			map.bias = bias[at * n + i];
		if (scales && shifts)
			norm_write(args->pause, &map, x, y, run, true, scale + at * len, true,
				   bias + at * len);
		else if (scales)
			norm_write(args->pause, &map, x, y, run, true, scale + at * len, false,
				   NULL);
		else if (shifts)
			norm_write(args->pause, &map, x, y, run, false, NULL, true,
				   bias + at * len);
		else
			norm_write(args->pause, &map, x, y, run, false, NULL, false, NULL);
	}
}

void CPU_FN(norm_f64)(const struct cpu_norm *args, size_t begin, size_t end)
{
	for (size_t row = begin; row < end; row++)
		norm_row(args, row);
}

void CPU_FN(batch_norm_f64)(const struct cpu_batch_norm *args, size_t begin, size_t end)
{
	const double *scale = args->scale, *bias = args->bias, *mean = args->mean, *var = args->var;
	const size_t channels = args->channels, run = args->run;
	const double epsilon = (double)args->epsilon;

	for (size_t unit = begin; run == 1 && unit < end; unit++) {
		const double *x = (const double *)args->x + unit * channels;
		double *y = (double *)args->y + unit * channels;

		for (size_t first = 0; first < channels; first += CPU_PAUSE_ELEMS) {
			const size_t last = first + CPU_PAUSE_ELEMS < channels
						    ? first + CPU_PAUSE_ELEMS
						    : channels;

			cpu_pause(args->pause);
			CPU_INDEPENDENT
			for (size_t c = first; c < last; c++)
				y[c] = (x[c] - mean[c]) * (1 / __builtin_sqrt(var[c] + epsilon)) *
					       scale[c] +
				       bias[c];
		}
	}
	for (size_t unit = begin; run != 1 && unit < end; unit++) {
		const size_t c = unit % channels;
		const struct norm_map map = {
			.mean = mean[c],
			.inv = 1 / __builtin_sqrt(var[c] + epsilon),
			.scale = scale[c],
			.bias = bias[c],
		};

		norm_write(args->pause, &map, (const double *)args->x + unit * run,
			   (double *)args->y + unit * run, run, false, NULL, false, NULL);
	}
}
