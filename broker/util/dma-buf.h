#pragma once
/* SPDX-License-Identifier: MIT */
/* dma-bufs, as far as the kernel shows them without a device */
#include <stdint.h>

enum {
	DMA_BUF_E_UNKNOWN = 1, /* no number from the kernel, or no dma-buf */
};

/*
 * Count the references to the dma-buf @fd, this process's included: every descriptor and every
 * mapping of it, in any process, and every device that imported it through another driver. A device
 * that opened it through its own driver is not counted, as Vulkan does with memory of the same
 * card. The function reads /proc/self/fdinfo: some microseconds. Any thread.
 * Return: 0; DMA_BUF_E_UNKNOWN.
 */
int dma_buf_holders(int fd, uint64_t *ret);
