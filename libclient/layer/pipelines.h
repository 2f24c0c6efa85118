#pragma once
/* SPDX-License-Identifier: MIT */
/* Compute pipelines, and what is known of their shaders. Any thread. */
#include <stdint.h>

#include <vulkan/vulkan_core.h>

struct cutter;
struct device;
struct variant;

struct pipeline {
	uint64_t handle;
	uint64_t key;            /* a hash, equal for the same code, entry point and constants */
	uint32_t whole_axes;     /* see shader_whole_axes() */
	struct variant *variant; /* NULL: there is none, or no need of one */
};

void pipelines_init(struct cutter *cutter);
void pipelines_deinit(struct cutter *cutter);

/* Find a pipeline. One that is not known has SHADER_ALL_AXES, and a key of its handle. */
void pipelines_find(struct cutter *cutter, VkPipeline handle, struct pipeline *ret);

VkResult pipelines_create_module(struct device *device, const VkShaderModuleCreateInfo *info,
				 const VkAllocationCallbacks *allocator, VkShaderModule *ret);
void pipelines_destroy_module(struct device *device, VkShaderModule module,
			      const VkAllocationCallbacks *allocator);
/* Create pipelines whose dispatches may be divided. */
VkResult pipelines_create(struct device *device, VkPipelineCache cache, uint32_t n,
			  const VkComputePipelineCreateInfo *infos,
			  const VkAllocationCallbacks *allocator, VkPipeline *ret);
void pipelines_destroy(struct device *device, VkPipeline pipeline,
		       const VkAllocationCallbacks *allocator);
