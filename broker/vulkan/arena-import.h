#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Arenas on a device: memory paths
 *
 * A path is a way for shaders to reach clients' memory. In order of preference:
 *
 * - host-import: the broker's mapping of a memfd becomes device memory, as a whole. Not all
 *   drivers can do so with immutable arenas, which the broker cannot write.
 * - udmabuf: the memfd is wrapped by /dev/udmabuf and imported as dma-bufs, whose size is limited:
 *   a large arena is several segments, and a tensor across two segments cannot be reached.
 *   Immutable arenas cannot be wrapped.
 * - exported: the device makes the memory and exports it as a dma-buf (vk_arena_export()). Other
 *   devices import that.
 * - staged: without an import, tensors are copied through a buffer of ours, and counted.
 *
 * As a rule no tensor in an immutable arena is bound: constants lie there, and are copied once.
 *
 * An import that fails may break the logical device: NVIDIA's driver (580.159) refuses nearly all
 * memory from then on. Such a device counts as lost, and is reopened without that import.
 *
 * vk_paths_probe() finds the paths of a device when the device is opened: a path works only if the
 * probe has seen bytes move. Setup thread only, but for vk_arena_wrap() and vk_import_find().
 */
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "util/dma-buf.h"
#include "util/list.h"
#include "vulkan/segment.h"
#include "vulkan/vulkan.h"

struct exec_arena;
struct vk_device;

enum { VK_PATHS_PROBE_BYTES = 32768 }; /* bytes of memory that vk_paths_prove() uses */

/* The paths of a device. The members that vk_arena_wrap() reads do not change after the probe. */
struct vk_paths {
	uint32_t works;        /* bit 1 << enum vulkan_path */
	enum vulkan_path best; /* VULKAN_PATH_STAGED if no other works */
	/* static phrase: why the path does not work; NULL: it works */
	const char *why[VULKAN_PATH_COUNT];
	char list[64];   /* "host-import,udmabuf,staged" */
	bool may_import; /* imports are allowed: staging was not requested */
	/* driver of the dma-bufs that the device exports, as the kernel names it; empty: unknown */
	char export_name[DMA_BUF_NAME_BYTES];
	int udmabuf_fd;           /* /dev/udmabuf; -1: not open */
	uint64_t segment_bytes;   /* maximum bytes of one udmabuf */
	struct list_node imports; /* struct vk_import */
	uint32_t n_breaking;      /* imports that failed and broke the logical device */
	/*
	 * By executor index: 1 if this device sees arenas exported by that one, 0 if not, -1: not
	 * tried.
	 */
	int8_t sees_exported[RBK_MAX_DEVICES];
};

/* An arena on a device; arena->import[index] points to it. */
struct vk_import {
	struct list_node link;
	struct exec_arena *arena;
	enum vulkan_path path;
	uint64_t bytes;
	uint64_t segment_bytes; /* bytes of each segment; the last may be smaller */
	uint32_t n_segments;    /* 0: dropped; the arena cannot be reached */
	bool is_breaking;       /* the import broke a logical device, and is not tried again */
	bool has_worked;        /* a logical device had all segments */
	struct vk_segment segments[];
};

/* Wrap, import, release and export an arena, as in struct executor_ops. */
void vk_arena_wrap(const struct vk_device *device, struct exec_arena *arena);
void vk_arena_import(struct vk_device *device, struct exec_arena *arena);
void vk_arena_release(struct vk_device *device, struct exec_arena *arena);
int vk_arena_export(struct vk_device *device, uint64_t bytes, struct exec_arena *ret, int *ret_fd);

/*
 * Find the device address of @bytes at @offset of an arena. Any thread. @import may be NULL: not
 * imported.
 * Return: true; false if the device does not see the bytes, or not in one piece.
 */
bool vk_import_find(const struct vk_import *import, uint64_t offset, uint64_t bytes,
		    VkDeviceAddress *ret);

/*
 * Drop and restore the imports of a lost device that is closed and opened anew. vk_imports_drop()
 * frees the device's segments of all arenas. The arenas stay registered; the mappings of the broker
 * and the clients stay valid, also those of exported arenas. vk_imports_restore() imports the
 * arenas into the new device.
 */
void vk_imports_drop(struct vk_device *device);
void vk_imports_restore(struct vk_device *device);

/* Init comes before all other calls. vk_paths_deinit() asserts that every arena was released. */
void vk_paths_init(struct vk_device *device);
void vk_paths_deinit(struct vk_device *device);

/*
 * Fill in device->paths; options.path limits the paths that are probed. The queue must run.
 * Return: 0; negative errno.
 */
int vk_paths_probe(struct vk_device *device);

/*
 * Check that a shader moves bytes in @segment, whose first VK_PATHS_PROBE_BYTES are mapped at
 * @base. These bytes are zeroed.
 * Return: 0; VK_SEGMENT_E_REFUSED if it does not; -ENOMEM.
 */
int vk_paths_prove(struct vk_device *device, const struct vk_segment *segment, uint8_t *base);

/* Return the path's name, such as "udmabuf". */
const char *vk_path_name(enum vulkan_path path);
