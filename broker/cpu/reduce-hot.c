/* SPDX-License-Identifier: MIT */
/*
 * Reductions of floats
 *
 * Dimensions are either kept or reduced. If the innermost dimension is kept, lanes are neighbouring
 * results, and each result is a chain over the reduced dimensions in order. If it is reduced, its
 * elements are distributed over VEC_LANES partial results, which are folded at the end in a fixed
 * order. Either way chains are cut into pieces, whose sums are added separately: the error of a sum
 * of n terms then grows with the number and the length of the pieces, about the root of n, instead
 * of n. So the order depends on the shape alone.
 *
 * Every kind is an instance of the same loops. LogSumExp makes two passes: for the maximum, then
 * for the sum of the exponentials of the differences.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/reduce.h"
#include "cpu/vec-exp.h"
#include "cpu/vec.h"

#define REDUCE_REGS (CPU_COLUMN_BLOCK / VW)
/* blocks of columns computed together, where registers suffice: longer runs of each line */
#define REDUCE_WIDE (VW == 16 ? 4 : 1)

/* lines, each of which may miss the cache, and elements of a line between two polls */
enum { REDUCE_PAUSE_ROWS = 1 << 10, REDUCE_PAUSE_ELEMS = CPU_PAUSE_ELEMS };

/*
 * Return the terms of one chain, where a lane or a column has @n terms: about as many as there are
 * chains.
 */
static size_t reduce_chain(size_t n)
{
	size_t chain = 256;

	while (chain * chain < n)
		chain *= 2;
	return chain;
}

/* Return the initial partial result. */
VEC_INLINE vf reduce_start(const enum cpu_reduce_kind kind)
{
	if (kind == CPU_REDUCE_MAX)
		return vf_set(-INFINITY);
	if (kind == CPU_REDUCE_MIN)
		return vf_set(INFINITY);
	return vf_set(kind == CPU_REDUCE_PROD ? 1 : 0);
}

/* Merge two partial results. A NaN wins. */
VEC_INLINE vf reduce_merge(const enum cpu_reduce_kind kind, vf a, vf b)
{
	if (kind == CPU_REDUCE_MAX)
		return vf_select((vi)(b > a) | (vi)(b != b), b, a);
	if (kind == CPU_REDUCE_MIN)
		return vf_select((vi)(b < a) | (vi)(b != b), b, a);
	return kind == CPU_REDUCE_PROD ? a * b : a + b;
}

/* Add one element to each lane. @shift: LogSumExp's maximum. */
VEC_INLINE vf reduce_step(const enum cpu_reduce_kind kind, vf acc, vf x, vf shift)
{
	switch (kind) {
	case CPU_REDUCE_SUM_SQUARE:
	case CPU_REDUCE_L2:
		return acc + x * x;
	case CPU_REDUCE_L1:
		return acc + (vf)((vu)x & 0x7fffffffu);
	case CPU_REDUCE_LOG_SUM_EXP:
		return acc + vf_exp_neg(x - shift);
	default:
		return reduce_merge(kind, acc, x);
	}
}

/* Return the result of @n elements. */
VEC_INLINE vf reduce_finish(const enum cpu_reduce_kind kind, vf acc, vf shift, float n)
{
	switch (kind) {
	case CPU_REDUCE_MEAN:
		return acc / vf_set(n);
	case CPU_REDUCE_L2:
		return vf_sqrt(acc);
	case CPU_REDUCE_LOG_SUM:
		return vf_log(acc);
	case CPU_REDUCE_LOG_SUM_EXP:
		/* An infinity or a NaN is the result already. */
		return vf_select((vi)(shift - shift == (vf){0}), vf_log(acc) + shift, shift);
	default:
		return acc;
	}
}

VEC_INLINE bool reduce_is_sum(const enum cpu_reduce_kind kind)
{
	return kind != CPU_REDUCE_MAX && kind != CPU_REDUCE_MIN && kind != CPU_REDUCE_PROD;
}

#define REDUCE_MERGE(a, b) reduce_merge(kind, a, b)

