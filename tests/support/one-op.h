#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans of one node, for tests of operators
 *
 *	one_op("Gemm", "[count,3] [3,4] [4]", "alpha=0.5 transB=0")
 *
 * describes a plan with inputs "a", "b", "c", ... of these shapes ("-": absent, "[]": a scalar) and
 * types ("i64[3]"; none: float32), a node "it", and outputs "y", "z", ... as many as the operator
 * has, their shapes inferred, and their types where inputs or the operator tell. "=[3,4]" is a
 * constant of arena 1. Attribute values are told apart by their looks: [1,2] is a list of
 * integers, 1.5 a float, 1 an integer, anything else a string. max_count is ONE_OP_MAX_COUNT where
 * an input begins with count.
 *
 * The expect_ functions are for cmocka tests: they fail the running test.
 */
#include "plan/plan.h"
#include "support/describe.h"

enum { ONE_OP_MAX_COUNT = 100 };

struct describe *one_op(const char *op, const char *inputs, const char *attrs);
/* The same with another max_count. */
struct describe *one_op_counted(const char *op, const char *inputs, const char *attrs,
				uint32_t max_count);

/* The plan must be accepted, and its first output have @shape, such as "[count,4]". */
void expect_infers(const char *op, const char *inputs, const char *attrs, const char *shape);

/*
 * The plan must be refused with a sentence that names the node and has all of @words, which end
 * with NULL. The variants take a finished description's place.
 */
void expect_refuses(const char *op, const char *inputs, const char *attrs, ...)
	__attribute__((sentinel));
void expect_refused(struct describe *describe, ...) __attribute__((sentinel));
void expect_bytes_refused(const void *desc, size_t desc_bytes, ...) __attribute__((sentinel));

/* The plan must be accepted. Return: it, for plan_free(). */
struct plan *expect_plan(struct describe *describe);

/* Return: the tensor of that name; fails the test if there is none. */
struct tensor *expect_tensor(struct plan *plan, const char *name);

/*
 * Arenas that these plans may name: 1 and 2 are immutable, of ONE_OP_ARENA_BYTES without memory
 * behind them, 3 is "not sealed against writing"; there are no others.
 */
#define ONE_OP_ARENA_BYTES (1ull << 20)
extern const struct plan_arena_lookup one_op_arenas;
