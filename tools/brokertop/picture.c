/* SPDX-License-Identifier: MIT */
/*
 * Picture: title, view and keys
 *
 * The first line identifies the broker. The second line shows warnings that affect all figures, if
 * there are any. The line after them has the names of the views. The last line lists the keys.
 */
#include "picture.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "figures.h"
#include "monitor/text.h"
#include "util/plural.h"

enum { LEAST_WIDTH = 40, LEAST_HEIGHT = 10, MANY_ROWS = 1000 };

static const char *const view_names[VIEW_COUNT] = {
	[VIEW_OVERVIEW] = "Overview", [VIEW_TENANTS] = "Tenants",     [VIEW_SESSIONS] = "Sessions",
	[VIEW_PLANS] = "Plans",       [VIEW_DECISIONS] = "Decisions", [VIEW_LEASES] = "Leases",
};

void picture_init(struct picture *picture)
{
	*picture = (struct picture){.view = VIEW_OVERVIEW};
	for (unsigned int i = 0; i < TABLE_COUNT; i++)
		table_init(&picture->tables[i], i);
}

void picture_deinit(struct picture *picture)
{
	for (unsigned int i = 0; i < TABLE_COUNT; i++)
		table_deinit(&picture->tables[i]);
}

struct table *picture_table(struct picture *picture)
{
	static const enum table_kind kinds[VIEW_COUNT] = {
		[VIEW_OVERVIEW] = TABLE_TENANTS,    [VIEW_TENANTS] = TABLE_TENANTS,
		[VIEW_SESSIONS] = TABLE_SESSIONS,   [VIEW_PLANS] = TABLE_PLANS,
		[VIEW_DECISIONS] = TABLE_DECISIONS, [VIEW_LEASES] = TABLE_LEASES,
	};

	return &picture->tables[kinds[picture->view]];
}

unsigned int picture_wants(const struct picture *picture)
{
	unsigned int what = 0;

	if (picture->view == VIEW_PLANS || picture->sheet == SHEET_PLAN)
		what |= MODEL_PLANS;
	if (picture->view == VIEW_DECISIONS || picture->sheet == SHEET_PLAN)
		what |= MODEL_DECISIONS;
	return what;
}

int picture_update(struct picture *picture, const struct model *model)
{
	return table_update(picture_table(picture), model);
}

/* --- The title --- */

