#pragma once
/* SPDX-License-Identifier: MIT */
/* Cgroups of the unified hierarchy, for who makes processes to be told apart; see util/cgroup.h. */
#include <stdbool.h>
#include <sys/types.h>

/* Return: false: it is not allowed, or there is no such cgroup or process. */
bool cgroup_v2_move(const char *path, pid_t pid);
