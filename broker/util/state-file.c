/* SPDX-License-Identifier: MIT */
/* State files: a new file is written under a temporary name in the same folder, and renamed. */
#include "util/state-file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

static const char *refuse_file(int fd, size_t max)
{
	struct stat status;

	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return "it is not a regular file";
	if (status.st_uid != geteuid())
		return "it belongs to another user";
	if (status.st_mode & (S_IWGRP | S_IWOTH))
		return "other users may write to it";
	if ((uint64_t)status.st_size > max)
		return "it is too large";
	return NULL;
}

static int refuse(const char *why, const char **ret_why)
{
	*ret_why = why;
	return STATE_FILE_E_REFUSED;
}

int state_file_read(const char *folder, const char *name, size_t max, char **ret, size_t *ret_n,
		    const char **ret_why)
{
	_cleanup_(close_fdp) int directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(close_fdp) int fd = -1;
	_cleanup_(freep) char *text = NULL;
	size_t used = 0;
	const char *why;
	ssize_t n = 0;

	if (directory < 0)
		return refuse("the folder cannot be opened", ret_why);
	fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return STATE_FILE_E_ABSENT;
	if (fd < 0)
		return refuse(errno == ELOOP ? "it is a symbolic link" : "it cannot be opened",
			      ret_why);
	why = refuse_file(fd, max);
	if (why)
		return refuse(why, ret_why);
	text = malloc(max + 1);
	if (!text)
		return error_origin(-ENOMEM);
	while (used < max && (n = read(fd, text + used, max - used)) > 0)
		used += (size_t)n;
	if (n < 0)
		return refuse("it cannot be read", ret_why);
	text[used] = '\0';
	*ret = steal_ptr(text);
	*ret_n = used;
	return 0;
}

static int write_all(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t written = write(fd, bytes, n);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return error_origin(-errno);
		bytes += written;
		n -= (size_t)written;
	}
	return 0;
}

int state_file_write(const char *folder, const char *name, const char *bytes, size_t n)
{
	_cleanup_(close_fdp) int directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(close_fdp) int fd = -1;
	char beside[NAME_MAX + 1];
	int r;

	if (directory < 0)
		return error_origin(-errno);
	if ((size_t)snprintf(beside, sizeof(beside), ".%s.%d", name, (int)gettid()) >=
	    sizeof(beside))
		return error_origin(-ENAMETOOLONG);
	/* A file left by a thread that had the same number; no other thread writes this one. */
	unlinkat(directory, beside, 0);
	fd = openat(directory, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_origin(-errno);
	r = write_all(fd, bytes, n);
	if (r == 0 && renameat(directory, beside, directory, name) < 0)
		r = error_origin(-errno);
	if (r)
		unlinkat(directory, beside, 0);
	return r ? error_fold(r) : 0;
}
