/* SPDX-License-Identifier: MIT */
/* Processor time of a thread that always wants a processor: see stopwatch.h. */
#include "support/stopwatch.h"

#include <stdbool.h>
#include <stdlib.h>

static void *compute(void *data)
{
	const struct stopwatch *stopwatch = data;

	while (!atomic_load_explicit(&stopwatch->is_over, memory_order_relaxed))
		;
	return NULL;
}

void stopwatch_start(struct stopwatch *stopwatch)
{
	atomic_init(&stopwatch->is_over, false);
	if (pthread_create(&stopwatch->thread, NULL, compute, stopwatch) ||
	    pthread_getcpuclockid(stopwatch->thread, &stopwatch->clock))
		abort();
}

double stopwatch_ms(const struct stopwatch *stopwatch)
{
	struct timespec time;

	if (clock_gettime(stopwatch->clock, &time))
		abort();
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

double stopwatch_stop_ms(struct stopwatch *stopwatch)
{
	double ms = stopwatch_ms(stopwatch);

	atomic_store(&stopwatch->is_over, true);
	pthread_join(stopwatch->thread, NULL);
	return ms;
}
