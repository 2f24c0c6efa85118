#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Properties and features of a VkPhysicalDevice, before a logical device is made of it. Any thread.
 */
#include <stdbool.h>
#include <volk.h>

#include "plan/executor.h"
#include "shm/device-needs.h"

/*
 * Choose a queue family for compute; prefer a family without graphics.
 * Return: its index; -1 if no family computes.
 */
int vk_physical_family(VkPhysicalDevice physical);

bool vk_physical_is_software(VkPhysicalDevice physical);

/* Find which features of enum vulkan_feature the device has. */
void vk_physical_features(VkPhysicalDevice physical, bool has[VULKAN_FEATURE_COUNT]);

/*
 * Return: NULL if the device has all that this room requires; else the name of a missing feature.
 */
const char *vk_device_missing(VkPhysicalDevice physical);

bool vk_has_extension(VkPhysicalDevice physical, const char *name);

/* Fill in the hardware identity of the device: UUID, PCI address, render node. */
void vk_physical_identify(VkPhysicalDevice physical, struct exec_identity *ret);
