#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The offline optimum: the least makespan of tasks that all arrive at once
 *
 * Two devices, tasks without dependencies, known times. A device is modelled as one machine that
 * runs one task after the other on all its servers. No real device is faster, so the optimum is a
 * lower bound even where tasks use fewer servers.
 */
#include <stdbool.h>
#include <stdint.h>

enum {
	OPTIMUM_DEVICES = 2,
	OPTIMUM_E_ABSENT = 1, /* built without a solver */
	OPTIMUM_E_LIMIT = 2,  /* no proof within the time limit */
};

struct optimum_task {
	double ns[OPTIMUM_DEVICES];       /* device time; INFINITY: cannot run on the device */
	double alone_ns[OPTIMUM_DEVICES]; /* least time from begin to end on an idle device */
};

/*
 * Work that a device completes by a time, in nanoseconds at its usual speed; monotonic in until_ns.
 */
struct optimum_capacity {
	double (*ns)(const void *context, unsigned int device, double until_ns);
	const void *context;
};

/*
 * Return a lower bound of the makespan in nanoseconds. Tasks may be split over both devices. With
 * @is_whole the bound is at least the time of the longest task on its better device. The bound is
 * exact for this relaxation, to 1e-9; 0 without memory.
 */
double optimum_bound(const struct optimum_task *tasks, uint32_t n_tasks, bool is_whole,
		     const struct optimum_capacity *capacity);

/*
 * Find the optimum for devices that run at @speeds, searching for at most @seconds.
 * Return: 0, OPTIMUM_E_ABSENT, OPTIMUM_E_LIMIT or -ENOMEM.
 */
int optimum_exact(const struct optimum_task *tasks, uint32_t n_tasks,
		  const double speeds[OPTIMUM_DEVICES], double seconds, double *ret_ns);
