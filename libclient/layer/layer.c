/* SPDX-License-Identifier: MIT */
/*
 * Functions that the loader and programs call
 *
 * The loader finds the layer by its manifest, asks it for interface version 2, and inserts it into
 * the chain between the program, with any layers above, and the driver, with any layers below.
 * Functions of the next layer are looked up once, when an instance or a device is made: later
 * look-ups through the loader would return the top of the chain.
 *
 * Creating a device fails if no lease for it is granted. The reason is written to standard error,
 * since programs report no more than VK_ERROR_INITIALIZATION_FAILED.
 */
#include "libclient/layer/layer.h"

#include <stdlib.h>
#include <string.h>

#include <vulkan/vulkan_core.h>
#include <vulkan/vk_layer.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/lost.h"
#include "libclient/layer/mover.h"
#include "libclient/layer/process.h"
#include "libclient/layer/recording.h"
#include "libclient/layer/say.h"
#include "libclient/layer/submit.h"
#include "libclient/layer/timeslice.h"

#define FUNCTION(from, handle, name) ((PFN_##name)(from)(handle, #name))

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc_addr(VkInstance handle,
								       const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc_addr(VkDevice handle,
								     const char *name);

/* ---- Instances ---- */

static VkLayerInstanceCreateInfo *instance_link(const VkInstanceCreateInfo *info)
{
	const VkLayerInstanceCreateInfo *each = info->pNext;

	while (each && !(each->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO &&
			 each->function == VK_LAYER_LINK_INFO))
		each = each->pNext;
	return (VkLayerInstanceCreateInfo *)each;
}

static bool has_version_1_1(const VkInstanceCreateInfo *info)
{
	return info->pApplicationInfo && info->pApplicationInfo->apiVersion >= VK_API_VERSION_1_1;
}

static bool has_properties2_khr(const VkInstanceCreateInfo *info)
{
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
		if (strcmp(info->ppEnabledExtensionNames[i],
			   VK_KHR_GET_PHYSICAL_DEVICE_PROPERTIES_2_EXTENSION_NAME) == 0)
			return true;
	return false;
}

static void resolve_instance(struct instance *instance, const VkInstanceCreateInfo *info)
{
	PFN_vkGetInstanceProcAddr next = instance->get_proc_addr;
	VkInstance handle = instance->handle;

	instance->destroy = FUNCTION(next, handle, vkDestroyInstance);
	instance->enumerate_extensions =
		FUNCTION(next, handle, vkEnumerateDeviceExtensionProperties);
	instance->properties = FUNCTION(next, handle, vkGetPhysicalDeviceProperties);
	instance->features = FUNCTION(next, handle, vkGetPhysicalDeviceFeatures);
	instance->queue_families = FUNCTION(next, handle, vkGetPhysicalDeviceQueueFamilyProperties);
	instance->memory_properties = FUNCTION(next, handle, vkGetPhysicalDeviceMemoryProperties);
	/* The program's version decides which names may be called, whatever the driver has. */
	if (has_version_1_1(info)) {
		instance->properties2 = FUNCTION(next, handle, vkGetPhysicalDeviceProperties2);
		instance->memory_properties2 =
			FUNCTION(next, handle, vkGetPhysicalDeviceMemoryProperties2);
	} else if (has_properties2_khr(info)) {
		instance->properties2 = FUNCTION(next, handle, vkGetPhysicalDeviceProperties2KHR);
		instance->memory_properties2 =
			FUNCTION(next, handle, vkGetPhysicalDeviceMemoryProperties2KHR);
	}
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
						      const VkAllocationCallbacks *allocator,
						      VkInstance *ret)
{
	VkLayerInstanceCreateInfo *link = instance_link(info);
	struct instance *instance;
	PFN_vkCreateInstance create;
	struct entry *entry;
	VkResult result;

	if (!link)
		return VK_ERROR_INITIALIZATION_FAILED;
	instance = calloc(1, sizeof(*instance));
	entry = instance ? dispatch_reserve_instance() : NULL;
	if (!entry) {
		free(instance);
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	}
	instance->get_proc_addr = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
	instance->get_physical_proc_addr = link->u.pLayerInfo->pfnNextGetPhysicalDeviceProcAddr;
	link->u.pLayerInfo = link->u.pLayerInfo->pNext;
	create = FUNCTION(instance->get_proc_addr, VK_NULL_HANDLE, vkCreateInstance);
	result = create ? create(info, allocator, ret) : VK_ERROR_INITIALIZATION_FAILED;
	if (result != VK_SUCCESS) {
		dispatch_give_back(entry);
		free(instance);
		return result;
	}
	/* From here on nothing may fail: the loader frees what lies below by itself. */
	instance->handle = *ret;
	instance->api_version = info->pApplicationInfo && info->pApplicationInfo->apiVersion
					? info->pApplicationInfo->apiVersion
					: VK_API_VERSION_1_0;
	resolve_instance(instance, info);
	dispatch_add_instance(entry, instance);
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance handle,
						   const VkAllocationCallbacks *allocator)
{
	struct instance *instance = handle ? dispatch_remove_instance(handle) : NULL;

	if (!instance)
		return;
	instance->destroy(handle, allocator);
	dispatch_free_instance(instance);
}

/* ---- Devices ---- */

static VkLayerDeviceCreateInfo *device_link(const VkDeviceCreateInfo *info)
{
	const VkLayerDeviceCreateInfo *each = info->pNext;

	while (each && !(each->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO &&
			 each->function == VK_LAYER_LINK_INFO))
		each = each->pNext;
	return (VkLayerDeviceCreateInfo *)each;
}

/* Return the description of a device group; or NULL. */
static const VkDeviceGroupDeviceCreateInfo *device_group(const VkDeviceCreateInfo *info)
{
	const VkBaseInStructure *each = info->pNext;

	while (each && each->sType != VK_STRUCTURE_TYPE_DEVICE_GROUP_DEVICE_CREATE_INFO)
		each = each->pNext;
	return (const VkDeviceGroupDeviceCreateInfo *)each;
}

/* Get the lease of one physical device. Return: VK_SUCCESS, also if the device needs no lease. */
static VkResult lease_physical(struct device *device, VkPhysicalDevice handle)
{
	struct physical *physical = dispatch_physical(handle);
	struct gpu *gpu = physical ? dispatch_gpu(physical, true) : NULL;

	if (!gpu)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	switch (gpu_state(gpu)) {
	case GPU_WITHOUT:
		say_error("this program gets device memory only by a lease, and got no lease: %s",
			  gpu->error);
		return VK_ERROR_INITIALIZATION_FAILED;
	case GPU_LEASED:
		device->gpus[device->n_gpus] = gpu;
		break;
	case GPU_FOREIGN:
		break;
	}
	device->n_gpus++;
	return VK_SUCCESS;
}

static VkResult lease_all(struct device *device, VkPhysicalDevice handle,
			  const VkDeviceCreateInfo *info)
{
	const VkDeviceGroupDeviceCreateInfo *group = device_group(info);
	VkResult result = VK_SUCCESS;
	bool is_leased = false;

	if (group && group->physicalDeviceCount > VK_MAX_DEVICE_GROUP_SIZE)
		return VK_ERROR_INITIALIZATION_FAILED;
	if (group && group->physicalDeviceCount > 0)
		for (uint32_t i = 0; i < group->physicalDeviceCount && !result; i++)
			result = lease_physical(device, group->pPhysicalDevices[i]);
	else
		result = lease_physical(device, handle);
	for (uint32_t i = 0; i < device->n_gpus; i++)
		is_leased |= device->gpus[i] != NULL;
	if (!is_leased)
		device->n_gpus = 0;
	return result;
}

/* Remove the layer's own extension from the list for the driver. Return: a list to be freed. */
static const char **strip_extensions(const struct device *device, VkDeviceCreateInfo *info)
{
	const char **names = calloc(info->enabledExtensionCount + 1, sizeof(*names));
	bool is_ours = device->n_gpus > 0 && !device->physical->has_budget;
	uint32_t n = 0;

	if (!names)
		return NULL;
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
		const char *name = info->ppEnabledExtensionNames[i];

		if (!is_ours || strcmp(name, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) != 0)
			names[n++] = name;
	}
	info->ppEnabledExtensionNames = names;
	info->enabledExtensionCount = n;
	return names;
}

