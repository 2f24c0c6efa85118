#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures as members of JSON objects
 *
 * Names, order and types are those of the tables of figures.
 */
#include "shm/stats-figures.h"

/* Writes all figures of a copy of a record that have names in JSON. */
void json_figures(const struct figure *figures, const void *record);
/*
 * Writes figures from the one named @first to the one named @last; NULL: from the first, to the
 * last. @realtime_offset_ns is the page's; moments are written as nanoseconds since 1970.
 */
void json_figures_part(const struct figure *figures, const void *record, int64_t realtime_offset_ns,
		       const char *first, const char *last);
