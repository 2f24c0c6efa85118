/* SPDX-License-Identifier: MIT */
/*
 * brokertop's pictures: cells are right for any pages and any keys
 *
 * tests/integration/brokertop.py compares how good pages look.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input.h"
#include "monitor/admin-socket.h"
#include "picture.h"
#include "settings.h"
#include "support/stats-scene.h"
#include "support/test.h"

static struct model model;
static struct picture picture;
static struct canvas canvas;
static struct change change;
static const struct origin origin = {.is_recorded = true, .warning = "what \033[2J\xff happened"};

static int setup(void **state)
{
	picture_init(&picture);
	return model_init(&model) || canvas_resize(&canvas, 120, 40);
}

static int teardown(void **state)
{
	picture_deinit(&picture);
	model_deinit(&model);
	canvas_deinit(&canvas);
	return 0;
}

static void show(enum stats_scene scene, unsigned int moment)
{
	struct pages pages;

	stats_scene_make(scene, moment, &pages);
	assert_int_equal(model_update(&model, &pages, 0, MODEL_PLANS | MODEL_DECISIONS), 0);
	pages_unmap(&pages);
	assert_int_equal(picture_update(&picture, &model), 0);
}

/* Return the lines of the canvas, with or without colours. The caller frees the text. */
static char *lines(enum canvas_colours colours)
{
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	assert_non_null(file);
	canvas_print(&canvas, file, colours);
	assert_int_equal(fclose(file), 0);
	return text;
}

static bool is_shown(const char *text)
{
	char *all;
	bool is_there;

	picture_draw(&picture, &model, &origin, &canvas, true);
	all = lines(CANVAS_NO_COLOURS);
	is_there = strstr(all, text) != NULL;
	if (!is_there)
		print_message("%s\n", all);
	free(all);
	return is_there;
}

static enum input_wish press_at(int code, int x, int y)
{
	const struct input input = {code, x, y};
	enum input_wish wish = input_handle(&picture, &model, NULL, &change, canvas.width, &input);

	assert_int_equal(picture_update(&picture, &model), 0);
	return wish;
}

static enum input_wish press(int code)
{
	return press_at(code, 0, 0);
}

static void type(const char *text)
{
	for (; *text; text++)
		press(*text);
}

static const struct row *first_row(void)
{
	return &picture_table(&picture)->rows[0];
}

/* --- Cells --- */

TEST(test_canvas__only_known_characters, setup, teardown)
{
	char *text;

	canvas_text(&canvas, 0, 0, STYLE_PLAIN,
		    "a\033[2J\x9b\xff\n\t\x7f\xc0\x80\xe2\x80\xae\xf0\x9f\x92\xa9\xed\xa0\x80✓█⣿z");
	text = lines(CANVAS_NO_COLOURS);
	assert_string_equal(text, "a?[2J?????????????✓█⣿z\n");
	free(text);
}

TEST(test_canvas__ascii, setup, teardown)
{
	char *text;

	canvas.is_ascii = true;
	canvas_text(&canvas, 0, 0, STYLE_PLAIN, "41 µs ✓ ▲ ▾ … ▕█▓▒░▏ ⣿⠀–");
	canvas.is_ascii = false;
	text = lines(CANVAS_NO_COLOURS);
	assert_string_equal(text, "41 us + ! v ~ |#=%:| # -\n");
	free(text);
}

TEST(test_canvas__cut_at_the_edges, setup, teardown)
{
	const struct segment segments[] = {{7, '#', STYLE_PLAIN, "name"},
					   {-5, '-', STYLE_PLAIN, 0}};

	canvas_text(&canvas, -2, 0, STYLE_PLAIN, "abc");
	canvas_text(&canvas, 118, 1, STYLE_PLAIN, "abc");
	canvas_text(&canvas, 0, -1, STYLE_PLAIN, "abc");
	canvas_text(&canvas, 0, 40, STYLE_PLAIN, "abc");
	canvas_fill(&canvas, 119, 2, 1000, STYLE_PLAIN, '#');
	canvas_bar(&canvas, 110, 3, 1000, 1, segments, 2);
	assert_fields(canvas, (cells[0].code, 'c'), (cells[120 + 119].code, 'b'),
		      (cells[2 * 120].code, ' '));
}

TEST(test_canvas__bars, setup, teardown)
{
	const struct segment segments[] = {{50, '#', STYLE_PLAIN, "half"},
					   {25, '=', STYLE_PLAIN, "too long"},
					   {12.5, ':', 0, 0}};
	char *text;

	canvas_bar(&canvas, 0, 0, 24, 100, segments, 3);
	text = lines(CANVAS_NO_COLOURS);
	assert_string_equal(text, "### half ###======:::\n");
	free(text);
}

TEST(test_canvas__graphs, setup, teardown)
{
	const double values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, NAN, INFINITY, 100};
	char *text;

	canvas_graph(&canvas, 0, 0, 6, 2, STYLE_PLAIN, 8, values, 12);
	text = lines(CANVAS_NO_COLOURS);
	assert_string_equal(text, "  ⢀⣴⡇⢸\n⢀⣴⣿⣿⡇⢸\n");
	free(text);
}

