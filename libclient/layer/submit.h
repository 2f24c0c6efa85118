#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Submissions of programs whose lease shares its device
 *
 * Any thread; Vulkan requires that one thread at a time uses a queue.
 */
#include <stdint.h>

#include <vulkan/vulkan_core.h>

struct device;

/* vkQueueSubmit(). */
VkResult submit(struct device *device, VkQueue queue, uint32_t n, const VkSubmitInfo *infos,
		VkFence fence);
/* vkQueueSubmit2(). @below: the next layer's. */
VkResult submit2(struct device *device, PFN_vkQueueSubmit2 below, VkQueue queue, uint32_t n,
		 const VkSubmitInfo2 *infos, VkFence fence);
