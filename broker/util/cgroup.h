#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cgroups of the unified hierarchy, by their folders' descriptors
 *
 * A descriptor names one cgroup for good, whatever it is called in whose mount namespace: there is
 * one hierarchy, and its folders' inode numbers are what the kernel knows cgroups by.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Where it is mounted. Return: false: nowhere that is known. */
bool cgroup_find_root(char *ret, size_t bytes);

struct cgroup_about {
	uint64_t id; /* never 0 */
	uid_t owner;
};

/*
 * What the kernel knows of the cgroup that @fd is the folder of, without asking anybody else: @fd
 * may be anything, and be sent by anybody. Return: false: it is no such folder.
 */
bool cgroup_of_fd(int fd, struct cgroup_about *ret);