static void add_part(struct canvas *canvas, int *x, int end, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Add a part to the title if it fits as a whole. */
static void add_part(struct canvas *canvas, int *x, int end, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (*x + canvas_columns(text) + 3 <= end)
		*x = canvas_text(canvas, canvas_text(canvas, *x, 0, STYLE_DIM, " · "), 0,
				 STYLE_PLAIN, text);
}

static void draw_clock(const struct model *model, const struct origin *origin,
		       struct canvas *canvas)
{
	uint64_t ns = origin->is_recorded
			      ? model->updated_at_ns + (uint64_t)model->realtime_offset_ns
			      : origin->now_ns;
	time_t seconds = (time_t)(ns / 1000000000u);
	char text[64];
	struct tm local;

	if (localtime_r(&seconds, &local) &&
	    strftime(text, sizeof(text), origin->is_recorded ? "%F %T" : "%T", &local) > 0)
		canvas_right(canvas, canvas->width - 1, 0, STYLE_PLAIN, text);
}

/* Add the drain of a restart: what is left of it. */
static void add_restart(const struct model *model, struct canvas *canvas, int *x, int end)
{
	const uint64_t until_ns = model->upkeep.restart_until_ns, n = model->broker.n_in_flight;
	const uint64_t left_ns =
		until_ns > model->updated_at_ns ? until_ns - model->updated_at_ns : 0;

	if (model->upkeep.restart_at_ns > 0)
		add_part(canvas, x, end, "restarting: %s task%s left, %.0f s",
			 figure_count((double)n).text, plural(n), ceil((double)left_ns / 1e9));
}

static void draw_title(const struct model *model, const struct origin *origin,
		       struct picture *picture, struct canvas *canvas)
{
	int x, end = canvas->width - (origin->is_recorded ? 22 : 11);

	x = canvas_text(canvas, 1, 0, STYLE_BOLD, "brokertop");
	draw_clock(model, origin, canvas);
	if (origin->is_recorded)
		add_part(canvas, &x, end, "recorded");
	if (origin->host)
		add_part(canvas, &x, end, "%s", text_name(origin->host));
	if (picture->is_paused)
		add_part(canvas, &x, end, "standing still");
	if (!model->has_page)
		return;
	add_part(canvas, &x, end, "brokerd up %s",
		 figure_duration(model->updated_at_ns > model->started_at_ns
					 ? model->updated_at_ns - model->started_at_ns
					 : 0)
			 .text);
	if (!model->is_root) {
		if (model->n_tenants > 0 && model->tenants[0].is_used)
			add_part(canvas, &x, end, "tenant %s",
				 text_name(model->tenants[0].now.name));
		return;
	}
	add_restart(model, canvas, &x, end);
	add_part(canvas, &x, end, "%s tenant%s", figure_count((double)model->broker.n_tenants).text,
		 plural(model->broker.n_tenants));
	add_part(canvas, &x, end, "%s session%s",
		 figure_count((double)model->broker.n_sessions).text,
		 plural(model->broker.n_sessions));
	if (model->n_connected > 0 && model->n_devices > RBK_DEVICE_GPU)
		add_part(canvas, &x, end, "%s plan%s (%s resident)",
			 figure_count((double)model->broker.n_plans).text,
			 plural(model->broker.n_plans),
			 figure_count((double)model->n_resident).text);
	else
		add_part(canvas, &x, end, "%s plan%s",
			 figure_count((double)model->broker.n_plans).text,
			 plural(model->broker.n_plans));
	if (model->broker.n_tenants_unlisted > 0)
		add_part(canvas, &x, end, "%s tenant%s beyond the page",
			 figure_count((double)model->broker.n_tenants_unlisted).text,
			 plural(model->broker.n_tenants_unlisted));
}

/* --- The keys --- */

static const struct {
	int key; /* number of the F key */
	const char *name;
	bool is_change;
} keys[] = {
	{1, "Help", false}, {2, "Cols", false},  {3, "Search", false}, {4, "Filter", false},
	{5, "Tree", false}, {6, "Sort", false},  {7, "Budget", true},  {8, "Evict", true},
	{9, "Drain", true}, {10, "Quit", false},
};
enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };

/* Return: the width of a key's label; 0: not shown. */
static int key_columns(const struct picture *picture, unsigned int i)
{
	char text[32];

	if (picture->is_played && keys[i].is_change)
		return 0;
	return snprintf(text, sizeof(text), " F%d%s", keys[i].key, keys[i].name);
}

/* Return true if there is room for the key. The last key, which quits, is always shown. */
static bool shows_key(const struct picture *picture, unsigned int i, int at, int width)
{
	return i == N_KEYS - 1 ||
	       at + key_columns(picture, i) + key_columns(picture, N_KEYS - 1) <= width;
}

int picture_key_at(const struct picture *picture, int x, int width)
{
	int at = 0;

	if (picture->prompt != PROMPT_NONE)
		return 0;
	for (unsigned int i = 0; i < N_KEYS; i++) {
		if (!shows_key(picture, i, at, width)) {
			i = N_KEYS - 2;
			continue;
		}
		at += key_columns(picture, i);
		if (x < at)
			return keys[i].key;
	}
	return 0;
}

enum view picture_view_at(const struct picture *picture, int x, int y)
{
	for (unsigned int i = 0; i < VIEW_COUNT; i++)
		if (y == picture->bar_y && x >= picture->bar_x[i] && x < picture->bar_end[i])
			return i;
	return VIEW_COUNT;
}

