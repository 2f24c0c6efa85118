/* SPDX-License-Identifier: MIT */
/*
 * Canvas: cells and drawing
 *
 * Text is decoded here only. An ASCII control byte, a byte that is not UTF-8, and every character
 * that is not in the table of signs become "?". Callers therefore need not sanitise names.
 *
 * The colours are those of Okabe and Ito, which people with colour blindness can distinguish as
 * well. No information is given by colour alone.
 */
#include "canvas.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { BRAILLE = 0x2800, BRAILLE_END = 0x2900, TEXT_BYTES = 1024 };

/* Permitted signs, and their ASCII replacements. */
static const struct {
	uint16_t code;
	char ascii;
} signs[] = {
	{0x00b0, '\''}, /* degree */
	{0x00b5, 'u'},  /* micro */
	{0x00b7, '-'},  /* middle dot */
	{0x2013, '-'},  /* en dash */
	{0x2026, '~'},  /* ellipsis */
	{0x2500, '-'},  /* lines */
	{0x2502, '|'},  {0x2514, '`'}, {0x251c, '|'},
	{0x2588, '#'}, /* blocks: full, and three shades */
	{0x2591, ':'},  {0x2592, '%'}, {0x2593, '='},
	{0x258f, '|'},                                /* ends of a bar */
	{0x2595, '|'},  {0x25b2, '!'},                /* triangles: attention; sort order */
	{0x25b4, '^'},  {0x25be, 'v'}, {0x2713, '+'}, /* check mark */
};
enum { N_SIGNS = sizeof(signs) / sizeof(signs[0]) };

static const struct {
	int16_t colour256, colour8;
	unsigned int attributes;
} looks[STYLE_COUNT] = {
	[STYLE_PLAIN] = {-1, -1, 0},
	[STYLE_DIM] = {245, -1, CANVAS_IS_DIM},
	[STYLE_BOLD] = {-1, -1, CANVAS_IS_BOLD},
	[STYLE_HEAD] = {-1, -1, CANVAS_IS_REVERSE},
	[STYLE_SELECTED] = {-1, -1, CANVAS_IS_REVERSE | CANVAS_IS_BOLD},
	[STYLE_KEY] = {-1, -1, CANVAS_IS_REVERSE},
	[STYLE_GOOD] = {36, 6, 0},
	[STYLE_WARN] = {214, 3, CANVAS_IS_BOLD},
	[STYLE_BAD] = {202, 1, CANVAS_IS_BOLD | CANVAS_IS_REVERSE},
	[STYLE_OUTSIDE] = {245, -1, CANVAS_IS_DIM},
	[STYLE_GRAPH] = {74, 6, 0},
	[STYLE_TENANT + 0] = {74, 6, 0},  /* sky blue */
	[STYLE_TENANT + 1] = {214, 3, 0}, /* orange */
	[STYLE_TENANT + 2] = {36, 2, 0},  /* bluish green */
	[STYLE_TENANT + 3] = {175, 5, 0}, /* reddish purple */
	[STYLE_TENANT + 4] = {227, 7, 0}, /* yellow */
	[STYLE_TENANT + 5] = {32, 4, 0},  /* blue */
};

int canvas_colour(enum style style, enum canvas_colours colours)
{
	if (colours == CANVAS_NO_COLOURS)
		return -1;
	return colours == CANVAS_256_COLOURS ? looks[style].colour256 : looks[style].colour8;
}

unsigned int canvas_attributes(enum style style)
{
	return looks[style].attributes;
}

/* --- Cells --- */

int canvas_resize(struct canvas *canvas, int width, int height)
{
	struct cell *cells = calloc((size_t)width * (size_t)height + 1, sizeof(*cells));

	if (!cells)
		return -ENOMEM;
	free(canvas->cells);
	canvas->cells = cells;
	canvas->width = width;
	canvas->height = height;
	canvas_clear(canvas);
	return 0;
}

void canvas_deinit(struct canvas *canvas)
{
	free(canvas->cells);
	*canvas = (struct canvas){.cells = NULL};
}

void canvas_clear(struct canvas *canvas)
{
	for (int i = 0; i < canvas->width * canvas->height; i++)
		canvas->cells[i] = (struct cell){.code = ' '};
}

/* Return the cell, or NULL outside the canvas. */
static struct cell *cell_at(struct canvas *canvas, int x, int y)
{
	if (x < 0 || y < 0 || x >= canvas->width || y >= canvas->height)
		return NULL;
	return &canvas->cells[y * canvas->width + x];
}

