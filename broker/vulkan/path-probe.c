/* SPDX-License-Identifier: MIT */
/*
 * Memory paths: which of them a device has
 *
 * amdgpu refuses to import shared memory, and other drivers accept an import and fail later. So
 * neither an extension nor a successful import is proof. For each path, the processor writes real
 * memory of its kind, a shader copies one half to the other, and the processor reads it back.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plan/executor.h"
#include "shm/number.h"
#include "util/cleanup.h"
#include "util/dma-buf.h"
#include "util/error.h"
#include "vulkan/arena-import.h"
#include "vulkan/device.h"
#include "vulkan/lower.h"
#include "vulkan/setup.h"
#include "vulkan/udmabuf.h"

enum {
	HALF_BYTES = VK_PATHS_PROBE_BYTES / 2,
	WORDS = 3000, /* not a multiple of anything */
};

const char *vk_path_name(enum vulkan_path path)
{
	static const char *const names[VULKAN_PATH_COUNT] = {
		[VULKAN_PATH_AUTO] = "auto",       [VULKAN_PATH_HOST_IMPORT] = "host-import",
		[VULKAN_PATH_UDMABUF] = "udmabuf", [VULKAN_PATH_EXPORTED] = "exported",
		[VULKAN_PATH_STAGED] = "staged",
	};

	return names[path];
}

/* Copy WORDS words from the beginning of a segment to its second half, by a shader. */
static int copy(struct vk_device *device, const struct vk_segment *segment)
{
	const struct vk_pipe_info *info = &vk_pipe_copy.of[device->variant];
	struct vk_allocation block;
	struct vk_params *params;
	VkCommandBuffer commands;
	VkPipeline pipeline;
	int r;

	r = vk_pipeline_of(device, info, &pipeline);
	if (r)
		return error_fold(r);
	r = vk_memory_alloc(device, VK_MEMORY_OWN, vk_memory_pages(device, sizeof(*params)),
			    &block);
	if (r)
		return r == EXECUTOR_E_NO_MEMORY ? error_origin(-ENOMEM) : error_fold(r);
	params = (struct vk_params *)block.host;
	*params = (struct vk_params){
		.groups = {div_up(WORDS, info->tile_cols), 1, 1},
		.address = {segment->address, [VK_OUT] = segment->address + HALF_BYTES},
	};
	params->w[COPY_WORDS] = WORDS;
	params->w[COPY_GROUPS] = params->groups[0];

	r = vk_setup_begin(device, &commands);
	if (!r) {
		device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
		device->vk.vkCmdPushConstants(commands, device->pipelines.layout,
					      VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(block.address),
					      &block.address);
		device->vk.vkCmdDispatchIndirect(commands, block.buffer, 0);
		r = vk_setup_run(device);
	}
	vk_memory_free(device, &block);
	return r ? error_fold(r) : 0;
}

int vk_paths_prove(struct vk_device *device, const struct vk_segment *segment, uint8_t *base)
{
	uint32_t *words = (uint32_t *)base;
	int r;

	if (device->options.force & VULKAN_FORCE_UNPROVEN)
		return 0;
	memset(base, 0, VK_PATHS_PROBE_BYTES);
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = (i + 1) * 2654435761u;
	r = copy(device, segment);
	if (r == 0 && memcmp(base, base + HALF_BYTES, WORDS * 4) != 0)
		r = VK_SEGMENT_E_REFUSED;
	memset(base, 0, VK_PATHS_PROBE_BYTES);
	return r == -EIO ? VK_SEGMENT_E_REFUSED : r;
}

