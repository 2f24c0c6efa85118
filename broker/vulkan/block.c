/* SPDX-License-Identifier: MIT */
/*
 * Blocks of constants: see block.h.
 *
 * A block is filled from its beginning to its end, as a string of bytes: constants at their
 * offsets, zeros elsewhere. write_image() produces any range of this string, so that mapped memory
 * and staging chunks are filled by the same code. With imported arenas the device does the same: a
 * fill command for every gap, then a copy for every constant. Fills work on words, so a fill may
 * zero the last bytes of a constant that ends within a word. The fill and the copy of this constant
 * are in the same part, and the copy comes later.
 *
 * Constants lie in sealed arenas: their bytes do not change while they are copied.
 */
#include "vulkan/block.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "util/clock.h"
#include "util/error.h"
#include "vulkan/arena-import.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/rates.h"

enum { PIECE_BYTES = 1 << 20 /* bytes between two looks at the clock */ };

struct vk_block {
	struct vk_allocation allocation;
	enum vk_way way;
};

/* Find the first constant that ends behind @at. */
static uint32_t find_constant(const struct exec_block *block, uint64_t at)
{
	uint32_t low = 0, high = block->n_constants;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct exec_constant *constant = &block->constants[middle];

		if (constant->block_offset + constant->bytes <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Write bytes [@at, @at + @n) of the block to @to. */
static void write_image(struct exec_block *block, uint64_t at, uint64_t n, uint8_t *to)
{
	uint64_t end = at + n, step;

	for (uint32_t i = find_constant(block, at); at < end; i++) {
		const struct exec_constant *constant = &block->constants[i];
		uint64_t begin = i < block->n_constants ? constant->block_offset : end;

		if (begin > at) {
			step = (begin < end ? begin : end) - at;
			memset(to, 0, step);
			at += step;
			to += step;
		}
		if (at >= end)
			return;
		step = begin + constant->bytes - at;
		if (step > end - at)
			step = end - at;
		memcpy(to, constant->arena->base + constant->offset + (at - begin), step);
		block->copied_bytes += step;
		at += step;
		to += step;
	}
}

static bool is_cancelled(const struct exec_block *block)
{
	return atomic_load_explicit(&block->is_cancelled, memory_order_relaxed);
}

/* Return true if another piece may follow in the part that began at @begin_ticks. */
static bool goes_on(const struct exec_block *block, uint64_t begin_ticks, uint64_t end)
{
	return block->loaded_bytes < end && !is_cancelled(block) &&
	       clock_elapsed_ns(begin_ticks, clock_ticks()) < VK_BLOCK_PART_NS;
}

static uint64_t piece_bytes(const struct exec_block *block, uint64_t most)
{
	uint64_t rest = block->bytes - block->loaded_bytes;

	return rest < most ? rest : most;
}

static void load_direct(struct exec_block *block, uint64_t end)
{
	uint8_t *to = ((struct vk_block *)block->memory)->allocation.host;
	uint64_t begin_ticks = clock_ticks();

	do {
		uint64_t n = piece_bytes(block, PIECE_BYTES);

		write_image(block, block->loaded_bytes, n, to + block->loaded_bytes);
		block->loaded_bytes += n;
	} while (goes_on(block, begin_ticks, end));
}

static int load_staged(struct vk_device *device, struct exec_block *block, uint64_t end)
{
	VkBuffer to = ((struct vk_block *)block->memory)->allocation.buffer;
	uint64_t begin_ticks = clock_ticks();
	struct vk_allocation *staging;
	VkCommandBuffer commands;
	unsigned int chunk = 0;
	int r;

	do {
		VkBufferCopy region = {
			.dstOffset = block->loaded_bytes,
			.size = piece_bytes(block, VK_UPLOAD_CHUNK_BYTES),
		};

		r = vk_upload_staging(device, chunk, &staging);
		if (r)
			return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
		write_image(block, block->loaded_bytes, region.size, staging->host);
		r = vk_upload_begin(device, chunk, &commands);
		if (r)
			return error_fold(r);
		device->vk.vkCmdCopyBuffer(commands, staging->buffer, to, 1, &region);
		r = vk_upload_submit(device, chunk);
		if (r)
			return error_fold(r);
		block->loaded_bytes += region.size;
		block->transferred_bytes += region.size;
		chunk = (chunk + 1) % VK_UPLOAD_CHUNKS;
	} while (goes_on(block, begin_ticks, end));
	return 0;
}

/*
 * Record fills of zeros for the gaps between constants in [@at, @end). Return: true if there were
 * gaps.
 */
static bool fill_gaps(struct vk_device *device, const struct exec_block *block,
		      VkCommandBuffer commands, VkBuffer to, uint64_t at, uint64_t end)
{
	bool any = false;

	for (uint32_t i = find_constant(block, at); at < end; i++) {
		const struct exec_constant *constant = &block->constants[i];
		uint64_t begin = i < block->n_constants ? constant->block_offset : end;
		uint64_t stop = begin < end ? begin : end;

		if (stop > (at & ~3ull)) {
			device->vk.vkCmdFillBuffer(commands, to, at & ~3ull, stop - (at & ~3ull),
						   0);
			any = true;
		}
		at = begin < end ? begin + constant->bytes : end;
	}
	return any;
}

/* Return the bytes that the device copies at once: a copy in progress cannot be stopped. */
static uint64_t arena_part_bytes(const struct vk_device *device)
{
	uint64_t bytes = device->rates.arena.up_bytes_per_s / 1000000 * (VK_BLOCK_PART_NS / 1000);

	bytes &= ~(uint64_t)(PIECE_BYTES - 1);
	if (bytes < PIECE_BYTES)
		return PIECE_BYTES;
	return bytes < VK_BLOCK_PART_BYTES ? bytes : VK_BLOCK_PART_BYTES;
}

static int load_from_arenas(struct vk_device *device, struct exec_block *block)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
	};
	VkBuffer to = ((struct vk_block *)block->memory)->allocation.buffer;
	uint64_t at = block->loaded_bytes;
	uint64_t end = at + piece_bytes(block, arena_part_bytes(device));
	VkCommandBuffer commands;
	int r;

	r = vk_upload_begin(device, 0, &commands);
	if (r)
		return error_fold(r);
	if (fill_gaps(device, block, commands, to, at, end))
		device->vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
						VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &barrier, 0,
						NULL, 0, NULL);
	for (uint32_t i = find_constant(block, at);
	     i < block->n_constants && block->constants[i].block_offset < end; i++) {
		const struct exec_constant *constant = &block->constants[i];
		const struct vk_import *import = constant->arena->import[device->executor.index];
		uint64_t from = constant->block_offset > at ? constant->block_offset : at;
		uint64_t stop = constant->block_offset + constant->bytes;
		VkBufferCopy region = {
			.srcOffset = constant->offset + (from - constant->block_offset),
			.dstOffset = from,
			.size = (stop < end ? stop : end) - from,
		};

		device->vk.vkCmdCopyBuffer(commands, import->segments[0].buffer, to, 1, &region);
		block->transferred_bytes += region.size;
	}
	r = vk_upload_submit(device, 0);
	if (r)
		return error_fold(r);
	block->loaded_bytes = end;
	return 0;
}

