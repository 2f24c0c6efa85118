#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the compilers of the operators share. Private to broker/cpu; setup thread only.
 *
 * Shapes are turned into the few numbers that a kernel wants, once. The only thing that varies per
 * task is the count, and it can only be a leading dimension: so of the loops of an operator at most
 * the outermost depends on it, and every stride is known when the plan is prepared.
 */
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu/int8.h"
#include "cpu/layout.h"
#include "cpu/run.h"
#include "cpu/step.h"
#include "plan/plan.h"
#include "shm/dtype.h"

/* Of products and windows of float64: half as many elements lie in a register. */
#define COMPILE_DOUBLE_SPEED_UP 0.5

/* One thread does so much in a nanosecond, roughly and rather too little. */
#define COMPILE_FLOPS_PER_NS 40.0
#define COMPILE_BYTES_PER_NS 8.0

struct cpu_step_gemm;

struct compiler {
	struct cpu_executor *cpu;
	const struct plan *plan;
	struct cpu_plan *compiled;
	const struct node *node;
	const struct cpu_op *op; /* the node's */
	/*
	 * To be filled; kernels and operands are there: the node's, the first ones in order. Moves
	 * when another step is added.
	 */
	struct cpu_step *step;

	uint32_t max_steps, max_packs, max_fills; /* that there is room for */
	uint64_t number;                          /* of this compilation */
	uint32_t next_node;
	uint32_t n_made;              /* packs, by this compilation */
	uint64_t work_used, work_max; /* of the node's own scratch */
	double speed_up;              /* of the node's operations, beside those of float32 */

	/* What stands for the node's operands, if present: converted for its steps alone. */
	struct cpu_operand stand_in[OP_MAX_INPUTS], stand_out[OP_MAX_OUTPUTS];
	/* Of a node that computes in float32 what is float16. */
	bool is_half;
	/* Where its float16 constants are, of which steps are told compile_half_address(); or 0. */
	uintptr_t half_constants[OP_MAX_INPUTS];

	struct cpu_layout layout;
	bool is_last; /* the node's pictures have their channels last */
};

enum pack_form {
	PACK_MATRIX = 1,
	PACK_CONV,
	PACK_CONV_LAST,
	PACK_CONV_STRIPS, /* the same where cpu_conv_last_strips() */
	PACK_CONV_TRANSPOSE,
	PACK_INTEGER,
	PACK_INTEGER_CONV,
	PACK_NBITS,
	PACK_FLOATS
};

/*
 * Progress of filling a packed form, one part at a time. The form is filled after the whole plan
 * was compiled and charged. Until then each source is given by its present or future address.
 */
enum { FILL_SOURCES = 3 };
struct cpu_fill {
	struct cpu_pack *pack;
	const struct cpu_kernels *kernels;
	/*
	 * Pack part @number of the form, counted from 0. Plans with the same key may continue each
	 * other's packs. Return: true if more parts remain.
	 */
	bool (*part)(const struct cpu_fill *fill, uint64_t number);
	const void *from[FILL_SOURCES]; /* NULL: absent; a converted one is there for part() */
	struct {
		const uint16_t *from; /* what from[i] is converted of; NULL: nothing */
		uint64_t n, n_done;
		size_t map_bytes;
	} half[FILL_SOURCES];
	/* Arguments of part(), of a type that it and the operator's compiler alone know. */
	alignas(uint64_t) unsigned char args[CPU_STEP_ARGS_BYTES];
};

/*
 * compile-half.c: float16. Kernels are for float32, except those that only move elements: of all
 * other nodes float16 inputs are converted in front of its steps and outputs behind them, constants
 * once. compile_half_begin() before the node is compiled, compile_half_end() afterwards, and in any
 * case compile_half_deinit(). Return: 0, -ENOMEM.
 */
int compile_half_begin(struct compiler *c);
int compile_half_end(struct compiler *c, uint32_t first_step);
void compile_half_deinit(struct compiler *c);
/* Where constant input @i, converted, is said to lie. Nothing does. */
uintptr_t compile_half_address(unsigned int i);
/* cpu_op.takes_half of operators that always do: all that only move elements. */
static inline bool compile_half_as_it_is(const struct node *node)
{
	return true;
}

/*
 * compile-layout.c: converts pictures that do not lie as the node is computed, in front of its
 * steps and behind them. compile_layout_begin() before the node is compiled, compile_layout_end()
 * afterwards. Return: 0, -ENOMEM.
 */
int compile_layout_begin(struct compiler *c);
int compile_layout_end(struct compiler *c);
/* The shape of an operand of the node, of @rank dimensions, in the order in which it lies. */
struct shape compile_shape(const struct compiler *c, const struct tensor *tensor,
			   unsigned int rank);

/*
 * An operator, as this executor knows it: cpu_op_ROW for each of the catalogue's, in the file of
 * its family.
 */
