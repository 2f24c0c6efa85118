#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * StarPU as a baseline: what a task costs in a runtime that schedules tasks over devices
 */
#include <stdint.h>

#include "samples.h"

/* Tasks between the first submission and the wait for all of them. */
#define STARPU_TASKS_N 1000u

/* Sets of buffers that the tasks take in turn, so that few depend on each other. */
#define STARPU_TASKS_SETS 64u

struct starpu_tasks;

enum {
	STARPU_TASKS_E_ABSENT = 1, /* not installed, or not built in; @ret_reason says which */
};

/*
 * Starts StarPU with one CPU worker, pinned to @worker_cpu, paused.
 * Return: 0; STARPU_TASKS_E_ABSENT; negative errno. The reason lives as long as the program.
 */
int starpu_tasks_new(int worker_cpu, struct starpu_tasks **ret, const char **ret_reason);
/* Return: NULL. */
struct starpu_tasks *starpu_tasks_free(struct starpu_tasks *tasks);

/*
 * A round for bench_compare(): nanoseconds per task from the first submission to the end of the
 * last of STARPU_TASKS_N tasks. With 0 buffers a task does nothing; with 1 it writes 16 floats
 * that are a sum of constants, with 3 those of the sum of two inputs.
 */
struct starpu_tasks_round {
	struct starpu_tasks *tasks;
	unsigned int n_buffers; /* 0, 1 or 3 */
};
int starpu_tasks_round(void *data, uint64_t budget_ns, struct samples *samples);
