#pragma once
/* SPDX-License-Identifier: MIT */
/* StarPU as a baseline: the cost of a task in a runtime that schedules tasks over devices */
#include <stdint.h>

#include "samples.h"

/* tasks between the first submission and the wait for all of them */
#define STARPU_TASKS_N 1000u

/* sets of buffers that tasks use in turn, so that few tasks depend on each other */
#define STARPU_TASKS_SETS 64u

struct starpu_tasks;

enum {
	STARPU_TASKS_E_ABSENT = 1, /* not installed, or not built in; see @ret_reason */
};

/*
 * Start StarPU with one CPU worker, pinned to @worker_cpu and paused. The reason lives as long as
 * the program.
 * Return: 0; STARPU_TASKS_E_ABSENT; a negative errno.
 */
int starpu_tasks_new(int worker_cpu, struct starpu_tasks **ret, const char **ret_reason);
/* Return: NULL. */
struct starpu_tasks *starpu_tasks_free(struct starpu_tasks *tasks);

/*
 * A round for bench_compare(): nanoseconds per task, from the first submission to the end of the
 * last of STARPU_TASKS_N tasks. With 0 buffers a task does nothing. With 1 buffer it writes 16 sums
 * of constants, with 3 buffers 16 sums of two inputs.
 */
struct starpu_tasks_round {
	struct starpu_tasks *tasks;
	unsigned int n_buffers; /* 0, 1 or 3 */
};
int starpu_tasks_round(void *data, uint64_t budget_ns, struct samples *samples);
