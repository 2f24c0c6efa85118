/* SPDX-License-Identifier: MIT */
/* Metrics of the broker as a whole: what clients have, its threads and its processors. */
#include "control/metrics-private.h"

#include <stdio.h>

#include "util/checked.h"

static const struct member header_members[] = {
	GAUGE(rbk_stats_header, started_at_ns, MOMENT, "start_time_seconds",
	      "When the broker started"),
	GAUGE(rbk_stats_header, updated_at_ns, MOMENT, "statistics_updated_timestamp_seconds",
	      "When the broker last brought these figures up to date; it does several times a "
	      "second"),
	COUNTER(rbk_stats_header, n_resets, COUNT, SINCE_START, "statistics_resets",
		"How often all counts began anew, as an administrator asked"),
};

static const struct member broker_members[] = {
	GAUGE(rbk_stats_broker, n_sessions, COUNT, "sessions", "Clients that are connected"),
	GAUGE(rbk_stats_broker, n_rings, COUNT, "rings", "Rings that clients have"),
	GAUGE(rbk_stats_broker, n_arenas, COUNT, "arenas", "Arenas that clients have"),
	GAUGE(rbk_stats_broker, n_plans, COUNT, "plans", "Plans that clients have"),
	GAUGE(rbk_stats_broker, n_tenants, COUNT, "tenants", "Tenants that there are"),
	GAUGE(rbk_stats_broker, n_tenants_unlisted, COUNT, "tenants_unlisted",
	      "Tenants that these figures have no room for"),
	GAUGE(rbk_stats_broker, n_in_flight, COUNT, "tasks_in_flight",
	      "Tasks that were taken and are not complete"),
	GAUGE(rbk_stats_broker, host_bytes, COUNT, "host_memory_charged_bytes",
	      "Host memory that tenants, and the broker for its own statistics, are charged for"),
	GAUGE(rbk_stats_broker, host_max, COUNT, "host_memory_max_bytes",
	      "What that may be of all tenants together; none: there is no limit"),
	COUNTER(rbk_stats_broker, n_completed, COUNT, SINCE_START, "entries_completed",
		"Entries that were answered, those that compute nothing and refused ones among "
		"them"),
	COUNTER(rbk_stats_broker, copied_bytes, COUNT, SINCE_START, "copied_bytes",
		"Tensor bytes that a processor copied"),
	COUNTER(rbk_stats_broker, transferred_bytes, COUNT, SINCE_START, "transferred_bytes",
		"Bytes that devices moved by themselves"),
	COUNTER(rbk_stats_broker, n_ended_hostile, COUNT, SINCE_START, "sessions_ended_hostile",
		"Sessions that were ended for breaking a rule"),
	GAUGE(rbk_stats_broker, longest_turn_ns, NS, "reactor_longest_turn_seconds",
	      "The longest turn of the thread that serves all clients, since statistics began"),
	FLAG_OF(rbk_stats_broker, flags, RBK_STATS_BROKER_FORCE_CPU, "force_cpu",
		"Is every task that may run on the CPU made to, as an administrator asked"),
};

static const struct member contention_members[] = {
	FLAG_OF(rbk_stats_contention, flags, RBK_STATS_CONTENDED, "contended",
		"Do the broker's workers wait for processors because of others"),
	GAUGE(rbk_stats_contention, factor, REAL, "contention_ratio",
	      "How many times longer tasks take on the CPU because of others"),
	GAUGE(rbk_stats_contention, n_workers, NUMBER, "workers_used", "CPU workers that are used"),
	GAUGE(rbk_stats_contention, n_workers_total, NUMBER, "workers",
	      "CPU workers that there are"),
	COUNTER(rbk_stats_contention, n_began, COUNT, SINCE_RESET, "contentions",
		"How often the CPU became contended"),
	COUNTER(rbk_stats_contention, contended_ns, NS, SINCE_RESET, "contended_seconds",
		"Time in which the CPU was contended"),
};