/* Layers lie upon each other; each cell has the style of the layer with most of its dots. */
TEST(test_canvas__stacks, setup, teardown)
{
	const double low[] = {4, 4, NAN, NAN}, high[] = {4, 4, 4, 8};
	const struct layer layers[] = {{low, STYLE_TENANT}, {high, STYLE_TENANT + 1}};
	char *text;

	canvas_stack(&canvas, 0, 0, 2, 2, 8, layers, 2, 4);
	assert_fields(canvas, (cells[0].style, STYLE_TENANT + 1), (cells[120].style, STYLE_TENANT),
		      (cells[1].style, STYLE_TENANT + 1), (cells[121].style, STYLE_TENANT + 1));
	text = lines(CANVAS_NO_COLOURS);
	assert_string_equal(text, "⢕⢐\n⣿⢕\n");
	free(text);
}

TEST(test_canvas__lines, setup, teardown)
{
	const double up[] = {0, 8, 8, NAN, 4, 4}, flat[] = {1, 1, 1, 1, 1, 1};
	const struct layer layers[] = {{up, STYLE_TENANT}, {flat, STYLE_TENANT + 1}};
	char *text;

	canvas_lines(&canvas, 0, 0, 3, 2, 8, layers, 1, 6);
	text = lines(CANVAS_NO_COLOURS);
	assert_string_equal(text, "⢸⠁\n⡸ ⠉\n");
	free(text);
	/* The second line is dotted, and gives its style to the cells that it shares. */
	canvas_lines(&canvas, 0, 0, 3, 2, 8, layers, 2, 6);
	assert_fields(canvas, (cells[0].style, STYLE_TENANT), (cells[120].style, STYLE_TENANT + 1));
	text = lines(CANVAS_NO_COLOURS);
	assert_string_equal(text, "⢸⠁\n⣸⢀⢉\n");
	free(text);
	canvas.is_ascii = true;
	canvas_lines(&canvas, 0, 0, 3, 2, 8, layers, 2, 6);
	for (int i = 0; i < canvas.width * canvas.height; i++)
		assert_true(canvas.cells[i].code < 0x7f);
	canvas.is_ascii = false;
}

TEST(test_canvas__colours, setup, teardown)
{
	char *text;

	canvas_text(&canvas, 0, 0, STYLE_TENANT + 1, "a");
	canvas_text(&canvas, 1, 0, STYLE_BAD, "b");
	canvas_text(&canvas, 2, 0, STYLE_PLAIN, "c");
	text = lines(CANVAS_256_COLOURS);
	assert_string_equal(text, "\033[0;38;5;214ma\033[0;1;7;38;5;202mb\033[0mc\n");
	free(text);
	text = lines(CANVAS_8_COLOURS);
	assert_string_equal(text, "\033[0;33ma\033[0;1;7;31mb\033[0mc\n");
	free(text);
}

/* Bad and selected rows differ by more than colour. */
TEST(test_canvas__without_colours, setup, teardown)
{
	assert_int_not_equal(canvas_attributes(STYLE_BAD), 0);
	assert_int_not_equal(canvas_attributes(STYLE_WARN), 0);
	assert_int_not_equal(canvas_attributes(STYLE_SELECTED), canvas_attributes(STYLE_HEAD));
	for (unsigned int i = 0; i < STYLE_COUNT; i++)
		assert_int_equal(canvas_colour(i, CANVAS_NO_COLOURS), -1);
}

/* --- Keys --- */

TEST(test_keys__sort, setup, teardown)
{
	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	assert_string_equal(first_row()->tenant->now.name, "llm");
	press('P');
	assert_string_equal(first_row()->tenant->now.name, "web");
	press('I');
	assert_string_equal(first_row()->tenant->now.name, "batch");
	press('T');
	assert_string_equal(first_row()->tenant->now.name, "batch");
	press('M');
	assert_string_equal(first_row()->tenant->now.name, "llm");
	/* A click on the head of the first column sorts by name. */
	assert_true(is_shown("TENANT"));
	press_at(INPUT_CLICK, 2, picture_table(&picture)->head_y);
	assert_string_equal(first_row()->tenant->now.name, "batch");
	assert_true(is_shown("TENANT▴"));
	press_at(INPUT_CLICK, 2, picture_table(&picture)->head_y);
	assert_string_equal(first_row()->tenant->now.name, "web");
	/* The third entry of the sort menu is VRAM. */
	press(INPUT_F + 6);
	assert_true(is_shown("Sort by"));
	press(INPUT_DOWN);
	press(INPUT_DOWN);
	press(INPUT_ENTER);
	assert_string_equal(first_row()->tenant->now.name, "llm");
	/* A click into the menu chooses its line. */
	press('<');
	assert_true(is_shown("Sort by"));
	press_at(INPUT_CLICK, 100, 3);
	press_at(INPUT_CLICK, 3, 0);
	assert_int_equal(picture.prompt, PROMPT_SORT);
	press_at(INPUT_CLICK, 3, 2);
	assert_int_equal(picture.prompt, PROMPT_NONE);
	assert_string_equal(first_row()->tenant->now.name, "batch");
	press(INPUT_F + 2);
	assert_true(is_shown("[x] SESS"));
	press_at(INPUT_CLICK, 3, 3);
	assert_true(is_shown("[ ] SESS"));
	press_at(INPUT_CLICK, 3, 3);
	press(INPUT_ESCAPE);
}

