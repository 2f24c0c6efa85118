/* SPDX-License-Identifier: MIT */
/* Figures by name, and figures as numbers for people. */
#include "shm/stats-figures.h"

#include <math.h>
#include <string.h>

const struct figure *figure_find(const struct figure *figures, const char *json)
{
	for (; !figure_is_end(figures); figures++)
		if (figures->json && strcmp(figures->json, json) == 0)
			return figures;
	return NULL;
}

const struct figure *lease_state_figure(unsigned int i)
{
	static const char *const states[] = {"over",    "waiting", "held",   "shrinking",
					     "capped",  "urgent",  "high",   "background",
					     "sharing", "queued",  "sleeps", "restored"};

	return i < sizeof(states) / sizeof(states[0]) ? figure_find(lease_figures, states[i])
						      : NULL;
}

double figure_real(const struct figure *figure, const void *record)
{
	const void *at = (const char *)record + figure->offset;
	uint64_t value = figure_number(figure, record);

	if (figure->type == FIGURE_REAL) {
		const double real = *(const double *)at;

		return figure->null == FIGURE_ZERO && !(real > 0) ? NAN : real;
	}
	/* An unset limit in bytes is no number for people, whatever JSON says. */
	if (figure_is_null(figure, value) ||
	    (figure->unit == FIGURE_BYTES && value == RBK_STATS_ABSENT))
		return NAN;
	return (double)value / (figure->unit == FIGURE_MILLI   ? 1e3
				: figure->unit == FIGURE_MICRO ? 1e6
							       : 1);
}

double stats_contention_factor(uint8_t contention)
{
	return exp2((double)contention / 32);
}

uint8_t stats_contention(double factor)
{
	const double n = factor > 1 ? log2(factor) * 32 : 0;

	return n < UINT8_MAX ? (uint8_t)(n + 0.5) : UINT8_MAX;
}
