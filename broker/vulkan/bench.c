/* SPDX-License-Identifier: MIT */
/*
 * A bare Vulkan loop: see bench.h. Uses this room's device, memory and pipelines, so that what is
 * compared is the way to the device and nothing else.
 */
#include "vulkan/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "util/error.h"
#include "vulkan/arena-import.h"
#include "vulkan/device.h"
#include "vulkan/lower.h"

struct vulkan_bare {
	struct vulkan *vulkan;
	struct vk_device *device;
	struct exec_arena *arena;
	uint64_t offset[3], bytes;
	struct vk_allocation params, staging; /* staging: a, b, c one after the other */
	VkCommandPool pool;
	VkCommandBuffer commands;
	VkFence fence;
};

static int record(struct vulkan_bare *bare, VkPipeline pipeline)
{
	struct vk_device *device = bare->device;
	const VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.queueFamilyIndex = device->queue_family,
	};
	const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	const VkCommandBufferBeginInfo begin = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
	};
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_HOST_READ_BIT,
	};
	VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};
	int r;

	r = vk_result(device->vk.vkCreateFence(device->handle, &fence, NULL, &bare->fence),
		      "vkCreateFence");
	if (!r)
		r = vk_result(
			device->vk.vkCreateCommandPool(device->handle, &pool, NULL, &bare->pool),
			"vkCreateCommandPool");
	info.commandPool = bare->pool;
	if (!r)
		r = vk_result(
			device->vk.vkAllocateCommandBuffers(device->handle, &info, &bare->commands),
			"vkAllocateCommandBuffers");
	if (!r)
		r = vk_result(device->vk.vkBeginCommandBuffer(bare->commands, &begin),
			      "vkBeginCommandBuffer");
	if (r)
		return error_fold(r);
	device->vk.vkCmdBindPipeline(bare->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
	device->vk.vkCmdPushConstants(bare->commands, device->pipelines.layout,
				      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(bare->params.address),
				      &bare->params.address);
	device->vk.vkCmdDispatchIndirect(bare->commands, bare->params.buffer, 0);
	device->vk.vkCmdPipelineBarrier(bare->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
					VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0,
					NULL);
	return vk_result(device->vk.vkEndCommandBuffer(bare->commands), "vkEndCommandBuffer");
}

/* Fills the parameter block, with memory for staging where arenas are not imported. */
static int place(struct vulkan_bare *bare, const struct vk_pipe_info *info, uint32_t n)
{
	struct vk_device *device = bare->device;
	const struct vk_import *import = bare->arena->import[device->executor.index];
	struct vk_params *params;
	int r;

	r = vk_memory_alloc(device, VK_MEMORY_HOST, vk_memory_pages(device, sizeof(*params)),
			    &bare->params);
	if (!r && !import)
		r = vk_memory_alloc(device, VK_MEMORY_HOST,
				    vk_memory_pages(device, 3 * vk_memory_aligned(bare->bytes)),
				    &bare->staging);
	if (r)
		return r == EXECUTOR_E_NO_MEMORY ? error_origin(-ENOMEM) : error_fold(r);
	params = (struct vk_params *)bare->params.host;
	*params = (struct vk_params){0};
	vk_fill_bare_matmul(info, n, n, n, params);
	for (int i = 0; i < 3; i++)
		params->address[i == 2 ? VK_OUT : i] =
			import ? import->segments[0].address + bare->offset[i]
			       : bare->staging.address + i * vk_memory_aligned(bare->bytes);
	return 0;
}

int vulkan_bare_new(const struct vulkan_options *options, enum vulkan_bare_shader shader,
		    uint32_t n, struct exec_arena *arena, uint64_t a_offset, uint64_t b_offset,
		    uint64_t c_offset, struct vulkan_bare **ret)
{
	enum vk_pipe pipe = shader == VULKAN_BARE_NAIVE ? VK_PIPE_NAIVE_MATMUL : VK_PIPE_MATMUL;
	_cleanup_(vulkan_bare_freep) struct vulkan_bare *bare = NULL;
	VkPipeline pipeline;
	int r;

	bare = calloc(1, sizeof(*bare));
	if (!bare)
		return error_origin(-ENOMEM);
	r = vk_open_alone(options, &bare->vulkan, &bare->device);
	if (r)
		return error_fold(r);
	if (!bare->device)
		return VULKAN_BARE_E_NO_DEVICE;
	bare->device->executor.index = RBK_MAX_DEVICES - 1;
	/* Not probed, which takes threads: an import that fails leads to staging. */
	if (!(options->force & VULKAN_FORCE_STAGED))
		bare->device->paths.works |= 1u << VULKAN_PATH_HOST_IMPORT;
	bare->offset[0] = a_offset;
	bare->offset[1] = b_offset;
	bare->offset[2] = c_offset;
	bare->bytes = (uint64_t)n * n * sizeof(float);
	vk_arena_import(bare->device, arena);
	bare->arena = arena;

	r = place(bare, vk_pipe_info(pipe, bare->device->variant), n);
	if (!r)
		r = vk_pipeline_get(bare->device, pipe, false, &pipeline);
	if (!r)
		r = record(bare, pipeline);
	if (r)
		return error_fold(r);
	*ret = steal_ptr(bare);
	return 0;
}

int vulkan_bare_run(struct vulkan_bare *bare)
{
	struct vk_device *device = bare->device;
	const VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &bare->commands,
	};
	uint64_t step = vk_memory_aligned(bare->bytes);
	VkResult result;

	for (int i = 0; i < 2 && bare->staging.host; i++)
		memcpy(bare->staging.host + i * step, bare->arena->base + bare->offset[i],
		       bare->bytes);
	result = device->vk.vkQueueSubmit(device->queue, 1, &info, bare->fence);
	if (result == VK_SUCCESS)
		result = device->vk.vkWaitForFences(device->handle, 1, &bare->fence, VK_TRUE,
						    UINT64_MAX);
	if (result == VK_SUCCESS)
		result = device->vk.vkResetFences(device->handle, 1, &bare->fence);
	if (bare->staging.host)
		memcpy(bare->arena->base + bare->offset[2], bare->staging.host + 2 * step,
		       bare->bytes);
	return vk_result(result, "a bare submission");
}

struct vulkan_bare *vulkan_bare_free(struct vulkan_bare *bare)
{
	struct vk_device *device;

	if (!bare)
		return NULL;
	device = bare->device;
	if (device) {
		device->vk.vkDeviceWaitIdle(device->handle);
		if (bare->fence)
			device->vk.vkDestroyFence(device->handle, bare->fence, NULL);
		if (bare->pool)
			device->vk.vkDestroyCommandPool(device->handle, bare->pool, NULL);
		vk_memory_free(device, &bare->params);
		vk_memory_free(device, &bare->staging);
		if (bare->arena)
			vk_arena_release(device, bare->arena);
		vk_device_free(device);
	}
	vulkan_free(bare->vulkan);
	free(bare);
	return NULL;
}
