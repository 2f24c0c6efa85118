#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Pushed descriptors: copies that can be pushed again in later parts of a command buffer
 *
 * A copy lies in recording.pushed: an array of VkWriteDescriptorSet, and behind it the arrays that
 * these point to, one after the other. Templates are turned into writes. Descriptors with
 * extensions, and kinds other than images, buffers and texel buffers, are not copied.
 */
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>

struct bind;
struct cutter;
struct device;
struct recording;

void descriptors_init(struct cutter *cutter);
void descriptors_deinit(struct cutter *cutter);

/*
 * Copy descriptors into the recording, and describe the copy in @bind. Return: false: they cannot
 * be copied, or there is no memory.
 */
bool descriptors_copy(struct recording *recording, uint32_t n, const VkWriteDescriptorSet *writes,
		      struct bind *bind);
/* Copy descriptors as a template describes them. @data: as vkCmdPushDescriptorSetWithTemplateKHR()
 */
bool descriptors_copy_template(struct recording *recording, VkDescriptorUpdateTemplate handle,
			       const void *data, struct bind *bind);
/* Return true if @bind writes all descriptors that @old has written. Both are pushes. */
bool descriptors_include(const struct recording *recording, const struct bind *bind,
			 const struct bind *old);
/* Push the copy in the current part. */
void descriptors_push(struct recording *recording, const struct bind *bind);

VkResult descriptors_create_template(struct device *device,
				     const VkDescriptorUpdateTemplateCreateInfo *info,
				     const VkAllocationCallbacks *allocator,
				     VkDescriptorUpdateTemplate *ret);
void descriptors_destroy_template(struct device *device, VkDescriptorUpdateTemplate handle,
				  const VkAllocationCallbacks *allocator);
