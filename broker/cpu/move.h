#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels that move elements: their arguments
 *
 * A part of kernels.h, whose rules hold for every kernel.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/number.h"

struct cpu_pause;

enum { CPU_MOVE_MAX_DIMS = 16 };

enum cpu_move_form {
	CPU_MOVE_ROWS,     /* the last dimension is contiguous bytes on both sides */
	CPU_MOVE_PLANE,    /* contiguous: the last dimension of to, the one before it of from */
	CPU_MOVE_ELEMENTS, /* anything else */
};

/*
 * A box of elements. Strides are in bytes and may be negative. Elements are aligned to their size.
 * No element is read after it was written.
 */
struct cpu_move {
	const void *from;
	void *to;
	enum cpu_move_form form;
	unsigned int element_bytes; /* 1, 2, 4 or 8; 1 for rows */
	unsigned int n_dims;        /* at least 2 */
	size_t extent[CPU_MOVE_MAX_DIMS];
	ptrdiff_t from_stride[CPU_MOVE_MAX_DIMS], to_stride[CPU_MOVE_MAX_DIMS];
	struct cpu_pause *pause;
};

/*
 * Return the maximum of last-dimension indices in one unit. Rows may be long; other forms may miss
 * the cache.
 */
static inline size_t cpu_move_columns(const struct cpu_move *args)
{
	const size_t max = args->form == CPU_MOVE_ROWS ? 1 << 16 : 1 << 10;
	const size_t columns = args->extent[args->n_dims - 1];

	return columns < max ? columns : max;
}

/*
 * Return the maximum of indices of the dimension before the last in one unit; planes have whole
 * squares.
 */
static inline size_t cpu_move_rows(const struct cpu_move *args)
{
	const size_t wanted = args->form == CPU_MOVE_ROWS ? 1 << 14 : 1 << 12;
	const size_t rows = wanted / cpu_move_columns(args);

	if (args->form == CPU_MOVE_PLANE)
		return (rows + 63) / 64 * 64 + (rows == 0) * 64;
	return rows ? rows : 1;
}

/* Return the units along the last dimension, or along the one before it. */
static inline size_t cpu_move_column_units(const struct cpu_move *args)
{
	const size_t columns = cpu_move_columns(args);

	return div_up(args->extent[args->n_dims - 1], columns);
}

static inline size_t cpu_move_row_units(const struct cpu_move *args)
{
	const size_t rows = cpu_move_rows(args);

	return div_up(args->extent[args->n_dims - 2], rows);
}

static inline size_t cpu_move_units(const struct cpu_move *args)
{
	size_t units = cpu_move_row_units(args) * cpu_move_column_units(args);

	for (unsigned int i = 0; i + 2 < args->n_dims; i++)
		units *= args->extent[i];
	return units;
}

/* clang-format off */
#define CPU_MOVE_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* ONNX Transpose, Slice and their like, see move.h. Units: cpu_move_units(). */ \
	KERNEL(void, move, (const struct cpu_move *args, size_t begin, size_t end))
/* clang-format on */
