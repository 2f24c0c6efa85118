#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Blocks of constants: copies from arenas into device memory
 *
 * A block is loaded in one of three ways, chosen when its loading begins:
 *   direct  the processor writes the device's memory, where that is mapped
 *   staged  the processor fills chunks of host memory, from which the device copies
 *   arena   the device copies from the imported arenas; the processor copies nothing
 * Gaps between constants and behind the last constant are zeroed: the memory held bytes of other
 * owners. Setup thread only.
 */
#include <stdint.h>
#include <volk.h>

#include "plan/exec-block.h"

struct vk_device;

enum {
	VK_BLOCK_PART_BYTES = 8 << 20, /* bytes moved by one vk_block_load(), at most */
	VK_BLOCK_PART_NS = 2000000,    /* time after which one call begins no further piece */
};

/* Load, shrink and unload a block, as in struct executor_ops. */
int vk_block_load(struct vk_device *device, struct exec_block *block);
int vk_block_shrink(struct vk_device *device, struct exec_block *block);
void vk_block_unload(struct vk_device *device, struct exec_block *block);

/* See vulkan_block_read(). */
int vk_block_read(struct vk_device *device, struct exec_block *block, uint8_t *to);

/* Return the device address of a loaded block. */
VkDeviceAddress vk_block_address(const struct exec_block *block);
