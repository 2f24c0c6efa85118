#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compiled plans. Private to broker/cpu.
 *
 * A plan becomes a flat array of steps, each a function and what it needs, so that running one is a
 * loop over indirect calls: no operator is looked up and no shape inferred again, and a step has
 * the table of its level's kernels at hand. Two things are only known per task: the addresses of
 * what it binds, kept in a frame, and its count.
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "plan/plan.h"

struct cpu_executor;
struct cpu_pack;

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

/* The functions that run an operator's steps at a level, if the kernels' file says so. */
struct cpu_routine {
	cpu_run_fn *run;
	cpu_units_fn *units;
};

/*
 * Arguments of a step, of a type that the operator's compiler and its run functions alone know: see
 * cpu_step_args(), compile_args(). CPU_STEP_HOLDS() checks that there is room for such a type.
 */
enum { CPU_STEP_ARGS_BYTES = 464 };
#define CPU_STEP_HOLDS(type) \
	_Static_assert(sizeof(type) <= CPU_STEP_ARGS_BYTES, "a step holds the arguments")

struct cpu_step {
	cpu_run_fn *run;
	cpu_units_fn *units;
	cpu_rounds_fn *rounds; /* NULL: always one */
	const struct cpu_kernels *kernels;
	struct cpu_operand out[CPU_MAX_OUT], in[CPU_MAX_IN];
	struct cpu_activation activation; /* kernel: NULL: none */
	bool looks; /* for others often enough, however many units it is given at once */
	alignas(uint64_t) unsigned char args[CPU_STEP_ARGS_BYTES];
	/* What it may take on one thread, in ns: decides whether others are asked to help. */
	double cost_fixed_ns, cost_row_ns;
};

static inline const void *cpu_step_args(const struct cpu_step *step)
{
	return step->args;
}

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
