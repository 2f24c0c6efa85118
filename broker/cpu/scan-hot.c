/* SPDX-License-Identifier: MIT */
/*
 * CumSum
 *
 * A column's elements are summed in order. To keep long float columns precise, the sum has two
 * parts: the elements of the current piece, which has a fixed length, and all earlier elements. If
 * columns are adjacent, lanes are columns.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

enum { SCAN_PIECE = 64, SCAN_PAUSE_ROWS = 1 << 10 };

/* Return the offset of the @i-th element that is added. */
VEC_INLINE size_t scan_at(const struct cpu_scan *args, size_t i)
{
	return (args->reverse ? args->len - 1 - i : i) * args->inner;
}

static void scan_row(const struct cpu_scan *args, const float *x, float *y)
{
	float before = 0, piece = 0;

	for (size_t i = 0; i < args->len; i++) {
		const size_t at = scan_at(args, i);
		const float value = x[at];

		cpu_pause_at(args->pause, i, SCAN_PAUSE_ROWS);
		if (args->exclusive)
			y[at] = before + piece;
		piece += value;
		if (!args->exclusive)
			y[at] = before + piece;
		if (i % SCAN_PIECE == SCAN_PIECE - 1) {
			before += piece;
			piece = 0;
		}
	}
}

static void scan_columns(const struct cpu_scan *args, const float *x, float *y, size_t n)
{
	vf before = {0}, piece = {0};

	for (size_t i = 0; i < args->len; i++) {
		const size_t at = scan_at(args, i);
		const vf value = vf_load_partial(x + at, n);

		cpu_pause_at(args->pause, i, SCAN_PAUSE_ROWS);
		if (args->exclusive)
			vf_store_partial(y + at, before + piece, n);
		piece += value;
		if (!args->exclusive)
			vf_store_partial(y + at, before + piece, n);
		if (i % SCAN_PIECE == SCAN_PIECE - 1) {
			before += piece;
			piece = (vf){0};
		}
	}
}

static void scan_i64(const struct cpu_scan *args, const int64_t *x, int64_t *y)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < args->len; i++) {
		const size_t at = scan_at(args, i);
		const uint64_t value = (uint64_t)x[at];

		cpu_pause_at(args->pause, i, SCAN_PAUSE_ROWS);
		sum += value;
		y[at] = (int64_t)(args->exclusive ? sum - value : sum);
	}
}

static void scan_i32(const struct cpu_scan *args, const int32_t *x, int32_t *y)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < args->len; i++) {
		const size_t at = scan_at(args, i);
		const uint32_t value = (uint32_t)x[at];

		cpu_pause_at(args->pause, i, SCAN_PAUSE_ROWS);
		sum += value;
		y[at] = (int32_t)(args->exclusive ? sum - value : sum);
	}
}

void CPU_FN(scan)(const struct cpu_scan *args, size_t begin, size_t end)
{
	const size_t blocks = div_up(args->inner, CPU_COLUMN_BLOCK);

	if (args->type == CPU_F64) {
		CPU_FN(scan_f64)(args, begin, end);
		return;
	}
	for (size_t unit = begin; unit < end; unit++) {
		const size_t first = unit % blocks * CPU_COLUMN_BLOCK;
		const size_t last = first + CPU_COLUMN_BLOCK < args->inner
					    ? first + CPU_COLUMN_BLOCK
					    : args->inner;
		const size_t base = unit / blocks * args->len * args->inner;
		const bool is_wide = args->type == CPU_F32 && args->inner > 1;

		for (size_t j = first; j < last; j += is_wide ? VW : 1) {
			const size_t at = base + j;

			if (is_wide)
				scan_columns(args, (const float *)args->x + at,
					     (float *)args->y + at, last - j < VW ? last - j : VW);
			else if (args->type == CPU_F32)
				scan_row(args, (const float *)args->x + at, (float *)args->y + at);
			else if (args->type == CPU_I64)
				scan_i64(args, (const int64_t *)args->x + at,
					 (int64_t *)args->y + at);
			else
				scan_i32(args, (const int32_t *)args->x + at,
					 (int32_t *)args->y + at);
		}
	}
}
