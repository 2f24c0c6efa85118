#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Pictures of time lines and bars as SVG
 *
 * Files are plain SVG without scripts, fonts or external references. Colours are distinguishable on
 * white and on black; text takes its colour from a style that follows the viewer's preference. All
 * pictures have one width; lengths are pixels. Errors of writing are reported by picture_end().
 */
#include <stdio.h>

enum {
	PICTURE_WIDTH = 960,
	PICTURE_LEFT = 110, /* left edge of what is drawn to scale */
	PICTURE_SPAN = 820, /* width of that */
	PICTURE_LANE = 22,  /* height of a lane of bars */
	PICTURE_COLOURS = 8,
};

void picture_begin(FILE *file, unsigned int height);
/* Return: 0; a negative errno. */
int picture_end(FILE *file);

/* Return colour @i of PICTURE_COLOURS, in turn. */
const char *picture_colour(unsigned int i);

/*
 * Write a text; @class: "t", a title; "n", a name; "s", small. @anchor: "start", "middle" or "end".
 * XML's special characters are escaped.
 */
void picture_text(FILE *file, double x, double y, const char *class, const char *anchor,
		  const char *text);
void picture_bar(FILE *file, double x, double y, double width, double height, const char *colour,
		 double opacity);
/*
 * Draw lines at round numbers from 0 to @span, which is as wide as PICTURE_SPAN, with labels in
 * @unit: numbers times @scale.
 */
void picture_axis(FILE *file, double span, double top, double bottom, const char *unit,
		  double scale);
