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

#include "util/cleanup.h"
#include "util/proc.h"

bool cgroup_find_root(char *ret, size_t bytes)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/mounts", "re");
	char line[2 * PATH_MAX];
	bool is_found = false;

	/* Read line by line: a machine with many containers has megabytes of mounts. */
	while (file && !is_found && fgets(line, sizeof(line), file))
		is_found = proc_parse_mounts(line, strlen(line), NULL, ret, bytes);
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
