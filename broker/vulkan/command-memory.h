#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The broker's memory under a driver's command buffers
 *
 * VK_EXT_memory_budget tells how much of the heaps command buffers take. Drivers also allocate the
 * broker's own memory for them; a software driver allocates nothing else. They allocate it through
 * the callbacks of the command pool (Vulkan 1.3, 11.1 "Host Memory"). So the amount is known and
 * can be charged, and the pages are unmapped with the pool. From malloc(), they would stay mapped
 * between pieces that are in use.
 *
 * A struct vk_command_memory belongs to one command pool. A driver allocates only from the thread
 * that called it: the setup thread.
 */
#include <stddef.h>
#include <stdint.h>
#include <volk.h>

#include "util/list.h"

struct chunks;

struct vk_command_memory {
	VkAllocationCallbacks callbacks; /* for vkCreateCommandPool() and vkDestroyCommandPool() */
	struct chunks *chunks;
	struct list_node pieces; /* in order of creation; the last one has room */
	size_t next_bytes;       /* minimum size of the next piece */
	uint64_t used_bytes;     /* bytes taken from all pieces since init; never decreases */
};

/*
 * Prepare for about @expected_bytes; 0: unknown. @memory must not move until
 * vk_command_memory_deinit().
 */
void vk_command_memory_init(struct vk_command_memory *memory, struct chunks *chunks,
			    uint64_t expected_bytes);
/* Free all pieces, after the pool was destroyed. */
void vk_command_memory_deinit(struct vk_command_memory *memory);
