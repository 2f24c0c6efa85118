/* SPDX-License-Identifier: MIT */
/* Movers of devices: see mover.h. The layer needs a queue of its own, and sparse binding. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chain-structs.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/mover.h"
#include "libclient/layer/process.h"
#include "libclient/layer/say.h"

/* Longest wait for fences of the layer's own behind the program's work, as a device is destroyed.
 */
static const uint64_t end_ns = 1000000000u;

static size_t struct_bytes(VkStructureType type)
{
#define X(kind, name) \
	case kind:    \
		return sizeof(name);
	switch ((int)type) {
		CHAIN_STRUCTS(X)
	case VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO:
		return sizeof(VkLayerDeviceCreateInfo);
	default:
		return 0;
	}
#undef X
}

/*
 * Enable sparse binding. The program's features may be in its chain, whose structures up to them
 * are then copied. Return: false: a structure up to them is unknown, or there is no memory.
 */
static bool enable_sparse_binding(struct mover *mover, VkDeviceCreateInfo *info)
{
	const VkBaseInStructure *each = info->pNext;
	VkPhysicalDeviceFeatures *features;
	size_t bytes = 0;
	char *at;

	for (; each && each->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
	     each = each->pNext) {
		if (struct_bytes(each->sType) == 0)
			return false;
		bytes += struct_bytes(each->sType);
	}
	at = mover->chain = calloc(1, bytes + sizeof(VkPhysicalDeviceFeatures2));
	if (!at)
		return false;
	if (!each) {
		features = mover->chain;
		if (info->pEnabledFeatures)
			*features = *info->pEnabledFeatures;
		features->sparseBinding = VK_TRUE;
		info->pEnabledFeatures = features;
		return true;
	}
	each = info->pNext;
	info->pNext = at;
	for (;;) {
		VkBaseInStructure *copy = (VkBaseInStructure *)at;

		memcpy(at, each, struct_bytes(each->sType));
		if (each->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)
			break;
		at += struct_bytes(each->sType);
		copy->pNext = (const VkBaseInStructure *)at;
		each = each->pNext;
	}
	((VkPhysicalDeviceFeatures2 *)at)->features.sparseBinding = VK_TRUE;
	return true;
}

static uint32_t count_queues(const VkDeviceCreateInfo *info, uint32_t family)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < info->queueCreateInfoCount; i++)
		if (info->pQueueCreateInfos[i].queueFamilyIndex == family)
			n += info->pQueueCreateInfos[i].queueCount;
	return n;
}

/* Choose a queue family that has a queue left. Return: false: there is none. */
static bool choose_family(struct mover *mover, VkPhysicalDevice handle,
			  const VkDeviceCreateInfo *info)
{
	const VkQueueFlags can_copy =
		VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT;
	VkQueueFamilyProperties families[16];
	uint32_t n = 16;

	mover->device->instance->queue_families(handle, &n, families);
	for (uint32_t i = 0; i < n; i++)
		if ((families[i].queueFlags & VK_QUEUE_SPARSE_BINDING_BIT) &&
		    (families[i].queueFlags & can_copy) &&
		    count_queues(info, i) < families[i].queueCount) {
			mover->family = i;
			return true;
		}
	return false;
}

/* Add a queue of the chosen family to the list. Return: false without memory. */
static bool add_queue(struct mover *mover, VkDeviceCreateInfo *info)
{
	const uint32_t n = info->queueCreateInfoCount;
	VkDeviceQueueCreateInfo *mine = NULL;
	uint32_t n_before;

	mover->queue_infos = calloc(n + 1, sizeof(*mover->queue_infos));
	if (!mover->queue_infos)
		return false;
	if (n > 0)
		memcpy(mover->queue_infos, info->pQueueCreateInfos,
		       n * sizeof(*mover->queue_infos));
	/* vkGetDeviceQueue() is for queues without flags. */
	for (uint32_t i = 0; i < n; i++)
		if (mover->queue_infos[i].queueFamilyIndex == mover->family &&
		    mover->queue_infos[i].flags == 0)
			mine = &mover->queue_infos[i];
	n_before = mine ? mine->queueCount : 0;
	mover->priorities = calloc(n_before + 1, sizeof(*mover->priorities));
	if (!mover->priorities)
		return false;
	if (mine) {
		memcpy(mover->priorities, mine->pQueuePriorities,
		       n_before * sizeof(*mover->priorities));
	} else {
		mine = &mover->queue_infos[n];
		mine->sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
		mine->queueFamilyIndex = mover->family;
		info->queueCreateInfoCount++;
	}
	mine->queueCount = n_before + 1;
	mine->pQueuePriorities = mover->priorities;
	info->pQueueCreateInfos = mover->queue_infos;
	mover->queue_index = n_before;
	return true;
}

