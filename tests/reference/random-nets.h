#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Random networks over images, for comparing executors with the reference, and each executor with
 * itself.
 */
#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"

/* Bytes of the arena that holds the networks' constants. */
enum { RANDOM_NETS_ARENA_BYTES = 1 << 20 };

/*
 * Describe a plan of several nodes over images of 1 to 3 dimensions, always the same for the same
 * @seed. The nodes are Conv of any groups, pooling, normalisation, Concat, residuals and operators
 * per channel or per pixel, with other operators on images in between. Some intermediate tensors
 * are outputs, too. In half of the plans the batch is the task's count, up to @max_count. @fuses:
 * the broker may fuse.
 */
struct describe *random_net_describe(uint64_t seed, uint32_t max_count, bool fuses);

/* Finish the description of random_net_describe(), and make a plan of it. */
struct plan *random_net(uint64_t seed, uint32_t max_count, struct exec_arena *arena, bool fuses);
