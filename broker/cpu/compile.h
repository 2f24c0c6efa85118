#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Declarations shared by the operators' compilers. Private to broker/cpu; setup thread only.
 *
 * A compiler reduces shapes to the few numbers that a kernel takes, once per plan. Only the count
 * varies per task, and it can only be a leading dimension. So at most the outermost loop of an
 * operator depends on the count, and every stride is known when the plan is prepared.
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

/* Relative speed of float64 products and windows: a register holds half as many elements. */
#define COMPILE_DOUBLE_SPEED_UP 0.5

/* Throughput of one thread: rough, conservative estimates */
#define COMPILE_FLOPS_PER_NS 40.0
#define COMPILE_BYTES_PER_NS 8.0

struct cpu_step_gemm;

struct compiler {
	struct cpu_executor *cpu;
	const struct plan *plan;
	struct cpu_plan *compiled;
	const struct node *node;
	const struct cpu_op *op; /* the node's operator */
	/*
	 * The step to fill. Its kernels and operands are set: the node's first operands, in order.
	 * compile_add() may move the steps.
	 */
	struct cpu_step *step;

	uint32_t max_steps, max_packs, max_fills; /* capacities of the compiled arrays */
	uint64_t number;                          /* number of this compilation */
	uint32_t next_node;
	uint32_t n_made;              /* packs that this compilation made */
	uint64_t work_used, work_max; /* bytes of the node's own scratch */
	double speed_up;              /* the speed of the node's operations relative to float32 */

	/* Replacements of the node's operands, if present: converted for the node's steps alone */
	struct cpu_operand stand_in[OP_MAX_INPUTS], stand_out[OP_MAX_OUTPUTS];
	/* float16 operands are converted, and the node computes in float32 */
	bool is_half;
	/* Addresses of the node's float16 constants, or 0; steps get compile_half_address() */
	uintptr_t half_constants[OP_MAX_INPUTS];

	struct cpu_layout layout;
	bool is_last; /* the node's pictures have their channels last */
};

enum pack_form {
	PACK_MATRIX = 1,
	PACK_CONV,
	PACK_CONV_LAST,
	PACK_CONV_STRIPS, /* PACK_CONV_LAST where cpu_conv_last_strips() */
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
	const void *from[FILL_SOURCES]; /* NULL: absent; converted sources are ready for part() */
	struct {
		const uint16_t *from; /* float16 source of from[i]; NULL: no conversion */
		uint64_t n, n_done;
		size_t map_bytes;
	} half[FILL_SOURCES];
	/* Arguments of part(), of a type private to part() and the operator's compiler */
	alignas(uint64_t) unsigned char args[CPU_STEP_ARGS_BYTES];
};

/*
 * compile-half.c: float16. Kernels compute in float32, except those that only move elements. For
 * all other nodes, float16 inputs are converted before the node's steps and outputs after them;
 * constants are converted once. Call compile_half_begin() before the node is compiled,
 * compile_half_end() afterwards, and compile_half_deinit() in any case.
 * Return: 0, -ENOMEM.
 */
int compile_half_begin(struct compiler *c);
int compile_half_end(struct compiler *c, uint32_t first_step);
void compile_half_deinit(struct compiler *c);
/* Return the pretended address of converted constant input @i. No object has this address. */
uintptr_t compile_half_address(unsigned int i);
/* cpu_op.takes_half of operators that only move elements: always true. */
static inline bool compile_half_as_it_is(const struct node *node)
{
	return true;
}

/*
 * compile-layout.c: converts pictures that lie in another order than the node is computed in,
 * before its steps and after them. Call compile_layout_begin() before the node is compiled,
 * compile_layout_end() afterwards.
 * Return: 0, -ENOMEM.
 */
int compile_layout_begin(struct compiler *c);
int compile_layout_end(struct compiler *c);
/* Return the shape of an operand of the node, of @rank dimensions, in its order in memory. */
struct shape compile_shape(const struct compiler *c, const struct tensor *tensor,
			   unsigned int rank);

