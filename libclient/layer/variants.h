#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Variants: pipelines whose shaders read the number of workgroups from push constants
 *
 * A shader that reads gl_NumWorkGroups would read a slice's in a slice. So a pipeline of such a
 * shader has a variant with a rewritten shader, which is made when a dispatch has to be sliced
 * first, and is used for slices only. The numbers are behind the program's own push constants: the
 * layer makes pipeline layouts with room for them. Layouts that differ in nothing else are still
 * compatible, since all of them get that room alike.
 *
 * Any thread. A layout that the program destroys is kept as long as there are variants that use it.
 */
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>

struct cutter;
struct device;
struct variant;

void variants_init(struct cutter *cutter);
/* Forget what the program has not destroyed, once the device was destroyed. */
void variants_deinit(struct cutter *cutter);

/* vkCreatePipelineLayout() and vkDestroyPipelineLayout() */
VkResult variants_create_layout(struct device *device, const VkPipelineLayoutCreateInfo *info,
				const VkAllocationCallbacks *allocator, VkPipelineLayout *ret);
void variants_destroy_layout(struct device *device, VkPipelineLayout layout,
			     const VkAllocationCallbacks *allocator);

/*
 * Prepare a variant of a pipeline that is made of @info and of the code @words. Return: NULL: it
 * has none, since the shader cannot be rewritten, the layout has no room, or @info has something
 * that the layer does not copy.
 */
struct variant *variants_prepare(struct device *device, const VkComputePipelineCreateInfo *info,
				 const uint32_t *words, size_t n_words);
/* Destroy a variant, which may be NULL, with its pipeline. @device: NULL if it was destroyed. */
void variants_destroy(const struct device *device, struct variant *variant);

/*
 * Make the variant's pipeline, which takes as long as the program's own did, unless that was done.
 * Return: false: it could not be made, or another thread is about to.
 */
bool variants_make(struct device *device, struct variant *variant);
/* Bind a variant that was made, and push the number of workgroups of a whole dispatch. */
void variants_bind(const struct device *device, const struct variant *variant,
		   VkCommandBuffer commands, const uint32_t n_groups[3]);
