#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Arenas on a device: memory paths
 *
 * "host-import": the broker's mapping of the client's memfd becomes device memory, so shaders work
 * in place. Whether a driver can do that is found out by trying: a memfd is imported, written by
 * the processor, transformed by a shader, and read back. "staged": tensors are copied through a
 * buffer of ours, and the copied bytes counted. Setup thread only.
 */
#include <stdint.h>
#include <volk.h>

struct exec_arena;
struct vk_device;

/* What arena->import[index] points to. */
struct vk_import {
	VkDeviceMemory memory;
	VkBuffer buffer;
	VkDeviceAddress address; /* of the arena's first byte */
};

/* As in struct executor_ops. */
void vk_arena_import(struct vk_device *device, struct exec_arena *arena);
void vk_arena_release(struct vk_device *device, struct exec_arena *arena);

/*
 * Sets device->imports. The queue runs.
 * Return: 0, with *ret_why a phrase if arenas cannot be imported; negative errno.
 */
int vk_import_probe(struct vk_device *device, const char **ret_why);
