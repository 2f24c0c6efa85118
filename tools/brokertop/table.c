/* SPDX-License-Identifier: MIT */
/*
 * Tables: filtering, sorting, selecting and drawing rows
 *
 * The selection follows an object: it stays on a tenant whose row moves. Until the user moves it,
 * the top is shown, where the most urgent rows are.
 */
#include "table.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "figures.h"
#include "monitor/text.h"

static const struct figure no_figures[] = {{.json = NULL}};

void table_init(struct table *table, enum table_kind kind)
{
	static const struct {
		const struct column *columns;
		const unsigned int *n;
		const struct figure *figures;
	} all[TABLE_COUNT] = {
		[TABLE_TENANTS] = {tenant_columns, &n_tenant_columns, tenant_figures},
		[TABLE_SESSIONS] = {session_columns, &n_session_columns, session_figures},
		[TABLE_PLANS] = {plan_columns, &n_plan_columns, plan_figures},
		[TABLE_DECISIONS] = {decision_columns, &n_decision_columns, no_figures},
		[TABLE_LEASES] = {lease_columns, &n_lease_columns, lease_figures},
	};
	const struct figure *figure;

	*table = (struct table){.kind = kind, .n_columns = *all[kind].n, .sort = TABLE_AUTO};
	memcpy(table->columns, all[kind].columns, table->n_columns * sizeof(struct column));
	for (unsigned int i = 0; i < table->n_columns; i++)
		if (table->columns[i].figure) {
			table->figures[i] =
				figure_find(all[kind].figures, table->columns[i].figure);
			assert(table->figures[i]);
		}
	for (figure = all[kind].figures; !figure_is_end(figure); figure++) {
		if (!figure->top)
			continue;
		assert(table->n_columns < TABLE_MAX_COLUMNS);
		table->figures[table->n_columns] = figure;
		table->columns[table->n_columns++] = (struct column){
			figure->top, 8, 8, COLUMN_DESCENDING, NULL, NULL, NULL, figure->json,
		};
	}
}

void table_deinit(struct table *table)
{
	free(table->rows);
	*table = (struct table){.kind = table->kind};
}

/* --- Figures --- */

/* Return: the record that a table shows in a row; NULL: the row is not of the table's own kind. */
static const void *record_of(const struct table *table, const struct row *row)
{
	if (row->plan)
		return &row->plan->now;
	if (row->lease)
		return &row->lease->now;
	if (table->kind == TABLE_SESSIONS)
		return &row->session->now;
	return row->is_child ? NULL : &row->tenant->now;
}

static void fill_cell(const struct table *table, unsigned int column, const struct model *model,
		      const struct row *row, struct cell_text *ret)
{
	const struct figure *figure = table->figures[column];
	const void *record;

	if (table->columns[column].flags & COLUMN_OWN && row->is_child)
		return;
	if (table->columns[column].format) {
		cell_set(
			ret,
			table->columns[column].format(table->columns[column].key(model, row)).text);
		return;
	}
	if (!figure) {
		table->columns[column].draw(model, row, ret);
		return;
	}
	record = record_of(table, row);
	if (!record)
		return;
	cell_set(ret, figure_of(figure, record).text);
	if (table->columns[column].flags & COLUMN_BAD && figure_real(figure, record) > 0)
		ret->style = STYLE_WARN;
}

/* Return: the sort key; NaN: not known. */
static double key_of(const struct table *table, unsigned int column, const struct model *model,
		     const struct row *row)
{
	const struct figure *figure = table->figures[column];

	return figure ? figure_real(figure, record_of(table, row))
		      : table->columns[column].key(model, row);
}

/* --- Rows --- */