/* Choose the memory type for what is away. Return: false: there is none. */
static bool choose_host_type(struct mover *mover)
{
	const VkPhysicalDeviceMemoryProperties *memory = &mover->device->physical->memory;
	const VkMemoryPropertyFlags mappable =
		VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

	for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
		const VkMemoryType *type = &memory->memoryTypes[i];

		if ((type->propertyFlags & mappable) == mappable &&
		    !(memory->memoryHeaps[type->heapIndex].flags &
		      VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)) {
			mover->host_type = i;
			return true;
		}
	}
	return false;
}

/* Return the reason why the device's memory stays; or NULL. */
static const char *obstacle(struct mover *mover, VkPhysicalDevice handle,
			    const VkDeviceCreateInfo *info)
{
	static const char *const strange[] = {
		"VK_NV_ray_tracing", "VK_NV_external_memory_rdma", "VK_KHR_video_queue",
		"VK_ARM_tensors",    "VK_ARM_data_graph",
	};
	const struct device *device = mover->device;
	VkPhysicalDeviceFeatures features;

	if (device->n_gpus != 1)
		return "it is a group of devices";
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
		for (unsigned int at = 0; at < sizeof(strange) / sizeof(*strange); at++)
			if (strcmp(info->ppEnabledExtensionNames[i], strange[at]) == 0)
				return strange[at];
	device->instance->features(handle, &features);
	if (!features.sparseBinding)
		return "the driver has no sparse binding";
	if (!choose_family(mover, handle, info))
		return "the driver has no queue for sparse binding that the program leaves free";
	if (!choose_host_type(mover))
		return "the device has no host memory";
	return NULL;
}

int mover_init(struct device *device, VkPhysicalDevice handle, VkDeviceCreateInfo *info)
{
	const VkLayerDeviceCreateInfo *loader = info->pNext;
	struct mover *mover;
	const char *why;

	if (!layer_process->environment.is_movable || device->n_gpus == 0)
		return 0;
	mover = calloc(1, sizeof(*mover));
	if (!mover)
		return -ENOMEM;
	mover->device = device;
	while (loader && !(loader->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO &&
			   loader->function == VK_LOADER_DATA_CALLBACK))
		loader = loader->pNext;
	why = loader ? obstacle(mover, handle, info) : "the loader is too old";
	if (!why && (!add_queue(mover, info) || !enable_sparse_binding(mover, info)))
		why = "the program's device cannot be extended";
	if (why) {
		say_error("device memory stays where it is while the program is idle: %s", why);
		/* The queue that was added to *info does no harm. */
	} else {
		mover->set_loader_data = loader->u.pfnSetDeviceLoaderData;
	}
	pthread_rwlock_init(&mover->using, NULL);
	pthread_mutex_init(&mover->lock, NULL);
	pthread_mutex_init(&mover->returning, NULL);
	table_init(&mover->memories, sizeof(struct mover_record));
	table_init(&mover->buffers, sizeof(struct mover_record));
	device->mover = mover;
	return 0;
}

static void forget_lists(struct mover *mover)
{
	free(mover->queue_infos);
	free(mover->priorities);
	free(mover->chain);
	mover->queue_infos = NULL;
	mover->priorities = NULL;
	mover->chain = NULL;
}