struct cpu_op {
	/*
	 * Called with one step, fills it, adds others with compile_add() where the operator takes
	 * several, which run in that order, or takes it away with compile_drop(). Return: 0,
	 * -ENOMEM.
	 */
	int (*compile)(struct compiler *c);
	/* NULL, or: does it take float16 as it is? All others are given float32. */
	bool (*takes_half)(const struct node *node);
	/*
	 * Time that one unit of a step takes beside its arithmetic; that a row takes of the first
	 * input or output, whichever has more; that an element of the largest operand takes, in
	 * quarters. All 0: about as long as most. See compile-overhead.c.
	 */
	struct cpu_overhead {
		uint8_t unit_ns, row_ns, elem_quarter_ns;
	} overhead;
	/* NULL, or: can the node be computed with channels last? See layout.c. */
	bool (*may_be_last)(const struct plan *plan, const struct node *node);
	/* NULL: nothing, or: the time that such a node takes less then, in nanoseconds. */
	double (*last_gain_ns)(const struct plan *plan, const struct node *node);
};

#define CPU_OP_NAME(KIND, row, ...) cpu_op_##row
extern const struct cpu_op OP_LIST(CPU_OP_NAME);
/* op.c */
const struct cpu_op *cpu_op_of(enum op_kind kind);

/* Has the step compute @node, too, which is an activation of the node's. */
void compile_activation(struct compiler *c, const struct node *node);

/*
 * Fills the shape of a product, zeroed before. With @rows_apart batches are kept even where they
 * only mean more rows. Return: they only do, and there is one matrix.
 */
bool compile_product(struct cpu_step_gemm *step, const struct shape *a, const struct shape *b,
		     bool rows_apart);
/* What a sliding window's arguments are, and its batch. */
void compile_window(const struct shape *x, const struct shape *y, const union op_params *params,
		    struct cpu_window *args, struct cpu_extent *batch);

/*
 * Adds a step behind those that the node has, with the node's operands; c->step is it from now on.
 * Return: 0, -ENOMEM.
 */
int compile_add(struct compiler *c);
/* Likewise one that only makes @to of @from, which touches so many bytes of each. */
int compile_add_conversion(struct compiler *c, struct cpu_operand from, struct cpu_operand to,
			   uint64_t fixed_bytes, uint64_t row_bytes);
/* Takes the last step away. */
void compile_drop(struct compiler *c);

/*
 * The arguments of the step, 0 before they are filled. They move with the step: see compile_add().
 */
static inline void *compile_args(struct compiler *c)
{
	return c->step->args;
}

static inline void compile_run(struct compiler *c, const struct cpu_routine *routine)
{
	c->step->run = routine->run;
	c->step->units = routine->units;
}

/*
 * An operator that nothing else shares code with is in one file, NAME-hot.c: its arguments, its
 * kernel and the functions that run it, with CPU_FN(name), a struct cpu_routine, for each level;
 * and, for all levels at once, where CPU_DESCRIBES is defined, its compiler and its struct cpu_op.
 * CPU_ROUTINES(name) declares name_routines, by level, which the compiler gives compile_level().
 */
#if defined(CPU_ONLY_AVX2)
#define CPU_ROUTINES(name)                                                            \
	extern const struct cpu_routine cpu_##name##_avx2;                            \
	static const struct cpu_routine *const name##_routines[] = {[CPU_SIMD_AVX2] = \
									    &cpu_##name##_avx2}
#elif defined(__x86_64__)
#define CPU_ROUTINES(name)                                                                         \
	extern const struct cpu_routine cpu_##name##_sse2, cpu_##name##_avx2, cpu_##name##_avx512; \
	static const struct cpu_routine *const name##_routines[] = {                               \
		[CPU_SIMD_SSE2] = &cpu_##name##_sse2,                                              \
		[CPU_SIMD_AVX2] = &cpu_##name##_avx2,                                              \
		[CPU_SIMD_AVX512] = &cpu_##name##_avx512,                                          \
	}
#else
#define CPU_ROUTINES(name)                                                            \
	extern const struct cpu_routine cpu_##name##_generic;                         \
	static const struct cpu_routine *const name##_routines[] = {[CPU_SIMD_SSE2] = \
									    &cpu_##name##_generic}
#endif

static inline void compile_level(struct compiler *c, const struct cpu_routine *const *routines)
{
	compile_run(c, routines[c->step->kernels->level]);
}

/* The node's operands beyond those that a step is given, or in another order; may be absent. */
struct cpu_operand compile_in(const struct compiler *c, unsigned int i);
struct cpu_operand compile_out(const struct compiler *c, unsigned int i);
/* Likewise by what it is, an input if it is both; NULL: absent. */
struct cpu_operand compile_operand(const struct compiler *c, const struct tensor *tensor);

/*
 * Scratch of the node's own: @bytes, at max_count, for the node's steps alone. All together must be
 * within c->work_max: node->work_bytes, which the row's work() tells, and what was added.
 */
