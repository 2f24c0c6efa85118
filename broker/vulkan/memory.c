/* SPDX-License-Identifier: MIT */
/*
 * Device memory, sub-allocated: see memory.h.
 *
 * Drivers limit the number of allocations (4096 is common) and round each up, so small pieces come
 * out of shared blocks. A block is a list of ranges in address order, free or used; neighbours that
 * are both free are merged, so a block without users is one free range and is given back: what is
 * evicted must really leave the device. Pieces of SHARED_MAX_BYTES and more have blocks of their
 * own for the same reason. The account counts rounded pieces, not blocks: a plan's charge must not
 * depend on its neighbours.
 */
#include "vulkan/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"
#include "vulkan/device.h"

enum {
	BLOCK_BYTES = 4 << 20,
	SHARED_MAX_BYTES = 1 << 20,
};

struct vk_range {
	struct vk_range *next, *previous;
	uint64_t offset, bytes;
	bool used;
};

struct vk_block {
	struct vk_block *next;
	struct vk_range *ranges;
	VkDeviceMemory memory;
	VkBuffer buffer;
	VkDeviceAddress address;
	uint8_t *host;
	bool is_shared;
};

/* The first type that has @required and none of @refused, preferring @wanted. */
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
	const VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.pNext = next,
		.size = bytes,
		.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
			 VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
			 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
	};

	return vk_result(device->vk.vkCreateBuffer(device->handle, &info, NULL, ret),
			 "vkCreateBuffer");
}

VkDeviceAddress vk_buffer_address(struct vk_device *device, VkBuffer buffer)
{
	const VkBufferDeviceAddressInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
		.buffer = buffer,
	};

	return device->vk.vkGetBufferDeviceAddress(device->handle, &info);
}

int vk_memory_init(struct vk_device *device, uint64_t cap_bytes)
{
	struct vk_memory *memory = &device->memory;
	VkMemoryRequirements needs;
	VkBuffer buffer;
	int r;

	*memory = (struct vk_memory){.cap_bytes = cap_bytes};
	r = vk_buffer_new(device, BLOCK_BYTES, NULL, &buffer);
	if (r)
		return error_fold(r);
	device->vk.vkGetBufferMemoryRequirements(device->handle, buffer, &needs);
	device->vk.vkDestroyBuffer(device->handle, buffer, NULL);

	/* Parameter blocks and staging are read back too: cached, and not over the bus. */
	if (!pick_type(&device->heaps, needs.memoryTypeBits, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0,
		       VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, &memory->type[VK_MEMORY_DEVICE]) ||
	    !pick_type(&device->heaps, needs.memoryTypeBits,
		       VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
		       VK_MEMORY_PROPERTY_HOST_CACHED_BIT, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
		       &memory->type[VK_MEMORY_HOST]))
		return error_origin(-EIO);
	return 0;
}

void vk_memory_deinit(struct vk_device *device)
{
	for (int kind = 0; kind < VK_MEMORY_KIND_COUNT; kind++) {
		assert(device->memory.used_bytes[kind] == 0);
		assert(!device->memory.blocks[kind]);
	}
}

uint64_t vk_memory_rounded(uint64_t bytes)
{
	return (bytes + VK_MEMORY_ALIGN - 1) & ~(uint64_t)(VK_MEMORY_ALIGN - 1);
}

static void block_free(struct vk_device *device, struct vk_block *block)
{
	struct vk_range *next;

	for (struct vk_range *range = block->ranges; range; range = next) {
		next = range->next;
		free(range);
	}
	if (block->buffer)
		device->vk.vkDestroyBuffer(device->handle, block->buffer, NULL);
	if (block->memory)
		device->vk.vkFreeMemory(device->handle, block->memory, NULL);
	free(block);
}

/* Return: 0; VK_MEMORY_E_FULL if the driver has no memory left; negative errno. */
static int block_new(struct vk_device *device, enum vk_memory_kind kind, uint64_t bytes,
		     struct vk_block **ret)
{
	uint32_t type = device->memory.type[kind];
	const VkMemoryAllocateFlagsInfo flags = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
		.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
	};
	VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = &flags,
		.memoryTypeIndex = type,
	};
	VkMemoryRequirements needs;
	struct vk_block *block;
	VkResult result;
	void *host;
	int r;

	if (bytes > device->max_buffer_bytes)
		return VK_MEMORY_E_FULL;

	block = calloc(1, sizeof(*block));
	if (!block)
		return error_origin(-ENOMEM);
	block->ranges = calloc(1, sizeof(*block->ranges));
	if (!block->ranges) {
		r = error_origin(-ENOMEM);
		goto error;
	}
	block->ranges->bytes = bytes;

	r = vk_buffer_new(device, bytes, NULL, &block->buffer);
	if (r)
		goto error;
	device->vk.vkGetBufferMemoryRequirements(device->handle, block->buffer, &needs);
	info.allocationSize = needs.size;
	result = device->vk.vkAllocateMemory(device->handle, &info, NULL, &block->memory);
	if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) {
		block->memory = VK_NULL_HANDLE;
		r = VK_MEMORY_E_FULL;
		goto error;
	}
	r = vk_result(result, "vkAllocateMemory");
	if (r)
		goto error;
	r = vk_result(
		device->vk.vkBindBufferMemory(device->handle, block->buffer, block->memory, 0),
		"vkBindBufferMemory");
	if (r)
		goto error;

	if ((device->heaps.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) &&
	    (device->heaps.memoryTypes[type].propertyFlags &
	     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)) {
		r = vk_result(device->vk.vkMapMemory(device->handle, block->memory, 0,
						     VK_WHOLE_SIZE, 0, &host),
			      "vkMapMemory");
		if (r && kind == VK_MEMORY_HOST)
			goto error;
		block->host = r ? NULL : host;
	}
	block->address = vk_buffer_address(device, block->buffer);
	*ret = block;
	return 0;

