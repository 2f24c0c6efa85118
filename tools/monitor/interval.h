#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What happened between two copies of a record
 *
 * Counts go up, but for a reset, or a record that has another owner by now: then the later copy
 * stands for itself. Times may jump, and figures be absurd: results are finite, and never negative.
 */
#include <stdint.h>

#include <ringbroker/stats.h>

/* How far a count went from @then to @now. */
uint64_t interval_count(uint64_t now, uint64_t then);

/* How often a second, over @ns; 0 if that is 0. */
double interval_rate(uint64_t now, uint64_t then, uint64_t ns);

/* How much of the way of @whole_now was @now's, 0 to 1; a negative number if nothing went. */
double interval_part(uint64_t now, uint64_t then, uint64_t whole_now, uint64_t whole_then);

/* What a histogram counted in between, into @ret. Return: how many that are. */
uint64_t interval_histogram(const uint64_t now[RBK_STATS_BUCKETS],
			    const uint64_t then[RBK_STATS_BUCKETS],
			    uint64_t ret[RBK_STATS_BUCKETS]);

/* The time below which a part @q of what a histogram counted is, in ns; 0: nothing was. */
double histogram_quantile(const uint64_t buckets[RBK_STATS_BUCKETS], double q);