TEST(test_keys__filter_and_search, setup, teardown)
{
	show(STATS_SCENE_THREE, 1);
	press(INPUT_F + 4);
	type("BAT");
	press(INPUT_ENTER);
	assert_int_equal(picture_table(&picture)->n_rows, 1);
	assert_string_equal(first_row()->tenant->now.name, "batch");
	press('2');
	assert_true(is_shown("filter \"BAT\": 1 of 3"));
	press('\\');
	press(INPUT_ESCAPE);
	assert_int_equal(picture_table(&picture)->n_rows, 3);
	press('/');
	type("weX");
	assert_true(is_shown("Search: weX_"));
	press(INPUT_BACKSPACE);
	press(INPUT_ENTER);
	assert_string_equal(table_selected(picture_table(&picture))->tenant->now.name, "web");
	press('/');
	type("b");
	assert_string_equal(table_selected(picture_table(&picture))->tenant->now.name, "web");
	press(INPUT_F + 3);
	assert_string_equal(table_selected(picture_table(&picture))->tenant->now.name, "batch");
	press(INPUT_ESCAPE);
	press('3');
	press('/');
	type("llm");
	press(INPUT_ENTER);
	press('n');
	assert_string_equal(table_selected(picture_table(&picture))->session->now.name, "llm");
}

TEST(test_keys__selection_follows, setup, teardown)
{
	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	press(INPUT_DOWN);
	assert_string_equal(table_selected(picture_table(&picture))->tenant->now.name, "llm");
	press('P');
	assert_string_equal(table_selected(picture_table(&picture))->tenant->now.name, "llm");
	assert_int_equal(picture_table(&picture)->selected, 1);
	assert_true(is_shown("batch"));
	press(INPUT_END);
	assert_int_equal(picture_table(&picture)->selected, 2);
	press(INPUT_PAGE_UP);
	assert_int_equal(picture_table(&picture)->selected, 0);
}

TEST(test_keys__tree, setup, teardown)
{
	show(STATS_SCENE_THREE, 1);
	press(INPUT_F + 5);
	assert_int_equal(picture_table(&picture)->n_rows, 3 + 9);
	assert_false(picture_table(&picture)->rows[0].is_child);
	assert_true(picture_table(&picture)->rows[1].is_last_child);
	assert_true(is_shown("├─ 1002 web"));
	assert_true(is_shown("└─ 1001 llm"));
}

TEST(test_keys__details, setup, teardown)
{
	struct rbk_stats_tenant_device *gpu;

	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	gpu = &model.tenants[0].now.devices[RBK_DEVICE_GPU];
	gpu->n_segments = 12;
	gpu->bubble_ns = 34000000;
	model.devices[RBK_DEVICE_GPU].bubble_part = 0.12;
	assert_true(is_shown("bubbles  12%  "));
	press(INPUT_ENTER);
	assert_int_equal(canvas_resize(&canvas, 120, 50), 0);
	assert_true(is_shown("Tenant llm"));
	assert_true(is_shown("GPU1 ran 12 segments, and was idle for 34 ms while others"));
	assert_false(is_shown("CPU ran "));
	assert_true(is_shown("behind rsync"));
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
	press(INPUT_ESCAPE);
	assert_true(is_shown("TENANT"));
	press('4');
	press(INPUT_ENTER);
	assert_true(is_shown("fingerprint 1234567890abcdef"));
	press(INPUT_ESCAPE);
	press('?');
	assert_true(is_shown("Views"));
	press('5');
	assert_true(is_shown("PREDICTED"));
	assert_int_equal(press('q'), INPUT_QUIT);
}

static struct rbk_stats_lease *lease_record(const struct pages *pages, uint32_t index)
{
	return (void *)rbk_stats_record(&pages->root, RBK_STATS_SECTION_LEASES, index);
}

static const char *first_lease(void)
{
	return first_row()->lease->now.name;
}

/* Assert that the first row has @text in @column, if the table is wide enough for all columns. */
static void expect_cell(const char *column, const char *text)
{
	const struct table *table = picture_table(&picture);
	unsigned int i = 0, n = 0;
	char cell[64] = "";

	assert_int_equal(canvas_resize(&canvas, 310, 40), 0);
	picture_draw(&picture, &model, &origin, &canvas, true);
	while (strcmp(table->columns[i].name, column) != 0)
		i++;
	for (int x = table->column_x[i]; x < table->column_end[i] && n < 63; x++) {
		uint16_t code = canvas.cells[(table->head_y + 1) * canvas.width + x].code;

		if (n > 0 || code != ' ')
			cell[n++] = code < 0x7f ? (char)code : '?';
	}
	while (n > 0 && cell[n - 1] == ' ')
		cell[--n] = '\0';
	assert_string_equal(cell, text);
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
}

