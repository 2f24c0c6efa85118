#pragma once
/* SPDX-License-Identifier: MIT */
/* Plans of one node, for tests that are about something else. All return what the library returns.
 */
#include <ringbroker.h>

/* An arena of zeros, sealed for constants. */
int plan_constants(struct rbk *rbk, size_t bytes, struct rbk_arena **ret);

/*
 * y = x w of [count, k] and [k, n]; w is what @constants begins with, or the second input where
 * that is NULL. @error may be NULL.
 */
int plan_product(struct rbk *rbk, uint32_t max_count, uint32_t k, uint32_t n,
		 const struct rbk_arena *constants, struct rbk_plan **ret, struct rbk_error *error);

/* The operator @op of one or two inputs of [count, width] each. */
int plan_elements(struct rbk *rbk, const char *op, unsigned int n_inputs, uint32_t max_count,
		  uint32_t width, struct rbk_plan **ret, struct rbk_error *error);
