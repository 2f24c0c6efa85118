/* SPDX-License-Identifier: MIT */
/*
 * Metrics of what the broker does beside tasks: the setup thread, the threads that close, and what
 * was done about devices without progress.
 *
 * No tenant is a label here: whose slice was the longest is for brokerctl status to say.
 */
#include "control/metrics-private.h"

static const char *const causes[RBK_SETUP_CAUSES] = {
	[RBK_SETUP_OTHER] = "cause=\"other\"",
	[RBK_SETUP_PLAN_VERIFY] = "cause=\"verify\"",
	[RBK_SETUP_PLAN_MEASURE] = "cause=\"measure\"",
	[RBK_SETUP_PLAN_PREPARE] = "cause=\"prepare\"",
	[RBK_SETUP_PLAN_RELEASE] = "cause=\"release\"",
	[RBK_SETUP_ARENA_MAP] = "cause=\"map\"",
	[RBK_SETUP_ARENA_UNMAP] = "cause=\"unmap\"",
	[RBK_SETUP_RING] = "cause=\"ring\"",
	[RBK_SETUP_LOAD] = "cause=\"load\"",
	[RBK_SETUP_UNLOAD] = "cause=\"unload\"",
	[RBK_SETUP_REOPEN] = "cause=\"reopen\"",
	[RBK_SETUP_CALIBRATION] = "cause=\"calibration\"",
	[RBK_SETUP_FILE] = "cause=\"file\"",
};

void metrics_write_upkeep(const struct metrics_page *page, struct metrics_text *text)
{
	const struct rbk_stats_upkeep *upkeep = &page->upkeep;
	const struct figure *figure;
	const char *device;

	if (!page->has_upkeep)
		return;
	metrics_write_figures(page, text, upkeep_figures, upkeep);
	for (figure = slices_figures; !figure_is_end(figure); figure++) {
		if (!metrics_begin_figure(text, figure))
			continue;
		for (unsigned int i = 0; i < RBK_SETUP_CAUSES; i++)
			metrics_write_figure(page, text, figure, &upkeep->setup[i], causes[i],
					     NULL);
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
