#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compiled plans. Private to broker/cpu.
 *
 * A plan becomes a flat array of steps, each a function and what it needs, so that running one is a
 * loop over indirect calls: no table is consulted and no shape inferred again. Two things are only
 * known per task: the addresses of what it binds, kept in a frame, and its count.
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/int8.h"
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
	/* The round that is computed, of how many; 0 or 1: all of the step. See cpu_rounds_fn. */
	uint32_t round, n_rounds;
	/* Set by whoever finds an index out of range; all steps are computed to the end anyway. */
	_Atomic bool *is_out_of_range;
};

/* Operands of one step: a node with more becomes several steps. */
enum { CPU_MAX_IN = 9, CPU_MAX_OUT = 4 };

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
/*
 * Rounds of a step whose units would take too long: sums over so much that a part of each unit's
 * terms is added in each round. Every round computes all units, and follows the one before it. The
 * results are the same bits for every number of rounds.
 */
typedef uint32_t cpu_rounds_fn(const struct cpu_step *step, uint32_t count);

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

/*
 * What works element by element: only extent[0] may depend on the count; without outer dimensions,
 * inner may.
 */
enum { CPU_MAP_MAX_IN = 3 };
struct cpu_step_map {
	cpu_map_fn *kernel;
	union {
		float f[2];
		double d[2];
		int64_t i[2];
	};
	uint8_t n_in;
	uint8_t in_bytes[CPU_MAP_MAX_IN], out_bytes; /* of an element */
	uint8_t step[CPU_MAP_MAX_IN];                /* along inner: 0 or 1 */
	bool halves;     /* operands are float16, the kernel's float32 */
	bool halves_out; /* and so is the result */
	size_t pause;    /* elements of a row between two looks for others */
	struct cpu_extent inner;
	unsigned int n_outer;
	struct cpu_extent extent[CPU_MAX_DIMS];
	size_t stride[CPU_MAP_MAX_IN][CPU_MAX_DIMS]; /* in bytes */
};

struct cpu_step_columns {
	struct cpu_extent outer, len, inner;
	enum cpu_type type;
	size_t k;                /* TopK */
	bool largest;            /* TopK; ArgMax: not the smallest */
	bool last;               /* ArgMax */
	bool log;                /* Softmax */
	bool exclusive, reverse; /* CumSum */
	bool l1;                 /* LpNormalization */
};

struct cpu_step_reduce {
	struct cpu_reduce args;         /* pointers unset, extents at count 1 */
	bool count_kept, count_reduced; /* the first of which is to be multiplied by the count */
};

/* Pointers and what may depend on the count are unset in the arguments, here and below. */
struct cpu_step_norm {
	struct cpu_norm args; /* run 0: all of a row */
	struct cpu_extent rows, len;
};

struct cpu_step_batch_norm {
	struct cpu_batch_norm args;
	struct cpu_extent batch;
};

struct cpu_step_rotary {
	struct cpu_rotary args;
	struct cpu_extent batch;
};

struct cpu_step_attention {
	struct cpu_attention args;
	struct cpu_extent batch;
};

/* Attention's present keys or values: input 0, if there is one, and input 1 behind it, by heads. */
struct cpu_step_present {
	struct cpu_extent batch;
	size_t heads, past, seq, size;
	size_t head_stride, row_stride; /* of input 1 */
};

struct cpu_step_move {
	struct cpu_move args;
	bool dynamic; /* extent[dynamic_dim] is to be multiplied by the count */
	unsigned int dynamic_dim;
	bool is_value;               /* what is moved: the value below, not input 0 */
	uint64_t value;              /* the element's bits, as often as they fit in */
	size_t from_first, to_first; /* in bytes */
};

/* Gather, GatherND: pointers unset, here and below. */
struct cpu_step_gather {
	struct cpu_gather args;
	struct cpu_extent outer, rows;
};

/* GatherElements, ScatterElements: with count_outer extent[0] is to be multiplied by the count. */
struct cpu_step_elements {
	struct cpu_elements args;
	cpu_elements_fn *kernel;
	struct cpu_extent len;
	bool count_outer;
};

struct cpu_step_scatter_nd {
	struct cpu_scatter_nd args;
	cpu_scatter_nd_fn *kernel;
	struct cpu_extent rows;
};

struct cpu_step_one_hot {
	struct cpu_one_hot args;
	struct cpu_extent outer;
};

struct cpu_step_trilu {
	struct cpu_trilu args;
	struct cpu_extent batch, rows; /* only one of them may depend on the count */
};

struct cpu_step_window {
	struct cpu_window args;
	struct cpu_extent batch;
	bool weights_are_packed;
	bool is_last; /* pictures have their channels last: Conv, MaxPool, AveragePool */
	union {
		void (*pool)(const struct cpu_window *args, size_t begin, size_t end);
		void (*pool_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end);
	};
	enum cpu_type type;   /* MaxPool of any */
	bool is_column_major; /* likewise */
};

/* Where the operands of a product or convolution of eight-bit numbers stand in cpu_step.in. */
enum cpu_integer_in {
	CPU_INTEGER_A,
	CPU_INTEGER_B, /* a convolution's weights */
	CPU_INTEGER_A_ZERO,
	CPU_INTEGER_B_ZERO,
	CPU_INTEGER_A_SCALE,
	CPU_INTEGER_B_SCALE,
	CPU_INTEGER_Y_SCALE,
	CPU_INTEGER_Y_ZERO,
	CPU_INTEGER_BIAS,
};

/* What products and convolutions of eight-bit numbers have beside their shapes. */
struct cpu_integer {
	const struct cpu_int8_kernels *kernels;
	bool a_signed, b_signed, y_signed;
	bool a_zero_each, b_zero_each, a_scale_each, b_scale_each;
	bool requantizes;
};