TEST(test_leases__columns, setup, teardown)
{
	static const char *const cells[][2] = {
		{"LEASE", "4294967295"}, {"TENANT", "web"},
		{"NAME", "a?[2J"},       {"PID", "?"},
		{"USER", "4294967294"},  {"DEVICE", "GPU1"},
		{"AGE", "3.0 min"},      {"MEMBERS", "5"},
		{"MIN", "1.0 MiB"},      {"WISH", "2.0 MiB"},
		{"GRANTED", "3.0 MiB"},  {"MAX", "4.0 MiB"},
		{"DRAWN", "5.0 MiB"},    {"USED", "7.0 MiB"},
		{"PEAK", "8.0 MiB"},     {"SEEN", "9.0 MiB"},
		{"BUSY", "37%"},         {"HAD/s", "?"},
		{"WAITED/s", "?"},       {"PARTS/s", "?"},
		{"SUBMITS/s", "?"},      {"LONGEST", "6.0 ms"},
		{"OVERDUE", "4"},        {"WAITING", "2.0 GiB"},
		{"REFUSED", "3"},        {"IS", "over waiting shrinking capped restored"},
	};
	struct pages pages;

	stats_scene_make(STATS_SCENE_THREE, 1, &pages);
	*lease_record(&pages, 0) = (struct rbk_stats_lease){
		.number = UINT32_MAX,
		.tenant = 2,
		.device = RBK_DEVICE_GPU,
		.flags = 31,
		.uid = UINT32_MAX - 1,
		.n_members = 5,
		.name = "a\033[2J",
		.min_bytes = 1 << 20,
		.wish_bytes = 2 << 20,
		.granted_bytes = 3 << 20,
		.max_bytes = 4 << 20,
		.credited_bytes = 5 << 20,
		.used_bytes = 4 << 20,
		.extra_bytes = 3 << 20,
		.peak_bytes = 8 << 20,
		.seen_bytes = 9 << 20,
		.busy_ns = 30000000000,
		.busy_percent = 37,
		.n_overdue = 4,
		.n_submissions = 48960,
		.longest_part_ns = 6000000,
		.waiting_bytes = 2ull << 30,
		.n_refused = 3,
		.opened_at_ns = pages.root.page->updated_at_ns - 180000000000,
	};
	lease_record(&pages, 1)->number = lease_record(&pages, 2)->number = 0;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	press('l');
	assert_int_equal(picture_table(&picture)->n_rows, 1);
	assert_int_equal(sizeof(cells) / sizeof(*cells) + 1, n_lease_columns); /* and MOVED */
	for (unsigned int i = 0; i + 1 < n_lease_columns; i++)
		expect_cell(cells[i][0], cells[i][1]);
	press(INPUT_ENTER);
	assert_true(is_shown("Lease 4294967295 a?[2J"));
	assert_true(is_shown(
		"opened by user 4294967294, whose process is gone or not seen   members 5"));
	assert_true(is_shown("granted 3.0 MiB   min 1.0 MiB   wish 2.0 MiB   max 4.0 MiB"));
	assert_true(is_shown("used 7.0 MiB   of that by drivers 3.0 MiB   peak 8.0 MiB"));
	assert_true(is_shown("seen by the kernel 9.0 MiB   refused 3"));
	assert_true(is_shown("waiting for 2.0 GiB"));
	assert_true(is_shown("37% of the last second   30 s since it was opened"));
	assert_true(is_shown("submissions 49.0k   parts 0   slices of dispatches 0"));
	assert_true(is_shown("– parts/s   – submissions/s   longest part lately 6.0 ms"));
	/* Changes apply to the lease's tenant. */
	press(INPUT_F + 9);
	assert_true(is_shown("Drain tenant web"));
	press('n');
	show(STATS_SCENE_THREE, 2);
	assert_true(is_shown("this lease is gone"));
	press(INPUT_F + 9);
	assert_true(is_shown("select a tenant first"));
}

TEST(test_leases__sort_and_filter, setup, teardown)
{
	struct pages pages;

	stats_scene_make(STATS_SCENE_THREE, 1, &pages);
	lease_record(&pages, 1)->granted_bytes += 1;
	lease_record(&pages, 2)->used_bytes += 1;
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	press('6');
	assert_string_equal(first_lease(), "ffmpeg");
	assert_true(is_shown("GRANTED▾"));
	for (unsigned int i = 0; i < n_lease_columns; i++) {
		static const struct {
			const char *column, *first;
		} orders[] = {{"USED", "vkcube"},        {"NAME", "ffmpeg"},
			      {"LEASE", "llama-server"}, {"TENANT", "vkcube"},
			      {"IS", "vkcube"},          {"WAITING", "ffmpeg"},
			      {"SEEN", "vkcube"},        {"MEMBERS", "llama-server"},
			      {"REFUSED", "vkcube"},     {"AGE", "vkcube"}};

		for (unsigned int k = 0; k < sizeof(orders) / sizeof(orders[0]); k++) {
			if (strcmp(lease_columns[i].name, orders[k].column) != 0)
				continue;
			table_sort_by(picture_table(&picture), (int)i);
			assert_int_equal(picture_update(&picture, &model), 0);
			assert_string_equal(first_lease(), orders[k].first);
		}
	}
	/* The filter matches names, tenants and states. */
	press(INPUT_F + 4);
	type("LLAMA");
	press(INPUT_ENTER);
	assert_int_equal(picture_table(&picture)->n_rows, 1);
	press(INPUT_F + 4);
	for (unsigned int i = 0; i < 5; i++)
		press(INPUT_BACKSPACE);
	type("shrink");
	press(INPUT_ENTER);
	assert_int_equal(picture_table(&picture)->n_rows, 1);
	assert_string_equal(first_lease(), "vkcube");
	/* A filter is shown at any width. */
	assert_int_equal(canvas_resize(&canvas, 60, 20), 0);
	assert_true(is_shown("6 Leases"));
	assert_true(is_shown("filter \"shrink\": 1 of 3"));
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
	press('\\');
	press(INPUT_ESCAPE);
	press('/');
	type("web");
	press(INPUT_ENTER);
	assert_string_equal(table_selected(picture_table(&picture))->lease->now.name, "ffmpeg");
	press(INPUT_TAB);
	assert_int_equal(picture.view, VIEW_OVERVIEW);
}

