/* SPDX-License-Identifier: MIT */
/* Figures and names as people read them. */
#include "monitor/text.h"

#include <math.h>
#include <stdbool.h>
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

/* Return what follows "the plan is cut into N segments". */
static const char *why_cut(uint32_t cut)
{
	switch (cut) {
	case RBK_CUT_FASTER:
		return ", by which it is predicted to end earlier";
	case RBK_CUT_TO_FIT:
		return ", since no device has memory, or all operators, for all of it";
	case RBK_CUT_AT_RANDOM:
		return " at random (brokerd --cut)";
	default:
		return "";
	}
}

/* Return what follows "the plan is whole"; NULL: nothing is known. */
static const char *why_whole(uint32_t cut)
{
	switch (cut) {
	case RBK_CUT_NO_GAIN:
		return ": segments on several devices are not predicted to gain enough";
	case RBK_CUT_SMALL:
		return ": its tasks, or those of few rows, are too small for several devices";
	case RBK_CUT_NO_DEVICE:
		return ": no part of it is for another device than the CPU";
	case RBK_CUT_FITS:
		return ": a device can have all of it, or no part";
	case RBK_CUT_AT_RANDOM:
		return " by chance (brokerd --cut)";
	case RBK_CUT_PINNED:
		return ": its client has pinned it to a device";
	case RBK_CUT_REFUSED:
		return ": there was no host memory for segments, or one would be too large";
	default:
		return NULL;
	}
}

void text_cut(const struct rbk_stats_plan *plan, char text[TEXT_CUT_BYTES])
{
	const bool is_cut = plan->n_segments > 1;
	const char *why = is_cut ? why_cut(plan->cut) : why_whole(plan->cut);
	int n = 0;

	text[0] = '\0';
	if (!why)
		return;
	if (is_cut)
		n = snprintf(text, TEXT_CUT_BYTES, "the plan is cut into %u segments%s",
			     plan->n_segments, why);
	else
		n = snprintf(text, TEXT_CUT_BYTES, "the plan is whole%s", why);
	if (plan->cut_ns > 0 && n < TEXT_CUT_BYTES)
		n += snprintf(text + n, (size_t)(TEXT_CUT_BYTES - n), " (%s in segments, ",
			      text_ns((double)plan->cut_ns));
	if (plan->whole_ns > 0 && n < TEXT_CUT_BYTES)
		snprintf(text + n, (size_t)(TEXT_CUT_BYTES - n), "%s%s whole)",
			 plan->cut_ns > 0 ? "" : " (", text_ns((double)plan->whole_ns));
}
