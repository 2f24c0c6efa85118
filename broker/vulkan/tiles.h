#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Shapes of tiles: which of several pipelines a product or a convolution takes
 *
 * There are several for the same, which differ in how much of the result a workgroup computes. What
 * can be taken depends on the limits of the device; what is fastest, on the device and the problem,
 * and is measured by calibrate/calibrate.h.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "vulkan/pipeline.h"

struct vk_device;

/* As in struct executor_ops. */
bool vk_tile(const struct vk_device *device, enum exec_tile_op op, unsigned int i,
	     struct exec_tile *ret);

/* The best guess, before anybody has measured; some may be shapes that the device cannot take. */
void vk_tiles_guess(const struct vk_device *device, struct exec_tiles *ret);

/* Of products, that without transposed matrices. @i: below EXEC_MAX_TILES. Return: NULL: none. */
const struct vk_pipe_info *vk_tile_info(int variant, enum exec_tile_op op, unsigned int i);
