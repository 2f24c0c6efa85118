/* SPDX-License-Identifier: MIT */
/*
 * Pictures
 *
 * Files are plain SVG without scripts, fonts or external references. Colours are distinguishable on
 * white and on black; text takes its colour from a style that follows the viewer's preference. The
 * timeline has lanes per device and a bar per submission, coloured by tenant. A submission is in
 * the lane of its first server; servers that join it are not shown. The comparison has a bar per
 * policy, in multiples of the bound.
 */
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/error.h"

enum {
	WIDTH_PX = 960,
	LEFT_PX = 110,
	RIGHT_PX = 30,
	LANE_PX = 22,
	MAX_LANES = 16,
	MAX_BARS = 4000,
};

static const char *const colours[] = {"#3b82c4", "#d9822b", "#3f9e5a", "#b3589a",
				      "#8a7f2a", "#5f6fd0", "#c05050", "#2f9c9c"};

static const char style[] =
	"<style>text{font:13px sans-serif;fill:#333}.t{font-size:16px;font-weight:bold}"
	".s{font-size:11px}.g{stroke:#999;stroke-width:.5}"
	"@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>\n";

static int open_svg(const char *directory, const char *name, unsigned int height,
		    char path[SVG_PATH_BYTES], FILE **ret)
{
	if (snprintf(path, SVG_PATH_BYTES, "%s/%s.svg", directory, name) >= SVG_PATH_BYTES)
		return -ENAMETOOLONG;
	*ret = fopen(path, "we");
	if (!*ret)
		return -errno;
	fprintf(*ret,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
		"viewBox=\"0 0 %u %u\">\n%s",
		WIDTH_PX, height, WIDTH_PX, height, style);
	return 0;
}

static int close_svg(FILE *file)
{
	fputs("</svg>\n", file);
	/* fflush() retries output that could not be written before. */
	if (fflush(file))
		return -errno;
	return ferror(file) ? -EIO : 0;
}

/* Write a text element. XML's special characters are escaped, since names may contain them. */
static void put_text(FILE *file, double x, double y, const char *class, const char *anchor,
		     const char *text)
{
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class,
		anchor);
	for (const char *c = text; *c; c++) {
		if (*c == '<')
			fputs("&lt;", file);
		else if (*c == '&')
			fputs("&amp;", file);
		else
			fputc(*c, file);
	}
	fputs("</text>\n", file);
}

static void put_bar(FILE *file, double x, double y, double width, double height, const char *colour,
		    double opacity)
{
	fprintf(file,
		"<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
		"fill-opacity=\"%.2f\"/>\n",
		x, y, fmax(width, 0.3), height, colour, opacity);
}

/* Return a round number of about a fifth of @span. */
static double step_of(double span)
{
	double unit = pow(10, floor(log10(span / 5)));
	double times = span / 5 / unit;

	return unit * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

static void put_axis(FILE *file, double span, double top, double bottom, const char *unit,
		     double scale)
{
	double step = step_of(span * scale), width = WIDTH_PX - LEFT_PX - RIGHT_PX;
	char label[64];

	for (double at = 0; at <= span * scale * 1.0001; at += step) {
		double x = LEFT_PX + at / (span * scale) * width;

		fprintf(file,
			"<line class=\"g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x,
			x, top, bottom);
		snprintf(label, sizeof(label), "%.4g%s", at, unit);
		put_text(file, x, bottom + 15, "s", "middle", label);
	}
}

static uint32_t count_lanes(const struct sim *sim, uint8_t device)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < sim->n_segments; i++) {
		if (sim->segments[i].device == device && sim->segments[i].lane >= n)
			n = sim->segments[i].lane + 1;
	}
	return n < MAX_LANES ? n : MAX_LANES;
}

