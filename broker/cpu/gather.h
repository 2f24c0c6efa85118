#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels that use indices: their arguments
 *
 * A part of kernels.h, whose rules hold for every kernel. Indices come from a client: each is
 * loaded once, checked and then used; negative ones count from the end. For an index out of range,
 * element 0 is read or no element is written, and the kernel returns false. Elements are moved
 * whatever their type; only reductions distinguish floats and integers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/extent.h"
#include "cpu/rows.h"
#include "shm/number.h"

enum {
	CPU_GATHER_BLOCK = 4096,  /* indices along the axis per unit of GatherElements */
	CPU_SCATTER_BLOCK = 2048, /* elements per unit of ScatterND */
};

/* int32 or int64 indices */
struct cpu_indices {
	const void *data;
	bool wide; /* int64 */
};

/*
 * Gather, GatherND: row i of y is the row of x at the sum of its indices times their strides. There
 * are @outer times @rows rows. All members are in bytes, except counts and indices.
 */
struct cpu_gather {
	const uint8_t *x;
	struct cpu_indices indices;
	uint8_t *y;
	size_t outer, rows, run; /* run: bytes of a row */
	size_t x_outer;          /* stride of x between outer positions */
	size_t index_outer;      /* stride of indices between outer positions; 0: shared */
	unsigned int n_index;    /* indices per row */
	size_t limit[CPU_MAX_DIMS], stride[CPU_MAX_DIMS];
	struct cpu_pause *pause;
};

/*
 * GatherElements, ScatterElements. The elements of indices are seen as outer dimensions, the axis,
 * and an inner dimension of adjacent elements. The table is the larger tensor. The flat tensor has
 * the shape of indices. An index selects the table's element along the axis for one element of the
 * flat tensor. Strides are in elements.
 */
struct cpu_elements {
	const void *from; /* the table; ScatterElements: the updates, which are flat */
	struct cpu_indices indices;
	void *to; /* flat; ScatterElements: the table */
	unsigned int n_outer;
	size_t extent[CPU_MAX_DIMS], flat_stride[CPU_MAX_DIMS], table_stride[CPU_MAX_DIMS];
	size_t len, inner;
	size_t flat_step, table_step; /* strides along the axis */
	size_t limit;                 /* the table's elements along the axis */
	struct cpu_pause *pause;
};

/* ScatterND: rows of adjacent elements; strides in elements */
struct cpu_scatter_nd {
	const void *updates;
	struct cpu_indices indices;
	void *y;
	size_t rows, run;
	unsigned int n_index;
	size_t limit[CPU_MAX_DIMS], stride[CPU_MAX_DIMS];
	struct cpu_pause *pause;
};

/* The operation of a scatter on one element: a move, by log2 of its bytes, or a reduction */
enum cpu_scatter {
	CPU_SCATTER_BYTE,
	CPU_SCATTER_2,
	CPU_SCATTER_4,
	CPU_SCATTER_8,
	CPU_SCATTER_F32, /* add; then mul, max, min, as in the types below */
	CPU_SCATTER_F64 = CPU_SCATTER_F32 + 4,
	CPU_SCATTER_I32 = CPU_SCATTER_F64 + 4,
	CPU_SCATTER_I64 = CPU_SCATTER_I32 + 4,
	CPU_SCATTER_I8 = CPU_SCATTER_I64 + 4,
	CPU_SCATTER_U8 = CPU_SCATTER_I8 + 4,
	CPU_SCATTER_COUNT = CPU_SCATTER_U8 + 4,
};

/*
 * Return the units of GatherElements. @cuts is false for ScatterElements, whose columns are never
 * split.
 */
static inline size_t cpu_elements_units(const struct cpu_elements *args, bool cuts)
{
	size_t units = div_up(args->inner, CPU_COLUMN_BLOCK);

	for (unsigned int i = 0; i < args->n_outer; i++)
		units *= args->extent[i];
	return cuts ? units * div_up(args->len, CPU_GATHER_BLOCK) : units;
}

static inline size_t cpu_scatter_nd_units(const struct cpu_scatter_nd *args)
{
	return div_up(args->run, CPU_SCATTER_BLOCK);
}

/* Arguments of steps. Members that may depend on the count, and pointers, are unset in args. */

struct cpu_step_gather {
	struct cpu_gather args;
	struct cpu_extent outer, rows;
};

/* count_outer: multiply extent[0] by the count. */
struct cpu_step_elements {
	struct cpu_elements args;
	/* GatherElements: log2 of an element's bytes; ScatterElements: enum cpu_scatter */
	unsigned int kind;
	struct cpu_extent len;
	bool count_outer;
};

struct cpu_step_scatter_nd {
	struct cpu_scatter_nd args;
	enum cpu_scatter kind;
	struct cpu_extent rows;
};

/* Steps that scatter run after a copy of the data. */
/* clang-format off */
#define CPU_GATHER_KERNELS(KERNEL, TABLE, ROUTINE) \
	ROUTINE(gather) \
	ROUTINE(gather_elements) \
	ROUTINE(scatter_elements) \
	ROUTINE(scatter_nd)
/* clang-format on */
