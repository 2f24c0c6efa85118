/* SPDX-License-Identifier: MIT */
/* One Vulkan device: see device.h. */
#include "vulkan/device.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/device-needs.h"
#include "util/error.h"
#include "vulkan/driver.h"
#include "vulkan/matrices.h"
#include "vulkan/physical.h"

/*
 * Find the sizes of the memory tiers. On a discrete GPU, the largest device-local heap is its own
 * memory, and the largest other heap, host memory that it can reach, is a tier of its own. On an
 * integrated GPU, all heaps are parts of one pool.
 */
static void measure_heaps(struct vk_device *device)
{
	device->memory_bytes = 0;
	device->gtt_bytes = 0;
	for (uint32_t i = 0; i < device->heaps.memoryHeapCount; i++) {
		const VkMemoryHeap *heap = &device->heaps.memoryHeaps[i];
		bool is_local = heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
		uint64_t *bytes = is_local ? &device->memory_bytes : &device->gtt_bytes;

		if (device->is_integrated) {
			device->memory_bytes += heap->size;
		} else if (heap->size > *bytes && (is_local || !device->is_software)) {
			*bytes = heap->size;
			if (is_local)
				device->vram_heap = i;
		}
	}
}

/* Find which element types other than those of 32 bits the device's shaders can use. */
static void find_types(struct vk_device *device)
{
	bool has[VULKAN_FEATURE_COUNT];

	vk_physical_features(device->physical, has);
	device->has_half = has[VULKAN_STORAGE_16_BIT];
	device->has_bytes = has[VULKAN_STORAGE_8_BIT];
	device->has_doubles =
		has[VULKAN_FLOAT64] && !(device->options.force & VULKAN_FORCE_NO_DOUBLES);
}

static void describe(struct vk_device *device)
{
	VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT,
	};
	VkPhysicalDeviceVulkan12Properties vulkan12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
	};
	VkPhysicalDeviceVulkan11Properties vulkan11 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
		.pNext = &vulkan12,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &vulkan11,
	};
	bool imports =
		vk_has_extension(device->physical, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);

	if (imports)
		vulkan12.pNext = &host;
	vkGetPhysicalDeviceProperties2(device->physical, &properties);
	vkGetPhysicalDeviceMemoryProperties(device->physical, &device->heaps);

	snprintf(device->name, sizeof(device->name), "%s", properties.properties.deviceName);
	snprintf(device->driver, sizeof(device->driver), "%s%s%s", vulkan12.driverName,
		 vulkan12.driverInfo[0] ? ", " : "", vulkan12.driverInfo);
	memcpy(device->device_uuid, properties.properties.pipelineCacheUUID, VK_UUID_SIZE);
	memcpy(device->driver_uuid, vulkan11.driverUUID, VK_UUID_SIZE);
	device->has_dma_buf =
		vk_has_extension(device->physical, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) &&
		vk_has_extension(device->physical, VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME);
	device->import_align_bytes = imports ? host.minImportedHostPointerAlignment : 0;
	device->imports_read_only = vulkan12.driverID != VK_DRIVER_ID_NVIDIA_PROPRIETARY;
	device->is_software = properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
	device->bounces = properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
	device->is_integrated =
		properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
	find_types(device);
	measure_heaps(device);
	/* A software driver reports the memory use of the machine, not of the process. */
	device->has_budget =
		!device->is_software &&
		vk_has_extension(device->physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
	vk_physical_identify(device->physical, &device->identity);

	device->subgroup_size = vulkan11.subgroupSize;
	vk_matrices_describe(device->physical, device->matrices, sizeof(device->matrices));
	device->product = (struct vk_matrices){0};
	if (device->has_half)
		vk_matrices_choose(device->physical, &device->product);
	/* Plain variants exchange values among eight invocations of one subgroup. */
	device->variant = device->is_software && vulkan11.subgroupSize >= 8 ? VK_VARIANT_PLAIN
									    : VK_VARIANT_SHARED;
	if (device->options.force & VULKAN_FORCE_PLAIN)
		device->variant = VK_VARIANT_PLAIN;
	if (device->options.force & VULKAN_FORCE_SHARED)
		device->variant = VK_VARIANT_SHARED;
	if (device->options.force & VULKAN_FORCE_UPLOAD)
		device->bounces = true;
}

