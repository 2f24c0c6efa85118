#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Device memory: one allocation of the driver at a time
 *
 * The ledger is charged exactly what is taken. An allocation is one VkDeviceMemory of the requested
 * bytes, a multiple of memory.page_bytes, with one buffer over all of it. This module neither
 * sub-allocates nor caches freed memory; callers that need small pieces pack them first.
 * page_bytes, the granularity at which the driver adds nothing to a size, is measured when the
 * device is opened. Setup thread only, but for vk_memory_used().
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <volk.h>

#include "plan/exec-block.h"
#include "util/list.h"

struct exec_memory;
struct vk_device;

enum vk_memory_kind {
	VK_MEMORY_VRAM = EXEC_TIER_VRAM,
	VK_MEMORY_GTT = EXEC_TIER_GTT,
	/*
	 * Host memory, mapped, coherent, preferably cached: parameter blocks, staging of tensors,
	 * driver's command buffers.
	 */
	VK_MEMORY_HOST,
	VK_MEMORY_OWN, /* the same type, held by the executor for itself: staging of constants */
	VK_MEMORY_KIND_COUNT,
};

enum {
	VK_MEMORY_ALIGN = 256,        /* alignment of items packed into an allocation, in bytes */
	VK_MEMORY_PAGE_MIN = 4096,    /* smallest page_bytes */
	VK_MEMORY_PAGE_MAX = 2 << 20, /* largest page_bytes; a driver that needs more is not used */
	VK_MEMORY_CLEAR_BYTES = 512 << 10, /* bytes zeroed by one vk_memory_clear_mapped() */
	VK_MEMORY_DROP_BYTES = 4 << 20,    /* bytes dropped by one vk_memory_drop_some() */
};

struct vk_memory {
	uint32_t type[VK_MEMORY_KIND_COUNT];
	uint32_t usable_types; /* bit mask of the memory types that our buffers can use */
	uint64_t page_bytes;   /* granularity of allocation sizes */
	struct list_node allocations;
	_Atomic uint64_t used_bytes[VK_MEMORY_KIND_COUNT];
};

/*
 * An allocation. Its bytes are stale data of earlier owners: clear them before the new owner can
 * read them. All 0: no allocation.
 */
struct vk_allocation {
	struct list_node link;
	VkDeviceMemory memory;
	VkBuffer buffer;
	VkDeviceAddress address;
	uint64_t bytes;
	uint64_t cleared_bytes; /* bytes zeroed by vk_memory_clear_mapped() */
	uint64_t dropped_bytes; /* bytes dropped by vk_memory_drop_some() */
	uint8_t *host;          /* mapped address; NULL: the memory is not mapped */
	enum vk_memory_kind kind;
};

/*
 * Choose memory types and measure page_bytes. VK_MEMORY_GTT exists where device->gtt_bytes is above
 * 0.
 * Return: 0 or negative errno; -EIO if the driver's sizes cannot be foreseen.
 */
int vk_memory_init(struct vk_device *device);
/* Assert that everything was freed. */
void vk_memory_deinit(struct vk_device *device);

/* Round a size up to page_bytes; round it up to VK_MEMORY_ALIGN. No overflow below 2^63. */
uint64_t vk_memory_pages(const struct vk_device *device, uint64_t bytes);
uint64_t vk_memory_aligned(uint64_t bytes);

/* Return the driver's figures of the device's own memory. Any thread. */
void vk_memory_sample(struct vk_device *device, struct exec_memory *ret);

/*
 * Allocate @bytes, a multiple of page_bytes, into the caller's @allocation, which must not move. 0
 * bytes: no allocation.
 * Return: 0; EXECUTOR_E_NO_MEMORY; negative errno. @allocation is empty unless 0.
 */
int vk_memory_alloc(struct vk_device *device, enum vk_memory_kind kind, uint64_t bytes,
		    struct vk_allocation *allocation);
/*
 * Drop the pages of the next VK_MEMORY_DROP_BYTES of an allocation, before vk_memory_free(); the
 * device no longer uses it. Only a software device has pages to drop, those of the process: its
 * driver would free all of them in one call, whose time grows with their number. @used_bytes is the
 * same at each call: bytes behind it were never written and have no pages.
 * Return: true if pages remain to be dropped.
 */
bool vk_memory_drop_some(const struct vk_device *device, struct vk_allocation *allocation,
			 uint64_t used_bytes);
/*
 * Free an allocation that the device no longer uses, and leave it empty. Accepts an empty
 * allocation.
 */
void vk_memory_free(struct vk_device *device, struct vk_allocation *allocation);

/*
 * Zero the next VK_MEMORY_CLEAR_BYTES of a mapped allocation; leave any other allocation as it is.
 * Return: true if bytes remain to be zeroed.
 */
bool vk_memory_clear_mapped(struct vk_allocation *allocation);
/*
 * Record a command into @commands that zeroes an allocation that is not mapped, with a barrier:
 * later commands of the submission run after it. Leave any other allocation as it is.
 */
void vk_memory_clear_unmapped(struct vk_device *device, const struct vk_allocation *allocation,
			      VkCommandBuffer commands);

/*
 * Add @bytes to the used bytes of @kind, negative for a release: memory that the driver allocates
 * by itself, for command buffers.
 */
void vk_memory_note(struct vk_device *device, enum vk_memory_kind kind, int64_t bytes);

/* Return the bytes of @kind allocated now. Any thread. */
uint64_t vk_memory_used(const struct vk_device *device, enum vk_memory_kind kind);

/* Return true if these @n bytes occur in mapped memory of plans, at a multiple of 4. For tests. */
bool vk_memory_find(const struct vk_device *device, const void *bytes, size_t n);

/* Make a buffer of @bytes, to be bound to memory. Return: 0 or negative errno. */
int vk_buffer_new(struct vk_device *device, uint64_t bytes, const void *next, VkBuffer *ret);
VkDeviceAddress vk_buffer_address(struct vk_device *device, VkBuffer buffer);