static int load_part(struct vk_device *device, struct exec_block *block)
{
	uint64_t end = block->loaded_bytes + piece_bytes(block, VK_BLOCK_PART_BYTES);
	int r = 0, waited;

	switch (((struct vk_block *)block->memory)->way) {
	case VK_WAY_STAGED:
		r = load_staged(device, block, end);
		break;
	case VK_WAY_ARENA:
		r = load_from_arenas(device, block);
		break;
	default:
		load_direct(block, end);
		return 0;
	}
	/* Wait also after a failure: the device may still write to memory that is freed then. */
	waited = vk_upload_wait(device);
	return r ? r : waited;
}

/* Return true if the device can read all of the block's constants in place. */
static bool is_imported(const struct vk_device *device, const struct exec_block *block)
{
	for (uint32_t i = 0; i < block->n_constants; i++) {
		const struct vk_import *import =
			block->constants[i].arena->import[device->executor.index];

		if (!import || import->n_segments != 1)
			return false;
	}
	return block->n_constants > 0;
}

static enum vk_way choose_way(const struct vk_device *device, const struct exec_block *block,
			      const struct vk_block *made)
{
	bool forced = device->options.force & (VULKAN_FORCE_STAGED | VULKAN_FORCE_DMA);
	bool imported = is_imported(device, block);
	enum vk_way way = VK_WAY_DIRECT;

	/* In other tiers, memory is mapped, and no engine would be faster. */
	if (block->tier == EXEC_TIER_VRAM && !device->is_software)
		way = vk_rates_choose(&device->rates, imported);
	if (forced || (way == VK_WAY_DIRECT && !made->allocation.host))
		way = imported ? VK_WAY_ARENA : VK_WAY_STAGED;
	return way;
}

