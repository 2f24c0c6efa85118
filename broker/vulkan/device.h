#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One Vulkan device, as the files of this room share it
 *
 * struct vk_device lives as long as its executor. The logical device within it is opened and
 * closed, more than once if it is lost; handle is VK_NULL_HANDLE meanwhile. queue.h starts the
 * threads that run it, which outlive the logical device as well. Everything here is used by the
 * setup thread unless a function says otherwise.
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
	struct executor executor;     /* what the dispatcher sees */
	struct vk_instance *instance; /* NULL for a device that only compiles */
	unsigned int slot;            /* in instance->devices */

	pthread_mutex_t physical_lock; /* others than the setup thread look at it under this */
	VkPhysicalDevice physical;     /* VK_NULL_HANDLE: a lost device that is not there now */
	VkDevice handle;
	VkQueue queue; /* the submitting thread's alone once that runs */
	uint32_t queue_family;
	struct VolkDeviceTable vk;

	VkPhysicalDeviceMemoryProperties heaps;
	uint64_t memory_bytes;       /* of the largest device-local heap */
	uint32_t vram_heap;          /* that one */
	uint64_t gtt_bytes;          /* of the largest other heap, where it is a tier of its own */
	uint64_t import_align_bytes; /* VK_EXT_external_memory_host; 0: absent */
	uint64_t max_buffer_bytes;
	enum vk_variant variant;
	uint32_t subgroup_size; /* invocations in a subgroup, at most */
	bool is_software;
	bool is_integrated;
	bool has_budget;  /* VK_EXT_memory_budget */
	bool has_dma_buf; /* VK_EXT_external_memory_dma_buf */
	bool has_half;    /* storageBuffer16BitAccess */
	bool has_bytes;   /* storageBuffer8BitAccess */
	bool has_doubles; /* shaderFloat64 */
	bool imports;     /* memfds are imported: a probe passed */
	bool bounces;     /* bound tensors are copied into device memory and back by the device */
	uint32_t n_imports;
	uint32_t n_refused_imports; /* arenas alive that could not be imported */
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
	struct chunks command_chunks; /* setup thread: see command-memory.h */
	uint32_t n_blocks;

	char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
	char driver[VK_MAX_DRIVER_NAME_SIZE + VK_MAX_DRIVER_INFO_SIZE + 4];
	char matrices[64];          /* see matrices.h */
	struct vk_matrices product; /* what products of float16 can be made of */
	struct exec_identity identity;
	uint8_t device_uuid[VK_UUID_SIZE];
	uint8_t driver_uuid[VK_UUID_SIZE];
};

/*
 * Makes a device and opens it, without a thread. With @only_compiles there is no memory and nothing
 * to submit with either: drivers that run nothing have none.
 * Return: 0 or negative errno.
 */
int vk_device_new(VkPhysicalDevice physical, const struct vulkan_options *options,
		  bool only_compiles, struct vk_device **ret);

/*
 * Makes the logical device and all that lives as long as it. Closing asserts that everything that
 * was allocated from it is gone; accepts a device that is closed.
 * Return: 0; negative errno, it is closed then.
 */
int vk_device_open(struct vk_device *device, bool only_compiles);
void vk_device_close(struct vk_device *device);

/*
 * As in struct executor_ops: nothing is in flight, no block or plan is loaded. Implemented in
 * reopen.c.
 */
int vk_device_reopen(struct vk_device *device);

/* Any thread. */
void vk_device_sample(struct vk_device *device, struct exec_memory *ret);

/* Any thread. */
static inline bool vk_device_is_lost(const struct vk_device *device)
{
	/* Pairs with vk_device_lose() and, where it became false, with the end of reopening. */
	return atomic_load_explicit(&device->lost, memory_order_acquire);
}

/*
 * Opens the first device that @options allow, without threads, and an instance for it alone, to be
 * freed after it with vulkan_free(). Implemented in vulkan.c.
 * Return: 0, *ret is NULL if there is no device; negative errno.
 */
int vk_open_alone(const struct vulkan_options *options, struct vulkan **ret_vulkan,
		  struct vk_device **ret);

/* Ends its threads and closes it. Return: NULL. */
struct vk_device *vk_device_free(struct vk_device *device);

DEFINE_CLEANUP(struct vk_device *, vk_device_free)
