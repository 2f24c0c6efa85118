/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: a cgroup for the program
 *
 * Of its own it can be told from others, frozen, or limited. Where systemd runs, cgroups are
 * systemd's but for those that it has given away (Delegate=yes), which it marks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "broker/util/cgroup.h"
#include "brokerbench/cgroup-v2.h"
#include "exec.h"

/* That of this process, in the unified hierarchy. */
static bool own_cgroup(char *ret, size_t bytes)
{
	char line[EXEC_PATH_BYTES], mount[EXEC_PATH_BYTES / 2];
	FILE *file = fopen("/proc/self/cgroup", "re");
	bool is_found = false;

	while (file && !is_found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::/", 4) != 0 || !cgroup_find_root(mount, sizeof(mount)))
			continue;
		is_found = (size_t)snprintf(ret, bytes, "%s%s", mount, line[4] ? line + 3 : "") <
			   bytes;
	}
	if (file)
		fclose(file);
	return is_found;
}

static bool is_given_away(const char *path)
{
	char value[2];

	if (access("/run/systemd/system", F_OK) != 0)
		return true;
	return getxattr(path, "user.delegate", value, sizeof(value)) > 0 ||
	       getxattr(path, "trusted.delegate", value, sizeof(value)) > 0;
}

bool exec_cgroup_make(struct exec_cgroup *ret, char ret_text[EXEC_TEXT_BYTES])
{
	ret->path[0] = '\0';
	if (!own_cgroup(ret->parent, sizeof(ret->parent) - 64)) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "there are no cgroups of version 2");
		return false;
	}
	if (!is_given_away(ret->parent)) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "%.300s is systemd's (without Delegate=yes)",
			 ret->parent);
		return false;
	}
	snprintf(ret->path, sizeof(ret->path), "%.4000s/ringbroker-exec-%d", ret->parent,
		 (int)getpid());
	/* One that was left by a process of our number. */
	rmdir(ret->path);
	if (mkdir(ret->path, 0755)) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "%.300s: %s", ret->path, strerror(errno));
		ret->path[0] = '\0';
		return false;
	}
	return true;
}

bool exec_cgroup_enter(const struct exec_cgroup *cgroup)
{
	return cgroup_v2_move(cgroup->path, getpid());
}

bool exec_cgroup_leave(const struct exec_cgroup *cgroup)
{
	return cgroup_v2_move(cgroup->parent, getpid());
}

void exec_cgroup_remove(const struct exec_cgroup *cgroup)
{
	if (cgroup->path[0])
		rmdir(cgroup->path);
}
