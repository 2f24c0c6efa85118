/* SPDX-License-Identifier: MIT */
/* Metrics of the whole broker: its objects for clients, its threads and its processors */
#include "control/metrics-private.h"

#include <stdio.h>

#include "util/checked.h"

static void write_build(const struct metrics_page *page, struct metrics_text *text,
			const char *version)
{
	static const struct metrics_family family = {
		"build", "Versions of the broker and of its statistics pages", METRICS_INFO};
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
		"Turns of the reactor, the thread that serves all clients, that took more than ten "
		"budgets, by the work that took most of the turn",
		METRICS_COUNTER};
	char label[METRICS_WORD_BYTES];

	metrics_begin(text, &family);
	for (unsigned int i = 0; i < RBK_TURN_CAUSES; i++) {
		snprintf(label, sizeof(label), "cause=\"%s\"", stats_turn_cause(i)->name);
		metrics_count(text, NULL, label, NULL, page->broker.n_turn_overruns[i]);
		metrics_write_created(page, text, FIGURE_SINCE_RESET, label, NULL);
	}
}

static void write_roles(const struct metrics_page *page, struct metrics_text *text)
{
	static const char *const labels[] = {"role=\"reactor\"", "role=\"worker\""};
	static const struct metrics_family delay = {
		"run_queue_delay_seconds",
		"Time that the broker's threads waited for a processor: quantiles of the last ten "
		"seconds, of the thread that waited longest",
		METRICS_SUMMARY,
	};
	static const struct metrics_family preemptions = {
		"preemptions",
		"Times that another thread took the processor from one of the broker's threads",
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
