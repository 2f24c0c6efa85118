#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Neighbours that want the processors
 *
 * Processes that sleep until they are told to compute, pinned to one processor each, and compute
 * until they are told to sleep. They are bounded: who is not told anything for a while sleeps by
 * itself, and all end with the process that made them.
 */
#include <stdint.h>

#include "util/cleanup.h"

struct hogs;

struct hogs_options {
	unsigned int n_per_cpu; /* on each processor that the caller may use */
	const char *comm;       /* their name, 15 characters at most */
	/*
	 * A cgroup of their own below the root of the unified hierarchy; NULL: where the caller is.
	 * Where it cannot be made they stay where the caller is, too.
	 */
	const char *cgroup;
	unsigned int limit_s; /* after which they sleep; 0: ten */
};

/* Return: 0; negative errno. */
int hogs_new(const struct hogs_options *options, struct hogs **ret);
/* Ends them and removes their cgroup. Return: NULL. */
struct hogs *hogs_free(struct hogs *hogs);

/* Return: when they were told, CLOCK_MONOTONIC. */
uint64_t hogs_begin(struct hogs *hogs);
uint64_t hogs_end(struct hogs *hogs);

DEFINE_CLEANUP(struct hogs *, hogs_free)
