#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tasks to be counted: tasks of a small plan, which the broker runs inline, and of a large plan,
 * which are queued
 *
 * An error in these functions ends the program with a line to standard error.
 */
#include <stdint.h>

#include <ringbroker.h>

struct stats_load {
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *small, *large; /* named @name and "large" */
	struct rbk_ring *ring;
	uint64_t n_sent; /* also each task's user_data, counted from 1 */
};

void stats_load_init(struct stats_load *load, const char *socket_path, const char *name);
void stats_load_deinit(struct stats_load *load);

/* Run @n_small and @n_large tasks, one after the other, and wait for each. */
void stats_load_run(struct stats_load *load, unsigned int n_small, unsigned int n_large);

/* Submit @n large tasks to the first device beside the CPU, and do not wait for them. */
void stats_load_leave(struct stats_load *load, unsigned int n);

/* Submit @n entries, with user_data from 1000000 on, that the broker refuses with -EINVAL. */
void stats_load_refuse(struct stats_load *load, unsigned int n);