static int add_row(struct table *table, const struct row *row)
{
	if (table->n_rows == table->n_room) {
		unsigned int n_room = table->n_room ? 2 * table->n_room : 64;
		struct row *grown = realloc(table->rows, n_room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		table->rows = grown;
		table->n_room = n_room;
	}
	table->rows[table->n_rows++] = *row;
	return 0;
}

/* Return true if @name contains @text, ignoring case. */
static bool has_text(const char *name, const char *text)
{
	return strcasestr(name, text) != NULL;
}

static bool matches(const struct row *row, const char *text)
{
	if (text[0] == '\0')
		return true;
	if (row->decision)
		return has_text(row->decision->tenant_name, text) ||
		       has_text(row->decision->plan_name, text) ||
		       has_text(rbk_reason_name(row->decision->now.reason), text);
	if (row->plan)
		return has_text(row->plan->tenant_name, text) ||
		       has_text(row->plan->now.name, text);
	if (row->session &&
	    (has_text(row->session->now.name, text) || has_text(row->session->now.comm, text)))
		return true;
	if (row->lease && (has_text(row->lease->now.name, text) ||
			   has_text(text_lease_states(&row->lease->now), text)))
		return true;
	return row->tenant && has_text(row->tenant->now.name, text);
}

static int add_matching(struct table *table, const struct model *model, struct row *row)
{
	const struct column *column = table->sorted >= 0 ? &table->columns[table->sorted] : NULL;

	table->n_all++;
	if (!matches(row, table->filter))
		return 0;
	if (column && column->flags & COLUMN_TEXT) {
		row->text_key = column->text_key(model, row);
	} else if (column) {
		row->key = key_of(table, (unsigned int)table->sorted, model, row);
		if (!isfinite(row->key))
			row->key = -1;
	}
	return add_row(table, row);
}

static int add_tenants(struct table *table, const struct model *model)
{
	int r = 0;

	for (uint32_t i = 0; i < model->n_tenants && r == 0; i++) {
		const struct model_tenant *tenant = &model->tenants[i];
		struct row row = {.tenant = tenant, .id = tenant->now.number};

		if (tenant->is_used)
			r = add_matching(table, model, &row);
	}
	return r;
}

static int add_sessions(struct table *table, const struct model *model)
{
	int r = 0;

	for (uint32_t i = 0; i < model->n_sessions && r == 0; i++) {
		const struct model_session *session = &model->sessions[i];
		struct row row = {
			.tenant = session->tenant,
			.session = session,
			.id = session->now.number,
		};

		if (model_shows(model, session))
			r = add_matching(table, model, &row);
	}
	return r;
}

static int add_plans(struct table *table, const struct model *model)
{
	int r = 0;

	for (uint32_t i = 0; i < model->n_plans && r == 0; i++) {
		const struct model_plan *plan = &model->plans[i];
		struct row row = {
			.plan = plan,
			.id = (uint64_t)plan->tenant << 32 | plan->slot,
		};

		r = add_matching(table, model, &row);
	}
	return r;
}

static int add_decisions(struct table *table, const struct model *model)
{
	int r = 0;

	for (uint32_t i = 0; i < model->n_decisions && r == 0; i++) {
		const struct model_decision *decision = &model->decisions[i];
		struct row row = {
			.decision = decision,
			.id = (uint64_t)decision->tenant << 40 ^ decision->now.sequence,
		};

		r = add_matching(table, model, &row);
	}
	return r;
}

static int add_leases(struct table *table, const struct model *model)
{
	int r = 0;

	for (uint32_t i = 0; i < model->n_leases && r == 0; i++) {
		const struct model_lease *lease = &model->leases[i];
		struct row row = {
			.tenant = lease->tenant,
			.lease = lease,
			.id = lease->now.number,
		};

		if (model_shows_lease(model, lease))
			r = add_matching(table, model, &row);
	}
	return r;
}

struct order {
	bool is_text, is_descending;
};

static int compare_rows(const void *a, const void *b, void *context)
{
	const struct row *left = a, *right = b;
	const struct order *order = context;
	int r;

	if (order->is_text)
		r = strcmp(left->text_key, right->text_key);
	else
		r = (left->key > right->key) - (left->key < right->key);
	if (order->is_descending)
		r = -r;
	/* Rows with equal keys keep a fixed order. */
	return r ? r : (left->id > right->id) - (left->id < right->id);
}

static void sort_rows(struct table *table)
{
	const int column = table->sorted;
	struct order order;

	if (column < 0 || table->n_rows == 0)
		return;
	order.is_text = table->columns[column].flags & COLUMN_TEXT;
	order.is_descending =
		!!(table->columns[column].flags & COLUMN_DESCENDING) != table->is_reversed;
	qsort_r(table->rows, table->n_rows, sizeof(*table->rows), compare_rows, &order);
}

/* Insert each tenant's sessions below it; the rows are sorted tenants. */
static int add_children(struct table *table, const struct model *model)
{
	const unsigned int n_tenants = table->n_rows;
	struct order order = {.is_text = false};
	unsigned int *places;
	int r = 0;

	/*
	 * Place of each tenant's row, from 1; 0: filtered out. Tenants have even keys, and their
	 * sessions the odd keys after them.
	 */
	places = calloc(model->n_tenants + 1, sizeof(*places));
	if (!places)
		return -ENOMEM;
	for (unsigned int i = 0; i < n_tenants; i++) {
		places[table->rows[i].tenant - model->tenants] = i + 1;
		table->rows[i].key = 2.0 * (i + 1);
	}
	for (uint32_t i = 0; i < model->n_sessions && r == 0; i++) {
		const struct model_session *session = &model->sessions[i];
		unsigned int place = session->now.number && session->tenant
					     ? places[session->tenant - model->tenants]
					     : 0;
		struct row row = {
			.session = session,
			.tenant = session->tenant,
			.is_child = true,
			.id = 1ull << 32 | session->now.number,
			.key = 2.0 * place + 1,
		};

		if (place)
			r = add_row(table, &row);
	}
	free(places);
	if (r || table->n_rows == 0)
		return r;
	qsort_r(table->rows, table->n_rows, sizeof(*table->rows), compare_rows, &order);
	for (unsigned int i = 0; i < table->n_rows; i++)
		table->rows[i].is_last_child =
			i + 1 == table->n_rows || !table->rows[i + 1].is_child;
	return 0;
}

/* Find the row of the selected object. */
static void find_selected(struct table *table)
{
	if (!table->is_selecting)
		return;
	for (unsigned int i = 0; i < table->n_rows; i++)
		if (table->rows[i].id == table->selected_id) {
			table->selected = (int)i;
			return;
		}
	table_move(table, 0);
}

int table_update(struct table *table, const struct model *model)
{
	static int (*const add[TABLE_COUNT])(struct table * table, const struct model *model) = {
		[TABLE_TENANTS] = add_tenants, [TABLE_SESSIONS] = add_sessions,
		[TABLE_PLANS] = add_plans,     [TABLE_DECISIONS] = add_decisions,
		[TABLE_LEASES] = add_leases,
	};
	int r;

	table->n_rows = table->n_all = 0;
	table->sorted = table_sort_column(table, model);
	r = add[table->kind](table, model);
	if (r)
		return r;
	sort_rows(table);
	if (table->kind == TABLE_TENANTS && table->is_tree)
		r = add_children(table, model);
	find_selected(table);
	return r;
}

/* --- Selecting --- */

void table_move(struct table *table, int by)
{
	const int n = (int)table->n_rows;
	int64_t row = (int64_t)table->selected + by;

	if (n == 0) {
		table->selected = 0;
		return;
	}
	table->selected = row < 0 ? 0 : row >= n ? n - 1 : (int)row;
	table->selected_id = table->rows[table->selected].id;
	table->is_selecting = true;
}

const struct row *table_selected(const struct table *table)
{
	if (!table->is_selecting || table->selected >= (int)table->n_rows)
		return NULL;
	return &table->rows[table->selected];
}

bool table_search(struct table *table, const char *text, int by)
{
	const unsigned int n = table->n_rows, step = by < 0 ? n - 1 : 1;
	unsigned int at = n ? ((unsigned int)table->selected + (by ? step : 0)) % n : 0;

	for (unsigned int i = 0; i < n; i++, at = (at + step) % n)
		if (matches(&table->rows[at], text)) {
			table_move(table, (int)at - table->selected);
			return true;
		}
	return false;
}

/* Return true if any tenant uses GPU memory, the scarce resource. */
static bool has_gpu_memory(const struct model *model)
{
	for (uint32_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].is_used &&
		    model_gpu_memory(model, &model->tenants[i].now) > 0)
			return true;
	return false;
}

