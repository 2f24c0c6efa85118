/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan layer that fails on request: see failing-layer.h
 *
 * The layer intercepts two device functions beside the mandatory ones: vkQueueSubmit() and
 * vkWaitSemaphores(). All others are the driver's. Devices of one process may have different
 * drivers, so the next functions are stored per device. The key is the dispatch table, which a
 * device and its queues share.
 */
#include "failing-layer.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <vulkan/vulkan_core.h>
#include <vulkan/vk_layer.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_DEVICES = 16, HANGING_STEP_NS = 1000000 };

struct device {
	void *key; /* NULL: free */
	PFN_vkGetDeviceProcAddr get_proc_addr;
	PFN_vkDestroyDevice destroy;
	PFN_vkQueueSubmit submit;
	PFN_vkWaitSemaphores wait;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[MAX_DEVICES];
static PFN_vkGetInstanceProcAddr next_get_instance_proc_addr;
static VkInstance instance; /* the last one made */
static struct failing_layer *shared;

static void *key_of(const void *dispatchable)
{
	return *(void *const *)dispatchable;
}

/* Return a copy of the entry of @key; all members are NULL if @key is unknown. */
static struct device find(void *key)
{
	struct device found = {.key = NULL};

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_DEVICES; i++)
		if (devices[i].key == key)
			found = devices[i];
	pthread_mutex_unlock(&lock);
	return found;
}

static void open_shared(void)
{
	const char *path = getenv(FAILING_LAYER_ENV);
	void *memory;
	int fd;

	fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	memory = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (memory != MAP_FAILED)
		shared = memory;
}

/* ---- The device ---- */

