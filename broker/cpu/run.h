#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Running steps. Private to broker/cpu.
 *
 * A step has two functions, of run-FAMILY.h: cpu_run_fn turns the step, a frame and the task's
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

/*
 * Conversions of float16 (run-half-hot.c), whose argument is a struct cpu_extent of elements, and
 * copies (run-reduce-hot.c), whose argument is one of bytes; both have cpu_units_elems().
 */
cpu_run_fn cpu_run_half_load, cpu_run_half_store, cpu_run_copy;
cpu_units_fn cpu_units_elems;
