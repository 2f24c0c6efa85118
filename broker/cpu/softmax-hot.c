/* SPDX-License-Identifier: MIT */
/*
 * Softmax, LogSoftmax
 *
 * A column takes three passes: its maximum; the exponentials of the differences to the maximum,
 * with their sum; the division or, for the logarithm, the subtraction of the sum's logarithm. If
 * the columns' elements are adjacent, the lanes share a column and hold VEC_LANES partial sums.
 * Otherwise lanes are neighbouring columns and are never combined.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-exp.h"
#include "cpu/vec.h"

/* Return the larger; a NaN only if @m is one. */
VEC_INLINE vf softmax_max(vf m, vf x)
{
	return vf_select((vi)(x > m), x, m);
}

/* Return the elements of register @v that are left of @n elements. */
VEC_INLINE size_t softmax_left(size_t n, size_t v)
{
	if (n <= v * VW)
		return 0;
	return n - v * VW < VW ? n - v * VW : VW;
}

/* Run the last pass over a row. */
VEC_INLINE void softmax_finish(struct cpu_pause *pause, const float *x, float *y, size_t len,
			       vf most, float sum, const bool is_log)
{
	const vf scale = is_log ? vf_log(vf_set(sum)) : vf_set(1 / sum);
	size_t i = 0;

	for (; i + VW <= len; i += VW) {
		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		vf_store(y + i, is_log ? (vf_load(x + i) - most) - scale : vf_load(y + i) * scale);
	}
	if (i < len)
		vf_store_partial(y + i,
				 is_log ? (vf_load_partial(x + i, len - i) - most) - scale
					: vf_load_partial(y + i, len - i) * scale,
				 len - i);
}

VEC_INLINE void softmax_row(struct cpu_pause *pause, const float *x, float *y, size_t len,
			    const bool is_log)
{
	vf max[VEC_REGS], sum[VEC_REGS] = {0};
	float lanes[VEC_LANES], most = -INFINITY;
	size_t i = 0;

	VEC_UNROLL
	for (size_t v = 0; v < VEC_REGS; v++)
		max[v] = vf_set(-INFINITY);
	for (; i + VEC_LANES <= len; i += VEC_LANES) {
		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++)
			max[v] = softmax_max(max[v], vf_load(x + i + v * VW));
	}
	memcpy(lanes, max, sizeof(lanes));
	for (size_t lane = 0; lane < VEC_LANES; lane++)
		most = lanes[lane] > most ? lanes[lane] : most;
	for (; i < len; i++)
		most = x[i] > most ? x[i] : most;

	for (i = 0; i + VEC_LANES <= len; i += VEC_LANES) {
		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++) {
			const vf e = vf_exp_neg(vf_load(x + i + v * VW) - vf_set(most));

			if (!is_log)
				vf_store(y + i + v * VW, e);
			sum[v] += e;
		}
	}
	if (i < len) {
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++) {
			const size_t n = softmax_left(len - i, v);
			vf e;

			if (n == 0)
				continue;
			e = vf_exp_neg(vf_load_partial(x + i + v * VW, n) - vf_set(most));
			if (!is_log)
				vf_store_partial(y + i + v * VW, e, n);
			sum[v] += vf_select(vi_first(n), e, (vf){0});
		}
	}
	softmax_finish(pause, x, y, len, vf_set(most), vec_sum(sum), is_log);
}

/* rows between two polls; each row may miss the cache */
enum { COLUMN_PAUSE = 1 << 10 };

/* Compute @n <= VW neighbouring columns. */
VEC_INLINE void softmax_columns(struct cpu_pause *pause, const float *x, float *y, size_t len,
				size_t stride, size_t n, const bool is_log)
{
	vf max = vf_set(-INFINITY), sum = {0}, scale;

	for (size_t i = 0; i < len; i++) {
		cpu_pause_at(pause, i, COLUMN_PAUSE);
		max = softmax_max(max, vf_load_partial(x + i * stride, n));
	}
	for (size_t i = 0; i < len; i++) {
		const vf e = vf_exp_neg(vf_load_partial(x + i * stride, n) - max);

		cpu_pause_at(pause, i, COLUMN_PAUSE);
		if (!is_log)
			vf_store_partial(y + i * stride, e, n);
		sum += e;
	}
	scale = is_log ? vf_log(sum) : vf_set(1) / sum;
	for (size_t i = 0; i < len; i++) {
		cpu_pause_at(pause, i, COLUMN_PAUSE);
		vf_store_partial(y + i * stride,
				 is_log ? (vf_load_partial(x + i * stride, n) - max) - scale
					: vf_load_partial(y + i * stride, n) * scale,
				 n);
	}
}

VEC_INLINE void softmax_units(const struct cpu_softmax *args, size_t begin, size_t end,
			      const bool is_log)
{
	const size_t blocks = div_up(args->inner, CPU_COLUMN_BLOCK);

	for (size_t unit = begin; unit < end; unit++) {
		const size_t first = unit % blocks * CPU_COLUMN_BLOCK;
		const size_t last = first + CPU_COLUMN_BLOCK < args->inner
					    ? first + CPU_COLUMN_BLOCK
					    : args->inner;
		const size_t at = unit / blocks * args->len * args->inner;
		const float *x = (const float *)args->x + at;
		float *y = (float *)args->y + at;

		if (args->inner == 1) {
			softmax_row(args->pause, x, y, args->len, is_log);
			continue;
		}
		for (size_t j = first; j < last; j += VW)
			softmax_columns(args->pause, x + j, y + j, args->len, args->inner,
					last - j < VW ? last - j : VW, is_log);
	}
}

void CPU_FN(softmax)(const struct cpu_softmax *args, size_t begin, size_t end)
{
	if (args->type == CPU_F64)
		CPU_FN(softmax_f64)(args, begin, end);
	else if (args->log)
		softmax_units(args, begin, end, true);
	else
		softmax_units(args, begin, end, false);
}
