/* SPDX-License-Identifier: MIT */
/*
 * Arenas on a device: see arena-import.h.
 *
 * Each arena uses the best path that works for it. An import needs its descriptor only until it
 * returns: the driver keeps the pages. The dma-bufs of a udmabuf nevertheless stay open as long as
 * the arena, because a lost device is opened anew with them. The memfd is closed by then, it may
 * have seals with which kernels refuse to wrap it, and wrapping would make all tenants wait.
 *
 * An exported arena is mapped through its dma-buf, not with vkMapMemory(), just as the client maps
 * it. So the mapping belongs to no VkDevice, and the processor and the client keep using the same
 * memory when the device is lost and closed.
 */
#include "util/number.h"
#include "vulkan/arena-import.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/executor.h"
#include "shm/number.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/log.h"
#include "util/plural.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/memory.h"
#include "vulkan/udmabuf.h"

enum {
	MAX_BREAKING = 3, /* imports that break a device until none of their kind is tried */
	/* With so much left by the driver's own figures, a page cannot be too much. */
	PLENTY_BYTES = 64 << 20,
};

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

/* Make an import without segments. Return: NULL if out of memory. */
static struct vk_import *import_new(enum vulkan_path path, uint64_t bytes, uint64_t segment_bytes)
{
	uint64_t n = div_up(bytes, segment_bytes);
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

/* Import the arena's udmabufs; they are used again after the device was lost. */
static int fill_udmabuf(struct vk_device *device, struct vk_import *import,
			const struct exec_arena *arena)
{
	const struct exec_wraps *wraps = arena->wraps[device->executor.index];
	int r = wraps ? 0 : VK_SEGMENT_E_REFUSED;

	for (uint64_t at = 0; !r && at < import->bytes; at += import->segment_bytes) {
		uint64_t left = import->bytes - at;
		uint64_t bytes = left < import->segment_bytes ? left : import->segment_bytes;
		uint32_t i = import->n_segments;

		r = vk_segment_dma_buf(device, wraps->fds[i], bytes, false, &import->segments[i]);
		if (!r)
			import->n_segments++;
	}
	return r;
}

/* Import an exported arena; another device's memory is proven before a client can see it. */
static int fill_exported(struct vk_device *device, struct vk_import *import,
			 const struct exec_arena *arena)
{
	int8_t *sees = &device->paths.sees_exported[arena->exporter->index];
	bool is_own = arena->exporter == &device->executor;
	int r;

	if (arena->fd < 0 || (!is_own && *sees == 0))
		return VK_SEGMENT_E_REFUSED;
	r = vk_segment_dma_buf(device, arena->fd, import->bytes, is_own, &import->segments[0]);
	if (r)
		return r;
	import->n_segments = 1;
	/* Prove only once, whatever the result: later, the memory may already be a client's. */
	if (!is_own && *sees < 0 && !arena->is_restored && import->bytes >= VK_PATHS_PROBE_BYTES)
		*sees = vk_paths_prove(device, &import->segments[0], arena->base) == 0;
	return is_own || *sees == 1 ? 0 : VK_SEGMENT_E_REFUSED;
}

/* Return true if the driver refuses even a page although it reports plenty of memory. */
static bool lacks_memory(struct vk_device *device)
{
	struct vk_allocation page;
	struct exec_memory figures;

	vk_memory_sample(device, &figures);
	if (!figures.has_budget || figures.budget_bytes < figures.usage_bytes + PLENTY_BYTES)
		return false;
	if (vk_memory_alloc(device, VK_MEMORY_VRAM, device->memory.page_bytes, &page))
		return true;
	vk_memory_free(device, &page);
	return false;
}

/*
 * Look whether a failed import has left the device without memory. If so, only another logical
 * device has memory again, and this import would break that, too.
 */
static void check_device(struct vk_device *device, struct vk_import *import)
{
	/* A device that was lost meanwhile refuses memory, too. */
	if (!lacks_memory(device) || vk_device_is_lost(device))
		return;
	import->is_breaking = true;
	device->paths.n_breaking++;
	vk_device_lose(device, "after an import of memory that failed, its driver has no memory");
}

/* Import the missing segments of @import. Return: 0; else @import has no segments. */
static int fill(struct vk_device *device, struct vk_import *import, const struct exec_arena *arena)
{
	int r;

	switch (import->path) {
	case VULKAN_PATH_HOST_IMPORT:
		r = vk_segment_host(device, arena->base, arena->bytes, &import->segments[0]);
		import->n_segments = r ? 0 : 1;
		break;
	case VULKAN_PATH_UDMABUF:
		r = fill_udmabuf(device, import, arena);
		break;
	default:
		r = fill_exported(device, import, arena);
		break;
	}
	if (r) {
		log_debug(LOG_DETAIL, "an arena of %llu bytes cannot be reached by %s: %d",
			  ull(arena->bytes), vk_path_name(import->path), r);
		drop_segments(device, import);
		check_device(device, import);
	} else {
		import->has_worked = true;
	}
	return r;
}

/* Return true if the import was never tried, and its kind has broken the device too often. */
static bool is_given_up(const struct vk_device *device, const struct vk_import *import)
{
	return import->path == VULKAN_PATH_HOST_IMPORT && !import->has_worked &&
	       device->paths.n_breaking >= MAX_BREAKING;
}

/* Import the arena by @path. Return: NULL if that does not work. */
static struct vk_import *import_by(struct vk_device *device, enum vulkan_path path,
				   struct exec_arena *arena, uint64_t segment_bytes)
{
	struct vk_import *import = import_new(path, arena->bytes, segment_bytes);

