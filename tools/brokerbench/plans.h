#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The two plans that the benches run: an Add and a MatMul
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>

#include "bench.h"
#include "util/cleanup.h"

/* out = left + right over floats, with several sets of tensors */
struct plans_add {
	struct rbk_arena *constants; /* left and right, if they are constants */
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	uint32_t n_floats;
	bool is_constant;
};

#define PLANS_ADD_INIT \
	{              \
		0      \
	}

/*
 * Prepare an Add. With @is_constant left and right are constants of the plan, and a task names only
 * its output.
 * Return: 0; a negative errno, which has been reported.
 */
int plans_add_init(struct plans_add *add, struct bench_env *env, struct rbk *rbk, uint32_t n_floats,
		   bool is_constant, unsigned int n_sets);
void plans_add_deinit(struct plans_add *add);

/* Compute the references of a task on set @set, in the plan's order: 1 or 3. */
void plans_add_refs(const struct plans_add *add, unsigned int set, uint64_t *ret_refs);

#define PLANS_MATMUL_OUTPUTS 4u

/* C = A * B, with A and C in an arena. B is a constant, or else in the same arena. */
struct plans_matmul {
	struct rbk_arena *constants;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	uint32_t m, k, n;
	const float *a, *b;
	float *c;
	uint64_t refs[3];
	unsigned int n_refs;
	uint64_t output_stride; /* bytes from C to the next of PLANS_MATMUL_OUTPUTS outputs */
};

#define PLANS_MATMUL_INIT \
	{                 \
		0         \
	}

/* Prepare a MatMul in the same way. A and B hold small numbers, C zeros. */
int plans_matmul_init(struct plans_matmul *matmul, struct bench_env *env, struct rbk *rbk,
		      uint32_t m, uint32_t k, uint32_t n, bool is_constant);
void plans_matmul_deinit(struct plans_matmul *matmul);

/* Fill with numbers between -1 and 1 that depend only on @seed. */
void plans_fill(float *values, size_t n, uint32_t seed);
