#pragma once
/* SPDX-License-Identifier: MIT */
/* The driver's answers: results, submissions and waits; and the loss of a device. */
#include <stdint.h>
#include <volk.h>

#include "vulkan/vulkan.h"

struct vk_device;

/*
 * Translates a VkResult, once, logging it at debug level with what was called.
 * Return: 0 for success; -ENOMEM; -EIO for everything else.
 */
int vk_result(VkResult result, const char *what);

/* Any thread. Return: the answer of options.fault. */
enum vulkan_fault vk_device_fault(struct vk_device *device, enum vulkan_fault_point point);

/*
 * The thread that owns @queue: call vkQueueSubmit(), which out of memory leaves the queue as it was
 * and with any other failure is the end of the device. Return: 0 or negative errno.
 */
int vk_device_submit(struct vk_device *device, VkQueue queue, uint32_t n,
		     const VkSubmitInfo *infos);

/*
 * Any thread: waits for a timeline; beyond the timeout the device is lost, but waiting goes on,
 * because it may still touch things. Return: 0 once @timeline has reached @value; -EIO once the
 * device is known to be dead.
 */
int vk_device_wait(struct vk_device *device, VkSemaphore timeline, uint64_t value);
/*
 * Any thread: as vk_device_wait(), but for one timeout at most, 20 ms once the device is lost.
 * Return: also VK_WAIT_E_TIMEOUT: the device is lost, @timeline has not reached @value.
 */
enum { VK_WAIT_E_TIMEOUT = 1 };
int vk_device_wait_once(struct vk_device *device, VkSemaphore timeline, uint64_t value);

/* Any thread: the driver said that the device is lost. */
void vk_device_die(struct vk_device *device, const char *why);
/* Any thread: no new work for this device. */
void vk_device_lose(struct vk_device *device, const char *why);

/*
 * Setup thread, before anything is freed that tasks used: tasks of a lost device are handed back
 * without waiting, and some drivers declare a device lost while it still works. Returns at once
 * otherwise.
 */
void vk_device_settle(struct vk_device *device);
