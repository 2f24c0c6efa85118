#pragma once
/* SPDX-License-Identifier: MIT */
/* dma-bufs, as far as the kernel shows them without a device */
#include <stdint.h>
#include <sys/types.h>

enum {
	DMA_BUF_E_UNKNOWN = 1, /* no number from the kernel, or no dma-buf */
	DMA_BUF_E_BUSY = 2,    /* a device still reads or writes the memory */
	DMA_BUF_NAME_BYTES = 32,
};

/* A dma-buf, as the kernel describes it. */
struct dma_buf_about {
	char exporter[DMA_BUF_NAME_BYTES]; /* the driver that made it, for example "amdgpu" */
	uint64_t bytes;
	dev_t dev; /* (dev, ino) identifies the memory until the machine is restarted */
	ino_t ino;
};

/*
 * Examine a descriptor that a client sent. Some microseconds. Any thread.
 * Return: 0; DMA_BUF_E_UNKNOWN: no dma-buf, or the kernel does not describe it.
 */
int dma_buf_examine(int fd, struct dma_buf_about *ret);

/*
 * Count the references to the dma-buf @fd, this process's included: every descriptor and every
 * mapping of it, in any process, and every device that imported it through another driver. A device
 * that opened it through its own driver is not counted, as Vulkan does with memory of the same
 * card. The function reads /proc/self/fdinfo: some microseconds. Any thread.
 * Return: 0; DMA_BUF_E_UNKNOWN.
 */
int dma_buf_holders(int fd, uint64_t *ret);

/*
 * Wait, for at most @timeout_ms, until no device reads or writes the memory for work that was
 * submitted before, by any process: work of a process that was killed goes on. Work whose driver
 * keeps it out of the dma-buf's fences is not waited for. Any thread that may block.
 * Return: 0; DMA_BUF_E_BUSY: the time is over; negative errno, at once: the kernel refuses the
 * wait.
 */
int dma_buf_wait(int fd, int timeout_ms);
