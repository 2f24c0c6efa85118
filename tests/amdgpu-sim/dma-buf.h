#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * dma-bufs: exported buffers, /dev/udmabuf, and what has been imported
 *
 * An exported buffer's descriptor is one of its own file, a udmabuf's one of the memfd itself, each
 * opened anew: mapping it, its size and its inode need no help, not even in a process that knows
 * nothing of the simulator. What marks it is a lock on its open file description.
 */
#include "state.h"

/* What a descriptor is a dma-buf of. */
struct sim_dma_buf {
	struct sim_card *card; /* whose object it is; NULL: a udmabuf, or a real dma-buf */
	struct sim_object *object;
	uint64_t dev;
	uint64_t ino;
	uint64_t offset; /* of a udmabuf, in its memfd */
	uint64_t bytes;
};

/* Return: 0, -EBADF, or -EINVAL if @fd is no dma-buf. Lock held. */
int sim_dma_buf_of_fd(int fd, struct sim_dma_buf *ret);

/*
 * Is @fd a udmabuf of the simulator's? Costs a system call or two: for descriptors of unnamed files
 * only, and false at once if none was ever made that begins within its memfd and @parts_only.
 */
bool sim_udmabuf_of_fd(int fd, bool parts_only, uint64_t *ret_offset, uint64_t *ret_bytes);

/* Opens /dev/udmabuf. Return: descriptor, -ENOENT if it is switched off, or -errno. */
int sim_udmabuf_open(int flags);
/* An ioctl on that. Return: as the kernel's, -ENOTTY if it is none of its own. */
int sim_udmabuf_ioctl(unsigned long request, void *argument);
bool sim_is_udmabuf_device(int fd);

/* Opens a descriptor of an object, marked. Lock held. Return: descriptor or -errno. */
int sim_dma_buf_export(struct sim_card *card, struct sim_object *object, int flags);

/*
 * Descriptors that this process keeps so that what it imported lives: the kernel would keep a
 * reference. Lock held.
 */
int sim_import_keep(const struct sim_card *card, const struct sim_object *object, int fd);
int sim_import_fd(const struct sim_card *card, const struct sim_object *object);
void sim_import_purge(void);
