/* SPDX-License-Identifier: MIT */
/*
 * Functions of Vulkan that take memory, for devices whose memory may be moved: see mover.h.
 *
 * Each translates the program's handle to that of the memory where it is, which stays there during
 * the call. Names and tags for debuggers are dropped: they would be lost when the memory moves.
 *
 * Functions of an instance are also called for devices without a mover.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/lost.h"
#include "libclient/layer/mover.h"

/* Sizes of allocations are multiples of this, so that buffers of the same size fit into them. */
static const uint64_t granule_bytes = 65536;

/* VK_KHR_map_memory2, which older headers lack. */
struct map_info {
	VkStructureType type;
	const void *next;
	VkFlags flags;
	VkDeviceMemory memory;
	VkDeviceSize offset, size;
};
struct unmap_info {
	VkStructureType type;
	const void *next;
	VkFlags flags;
	VkDeviceMemory memory;
};
typedef VkResult(VKAPI_PTR *map2_function)(VkDevice, const struct map_info *, void **);
typedef VkResult(VKAPI_PTR *unmap2_function)(VkDevice, const struct unmap_info *);

#define NEXT(device, name) ((PFN_##name)(device)->get_proc_addr((device)->handle, #name))

static void *find(struct table *table, uint64_t handle)
{
	struct mover_record record;

	return handle && table_find(table, handle, &record) ? record.object : NULL;
}

static struct movable *find_memory(const struct device *device, VkDeviceMemory handle)
{
	return device->mover ? find(&device->mover->memories, (uint64_t)handle) : NULL;
}

/* Return the driver's handle. Under mover.using. */
static VkDeviceMemory here(const struct device *device, VkDeviceMemory handle)
{
	const struct movable *movable = find_memory(device, handle);

	return movable ? movable->here : handle;
}

/* Count memory, or no longer, as what can be moved or has been. Under mover.lock. */
static void count(struct mover *mover, const struct movable *movable, bool is_counted)
{
	__atomic_fetch_add(&mover->device->gpus[0]->movable_bytes,
			   is_counted ? movable->bytes : 0 - movable->bytes, __ATOMIC_RELAXED);
}

/* Keep memory where it is, or let it move again. Under mover.using and mover.lock. */
static void change_pins(struct mover *mover, struct movable *movable, bool is_pinned)
{
	const bool was_movable = movable->is_away || movable->n_pins == 0;
	bool is_movable;

	if (is_pinned)
		movable->n_pins++;
	else if (movable->n_pins > 0)
		movable->n_pins--;
	is_movable = movable->is_away || movable->n_pins == 0;
	if (is_movable != was_movable)
		count(mover, movable, is_movable);
}

/* ---- Allocations ---- */

/* Return true if memory with these extensions may be moved. */
static bool may_move(const void *chain, VkMemoryAllocateFlagsInfo *ret_flags)
{
	for (const VkBaseInStructure *each = chain; each; each = each->pNext) {
		if (each->sType == VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO) {
			/* A sparse buffer has no memory of its own. */
			if (((const VkMemoryDedicatedAllocateInfo *)each)->image)
				return false;
		} else if (each->sType == VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO) {
			*ret_flags = *(const VkMemoryAllocateFlagsInfo *)each;
			ret_flags->pNext = NULL;
			if (ret_flags->flags & ~(VkFlags)VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT)
				return false;
		} else if (each->sType != VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT) {
			return false;
		}
	}
	return true;
}

struct movable *movable_new(struct device *device, const VkMemoryAllocateInfo *info,
			    const VkAllocationCallbacks *allocator)
{
	const VkPhysicalDeviceMemoryProperties *memory = &device->physical->memory;
	const VkMemoryType *type = &memory->memoryTypes[info->memoryTypeIndex];
	struct movable *movable;

	if (!device->mover || allocator ||
	    !(device->physical->local_heaps & 1u << type->heapIndex) ||
	    (type->propertyFlags & VK_MEMORY_PROPERTY_PROTECTED_BIT) ||
	    info->allocationSize > UINT64_MAX - granule_bytes)
		return NULL;
	movable = calloc(1, sizeof(*movable));
	if (!movable || !may_move(info->pNext, &movable->flags)) {
		free(movable);
		return NULL;
	}
	movable->info = *info;
	movable->info.pNext = movable->flags.sType ? &movable->flags : NULL;
	movable->info.allocationSize =
		(info->allocationSize + granule_bytes - 1) / granule_bytes * granule_bytes;
	movable->bytes = movable->info.allocationSize;
	movable->heap = type->heapIndex;
	return movable;
}

