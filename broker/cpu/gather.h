#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels that go by indices: their arguments
 *
 * A part of kernels.h, which says what holds for every kernel. Indices are a client's: each is
 * loaded once, checked and then used; negative ones count from the end. Where one is out of range,
 * element 0 is read or nothing is written, and the kernel returns false. Elements are moved
 * whatever they are, but for reductions, which know floats and integers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/extent.h"
#include "cpu/rows.h"

enum {
	CPU_GATHER_BLOCK = 4096,  /* indices of one unit of GatherElements, along the axis */
	CPU_SCATTER_BLOCK = 2048, /* elements of one unit of ScatterND */
};

/* int32 or int64 numbers. */
struct cpu_indices {
	const void *data;
	bool wide; /* int64 */
};

/*
 * Gather, GatherND: row i of y is one of x, where the sum of its indices times their strides says.
 * There are @outer times @rows of them. Everything but numbers of indices is in bytes.
 */
struct cpu_gather {
	const uint8_t *x;
	struct cpu_indices indices;
	uint8_t *y;
	size_t outer, rows, run; /* run: of a row */
	size_t x_outer;          /* between outer ones, of x */
	size_t index_outer;      /* and of indices: 0 where all have the same */
	unsigned int n_index;    /* indices that make one */
	size_t limit[CPU_MAX_DIMS], stride[CPU_MAX_DIMS];
	struct cpu_pause *pause;
};

/*
 * GatherElements, ScatterElements: over the elements of indices, seen as outer dimensions, one
 * along the axis, and an inner one of neighbours. An index says which element along the axis of the
 * table, the larger tensor, belongs to the element of the flat one, which lies as the indices do.
 * Distances in elements.
 */
struct cpu_elements {
	const void *from; /* the table's elements; ScatterElements: updates, which are flat */
	struct cpu_indices indices;
	void *to; /* flat; ScatterElements: the table */
	unsigned int n_outer;
	size_t extent[CPU_MAX_DIMS], flat_stride[CPU_MAX_DIMS], table_stride[CPU_MAX_DIMS];
	size_t len, inner;
	size_t flat_step, table_step; /* along the axis */
	size_t limit;                 /* the table's elements along the axis */
	struct cpu_pause *pause;
};

/* ScatterND: rows of neighbours; distances in elements. */
struct cpu_scatter_nd {
	const void *updates;
	struct cpu_indices indices;
	void *y;
	size_t rows, run;
	unsigned int n_index;
	size_t limit[CPU_MAX_DIMS], stride[CPU_MAX_DIMS];
	struct cpu_pause *pause;
};

/* What scattering does with an element: moves it, by the logarithm of its bytes, or a reduction. */
enum cpu_scatter {
	CPU_SCATTER_BYTE,
	CPU_SCATTER_2,
	CPU_SCATTER_4,
	CPU_SCATTER_8,
	CPU_SCATTER_F32, /* add; then mul, max, min, here and below */
	CPU_SCATTER_F64 = CPU_SCATTER_F32 + 4,
	CPU_SCATTER_I32 = CPU_SCATTER_F64 + 4,
	CPU_SCATTER_I64 = CPU_SCATTER_I32 + 4,
	CPU_SCATTER_I8 = CPU_SCATTER_I64 + 4,
	CPU_SCATTER_U8 = CPU_SCATTER_I8 + 4,
	CPU_SCATTER_COUNT = CPU_SCATTER_U8 + 4,
};

/* Units of GatherElements; of ScatterElements, whose columns are never cut, with @cuts false. */
static inline size_t cpu_elements_units(const struct cpu_elements *args, bool cuts)
{
	size_t units = (args->inner + CPU_COLUMN_BLOCK - 1) / CPU_COLUMN_BLOCK;

	for (unsigned int i = 0; i < args->n_outer; i++)
		units *= args->extent[i];
	return cuts ? units * ((args->len + CPU_GATHER_BLOCK - 1) / CPU_GATHER_BLOCK) : units;
}

static inline size_t cpu_scatter_nd_units(const struct cpu_scatter_nd *args)
{
	return (args->run + CPU_SCATTER_BLOCK - 1) / CPU_SCATTER_BLOCK;
}

/* Steps: what may depend on the count, and pointers, are unset in the arguments. */

struct cpu_step_gather {
	struct cpu_gather args;
	struct cpu_extent outer, rows;
};

/* With count_outer extent[0] is to be multiplied by the count. */
struct cpu_step_elements {
	struct cpu_elements args;
	/* GatherElements: log2 of the bytes of an element; ScatterElements: enum cpu_scatter */
	unsigned int kind;
	struct cpu_extent len;
	bool count_outer;
};

struct cpu_step_scatter_nd {
	struct cpu_scatter_nd args;
	enum cpu_scatter kind;
	struct cpu_extent rows;
};

/* Steps that scatter follow a copy of the data. */
/* clang-format off */
#define CPU_GATHER_KERNELS(KERNEL, TABLE, ROUTINE) \
	ROUTINE(gather) \
	ROUTINE(gather_elements) \
	ROUTINE(scatter_elements) \
	ROUTINE(scatter_nd)
/* clang-format on */
