#pragma once
/* SPDX-License-Identifier: MIT */
/* Cgroups of the unified hierarchy, for distinguishable processes; see util/cgroup.h. */
#include <stdbool.h>
#include <sys/types.h>

/*
 * Move a process to the cgroup at @path.
 * Return: false if that is not permitted, or the cgroup or process does not exist.
 */
bool cgroup_v2_move(const char *path, pid_t pid);
