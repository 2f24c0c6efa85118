/* SPDX-License-Identifier: MIT */
/*
 * Keys
 *
 * The keys are those of htop where htop has them, and + - f e r and Delete those of btop. Names in
 * questions are made printable.
 */
#include "input.h"

#include <stdio.h>
#include <string.h>

#include "monitor/text.h"

enum { WHEEL = 3 /* rows that a step of the mouse's wheel moves */ };

/* --- Views and sheets --- */

static void close_sheet(struct picture *picture)
{
	picture->sheet = SHEET_NONE;
	picture->sheet_first = 0;
}

static void open_sheet(struct picture *picture, enum sheet sheet)
{
	picture->sheet = sheet;
	picture->sheet_first = 0;
}

static void show_view(struct picture *picture, enum view view)
{
	close_sheet(picture);
	picture->view = view;
}

static void open_selected(struct picture *picture)
{
	struct table *table = picture_table(picture);
	const struct row *row;

	/* Select the first row if none is selected. */
	if (!table->is_selecting)
		table_move(table, 0);
	row = table_selected(table);
	if (!row)
		return;
	if (row->plan) {
		picture->sheet_tenant = row->plan->tenant;
		picture->sheet_slot = row->plan->slot;
		open_sheet(picture, SHEET_PLAN);
	} else if (row->decision && row->decision->plan_name[0]) {
		picture->sheet_tenant = row->decision->tenant;
		picture->sheet_slot = row->decision->now.plan;
		open_sheet(picture, SHEET_PLAN);
	} else if (row->lease) {
		picture->sheet_lease = row->lease->now.number;
		open_sheet(picture, SHEET_LEASE);
	} else if (row->tenant) {
		picture->sheet_tenant = row->tenant->now.number;
		open_sheet(picture, SHEET_TENANT);
	}
}

static void say(struct picture *picture, enum style style, const char *text)
{
	snprintf(picture->message, sizeof(picture->message), "%s", text);
	picture->message_style = style;
}

/*
 * Sort by the first of the columns @names that the view has; NULL ends them. As in htop, the same
 * key again does not reverse the order.
 */
static void sort_by_name(struct picture *picture, const struct model *model,
			 const char *const *names)
{
	struct table *table = picture_table(picture);

	for (; *names; names++)
		for (unsigned int i = 0; i < table->n_columns; i++) {
			const struct column *column = &table->columns[i];

			if (strcmp(column->name, *names) != 0 ||
			    (column->flags & COLUMN_GPU && model->n_devices <= RBK_DEVICE_GPU))
				continue;
			table->sort = (int)i;
			table->is_reversed = false;
			return;
		}
	say(picture, STYLE_WARN, "this view has no such column");
}

/* Move the cursor to the next or previous match: table_search() explains @by. */
static void search(struct picture *picture, int by)
{
	struct table *table = picture_table(picture);

	if (picture->input[0] && table->n_rows > 0 && !table_search(table, picture->input, by))
		say(picture, STYLE_WARN, "not found");
}

/* --- Changes --- */

static void begin_prompt(struct picture *picture, enum prompt prompt)
{
	picture->prompt = prompt;
	picture->input[0] = '\0';
}

/*
 * Find the object of a change.
 * Return: true if an object that can be changed is selected.
 */
static bool begin_change(struct picture *picture, const struct model *model, const char *why_not,
			 enum change_kind kind, struct change *ret)
{
	const struct row *row = table_selected(picture_table(picture));
	const struct model_tenant *tenant = NULL;
	const struct model_plan *plan = NULL;
	const struct model_lease *lease = NULL;