static void draw_menu(struct picture *picture, struct canvas *canvas)
{
	const struct table *table = picture_table(picture);
	const bool is_columns = picture->prompt == PROMPT_COLUMNS;
	const int n = (int)table->n_columns, width = 24;
	int height = n < canvas->height - 4 ? n : canvas->height - 4, first = 0;

	if (picture->menu_at >= height)
		first = picture->menu_at - height + 1;
	picture->menu_y = 2;
	picture->menu_width = width;
	picture->menu_height = height;
	picture->menu_first = first;
	canvas_fill(canvas, 0, 1, width, STYLE_HEAD, ' ');
	canvas_text(canvas, 1, 1, STYLE_HEAD, is_columns ? "Columns" : "Sort by");
	canvas_text(canvas, width, 1, STYLE_DIM, "│");
	for (int i = 0; i < height; i++) {
		const int at = first + i;
		const enum style style = at == picture->menu_at ? STYLE_SELECTED : STYLE_PLAIN;
		const char *mark = !is_columns ? "" : table->hidden >> at & 1 ? "[ ] " : "[x] ";

		canvas_fill(canvas, 0, 2 + i, width, style, ' ');
		canvas_format(canvas, 1, 2 + i, style, "%s%s", mark,
			      table_column_label(table, (unsigned int)at));
		canvas_text(canvas, width, 2 + i, STYLE_DIM, "│");
	}
}

static void draw_foot(struct picture *picture, const struct origin *origin, struct canvas *canvas)
{
	const int y = canvas->height - 1;
	const char *text;
	char delay[32] = "";
	int x = 0;

	switch (picture->prompt) {
	case PROMPT_SEARCH:
	case PROMPT_FILTER:
		canvas_format(canvas, 1, y, STYLE_BOLD, "%s: %s_   (Enter: done, Esc: remove)",
			      picture->prompt == PROMPT_SEARCH ? "Search" : "Filter",
			      picture->input);
		return;
	case PROMPT_BUDGET:
		canvas_format(canvas, 1, y, STYLE_BOLD, "%s: %s_   (Enter: continue, Esc: cancel)",
			      picture->question, picture->input);
		return;
	case PROMPT_CONFIRM:
		canvas_format(canvas, 1, y, STYLE_WARN, "%s  y/n", picture->question);
		return;
	case PROMPT_SORT:
		canvas_text(canvas, 1, y, STYLE_BOLD, "arrows, Enter: sort, Esc: cancel");
		return;
	case PROMPT_COLUMNS:
		canvas_text(canvas, 1, y, STYLE_BOLD, "arrows, space: show or hide, Esc: done");
		return;
	case PROMPT_NONE:
		break;
	}
	if (picture->message[0]) {
		canvas_text(canvas, 1, y, picture->message_style, picture->message);
		return;
	}
	for (unsigned int i = 0; i < N_KEYS; i++) {
		if (!shows_key(picture, i, x, canvas->width)) {
			i = N_KEYS - 2;
			continue;
		}
		if (key_columns(picture, i) == 0)
			continue;
		x = canvas_format(canvas, x, y, STYLE_PLAIN, " F%d", keys[i].key);
		x = canvas_text(canvas, x, y,
				keys[i].is_change && !origin->may_change ? STYLE_DIM : STYLE_KEY,
				keys[i].name);
	}
	if (picture->delay_ns && !picture->is_played)
		snprintf(delay, sizeof(delay), "every %g s  + -", (double)picture->delay_ns / 1e9);
	text = picture->is_played ? origin->player : delay;
	if (x + canvas_columns(text) < canvas->width)
		canvas_right(canvas, canvas->width - 1, y,
			     picture->is_played ? STYLE_BOLD : STYLE_DIM, text);
}

/* --- Views --- */

/*
 * Draw the names of the views, and behind them what the filter hides, or the number of rows. These
 * take precedence over the names of other views if space is short.
 */
static void draw_bar(struct picture *picture, struct canvas *canvas, int y)
{
	const struct table *table = picture_table(picture);
	int x = 1, columns = 1;
	char left_out[TABLE_FILTER_BYTES + 64];
	bool has_names;

	if (table->filter[0])
		snprintf(left_out, sizeof(left_out), "filter \"%s\": %u of %u",
			 text_name(table->filter), table->n_rows, table->n_all);
	else
		snprintf(left_out, sizeof(left_out), "%u", table->n_all);
	for (unsigned int i = 0; i < VIEW_COUNT; i++)
		columns += 4 + canvas_columns(view_names[i]);
	has_names = columns + 1 + canvas_columns(left_out) <= canvas->width;
	picture->bar_y = y;
	for (unsigned int i = 0; i < VIEW_COUNT; i++) {
		const bool is_this = i == picture->view;

		picture->bar_x[i] = x;
		x = canvas_format(canvas, x, y, is_this ? STYLE_KEY : STYLE_DIM, "%u%s%s", i + 1,
				  has_names || is_this ? " " : "",
				  has_names || is_this ? view_names[i] : "");
		picture->bar_end[i] = x;
		x += 2;
	}
	/* A sheet has no rows. */
	if (picture->sheet == SHEET_NONE)
		canvas_text(canvas, x + 1, y, table->filter[0] ? STYLE_WARN : STYLE_DIM, left_out);
}

