/* SPDX-License-Identifier: MIT */
/*
 * Contention figures for statistics pages
 *
 * Administrators see all figures. A tenant sees its own, and of the tasks that ran instead of its
 * processes what /proc would show: comm and cgroup, but neither process ids nor the other tenant.
 * If /proc is mounted so that it hides other users' processes (hidepid), its pages hide them as
 * well. That another task ran instead, and how long, the tenant could measure itself.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "contention/contention.h"
#include "stats/stats.h"
#include "util/checked.h"
#include "util/utf8.h"

/* Tenants per update; further ones follow in later updates. */
enum { MAX_TENANTS = 64 };

_Static_assert(RUN_QUEUE_TOP <= RBK_STATS_MAX_CAUSES, "all are shown");
_Static_assert(RUN_QUEUE_NAME_BYTES == RBK_STATS_COMM_BYTES, "nothing is cut");
_Static_assert(RUN_QUEUE_PATH_BYTES == RBK_STATS_CGROUP_BYTES, "nothing is cut");
_Static_assert(RUN_QUEUE_WHY_BYTES == RBK_STATS_SENTENCE_BYTES, "nothing is cut");

static uint32_t source_of(enum run_queue_source source)
{
	static const uint32_t sources[] = {
		[RUN_QUEUE_SOURCE_AUTO] = RBK_STATS_SOURCE_NONE,
		[RUN_QUEUE_SOURCE_EBPF] = RBK_STATS_SOURCE_EBPF,
		[RUN_QUEUE_SOURCE_SCHEDSTAT] = RBK_STATS_SOURCE_SCHEDSTAT,
		[RUN_QUEUE_SOURCE_PSI] = RBK_STATS_SOURCE_PSI,
		[RUN_QUEUE_SOURCE_STAT] = RBK_STATS_SOURCE_STAT,
		[RUN_QUEUE_SOURCE_NONE] = RBK_STATS_SOURCE_NONE,
	};

	return sources[source];
}

static void describe_cause(const struct contention *contention, const struct run_queue_cause *cause,
			   struct rbk_stats_cause *ret)
{
	copy_printable(cause->comm, SIZE_MAX, ret->comm, sizeof(ret->comm));
	copy_printable(cause->cgroup, SIZE_MAX, ret->cgroup, sizeof(ret->cgroup));
	ret->pid = (uint32_t)cause->pid;
	ret->tenant = contention_tenant(contention, cause->tenant);
	/* A thread that ran before it was known as ours has no owner. */
	ret->flags = cause->is_own || cause->pid == getpid() ? RBK_STATS_CAUSE_BROKER : 0;
	ret->wait_ns = cause->wait_ns;
	ret->n_preemptions = cause->n_preemptions;
}

static void describe_delay(const struct contention *contention,
			   const struct run_queue_report *report, struct rbk_stats_delay *ret)
{
	*ret = (struct rbk_stats_delay){
		.flags = RBK_STATS_DELAY_USED | (report->has_delays ? RBK_STATS_DELAY_KNOWN : 0),
		.run_ns = report->run_ns,
		.wait_ns = report->wait_ns,
		.idle_wait_ns = report->idle_wait_ns,
		.n_waits = report->n_waits,
		.n_preemptions = report->n_preemptions,
		.n_involuntary = report->n_involuntary,
		.n_throttled = report->n_throttled,
		.n_migrations = report->n_migrations,
		.caused_ns = report->caused_ns,
		.throttled_ns = report->throttled_ns,
		.p50_ns = report->p50_ns,
		.p99_ns = report->p99_ns,
		.max_ns = report->max_ns,
	};
	for (uint32_t i = 0; i < report->n_causes && i < RUN_QUEUE_TOP; i++)
		describe_cause(contention, &report->causes[i], &ret->causes[ret->n_causes++]);
}

