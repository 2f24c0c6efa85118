/* SPDX-License-Identifier: MIT */
/*
 * Softmax
 *
 * Three passes over a column: its maximum, the exponentials of the differences with their sum, the
 * division. The exponential is a polynomial of our own, because libm's takes one number at a time.
 * Where the columns' elements are adjacent, lanes share a column, and the sum is over VEC_LANES
 * partial sums; else neighbouring columns are computed side by side and no lanes meet.
 */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

/*
 * exp(x) for x <= 0 or NaN, to about 1 unit in the last place; 0 where the result would be a
 * denormal. x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by its Taylor series, whose remainder there
 * is below 2^-24 with the seventh power; 2^n by its bits.
 */
VEC_INLINE vf softmax_exp(vf x)
{
	const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
	const vf least = vf_set(-87.0f);
	const vi small = (vi)(x < least);
	const vf t = vf_select(small, least, x);
	const vf z = t * vf_set(1.44269504088896341f) + magic;
	const vf n = z - magic;
	/* ln 2 in two parts, the first short enough for an exact product. */
	vf r = t - n * vf_set(0.693359375f);
	vf p = vf_set(1.0f / 5040);

	r = r - n * vf_set(-2.12194440e-4f);
	p = p * r + vf_set(1.0f / 720);
	p = p * r + vf_set(1.0f / 120);
	p = p * r + vf_set(1.0f / 24);
	p = p * r + vf_set(1.0f / 6);
	p = p * r + vf_set(0.5f);
	p = p * r + vf_set(1);
	p = p * r + vf_set(1);
	/* The low bits of z are n; a NaN gives some power here and stays a NaN by the product. */
	p = p * (vf)(((vu)z << 23) + (127u << 23));
	return vf_select(small, (vf){0}, p);
}

/* The larger one; a NaN only if @m is. */
VEC_INLINE vf softmax_max(vf m, vf x)
{
	return vf_select((vi)(x > m), x, m);
}

/* Elements of register @v that are left of @n elements. */
VEC_INLINE size_t softmax_left(size_t n, size_t v)
{
	if (n <= v * VW)
		return 0;
	return n - v * VW < VW ? n - v * VW : VW;
}

static void softmax_row(struct cpu_pause *pause, const float *x, float *y, size_t len)
{
	vf max[VEC_REGS], sum[VEC_REGS] = {0}, scale;
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
			const vf e = softmax_exp(vf_load(x + i + v * VW) - vf_set(most));

			vf_store(y + i + v * VW, e);
			sum[v] += e;
		}
	}
	if (i < len) {
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++) {
			const size_t n = softmax_left(len - i, v);

			if (n == 0)
				continue;
			vf_store_partial(
				y + i + v * VW,
				softmax_exp(vf_load_partial(x + i + v * VW, n) - vf_set(most)), n);
			sum[v] += vf_load_partial(y + i + v * VW, n);
		}
	}
	scale = vf_set(1 / vec_sum(sum));
	for (i = 0; i + VW <= len; i += VW) {
		cpu_pause_at(pause, i, CPU_PAUSE_ELEMS);
		vf_store(y + i, vf_load(y + i) * scale);
	}
	if (i < len)
		vf_store_partial(y + i, vf_load_partial(y + i, len - i) * scale, len - i);
}

/* Rows between two looks for others; each may miss the cache. */
enum { COLUMN_PAUSE = 1 << 10 };

/* @n <= VW neighbouring columns. */
static void softmax_columns(struct cpu_pause *pause, const float *x, float *y, size_t len,
			    size_t stride, size_t n)
{
	vf max = vf_set(-INFINITY), sum = {0}, scale;

	for (size_t i = 0; i < len; i++) {
		cpu_pause_at(pause, i, COLUMN_PAUSE);
		max = softmax_max(max, vf_load_partial(x + i * stride, n));
	}
	for (size_t i = 0; i < len; i++) {
		const vf e = softmax_exp(vf_load_partial(x + i * stride, n) - max);

		cpu_pause_at(pause, i, COLUMN_PAUSE);
		vf_store_partial(y + i * stride, e, n);
		sum += e;
	}
	scale = vf_set(1) / sum;
	for (size_t i = 0; i < len; i++) {
		cpu_pause_at(pause, i, COLUMN_PAUSE);
		vf_store_partial(y + i * stride, vf_load_partial(y + i * stride, n) * scale, n);
	}
}

void CPU_FN(softmax)(const struct cpu_softmax *args, size_t begin, size_t end)
{
	const size_t blocks = (args->inner + CPU_COLUMN_BLOCK - 1) / CPU_COLUMN_BLOCK;

	for (size_t unit = begin; unit < end; unit++) {
		const size_t first = unit % blocks * CPU_COLUMN_BLOCK;
		const size_t last = first + CPU_COLUMN_BLOCK < args->inner
					    ? first + CPU_COLUMN_BLOCK
					    : args->inner;
		const size_t at = unit / blocks * args->len * args->inner;

		if (args->inner == 1) {
			softmax_row(args->pause, args->x + at, args->y + at, args->len);
			continue;
		}
		for (size_t j = first; j < last; j += VW)
			softmax_columns(args->pause, args->x + at + j, args->y + at + j, args->len,
					args->inner, last - j < VW ? last - j : VW);
	}
}
