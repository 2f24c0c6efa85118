#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One use of an operator, while it is being verified
 *
 * An operator's functions (struct op: infer, cost) get the node's inputs and attributes in struct
 * op_call and write their results into it. The caller that has a node fills the first part of
 * struct op_call and calls op_call_infer(). That function checks that the required inputs are
 * present, that types are among those of the row, and that attributes are known to the operator, of
 * the row's type and not repeated. The rule checks everything else.
 *
 * Every dimension is between 1 and OP_MAX_DIM, so that kernels and shaders can count in 32 signed
 * bits. dims[0] may be the task's count: every rule either carries it to dims[0] of the outputs,
 * removes it (ReduceSum), or refuses.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/dtype.h"
#include "shm/number.h"
#include "shm/operators/op.h"
#include "shm/plan-wire.h"

enum {
	SHAPE_TEXT_BYTES = 2 + RBK_MAX_RANK * 11 + 1,
};

struct op_call {
	/* Set by the caller, from the description. */
	const struct op *op;
	unsigned int node_index;
	const char *node_name;
	unsigned int n_in;
	unsigned int n_out;
	const struct op_tensor *in[OP_MAX_INPUTS];   /* NULL: absent */
	const struct op_tensor *out[OP_MAX_OUTPUTS]; /* names only; NULL: absent */
	const struct rbk_plan_attr *attrs;
	unsigned int n_attrs;
	const uint8_t *blob;
	char *message; /* OP_MESSAGE_BYTES long */

	/* Set by the rule. */
	union op_params params;
	struct shape out_shape[OP_MAX_OUTPUTS];
	uint8_t out_dtype[OP_MAX_OUTPUTS]; /* enum rbk_dtype */
	bool mixes_rows;                   /* a row of this use's result depends on other rows */

	/* Set by op_call_infer(). */
	uint8_t devices; /* OP_ON_* of devices that run the operator with these types */
};

/* One dimension: the task's count, or a number. */
struct dim {
	uint32_t n; /* max_count if is_count */
	bool is_count;
};

static inline struct dim shape_get(const struct shape *shape, unsigned int i)
{
	return (struct dim){.n = shape->dims[i], .is_count = i == 0 && shape->dynamic};
}

static inline bool dim_is(struct dim dim, uint32_t n)
{
	return !dim.is_count && dim.n == n;
}

static inline bool dim_equal(struct dim a, struct dim b)
{
	return a.is_count == b.is_count && a.n == b.n;
}

bool shape_equal(const struct shape *a, const struct shape *b);

/*
 * Write "[count,3,4]" into @text.
 * Return: @text.
 */
const char *shape_print(const struct shape *shape, char text[SHAPE_TEXT_BYTES]);
/*
 * Write "count" or the number into @text.
 * Return: @text.
 */
const char *dim_print(struct dim dim, char text[SHAPE_TEXT_BYTES]);

/* Arguments of op_call_refuse(); valid until the end of the enclosing block. */
#define SHAPE_TEXT(shape) shape_print((shape), (char[SHAPE_TEXT_BYTES]){0})
#define DIM_TEXT(dim)     dim_print((dim), (char[SHAPE_TEXT_BYTES]){0})

/*
 * Check the numbers of inputs and outputs, attributes and types, and call the operator's rule.
 * @call is zeroed except for the members set by the caller. n_in and n_out do not count absent
 * inputs and outputs at the end.
 * Return: 0; OP_E_INVALID with a sentence in call->message.
 */
int op_call_infer(struct op_call *call);

/*
 * Check the numbers of inputs and outputs alone, before these are filled in.
 * Return: as op_call_infer().
 */
int op_call_check_arity(struct op_call *call);

/*
 * Write the sentence "node 3 "scores" (MatMul): ..." into the call's message.
 * Return: OP_E_INVALID.
 */
int op_call_refuse(struct op_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Return input @i; NULL: absent. */
static inline const struct op_tensor *op_call_input(const struct op_call *call, unsigned int i)
{
	return i < call->n_in ? call->in[i] : NULL;
}

/* Return true if the attribute is given. */
bool op_call_has(const struct op_call *call, const char *name);

/*
 * Read an attribute: the given value, or @fallback if it is absent.
 * Return: 0 or OP_E_INVALID.
 */
int op_call_int(struct op_call *call, const char *name, int64_t min, int64_t max, int64_t fallback,
		int64_t *ret);
int op_call_bool(struct op_call *call, const char *name, bool fallback, bool *ret);
int op_call_float(struct op_call *call, const char *name, float fallback, float *ret);
/* Read a list of exactly @n values. *ret_given may be NULL. */
int op_call_ints(struct op_call *call, const char *name, unsigned int n, int64_t min, int64_t max,
		 int64_t fallback, int64_t *ret, bool *ret_given);
/* Read a list of at most @max values from @min to @limit; empty if the attribute is absent. */
int op_call_list(struct op_call *call, const char *name, unsigned int max, int64_t min,
		 int64_t limit, int64_t *ret, unsigned int *ret_n);
/* Read "axis", a dimension of input 0, made non-negative. */
int op_call_axis(struct op_call *call, int64_t fallback, uint8_t *ret);
/* Read a list of dimensions of input 0, as bits; 0 if absent or empty. */
int op_call_axes(struct op_call *call, const char *name, uint8_t *ret);
/* Read a string as its index in @values, which ends with NULL; the first is the default. */
int op_call_choice(struct op_call *call, const char *name, const char *const *values,
		   unsigned int *ret);

/*
 * Compute the shape that inputs 0 and 1 broadcast to, by numpy's rules, ignoring the last @skip
 * dimensions of both.
 * Return: 0 or OP_E_INVALID.
 */
int op_call_broadcast(struct op_call *call, unsigned int skip, struct shape *ret);

/*
 * Costs. Sums saturate; plan_new() refuses a plan that comes near saturation.
 *
 * cost_elems() adds @flops per element of @shape, cost_bytes() the bytes of @shape. cost_tensors()
 * adds the bytes of all inputs and outputs, and is the cost of an operator that only copies.
 */
void cost_elems(struct cost *cost, const struct shape *shape, uint64_t flops);
void cost_bytes(struct cost *cost, const struct shape *shape, uint8_t dtype);
void cost_tensors(const struct op_call *call, struct cost *cost);
void cost_add(struct cost *sum, const struct cost *cost);