/*
 * An operator of this executor: cpu_op_ROW for each row of the catalogue, defined in the file of
 * its family.
 */
struct cpu_op {
	/*
	 * Fill the node's first step. If the operator takes several steps, add the others with
	 * compile_add(); they run in that order. Remove the step with compile_drop() if there is
	 * nothing to run.
	 * Return: 0, -ENOMEM.
	 */
	int (*compile)(struct compiler *c);
	/*
	 * Return true if the operator computes on float16 directly. NULL, or false: operands are
	 * converted to float32.
	 */
	bool (*takes_half)(const struct node *node);
	/*
	 * Time beside the arithmetic, per unit of a step, per row of the first input or output
	 * (whichever has more rows), and per element of the largest operand in quarters of a
	 * nanosecond. unit_ns 0: the default of compile-overhead.c.
	 */
	struct cpu_overhead {
		uint8_t unit_ns, row_ns, elem_quarter_ns;
	} overhead;
	/* Return true if the node can have channels last (layout.c). NULL: it cannot. */
	bool (*may_be_last)(const struct plan *plan, const struct node *node);
	/* Return the nanoseconds that channels last save for such a node. NULL: none. */
	double (*last_gain_ns)(const struct plan *plan, const struct node *node);
};

#define CPU_OP_NAME(KIND, row, ...) cpu_op_##row
extern const struct cpu_op OP_LIST(CPU_OP_NAME);
/* op.c */
const struct cpu_op *cpu_op_of(enum op_kind kind);

/* Fuse @node, an activation of the node's result, into the step. */
void compile_activation(struct compiler *c, const struct node *node);

/*
 * Fill the shape of a product, which the caller has zeroed. With @rows_apart, keep batches even
 * where they only mean more rows.
 * Return: true if batches only mean more rows and there is one matrix.
 */
bool compile_product(struct cpu_step_gemm *step, const struct shape *a, const struct shape *b,
		     bool rows_apart);
/* Fill the arguments of a sliding window, and its batch. */
void compile_window(const struct shape *x, const struct shape *y, const union op_params *params,
		    struct cpu_window *args, struct cpu_extent *batch);

/*
 * Add a step after the node's present steps, with the node's operands, and point c->step at it.
 * Return: 0, -ENOMEM.
 */
int compile_add(struct compiler *c);
/*
 * Add a step that only converts @from to @to and touches @fixed_bytes and, per row of the count,
 * @row_bytes of each.
 */
int compile_add_conversion(struct compiler *c, struct cpu_operand from, struct cpu_operand to,
			   uint64_t fixed_bytes, uint64_t row_bytes);
/* Remove the last step. */
void compile_drop(struct compiler *c);

/*
 * Return the step's arguments, which are 0 before they are filled. They move with the step: see
 * compile_add().
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
 * An operator that shares no code with others is in one file, NAME-hot.c. The file has its
 * arguments, its kernel and the functions that run it, with CPU_FN(name), a struct cpu_routine, for
 * each level. Where CPU_DESCRIBES is defined, the file also has the compiler and the struct cpu_op,
 * for all levels. CPU_ROUTINES(name) declares name_routines, indexed by level, which the compiler
 * passes to compile_level().
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

/*
 * Return input or output @i of the node, for operands that the step does not have or has in another
 * order; may be absent.
 */
struct cpu_operand compile_in(const struct compiler *c, unsigned int i);
struct cpu_operand compile_out(const struct compiler *c, unsigned int i);
/* Return the operand of @tensor, as an input if it is both input and output. NULL: absent. */
struct cpu_operand compile_operand(const struct compiler *c, const struct tensor *tensor);

/*
 * Return @bytes of scratch, at max_count, for the node's steps alone. The sum of all requests must
 * not exceed c->work_max: node->work_bytes from the row's work(), plus what conversions add.
 */
struct cpu_operand compile_work(struct compiler *c, uint64_t bytes);

