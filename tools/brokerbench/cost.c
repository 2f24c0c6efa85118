/* SPDX-License-Identifier: MIT */
/* Processor time of measured tasks */
#include "cost.h"

int cost_init(struct cost *cost, pid_t a, pid_t b)
{
	const pid_t pids[] = {a, b};
	int r;

	*cost = (struct cost){.n_clocks = 0};
	for (unsigned int i = 0; i < 2; i++) {
		if (!pids[i])
			continue;
		/* clock_getcpuclockid() returns its error. */
		r = clock_getcpuclockid(pids[i], &cost->clocks[cost->n_clocks]);
		if (r)
			return -r;
		cost->n_clocks++;
	}
	return 0;
}

static uint64_t now_ns(const struct cost *cost)
{
	struct timespec time;
	uint64_t ns = 0;

	for (unsigned int i = 0; i < cost->n_clocks; i++)
		if (clock_gettime(cost->clocks[i], &time) == 0)
			ns += (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
	return ns;
}

void cost_begin(struct cost *cost)
{
	if (cost)
		cost->begin_ns = now_ns(cost);
}

void cost_end(struct cost *cost, uint64_t n_tasks)
{
	if (!cost)
		return;
	cost->ns += now_ns(cost) - cost->begin_ns;
	cost->n_tasks += n_tasks;
}

double cost_us(const struct cost *cost)
{
	return cost->n_tasks ? (double)cost->ns / (1e3 * (double)cost->n_tasks) : 0;
}
