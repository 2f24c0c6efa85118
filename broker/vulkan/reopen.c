/* SPDX-License-Identifier: MIT */
/*
 * A lost device, opened anew
 *
 * The executor, its threads, prepared plans and imports of arenas outlive the logical device; what
 * belonged to that is gone when this is called, but for what the device held of arenas, which is
 * dropped here. After a reset the same VkPhysicalDevice makes another logical device. After
 * the card was unplugged, or its driver reloaded, instances go on listing what they found when
 * they were made, so a new one is asked, for the device with the same PCI address or UUID. What
 * was found out about the device before (names, sizes, paths, rates) still holds: the reactor reads
 * it meanwhile.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "util/error.h"
#include "util/log.h"
#include "vulkan/device.h"
#include "vulkan/rates.h"

/* Opens @physical; nothing of it is left if that fails. */
static int open_physical(struct vk_device *device, VkPhysicalDevice physical)
{
	VkPhysicalDevice before = device->physical;
	int r;

	pthread_mutex_lock(&device->physical_lock);
	device->physical = physical;
	pthread_mutex_unlock(&device->physical_lock);
	r = vk_device_open(device, false);
	if (!r && device->memory.page_bytes != device->executor.info.memory_page_bytes) {
		log_warning("%s is not what it was: not reopened", device->name);
		vk_device_close(device);
		r = error_origin(-EIO);
	}
	if (r) {
		pthread_mutex_lock(&device->physical_lock);
		device->physical = before;
		pthread_mutex_unlock(&device->physical_lock);
		return error_fold(r);
	}
	return 0;
}

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

/* Opens the same device of a new instance, which the device keeps then. */
static int open_in_new_instance(struct vk_device *device)
{
	VkPhysicalDevice physical[RBK_MAX_DEVICES];
	uint32_t n = RBK_MAX_DEVICES;
	VkInstance instance;
	int r;

	r = vk_instance_new(&instance);
	if (r)
		return error_fold(r);
	if (vkEnumeratePhysicalDevices(instance, &n, physical) < 0)
		n = 0;
	r = -EIO;
	for (uint32_t i = 0; i < n && r == -EIO; i++)
		if (is_same(device, physical[i]))
			r = open_physical(device, physical[i]);
	if (r) {
		vkDestroyInstance(instance, NULL);
		return error_fold(r);
	}
	if (device->instance)
		vkDestroyInstance(device->instance, NULL);
	device->instance = instance;
	return 0;
}

int vk_device_reopen(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	int r = -EIO;

	if (!vk_device_is_lost(device))
		return 0;
	if (device->handle) {
		vk_device_settle(device);
		vk_imports_drop(device);
		vk_device_close(device);
	}
	if (vk_device_fault(device, VULKAN_FAULT_OPEN) != VULKAN_FAULT_LOST) {
		r = open_physical(device, device->physical);
		if (r == -EIO)
			r = open_in_new_instance(device);
	}
	if (r)
		return r == -EIO ? r : error_fold(r);
	vk_rates_apply(device);
	/* The threads touch nothing of the new device before they see that it is not lost. */
	atomic_store_explicit(&queue->dead, false, memory_order_release);
	atomic_store_explicit(&device->lost, false, memory_order_release);
	vk_imports_restore(device);
	return 0;
}
