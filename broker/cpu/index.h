#pragma once
/* SPDX-License-Identifier: MIT */
/* Parts shared by the kernels that use indices. Private to them: see gather.h. */
#include "cpu/gather.h"
#include "cpu/kernels.h"
#include "cpu/run.h"
#include "cpu/vec.h"
#include "shm/number.h"

/* Rows or elements between two cpu_pause() calls; each may miss the cache. */
enum { INDEX_PAUSE = 1 << 12 };
/* Bytes moved between two cpu_pause() calls */
enum { INDEX_PIECE_BYTES = CPU_PAUSE_ELEMS * 4 };

static inline void index_copy(struct cpu_pause *pause, size_t n, const uint8_t *x, uint8_t *y)
{
	for (; n > INDEX_PIECE_BYTES; n -= INDEX_PIECE_BYTES) {
		memcpy(y, x, INDEX_PIECE_BYTES);
		x += INDEX_PIECE_BYTES;
		y += INDEX_PIECE_BYTES;
		cpu_pause(pause);
	}
	memcpy(y, x, n);
}

/* Load an index once: its owner may change it at any time. */
VEC_INLINE int64_t index_load(const void *data, const bool wide, size_t i)
{
	return wide ? ((const volatile int64_t *)data)[i] : ((const volatile int32_t *)data)[i];
}

/*
 * Convert @index, which counts from the end if negative, to a position in *ret. Return: true if it
 * is below @limit.
 */
VEC_INLINE bool index_resolve(int64_t index, size_t limit, size_t *ret)
{
	*ret = (size_t)(index < 0 ? index + (int64_t)limit : index);
	return *ret < limit;
}

/*
 * Compute the offset of the @n indices from @i on, one per stride. Return: true if all are in
 * range.
 */
VEC_INLINE bool index_offset(const struct cpu_indices *indices, const bool wide, size_t i,
			     const unsigned int n, const size_t *limit, const size_t *stride,
			     size_t *ret)
{
	bool is_good = true;
	size_t at;

	*ret = 0;
	for (unsigned int k = 0; k < n; k++) {
		is_good &= index_resolve(index_load(indices->data, wide, i + k), limit[k], &at);
		*ret += at * stride[k];
	}
	return is_good;
}

/*
 * Compute where a unit of ScatterElements begins in the flat tensor and in the table. Return: the
 * columns of the unit.
 */
VEC_INLINE size_t index_unit(const struct cpu_elements *args, size_t unit, size_t *ret_flat,
			     size_t *ret_table)
{
	const size_t blocks = div_up(args->inner, CPU_COLUMN_BLOCK);
	const size_t column = unit % blocks * CPU_COLUMN_BLOCK;
	size_t index = unit / blocks, flat = column, table = column;

	for (unsigned int d = args->n_outer; d-- > 0;) {
		flat += index % args->extent[d] * args->flat_stride[d];
		table += index % args->extent[d] * args->table_stride[d];
		index /= args->extent[d];
	}
	*ret_flat = flat;
	*ret_table = table;
	return args->inner - column < CPU_COLUMN_BLOCK ? args->inner - column : CPU_COLUMN_BLOCK;
}

/*
 * Tell the task of an index out of range. Relaxed: the task reads the flag after a release at the
 * step's end.
 */
static inline void index_note(const struct cpu_frame *frame, bool all_in_range)
{
	if (!all_in_range)
		atomic_store_explicit(frame->is_out_of_range, true, memory_order_relaxed);
}

static inline struct cpu_elements index_elements(const struct cpu_step *step, uint32_t count)
{
	const struct cpu_step_elements *s = cpu_step_args(step);
	struct cpu_elements args = s->args;

	args.len = cpu_extent_at(&s->len, count);
	if (s->count_outer)
		args.extent[0] *= count;
	return args;
}
