/* SPDX-License-Identifier: MIT */
/*
 * Transfer rates: see rates.h.
 *
 * Each rate is measured over repeated copies of one chunk, after one copy that does not count. The
 * number of copies grows until they take long enough. Staging is a chain of two overlapping copies,
 * so it is as fast as the slower copy. On a software device the processor makes all copies, and its
 * queue only adds overhead: its rates are for listings alone.
 *
 * The processor can write a card's memory directly only if all of it is mapped (a resizable BAR). A
 * window of 256 MiB is no place for constants, so it is not considered.
 */
#include "vulkan/rates.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plan/executor.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/number.h"
#include "vulkan/device.h"

enum {
	BYTES = VK_UPLOAD_CHUNK_BYTES,
	ENOUGH_NS = 500000,     /* minimum time of copying for a valid rate */
	MAX_NS = 2000000,       /* limit after which no further copy begins */
	PIECE_BYTES = 64 << 10, /* reading uncached memory can take a millisecond for this size */
};

static uint64_t rate(uint64_t bytes, uint64_t ns)
{
	return (uint64_t)((unsigned __int128)bytes * 1000000000u / (ns ? ns : 1));
}

/* Measure copies by the processor; @to and @from are both BYTES long. */
static uint64_t measure_host(void *to, const void *from)
{
	uint64_t begin_ns, ns, bytes = 0;

	memcpy(to, from, PIECE_BYTES);
	begin_ns = clock_now_ns();
	do {
		uint64_t at = bytes % BYTES;

		memcpy((uint8_t *)to + at, (const uint8_t *)from + at, PIECE_BYTES);
		bytes += PIECE_BYTES;
		ns = clock_now_ns() - begin_ns;
	} while (ns < ENOUGH_NS);
	return rate(bytes, ns);
}

/* Copy BYTES @n times between two buffers, by the device. */
static int copy(struct vk_device *device, VkBuffer to, VkBuffer from, uint32_t n)
{
	const VkBufferCopy region = {.size = BYTES};
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
	};
	VkCommandBuffer commands;
	int r;

	r = vk_upload_begin(device, 0, &commands);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < n; i++) {
		device->vk.vkCmdCopyBuffer(commands, from, to, 1, &region);
		device->vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
						VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &barrier, 0,
						NULL, 0, NULL);
	}
	r = vk_upload_submit(device, 0);
	if (!r)
		r = vk_upload_wait(device);
	return r ? error_fold(r) : 0;
}

static int measure_device(struct vk_device *device, VkBuffer to, VkBuffer from, uint64_t *ret)
{
	uint64_t begin_ns, ns = 0;
	int r;

	r = copy(device, to, from, 1);
	for (uint32_t n = 1; !r; n *= 4) {
		begin_ns = clock_now_ns();
		r = copy(device, to, from, n);
		ns = clock_now_ns() - begin_ns;
		if (r)
			break;
		*ret = rate((uint64_t)n * BYTES, ns);
		if (ns >= ENOUGH_NS || 4 * ns > MAX_NS || n >= 64)
			break;
	}
	return r ? error_fold(r) : 0;
}

static int measure_staged(struct vk_device *device, const struct vk_allocation *near)
{
	struct vulkan_rate *staged = &device->rates.staged;
	struct vk_allocation *staging[2];
	int r;

	r = vk_upload_staging(device, 0, &staging[0]);
	if (!r)
		r = vk_upload_staging(device, 1, &staging[1]);
	if (r)
		return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
	memset(staging[0]->host, 0, BYTES);
	r = measure_device(device, near->buffer, staging[0]->buffer, &staged->up_bytes_per_s);
	if (!r)
		r = measure_device(device, staging[0]->buffer, near->buffer,
				   &staged->down_bytes_per_s);
	if (r)
		return error_fold(r);
	staged->up_bytes_per_s =
		min_u64(staged->up_bytes_per_s, measure_host(staging[0]->host, staging[1]->host));
	staged->down_bytes_per_s =
		min_u64(staged->down_bytes_per_s, measure_host(staging[1]->host, staging[0]->host));
	return 0;
}

