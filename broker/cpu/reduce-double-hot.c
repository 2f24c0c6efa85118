/* SPDX-License-Identifier: MIT */
/*
 * Reductions of float64
 *
 * The walk over dimensions and the units are those of reduce-hot.c, and so are the results of NaNs
 * and of no elements. Sums are in double-sum.h.
 */
#include "cpu/double-sum.h"
#include "cpu/level.h"
#include "cpu/reduce.h"

/* Compute neighbouring results, or one result, from blocks like @block. */
VEC_INLINE void reduce_block(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
			     const struct double_block *block, const double *x, const double *shift,
			     struct double_sums *sums)
{
	/* The block covers the innermost dimension. */
	const unsigned int outer = args->n_reduced ? args->n_reduced - 1 : 0;
	struct reduce_walk walk = {.offset = 0};

	double_begin(kind, sums, block->n);
	if (reduce_n_terms(args) > 0) {
		do {
			double_add(kind, sums, block, x + walk.offset, shift, args->pause);
		} while (reduce_next(&walk, outer, args->reduced, args->reduced_stride));
	}
	double_end(kind, sums, block);
}

VEC_INLINE double reduce_finish(const enum cpu_reduce_kind kind, double sum, double shift,
				double n_terms)
{
	switch (kind) {
	case CPU_REDUCE_MEAN:
		return sum / n_terms;
	case CPU_REDUCE_L2:
		return __builtin_sqrt(sum);
	case CPU_REDUCE_LOG_SUM:
		return log(sum);
	case CPU_REDUCE_LOG_SUM_EXP:
		/* An infinity or a NaN is the result already. */
		return shift - shift == 0 ? log(sum) + shift : shift;
	default:
		return sum;
	}
}

VEC_INLINE void reduce_results(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
			       const struct double_block *block, const double *x, double *y)
{
	const double n_terms = (double)reduce_n_terms(args);
	double shift[CPU_COLUMN_BLOCK] = {0};
	struct double_sums sums;

	if (kind == CPU_REDUCE_LOG_SUM_EXP) {
		reduce_block(args, CPU_REDUCE_MAX, block, x, shift, &sums);
		memcpy(shift, sums.total, block->n * sizeof(*shift));
	}
	reduce_block(args, kind, block, x, shift, &sums);
	for (size_t i = 0; i < (block->is_line ? 1 : block->n); i++)
		y[i] = reduce_finish(kind, sums.total[i], shift[i], n_terms);
}

VEC_INLINE void reduce_units(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
			     size_t begin, size_t end)
{
	const unsigned int last = args->n_reduced ? args->n_reduced - 1 : 0;
	const size_t len = args->n_reduced ? args->reduced[last] : 1;
	const size_t stride = args->n_reduced ? args->reduced_stride[last] : 0;
	const size_t inner = args->inner_kept ? args->kept[args->n_kept - 1] : 1;
	const size_t blocks = div_up(inner, CPU_COLUMN_BLOCK);
	const double *all = args->x;
	double *y = args->y;

	for (size_t unit = begin; unit < end; unit++) {
		const size_t outer = unit / blocks, first = unit % blocks * CPU_COLUMN_BLOCK;
		const size_t n =
			inner - first < CPU_COLUMN_BLOCK ? inner - first : CPU_COLUMN_BLOCK;
		const struct double_block block =
			args->inner_kept ? double_columns(len, stride, n) : double_line(len);
		const unsigned int n_outer = args->n_kept - args->inner_kept;

		reduce_results(args, kind, &block,
			       all + reduce_offset(args, n_outer, outer) + first,
			       y + outer * inner + first);
	}
}

void CPU_FN(reduce_f64)(const struct cpu_reduce *args, size_t begin, size_t end)
{
	switch (args->kind) {
	case CPU_REDUCE_SUM:
		reduce_units(args, CPU_REDUCE_SUM, begin, end);
		return;
	case CPU_REDUCE_MEAN:
		reduce_units(args, CPU_REDUCE_MEAN, begin, end);
		return;
	case CPU_REDUCE_SUM_SQUARE:
		reduce_units(args, CPU_REDUCE_SUM_SQUARE, begin, end);
		return;
	case CPU_REDUCE_L1:
		reduce_units(args, CPU_REDUCE_L1, begin, end);
		return;
	case CPU_REDUCE_L2:
		reduce_units(args, CPU_REDUCE_L2, begin, end);
		return;
	case CPU_REDUCE_LOG_SUM:
		reduce_units(args, CPU_REDUCE_LOG_SUM, begin, end);
		return;
	case CPU_REDUCE_LOG_SUM_EXP:
		reduce_units(args, CPU_REDUCE_LOG_SUM_EXP, begin, end);
		return;
	case CPU_REDUCE_PROD:
		reduce_units(args, CPU_REDUCE_PROD, begin, end);
		return;
	case CPU_REDUCE_MAX:
		reduce_units(args, CPU_REDUCE_MAX, begin, end);
		return;
	default:
		reduce_units(args, CPU_REDUCE_MIN, begin, end);
	}
}
