#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tables: rows of the model in columns
 *
 * Which rows there are, and in which order, is found out when something has changed; formatted are
 * only those that are seen. Columns that do not fit are left out, those with the largest priority
 * first.
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

/* What a row shows; of the pointers one is set, a session's or a lease's tenant beside it. */
struct row {
	const struct model_tenant *tenant;
	const struct model_session *session;
	const struct model_plan *plan;
	const struct model_decision *decision;
	const struct model_lease *lease;
	bool is_child, is_last_child;
	uint64_t id; /* the same as long as it is the same thing */
	double key;
	const char *text_key;
};

struct cell_text {
	char text[256]; /* UTF-8; names have gone through text_name() */
	enum style style;
};

/* struct column.flags */
enum {
	COLUMN_LEFT = 1,
	COLUMN_FLEX = 2,       /* gets what is left; one of a table */
	COLUMN_GPU = 4,        /* only where there is a GPU */
	COLUMN_DESCENDING = 8, /* sorted by it, the largest is first */
	COLUMN_TEXT = 16,      /* sorted by @text_key */
	COLUMN_BAD = 32,       /* a number that had better be 0 */
	COLUMN_OWN = 64,       /* of a tenant: its sessions below it have none */
};

struct column {
	const char *name;
	int width;
	unsigned int priority; /* 0: always shown */
	unsigned int flags;
	void (*draw)(const struct model *model, const struct row *row, struct cell_text *ret);
	double (*key)(const struct model *model, const struct row *row);
	const char *(*text_key)(const struct model *model, const struct row *row);
	/* NULL; or the name of a number in JSON: then the functions are NULL. */
	const char *figure;
	/* NULL; or what makes a text of @key: then @draw is NULL. */
	struct figure_text (*format)(double value);
};

enum { TABLE_MAX_COLUMNS = 64, TABLE_FILTER_BYTES = 64, TABLE_AUTO = -1 };

struct table {
	enum table_kind kind;
	struct column columns[TABLE_MAX_COLUMNS];
	const struct figure *figures[TABLE_MAX_COLUMNS]; /* of columns; NULL: they have functions */
	unsigned int n_columns;

	/* As the user wants it. */
	int sort; /* a column; TABLE_AUTO: whatever hurts most */
	bool is_reversed;
	uint32_t hidden; /* columns, by bit */
	bool is_tree;    /* TABLE_TENANTS: with their sessions */
	char filter[TABLE_FILTER_BYTES];
	bool is_selecting;
	uint64_t selected_id;
	int selected, first; /* rows */

	/* What there is. */
	struct row *rows;
	unsigned int n_rows, n_room;
	unsigned int n_all; /* without the filter */
	int sorted;         /* the column; or -1 */

	/* As it was drawn last, for the mouse. */
	int head_y, body_height;
	int column_x[TABLE_MAX_COLUMNS], column_end[TABLE_MAX_COLUMNS]; /* equal: left out */
};

void table_init(struct table *table, enum table_kind kind);
void table_deinit(struct table *table);

/* Finds out which rows there are. Return: 0; -ENOMEM. */
int table_update(struct table *table, const struct model *model);

/* Draws heads at @y and as many rows as fit below, @height lines together. */
void table_draw(struct table *table, const struct model *model, struct canvas *canvas, int y,
		int height);

/* Moves the selection, and the rows that are seen with it. */
void table_move(struct table *table, int by);
/* The row that is selected; NULL: none is. */
const struct row *table_selected(const struct table *table);
/* Selects the next row whose names contain @text. Return: was there one? */
bool table_search(struct table *table, const char *text, bool from_next);
/* The column that is sorted by; or -1. */
int table_sort_column(const struct table *table, const struct model *model);
void table_sort_by(struct table *table, int column);

/* columns-tenants.c, columns-plans.c, columns-leases.c */
extern const struct column tenant_columns[], session_columns[], plan_columns[], decision_columns[],
	lease_columns[];
extern const unsigned int n_tenant_columns, n_session_columns, n_plan_columns, n_decision_columns,
	n_lease_columns;

/* "over waiting"; empty: nothing is to be said. As brokerctl leases has it. */
struct lease_state {
	char text[48];
};
struct lease_state lease_state(const struct model_lease *lease);

/* words.c */

/* A style that tells a tenant from others. */
enum style tenant_style(uint32_t number);
/* "GPU1" */
const char *device_label(uint32_t device);
/* "resident" */
const char *memory_state_name(uint32_t state);
