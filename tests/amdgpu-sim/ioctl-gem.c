/* SPDX-License-Identifier: MIT */
/*
 * Buffer objects: drivers/gpu/drm/amd/amdgpu/amdgpu_gem.c, and drm_gem.c of the DRM core.
 */
#include "engine.h"
#include "ioctl.h"
#include "dma-buf.h"
#include "memory.h"
#include "sys.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KNOWN_CREATE_FLAGS                                                         \
	(AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_NO_CPU_ACCESS | \
	 AMDGPU_GEM_CREATE_CPU_GTT_USWC | AMDGPU_GEM_CREATE_VRAM_CLEARED |         \
	 AMDGPU_GEM_CREATE_VM_ALWAYS_VALID | AMDGPU_GEM_CREATE_EXPLICIT_SYNC |     \
	 AMDGPU_GEM_CREATE_ENCRYPTED | AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS |         \
	 AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE | AMDGPU_GEM_CREATE_PREEMPTIBLE)
/* Flags of newer kernels: uncached and coherent. */
#define NEWER_CREATE_FLAGS ((1ull << 12) | (1ull << 13) | (1ull << 14) | (1ull << 15))

/* amdgpu_gem_create_ioctl() */
int sim_ioctl_gem_create(const struct sim_fd *client, union drm_amdgpu_gem_create *args)
{
	struct drm_amdgpu_gem_create_in in = args->in;
	struct sim_object *object;
	uint32_t handle;
	int r;

	if (in.domain_flags & ~(uint64_t)(KNOWN_CREATE_FLAGS | NEWER_CREATE_FLAGS))
		return -EINVAL;
	if (in.domains & ~(uint64_t)AMDGPU_GEM_DOMAIN_MASK)
		return -EINVAL;
	/* drm_gem_private_object_init() and ttm reject sizes of no page. */
	if (!in.bo_size || in.bo_size > UINT64_MAX - SIM_PAGE_BYTES)
		return in.bo_size ? -ENOMEM : -EINVAL;

	sim_client_reap(client->card);
	r = sim_object_create(client->card, in.bo_size, in.alignment, in.domains, in.domain_flags,
			      &object);
	if (r)
		return r;
	r = sim_handle_create(client->card, client->slot, object, &handle);
	if (r) {
		sim_object_release(client->card, object);
		return r;
	}
	memset(args, 0, sizeof(*args));
	args->out.handle = handle;
	return 0;
}

/* drm_gem.c, drm_gem_close_ioctl() */
int sim_ioctl_gem_close(const struct sim_fd *client, struct drm_gem_close *args)
{
	struct sim_object *object = sim_object_of(client, args->handle);
	bool is_import = object && object->kind == SIM_OBJECT_IMPORT;
	int r;

	r = sim_handle_close(client->card, client->slot, args->handle);
	if (is_import)
		sim_import_purge();
	return r;
}

/* amdgpu_mode_dumb_mmap() */
int sim_ioctl_gem_mmap(const struct sim_fd *client, union drm_amdgpu_gem_mmap *args)
{
	struct sim_object *object = sim_object_of(client, args->in.handle);

	if (!object)
		return -ENOENT;
	if (object->kind == SIM_OBJECT_USERPTR || object->flags & AMDGPU_GEM_CREATE_NO_CPU_ACCESS)
		return -EPERM;
	memset(args, 0, sizeof(*args));
	args->out.addr_ptr = (uint64_t)(object - client->card->objects + 1) << SIM_MMAP_SHIFT;
	return 0;
}

/* amdgpu_gem_op_ioctl() */
int sim_ioctl_gem_op(const struct sim_fd *client, struct drm_amdgpu_gem_op *args)
{
	struct sim_object *object = sim_object_of(client, args->handle);
	struct drm_amdgpu_gem_create_in info;

	if (!object)
		return -ENOENT;
	switch (args->op) {
	case AMDGPU_GEM_OP_GET_GEM_CREATE_INFO:
		info = (struct drm_amdgpu_gem_create_in){
			.bo_size = object->bytes,
			.alignment = object->alignment,
			.domains = object->preferred,
			.domain_flags = object->flags,
		};
		memcpy((void *)(uintptr_t)args->value, &info, sizeof(info));
		return 0;
	case AMDGPU_GEM_OP_SET_PLACEMENT:
		if (object->kind == SIM_OBJECT_USERPTR)
			return -EPERM;
		if (object->kind == SIM_OBJECT_IMPORT && args->value & AMDGPU_GEM_DOMAIN_VRAM)
			return -EINVAL;
		object->preferred = args->value & (AMDGPU_GEM_DOMAIN_VRAM | AMDGPU_GEM_DOMAIN_GTT |
						   AMDGPU_GEM_DOMAIN_CPU);
		return 0;
	default:
		return -EINVAL;
	}
}

/* amdgpu_gem_metadata_ioctl() */
int sim_ioctl_gem_metadata(const struct sim_fd *client, struct drm_amdgpu_gem_metadata *args)
{
	struct sim_object *object = sim_object_of(client, args->handle);
	struct sim_metadata *metadata;

	if (!object)
		return -ENOENT;
	metadata = &object->metadata;
	switch (args->op) {
	case AMDGPU_GEM_METADATA_OP_GET_METADATA:
		args->data.flags = metadata->flags;
		args->data.tiling_info = metadata->tiling;
		args->data.data_size_bytes = metadata->n_bytes;
		memcpy(args->data.data, metadata->data, metadata->n_bytes);
		return 0;
	case AMDGPU_GEM_METADATA_OP_SET_METADATA:
		if (args->data.data_size_bytes > sizeof(metadata->data))
			return -EINVAL;
		metadata->flags = args->data.flags;
		metadata->tiling = args->data.tiling_info;
		metadata->n_bytes = args->data.data_size_bytes;
		memcpy(metadata->data, args->data.data, metadata->n_bytes);
		return 0;
	default:
		return -EINVAL;
	}
}

