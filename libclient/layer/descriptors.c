/* SPDX-License-Identifier: MIT */
/*
 * Pushed descriptors: see descriptors.h.
 *
 * Source: the Vulkan specification, "Push Descriptor Updates" and "Descriptor Update Templates".
 */
#include "libclient/layer/descriptors.h"

#include <stdlib.h>
#include <string.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/recording.h"

/* Descriptors of one push, at most. */
enum { MAX_WRITES = 64, FIRST_ROOM_BYTES = 4096 };

/* A template for pushes, a record of the cutter's table. */
struct template
{
	uint64_t handle;
	uint32_t n;
	VkDescriptorUpdateTemplateEntry *entries;
};

void descriptors_init(struct cutter *cutter)
{
	table_init(&cutter->templates, sizeof(struct template));
}

static void drop(const void *record, void *unused)
{
	free(((const struct template *)record)->entries);
}

void descriptors_deinit(struct cutter *cutter)
{
	table_deinit(&cutter->templates, drop, NULL);
}

/* Return the size of what describes a descriptor of this type; 0: it is not copied. */
static size_t element_bytes(VkDescriptorType type)
{
	switch (type) {
	case VK_DESCRIPTOR_TYPE_SAMPLER:
	case VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER:
	case VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE:
	case VK_DESCRIPTOR_TYPE_STORAGE_IMAGE:
		return sizeof(VkDescriptorImageInfo);
	case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER:
	case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER:
		return sizeof(VkDescriptorBufferInfo);
	case VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER:
	case VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER:
		return sizeof(VkBufferView);
	default:
		return 0;
	}
}

/* Return the array that a write points to. */
static const void *elements_of(const VkWriteDescriptorSet *write)
{
	switch (element_bytes(write->descriptorType)) {
	case sizeof(VkDescriptorImageInfo):
		/* Buffers are as large. */
		if (write->descriptorType != VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER &&
		    write->descriptorType != VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)
			return write->pImageInfo;
		return write->pBufferInfo;
	default:
		return write->pTexelBufferView;
	}
}
_Static_assert(sizeof(VkDescriptorImageInfo) == sizeof(VkDescriptorBufferInfo), "one case");

/* Reserve room in the recording. Return: NULL without memory. */
static uint8_t *reserve(struct recording *recording, size_t n_bytes)
{
	size_t n_room = recording->n_pushed_room;
	uint8_t *larger;

	if (recording->n_pushed_bytes + n_bytes <= n_room)
		return recording->pushed + recording->n_pushed_bytes;
	n_room = n_room ? n_room * 2 : FIRST_ROOM_BYTES;
	if (n_room < recording->n_pushed_bytes + n_bytes)
		n_room = recording->n_pushed_bytes + n_bytes;
	larger = realloc(recording->pushed, n_room);
	if (!larger)
		return NULL;
	recording->pushed = larger;
	recording->n_pushed_room = n_room;
	return recording->pushed + recording->n_pushed_bytes;
}

bool descriptors_copy(struct recording *recording, uint32_t n, const VkWriteDescriptorSet *writes,
		      struct bind *bind)
{
	size_t n_bytes = n * sizeof(*writes), at = n_bytes;
	uint8_t *copy;

	if (n == 0 || n > MAX_WRITES)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		size_t each = element_bytes(writes[i].descriptorType);

		if (writes[i].pNext || each == 0)
			return false;
		n_bytes += writes[i].descriptorCount * each;
	}
	copy = reserve(recording, n_bytes);
	if (!copy)
		return false;
	memcpy(copy, writes, n * sizeof(*writes));
	for (uint32_t i = 0; i < n; i++) {
		size_t each = writes[i].descriptorCount * element_bytes(writes[i].descriptorType);

		memcpy(copy + at, elements_of(&writes[i]), each);
		at += each;
	}
	bind->n_writes = n;
	bind->writes_at = recording->n_pushed_bytes;
	recording->n_pushed_bytes += n_bytes;
	return true;
}

/* Point @write to its @elements. */
static void set_elements(VkWriteDescriptorSet *write, const void *elements)
{
	write->pImageInfo = elements;
	write->pBufferInfo = elements;
	write->pTexelBufferView = elements;
}