/* Make the pool, the command buffer and the fence. */
static VkResult make_objects(struct mover *mover)
{
	const VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
		.queueFamilyIndex = mover->family,
	};
	const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	VkCommandBufferAllocateInfo commands = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandBufferCount = 1,
	};
	struct device *device = mover->device;
	VkResult result;

	mover->next.get_queue(device->handle, mover->family, mover->queue_index, &mover->queue);
	mover->set_loader_data(device->handle, mover->queue);
	result = mover->next.create_pool(device->handle, &pool, NULL, &mover->pool);
	if (result != VK_SUCCESS)
		return result;
	commands.commandPool = mover->pool;
	result = mover->next.allocate_commands(device->handle, &commands, &mover->commands);
	if (result != VK_SUCCESS)
		return result;
	mover->set_loader_data(device->handle, mover->commands);
	return device->create_fence(device->handle, &fence, NULL, &mover->fence);
}

void mover_resolve(struct device *device, bool is_created)
{
	struct mover *mover = device->mover;
	struct mover_next *next;

	if (!mover)
		return;
	forget_lists(mover);
	if (!is_created || !mover->set_loader_data) {
		device->mover = NULL;
		mover_deinit(mover);
		return;
	}
	next = &mover->next;
#define NEXT(name) (PFN_##name) device->get_proc_addr(device->handle, #name)
	next->get_queue = NEXT(vkGetDeviceQueue);
	next->create_buffer = NEXT(vkCreateBuffer);
	next->destroy_buffer = NEXT(vkDestroyBuffer);
	next->buffer_needs = NEXT(vkGetBufferMemoryRequirements);
	next->bind_buffer = NEXT(vkBindBufferMemory);
	next->bind_image = NEXT(vkBindImageMemory);
	next->bind_image2 = NEXT(vkBindImageMemory2);
	if (!next->bind_image2)
		next->bind_image2 = NEXT(vkBindImageMemory2KHR);
	next->bind_sparse = NEXT(vkQueueBindSparse);
	next->create_pool = NEXT(vkCreateCommandPool);
	next->destroy_pool = NEXT(vkDestroyCommandPool);
	next->allocate_commands = NEXT(vkAllocateCommandBuffers);
	next->begin = NEXT(vkBeginCommandBuffer);
	next->end = NEXT(vkEndCommandBuffer);
	next->copy = NEXT(vkCmdCopyBuffer);
#undef NEXT
	if (make_objects(mover) != VK_SUCCESS) {
		say_error("device memory stays where it is while the program is idle: out of "
			  "memory");
		mover_end(device);
		device->mover = NULL;
		mover_deinit(mover);
		return;
	}
	mover_start(mover);
}

void mover_end(struct device *device)
{
	struct mover *mover = device->mover;

	if (!mover)
		return;
	mover_stop(mover);
	if (mover->has_probes && mover->n_queues > 0)
		(void)device->wait_fences(device->handle, mover->n_queues, mover->probes, VK_TRUE,
					  end_ns);
	device->destroy_fence(device->handle, mover->fence, NULL);
	for (uint32_t i = 0; i < mover->n_queues; i++)
		device->destroy_fence(device->handle, mover->probes[i], NULL);
	mover->next.destroy_pool(device->handle, mover->pool, NULL);
}

static void forget_buffer(const void *record, void *unused)
{
	(void)unused;
	free(((const struct mover_record *)record)->object);
}

static void forget_memory(const void *record, void *device)
{
	const struct mover_record *memory = record;
	const struct movable *movable = memory->object;
	struct gpu *gpu = ((struct device *)device)->gpus[0];

	if (movable->is_away || movable->n_pins == 0)
		__atomic_fetch_sub(&gpu->movable_bytes, movable->bytes, __ATOMIC_RELAXED);
	if (movable->is_away)
		__atomic_fetch_sub(&gpu->moved_bytes, movable->bytes, __ATOMIC_RELAXED);
	free(memory->object);
}

void mover_deinit(struct mover *mover)
{
	if (!mover)
		return;
	table_deinit(&mover->buffers, forget_buffer, NULL);
	table_deinit(&mover->memories, forget_memory, mover->device);
	pthread_rwlock_destroy(&mover->using);
	pthread_mutex_destroy(&mover->lock);
	pthread_mutex_destroy(&mover->returning);
	forget_lists(mover);
	free(mover);
}
