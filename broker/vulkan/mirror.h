#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Mirrors: constants in device memory
 *
 * A constant is bytes of an immutable arena, so a copy in device memory stays true. It is made once
 * and shared by the plans of one owner that name the same bytes; never between owners, who
 * could otherwise learn from timing what others hold. Setup thread only.
 */
#include <stdint.h>

#include "plan/plan.h"
#include "vulkan/memory.h"

struct vk_device;
struct vk_mirror;

struct vk_mirrors {
	struct vk_mirror *first;
	uint32_t n;
};

/*
 * Finds or makes the mirror of @constant and takes a reference.
 * Return: 0; VK_MEMORY_E_FULL; negative errno (-EIO: the device is lost).
 */
int vk_mirror_get(struct vk_device *device, const struct plan_constant *constant,
		  struct vk_mirror **ret);
/* Frees it with the last reference. Return: NULL. */
struct vk_mirror *vk_mirror_unref(struct vk_device *device, struct vk_mirror *mirror);

VkDeviceAddress vk_mirror_address(const struct vk_mirror *mirror);
uint64_t vk_mirror_bytes(const struct vk_mirror *mirror);
