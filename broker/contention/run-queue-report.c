/* SPDX-License-Identifier: MIT */
/*
 * Reports, for people
 *
 * The thread makes reports from the probes' counts, or from its readings of /proc, and publishes
 * them whole, one by one. Threads are published without gaps, so that readers need not know slots.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "contention/run-queue-private.h"
#include "util/number.h"
#include "util/seqlock.h"
#include "util/utf8.h"

static void add_record(const struct run_queue_record *record, struct run_queue_figures *figures,
		       struct delay_counts *delays)
{
	uint64_t max_ns = run_queue_load(&record->max_wait_ns);

	figures->run_ns += run_queue_load(&record->run_ns);
	figures->wait_ns += run_queue_load(&record->wait_ns);
	figures->idle_wait_ns += run_queue_load(&record->idle_wait_ns);
	figures->n_waits += run_queue_load(&record->n_waits);
	figures->n_preemptions += run_queue_load(&record->n_preemptions);
	figures->n_involuntary += run_queue_load(&record->n_involuntary);
	figures->n_throttled += run_queue_load(&record->n_throttled);
	figures->n_migrations += run_queue_load(&record->n_migrations);
	figures->caused_ns += run_queue_load(&record->caused_ns);
	if (max_ns > delays->max_ns)
		delays->max_ns = max_ns;
	for (unsigned int i = 0; i < RUN_QUEUE_BUCKETS; i++)
		delays->buckets[i] += __atomic_load_n(&record->buckets[i], __ATOMIC_RELAXED);
}

void run_queue_sum_thread(const struct run_queue *rq, uint32_t slot, struct run_queue_figures *ret,
			  struct delay_counts *ret_delays)
{
	memset(ret_delays, 0, sizeof(*ret_delays));
	if (run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF) {
		*ret = rq->threads[slot].read;
		return;
	}
	memset(ret, 0, sizeof(*ret));
	add_record(probes_thread(rq->probes, slot), ret, ret_delays);
}

void run_queue_sum_tenant(const struct run_queue *rq, uint16_t slot, struct run_queue_figures *ret,
			  struct delay_counts *ret_delays)
{
	memset(ret_delays, 0, sizeof(*ret_delays));
	if (run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF) {
		*ret = rq->tenants[slot].read;
		return;
	}
	memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < rq->n_tables; i++)
		add_record(probes_tenant(rq->probes, slot, i), ret, ret_delays);
}

struct run_queue_subject *run_queue_subject_new(const struct run_queue *rq, uint32_t n_tables)
{
	struct run_queue_subject *subject;

	subject = calloc(1, offsetof(struct run_queue_subject, causers) +
				    delay_causes_bytes(n_tables));
	if (subject)
		subject->causers.n_tables = n_tables;
	return subject;
}

static void fill_counts(const struct run_queue_figures *now, const struct run_queue_figures *base,
			struct run_queue_report *report)
{
	report->run_ns += counter_growth(now->run_ns, base->run_ns);
	report->wait_ns += counter_growth(now->wait_ns, base->wait_ns);
	report->idle_wait_ns += counter_growth(now->idle_wait_ns, base->idle_wait_ns);
	report->n_waits += counter_growth(now->n_waits, base->n_waits);
	report->n_preemptions += counter_growth(now->n_preemptions, base->n_preemptions);
	report->n_involuntary += counter_growth(now->n_involuntary, base->n_involuntary);
	report->n_throttled += counter_growth(now->n_throttled, base->n_throttled);
	report->n_migrations += counter_growth(now->n_migrations, base->n_migrations);
	report->caused_ns += counter_growth(now->caused_ns, base->caused_ns);
}

static void fill_delays(const struct delay_sum *sum, struct run_queue_report *report)
{
	report->p50_ns = delay_percentile_ns(sum, 0.5);
	report->p99_ns = delay_percentile_ns(sum, 0.99);
	report->max_ns = sum->max_ns;
}

static void fill_cause(struct run_queue *rq, const struct run_queue_causer *causer,
		       struct run_queue_cause *cause)
{
	uint32_t kind = causer->who >> 16, slot = causer->who & 0xffff;

	memset(cause, 0, sizeof(*cause));
	copy_printable(causer->comm, sizeof(causer->comm), cause->comm, sizeof(cause->comm));
	if (!rq->names || !cgroup_names_find(rq->names, causer->cgroup, cause->cgroup))
		copy_printable(causer->cgroup_name, sizeof(causer->cgroup_name), cause->cgroup,
			       sizeof(cause->cgroup));
	cause->pid = (pid_t)causer->process;
	cause->is_own = kind == RUN_QUEUE_THREAD;
	cause->tenant = kind == RUN_QUEUE_TENANT && slot < RUN_QUEUE_MAX_TENANTS &&
					rq->tenants[slot].generation
				? (uint16_t)slot
				: (uint16_t)RUN_QUEUE_NO_TENANT;
	cause->wait_ns = causer->wait_ns;
	cause->n_preemptions = causer->n_preemptions;
}

static void fill_causes(struct run_queue *rq, struct delay_causes_sum *sum,
			struct run_queue_report *report)
{
	report->n_causes = delay_causes_top(sum, RUN_QUEUE_TOP);
	for (uint32_t i = 0; i < report->n_causes; i++)
		fill_cause(rq, &sum->causers[i], &report->causes[i]);
}

/* Fill in a subject's last ten seconds, and add them to those of all workers. */
static void fill_window(struct run_queue *rq, struct run_queue_subject *subject, uint64_t now_ns,
			const struct delay_counts *now, struct run_queue_report *report,
			struct delay_sum *workers, struct delay_causes_sum *workers_causers)
{
	struct delay_sum sum = {.n = 0};
	struct delay_causes_sum causers = {.n = 0};

