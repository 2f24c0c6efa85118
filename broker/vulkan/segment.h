#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Segments: memory that a device shares with the processor or with other devices
 *
 * A segment is one VkDeviceMemory with one buffer over all of it. It is imported from existing
 * memory (a mapping, a dma-buf), or allocated so that it can be exported as a dma-buf. A successful
 * import does not prove that the device sees the memory: callers run the probe first. Setup thread
 * only.
 */
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

struct vk_device;

enum {
	VK_SEGMENT_E_REFUSED = 1, /* the driver refuses the memory, or cannot use it as required */
};

/* A segment. All 0: no segment. */
struct vk_segment {
	VkDeviceMemory memory;
	VkBuffer buffer;
	VkDeviceAddress address; /* address of the first byte, a multiple of RBK_REF_ALIGN */
};

/*
 * Make a segment of @bytes of host-coherent memory in the empty @ret, which stays empty on failure:
 *   _host     from a mapping, with VK_EXT_external_memory_host. The address and the size must be
 *             multiples of device->import_align_bytes. @base is borrowed for the segment's life.
 *   _dma_buf  from a descriptor, which stays the caller's and may be closed afterwards. If @is_own,
 *             it must be of memory such as _export makes.
 *   _export   from the device's own GTT memory, cached by the processor, in a dedicated allocation.
 *             *ret_fd, the caller's, is its dma-buf; the memory lives as long as any holder of it.
 * Return: 0; VK_SEGMENT_E_REFUSED; -ENOMEM, also if the device has no memory; -EIO.
 */
int vk_segment_host(struct vk_device *device, void *base, uint64_t bytes, struct vk_segment *ret);
int vk_segment_dma_buf(struct vk_device *device, int fd, uint64_t bytes, bool is_own,
		       struct vk_segment *ret);
int vk_segment_export(struct vk_device *device, uint64_t bytes, struct vk_segment *ret,
		      int *ret_fd);

/* Free a segment that the device no longer uses, and leave it empty. Accepts an empty segment. */
void vk_segment_free(struct vk_device *device, struct vk_segment *segment);

/* Return the driver's VK_EXTERNAL_MEMORY_FEATURE_* of buffers that are dma-bufs. */
VkExternalMemoryFeatureFlags vk_segment_dma_buf_features(const struct vk_device *device);