/* --- Contention --- */

TEST(test_contention__cap_and_cause, setup, teardown)
{
	show(STATS_SCENE_THREE, 0);
	assert_true(is_shown("▲ contended 1.4x  run-queue p99 1.9 ms  by rsync 75%"));
	model.worst_part = 0;
	assert_true(is_shown("▲ contended 1.4x  run-queue p99 1.9 ms  cause unknown"));
	/* The broker's maximum factor is a cap, not a measurement. */
	model.contention.factor = RBK_STATS_MAX_FACTOR;
	model.worker_p99_ns = 0;
	assert_true(is_shown("▲ contended 100.0x or more, at the cap  cause unknown"));
	model.contention.factor = NAN;
	assert_true(is_shown("▲ contended 0.0x  cause unknown"));
	model.contention.flags = 0;
	assert_false(is_shown("cause unknown"));
}

/* The title has what is left of the drain of a restart. */
TEST(test_title__restart, setup, teardown)
{
	show(STATS_SCENE_THREE, 0);
	assert_true(is_shown(" tenants ·"));
	model.broker.n_in_flight = 2;
	model.upkeep.restart_at_ns = model.updated_at_ns - 1000000000;
	model.upkeep.restart_until_ns = model.updated_at_ns + 3200000000;
	assert_true(is_shown(" · restarting: 2 tasks left, 4 s · 3 tenants"));
	/* The time is over, and the next broker is about to take over. */
	model.broker.n_in_flight = 1;
	model.upkeep.restart_until_ns = model.updated_at_ns - 1;
	assert_true(is_shown(" · restarting: 1 task left, 0 s · "));
	model.upkeep = (struct rbk_stats_upkeep){.restart_at_ns = 0};
	assert_true(is_shown(" · 3 tenants"));
}

/* A column that does not fit is left out, and not narrowed to the room that is left. */
TEST(test_columns__left_out_whole, setup, teardown)
{
	show(STATS_SCENE_THREE, 1);
	for (int width = 40; width < 260; width++) {
		assert_int_equal(canvas_resize(&canvas, width, 20), 0);
		for (int view = '2'; view <= '6'; view++) {
			const struct table *table;

			press(view);
			picture_draw(&picture, &model, &origin, &canvas, true);
			table = picture_table(&picture);
			for (unsigned int i = 0; i < table->n_columns; i++) {
				int columns = table->column_end[i] - table->column_x[i];

				/* A name may be cut. */
				assert_true(
					columns == 0 || columns >= table->columns[i].width ||
					(table->columns[i].flags & COLUMN_FLEX && columns >= 8));
			}
		}
	}
}

TEST(test_keys__columns, setup, teardown)
{
	show(STATS_SCENE_THREE, 1);
	assert_true(is_shown("SESS"));
	press(INPUT_F + 2);
	press(INPUT_DOWN);
	press(' ');
	press(INPUT_ESCAPE);
	picture_draw(&picture, &model, &origin, &canvas, true);
	assert_int_equal(picture_table(&picture)->column_x[1],
			 picture_table(&picture)->column_end[1]);
	/* The first column cannot be hidden. */
	press(INPUT_F + 2);
	press(' ');
	assert_int_equal(picture_table(&picture)->hidden, 2);
}

/* The choice of columns is the same in the next terminal, by name, in every table. */
TEST(test_settings__columns, setup, teardown)
{
	char folder[] = "/tmp/brokertop-XXXXXX", path[96], new_folder[64];
	FILE *file;

	assert_non_null(mkdtemp(folder));
	snprintf(new_folder, sizeof(new_folder), "%s/config", folder);
	snprintf(path, sizeof(path), "%s/brokertop.conf", new_folder);
	/* There is no file yet. */
	settings_load(&picture, path);
	show(STATS_SCENE_THREE, 1);
	press(INPUT_F + 2);
	press(INPUT_DOWN);
	press(' ');
	assert_int_equal(press(INPUT_ESCAPE), INPUT_COLUMNS);
	press('5');
	press(INPUT_F + 2);
	press(INPUT_UP);
	press(' ');
	assert_int_equal(press(INPUT_ENTER), INPUT_COLUMNS);
	assert_int_equal(settings_save(&picture, path), 0);
	picture_deinit(&picture);
	picture_init(&picture);
	settings_load(&picture, path);
	assert_int_equal(picture.tables[TABLE_TENANTS].hidden, 2);
	assert_int_equal(picture.tables[TABLE_DECISIONS].hidden, 1u << (n_decision_columns - 1));
	assert_int_equal(picture.tables[TABLE_PLANS].hidden, 0);

	/* Unknown tables and columns, the first column, and whatever else is in the file. */
	file = fopen(path, "w");
	assert_non_null(file);
	fputs("# tenants = SESS\n\nnothing\nothers = P50\nplans=  CPU NOW ,NOTHING,TENANT,\n",
	      file);
	fputs("plans = PLAN\nsessions =\n= PID\n", file);
	assert_int_equal(fclose(file), 0);
	picture_deinit(&picture);
	picture_init(&picture);
	settings_load(&picture, path);
	assert_string_equal(plan_columns[6].name, "CPU NOW");
	assert_int_equal(picture.tables[TABLE_PLANS].hidden, 1u << 6 | 1u << 2);
	assert_int_equal(picture.tables[TABLE_TENANTS].hidden, 0);
	assert_int_equal(picture.tables[TABLE_SESSIONS].hidden, 0);
	assert_int_equal(remove(path), 0);
	assert_int_equal(settings_save(&picture, new_folder), -EISDIR);
	assert_int_equal(rmdir(new_folder), 0);
	assert_int_equal(rmdir(folder), 0);
}

