#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compiled plans. Private to broker/cpu.
 *
 * A plan becomes a flat array of steps, each a function and what it needs, so that running one is a
 * loop over indirect calls: no table is consulted and no shape inferred again. Two things are only
 * known per task: the addresses of what it binds, kept in a frame, and its count.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "plan/plan.h"

struct cpu_executor;
struct cpu_pack;

/* A number of elements: fixed + row * count; one of the two is 0. */
struct cpu_extent {
	size_t fixed, row;
};

static inline size_t cpu_extent_at(const struct cpu_extent *extent, uint32_t count)
{
	return extent->fixed + extent->row * count;
}

/* Bases of addresses: constants are absolute, then the scratch block, then the bindings. */
enum { CPU_BASE_ABSOLUTE, CPU_BASE_SCRATCH, CPU_BASE_BINDING, CPU_MAX_BASES = 2 + RBK_MAX_REFS };

struct cpu_frame {
	uintptr_t base[CPU_MAX_BASES];
	uint32_t count;
};

/* Where a tensor is. */
struct cpu_operand {
	uintptr_t offset;
	uint16_t base; /* index into cpu_frame.base */
	bool present;
};

static inline void *cpu_operand_at(const struct cpu_operand *operand, const struct cpu_frame *frame)
{
	return (void *)(frame->base[operand->base] + operand->offset);
}

struct cpu_step;

/* What a thread brings to the steps that it computes. */
struct cpu_context {
	void *workspace;         /* CPU_WORKSPACE_BYTES, its own */
	struct cpu_pause *pause; /* NULL: nobody gets in between */
};

/* Computes units [begin, end); an @end beyond the last is fine. */
typedef void cpu_run_fn(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context);
typedef size_t cpu_units_fn(const struct cpu_step *step, uint32_t count);

/* MatMul and Gemm: batches of matrices. Batch strides count matrices. */
struct cpu_step_gemm {
	struct cpu_extent m, n;
	size_t k;
	size_t a_matrix, b_matrix; /* elements of one matrix, in the form that is read */
	bool b_is_packed;
	/* Strides of a row and a column; a row of a transposed a is 1 apart, a column m. */
	bool trans_a, trans_b;
	size_t c_rs, c_cs;
	float alpha, beta;
	unsigned int n_batch;
	struct cpu_extent batch[CPU_MAX_DIMS];
	size_t a_batch[CPU_MAX_DIMS], b_batch[CPU_MAX_DIMS];
};

/* Add, Mul: only extent[0] may depend on the count; without outer dimensions, inner may. */
struct cpu_step_binary {
	struct cpu_extent inner;
	size_t a_step, b_step;
	unsigned int n_outer;
	struct cpu_extent extent[CPU_MAX_DIMS];
	size_t a_stride[CPU_MAX_DIMS], b_stride[CPU_MAX_DIMS];
};

struct cpu_step_columns {
	struct cpu_extent outer, len, inner;
	size_t k;
	bool largest;
};

struct cpu_step_reduce {
	struct cpu_reduce args;         /* pointers unset, extents at count 1 */
	bool count_kept, count_reduced; /* the first of which is to be multiplied by the count */
};

struct cpu_step_transpose {
	struct cpu_transpose args;
	bool dynamic; /* extent[0] is to be multiplied by the count */
};

struct cpu_step_window {
	struct cpu_window args;
	struct cpu_extent batch;
	bool weights_are_packed;
};

struct cpu_step {
	cpu_run_fn *run;
	cpu_units_fn *units;
	const struct cpu_kernels *kernels;
	struct cpu_operand in[3], out[2];
	bool looks; /* for others often enough, however many units it is given at once */
	union {
		struct cpu_step_gemm gemm;
		struct cpu_step_binary binary;
		struct cpu_step_columns columns;
		struct cpu_step_reduce reduce;
		struct cpu_step_transpose transpose;
		struct cpu_step_window window;
		struct cpu_extent n; /* Relu */
	};
	/* What it may take on one thread, in ns: decides whether others are asked to help. */
	double cost_fixed_ns, cost_row_ns;
};

struct cpu_plan {
	uint16_t n_bindings;
	uint16_t n_steps;
	uint16_t n_packs;
	struct cpu_step *steps;
	struct cpu_pack **packs;
	/*
	 * A mapping: block i is worker i's, then come the inline caller's and one for whoever runs
	 * the plan a second time on one stack.
	 */
	uint8_t *scratch;
	_Atomic bool second_taken; /* that last block */
	size_t scratch_stride;
	size_t scratch_map_bytes;
};

/*
 * compile.c: translates the nodes; packs what is constant. The caller frees what is there even on
 * failure. Return: 0, -ENOMEM.
 */
int cpu_compile(struct cpu_executor *executor, const struct plan *plan, struct cpu_plan *compiled);

/* run-hot.c: one per operator. */
cpu_run_fn cpu_run_gemm, cpu_run_add_flat, cpu_run_mul_flat, cpu_run_add, cpu_run_mul, cpu_run_relu,
	cpu_run_softmax, cpu_run_reduce, cpu_run_transpose, cpu_run_conv, cpu_run_max_pool,
	cpu_run_top_k;
cpu_units_fn cpu_units_gemm, cpu_units_flat, cpu_units_broadcast, cpu_units_relu, cpu_units_softmax,
	cpu_units_reduce, cpu_units_transpose, cpu_units_conv, cpu_units_max_pool, cpu_units_top_k;
