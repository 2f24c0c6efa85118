/* SPDX-License-Identifier: MIT */
/*
 * Device memory: see memory.h.
 *
 * The ledger is charged before memory is taken, so sizes must be known before the driver is asked
 * for memory. A driver may take more for a buffer than its size (VkMemoryRequirements). When the
 * device is opened, the driver is asked about buffers of several sizes; page_bytes is the smallest
 * power of two to whose multiples it adds nothing. Every allocation is checked against that again.
 */
#include "util/number.h"
#include "vulkan/memory.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plan/executor.h"
#include "shm/number.h"
#include "util/error.h"
#include "util/log.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"

void vk_memory_sample(struct vk_device *device, struct exec_memory *ret)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &budget,
	};

	*ret = (struct exec_memory){0};
	pthread_mutex_lock(&device->physical_lock);
	if (device->has_budget && device->physical) {
		ret->has_budget = true;
		vkGetPhysicalDeviceMemoryProperties2(device->physical, &properties);
	}
	pthread_mutex_unlock(&device->physical_lock);
	if (!ret->has_budget)
		return;
	for (uint32_t i = 0; i < device->heaps.memoryHeapCount; i++)
		if (device->is_integrated || i == device->vram_heap) {
			ret->budget_bytes += budget.heapBudget[i];
			ret->usage_bytes += budget.heapUsage[i];
		}
}

/*
 * Find the best type that has @required: all of @wanted counts more than none of @unwanted; the
 * first wins a tie.
 */
static bool pick_type(const VkPhysicalDeviceMemoryProperties *heaps, uint32_t usable,
		      VkMemoryPropertyFlags required, VkMemoryPropertyFlags wanted,
		      VkMemoryPropertyFlags unwanted, uint32_t *ret)
{
	const VkMemoryPropertyFlags never = VK_MEMORY_PROPERTY_PROTECTED_BIT |
					    VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
					    VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD |
					    VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
	int best = -1;

	for (uint32_t i = 0; i < heaps->memoryTypeCount; i++) {
		VkMemoryPropertyFlags flags = heaps->memoryTypes[i].propertyFlags;
		int score = 1;

		if (!(usable & (1u << i)) || (flags & required) != required || (flags & never))
			continue;
		score += (flags & wanted) == wanted ? 2 : 0;
		score += (flags & unwanted) == 0 ? 1 : 0;
		if (score > best) {
			best = score;
			*ret = i;
		}
	}
	return best >= 0;
}

int vk_buffer_new(struct vk_device *device, uint64_t bytes, const void *next, VkBuffer *ret)
{
	const uint32_t families[] = {device->queue_family, device->upload.family};
	const bool shares = device->upload.has_queue && families[0] != families[1];
	const VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.pNext = next,
		.size = bytes,
		.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
			 VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
			 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
		.sharingMode = shares ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE,
		.queueFamilyIndexCount = shares ? 2 : 0,
		.pQueueFamilyIndices = families,
	};
	int r;

	r = vk_result(device->vk.vkCreateBuffer(device->handle, &info, NULL, ret),
		      "vkCreateBuffer");
	if (r)
		*ret = VK_NULL_HANDLE;
	return r;
}

VkDeviceAddress vk_buffer_address(struct vk_device *device, VkBuffer buffer)
{
	const VkBufferDeviceAddressInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
		.buffer = buffer,
	};

	return device->vk.vkGetBufferDeviceAddress(device->handle, &info);
}

static int buffer_needs(struct vk_device *device, uint64_t bytes, VkMemoryRequirements *ret)
{
	VkBuffer buffer;
	int r;

	r = vk_buffer_new(device, bytes, NULL, &buffer);
	if (r)
		return error_fold(r);
	device->vk.vkGetBufferMemoryRequirements(device->handle, buffer, ret);
	device->vk.vkDestroyBuffer(device->handle, buffer, NULL);
	return 0;
}

/* Set page_bytes and the bit mask of memory types that buffers can use. */
static int measure(struct vk_device *device)
{
	static const uint64_t sizes[] = {1, 3 << 12, (64 << 10) + 1, 1 << 20, (16 << 20) + 1};
	struct vk_memory *memory = &device->memory;
	VkMemoryRequirements needs;
	unsigned int i = 0;
	int r;

	memory->usable_types = UINT32_MAX;
	memory->page_bytes = VK_MEMORY_PAGE_MIN;
	while (i < sizeof(sizes) / sizeof(sizes[0])) {
		uint64_t bytes = vk_memory_pages(device, sizes[i]);

		r = buffer_needs(device, bytes, &needs);
		if (r)
			return error_fold(r);
		if (needs.size <= bytes && needs.alignment <= memory->page_bytes) {
			memory->usable_types &= needs.memoryTypeBits;
			i++;
			continue;
		}
		memory->page_bytes *= 2;
		if (memory->page_bytes > VK_MEMORY_PAGE_MAX)
			return error_origin(-EIO);
		i = 0;
	}
	return 0;
}

