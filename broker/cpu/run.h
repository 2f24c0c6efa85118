#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Running steps. Private to broker/cpu.
 *
 * A step has two functions, declared in run-FAMILY.h. Its cpu_run_fn builds the kernel's arguments
 * from the step, a frame and the task's count, and calls the kernel for some units. Its
 * cpu_units_fn returns the number of units. A unit is the smallest piece worth handing to another
 * worker; for a matrix product, it is a tile whose height depends on the problem only.
 */
#include "cpu/step.h"
#include "util/number.h"

/* Elements of one unit of a flat elementwise step: a multiple of every vector's width. */
enum { CPU_FLAT_UNIT = 8192 };

/* multiply-adds of one unit in one round, at most: a millisecond or less */
#define CPU_ROUND_TERMS (20e6)
/* cost of reading one operand of a term, in multiply-adds */
enum { CPU_ROUND_READ = 10 };

/*
 * Return the rounds for sums over @k terms, which are added in blocks of @block. A unit has @m
 * times @n sums. Each term takes @factor times as long as a float32 term.
 */
static inline uint32_t cpu_rounds(size_t k, size_t block, size_t m, size_t n, double factor)
{
	const double each_term = factor * (double)(m * n + CPU_ROUND_READ * (m + n));
	const double most = CPU_ROUND_TERMS / (each_term * (double)block);
	const size_t n_blocks = div_up(k, block);
	const size_t each = most < 1 ? 1 : most < (double)n_blocks ? (size_t)most : n_blocks;

	return n_blocks > each ? (uint32_t)div_up(n_blocks, each) : 1;
}

/*
 * Return the terms that the frame's round adds. No round is empty if cpu_rounds() computed
 * n_rounds.
 */
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
 * Conversions of float16 (run-half-hot.c), whose argument is a struct cpu_extent in elements, and
 * copies (run-reduce-hot.c), whose argument is a struct cpu_extent in bytes. All three use
 * cpu_units_elems().
 */
cpu_run_fn cpu_run_half_load, cpu_run_half_store, cpu_run_copy;
cpu_units_fn cpu_units_elems;