bool descriptors_copy_template(struct recording *recording, VkDescriptorUpdateTemplate handle,
			       const void *data, struct bind *bind)
{
	VkWriteDescriptorSet writes[MAX_WRITES];
	struct template template;
	uint32_t n = 0;

	if (!table_find(&recording->device->cutter->templates, (uint64_t)handle, &template))
		return false;
	for (uint32_t i = 0; i < template.n; i++) {
		const VkDescriptorUpdateTemplateEntry *entry = &template.entries[i];

		/* Elements of an array may lie apart: each is a write of its own. */
		for (uint32_t k = 0; k < entry->descriptorCount; k++) {
			if (n == MAX_WRITES)
				return false;
			writes[n] = (VkWriteDescriptorSet){
				.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
				.dstBinding = entry->dstBinding,
				.dstArrayElement = entry->dstArrayElement + k,
				.descriptorCount = 1,
				.descriptorType = entry->descriptorType,
			};
			set_elements(&writes[n++],
				     (const char *)data + entry->offset + k * entry->stride);
		}
	}
	return descriptors_copy(recording, n, writes, bind);
}

static const VkWriteDescriptorSet *writes_of(const struct recording *recording,
					     const struct bind *bind)
{
	return (const VkWriteDescriptorSet *)(const void *)(recording->pushed + bind->writes_at);
}

bool descriptors_include(const struct recording *recording, const struct bind *bind,
			 const struct bind *old)
{
	const VkWriteDescriptorSet *writes = writes_of(recording, bind),
				   *others = writes_of(recording, old);

	for (uint32_t i = 0; i < old->n_writes; i++) {
		uint32_t k = 0;

		while (k < bind->n_writes &&
		       !(writes[k].dstBinding == others[i].dstBinding &&
			 writes[k].dstArrayElement == others[i].dstArrayElement &&
			 writes[k].descriptorCount == others[i].descriptorCount))
			k++;
		if (k == bind->n_writes)
			return false;
	}
	return bind->layout == old->layout;
}

void descriptors_push(struct recording *recording, const struct bind *bind)
{
	const uint8_t *elements = (const uint8_t *)(writes_of(recording, bind) + bind->n_writes);
	VkWriteDescriptorSet writes[MAX_WRITES];

	memcpy(writes, writes_of(recording, bind), bind->n_writes * sizeof(*writes));
	for (uint32_t i = 0; i < bind->n_writes; i++) {
		set_elements(&writes[i], elements);
		elements += writes[i].descriptorCount * element_bytes(writes[i].descriptorType);
	}
	recording->device->cutter->next.push_set(recording->current, VK_PIPELINE_BIND_POINT_COMPUTE,
						 bind->layout, bind->first, bind->n_writes, writes);
}

/* ---- Templates ---- */

VkResult descriptors_create_template(struct device *device,
				     const VkDescriptorUpdateTemplateCreateInfo *info,
				     const VkAllocationCallbacks *allocator,
				     VkDescriptorUpdateTemplate *ret)
{
	struct cutter *cutter = device->cutter;
	PFN_vkCreateDescriptorUpdateTemplate create = cutter->next.create_template
							      ? cutter->next.create_template
							      : cutter->next.create_template_khr;
	VkResult result = create(device->handle, info, allocator, ret);
	struct template template = {.n = info->descriptorUpdateEntryCount};

	if (result != VK_SUCCESS ||
	    info->templateType != VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_PUSH_DESCRIPTORS_KHR ||
	    info->pipelineBindPoint != VK_PIPELINE_BIND_POINT_COMPUTE)
		return result;
	template.handle = (uint64_t)*ret;
	template.entries = reallocarray(NULL, template.n, sizeof(*template.entries));
	if (template.entries)
		memcpy(template.entries, info->pDescriptorUpdateEntries,
		       template.n * sizeof(*template.entries));
	/* Without memory command buffers stay whole from a push with the template on. */
	if (!template.entries || table_add(&cutter->templates, &template))
		free(template.entries);
	return result;
}

void descriptors_destroy_template(struct device *device, VkDescriptorUpdateTemplate handle,
				  const VkAllocationCallbacks *allocator)
{
	struct cutter *cutter = device->cutter;
	PFN_vkDestroyDescriptorUpdateTemplate destroy = cutter->next.destroy_template
								? cutter->next.destroy_template
								: cutter->next.destroy_template_khr;
	struct template template;

	if (table_remove(&cutter->templates, (uint64_t)handle, &template))
		free(template.entries);
	destroy(device->handle, handle, allocator);
}