/*
 * Find out whether a file backs any part of [@at, @at + @n).
 * Return: 1 or 0; -EFAULT if the range is not fully mapped.
 */
static int is_file_backed(uint64_t at, uint64_t n)
{
	unsigned long long begin, end, inode;
	uint64_t reached = at;
	char line[512];
	FILE *maps;
	int fd;

	fd = sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	maps = fd < 0 ? NULL : fdopen(fd, "r");
	if (!maps)
		return -EFAULT;
	while (reached < at + n && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx %*s %*s %*s %llu", &begin, &end, &inode) != 3 ||
		    reached < begin || reached >= end)
			continue;
		if (inode) {
			fclose(maps);
			return 1;
		}
		reached = end;
	}
	fclose(maps);
	return reached < at + n ? -EFAULT : 0;
}

/*
 * amdgpu_gem_userptr_ioctl(). AMDGPU_GEM_USERPTR_ANONONLY, which RADV sets, rejects pages of a
 * file, shared memory included (amdgpu_ttm.c, amdgpu_ttm_tt_get_user_pages(): "if ((gtt->userflags
 * & AMDGPU_GEM_USERPTR_ANONONLY) && vma->vm_file) r = -EPERM").
 */
int sim_ioctl_gem_userptr(const struct sim_fd *client, struct drm_amdgpu_gem_userptr *args)
{
	struct sim_object *object;
	uint32_t handle;
	int r;

	if ((args->addr | args->size) & (SIM_PAGE_BYTES - 1) || !args->size)
		return -EINVAL;
	if (args->flags & ~(uint32_t)(AMDGPU_GEM_USERPTR_READONLY | AMDGPU_GEM_USERPTR_ANONONLY |
				      AMDGPU_GEM_USERPTR_VALIDATE | AMDGPU_GEM_USERPTR_REGISTER))
		return -EINVAL;
	if (!(args->flags & AMDGPU_GEM_USERPTR_READONLY) &&
	    !(args->flags & AMDGPU_GEM_USERPTR_REGISTER))
		return -EACCES;

	if (args->flags & AMDGPU_GEM_USERPTR_VALIDATE) {
		r = is_file_backed(args->addr, args->size);
		if (r < 0)
			return r;
		if (r && args->flags & AMDGPU_GEM_USERPTR_ANONONLY)
			return -EPERM;
	}
	r = sim_object_adopt(client->card, SIM_OBJECT_USERPTR, args->size, &object);
	if (r)
		return r;
	r = sim_handle_create(client->card, client->slot, object, &handle);
	if (r) {
		sim_object_release(client->card, object);
		return r;
	}
	args->handle = handle;
	return 0;
}

/*
 * amdgpu_gem_wait_idle_ioctl(). A buffer is busy until the submission that listed it last is done;
 * a list by its number counts with its first buffers.
 */
int sim_ioctl_gem_wait_idle(const struct sim_fd *client, union drm_amdgpu_gem_wait_idle *args)
{
	const int64_t timeout_ns = (int64_t)args->in.timeout;
	const uint32_t handle = args->in.handle;
	const struct sim_object *object;
	int r = 0;

	/* Another thread may close the handle while this one sleeps. */
	while ((object = sim_object_of(client, handle)) && !r &&
	       !sim_job_is_done(client->card, object->job))
		r = sim_engine_wait(client, timeout_ns < 0 ? INT64_MAX : timeout_ns);
	if (r && r != -ETIME)
		return r;
	if (!object)
		return -ENOENT;
	memset(args, 0, sizeof(*args));
	args->out.status = r == -ETIME;
	return 0;
}

static void note_mapping(struct sim_handle *handle, const struct drm_amdgpu_gem_va *args)
{
	const bool is_noted = handle->map_bytes > 0 && handle->map_address == args->va_address;

	if (args->operation != AMDGPU_VA_OP_UNMAP) {
		handle->map_address = args->va_address;
		handle->map_offset = args->offset_in_bo;
		handle->map_bytes = args->map_size;
	} else if (is_noted) {
		handle->map_bytes = 0;
	}
}

/* amdgpu_gem_va_ioctl(). Of page tables one mapping of each handle is kept, for sim_ib_groups(). */
int sim_ioctl_gem_va(const struct sim_fd *client, struct drm_amdgpu_gem_va *args)
{
	uint64_t mask = SIM_PAGE_BYTES - 1;

	switch (args->operation) {
	case AMDGPU_VA_OP_MAP:
	case AMDGPU_VA_OP_UNMAP:
	case AMDGPU_VA_OP_CLEAR:
	case AMDGPU_VA_OP_REPLACE:
		break;
	default:
		return -EINVAL;
	}
	if ((args->va_address | args->offset_in_bo | args->map_size) & mask || !args->map_size)
		return -EINVAL;
	if (args->operation != AMDGPU_VA_OP_CLEAR && !(args->flags & AMDGPU_VM_PAGE_PRT)) {
		struct sim_object *object = sim_object_of(client, args->handle);

		if (!object)
			return -ENOENT;
		/* amdgpu_vm.c, amdgpu_vm_bo_map(): "Make sure object fit at this offset". */
		if (args->operation != AMDGPU_VA_OP_UNMAP &&
		    (args->offset_in_bo > object->bytes ||
		     args->map_size > object->bytes - args->offset_in_bo))
			return -EINVAL;
		note_mapping(&client->card->handles[args->handle - 1], args);
	}
	return 0;
}
