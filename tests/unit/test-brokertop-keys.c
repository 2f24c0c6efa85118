/* SPDX-License-Identifier: MIT */
/*
 * brokertop's keys for users of other monitors
 *
 * Each key does what the user of htop or btop expects, or says why it does not.
 * test-brokertop-picture.c tests the keys that brokertop itself lists.
 */
#include <string.h>

#include "input.h"
#include "player.h"
#include "support/stats-scene.h"
#include "support/test.h"

static struct model model;
static struct picture picture;
static struct canvas canvas;
static const struct origin origin = {.is_recorded = true};

static int setup(void **state)
{
	struct pages pages;

	picture_init(&picture);
	if (model_init(&model) || canvas_resize(&canvas, 120, 40))
		return -1;
	for (unsigned int moment = 0; moment < 2; moment++) {
		stats_scene_make(STATS_SCENE_THREE, moment, &pages);
		if (model_update(&model, &pages, 0, MODEL_PLANS | MODEL_DECISIONS))
			return -1;
		pages_unmap(&pages);
	}
	return picture_update(&picture, &model);
}

static int teardown(void **state)
{
	picture_deinit(&picture);
	model_deinit(&model);
	canvas_deinit(&canvas);
	return 0;
}

/* Handle a key, and draw, because some keys depend on what is visible. */
static enum input_wish press(int code)
{
	const struct input input = {.code = code};
	struct change change = {.kind = CHANGE_NONE};
	enum input_wish wish = input_handle(&picture, &model, NULL, &change, canvas.width, &input);

	assert_int_equal(picture_update(&picture, &model), 0);
	picture_draw(&picture, &model, &origin, &canvas, true);
	return wish;
}

static void type(const char *text)
{
	for (; *text; text++)
		press(*text);
}

static const char *sorted_by(void)
{
	const struct table *table = picture_table(&picture);

	return table->sort < 0 ? "" : table->columns[table->sort].name;
}

static const char *selected_tenant(void)
{
	return table_selected(picture_table(&picture))->tenant->now.name;
}

/* q leaves the help and the details, as in htop and btop; it ends the program only in a view. */
TEST(test_keys__leave_a_sheet, setup, teardown)
{
	static const int leaving[] = {'q', INPUT_ESCAPE, 'h', '?', INPUT_F + 1};

	for (unsigned int i = 0; i < sizeof(leaving) / sizeof(leaving[0]); i++) {
		press('?');
		assert_int_equal(picture.sheet, SHEET_HELP);
		assert_int_equal(press(leaving[i]), INPUT_NOTHING);
		assert_int_equal(picture.sheet, SHEET_NONE);
	}
	press(INPUT_ENTER);
	assert_int_equal(picture.sheet, SHEET_TENANT);
	/* The help covers the details. */
	press('h');
	assert_int_equal(picture.sheet, SHEET_HELP);
	press(INPUT_ESCAPE);
	press(INPUT_ENTER);
	assert_int_equal(press('q'), INPUT_NOTHING);
	assert_int_equal(picture.sheet, SHEET_NONE);
	press('?');
	assert_int_equal(press(INPUT_F + 10), INPUT_QUIT);
	press(INPUT_ESCAPE);
	assert_int_equal(press('q'), INPUT_QUIT);
}

TEST(test_keys__previous_view, setup, teardown)
{
	press(INPUT_BACK_TAB);
	assert_int_equal(picture.view, VIEW_LEASES);
	press(INPUT_BACK_TAB);
	assert_int_equal(picture.view, VIEW_DECISIONS);
	press(INPUT_TAB);
	press(INPUT_TAB);
	assert_int_equal(picture.view, VIEW_OVERVIEW);
}

/* Menus can be longer than the terminal. */
TEST(test_keys__move_in_menus, setup, teardown)
{
	const int last = (int)picture_table(&picture)->n_columns - 1;

	assert_int_equal(canvas_resize(&canvas, 80, 14), 0);
	press(INPUT_F + 6);
	press(INPUT_END);
	assert_int_equal(picture.menu_at, last);
	press(INPUT_HOME);
	assert_int_equal(picture.menu_at, 0);
	press(INPUT_PAGE_DOWN);
	assert_int_equal(picture.menu_at, 10);
	press(INPUT_WHEEL_DOWN);
	assert_int_equal(picture.menu_at, 13);
	press(INPUT_WHEEL_UP);
	press(INPUT_PAGE_UP);
	assert_int_equal(picture.menu_at, 0);
	press(INPUT_WHEEL_UP);
	assert_int_equal(picture.menu_at, 0);
	for (unsigned int i = 0; i < 9; i++)
		press(INPUT_PAGE_DOWN);
	assert_int_equal(picture.menu_at, last);
	/* From the end, the arrow leads to the beginning. */
	press(INPUT_DOWN);
	assert_int_equal(picture.menu_at, 0);
	assert_int_equal(press(INPUT_F + 10), INPUT_NOTHING);
	assert_int_equal(picture.prompt, PROMPT_NONE);
	press('S');
	assert_int_equal(picture.prompt, PROMPT_COLUMNS);
	assert_int_equal(press(INPUT_F + 10), INPUT_COLUMNS);
}

