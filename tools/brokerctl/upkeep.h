#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The broker's work beside tasks, as brokerctl status shows it
 *
 * The reactor's turns, the setup thread, the host memory of all tenants, the threads that close,
 * and what was done about devices without progress. For administrators: the root page has it.
 */
#include <stdbool.h>

#include "records.h"

struct upkeep {
	const struct rbk_stats_view *root; /* NULL: none, and then the rest is 0 */
	struct rbk_stats_broker broker;
	struct rbk_stats_upkeep figures;
	bool has_figures;
};

/* @root: NULL if there is none. Borrowed. */
void upkeep_read(struct upkeep *upkeep, const struct rbk_stats_view *root);

/* Return the counts of repairs after stalls of a device; all are 0 where nothing is known. */
const struct rbk_stats_mended *upkeep_mended(const struct upkeep *upkeep, uint32_t device);

/* Calls @warn for each thing that is wrong, with a sentence that lives until it returns. */
void upkeep_judge(const struct upkeep *upkeep, void (*warn)(void *data, const char *text),
		  void *data);

/* Lines of brokerctl status, and members of its object. */
void upkeep_print(const struct upkeep *upkeep);
void upkeep_json(const struct upkeep *upkeep);
