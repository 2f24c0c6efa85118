#pragma once
/* SPDX-License-Identifier: MIT */
/* Random networks over pictures, for comparing executors with the reference and with themselves. */
#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"

/* Bytes of an arena that their constants are taken from. */
enum { RANDOM_NETS_ARENA_BYTES = 1 << 20 };

/*
 * A plan of some nodes over pictures of 1 to 3 dimensions, the same for the same @seed: Conv of any
 * groups, pooling, normalisation, Concat, residuals, what is per channel or pixel, and, in between,
 * operators that do something else with pictures. Some of what lies between is an output, too. In
 * every other one the batch is the task's count, up to @max_count. @fuses: the broker may fuse.
 */
struct plan *random_net(uint64_t seed, uint32_t max_count, struct exec_arena *arena, bool fuses);
