/* SPDX-License-Identifier: MIT */
/*
 * Properties and features of a VkPhysicalDevice: see physical.h.
 *
 * Every GCN card under RADV has the required features (shm/device-needs.h), and so has lavapipe.
 * Newer features are not required, so that no card is excluded for convenience. Cooperative
 * matrices are optional.
 */
#include "vulkan/physical.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

int vk_physical_family(VkPhysicalDevice physical)
{
	VkQueueFamilyProperties families[16];
	uint32_t n = 16;
	int best = -1;

	vkGetPhysicalDeviceQueueFamilyProperties(physical, &n, families);
	for (uint32_t i = 0; i < n; i++) {
		if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || families[i].queueCount == 0)
			continue;
		if (best < 0 || !(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT)) {
			best = i;
			if (!(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT))
				break;
		}
	}
	return best;
}

bool vk_physical_is_software(VkPhysicalDevice physical)
{
	VkPhysicalDeviceProperties properties;

	vkGetPhysicalDeviceProperties(physical, &properties);
	return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

void vk_physical_features(VkPhysicalDevice physical, bool has[VULKAN_FEATURE_COUNT])
{
	VkPhysicalDeviceVulkan12Features vulkan12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
	};
	VkPhysicalDeviceVulkan11Features vulkan11 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
		.pNext = &vulkan12,
	};
	VkPhysicalDeviceFeatures2 features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
		.pNext = &vulkan11,
	};
	VkPhysicalDeviceSubgroupProperties subgroup = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &subgroup,
	};
	VkSubgroupFeatureFlags subgroups = 0;

	memset(has, 0, VULKAN_FEATURE_COUNT * sizeof(*has));
	vkGetPhysicalDeviceProperties2(physical, &properties);
	has[VULKAN_1_2] = properties.properties.apiVersion >= VK_API_VERSION_1_2;
	/* A device older than Vulkan 1.2 need not know the feature structures. */
	if (!has[VULKAN_1_2])
		return;
	vkGetPhysicalDeviceFeatures2(physical, &features);
	if (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
	    subgroup.supportedOperations & VK_SUBGROUP_FEATURE_BASIC_BIT)
		subgroups = subgroup.supportedOperations;
	has[VULKAN_BUFFER_DEVICE_ADDRESS] = vulkan12.bufferDeviceAddress;
	has[VULKAN_TIMELINE_SEMAPHORE] = vulkan12.timelineSemaphore;
	has[VULKAN_INT64] = features.features.shaderInt64;
	has[VULKAN_SUBGROUP_ARITHMETIC] = subgroups & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
	has[VULKAN_SUBGROUP_BALLOT] = subgroups & VK_SUBGROUP_FEATURE_BALLOT_BIT;
	has[VULKAN_WORKGROUP_256] =
		properties.properties.limits.maxComputeWorkGroupInvocations >= 256;
	has[VULKAN_COMPUTE_QUEUE] = vk_physical_family(physical) >= 0;
	has[VULKAN_STORAGE_16_BIT] = vulkan11.storageBuffer16BitAccess;
	has[VULKAN_STORAGE_8_BIT] = vulkan12.storageBuffer8BitAccess;
	has[VULKAN_FLOAT64] = features.features.shaderFloat64;
}

const char *vk_device_missing(VkPhysicalDevice physical)
{
	bool has[VULKAN_FEATURE_COUNT];

	vk_physical_features(physical, has);
	for (unsigned int i = 0; i < VULKAN_FEATURE_REQUIRED; i++)
		if (!has[i])
			return vulkan_feature_name(i);
	return NULL;
}

bool vk_has_extension(VkPhysicalDevice physical, const char *name)
{
	_cleanup_(freep) VkExtensionProperties *extensions = NULL;
	uint32_t n = 0;

	if (vkEnumerateDeviceExtensionProperties(physical, NULL, &n, NULL) || n == 0)
		return false;
	extensions = calloc(n, sizeof(*extensions));
	if (!extensions || vkEnumerateDeviceExtensionProperties(physical, NULL, &n, extensions) < 0)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(extensions[i].extensionName, name) == 0)
			return true;
	return false;
}

void vk_physical_identify(VkPhysicalDevice physical, struct exec_identity *ret)
{
	VkPhysicalDeviceDrmPropertiesEXT drm = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRM_PROPERTIES_EXT,
	};
	VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT,
	};
	VkPhysicalDeviceIDProperties id = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &id,
	};

	*ret = (struct exec_identity){
		.has_pci = vk_has_extension(physical, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME),
	};
	if (ret->has_pci) {
		pci.pNext = properties.pNext;
		properties.pNext = &pci;
	}
	if (vk_has_extension(physical, VK_EXT_PHYSICAL_DEVICE_DRM_EXTENSION_NAME)) {
		drm.pNext = properties.pNext;
		properties.pNext = &drm;
	}
	vkGetPhysicalDeviceProperties2(physical, &properties);
	memcpy(ret->uuid, id.deviceUUID, sizeof(ret->uuid));
	ret->pci_domain = pci.pciDomain;
	ret->pci_bus = (uint8_t)pci.pciBus;
	ret->pci_device = (uint8_t)pci.pciDevice;
	ret->pci_function = (uint8_t)pci.pciFunction;
	ret->has_render = drm.hasRender;
	if (drm.hasRender) {
		ret->render_major = (uint32_t)drm.renderMajor;
		ret->render_minor = (uint32_t)drm.renderMinor;
	}
}
