#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Device memory, sub-allocated
 *
 * Two kinds: DEVICE (near the device, not necessarily visible to the processor) and HOST (mapped,
 * coherent). Small pieces share blocks, large ones get blocks of their own, and an empty block goes
 * back to the driver at once. Every block is one buffer with a device address. Setup thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <volk.h>

struct vk_device;
struct vk_block;
struct vk_range;

enum vk_memory_kind { VK_MEMORY_DEVICE, VK_MEMORY_HOST, VK_MEMORY_KIND_COUNT };

enum {
	VK_MEMORY_E_FULL = 1,  /* does not fit into the device, or above the cap */
	VK_MEMORY_ALIGN = 256, /* of every piece, in bytes; sizes are rounded up to it */
};

struct vk_memory {
	struct vk_block *blocks[VK_MEMORY_KIND_COUNT];
	uint64_t used_bytes[VK_MEMORY_KIND_COUNT];
	uint64_t cap_bytes; /* of VK_MEMORY_DEVICE */
	uint32_t type[VK_MEMORY_KIND_COUNT];
};

/* A piece. Holds garbage of former owners: see vk_memory_clear(). */
struct vk_piece {
	struct vk_block *block; /* NULL: no piece */
	struct vk_range *range;
	VkBuffer buffer;
	uint64_t offset; /* within the buffer */
	uint64_t bytes;
	VkDeviceAddress address;
	uint8_t *host; /* NULL where the memory is not mapped */
	enum vk_memory_kind kind;
};

/* Chooses memory types. Return: 0 or negative errno. */
int vk_memory_init(struct vk_device *device, uint64_t cap_bytes);
/* Asserts that every piece was freed. */
void vk_memory_deinit(struct vk_device *device);

/* What @bytes are charged as. */
uint64_t vk_memory_rounded(uint64_t bytes);

/*
 * Takes @bytes of @kind into the empty @piece; 0 bytes are no piece.
 * Return: 0; VK_MEMORY_E_FULL; negative errno.
 */
int vk_memory_alloc(struct vk_device *device, enum vk_memory_kind kind, uint64_t bytes,
		    struct vk_piece *piece);
/* Accepts an empty piece; leaves it empty. The device no longer uses it. */
void vk_memory_free(struct vk_device *device, struct vk_piece *piece);

/*
 * Zeroes a piece before an owner can see it: through the mapping where there is one, else by a
 * command recorded into @commands, with what runs later in the same submission ordered after it.
 */
void vk_memory_clear(struct vk_device *device, struct vk_piece *piece, VkCommandBuffer commands);

/* Do these @n bytes stand in a used piece that is mapped, at a multiple of 4? For tests. */
bool vk_memory_find(const struct vk_memory *memory, const void *bytes, size_t n);

/* Makes a buffer of @bytes over @memory, with its device address. Return: 0 or negative errno. */
int vk_buffer_new(struct vk_device *device, uint64_t bytes, const void *next, VkBuffer *ret);
VkDeviceAddress vk_buffer_address(struct vk_device *device, VkBuffer buffer);
