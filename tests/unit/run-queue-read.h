#pragma once
/* SPDX-License-Identifier: MIT */
/* Return the reports of a run queue by value, for tests. */
#include "contention/run-queue.h"

static inline struct run_queue_totals read_totals(struct run_queue *rq)
{
	struct run_queue_totals totals;

	run_queue_read(rq, &totals);
	return totals;
}

/* Return: the report of the thread, or zeros if it has none. */
static inline struct run_queue_thread_report find_thread(const struct run_queue *rq, pid_t tid)
{
	struct run_queue_thread_report report;

	for (uint32_t i = 0; run_queue_thread(rq, i, &report); i++)
		if (report.tid == tid)
			return report;
	return (struct run_queue_thread_report){.tid = 0};
}

/* Return: the report of the tenant; if it has none, a report with @none_ns as its run_ns. */
static inline struct run_queue_report find_tenant(const struct run_queue *rq, uint16_t slot,
						  uint64_t none_ns)
{
	struct run_queue_report report = {.run_ns = none_ns};

	run_queue_tenant(rq, slot, &report);
	return report;
}