	report->has_delays = true;
	delay_window_push(&subject->window, now_ns, now);
	delay_window_add(&subject->window, now_ns, now, &sum);
	fill_delays(&sum, report);
	delay_causes_add(&subject->causers, now_ns, &causers);
	fill_causes(rq, &causers, report);
	if (!workers)
		return;
	delay_window_add(&subject->window, now_ns, now, workers);
	delay_causes_add(&subject->causers, now_ns, workers_causers);
}

static void report_tenant(struct run_queue *rq, uint16_t slot, uint64_t now_ns)
{
	struct run_queue_tenant *tenant = &rq->tenants[slot];
	struct run_queue_copy copy = {.is_valid = 1};
	struct run_queue_figures now;
	struct delay_counts delays;

	if (!tenant->subject)
		return;
	run_queue_sum_tenant(rq, slot, &now, &delays);
	fill_counts(&now, &tenant->subject->base, &copy.report);
	copy.report.throttled_ns = tenant->throttled_ns - tenant->throttled_base_ns;
	if (run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF) {
		for (uint32_t i = 0; i < rq->n_tables; i++)
			delay_causes_feed(&tenant->subject->causers, now_ns, i,
					  probes_tenant(rq->probes, slot, i)->causers);
		fill_window(rq, tenant->subject, now_ns, &delays, &copy.report, NULL, NULL);
	}
	seqlock_write(&rq->tenant_copies[slot].sequence, rq->tenant_copies[slot].words[0],
		      sizeof(copy) / sizeof(uint64_t), &copy);
}

void run_queue_unpublish_tenant(struct run_queue *rq, uint16_t slot)
{
	const struct run_queue_copy none = {.is_valid = 0};

	seqlock_write(&rq->tenant_copies[slot].sequence, rq->tenant_copies[slot].words[0],
		      sizeof(none) / sizeof(uint64_t), &none);
}

static void publish_thread(struct run_queue *rq, uint32_t i,
			   const struct run_queue_thread_copy *copy)
{
	seqlock_write(&rq->thread_copies[i].sequence, rq->thread_copies[i].words[0],
		      sizeof(*copy) / sizeof(uint64_t), copy);
}

