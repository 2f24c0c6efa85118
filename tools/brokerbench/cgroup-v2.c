/* SPDX-License-Identifier: MIT */
/* Cgroups of the unified hierarchy: see cgroup-v2.h. */
#include "cgroup-v2.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

bool cgroup_v2_move(const char *path, pid_t pid)
{
	char procs[PATH_MAX];
	bool is_moved;
	int fd;

	if ((size_t)snprintf(procs, sizeof(procs), "%s/cgroup.procs", path) >= sizeof(procs))
		return false;
	fd = open(procs, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	is_moved = dprintf(fd, "%d", (int)pid) > 0;
	close(fd);
	return is_moved;
}
