#pragma once
/* SPDX-License-Identifier: MIT */
/* Cgroups of the unified hierarchy, for who makes processes to be told apart. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Where it is mounted. Return: false: nowhere. */
bool cgroup_v2_find(char *ret, size_t bytes);

/* Return: false: it is not allowed, or there is no such cgroup or process. */
bool cgroup_v2_move(const char *path, pid_t pid);
