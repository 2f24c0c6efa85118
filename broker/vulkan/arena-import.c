/* SPDX-License-Identifier: MIT */
/*
 * Arenas on a device: see arena-import.h.
 *
 * Each arena takes the best path that works for it. What an import needs of a descriptor is over
 * when it returns: the driver, or the udmabuf that it holds, keeps the pages.
 *
 * An exported arena is mapped from its dma-buf and not with vkMapMemory(), as the client does it:
 * so the mapping belongs to nobody's VkDevice, and the processor and the client go on in the same
 * memory when the device is lost and closed.
 */
#include "vulkan/arena-import.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/executor.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/log.h"
#include "vulkan/device.h"
#include "vulkan/udmabuf.h"

static bool works(const struct vk_device *device, enum vulkan_path path)
{
	return device->paths.works & (1u << path);
}

static void drop_segments(struct vk_device *device, struct vk_import *import)
{
	for (uint32_t i = 0; i < import->n_segments; i++)
		vk_segment_free(device, &import->segments[i]);
	import->n_segments = 0;
}

static void import_free(struct vk_device *device, struct vk_import *import)
{
	if (!import)
		return;
	drop_segments(device, import);
	list_remove(&import->link);
	free(import);
}

/* An import of no segments yet. Return: NULL without memory. */
static struct vk_import *import_new(enum vulkan_path path, uint64_t bytes, uint64_t segment_bytes)
{
	uint64_t n = (bytes + segment_bytes - 1) / segment_bytes;
	struct vk_import *import;

	if (n > UINT32_MAX)
		return NULL;
	import = calloc(1, sizeof(*import) + n * sizeof(import->segments[0]));
	if (!import)
		return NULL;
	list_init(&import->link);
	import->path = path;
	import->bytes = bytes;
	import->segment_bytes = segment_bytes;
	return import;
}

static struct vk_import *import_host(struct vk_device *device, const struct exec_arena *arena)
{
	struct vk_import *import = import_new(VULKAN_PATH_HOST_IMPORT, arena->bytes, arena->bytes);

	if (!import)
		return NULL;
	if (vk_segment_host(device, arena->base, arena->bytes, &import->segments[0])) {
		import_free(device, import);
		return NULL;
	}
	import->n_segments = 1;
	return import;
}

static struct vk_import *import_udmabuf(struct vk_device *device, const struct exec_arena *arena)
{
	uint64_t segment_bytes = device->paths.segment_bytes;
	struct vk_import *import;
	int r;

	if (segment_bytes > arena->bytes)
		segment_bytes = arena->bytes;
	import = import_new(VULKAN_PATH_UDMABUF, arena->bytes, segment_bytes);
	if (!import)
		return NULL;
	for (uint64_t at = 0; at < arena->bytes; at += segment_bytes) {
		uint64_t left = arena->bytes - at;
		uint64_t bytes = left < segment_bytes ? left : segment_bytes;
		_cleanup_(close_fdp) int fd = -1;

		r = udmabuf_wrap(device->paths.udmabuf_fd, arena->fd, at, bytes, &fd);
		if (!r)
			r = vk_segment_dma_buf(device, fd, bytes,
					       &import->segments[import->n_segments]);
		if (r) {
			log_debug("an arena of %llu bytes cannot be wrapped at %llu: %d",
				  (unsigned long long)arena->bytes, (unsigned long long)at, r);
			import_free(device, import);
			return NULL;
		}
		import->n_segments++;
	}
	return import;
}

/* An arena that a device exported. Another device's is proven before the client can see it. */
static struct vk_import *import_exported(struct vk_device *device, const struct exec_arena *arena)
{
	int8_t *sees = &device->paths.sees_exported[arena->exporter->index];
	bool is_own = arena->exporter == &device->executor;
	struct vk_import *import;

	if (!is_own && *sees == 0)
		return NULL;
	import = import_new(VULKAN_PATH_EXPORTED, arena->bytes, arena->bytes);
	if (!import)
		return NULL;
	if (vk_segment_dma_buf(device, arena->fd, arena->bytes, &import->segments[0])) {
		import_free(device, import);
		return NULL;
	}
	import->n_segments = 1;
	/* Once, and whatever comes of it: later the memory may be a client's already. */
	if (!is_own && *sees < 0 && arena->bytes >= VK_PATHS_PROBE_BYTES)
		*sees = vk_paths_prove(device, &import->segments[0], arena->base) == 0;
	if (!is_own && *sees != 1) {
		import_free(device, import);
		return NULL;
	}
	return import;
}

/* The best path that works for it. Return: NULL: none. */
static struct vk_import *import_any(struct vk_device *device, const struct exec_arena *arena)
{
	struct vk_import *import = NULL;

