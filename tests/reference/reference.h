#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The plain reference
 *
 * Every operator of the catalogue follows its definition: one loop nest over the output, sums in
 * double precision, no blocking, no reuse of memory. Tests compare executors with it over whole
 * plans. Tests only; running out of memory aborts.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/executor.h"
#include "plan/plan.h"
#include "support/describe.h"

/*
 * Make an immutable arena for constants, filled with reference_fill(); its id is REFERENCE_ARENA.
 * It has no memfd: dev and ino are invented, distinct for each arena.
 */
#define REFERENCE_ARENA 1
void reference_arena_init(struct exec_arena *arena, size_t bytes, uint64_t seed);
void reference_arena_deinit(struct exec_arena *arena);
struct plan_arena_lookup reference_arena_lookup(struct exec_arena *arena);

/*
 * Finish @describe and make a plan of it, which must succeed. @arena may be NULL if the plan has no
 * constants.
 */
struct plan *reference_plan(struct describe *describe, struct exec_arena *arena);

/*
 * Run @plan over @count rows. @bindings has the host address of each of plan->n_bindings tensors in
 * binding order, of tensor_bytes() at @count. Scratch is private to the call and never shared
 * between tensors, so a wrong scratch layout shows as a difference. Constants are read at the
 * plan's addresses. A node's outputs and states are written after all of its inputs were read.
 */
void reference_run(const struct plan *plan, uint32_t count, void *const *bindings);

/*
 * Run one node. @in and @out are indexed by position in the node, NULL where absent; no memory
 * overlaps.
 */
void reference_node(const struct plan *plan, const struct node *node, uint32_t count,
		    const void *const *in, void *const *out);

/* Allocate at least one zeroed byte, aligned to 64 bytes; the caller frees it with free(). */
void *reference_alloc(size_t bytes);

/* Memory for each binding, sized for @count. */
struct reference_buffers {
	void *bindings[RBK_MAX_REFS];
	size_t bytes[RBK_MAX_REFS];
	unsigned int n;
};

/* Fill inputs and states from @seed, and outputs with a pattern that no result has. */
void reference_buffers_init(struct reference_buffers *buffers, const struct plan *plan,
			    uint32_t count, uint64_t seed);
void reference_buffers_copy(struct reference_buffers *buffers,
			    const struct reference_buffers *from);
void reference_buffers_deinit(struct reference_buffers *buffers);

/*
 * Return the next number of a xorshift generator, the same on every machine. *state must not be 0.
 */
uint64_t reference_random(uint64_t *state);

/* Fill @data with uniform numbers from -1 to 1. */
void reference_fill(float *data, uint64_t n, uint64_t seed);

/*
 * Compare two arrays. Elements match if they are equal, both NaN, or |got - want| <= atol + rtol *
 * |want|. Print the first mismatch, the number of mismatches and the largest difference, headed by
 * @what, to standard error.
 * Return: true if all elements match.
 */
bool reference_close(const char *what, const float *got, const float *want, uint64_t n, double rtol,
		     double atol);
bool reference_equal(const char *what, const int64_t *got, const int64_t *want, uint64_t n);

/*
 * Compare every output and state of @plan: floats with reference_close(), integers exactly.
 * Tolerances of float64, which has 29 bits more, are 2^29 times smaller.
 * Return: false if any element differs.
 */
bool reference_buffers_close(const struct plan *plan, uint32_t count,
			     const struct reference_buffers *got,
			     const struct reference_buffers *want, double rtol, double atol);
