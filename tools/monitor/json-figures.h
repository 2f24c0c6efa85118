#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures as members of JSON objects
 *
 * The tables of figures determine names, order and types.
 */
#include "shm/stats-figures.h"

/* Write all figures of a copied record that have JSON names. */
void json_figures(const struct figure *figures, const void *record);
/*
 * Write the figures from @first to @last, by JSON name; NULL: from the first, or to the last.
 * @realtime_offset_ns is the page's; times are written as nanoseconds since 1970.
 */
void json_figures_part(const struct figure *figures, const void *record, int64_t realtime_offset_ns,
		       const char *first, const char *last);
