#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Picture: the visible part of a model, and the user's view settings
 *
 * Terminals and lines on standard output use the same picture. The picture depends on neither the
 * broker nor curses.
 */
#include "canvas.h"
#include "model.h"
#include "table.h"

enum view {
	VIEW_OVERVIEW,
	VIEW_TENANTS,
	VIEW_SESSIONS,
	VIEW_PLANS,
	VIEW_DECISIONS,
	VIEW_LEASES,
	VIEW_COUNT,
};

/* Overlays that cover the view. */
enum sheet {
	SHEET_NONE,
	SHEET_HELP,
	SHEET_TENANT, /* details of a tenant */
	SHEET_PLAN,
	SHEET_LEASE,
};

/* Prompts that replace the line of keys. */
enum prompt {
	PROMPT_NONE,
	PROMPT_SEARCH,
	PROMPT_FILTER,
	PROMPT_BUDGET,  /* a limit is entered */
	PROMPT_CONFIRM, /* yes or no */
	PROMPT_SORT,    /* choice from a list of columns */
	PROMPT_COLUMNS,
};

/* Source and age of the figures. */
struct origin {
	const char *host; /* NULL: not shown */
	/* sentence that the user must see; "": none */
	char warning[600];
	bool is_recorded;
	char player[48]; /* position in a recording; "": not playing */
	uint64_t now_ns; /* CLOCK_REALTIME, for the displayed time */
	bool may_change; /* the user may change budgets, evict and drain */
};

struct picture {
	enum view view;
	enum sheet sheet;
	uint32_t sheet_tenant, sheet_slot; /* for SHEET_TENANT and SHEET_PLAN */
	uint32_t sheet_lease;              /* for SHEET_LEASE */
	int sheet_first;                   /* first visible line */
	int sheet_lines, sheet_height;     /* size when last drawn, in lines */
	struct table tables[TABLE_COUNT];
	bool is_paused;
	bool is_played;    /* a recording is shown: no changes */
	uint64_t delay_ns; /* time between two updates of a terminal; 0: not in a terminal */

	/* positions of the views' labels when last drawn, for the mouse */
	int bar_y, bar_x[VIEW_COUNT], bar_end[VIEW_COUNT];
	/* the last click into a row: its time, and the row's id */
	uint64_t clicked_at_ns, clicked_id;

	enum prompt prompt;
	char input[64];
	char question[600]; /* for PROMPT_CONFIRM and PROMPT_BUDGET */
	int menu_at;        /* for PROMPT_SORT and PROMPT_COLUMNS: the selected column */
	/* the menu when last drawn: its first line, its size, and the column in the first line */
	int menu_y, menu_width, menu_height, menu_first;
	char message[600]; /* shown until the next key */
	enum style message_style;
};

void picture_init(struct picture *picture);
void picture_deinit(struct picture *picture);

/* Return the table that the view shows. */
struct table *picture_table(struct picture *picture);
/* Return the data that the view needs from tenants' pages: MODEL_*. */
unsigned int picture_wants(const struct picture *picture);

/*
 * Update the rows of the table.
 * Return: 0, or -ENOMEM.
 */
int picture_update(struct picture *picture, const struct model *model);

/* Draw the whole picture. @has_keys: include the line of keys at the bottom. */
void picture_draw(struct picture *picture, const struct model *model, const struct origin *origin,
		  struct canvas *canvas, bool has_keys);

/* Return the number of the F key at column @x of the last line; 0: none. */
int picture_key_at(const struct picture *picture, int x, int width);
/* Return the view whose label is at column @x of line @y; VIEW_COUNT: none. */
enum view picture_view_at(const struct picture *picture, int x, int y);

/*
 * Draw the part above the table (overview.c), in a view of @height lines of which the table needs
 * @table_lines.
 * Return: the line after it.
 */
int overview_draw(const struct model *model, struct canvas *canvas, int y, int height,
		  int table_lines);
/* Draw graphs of the last five minutes in @height lines, at least 5 (graphs.c). */
void graphs_draw(const struct model *model, struct canvas *canvas, int y, int height);
/* Draw the use of programs outside the broker, in the columns of the tenants' table. */
void overview_draw_outside(const struct model *model, const struct table *table,
			   struct canvas *canvas, int y);

/* A sheet being drawn; lines above or below the visible part are not drawn. */
struct sheet_lines {
	struct canvas *canvas;
	int top, end; /* first row of the canvas, and the row after the last */
	int line;     /* next line of the sheet */
	int first;    /* line of the sheet that is drawn at @top */
};
/*
 * Advance to the sheet's next line.
 * Return: its row of the canvas; -1: not visible.
 */
static inline int sheet_next_line(struct sheet_lines *lines)
{
	int y = lines->top + lines->line++ - lines->first;

	return y >= lines->top && y < lines->end ? y : -1;
}

/* detail.c draws one tenant, plan or lease; help.c the help. */
void detail_draw_tenant(const struct model *model, uint32_t number, struct sheet_lines *lines);
void detail_draw_plan(const struct model *model, uint32_t tenant, uint32_t slot,
		      struct sheet_lines *lines);
void detail_draw_lease(const struct model *model, uint32_t number, struct sheet_lines *lines);
void help_draw(struct sheet_lines *lines);
