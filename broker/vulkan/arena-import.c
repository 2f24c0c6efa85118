/* SPDX-License-Identifier: MIT */
/*
 * Arenas on a device: see arena-import.h.
 *
 * amdgpu refuses to import shared memory, other drivers accept an import and fail later, so neither
 * the extension nor a successful import says enough: the probe runs a copy shader from one half of
 * a real memfd mapping to the other and compares. The driver does not check alignment; we do.
 */
#include "vulkan/arena-import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plan/executor.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "vulkan/device.h"
#include "vulkan/lower.h"

static void import_free(struct vk_device *device, struct vk_import *import)
{
	if (!import)
		return;
	if (import->buffer)
		device->vk.vkDestroyBuffer(device->handle, import->buffer, NULL);
	if (import->memory)
		device->vk.vkFreeMemory(device->handle, import->memory, NULL);
	free(import);
}

/* Return: NULL if the driver refuses. */
static struct vk_import *import_new(struct vk_device *device, void *base, uint64_t bytes)
{
	const VkExternalMemoryBufferCreateInfo external = {
		.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
		.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
	};
	const VkMemoryAllocateFlagsInfo flags = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
		.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
	};
	const VkImportMemoryHostPointerInfoEXT pointer = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
		.pNext = &flags,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
		.pHostPointer = base,
	};
	VkMemoryHostPointerPropertiesEXT properties = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT,
	};
	VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = &pointer,
		.allocationSize = bytes,
	};
	uint64_t align = device->import_align_bytes;
	VkMemoryRequirements needs;
	struct vk_import *import;
	uint32_t types;

	if (align == 0 || (uintptr_t)base % align || bytes % align ||
	    bytes > device->max_buffer_bytes)
		return NULL;
	import = calloc(1, sizeof(*import));
	if (!import)
		return NULL;

	if (vk_result(device->vk.vkGetMemoryHostPointerPropertiesEXT(
			      device->handle, pointer.handleType, base, &properties),
		      "vkGetMemoryHostPointerPropertiesEXT"))
		goto error;
	if (vk_buffer_new(device, bytes, &external, &import->buffer))
		goto error;
	device->vk.vkGetBufferMemoryRequirements(device->handle, import->buffer, &needs);
	types = properties.memoryTypeBits & needs.memoryTypeBits;
	/* What the processor writes must be seen without flushing. */
	for (uint32_t i = 0; i < device->heaps.memoryTypeCount; i++)
		if (!(device->heaps.memoryTypes[i].propertyFlags &
		      VK_MEMORY_PROPERTY_HOST_COHERENT_BIT))
			types &= ~(1u << i);
	if (!types || needs.size > bytes)
		goto error;
	info.memoryTypeIndex = __builtin_ctz(types);
	if (vk_result(device->vk.vkAllocateMemory(device->handle, &info, NULL, &import->memory),
		      "vkAllocateMemory of an arena")) {
		import->memory = VK_NULL_HANDLE;
		goto error;
	}
	if (vk_result(device->vk.vkBindBufferMemory(device->handle, import->buffer, import->memory,
						    0),
		      "vkBindBufferMemory of an arena"))
		goto error;
	import->address = vk_buffer_address(device, import->buffer);
	if (import->address == 0 || import->address % RBK_REF_ALIGN)
		goto error;
	return import;

error:
	import_free(device, import);
	return NULL;
}

void vk_arena_import(struct vk_device *device, struct exec_arena *arena)
{
	struct vk_import *import = NULL;

	if (device->imports)
		import = import_new(device, arena->base, arena->bytes);
	arena->import[device->executor.index] = import;
	if (import)
		device->n_imports++;
	else
		device->n_refused_imports++;
}

void vk_arena_release(struct vk_device *device, struct exec_arena *arena)
{
	struct vk_import *import = arena->import[device->executor.index];

	vk_device_settle(device);
	if (import)
		device->n_imports--;
	else
		device->n_refused_imports--;
	import_free(device, import);
	arena->import[device->executor.index] = NULL;
}

/* Copies @words from the beginning of an import to @to_offset, by a shader. */
static int probe_copy(struct vk_device *device, struct vk_import *import, uint32_t words,
		      uint64_t to_offset)
{
	const struct vk_pipe_info *info = vk_pipe_info(VK_PIPE_COPY, device->variant);
	struct vk_piece block = {0};
	struct vk_params *params;
	VkCommandBuffer commands;
	VkPipeline pipeline;
	int r;

	r = vk_pipeline_get(device, VK_PIPE_COPY, &pipeline);
	if (r)
		return error_fold(r);
	r = vk_memory_alloc(device, VK_MEMORY_HOST, sizeof(*params), &block);
	if (r)
		return r == VK_MEMORY_E_FULL ? -ENOMEM : error_fold(r);
	params = (struct vk_params *)block.host;
	*params = (struct vk_params){
		.groups = {(words + info->tile_cols - 1) / info->tile_cols, 1, 1},
		.address = {import->address, 0, 0, import->address + to_offset},
	};
	params->w[COPY_WORDS] = words;
	params->w[COPY_GROUPS] = params->groups[0];

	r = vk_setup_begin(device, &commands);
	if (!r) {
		device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
		device->vk.vkCmdPushConstants(commands, device->pipelines.layout,
					      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(block.address),
					      &block.address);
		device->vk.vkCmdDispatchIndirect(commands, block.buffer, block.offset);
		r = vk_setup_run(device);
	}
	vk_memory_free(device, &block);
	return r ? error_fold(r) : 0;
}

int vk_import_probe(struct vk_device *device, const char **ret_why)
{
	enum { WORDS = 3000 };
	uint64_t half = 16384, bytes = 2 * half;
	_cleanup_(close_fdp) int fd = -1;
	struct vk_import *import;
	uint32_t *words;
	int r;

	*ret_why = NULL;
	device->imports = false;
	if (device->options.force & VULKAN_FORCE_STAGED) {
		*ret_why = "staging was asked for";
		return 0;
	}
	if (device->import_align_bytes == 0) {
		*ret_why = "the driver lacks VK_EXT_external_memory_host";
		return 0;
	}
	if (device->import_align_bytes > (uint64_t)sysconf(_SC_PAGESIZE)) {
		*ret_why = "the driver imports no single pages";
		return 0;
	}

	fd = memfd_create("vulkan-probe", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, bytes) < 0)
		return error_origin(-errno);
	words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED)
		return error_origin(-errno);
	import = import_new(device, words, bytes);
	if (!import) {
		*ret_why = "the driver refuses to import shared memory";
		munmap(words, bytes);
		return 0;
	}
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = i * 2654435761u;
	r = probe_copy(device, import, WORDS, half);
	if (r == 0) {
		if (memcmp(words, words + half / 4, WORDS * 4) == 0)
			device->imports = true;
		else
			*ret_why = "the device does not see imported memory";
	} else if (r == -EIO) {
		*ret_why = "the device fails on imported memory";
		r = 0;
	}
	import_free(device, import);
	munmap(words, bytes);
	return r ? error_fold(r) : 0;
}
