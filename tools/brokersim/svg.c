/* SPDX-License-Identifier: MIT */
/*
 * Pictures
 *
 * The timeline has lanes per device and a bar per submission, coloured by tenant. A submission is
 * in the lane of its first server; servers that join it are not shown. The comparison has a bar per
 * policy, in multiples of the bound.
 */
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "picture/picture.h"
#include "util/cleanup.h"
#include "util/error.h"

enum {
	MAX_LANES = 16,
	MAX_BARS = 4000,
};

static int open_svg(const char *directory, const char *name, unsigned int height,
		    char path[SVG_PATH_BYTES], FILE **ret)
{
	if (snprintf(path, SVG_PATH_BYTES, "%s/%s.svg", directory, name) >= SVG_PATH_BYTES)
		return -ENAMETOOLONG;
	*ret = fopen(path, "we");
	if (!*ret)
		return -errno;
	picture_begin(*ret, height);
	return 0;
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
	double width = PICTURE_SPAN, span_ns = fmax(sim->now_ns, 1);
	uint32_t n = sim->n_segments < MAX_BARS ? sim->n_segments : MAX_BARS;
	char title[512];
	int r;

	/* Bars beyond MAX_BARS are cut off at the end. */
	if (n < sim->n_segments)
		span_ns = sim->segments[n - 1].end_ns;
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
		n_lanes[d] = count_lanes(sim, (uint8_t)d);
		first[d] = y;
		y += n_lanes[d] * PICTURE_LANE + 14;
	}
	bottom = y;
	snprintf(title, sizeof(title), "%s-%s", scenario->name, sim->policy->name);
	r = open_svg(directory, title, (unsigned int)bottom + 60, path, &file);
	if (r)
		return error_fold(r);
	snprintf(title, sizeof(title), "%s: %s on %s + %s", scenario->name, sim->policy->name,
		 scenario->profile_names[RBK_DEVICE_CPU], scenario->profile_names[RBK_DEVICE_GPU]);
	picture_text(file, PICTURE_LEFT, 24, "t", "start", title);
	picture_axis(file, span_ns, 36, bottom, " ms", 1e-6);
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		picture_text(file, PICTURE_LEFT - 8, first[d] + 15, "n", "end",
			     scenario->profile_names[d]);
	for (uint32_t i = 0; i < n; i++) {
		const struct sim_segment *segment = &sim->segments[i];
		uint32_t lane = segment->lane < MAX_LANES ? segment->lane : MAX_LANES - 1;

		picture_bar(file, PICTURE_LEFT + segment->begin_ns / span_ns * width,
			    first[segment->device] + lane * PICTURE_LANE + 2,
			    (segment->end_ns - segment->begin_ns) / span_ns * width,
			    PICTURE_LANE - 4,
			    segment->failed ? "#e03030" : picture_colour(segment->tenant),
			    segment->n_parts > 1 ? 0.55 : 0.9);
	}
	for (uint32_t t = 0; t < scenario->n_tenants && t < 8; t++) {
		double x = PICTURE_LEFT + t * 100.0;

		picture_bar(file, x, bottom + 30, 12, 12, picture_colour(t), 0.9);
		picture_text(file, x + 16, bottom + 41, "s", "start", scenario->tenants[t].name);
	}
	return picture_end(file);
}

int svg_comparison(const char *directory, const struct outcome *outcome, char path[SVG_PATH_BYTES])
{
	const struct scenario *scenario = outcome->scenario;
	_cleanup_(fclosep) FILE *file = NULL;
	double width = PICTURE_SPAN, span = 1, y = 46;
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
	picture_text(file, PICTURE_LEFT, 24, "t", "start", text);
	picture_axis(file, span, 36, y + outcome->n_measures * 30, "", 1);
	for (unsigned int i = 0; i < outcome->n_measures; i++) {
		const double *figures = outcome->measures[i].figures;
		double ratio = fmin(figures[FIG_RATIO], span);

		picture_text(file, PICTURE_LEFT - 8, y + 17, "n", "end",
			     outcome->measures[i].policy->name);
		picture_bar(file, PICTURE_LEFT, y + 3, ratio / span * width, 20,
			    picture_colour(i == 0 ? 2 : 0), 0.85);
		snprintf(text, sizeof(text), "%.4g s = %.3f x bound, p99 %.3g s",
			 figures[FIG_MAKESPAN], figures[FIG_RATIO], figures[FIG_P99]);
		if (ratio / span > 0.5)
			picture_text(file, PICTURE_LEFT + ratio / span * width - 6, y + 17, "s",
				     "end", text);
		else
			picture_text(file, PICTURE_LEFT + ratio / span * width + 6, y + 17, "s",
				     "start", text);
		y += 30;
	}
	snprintf(text, sizeof(text), "in multiples of the bound (%s)",
		 bound_kind_name(outcome->bound_kind));
	picture_text(file, PICTURE_LEFT, y + 34, "s", "start", text);
	return picture_end(file);
}
