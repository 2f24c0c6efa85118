#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Shapes of tiles: which of several pipelines a product or a convolution takes
 *
 * The pipelines from VK_PIPE_MATMUL and VK_PIPE_CONV on do the same, and differ in how much of the
 * result a workgroup computes. What can be taken depends on the limits of the device; what is
 * fastest, on the device and the problem, and is measured by calibrate/calibrate.h.
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

/*
 * The pipeline of the shape for a result of @rows times @cols elements, @batch of them. @pipe: the
 * first shape's, VK_PIPE_CONV or one of the four from VK_PIPE_MATMUL on. @half: of float16.
 */
enum vk_pipe vk_tiles_pipe(const struct exec_tiles *tiles, enum vk_pipe pipe, bool half,
			   uint64_t rows, uint64_t cols, uint64_t batch);
