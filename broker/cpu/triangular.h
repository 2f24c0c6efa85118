#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels: triangular systems
 *
 * Cholesky and TriangularSolve, as op-triangular.c defines them. Each has a part of its units
 * computed, in float32 or float64; see kernels.h. Panels of unknowns lie in the workspace.
 */
#include <stdbool.h>
#include <stddef.h>

#include "cpu/map.h"
#include "shm/number.h"

struct cpu_pause;

/* Right-hand sides of one unit, which are solved together, one in each lane */
enum { CPU_SOLVE_SIDES = 32 };

/* TriangularSolve of @batch matrices of @sides right-hand sides with @n unknowns each */
struct cpu_solve {
	const void *a, *b;
	void *y;
	size_t batch, sides, n;
	bool left, upper, trans, unit; /* as in union op_params */
	bool is_shared;                /* one triangle for all batches */
	enum cpu_type type;            /* CPU_F32 or CPU_F64 */
	struct cpu_pause *pause;
};

static inline size_t cpu_solve_units(const struct cpu_solve *args)
{
	return args->batch * div_up(args->sides, CPU_SOLVE_SIDES);
}

/* Cholesky of @batch matrices of @n rows */
struct cpu_cholesky {
	const void *a;
	void *y;
	size_t batch, n;
	enum cpu_type type; /* CPU_F32 or CPU_F64 */
	struct cpu_pause *pause;
};

/* clang-format off */
#define CPU_TRIANGULAR_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* TriangularSolve. Units: cpu_solve_units(). */ \
	KERNEL(void, solve, (const struct cpu_solve *args, size_t begin, size_t end, \
	       void *workspace)) \
	/* Cholesky. Units: matrices. */ \
	KERNEL(void, cholesky, (const struct cpu_cholesky *args, size_t begin, size_t end, \
	       void *workspace))
/* clang-format on */