const VkMemoryAllocateInfo *movable_fix(struct device *device, const VkMemoryAllocateInfo *info,
					struct movable *ret)
{
	const VkBaseInStructure *each = info->pNext;

	while (each && each->sType != VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO)
		each = each->pNext;
	*ret = (struct movable){.info = *info};
	if (!device->mover || !each ||
	    !find(&device->mover->buffers,
		  (uint64_t)((const VkMemoryDedicatedAllocateInfo *)each)->buffer) ||
	    !may_move(info->pNext, &ret->flags))
		return info;
	ret->info.pNext = ret->flags.sType ? &ret->flags : NULL;
	return &ret->info;
}

int movable_add(struct device *device, struct movable *movable, VkDeviceMemory memory)
{
	struct mover *mover = device->mover;
	const struct mover_record record = {(uint64_t)(uintptr_t)movable, movable};

	movable->here = memory;
	if (table_add(&mover->memories, &record))
		return -ENOMEM;
	pthread_mutex_lock(&mover->lock);
	movable->next = mover->movables;
	movable->link = &mover->movables;
	if (movable->next)
		movable->next->link = &movable->next;
	mover->movables = movable;
	count(mover, movable, true);
	pthread_mutex_unlock(&mover->lock);
	return 0;
}

static void unlink_buffer(struct sparse_buffer *buffer)
{
	if (!buffer->link)
		return;
	*buffer->link = buffer->next;
	if (buffer->next)
		buffer->next->link = buffer->link;
	buffer->link = NULL;
}

struct movable *movable_remove(struct device *device, VkDeviceMemory handle)
{
	struct movable *movable = find_memory(device, handle);
	struct mover *mover = device->mover;
	struct mover_record record;
	struct gpu *gpu;

