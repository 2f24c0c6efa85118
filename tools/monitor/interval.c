/* SPDX-License-Identifier: MIT */
/* Differences of counts that may have been reset, and values derived from them. */
#include "monitor/interval.h"

uint64_t interval_count(uint64_t now, uint64_t then)
{
	return now >= then ? now - then : now;
}

double interval_rate(uint64_t now, uint64_t then, uint64_t ns)
{
	return ns ? (double)interval_count(now, then) * 1e9 / (double)ns : 0;
}

double interval_part(uint64_t now, uint64_t then, uint64_t whole_now, uint64_t whole_then)
{
	double whole = (double)interval_count(whole_now, whole_then), part;

	if (whole == 0)
		return -1;
	part = (double)interval_count(now, then) / whole;
	return part > 1 ? 1 : part;
}

uint64_t interval_histogram(const uint64_t now[RBK_STATS_BUCKETS],
			    const uint64_t then[RBK_STATS_BUCKETS], uint64_t ret[RBK_STATS_BUCKETS])
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < RBK_STATS_BUCKETS; i++) {
		ret[i] = interval_count(now[i], then[i]);
		n += ret[i];
	}
	return n;
}

double histogram_quantile(const uint64_t buckets[RBK_STATS_BUCKETS], double q)
{
	uint64_t n = 0, below = 0;
	unsigned int i;

	for (i = 0; i < RBK_STATS_BUCKETS; i++)
		n += buckets[i];
	if (n == 0)
		return 0;
	for (i = 0; i + 1 < RBK_STATS_BUCKETS; i++) {
		below += buckets[i];
		if ((double)below >= q * (double)n)
			break;
	}
	/* upper end of the bucket */
	return (double)rbk_stats_bucket_ns(i + 1 < RBK_STATS_BUCKETS ? i + 1 : i);
}
