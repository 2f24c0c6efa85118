#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * dma-bufs: exported buffers, /dev/udmabuf, and imports
 *
 * The descriptor of an exported buffer refers to the buffer's own file, that of a udmabuf to the
 * memfd itself; each is opened anew. So mapping, size and inode work without the simulator, even in
 * a process that is not over it. A lock on the open file description marks the descriptor as a
 * dma-buf.
 */
#include "state.h"

/* The dma-buf that a descriptor refers to. */
struct sim_dma_buf {
	struct sim_card *card; /* owner of the object; NULL: a udmabuf, or a real dma-buf */
	struct sim_object *object;
	uint64_t dev;
	uint64_t ino;
	uint64_t offset; /* offset of a udmabuf in its memfd */
	uint64_t bytes;
};

/*
 * Identify the dma-buf of @fd. Lock held.
 * Return: 0, -EBADF, or -EINVAL if @fd is no dma-buf.
 */
int sim_dma_buf_of_fd(int fd, struct sim_dma_buf *ret);

/*
 * Return true if @fd is a udmabuf of the simulator. This costs one or two system calls: call it for
 * descriptors of unnamed files only. With @parts_only it returns false at once unless a udmabuf was
 * ever made at a nonzero offset of its memfd.
 */
bool sim_udmabuf_of_fd(int fd, bool parts_only, uint64_t *ret_offset, uint64_t *ret_bytes);

/*
 * Open /dev/udmabuf.
 * Return: descriptor, -ENOENT if udmabuf is switched off, or another negative errno.
 */
int sim_udmabuf_open(int flags);
/*
 * Handle an ioctl on /dev/udmabuf.
 * Return: the kernel's result; -ENOTTY for a foreign request.
 */
int sim_udmabuf_ioctl(unsigned long request, void *argument);
bool sim_is_udmabuf_device(int fd);

/*
 * Open a marked descriptor of an object. Lock held.
 * Return: descriptor or a negative errno.
 */
int sim_dma_buf_export(struct sim_card *card, struct sim_object *object, int flags);

/*
 * Keep a descriptor in this process so that an imported object lives, as the kernel would keep a
 * reference. Lock held.
 */
int sim_import_keep(const struct sim_card *card, const struct sim_object *object, int fd);
int sim_import_fd(const struct sim_card *card, const struct sim_object *object);
void sim_import_purge(void);