struct libraries {
	char **names;
	size_t n;
};

static void libraries_deinit(struct libraries *libraries)
{
	for (size_t i = 0; i < libraries->n; i++)
		free(libraries->names[i]);
	free(libraries->names);
}

static int note_library(struct dl_phdr_info *info, size_t size, void *data)
{
	struct libraries *libraries = data;
	char **names;

	/* Skip the program itself and the kernel's vDSO. */
	if (!info->dlpi_name || info->dlpi_name[0] != '/')
		return 0;
	names = realloc(libraries->names, (libraries->n + 1) * sizeof(*names));
	if (!names)
		return 1;
	libraries->names = names;
	names[libraries->n] = strdup(info->dlpi_name);
	if (!names[libraries->n])
		return 1;
	libraries->n++;
	return 0;
}

/*
 * Keep the driver's libraries loaded after its last instance. Drivers leave threads and
 * thread-local destructors behind, whose code must stay mapped, and leak checkers must still see
 * memory that drivers' globals refer to. All libraries are pinned: the driver's own cannot be told
 * apart, and pinning only a part of them is worse than pinning none. NVIDIA's driver consists of
 * several libraries: with only the library of the Vulkan functions pinned, driver 580.159 freed
 * memory twice when it was unloaded for the second time.
 */
static void pin_driver(void)
{
	struct libraries libraries = {NULL, 0};

	/* No listed library is unloaded meanwhile: no other thread loads or unloads any. */
	dl_iterate_phdr(note_library, &libraries);
	for (size_t i = 0; i < libraries.n; i++)
		(void)dlopen(libraries.names[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
	libraries_deinit(&libraries);
}

/*
 * Submit an empty command buffer. RADV 22.3.6 allocates memory for a command buffer and a queue at
 * their first use, and crashes if memory, or the card, is gone by then.
 */
static int submit_first(struct vk_device *device)
{
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};
	VkCommandBuffer commands = device->submit.setup_commands;
	const VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &commands,
	};
	VkResult result;

	result = device->vk.vkBeginCommandBuffer(commands, &begin);
	if (result == VK_SUCCESS)
		result = device->vk.vkEndCommandBuffer(commands);
	if (result == VK_SUCCESS)
		result = device->vk.vkQueueSubmit(device->queue, 1, &info, VK_NULL_HANDLE);
	if (result == VK_SUCCESS)
		result = device->vk.vkQueueWaitIdle(device->queue);
	return vk_result(result, "the first submission");
}