	if (picture->sheet == SHEET_PLAN)
		plan = model_plan(model, picture->sheet_tenant, picture->sheet_slot);
	else if (picture->sheet == SHEET_NONE && row)
		plan = row->plan;
	if (picture->sheet == SHEET_LEASE)
		lease = model_lease(model, picture->sheet_lease);
	if (why_not) {
		say(picture, STYLE_WARN, why_not);
		return false;
	}
	if (picture->sheet == SHEET_TENANT || picture->sheet == SHEET_PLAN)
		tenant = model_tenant(model, picture->sheet_tenant);
	else if (picture->sheet == SHEET_LEASE)
		tenant = lease ? lease->tenant : NULL;
	else if (plan)
		tenant = model_tenant(model, plan->tenant);
	else if (row && row->decision)
		tenant = model_tenant(model, row->decision->tenant);
	else if (row)
		tenant = row->tenant;
	if (!tenant) {
		say(picture, STYLE_WARN, "select a tenant first");
		return false;
	}
	*ret = (struct change){.kind = kind, .tenant = tenant->now.number};
	snprintf(ret->name, sizeof(ret->name), "%s", text_name(tenant->now.name));
	if (plan && kind == CHANGE_EVICT) {
		ret->session = plan->now.session;
		ret->plan_id = plan->now.plan_id;
		snprintf(ret->plan, sizeof(ret->plan), "%s", text_name(plan->now.name));
	}
	if (kind == CHANGE_DRAIN && tenant->now.flags & RBK_STATS_TENANT_DRAINED)
		ret->kind = CHANGE_DRAIN_END;
	return true;
}

static void ask(struct picture *picture, const struct change *change)
{
	char *text = picture->question;
	const size_t bytes = sizeof(picture->question);

	picture->prompt = PROMPT_CONFIRM;
	switch (change->kind) {
	case CHANGE_BUDGET:
		snprintf(text, bytes, "Set vram-max of tenant %s to %s?", change->name,
			 change->value);
		break;
	case CHANGE_EVICT:
		if (change->plan[0])
			snprintf(text, bytes, "Evict plan %s of tenant %s from every device?",
				 change->plan, change->name);
		else
			snprintf(text, bytes, "Evict all plans of tenant %s from every device?",
				 change->name);
		break;
	case CHANGE_DRAIN:
		snprintf(text, bytes, "Drain tenant %s, so that it gets no new work?",
			 change->name);
		break;
	case CHANGE_DRAIN_END:
		snprintf(text, bytes, "End draining of tenant %s?", change->name);
		break;
	case CHANGE_NONE:
		break;
	}
}

static void begin(struct picture *picture, const struct model *model, const char *why_not,
		  enum change_kind kind, struct change *change)
{
	if (!begin_change(picture, model, why_not, kind, change))
		return;
	if (kind == CHANGE_BUDGET) {
		begin_prompt(picture, PROMPT_BUDGET);
		snprintf(picture->question, sizeof(picture->question),
			 "vram-max of tenant %s (2GiB, 25%%, default)", change->name);
		return;
	}
	ask(picture, change);
}

/* --- Prompts --- */

static void type_text(struct picture *picture, int code)
{
	size_t n = strlen(picture->input);

	if (code == INPUT_BACKSPACE && n > 0)
		picture->input[n - 1] = '\0';
	else if (code >= ' ' && code <= '~' && n + 1 < sizeof(picture->input)) {
		picture->input[n] = (char)code;
		picture->input[n + 1] = '\0';
	}
}

static enum input_wish in_text(struct picture *picture, struct change *change, int code)
{
	struct table *table = picture_table(picture);
	const enum prompt prompt = picture->prompt;

	if (code == INPUT_ESCAPE) {
		picture->prompt = PROMPT_NONE;
		if (prompt == PROMPT_FILTER)
			table->filter[0] = '\0';
		return INPUT_NOTHING;
	}
	if (code == INPUT_ENTER) {
		picture->prompt = PROMPT_NONE;
		if (prompt == PROMPT_BUDGET && picture->input[0]) {
			snprintf(change->value, sizeof(change->value), "%s", picture->input);
			ask(picture, change);
		}
		return INPUT_NOTHING;
	}
	/* As in htop, the key that began the search finds the next match. */
	if (prompt == PROMPT_SEARCH && (code == INPUT_F + 3 || code == INPUT_SHIFT_F3)) {
		search(picture, code == INPUT_SHIFT_F3 ? -1 : 1);
		return INPUT_NOTHING;
	}
	type_text(picture, code);
	if (prompt == PROMPT_FILTER)
		snprintf(table->filter, sizeof(table->filter), "%s", picture->input);
	if (prompt == PROMPT_SEARCH)
		search(picture, 0);
	return INPUT_NOTHING;
}

