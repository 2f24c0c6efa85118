/* SPDX-License-Identifier: MIT */
/*
 * Instances and devices of Vulkan, and the functions of the next layer
 *
 * Two lists hold entries that are never freed but reused, so that lookups may walk the lists at any
 * time. A program that makes and destroys instances for days needs no more entries than it had at
 * one time. An entry is reserved before the next layer is called: an instance that the next layer
 * has made belongs to the loader, which destroys it itself if a layer above fails. The lock for
 * changes is in memory that fork() wipes, so a child finds it free. The lists themselves are
 * inherited, because a child may destroy what it has inherited.
 */
#include "libclient/layer/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "libclient/layer/process.h"

struct entry {
	struct entry *next;
	const void *key; /* atomic; NULL: free; &reserved: it gets its key soon */
	void *object;    /* stored before the key */
};

static struct entry *instances, *devices; /* atomic */
static const char reserved;

static const void *key_of(const void *handle)
{
	return *(const void *const *)handle;
}

static struct entry *find(struct entry *const *list, const void *key)
{
	struct entry *entry = __atomic_load_n(list, __ATOMIC_ACQUIRE);

	while (entry && __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE) != key)
		entry = entry->next;
	return entry;
}

/* Return: a free entry, which no other thread gets; NULL without memory. */
static struct entry *reserve(struct entry **list)
{
	struct entry *entry;

	pthread_mutex_lock(process_list_lock());
	entry = find(list, NULL);
	if (entry) {
		__atomic_store_n(&entry->key, &reserved, __ATOMIC_RELAXED);
	} else {
		entry = calloc(1, sizeof(*entry));
		if (entry) {
			entry->key = &reserved;
			entry->next = *list;
			__atomic_store_n(list, entry, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(process_list_lock());
	return entry;
}

static void fill(struct entry *entry, const void *key, void *object)
{
	entry->object = object;
	__atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
}

static void *take_out(struct entry *const *list, const void *key)
{
	struct entry *entry = find(list, key);
	void *object;

	if (!entry)
		return NULL;
	/* Read the object first: without its key the entry may be reused at once. */
	object = entry->object;
	__atomic_store_n(&entry->key, NULL, __ATOMIC_RELEASE);
	return object;
}

struct entry *dispatch_reserve_instance(void)
{
	return reserve(&instances);
}

struct entry *dispatch_reserve_device(void)
{
	return reserve(&devices);
}

void dispatch_give_back(struct entry *entry)
{
	__atomic_store_n(&entry->key, NULL, __ATOMIC_RELEASE);
}

void dispatch_add_instance(struct entry *entry, struct instance *instance)
{
	fill(entry, key_of(instance->handle), instance);
}

void dispatch_add_device(struct entry *entry, struct device *device)
{
	fill(entry, key_of(device->handle), device);
}

struct instance *dispatch_instance(const void *handle)
{
	struct entry *entry = find(&instances, key_of(handle));

	return entry ? entry->object : NULL;
}

struct device *dispatch_device(const void *handle)
{
	struct entry *entry = find(&devices, key_of(handle));

	return entry ? entry->object : NULL;
}

struct instance *dispatch_remove_instance(VkInstance handle)
{
	return take_out(&instances, key_of(handle));
}

struct device *dispatch_remove_device(VkDevice handle)
{
	return take_out(&devices, key_of(handle));
}

void dispatch_free_instance(struct instance *instance)
{
	while (instance->physicals) {
		struct physical *physical = instance->physicals;

		instance->physicals = physical->next;
		free(physical);
	}
	free(instance);
}

/* ---- Physical devices ---- */

VkResult dispatch_extensions(const struct physical *physical, uint32_t *ret_n,
			     VkExtensionProperties **ret)
{
	PFN_vkEnumerateDeviceExtensionProperties enumerate =
		physical->instance->enumerate_extensions;
	VkExtensionProperties *list = NULL;
	VkResult result;
	uint32_t n;

	do {
		free(list);
		n = 0;
		result = enumerate(physical->handle, NULL, &n, NULL);
		if (result != VK_SUCCESS)
			return result;
		list = calloc((size_t)n + 1, sizeof(*list));
		if (!list)
			return VK_ERROR_OUT_OF_HOST_MEMORY;
		result = enumerate(physical->handle, NULL, &n, list);
	} while (result == VK_INCOMPLETE);
	if (result != VK_SUCCESS) {
		free(list);
		return result;
	}
	*ret_n = n;
	*ret = list;
	return VK_SUCCESS;
}

/* Find out about an extension. Return: false without memory. */
static bool ask_extension(const struct physical *physical, const char *name, bool *ret_has)
{
	VkExtensionProperties *list;
	VkResult result;
	uint32_t n;

	*ret_has = false;
	result = dispatch_extensions(physical, &n, &list);
	if (result != VK_SUCCESS)
		return result != VK_ERROR_OUT_OF_HOST_MEMORY;
	for (uint32_t i = 0; i < n; i++)
		*ret_has |= strcmp(list[i].extensionName, name) == 0;
	free(list);
	return true;
}

/* Find the kernel's nodes of the device. Return: false without memory. */
static bool ask_nodes(struct physical *physical)
{
	struct instance *instance = physical->instance;
	VkPhysicalDeviceDrmPropertiesEXT nodes = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRM_PROPERTIES_EXT,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &nodes,
	};
	bool has_nodes;

	if (!instance->properties2)
		return true;
	if (!ask_extension(physical, VK_EXT_PHYSICAL_DEVICE_DRM_EXTENSION_NAME, &has_nodes))
		return false;
	if (!has_nodes)
		return true;
	instance->properties2(physical->handle, &properties);
	if (nodes.hasRender)
		physical->render_node =
			makedev((unsigned int)nodes.renderMajor, (unsigned int)nodes.renderMinor);
	if (nodes.hasPrimary)
		physical->primary_node =
			makedev((unsigned int)nodes.primaryMajor, (unsigned int)nodes.primaryMinor);
	return true;
}

/* Return: false without memory. */
static bool ask_properties(struct physical *physical)
{
	struct instance *instance = physical->instance;
	VkPhysicalDeviceDriverProperties driver = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES,
	};
	VkPhysicalDeviceIDProperties id = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
		.pNext = &driver, /* ignored by drivers that do not know it */
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &id,
	};