	/* A lost device imports the arena when it is opened anew. */
	if (import && !vk_device_is_lost(device) && fill(device, import, arena)) {
		import_free(device, import);
		return NULL;
	}
	return import;
}

static bool may_import_host(const struct vk_device *device, const struct exec_arena *arena)
{
	if (!works(device, VULKAN_PATH_HOST_IMPORT) || device->paths.n_breaking >= MAX_BREAKING)
		return false;
	return !arena->immutable || (device->imports_read_only && device->paths.n_breaking == 0);
}

/* Import the arena by the best path that works. Return: NULL if none does. */
static struct vk_import *import_any(struct vk_device *device, struct exec_arena *arena)
{
	uint64_t bytes = arena->bytes, segment_bytes = device->paths.segment_bytes;
	struct vk_import *import = NULL;

	if (arena->exporter)
		return device->paths.may_import
			       ? import_by(device, VULKAN_PATH_EXPORTED, arena, bytes)
			       : NULL;
	if (may_import_host(device, arena))
		import = import_by(device, VULKAN_PATH_HOST_IMPORT, arena, bytes);
	if (!import && arena->wraps[device->executor.index])
		import = import_by(device, VULKAN_PATH_UDMABUF, arena,
				   segment_bytes < bytes ? segment_bytes : bytes);
	return import;
}

void vk_arena_wrap(const struct vk_device *device, struct exec_arena *arena)
{
	uint64_t segment_bytes = device->paths.segment_bytes;
	struct exec_wraps *wraps;
	int r = 0;

	if (device->paths.best != VULKAN_PATH_UDMABUF || arena->immutable)
		return;
	wraps = malloc(sizeof(*wraps) +
		       div_up(arena->bytes, segment_bytes) * sizeof(wraps->fds[0]));
	if (!wraps)
		return;
	wraps->n = 0;
	for (uint64_t at = 0; !r && at < arena->bytes; at += segment_bytes) {
		uint64_t left = arena->bytes - at;

		r = udmabuf_wrap(device->paths.udmabuf_fd, arena->fd, at,
				 left < segment_bytes ? left : segment_bytes,
				 &wraps->fds[wraps->n]);
		if (!r)
			wraps->n++;
	}
	if (r) {
		log_debug(LOG_DETAIL, "an arena of %llu bytes cannot be wrapped: %s",
			  ull(arena->bytes), strerror(-r));
		wraps = exec_wraps_free(wraps);
	}
	arena->wraps[device->executor.index] = wraps;
}

static void count_import(struct vk_device *device, const struct exec_arena *arena,
			 const struct vk_import *import, int by)
{
	if (import)
		device->n_imports += (uint32_t)by;
	/*
	 * As a rule no tensor in an immutable arena is bound, so it is no reason for plans to have
	 * staging.
	 */
	else if (!arena->immutable ||
		 (works(device, VULKAN_PATH_HOST_IMPORT) && device->imports_read_only))
		device->n_refused_imports += (uint32_t)by;
}

void vk_arena_import(struct vk_device *device, struct exec_arena *arena)
{
	struct vk_import *import = import_any(device, arena);

	if (import) {
		import->arena = arena;
		list_append(&device->paths.imports, &import->link);
	}
	count_import(device, arena, import, 1);
	arena->import[device->executor.index] = import;
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
	/* Drivers recycle memory of earlier owners. */
	memset(base, 0, bytes);

	list_append(&device->paths.imports, &import->link);
	import->arena = ret;
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
	unsigned int n_missing = 0;

	list_for_each (node, &device->paths.imports) {
		struct vk_import *import = container_of(node, struct vk_import, link);

		if (import->n_segments > 0)
			continue;
		/* A device that is lost again imports the rest when it is opened once more. */
		if (import->is_breaking || is_given_up(device, import) ||
		    (!vk_device_is_lost(device) && fill(device, import, import->arena)))
			n_missing++;
	}
	if (n_missing > 0)
		log_warning_of(
			LOG_OF_DEVICE(device->executor.index), LOG_ARENAS_LOST,
			"%s: %u arena%s cannot be accessed: tasks run on other devices until %s "
			"registered again",
			device->name, n_missing, plural(n_missing),
			n_missing == 1 ? "it is" : "they are");
}
