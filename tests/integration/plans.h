#pragma once
/* SPDX-License-Identifier: MIT */
/* Plans of one node, for tests of something else. All functions return the library's result. */
#include <ringbroker.h>

/* Make an arena of zeros, sealed for constants. */
int plan_constants(struct rbk *rbk, size_t bytes, struct rbk_arena **ret);

/*
 * Make y = x w of [count, k] and [k, n]. w is at the beginning of @constants, or the second input
 * if @constants is NULL. @error may be NULL.
 */
int plan_product(struct rbk *rbk, uint32_t max_count, uint32_t k, uint32_t n,
		 const struct rbk_arena *constants, struct rbk_plan **ret, struct rbk_error *error);

/* Make a plan of operator @op with one or two inputs of [count, width] each. */
int plan_elements(struct rbk *rbk, const char *op, unsigned int n_inputs, uint32_t max_count,
		  uint32_t width, struct rbk_plan **ret, struct rbk_error *error);
