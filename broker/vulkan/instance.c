/* SPDX-License-Identifier: MIT */
/* The VkInstance and the physical devices that it lists: see instance.h. */
#include "vulkan/instance.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "util/error.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/physical.h"

int vk_instance_new(struct vk_instance *instance)
{
	const VkApplicationInfo application = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "brokerd",
		.apiVersion = VK_API_VERSION_1_2,
	};
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &application,
	};
	VkInstance handle;
	int r;

	instance->handle = VK_NULL_HANDLE;
	if (volkGetInstanceVersion() < VK_API_VERSION_1_2)
		return error_origin(-EIO);
	r = vk_result(vkCreateInstance(&info, NULL, &handle), "vkCreateInstance");
	if (r)
		return error_fold(r);
	instance->handle = handle;
	return 0;
}

uint32_t vk_instance_list(const struct vk_instance *instance,
			  VkPhysicalDevice physical[VK_MAX_DEVICES])
{
	uint32_t n = VK_MAX_DEVICES;

	if (vkEnumeratePhysicalDevices(instance->handle, &n, physical) < 0)
		return 0;
	return n;
}

/* Compare the device with @physical by name, and by PCI address or else by UUID. */
static bool is_same(const struct vk_device *device, VkPhysicalDevice physical)
{
	const struct exec_identity *was = &device->identity;
	VkPhysicalDeviceProperties properties;
	struct exec_identity identity;

	vkGetPhysicalDeviceProperties(physical, &properties);
	vk_physical_identify(physical, &identity);
	if (strcmp(properties.deviceName, device->name) != 0 || vk_device_missing(physical))
		return false;
	if (was->has_pci && identity.has_pci)
		return was->pci_domain == identity.pci_domain && was->pci_bus == identity.pci_bus &&
		       was->pci_device == identity.pci_device &&
		       was->pci_function == identity.pci_function;
	return memcmp(was->uuid, identity.uuid, sizeof(was->uuid)) == 0;
}

static void set_physical(struct vk_device *device, VkPhysicalDevice physical)
{
	pthread_mutex_lock(&device->physical_lock);
	device->physical = physical;
	pthread_mutex_unlock(&device->physical_lock);
}

int vk_instance_renew(struct vk_instance *instance)
{
	VkPhysicalDevice physical[VK_MAX_DEVICES];
	uint32_t n;
	int r;

	for (unsigned int i = 0; i < instance->n_devices; i++)
		if (instance->devices[i] && instance->devices[i]->handle)
			return -EIO;
	for (unsigned int i = 0; i < instance->n_devices; i++)
		if (instance->devices[i])
			set_physical(instance->devices[i], VK_NULL_HANDLE);
	if (instance->handle)
		vkDestroyInstance(instance->handle, NULL);
	r = vk_instance_new(instance);
	if (r)
		return error_fold(r);
	n = vk_instance_list(instance, physical);
	for (unsigned int i = 0; i < instance->n_devices; i++)
		for (uint32_t k = 0; k < n && instance->devices[i]; k++)
			if (is_same(instance->devices[i], physical[k])) {
				set_physical(instance->devices[i], physical[k]);
				break;
			}
	return 0;
}
