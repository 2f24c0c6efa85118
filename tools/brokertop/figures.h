#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Figures for narrow columns
 *
 * A figure has two or three digits and a unit, at most seven columns in all. An en dash stands for
 * a value that is not known.
 */
#include <stdint.h>

#include "shm/stats-figures.h"

struct figure_text {
	char text[24]; /* UTF-8 */
};

/* Format as "41 µs"; a dash unless @ns is above 0. */
struct figure_text figure_ns(double ns);
/* Format as "6.9 GiB"; a dash for RBK_STATS_ABSENT, which also means no limit. */
struct figure_text figure_bytes(double bytes);
struct figure_text figure_bytes_of(uint64_t bytes);
/* Format as "47.9k"; a dash for negative values. */
struct figure_text figure_count(double count);
/* Format a number per second, with a decimal if it is small: "0.4". */
struct figure_text figure_rate(double rate);
/* Format a fraction from 0 to 1 as "83%"; a dash for negative values. */
struct figure_text figure_part(double part);
/* Format as "3d 04:12" or "00:12:33". */
struct figure_text figure_duration(uint64_t ns);
/* Format the record's number in its unit. */
struct figure_text figure_of(const struct figure *figure, const void *record);
