/* SPDX-License-Identifier: MIT */
/* A time line as a picture, for brokerctl trace --svg. */
#include "trace-svg.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "monitor/text.h"
#include "picture/picture.h"
#include "records.h"
#include "util/plural.h"

enum {
	/* Browsers draw so many within a second. */
	MAX_BARS = 20000,
	MAX_LANES = 16,
	TOP = 46,
	GAP = 14, /* between two rows */
	LEGEND_WIDTH = 100,
};

/* The bars, and the scale of the picture */
struct drawing {
	const struct span *bars;
	size_t n_bars;
	size_t n_slices, n_executions; /* bars of timeslices and of executions */
	uint64_t began_ns;
	double span_ns, bottom;
	size_t n_tracks;
	uint32_t *n_lanes; /* by track */
	double *tops;      /* likewise */
};

static enum trace_svg_bar look_of(const struct span *bar)
{
	return (enum trace_svg_bar)(bar->about % TRACE_SVG_BARS);
}

static void measure(struct drawing *drawing)
{
	uint64_t ended_ns = drawing->n_bars ? drawing->bars[0].ended_ns : 0;

	drawing->began_ns = drawing->n_bars ? drawing->bars[0].began_ns : 0;
	for (size_t i = 0; i < drawing->n_bars; i++) {
		const struct span *bar = &drawing->bars[i];
		uint32_t *n_lanes = &drawing->n_lanes[bar->track];

		if (bar->ended_ns > ended_ns)
			ended_ns = bar->ended_ns;
		if (bar->lane >= *n_lanes)
			*n_lanes = bar->lane < MAX_LANES ? bar->lane + 1 : MAX_LANES;
		drawing->n_slices += look_of(bar) == TRACE_SVG_SLICE;
		drawing->n_executions +=
			look_of(bar) == TRACE_SVG_EXECUTION || look_of(bar) == TRACE_SVG_PART;
	}
	drawing->span_ns =
		ended_ns > drawing->began_ns ? (double)(ended_ns - drawing->began_ns) : 1;
	drawing->bottom = TOP;
	for (size_t i = 0; i < drawing->n_tracks; i++) {
		drawing->tops[i] = drawing->bottom;
		if (drawing->n_lanes[i] > 0)
			drawing->bottom += drawing->n_lanes[i] * PICTURE_LANE + GAP;
	}
}

static void draw_bar(const struct drawing *drawing, const struct span *bar)
{
	static const double opacities[TRACE_SVG_BARS] = {[TRACE_SVG_EXECUTION] = 0.9,
							 [TRACE_SVG_PART] = 0.55,
							 [TRACE_SVG_SLICE] = 0.9,
							 [TRACE_SVG_WAIT] = 0.9,
							 [TRACE_SVG_OVERDUE] = 0.4};
	const double scale = PICTURE_SPAN / drawing->span_ns;
	const uint32_t lane = bar->lane < MAX_LANES ? bar->lane : MAX_LANES - 1;
	const bool is_wait = look_of(bar) == TRACE_SVG_WAIT;

	picture_bar(stdout, PICTURE_LEFT + (double)(bar->began_ns - drawing->began_ns) * scale,
		    drawing->tops[bar->track] + lane * PICTURE_LANE +
			    (is_wait ? PICTURE_LANE - 4 : 2),
		    (double)(bar->ended_ns - bar->began_ns) * scale, is_wait ? 2 : PICTURE_LANE - 4,
		    picture_colour((unsigned int)(bar->about / TRACE_SVG_BARS)),
		    opacities[look_of(bar)]);
}

static void draw_legend(const struct drawing *drawing, const struct trace_svg *picture)
{
	const double y = drawing->bottom + 30;

	if (picture->n_names == 0)
		picture_text(stdout, PICTURE_LEFT, y + 11, "s", "start",
			     picture->n_rows == 0
				     ? "colours, in turn: the segments of a task"
				     : "colours, in turn: the segments of a task, and the leases");
	for (size_t i = 0; i < picture->n_names && i < PICTURE_COLOURS; i++) {
		const double x = PICTURE_LEFT + (double)i * LEGEND_WIDTH;

		picture_bar(stdout, x, y, 12, 12, picture_colour((unsigned int)i), 0.9);
		picture_text(stdout, x + 16, y + 11, "s", "start", picture->names[i]);
	}
	if (picture->n_rows > 0)
		picture_text(stdout, PICTURE_LEFT, y + 29, "s", "start",
			     "leases: thin bars wait for the device, pale ones are overdue");
}

static void draw_title(const struct drawing *drawing, size_t n_left_out)
{
	char title[160], slices[64] = "";

	if (drawing->n_slices > 0)
		snprintf(slices, sizeof(slices), " and %zu timeslice%s", drawing->n_slices,
			 plural(drawing->n_slices));
	snprintf(title, sizeof(title), "%zu execution%s%s in %s%s", drawing->n_executions,
		 plural(drawing->n_executions), slices, text_ns(drawing->span_ns),
		 n_left_out ? ", the last ones" : "");
	picture_text(stdout, PICTURE_LEFT, 24, "t", "start", title);
}

static int draw(struct drawing *drawing, const struct trace_svg *picture, size_t n_left_out)
{
	measure(drawing);
	picture_begin(stdout, (unsigned int)drawing->bottom + (picture->n_rows > 0 ? 78 : 60));
	draw_title(drawing, n_left_out);
	picture_axis(stdout, drawing->span_ns, TOP - 10, drawing->bottom, " ms", 1e-6);
	for (unsigned int i = 0; i < drawing->n_tracks; i++)
		if (drawing->n_lanes[i] > 0)
			picture_text(stdout, PICTURE_LEFT - 8, drawing->tops[i] + 15, "n", "end",
				     i < RBK_MAX_DEVICES ? device_label(i)
							 : picture->rows[i - RBK_MAX_DEVICES]);
	for (size_t i = 0; i < drawing->n_bars; i++)
		draw_bar(drawing, &drawing->bars[i]);
	draw_legend(drawing, picture);
	return picture_end(stdout);
}

int trace_svg_write(struct trace_svg *picture)
{
	const size_t n_left_out = picture->n_bars > MAX_BARS ? picture->n_bars - MAX_BARS : 0;
	struct drawing drawing = {.n_bars = picture->n_bars - n_left_out,
				  .n_tracks = RBK_MAX_DEVICES + picture->n_rows};
	int r = timeline_assign(picture->bars, picture->n_bars);

	if (r)
		return r;
	drawing.bars = picture->bars + n_left_out;
	drawing.n_lanes = calloc(drawing.n_tracks, sizeof(*drawing.n_lanes));
	drawing.tops = calloc(drawing.n_tracks, sizeof(*drawing.tops));
	r = drawing.n_lanes && drawing.tops ? draw(&drawing, picture, n_left_out) : -ENOMEM;
	free(drawing.n_lanes);
	free(drawing.tops);
	return r;
}
