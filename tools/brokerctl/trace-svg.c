/* SPDX-License-Identifier: MIT */
/* A time line as a picture, for brokerctl trace --svg. */
#include "trace-svg.h"

#include <stdio.h>

#include "monitor/text.h"
#include "picture/picture.h"
#include "records.h"
#include "util/plural.h"

enum {
	/* Browsers draw so many within a second. */
	MAX_BARS = 20000,
	MAX_LANES = 16,
	TOP = 46,
	GAP = 14, /* between two devices */
	LEGEND_WIDTH = 100,
};

/* The bars, and the scale of the picture */
struct drawing {
	const struct span *bars;
	size_t n_bars;
	uint64_t began_ns;
	double span_ns, bottom;
	uint32_t n_lanes[RBK_MAX_DEVICES];
	double tops[RBK_MAX_DEVICES];
};

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
	}
	drawing->span_ns =
		ended_ns > drawing->began_ns ? (double)(ended_ns - drawing->began_ns) : 1;
	drawing->bottom = TOP;
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		drawing->tops[i] = drawing->bottom;
		if (drawing->n_lanes[i] > 0)
			drawing->bottom += drawing->n_lanes[i] * PICTURE_LANE + GAP;
	}
}

static void draw_bar(const struct drawing *drawing, const struct span *bar)
{
	const double scale = PICTURE_SPAN / drawing->span_ns;
	const uint32_t lane = bar->lane < MAX_LANES ? bar->lane : MAX_LANES - 1;
	const bool is_part = bar->about & 1;

	picture_bar(stdout, PICTURE_LEFT + (double)(bar->began_ns - drawing->began_ns) * scale,
		    drawing->tops[bar->track] + lane * PICTURE_LANE + 2,
		    (double)(bar->ended_ns - bar->began_ns) * scale, PICTURE_LANE - 4,
		    picture_colour((unsigned int)(bar->about >> 1)), is_part ? 0.55 : 0.9);
}

static void draw_legend(const struct drawing *drawing, const char *const *names, size_t n_names)
{
	const double y = drawing->bottom + 30;

	if (n_names == 0)
		picture_text(stdout, PICTURE_LEFT, y + 11, "s", "start",
			     "colours, in turn: the segments of a task");
	for (size_t i = 0; i < n_names && i < PICTURE_COLOURS; i++) {
		const double x = PICTURE_LEFT + (double)i * LEGEND_WIDTH;

		picture_bar(stdout, x, y, 12, 12, picture_colour((unsigned int)i), 0.9);
		picture_text(stdout, x + 16, y + 11, "s", "start", names[i]);
	}
}

int trace_svg_write(struct span *bars, size_t n_bars, const char *const *names, size_t n_names)
{
	const size_t n_left_out = n_bars > MAX_BARS ? n_bars - MAX_BARS : 0;
	struct drawing drawing = {.n_bars = n_bars - n_left_out};
	char title[128];
	int r = timeline_assign(bars, n_bars);

	if (r)
		return r;
	drawing.bars = bars + n_left_out;
	measure(&drawing);
	picture_begin(stdout, (unsigned int)drawing.bottom + 60);
	snprintf(title, sizeof(title), "%zu execution%s in %s%s", drawing.n_bars,
		 plural(drawing.n_bars), text_ns(drawing.span_ns),
		 n_left_out ? ", the last ones" : "");
	picture_text(stdout, PICTURE_LEFT, 24, "t", "start", title);
	picture_axis(stdout, drawing.span_ns, TOP - 10, drawing.bottom, " ms", 1e-6);
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		if (drawing.n_lanes[i] > 0)
			picture_text(stdout, PICTURE_LEFT - 8, drawing.tops[i] + 15, "n", "end",
				     device_label(i));
	for (size_t i = 0; i < drawing.n_bars; i++)
		draw_bar(&drawing, &drawing.bars[i]);
	draw_legend(&drawing, names, n_names);
	return picture_end(stdout);
}