/* Reduce neighbouring columns: full blocks of CPU_COLUMN_BLOCK, or @n <= VW columns. */
VEC_INLINE void reduce_columns(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
			       const float *x, const size_t regs, const bool partial, size_t n,
			       const vf *shift, vf *ret)
{
	const unsigned int outer = args->n_reduced ? args->n_reduced - 1 : 0;
	const size_t len = args->n_reduced ? args->reduced[outer] : 1;
	const size_t stride = args->n_reduced ? args->reduced_stride[outer] : 0;
	struct reduce_walk walk = {.offset = 0};
	vf acc[REDUCE_WIDE * REDUCE_REGS], total[REDUCE_WIDE * REDUCE_REGS];
	const size_t max_chain = reduce_chain(reduce_n_terms(args));
	size_t n_rows = 0, n_chain = 0;

	VEC_UNROLL
	for (size_t v = 0; v < regs; v++)
		acc[v] = total[v] = reduce_start(kind);
	do {
		const float *from = x + walk.offset;

		for (size_t i = 0; i < len; i++, from += stride) {
			cpu_pause_at(args->pause, ++n_rows, REDUCE_PAUSE_ROWS);
			VEC_UNROLL
			for (size_t v = 0; v < regs; v++)
				acc[v] = reduce_step(kind, acc[v],
						     partial ? vf_load_partial(from, n)
							     : vf_load(from + v * VW),
						     shift[v]);
			if (!reduce_is_sum(kind) || ++n_chain < max_chain)
				continue;
			n_chain = 0;
			VEC_UNROLL
			for (size_t v = 0; v < regs; v++) {
				total[v] += acc[v];
				acc[v] = (vf){0};
			}
		}
	} while (reduce_next(&walk, outer, args->reduced, args->reduced_stride));
	VEC_UNROLL
	for (size_t v = 0; v < regs; v++)
		ret[v] = reduce_merge(kind, total[v], acc[v]);
}

VEC_INLINE void reduce_columns_all(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
				   const float *x, float *y, const size_t regs, const bool partial,
				   size_t n, float n_terms)
{
	vf shift[REDUCE_WIDE * REDUCE_REGS] = {0}, acc[REDUCE_WIDE * REDUCE_REGS];

	if (kind == CPU_REDUCE_LOG_SUM_EXP)
		reduce_columns(args, CPU_REDUCE_MAX, x, regs, partial, n, shift, shift);
	reduce_columns(args, kind, x, regs, partial, n, shift, acc);
	VEC_UNROLL
	for (size_t v = 0; v < regs; v++) {
		acc[v] = reduce_finish(kind, acc[v], shift[v], n_terms);
		if (partial)
			vf_store_partial(y, acc[v], n);
		else
			vf_store(y + v * VW, acc[v]);
	}
}

/* Reduce one row; every lane of the return value is the result. */
VEC_INLINE vf reduce_row(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
			 const float *x, size_t max_chain, vf shift)
{
	const unsigned int outer = args->n_reduced - 1;
	const size_t len = args->reduced[outer];
	struct reduce_walk walk = {.offset = 0};
	vf acc[VEC_REGS], total[VEC_REGS];
	size_t n_lines = 0, n_chain = 0;

	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++)
		acc[v] = total[v] = reduce_start(kind);
	do {
		const float *from = x + walk.offset;
		size_t i = 0;

		n_lines++;
		cpu_pause_at(args->pause, n_lines, REDUCE_PAUSE_ROWS);
		while (i + VEC_LANES <= len) {
			const size_t left = (len - i) / VEC_LANES, chain = max_chain - n_chain;
			const size_t end = i + (left < chain ? left : chain) * VEC_LANES;

			n_chain += (end - i) / VEC_LANES;
			for (; i < end; i += VEC_LANES) {
				cpu_pause_at(args->pause, i, REDUCE_PAUSE_ELEMS);
				VEC_UNROLL
				for (size_t v = 0; v < VEC_REGS; v++)
					acc[v] = reduce_step(kind, acc[v],
							     vf_load(from + i + v * VW), shift);
			}
			if (n_chain < max_chain)
				break;
			n_chain = 0;
			VEC_UNROLL
			for (size_t v = 0; v < VEC_REGS; v++) {
				total[v] = reduce_merge(kind, total[v], acc[v]);
				acc[v] = reduce_start(kind);
			}
		}
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++) {
			const size_t at = i + v * VW, n = len - at < VW ? len - at : VW;

			if (at < len)
				acc[v] =
					vf_select(vi_first(n),
						  reduce_step(kind, acc[v],
							      vf_load_partial(from + at, n), shift),
						  acc[v]);
		}
	} while (reduce_next(&walk, outer, args->reduced, args->reduced_stride));
	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++)
		acc[v] = reduce_merge(kind, total[v], acc[v]);
	VEC_FOLD(acc, REDUCE_MERGE);
	return vf_set(acc[0][0]);
}

