/* SPDX-License-Identifier: MIT */
/*
 * Pipelines: see pipeline.h.
 *
 * The file on disk is "vulkan-DEVICE-DRIVER.cache" with two UUIDs, so that another driver never
 * reads it. A magic number, the length and a checksum precede the driver's bytes, because drivers
 * check only the header of their data. The file is written under a temporary name and renamed, so
 * that a reader sees one complete version.
 */
#include "vulkan/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shaders/params.glsl"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/log.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/map.glsl"

enum { CACHE_MAX_BYTES = 64 << 20 };

struct cache_header {
	char magic[8];
	uint64_t bytes;
	uint64_t checksum;
};
static const char cache_magic[8] = "rbkvkc1";

/* The cache on disk */

/* Compute FNV-1a over 64-bit words and the remainder: it detects damage, not intent. */
static uint64_t checksum(const uint8_t *bytes, size_t n_bytes)
{
	uint64_t sum = 0xcbf29ce484222325ull, word;

	for (size_t i = 0; i < n_bytes; i += sizeof(word)) {
		word = 0;
		memcpy(&word, bytes + i, n_bytes - i < sizeof(word) ? n_bytes - i : sizeof(word));
		sum = (sum ^ word) * 0x100000001b3ull;
	}
	return sum;
}

static char *cache_path(struct vk_device *device, const char *dir)
{
	char hex[2][2 * VK_UUID_SIZE + 1], *path;

	for (unsigned int i = 0; i < VK_UUID_SIZE; i++) {
		sprintf(hex[0] + 2 * i, "%02x", device->device_uuid[i]);
		sprintf(hex[1] + 2 * i, "%02x", device->driver_uuid[i]);
	}
	if (asprintf(&path, "%s/vulkan-%s-%s.cache", dir, hex[0], hex[1]) < 0)
		return NULL;
	return path;
}

static bool read_all(int fd, void *buffer, size_t n_bytes)
{
	ssize_t n;

	for (size_t at = 0; at < n_bytes; at += n) {
		n = read(fd, (char *)buffer + at, n_bytes - at);
		if (n <= 0)
			return false;
	}
	return true;
}

static bool write_all(int fd, const void *buffer, size_t n_bytes)
{
	ssize_t n;

	for (size_t at = 0; at < n_bytes; at += n) {
		n = write(fd, (const char *)buffer + at, n_bytes - at);
		if (n <= 0)
			return false;
	}
	return true;
}

/* Return: the driver's bytes; NULL if there is no intact file. */
static void *cache_read(const char *path, size_t *ret_bytes)
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	_cleanup_(freep) void *data = NULL;
	struct cache_header header;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size <= (off_t)sizeof(header) || st.st_size > CACHE_MAX_BYTES)
		return NULL;
	if (!read_all(fd, &header, sizeof(header)) ||
	    memcmp(header.magic, cache_magic, sizeof(cache_magic)) != 0 ||
	    header.bytes != (uint64_t)st.st_size - sizeof(header))
		return NULL;
	data = malloc(header.bytes);
	if (!data || !read_all(fd, data, header.bytes) ||
	    checksum(data, header.bytes) != header.checksum)
		return NULL;
	*ret_bytes = header.bytes;
	return steal_ptr(data);
}

static bool cache_write(const char *path, const void *data, size_t n_bytes)
{
	struct cache_header header = {.bytes = n_bytes, .checksum = checksum(data, n_bytes)};
	_cleanup_(close_fdp) int fd = -1;
	_cleanup_(freep) char *temporary = NULL;

	memcpy(header.magic, cache_magic, sizeof(cache_magic));
	if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
		temporary = NULL;
		return false;
	}
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return false;
	if (!write_all(fd, &header, sizeof(header)) || !write_all(fd, data, n_bytes) ||
	    fsync(fd) < 0 || rename(temporary, path) < 0) {
		unlink(temporary);
		return false;
	}
	return true;
}

static void cache_save(struct vk_device *device)
{
	struct vk_pipelines *pipelines = &device->pipelines;
	_cleanup_(freep) void *data = NULL;
	size_t n_bytes = 0;

	if (device->vk.vkGetPipelineCacheData(device->handle, pipelines->cache, &n_bytes, NULL) ||
	    n_bytes == 0 || n_bytes > CACHE_MAX_BYTES - sizeof(struct cache_header))
		return;
	data = malloc(n_bytes);
	if (!data ||
	    device->vk.vkGetPipelineCacheData(device->handle, pipelines->cache, &n_bytes, data))
		return;
	if (!cache_write(pipelines->path, data, n_bytes))
		log_debug(LOG_DETAIL, "cannot write %s", pipelines->path);
}

/* Pipelines */

