#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * dma-bufs, as far as the kernel shows them without a device
 */
#include <stdint.h>

enum {
	DMA_BUF_E_UNKNOWN = 1, /* the kernel does not say, or it is no dma-buf */
};

/*
 * How many hold the dma-buf @fd, ourselves included: every descriptor and every mapping of it, in
 * any process, and every device that has attached to it as a stranger. Not counted is a device
 * that has opened it by its own driver, as Vulkan does with memory of the same card. Reads
 * /proc/self/fdinfo: some microseconds. Any thread.
 * Return: 0; DMA_BUF_E_UNKNOWN.
 */
int dma_buf_holders(int fd, uint64_t *ret);