static bool is_local(const struct vk_device *device, uint32_t type)
{
	return device->heaps.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
}

int vk_memory_init(struct vk_device *device)
{
	const VkMemoryPropertyFlags mapped =
		VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	struct vk_memory *memory = &device->memory;
	uint32_t usable;
	int r;

	r = measure(device);
	if (r)
		return error_fold(r);
	usable = memory->usable_types;
	/*
	 * Parameter blocks and staging are read back too, so they are cached and not across the
	 * bus. Memory that the processor only writes and the device only reads is better uncached.
	 */
	if (!pick_type(&device->heaps, usable, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0,
		       VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, &memory->type[VK_MEMORY_VRAM]) ||
	    !pick_type(&device->heaps, usable, mapped, VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
		       VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, &memory->type[VK_MEMORY_HOST]) ||
	    !pick_type(&device->heaps, usable, mapped, 0,
		       VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
		       &memory->type[VK_MEMORY_GTT]))
		return error_origin(-EIO);
	if (is_local(device, memory->type[VK_MEMORY_GTT]))
		memory->type[VK_MEMORY_GTT] = memory->type[VK_MEMORY_HOST];
	if (is_local(device, memory->type[VK_MEMORY_GTT]))
		device->gtt_bytes = 0;
	memory->type[VK_MEMORY_OWN] = memory->type[VK_MEMORY_HOST];
	return 0;
}

void vk_memory_deinit(struct vk_device *device)
{
	for (int kind = 0; kind < VK_MEMORY_KIND_COUNT; kind++)
		assert(vk_memory_used(device, kind) == 0);
	assert(list_is_empty(&device->memory.allocations));
}

uint64_t vk_memory_pages(const struct vk_device *device, uint64_t bytes)
{
	return round_up(bytes, device->memory.page_bytes);
}

uint64_t vk_memory_aligned(uint64_t bytes)
{
	return round_up(bytes, VK_MEMORY_ALIGN);
}

/* Return: 0; EXECUTOR_E_NO_MEMORY; negative errno. */
static int allocate(struct vk_device *device, uint64_t bytes, uint32_t type, VkDeviceMemory *ret)
{
	const VkMemoryAllocateFlagsInfo flags = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
		.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
	};
	const VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = &flags,
		.allocationSize = bytes,
		.memoryTypeIndex = type,
	};
	VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;

	if (vk_device_fault(device, VULKAN_FAULT_ALLOC) != VULKAN_FAULT_NO_MEMORY)
		result = device->vk.vkAllocateMemory(device->handle, &info, NULL, ret);
	if (result != VK_SUCCESS)
		*ret = VK_NULL_HANDLE;
	switch (result) {
	case VK_ERROR_OUT_OF_DEVICE_MEMORY:
	case VK_ERROR_OUT_OF_HOST_MEMORY:
	case VK_ERROR_TOO_MANY_OBJECTS:
		log_debug(LOG_DETAIL, "%s has no %llu bytes of memory left", device->name,
			  ull(bytes));
		return EXECUTOR_E_NO_MEMORY;
	default:
		return vk_result(result, "vkAllocateMemory");
	}
}

/* Make the buffer and its memory. After a failure, vk_memory_free() frees what was made. */
static int fill_in(struct vk_device *device, struct vk_allocation *allocation)
{
	uint32_t type = device->memory.type[allocation->kind];
	VkMemoryRequirements needs;
	void *host;
	int r;

	r = vk_buffer_new(device, allocation->bytes, NULL, &allocation->buffer);
	if (r)
		return error_fold(r);
	device->vk.vkGetBufferMemoryRequirements(device->handle, allocation->buffer, &needs);
	if (needs.size > allocation->bytes || !(needs.memoryTypeBits & (1u << type))) {
		log_warning_of(LOG_OF_DEVICE(device->executor.index), LOG_BUFFER_TOO_LARGE,
			       "%s: a buffer of %llu bytes requires %llu, more than expected",
			       device->name, ull(allocation->bytes), ull(needs.size));
		return error_origin(-ENOTSUP);
	}
	r = allocate(device, allocation->bytes, type, &allocation->memory);
	if (r)
		return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
	r = vk_result(device->vk.vkBindBufferMemory(device->handle, allocation->buffer,
						    allocation->memory, 0),
		      "vkBindBufferMemory");
	if (r)
		return error_fold(r);
	if ((device->heaps.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) &&
	    (device->heaps.memoryTypes[type].propertyFlags &
	     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)) {
		r = vk_result(device->vk.vkMapMemory(device->handle, allocation->memory, 0,
						     VK_WHOLE_SIZE, 0, &host),
			      "vkMapMemory");
		if (r && allocation->kind != VK_MEMORY_VRAM)
			return error_fold(r);
		allocation->host = r ? NULL : host;
	}
	allocation->address = vk_buffer_address(device, allocation->buffer);
	return 0;
}