/* Return the first half of each pair of blocks of @by lanes, those of @a before those of @b. */
VEC_INLINE vf reduce_halves(vf a, vf b, const unsigned int by)
{
#if VW == 16
	if (by == 8)
		return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21,
					       22, 23);
	if (by == 4)
		return __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24,
					       25, 26, 27);
	if (by == 2)
		return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12,
					       13, 28, 29);
	return __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14,
				       30);
#elif VW == 8
	if (by == 4)
		return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
	if (by == 2)
		return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
	return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
#else
	if (by == 2)
		return __builtin_shufflevector(a, b, 0, 1, 4, 5);
	return __builtin_shufflevector(a, b, 0, 4, 2, 6);
#endif
}

/* maximum length of the lines that reduce_short() takes, each of which it reduces as one chain */
enum { REDUCE_SHORT = 1024 };

/* Reduce a line to one vector, like VEC_FOLD before it folds the lanes. */
VEC_INLINE vf reduce_line(const enum cpu_reduce_kind kind, const float *from, size_t len)
{
	vf acc[VEC_REGS];
	size_t i = 0;

	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++)
		acc[v] = reduce_start(kind);
	for (; i + VEC_LANES <= len; i += VEC_LANES) {
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++)
			acc[v] = reduce_step(kind, acc[v], vf_load(from + i + v * VW), (vf){0});
	}
	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++) {
		const size_t at = i + v * VW, n = len - at < VW ? len - at : VW;

		if (at < len)
			acc[v] = vf_select(
				vi_first(n),
				reduce_step(kind, acc[v], vf_load_partial(from + at, n), (vf){0}),
				acc[v]);
	}
	VEC_UNROLL
	for (size_t n = VEC_REGS / 2; n > 0; n /= 2) {
		VEC_UNROLL
		for (size_t v = 0; v < n; v++)
			acc[v] = reduce_merge(kind, acc[v], acc[v + n]);
	}
	return acc[0];
}

/*
 * Fold the lanes of each line as VEC_FOLD does, two lines at once. Return: the results; lane i has
 * the result of @line[i].
 */
VEC_INLINE vf reduce_fold_lines(const enum cpu_reduce_kind kind, vf line[VW])
{
	VEC_UNROLL
	for (unsigned int by = VW / 2; by > 0; by /= 2) {
		VEC_UNROLL
		for (unsigned int l = 0; l < by; l++) {
			const vf a = line[l], b = line[l + by];

			/* vf_down() moves the second halves to the first. */
			line[l] = reduce_merge(kind, reduce_halves(a, b, by),
					       reduce_halves(vf_down(a, by), vf_down(b, by), by));
		}
	}
	return line[0];
}

/*
 * Reduce short lines, one per unit, VW lines at a time. The results have the same bits as if the
 * lines were reduced one by one.
 * Return: the first unit that was not reduced.
 */
VEC_INLINE size_t reduce_short(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
			       size_t begin, size_t end)
{
	const size_t len = args->reduced[0], stride = args->kept_stride[0];
	const float *x = args->x;
	float *y = args->y;

	if (args->n_kept != 1 || args->n_reduced != 1 || len > REDUCE_SHORT ||
	    kind == CPU_REDUCE_LOG_SUM_EXP)
		return begin;
	for (; begin + VW <= end; begin += VW) {
		vf line[VW];

		cpu_pause(args->pause);
		for (size_t i = 0; i < VW; i++)
			line[i] = reduce_line(kind, x + (begin + i) * stride, len);
		vf_store(y + begin,
			 reduce_finish(kind, reduce_fold_lines(kind, line), (vf){0}, (float)len));
	}
	return begin;
}

VEC_INLINE float reduce_row_all(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
				const float *x, size_t max_chain, float n_terms)
{
	vf shift = {0};

	if (kind == CPU_REDUCE_LOG_SUM_EXP)
		shift = reduce_row(args, CPU_REDUCE_MAX, x, max_chain, shift);
	return reduce_finish(kind, reduce_row(args, kind, x, max_chain, shift), shift, n_terms)[0];
}

/* Write the results of reducing no elements: those that the loops would give. */
static void reduce_empty(const struct cpu_reduce *args, size_t begin, size_t end)
{
	const enum cpu_reduce_kind kind = args->kind;
	const float value = reduce_finish(kind, reduce_start(kind), vf_set(-INFINITY), 0)[0];
	float *y = args->y;

	if (args->inner_kept) {
		reduce_range(args, &begin, &end);
		y += begin;
		end -= begin;
		begin = 0;
	}
	for (size_t i = begin; i < end; i++)
		y[i] = value;
}

