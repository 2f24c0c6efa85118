/* SPDX-License-Identifier: MIT */
/* Pictures of time lines and bars as SVG. */
#include "picture.h"

#include <errno.h>
#include <math.h>

static const char style[] =
	"<style>text{font:13px sans-serif;fill:#333}.t{font-size:16px;font-weight:bold}"
	".s{font-size:11px}.g{stroke:#999;stroke-width:.5}"
	"@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>\n";

const char *picture_colour(unsigned int i)
{
	static const char *const colours[PICTURE_COLOURS] = {"#3b82c4", "#d9822b", "#3f9e5a",
							     "#b3589a", "#8a7f2a", "#5f6fd0",
							     "#c05050", "#2f9c9c"};

	return colours[i % PICTURE_COLOURS];
}

void picture_begin(FILE *file, unsigned int height)
{
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
		"viewBox=\"0 0 %d %u\">\n%s",
		PICTURE_WIDTH, height, PICTURE_WIDTH, height, style);
}

int picture_end(FILE *file)
{
	fputs("</svg>\n", file);
	/* fflush() retries output that could not be written before. */
	if (fflush(file))
		return -errno;
	return ferror(file) ? -EIO : 0;
}

void picture_text(FILE *file, double x, double y, const char *class, const char *anchor,
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

void picture_bar(FILE *file, double x, double y, double width, double height, const char *colour,
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

void picture_axis(FILE *file, double span, double top, double bottom, const char *unit,
		  double scale)
{
	double step = step_of(span * scale);
	char label[64];

	for (double at = 0; at <= span * scale * 1.0001; at += step) {
		double x = PICTURE_LEFT + at / (span * scale) * PICTURE_SPAN;

		fprintf(file,
			"<line class=\"g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x,
			x, top, bottom);
		snprintf(label, sizeof(label), "%.4g%s", at, unit);
		picture_text(file, x, bottom + 15, "s", "middle", label);
	}
}
