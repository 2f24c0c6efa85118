#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cgroups of the unified hierarchy by number
 *
 * A number is never used again, so what it was is remembered, for as many as there is room for.
 */
#include <stdbool.h>
#include <stdint.h>

#include "contention/run-queue.h"
#include "util/cleanup.h"

struct cgroup_names;

/* @root: where the hierarchy is mounted; borrowed until free. Return: 0 or -ENOMEM. */
int cgroup_names_new(const char *root, struct cgroup_names **ret);
struct cgroup_names *cgroup_names_free(struct cgroup_names *names);

/*
 * The path of cgroup @id, "/" for the root, of a long one "..." and its end. Return: false if it is
 * gone or cannot be found.
 */
bool cgroup_names_find(struct cgroup_names *names, uint64_t id,
		       char ret[static RUN_QUEUE_PATH_BYTES]);

/* The number of the cgroup at @path. Return: 0: there is none. */
uint64_t cgroup_names_id(const struct cgroup_names *names, const char *path);

DEFINE_CLEANUP(struct cgroup_names *, cgroup_names_free)
