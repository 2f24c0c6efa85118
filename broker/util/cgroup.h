#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cgroups of the unified hierarchy, by their folders' descriptors; this process's quota
 *
 * A descriptor identifies one cgroup permanently, whatever its path in a mount namespace: there is
 * one hierarchy, and the kernel identifies cgroups by the inode numbers of its folders.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Find the hierarchy's mount point.
 * Return: false if it is unknown.
 */
bool cgroup_find_root(char *ret, size_t bytes);

/*
 * Return the processors that the quotas of this process's cgroup and of the cgroups above it allow,
 * in thousandths, as far as they are visible; UINT64_MAX: there is no quota.
 */
uint64_t cgroup_quota(void);

struct cgroup_about {
	uint64_t id; /* never 0 */
	uid_t owner;
};

/*
 * Get the kernel's data on the cgroup whose folder is @fd, without querying a foreign file system:
 * @fd may be any descriptor from any process.
 * Return: false if it is no cgroup's folder.
 */
bool cgroup_of_fd(int fd, struct cgroup_about *ret);
