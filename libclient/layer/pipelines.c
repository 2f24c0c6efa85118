/* SPDX-License-Identifier: MIT */
/* Compute pipelines: see pipelines.h. */
#include "libclient/layer/pipelines.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/recording.h"
#include "libclient/layer/shader.h"
#include "libclient/layer/variants.h"

struct module {
	uint64_t handle;
	uint64_t key;
	uint32_t whole_axes;
	/* code that can be rewritten; NULL: it cannot be, or need not be */
	uint32_t *words;
	size_t n_words;
};

void pipelines_init(struct cutter *cutter)
{
	table_init(&cutter->modules, sizeof(struct module));
	table_init(&cutter->pipelines, sizeof(struct pipeline));
}

static void drop_module(const void *record, void *unused)
{
	free(((const struct module *)record)->words);
}

static void drop_pipeline(const void *record, void *unused)
{
	variants_destroy(NULL, ((const struct pipeline *)record)->variant);
}

void pipelines_deinit(struct cutter *cutter)
{
	table_deinit(&cutter->modules, drop_module, NULL);
	table_deinit(&cutter->pipelines, drop_pipeline, NULL);
}

void pipelines_find(struct cutter *cutter, VkPipeline handle, struct pipeline *ret)
{
	if (table_find(&cutter->pipelines, (uint64_t)handle, ret))
		return;
	ret->handle = (uint64_t)handle;
	ret->key = duration_hash(3, ret->handle);
	ret->whole_axes = SHADER_ALL_AXES;
	ret->variant = NULL;
}

static struct module read_code(uint64_t handle, const VkShaderModuleCreateInfo *info)
{
	const size_t n_words = info->codeSize / sizeof(uint32_t);
	struct module module = {.handle = handle, .key = n_words};

	for (size_t i = 0; i < n_words; i++)
		module.key = duration_hash(module.key, info->pCode[i]);
	module.whole_axes = shader_whole_axes(info->pCode, n_words);
	return module;
}

/* Keep the code of a module that is of use only if it is rewritten. */
static void keep_code(struct module *module, const VkShaderModuleCreateInfo *info)
{
	const size_t n_words = info->codeSize / sizeof(uint32_t);

	if (!module->whole_axes || !shader_can_rewrite(info->pCode, n_words))
		return;
	module->words = malloc(info->codeSize);
	if (!module->words)
		return;
	memcpy(module->words, info->pCode, info->codeSize);
	module->n_words = n_words;
}

VkResult pipelines_create_module(struct device *device, const VkShaderModuleCreateInfo *info,
				 const VkAllocationCallbacks *allocator, VkShaderModule *ret)
{
	struct cutter *cutter = device->cutter;
	VkResult result = cutter->next.create_module(device->handle, info, allocator, ret);
	struct module module;

	if (result != VK_SUCCESS)
		return result;
	module = read_code((uint64_t)*ret, info);
	if (cutter->has_variants)
		keep_code(&module, info);
	/* Without memory its dispatches stay whole. */
	if (table_add(&cutter->modules, &module))
		free(module.words);
	return result;
}

void pipelines_destroy_module(struct device *device, VkShaderModule module,
			      const VkAllocationCallbacks *allocator)
{
	struct module known;

	if (module && table_remove(&device->cutter->modules, (uint64_t)module, &known))
		free(known.words);
	device->cutter->next.destroy_module(device->handle, module, allocator);
}

static uint64_t hash_constants(uint64_t hash, const VkSpecializationInfo *constants)
{
	const uint8_t *bytes = constants->pData;

	for (uint32_t i = 0; i < constants->mapEntryCount; i++)
		hash = duration_hash(duration_hash(hash, constants->pMapEntries[i].constantID),
				     constants->pMapEntries[i].offset);
	for (size_t i = 0; i < constants->dataSize; i++)
		hash = duration_hash(hash, bytes[i]);
	return hash;
}

/*
 * Find out about a shader: a module, or its code, which is *ret_code then. Return false if it is
 * not known.
 */
static bool find_shader(struct cutter *cutter, const VkPipelineShaderStageCreateInfo *stage,
			struct module *ret, const VkShaderModuleCreateInfo **ret_code)
{
	const VkBaseInStructure *each = stage->pNext;

	*ret_code = NULL;
	if (stage->module)
		return table_find(&cutter->modules, (uint64_t)stage->module, ret);
	while (each && each->sType != VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO)
		each = each->pNext;
	*ret_code = (const VkShaderModuleCreateInfo *)each;
	if (each)
		*ret = read_code(0, *ret_code);
	return each != NULL;
}

/*
 * VkPipelineCreateFlags2CreateInfoKHR of VK_KHR_maintenance5, which these headers may not have. It
 * takes the place of the flags that allow vkCmdDispatchBase().
 */
static bool has_flags2(const VkComputePipelineCreateInfo *info)
{
	const VkBaseInStructure *each = info->pNext;

	while (each && each->sType != (VkStructureType)1000470005)
		each = each->pNext;
	return each != NULL;
}

static void note_pipeline(struct device *device, const VkComputePipelineCreateInfo *info,
			  VkPipeline handle, bool has_base)
{
	struct cutter *cutter = device->cutter;
	struct pipeline pipeline = {.handle = (uint64_t)handle};
	const VkShaderModuleCreateInfo *code;
	struct module module;

	if (!find_shader(cutter, &info->stage, &module, &code))
		return;
	pipeline.key = module.key;
	for (const char *name = info->stage.pName; *name; name++)
		pipeline.key = duration_hash(pipeline.key, (uint8_t)*name);
	if (info->stage.pSpecializationInfo)
		pipeline.key = hash_constants(pipeline.key, info->stage.pSpecializationInfo);
	pipeline.whole_axes = has_base ? module.whole_axes : SHADER_ALL_AXES;
	if (has_base && cutter->has_variants && module.words)
		pipeline.variant = variants_prepare(device, info, module.words, module.n_words);
	else if (has_base && cutter->has_variants && code && module.whole_axes)
		pipeline.variant = variants_prepare(device, info, code->pCode,
						    code->codeSize / sizeof(uint32_t));
	if (table_add(&cutter->pipelines, &pipeline))
		variants_destroy(device, pipeline.variant);
}

VkResult pipelines_create(struct device *device, VkPipelineCache cache, uint32_t n,
			  const VkComputePipelineCreateInfo *infos,
			  const VkAllocationCallbacks *allocator, VkPipeline *ret)
{
	struct cutter *cutter = device->cutter;
	VkComputePipelineCreateInfo *changed = NULL;
	VkResult result;

	if (cutter->slice)
		changed = reallocarray(NULL, n, sizeof(*changed));
	if (changed) {
		memcpy(changed, infos, n * sizeof(*changed));
		for (uint32_t i = 0; i < n; i++)
			changed[i].flags |= VK_PIPELINE_CREATE_DISPATCH_BASE;
	}
	result = cutter->next.create_pipelines(device->handle, cache, n, changed ? changed : infos,
					       allocator, ret);
	/* Some of them may have been made even if others failed. */
	for (uint32_t i = 0; i < n; i++)
		if (ret[i])
			note_pipeline(device, &infos[i], ret[i], changed && !has_flags2(&infos[i]));
	free(changed);
	return result;
}

void pipelines_destroy(struct device *device, VkPipeline pipeline,
		       const VkAllocationCallbacks *allocator)
{
	struct pipeline known;

	if (pipeline && table_remove(&device->cutter->pipelines, (uint64_t)pipeline, &known))
		variants_destroy(device, known.variant);
	recording_end_generation();
	device->cutter->next.destroy_pipeline(device->handle, pipeline, allocator);
}
