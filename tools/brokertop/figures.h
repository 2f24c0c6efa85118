#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures for narrow columns
 *
 * Two or three digits and a unit, seven columns at most, whatever the figure is; an en dash for
 * what is not known.
 */
#include <stdint.h>

#include "shm/stats-figures.h"

struct figure_text {
	char text[24]; /* UTF-8 */
};

/* "41 µs"; a dash unless it is above 0. */
struct figure_text figure_ns(double ns);
/* "6.9 GiB"; a dash for RBK_STATS_ABSENT, which is also no limit. */
struct figure_text figure_bytes(double bytes);
struct figure_text figure_bytes_of(uint64_t bytes);
/* "47.9k"; a dash if it is negative. */
struct figure_text figure_count(double count);
/* The same of what happens that often a second, "0.4". */
struct figure_text figure_rate(double rate);
/* "83%" of a part, 0 to 1; a dash if it is negative. */
struct figure_text figure_part(double part);
/* "3d 04:12", "00:12:33" */
struct figure_text figure_duration(uint64_t ns);
/* The number of a record in its unit. */
struct figure_text figure_of(const struct figure *figure, const void *record);