int vk_memory_alloc(struct vk_device *device, enum vk_memory_kind kind, uint64_t bytes,
		    struct vk_allocation *allocation)
{
	struct vk_memory *memory = &device->memory;
	int r;

	*allocation = (struct vk_allocation){.kind = kind, .bytes = bytes};
	if (bytes == 0)
		return 0;
	assert(bytes % memory->page_bytes == 0);
	atomic_fetch_add_explicit(&memory->used_bytes[kind], bytes, memory_order_relaxed);
	list_append(&memory->allocations, &allocation->link);
	r = fill_in(device, allocation);
	if (r) {
		vk_memory_free(device, allocation);
		return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
	}
	return 0;
}

bool vk_memory_drop_some(const struct vk_device *device, struct vk_allocation *allocation,
			 uint64_t used_bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), host = (uintptr_t)allocation->host;
	uint64_t bytes = used_bytes - allocation->dropped_bytes;
	uintptr_t begin, end;

	if (!device->is_software || !allocation->host || used_bytes <= allocation->dropped_bytes)
		return false;
	if (bytes > VK_MEMORY_DROP_BYTES)
		bytes = VK_MEMORY_DROP_BYTES;
	/*
	 * Drop whole pages only: the first and the last page may hold bytes of other allocations.
	 */
	begin = round_up(host + allocation->dropped_bytes, page);
	allocation->dropped_bytes += bytes;
	end = (host + allocation->dropped_bytes) & ~(page - 1);
	/* If the kernel refuses, the driver frees the pages later. */
	if (begin < end)
		madvise((void *)begin, end - begin, MADV_DONTNEED);
	return allocation->dropped_bytes < used_bytes;
}

void vk_memory_free(struct vk_device *device, struct vk_allocation *allocation)
{
	struct vk_memory *memory = &device->memory;

	if (allocation->bytes == 0)
		return;
	if (allocation->buffer)
		device->vk.vkDestroyBuffer(device->handle, allocation->buffer, NULL);
	if (allocation->memory)
		device->vk.vkFreeMemory(device->handle, allocation->memory, NULL);
	list_remove(&allocation->link);
	atomic_fetch_sub_explicit(&memory->used_bytes[allocation->kind], allocation->bytes,
				  memory_order_relaxed);
	*allocation = (struct vk_allocation){.kind = allocation->kind};
}

bool vk_memory_clear_mapped(struct vk_allocation *allocation)
{
	uint64_t bytes = allocation->bytes - allocation->cleared_bytes;

	if (!allocation->host)
		return false;
	if (bytes > VK_MEMORY_CLEAR_BYTES)
		bytes = VK_MEMORY_CLEAR_BYTES;
	memset(allocation->host + allocation->cleared_bytes, 0, bytes);
	allocation->cleared_bytes += bytes;
	return allocation->cleared_bytes < allocation->bytes;
}

void vk_memory_clear_unmapped(struct vk_device *device, const struct vk_allocation *allocation,
			      VkCommandBuffer commands)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
				 VK_ACCESS_TRANSFER_WRITE_BIT,
	};

	if (allocation->bytes == 0 || allocation->host)
		return;
	device->vk.vkCmdFillBuffer(commands, allocation->buffer, 0, VK_WHOLE_SIZE, 0);
	device->vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
					VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
						VK_PIPELINE_STAGE_TRANSFER_BIT,
					0, 1, &barrier, 0, NULL, 0, NULL);
}

void vk_memory_note(struct vk_device *device, enum vk_memory_kind kind, int64_t bytes)
{
	atomic_fetch_add_explicit(&device->memory.used_bytes[kind], (uint64_t)bytes,
				  memory_order_relaxed);
}

uint64_t vk_memory_used(const struct vk_device *device, enum vk_memory_kind kind)
{
	return atomic_load_explicit(&device->memory.used_bytes[kind], memory_order_relaxed);
}

bool vk_memory_find(const struct vk_device *device, const void *bytes, size_t n)
{
	list_for_each (node, &device->memory.allocations) {
		const struct vk_allocation *allocation =
			container_of(node, struct vk_allocation, link);

		for (uint64_t at = 0; allocation->host && allocation->kind != VK_MEMORY_OWN &&
				      at + n <= allocation->bytes;
		     at += 4)
			if (memcmp(allocation->host + at, bytes, n) == 0)
				return true;
	}
	return false;
}
