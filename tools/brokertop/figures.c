/* SPDX-License-Identifier: MIT */
/* Figures for narrow columns: scaling to units. */
#include "figures.h"

#include <math.h>
#include <stdio.h>

#include <ringbroker/stats.h>

static const struct figure_text unknown = {"–"};

struct unit {
	double size;
	const char *name;
};

/* Format in the largest unit that is not above the value. @units are in ascending order. */
static struct figure_text scaled(double value, const struct unit *units, unsigned int n,
				 double decimal)
{
	struct figure_text figure;
	unsigned int i = 0;

	if (!isfinite(value))
		return unknown;
	/* A value that would be rounded up to a thousand is shown in the next unit. */
	while (i + 1 < n && value >= units[i + 1].size * 0.9995)
		i++;
	value /= units[i].size;
	if (value >= 9999.5)
		snprintf(figure.text, sizeof(figure.text), ">9999%s", units[i].name);
	else
		snprintf(figure.text, sizeof(figure.text), "%.*f%s",
			 value < decimal - 0.05 && value > 0 && units[i].size > 1, value,
			 units[i].name);
	return figure;
}

#define SCALED(value, units, decimal) \
	scaled(value, units, sizeof(units) / sizeof((units)[0]), decimal)

struct figure_text figure_ns(double ns)
{
	static const struct unit units[] = {{1, " ns"},     {1e3, " µs"},   {1e6, " ms"},
					    {1e9, " s"},    {6e10, " min"}, {3.6e12, " h"},
					    {8.64e13, " d"}};

	return ns > 0 ? SCALED(ns, units, 10) : unknown;
}

struct figure_text figure_bytes(double bytes)
{
	static const struct unit units[] = {{1, " B"},        {0x1p10, " KiB"}, {0x1p20, " MiB"},
					    {0x1p30, " GiB"}, {0x1p40, " TiB"}, {0x1p50, " PiB"},
					    {0x1p60, " EiB"}};

	return bytes >= 0 ? SCALED(bytes, units, 10) : unknown;
}

struct figure_text figure_bytes_of(uint64_t bytes)
{
	return bytes == RBK_STATS_ABSENT ? unknown : figure_bytes((double)bytes);
}

struct figure_text figure_count(double count)
{
	static const struct unit units[] = {{1e3, "k"},  {1e6, "M"},  {1e9, "G"},
					    {1e12, "T"}, {1e15, "P"}, {1e18, "E"}};
	struct figure_text figure;

	if (!(count >= 0))
		return unknown;
	/* Up to four digits need no unit. */
	if (!(count < 9999.5))
		return SCALED(count, units, 100);
	snprintf(figure.text, sizeof(figure.text), "%.0f", count);
	return figure;
}

struct figure_text figure_rate(double rate)
{
	struct figure_text figure;

	if (!(rate > 0 && rate < 9.95))
		return figure_count(rate);
	snprintf(figure.text, sizeof(figure.text), "%.1f", rate);
	return figure;
}

struct figure_text figure_part(double part)
{
	struct figure_text figure;

	if (!(part >= 0) || !isfinite(part))
		return unknown;
	if (part > 9.99)
		part = 9.99;
	snprintf(figure.text, sizeof(figure.text), "%.0f%%", 100 * part);
	return figure;
}

struct figure_text figure_duration(uint64_t ns)
{
	unsigned long long seconds = ns / 1000000000u, days = seconds / 86400;
	struct figure_text figure;

	if (days > 0)
		snprintf(figure.text, sizeof(figure.text), "%llud %02llu:%02llu", days,
			 seconds / 3600 % 24, seconds / 60 % 60);
	else
		snprintf(figure.text, sizeof(figure.text), "%02llu:%02llu:%02llu", seconds / 3600,
			 seconds / 60 % 60, seconds % 60);
	return figure;
}

struct figure_text figure_of(const struct figure *figure, const void *record)
{
	const double value = figure_real(figure, record);
	struct figure_text name;

	switch (figure->unit) {
	case FIGURE_NAME:
		if (isnan(value))
			return unknown;
		snprintf(name.text, sizeof(name.text), "%.0f", value);
		return name;
	case FIGURE_BYTES:
		return figure_bytes(value);
	case FIGURE_NS:
		return figure_ns(value);
	case FIGURE_PERCENT:
		if (isnan(value))
			return unknown;
		snprintf(name.text, sizeof(name.text), "%.0f%%", value);
		return name;
	case FIGURE_MILLI:
	case FIGURE_MICRO:
		return figure_rate(value);
	}
	return figure->type == FIGURE_REAL ? figure_rate(value) : figure_count(value);
}
