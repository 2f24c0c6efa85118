/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan driver that is Mesa's software device and says that it is a card
 *
 * For tests of what is done for cards alone, with right results and without one: bound tensors are
 * copied into its memory and back, shaders are those for GPUs, and it is taken with --gpu=auto. All
 * functions are lavapipe's but those that tell what kind of device it is.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <vulkan/vk_icd.h>
#include <vulkan/vulkan_core.h>

#define EXPORT __attribute__((visibility("default")))

typedef VkResult (*negotiate_fn)(uint32_t *version);

static PFN_vkGetInstanceProcAddr next_instance, next_physical;
static PFN_vkGetPhysicalDeviceProperties next_properties;
static PFN_vkGetPhysicalDeviceProperties2 next_properties2;

static void pretend(VkPhysicalDeviceProperties *properties)
{
	properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
	strcpy(properties->deviceName, "a card in software");
}

static VKAPI_ATTR void VKAPI_CALL card_properties(VkPhysicalDevice physical,
						  VkPhysicalDeviceProperties *ret)
{
	next_properties(physical, ret);
	pretend(ret);
}

static VKAPI_ATTR void VKAPI_CALL card_properties2(VkPhysicalDevice physical,
						   VkPhysicalDeviceProperties2 *ret)
{
	next_properties2(physical, ret);
	pretend(&ret->properties);
}

static PFN_vkVoidFunction get(PFN_vkGetInstanceProcAddr next, VkInstance instance, const char *name)
{
	PFN_vkVoidFunction function = next ? next(instance, name) : NULL;

	if (!function)
		return NULL;
	if (strcmp(name, "vkGetPhysicalDeviceProperties") == 0) {
		next_properties = (PFN_vkGetPhysicalDeviceProperties)function;
		return (PFN_vkVoidFunction)card_properties;
	}
	if (strcmp(name, "vkGetPhysicalDeviceProperties2") == 0 ||
	    strcmp(name, "vkGetPhysicalDeviceProperties2KHR") == 0) {
		next_properties2 = (PFN_vkGetPhysicalDeviceProperties2)function;
		return (PFN_vkVoidFunction)card_properties2;
	}
	return function;
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
	void *driver = dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL);
	negotiate_fn negotiate;

	if (!driver)
		return VK_ERROR_INITIALIZATION_FAILED;
	negotiate = (negotiate_fn)dlsym(driver, "vk_icdNegotiateLoaderICDInterfaceVersion");
	next_instance = (PFN_vkGetInstanceProcAddr)dlsym(driver, "vk_icdGetInstanceProcAddr");
	next_physical = (PFN_vkGetInstanceProcAddr)dlsym(driver, "vk_icdGetPhysicalDeviceProcAddr");
	return negotiate && next_instance ? negotiate(version) : VK_ERROR_INITIALIZATION_FAILED;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
									  const char *name)
{
	return get(next_instance, instance, name);
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance instance,
										const char *name)
{
	return get(next_physical, instance, name);
}
