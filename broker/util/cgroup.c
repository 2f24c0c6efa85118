/* SPDX-License-Identifier: MIT */
/*
 * Cgroups: see cgroup.h.
 *
 * A foreign descriptor's file system is not queried, since its server may never answer. The device
 * number that the kernel has for it is compared with the hierarchy's own instead.
 */
#include "util/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool cgroup_find_root(char *ret, size_t bytes)
{
	char line[2 * PATH_MAX], path[PATH_MAX], type[64];
	FILE *file = fopen("/proc/self/mounts", "re");
	bool is_found = false;

	while (file && !is_found && fgets(line, sizeof(line), file))
		/* A backslash is part of an escape; cgroups are not mounted at such paths. */
		is_found = sscanf(line, "%*s %4095s %63s", path, type) == 2 &&
			   strcmp(type, "cgroup2") == 0 && !strchr(path, '\\') &&
			   strlen(path) < bytes;
	if (file)
		fclose(file);
	if (is_found)
		strcpy(ret, path);
	return is_found;
}

static bool ask(int fd, const char *path, struct statx *ret)
{
	const unsigned int wanted = STATX_TYPE | STATX_INO | STATX_UID;

	return statx(fd, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, wanted, ret) ==
		       0 &&
	       (ret->stx_mask & wanted) == wanted;
}

bool cgroup_of_fd(int fd, struct cgroup_about *ret)
{
	struct statx root, given;
	char path[PATH_MAX];

	if (!cgroup_find_root(path, sizeof(path)) || !ask(AT_FDCWD, path, &root) ||
	    !ask(fd, "", &given) || given.stx_dev_major != root.stx_dev_major ||
	    given.stx_dev_minor != root.stx_dev_minor || !S_ISDIR(given.stx_mode) ||
	    given.stx_ino == 0)
		return false;
	*ret = (struct cgroup_about){.id = given.stx_ino, .owner = given.stx_uid};
	return true;
}