/* Make and map a sealed memfd for a probe. */
static int memfd_new(int *ret_fd, uint8_t **ret_base)
{
	_cleanup_(close_fdp) int fd = memfd_create("vulkan-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *base;

	if (fd < 0 || ftruncate(fd, VK_PATHS_PROBE_BYTES) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return error_origin(-errno);
	base = mmap(NULL, VK_PATHS_PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return error_origin(-errno);
	*ret_base = base;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/*
 * Probe a path. This and the following probes:
 * Return: 0; VK_SEGMENT_E_REFUSED, with a phrase in *ret_why; negative errno.
 */
static int probe_host_import(struct vk_device *device, const char **ret_why)
{
	_cleanup_(close_fdp) int fd = -1;
	struct vk_segment segment = {0};
	uint8_t *base;
	int r;

	if (device->import_align_bytes == 0) {
		*ret_why = "the driver lacks VK_EXT_external_memory_host";
		return VK_SEGMENT_E_REFUSED;
	}
	if (device->import_align_bytes > (uint64_t)sysconf(_SC_PAGESIZE)) {
		*ret_why = "the driver cannot import single pages";
		return VK_SEGMENT_E_REFUSED;
	}
	r = memfd_new(&fd, &base);
	if (r)
		return error_fold(r);
	*ret_why = "the driver refuses to import shared memory";
	r = vk_segment_host(device, base, VK_PATHS_PROBE_BYTES, &segment);
	if (!r) {
		*ret_why = "the device does not see imported memory";
		r = vk_paths_prove(device, &segment, base);
	}
	vk_segment_free(device, &segment);
	munmap(base, VK_PATHS_PROBE_BYTES);
	return r;
}

/* Return true if the driver lacks @feature of dma-bufs; *ret_why is then a phrase. */
static bool lacks_dma_buf(struct vk_device *device, VkExternalMemoryFeatureFlagBits feature,
			  const char **ret_why)
{
	bool imports = feature == VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;

	if (!device->has_dma_buf) {
		*ret_why = "the driver lacks VK_EXT_external_memory_dma_buf";
		return true;
	}
	*ret_why = imports ? "the driver cannot import dma-bufs as buffers"
			   : "the driver cannot export buffers as dma-bufs";
	return !(vk_segment_dma_buf_features(device) & feature);
}

static int probe_udmabuf(struct vk_device *device, const char **ret_why)
{
	_cleanup_(close_fdp) int fd = -1, dma_buf = -1;
	struct vk_segment segment = {0};
	uint8_t *base;
	int r;

	if (lacks_dma_buf(device, VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT, ret_why))
		return VK_SEGMENT_E_REFUSED;
	r = udmabuf_open(&device->paths.udmabuf_fd, &device->paths.segment_bytes);
	if (r > 0)
		*ret_why = r == UDMABUF_E_ABSENT   ? "the kernel has no /dev/udmabuf"
			   : r == UDMABUF_E_DENIED ? "there is no permission to open /dev/udmabuf"
						   : "/dev/udmabuf accepts no memory";
	if (r)
		return r > 0 ? VK_SEGMENT_E_REFUSED : error_fold(r);
	*ret_why = "/dev/udmabuf accepts too little memory";
	if (device->paths.segment_bytes < VK_PATHS_PROBE_BYTES)
		return VK_SEGMENT_E_REFUSED;

	r = memfd_new(&fd, &base);
	if (r)
		return error_fold(r);
	*ret_why = "/dev/udmabuf refuses sealed memory";
	r = udmabuf_wrap(device->paths.udmabuf_fd, fd, 0, VK_PATHS_PROBE_BYTES, &dma_buf);
	if (r < 0 && r != -ENOMEM)
		r = VK_SEGMENT_E_REFUSED;
	if (!r) {
		*ret_why = "the driver refuses to import dma-bufs of /dev/udmabuf";
		r = vk_segment_dma_buf(device, dma_buf, VK_PATHS_PROBE_BYTES, false, &segment);
	}
	if (!r) {
		*ret_why = "the device does not see memory imported as a dma-buf";
		r = vk_paths_prove(device, &segment, base);
	}
	vk_segment_free(device, &segment);
	munmap(base, VK_PATHS_PROBE_BYTES);
	return r;
}

static int probe_exported(struct vk_device *device, const char **ret_why)
{
	_cleanup_(close_fdp) int dma_buf = -1;
	struct vk_segment segment = {0};
	struct dma_buf_about about;
	uint64_t n_holders;
	void *base;
	int r;

	if (lacks_dma_buf(device, VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT, ret_why))
		return VK_SEGMENT_E_REFUSED;
	*ret_why = "the driver has no memory that can be exported and that the CPU reads at full "
		   "speed";
	r = vk_segment_export(device, VK_PATHS_PROBE_BYTES, &segment, &dma_buf);
	if (r)
		return r;
	base = mmap(NULL, VK_PATHS_PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, dma_buf, 0);
	if (base == MAP_FAILED) {
		*ret_why = "the driver's exported memory cannot be mapped";
		r = VK_SEGMENT_E_REFUSED;
	} else {
		*ret_why = "the device and the CPU see different contents in exported memory";
		r = vk_paths_prove(device, &segment, base);
		munmap(base, VK_PATHS_PROBE_BYTES);
	}
	/* Memory that clients keep could not be charged to them: see session/hold.c. */
	if (!r && !(device->options.force & VULKAN_FORCE_UNPROVEN) &&
	    dma_buf_holders(dma_buf, &n_holders)) {
		*ret_why = "the kernel does not report which processes still hold exported memory";
		r = VK_SEGMENT_E_REFUSED;
	}
	if (!r && dma_buf_examine(dma_buf, &about) == 0)
		memcpy(device->paths.export_name, about.exporter, sizeof(about.exporter));
	vk_segment_free(device, &segment);
	return r;
}

int vk_paths_probe(struct vk_device *device)
{
	static int (*const probes[VULKAN_PATH_COUNT])(struct vk_device *, const char **) = {
		[VULKAN_PATH_HOST_IMPORT] = probe_host_import,
		[VULKAN_PATH_UDMABUF] = probe_udmabuf,
		[VULKAN_PATH_EXPORTED] = probe_exported,
	};
	struct vk_paths *paths = &device->paths;
	enum vulkan_path wanted = device->options.path;
	size_t n = 0;
	int r;

	if (device->options.force & VULKAN_FORCE_STAGED)
		wanted = VULKAN_PATH_STAGED;
	paths->may_import = wanted != VULKAN_PATH_STAGED;
	paths->works = 1u << VULKAN_PATH_STAGED;
	paths->best = VULKAN_PATH_STAGED;
	for (int path = VULKAN_PATH_STAGED - 1; path > VULKAN_PATH_AUTO; path--) {
		const char *why = wanted == VULKAN_PATH_STAGED ? "staging was requested"
							       : "another path was requested";

		r = wanted == VULKAN_PATH_AUTO || (int)wanted == path ? probes[path](device, &why)
								      : VK_SEGMENT_E_REFUSED;
		if (r < 0)
			return error_fold(r);
		paths->why[path] = r ? why : NULL;
		if (r)
			continue;
		paths->works |= 1u << path;
		paths->best = path;
	}
	if (!(paths->works & (1u << VULKAN_PATH_UDMABUF))) {
		paths->udmabuf_fd = close_fd(paths->udmabuf_fd);
		paths->segment_bytes = 0;
	}
	for (int path = VULKAN_PATH_AUTO + 1; path < VULKAN_PATH_COUNT; path++)
		if (paths->works & (1u << path))
			n += (size_t)snprintf(paths->list + n, sizeof(paths->list) - n, "%s%s",
					      n ? "," : "", vk_path_name(path));
	device->imports =
		paths->works & (1u << VULKAN_PATH_HOST_IMPORT | 1u << VULKAN_PATH_UDMABUF);
	return 0;
}

void vk_paths_init(struct vk_device *device)
{
	device->paths = (struct vk_paths){.best = VULKAN_PATH_STAGED, .udmabuf_fd = -1};
	list_init(&device->paths.imports);
	memset(device->paths.sees_exported, -1, sizeof(device->paths.sees_exported));
}

void vk_paths_deinit(struct vk_device *device)
{
	assert(list_is_empty(&device->paths.imports));
	device->paths.udmabuf_fd = close_fd(device->paths.udmabuf_fd);
}
