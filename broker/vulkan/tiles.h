#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tile shapes: which of several pipelines computes a product or a convolution
 *
 * The pipelines of an operator differ in the part of the result that a workgroup computes. The
 * limits of a device decide which pipelines it can run. The fastest one depends on the device and
 * the problem; calibrate/calibrate.h measures it.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "vulkan/pipeline.h"

struct vk_device;

/* Describe tile shape @i, as in struct executor_ops. */
bool vk_tile(const struct vk_device *device, enum exec_tile_op op, unsigned int i,
	     struct exec_tile *ret);

/*
 * Guess the best tile shapes before measurements. A guess may be a shape that the device cannot
 * run.
 */
void vk_tiles_guess(const struct vk_device *device, struct exec_tiles *ret);

/*
 * Return tile shape @i, below EXEC_MAX_TILES; for products, the pipe without transposed matrices.
 * Return: NULL if there is none.
 */
const struct vk_pipe_info *vk_tile_info(int variant, enum exec_tile_op op, unsigned int i);
