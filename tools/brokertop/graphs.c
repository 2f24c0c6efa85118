/* SPDX-License-Identifier: MIT */
/*
 * Graphs of the last five minutes
 *
 * The graphs share the lines that the overview has left: side by side, or in two rows if there is
 * height for that. Memory and tasks are stacked by tenant, and loads have a line per device. Wide
 * graphs have a title, a scale and a time axis; narrow ones have a caption, and fewer of them are
 * shown rather than narrower ones.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "monitor/text.h"
#include "picture.h"

enum {
	MAX_PARTS = 8, /* layers of a graph; the last one of a stack is the remainder */
	WIDEST = MODEL_SECONDS / 2, /* columns; a column has two values */
	LEAST = 24,                 /* columns of the narrowest graph */
	SCALE_LEAST = 48,           /* columns of the narrowest graph with a scale */
	SCALE_CANVAS = 120,         /* columns of the narrowest canvas with scales */
	SCALE = 9,                  /* columns of a scale, with its line */
	ONE_ROW_WIDTH = 100,        /* graphs that are at least so wide stay in one row */
	TWO_ROWS_HEIGHT = 12,       /* lines for two rows of graphs */
	GAP = 2,
	SECONDS_PER_MINUTE = 60,
};

struct graph {
	const char *name;
	struct figure_text (*format)(double value);
	double top; /* value at the top edge; 0: the maximum of the values */
	unsigned int n;
	struct layer layers[MAX_PARTS];
	double values[MAX_PARTS][MODEL_SECONDS];
	char legend[MAX_PARTS][RBK_STATS_NAME_BYTES + 32];
	bool is_stack; /* layers lie upon each other; else each is a line */
};

/* --- Values --- */

static double last_of(const double values[MODEL_SECONDS])
{
	return values[MODEL_SECONDS - 1];
}

/* Return the highest value of a graph, of a stack that of the sum. */
static double highest(const struct graph *graph)
{
	double high = 0;

	for (unsigned int i = 0; i < MODEL_SECONDS; i++) {
		double sum = 0;

		for (unsigned int k = 0; k < graph->n; k++) {
			const double value = graph->values[k][i];

			if (isfinite(value))
				sum = graph->is_stack ? sum + value : fmax(sum, value);
		}
		high = fmax(high, sum);
	}
	return high;
}

/* Add the layer whose values the caller has stored, with a legend such as "web 47.9k". */
static void add_layer(struct graph *graph, enum style style, const char *name, double value)
{
	const unsigned int k = graph->n++;

	graph->layers[k] = (struct layer){graph->values[k], style};
	snprintf(graph->legend[k], sizeof(graph->legend[k]), "%s %s", name,
		 graph->format(value).text);
}

static void fill_load(const struct model *model, struct graph *graph)
{
	/* The processors come last: their line lies upon the others. */
	for (uint32_t i = 1; i <= model->n_devices && graph->n < MAX_PARTS; i++) {
		const uint32_t device = i % model->n_devices;

		model_series(model, &model->devices[device].load, graph->values[graph->n]);
		add_layer(graph, STYLE_TENANT + device % STYLE_TENANTS, device_label(device),
			  model_load(&model->devices[device].now));
	}
}

struct part {
	const struct model_tenant *tenant;
	const float *values;
	double sum;
};

static int compare_parts(const void *a, const void *b)
{
	const struct part *left = a, *right = b;

	return (left->sum < right->sum) - (left->sum > right->sum);
}

/*
 * Find the tenants with histories, those with the largest values first.
 * Return: their number.
 */
static unsigned int find_parts(const struct model *model, bool is_memory,
			       struct part parts[MODEL_MAX_HISTORIES])
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < model->n_tenants && n < MODEL_MAX_HISTORIES; i++) {
		const struct model_tenant *tenant = &model->tenants[i];
		struct part part = {.tenant = tenant};

		if (!tenant->is_used || !tenant->history)
			continue;
		part.values = is_memory ? tenant->history->memory : tenant->history->tasks;
		for (unsigned int k = 0; k < MODEL_SECONDS; k++)
			if (isfinite(part.values[k]))
				part.sum += (double)part.values[k];
		if (part.sum > 0)
			parts[n++] = part;
	}
	qsort(parts, n, sizeof(parts[0]), compare_parts);
	return n;
}

