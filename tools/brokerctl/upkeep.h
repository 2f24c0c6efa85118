#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Upkeep: the broker's work beside tasks, as brokerctl status shows it
 *
 * Upkeep covers the reactor's turns, the setup thread, the host memory of all tenants, the closer
 * threads, and the broker's reaction to stalled devices. Only administrators see it, since only the
 * root page has it.
 */
#include <stdbool.h>

#include "records.h"

struct upkeep {
	const struct rbk_stats_view *root; /* NULL: not available, and all other members are 0 */
	struct rbk_stats_broker broker;
	struct rbk_stats_upkeep figures;
	bool has_figures;
};

/* @root: NULL if not available. Borrowed. */
void upkeep_read(struct upkeep *upkeep, const struct rbk_stats_view *root);

/* Return the counts of repairs after stalls of a device; all are 0 if nothing is known. */
const struct rbk_stats_mended *upkeep_mended(const struct upkeep *upkeep, uint32_t device);

/* Call @warn for each problem, with a sentence that is valid during the call. */
void upkeep_judge(const struct upkeep *upkeep, void (*warn)(void *data, const char *text),
		  void *data);

/* Print the lines of brokerctl status, or the members of its JSON object. */
void upkeep_print(const struct upkeep *upkeep);
void upkeep_json(const struct upkeep *upkeep);
