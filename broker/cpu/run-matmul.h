#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of MatMul and Gemm: arguments, run functions. Private to broker/cpu. */
#include "cpu/run.h"

/* MatMul and Gemm over batches of matrices. Batch strides count matrices. */
struct cpu_step_gemm {
	struct cpu_extent m, n;
	size_t k;
	/* elements of one matrix, in the form that is read (packed or not) */
	size_t a_matrix, b_matrix;
	bool b_is_packed;
	/*
	 * Transposed operands, and strides of c's rows and columns. Rows of a transposed a are 1
	 * apart, its columns m.
	 */
	bool trans_a, trans_b;
	size_t c_rs, c_cs;
	float alpha, beta;
	unsigned int n_batch;
	struct cpu_extent batch[CPU_MAX_DIMS];
	size_t a_batch[CPU_MAX_DIMS], b_batch[CPU_MAX_DIMS];
};
CPU_STEP_HOLDS(struct cpu_step_gemm);

cpu_run_fn cpu_run_gemm;
cpu_units_fn cpu_units_gemm;
cpu_rounds_fn cpu_rounds_gemm, cpu_rounds_gemm_f64;
/* run-double-hot.c */
cpu_run_fn cpu_run_gemm_f64;

/* The grid of units of a product: see run-matmul-hot.c. */
struct cpu_gemm_grid {
	size_t batches, m_units, n_units, m_unit, n_unit;
};
struct cpu_gemm_grid cpu_gemm_grid(const struct cpu_step_gemm *step, uint32_t count);

/*
 * Units of one batch that form one tile: the offsets of their matrices in elements, and the tile.
 */
struct cpu_gemm_part {
	size_t a, b, y;
	struct cpu_gemm_tile tile;
};
/* Return the units from @begin on that form one tile, and advance @begin past them. */
struct cpu_gemm_part cpu_gemm_part(const struct cpu_step_gemm *step,
				   const struct cpu_gemm_grid *grid, uint32_t count, size_t *begin,
				   size_t end);