/* Return a name for the remainder of a graph that shows @n_parts tenants' parts. */
static const char *name_of_rest(const struct model *model, bool is_memory, unsigned int n_parts)
{
	if (n_parts == 0)
		return "all";
	/* With every tenant in the graph, the remaining memory is that of other programs. */
	if (is_memory && n_parts < MAX_PARTS && model->n_histories < MODEL_MAX_HISTORIES)
		return "outside";
	return "others";
}

/* Fill a graph with the tenants' parts, and the remainder. */
static void fill_stack(const struct model *model, bool is_memory, struct graph *graph)
{
	struct part parts[MODEL_MAX_HISTORIES];
	const unsigned int n_parts = find_parts(model, is_memory, parts);
	double left[MODEL_SECONDS], least;
	bool is_left = false;

	model_series(model, is_memory ? &model->memory : &model->tasks, left);
	for (unsigned int i = 0; i < n_parts && graph->n < MAX_PARTS - 1; i++) {
		double *values = graph->values[graph->n];

		model_tenant_series(model, parts[i].values, values);
		for (unsigned int k = 0; k < MODEL_SECONDS; k++)
			if (isfinite(values[k]))
				left[k] -= values[k];
		add_layer(graph, tenant_style(parts[i].tenant->now.number),
			  text_name(parts[i].tenant->now.name), last_of(values));
	}
	/* Less than a thousandth is an error of rounding. */
	least = highest(graph) / 1000;
	for (unsigned int k = 0; k < MODEL_SECONDS; k++) {
		left[k] = isfinite(left[k]) ? fmax(0, left[k]) : NAN;
		is_left |= left[k] > least;
	}
	if (!is_left && n_parts > 0)
		return;
	memcpy(graph->values[graph->n], left, sizeof(left));
	add_layer(graph, n_parts ? STYLE_OUTSIDE : STYLE_GRAPH,
		  name_of_rest(model, is_memory, n_parts), last_of(left));
}

static void fill_latency(const struct model *model, struct graph *graph)
{
	model_series(model, &model->latency, graph->values[0]);
	add_layer(graph, STYLE_GRAPH, "", 0);
	snprintf(graph->legend[0], sizeof(graph->legend[0]), "%s, high %s",
		 figure_ns(model->latency_p99_ns).text, figure_ns(highest(graph)).text);
}

/* --- Choosing --- */

/* Return the bytes of all GPUs' memory; 0: not known. */
static double total_memory(const struct model *model)
{
	double sum = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++)
		if (model->devices[i].now.memory_total != RBK_STATS_ABSENT)
			sum += (double)model->devices[i].now.memory_total;
	return sum;
}

enum kind { LOAD, MEMORY, TASKS, LATENCY, KIND_COUNT };

/*
 * Choose the graphs for which there is room, in their order on the canvas.
 * Return: their number, at most @max.
 */
static unsigned int choose(const struct model *model, unsigned int max, enum kind kinds[KIND_COUNT])
{
	/* The most important one first. */
	static const enum kind order[KIND_COUNT] = {LOAD, LATENCY, MEMORY, TASKS};
	bool is_chosen[KIND_COUNT] = {false};
	unsigned int n = 0, n_chosen = 0;

	for (unsigned int i = 0; i < KIND_COUNT && n_chosen < max; i++) {
		/* Tenants may not see the load and the memory of devices. */
		if ((order[i] == LOAD && !model->is_root) ||
		    (order[i] == MEMORY && !(model->is_root && total_memory(model) > 0)))
			continue;
		is_chosen[order[i]] = true;
		n_chosen++;
	}
	for (enum kind kind = LOAD; kind < KIND_COUNT; kind++)
		if (is_chosen[kind])
			kinds[n++] = kind;
	return n;
}

static void fill(const struct model *model, enum kind kind, struct graph *graph)
{
	graph->n = 0;
	graph->top = 0;
	graph->is_stack = kind != LOAD;
	switch (kind) {
	case LOAD:
		graph->name = "load";
		graph->format = figure_part;
		graph->top = 1;
		fill_load(model, graph);
		break;
	case MEMORY:
		graph->name = "VRAM";
		graph->format = figure_bytes;
		graph->top = total_memory(model);
		fill_stack(model, true, graph);
		break;
	case TASKS:
		graph->name = "tasks/s";
		graph->format = figure_rate;
		fill_stack(model, false, graph);
		break;
	case LATENCY:
		graph->name = "p99";
		graph->format = figure_ns;
		fill_latency(model, graph);
		break;
	case KIND_COUNT:
		break;
	}
	if (!(graph->top > 0))
		graph->top = highest(graph);
}

/* --- Drawing --- */

