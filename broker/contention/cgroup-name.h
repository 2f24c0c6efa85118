#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cgroups of the unified hierarchy by number
 *
 * A number is never reused, so names are cached, as many as there is room for.
 */
#include <stdbool.h>
#include <stdint.h>

#include "contention/run-queue.h"
#include "util/cleanup.h"

struct cgroup_names;

/*
 * Create the cache. @root, the hierarchy's mount point, is borrowed until free.
 * Return: 0 or -ENOMEM.
 */
int cgroup_names_new(const char *root, struct cgroup_names **ret);
struct cgroup_names *cgroup_names_free(struct cgroup_names *names);

/*
 * Get the path of cgroup @id: "/" for the root; a long path is cut to "..." and its end.
 * Return: false if the cgroup is gone or cannot be found.
 */
bool cgroup_names_find(struct cgroup_names *names, uint64_t id,
		       char ret[static RUN_QUEUE_PATH_BYTES]);

/* Return the number of the cgroup at @path; 0: there is none. */
uint64_t cgroup_names_id(const struct cgroup_names *names, const char *path);

DEFINE_CLEANUP(struct cgroup_names *, cgroup_names_free)
