#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A statistics page as metrics
 *
 * The figures of a root page, with a bounded set of labels: tenants, which the policy names,
 * devices, which the broker has, and words of the broker's own. No plan, session or process gets a
 * series, so no client can make one. Any thread: a page is only read.
 */
#include <stdint.h>
#include <ringbroker/stats.h>

#include "control/metrics-process.h"
#include "control/metrics-text.h"
#include "util/cleanup.h"

/* A copy of a page, taken at one time */
struct metrics_page;

/*
 * Make an empty copy for pages with as many records as @view has.
 * Return: 0 or -ENOMEM.
 */
int metrics_page_new(const struct rbk_stats_view *view, struct metrics_page **ret);
struct metrics_page *metrics_page_free(struct metrics_page *page);

/*
 * Copy the page of @view, waiting at most a hundredth of a second in all for records that are being
 * written; a record that is still being written then may mix old and new figures.
 */
void metrics_page_take(struct metrics_page *page, const struct rbk_stats_view *view);

/* Write the copy, and figures of the broker's process. @version is the broker's. */
void metrics_page_write(const struct metrics_page *page, const char *version,
			const struct metrics_process *process, struct metrics_text *text);

DEFINE_CLEANUP(struct metrics_page *, metrics_page_free)
