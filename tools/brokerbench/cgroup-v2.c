/* SPDX-License-Identifier: MIT */
/* Cgroups of the unified hierarchy: found by what is mounted, also beside those of version 1. */
#include "cgroup-v2.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool cgroup_v2_find(char *ret, size_t bytes)
{
	FILE *file = fopen("/proc/self/mounts", "re");
	char line[PATH_MAX + 256], path[PATH_MAX], type[64];
	bool is_found = false;

	while (file && !is_found && fgets(line, sizeof(line), file))
		is_found = sscanf(line, "%*s %4095s %63s", path, type) == 2 &&
			   strcmp(type, "cgroup2") == 0 && strlen(path) < bytes;
	if (file)
		fclose(file);
	if (is_found)
		strcpy(ret, path);
	return is_found;
}

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
