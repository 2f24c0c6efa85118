/* SPDX-License-Identifier: MIT */
/*
 * udmabuf: see udmabuf.h.
 *
 * The size limit is a module parameter in sysfs, which a container may hide. It is then found by
 * requesting dma-bufs of descriptor -1. The kernel checks the size first (-EINVAL) and the
 * descriptor later (-EBADFD), so no page is touched.
 */
#include "vulkan/udmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

#define LIMIT_PATH "/sys/module/udmabuf/parameters/size_limit_mb"

/* Largest size that is requested; the kernel allocates one pointer per page. */
static const uint64_t asked_max_bytes = 1ull << 30;

/* Return: the limit in MiB; 0 if it cannot be read. */
static uint64_t read_limit_mb(void)
{
	_cleanup_(close_fdp) int fd = open(LIMIT_PATH, O_RDONLY | O_CLOEXEC);
	unsigned long long mb;
	char text[32];
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	/* The module parameter is an int. */
	if (sscanf(text, "%llu", &mb) != 1 || mb > 1u << 31)
		return 0;
	return mb;
}

static uint64_t ask_limit_bytes(int fd)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), bytes;
	int dma_buf = -1, r;

	for (bytes = asked_max_bytes; bytes >= page_bytes; bytes /= 2) {
		r = udmabuf_wrap(fd, -1, 0, bytes, &dma_buf);
		if (r == 0)
			close(dma_buf);
		if (r != -EINVAL)
			return bytes;
	}
	return 0;
}

int udmabuf_open(int *ret_fd, uint64_t *ret_max_bytes)
{
	_cleanup_(close_fdp) int fd = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	uint64_t bytes;

	if (fd < 0) {
		switch (errno) {
		case ENOENT:
		case ENXIO:
		case ENODEV:
			return UDMABUF_E_ABSENT;
		case EACCES:
		case EPERM:
			return UDMABUF_E_DENIED;
		default:
			return error_origin(-errno);
		}
	}
	bytes = read_limit_mb() << 20;
	if (bytes == 0)
		bytes = ask_limit_bytes(fd);
	if (bytes == 0)
		return UDMABUF_E_BROKEN;
	*ret_fd = steal_fd(&fd);
	*ret_max_bytes = bytes;
	return 0;
}

int udmabuf_wrap(int device_fd, int memfd, uint64_t offset, uint64_t bytes, int *ret_fd)
{
	struct udmabuf_create create = {
		.memfd = (uint32_t)memfd,
		.flags = UDMABUF_FLAGS_CLOEXEC,
		.offset = offset,
		.size = bytes,
	};
	int fd = ioctl(device_fd, UDMABUF_CREATE, &create);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}
