#pragma once
/* SPDX-License-Identifier: MIT */
/* Properties and features of a VkPhysicalDevice, before a device is made of it. Any thread. */
#include <stdbool.h>
#include <volk.h>

#include "plan/executor.h"
#include "shm/device-needs.h"

/* Return: the queue family to use, -1 if none computes. Prefers one that does nothing else. */
int vk_physical_family(VkPhysicalDevice physical);

bool vk_physical_is_software(VkPhysicalDevice physical);

/* Finds which features of enum vulkan_feature the device has. */
void vk_physical_features(VkPhysicalDevice physical, bool has[VULKAN_FEATURE_COUNT]);

/* Is anything missing for this room? Return: NULL if usable, else what is missing. */
const char *vk_device_missing(VkPhysicalDevice physical);

bool vk_has_extension(VkPhysicalDevice physical, const char *name);

/* Say which hardware the device is. */
void vk_physical_identify(VkPhysicalDevice physical, struct exec_identity *ret);