TEST(test_keys__delay, setup, teardown)
{
	show(STATS_SCENE_THREE, 1);
	/* Lines have no key for it. */
	press('+');
	assert_int_equal(picture.delay_ns, 0);
	picture.delay_ns = 1000000000;
	assert_true(is_shown("every 1 s  + -"));
	press('+');
	assert_int_equal(picture.delay_ns, 2000000000);
	assert_true(is_shown("updated every 2 s"));
	press('-');
	press('-');
	assert_int_equal(picture.delay_ns, 500000000);
	press(INPUT_ESCAPE);
	assert_true(is_shown("every 0.5 s  + -"));
	for (unsigned int i = 0; i < 20; i++)
		press('-');
	assert_int_equal(picture.delay_ns, 100000000);
	for (unsigned int i = 0; i < 20; i++)
		press('+');
	assert_int_equal(picture.delay_ns, 60000000000);
}

/* A drained tenant's name is readable in full; its mark takes the room that is left. */
TEST(test_columns__drained, setup, teardown)
{
	struct rbk_stats_tenant *tenant;
	struct pages pages;

	stats_scene_make(STATS_SCENE_THREE, 1, &pages);
	for (uint32_t i = 0; i < 2; i++) {
		tenant = (void *)rbk_stats_record(&pages.root, RBK_STATS_SECTION_TENANTS, i);
		tenant->flags |= RBK_STATS_TENANT_DRAINED;
		strcpy(tenant->name, i ? "longer-name-of-a-tenant" : "web-shop-1");
	}
	assert_int_equal(model_update(&model, &pages, 0, 0), 0);
	pages_unmap(&pages);
	assert_int_equal(picture_update(&picture, &model), 0);
	assert_int_equal(canvas_resize(&canvas, 320, 40), 0);
	assert_true(is_shown(" web-shop-1 (drained)"));
	assert_true(is_shown(" longer-name-of-a-tenant (drained)"));
	assert_int_equal(canvas_resize(&canvas, 80, 24), 0);
	assert_true(is_shown(" web-shop-1 ▲"));
	assert_true(is_shown("… ▲"));
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
}

/* The shares of both kinds of devices fit into an ordinary terminal, on any machine. */
TEST(test_columns__shares_at_80_columns, setup, teardown)
{
	assert_int_equal(canvas_resize(&canvas, 80, 24), 0);
	show(STATS_SCENE_THREE, 1);
	assert_true(is_shown("GPU-SHARE") && is_shown("CPU-SHARE"));
	show(STATS_SCENE_CPU, 2);
	assert_true(is_shown("CPU-SHARE"));
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
}

TEST(test_changes__are_confirmed, setup, teardown)
{
	const struct input evict = {.code = 'k'};
	const struct admin_attempt attempt = {.r = -ENOENT, .path = "/x/admin.sock"};
	char why_not[ADMIN_TEXT_BYTES];

	show(STATS_SCENE_THREE, 1);
	press(INPUT_F + 8);
	assert_true(is_shown("select a tenant first"));
	press(INPUT_DOWN);
	press(INPUT_F + 7);
	type("2GiB");
	assert_int_equal(press(INPUT_ENTER), INPUT_NOTHING);
	assert_true(is_shown("Set vram-max of tenant llm to 2GiB?  y/n"));
	assert_int_equal(press('n'), INPUT_NOTHING);
	assert_true(is_shown("nothing was changed"));
	press(INPUT_F + 8);
	assert_true(is_shown("Evict all plans of tenant llm from every device?"));
	assert_int_equal(press('y'), INPUT_CHANGE);
	assert_fields(change, (kind, CHANGE_EVICT), (tenant, 1), (plan_id, 0));
	press(INPUT_F + 9);
	assert_int_equal(press('y'), INPUT_CHANGE);
	assert_int_equal(change.kind, CHANGE_DRAIN);
	/* Filter for the second tenant's plan and evict it. */
	press('4');
	press('/');
	type("web-2");
	press(INPUT_ENTER);
	press('k');
	assert_int_equal(press('y'), INPUT_CHANGE);
	assert_fields(change, (tenant, 2), (plan_id, 3));
	assert_string_equal(change.plan, "web-2");
	/* Users who are not administrators are told the reason. */
	admin_socket_explain(&attempt, why_not, sizeof(why_not));
	input_handle(&picture, &model, why_not, &change, canvas.width, &evict);
	assert_int_equal(picture.prompt, PROMPT_NONE);
	assert_true(is_shown("no administrators' socket is at /x/admin.sock; name the path"));
}

