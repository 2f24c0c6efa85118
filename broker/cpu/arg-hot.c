/* SPDX-License-Identifier: MIT */
/*
 * ArgMax and ArgMin
 *
 * The winner of a column is defined by a total order, of values and then of indices, so the order
 * of comparisons does not matter. If a column's elements are adjacent, lanes share the column, and
 * the lanes' winners are compared at the end. Otherwise lanes are adjacent columns. ArgMin is
 * ArgMax of negated values: a float's sign bit is inverted, or an integer's bits. Float64 is
 * compared as integers.
 */
#include <math.h>

#include "cpu/double-key.h"
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/reduce.h"
#include "cpu/vec.h"

/* Adjacent elements, or distant ones that may miss the cache, per cpu_pause() call */
enum { ARG_PAUSE_ELEMS = CPU_PAUSE_ELEMS, ARG_PAUSE_ROWS = 1 << 10 };

VEC_INLINE vf arg_load(const float *x, size_t n, const bool smallest)
{
	const vf value = vf_load_partial(x, n);

	return smallest ? (vf)((vu)value ^ 0x80000000u) : value;
}

/* Return a mask of the lanes in which @x, which comes later, replaces @best. */
VEC_INLINE vi arg_beats(vf x, vf best, const bool last)
{
	if (last)
		return (vi)(x >= best) | (vi)(x != x);
	return (vi)(x > best) | ((vi)(x != x) & (vi)(best == best));
}

/* Return true if a value replaces one at any other index. */
VEC_INLINE bool arg_beats_one(float x, int32_t i, float best, int32_t best_i, const bool last)
{
	if (x > best)
		return true;
	if (x == best || (isnan(x) && isnan(best)))
		return last ? i > best_i : i < best_i;
	return isnan(x);
}

VEC_INLINE vi arg_select(vi mask, vi a, vi b)
{
	return (mask & a) | (~mask & b);
}

VEC_INLINE int64_t arg_row(const struct cpu_arg *args, const float *x, const bool smallest,
			   const bool last)
{
	const size_t len = args->len, first = len < VW ? len : VW;
	vf best = arg_load(x, first, smallest);
	vi at = vi_lanes(), now = at;
	float top;
	int32_t top_at;

	for (size_t i = VW; i < len; i += VW) {
		const size_t n = len - i < VW ? len - i : VW;
		const vf value = arg_load(x + i, n, smallest);
		vi beats = arg_beats(value, best, last);

		cpu_pause_at(args->pause, i, ARG_PAUSE_ELEMS);
		now += VW;
		if (n < VW)
			beats &= vi_first(n);
		best = vf_select(beats, value, best);
		at = arg_select(beats, now, at);
	}
	top = best[0];
	top_at = at[0];
	for (size_t lane = 1; lane < first; lane++) {
		if (arg_beats_one(best[lane], at[lane], top, top_at, last)) {
			top = best[lane];
			top_at = at[lane];
		}
	}
	return top_at;
}

VEC_INLINE void arg_columns(const struct cpu_arg *args, const float *x, int64_t *y, size_t n,
			    const bool smallest, const bool last)
{
	vf best = arg_load(x, n, smallest);
	vi at = {0}, now = {0};

	for (size_t i = 1; i < args->len; i++) {
		const vf value = arg_load(x + i * args->inner, n, smallest);
		const vi beats = arg_beats(value, best, last);

		cpu_pause_at(args->pause, i, ARG_PAUSE_ROWS);
		now += 1;
		best = vf_select(beats, value, best);
		at = arg_select(beats, now, at);
	}
	for (size_t lane = 0; lane < n; lane++)
		y[lane] = at[lane];
}

VEC_INLINE void arg_floats(const struct cpu_arg *args, size_t outer, size_t first, size_t end,
			   const bool smallest, const bool last)
{
	const float *x = (const float *)args->x + outer * args->len * args->inner;
	int64_t *y = args->y + outer * args->inner;

	if (args->inner == 1) {
		y[0] = arg_row(args, x, smallest, last);
		return;
	}
	for (size_t j = first; j < end; j += VW)
		arg_columns(args, x + j, y + j, end - j < VW ? end - j : VW, smallest, last);
}

/* Return the key to compare. @flip: -1 for ArgMin. */
VEC_INLINE int64_t arg_key(const enum cpu_type type, const void *x, size_t i, int64_t flip)
{
	if (type == CPU_F64)
		return double_key(((const double *)x)[i], flip, INT64_MAX);
	return reduce_load_int(type, x, i) ^ flip;
}

VEC_INLINE void arg_keys(const struct cpu_arg *args, const enum cpu_type type, size_t outer,
			 size_t first, size_t end)
{
	const int64_t flip = args->smallest ? -1 : 0;

	for (size_t j = first; j < end; j++) {
		const size_t from = outer * args->len * args->inner + j;
		int64_t best = arg_key(type, args->x, from, flip);
		size_t at = 0;

		for (size_t i = 1; i < args->len; i++) {
			const int64_t value = arg_key(type, args->x, from + i * args->inner, flip);

			cpu_pause_at(args->pause, i, ARG_PAUSE_ROWS);
			if (args->last ? value >= best : value > best) {
				best = value;
				at = i;
			}
		}
		args->y[outer * args->inner + j] = (int64_t)at;
	}
}

void CPU_FN(arg)(const struct cpu_arg *args, size_t begin, size_t end)
{
	const size_t blocks = div_up(args->inner, CPU_COLUMN_BLOCK);

	for (size_t unit = begin; unit < end; unit++) {
		const size_t outer = unit / blocks, first = unit % blocks * CPU_COLUMN_BLOCK;
		const size_t last = first + CPU_COLUMN_BLOCK < args->inner
					    ? first + CPU_COLUMN_BLOCK
					    : args->inner;

		switch (args->type) {
		case CPU_F32:
			if (args->smallest && args->last)
				arg_floats(args, outer, first, last, true, true);
			else if (args->smallest)
				arg_floats(args, outer, first, last, true, false);
			else if (args->last)
				arg_floats(args, outer, first, last, false, true);
			else
				arg_floats(args, outer, first, last, false, false);
			break;
		case CPU_F64:
			arg_keys(args, CPU_F64, outer, first, last);
			break;
		case CPU_I64:
			arg_keys(args, CPU_I64, outer, first, last);
			break;
		case CPU_I8:
			arg_keys(args, CPU_I8, outer, first, last);
			break;
		case CPU_U8:
			arg_keys(args, CPU_U8, outer, first, last);
			break;
		default:
			arg_keys(args, CPU_I32, outer, first, last);
		}
	}
}
