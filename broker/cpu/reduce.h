#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Helpers of the reductions: walks over dimensions, integer loads. Included by the kernel sources
 * only.
 */
#include "cpu/kernels.h"
#include "cpu/vec.h"
#include "shm/number.h"

/* An odometer over all dimensions but the last. */
struct reduce_walk {
	size_t at[CPU_MAX_DIMS];
	size_t offset;
};

/* Advance to the next position. Return: false after the last position. */
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

/* Return the offset of the operands of kept index @index, over the first @n kept dimensions. */
VEC_INLINE size_t reduce_offset(const struct cpu_reduce *args, unsigned int n, size_t index)
{
	size_t offset = 0;

	for (unsigned int d = n; d-- > 0;) {
		offset += index % args->kept[d] * args->kept_stride[d];
		index /= args->kept[d];
	}
	return offset;
}

/* Return the number of elements that one result reduces. */
VEC_INLINE size_t reduce_n_terms(const struct cpu_reduce *args)
{
	size_t n = 1;

	for (unsigned int d = 0; d < args->n_reduced; d++)
		n *= args->reduced[d];
	return n;
}

/* Convert a range of units into a range of results, where the innermost dimension is kept. */
VEC_INLINE void reduce_range(const struct cpu_reduce *args, size_t *begin, size_t *end)
{
	const size_t inner = args->kept[args->n_kept - 1];
	const size_t blocks = div_up(inner, CPU_COLUMN_BLOCK);

	*begin = *begin / blocks * inner + *begin % blocks * CPU_COLUMN_BLOCK;
	*end = *end / blocks * inner + *end % blocks * CPU_COLUMN_BLOCK;
}

/* Return element @i of an integer type. */
VEC_INLINE int64_t reduce_load_int(const enum cpu_type type, const void *x, size_t i)
{
	switch (type) {
	case CPU_I64:
		return ((const int64_t *)x)[i];
	case CPU_I8:
		return ((const int8_t *)x)[i];
	case CPU_U8:
		return ((const uint8_t *)x)[i];
	default:
		return ((const int32_t *)x)[i];
	}
}
