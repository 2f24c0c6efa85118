/* SPDX-License-Identifier: MIT */
/*
 * Segments: see segment.h.
 *
 * Only host-coherent memory types are used: the processor and the device must see each other's
 * writes without flushing. Drivers do not check the alignment, so this file does.
 */
#include "vulkan/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>
#include <ringbroker/abi.h>

#include "util/cleanup.h"
#include "util/error.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/memory.h"

#define DMA_BUF VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT
#define HOST    VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

/*
 * Exported memory is GTT, not VRAM: the processor works in the memory as well. On devices with a
 * single kind of memory, it is that.
 */
#define EXPORTED_TYPE (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT)

void vk_segment_free(struct vk_device *device, struct vk_segment *segment)
{
	if (segment->buffer)
		device->vk.vkDestroyBuffer(device->handle, segment->buffer, NULL);
	if (segment->memory)
		device->vk.vkFreeMemory(device->handle, segment->memory, NULL);
	*segment = (struct vk_segment){0};
}

/*
 * Make a buffer for external memory of @kind.
 * Return: 0, with the buffer's memory requirements; VK_SEGMENT_E_REFUSED; negative errno.
 */
static int make_buffer(struct vk_device *device, VkExternalMemoryHandleTypeFlagBits kind,
		       uint64_t bytes, struct vk_segment *segment, VkMemoryRequirements *ret)
{
	const VkExternalMemoryBufferCreateInfo external = {
		.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
		.handleTypes = kind,
	};
	int r;

	if (bytes == 0)
		return VK_SEGMENT_E_REFUSED;
	r = vk_buffer_new(device, bytes, &external, &segment->buffer);
	if (r) {
		segment->buffer = VK_NULL_HANDLE;
		return error_fold(r);
	}
	device->vk.vkGetBufferMemoryRequirements(device->handle, segment->buffer, ret);
	return 0;
}

/*
 * Choose a coherent type among @types with @required, preferably cached and not device-local.
 * Return: its index; -1: none.
 */
static int pick_coherent_type(const struct vk_device *device, uint32_t types,
			      VkMemoryPropertyFlags required)
{
	const VkMemoryPropertyFlags refused = VK_MEMORY_PROPERTY_PROTECTED_BIT |
					      VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
					      VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
	int best = -1, best_score = -1;

	required |= VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	for (uint32_t i = 0; i < device->heaps.memoryTypeCount; i++) {
		VkMemoryPropertyFlags flags = device->heaps.memoryTypes[i].propertyFlags;
		int score = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT ? 2 : 0) +
			    (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT ? 0 : 1);

		if (!(types & (1u << i)) || (flags & required) != required || (flags & refused))
			continue;
		if (score > best_score) {
			best = (int)i;
			best_score = score;
		}
	}
	return best;
}

/* Allocate memory, with @next in the chain, and bind it to the buffer. */
static int allocate(struct vk_device *device, uint64_t bytes, uint32_t type, const void *next,
		    struct vk_segment *segment)
{
	const VkMemoryAllocateFlagsInfo flags = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
		.pNext = next,
		.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
	};
	const VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = &flags,
		.allocationSize = bytes,
		.memoryTypeIndex = type,
	};
	VkResult result;
	int r;

	result = device->vk.vkAllocateMemory(device->handle, &info, NULL, &segment->memory);
	if (result != VK_SUCCESS)
		segment->memory = VK_NULL_HANDLE;
	if (result == VK_ERROR_INVALID_EXTERNAL_HANDLE)
		return VK_SEGMENT_E_REFUSED;
	r = vk_result(result, "vkAllocateMemory of an arena");
	if (r)
		return error_fold(r);
	r = vk_result(
		device->vk.vkBindBufferMemory(device->handle, segment->buffer, segment->memory, 0),
		"vkBindBufferMemory of an arena");
	if (r)
		return error_fold(r);
	segment->address = vk_buffer_address(device, segment->buffer);
	if (segment->address == 0 || segment->address % RBK_REF_ALIGN)
		return VK_SEGMENT_E_REFUSED;
	return 0;
}

int vk_segment_host(struct vk_device *device, void *base, uint64_t bytes, struct vk_segment *ret)
{
	const VkImportMemoryHostPointerInfoEXT pointer = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
		.handleType = HOST,
		.pHostPointer = base,
	};
	VkMemoryHostPointerPropertiesEXT properties = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT,
	};
	uint64_t align = device->import_align_bytes;
	struct vk_segment segment = {0};
	VkMemoryRequirements needs;
	int type, r;

	if (align == 0 || (uintptr_t)base % align || bytes % align)
		return VK_SEGMENT_E_REFUSED;
	r = vk_result(device->vk.vkGetMemoryHostPointerPropertiesEXT(device->handle, HOST, base,
								     &properties),
		      "vkGetMemoryHostPointerPropertiesEXT");
	if (r)
		return r == -ENOMEM ? error_fold(r) : VK_SEGMENT_E_REFUSED;
	r = make_buffer(device, HOST, bytes, &segment, &needs);
	if (r)
		goto error;
	type = pick_coherent_type(device, properties.memoryTypeBits & needs.memoryTypeBits, 0);
	r = type < 0 || needs.size > bytes
		    ? VK_SEGMENT_E_REFUSED
		    : allocate(device, bytes, (uint32_t)type, &pointer, &segment);
	if (r)
		goto error;
	*ret = segment;
	return 0;