	if (!movable)
		return NULL;
	gpu = device->gpus[0];
	mover_enter(mover, false);
	pthread_mutex_lock(&mover->lock);
	/* Drivers may keep what is bound in the lists of later submissions. */
	while (movable->buffers) {
		(void)mover_bind(mover, &movable->buffers, 1, VK_NULL_HANDLE);
		unlink_buffer(movable->buffers);
	}
	*movable->link = movable->next;
	if (movable->next)
		movable->next->link = movable->link;
	if (movable->is_away || movable->n_pins == 0)
		count(mover, movable, false);
	if (movable->is_away) {
		__atomic_fetch_sub(&gpu->moved_bytes, movable->bytes, __ATOMIC_RELAXED);
		__atomic_fetch_sub(&mover->away_bytes, movable->bytes, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&mover->lock);
	table_remove(&mover->memories, (uint64_t)handle, &record);
	mover_leave(mover);
	return movable;
}

/* ---- Mapping ---- */

/* Keep memory where it is, or let it move again. Under mover.using. */
static void pin(struct mover *mover, struct movable *movable, bool is_pinned)
{
	if (!movable)
		return;
	pthread_mutex_lock(&mover->lock);
	change_pins(mover, movable, is_pinned);
	pthread_mutex_unlock(&mover->lock);
}

static VKAPI_ATTR VkResult VKAPI_CALL map_memory(VkDevice handle, VkDeviceMemory memory,
						 VkDeviceSize offset, VkDeviceSize size,
						 VkMemoryMapFlags flags, void **ret)
{
	struct device *device = dispatch_device(handle);
	VkResult result;

	/* Memory that stays away is mapped there: its type is host-visible, too. */
	mover_enter(device->mover, true);
	result = NEXT(device, vkMapMemory)(handle, here(device, memory), offset, size, flags, ret);
	if (result == VK_SUCCESS)
		pin(device->mover, find_memory(device, memory), true);
	mover_leave(device->mover);
	return result;
}

static VKAPI_ATTR void VKAPI_CALL unmap_memory(VkDevice handle, VkDeviceMemory memory)
{
	struct device *device = dispatch_device(handle);

	mover_enter(device->mover, false);
	NEXT(device, vkUnmapMemory)(handle, here(device, memory));
	pin(device->mover, find_memory(device, memory), false);
	mover_leave(device->mover);
}

static VkResult map_2(VkDevice handle, const struct map_info *info, void **ret, const char *name)
{
	struct device *device = dispatch_device(handle);
	struct map_info below = *info;
	VkResult result;

	mover_enter(device->mover, true);
	below.memory = here(device, info->memory);
	result = ((map2_function)device->get_proc_addr(handle, name))(handle, &below, ret);
	if (result == VK_SUCCESS)
		pin(device->mover, find_memory(device, info->memory), true);
	mover_leave(device->mover);
	return result;
}

static VkResult unmap_2(VkDevice handle, const struct unmap_info *info, const char *name)
{
	struct device *device = dispatch_device(handle);
	struct unmap_info below = *info;
	VkResult result;

	mover_enter(device->mover, false);
	below.memory = here(device, info->memory);
	result = ((unmap2_function)device->get_proc_addr(handle, name))(handle, &below);
	if (result == VK_SUCCESS)
		pin(device->mover, find_memory(device, info->memory), false);
	mover_leave(device->mover);
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL map_memory2(VkDevice handle, const struct map_info *info,
						  void **ret)
{
	return map_2(handle, info, ret, "vkMapMemory2");
}

static VKAPI_ATTR VkResult VKAPI_CALL map_memory2_khr(VkDevice handle, const struct map_info *info,
						      void **ret)
{
	return map_2(handle, info, ret, "vkMapMemory2KHR");
}

static VKAPI_ATTR VkResult VKAPI_CALL unmap_memory2(VkDevice handle, const struct unmap_info *info)
{
	return unmap_2(handle, info, "vkUnmapMemory2");
}

static VKAPI_ATTR VkResult VKAPI_CALL unmap_memory2_khr(VkDevice handle,
							const struct unmap_info *info)
{
	return unmap_2(handle, info, "vkUnmapMemory2KHR");
}

static VkResult pass_ranges(VkDevice handle, uint32_t n, const VkMappedMemoryRange *ranges,
			    const char *name)
{
	struct device *device = dispatch_device(handle);
	VkMappedMemoryRange *below = malloc((n + 1) * sizeof(*below));
	VkResult result;

	if (!below)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	mover_enter(device->mover, false);
	for (uint32_t i = 0; i < n; i++) {
		below[i] = ranges[i];
		below[i].memory = here(device, ranges[i].memory);
	}
	/* vkFlushMappedMemoryRanges() has the same type. */
	result = ((PFN_vkInvalidateMappedMemoryRanges)device->get_proc_addr(handle, name))(
		handle, n, below);
	mover_leave(device->mover);
	free(below);
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL flush_ranges(VkDevice handle, uint32_t n,
						   const VkMappedMemoryRange *ranges)
{
	return pass_ranges(handle, n, ranges, "vkFlushMappedMemoryRanges");
}

static VKAPI_ATTR VkResult VKAPI_CALL invalidate_ranges(VkDevice handle, uint32_t n,
							const VkMappedMemoryRange *ranges)
{
	return pass_ranges(handle, n, ranges, "vkInvalidateMappedMemoryRanges");
}

/* ---- Buffers ---- */

/* Return true if a buffer can be made sparse. */
static bool may_be_sparse(const VkBufferCreateInfo *info)
{
	const VkBaseInStructure *each = info->pNext;
	const int usage_2 = 1000470006; /* VK_STRUCTURE_TYPE_BUFFER_USAGE_FLAGS_2_CREATE_INFO */

	if (info->flags)
		return false;
	for (; each; each = each->pNext)
		if (each->sType == VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO) {
			if (((const VkExternalMemoryBufferCreateInfo *)each)->handleTypes)
				return false;
		} else if ((int)each->sType != usage_2) {
			return false;
		}
	return true;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice handle, const VkBufferCreateInfo *info,
						    const VkAllocationCallbacks *allocator,
						    VkBuffer *ret)
{
	struct device *device = dispatch_device(handle);
	struct mover *mover = device->mover;
	struct sparse_buffer *buffer;
	VkBufferCreateInfo below = *info;
	VkMemoryRequirements needs;
	VkResult result;

	if (!mover || !may_be_sparse(info))
		return NEXT(device, vkCreateBuffer)(handle, info, allocator, ret);
	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	below.flags |= VK_BUFFER_CREATE_SPARSE_BINDING_BIT;
	result = mover->next.create_buffer(handle, &below, allocator, ret);
	if (result == VK_SUCCESS) {
		mover->next.buffer_needs(handle, *ret, &needs);
		buffer->handle = *ret;
		buffer->bytes = needs.size;
		buffer->is_fixed = !(needs.memoryTypeBits >> mover->host_type & 1);
		if (table_add(&mover->buffers, &(struct mover_record){(uint64_t)*ret, buffer})) {
			mover->next.destroy_buffer(handle, *ret, allocator);
			result = VK_ERROR_OUT_OF_HOST_MEMORY;
		}
	}
	if (result != VK_SUCCESS) {
		*ret = VK_NULL_HANDLE;
		free(buffer);
	}
	return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_buffer(VkDevice handle, VkBuffer buffer,
						 const VkAllocationCallbacks *allocator)
{
	struct device *device = dispatch_device(handle);
	struct mover *mover = device->mover;
	struct mover_record record;

	mover_enter(mover, false);
	if (mover && buffer && table_remove(&mover->buffers, (uint64_t)buffer, &record)) {
		pthread_mutex_lock(&mover->lock);
		unlink_buffer(record.object);
		pthread_mutex_unlock(&mover->lock);
		free(record.object);
	}
	NEXT(device, vkDestroyBuffer)(handle, buffer, allocator);
	mover_leave(mover);
}

static void future_needs(VkDevice handle, const VkDeviceBufferMemoryRequirements *info,
			 VkMemoryRequirements2 *ret, const char *name)
{
	struct device *device = dispatch_device(handle);
	PFN_vkGetDeviceBufferMemoryRequirements next =
		(PFN_vkGetDeviceBufferMemoryRequirements)device->get_proc_addr(handle, name);
	VkDeviceBufferMemoryRequirements below = *info;
	VkBufferCreateInfo buffer = *info->pCreateInfo;

	if (device->mover && may_be_sparse(&buffer)) {
		buffer.flags |= VK_BUFFER_CREATE_SPARSE_BINDING_BIT;
		below.pCreateInfo = &buffer;
	}
	next(handle, &below, ret);
}

static VKAPI_ATTR void VKAPI_CALL future_buffer_needs(VkDevice handle,
						      const VkDeviceBufferMemoryRequirements *info,
						      VkMemoryRequirements2 *ret)
{
	future_needs(handle, info, ret, "vkGetDeviceBufferMemoryRequirements");
}

static VKAPI_ATTR void VKAPI_CALL future_buffer_needs_khr(
	VkDevice handle, const VkDeviceBufferMemoryRequirements *info, VkMemoryRequirements2 *ret)
{
	future_needs(handle, info, ret, "vkGetDeviceBufferMemoryRequirementsKHR");
}

/*
 * Keep memory for what cannot be bound anew. Under mover.using. Return: false: it is away, since
 * the lease has no room for it.
 */
static bool pin_here(struct mover *mover, struct movable *movable)
{
	bool is_here;

	pthread_mutex_lock(&mover->lock);
	is_here = !movable->is_away;
	if (is_here)
		change_pins(mover, movable, true);
	pthread_mutex_unlock(&mover->lock);
	return is_here;
}

/* Bind a buffer. Under mover.using; device->mover is not NULL. */
static VkResult bind_one(struct device *device, VkBuffer handle, VkDeviceMemory memory,
			 VkDeviceSize offset)
{
	struct mover *mover = device->mover;
	struct movable *movable = find_memory(device, memory);
	struct sparse_buffer *buffer = find(&mover->buffers, (uint64_t)handle);
	VkResult result;

	if (!buffer) {
		if (movable && !pin_here(mover, movable))
			return VK_ERROR_OUT_OF_DEVICE_MEMORY;
		return mover->next.bind_buffer(device->handle, handle,
					       movable ? movable->here : memory, offset);
	}
	if (movable && buffer->is_fixed && !pin_here(mover, movable))
		return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	pthread_mutex_lock(&mover->lock);
	buffer->offset = offset;
	result = mover_bind(mover, &buffer, 1, movable ? movable->here : memory);
	if (result == VK_SUCCESS && movable) {
		buffer->next = movable->buffers;
		buffer->link = &movable->buffers;
		if (buffer->next)
			buffer->next->link = &buffer->next;
		movable->buffers = buffer;
	}
	pthread_mutex_unlock(&mover->lock);
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_buffer(VkDevice handle, VkBuffer buffer,
						  VkDeviceMemory memory, VkDeviceSize offset)
{
	struct device *device = dispatch_device(handle);
	VkResult result;

	if (!device->mover)
		return NEXT(device, vkBindBufferMemory)(handle, buffer, memory, offset);
	mover_enter(device->mover, true);
	result = bind_one(device, buffer, memory, offset);
	mover_leave(device->mover);
	return result;
}

/* VkBindMemoryStatusKHR of VK_KHR_maintenance6, which older headers lack. */
struct bind_status {
	VkStructureType type;
	const void *next;
	VkResult *result;
};

/* Store the result of one of several bindings, if the program asks for it. */
static void store_result(const void *chain, VkResult result)
{
	const int bind_memory_status = 1000545002;

	for (const VkBaseInStructure *each = chain; each; each = each->pNext)
		if ((int)each->sType == bind_memory_status)
			*((const struct bind_status *)each)->result = result;
}

static VkResult bind_buffers(VkDevice handle, uint32_t n, const VkBindBufferMemoryInfo *infos,
			     const char *name)
{
	struct device *device = dispatch_device(handle);
	VkResult result = VK_SUCCESS;

	if (!device->mover)
		return ((PFN_vkBindBufferMemory2)device->get_proc_addr(handle, name))(handle, n,
										      infos);
	mover_enter(device->mover, true);
	for (uint32_t i = 0; i < n; i++) {
		VkResult each =
			bind_one(device, infos[i].buffer, infos[i].memory, infos[i].memoryOffset);

		store_result(infos[i].pNext, each);
		result = result == VK_SUCCESS ? each : result;
	}
	mover_leave(device->mover);
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_buffer2(VkDevice handle, uint32_t n,
						   const VkBindBufferMemoryInfo *infos)
{
	return bind_buffers(handle, n, infos, "vkBindBufferMemory2");
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_buffer2_khr(VkDevice handle, uint32_t n,
						       const VkBindBufferMemoryInfo *infos)
{
	return bind_buffers(handle, n, infos, "vkBindBufferMemory2KHR");
}

/* ---- Images ---- */

static VKAPI_ATTR VkResult VKAPI_CALL bind_image(VkDevice handle, VkImage image,
						 VkDeviceMemory memory, VkDeviceSize offset)
{
	struct device *device = dispatch_device(handle);
	struct movable *movable = find_memory(device, memory);
	VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;

	mover_enter(device->mover, true);
	if (!movable || pin_here(device->mover, movable))
		result = NEXT(device, vkBindImageMemory)(handle, image, here(device, memory),
							 offset);
	mover_leave(device->mover);
	return result;
}

static VkResult bind_images(VkDevice handle, uint32_t n, const VkBindImageMemoryInfo *infos,
			    const char *name)
{
	struct device *device = dispatch_device(handle);
	VkBindImageMemoryInfo *below = malloc((n + 1) * sizeof(*below));
	VkResult result = VK_SUCCESS;

	if (!below)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	mover_enter(device->mover, true);
	for (uint32_t i = 0; i < n; i++) {
		struct movable *movable = find_memory(device, infos[i].memory);

		below[i] = infos[i];
		below[i].memory = here(device, infos[i].memory);
		if (movable && !pin_here(device->mover, movable))
			result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
	}
	if (result == VK_SUCCESS)
		result = ((PFN_vkBindImageMemory2)device->get_proc_addr(handle, name))(handle, n,
										       below);
	mover_leave(device->mover);
	free(below);
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_image2(VkDevice handle, uint32_t n,
						  const VkBindImageMemoryInfo *infos)
{
	return bind_images(handle, n, infos, "vkBindImageMemory2");
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_image2_khr(VkDevice handle, uint32_t n,
						      const VkBindImageMemoryInfo *infos)
{
	return bind_images(handle, n, infos, "vkBindImageMemory2KHR");
}

/* ---- Sparse resources of the program's own ---- */

/*
 * Replace memory of a binding by the driver's, and keep it where it is from now on. Under
 * mover.using. Return: false: it is away, since the lease has no room for it.
 */
static bool translate(struct device *device, VkDeviceMemory *memory)
{
	struct movable *movable = find_memory(device, *memory);

	if (!movable)
		return true;
	*memory = movable->here;
	return pin_here(device->mover, movable);
}

/* Copy an array to *at, and move that behind it. */
static void *put(char **at, const void *array, size_t bytes)
{
	char *copy = *at;

	if (bytes > 0)
		memcpy(copy, array, bytes);
	*at += (bytes + 7) / 8 * 8;
	return copy;
}

/* Bytes of all arrays of a description, and of arrays of bindings in these. */
static size_t bytes_of_binds(const VkBindSparseInfo *info)
{
	size_t bytes = 8 * (3 + (size_t)info->bufferBindCount + info->imageOpaqueBindCount +
			    info->imageBindCount);

	for (uint32_t i = 0; i < info->bufferBindCount; i++)
		bytes += sizeof(*info->pBufferBinds) +
			 info->pBufferBinds[i].bindCount * sizeof(VkSparseMemoryBind);
	for (uint32_t i = 0; i < info->imageOpaqueBindCount; i++)
		bytes += sizeof(*info->pImageOpaqueBinds) +
			 info->pImageOpaqueBinds[i].bindCount * sizeof(VkSparseMemoryBind);
	for (uint32_t i = 0; i < info->imageBindCount; i++)
		bytes += sizeof(*info->pImageBinds) +
			 info->pImageBinds[i].bindCount * sizeof(VkSparseImageMemoryBind);
	return bytes;
}

static bool translate_all(struct device *device, VkSparseMemoryBind *binds, uint32_t n)
{
	bool is_here = true;

	for (uint32_t i = 0; i < n; i++)
		is_here &= translate(device, &binds[i].memory);
	return is_here;
}

/* Replace the arrays of @info by copies at *at with the driver's memory. As translate(). */
static bool copy_binds(struct device *device, VkBindSparseInfo *info, char **at)
{
	VkSparseBufferMemoryBindInfo *buffers =
		put(at, info->pBufferBinds, info->bufferBindCount * sizeof(*buffers));
	VkSparseImageOpaqueMemoryBindInfo *opaque =
		put(at, info->pImageOpaqueBinds, info->imageOpaqueBindCount * sizeof(*opaque));
	VkSparseImageMemoryBindInfo *images =
		put(at, info->pImageBinds, info->imageBindCount * sizeof(*images));
	bool is_here = true;

	for (uint32_t i = 0; i < info->bufferBindCount; i++) {
		VkSparseMemoryBind *binds =
			put(at, buffers[i].pBinds, buffers[i].bindCount * sizeof(*binds));

		is_here &= translate_all(device, binds, buffers[i].bindCount);
		buffers[i].pBinds = binds;
	}
	for (uint32_t i = 0; i < info->imageOpaqueBindCount; i++) {
		VkSparseMemoryBind *binds =
			put(at, opaque[i].pBinds, opaque[i].bindCount * sizeof(*binds));

		is_here &= translate_all(device, binds, opaque[i].bindCount);
		opaque[i].pBinds = binds;
	}
	for (uint32_t i = 0; i < info->imageBindCount; i++) {
		VkSparseImageMemoryBind *binds =
			put(at, images[i].pBinds, images[i].bindCount * sizeof(*binds));

		for (uint32_t bind = 0; bind < images[i].bindCount; bind++)
			is_here &= translate(device, &binds[bind].memory);
		images[i].pBinds = binds;
	}
	info->pBufferBinds = buffers;
	info->pImageOpaqueBinds = opaque;
	info->pImageBinds = images;
	return is_here;
}

static VkResult bind_below(struct device *device, VkQueue queue, uint32_t n,
			   const VkBindSparseInfo *infos, VkFence fence)
{
	VkBindSparseInfo *below = calloc((size_t)n + 1, sizeof(*below));
	VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;
	size_t bytes = 1;
	char *block, *at;

	for (uint32_t i = 0; i < n; i++)
		bytes += bytes_of_binds(&infos[i]);
	block = at = malloc(bytes);
	if (below && block) {
		bool is_here = true;

		for (uint32_t i = 0; i < n; i++) {
			below[i] = infos[i];
			is_here &= copy_binds(device, &below[i], &at);
		}
		result = is_here ? device->mover->next.bind_sparse(queue, n, below, fence)
				 : VK_ERROR_OUT_OF_DEVICE_MEMORY;
	}
	free(block);
	free(below);
	return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_sparse(VkQueue queue, uint32_t n,
						  const VkBindSparseInfo *infos, VkFence fence)
{
	struct device *device = dispatch_device(queue);
	VkResult result;

	if (!device->mover)
		return NEXT(device, vkQueueBindSparse)(queue, n, infos, fence);
	mover_enter_submit(device, queue);
	result = bind_below(device, queue, n, infos, fence);
	mover_leave(device->mover);
	return lost_note(device, result);
}

/* ---- Other uses of memory ---- */

static VKAPI_ATTR void VKAPI_CALL get_commitment(VkDevice handle, VkDeviceMemory memory,
						 VkDeviceSize *ret)
{
	struct device *device = dispatch_device(handle);

	mover_enter(device->mover, false);
	NEXT(device, vkGetDeviceMemoryCommitment)(handle, here(device, memory), ret);
	mover_leave(device->mover);
}

/* The address is that of the memory where it is: it stays. */
static uint64_t capture_address(VkDevice handle, const VkDeviceMemoryOpaqueCaptureAddressInfo *info,
				const char *name)
{
	struct device *device = dispatch_device(handle);
	VkDeviceMemoryOpaqueCaptureAddressInfo below = *info;
	uint64_t address;

	mover_enter(device->mover, true);
	pin(device->mover, find_memory(device, info->memory), true);
	below.memory = here(device, info->memory);
	address = ((PFN_vkGetDeviceMemoryOpaqueCaptureAddress)device->get_proc_addr(handle, name))(
		handle, &below);
	mover_leave(device->mover);
	return address;
}

static VKAPI_ATTR uint64_t VKAPI_CALL
get_capture_address(VkDevice handle, const VkDeviceMemoryOpaqueCaptureAddressInfo *info)
{
	return capture_address(handle, info, "vkGetDeviceMemoryOpaqueCaptureAddress");
}

static VKAPI_ATTR uint64_t VKAPI_CALL
get_capture_address_khr(VkDevice handle, const VkDeviceMemoryOpaqueCaptureAddressInfo *info)
{
	return capture_address(handle, info, "vkGetDeviceMemoryOpaqueCaptureAddressKHR");
}

static VKAPI_ATTR void VKAPI_CALL set_memory_priority(VkDevice handle, VkDeviceMemory memory,
						      float priority)
{
	struct device *device = dispatch_device(handle);

	mover_enter(device->mover, false);
	NEXT(device, vkSetDeviceMemoryPriorityEXT)(handle, here(device, memory), priority);
	mover_leave(device->mover);
}

/* Return whether an object is memory that may be moved. */
static bool is_movable(VkDevice handle, VkObjectType type, uint64_t object)
{
	return type == VK_OBJECT_TYPE_DEVICE_MEMORY &&
	       find_memory(dispatch_device(handle), (VkDeviceMemory)object);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_name(VkDevice handle,
					       const VkDebugUtilsObjectNameInfoEXT *info)
{
	if (is_movable(handle, info->objectType, info->objectHandle))
		return VK_SUCCESS;
	return NEXT(dispatch_device(handle), vkSetDebugUtilsObjectNameEXT)(handle, info);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_tag(VkDevice handle,
					      const VkDebugUtilsObjectTagInfoEXT *info)
{
	if (is_movable(handle, info->objectType, info->objectHandle))
		return VK_SUCCESS;
	return NEXT(dispatch_device(handle), vkSetDebugUtilsObjectTagEXT)(handle, info);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_marker_name(VkDevice handle,
						      const VkDebugMarkerObjectNameInfoEXT *info)
{
	if (info->objectType == VK_DEBUG_REPORT_OBJECT_TYPE_DEVICE_MEMORY_EXT &&
	    is_movable(handle, VK_OBJECT_TYPE_DEVICE_MEMORY, info->object))
		return VK_SUCCESS;
	return NEXT(dispatch_device(handle), vkDebugMarkerSetObjectNameEXT)(handle, info);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_marker_tag(VkDevice handle,
						     const VkDebugMarkerObjectTagInfoEXT *info)
{
	if (info->objectType == VK_DEBUG_REPORT_OBJECT_TYPE_DEVICE_MEMORY_EXT &&
	    is_movable(handle, VK_OBJECT_TYPE_DEVICE_MEMORY, info->object))
		return VK_SUCCESS;
	return NEXT(dispatch_device(handle), vkDebugMarkerSetObjectTagEXT)(handle, info);
}

/* Data that a program attaches to memory keeps it where it is. */
static uint64_t object_for_data(struct device *device, VkObjectType type, uint64_t object,
				bool is_kept)
{
	struct movable *movable = type == VK_OBJECT_TYPE_DEVICE_MEMORY
					  ? find_memory(device, (VkDeviceMemory)object)
					  : NULL;

	if (!movable)
		return object;
	pin(device->mover, movable, is_kept);
	return (uint64_t)movable->here;
}

#define PRIVATE_DATA(name, set, get)                                                               \
	static VKAPI_ATTR VkResult VKAPI_CALL set(VkDevice handle, VkObjectType type,              \
						  uint64_t object, VkPrivateDataSlot slot,         \
						  uint64_t data)                                   \
	{                                                                                          \
		struct device *device = dispatch_device(handle);                                   \
		VkResult result;                                                                   \
                                                                                                   \
		mover_enter(device->mover, true);                                                  \
		object = object_for_data(device, type, object, true);                              \
		result = NEXT(device, vkSet##name)(handle, type, object, slot, data);              \
		mover_leave(device->mover);                                                        \
		return result;                                                                     \
	}                                                                                          \
	static VKAPI_ATTR void VKAPI_CALL get(VkDevice handle, VkObjectType type, uint64_t object, \
					      VkPrivateDataSlot slot, uint64_t *ret)               \
	{                                                                                          \
		struct device *device = dispatch_device(handle);                                   \
		struct movable *movable = type == VK_OBJECT_TYPE_DEVICE_MEMORY                     \
						  ? find_memory(device, (VkDeviceMemory)object)    \
						  : NULL;                                          \
                                                                                                   \
		mover_enter(device->mover, false);                                                 \
		NEXT(device, vkGet##name)                                                          \
		(handle, type, movable ? (uint64_t)movable->here : object, slot, ret);             \
		mover_leave(device->mover);                                                        \
	}
PRIVATE_DATA(PrivateData, set_data, get_data)
PRIVATE_DATA(PrivateDataEXT, set_data_ext, get_data_ext)
#undef PRIVATE_DATA

/* Calls that use a queue, which the layer uses, too. */

static VKAPI_ATTR VkResult VKAPI_CALL wait_queue(VkQueue queue)
{
	struct device *device = dispatch_device(queue);
	VkResult result;

	mover_enter(device->mover, false);
	result = NEXT(device, vkQueueWaitIdle)(queue);
	mover_leave(device->mover);
	return lost_note(device, result);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_device(VkDevice handle)
{
	struct device *device = dispatch_device(handle);
	VkResult result;

	mover_enter(device->mover, false);
	result = NEXT(device, vkDeviceWaitIdle)(handle);
	mover_leave(device->mover);
	return lost_note(device, result);
}

static VKAPI_ATTR VkResult VKAPI_CALL present(VkQueue queue, const VkPresentInfoKHR *info)
{
	struct device *device = dispatch_device(queue);
	VkResult result;

	mover_enter(device->mover, false);
	result = NEXT(device, vkQueuePresentKHR)(queue, info);
	mover_leave(device->mover);
	return lost_note(device, result);
}

/* ---- Looking up ---- */

PFN_vkVoidFunction movable_function(const char *name)
{
	static const struct {
		const char *name;
		PFN_vkVoidFunction function;
	} functions[] = {
#define ENTRY(name, function) {"vk" name, (PFN_vkVoidFunction)(function)}
		ENTRY("BindBufferMemory", bind_buffer),
		ENTRY("BindBufferMemory2", bind_buffer2),
		ENTRY("BindBufferMemory2KHR", bind_buffer2_khr),
		ENTRY("BindImageMemory", bind_image),
		ENTRY("BindImageMemory2", bind_image2),
		ENTRY("BindImageMemory2KHR", bind_image2_khr),
		ENTRY("CreateBuffer", create_buffer),
		ENTRY("DebugMarkerSetObjectNameEXT", set_marker_name),
		ENTRY("DebugMarkerSetObjectTagEXT", set_marker_tag),
		ENTRY("DestroyBuffer", destroy_buffer),
		ENTRY("DeviceWaitIdle", wait_device),
		ENTRY("FlushMappedMemoryRanges", flush_ranges),
		ENTRY("GetDeviceBufferMemoryRequirements", future_buffer_needs),
		ENTRY("GetDeviceBufferMemoryRequirementsKHR", future_buffer_needs_khr),
		ENTRY("GetDeviceMemoryCommitment", get_commitment),
		ENTRY("GetDeviceMemoryOpaqueCaptureAddress", get_capture_address),
		ENTRY("GetDeviceMemoryOpaqueCaptureAddressKHR", get_capture_address_khr),
		ENTRY("GetPrivateData", get_data),
		ENTRY("GetPrivateDataEXT", get_data_ext),
		ENTRY("InvalidateMappedMemoryRanges", invalidate_ranges),
		ENTRY("MapMemory", map_memory),
		ENTRY("MapMemory2", map_memory2),
		ENTRY("MapMemory2KHR", map_memory2_khr),
		ENTRY("QueueBindSparse", bind_sparse),
		ENTRY("QueuePresentKHR", present),
		ENTRY("QueueWaitIdle", wait_queue),
		ENTRY("SetDebugUtilsObjectNameEXT", set_name),
		ENTRY("SetDebugUtilsObjectTagEXT", set_tag),
		ENTRY("SetDeviceMemoryPriorityEXT", set_memory_priority),
		ENTRY("SetPrivateData", set_data),
		ENTRY("SetPrivateDataEXT", set_data_ext),
		ENTRY("UnmapMemory", unmap_memory),
		ENTRY("UnmapMemory2", unmap_memory2),
		ENTRY("UnmapMemory2KHR", unmap_memory2_khr),
#undef ENTRY
	};

	for (unsigned int i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	return NULL;
}