/* MatMulInteger, QLinearMatMul. */
struct cpu_step_integer {
	struct cpu_step_gemm gemm; /* in front: see cpu_units_gemm() */
	struct cpu_integer of;
};

/* ConvInteger, QLinearConv. */
struct cpu_step_integer_conv {
	struct cpu_window args; /* extents */
	struct cpu_extent batch;
	struct cpu_integer of;
};

/* QuantizeLinear, DequantizeLinear: only one of the extents may depend on the count. */
struct cpu_step_quantize {
	const struct cpu_int8_kernels *kernels;
	struct cpu_quantize args; /* strides, type */
	struct cpu_extent outer, axis, inner;
};

/* DynamicQuantizeLinear: out[3] is where its ranges are. */
struct cpu_step_ranges {
	const struct cpu_int8_kernels *kernels;
	struct cpu_extent n;
};

/* MatMulNBits */
struct cpu_step_nbits {
	struct cpu_step_gemm gemm; /* in front, as above */
	struct cpu_nbits_weights weights;
	bool zeros_are_floats;
};

struct cpu_step {
	cpu_run_fn *run;
	cpu_units_fn *units;
	cpu_rounds_fn *rounds; /* NULL: always one */
	const struct cpu_kernels *kernels;
	struct cpu_operand out[CPU_MAX_OUT], in[CPU_MAX_IN];
	struct cpu_activation activation; /* kernel: NULL: none */
	bool looks; /* for others often enough, however many units it is given at once */
	union {
		struct cpu_step_gemm gemm;
		struct cpu_step_map map;
		struct cpu_step_columns columns;
		struct cpu_step_reduce reduce;
		struct cpu_step_norm norm;
		struct cpu_step_batch_norm batch_norm;
		struct cpu_step_rotary rotary;
		struct cpu_step_attention attention;
		struct cpu_step_present present;
		struct cpu_step_move move;
		struct cpu_step_window window;
		struct cpu_step_integer integer;
		struct cpu_step_integer_conv integer_conv;
		struct cpu_step_quantize quantize;
		struct cpu_step_ranges ranges;
		struct cpu_step_nbits nbits;
		struct cpu_step_gather gather;
		struct cpu_step_elements elements;
		struct cpu_step_scatter_nd scatter_nd;
		struct cpu_step_one_hot one_hot;
		struct cpu_step_trilu trilu;
		struct cpu_extent n; /* conversions of float16 */
	};
	/* What it may take on one thread, in ns: decides whether others are asked to help. */
	double cost_fixed_ns, cost_row_ns;
};

struct cpu_fill;

struct cpu_plan {
	uint16_t n_bindings;
	uint32_t n_steps;
	uint32_t n_packs; /* each once */
	/* compile_overhead_ns() of tasks of count 1, and of the largest count. */
	double overhead_one_ns, overhead_max_ns;
	struct cpu_step *steps;
	struct cpu_pack **packs;
	/* packs not filled at compile time; how many of them, from the first, are filled now */
	uint32_t n_fills, n_filled;
	struct cpu_fill *fills; /* until it is prepared */
	/* What steps need beside the plan's scratch tensors, behind them in the block. */
	uint64_t work_bytes;
	struct compiler *compiler; /* while it is compiled */
	bool has_failed;           /* for lack of memory: it is being given up */
	/*
	 * Block i is meant for worker i, then come the inline caller's, one for whoever
	 * runs the plan a second time on one stack, and n_spare for tasks that were stopped before
	 * their end, which keep the block that they have begun with. So many may be stopped at a
	 * time, and then each worker still finds a free block.
	 */
	uint8_t *scratch;
	struct cpu_block *blocks; /* NULL: without scratch */
	unsigned int n_blocks, n_spare;
	_Atomic uint32_t n_stopped; /* tasks that keep a block and do not run */
	size_t scratch_stride;
	size_t scratch_map_bytes;
};

/* A block of a plan's scratch; the inline caller has one of its own, which is never marked. */
struct cpu_block {
	alignas(64) _Atomic bool is_taken;
};

/* Where a plan's own scratch ends and the steps' begins. */
static inline uint64_t cpu_work_offset(const struct plan *plan)
{
	return (plan->scratch_bytes + PLAN_SCRATCH_ALIGN - 1) & ~(uint64_t)(PLAN_SCRATCH_ALIGN - 1);
}

/*
 * compile.c: translates some more of the nodes. What is constant is to be packed by cpu_fill()
 * afterwards, which is the first to take memory for it. The caller frees what is there even on
 * failure. Return: 0, all are; EXECUTOR_E_MORE; -ENOMEM.
 */
int cpu_compile(struct cpu_executor *executor, const struct plan *plan, struct cpu_plan *compiled);
/* Frees what compiling takes beside its results, also if it is not done or was not begun. */
void cpu_compile_deinit(struct cpu_plan *compiled);
/* compile-fill.c: packs some more. Return: 0, all is; EXECUTOR_E_MORE; -ENOMEM. */
int cpu_fill(struct cpu_executor *executor, struct cpu_plan *compiled);
/* Compute the temporary memory, in bytes, that cpu_fill() takes beside the packs. */
uint64_t cpu_fill_bytes(const struct cpu_plan *compiled);
/*
 * Frees a part of what a form was converted to that is being packed, which is not to go on. Return:
 * true if some is left.
 */
bool cpu_fill_shrink(struct cpu_executor *executor, struct cpu_plan *compiled);
/* Forgets what was to be packed. */
void cpu_fill_deinit(struct cpu_executor *executor, struct cpu_plan *compiled);
