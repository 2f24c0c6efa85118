#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compiled plans. Private to broker/cpu.
 *
 * A plan is compiled into a flat array of steps, each a function and its arguments. Running the
 * plan is a loop over indirect calls: no operator lookup, no shape inference, and each step holds
 * its level's kernel table. Only two things vary per task: the addresses of its bindings, which the
 * frame holds, and its count.
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "plan/plan.h"
#include "shm/number.h"

struct cpu_executor;
struct cpu_pack;

/* Bases of addresses: absolute (constants), the scratch block, then the bindings. */
enum { CPU_BASE_ABSOLUTE, CPU_BASE_SCRATCH, CPU_BASE_BINDING, CPU_MAX_BASES = 2 + RBK_MAX_REFS };

struct cpu_frame {
	uintptr_t base[CPU_MAX_BASES];
	uint32_t count;
	/* current round and number of rounds; 0 or 1 rounds: all of the step. See cpu_rounds_fn. */
	uint32_t round, n_rounds;
	/* Set by a step that finds an index out of range; all steps are completed anyway. */
	_Atomic bool *is_out_of_range;
};

/* Maximum operands of one step: a node with more is compiled into several steps. */
enum { CPU_MAX_IN = 9, CPU_MAX_OUT = 4 };

/* The address of a tensor. */
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

/* Per-thread resources of the steps that the thread computes. */
struct cpu_context {
	void *workspace;         /* CPU_WORKSPACE_BYTES, not shared */
	struct cpu_pause *pause; /* NULL: kernels do not poll */
};

/* Compute units [begin, end); @end may exceed the number of units. */
typedef void cpu_run_fn(const struct cpu_step *step, const struct cpu_frame *frame, size_t begin,
			size_t end, const struct cpu_context *context);
typedef size_t cpu_units_fn(const struct cpu_step *step, uint32_t count);
/*
 * Return the rounds of a step whose units would take too long because their sums are long: each
 * round adds some of the terms of every unit. Rounds run in order, and each computes all units. The
 * results have the same bits for every number of rounds.
 */
typedef uint32_t cpu_rounds_fn(const struct cpu_step *step, uint32_t count);

/* The run functions of an operator's steps at a level, where the kernels' file defines them. */
struct cpu_routine {
	cpu_run_fn *run;
	cpu_units_fn *units;
};

/*
 * Size of a step's arguments, whose type only the operator's compiler and run functions know: see
 * cpu_step_args(), compile_args(). CPU_STEP_HOLDS() checks that a type fits.
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
	struct cpu_activation activation; /* kernel NULL: none */
	bool looks; /* the kernel polls often enough, however many units a call computes */
	alignas(uint64_t) unsigned char args[CPU_STEP_ARGS_BYTES];
	/*
	 * Estimated time on one thread in ns, fixed and per row. Multiplied by the plan's pace it
	 * decides how the step is cut and shared, see share-hot.c.
	 */
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
	double cost_fixed_ns, cost_row_ns; /* of all steps */
	_Atomic float pace; /* measured times by their estimates; 0: none measured yet */
	uint32_t n_packs;   /* packs of the plan, without duplicates */
	/* compile_overhead_ns() of a task of count 1, and of the largest count */
	double overhead_one_ns, overhead_max_ns;
	struct cpu_step *steps;
	struct cpu_pack **packs;
	/* packs not filled at compile time; the first n_filled of them are filled now */
	uint32_t n_fills, n_filled;
	struct cpu_fill *fills; /* until the plan is prepared */
	/* bytes of the steps' own scratch, which follows the plan's scratch tensors in a block */
	uint64_t work_bytes;
	struct compiler *compiler; /* during compilation only */
	bool has_failed;           /* out of memory: the plan is being abandoned */
	/*
	 * One block for each worker i (block i), one for the task that the reactor runs itself
	 * (block n_workers), one for the inline caller, and one for an urgent task that preempts a
	 * task of the same plan on one stack. n_spare more blocks serve stopped tasks, which keep
	 * the block they began with. At most n_spare tasks may be stopped at a time, so each worker
	 * and the reactor always find a free block.
	 */
	uint8_t *scratch;
	struct cpu_block *blocks; /* NULL: without scratch */
	unsigned int n_blocks, n_spare;
	_Atomic uint32_t n_stopped; /* stopped tasks, each of which keeps a block */
	size_t scratch_stride;
	size_t scratch_map_bytes;
};

/* Return the factor of the plan's estimates. */
static inline double cpu_plan_pace(const struct cpu_plan *plan)
{
	const float pace = atomic_load_explicit(&plan->pace, memory_order_relaxed);

	return pace > 0 ? (double)pace : 1;
}

/* The state of a block of a plan's scratch. The inline caller's block is never marked. */
struct cpu_block {
	alignas(64) _Atomic bool is_taken;
};

/* Return the offset in a block where the plan's own scratch ends and the steps' scratch begins. */
static inline uint64_t cpu_work_offset(const struct plan *plan)
{
	return round_up(plan->scratch_bytes, PLAN_SCRATCH_ALIGN);
}

/*
 * compile.c: Compile some more of the nodes. Constants to be packed are only noted; cpu_fill()
 * allocates their memory afterwards. The caller frees the results even on failure. Return: 0, all
 * nodes are compiled; EXECUTOR_E_MORE; -ENOMEM.
 */
int cpu_compile(struct cpu_executor *executor, const struct plan *plan, struct cpu_plan *compiled);
/* Free the temporary memory of compilation, also if it is unfinished or was not begun. */
void cpu_compile_deinit(struct cpu_plan *compiled);
/*
 * compile-fill.c: Pack some more of the constants. Return: 0, all are packed; EXECUTOR_E_MORE;
 * -ENOMEM.
 */
int cpu_fill(struct cpu_executor *executor, struct cpu_plan *compiled);
/* Return the temporary memory, in bytes, that cpu_fill() takes beside the packs. */
uint64_t cpu_fill_bytes(const struct cpu_plan *compiled);
/*
 * Free a part of the temporary conversion of a form whose packing is being abandoned. Return: true
 * if some is left.
 */
bool cpu_fill_shrink(struct cpu_executor *executor, struct cpu_plan *compiled);
/* Discard the constants still to be packed. */
void cpu_fill_deinit(struct cpu_executor *executor, struct cpu_plan *compiled);