static enum input_wish in_question(struct picture *picture, int code)
{
	picture->prompt = PROMPT_NONE;
	if (code == 'y' || code == 'Y')
		return INPUT_CHANGE;
	say(picture, STYLE_PLAIN, "nothing was changed");
	return INPUT_NOTHING;
}

/* Return the key that stands for a click into the menu: that of its line, which is selected. */
static int click_menu(struct picture *picture, const struct input *input)
{
	const int at = input->y - picture->menu_y;

	if (input->x >= picture->menu_width || at < 0 || at >= picture->menu_height)
		return 0;
	picture->menu_at = picture->menu_first + at;
	return picture->prompt == PROMPT_COLUMNS ? ' ' : INPUT_ENTER;
}

static void move_in_menu(struct picture *picture, int by, int n)
{
	picture->menu_at += by;
	if (picture->menu_at >= n)
		picture->menu_at = n - 1;
	if (picture->menu_at < 0)
		picture->menu_at = 0;
}

static enum input_wish in_menu(struct picture *picture, const struct input *input)
{
	struct table *table = picture_table(picture);
	const bool is_columns = picture->prompt == PROMPT_COLUMNS;
	const int n = (int)table->n_columns;

	switch (input->code == INPUT_CLICK ? click_menu(picture, input) : input->code) {
	case INPUT_UP:
		picture->menu_at = (picture->menu_at + n - 1) % n;
		break;
	case INPUT_DOWN:
		picture->menu_at = (picture->menu_at + 1) % n;
		break;
	case INPUT_PAGE_UP:
		move_in_menu(picture, -picture->menu_height, n);
		break;
	case INPUT_PAGE_DOWN:
		move_in_menu(picture, picture->menu_height, n);
		break;
	case INPUT_HOME:
		move_in_menu(picture, -n, n);
		break;
	case INPUT_END:
		move_in_menu(picture, n, n);
		break;
	case INPUT_WHEEL_UP:
		move_in_menu(picture, -WHEEL, n);
		break;
	case INPUT_WHEEL_DOWN:
		move_in_menu(picture, WHEEL, n);
		break;
	case ' ':
		/* The first column names the row and cannot be hidden. */
		if (is_columns && picture->menu_at > 0)
			table->hidden ^= 1ull << picture->menu_at;
		break;
	case INPUT_ENTER:
		if (!is_columns)
			table_sort_by(table, picture->menu_at);
		picture->prompt = PROMPT_NONE;
		break;
	case INPUT_ESCAPE:
	case INPUT_F + 10:
	case 'q':
		picture->prompt = PROMPT_NONE;
		break;
	}
	return is_columns && picture->prompt == PROMPT_NONE ? INPUT_COLUMNS : INPUT_NOTHING;
}

static void open_menu(struct picture *picture, const struct model *model, enum prompt prompt)
{
	int column = table_sort_column(picture_table(picture), model);

	picture->prompt = prompt;
	/* It cannot be clicked before it has been drawn. */
	picture->menu_height = 0;
	picture->menu_at = prompt == PROMPT_SORT && column > 0 ? column : 0;
}

/* --- Moving --- */

static void move(struct picture *picture, int by)
{
	int last;

	if (picture->sheet == SHEET_NONE) {
		table_move(picture_table(picture), by);
		return;
	}
	last = picture->sheet_lines - picture->sheet_height;
	picture->sheet_first += by;
	if (picture->sheet_first > last)
		picture->sheet_first = last;
	if (picture->sheet_first < 0)
		picture->sheet_first = 0;
}

/*
 * Handle a key that moves.
 * Return: true if @code is one.
 */