static void draw_values(const struct graph *graph, struct canvas *canvas, int x, int y, int width,
			int height)
{
	if (graph->is_stack || graph->n == 1)
		canvas_stack(canvas, x, y, width, height, graph->top, graph->layers, graph->n,
			     MODEL_SECONDS);
	else
		canvas_lines(canvas, x, y, width, height, graph->top, graph->layers, graph->n,
			     MODEL_SECONDS);
}

/* Write the graph's name, and behind it the present values for which there is room. */
static void draw_legend(const struct graph *graph, struct canvas *canvas, int x, int y, int width)
{
	const int end = x + width;

	x = canvas_text(canvas, x, y, STYLE_BOLD, graph->name);
	for (unsigned int k = 0; k < graph->n; k++) {
		if (x + 2 + canvas_columns(graph->legend[k]) > end)
			continue;
		x = canvas_text(canvas, x + 2, y, graph->layers[k].style, graph->legend[k]);
	}
}

/* Write the values at the top, in the middle and at the base left of the graph. */
static void draw_scale(const struct graph *graph, struct canvas *canvas, int x, int y, int height)
{
	const int end = x + SCALE - 1;

	for (int i = 0; i < height; i++)
		canvas_text(canvas, end, y + i, STYLE_DIM, "│");
	canvas_right(canvas, end, y, STYLE_DIM, graph->format(graph->top).text);
	canvas_right(canvas, end, y + height - 1, STYLE_DIM, "0");
	/* If the height is even, the upper edge of this line is the middle of the graph. */
	if (height >= 6 && height % 2 == 0)
		canvas_right(canvas, end, y + height / 2, STYLE_DIM,
			     graph->format(graph->top / 2).text);
}

/* Write the minutes below a graph, each at the column where it began. */
static void draw_axis(struct canvas *canvas, int x, int y, int width)
{
	enum { MINUTES = MODEL_SECONDS / SECONDS_PER_MINUTE };
	int free_x = x;

	for (int minute = MINUTES; minute > 0; minute--) {
		const int at = x + (MINUTES - minute) * width / MINUTES;
		char text[16];

		snprintf(text, sizeof(text), minute == MINUTES ? "-%d min" : "-%d", minute);
		if (at < free_x)
			continue;
		free_x = 1 + canvas_text(canvas, at, y, STYLE_DIM, text);
	}
	canvas_right(canvas, x + width, y, STYLE_DIM, "now");
}

static void draw_graph(const struct graph *graph, struct canvas *canvas, int x, int y, int width,
		       int height)
{
	if (canvas->width >= SCALE_CANVAS && width >= SCALE_LEAST && height >= 5) {
		width = width - SCALE < WIDEST ? width : WIDEST + SCALE;
		draw_legend(graph, canvas, x, y, width);
		draw_scale(graph, canvas, x, y + 1, height - 2);
		draw_values(graph, canvas, x + SCALE, y + 1, width - SCALE, height - 2);
		draw_axis(canvas, x + SCALE, y + height - 1, width - SCALE);
		return;
	}
	width = width < WIDEST ? width : WIDEST;
	draw_values(graph, canvas, x, y, width, height - 1);
	draw_legend(graph, canvas, x, y + height - 1, width);
}

void graphs_draw(const struct model *model, struct canvas *canvas, int y, int height)
{
	const int width = canvas->width - 2;
	const int most = (width + GAP) / (LEAST + GAP);
	const bool has_two_rows =
		height >= TWO_ROWS_HEIGHT && (width + GAP) / (int)KIND_COUNT < ONE_ROW_WIDTH;
	enum kind kinds[KIND_COUNT];
	const int n = (int)choose(model, (unsigned int)(has_two_rows ? 2 * most : most), kinds);
	/* A graph or two are wide enough side by side. */
	const int n_rows = has_two_rows && n > 2 ? 2 : 1;
	struct graph graph;

	for (int row = 0, first = 0; row < n_rows; row++) {
		/* The first row has as many as the second, or one fewer. */
		const int end = row + 1 < n_rows ? n / 2 : n, n_here = end - first;
		const int each = (width - GAP * (n_here - 1)) / n_here;
		const int top = y + height * row / n_rows;
		/* An empty line separates two rows. */
		const int lines = y + height * (row + 1) / n_rows - top - (row + 1 < n_rows);

		for (int i = first; i < end; i++) {
			fill(model, kinds[i], &graph);
			draw_graph(&graph, canvas, 1 + (each + GAP) * (i - first), top, each,
				   lines);
		}
		first = end;
	}
}
