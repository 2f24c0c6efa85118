/* SPDX-License-Identifier: MIT */
/*
 * The offline optimum: the bound
 *
 * The linear relaxation of assigning tasks to two machines needs no solver. For a given time the
 * second device takes tasks in falling order of its relative advantage, the last of them in part,
 * until it is full; the first device takes the rest. Bisection finds the least time for which the
 * rest fits, also where speeds change with time.
 */
#include "optimum.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "util/cleanup.h"

static double advantage(const struct optimum_task *task)
{
	if (isinf(task->ns[1]))
		return 0;
	return isinf(task->ns[0]) ? INFINITY : task->ns[0] / task->ns[1];
}

static int by_advantage(const void *a, const void *b)
{
	double left = advantage(*(const struct optimum_task *const *)a);
	double right = advantage(*(const struct optimum_task *const *)b);

	return left > right ? -1 : left < right;
}

static bool is_feasible(const struct optimum_task *const *order, uint32_t n_tasks,
			const struct optimum_capacity *capacity, double until_ns)
{
	double room[OPTIMUM_DEVICES];

	for (unsigned int d = 0; d < OPTIMUM_DEVICES; d++)
		room[d] = capacity->ns(capacity->context, d, until_ns);
	for (uint32_t i = 0; i < n_tasks; i++) {
		double share = isinf(order[i]->ns[1]) ? 0 : fmin(1, room[1] / order[i]->ns[1]);

		if (share > 0)
			room[1] -= share * order[i]->ns[1];
		if (share >= 1)
			continue;
		if (isinf(order[i]->ns[0]))
			return false;
		room[0] -= (1 - share) * order[i]->ns[0];
	}
	return room[0] >= 0;
}

double optimum_bound(const struct optimum_task *tasks, uint32_t n_tasks, bool is_whole,
		     const struct optimum_capacity *capacity)
{
	_cleanup_(freep) const struct optimum_task **order =
		calloc(n_tasks + 1, sizeof(struct optimum_task *));
	double low = 0, high = 1, longest = 0;

	if (!order)
		return 0;
	for (uint32_t i = 0; i < n_tasks; i++) {
		order[i] = &tasks[i];
		longest = fmax(longest, fmin(tasks[i].alone_ns[0], tasks[i].alone_ns[1]));
	}
	qsort(order, n_tasks, sizeof(struct optimum_task *), by_advantage);
	while (high < 1e18 && !is_feasible(order, n_tasks, capacity, high))
		high *= 2;
	for (unsigned int i = 0; i < 200 && high - low > 1e-10 * high; i++) {
		double middle = (low + high) / 2;

		if (is_feasible(order, n_tasks, capacity, middle))
			high = middle;
		else
			low = middle;
	}
	return is_whole ? fmax(high, longest) : high;
}