static bool in_motion(struct picture *picture, int code)
{
	enum { ALL = 1 << 28 };
	struct table *table = picture_table(picture);
	int page = picture->sheet == SHEET_NONE ? table->body_height : picture->sheet_height;

	switch (code) {
	case INPUT_UP:
		/* With no selection the table is at the top already. */
		move(picture, -1);
		return true;
	case INPUT_DOWN:
		move(picture, picture->sheet == SHEET_NONE && !table->is_selecting ? 0 : 1);
		return true;
	case INPUT_PAGE_UP:
		move(picture, -page);
		return true;
	case INPUT_PAGE_DOWN:
		move(picture, page);
		return true;
	case INPUT_HOME:
		move(picture, -ALL);
		return true;
	case INPUT_END:
		move(picture, ALL);
		return true;
	case INPUT_WHEEL_UP:
		move(picture, -WHEEL);
		return true;
	case INPUT_WHEEL_DOWN:
		move(picture, WHEEL);
		return true;
	}
	return false;
}

/* Select a row; open it if it was clicked a moment ago. */
static void click_row(struct picture *picture, int row, uint64_t at_ns)
{
	static const uint64_t double_click_ns = 500000000;
	struct table *table = picture_table(picture);
	const bool is_second = picture->clicked_id == table->rows[row].id &&
			       at_ns >= picture->clicked_at_ns &&
			       at_ns - picture->clicked_at_ns < double_click_ns;

	table_move(table, row - table->selected);
	if (is_second)
		open_selected(picture);
	/* The third click of three is the first again. */
	picture->clicked_id = is_second ? UINT64_MAX : table->rows[row].id;
	picture->clicked_at_ns = at_ns;
}

static void click(struct picture *picture, int x, int y, uint64_t at_ns)
{
	struct table *table = picture_table(picture);
	const enum view view = picture_view_at(picture, x, y);
	int row = table->first + y - table->head_y - 1;

	if (view != VIEW_COUNT)
		show_view(picture, view);
	if (view != VIEW_COUNT || picture->sheet != SHEET_NONE)
		return;
	if (y == table->head_y) {
		for (unsigned int i = 0; i < table->n_columns; i++)
			if (x >= table->column_x[i] && x < table->column_end[i])
				table_sort_by(table, (int)i);
	} else if (y > table->head_y && y <= table->head_y + table->body_height && row >= 0 &&
		   row < (int)table->n_rows) {
		click_row(picture, row, at_ns);
	}
}

/* --- Updates --- */

/* Change the time between two updates to the next longer or shorter one. */
static void change_delay(struct picture *picture, bool is_longer)
{
	static const uint64_t delays_ms[] = {100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000};
	enum { N = sizeof(delays_ms) / sizeof(delays_ms[0]) };
	const uint64_t now_ms = picture->delay_ns / 1000000;
	uint64_t wanted_ms = now_ms;

	if (picture->delay_ns == 0)
		return;
	for (unsigned int i = 0; i < N; i++) {
		const uint64_t ms = delays_ms[is_longer ? i : N - 1 - i];

		if (is_longer ? ms > now_ms : ms < now_ms) {
			wanted_ms = ms;
			break;
		}
	}
	picture->delay_ns = wanted_ms * 1000000;
	snprintf(picture->message, sizeof(picture->message), "updated every %g s",
		 (double)wanted_ms / 1000);
	picture->message_style = STYLE_PLAIN;
}

/* --- All of it --- */