error:
	block_free(device, block);
	return r;
}

/* Marks the first @bytes of a free range as used, splitting off the rest. */
static int range_take(struct vk_range *range, uint64_t bytes)
{
	struct vk_range *rest;

	if (range->bytes > bytes) {
		rest = calloc(1, sizeof(*rest));
		if (!rest)
			return error_origin(-ENOMEM);
		*rest = (struct vk_range){
			.next = range->next,
			.previous = range,
			.offset = range->offset + bytes,
			.bytes = range->bytes - bytes,
		};
		if (rest->next)
			rest->next->previous = rest;
		range->next = rest;
		range->bytes = bytes;
	}
	range->used = true;
	return 0;
}

/* Joins @range with its successor if both are free. */
static void range_merge(struct vk_range *range)
{
	struct vk_range *next = range->next;

	if (range->used || !next || next->used)
		return;
	range->bytes += next->bytes;
	range->next = next->next;
	if (range->next)
		range->next->previous = range;
	free(next);
}

static struct vk_range *find_free(struct vk_block *blocks, uint64_t bytes, struct vk_block **ret)
{
	for (struct vk_block *block = blocks; block; block = block->next)
		for (struct vk_range *range = block->ranges; range && block->is_shared;
		     range = range->next)
			if (!range->used && range->bytes >= bytes) {
				*ret = block;
				return range;
			}
	return NULL;
}

int vk_memory_alloc(struct vk_device *device, enum vk_memory_kind kind, uint64_t bytes,
		    struct vk_piece *piece)
{
	struct vk_memory *memory = &device->memory;
	struct vk_range *range = NULL;
	struct vk_block *block = NULL;
	int r;

	*piece = (struct vk_piece){.kind = kind};
	if (bytes == 0)
		return 0;
	if (bytes > UINT64_MAX / 2)
		return VK_MEMORY_E_FULL;
	bytes = vk_memory_rounded(bytes);
	if (kind == VK_MEMORY_DEVICE &&
	    (bytes > memory->cap_bytes || memory->used_bytes[kind] > memory->cap_bytes - bytes))
		return VK_MEMORY_E_FULL;

	if (bytes < SHARED_MAX_BYTES)
		range = find_free(memory->blocks[kind], bytes, &block);
	if (!range) {
		r = block_new(device, kind, bytes < SHARED_MAX_BYTES ? BLOCK_BYTES : bytes, &block);
		if (r)
			return r == VK_MEMORY_E_FULL ? r : error_fold(r);
		block->is_shared = bytes < SHARED_MAX_BYTES;
		block->next = memory->blocks[kind];
		memory->blocks[kind] = block;
		range = block->ranges;
	}

	r = range_take(range, bytes);
	if (r) {
		if (!block->ranges->used && !block->ranges->next) {
			memory->blocks[kind] = block->next;
			block_free(device, block);
		}
		return error_fold(r);
	}
	memory->used_bytes[kind] += bytes;
	*piece = (struct vk_piece){
		.block = block,
		.range = range,
		.buffer = block->buffer,
		.offset = range->offset,
		.bytes = bytes,
		.address = block->address + range->offset,
		.host = block->host ? block->host + range->offset : NULL,
		.kind = kind,
	};
	return 0;
}

void vk_memory_free(struct vk_device *device, struct vk_piece *piece)
{
	struct vk_memory *memory = &device->memory;
	struct vk_block *block = piece->block, **at;
	struct vk_range *range = piece->range;

	if (!block)
		return;
	assert(range->used && memory->used_bytes[piece->kind] >= piece->bytes);
	memory->used_bytes[piece->kind] -= piece->bytes;
	range->used = false;
	range_merge(range);
	if (range->previous)
		range_merge(range->previous);

	if (!block->ranges->used && !block->ranges->next) {
		for (at = &memory->blocks[piece->kind]; *at != block; at = &(*at)->next)
			;
		*at = block->next;
		block_free(device, block);
	}
	*piece = (struct vk_piece){.kind = piece->kind};
}

bool vk_memory_find(const struct vk_memory *memory, const void *bytes, size_t n)
{
	for (int kind = 0; kind < VK_MEMORY_KIND_COUNT; kind++)
		for (const struct vk_block *block = memory->blocks[kind]; block;
		     block = block->next)
			for (const struct vk_range *range = block->ranges; range;
			     range = range->next)
				for (uint64_t at = 0;
				     block->host && range->used && at + n <= range->bytes; at += 4)
					if (memcmp(block->host + range->offset + at, bytes, n) == 0)
						return true;
	return false;
}

void vk_memory_clear(struct vk_device *device, struct vk_piece *piece, VkCommandBuffer commands)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
				 VK_ACCESS_TRANSFER_WRITE_BIT,
	};

	if (!piece->block)
		return;
	if (piece->host) {
		memset(piece->host, 0, piece->bytes);
		return;
	}
	device->vk.vkCmdFillBuffer(commands, piece->buffer, piece->offset, piece->bytes, 0);
	device->vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
					VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
						VK_PIPELINE_STAGE_TRANSFER_BIT,
					0, 1, &barrier, 0, NULL, 0, NULL);
}
