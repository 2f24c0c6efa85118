/* SPDX-License-Identifier: MIT */
/*
 * Allocating, freeing and exporting device memory
 *
 * The layer counts the device's own memory: allocations of device-local heaps, including dedicated
 * and exportable ones, in whole pages, once for each device of a group that has an instance of the
 * allocation; and imports by descriptor. Imported host memory is not counted, even where the driver
 * gives it a device-local type.
 *
 * An allocation is charged before the call of the driver, so that the lease holds at every moment.
 * It is counted as live before the call that allocates it and until after the call that frees it,
 * so that driver overhead is never overestimated. A handle is removed from the table before the
 * driver frees it, because another thread may get the same handle the moment that it is free.
 *
 * Memory that drivers allocate for themselves (command buffers, descriptor pools, swapchain images,
 * sparse page tables) does not pass through this layer. The driver reports its total. The layer
 * reads the total each time that a program reads its budget, every LOOK_EVERY allocations, and
 * before it refuses an allocation; the difference is then charged as driver overhead.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/mover.h"
#include "libclient/layer/objects.h"
#include "libclient/layer/process.h"
#include "libclient/layer/say.h"

enum { PAGE_BYTES = 4096, LOOK_EVERY = 256 };

/* A requested allocation. */
struct wanted {
	uint64_t bytes;
	int import_fd; /* -1: no import */
	bool is_host;  /* host memory of the process is imported */
	uint32_t gpus; /* bits: the device's gpus that get an instance */
	uint32_t heap;
};

static void look_at(const void *chain, struct wanted *wanted)
{
	for (const VkBaseInStructure *each = chain; each; each = each->pNext) {
		switch ((int)each->sType) {
		case VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR: {
			const VkImportMemoryFdInfoKHR *import = (const void *)each;

			if (import->handleType)
				wanted->import_fd = import->fd;
			break;
		}
		case VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT:
			wanted->is_host =
				((const VkImportMemoryHostPointerInfoEXT *)each)->handleType != 0;
			break;
		case VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO: {
			const VkMemoryAllocateFlagsInfo *flags = (const void *)each;

			if (flags->flags & VK_MEMORY_ALLOCATE_DEVICE_MASK_BIT)
				wanted->gpus &= flags->deviceMask;
			break;
		}
		default:
			break;
		}
	}
}

/*
 * Choose the gpus to charge. The first device is charged for a heap that has one instance for the
 * whole group.
 */
static void choose_gpus(const struct device *device, struct wanted *wanted)
{
	const VkMemoryHeap *heap = &device->physical->memory.memoryHeaps[wanted->heap];

	if (wanted->gpus == 0)
		wanted->gpus = 1;
	if (!(heap->flags & VK_MEMORY_HEAP_MULTI_INSTANCE_BIT) || wanted->import_fd >= 0)
		wanted->gpus &= ~wanted->gpus + 1;
}

/* ---- Charging ---- */

#define for_each_gpu(gpu, device, bits)                                                         \
	for (uint32_t left_ = (bits), at_ = 0;                                                  \
	     left_ && ((void)(at_ = (uint32_t)__builtin_ctz(left_)), true); left_ &= left_ - 1) \
		for (struct gpu *gpu = (device)->gpus[at_]; gpu; gpu = NULL)

static void count(struct gpu *gpu, uint32_t heap, uint64_t bytes)
{
	__atomic_fetch_add(&gpu->live_bytes[heap], bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&gpu->n_allocated, 1, __ATOMIC_RELAXED);
}

static void uncount(struct gpu *gpu, uint32_t heap, uint64_t bytes, bool is_undone)
{
	/* An allocation that the driver refused was never part of the peak. */
	if (!is_undone)
		gpu_note_peak(gpu);
	__atomic_fetch_sub(&gpu->live_bytes[heap], bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&gpu->n_freed, 1, __ATOMIC_RELAXED);
}

void memory_look(struct physical *physical, struct gpu *gpu)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
	};
	VkPhysicalDeviceMemoryProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
		.pNext = &budget,
	};
	uint64_t bytes = 0;

	/* A CPU renderer's driver reports the memory use of the machine, not of the process. */
	if (physical->is_cpu || !physical->has_budget || !physical->can_budget)
		return;
	physical->instance->memory_properties2(physical->handle, &properties);
	for (uint32_t left = physical->local_heaps; left; left &= left - 1)
		bytes += budget.heapUsage[__builtin_ctz(left)];
	gpu_set_driver_bytes(gpu, bytes);
}

