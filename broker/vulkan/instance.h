#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The VkInstance and the devices that were opened from it. For the setup thread, or before threads
 * are started.
 */
#include <stdint.h>
#include <volk.h>

#include "plan/executor.h"

struct vk_device;

enum { VK_MAX_DEVICES = RBK_MAX_DEVICES - 1 };

struct vk_instance {
	VkInstance handle; /* VK_NULL_HANDLE: no usable driver */
	struct vk_device *devices[VK_MAX_DEVICES];
	unsigned int n_devices;
};

/*
 * Make the VkInstance.
 * Return: 0; -ENOMEM; -EIO if there is no usable driver. On failure, handle is VK_NULL_HANDLE.
 */
int vk_instance_new(struct vk_instance *instance);

/* List the physical devices in @physical. Return: their number. */
uint32_t vk_instance_list(const struct vk_instance *instance,
			  VkPhysicalDevice physical[VK_MAX_DEVICES]);

/*
 * Replace the instance by a new one, while no device is open, and set physical of each device that
 * the new instance lists.
 * Return: 0; -EIO if a device is open or there is no driver; -ENOMEM.
 */
int vk_instance_renew(struct vk_instance *instance);