	if (arena->exporter)
		return arena->fd >= 0 && device->paths.may_import ? import_exported(device, arena)
								  : NULL;
	if (works(device, VULKAN_PATH_HOST_IMPORT))
		import = import_host(device, arena);
	if (!import && works(device, VULKAN_PATH_UDMABUF) && arena->fd >= 0 && !arena->immutable)
		import = import_udmabuf(device, arena);
	return import;
}

static void count_import(struct vk_device *device, const struct exec_arena *arena,
			 const struct vk_import *import, int by)
{
	if (import)
		device->n_imports += (uint32_t)by;
	/* Nothing in it is bound as a rule, so it is no reason for plans to have staging. */
	else if (!arena->immutable || works(device, VULKAN_PATH_HOST_IMPORT))
		device->n_refused_imports += (uint32_t)by;
}

void vk_arena_import(struct vk_device *device, struct exec_arena *arena)
{
	unsigned int index = device->executor.index;
	struct vk_import *import = arena->import[index];

	if (import && import->n_segments > 0)
		return;
	if (import) {
		/* Of a device that was lost: with or without success, it is anew. */
		count_import(device, arena, import, -1);
		import_free(device, import);
	}
	if (vk_device_is_lost(device))
		/* Known, and out of reach until the device is open again. */
		import = import_new(VULKAN_PATH_STAGED, arena->bytes, arena->bytes);
	else
		import = import_any(device, arena);
	if (import) {
		import->arena = arena->exporter ? NULL : arena;
		list_append(&device->paths.imports, &import->link);
	}
	count_import(device, arena, import, 1);
	arena->import[index] = import;
}

void vk_arena_release(struct vk_device *device, struct exec_arena *arena)
{
	unsigned int index = device->executor.index;
	struct vk_import *import = arena->import[index];

	vk_device_settle(device);
	count_import(device, arena, import, -1);
	import_free(device, import);
	arena->import[index] = NULL;
}

int vk_arena_export(struct vk_device *device, uint64_t bytes, struct exec_arena *ret, int *ret_fd)
{
	_cleanup_(close_fdp) int fd = -1;
	struct vk_import *import;
	struct stat status;
	void *base;
	int r;

	if (!works(device, VULKAN_PATH_EXPORTED))
		return EXECUTOR_E_UNSUPPORTED;
	if (vk_device_is_lost(device))
		return error_origin(-EIO);
	import = import_new(VULKAN_PATH_EXPORTED, bytes, bytes);
	if (!import)
		return error_origin(-ENOMEM);
	r = vk_segment_export(device, bytes, &import->segments[0], &fd);
	if (r) {
		import_free(device, import);
		if (r == VK_SEGMENT_E_REFUSED)
			return EXECUTOR_E_UNSUPPORTED;
		return r == -ENOMEM ? EXECUTOR_E_NO_MEMORY : error_fold(r);
	}
	import->n_segments = 1;

	if (fstat(fd, &status) < 0) {
		r = error_origin(-errno);
		goto error;
	}
	if (lseek(fd, 0, SEEK_END) < (off_t)bytes) {
		r = EXECUTOR_E_UNSUPPORTED;
		goto error;
	}
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		r = errno == ENOMEM ? EXECUTOR_E_NO_MEMORY : error_origin(-errno);
		goto error;
	}
	/* Drivers recycle memory. */
	memset(base, 0, bytes);

	list_append(&device->paths.imports, &import->link);
	device->n_imports++;
	*ret = (struct exec_arena){
		.base = base,
		.bytes = bytes,
		.dev = status.st_dev,
		.ino = status.st_ino,
		.fd = -1,
		.exporter = &device->executor,
	};
	ret->import[device->executor.index] = import;
	*ret_fd = steal_fd(&fd);
	return 0;

error:
	import_free(device, import);
	return r;
}

bool vk_import_find(const struct vk_import *import, uint64_t offset, uint64_t bytes,
		    VkDeviceAddress *ret)
{
	uint64_t segment = 0;

	if (!import || import->n_segments == 0)
		return false;
	/* The dispatcher has checked that the tensor lies within the arena. */
	if (import->n_segments > 1) {
		segment = offset / import->segment_bytes;
		offset -= segment * import->segment_bytes;
		if (bytes > import->segment_bytes - offset)
			return false;
	}
	*ret = import->segments[segment].address + offset;
	return true;
}

void vk_imports_drop(struct vk_device *device)
{
	list_for_each (node, &device->paths.imports)
		drop_segments(device, container_of(node, struct vk_import, link));
}

void vk_imports_restore(struct vk_device *device)
{
	list_for_each_safe (node, &device->paths.imports) {
		struct vk_import *import = container_of(node, struct vk_import, link);

		if (import->n_segments == 0 && import->arena)
			vk_arena_import(device, import->arena);
	}
}
