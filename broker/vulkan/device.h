#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One Vulkan device, as the files of this room share it
 *
 * struct vk_device lives as long as its executor. The logical device within it is opened and
 * closed, more than once if the device is lost; handle is VK_NULL_HANDLE while it is closed. The
 * device's two threads (queue.h) outlive the logical device as well. All functions and members are
 * for the setup thread unless a comment says otherwise.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "util/chunks.h"
#include "util/cleanup.h"
#include "vulkan/arena-import.h"
#include "vulkan/compile.h"
#include "vulkan/matrices.h"
#include "vulkan/memory.h"
#include "vulkan/pipeline.h"
#include "vulkan/queue.h"
#include "vulkan/record.h"
#include "vulkan/upload.h"
#include "vulkan/vulkan.h"

struct vk_instance;

struct vk_device {
	struct executor executor;     /* interface to the dispatcher */
	struct vk_instance *instance; /* NULL for a device that only compiles */
	unsigned int slot;            /* index in instance->devices */

	/* guards physical against threads other than the setup thread */
	pthread_mutex_t physical_lock;
	VkPhysicalDevice physical; /* VK_NULL_HANDLE: lost, and not listed by the instance now */
	VkDevice handle;
	VkQueue queue; /* used by the submitting thread only, once that runs */
	uint32_t queue_family;
	struct VolkDeviceTable vk;

	VkPhysicalDeviceMemoryProperties heaps;
	uint64_t memory_bytes;       /* size of the largest device-local heap */
	uint32_t vram_heap;          /* index of that heap */
	uint64_t gtt_bytes;          /* size of the largest other heap; 0: no tier of its own */
	uint64_t import_align_bytes; /* VK_EXT_external_memory_host; 0: absent */
	enum vk_variant variant;
	uint32_t subgroup_size; /* maximum number of invocations in a subgroup */
	bool is_software;
	bool is_integrated;
	bool has_budget;  /* VK_EXT_memory_budget */
	bool has_dma_buf; /* VK_EXT_external_memory_dma_buf */
	bool has_half;    /* storageBuffer16BitAccess */
	bool has_bytes;   /* storageBuffer8BitAccess */
	bool has_doubles; /* shaderFloat64 */
	bool imports;     /* memfds can be imported: a probe passed */
	/*
	 * Mappings that cannot be written can be imported. NVIDIA's driver pins pages for writing
	 * only (580.159).
	 */
	bool imports_read_only;
	bool bounces; /* the device copies bound tensors into device memory and back */
	uint32_t n_imports;
	uint32_t n_refused_imports; /* living arenas that could not be imported */
	struct vk_paths paths;

	struct vulkan_options options;
	_Atomic bool lost;

	struct vk_memory memory;
	struct vk_pipelines pipelines;
	struct vk_compiler compiler;
	struct vk_queue submit;
	struct vk_upload upload;
	struct vulkan_rates rates;
	struct vk_commands_cost commands_cost;
	struct chunks command_chunks; /* setup thread; memory for command-memory.h */
	uint32_t n_blocks;

	char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
	char driver[VK_MAX_DRIVER_NAME_SIZE + VK_MAX_DRIVER_INFO_SIZE + 4];
	char matrices[64];          /* see matrices.h */
	struct vk_matrices product; /* cooperative matrices for products of float16 */
	struct exec_identity identity;
	uint8_t device_uuid[VK_UUID_SIZE];
	uint8_t driver_uuid[VK_UUID_SIZE];
};

/*
 * Make a device and open it, without its threads. With @only_compiles the device has no memory and
 * no queue: that works also with drivers that run nothing.
 * Return: 0 or negative errno.
 */
int vk_device_new(VkPhysicalDevice physical, const struct vulkan_options *options,
		  bool only_compiles, struct vk_device **ret);

/*
 * Open the logical device and all that lives as long as it; close it. vk_device_close() asserts
 * that everything allocated from the logical device was freed, and accepts a closed device.
 * Return: 0; negative errno, and the device is closed.
 */
int vk_device_open(struct vk_device *device, bool only_compiles);
void vk_device_close(struct vk_device *device);

/*
 * Reopen a lost device, as in struct executor_ops: nothing is in flight, no block or plan is
 * loaded. Implemented in reopen.c.
 */
int vk_device_reopen(struct vk_device *device);

/* Any thread. */
static inline bool vk_device_is_lost(const struct vk_device *device)
{
	/*
	 * Pairs with vk_device_lose(), and with the store of false at the end of
	 * vk_device_reopen().
	 */
	return atomic_load_explicit(&device->lost, memory_order_acquire);
}

/*
 * Open the first device that @options allow, without threads, and an instance for this device
 * alone. The caller frees the device first, then the instance with vulkan_free(). Implemented in
 * vulkan.c.
 * Return: 0, *ret is NULL if there is no device; negative errno.
 */
int vk_open_alone(const struct vulkan_options *options, struct vulkan **ret_vulkan,
		  struct vk_device **ret);

/* End the device's threads, close the device and free it. Return: NULL. */
struct vk_device *vk_device_free(struct vk_device *device);

DEFINE_CLEANUP(struct vk_device *, vk_device_free)
