#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Differences between two copies of a record
 *
 * Counts increase, except after a reset or when the record has a new owner. Then the later count
 * alone is the difference. Times may jump and figures may be absurd: results are finite and never
 * negative.
 */
#include <stdint.h>

#include <ringbroker/stats.h>

/* Return the increase of a count from @then to @now. */
uint64_t interval_count(uint64_t now, uint64_t then);

/* Return the increase per second over @ns; 0 if @ns is 0. */
double interval_rate(uint64_t now, uint64_t then, uint64_t ns);

/*
 * Return the increase of @now as a fraction of the increase of @whole_now, from 0 to 1; negative if
 * the whole did not increase.
 */
double interval_part(uint64_t now, uint64_t then, uint64_t whole_now, uint64_t whole_then);

/*
 * Store in @ret the counts that a histogram gained.
 * Return: their sum.
 */
uint64_t interval_histogram(const uint64_t now[RBK_STATS_BUCKETS],
			    const uint64_t then[RBK_STATS_BUCKETS],
			    uint64_t ret[RBK_STATS_BUCKETS]);

/*
 * Return the time in ns below which a fraction @q of a histogram's counts lies; 0 if it is empty.
 */
double histogram_quantile(const uint64_t buckets[RBK_STATS_BUCKETS], double q);
