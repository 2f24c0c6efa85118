/* SPDX-License-Identifier: MIT */
/*
 * Writing array files
 *
 * Readers never see a partial array: a file is written under a name of its own in the same folder
 * and renamed. An existing object that is no regular file (a pipe, /dev/stdout) is written
 * directly.
 */
#include "arrays/write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"

int array_refuse(char why[ARRAY_WHY_BYTES], int error, const char *name, const char *format, ...)
{
	int n = snprintf(why, ARRAY_WHY_BYTES, "%.300s ", name);
	va_list args;

	va_start(args, format);
	vsnprintf(why + n, (size_t)(ARRAY_WHY_BYTES - n), format, args);
	va_end(args);
	return error;
}

static int write_all(int fd, const char *data, size_t n_bytes)
{
	ssize_t n;

	while (n_bytes > 0) {
		n = write(fd, data, n_bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		n_bytes -= (size_t)n;
	}
	return 0;
}

static int write_both(int fd, const void *header, size_t header_bytes, const void *data,
		      size_t data_bytes)
{
	int r = write_all(fd, header, header_bytes);

	return r ? r : write_all(fd, data, data_bytes);
}

/* Write under another name in the same folder, with the permissions of a new file. */
static int write_beside(const char *path, const void *header, size_t header_bytes, const void *data,
			size_t data_bytes)
{
	_cleanup_(close_fdp) int fd = -1;
	char beside[PATH_MAX];
	mode_t mask;
	int r;

	if ((size_t)snprintf(beside, sizeof(beside), "%s.XXXXXX", path) >= sizeof(beside))
		return -ENAMETOOLONG;
	fd = mkostemp(beside, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	mask = umask(0);
	umask(mask);
	r = write_both(fd, header, header_bytes, data, data_bytes);
	if (r == 0 && (fchmod(fd, 0666 & ~mask) < 0 || rename(beside, path) < 0))
		r = -errno;
	if (r)
		unlink(beside);
	return r;
}

int array_write_file(const char *path, const void *header, size_t header_bytes, const void *data,
		     size_t data_bytes, char why[ARRAY_WHY_BYTES])
{
	_cleanup_(close_fdp) int fd = -1;
	struct stat status;
	int r;

	if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
		fd = open(path, O_WRONLY | O_CLOEXEC);
		r = fd < 0 ? -errno : write_both(fd, header, header_bytes, data, data_bytes);
	} else {
		r = write_beside(path, header, header_bytes, data, data_bytes);
	}
	return r ? array_refuse(why, r, path, "cannot be written: %s", strerror(-r)) : 0;
}
