/* SPDX-License-Identifier: MIT */
/*
 * Samples of records
 *
 * Samples are left out for values that are not known (RBK_STATS_ABSENT), limits that are not set,
 * and values that are no number: Prometheus takes an absent series for "not known". Counts begin
 * when the broker starts or when they were last reset, by their kind.
 */
#include "control/metrics-private.h"

#include <string.h>

/* Convert a time of the broker's clock to CLOCK_REALTIME; 0 if it is not representable. */
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
			   enum figure_kind kind, const char *labels, const char *more)
{
	const struct rbk_stats_header *header = &page->header;

	if (kind == FIGURE_SINCE_START || kind == FIGURE_SINCE_RESET)
		metrics_created(text, labels, more,
				realtime_of(page, kind == FIGURE_SINCE_RESET
							  ? header->reset_at_ns
							  : header->started_at_ns));
}

static const char *reason_name(unsigned int reason)
{
	static const char *const names[RBK_REASON_COUNT] = {
#define NAME(id, name) [RBK_REASON_##id] = "reason=\"" name "\"",
		STATS_REASON_NAMES(NAME)
#undef NAME
	};

	return names[reason];
}

static void write_reasons(const struct metrics_page *page, struct metrics_text *text,
			  const uint64_t *reasons, const char *labels)
{
	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++) {
		metrics_count(text, NULL, labels, reason_name(i), reasons[i]);
		metrics_write_created(page, text, FIGURE_SINCE_RESET, labels, reason_name(i));
	}
}

bool metrics_begin_figure(struct metrics_text *text, const struct figure *figure)
{
	const bool is_gauge = figure->kind == FIGURE_GAUGE;
	const struct metrics_family family = {figure->metric, figure->help,
					      is_gauge ? METRICS_GAUGE : METRICS_COUNTER};

	if (figure->metric)
		metrics_begin(text, &family);
	return figure->metric;
}

void metrics_write_figure(const struct metrics_page *page, struct metrics_text *text,
			  const struct figure *figure, const void *record, const char *labels,
			  const char *more)
{
	static const unsigned int digits[] = {[FIGURE_NS] = 9,
					      [FIGURE_MOMENT] = 9,
					      [FIGURE_PERCENT] = 2,
					      [FIGURE_MILLI] = 3,
					      [FIGURE_MICRO] = 6};
	const void *at = (const char *)record + figure->offset;
	uint64_t value = figure_number(figure, record);
	double real;

	if (figure->type == FIGURE_REASONS) {
		write_reasons(page, text, at, labels);
		return;
	}
	if (figure->type == FIGURE_REAL) {
		real = *(const double *)at;
		for (unsigned int i = 0; i < digits[figure->unit]; i++)
			real /= 10;
		metrics_real(text, NULL, labels, more, real);
		return;
	}
	if (figure->unit == FIGURE_MOMENT)
		value = realtime_of(page, value);
	/* absent, without a limit, or negative */
	if (figure_is_null(figure, value) || value > INT64_MAX)
		return;
	metrics_decimal(text, NULL, labels, more, value, digits[figure->unit]);
	metrics_write_created(page, text, figure->kind, labels, more);
}

void metrics_write_figures(const struct metrics_page *page, struct metrics_text *text,
			   const struct figure *figures, const void *record)
{
	for (const struct figure *figure = figures; !figure_is_end(figure); figure++)
		if (metrics_begin_figure(text, figure))
			metrics_write_figure(page, text, figure, record, NULL, NULL);
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
	metrics_write_created(page, text, FIGURE_SINCE_RESET, labels, NULL);
}

const char *metrics_device_label(uint32_t index)
{
	static const char *const labels[] = {
		"device=\"0\"",  "device=\"1\"",  "device=\"2\"",  "device=\"3\"",
		"device=\"4\"",  "device=\"5\"",  "device=\"6\"",  "device=\"7\"",
		"device=\"8\"",  "device=\"9\"",  "device=\"10\"", "device=\"11\"",
		"device=\"12\"", "device=\"13\"", "device=\"14\"", "device=\"15\"",
	};

	_Static_assert(sizeof(labels) / sizeof(labels[0]) == RBK_MAX_DEVICES, "a label for each");
	return labels[index];
}
