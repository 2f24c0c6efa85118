#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The picture: what is seen of a model, and what the user has made of it
 *
 * The same for a terminal and for lines on standard output. Knows neither the broker nor curses.
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

/* What covers the view. */
enum sheet {
	SHEET_NONE,
	SHEET_HELP,
	SHEET_TENANT, /* one in full */
	SHEET_PLAN,
	SHEET_LEASE,
};

/* What stands instead of the keys. */
enum prompt {
	PROMPT_NONE,
	PROMPT_SEARCH,
	PROMPT_FILTER,
	PROMPT_BUDGET,  /* a limit is typed */
	PROMPT_CONFIRM, /* yes or no */
	PROMPT_SORT,    /* columns are listed */
	PROMPT_COLUMNS,
};

/* Where the figures come from, and how old they are. */
struct origin {
	const char *host; /* NULL: not to be told */
	/* A sentence that has to be seen; empty: all is well. */
	char warning[600];
	bool is_recorded;
	char player[48]; /* where in a recording; empty: nobody plays */
	uint64_t now_ns; /* realtime, for the clock */
	bool may_change; /* budgets, evictions, drains */
};

struct picture {
	enum view view;
	enum sheet sheet;
	uint32_t sheet_tenant, sheet_slot; /* of SHEET_TENANT, SHEET_PLAN */
	uint32_t sheet_lease;              /* of SHEET_LEASE */
	int sheet_first;                   /* line that is seen first */
	int sheet_lines, sheet_height;     /* as it was drawn last */
	struct table tables[TABLE_COUNT];
	bool is_paused;
	bool is_played; /* a recording: nothing can be changed */

	enum prompt prompt;
	char input[64];
	char question[600]; /* of PROMPT_CONFIRM, PROMPT_BUDGET */
	int menu_at;        /* of PROMPT_SORT, PROMPT_COLUMNS */
	char message[600];  /* shown until the next key */
	enum style message_style;
};

void picture_init(struct picture *picture);
void picture_deinit(struct picture *picture);

/* The table that the view shows. */
struct table *picture_table(struct picture *picture);
/* What the view needs of tenants' pages: MODEL_*. */
unsigned int picture_wants(const struct picture *picture);

/* Finds out what rows there are. Return: 0; -ENOMEM. */
int picture_update(struct picture *picture, const struct model *model);

/* Draws all of it; @has_keys: with the line of keys at the bottom. */
void picture_draw(struct picture *picture, const struct model *model, const struct origin *origin,
		  struct canvas *canvas, bool has_keys);

/* Keys of the last line: what a click at column @x of @width means, a number of an F key; 0. */
int picture_key_at(const struct picture *picture, int x, int width);

/* overview.c: the part above the table. Return: the line after it. */
int overview_draw(const struct model *model, struct canvas *canvas, int y, int height);
/* What others use, in the columns of the tenants' table. */
void overview_draw_outside(const struct model *model, const struct table *table,
			   struct canvas *canvas, int y);

/* A sheet being drawn: lines that may be above or below what is seen. */
struct sheet_lines {
	struct canvas *canvas;
	int top, end; /* rows of the canvas */
	int line;     /* of the sheet, that comes next */
	int first;    /* that is drawn at @top */
};
/* The row that the sheet's next line is drawn at; outside the canvas if it is not seen. */
static inline int sheet_next_line(struct sheet_lines *lines)
{
	int y = lines->top + lines->line++ - lines->first;

	return y >= lines->top && y < lines->end ? y : -1;
}

/* detail.c: one tenant, one plan, one lease; help.c. */
void detail_draw_tenant(const struct model *model, uint32_t number, struct sheet_lines *lines);
void detail_draw_plan(const struct model *model, uint32_t tenant, uint32_t slot,
		      struct sheet_lines *lines);
void detail_draw_lease(const struct model *model, uint32_t number, struct sheet_lines *lines);
void help_draw(struct sheet_lines *lines);
