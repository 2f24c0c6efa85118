/* SPDX-License-Identifier: MIT */
/*
 * ioctl(), mmap() and lseek()
 *
 * They run for every file of the program. Foreign files are recognized by the request's type, or by
 * one fstat().
 */
#include "preload.h"
#include "dma-buf.h"
#include "ioctl.h"
#include "memory.h"
#include "sys.h"
#include <linux/dma-buf.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* include/uapi/linux/dma-buf.h of Linux 6.0. */
#define DMA_BUF_NR_SYNC             0
#define DMA_BUF_NR_SET_NAME         1
#define DMA_BUF_NR_EXPORT_SYNC_FILE 2
#define DMA_BUF_NR_IMPORT_SYNC_FILE 3

struct dma_buf_sync_file {
	uint32_t flags;
	int32_t fd;
};

/* drivers/dma-buf/dma-buf.c, dma_buf_ioctl(), for dma-bufs of the simulator. */
static bool dma_buf_ioctl(int fd, unsigned long request, void *argument, int *ret)
{
	struct sim_dma_buf dma_buf;
	uint64_t offset, bytes;
	bool is_ours;

	sim_lock();
	is_ours = !sim_dma_buf_of_fd(fd, &dma_buf) &&
		  (dma_buf.card || sim_udmabuf_of_fd(fd, false, &offset, &bytes));
	sim_unlock();
	if (!is_ours)
		return false;
	switch (_IOC_NR(request)) {
	case DMA_BUF_NR_SYNC:
	case DMA_BUF_NR_SET_NAME:
	case DMA_BUF_NR_IMPORT_SYNC_FILE:
		*ret = 0;
		break;
	case DMA_BUF_NR_EXPORT_SYNC_FILE:
		*ret = sim_sync_file();
		if (*ret >= 0) {
			((struct dma_buf_sync_file *)argument)->fd = *ret;
			*ret = 0;
		}
		break;
	default:
		*ret = -ENOTTY;
		break;
	}
	return true;
}

INTERPOSED int ioctl(int fd, unsigned long request, ...)
{
	struct sim_fd client;
	va_list arguments;
	void *argument;
	int r;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);

	switch (_IOC_TYPE(request)) {
	case DRM_IOCTL_BASE:
		if (sim_is_ready() && sim_client_of_fd(fd, &client))
			return sim_result(sim_ioctl(&client, request, argument));
		break;
	case 'u':
		if (sim_is_ready() && sim_is_udmabuf_device(fd))
			return sim_result(sim_udmabuf_ioctl(request, argument));
		break;
	case DMA_BUF_BASE:
		if (sim_is_ready() && dma_buf_ioctl(fd, request, argument, &r))
			return sim_result(r);
		break;
	}
	return sim_result((int)SYS_CALL(SYS_ioctl, fd, request, argument));
}

/*
 * drm_gem.c, drm_gem_mmap(); amdgpu_gem.c, amdgpu_gem_object_mmap().
 * Return: a descriptor to map, at *@offset; or -errno.
 */
static int file_of_mapping(const struct sim_fd *client, size_t n_bytes, off_t *offset)
{
	struct sim_card *card = client->card;
	uint64_t index = (uint64_t)*offset >> SIM_MMAP_SHIFT;
	struct sim_object *object;
	char name[64];

	*offset &= (1ll << SIM_MMAP_SHIFT) - 1;
	if (!card->is_plugged || card->clients[client->slot].generation != card->generation)
		return -ENODEV;
	if (!index || index > card->n_objects)
		return -EINVAL;
	object = &card->objects[index - 1];
	if (object->kind == SIM_OBJECT_NONE || (uint64_t)*offset > object->bytes ||
	    n_bytes > object->bytes - (uint64_t)*offset)
		return -EINVAL;
	if (!sim_handle_find(card, client->slot, object))
		return -EACCES;
	if (object->kind != SIM_OBJECT_MEMORY) {
		/* Map an empty file: touching it raises SIGBUS, as in the kernel. */
		sim_card_file_name(card, name);
		return sim_open_file(name, O_RDWR);
	}
	sim_object_file_name(card, object->id, name);
	return sim_open_file(name, O_RDWR);
}

static void *map(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset)
{
	uint64_t part_offset, part_bytes;
	struct sim_fd client;
	void *result;
	int file;

	if (fd < 0 || flags & MAP_ANONYMOUS || !sim_is_ready())
		goto plain;
	if (sim_client_of_fd(fd, &client)) {
		/* ttm_bo_mmap_obj(): "Enforce no COW". */
		if ((flags & MAP_TYPE) == MAP_PRIVATE)
			return (void *)-EINVAL;
		sim_lock();
		file = file_of_mapping(&client, n_bytes, &offset);
		sim_unlock();
		if (file < 0)
			return (void *)(intptr_t)file;
		result = sys_mmap(at, n_bytes, access, flags, file, offset);
		close(file);
		return result;
	}
	if (sim_udmabuf_of_fd(fd, true, &part_offset, &part_bytes)) {
		/* dma_buf_mmap_internal(): the mapping must be within the buffer. */
		if ((uint64_t)offset > part_bytes ||
		    n_bytes > ((part_bytes - (uint64_t)offset + SIM_PAGE_BYTES - 1) &
			       ~(uint64_t)(SIM_PAGE_BYTES - 1)))
			return (void *)-EINVAL;
		offset += (off_t)part_offset;
	}
plain:
	return sys_mmap(at, n_bytes, access, flags, fd, offset);
}

static void *map_result(void *result)
{
	if ((intptr_t)result >= 0 || (intptr_t)result < -SIM_PATH_MAX)
		return result;
	errno = (int)-(intptr_t)result;
	return MAP_FAILED;
}

INTERPOSED void *mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset)
{
	return map_result(map(at, n_bytes, access, flags, fd, offset));
}

INTERPOSED void *mmap64(void *at, size_t n_bytes, int access, int flags, int fd, off64_t offset)
{
	return map_result(map(at, n_bytes, access, flags, fd, offset));
}

/* dma_buf_llseek(): SEEK_END is the end of the udmabuf, not of its memfd. */
static off_t seek(int fd, off_t offset, int whence)
{
	uint64_t part_offset, part_bytes;

	if (whence == SEEK_END && !offset && sim_is_ready() &&
	    sim_udmabuf_of_fd(fd, true, &part_offset, &part_bytes))
		return (off_t)part_bytes;
	return sys_lseek(fd, offset, whence);
}

INTERPOSED off_t lseek(int fd, off_t offset, int whence)
{
	off_t result = seek(fd, offset, whence);

	return result < 0 ? sim_result((int)result) : result;
}

INTERPOSED off64_t lseek64(int fd, off64_t offset, int whence)
{
	off_t result = seek(fd, offset, whence);

	return result < 0 ? sim_result((int)result) : result;
}
