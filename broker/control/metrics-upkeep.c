/* SPDX-License-Identifier: MIT */
/*
 * Metrics of the broker's work beside tasks: the setup thread, the closer threads, and the repairs
 * of devices without progress
 *
 * No tenant is a label here: brokerctl status shows the tenant of the longest slice.
 */
#include "control/metrics-private.h"

#include <stdio.h>

void metrics_write_upkeep(const struct metrics_page *page, struct metrics_text *text)
{
	const struct rbk_stats_upkeep *upkeep = &page->upkeep;
	const struct figure *figure;
	char cause[METRICS_WORD_BYTES];
	const char *device;

	if (!page->has_upkeep)
		return;
	metrics_write_figures(page, text, upkeep_figures, upkeep);
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
