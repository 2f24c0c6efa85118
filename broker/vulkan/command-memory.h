#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The broker's memory under a driver's command buffers
 *
 * VK_EXT_memory_budget tells what command buffers take on the heaps. What a driver keeps about them
 * in the broker's own memory, which is everything with a software driver, it asks for through the
 * callbacks of the command pool (Vulkan 1.3, 11.1 "Host Memory"). So there is a limit to know and
 * to charge for, and the pages go back to the system with the pool: from malloc() they would lie
 * between pieces that live.
 *
 * A struct vk_command_memory belongs to one command pool. A driver allocates from the thread that
 * called it only: the setup thread.
 */
#include <stddef.h>
#include <stdint.h>
#include <volk.h>

#include "util/list.h"

struct chunks;

struct vk_command_memory {
	VkAllocationCallbacks callbacks; /* for vkCreateCommandPool() and vkDestroyCommandPool() */
	struct chunks *chunks;
	struct list_node pieces; /* the last one has room */
	size_t next_bytes;       /* of the next piece, at least */
	uint64_t used_bytes;     /* taken from all pieces since init; never falls */
};

/*
 * Prepares for about @expected_bytes; 0: unknown. @memory must stay in place until
 * vk_command_memory_deinit().
 */
void vk_command_memory_init(struct vk_command_memory *memory, struct chunks *chunks,
			    uint64_t expected_bytes);
/* Frees what there is: the pool is destroyed. */
void vk_command_memory_deinit(struct vk_command_memory *memory);