struct cpu_operand compile_work(struct compiler *c, uint64_t bytes);

/*
 * Finds or makes the packed form of constant input @i and points that operand of the step at it;
 * the second leaves the step alone. *ret is how it comes about, to be completed: part(), its
 * arguments, and sources by compile_fill_from(); NULL if the packed form is filled already, or
 * another node of the plan has it filled. *ret is the caller's until the next one is asked for.
 * Return: 0; -ENOMEM.
 */
int compile_pack(struct compiler *c, unsigned int i, enum pack_form form, const uint64_t *params,
		 unsigned int n_params, size_t floats, struct cpu_fill **ret);

int compile_pack_constant(struct compiler *c, const struct plan_constant *constant,
			  enum pack_form form, const uint64_t *params, unsigned int n_params,
			  size_t floats, struct cpu_pack **ret_pack, struct cpu_fill **ret);

/* Source @source of @fill is what the step was told lies at @address; 0: it is absent. */
void compile_fill_from(const struct compiler *c, struct cpu_fill *fill, unsigned int source,
		       uintptr_t address);

/*
 * compile-overhead.c: estimates what the node's steps, from that one on, take for a task of that
 * count beside flops and bytes.
 */
double compile_overhead_ns(const struct compiler *c, uint32_t first_step, uint32_t count);

/* Does the node compute with float64? */
static inline bool node_is_double(const struct compiler *c)
{
	return c->plan->tensors[c->node->in[0]].dtype == RBK_DTYPE_F64;
}

/* Return: the tensor, NULL if absent. */
static inline const struct tensor *node_in(const struct compiler *c, unsigned int i)
{
	if (i >= c->node->n_in || c->node->in[i] == PLAN_NO_TENSOR)
		return NULL;
	return &c->plan->tensors[c->node->in[i]];
}

static inline const struct tensor *node_out(const struct compiler *c, unsigned int i)
{
	if (i >= c->node->n_out || c->node->out[i] == PLAN_NO_TENSOR)
		return NULL;
	return &c->plan->tensors[c->node->out[i]];
}

/* What kernels that know only floats see of it: float16 is float32 for them. */
static inline enum cpu_type node_float_type(const struct tensor *tensor)
{
	return tensor->dtype == RBK_DTYPE_F64 ? CPU_F64 : CPU_F32;
}

/* The indices in @tensor, for the kernels that go by indices. */
static inline struct cpu_indices node_indices(const struct tensor *tensor)
{
	return (struct cpu_indices){.wide = tensor->dtype == RBK_DTYPE_I64};
}

/* Is it known when the plan is prepared? */
static inline bool node_in_is_constant(const struct compiler *c, unsigned int i)
{
	const struct tensor *in = node_in(c, i);

	return in && c->plan->tensors[in->root].kind == RBK_TENSOR_CONSTANT;
}

/* Which of the plan's constants it is, if it is one. */
static inline uint16_t node_constant(const struct compiler *c, unsigned int i)
{
	return c->plan->tensors[node_in(c, i)->root].constant;
}

/* Dimension @i of a shape, which is aligned at the end with one of @rank dimensions. */
static inline struct cpu_extent extent_aligned(const struct shape *shape, unsigned int rank,
					       unsigned int i)
{
	const unsigned int missing = rank - shape->rank;

	if (i < missing)
		return (struct cpu_extent){.fixed = 1};
	if (i == missing && shape->dynamic)
		return (struct cpu_extent){.row = 1};
	return (struct cpu_extent){.fixed = shape->dims[i - missing]};
}

static inline bool extent_is_one(struct cpu_extent extent)
{
	return extent.row == 0 && extent.fixed == 1;
}

/* One of the two does not depend on the count. */
static inline struct cpu_extent extent_mul(struct cpu_extent a, struct cpu_extent b)
{
	if (b.row)
		return (struct cpu_extent){.row = b.row * a.fixed};
	return (struct cpu_extent){.fixed = a.fixed * b.fixed, .row = a.row * b.fixed};
}

/* Product of dimensions [from, to). */
static inline struct cpu_extent extent_range(const struct shape *shape, unsigned int from,
					     unsigned int to)
{
	struct cpu_extent product = {.fixed = 1};

	for (unsigned int i = from; i < to; i++)
		product = extent_mul(product, extent_aligned(shape, shape->rank, i));
	return product;
}

/* Elements below dimension @i: the stride along it. Never depends on the count. */
static inline size_t shape_stride(const struct shape *shape, unsigned int i)
{
	size_t stride = 1;

	while (++i < shape->rank)
		stride *= shape->dims[i];
	return stride;
}

/* Stride along aligned dimension @i of @rank, 0 where it repeats. */
static inline size_t stride_aligned(const struct shape *shape, unsigned int rank, unsigned int i)
{
	if (extent_is_one(extent_aligned(shape, rank, i)))
		return 0;
	return shape_stride(shape, i - (rank - shape->rank));
}
