/* SPDX-License-Identifier: MIT */
/*
 * ReduceSum
 *
 * The dimensions are split into those kept and those summed over. Where the innermost one is kept,
 * lanes are neighbouring results and each is a chain over the reduced dimensions in order. Where it
 * is summed over, its elements are dealt out to VEC_LANES partial sums, which are added at the end
 * in one order. Either way the order depends on the shape alone.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

#define REDUCE_REGS (CPU_COLUMN_BLOCK / VW)

/* Between two looks for others: lines, each of which may miss the cache, and elements of one. */
enum { REDUCE_PAUSE_ROWS = 1 << 10, REDUCE_PAUSE_ELEMS = CPU_PAUSE_ELEMS };

/* An odometer over all dimensions but the last. */
struct reduce_walk {
	size_t at[CPU_MAX_DIMS];
	size_t offset;
};

/* Moves to the next position. Return: false after the last one. */
VEC_INLINE bool reduce_next(struct reduce_walk *walk, unsigned int n, const size_t *extent,
			    const size_t *stride)
{
	for (unsigned int d = n; d-- > 0;) {
		walk->offset += stride[d];
		if (++walk->at[d] < extent[d])
			return true;
		walk->offset -= walk->at[d] * stride[d];
		walk->at[d] = 0;
	}
	return false;
}

/* Neighbouring results: a full block of CPU_COLUMN_BLOCK, or @n < VW of them. */
VEC_INLINE void reduce_columns(const struct cpu_reduce *args, const float *x, float *y,
			       const size_t regs, const bool partial, size_t n)
{
	const unsigned int outer = args->n_reduced ? args->n_reduced - 1 : 0;
	const size_t len = args->n_reduced ? args->reduced[outer] : 1;
	const size_t stride = args->n_reduced ? args->reduced_stride[outer] : 0;
	struct reduce_walk walk = {.offset = 0};
	vf acc[REDUCE_REGS] = {0};
	size_t n_rows = 0;

	do {
		const float *from = x + walk.offset;

		for (size_t i = 0; i < len; i++, from += stride) {
			cpu_pause_at(args->pause, ++n_rows, REDUCE_PAUSE_ROWS);
			VEC_UNROLL
			for (size_t v = 0; v < regs; v++)
				acc[v] +=
					partial ? vf_load_partial(from, n) : vf_load(from + v * VW);
		}
	} while (reduce_next(&walk, outer, args->reduced, args->reduced_stride));
	VEC_UNROLL
	for (size_t v = 0; v < regs; v++) {
		if (partial)
			vf_store_partial(y, acc[v], n);
		else
			vf_store(y + v * VW, acc[v]);
	}
}

static float reduce_rows(const struct cpu_reduce *args, const float *x)
{
	const unsigned int outer = args->n_reduced - 1;
	const size_t len = args->reduced[outer];
	struct reduce_walk walk = {.offset = 0};
	vf acc[VEC_REGS] = {0};
	size_t n_lines = 0;

	do {
		const float *from = x + walk.offset;
		size_t i = 0;

		n_lines++;
		cpu_pause_at(args->pause, n_lines, REDUCE_PAUSE_ROWS);
		for (; i + VEC_LANES <= len; i += VEC_LANES) {
			cpu_pause_at(args->pause, i, REDUCE_PAUSE_ELEMS);
			VEC_UNROLL
			for (size_t v = 0; v < VEC_REGS; v++)
				acc[v] += vf_load(from + i + v * VW);
		}
		VEC_UNROLL
		for (size_t v = 0; v < VEC_REGS; v++) {
			const size_t at = i + v * VW;

			if (at < len)
				acc[v] += vf_load_partial(from + at, len - at < VW ? len - at : VW);
		}
	} while (reduce_next(&walk, outer, args->reduced, args->reduced_stride));
	return vec_sum(acc);
}

/* Where the results of kept index @index come from, over the first @n kept dimensions. */
static size_t reduce_offset(const struct cpu_reduce *args, unsigned int n, size_t index)
{
	size_t offset = 0;

	for (unsigned int d = n; d-- > 0;) {
		offset += index % args->kept[d] * args->kept_stride[d];
		index /= args->kept[d];
	}
	return offset;
}

void CPU_FN(reduce_sum)(const struct cpu_reduce *args, size_t begin, size_t end)
{
	if (!args->inner_kept) {
		for (size_t unit = begin; unit < end; unit++)
			args->y[unit] = reduce_rows(
				args, args->x + reduce_offset(args, args->n_kept, unit));
		return;
	}

	const size_t inner = args->kept[args->n_kept - 1];
	const size_t blocks = (inner + CPU_COLUMN_BLOCK - 1) / CPU_COLUMN_BLOCK;

	for (size_t unit = begin; unit < end; unit++) {
		const size_t outer = unit / blocks, first = unit % blocks * CPU_COLUMN_BLOCK;
		const float *x = args->x + reduce_offset(args, args->n_kept - 1, outer) + first;
		float *y = args->y + outer * inner + first;
		size_t n = inner - first;

		if (n >= CPU_COLUMN_BLOCK) {
			reduce_columns(args, x, y, REDUCE_REGS, false, CPU_COLUMN_BLOCK);
			continue;
		}
		for (; n >= VW; n -= VW, x += VW, y += VW)
			reduce_columns(args, x, y, 1, false, VW);
		if (n > 0)
			reduce_columns(args, x, y, 1, true, n);
	}
}