static int measure_arena(struct vk_device *device, const struct vk_allocation *near)
{
	struct vulkan_rate *arena = &device->rates.arena;
	_cleanup_(close_fdp) int fd = -1;
	struct vk_segment segment = {0};
	void *base;
	int r;

	if (!(device->paths.works & (1u << VULKAN_PATH_HOST_IMPORT)))
		return 0;
	fd = memfd_create("vulkan-rates", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, BYTES) < 0)
		return 0;
	base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (base == MAP_FAILED)
		return 0;
	r = vk_segment_host(device, base, BYTES, &segment);
	if (!r)
		r = measure_device(device, near->buffer, segment.buffer, &arena->up_bytes_per_s);
	if (!r)
		r = measure_device(device, segment.buffer, near->buffer, &arena->down_bytes_per_s);
	vk_segment_free(device, &segment);
	munmap(base, BYTES);
	return r == -EIO ? error_fold(r) : 0;
}

/* Return the memory type that is mapped and lies in the device's largest heap; -1: none. */
static int mapped_type(const struct vk_device *device)
{
	const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
					     VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
					     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	uint32_t heap = device->heaps.memoryTypes[device->memory.type[VK_MEMORY_VRAM]].heapIndex;

	for (uint32_t i = 0; i < device->heaps.memoryTypeCount; i++) {
		const VkMemoryType *type = &device->heaps.memoryTypes[i];

		if ((type->propertyFlags & wanted) == wanted && type->heapIndex == heap &&
		    (device->memory.usable_types & (1u << i)) &&
		    !(type->propertyFlags & VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD))
			return (int)i;
	}
	return -1;
}

static int measure_direct(struct vk_device *device)
{
	struct vulkan_rate *direct = &device->rates.direct;
	uint32_t type = device->memory.type[VK_MEMORY_VRAM];
	struct vk_allocation *staging, mapped;
	int found = mapped_type(device), r;

	if (found < 0)
		return 0;
	r = vk_upload_staging(device, 0, &staging);
	if (r)
		return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
	device->memory.type[VK_MEMORY_VRAM] = (uint32_t)found;
	r = vk_memory_alloc(device, VK_MEMORY_VRAM, BYTES, &mapped);
	if (!r && mapped.host) {
		direct->up_bytes_per_s = measure_host(mapped.host, staging->host);
		direct->down_bytes_per_s = measure_host(staging->host, mapped.host);
	}
	vk_memory_free(device, &mapped);
	device->memory.type[VK_MEMORY_VRAM] = type;
	return r < 0 ? error_fold(r) : r;
}

int vk_rates_measure(struct vk_device *device)
{
	struct vk_allocation near;
	int r;

	device->rates = (struct vulkan_rates){.has_queue = device->upload.queue};
	r = vk_memory_alloc(device, VK_MEMORY_VRAM, BYTES, &near);
	if (!r)
		r = measure_staged(device, &near);
	if (!r)
		r = measure_arena(device, &near);
	if (!r)
		r = measure_direct(device);
	vk_memory_free(device, &near);
	vk_upload_drop_staging(device);
	if (r == -EIO)
		return error_fold(r);
	vk_rates_apply(device);
	return 0;
}

enum vk_way vk_rates_choose(const struct vulkan_rates *rates, bool is_imported)
{
	uint64_t direct = rates->direct.up_bytes_per_s, staged = rates->staged.up_bytes_per_s;
	uint64_t arena = is_imported ? rates->arena.up_bytes_per_s : 0;

	/* Prefer the device's own engine if it is not slower by more than a quarter. */
	if (arena > 0 && arena >= direct / 4 * 3 && arena >= staged / 4 * 3)
		return VK_WAY_ARENA;
	return direct > 0 && direct >= staged ? VK_WAY_DIRECT : VK_WAY_STAGED;
}

void vk_rates_apply(struct vk_device *device)
{
	int mapped = mapped_type(device);

	if (mapped < 0)
		return;
	if (device->is_software || vk_rates_choose(&device->rates, true) == VK_WAY_DIRECT ||
	    vk_rates_choose(&device->rates, false) == VK_WAY_DIRECT)
		device->memory.type[VK_MEMORY_VRAM] = (uint32_t)mapped;
}