/* Remove from @delay what tenant @number may not know. */
static void redact(const struct contention *contention, uint32_t number,
		   struct rbk_stats_delay *delay)
{
	for (uint32_t i = 0; i < delay->n_causes; i++) {
		struct rbk_stats_cause *cause = &delay->causes[i];

		if (cause->flags & RBK_STATS_CAUSE_BROKER)
			continue;
		if (cause->tenant == number) {
			cause->flags |= RBK_STATS_CAUSE_OWN;
			continue;
		}
		cause->tenant = 0;
		cause->pid = 0;
		if (contention_hides_others(contention)) {
			memset(cause->comm, 0, sizeof(cause->comm));
			memset(cause->cgroup, 0, sizeof(cause->cgroup));
		}
	}
}

static void publish_status(const struct contention *contention, struct stats *stats)
{
	struct run_queue *rq = contention_run_queue(contention);
	struct contention_status status;
	struct run_queue_cost cost = {0, 0};
	struct rbk_stats_contention figures;
	const char *sentence;

	contention_status(contention, &status);
	run_queue_cost(rq, &cost);
	figures = (struct rbk_stats_contention){
		.source = source_of(run_queue_source(rq)),
		.flags = (status.is_contended ? RBK_STATS_CONTENDED : 0) |
			 (status.observes ? 0 : RBK_STATS_CONTENTION_ACTS),
		.n_workers = status.n_workers,
		.n_workers_total = status.n_workers_total,
		.factor = (double)status.factor,
		.n_began = status.n_began,
		.began_at_ns = status.began_at_ns,
		.contended_ns = status.contended_ns,
		.n_unwatched = status.n_unwatched,
		.n_dropped = status.n_dropped,
		.n_probe_events = cost.n_events,
		.probe_ns = cost.event_ns,
	};
	for (unsigned int i = 0;
	     i < RBK_STATS_MAX_SENTENCES && (sentence = run_queue_sentence(rq, i)); i++)
		copy_printable(sentence, SIZE_MAX, figures.sentences[i],
			       sizeof(figures.sentences[i]));
	stats_set_contention(stats, &figures);
}

static void publish_threads(const struct contention *contention, struct stats *stats)
{
	const struct run_queue *rq = contention_run_queue(contention);
	static const uint32_t roles[] = {
		[RUN_QUEUE_REACTOR] = RBK_STATS_ROLE_REACTOR,
		[RUN_QUEUE_WORKER] = RBK_STATS_ROLE_WORKER,
		[RUN_QUEUE_OTHER] = RBK_STATS_ROLE_OTHER,
	};
	struct run_queue_thread_report report;
	struct rbk_stats_thread figures;
	uint32_t n;

	for (n = 0; n < STATS_MAX_THREADS && run_queue_thread(rq, n, &report); n++) {
		figures = (struct rbk_stats_thread){
			.tid = (uint32_t)report.tid,
			.role = roles[report.role],
		};
		copy_printable(report.name, SIZE_MAX, figures.name, sizeof(figures.name));
		describe_delay(contention, &report.report, &figures.delay);
		stats_set_thread(stats, n, &figures);
	}
	stats_set_n_threads(stats, n);
}

static void publish_tenant(const struct contention *contention, struct stats_tenant *tenant)
{
	static const struct rbk_stats_delay unknown;
	const uint32_t number = tenant->own.number;
	struct run_queue_report report;
	struct rbk_stats_delay whole, own;

	if (!run_queue_tenant(contention_run_queue(contention), contention_slot(contention, number),
			      &report)) {
		stats_set_delay(tenant, &unknown, &unknown);
		return;
	}
	describe_delay(contention, &report, &whole);
	own = whole;
	redact(contention, number, &own);
	stats_set_delay(tenant, &whole, &own);
}

void contention_publish(const struct contention *contention, struct stats *stats)
{
	unsigned int n_told = 0;

	publish_status(contention, stats);
	publish_threads(contention, stats);
	/* Their other figures are updated in the same order, see stats_tenant_last(). */
	for (struct stats_tenant *tenant = stats_first_tenant(stats);
	     tenant && n_told < MAX_TENANTS; tenant = stats_next_tenant(stats, tenant), n_told++)
		publish_tenant(contention, tenant);
}
