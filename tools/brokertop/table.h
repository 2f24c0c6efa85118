#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tables: rows of the model in columns
 *
 * The set and order of rows is determined when something has changed. Only visible rows are
 * formatted. Columns that do not fit are omitted, largest priority value first.
 */
#include <stdbool.h>
#include <stdint.h>

#include "canvas.h"
#include "model.h"
#include "shm/stats-figures.h"

enum table_kind {
	TABLE_TENANTS,
	TABLE_SESSIONS,
	TABLE_PLANS,
	TABLE_DECISIONS,
	TABLE_LEASES,
	TABLE_COUNT,
};

/*
 * The object that a row shows: one of the pointers is set, and for a session or lease also its
 * tenant.
 */
struct row {
	const struct model_tenant *tenant;
	const struct model_session *session;
	const struct model_plan *plan;
	const struct model_decision *decision;
	const struct model_lease *lease;
	bool is_child, is_last_child;
	uint64_t id; /* identifies the object across updates */
	double key;
	const char *text_key;
};

struct cell_text {
	char text[256]; /* UTF-8; names have passed text_name() */
	enum style style;
	/*
	 * Text behind a name in warning style, such as " (drained)", NULL: none. Where there is no
	 * room for it a triangle stands for it, and the name is truncated only for that.
	 */
	const char *mark;
};

/* struct column.flags */
enum {
	COLUMN_LEFT = 1,
	COLUMN_FLEX = 2,       /* takes the remaining width; one per table */
	COLUMN_GPU = 4,        /* shown only if there is a GPU */
	COLUMN_DESCENDING = 8, /* sorts in descending order */
	COLUMN_TEXT = 16,      /* sorts by @text_key */
	COLUMN_BAD = 32,       /* a number that is bad unless 0 */
	COLUMN_OWN = 64,       /* tenants only: empty for sessions below a tenant */
};

struct column {
	const char *name;
	int width;
	unsigned int priority; /* 0: always shown; larger values are omitted first */
	unsigned int flags;
	void (*draw)(const struct model *model, const struct row *row, struct cell_text *ret);
	double (*key)(const struct model *model, const struct row *row);
	const char *(*text_key)(const struct model *model, const struct row *row);
	/* JSON name of a number, which makes the functions NULL; or NULL */
	const char *figure;
	/* converts @key to text, which makes draw NULL; or NULL */
	struct figure_text (*format)(double value);
};

enum { TABLE_MAX_COLUMNS = 64, TABLE_FILTER_BYTES = 64, TABLE_AUTO = -1 };

struct table {
	enum table_kind kind;
	struct column columns[TABLE_MAX_COLUMNS];
	/* figures of columns; NULL: the column has functions */
	const struct figure *figures[TABLE_MAX_COLUMNS];
	unsigned int n_columns;

	/* the user's settings */
	int sort; /* a column; TABLE_AUTO: by the most urgent problem */
	bool is_reversed;
	uint64_t hidden; /* bit mask of columns */
	bool is_tree;    /* TABLE_TENANTS: sessions below their tenants */
	char filter[TABLE_FILTER_BYTES];
	bool is_selecting;
	uint64_t selected_id;
	int selected, first; /* row numbers */

	/* current contents */
	struct row *rows;
	unsigned int n_rows, n_room;
	unsigned int n_all; /* rows without the filter */
	int sorted;         /* column sorted by; -1: none */

	/* positions when last drawn, for the mouse */
	int head_y, body_height;
	/* equal values: column omitted */
	int column_x[TABLE_MAX_COLUMNS], column_end[TABLE_MAX_COLUMNS];
};

void table_init(struct table *table, enum table_kind kind);
void table_deinit(struct table *table);

/*
 * Update the rows.
 * Return: 0, or -ENOMEM.
 */
int table_update(struct table *table, const struct model *model);

/* Draw the heads at @y and as many rows as fit, in @height lines together. */
void table_draw(struct table *table, const struct model *model, struct canvas *canvas, int y,
		int height);

/* Move the selection, and scroll to it. */
void table_move(struct table *table, int by);
/* Return the selected row, or NULL. */
const struct row *table_selected(const struct table *table);
/*
 * Select the next row with a name that contains @text, from the selected row (@by 0), from the row
 * after it (1), or backwards from the row before it (-1).
 * Return: true if there is one.
 */
bool table_search(struct table *table, const char *text, int by);
/* Return the column that the table is sorted by; -1: none. */
int table_sort_column(const struct table *table, const struct model *model);
void table_sort_by(struct table *table, int column);
/* Return the name of a column in menus and settings, which is never empty. */
const char *table_column_label(const struct table *table, unsigned int column);

/* columns-tenants.c, columns-plans.c, columns-leases.c */
extern const struct column tenant_columns[], session_columns[], plan_columns[], decision_columns[],
	lease_columns[];
extern const unsigned int n_tenant_columns, n_session_columns, n_plan_columns, n_decision_columns,
	n_lease_columns;

/* words.c */

/* Return a style that distinguishes the tenant from others. */
enum style tenant_style(uint32_t number);
/* Return a label such as "GPU1". */
const char *device_label(uint32_t device);
/* Return a name such as "resident". */
const char *memory_state_name(uint32_t state);
