#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * udmabuf: memfds as dma-bufs
 *
 * The kernel's /dev/udmabuf (drivers/dma-buf/udmabuf.c) makes a dma-buf from pages of a memfd that
 * is sealed against shrinking and not against writing. The dma-buf pins the pages as long as it has
 * a holder. The size of one dma-buf is limited: 64 MiB unless the module parameter size_limit_mb is
 * raised.
 */
#include <stdint.h>

enum {
	UDMABUF_E_ABSENT = 1, /* /dev/udmabuf does not exist */
	UDMABUF_E_DENIED = 2, /* no permission to open it */
	UDMABUF_E_BROKEN = 3, /* it does not behave like the kernel's */
};

/*
 * Open the device. *ret_max_bytes: maximum size of one dma-buf, a multiple of the page size.
 * Return: 0 and the descriptor, the caller's; UDMABUF_E_*; negative errno.
 */
int udmabuf_open(int *ret_fd, uint64_t *ret_max_bytes);

/*
 * Make a dma-buf of @bytes at @offset, both multiples of the page size, of @memfd.
 * Return: 0 and the dma-buf, the caller's; the kernel's -errno: -EINVAL if the seals are wrong or
 * @bytes is too large; -ENOMEM; -EMFILE.
 */
int udmabuf_wrap(int device_fd, int memfd, uint64_t offset, uint64_t bytes, int *ret_fd);
