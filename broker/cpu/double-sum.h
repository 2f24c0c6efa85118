#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Parts shared by the float64 kernels along rows. Included by the kernel sources only.
 *
 * Elements that are reduced together are a block: steps of at most CPU_COLUMN_BLOCK adjacent
 * elements, each of which belongs to a lane. Each of several adjacent columns is one lane. The
 * adjacent elements of a single line are distributed over DOUBLE_LANES lanes, which are folded at
 * the end in a fixed order. Each lane is a chain, cut into pieces of DOUBLE_PIECE steps whose sums
 * are added separately, so that long sums stay accurate. The compiler vectorises these loops; the
 * order of additions does not depend on how.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/vec.h"
#include "shm/number.h"

enum { DOUBLE_LANES = 16, DOUBLE_PIECE = 256 };

/* Steps between two cpu_pause() calls: each may miss the cache, or compute exponentials. */
enum { DOUBLE_PAUSE_STEPS = 1 << 9 };

struct double_block {
	size_t steps, stride; /* elements from one step to the next */
	size_t n, last;       /* elements of a step, and of the last step */
	bool is_line;
};

/* Return the block of @len adjacent elements. */
VEC_INLINE struct double_block double_line(size_t len)
{
	const size_t steps = div_up(len, DOUBLE_LANES);

	return (struct double_block){
		.steps = steps,
		.stride = DOUBLE_LANES,
		.n = DOUBLE_LANES,
		.last = steps ? len - (steps - 1) * DOUBLE_LANES : 0,
		.is_line = true,
	};
}

/* Return the block of @n adjacent columns of @len elements, @stride elements apart. */
VEC_INLINE struct double_block double_columns(size_t len, size_t stride, size_t n)
{
	return (struct double_block){.steps = len, .stride = stride, .n = n, .last = n};
}

VEC_INLINE size_t double_width(const struct double_block *block, size_t step)
{
	return step + 1 == block->steps ? block->last : block->n;
}

/* Return the neutral element of a reduction; Mean and LogSum are sums. */
VEC_INLINE double double_start(const enum cpu_reduce_kind kind)
{
	if (kind == CPU_REDUCE_MAX)
		return -(double)INFINITY;
	if (kind == CPU_REDUCE_MIN)
		return (double)INFINITY;
	return kind == CPU_REDUCE_PROD ? 1 : 0;
}

/* Return the combination of two partial results. A NaN operand gives a NaN. */
VEC_INLINE double double_merge(const enum cpu_reduce_kind kind, double a, double b)
{
	if (kind == CPU_REDUCE_MAX)
		return b > a || b != b ? b : a;
	if (kind == CPU_REDUCE_MIN)
		return b < a || b != b ? b : a;
	return kind == CPU_REDUCE_PROD ? a * b : a + b;
}

/* Return one element's term. @shift is subtracted before a square or an exponential. */
VEC_INLINE double double_term(const enum cpu_reduce_kind kind, double x, double shift)
{
	switch (kind) {
	case CPU_REDUCE_SUM_SQUARE:
	case CPU_REDUCE_L2:
		return (x - shift) * (x - shift);
	case CPU_REDUCE_L1:
		return __builtin_fabs(x);
	case CPU_REDUCE_LOG_SUM_EXP:
		return exp(x - shift);
	default:
		return x;
	}
}

/* Partial results, by lane */
struct double_sums {
	double total[CPU_COLUMN_BLOCK], piece[CPU_COLUMN_BLOCK];
	size_t n_steps; /* steps in the current pieces */
};

VEC_INLINE void double_begin(const enum cpu_reduce_kind kind, struct double_sums *sums, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sums->total[i] = sums->piece[i] = double_start(kind);
	sums->n_steps = 0;
}

VEC_INLINE void double_settle(const enum cpu_reduce_kind kind, struct double_sums *sums, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		sums->total[i] = double_merge(kind, sums->total[i], sums->piece[i]);
		sums->piece[i] = double_start(kind);
	}
	sums->n_steps = 0;
}

/* Add a block. @shift: by lane. */
VEC_INLINE void double_add(const enum cpu_reduce_kind kind, struct double_sums *sums,
			   const struct double_block *block, const double *x, const double *shift,
			   struct cpu_pause *pause)
{
	for (size_t step = 0; step < block->steps; step++, x += block->stride) {
		const size_t n = double_width(block, step);

		cpu_pause_at(pause, step, DOUBLE_PAUSE_STEPS);
		for (size_t i = 0; i < n; i++)
			sums->piece[i] = double_merge(kind, sums->piece[i],
						      double_term(kind, x[i], shift[i]));
		if (++sums->n_steps == DOUBLE_PIECE)
			double_settle(kind, sums, block->n);
	}
}

/*
 * Complete the reduction: sums->total has the result of each lane; of a line, all lanes have its
 * result.
 */
VEC_INLINE void double_end(const enum cpu_reduce_kind kind, struct double_sums *sums,
			   const struct double_block *block)
{
	double_settle(kind, sums, block->n);
	if (!block->is_line)
		return;
	for (size_t n = DOUBLE_LANES / 2; n > 0; n /= 2)
		for (size_t i = 0; i < n; i++)
			sums->total[i] = double_merge(kind, sums->total[i], sums->total[i + n]);
	for (size_t i = 1; i < DOUBLE_LANES; i++)
		sums->total[i] = sums->total[0];
}

/* Reduce one block. */
VEC_INLINE void double_sum(const enum cpu_reduce_kind kind, struct double_sums *sums,
			   const struct double_block *block, const double *x, const double *shift,
			   struct cpu_pause *pause)
{
	double_begin(kind, sums, block->n);
	double_add(kind, sums, block, x, shift, pause);
	double_end(kind, sums, block);
}
