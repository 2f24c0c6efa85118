#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Ends of submissions
 *
 * The layer has a fence signalled behind each submission that it follows. A thread of each VkDevice
 * ("rbk-fences") waits for these fences, counts submissions of struct timeslice down, and learns
 * how long they took.
 */
#include <vulkan/vulkan_core.h>

struct device;

/* Time by which the thread mostly sees an end late, at most. */
#define ENDS_DOUBT_NS UINT64_C(100000)

/*
 * Return a fence for a submission of a device whose time is shared; VK_NULL_HANDLE: none can be
 * made. Begins the thread. Under the lock of struct timeslice.
 */
VkFence ends_take_fence(struct device *device);
/* End the thread, and destroy the fences, before the device is destroyed. */
void ends_forget(struct device *device);
/* Have the threads of all devices leave the driver: the process ends. */
void ends_exit(void);
