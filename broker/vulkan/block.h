#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Blocks of constants: the way from arenas into device memory
 *
 * A block goes one of three ways, decided when its loading begins:
 *   direct  the processor writes the device's memory, where that is mapped
 *   staged  the processor fills chunks of host memory, from which the device copies
 *   arena   the device copies from the imported arenas; the processor touches nothing
 * What lies between constants and behind the last one is zeros: it held others' bytes.
 * Setup thread only.
 */
#include <stdint.h>
#include <volk.h>

#include "plan/exec-block.h"

struct vk_device;

enum {
	VK_BLOCK_PART_BYTES = 8 << 20, /* one call moves no more than this, */
	VK_BLOCK_PART_NS = 2000000,    /* and begins nothing new after this time */
};

/* As in struct executor_ops. */
int vk_block_load(struct vk_device *device, struct exec_block *block);
int vk_block_shrink(struct vk_device *device, struct exec_block *block);
void vk_block_unload(struct vk_device *device, struct exec_block *block);

/* See vulkan_block_read(). */
int vk_block_read(struct vk_device *device, struct exec_block *block, uint8_t *to);

/* Of a loaded block. */
VkDeviceAddress vk_block_address(const struct exec_block *block);
