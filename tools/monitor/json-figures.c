/* SPDX-License-Identifier: MIT */
/* Figures as members of JSON objects. */
#include "monitor/json-figures.h"

#include <assert.h>
#include <string.h>

#include <ringbroker.h>

#include "monitor/interval.h"
#include "monitor/json.h"

static void json_times(const char *name, const uint64_t buckets[RBK_STATS_BUCKETS])
{
	json_object(name);
	json_number("p50", histogram_quantile(buckets, 0.5));
	json_number("p90", histogram_quantile(buckets, 0.9));
	json_number("p99", histogram_quantile(buckets, 0.99));
	json_object_end();
}

static void json_reasons(const char *name, const uint64_t reasons[RBK_STATS_MAX_REASONS])
{
	json_object(name);
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++)
		json_unsigned(rbk_reason_name(i), reasons[i]);
	json_object_end();
}

static void json_figure(const struct figure *figure, const void *record, int64_t realtime_offset_ns)
{
	const void *at = (const char *)record + figure->offset;
	uint64_t value = figure_number(figure, record);

	switch (figure->type) {
	case FIGURE_REAL:
		json_number(figure->json, *(const double *)at);
		return;
	case FIGURE_TEXT:
		json_string(figure->json, at);
		return;
	case FIGURE_TIMES:
		json_times(figure->json, at);
		return;
	case FIGURE_REASONS:
		json_reasons(figure->json, at);
		return;
	}
	if (figure_is_null(figure, value))
		value = RBK_STATS_ABSENT;
	else if (figure->unit == FIGURE_MOMENT)
		value += (uint64_t)realtime_offset_ns;
	if (figure->flag)
		json_boolean(figure->json, value);
	else if (figure->null != FIGURE_NEVER)
		json_optional(figure->json, value);
	else if (figure->unit == FIGURE_MOMENT)
		json_signed(figure->json, (int64_t)value);
	else
		json_unsigned(figure->json, value);
}

void json_figures_part(const struct figure *figures, const void *record, int64_t realtime_offset_ns,
		       const char *first, const char *last)
{
	const char *object = NULL;
	bool has_begun = !first, has_ended = !last;

	for (const struct figure *figure = figures; !figure_is_end(figure); figure++) {
		if (!figure->json)
			continue;
		has_begun = has_begun || strcmp(figure->json, first) == 0;
		if (!has_begun)
			continue;
		if (strcmp(figure->object ? figure->object : "", object ? object : "") != 0) {
			if (object)
				json_object_end();
			object = figure->object;
			if (object)
				json_object(object);
		}
		json_figure(figure, record, realtime_offset_ns);
		has_ended = has_ended || strcmp(figure->json, last) == 0;
		if (last && has_ended)
			break;
	}
	if (object)
		json_object_end();
	assert(has_begun && has_ended);
}

void json_figures(const struct figure *figures, const void *record)
{
	json_figures_part(figures, record, 0, NULL, NULL);
}
