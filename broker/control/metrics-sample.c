/* SPDX-License-Identifier: MIT */
/*
 * Samples of records
 *
 * A page leaves out values that are not known (RBK_STATS_ABSENT), limits that are not set, and
 * values that are no number: Prometheus takes an absent series for "not known". Counts begin when
 * the broker starts or when they were last reset; which of the two is in the tables.
 */
#include "control/metrics-private.h"

#include <stdio.h>
#include <string.h>

/* A moment on the broker's clock, on CLOCK_REALTIME; 0 if that makes no sense. */
static uint64_t realtime_of(const struct metrics_page *page, uint64_t at_ns)
{
	int64_t moment;

	if (at_ns > INT64_MAX ||
	    __builtin_add_overflow((int64_t)at_ns, page->header.realtime_offset_ns, &moment) ||
	    moment < 0)
		return 0;
	return (uint64_t)moment;
}

void metrics_write_created(const struct metrics_page *page, struct metrics_text *text,
			   enum since since, const char *labels, const char *more)
{
	const struct rbk_stats_header *header = &page->header;

	if (since != SINCE_NOTHING)
		metrics_created(text, labels, more,
				realtime_of(page, since == SINCE_RESET ? header->reset_at_ns
								       : header->started_at_ns));
}

void metrics_write_member(const struct metrics_page *page, struct metrics_text *text,
			  const struct member *member, const void *record, const char *labels,
			  const char *more)
{
	static const unsigned int digits[] = {[NS] = 9, [PERCENT] = 2, [MILLI] = 3, [MICRO] = 6};
	const char *at = (const char *)record + member->offset;
	uint64_t value = 0;
	uint32_t word;
	double real;

	switch (member->scale) {
	case REAL:
		memcpy(&real, at, sizeof(real));
		metrics_real(text, NULL, labels, more, real);
		return;
	case NUMBER:
	case FLAG:
		memcpy(&word, at, sizeof(word));
		metrics_count(text, NULL, labels, more,
			      member->scale == FLAG ? (word & member->flag) != 0 : word);
		return;
	case MOMENT:
		memcpy(&value, at, sizeof(value));
		metrics_decimal(text, NULL, labels, more, realtime_of(page, value), 9);
		return;
	case COUNT:
	case NS:
	case PERCENT:
	case MILLI:
	case MICRO:
		break;
	}
	memcpy(&value, at, sizeof(value));
	/* Absent, without a limit, or less than nothing. */
	if (value > INT64_MAX)
		return;
	metrics_decimal(text, NULL, labels, more, value,
			member->scale == COUNT ? 0 : digits[member->scale]);
	if (member->family.type == METRICS_COUNTER)
		metrics_write_created(page, text, member->since, labels, more);
}

void metrics_write_members(const struct metrics_page *page, struct metrics_text *text,
			   const struct member *members, size_t n, const void *record)
{
	for (size_t i = 0; i < n; i++) {
		metrics_begin(text, &members[i].family);
		metrics_write_member(page, text, &members[i], record, NULL, NULL);
	}
}

static const char *reason_name(unsigned int reason)
{
	static const char *const names[RBK_REASON_COUNT] = {
		[RBK_REASON_NONE] = "reason=\"none\"",
		[RBK_REASON_GPU_AVAILABLE] = "reason=\"gpu-available\"",
		[RBK_REASON_GPU_UNAVAILABLE] = "reason=\"gpu-unavailable\"",
		[RBK_REASON_CPU_FALLBACK] = "reason=\"cpu-fallback\"",
		[RBK_REASON_COST_MODEL] = "reason=\"cost-model\"",
		[RBK_REASON_MEMORY_CONSTRAINT] = "reason=\"memory-constraint\"",
		[RBK_REASON_USER_PREFERENCE] = "reason=\"user-preference\"",
		[RBK_REASON_BELOW_THRESHOLD] = "reason=\"below-threshold\"",
		[RBK_REASON_CONTENTION] = "reason=\"contention\"",
		[RBK_REASON_BREAKER_OPEN] = "reason=\"breaker-open\"",
	};

	return names[reason];
}

void metrics_write_reasons(const struct metrics_page *page, struct metrics_text *text,
			   const uint64_t *reasons, const char *labels)
{
	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++) {
		metrics_count(text, NULL, labels, reason_name(i), reasons[i]);
		metrics_write_created(page, text, SINCE_RESET, labels, reason_name(i));
	}
}

void metrics_write_delay(const struct metrics_page *page, struct metrics_text *text,
			 const struct rbk_stats_delay *delay, const char *labels)
{
	/* A record that has only counts has no percentiles. */
	if (delay->flags & RBK_STATS_DELAY_KNOWN) {
		metrics_decimal(text, NULL, labels, "quantile=\"0.5\"", delay->p50_ns, 9);
		metrics_decimal(text, NULL, labels, "quantile=\"0.99\"", delay->p99_ns, 9);
		metrics_decimal(text, NULL, labels, "quantile=\"1\"", delay->max_ns, 9);
	}
	metrics_decimal(text, "_sum", labels, NULL, delay->wait_ns, 9);
	metrics_count(text, "_count", labels, NULL, delay->n_waits);
	metrics_write_created(page, text, SINCE_RESET, labels, NULL);
}

void metrics_device_label(char label[static 32], uint32_t index)
{
	snprintf(label, 32, "device=\"%u\"", index);
}
