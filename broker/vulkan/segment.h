#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Segments: memory that a device shares with the processor or with other devices
 *
 * One VkDeviceMemory with one buffer over all of it, made from memory that is there already (a
 * mapping, a dma-buf) or made so that others can have it as a dma-buf. That a driver takes memory
 * does not mean that the device sees it: who uses a segment has it proven by the probe first.
 * Setup thread only.
 */
#include <stdint.h>
#include <volk.h>

struct vk_device;

enum {
	VK_SEGMENT_E_REFUSED = 1, /* the driver does not take it, or not as it must be */
};

/* All 0: none. */
struct vk_segment {
	VkDeviceMemory memory;
	VkBuffer buffer;
	VkDeviceAddress address; /* of its first byte; a multiple of RBK_REF_ALIGN */
};

/*
 * Make a segment of @bytes of host-coherent memory into the empty @ret, which stays so if they
 * fail: _host     from a mapping, with VK_EXT_external_memory_host; its address and size must be
 *             multiples of device->import_align_bytes. @base is borrowed for the segment's life.
 *   _dma_buf  from a descriptor, which stays the caller's and may be closed afterwards.
 *   _export   of the device's own GTT memory, cached by the processor, dedicated, and a descriptor
 *             of it as a dma-buf, the caller's. The memory lives as long as anybody holds that.
 * Return: 0; VK_SEGMENT_E_REFUSED; -ENOMEM, also if the device has no memory; -EIO.
 */
int vk_segment_host(struct vk_device *device, void *base, uint64_t bytes, struct vk_segment *ret);
int vk_segment_dma_buf(struct vk_device *device, int fd, uint64_t bytes, struct vk_segment *ret);
int vk_segment_export(struct vk_device *device, uint64_t bytes, struct vk_segment *ret,
		      int *ret_fd);

/* Accepts an empty one; leaves it empty. The device no longer uses it. */
void vk_segment_free(struct vk_device *device, struct vk_segment *segment);

/* What the driver says that its buffers can do with dma-bufs: VK_EXTERNAL_MEMORY_FEATURE_*. */
VkExternalMemoryFeatureFlags vk_segment_dma_buf_features(const struct vk_device *device);