error:
	vk_segment_free(device, &segment);
	return r;
}

int vk_segment_dma_buf(struct vk_device *device, int fd, uint64_t bytes, bool is_own,
		       struct vk_segment *ret)
{
	VkMemoryFdPropertiesKHR properties = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_FD_PROPERTIES_KHR,
	};
	VkMemoryDedicatedAllocateInfo dedicated = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO,
	};
	VkImportMemoryFdInfoKHR import = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
		.pNext = &dedicated,
		.handleType = DMA_BUF,
	};
	_cleanup_(close_fdp) int copy = -1;
	struct vk_segment segment = {0};
	VkMemoryRequirements needs;
	int type, r;

	if (!device->has_dma_buf)
		return VK_SEGMENT_E_REFUSED;
	r = vk_result(
		device->vk.vkGetMemoryFdPropertiesKHR(device->handle, DMA_BUF, fd, &properties),
		"vkGetMemoryFdPropertiesKHR");
	if (r)
		return r == -ENOMEM ? error_fold(r) : VK_SEGMENT_E_REFUSED;
	r = make_buffer(device, DMA_BUF, bytes, &segment, &needs);
	if (r)
		goto error;
	type = pick_coherent_type(device, properties.memoryTypeBits & needs.memoryTypeBits,
				  is_own ? EXPORTED_TYPE : 0);
	if (type < 0 || needs.size > bytes) {
		r = VK_SEGMENT_E_REFUSED;
		goto error;
	}

	/* A successful import takes over the descriptor, so pass a copy. */
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0) {
		r = error_origin(-ENOMEM);
		goto error;
	}
	dedicated.buffer = segment.buffer;
	import.fd = copy;
	r = allocate(device, bytes, (uint32_t)type, &import, &segment);
	if (segment.memory)
		copy = -1;
	if (r)
		goto error;
	*ret = segment;
	return 0;

error:
	vk_segment_free(device, &segment);
	return r;
}

int vk_segment_export(struct vk_device *device, uint64_t bytes, struct vk_segment *ret, int *ret_fd)
{
	VkMemoryDedicatedAllocateInfo dedicated = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO,
	};
	const VkExportMemoryAllocateInfo exportable = {
		.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
		.pNext = &dedicated,
		.handleTypes = DMA_BUF,
	};
	VkMemoryGetFdInfoKHR get = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
		.handleType = DMA_BUF,
	};
	struct vk_segment segment = {0};
	VkMemoryRequirements needs;
	int type, fd, r;

	if (!device->has_dma_buf)
		return VK_SEGMENT_E_REFUSED;
	r = make_buffer(device, DMA_BUF, bytes, &segment, &needs);
	if (r)
		goto error;
	type = pick_coherent_type(device, needs.memoryTypeBits, EXPORTED_TYPE);
	if (type < 0 || needs.size > bytes) {
		r = VK_SEGMENT_E_REFUSED;
		goto error;
	}
	dedicated.buffer = segment.buffer;
	r = allocate(device, bytes, (uint32_t)type, &exportable, &segment);
	if (r)
		goto error;
	get.memory = segment.memory;
	r = vk_result(device->vk.vkGetMemoryFdKHR(device->handle, &get, &fd), "vkGetMemoryFdKHR");
	if (r) {
		r = r == -ENOMEM ? error_fold(r) : VK_SEGMENT_E_REFUSED;
		goto error;
	}
	/* Not every driver sets close-on-exec. */
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret = segment;
	*ret_fd = fd;
	return 0;

error:
	vk_segment_free(device, &segment);
	return r;
}

VkExternalMemoryFeatureFlags vk_segment_dma_buf_features(const struct vk_device *device)
{
	const VkPhysicalDeviceExternalBufferInfo info = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
		.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
			 VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
		.handleType = DMA_BUF,
	};
	VkExternalBufferProperties properties = {
		.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES,
	};

	if (!device->has_dma_buf)
		return 0;
	vkGetPhysicalDeviceExternalBufferProperties(device->physical, &info, &properties);
	return properties.externalMemoryProperties.externalMemoryFeatures;
}
