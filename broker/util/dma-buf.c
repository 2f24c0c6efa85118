/* SPDX-License-Identifier: MIT */
/* fdinfo of a dma-buf: drivers/dma-buf/dma-buf.c of Linux, dma_buf_show_fdinfo(). */
#include "util/dma-buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"

int dma_buf_holders(int fd, uint64_t *ret)
{
	_cleanup_(close_fdp) int info = -1;
	unsigned long long n;
	char text[1024];
	ssize_t n_bytes;
	char *line, *end;

	snprintf(text, sizeof(text), "/proc/self/fdinfo/%d", fd);
	info = open(text, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return DMA_BUF_E_UNKNOWN;
	n_bytes = read(info, text, sizeof(text) - 1);
	if (n_bytes <= 0)
		return DMA_BUF_E_UNKNOWN;
	text[n_bytes] = '\0';

	line = strstr(text, "\ncount:");
	if (!line)
		return DMA_BUF_E_UNKNOWN;
	line += strlen("\ncount:");
	errno = 0;
	n = strtoull(line, &end, 10);
	if (errno || end == line || *end != '\n' || n == 0)
		return DMA_BUF_E_UNKNOWN;
	*ret = n;
	return 0;
}
