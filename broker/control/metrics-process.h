#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures of this process
 *
 * Prometheus's client libraries report these figures of every program, under the same names. They
 * are not in the statistics page: the endpoint's thread reads them from the kernel. Any thread.
 */
#include <stdint.h>

struct metrics_text;

/* RBK_STATS_ABSENT: the kernel does not report the figure, or there is no limit. */
struct metrics_process {
	uint64_t started_ns; /* on CLOCK_REALTIME */
	uint64_t cpu_ns;     /* processor time of all threads */
	uint64_t resident_bytes, virtual_bytes;
	uint64_t n_fds, max_fds;
};

/*
 * Read the figures from the kernel. The time is proportional to the number of descriptors. The
 * start is read only if @ret has none (zero), so that it stays the same when the clock is set.
 */
void metrics_process_take(struct metrics_process *ret);

/* Write the figures. */
void metrics_process_write(const struct metrics_process *process, struct metrics_text *text);