int vk_pipelines_set_path(struct vk_device *device, const char *cache_dir)
{
	if (!cache_dir)
		return 0;
	device->pipelines.path = cache_path(device, cache_dir);
	return device->pipelines.path ? 0 : error_origin(-ENOMEM);
}

int vk_pipelines_init(struct vk_device *device)
{
	struct vk_pipelines *pipelines = &device->pipelines;
	const VkPushConstantRange push = {
		.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
		.size = sizeof(VkDeviceAddress),
	};
	const VkPipelineLayoutCreateInfo layout = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &push,
	};
	VkPipelineCacheCreateInfo cache = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
	};
	_cleanup_(freep) void *data = NULL;
	size_t n_bytes = 0;
	VkResult result;
	int r;

	r = vk_result(device->vk.vkCreatePipelineLayout(device->handle, &layout, NULL,
							&pipelines->layout),
		      "vkCreatePipelineLayout");
	if (r)
		return error_fold(r);
	if (pipelines->path) {
		data = cache_read(pipelines->path, &n_bytes);
		pipelines->dirty = !data;
	}
	cache.initialDataSize = data ? n_bytes : 0;
	cache.pInitialData = data;
	result = device->vk.vkCreatePipelineCache(device->handle, &cache, NULL, &pipelines->cache);
	if (result != VK_SUCCESS && data) {
		cache.initialDataSize = 0;
		result = device->vk.vkCreatePipelineCache(device->handle, &cache, NULL,
							  &pipelines->cache);
	}
	return vk_result(result, "vkCreatePipelineCache");
}

void vk_pipelines_deinit(struct vk_device *device)
{
	struct vk_pipelines *pipelines = &device->pipelines;

	if (pipelines->path && pipelines->cache && pipelines->dirty &&
	    !vk_queue_is_dead(&device->submit))
		cache_save(device);
	for (struct vk_pipeline *pipeline = pipelines->first; pipeline; pipeline = pipeline->next) {
		if (pipeline->handle)
			device->vk.vkDestroyPipeline(device->handle, pipeline->handle, NULL);
		pipeline->handle = VK_NULL_HANDLE;
		pipeline->has_run = pipeline->has_failed = false;
	}
	if (pipelines->cache)
		device->vk.vkDestroyPipelineCache(device->handle, pipelines->cache, NULL);
	if (pipelines->layout)
		device->vk.vkDestroyPipelineLayout(device->handle, pipelines->layout, NULL);
	pipelines->cache = VK_NULL_HANDLE;
	pipelines->layout = VK_NULL_HANDLE;
	pipelines->dirty = false;
}

void vk_pipelines_free(struct vk_pipelines *pipelines)
{
	struct vk_pipeline *pipeline;

	while ((pipeline = pipelines->first)) {
		pipelines->first = pipeline->next;
		free(pipeline);
	}
	free(pipelines->path);
}

/* Numbers of SPIR-V capabilities. */
enum {
	FLOAT64 = 10,
	STORAGE_BUFFER_16_BIT_ACCESS = 4433,
	STORAGE_BUFFER_8_BIT_ACCESS = 4448,
	COOPERATIVE_MATRIX = 6022,
};

/*
 * Return true if the module declares @capability. A module begins with a header of five words and
 * the instructions that declare its capabilities.
 */
static bool code_needs(const uint32_t *code, size_t bytes, uint32_t capability)
{
	enum { HEADER_WORDS = 5, OP_CAPABILITY = 17 };
	const size_t n_words = bytes / sizeof(code[0]);

	for (size_t i = HEADER_WORDS; i + 1 < n_words && (code[i] & 0xffff) == OP_CAPABILITY;
	     i += code[i] >> 16)
		if (code[i + 1] == capability)
			return true;
	return false;
}

bool vk_pipe_is_of_matrices(const struct vk_pipe_info *info)
{
	return info->shader->code[VK_HALVES].words &&
	       code_needs(info->shader->code[VK_HALVES].words, info->shader->code[VK_HALVES].bytes,
			  COOPERATIVE_MATRIX);
}

bool vk_pipeline_can_compile(const struct vk_device *device, const struct vk_pipe_info *info,
			     enum vk_numbers numbers)
{
	const uint32_t *code = info->shader->code[numbers].words;
	const size_t bytes = info->shader->code[numbers].bytes;

	return code &&
	       (device->has_half || !code_needs(code, bytes, STORAGE_BUFFER_16_BIT_ACCESS)) &&
	       (device->has_bytes || !code_needs(code, bytes, STORAGE_BUFFER_8_BIT_ACCESS)) &&
	       (device->product.m > 0 || !code_needs(code, bytes, COOPERATIVE_MATRIX)) &&
	       (device->has_doubles || !code_needs(code, bytes, FLOAT64));
}

