/* SPDX-License-Identifier: MIT */
/*
 * A bare Vulkan loop: see bench.h. It uses this room's device, memory and pipelines, so that
 * brokerbench compares only the way to the device.
 */
#include "vulkan/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "util/error.h"
#include "vulkan/arena-import.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/lower.h"
#include "vulkan/shaders.h"
#include "vulkan/tiles.h"

/* Rows and columns of the output per workgroup of VULKAN_BARE_REGISTERS. */
enum { REGISTER_ROWS = 8, REGISTER_COLS = 32 };

struct vulkan_bare {
	struct vulkan *vulkan;
	struct vk_device *device;
	struct exec_arena *arena;
	uint64_t offset[3], bytes;
	struct vk_allocation params, staging; /* staging: a, b and c, one after the other */
	VkCommandPool pool;
	VkCommandBuffer commands;
	VkFence fence;
	struct vulkan_bare_bound {
		VkDescriptorSetLayout set_layout;
		VkPipelineLayout layout;
		VkDescriptorPool pool;
		VkDescriptorSet set;
		VkPipeline pipeline;
	} bound; /* VULKAN_BARE_REGISTERS only */
	uint32_t n;
};

/* ---- A shader with bound buffers ---- */

static int bound_layout(struct vulkan_bare *bare)
{
	struct vk_device *device = bare->device;
	VkDescriptorSetLayoutBinding bindings[3];
	const VkDescriptorSetLayoutCreateInfo set = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
		.bindingCount = 3,
		.pBindings = bindings,
	};
	const VkPushConstantRange push = {
		.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
		.size = sizeof(bare->n),
	};
	VkPipelineLayoutCreateInfo layout = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.setLayoutCount = 1,
		.pSetLayouts = &bare->bound.set_layout,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &push,
	};
	int r;

	for (uint32_t i = 0; i < 3; i++)
		bindings[i] = (VkDescriptorSetLayoutBinding){
			.binding = i,
			.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			.descriptorCount = 1,
			.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
		};
	r = vk_result(device->vk.vkCreateDescriptorSetLayout(device->handle, &set, NULL,
							     &bare->bound.set_layout),
		      "vkCreateDescriptorSetLayout");
	if (!r)
		r = vk_result(device->vk.vkCreatePipelineLayout(device->handle, &layout, NULL,
								&bare->bound.layout),
			      "vkCreatePipelineLayout");
	return r ? error_fold(r) : 0;
}

static int bound_pipeline(struct vulkan_bare *bare)
{
	struct vk_device *device = bare->device;
	const VkShaderModuleCreateInfo module = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = vk_shader_register_matmul.code[VK_FLOATS].bytes,
		.pCode = vk_shader_register_matmul.code[VK_FLOATS].words,
	};
	VkComputePipelineCreateInfo pipeline = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.layout = bare->bound.layout,
		.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
			  .pName = "main"},
	};
	VkResult result;
	int r;

	r = vk_result(device->vk.vkCreateShaderModule(device->handle, &module, NULL,
						      &pipeline.stage.module),
		      "vkCreateShaderModule");
	if (r)
		return error_fold(r);
	result = device->vk.vkCreateComputePipelines(device->handle, VK_NULL_HANDLE, 1, &pipeline,
						     NULL, &bare->bound.pipeline);
	device->vk.vkDestroyShaderModule(device->handle, pipeline.stage.module, NULL);
	return vk_result(result, "vkCreateComputePipelines");
}

/* Bind the matrices, in the arena or in staging. */
static int bound_set(struct vulkan_bare *bare)
{
	struct vk_device *device = bare->device;
	const struct vk_import *import = bare->arena->import[device->executor.index];
	const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 3};
	const VkDescriptorPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 1,
		.poolSizeCount = 1,
		.pPoolSizes = &size,
	};
	VkDescriptorSetAllocateInfo set = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorSetCount = 1,
		.pSetLayouts = &bare->bound.set_layout,
	};
	VkDescriptorBufferInfo buffers[3];
	VkWriteDescriptorSet write = {
		.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
		.descriptorCount = 3,
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
		.pBufferInfo = buffers,
	};
	int r;

	for (uint32_t i = 0; i < 3; i++)
		buffers[i] = (VkDescriptorBufferInfo){
			.buffer = import ? import->segments[0].buffer : bare->staging.buffer,
			.offset = import ? bare->offset[i] : i * vk_memory_aligned(bare->bytes),
			.range = bare->bytes,
		};
	r = vk_result(
		device->vk.vkCreateDescriptorPool(device->handle, &pool, NULL, &bare->bound.pool),
		"vkCreateDescriptorPool");
	set.descriptorPool = bare->bound.pool;
	if (!r)
		r = vk_result(
			device->vk.vkAllocateDescriptorSets(device->handle, &set, &bare->bound.set),
			"vkAllocateDescriptorSets");
	if (r)
		return error_fold(r);
	write.dstSet = bare->bound.set;
	device->vk.vkUpdateDescriptorSets(device->handle, 1, &write, 0, NULL);
	return 0;
}

