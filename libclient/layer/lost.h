#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Lost devices: the program's user learns who is the reason
 *
 * Once a call of a VkDevice returns VK_ERROR_DEVICE_LOST, the layer asks the kernel whether work of
 * this process hung the card, tells the broker, and writes the broker's sentence to standard error.
 * That happens once for each VkDevice, before the call returns, since many programs end then. It
 * takes up to two seconds, in which the broker waits for what other programs tell. Nothing else of
 * the call changes.
 */
#include <vulkan/vulkan_core.h>

struct device;

/* The next layer's functions; NULL: not available. */
struct lost_functions {
	PFN_vkWaitForFences wait_for_fences;
	PFN_vkGetFenceStatus get_fence_status;
	PFN_vkQueueWaitIdle queue_wait_idle;
	PFN_vkDeviceWaitIdle device_wait_idle;
	PFN_vkQueueBindSparse queue_bind_sparse;
	PFN_vkGetQueryPoolResults get_query_pool_results;
	PFN_vkWaitSemaphores wait_semaphores, wait_semaphores_khr;
	PFN_vkGetSemaphoreCounterValue get_counter, get_counter_khr;
	PFN_vkQueuePresentKHR queue_present;
	PFN_vkAcquireNextImageKHR acquire_next_image;
	PFN_vkAcquireNextImage2KHR acquire_next_image2;
};

void lost_resolve(struct device *device);

/* Return the layer's function of a name; NULL: there is none. */
PFN_vkVoidFunction lost_function(const char *name);

/* Tell of the device's loss. Any thread, without locks of the layer. */
void lost_tell(struct device *device);

/* Note the result of a call. Return: @result. */
static inline VkResult lost_note(struct device *device, VkResult result)
{
	if (__builtin_expect(result == VK_ERROR_DEVICE_LOST, 0))
		lost_tell(device);
	return result;
}