/*
 * Find or create the packed form of constant input @i. compile_pack() points that operand of the
 * step at the form; compile_pack_constant() does not change the step. *ret is the form's struct
 * cpu_fill, in which the caller sets part(), its arguments, and sources by compile_fill_from(). It
 * is NULL if the form is filled already, or another node of the plan fills it. *ret is valid until
 * the next call.
 * Return: 0; -ENOMEM.
 */
int compile_pack(struct compiler *c, unsigned int i, enum pack_form form, const uint64_t *params,
		 unsigned int n_params, size_t floats, struct cpu_fill **ret);

int compile_pack_constant(struct compiler *c, const struct plan_constant *constant,
			  enum pack_form form, const uint64_t *params, unsigned int n_params,
			  size_t floats, struct cpu_pack **ret_pack, struct cpu_fill **ret);

/* Set source @source of @fill to the address that the step was told; 0: absent. */
void compile_fill_from(const struct compiler *c, struct cpu_fill *fill, unsigned int source,
		       uintptr_t address);

/*
 * compile-overhead.c: estimate the time that the node's steps from @first_step on take for a task
 * of @count rows, beside flops and bytes.
 */
double compile_overhead_ns(const struct compiler *c, uint32_t first_step, uint32_t count);

/* Return true if the node computes with float64. */
static inline bool node_is_double(const struct compiler *c)
{
	return c->plan->tensors[c->node->in[0]].dtype == RBK_DTYPE_F64;
}

/* Return the tensor; NULL if absent. */
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

/* Return the type that float kernels see. float16 is converted to float32 for them. */
static inline enum cpu_type node_float_type(const struct tensor *tensor)
{
	return tensor->dtype == RBK_DTYPE_F64 ? CPU_F64 : CPU_F32;
}

/* Return the type of the indices in @tensor, without their address. */
static inline struct cpu_indices node_indices(const struct tensor *tensor)
{
	return (struct cpu_indices){.wide = tensor->dtype == RBK_DTYPE_I64};
}

/* Return true if the input is known when the plan is prepared. */
static inline bool node_in_is_constant(const struct compiler *c, unsigned int i)
{
	const struct tensor *in = node_in(c, i);

	return in && c->plan->tensors[in->root].kind == RBK_TENSOR_CONSTANT;
}

/* Return the number of the plan's constant that holds input @i, which must be one. */
static inline uint16_t node_constant(const struct compiler *c, unsigned int i)
{
	return c->plan->tensors[node_in(c, i)->root].constant;
}

/* Return dimension @i of a shape that is right-aligned to @rank dimensions. */
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

/* Return the product. At most one factor depends on the count. */
static inline struct cpu_extent extent_mul(struct cpu_extent a, struct cpu_extent b)
{
	if (b.row)
		return (struct cpu_extent){.row = b.row * a.fixed};
	return (struct cpu_extent){.fixed = a.fixed * b.fixed, .row = a.row * b.fixed};
}

/* Return the product of dimensions [from, to). */
static inline struct cpu_extent extent_range(const struct shape *shape, unsigned int from,
					     unsigned int to)
{
	struct cpu_extent product = {.fixed = 1};

	for (unsigned int i = from; i < to; i++)
		product = extent_mul(product, extent_aligned(shape, shape->rank, i));
	return product;
}

/* Return the stride along dimension @i: the elements below it. Never depends on the count. */
static inline size_t shape_stride(const struct shape *shape, unsigned int i)
{
	size_t stride = 1;

	while (++i < shape->rank)
		stride *= shape->dims[i];
	return stride;
}

/* Return the stride along aligned dimension @i of @rank; 0 where it is broadcast. */
static inline size_t stride_aligned(const struct shape *shape, unsigned int rank, unsigned int i)
{
	if (extent_is_one(extent_aligned(shape, rank, i)))
		return 0;
	return shape_stride(shape, i - (rank - shape->rank));
}