/* Sum over all workers. */
struct all_workers {
	uint32_t n;
	struct run_queue_copy copy;
	struct delay_sum delays;
	struct delay_causes_sum causers;
};

static void report_thread(struct run_queue *rq, uint32_t slot, uint32_t i, uint64_t now_ns,
			  struct all_workers *workers)
{
	struct run_queue_thread *thread = &rq->threads[slot];
	struct run_queue_thread_copy copy = {.is_valid = 1};
	bool is_worker = thread->role == RUN_QUEUE_WORKER;
	struct run_queue_figures now;
	struct delay_counts delays;

	copy.report.tid = thread->tid;
	copy.report.role = thread->role;
	memcpy(copy.report.name, thread->name, sizeof(copy.report.name));
	run_queue_sum_thread(rq, slot, &now, &delays);
	fill_counts(&now, &thread->subject->base, &copy.report.report);
	if (is_worker) {
		workers->n++;
		fill_counts(&now, &thread->subject->base, &workers->copy.report);
	}
	if (run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF) {
		delay_causes_feed(&thread->subject->causers, now_ns, 0,
				  probes_thread(rq->probes, slot)->causers);
		fill_window(rq, thread->subject, now_ns, &delays, &copy.report.report,
			    is_worker ? &workers->delays : NULL, &workers->causers);
	}
	publish_thread(rq, i, &copy);
}

void run_queue_make_reports(struct run_queue *rq, uint64_t now_ns)
{
	const struct run_queue_thread_copy none = {.is_valid = 0};
	uint32_t n_slots = atomic_load_explicit(&rq->n_slots, memory_order_relaxed);
	struct all_workers workers = {.n = 0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_slots; i++)
		if (rq->threads[i].tid && rq->threads[i].subject)
			report_thread(rq, i, n++, now_ns, &workers);
	for (uint32_t i = n; i < rq->n_copies; i++)
		publish_thread(rq, i, &none);
	rq->n_copies = n;

	workers.copy.is_valid = workers.n > 0;
	if (workers.n > 0 && run_queue_source(rq) == RUN_QUEUE_SOURCE_EBPF) {
		workers.copy.report.has_delays = true;
		fill_delays(&workers.delays, &workers.copy.report);
		fill_causes(rq, &workers.causers, &workers.copy.report);
	}
	seqlock_write(&rq->workers.sequence, rq->workers.words[0],
		      sizeof(workers.copy) / sizeof(uint64_t), &workers.copy);
	for (uint16_t i = 0; i < RUN_QUEUE_MAX_TENANTS; i++)
		if (rq->tenants[i].generation)
			report_tenant(rq, i, now_ns);
}

/* --- Any thread --- */

bool run_queue_thread(const struct run_queue *rq, uint32_t i, struct run_queue_thread_report *ret)
{
	struct run_queue_thread_copy copy;

	if (!rq || i >= RUN_QUEUE_MAX_THREADS ||
	    !seqlock_read(&rq->thread_copies[i].sequence, rq->thread_copies[i].words[0],
			  sizeof(copy) / sizeof(uint64_t), &copy) ||
	    !copy.is_valid)
		return false;
	*ret = copy.report;
	return true;
}

bool run_queue_tenant(const struct run_queue *rq, uint16_t tenant, struct run_queue_report *ret)
{
	struct run_queue_copy copy;

	if (!rq || tenant >= RUN_QUEUE_MAX_TENANTS ||
	    !seqlock_read(&rq->tenant_copies[tenant].sequence, rq->tenant_copies[tenant].words[0],
			  sizeof(copy) / sizeof(uint64_t), &copy) ||
	    !copy.is_valid)
		return false;
	*ret = copy.report;
	return true;
}

bool run_queue_workers(const struct run_queue *rq, struct run_queue_report *ret)
{
	struct run_queue_copy copy;

	if (!rq ||
	    !seqlock_read(&rq->workers.sequence, rq->workers.words[0],
			  sizeof(copy) / sizeof(uint64_t), &copy) ||
	    !copy.is_valid)
		return false;
	*ret = copy.report;
	return true;
}