static void draw_sheet(struct picture *picture, const struct model *model, struct canvas *canvas,
		       int y, int end)
{
	struct sheet_lines lines = {
		.canvas = canvas,
		.top = y,
		.end = end,
		.first = picture->sheet_first,
	};

	switch (picture->sheet) {
	case SHEET_HELP:
		help_draw(&lines);
		break;
	case SHEET_TENANT:
		detail_draw_tenant(model, picture->sheet_tenant, &lines);
		break;
	case SHEET_PLAN:
		detail_draw_plan(model, picture->sheet_tenant, picture->sheet_slot, &lines);
		break;
	case SHEET_LEASE:
		detail_draw_lease(model, picture->sheet_lease, &lines);
		break;
	case SHEET_NONE:
		break;
	}
	picture->sheet_lines = lines.line;
	picture->sheet_height = end - y;
	if (lines.line - picture->sheet_first > end - y)
		canvas_right(canvas, canvas->width, end - 1, STYLE_DIM, "  more below ");
}

static void draw_view(struct picture *picture, const struct model *model, struct canvas *canvas,
		      int y, int end)
{
	struct table *table = picture_table(picture);
	bool has_outside = false;

	if (picture->view == VIEW_OVERVIEW) {
		/* Tenants that the filter hides keep their lines, so that the graphs stay. */
		const unsigned int n_rows =
			table->n_rows > table->n_all ? table->n_rows : table->n_all;

		has_outside = model->is_root && model->n_devices > RBK_DEVICE_GPU;
		y = overview_draw(model, canvas, y, end - y,
				  1 + (n_rows < MANY_ROWS ? (int)n_rows : MANY_ROWS) + has_outside);
	}
	table_draw(table, model, canvas, y, end - y - has_outside);
	/* The pages of this view were not read before the pause. */
	if (picture->is_paused && table->n_rows == 0 && table->body_height > 0 &&
	    picture_wants(picture) & ~model->seen_what)
		canvas_text(canvas, 1, table->head_y + 1, STYLE_DIM,
			    "not read while the display is paused; space continues");
	if (has_outside && table->body_height > 0) {
		int n = (int)table->n_rows - table->first;

		if (n > table->body_height)
			n = table->body_height;
		overview_draw_outside(model, table, canvas, y + 1 + (n > 0 ? n : 1));
	}
}

void picture_draw(struct picture *picture, const struct model *model, const struct origin *origin,
		  struct canvas *canvas, bool has_keys)
{
	int y = 1, end = canvas->height - has_keys;

	canvas_clear(canvas);
	if (canvas->width < LEAST_WIDTH || canvas->height < LEAST_HEIGHT) {
		canvas_format(canvas, 0, 0, STYLE_WARN, "%s%dx%d or more",
			      canvas->width < 32 ? "needs " : "the terminal must be ", LEAST_WIDTH,
			      LEAST_HEIGHT);
		return;
	}
	draw_title(model, origin, picture, canvas);
	if (origin->warning[0]) {
		canvas_fill(canvas, 0, y, canvas->width, STYLE_BAD, ' ');
		canvas_format(canvas, 1, y++, STYLE_BAD, "▲ %s", origin->warning);
	}
	draw_bar(picture, canvas, y++);
	if (picture->sheet != SHEET_NONE)
		draw_sheet(picture, model, canvas, y, end);
	else if (model->has_page)
		draw_view(picture, model, canvas, y, end);
	if (picture->prompt == PROMPT_SORT || picture->prompt == PROMPT_COLUMNS)
		draw_menu(picture, canvas);
	if (has_keys)
		draw_foot(picture, origin, canvas);
}