static void write_build(const struct metrics_page *page, struct metrics_text *text,
			const char *version)
{
	static const struct metrics_family family = {
		"build", "The broker's version, and that of its statistics pages", METRICS_INFO};
	char labels[METRICS_LABEL_BYTES], name[64];

	metrics_escape(name, sizeof(name), version);
	snprintf(labels, sizeof(labels), "version=\"%s\",statistics=\"%u.%u\"", name,
		 page->header.abi_major, page->header.abi_minor);
	metrics_begin(text, &family);
	metrics_count(text, NULL, labels, NULL, 1);
}

static void write_turns(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"reactor_turn_overruns",
		"Turns of the thread that serves all clients that took more than ten budgets, by "
		"what took most of them",
		METRICS_COUNTER};
	static const char *const labels[RBK_TURN_CAUSES] = {
		[RBK_TURN_ENTRIES] = "cause=\"entries\"",
		[RBK_TURN_COMPLETIONS] = "cause=\"completions\"",
		[RBK_TURN_MESSAGES] = "cause=\"messages\"",
		[RBK_TURN_PLANS] = "cause=\"plans\"",
		[RBK_TURN_RINGS] = "cause=\"rings\"",
		[RBK_TURN_CONNECTIONS] = "cause=\"connections\"",
		[RBK_TURN_ENDS] = "cause=\"ends\"",
		[RBK_TURN_BELLS] = "cause=\"bells\"",
		[RBK_TURN_RESIDENCY] = "cause=\"residency\"",
		[RBK_TURN_JOBS] = "cause=\"jobs\"",
		[RBK_TURN_TIMERS] = "cause=\"timers\"",
		[RBK_TURN_STATISTICS] = "cause=\"statistics\"",
		[RBK_TURN_KERNEL] = "cause=\"kernel\"",
		[RBK_TURN_OTHER] = "cause=\"other\"",
	};

	metrics_begin(text, &family);
	for (unsigned int i = 0; i < RBK_TURN_CAUSES; i++) {
		metrics_count(text, NULL, labels[i], NULL, page->broker.n_turn_overruns[i]);
		metrics_write_created(page, text, SINCE_RESET, labels[i], NULL);
	}
}

static void write_roles(const struct metrics_page *page, struct metrics_text *text)
{
	static const char *const labels[] = {"role=\"reactor\"", "role=\"worker\""};
	static const struct metrics_family delay = {
		"run_queue_delay_seconds",
		"How long the broker's threads waited for a processor; quantiles of the last ten "
		"seconds, the worst thread's",
		METRICS_SUMMARY,
	};
	static const struct metrics_family preemptions = {
		"preemptions", "How often somebody else was put in place of one of these threads",
		METRICS_COUNTER};

	metrics_begin(text, &delay);
	for (size_t i = 0; page->has_roles && i < ARRAY_SIZE(labels); i++)
		metrics_write_delay(page, text, &page->roles[i], labels[i]);
	metrics_begin(text, &preemptions);
	for (size_t i = 0; page->has_roles && i < ARRAY_SIZE(labels); i++) {
		if (!(page->roles[i].flags & RBK_STATS_DELAY_KNOWN))
			continue;
		metrics_count(text, NULL, labels[i], NULL, page->roles[i].n_preemptions);
		metrics_write_created(page, text, SINCE_RESET, labels[i], NULL);
	}
}

void metrics_write_broker(const struct metrics_page *page, const char *version,
			  struct metrics_text *text)
{
	write_build(page, text, version);
	metrics_write_members(page, text, header_members, ARRAY_SIZE(header_members),
			      &page->header);
	metrics_write_members(page, text, broker_members, ARRAY_SIZE(broker_members),
			      &page->broker);
	write_turns(page, text);
	if (page->has_contention)
		metrics_write_members(page, text, contention_members,
				      ARRAY_SIZE(contention_members), &page->contention);
	write_roles(page, text);
}
