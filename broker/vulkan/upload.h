#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Uploads: how the device's own engines copy
 *
 * Two command buffers take turns, each with a chunk of staging memory, so that the processor fills
 * one while the device empties the other. They go to a queue of their own where the device has one
 * to spare (a family that only transfers, else a second queue of the family that computes), which
 * the setup thread submits to itself; else through the submitting thread (vk_setup_run()), one
 * after the other. Setup thread only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "vulkan/memory.h"

struct vk_device;

enum {
	VK_UPLOAD_CHUNKS = 2,
	VK_UPLOAD_CHUNK_BYTES = 2 << 20, /* of staging; a multiple of every page */
};

struct vk_upload {
	VkQueue queue; /* VK_NULL_HANDLE: none of their own */
	uint32_t family, index;
	bool has_queue; /* wanted from vkCreateDevice() */
	VkSemaphore timeline;
	uint64_t submitted;               /* last value promised to the timeline */
	uint64_t value[VK_UPLOAD_CHUNKS]; /* that ends a chunk's last submission */
	VkCommandPool pool;
	VkCommandBuffer commands[VK_UPLOAD_CHUNKS];
	struct vk_allocation staging[VK_UPLOAD_CHUNKS]; /* VK_MEMORY_OWN; from first use on */
};

/* Finds a queue for uploads beside @device's; before the device is created. */
void vk_upload_find_queue(struct vk_device *device);

/* Return: 0 or negative errno. */
int vk_upload_open(struct vk_device *device);
void vk_upload_close(struct vk_device *device);

/*
 * The mapped staging memory of a chunk, VK_UPLOAD_CHUNK_BYTES, which the device no longer reads.
 * Return: 0; EXECUTOR_E_NO_MEMORY; negative errno.
 */
int vk_upload_staging(struct vk_device *device, unsigned int chunk, struct vk_allocation **ret);

/* Gives the staging memory back until it is needed; nothing is under way. */
void vk_upload_drop_staging(struct vk_device *device);

/*
 * Begins a chunk's command buffer, waiting until the device is done with its last submission;
 * submits it. Return: 0; negative errno, -EIO if the device is lost.
 */
int vk_upload_begin(struct vk_device *device, unsigned int chunk, VkCommandBuffer *ret);
int vk_upload_submit(struct vk_device *device, unsigned int chunk);

/*
 * Waits for all that was submitted; what it wrote is there for whatever vk_setup_run() and tasks
 * submit later. Return: 0; -EIO if the device is lost, and then it no longer touches anything.
 */
int vk_upload_wait(struct vk_device *device);