TEST(test_keys__previous_match, setup, teardown)
{
	press('2');
	press('/');
	/* The tenants are llm, web and batch; the last two have a b. */
	type("b");
	assert_string_equal(selected_tenant(), "web");
	press(INPUT_SHIFT_F3);
	assert_string_equal(selected_tenant(), "batch");
	press(INPUT_SHIFT_F3);
	assert_string_equal(selected_tenant(), "web");
	press(INPUT_F + 3);
	assert_string_equal(selected_tenant(), "batch");
	press(INPUT_ENTER);
	press('N');
	assert_string_equal(selected_tenant(), "web");
	press(INPUT_SHIFT_F3);
	assert_string_equal(selected_tenant(), "batch");
	press('n');
	assert_string_equal(selected_tenant(), "web");
	press('N');
	press('N');
	assert_string_equal(selected_tenant(), "web");
}

/* A key that moves ends a search, and the text of a filter, as Enter does. */
TEST(test_keys__move_from_a_prompt, setup, teardown)
{
	press('2');
	press('/');
	type("we");
	assert_string_equal(selected_tenant(), "web");
	press(INPUT_DOWN);
	assert_int_equal(picture.prompt, PROMPT_NONE);
	assert_string_equal(selected_tenant(), "batch");
	press(INPUT_F + 4);
	type("b");
	press(INPUT_HOME);
	assert_int_equal(picture.prompt, PROMPT_NONE);
	assert_int_equal(picture_table(&picture)->n_rows, 2);
	assert_string_equal(selected_tenant(), "web");
	/* The number that is typed for a limit keeps its prompt. */
	press(INPUT_F + 7);
	press(INPUT_DOWN);
	assert_int_equal(picture.prompt, PROMPT_BUDGET);
}

/* btop: f filters, Delete removes the filter, e shows the tree, r reverses; htop: Z pauses. */
TEST(test_keys__other_names, setup, teardown)
{
	struct table *table = picture_table(&picture);

	press('f');
	type("web");
	press(INPUT_ENTER);
	assert_int_equal(table->n_rows, 1);
	press(INPUT_DELETE);
	assert_int_equal(table->n_rows, 3);
	press('e');
	assert_true(table->is_tree);
	press('e');
	press('r');
	assert_true(table->is_reversed);
	press('Z');
	assert_true(picture.is_paused);
	press('Z');
	assert_false(picture.is_paused);
}

TEST(test_keys__pause_a_recording, setup, teardown)
{
	struct recording_moment moments[2] = {{.at_ns = 1}, {.at_ns = 2}};
	struct player player = {.fd = -1, .moments = moments, .n_moments = 2};
	const char *text;

	assert_true(player_handle(&player, 'Z', 1, &text));
	assert_true(player.is_standing);
	assert_true(player_handle(&player, 'Z', 1, &text));
	assert_false(player.is_standing);
}

/* M, P and T sort every view that can be sorted so, and pressed again they change nothing. */
TEST(test_keys__sort_every_view, setup, teardown)
{
	static const struct {
		int view, key;
		const char *column; /* NULL: there is none */
	} cases[] = {
		{'1', 'M', "VRAM"}, {'1', 'P', "TASKS/s"}, {'1', 'T', "P99"},
		{'3', 'M', "VRAM"}, {'3', 'P', "TASKS/s"}, {'3', 'T', "P99"},
		{'4', 'M', "SIZE"}, {'4', 'P', "TASKS/s"}, {'4', 'T', "CPU NOW"},
		{'5', 'M', NULL},   {'5', 'P', NULL},      {'5', 'T', "TOOK"},
		{'6', 'M', "USED"}, {'6', 'P', NULL},      {'6', 'T', NULL},
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct table *table;

		press(cases[i].view);
		table = picture_table(&picture);
		press('I');
		press(cases[i].key);
		assert_int_equal(picture.message[0] == '\0', cases[i].column != NULL);
		if (!cases[i].column)
			continue;
		assert_string_equal(sorted_by(), cases[i].column);
		assert_false(table->is_reversed);
		press(cases[i].key);
		assert_string_equal(sorted_by(), cases[i].column);
		assert_false(table->is_reversed);
	}
}

/* Only tenants have a tree; elsewhere the key changes nothing unseen. */
TEST(test_keys__tree_elsewhere, setup, teardown)
{
	static const int views[] = {'3', '4', '5', '6'};

	for (unsigned int i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
		press(views[i]);
		press(INPUT_F + 5);
		assert_string_equal(picture.message, "only tenants have a tree");
		assert_false(picture.tables[TABLE_TENANTS].is_tree);
	}
}
