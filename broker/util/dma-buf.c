/* SPDX-License-Identifier: MIT */
/* fdinfo of a dma-buf: drivers/dma-buf/dma-buf.c of Linux, dma_buf_show_fdinfo(). */
#include "util/dma-buf.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

#define DMA_BUF_FS_MAGIC 0x444d4142 /* DMA_BUF_MAGIC of <linux/magic.h>, since Linux 5.3 */

enum { INFO_BYTES = 1024 };

/* Read the fdinfo. Return: 0; DMA_BUF_E_UNKNOWN. */
static int read_info(int fd, char text[INFO_BYTES])
{
	_cleanup_(close_fdp) int info = -1;
	char path[64];
	ssize_t n_bytes;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return DMA_BUF_E_UNKNOWN;
	n_bytes = read(info, text, INFO_BYTES - 1);
	if (n_bytes <= 0)
		return DMA_BUF_E_UNKNOWN;
	text[n_bytes] = '\0';
	return 0;
}

/*
 * Find the value of a line. Clients can choose the name of a dma-buf, with any characters, but its
 * line is the last one.
 * Return: NULL: there is no such line.
 */
static const char *find_value(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	return line ? line + strlen(key) : NULL;
}

int dma_buf_holders(int fd, uint64_t *ret)
{
	char text[INFO_BYTES];
	unsigned long long n;
	const char *value;
	char *end;

	if (read_info(fd, text))
		return DMA_BUF_E_UNKNOWN;
	value = find_value(text, "\ncount:");
	if (!value)
		return DMA_BUF_E_UNKNOWN;
	errno = 0;
	n = strtoull(value, &end, 10);
	if (errno || end == value || *end != '\n' || n == 0)
		return DMA_BUF_E_UNKNOWN;
	*ret = n;
	return 0;
}

/*
 * Return true if the kernel names the file as a dma-buf. Others can have that name, too. But unlike
 * fdinfo and fstatfs(), reading the name takes no lock of a driver and asks no file system.
 */
static bool has_name(int fd)
{
	static const char prefix[] = "/dmabuf:";
	char path[64], name[sizeof(prefix) - 1];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, name, sizeof(name)) == (ssize_t)sizeof(name) &&
	       memcmp(name, prefix, sizeof(name)) == 0;
}

int dma_buf_examine(int fd, struct dma_buf_about *ret)
{
	char text[INFO_BYTES];
	struct stat status;
	const char *value;
	struct statfs fs;
	off_t bytes;
	size_t n;

	/* Only dma-bufs have this line. File systems of other files could make fstatfs() wait. */
	if (!has_name(fd) || read_info(fd, text))
		return DMA_BUF_E_UNKNOWN;
	value = find_value(text, "\nexp_name:");
	if (!value || fstatfs(fd, &fs) < 0 || fs.f_type != DMA_BUF_FS_MAGIC ||
	    fstat(fd, &status) < 0)
		return DMA_BUF_E_UNKNOWN;
	bytes = lseek(fd, 0, SEEK_END);
	if (bytes <= 0)
		return DMA_BUF_E_UNKNOWN;
	value += strspn(value, "\t ");
	n = strcspn(value, "\n");
	if (n == 0 || n >= sizeof(ret->exporter))
		return DMA_BUF_E_UNKNOWN;
	*ret = (struct dma_buf_about){
		.bytes = (uint64_t)bytes,
		.dev = status.st_dev,
		.ino = status.st_ino,
	};
	memcpy(ret->exporter, value, n);
	return 0;
}

int dma_buf_wait(int fd, int timeout_ms)
{
	const uint64_t end_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000;
	struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
	int left_ms = timeout_ms, r;

	/* Ready for writing: readers and writers have finished. */
	while ((r = poll(&poll_fd, 1, left_ms)) < 0 && errno == EINTR) {
		const uint64_t now_ns = clock_now_ns();

		left_ms = now_ns < end_ns ? (int)((end_ns - now_ns) / 1000000) : 0;
	}
	if (r < 0)
		return error_origin(-errno);
	if (r == 0)
		return DMA_BUF_E_BUSY;
	return poll_fd.revents & POLLOUT ? 0 : error_origin(-EIO);
}