int table_sort_column(const struct table *table, const struct model *model)
{
	const char *name;

	if (table->sort != TABLE_AUTO || table->kind == TABLE_DECISIONS)
		return table->sort;
	name = table->kind == TABLE_LEASES                             ? "GRANTED"
	       : table->kind == TABLE_TENANTS && has_gpu_memory(model) ? "VRAM"
								       : "TASKS/s";
	for (unsigned int i = 0; i < table->n_columns; i++)
		if (strcmp(table->columns[i].name, name) == 0)
			return (int)i;
	return TABLE_AUTO;
}

void table_sort_by(struct table *table, int column)
{
	table->is_reversed = table->sort == column && !table->is_reversed;
	table->sort = column;
}

const char *table_column_label(const struct table *table, unsigned int column)
{
	const char *name = table->columns[column].name;

	return name[0] ? name : "FLAGS";
}

/* --- Drawing --- */

static bool may_show(const struct table *table, const struct model *model, unsigned int column)
{
	if (table->hidden >> column & 1)
		return false;
	return !(table->columns[column].flags & COLUMN_GPU) || model->n_devices > RBK_DEVICE_GPU;
}

enum { LEAST_FLEX = 8 };

/* Choose the columns for @width; omitted columns get a width of 0. */
static void choose_columns(const struct table *table, const struct model *model, int width,
			   int widths[TABLE_MAX_COLUMNS])
{
	int need = 1, flex = -1;

	for (unsigned int i = 0; i < table->n_columns; i++) {
		widths[i] = may_show(table, model, i) ? table->columns[i].width : 0;
		need += widths[i] ? widths[i] + 2 : 0;
		if (widths[i] && table->columns[i].flags & COLUMN_FLEX)
			flex = (int)i;
	}
	while (need > width) {
		int worst = -1;

		for (unsigned int i = 0; i < table->n_columns; i++)
			if (widths[i] && table->columns[i].priority > 0 &&
			    (worst < 0 ||
			     table->columns[i].priority >= table->columns[worst].priority))
				worst = (int)i;
		if (worst < 0)
			break;
		need -= widths[worst] + 2;
		widths[worst] = 0;
		flex = worst == flex ? -1 : flex;
	}
	/* A truncated name is marked as such; a truncated number would be wrong. */
	if (flex >= 0 && need > width)
		widths[flex] -= need - width < widths[flex] - LEAST_FLEX
					? need - width
					: widths[flex] - LEAST_FLEX;
	if (flex >= 0 && need < width) {
		widths[flex] += width - need;
		/* Limit the width, so that figures stay near their names. */
		if (widths[flex] > table->columns[flex].width + 28)
			widths[flex] = table->columns[flex].width + 28;
	}
}