static int charge_gpu(struct gpu *gpu, const struct wanted *wanted, struct allocation *allocation)
{
	int r;

	if (wanted->import_fd < 0)
		return account_charge(&gpu->account, wanted->bytes, process_wait_ns());
	r = objects_import(gpu, wanted->import_fd, wanted->bytes, wanted->heap, process_wait_ns(),
			   &allocation->object, &allocation->bytes);
	allocation->is_charged = !allocation->object;
	return r;
}

/* Release stale charges: objects without holders, and overhead that has shrunk. Return: some were.
 */
static bool release_stale(struct device *device, struct gpu *gpu)
{
	const bool is_kept = __atomic_load_n(&gpu->n_kept, __ATOMIC_RELAXED) > 0;
	uint64_t extra_bytes;

	objects_sweep(gpu);
	/* The overhead may have been read while another thread was freeing memory. */
	extra_bytes = __atomic_load_n(&gpu->account.extra_bytes, __ATOMIC_RELAXED);
	if (gpu == device->gpus[0])
		memory_look(device->physical, gpu);
	return is_kept ||
	       __atomic_load_n(&gpu->account.extra_bytes, __ATOMIC_RELAXED) < extra_bytes;
}

/* Charge as charge_gpu(), but release stale charges before refusing. */
static int charge_at_need(struct device *device, struct gpu *gpu, const struct wanted *wanted,
			  struct allocation *allocation)
{
	int r = charge_gpu(gpu, wanted, allocation);

	if (r && release_stale(device, gpu))
		r = charge_gpu(gpu, wanted, allocation);
	if (r)
		__atomic_fetch_add(&gpu->account.n_refused, 1, __ATOMIC_RELAXED);
	return r;
}

/* Undo charge() for the gpus in @gpus. */
static void uncharge(struct device *device, const struct allocation *allocation, uint32_t gpus,
		     bool is_undone)
{
	for_each_gpu(gpu, device, gpus)
	{
		if (!gpu_is_ours(gpu))
			continue;
		uncount(gpu, allocation->heap, allocation->bytes, is_undone);
		if (allocation->object)
			objects_drop(gpu, allocation->object, allocation->heap, is_undone);
		else if (allocation->is_charged)
			account_release(&gpu->account, allocation->bytes);
	}
}

static int charge(struct device *device, const struct wanted *wanted, struct allocation *allocation)
{
	bool is_local = device->physical->local_heaps & (1u << wanted->heap);
	int r;

	allocation->is_charged = is_local && !wanted->is_host;
	for_each_gpu(gpu, device, wanted->gpus)
	{
		r = 0;
		if (!gpu_is_ours(gpu))
			r = -ECHILD;
		else if (allocation->is_charged)
			r = charge_at_need(device, gpu, wanted, allocation);
		if (r) {
			uncharge(device, allocation, wanted->gpus & ((1u << at_) - 1), true);
			return r;
		}
		count(gpu, wanted->heap, allocation->bytes);
	}
	return 0;
}

