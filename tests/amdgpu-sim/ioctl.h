#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The ioctls, by family
 *
 * Each function takes the client and the caller's argument, runs with the lock held, and returns
 * the kernel's result: 0 or a negative errno.
 */
#include "client.h"
#include "memory.h"
#include <libdrm/drm.h>
#include <libdrm/amdgpu_drm.h>

/*
 * Handle any DRM ioctl on a card's descriptor. Takes the lock.
 * Return: 0 or a negative errno.
 */
int sim_ioctl(const struct sim_fd *client, unsigned long request, void *argument);

int sim_ioctl_info(const struct sim_fd *client, struct drm_amdgpu_info *info);

int sim_ioctl_gem_create(const struct sim_fd *client, union drm_amdgpu_gem_create *args);
int sim_ioctl_gem_close(const struct sim_fd *client, struct drm_gem_close *args);
int sim_ioctl_gem_mmap(const struct sim_fd *client, union drm_amdgpu_gem_mmap *args);
int sim_ioctl_gem_op(const struct sim_fd *client, struct drm_amdgpu_gem_op *args);
int sim_ioctl_gem_metadata(const struct sim_fd *client, struct drm_amdgpu_gem_metadata *args);
int sim_ioctl_gem_userptr(const struct sim_fd *client, struct drm_amdgpu_gem_userptr *args);
int sim_ioctl_gem_wait_idle(const struct sim_fd *client, union drm_amdgpu_gem_wait_idle *args);
int sim_ioctl_gem_va(const struct sim_fd *client, struct drm_amdgpu_gem_va *args);

int sim_ioctl_ctx(const struct sim_fd *client, union drm_amdgpu_ctx *args);
int sim_ioctl_bo_list(const struct sim_fd *client, union drm_amdgpu_bo_list *args);
int sim_ioctl_cs(const struct sim_fd *client, union drm_amdgpu_cs *args);
int sim_ioctl_wait_cs(const struct sim_fd *client, union drm_amdgpu_wait_cs *args);
int sim_ioctl_wait_fences(const struct sim_fd *client, union drm_amdgpu_wait_fences *args);
int sim_ioctl_fence_to_handle(const struct sim_fd *client, union drm_amdgpu_fence_to_handle *args);

/* Handle the DRM core's syncobj ioctls, 0xBF to 0xCD. Waits release the lock while they sleep. */
int sim_ioctl_syncobj(const struct sim_fd *client, unsigned nr, void *args);
/*
 * Check for a submission that the syncobj has a fence up to @point (0: any).
 * Return: 0, -ENOENT, -EINVAL.
 */
int sim_syncobj_check(const struct sim_fd *client, uint32_t handle, uint64_t point);
/*
 * Have a submission wait for a syncobj's fence, or signal the syncobj.
 * Return: 0; -ENOENT; -EINVAL: it has no such fence; -ENOMEM: there are too many.
 */
int sim_syncobj_wait_for(const struct sim_fd *client, uint32_t handle, uint64_t point,
			 struct sim_job *job);
int sim_syncobj_will_signal(const struct sim_fd *client, uint32_t handle, uint64_t point,
			    struct sim_job *job);
int sim_syncobj_create(const struct sim_fd *client, bool is_signalled, uint32_t *ret_handle);
/*
 * Make a descriptor that polls like a signalled sync_file.
 * Return: descriptor or a negative errno.
 */
int sim_sync_file(void);

int sim_ioctl_prime_export(const struct sim_fd *client, struct drm_prime_handle *args);
int sim_ioctl_prime_import(const struct sim_fd *client, struct drm_prime_handle *args);

static inline struct sim_object *sim_object_of(const struct sim_fd *client, uint32_t handle)
{
	return sim_handle_object(client->card, client->slot, handle);
}