/* Draw a cell without a mark; mark truncated text with an ellipsis. */
static void draw_text(struct canvas *canvas, int x, int y, int width, bool is_left,
		      enum style style, const char *text)
{
	char cut[sizeof(((struct cell_text *)NULL)->text) + 4];
	int columns = canvas_columns(text);

	if (columns > width) {
		/* Only names are too long, and names are ASCII. */
		memcpy(cut, text, (size_t)width - 1);
		strcpy(cut + width - 1, "…");
		text = cut;
		columns = width;
	}
	canvas_text(canvas, is_left ? x : x + width - columns, y, style, text);
}

static void draw_cell(struct canvas *canvas, int x, int y, int width, bool is_left,
		      const struct cell_text *cell)
{
	const int columns = canvas_columns(cell->text);
	const char *mark = cell->mark;

	if (!mark) {
		draw_text(canvas, x, y, width, is_left, cell->style, cell->text);
		return;
	}
	mark = columns + canvas_columns(mark) <= width ? mark : " ▲";
	width -= canvas_columns(mark);
	draw_text(canvas, x, y, width, true, cell->style, cell->text);
	canvas_text(canvas, x + (columns < width ? columns : width), y, STYLE_WARN, mark);
}

static void draw_head(struct table *table, struct canvas *canvas, int y,
		      const int widths[TABLE_MAX_COLUMNS])
{
	const int sort = table->sorted;
	int x = 1;

	canvas_fill(canvas, 0, y, canvas->width, STYLE_HEAD, ' ');
	for (unsigned int i = 0; i < table->n_columns; i++) {
		const struct column *column = &table->columns[i];
		const bool is_descending =
			!!(column->flags & COLUMN_DESCENDING) != table->is_reversed;
		char text[64];

		table->column_x[i] = x;
		table->column_end[i] = widths[i] ? x + widths[i] : x;
		if (!widths[i])
			continue;
		snprintf(text, sizeof(text), "%s%s", column->name,
			 (int)i != sort  ? ""
			 : is_descending ? "▾"
					 : "▴");
		draw_text(canvas, x, y, widths[i], column->flags & COLUMN_LEFT, STYLE_HEAD, text);
		x += widths[i] + 2;
	}
	table->head_y = y;
}

static void draw_row(const struct table *table, const struct model *model, struct canvas *canvas,
		     int y, const struct row *row)
{
	struct cell_text cell;

	for (unsigned int i = 0; i < table->n_columns; i++) {
		const int width = table->column_end[i] - table->column_x[i];

		if (width == 0)
			continue;
		cell = (struct cell_text){.style = STYLE_PLAIN};
		fill_cell(table, i, model, row, &cell);
		draw_cell(canvas, table->column_x[i], y, width,
			  table->columns[i].flags & COLUMN_LEFT, &cell);
	}
}

void table_draw(struct table *table, const struct model *model, struct canvas *canvas, int y,
		int height)
{
	int widths[TABLE_MAX_COLUMNS], n = (int)table->n_rows;

	table->body_height = height > 1 ? height - 1 : 0;
	if (height < 1)
		return;
	choose_columns(table, model, canvas->width, widths);
	draw_head(table, canvas, y, widths);
	/* Scroll so that the selection is visible and as many rows as fit are shown. */
	if (table->selected < table->first)
		table->first = table->selected;
	if (table->selected >= table->first + table->body_height)
		table->first = table->selected - table->body_height + 1;
	if (table->first > n - table->body_height)
		table->first = n - table->body_height;
	if (table->first < 0)
		table->first = 0;
	for (int i = 0; i < table->body_height && table->first + i < n; i++) {
		draw_row(table, model, canvas, y + 1 + i, &table->rows[table->first + i]);
		if (table->is_selecting && table->first + i == table->selected)
			canvas_restyle(canvas, 0, y + 1 + i, canvas->width, STYLE_SELECTED);
	}
	if (n == 0)
		canvas_text(canvas, 1, y + 1, STYLE_DIM,
			    table->filter[0] ? "nothing matches the filter" : "none");
}
