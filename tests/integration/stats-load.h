#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tasks to be counted: two plans, one of which the broker runs itself, and one that is queued
 *
 * What goes wrong in here ends the program with a line to standard error.
 */
#include <stdint.h>

#include <ringbroker.h>

struct stats_load {
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *small, *large; /* called @name and "large" */
	struct rbk_ring *ring;
	uint64_t n_sent; /* also each task's user_data, counted from 1 */
};

void stats_load_init(struct stats_load *load, const char *socket_path, const char *name);
void stats_load_deinit(struct stats_load *load);

/* Runs tasks and waits for them. */
void stats_load_run(struct stats_load *load, unsigned int n_small, unsigned int n_large);