static enum input_wish in_view(struct picture *picture, const struct model *model,
			       const char *why_not, struct change *change, int code)
{
	static const char *const memory[] = {"VRAM", "SIZE", "USED", "HOST", NULL};
	static const char *const tasks[] = {"TASKS/s", NULL};
	static const char *const times[] = {"P99", "CPU NOW", "TOOK", NULL};
	struct table *table = picture_table(picture);

	if (in_motion(picture, code))
		return INPUT_NOTHING;
	switch (code) {
	case 'q':
		if (picture->sheet == SHEET_NONE)
			return INPUT_QUIT;
		close_sheet(picture);
		break;
	case INPUT_F + 10:
		return INPUT_QUIT;
	case INPUT_ESCAPE:
		close_sheet(picture);
		break;
	case '?':
	case 'h':
	case INPUT_F + 1:
		if (picture->sheet == SHEET_HELP)
			close_sheet(picture);
		else
			open_sheet(picture, SHEET_HELP);
		break;
	case '1':
	case 'o':
		show_view(picture, VIEW_OVERVIEW);
		break;
	case '2':
		show_view(picture, VIEW_TENANTS);
		break;
	case '3':
	case 's':
		show_view(picture, VIEW_SESSIONS);
		break;
	case '4':
	case 'p':
		show_view(picture, VIEW_PLANS);
		break;
	case '5':
	case 'd':
		show_view(picture, VIEW_DECISIONS);
		break;
	case '6':
	case 'l':
		show_view(picture, VIEW_LEASES);
		break;
	case INPUT_TAB:
		show_view(picture, (picture->view + 1) % VIEW_COUNT);
		break;
	case INPUT_BACK_TAB:
		show_view(picture, (picture->view + VIEW_COUNT - 1) % VIEW_COUNT);
		break;
	case INPUT_ENTER:
		open_selected(picture);
		break;
	case 'S':
	case INPUT_F + 2:
		open_menu(picture, model, PROMPT_COLUMNS);
		break;
	case '/':
	case INPUT_F + 3:
		begin_prompt(picture, PROMPT_SEARCH);
		break;
	case 'n':
		search(picture, 1);
		break;
	case 'N':
	case INPUT_SHIFT_F3:
		search(picture, -1);
		break;
	case INPUT_DELETE:
		table->filter[0] = '\0';
		break;
	case 'f':
	case '\\':
	case INPUT_F + 4:
		begin_prompt(picture, PROMPT_FILTER);
		snprintf(picture->input, sizeof(picture->input), "%s", table->filter);
		break;
	case 'e':
	case 't':
	case INPUT_F + 5:
		if (table->kind == TABLE_TENANTS)
			table->is_tree ^= true;
		else
			say(picture, STYLE_WARN, "only tenants have a tree");
		break;
	case '<':
	case '>':
	case ',':
	case '.':
	case INPUT_F + 6:
		open_menu(picture, model, PROMPT_SORT);
		break;
	case 'M':
		sort_by_name(picture, model, memory);
		break;
	case 'P':
		sort_by_name(picture, model, tasks);
		break;
	case 'T':
		sort_by_name(picture, model, times);
		break;
	case 'I':
	case 'r':
		table->is_reversed ^= true;
		break;
	case ' ':
	case 'Z':
		picture->is_paused ^= true;
		break;
	case '+':
	case '=':
		change_delay(picture, true);
		break;
	case '-':
		change_delay(picture, false);
		break;
	case 'b':
	case INPUT_F + 7:
		begin(picture, model, why_not, CHANGE_BUDGET, change);
		break;
	case 'k':
	case INPUT_F + 8:
		begin(picture, model, why_not, CHANGE_EVICT, change);
		break;
	case INPUT_F + 9:
		begin(picture, model, why_not, CHANGE_DRAIN, change);
		break;
	}
	return INPUT_NOTHING;
}

enum input_wish input_handle(struct picture *picture, const struct model *model,
			     const char *why_not, struct change *change, int width,
			     const struct input *input)
{
	int code = input->code, key;

	picture->message[0] = '\0';
	/* As in htop, a key that moves ends a search. */
	if ((picture->prompt == PROMPT_SEARCH || picture->prompt == PROMPT_FILTER) &&
	    in_motion(picture, code)) {
		picture->prompt = PROMPT_NONE;
		return INPUT_NOTHING;
	}
	switch (picture->prompt) {
	case PROMPT_SEARCH:
	case PROMPT_FILTER:
	case PROMPT_BUDGET:
		return in_text(picture, change, code);
	case PROMPT_CONFIRM:
		return in_question(picture, code);
	case PROMPT_SORT:
	case PROMPT_COLUMNS:
		return in_menu(picture, input);
	case PROMPT_NONE:
		break;
	}
	if (code == INPUT_CLICK) {
		key = input->y < 0 ? picture_key_at(picture, input->x, width) : 0;
		if (key == 0) {
			click(picture, input->x, input->y, input->at_ns);
			return INPUT_NOTHING;
		}
		code = INPUT_F + key;
	}
	return in_view(picture, model, why_not, change, code);
}
