/* SPDX-License-Identifier: MIT */
/* Variants of pipelines: see variants.h. */
#include "libclient/layer/variants.h"

#include <stdlib.h>
#include <string.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/say.h"
#include "libclient/layer/shader.h"

/* A layout with room for the numbers, counted by its users: the program and variants. */
struct layout {
	VkPipelineLayout handle;
	VkShaderStageFlags stages; /* of the range that has the room */
	uint32_t offset_bytes;     /* of the room */
	uint32_t n_users;          /* atomic */
};

/* A record of the device's table */
struct of_layout {
	uint64_t handle;
	struct layout *layout;
};

enum variant_state { NOT_MADE, MAKING, MADE, FAILED };

struct variant {
	uint32_t state; /* atomic, enum variant_state */
	VkPipeline pipeline;
	struct layout *layout;
	/* The parts of which the pipeline is made, until then; the variant owns them. */
	uint32_t *words;
	size_t n_words;
	VkPipelineCreateFlags flags;
	VkPipelineShaderStageCreateFlags stage_flags;
	char *name;
	VkSpecializationInfo constants; /* no entries: there are none */
	uint32_t subgroup_size;         /* required; 0: none is */
};

/* ---- Layouts ---- */

/* of structures, arrays and matrices with components of up to 32 bits */
enum { LARGEST_ALIGNMENT = 16 };

void variants_init(struct cutter *cutter)
{
	table_init(&cutter->layouts, sizeof(struct of_layout));
}

