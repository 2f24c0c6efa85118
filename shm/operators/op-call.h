#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One use of an operator, while it is being verified
 *
 * What an operator's shape rule (struct op: infer, cost) is given: the node's inputs, its
 * attributes, and where to put what was found out. Whoever has a node fills the first part of
 * struct op_call and calls op_call_infer(), which sees to it that for the rule inputs that the
 * operator requires are present, that types are among those of the row, and that attributes are
 * known to the operator, of the type that its row says and not repeated; everything else is the
 * rule's to check.
 *
 * Every dimension is between 1 and OP_MAX_DIM, so that kernels and shaders can count in 32 signed
 * bits; dims[0] may be the task's count and every rule either carries that to dims[0] of its
 * outputs, removes it (ReduceSum), or refuses.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/dtype.h"
#include "shm/operators/op.h"
#include "shm/plan-wire.h"

enum {
	SHAPE_TEXT_BYTES = 2 + RBK_MAX_RANK * 11 + 1,
};

struct op_call {
	/* What the description says. */
	const struct op *op;
	unsigned int node_index;
	const char *node_name;
	unsigned int n_in;
	unsigned int n_out;
	const struct op_tensor *in[OP_MAX_INPUTS];   /* NULL: absent */
	const struct op_tensor *out[OP_MAX_OUTPUTS]; /* for their names only; NULL: absent */
	const struct rbk_plan_attr *attrs;
	unsigned int n_attrs;
	const uint8_t *blob;
	char *message; /* of OP_MESSAGE_BYTES */

	/* What the rule finds out. */
	union op_params params;
	struct shape out_shape[OP_MAX_OUTPUTS];
	uint8_t out_dtype[OP_MAX_OUTPUTS]; /* enum rbk_dtype */
	bool mixes_rows;                   /* this use computes a row from other rows too */

	/* What op_call_infer() finds out. */
	uint8_t devices; /* OP_ON_*: that run the operator with these types */
};

/* One dimension: the task's count, or a number. */
struct dim {
	uint32_t n; /* max_count where it is the count */
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

/* "[count,3,4]" in @text. Return: @text. */
const char *shape_print(const struct shape *shape, char text[SHAPE_TEXT_BYTES]);
/* "count" or the number. */
const char *dim_print(struct dim dim, char text[SHAPE_TEXT_BYTES]);

/* For arguments of op_call_refuse(); valid until the end of the enclosing block. */
#define SHAPE_TEXT(shape) shape_print((shape), (char[SHAPE_TEXT_BYTES]){0})
#define DIM_TEXT(dim)     dim_print((dim), (char[SHAPE_TEXT_BYTES]){0})

/*
 * Checks the numbers of inputs and outputs, attributes and types, and asks the operator's rule.
 * @call is zeroed but for what the description says; absent inputs and outputs at the end are not
 * counted. Return: 0; OP_E_INVALID with a sentence in call->message.
 */
int op_call_infer(struct op_call *call);

/* The numbers of inputs and outputs alone, before they are filled in. Return: as above. */
int op_call_check_arity(struct op_call *call);

/*
 * Writes the sentence "node 3 "scores" (MatMul): ..." into the call's message.
 * Return: OP_E_INVALID.
 */
int op_call_refuse(struct op_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Is that attribute given? */
bool op_call_has(const struct op_call *call, const char *name);

/* Attributes: the value given, or @fallback where there is none. Return: 0 or OP_E_INVALID. */
int op_call_int(struct op_call *call, const char *name, int64_t min, int64_t max, int64_t fallback,
		int64_t *ret);
int op_call_bool(struct op_call *call, const char *name, bool fallback, bool *ret);
int op_call_float(struct op_call *call, const char *name, float fallback, float *ret);
/* A list of exactly @n values. *ret_given may be NULL. */
int op_call_ints(struct op_call *call, const char *name, unsigned int n, int64_t min, int64_t max,
		 int64_t fallback, int64_t *ret, bool *ret_given);
/* A list of at most @max values, all of them from @min to @limit; none where it is absent. */
int op_call_list(struct op_call *call, const char *name, unsigned int max, int64_t min,
		 int64_t limit, int64_t *ret, unsigned int *ret_n);
/* A dimension of input 0, made non-negative. */
int op_call_axis(struct op_call *call, const char *name, int64_t fallback, uint8_t *ret);
/* A list of dimensions of input 0, as bits; 0 where absent or empty. */
int op_call_axes(struct op_call *call, const char *name, uint8_t *ret);
/* Index in @values, which ends with NULL; the first is the default. */
int op_call_choice(struct op_call *call, const char *name, const char *const *values,
		   unsigned int *ret);

/*
 * The shape that inputs 0 and 1 broadcast to, by numpy's rules, ignoring the last @skip dimensions
 * of both. Return: 0 or OP_E_INVALID.
 */
int op_call_broadcast(struct op_call *call, unsigned int skip, struct shape *ret);

/*
 * Costs. Sums saturate; plan_new() refuses what comes near.
 *
 * cost_elems() adds @flops per element of @shape, cost_bytes() its bytes, cost_tensors() those of
 * all inputs and outputs.
 */
void cost_elems(struct cost *cost, const struct shape *shape, uint64_t flops);
void cost_bytes(struct cost *cost, const struct shape *shape, uint8_t dtype);
void cost_tensors(struct cost *cost, const struct op_call *call);
void cost_add(struct cost *sum, const struct cost *cost);