static int bound_init(struct vulkan_bare *bare)
{
	int r;

	r = bound_layout(bare);
	if (!r)
		r = bound_pipeline(bare);
	if (!r)
		r = bound_set(bare);
	return r ? error_fold(r) : 0;
}

static void bound_deinit(struct vulkan_bare *bare)
{
	struct vk_device *device = bare->device;
	struct vulkan_bare_bound *bound = &bare->bound;

	if (bound->pool)
		device->vk.vkDestroyDescriptorPool(device->handle, bound->pool, NULL);
	if (bound->pipeline)
		device->vk.vkDestroyPipeline(device->handle, bound->pipeline, NULL);
	if (bound->layout)
		device->vk.vkDestroyPipelineLayout(device->handle, bound->layout, NULL);
	if (bound->set_layout)
		device->vk.vkDestroyDescriptorSetLayout(device->handle, bound->set_layout, NULL);
}

static void record_bound(struct vulkan_bare *bare)
{
	const struct vulkan_bare_bound *bound = &bare->bound;
	struct vk_device *device = bare->device;

	device->vk.vkCmdBindPipeline(bare->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
				     bound->pipeline);
	device->vk.vkCmdBindDescriptorSets(bare->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
					   bound->layout, 0, 1, &bound->set, 0, NULL);
	device->vk.vkCmdPushConstants(bare->commands, bound->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
				      sizeof(bare->n), &bare->n);
	device->vk.vkCmdDispatch(bare->commands, bare->n / REGISTER_COLS, bare->n / REGISTER_ROWS,
				 1);
}

/* ---- The loop ---- */

static void record_own(struct vulkan_bare *bare, VkPipeline pipeline)
{
	struct vk_device *device = bare->device;

	device->vk.vkCmdBindPipeline(bare->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
	device->vk.vkCmdPushConstants(bare->commands, device->pipelines.layout,
				      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(bare->params.address),
				      &bare->params.address);
	device->vk.vkCmdDispatchIndirect(bare->commands, bare->params.buffer, 0);
}

/* @pipeline: a pipeline of the executor; VK_NULL_HANDLE: that of bound buffers. */
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
	if (pipeline)
		record_own(bare, pipeline);
	else
		record_bound(bare);
	device->vk.vkCmdPipelineBarrier(bare->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
					VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0,
					NULL);
	return vk_result(device->vk.vkEndCommandBuffer(bare->commands), "vkEndCommandBuffer");
}

/* Fill in the parameter block; allocate staging if the arena is not imported. */
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
	const struct vk_pipe_info *info;
	_cleanup_(vulkan_bare_freep) struct vulkan_bare *bare = NULL;
	VkPipeline pipeline = VK_NULL_HANDLE;
	struct exec_tiles tiles;
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
	/* Do not probe, which needs threads: a failed import falls back to staging. */
	if (!(options->force & VULKAN_FORCE_STAGED))
		bare->device->paths.works |= 1u << VULKAN_PATH_HOST_IMPORT;
	bare->offset[0] = a_offset;
	bare->offset[1] = b_offset;
	bare->offset[2] = c_offset;
	bare->n = n;
	bare->bytes = (uint64_t)n * n * sizeof(float);
	vk_arena_import(bare->device, arena);
	bare->arena = arena;

	vk_tiles_guess(bare->device, &tiles);
	info = shader == VULKAN_BARE_NAIVE
		       ? &vk_pipe_naive_matmul.of[bare->device->variant]
		       : vk_tile_info(bare->device->variant, EXEC_TILE_MATMUL,
				      tiles.of[EXEC_TILE_MATMUL][exec_tile_class(n, n, 1)]);
	r = place(bare, info, n);
	if (!r && shader == VULKAN_BARE_REGISTERS)
		r = bound_init(bare);
	else if (!r)
		r = vk_pipeline_of(bare->device, info, &pipeline);
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
		bound_deinit(bare);
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
