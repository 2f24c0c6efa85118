#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Uploads: copies by the device's own engines
 *
 * Two command buffers, each with a chunk of staging memory, alternate: the processor fills one
 * chunk while the device reads the other. Uploads use a queue of their own if the device has one to
 * spare: a family that only transfers, or a second queue of the compute family. The setup thread
 * submits to this queue itself. Otherwise uploads run one after the other through the submitting
 * thread (vk_setup_run()). Setup thread only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "vulkan/memory.h"

struct vk_device;

enum {
	VK_UPLOAD_CHUNKS = 2,
	/* bytes of staging per chunk; a multiple of every page_bytes */
	VK_UPLOAD_CHUNK_BYTES = 2 << 20,
};

struct vk_upload {
	VkQueue queue; /* queue for uploads alone; VK_NULL_HANDLE: none */
	uint32_t family, index;
	bool has_queue; /* the queue is requested from vkCreateDevice() */
	VkSemaphore timeline;
	uint64_t submitted;               /* last value promised to the timeline */
	uint64_t value[VK_UPLOAD_CHUNKS]; /* timeline value of a chunk's last submission */
	VkCommandPool pool;
	VkCommandBuffer commands[VK_UPLOAD_CHUNKS];
	struct vk_allocation staging[VK_UPLOAD_CHUNKS]; /* VK_MEMORY_OWN; allocated at first use */
};

/* Find a queue for uploads beside @device's queue, before the device is created. */
void vk_upload_find_queue(struct vk_device *device);

/* Return: 0 or negative errno. */
int vk_upload_open(struct vk_device *device);
void vk_upload_close(struct vk_device *device);

/*
 * Get the mapped staging memory of a chunk, VK_UPLOAD_CHUNK_BYTES; wait until the device no longer
 * reads it.
 * Return: 0; EXECUTOR_E_NO_MEMORY; negative errno.
 */
int vk_upload_staging(struct vk_device *device, unsigned int chunk, struct vk_allocation **ret);

/* Free the staging memory, which is allocated again when needed. No upload is in flight. */
void vk_upload_drop_staging(struct vk_device *device);

/*
 * Begin a chunk's command buffer, after the device has completed its last submission; submit it.
 * Return: 0; negative errno, -EIO if the device is lost.
 */
int vk_upload_begin(struct vk_device *device, unsigned int chunk, VkCommandBuffer *ret);
int vk_upload_submit(struct vk_device *device, unsigned int chunk);

/*
 * Wait for all uploads. Their writes are visible to everything that vk_setup_run() and tasks submit
 * later.
 * Return: 0; -EIO if the device is dead and no longer touches memory.
 */
int vk_upload_wait(struct vk_device *device);
