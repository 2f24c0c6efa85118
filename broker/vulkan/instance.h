#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The VkInstance, and the devices that were opened from it. For the setup thread, or before there
 * are threads.
 */
#include <stdint.h>
#include <volk.h>

#include "plan/executor.h"

struct vk_device;

enum { VK_MAX_DEVICES = RBK_MAX_DEVICES - 1 };

struct vk_instance {
	VkInstance handle; /* VK_NULL_HANDLE: there is no usable driver */
	struct vk_device *devices[VK_MAX_DEVICES];
	unsigned int n_devices;
};

/* Return: 0; -ENOMEM; -EIO, there is no usable driver. handle is VK_NULL_HANDLE then. */
int vk_instance_new(struct vk_instance *instance);

/* Return: the number of devices listed in @physical. */
uint32_t vk_instance_list(const struct vk_instance *instance,
			  VkPhysicalDevice physical[VK_MAX_DEVICES]);

/*
 * Make a new instance in place of the old one, while no device is open, and set physical of each
 * device that the new one lists.
 * Return: 0; -EIO, a device is open or there is no driver; -ENOMEM.
 */
int vk_instance_renew(struct vk_instance *instance);