int svg_timeline(const char *directory, const struct sim *sim, char path[SVG_PATH_BYTES])
{
	const struct scenario *scenario = sim->world->scenario;
	_cleanup_(fclosep) FILE *file = NULL;
	uint32_t n_lanes[SCENARIO_DEVICES];
	double first[SCENARIO_DEVICES], y = 46, bottom;
	double width = WIDTH_PX - LEFT_PX - RIGHT_PX, span_ns = fmax(sim->now_ns, 1);
	uint32_t n = sim->n_segments < MAX_BARS ? sim->n_segments : MAX_BARS;
	char title[512];
	int r;

	/* Bars beyond MAX_BARS are cut off at the end. */
	if (n < sim->n_segments)
		span_ns = sim->segments[n - 1].end_ns;
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		n_lanes[d] = count_lanes(sim, (uint8_t)d);
		first[d] = y;
		y += n_lanes[d] * LANE_PX + 14;
	}
	bottom = y;
	snprintf(title, sizeof(title), "%s-%s", scenario->name, sim->policy->name);
	r = open_svg(directory, title, (unsigned int)bottom + 60, path, &file);
	if (r)
		return error_fold(r);
	snprintf(title, sizeof(title), "%s: %s on %s + %s", scenario->name, sim->policy->name,
		 scenario->profile_names[RBK_DEVICE_CPU], scenario->profile_names[RBK_DEVICE_GPU]);
	put_text(file, LEFT_PX, 24, "t", "start", title);
	put_axis(file, span_ns, 36, bottom, " ms", 1e-6);
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		put_text(file, LEFT_PX - 8, first[d] + 15, "n", "end", scenario->profile_names[d]);
	for (uint32_t i = 0; i < n; i++) {
		const struct sim_segment *segment = &sim->segments[i];
		uint32_t lane = segment->lane < MAX_LANES ? segment->lane : MAX_LANES - 1;

		put_bar(file, LEFT_PX + segment->begin_ns / span_ns * width,
			first[segment->device] + lane * LANE_PX + 2,
			(segment->end_ns - segment->begin_ns) / span_ns * width, LANE_PX - 4,
			segment->failed
				? "#e03030"
				: colours[segment->tenant % (sizeof(colours) / sizeof(colours[0]))],
			segment->n_parts > 1 ? 0.55 : 0.9);
	}
	for (uint32_t t = 0; t < scenario->n_tenants && t < 8; t++) {
		double x = LEFT_PX + t * 100.0;

		put_bar(file, x, bottom + 30, 12, 12, colours[t % 8], 0.9);
		put_text(file, x + 16, bottom + 41, "s", "start", scenario->tenants[t].name);
	}
	return close_svg(file);
}

int svg_comparison(const char *directory, const struct outcome *outcome, char path[SVG_PATH_BYTES])
{
	const struct scenario *scenario = outcome->scenario;
	_cleanup_(fclosep) FILE *file = NULL;
	double width = WIDTH_PX - LEFT_PX - RIGHT_PX, span = 1, y = 46;
	char text[512];
	int r;

	/*
	 * The bar of a policy above 4 times the bound is cut off, or the other policies' bars would
	 * be too short to see.
	 */
	for (unsigned int i = 0; i < outcome->n_measures; i++)
		span = fmax(span, fmin(outcome->measures[i].figures[FIG_RATIO], 4) * 1.05);
	r = open_svg(directory, scenario->name, 46 + outcome->n_measures * 30 + 44, path, &file);
	if (r)
		return error_fold(r);
	snprintf(text, sizeof(text), "%s: makespan by policy, %s + %s", scenario->name,
		 scenario->profile_names[RBK_DEVICE_CPU], scenario->profile_names[RBK_DEVICE_GPU]);
	put_text(file, LEFT_PX, 24, "t", "start", text);
	put_axis(file, span, 36, y + outcome->n_measures * 30, "", 1);
	for (unsigned int i = 0; i < outcome->n_measures; i++) {
		const double *figures = outcome->measures[i].figures;
		double ratio = fmin(figures[FIG_RATIO], span);

		put_text(file, LEFT_PX - 8, y + 17, "n", "end", outcome->measures[i].policy->name);
		put_bar(file, LEFT_PX, y + 3, ratio / span * width, 20, colours[i == 0 ? 2 : 0],
			0.85);
		snprintf(text, sizeof(text), "%.4g s = %.3f x bound, p99 %.3g s",
			 figures[FIG_MAKESPAN], figures[FIG_RATIO], figures[FIG_P99]);
		if (ratio / span > 0.5)
			put_text(file, LEFT_PX + ratio / span * width - 6, y + 17, "s", "end",
				 text);
		else
			put_text(file, LEFT_PX + ratio / span * width + 6, y + 17, "s", "start",
				 text);
		y += 30;
	}
	snprintf(text, sizeof(text), "in multiples of the bound (%s)",
		 bound_kind_name(outcome->bound_kind));
	put_text(file, LEFT_PX, y + 34, "s", "start", text);
	return close_svg(file);
}
