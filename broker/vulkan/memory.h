#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Device memory: one allocation of the driver at a time
 *
 * What is charged is what is taken: an allocation is one VkDeviceMemory of exactly the bytes that
 * were asked for, a multiple of memory.page_bytes, with one buffer over all of it. Nothing is
 * sub-allocated here and nothing is kept for later; who wants small pieces packs them first. The
 * granularity at which the driver takes no more than it is asked for is measured when the device
 * is opened. Setup thread only, but for vk_memory_used().
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <volk.h>

#include "plan/exec-block.h"
#include "util/list.h"

struct vk_device;

enum vk_memory_kind {
	VK_MEMORY_VRAM = EXEC_TIER_VRAM,
	VK_MEMORY_GTT = EXEC_TIER_GTT,
	/* mapped, coherent, good to read: parameter blocks, staging of tensors; and the driver's
	   own */
	VK_MEMORY_HOST,
	VK_MEMORY_OWN, /* likewise, held by the executor for itself: staging of constants */
	VK_MEMORY_KIND_COUNT,
};

enum {
	VK_MEMORY_ALIGN = 256,             /* of what is packed into an allocation, in bytes */
	VK_MEMORY_PAGE_MIN = 4096,         /* of allocations; drivers may need more, */
	VK_MEMORY_PAGE_MAX = 2 << 20,      /* but none that needs more than this is used */
	VK_MEMORY_CLEAR_BYTES = 512 << 10, /* that the processor zeroes at a time */
	VK_MEMORY_DROP_BYTES = 4 << 20,    /* whose pages go at a time */
};

struct vk_memory {
	uint32_t type[VK_MEMORY_KIND_COUNT];
	uint32_t usable_types; /* bits: for our buffers */
	uint64_t page_bytes;   /* sizes are multiples of it */
	struct list_node allocations;
	_Atomic uint64_t used_bytes[VK_MEMORY_KIND_COUNT];
};

/* Holds what others left in it: clear it before an owner can see it. All 0: none. */
struct vk_allocation {
	struct list_node link;
	VkDeviceMemory memory;
	VkBuffer buffer;
	VkDeviceAddress address;
	uint64_t bytes;
	uint64_t cleared_bytes; /* by vk_memory_clear_mapped() */
	uint64_t dropped_bytes; /* by vk_memory_drop_some() */
	uint8_t *host;          /* NULL where the memory is not mapped */
	enum vk_memory_kind kind;
};

/*
 * Chooses memory types and measures the granularity; VK_MEMORY_GTT exists where device->gtt_bytes
 * is above 0. Return: 0 or negative errno, -EIO if the driver's sizes cannot be foreseen.
 */
int vk_memory_init(struct vk_device *device);
/* Asserts that everything was freed. */
void vk_memory_deinit(struct vk_device *device);

/* A size rounded up to pages, and to VK_MEMORY_ALIGN; no overflow below 2^63. */
uint64_t vk_memory_pages(const struct vk_device *device, uint64_t bytes);
uint64_t vk_memory_aligned(uint64_t bytes);

/*
 * Takes @bytes, a multiple of the page, into the caller's @allocation, which stays where it is; 0
 * bytes are no allocation. Return: 0; EXECUTOR_E_NO_MEMORY; negative errno. Empty if not 0.
 */
int vk_memory_alloc(struct vk_device *device, enum vk_memory_kind kind, uint64_t bytes,
		    struct vk_allocation *allocation);
/*
 * Gives back the pages of the next VK_MEMORY_DROP_BYTES of an allocation that the device no longer
 * uses and vk_memory_free() is to follow, where they are the process's own: a software driver frees
 * all of them in one call, which takes as long as there are pages. @used_bytes, the same at each
 * call: the rest has never been written to, so it has no pages. Return: true if some remain.
 */
bool vk_memory_drop_some(const struct vk_device *device, struct vk_allocation *allocation,
			 uint64_t used_bytes);
/* Accepts an empty one; leaves it empty. The device no longer uses it. */
void vk_memory_free(struct vk_device *device, struct vk_allocation *allocation);

/*
 * Zeroes the next VK_MEMORY_CLEAR_BYTES of an allocation that is mapped; leaves any other as it is.
 * Return: true if there is more to zero.
 */
bool vk_memory_clear_mapped(struct vk_allocation *allocation);
/*
 * Zeroes an allocation that is not mapped by a command recorded into @commands, with what runs
 * later in the same submission ordered after it; leaves any other as it is.
 */
void vk_memory_clear_unmapped(struct vk_device *device, const struct vk_allocation *allocation,
			      VkCommandBuffer commands);

/* Counts what the driver takes or gives back by itself for something that was ordered. */
void vk_memory_note(struct vk_device *device, enum vk_memory_kind kind, int64_t bytes);

/* Any thread: bytes allocated now. */
uint64_t vk_memory_used(const struct vk_device *device, enum vk_memory_kind kind);

/* Do these @n bytes stand in mapped memory of plans, at a multiple of 4? For tests. */
bool vk_memory_find(const struct vk_device *device, const void *bytes, size_t n);

/* Makes a buffer of @bytes, for memory to be bound to it. Return: 0 or negative errno. */
int vk_buffer_new(struct vk_device *device, uint64_t bytes, const void *next, VkBuffer *ret);
VkDeviceAddress vk_buffer_address(struct vk_device *device, VkBuffer buffer);