static VkResult create_below(struct device *device, VkPhysicalDevice handle,
			     const VkDeviceCreateInfo *info, const VkAllocationCallbacks *allocator,
			     VkDevice *ret)
{
	VkLayerDeviceCreateInfo *link = device_link(info);
	VkDeviceCreateInfo stripped = *info;
	PFN_vkCreateDevice create;
	const char **names;
	VkResult result;

	if (!link)
		return VK_ERROR_INITIALIZATION_FAILED;
	device->get_proc_addr = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
	create = FUNCTION(link->u.pLayerInfo->pfnNextGetInstanceProcAddr, device->instance->handle,
			  vkCreateDevice);
	link->u.pLayerInfo = link->u.pLayerInfo->pNext;
	names = strip_extensions(device, &stripped);
	if (!names || mover_init(device, handle, &stripped)) {
		free(names);
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	}
	result =
		create ? create(handle, &stripped, allocator, ret) : VK_ERROR_INITIALIZATION_FAILED;
	free(names);
	return result;
}

static void resolve_device(struct device *device)
{
	PFN_vkGetDeviceProcAddr next = device->get_proc_addr;

	device->destroy = FUNCTION(next, device->handle, vkDestroyDevice);
	device->allocate = FUNCTION(next, device->handle, vkAllocateMemory);
	device->free = FUNCTION(next, device->handle, vkFreeMemory);
	device->get_fd = FUNCTION(next, device->handle, vkGetMemoryFdKHR);
	device->submit = FUNCTION(next, device->handle, vkQueueSubmit);
	device->submit2 = FUNCTION(next, device->handle, vkQueueSubmit2);
	device->submit2_khr = FUNCTION(next, device->handle, vkQueueSubmit2KHR);
	device->create_fence = FUNCTION(next, device->handle, vkCreateFence);
	device->destroy_fence = FUNCTION(next, device->handle, vkDestroyFence);
	device->reset_fences = FUNCTION(next, device->handle, vkResetFences);
	device->fence_status = FUNCTION(next, device->handle, vkGetFenceStatus);
	device->wait_fences = FUNCTION(next, device->handle, vkWaitForFences);
	lost_resolve(device);
}

