#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of the operators that slide a window, for comparing executors with the reference. */
#include <stdint.h>

#include "reference/reference.h"

/* Rounds that cover all operators. */
enum { RANDOM_WINDOWS_OPERATORS = 7 };

/*
 * Make a plan of the operator of @round, with random shapes, attributes and types: dynamic, of
 * max_count @max_count, in every other pass over all operators. Half of the time the weights are
 * constants of @arena_of(), which has 64 KiB for each type of floats. *state advances.
 */
struct plan *random_window(uint64_t *state, unsigned int round, uint32_t max_count,
			   struct exec_arena *(*arena_of)(enum rbk_dtype floats));

/*
 * Make a plan as random_window() does: a convolution of float32 with constant weights of @arena, of
 * 1 MiB, or a pooling. Its shapes are those that matter to kernels with channels last: 40 rounds
 * cover all forms.
 */
struct plan *random_picture(uint64_t *state, unsigned int round, uint32_t max_count,
			    struct exec_arena *arena);
