/* SPDX-License-Identifier: MIT */
/* Figures and names as people read them. */
#include "monitor/text.h"

#include <math.h>
#include <stdio.h>

#include <ringbroker.h>

#include "shm/stats-figures.h"

/* Return the next of sixteen buffers, so that one call can use several results. */
static char *next_text(void)
{
	static char texts[16][RBK_ERROR_BYTES];
	static unsigned int n;

	return texts[n++ % 16];
}

enum { TEXT_BYTES = RBK_ERROR_BYTES };

const char *text_ns(double ns)
{
	char *text = next_text();

	if (!(ns > 0) || !isfinite(ns))
		snprintf(text, TEXT_BYTES, "-");
	else if (ns < 1e3)
		snprintf(text, TEXT_BYTES, "%.3g ns", ns);
	else if (ns < 1e6)
		snprintf(text, TEXT_BYTES, "%.3g us", ns / 1e3);
	else if (ns < 1e9)
		snprintf(text, TEXT_BYTES, "%.3g ms", ns / 1e6);
	else
		snprintf(text, TEXT_BYTES, "%.4g s", ns / 1e9);
	return text;
}

const char *text_bytes(uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	char *text = next_text();
	double value = (double)bytes;
	unsigned int unit = 0;

	if (bytes == UINT64_MAX)
		return "-";
	for (; value >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	snprintf(text, TEXT_BYTES, "%.3g %s", value, units[unit]);
	return text;
}

const char *text_percent(double part, double whole)
{
	char *text = next_text();

	if (!(whole > 0) || !isfinite(part / whole))
		return "-";
	snprintf(text, TEXT_BYTES, "%.1f%%", 100 * part / whole);
	return text;
}

const char *text_name(const char *name)
{
	char *text = next_text();
	unsigned int i;

	for (i = 0; i + 1 < TEXT_BYTES && name[i]; i++)
		text[i] = name[i] < ' ' || name[i] > '~' ? '?' : name[i];
	text[i] = '\0';
	return text;
}

const char *text_lease_states(const struct rbk_stats_lease *lease)
{
	const struct figure *state;
	char *text = next_text();
	int n = 0;

	text[0] = '\0';
	for (unsigned int i = 0; (state = lease_state_figure(i)); i++)
		if (figure_number(state, lease))
			n += snprintf(text + n, (size_t)(TEXT_BYTES - n), "%s%s", n ? " " : "",
				      state->json);
	return text;
}
