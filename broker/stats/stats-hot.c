/* SPDX-License-Identifier: MIT */
/*
 * Logging segments, and counting tasks that run on the reactor
 *
 * A task that runs on the reactor may take 20 ns, and counting one costs 5 ns: a dozen additions in
 * as many places. Tasks are therefore gathered by plan, with an increment and an addition on a
 * cache line that is at hand, and counted once per STATS_INLINE_SAMPLE. A failure or a missed
 * deadline is counted at once.
 */
#include "stats/stats.h"

void stats_segment_done(struct stats_plan *plan, const struct stats_segment *segment)
{
	const struct stats_tenant *tenant = plan->tenant;
	struct rbk_stats_tenant *totals = tenant->totals;
	const uint64_t index = totals->segments_head;
	uint64_t *words;

	if (!tenant->segments)
		return;
	words = (uint64_t *)&tenant->segments[index & (STATS_SEGMENT_RECORDS - 1)];
	/* As in stats_log() */
	__atomic_store_n(&words[0], 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	stats_store(&words[1], totals->log_head);
	stats_store(&words[2], segment->ended_ns);
	stats_store(&words[3], segment->segment | (uint64_t)segment->n_segments << 16 |
				       (uint64_t)segment->device << 32 |
				       (uint64_t)segment->reason << 40 |
				       (uint64_t)segment->flags << 48);
	stats_store(&words[4], stats_float_bits(segment->predicted_ns) |
				       stats_float_bits(segment->other_ns) << 32);
	stats_store(&words[5],
		    stats_time_bits(segment->queue_ns) | stats_time_bits(segment->exec_ns) << 32);
	stats_store(&words[6], segment->from);
	stats_store(&words[7], segment->crossed_bytes);
	stats_store(&words[8], segment->first_node | (uint64_t)segment->n_nodes << 16 |
				       (uint64_t)segment->batch << 32 |
				       (uint64_t)segment->n_batches << 48);
	__atomic_store_n(&words[0], index + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&totals->segments_head, index + 1, __ATOMIC_RELEASE);
}

void stats_segment_ran(struct stats_tenant *tenant, uint8_t device, struct stats_moment *last,
		       struct stats_moment begin, uint64_t end_ns)
{
	struct stats_device_counts *all = &tenant->devices[device];
	struct rbk_stats_tenant_device *totals = &tenant->totals->devices[device];
	struct stats_moment from = *last;
	uint64_t gap_ns, worked_ns;

	stats_add(&totals->n_segments, 1);
	*last = (struct stats_moment){end_ns, all->device_ns};
	if (from.at_ns == 0)
		return;
	if (from.at_ns < all->counted.at_ns)
		from = all->counted;
	if (begin.at_ns <= from.at_ns)
		return;
	gap_ns = begin.at_ns - from.at_ns;
	worked_ns = begin.device_ns - from.device_ns;
	/* Several servers may have worked at once, and until before the gap. */
	if (worked_ns < gap_ns)
		stats_add(&totals->bubble_ns, gap_ns - worked_ns);
	all->counted = begin;
}

void stats_inline_flush(struct stats_plan *plan)
{
	struct stats_tenant *tenant = plan->tenant;
	struct rbk_stats_tenant *totals = tenant->totals;
	struct rbk_stats_plan *record = plan->record;
	struct rbk_stats_plan_device *device = &record->devices[RBK_DEVICE_CPU];
	struct stats_device_counts *all = &tenant->devices[RBK_DEVICE_CPU];
	uint64_t n = plan->n_gathered, ns = plan->gathered_ns;

	if (n == 0)
		return;
	stats_add(&totals->n_tasks, n);
	stats_add(&totals->n_inline, n);
	stats_add(&totals->exec_ns, ns);
	stats_add(&totals->inline_ns, ns);
	stats_add(&totals->reasons[plan->gathered_reason], n);
	stats_add(&totals->devices[RBK_DEVICE_CPU].n_tasks, n);
	stats_add(&totals->devices[RBK_DEVICE_CPU].exec_ns, ns);
	stats_add(&totals->devices[RBK_DEVICE_CPU].device_ns, ns);
	stats_add(&record->n_inline, n);
	stats_add(&record->reasons[plan->gathered_reason], n);
	stats_add(&device->n_tasks, n);
	stats_add(&device->exec_ns, ns);
	all->n_tasks += n;
	all->exec_ns += ns;
	all->device_ns += ns;
	all->reasons[plan->gathered_reason] += n;
	plan->n_gathered = 0;
	plan->gathered_ns = 0;
	list_remove(&plan->gathered);
	tenant->n_gathering--;
}

void stats_inline_begin(struct stats_plan *plan, const struct stats_task *task)
{
	struct stats_tenant *tenant = plan->tenant;
	struct rbk_stats_tenant *totals = tenant->totals;
	struct rbk_stats_plan *record = plan->record;
	uint64_t failed = task->res < 0;

	stats_inline_flush(plan);
	plan->gathered_reason = task->reason;
	if (tenant->n_gathering == STATS_MAX_GATHERING)
		stats_inline_flush(
			container_of(tenant->gathered.next, struct stats_plan, gathered));
	list_append(&tenant->gathered, &plan->gathered);
	tenant->n_gathering++;
	__atomic_store_n(&record->count, task->count, __ATOMIC_RELAXED);
	__atomic_store_n(&record->last_device, RBK_DEVICE_CPU, __ATOMIC_RELAXED);
	__atomic_store_n(&record->last_reason, task->reason, __ATOMIC_RELAXED);
	__atomic_store_n(&record->last_flags, (uint16_t)(task->flags | RBK_DECISION_INLINE),
			 __ATOMIC_RELAXED);
	stats_log(plan, task, task->flags | RBK_DECISION_INLINE);
	if ((task->res | task->flags) == 0)
		return;
	stats_add(&totals->n_errors, failed);
	stats_add(&totals->n_deadlines_missed, !!(task->flags & RBK_DECISION_DEADLINE_MISSED));
	stats_add(&totals->devices[RBK_DEVICE_CPU].n_failed, failed);
	stats_add(&record->devices[RBK_DEVICE_CPU].n_failed, failed);
	tenant->devices[RBK_DEVICE_CPU].n_failed += failed;
}