TEST(test_mouse__keys_and_rows, setup, teardown)
{
	show(STATS_SCENE_THREE, 1);
	assert_true(is_shown("F10Quit"));
	press_at(INPUT_CLICK, 3, picture_table(&picture)->head_y + 2);
	assert_int_equal(picture_table(&picture)->selected, 1);
	press_at(INPUT_CLICK, 3, -1);
	assert_int_equal(picture.sheet, SHEET_HELP);
	press_at(INPUT_WHEEL_DOWN, 3, 3);
	press(INPUT_ESCAPE);
	assert_int_equal(press_at(INPUT_CLICK, 78, -1), INPUT_QUIT);
}

/* A click on a view's name shows the view, from a view and from a sheet. */
TEST(test_mouse__views, setup, teardown)
{
	static const int widths[] = {250, 120, 80, 60, 40};

	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	for (unsigned int k = 0; k < sizeof(widths) / sizeof(widths[0]); k++) {
		assert_int_equal(canvas_resize(&canvas, widths[k], 24), 0);
		for (unsigned int i = VIEW_COUNT; i-- > 0;) {
			press(k % 2 ? '?' : INPUT_TAB);
			picture_draw(&picture, &model, &origin, &canvas, true);
			assert_int_equal(
				canvas.cells[picture.bar_y * canvas.width + picture.bar_x[i]].code,
				'1' + i);
			press_at(INPUT_CLICK, picture.bar_end[i] - 1, picture.bar_y);
			assert_int_equal(picture.view, i);
			assert_int_equal(picture.sheet, SHEET_NONE);
			/* Beside the label, and the line below it. */
			press('?');
			press_at(INPUT_CLICK, picture.bar_end[i], picture.bar_y);
			press_at(INPUT_CLICK, picture.bar_x[i], picture.bar_y + 1);
			assert_int_equal(picture.sheet, SHEET_HELP);
		}
	}
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
}

/* A double click opens the row, if both clicks were into the same row, shortly after each other. */
TEST(test_mouse__double_click, setup, teardown)
{
	static const struct {
		uint64_t ms;
		int row;
		bool opens;
	} clicks[] = {{1000, 1, false}, {1200, 2, false}, {1300, 2, true},
		      {1400, 2, false}, {3000, 2, false}, {3600, 2, false},
		      {4000, 2, true},  {5000, 1, false}, {4900, 1, false}};

	show(STATS_SCENE_THREE, 0);
	show(STATS_SCENE_THREE, 1);
	assert_true(is_shown("TENANT"));
	for (unsigned int i = 0; i < sizeof(clicks) / sizeof(clicks[0]); i++) {
		const struct input input = {
			.code = INPUT_CLICK,
			.x = 3,
			.y = picture_table(&picture)->head_y + clicks[i].row,
			.at_ns = clicks[i].ms * 1000000,
		};

		input_handle(&picture, &model, NULL, &change, canvas.width, &input);
		assert_int_equal(picture.sheet, clicks[i].opens ? SHEET_TENANT : SHEET_NONE);
		assert_true(!clicks[i].opens || is_shown("Tenant web"));
		press(INPUT_ESCAPE);
	}
}

/* No key of the help is covered by its text, in any width. */
TEST(test_help__whole_keys, setup, teardown)
{
	for (int width = 40; width < 130; width += 15) {
		assert_int_equal(canvas_resize(&canvas, width, 200), 0);
		press(INPUT_ESCAPE);
		press('?');
		picture_draw(&picture, &model, &origin, &canvas, true);
		/* The text begins in one column, after a blank. */
		for (int y = 2; y < 199; y++)
			if (canvas.cells[y * width + 3].code != ' ' &&
			    canvas.cells[y * width + 1].code == ' ')
				assert_int_equal(canvas.cells[y * width + 15].code, ' ');
	}
}

/* --- Graphs --- */

/* Return true if line @y has a Braille sign. */
static bool has_graph(int y)
{
	for (int x = 0; x < canvas.width; x++)
		if (canvas.cells[y * canvas.width + x].code >= 0x2800)
			return true;
	return false;
}

/* Return the column at which @text begins in line @y; -1: nowhere. */
static int column_of(const char *text, int y)
{
	const int n = (int)strlen(text);

	for (int x = 0; x + n <= canvas.width; x++) {
		int i = 0;

		while (i < n && canvas.cells[y * canvas.width + x + i].code == (uint8_t)text[i])
			i++;
		if (i == n)
			return x;
	}
	return -1;
}

/* Assert that the names of the graphs of line @y are at least 26 columns apart. */
static void expect_wide_graphs(int y)
{
	static const char *const names[] = {"load  ", "VRAM  ", "tasks/s  ", "p99  "};
	int before = -26;

	for (unsigned int i = 0; i < 4; i++) {
		const int x = column_of(names[i], y);

		if (x < 0)
			continue;
		assert_true(x - before >= 26);
		before = x;
	}
	assert_true(canvas.width - before >= 25);
}

