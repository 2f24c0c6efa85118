#pragma once
/* SPDX-License-Identifier: MIT */
/* Processor time of measured tasks: of this process, and of a broker's */
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct cost {
	clockid_t clocks[2];
	unsigned int n_clocks;
	uint64_t begin_ns; /* reading of the clocks at cost_begin() */
	uint64_t ns;       /* processor time between cost_begin() and cost_end() */
	uint64_t n_tasks;  /* tasks in this time */
};

/*
 * Count the time of the processes @a and @b, 0 for none, from nothing.
 * Return: 0; a negative errno: there is no such process.
 */
int cost_init(struct cost *cost, pid_t a, pid_t b);

/* Begin and end a time in which @n_tasks tasks run. Do nothing if @cost is NULL. */
void cost_begin(struct cost *cost);
void cost_end(struct cost *cost, uint64_t n_tasks);

/* Return microseconds of processor time per task; 0 before the first task. */
double cost_us(const struct cost *cost);
