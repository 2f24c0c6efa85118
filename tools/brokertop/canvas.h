#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A picture made of characters
 *
 * Views draw into cells. The cells are then printed as lines, shown on a terminal, or compared in a
 * test. Every cell is one column wide. Cells hold only printable ASCII and the signs in canvas.c,
 * so that no name can send commands to a terminal. Drawing outside the canvas is clipped.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Meaning of a cell; the terminal determines its appearance. */
enum style {
	STYLE_PLAIN,
	STYLE_DIM,
	STYLE_BOLD,
	STYLE_HEAD, /* head of a table */
	STYLE_SELECTED,
	STYLE_KEY, /* label of a key */
	STYLE_GOOD,
	STYLE_WARN,
	STYLE_BAD,
	STYLE_OUTSIDE, /* memory used by programs other than the broker */
	STYLE_GRAPH,
	STYLE_TENANT, /* first of STYLE_TENANTS styles that distinguish tenants, or devices */
	STYLE_TENANTS = 6,
	STYLE_COUNT = STYLE_TENANT + STYLE_TENANTS,
};

struct cell {
	uint16_t code; /* Unicode code point */
	uint8_t style; /* enum style */
	uint8_t reserved;
};

struct canvas {
	int width, height;
	struct cell *cells; /* row-major */
	bool is_ascii;      /* signs are replaced by ASCII when drawn */
};

/* Return: 0, or -ENOMEM with the canvas unchanged. */
int canvas_resize(struct canvas *canvas, int width, int height);
void canvas_deinit(struct canvas *canvas);
void canvas_clear(struct canvas *canvas);

/*
 * Draw UTF-8 text from column @x.
 * Return: the column after the text.
 */
int canvas_text(struct canvas *canvas, int x, int y, enum style style, const char *text);
int canvas_format(struct canvas *canvas, int x, int y, enum style style, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/*
 * Draw text that ends before column @end.
 * Return: the column at which the text begins.
 */
int canvas_right(struct canvas *canvas, int end, int y, enum style style, const char *text);
/* Return the number of columns that the text needs. */
int canvas_columns(const char *text);
void canvas_fill(struct canvas *canvas, int x, int y, int width, enum style style, uint16_t code);
/* Change the style of cells that are drawn already. */
void canvas_restyle(struct canvas *canvas, int x, int y, int width, enum style style);

/* A segment of a bar. */
struct segment {
	double amount;
	uint16_t code; /* code point that fills the segment */
	enum style style;
	const char *name; /* text inside the segment if it fits; NULL: none */
};
/* Draw @n segments side by side; @width columns represent @total. */
void canvas_bar(struct canvas *canvas, int x, int y, int width, double total,
		const struct segment *segments, unsigned int n);

/*
 * Draw @n values, oldest first, as a graph of Braille dots that stand on its base: two values per
 * column and four dots per row. @top is the value at the top edge. Values that are not finite are
 * omitted.
 */
void canvas_graph(struct canvas *canvas, int x, int y, int width, int height, enum style style,
		  double top, const double *values, unsigned int n);

/* Values of one object in a graph of several. */
struct layer {
	const double *values; /* oldest first */
	enum style style;
};
/*
 * Draw @n values of each layer as canvas_graph() does, one layer upon the other, the first at the
 * bottom. Every second layer has half of its dots, so that layers differ without colours.
 */
void canvas_stack(struct canvas *canvas, int x, int y, int width, int height, double top,
		  const struct layer *layers, unsigned int n_layers, unsigned int n);
/*
 * Draw @n values of each layer as a line. Every second line is dotted. Where lines meet in a cell,
 * the last one determines its style.
 */
void canvas_lines(struct canvas *canvas, int x, int y, int width, int height, double top,
		  const struct layer *layers, unsigned int n_layers, unsigned int n);

enum canvas_colours {
	CANVAS_NO_COLOURS,
	CANVAS_8_COLOURS,
	CANVAS_256_COLOURS,
};
/* Return the colour of a style, as an index of 256 or 8 colours; -1: the terminal's default. */
int canvas_colour(enum style style, enum canvas_colours colours);
enum { CANVAS_IS_BOLD = 1, CANVAS_IS_DIM = 2, CANVAS_IS_REVERSE = 4 };
/* Return the attributes that distinguish a style without colours: CANVAS_IS_*. */
unsigned int canvas_attributes(enum style style);

/* Write the canvas as lines, without trailing blanks and trailing empty lines. */
void canvas_print(const struct canvas *canvas, FILE *file, enum canvas_colours colours);
