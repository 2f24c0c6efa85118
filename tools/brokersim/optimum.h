#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The offline optimum: the least makespan of tasks that are all there at once
 *
 * Two devices, tasks without dependencies, times known. A device is taken as one machine that works
 * on one task after the other with all its servers, which no real one beats, so that also the
 * optimum is a lower bound where tasks use fewer servers.
 */
#include <stdbool.h>
#include <stdint.h>

enum {
	OPTIMUM_DEVICES = 2,
	OPTIMUM_E_ABSENT = 1, /* built without a solver */
	OPTIMUM_E_LIMIT = 2,  /* no proof within the time */
};

struct optimum_task {
	double ns[OPTIMUM_DEVICES];       /* of the device's time; INFINITY: cannot run there */
	double alone_ns[OPTIMUM_DEVICES]; /* from begin to end on an idle device, at least */
};

/* How much a device gets done until a time, in nanoseconds at its usual speed; grows with it. */
struct optimum_capacity {
	double (*ns)(const void *context, unsigned int device, double until_ns);
	const void *context;
};

/*
 * A lower bound: tasks may be cut and run on both devices at once. With @is_whole none is done
 * before it could be on the better device. Exact for that relaxation, to 1e-9.
 */
double optimum_bound(const struct optimum_task *tasks, uint32_t n_tasks, bool is_whole,
		     const struct optimum_capacity *capacity);

/*
 * The optimum where devices run at @speeds; @seconds is how long may be searched for.
 * Return: 0; OPTIMUM_E_ABSENT; OPTIMUM_E_LIMIT; -ENOMEM.
 */
int optimum_exact(const struct optimum_task *tasks, uint32_t n_tasks,
		  const double speeds[OPTIMUM_DEVICES], double seconds, double *ret_ns);
