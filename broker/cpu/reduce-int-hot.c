/* SPDX-License-Identifier: MIT */
/*
 * Reductions of integers
 *
 * The walk over dimensions is that of reduce-hot.c, one element at a time: integer tensors are
 * shapes, counts and masks, and small. Any order gives the same sum, which is computed modulo 2^64
 * and truncated to the type's width.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/reduce.h"
#include "cpu/vec.h"

enum { REDUCE_INT_PAUSE = 1 << 14 };

VEC_INLINE void int_store(const enum cpu_type type, void *y, size_t i, int64_t value)
{
	switch (type) {
	case CPU_I64:
		((int64_t *)y)[i] = value;
		return;
	case CPU_I8:
		((int8_t *)y)[i] = (int8_t)value;
		return;
	case CPU_U8:
		((uint8_t *)y)[i] = (uint8_t)value;
		return;
	default:
		((int32_t *)y)[i] = (int32_t)(uint32_t)value;
	}
}

/* Return a limit of the type's range: the maximum or minimum over no elements. */
VEC_INLINE int64_t int_limit(const enum cpu_type type, bool greatest)
{
	switch (type) {
	case CPU_I64:
		return greatest ? INT64_MAX : INT64_MIN;
	case CPU_I8:
		return greatest ? INT8_MAX : INT8_MIN;
	case CPU_U8:
		return greatest ? UINT8_MAX : 0;
	default:
		return greatest ? INT32_MAX : INT32_MIN;
	}
}

VEC_INLINE int64_t int_merge(const enum cpu_reduce_kind kind, int64_t a, int64_t b)
{
	switch (kind) {
	case CPU_REDUCE_MAX:
		return b > a ? b : a;
	case CPU_REDUCE_MIN:
		return b < a ? b : a;
	case CPU_REDUCE_PROD:
		return (int64_t)((uint64_t)a * (uint64_t)b);
	default:
		return (int64_t)((uint64_t)a + (uint64_t)b);
	}
}

VEC_INLINE int64_t int_one(const struct cpu_reduce *args, const enum cpu_type type,
			   const enum cpu_reduce_kind kind, int64_t acc, size_t offset)
{
	const unsigned int outer = args->n_reduced ? args->n_reduced - 1 : 0;
	const size_t len = args->n_reduced ? args->reduced[outer] : 1;
	const size_t stride = args->n_reduced ? args->reduced_stride[outer] : 0;
	struct reduce_walk walk = {.offset = offset};
	size_t n = 0;

	do {
		size_t at = walk.offset;

		for (size_t i = 0; i < len; i++, at += stride) {
			cpu_pause_at(args->pause, ++n, REDUCE_INT_PAUSE);
			acc = int_merge(kind, acc, reduce_load_int(type, args->x, at));
		}
	} while (reduce_next(&walk, outer, args->reduced, args->reduced_stride));
	return acc;
}

VEC_INLINE void int_units(const struct cpu_reduce *args, const enum cpu_type type,
			  const enum cpu_reduce_kind kind, size_t begin, size_t end)
{
	const bool empty = reduce_n_terms(args) == 0;
	int64_t start = kind == CPU_REDUCE_PROD;

	if (kind == CPU_REDUCE_MAX || kind == CPU_REDUCE_MIN)
		start = int_limit(type, kind == CPU_REDUCE_MIN);
	for (size_t i = begin; i < end; i++)
		int_store(type, args->y, i,
			  empty ? start
				: int_one(args, type, kind, start,
					  reduce_offset(args, args->n_kept, i)));
}

VEC_INLINE void int_kinds(const struct cpu_reduce *args, const enum cpu_type type, size_t begin,
			  size_t end)
{
	switch (args->kind) {
	case CPU_REDUCE_MAX:
		int_units(args, type, CPU_REDUCE_MAX, begin, end);
		return;
	case CPU_REDUCE_MIN:
		int_units(args, type, CPU_REDUCE_MIN, begin, end);
		return;
	case CPU_REDUCE_PROD:
		int_units(args, type, CPU_REDUCE_PROD, begin, end);
		return;
	default:
		int_units(args, type, CPU_REDUCE_SUM, begin, end);
	}
}

void CPU_FN(reduce_int)(const struct cpu_reduce *args, size_t begin, size_t end)
{
	if (args->inner_kept)
		reduce_range(args, &begin, &end);
	switch (args->type) {
	case CPU_I64:
		int_kinds(args, CPU_I64, begin, end);
		return;
	case CPU_I8:
		int_kinds(args, CPU_I8, begin, end);
		return;
	case CPU_U8:
		int_kinds(args, CPU_U8, begin, end);
		return;
	default:
		int_kinds(args, CPU_I32, begin, end);
	}
}
