/* SPDX-License-Identifier: MIT */
/*
 * Mirrors: see mirror.h.
 *
 * Where the processor can write device memory the bytes are copied straight; else they pass
 * through a staging buffer in chunks, so that the largest constant needs little host memory. What
 * rounding adds at the end is zeroed: it held another owner's bytes.
 */
#include "vulkan/mirror.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "util/error.h"
#include "vulkan/device.h"

enum { CHUNK_BYTES = 4 << 20 };

struct vk_mirror {
	struct vk_mirror *next;
	uint32_t n_refs;
	uint64_t owner;
	dev_t dev;
	ino_t ino;
	uint64_t offset, bytes;
	struct vk_piece piece;
};

static int upload_chunks(struct vk_device *device, struct vk_mirror *mirror, const uint8_t *from)
{
	struct vk_piece staging = {0};
	VkCommandBuffer commands;
	uint64_t at = 0, n;
	int r;

	r = vk_memory_alloc(device, VK_MEMORY_HOST,
			    mirror->bytes < CHUNK_BYTES ? mirror->bytes : CHUNK_BYTES, &staging);
	if (r)
		return r == VK_MEMORY_E_FULL ? r : error_fold(r);
	for (; at < mirror->bytes; at += n) {
		VkBufferCopy region;

		n = mirror->bytes - at < staging.bytes ? mirror->bytes - at : staging.bytes;
		memcpy(staging.host, from + at, n);
		memset(staging.host + n, 0, staging.bytes - n);
		region = (VkBufferCopy){
			.srcOffset = staging.offset,
			.dstOffset = mirror->piece.offset + at,
			.size = vk_memory_rounded(n),
		};
		r = vk_setup_begin(device, &commands);
		if (r)
			break;
		device->vk.vkCmdCopyBuffer(commands, staging.buffer, mirror->piece.buffer, 1,
					   &region);
		r = vk_setup_run(device);
		if (r)
			break;
	}
	vk_memory_free(device, &staging);
	return r ? error_fold(r) : 0;
}

static int upload(struct vk_device *device, struct vk_mirror *mirror, const uint8_t *from)
{
	if (!mirror->piece.host || (device->options.force & VULKAN_FORCE_STAGED))
		return upload_chunks(device, mirror, from);
	memcpy(mirror->piece.host, from, mirror->bytes);
	memset(mirror->piece.host + mirror->bytes, 0, mirror->piece.bytes - mirror->bytes);
	return 0;
}

int vk_mirror_get(struct vk_device *device, const struct plan_constant *constant,
		  struct vk_mirror **ret)
{
	const struct exec_arena *arena = constant->arena;
	struct vk_mirror *mirror;
	int r;

	for (mirror = device->mirrors.first; mirror; mirror = mirror->next)
		if (mirror->owner == arena->owner && mirror->dev == arena->dev &&
		    mirror->ino == arena->ino && mirror->offset == constant->offset &&
		    mirror->bytes == constant->bytes) {
			mirror->n_refs++;
			*ret = mirror;
			return 0;
		}

	mirror = calloc(1, sizeof(*mirror));
	if (!mirror)
		return error_origin(-ENOMEM);
	*mirror = (struct vk_mirror){
		.n_refs = 1,
		.owner = arena->owner,
		.dev = arena->dev,
		.ino = arena->ino,
		.offset = constant->offset,
		.bytes = constant->bytes,
	};
	r = vk_memory_alloc(device, VK_MEMORY_DEVICE, constant->bytes, &mirror->piece);
	if (!r && constant->bytes)
		r = upload(device, mirror, arena->base + constant->offset);
	if (r) {
		vk_memory_free(device, &mirror->piece);
		free(mirror);
		return r == VK_MEMORY_E_FULL ? r : error_fold(r);
	}
	mirror->next = device->mirrors.first;
	device->mirrors.first = mirror;
	device->mirrors.n++;
	*ret = mirror;
	return 0;
}

struct vk_mirror *vk_mirror_unref(struct vk_device *device, struct vk_mirror *mirror)
{
	struct vk_mirror **at;

	if (!mirror || --mirror->n_refs > 0)
		return NULL;
	for (at = &device->mirrors.first; *at != mirror; at = &(*at)->next)
		assert(*at);
	*at = mirror->next;
	device->mirrors.n--;
	vk_memory_free(device, &mirror->piece);
	free(mirror);
	return NULL;
}

VkDeviceAddress vk_mirror_address(const struct vk_mirror *mirror)
{
	return mirror->piece.address;
}

uint64_t vk_mirror_bytes(const struct vk_mirror *mirror)
{
	return mirror->piece.bytes;
}
