/* SPDX-License-Identifier: MIT */
/*
 * PRIME: drivers/gpu/drm/drm_prime.c, drivers/gpu/drm/amd/amdgpu/amdgpu_dma_buf.c
 *
 * A buffer that returns to the card that exported it is the same buffer, counted once
 * (amdgpu_gem_prime_import(): "dma_buf->ops == &amdgpu_dmabuf_ops"). Any other import becomes a new
 * object. Its only domain is GTT, it counts as GTT once a submission has used it, and the card
 * cannot map it (ttm_bo_vm.c: "Refuse to fault imported pages").
 */
#include "ioctl.h"
#include "dma-buf.h"
#include "memory.h"
#include "sys.h"
#include <errno.h>

/* drm_prime_handle_to_fd_ioctl(), amdgpu_gem_prime_export() */
int sim_ioctl_prime_export(const struct sim_fd *client, struct drm_prime_handle *args)
{
	struct sim_object *object = sim_object_of(client, args->handle);
	int fd;

	if (args->flags & ~(uint32_t)(DRM_CLOEXEC | DRM_RDWR))
		return -EINVAL;
	if (!object)
		return -ENOENT;
	if (object->kind == SIM_OBJECT_USERPTR || object->flags & AMDGPU_GEM_CREATE_VM_ALWAYS_VALID)
		return -EPERM;
	if (object->kind == SIM_OBJECT_IMPORT) {
		/* drm_gem_prime_handle_to_dmabuf() returns the exporter's dma-buf. */
		fd = sim_import_fd(client->card, object);
		if (fd >= 0)
			fd = fcntl(fd, args->flags & DRM_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
		if (fd == -1)
			return -errno;
	} else {
		fd = sim_dma_buf_export(client->card, object, (int)args->flags);
	}
	if (fd < 0)
		return fd;
	args->fd = fd;
	return 0;
}

/* Return this client's import of the same dma-buf, or NULL. */
static struct sim_object *find_import(const struct sim_fd *client,
				      const struct sim_dma_buf *dma_buf)
{
	struct sim_card *card = client->card;

	for (uint32_t i = 0; i < card->n_handles; i++) {
		struct sim_object *object = &card->objects[card->handles[i].object];

		if (card->handles[i].owner == client->slot + 1 &&
		    object->kind == SIM_OBJECT_IMPORT && object->ino == dma_buf->ino &&
		    object->import_dev == dma_buf->dev &&
		    object->import_offset == dma_buf->offset && object->bytes == dma_buf->bytes)
			return object;
	}
	return NULL;
}

/* amdgpu_dma_buf_create_obj() */
static int make_import(const struct sim_fd *client, const struct sim_dma_buf *dma_buf, int fd,
		       struct sim_object **ret)
{
	struct sim_object *object;
	int r;

	r = sim_object_adopt(client->card, SIM_OBJECT_IMPORT, dma_buf->bytes, &object);
	if (r)
		return r;
	object->ino = dma_buf->ino;
	object->import_dev = dma_buf->dev;
	object->import_offset = dma_buf->offset;
	r = sim_import_keep(client->card, object, fd);
	if (r) {
		sim_object_release(client->card, object);
		return r;
	}
	*ret = object;
	return 0;
}

/* drm_prime_fd_to_handle_ioctl(), amdgpu_gem_prime_import() */
int sim_ioctl_prime_import(const struct sim_fd *client, struct drm_prime_handle *args)
{
	struct sim_dma_buf dma_buf;
	struct sim_object *object;
	uint32_t handle;
	int r;

	r = sim_dma_buf_of_fd(args->fd, &dma_buf);
	if (r)
		return r;
	object = dma_buf.card == client->card ? dma_buf.object : find_import(client, &dma_buf);
	/* drm_prime_lookup_buf_handle(): a buffer has one handle, however often it is imported. */
	handle = object ? sim_handle_find(client->card, client->slot, object) : 0;
	if (handle) {
		args->handle = handle;
		return 0;
	}
	if (!object) {
		r = make_import(client, &dma_buf, args->fd, &object);
		if (r)
			return r;
	}
	r = sim_handle_create(client->card, client->slot, object, &handle);
	if (r) {
		sim_object_release(client->card, object);
		return r;
	}
	args->handle = handle;
	return 0;
}
