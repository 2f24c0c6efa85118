#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A picture made of characters
 *
 * Views draw into cells; what becomes of these is another matter: lines on standard output, a
 * terminal's screen, or a test's comparison. Every cell is one column wide. Whatever text is drawn,
 * cells hold printable ASCII and the few signs of our own, so that no name sends a terminal
 * commands. Drawing outside is cut off.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What a cell means; how that looks depends on the terminal. */
enum style {
	STYLE_PLAIN,
	STYLE_DIM,
	STYLE_BOLD,
	STYLE_HEAD, /* of a table */
	STYLE_SELECTED,
	STYLE_KEY, /* what a key does */
	STYLE_GOOD,
	STYLE_WARN,
	STYLE_BAD,
	STYLE_OUTSIDE, /* memory of others than the broker */
	STYLE_GRAPH,
	STYLE_TENANT, /* the first of STYLE_TENANTS that tell tenants apart */
	STYLE_TENANTS = 6,
	STYLE_COUNT = STYLE_TENANT + STYLE_TENANTS,
};

struct cell {
	uint16_t code; /* Unicode */
	uint8_t style; /* enum style */
	uint8_t reserved;
};

struct canvas {
	int width, height;
	struct cell *cells; /* row by row */
	bool is_ascii;      /* our signs are replaced when they are drawn */
};

/* Return: 0; -ENOMEM: it is as it was. */
int canvas_resize(struct canvas *canvas, int width, int height);
void canvas_deinit(struct canvas *canvas);
void canvas_clear(struct canvas *canvas);

/* Draws UTF-8 from @x on. Return: the column after it. */
int canvas_text(struct canvas *canvas, int x, int y, enum style style, const char *text);
int canvas_format(struct canvas *canvas, int x, int y, enum style style, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Draws it so that it ends before column @end. Return: where it begins. */
int canvas_right(struct canvas *canvas, int end, int y, enum style style, const char *text);
/* How many columns it takes. */
int canvas_columns(const char *text);
void canvas_fill(struct canvas *canvas, int x, int y, int width, enum style style, uint16_t code);
/* Another style for what is there. */
void canvas_restyle(struct canvas *canvas, int x, int y, int width, enum style style);

/* A part of a bar. */
struct segment {
	double amount;
	uint16_t code; /* it is filled with */
	enum style style;
	const char *name; /* to be written into it where there is room; NULL: none */
};
/* Draws @n of them side by side, to a scale of @total for @width columns. */
void canvas_bar(struct canvas *canvas, int x, int y, int width, double total,
		const struct segment *segments, unsigned int n);

/*
 * Draws @n values, oldest first, as a graph of dots that stand on its base, two values a column,
 * and four dots a row; @top is as high as the graph. What is not finite is left out.
 */
void canvas_graph(struct canvas *canvas, int x, int y, int width, int height, enum style style,
		  double top, const double *values, unsigned int n);

enum canvas_colours {
	CANVAS_NO_COLOURS,
	CANVAS_8_COLOURS,
	CANVAS_256_COLOURS,
};
/* The colour of a style: of 256 or of 8; -1: the terminal's own. */
int canvas_colour(enum style style, enum canvas_colours colours);
enum { CANVAS_IS_BOLD = 1, CANVAS_IS_DIM = 2, CANVAS_IS_REVERSE = 4 };
/* How a style stands out where there may be no colour: CANVAS_IS_*. */
unsigned int canvas_attributes(enum style style);

/* Writes it as lines, without blanks at their ends and empty lines at its end. */
void canvas_print(const struct canvas *canvas, FILE *file, enum canvas_colours colours);
