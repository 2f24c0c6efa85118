#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One Vulkan device, as the files of this room share it
 *
 * vk_device_new() makes the logical device and what belongs to it; queue.h starts the threads that
 * run it. Everything here is used by the setup thread unless a function says otherwise.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "util/cleanup.h"
#include "vulkan/arena-import.h"
#include "vulkan/memory.h"
#include "vulkan/mirror.h"
#include "vulkan/pipeline.h"
#include "vulkan/queue.h"
#include "vulkan/vulkan.h"

/* Which shader variants a device gets. */
enum vk_variant {
	VK_VARIANT_PLAIN,  /* software: registers only, one subgroup per workgroup */
	VK_VARIANT_SHARED, /* GPUs: tiles in shared memory, subgroup reductions */
	VK_VARIANT_COUNT,
};

struct vk_device {
	struct executor executor; /* what the dispatcher sees */
	struct vulkan *vulkan;    /* NULL for a device that only compiles */
	unsigned int slot;        /* in vulkan->devices */

	VkPhysicalDevice physical;
	VkDevice handle;
	VkQueue queue; /* the submitting thread's alone once that runs */
	uint32_t queue_family;
	struct VolkDeviceTable vk;

	VkPhysicalDeviceMemoryProperties heaps;
	uint64_t memory_bytes;       /* of the largest device-local heap */
	uint64_t import_align_bytes; /* VK_EXT_external_memory_host; 0: absent */
	uint64_t max_buffer_bytes;
	enum vk_variant variant;
	bool is_software;
	bool has_dma_buf; /* VK_EXT_external_memory_dma_buf */
	bool imports;     /* memfds are imported: a probe passed */
	bool bounces;     /* bound tensors are copied into device memory and back by the device */
	uint32_t n_imports;
	uint32_t n_refused_imports; /* arenas alive that could not be imported */
	struct vk_paths paths;

	struct vulkan_options options;
	_Atomic bool lost;

	struct vk_memory memory;
	struct vk_mirrors mirrors;
	struct vk_pipelines pipelines;
	struct vk_queue submit;

	char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
	char driver[VK_MAX_DRIVER_NAME_SIZE + VK_MAX_DRIVER_INFO_SIZE + 4];
	uint8_t device_uuid[VK_UUID_SIZE];
	uint8_t driver_uuid[VK_UUID_SIZE];
};

/*
 * Translates a VkResult, once, logging it at debug level with what was called.
 * Return: 0 for success; -ENOMEM; -EIO for everything else.
 */
int vk_result(VkResult result, const char *what);

/* Is anything missing for this room? Return: NULL if usable, else what is missing. */
const char *vk_device_missing(VkPhysicalDevice physical);

bool vk_physical_is_software(VkPhysicalDevice physical);

/*
 * Makes the logical device with its memory, mirrors and pipelines, no thread. With @only_compiles
 * there is no memory either: drivers that run nothing have none.
 * Return: 0 or negative errno.
 */
int vk_device_new(VkPhysicalDevice physical, const struct vulkan_options *options,
		  bool only_compiles, struct vk_device **ret);

/*
 * Opens the first device that @options allow, without threads, and an instance for it alone, to be
 * freed after it with vulkan_free(). Implemented in vulkan.c.
 * Return: 0, *ret is NULL if there is no device; negative errno.
 */
int vk_open_alone(const struct vulkan_options *options, struct vulkan **ret_vulkan,
		  struct vk_device **ret);

/* Everything that was allocated from it is gone; asserts so. Return: NULL. */
struct vk_device *vk_device_free(struct vk_device *device);

DEFINE_CLEANUP(struct vk_device *, vk_device_free)
