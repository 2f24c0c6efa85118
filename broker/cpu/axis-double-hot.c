/* SPDX-License-Identifier: MIT */
/*
 * Softmax, LogSoftmax, LpNormalization and CumSum of float64
 *
 * Units are those of float32: one column, or adjacent columns. See double-sum.h.
 */
#include "cpu/double-sum.h"
#include "cpu/level.h"

/* The place and shape of a unit's columns in a tensor of [outer][len][inner] */
struct axis_unit {
	struct double_block block;
	size_t at;
};

VEC_INLINE struct axis_unit axis_unit(size_t unit, size_t len, size_t inner)
{
	const size_t blocks = div_up(inner, CPU_COLUMN_BLOCK);
	const size_t first = unit % blocks * CPU_COLUMN_BLOCK;
	const size_t n = inner - first < CPU_COLUMN_BLOCK ? inner - first : CPU_COLUMN_BLOCK;

	return (struct axis_unit){
		.block = inner == 1 ? double_line(len) : double_columns(len, inner, n),
		.at = unit / blocks * len * inner + first,
	};
}

static const double zeros[CPU_COLUMN_BLOCK];

/* Functions of an element x and its lane's @a and @b */
enum axis_map {
	AXIS_EXP,        /* exp(x - a) */
	AXIS_DIFFERENCE, /* x - a - b */
	AXIS_QUOTIENT,   /* x / a, or 0 where a is 0 */
};

/* Apply @map to a block. @y may be @x. */
VEC_INLINE void axis_map(const enum axis_map map, const struct double_block *block, const double *x,
			 double *y, const double *a, const double *b, struct cpu_pause *pause)
{
	for (size_t step = 0; step < block->steps; step++) {
		const double *from = x + step * block->stride;
		double *to = y + step * block->stride;
		const size_t n = double_width(block, step);

		cpu_pause_at(pause, step, DOUBLE_PAUSE_STEPS);
		CPU_INDEPENDENT
		for (size_t i = 0; i < n; i++) {
			if (map == AXIS_EXP)
				to[i] = exp(from[i] - a[i]);
			else if (map == AXIS_DIFFERENCE)
				to[i] = (from[i] - a[i]) - b[i];
			else
				to[i] = a[i] == 0 ? 0 : from[i] / a[i];
		}
	}
}

void CPU_FN(softmax_f64)(const struct cpu_softmax *args, size_t begin, size_t end)
{
	for (size_t i = begin; i < end; i++) {
		const struct axis_unit unit = axis_unit(i, args->len, args->inner);
		const double *x = (const double *)args->x + unit.at;
		double *y = (double *)args->y + unit.at, logs[CPU_COLUMN_BLOCK];
		struct double_sums most, sums;

		double_sum(CPU_REDUCE_MAX, &most, &unit.block, x, zeros, args->pause);
		if (args->log) {
			double_sum(CPU_REDUCE_LOG_SUM_EXP, &sums, &unit.block, x, most.total,
				   args->pause);
			for (size_t lane = 0; lane < unit.block.n; lane++)
				logs[lane] = log(sums.total[lane]);
			axis_map(AXIS_DIFFERENCE, &unit.block, x, y, most.total, logs, args->pause);
			continue;
		}
		axis_map(AXIS_EXP, &unit.block, x, y, most.total, zeros, args->pause);
		double_sum(CPU_REDUCE_SUM, &sums, &unit.block, y, zeros, args->pause);
		axis_map(AXIS_QUOTIENT, &unit.block, y, y, sums.total, zeros, args->pause);
	}
}

void CPU_FN(lp_norm_f64)(const struct cpu_lp_norm *args, size_t begin, size_t end)
{
	for (size_t i = begin; i < end; i++) {
		const struct axis_unit unit = axis_unit(i, args->len, args->inner);
		const double *x = (const double *)args->x + unit.at;
		double *y = (double *)args->y + unit.at;
		struct double_sums norm;

		if (args->l1) {
			double_sum(CPU_REDUCE_L1, &norm, &unit.block, x, zeros, args->pause);
		} else {
			double_sum(CPU_REDUCE_L2, &norm, &unit.block, x, zeros, args->pause);
			for (size_t lane = 0; lane < unit.block.n; lane++)
				norm.total[lane] = __builtin_sqrt(norm.total[lane]);
		}
		axis_map(AXIS_QUOTIENT, &unit.block, x, y, norm.total, zeros, args->pause);
	}
}

/* A line is one lane, since each element needs the sum of all before it. */
void CPU_FN(scan_f64)(const struct cpu_scan *args, size_t begin, size_t end)
{
	for (size_t unit = begin; unit < end; unit++) {
		const struct axis_unit columns = axis_unit(unit, args->len, args->inner);
		const size_t n = args->inner == 1 ? 1 : columns.block.n;
		struct double_sums sums;

		double_begin(CPU_REDUCE_SUM, &sums, n);
		for (size_t i = 0; i < args->len; i++) {
			const size_t row = args->reverse ? args->len - 1 - i : i;
			const double *x = (const double *)args->x + columns.at + row * args->inner;
			double *y = (double *)args->y + columns.at + row * args->inner;

			cpu_pause_at(args->pause, i, DOUBLE_PAUSE_STEPS);
			for (size_t lane = 0; lane < n; lane++) {
				const double before = sums.total[lane] + sums.piece[lane];

				sums.piece[lane] += x[lane];
				y[lane] = args->exclusive ? before
							  : sums.total[lane] + sums.piece[lane];
			}
			if (++sums.n_steps == DOUBLE_PIECE)
				double_settle(CPU_REDUCE_SUM, &sums, n);
		}
	}
}