int vk_device_open(struct vk_device *device, bool only_compiles)
{
	const char *extensions[3 + VK_MATRICES_EXTENSIONS];
	struct vk_matrices_features matrices;
	struct vk_upload *upload = &device->upload;
	const float priorities[2] = {1.0f, 1.0f};
	VkDeviceQueueCreateInfo queues[2] = {
		{
			.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
			.queueCount = 1,
			.pQueuePriorities = priorities,
		},
		{
			.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
			.queueCount = 1,
			.pQueuePriorities = priorities,
		},
	};
	const VkPhysicalDeviceVulkan11Features vulkan11 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
		.storageBuffer16BitAccess = device->has_half,
	};
	VkPhysicalDeviceVulkan12Features vulkan12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.pNext = (void *)&vulkan11,
		.storageBuffer8BitAccess = device->has_bytes,
		.shaderFloat16 = device->product.m > 0,
		.vulkanMemoryModel = device->product.m > 0,
		.bufferDeviceAddress = VK_TRUE,
		.timelineSemaphore = VK_TRUE,
	};
	const VkPhysicalDeviceFeatures2 features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
		.pNext = device->product.m > 0 ? vk_matrices_features(&matrices, &vulkan12)
					       : &vulkan12,
		.features = {.shaderFloat64 = device->has_doubles, .shaderInt64 = VK_TRUE},
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.pNext = &features,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = queues,
		.ppEnabledExtensionNames = extensions,
	};
	int r;

	device->queue_family = vk_physical_family(device->physical);
	vk_upload_find_queue(device);
	queues[0].queueFamilyIndex = device->queue_family;
	queues[1].queueFamilyIndex = upload->family;
	if (upload->has_queue && upload->family == device->queue_family)
		queues[0].queueCount = 2;
	else if (upload->has_queue)
		info.queueCreateInfoCount = 2;
	if (device->import_align_bytes)
		extensions[info.enabledExtensionCount++] =
			VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
	if (device->has_dma_buf) {
		extensions[info.enabledExtensionCount++] = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
		extensions[info.enabledExtensionCount++] =
			VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME;
	}
	for (unsigned int i = 0; device->product.m > 0 && i < VK_MATRICES_EXTENSIONS; i++)
		extensions[info.enabledExtensionCount++] = vk_matrices_extensions[i];
	r = vk_result(vkCreateDevice(device->physical, &info, NULL, &device->handle),
		      "vkCreateDevice");
	if (r) {
		device->handle = VK_NULL_HANDLE;
		return error_fold(r);
	}
	volkLoadDeviceTable(&device->vk, device->handle);
	pin_driver();
	device->vk.vkGetDeviceQueue(device->handle, device->queue_family, 0, &device->queue);

	r = vk_pipelines_init(device);
	if (!r && !only_compiles)
		r = vk_memory_init(device);
	if (!r && !only_compiles)
		r = vk_queue_open(device);
	if (!r && !only_compiles)
		r = vk_upload_open(device);
	if (!r && !only_compiles)
		r = submit_first(device);
	if (r) {
		vk_device_close(device);
		return error_fold(r);
	}
	return 0;
}

void vk_device_close(struct vk_device *device)
{
	if (!device->handle)
		return;
	vk_compile_end(device);
	vk_device_settle(device);
	vk_upload_close(device);
	vk_queue_close(device);
	vk_pipelines_deinit(device);
	assert(device->n_blocks == 0);
	vk_memory_deinit(device);
	device->vk.vkDestroyDevice(device->handle, NULL);
	device->handle = VK_NULL_HANDLE;
}

int vk_device_new(VkPhysicalDevice physical, const struct vulkan_options *options,
		  bool only_compiles, struct vk_device **ret)
{
	_cleanup_(vk_device_freep) struct vk_device *device = NULL;
	int r;

	device = calloc(1, sizeof(*device));
	if (!device)
		return error_origin(-ENOMEM);
	list_init(&device->memory.allocations);
	chunks_init(&device->command_chunks, CHUNKS_SMALL);
	pthread_mutex_init(&device->physical_lock, NULL);
	sem_init(&device->compiler.ended, 0, 0);
	vk_paths_init(device);
	device->physical = physical;
	device->options = *options;
	/* options->cache_dir is borrowed for this call only. */
	device->options.cache_dir = NULL;
	describe(device);
	r = vk_pipelines_set_path(device, options->cache_dir);
	if (!r)
		r = vk_device_open(device, only_compiles);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(device);
	return 0;
}

struct vk_device *vk_device_free(struct vk_device *device)
{
	if (!device)
		return NULL;
	vk_queue_stop(device);
	assert(device->n_imports == 0);
	vk_device_close(device);
	chunks_deinit(&device->command_chunks);
	vk_paths_deinit(device);
	pthread_mutex_destroy(&device->physical_lock);
	sem_destroy(&device->compiler.ended);
	vk_pipelines_free(&device->pipelines);
	free(device);
	return NULL;
}
