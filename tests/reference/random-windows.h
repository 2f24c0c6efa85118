#pragma once
/* SPDX-License-Identifier: MIT */
/* Random plans of the operators that slide a window, for comparing executors with the reference. */
#include <stdint.h>

#include "reference/reference.h"

/* How many rounds go once through all operators. */
enum { RANDOM_WINDOWS_OPERATORS = 7 };

/*
 * A plan of the operator that @round says, with random shapes, attributes and types: dynamic, of
 * max_count @max_count, in every other round through all of them. Weights are as often as not
 * constants of @arena_of(), which has 64 KiB for each type of floats. *state is advanced.
 */
struct plan *random_window(uint64_t *state, unsigned int round, uint32_t max_count,
			   struct exec_arena *(*arena_of)(enum rbk_dtype floats));

/*
 * Likewise a convolution of float32 with constant weights of @arena, of 1 MiB, or a pooling, in
 * shapes that matter where channels lie last: 40 rounds go once through all forms.
 */
struct plan *random_picture(uint64_t *state, unsigned int round, uint32_t max_count,
			    struct exec_arena *arena);