int vk_pipeline_compile(struct vk_device *device, const struct vk_pipe_info *info,
			enum vk_numbers numbers, uint32_t curve, VkPipeline *ret)
{
	const VkShaderModuleCreateInfo module_info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = info->shader->code[numbers].bytes,
		.pCode = info->shader->code[numbers].words,
	};
	/*
	 * Zeroed: drivers look up their cache with all of these bytes, also those without a map
	 * entry.
	 */
	uint32_t constants[VK_SPEC_MAX + 1] = {0};
	VkSpecializationMapEntry entries[VK_SPEC_MAX + 1];
	const VkSpecializationInfo spec = {
		.mapEntryCount = info->n_spec + (curve != 0),
		.pMapEntries = entries,
		.dataSize = sizeof(constants),
		.pData = constants,
	};
	VkComputePipelineCreateInfo pipeline = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.layout = device->pipelines.layout,
		.stage =
			{
				.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
				.stage = VK_SHADER_STAGE_COMPUTE_BIT,
				.pName = "main",
				.pSpecializationInfo = &spec,
			},
	};
	const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroups = {
		.sType =
			VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
		.requiredSubgroupSize = device->product.subgroup_size,
	};
	VkResult result;
	int r;

	memcpy(constants, info->spec, sizeof(info->spec));
	if (vk_pipe_is_of_matrices(info)) {
		pipeline.stage.pNext = &subgroups;
		constants[0] *= device->product.subgroup_size;
		constants[3] = device->product.m;
		constants[4] = device->product.n;
		constants[5] = device->product.k;
	}
	for (uint32_t i = 0; i <= info->n_spec; i++)
		entries[i] = (VkSpecializationMapEntry){i, i * sizeof(uint32_t), sizeof(uint32_t)};
	entries[info->n_spec].constantID = ACTIVATION_ID;
	constants[info->n_spec] = curve;
	r = vk_result(device->vk.vkCreateShaderModule(device->handle, &module_info, NULL,
						      &pipeline.stage.module),
		      "vkCreateShaderModule");
	if (r)
		return error_fold(r);
	result = device->vk.vkCreateComputePipelines(device->handle, device->pipelines.cache, 1,
						     &pipeline, NULL, ret);
	device->vk.vkDestroyShaderModule(device->handle, pipeline.stage.module, NULL);
	return vk_result(result, info->name);
}

/*
 * Return a hash that no other pipeline has: addresses have at most 56 bits, of which the last three
 * are 0.
 */
static uint64_t hash_of(const struct vk_pipe_info *info, enum vk_numbers numbers, uint32_t curve)
{
	_Static_assert(VK_N_NUMBERS <= 1 << 2 && MAP_COUNT <= 1 << 8 &&
			       _Alignof(struct vk_pipe_info) == 1 << 3,
		       "what is behind the address");
	return index_hash((uint64_t)(uintptr_t)info << 7 | (uint64_t)numbers << 8 | curve, 0);
}

struct vk_pipeline *vk_pipeline_find(struct vk_pipelines *pipelines,
				     const struct vk_pipe_info *info, enum vk_numbers numbers,
				     uint32_t curve)
{
	const uint64_t hash = hash_of(info, numbers, curve);
	struct index_node *node = index_find(&pipelines->by_key, hash);
	struct vk_pipeline *pipeline;

	assert(info->shader && info->shader->code[numbers].words);
	if (node)
		return container_of(node, struct vk_pipeline, by_key);
	pipeline = malloc(sizeof(*pipeline));
	if (!pipeline)
		return NULL;
	*pipeline = (struct vk_pipeline){
		.next = pipelines->first,
		.info = info,
		.numbers = numbers,
		.curve = curve,
		.number = pipelines->n++,
	};
	pipelines->first = pipeline;
	index_insert(&pipelines->by_key, &pipeline->by_key, hash);
	return pipeline;
}

void vk_pipeline_put(struct vk_device *device, struct vk_pipeline *pipeline, VkPipeline made)
{
	pipeline->handle = made;
	device->pipelines.dirty = true;
}

int vk_pipeline_get(struct vk_device *device, struct vk_pipeline *pipeline, VkPipeline *ret)
{
	VkPipeline made;
	int r;

	if (!pipeline->handle) {
		r = vk_pipeline_compile(device, pipeline->info, pipeline->numbers, pipeline->curve,
					&made);
		if (r)
			return error_fold(r);
		vk_pipeline_put(device, pipeline, made);
	}
	*ret = pipeline->handle;
	return 0;
}

int vk_pipeline_of(struct vk_device *device, const struct vk_pipe_info *info, VkPipeline *ret)
{
	struct vk_pipeline *pipeline = vk_pipeline_find(&device->pipelines, info, VK_FLOATS, 0);

	return pipeline ? vk_pipeline_get(device, pipeline, ret) : error_origin(-ENOMEM);
}
