/* SPDX-License-Identifier: MIT */
/* Metrics of the broker as a whole: what clients have, its threads and its processors. */
#include "control/metrics-private.h"

#include <stdio.h>

#include "util/checked.h"

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
		metrics_write_created(page, text, FIGURE_SINCE_RESET, labels[i], NULL);
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
		metrics_write_created(page, text, FIGURE_SINCE_RESET, labels[i], NULL);
	}
}

void metrics_write_broker(const struct metrics_page *page, const char *version,
			  struct metrics_text *text)
{
	write_build(page, text, version);
	metrics_write_figures(page, text, header_figures, &page->header);
	metrics_write_figures(page, text, broker_figures, &page->broker);
	write_turns(page, text);
	if (page->has_contention)
		metrics_write_figures(page, text, contention_figures, &page->contention);
	write_roles(page, text);
}