/* Return a character for few, some or many dots. */
static char braille_ascii(uint16_t code)
{
	return " ..::||##"[__builtin_popcount(code & 0xffu)];
}

/* Return the code point that a cell shows for @code. */
static uint16_t sign(uint32_t code, bool is_ascii)
{
	if (code >= ' ' && code <= '~')
		return (uint16_t)code;
	if (code >= BRAILLE && code < BRAILLE_END)
		return is_ascii ? (uint16_t)braille_ascii((uint16_t)code) : (uint16_t)code;
	for (unsigned int i = 0; i < N_SIGNS; i++)
		if (signs[i].code == code)
			return is_ascii ? (uint16_t)signs[i].ascii : (uint16_t)code;
	return '?';
}

static void draw_code(struct canvas *canvas, int x, int y, enum style style, uint32_t code)
{
	struct cell *cell = cell_at(canvas, x, y);

	if (cell)
		*cell = (struct cell){.code = sign(code, canvas->is_ascii),
				      .style = (uint8_t)style};
}

/*
 * Decode the next character of @text. All permitted signs have one, two or three bytes; any other
 * byte is decoded as 0, an invalid character.
 */
static const char *next_code(const char *text, uint32_t *ret)
{
	const unsigned char *c = (const unsigned char *)text;

	if (c[0] >= 0xc2 && c[0] < 0xe0 && (c[1] & 0xc0) == 0x80) {
		*ret = (c[0] & 0x1fu) << 6 | (c[1] & 0x3fu);
		return text + 2;
	}
	if (c[0] >= 0xe0 && c[0] < 0xf0 && (c[1] & 0xc0) == 0x80 && (c[2] & 0xc0) == 0x80) {
		*ret = (c[0] & 0x0fu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
		/* overlong encoding: invalid */
		if (*ret < 0x800)
			*ret = 0;
		return text + 3;
	}
	*ret = c[0] < 0x80 ? c[0] : 0;
	return text + 1;
}

int canvas_columns(const char *text)
{
	uint32_t code;
	int n = 0;

	for (; *text; n++)
		text = next_code(text, &code);
	return n;
}

int canvas_text(struct canvas *canvas, int x, int y, enum style style, const char *text)
{
	uint32_t code;

	for (; *text; x++) {
		text = next_code(text, &code);
		draw_code(canvas, x, y, style, code);
	}
	return x;
}

int canvas_format(struct canvas *canvas, int x, int y, enum style style, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return canvas_text(canvas, x, y, style, text);
}

int canvas_right(struct canvas *canvas, int end, int y, enum style style, const char *text)
{
	int x = end - canvas_columns(text);

	canvas_text(canvas, x, y, style, text);
	return x;
}

void canvas_fill(struct canvas *canvas, int x, int y, int width, enum style style, uint16_t code)
{
	for (int i = 0; i < width && x + i < canvas->width; i++)
		draw_code(canvas, x + i, y, style, code);
}

void canvas_restyle(struct canvas *canvas, int x, int y, int width, enum style style)
{
	for (int i = x; i < x + width; i++) {
		struct cell *cell = cell_at(canvas, i, y);

		if (cell)
			cell->style = (uint8_t)style;
	}
}

/* --- Bars --- */

/* Return the column of @amount on a bar of @width columns that represent @total. */
static int bar_column(double amount, double total, int width)
{
	double column = total > 0 ? amount / total * width : 0;

	if (!(column > 0))
		return 0;
	return column >= width ? width : (int)(column + 0.5);
}

void canvas_bar(struct canvas *canvas, int x, int y, int width, double total,
		const struct segment *segments, unsigned int n)
{
	double sum = 0;
	int begin = 0;

	for (unsigned int i = 0; i < n; i++) {
		const struct segment *segment = &segments[i];
		int end, columns = segment->name ? canvas_columns(segment->name) : 0;

		if (segment->amount > 0)
			sum += segment->amount;
		end = bar_column(sum, total, width);
		canvas_fill(canvas, x + begin, y, end - begin, segment->style, segment->code);
		if (columns > 0 && end - begin >= columns + 4)
			canvas_format(canvas, x + begin + (end - begin - columns) / 2 - 1, y,
				      segment->style, " %s ", segment->name);
		begin = end;
	}
}

/* --- Graphs --- */

/* Braille bits of a column's dots, from the lowest dot up. */
static const uint8_t left_dots[] = {0x40, 0x04, 0x02, 0x01};
static const uint8_t right_dots[] = {0x80, 0x20, 0x10, 0x08};

enum { DOTS = 4, MAX_LAYERS = 16 };

/* Return the height in dots; at least 1 for positive values. */
static int dots_of(double value, double top, int height)
{
	double dots = top > 0 ? value / top * height * DOTS : 0;

	if (!isfinite(value) || !(value > 0))
		return 0;
	if (!(dots < height * DOTS))
		return height * DOTS;
	return dots < 1 ? 1 : (int)(dots + 0.5);
}

/* The values that share a place of a graph, which has two places per column. */
struct place {
	unsigned int first, end;
};

static struct place place_at(unsigned int place, int width, unsigned int n)
{
	const unsigned int n_places = 2 * (unsigned int)width;
	struct place at = {
		.first = (unsigned int)((uint64_t)n * place / n_places),
		.end = (unsigned int)((uint64_t)n * (place + 1) / n_places),
	};

	/* With more places than values, several places show the same value. */
	if (at.end == at.first)
		at.end = at.first + 1;
	return at;
}

/* Return the maximum of the values of a place; NaN if there are none. */
static double highest(const double *values, struct place at)
{
	double high = NAN;

	for (unsigned int i = at.first; i < at.end; i++)
		if (isfinite(values[i]) && !(values[i] <= high))
			high = values[i];
	return high;
}

/* Return the sum of the layers' values at @i; 0 if there are none. */
static double sum_at(const struct layer *layers, unsigned int n_layers, unsigned int i)
{
	double sum = 0;

	for (unsigned int k = 0; k < n_layers; k++)
		if (isfinite(layers[k].values[i]) && layers[k].values[i] > 0)
			sum += layers[k].values[i];
	return sum;
}

/*
 * Find the heights of the layers, each with those below it, where their sum is the highest of a
 * place: maxima of different times would not add up.
 */
static void stack_heights(const struct layer *layers, unsigned int n_layers, struct place at,
			  double top, int height, int heights[MAX_LAYERS])
{
	double high = -1;
	unsigned int best = at.first;

	for (unsigned int i = at.first; i < at.end; i++) {
		double sum = sum_at(layers, n_layers, i);

		if (sum > high) {
			high = sum;
			best = i;
		}
	}
	for (unsigned int k = 0; k < n_layers; k++)
		heights[k] = dots_of(sum_at(layers, k + 1, best), top, height);
}

/* Return the layer that has the dot at @level, or @n_layers above all of them. */
static unsigned int layer_at(const int *heights, unsigned int n_layers, int level)
{
	unsigned int k = 0;

	while (k < n_layers && heights[k] <= level)
		k++;
	return k;
}

/* A cell that is made of dots of several layers. */
struct dots {
	uint32_t code;
	unsigned int n[MAX_LAYERS]; /* dots by layer */
};

static void add_dot(struct dots *dots, unsigned int layer, bool is_right, int dot)
{
	dots->code |= is_right ? right_dots[dot] : left_dots[dot];
	dots->n[layer]++;
}

/* Draw the dots in the style of the layer that has most of them. */
static void draw_dots(struct canvas *canvas, int x, int y, const struct layer *layers,
		      unsigned int n_layers, const struct dots *dots)
{
	unsigned int best = 0;

	for (unsigned int k = 1; k < n_layers; k++)
		if (dots->n[k] > dots->n[best])
			best = k;
	draw_code(canvas, x, y, layers[best].style, dots->code ? BRAILLE | dots->code : ' ');
}

void canvas_stack(struct canvas *canvas, int x, int y, int width, int height, double top,
		  const struct layer *layers, unsigned int n_layers, unsigned int n)
{
	int heights[2][MAX_LAYERS];

	n_layers = n_layers < MAX_LAYERS ? n_layers : MAX_LAYERS;
	for (int column = 0; column < width && n > 0 && n_layers > 0; column++) {
		for (unsigned int side = 0; side < 2; side++)
			stack_heights(layers, n_layers,
				      place_at(2 * (unsigned int)column + side, width, n), top,
				      height, heights[side]);
		for (int row = 0; row < height; row++) {
			struct dots dots = {.code = 0};

			for (unsigned int i = 0; i < 2 * DOTS; i++) {
				const int dot = (int)i / 2, side = (int)i % 2;
				const int level = (height - 1 - row) * DOTS + dot;
				unsigned int k = layer_at(heights[side], n_layers, level);

				if (k < n_layers && (k % 2 == 0 || (dot + side) % 2))
					add_dot(&dots, k, side, dot);
			}
			draw_dots(canvas, x + column, y + row, layers, n_layers, &dots);
		}
	}
}

void canvas_graph(struct canvas *canvas, int x, int y, int width, int height, enum style style,
		  double top, const double *values, unsigned int n)
{
	const struct layer layer = {values, style};

	canvas_stack(canvas, x, y, width, height, top, &layer, 1, n);
}

/* Draw a dot of a line upon a cell that may have dots already. */
static void draw_line_dot(struct canvas *canvas, int x, int y, enum style style, bool is_right,
			  int dot)
{
	struct cell *cell = cell_at(canvas, x, y);
	uint32_t code = is_right ? right_dots[dot] : left_dots[dot];

	if (!cell)
		return;
	if (cell->code >= BRAILLE && cell->code < BRAILLE_END)
		code |= cell->code & 0xffu;
	*cell = (struct cell){.code = (uint16_t)(BRAILLE | code), .style = (uint8_t)style};
}

void canvas_lines(struct canvas *canvas, int x, int y, int width, int height, double top,
		  const struct layer *layers, unsigned int n_layers, unsigned int n)
{
	for (unsigned int k = 0; k < n_layers; k++) {
		int before = -1;

		for (int place = 0; place < 2 * width && n > 0; place++) {
			const double value =
				highest(layers[k].values, place_at((unsigned int)place, width, n));
			int level = dots_of(value, top, height) - 1, low, high;

			/* A value of 0 is on the base. */
			level = level < 0 ? 0 : level;
			if (!isfinite(value)) {
				before = -1;
				continue;
			}
			/* Connect the value with the one before. */
			low = before >= 0 && before < level ? before + 1 : level;
			high = before > level ? before - 1 : level;
			before = level;
			for (int at = low; at <= high && (k % 2 == 0 || place % 2); at++)
				draw_line_dot(canvas, x + place / 2, y + height - 1 - at / DOTS,
					      layers[k].style, place % 2, at % DOTS);
		}
	}
	/* Other characters stand for the dots without Unicode. */
	for (int row = 0; row < height && canvas->is_ascii; row++)
		for (int column = 0; column < width; column++) {
			struct cell *cell = cell_at(canvas, x + column, y + row);

			if (cell)
				cell->code = sign(cell->code, true);
		}
}

/* --- Lines --- */

static void print_code(uint16_t code, FILE *file)
{
	if (code < 0x80) {
		fputc(code, file);
	} else if (code < 0x800) {
		fputc(0xc0 | code >> 6, file);
		fputc(0x80 | (code & 0x3f), file);
	} else {
		fputc(0xe0 | code >> 12, file);
		fputc(0x80 | (code >> 6 & 0x3f), file);
		fputc(0x80 | (code & 0x3f), file);
	}
}

static void print_style(enum style style, enum canvas_colours colours, FILE *file)
{
	unsigned int attributes = canvas_attributes(style);
	int colour = canvas_colour(style, colours);

	fputs("\033[0", file);
	if (attributes & CANVAS_IS_BOLD)
		fputs(";1", file);
	/* A style with a colour of its own is dim enough without the attribute. */
	if (attributes & CANVAS_IS_DIM && colour < 0)
		fputs(";2", file);
	if (attributes & CANVAS_IS_REVERSE)
		fputs(";7", file);
	if (colour >= 0 && colours == CANVAS_256_COLOURS)
		fprintf(file, ";38;5;%d", colour);
	else if (colour >= 0)
		fprintf(file, ";%d", 30 + colour);
	fputc('m', file);
}

static bool is_blank(const struct cell *cell)
{
	return cell->code == ' ' && !(canvas_attributes(cell->style) & CANVAS_IS_REVERSE);
}

/* Return the number of cells of a row up to the last that is not blank. */
static int row_columns(const struct canvas *canvas, int y, enum canvas_colours colours)
{
	const struct cell *row = &canvas->cells[y * canvas->width];
	int n = canvas->width;

	while (n > 0 && (colours ? is_blank(&row[n - 1]) : row[n - 1].code == ' '))
		n--;
	return n;
}

void canvas_print(const struct canvas *canvas, FILE *file, enum canvas_colours colours)
{
	int height = canvas->height;

	while (height > 0 && row_columns(canvas, height - 1, colours) == 0)
		height--;
	for (int y = 0; y < height; y++) {
		const struct cell *row = &canvas->cells[y * canvas->width];
		enum style style = STYLE_PLAIN;
		int n = row_columns(canvas, y, colours);

		for (int x = 0; x < n; x++) {
			if (colours && row[x].style != style) {
				style = row[x].style;
				print_style(style, colours, file);
			}
			print_code(row[x].code, file);
		}
		if (style != STYLE_PLAIN)
			print_style(STYLE_PLAIN, colours, file);
		fputc('\n', file);
	}
}
