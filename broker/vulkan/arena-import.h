#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Arenas on a device: memory paths
 *
 * How shaders get at clients' memory, in order of preference:
 *
 *   host-import  the broker's mapping of a memfd becomes device memory, as a whole
 *   udmabuf      the memfd, wrapped by /dev/udmabuf, is imported as dma-bufs; each has a limited
 *                size, so a large arena is several segments and a tensor that lies in two of them
 *                cannot be reached. Immutable arenas cannot be wrapped; nothing in them is bound.
 *   exported     the device makes the memory and hands it out as a dma-buf (vk_arena_export());
 *                other devices import that
 *   staged       none of these: tensors are copied through a buffer of ours, and counted
 *
 * Which of them a device has is found out by vk_paths_probe() when it is opened: nothing but moved
 * bytes counts. Setup thread only, but for vk_arena_wrap() and vk_import_find().
 */
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "util/list.h"
#include "vulkan/segment.h"
#include "vulkan/vulkan.h"

struct exec_arena;
struct vk_device;

enum { VK_PATHS_PROBE_BYTES = 32768 }; /* what vk_paths_prove() works in */

/*
 * What a device has found out about its paths. What vk_arena_wrap() looks at does not change once
 * the device has been probed.
 */
struct vk_paths {
	uint32_t works;                     /* bit 1 << enum vulkan_path */
	enum vulkan_path best;              /* VULKAN_PATH_STAGED if no other works */
	const char *why[VULKAN_PATH_COUNT]; /* a phrase where it does not; static */
	char list[64];                      /* "host-import,udmabuf,staged" */
	bool may_import;                    /* staging was not asked for */
	int udmabuf_fd;                     /* /dev/udmabuf; -1: not open */
	uint64_t segment_bytes;             /* of one udmabuf at most */
	struct list_node imports;           /* struct vk_import */
	/* By executor index: are its exported arenas seen here? -1: not tried yet */
	int8_t sees_exported[RBK_MAX_DEVICES];
};

/* What arena->import[index] points to. */
struct vk_import {
	struct list_node link;
	struct exec_arena *arena;
	enum vulkan_path path;
	uint64_t bytes;
	uint64_t segment_bytes; /* of all segments but the last; it is at most as large */
	uint32_t n_segments;    /* 0: dropped, nothing can be reached */
	struct vk_segment segments[];
};

/* As in struct executor_ops. */
void vk_arena_wrap(const struct vk_device *device, struct exec_arena *arena);
void vk_arena_import(struct vk_device *device, struct exec_arena *arena);
void vk_arena_release(struct vk_device *device, struct exec_arena *arena);
int vk_arena_export(struct vk_device *device, uint64_t bytes, struct exec_arena *ret, int *ret_fd);

/*
 * Any thread: where the device sees @bytes at @offset of an arena.
 * Return: false if it does not, or not in one piece; @import may be NULL: not imported.
 */
bool vk_import_find(const struct vk_import *import, uint64_t offset, uint64_t bytes,
		    VkDeviceAddress *ret);

/*
 * For a lost device that is closed and opened anew. drop: gives back what it holds of arenas, which
 * stay registered; the host's and the clients' mappings stay valid, those of exported ones too.
 * restore: makes the new device see them.
 */
void vk_imports_drop(struct vk_device *device);
void vk_imports_restore(struct vk_device *device);

/* Before anything else here; vk_paths_deinit() asserts that every arena was released. */
void vk_paths_init(struct vk_device *device);
void vk_paths_deinit(struct vk_device *device);

/*
 * Fills in device->paths; options.path limits what is looked for. The queue runs.
 * Return: 0; negative errno.
 */
int vk_paths_probe(struct vk_device *device);

/*
 * Is a shader seen to move bytes in @segment, whose first VK_PATHS_PROBE_BYTES are @base here? They
 * are zeros afterwards. Return: 0; VK_SEGMENT_E_REFUSED: it is not; -ENOMEM.
 */
int vk_paths_prove(struct vk_device *device, const struct vk_segment *segment, uint8_t *base);

/* "udmabuf" */
const char *vk_path_name(enum vulkan_path path);
