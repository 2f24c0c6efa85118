#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Transfer rates: how fast bytes come into a device's memory, and which way they go
 *
 * Measured once, when a device is first opened, for some 10 ms in all: see struct vulkan_rates.
 * Setup thread only.
 */
#include <stdbool.h>

#include "vulkan/vulkan.h"

struct vk_device;

/* See block.h. */
enum vk_way { VK_WAY_DIRECT, VK_WAY_STAGED, VK_WAY_ARENA };

/*
 * Fills in device->rates, then does as vk_rates_apply(). The queue runs and arena paths are known.
 * What cannot be measured is 0. Return: 0; -EIO if the device was lost over it.
 */
int vk_rates_measure(struct vk_device *device);

/* Has device memory mapped from now on if the processor is to write it; nothing is allocated. */
void vk_rates_apply(struct vk_device *device);

/*
 * The fastest way for constants that the device has imported, or has not. Where it is not much
 * slower, the device's own engine goes first: the processor has other things to do.
 */
enum vk_way vk_rates_choose(const struct vulkan_rates *rates, bool is_imported);
