#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Hogs: processes that compete for the processors
 *
 * Hogs sleep until they are told to compute, and compute until they are told to sleep. Each is
 * pinned to one processor. They sleep by themselves after a limit, and end with the process that
 * made them.
 */
#include <stdint.h>

#include "util/cleanup.h"

struct hogs;

struct hogs_options {
	unsigned int n_per_cpu; /* hogs on each processor that the caller may use */
	const char *comm;       /* process name, at most 15 characters */
	/*
	 * Name of a cgroup for the hogs, below the root of the unified hierarchy; NULL: the
	 * caller's cgroup. If it cannot be made, they stay in the caller's cgroup.
	 */
	const char *cgroup;
	unsigned int limit_s; /* seconds of computing after which they sleep; 0: ten */
};

/* Return: 0; a negative errno. */
int hogs_new(const struct hogs_options *options, struct hogs **ret);
/*
 * End the hogs and remove their cgroup.
 * Return: NULL.
 */
struct hogs *hogs_free(struct hogs *hogs);

/*
 * Tell the hogs to compute, or to sleep.
 * Return: the time of the order, CLOCK_MONOTONIC, in nanoseconds.
 */
uint64_t hogs_begin(struct hogs *hogs);
uint64_t hogs_end(struct hogs *hogs);

DEFINE_CLEANUP(struct hogs *, hogs_free)