/* At any size, the graphs reach down to the table, and none of them is narrower than 24 columns. */
TEST(test_graphs__fill_the_terminal, setup, teardown)
{
	for (unsigned int i = 0; i < 310; i++)
		show(STATS_SCENE_THREE, i);
	for (int width = 60; width <= 400; width += 4)
		for (int height = 24; height <= 100; height += 19) {
			int n_lines = 0, head_y;

			assert_int_equal(canvas_resize(&canvas, width, height), 0);
			picture_draw(&picture, &model, &origin, &canvas, true);
			head_y = picture_table(&picture)->head_y;
			for (int y = 0; y < head_y; y++) {
				n_lines += has_graph(y);
				if (y >= 8 && column_of("p99  ", y) >= 0)
					expect_wide_graphs(y);
			}
			/*
			 * Above are 8 lines, and two rows of graphs have two titles, two axes and
			 * two empty lines. No load is above 95%.
			 */
			assert_in_range(n_lines, head_y - 15 - height / 20, height);
			assert_true(head_y >= height - 7);
		}
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
}

/* Tenants and devices have colours of their own, which their names have in the legend. */
TEST(test_graphs__of_tenants_and_devices, setup, teardown)
{
	unsigned int n[STYLE_COUNT] = {0};

	for (unsigned int i = 0; i < 310; i++)
		show(STATS_SCENE_THREE, i);
	assert_int_equal(canvas_resize(&canvas, 120, 70), 0);
	assert_true(is_shown("VRAM  llm 3.9 GiB  web 1.1 GiB  batch 614 MiB"));
	assert_true(is_shown("load  GPU1 "));
	assert_true(is_shown("-5 min"));
	assert_true(is_shown("100%│"));
	assert_true(is_shown("8.0 GiB│"));
	for (int y = 0; y < picture_table(&picture)->head_y; y++)
		for (int x = 0; x < canvas.width; x++)
			if (canvas.cells[y * canvas.width + x].code >= 0x2800)
				n[canvas.cells[y * canvas.width + x].style]++;
	for (uint32_t number = 1; number <= 3; number++)
		assert_true(n[tenant_style(number)] > 20);
	assert_true(n[STYLE_OUTSIDE] > 20);
	assert_int_equal(canvas_resize(&canvas, 120, 40), 0);
}

/* --- Whatever happens --- */

static bool is_sign(uint16_t code)
{
	return (code >= ' ' && code <= '~') || code == 0xb0 || code == 0xb5 || code == 0xb7 ||
	       (code >= 0x2013 && code <= 0x2026) || (code >= 0x2500 && code <= 0x25ff) ||
	       code == 0x2713 || (code >= 0x2800 && code < 0x2900);
}

static uint32_t random_state = 1;

static unsigned int random_below(unsigned int limit)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % limit;
}

/* Any keys in any order, at any size, over any pages: the picture has only our signs. */
TEST(test_anything__any_page_any_key, setup, teardown)
{
	static const int keys[] = {INPUT_UP,        INPUT_DOWN, INPUT_PAGE_UP,   INPUT_PAGE_DOWN,
				   INPUT_HOME,      INPUT_END,  INPUT_BACKSPACE, INPUT_ENTER,
				   INPUT_ESCAPE,    INPUT_TAB,  INPUT_CLICK,     INPUT_WHEEL_UP,
				   INPUT_WHEEL_DOWN};
	enum { N_KEYS = sizeof(keys) / sizeof(keys[0]), ROUNDS = 3000 };

	for (unsigned int i = 0; i < ROUNDS; i++) {
		int code = random_below(3)   ? keys[random_below(N_KEYS)]
			   : random_below(2) ? (int)(INPUT_F + 1 + random_below(9))
					     : (int)(' ' + random_below(95));

		if (i % 20 == 0) {
			static const enum stats_scene scenes[] = {STATS_SCENE_THREE,
								  STATS_SCENE_CPU, STATS_SCENE_OWN,
								  STATS_SCENE_HOSTILE};

			assert_int_equal(canvas_resize(&canvas, 1 + (int)random_below(260),
						       1 + (int)random_below(80)),
					 0);
			canvas.is_ascii = random_below(2);
			show(scenes[random_below(4)], i / 20);
		}
		press_at(code, (int)random_below(260), (int)random_below(80) - 1);
		picture_draw(&picture, &model, &origin, &canvas, i % 2);
		for (int k = 0; k < canvas.width * canvas.height; k++) {
			assert_true(is_sign(canvas.cells[k].code));
			assert_true(!canvas.is_ascii || canvas.cells[k].code < 0x7f);
			assert_in_range(canvas.cells[k].style, 0, STYLE_COUNT - 1);
		}
	}
}

TEST(test_anything__many_tenants, setup, teardown)
{
	show(STATS_SCENE_MANY, 0);
	show(STATS_SCENE_MANY, 1);
	assert_true(is_shown("1000 tenants"));
	press('3');
	assert_int_equal(picture_table(&picture)->n_rows, 10000);
	press(INPUT_END);
	picture_draw(&picture, &model, &origin, &canvas, true);
	assert_int_equal(table_selected(picture_table(&picture))->id,
			 picture_table(&picture)->rows[9999].id);
	press('1');
	press(INPUT_F + 5);
	assert_int_equal(picture_table(&picture)->n_rows, 11000);
}