static int begin(struct vk_device *device, struct exec_block *block)
{
	struct vk_block *made;
	int r;

	made = calloc(1, sizeof(*made));
	if (!made)
		return error_origin(-ENOMEM);
	r = vk_memory_alloc(device, (enum vk_memory_kind)block->tier, block->bytes,
			    &made->allocation);
	if (r) {
		free(made);
		return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
	}
	made->way = choose_way(device, block, made);
	device->n_blocks++;
	block->memory = made;
	block->loaded_bytes = 0;
	block->copied_bytes = 0;
	block->transferred_bytes = 0;
	return 0;
}

int vk_block_load(struct vk_device *device, struct exec_block *block)
{
	int r = 0;

	if (vk_device_is_lost(device))
		r = error_origin(-EIO);
	else if (is_cancelled(block))
		r = EXECUTOR_E_CANCELLED;
	else if (!block->memory)
		r = begin(device, block);
	if (!r && block->loaded_bytes < block->bytes) {
		r = load_part(device, block);
		/*
		 * Only the driver can be out of memory here: our memory was allocated in begin().
		 */
		if (r == -ENOMEM)
			r = EXECUTOR_E_NO_MEMORY;
	}
	if (!r && block->loaded_bytes < block->bytes)
		r = is_cancelled(block) ? EXECUTOR_E_CANCELLED : EXECUTOR_E_MORE;
	/* The caller frees the rest of a failed or cancelled load in parts. */
	return r < 0 ? error_fold(r) : r;
}

int vk_block_shrink(struct vk_device *device, struct exec_block *block)
{
	struct vk_block *made = block->memory;

	if (!made)
		return 0;
	vk_device_settle(device);
	return vk_memory_drop_some(device, &made->allocation, block->loaded_bytes) ? EXECUTOR_E_MORE
										   : 0;
}

void vk_block_unload(struct vk_device *device, struct exec_block *block)
{
	struct vk_block *made = block->memory;

	if (!made)
		return;
	vk_device_settle(device);
	vk_memory_free(device, &made->allocation);
	device->n_blocks--;
	free(made);
	block->memory = NULL;
	block->loaded_bytes = 0;
}

int vk_block_read(struct vk_device *device, struct exec_block *block, uint8_t *to)
{
	const struct vk_allocation *from = &((struct vk_block *)block->memory)->allocation;
	struct vk_allocation *staging;
	VkCommandBuffer commands;
	int r;

	for (uint64_t at = 0; at < block->bytes; at += VK_UPLOAD_CHUNK_BYTES) {
		uint64_t rest = block->bytes - at;
		const VkBufferCopy region = {
			.srcOffset = at,
			.size = rest < VK_UPLOAD_CHUNK_BYTES ? rest : VK_UPLOAD_CHUNK_BYTES,
		};

		r = vk_upload_staging(device, 0, &staging);
		if (!r)
			r = vk_upload_begin(device, 0, &commands);
		if (r)
			return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
		device->vk.vkCmdCopyBuffer(commands, from->buffer, staging->buffer, 1, &region);
		r = vk_upload_submit(device, 0);
		if (!r)
			r = vk_upload_wait(device);
		if (r)
			return error_fold(r);
		memcpy(to + at, staging->host, region.size);
	}
	return 0;
}

VkDeviceAddress vk_block_address(const struct exec_block *block)
{
	return ((struct vk_block *)block->memory)->allocation.address;
}
