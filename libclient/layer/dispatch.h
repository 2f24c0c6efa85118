#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Instances and devices of Vulkan, and the functions of the next layer
 *
 * They are found by the first word of a handle, which is the loader's and the same for all handles
 * of one instance or device. Finding takes no lock. An object stays valid until it is destroyed,
 * which Vulkan forbids while it is in use.
 */
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>
#include <vulkan/vk_layer.h>

#include "libclient/layer/gpu.h"
#include "libclient/layer/lost.h"
#include "libclient/layer/table.h"

struct cutter;
struct mover;
struct object;

/* A place in the lists of dispatch.c */
struct entry;

/* A physical device of one instance. */
struct physical {
	struct physical *next;
	struct instance *instance;
	VkPhysicalDevice handle;
	struct gpu_identity identity;
	bool is_cpu;     /* a CPU renderer: its memory is host memory */
	bool keeps_base; /* lavapipe (Mesa 22.3): a base stays for later indirect dispatches */
	bool has_budget; /* the driver has VK_EXT_memory_budget */
	bool can_budget; /* vkGetPhysicalDeviceMemoryProperties2() is available */
	uint32_t api_version;
	uint32_t max_push_bytes; /* of push constants */
	struct gpu *gpu;         /* atomic; of this process or, in a child, of its parent */
	VkPhysicalDeviceMemoryProperties memory; /* as the driver reports them */
	uint32_t local_heaps;                    /* bits: device-local heaps */
	uint64_t render_node,
		primary_node; /* dev_t of the DRM nodes; 0: there is none, or unknown */
};

struct instance {
	VkInstance handle;
	uint32_t api_version;                    /* that the program asked for */
	PFN_vkGetInstanceProcAddr get_proc_addr; /* the next layer's, as are all functions here */
	PFN_GetPhysicalDeviceProcAddr get_physical_proc_addr; /* NULL with old loaders */
	PFN_vkDestroyInstance destroy;
	PFN_vkEnumerateDeviceExtensionProperties enumerate_extensions;
	PFN_vkGetPhysicalDeviceProperties properties;
	PFN_vkGetPhysicalDeviceProperties2 properties2; /* NULL: not available */
	PFN_vkGetPhysicalDeviceFeatures features;
	PFN_vkGetPhysicalDeviceQueueFamilyProperties queue_families;
	PFN_vkGetPhysicalDeviceMemoryProperties memory_properties;
	PFN_vkGetPhysicalDeviceMemoryProperties2 memory_properties2; /* NULL: not available */
	struct physical *physicals; /* atomic; the list only grows */
};

/* Memory of a device, a record of its table. */
struct allocation {
	uint64_t handle;
	uint64_t bytes;        /* a multiple of the page size */
	struct object *object; /* a shared object; else NULL */
	uint32_t gpus;         /* bits: the device's gpus that have an instance */
	uint8_t heap;
	bool is_charged; /* to each of these gpus, out of its credit */
};

struct device {
	VkDevice handle;
	struct instance *instance;
	PFN_vkGetDeviceProcAddr get_proc_addr;
	PFN_vkDestroyDevice destroy;
	PFN_vkAllocateMemory allocate;
	PFN_vkFreeMemory free;
	PFN_vkGetMemoryFdKHR get_fd; /* NULL: not available */
	PFN_vkQueueSubmit submit;
	PFN_vkQueueSubmit2 submit2, submit2_khr; /* NULL: not available */
	PFN_vkCreateFence create_fence;
	PFN_vkDestroyFence destroy_fence;
	PFN_vkResetFences reset_fences;
	PFN_vkGetFenceStatus fence_status;
	PFN_vkWaitForFences wait_fences;
	struct lost_functions below; /* functions of lost.c */
	uint32_t is_lost;            /* atomic: a call has returned VK_ERROR_DEVICE_LOST */
	struct physical *physical;   /* the first of a group */
	uint32_t n_gpus;             /* 0: no physical device is leased, nothing is counted */
	struct gpu *gpus[VK_MAX_DEVICE_GROUP_SIZE]; /* NULL: this physical device is not leased */
	struct table table;                         /* of struct allocation */
	struct submissions submissions;             /* private to timeslice.c and ends.c */
	struct cutter *cutter; /* NULL: the process does not share its device's time */
	struct mover *mover;   /* NULL: memory of the device is not moved */
};

/* ---- dispatch.c ---- */

/*
 * Reserve an entry of a list. Return: an entry for dispatch_add_instance() or
 * dispatch_add_device(), which cannot fail, or for dispatch_give_back(); NULL without memory.
 */
struct entry *dispatch_reserve_instance(void);
struct entry *dispatch_reserve_device(void);
void dispatch_give_back(struct entry *entry);
/* Add an instance or a device, whose handle is known now, to its list. */
void dispatch_add_instance(struct entry *entry, struct instance *instance);
void dispatch_add_device(struct entry *entry, struct device *device);

/*
 * Find an instance or a device by its handle, or by a handle that belongs to it. Return: NULL if it
 * is unknown.
 */
struct instance *dispatch_instance(const void *handle);
struct device *dispatch_device(const void *handle);

/*
 * Remove an instance or a device from the lists, so that it is not found any more. Return: the
 * removed object.
 */
struct instance *dispatch_remove_instance(VkInstance handle);
struct device *dispatch_remove_device(VkDevice handle);

/* Free an instance and the records of its physical devices. */
void dispatch_free_instance(struct instance *instance);

/* Find or record a physical device. Return: NULL without memory. */
struct physical *dispatch_physical(VkPhysicalDevice handle);
/* Return the version of Vulkan that the program may use on the device. */
uint32_t dispatch_version(const struct device *device);
/* Find the device's lease; may request one from the broker. Return: NULL without memory. */
struct gpu *dispatch_gpu(struct physical *physical, bool insist);

/*
 * List the driver's extensions, with room for one more behind them.
 * Return: VK_SUCCESS and a list to be freed.
 */
VkResult dispatch_extensions(const struct physical *physical, uint32_t *ret_n,
			     VkExtensionProperties **ret);

/* ---- memory.c ---- */

VkResult memory_allocate(struct device *device, const VkMemoryAllocateInfo *info,
			 const VkAllocationCallbacks *allocator, VkDeviceMemory *ret);
void memory_free(struct device *device, VkDeviceMemory memory,
		 const VkAllocationCallbacks *allocator);
VkResult memory_get_fd(struct device *device, const VkMemoryGetFdInfoKHR *info, int *ret_fd);
/* Uncharge an allocation that the program leaked: a record of a struct device's table. */
void memory_forget(const void *record, void *device);
/* Read the memory use that the driver reports, and charge the overhead. */
void memory_look(struct physical *physical, struct gpu *gpu);

/* ---- properties.c ---- */

void properties_memory(struct physical *physical, VkPhysicalDeviceMemoryProperties *ret);
void properties_memory2(struct physical *physical, VkPhysicalDeviceMemoryProperties2 *ret);
VkResult properties_extensions(struct physical *physical, const char *layer, uint32_t *n,
			       VkExtensionProperties *ret);
