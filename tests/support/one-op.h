#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans of one node, for tests of operators
 *
 *   one_op("Gemm", "[count,3] [3,4] [4]", "alpha=0.5 transB=0")
 *
 * describes a plan with inputs "a", "b", "c", ... and a node "it". An input is a shape ("[]": a
 * scalar; "-": absent), with a type in front ("i64[3]"; none: float32). "=[3,4]" is a constant of
 * arena 1. The plan has as many outputs "y", "z", ... as the operator; their shapes are inferred,
 * and their types follow from the inputs or the operator. The form of an attribute's value gives
 * its type: [1,2] is a list of integers, 1.5 a float, 1 an integer, anything else a string.
 * max_count is ONE_OP_MAX_COUNT where an input begins with count.
 *
 * The expect_ functions are for cmocka tests: they fail the running test.
 */
#include "plan/plan.h"
#include "support/describe.h"

enum { ONE_OP_MAX_COUNT = 100 };

struct describe *one_op(const char *op, const char *inputs, const char *attrs);
/* Do as one_op() with another max_count. */
struct describe *one_op_counted(const char *op, const char *inputs, const char *attrs,
				uint32_t max_count);

/* Expect that the plan is accepted, and that its first output has @shape, such as "[count,4]". */
void expect_infers(const char *op, const char *inputs, const char *attrs, const char *shape);

/*
 * Expect that the plan is rejected with a sentence that names the node and contains all of the
 * words. expect_refused() takes a description under construction, expect_bytes_refused() a finished
 * one.
 */
#define expect_refuses(op, inputs, attrs, ...) \
	expect_refuses_(op, inputs, attrs, (const char *const[]){__VA_ARGS__, NULL})
#define expect_refused(describe, ...) \
	expect_refused_(describe, (const char *const[]){__VA_ARGS__, NULL})
#define expect_bytes_refused(desc, desc_bytes, ...) \
	expect_bytes_refused_(desc, desc_bytes, (const char *const[]){__VA_ARGS__, NULL})
void expect_refuses_(const char *op, const char *inputs, const char *attrs,
		     const char *const *words);
void expect_refused_(struct describe *describe, const char *const *words);
void expect_bytes_refused_(const void *desc, size_t desc_bytes, const char *const *words);

/*
 * Expect that the plan is accepted.
 * Return: the plan, which the caller frees with plan_free().
 */
struct plan *expect_plan(struct describe *describe);

/* Return the tensor of that name; fail the test if the plan has none. */
struct tensor *expect_tensor(struct plan *plan, const char *name);

/*
 * Arenas that these plans may name. Arenas 1 and 2 are immutable, of ONE_OP_ARENA_BYTES without
 * memory behind them. Arena 3 is "not sealed against writing". No other arena exists.
 */
#define ONE_OP_ARENA_BYTES (1ull << 20)
extern const struct plan_arena_lookup one_op_arenas;