static VKAPI_ATTR VkResult VKAPI_CALL layer_queue_submit(VkQueue queue, uint32_t n,
							 const VkSubmitInfo *infos, VkFence fence)
{
	struct device device = find(key_of(queue));
	uint64_t number;
	uint32_t every;

	if (shared) {
		number = atomic_fetch_add(&shared->n_submits, 1) + 1;
		every = atomic_load(&shared->every);
		if (every > 0 && number % every == 0) {
			atomic_fetch_add(&shared->n_failed, 1);
			return VK_ERROR_DEVICE_LOST;
		}
	}
	return device.submit(queue, n, infos, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_wait_semaphores(VkDevice handle,
							    const VkSemaphoreWaitInfo *info,
							    uint64_t timeout_ns)
{
	const struct timespec pause = {.tv_nsec = HANGING_STEP_NS};
	struct device device = find(key_of(handle));

	if (shared && atomic_load(&shared->is_hanging))
		atomic_fetch_add(&shared->n_hung, 1);
	while (shared && atomic_load(&shared->is_hanging)) {
		if (timeout_ns < HANGING_STEP_NS)
			return VK_TIMEOUT;
		timeout_ns -= HANGING_STEP_NS;
		nanosleep(&pause, NULL);
	}
	return device.wait(handle, info, timeout_ns);
}

static VKAPI_ATTR void VKAPI_CALL layer_destroy_device(VkDevice handle,
						       const VkAllocationCallbacks *allocator)
{
	struct device device = {.key = NULL};

	if (!handle)
		return;
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_DEVICES; i++) {
		if (devices[i].key != key_of(handle))
			continue;
		device = devices[i];
		devices[i].key = NULL;
	}
	pthread_mutex_unlock(&lock);
	device.destroy(handle, allocator);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_get_device_proc_addr(VkDevice handle,
									   const char *name);

static VKAPI_ATTR VkResult VKAPI_CALL layer_create_device(VkPhysicalDevice physical,
							  const VkDeviceCreateInfo *info,
							  const VkAllocationCallbacks *allocator,
							  VkDevice *ret)
{
	VkLayerDeviceCreateInfo *chain = (VkLayerDeviceCreateInfo *)info->pNext;
	struct device device = {.key = NULL};
	PFN_vkCreateDevice create;
	VkResult result;

	while (chain && !(chain->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO &&
			  chain->function == VK_LAYER_LINK_INFO))
		chain = (VkLayerDeviceCreateInfo *)chain->pNext;
	if (!chain || (shared && atomic_load(&shared->is_absent)))
		return VK_ERROR_INITIALIZATION_FAILED;
	device.get_proc_addr = chain->u.pLayerInfo->pfnNextGetDeviceProcAddr;
	create = (PFN_vkCreateDevice)chain->u.pLayerInfo->pfnNextGetInstanceProcAddr(
		instance, "vkCreateDevice");
	chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
	result = create(physical, info, allocator, ret);
	if (result != VK_SUCCESS)
		return result;
	device.key = key_of(*ret);
	device.destroy = (PFN_vkDestroyDevice)device.get_proc_addr(*ret, "vkDestroyDevice");
	device.submit = (PFN_vkQueueSubmit)device.get_proc_addr(*ret, "vkQueueSubmit");
	device.wait = (PFN_vkWaitSemaphores)device.get_proc_addr(*ret, "vkWaitSemaphores");
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_DEVICES; i++) {
		if (devices[i].key)
			continue;
		devices[i] = device;
		break;
	}
	pthread_mutex_unlock(&lock);
	if (shared)
		atomic_fetch_add(&shared->n_devices, 1);
	return VK_SUCCESS;
}

/* ---- Mandatory functions of a layer ---- */

static VKAPI_ATTR VkResult VKAPI_CALL layer_create_instance(const VkInstanceCreateInfo *info,
							    const VkAllocationCallbacks *allocator,
							    VkInstance *ret)
{
	VkLayerInstanceCreateInfo *chain = (VkLayerInstanceCreateInfo *)info->pNext;
	PFN_vkCreateInstance create;
	VkResult result;

	while (chain && !(chain->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO &&
			  chain->function == VK_LAYER_LINK_INFO))
		chain = (VkLayerInstanceCreateInfo *)chain->pNext;
	if (!chain)
		return VK_ERROR_INITIALIZATION_FAILED;
	if (!shared)
		open_shared();
	next_get_instance_proc_addr = chain->u.pLayerInfo->pfnNextGetInstanceProcAddr;
	create = (PFN_vkCreateInstance)next_get_instance_proc_addr(VK_NULL_HANDLE,
								   "vkCreateInstance");
	chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
	result = create(info, allocator, ret);
	if (result == VK_SUCCESS)
		instance = *ret;
	return result;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_get_instance_proc_addr(VkInstance handle,
									     const char *name);

/* Return the layer's function of that name, or NULL. */
static PFN_vkVoidFunction own(const char *name)
{
	static const struct {
		const char *name;
		PFN_vkVoidFunction function;
	} functions[] = {
		{"vkGetInstanceProcAddr", (PFN_vkVoidFunction)layer_get_instance_proc_addr},
		{"vkGetDeviceProcAddr", (PFN_vkVoidFunction)layer_get_device_proc_addr},
		{"vkCreateInstance", (PFN_vkVoidFunction)layer_create_instance},
		{"vkCreateDevice", (PFN_vkVoidFunction)layer_create_device},
		{"vkDestroyDevice", (PFN_vkVoidFunction)layer_destroy_device},
		{"vkQueueSubmit", (PFN_vkVoidFunction)layer_queue_submit},
		{"vkWaitSemaphores", (PFN_vkVoidFunction)layer_wait_semaphores},
	};

	for (unsigned int i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_get_device_proc_addr(VkDevice handle,
									   const char *name)
{
	PFN_vkVoidFunction function = own(name);
	struct device device;

	if (function)
		return function;
	device = find(key_of(handle));
	return device.key ? device.get_proc_addr(handle, name) : NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_get_instance_proc_addr(VkInstance handle,
									     const char *name)
{
	PFN_vkVoidFunction function = own(name);

	if (function || !next_get_instance_proc_addr)
		return function;
	return next_get_instance_proc_addr(handle, name);
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiation);

VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiation)
{
	if (negotiation->loaderLayerInterfaceVersion < 2)
		return VK_ERROR_INITIALIZATION_FAILED;
	negotiation->loaderLayerInterfaceVersion = 2;
	negotiation->pfnGetInstanceProcAddr = layer_get_instance_proc_addr;
	negotiation->pfnGetDeviceProcAddr = layer_get_device_proc_addr;
	negotiation->pfnGetPhysicalDeviceProcAddr = NULL;
	return VK_SUCCESS;
}
