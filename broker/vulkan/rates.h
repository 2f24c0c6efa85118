#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Transfer rates: how fast bytes come into a device's memory, and the fastest way
 *
 * The rates are measured once, when a device is first opened, in about 10 ms: see struct
 * vulkan_rates. Setup thread only.
 */
#include <stdbool.h>

#include "vulkan/vulkan.h"

struct vk_device;

/* The ways of loading a block: see block.h. */
enum vk_way { VK_WAY_DIRECT, VK_WAY_STAGED, VK_WAY_ARENA };

/*
 * Fill in device->rates, then call vk_rates_apply(). The queue runs, and arena paths are known. A
 * rate that cannot be measured is 0.
 * Return: 0; -EIO if the device was lost meanwhile.
 */
int vk_rates_measure(struct vk_device *device);

/*
 * Let VRAM allocations use a mapped memory type from now on, if the processor is to write VRAM.
 * Call while nothing is allocated.
 */
void vk_rates_apply(struct vk_device *device);

/*
 * Choose the fastest way for constants in arenas that the device has imported, or has not. The
 * device's copy from an arena is chosen even if it is up to a quarter slower, because it leaves the
 * processor free.
 */
enum vk_way vk_rates_choose(const struct vulkan_rates *rates, bool is_imported);
