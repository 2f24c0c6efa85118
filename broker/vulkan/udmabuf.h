#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * udmabuf: memfds as dma-bufs
 *
 * The kernel's /dev/udmabuf (drivers/dma-buf/udmabuf.c) makes a dma-buf of pages of a memfd that is
 * sealed against shrinking and not against writing. The dma-buf holds the pages, in memory and
 * where they are, for as long as anybody holds it. How much one may have is limited, 64 MiB unless
 * the module's size_limit_mb is raised.
 */
#include <stdint.h>

enum {
	UDMABUF_E_ABSENT = 1, /* there is no /dev/udmabuf */
	UDMABUF_E_DENIED = 2, /* it may not be opened */
	UDMABUF_E_BROKEN = 3, /* it does not behave as the kernel's does */
};

/*
 * Opens the device. *ret_max_bytes: the most for one dma-buf, a multiple of the page size.
 * Return: 0 and the descriptor, the caller's; UDMABUF_E_*; negative errno.
 */
int udmabuf_open(int *ret_fd, uint64_t *ret_max_bytes);

/*
 * Wraps @bytes at @offset, both multiples of the page size, of @memfd.
 * Return: 0 and a dma-buf, the caller's; -errno as the kernel has it: -EINVAL, it is not sealed as
 * it must be or too large; -ENOMEM; -EMFILE.
 */
int udmabuf_wrap(int device_fd, int memfd, uint64_t offset, uint64_t bytes, int *ret_fd);