static VkResult refuse(const struct device *device, const struct wanted *wanted, int r)
{
	for_each_gpu(gpu, device, wanted->gpus)
	{
		if (gpu_is_ours(gpu))
			gpu_report(gpu);
	}
	say_rarely("an %s of %llu bytes is refused: %s",
		   wanted->import_fd < 0 ? "allocation" : "import",
		   (unsigned long long)wanted->bytes,
		   r == -ECHILD ? "the process called fork() after it had made the device"
				: strerror(-r));
	return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* ---- Vulkan's functions ---- */

/* Record memory that was allocated as @here. Return: false without memory. */
static bool record(struct device *device, struct allocation *allocation, struct movable *movable,
		   VkDeviceMemory here, VkDeviceMemory *ret)
{
	*ret = movable ? (VkDeviceMemory)(uintptr_t)movable : here;
	allocation->handle = (uint64_t)*ret;
	if (table_add(&device->table, allocation))
		return false;
	if (!movable || !movable_add(device, movable, here))
		return true;
	table_remove(&device->table, allocation->handle, allocation);
	return false;
}

/* Allocate memory. @movable: as movable_new(). */
static VkResult allocate(struct device *device, const VkMemoryAllocateInfo *info,
			 struct movable *movable, const VkAllocationCallbacks *allocator,
			 VkDeviceMemory *ret)
{
	struct wanted wanted = {.import_fd = -1};
	struct allocation allocation = {0};
	VkDeviceMemory here;
	VkResult result;
	int r;

	wanted.heap = device->physical->memory.memoryTypes[info->memoryTypeIndex].heapIndex;
	wanted.gpus = device->n_gpus < 32 ? (1u << device->n_gpus) - 1 : UINT32_MAX;
	if (info->pNext)
		look_at(info->pNext, &wanted);
	choose_gpus(device, &wanted);
	if (__builtin_add_overflow(info->allocationSize, PAGE_BYTES - 1u, &wanted.bytes))
		return refuse(device, &wanted, -ENOMEM);
	wanted.bytes -= wanted.bytes % PAGE_BYTES;

	allocation.bytes = wanted.is_host ? 0 : wanted.bytes;
	allocation.heap = (uint8_t)wanted.heap;
	allocation.gpus = wanted.gpus;
	r = charge(device, &wanted, &allocation);
	if (r)
		return refuse(device, &wanted, r);
	result = device->allocate(device->handle, info, allocator, &here);
	if (result != VK_SUCCESS) {
		uncharge(device, &allocation, allocation.gpus, true);
		return result;
	}
	if (!record(device, &allocation, movable, here, ret)) {
		device->free(device->handle, here, allocator);
		uncharge(device, &allocation, allocation.gpus, false);
		/* Programs free what is not null when they clean up after a failure. */
		*ret = VK_NULL_HANDLE;
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	}
	for_each_gpu(gpu, device, allocation.gpus)
	{
		if (__atomic_load_n(&gpu->n_allocated, __ATOMIC_RELAXED) % LOOK_EVERY == 0)
			memory_look(device->physical, gpu);
	}
	return VK_SUCCESS;
}

VkResult memory_allocate(struct device *device, const VkMemoryAllocateInfo *info,
			 const VkAllocationCallbacks *allocator, VkDeviceMemory *ret)
{
	struct movable *movable, fixed;
	VkResult result;

	if (device->n_gpus == 0 ||
	    info->memoryTypeIndex >= device->physical->memory.memoryTypeCount)
		return device->allocate(device->handle, info, allocator, ret);
	movable = movable_new(device, info, allocator);
	info = movable ? &movable->info : movable_fix(device, info, &fixed);
	result = allocate(device, info, movable, allocator, ret);
	if (result != VK_SUCCESS)
		free(movable);
	return result;
}

void memory_free(struct device *device, VkDeviceMemory memory,
		 const VkAllocationCallbacks *allocator)
{
	/* First, so that the allocation is not moved between the two. */
	struct movable *movable = movable_remove(device, memory);
	struct allocation allocation;
	bool is_known = memory && device->n_gpus > 0 &&
			table_remove(&device->table, (uint64_t)memory, &allocation);

	device->free(device->handle, movable ? movable->here : memory, allocator);
	free(movable);
	if (is_known)
		uncharge(device, &allocation, allocation.gpus, false);
}

void memory_forget(const void *leaked, void *device)
{
	const struct allocation *allocation = leaked;

	uncharge(device, allocation, allocation->gpus, false);
}

VkResult memory_get_fd(struct device *device, const VkMemoryGetFdInfoKHR *info, int *ret_fd)
{
	VkResult result = device->get_fd(device->handle, info, ret_fd);
	struct allocation allocation;
	struct object *object;
	struct gpu *gpu;

	if (result != VK_SUCCESS || device->n_gpus == 0 ||
	    !table_find(&device->table, (uint64_t)info->memory, &allocation) ||
	    (!allocation.is_charged && !allocation.object))
		return result;
	gpu = device->gpus[__builtin_ctz(allocation.gpus)];
	object = objects_export(gpu, allocation.object, *ret_fd, allocation.bytes, allocation.heap);
	if (object != allocation.object) {
		allocation.object = object;
		allocation.is_charged = false; /* the object is charged */
		table_replace(&device->table, &allocation);
	}
	return result;
}