/* Drop a user of the layout. @device: NULL if it was destroyed. */
static void leave_layout(const struct device *device, struct layout *layout)
{
	if (__atomic_sub_fetch(&layout->n_users, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (device)
		device->cutter->next.destroy_layout(device->handle, layout->handle, NULL);
	free(layout);
}

static void forget_layout(const void *record, void *unused)
{
	leave_layout(NULL, ((const struct of_layout *)record)->layout);
}

void variants_deinit(struct cutter *cutter)
{
	table_deinit(&cutter->layouts, forget_layout, NULL);
}

/*
 * Return the place of the numbers behind @end bytes of push constants. The block of the shader may
 * end with a structure, an array or a matrix, behind which SPIR-V allows no member in the padding.
 */
static uint32_t place_behind(const struct device *device, uint32_t end)
{
	const uint32_t padded = (end + LARGEST_ALIGNMENT - 1) & ~(LARGEST_ALIGNMENT - 1u);

	return padded + SHADER_COUNTS_BYTES <= device->physical->max_push_bytes ? padded : end;
}

/*
 * Copy the ranges of @info, with room for the numbers: for compute, and behind all others. Return:
 * the number of ranges; 0: there is no room.
 */
static uint32_t make_room(const struct device *device, const VkPipelineLayoutCreateInfo *info,
			  VkPushConstantRange *ranges, struct layout *layout)
{
	const uint32_t n = info->pushConstantRangeCount;
	uint32_t end = 0, at = n, place;

	for (uint32_t i = 0; i < n; i++) {
		ranges[i] = info->pPushConstantRanges[i];
		if (ranges[i].stageFlags & VK_SHADER_STAGE_COMPUTE_BIT)
			at = i;
		if (ranges[i].offset + ranges[i].size > end)
			end = ranges[i].offset + ranges[i].size;
	}
	place = place_behind(device, end);
	if (at == n)
		ranges[at] = (VkPushConstantRange){
			.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
			.offset = place,
		};
	/* A longer range must not overlap the ranges of other stages. */
	if (place + SHADER_COUNTS_BYTES > device->physical->max_push_bytes ||
	    ranges[at].offset + ranges[at].size < end)
		return 0;
	ranges[at].size = place + SHADER_COUNTS_BYTES - ranges[at].offset;
	layout->stages = ranges[at].stageFlags;
	layout->offset_bytes = place;
	return at < n ? n : n + 1;
}

/* Remember a layout that was made with room; without memory it has no variants. */
static void add_layout(struct cutter *cutter, VkPipelineLayout handle, struct layout layout)
{
	struct of_layout record = {(uint64_t)handle, malloc(sizeof(*record.layout))};

	if (!record.layout)
		return;
	layout.handle = handle;
	layout.n_users = 1;
	*record.layout = layout;
	if (table_add(&cutter->layouts, &record))
		free(record.layout);
}

VkResult variants_create_layout(struct device *device, const VkPipelineLayoutCreateInfo *info,
				const VkAllocationCallbacks *allocator, VkPipelineLayout *ret)
{
	struct cutter *cutter = device->cutter;
	VkPipelineLayoutCreateInfo changed = *info;
	VkPushConstantRange *ranges = NULL;
	struct layout layout;
	VkResult result;
	uint32_t n = 0;

	if (cutter->has_variants) {
		ranges = reallocarray(NULL, (size_t)info->pushConstantRangeCount + 1,
				      sizeof(*ranges));
		/* Without room it would not be compatible with others of the same ranges. */
		if (!ranges)
			return VK_ERROR_OUT_OF_HOST_MEMORY;
		n = make_room(device, info, ranges, &layout);
	}
	if (n > 0) {
		changed.pushConstantRangeCount = n;
		changed.pPushConstantRanges = ranges;
	}
	result = cutter->next.create_layout(device->handle, &changed, allocator, ret);
	/* A layout may outlive the program's use of it, but not the program's allocator. */
	if (n > 0 && result == VK_SUCCESS && !allocator)
		add_layout(cutter, *ret, layout);
	free(ranges);
	return result;
}

void variants_destroy_layout(struct device *device, VkPipelineLayout layout,
			     const VkAllocationCallbacks *allocator)
{
	struct of_layout found;

	if (layout && table_remove(&device->cutter->layouts, (uint64_t)layout, &found))
		leave_layout(device, found.layout);
	else
		device->cutter->next.destroy_layout(device->handle, layout, allocator);
}

/* Find a layout, and become a user of it. Return: NULL: it has no room. */
static struct layout *use_layout(struct cutter *cutter, VkPipelineLayout handle)
{
	struct of_layout found;

	if (!table_find(&cutter->layouts, (uint64_t)handle, &found))
		return NULL;
	__atomic_fetch_add(&found.layout->n_users, 1, __ATOMIC_RELAXED);
	return found.layout;
}

/* ---- Variants ---- */

/* Read what extends a stage. Return: false: something does that is not copied. */
static bool read_extensions(const VkPipelineShaderStageCreateInfo *stage, uint32_t *ret_size)
{
	const VkBaseInStructure *each = stage->pNext;

	*ret_size = 0;
	for (; each; each = each->pNext)
		if (each->sType ==
		    VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO)
			*ret_size =
				((const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *)each)
					->requiredSubgroupSize;
		else if (each->sType != VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO)
			return false;
	return true;
}

/* Return true if @info has nothing but what a variant copies, or can do without. */
static bool can_copy(const VkComputePipelineCreateInfo *info)
{
	const VkPipelineCreateFlags flags =
		VK_PIPELINE_CREATE_DISABLE_OPTIMIZATION_BIT |
		VK_PIPELINE_CREATE_ALLOW_DERIVATIVES_BIT | VK_PIPELINE_CREATE_DERIVATIVE_BIT |
		VK_PIPELINE_CREATE_DISPATCH_BASE_BIT |
		VK_PIPELINE_CREATE_FAIL_ON_PIPELINE_COMPILE_REQUIRED_BIT |
		VK_PIPELINE_CREATE_EARLY_RETURN_ON_FAILURE_BIT;
	const VkBaseInStructure *each = info->pNext;

	while (each && each->sType == VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO)
		each = each->pNext;
	return !each && (info->flags & ~flags) == 0;
}

static bool copy_constants(VkSpecializationInfo *to, const VkSpecializationInfo *from)
{
	VkSpecializationMapEntry *entries;
	char *data;

	if (!from || from->mapEntryCount == 0)
		return true;
	entries = reallocarray(NULL, from->mapEntryCount, sizeof(*entries));
	data = malloc(from->dataSize ? from->dataSize : 1);
	*to = (VkSpecializationInfo){from->mapEntryCount, entries, from->dataSize, data};
	if (!entries || !data)
		return false;
	memcpy(entries, from->pMapEntries, from->mapEntryCount * sizeof(*entries));
	memcpy(data, from->pData, from->dataSize);
	return true;
}

/* Free what the pipeline was made of. */
static void drop_parts(struct variant *variant)
{
	free(variant->words);
	free(variant->name);
	free((void *)(uintptr_t)variant->constants.pMapEntries);
	free((void *)(uintptr_t)variant->constants.pData);
	variant->words = NULL;
	variant->name = NULL;
	variant->constants = (VkSpecializationInfo){0};
}

struct variant *variants_prepare(struct device *device, const VkComputePipelineCreateInfo *info,
				 const uint32_t *words, size_t n_words)
{
	struct layout *layout;
	struct variant *variant;
	uint32_t subgroup_size;

	if (!can_copy(info) || !read_extensions(&info->stage, &subgroup_size))
		return NULL;
	layout = use_layout(device->cutter, info->layout);
	variant = layout ? calloc(1, sizeof(*variant)) : NULL;
	if (!variant)
		goto fail;
	variant->layout = layout;
	variant->flags = (info->flags & VK_PIPELINE_CREATE_DISABLE_OPTIMIZATION_BIT) |
			 VK_PIPELINE_CREATE_DISPATCH_BASE_BIT;
	variant->stage_flags = info->stage.flags;
	variant->subgroup_size = subgroup_size;
	variant->words = shader_rewrite(words, n_words, layout->offset_bytes, &variant->n_words);
	variant->name = strdup(info->stage.pName);
	if (variant->words && variant->name &&
	    copy_constants(&variant->constants, info->stage.pSpecializationInfo))
		return variant;
	drop_parts(variant);
	free(variant);
fail:
	if (layout)
		leave_layout(device, layout);
	return NULL;
}

void variants_destroy(const struct device *device, struct variant *variant)
{
	if (!variant)
		return;
	if (variant->pipeline && device)
		device->cutter->next.destroy_pipeline(device->handle, variant->pipeline, NULL);
	leave_layout(device, variant->layout);
	drop_parts(variant);
	free(variant);
}

static VkResult make_pipeline(struct device *device, struct variant *variant)
{
	const struct cut_next *next = &device->cutter->next;
	const VkShaderModuleCreateInfo code = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = variant->n_words * sizeof(uint32_t),
		.pCode = variant->words,
	};
	const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
		.requiredSubgroupSize = variant->subgroup_size,
	};
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.flags = variant->flags,
		.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
		.stage.pNext = variant->subgroup_size ? &subgroup : NULL,
		.stage.flags = variant->stage_flags,
		.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT,
		.stage.pName = variant->name,
		.stage.pSpecializationInfo =
			variant->constants.mapEntryCount ? &variant->constants : NULL,
		.layout = variant->layout->handle,
		.basePipelineIndex = -1,
	};
	VkResult result = next->create_module(device->handle, &code, NULL, &info.stage.module);

	if (result != VK_SUCCESS)
		return result;
	result = next->create_pipelines(device->handle, VK_NULL_HANDLE, 1, &info, NULL,
					&variant->pipeline);
	next->destroy_module(device->handle, info.stage.module, NULL);
	return result;
}

bool variants_make(struct device *device, struct variant *variant)
{
	uint32_t state = NOT_MADE;
	VkResult result;

	if (__atomic_load_n(&variant->state, __ATOMIC_ACQUIRE) == MADE)
		return true;
	if (!__atomic_compare_exchange_n(&variant->state, &state, MAKING, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_ACQUIRE))
		return state == MADE;
	result = make_pipeline(device, variant);
	drop_parts(variant);
	if (result == VK_SUCCESS)
		say("a shader that reads gl_NumWorkGroups was rewritten for slices");
	else
		say("the driver refuses a rewritten shader (%d): its dispatches stay whole",
		    (int)result);
	__atomic_store_n(&variant->state, result == VK_SUCCESS ? MADE : FAILED, __ATOMIC_RELEASE);
	return result == VK_SUCCESS;
}

void variants_bind(const struct device *device, const struct variant *variant,
		   VkCommandBuffer commands, const uint32_t n_groups[3])
{
	const struct cut_next *next = &device->cutter->next;
	const struct layout *layout = variant->layout;

	next->bind_pipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, variant->pipeline);
	next->push_constants(commands, layout->handle, layout->stages, layout->offset_bytes,
			     SHADER_COUNTS_BYTES, n_groups);
}
