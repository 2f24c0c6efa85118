#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Running steps. Private to broker/cpu.
 *
 * A step has two functions, in run-FAMILY-hot.c: cpu_run_fn turns the step, a frame and the task's
 * count into the arguments of a kernel and calls it for some of its units; cpu_units_fn says how
 * many there are. A unit is the smallest piece that is worth handing to another worker; for a
 * matrix product, a tile whose height depends on the problem only.
 */
#include "cpu/step.h"
#include "util/number.h"

/* Elements of one unit of a flat elementwise step: a multiple of every vector's width. */
enum { CPU_FLAT_UNIT = 8192 };

static inline size_t div_up(size_t a, size_t b)
{
	return (a + b - 1) / b;
}

/* Multiplications and additions of a unit in one round, at most: a millisecond's, or less. */
#define CPU_ROUND_TERMS (20e6)
/* Reading one operand of a term costs as much as so many terms. */
enum { CPU_ROUND_READ = 10 };

/*
 * Rounds of sums over @k terms, added in blocks of @block, with @m times @n of them in a unit, each
 * term of which takes @factor times as long as one of float32.
 */
static inline uint32_t cpu_rounds(size_t k, size_t block, size_t m, size_t n, double factor)
{
	const double each_term = factor * (double)(m * n + CPU_ROUND_READ * (m + n));
	const double most = CPU_ROUND_TERMS / (each_term * (double)block);
	const size_t n_blocks = div_up(k, block);
	const size_t each = most < 1 ? 1 : most < (double)n_blocks ? (size_t)most : n_blocks;

	return n_blocks > each ? (uint32_t)div_up(n_blocks, each) : 1;
}

/* The terms that are added in the round that @frame says; none is empty if cpu_rounds() told how
 * many there are. */
struct cpu_terms {
	size_t begin, end;
};
static inline struct cpu_terms cpu_round_terms(const struct cpu_frame *frame, size_t k,
					       size_t block)
{
	size_t each;

	if (frame->n_rounds <= 1)
		return (struct cpu_terms){0, k};
	each = div_up(div_up(k, block), frame->n_rounds) * block;
	return (struct cpu_terms){frame->round * each, min_size(k, (frame->round + 1) * each)};
}

/* run-half-hot.c: step->n elements; cpu_units_elems() counts them. */
cpu_run_fn cpu_run_half_load, cpu_run_half_store;
cpu_units_fn cpu_units_elems;

/* run-matmul-hot.c */
cpu_run_fn cpu_run_gemm;
cpu_units_fn cpu_units_gemm;
cpu_rounds_fn cpu_rounds_gemm, cpu_rounds_gemm_f64;

/* How a product is cut: see run-matmul-hot.c. */
struct cpu_gemm_grid {
	size_t batches, m_units, n_units, m_unit;
};
struct cpu_gemm_grid cpu_gemm_grid(const struct cpu_step_gemm *step, uint32_t count);

/* Units that lie in one batch and make one tile: elements in front of its matrices, and the tile.
 */
struct cpu_gemm_part {
	size_t a, b, y;
	struct cpu_gemm_tile tile;
};
/* The units from @begin on that are one; moves @begin behind them. */
struct cpu_gemm_part cpu_gemm_part(const struct cpu_step_gemm *step,
				   const struct cpu_gemm_grid *grid, uint32_t count, size_t *begin,
				   size_t end);

/* run-double-hot.c; where there are no units, those of float32 serve */
cpu_run_fn cpu_run_gemm_f64, cpu_run_conv_f64, cpu_run_conv_transpose_f64, cpu_run_pool_f64;
cpu_units_fn cpu_units_conv_transpose_f64;

/* run-elementwise-hot.c */
cpu_run_fn cpu_run_map_flat, cpu_run_map;
cpu_units_fn cpu_units_map_flat, cpu_units_map;

/* run-reduce-hot.c; cpu_run_copy() copies step->n bytes, cpu_units_elems() counts them. */
cpu_run_fn cpu_run_copy;
cpu_run_fn cpu_run_softmax, cpu_run_reduce, cpu_run_top_k, cpu_run_arg, cpu_run_scan,
	cpu_run_lp_norm;
cpu_units_fn cpu_units_softmax, cpu_units_reduce, cpu_units_top_k, cpu_units_columns;

/* run-move-hot.c */
cpu_run_fn cpu_run_move;
cpu_units_fn cpu_units_move;

/* run-norm-hot.c */
cpu_run_fn cpu_run_norm, cpu_run_batch_norm;
cpu_units_fn cpu_units_norm, cpu_units_batch_norm;

/* run-attention-hot.c */
cpu_run_fn cpu_run_rotary, cpu_run_attention, cpu_run_present;
cpu_units_fn cpu_units_rotary, cpu_units_attention, cpu_units_present;

/* run-quantize-hot.c; products of it have cpu_units_gemm() */
cpu_run_fn cpu_run_quantize, cpu_run_dequantize, cpu_run_ranges, cpu_run_range_end,
	cpu_run_quantize_dynamic, cpu_run_integer, cpu_run_integer_pack, cpu_run_integer_conv,
	cpu_run_nbits, cpu_run_nbits_pack;
cpu_units_fn cpu_units_quantize, cpu_units_ranges, cpu_units_one, cpu_units_integer_conv,
	cpu_units_integer_pack, cpu_units_nbits_pack;

/* run-gather-hot.c */
cpu_run_fn cpu_run_gather, cpu_run_gather_elements, cpu_run_scatter_elements, cpu_run_scatter_nd,
	cpu_run_one_hot, cpu_run_trilu;
cpu_units_fn cpu_units_gather, cpu_units_gather_elements, cpu_units_scatter_elements,
	cpu_units_scatter_nd, cpu_units_one_hot, cpu_units_trilu;

/* run-window-hot.c */
cpu_run_fn cpu_run_conv, cpu_run_conv_transpose, cpu_run_pool, cpu_run_pool_any;
cpu_units_fn cpu_units_conv, cpu_units_conv_transpose, cpu_units_pool;
cpu_rounds_fn cpu_rounds_conv;
