/* SPDX-License-Identifier: MIT */
/* Helpers for every file of the library: sentences, the clock, descriptors, memfds. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libclient/private.h"

int client_error(struct rbk_error *error, int r, const char *format, ...)
{
	va_list args;

	if (!error)
		return r;
	errno = -r;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return r;
}

uint64_t client_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t client_deadline_ns(uint64_t begin_ns, uint64_t timeout_ns)
{
	return timeout_ns > CLIENT_NEVER - begin_ns ? CLIENT_NEVER : begin_ns + timeout_ns;
}

void client_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int client_memfd_new(const char *name, size_t bytes, int *ret_fd)
{
	client_cleanup(client_close) int fd = -1;
	int r;

	/* The kernel would try to allocate the pages, and the OOM killer would kill a process. */
	if (bytes / client_page_bytes() > (size_t)sysconf(_SC_PHYS_PAGES))
		return -ENOMEM;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes))
		return -errno;
	/* Allocate every page: the process that first touches a missing page would pay for it. */
	do
		r = fallocate(fd, 0, 0, (off_t)bytes);
	while (r && errno == EINTR);
	if (r)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

size_t client_page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}