VEC_INLINE void reduce_units(const struct cpu_reduce *args, const enum cpu_reduce_kind kind,
			     size_t begin, size_t end)
{
	const size_t n_terms = reduce_n_terms(args);
	const float *all = args->x;
	float *to = args->y;

	if (n_terms == 0) {
		reduce_empty(args, begin, end);
		return;
	}
	if (!args->inner_kept) {
		const size_t max_chain = reduce_chain(n_terms / VEC_LANES);

		for (size_t unit = reduce_short(args, kind, begin, end); unit < end; unit++) {
			/*
			 * Most reductions have one kept dimension; for short rows a division would
			 * be noticeable.
			 */
			const size_t offset = args->n_kept == 1
						      ? unit * args->kept_stride[0]
						      : reduce_offset(args, args->n_kept, unit);

			to[unit] =
				reduce_row_all(args, kind, all + offset, max_chain, (float)n_terms);
		}
		return;
	}

	const size_t inner = args->kept[args->n_kept - 1];
	const size_t blocks = div_up(inner, CPU_COLUMN_BLOCK);

	for (size_t unit = begin; unit < end; unit++) {
		const size_t outer = unit / blocks, first = unit % blocks * CPU_COLUMN_BLOCK;
		const float *x = all + reduce_offset(args, args->n_kept - 1, outer) + first;
		float *y = to + outer * inner + first;
		size_t n = inner - first;

		if (kind != CPU_REDUCE_LOG_SUM_EXP && REDUCE_WIDE > 1 &&
		    n >= REDUCE_WIDE * CPU_COLUMN_BLOCK && end - unit >= REDUCE_WIDE) {
			reduce_columns_all(args, kind, x, y, REDUCE_WIDE * REDUCE_REGS, false,
					   CPU_COLUMN_BLOCK, (float)n_terms);
			unit += REDUCE_WIDE - 1;
			continue;
		}
		if (n >= CPU_COLUMN_BLOCK) {
			reduce_columns_all(args, kind, x, y, REDUCE_REGS, false, CPU_COLUMN_BLOCK,
					   (float)n_terms);
			continue;
		}
		for (; n >= VW; n -= VW, x += VW, y += VW)
			reduce_columns_all(args, kind, x, y, 1, false, VW, (float)n_terms);
		if (n > 0)
			reduce_columns_all(args, kind, x, y, 1, true, n, (float)n_terms);
	}
}

/* Instantiate a function per kind, so that the compiler sees @kind as a constant. */
#define REDUCE_INSTANCE(name, kind)                                                        \
	static void reduce_##name(const struct cpu_reduce *args, size_t begin, size_t end) \
	{                                                                                  \
		reduce_units(args, kind, begin, end);                                      \
	}

REDUCE_INSTANCE(sum, CPU_REDUCE_SUM)
REDUCE_INSTANCE(mean, CPU_REDUCE_MEAN)
REDUCE_INSTANCE(sum_square, CPU_REDUCE_SUM_SQUARE)
REDUCE_INSTANCE(l1, CPU_REDUCE_L1)
REDUCE_INSTANCE(l2, CPU_REDUCE_L2)
REDUCE_INSTANCE(log_sum, CPU_REDUCE_LOG_SUM)
REDUCE_INSTANCE(log_sum_exp, CPU_REDUCE_LOG_SUM_EXP)
REDUCE_INSTANCE(prod, CPU_REDUCE_PROD)
REDUCE_INSTANCE(max, CPU_REDUCE_MAX)
REDUCE_INSTANCE(min, CPU_REDUCE_MIN)

void CPU_FN(reduce)(const struct cpu_reduce *args, size_t begin, size_t end)
{
	static void (*const kinds[])(const struct cpu_reduce *args, size_t begin, size_t end) = {
		[CPU_REDUCE_SUM] = reduce_sum,
		[CPU_REDUCE_MEAN] = reduce_mean,
		[CPU_REDUCE_SUM_SQUARE] = reduce_sum_square,
		[CPU_REDUCE_L1] = reduce_l1,
		[CPU_REDUCE_L2] = reduce_l2,
		[CPU_REDUCE_LOG_SUM] = reduce_log_sum,
		[CPU_REDUCE_LOG_SUM_EXP] = reduce_log_sum_exp,
		[CPU_REDUCE_PROD] = reduce_prod,
		[CPU_REDUCE_MAX] = reduce_max,
		[CPU_REDUCE_MIN] = reduce_min,
	};

	if (args->type == CPU_F32)
		kinds[args->kind](args, begin, end);
	else if (args->type == CPU_F64)
		CPU_FN(reduce_f64)(args, begin, end);
	else
		CPU_FN(reduce_int)(args, begin, end);
}