	if (instance->properties2)
		instance->properties2(physical->handle, &properties);
	else
		instance->properties(physical->handle, &properties.properties);
	physical->api_version = properties.properties.apiVersion;
	physical->max_push_bytes = properties.properties.limits.maxPushConstantsSize;
	physical->is_cpu = properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
	physical->keeps_base = driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE;
	physical->identity.has_uuid = instance->properties2;
	physical->identity.is_cpu = physical->is_cpu;
	if (!ask_nodes(physical))
		return false;
	memcpy(physical->identity.uuid, id.deviceUUID, GPU_UUID_BYTES);
	snprintf(physical->identity.name, sizeof(physical->identity.name), "%s",
		 properties.properties.deviceName);
	physical->can_budget = instance->memory_properties2;
	instance->memory_properties(physical->handle, &physical->memory);
	for (uint32_t i = 0; i < physical->memory.memoryHeapCount; i++)
		if (physical->memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
			physical->local_heaps |= 1u << i;
	return ask_extension(physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, &physical->has_budget);
}

static struct physical *find_physical(struct instance *instance, VkPhysicalDevice handle)
{
	struct physical *physical = __atomic_load_n(&instance->physicals, __ATOMIC_ACQUIRE);

	while (physical && physical->handle != handle)
		physical = physical->next;
	return physical;
}

struct physical *dispatch_physical(VkPhysicalDevice handle)
{
	struct instance *instance = dispatch_instance(handle);
	struct physical *physical = instance ? find_physical(instance, handle) : NULL;
	struct physical *other;

	if (physical || !instance)
		return physical;
	physical = calloc(1, sizeof(*physical));
	if (!physical)
		return NULL;
	physical->instance = instance;
	physical->handle = handle;
	/* No lock is held while the driver is called. */
	if (!ask_properties(physical)) {
		free(physical);
		return NULL;
	}
	pthread_mutex_lock(process_list_lock());
	other = find_physical(instance, handle);
	if (!other) {
		physical->next = instance->physicals;
		__atomic_store_n(&instance->physicals, physical, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(process_list_lock());
	if (!other)
		return physical;
	free(physical);
	return other;
}

uint32_t dispatch_version(const struct device *device)
{
	const uint32_t asked = device->instance->api_version, there = device->physical->api_version;

	return asked < there ? asked : there;
}

struct gpu *dispatch_gpu(struct physical *physical, bool insist)
{
	struct gpu *gpu = __atomic_load_n(&physical->gpu, __ATOMIC_ACQUIRE);

	if (gpu && gpu_is_ours(gpu) && gpu_state(gpu) != GPU_WITHOUT)
		return gpu;
	gpu = gpu_get(&physical->identity, insist);
	if (!gpu)
		return NULL;
	__atomic_fetch_or(&gpu->local_heaps, physical->local_heaps, __ATOMIC_RELAXED);
	__atomic_store_n(&physical->gpu, gpu, __ATOMIC_RELEASE);
	return gpu;
}
