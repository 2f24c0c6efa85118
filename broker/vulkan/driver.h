#pragma once
/* SPDX-License-Identifier: MIT */
/* The driver's answers: results, submissions, waits, and the loss of a device */
#include <stdint.h>
#include <volk.h>

#include "vulkan/vulkan.h"

struct vk_device;

/*
 * Translate a VkResult, once; log a failure at debug level with @what was called.
 * Return: 0 for success; -ENOMEM; -EIO for every other failure.
 */
int vk_result(VkResult result, const char *what);

/*
 * Call options.fault. Any thread.
 * Return: its answer; VULKAN_FAULT_NONE without options.fault.
 */
enum vulkan_fault vk_device_fault(struct vk_device *device, enum vulkan_fault_point point);

/*
 * Call vkQueueSubmit(), on the thread that owns @queue. A failure for lack of memory leaves the
 * queue as it was; any other failure marks the device dead.
 * Return: 0 or negative errno.
 */
int vk_device_submit(struct vk_device *device, VkQueue queue, uint32_t n,
		     const VkSubmitInfo *infos);

/*
 * Wait until @timeline has reached @value. Any thread. After a timeout the device is lost, but the
 * wait continues, because the device may still touch memory.
 * Return: 0 once @timeline has reached @value; -EIO once the device is known to be dead.
 */
int vk_device_wait(struct vk_device *device, VkSemaphore timeline, uint64_t value);
/*
 * Wait like vk_device_wait(), but for one timeout at most, 20 ms once the device is lost. Any
 * thread.
 * Return: also VK_WAIT_E_TIMEOUT: the device is lost, and @timeline has not reached @value.
 */
enum { VK_WAIT_E_TIMEOUT = 1 };
int vk_device_wait_once(struct vk_device *device, VkSemaphore timeline, uint64_t value);

/* Mark the device dead and lost, because the driver said that it is lost. Any thread. */
void vk_device_die(struct vk_device *device, const char *why);
/* Mark the device lost, so that it gets no new work. Any thread. */
void vk_device_lose(struct vk_device *device, const char *why);

/*
 * Wait until a dead device is idle; return at once for any other device. Call on the setup thread
 * before freeing memory that tasks used. Tasks of a dead device are handed back without waiting,
 * and some drivers declare a device lost while it still works.
 */
void vk_device_settle(struct vk_device *device);
