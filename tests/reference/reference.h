#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The plain reference
 *
 * Every operator of the catalogue written as its definition reads: one loop nest over the output,
 * sums in double precision, no blocking, no reuse of memory. Executors are compared with it over
 * whole plans. Tests only; running out of memory aborts.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/executor.h"
#include "plan/plan.h"
#include "support/describe.h"

/*
 * One immutable arena for constants, filled with reference_fill(); its id is REFERENCE_ARENA. It
 * has no memfd: dev and ino are made up, distinct for each.
 */
#define REFERENCE_ARENA 1
void reference_arena_init(struct exec_arena *arena, size_t bytes, uint64_t seed);
void reference_arena_deinit(struct exec_arena *arena);
struct plan_arena_lookup reference_arena_lookup(struct exec_arena *arena);

/*
 * Finishes @describe and makes a plan of it, which must succeed. @arena may be NULL if there are no
 * constants.
 */
struct plan *reference_plan(struct describe *describe, struct exec_arena *arena);

/*
 * Runs @plan over @count rows. @bindings has the host address of each of plan->n_bindings tensors
 * in binding order, of tensor_bytes() at @count. Scratch is private to the call and not shared
 * between tensors, so a wrong scratch layout shows as a difference. Constants are read where the
 * plan says. Outputs and states are written after all of their node's inputs were read.
 */
void reference_run(const struct plan *plan, uint32_t count, void *const *bindings);

/* Runs one node: @in and @out by position in the node, NULL where absent; nothing overlaps. */
void reference_node(const struct plan *plan, const struct node *node, uint32_t count,
		    const void *const *in, void *const *out);

/* Zeroed memory aligned to 64 bytes, for free(); at least one byte. */
void *reference_alloc(size_t bytes);

/* A binding's worth of memory for each binding, sized for @count. */
struct reference_buffers {
	void *bindings[RBK_MAX_REFS];
	size_t bytes[RBK_MAX_REFS];
	unsigned int n;
};

/* Inputs and states are filled from @seed, outputs with a pattern that no result has. */
void reference_buffers_init(struct reference_buffers *buffers, const struct plan *plan,
			    uint32_t count, uint64_t seed);
void reference_buffers_copy(struct reference_buffers *buffers,
			    const struct reference_buffers *from);
void reference_buffers_deinit(struct reference_buffers *buffers);

/* xorshift; the same numbers everywhere. *state must not be 0. */
uint64_t reference_random(uint64_t *state);

/* Uniform numbers from -1 to 1. */
void reference_fill(float *data, uint64_t n, uint64_t seed);

/*
 * Compares: equal, both not-a-number, or |got - want| <= atol + rtol * |want|. Prints the first
 * mismatch, the number of them and the largest difference, headed by @what, to standard error.
 */
bool reference_close(const char *what, const float *got, const float *want, uint64_t n, double rtol,
		     double atol);
bool reference_equal(const char *what, const int64_t *got, const int64_t *want, uint64_t n);

/*
 * Compares every output and state of @plan: floats with reference_close(), integers exactly; of
 * float64, which has 29 bits more, tolerances are 2^29 times smaller.
 * Return: false if one differs.
 */
bool reference_buffers_close(const struct plan *plan, uint32_t count,
			     const struct reference_buffers *got,
			     const struct reference_buffers *want, double rtol, double atol);
