#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels that move elements: their arguments
 *
 * A part of kernels.h, which says what holds for every kernel.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_pause;

enum { CPU_MOVE_MAX_DIMS = 16 };

enum cpu_move_form {
	CPU_MOVE_ROWS,     /* the last dimension is bytes that are contiguous on both sides */
	CPU_MOVE_PLANE,    /* it is so where they go to, the one before it where they come from */
	CPU_MOVE_ELEMENTS, /* anything else */
	CPU_MOVE_FORMS,
};

/*
 * A box of elements; strides are bytes and may be negative. Elements are aligned to their size and
 * as they are copied none is read that was written.
 */
struct cpu_move {
	const void *from;
	void *to;
	enum cpu_move_form form;
	unsigned int element_bytes; /* 1, 2, 4 or 8; those of rows 1 */
	unsigned int n_dims;        /* at least 2 */
	size_t extent[CPU_MOVE_MAX_DIMS];
	ptrdiff_t from_stride[CPU_MOVE_MAX_DIMS], to_stride[CPU_MOVE_MAX_DIMS];
	struct cpu_pause *pause;
};

/* Indices of the last dimension in one unit, at most: rows are long, others may miss the cache. */
static inline size_t cpu_move_columns(const struct cpu_move *args)
{
	const size_t max = args->form == CPU_MOVE_ROWS ? 1 << 16 : 1 << 10;
	const size_t columns = args->extent[args->n_dims - 1];

	return columns < max ? columns : max;
}

/* And of the dimension before it: of planes, whole squares. */
static inline size_t cpu_move_rows(const struct cpu_move *args)
{
	const size_t wanted = args->form == CPU_MOVE_ROWS ? 1 << 14 : 1 << 12;
	const size_t rows = wanted / cpu_move_columns(args);

	if (args->form == CPU_MOVE_PLANE)
		return (rows + 63) / 64 * 64 + (rows == 0) * 64;
	return rows ? rows : 1;
}

/* How many units each of the last two dimensions has. */
static inline size_t cpu_move_column_units(const struct cpu_move *args)
{
	const size_t columns = cpu_move_columns(args);

	return (args->extent[args->n_dims - 1] + columns - 1) / columns;
}

static inline size_t cpu_move_row_units(const struct cpu_move *args)
{
	const size_t rows = cpu_move_rows(args);

	return (args->extent[args->n_dims - 2] + rows - 1) / rows;
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
