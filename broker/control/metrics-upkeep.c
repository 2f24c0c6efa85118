/* SPDX-License-Identifier: MIT */
/*
 * Metrics of the broker's work beside tasks: the setup thread, the closer threads, and the repairs
 * of devices without progress
 *
 * No tenant is a label here: brokerctl status shows the tenant of the longest slice.
 */
#include "control/metrics-private.h"

#include <stdio.h>

static void write_sandbox(const struct rbk_stats_upkeep *upkeep, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"sandbox_state",
		"1 for what becomes of system calls that the broker's threads do not need: on "
		"(they "
		"fail), log (they happen and are logged), off (they happen), lacking (they happen, "
		"as the kernel or the container has no filters), not-built (they happen, as the "
		"broker was built without) or refused (some happen, as the kernel refused a "
		"filter)",
		METRICS_GAUGE};
	char label[METRICS_WORD_BYTES];

	if (upkeep->sandbox == RBK_STATS_SANDBOX_UNKNOWN)
		return;
	metrics_begin(text, &family);
	for (uint32_t i = RBK_STATS_SANDBOX_ON; i < RBK_STATS_SANDBOXES; i++) {
		snprintf(label, sizeof(label), "state=\"%s\"", stats_sandbox(i)->name);
		metrics_count(text, NULL, label, NULL, upkeep->sandbox == i);
	}
}

void metrics_write_upkeep(const struct metrics_page *page, struct metrics_text *text)
{
	const struct rbk_stats_upkeep *upkeep = &page->upkeep;
	const struct figure *figure;
	char cause[METRICS_WORD_BYTES];
	const char *device;

	if (!page->has_upkeep)
		return;
	metrics_write_figures(page, text, upkeep_figures, upkeep);
	write_sandbox(upkeep, text);
	for (figure = slices_figures; !figure_is_end(figure); figure++) {
		if (!metrics_begin_figure(text, figure))
			continue;
		for (unsigned int i = 0; i < RBK_SETUP_CAUSES; i++) {
			snprintf(cause, sizeof(cause), "cause=\"%s\"", stats_setup_cause(i)->name);
			metrics_write_figure(page, text, figure, &upkeep->setup[i], cause, NULL);
		}
	}
	for (figure = mended_figures; !figure_is_end(figure); figure++) {
		if (!metrics_begin_figure(text, figure))
			continue;
		for (uint32_t i = 0; i < page->n_devices; i++) {
			device = metrics_device_label(i);
			metrics_write_figure(page, text, figure, &upkeep->mended[i], device, NULL);
		}
	}
}