static VkResult make_device(struct device *device, VkPhysicalDevice handle,
			    const VkDeviceCreateInfo *info, const VkAllocationCallbacks *allocator,
			    VkDevice *ret)
{
	struct entry *entry;
	VkResult result;

	device->instance = dispatch_instance(handle);
	device->physical = dispatch_physical(handle);
	if (!device->instance)
		return VK_ERROR_INITIALIZATION_FAILED;
	if (!device->physical)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	result = lease_all(device, handle, info);
	if (result != VK_SUCCESS)
		return result;
	if (cut_init(device, info))
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	entry = dispatch_reserve_device();
	if (!entry)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	result = create_below(device, handle, info, allocator, ret);
	if (result != VK_SUCCESS) {
		dispatch_give_back(entry);
		return result;
	}
	device->handle = *ret;
	resolve_device(device);
	if (device->cutter)
		cut_resolve(device);
	mover_resolve(device, true);
	dispatch_add_device(entry, device);
	return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice handle,
						    const VkDeviceCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkDevice *ret)
{
	struct device *device = NULL;
	VkResult result;

	if (posix_memalign((void **)&device, _Alignof(struct device), sizeof(*device)))
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	memset(device, 0, sizeof(*device));
	table_init(&device->table, sizeof(struct allocation));
	result = make_device(device, handle, info, allocator, ret);
	if (result != VK_SUCCESS) {
		cut_deinit(device->cutter);
		mover_resolve(device, false);
		table_deinit(&device->table, memory_forget, device);
		free(device);
		return result;
	}
	for (uint32_t i = 0; i < device->n_gpus; i++) {
		if (!device->gpus[i])
			continue;
		__atomic_fetch_add(&device->gpus[i]->n_devices, 1, __ATOMIC_RELAXED);
		memory_look(device->physical, device->gpus[i]);
	}
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice handle,
						 const VkAllocationCallbacks *allocator)
{
	struct device *device = handle ? dispatch_remove_device(handle) : NULL;

	if (!device)
		return;
	timeslice_forget(device);
	mover_end(device);
	recording_end_generation();
	device->destroy(handle, allocator);
	cut_deinit(device->cutter);
	mover_deinit(device->mover);
	table_deinit(&device->table, memory_forget, device);
	for (uint32_t i = 0; i < device->n_gpus; i++) {
		struct gpu *gpu = device->gpus[i];

		if (!gpu || !gpu_is_ours(gpu))
			continue;
		memory_look(device->physical, gpu);
		if (__atomic_sub_fetch(&gpu->n_devices, 1, __ATOMIC_ACQ_REL) == 0) {
			account_trim_all(&gpu->account);
			say("the last device was destroyed after %u allocations; %u were refused",
			    (unsigned int)__atomic_load_n(&gpu->n_allocated, __ATOMIC_RELAXED),
			    __atomic_load_n(&gpu->account.n_refused, __ATOMIC_RELAXED));
		}
		gpu_report(gpu);
	}
	free(device);
}

