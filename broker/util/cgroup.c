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

/* @controller: as for proc_parse_mounts() */
static bool find_root(const char *controller, char *ret, size_t bytes)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/mounts", "re");
	char line[2 * PATH_MAX];
	bool is_found = false;

	/* Read line by line: a machine with many containers has megabytes of mounts. */
	while (file && !is_found && fgets(line, sizeof(line), file))
		is_found = proc_parse_mounts(line, strlen(line), controller, ret, bytes);
	return is_found;
}

bool cgroup_find_root(char *ret, size_t bytes)
{
	return find_root(NULL, ret, bytes);
}

static size_t read_quota(const char *root, const char *path, const char *controller, char *ret,
			 size_t bytes)
{
	size_t n;

	if (!controller)
		return proc_read(ret, bytes, "%s%s/cpu.max", root, path);
	n = proc_read(ret, bytes, "%s%s/cpu.cfs_quota_us", root, path);
	if (n == 0)
		return 0;
	ret[n - 1] = ' ';
	return n + proc_read(ret + n, bytes - n, "%s%s/cpu.cfs_period_us", root, path);
}

static uint64_t least_quota(const char *controller)
{
	char root[PATH_MAX], path[PATH_MAX], text[4096];
	uint64_t thousandths, least = UINT64_MAX;
	size_t n = proc_read(text, sizeof(text), "/proc/self/cgroup");
	char *end;

	if (!find_root(controller, root, sizeof(root)) ||
	    !proc_parse_cgroup(text, n, controller, path, sizeof(path)))
		return UINT64_MAX;
	for (;;) {
		n = read_quota(root, path, controller, text, sizeof(text));
		if (proc_parse_quota(text, n, &thousandths) && thousandths < least)
			least = thousandths;
		end = strrchr(path, '/');
		if (!end)
			return least;
		*end = '\0';
	}
}

uint64_t cgroup_quota(void)
{
	const uint64_t unified = least_quota(NULL), first = least_quota("cpu");

	return unified < first ? unified : first;
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