/* ---- Memory functions ---- */

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice handle,
						      const VkMemoryAllocateInfo *info,
						      const VkAllocationCallbacks *allocator,
						      VkDeviceMemory *ret)
{
	return memory_allocate(dispatch_device(handle), info, allocator, ret);
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice handle, VkDeviceMemory memory,
					      const VkAllocationCallbacks *allocator)
{
	memory_free(dispatch_device(handle), memory, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_memory_fd(VkDevice handle,
						    const VkMemoryGetFdInfoKHR *info, int *ret_fd)
{
	return memory_get_fd(dispatch_device(handle), info, ret_fd);
}

static VKAPI_ATTR void VKAPI_CALL get_memory_properties(VkPhysicalDevice handle,
							VkPhysicalDeviceMemoryProperties *ret)
{
	struct physical *physical = dispatch_physical(handle);

	/* Without memory for its record, report a device without memory types. */
	if (physical)
		properties_memory(physical, ret);
	else
		memset(ret, 0, sizeof(*ret));
}

static VKAPI_ATTR void VKAPI_CALL get_memory_properties2(VkPhysicalDevice handle,
							 VkPhysicalDeviceMemoryProperties2 *ret)
{
	struct physical *physical = dispatch_physical(handle);

	if (physical)
		properties_memory2(physical, ret);
	else
		memset(&ret->memoryProperties, 0, sizeof(ret->memoryProperties));
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_extensions(VkPhysicalDevice handle,
							   const char *layer, uint32_t *n,
							   VkExtensionProperties *ret)
{
	struct physical *physical;

	/* Extensions of the layer itself, before any instance exists. */
	if (!handle) {
		if (!layer || strcmp(layer, LAYER_NAME) != 0)
			return VK_ERROR_LAYER_NOT_PRESENT;
		*n = 0;
		return VK_SUCCESS;
	}
	physical = dispatch_physical(handle);
	if (!physical)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	return properties_extensions(physical, layer, n, ret);
}

/* ---- Submissions ---- */

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue queue, uint32_t n,
						   const VkSubmitInfo *infos, VkFence fence)
{
	struct device *device = dispatch_device(queue);

	return lost_note(device, submit(device, queue, n, infos, fence));
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit2(VkQueue queue, uint32_t n,
						    const VkSubmitInfo2 *infos, VkFence fence)
{
	struct device *device = dispatch_device(queue);

	return lost_note(device, submit2(device, device->submit2, queue, n, infos, fence));
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit2_khr(VkQueue queue, uint32_t n,
							const VkSubmitInfo2 *infos, VkFence fence)
{
	struct device *device = dispatch_device(queue);

	return lost_note(device, submit2(device, device->submit2_khr, queue, n, infos, fence));
}

/* ---- Looking up ---- */

enum kind {
	KIND_INSTANCE,
	KIND_PHYSICAL,
	KIND_DEVICE,
};

/* Provide the layer's function always, or only if the next layer provides one. */
enum { ALWAYS, IF_BELOW };

static const struct function {
	const char *name;
	PFN_vkVoidFunction function;
	enum kind kind;
	int when;
} functions[] = {
#define ENTRY(name, function, kind, when)                              \
	{                                                              \
		"vk" name, (PFN_vkVoidFunction)(function), kind, when, \
	}
	ENTRY("GetInstanceProcAddr", get_instance_proc_addr, KIND_INSTANCE, ALWAYS),
	ENTRY("CreateInstance", create_instance, KIND_INSTANCE, ALWAYS),
	ENTRY("DestroyInstance", destroy_instance, KIND_INSTANCE, ALWAYS),
	ENTRY("CreateDevice", create_device, KIND_PHYSICAL, ALWAYS),
	ENTRY("GetPhysicalDeviceMemoryProperties", get_memory_properties, KIND_PHYSICAL, ALWAYS),
	ENTRY("GetPhysicalDeviceMemoryProperties2", get_memory_properties2, KIND_PHYSICAL,
	      IF_BELOW),
	ENTRY("GetPhysicalDeviceMemoryProperties2KHR", get_memory_properties2, KIND_PHYSICAL,
	      IF_BELOW),
	ENTRY("EnumerateDeviceExtensionProperties", enumerate_extensions, KIND_PHYSICAL, ALWAYS),
	ENTRY("GetDeviceProcAddr", get_device_proc_addr, KIND_DEVICE, ALWAYS),
	ENTRY("DestroyDevice", destroy_device, KIND_DEVICE, ALWAYS),
	ENTRY("AllocateMemory", allocate_memory, KIND_DEVICE, ALWAYS),
	ENTRY("FreeMemory", free_memory, KIND_DEVICE, ALWAYS),
	ENTRY("GetMemoryFdKHR", get_memory_fd, KIND_DEVICE, IF_BELOW),
	ENTRY("QueueSubmit", queue_submit, KIND_DEVICE, ALWAYS),
	ENTRY("QueueSubmit2", queue_submit2, KIND_DEVICE, IF_BELOW),
	ENTRY("QueueSubmit2KHR", queue_submit2_khr, KIND_DEVICE, IF_BELOW),
#undef ENTRY
};

static const struct function *find_function(const char *name)
{
	for (unsigned int i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			return &functions[i];
	return NULL;
}

/* Return the layer's function, unless it depends on a next function that does not exist. */
static PFN_vkVoidFunction choose(const struct function *ours, PFN_vkVoidFunction below)
{
	return ours && (below || ours->when == ALWAYS) ? ours->function : below;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc_addr(VkDevice handle,
								     const char *name)
{
	const struct function *ours = find_function(name);
	struct device *device = dispatch_device(handle);
	PFN_vkVoidFunction below;

	if (ours && ours->kind != KIND_DEVICE)
		ours = NULL;
	if (!device)
		return NULL;
	below = device->get_proc_addr(handle, name);
	if (!ours && below && device->cutter && cut_function(name))
		return cut_function(name);
	/* A mover's functions see lost devices, too. */
	if (!ours && below && device->mover && movable_function(name))
		return movable_function(name);
	if (!ours && below && device->n_gpus > 0 && lost_function(name))
		return lost_function(name);
	return choose(ours, below);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc_addr(VkInstance handle,
								       const char *name)
{
	const struct function *ours = find_function(name);
	PFN_vkVoidFunction below;
	struct instance *instance;

	/* The loader asks for vkCreateInstance() before the instance exists. */
	if (ours && ours->kind == KIND_INSTANCE)
		return ours->function;
	instance = handle ? dispatch_instance(handle) : NULL;
	if (!instance)
		return NULL;
	below = instance->get_proc_addr(handle, name);
	/*
	 * All devices of such a process have a cutter. In others, the loader's own functions call
	 * those that get_device_proc_addr() returns.
	 */
	if (!ours && below && layer_process->environment.is_sharing && cut_function(name))
		return cut_function(name);
	/* These pass on what belongs to a device without a mover. */
	if (!ours && below && layer_process->environment.is_movable && movable_function(name))
		return movable_function(name);
	return choose(ours, below);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_physical_proc_addr(VkInstance handle,
								       const char *name)
{
	const struct function *ours = find_function(name);
	struct instance *instance = dispatch_instance(handle);
	PFN_vkVoidFunction below = NULL;

	if (ours && ours->kind != KIND_PHYSICAL)
		return NULL;
	if (instance && instance->get_physical_proc_addr)
		below = instance->get_physical_proc_addr(handle, name);
	return choose(ours, below);
}

/* The only function that the library exports. */
__attribute__((__visibility__("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiation);

VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiation)
{
	if (negotiation->sType != LAYER_NEGOTIATE_INTERFACE_STRUCT ||
	    negotiation->loaderLayerInterfaceVersion < 2)
		return VK_ERROR_INITIALIZATION_FAILED;
	if (process_init()) {
		/* The loader goes on without the layer. */
		say_error("out of memory: this program runs without its lease");
		return VK_ERROR_INITIALIZATION_FAILED;
	}
	negotiation->loaderLayerInterfaceVersion = 2;
	negotiation->pfnGetInstanceProcAddr = get_instance_proc_addr;
	negotiation->pfnGetDeviceProcAddr = get_device_proc_addr;
	negotiation->pfnGetPhysicalDeviceProcAddr = get_physical_proc_addr;
	return VK_SUCCESS;
}
